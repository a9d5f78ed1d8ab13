//! Two shards, sockets used in any order, packets lost, repeated, late and damaged.
//!
//! What must hold: calls on sockets that are gone fail and harm nothing; a stream that is read is a
//! prefix of what one socket of the other end has written; and when all is closed and an hour has gone, nothing is left.

use crate::input::Input;
use crate::peer::Link;
use crate::station::{Station, address};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::SocketAddr;
use simulation::stream;
use stack::{SocketId, TcpOption};
use std::collections::{BTreeMap, VecDeque};
use time::{Duration, Instant};

/// Deeds in one input.
const DEEDS_MAX: usize = 300;

/// Packets under way in one direction; more are lost.
const UNDER_WAY_MAX: usize = 200;

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
        let number = usize::from(self.input.byte() & 1);
        let at = SocketAddr::new(address(number as u8 + 1), 80 + u16::from(self.input.byte() & 1));
        let remote = SocketAddr::new(address(2 - number as u8), at.port());
        match self.input.byte() % 16 {
            0 => {
                let socket = self.stations[number].shard.tcp_listen(at, 3);
                self.keep(number, socket.ok());
            }
            1 | 2 => {
                let local = (self.input.byte() < 64).then(|| SocketAddr::new(at.ip(), 4_000));
                let socket = self.stations[number].shard.tcp_connect(self.now, local, remote);
                self.keep(number, socket.ok());
            }
            3 => {
                let (choice, shard) = (self.input.byte(), &mut self.stations[number].shard);
                let socket = match choice % 8 {
                    0 => shard.raw_bind(choice, at.ip()),
                    1 => shard.raw_bind(wire::protocol::ICMP, at.ip()),
                    2 => shard.raw_bind_echo(at.ip(), u16::from(choice)),
                    _ => shard.udp_bind(at),
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

    fn keep(&mut self, number: usize, socket: Option<SocketId>) {
        self.sockets.extend(socket.map(|socket| (number, socket)));
    }

    /// A call on any socket there ever was.
    fn call(&mut self, remote: SocketAddr) {
        let (choice, deed) = (usize::from(self.input.byte()), self.input.byte());
        let len = usize::from(self.input.word() % 5_000) + 1;
        let count = self.sockets.len();
        let Some((number, socket)) = self.sockets.get(choice % count.max(1)).copied() else {
            return;
        };
        let (now, shard) = (self.now, &mut self.stations[number].shard);
        match deed % 16 {
            0..=3 => self.write(number, socket, len, deed == 3),
            4..=6 => self.read(number, socket, len),
            7 => {
                let _ = shard.tcp_shutdown_write(now, socket);
            }
            8 => shard.close(now, socket),
            9 => shard.tcp_abort(now, socket),
            10 | 11 => {
                let accepted = shard.tcp_accept(socket).ok();
                self.keep(number, accepted);
            }
            12 => {
                let _ = shard.tcp_set_option(now, socket, TcpOption::NoDelay(len & 1 == 0));
            }
            13 => {
                let _ = shard.tcp_set_option(now, socket, TcpOption::ReceiveBuffer(len * 9));
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
            *written += len as u64;
        }
    }

    fn read(&mut self, number: usize, socket: SocketId, len: usize) {
        let mut buffer = vec![0; len];
        let shard = &mut self.stations[number].shard;
        let Ok(count) = shard.tcp_read(self.now, socket, &mut buffer) else { return };
        let bytes = &buffer[..count];
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
