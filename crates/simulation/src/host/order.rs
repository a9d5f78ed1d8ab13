//! The order of frames within a connection, from the device's ring to the shard that has it.

use core::net::SocketAddr;
use device::Medium;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use steering::{Class, classify};

/// The two ends of a connection: sender first.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// TCP frames that were taken from a ring and that no shard has seen yet, by connection.
#[derive(Default)]
pub(super) struct Order {
    waiting: BTreeMap<Ends, VecDeque<u64>>,
    /// Frames that others of their connection overtook: dropped, or else a shard saw them too late.
    overtaken: u64,
    broken: Option<Ends>,
}

impl Order {
    /// The host has another network card: what was sent to the one before is nobody's.
    pub(super) fn on_station_changed(&mut self) {
        self.waiting.clear();
    }

    /// A frame was taken from a ring.
    pub(super) fn on_taken(&mut self, frame: &[u8], medium: Medium) {
        if let Some(ends) = ends(frame, medium) {
            self.waiting.entry(ends).or_default().push_back(digest(frame));
        }
    }

    /// A frame is given to a shard.
    pub(super) fn on_given(&mut self, frame: &[u8], medium: Medium) {
        let Some(ends) = ends(frame, medium) else { return };
        let digest = digest(frame);
        let waiting = self.waiting.entry(ends).or_default();
        match waiting.iter().position(|other| *other == digest) {
            Some(before) => {
                waiting.drain(..=before);
                self.overtaken += before as u64;
            }
            None => self.broken = Some(ends),
        }
        if waiting.is_empty() {
            self.waiting.remove(&ends);
        }
    }

    /// A connection of which a frame came twice, or after one that was behind it.
    pub(super) fn broken(&self) -> Option<Ends> {
        self.broken
    }

    /// Frames that no shard saw.
    pub(super) fn lost(&self) -> u64 {
        let waiting: usize = self.waiting.values().map(VecDeque::len).sum();
        self.overtaken + waiting as u64
    }
}

/// The connection of a segment, as steering reads it: what is damaged may lead elsewhere.
fn ends(frame: &[u8], medium: Medium) -> Option<Ends> {
    match classify(frame, medium) {
        Class::Tcp(flow) => Some((flow.remote, flow.local)),
        _ => None,
    }
}

fn digest(frame: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(frame);
    hasher.finish()
}
