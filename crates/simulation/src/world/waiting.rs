//! Who waits, and whether for a reason.
//!
//! An application acts only when it is told that something became possible. One that was not told waits
//! for ever, unless something else wakes it: so before the links turn good, and everybody is woken, it is
//! seen that nobody could have gone on. And from time to time it is seen that who has room for more has
//! said so, and that over good links nobody rests.

use super::causes::ORPHAN;
use super::{Event, Phase, World};
use crate::application::Ended;
use crate::host::Socket;
use tcp::State;
use time::{Duration, Instant};

/// The sentence about who is told.
const TOLD: &str = "an application is told of what became possible";

/// Over good links, how long a connection rests at most: four times the longest timer (RFC 6298, 2.5), which may have
/// begun before and then find one thing after the other missing, and a little. Where a path swallows what is long, it
/// takes three timeouts to know (RFC 4821, 7.7), and a tail loss probe goes first (RFC 8985, 7.2).
const REST_MAX: Duration = Duration::from_secs(4 * 120 + 15);

/// What was seen of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    received: u64,
    acknowledged: u64,
    /// Since when it has been so.
    since: Instant,
    /// The window that it had announced, where that was too small.
    small_window: Option<u64>,
}

impl World {
    /// Nobody could go on who was not told so.
    pub(super) fn judge_wakes(&mut self) {
        for host in 0..self.hosts.len() {
            for home in 0..self.hosts[host].homes() {
                self.take_in(host, home);
                self.take_events(host, home);
            }
        }
        for index in 0..self.endpoints.len() {
            self.judge_wake(index);
        }
        for host in 0..self.hosts.len() {
            for listener in self.hosts[host].listeners.clone() {
                let shard = self.hosts[host].shard(listener.home);
                let waiting = shard.tcp_acceptable(listener.id).unwrap_or(0);
                if waiting > 0 && !self.accepting.contains(&(host, listener)) {
                    let what = format!("{waiting} connections can be accepted at host {host}");
                    self.fail(TOLD, what);
                }
            }
            let Some(Socket { home, id }) = self.hosts[host].datagrams else { continue };
            if self.hosts[host].shard(home).udp_peek_datagram(id).is_ok() {
                self.fail(TOLD, format!("a datagram can be read at host {host}"));
            }
        }
    }

    fn judge_wake(&mut self, index: usize) {
        let endpoint = &self.endpoints[index];
        if endpoint.ended.is_some() || endpoint.wake_at.is_some() {
            return;
        }
        let before = (endpoint.received, endpoint.sent, endpoint.at_end, endpoint.is_shut);
        let (host, Socket { home, id }) = (endpoint.host, endpoint.socket);
        let Ok(status) = self.hosts[host].shard(home).tcp_status(id) else { return };
        let was_opened = !matches!(status.state, State::SynSent | State::SynReceived);
        let unheard = !endpoint.connected && (was_opened || status.error.is_some());
        // Who enlarges a buffer of its own accord need not be told of the room.
        let behaviour = &mut self.endpoints[index].behaviour;
        let changes_options = core::mem::replace(&mut behaviour.changes_options, false);
        self.act(index);
        self.endpoints[index].behaviour.changes_options = changes_options;
        let endpoint = &self.endpoints[index];
        let after = (endpoint.received, endpoint.sent, endpoint.at_end, endpoint.is_shut);
        if unheard || before != after || endpoint.ended.is_some() {
            let what = format!("{before:?} became {after:?} from {status:?}");
            let ends = self.ends[index];
            self.fail_with(TOLD.to_owned(), what, Some(host), Some(ends));
        }
    }

    /// Looks at everybody who waits, and again after a while.
    pub(super) fn look(&mut self) {
        if self.phase > Phase::Calm {
            return;
        }
        for index in 0..self.endpoints.len() {
            if self.endpoints[index].ended.is_none() && self.endpoints[index].connected {
                self.look_at(index);
            } else {
                self.seen.remove(&index);
            }
        }
        let pause = match self.phase {
            Phase::Busy => (self.scenario.spread / 50).max(Duration::from_secs(1)),
            _ => Duration::from_secs(1),
        };
        self.events.add(self.now + pause, Event::Look);
    }

    fn look_at(&mut self, index: usize) {
        let endpoint = &self.endpoints[index];
        let (host, Socket { home, id }) = (endpoint.host, endpoint.socket);
        let (sent, received, at_end) = (endpoint.sent, endpoint.received, endpoint.at_end);
        let shard = self.hosts[host].shard(home);
        let (Ok(status), Ok(info)) = (shard.tcp_status(id), shard.tcp_info(self.now, id)) else {
            return;
        };
        let line = self.line(index);
        // RFC 9293, 3.8.6.2.2: half of the buffer, or a segment.
        let worth = (info.receive_buffer_bytes as u64 / 2).min(info.receive_mss_bytes.into());
        let hears = matches!(status.state, State::Established | State::FinWait1 | State::FinWait2);
        let left = self.checker.window_left(self.now, line, info.receive_next.0);
        // A window is said in units of its scale.
        let unit = info.window_scale.map_or(1, |(_, ours)| 1_u64 << ours);
        let small_window = left
            .filter(|left| *left + unit < worth && status.readable_bytes == 0 && hears && !at_end);
        let before = self.seen.get(&index).copied();
        if let Some(left) = small_window
            && before.is_some_and(|before| before.small_window == small_window)
        {
            let what = format!("{left} bytes of window for a second, all is read: {info:?}");
            let rule = "RFC 9293, 3.8.6.2.2: who has room again says so";
            return self.fail_with(rule.to_owned(), what, Some(host), Some(line.ends));
        }
        let acknowledged = sent.saturating_sub(status.unacknowledged_bytes as u64);
        let same = before.filter(|it| (it.received, it.acknowledged) == (received, acknowledged));
        let since = same.map_or(self.now, |same| same.since);
        self.seen.insert(index, Seen { received, acknowledged, since, small_window });
        self.judge_rest(index, since);
    }

    /// Over good links nobody rests for longer than timers do that began to back off before.
    fn judge_rest(&mut self, index: usize, since: Instant) {
        let endpoint = &self.endpoints[index];
        let pair = &self.pairs[endpoint.pair];
        if self.phase != Phase::Calm || pair.disturbed || endpoint.wake_at.is_some() {
            return;
        }
        let since = since.max(self.scenario.calm_at);
        if self.now.since(since) <= REST_MAX {
            return;
        }
        if self.is_given_up_by_peer(index) {
            // Who never asks whether the peer is there waits for ever.
            return self.set_disturbed(index);
        }
        let what = format!("nothing was read or acknowledged since {since:?}");
        let (host, ends) = (endpoint.host, self.ends[index]);
        let rule =
            "over good links a connection goes on within four of the longest timers".to_owned();
        self.fail_with(rule, what, Some(host), Some(ends));
    }

    /// Who gives a connection up says so once, by a reset, which may be lost as all before it was, or wait in vain for
    /// its neighbour, or name another byte than the next. Who is closed gives up without a limit of its own, too.
    fn is_given_up_by_peer(&self, index: usize) -> bool {
        let pair = &self.pairs[self.endpoints[index].pair];
        let peer = if index == pair.client { pair.server } else { Some(pair.client) };
        let Some(peer) = peer.map(|peer| &self.endpoints[peer]) else { return false };
        let tcp = &self.hosts[peer.host].plan.tcp;
        let is_limited =
            tcp.keepalive.is_some() || tcp.user_timeout.is_some() || tcp.user_timeout_option;
        let turned = self.line(index).turned();
        match peer.ended {
            Some(Ended::By(_)) => true,
            Some(_) if is_limited && self.has_waited_in_vain(turned) => true,
            Some(_) => self.checker.has_given_up_unheard(turned, ORPHAN),
            None => false,
        }
    }

    /// The application of a listener comes to accept later.
    pub(super) fn accept_later(&mut self, host: usize, listener: Socket, after: Duration) {
        self.accepting.insert((host, listener));
        self.events.add(self.now + after, Event::Accept { host, listener });
    }
}
