//! Readers who do not come hold no blocks that others need: what is unread is copied out of the device's
//! blocks when the pool runs low, and where that does not help, who reads still gets his bytes.

use crate::harness::{self, Net, data};
use batch::{Block, Chunk, PoolConfig};
use bytes::Bytes;
use core::net::IpAddr;
use counters::DropReason;
use device::TransmitMode;
use stack::{BindOptions, SocketError, SocketId};
use time::Duration;

/// The device's blocks.
const BLOCK_LEN: usize = 65_536;
const LIMIT_BYTES: usize = 8 << 20;
const RESERVE_BYTES: usize = 4 << 20;

/// Two hosts, of which the second receives into a pool of 8 MiB.
fn net() -> Net {
    net_with(None)
}

fn net_with(streams_limit_bytes: Option<usize>) -> Net {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let [first, second] = net.hosts;
    let config = PoolConfig {
        limit_bytes: LIMIT_BYTES,
        receive_reserve_bytes: RESERVE_BYTES,
        streams_limit_bytes,
        ..PoolConfig::default()
    };
    let mut second = second.with_pool(1, config);
    second.receives_into = Some(BLOCK_LEN);
    net.hosts = [first, second];
    net
}

fn held_bytes(net: &Net) -> usize {
    net.hosts[1].pool.counters().outstanding_bytes as usize
}

fn chunk(bytes: &'static [u8]) -> Chunk {
    Chunk::whole(Block::from(Bytes::from_static(bytes)))
}

fn connections(net: &mut Net, count: u16) -> Vec<(SocketId, SocketId)> {
    (0..count).map(|at| net.connect_to(false, 100 + at)).collect()
}

/// A segment for each of 64 readers who do not come, one by one, among as many bytes for one who does as
/// fill the block: 32 MiB of blocks for half a megabyte.
#[test]
fn a_segment_that_nobody_reads_does_not_hold_the_block_it_came_in() {
    let mut net = net();
    let slow = connections(&mut net, 64);
    let (client, server) = net.connect_to(false, 99);
    let (large, small) = (data(48_000), data(1_000));
    let mut most = 0;
    for round in 0..512_usize {
        assert_eq!(net.write(0, slow[round % 64].0, &small), small.len());
        assert_eq!(net.write(0, client, &large), large.len());
        net.run(Duration::from_millis(20));
        let mut received = Vec::new();
        net.read(1, server, &mut received).expect("open");
        assert_eq!(received.len(), large.len(), "round {round}: {} held", held_bytes(&net));
        assert!(received == large);
        most = most.max(held_bytes(&net));
    }
    // Some blocks more than it begins at are on their way.
    let begins_bytes = (LIMIT_BYTES - RESERVE_BYTES) / 8 * 7;
    assert!(most > begins_bytes - 8 * BLOCK_LEN, "{most} bytes: no pressure");
    assert!(most < begins_bytes + 8 * BLOCK_LEN, "{most} bytes");
    let counters = net.hosts[1].shard.counters().shard;
    assert!(counters.pool_pressures > 0);
    let unread = 512 * small.len() as u64;
    assert!((1..=unread).contains(&counters.pressure_copied_bytes), "{counters:?}");
    for (_, server) in slow {
        let mut received = Vec::new();
        net.read(1, server, &mut received).expect("open");
        assert!(received == small.repeat(8), "copied as it came");
    }
    assert_eq!(held_bytes(&net), 0);
}

/// A byte for each of 60 sockets that nobody reads, among as much for one that is read as fills the block: they hold
/// all but a few blocks of what there is to send with, and nothing else comes.
#[test]
fn datagrams_that_nobody_reads_leave_memory_to_send_with() {
    let mut net = net();
    let [here, there] = [0, 1].map(|host| harness::address(host, false));
    let sends = net.hosts[0].shard.udp_bind((here, 0).into()).expect("a port");
    let read = net.hosts[1].shard.udp_bind((there, 99).into()).expect("a free port");
    let (filling, byte) = (Chunk::whole(Block::from(Bytes::from(data(1_400)))), chunk(b"x"));
    let mut unread = Vec::new();
    // The neighbour is looked for.
    net.hosts[0].shard.udp_send(sends, Some((there, 98).into()), byte.clone()).expect("room");
    net.run(Duration::from_millis(1));
    for port in 100..160 {
        let shard = &mut net.hosts[1].shard;
        unread.push(shard.udp_bind((there, port).into()).expect("a free port"));
        let shard = &mut net.hosts[0].shard;
        shard.udp_send(sends, Some((there, port).into()), byte.clone()).expect("room");
        for _ in 0..40 {
            shard.udp_send(sends, Some((there, 99).into()), filling.clone()).expect("room");
        }
        net.run(Duration::from_millis(1));
        let shard = &mut net.hosts[1].shard;
        let count = core::iter::from_fn(|| shard.udp_receive(read).ok()).count();
        assert_eq!(count, 40, "{} held", held_bytes(&net));
    }
    net.hosts[1].shard.relieve_pool();
    let left_bytes = net.hosts[1].pool.left_to_share_bytes();
    assert!(left_bytes > 0, "nothing to share, {} held", held_bytes(&net));
    let counters = net.hosts[1].shard.counters().shard;
    assert!((1..=60).contains(&counters.pressure_copied_bytes), "{counters:?}");
    for id in unread {
        assert_eq!(net.hosts[1].shard.udp_receive(id).expect("it came").0.bytes(), b"x");
    }
    assert_eq!(held_bytes(&net), 0);
}

/// Readers who do not come, and whose unread bytes fill the blocks they came in: there is nothing to copy
/// out, and who comes still gets a segment at a time, and a datagram. What is unread has no other bound.
#[test]
fn who_reads_is_served_though_others_fill_the_pool_with_what_they_do_not_read() {
    let mut net = net_with(Some(usize::MAX));
    let slow = connections(&mut net, 70);
    let bytes = data(400_000);
    let mut written = [0; 70];
    for _ in 0..40 {
        for (at, (client, _)) in slow.iter().enumerate() {
            written[at] += net.write(0, *client, &bytes[written[at]..]);
        }
        net.run(Duration::from_millis(50));
    }
    // With a block to receive into it is scarce.
    let scarce_bytes = LIMIT_BYTES - RESERVE_BYTES / 4 - 2 * BLOCK_LEN;
    assert!(held_bytes(&net) > scarce_bytes, "{} held", held_bytes(&net));
    let to = (harness::address(1, false), 53).into();
    let asked = net.hosts[1].shard.udp_bind(to).expect("a free port");
    let from = (harness::address(0, false), 1_053).into();
    let asks = net.hosts[0].shard.udp_bind(from).expect("a free port");
    net.hosts[0].shard.udp_send(asks, Some(to), chunk(b"who?")).expect("room");
    net.run(Duration::from_millis(1));
    let (question, _) = net.hosts[1].shard.udp_receive(asked).expect("it came");
    assert_eq!(question.bytes(), b"who?");
    drop(question);

    let (client, server) = net.connect_to(false, 99);
    net.transfer((0, client), (1, server), &bytes[..100_000], Duration::from_secs(900));
    assert!(held_bytes(&net) > scarce_bytes, "nobody has read meanwhile");
    let mut left: Vec<_> = slow.iter().map(|(_, server)| (*server, Vec::new())).collect();
    for _ in 0..2_000 {
        net.run(Duration::from_millis(500));
        for (server, received) in &mut left {
            net.read(1, *server, received).expect("open");
        }
        if left.iter().zip(&written).all(|((_, received), written)| received.len() == *written) {
            break;
        }
    }
    for ((_, received), written) in left.iter().zip(&written) {
        assert_eq!(received.len(), *written);
        assert!(bytes.starts_with(received));
    }
    assert_eq!(held_bytes(&net), 0);
}

/// While little is left, who has read everything gets a packet that no sender sends again, and who has not gets no
/// second one: a datagram, one to a group, or one of another protocol.
#[test]
fn a_pool_that_is_low_has_a_packet_for_who_waits_and_none_for_who_does_not() {
    let mut net = net();
    let (now, [here, there]) = (net.now, [0, 1].map(|host| harness::address(host, false)));
    let (anywhere, group) = (IpAddr::from([0; 4]), IpAddr::from([239, 1, 2, 3]));
    let [first, second] = &mut net.hosts;
    let sends = first.shard.udp_bind((here, 0).into()).expect("a port");
    let sends_raw = first.shard.raw_bind(253, here).expect("free");
    let datagrams = second.shard.udp_bind((there, 53).into()).expect("a free port");
    let of_group = [54, 54].map(|port| {
        let shared = BindOptions { shared: true, ..BindOptions::default() };
        let id = second.shard.udp_bind_with((anywhere, port).into(), shared).expect("shared");
        second.shard.udp_join(now, id, group, None, &[]).expect("room");
        id
    });
    let alone = second.shard.raw_bind(253, there).expect("free");
    // Reports of the group, and the look-up of the neighbour.
    net.run(Duration::from_secs(5));
    let mut held = Vec::new();
    while !net.hosts[1].pool.is_low() {
        held.push(net.hosts[1].pool.allocate_receive(BLOCK_LEN).expect("room"));
    }
    for text in [&b"the first"[..], b"the second"] {
        let shard = &mut net.hosts[0].shard;
        for to in [(there, 53), (group, 54)] {
            shard.udp_send(sends, Some(to.into()), chunk(text)).expect("room");
        }
        shard.raw_send(sends_raw, there, chunk(text)).expect("room");
        net.run(Duration::from_millis(1));
        // Of two listeners one reads at once.
        let shard = &mut net.hosts[1].shard;
        let (payload, _) = shard.udp_receive(of_group[1]).expect("it had read everything");
        assert_eq!(payload.bytes(), text);
    }
    let shard = &mut net.hosts[1].shard;
    for id in [datagrams, of_group[0]] {
        assert_eq!(shard.udp_receive(id).expect("it came").0.bytes(), b"the first");
        assert_eq!(shard.udp_receive(id).unwrap_err(), SocketError::WouldBlock);
    }
    assert_eq!(shard.raw_receive(alone).expect("it came").payload.bytes(), b"the first");
    assert_eq!(shard.raw_receive(alone).unwrap_err(), SocketError::WouldBlock);
    // Two sockets of one protocol have one copy between them, and each is asked.
    let both = [there, anywhere].map(|local| shard.raw_bind(254, local).expect("free"));
    let sends_raw = net.hosts[0].shard.raw_bind(254, here).expect("free");
    for text in [&b"the first"[..], b"the second"] {
        net.hosts[0].shard.raw_send(sends_raw, there, chunk(text)).expect("room");
        net.run(Duration::from_millis(1));
        let packet = net.hosts[1].shard.raw_receive(both[1]).expect("it had read everything");
        assert_eq!(packet.payload.bytes(), text);
    }
    assert_eq!(
        net.hosts[1].shard.raw_receive(both[0]).expect("it came").payload.bytes(),
        b"the first"
    );
    assert_eq!(net.hosts[1].shard.raw_receive(both[0]).unwrap_err(), SocketError::WouldBlock);
    drop(held);
    assert_eq!(held_bytes(&net), 0);
}

/// In a flood, what a full socket has no room for costs as little as can be: nothing is copied or summed for it.
#[test]
fn a_packet_for_a_full_socket_is_dropped_before_work_is_done_for_it() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let [here, there] = [0, 1].map(|host| harness::address(host, false));
    let [first, second] = &mut net.hosts;
    let sends = first.shard.udp_bind((here, 0).into()).expect("a port");
    let sends_raw = first.shard.raw_bind(253, here).expect("free");
    let datagrams = second.shard.udp_bind((there, 53).into()).expect("a free port");
    let packets = second.shard.raw_bind(253, there).expect("free");
    let payload = chunk(&[7; 1_400]);
    let send = |net: &mut Net| {
        let shard = &mut net.hosts[0].shard;
        for _ in 0..16 {
            shard.udp_send(sends, Some((there, 53).into()), payload.clone()).expect("room");
            shard.raw_send(sends_raw, there, payload.clone()).expect("room");
        }
        net.run(Duration::from_millis(1));
        let host = &net.hosts[1];
        let dropped = host.shard.drop_count(DropReason::SocketQueueFull);
        let summed = host.shard.counters().shard.checksummed_receive_bytes;
        (dropped, summed, host.pool.counters().allocations)
    };
    let mut before = send(&mut net);
    while before.0 < 32 {
        before = send(&mut net);
    }
    let after = send(&mut net);
    assert_eq!(after, (before.0 + 32, before.1, before.2));
    // Who reads finds what came first.
    let shard = &mut net.hosts[1].shard;
    assert_eq!(shard.udp_receive(datagrams).expect("it came").0.bytes(), payload.bytes());
    assert_eq!(shard.raw_receive(packets).expect("it came").payload.bytes(), payload.bytes());
}

/// As that of one socket, so that of several which are to have a copy between them.
#[test]
fn a_packet_for_several_full_sockets_is_not_copied() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let [here, there] = [0, 1].map(|host| harness::address(host, false));
    let [first, second] = &mut net.hosts;
    let sends = first.shard.raw_bind(253, here).expect("free");
    let raws =
        [there, IpAddr::from([0; 4])].map(|at| second.shard.raw_bind(253, at).expect("free"));
    let payload = chunk(&[7; 1_400]);
    let send = |net: &mut Net| {
        for _ in 0..16 {
            net.hosts[0].shard.raw_send(sends, there, payload.clone()).expect("room");
        }
        net.run(Duration::from_millis(1));
        let host = &net.hosts[1];
        let dropped = host.shard.drop_count(DropReason::SocketQueueFull);
        (dropped, host.pool.counters().allocations)
    };
    let mut before = send(&mut net);
    while before.0 < 32 {
        before = send(&mut net);
    }
    assert_eq!(send(&mut net), (before.0 + 32, before.1));
    // Of the one that is read a copy is made, and the other has room for none.
    let shard = &mut net.hosts[1].shard;
    while shard.raw_receive(raws[1]).is_ok() {}
    assert_eq!(send(&mut net), (before.0 + 48, before.1 + 16));
}

/// Who shares a pool with others hears of each time from this count.
#[test]
fn each_time_that_the_pool_is_used_up_is_counted_and_then_over() {
    let [_, mut host] = net().hosts;
    for count in 1..=2 {
        let mut held = Vec::new();
        while !host.pool.is_used_up() {
            held.push(host.pool.allocate(BLOCK_LEN).expect("room"));
        }
        host.shard.relieve_pool();
        host.shard.relieve_pool();
        assert_eq!(host.shard.pool_pressures(), count);
        drop(held);
        host.shard.relieve_pool();
    }
}

/// Eight sockets, each with sixty datagrams in three blocks whose other half was another's: more than one call copies, the
/// first of which ends amid a socket.
#[test]
fn what_one_call_does_not_copy_the_next_ones_do() {
    const DATAGRAM_BYTES: usize = 1_400;
    let mut net = Net::new(TransmitMode::Multidata, true);
    let [first, second] = net.hosts;
    let config = PoolConfig {
        limit_bytes: 8 * LIMIT_BYTES,
        receive_reserve_bytes: 8 * RESERVE_BYTES,
        ..PoolConfig::default()
    };
    let mut second = second.with_pool(1, config);
    second.receives_into = Some(BLOCK_LEN);
    net.hosts = [first, second];
    let [here, there] = [0, 1].map(|host| harness::address(host, false));
    let sends = net.hosts[0].shard.udp_bind((here, 0).into()).expect("a port");
    let read = net.hosts[1].shard.udp_bind((there, 99).into()).expect("a free port");
    let unread = [100, 101, 102, 103, 104, 105, 106, 107]
        .map(|port| net.hosts[1].shard.udp_bind((there, port).into()).expect("a free port"));
    // The neighbour is looked for.
    net.hosts[0].shard.udp_send(sends, Some((there, 98).into()), chunk(b"x")).expect("room");
    net.run(Duration::from_millis(1));
    let payload = Chunk::whole(Block::from(Bytes::from(data(DATAGRAM_BYTES))));
    for port in (100..108).flat_map(|port| [port; 3]) {
        for _ in 0..20 {
            for port in [port, 99] {
                let to = Some((there, port).into());
                net.hosts[0].shard.udp_send(sends, to, payload.clone()).expect("room");
            }
        }
        net.run(Duration::from_millis(1));
        let shard = &mut net.hosts[1].shard;
        assert_eq!(core::iter::from_fn(|| shard.udp_receive(read).ok()).count(), 20);
    }
    let host = &mut net.hosts[1];
    let mut held = Vec::new();
    while !host.pool.is_used_up() {
        held.push(host.pool.allocate(BLOCK_LEN).expect("room"));
    }
    assert!(host.shard.relieve_pool(), "there is more to copy");
    while host.shard.relieve_pool() {}
    let copied_bytes = host.shard.counters().shard.pressure_copied_bytes;
    assert_eq!(copied_bytes, (unread.len() * 60 * DATAGRAM_BYTES) as u64);
}

/// A reader who leaves the last bytes of a block holds it for these, and nobody has listed him before.
#[test]
fn what_a_reader_leaves_is_copied_out_of_its_block() {
    let mut net = net();
    let (client, server) = net.connect_to(false, 99);
    assert_eq!(net.write(0, client, &data(14_000)), 14_000);
    net.run(Duration::from_millis(10));
    let host = &mut net.hosts[1];
    let mut buffer = [0; 12_500];
    assert_eq!(host.shard.tcp_read(net.now, server, &mut buffer), Ok(12_500));
    let mut held = Vec::new();
    while !host.pool.is_used_up() {
        held.push(host.pool.allocate(BLOCK_LEN).expect("room"));
    }
    host.shard.relieve_pool();
    assert_eq!(host.shard.counters().shard.pressure_copied_bytes, 1_500);
    let counted_bytes = host.shard.holdings().unread_stream_bytes;
    drop(held);
    assert_eq!(counted_bytes, held_bytes(&net), "it is counted as what it is now");
}
