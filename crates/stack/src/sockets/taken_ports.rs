//! What searches for a free local port have found taken, so that the next one need not look at it again.
//!
//! A search looks at one port after the other, each in up to four tables. While most are free it ends at once. Where
//! all 64,512 are taken it took 12 to 35 ms, with the squeue's lock held, each time that somebody asked. So a search
//! that takes long writes down what it finds taken, a bit for each port, and who gives a port up wipes out its bit, for
//! whatever it was taken. That costs a later search a look.
//!
//! What always holds: a port that is written down is taken. What may end without anybody giving it up (a TIME-WAIT that
//! timestamps make an end of, a handshake) is not written down.

use crate::sockets::ports::Protocol;
use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

/// Steps after which a search is long: fewer cost less than a record.
const LONG_STEPS: u32 = 64;

/// Searches that are remembered: 8 KiB each.
const RECORDS_MAX: usize = 16;

const WORDS: usize = 65_536 / 64;

/// What a port is looked for for. What is taken for one is not for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A socket that is bound to this address.
    Bind(Protocol, IpAddr),
    /// A connection from this address to this peer, with timestamps or without, which stays in this host or does not.
    Connect { from: IpAddr, to: SocketAddr, timestamps: bool, stays: bool },
}

impl Purpose {
    /// Of a connection, its own address and its peer.
    pub(crate) fn destination(self) -> Option<(IpAddr, SocketAddr)> {
        match self {
            Self::Bind(..) => None,
            Self::Connect { from, to, .. } => Some((from, to)),
        }
    }
}

/// How a port stands to a purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Free,
    /// Until somebody gives it up, who says so.
    Taken,
    /// For now.
    Passing,
}

/// What one search, or several for the same, found.
#[derive(Debug)]
pub(crate) struct Record {
    purpose: Purpose,
    taken: Box<[u64; WORDS]>,
    count: usize,
}

impl Record {
    fn new(purpose: Purpose) -> Self {
        Self { purpose, taken: Box::new([0; WORDS]), count: 0 }
    }

    fn place(&mut self, port: u16) -> (&mut u64, u64) {
        (&mut self.taken[usize::from(port) / 64], 1 << (port % 64))
    }

    pub(crate) fn has(&self, port: u16) -> bool {
        self.taken[usize::from(port) / 64] & 1 << (port % 64) != 0
    }

    fn add(&mut self, port: u16) {
        let (word, bit) = self.place(port);
        let is_new = *word & bit == 0;
        *word |= bit;
        self.count += usize::from(is_new);
    }

    fn remove(&mut self, port: u16) {
        let (word, bit) = self.place(port);
        let was_there = *word & bit != 0;
        *word &= !bit;
        self.count -= usize::from(was_there);
    }
}

/// The records, the one that was used last at the end.
#[derive(Debug, Default)]
pub(crate) struct TakenPorts {
    records: VecDeque<Record>,
}

impl TakenPorts {
    /// What is known for this purpose; to be put back.
    pub(crate) fn take(&mut self, purpose: Purpose) -> Option<Record> {
        let at = self.records.iter().position(|record| record.purpose == purpose)?;
        self.records.remove(at)
    }

    pub(crate) fn put(&mut self, record: Record) {
        if self.records.len() >= RECORDS_MAX {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    /// Somebody gave this port up.
    #[inline]
    pub(crate) fn release(&mut self, port: u16) {
        if !self.records.is_empty() {
            self.wipe_out(port);
        }
    }

    #[cold]
    fn wipe_out(&mut self, port: u16) {
        self.records.retain_mut(|record| {
            record.remove(port);
            record.count > 0
        });
    }
}

/// A search found a port taken in its step `step`.
pub(crate) fn note(record: &mut Option<Record>, purpose: Purpose, step: u32, port: u16) {
    if record.is_some() || step >= LONG_STEPS {
        record.get_or_insert_with(|| Record::new(purpose)).add(port);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(last: u8) -> Purpose {
        Purpose::Bind(Protocol::Udp, [10, 0, 0, last].into())
    }

    #[test]
    fn what_is_given_up_is_looked_at_again_and_old_records_make_room() {
        let mut taken = TakenPorts::default();
        for last in 0..20 {
            let mut record = None;
            note(&mut record, bind(last), LONG_STEPS - 1, 5_000);
            assert!(record.is_none(), "a short search");
            note(&mut record, bind(last), LONG_STEPS, 5_001);
            note(&mut record, bind(last), 0, 65_535);
            taken.put(record.expect("a long one"));
        }
        assert!(taken.take(bind(3)).is_none() && taken.records.len() == RECORDS_MAX);
        let has = |taken: &mut TakenPorts, port| {
            let record = taken.take(bind(9)).expect("one of the last");
            let has = record.has(port);
            taken.put(record);
            has
        };
        assert!(has(&mut taken, 5_001) && has(&mut taken, 65_535) && !has(&mut taken, 5_000));
        taken.release(5_001);
        assert!(!has(&mut taken, 5_001) && has(&mut taken, 65_535));
        taken.release(65_535);
        assert!(taken.records.is_empty(), "they say nothing any more");
    }
}
