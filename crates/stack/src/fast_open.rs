//! The cookies of TCP Fast Open (RFC 7413): those that peers gave us, and those that we give.
//!
//! Ours are a keyed hash of the peer's address, of our address and of the time in steps of six hours;
//! that of the step before is good as well (4.1.2: keys are changed regularly). Theirs lie in a bounded
//! table in which the oldest makes room (4.1.3). A path that swallowed a SYN with the option is spared
//! it for an hour, so that a middlebox costs one timeout and not each connection one (7.1).

use crate::error::SocketError;
use crate::ingress::{Incoming, Unclaimed};
use crate::shard::Shard;
use crate::sockets::{Keys, SocketId};
use batch::Chunk;
use core::hash::BuildHasher;
use core::net::{IpAddr, SocketAddr};
use counters::DropReason;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tcp::{Connection, FastOpenOutcome};
use time::{Duration, Instant};
use wire::TcpFastOpen;

/// Destinations whose cookie is remembered.
const KNOWN_MAX: usize = 1_024;

/// How long a path that failed is left alone.
const PAUSE: Duration = Duration::from_secs(3_600);

/// Our cookies change this often.
const STEP_SECONDS: u64 = 6 * 3_600;

/// What is known of a destination.
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
    known: HashMap<IpAddr, Known, Keys>,
    /// The destinations in the order in which they became known.
    order: VecDeque<IpAddr>,
}

impl FastOpen {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { keys, known: HashMap::with_hasher(keys), order: VecDeque::new() }
    }

    /// What a SYN to `remote` should carry, and the MSS that its data must keep to.
    fn option_for(&self, now: Instant, remote: IpAddr) -> Option<(TcpFastOpen, u16)> {
        match self.known.get(&remote) {
            Some(known) if known.paused_until.is_some_and(|until| now < until) => None,
            Some(Known { cookie: Some(cookie), mss, .. }) => Some((*cookie, *mss)),
            _ => Some((TcpFastOpen::REQUEST, 0)),
        }
    }

    /// Says whether another destination was forgotten for it.
    fn learn(&mut self, now: Instant, remote: IpAddr, outcome: FastOpenOutcome) -> bool {
        let FastOpenOutcome { cookie, mss, failed } = outcome;
        if cookie.is_none() && !failed {
            return false;
        }
        let mut has_evicted = false;
        if !self.known.contains_key(&remote) {
            if self.known.len() >= KNOWN_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                has_evicted = self.known.remove(&oldest).is_some();
            }
            self.order.push_back(remote);
        }
        let paused_until = failed.then_some(now + PAUSE);
        self.known.insert(remote, Known { cookie, mss, paused_until });
        has_evicted
    }

    /// Our cookie for a peer.
    fn cookie(&self, step: u64, local: IpAddr, remote: IpAddr) -> Option<TcpFastOpen> {
        let hash = self.keys.hash_one(("fast open", step, local, remote));
        TcpFastOpen::new(&hash.to_be_bytes())
    }

    fn is_valid(&self, now: Instant, local: IpAddr, remote: IpAddr, shown: TcpFastOpen) -> bool {
        let step = step_at(now);
        [step, step.wrapping_sub(1)]
            .into_iter()
            .any(|step| self.cookie(step, local, remote) == Some(shown))
    }
}

impl Shard {
    /// Whether a SYN to `remote` could carry data now.
    #[must_use]
    pub fn tcp_has_fast_open_cookie(&self, now: Instant, remote: IpAddr) -> bool {
        self.fast_open
            .option_for(now, remote)
            .is_some_and(|(option, _)| option != TcpFastOpen::REQUEST)
    }

    /// As [`Shard::tcp_connect_with`], with data that may go with the SYN where the peer gave a cookie
    /// before (RFC 7413), and else follows the handshake. The peer's application may see such data
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
    ) -> Result<SocketId, SocketError> {
        let config = config.unwrap_or_else(|| Arc::clone(&self.config));
        let id = self.tcp_connect_with(now, local, remote, config)?;
        self.tcp_offer_fast_open(now, id)?;
        let appended = self.tcp_append(now, id, data);
        if appended.is_err() {
            self.close(now, id);
        }
        appended.map(|()| id)
    }

    /// Lets a connection whose SYN was not sent yet ask for a cookie, or show the one its peer gave,
    /// and says how many of the bytes that are queued before the SYN goes out may go with it: 0
    /// where there is no cookie.
    ///
    /// # Errors
    /// There is no such connection.
    pub fn tcp_offer_fast_open(
        &mut self,
        now: Instant,
        id: SocketId,
    ) -> Result<usize, SocketError> {
        let index = self.sockets.index(id)?;
        let socket = self.sockets.tcp(index).ok_or(SocketError::InvalidSocket)?;
        let Some((option, mss)) = self.fast_open.option_for(now, socket.flow().remote.ip()) else {
            return Ok(0);
        };
        socket.connection.offer_fast_open(option, mss);
        Ok(socket.connection.fast_open_room())
    }

    /// A connection that this side opened is established: remembers what it learned.
    pub(crate) fn on_fast_open_outcome(&mut self, now: Instant, index: u32) {
        let Some(socket) = self.sockets.tcp(index) else { return };
        if let Some(outcome) = socket.connection.take_fast_open_outcome() {
            let has_evicted = self.fast_open.learn(now, socket.flow().remote.ip(), outcome);
            self.counters.fast_open_cookies_evicted += u64::from(has_evicted);
        }
    }

    /// The cookie for a SYN that asks for one, or shows one that is not valid (any more).
    pub(crate) fn cookie_for(&self, now: Instant, segment: &Unclaimed) -> Option<TcpFastOpen> {
        let (local, remote) = (segment.flow.local.ip(), segment.flow.remote.ip());
        segment.header.options.fast_open?;
        self.fast_open.cookie(step_at(now), local, remote)
    }

    /// Whether a SYN shows a valid cookie.
    pub(crate) fn shows_cookie(&self, now: Instant, segment: &Unclaimed) -> bool {
        let (local, remote) = (segment.flow.local.ip(), segment.flow.remote.ip());
        let shown = segment.header.options.fast_open;
        shown.is_some_and(|shown| {
            !shown.cookie().is_empty() && self.fast_open.is_valid(now, local, remote, shown)
        })
    }

    /// A SYN with a valid cookie: the connection exists from now on, with the data.
    pub(crate) fn open_fast(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        segment: &Unclaimed,
        parent: SocketId,
        config: Arc<tcp::Config>,
    ) -> Result<u32, DropReason> {
        let Unclaimed { flow, header, isn_min, .. } = segment;
        let interface = incoming.origin.interface;
        let next_hop = self.way_back(interface, flow.remote.ip())?;
        let mut parameters = self.parameters(now, interface, flow, config);
        if let Some(isn_min) = isn_min {
            parameters.isn = parameters.isn.later_of(*isn_min);
            self.on_successor(flow);
        }
        let data = segment.as_tcp_segment(incoming).payload;
        let connection = Connection::accept_fast(parameters, now, header, data, &self.pool);
        let index = self
            .open(connection, *flow, interface, next_hop, Some(parent))
            .map_err(|_| DropReason::SocketsFull)?;
        self.counters.fast_opens_accepted += 1;
        Ok(index)
    }
}

fn step_at(now: Instant) -> u64 {
    now.as_nanos() / (STEP_SECONDS * 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7413, 4.1.2 and 4.1.3.
    #[test]
    fn cookies_are_for_one_peer_and_for_a_time_and_those_of_others_are_bounded() {
        let mut cookies = FastOpen::new(Keys(1, 2));
        let address = |last: u32| IpAddr::from(last.to_be_bytes());
        let now = Instant::from_millis(1_000);
        let hour = Duration::from_secs(3_600);
        let cookie = cookies.cookie(step_at(now), address(1), address(2)).expect("eight bytes");
        assert!(cookies.is_valid(now, address(1), address(2), cookie));
        assert!(cookies.is_valid(now + 6 * hour, address(1), address(2), cookie));
        assert!(!cookies.is_valid(now + 12 * hour, address(1), address(2), cookie));
        assert!(!cookies.is_valid(now, address(1), address(3), cookie));
        let outcome = FastOpenOutcome { cookie: Some(cookie), mss: 1_000, failed: false };
        let mut evicted = 0;
        for last in 0..5_000 {
            evicted += usize::from(cookies.learn(now, address(last), outcome));
            assert!(!cookies.learn(now, address(last), outcome), "it is known");
        }
        assert_eq!(evicted, 5_000 - KNOWN_MAX);
        assert_eq!((cookies.known.len(), cookies.order.len()), (KNOWN_MAX, KNOWN_MAX));
        let option = |cookies: &FastOpen, now| cookies.option_for(now, address(4_999));
        assert_eq!(option(&cookies, now), Some((cookie, 1_000)));
        cookies.learn(now, address(4_999), FastOpenOutcome { cookie: None, mss: 0, failed: true });
        assert_eq!(option(&cookies, now), None);
        assert_eq!(option(&cookies, now + hour), Some((TcpFastOpen::REQUEST, 0)));
    }
}
