//! Segments that came before the SYN that says where they belong (RFC 7413, 4.2.2: a server may answer before the
//! handshake is complete). Their pieces may be put together elsewhere in the host, and come behind that SYN.

use crate::packet::{Segment, flag};

/// Segments remembered: more than an initial window.
const SEGMENTS_MAX: usize = 64;

/// What each of them said.
#[derive(Debug, Default)]
pub(super) struct Early(Vec<Said>);

/// What a segment says of both streams, in the numbers of the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    pub sequence: u32,
    pub len: u32,
    /// The value of its timestamp.
    pub timestamp: Option<u32>,
    pub acknowledgment: u32,
    /// Not shifted.
    pub window: u16,
}

impl Early {
    /// A segment came, and the peer's SYN is still to come.
    pub(super) fn keep(&mut self, segment: &Segment<'_>) {
        if !segment.is_empty() && !segment.has(flag::SYN) && self.0.len() < SEGMENTS_MAX {
            self.0.push(Said {
                sequence: segment.sequence,
                len: segment.len(),
                timestamp: segment.options.timestamps.map(|(value, _)| value),
                acknowledgment: segment.acknowledgment,
                window: segment.window,
            });
        }
    }

    /// All of them, once.
    pub(super) fn take(&mut self) -> Vec<Said> {
        core::mem::take(&mut self.0)
    }
}
