//! The queue of an interface that was taken over: a batch into chunks, one kick.
//!
//! Every packet is laid into chunks of its own, one where it fits and is not to be scattered
//! ([`super::division`]), each with a descriptor; the kick is for all of
//! them. That is the only form there is ([`device::Forms::NONE`]): a chain would be the same, and there is
//! nothing below that would cut a block. Room is counted in chunks, and a packet is placed with all of
//! its chunks or not at all: the kernel never sees the front of one.

use super::CHUNKS_PER_PACKET_MAX;
use super::XdpConfig;
use super::division::{Divided, Division};
use super::program::Program;
use super::receive::Receiver;
use super::ring::Descriptor;
use super::socket::{Rings, descriptor};
use crate::interface::Interface;
use crate::netlink;
use crate::packet::own_address::Teller;
use crate::system_error::{self, SystemError};
use crate::waiter::FileWaiter;
use batch::{BlockPool, Multidata, PacketView, ReceiveBatch};
use device::lowering::copy_complete;
use device::{
    Capabilities, DeviceCounters, DeviceError, Queue, Received, Room, Stop, TransmitMode,
    Transmitted, Waiter,
};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::xdp_statistics;
use rustix::net::{SendFlags, send};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Instant;

/// Packets in one call at most: their headers fit the L1 cache.
const BATCH_PACKETS: usize = 64;

/// One transmit and receive pair of an [`XdpDevice`](crate::XdpDevice).
///
/// The kernel keeps the pages of the UMEM for as long as the socket is open, so a waiter may
/// outlive its queue.
#[derive(Debug)]
pub struct XdpQueue {
    rings: Rings,
    waiter: Arc<FileWaiter>,
    interface: Interface,
    /// Has the interface take frames for our address, where there are packet sockets.
    teller: Option<Teller>,
    /// Held, not used: the program is detached with the last queue.
    _program: Arc<Program>,
    capabilities: Capabilities,
    /// The MTU when it was opened, and the longest one that is followed.
    mtu_bytes_max: usize,
    mode: TransmitMode,
    /// Headers and payload have chunks of their own.
    scatters: bool,
    receiver: Receiver,
    /// The last kick left something in the transmit ring.
    is_stalled: bool,
    /// The last transmit found too few chunks, and there are not enough yet.
    is_full: bool,
    /// Descriptors written since the last kick.
    unkicked: u32,
    /// Why the interface is of no use ever again, which every call tells from then on.
    failed: Option<Errno>,
    /// Why the interface is of no use for now.
    trouble: Option<DeviceError>,
    /// The MTU is another one, which was not told yet.
    is_revoked: bool,
    /// When the kernel was last asked for changes, apart from waiting.
    asked: Option<Instant>,
    counters: DeviceCounters,
}

impl XdpQueue {
    pub(super) fn new(
        rings: Rings,
        (interface, teller): (Interface, Option<Teller>),
        program: Arc<Program>,
        capabilities: Capabilities,
        config: &XdpConfig,
    ) -> Result<Self, DeviceError> {
        let changes = netlink::changes().map_err(|errno| {
            SystemError::refused("changes of interfaces cannot be followed", errno)
        })?;
        let waiter = FileWaiter::with_changes(Arc::clone(&rings.socket), changes)
            .map_err(|errno| SystemError::refused("an eventfd could not be made", errno))?;
        let receiver = Receiver::new(&capabilities, config.busy_poll_us.is_some());
        let scatters = config.scatter_gather && rings.takes_several;
        Ok(Self {
            rings,
            waiter: Arc::new(waiter),
            interface,
            teller,
            _program: program,
            mtu_bytes_max: capabilities.mtu_bytes,
            capabilities,
            mode: TransmitMode::Multidata,
            scatters,
            receiver,
            is_stalled: false,
            is_full: false,
            unkicked: 0,
            failed: None,
            trouble: None,
            is_revoked: false,
            asked: None,
            counters: DeviceCounters::default(),
        })
    }

    /// The socket, for the table of the program.
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.rings.socket
    }

    /// Copies a packet into chunks and writes their descriptors; the kernel is told later.
    fn place(&mut self, packet: &PacketView<'_>) -> Result<(), Stop> {
        let len = packet.len();
        let division = Division::of(packet, self.rings.umem.chunk_len(), self.scatters);
        let chunks_max = if self.rings.takes_several { CHUNKS_PER_PACKET_MAX } else { 1 };
        if !self.capabilities.admits(packet) || division.chunks > chunks_max {
            return Err(Stop::Refused);
        }
        if self.rings.free.len() < division.chunks {
            self.take_back_sent();
            if self.rings.free.len() < division.chunks {
                return Err(Stop::Full);
            }
        }
        match division.chunks {
            1 => self.place_whole(packet)?,
            _ => self.place_divided(packet, division)?,
        }
        self.counters.transmit_packets += 1;
        self.counters.transmit_bytes += len as u64;
        self.counters.transmit_frames += 1;
        Ok(())
    }

    /// The same for a packet that lies in one chunk, where one is free.
    fn place_whole(&mut self, packet: &PacketView<'_>) -> Result<(), Stop> {
        let Some(mut chunk) = self.rings.free.pop() else { return Err(Stop::Full) };
        if copy_complete(packet, self.rings.umem.bytes_mut(&mut chunk)).is_none() {
            self.rings.free.push(chunk);
            return Err(Stop::Refused);
        }
        let address = self.rings.umem.give(chunk);
        self.push(descriptor(address, packet.len(), false));
        Ok(())
    }

    /// The same for a packet that takes several chunks, where so many are free. It is refused before
    /// the first of them is given away, or not at all.
    fn place_divided(&mut self, packet: &PacketView<'_>, division: Division) -> Result<(), Stop> {
        let mut divided = Divided::new(*packet);
        for index in 0..division.chunks {
            let Some(mut chunk) = self.rings.free.pop() else { break };
            let bytes = self.rings.umem.bytes_mut(&mut chunk);
            let len = match index {
                0 => bytes.get_mut(..division.first_len).and_then(|bytes| divided.begin(bytes)),
                _ => Some(divided.go_on(bytes)),
            };
            let Some(len) = len else {
                self.rings.free.push(chunk);
                return Err(Stop::Refused);
            };
            let address = self.rings.umem.give(chunk);
            self.push(descriptor(address, len, index + 1 < division.chunks));
        }
        Ok(())
    }

    fn push(&mut self, descriptor: Descriptor) {
        self.rings.transmit.push(descriptor);
        self.unkicked += 1;
        self.counters.transmit_mappings += 1;
    }

    /// Takes the chunks back whose frames have left.
    fn take_back_sent(&mut self) {
        if self.rings.completion.look() == 0 {
            return;
        }
        while let Some(address) = self.rings.completion.pop() {
            self.rings.free.extend(self.rings.umem.take_back(address));
        }
        self.rings.completion.release();
    }

    /// Has the kernel send what stands in the ring. What it has no room for now stays there.
    fn kick(&mut self) -> Result<(), Errno> {
        let fresh = core::mem::take(&mut self.unkicked);
        let Rings { socket, transmit, completion, is_zero_copy, tells_taken, .. } = &mut self.rings;
        self.is_stalled = false;
        let syscalls = &mut self.counters.transmit_syscalls;
        let call = || {
            *syscalls += 1;
            send(&*socket, &[], SendFlags::DONTWAIT).map(drop)
        };
        if *is_zero_copy {
            self.is_stalled = kick_driver(transmit.pending(), transmit.needs_wakeup(), call)?;
            return Ok(());
        }
        let left = || Left { pending: transmit.pending(), sent: completion.look() };
        self.is_stalled = kick_all(*tells_taken, fresh, left, call)?;
        Ok(())
    }

    /// Has waits be short where only looking tells whether the device goes on. While its interface is down it
    /// does not.
    fn tell_waiter(&self) {
        let goes_on = self.trouble.is_none();
        self.waiter.on_stall(goes_on && (self.is_stalled || self.is_full));
    }

    /// Looks at the interface again, and says what is wrong with it where it will not come back.
    fn look_at_interface(&mut self) -> Option<Errno> {
        let was_bytes = self.capabilities.mtu_bytes;
        let now_bytes = self.interface.mtu_bytes().unwrap_or(was_bytes);
        // What we send is no longer than it ever was; the peers' packets are.
        self.receiver.follow(now_bytes);
        let mtu_bytes = now_bytes.min(self.mtu_bytes_max);
        self.capabilities.mtu_bytes = mtu_bytes;
        self.counters.capabilities_revoked += u64::from(mtu_bytes < was_bytes);
        self.is_revoked |= mtu_bytes != was_bytes;
        // Of one that is gone, or refuses, the next lines tell, or nothing does.
        let _ = self.teller.as_mut().map(Teller::keep);
        let is_up = match self.interface.is_up() {
            Ok(is_up) if self.interface.exists() => is_up,
            _ => return Some(Errno::NODEV),
        };
        if is_up && self.trouble.take().is_some() {
            self.counters.links_restored += 1;
            self.waiter.set_lost(false);
        }
        if !is_up && self.trouble.is_none() {
            self.trouble = Some(system_error::interface_down(&self.interface.called_or_found()));
            self.counters.links_lost += 1;
            self.waiter.set_lost(true);
        }
        self.tell_waiter();
        None
    }

    /// What an error of a kick means: what stands in the ring stays there while the interface is
    /// down, and is lost where it is gone.
    fn on_kick_error(&mut self, errno: Errno) -> Option<Errno> {
        self.is_stalled = true;
        match errno {
            Errno::NETDOWN => self.look_at_interface(),
            errno => Some(errno),
        }
    }

    /// A sentence about a device that is of no use any more.
    fn failure(&mut self, errno: Errno) -> DeviceError {
        self.waiter.on_failure();
        // What stands in the ring goes nowhere, and once that is told nobody has to come again.
        (self.is_stalled, self.is_full) = (false, false);
        match errno {
            Errno::NETDOWN | Errno::NXIO | Errno::NODEV | Errno::BADF => {
                system_error::interface_gone(self.interface.name(), errno)
            }
            _ => system_error::interface_failed(self.interface.name(), errno),
        }
    }
}

impl Queue for XdpQueue {
    fn capabilities(&self) -> Capabilities {
        let batch_packets_max = match self.mode {
            TransmitMode::Single => 1,
            _ => BATCH_PACKETS,
        };
        Capabilities { batch_packets_max, ..self.capabilities.clone() }
    }

    fn set_mode(&mut self, mode: TransmitMode) -> Result<(), DeviceError> {
        if !self.capabilities.supports(mode) {
            let name = self.interface.name();
            let message = format!(
                "AF_XDP on the interface {name} takes one frame a descriptor, neither super-frames nor \
                 chains nor blocks, so it cannot work in mode {mode}: use mode {}",
                TransmitMode::Multidata
            );
            return Err(DeviceError::new(ErrorKind::Unsupported, message));
        }
        self.mode = mode;
        Ok(())
    }

    fn room(&self) -> Room {
        let chunk_len = self.rings.umem.chunk_len();
        let (header_len, payload_len) = (super::LINK_LEN_MAX, self.capabilities.mtu_bytes);
        let longest = Division::of_lens(header_len, payload_len, chunk_len, self.scatters);
        let chunks = self.rings.free.len();
        Room { packets: chunks / longest.chunks, bytes: chunks * chunk_len }
    }

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        let (mut taken, mut stopped) = (0, None);
        if batch.is_empty() {
            return Transmitted { taken, stopped };
        }
        self.counters.transmit_batches += 1;
        // Sending tells nothing: a frame that is longer than the MTU by now is taken and lost somewhere
        // behind this socket.
        let mut is_asked = || self.waiter.has_changed(&mut self.asked);
        if self.failed.is_none() && (self.trouble.is_some() || is_asked()) {
            self.failed = self.look_at_interface();
        }
        if let Some(errno) = self.failed {
            return Transmitted { taken, stopped: Some(Stop::Failed(self.failure(errno))) };
        }
        if self.trouble.is_some() {
            self.counters.transmit_full += 1;
            return Transmitted { taken, stopped: Some(Stop::Full) };
        }
        if core::mem::take(&mut self.is_revoked) {
            return Transmitted { taken, stopped: Some(Stop::Revoked) };
        }
        for packet in batch.packets() {
            match self.place(&packet) {
                Ok(()) => taken += 1,
                Err(stop) => {
                    stopped = Some(stop);
                    break;
                }
            }
        }
        self.rings.transmit.submit();
        let kicked = self.kick();
        self.is_full = stopped == Some(Stop::Full);
        self.counters.transmit_full += u64::from(self.is_full);
        if let Err(errno) = kicked
            && let Some(errno) = self.on_kick_error(errno)
        {
            self.failed = Some(errno);
            stopped = Some(Stop::Failed(self.failure(errno)));
        }
        self.tell_waiter();
        Transmitted { taken, stopped }
    }

    fn receive(
        &mut self,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
    ) -> Received {
        // An interface that goes away takes no leave from the socket. It is looked at first, for with a longer MTU
        // a longer frame is one packet.
        if self.failed.is_none() && (self.trouble.is_some() || self.waiter.take_changed()) {
            self.failed = self.look_at_interface();
        }
        let mut received =
            self.receiver.receive(&mut self.rings, pool, batch, frames_max, &mut self.counters);
        received.failed = self.failed.map(|errno| self.failure(errno));
        self.waiter.on_receive(self.receiver.is_starved, received.failed.is_some());
        received
    }

    fn reclaim(&mut self) {
        self.take_back_sent();
        // Who has more to send offers it now; who has not does not wait for room.
        self.is_full &= self.room().packets == 0;
        if self.is_stalled
            && self.trouble.is_none()
            && self.failed.is_none()
            && let Err(errno) = self.kick()
        {
            self.failed = self.on_kick_error(errno);
        }
        self.tell_waiter();
    }

    fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::clone(&self.waiter) as Arc<dyn Waiter>
    }

    fn counters(&self) -> DeviceCounters {
        // Frames that found no chunk, no room in the ring, or were too long.
        let dropped = xdp_statistics(&self.rings.socket)
            .map_or(0, |kernel| kernel.rx_dropped + kernel.rx_ring_full.unwrap_or(0));
        DeviceCounters {
            wait_syscalls: self.waiter.syscalls(),
            receive_dropped: self.counters.receive_dropped + dropped,
            ..self.counters
        }
    }

    fn trouble(&self) -> Option<DeviceError> {
        self.trouble.clone()
    }
}

/// What a kick has left in the transmit ring, so far as the kernel says, and the chunks of how many frames
/// it has given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    pending: u32,
    sent: u32,
}

/// Frames that a kick sends at most, where the kernel cannot be told how many (Linux up to 6.17).
const KICK_FRAMES: u32 = 32;

/// Has `kick` called until nothing is left in the transmit ring, or it does not get on, which is what it
/// returns. `fresh` descriptors were written since the last time.
///
/// A kick that dropped its first frame took it, although no kernel tells so then: it says `EBUSY`, of which
/// there can be one for each descriptor. A kernel that does not tell at once what it has sent either
/// (`tells_taken`) seems to stand still where a kick ended before all was sent, for want of memory as well as
/// because it had sent its [`KICK_FRAMES`]. Then it gets on where chunks came back, and else is kicked as often
/// as the fresh ones take.
fn kick_all(
    tells_taken: bool,
    fresh: u32,
    mut left: impl FnMut() -> Left,
    mut kick: impl FnMut() -> Result<(), Errno>,
) -> Result<bool, Errno> {
    let mut before = left();
    let mut drops_left = before.pending;
    let mut unseen = if tells_taken { 0 } else { fresh.div_ceil(KICK_FRAMES).saturating_sub(1) };
    while before.pending > 0 {
        let kicked = kick();
        match kicked {
            Err(errno) if !is_for_later(errno) => return Err(errno),
            _ => {}
        }
        let after = left();
        let is_drop = kicked == Err(Errno::BUSY) && drops_left > 0;
        drops_left -= u32::from(is_drop);
        let is_seen = match tells_taken {
            true => after.pending != before.pending,
            false => after != before,
        };
        if !is_seen && !is_drop {
            let Some(fewer) = unseen.checked_sub(1) else { return Ok(true) };
            unseen = fewer;
        }
        before = after;
    }
    Ok(false)
}

/// Has `kick` called where the hardware moves frames itself, and wants to be told of the `pending` ones. Says
/// whether it has to be told again: a driver that is busy with itself answers with an error (`EAGAIN`), and
/// does not look for frames when it is done.
fn kick_driver(
    pending: u32,
    needs_wakeup: bool,
    kick: impl FnOnce() -> Result<(), Errno>,
) -> Result<bool, Errno> {
    if pending == 0 || !needs_wakeup {
        return Ok(false);
    }
    match kick() {
        Err(errno) if !is_for_later(errno) => Err(errno),
        kicked => Ok(kicked.is_err()),
    }
}

/// Whether an error of a kick leaves what it did not send for a later one. The first of these says both
/// that a kick's budget was used up and that there is no memory, others that there is none for a page
/// of a packet in several descriptors: whether the kick got on tells which.
fn is_for_later(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::NOMEM | Errno::INTR)
}

#[cfg(test)]
mod tests;
