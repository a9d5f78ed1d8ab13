//! The queue of a UDP tunnel: a batch out by few messages, a batch in by few messages.
//!
//! ```text
//!  transmit   Multidata -> sealed end to end (one copy) -> messages -> one sendmmsg(2)
//!  receive    one recvmmsg(2) -> blocks -> opened in place -> ReceiveBatch
//! ```
//!
//! In mode `chain` each datagram is a message of its own, still many by one call. Blocks of frames for the
//! kernel to cut are what messages are in mode `multidata` already, so there is no mode for them.
//!
//! What a tunnel's path does to datagrams is loss, not failure: while nobody listens at the other
//! end, or no way leads there, packets are lost and counted, and those above send them again. A
//! path that takes less than before, and a kernel that does not cut messages after all, take a
//! capability back, and the caller builds the rest anew. A path that takes less than 576 bytes, on which
//! hosts rely, leaves the tunnel's MTU there: what is longer than the path is refused packet by packet.

use super::calls::{self, Message};
use super::lowered::{Lowered, MERGED_LEN_MAX, Pushed, SEGMENTS_MAX};
use super::receive::{Receiver, is_about_the_path};
use crate::system_error::said;
use crate::waiter::FileWaiter;
use batch::{BlockPool, Multidata, ReceiveBatch};
use device::{
    Capabilities, DeviceCounters, DeviceError, Queue, Received, Room, Stop, Transform,
    TransmitMode, Transmitted, Waiter,
};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

/// Full messages in one batch: as many bytes as fit the second level of a cache twice over.
const BATCH_MESSAGES: usize = 3;

/// Packets of a batch, however long they are.
const BATCH_PACKETS_MIN: usize = 8;
const BATCH_PACKETS_MAX: usize = 192;

/// Tries of a call that only reported what an earlier one had caused (ICMP errors).
const TRIES_MAX: usize = 3;

/// The transmit and receive pair of a [`TunnelDevice`](super::TunnelDevice).
pub struct TunnelQueue {
    socket: Arc<OwnedFd>,
    waiter: Arc<FileWaiter>,
    peer: SocketAddr,
    transform: Box<dyn Transform>,
    /// What the transform said when it was asked last.
    wants_single_packets: bool,
    capabilities: Capabilities,
    mode: TransmitMode,
    lowered: Lowered,
    receiver: Receiver,
    counters: DeviceCounters,
}

impl core::fmt::Debug for TunnelQueue {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let transform = self.transform.name();
        let mut about = formatter.debug_struct("TunnelQueue");
        about.field("peer", &self.peer).field("transform", &transform);
        about.finish_non_exhaustive()
    }
}

impl TunnelQueue {
    pub(super) fn new(
        (socket, waiter): (Arc<OwnedFd>, Arc<FileWaiter>),
        peer: SocketAddr,
        transform: Box<dyn Transform>,
        capabilities: Capabilities,
        lowered: Lowered,
        receiver: Receiver,
    ) -> Self {
        let mode = TransmitMode::Multidata;
        let counters = DeviceCounters::default();
        Self {
            socket,
            waiter,
            peer,
            wants_single_packets: transform.wants_single_packets(),
            transform,
            capabilities,
            mode,
            lowered,
            receiver,
            counters,
        }
    }

    /// Seals packets from index `first` on, as many as one call takes, and says where it stopped and
    /// why it can go on no further.
    fn lower(&mut self, batch: &Multidata, first: usize) -> (usize, Option<Stop>) {
        self.lowered.clear();
        let mut next = first;
        while let Some(packet) = batch.packet(next) {
            // Nobody behind the seal can complete a checksum.
            let is_sound = packet.link_header_len() == 0
                && self.capabilities.admits(&packet)
                && self.capabilities.completes(packet.attributes().checksum);
            if !is_sound {
                return (next, Some(Stop::Refused));
            }
            match self.lowered.push(&packet, &mut *self.transform) {
                Pushed::Taken => next += 1,
                Pushed::Full => break,
                Pushed::Unsealed => return (next, Some(self.sealed_out())),
            }
        }
        (next, None)
    }

    /// Sends what was lowered and says how many packets went, and why not all.
    fn flush(&mut self, batch: &Multidata, first: usize) -> (usize, Option<Stop>) {
        let (mut sent, mut taken, mut tries) = (0, 0, 0);
        loop {
            let messages = &self.lowered.messages()[sent..];
            let Some(message) = messages.first() else { return (taken, None) };
            self.counters.transmit_syscalls += 1;
            let stop = match calls::send(&self.socket, self.lowered.block(), messages) {
                Ok(count) => {
                    for message in &messages[..count] {
                        taken += message.count;
                    }
                    (sent, tries) = (sent + count, 0);
                    self.counters.transmit_frames += count as u64;
                    self.counters.transmit_mappings += count as u64;
                    continue;
                }
                Err(Errno::INTR) => continue,
                // A router's report about an earlier message, where this one fits what is known of the
                // path. Said again and again, it is about this one.
                Err(Errno::MSGSIZE) if tries + 1 < TRIES_MAX && self.fits_path(message) => {
                    self.counters.transmit_unreachable += 1;
                    tries += 1;
                    continue;
                }
                Err(errno) if self.is_on_the_way(errno) => {
                    // The kernel reports what became of an earlier message instead of sending.
                    self.counters.transmit_unreachable += 1;
                    tries += 1;
                    if tries == TRIES_MAX {
                        (taken, sent, tries) = (taken + message.count, sent + 1, 0);
                    }
                    continue;
                }
                Err(errno) => self.on_send_error(errno, &message.clone()),
            };
            debug_assert!(batch.packet(first + taken).is_some(), "something was not sent");
            return (taken, Some(stop));
        }
    }

    /// Whether a message that was refused is lost as on its way, and the socket and the message are sound.
    fn is_on_the_way(&self, errno: Errno) -> bool {
        match errno {
            // What is too long is built afresh.
            Errno::MSGSIZE => false,
            // Before Linux 5.10 it is said of a message from an address that this host has no more, too. No way
            // leads anywhere then, so that there is none to ask for its MTU.
            Errno::INVAL => {
                calls::path_mtu_bytes(&self.socket, self.peer.is_ipv4()) == Err(Errno::NOTCONN)
            }
            errno => is_about_the_path(errno),
        }
    }

    /// What it means that a message was refused.
    fn on_send_error(&mut self, errno: Errno, message: &Message) -> Stop {
        match errno {
            Errno::AGAIN => {
                self.waiter.want_room();
                self.counters.transmit_full += 1;
                Stop::Full
            }
            // Memory is short, or the interface's queue is full, not the socket: poll(2) would call it
            // writable all the while.
            Errno::NOBUFS | Errno::NOMEM => {
                self.counters.transmit_full += 1;
                Stop::Full
            }
            Errno::MSGSIZE | Errno::INVAL if self.has_path_shrunk() => {
                self.counters.capabilities_revoked += 1;
                Stop::Revoked
            }
            // The path takes less than hosts rely on: a packet may be longer and is within our MTU.
            Errno::MSGSIZE | Errno::INVAL if !self.fits_path(message) => Stop::Refused,
            // A device that leaves checksums to us, a transformation of the kernel's own, or a socket
            // without checksums: none of them goes with UDP_SEGMENT, and only sending tells.
            Errno::IO | Errno::INVAL | Errno::OPNOTSUPP | Errno::MSGSIZE if message.count > 1 => {
                self.capabilities.fragment_splitting.by_size = false;
                self.follow_mode();
                self.counters.capabilities_revoked += 1;
                Stop::Revoked
            }
            Errno::MSGSIZE | Errno::INVAL => Stop::Refused,
            _ => Stop::Failed(self.failure(errno)),
        }
    }

    /// In a chain every datagram is a message of its own, as where the kernel cuts none.
    fn follow_mode(&mut self) {
        let is_cut = self.capabilities.fragment_splitting.by_size;
        self.lowered.segments = is_cut && self.mode != TransmitMode::Chain;
    }

    /// Whether the datagrams of a message are no longer than the path is known to take.
    fn fits_path(&self, message: &Message) -> bool {
        self.path_datagram_len().is_none_or(|len| message.segment_len <= len)
    }

    /// The longest datagram that the path is known to take, where it can be asked.
    fn path_datagram_len(&self) -> Option<usize> {
        let path_mtu_bytes = calls::path_mtu_bytes(&self.socket, self.peer.is_ipv4()).ok()?;
        super::datagram_len_max(path_mtu_bytes, self.peer)
    }

    /// Whether the path takes shorter packets than it did; they are what we take from now on, but never
    /// less than a tunnel has when it is opened. A path that takes more again is not asked for: a
    /// tunnel that is opened anew finds it.
    fn has_path_shrunk(&mut self) -> bool {
        let left =
            self.path_datagram_len().map(|len| len - len.min(self.transform.overhead_bytes()));
        let mtu_bytes = left.map(|mtu_bytes| mtu_bytes.max(super::MTU_BYTES_MIN));
        let Some(mtu_bytes) = mtu_bytes.filter(|mtu| *mtu < self.capabilities.mtu_bytes) else {
            return false;
        };
        self.capabilities.mtu_bytes = mtu_bytes;
        true
    }

    /// Whether the transform wants single packets now and did not, or the other way round.
    fn has_changed_its_mind(&mut self) -> bool {
        let wants = self.transform.wants_single_packets();
        let did = core::mem::replace(&mut self.wants_single_packets, wants);
        self.counters.capabilities_revoked += u64::from(wants && !did);
        wants != did
    }

    fn sealed_out(&self) -> Stop {
        let name = self.transform.name();
        let message = format!(
            "the transform {name} of the tunnel to {} seals nothing any more: open the tunnel with \
             fresh keys",
            self.peer
        );
        Stop::Failed(DeviceError::new(ErrorKind::NetworkDown, message))
    }

    /// A sentence about a socket that is of no use any more.
    fn failure(&self, errno: Errno) -> DeviceError {
        self.waiter.on_failure();
        let message = format!("the tunnel to {} failed: {}", self.peer, said(errno));
        DeviceError::new(ErrorKind::NetworkDown, message)
    }
}

impl Queue for TunnelQueue {
    fn capabilities(&self) -> Capabilities {
        let datagram_len = self.capabilities.mtu_bytes + self.transform.overhead_bytes();
        let segments = (MERGED_LEN_MAX / datagram_len.max(1)).clamp(1, SEGMENTS_MAX);
        let batch_packets_max = match self.mode {
            TransmitMode::Single => 1,
            _ => (BATCH_MESSAGES * segments).clamp(BATCH_PACKETS_MIN, BATCH_PACKETS_MAX),
        };
        let wants_single_packets = self.wants_single_packets;
        Capabilities { batch_packets_max, wants_single_packets, ..self.capabilities.clone() }
    }

    fn set_mode(&mut self, mode: TransmitMode) -> Result<(), DeviceError> {
        if !self.capabilities.supports(mode) {
            let message = format!(
                "a tunnel transforms every packet, so it takes neither super-frames nor blocks and \
                 cannot work in mode {mode}: use mode {}",
                TransmitMode::Multidata
            );
            return Err(DeviceError::new(ErrorKind::Unsupported, message));
        }
        self.mode = mode;
        self.follow_mode();
        Ok(())
    }

    fn room(&self) -> Room {
        Room::UNBOUNDED
    }

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        let mut taken = 0;
        if batch.is_empty() {
            return Transmitted { taken, stopped: None };
        }
        self.counters.transmit_batches += 1;
        if self.has_changed_its_mind() {
            return Transmitted { taken, stopped: Some(Stop::Revoked) };
        }
        loop {
            let (lowered_to, unsound) = self.lower(batch, taken);
            let (sent, stopped) = self.flush(batch, taken);
            let lens = (taken..taken + sent).filter_map(|index| batch.packet(index));
            self.counters.transmit_bytes += lens.map(|packet| packet.len() as u64).sum::<u64>();
            self.counters.transmit_packets += sent as u64;
            taken += sent;
            debug_assert!(stopped.is_some() || taken == lowered_to, "everything lowered is sent");
            let stopped = stopped.or(unsound);
            if stopped.is_some() || taken == batch.len() {
                return Transmitted { taken, stopped };
            }
        }
    }

    fn receive(
        &mut self,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
    ) -> Received {
        let transform = &mut *self.transform;
        let counters = &mut self.counters;
        let (mut received, failed) =
            self.receiver.receive(&self.socket, pool, batch, frames_max, transform, counters);
        received.failed = failed.map(|errno| self.failure(errno));
        self.waiter.on_receive(self.receiver.is_starved, received.failed.is_some());
        received
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::clone(&self.waiter) as Arc<dyn Waiter>
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters { wait_syscalls: self.waiter.syscalls(), ..self.counters }
    }
}

#[cfg(test)]
mod tests;
