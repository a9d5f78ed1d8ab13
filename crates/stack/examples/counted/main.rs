//! Work between two shards over the in-process wire, in one thread and in virtual time: the same at
//! every run, so that instructions can be counted (`cargo xtask instructions`).
//!
//! Usage: `counted single|multidata|lso BYTES` moves so many bytes; `counted transactions|connections
//! COUNT` sends a byte there and one back so often, over one connection or over a new one each time;
//! `counted datagrams COUNT` does so with a datagram of 64 bytes.
//! Prints how much of what is counted was done: data segments, transactions, connections or echoes.

mod host;

use batch::Chunk;
use bytes::Bytes;
use core::net::SocketAddr;
use device::TransmitMode;
use host::{Host, SERVER, bind, connect, pair, run_both};
use stack::SocketId;
use std::process::ExitCode;
use time::{Duration, Instant};

/// What an application writes at a time.
const WRITE_LEN_BYTES: usize = 65_536;

/// What a datagram carries.
const DATAGRAM_LEN_BYTES: usize = 64;

/// Transactions before the first that counts: slow start and quick ACKs are over by then.
const WARM_UP: usize = 100;

fn transfer(mode: TransmitMode, bytes: usize) -> Option<u64> {
    let (mut hosts, listener) = pair(mode)?;
    let mut now = Instant::from_millis(1_000);
    let [client, accepted] = connect(&mut hosts, &mut now, listener)?;
    let source = Bytes::from(vec![0x5a; WRITE_LEN_BYTES]);
    let mut sink = vec![0; 4 * WRITE_LEN_BYTES];
    let (mut written, mut read) = (0, 0);
    while read < bytes {
        written += write(&mut hosts[0], now, client, &source, bytes - written)?;
        run_both(&mut hosts, &mut now);
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

/// Sends a byte there and one back, as applications do that wait for each.
#[inline(never)]
fn transact(hosts: &mut [Host; 2], now: &mut Instant, sockets: [SocketId; 2]) -> Option<()> {
    for (from, to) in [(0, 1), (1, 0)] {
        let mut block = hosts[from].pool.allocate(1).ok()?;
        block.bytes_mut()[0] = 0x5a;
        let chunk = Chunk::new(block.freeze(), 0..1);
        hosts[from].shard.tcp_append(*now, sockets[from], chunk).ok()?;
        hosts[from].run(*now);
        hosts[to].run(*now);
        let mut sink = [0; 16];
        let count = hosts[to].shard.tcp_read(*now, sockets[to], &mut sink).ok()?;
        (count == 1).then_some(())?;
    }
    *now += Duration::from_micros(100);
    Some(())
}

/// The sockets of both ends, and where the second is.
type Echo = ([SocketId; 2], SocketAddr);

/// Sends a datagram and has it echoed, as a server does that takes one at a time.
#[inline(never)]
fn echo(hosts: &mut [Host; 2], now: &mut Instant, (sockets, server): Echo) -> Option<()> {
    let asked = [0x5a; DATAGRAM_LEN_BYTES];
    let received = send_datagram(hosts, *now, 0, (sockets, server), &asked)?;
    let answer = received.payload.bytes();
    let answered = send_datagram(hosts, *now, 1, (sockets, received.source), answer)?;
    *now += Duration::from_micros(100);
    (answered.payload.bytes() == asked).then_some(())
}

/// Sends a datagram from host `from` to the other, which receives it.
fn send_datagram(
    hosts: &mut [Host; 2],
    now: Instant,
    from: usize,
    (sockets, destination): Echo,
    payload: &[u8],
) -> Option<udp::Datagram> {
    let mut block = hosts[from].pool.allocate(payload.len()).ok()?;
    block.bytes_mut()[..payload.len()].copy_from_slice(payload);
    let chunk = Chunk::new(block.freeze(), 0..payload.len());
    hosts[from].shard.udp_send(sockets[from], Some(destination), chunk).ok()?;
    hosts[from].run(now);
    hosts[1 - from].run(now);
    hosts[1 - from].shard.udp_receive_datagram(sockets[1 - from]).ok()
}

#[inline(never)]
fn echoes(hosts: &mut [Host; 2], now: &mut Instant, ends: Echo, count: usize) -> Option<()> {
    (0..count).try_for_each(|_| echo(hosts, now, ends))
}

/// Opens a connection, sends a byte each way, and closes it from both ends.
#[inline(never)]
fn connect_and_close(hosts: &mut [Host; 2], now: &mut Instant, listener: SocketId) -> Option<()> {
    let sockets = connect(hosts, now, listener)?;
    transact(hosts, now, sockets)?;
    for end in [0, 1] {
        hosts[end].shard.close(*now, sockets[end]);
        run_both(hosts, now);
    }
    *now += Duration::from_millis(1);
    Some(())
}

#[inline(never)]
fn transactions(
    hosts: &mut [Host; 2],
    now: &mut Instant,
    sockets: [SocketId; 2],
    count: usize,
) -> Option<()> {
    (0..count).try_for_each(|_| transact(hosts, now, sockets))
}

fn work(name: &str, count: usize) -> Option<u64> {
    let mode = TransmitMode::ALL.into_iter().find(|mode| mode.name() == name);
    if let Some(mode) = mode {
        return transfer(mode, count);
    }
    let (mut hosts, listener) = pair(TransmitMode::Multidata)?;
    let mut now = Instant::from_millis(1_000);
    match name {
        "connections" => {
            (0..count).try_for_each(|_| connect_and_close(&mut hosts, &mut now, listener))?;
        }
        "datagrams" => {
            let ends = (bind(&mut hosts)?, SERVER.parse().ok()?);
            (0..WARM_UP).try_for_each(|_| echo(&mut hosts, &mut now, ends))?;
            echoes(&mut hosts, &mut now, ends, count)?;
        }
        _ => {
            let sockets = connect(&mut hosts, &mut now, listener)?;
            (0..WARM_UP).try_for_each(|_| transact(&mut hosts, &mut now, sockets))?;
            transactions(&mut hosts, &mut now, sockets, count)?;
        }
    }
    Some(count as u64)
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let count = arguments.next().and_then(|count| count.parse().ok());
    let is_known = ["single", "multidata", "lso", "transactions", "connections", "datagrams"];
    let Some(count) = count.filter(|_| is_known.contains(&&*name)) else {
        eprintln!(
            "usage: counted single|multidata|lso BYTES, or transactions|connections|datagrams COUNT"
        );
        return ExitCode::from(2);
    };
    match work(&name, count) {
        Some(done) => {
            println!("{done}");
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("the work failed");
            ExitCode::FAILURE
        }
    }
}
