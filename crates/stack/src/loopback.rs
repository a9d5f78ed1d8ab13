//! Packets to our own addresses: out of one connection and into another without a device.
//!
//! A shard has an interface of its own from the start, for 127.0.0.0/8, ::1 and every address of
//! the others. It has the way out and the way in of the others; where they have a device, it has
//! [`Shard::run_loopback`]:
//!
//! ```text
//!   fill (as for any interface) -> Multidata -> one copy into pooled blocks -> on_receive
//! ```
//!
//! So Multidata works on loopback, which seed 000 left out (4.4.2, note 16). The copy is the one
//! that a device makes by DMA: what is received must lie end to end, and must not change when the
//! sender's blocks do.
//!
//! It is bounded: a turn carries [`BATCHES_MAX`] batches of at most [`ROOM`], and what is left goes on
//! with the next ([`Shard::is_loopback_pending`]). Packets for which the pool has no block are lost,
//! as on a wire, and counted.

use crate::network::NetworkLayer;
use crate::network::interface::{Interface, InterfaceConfig};
use crate::network::interfaces::InterfaceId;
use crate::shard::Shard;
use batch::{BlockMut, BlockPool, Checksum, Frame, Multidata, ReceiveBatch, ReceivedChecksum};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use counters::DropReason;
use device::{Capabilities, Medium, Room, TransmitMode, Transmitted};
use ip::Cidr;
use time::Instant;

/// The longest IPv4 packet there is.
const MTU_BYTES: usize = 65_535;

/// What one batch carries at most.
const ROOM: Room = Room { packets: 64, bytes: 262_144 };

/// Batches of one turn.
const BATCHES_MAX: usize = 256;

/// Blocks that packets are copied into are not longer, unless one packet is.
const BLOCK_LEN_MAX: usize = 131_072;

/// What is kept between turns for its memory.
pub(crate) type Batches = Option<Box<(Multidata, ReceiveBatch)>>;

/// The interface.
pub(crate) fn interface() -> Interface {
    let capabilities = Capabilities {
        checksum_transmit: true,
        checksum_receive: true,
        batch_bytes_max: ROOM.bytes,
        ..Capabilities::plain(Medium::Ip, MTU_BYTES)
    };
    let addresses = [
        Cidr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8),
        Cidr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    ];
    let config = InterfaceConfig {
        capabilities,
        mode: Some(TransmitMode::Multidata),
        addresses: addresses.into_iter().flatten().collect(),
        gateways: Vec::new(),
    };
    Interface { is_loopback: true, ..Interface::new(config, InterfaceId::LOOPBACK, 0) }
}

impl Shard {
    /// Whether packets to `address` stay in this shard.
    #[must_use]
    pub fn is_own_address(&self, address: IpAddr) -> bool {
        self.network.is_own_address(address)
    }

    /// Whether packets to own addresses wait for the next turn.
    #[must_use]
    pub fn is_loopback_pending(&self) -> bool {
        let interface = &self.network.interfaces[InterfaceId::LOOPBACK];
        interface.ready.len() > 0 || !interface.outbox.is_empty()
    }

    /// Carries what this shard sends to itself.
    #[inline]
    pub(crate) fn run_loopback(&mut self, now: Instant) {
        if self.is_loopback_pending() {
            self.carry_loopback(now);
        }
    }

    #[inline(never)]
    fn carry_loopback(&mut self, now: Instant) {
        let id = InterfaceId::LOOPBACK;
        let mut batches = self.network.loopback.take().unwrap_or_default();
        let (out, frames) = &mut *batches;
        for _ in 0..BATCHES_MAX {
            self.fill(now, id, ROOM, out);
            let built = out.len();
            if built == 0 {
                break;
            }
            let lost = copy_across(&self.pool, out, frames);
            self.drops.add_many(DropReason::NoMemory, lost as u64);
            self.counters.loopback_batches += 1;
            self.counters.loopback_packets += (built - lost) as u64;
            self.on_transmitted(now, id, &Transmitted { taken: built, stopped: None });
            out.clear();
            self.network.sort_out_loopback(id, frames);
            self.on_receive(now, id, frames);
            if !self.is_loopback_pending() {
                break;
            }
        }
        self.network.loopback = Some(batches);
    }
}

impl NetworkLayer {
    /// As [`Shard::is_own_address`].
    pub(crate) fn is_own_address(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.interfaces.iter().any(|it| it.is_ours(address))
    }
}

/// Copies the packets of a batch into blocks, end to end, and says how many found no memory.
fn copy_across(pool: &BlockPool, out: &Multidata, frames: &mut ReceiveBatch) -> usize {
    frames.clear();
    let mut at = 0;
    while at < out.len() {
        let lens = out.packets().skip(at).map(|packet| packet.len());
        let (mut count, mut total) = (0, 0);
        for len in lens {
            if count > 0 && total + len > BLOCK_LEN_MAX {
                break;
            }
            (count, total) = (count + 1, total + len);
        }
        let Ok(block) = pool.allocate_receive(total) else { return out.len() - at };
        fill_block(block, out, at..at + count, frames);
        at += count;
    }
    0
}

fn fill_block(
    mut block: BlockMut,
    out: &Multidata,
    packets: core::ops::Range<usize>,
    frames: &mut ReceiveBatch,
) {
    let mut laid = Vec::with_capacity(packets.len());
    let mut offset = 0;
    for packet in packets.filter_map(|index| out.packet(index)) {
        let Some(len) = packet.copy_to(&mut block.bytes_mut()[offset..]) else { break };
        let checksum = match packet.attributes().checksum {
            Checksum::Partial { .. } => ReceivedChecksum::Partial,
            Checksum::Complete | Checksum::Missing { .. } => ReceivedChecksum::Unverified,
        };
        laid.push((offset as u32, len as u32, checksum));
        offset += len;
    }
    let block = frames.add_block(block.freeze());
    for (offset, len, checksum) in laid {
        let fits = frames.push_frame(Frame { block, offset, len, checksum, segmented: None });
        debug_assert!(fits, "it was laid into this block");
    }
}
