//! A shard with live connections, and a peer who sends what it likes.
//!
//! The input is a list of deeds of the peer: segments near what the connection expects (flags,
//! sequence number, acknowledgment, window, options and length as the input says, the checksum
//! right), raw packets, fragments, ICMP errors about the connection; and of the application and the
//! clock. The payload of every segment is a function of its sequence number, so all that overlaps
//! agrees and whatever the application reads must be that function, from the first byte on.

use crate::input::Input;
use crate::station::{Station, address};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::SocketAddr;
use simulation::packet::{self, Body, Transport, flag};
use simulation::random::scatter;
use stack::{ListenOptions, SocketError, SocketId, SynCookieMode};
use std::collections::BTreeMap;
use time::{Duration, Instant};

/// Deeds in one input.
const DEEDS_MAX: usize = 200;

/// Where the shard listens.
const PORT: u16 = 80;

/// Our initial sequence number: the stream wraps early.
const ISS: u32 = u32::MAX - 300;

/// The byte of the peer's stream at this sequence number.
fn content(port: u16, sequence: u32) -> u8 {
    scatter(u64::from(sequence.wrapping_sub(ISS)) ^ (u64::from(port) << 40)) as u8
}

/// What the peer knows of one of its connections.
#[derive(Clone, Copy, Default)]
struct Known {
    /// What the shard has acknowledged last, and what it has sent last.
    acknowledged: u32,
    sent: u32,
    /// The shard's clock, to be echoed.
    timestamp: Option<u32>,
    our_clock: u32,
}

struct World<'a> {
    input: Input<'a>,
    now: Instant,
    station: Station,
    listener: SocketId,
    known: BTreeMap<u16, Known>,
    /// Where streams may begin, by port: behind every SYN that was answered.
    starts: BTreeMap<u16, Vec<u32>>,
    /// Accepted sockets with the peer's port, and the numbers that the next byte may have: a port
    /// that asked for connections with several SYNs has as many, until what is read tells.
    sockets: Vec<(SocketId, u16, Vec<u32>)>,
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let settings = input.byte();
    let tcp = tcp::Config {
        timestamps: settings & 1 == 0,
        sack: settings & 2 == 0,
        window_scaling: settings & 4 == 0,
        receive_buffer_bytes: if settings & 8 == 0 { 1 << 20 } else { 3_000 },
        nodelay: settings & 16 == 0,
        ..tcp::Config::default()
    };
    let mut station = Station::new(1, tcp);
    let options = ListenOptions {
        half_open_max: 4,
        syn_cookies: if settings & 32 == 0 {
            SynCookieMode::WhenFull
        } else {
            SynCookieMode::Always
        },
        ..ListenOptions::default()
    };
    let local = SocketAddr::new(address(1), PORT);
    let listener = station.shard.tcp_listen_with(local, options).expect("a free port");
    let now = Instant::from_millis(1_000);
    let (known, starts, sockets) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let mut world = World { input, now, station, listener, known, starts, sockets };
    for port in [1_000, 1_001] {
        world.open(port);
    }
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
    /// A handshake as it should be.
    fn open(&mut self, port: u16) {
        self.segment(port, flag::SYN, ISS, 0, 60_000, &[2, 4, 5, 180, 4, 2, 1, 1], 0);
        self.settle();
        let ack = self.known.get(&port).map_or(0, |known| known.sent);
        self.segment(port, flag::ACK, ISS.wrapping_add(1), ack, 60_000, &[], 0);
        self.settle();
    }

    fn deed(&mut self) {
        let port = 1_000 + u16::from(self.input.byte() & 3);
        match self.input.byte() % 12 {
            0..=4 => self.near_segment(port),
            5 => {
                let len = usize::from(self.input.word() % 1_600);
                let packet = self.input.part(len).to_vec();
                self.station.receive(self.now, [packet]);
            }
            6 => self.open(port),
            7 => self.now += Duration::from_millis(u64::from(self.input.word())),
            8 => self.read(),
            9 => self.write(),
            10 => self.report(port),
            _ => self.fragments(port),
        }
    }

    /// A segment near what the connection expects.
    fn near_segment(&mut self, port: u16) {
        let known = self.known.get(&port).copied().unwrap_or_default();
        let flags = self.input.byte();
        let sequence = known.acknowledged.wrapping_add_signed(self.input.offset().into());
        let acknowledgment = known.sent.wrapping_add_signed(i32::from(self.input.offset()) / 8);
        let window = self.input.word();
        let len = usize::from(self.input.word() % 1_400);
        let mut options = match (known.timestamp, flags & 0x20) {
            (Some(echo), 0) => {
                let clock = known.our_clock.wrapping_add_signed(self.input.offset().into());
                let mut options = vec![1, 1, 8, 10];
                options.extend(clock.to_be_bytes());
                options.extend(echo.to_be_bytes());
                options
            }
            _ => Vec::new(),
        };
        options.extend(self.input.short_part().iter().take(40 - options.len()));
        options.resize(options.len().next_multiple_of(4).min(40), 0);
        self.segment(port, flags & 0xdf, sequence, acknowledgment, window, &options, len);
    }

    #[expect(clippy::too_many_arguments, reason = "a header has that many fields")]
    fn segment(
        &mut self,
        port: u16,
        flags: u8,
        sequence: u32,
        acknowledgment: u32,
        window: u16,
        options: &[u8],
        len: usize,
    ) {
        let mut segment = Vec::with_capacity(60 + len);
        segment.extend(port.to_be_bytes());
        segment.extend(PORT.to_be_bytes());
        segment.extend(sequence.to_be_bytes());
        segment.extend(acknowledgment.to_be_bytes());
        segment.push(((20 + options.len()) as u8 / 4) << 4);
        segment.push(flags);
        segment.extend(window.to_be_bytes());
        segment.extend([0, 0, 0, 0]);
        segment.extend(options);
        let first = sequence.wrapping_add(u32::from(flags & flag::SYN != 0));
        segment.extend((0..len as u32).map(|at| content(port, first.wrapping_add(at))));
        let sum = checksum(6, &segment);
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        self.station.receive(self.now, [ip_packet(6, 0x4000, &segment)]);
    }

    /// An ICMP error that quotes a segment of the connection.
    fn report(&mut self, port: u16) {
        let known = self.known.get(&port).copied().unwrap_or_default();
        let mut message = vec![3, self.input.byte() % 16, 0, 0];
        message.extend(self.input.word().to_be_bytes());
        message.extend(self.input.word().to_be_bytes());
        let mut quoted =
            vec![0x45, 0, 5, 220, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 9];
        quoted.extend(PORT.to_be_bytes());
        quoted.extend(port.to_be_bytes());
        let sequence = known.sent.wrapping_add_signed(i32::from(self.input.offset()) / 16);
        quoted.extend(sequence.to_be_bytes());
        message.extend(quoted);
        let sum = !sum_of(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        self.station.receive(self.now, [ip_packet(1, 0, &message)]);
    }

    /// Fragments, of a datagram or of a segment.
    fn fragments(&mut self, port: u16) {
        let count = self.input.byte() % 4 + 1;
        let packets: Vec<_> = (0..count)
            .map(|_| {
                let field = self.input.word() & 0x20ff;
                let mut body = port.to_be_bytes().to_vec();
                body.extend(self.input.short_part());
                ip_packet(if field & 1 == 0 { 17 } else { 6 }, field, &body)
            })
            .collect();
        self.station.receive(self.now, packets);
    }

    /// Takes what the shard sends and what it tells.
    fn settle(&mut self) {
        for bytes in self.station.send(self.now) {
            let Ok(packet) = packet::read(&bytes, false) else { continue };
            let Body::Ip(ip) = packet.body else { continue };
            let Transport::Tcp(segment) = ip.transport else { continue };
            let known = self.known.entry(segment.destination.port()).or_default();
            if segment.has(flag::SYN) {
                let starts: &mut Vec<u32> =
                    self.starts.entry(segment.destination.port()).or_default();
                if !starts.contains(&segment.acknowledgment) {
                    starts.push(segment.acknowledgment);
                }
            }
            known.sent = segment.sequence.wrapping_add(segment.len());
            if segment.has(flag::ACK) {
                known.acknowledged = segment.acknowledgment;
            }
            if let Some((value, echo)) = segment.options.timestamps {
                known.timestamp = Some(value);
                known.our_clock = known.our_clock.max(echo);
            }
        }
        while self.station.shard.poll_event().is_some() {}
        while let Ok(socket) = self.station.shard.tcp_accept(self.listener) {
            let remote = self.station.shard.tcp_status(socket).expect("accepted").remote;
            let starts = self.starts.get(&remote.port()).cloned().unwrap_or_default();
            self.sockets.push((socket, remote.port(), starts));
        }
    }

    /// Reads of all sockets; what comes must be what the peer sends, in order.
    fn read(&mut self) {
        let limit = usize::from(self.input.byte()) * 40 + 1;
        let mut buffer = vec![0; limit];
        for (socket, port, nexts) in &mut self.sockets {
            let Ok(count) = self.station.shard.tcp_read(self.now, *socket, &mut buffer) else {
                continue;
            };
            nexts.retain(|next| {
                let bytes = buffer[..count].iter().zip(0_u32..);
                bytes.into_iter().all(|(byte, at)| *byte == content(*port, next.wrapping_add(at)))
            });
            assert!(!nexts.is_empty(), "no SYN from port {port} begins a stream of these bytes");
            nexts.iter_mut().for_each(|next| *next = next.wrapping_add(count as u32));
        }
    }

    /// Something with a socket.
    fn write(&mut self) {
        let (choice, deed) = (self.input.byte(), self.input.byte());
        let len = usize::from(self.input.word());
        let count = self.sockets.len();
        let Some((socket, ..)) = self.sockets.get(usize::from(choice) % count.max(1)) else {
            return;
        };
        let (socket, shard) = (*socket, &mut self.station.shard);
        match deed % 8 {
            0..=4 => {
                let len = shard.tcp_send_room(socket).unwrap_or(0).min(len);
                if len > 0 {
                    let chunk = Chunk::whole(Block::from(Bytes::from(vec![7; len])));
                    let sent = shard.tcp_append(self.now, socket, chunk);
                    assert!(sent != Err(SocketError::WouldBlock), "there was room");
                }
            }
            5 => {
                let _ = shard.tcp_shutdown_write(self.now, socket);
            }
            6 => shard.close(self.now, socket),
            _ => shard.tcp_abort(self.now, socket),
        }
    }

    /// The application goes; after an hour nothing may be left.
    fn finish(mut self) {
        for (socket, ..) in core::mem::take(&mut self.sockets) {
            self.station.shard.close(self.now, socket);
        }
        self.station.shard.close(self.now, self.listener);
        for _ in 0..240 {
            self.station.send(self.now);
            while self.station.shard.poll_event().is_some() {}
            self.now += Duration::from_secs(15);
        }
        self.station.send(self.now);
        assert_eq!(self.station.shard.holdings(), stack::Holdings::default());
        assert_eq!(self.station.pool.counters().outstanding_bytes, 0);
    }
}

/// A packet of the peer's around `body`.
fn ip_packet(protocol: u8, fragment: u16, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1];
    let total = (packet.len() + body.len()) as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    let sum = !sum_of(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(body);
    packet
}

fn checksum(protocol: u8, segment: &[u8]) -> u16 {
    let mut bytes = vec![10, 0, 0, 9, 10, 0, 0, 1, 0, protocol];
    bytes.extend((segment.len() as u16).to_be_bytes());
    bytes.extend(segment);
    !sum_of(&bytes)
}

/// RFC 1071.
fn sum_of(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| [pair[0], *pair.get(1).unwrap_or(&0)]);
    let mut sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(word))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
