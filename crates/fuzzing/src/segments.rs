//! A shard with live connections, and a peer who sends what it likes.
//!
//! The input is a list of deeds of the peer: segments near what the connection expects (flags,
//! sequence number, acknowledgment, window, options and length as the input says, the checksum
//! right), raw packets, fragments, ICMP errors about the connection; and of the application and the
//! clock. The payload of every segment is one of a few functions of its sequence number, so what overlaps
//! agrees or contradicts as the input says; what the application reads, and what is counted, must be as
//! `first_come` says.
//!
//! Over Ethernet there are neighbours besides, who may be silent or lie, IPv6, marks of congestion, and
//! super-frames.

use crate::first_come::{Claim, Counted, Stream, VARIANTS};
use crate::input::Input;
use crate::peer::{Link, station, sum_of};
use crate::station::Station;
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::SocketAddr;
use simulation::packet::{self, Body, Transport, flag};
use simulation::random::scatter;
use stack::{ListenOptions, SocketError, SocketId, SynCookieMode};
use std::collections::BTreeMap;
use tcp::State;
use time::{Duration, Instant};

/// Deeds in one input.
const DEEDS_MAX: usize = 200;

/// Answers that make the shard send at one moment.
const ROUNDS_MAX: usize = 100;

/// Where the shard listens.
const PORT: u16 = 80;

/// Our initial sequence number: the stream wraps early.
const ISS: u32 = u32::MAX - 300;

/// The byte of the peer's stream at this sequence number, in the variant that is mostly sent; others differ
/// from it by their number.
pub(crate) fn content(port: u16, sequence: u32) -> u8 {
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

/// What else is said of a segment.
#[derive(Clone, Copy, Default)]
struct How {
    urgent: u16,
    class: u8,
    /// It stands for segments of this length.
    segment_len: Option<u16>,
    /// Which content of the stream it carries.
    variant: u8,
}

/// A connection that was accepted.
struct Open {
    socket: SocketId,
    port: u16,
    /// What its application must read; `None` once that has let go of it, or where it was handed what nobody
    /// can tell.
    stream: Option<Stream>,
}

struct World<'a> {
    input: Input<'a>,
    now: Instant,
    station: Station,
    link: Link,
    /// Questions for the peer's station are answered.
    answers: bool,
    listener: SocketId,
    known: BTreeMap<u16, Known>,
    /// Where streams may begin, by port: behind every SYN that was answered.
    starts: BTreeMap<u16, Vec<u32>>,
    /// Accepted connections, the newest last.
    sockets: Vec<Open>,
}

/// Runs one input over bare IPv4.
pub fn run(bytes: &[u8]) {
    run_over(Input::new(bytes), Link::default());
}

/// Runs one input over Ethernet; its first byte says with which IP.
pub fn run_over_ethernet(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let is_ipv6 = input.byte() & 1 != 0;
    run_over(input, Link { is_ethernet: true, is_ipv6 });
}

fn run_over(input: Input<'_>, link: Link) {
    let mut world = World::begin(input, link);
    for _ in 0..DEEDS_MAX {
        if world.input.is_empty() {
            break;
        }
        world.deed();
        world.settle();
    }
    world.finish();
}

impl<'a> World<'a> {
    /// A shard that listens, and two connections.
    fn begin(mut input: Input<'a>, link: Link) -> Self {
        let settings = input.byte();
        let tcp = tcp::Config {
            timestamps: settings & 1 == 0,
            sack: settings & 2 == 0,
            window_scaling: settings & 4 == 0,
            receive_buffer_bytes: if settings & 8 == 0 { 1 << 20 } else { 3_000 },
            nodelay: settings & 16 == 0,
            ecn: if settings & 64 == 0 { tcp::EcnMode::Accept } else { tcp::EcnMode::Off },
            ..tcp::Config::default()
        };
        let mut station = Station::new(1, link, tcp);
        let options = ListenOptions {
            half_open_max: 4,
            syn_cookies: if settings & 32 == 0 {
                SynCookieMode::WhenFull
            } else {
                SynCookieMode::Always
            },
            ..ListenOptions::default()
        };
        let mut now = Instant::from_millis(1_000);
        // Until nobody else has answered for its addresses (RFC 4862, 5.4; RFC 5227), it uses none of them.
        for _ in 0..if link.is_ethernet { 50 } else { 0 } {
            station.send(now);
            now += Duration::from_millis(100);
        }
        let local = SocketAddr::new(link.address(1), PORT);
        let listener = station.shard.tcp_listen_with(local, options).expect("a free port");
        let (known, starts, sockets) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut world =
            World { input, now, station, link, answers: true, listener, known, starts, sockets };
        for port in [1_000, 1_001] {
            world.open(port);
        }
        world
    }

    /// A handshake as it should be.
    fn open(&mut self, port: u16) {
        let how = How::default();
        self.segment(port, flag::SYN, ISS, 0, 60_000, &[2, 4, 5, 180, 4, 2, 1, 1], 0, how);
        self.settle();
        let ack = self.known.get(&port).map_or(0, |known| known.sent);
        self.segment(port, flag::ACK, ISS.wrapping_add(1), ack, 60_000, &[], 0, how);
        self.settle();
    }

    fn deed(&mut self) {
        let who = self.input.byte();
        let (port, variant) = (1_000 + u16::from(who & 3), (who >> 2) % VARIANTS);
        let deeds = if self.link.is_ethernet { 16 } else { 12 };
        match self.input.byte() % deeds {
            0..=4 => self.near_segment(port, variant, false),
            5 => {
                let len = usize::from(self.input.word() % 1_600);
                let packet = self.input.part(len).to_vec();
                self.station.receive(self.now, [packet]);
                self.give_up_on_the_unknown();
            }
            6 => self.open(port),
            7 => self.now += Duration::from_millis(u64::from(self.input.word())),
            8 => self.read(),
            9 => self.write(),
            10 => self.report(port),
            11 => self.fragments(port),
            12 => self.near_segment(port, variant, true),
            13 => self.answers = !self.answers,
            14 => self.arp(),
            _ => self.icmpv6(),
        }
    }

    /// A segment near what the connection expects.
    fn near_segment(&mut self, port: u16, variant: u8, is_super: bool) {
        let known = self.known.get(&port).copied().unwrap_or_default();
        let flags = self.input.byte();
        let sequence = known.acknowledged.wrapping_add_signed(self.input.offset().into());
        let acknowledgment = known.sent.wrapping_add_signed(i32::from(self.input.offset()) / 8);
        let window = self.input.word();
        let len = usize::from(self.input.word() % if is_super { 20_000 } else { 1_400 });
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
        let urgent = if flags & flag::URG != 0 { self.input.word() } else { 0 };
        let class = if self.link.is_ethernet { self.input.byte() } else { 0 };
        let segment_len = is_super.then(|| self.input.word().max(1));
        let how = How { urgent, class, segment_len, variant };
        self.segment(port, flags, sequence, acknowledgment, window, &options, len, how);
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
        how: How,
    ) {
        let mut segment = Vec::with_capacity(60 + len);
        segment.extend(port.to_be_bytes());
        segment.extend(PORT.to_be_bytes());
        segment.extend(sequence.to_be_bytes());
        segment.extend(acknowledgment.to_be_bytes());
        segment.push(((20 + options.len()) as u8 / 4) << 4);
        segment.push(flags);
        segment.extend(window.to_be_bytes());
        segment.extend([0, 0]);
        segment.extend(how.urgent.to_be_bytes());
        segment.extend(options);
        let first = sequence.wrapping_add(u32::from(flags & flag::SYN != 0));
        let content = |at| content(port, first.wrapping_add(at)) ^ how.variant;
        segment.extend((0..len as u32).map(content));
        let sum = self.link.checksum(6, &segment);
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        let frame = self.link.frame(6, 0x4000, how.class, &segment);
        let before = self.station.shard.counters().tcp;
        match how.segment_len {
            Some(len) => self.station.receive_segmented(self.now, frame, len),
            None => self.station.receive(self.now, [frame]),
        }
        let after = self.station.shard.counters().tcp;
        let counted = Counted {
            duplicates: after.duplicate_segments - before.duplicate_segments,
            conflicts: after.overlap_conflicts - before.overlap_conflicts,
        };
        self.accept();
        let has_syn = flags & flag::SYN != 0;
        self.judge(port, &Claim { first, len, variant: how.variant, has_syn }, counted);
    }

    /// The port's connection was handed this.
    fn judge(&mut self, port: u16, claim: &Claim, counted: Counted) {
        let Some(open) = self.sockets.iter_mut().rfind(|open| open.port == port) else { return };
        if let Some(stream) = &mut open.stream
            && let Ok(info) = self.station.shard.tcp_info(self.now, open.socket)
        {
            stream.on_segment(claim, &info, counted);
        }
    }

    /// The input made packets on its own: should one of them be a segment of a connection, nobody knows what
    /// it says.
    fn give_up_on_the_unknown(&mut self) {
        self.accept();
        for open in &mut self.sockets {
            let info = self.station.shard.tcp_info(self.now, open.socket);
            open.stream =
                open.stream.take().filter(|it| !info.is_ok_and(|info| it.is_behind(&info)));
        }
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
        self.station.receive(self.now, [self.link.frame(1, 0, 0, &message)]);
    }

    /// A message of ARP about anybody.
    fn arp(&mut self) {
        let (operation, sender, target) = (self.input.byte(), self.input.byte(), self.input.byte());
        let said = self.input.part(6);
        let station = <[u8; 6]>::try_from(said).unwrap_or(station(sender));
        let frame = self.link.arp(operation & 3, (station, sender), target & 15);
        self.station.receive(self.now, [frame]);
    }

    /// A message between neighbours, or any other of ICMPv6 (RFC 4861; RFC 3810).
    fn icmpv6(&mut self) {
        let kind = 128 + self.input.byte() % 16;
        let mut message = vec![kind, self.input.byte() & 1, 0, 0];
        message.extend(self.input.short_part());
        let frame = self.link.icmpv6(message);
        self.station.receive(self.now, [frame]);
    }

    /// Fragments, of a datagram or of a segment.
    fn fragments(&mut self, port: u16) {
        let count = self.input.byte() % 4 + 1;
        let packets: Vec<_> = (0..count)
            .map(|_| {
                let field = self.input.word() & 0x20ff;
                let mut body = port.to_be_bytes().to_vec();
                body.extend(self.input.short_part());
                self.link.frame(if field & 1 == 0 { 17 } else { 6 }, field, 0, &body)
            })
            .collect();
        self.station.receive(self.now, packets);
        self.give_up_on_the_unknown();
    }

    /// Takes what the shard sends; says whether questions of it were answered.
    fn take_sent(&mut self) -> bool {
        let mut has_answered = false;
        for bytes in self.station.send(self.now) {
            let Ok(packet) = packet::read(&bytes, self.link.is_ethernet) else { continue };
            if let Some(answer) = self.link.answer(&packet).filter(|_| self.answers) {
                self.station.receive(self.now, [answer]);
                has_answered = true;
            }
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
        has_answered
    }

    /// Takes what the shard sends and what it tells.
    fn settle(&mut self) {
        // What waits for a neighbour leaves behind its answer.
        let rounds = core::iter::repeat_with(|| self.take_sent()).take(ROUNDS_MAX);
        let rests = rounds.take_while(|has_answered| *has_answered).count() < ROUNDS_MAX;
        assert!(rests, "the shard asks for ever");
        while self.station.shard.poll_event().is_some() {}
        self.accept();
    }

    /// Accepts what was opened. Each stream begins behind a SYN of its port that was answered.
    fn accept(&mut self) {
        while let Ok(socket) = self.station.shard.tcp_accept(self.listener) {
            let port = self.station.shard.tcp_status(socket).expect("accepted").remote.port();
            let info = self.station.shard.tcp_info(self.now, socket).expect("accepted");
            let next = info.receive_next.0.wrapping_sub(info.bytes_received as u32);
            // Its FIN may be here, too.
            let fins = u32::from(info.state != State::Established);
            let begins_at = next.wrapping_sub(fins);
            let is_known = self.starts.get(&port).is_some_and(|starts| starts.contains(&begins_at));
            assert!(is_known, "no SYN from port {port} begins a stream at {begins_at}");
            self.sockets.push(Open { socket, port, stream: Some(Stream::new(port, begins_at)) });
        }
    }

    /// Reads of all sockets; what comes must be what the peer sent first, in order.
    fn read(&mut self) {
        let limit = usize::from(self.input.byte()) * 40 + 1;
        let mut buffer = vec![0; limit];
        for open in &mut self.sockets {
            let read = self.station.shard.tcp_read(self.now, open.socket, &mut buffer);
            if let (Ok(count), Some(stream)) = (read, &mut open.stream) {
                stream.on_read(&buffer[..count]);
            }
        }
    }

    /// Something with a socket.
    fn write(&mut self) {
        let (choice, deed) = (self.input.byte(), self.input.byte());
        let len = usize::from(self.input.word());
        let count = self.sockets.len();
        let Some(open) = self.sockets.get_mut(usize::from(choice) % count.max(1)) else {
            return;
        };
        let (socket, shard) = (open.socket, &mut self.station.shard);
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
            6 => {
                open.stream = None;
                shard.close(self.now, socket);
            }
            _ => {
                open.stream = None;
                shard.tcp_abort(self.now, socket);
            }
        }
    }

    /// The application goes; after an hour nothing may be left.
    fn finish(mut self) {
        for open in core::mem::take(&mut self.sockets) {
            self.station.shard.close(self.now, open.socket);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_opens_connections_and_takes_super_frames() {
        for (is_ethernet, is_ipv6) in [(false, false), (true, false), (true, true)] {
            let mut world = World::begin(Input::new(&[]), Link { is_ethernet, is_ipv6 });
            assert_eq!(world.sockets.len(), 2, "{:?}", world.link);
            let known = world.known[&1_000];
            let how = How { segment_len: Some(1_000), ..How::default() };
            let (from, flags) = (ISS.wrapping_add(1), flag::ACK);
            world.segment(1_000, flags, from, known.sent, 60_000, &[], 5_000, how);
            let open = world.sockets.iter().find(|open| open.port == 1_000);
            let socket = open.expect("open").socket;
            let status = world.station.shard.tcp_status(socket).expect("open");
            assert_eq!(status.readable_bytes, 5_000, "{:?}", world.link);
            world.finish();
        }
    }

    /// Hands port 1,000 bytes of the stream.
    fn send(world: &mut World<'_>, at: u32, len: usize, variant: u8) {
        let from = ISS.wrapping_add(1 + at);
        let known = world.known[&1_000];
        let how = How { variant, ..How::default() };
        world.segment(1_000, flag::ACK, from, known.sent, 60_000, &[], len, how);
        world.settle();
    }

    fn conflicts(world: &World<'_>) -> u64 {
        world.station.shard.counters().tcp.overlap_conflicts
    }

    #[test]
    fn what_contradicts_is_counted_and_what_came_first_is_read() {
        let mut world = World::begin(Input::new(&[]), Link::default());
        send(&mut world, 500, 300, 1);
        send(&mut world, 600, 400, 2);
        assert_eq!(conflicts(&world), 1, "ahead of its turn");
        send(&mut world, 0, 1_200, 3);
        assert_eq!(conflicts(&world), 2, "in order, and over what waits");
        send(&mut world, 100, 50, 3);
        assert_eq!(conflicts(&world), 2, "the same again");
        send(&mut world, 100, 50, 0);
        assert_eq!(conflicts(&world), 3, "unread");
        world.input = Input::new(&[255]);
        world.read();
        let open = world.sockets.iter().find(|open| open.port == 1_000).expect("open");
        let status = world.station.shard.tcp_status(open.socket).expect("open");
        assert_eq!(status.readable_bytes, 0);
        world.finish();
    }

    #[test]
    #[should_panic(expected = "is not the first")]
    fn a_byte_of_a_later_segment_is_found() {
        let mut world = World::begin(Input::new(&[]), Link::default());
        send(&mut world, 0, 100, 1);
        let open = world.sockets.iter_mut().find(|open| open.port == 1_000).expect("open");
        let stream = open.stream.as_mut().expect("known");
        stream.on_read(&[content(1_000, ISS.wrapping_add(1)) ^ 2]);
    }
}
