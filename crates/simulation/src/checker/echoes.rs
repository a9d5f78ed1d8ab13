//! Which timestamp of the peer's a segment echoes (RFC 7323, 4.3: TS.Recent): one that arrived, none older than
//! was echoed before, and none older than that of the data in order that it acknowledges.

use super::Broken;
use crate::packet::Segment;
use std::collections::VecDeque;

/// Timestamps remembered: many more than arrive between two segments.
const VALUES_MAX: usize = 4_096;

/// Differences from here on are backwards.
const HALF: u32 = 1 << 31;

/// The timestamps of one peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Echoes {
    /// Those that arrived, from the one on that was echoed last.
    arrived: VecDeque<u32>,
    echoed: Option<u32>,
    /// What arrived last at Last.ACK.sent: where it ends, and its timestamp.
    next: Option<(u64, u32)>,
}

impl Echoes {
    /// The peer's first SYN.
    pub(super) fn on_syn(&mut self, value: Option<u32>) {
        *self = Self { arrived: value.into_iter().collect(), ..Self::default() };
    }

    /// Whether a segment with this timestamp may be dropped for its age: one with a later arrived, and may be
    /// TS.Recent (RFC 7323, 5.3, R1).
    pub(super) fn may_be_too_old(&self, value: u32) -> bool {
        self.arrived.iter().any(|later| is_before(value, *later))
    }

    /// A segment of the peer arrived; `next_end` is where its data ends, if that is what was expected next.
    pub(super) fn on_arrived(&mut self, value: u32, next_end: Option<u64>) {
        self.next = next_end.map(|end| (end, value)).or(self.next);
        let is_old = self.echoed.is_some_and(|echoed| is_before(value, echoed));
        if is_old || self.arrived.back() == Some(&value) {
            return;
        }
        if self.arrived.len() == VALUES_MAX {
            self.arrived.pop_front();
        }
        self.arrived.push_back(value);
    }

    /// A segment goes out that acknowledges all before `ack`; `strict`: nothing that arrives is dropped.
    pub(super) fn judge(
        &mut self,
        segment: &Segment<'_>,
        echo: u32,
        (ack, strict): (u64, bool),
    ) -> Result<(), Broken> {
        let broken = |rule| Err((rule, format!("{segment}: {:?}, {:?}", self.echoed, self.next)));
        if !self.arrived.iter().rev().any(|value| *value == echo) {
            return broken(
                "RFC 7323, 3.2: an echo is of a timestamp that arrived, and does not go back",
            );
        }
        let next = self.next.filter(|(end, _)| strict && *end <= ack);
        if next.is_some_and(|(_, value)| is_before(echo, value)) {
            return broken("RFC 7323, 4.3: what is acknowledged in order is echoed");
        }
        self.next = self.next.filter(|(end, _)| *end > ack);
        self.echoed = Some(echo);
        self.arrived.retain(|value| !is_before(*value, echo));
        Ok(())
    }
}

fn is_before(value: u32, other: u32) -> bool {
    value.wrapping_sub(other) >= HALF
}
