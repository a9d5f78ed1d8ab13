//! What an interface and its device agreed on, and what became of it (seed 000, 4.4.1 and 4.4.2).
//!
//! ```text
//!   device: Capabilities ──┐
//!   operator: mode wanted ─┼─> negotiate ─> mode in force, or why batches are single packets
//!   ip_multidata_outbound ─┘       │
//!                                  └─> connections ask again with their next batch
//! ```
//!
//! It is done when an interface comes up and again whenever one of the three changes: the device took
//! a capability back or has it again, or an operator chose a mode or flipped a switch. A batch that
//! was built and not taken is forgotten and built afresh in any case, so nothing that was made under
//! the old agreement reaches the device under the new one.
//!
//! What a user must hear of interfaces waits in a bounded list ([`InterfaceEvent`]).

use crate::connections::tcp_socket::TcpSocket;
use crate::network::NetworkLayer;
use crate::network::filter::{FilterFlow, Handling};
use crate::network::interface::Interface;
use crate::network::interfaces::InterfaceId;
use crate::outbox::Network;
use crate::shard::Shard;
use crate::sockets::{Flow, SocketId};
use batch::Limits;
use core::fmt;
use counters::MultidataRefusal;
use device::{Capabilities, DeviceError, Room, Stop, TransmitMode, Transmitted};
use time::Instant;

/// What an interface and its device agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransmitStatus {
    /// What the device said that it can do.
    pub capabilities: Capabilities,
    /// The mode that was asked for, if one was.
    pub wanted: Option<TransmitMode>,
    /// The mode in force.
    pub mode: TransmitMode,
    /// The interface's own switch (`ip_multidata_outbound`).
    pub multidata_outbound: bool,
    /// Why batches are single packets, where they are.
    pub refusal: Option<MultidataRefusal>,
    /// How large a batch may grow.
    pub batch: Limits,
    /// How often it was negotiated, the first time included.
    pub negotiations: u32,
}

impl fmt::Display for TransmitStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { capabilities, wanted, mode, batch, .. } = self;
        match wanted {
            None => write!(formatter, "transmit {mode} (the device's choice)")?,
            Some(wanted) if capabilities.supports(*wanted) => {
                write!(formatter, "transmit {mode} (asked for {wanted})")?;
            }
            Some(wanted) => write!(
                formatter,
                "transmit {mode} (asked for {wanted}, which the device has no form for)"
            )?,
        }
        write!(
            formatter,
            ", contract {}, at most {} packets, {} blocks, {} bytes",
            capabilities.version,
            batch.packets,
            batch.blocks,
            Bound(batch.payload_bytes)
        )?;
        let has = |on: bool| if on { "yes" } else { "no" };
        write!(
            formatter,
            "; checksums {}, super-frames {}, splitting {}, coalescing {}, queues {}",
            Kinds(checksum_kinds(capabilities)),
            Kinds(super_frame_kinds(capabilities)),
            has(capabilities.fragment_splitting != device::FragmentSplitting::default()),
            has(capabilities.coalesced_frames_max > 1),
            capabilities.queues
        )?;
        let possible = TransmitMode::ALL.into_iter().filter(|it| capabilities.supports(*it));
        write!(
            formatter,
            "; modes {}",
            possible.map(TransmitMode::name).collect::<Vec<_>>().join(" ")
        )?;
        match self.refusal {
            Some(refusal) => write!(formatter, "; single packets: {}", refusal.name()),
            None => Ok(()),
        }
    }
}

/// A number, or that there is no bound.
struct Bound(usize);

impl fmt::Display for Bound {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            usize::MAX => formatter.write_str("any"),
            bound => bound.fmt(formatter),
        }
    }
}

/// The kinds of packets that a device does something for, and the longest, where it is bounded.
struct Kinds(([(&'static str, bool); 4], Option<usize>));

impl fmt::Display for Kinds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self((kinds, len_bytes_max)) = self;
        let mut between = "";
        for (name, _) in kinds.iter().filter(|(_, is_on)| *is_on) {
            write!(formatter, "{between}{name}")?;
            between = "+";
        }
        match (between, len_bytes_max) {
            ("", _) => formatter.write_str("no"),
            (_, Some(bytes)) => write!(formatter, " to {bytes} bytes"),
            (_, None) => Ok(()),
        }
    }
}

fn checksum_kinds(capabilities: &Capabilities) -> ([(&'static str, bool); 4], Option<usize>) {
    let (is_on, kinds) = (capabilities.checksum_transmit, capabilities.checksum_kinds);
    let kinds = [
        ("tcp4", is_on && kinds.tcp_ipv4),
        ("tcp6", is_on && kinds.tcp_ipv6),
        ("udp4", is_on && kinds.udp_ipv4),
        ("udp6", is_on && kinds.udp_ipv6),
    ];
    (kinds, None)
}

fn super_frame_kinds(capabilities: &Capabilities) -> ([(&'static str, bool); 4], Option<usize>) {
    let limits = capabilities.segmentation;
    let kinds = [
        ("tcp4", limits.is_some_and(|limits| limits.tcp_ipv4)),
        ("tcp6", limits.is_some_and(|limits| limits.tcp_ipv6)),
        ("", false),
        ("", false),
    ];
    (kinds, limits.map(|limits| limits.len_bytes_max))
}

/// Which protocols go in batches with others; everything else goes packet by packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultidataProtocols {
    /// Segments of connections. Seed 000 has these only.
    pub tcp: bool,
    /// Datagrams.
    pub udp: bool,
    /// ICMP and what hosts say to find each other.
    pub icmp: bool,
    /// Raw packets of all other protocols.
    pub raw: bool,
}

impl Default for MultidataProtocols {
    fn default() -> Self {
        Self { tcp: true, udp: true, icmp: true, raw: true }
    }
}

impl MultidataProtocols {
    /// Whether packets of this IP protocol go in batches with others.
    #[must_use]
    pub fn has(self, protocol: u8) -> bool {
        match protocol {
            wire::protocol::TCP => self.tcp,
            wire::protocol::UDP => self.udp,
            wire::protocol::ICMP | wire::protocol::ICMPV6 => self.icmp,
            _ => self.raw,
        }
    }
}

/// Something that happened to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InterfaceEvent {
    /// Its way out is another now.
    Negotiated(InterfaceId, Box<TransmitStatus>),
    /// Its device takes only packets up to this many bytes now.
    MtuShrunk(InterfaceId, usize),
    /// Its device failed: how many packets of a batch it had taken, where it was found in sending, and
    /// its sentence.
    DeviceFailed(InterfaceId, Option<usize>, String),
    /// Its device takes and brings nothing for now, and the sentence that says why.
    LinkLost(InterfaceId, String),
    /// What was wrong with its device has passed. What was known of the link is found out anew
    /// ([`Shard::on_link_changed`]).
    LinkRestored(InterfaceId),
    /// Its device will never take a packet that was built for it, which is dropped. Told of the first
    /// one; the counters have them all, here and in the two below.
    PacketRefused(InterfaceId),
    /// Its device took so many packets of a batch of so many, and the rest is built afresh.
    TookPart(InterfaceId, usize, usize),
    /// So many payload bytes of a batch were copied, as their blocks are longer than its device takes.
    BlocksCopied(InterfaceId, usize),
    /// It stands on another device now, and this is what they agreed on.
    DeviceReplaced(InterfaceId, Box<TransmitStatus>),
    /// It was removed, and so many connections ended with it.
    Removed(InterfaceId, usize),
}

impl fmt::Display for InterfaceEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Negotiated(id, status) => write!(formatter, "{id}: {status}"),
            Self::MtuShrunk(id, mtu_bytes) => write!(
                formatter,
                "{id}: its device takes packets of {mtu_bytes} bytes at most now; what is \
                 longer and outstanding is sent again in shorter ones"
            ),
            Self::DeviceFailed(id, Some(taken), message) => write!(
                formatter,
                "{id}: its device failed after {taken} packets of a batch: {message}"
            ),
            Self::DeviceFailed(id, None, message) => {
                write!(formatter, "{id}: its device failed: {message}")
            }
            Self::LinkLost(id, message) => {
                write!(formatter, "{id}: nothing can be sent or received for now: {message}")
            }
            Self::LinkRestored(id) => {
                write!(formatter, "{id}: its device can be used again")
            }
            Self::DeviceReplaced(id, status) => {
                write!(formatter, "{id}: it stands on another device now, {status}")
            }
            Self::PacketRefused(id) => write!(
                formatter,
                "{id}: its device refused a packet for good, which was dropped; further ones \
                 are only counted"
            ),
            Self::TookPart(id, taken, of) => write!(
                formatter,
                "{id}: its device took {taken} of {of} packets of a batch, and the rest is \
                 built afresh; further ones are only counted"
            ),
            Self::BlocksCopied(id, bytes) => write!(
                formatter,
                "{id}: its device takes only blocks shorter than the stack's, so {bytes} bytes of \
                 a batch were copied for it; further ones are only counted"
            ),
            Self::Removed(id, ended) => {
                write!(formatter, "{id} was removed; {ended} connections ended")
            }
        }
    }
}

/// What an interface was asked for, and what it agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreement {
    wanted: Option<TransmitMode>,
    outbound: bool,
    pub(crate) protocols: MultidataProtocols,
    pub(crate) mode: TransmitMode,
    /// Why all of its batches are single packets.
    pub(crate) refusal: Option<MultidataRefusal>,
    negotiations: u32,
    /// What was told of the device and is told once.
    told: Told,
}

/// What is told of a device once, and counted always.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    refused: bool,
    part: bool,
    copied: bool,
}

impl Agreement {
    /// Before the first negotiation, which brings the mode.
    pub(crate) fn new(wanted: Option<TransmitMode>) -> Self {
        let protocols = MultidataProtocols::default();
        let (mode, refusal, told) = (wanted.unwrap_or_default(), None, Told::default());
        Self { wanted, outbound: true, protocols, mode, refusal, negotiations: 0, told }
    }
}

impl Interface {
    fn transmit_status(&self) -> TransmitStatus {
        TransmitStatus {
            capabilities: self.capabilities.clone(),
            wanted: self.agreement.wanted,
            mode: self.agreement.mode,
            multidata_outbound: self.agreement.outbound,
            refusal: self.agreement.refusal,
            batch: self.limits(Room::UNBOUNDED),
            negotiations: self.agreement.negotiations,
        }
    }

    /// Says whether anything is different from now on.
    fn negotiate(&mut self, outbound: bool) -> bool {
        let Agreement { wanted, mode, refusal, .. } = self.agreement;
        let now = if !self.capabilities.takes_multidata() {
            (TransmitMode::Single, Some(MultidataRefusal::NotCapable))
        } else if self.capabilities.wants_single_packets {
            (TransmitMode::Single, Some(MultidataRefusal::TransformPolicy))
        } else if !outbound || !self.agreement.outbound {
            (TransmitMode::Single, Some(MultidataRefusal::NotEnabled))
        } else if wanted == Some(TransmitMode::Single) {
            (TransmitMode::Single, Some(MultidataRefusal::SingleMode))
        } else {
            (self.capabilities.mode_for(wanted), None)
        };
        (self.agreement.mode, self.agreement.refusal) = now;
        self.agreement.negotiations += 1;
        now != (mode, refusal) || self.agreement.negotiations == 1
    }
}

impl Shard {
    /// Whether there is such an interface, and it was not removed.
    #[must_use]
    pub fn has_interface(&self, id: InterfaceId) -> bool {
        self.network.has_interface(id)
    }

    /// Takes note of what the interface's device can do now, found anew after a capability was
    /// taken back or came back, and negotiates. A mode that is not possible falls back to
    /// `multidata`, until it is; connections take note of another MTU with the next batch they fill
    /// ([`Shard::set_mtu`] makes them do it now).
    pub fn set_capabilities(&mut self, id: InterfaceId, capabilities: Capabilities) {
        let Some(interface) = self.network.interfaces.get_mut(id) else { return };
        let before = interface.hardware_address();
        let mtu_bytes = interface.capabilities.mtu_bytes;
        if mtu_bytes > capabilities.mtu_bytes {
            self.counters.device_mtus_shrunk += 1;
            let event = InterfaceEvent::MtuShrunk(id, capabilities.mtu_bytes);
            self.network.interface_events.push(event);
        }
        interface.capabilities = capabilities;
        let is_moved = interface.hardware_address() != before;
        self.network.negotiate(id);
        if is_moved {
            self.network.on_hardware_address_changed(id);
        }
    }

    /// Asks for a transmit mode, or with `None` for what suits the device, and returns the one that is now in
    /// force: the one asked for, or `multidata` where the device cannot do it, or `single` where batches are
    /// switched off.
    pub fn set_mode(
        &mut self,
        id: InterfaceId,
        mode: impl Into<Option<TransmitMode>>,
    ) -> TransmitMode {
        let mode = mode.into();
        if let Some(interface) = self.network.interfaces.get_mut(id) {
            interface.agreement.wanted = mode;
            self.network.negotiate(id);
        }
        self.mode(id).or(mode).unwrap_or_default()
    }

    /// The transmit mode in force.
    #[must_use]
    pub fn mode(&self, id: InterfaceId) -> Option<TransmitMode> {
        self.network.interfaces.get(id).map(|interface| interface.agreement.mode)
    }

    /// Lets packets leave in batches, or one by one: by interface `id`, or where that is `None` by
    /// any (`ip_multidata_outbound`; both must be on). On from the start.
    pub fn set_multidata_outbound(&mut self, id: Option<InterfaceId>, on: bool) {
        match id {
            Some(id) => {
                if let Some(interface) = self.network.interfaces.get_mut(id) {
                    interface.agreement.outbound = on;
                    self.network.negotiate(id);
                }
            }
            None => {
                self.network.multidata_outbound = on;
                self.network.interfaces.ids().for_each(|id| self.network.negotiate(id));
            }
        }
    }

    /// Chooses which protocols leave interface `id` in batches with others.
    pub fn set_multidata_protocols(&mut self, id: InterfaceId, protocols: MultidataProtocols) {
        if let Some(interface) = self.network.interfaces.get_mut(id) {
            interface.agreement.protocols = protocols;
            self.network.path_mtus.invalidate();
        }
    }

    /// What interface `id` and its device agreed on.
    #[must_use]
    pub fn transmit_status(&self, id: InterfaceId) -> Option<TransmitStatus> {
        self.network.interfaces.get(id).map(Interface::transmit_status)
    }

    /// The next thing that happened to an interface. Events that nobody reads are bounded: the
    /// oldest is forgotten, and counted.
    pub fn poll_interface_event(&mut self) -> Option<InterfaceEvent> {
        self.network.interface_events.next()
    }

    /// Whether something happened to an interface or an address since this was asked last: for a driver that
    /// wakes whoever asks for such events.
    pub fn take_event_news(&mut self) -> bool {
        self.network.interface_events.take_news() | self.network.address_events.take_news()
    }

    /// The device of interface `id` failed, which was found in receiving or in changing it; what is found in
    /// sending [`Shard::on_transmitted`] takes in. Whoever runs the shard says it once.
    pub fn on_device_failed(&mut self, now: Instant, id: InterfaceId, error: &DeviceError) {
        self.network.tell_failed(id, None, error);
        let stopped = Some(Stop::Failed(error.clone()));
        self.note_standstill(now, id, &Transmitted { taken: 0, stopped });
        self.wake_blocked(id);
    }

    /// Interface `id` stands on another device from now on, which can do this: its failure is forgotten, and
    /// so is who was found on the link, as the other end may be another one, too. What the two agree on is
    /// negotiated as when an interface comes up. Addresses, routes, connections and what waits to be sent
    /// stay, and the rest is as in [`Shard::on_link_changed`].
    pub fn on_device_replaced(
        &mut self,
        now: Instant,
        id: InterfaceId,
        capabilities: Capabilities,
    ) {
        let Ok(interface) = self.network.interfaces.with_device(id) else { return };
        (interface.has_failed, interface.is_out, interface.full_since) = (false, false, None);
        interface.agreement.told = Told::default();
        self.counters.devices_replaced += 1;
        self.set_capabilities(id, capabilities);
        if let Some(status) = self.transmit_status(id) {
            let event = InterfaceEvent::DeviceReplaced(id, Box::new(status));
            self.network.interface_events.push(event);
        }
        self.on_link_changed(now, id);
    }

    /// Interface `id` may be on another link from now on, or nobody could hear it for a while: who was found there is
    /// forgotten, addresses are asked about and told of again as their policy says (RFC 5227, 2.1; RFC 4862, 5.4), used
    /// meanwhile (as RFC 4429 has it), and given up where another station has them; multicast routers are told of
    /// our groups, routers are asked for (RFC 4861, 6.3.7), and a DHCP server whether the leased address is
    /// right (RFC 2131, 3.7). Of several shards that are one host, each is told.
    pub fn on_link_changed(&mut self, now: Instant, id: InterfaceId) {
        let Ok(interface) = self.network.interfaces.with_device(id) else { return };
        self.counters.links_changed += 1;
        interface.neighbours.forget_links();
        interface.groups.on_new_link(now, &mut interface.addressing.jitter);
        self.network.claim_again(now, id);
        self.network.on_new_link(now, id);
        self.leave_addresses(now);
        self.reroute_all(now);
    }

    /// The interface that a connection leaves by at present; `None` for anything else, and where that was
    /// removed.
    #[must_use]
    pub fn tcp_interface(&self, id: SocketId) -> Option<InterfaceId> {
        let socket = self.sockets.tcp_ref(self.sockets.index(id).ok()?)?;
        let id = socket.path.interface;
        self.network.interfaces.get(id).filter(|it| !it.is_removed).map(|_| id)
    }

    /// Something is wrong with the device of interface `id` that may pass, or no more: then its link is one that
    /// may have changed.
    pub fn on_device_trouble(
        &mut self,
        now: Instant,
        id: InterfaceId,
        trouble: Option<&DeviceError>,
    ) {
        self.network.interface_events.push(match trouble {
            Some(error) => InterfaceEvent::LinkLost(id, error.message.clone()),
            None => InterfaceEvent::LinkRestored(id),
        });
        if trouble.is_none() {
            self.on_link_changed(now, id);
        }
    }

    /// Asks for a connection again; says so in the counters where it stops or starts batches.
    pub(crate) fn refresh_multidata(&mut self, index: u32) {
        match self.ask_for_multidata(index) {
            Some((None, Some(_))) => self.counters.multidata_flows_stopped += 1,
            Some((Some(_), None)) => self.counters.multidata_flows_started += 1,
            _ => {}
        }
    }

    /// Asks for a connection, and says why it could not leave in batches before, and cannot now. One that is new never
    /// did.
    pub(crate) fn ask_for_multidata(
        &mut self,
        index: u32,
    ) -> Option<(Option<MultidataRefusal>, Option<MultidataRefusal>)> {
        let socket = self.sockets.tcp_ref(index)?;
        let (source, destination) = socket.path.network.addresses();
        let ways = self.network.other_ways(socket.path.interface, source, destination);
        let socket = self.sockets.tcp(index)?;
        // Another way might be by a gateway.
        let is_multi_routed = !ways.is_empty() && !socket.path.dont_route;
        socket.path.is_multi_routed = is_multi_routed;
        socket.connection.set_path_duplicates(is_multi_routed);
        let socket = self.sockets.tcp_ref(index)?;
        let refusal = self.network.multidata_for(socket);
        let socket = self.sockets.tcp(index)?;
        let before = core::mem::replace(&mut socket.path.refusal, refusal);
        let (id, is_ipv4) = (socket.path.interface, socket.flow().local.is_ipv4());
        let len = match refusal {
            None => self.network.interfaces[id].super_frame_len(is_ipv4),
            Some(_) => 0,
        };
        if let Some(socket) = self.sockets.tcp(index) {
            socket.connection.set_super_frame_len(len);
        }
        Some((before, refusal))
    }
}

impl NetworkLayer {
    pub(crate) fn negotiate(&mut self, id: InterfaceId) {
        let outbound = self.multidata_outbound;
        let Some(interface) = self.interfaces.get_mut(id) else { return };
        self.counters.transmit_negotiations += 1;
        if interface.negotiate(outbound) && !interface.is_loopback {
            let status = Box::new(interface.transmit_status());
            self.interface_events.push(InterfaceEvent::Negotiated(id, status));
        }
        // Connections ask again with their next batch.
        self.path_mtus.invalidate();
    }

    fn tell_failed(&mut self, id: InterfaceId, taken: Option<usize>, error: &DeviceError) {
        self.counters.device_failures += 1;
        let event = InterfaceEvent::DeviceFailed(id, taken, error.message.clone());
        self.interface_events.push(event);
        if let Some(interface) = self.interfaces.get_mut(id) {
            interface.has_failed = true;
        }
    }

    /// As [`Shard::has_interface`].
    pub(crate) fn has_interface(&self, id: InterfaceId) -> bool {
        self.interfaces.get(id).is_some_and(|interface| !interface.is_removed)
    }

    /// Counts how a device met a batch of `of` packets, and tells of it.
    pub(crate) fn note_transmitted(&mut self, id: InterfaceId, of: usize, outcome: &Transmitted) {
        let taken = outcome.taken;
        let counters = &mut self.counters;
        let is_part = (1..of).contains(&taken);
        counters.device_took_part += u64::from(is_part);
        counters.device_took_nothing += u64::from(of > 0 && taken == 0);
        match &outcome.stopped {
            None => {}
            Some(Stop::Full) => counters.device_full += 1,
            Some(Stop::Refused) => counters.device_refused += 1,
            Some(Stop::Revoked) => counters.device_revoked += 1,
            Some(Stop::Failed(error)) => return self.tell_failed(id, Some(taken), error),
        }
        let Some(interface) = self.interfaces.get_mut(id) else { return };
        interface.has_failed &= taken == 0;
        let told = &mut interface.agreement.told;
        if outcome.stopped == Some(Stop::Refused) && !core::mem::replace(&mut told.refused, true) {
            self.interface_events.push(InterfaceEvent::PacketRefused(id));
        }
        if is_part && !core::mem::replace(&mut told.part, true) {
            self.interface_events.push(InterfaceEvent::TookPart(id, taken, of));
        }
    }

    /// Counts what of a batch was copied for the device, and tells of it.
    pub(crate) fn note_copied(&mut self, id: InterfaceId, bytes: usize) {
        self.counters.transmit_copied_bytes += bytes as u64;
        let Some(interface) = self.interfaces.get_mut(id) else { return };
        if bytes > 0 && !core::mem::replace(&mut interface.agreement.told.copied, true) {
            self.interface_events.push(InterfaceEvent::BlocksCopied(id, bytes));
        }
    }

    /// Whether a connection may leave in batches now: the answer of the network layer at bind and
    /// connect, asked again when routes, interfaces, switches or filters change (seed 000, 4.4.2).
    fn multidata_for(&self, socket: &TcpSocket) -> Option<MultidataRefusal> {
        let id = socket.path.interface;
        let refusal = self.interfaces[id].agreement.refusal;
        if refusal.is_some() {
            return refusal;
        }
        if socket.path.single_packets {
            return Some(MultidataRefusal::FlowPolicy);
        }
        if socket.path.dont_route {
            return Some(MultidataRefusal::SlowPathOption);
        }
        let protocol = wire::protocol::TCP;
        self.flow_refusal(id, protocol, &socket.path.network, socket.path.is_multi_routed, || {
            let Flow { local, remote } = socket.flow();
            Some(FilterFlow { interface: id, protocol, local, remote })
        })
    }

    /// Why packets with this header leave interface `id` by themselves, where others leave in batches: what
    /// concerns connections and messages alike. The filter is asked last, and the flow found for it alone.
    pub(crate) fn flow_refusal(
        &self,
        id: InterfaceId,
        protocol: u8,
        network: &Network,
        is_multi_routed: bool,
        flow: impl FnOnce() -> Option<FilterFlow>,
    ) -> Option<MultidataRefusal> {
        if !network.options().is_empty() {
            return Some(MultidataRefusal::IpOptions);
        }
        if is_multi_routed {
            return Some(MultidataRefusal::MultiRouted);
        }
        if !self.interfaces[id].agreement.protocols.has(protocol) {
            return Some(MultidataRefusal::Protocol);
        }
        match self.filter.as_ref()?.handling(&flow()?) {
            Handling::Batches => None,
            Handling::SinglePackets => Some(MultidataRefusal::FilterPolicy),
            Handling::Marking => Some(MultidataRefusal::QosMarking),
        }
    }
}
