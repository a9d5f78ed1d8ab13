//! Two shards, sockets used in any order and with any settings, packets lost, repeated, late and damaged.
//!
//! What must hold: calls on sockets that are gone fail and harm nothing; a stream that is read is a
//! prefix of what one socket of the other end has written, and what is looked at first is what is read then; what
//! was set is what is asked for again; and when all is closed and an hour has gone, nothing is left.

use crate::input::Input;
use crate::peer::Link;
use crate::settings;
use crate::station::{Station, address};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::SocketAddr;
use simulation::stream;
use stack::{BindOptions, FastOpenOptions, ListenOptions, SocketError, SocketId, SynCookieMode};
use std::collections::{BTreeMap, VecDeque};
use time::{Duration, Instant};

/// Deeds in one input.
const DEEDS_MAX: usize = 300;

/// Packets under way in one direction; more are lost.
const UNDER_WAY_MAX: usize = 200;

/// Writes of a multiple of so many bytes end a record.
const RECORD_DIVISOR: usize = 8;

/// What a socket has read.
#[derive(Default)]
struct Read {
    /// As much of the beginning as holds the name.
    beginning: Vec<u8>,
    count: u64,
}

struct World<'a> {
    input: Input<'a>,
    now: Instant,
    stations: [Station; 2],
    /// Packets on their way to each station.
    under_way: [VecDeque<Vec<u8>>; 2],
    /// All sockets there ever were, of both stations.
    sockets: Vec<(usize, SocketId)>,
    /// The name and the length of what each socket has written.
    written: BTreeMap<(usize, SocketId), (u64, u64)>,
    read: BTreeMap<(usize, SocketId), Read>,
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let tcp = tcp::Config { send_buffer_bytes: 20_000, ..tcp::Config::default() };
    let stations =
        [Station::new(1, Link::default(), tcp.clone()), Station::new(2, Link::default(), tcp)];
    let mut world = World {
        input: Input::new(bytes),
        now: Instant::from_millis(1_000),
        stations,
        under_way: [VecDeque::new(), VecDeque::new()],
        sockets: Vec::new(),
        written: BTreeMap::new(),
        read: BTreeMap::new(),
    };
    for _ in 0..DEEDS_MAX {
        if world.input.is_empty() {
            break;
        }
        world.deed();
        world.settle();
    }
    world.finish();
}

impl World<'_> {
    fn deed(&mut self) {
        let first = self.input.byte();
        let (number, manner) = (usize::from(first & 1), first >> 1);
        let at = SocketAddr::new(address(number as u8 + 1), 80 + u16::from(self.input.byte() & 1));
        let remote = SocketAddr::new(address(2 - number as u8), at.port());
        match self.input.byte() % 16 {
            0 => {
                let socket = self.stations[number].shard.tcp_listen_with(at, listening(manner));
                self.keep(number, socket.ok());
            }
            1 | 2 => {
                let local = (self.input.byte() < 64).then(|| SocketAddr::new(at.ip(), 4_000));
                match manner & 1 {
                    0 => {
                        let shard = &mut self.stations[number].shard;
                        let socket = shard.tcp_connect(self.now, local, remote);
                        self.keep(number, socket.ok());
                    }
                    _ => self.connect_fast(number, local, remote, manner),
                }
            }
            3 => {
                let (choice, shard) = (self.input.byte(), &mut self.stations[number].shard);
                let socket = match choice % 8 {
                    0 => shard.raw_bind(choice, at.ip()),
                    1 => shard.raw_bind(wire::protocol::ICMP, at.ip()),
                    2 => shard.raw_bind_echo(at.ip(), u16::from(choice)),
                    _ => {
                        let (shared, one_family) = (manner & 1 != 0, manner & 2 != 0);
                        let yielding = manner & 4 != 0;
                        shard.udp_bind_with(at, BindOptions { shared, yielding, one_family })
                    }
                };
                self.keep(number, socket.ok());
            }
            4 | 5 => self.deliver(number),
            6 => self.now += Duration::from_micros(u64::from(self.input.word()) * 20),
            7 => self.now += Duration::from_millis(u64::from(self.input.word())),
            8..=10 => {
                self.deliver(0);
                self.deliver(1);
                self.now += Duration::from_millis(1);
            }
            _ => self.call(remote),
        }
    }

    /// Connects with data that may go with the SYN.
    fn connect_fast(
        &mut self,
        number: usize,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        manner: u8,
    ) {
        let name = self.written.len() as u64 + 1;
        let mut bytes = vec![0; usize::from(manner) * 20 + 1];
        stream::fill(name, 0, &mut bytes);
        let len = bytes.len() as u64;
        let (chunk, without_cookie) =
            (Chunk::whole(Block::from(Bytes::from(bytes))), manner & 2 != 0);
        let shard = &mut self.stations[number].shard;
        let socket = shard.tcp_connect_fast(self.now, local, remote, None, chunk, without_cookie);
        if let Ok(socket) = socket {
            self.written.insert((number, socket), (name, len));
        }
        self.keep(number, socket.ok());
    }

    fn keep(&mut self, number: usize, socket: Option<SocketId>) {
        self.sockets.extend(socket.map(|socket| (number, socket)));
    }

    /// A call on any socket there ever was.
    fn call(&mut self, remote: SocketAddr) {
        let (choice, deed) = (usize::from(self.input.byte()), self.input.byte());
        let value = self.input.word();
        let len = usize::from(value % 5_000) + 1;
        let count = self.sockets.len();
        let Some((number, socket)) = self.sockets.get(choice % count.max(1)).copied() else {
            return;
        };
        let (now, shard) = (self.now, &mut self.stations[number].shard);
        match deed % 16 {
            0..=3 => self.write(number, socket, len, deed == 3),
            4..=6 => self.read(number, socket, len, deed / 16),
            7 => {
                let _ = shard.tcp_shutdown_write(now, socket);
            }
            8 => shard.close(now, socket),
            9 => shard.tcp_abort(now, socket),
            10 | 11 => {
                let accepted = shard.tcp_accept(socket).ok();
                self.keep(number, accepted);
            }
            kind @ (12 | 13) => {
                let setting = deed / 16 + 16 * (kind - 12);
                settings::set(&mut self.stations[number], now, socket, remote, (setting, value));
            }
            14 => {
                let chunk = Chunk::whole(Block::from(Bytes::from(vec![9; len])));
                let _ = shard.udp_send(socket, Some(remote), chunk.clone());
                let _ = shard.raw_send(socket, remote.ip(), chunk);
                let request = Chunk::whole(Block::from(Bytes::from_static(&[8; 9])));
                let _ = shard.raw_send(socket, remote.ip(), request);
            }
            _ => {
                let _ = shard.udp_receive(socket);
                let _ = shard.raw_receive(socket);
                let _ = shard.tcp_info(now, socket);
                let _ = shard.tcp_acceptable(socket);
                let _ = shard.udp_peek_datagram(socket);
                let _ = shard.local_address(socket);
            }
        }
    }

    fn write(&mut self, number: usize, socket: SocketId, len: usize, is_urgent: bool) {
        let shard = &mut self.stations[number].shard;
        let len = shard.tcp_send_room(socket).unwrap_or(0).min(len);
        if len == 0 {
            return;
        }
        let name = self.written.len() as u64 + 1;
        let (name, written) = self.written.entry((number, socket)).or_insert((name, 0));
        let mut bytes = vec![0; len];
        stream::fill(*name, *written, &mut bytes);
        let chunk = Chunk::whole(Block::from(Bytes::from(bytes)));
        let appended = match is_urgent {
            true => shard.tcp_append_urgent(self.now, socket, chunk),
            false => shard.tcp_append(self.now, socket, chunk),
        };
        if appended.is_ok() {
            if len.is_multiple_of(RECORD_DIVISOR) {
                let _ = shard.tcp_end_record(socket);
            }
            *written += len as u64;
        }
    }

    fn read(&mut self, number: usize, socket: SocketId, len: usize, manner: u8) {
        let shard = &mut self.stations[number].shard;
        let Ok(bytes) = take(shard, self.now, socket, len, manner) else { return };
        let (bytes, count) = (&bytes[..], bytes.len());
        let read = self.read.entry((number, socket)).or_default();
        let before = read.count;
        read.count += count as u64;
        let missing = stream::NAME_LEN as usize - read.beginning.len();
        read.beginning.extend(&bytes[..missing.min(count)]);
        // Names are small: the first byte tells most of them apart, and eight all.
        let is_of = |name: u64, written: u64| {
            name.to_le_bytes().starts_with(&read.beginning)
                && stream::first_difference(name, before, bytes).is_none()
                && read.count <= written
        };
        let of_the_other = |((writer, _), _): &(&(usize, SocketId), _)| *writer != number;
        let found = self.written.iter().filter(of_the_other);
        let found = found.filter(|(_, (name, written))| is_of(*name, *written)).count();
        assert!(count == 0 || found > 0, "what is read is a prefix of what one socket wrote");
    }

    /// Some packets reach a station, as the input says.
    fn deliver(&mut self, number: usize) {
        let (fate, count) = (self.input.byte(), self.input.byte());
        let under_way = &mut self.under_way[number];
        let count = usize::from(count).min(under_way.len());
        let mut packets: Vec<_> = under_way.drain(..count).collect();
        match fate % 8 {
            0 => packets.clear(),
            1 => packets.reverse(),
            2 => {
                let again = packets.clone();
                packets.extend(again);
            }
            3 => {
                let bit = usize::from(self.input.word());
                for packet in &mut packets {
                    let at = bit / 8 % packet.len();
                    packet[at] ^= 1 << (bit % 8);
                }
            }
            4 => drop(packets.pop()),
            _ => {}
        }
        self.stations[number].receive(self.now, packets);
    }

    fn settle(&mut self) {
        for number in 0..2 {
            for packet in self.stations[number].send(self.now) {
                let under_way = &mut self.under_way[1 - number];
                if under_way.len() < UNDER_WAY_MAX {
                    under_way.push_back(packet);
                }
            }
            while self.stations[number].shard.poll_event().is_some() {}
        }
    }

    /// Everything is closed and delivered; after an hour nothing may be left.
    fn finish(mut self) {
        for (number, station) in self.stations.iter_mut().enumerate() {
            let its = self.sockets.iter().filter(|(owner, _)| *owner == number);
            settings::relax(station, self.now, its.map(|(_, socket)| *socket));
        }
        for (number, socket) in core::mem::take(&mut self.sockets) {
            self.stations[number].shard.close(self.now, socket);
        }
        for round in 0..600 {
            self.settle();
            for number in 0..2 {
                let packets: Vec<_> = self.under_way[number].drain(..).collect();
                self.stations[number].receive(self.now, packets);
            }
            self.now += Duration::from_millis(if round < 200 { 50 } else { 10_000 });
        }
        self.settle();
        for station in &self.stations {
            assert_eq!(station.shard.holdings(), stack::Holdings::default());
            assert_eq!(station.pool.counters().outstanding_bytes, 0);
        }
    }
}

/// How a socket listens.
fn listening(manner: u8) -> ListenOptions {
    let has = |bit: u8| manner & bit != 0;
    ListenOptions {
        backlog: 3,
        half_open_max: if has(1) { 2 } else { 128 },
        syn_cookies: if has(2) { SynCookieMode::Always } else { SynCookieMode::WhenFull },
        fast_open: FastOpenOptions {
            pending_max: if has(4) { 4 } else { 0 },
            without_cookie: has(8),
            ..FastOpenOptions::default()
        },
        defer_accept: if has(16) { Duration::from_secs(3) } else { Duration::ZERO },
        free_bind: has(64),
        bind: BindOptions { shared: has(32), yielding: has(16), one_family: has(64) },
        ..ListenOptions::default()
    }
}

/// Reads by one of the ways there are.
fn take(
    shard: &mut stack::Shard,
    now: Instant,
    socket: SocketId,
    len: usize,
    manner: u8,
) -> Result<Vec<u8>, SocketError> {
    if manner % 3 == 2 {
        let mut bytes = Vec::new();
        let limits = (len, usize::from(manner));
        let count = shard.tcp_read_chunks(now, socket, limits, |it| bytes.extend(it.bytes()))?;
        assert_eq!(bytes.len(), count, "what is handed out is counted");
        return Ok(bytes);
    }
    let mut ahead = vec![0; if manner % 3 == 1 { len } else { 0 }];
    let count = shard.tcp_peek(socket, &mut ahead).unwrap_or(0);
    ahead.truncate(count);
    let mut bytes = vec![0; len];
    let count = shard.tcp_read(now, socket, &mut bytes)?;
    bytes.truncate(count);
    assert!(bytes.starts_with(&ahead), "what was looked at is read");
    Ok(bytes)
}
