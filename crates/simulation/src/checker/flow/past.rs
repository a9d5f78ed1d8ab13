//! What arrives and says nothing of the peer of today, which may be long gone.

use super::Flow;
use crate::packet::{Segment, flag};

impl Flow {
    /// Whether it may be dropped for its age (RFC 7323, 5.3); such segments are not all answered.
    pub(super) fn may_be_too_old(&self, segment: &Segment<'_>) -> bool {
        segment.options.timestamps.is_some_and(|(value, _)| self.echoes.may_be_too_old(value))
    }

    /// Whether the segment may be dropped for its age or for its ACK, or brings only what was acknowledged and
    /// acknowledges nothing.
    pub(super) fn is_of_the_past(&self, segment: &Segment<'_>) -> bool {
        let end = self.peer_position(segment.sequence) + u64::from(segment.len());
        let is_new = self.position(segment.acknowledgment) > self.acked;
        let brings_nothing = !segment.is_empty() && end <= self.ack_sent && !is_new;
        self.irs.is_some()
            && (brings_nothing || self.may_be_too_old(segment) || !self.has_acceptable_ack(segment))
    }

    /// RFC 5961, 5.2: SND.UNA - MAX.SND.WND =< SEG.ACK =< SND.NXT.
    fn has_acceptable_ack(&self, segment: &Segment<'_>) -> bool {
        let ack = self.position(segment.acknowledgment);
        segment.has(flag::ACK) && ack <= self.end && ack + self.peer_window.max >= self.acked
    }
}
