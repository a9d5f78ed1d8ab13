//! What to send again, and when (RFC 5681, RFC 6582, RFC 6675, RFC 6298, 5.4 to 5.6).
//!
//! ```text
//!           3 duplicate ACKs, or SACK says lost            all up to the point acknowledged
//!   Open ------------------------------------------> Fast ---------------------------------> Open
//!     \            retransmission timer               |                                       ^
//!      +----------------------------------------------+--> Loss -------------------------------+
//! ```
//!
//! SND.NXT never moves back. What is sent again is found from `high_rxt`, one past the last byte
//! sent again in this episode: in Fast what the scoreboard calls lost (with SACK), or the first
//! unacknowledged segment, once on entry and once per partial ACK (without); in Loss everything up
//! to the recovery point that is not SACKed. Planning works on a [`Walk`], a copy of the little
//! that moves, so that what the device does not take leaves no trace.

use crate::scoreboard::{DUPLICATE_THRESHOLD, Scoreboard};
use crate::send_sequence::SendSequence;
use wire::SeqNumber;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No loss known.
    Open,
    /// Fast recovery.
    Fast,
    /// After the retransmission timer went off.
    Loss,
}

/// The state of a planned burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    high_rxt: SeqNumber,
    force: bool,
    rescued: bool,
    /// Bytes in the network, planned ones included.
    pub(crate) pipe: u32,
    /// The bound of `pipe`.
    pub(crate) limit: u32,
}

impl Walk {
    /// The range planned last ends at `end` already, `missing` bytes short: what is missing is next.
    pub(crate) fn on_shortened(&mut self, end: SeqNumber, missing: u32) {
        self.high_rxt = self.high_rxt.earlier_of(end);
        self.pipe = self.pipe.saturating_sub(missing);
    }
}

/// A range to send again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    pub(crate) sequence: SeqNumber,
    pub(crate) len: u32,
    /// RFC 6675's rescue retransmission, which leaves `HighRxt` alone.
    pub(crate) rescue: bool,
}

/// What an ACK meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Nothing,
    /// Fast recovery begins: the congestion controller is to be told.
    EnterFast,
    /// Recovery is over.
    Exit(Phase),
}

#[derive(Debug)]
pub(crate) struct Recovery {
    pub(crate) scoreboard: Scoreboard,
    phase: Phase,
    /// RecoveryPoint, or RFC 6582's recover: one past what had been sent when loss was noticed.
    point: SeqNumber,
    high_rxt: SeqNumber,
    duplicate_acks: u32,
    /// The segment at SND.UNA is to be sent again whatever the window says.
    force: bool,
    rescued: bool,
    /// Without SACK: what duplicate ACKs say has left the network (RFC 6582, 3.2).
    inflation: u32,
    sack: bool,
}

impl Recovery {
    pub(crate) fn new(iss: SeqNumber) -> Self {
        Self {
            scoreboard: Scoreboard::new(iss),
            phase: Phase::Open,
            point: iss,
            high_rxt: iss,
            duplicate_acks: 0,
            force: false,
            rescued: false,
            inflation: 0,
            sack: false,
        }
    }

    pub(crate) fn set_sack(&mut self, sack: bool) {
        self.sack = sack;
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Where a burst begins. `cwnd` and `mss` in bytes.
    pub(crate) fn walk(&self, send: &SendSequence, cwnd: u32, mss: u32) -> Walk {
        let flight = send.flight();
        let (pipe, limit) = match self.phase {
            Phase::Open if self.sack => {
                (flight.saturating_sub(self.scoreboard.sacked_bytes()), cwnd)
            }
            // RFC 3042: limited transmit, two segments beyond the window for two duplicate ACKs.
            // (With SACK the pipe has shrunk by what the duplicates reported.)
            Phase::Open => (flight, cwnd.saturating_add(mss * self.duplicate_acks.min(2))),
            Phase::Fast if self.sack => (self.scoreboard.pipe(self.high_rxt, send.nxt, mss), cwnd),
            Phase::Fast => (flight, cwnd.saturating_add(self.inflation)),
            Phase::Loss => (self.pipe_after_timeout(send), cwnd),
        };
        Walk {
            high_rxt: self.high_rxt.later_of(send.una),
            force: self.force,
            rescued: self.rescued,
            pipe,
            limit,
        }
    }

    /// After a timeout all before the recovery point has left the network but what was sent again.
    fn pipe_after_timeout(&self, send: &SendSequence) -> u32 {
        let again = self.high_rxt.later_of(send.una).earlier_of(self.point.later_of(send.una));
        let newer = send.nxt.offset_from(self.point.later_of(send.una).earlier_of(send.nxt));
        let mut pipe = again.offset_from(send.una) + newer;
        for (start, end) in self.scoreboard.ranges() {
            if start.is_before(again) {
                pipe = pipe.saturating_sub(end.earlier_of(again).offset_from(start));
            }
            if end.is_after(self.point) {
                pipe = pipe.saturating_sub(end.offset_from(start.later_of(self.point)));
            }
        }
        pipe
    }

    /// The next range to send again, at most `len_max` bytes; moves the walk on.
    pub(crate) fn next(
        &self,
        walk: &mut Walk,
        send: &SendSequence,
        len_max: u32,
        mss: u32,
    ) -> Option<Again> {
        if self.phase == Phase::Open && !walk.force {
            return None;
        }
        let (sequence, len) = if walk.force {
            // RFC 5681, 3.2: fast retransmit; RFC 6298, 5.4: the earliest segment.
            walk.force = false;
            self.scoreboard.next_unsacked(send.una, send.nxt, len_max)?
        } else if walk.limit.saturating_sub(walk.pipe) < mss {
            return None;
        } else {
            match self.phase {
                Phase::Open => return None,
                Phase::Fast if self.sack => {
                    self.scoreboard.next_lost(walk.high_rxt, mss, len_max)?
                }
                Phase::Fast => return None,
                Phase::Loss => {
                    let end = self.point.earlier_of(send.nxt);
                    self.scoreboard.next_unsacked(walk.high_rxt, end, len_max)?
                }
            }
        };
        walk.high_rxt = walk.high_rxt.later_of(sequence + len);
        walk.pipe = walk.pipe.saturating_add(len);
        Some(Again { sequence, len, rescue: false })
    }

    /// NextSeg, rules 3 and 4 (RFC 6675, 4), for when there is no new data to send.
    pub(crate) fn next_last_resort(
        &self,
        walk: &mut Walk,
        send: &SendSequence,
        len_max: u32,
        mss: u32,
    ) -> Option<Again> {
        if self.phase != Phase::Fast || !self.sack || walk.limit.saturating_sub(walk.pipe) < mss {
            return None;
        }
        if let Some((sequence, len)) = self.scoreboard.next_hole(walk.high_rxt, len_max) {
            walk.high_rxt = sequence + len;
            walk.pipe = walk.pipe.saturating_add(len);
            return Some(Again { sequence, len, rescue: false });
        }
        if walk.rescued {
            return None;
        }
        walk.rescued = true;
        let (sequence, len) = self.scoreboard.rescue(send.nxt, len_max)?;
        walk.pipe = walk.pipe.saturating_add(len);
        Some(Again { sequence, len, rescue: true })
    }

    /// A range was sent again.
    pub(crate) fn on_sent_again(&mut self, again: Again) {
        self.force = false;
        if again.rescue {
            self.rescued = true;
        } else {
            self.high_rxt = self.high_rxt.later_of(again.sequence + again.len);
        }
    }

    /// SND.UNA moved by `acked` bytes; the scoreboard knows already.
    pub(crate) fn on_new_ack(&mut self, send: &SendSequence, acked: u32, mss: u32) -> Verdict {
        self.duplicate_acks = 0;
        let phase = self.phase;
        if phase == Phase::Open {
            if send.una.is_after(self.point) {
                // Passed for good: it must not lie ahead again once the numbers have wrapped.
                self.point = send.una - 1;
            }
            return self.check_lost(send, mss);
        }
        if send.una.is_at_or_after(self.point) {
            self.leave();
            return Verdict::Exit(phase);
        }
        if phase == Phase::Fast && !self.sack {
            // RFC 6582, 3.2 step 3: a partial ACK. The next segment is lost too.
            self.force = true;
            self.inflation = self.inflation.saturating_sub(acked);
            if acked >= mss {
                self.inflation = self.inflation.saturating_add(mss);
            }
        }
        if self.high_rxt.is_before(send.una) {
            self.high_rxt = send.una;
        }
        Verdict::Nothing
    }

    /// A duplicate ACK (RFC 5681, 2), with SACK one that reported something new (RFC 6675, 2).
    pub(crate) fn on_duplicate_ack(&mut self, send: &SendSequence, mss: u32) -> Verdict {
        self.duplicate_acks = self.duplicate_acks.saturating_add(1);
        match self.phase {
            Phase::Open if self.duplicate_acks >= DUPLICATE_THRESHOLD as u32 => {
                // RFC 6582, 3.2 step 1: duplicates caused by our own retransmissions of an earlier
                // episode do not begin another.
                if !self.sack && !send.una.is_after(self.point) {
                    return Verdict::Nothing;
                }
                self.enter_fast(send, mss);
                Verdict::EnterFast
            }
            Phase::Open => self.check_lost(send, mss),
            Phase::Fast => {
                if !self.sack {
                    self.inflation = self.inflation.saturating_add(mss);
                }
                Verdict::Nothing
            }
            Phase::Loss => Verdict::Nothing,
        }
    }

    /// Whether SACK says that the first unacknowledged byte is lost (RFC 6675, 5 step 2).
    fn check_lost(&mut self, send: &SendSequence, mss: u32) -> Verdict {
        if !self.sack || self.scoreboard.is_empty() || !self.scoreboard.is_lost(send.una, mss) {
            return Verdict::Nothing;
        }
        self.enter_fast(send, mss);
        Verdict::EnterFast
    }

    fn enter_fast(&mut self, send: &SendSequence, mss: u32) {
        self.phase = Phase::Fast;
        self.point = send.nxt;
        self.high_rxt = send.una;
        self.force = true;
        self.rescued = false;
        self.inflation = if self.sack { 0 } else { 3 * mss };
    }

    /// The retransmission timer went off: all that is outstanding counts as lost.
    pub(crate) fn on_timeout(&mut self, send: &SendSequence) {
        self.scoreboard.on_timeout();
        self.begin_loss(send);
    }

    /// The path got narrower and what is outstanding was too long for it (RFC 1191, 6.4): it is sent
    /// again, and this is no sign of congestion.
    pub(crate) fn on_path_change(&mut self, send: &SendSequence) {
        if send.flight() > 0 {
            self.begin_loss(send);
        }
    }

    fn begin_loss(&mut self, send: &SendSequence) {
        self.phase = Phase::Loss;
        self.point = send.nxt;
        self.high_rxt = send.una;
        self.force = true;
        self.rescued = false;
        self.inflation = 0;
        self.duplicate_acks = 0;
    }

    fn leave(&mut self) {
        self.phase = Phase::Open;
        self.force = false;
        self.rescued = false;
        self.inflation = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 6582, 3.2: the recovery point of old must not pass for one of the future.
    #[test]
    fn fast_retransmit_works_after_two_gigabytes_without_loss() {
        let mut send = SendSequence::new(SeqNumber(0));
        let mut recovery = Recovery::new(SeqNumber(0));
        for _ in 0..3 {
            send.on_sent(send.nxt + (1 << 30));
            let acked = send.on_ack(send.nxt);
            assert_eq!(recovery.on_new_ack(&send, acked, 1_000), Verdict::Nothing);
        }
        send.on_sent(send.nxt + 10_000);
        let verdicts = [(); 3].map(|()| recovery.on_duplicate_ack(&send, 1_000));
        assert_eq!(verdicts[2], Verdict::EnterFast);
    }
}
