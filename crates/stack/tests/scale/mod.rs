//! Very many connections, and floods: what the test and the soak have in common.
#![allow(dead_code, reason = "the test and the soak each use a part")]

#[path = "../harness/mod.rs"]
pub(crate) mod harness;

use core::net::SocketAddr;
use device::TransmitMode;
use harness::craft::segment;
use harness::{Net, address, data};
use peak_alloc::PeakAlloc;
use stack::{ListenOptions, SocketId};
use time::Duration;
use wire::{SeqNumber, TcpFlags, TcpHeader, TcpOptions};

#[global_allocator]
pub(crate) static ALLOCATED: PeakAlloc = PeakAlloc;

const MS: Duration = Duration::from_millis(1);

/// Connections opened at a time.
const GROUP: usize = 500;

/// Ports of the server.
const SERVER_PORTS: u16 = 8;

/// What was found after very many connections.
#[derive(Debug)]
pub(crate) struct Churn {
    pub(crate) opened: u64,
    /// Bytes allocated before, at most, and at the end, the measuring net included.
    pub(crate) before_bytes: usize,
    pub(crate) peak_bytes: usize,
    pub(crate) after_bytes: usize,
    pub(crate) sockets_left: usize,
    pub(crate) time_wait_left: usize,
    pub(crate) blocks_left_bytes: u64,
    pub(crate) time_wait_recycled: u64,
}

/// Opens and closes `count` connections, a word each way on each, five hundred at a time and a
/// thousand in a second of virtual time; then lets TIME-WAIT end.
pub(crate) fn churn(count: usize) -> Churn {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let options = ListenOptions { backlog: GROUP, ..ListenOptions::default() };
    let at = |port: usize| SocketAddr::new(address(1, false), 80 + port as u16);
    let listeners: Vec<SocketId> = (0..usize::from(SERVER_PORTS))
        .map(|port| net.hosts[1].shard.tcp_listen_with(at(port), options.clone()).expect("free"))
        .collect();
    // What grows once for good, like the pool's free lists, grows here.
    open_and_close(&mut net, listeners[0], at(0));
    net.run(Duration::from_secs(130));
    (net.wire, net.hosts[0].inbox, net.hosts[1].inbox) = Default::default();
    net.batches = Vec::new();
    let before_bytes = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    for group in 0..count / GROUP {
        let port = group % listeners.len();
        open_and_close(&mut net, listeners[port], at(port));
        net.run(500 * MS);
        net.wire.clear();
        net.batches.clear();
    }
    let peak_bytes = ALLOCATED.peak_usage();
    net.run(Duration::from_secs(130));
    (net.wire, net.hosts[0].inbox, net.hosts[1].inbox) = Default::default();
    net.batches = Vec::new();
    let of_both = |what: &dyn Fn(&harness::Host) -> u64| net.hosts.iter().map(what).sum::<u64>();
    Churn {
        opened: net.hosts[1].shard.counters().shard.connections_accepted - GROUP as u64,
        before_bytes,
        peak_bytes,
        after_bytes: ALLOCATED.current_usage(),
        sockets_left: of_both(&|host| host.shard.socket_count() as u64) as usize - listeners.len(),
        time_wait_left: of_both(&|host| host.shard.time_wait_count() as u64) as usize,
        blocks_left_bytes: of_both(&|host| host.pool.counters().outstanding_bytes),
        time_wait_recycled: of_both(&|host| host.shard.counters().shard.time_wait_recycled),
    }
}

fn open_and_close(net: &mut Net, listener: SocketId, to: SocketAddr) {
    let clients: Vec<SocketId> = (0..GROUP)
        .map(|_| net.hosts[0].shard.tcp_connect(net.now, None, to).expect("a free port"))
        .collect();
    net.run(MS);
    let servers: Vec<SocketId> = (0..GROUP)
        .map(|_| net.hosts[1].shard.tcp_accept(listener).expect("an open connection"))
        .collect();
    for client in &clients {
        net.write(0, *client, b"word");
    }
    net.run(MS);
    let mut word = [0; 8];
    for server in &servers {
        assert_eq!(net.hosts[1].shard.tcp_read(net.now, *server, &mut word), Ok(4));
        net.write(1, *server, b"word");
    }
    net.run(MS);
    for client in &clients {
        assert_eq!(net.hosts[0].shard.tcp_read(net.now, *client, &mut word), Ok(4));
        net.hosts[0].shard.close(net.now, *client);
    }
    net.run(MS);
    for server in &servers {
        net.hosts[1].shard.close(net.now, *server);
    }
    net.run(MS);
    for host in &mut net.hosts {
        while host.shard.poll_event().is_some() {}
    }
}

/// What was found under a flood of SYNs.
#[derive(Debug)]
pub(crate) struct Flood {
    pub(crate) syns: u64,
    /// Bytes that an established connection moved in the same virtual time, without and with it.
    pub(crate) bytes_alone: usize,
    pub(crate) bytes_under_flood: usize,
    pub(crate) half_open_max: usize,
    pub(crate) cookies_sent: u64,
    /// Growth of the memory allocated, at most.
    pub(crate) grown_bytes: usize,
}

/// An established connection moves data over 1 Gbit/s while `count` SYNs from everywhere arrive at a
/// hundred thousand a second.
pub(crate) fn flood(count: u32) -> Flood {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (client, server) = net.connect(false);
    // Both are measured as long, and from the same window.
    let rounds = count / 100;
    let bytes = data(400_000);
    run_stream(&mut net, (client, server), &bytes, 200, |_, _| {});
    let bytes_alone = run_stream(&mut net, (client, server), &bytes, rounds, |_, _| {});
    let before_bytes = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let (mut half_open_max, mut sent) = (0, 0_u32);
    let bytes_under_flood = run_stream(&mut net, (client, server), &bytes, rounds, |net, round| {
        let syns = (0..100).map(|at| spoofed_syn(round * 100 + at));
        net.inject(1, syns);
        sent += 100;
        half_open_max = half_open_max.max(net.hosts[1].shard.half_open_count());
    });
    Flood {
        syns: sent.into(),
        bytes_alone,
        bytes_under_flood,
        half_open_max,
        cookies_sent: net.hosts[1].shard.counters().shard.syn_cookies_sent,
        grown_bytes: ALLOCATED.peak_usage().saturating_sub(before_bytes),
    }
}

/// Keeps a connection busy for `rounds` milliseconds and says how many bytes arrived.
fn run_stream(
    net: &mut Net,
    (client, server): (SocketId, SocketId),
    bytes: &[u8],
    rounds: u32,
    mut meanwhile: impl FnMut(&mut Net, u32),
) -> usize {
    let (mut arrived, mut received) = (0, Vec::new());
    for round in 0..rounds {
        net.write(0, client, &bytes[..125_000]);
        meanwhile(net, round);
        // As many batches as a millisecond of the link holds, of 64 packets each.
        for _ in 0..2 {
            net.step();
        }
        net.run(MS);
        net.read(1, server, &mut received).expect("open");
        arrived += received.len();
        received.clear();
        net.wire.clear();
        net.batches.clear();
    }
    arrived
}

/// A SYN from one of very many addresses, each beyond the link.
pub(crate) fn spoofed_syn(number: u32) -> Vec<u8> {
    let source = (0x0a00_0003 + number % 250 + ((number / 250) << 24 >> 8)).to_be_bytes();
    let header = TcpHeader {
        source_port: 1_024 + (number / 250 % 60_000) as u16,
        destination_port: 80,
        sequence: SeqNumber(number.wrapping_mul(0x9e37_79b9)),
        flags: TcpFlags::SYN,
        window: 65_535,
        options: TcpOptions { mss: Some(1_460), ..TcpOptions::default() },
        ..TcpHeader::default()
    };
    segment(source, &header)
}
