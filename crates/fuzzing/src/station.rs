//! A shard on a link of bare IP, driven by hand.

use batch::{Block, BlockPool, Frame, Multidata, PoolConfig, ReceiveBatch, ReceivedChecksum};
use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr};
use device::{Capabilities, Medium, Room, TransmitMode, Transmitted};
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
}

pub(crate) fn address(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
}

impl Station {
    pub(crate) fn new(number: u8, tcp: tcp::Config) -> Self {
        let pool = BlockPool::new(PoolConfig {
            limit_bytes: POOL_BYTES,
            receive_reserve_bytes: POOL_BYTES / 4,
            ..PoolConfig::default()
        });
        let secret = [number; 32];
        let sockets_max = SOCKETS_MAX;
        let mut shard = Shard::new(ShardConfig { tcp, pool: pool.clone(), secret, sockets_max });
        let network = ip::Cidr::new(address(number), 24);
        let config = InterfaceConfig {
            capabilities: Capabilities::plain(Medium::Ip, 1_500),
            mode: Some(TransmitMode::Multidata),
            addresses: network.into_iter().collect(),
            gateways: Vec::new(),
        };
        let interface = shard.add_interface(config).expect("no gateway can be wrong");
        Self { shard, pool, interface }
    }

    /// Hands packets to the shard as one batch, each in a block of its own.
    pub(crate) fn receive(&mut self, now: Instant, packets: impl IntoIterator<Item = Vec<u8>>) {
        let mut batch = ReceiveBatch::new();
        for packet in packets {
            let len = packet.len() as u32;
            let block = batch.add_block(Block::from(Bytes::from(packet)));
            let checksum = ReceivedChecksum::Unverified;
            let frame = Frame { block, offset: 0, len, checksum, segmented: None };
            assert!(batch.push_frame(frame), "the frame is its block");
        }
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
                if let Err(error) = packet::read(&bytes, false) {
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
