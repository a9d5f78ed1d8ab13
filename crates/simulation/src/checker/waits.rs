//! What one end of a connection waits for, as the wire shows it: when it may give up, and what it owes.

use time::{Duration, Instant};

/// RFC 9293, 3.8.3: R2 is at least 100 s.
const R2_MIN: Duration = Duration::from_secs(100);

/// RFC 9293, 3.8.3, MUST-23: at least three minutes of a SYN. The first may have waited for its neighbour.
const R2_SYN_MIN: Duration = Duration::from_secs(170);

/// RFC 6298, 2.5: a bound on the RTO, and a little more.
const RTO_MAX: Duration = Duration::from_secs(125);

/// Of a SYN-ACK nothing is laid down; five repetitions from one second on take this long.
pub(super) const R2_SYN_ACK_MIN: Duration = Duration::from_secs(60);

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its SYN was not answered.
    Opening,
    /// Its SYN-ACK was not acknowledged.
    Answering,
    /// It is open.
    Open,
}

/// What it waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    /// When the first SYN went out.
    syn_at: Option<Instant>,
    /// Since when something that was sent waits, of which nothing was acknowledged in the meantime.
    since: Option<Instant>,
    /// When anything else went out last.
    sent_at: Option<Instant>,
    /// When anything arrived last, and the keepalive probes that were sent since.
    arrived_at: Option<Instant>,
    probes: u32,
}

/// How long a host waits for its peers, at least.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    /// Of what was sent, where that is less than R2.
    pub user_timeout: Option<Duration>,
    /// Of keepalive probes: after a silence of so long, and so many of them.
    pub keepalive: Option<(Duration, u32)>,
}

impl Waits {
    pub(super) fn on_syn_sent(&mut self, now: Instant) {
        self.syn_at.get_or_insert(now);
    }

    /// When the first SYN went out.
    pub(super) fn syn_at(&self) -> Option<Instant> {
        self.syn_at
    }

    /// A segment went out; `waits` says that it, or another before it, is to be acknowledged.
    pub(super) fn on_sent(&mut self, now: Instant, waits: bool, is_probe: bool) {
        if waits {
            self.since.get_or_insert(now);
        }
        self.sent_at = Some(now);
        self.probes += u32::from(is_probe);
    }

    /// What is behind the last segment was given up with its neighbour and never seen: it may wait since then.
    pub(super) fn on_unseen(&mut self) {
        self.since = self.since.or(self.sent_at).or(self.syn_at);
    }

    pub(super) fn on_arrived(&mut self, now: Instant) {
        (self.arrived_at, self.probes) = (Some(now), 0);
    }

    /// When anything arrived last that was not of the past.
    pub(super) fn arrived_at(&self) -> Option<Instant> {
        self.arrived_at
    }

    /// More was acknowledged than before; `all` of what was sent.
    pub(super) fn on_acknowledged(&mut self, now: Instant, all: bool) {
        self.since = (!all).then_some(now);
    }

    /// Whether the end has waited long enough to give the connection up. Probes
    /// may have been given up unsent with a neighbour, which was asked for at `asked_at` last.
    pub(super) fn is_in_vain(
        &self,
        now: Instant,
        patience: Patience,
        stage: Stage,
        asked_at: Option<Instant>,
    ) -> bool {
        let lasted = |since: Option<Instant>, least: Duration| {
            // The limit may run from when the peer's window closed, before the first probe of it.
            let least = patience.user_timeout.map_or(least, |limit| (limit / 2).min(least));
            since.is_some_and(|since| now.since(since) >= least)
        };
        let probed = patience.keepalive.is_some_and(|(silence, probes)| {
            let is_silent = self.arrived_at.is_some_and(|at| now.since(at) >= silence);
            let all_sent = self.probes >= probes || asked_at >= self.arrived_at;
            is_silent && all_sent
        });
        // What a neighbour is looked for in vain for never reaches the wire.
        let is_cut_off =
            asked_at.is_some_and(|at| now.since(at) <= RTO_MAX) && lasted(self.arrived_at, R2_MIN);
        match stage {
            Stage::Opening => lasted(self.syn_at, R2_SYN_MIN),
            Stage::Answering => lasted(self.syn_at, R2_SYN_ACK_MIN),
            Stage::Open => probed || is_cut_off || lasted(self.since, R2_MIN),
        }
    }
}
