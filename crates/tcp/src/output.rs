//! The one way out: plan, build, commit.
//!
//! `poll_transmit` walks through what the state calls for, in a fixed order, and appends each
//! segment to the batch; `on_transmitted` applies the first segments of that, as many as the device
//! took. Between the two the connection is as it was before, so what was not taken needs no undoing:
//! it is planned afresh from whatever the state is then.
//!
//! ```text
//!   Control: reset, SYN -> SendAgain -> New data, FIN -> LastResort -> Probe -> Ack -> Done
//! ```
//!
//! Every segment is written by [`push_segment`] from a [`Stamp`], the header of this poll: within
//! one call all segments carry the same acknowledgment, window, timestamp and SACK blocks, so a
//! burst costs a copy of the stamp and two patched fields per segment. Consecutive new segments of
//! full size form a run.

use crate::acknowledging::Owed;
use crate::congestion::Congestion as _;
use crate::connection::{Connection, Timed};
use crate::recovery::{Again, Phase, Walk};
use crate::send_queue::Cursor;
use crate::state::State;
use crate::timers::Timer;
use batch::{Attributes, Checksum, Multidata};
use time::Instant;
use wire::{SeqNumber, TCP_CHECKSUM_OFFSET, TCP_HEADER_LEN_MAX, TcpFlags, TcpHeader, TcpOptions};

/// The most pieces of payload in one segment; more small chunks than that make it shorter.
const SPANS_PER_SEGMENT_MAX: usize = 16;

/// Length of the header of a segment with timestamps and no other option.
const STAMP_LEN_USUAL: usize = 32;

/// What a planned segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reset,
    Syn,
    Again { rescue: bool },
    New,
    WindowProbe,
    KeepaliveProbe,
    Ack,
}

/// A segment as decided.
#[derive(Clone, Copy, Debug)]
struct Planned {
    kind: Kind,
    sequence: SeqNumber,
    /// Payload bytes.
    len: u32,
    fin: bool,
}

impl Planned {
    /// One past the last sequence number of the segment.
    fn end(&self) -> SeqNumber {
        self.sequence + self.len + u32::from(self.fin)
    }
}

/// What the last `poll_transmit` built. Kept between calls for its memory.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    segments: Vec<Planned>,
    acknowledgment: SeqNumber,
    window: u32,
}

/// How far planning has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Control,
    SendAgain,
    New,
    LastResort,
    Probe,
    Ack,
    Done,
}

/// The state of planning: the little of the connection that a burst moves.
#[derive(Clone, Copy, Debug)]
struct Planner {
    stage: Stage,
    walk: Walk,
    /// SND.NXT behind what is planned.
    nxt: SeqNumber,
    /// Payload bytes of a full segment behind this poll's header.
    full: u32,
    /// SMSS.
    mss: u32,
    /// An ACK goes out with what is planned already.
    carries_ack: bool,
    /// Duplicate ACKs still to be planned.
    repeats: u32,
    cwnd_limited: bool,
}

/// The header of this poll's segments.
struct Stamp {
    bytes: [u8; TCP_HEADER_LEN_MAX],
    len: usize,
}

/// What the new-data stage found.
enum NewData {
    Send(Planned),
    /// Nothing to send, or Nagle holds it back.
    Nothing,
    WindowClosed,
    CwndFull,
}

impl Connection {
    /// Whether [`Connection::poll_transmit`] has something to send now.
    #[must_use]
    pub fn wants_transmit(&self, _now: Instant) -> bool {
        let mut planner = self.planner(self.payload_room());
        self.next_segment(&mut planner).is_some()
    }

    /// Appends what the state calls for, as far as the batch has room, and says how many segments
    /// that are. Commits nothing: [`Connection::on_transmitted`] does, and must come before
    /// anything else is done with the connection, or not at all.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        owner: u32,
        route: u32,
        out: &mut Multidata,
    ) -> usize {
        self.plan.segments.clear();
        let window = self.window_field();
        self.plan.window = u32::from(window) << self.negotiated.receive_shift;
        self.plan.acknowledgment = self.receive.next();
        let options = self.segment_options(now);
        let mut planner = self.planner(self.payload_room());
        let mut builder = Builder {
            attributes: Attributes {
                owner,
                route,
                run: 0,
                checksum: Checksum::Missing { offset: TCP_CHECKSUM_OFFSET },
            },
            stamp: self.stamp(window, options),
            cursor: None,
            run_len: 0,
        };
        while let Some(mut segment) = self.next_segment(&mut planner) {
            let asked = segment.len;
            if !builder.push(self, now, &mut segment, out) {
                break;
            }
            if segment.len < asked {
                match segment.kind {
                    Kind::New => planner.nxt = segment.end(),
                    Kind::Again { rescue: false } => {
                        planner.walk.on_shortened(segment.end(), asked - segment.len);
                    }
                    _ => {}
                }
            }
            self.plan.segments.push(segment);
        }
        self.cwnd_limited = planner.cwnd_limited;
        self.plan.segments.len()
    }

    /// The device took the first `taken` segments of the last [`Connection::poll_transmit`].
    pub fn on_transmitted(&mut self, now: Instant, taken: usize) {
        let segments = core::mem::take(&mut self.plan.segments);
        let taken = taken.min(segments.len());
        self.counters.segments_forgotten += (segments.len() - taken) as u64;
        let flight_before = self.send.flight();
        for segment in &segments[..taken] {
            self.on_segment_sent(now, segment);
        }
        self.plan.segments = segments;
        self.plan.segments.clear();
        if taken == 0 {
            return;
        }
        self.counters.segments_sent += taken as u64;
        self.last_sent_at = now;
        if flight_before == 0 && self.send.flight() > 0 {
            self.congestion.on_flight_start(now);
        }
        self.arm_persist(now);
    }

    fn on_segment_sent(&mut self, now: Instant, segment: &Planned) {
        match segment.kind {
            Kind::Reset => {
                self.owing.reset = None;
                self.counters.resets_sent += 1;
                return;
            }
            Kind::Syn => {
                self.owing.syn = false;
                let first = self.send.nxt == self.send.iss;
                self.send.on_sent(self.send.iss + 1);
                if first {
                    self.timed = Some(Timed { end: self.send.nxt, sent_at: now });
                } else {
                    self.counters.retransmitted_segments += 1;
                    // Karn: which of the two was answered could not be told.
                    self.timed = None;
                }
                // A SYN-ACK that the peer's own repetition asked for does not put off the timeout.
                self.timers.set_if_idle(Timer::Retransmission, now + self.rtt.rto());
                // The window of a SYN is not scaled and was taken note of when the peer's came.
                self.last_ack_sent = self.plan.acknowledgment;
                self.acks.on_sent();
                return;
            }
            Kind::Again { rescue } => {
                self.counters.retransmitted_segments += 1;
                self.counters.retransmitted_bytes += u64::from(segment.len);
                let len = segment.len + u32::from(segment.fin);
                self.recovery.on_sent_again(Again { sequence: segment.sequence, len, rescue });
                // Karn: nothing sent before this can be measured any more.
                self.timed = None;
                self.timers.set_if_idle(Timer::Retransmission, now + self.rtt.rto());
            }
            Kind::New => self.on_new_sent(now, segment),
            Kind::WindowProbe => {
                self.owing.window_probe = false;
                self.send.max = self.send.max.later_of(segment.end());
                self.unanswered.window_probes = self.unanswered.window_probes.saturating_add(1);
                self.unanswered.persist_backoff = self.unanswered.persist_backoff.saturating_add(1);
                self.counters.window_probes_sent += 1;
            }
            Kind::KeepaliveProbe => {
                self.owing.keepalive_probe = false;
                self.counters.keepalive_probes_sent += 1;
            }
            Kind::Ack => {
                self.acks.on_repeat_sent();
                self.counters.pure_acks_sent += 1;
            }
        }
        self.on_ack_carried();
    }

    #[inline]
    fn on_new_sent(&mut self, now: Instant, segment: &Planned) {
        let end = segment.end();
        self.owing.window_probe = false;
        self.send.on_sent(end);
        self.counters.bytes_sent += u64::from(segment.len);
        self.counters.data_segments_sent += 1;
        if self.timed.is_none() && self.recovery.phase() == Phase::Open {
            self.timed = Some(Timed { end, sent_at: now });
        }
        if !self.timers.is_set(Timer::Retransmission) {
            self.timers.set(Timer::Retransmission, now + self.rtt.rto());
            self.timers.stop(Timer::Persist);
            if let Some(user_timeout) = self.config.user_timeout {
                self.timers.set_if_idle(Timer::User, now + user_timeout);
            }
        }
    }

    /// A segment with this poll's acknowledgment and window was taken.
    #[inline]
    fn on_ack_carried(&mut self) {
        if self.plan.acknowledgment != self.receive.next() {
            return;
        }
        if self.acks.owed() != Owed::Nothing {
            if self.acks.owed() == Owed::Now {
                self.counters.immediate_acks += 1;
            }
            self.acks.on_sent();
            self.timers.stop(Timer::DelayedAck);
        }
        self.last_ack_sent = self.plan.acknowledgment;
        self.receive.on_announced(self.plan.window);
    }

    /// The window to announce, as it stands in the header (RFC 7323, 2.2). Rounded down: the edge
    /// that was announced stays valid for what arrives ([`crate::receive_queue`]).
    fn window_field(&self) -> u16 {
        let window = self.receive.window_to_announce(self.negotiated.payload_max_receive());
        u16::try_from(window >> self.negotiated.receive_shift).unwrap_or(u16::MAX)
    }

    /// Options of a segment that is not a SYN. RFC 2018, 4: SACK blocks go into every ACK for as
    /// long as something waits out of order; up to 3 fit beside timestamps.
    fn segment_options(&self, now: Instant) -> TcpOptions {
        let sack_max = if self.negotiated.timestamps.is_some() { 3 } else { 4 };
        TcpOptions {
            timestamps: self.negotiated.timestamps.map(|timestamps| timestamps.option(now)),
            sack: match self.negotiated.sack {
                true => self.receive.sack_blocks(sack_max),
                false => wire::SackBlocks::NONE,
            },
            ..TcpOptions::default()
        }
    }

    fn stamp(&self, window: u16, options: TcpOptions) -> Stamp {
        Stamp::new(&TcpHeader {
            source_port: self.local_port,
            destination_port: self.remote_port,
            sequence: SeqNumber(0),
            acknowledgment: self.receive.next(),
            flags: TcpFlags::ACK,
            window,
            urgent: 0,
            options,
        })
    }

    /// The header of a SYN or of a reset, which have little in common with the other segments.
    fn control_stamp(&self, now: Instant, kind: Kind) -> Stamp {
        let mut header = TcpHeader {
            source_port: self.local_port,
            destination_port: self.remote_port,
            ..TcpHeader::default()
        };
        if kind == Kind::Syn {
            let is_reply = self.state == State::SynReceived;
            header.options = self.negotiated.syn_options(now, is_reply);
            // RFC 7323, 2.2: the window of a SYN is never scaled.
            header.window = u16::try_from(self.config.receive_buffer_bytes).unwrap_or(u16::MAX);
            header.flags = TcpFlags::SYN;
            if is_reply {
                header.flags |= TcpFlags::ACK;
                header.acknowledgment = self.receive.next();
            }
        } else {
            header.flags = TcpFlags::RST;
            if let Some(ack) = self.owing.reset.and_then(|reset| reset.acknowledgment) {
                header.flags |= TcpFlags::ACK;
                header.acknowledgment = ack;
            }
        }
        Stamp::new(&header)
    }

    /// Payload of a full segment behind the options it would carry now (RFC 6691).
    fn payload_room(&self) -> u32 {
        if self.receive.has_gap() && self.negotiated.sack {
            // The clock does not change the length of the options.
            let options = self.segment_options(Instant::ZERO).len_bytes() as u32;
            u32::from(self.negotiated.mss_send()).saturating_sub(options).max(1)
        } else {
            self.negotiated.payload_max()
        }
    }

    fn planner(&self, full: u32) -> Planner {
        let mss = self.negotiated.payload_max();
        Planner {
            stage: Stage::Control,
            walk: self.recovery.walk(&self.send, self.congestion.window(), mss),
            nxt: self.send.nxt,
            full,
            mss,
            carries_ack: false,
            repeats: self.acks.repeats(),
            cwnd_limited: false,
        }
    }

    /// Decides on the next segment.
    #[inline]
    fn next_segment(&self, planner: &mut Planner) -> Option<Planned> {
        loop {
            let next = match planner.stage {
                Stage::Control => self.next_control(planner),
                Stage::SendAgain => self.next_again(planner),
                Stage::New => match self.next_new(planner) {
                    NewData::Send(segment) => {
                        planner.nxt = segment.end();
                        planner.walk.pipe += segment.len;
                        Some(segment)
                    }
                    NewData::CwndFull => {
                        planner.cwnd_limited = true;
                        None
                    }
                    NewData::Nothing | NewData::WindowClosed => None,
                },
                Stage::LastResort => self.next_last_resort(planner),
                Stage::Probe => self.next_probe(planner),
                Stage::Ack => self.next_ack(planner),
                Stage::Done => return None,
            };
            if let Some(segment) = next {
                planner.carries_ack |= !matches!(segment.kind, Kind::Reset | Kind::Syn);
                return Some(segment);
            }
            planner.stage = match planner.stage {
                Stage::Control => Stage::SendAgain,
                Stage::SendAgain => Stage::New,
                Stage::New => Stage::LastResort,
                Stage::LastResort => Stage::Probe,
                Stage::Probe => Stage::Ack,
                Stage::Ack | Stage::Done => Stage::Done,
            };
        }
    }

    fn next_control(&self, planner: &mut Planner) -> Option<Planned> {
        let planned = |kind, sequence| Planned { kind, sequence, len: 0, fin: false };
        if let Some(reset) = self.owing.reset {
            planner.stage = Stage::Done;
            if self.state != State::Closed {
                // A reset for a segment that the handshake cannot use; the rest goes on.
                planner.stage = Stage::SendAgain;
            }
            return Some(planned(Kind::Reset, reset.sequence));
        }
        match self.state {
            State::Closed => planner.stage = Stage::Done,
            State::SynSent | State::SynReceived => {
                planner.stage = Stage::Done;
                if self.owing.syn {
                    return Some(planned(Kind::Syn, self.send.iss));
                }
                if self.state == State::SynReceived && self.acks.owed() == Owed::Now {
                    return Some(planned(Kind::Ack, self.send.nxt));
                }
            }
            _ => {}
        }
        None
    }

    fn next_again(&self, planner: &mut Planner) -> Option<Planned> {
        if !self.state.sends_data() {
            return None;
        }
        let again = self.recovery.next(&mut planner.walk, &self.send, planner.full, planner.mss)?;
        Some(self.plan_again(again))
    }

    fn next_last_resort(&self, planner: &mut Planner) -> Option<Planned> {
        if !self.state.sends_data() {
            return None;
        }
        let Planner { full, mss, .. } = *planner;
        let again = self.recovery.next_last_resort(&mut planner.walk, &self.send, full, mss)?;
        Some(self.plan_again(again))
    }

    /// The last number of a range may be the FIN's.
    fn plan_again(&self, again: Again) -> Planned {
        let len = again.len.min(self.send_queue.len_from(again.sequence));
        let kind = Kind::Again { rescue: again.rescue };
        Planned { kind, sequence: again.sequence, len, fin: len < again.len }
    }

    /// Decides whether new data, or the FIN, may go: window, congestion window, Nagle, and the
    /// sender's silly window avoidance (RFC 9293, 3.8.6.2.1).
    #[inline]
    fn next_new(&self, planner: &Planner) -> NewData {
        if !self.state.sends_data() {
            return NewData::Nothing;
        }
        let unsent = self.send_queue.len_from(planner.nxt);
        let fin = self.owing.fin && planner.nxt.is_at_or_before(self.send_queue.end_sequence());
        let segment = |len, fin| Planned { kind: Kind::New, sequence: planner.nxt, len, fin };
        if unsent == 0 {
            return if fin { NewData::Send(segment(0, true)) } else { NewData::Nothing };
        }
        let usable = self.send.usable(planner.nxt);
        let mut len = unsent.min(planner.full);
        let in_flight = planner.nxt != self.send.una;
        if usable < len {
            // MUST-38, rule 3: half of the largest window the peer ever had is worth sending; and
            // when the override timer went off, whatever fits.
            let override_timer = self.owing.window_probe && !in_flight;
            if usable == 0 || (usable < self.send.window_max / 2 && !override_timer) {
                return NewData::WindowClosed;
            }
            len = usable;
        } else if len < planner.full && in_flight && !self.config.nodelay && !fin {
            // RFC 9293, 3.7.4: Nagle. The last, short segment waits for all before it.
            return NewData::Nothing;
        }
        if planner.walk.limit.saturating_sub(planner.walk.pipe) < len && planner.walk.pipe > 0 {
            return NewData::CwndFull;
        }
        NewData::Send(segment(len, fin && len == unsent))
    }

    /// Whether data waits that only the peer's window holds back.
    pub(crate) fn is_window_closed(&self) -> bool {
        let planner = self.planner(self.payload_room());
        matches!(self.next_new(&planner), NewData::WindowClosed)
    }

    fn next_probe(&self, planner: &mut Planner) -> Option<Planned> {
        if self.owing.window_probe && self.state.sends_data() && planner.nxt == self.send.una {
            // RFC 9293, 3.8.6.1, MUST-36: one byte beyond the window.
            let len = self.send_queue.len_from(planner.nxt).min(1);
            if len > 0 {
                let kind = Kind::WindowProbe;
                planner.stage = Stage::Ack;
                return Some(Planned { kind, sequence: planner.nxt, len, fin: false });
            }
        }
        if self.owing.keepalive_probe && self.state.is_synchronized() {
            // A number that was acknowledged already makes the peer answer; no byte is sent
            // (RFC 9293, 3.8.4, SHLD-12).
            let sequence = self.send.nxt - 1;
            planner.stage = Stage::Ack;
            return Some(Planned { kind: Kind::KeepaliveProbe, sequence, len: 0, fin: false });
        }
        None
    }

    fn next_ack(&self, planner: &mut Planner) -> Option<Planned> {
        let owed = planner.repeats > 0 || (self.acks.owed() == Owed::Now && !planner.carries_ack);
        planner.repeats = planner.repeats.saturating_sub(1);
        owed.then_some(Planned { kind: Kind::Ack, sequence: planner.nxt, len: 0, fin: false })
    }
}

impl Stamp {
    fn new(header: &TcpHeader) -> Self {
        let mut bytes = [0; TCP_HEADER_LEN_MAX];
        let len = header.emit(&mut bytes).unwrap_or(0);
        Self { bytes, len }
    }
}

/// Writes planned segments into a batch.
struct Builder {
    attributes: Attributes,
    stamp: Stamp,
    /// Where the payload of the next new segment lies, while new segments follow each other.
    cursor: Option<Cursor>,
    /// Payload length of the open run; 0 where none is open.
    run_len: u32,
}

impl Builder {
    /// Writes one segment. Shortens it where its payload lies in too many pieces. Says whether
    /// the batch had room.
    #[inline]
    fn push(
        &mut self,
        connection: &Connection,
        now: Instant,
        segment: &mut Planned,
        out: &mut Multidata,
    ) -> bool {
        match segment.kind {
            Kind::New => self.push_new(connection, segment, out),
            Kind::Reset | Kind::Syn => {
                let stamp = connection.control_stamp(now, segment.kind);
                let flags = TcpFlags(stamp.bytes[13]);
                push_segment(out, self.attributes, &stamp, segment, flags)
            }
            _ => {
                let mut cursor = connection.send_queue.cursor(segment.sequence);
                self.attributes.run = 0;
                self.push_payload(connection, &mut cursor, segment, out)
            }
        }
    }

    #[inline]
    fn push_new(
        &mut self,
        connection: &Connection,
        segment: &mut Planned,
        out: &mut Multidata,
    ) -> bool {
        let mut cursor = match self.cursor {
            Some(cursor) => cursor,
            None => connection.send_queue.cursor(segment.sequence),
        };
        if segment.len == 0 {
            self.run_len = 0;
            self.attributes.run = 0;
        } else if segment.len > self.run_len {
            // The first of its run, or longer than those before it.
            self.run_len = segment.len;
            self.attributes.run = out.next_run();
        }
        if !self.push_payload(connection, &mut cursor, segment, out) {
            return false;
        }
        self.cursor = Some(cursor);
        if segment.len < self.run_len {
            // A shorter segment is the last of its run.
            self.run_len = 0;
        }
        true
    }

    #[inline]
    fn push_payload(
        &self,
        connection: &Connection,
        cursor: &mut Cursor,
        segment: &mut Planned,
        out: &mut Multidata,
    ) -> bool {
        let queue = &connection.send_queue;
        let mut flags = TcpFlags::ACK;
        if segment.fin {
            flags |= TcpFlags::FIN;
        }
        if segment.len > 0 && segment.sequence + segment.len == queue.end_sequence() {
            flags |= TcpFlags::PSH;
        }
        if !push_segment(out, self.attributes, &self.stamp, segment, flags) {
            return false;
        }
        if segment.len == 0 {
            return true;
        }
        let visited = queue.visit(
            cursor,
            segment.len as usize,
            SPANS_PER_SEGMENT_MAX,
            |block, offset, len| out.append_span(block, offset, len),
        );
        match visited {
            Some(len) if len == segment.len as usize => true,
            Some(len) if len > 0 => {
                // Too many pieces: a shorter segment, which can be the last of nothing.
                segment.len = len as u32;
                segment.fin = false;
                let shortened = TcpFlags::ACK;
                out.truncate(out.len() - 1);
                let mut again = queue.cursor(segment.sequence);
                *cursor = again;
                push_segment(out, self.attributes, &self.stamp, segment, shortened)
                    && queue
                        .visit(&mut again, len, SPANS_PER_SEGMENT_MAX, |block, offset, len| {
                            out.append_span(block, offset, len)
                        })
                        .inspect(|_| *cursor = again)
                        .is_some()
            }
            _ => {
                out.truncate(out.len() - 1);
                false
            }
        }
    }
}

/// Writes the header of one segment. The only place where a segment is made.
#[inline]
fn push_segment(
    out: &mut Multidata,
    attributes: Attributes,
    stamp: &Stamp,
    segment: &Planned,
    flags: TcpFlags,
) -> bool {
    let Some(header) = out.push_packet(stamp.len, attributes) else { return false };
    match header.first_chunk_mut::<STAMP_LEN_USUAL>() {
        // A copy of known length is a few moves instead of a call; segments of a stream are thus.
        Some(usual) if stamp.len == STAMP_LEN_USUAL => {
            usual.copy_from_slice(&stamp.bytes[..STAMP_LEN_USUAL]);
        }
        _ => header.copy_from_slice(&stamp.bytes[..stamp.len]),
    }
    header[4..8].copy_from_slice(&segment.sequence.0.to_be_bytes());
    header[13] = flags.0;
    true
}
