//! Segments that came before the SYN that says where they belong (RFC 7413, 4.2.2: a server may answer before the
//! handshake is complete). Their pieces may be put together elsewhere in the host, and come behind that SYN.

use crate::packet::{Segment, flag};

/// Segments remembered: more than an initial window.
const SEGMENTS_MAX: usize = 64;

/// Sequence number, length, and timestamp of each.
#[derive(Debug, Default)]
pub(super) struct Early(Vec<(u32, u32, Option<u32>)>);

impl Early {
    /// A segment came, and the peer's SYN is still to come.
    pub(super) fn keep(&mut self, segment: &Segment<'_>) {
        if !segment.is_empty() && !segment.has(flag::SYN) && self.0.len() < SEGMENTS_MAX {
            let value = segment.options.timestamps.map(|(value, _)| value);
            self.0.push((segment.sequence, segment.len(), value));
        }
    }

    /// All of them, once.
    pub(super) fn take(&mut self) -> Vec<(u32, u32, Option<u32>)> {
        core::mem::take(&mut self.0)
    }
}
