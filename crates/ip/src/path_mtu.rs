//! What paths take (RFC 1191, RFC 8201): the longest packet to each destination of which it was
//! reported that longer ones did not pass.
//!
//! A destination without an entry is believed to take what the interface takes. An entry is only
//! ever lowered, and forgotten when nothing confirmed it for ten minutes: then what the interface
//! takes is tried again (RFC 1191, 6.3; RFC 8201, 4). Anybody can send an ICMP error, so it is kept
//! how well a report was checked: TCP takes only what quoted a segment in flight (RFC 5927, 7), and
//! datagrams, which have no numbers to compare, take both.
//!
//! Nobody is talked into packets that are all header, as who forges reports would like: less than
//! 552 bytes is not believed of a path over IPv4, as by Linux. Where a report says less in truth,
//! routers have to be let to fragment what is sent (RFC 1191, 2; [`PathMtus::needs_fragments`]), or nothing would
//! arrive. IPv6, where they cannot, has no such paths.
//!
//! What always holds: there are at most [`PathMtuConfig::entries_max`] entries, and the one that
//! would be forgotten first makes room, of those that were not checked before any that was: so nobody
//! pushes out what TCP goes by (RFC 5927, 7).

use core::hash::BuildHasher;
use core::net::IpAddr;
use std::collections::{BTreeMap, HashMap};
use time::{Duration, Instant};

/// Bounds of a [`PathMtus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtuConfig {
    /// Destinations remembered.
    pub entries_max: usize,
    /// How long a report holds. RFC 1191, 6.3 and RFC 8201, 4: at least five minutes, recommended
    /// are ten.
    pub lifetime: Duration,
}

impl Default for PathMtuConfig {
    fn default() -> Self {
        Self { entries_max: 4_096, lifetime: Duration::from_secs(600) }
    }
}

/// The least that is believed of a path over IPv4.
const LEAST_IPV4_BYTES: usize = 552;

/// How well a report was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It quoted what is in flight and cannot be guessed.
    Verified,
    /// It named a socket of ours and no more.
    Unverified,
}

/// Whose turn it is to be forgotten: when, and which of those of one instant.
type Turn = (Instant, u64);

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The least that verified reports said.
    verified_bytes: usize,
    /// The least that any report said.
    reported_bytes: usize,
    turn: Turn,
    /// Until when the least that any report said holds.
    reported_until: Instant,
}

impl Entry {
    /// How well what it says was checked.
    fn trust(&self) -> Trust {
        if self.verified_bytes < usize::MAX { Trust::Verified } else { Trust::Unverified }
    }
}

/// What paths take. See the module documentation.
#[derive(Debug)]
pub struct PathMtus<S> {
    config: PathMtuConfig,
    entries: HashMap<IpAddr, Entry, S>,
    /// Turns of what was not checked, and of what was.
    turns: [BTreeMap<Turn, IpAddr>; 2],
    reports: u64,
    evicted: u64,
    generation: u32,
}

impl<S: BuildHasher> PathMtus<S> {
    /// Nothing was reported yet. `hasher` is keyed with what nobody outside knows.
    #[must_use]
    pub fn new(config: PathMtuConfig, hasher: S) -> Self {
        let entries = HashMap::with_hasher(hasher);
        let turns = [BTreeMap::new(), BTreeMap::new()];
        Self { config, entries, turns, reports: 0, evicted: 0, generation: 0 }
    }

    /// Somebody says that the path to `destination` takes no packet longer than `mtu_bytes`. Says
    /// whether less is believed than before. RFC 8201, 4: a report must not raise the estimate.
    pub fn on_report(
        &mut self,
        now: Instant,
        destination: IpAddr,
        mtu_bytes: usize,
        trust: Trust,
    ) -> bool {
        self.reports += 1;
        let turn = (now + self.config.lifetime, self.reports);
        let reported_until = turn.0;
        let (verified_bytes, reported_bytes) = (usize::MAX, usize::MAX);
        let nothing = Entry { verified_bytes, reported_bytes, turn, reported_until };
        let before = self.entries.get(&destination).copied().unwrap_or(nothing);
        let verified_bytes = match trust {
            Trust::Verified => before.verified_bytes.min(mtu_bytes),
            Trust::Unverified => before.verified_bytes,
        };
        let reported_bytes = before.reported_bytes.min(mtu_bytes);
        let known_bytes = match trust {
            Trust::Verified => before.verified_bytes,
            Trust::Unverified => before.reported_bytes,
        };
        if mtu_bytes > known_bytes {
            return false;
        }
        // What anybody can send does not prolong what was checked.
        let is_kept = trust == Trust::Unverified && before.trust() == Trust::Verified;
        let turn = if is_kept { before.turn } else { turn };
        let entry = Entry { verified_bytes, reported_bytes, turn, reported_until };
        self.turns_of(before.trust()).remove(&before.turn);
        self.turns_of(entry.trust()).insert(turn, destination);
        self.entries.insert(destination, entry);
        while self.entries.len() > self.config.entries_max.max(1) {
            let [unverified, verified] = &mut self.turns;
            // A quarter is for what was not checked, however much was: datagrams know nothing else.
            let are_many = unverified.len() > self.config.entries_max / 4 || verified.is_empty();
            let crowd = if are_many { unverified } else { verified };
            let Some((_, oldest)) = crowd.pop_first() else { break };
            self.entries.remove(&oldest);
            self.evicted += 1;
            self.generation = self.generation.wrapping_add(u32::from(!are_many));
        }
        let verified_lower = verified_bytes < before.verified_bytes;
        self.generation = self.generation.wrapping_add(u32::from(verified_lower));
        verified_lower || reported_bytes < before.reported_bytes
    }

    fn turns_of(&mut self, trust: Trust) -> &mut BTreeMap<Turn, IpAddr> {
        let [unverified, verified] = &mut self.turns;
        if trust == Trust::Verified { verified } else { unverified }
    }

    /// How many entries were forgotten before their time, to make room for others.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The longest packet in bytes to `destination`, where less than the interface takes was
    /// reported; with [`Trust::Verified`] only where the report was checked.
    #[must_use]
    pub fn lookup(&self, destination: IpAddr, trust: Trust) -> Option<usize> {
        let reported_bytes = self.reported(destination, trust)?;
        Some(reported_bytes.max(if destination.is_ipv4() { LEAST_IPV4_BYTES } else { 0 }))
    }

    /// Whether less was reported than is believed, so that routers must be let to fragment packets to
    /// `destination`, however short.
    #[must_use]
    pub fn needs_fragments(&self, destination: IpAddr, trust: Trust) -> bool {
        let is_less = |bytes| bytes < LEAST_IPV4_BYTES;
        destination.is_ipv4() && self.reported(destination, trust).is_some_and(is_less)
    }

    /// The least that was reported.
    fn reported(&self, destination: IpAddr, trust: Trust) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        let entry = self.entries.get(&destination)?;
        let mtu_bytes = match trust {
            Trust::Verified => entry.verified_bytes,
            Trust::Unverified => entry.reported_bytes,
        };
        Some(mtu_bytes).filter(|mtu_bytes| *mtu_bytes < usize::MAX)
    }

    /// When [`PathMtus::on_timeout`] wants to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.turns.iter().filter_map(BTreeMap::first_key_value).map(|(turn, _)| turn.0).min()
    }

    /// Forgets what was reported too long ago.
    pub fn on_timeout(&mut self, now: Instant) {
        let mut demoted = Vec::new();
        for (turns, trust) in self.turns.iter_mut().zip([Trust::Unverified, Trust::Verified]) {
            let is_verified = trust == Trust::Verified;
            while let Some(entry) = turns.first_entry().filter(|entry| entry.key().0 <= now) {
                let ((_, number), destination) = entry.remove_entry();
                self.generation = self.generation.wrapping_add(u32::from(is_verified));
                let Some(known) = self.entries.get_mut(&destination) else { continue };
                if is_verified && known.reported_until > now {
                    // What was reported since, and not checked, holds for its own time.
                    known.verified_bytes = usize::MAX;
                    known.turn = (known.reported_until, number);
                    demoted.push((known.turn, destination));
                } else {
                    self.entries.remove(&destination);
                }
            }
        }
        self.turns[0].extend(demoted);
    }

    /// A number that changes whenever an answer of [`PathMtus::lookup`] with [`Trust::Verified`] may: who kept one asks
    /// again when it moved. What anybody can send does not move it; who goes by that asks each time.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Moves [`PathMtus::generation`] because something else that decides on MTUs has changed.
    pub fn invalidate(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// How many destinations are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::hash_map::RandomState;

    const NOW: Instant = Instant::from_millis(1_000);

    fn address(last: u16) -> IpAddr {
        IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last])
    }

    fn plain() -> PathMtus<RandomState> {
        PathMtus::new(PathMtuConfig::default(), RandomState::new())
    }

    // RFC 8201, 4: "A node MUST NOT increase its estimate of the Path MTU in response to the
    // contents of a Packet Too Big message."
    #[test]
    fn reports_lower_and_never_raise() {
        let mut mtus = plain();
        assert_eq!(mtus.lookup(address(1), Trust::Verified), None);
        assert!(mtus.on_report(NOW, address(1), 1_400, Trust::Verified));
        assert!(!mtus.on_report(NOW, address(1), 1_450, Trust::Verified));
        assert!(!mtus.on_report(NOW, address(1), 1_400, Trust::Verified));
        assert_eq!(mtus.lookup(address(1), Trust::Verified), Some(1_400));
        assert_eq!(mtus.generation(), 1, "only what changes an answer moves it");
        assert!(mtus.on_report(NOW, address(1), 1_300, Trust::Verified));
        assert_eq!(mtus.lookup(address(1), Trust::Unverified), Some(1_300));
        assert_eq!(mtus.lookup(address(2), Trust::Unverified), None);
    }

    #[test]
    fn less_than_is_believed_is_for_routers_to_fragment() {
        let mut mtus = plain();
        let ipv4 = IpAddr::from([192, 0, 2, 1]);
        mtus.on_report(NOW, ipv4, 552, Trust::Verified);
        assert!(!mtus.needs_fragments(ipv4, Trust::Verified));
        let before = mtus.generation();
        mtus.on_report(NOW, ipv4, 551, Trust::Unverified);
        assert!(mtus.needs_fragments(ipv4, Trust::Unverified));
        assert!(!mtus.needs_fragments(ipv4, Trust::Verified));
        assert_eq!(mtus.generation(), before);
        mtus.on_report(NOW, ipv4, 68, Trust::Verified);
        assert!(mtus.needs_fragments(ipv4, Trust::Verified));
        assert_ne!(mtus.generation(), before, "who kept the answer asks again");
        assert_eq!(mtus.lookup(ipv4, Trust::Verified), Some(552));
    }

    // RFC 5927, 7: what quotes no sequence number must not slow TCP down.
    #[test]
    fn what_was_not_checked_is_not_for_those_who_check() {
        let mut mtus = plain();
        assert!(mtus.on_report(NOW, address(1), 1_300, Trust::Unverified));
        assert_eq!(mtus.lookup(address(1), Trust::Verified), None);
        assert_eq!(mtus.lookup(address(1), Trust::Unverified), Some(1_300));
        assert_eq!(mtus.generation(), 0, "nobody who checks has to ask again");
        assert!(mtus.on_report(NOW, address(1), 1_400, Trust::Verified));
        assert_eq!(mtus.generation(), 1);
        assert_eq!(mtus.lookup(address(1), Trust::Verified), Some(1_400));
        assert_eq!(mtus.lookup(address(1), Trust::Unverified), Some(1_300));
    }

    // RFC 8201, 4: "after 10 minutes", and reports that still come put it off.
    #[test]
    fn a_report_is_forgotten_after_ten_minutes() {
        let mut mtus = plain();
        mtus.on_report(NOW, address(1), 1_400, Trust::Verified);
        let again = NOW + Duration::from_secs(300);
        mtus.on_report(again, address(1), 1_400, Trust::Verified);
        let due = again + Duration::from_secs(600);
        assert_eq!(mtus.poll_timeout(), Some(due));
        mtus.on_timeout(NOW + Duration::from_secs(600));
        assert_eq!(mtus.len(), 1);
        let before = mtus.generation();
        mtus.on_timeout(due);
        assert!(mtus.is_empty() && mtus.poll_timeout().is_none());
        assert_ne!(mtus.generation(), before, "who kept the answer asks again");
    }

    // RFC 5927, 7 again: forged reports must not keep TCP from trying more after ten minutes.
    #[test]
    fn what_was_not_checked_does_not_prolong_what_was() {
        let mut mtus = plain();
        mtus.on_report(NOW, address(1), 1_300, Trust::Verified);
        mtus.on_report(NOW + Duration::from_secs(300), address(1), 1_300, Trust::Unverified);
        mtus.on_report(NOW + Duration::from_secs(300), address(1), 1_290, Trust::Unverified);
        mtus.on_timeout(NOW + Duration::from_secs(600));
        assert_eq!(mtus.lookup(address(1), Trust::Verified), None);
        assert_eq!(mtus.lookup(address(1), Trust::Unverified), Some(1_290));
        mtus.on_timeout(NOW + Duration::from_secs(900));
        assert!(mtus.is_empty() && mtus.turns.iter().all(BTreeMap::is_empty));
    }

    // RFC 8201, 4: an increase "MUST NOT be" looked for "less than 5 minutes after a Packet Too Big message".
    #[test]
    fn no_estimate_rises_within_five_minutes_of_a_report() {
        let late = NOW + Duration::from_secs(599);
        let mut mtus = plain();
        mtus.on_report(NOW, address(1), 1_400, Trust::Verified);
        mtus.on_report(late, address(1), 1_300, Trust::Unverified);
        mtus.on_timeout(NOW + Duration::from_secs(600));
        assert_eq!(mtus.lookup(address(1), Trust::Unverified), Some(1_300));
        // Nor does one that was not checked keep one that was from counting.
        let mut mtus = plain();
        mtus.on_report(NOW, address(1), 1_400, Trust::Verified);
        mtus.on_report(NOW, address(1), 1_300, Trust::Unverified);
        mtus.on_report(late, address(1), 1_400, Trust::Verified);
        mtus.on_timeout(NOW + Duration::from_secs(600));
        assert_eq!(mtus.lookup(address(1), Trust::Verified), Some(1_400));
    }

    #[test]
    fn the_table_is_bounded_and_the_oldest_makes_room() {
        let config = PathMtuConfig { entries_max: 3, ..PathMtuConfig::default() };
        // Who kept what was forgotten asks again, where that was checked.
        for (trust, moves) in [(Trust::Verified, 1), (Trust::Unverified, 0)] {
            let mut mtus = PathMtus::new(config, RandomState::new());
            for last in 0..100 {
                mtus.on_report(NOW, address(last), 1_300, trust);
                let turns: usize = mtus.turns.iter().map(BTreeMap::len).sum();
                assert!(mtus.len() <= 3 && turns == mtus.len());
            }
            assert_eq!((mtus.generation(), mtus.evicted()), (moves * (100 + 97), 97));
            assert_eq!(mtus.lookup(address(96), trust), None);
            assert_eq!(mtus.lookup(address(97), trust), Some(1_300));
            mtus.on_timeout(NOW + Duration::from_secs(600));
            assert_eq!((mtus.generation(), mtus.len()), (moves * (100 + 97 + 3), 0));
        }
    }

    // RFC 5927, 7: forged reports must not make TCP forget what it was told of in truth either.
    #[test]
    fn what_was_not_checked_pushes_out_nothing_that_was() {
        let config = PathMtuConfig { entries_max: 3, ..PathMtuConfig::default() };
        let mut mtus = PathMtus::new(config, RandomState::new());
        mtus.on_report(NOW, address(1), 1_300, Trust::Verified);
        // One that was not checked at first counts as checked from then on.
        mtus.on_report(NOW, address(2), 1_400, Trust::Unverified);
        mtus.on_report(NOW, address(2), 1_400, Trust::Verified);
        for last in 10..100 {
            mtus.on_report(NOW, address(last), 1_300, Trust::Unverified);
            assert_eq!(mtus.len(), 3);
        }
        assert_eq!(mtus.lookup(address(1), Trust::Verified), Some(1_300));
        assert_eq!(mtus.lookup(address(2), Trust::Verified), Some(1_400));
        for last in 200..203 {
            mtus.on_report(NOW, address(last), 1_300, Trust::Verified);
        }
        assert_eq!(mtus.len(), 3);
        assert_eq!(mtus.lookup(address(1), Trust::Verified), None, "the oldest of them makes room");
        assert_eq!(mtus.lookup(address(202), Trust::Verified), Some(1_300));
    }

    #[test]
    fn what_was_checked_leaves_a_quarter_to_what_was_not() {
        let config = PathMtuConfig { entries_max: 8, ..PathMtuConfig::default() };
        let mut mtus = PathMtus::new(config, RandomState::new());
        for last in 0..20 {
            mtus.on_report(NOW, address(last), 1_300, Trust::Verified);
        }
        for last in 100..120 {
            mtus.on_report(NOW, address(last), 1_400, Trust::Unverified);
            assert_eq!(mtus.lookup(address(last), Trust::Unverified), Some(1_400));
            assert_eq!(mtus.len(), 8);
        }
        let known = |trust, range: core::ops::Range<u16>| {
            range.filter(|last| mtus.lookup(address(*last), trust).is_some()).count()
        };
        assert_eq!((known(Trust::Verified, 0..20), known(Trust::Unverified, 100..120)), (6, 2));
    }
}
