//! The client's state machine (RFC 2131, 4.4, figure 5).
//!
//! ```text
//!  INIT -- delay --> SELECTING --offer--> REQUESTING --ACK--> CHECKING --free--> BOUND
//!   ^  ^                | again            |  ^                  |                | T1
//!   |  |                +--4,8,16..64 s    |  +-- again          | taken          v
//!   |  +---- NAK, no answer ---------------+                     v            RENEWING --ACK--> BOUND
//!   |                                               DECLINE, 10 s |                | T2
//!   |<------------------------------------------------------------+                v
//!   +<------------- NAK, end of the lease -------------------------------- REBINDING --ACK--> BOUND
//!   |
//!   +<------------- NAK -- REBOOTING (from BOUND, on another link) ---- ACK, or nobody there --> BOUND
//! ```
//!
//! In: time, messages, and whether the leased address was found free. Out: [`Action`]s.

use crate::message::{ClientMessage, MessageKind, Route, ServerMessage};
use core::net::Ipv4Addr;
use std::collections::VecDeque;
use time::{Duration, Instant, Jitter};
use wire::HardwareAddress;

#[cfg(test)]
mod tests;

/// RFC 2131, 4.1: "the delay before the first retransmission SHOULD be 4 seconds randomized by the
/// value of a uniform random number chosen from the range -1 to +1 [...] doubled with subsequent
/// retransmissions up to a maximum of 64 seconds".
const RETRANSMIT_FIRST: Duration = Duration::from_secs(4);
const RETRANSMIT_MAX: Duration = Duration::from_secs(64);
const RETRANSMIT_SPREAD: Duration = Duration::from_secs(1);
/// Requests for an offer before the client begins anew.
const REQUESTS_MAX: u32 = 4;
/// RFC 2131, 4.4.5: "down to a minimum of 60 seconds".
const RENEWAL_INTERVAL_MIN: Duration = Duration::from_secs(60);
/// RFC 2131, 3.1, 5: after a DECLINE "the client SHOULD wait a minimum of ten seconds".
const DECLINE_DELAY: Duration = Duration::from_secs(10);
/// A server that leases for less would have us ask all the time: T1 of this is five seconds. Networks on which
/// machines are registered or quarantined lease for 10 to 30 s, to be asked again soon.
pub const LEASE_MIN_S: u32 = 10;
/// RFC 791: every host takes datagrams of 576 bytes; shorter MTUs are mistakes or attacks.
const MTU_MIN_BYTES: u16 = 576;

/// How a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// What servers know the client by (RFC 2132, 9.14), its type first: 2 to 135 bytes that nobody else on the
    /// network says; what is more is cut off, and less is `None`. That is the hardware address, or where a device
    /// shares it with the kernel another one made of it ([`distinct_identifier`](crate::distinct_identifier)), so
    /// that both have leases of their own. That one is the same in every stack: of several stacks on one device all
    /// but one must be given identifiers of their own. Otherwise servers lease all of them the same address, and none
    /// of them notices, because it is its own hardware address that answers.
    pub client_identifier: Option<Vec<u8>>,
    /// The name that servers are told, at most 63 bytes of it.
    pub host_name: Option<String>,
    /// An address that the client would like to have again.
    pub wanted: Option<Ipv4Addr>,
    /// The first message waits a random time up to this. RFC 2131, 4.4.1 says one to ten seconds,
    /// against rooms full of machines that are switched on together; a program that starts is not
    /// one of them.
    pub start_delay_max: Duration,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            client_identifier: None,
            host_name: None,
            wanted: None,
            start_delay_max: Duration::from_millis(100),
        }
    }
}

impl ClientConfig {
    /// The client identifier, where there is one. RFC 2132, 9.14: "Its minimum length is 2".
    #[must_use]
    pub fn identifier(&self) -> Option<&[u8]> {
        self.client_identifier.as_deref().filter(|identifier| identifier.len() >= 2)
    }
}

counters::counters! {
    /// What a client did.
    pub struct DhcpCounters {
        /// Messages sent.
        dhcp_sent,
        /// Offers and ACKs that were used.
        dhcp_taken,
        /// Requests that were refused by a server.
        dhcp_naks,
        /// Messages that answered nothing, or made no sense.
        dhcp_ignored,
        /// Addresses that were found in use by somebody else.
        dhcp_declined,
        /// Leases that ended before anybody renewed them.
        dhcp_expired,
        /// Offers and ACKs of leases shorter than [`LEASE_MIN_S`], which are not taken.
        dhcp_too_short,
    }
}

/// A leased address and what came with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// Length of its network's prefix in bits.
    pub prefix_len: u8,
    /// Who leased it.
    pub server: Ipv4Addr,
    /// Routes; a default route among them, where the server named a router.
    pub routes: Vec<Route>,
    /// DNS servers.
    pub name_servers: Vec<Ipv4Addr>,
    /// Longest packet in bytes, at least 576.
    pub mtu_bytes: Option<u16>,
}

/// A datagram to send from port 68 to port 67.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The client's address, or unspecified.
    pub source: Ipv4Addr,
    /// The server, or everybody.
    pub destination: Ipv4Addr,
    /// What it says.
    pub payload: Vec<u8>,
    /// Its source is given up behind it, so it cannot wait for ARP: send it to the station that
    /// the server's messages came from.
    pub is_farewell: bool,
}

/// What the owner is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this.
    Send(Packet),
    /// See whether somebody has the address, and call [`Client::on_checked`] or
    /// [`Client::on_conflict`].
    Check(Lease),
    /// The lease is ours, or was extended, perhaps with other routes.
    Configure(Lease),
    /// The address must not be used any more.
    Deconfigure(Ipv4Addr),
    /// Tell the user: this server leases for so many seconds, fewer than [`LEASE_MIN_S`], and that is not
    /// taken. Once in each exchange.
    TooShort(Ipv4Addr, u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Waits to begin.
    Init,
    Selecting,
    Requesting {
        offered: Ipv4Addr,
        server: Ipv4Addr,
    },
    Checking,
    Bound,
    Renewing,
    Rebinding,
    /// The lease is verified on another link, and used meanwhile.
    Rebooting,
    /// The address was given back; nothing is done any more.
    Released,
}

/// When a lease is renewed, and when it ends.
#[derive(Clone, Copy, Debug)]
struct Times {
    renew_at: Instant,
    rebind_at: Instant,
    end_at: Instant,
}

/// A DHCP client of one interface. See the module documentation.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    station: HardwareAddress,
    state: State,
    transaction: u32,
    began_at: Instant,
    /// When the message under way was first sent: leases count from there (RFC 2131, 4.4.1).
    asked_at: Instant,
    /// Messages of this kind sent in a row.
    attempts: u32,
    /// What the last DISCOVER said of the time since the client began.
    discover_s: u16,
    /// The user was told of a lease that is too short, in the exchange under way.
    is_short_told: bool,
    due: Option<Instant>,
    lease: Option<(Lease, Times)>,
    actions: VecDeque<Action>,
    counters: DhcpCounters,
}

impl Client {
    /// A client that begins now.
    #[must_use]
    pub fn new(
        now: Instant,
        config: ClientConfig,
        station: HardwareAddress,
        jitter: &mut Jitter,
    ) -> Self {
        let delay = jitter.between(Duration::ZERO, config.start_delay_max);
        Self {
            config,
            station,
            state: State::Init,
            transaction: 0,
            began_at: now,
            asked_at: now,
            attempts: 0,
            discover_s: 0,
            is_short_told: false,
            due: Some(now + delay),
            lease: None,
            actions: VecDeque::new(),
            counters: DhcpCounters::default(),
        }
    }

    /// The next thing to do; call until there is none.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Client::on_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// The lease in force.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        let is_ours = matches!(
            self.state,
            State::Bound | State::Renewing | State::Rebinding | State::Rebooting
        );
        self.lease.as_ref().map(|(lease, _)| lease).filter(|_| is_ours)
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> DhcpCounters {
        self.counters
    }

    /// Does what is due.
    pub fn on_timeout(&mut self, now: Instant, jitter: &mut Jitter) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        match self.state {
            State::Init => {
                self.state = State::Selecting;
                self.begin_exchange(now, jitter);
                (self.began_at, self.attempts) = (now, 0);
                self.ask(now, jitter);
            }
            State::Requesting { .. } if self.attempts >= REQUESTS_MAX => {
                self.restart(now, Duration::ZERO, jitter);
            }
            State::Selecting | State::Requesting { .. } => self.ask(now, jitter),
            State::Bound | State::Renewing | State::Rebinding => self.keep_lease(now, jitter),
            State::Rebooting => self.verify(now, jitter),
            State::Checking | State::Released => self.due = None,
        }
    }

    /// T1, T2, the end of the lease, and the repetitions between them (RFC 2131, 4.4.5).
    fn keep_lease(&mut self, now: Instant, jitter: &mut Jitter) {
        let Some((lease, times)) = &self.lease else {
            return self.restart(now, Duration::ZERO, jitter);
        };
        let (address, times) = (lease.address, *times);
        if now >= times.end_at {
            // "If the lease expires before the client receives a DHCPACK, the client moves to INIT
            // state, MUST immediately stop any other network processing".
            self.counters.dhcp_expired += 1;
            self.actions.push_back(Action::Deconfigure(address));
            return self.restart(now, Duration::ZERO, jitter);
        }
        let next = if now >= times.rebind_at { State::Rebinding } else { State::Renewing };
        if self.state != next {
            if self.state == State::Bound {
                self.began_at = now;
            }
            // Of its own also for REBINDING: what is leased counts from the request that was granted,
            // and a short lease counted from T1 would be over when it comes.
            self.begin_exchange(now, jitter);
            (self.state, self.attempts) = (next, 0);
        }
        self.ask(now, jitter);
    }

    /// RFC 2131, 3.2, 4: where nobody answers, "the client MAY choose to use the previously allocated
    /// network address and configuration parameters for the remainder of the unexpired lease".
    fn verify(&mut self, now: Instant, jitter: &mut Jitter) {
        let times = self.lease.as_ref().map(|(_, times)| *times);
        match times.filter(|times| self.attempts >= REQUESTS_MAX || now >= times.end_at) {
            None => self.ask(now, jitter),
            Some(times) => (self.state, self.due) = (State::Bound, Some(times.renew_at.max(now))),
        }
    }

    /// Sends the message of the state, and waits for an answer.
    fn ask(&mut self, now: Instant, jitter: &mut Jitter) {
        let mut message = self.message(now, MessageKind::Request);
        let mut destination = Ipv4Addr::BROADCAST;
        let wait = match (&self.state, &self.lease) {
            (State::Selecting, _) => {
                message.kind = MessageKind::Discover;
                message.requested = self.config.wanted;
                self.discover_s = message.seconds;
                self.backoff(jitter)
            }
            (State::Requesting { offered, server }, _) => {
                (message.requested, message.server) = (Some(*offered), Some(*server));
                // RFC 2131, 3.1, 3: it "MUST use the same value in the DHCP message header's 'secs' field" as the
                // DISCOVER, by which relays may choose their servers.
                message.seconds = self.discover_s;
                self.backoff(jitter)
            }
            // RFC 2131, 4.3.6: the address is in ciaddr; neither a requested address nor a server
            // identifier. "one-half of the remaining time until T2", "of the remaining lease time".
            (State::Renewing, Some((lease, times))) => {
                (message.client_address, destination) = (lease.address, lease.server);
                ((times.rebind_at - now) / 2).max(RENEWAL_INTERVAL_MIN).min(times.rebind_at - now)
            }
            (State::Rebinding, Some((lease, times))) => {
                message.client_address = lease.address;
                ((times.end_at - now) / 2).max(RENEWAL_INTERVAL_MIN).min(times.end_at - now)
            }
            // RFC 2131, 4.3.2, INIT-REBOOT: the address is in the option, and no server is named.
            (State::Rebooting, Some((lease, times))) => {
                message.requested = Some(lease.address);
                self.backoff(jitter).min(times.end_at - now)
            }
            _ => return,
        };
        self.attempts += 1;
        self.due = Some(now + wait);
        self.send(&message, destination);
    }

    fn backoff(&self, jitter: &mut Jitter) -> Duration {
        let doubled = RETRANSMIT_FIRST * 2_u32.saturating_pow(self.attempts.min(8));
        let base = doubled.min(RETRANSMIT_MAX);
        jitter.between(base - RETRANSMIT_SPREAD, base + RETRANSMIT_SPREAD)
    }

    fn message(&self, now: Instant, kind: MessageKind) -> ClientMessage {
        ClientMessage {
            kind,
            transaction: self.transaction,
            seconds: u16::try_from((now - self.began_at).as_secs()).unwrap_or(u16::MAX),
            client_address: Ipv4Addr::UNSPECIFIED,
            station: self.station,
            requested: None,
            server: None,
            client_identifier: self.config.identifier().map(<[u8]>::to_vec),
            host_name: self.config.host_name.clone(),
        }
    }

    fn send(&mut self, message: &ClientMessage, destination: Ipv4Addr) {
        self.counters.dhcp_sent += 1;
        let (source, payload) = (message.client_address, message.emit());
        let is_farewell = message.kind == MessageKind::Release;
        self.actions.push_back(Action::Send(Packet { source, destination, payload, is_farewell }));
    }

    fn begin_exchange(&mut self, now: Instant, jitter: &mut Jitter) {
        self.transaction = jitter.next_u64() as u32;
        (self.asked_at, self.is_short_told) = (now, false);
    }

    fn restart(&mut self, now: Instant, wait: Duration, jitter: &mut Jitter) {
        self.lease = None;
        self.state = State::Init;
        let delay = jitter.between(Duration::ZERO, self.config.start_delay_max);
        self.due = Some(now + wait + delay);
    }

    /// The payload of a datagram to port 68. Says whether it answered what was asked.
    pub fn on_message(&mut self, now: Instant, payload: &[u8], jitter: &mut Jitter) -> bool {
        let ours = ServerMessage::parse(payload).ok().filter(|message| {
            message.transaction == self.transaction && message.station == self.station
        });
        let is_used = match ours {
            Some(message) if message.kind == MessageKind::Offer => {
                self.on_offer(now, &message, jitter)
            }
            Some(message) if message.kind == MessageKind::Ack => self.on_ack(&message),
            Some(message) => self.on_nak(now, &message, jitter),
            None => false,
        };
        match is_used {
            true => self.counters.dhcp_taken += 1,
            false => self.counters.dhcp_ignored += 1,
        }
        is_used
    }

    /// The first good offer is taken (RFC 2131, 4.4.1 leaves the choice to the client).
    fn on_offer(&mut self, now: Instant, message: &ServerMessage, jitter: &mut Jitter) -> bool {
        let Some(server) = message.server.filter(|server| is_host(*server)) else { return false };
        if self.state != State::Selecting || !is_host(message.your_address) {
            return false;
        }
        // RFC 2131, table 3: an offer says for how long. Another server may lease for longer.
        if message.lease_s.is_some_and(|lease_s| self.is_too_short(server, lease_s)) {
            return false;
        }
        self.state = State::Requesting { offered: message.your_address, server };
        (self.attempts, self.asked_at) = (0, now);
        self.ask(now, jitter);
        true
    }

    fn on_ack(&mut self, message: &ServerMessage) -> bool {
        let expected = match (&self.state, &self.lease) {
            (State::Requesting { offered, server }, _) => (*offered, Some(*server)),
            (State::Renewing, Some((lease, _))) => (lease.address, Some(lease.server)),
            // Any server may answer what was broadcast.
            (State::Rebinding | State::Rebooting, Some((lease, _))) => {
                (lease.address, message.server)
            }
            _ => return false,
        };
        let Some(lease_s) = message.lease_s else { return false };
        let server = message.server.or(expected.1);
        if message.your_address != expected.0 || server != expected.1 {
            return false;
        }
        let Some(server) = server.filter(|server| is_host(*server)) else { return false };
        if self.is_too_short(server, lease_s) {
            return false;
        }
        let is_new = matches!(self.state, State::Requesting { .. });
        let extended = self.lease.as_ref().map(|(lease, _)| lease).filter(|_| !is_new);
        let lease = lease_of(message, server, extended);
        let times = times_of(self.asked_at, message, lease_s);
        self.lease = Some((lease.clone(), times));
        if is_new {
            (self.state, self.due) = (State::Checking, None);
            self.actions.push_back(Action::Check(lease));
        } else {
            (self.state, self.due) = (State::Bound, Some(times.renew_at));
            self.actions.push_back(Action::Configure(lease));
        }
        true
    }

    /// Counts a lease that is not worth having, and tells of the first in an exchange.
    fn is_too_short(&mut self, server: Ipv4Addr, lease_s: u32) -> bool {
        let is_too_short = lease_s < LEASE_MIN_S;
        self.counters.dhcp_too_short += u64::from(is_too_short);
        if is_too_short && !core::mem::replace(&mut self.is_short_told, true) {
            self.actions.push_back(Action::TooShort(server, lease_s));
        }
        is_too_short
    }

    fn on_nak(&mut self, now: Instant, message: &ServerMessage, jitter: &mut Jitter) -> bool {
        let from = match (&self.state, &self.lease) {
            (State::Requesting { server, .. }, _) => Some(*server),
            (State::Renewing, Some((lease, _))) => Some(lease.server),
            (State::Rebinding | State::Rebooting, _) => message.server,
            _ => return false,
        };
        if message.server.is_some() && message.server != from {
            return false;
        }
        self.counters.dhcp_naks += 1;
        if let Some((lease, _)) = &self.lease {
            self.actions.push_back(Action::Deconfigure(lease.address));
        }
        // A server that refuses whatever it offers must not make a fast loop.
        self.config.wanted = None;
        self.restart(now, RETRANSMIT_FIRST, jitter);
        true
    }

    /// Nobody has the leased address: it is ours.
    pub fn on_checked(&mut self) {
        if self.state != State::Checking {
            return;
        }
        if let Some((lease, times)) = &self.lease {
            (self.state, self.due) = (State::Bound, Some(times.renew_at));
            self.actions.push_back(Action::Configure(lease.clone()));
        }
    }

    /// Somebody has the leased address, found before or while it was used. RFC 2131, 3.1, 5: "the
    /// client MUST send a DHCPDECLINE message to the server and restarts the configuration
    /// process".
    pub fn on_conflict(&mut self, now: Instant, jitter: &mut Jitter) {
        let Some((lease, _)) = self.lease.take() else { return };
        self.counters.dhcp_declined += 1;
        let mut message = self.message(now, MessageKind::Decline);
        (message.requested, message.server) = (Some(lease.address), Some(lease.server));
        self.send(&message, Ipv4Addr::BROADCAST);
        if self.state != State::Checking {
            self.actions.push_back(Action::Deconfigure(lease.address));
        }
        self.config.wanted = None;
        self.restart(now, DECLINE_DELAY, jitter);
    }

    /// The interface may be on another link, and its hardware address is `station` there. A lease is
    /// verified (RFC 2131, 3.7: "whenever the local network parameters may have changed"), what was
    /// offered elsewhere is not taken.
    pub fn on_new_link(&mut self, now: Instant, station: HardwareAddress, jitter: &mut Jitter) {
        self.station = station;
        if self.state == State::Released {
            return;
        }
        if self.lease().is_none() {
            if let Some((lease, _)) = &self.lease {
                // Its check is under way.
                self.actions.push_back(Action::Deconfigure(lease.address));
            }
            return self.restart(now, Duration::ZERO, jitter);
        }
        self.begin_exchange(now, jitter);
        (self.state, self.attempts, self.began_at) = (State::Rebooting, 0, now);
        self.due = Some(now + jitter.between(Duration::ZERO, self.config.start_delay_max));
    }

    /// Gives the address back and ends (RFC 2131, 4.4.6).
    pub fn release(&mut self, now: Instant, jitter: &mut Jitter) {
        let is_ours = self.lease().is_some();
        if let Some((lease, _)) = self.lease.take() {
            if is_ours {
                self.begin_exchange(now, jitter);
                let mut message = self.message(now, MessageKind::Release);
                (message.client_address, message.server) = (lease.address, Some(lease.server));
                self.send(&message, lease.server);
            }
            // Also where its check is under way: that must not end in the use of an address for
            // which nobody cares any more.
            self.actions.push_back(Action::Deconfigure(lease.address));
        }
        (self.state, self.due) = (State::Released, None);
    }
}

fn is_host(address: Ipv4Addr) -> bool {
    !address.is_unspecified()
        && !address.is_broadcast()
        && !address.is_multicast()
        && !address.is_loopback()
        && address.octets()[0] != 0
}

/// What an ACK grants. Where it extends a lease, what it does not carry stays as it was: there are servers that
/// say mask, routers and DNS servers in the first ACK alone.
fn lease_of(message: &ServerMessage, server: Ipv4Addr, extended: Option<&Lease>) -> Lease {
    let address = message.your_address;
    let prefix_len = message.prefix_len.filter(|len| *len > 0);
    let prefix_len = prefix_len.or(extended.map(|old| old.prefix_len)).unwrap_or_else(|| {
        // RFC 950: without a mask the class of the address decides.
        match address.octets()[0] {
            0..128 => 8,
            128..192 => 16,
            _ => 24,
        }
    });
    let carries_routes = !message.routes.is_empty() || !message.routers.is_empty();
    let carries_servers = !message.name_servers.is_empty();
    let old = |is_carried: bool| extended.filter(|_| !is_carried);
    Lease {
        address,
        prefix_len,
        server,
        routes: match old(carries_routes) {
            Some(old) => old.routes.clone(),
            None => routes_of(message, prefix_len),
        },
        name_servers: match old(carries_servers) {
            Some(old) => old.name_servers.clone(),
            // Lists are padded with zeros by some.
            None => message.name_servers.iter().copied().filter(|it| is_host(*it)).collect(),
        },
        mtu_bytes: match old(message.mtu_bytes.is_some()) {
            Some(old) => old.mtu_bytes,
            None => message.mtu_bytes.filter(|mtu| *mtu >= MTU_MIN_BYTES),
        },
    }
}

/// The routes by routers that can be some.
fn routes_of(message: &ServerMessage, prefix_len: u8) -> Vec<Route> {
    // Another address for all hosts of the network, where it is longer than two (RFC 3021).
    let hosts = u32::MAX.checked_shr(prefix_len.into()).unwrap_or(0);
    let broadcast = Ipv4Addr::from(u32::from(message.your_address) | hosts);
    let is_router = |it: Ipv4Addr| {
        is_host(it) && it != message.your_address && (prefix_len > 30 || it != broadcast)
    };
    // RFC 3442: "If the DHCP server returns both a Classless Static Routes option and a Router
    // option, the DHCP client MUST ignore the Router option."
    if message.routes.is_empty() {
        let first = message.routers.iter().copied().find(|router| is_router(*router));
        let network = Ipv4Addr::UNSPECIFIED;
        return first
            .map(|gateway| Route { network, prefix_len: 0, gateway })
            .into_iter()
            .collect();
    }
    let routes = message.routes.iter().copied();
    // An unspecified one says that the network is on the link.
    routes.filter(|it| it.gateway.is_unspecified() || is_router(it.gateway)).collect()
}

/// RFC 2131, 4.4.5: T1 is half of the lease and T2 seven eighths, unless the server says otherwise
/// and what it says is in order.
fn times_of(asked_at: Instant, message: &ServerMessage, lease_s: u32) -> Times {
    if lease_s == u32::MAX {
        let never = Instant::from_nanos(u64::MAX);
        return Times { renew_at: never, rebind_at: never, end_at: never };
    }
    let told = message.renewal_s.zip(message.rebinding_s);
    let in_order = |(renew, rebind): &(u32, u32)| {
        *renew >= LEASE_MIN_S / 2 && renew < rebind && *rebind < lease_s
    };
    let (renew_s, rebind_s) =
        told.filter(in_order).unwrap_or((lease_s / 2, (u64::from(lease_s) * 7 / 8) as u32));
    let after = |seconds: u32| asked_at + Duration::from_secs(seconds.into());
    Times { renew_at: after(renew_s), rebind_at: after(rebind_s), end_at: after(lease_s) }
}
