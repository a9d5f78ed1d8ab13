//! What the path to the peer takes, and how to find out (RFC 4821, RFC 8899).
//!
//! What interface, route and ICMP say is the *limit*. Where the path loses what is longer without a
//! word, a *black hole*, timeouts of full segments tell: then segments shrink to a size that most
//! paths take, and if that does not help, to one that all do. From there a search goes upwards: one
//! segment of real data longer than the others, the *probe*, and its fate decides.
//!
//! ```text
//!  default          low          probe                  high      limit
//!    |---------------|-------------|----------------------|---------|
//!                    | sent in segments of this size      | known not to pass, or not tried
//!
//!    arrived: low = probe         lost three times: high = probe - 1
//! ```
//!
//! Without SACK no probe is sent, for it is by SACK that its loss is found out. What timeouts have shown is then
//! forgotten after the time in which a search is taken up again, and shows once more where it still holds.
//!
//! What always holds: low =< high =< limit; there is one probe in flight at most; its loss alone is
//! no sign of congestion (RFC 4821, 7.6). Sizes here are MSS: with TCP options, without headers.

use crate::config::Config;
use crate::counters::Counting;
use crate::options::Negotiated;
use crate::sender::Sender;
use crate::sender::congestion::Congestion as _;
use crate::sender::recovery::RecoveryState;
use crate::sender::sent::Record;
use time::{Duration, Instant};
use wire::SeqNumber;

/// When a connection finds out itself what its path takes (Linux's `net.ipv4.tcp_mtu_probing`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathProbing {
    /// Never: what interface, route and ICMP say is believed.
    Off,
    /// Once timeouts have shown that long segments do not arrive.
    #[default]
    OnBlackHole,
    /// From the start: segments begin short.
    Always,
}

/// Where a search begins, unless every path of the family takes more (RFC 4821, 7.2: 1024 bytes).
const MSS_BASE: u16 = 1_024;

/// Timeouts in a row that tell of a black hole (RFC 4821, 7.7: R1 of RFC 1122, 4.2.3.5, at least 3).
const BLACK_HOLE_TIMEOUTS: u32 = 3;

/// Probes of one size that must be lost (RFC 8899, 5.1.2: MAX_PROBES).
const PROBES_MAX: u8 = 3;

/// A search is over where less than this is left to find: the cost of probes is not worth it.
const GAIN_MIN: u16 = 8;

/// A search that is over is taken up again after this (RFC 4821, 7.3; RFC 8899, 5.1.1: 600 s).
const RAISE_INTERVAL: Duration = Duration::from_secs(600);

/// Full segments of data behind a probe, so that its loss is found out without a timeout (RFC 4821,
/// 7.4).
pub(crate) const PROBE_FOLLOWERS: u32 = 4;

/// A probe in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    start: SeqNumber,
    end: SeqNumber,
    mss: u16,
    /// It was lost, which is known; what it carried is sent again.
    lost: bool,
}

/// A search under way, or one that is over for now.
#[derive(Debug)]
struct Search {
    low: u16,
    high: u16,
    /// Nothing was tried yet: what lies highest may well pass.
    fresh: bool,
    lost_count: u8,
    probe: Option<Probe>,
    /// Not before this.
    next_at: Instant,
    /// When it ends without SACK.
    raised_at: Instant,
    /// A probe may go out with the next data.
    ready: bool,
}

impl Search {
    fn new(low: u16, high: u16) -> Self {
        Self {
            low,
            high: high.max(low),
            fresh: true,
            lost_count: 0,
            probe: None,
            next_at: Instant::ZERO,
            raised_at: Instant::ZERO,
            ready: false,
        }
    }

    /// The size to try: the highest first, then the middle of what is left.
    fn candidate(&self) -> u16 {
        if self.fresh { self.high } else { self.high - (self.high - self.low) / 2 }
    }

    fn is_worthwhile(&self) -> bool {
        self.high - self.low >= GAIN_MIN
    }

    fn on_lost(&mut self, mss: u16) {
        self.ready = false;
        if mss > self.high {
            // The limit has sunk below it meanwhile: nothing so long is tried.
            return;
        }
        self.lost_count += 1;
        if self.lost_count >= PROBES_MAX {
            self.lost_count = 0;
            self.fresh = false;
            self.high = mss.saturating_sub(1).max(self.low);
        }
    }

    fn on_arrived(&mut self, mss: u16) {
        self.fresh = false;
        self.lost_count = 0;
        self.low = self.low.max(mss).min(self.high);
    }

    /// Everything before `una` arrived. Says whether longer segments may be sent now.
    fn on_ack(&mut self, now: Instant, una: SeqNumber, limit: u16) -> bool {
        let before = self.low;
        if let Some(probe) = self.probe.filter(|probe| una.is_at_or_after(probe.end)) {
            self.probe = None;
            if !probe.lost {
                self.on_arrived(probe.mss);
            }
            if !self.is_worthwhile() {
                self.next_at = now + RAISE_INTERVAL;
            }
        }
        if self.probe.is_none() && now >= self.next_at {
            if !self.is_worthwhile() && self.high < limit {
                (self.high, self.fresh) = (limit, true);
            }
            self.ready = self.is_worthwhile();
        }
        self.low > before
    }
}

/// What the path takes. See the module documentation.
#[derive(Debug)]
pub(crate) struct PathMtu {
    /// What interface, route and reports allow.
    limit: u16,
    /// What the peer takes, once its SYN has said so.
    peer: u16,
    /// What every path of the family takes.
    default: u16,
    search: Option<Box<Search>>,
}

impl PathMtu {
    pub(crate) fn new(limit: u16, default: u16, probing: PathProbing) -> Self {
        let base = MSS_BASE.max(default).min(limit);
        let search = (probing == PathProbing::Always).then(|| Box::new(Search::new(base, limit)));
        Self { limit, peer: u16::MAX, default, search }
    }

    /// What cannot be exceeded, whatever the path takes.
    fn bound(&self) -> u16 {
        self.limit.min(self.peer)
    }

    /// The longest segment to be sent.
    pub(crate) fn mss(&self) -> u16 {
        self.search.as_ref().map_or(self.bound(), |search| search.low)
    }

    /// The peer's SYN said what it takes, and whether probes can be sent.
    pub(crate) fn on_syn(&mut self, mss_peer: u16, sack: bool) {
        self.peer = mss_peer;
        self.search = self.search.take().filter(|_| sack);
        self.set_limit(self.limit);
    }

    fn set_limit(&mut self, limit: u16) {
        let was_lifted = limit > self.limit;
        self.limit = limit;
        let limit = self.bound();
        if let Some(search) = &mut self.search {
            search.low = search.low.min(limit);
            if was_lifted || search.high > limit {
                (search.high, search.fresh) = (limit.max(search.low), true);
                search.lost_count = 0;
            }
        }
    }

    /// Long segments do not arrive. Says whether shorter ones are sent from now on.
    fn on_black_hole(&mut self, now: Instant) -> bool {
        let before = self.mss();
        let base = MSS_BASE.max(self.default);
        let low = if before > base { base } else { self.default.min(before) };
        if low >= before {
            return false;
        }
        // The path may have been down altogether, so that what lies highest is tried first.
        let search = Search { raised_at: now + RAISE_INTERVAL, ..Search::new(low, self.bound()) };
        self.search = Some(Box::new(search));
        true
    }

    /// Where no probes can be sent, it is time to send long segments again. Says whether they were shorter.
    fn forget_black_hole(&mut self, now: Instant) -> bool {
        self.search.take_if(|search| now >= search.raised_at).is_some()
    }

    /// The size of the probe that is due, if any.
    pub(crate) fn due_probe(&self) -> Option<u16> {
        let search = self.search.as_ref()?;
        (search.ready && search.probe.is_none()).then(|| search.candidate())
    }

    pub(crate) fn on_probe_sent(&mut self, start: SeqNumber, end: SeqNumber, mss: u16) {
        if let Some(search) = &mut self.search {
            search.ready = false;
            search.probe = Some(Probe { start, end, mss, lost: false });
        }
    }

    /// The range of the probe in flight whose loss is to be found, or was.
    pub(crate) fn probe_range(&self) -> Option<(SeqNumber, SeqNumber)> {
        let probe = self.search.as_ref()?.probe?;
        Some((probe.start, probe.end))
    }

    /// The probe was lost, `alone` or near others: then it may have been for congestion, "search_high SHOULD NOT be
    /// updated, and the same-sized probe SHOULD be attempted again" (RFC 4821, 7.6.4). Says whether that is news.
    pub(crate) fn on_probe_lost(&mut self, alone: bool) -> bool {
        let Some(search) = &mut self.search else { return false };
        let Some(probe) = search.probe.as_mut().filter(|probe| !probe.lost) else { return false };
        probe.lost = true;
        let mss = probe.mss;
        if alone {
            search.on_lost(mss);
        }
        true
    }

    /// All that is in flight is sent again, for reasons of its own: nothing is learned of the probe.
    fn forget_probe(&mut self) {
        if let Some(search) = &mut self.search {
            search.probe = None;
        }
    }

    /// Says whether longer segments may be sent now.
    pub(crate) fn on_ack(&mut self, now: Instant, una: SeqNumber) -> bool {
        let limit = self.bound();
        self.search.as_mut().is_some_and(|search| search.on_ack(now, una, limit))
    }
}

impl Sender {
    /// What interface, route and reports allow is this now. What is outstanding and too long for it counts as lost, which
    /// is no sign of congestion, in a state in which it `may_send` that again. Says whether there is any.
    pub(crate) fn set_path_mss(
        &mut self,
        now: Instant,
        limit: u16,
        may_send: bool,
        negotiated: &mut Negotiated,
    ) -> bool {
        self.path_mtu.set_limit(limit);
        let before = negotiated.payload_max();
        self.apply_path_mss(negotiated);
        let after = negotiated.payload_max();
        if after >= before || !may_send || !self.recovery.has_longer(after) {
            return false;
        }
        if self.recovery.state() == RecoveryState::Fast {
            // All of it is sent again, which ends this recovery for the window as well.
            self.congestion.on_recovery_exit(now);
        }
        self.path_mtu.forget_probe();
        self.recovery.on_path_change(&self.sequence, after);
        true
    }

    /// The retransmission timer went off, `timeouts` times in a row: is it because long
    /// segments do not arrive (RFC 4821, 7.7)?
    pub(crate) fn check_black_hole(
        &mut self,
        now: Instant,
        timeouts: u32,
        config: &Config,
        negotiated: &mut Negotiated,
        counters: &mut Counting,
    ) {
        self.path_mtu.forget_probe();
        let is_off = config.path_probing == PathProbing::Off;
        if is_off || timeouts < BLACK_HOLE_TIMEOUTS {
            return;
        }
        // What times out is the first segment, as it went last: where that is no longer than what every path takes, options
        // with it, its length is not what keeps it, however much waits behind it.
        let mss = u32::from(negotiated.mss_path());
        // A peer may ask for less than the least that is sent.
        let options = mss.saturating_sub(negotiated.payload_max());
        // What ends a record left by itself, whatever left together with it.
        let len = self.queue.len_of_segment(self.sequence.una, self.recovery.first_len());
        let is_long = len + options > u32::from(self.path_mtu.default);
        if is_long && self.path_mtu.on_black_hole(now) {
            counters.black_holes += 1;
            self.apply_path_mss(negotiated);
        }
    }

    /// SND.UNA moved: a probe may have arrived, or another be due.
    #[inline]
    pub(crate) fn check_path_probe(
        &mut self,
        now: Instant,
        negotiated: &mut Negotiated,
        counters: &mut Counting,
    ) {
        if !negotiated.sack {
            if self.path_mtu.forget_black_hole(now) {
                self.apply_path_mss(negotiated);
            }
            return;
        }
        if self.path_mtu.on_ack(now, self.sequence.una) {
            counters.mtu_probes_arrived += 1;
            self.apply_path_mss(negotiated);
        }
    }

    /// Losses were found: is the probe among them?
    pub(crate) fn check_probe_lost(&mut self, counters: &mut Counting) {
        let Some((start, end)) = self.path_mtu.probe_range() else { return };
        // What was SACKed has arrived, though the peer may have dropped it since (RFC 2018, 8).
        let touches = |record: &Record| {
            !record.was_sacked && start.is_before(record.end) && record.start.is_before(end)
        };
        let alone = self.excuses_losses();
        if self.recovery.lost().any(touches) && self.path_mtu.on_probe_lost(alone) {
            counters.mtu_probes_lost += 1;
            if alone {
                // Nor to a controller that judges by what is lost, whatever the state of recovery.
                self.recovery.rate.forgive_losses();
            }
        }
    }

    /// Whether all that is lost is the probe, which says nothing of congestion (RFC 4821, 7.6: "MUST
    /// NOT be treated as an indication of congestion"). It is sent again in shorter segments, whose loss
    /// says what any other does.
    fn excuses_losses(&self) -> bool {
        let Some((start, end)) = self.path_mtu.probe_range() else { return false };
        let is_within = |record: &Record| {
            let is_inside = start.is_at_or_before(record.start) && record.end.is_at_or_before(end);
            is_inside && !record.is_again()
        };
        self.recovery.lost().all(is_within)
    }

    /// Whether fast recovery is to begin: for what is lost, unless that is a probe of the path alone; or for what was lost
    /// again behind a narrower path, for which the window was not reduced (RFC 5681, 4.3).
    pub(crate) fn wants_fast_recovery(&self, again_count: u32) -> bool {
        let is_again = again_count > 0 && self.recovery.is_unreduced();
        is_again || (self.recovery.wants_fast() && !self.excuses_losses())
    }

    fn apply_path_mss(&mut self, negotiated: &mut Negotiated) {
        let mss = self.path_mtu.mss();
        self.change_mss(|negotiated| negotiated.set_path_mss(mss), negotiated);
    }

    /// Changes what was agreed on, and with it perhaps the length of segments.
    pub(crate) fn change_mss(
        &mut self,
        change: impl FnOnce(&mut Negotiated),
        negotiated: &mut Negotiated,
    ) {
        let before = negotiated.payload_max();
        change(negotiated);
        let after = negotiated.payload_max();
        if after != before {
            self.congestion.on_mss_change(after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u16 = 1_460;

    /// Searches a path that takes `path` and returns what was found, with the number of probes sent.
    fn found(mut path_mtu: PathMtu, path: u16) -> (u16, u32) {
        let mut probes = 0;
        let mut una = SeqNumber(1);
        let now = Instant::from_millis(1_000);
        path_mtu.on_ack(now, una);
        while let Some(mss) = path_mtu.due_probe() {
            probes += 1;
            assert!(mss > path_mtu.mss() && mss <= LIMIT && probes < 100);
            path_mtu.on_probe_sent(una, una + u32::from(mss), mss);
            assert_eq!(path_mtu.due_probe(), None, "one at a time");
            if mss > path {
                assert!(path_mtu.on_probe_lost(true));
                assert!(!path_mtu.on_probe_lost(true), "known already");
            }
            una += u32::from(mss);
            path_mtu.on_ack(now, una);
        }
        (path_mtu.mss(), probes)
    }

    // RFC 4821, 7.3: the search converges, from below.
    #[test]
    fn a_search_finds_what_the_path_takes() {
        for path in 1_024..=LIMIT {
            let path_mtu = PathMtu::new(LIMIT, 536, PathProbing::Always);
            assert_eq!(path_mtu.mss(), 1_024);
            let (mss, probes) = found(path_mtu, path);
            assert!(mss <= path && path - mss < GAIN_MIN, "{mss} over a path of {path}");
            assert!(probes <= 3 * 8 + 1, "{probes} probes");
        }
        let path_mtu = PathMtu::new(LIMIT, 536, PathProbing::Always);
        assert_eq!(found(path_mtu, LIMIT), (LIMIT, 1), "the likeliest size first");
    }

    // RFC 4821, 7.2 and 7.7: 1024 bytes first, then what every path takes.
    #[test]
    fn a_black_hole_makes_segments_shorter_in_two_steps() {
        for (default, steps) in [(536, [1_024, 536, 536]), (1_220, [1_220, 1_220, 1_220])] {
            let mut path_mtu = PathMtu::new(LIMIT, default, PathProbing::OnBlackHole);
            assert_eq!(path_mtu.mss(), LIMIT);
            for step in steps {
                let before = path_mtu.mss();
                assert_eq!(path_mtu.on_black_hole(Instant::ZERO), step < before);
                assert_eq!(path_mtu.mss(), step);
            }
            let (mss, _) = found(path_mtu, 1_300);
            assert!(mss <= 1_300 && 1_300 - mss < GAIN_MIN, "and then it goes up again");
        }
        let mut narrow = PathMtu::new(500, 536, PathProbing::OnBlackHole);
        assert!(
            !narrow.on_black_hole(Instant::ZERO) && narrow.mss() == 500,
            "nothing shorter would help"
        );
    }

    // RFC 4821, 7.3; RFC 8899, PMTU_RAISE_TIMER: after 600 s what lies above is tried again.
    #[test]
    fn a_search_that_is_over_is_taken_up_after_ten_minutes() {
        let mut path_mtu = PathMtu::new(LIMIT, 536, PathProbing::Always);
        let start = Instant::from_millis(1_000);
        let mut una = SeqNumber(1);
        path_mtu.on_ack(start, una);
        while let Some(mss) = path_mtu.due_probe() {
            path_mtu.on_probe_sent(una, una + 1, mss);
            if mss > 1_200 {
                path_mtu.on_probe_lost(true);
            }
            una += 1;
            path_mtu.on_ack(start, una);
        }
        let just_before = start + (RAISE_INTERVAL - Duration::from_millis(1));
        path_mtu.on_ack(just_before, una);
        assert_eq!(path_mtu.due_probe(), None);
        path_mtu.on_ack(start + RAISE_INTERVAL, una);
        assert_eq!(path_mtu.due_probe(), Some(LIMIT));
    }

    // RFC 9293, 3.7.1, MUST-16: no probe is longer than what the peer takes.
    #[test]
    fn a_search_ends_where_the_peer_does() {
        let mut path_mtu = PathMtu::new(LIMIT, 536, PathProbing::Always);
        path_mtu.on_syn(1_100, true);
        assert_eq!(found(path_mtu, LIMIT), (1_100, 1));
        let mut path_mtu = PathMtu::new(LIMIT, 536, PathProbing::OnBlackHole);
        path_mtu.on_syn(600, true);
        assert_eq!(path_mtu.mss(), 600);
        assert!(path_mtu.on_black_hole(Instant::ZERO));
        assert_eq!(found(path_mtu, LIMIT).0, 600);
    }

    // RFC 4821, 7.8: what ICMP says bounds the search; what the interface allows opens it.
    #[test]
    fn reports_bound_a_search() {
        let mut path_mtu = PathMtu::new(LIMIT, 536, PathProbing::Always);
        path_mtu.set_limit(1_200);
        path_mtu.on_ack(Instant::ZERO, SeqNumber(1));
        assert_eq!(path_mtu.due_probe(), Some(1_200));
        path_mtu.set_limit(900);
        assert_eq!(path_mtu.mss(), 900);
        path_mtu.set_limit(LIMIT);
        assert_eq!(path_mtu.mss(), 900, "only a probe goes further");
    }

    #[test]
    fn each_size_has_its_own_losses() {
        let mut path_mtu = PathMtu::new(LIMIT, 536, PathProbing::Always);
        let mut una = SeqNumber(1);
        path_mtu.on_ack(Instant::ZERO, una);
        let lose = |path_mtu: &mut PathMtu, una: &mut SeqNumber, mss: u16| {
            path_mtu.on_probe_sent(*una, *una + 1, mss);
            path_mtu.on_probe_lost(true);
            *una += 1;
            path_mtu.on_ack(Instant::ZERO, *una);
        };
        lose(&mut path_mtu, &mut una, LIMIT);
        lose(&mut path_mtu, &mut una, LIMIT);
        path_mtu.set_limit(1_300);
        lose(&mut path_mtu, &mut una, 1_300);
        assert_eq!(path_mtu.due_probe(), Some(1_300), "it was lost once");
        // One was in flight when a report said that the path takes less.
        path_mtu.set_limit(LIMIT);
        path_mtu.on_ack(Instant::ZERO, una);
        path_mtu.on_probe_sent(una, una + 1, LIMIT);
        path_mtu.set_limit(1_300);
        path_mtu.on_probe_lost(true);
        una += 1;
        path_mtu.on_ack(Instant::ZERO, una);
        lose(&mut path_mtu, &mut una, 1_300);
        lose(&mut path_mtu, &mut una, 1_300);
        assert_eq!(path_mtu.due_probe(), Some(1_300), "it was lost twice");
    }
}
