//! Connections that nobody reads: all of them together hold a part of the memory and no more, who reads is served, and
//! what is read or let go of is there for others.

use crate::harness::{Net, data};
use batch::{BlockPool, Chunk, PoolConfig};
use counters::DropReason;
use device::TransmitMode;
use proptest::prelude::*;
use stack::{Holdings, SocketId};
use time::Duration;

/// The device's blocks.
const BLOCK_LEN: usize = 65_536;
/// What there is to send with, and what connections may hold of it.
const TO_SEND_BYTES: usize = 4 << 20;
const UNREAD_BYTES: usize = TO_SEND_BYTES / 8 * 3;
/// What a reader gets whatever others hold.
const LEAST_BYTES: usize = 8_192;

/// Two hosts, of which the second receives into a pool of 8 MiB.
fn net() -> Net {
    net_with(tcp::Config::default())
}

fn net_with(config: tcp::Config) -> Net {
    let mut net = Net::with_config(TransmitMode::Multidata, true, config);
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

fn pool(net: &Net) -> BlockPool {
    net.hosts[1].pool.clone()
}

fn unread_bytes(net: &Net) -> usize {
    net.hosts[1].shard.holdings().unread_stream_bytes
}

/// Connections whose servers do not read, and how much was written to each.
struct Hoarders {
    connections: Vec<(SocketId, SocketId)>,
    written: Vec<usize>,
    bytes: Vec<u8>,
}

impl Hoarders {
    fn open(net: &mut Net, count: u16, first_port: u16) -> Self {
        let connections: Vec<_> =
            (0..count).map(|at| net.connect_to(false, first_port + at)).collect();
        let mut this =
            Self { written: vec![0; connections.len()], connections, bytes: data(400_000) };
        this.write(net, 40);
        this
    }

    fn write(&mut self, net: &mut Net, rounds: usize) {
        for _ in 0..rounds {
            for ((client, _), written) in self.connections.iter().zip(&mut self.written) {
                *written += net.write(0, *client, &self.bytes[*written..]);
            }
            net.run(Duration::from_millis(50));
        }
    }

    /// Their readers come after all.
    fn read(&self, net: &mut Net) {
        let mut left: Vec<_> = self.connections.iter().map(|(_, it)| (*it, Vec::new())).collect();
        for _ in 0..1_000 {
            for (server, received) in &mut left {
                net.read(1, *server, received).expect("open");
            }
            if left.iter().zip(&self.written).all(|((_, it), written)| it.len() == *written) {
                break;
            }
            net.run(Duration::from_millis(500));
        }
        for ((_, received), written) in left.iter().zip(&self.written) {
            assert_eq!(received.len(), *written);
            assert!(self.bytes.starts_with(received));
        }
    }
}

/// Sends `rounds` times 40,000 bytes from the pool of the host that has the hoarders.
fn send_back(net: &mut Net, (client, server): (SocketId, SocketId), rounds: usize) {
    let mut received = Vec::new();
    for round in 1..=rounds {
        let mut block = pool(net).allocate(40_000).expect("memory to send with");
        block.bytes_mut()[..40_000].copy_from_slice(&data(40_000));
        let block = Chunk::new(block.freeze(), 0..40_000);
        net.hosts[1].shard.tcp_append(net.now, server, block).expect("room");
        net.run(Duration::from_millis(20));
        net.read(0, client, &mut received).expect("open");
        assert_eq!(received.len(), round * 40_000);
    }
}

/// Each within its window, they held all that there was to send with, for ever: a relay that reads on only when its write
/// has gone out then stood, too.
#[test]
fn connections_that_nobody_reads_leave_memory_to_send_with() {
    let mut net = net();
    let hoarders = Hoarders::open(&mut net, 70, 100);
    let (pool, held_bytes) = (pool(&net), unread_bytes(&net));
    assert!(pool.left_to_send_bytes() > TO_SEND_BYTES / 4, "{}", pool.left_to_send_bytes());
    assert!(
        (UNREAD_BYTES / 2..UNREAD_BYTES + 70 * LEAST_BYTES).contains(&held_bytes),
        "{held_bytes}"
    );
    assert_eq!(net.hosts[1].shard.drop_count(DropReason::NoMemory), 0);
    let ids = net.connect_to(false, 80);
    send_back(&mut net, ids, 20);
    hoarders.read(&mut net);
    assert_eq!(unread_bytes(&net), 0);
    assert_eq!(pool.counters().outstanding_bytes, 0);
}

/// More that come later have some segments each, and no more.
#[test]
fn however_many_come_one_after_the_other_memory_to_send_with_is_left() {
    let mut net = net();
    let hoarders: Vec<_> = (0..4).map(|at| Hoarders::open(&mut net, 40, 100 + 100 * at)).collect();
    let held_bytes = unread_bytes(&net);
    assert!(held_bytes < UNREAD_BYTES + 160 * 2 * LEAST_BYTES, "{held_bytes}");
    net.hosts[1].shard.relieve_pool();
    let left_bytes = pool(&net).left_to_send_bytes();
    assert!(left_bytes > TO_SEND_BYTES / 8, "{left_bytes}");
    let ids = net.connect_to(false, 80);
    send_back(&mut net, ids, 5);
    hoarders.iter().for_each(|it| it.read(&mut net));
    assert_eq!(unread_bytes(&net), 0);
}

/// A window that was announced stays; a reader gets some segments at a time, and without a loss once the window that it
/// began with is used up.
#[test]
fn who_reads_beside_those_who_do_not_goes_on() {
    let mut net = net();
    let hoarders = Hoarders::open(&mut net, 70, 100);
    let (client, server) = net.connect_to(false, 99);
    let bytes = data(300_000);
    let (mut sent, mut received, mut refused_before) = (0, Vec::new(), None);
    let began = net.now;
    while received.len() < bytes.len() {
        sent += net.write(0, client, &bytes[sent..]);
        net.run(Duration::from_millis(1));
        net.read(1, server, &mut received).expect("open");
        if received.len() > 100_000 && refused_before.is_none() {
            refused_before = Some(net.hosts[0].shard.tcp_info(net.now, client).expect("open"));
        }
        assert!(net.now - began < Duration::from_secs(60), "{} received", received.len());
    }
    assert!(received == bytes);
    let (before, after) =
        (refused_before.expect("on the way"), net.hosts[0].shard.tcp_info(net.now, client));
    let again = after.expect("open").segments_retransmitted - before.segments_retransmitted;
    assert_eq!(again, 0, "lost behind the window that it began with");
    assert!(unread_bytes(&net) > UNREAD_BYTES / 2, "nobody else has read meanwhile");
    hoarders.read(&mut net);
    assert_eq!(unread_bytes(&net), 0);
    // As fast as ever.
    let (client, server) = net.connect_to(false, 98);
    net.transfer((0, client), (1, server), &bytes, Duration::from_secs(2));
}

/// Those who let go of what they have leave it to others.
#[test]
fn what_is_closed_is_counted_no_more() {
    let mut net = net();
    let hoarders = Hoarders::open(&mut net, 70, 100);
    for (at, (_, server)) in hoarders.connections.iter().enumerate() {
        match at % 2 {
            0 => net.hosts[1].shard.close(net.now, *server),
            _ => net.hosts[1].shard.tcp_abort(net.now, *server),
        }
    }
    net.run(Duration::from_secs(1));
    // What was aborted is there until the application lets go of it, with what there is to be read.
    for (_, server) in hoarders.connections {
        net.hosts[1].shard.close(net.now, server);
    }
    net.run(Duration::from_secs(1));
    assert_eq!(unread_bytes(&net), 0);
    let pool = pool(&net);
    assert!(pool.streams_bytes() <= 2 * UNREAD_BYTES / 1_024, "what is charged ahead");
    let [_, second] = net.hosts;
    drop(second.shard);
    assert_eq!(pool.streams_bytes(), 0);
}

/// Below the limit nothing is refused, and a window opens as far as it would.
#[test]
fn one_connection_has_the_window_that_it_would_have() {
    let windows = [None, Some(usize::MAX)].map(|streams_limit_bytes| {
        let mut net = Net::new(TransmitMode::Multidata, true);
        let [first, second] = net.hosts;
        let config = PoolConfig { streams_limit_bytes, ..PoolConfig::default() };
        net.hosts = [first, second.with_pool(1, config)];
        let (client, server) = net.connect_to(false, 80);
        net.transfer((0, client), (1, server), &data(8 << 20), Duration::from_secs(60));
        let counters = net.hosts[1].shard.counters();
        assert_eq!(counters.drops.count(DropReason::StreamsFull), 0);
        let info = net.hosts[1].shard.tcp_info(net.now, server).expect("open");
        (info.receive_buffer_bytes, counters.tcp.segments_received, net.now)
    });
    assert_eq!(windows[0], windows[1]);
}

#[derive(Clone, Debug)]
enum Step {
    Open,
    Write { to: usize, len: usize },
    Read { of: usize, len: usize },
    Chunk(usize),
    Relieve,
    Close { of: usize, is_abort: bool, is_client: bool },
    Run(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let at = || 0..12_usize;
    prop_oneof![
        2 => Just(Step::Open),
        4 => (at(), 1..300_000_usize).prop_map(|(to, len)| Step::Write { to, len }),
        2 => (at(), 1..200_000_usize).prop_map(|(of, len)| Step::Read { of, len }),
        1 => at().prop_map(Step::Chunk),
        1 => Just(Step::Relieve),
        1 => (at(), any::<bool>(), any::<bool>())
            .prop_map(|(of, is_abort, is_client)| Step::Close { of, is_abort, is_client }),
        2 => (1..3_000_u64).prop_map(Step::Run),
    ]
}

fn take(net: &mut Net, open: &mut Vec<(SocketId, SocketId)>, step: &Step) {
    let now = net.now;
    match *step {
        Step::Open if open.len() < 12 => {
            let port = 100 + (now.as_millis() % 60_000) as u16;
            open.push(net.connect_to(false, port));
            net.run(Duration::from_millis(1));
        }
        Step::Write { to, len } => {
            let Some((client, _)) = open.get(to) else { return };
            net.write(0, *client, &data(len));
            net.run(Duration::from_millis(20));
        }
        Step::Read { of, len } => {
            let Some((_, server)) = open.get(of) else { return };
            // Closed by the peer it may be.
            let _ = net.hosts[1].shard.tcp_read(now, *server, &mut vec![0; len]);
        }
        Step::Chunk(of) => {
            let Some((_, server)) = open.get(of) else { return };
            let _ = net.hosts[1].shard.tcp_read_chunks(now, *server, (40_000, 4), drop);
        }
        Step::Relieve => drop(net.hosts[1].shard.relieve_pool()),
        Step::Close { of, is_abort, is_client } if of < open.len() => {
            let (client, server) = open.swap_remove(of);
            let ends = [(0, client), (1, server)];
            for (host, id) in if is_client { ends } else { [ends[1], ends[0]] } {
                if is_abort {
                    net.hosts[host].shard.tcp_abort(net.now, id);
                }
                net.hosts[host].shard.close(net.now, id);
                net.run(Duration::from_millis(1));
            }
        }
        Step::Run(ms) => net.run(Duration::from_millis(ms)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn what_is_read_or_let_go_of_is_not_counted(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let (mut net, mut open) = (net(), Vec::new());
        let idle = net.hosts[1].shard.holdings();
        let mut listeners = 0;
        for step in &steps {
            listeners += usize::from(matches!(step, Step::Open) && open.len() < 12);
            take(&mut net, &mut open, step);
            let held_bytes = unread_bytes(&net);
            // What comes in one batch, and what each has in any case.
            let most_bytes = UNREAD_BYTES + 12 * (2 * LEAST_BYTES + BLOCK_LEN);
            prop_assert!(held_bytes <= most_bytes, "{held_bytes}");
            let pool = pool(&net);
            prop_assert!(pool.streams_bytes() >= held_bytes);
            prop_assert!(pool.streams_bytes() <= held_bytes + 2 * UNREAD_BYTES / 1_024);
        }
        while !open.is_empty() {
            take(&mut net, &mut open, &Step::Close { of: 0, is_abort: false, is_client: true });
        }
        net.run(Duration::from_secs(200));
        let left = net.hosts[1].shard.holdings();
        prop_assert_eq!(left, Holdings { sockets: listeners, ports: listeners, ..idle });
        prop_assert_eq!(pool(&net).counters().outstanding_bytes, 0);
    }
}
