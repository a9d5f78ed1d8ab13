//! The rules of resets (RFC 9293, 3.10.7.1): what each of them answers.
//!
//! A reset either ends a connection, and then stands where the next byte would, or refuses a segment that
//! arrived, and then says of it what the RFC lays down. A reset is never refused.

use super::Broken;
use crate::packet::{Segment, flag};
use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};

/// Segments remembered for one pair of ends: as many as a device's ring brings at once, and more than a
/// neighbour's queue holds.
const PROVOCATIONS_MAX: usize = 600;

type Ends = (SocketAddr, SocketAddr);

/// What the reset of a segment says.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// SEG.SEQ. A connection that a fast open made (RFC 7413) may end before its SYN-ACK is sent, with a
    /// number that nobody has seen.
    sequence: Option<u32>,
    /// SEG.ACK where the segment had none, and how much less it may be: of what went with the SYN of a fast
    /// open a part may have been taken.
    acknowledgment: Option<u32>,
    less: u32,
}

impl Refusal {
    fn is(&self, reset: &Segment<'_>) -> bool {
        let is_due = match (self.acknowledgment, reset.has(flag::ACK)) {
            (Some(due), true) => due.wrapping_sub(reset.acknowledgment) <= self.less,
            (None, false) => true,
            _ => false,
        };
        is_due && self.sequence.is_none_or(|sequence| sequence == reset.sequence)
    }
}

/// What arrived and was not refused yet, by the ends, the own first.
#[derive(Debug, Default)]
pub(super) struct Provocations {
    by_ends: BTreeMap<Ends, VecDeque<Refusal>>,
}

impl Provocations {
    /// A segment arrived.
    pub(super) fn on_arrived(&mut self, ends: Ends, segment: &Segment<'_>) {
        if segment.has(flag::RST) {
            return;
        }
        let end = segment.sequence.wrapping_add(segment.len());
        let is_fast = segment.options.fast_open.is_some_and(|cookie| !cookie.is_empty());
        let refusal = match segment.has(flag::ACK) {
            true => {
                Refusal { sequence: Some(segment.acknowledgment), acknowledgment: None, less: 0 }
            }
            false => Refusal {
                sequence: Some(0).filter(|_| !is_fast),
                acknowledgment: Some(end),
                less: if is_fast { segment.payload.len() as u32 } else { 0 },
            },
        };
        let refusals = self.by_ends.entry(ends).or_default();
        if refusals.len() == PROVOCATIONS_MAX {
            refusals.pop_front();
        }
        refusals.push_back(refusal);
    }

    /// A reset goes out that no connection of ours sends from where it stands.
    pub(super) fn judge(&mut self, reset: &Segment<'_>) -> Result<(), Broken> {
        let refusals = self.by_ends.get_mut(&(reset.source, reset.destination));
        let found = refusals.and_then(|refusals| {
            let at = refusals.iter().position(|it| it.is(reset))?;
            refusals.remove(at)
        });
        match found {
            Some(_) => Ok(()),
            None => Err((
                "RFC 9293, 3.10.7.1: a reset ends a connection or refuses a segment that arrived, \
                 and no reset",
                reset.to_string(),
            )),
        }
    }
}
