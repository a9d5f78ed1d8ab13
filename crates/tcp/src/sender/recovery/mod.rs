//! What is lost, what to send again, and when.
//!
//! ```text
//!        RACK (SACK), 3 duplicate ACKs (without)           all up to the point acknowledged
//!   Open --------------------------------------> Fast -------------------------------------> Open
//!     \            retransmission timer            |          or a mistake: undone             ^
//!      +-------------------------------------------+--> Loss ----------------------------------+
//! ```
//!
//! [`crate::sender::sent`] knows what was sent when and what became of it; this module decides:
//!
//! - [`rack`] and [`probe`] (RFC 8985) say what is lost, from time. With SACK they stand in the
//!   place of RFC 6675's counting, whose threshold lives on in the reordering window, and whose rules
//!   3 and 4 for the tail they make needless: a retransmission that arrives proves that whatever
//!   was sent before it is lost;
//! - without SACK three duplicate ACKs say so of the first segment and each partial ACK of the next
//!   (RFC 5681, RFC 6582);
//! - [`prr`] (RFC 9937) says how much each ACK may send in Fast; in Loss the congestion window does;
//! - [`undo`] (RFC 3522, RFC 5682, RFC 3708) finds out when it all was a mistake.
//!
//! What is in the network is what was sent and is neither SACKed nor lost (RFC 6675's pipe). SND.NXT
//! never moves back. Planning works on a [`Walk`], a copy of the little that moves, so that what the
//! device does not take leaves no trace.

mod flight;
mod probe;
mod prr;
mod rack;
pub(crate) mod sack;
mod undo;

use crate::info::SegmentCounts;
use crate::sender::queue::SendQueue;
use crate::sender::rate::{DeliveryRate, Gathered};
use crate::sender::sent::{Fate, Record};
use crate::sender::sequence::SendSequence;
use probe::TailProbe;
use prr::Prr;
use rack::Rack;
use time::{Duration, Instant};
use undo::{Frto, Undo};
use wire::SeqNumber;

pub(crate) use flight::Flight;
pub(crate) use probe::ProbeVerdict;
pub(crate) use undo::Witness;

/// `DupThresh` (RFC 5681, 3.2; RFC 8985, 6.2).
pub(crate) const DUPLICATE_THRESHOLD: u32 = 3;

/// What the sender does about loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecoveryState {
    /// No loss is known.
    Open,
    /// Fast recovery (RFC 5681, RFC 6675).
    Fast,
    /// After the retransmission timer went off (RFC 6298).
    Loss,
}

/// The state of a planned burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// Lost ranges before this are planned already.
    position: SeqNumber,
    /// The first lost segment goes out whatever the window says.
    force: bool,
    /// F-RTO: new data goes before what is lost.
    hold: bool,
    /// A tail loss probe is to go out.
    pub(crate) probe: bool,
    /// Bytes in the network, planned ones included.
    pub(crate) pipe: u32,
    /// The bound of `pipe`.
    pub(crate) limit: u32,
}

impl Walk {
    /// The range planned last ends at `end` already, `missing` bytes short: what is missing is next.
    pub(crate) fn on_shortened(&mut self, end: SeqNumber, missing: u32) {
        self.position = self.position.earlier_of(end);
        self.pipe = self.pipe.saturating_sub(missing);
    }
}

/// A range to send again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    pub(crate) sequence: SeqNumber,
    pub(crate) len: u32,
}

/// What of a range is in the record in which it begins. The last number of a range may be the FIN's.
pub(crate) fn in_record(queue: &SendQueue, again: Again) -> Again {
    let queued = again.len.min(queue.len_from(again.sequence));
    let len = queue.len_of_segment(again.sequence, queued);
    if len < queued { Again { len, ..again } } else { again }
}

/// What one ACK took out of the network.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivered {
    /// Newly acknowledged or SACKed bytes. Without SACK a duplicate ACK counts as a segment.
    pub(crate) bytes: u32,
    /// Of these, SACKed.
    pub(crate) sacked_bytes: u32,
    /// SACKed before this ACK.
    pub(crate) sacked_before: u32,
    /// When the first acknowledged part was sent of which that is known and which was sent once.
    pub(crate) first_sent_at: Option<Instant>,
    /// The byte at SND.UNA was sent again, and a copy from before that was acknowledged.
    pub(crate) is_first_late: bool,
    /// Something was acknowledged that was sent more than once.
    pub(crate) ambiguous: bool,
    /// Something that was sent once, before the last timeout.
    pub(crate) original: bool,
    /// Arrived in another order than it was sent in.
    pub(crate) reordered: bool,
    /// What had been SACKed is not there any more.
    pub(crate) reneged: bool,
    /// Edges of blocks that were refused because there are too many records.
    pub(crate) refused_count: u32,
    pub(crate) gathered: Gathered,
}

/// What loss detection looks at beside the records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrips {
    pub(crate) min: Option<Duration>,
    pub(crate) smoothed: Option<Duration>,
}

/// Newly found losses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    pub(crate) bytes: u32,
    /// Ranges that had been sent again and were lost again.
    pub(crate) again_count: u32,
    /// The reordering timer (RFC 8985, 6.2, step 5).
    pub(crate) next_at: Option<Instant>,
}

/// What one recovery needs.
#[derive(Debug)]
struct Episode {
    prr: Prr,
    undo: Undo,
}

#[derive(Debug)]
pub(crate) struct Recovery {
    /// What is outstanding; an idle connection has none.
    flight: Option<Box<Flight>>,
    pub(crate) probe: TailProbe,
    pub(crate) rack: Rack,
    pub(crate) rate: DeliveryRate,
    state: RecoveryState,
    /// RecoveryPoint, or RFC 6582's recover: one past what had been sent when loss was noticed.
    point: SeqNumber,
    duplicate_acks: u16,
    /// How far the last ACK that moved SND.UNA moved it, or further than can be said here.
    advance_bytes: u16,
    /// Each segment takes several ways, so what arrives twice says nothing of what was sent again.
    pub(crate) path_duplicates: bool,
    /// Without SACK: bytes that duplicate ACKs say have left the network.
    departed_bytes: u32,
    /// The first lost segment goes out whatever the window says.
    force: bool,
    frto: Frto,
    /// What was sent before the newest that was delivered has until [`Losses::next_at`] to be heard of.
    awaits_order: bool,
    /// Of the recovery that is under way, or of the last one for as long as it may be taken back.
    episode: Option<Box<Episode>>,
    /// Sent again and not reported as duplicates: as much of that is believed.
    unreported_bytes: u32,
    sack: bool,
    /// Loss was entered for a narrower path.
    is_unreduced: bool,
}

impl Recovery {
    pub(crate) fn new(iss: SeqNumber) -> Self {
        Self {
            flight: None,
            probe: TailProbe::default(),
            rack: Rack::new(iss),
            rate: DeliveryRate::default(),
            state: RecoveryState::Open,
            point: iss,
            duplicate_acks: 0,
            advance_bytes: 0,
            path_duplicates: false,
            departed_bytes: 0,
            force: false,
            frto: Frto::Off,
            awaits_order: false,
            episode: None,
            unreported_bytes: 0,
            sack: false,
            is_unreduced: false,
        }
    }

    pub(crate) fn set_sack(&mut self, sack: bool) {
        self.sack = sack;
    }

    pub(crate) fn state(&self) -> RecoveryState {
        self.state
    }

    /// Bytes in the network (RFC 6675, 4).
    #[inline]
    pub(crate) fn pipe(&self, send: &SendSequence) -> u32 {
        let left = self.sacked_bytes() + self.lost_bytes();
        let departed = if self.sack { 0 } else { self.departed_bytes };
        send.flight().saturating_sub(left).saturating_sub(departed)
    }

    /// The bound of what is in the network; `cwnd` is the controller's, who bounds recovery too where
    /// it `governs` it.
    fn limit(&self, cwnd: u32, mss: u32, governs: bool) -> u32 {
        match &self.episode {
            Some(episode) if self.state == RecoveryState::Fast && !governs => episode.prr.window(),
            // RFC 3042, limited transmit: two duplicate ACKs have made the pipe two segments shorter.
            _ => cwnd.max(mss),
        }
    }

    /// Where a burst begins.
    #[inline]
    pub(crate) fn walk(&self, send: &SendSequence, cwnd: u32, mss: u32, governs: bool) -> Walk {
        Walk {
            position: send.una,
            force: self.force,
            hold: self.frto == Frto::NewData,
            probe: self.probe.owed,
            pipe: self.pipe(send),
            limit: self.limit(cwnd, mss, governs),
        }
    }

    /// The next range to send again, at most `len_max` bytes, of which one segment may have what `part` leaves; moves
    /// the walk on.
    #[inline]
    pub(crate) fn next(
        &self,
        walk: &mut Walk,
        len_max: u32,
        part: impl FnOnce(Again) -> Again,
    ) -> Option<Again> {
        if walk.hold || self.lost_bytes() == 0 {
            return None;
        }
        let (sequence, len) = self.flight.as_ref()?.sent.next_lost(walk.position, len_max)?;
        let Again { sequence, len } = part(Again { sequence, len });
        let room = walk.limit.saturating_sub(walk.pipe);
        if room < len && !walk.force {
            return None;
        }
        walk.force = false;
        walk.position = sequence + len;
        walk.pipe = walk.pipe.saturating_add(len);
        Some(Again { sequence, len })
    }

    /// New data was sent: everything from `start` to SND.NXT. Records are kept in memory that lies ready in `spare`.
    #[inline]
    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        start: SeqNumber,
        send: &SendSequence,
        spare: Option<&mut Option<Box<Flight>>>,
    ) {
        let pipe = self.pipe(send);
        let len = send.nxt.offset_from(start);
        let snapshot = self.rate.on_sent(now, pipe.saturating_sub(len), pipe);
        let begin = || Flight::begin(start, spare.and_then(Option::take));
        let flight = self.flight.get_or_insert_with(begin);
        flight.sent.on_sent(now, start, send.nxt, snapshot);
        if let Some(episode) = &mut self.episode {
            episode.prr.on_sent(len);
        }
    }

    /// A range was sent again, stamped with `timestamp` of our clock.
    pub(crate) fn on_sent_again(
        &mut self,
        now: Instant,
        again: Again,
        send: &SendSequence,
        timestamp: Option<u32>,
    ) {
        let Again { sequence, len } = again;
        self.force = false;
        let pipe = self.pipe(send);
        let snapshot = self.rate.on_sent(now, pipe, pipe.saturating_add(len));
        if let Some(flight) = &mut self.flight {
            flight.sent.on_sent_again(now, sequence, sequence + len, snapshot);
        }
        self.unreported_bytes = self.unreported_bytes.saturating_add(len);
        if let Some(episode) = &mut self.episode {
            episode.undo.on_sent_again(len, timestamp);
            episode.prr.on_sent(len);
        }
    }

    /// An ACK says what was delivered: all before `una`, and what its blocks report.
    /// `is_earlier_copy`: whether the echoed timestamp is from before this instant. `delivered` is where it is told,
    /// and was nothing before.
    #[inline]
    pub(crate) fn on_delivered(
        &mut self,
        now: Instant,
        (una, report): (SeqNumber, &sack::Report),
        min_rtt: Option<Duration>,
        mss: u32,
        is_earlier_copy: impl Fn(Instant) -> bool,
        delivered: &mut Delivered,
    ) {
        delivered.sacked_before = self.sacked_bytes();
        let Self { flight, rack, rate, point, .. } = self;
        let Some(flight_now) = flight.as_deref_mut() else { return };
        let Flight { sent, newest, recounted_until } = flight_now;
        let mut take = |part: &Record, delivered: &mut Delivered| {
            let again = part.is_again();
            delivered.ambiguous |= again;
            // What was sent a moment before the timeout was not taken for lost, and proves nothing of what was.
            let was_lost = part.fate == Fate::Lost;
            delivered.original |= !again && was_lost && part.end.is_at_or_before(*point);
            delivered.bytes += part.len();
            let earlier_copy = again && is_earlier_copy(part.sent_at);
            delivered.reordered |= rack.on_delivered(now, part, newest, earlier_copy, min_rtt, mss);
            let gathered = &mut delivered.gathered;
            let is_unsure = again || part.is_joined;
            rate.on_delivered(now, part.len(), &part.snapshot, part.sent_at, is_unsure, gathered);
            if part.was_sacked {
                *recounted_until = rate.delivered_bytes();
            }
        };
        delivered.reneged = sent.on_ack(una, &mut |part| {
            if !part.is_again() {
                if !part.is_joined {
                    delivered.first_sent_at.get_or_insert(part.sent_at);
                }
            } else if delivered.bytes == 0 {
                delivered.is_first_late = is_earlier_copy(part.sent_at);
            }
            take(part, delivered);
        });
        for (start, end) in report.blocks() {
            let sacked = sent.on_sack(start, end, &mut |part| take(part, delivered));
            delivered.sacked_bytes += sacked.newly_bytes;
            delivered.refused_count += sacked.refused_count;
        }
        delivered.gathered.leave_out_before(*recounted_until);
    }

    /// After [`Recovery::on_delivered`]: where nothing is outstanding any more, the memory for records is given up.
    #[inline]
    pub(crate) fn give_up_flight(&mut self, spare: Option<&mut Option<Box<Flight>>>) {
        if self.flight.as_ref().is_some_and(|flight| flight.sent.is_empty()) {
            let flight = self.flight.take();
            if let Some(spare) = spare {
                *spare = flight;
            }
        }
    }

    /// SND.UNA moved by `acked` bytes; the records know already. Says what was delivered: without
    /// SACK the duplicate ACKs before this one had reported some of it (RFC 9937, 6).
    #[inline]
    pub(crate) fn on_new_ack(&mut self, send: &SendSequence, acked: u32) -> u32 {
        self.duplicate_acks = 0;
        self.advance_bytes = u16::try_from(acked).unwrap_or(u16::MAX);
        self.probe.owed = false;
        self.rack.on_una(send.una);
        if self.episode.as_ref().is_some_and(|episode| episode.undo.is_past(send.una)) {
            self.episode = None;
        }
        if self.state == RecoveryState::Open && send.una.is_after(self.point) {
            // Passed for good: it must not lie ahead again once the numbers have wrapped.
            self.point = send.una - 1;
        }
        let departed = self.departed_bytes.min(acked);
        self.departed_bytes -= departed;
        acked - departed
    }

    /// A duplicate ACK (RFC 5681, 2), with SACK one that reported something new (RFC 6675, 2). Says
    /// how many bytes it delivered beyond what SACK blocks told.
    pub(crate) fn on_duplicate_ack(&mut self, send: &SendSequence, mss: u32) -> u32 {
        if self.path_duplicates && !self.sack {
            return 0;
        }
        self.duplicate_acks = self.duplicate_acks.saturating_add(1);
        let is_beyond_limited_transmit = self.state == RecoveryState::Open
            && u32::from(self.duplicate_acks) >= DUPLICATE_THRESHOLD
            && !send.una.is_after(self.point);
        if self.sack || is_beyond_limited_transmit {
            return 0;
        }
        // All but the first segment may have left; a peer that sends more duplicates than there are
        // segments gains nothing by it (RFC 5681, 13).
        let mut room = send.flight().saturating_sub(mss).saturating_sub(self.lost_bytes());
        if self.state == RecoveryState::Open {
            // RFC 3042, 2: what is outstanding stays within cwnd and two segments, however many
            // duplicates our own needless retransmissions drew before.
            room = room.min(2 * mss);
        }
        let before = self.departed_bytes;
        self.departed_bytes = before.saturating_add(mss).min(room).max(before);
        self.departed_bytes - before
    }

    /// The receiver reported a range as arrived twice (RFC 2883). Says whether it is believed: only
    /// of what was sent again, and no more than that.
    pub(crate) fn on_duplicate_report(&mut self, send: &SendSequence, block: sack::Block) -> bool {
        let (start, end) = block;
        let len = end.offset_from(start);
        let was_again = start.is_before(send.una)
            || self.flight.as_ref().is_some_and(|flight| flight.sent.is_again_at(start));
        let is_believed = was_again && !self.path_duplicates;
        if end.is_after(send.nxt) || len > self.unreported_bytes || !is_believed {
            return false;
        }
        self.unreported_bytes -= len;
        if let Some(episode) = &mut self.episode {
            episode.undo.on_duplicate(start, end);
        }
        if !self.probe.repeats_up_to(end) {
            self.rack.on_duplicate(send.nxt);
        }
        true
    }

    /// Finds what is lost now. Of a range one segment may have what `part` leaves.
    pub(crate) fn detect(
        &mut self,
        now: Instant,
        send: &SendSequence,
        partial: bool,
        round_trips: impl FnOnce() -> RoundTrips,
        mss: u32,
        part: impl FnOnce(Again) -> Again,
    ) -> Losses {
        if !self.sack {
            return self.detect_by_counting(send, partial, mss, part);
        }
        let is_quiet = self.state == RecoveryState::Open
            && self.sacked_bytes() == 0
            && !self.has_again()
            && !self.awaits_order;
        if is_quiet {
            return Losses::default();
        }
        let settled = self.state != RecoveryState::Open || self.is_threshold_reached(mss);
        let RoundTrips { min, smoothed } = round_trips();
        let window = self.rack.reordering_window(settled, min, smoothed);
        self.awaits_order = false;
        let Self { flight, rate, .. } = self;
        let Some(Flight { sent, newest, .. }) = flight.as_deref_mut() else {
            return Losses::default();
        };
        let judged = sent.judge(now, newest.sent, newest.rtt + window, &mut |part| {
            rate.on_lost(part.len(), &part.snapshot);
        });
        self.awaits_order = judged.next_at.is_some();
        Losses {
            bytes: judged.lost_bytes,
            again_count: judged.lost_again_count,
            next_at: judged.next_at,
        }
    }

    /// RFC 6675's threshold: three duplicate ACKs, or more than two segments above.
    fn is_threshold_reached(&self, mss: u32) -> bool {
        u32::from(self.duplicate_acks) >= DUPLICATE_THRESHOLD
            || self.sacked_bytes() > (DUPLICATE_THRESHOLD - 1) * mss
    }

    fn detect_by_counting(
        &mut self,
        send: &SendSequence,
        partial: bool,
        mss: u32,
        part: impl FnOnce(Again) -> Again,
    ) -> Losses {
        // RFC 6582, 3.2 step 1: duplicates caused by our own retransmissions of an earlier episode
        // do not begin another. (4.1: those jump over what had arrived.)
        let is_small_step =
            self.advance_bytes < u16::MAX && u32::from(self.advance_bytes) <= 4 * mss;
        let is_next_hole = send.una == self.point && is_small_step && send.flight() > mss;
        let begins = self.state == RecoveryState::Open
            && u32::from(self.duplicate_acks) >= DUPLICATE_THRESHOLD
            && (send.una.is_after(self.point) || is_next_hole);
        // RFC 6582, 3.2 step 3: a partial ACK. The next segment is lost too; after a timeout, what F-RTO
        // sent before the retransmissions that this answers.
        let goes_on =
            self.state != RecoveryState::Open && partial && send.una.is_before(self.point);
        if !begins && !goes_on {
            return Losses::default();
        }
        self.force |= goes_on && self.state == RecoveryState::Fast;
        let Self { flight, rate, .. } = self;
        let mut losses = Losses::default();
        let Some(flight) = flight else { return losses };
        let first = part(Again { sequence: send.una, len: mss });
        flight.sent.mark_first_lost(first.len, &mut |part| {
            losses.bytes += part.len();
            rate.on_lost(part.len(), &part.snapshot);
        });
        losses
    }

    /// Whether fast recovery is to begin: something is lost, and no recovery is under way.
    pub(crate) fn wants_fast(&self) -> bool {
        self.state == RecoveryState::Open && self.lost_bytes() > 0
    }

    pub(crate) fn enter_fast(
        &mut self,
        send: &SendSequence,
        flight_before: u32,
        sacked_before: u32,
    ) {
        self.state = RecoveryState::Fast;
        self.point = send.nxt;
        let prr = Prr::on_enter(flight_before, sacked_before);
        self.begin_episode(send, prr);
        self.probe.clear();
    }

    fn begin_episode(&mut self, send: &SendSequence, prr: Prr) {
        let undo = Undo::on_enter(send.una, send.nxt, self.reportable_bytes());
        self.episode = Some(Box::new(Episode { prr, undo }));
    }

    /// Bytes that were sent again and of which the receiver may still report a copy as a duplicate: those
    /// in flight, and what the outstanding probe repeated, whose original may have been SACKed since.
    fn reportable_bytes(&self) -> u32 {
        let is_counted = |start: SeqNumber| {
            let mut records = self.flight.iter().flat_map(|flight| flight.sent.iter());
            records.any(|record| {
                let holds = !start.is_before(record.start) && start.is_before(record.end);
                holds && record.is_again() && record.fate == Fate::Flying
            })
        };
        let probe = self.probe.repeated().filter(|(start, _)| !is_counted(*start));
        let probe_bytes = probe.map_or(0, |(start, end)| end.offset_from(start));
        self.again_bytes().saturating_add(probe_bytes).min(self.unreported_bytes)
    }

    /// The window of fast recovery behind this ACK (RFC 9937).
    pub(crate) fn reduce(
        &mut self,
        send: &SendSequence,
        delivered_bytes: u32,
        threshold: u32,
        safe: bool,
        mss: u32,
    ) {
        let pipe = self.pipe(send);
        if let Some(episode) = self.episode.as_mut().filter(|_| self.state == RecoveryState::Fast) {
            episode.prr.on_ack(delivered_bytes, pipe, threshold, safe, mss);
        }
    }

    /// The retransmission timer went off (RFC 6298, 5.4; RFC 8985, 6.3): the first segment is lost,
    /// and what was sent longer ago than a round trip and the reordering window. `again`: it went off
    /// for the same data before.
    pub(crate) fn on_timeout(
        &mut self,
        now: Instant,
        send: &SendSequence,
        again: bool,
        round_trips: RoundTrips,
    ) {
        let window = self.rack.reordering_window(true, round_trips.min, round_trips.smoothed);
        let rtt = self.flight.as_ref().map(|flight| flight.newest.rtt);
        // Nothing of this flight was delivered: the round trip is what it was before.
        let rtt = rtt.filter(|rtt| !rtt.is_zero()).or(round_trips.smoothed).unwrap_or_default();
        let wait = if self.sack { rtt + window } else { Duration::ZERO };
        self.mark_lost(now, wait);
        if again {
            // RFC 2018, 8: "the timeout might indicate that the data receiver has reneged". Once
            // may be an accident (RFC 6675, 5.1, with erratum 1610); twice, and nothing that was
            // reported is relied on.
            if let Some(flight) = &mut self.flight {
                flight.sent.forget_sacks();
            }
        }
        // RFC 5682, 3.1: not while an earlier loss is being repaired.
        self.frto =
            if self.state == RecoveryState::Open || again { Frto::Waiting } else { Frto::Off };
        self.begin_loss(send);
    }

    fn mark_lost(&mut self, now: Instant, wait: Duration) {
        let Self { flight, rate, .. } = self;
        let Some(flight) = flight else { return };
        flight.sent.mark_lost_on_timeout(now, wait, &mut |part| {
            rate.on_lost(part.len(), &part.snapshot);
        });
    }

    /// How long the first segment is as it went last, or more where others left with it: what is sent again as one
    /// keeps the records of the segments that it joins.
    pub(crate) fn first_len(&self) -> u32 {
        let Some(flight) = &self.flight else { return 0 };
        let last_at = flight.sent.iter().next().map(|first| first.sent_at);
        let together = flight.sent.iter().take_while(|record| Some(record.sent_at) == last_at);
        together.map(Record::len).sum()
    }

    /// Whether something is outstanding that may be longer than `mss`.
    pub(crate) fn has_longer(&self, mss: u32) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.sent.has_longer(mss))
    }

    /// Whether all is sent again for a narrower path, and the window was not reduced.
    pub(crate) fn is_unreduced(&self) -> bool {
        self.state == RecoveryState::Loss && self.is_unreduced
    }

    /// The path got narrower and what is outstanding was too long for it (RFC 1191, 6.4): it is sent
    /// again, and this is no sign of congestion.
    pub(crate) fn on_path_change(&mut self, send: &SendSequence, mss: u32) {
        if send.flight() > 0 {
            let Self { flight, rate, .. } = self;
            if let Some(flight) = flight {
                flight.sent.mark_longer_lost(mss, &mut |part| {
                    rate.on_lost(part.len(), &part.snapshot);
                });
            }
            self.rate.forgive_losses();
            self.frto = Frto::Off;
            self.begin_loss(send);
            self.episode = None;
            self.is_unreduced = true;
        }
    }

    fn begin_loss(&mut self, send: &SendSequence) {
        self.is_unreduced = false;
        self.state = RecoveryState::Loss;
        self.point = send.nxt;
        self.begin_episode(send, Prr::default());
        self.probe.clear();
        self.awaits_order = false;
        self.force = true;
        self.departed_bytes = 0;
        self.duplicate_acks = 0;
    }

    /// F-RTO (RFC 5682, 3.1): an ACK after a timeout. `advanced`: SND.UNA moved; `news`: it is a
    /// duplicate or SACKed something; `can_send_new`: data waits and the peer's window takes it. Says
    /// whether the timeout was spurious.
    pub(crate) fn on_frto(
        &mut self,
        send: &SendSequence,
        delivered: &Delivered,
        advanced: bool,
        news: bool,
        can_send_new: bool,
    ) -> bool {
        if self.state != RecoveryState::Loss || self.frto == Frto::Off {
            return false;
        }
        if delivered.original && !delivered.ambiguous {
            // Step 3.b: what was never sent again has arrived, so the flight was not lost.
            return true;
        }
        let is_over = send.una.is_at_or_after(self.point);
        if self.frto == Frto::NewData && news && !is_over && !self.sack {
            // Step 3.a has all sent again that is not acknowledged, the new data, too; nobody else would tell of it.
            self.point = send.nxt;
        }
        self.frto = match self.frto {
            // Step 2.b: new data first, to see whether the rest of the flight arrives.
            Frto::Waiting if advanced && !is_over && can_send_new => Frto::NewData,
            Frto::Waiting if !advanced => Frto::Waiting,
            // Step 3.a: a duplicate ACK: the loss was real.
            Frto::NewData if !news && !is_over => Frto::NewData,
            _ => Frto::Off,
        };
        false
    }

    /// Whether the ACK proves the recovery of now, or the last one, a mistake. `late`: it acknowledged
    /// the first segment, which was sent again, by a copy from before that; `echo`: of our timestamps.
    pub(crate) fn witness(&self, late: bool, echo: Option<u32>) -> Option<Witness> {
        let undo = &self.episode.as_ref()?.undo;
        if self.state != RecoveryState::Open && undo.is_without_copies() && self.lost_bytes() == 0 {
            return Some(Witness::Originals);
        }
        if self.state != RecoveryState::Open && late && undo.is_before_first_again(echo) {
            return Some(Witness::Timestamps);
        }
        undo.is_all_duplicate().then_some(Witness::Duplicates)
    }

    /// The recovery was a mistake.
    pub(crate) fn undo(&mut self) {
        self.episode = None;
        self.rate.forgive_losses();
        if self.state == RecoveryState::Fast {
            // What was taken for lost was overtaken.
            self.rack.on_reordering();
        }
        if self.state != RecoveryState::Open {
            if let Some(flight) = &mut self.flight {
                flight.sent.unmark_lost();
                if self.state == RecoveryState::Loss {
                    flight.forget_copies();
                }
            }
            self.leave();
        }
    }

    /// The window was reduced for a mark, outside of recovery: that is what the controller would take back now, so
    /// the last recovery stands. (A probe that repaired a loss does as much: as something sent again that no
    /// report within the episode covers.)
    pub(crate) fn on_mark(&mut self) {
        self.episode = None;
    }

    /// Whether everything that was sent when loss was noticed is acknowledged.
    pub(crate) fn is_over(&self, send: &SendSequence) -> bool {
        self.state != RecoveryState::Open && send.una.is_at_or_after(self.point)
    }

    /// Recovery is over.
    pub(crate) fn leave(&mut self) {
        self.state = RecoveryState::Open;
        self.force = false;
        self.frto = Frto::Off;
        self.departed_bytes = 0;
        self.rack.on_recovery_exit();
    }

    /// Bytes SACKed and not acknowledged.
    pub(crate) fn sacked_bytes(&self) -> u32 {
        self.flight.as_ref().map_or(0, |flight| flight.sent.sacked_bytes())
    }

    /// How many segments of `payload_max` bytes are outstanding, and what became of them. Each record is
    /// counted by itself: what left apart was not one segment.
    pub(crate) fn segments(&self, send: &SendSequence, payload_max: u32) -> SegmentCounts {
        let of = |len: u32| len.div_ceil(payload_max.max(1));
        let mut counts = SegmentCounts::default();
        let Some(flight) = &self.flight else {
            return SegmentCounts { all: of(send.flight()), ..counts };
        };
        for record in flight.sent.iter() {
            let count = of(record.len());
            counts.all += count;
            match record.fate {
                Fate::Sacked => counts.sacked += count,
                Fate::Lost => counts.lost += count,
                Fate::Flying if record.is_again() => counts.again += count,
                Fate::Flying => {}
            }
        }
        counts
    }

    /// Bytes that are lost and not sent again.
    pub(crate) fn lost_bytes(&self) -> u32 {
        self.flight.as_ref().map_or(0, |flight| flight.sent.lost_bytes())
    }

    /// Ranges that are lost and not sent again.
    pub(crate) fn lost(&self) -> impl Iterator<Item = &Record> + '_ {
        let records = self.flight.iter().flat_map(|flight| flight.sent.iter());
        records.filter(|record| record.fate == Fate::Lost)
    }

    /// Bytes that were sent again and are neither SACKed nor lost, as far as is known.
    pub(crate) fn again_bytes(&self) -> u32 {
        let records = self.flight.as_ref().map(|flight| flight.sent.iter());
        let again = records.into_iter().flatten();
        again
            .filter(|record| record.is_again() && record.fate == Fate::Flying)
            .map(Record::len)
            .sum()
    }

    fn has_again(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.sent.has_again())
    }

    /// How far the path reorders, in segments; 3 until it was seen to.
    pub(crate) fn reordering(&self) -> u32 {
        self.rack.reordering().max(DUPLICATE_THRESHOLD)
    }
}
