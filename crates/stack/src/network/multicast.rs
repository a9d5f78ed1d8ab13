//! Multicast: who listens to which group, what routers are told of it, and how datagrams to groups
//! find their sockets.
//!
//! Sockets join a group on an interface, each with the sources it wants; addresses of ours join
//! their solicited-node groups. What all of them want together is the interface's membership
//! ([`ip::membership::Membership`]), which says what to report. A datagram to a group is delivered
//! to every socket that joined it there, bound to its port, and wants its source; the payload is
//! shared, not copied.
//!
//! What always holds: an interface is a member of at most [`ip::membership::GROUPS_MAX`] groups of
//! each family; a socket's memberships end with it.

use crate::error::{BadArgument, SocketError};
use crate::ingress::Incoming;
use crate::network::NetworkLayer;
use crate::network::endpoint::{of_one_family, scoped};
use crate::network::interface::Interface;
use crate::network::interfaces::InterfaceId;
use crate::outbox::{Message, Network, NextHop, Outgoing};
use crate::shard::Shard;
use crate::sockets::SocketId;
use batch::Chunk;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use counters::DropReason;
use ip::HeaderTemplate;
use ip::membership::{Filter, GroupMessage, Membership, Query, Report, Version};
use std::collections::BTreeMap;
use time::{Duration, Instant, Jitter};

/// Sockets and addresses that may listen to one group on one interface.
const LISTENERS_MAX: usize = 1_024;

/// How a socket sends to groups, and by which interface to everybody on a link (255.255.255.255).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastOptions {
    /// How many routers may forward the datagrams, plus one (RFC 1112, 6.1): 1 keeps them on the
    /// link, 0 in this stack.
    pub hop_limit: u8,
    /// Whether listeners of this stack get them, too.
    pub is_looped: bool,
    /// The interface they leave by; `None`: the one that the route to the group names, else the first with an
    /// address of the family; where that has not the address they are sent from, the interface that has. By
    /// one that was asked for and has it not nothing is sent: [`SocketError::NoRoute`].
    pub interface: Option<InterfaceId>,
}

impl Default for MulticastOptions {
    /// RFC 1112, 6.1: "the default time-to-live [...] is 1".
    fn default() -> Self {
        Self { hop_limit: 1, is_looped: true, interface: None }
    }
}

/// Who listens to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    /// The UDP socket with this index.
    Socket(u32),
    /// Neighbour discovery, for this address of ours.
    Address(IpAddr),
    /// What advertises a router, for those who ask for one.
    Router,
    /// The sockets of the shard with this number, of the same host; in the first shard alone.
    Shard(usize),
}

/// The groups of one interface.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    ipv4: Membership,
    ipv6: Membership,
    listeners: BTreeMap<IpAddr, Vec<(Listener, Filter)>>,
}

impl Groups {
    /// Whether somebody listens to the group.
    pub(crate) fn is_joined(&self, group: IpAddr) -> bool {
        self.listeners.contains_key(&group)
    }

    fn has(&self, group: IpAddr, listener: Listener) -> bool {
        let all = self.listeners.get(&group);
        all.is_some_and(|all| all.iter().any(|(known, _)| *known == listener))
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        Instant::earliest(self.ipv4.poll_timeout(), self.ipv6.poll_timeout())
    }

    /// Routers on the link may have heard nothing of the groups: they are told as if they had asked.
    pub(crate) fn on_new_link(&mut self, now: Instant, jitter: &mut Jitter) {
        self.ipv4.on_query(now, &query_of_all(), jitter);
        self.ipv6.on_query(now, &query_of_all(), jitter);
    }

    /// There is a link-local address now, and routers take only reports that come from one.
    pub(crate) fn on_link_local(&mut self, now: Instant, jitter: &mut Jitter) {
        self.ipv6.on_query(now, &query_of_all(), jitter);
    }

    fn membership(&mut self, is_ipv4: bool) -> &mut Membership {
        if is_ipv4 { &mut self.ipv4 } else { &mut self.ipv6 }
    }

    /// Enters a listener, in place of what it wanted before. Says whether there was room.
    fn join(
        &mut self,
        now: Instant,
        group: IpAddr,
        listener: Listener,
        filter: Filter,
        jitter: &mut Jitter,
    ) -> bool {
        let mut all = self.listeners.get(&group).cloned().unwrap_or_default();
        all.retain(|(known, _)| *known != listener);
        all.push((listener, filter));
        let has_room = all.len() <= LISTENERS_MAX;
        let merged = merge(&all);
        if !has_room || !self.membership(group.is_ipv4()).set(now, group, merged, jitter) {
            return false;
        }
        self.listeners.insert(group, all);
        true
    }

    /// Takes a listener out, and says whether it was there.
    fn leave(
        &mut self,
        now: Instant,
        group: IpAddr,
        listener: Listener,
        jitter: &mut Jitter,
    ) -> bool {
        let Some(all) = self.listeners.get_mut(&group) else { return false };
        let before = all.len();
        all.retain(|(known, _)| *known != listener);
        let was_there = all.len() < before;
        let merged = merge(&*all);
        if all.is_empty() {
            self.listeners.remove(&group);
        }
        // Where those who are left name more sources than one membership holds, everybody's
        // datagrams still come in, and each listener takes its own.
        let _ = self.membership(group.is_ipv4()).set(now, group, merged, jitter);
        was_there
    }

    /// The sockets that want datagrams of `source` to `group`.
    pub(crate) fn sockets(&self, group: IpAddr, source: IpAddr) -> Vec<u32> {
        let all = self.listeners.get(&group).map_or(&[][..], |all| all);
        let wanting = all.iter().filter(|(_, filter)| filter.accepts(source));
        let sockets = wanting.filter_map(|(listener, _)| match listener {
            Listener::Socket(index) => Some(*index),
            Listener::Address(_) | Listener::Router | Listener::Shard(_) => None,
        });
        sockets.collect()
    }

    /// What the sockets of this shard want together of a group.
    pub(crate) fn wanted_by_sockets(&self, group: IpAddr) -> Option<Filter> {
        let all = self.listeners.get(&group).map_or(&[][..], |all| all);
        merge(all.iter().filter(|(listener, _)| matches!(listener, Listener::Socket(_))))
    }
}

/// As a router asks who listens to what, with a second for the answer.
fn query_of_all() -> Query {
    let max_response = Duration::from_secs(1);
    let (version, group, sources) = (Version::Current, None, Vec::new());
    Query { version, max_response, group, sources, robustness: None }
}

fn merge<'a>(all: impl IntoIterator<Item = &'a (Listener, Filter)>) -> Option<Filter> {
    let mut filters = all.into_iter().map(|(_, filter)| filter);
    let first = filters.next()?.clone();
    Some(filters.fold(first, Filter::merged))
}

impl Shard {
    /// Lets a UDP socket receive datagrams to `group` by `interface` (`None` as in
    /// [`MulticastOptions`]): those of `sources`, or of everybody where there are none. A second
    /// call for the same group replaces the sources.
    ///
    /// # Errors
    /// [`SocketError::InvalidArgument`] where this is no group, or a source is of the other family;
    /// [`SocketError::NoMemory`] where the interface is a member of 64 groups, or there are more
    /// than 32 sources; no interface for the group.
    pub fn udp_join(
        &mut self,
        now: Instant,
        id: SocketId,
        group: IpAddr,
        interface: Option<InterfaceId>,
        sources: &[IpAddr],
    ) -> Result<(), SocketError> {
        let index = self.sockets.index(id)?;
        self.sockets.udp(index).ok_or(SocketError::InvalidSocket)?;
        if !group.is_multicast() {
            return Err(BadArgument::NoGroup(group).into());
        }
        sources.iter().try_for_each(|source| of_one_family(*source, group))?;
        let by = self.network.multicast_interface(group, interface)?;
        let filter = match sources {
            [] => Filter::AnySource,
            sources => Filter::Sources(sources.iter().copied().collect()),
        };
        match self.network.join_group(now, by, group, Listener::Socket(index), filter) {
            true => Ok(()),
            false => Err(SocketError::NoMemory),
        }
    }

    /// Ends what [`Shard::udp_join`] began. Where no interface is named and the socket is not in the group by the
    /// usual one, which may have been another when it joined, it leaves by one by which it is.
    ///
    /// # Errors
    /// [`SocketError::AddressNotAvailable`] where the socket is not in the group.
    pub fn udp_leave(
        &mut self,
        now: Instant,
        id: SocketId,
        group: IpAddr,
        interface: Option<InterfaceId>,
    ) -> Result<(), SocketError> {
        let index = self.sockets.index(id)?;
        let listener = Listener::Socket(index);
        let usual = self.network.multicast_interface(group, interface);
        let left = match (usual, interface) {
            (Err(error), Some(_)) => return Err(error),
            (usual, Some(_)) => usual.ok(),
            (usual, None) => {
                let mut ids = usual.ok().into_iter().chain(self.network.interfaces.ids());
                ids.find(|id| self.network.interfaces[*id].groups.has(group, listener))
            }
        };
        match left.is_some_and(|by| self.network.leave_group(now, by, group, listener)) {
            true => Ok(()),
            false => Err(SocketError::AddressNotAvailable),
        }
    }

    /// Changes how a UDP socket sends to groups.
    ///
    /// # Errors
    /// There is no such socket, or no such interface.
    pub fn udp_set_multicast(
        &mut self,
        id: SocketId,
        options: MulticastOptions,
    ) -> Result<(), SocketError> {
        let index = self.sockets.index(id)?;
        if options.interface.is_some_and(|by| !self.network.has_interface(by)) {
            return Err(SocketError::NoSuchInterface);
        }
        self.sockets.udp(index).ok_or(SocketError::InvalidSocket)?.multicast = options;
        Ok(())
    }

    /// How a UDP socket sends to groups.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn udp_multicast(&mut self, id: SocketId) -> Result<MulticastOptions, SocketError> {
        let index = self.sockets.index(id)?;
        Ok(self.sockets.udp(index).ok_or(SocketError::InvalidSocket)?.multicast)
    }

    /// Hands a datagram of this host's own to all sockets that listen. Who reads slowly must pin neither a block of
    /// which it is a small part nor memory that was lent to be sent.
    ///
    /// # Errors
    /// None of them took it, or there is no memory.
    pub(crate) fn deliver_to_group(
        &mut self,
        id: InterfaceId,
        mut datagram: udp::Datagram,
    ) -> Result<(), DropReason> {
        datagram.destination = scoped(datagram.destination, id);
        datagram.source = scoped(datagram.source, id);
        let ends @ (local, source) = (datagram.destination, datagram.source);
        let sockets = self.network.interfaces[id].groups.sockets(local.ip(), source.ip());
        let payload = &datagram.payload;
        let sockets = self.hearing(id, sockets, ends, payload.len())?;
        let holds_much_more = batch::holds_much_more(payload.len(), payload.block().len());
        if !sockets.is_empty() && (holds_much_more || !self.pool.owns(payload.block())) {
            datagram.payload = self.network.compact(payload)?;
        }
        self.deliver_to_all(&sockets, &datagram)
    }

    /// Those of `sockets` that are bound to where a datagram went and hear its sender, if there is one among them that
    /// has room for it: a flood of what nobody has room for is not copied. It came in by interface `id`.
    ///
    /// # Errors
    /// None has.
    pub(crate) fn hearing(
        &mut self,
        id: InterfaceId,
        mut sockets: Vec<u32>,
        (local, source): (SocketAddr, SocketAddr),
        payload_len: usize,
    ) -> Result<Vec<u32>, DropReason> {
        sockets.retain(|index| self.sockets.hears(*index, id, local, source));
        let mut refused = None;
        for index in &sockets {
            match self.has_room(*index, 0, payload_len) {
                Ok(()) => return Ok(sockets),
                Err(reason) => refused = Some(reason),
            }
        }
        refused.map_or(Ok(sockets), Err)
    }

    /// Hands a datagram to `sockets`, which [hear](Shard::hearing) it.
    ///
    /// # Errors
    /// None of them took it.
    pub(crate) fn deliver_to_all(
        &mut self,
        sockets: &[u32],
        datagram: &udp::Datagram,
    ) -> Result<(), DropReason> {
        let (mut is_taken, mut refused) = (false, None);
        for index in sockets {
            let has_room = self.has_room(*index, 0, datagram.payload.len());
            match has_room.and_then(|()| self.push_datagram(*index, 0, datagram.clone())) {
                Ok(()) => is_taken = true,
                Err(reason) => refused = Some(reason),
            }
        }
        refused.filter(|_| !is_taken).map_or(Ok(()), Err)
    }
}

impl NetworkLayer {
    /// The interface that a group is reached by.
    pub(crate) fn multicast_interface(
        &self,
        group: IpAddr,
        asked: Option<InterfaceId>,
    ) -> Result<InterfaceId, SocketError> {
        if let Some(id) = asked {
            return match self.has_interface(id) {
                true => Ok(id),
                false => Err(SocketError::NoSuchInterface),
            };
        }
        if let Some(route) = self.routes.lookup(group) {
            return Ok(InterfaceId::numbered(route.interface));
        }
        let has_family = |cidr: &ip::Cidr| cidr.address().is_ipv4() == group.is_ipv4();
        let has_address = |id: &InterfaceId| self.interfaces[*id].addresses.iter().any(has_family);
        self.interfaces.ids().find(has_address).ok_or(SocketError::NoSourceFor(group))
    }

    /// The same for a datagram with the source `source`: an address leaves by its own interface only
    /// (RFC 1122, 3.3.4.2 (B)), so where none was asked for that is the one.
    pub(crate) fn group_interface_from(
        &self,
        source: IpAddr,
        group: IpAddr,
        asked: Option<InterfaceId>,
    ) -> Result<InterfaceId, SocketError> {
        let usual = self.multicast_interface(group, asked);
        let may = |interface: &Interface| interface.may_send_from(source);
        if let Ok(id) = usual
            && (may(&self.interfaces[id]) || source.is_loopback())
        {
            return usual;
        }
        if asked.is_some() {
            return usual.and(Err(SocketError::NoRoute(group)));
        }
        let has_source =
            |id: &InterfaceId| *id != InterfaceId::LOOPBACK && may(&self.interfaces[*id]);
        self.interfaces.ids().find(has_source).ok_or(SocketError::NoRoute(group))
    }

    /// Enters a listener and reports what changed. Says whether there was room.
    pub(crate) fn join_group(
        &mut self,
        now: Instant,
        id: InterfaceId,
        group: IpAddr,
        listener: Listener,
        filter: Filter,
    ) -> bool {
        let interface = &mut self.interfaces[id];
        let jitter = &mut interface.addressing.jitter;
        let has_joined = interface.groups.join(now, group, listener, filter, jitter);
        if has_joined && matches!(listener, Listener::Socket(_)) {
            self.tell_of_wish(id, group);
        }
        self.send_reports(id);
        has_joined
    }

    /// Takes a listener out and reports what changed. Says whether it was there.
    pub(crate) fn leave_group(
        &mut self,
        now: Instant,
        id: InterfaceId,
        group: IpAddr,
        listener: Listener,
    ) -> bool {
        let interface = &mut self.interfaces[id];
        let jitter = &mut interface.addressing.jitter;
        let was_there = interface.groups.leave(now, group, listener, jitter);
        if was_there && matches!(listener, Listener::Socket(_)) {
            self.tell_of_wish(id, group);
        }
        self.send_reports(id);
        was_there
    }

    /// A socket is closed: its memberships end.
    pub(crate) fn leave_all_groups(&mut self, now: Instant, socket: u32) {
        let listener = Listener::Socket(socket);
        for id in self.interfaces.ids() {
            let of_socket = |(_, all): &(&IpAddr, &Vec<(Listener, Filter)>)| {
                all.iter().any(|(known, _)| *known == listener)
            };
            let listeners = &self.interfaces[id].groups.listeners;
            let groups: Vec<IpAddr> =
                listeners.iter().filter(of_socket).map(|(group, _)| *group).collect();
            for group in groups {
                self.leave_group(now, id, group, listener);
            }
        }
    }

    /// Repeats reports, and answers queries, when it is time.
    pub(crate) fn on_groups_timeout(&mut self, now: Instant, id: InterfaceId) {
        let interface = &mut self.interfaces[id];
        if interface.groups.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        let jitter = &mut interface.addressing.jitter;
        interface.groups.ipv4.on_timeout(now, jitter);
        interface.groups.ipv6.on_timeout(now, jitter);
        self.send_reports(id);
    }

    /// A message of IGMP or MLD came in.
    pub(crate) fn on_group_message(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
    ) -> Result<(), DropReason> {
        let message = GroupMessage::parse(incoming.info, incoming.transport_bytes())?;
        let interface = &mut self.interfaces[incoming.origin.interface];
        let membership = interface.groups.membership(incoming.info.source.is_ipv4());
        match message {
            GroupMessage::Query(query) => {
                membership.on_query(now, &query, &mut interface.addressing.jitter);
            }
            GroupMessage::Report(group) => membership.on_report(now, group),
            GroupMessage::Other => return Err(DropReason::UnrelatedIcmp),
        }
        Ok(())
    }

    /// Sends what there is to report, where this is the shard that does so for the host.
    fn send_reports(&mut self, id: InterfaceId) {
        let reports = self.sharing.is_first();
        for is_ipv4 in [true, false] {
            loop {
                let groups = &mut self.interfaces[id].groups;
                let Some(report) = groups.membership(is_ipv4).poll_report() else { break };
                if reports {
                    self.send_report(id, is_ipv4, &report);
                }
            }
        }
    }

    fn send_report(&mut self, id: InterfaceId, is_ipv4: bool, report: &Report) {
        let source = self.report_source(id, is_ipv4);
        let (template, bytes) = ip::membership::report_packet(report, source);
        if self.send_complete(id, template, &bytes) {
            self.counters.group_reports += 1;
        }
    }

    /// Queues a packet to neighbours: what lies behind the IP header, its checksum included, 8 bytes at least. Says
    /// whether there was memory.
    pub(crate) fn send_complete(
        &mut self,
        id: InterfaceId,
        template: HeaderTemplate,
        bytes: &[u8],
    ) -> bool {
        let Some((header, rest)) = bytes.split_first_chunk() else { return false };
        let Ok(mut block) = self.pool.allocate_receive(rest.len()) else {
            self.drops.add(DropReason::NoMemory);
            return false;
        };
        block.bytes_mut()[..rest.len()].copy_from_slice(rest);
        let packet = Outgoing {
            next_hop: NextHop::Neighbour(template.destination()),
            network: Network::Ip(template),
            message: Message::Raw {
                header: *header,
                header_len: header.len() as u8,
                payload: Chunk::new(block.freeze(), 0..rest.len()).into(),
                may_fragment: false,
            },
        };
        self.send_small(id, packet);
        true
    }

    /// RFC 3376, 4.2.13: our address, or zero where there is none yet; RFC 3810, 5.2.13: a
    /// link-local address, or the unspecified one.
    fn report_source(&self, id: InterfaceId, is_ipv4: bool) -> IpAddr {
        let interface = &self.interfaces[id];
        let mut addresses = interface.addresses.iter().map(|cidr| cidr.address());
        let found = addresses.find(|address| match address {
            IpAddr::V4(_) => is_ipv4,
            IpAddr::V6(own) => {
                !is_ipv4
                    && own.is_unicast_link_local()
                    && !interface.addressing.is_unsettled(*address)
            }
        });
        found.unwrap_or(match is_ipv4 {
            true => Ipv4Addr::UNSPECIFIED.into(),
            false => Ipv6Addr::UNSPECIFIED.into(),
        })
    }
}
