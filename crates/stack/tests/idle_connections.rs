//! What a connection costs while nothing happens on it: a hundred thousand of them, both ends in
//! this process, every allocation counted.

mod harness;

use batch::{Block, BlockPool, Chunk, Multidata, PoolConfig};
use bytes::Bytes;
use core::net::SocketAddr;
use device::{Capabilities, Medium, Room, TransmitMode, Transmitted};
use harness::{address, bytes_of, receive_batch};
use peak_alloc::PeakAlloc;
use stack::{InterfaceConfig, InterfaceId, Shard, ShardConfig, SocketId};
use time::{Duration, Instant};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

const CONNECTIONS: usize = 100_000;

/// What one idle connection may cost, in bytes: 1.5 KiB.
const IDLE_BYTES_MAX: usize = 1_536;

/// Connections opened between two looks at the wire.
const OPENED_AT_ONCE: usize = 1_000;

/// Ports of the server; a client has 16,384 of its own to connect to each from.
const SERVER_PORTS: u16 = 8;

struct End {
    shard: Shard,
    interface: InterfaceId,
    inbox: Vec<Vec<u8>>,
    batch: Multidata,
}

fn end(index: usize) -> End {
    let pool = BlockPool::new(PoolConfig::default());
    let mut shard = Shard::new(ShardConfig {
        tcp: tcp::Config::default(),
        pool,
        secret: [index as u8 + 7; 32],
        sockets_max: 2 * CONNECTIONS,
    });
    let config = InterfaceConfig {
        capabilities: Capabilities::plain(Medium::Ip, 1_500),
        mode: Some(TransmitMode::Multidata),
        addresses: vec![ip::Cidr::new(address(index, false), 24).expect("a network")],
        gateways: Vec::new(),
    };
    let interface = shard.add_interface(config).expect("a sound configuration");
    End { shard, interface, inbox: Vec::new(), batch: Multidata::default() }
}

struct Pair {
    now: Instant,
    ends: [End; 2],
}

impl Pair {
    /// Lets everything happen that happens now or within `span`.
    fn run(&mut self, span: Duration) {
        let until = self.now + span;
        loop {
            while self.step() {}
            let due = self.ends.iter().filter_map(|end| end.shard.poll_timeout()).min();
            match due.filter(|due| *due <= until) {
                Some(due) => self.now = self.now.max(due),
                None => break,
            }
            for end in &mut self.ends {
                end.shard.on_timeout(self.now);
            }
        }
        self.now = until;
    }

    fn step(&mut self) -> bool {
        let mut moved = false;
        for from in 0..2 {
            let End { shard, interface, batch, .. } = &mut self.ends[from];
            let taken = shard.poll_transmit(self.now, *interface, Room::UNBOUNDED, batch);
            let transmitted = Transmitted { taken, stopped: None };
            shard.on_transmitted(self.now, *interface, &transmitted);
            let frames: Vec<Vec<u8>> = batch.packets().map(|packet| bytes_of(&packet)).collect();
            batch.clear();
            moved |= !frames.is_empty();
            self.ends[1 - from].inbox.extend(frames);
        }
        for end in &mut self.ends {
            let mut batch = receive_batch(end.inbox.drain(..));
            end.shard.on_receive(self.now, end.interface, &mut batch);
            while end.shard.poll_event().is_some() {}
        }
        moved
    }

    /// Moves `len` bytes from one end to the other and reads them there.
    fn send(&mut self, from: (usize, &[SocketId]), to: (usize, &[SocketId]), len: usize) {
        let bytes = Bytes::from(vec![7; len]);
        let mut read = vec![0; len];
        for (senders, receivers) in from.1.chunks(100).zip(to.1.chunks(100)) {
            for id in senders {
                let chunk = Chunk::whole(Block::from(bytes.clone()));
                self.ends[from.0].shard.tcp_append(self.now, *id, chunk).expect("room");
            }
            self.run(Duration::from_millis(1));
            for id in receivers {
                let shard = &mut self.ends[to.0].shard;
                assert_eq!(shard.tcp_read(self.now, *id, &mut read), Ok(len));
            }
            self.run(Duration::from_millis(1));
        }
        // The last delayed ACKs.
        self.run(Duration::from_millis(100));
    }
}

/// Opens all connections; the ids of their clients' and their servers' ends, in the same order.
fn open(pair: &mut Pair) -> [Vec<SocketId>; 2] {
    let local = |port: usize| SocketAddr::new(address(1, false), 80 + port as u16);
    let listeners: Vec<SocketId> = (0..usize::from(SERVER_PORTS))
        .map(|port| pair.ends[1].shard.tcp_listen(local(port), CONNECTIONS).expect("a free port"))
        .collect();
    let mut ids = [Vec::with_capacity(CONNECTIONS), Vec::with_capacity(CONNECTIONS)];
    for at in (0..CONNECTIONS).step_by(OPENED_AT_ONCE) {
        let port = at / OPENED_AT_ONCE % listeners.len();
        for _ in 0..OPENED_AT_ONCE {
            let id = pair.ends[0].shard.tcp_connect(pair.now, None, local(port));
            ids[0].push(id.expect("a free port"));
        }
        pair.run(Duration::from_millis(1));
        for _ in 0..OPENED_AT_ONCE {
            let id = pair.ends[1].shard.tcp_accept(listeners[port]);
            ids[1].push(id.expect("an open connection"));
        }
    }
    ids
}

#[test]
fn a_hundred_thousand_idle_connections_take_a_kilobyte_and_a_half_each() {
    let mut pair = Pair { now: Instant::from_millis(1_000), ends: [end(0), end(1)] };
    let before = ALLOCATED.current_usage();
    let ids = open(&mut pair);
    let buffers =
        |pair: &Pair| pair.ends.iter().flat_map(|end| &end.inbox).map(Vec::capacity).sum::<usize>();
    assert_eq!(buffers(&pair), 0, "nothing is on its way");
    // What the test itself keeps of each connection.
    let own = 2 * CONNECTIONS * size_of::<SocketId>();
    let each = |pair_bytes: usize| (pair_bytes - own) / (2 * CONNECTIONS);
    let fresh = each(ALLOCATED.current_usage() - before);
    // Both directions carried something, and a burst in one of them.
    pair.send((0, &ids[0]), (1, &ids[1]), 100);
    pair.send((1, &ids[1]), (0, &ids[0]), 12_000);
    let used = each(ALLOCATED.current_usage() - before);
    let all = ALLOCATED.current_usage();
    let [client, server] = pair.ends;
    drop(server);
    let of_server = (all - ALLOCATED.current_usage()) / CONNECTIONS;
    drop(client);
    println!("bytes an idle connection: {fresh} fresh, {used} after use, {of_server} of a server");
    assert!(fresh <= IDLE_BYTES_MAX, "{fresh} bytes fresh");
    assert!(used <= IDLE_BYTES_MAX, "{used} bytes after use");
    assert!(of_server <= IDLE_BYTES_MAX, "{of_server} bytes at the server's end");
}
