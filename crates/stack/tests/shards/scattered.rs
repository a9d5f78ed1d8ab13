//! What a datagram or a raw packet lies in is nobody's business but the copy-in's: the frames are the same.

use crate::harness::{self, Net, address, data};
use batch::{Block, BlockPool, Chunk, Chunks, Pieces, PoolConfig};
use bytes::Bytes;
use core::net::SocketAddr;
use device::{Capabilities, Medium, TransmitMode};
use proptest::prelude::*;
use time::Duration;

/// How a payload lies.
#[derive(Clone, Debug)]
struct Lie {
    /// Lengths of the first blocks; the last has the rest.
    lens: Vec<usize>,
    /// Free bytes in front.
    room: usize,
    /// Sums were made in the copy.
    is_summed: bool,
}

impl Lie {
    fn lay(&self, pool: &BlockPool, payload: &[u8]) -> Chunks {
        let mut rest = payload;
        let mut pieces = Pieces::new(payload.len(), 0);
        let mut chunks = Vec::new();
        for len in self.lens.iter().copied().chain([usize::MAX]) {
            let (here, behind) = rest.split_at(len.min(rest.len()));
            let mut block = pool.allocate(self.room + here.len()).expect("room");
            block.copy_in(self.room, here, self.is_summed.then_some(pieces));
            chunks.push(Chunk::new(block.freeze(), self.room..self.room + here.len()));
            pieces = pieces.after(here.len());
            rest = behind;
        }
        chunks.into_iter().collect()
    }
}

fn any_lie() -> impl Strategy<Value = Lie> {
    let lens = proptest::collection::vec(prop_oneof![0_usize..20, 0_usize..2_000], 0..9);
    let parts = (lens, 0_usize..60, any::<bool>());
    parts.prop_map(|(lens, room, is_summed)| Lie { lens, room, is_summed })
}

/// What is on the wire when these payloads were sent as datagrams, as raw packets and as echo requests, and how
/// many bytes had to be copied for the device.
fn frames(ipv6: bool, blocks_max: usize, payloads: Vec<Chunks>) -> (Vec<Vec<u8>>, u64) {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let host = &mut net.hosts[0];
    let medium = Medium::Ethernet(harness::station(0));
    let plain = Capabilities::plain(medium, 1_500);
    let capabilities = Capabilities { batch_blocks_max: blocks_max, ..plain };
    host.shard.set_capabilities(host.interface, capabilities);
    let (ours, theirs) = (address(0, ipv6), address(1, ipv6));
    let udp = host.shard.udp_bind(SocketAddr::new(ours, 9)).expect("free");
    let raw = host.shard.raw_bind(253, ours).expect("free");
    let echo = host.shard.raw_bind_echo(ours, 3).expect("free");
    let datagrams: Vec<_> =
        payloads.iter().map(|it| (SocketAddr::new(theirs, 9).into(), it.clone())).collect();
    let packets: Vec<_> = payloads.into_iter().map(|it| (theirs, it)).collect();
    assert_eq!(host.shard.udp_send_many(udp, &datagrams), Ok(datagrams.len()));
    assert_eq!(host.shard.raw_send_many(raw, &packets), Ok(packets.len()));
    for (to, request) in packets {
        host.shard.raw_send(echo, to, request).expect("an echo request");
    }
    net.run(Duration::from_secs(1));
    assert!(!net.hosts[0].shard.wants_transmit(), "nothing stands still");
    let copied = net.hosts[0].shard.counters().shard.transmit_copied_bytes;
    (net.wire.into_iter().filter(|(from, _)| *from == 0).map(|(_, frame)| frame).collect(), copied)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn frames_are_the_same_however_payloads_lie(
        ipv6 in any::<bool>(),
        blocks_max in prop_oneof![1_usize..4, Just(64)],
        lies in proptest::collection::vec((prop_oneof![8_usize..30, 8_usize..1_453, 8_usize..9_000], any_lie()), 1..6),
    ) {
        let pool = BlockPool::new(PoolConfig::default());
        let payload = |len| {
            let mut bytes = data(len);
            bytes[0] = if ipv6 { 128 } else { 8 };
            bytes
        };
        let whole = lies.iter().map(|(len, _)| {
            Chunk::whole(Block::from(Bytes::from(payload(*len)))).into()
        });
        let laid = lies.iter().map(|(len, lie)| lie.lay(&pool, &payload(*len)));
        let (expected, _) = frames(ipv6, usize::MAX, whole.collect());
        let (found, copied) = frames(ipv6, blocks_max, laid.collect());
        prop_assert_eq!(found, expected);
        prop_assert!(blocks_max < 64 || copied == 0, "nothing is copied that a batch can hold");
    }
}

#[test]
fn a_datagram_to_a_group_of_ours_arrives_whole_at_a_listener_here() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let group = "239.1.2.3".parse().expect("a group");
    let now = net.now;
    let host = &mut net.hosts[0];
    let listener = host.shard.udp_bind("0.0.0.0:9".parse().expect("an address")).expect("free");
    host.shard.udp_join(now, listener, group, None, &[]).expect("room");
    let sender = host.shard.udp_bind(SocketAddr::new(address(0, false), 8)).expect("free");
    let lie = Lie { lens: vec![3, 700], room: 4, is_summed: true };
    let payload = lie.lay(&host.pool, &data(1_000));
    host.shard.udp_send(sender, Some(SocketAddr::new(group, 9)), payload).expect("room");
    let (received, _) = host.shard.udp_receive(listener).expect("it is in the group");
    assert_eq!(received.bytes(), data(1_000));
}
