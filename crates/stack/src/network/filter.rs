//! Where a packet filter looks at what leaves and what arrives.
//!
//! A filter that can take batches is handed the packets of a flow in one call, and says of each what
//! is to become of it. One that cannot gets the same call with one packet each time: the stack
//! builds batches of one for its flows and takes received super-frames apart for it. So a filter is
//! never passed by, and never sees anything but packets as a peer would get them.
//!
//! ```text
//!   out: stamped packets of one flow -> PacketFilter::transmit -> device
//!   in:  frames of one receive batch -> PacketFilter::receive  -> link layer
//! ```
//!
//! A packet that is built and not taken by the device is built again, and the filter asked again.
//! What a filter drops on the way out is, for its sender, lost on the wire: TCP sends it again when
//! it finds out.
//!
//! A filter is the application's code, which any thread may run that runs the shard. Where it panics, the packets
//! that it was asked about and did not decide on are dropped and counted (`drop_filter_panicked`), and it
//! is asked again about the next: what it was there to keep out must not pass because it failed.

use crate::network::NetworkLayer;
use crate::network::interfaces::InterfaceId;
use crate::shard::Shard;
use batch::{Block, Frame, Multidata, ReceiveBatch, ReceivedChecksum};
use bytes::Bytes;
use core::net::SocketAddr;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use counters::DropReason;
use device::{Medium, lowering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use time::Instant;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    #[default]
    Pass,
    /// It is dropped, and counted.
    Drop,
    /// It goes on with these six bits as its differentiated-services code point (RFC 2474). On the
    /// way in as `Pass`.
    Mark(u8),
}

/// How a filter wants the packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handling {
    /// As they come, many in one call.
    #[default]
    Batches,
    /// One in each call.
    SinglePackets,
    /// One in each call, because each may be marked.
    Marking,
}

/// A flow as a filter is asked about it. Ports are zero where the protocol has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterFlow {
    /// The interface it leaves by.
    pub interface: InterfaceId,
    /// The IP protocol number.
    pub protocol: u8,
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

/// Looks at packets on their way out and in. Called with the shard's lock held: it must not wait. Where it
/// panics, the packets of that call are dropped.
pub trait PacketFilter: Send {
    /// How it wants the packets of a flow on the way out. Asked when a connection finds its path
    /// and whenever that changes, and for every packet that is no connection's.
    fn handling(&self, flow: &FilterFlow) -> Handling;

    /// Decides on the packets `packets` of `batch`, which are of one flow and complete but for
    /// checksums left to the device. `verdicts` has one place for each, all [`Verdict::Pass`].
    fn transmit(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        batch: &Multidata,
        packets: Range<usize>,
        verdicts: &mut [Verdict],
    );

    /// Whether [`PacketFilter::receive`] takes several frames, and super-frames.
    fn receives_batches(&self) -> bool {
        true
    }

    /// Decides on the frames of `frames`, as the device gave them. `verdicts` has one place for each.
    fn receive(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        frames: &ReceiveBatch,
        verdicts: &mut [Verdict],
    );
}

/// The application's filter, which may panic: that ends the call and nothing else.
pub(crate) struct GuardedFilter {
    filter: Box<dyn PacketFilter>,
    /// Atomic, because it is also asked where nothing may be changed.
    panics: AtomicU64,
    /// What it said of the packets that it saw last.
    verdicts: Vec<Verdict>,
    /// The first of them that it did not decide on, because it panicked.
    undecided_from: usize,
}

impl GuardedFilter {
    fn new(filter: Box<dyn PacketFilter>) -> Self {
        let (panics, verdicts) = (AtomicU64::new(0), Vec::new());
        Self { filter, panics, verdicts, undecided_from: usize::MAX }
    }

    /// It is to see so many packets.
    fn begin(&mut self, count: usize) {
        self.verdicts.clear();
        self.verdicts.resize(count, Verdict::Pass);
        self.undecided_from = usize::MAX;
    }

    /// It failed at the packet of this number, and is not asked about those behind it, which it might take as long
    /// to fail at.
    fn give_up(&mut self, from: usize) {
        self.verdicts[from..].fill(Verdict::Drop);
        self.undecided_from = from;
    }

    /// Whether it lets frame `index` of the batch that it saw last go on.
    #[inline]
    pub(crate) fn passes(&self, index: usize) -> bool {
        self.verdicts.get(index) != Some(&Verdict::Drop)
    }

    /// What the call says, or `None` where it panicked.
    fn caught<T>(panics: &AtomicU64, call: impl FnOnce() -> T) -> Option<T> {
        let outcome = catch_unwind(AssertUnwindSafe(call)).ok();
        if outcome.is_none() {
            panics.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    /// See [`PacketFilter::handling`].
    pub(crate) fn handling(&self, flow: &FilterFlow) -> Handling {
        Self::caught(&self.panics, || self.filter.handling(flow)).unwrap_or_default()
    }

    fn receives_batches(&self) -> bool {
        Self::caught(&self.panics, || self.filter.receives_batches()).unwrap_or(true)
    }

    /// See [`PacketFilter::transmit`].
    fn transmit(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        batch: &Multidata,
        packets: Range<usize>,
    ) {
        self.begin(packets.len());
        let Self { filter, panics, verdicts, .. } = self;
        let call = || filter.transmit(now, interface, batch, packets, verdicts);
        if Self::caught(panics, call).is_none() {
            self.give_up(0);
        }
    }

    /// See [`PacketFilter::receive`].
    fn receive(&mut self, now: Instant, interface: InterfaceId, frames: &ReceiveBatch) {
        self.begin(frames.len());
        let Self { filter, panics, verdicts, .. } = self;
        let call = || filter.receive(now, interface, frames, verdicts);
        if Self::caught(panics, call).is_none() {
            self.give_up(0);
        }
    }

    /// The same, where the filter takes frames of one packet only: of frame `index` this is one. Says whether it
    /// passes; `None` where the filter failed at it.
    fn receive_one(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        packet: &ReceiveBatch,
    ) -> Option<bool> {
        let Self { filter, panics, .. } = self;
        let mut verdict = [Verdict::Pass];
        Self::caught(panics, || filter.receive(now, interface, packet, &mut verdict))?;
        Some(verdict != [Verdict::Drop])
    }
}

/// What a filter left of the packets of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Screened {
    /// Packets from the front that go on.
    pub(crate) passed: usize,
    /// Those behind them that are dropped; what follows is to be built afresh.
    pub(crate) dropped: usize,
    /// A packet among several is to be marked: the flow must come one by one.
    pub(crate) wants_single: bool,
}

impl Shard {
    /// Puts a filter on the ways out and in, in place of any other, which it gives back; `None` takes it away.
    pub fn set_filter(
        &mut self,
        filter: Option<Box<dyn PacketFilter>>,
    ) -> Option<Box<dyn PacketFilter>> {
        self.network.counters.filter_panics = self.network.filter_panics();
        let new = filter.map(GuardedFilter::new);
        let old = core::mem::replace(&mut self.network.filter, new);
        self.network.path_mtus.invalidate();
        old.map(|old| old.filter)
    }
}

impl NetworkLayer {
    /// Calls of filters that ended in a panic.
    pub(crate) fn filter_panics(&self) -> u64 {
        let panics = self.filter.as_ref().map_or(0, |it| it.panics.load(Ordering::Relaxed));
        self.counters.filter_panics + panics
    }

    /// Has the filter decide on the packets `packets`, and cuts `out` off behind those that go on,
    /// where not all do.
    pub(crate) fn screen(
        &mut self,
        now: Instant,
        id: InterfaceId,
        out: &mut Multidata,
        packets: Range<usize>,
    ) -> Screened {
        let (first, count) = (packets.start, packets.len());
        let whole = Screened { passed: count, dropped: 0, wants_single: false };
        let Some(filter) = &mut self.filter else { return whole };
        filter.transmit(now, id, out, packets);
        self.counters.filter_calls += 1;
        let verdicts = filter.verdicts.as_slice();
        let marks = verdicts.iter().any(|verdict| matches!(verdict, Verdict::Mark(_)));
        if marks && count > 1 {
            out.truncate(first);
            return Screened { passed: 0, dropped: 0, wants_single: true };
        }
        let is_dropped = |verdict: &&Verdict| **verdict == Verdict::Drop;
        let passed = verdicts.iter().take_while(|verdict| !is_dropped(verdict)).count();
        let dropped = verdicts[passed..].iter().take_while(is_dropped).count();
        if let (1, [Verdict::Mark(dscp)]) = (count, verdicts) {
            mark(out, first, *dscp);
        }
        if passed < count {
            out.truncate(first + passed);
        }
        Screened { passed, dropped, wants_single: false }
    }

    /// Has the filter decide on received frames; afterwards [`NetworkLayer::is_admitted`] knows.
    pub(crate) fn screen_received(&mut self, now: Instant, id: InterfaceId, batch: &ReceiveBatch) {
        let Some(filter) = &mut self.filter else { return };
        if filter.receives_batches() {
            self.counters.filter_calls += 1;
            return filter.receive(now, id, batch);
        }
        filter.begin(batch.len());
        let network_offset = match self.interfaces[id].capabilities.medium {
            Medium::Ethernet(_) => wire::EthernetRepr::LEN,
            Medium::Ip => 0,
        };
        for index in 0..batch.len() {
            let mut is_decided = true;
            // A super-frame of which the filter drops a packet is dropped whole: its other packets
            // are sent again.
            let passes = packets_of(batch, index, network_offset).is_some_and(|mut packets| {
                packets.all(|packet| {
                    self.counters.filter_calls += 1;
                    let outcome = filter.receive_one(now, id, &packet);
                    is_decided = outcome.is_some();
                    outcome == Some(true)
                })
            });
            if !is_decided {
                return filter.give_up(index);
            }
            self.counters.filter_expansions +=
                u64::from(batch.frame(index).is_some_and(|frame| frame.segmented.is_some()));
            filter.verdicts[index] = if passes { Verdict::Pass } else { Verdict::Drop };
        }
    }

    /// Whether frame `index` of the batch that was screened last goes on.
    #[inline]
    pub(crate) fn is_admitted(&mut self, index: usize) -> bool {
        if self.filter.as_ref().is_none_or(|filter| filter.passes(index)) {
            return true;
        }
        self.drops.add(self.filtered_for(index));
        false
    }

    /// Why the filter's last answer dropped the packet of this number.
    pub(crate) fn filtered_for(&self, index: usize) -> DropReason {
        match self.filter.as_ref().is_some_and(|filter| index >= filter.undecided_from) {
            true => DropReason::FilterPanicked,
            false => DropReason::Filtered,
        }
    }
}

/// The packets that a frame stands for, each as a batch of one.
fn packets_of(
    batch: &ReceiveBatch,
    index: usize,
    network_offset: usize,
) -> Option<impl Iterator<Item = ReceiveBatch> + use<>> {
    let frame = batch.frame(index)?;
    let packets = match frame.segmented {
        Some(run) => lowering::expand(batch.bytes(index), network_offset, run.segment_len)?,
        None => vec![batch.bytes(index).to_vec()],
    };
    let checksum = match frame.segmented {
        Some(_) => ReceivedChecksum::Unverified,
        None => frame.checksum,
    };
    Some(packets.into_iter().map(move |packet| {
        let mut one = ReceiveBatch::new();
        let len = packet.len() as u32;
        let block = one.add_block(Block::from(Bytes::from(packet)));
        let fits = one.push_frame(Frame { block, offset: 0, len, checksum, segmented: None });
        debug_assert!(fits, "the frame is its block");
        one
    }))
}

/// Writes the code point into the network header of packet `index`.
fn mark(out: &mut Multidata, index: usize, dscp: u8) {
    let Some(network) = out.packet(index).map(|packet| packet.link_header_len()) else { return };
    let Some(header) = out.header_mut(index).and_then(|header| header.get_mut(network..)) else {
        return;
    };
    let Some([first, second]) = header.first_chunk::<2>().copied() else {
        return;
    };
    let dscp = dscp & 0x3f;
    match first >> 4 {
        4 => {
            let word = [first, (dscp << 2) | (second & 0b11)];
            let Some(sum) = header.get(10..12).and_then(<[u8]>::first_chunk).copied() else {
                return;
            };
            let (old, new) = (u16::from_be_bytes([first, second]), u16::from_be_bytes(word));
            let sum = checksum::update(u16::from_be_bytes(sum), old, new);
            header[1] = word[1];
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        _ => {
            header[0] = (first & 0xf0) | (dscp >> 2);
            header[1] = (dscp << 6) | (second & 0x3f);
        }
    }
}
