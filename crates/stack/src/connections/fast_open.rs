//! The cookies of TCP Fast Open (RFC 7413): those that peers gave us, and those that we give.
//!
//! Ours are made with the keys that a listener was given (`fast_open_keys.rs`). Where it was given none
//! they are drawn from the shard's secret for steps of six hours, and the step before is the backup
//! (4.1.2: keys are changed regularly). Theirs lie in a bounded
//! table in which the oldest makes room, one for each of our addresses that they were given to (4.1.3). A path that swallowed a SYN with the option is spared
//! it for an hour, so that a middlebox costs one timeout and not each connection one (7.1). Of several shards that are one
//! host each tells the others what it has learned, for the next connection may be theirs.

use crate::connections::fast_open_keys::{FastOpenKeys, Opening};
use crate::error::SocketError;
use crate::ingress::{Incoming, Unclaimed};
use crate::network::endpoint::canonical;
use crate::shard::Shard;
use crate::sockets::{Flow, Keys, SocketId};
use batch::Chunk;
use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use counters::DropReason;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tcp::{Connection, FastOpenOutcome};
use time::{Duration, Instant};
use wire::{SeqNumber, TcpFastOpen};

/// Our address and the peer's: a cookie is good between these.
pub(crate) type Pair = (IpAddr, IpAddr);

/// Pairs whose cookie is remembered.
const KNOWN_MAX: usize = 1_024;

/// How long a pending connection that failed goes on counting; Linux has the same.
const FAILURE_HOLD: Duration = Duration::from_secs(60);

/// So many of those are remembered, whoever listened: what the network brings twice it brings soon.
const FAILED_MAX: usize = 64;

/// How long a path that failed is left alone.
const PAUSE: Duration = Duration::from_secs(3_600);

/// How a listener serves TCP Fast Open (RFC 7413).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastOpenOptions {
    /// Connections that may be given to the application with the data of their SYN before their
    /// handshake is complete (5.1); 0, the default, gives no cookies.
    pub pending_max: usize,
    /// What cookies are made with, for servers that share an address, or are to be known again after a restart.
    /// `None`: keys of the stack's own, which change every six hours.
    pub keys: Option<FastOpenKeys>,
    /// Data is taken from every SYN, whether it shows a cookie or not (7.3): where sources cannot be forged, or the
    /// application bears it. Elsewhere it makes this host an amplifier for who forges them (5.2).
    pub without_cookie: bool,
}

/// Our own keys change this often.
const STEP_SECONDS: u64 = 6 * 3_600;

/// What is known of a pair.
#[derive(Clone, Copy, Debug)]
struct Known {
    cookie: Option<TcpFastOpen>,
    mss: u16,
    paused_until: Option<Instant>,
}

/// All cookies of a shard.
#[derive(Debug)]
pub(crate) struct FastOpen {
    keys: Keys,
    known: HashMap<Pair, Known, Keys>,
    /// The pairs in the order in which they became known.
    order: VecDeque<Pair>,
    /// In the order in which they failed.
    failed: VecDeque<Failed>,
}

impl FastOpen {
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            keys,
            known: HashMap::with_hasher(keys),
            order: VecDeque::new(),
            failed: VecDeque::new(),
        }
    }

    /// What a SYN between two addresses should carry, and the MSS that its data must keep to. `None`: nothing, and no data.
    fn option_for(
        &self,
        now: Instant,
        pair: Pair,
        without_cookie: bool,
    ) -> Option<(Option<TcpFastOpen>, u16)> {
        match self.known.get(&pair) {
            Some(known) if known.paused_until.is_some_and(|until| now < until) => None,
            // What the path takes bounds it, where nothing is known of the peer.
            known if without_cookie => Some((None, known.map_or(u16::MAX, |known| known.mss))),
            Some(Known { cookie: Some(cookie), mss, .. }) => Some((Some(*cookie), *mss)),
            _ => Some((Some(TcpFastOpen::REQUEST), 0)),
        }
    }

    /// Says whether another pair was forgotten for it.
    fn learn(&mut self, now: Instant, pair: Pair, outcome: FastOpenOutcome) -> bool {
        let FastOpenOutcome { cookie, carried, mss, failed } = outcome;
        if cookie.is_none() && !failed && !carried {
            return false;
        }
        let mut has_evicted = false;
        // The one that was shown stays good.
        let kept = self.known.get(&pair).map(|known| known.cookie.filter(|_| !failed));
        if kept.is_none() {
            if self.known.len() >= KNOWN_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                has_evicted = self.known.remove(&oldest).is_some();
            }
            self.order.push_back(pair);
        }
        let paused_until = failed.then_some(now + PAUSE);
        let cookie = cookie.or(kept.flatten());
        self.known.insert(pair, Known { cookie, mss, paused_until });
        has_evicted
    }

    /// Our own keys.
    fn keys(&self, now: Instant) -> FastOpenKeys {
        let step = now.as_nanos() / (STEP_SECONDS * 1_000_000_000);
        let key = |step: u64| {
            let halves = [1, 2].map(|half| self.keys.hash_one(("fast open", step, half)));
            core::array::from_fn(|at| halves[at / 8].to_le_bytes()[at % 8])
        };
        FastOpenKeys { primary: key(step), backup: Some(key(step.wrapping_sub(1))) }
    }
}

/// The connections of a listener whose handshake is not complete, and those whose handshake failed lately.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    count: usize,
    /// When those that failed stop counting, in order.
    failed: VecDeque<Instant>,
}

/// A connection that began with data and failed before its handshake was complete.
///
/// Its peer may know nothing of it yet but what it was answered. If the network brings its SYN a second time, that opens
/// another connection, to which late segments of this one must not belong: its initial number lies behind them all. (A
/// handshake in full needs nothing of the kind: nothing is sent before the peer has said which number it heard.)
#[derive(Debug)]
struct Failed {
    flow: Flow,
    next_isn_min: SeqNumber,
    until: Instant,
}

impl Openings {
    /// Whether one more connection may begin with data.
    pub(crate) fn has_room(&mut self, now: Instant, pending_max: usize) -> bool {
        while self.failed.front().is_some_and(|until| *until <= now) {
            self.failed.pop_front();
            self.count = self.count.saturating_sub(1);
        }
        self.count < pending_max
    }

    /// A handshake is over. RFC 7413, 5.1: one that was reset goes on counting for a while, so that whoever has a cookie
    /// cannot make room for its next request by resetting the last.
    fn settle(&mut self, now: Instant, has_failed: bool) {
        match has_failed {
            true => self.failed.push_back(now + FAILURE_HOLD),
            false => self.count = self.count.saturating_sub(1),
        }
    }
}

impl Shard {
    /// A SYN whose data is taken goes straight to the accept queue, with it.
    pub(crate) fn accept_fast(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        listener: u32,
        segment: &Unclaimed,
        cookie: Option<TcpFastOpen>,
    ) -> Result<(), DropReason> {
        let id = self.sockets.id(listener).ok_or(DropReason::NoConnection)?;
        let index = self.open_fast(now, incoming, segment, id, cookie)?;
        if let Some(listening) = self.sockets.listener(listener) {
            listening.openings.count += 1;
        }
        if let Some(socket) = self.sockets.tcp(index) {
            socket.fast_open_listener = Some(id);
        }
        self.sockets.enqueue(listener, index);
        self.touch(index);
        Ok(())
    }

    /// The handshake of a connection that began with data is over, well or not.
    pub(crate) fn on_fast_open_settled(&mut self, now: Instant, index: u32) {
        let Some(socket) = self.sockets.tcp(index) else { return };
        let Some(listener) = socket.fast_open_listener.take() else { return };
        let has_failed = socket.connection.error().is_some();
        if has_failed {
            let (flow, next_isn_min) = (socket.flow(), socket.connection.next_isn_min());
            let failed = &mut self.fast_open.failed;
            if failed.len() >= FAILED_MAX {
                failed.pop_front();
            }
            failed.push_back(Failed { flow, next_isn_min, until: now + FAILURE_HOLD });
        }
        if let Ok(index) = self.sockets.index(listener)
            && let Some(listening) = self.sockets.listener(index)
        {
            listening.openings.settle(now, has_failed);
        }
    }

    /// Whether the SYN of [`Shard::tcp_connect`] between these could carry data now: with the cookie that the peer gave to
    /// the address that it would leave from, or without one.
    #[must_use]
    pub fn tcp_may_open_fast(
        &self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        without_cookie: bool,
    ) -> bool {
        let asked = local.map(|local| canonical(local).ip()).filter(|it| !it.is_unspecified());
        let from = asked.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        let remote = self.network.or_this_host(canonical(remote), from);
        let Ok(local) = asked.map_or_else(|| self.source_for(remote), Ok) else { return false };
        let pair = (local, remote.ip());
        let option = self.fast_open.option_for(now, pair, without_cookie);
        option.is_some_and(|(option, _)| option != Some(TcpFastOpen::REQUEST))
    }

    /// As [`Shard::tcp_connect_with`], with data that may go with the SYN where the peer gave a cookie
    /// before (RFC 7413), or is known to want none, and else follows the handshake. The peer's application may see such data
    /// twice where the network duplicates the SYN: send nothing that must not be done twice.
    ///
    /// # Errors
    /// As [`Shard::tcp_connect_with`]; [`SocketError::WouldBlock`] where the data does not fit the
    /// send queue.
    pub fn tcp_connect_fast(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        config: Option<Arc<tcp::Config>>,
        data: Chunk,
        without_cookie: bool,
    ) -> Result<SocketId, SocketError> {
        let config = config.unwrap_or_else(|| Arc::clone(&self.config));
        let id = self.tcp_connect_with(now, local, remote, config)?;
        self.tcp_offer_fast_open(now, id, without_cookie)?;
        let appended = self.tcp_append(now, id, data);
        if appended.is_err() {
            self.close(now, id);
        }
        appended.map(|()| id)
    }

    /// Lets a connection whose SYN was not sent yet ask for a cookie, or show the one its peer gave,
    /// and says how many of the bytes that are queued before the SYN goes out may go with it: 0
    /// where there is no cookie. `without_cookie` lets them go without, for a peer that is known to take them
    /// ([`FastOpenOptions::without_cookie`]).
    ///
    /// # Errors
    /// There is no such connection.
    pub fn tcp_offer_fast_open(
        &mut self,
        now: Instant,
        id: SocketId,
        without_cookie: bool,
    ) -> Result<usize, SocketError> {
        let index = self.sockets.index(id)?;
        let socket = self.sockets.tcp(index).ok_or(SocketError::InvalidSocket)?;
        let pair = socket.path.network.addresses();
        let Some((option, mss)) = self.fast_open.option_for(now, pair, without_cookie) else {
            return Ok(0);
        };
        socket.connection.offer_fast_open(option, mss);
        Ok(socket.connection.fast_open_room())
    }

    /// A connection that this side opened is established: remembers what it learned.
    pub(crate) fn on_fast_open_outcome(&mut self, now: Instant, index: u32) {
        let Some(socket) = self.sockets.tcp(index) else { return };
        let Some(outcome) = socket.connection.take_fast_open_outcome() else { return };
        let pair = socket.path.network.addresses();
        if outcome.cookie.is_some() || outcome.failed {
            // The next connection to this peer may be another shard's.
            self.network.tell_of_fast_open(pair, outcome);
        }
        self.learn_fast_open(now, pair, outcome);
    }

    /// What a connection learned of these addresses, here or in another shard of the host.
    pub(crate) fn learn_fast_open(&mut self, now: Instant, pair: Pair, outcome: FastOpenOutcome) {
        let has_evicted = self.fast_open.learn(now, pair, outcome);
        self.counters.fast_open_cookies_evicted += u64::from(has_evicted);
    }

    /// A SYN whose data is taken: the connection exists from now on, with it. The SYN-ACK brings `cookie`.
    fn open_fast(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        segment: &Unclaimed,
        parent: SocketId,
        cookie: Option<TcpFastOpen>,
    ) -> Result<u32, DropReason> {
        let config = self.sockets.listener_config(parent).ok_or(DropReason::NoConnection)?;
        let Unclaimed { flow, header, isn_min, .. } = segment;
        let interface = incoming.origin.interface;
        let next_hop = self.network.way_back(interface, flow.remote.ip())?;
        let mut parameters = self.parameters(now, interface, flow, config);
        if let Some(isn_min) = isn_min {
            parameters.isn = parameters.isn.later_of(*isn_min);
            self.on_successor(flow);
        }
        let data = segment.as_tcp_segment(incoming).payload;
        let connection = Connection::accept_fast(parameters, now, header, data, cookie, &self.pool);
        let index = self
            .open(connection, *flow, interface, next_hop, Some(parent))
            .map_err(|_| DropReason::SocketsFull)?;
        self.counters.fast_opens_accepted += 1;
        Ok(index)
    }
}

impl FastOpen {
    /// Where the ISS of a connection must lie that follows one between the same ports that failed with its handshake.
    pub(crate) fn failed_opening(&self, now: Instant, flow: &Flow) -> Option<SeqNumber> {
        let mut newest = self.failed.iter().rev().take_while(|it| now < it.until);
        newest.find(|it| it.flow == *flow).map(|it| it.next_isn_min)
    }

    /// What a SYN comes to, for a listener with these options.
    pub(crate) fn fast_opening(
        &self,
        now: Instant,
        incoming: &Incoming<'_>,
        segment: &Unclaimed,
        options: FastOpenOptions,
    ) -> Opening {
        let usual = Opening { is_fast: false, cookie: None };
        if options.pending_max == 0 {
            return usual;
        }
        if options.without_cookie && segment.payload_len(incoming) > 0 {
            return Opening { is_fast: true, cookie: None };
        }
        let Some(shown) = segment.header.options.fast_open else { return usual };
        let keys = options.keys.unwrap_or_else(|| self.keys(now));
        keys.judge(segment.flow.local.ip(), segment.flow.remote.ip(), shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7413, 4.1.2 and 4.1.3.
    #[test]
    fn cookies_are_for_one_peer_and_for_a_time_and_those_of_others_are_bounded() {
        let mut cookies = FastOpen::new(Keys(1, 2));
        let address = |last: u32| IpAddr::from(last.to_be_bytes());
        let pair = |last| (address(1), address(last));
        let now = Instant::from_millis(1_000);
        let hour = Duration::from_secs(3_600);
        let judge = |cookies: &FastOpen, now, last, shown| {
            cookies.keys(now).judge(address(1), address(last), shown)
        };
        let given = judge(&cookies, now, 2, TcpFastOpen::REQUEST);
        let cookie = given.cookie.filter(|_| !given.is_fast).expect("it is asked for");
        let shown = |now, last| judge(&cookies, now, last, cookie);
        assert_eq!(shown(now, 2), Opening { is_fast: true, cookie: None });
        let later = shown(now + 6 * hour, 2);
        assert!(later.is_fast && later.cookie.is_some_and(|other| other != cookie));
        assert!(!shown(now + 12 * hour, 2).is_fast);
        assert!(!shown(now, 3).is_fast);
        let outcome =
            FastOpenOutcome { cookie: Some(cookie), carried: false, mss: 1_000, failed: false };
        let mut evicted = 0;
        for last in 0..5_000 {
            evicted += usize::from(cookies.learn(now, pair(last), outcome));
            assert!(!cookies.learn(now, pair(last), outcome), "it is known");
        }
        assert_eq!(evicted, 5_000 - KNOWN_MAX);
        assert_eq!((cookies.known.len(), cookies.order.len()), (KNOWN_MAX, KNOWN_MAX));
        let option = |cookies: &FastOpen, now| cookies.option_for(now, pair(4_999), false);
        assert_eq!(option(&cookies, now), Some((Some(cookie), 1_000)));
        // Data went with it, and no other was given: it stays.
        let outcome = FastOpenOutcome { cookie: None, carried: true, ..outcome };
        cookies.learn(now, pair(4_999), FastOpenOutcome { mss: 900, ..outcome });
        assert_eq!(option(&cookies, now), Some((Some(cookie), 900)));
        cookies.learn(
            now,
            pair(4_999),
            FastOpenOutcome { carried: false, failed: true, ..outcome },
        );
        assert_eq!(option(&cookies, now), None);
        assert_eq!(option(&cookies, now + hour), Some((Some(TcpFastOpen::REQUEST), 0)));
    }
}
