//! Several shards that are one host: which of them has what.
//!
//! Each shard of a host has the same interfaces, addresses and routes, and sockets of its own. Who
//! drives them gives each what is for its sockets ([`Homes`] says which shard that is), and gives all
//! of them what hosts say to find each other: every shard keeps its own neighbours. What must not be
//! done twice the first shard does:
//!
//! * it answers who asks for an address of ours, and it puts fragments together;
//! * it claims and defends addresses, leases and forms them; the others have those that it has, and what it
//!   learns of the link from routers and DHCP servers (`addressing/news.rs`);
//! * it asks neighbours, for all, so that they are not asked more often than by a host of one shard;
//! * it tells routers which groups the host listens to (`network/shared_groups.rs`).
//!
//! What shards have to say to each other is a [`Stray`]; the driver carries it there, in order. Such is
//! also a packet that turns out to be for a socket of another shard only here: because it was in
//! fragments, because it came over loopback, or because the device that was left to spread the flows
//! brought a segment to a shard that does not have its connection.

use crate::connections::fast_open::Pair;
use crate::ingress::{Incoming, Origin, flow_of};
use crate::network::NetworkLayer;
use crate::network::addressing::{AddressOrigin, LinkNews};
use crate::network::interfaces::InterfaceId;
use crate::network::shared_groups::Wish;
use crate::shard::Shard;
use crate::sockets::Flow;
use batch::{Chunk, Frame, ReceiveBatch, ReceivedChecksum, Segmented, StrayShares, StrayWeight};
use core::fmt;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::ops::Range;
use counters::DropReason;
use ip::{Cidr, IcmpIncoming};
use link::{Known, Request};
use siphasher::sip::SipHasher13;
use std::collections::VecDeque;
use std::sync::Arc;
use tcp::FastOpenOutcome;
use time::Instant;
use wire::{TcpHeader, UdpView, protocol};

/// News that other shards have not taken, all of them together, beyond which routers are not listened to. It is asked
/// for once in a message, so that there may be as many more as the options of one make for 63 others.
const NEWS_MAX: usize = 4_096;

/// Which shard has what. The same for all shards of a host, and for as long as they live.
pub trait Homes: Send + Sync {
    /// The shard that has the connection between `local` and `remote`, counted from zero.
    fn of_flow(&self, local: SocketAddr, remote: SocketAddr) -> usize;

    /// The shard whose UDP sockets have this local port.
    fn of_port(&self, port: u16) -> usize;
}

/// What a shard is among those of its host.
#[derive(Clone)]
pub struct Share {
    /// Its number, below `count`. The first one, zero, answers for all.
    pub index: usize,
    /// How many there are.
    pub count: usize,
    /// Who has what.
    pub homes: Arc<dyn Homes>,
}

impl fmt::Debug for Share {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "shard {} of {}", self.index, self.count)
    }
}

/// What a shard has for another one of its host.
#[derive(Clone, Debug)]
pub struct Stray {
    /// The shard it is for.
    pub home: usize,
    what: What,
    weight: StrayWeight,
}

#[derive(Clone, Debug)]
enum What {
    /// A packet that this shard has the socket for.
    Packet(Whole),
    /// Shard `asker` wants to know who has an address, or, where it knew, whether that is still so.
    Question { interface: InterfaceId, asker: usize, target: IpAddr, is_known: bool },
    /// The first shard says who has it.
    Answer { interface: InterfaceId, target: IpAddr, known: Known },
    /// The first shard has an address, or has it no more.
    Address { interface: InterfaceId, cidr: Cidr, origin: AddressOrigin, standing: Standing },
    /// The first shard learned something of the link.
    News { interface: InterfaceId, news: LinkNews },
    /// A piece of news was taken.
    NewsTaken,
    /// Raw sockets of the first shard want copies of ICMP messages, or do not any more.
    RawIcmp(bool),
    /// Such a copy: for raw sockets and nobody else.
    RawCopy(Whole),
    /// What the sockets of a shard want of a group.
    Wish { interface: InterfaceId, wish: Wish },
    /// A datagram of our own to a group that this shard may have listeners of.
    Looped { interface: InterfaceId, datagram: udp::Datagram },
    /// What a connection learned of fast open between these addresses.
    FastOpen { pair: Pair, outcome: FastOpenOutcome },
}

impl What {
    /// What tells the flows of packets apart is made with the host's secret.
    fn weight(&self, secret: [u64; 2]) -> StrayWeight {
        match self {
            Self::Packet(whole) | Self::RawCopy(whole) => StrayWeight::Packet {
                key: key_of(whole.packet.bytes(), secret),
                held_bytes: whole.packet.block().len(),
            },
            Self::Looped { datagram: it, .. } => StrayWeight::Packet {
                key: key_of_flow(&Flow { local: it.destination, remote: it.source }, secret),
                held_bytes: it.payload.block().len(),
            },
            // Where there is no room for it, it is asked for or found out again.
            Self::Question { .. } | Self::Answer { .. } | Self::FastOpen { .. } => {
                StrayWeight::Neighbour
            }
            Self::Address { .. }
            | Self::News { .. }
            | Self::NewsTaken
            | Self::RawIcmp(_)
            | Self::Wish { .. } => StrayWeight::Kept,
        }
    }
}

/// What the first shard has of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Usable,
    /// It begins no connection (RFC 4862, 5.5.4).
    Deprecated,
    Gone,
}

/// A whole packet and how it came.
#[derive(Clone, Debug)]
struct Whole {
    origin: Origin,
    fragmented: bool,
    checksum: ReceivedChecksum,
    /// It stands for several segments.
    segmented: Option<Segmented>,
    packet: Chunk,
}

/// What sockets there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

impl Stray {
    /// How much it weighs where too much waits. What is said of addresses and of the link is kept: it is said
    /// once. There is no more of it than addresses are claimed and lost, than the first shard lets routers say
    /// while others are behind, and than sockets join groups and leave them.
    #[must_use]
    pub fn weight(&self) -> StrayWeight {
        self.weight
    }
}

/// A shard's part in its host, and the strays it has for others.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    share: Option<Share>,
    strays: VecDeque<Stray>,
    /// How much they are, where there are other shards.
    shares: Option<StrayShares>,
    /// What keys of flows are made with.
    secret: [u64; 2],
    /// News that others were told and have not taken.
    untaken: usize,
    /// The first shard has raw sockets for ICMP.
    raw_icmp: bool,
}

impl Sharing {
    /// Of a shard that is alone so far; flows are told apart by this secret.
    pub(crate) fn new(secret: [u64; 2]) -> Self {
        Self { secret, ..Self::default() }
    }

    /// Whether other shards of the host have sockets, too.
    pub(crate) fn has_others(&self) -> bool {
        self.share.is_some()
    }

    /// The number of this shard.
    pub(crate) fn index(&self) -> usize {
        self.share.as_ref().map_or(0, |share| share.index)
    }

    /// Whether this shard answers for all.
    pub(crate) fn is_first(&self) -> bool {
        self.share.as_ref().is_none_or(|share| share.index == 0)
    }

    /// Whether others are so far behind that there must be no more news for now.
    pub(crate) fn is_behind(&self) -> bool {
        self.untaken > NEWS_MAX
    }

    /// The number of this shard, where another one answers for all.
    pub(crate) fn follower(&self) -> Option<usize> {
        self.share.as_ref().map(|share| share.index).filter(|index| *index > 0)
    }

    /// The other shards, where this is the first of several.
    fn followers(&self) -> Range<usize> {
        match &self.share {
            Some(share) if share.index == 0 => 1..share.count,
            _ => 1..1,
        }
    }

    /// Whether connections of this flow are this shard's: no other opens one.
    pub(crate) fn may_open(&self, flow: &Flow) -> bool {
        self.elsewhere((Transport::Tcp, *flow)).is_none()
    }

    /// Whether datagrams to this port come to this shard.
    pub(crate) fn is_home_of_port(&self, port: u16) -> bool {
        self.other_home_of_port(port).is_none()
    }

    /// The other shard that datagrams to this port come to, if any.
    pub(crate) fn other_home_of_port(&self, port: u16) -> Option<usize> {
        let share = self.share.as_ref()?;
        Some(share.homes.of_port(port)).filter(|home| *home != share.index)
    }

    /// The other shard that has the socket for this, if any.
    fn elsewhere(&self, (transport, flow): (Transport, Flow)) -> Option<usize> {
        let share = self.share.as_ref()?;
        let home = match transport {
            Transport::Udp => share.homes.of_port(flow.local.port()),
            Transport::Tcp => share.homes.of_flow(flow.local, flow.remote),
        };
        (home != share.index).then_some(home)
    }
}

/// What a packet is of, or, where it is an ICMP error, what the packet is of that it is about; as of
/// packets that come in.
fn transport_of(packet: &[u8]) -> Option<(Transport, Flow)> {
    let info = ip::parse(packet).ok()?;
    let bytes = info.transport(packet);
    match info.protocol {
        protocol::TCP => {
            let (header, _) = TcpHeader::parse(bytes).ok()?;
            Some((Transport::Tcp, flow_of(&info, &header)))
        }
        protocol::UDP => {
            let view = UdpView::parse(bytes).ok()?;
            let local = SocketAddr::new(info.destination, view.destination_port());
            let remote = SocketAddr::new(info.source, view.source_port());
            Some((Transport::Udp, Flow { local, remote }))
        }
        protocol::ICMP | protocol::ICMPV6 => {
            let IcmpIncoming::Error(error) = ip::parse_icmp(&info, bytes).ok()? else {
                return None;
            };
            let flow = Flow { local: error.quoted.local, remote: error.quoted.remote };
            match error.quoted.protocol {
                protocol::TCP => Some((Transport::Tcp, flow)),
                protocol::UDP => Some((Transport::Udp, flow)),
                _ => None,
            }
        }
        _ => None,
    }
}

impl Shard {
    /// Makes this shard one of several of its host. Before interfaces and sockets are added.
    pub fn set_share(&mut self, share: Share) {
        self.network.identifications.share(share.index, share.count);
        self.network.sharing.share = Some(share);
        self.network.sharing.shares = Some(StrayShares::new());
    }

    /// The address that packets to `remote` leave with, where their sender does not choose one.
    ///
    /// # Errors
    /// [`SocketError::NoRoute`](crate::SocketError::NoRoute) where none leads there,
    /// [`SocketError::NoSourceFor`](crate::SocketError::NoSourceFor) where the interface on the way has no such address.
    pub fn source_for(&self, remote: SocketAddr) -> Result<IpAddr, crate::SocketError> {
        let (remote, asked) = self.network.take_scope(remote)?;
        let remote = self.network.or_this_host(remote, Ipv4Addr::UNSPECIFIED.into());
        let (interface, next_hop) = self.network.route_by(remote.ip(), asked)?;
        self.network.interfaces[interface].source_for(remote.ip(), next_hop)
    }

    /// The next thing for another shard, in the order in which they came up.
    pub fn poll_stray(&mut self) -> Option<Stray> {
        let stray = self.network.sharing.strays.pop_front()?;
        if let Some(shares) = &mut self.network.sharing.shares {
            shares.release(stray.weight);
        }
        Some(stray)
    }

    /// Takes in what [`Shard::poll_stray`] of another shard gave out.
    pub fn on_stray(&mut self, now: Instant, stray: &Stray) {
        let interface = match &stray.what {
            What::NewsTaken => {
                self.network.sharing.untaken = self.network.sharing.untaken.saturating_sub(1);
                return;
            }
            What::RawIcmp(is_wanted) => {
                self.network.sharing.raw_icmp = *is_wanted;
                return;
            }
            What::FastOpen { pair, outcome } => return self.learn_fast_open(now, *pair, *outcome),
            What::Packet(whole) | What::RawCopy(whole) => whole.origin.interface,
            What::News { interface, .. } => {
                self.network.add_stray(0, What::NewsTaken);
                *interface
            }
            What::Question { interface, .. }
            | What::Answer { interface, .. }
            | What::Address { interface, .. }
            | What::Wish { interface, .. }
            | What::Looped { interface, .. } => *interface,
        };
        if self.network.interfaces.get(interface).is_none_or(|it| it.is_removed) {
            return self.drops.add(DropReason::InterfaceRemoved);
        }
        let neighbours = &mut self.network.interfaces[interface].neighbours;
        match &stray.what {
            What::Packet(whole) => self.on_stray_packet(now, whole),
            What::Question { asker, target, is_known, .. } => {
                if let Some(known) = neighbours.on_asked_for(now, *target, *is_known) {
                    let what = What::Answer { interface, target: *target, known };
                    self.network.add_stray(*asker, what);
                }
            }
            What::Answer { target, known, .. } => neighbours.on_told(now, *target, known),
            What::Address { cidr, standing: Standing::Gone, .. } => {
                self.network.drop_address(now, interface, *cidr);
                self.leave_addresses(now);
            }
            What::Address { cidr, origin, standing, .. } => {
                let is_deprecated = *standing == Standing::Deprecated;
                self.network.follow_assigned(interface, *cidr, *origin, is_deprecated);
            }
            What::News { news, .. } => self.network.follow_news(interface, news.clone()),
            What::RawCopy(whole) => drop(self.on_raw_copy(whole)),
            What::Wish { wish, .. } => self.network.on_wish(now, interface, wish),
            What::Looped { datagram, .. } => {
                if let Err(reason) = self.deliver_to_group(interface, datagram.clone()) {
                    self.drops.add(reason);
                }
            }
            What::NewsTaken | What::RawIcmp(_) | What::FastOpen { .. } => {}
        }
    }

    /// Tells the other shards, where this is the first, whether raw sockets of its want ICMP now.
    pub(crate) fn tell_of_raw_icmp(&mut self) {
        let is_wanted = self.sockets.raws.wants_icmp();
        if core::mem::replace(&mut self.network.sharing.raw_icmp, is_wanted) != is_wanted {
            for home in self.network.sharing.followers() {
                self.network.add_stray(home, What::RawIcmp(is_wanted));
            }
        }
    }

    fn on_raw_copy(&mut self, whole: &Whole) -> Option<bool> {
        let info = ip::parse(whole.packet.bytes()).ok()?;
        let batch = batch_of(whole)?;
        let incoming = Incoming::new(whole.origin, &info, &batch, 0, 0).ok()?;
        Some(self.deliver_raw(&incoming))
    }

    fn on_stray_packet(&mut self, now: Instant, whole: &Whole) {
        if let Err(reason) = self.on_whole(now, whole.clone()) {
            self.drops.add(reason);
        }
        self.end_batch(now);
    }

    /// A datagram that was put together here: nobody has verified its checksum.
    pub(crate) fn on_put_together(
        &mut self,
        now: Instant,
        origin: Origin,
        packet: Chunk,
    ) -> Result<(), DropReason> {
        let (checksum, segmented) = (ReceivedChecksum::Unverified, None);
        self.on_whole(now, Whole { origin, fragmented: true, checksum, segmented, packet })
    }

    /// A packet that came otherwise than in a frame of its own goes up, or on to the shard that has
    /// its socket.
    fn on_whole(&mut self, now: Instant, whole: Whole) -> Result<(), DropReason> {
        let transport = transport_of(whole.packet.bytes());
        if let Some(home) = transport.and_then(|it| self.network.sharing.elsewhere(it)) {
            self.network.add_stray(home, What::Packet(whole));
            return Ok(());
        }
        let batch = batch_of(&whole).ok_or(DropReason::Truncated)?;
        let Whole { origin, packet, fragmented, .. } = whole;
        let origin = Origin { is_home: true, ..origin };
        match ip::parse(packet.bytes()) {
            Ok(mut info) => {
                info.fragmented = fragmented;
                self.on_packet(now, origin, &batch, 0, 0, &info)
            }
            // Fragments of fragments: RFC 8200, 4.5 has one fragment header in a packet.
            Err(DropReason::Fragment) => Err(DropReason::MalformedIp),
            Err(reason) => {
                self.network.on_unreadable(now, origin, &batch, 0, 0);
                Err(reason)
            }
        }
    }
}

impl NetworkLayer {
    /// Tells all other shards what a connection learned of fast open.
    pub(crate) fn tell_of_fast_open(&mut self, pair: Pair, outcome: FastOpenOutcome) {
        let (own, count) = self.sharing.share.as_ref().map_or((0, 0), |it| (it.index, it.count));
        for home in (0..count).filter(|home| *home != own) {
            self.add_stray(home, What::FastOpen { pair, outcome });
        }
    }

    /// Tells the first shard, which is another one.
    pub(crate) fn hand_on_wish(&mut self, interface: InterfaceId, wish: Wish) {
        self.add_stray(0, What::Wish { interface, wish });
    }

    /// Hands a datagram of our own to the shard that may have listeners.
    pub(crate) fn hand_on_looped(
        &mut self,
        home: usize,
        interface: InterfaceId,
        datagram: udp::Datagram,
    ) {
        self.add_stray(home, What::Looped { interface, datagram });
    }

    /// Gives the first shard, where that is another one and wants it, a copy of an ICMP message.
    pub(crate) fn copy_to_first(&mut self, incoming: &Incoming<'_>) {
        if !self.sharing.raw_icmp {
            return;
        }
        let packet = incoming.packet_chunk().and_then(|packet| self.compact(&packet).ok());
        let Some(packet) = packet else { return self.drops.add(DropReason::NoMemory) };
        let whole = verified(incoming.origin, packet);
        self.add_stray(0, What::RawCopy(whole));
    }

    /// Has the first shard ask a neighbour; says whether that is another one.
    pub(crate) fn leaves_asking(&mut self, interface: InterfaceId, request: &Request) -> bool {
        let Some(share) = self.sharing.share.as_ref().filter(|share| share.index > 0) else {
            return false;
        };
        let (asker, target, is_known) = (share.index, request.target, request.unicast_to.is_some());
        let what = What::Question { interface, asker, target, is_known };
        self.add_stray(0, what);
        true
    }

    /// Tells the other shards, where this is the first, that it has an address, or has it no more.
    pub(crate) fn tell_of_address(
        &mut self,
        interface: InterfaceId,
        cidr: Cidr,
        origin: AddressOrigin,
        is_usable: bool,
    ) {
        // It may have been deprecated before it was ours, while others were asked for it.
        let addressing = &self.interfaces[interface].addressing;
        let record = addressing.find(cidr.address());
        let standing = match record.is_some_and(|record| record.is_deprecated) {
            _ if !is_usable => Standing::Gone,
            true => Standing::Deprecated,
            false => Standing::Usable,
        };
        for home in self.sharing.followers() {
            let what = What::Address { interface, cidr, origin, standing };
            self.add_stray(home, what);
        }
    }

    /// Tells the other shards, where this is the first, what it learned of a link.
    pub(crate) fn tell_of_link(&mut self, interface: InterfaceId, news: &LinkNews) {
        for home in self.sharing.followers() {
            self.sharing.untaken += 1;
            let what = What::News { interface, news: news.clone() };
            self.add_stray(home, what);
        }
    }

    /// Whether a segment for which there is nothing here goes on to the shard that would have it, because the
    /// device brought it by another's ring.
    pub(crate) fn hands_on(&mut self, incoming: &Incoming<'_>, flow: &Flow) -> bool {
        if incoming.origin.is_home {
            return false;
        }
        let Some(home) = self.sharing.elsewhere((Transport::Tcp, *flow)) else { return false };
        // A few of them must not hold all that came with them.
        let packet = incoming.packet_chunk().and_then(|packet| self.compact(&packet).ok());
        match packet {
            Some(packet) => {
                self.counters.segments_handed_on += 1;
                let segmented = incoming.segmented();
                let whole = Whole { segmented, ..verified(incoming.origin, packet) };
                self.add_stray(home, What::Packet(whole));
            }
            None => self.drops.add(DropReason::NoMemory),
        }
        true
    }

    /// Takes the datagrams for sockets of other shards, and the errors about datagrams of theirs, out of
    /// what this shard sent to itself. Connections stay: both of their ends are here.
    pub(crate) fn sort_out_loopback(&mut self, interface: InterfaceId, frames: &mut ReceiveBatch) {
        if !self.sharing.has_others() {
            return;
        }
        let mut kept = ReceiveBatch::new();
        for index in 0..frames.len() {
            let Some(frame) = frames.frame(index) else { continue };
            let Some(packet) = frames.chunk(index, 0..frame.len as usize) else { continue };
            let datagram = transport_of(packet.bytes()).filter(|(it, _)| *it == Transport::Udp);
            match datagram.and_then(|it| self.sharing.elsewhere(it)) {
                Some(home) => {
                    let (station, link_multicast, is_home) = (None, false, false);
                    let origin = Origin { interface, station, link_multicast, is_home };
                    let whole = Whole { checksum: frame.checksum, ..verified(origin, packet) };
                    self.add_stray(home, What::Packet(whole));
                }
                None => {
                    let is_there = kept.share_frame(frames, index);
                    debug_assert!(is_there, "it was looked at above");
                }
            }
        }
        *frames = kept;
    }

    fn add_stray(&mut self, home: usize, what: What) {
        let sharing = &mut self.sharing;
        let weight = what.weight(sharing.secret);
        let admitted = sharing.shares.as_mut().map(|shares| shares.admit(weight));
        match admitted.unwrap_or(Err(DropReason::StrayQueueFull)) {
            Ok(()) => sharing.strays.push_back(Stray { home, what, weight }),
            Err(reason) => self.drops.add(reason),
        }
    }
}

/// A packet that came in one piece and whose checksum was right.
fn verified(origin: Origin, packet: Chunk) -> Whole {
    let (fragmented, checksum, segmented) = (false, ReceivedChecksum::Verified, None);
    Whole { origin, fragmented, checksum, segmented, packet }
}

/// A packet as a batch of one.
fn batch_of(whole: &Whole) -> Option<ReceiveBatch> {
    let (packet, checksum) = (&whole.packet, whole.checksum);
    let mut batch = ReceiveBatch::new();
    let block = batch.add_block(packet.block().clone());
    let (offset, len) = (packet.offset() as u32, packet.len() as u32);
    let frame = Frame { block, offset, len, checksum, segmented: whole.segmented };
    batch.push_frame(frame).then_some(batch)
}

/// What tells a flow from others.
fn key_of_flow(flow: &Flow, [first, second]: [u64; 2]) -> u32 {
    let mut hasher = SipHasher13::new_with_keys(first, second);
    (flow.remote, flow.local).hash(&mut hasher);
    hasher.finish() as u32
}

/// What tells the flow of a packet from others. Who forges errors can have them be about any flow, so they are
/// one together.
fn key_of(packet: &[u8], [first, second]: [u64; 2]) -> u32 {
    let mut hasher = SipHasher13::new_with_keys(first, second);
    if let Ok(info) = ip::parse(packet) {
        match (info.protocol, transport_of(packet)) {
            (protocol::ICMP | protocol::ICMPV6, _) => hasher.write_u8(info.protocol),
            (_, Some((_, flow))) => (flow.remote, flow.local).hash(&mut hasher),
            (_, None) => (info.source, info.destination).hash(&mut hasher),
        }
    }
    hasher.finish() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    struct ByPort;

    impl Homes for ByPort {
        fn of_flow(&self, local: SocketAddr, remote: SocketAddr) -> usize {
            usize::from(local.port() ^ remote.port()) % 2
        }

        fn of_port(&self, port: u16) -> usize {
            usize::from(port) % 2
        }
    }

    #[test]
    fn a_packet_is_elsewhere_where_another_shard_has_its_socket() {
        let share = Share { index: 0, count: 2, homes: Arc::new(ByPort) };
        let sharing = Sharing { share: Some(share), ..Sharing::default() };
        let mut packet = [0; 28];
        packet[0] = 0x45;
        packet[3] = 28;
        (packet[8], packet[9]) = (64, protocol::UDP);
        (packet[12], packet[16]) = (10, 10);
        packet[25] = 8;
        let elsewhere = |packet: &[u8]| sharing.elsewhere(transport_of(packet)?);
        for (port, expected) in [(6, None), (7, Some(1))] {
            packet[23] = port;
            (packet[10], packet[11]) = (0, 0);
            let sum = !checksum::sum(&packet[..20]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(elsewhere(&packet), expected, "{port}");
        }
        for len in 0..28 {
            assert_eq!(elsewhere(&packet[..len]), None, "cut off at {len}");
        }
        assert!(sharing.is_home_of_port(2) && !sharing.is_home_of_port(3));
        assert!(Sharing::default().is_home_of_port(3), "an only shard has all");
    }
}
