//! What is to be sent next.
//!
//! ```text
//!   Control: reset, SYN -> Due: ACKs of earlier numbers -> SendAgain -> LossProbe -> MtuProbe
//!     -> New data, FIN -> Probe -> Ack -> Done
//! ```

use super::super_frame::Whole;
use super::{Kind, Planned};
use crate::connection::Connection;
use crate::receiver::acknowledging::Owed;
use crate::sender::congestion::Congestion as _;
use crate::sender::path_mtu::PROBE_FOLLOWERS;
use crate::sender::recovery::{Again, RecoveryState, Walk, in_record};
use crate::state::State;
use time::Instant;
use wire::SeqNumber;

/// How far planning has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Control,
    Due,
    SendAgain,
    LossProbe,
    MtuProbe,
    New,
    Probe,
    Ack,
    Done,
}

/// The state of planning: the little of the connection that a burst moves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planner {
    stage: Stage,
    pub(super) walk: Walk,
    /// SND.NXT behind what is planned.
    pub(super) nxt: SeqNumber,
    /// Payload bytes of a full segment behind this poll's header.
    pub(super) full: u32,
    /// What the device takes as one, where it does and that matters.
    pub(super) whole: Option<Whole>,
    /// Full segments of new data that are planned.
    pub(super) full_segments: u32,
    /// Segments of new data that are planned and are not full: they end records.
    small_segments: u32,
    /// An ACK goes out with what is planned already.
    carries_ack: bool,
    /// ACKs of earlier numbers still to be planned.
    due: usize,
    /// Duplicate ACKs still to be planned.
    repeats: u32,
    cwnd_limited: bool,
    /// Bytes of new data that are released.
    released_bytes: u64,
    /// A probe of the path's MTU is due, of this MSS.
    mtu_probe: Option<u16>,
    /// The peer's window holds new data back.
    pub(super) window_closed: bool,
}

/// What the new-data stage found.
enum NewData {
    Send(Planned),
    /// Nothing to send, or Nagle holds it back.
    Nothing,
    WindowClosed,
    CwndFull,
    /// It is not released yet.
    Paced,
}

impl Planner {
    /// Where planning begins now.
    pub(super) fn at(connection: &Connection, now: Instant) -> Self {
        let Connection { sender, negotiated, config, .. } = connection;
        // Only new data is held back, and who has none need not know.
        let released_bytes = match sender.unsent_len() {
            0 => u64::MAX,
            _ => sender.pacing_budget(now, config, negotiated.payload_max()),
        };
        Self::with(connection, released_bytes)
    }

    /// The same where so many bytes of new data are released.
    #[inline]
    fn with(connection: &Connection, released_bytes: u64) -> Self {
        let Connection { sender, receiver, negotiated, .. } = connection;
        let full = receiver.payload_room(negotiated);
        let walk = sender.recovery.walk(
            &sender.sequence,
            sender.congestion.window(),
            negotiated.payload_max(),
            sender.congestion.governs_recovery(),
        );
        let mtu_probe = sender.path_mtu.due_probe();
        // A duplicate is reported by an ACK of its own: a burst of data would repeat it.
        let reports = u32::from(receiver.duplicates.next().is_some());
        Self {
            stage: match connection.is_usual() && mtu_probe.is_none() {
                true => Stage::New,
                false => Stage::Control,
            },
            walk,
            nxt: sender.sequence.nxt,
            full,
            whole: sender.whole_super_frame(full, negotiated),
            full_segments: 0,
            small_segments: 0,
            carries_ack: false,
            due: receiver.acks.due_count(),
            repeats: receiver.acks.repeats().max(reports),
            cwnd_limited: false,
            released_bytes,
            mtu_probe,
            window_closed: false,
        }
    }

    /// Whether the window holds data back, or would hold back what is written next.
    pub(super) fn is_cwnd_limited(&self) -> bool {
        self.cwnd_limited || self.walk.limit.saturating_sub(self.walk.pipe) < self.full
    }

    /// `segment`, of new data, was planned last with `asked` bytes, and lies in too many pieces for that: what is
    /// missing is next.
    #[cold]
    pub(super) fn on_cut(&mut self, segment: &Planned, asked: u32) {
        self.nxt = segment.end();
        self.walk.pipe = self.walk.pipe.saturating_sub(asked - segment.len);
        if segment.kind == Kind::New {
            self.full_segments -= u32::from(asked == self.full);
        }
        self.small_segments -= u32::from(asked < self.full);
    }

    /// Behind the first of `segment`, which was planned, all others of it go as well.
    pub(super) fn on_more(&mut self, segment: &Planned) {
        let bytes = segment.bytes() - segment.len;
        self.nxt = segment.end();
        self.full_segments += segment.count - 1;
        self.walk.pipe += bytes;
        self.released_bytes = self.released_bytes.saturating_sub(bytes.into());
    }

    /// Decides on the next segment. The stages that seldom have one are functions of their own: the
    /// compiler would prepare for all of them whenever one is asked.
    #[inline]
    pub(super) fn next_segment(&mut self, connection: &Connection) -> Option<Planned> {
        loop {
            let next = match self.stage {
                Stage::Control => self.next_control(connection),
                Stage::Due => self.next_due(),
                Stage::SendAgain => self.next_again(connection),
                Stage::LossProbe => self.next_loss_probe(connection),
                Stage::MtuProbe => self.next_mtu_probe(connection),
                Stage::New => match self.next_new(connection) {
                    NewData::Send(segment) => {
                        self.nxt = segment.end();
                        self.walk.pipe += segment.len;
                        self.full_segments += u32::from(segment.len == self.full);
                        self.small_segments += u32::from(segment.len < self.full);
                        let left = self.released_bytes.saturating_sub(segment.len.into());
                        self.released_bytes = left;
                        Some(segment)
                    }
                    NewData::CwndFull => {
                        self.cwnd_limited = true;
                        None
                    }
                    NewData::Paced => {
                        // The rate follows from the window: who uses half of it would use all of
                        // it in time.
                        self.cwnd_limited = self.walk.pipe >= self.walk.limit / 2;
                        None
                    }
                    NewData::WindowClosed => {
                        self.window_closed = true;
                        None
                    }
                    NewData::Nothing => None,
                },
                Stage::Probe if !connection.owing.is_probing() => None,
                Stage::Probe => self.next_probe(connection),
                Stage::Ack => self.next_ack(connection),
                Stage::Done => return None,
            };
            if let Some(segment) = next {
                self.carries_ack |= !matches!(segment.kind, Kind::Reset | Kind::Syn | Kind::Due);
                return Some(segment);
            }
            self.stage = match self.stage {
                Stage::Control => Stage::Due,
                Stage::Due => Stage::SendAgain,
                Stage::SendAgain => Stage::LossProbe,
                Stage::LossProbe => Stage::MtuProbe,
                Stage::MtuProbe => Stage::New,
                Stage::New => Stage::Probe,
                Stage::Probe => Stage::Ack,
                Stage::Ack | Stage::Done => Stage::Done,
            };
        }
    }

    #[cold]
    fn next_control(&mut self, connection: &Connection) -> Option<Planned> {
        let planned = |kind, sequence| Planned::one(kind, sequence, 0, false);
        if let Some(reset) = connection.owing.reset {
            self.stage = Stage::Done;
            if connection.state != State::Closed {
                // A reset for a segment that the handshake cannot use; the rest goes on.
                self.stage = Stage::Due;
            }
            return Some(planned(Kind::Reset, reset.sequence));
        }
        match connection.state {
            State::Closed => self.stage = Stage::Done,
            State::SynSent | State::SynReceived => {
                self.stage = Stage::Done;
                if connection.owing.syn {
                    let len = connection.syn_data_len();
                    return Some(Planned {
                        len,
                        ..planned(Kind::Syn, connection.sender.sequence.iss)
                    });
                }
                if connection.answers_early() {
                    // New data is what comes next.
                    self.stage = Stage::MtuProbe;
                    return None;
                }
                if connection.state == State::SynReceived
                    && connection.receiver.acks.owed() == Owed::Now
                {
                    return Some(planned(Kind::Ack, connection.sender.sequence.nxt));
                }
            }
            _ => {}
        }
        None
    }

    /// Before what carries the newest number, behind which an older one would say nothing.
    #[cold]
    fn next_due(&mut self) -> Option<Planned> {
        self.due = self.due.checked_sub(1)?;
        Some(Planned::one(Kind::Due, self.nxt, 0, false))
    }

    #[inline(never)]
    fn next_again(&mut self, connection: &Connection) -> Option<Planned> {
        let sender = &connection.sender;
        if !connection.state.sends_data() {
            return None;
        }
        let again =
            sender.recovery.next(&mut self.walk, self.full, |it| in_record(&sender.queue, it))?;
        Some(Planned::again(Kind::Again, again, &sender.queue))
    }

    /// TLP_send_probe (RFC 8985, 7.3): a segment of new data, whatever the congestion window says,
    /// or else the last one again.
    #[cold]
    fn next_loss_probe(&mut self, connection: &Connection) -> Option<Planned> {
        let sender = &connection.sender;
        if !core::mem::take(&mut self.walk.probe) || !connection.state.sends_data() {
            return None;
        }
        let unsent = sender.queue.len_from(self.nxt);
        let len = sender.queue.len_of_segment(self.nxt, self.full);
        if len > 0 && sender.sequence.usable(self.nxt) >= len {
            let (sequence, fin) = (self.nxt, connection.owing.fin && len == unsent);
            let segment = Planned::one(Kind::LossProbe, sequence, len, fin);
            self.nxt = segment.end();
            self.small_segments += u32::from(len < self.full);
            self.walk.pipe += len;
            return Some(segment);
        }
        // Of those that left together the last, as they were cut then.
        let mut rest = sender.recovery.last_segments()?;
        loop {
            let len = rest.len.min(self.full.max(1));
            let first = in_record(&sender.queue, Again { len, ..rest });
            if first.len >= rest.len {
                return Some(Planned::again(Kind::LossProbe, first, &sender.queue));
            }
            rest = Again { sequence: rest.sequence + first.len, len: rest.len - first.len };
        }
    }

    /// A longer segment than the others (RFC 4821, 7.4): of new data, with enough of it behind for
    /// its loss to be found out by SACK, and only where nothing else is amiss.
    #[cold]
    fn next_mtu_probe(&mut self, connection: &Connection) -> Option<Planned> {
        let sender = &connection.sender;
        let mss = self.mtu_probe.take()?;
        let is_calm = connection.negotiated.sack
            && sender.recovery.state() == RecoveryState::Open
            && sender.recovery.sacked_bytes() + sender.recovery.lost_bytes() == 0;
        if !is_calm || !connection.state.sends_data() || sender.ecn.owes_cwr() {
            return None;
        }
        let len =
            (self.full + u32::from(mss)).checked_sub(connection.negotiated.mss_path().into())?;
        let needed = len + PROBE_FOLLOWERS * self.full;
        let queued = sender.queue.len_of_segment(self.nxt, needed);
        let most = self.walk.limit.min(sender.sequence.window).min(queued);
        if len <= self.full || most < needed || self.released_bytes == 0 {
            return None;
        }
        // What follows may wait for ACKs as other data does.
        let room = self.walk.limit.saturating_sub(self.walk.pipe);
        if room < len || sender.sequence.usable(self.nxt) < needed {
            // A sender that always has data would never have so much room: it waits for it.
            self.cwnd_limited |= room < len;
            self.stage = Stage::New;
            return None;
        }
        let segment = Planned::one(Kind::MtuProbe, self.nxt, len, false);
        self.nxt = segment.end();
        self.walk.pipe += len;
        self.released_bytes = self.released_bytes.saturating_sub(len.into());
        Some(segment)
    }

    /// Decides whether new data, or the FIN, may go: window, congestion window, Nagle, and the
    /// sender's silly window avoidance (RFC 9293, 3.8.6.2.1).
    #[inline]
    fn next_new(&self, connection: &Connection) -> NewData {
        let sender = &connection.sender;
        if !connection.state.sends_data() && !connection.answers_early() {
            return NewData::Nothing;
        }
        let unsent = sender.queue.len_from(self.nxt);
        let fin = connection.has_fin_from(self.nxt) && connection.state != State::SynReceived;
        let segment = |len, fin| Planned::one(Kind::New, self.nxt, len, fin);
        if unsent == 0 {
            return if fin { NewData::Send(segment(0, true)) } else { NewData::Nothing };
        }
        let wanted = sender.queue.len_of_segment(self.nxt, self.full);
        // What ends a record before others will not become longer.
        let is_tail = wanted < self.full && wanted == unsent;
        let in_flight = self.nxt != sender.sequence.una;
        let Some(len) = connection.fit_window(self.nxt, wanted) else {
            return NewData::WindowClosed;
        };
        if len < wanted {
            // It goes as it is.
        } else if is_tail
            && sender.cork.holds_back(in_flight)
            && !fin
            && !connection.urgent.is_sending()
        {
            // The application will add to it. What is urgent waits for nothing.
            return NewData::Nothing;
        } else if is_tail && in_flight && !fin && self.nagle_holds_back(connection) {
            return NewData::Nothing;
        }
        if !fin && self.is_crumb(connection, unsent) {
            return NewData::Nothing;
        }
        if self.walk.limit.saturating_sub(self.walk.pipe) < len && self.walk.pipe > 0 {
            return NewData::CwndFull;
        }
        if self.released_bytes == 0 {
            return NewData::Paced;
        }
        NewData::Send(segment(len, fin && len == unsent))
    }

    /// Whether full segments that say the same may follow the one planned last, which was to have
    /// `asked` bytes.
    #[inline]
    pub(super) fn may_lead(&self, connection: &Connection, segment: &Planned, asked: u32) -> bool {
        segment.kind == Kind::New
            && segment.len == asked
            && segment.len == self.full
            && !segment.fin
            && !connection.urgent.is_sending()
            && !connection.sender.queue.ends_at(segment.end())
    }

    /// How many full segments of new data may follow the one planned last: as many as
    /// [`Planner::next_new`] would send one by one, but for the last of the queue or of a record, which may push
    /// or end the stream.
    pub(super) fn more_new(&self, connection: &Connection) -> u32 {
        let sender = &connection.sender;
        let full = self.full;
        let unsent = sender.queue.len_from(self.nxt);
        let cwnd = self.walk.limit.saturating_sub(self.walk.pipe);
        let bytes = sender.sequence.usable(self.nxt).min(cwnd);
        // Not as far as the next end of a record, which may be many chunks away and is asked for again with each segment.
        let bytes = sender.queue.len_together(self.nxt, bytes);
        let released = self.released_bytes.div_ceil(full.into());
        let count = (bytes / full).min(u32::try_from(released).unwrap_or(u32::MAX));
        self.whole_count(connection, count, unsent - count * full)
    }

    /// RFC 9293, 3.7.4: Nagle. The last, short segment waits for all before it; or, by Minshall's
    /// modification (A.3), for the short one before it. Urgent data waits for nothing.
    fn nagle_holds_back(&self, connection: &Connection) -> bool {
        let has_small =
            self.small_segments > 0 || connection.sender.sequence.has_small_outstanding();
        !connection.sender.nodelay
            && !connection.urgent.is_sending()
            && (!connection.lets_tails_go() || has_small)
    }

    #[cold]
    fn next_probe(&mut self, connection: &Connection) -> Option<Planned> {
        if connection.owing.window_probe
            && connection.state.sends_data()
            && self.nxt == connection.sender.sequence.una
        {
            // RFC 9293, 3.8.6.1, MUST-36: one byte beyond the window.
            let len = connection.sender.queue.len_from(self.nxt).min(1);
            if len > 0 {
                let kind = Kind::WindowProbe;
                self.stage = Stage::Ack;
                return Some(Planned::one(kind, self.nxt, len, false));
            }
        }
        if connection.owing.keepalive_probe && connection.state.is_synchronized() {
            // A number that was acknowledged already makes the peer answer; no byte is sent
            // (RFC 9293, 3.8.4, SHLD-12).
            let sequence = connection.sender.sequence.nxt - 1;
            self.stage = Stage::Ack;
            return Some(Planned::one(Kind::KeepaliveProbe, sequence, 0, false));
        }
        None
    }

    fn next_ack(&mut self, connection: &Connection) -> Option<Planned> {
        let owed =
            self.repeats > 0 || (connection.receiver.acks.owed() == Owed::Now && !self.carries_ack);
        self.repeats = self.repeats.saturating_sub(1);
        owed.then_some(Planned::one(Kind::Ack, self.nxt, 0, false))
    }
}

impl Connection {
    /// Behind the handshake, without a reset, a loss, a probe or an ACK that is due, the stages before new data have
    /// nothing to say, but for a probe of the path's MTU.
    #[inline]
    fn is_usual(&self) -> bool {
        self.state.is_synchronized()
            && self.owing.reset.is_none()
            && !self.sender.recovery.probe.owed
            && self.receiver.acks.due_count() == 0
            && self.sender.recovery.lost_bytes() == 0
    }

    /// Whether the FIN stands at `nxt` or behind it.
    #[inline]
    fn has_fin_from(&self, nxt: SeqNumber) -> bool {
        self.owing.fin && nxt.is_at_or_before(self.sender.queue.end_sequence())
    }

    /// Whether all is sent and nothing is owed: so it is after most of what is done with a connection, and who
    /// only asks need not plan for that.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.is_usual()
            && self.sender.unsent_len() == 0
            && !self.has_fin_from(self.sender.sequence.nxt)
            && !self.owing.is_probing()
            && self.receiver.acks.owed() != Owed::Now
            && self.receiver.acks.repeats() == 0
            && self.receiver.duplicates.next().is_none()
    }

    /// Whether new data goes for certain: nothing is in flight that it could wait for, the peer's window takes all of
    /// it, and neither a cork nor the rate holds it back. So it is when an application writes that waited for an
    /// answer, and who only asks need not plan for that either.
    #[inline]
    pub(super) fn goes_at_once(&self, now: Instant) -> bool {
        let unsent = self.sender.unsent_len();
        self.is_usual()
            && self.sender.sequence.flight() == 0
            && unsent > 0
            && unsent <= self.sender.sequence.usable(self.sender.sequence.nxt)
            && !self.sender.cork.holds_back(false)
            && self.sender.pacing_budget(now, &self.config, self.negotiated.payload_max()) > 0
    }

    /// How many of `len` bytes from `nxt` on the peer's window lets go; none where what it has room for is not worth
    /// sending. MUST-38, rule 3: half of the largest window the peer ever had is, and when the override timer went
    /// off, whatever fits.
    #[inline]
    fn fit_window(&self, nxt: SeqNumber, len: u32) -> Option<u32> {
        let usable = self.sender.sequence.usable(nxt);
        if usable >= len {
            return Some(len);
        }
        let override_timer = self.owing.window_probe && nxt == self.sender.sequence.una;
        let is_worth_it = usable >= self.sender.sequence.window_max / 2 || override_timer;
        (usable > 0 && is_worth_it).then_some(usable)
    }

    /// Whether the short end of a large write goes with the rest. Not where the device takes super-frames
    /// and the path is near: it would be one by itself, and what is written next would fill it.
    fn lets_tails_go(&self) -> bool {
        self.config.minshall && !self.sender.waits_for_more()
    }

    /// Whether data waits that only the peer's window holds back.
    pub(crate) fn is_window_closed(&self) -> bool {
        let wanted = self
            .sender
            .queue
            .len_of_segment(self.sender.sequence.nxt, self.receiver.payload_room(&self.negotiated));
        let sends = self.state.sends_data() || self.answers_early();
        sends && wanted > 0 && self.fit_window(self.sender.sequence.nxt, wanted).is_none()
    }

    /// Whether new data waits for nothing but the congestion window, so that F-RTO may send it in the place of
    /// what seems lost (RFC 5682, 3.1, step 2.b).
    #[cold]
    pub(crate) fn has_new_data(&self) -> bool {
        let planner = Planner::with(self, u64::MAX);
        let has_unsent = self.sender.queue.len_from(planner.nxt) > 0;
        has_unsent && matches!(planner.next_new(self), NewData::Send(_) | NewData::CwndFull)
    }
}
