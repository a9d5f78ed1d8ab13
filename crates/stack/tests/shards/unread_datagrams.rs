//! Datagrams and raw packets that nobody reads: in all sockets together they hold a part of the memory and no more,
//! who reads is served, and what is read or let go of is there for others.

use crate::harness::{self, Net, craft, data};
use batch::{
    Block, BlockPool, Chunk, Frame, Multidata, PoolConfig, ReceiveBatch, ReceivedChecksum,
};
use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use counters::DropReason;
use device::{Room, TransmitMode};
use proptest::prelude::*;
use stack::{BindOptions, Holdings, InterfaceId, SocketId};
use std::sync::Arc;
use time::Duration;
use wire::Icmpv6Repr;

/// The device's blocks.
const BLOCK_LEN: usize = 65_536;
/// What there is to send with, and half of it.
const TO_SEND_BYTES: usize = 4 << 20;
const UNREAD_BYTES: usize = TO_SEND_BYTES / 2;

const MS: Duration = Duration::from_millis(1);

/// Two hosts, of which the second receives into a pool of 8 MiB.
fn net() -> Net {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let [first, second] = net.hosts;
    let config = PoolConfig {
        limit_bytes: 2 * TO_SEND_BYTES,
        receive_reserve_bytes: TO_SEND_BYTES,
        ..PoolConfig::default()
    };
    let mut second = second.with_pool(1, config);
    second.receives_into = Some(BLOCK_LEN);
    net.hosts = [first, second];
    net
}

fn chunk(len: usize) -> Chunk {
    Chunk::whole(Block::from(Bytes::from(data(len))))
}

fn to(port: u16) -> Option<SocketAddr> {
    Some((harness::address(1, false), port).into())
}

fn bind(net: &mut Net, host: usize, port: u16) -> SocketId {
    let local = SocketAddr::new(harness::address(host, false), port);
    net.hosts[host].shard.udp_bind(local).expect("a free port")
}

fn drops(net: &Net, reason: DropReason) -> u64 {
    net.hosts[1].shard.drop_count(reason)
}

/// How many datagrams of 1,400 bytes for `port` are kept, of so many.
fn kept(net: &mut Net, sends: SocketId, port: u16, count: usize) -> usize {
    let before = drops(net, DropReason::DatagramsFull);
    send(net, sends, port, &chunk(1_400), count);
    count - (drops(net, DropReason::DatagramsFull) - before) as usize
}

fn send(net: &mut Net, sends: SocketId, port: u16, payload: &Chunk, count: usize) {
    for _ in 0..count {
        net.hosts[0].shard.udp_send(sends, to(port), payload.clone()).expect("room");
    }
    net.run(MS);
}

/// Lets go of all in the queue of `id` and says how many they were.
fn read_all(net: &mut Net, id: SocketId) -> usize {
    core::iter::from_fn(|| net.hosts[1].shard.udp_receive(id).ok()).count()
}

/// 60 sockets that nobody reads, for which more comes than they may hold.
fn flooded(net: &mut Net) -> (SocketId, Vec<SocketId>) {
    flooded_with(net, 1_400)
}

fn flooded_with(net: &mut Net, len: usize) -> (SocketId, Vec<SocketId>) {
    let sends = bind(net, 0, 1_053);
    let unread: Vec<_> = (100..160).map(|port| bind(net, 1, port)).collect();
    // The neighbour is looked for.
    send(net, sends, 99, &chunk(1), 1);
    let payload = chunk(len);
    for _ in 0..2_000 {
        for port in 100..160 {
            send(net, sends, port, &payload, 3);
        }
        if drops(net, DropReason::DatagramsFull) > 6_000 || drops(net, DropReason::NoMemory) > 0 {
            break;
        }
    }
    (sends, unread)
}

/// Each within its own bound, such sockets held all there is to send with, and as their datagrams fill the blocks that they
/// came in, nothing was won by copying them.
#[test]
fn datagrams_that_nobody_reads_leave_memory_to_connections() {
    let mut net = net();
    let (_, unread) = flooded(&mut net);
    let pool = net.hosts[1].pool.clone();
    assert!(pool.left_to_share_bytes() > TO_SEND_BYTES / 4, "{}", pool.left_to_share_bytes());
    assert_eq!(drops(&net, DropReason::NoMemory), 0);
    assert!(drops(&net, DropReason::DatagramsFull) > 6_000);
    let (client, server) = net.connect_to(false, 80);
    let mut received = Vec::new();
    for round in 0..20 {
        let mut block = pool.allocate(40_000).expect("memory to send with");
        block.bytes_mut()[..40_000].copy_from_slice(&data(40_000));
        let block = Chunk::new(block.freeze(), 0..40_000);
        net.hosts[1].shard.tcp_append(net.now, server, block).expect("room");
        net.run(Duration::from_millis(20));
        net.read(0, client, &mut received).expect("open");
        assert_eq!(received.len(), (round + 1) * 40_000);
    }
    for id in unread {
        assert!(read_all(&mut net, id) > 10);
    }
    assert_eq!(net.hosts[1].shard.holdings().unread_bytes, 0);
    assert_eq!(pool.counters().outstanding_bytes, 0);
}

/// As long as they are, or as short.
#[test]
fn a_datagram_is_counted_with_what_a_copy_of_it_takes() {
    for len in [0, 1, 257, 513, 1_025, 1_472, 2_049, 5_000, 9_300] {
        let mut net = net();
        flooded_with(&mut net, len);
        let (pool, shard) = (net.hosts[1].pool.clone(), &mut net.hosts[1].shard);
        while shard.relieve_pool() {}
        let held_bytes = pool.counters().outstanding_bytes as usize;
        assert!(held_bytes < TO_SEND_BYTES / 8 * 7, "{len}: {held_bytes} held");
        assert!(drops(&net, DropReason::DatagramsFull) > 1_000, "{len}");
        assert_eq!(drops(&net, DropReason::NoMemory), 0, "{len}");
    }
}

#[test]
fn who_reads_has_room_for_several_beside_those_who_do_not() {
    let mut net = net();
    let (sends, _) = flooded(&mut net);
    let read = bind(&mut net, 1, 53);
    for _ in 0..50 {
        assert_eq!(kept(&mut net, sends, 53, 4), 4);
        assert_eq!(read_all(&mut net, read), 4);
    }
}

/// One after the other such sockets take half of what those before have left, and still who has read everything has a
/// datagram.
#[test]
fn an_empty_queue_takes_a_datagram_however_much_others_hold() {
    let mut net = net();
    let (sends, unread) = flooded(&mut net);
    let late: Vec<_> = (200..210).map(|port| bind(&mut net, 1, port)).collect();
    let kept_late: Vec<_> = (200..210).map(|port| kept(&mut net, sends, port, 40)).collect();
    assert!(kept_late.is_sorted_by(|one, next| one >= next), "{kept_late:?}");
    assert_eq!((kept_late[8], kept_late[9]), (1, 1), "{kept_late:?}");
    for _ in 0..5 {
        assert_eq!(read_all(&mut net, late[9]), 1);
        assert_eq!(kept(&mut net, sends, 209, 2), 1);
    }
    // As the one who lets go of what it holds leaves it to them.
    net.hosts[1].shard.close(net.now, unread[0]);
    assert!(kept(&mut net, sends, 209, 10) > 4);
}

/// A datagram to a group, and a packet of a protocol, is counted where it is kept, and not copied where it is not.
#[test]
fn groups_and_protocols_have_no_more_and_cost_no_copy() {
    let mut net = net();
    let group = IpAddr::from([239, 1, 2, 3]);
    let (sends, _) = flooded(&mut net);
    let now = net.now;
    let shard = &mut net.hosts[1].shard;
    for port in 300..310 {
        let (local, options) = (IpAddr::from([0; 4]), BindOptions::default());
        let id = shard.udp_bind_with((local, port).into(), options).expect("free");
        shard.udp_join(now, id, group, None, &[]).expect("room");
    }
    let raw = shard.raw_bind(253, harness::address(1, false)).expect("free");
    let sends_raw = net.hosts[0].shard.raw_bind(253, harness::address(0, false)).expect("free");
    net.run(Duration::from_secs(5));
    let flood = |net: &mut Net| {
        for port in 300..310 {
            for _ in 0..8 {
                let to = Some(SocketAddr::from((group, port)));
                net.hosts[0].shard.udp_send(sends, to, chunk(1_400)).expect("room");
                let to = harness::address(1, false);
                net.hosts[0].shard.raw_send(sends_raw, to, chunk(1_400)).expect("room");
            }
        }
        net.run(MS);
        // One for each of the device's blocks.
        let counters = net.hosts[1].shard.counters();
        let blocks = counters.shard.receive_batches;
        (net.hosts[1].pool.counters().allocations, blocks, counters.drops)
    };
    for _ in 0..5 {
        flood(&mut net);
    }
    let (allocations, batches, before) = flood(&mut net);
    let (allocated, batched, after) = flood(&mut net);
    let refused = |reason| after.count(reason) - before.count(reason);
    assert_eq!((refused(DropReason::DatagramsFull), refused(DropReason::NoMemory)), (160, 0));
    let blocks = (160 * 1_500_u64).div_ceil(BLOCK_LEN as u64) + batched - batches;
    assert!(allocated - allocations <= blocks, "{} of {blocks}", allocated - allocations);
    assert!(net.hosts[1].shard.raw_receive(raw).is_ok(), "one is kept");
}

/// Listeners of the sender's own host who do not come: they hold what was sent to the group, and neither the blocks that it
/// was sent from nor memory that was lent.
#[test]
fn what_goes_round_to_listeners_here_holds_no_block_of_its_sender() {
    let mut net = net();
    let (group, now) = (IpAddr::from([239, 1, 2, 3]), net.now);
    let (pool, shard) = (net.hosts[1].pool.clone(), &mut net.hosts[1].shard);
    let shared = BindOptions { shared: true, ..BindOptions::default() };
    let listens = [54, 54].map(|port| {
        let id = shard.udp_bind_with((IpAddr::from([0; 4]), port).into(), shared).expect("shared");
        shard.udp_join(now, id, group, None, &[]).expect("room");
        id
    });
    let sends = shard.udp_bind((harness::address(1, false), 0).into()).expect("a port");
    for at in 0..40 {
        let mut block = pool.allocate(BLOCK_LEN).expect("room");
        block.bytes_mut().fill(at);
        let payload = Chunk::new(block.freeze(), 7..17);
        net.hosts[1].shard.udp_send(sends, Some((group, 54).into()), payload).expect("room");
        net.run(MS);
    }
    let lent = Bytes::from(vec![40; 10]);
    let payload = Chunk::whole(Block::from(lent.clone()));
    net.hosts[1].shard.udp_send(sends, Some((group, 54).into()), payload).expect("room");
    net.run(MS);
    assert!(lent.is_unique(), "it is sent, and nobody has it any more");
    let held_bytes = pool.counters().outstanding_bytes;
    assert!(held_bytes <= 41 * 256, "{held_bytes} bytes are held");
    for at in 0..=40 {
        for id in listens {
            let (payload, _) = net.hosts[1].shard.udp_receive(id).expect("it was sent");
            assert_eq!(payload.bytes(), [at; 10]);
        }
    }
    assert_eq!(pool.counters().outstanding_bytes, 0);
}

/// Two shards of one host, which share a pool.
#[test]
fn what_one_shard_holds_another_has_not() {
    let mut net = net();
    let (_, unread) = flooded(&mut net);
    let pool = net.hosts[1].pool.clone();
    let mut other = harness::shard(2, tcp::Config::default(), &pool);
    let held_bytes = net.hosts[1].shard.holdings().unread_bytes;
    assert!((UNREAD_BYTES / 10 * 9..UNREAD_BYTES).contains(&held_bytes), "{held_bytes}");
    let (here, there) = net_of_one(&mut other);
    let send = |shard: &mut stack::Shard| {
        for _ in 0..100 {
            shard.udp_send(here, Some(there), chunk(1_400)).expect("room");
        }
        turn(shard, net.now);
        shard.holdings().unread_bytes
    };
    let first_bytes = send(&mut other);
    assert!((2_048..UNREAD_BYTES - held_bytes).contains(&first_bytes), "{first_bytes}");
    unread.iter().for_each(|id| net.hosts[1].shard.close(net.now, *id));
    assert_eq!(net.hosts[1].shard.holdings().unread_bytes, 0);
    assert!(send(&mut other) > first_bytes + 80 * 2_048);
    drop(other);
    assert!(
        pool.datagrams_bytes() <= 2 * UNREAD_BYTES / 1_024,
        "what the first one has charged ahead"
    );
    let [_, second] = net.hosts;
    drop(second.shard);
    assert_eq!(pool.datagrams_bytes(), 0);
}

/// A socket that sends and one that does not read, and where that is.
fn net_of_one(shard: &mut stack::Shard) -> (SocketId, SocketAddr) {
    let there = SocketAddr::from(([127, 0, 0, 1], 53));
    shard.udp_bind(there).expect("a free port");
    (shard.udp_bind(([127, 0, 0, 1], 54).into()).expect("a free port"), there)
}

/// What a shard sends to itself arrives.
fn turn(shard: &mut stack::Shard, now: time::Instant) {
    while shard.is_loopback_pending() {
        let (id, mut batch) = (InterfaceId::LOOPBACK, Multidata::default());
        assert_eq!(shard.poll_transmit(now, id, Room::UNBOUNDED, &mut batch), 0);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Bind(u8),
    Send { to: usize, len: usize, count: usize },
    Read { of: usize, count: usize },
    Close(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3_u8).prop_map(Step::Bind),
        (0..8_usize, 0..3_000_usize, 1..60_usize).prop_map(|(to, len, count)| Step::Send {
            to,
            len,
            count
        }),
        (0..8_usize, 0..60_usize).prop_map(|(of, count)| Step::Read { of, count }),
        (0..8_usize).prop_map(Step::Close),
    ]
}

/// Takes one step. Of a socket `kind` 0 has a port, 1 a group's as others have, and 2 is raw.
fn take(net: &mut Net, open: &mut Vec<(u8, SocketId, u16)>, step: &Step) {
    let (here, there) = (harness::address(0, false), harness::address(1, false));
    let (group, now) = (IpAddr::from([239, 1, 2, 3]), net.now);
    match *step {
        Step::Bind(kind) if open.len() < 8 => {
            let shard = &mut net.hosts[1].shard;
            let shared = BindOptions { shared: true, ..BindOptions::default() };
            let id = match kind {
                0 => shard.udp_bind((there, 0).into()),
                1 => shard.udp_bind_with((IpAddr::from([0; 4]), 54).into(), shared),
                _ => shard.raw_bind(253, there),
            };
            let id = id.expect("room");
            if kind == 1 {
                shard.udp_join(now, id, group, None, &[]).expect("room");
            }
            let port = shard.local_address(id).map_or(0, |local| local.port());
            open.push((kind, id, port));
        }
        Step::Send { to, len, count } => {
            let Some((kind, _, port)) = open.get(to).copied() else { return };
            let shard = &mut net.hosts[0].shard;
            let sends = match kind {
                2 => shard.raw_bind(253, here),
                _ => shard.udp_bind((here, 0).into()),
            };
            let sends = sends.expect("free");
            let to = SocketAddr::new(if kind == 1 { group } else { there }, port);
            for _ in 0..count {
                // Where the queue is full it is.
                let _ = match kind {
                    2 => shard.raw_send(sends, there, chunk(len)),
                    _ => shard.udp_send(sends, Some(to), chunk(len)),
                };
            }
            net.run(MS);
            net.hosts[0].shard.close(net.now, sends);
        }
        Step::Read { of, count } => {
            let Some((kind, id, _)) = open.get(of).copied() else { return };
            let shard = &mut net.hosts[1].shard;
            let is_read = |_: &usize| match kind {
                2 => shard.raw_receive(id).is_ok(),
                _ => shard.udp_receive(id).is_ok(),
            };
            (0..count).take_while(is_read).for_each(drop);
        }
        Step::Close(of) if of < open.len() => {
            let (_, id, _) = open.swap_remove(of);
            net.hosts[1].shard.close(now, id);
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn what_is_read_or_let_go_of_is_counted_no_more(
        steps in proptest::collection::vec(step(), 1..60),
        are_read in any::<bool>(),
    ) {
        let (mut net, mut open) = (net(), Vec::new());
        for step in &steps {
            take(&mut net, &mut open, step);
            let held_bytes = net.hosts[1].shard.holdings().unread_bytes;
            // One more than fits for each of the sockets.
            prop_assert!(held_bytes <= UNREAD_BYTES + 8 * 4_096, "{held_bytes}");
        }
        if are_read {
            (0..open.len()).for_each(|of| take(&mut net, &mut open, &Step::Read { of, count: 9_999 }));
            prop_assert_eq!(net.hosts[1].shard.holdings().unread_bytes, 0);
        }
        while !open.is_empty() {
            take(&mut net, &mut open, &Step::Close(0));
        }
        net.run(Duration::from_secs(60));
        prop_assert_eq!(net.hosts[1].shard.holdings(), Holdings::default());
        let pool: BlockPool = net.hosts[1].pool.clone();
        prop_assert!(pool.datagrams_bytes() <= 2 * UNREAD_BYTES / 1_024);
        prop_assert_eq!(pool.counters().outstanding_bytes, 0);
    }
}

/// Memory that is none of the pool's, as a wire's.
struct Lent {
    bytes: Vec<u8>,
    _live: Arc<()>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Frames end to end in such a block, which has `live` as long as somebody holds it.
fn lent<'a>(frames: impl Iterator<Item = &'a Vec<u8>> + Clone, live: &Arc<()>) -> ReceiveBatch {
    let mut batch = ReceiveBatch::new();
    let bytes = frames.clone().flatten().copied().collect();
    let block = Block::from(Bytes::from_owner(Lent { bytes, _live: Arc::clone(live) }));
    let (block, mut offset) = (batch.add_block(block), 0);
    for frame in frames {
        let (len, checksum) = (frame.len() as u32, ReceivedChecksum::Unverified);
        assert!(batch.push_frame(Frame { block, offset, len, checksum, segmented: None }));
        offset += len;
    }
    batch
}

/// Nobody counts it, and no pressure has it back.
#[test]
fn what_nobody_reads_holds_little_of_what_is_none_of_the_pools() {
    const PACKETS: usize = 100;
    let mut net = net();
    let sends = bind(&mut net, 0, 1_053);
    let unread: Vec<_> = (100..110).map(|port| bind(&mut net, 1, port)).collect();
    // The neighbour is looked for.
    send(&mut net, sends, 99, &chunk(1), 1);
    net.wire.clear();
    (99..110).for_each(|port| send(&mut net, sends, port, &chunk(1_000), 1));
    let frames = net.wire.iter().filter(|(host, frame)| *host == 0 && frame.len() > 1_000);
    let frames: Vec<_> = frames.map(|(_, frame)| frame.clone()).collect();
    let (others, frames) = frames.split_first().expect("eleven were sent");
    for id in &unread {
        assert_eq!(read_all(&mut net, *id), 1);
    }
    let live = Arc::new(());
    for frame in frames.iter().cycle().take(500) {
        let all = core::iter::once(frame).chain(core::iter::repeat_n(others, PACKETS - 1));
        let host = &mut net.hosts[1];
        host.shard.on_receive(net.now, host.interface, &mut lent(all, &live));
    }
    let blocks = Arc::strong_count(&live) - 1;
    assert!(blocks <= unread.len(), "{blocks} for {} datagrams each", PACKETS);
    for id in &unread {
        assert_eq!(read_all(&mut net, *id), 50, "none was lost");
    }
    // Those of one batch lie where they came.
    let host = &mut net.hosts[1];
    let before = host.pool.counters().allocations;
    let all = core::iter::repeat_n(&frames[0], 50);
    host.shard.on_receive(net.now, host.interface, &mut lent(all, &live));
    assert_eq!(host.pool.counters().allocations, before);
    assert_eq!(Arc::strong_count(&live), 2);
}

/// Its request may lie in a block of others' frames, and its neighbour, or its device, may take nothing for long.
#[test]
fn an_echo_reply_that_waits_does_not_hold_the_block_its_request_came_in() {
    let mut net = net();
    let mut request = vec![0; Icmpv6Repr::LEN];
    Icmpv6Repr::EchoRequest { identifier: 1, sequence: 1 }.emit(&mut request);
    request.extend_from_slice(&data(100));
    let addresses = (harness::address(0, true), harness::address(1, true));
    let protocol = wire::protocol::ICMPV6;
    let frame = craft::packet(harness::station(1), addresses, protocol, 64, (&request, 2));
    let live = Arc::new(());
    let host = &mut net.hosts[1];
    let all = core::iter::repeat_n(&frame, 10);
    host.shard.on_receive(net.now, host.interface, &mut lent(all, &live));
    assert_eq!((host.shard.counters().shard.echo_replies, Arc::strong_count(&live)), (10, 1));
}
