//! A server for one network (RFC 2131, 4.3): of a program that is the network of virtual machines, or the other end of a
//! device.
//!
//! ```text
//!            DISCOVER               REQUEST
//!   free ---- OFFER ----> offered --- ACK ---> leased --- RELEASE, end of the lease or link ---> free
//!    ^                    |                      |
//!    +---- a minute ------+                      +---- DECLINE ---> nobody's, for ten minutes
//! ```
//!
//! In: time, messages, and which links are gone. Out: the answer to each message. What always holds:
//!
//! - A station, which is known by its hardware address, has one address at most, and an address one station.
//! - An address that was had once is remembered, and is its station's again as long as nobody else needs it. Others get
//!   those that nobody had, then the one that was given up first.
//! - An offer binds nobody: where nothing else is left the oldest is offered to the next who asks, and whoever asks
//!   first has it. So who only looks for servers keeps nobody from a lease, however often.
//! - Memory is that of the addresses, which are counted when the server is made.
//!
//! A link is what a message came by, where there are several: a machine's cable, a port of a switch. Who was there is gone
//! with it, and does not keep its lease from others for an hour. What was leased there is given back, and found in use, from
//! there alone. A link has so many addresses at most as it is allowed: a machine may pretend to be as many stations as it likes.
//!
//! It takes itself for the only server of its network: it refuses what it cannot grant, instead of keeping silent about what
//! another may have leased, and grants what it has no record of if nobody has it. So a station keeps its address when the
//! server was started anew, and asks for another one at once when it comes from elsewhere.
//!
//! Clients go by their hardware address also where they send an identifier, which RFC 2131, 4.2 has servers prefer.
//! Virtual machines that were copied from one have one identifier and addresses of their own, and the firmware of a machine
//! has another one than its system.

use crate::LEASE_MIN_S;
use crate::message::{self, ClientMessage, LIST_MAX, MessageKind, code};
use core::net::Ipv4Addr;
use core::ops::RangeInclusive;
use time::{Duration, Instant};
use wire::HardwareAddress;

#[cfg(test)]
mod tests;

/// Addresses that a server leases at most: each message looks at all of them.
pub const LEASED_MAX: usize = 4_096;

/// For how long what was offered is offered to nobody else.
const OFFER: Duration = Duration::from_secs(60);

/// For how long nobody gets an address that somebody else was seen to have.
const DECLINED: Duration = Duration::from_secs(600);

/// What a server says, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The server's own address, which its messages come from.
    pub address: Ipv4Addr,
    /// Length of the network's prefix in bits, 0 to 32.
    pub prefix_len: u8,
    /// What is leased, the first one first, as far as it is of the network and of a host, and neither the server, nor a
    /// router, nor a name server: [`LEASED_MAX`] addresses at most.
    pub leased: RangeInclusive<Ipv4Addr>,
    /// How many of them may be had at one link, those counted that were found in use there.
    pub leased_per_link_max: usize,
    /// For how many seconds; all ones: for ever. None is shorter than [`LEASE_MIN_S`], as [`Client`](crate::Client) would not
    /// take it.
    pub lease_s: u32,
    /// The routers, the best first: 16 at most.
    pub routers: Vec<Ipv4Addr>,
    /// The DNS servers: 16 at most.
    pub name_servers: Vec<Ipv4Addr>,
    /// Longest packet in bytes.
    pub mtu_bytes: Option<u16>,
}

/// A datagram to send from the server's address and port 67 to port 68.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The client, where it has an address already, or everybody: who has none yet cannot answer for it when it is
    /// looked for, and hears what is for everybody (RFC 2131, 4.1).
    pub destination: Ipv4Addr,
    /// What it says.
    pub payload: Vec<u8>,
}

counters::counters! {
    /// What a server did.
    pub struct ServerCounters {
        /// Addresses offered.
        dhcp_offers,
        /// Leases made or extended, and clients with an address of their own told the rest.
        dhcp_acks,
        /// Requests for an address that is not to be had.
        dhcp_refusals,
        /// Clients that found all addresses leased, or as many as their link may have.
        dhcp_exhausted,
        /// Leases given back.
        dhcp_releases,
        /// Addresses that their client found in use by somebody else.
        dhcp_conflicts,
        /// Messages that ask this server for nothing, or make no sense.
        dhcp_unanswered,
    }
}

/// What to answer, and with which address.
type Verdict = (MessageKind, Ipv4Addr);

/// An address to lease.
#[derive(Debug)]
struct Place {
    address: Ipv4Addr,
    /// Whose it is, or was last.
    station: Option<HardwareAddress>,
    /// Where its station was when it was offered or granted.
    link: u64,
    /// Until it is free: it was granted, or is nobody's, and not only offered.
    is_bound: bool,
    /// Free from here on.
    until: Instant,
}

impl Place {
    fn is_free(&self, now: Instant) -> bool {
        self.until <= now
    }

    /// Whether `station` may have it.
    fn is_open_to(&self, now: Instant, station: HardwareAddress) -> bool {
        self.is_free(now) || !self.is_bound || self.station == Some(station)
    }
}

/// A DHCP server of one network. See the module documentation.
///
/// Its owner has a socket on port 67 that hears broadcasts, hands it what comes and sends what it answers.
///
/// ```
/// use dhcp::{Server, ServerConfig};
/// use std::net::Ipv4Addr;
/// use time::Instant;
///
/// let address = |last| Ipv4Addr::new(10, 0, 2, last);
/// let mut server = Server::new(ServerConfig {
///     address: address(2),
///     prefix_len: 24,
///     leased: address(15)..=address(254),
///     leased_per_link_max: 16,
///     lease_s: 3_600,
///     routers: vec![address(2)],
///     name_servers: vec![address(3)],
///     mtu_bytes: Some(1_500),
/// });
/// assert_eq!(server.on_message(Instant::ZERO, 0, b"no message at all"), None);
/// ```
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    places: Vec<Place>,
    counters: ServerCounters,
}

impl Server {
    /// A server that has leased nothing yet.
    #[must_use]
    pub fn new(mut config: ServerConfig) -> Self {
        config.lease_s = config.lease_s.max(LEASE_MIN_S);
        config.routers.truncate(LIST_MAX);
        config.name_servers.truncate(LIST_MAX);
        let network = network(&config);
        let (first, last) = (network.start().max(config.leased.start()), config.leased.end());
        let last = last.min(network.end());
        // RFC 3021: of two addresses both are hosts'.
        let has_others = config.prefix_len < 31;
        let is_leased = |address: &Ipv4Addr| {
            *address != config.address
                && !(has_others && (address == network.start() || address == network.end()))
                && !config.routers.contains(address)
                && !config.name_servers.contains(address)
        };
        let place = |address| Place {
            address,
            station: None,
            link: 0,
            is_bound: false,
            until: Instant::ZERO,
        };
        let all = (u32::from(*first)..=u32::from(*last)).map(Ipv4Addr::from).filter(is_leased);
        let places = all.take(LEASED_MAX).map(place).collect();
        Self { config, places, counters: ServerCounters::default() }
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> ServerCounters {
        self.counters
    }

    /// The payload of a datagram to port 67 that came by `link`, a number of the owner's choice, and what to answer.
    pub fn on_message(&mut self, now: Instant, link: u64, payload: &[u8]) -> Option<Answer> {
        let message = ClientMessage::parse(payload).ok();
        let Some(message) = message.filter(|message| message.station.is_unicast()) else {
            return self.unanswered();
        };
        // RFC 2131, 4.3.2 to 4.3.4: who names a server means that one.
        let is_others = message.server.is_some_and(|server| server != self.config.address);
        let (kind, yours) = match message.kind {
            _ if is_others => self.unanswered(),
            MessageKind::Discover => self.on_discover(now, link, &message),
            MessageKind::Request => self.on_request(now, link, &message),
            MessageKind::Inform => self.on_inform(&message),
            MessageKind::Release => self.on_release(now, link, &message),
            MessageKind::Decline => self.on_decline(now, link, &message),
            MessageKind::Offer | MessageKind::Ack | MessageKind::Nak => self.unanswered(),
        }?;
        // RFC 2131, 4.1: "the server broadcasts any DHCPNAK messages", for its client's address may be of another network.
        let destination = match message.client_address {
            client if !client.is_unspecified() && kind == MessageKind::Ack => client,
            _ => Ipv4Addr::BROADCAST,
        };
        let payload = message::answer(payload, kind, yours, &self.options(kind, yours, &message));
        Some(Answer { destination, payload })
    }

    /// Nobody is at `link` any more. What was leased there is as if it had been given back.
    pub fn on_link_gone(&mut self, now: Instant, link: u64) {
        let held = self.places.iter_mut().filter(|place| !place.is_free(now) && place.link == link);
        held.for_each(|place| place.until = now);
    }

    /// By which link the station is reached that this address is leased to.
    #[must_use]
    pub fn link_of(&self, now: Instant, address: Ipv4Addr) -> Option<u64> {
        let mut places = self.places.iter();
        let place = places.find(|place| place.address == address && !place.is_free(now))?;
        // One that was offered is nobody's yet, and one that was found in use is no station's.
        place.station.filter(|_| place.is_bound).map(|_| place.link)
    }

    /// RFC 2131, 4.3.1: what the client has, what it had, what it asks for, any other, in this order.
    fn on_discover(&mut self, now: Instant, link: u64, message: &ClientMessage) -> Option<Verdict> {
        let wanted = |place: &Place| Some(place.address) == message.requested && place.is_free(now);
        let found = self.place_of(message.station);
        let found = found.or_else(|| self.places.iter().position(wanted));
        let found = found.or_else(|| self.any(now));
        let Some(index) = found.filter(|_| self.has_room_at(now, link, message.station)) else {
            self.counters.dhcp_exhausted += 1;
            return None;
        };
        let place = self.give(now, index, message.station);
        if place.is_free(now) || !place.is_bound {
            (place.link, place.is_bound, place.until) = (link, false, now + OFFER);
        }
        let offered = place.address;
        self.counters.dhcp_offers += 1;
        Some((MessageKind::Offer, offered))
    }

    /// RFC 2131, 4.3.2: of an offer, of what the client had before it was started anew, or of what it has.
    fn on_request(&mut self, now: Instant, link: u64, message: &ClientMessage) -> Option<Verdict> {
        let has_address = !message.client_address.is_unspecified();
        let own = Some(message.client_address).filter(|_| has_address);
        let Some(wanted) = own.or(message.requested) else { return self.unanswered() };
        let station = message.station;
        let places = self.places.iter();
        let found = places.enumerate().find(|(_, place)| place.address == wanted);
        let has_room = self.has_room_at(now, link, station);
        let granted = found.filter(|(_, place)| has_room && place.is_open_to(now, station));
        let Some((index, _)) = granted else {
            self.counters.dhcp_refusals += 1;
            return Some((MessageKind::Nak, Ipv4Addr::UNSPECIFIED));
        };
        let lease = Duration::from_secs(self.config.lease_s.into());
        let place = self.give(now, index, station);
        (place.link, place.is_bound, place.until) = (link, true, now + lease);
        self.counters.dhcp_acks += 1;
        Some((MessageKind::Ack, wanted))
    }

    /// RFC 2131, 4.3.5: no address and no lease, and to the address that the client has.
    fn on_inform(&mut self, message: &ClientMessage) -> Option<Verdict> {
        if !network(&self.config).contains(&message.client_address) {
            return self.unanswered();
        }
        self.counters.dhcp_acks += 1;
        Some((MessageKind::Ack, Ipv4Addr::UNSPECIFIED))
    }

    /// RFC 2131, 4.3.4: the server "SHOULD retain a record".
    fn on_release(&mut self, now: Instant, link: u64, message: &ClientMessage) -> Option<Verdict> {
        let released = self.own_place(link, message.station, Some(message.client_address));
        let Some(place) = released else { return self.unanswered() };
        place.until = now;
        self.counters.dhcp_releases += 1;
        None
    }

    /// RFC 2131, 4.3.3: "MUST mark the network address as not available".
    fn on_decline(&mut self, now: Instant, link: u64, message: &ClientMessage) -> Option<Verdict> {
        let declined = self.own_place(link, message.station, message.requested);
        let Some(place) = declined else { return self.unanswered() };
        (place.station, place.is_bound, place.until) = (None, true, now + DECLINED);
        self.counters.dhcp_conflicts += 1;
        None
    }

    fn unanswered<T>(&mut self) -> Option<T> {
        self.counters.dhcp_unanswered += 1;
        None
    }

    /// Whether `link` may have what `station` asks for, besides what others have there.
    fn has_room_at(&self, now: Instant, link: u64, station: HardwareAddress) -> bool {
        let is_held = |place: &&Place| place.link == link && place.is_bound && !place.is_free(now);
        let others = self.places.iter().filter(is_held).filter(|it| it.station != Some(station));
        others.count() < self.config.leased_per_link_max
    }

    /// The place that a station has or had.
    fn place_of(&self, station: HardwareAddress) -> Option<usize> {
        self.places.iter().position(|place| place.station == Some(station))
    }

    /// The place that a station has or had, if it is heard of where it had it, and says rightly which one it is: who sits
    /// elsewhere does not speak for it.
    fn own_place(
        &mut self,
        link: u64,
        station: HardwareAddress,
        address: Option<Ipv4Addr>,
    ) -> Option<&mut Place> {
        let index = self.place_of(station)?;
        let is_own = |place: &&mut Place| place.link == link && Some(place.address) == address;
        Some(&mut self.places[index]).filter(is_own)
    }

    /// The place that was free first, where none is the one of the oldest offer.
    fn any(&self, now: Instant) -> Option<usize> {
        let open = |place: &Place| place.is_free(now) || !place.is_bound;
        let places = self.places.iter().enumerate().filter(|(_, place)| open(place));
        places.min_by_key(|(_, place)| place.until).map(|(index, _)| index)
    }

    /// Has a station have this place and no other.
    fn give(&mut self, now: Instant, index: usize, station: HardwareAddress) -> &mut Place {
        if let Some(former) = self.place_of(station).filter(|former| *former != index) {
            let place = &mut self.places[former];
            (place.station, place.until) = (None, now);
        }
        let place = &mut self.places[index];
        place.station = Some(station);
        place
    }

    /// What goes with an address (RFC 2131, table 3). With as much of everything as there may be it is 535 bytes, and
    /// every client takes 548.
    fn options(
        &self,
        kind: MessageKind,
        yours: Ipv4Addr,
        message: &ClientMessage,
    ) -> Vec<(u8, Vec<u8>)> {
        let config = &self.config;
        let list = |all: &[Ipv4Addr]| all.iter().flat_map(Ipv4Addr::octets).collect::<Vec<u8>>();
        let mut options = vec![(code::SERVER_IDENTIFIER, config.address.octets().to_vec())];
        if kind != MessageKind::Nak {
            if !yours.is_unspecified() {
                options.push((code::LEASE_TIME, config.lease_s.to_be_bytes().to_vec()));
            }
            let mask = network_mask(config.prefix_len);
            options.push((code::SUBNET_MASK, mask.to_be_bytes().to_vec()));
            let lists =
                [(code::ROUTERS, &config.routers), (code::NAME_SERVERS, &config.name_servers)];
            let lists = lists.into_iter().filter(|(_, all)| !all.is_empty());
            options.extend(lists.map(|(code, all)| (code, list(all))));
            options.extend(config.mtu_bytes.map(|mtu| (code::MTU, mtu.to_be_bytes().to_vec())));
        }
        // RFC 6842, 3: "the server MUST return the 'client identifier' option, unaltered".
        options.extend(message.client_identifier.clone().map(|it| (code::CLIENT_IDENTIFIER, it)));
        options
    }
}

fn network_mask(prefix_len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix_len.min(32))).unwrap_or(0)
}

/// From the network's own address to that of all its hosts.
fn network(config: &ServerConfig) -> RangeInclusive<Ipv4Addr> {
    let (address, mask) = (u32::from(config.address), network_mask(config.prefix_len));
    Ipv4Addr::from(address & mask)..=Ipv4Addr::from(address | !mask)
}
