//! Bulk transfer between two shards over the in-process wire, in one thread and in virtual time: the
//! same work at every run, so that instructions can be counted (`cargo xtask instructions`).
//!
//! Usage: `bulk single|multidata|lso BYTES`; prints the number of data segments that crossed.

use batch::{BlockPool, Chunk, Multidata, PoolConfig, ReceiveBatch};
use bytes::Bytes;
use core::net::SocketAddr;
use device::{Medium, Queue, TransmitMode, WireConfig, WireEnd, WireQueue};
use stack::{InterfaceConfig, InterfaceId, Shard, ShardConfig, SocketId};
use std::process::ExitCode;
use time::{Duration, Instant};

/// What an application writes at a time.
const WRITE_LEN_BYTES: usize = 65_536;

struct Host {
    shard: Shard,
    interface: InterfaceId,
    queue: WireQueue,
    pool: BlockPool,
    transmit: Multidata,
    receive: ReceiveBatch,
    frames_max: usize,
}

impl Host {
    fn new(address: &str, mut queue: WireQueue, mode: TransmitMode, seed: u8) -> Option<Self> {
        queue.set_mode(mode).ok()?;
        let pool = BlockPool::new(PoolConfig::default());
        let mut shard = Shard::new(ShardConfig {
            tcp: tcp::Config::default(),
            pool: pool.clone(),
            secret: [seed; 32],
            sockets_max: 16,
        });
        let interface = shard.add_interface(InterfaceConfig {
            capabilities: queue.capabilities(),
            mode: Some(mode),
            addresses: vec![address.parse().ok()?],
            gateways: Vec::new(),
        });
        Some(Self {
            shard,
            interface: interface.ok()?,
            queue,
            pool,
            transmit: Multidata::default(),
            receive: ReceiveBatch::new(),
            // One packet at a time goes for the way in as well.
            frames_max: if mode == TransmitMode::Single { 1 } else { 256 },
        })
    }

    /// Takes in what the wire has and sends what there is to send; says whether anything moved.
    #[inline(never)]
    fn run(&mut self, now: Instant) -> bool {
        let received = self.queue.receive(&self.pool, &mut self.receive, self.frames_max);
        self.shard.on_receive(now, self.interface, &mut self.receive);
        if self.shard.poll_timeout().is_some_and(|due| due <= now) {
            self.shard.on_timeout(now);
        }
        let mut sent = false;
        loop {
            let room = self.queue.room();
            if self.shard.poll_transmit(now, self.interface, room, &mut self.transmit) == 0 {
                break;
            }
            let transmitted = self.queue.transmit(&self.transmit);
            self.shard.on_transmitted(now, self.interface, &transmitted);
            sent |= transmitted.taken > 0;
            if transmitted.stopped.is_some() {
                break;
            }
        }
        while self.shard.poll_event().is_some() {}
        received.frames > 0 || sent
    }
}

/// Both hosts run until nothing moves, at one moment of virtual time.
fn run_both(hosts: &mut [Host; 2], now: &mut Instant) {
    while hosts[0].run(*now) | hosts[1].run(*now) {}
    *now += Duration::from_micros(100);
}

fn transfer(hosts: &mut [Host; 2], bytes: usize) -> Option<u64> {
    let mut now = Instant::from_millis(1_000);
    let server: SocketAddr = "10.0.0.2:80".parse().ok()?;
    let listener = hosts[1].shard.tcp_listen(server, 1).ok()?;
    let client = hosts[0].shard.tcp_connect(now, None, server).ok()?;
    run_both(hosts, &mut now);
    let accepted = hosts[1].shard.tcp_accept(listener).ok()?;
    let source = Bytes::from(vec![0x5a; WRITE_LEN_BYTES]);
    let mut sink = vec![0; 4 * WRITE_LEN_BYTES];
    let (mut written, mut read) = (0, 0);
    while read < bytes {
        written += write(&mut hosts[0], now, client, &source, bytes - written)?;
        run_both(hosts, &mut now);
        while let Ok(count) = hosts[1].shard.tcp_read(now, accepted, &mut sink) {
            read += count;
        }
    }
    Some(hosts[0].shard.counters().tcp.data_segments_sent)
}

/// Writes like an application: copied in, a block at a time, as long as there is room.
fn write(
    host: &mut Host,
    now: Instant,
    id: SocketId,
    source: &[u8],
    limit: usize,
) -> Option<usize> {
    let mut written = 0;
    while written < limit && host.shard.tcp_send_room(id).ok()? >= source.len() {
        let mut block = host.pool.allocate(source.len()).ok()?;
        block.bytes_mut()[..source.len()].copy_from_slice(source);
        let chunk = Chunk::new(block.freeze(), 0..source.len());
        host.shard.tcp_append(now, id, chunk).ok()?;
        written += source.len();
    }
    Some(written)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let mode = arguments
        .get(1)
        .and_then(|name| TransmitMode::ALL.into_iter().find(|mode| mode.name() == name));
    let bytes = arguments.get(2).and_then(|bytes| bytes.parse().ok());
    let (Some(mode), Some(bytes)) = (mode, bytes) else {
        eprintln!("usage: bulk single|multidata|lso BYTES");
        return ExitCode::from(2);
    };
    let end = match mode {
        TransmitMode::Lso => WireEnd::offloading(Medium::Ip),
        _ => WireEnd::plain(Medium::Ip),
    };
    let (left, right) = device::wire(WireConfig::new(end, end));
    let hosts =
        Host::new("10.0.0.1/24", left, mode, 1).zip(Host::new("10.0.0.2/24", right, mode, 2));
    let segments = hosts.and_then(|(left, right)| transfer(&mut [left, right], bytes));
    match segments {
        Some(segments) => {
            println!("{segments}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("the transfer failed");
            ExitCode::FAILURE
        }
    }
}
