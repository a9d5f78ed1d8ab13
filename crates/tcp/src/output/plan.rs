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
    pub(super) cwnd_limited: bool,
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
}

impl Connection {
    /// Where planning begins now.
    #[inline]
    pub(super) fn planner_at(&self, now: Instant) -> Planner {
        // Only new data is held back, and who has none need not know.
        let released_bytes = match self.sender.queue.len_from(self.sender.sequence.nxt) {
            0 => u64::MAX,
            _ => self.sender.pacing_budget(now, &self.config, self.negotiated.payload_max()),
        };
        self.planner(self.receiver.payload_room(&self.negotiated), released_bytes)
    }

    fn planner(&self, full: u32, released_bytes: u64) -> Planner {
        let mss = self.negotiated.payload_max();
        let walk = self.sender.recovery.walk(
            &self.sender.sequence,
            self.sender.congestion.window(),
            mss,
            self.sender.congestion.governs_recovery(),
        );
        let mtu_probe = self.sender.path_mtu.due_probe();
        let due = self.receiver.acks.due_count();
        Planner {
            stage: match self.is_usual() && mtu_probe.is_none() {
                true => Stage::New,
                false => Stage::Control,
            },
            walk,
            nxt: self.sender.sequence.nxt,
            full,
            whole: self.sender.whole_super_frame(full, &self.negotiated),
            full_segments: 0,
            small_segments: 0,
            carries_ack: false,
            due,
            // A duplicate is reported by an ACK of its own: a burst of data would repeat it.
            repeats: self
                .receiver
                .acks
                .repeats()
                .max(u32::from(self.receiver.duplicates.next().is_some())),
            cwnd_limited: false,
            released_bytes,
            mtu_probe,
            window_closed: false,
        }
    }

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
            && self.sender.queue.len_from(self.sender.sequence.nxt) == 0
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
        let unsent = self.sender.queue.len_from(self.sender.sequence.nxt);
        self.is_usual()
            && self.sender.sequence.flight() == 0
            && unsent > 0
            && unsent <= self.sender.sequence.usable(self.sender.sequence.nxt)
            && !self.sender.cork.holds_back(false)
            && self.sender.pacing_budget(now, &self.config, self.negotiated.payload_max()) > 0
    }

    /// Decides on the next segment. The stages that seldom have one are functions of their own: the
    /// compiler would prepare for all of them whenever one is asked.
    #[inline]
    pub(super) fn next_segment(&self, planner: &mut Planner) -> Option<Planned> {
        loop {
            let next = match planner.stage {
                Stage::Control => self.next_control(planner),
                Stage::Due => self.next_due(planner),
                Stage::SendAgain => self.next_again(planner),
                Stage::LossProbe => self.next_loss_probe(planner),
                Stage::MtuProbe => self.next_mtu_probe(planner),
                Stage::New => match self.next_new(planner) {
                    NewData::Send(segment) => {
                        planner.nxt = segment.end();
                        planner.walk.pipe += segment.len;
                        planner.full_segments += u32::from(segment.len == planner.full);
                        planner.small_segments += u32::from(segment.len < planner.full);
                        let left = planner.released_bytes.saturating_sub(segment.len.into());
                        planner.released_bytes = left;
                        Some(segment)
                    }
                    NewData::CwndFull => {
                        planner.cwnd_limited = true;
                        None
                    }
                    NewData::Paced => {
                        // The rate follows from the window: who uses half of it would use all of
                        // it in time.
                        planner.cwnd_limited = planner.walk.pipe >= planner.walk.limit / 2;
                        None
                    }
                    NewData::WindowClosed => {
                        planner.window_closed = true;
                        None
                    }
                    NewData::Nothing => None,
                },
                Stage::Probe if !self.owing.is_probing() => None,
                Stage::Probe => self.next_probe(planner),
                Stage::Ack => self.next_ack(planner),
                Stage::Done => return None,
            };
            if let Some(segment) = next {
                planner.carries_ack |= !matches!(segment.kind, Kind::Reset | Kind::Syn | Kind::Due);
                return Some(segment);
            }
            planner.stage = match planner.stage {
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
    fn next_control(&self, planner: &mut Planner) -> Option<Planned> {
        let planned = |kind, sequence| Planned::one(kind, sequence, 0, false);
        if let Some(reset) = self.owing.reset {
            planner.stage = Stage::Done;
            if self.state != State::Closed {
                // A reset for a segment that the handshake cannot use; the rest goes on.
                planner.stage = Stage::Due;
            }
            return Some(planned(Kind::Reset, reset.sequence));
        }
        match self.state {
            State::Closed => planner.stage = Stage::Done,
            State::SynSent | State::SynReceived => {
                planner.stage = Stage::Done;
                if self.owing.syn {
                    let len = self.syn_data_len();
                    return Some(Planned { len, ..planned(Kind::Syn, self.sender.sequence.iss) });
                }
                if self.answers_early() {
                    // New data is what comes next.
                    planner.stage = Stage::MtuProbe;
                    return None;
                }
                if self.state == State::SynReceived && self.receiver.acks.owed() == Owed::Now {
                    return Some(planned(Kind::Ack, self.sender.sequence.nxt));
                }
            }
            _ => {}
        }
        None
    }

    #[inline(never)]
    fn next_again(&self, planner: &mut Planner) -> Option<Planned> {
        if !self.state.sends_data() {
            return None;
        }
        let again = self
            .sender
            .recovery
            .next(&mut planner.walk, planner.full, |it| in_record(&self.sender.queue, it))?;
        Some(self.plan_again(Kind::Again, again))
    }

    /// The last number of a range may be the FIN's.
    fn plan_again(&self, kind: Kind, again: Again) -> Planned {
        let len = again.len.min(self.sender.queue.len_from(again.sequence));
        Planned::one(kind, again.sequence, len, len < again.len)
    }

    /// TLP_send_probe (RFC 8985, 7.3): a segment of new data, whatever the congestion window says,
    /// or else the last one again.
    #[cold]
    fn next_loss_probe(&self, planner: &mut Planner) -> Option<Planned> {
        if !core::mem::take(&mut planner.walk.probe) || !self.state.sends_data() {
            return None;
        }
        let unsent = self.sender.queue.len_from(planner.nxt);
        let len = self.sender.queue.len_of_segment(planner.nxt, planner.full);
        if len > 0 && self.sender.sequence.usable(planner.nxt) >= len {
            let (sequence, fin) = (planner.nxt, self.owing.fin && len == unsent);
            let segment = Planned::one(Kind::LossProbe, sequence, len, fin);
            planner.nxt = segment.end();
            planner.small_segments += u32::from(len < planner.full);
            planner.walk.pipe += len;
            return Some(segment);
        }
        // Of those that left together the last, as they were cut then.
        let mut rest = self.sender.recovery.last_segments()?;
        loop {
            let len = rest.len.min(planner.full.max(1));
            let first = in_record(&self.sender.queue, Again { len, ..rest });
            if first.len >= rest.len {
                return Some(self.plan_again(Kind::LossProbe, first));
            }
            rest = Again { sequence: rest.sequence + first.len, len: rest.len - first.len };
        }
    }

    /// A longer segment than the others (RFC 4821, 7.4): of new data, with enough of it behind for
    /// its loss to be found out by SACK, and only where nothing else is amiss.
    #[cold]
    fn next_mtu_probe(&self, planner: &mut Planner) -> Option<Planned> {
        let mss = planner.mtu_probe.take()?;
        let is_calm = self.negotiated.sack
            && self.sender.recovery.state() == RecoveryState::Open
            && self.sender.recovery.sacked_bytes() + self.sender.recovery.lost_bytes() == 0;
        if !is_calm || !self.state.sends_data() || self.sender.ecn.owes_cwr() {
            return None;
        }
        let len = (planner.full + u32::from(mss)).checked_sub(self.negotiated.mss_path().into())?;
        let needed = len + PROBE_FOLLOWERS * planner.full;
        let queued = self.sender.queue.len_of_segment(planner.nxt, needed);
        let most = planner.walk.limit.min(self.sender.sequence.window).min(queued);
        if len <= planner.full || most < needed || planner.released_bytes == 0 {
            return None;
        }
        // What follows may wait for ACKs as other data does.
        let room = planner.walk.limit.saturating_sub(planner.walk.pipe);
        if room < len || self.sender.sequence.usable(planner.nxt) < needed {
            // A sender that always has data would never have so much room: it waits for it.
            planner.cwnd_limited |= room < len;
            planner.stage = Stage::New;
            return None;
        }
        let segment = Planned::one(Kind::MtuProbe, planner.nxt, len, false);
        planner.nxt = segment.end();
        planner.walk.pipe += len;
        planner.released_bytes = planner.released_bytes.saturating_sub(len.into());
        Some(segment)
    }

    /// Decides whether new data, or the FIN, may go: window, congestion window, Nagle, and the
    /// sender's silly window avoidance (RFC 9293, 3.8.6.2.1).
    #[inline]
    fn next_new(&self, planner: &Planner) -> NewData {
        if !self.state.sends_data() && !self.answers_early() {
            return NewData::Nothing;
        }
        let unsent = self.sender.queue.len_from(planner.nxt);
        let fin = self.has_fin_from(planner.nxt) && self.state != State::SynReceived;
        let segment = |len, fin| Planned::one(Kind::New, planner.nxt, len, fin);
        if unsent == 0 {
            return if fin { NewData::Send(segment(0, true)) } else { NewData::Nothing };
        }
        let wanted = self.sender.queue.len_of_segment(planner.nxt, planner.full);
        // What ends a record before others will not become longer.
        let is_tail = wanted < planner.full && wanted == unsent;
        let in_flight = planner.nxt != self.sender.sequence.una;
        let Some(len) = self.fit_window(planner.nxt, wanted) else { return NewData::WindowClosed };
        if len < wanted {
            // It goes as it is.
        } else if is_tail
            && self.sender.cork.holds_back(in_flight)
            && !fin
            && !self.urgent.is_sending()
        {
            // The application will add to it. What is urgent waits for nothing.
            return NewData::Nothing;
        } else if is_tail && in_flight && !fin && self.nagle_holds_back(planner) {
            return NewData::Nothing;
        }
        if !fin && self.is_crumb(planner, unsent) {
            return NewData::Nothing;
        }
        if planner.walk.limit.saturating_sub(planner.walk.pipe) < len && planner.walk.pipe > 0 {
            return NewData::CwndFull;
        }
        if planner.released_bytes == 0 {
            return NewData::Paced;
        }
        NewData::Send(segment(len, fin && len == unsent))
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

    /// Whether full segments that say the same may follow the one planned last, which was to have
    /// `asked` bytes.
    #[inline]
    pub(super) fn may_lead(&self, segment: &Planned, asked: u32, planner: &Planner) -> bool {
        segment.kind == Kind::New
            && segment.len == asked
            && segment.len == planner.full
            && !segment.fin
            && !self.urgent.is_sending()
            && !self.sender.queue.ends_at(segment.end())
    }

    /// How many full segments of new data may follow the one planned last: as many as
    /// [`Connection::next_new`] would send one by one, but for the last of the queue or of a record, which may push
    /// or end the stream.
    pub(super) fn more_new(&self, planner: &Planner) -> u32 {
        let full = planner.full;
        let unsent = self.sender.queue.len_from(planner.nxt);
        let cwnd = planner.walk.limit.saturating_sub(planner.walk.pipe);
        let bytes = self.sender.sequence.usable(planner.nxt).min(cwnd);
        // Not as far as the next end of a record, which may be many chunks away and is asked for again with each segment.
        let bytes = self.sender.queue.len_together(planner.nxt, bytes);
        let released = planner.released_bytes.div_ceil(full.into());
        let count = (bytes / full).min(u32::try_from(released).unwrap_or(u32::MAX));
        self.whole_count(planner, count, unsent - count * full)
    }

    /// RFC 9293, 3.7.4: Nagle. The last, short segment waits for all before it; or, by Minshall's
    /// modification (A.3), for the short one before it. Urgent data waits for nothing.
    fn nagle_holds_back(&self, planner: &Planner) -> bool {
        let has_small = planner.small_segments > 0 || self.sender.sequence.has_small_outstanding();
        !self.sender.nodelay && !self.urgent.is_sending() && (!self.lets_tails_go() || has_small)
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
        let planner = self.planner(self.receiver.payload_room(&self.negotiated), u64::MAX);
        let has_unsent = self.sender.queue.len_from(planner.nxt) > 0;
        has_unsent && matches!(self.next_new(&planner), NewData::Send(_) | NewData::CwndFull)
    }

    #[cold]
    fn next_probe(&self, planner: &mut Planner) -> Option<Planned> {
        if self.owing.window_probe
            && self.state.sends_data()
            && planner.nxt == self.sender.sequence.una
        {
            // RFC 9293, 3.8.6.1, MUST-36: one byte beyond the window.
            let len = self.sender.queue.len_from(planner.nxt).min(1);
            if len > 0 {
                let kind = Kind::WindowProbe;
                planner.stage = Stage::Ack;
                return Some(Planned::one(kind, planner.nxt, len, false));
            }
        }
        if self.owing.keepalive_probe && self.state.is_synchronized() {
            // A number that was acknowledged already makes the peer answer; no byte is sent
            // (RFC 9293, 3.8.4, SHLD-12).
            let sequence = self.sender.sequence.nxt - 1;
            planner.stage = Stage::Ack;
            return Some(Planned::one(Kind::KeepaliveProbe, sequence, 0, false));
        }
        None
    }

    /// Before what carries the newest number, behind which an older one would say nothing.
    #[cold]
    fn next_due(&self, planner: &mut Planner) -> Option<Planned> {
        planner.due = planner.due.checked_sub(1)?;
        Some(Planned::one(Kind::Due, planner.nxt, 0, false))
    }

    fn next_ack(&self, planner: &mut Planner) -> Option<Planned> {
        let owed =
            planner.repeats > 0 || (self.receiver.acks.owed() == Owed::Now && !planner.carries_ack);
        planner.repeats = planner.repeats.saturating_sub(1);
        owed.then_some(Planned::one(Kind::Ack, planner.nxt, 0, false))
    }
}
