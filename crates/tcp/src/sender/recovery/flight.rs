//! What is known of what is outstanding: its records, and what they amount to.
//!
//! A connection of which nothing is outstanding has none. Its memory goes to who sends next, where an owner of many
//! connections lends it ([`crate::Lent`]).

use super::rack::Newest;
use crate::sender::sent::{Fate, Record, SentRecords};
use time::{Duration, Instant};
use wire::SeqNumber;

/// What is known of what is outstanding.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(super) sent: SentRecords,
    pub(super) newest: Newest,
    /// The sum of the delivery rate behind the last that was counted in it twice.
    pub(super) recounted_until: u64,
}

impl Flight {
    /// Nothing was sent yet, and `start` will be the first; in memory that lies ready, if any does.
    pub(super) fn begin(start: SeqNumber, spare: Option<Box<Self>>) -> Box<Self> {
        let newest = Newest { sent: (Instant::ZERO, start), rtt: Duration::ZERO };
        match spare {
            Some(mut flight) => {
                flight.sent.restart(start);
                (flight.newest, flight.recounted_until) = (newest, 0);
                flight
            }
            None => Box::new(Self { sent: SentRecords::new(start), newest, recounted_until: 0 }),
        }
    }

    /// What was taken for the answer to a copy was that to its original: the newest that is known to have arrived is one
    /// of those that were sent once.
    pub(super) fn forget_copies(&mut self) {
        let arrived = |it: &&Record| it.fate == Fate::Sacked && !it.is_again();
        let newest = self.sent.iter().filter(arrived).max_by_key(|it| it.sent_at);
        let none = (Instant::ZERO, self.newest.sent.1);
        self.newest.sent = newest.map_or(none, |it| (it.sent_at, it.end));
    }
}
