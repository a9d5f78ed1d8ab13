//! What is to happen when. Events of one moment happen in the order in which they were added.

use super::Phase;
use crate::host::Socket;
use crate::scenario::Disturbance;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use time::Instant;

/// Something that is to happen.
#[derive(Debug)]
pub(super) enum Event {
    /// A connection is opened.
    Open { index: usize },
    /// A datagram is sent.
    Datagram { index: usize },
    /// A frame has come to the switch, perhaps with a flipped bit.
    AtSwitch { from: usize, frame: Vec<u8>, damaged: bool },
    /// A frame has come to a host's device.
    AtHost { host: usize, frame: Vec<u8> },
    /// The device calls a squeue for what has arrived.
    Interrupt { host: usize, home: usize },
    /// A squeue's shard wants to be called.
    Timer { host: usize, home: usize },
    /// A squeue has something to do, or can do it: a device that was full has room.
    Run { host: usize, home: usize },
    /// An application wants to act.
    Act { endpoint: usize },
    /// An application that was busy accepts.
    Accept { host: usize, listener: Socket },
    /// Something happens to the world.
    Disturb(Disturbance),
    /// A host that lost its address gets it again, or another one.
    Regain { host: usize, ipv6: bool, another: bool },
    /// Whoever waits is looked at.
    Look,
    /// Datagrams go the ways of those that must arrive.
    DatagramsRehearsed,
    /// Datagrams are sent that must arrive.
    DatagramsDue,
    /// They must have.
    DatagramsOver,
    /// The links turn good.
    Calm,
    /// Applications give up peers that may be gone.
    GiveUp,
    /// This phase must be over.
    Deadline(Phase),
}

struct Entry {
    at: Instant,
    order: u64,
    event: Event,
}

/// The events to come.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Entry>,
    added: u64,
}

impl Events {
    pub(super) fn add(&mut self, at: Instant, event: Event) {
        self.added += 1;
        self.heap.push(Entry { at, order: self.added, event });
    }

    pub(super) fn next(&mut self) -> Option<(Instant, Event)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

impl Ord for Entry {
    /// The heap hands out the greatest: the earliest, and of those the one added first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}
