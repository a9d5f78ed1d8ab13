//! What a host learns from routers: RFC 4861, 6.3 (discovery) and RFC 4862, 5.5 (addresses); and when a router
//! speaks (`advertiser.rs`).
//!
//! ```text
//!  router solicitations <- poll_solicitation        poll_change -> default router
//!  router advertisements -> on_advertisement                       networks on the link
//!  time                  -> on_timeout                             addresses to form, deprecate, drop
//!  a duplicate           -> on_duplicate                           hop limit, MTU, times, DNS servers
//! ```
//!
//! A sans-IO part that keeps lists and gives out what changed in them ([`LinkChange`]); whoever owns
//! routes and addresses carries the changes out. `identifier.rs` makes interface identifiers
//! (RFC 7217), `prefixes.rs` keeps networks and addresses with their lifetimes.
//!
//! What always holds:
//! * every list is bounded ([`RouterConfig`]), and what is refused for want of room is counted: a
//!   flood of advertisements costs a bounded amount of memory and no existing entry, but for DNS servers, of which
//!   RFC 8106, 6.2 keeps those that are told of for longer;
//! * an advertisement was checked before it comes here (RFC 4861, 6.1.2: hop limit 255, a
//!   link-local source), so that nobody beyond the link can send one;
//! * changes that wait to be read are bounded by the lists they are about.

mod advertiser;
mod identifier;
mod prefixes;
#[cfg(test)]
mod tests;

pub use advertiser::RouterAdvertiser;
use core::net::Ipv6Addr;
pub use identifier::{IdentifierKey, stable_address};
use prefixes::Prefixes;
use std::collections::VecDeque;
use time::{Duration, Instant, Jitter};
use wire::HardwareAddress;
use wire::ndp::{RouterAdvertisement, RouterPreference};

/// The link-local prefix (RFC 4291, 2.5.6).
pub const LINK_LOCAL_PREFIX: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);

/// IPv6 links take this much at least (RFC 8200, 5).
const MTU_MIN_BYTES: u32 = 1_280;

/// REACHABLE_TIME and its bounds (RFC 4861, 10), and how often it is drawn anew (6.3.4: "at least
/// every few hours").
const REACHABLE_DEFAULT: Duration = Duration::from_secs(30);
const REACHABLE_MAX: Duration = Duration::from_secs(3_600);
const REACHABLE_REDRAW: Duration = Duration::from_secs(2 * 3_600);

/// RETRANS_TIMER (RFC 4861, 10), and bounds for what a router may make of it: nobody shall make
/// this host send a flood of solicitations.
const RETRANSMIT_MIN: Duration = Duration::from_millis(100);
const RETRANSMIT_MAX: Duration = Duration::from_secs(60);

/// MAX_RTR_SOLICITATION_DELAY (RFC 4861, 10), and RFC 7559, 2: the interval between solicitations
/// begins at 4 s, doubles and ends at an hour.
const SOLICITATION_DELAY_MAX: Duration = Duration::from_secs(1);
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
const SOLICITATION_INTERVAL_MAX: Duration = Duration::from_secs(3_600);

/// DNS servers that are kept: RFC 8106, 5.3.1 recommends three.
const NAME_SERVERS_MAX: usize = 3;

/// How a host listens to routers.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// Whether addresses are formed from prefixes (RFC 4862).
    pub forms_addresses: bool,
    /// Key of interface identifiers (RFC 7217). The same key gives the same addresses on the same
    /// network again; one that is drawn at each start gives others.
    pub key: IdentifierKey,
    /// Default routers that are kept. RFC 4861, 6.3.4: at least two.
    pub routers_max: usize,
    /// Networks on the link, and as many formed addresses.
    pub prefixes_max: usize,
}

impl RouterConfig {
    /// The usual bounds: 8 routers, 8 prefixes.
    #[must_use]
    pub const fn new(key: IdentifierKey) -> Self {
        Self { forms_addresses: true, key, routers_max: 8, prefixes_max: 8 }
    }
}

counters::counters! {
    /// What router discovery did.
    pub struct RouterCounters {
        /// Router solicitations made.
        router_solicitations,
        /// Router advertisements taken in.
        router_advertisements,
        /// Router advertisements made.
        router_advertisements_sent,
        /// Routers, prefixes and addresses for which there was no room.
        router_entries_refused,
        /// Lifetimes shorter than two hours that were not believed (RFC 4862, 5.5.3 e).
        router_lifetimes_refused,
    }
}

/// Something is different on the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// Packets to everywhere else go to this router from now on, or to none.
    DefaultRouter(Option<Ipv6Addr>),
    /// Hosts with this prefix are neighbours.
    OnLink {
        /// The network.
        prefix: Ipv6Addr,
        /// Length of its prefix.
        prefix_len: u8,
    },
    /// Hosts with this prefix are not known to be neighbours any more.
    OffLink {
        /// The network.
        prefix: Ipv6Addr,
        /// Length of its prefix.
        prefix_len: u8,
    },
    /// Claim this address, which has a prefix of 64 bits.
    Form(Ipv6Addr),
    /// Use this formed address for what is new, or do not (RFC 4862, 5.5.4).
    Prefer(Ipv6Addr, bool),
    /// This formed address is not valid any more.
    Expire(Ipv6Addr),
    /// Hop limit of packets that are sent.
    HopLimit(u8),
    /// Longest packet in bytes.
    Mtu(usize),
    /// Times of neighbour resolution.
    Times {
        /// How long a confirmed neighbour is reachable, drawn at random.
        reachable: Duration,
        /// From one solicitation to the next.
        retransmit: Duration,
    },
    /// Recursive DNS servers that may be used now; none where empty.
    NameServers(Vec<Ipv6Addr>),
}

#[derive(Clone, Debug)]
struct Router {
    address: Ipv6Addr,
    preference: RouterPreference,
    until: Instant,
    /// Neighbour resolution found it silent.
    is_silent: bool,
}

/// What one interface knows from routers. See the module documentation.
#[derive(Debug)]
pub struct RouterDiscovery {
    config: RouterConfig,
    routers: Vec<Router>,
    chosen: Option<Ipv6Addr>,
    prefixes: Prefixes,
    name_servers: Vec<(Ipv6Addr, Instant)>,
    solicit_at: Option<Instant>,
    interval: Duration,
    /// How long the first solicitation of the next search waits, drawn beforehand.
    delay: Duration,
    reachable_base: Duration,
    retransmit: Duration,
    redraw_at: Instant,
    changes: VecDeque<LinkChange>,
    counters: RouterCounters,
}

impl RouterDiscovery {
    /// Begins to listen and to ask, for an interface whose hardware address is `station`.
    #[must_use]
    pub fn new(
        now: Instant,
        config: RouterConfig,
        station: HardwareAddress,
        jitter: &mut Jitter,
    ) -> Self {
        Self {
            prefixes: Prefixes::new(config.key, station, config.prefixes_max),
            config,
            routers: Vec::new(),
            chosen: None,
            name_servers: Vec::new(),
            // RFC 4861, 6.3.7: "a host SHOULD delay the transmission for a random amount of time
            // between 0 and MAX_RTR_SOLICITATION_DELAY".
            solicit_at: Some(now + jitter.between(Duration::ZERO, SOLICITATION_DELAY_MAX)),
            interval: SOLICITATION_INTERVAL,
            delay: jitter.between(Duration::ZERO, SOLICITATION_DELAY_MAX),
            reachable_base: REACHABLE_DEFAULT,
            retransmit: Duration::from_secs(1),
            redraw_at: now,
            changes: VecDeque::new(),
            counters: RouterCounters::default(),
        }
    }

    /// Whether a router solicitation is to be sent now; the time to the next one begins.
    pub fn poll_solicitation(&mut self, now: Instant, jitter: &mut Jitter) -> bool {
        if self.solicit_at.is_none_or(|at| now < at) {
            return false;
        }
        // RFC 7559, 2: a random tenth more or less.
        let tenth = self.interval / 10;
        self.solicit_at = Some(now + jitter.between(self.interval - tenth, self.interval + tenth));
        self.interval = (self.interval * 2).min(SOLICITATION_INTERVAL_MAX);
        self.delay = jitter.between(Duration::ZERO, SOLICITATION_DELAY_MAX);
        self.counters.router_solicitations += 1;
        true
    }

    /// Takes in an advertisement of the router `source` (RFC 4861, 6.3.4).
    pub fn on_advertisement(
        &mut self,
        now: Instant,
        source: Ipv6Addr,
        message: &RouterAdvertisement,
        jitter: &mut Jitter,
    ) {
        self.counters.router_advertisements += 1;
        if message.router_lifetime_s > 0 {
            // RFC 7559, 2.1 and RFC 4861, 6.3.7: a router was found.
            self.solicit_at = None;
        }
        self.take_router(now, source, message);
        self.take_parameters(now, message, jitter);
        for prefix in &message.prefixes {
            let refused = &mut self.counters;
            self.prefixes.on_network(now, prefix, &mut self.changes, refused);
            if self.config.forms_addresses {
                self.prefixes.on_autonomous(now, prefix, &mut self.changes, refused);
            }
        }
        self.take_name_servers(now, message);
        self.choose(now);
    }

    fn take_router(&mut self, now: Instant, source: Ipv6Addr, message: &RouterAdvertisement) {
        let known = self.routers.iter().position(|router| router.address == source);
        let until = now + Duration::from_secs(message.router_lifetime_s.into());
        match (known, message.router_lifetime_s) {
            // "If the address is already present in the host's Default Router List and the received
            // Router Lifetime value is zero, immediately time-out the entry."
            (Some(at), 0) => drop(self.routers.remove(at)),
            (None, 0) => {}
            (Some(at), _) => {
                let router = &mut self.routers[at];
                (router.until, router.preference) = (until, message.preference);
                router.is_silent = false;
            }
            (None, _) if self.routers.len() < self.config.routers_max => {
                let preference = message.preference;
                let router = Router { address: source, preference, until, is_silent: false };
                self.routers.push(router);
            }
            (None, _) => self.counters.router_entries_refused += 1,
        }
    }

    fn take_parameters(
        &mut self,
        now: Instant,
        message: &RouterAdvertisement,
        jitter: &mut Jitter,
    ) {
        if message.hop_limit != 0 {
            self.changes.push_back(LinkChange::HopLimit(message.hop_limit));
        }
        if let Some(mtu) = message.mtu_bytes.filter(|mtu| *mtu >= MTU_MIN_BYTES) {
            self.changes.push_back(LinkChange::Mtu(mtu as usize));
        }
        let (base, retransmit) = (self.reachable_base, self.retransmit);
        if message.reachable_ms != 0 {
            let told = Duration::from_millis(message.reachable_ms.into());
            self.reachable_base = told.min(REACHABLE_MAX);
        }
        if message.retransmit_ms != 0 {
            let told = Duration::from_millis(message.retransmit_ms.into());
            self.retransmit = told.clamp(RETRANSMIT_MIN, RETRANSMIT_MAX);
        }
        let is_changed = (self.reachable_base, self.retransmit) != (base, retransmit);
        if is_changed || now >= self.redraw_at {
            // 6.3.2: between MIN_RANDOM_FACTOR (0.5) and MAX_RANDOM_FACTOR (1.5) times the base.
            let reachable = jitter.between(self.reachable_base / 2, self.reachable_base * 3 / 2);
            let retransmit = self.retransmit;
            self.redraw_at = now + REACHABLE_REDRAW;
            self.changes.push_back(LinkChange::Times { reachable, retransmit });
        }
    }

    /// RFC 8106, 6.2. Where there are as many as are kept, "delete from the DNS Server List the entry with the
    /// shortest Expiration-time": but none that still has half the time of the new one. Who goes on telling of its
    /// servers does so thrice in their lifetime (5.1), so routers that together have more than are kept would have
    /// the list change with each advertisement.
    fn take_name_servers(&mut self, now: Instant, message: &RouterAdvertisement) {
        let mut is_changed = false;
        for servers in &message.name_servers {
            let until = prefixes::until(now, servers.lifetime_s);
            for server in &servers.addresses {
                let known = self.name_servers.iter_mut().find(|(address, _)| address == server);
                if let Some(entry) = known {
                    entry.1 = until;
                } else if until > now {
                    let first = self.name_servers.iter().enumerate().min_by_key(|(_, it)| it.1);
                    let first = first.map(|(at, (_, until))| (at, *until));
                    match first.filter(|_| self.name_servers.len() >= NAME_SERVERS_MAX) {
                        Some((at, others)) if others.since(now) < until.since(now) / 2 => {
                            self.name_servers.remove(at);
                        }
                        Some(_) => {
                            self.counters.router_entries_refused += 1;
                            continue;
                        }
                        None => {}
                    }
                    self.name_servers.push((*server, until));
                    is_changed = true;
                }
            }
        }
        self.expire_name_servers(now, is_changed);
    }

    fn expire_name_servers(&mut self, now: Instant, is_changed: bool) {
        let before = self.name_servers.len();
        self.name_servers.retain(|(_, until)| now < *until);
        if is_changed || self.name_servers.len() < before {
            let all = self.name_servers.iter().map(|(address, _)| *address).collect();
            self.changes.push_back(LinkChange::NameServers(all));
        }
    }

    /// Chooses the default router: RFC 4861, 6.3.6 and RFC 4191, 3.2: one that answers before one
    /// that does not, the preferred before others, and among equals the one in use.
    fn choose(&mut self, now: Instant) {
        self.routers.retain(|router| now < router.until);
        let chosen = self.chosen;
        let rank = |router: &&Router| {
            (!router.is_silent, router.preference, Some(router.address) == chosen)
        };
        let best = self.routers.iter().rev().max_by_key(rank).map(|router| router.address);
        if best != self.chosen {
            self.chosen = best;
            self.changes.push_back(LinkChange::DefaultRouter(best));
            if best.is_none() && self.solicit_at.is_none() {
                // RFC 7559, 2: who has no default route goes on asking. The next advertisement that
                // nobody asked for may be half an hour away.
                self.solicit(now);
            }
        }
    }

    /// Begins to ask for routers, from the first interval on.
    fn solicit(&mut self, now: Instant) {
        self.solicit_at = Some(now + self.delay);
        self.interval = SOLICITATION_INTERVAL;
    }

    /// The interface may be on another link from now on: routers are asked for (RFC 4861, 6.3.7: "the host
    /// re-attaches to a link after being detached for some time"). Those known stay until they are found
    /// silent.
    pub fn on_new_link(&mut self, now: Instant) {
        self.solicit(now);
    }

    /// The router does not answer neighbour solicitations: others are better (RFC 4861, 6.3.6).
    pub fn on_silent(&mut self, now: Instant, address: Ipv6Addr) {
        if let Some(router) = self.routers.iter_mut().find(|router| router.address == address) {
            router.is_silent = true;
            // RFC 4861, 6.3.6: where none is known to be reachable they take turns.
            if self.routers.iter().all(|router| router.is_silent) {
                self.routers.iter_mut().for_each(|it| it.is_silent = it.address == address);
            }
            self.choose(now);
        }
    }

    /// The neighbour said that it is no router, and was believed (RFC 4861, 7.2.5: "the node MUST remove that
    /// router from the Default Router list").
    pub fn on_no_router(&mut self, now: Instant, address: Ipv6Addr) {
        self.routers.retain(|router| router.address != address);
        self.choose(now);
    }

    /// A formed address is somebody else's: another identifier is tried, a few times (RFC 7217, 6).
    pub fn on_duplicate(&mut self, address: Ipv6Addr) {
        self.prefixes.on_duplicate(address, &mut self.changes);
    }

    /// What is different on the link; call until there is nothing.
    pub fn poll_change(&mut self) -> Option<LinkChange> {
        self.changes.pop_front()
    }

    /// When [`RouterDiscovery::on_timeout`] or [`RouterDiscovery::poll_solicitation`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let routers = self.routers.iter().map(|router| router.until);
        let servers = self.name_servers.iter().map(|(_, until)| *until);
        let all = routers.chain(servers).chain(self.prefixes.poll_timeout());
        all.chain(self.solicit_at).filter(|at| *at < prefixes::NEVER).min()
    }

    /// Lets lifetimes end.
    pub fn on_timeout(&mut self, now: Instant) {
        self.prefixes.on_timeout(now, &mut self.changes);
        self.expire_name_servers(now, false);
        self.choose(now);
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> RouterCounters {
        self.counters
    }
}
