//! A shard on a link, driven by hand.

use crate::peer::Link;
use batch::{
    Block, BlockPool, Frame, Multidata, PoolConfig, ReceiveBatch, ReceivedChecksum, Segmented,
};
use bytes::Bytes;
use core::net::IpAddr;
use device::{Capabilities, Room, TransmitMode, Transmitted};
use simulation::packet;
use stack::{InterfaceConfig, InterfaceId, Shard, ShardConfig};
use time::Instant;

/// Batches sent at one moment after which a shard is taken to run in circles.
const BATCHES_MAX: usize = 2_000;

/// What a fuzzed shard may hold.
pub(crate) const POOL_BYTES: usize = 8 << 20;
pub(crate) const SOCKETS_MAX: usize = 64;

pub(crate) struct Station {
    pub(crate) shard: Shard,
    pub(crate) pool: BlockPool,
    pub(crate) interface: InterfaceId,
    link: Link,
}

/// The address of a host on a link of bare IPv4.
pub(crate) fn address(number: u8) -> IpAddr {
    Link::default().address(number)
}

impl Station {
    pub(crate) fn new(number: u8, link: Link, tcp: tcp::Config) -> Self {
        let pool = BlockPool::new(PoolConfig {
            limit_bytes: POOL_BYTES,
            receive_reserve_bytes: POOL_BYTES / 4,
            ..PoolConfig::default()
        });
        let secret = [number; 32];
        let sockets_max = SOCKETS_MAX;
        let mut shard = Shard::new(ShardConfig { tcp, pool: pool.clone(), secret, sockets_max });
        let prefix_len = if link.is_ipv6 { 64 } else { 24 };
        let network = ip::Cidr::new(link.address(number), prefix_len);
        let config = InterfaceConfig {
            capabilities: Capabilities::plain(link.medium(number), 1_500),
            mode: Some(TransmitMode::Multidata),
            addresses: network.into_iter().collect(),
            gateways: Vec::new(),
        };
        let interface = shard.add_interface(config).expect("no gateway can be wrong");
        Self { shard, pool, interface, link }
    }

    /// Hands packets to the shard as one batch, each in a block of its own.
    pub(crate) fn receive(&mut self, now: Instant, packets: impl IntoIterator<Item = Vec<u8>>) {
        let mut batch = ReceiveBatch::new();
        for packet in packets {
            push(&mut batch, packet, None);
        }
        self.shard.on_receive(now, self.interface, &mut batch);
    }

    /// Hands a super-frame to the shard, as a device that coalesces does.
    pub(crate) fn receive_segmented(&mut self, now: Instant, frame: Vec<u8>, segment_len: u16) {
        let mut batch = ReceiveBatch::new();
        push(&mut batch, frame, Some(Segmented { segment_len }));
        self.shard.on_receive(now, self.interface, &mut batch);
    }

    /// Lets timers go off and takes everything that is to be sent; each packet must be sound.
    pub(crate) fn send(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut batch = Multidata::default();
        let mut packets = Vec::new();
        for _ in 0..BATCHES_MAX {
            if self.shard.poll_timeout().is_some_and(|due| due <= now) {
                self.shard.on_timeout(now);
            }
            let built = self.shard.poll_transmit(now, self.interface, Room::UNBOUNDED, &mut batch);
            for packet in batch.packets() {
                let mut bytes = vec![0; packet.len()];
                packet.copy_to(&mut bytes).expect("room");
                if let Err(error) = packet::read(&bytes, self.link.is_ethernet) {
                    panic!("sent {bytes:02x?}: {error}");
                }
                packets.push(bytes);
            }
            let transmitted = Transmitted { taken: built, stopped: None };
            self.shard.on_transmitted(now, self.interface, &transmitted);
            if built == 0 {
                let due = self.shard.poll_timeout();
                assert!(due.is_none_or(|due| due > now), "what is due is done: {due:?}");
                let holdings = self.shard.holdings();
                assert!(holdings.sockets <= SOCKETS_MAX, "{holdings:?}");
                let bytes = self.pool.counters().outstanding_bytes;
                assert!(bytes <= POOL_BYTES as u64, "{bytes} bytes of the pool are out");
                return packets;
            }
        }
        panic!("the shard does not come to rest");
    }
}

/// Adds a frame in a block of its own.
fn push(batch: &mut ReceiveBatch, frame: Vec<u8>, segmented: Option<Segmented>) {
    let len = frame.len() as u32;
    let block = batch.add_block(Block::from(Bytes::from(frame)));
    // What a device has put together it has verified.
    let checksum = match segmented {
        Some(_) => ReceivedChecksum::Verified,
        None => ReceivedChecksum::Unverified,
    };
    let frame = Frame { block, offset: 0, len, checksum, segmented };
    assert!(batch.push_frame(frame), "the frame is its block");
}
