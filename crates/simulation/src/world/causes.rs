//! Which errors an application may be told of: those with a cause that the wire shows.
//!
//! ```text
//!   connection reset    a reset arrived; and the other end broke off, failed itself, was gone with its host,
//!                       had waited in vain, or never came to be
//!   timed out           this end waited as long as it has to, and the other answered all that came to it
//!   host unreachable    it opened the connection, and asked for the neighbour in vain; or it timed out, as above
//!   address removed     it was
//! ```
//!
//! What links did to a connection is seen by what came to its ends, so no fault of a link excuses another
//! connection, or another kind of error.

use super::World;
use crate::application::Ended;
use crate::checker::{Line, Patience};
use crate::scenario::HostPlan;
use stack::{SocketError, SynCookieMode};
use time::Duration;

/// The sentence that is broken.
const RULE: &str = "an application is told of no error without a cause";

/// Listeners that hold so many are never full.
const CROWD: usize = 64;

/// How long who is closed waits for what was sent to be acknowledged, at least.
pub(super) const ORPHAN: Patience =
    Patience { user_timeout: Some(Duration::from_secs(5)), keepalive: None };

/// Of user timeouts that both ends agree on, none is shorter than the default (RFC 5482, 3.1; RFC 9293,
/// 3.10.1).
const AGREED_MIN: Duration = Duration::from_secs(300);

impl World {
    /// The application of an endpoint was told of an error.
    pub(super) fn on_failed(
        &mut self,
        index: usize,
        error: SocketError,
    ) -> Result<(), (&'static str, String)> {
        self.counters.ended_by_error += 1;
        let user_timeout = self.hosts[self.endpoints[index].host].plan.tcp.user_timeout;
        let is_by_user = error == SocketError::TimedOut && user_timeout.is_some();
        self.counters.user_timeouts += u64::from(is_by_user);
        self.counters.half_open_found += u64::from(self.is_half_open(index));
        let cause = self.cause_of(index, error);
        self.set_disturbed(index);
        match cause {
            Ok(()) => {
                self.judge_lost_address(index, error)?;
                self.judge_marks(index, false)
            }
            Err(missing) => {
                let wire = self.checker.describe(self.line(index));
                Err((RULE, format!("{error}: {missing}: {wire}")))
            }
        }
    }

    /// Whether the peer was gone with its host (RFC 9293, 3.5.1).
    fn is_half_open(&self, index: usize) -> bool {
        let endpoint = &self.endpoints[index];
        let pair = &self.pairs[endpoint.pair];
        let peer = if pair.client == index { pair.server } else { Some(pair.client) };
        endpoint.connected
            && peer.is_some_and(|peer| self.endpoints[peer].ended == Some(Ended::WithHost))
    }

    /// What is missing of a cause.
    fn cause_of(&self, index: usize, error: SocketError) -> Result<(), &'static str> {
        let line = self.line(index);
        if !self.checker.knows(line) && error != SocketError::HostUnreachable {
            // Its ends are another's by now, or it never reached the wire.
            return Ok(());
        }
        let is_due = |is: bool, missing: &'static str| if is { Ok(()) } else { Err(missing) };
        match error {
            SocketError::AddressRemoved => Ok(()),
            // A reset behind the peer's FIN breaks the pipe, as on Linux.
            SocketError::ConnectionReset
            | SocketError::ConnectionRefused
            | SocketError::BrokenPipe => {
                is_due(self.checker.has_heard_reset(line), "no reset arrived")?;
                is_due(self.may_reset(index), "the other end had no reason for its reset")
            }
            SocketError::TimedOut => {
                is_due(self.has_waited_in_vain(line), "the peer was not silent, or not for so long")
            }
            SocketError::HostUnreachable => is_due(
                self.has_found_nobody(index, line) || self.has_waited_in_vain(line),
                "it was accepted and has not waited in vain, or the neighbour was not asked for three times in vain",
            ),
            // What shutting down a connection says that is over (shutdown(2)).
            SocketError::NotConnected => {
                let any = self.checker.has_heard_reset(line)
                    || self.lost_addresses.contains(&(line.hosts[0], line.ends.0.ip()))
                    || self.has_waited_in_vain(line)
                    || self.has_found_nobody(index, line);
                is_due(any, "nothing says that it is over")
            }
            _ => Err("no such error is expected"),
        }
    }

    /// The connection of an endpoint as it is seen from there.
    pub(super) fn line(&self, index: usize) -> Line {
        let host = self.endpoints[index].host;
        let pair = &self.pairs[self.endpoints[index].pair];
        let [client, server] = pair.hosts;
        let peer = if host == client { server } else { client };
        Line { hosts: [host, peer], ends: self.ends[index], iss: pair.iss }
    }

    /// Whether this end may have been given up for its neighbour: while it connects (RFC 9293, 3.9.2.2). One that was
    /// accepted is told of that when it has waited in vain, also where fast open let it be so before the handshake was
    /// complete.
    fn has_found_nobody(&self, index: usize, line: Line) -> bool {
        let endpoint = &self.endpoints[index];
        let is_client = self.pairs[endpoint.pair].client == index;
        is_client && self.checker.has_asked_in_vain(self.now, line, endpoint.begun_at)
    }

    /// Whether this end waited as long as its host's settings say.
    pub(super) fn has_waited_in_vain(&self, line: Line) -> bool {
        let patience = patience_of(&self.hosts[line.hosts[0]].plan);
        self.checker.has_waited_in_vain(self.now, line, patience)
    }

    /// Whether the other end had a reason to reset the connection of this endpoint.
    fn may_reset(&self, index: usize) -> bool {
        let line = self.line(index);
        let pair = &self.pairs[self.endpoints[index].pair];
        let plan = &self.hosts[pair.hosts[1]].plan;
        // A small backlog may turn somebody away for longer than SYNs, or the SYN-ACKs of those
        // whose last ACK found it full, are repeated.
        let small = plan.backlog < CROWD || plan.half_open_max < CROWD;
        let crowded = small && pair.server.is_none();
        // RFC 4987, 3.6: the first segment that comes behind a cookie must be the first of the
        // stream; another that overtook it is refused by a reset.
        let with_cookies = match plan.syn_cookies {
            SynCookieMode::Never => false,
            SynCookieMode::WhenFull => plan.half_open_max < CROWD,
            SynCookieMode::Always => true,
        };
        let is_client = index == pair.client;
        let server = if is_client { line.turned() } else { line };
        let by_cookie = with_cookies && self.checker.has_refused(server);
        let is_repeated = !is_client && pair.server != Some(index);
        // RFC 9293, 3.8.3: where the queue of a link is always full, every SYN-ACK may be lost until the server
        // gives the handshake up, and one of the last may yet arrive.
        let given_up = pair.server.is_none()
            && self.hosts[pair.hosts[1]].counters().any(|it| it.shard.half_open_timeouts > 0);
        let turned = line.turned();
        let other = if is_client { pair.server } else { Some(pair.client) };
        // Nobody waits for the outcome of what is closed, and timeouts count until more is acknowledged, even where
        // one proves spurious and the next comes soon.
        let is_orphan = other.is_some_and(|other| self.endpoints[other].ended.is_some());
        let abandoned = is_orphan && self.checker.has_waited_in_vain(self.now, turned, ORPHAN);
        pair.disturbed
            || crowded
            || by_cookie
            || is_repeated
            || given_up
            || abandoned
            || self.has_waited_in_vain(turned)
    }
}

/// How long the connections of a host wait.
fn patience_of(plan: &HostPlan) -> Patience {
    let tcp = &plan.tcp;
    let user_timeout = tcp.user_timeout.or(tcp.user_timeout_option.then_some(AGREED_MIN));
    let keepalive = tcp.keepalive.map(|it| {
        let all = it.idle + it.interval * it.count;
        match user_timeout {
            // Where the user's limit is over, a single probe is enough.
            Some(limit) => (all.min(limit.max(it.idle + it.interval)), 1),
            None => (all, it.count),
        }
    });
    Patience { user_timeout, keepalive }
}
