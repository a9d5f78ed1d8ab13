//! What applications do: how much they say, how fast they read, how they part.
//!
//! An [`Endpoint`] is one end of a connection and the application that has it. It acts when its
//! socket says that something became possible and when a time of its own has come, at no other
//! moment: an event that the stack forgets leaves it waiting, and the world finds it there.

use crate::host::{Host, Socket};
use crate::marks::Marks;
use crate::random::Random;
use crate::stream;
use batch::Chunk;
use stack::{SendPlan, SocketError, TcpOption, TcpStatus};
use time::{Duration, Instant};

/// Where a write ends at a multiple of this in the stream, a record ends. With Nagle's algorithm the checker could not
/// tell one that ends before others, and does not wait, from a segment that should have.
const RECORD_DIVISOR: u64 = 7;

/// How an application parts from its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It says that it is done, reads to the end, and closes.
    Orderly,
    /// It closes as soon as it has said all, whatever the peer may still say.
    CloseAtOnce,
    /// It aborts after so many bytes, read and written.
    Abort {
        /// Bytes.
        after: u64,
    },
    /// It says all and then neither closes nor speaks, until everything ends.
    Stay,
}

/// How an application reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Into memory of its own.
    Copied,
    /// After a look at what is there.
    Peeked,
    /// Takes the blocks, without a copy.
    Chunks,
}

/// What an application does.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Bytes that it sends.
    pub stream_len: u64,
    /// Bytes it writes at a time.
    pub write_max: usize,
    /// It rests this long after a write.
    pub write_pause: Duration,
    /// The share of its writes that are urgent.
    pub urgent: f64,
    /// It speaks only when the peer has said all.
    pub answers: bool,
    /// Bytes it reads at a time.
    pub read_max: usize,
    /// It rests this long after a read.
    pub read_pause: Duration,
    /// At the beginning it does not read for this long.
    pub deaf: Duration,
    /// How it parts.
    pub ending: Ending,
    /// How it reads.
    pub reading: Reading,
    /// It holds back small segments while it writes (TCP_CORK).
    pub corks: bool,
    /// It changes options of the connection under way.
    pub changes_options: bool,
}

impl Behaviour {
    /// What one end does, where streams are up to `stream_max` bytes.
    pub fn draw(random: &mut Random, stream_max: u64) -> Self {
        let stream_len = match random.within(0, 9) {
            0 => 0,
            1..=3 => random.magnitude(stream::NAME_LEN, 1_000),
            _ => random.magnitude(stream::NAME_LEN, stream_max.max(stream::NAME_LEN)),
        };
        // A pause after each write must not make a stream last for hours.
        let write_max = random.pick(&[1, 100, 1_460, 8_192, 65_536, 65_536]);
        let write_max = write_max.max(stream_len as usize / 200);
        let read_max = random.pick(&[1_000, 8_192, 65_536, 65_536]).max(stream_max as usize / 200);
        let pause = |random: &mut Random| match random.chance(0.25) {
            true => Duration::from_micros(random.magnitude(50, 200_000)),
            false => Duration::ZERO,
        };
        Self {
            stream_len,
            write_max,
            write_pause: pause(random),
            urgent: match random.chance(0.12) {
                true => random.pick(&[0.02, 0.2, 1.0]),
                false => 0.0,
            },
            answers: random.chance(0.3),
            read_max,
            read_pause: pause(random),
            deaf: match random.chance(0.15) {
                true => Duration::from_millis(random.magnitude(10, 20_000)),
                false => Duration::ZERO,
            },
            ending: match random.within(0, 19) {
                0 => Ending::CloseAtOnce,
                1 => Ending::Abort { after: random.magnitude(1, stream_max.max(2)) },
                2 => Ending::Stay,
                _ => Ending::Orderly,
            },
            reading: random.pick(&[
                Reading::Copied,
                Reading::Copied,
                Reading::Copied,
                Reading::Peeked,
                Reading::Chunks,
            ]),
            corks: random.chance(0.1),
            changes_options: random.chance(0.1),
        }
    }

    /// Whether it leaves the peer waiting for room.
    pub fn reads_slowly(&self) -> bool {
        !(self.read_pause.is_zero() && self.deaf.is_zero())
    }

    /// From now on without pauses and to an orderly end.
    pub fn hurry(&mut self) {
        self.write_pause = Duration::ZERO;
        self.read_pause = Duration::ZERO;
        self.deaf = Duration::ZERO;
        self.answers = false;
        self.ending = Ending::Orderly;
        self.write_max = 65_536;
    }
}

/// How an endpoint ended, once it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It read to the end and closed.
    InOrder,
    /// It closed or aborted of its own will.
    ByWill,
    /// The stack told it of an error.
    By(SocketError),
    /// Its host restarted.
    WithHost,
}

/// What the world must know of an endpoint's doings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// The first bytes of the peer's stream name it.
    Named(u64),
    /// The peer's stream is at its end.
    AtEnd,
    /// The endpoint broke off, so the peer may see an error.
    BrokeOff,
    /// The stack told of an error.
    Failed(SocketError),
    /// The bytes that arrived are not those that were sent.
    Differs {
        /// Where.
        offset: u64,
    },
    /// The stack kept something from the application that it promised.
    Absurd(&'static str),
}

/// One end of a connection and its application.
#[derive(Debug)]
pub struct Endpoint {
    /// On which host.
    pub host: usize,
    /// Its socket.
    pub socket: Socket,
    /// What it does.
    pub behaviour: Behaviour,
    /// The pair it belongs to.
    pub pair: usize,
    /// What its stream is called.
    pub name: u64,
    /// The handshake is complete.
    pub connected: bool,
    /// Bytes given to the stack.
    pub sent: u64,
    /// Where its SYN shows a cookie: of these, what it may carry (RFC 7413). The peer's application may
    /// see it twice.
    pub with_syn: Option<u64>,
    /// Bytes read.
    pub received: u64,
    /// What the peer's stream is called.
    pub peer_name: Option<u64>,
    /// It has said all and told the stack so; the stream is `sent` bytes long.
    pub is_shut: bool,
    /// It has read to the end.
    pub at_end: bool,
    /// How it ended.
    pub ended: Option<Ended>,
    /// When it wants to act again without being asked.
    pub wake_at: Option<Instant>,
    /// Its local address was taken away while it was open.
    pub has_lost_address: bool,
    /// Urgent marks, its own and the peer's.
    pub marks: Marks,
    /// Reads of chunks, looks before reads, and options that were changed.
    pub calls: [u64; 3],
    /// When it began.
    pub begun_at: Instant,
    read_at: Instant,
    write_at: Instant,
    /// The first bytes of the peer's stream, until there are enough of them.
    head: Vec<u8>,
}

impl Endpoint {
    /// An endpoint that begins at `now`.
    #[must_use]
    pub fn new(
        now: Instant,
        host: usize,
        socket: Socket,
        name: u64,
        behaviour: Behaviour,
        pair: usize,
    ) -> Self {
        let read_at = now + behaviour.deaf;
        Self {
            host,
            socket,
            behaviour,
            pair,
            name,
            connected: false,
            sent: 0,
            with_syn: None,
            received: 0,
            peer_name: None,
            is_shut: false,
            at_end: false,
            ended: None,
            wake_at: None,
            has_lost_address: false,
            marks: Marks::default(),
            calls: [0; 3],
            begun_at: now,
            read_at,
            write_at: now,
            head: Vec::new(),
        }
    }

    /// No more pauses.
    pub fn hurry(&mut self, now: Instant) {
        self.behaviour.hurry();
        self.read_at = now;
        self.write_at = now;
    }

    /// Does whatever it can do now. `buffer` is lent to read into.
    pub fn act(&mut self, now: Instant, host: &mut Host, buffer: &mut [u8]) -> Vec<Doing> {
        let mut doings = Vec::new();
        self.wake_at = None;
        self.read(now, host, buffer, &mut doings);
        if self.behaviour.changes_options && self.connected && self.ended.is_none() {
            self.change_option(now, host);
        }
        self.set_cork(now, host, true);
        self.write(now, host, &mut doings);
        // Who has nothing to add before something happens lets go of what is there.
        if self.sent == self.behaviour.stream_len || self.wake_at.is_none() {
            self.set_cork(now, host, false);
        }
        self.part(now, host, &mut doings);
        doings
    }

    fn wake(&mut self, at: Instant) {
        self.wake_at = Some(self.wake_at.map_or(at, |before| before.min(at)));
    }

    fn read(&mut self, now: Instant, host: &mut Host, buffer: &mut [u8], doings: &mut Vec<Doing>) {
        if self.ended.is_some() || self.at_end || !self.connected {
            return;
        }
        if now < self.read_at {
            return self.wake(self.read_at);
        }
        loop {
            let limit = self.behaviour.read_max.min(buffer.len());
            let mark = self.look_for_mark(host, doings);
            // Blocks are taken as they are, so who cares for a mark asks for what is before it.
            let limit = match (self.behaviour.reading, mark) {
                (Reading::Chunks, Some(before @ 1..)) => limit.min(before),
                _ => limit,
            };
            match self.take(now, host, &mut buffer[..limit], doings) {
                Ok(0) => {
                    self.at_end = true;
                    return doings.push(Doing::AtEnd);
                }
                Ok(count) if mark.is_some_and(|before| before > 0 && count > before) => {
                    return doings.push(Doing::Absurd("a read went across an urgent mark"));
                }
                Ok(count) => self.check(&buffer[..count], doings),
                Err(SocketError::WouldBlock) => return,
                Err(error) => return self.fail(now, host, error, doings),
            }
            if self.ended.is_some() || self.wants_abort() {
                return;
            }
            if !self.behaviour.read_pause.is_zero() {
                self.read_at = now + self.behaviour.read_pause;
                return self.wake(self.read_at);
            }
        }
    }

    /// Takes what can be read, as this application does.
    fn take(
        &mut self,
        now: Instant,
        host: &mut Host,
        out: &mut [u8],
        doings: &mut Vec<Doing>,
    ) -> Result<usize, SocketError> {
        let Socket { home, id } = self.socket;
        let shard = host.shard(home);
        match self.behaviour.reading {
            Reading::Copied => shard.tcp_read(now, id, out),
            Reading::Peeked => {
                let mut seen = vec![0; out.len()];
                let peeked = shard.tcp_peek(id, &mut seen);
                let read = shard.tcp_read(now, id, out);
                self.calls[1] += 1;
                // Both end where something urgent begins.
                if peeked != read || read.is_ok_and(|count| seen[..count] != out[..count]) {
                    doings.push(Doing::Absurd("what was seen is not what was read"));
                }
                read
            }
            Reading::Chunks => {
                let (mut filled, limits) = (0, (out.len(), 8));
                let read = shard.tcp_read_chunks(now, id, limits, |chunk| {
                    let bytes = chunk.bytes();
                    out[filled..filled + bytes.len()].copy_from_slice(bytes);
                    filled += bytes.len();
                });
                self.calls[0] += 1;
                if read.is_ok_and(|count| count != filled) {
                    doings.push(Doing::Absurd("chunks are as long as they say"));
                }
                read
            }
        }
    }

    /// Changes an option of the connection; which one is drawn from what was said so far.
    fn change_option(&mut self, now: Instant, host: &mut Host) {
        let nodelay = host.plan.tcp.nodelay;
        let mut random = Random::new(self.name ^ (self.sent << 20) ^ self.received);
        let bytes = random.magnitude(2_048, 1 << 20) as usize;
        let on = random.chance(0.5);
        let option = match random.within(0, 5) {
            0 => TcpOption::SendBuffer(bytes),
            1 => TcpOption::ReceiveBuffer(bytes),
            2 => TcpOption::QuickAcks(on),
            3 => TcpOption::SinglePackets(on),
            // The checker takes Nagle's algorithm for on where the host has it on.
            4 => TcpOption::NoDelay(on && nodelay),
            _ => TcpOption::FinWait2(Duration::from_secs(random.within(1, 60))),
        };
        // One that is over has no options.
        if host.shard(self.socket.home).tcp_set_option(now, self.socket.id, option).is_ok() {
            self.calls[2] += 1;
        }
    }

    fn set_cork(&mut self, now: Instant, host: &mut Host, on: bool) {
        if self.behaviour.corks && self.connected && self.ended.is_none() {
            let option = TcpOption::Cork(on);
            let set = host.shard(self.socket.home).tcp_set_option(now, self.socket.id, option);
            self.calls[2] += u64::from(set.is_ok());
        }
    }

    /// How many bytes can be read before the last urgent one, if one is ahead.
    fn look_for_mark(&mut self, host: &mut Host, doings: &mut Vec<Doing>) -> Option<usize> {
        let before = host.shard(self.socket.home).tcp_status(self.socket.id).ok()?.urgent_mark?;
        if let Err(what) = self.marks.on_seen(self.received, before as u64) {
            doings.push(Doing::Absurd(what));
        }
        Some(before)
    }

    /// Compares what was read with what the peer sends.
    fn check(&mut self, bytes: &[u8], doings: &mut Vec<Doing>) {
        let mut rest = bytes;
        if self.peer_name.is_none() {
            let missing = stream::NAME_LEN as usize - self.head.len();
            let (head, behind) = bytes.split_at(missing.min(bytes.len()));
            self.head.extend_from_slice(head);
            self.received += head.len() as u64;
            rest = behind;
            let Ok(name) = <[u8; 8]>::try_from(self.head.as_slice()) else { return };
            let name = u64::from_le_bytes(name);
            self.peer_name = Some(name);
            doings.push(Doing::Named(name));
        }
        let name = self.peer_name.unwrap_or(0);
        if let Some(offset) = stream::first_difference(name, self.received, rest) {
            doings.push(Doing::Differs { offset });
        }
        self.received += rest.len() as u64;
    }

    fn write(&mut self, now: Instant, host: &mut Host, doings: &mut Vec<Doing>) {
        let waits_for_peer = self.behaviour.answers && !self.at_end;
        if self.ended.is_some() || self.is_shut || !self.connected || waits_for_peer {
            return;
        }
        while self.sent < self.behaviour.stream_len && !self.wants_abort() {
            if now < self.write_at {
                return self.wake(self.write_at);
            }
            // As sockets do it, nobody takes more of the pool than its share: others could never go on where the
            // peer of one that has it all is gone.
            let plan = match host.shard(self.socket.home).tcp_send_plan(self.socket.id) {
                Ok(SendPlan { lent_room_bytes: 0, .. }) => return,
                Ok(plan) => plan,
                Err(error) => return self.fail(now, host, error, doings),
            };
            let rest = self.behaviour.stream_len - self.sent;
            let limit = rest.min(self.behaviour.write_max as u64) as usize;
            let count = plan.room_bytes.min(limit);
            let is_urgent = Marks::wants(self.behaviour.urgent, self.name, self.sent);
            let appended = (count > 0).then(|| self.append(now, host, count, is_urgent)).flatten();
            let Some(appended) = appended else {
                self.write_at = now + Duration::from_millis(50);
                return self.wake(self.write_at);
            };
            match appended {
                Ok(()) => {}
                Err(SocketError::WouldBlock) => {
                    return doings.push(Doing::Absurd("there was room, and then there was none"));
                }
                Err(error) => return self.fail(now, host, error, doings),
            }
            if !self.behaviour.write_pause.is_zero() {
                self.write_at = now + self.behaviour.write_pause;
            }
        }
    }

    /// Before the connection is open: says up to `len` bytes, which its SYN may carry.
    pub fn speak_early(&mut self, now: Instant, host: &mut Host, len: u64) -> Vec<Doing> {
        let mut doings = Vec::new();
        let room = match host.shard(self.socket.home).tcp_send_room(self.socket.id) {
            Ok(room) => room as u64,
            Err(error) => {
                self.fail(now, host, error, &mut doings);
                return doings;
            }
        };
        let rest = self.behaviour.stream_len.min(len).min(room);
        if rest == 0 || self.behaviour.answers {
            return doings;
        }
        let is_urgent = Marks::wants(self.behaviour.urgent, self.name, 0);
        // Without memory it is said later.
        if let Some(Err(error)) = self.append(now, host, rest as usize, is_urgent) {
            self.fail(now, host, error, &mut doings);
        }
        doings
    }

    /// Gives the next `count` bytes to the stack; `None` where there is no memory for them.
    fn append(
        &mut self,
        now: Instant,
        host: &mut Host,
        count: usize,
        is_urgent: bool,
    ) -> Option<Result<(), SocketError>> {
        let mut block = host.pool.allocate(count).ok()?;
        stream::fill(self.name, self.sent, &mut block.bytes_mut()[..count]);
        let chunk = Chunk::new(block.freeze(), 0..count);
        let appended = match is_urgent {
            true => host.shard(self.socket.home).tcp_append_urgent(now, self.socket.id, chunk),
            false => host.shard(self.socket.home).tcp_append(now, self.socket.id, chunk),
        };
        if appended.is_ok() {
            self.sent += count as u64;
            if is_urgent {
                self.marks.on_sent(self.sent);
            }
            if host.plan.tcp.nodelay && self.sent.is_multiple_of(RECORD_DIVISOR) {
                let _ = host.shard(self.socket.home).tcp_end_record(self.socket.id);
            }
        }
        Some(appended)
    }

    fn part(&mut self, now: Instant, host: &mut Host, doings: &mut Vec<Doing>) {
        if self.ended.is_some() {
            return;
        }
        if self.wants_abort() {
            host.shard(self.socket.home).tcp_abort(now, self.socket.id);
            doings.push(Doing::BrokeOff);
            return self.end(now, host, Ended::ByWill);
        }
        let said_all = self.connected && self.sent == self.behaviour.stream_len;
        let may_speak = !self.behaviour.answers || self.at_end;
        if said_all && !self.is_shut && may_speak {
            match self.behaviour.ending {
                Ending::Orderly => {
                    if let Err(error) =
                        host.shard(self.socket.home).tcp_shutdown_write(now, self.socket.id)
                    {
                        return self.fail(now, host, error, doings);
                    }
                    self.is_shut = true;
                }
                Ending::CloseAtOnce => {
                    self.is_shut = true;
                    if !self.at_end {
                        doings.push(Doing::BrokeOff);
                    }
                    return self.end(now, host, Ended::ByWill);
                }
                Ending::Abort { .. } | Ending::Stay => {}
            }
        }
        // Who has read all and says nothing more hears of an error from nothing else.
        if self.at_end && !self.is_shut && said_all {
            let status = host.shard(self.socket.home).tcp_status(self.socket.id);
            if let Ok(TcpStatus { error: Some(error), .. }) = status {
                return self.fail(now, host, error, doings);
            }
        }
        if self.is_shut && self.at_end {
            self.end(now, host, Ended::InOrder);
        }
    }

    fn wants_abort(&self) -> bool {
        let done = self.sent + self.received;
        self.connected && matches!(self.behaviour.ending, Ending::Abort { after } if done >= after)
    }

    /// The stack told of an error.
    pub fn fail(
        &mut self,
        now: Instant,
        host: &mut Host,
        error: SocketError,
        doings: &mut Vec<Doing>,
    ) {
        doings.push(Doing::Failed(error));
        self.end(now, host, Ended::By(error));
    }

    fn end(&mut self, now: Instant, host: &mut Host, ended: Ended) {
        self.ended = Some(ended);
        self.wake_at = None;
        host.shard(self.socket.home).close(now, self.socket.id);
        host.owners.remove(&self.socket);
    }
}
