//! The claim of one own address: found free, announced, defended.
//!
//! RFC 5227 (IPv4, by ARP) and RFC 4862, 5.4 (IPv6, by neighbour discovery) describe one life with
//! other numbers:
//!
//! ```text
//!        random delay        probes, random intervals      settle
//!  new -------------> PROBING ------------------------> ANNOUNCING ----------> HELD
//!                        |  somebody has it                 |  announcements    |
//!                        v                                  |                   |
//!                      lost <------- second dispute within the defence interval +
//!                                    (an address that may be given up)
//! ```
//!
//! In: time, and that somebody else was heard to use the address. Out: steps
//! ([`Claim::poll_step`]): send a probe, the address is ours, send an announcement; and what a
//! dispute leads to ([`Claim::on_dispute`]). Messages are the caller's, who knows addresses.
//!
//! What always holds: no more than [`ClaimConfig::probes`] and [`ClaimConfig::announcements`]
//! messages are sent of each kind, and disputes cost at most one announcement in
//! [`ClaimConfig::defend_interval`], however many there are.

use time::{Duration, Instant, Jitter};

/// Numbers of a claim. Zero probes take the address at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimConfig {
    /// The first message waits a random time up to this.
    pub first_delay_max: Duration,
    /// Messages that ask whether somebody has the address.
    pub probes: u32,
    /// From one probe to the next, at least.
    pub probe_interval_min: Duration,
    /// From one probe to the next, at most.
    pub probe_interval_max: Duration,
    /// From the last probe to taking the address.
    pub settle: Duration,
    /// Messages that tell others of the address once it is taken.
    pub announcements: u32,
    /// From one announcement to the next.
    pub announce_interval: Duration,
    /// A dispute within this time of another one is not answered.
    pub defend_interval: Duration,
}

impl ClaimConfig {
    /// RFC 5227, 1.1: PROBE_WAIT, PROBE_NUM, PROBE_MIN, PROBE_MAX, ANNOUNCE_WAIT, ANNOUNCE_NUM,
    /// ANNOUNCE_INTERVAL, DEFEND_INTERVAL. An address is ours after five to eight seconds.
    pub const IPV4: Self = Self {
        first_delay_max: Duration::from_secs(1),
        probes: 3,
        probe_interval_min: Duration::from_secs(1),
        probe_interval_max: Duration::from_secs(2),
        settle: Duration::from_secs(2),
        announcements: 2,
        announce_interval: Duration::from_secs(2),
        defend_interval: Duration::from_secs(10),
    };

    /// RFC 4862, 5.1 and 5.4: one solicitation (DupAddrDetectTransmits) after a random delay of up
    /// to a second (MAX_RTR_SOLICITATION_DELAY), and a second (RETRANS_TIMER) for an answer. One
    /// unsolicited advertisement follows, where RFC 4861, 7.2.6 allows three.
    pub const IPV6: Self = Self {
        first_delay_max: Duration::from_secs(1),
        probes: 1,
        probe_interval_min: Duration::from_secs(1),
        probe_interval_max: Duration::from_secs(1),
        settle: Duration::from_secs(1),
        announcements: 1,
        announce_interval: Duration::from_secs(1),
        defend_interval: Duration::from_secs(10),
    };
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStep {
    /// Ask whether somebody has the address.
    Probe,
    /// Nobody has: the address is ours.
    Won,
    /// Tell everybody that we have it.
    Announce,
}

/// What a dispute leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispute {
    /// The address is somebody else's: it must not be used (any more).
    Lost,
    /// Tell everybody once that the address is ours.
    Defend,
    /// Say nothing: the last defence was a moment ago.
    Silence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Probing { sent: u32 },
    Announcing { sent: u32 },
    Held,
}

/// The claim of one address. See the module documentation.
#[derive(Clone, Debug)]
pub struct Claim {
    config: ClaimConfig,
    phase: Phase,
    due: Option<Instant>,
    disputed_at: Option<Instant>,
}

impl Claim {
    /// Begins to claim an address. Whoever asks for no probes holds the address at once, without a
    /// delay and without a [`ClaimStep::Won`].
    #[must_use]
    pub fn new(now: Instant, config: ClaimConfig, jitter: &mut Jitter) -> Self {
        let (phase, delay) = match config.probes {
            0 => (Phase::Announcing { sent: 0 }, Duration::ZERO),
            _ => {
                let delay = jitter.between(Duration::ZERO, config.first_delay_max);
                (Phase::Probing { sent: 0 }, delay)
            }
        };
        Self { config, phase, due: Some(now + delay), disputed_at: None }
    }

    /// An address that nobody is asked about or told of.
    #[must_use]
    pub fn held() -> Self {
        let config = ClaimConfig { probes: 0, announcements: 0, ..ClaimConfig::IPV4 };
        Self { config, phase: Phase::Held, due: None, disputed_at: None }
    }

    /// Whether it is still open if the address is free.
    #[must_use]
    pub fn is_probing(&self) -> bool {
        matches!(self.phase, Phase::Probing { .. })
    }

    /// Tells others of the address anew: its hardware address has changed (RFC 4861, 7.2.6; RFC
    /// 5227, 4). An address that is being probed is left to its probes.
    pub fn announce_again(&mut self, now: Instant) {
        if !self.is_probing() {
            self.phase = Phase::Announcing { sent: 0 };
            self.due = Some(now);
        }
    }

    /// What is due by `now`; call until there is nothing.
    pub fn poll_step(&mut self, now: Instant, jitter: &mut Jitter) -> Option<ClaimStep> {
        if self.due? > now {
            return None;
        }
        let config = &self.config;
        match self.phase {
            Phase::Probing { sent } if sent < config.probes => {
                let wait = if sent + 1 == config.probes {
                    config.settle
                } else {
                    jitter.between(config.probe_interval_min, config.probe_interval_max)
                };
                self.phase = Phase::Probing { sent: sent + 1 };
                self.due = Some(now + wait);
                Some(ClaimStep::Probe)
            }
            Phase::Probing { .. } => {
                self.phase = Phase::Announcing { sent: 0 };
                Some(ClaimStep::Won)
            }
            Phase::Announcing { sent } if sent < config.announcements => {
                let is_last = sent + 1 == config.announcements;
                self.phase =
                    if is_last { Phase::Held } else { Phase::Announcing { sent: sent + 1 } };
                self.due = (!is_last).then_some(now + config.announce_interval);
                Some(ClaimStep::Announce)
            }
            Phase::Announcing { .. } | Phase::Held => {
                (self.phase, self.due) = (Phase::Held, None);
                None
            }
        }
    }

    /// When [`Claim::poll_step`] has something to do.
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Somebody else uses the address. `keeps`: it is not ours to give up (RFC 5227, 2.4 c: hosts
    /// that were given a fixed address); otherwise a second dispute in a row loses it (2.4 b).
    pub fn on_dispute(&mut self, now: Instant, keeps: bool) -> Dispute {
        if self.is_probing() {
            return Dispute::Lost;
        }
        let interval = self.config.defend_interval;
        let before = self.disputed_at.replace(now);
        let is_repeated = before.is_some_and(|last| now.since(last) < interval);
        match (is_repeated, keeps) {
            (false, _) => Dispute::Defend,
            (true, true) => Dispute::Silence,
            (true, false) => Dispute::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every step of a claim with the millisecond it was due at.
    fn life(config: ClaimConfig, seed: u64) -> Vec<(u64, ClaimStep)> {
        let mut jitter = Jitter::new(seed);
        let mut claim = Claim::new(Instant::ZERO, config, &mut jitter);
        let mut steps = Vec::new();
        while let Some(now) = claim.poll_timeout() {
            if let Some(step) = claim.poll_step(now, &mut jitter) {
                steps.push((now.as_millis(), step));
            }
        }
        steps
    }

    /// RFC 5227, 2.1.1: "a host should wait for a random time interval selected uniformly in the
    /// range zero to PROBE_WAIT seconds, and should then send PROBE_NUM probe packets, each of
    /// these probe packets spaced randomly and uniformly, PROBE_MIN to PROBE_MAX seconds apart.
    /// [...] If, by ANNOUNCE_WAIT seconds after the transmission of the last ARP Probe no
    /// conflicting ARP Reply or ARP Probe has been received, then the host has successfully
    /// determined that the desired address may be used safely." 2.3: "announce [...] by
    /// broadcasting ANNOUNCE_NUM ARP Announcements, spaced ANNOUNCE_INTERVAL seconds apart".
    #[test]
    fn an_ipv4_address_is_probed_and_announced_in_the_times_of_rfc_5227() {
        for seed in 0..50 {
            let steps = life(ClaimConfig::IPV4, seed);
            let kinds: Vec<_> = steps.iter().map(|(_, step)| *step).collect();
            use ClaimStep::{Announce, Probe, Won};
            assert_eq!(kinds, [Probe, Probe, Probe, Won, Announce, Announce]);
            let at: Vec<_> = steps.iter().map(|(at, _)| *at).collect();
            assert!(at[0] <= 1_000);
            assert!((1_000..=2_000).contains(&(at[1] - at[0])));
            assert!((1_000..=2_000).contains(&(at[2] - at[1])));
            assert_eq!((at[3] - at[2], at[4] - at[3], at[5] - at[4]), (2_000, 0, 2_000));
        }
    }

    /// RFC 4862, 5.4: "the Neighbor Solicitation message is sent DupAddrDetectTransmits times,
    /// separated by RetransTimer milliseconds".
    #[test]
    fn an_ipv6_address_is_ours_a_second_after_one_solicitation() {
        let steps = life(ClaimConfig::IPV6, 9);
        let [(first, ClaimStep::Probe), (won, ClaimStep::Won), (_, ClaimStep::Announce)] =
            steps[..]
        else {
            panic!("{steps:?}")
        };
        assert!(first <= 1_000);
        assert_eq!(won - first, 1_000);
    }

    #[test]
    fn without_probes_the_address_is_announced_at_once() {
        let steps = life(ClaimConfig { probes: 0, ..ClaimConfig::IPV4 }, 1);
        assert_eq!(steps, [(0, ClaimStep::Announce), (2_000, ClaimStep::Announce)]);
        assert_eq!(Claim::held().poll_timeout(), None);
    }

    /// RFC 5227, 2.4 (b) and (c).
    #[test]
    fn an_address_is_defended_once_and_then_given_up_or_kept_in_silence() {
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        for (keeps, repeated) in [(false, Dispute::Lost), (true, Dispute::Silence)] {
            let mut claim = Claim::held();
            assert_eq!(claim.on_dispute(at(100), keeps), Dispute::Defend);
            assert_eq!(claim.on_dispute(at(109), keeps), repeated);
            assert_eq!(claim.on_dispute(at(118), keeps), repeated);
            assert_eq!(claim.on_dispute(at(128), keeps), Dispute::Defend, "ten seconds later");
        }
    }

    #[test]
    fn whoever_answers_a_probe_has_the_address() {
        let mut jitter = Jitter::new(1);
        let mut claim = Claim::new(Instant::ZERO, ClaimConfig::IPV4, &mut jitter);
        assert!(claim.is_probing());
        assert_eq!(claim.on_dispute(Instant::ZERO, true), Dispute::Lost);
    }
}
