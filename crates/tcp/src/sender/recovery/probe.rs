//! Tail loss probes (RFC 8985, 7): when the last segments of a flight are lost nothing comes that
//! could report it. Two round trips after the last sign of life a probe goes out, new data or the
//! last segment again, whose acknowledgment or SACK blocks set RACK going, long before the
//! retransmission timer would.

use super::{Again, Recovery, RecoveryState};
use crate::sender::sequence::SendSequence;
use wire::SeqNumber;

/// TLP.max_ack_delay: how long a receiver may hold back the ACK of a single segment.
const ACK_DELAY_MAX_NS: u64 = 200_000_000;

/// Beyond two round trips, for the work of both ends.
const MARGIN_NS: u64 = 2_000_000;

/// The state of one connection's probes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TailProbe {
    /// TLP.end_seq, while a probe is outstanding.
    outstanding: Option<SeqNumber>,
    /// TLP.is_retrans: how many bytes up to there it repeats; none where it is new data.
    again_bytes: u32,
    /// What was in flight when those had been sent before.
    flight_bytes: u32,
    /// The timer went off: the probe is to be sent.
    pub(crate) owed: bool,
    /// A round trip was measured since the last probe (RFC 8985, 7.3).
    measured: bool,
}

/// What an ACK said of the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeVerdict {
    Nothing,
    /// Neither the probe nor what it repeated was lost.
    NothingLost,
    /// The probe repaired a loss, to which congestion control has not reacted yet, in a flight of so many bytes.
    Repaired {
        flight_bytes: u32,
    },
}

impl TailProbe {
    /// Whether a probe may be sent (RFC 8985, 7.3): none is outstanding, and a round trip was
    /// measured since the last.
    pub(crate) fn may_probe(&self) -> bool {
        self.outstanding.is_none() && !self.owed && self.measured
    }

    /// Whether a probe was sent whose acknowledgment has not come.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.outstanding.is_some()
    }

    pub(crate) fn on_round_trip(&mut self) {
        self.measured = true;
    }

    /// TLP_send_probe: `end` is SND.NXT behind the probe, which repeats what begins at `again_from`, or
    /// is new; `flight_bytes` were in flight when that had been sent before.
    pub(crate) fn on_sent(
        &mut self,
        end: SeqNumber,
        again_from: Option<SeqNumber>,
        flight_bytes: u32,
    ) {
        let again_bytes = again_from.map_or(0, |from| end.offset_from(from));
        let outstanding = Some(end);
        *self = Self { outstanding, again_bytes, flight_bytes, owed: false, measured: false };
    }

    /// What the outstanding probe repeats: from, and up to.
    pub(crate) fn repeated(&self) -> Option<(SeqNumber, SeqNumber)> {
        let end = self.outstanding.filter(|_| self.again_bytes > 0)?;
        Some((end - self.again_bytes, end))
    }

    /// Whether the outstanding probe repeats what ends there. That it was needless says that the silence was no loss,
    /// and nothing of the order in which segments arrive: RACK has sent nothing again (RFC 8985, 6.2, step 4; so does Linux).
    pub(crate) fn repeats_up_to(&self, end: SeqNumber) -> bool {
        self.repeated().is_some_and(|(_, repeated_end)| repeated_end == end)
    }

    /// Recovery begins: the probe has done its work.
    pub(crate) fn clear(&mut self) {
        self.outstanding = None;
        self.owed = false;
    }

    /// TLP_process_ack (RFC 8985, 7.4.2). `advanced`: SND.UNA moved; `is_bare`: the segment says nothing
    /// but its ACK, which only a segment that brings nothing is answered with; `duplicate`: the range it reports twice.
    pub(crate) fn on_ack(
        &mut self,
        ack: SeqNumber,
        advanced: bool,
        is_bare: bool,
        duplicate: Option<(SeqNumber, SeqNumber)>,
    ) -> ProbeVerdict {
        let Some(end) = self.outstanding else { return ProbeVerdict::Nothing };
        if ack.is_before(end) {
            return ProbeVerdict::Nothing;
        }
        let verdict = if self.again_bytes == 0
            || duplicate.is_some_and(|(_, duplicate_end)| duplicate_end == end)
        {
            // New data, or the receiver had both copies.
            ProbeVerdict::NothingLost
        } else if ack.is_after(end) {
            ProbeVerdict::Repaired { flight_bytes: self.flight_bytes }
        } else if !advanced && is_bare {
            // The ACK of the original came before: this one is of the copy.
            ProbeVerdict::NothingLost
        } else {
            return ProbeVerdict::Nothing;
        };
        self.outstanding = None;
        verdict
    }

    /// TLP_calc_PTO (RFC 8985, 7.2); the caller bounds it by the retransmission timer.
    #[inline]
    pub(crate) fn timeout_ns(smoothed_rtt_ns: u64, is_single: bool) -> u64 {
        2 * smoothed_rtt_ns + if is_single { ACK_DELAY_MAX_NS } else { MARGIN_NS }
    }
}

impl Recovery {
    /// How long until a tail loss probe, if one may be sent: nothing is known to be lost or out of
    /// order (RFC 8985, 7.2), nor waits for the reordering timer, which has the same clock and comes first (8).
    #[inline]
    pub(crate) fn probe_timeout_ns(
        &self,
        send: &SendSequence,
        smoothed_rtt_ns: u64,
        mss: u32,
    ) -> Option<u64> {
        let may = self.sack
            && self.state == RecoveryState::Open
            && self.sacked_bytes() == 0
            && !self.awaits_order
            && send.flight() > 0
            && self.probe.may_probe();
        may.then(|| TailProbe::timeout_ns(smoothed_rtt_ns, send.flight() <= mss))
    }

    /// The last segments that were sent, unless they were SACKed.
    pub(crate) fn last_segments(&self) -> Option<Again> {
        let (sequence, len) = self.flight.as_ref()?.sent.last_segments()?;
        Some(Again { sequence, len })
    }

    /// What was in flight when the last segment was sent, itself included.
    pub(crate) fn flight_at_last(&self) -> u32 {
        let last = self.flight.as_ref().and_then(|flight| flight.sent.last());
        last.map_or(0, |last| last.snapshot.in_flight_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probed(again: bool) -> TailProbe {
        let mut probe = TailProbe::default();
        probe.on_round_trip();
        assert!(probe.may_probe());
        probe.on_sent(SeqNumber(5_000), again.then_some(SeqNumber(4_000)), 9_000);
        assert!(!probe.may_probe(), "one at a time");
        probe
    }

    // RFC 8985, 7.4.2.
    #[test]
    fn the_acknowledgment_tells_whether_the_probe_repaired_a_loss() {
        let end = SeqNumber(5_000);
        assert_eq!(probed(false).on_ack(end, true, true, None), ProbeVerdict::NothingLost);
        let mut again = probed(true);
        assert_eq!(again.on_ack(SeqNumber(4_000), true, true, None), ProbeVerdict::Nothing);
        // TLP.end_seq itself: the original may have arrived; the ACK of the copy decides.
        assert_eq!(again.on_ack(end, true, true, None), ProbeVerdict::Nothing);
        let repaired = ProbeVerdict::Repaired { flight_bytes: 9_000 };
        assert_eq!(again.on_ack(end + 1, true, true, None), repaired);
        let duplicate = Some((SeqNumber(4_000), end));
        assert_eq!(probed(true).on_ack(end, false, false, duplicate), ProbeVerdict::NothingLost);
        assert_eq!(probed(true).on_ack(end, false, true, None), ProbeVerdict::NothingLost);
        assert_eq!(probed(true).on_ack(end, false, false, None), ProbeVerdict::Nothing, "data");
    }

    // RFC 8985, 7.3: "the sender has obtained an RTT measurement since the last loss probe".
    #[test]
    fn the_next_probe_waits_for_a_round_trip() {
        let mut probe = probed(false);
        probe.on_ack(SeqNumber(5_000), true, true, None);
        assert!(!probe.may_probe());
        probe.on_round_trip();
        assert!(probe.may_probe());
    }
}
