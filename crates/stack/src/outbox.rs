//! Packets that are not a connection's: datagrams, ICMP, raw IP, resets, neighbour messages.
//!
//! A connection can build its segments afresh at any time, so it queues none. What cannot be
//! rebuilt waits here as a small value, bounded, until a device has taken it.

use crate::sockets::marks::PacketMarks;
use batch::{Attributes, Chunk, Chunks, Multidata};
use core::net::{IpAddr, Ipv4Addr};
use ip::{Echo, FRAGMENTED_HEADER_LEN, Fragmenting, HeaderTemplate, IcmpErrorKind};
use link::Waiting;
use std::collections::VecDeque;
use std::sync::Arc;
use wire::{
    ArpRepr, HardwareAddress, Icmpv4Repr, Icmpv6Repr, Ipv4Options, NdpRepr, TcpHeader, UdpRepr,
};

/// What lies between the transport and the link header.
#[derive(Clone, Debug)]
pub(crate) enum Network {
    /// An IP header made from this template.
    Ip(HeaderTemplate),
    /// Nothing: the "transport header" is an ARP message.
    Arp,
}

impl Network {
    /// Whether the packet is one of IPv4's, ARP included.
    pub(crate) fn is_ipv4(&self) -> bool {
        match self {
            Self::Ip(template) => template.source().is_ipv4(),
            Self::Arp => true,
        }
    }

    /// Source and destination; an ARP message has neither.
    pub(crate) fn addresses(&self) -> (IpAddr, IpAddr) {
        match self {
            Self::Ip(template) => (template.source(), template.destination()),
            Self::Arp => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        }
    }

    /// The options of an IPv4 header, as they lie.
    pub(crate) fn options(&self) -> &[u8] {
        match self {
            Self::Ip(template) => template.options(),
            Self::Arp => &[],
        }
    }

    /// Gives an IPv4 header options, or none.
    pub(crate) fn set_options(&mut self, options: Option<Arc<Ipv4Options>>) {
        if let Self::Ip(template) = self {
            template.set_options(options);
        }
    }

    /// Whether routers may fragment what is too long for them, where that can be said.
    pub(crate) fn set_may_fragment(&mut self, may_fragment: bool) {
        if let Self::Ip(template) = self {
            template.set_dont_fragment(!may_fragment);
        }
    }

    /// Gives the header a traffic class and a hop limit, `usual` where none is asked for.
    pub(crate) fn set_marks(&mut self, marks: PacketMarks, usual: u8) {
        if let Self::Ip(template) = self {
            marks.write(template, usual);
        }
    }
}

/// Where a packet goes once its network header is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHop {
    /// To this neighbour, whose hardware address must be found first.
    Neighbour(IpAddr),
    /// To this station (the sender of what is answered, or a group of stations).
    Station(HardwareAddress),
}

/// What a packet says, as a value: no memory of its own but what it shares.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Arp(ArpRepr),
    Ndp(NdpRepr),
    EchoReply {
        to: IpAddr,
        request: Echo,
        data: Chunk,
    },
    IcmpError {
        kind: IcmpErrorKind,
        offending: Chunk,
    },
    /// A TCP segment of no connection: a reset, a SYN-ACK, an ACK in TIME-WAIT.
    Segment(TcpHeader),
    Datagram {
        source_port: u16,
        destination_port: u16,
        payload: Chunks,
        may_fragment: bool,
    },
    /// What lies behind the IP header, whole, any checksum included: its first bytes, as many as
    /// there are of 8, and the rest.
    Raw {
        header: [u8; FRAGMENTED_HEADER_LEN],
        header_len: u8,
        payload: Chunks,
        may_fragment: bool,
    },
    /// A segment of a connection that leaves by another way as well: its header, of this length, and its
    /// payload, the checksum complete.
    Copy {
        segment: Chunk,
        header_len: usize,
        ecn: u8,
    },
    /// A datagram, an echo reply or a raw packet in fragments, or what is left of it.
    Fragments(Fragmenting),
}

impl Message {
    /// Appends the message to the batch as a packet without network header. Says whether there was
    /// room; where not, the batch has not changed.
    pub(crate) fn push(&self, out: &mut Multidata) -> bool {
        match self {
            Self::Arp(message) => link::push_arp(out, message),
            Self::Ndp(message) => link::push_ndp(out, message),
            Self::EchoReply { to, request, data } => ip::push_echo_reply(out, *to, request, data),
            Self::IcmpError { kind, offending } => ip::push_error(out, *kind, offending),
            Self::Segment(header) => tcp::push_control(out, header),
            Self::Datagram { source_port, destination_port, payload, .. } => {
                udp::push_datagram(out, *source_port, *destination_port, payload)
            }
            Self::Raw { header, header_len, payload, .. } => {
                let header = &header[..usize::from(*header_len)];
                push_complete(out, header, payload, 0)
            }
            Self::Copy { segment, header_len, ecn } => push_copy(out, segment, *header_len, *ecn),
            // They have network headers of their own: `Outgoing::push` knows.
            Self::Fragments(_) => false,
        }
    }

    /// Bytes of payload that it holds.
    fn payload_len(&self) -> usize {
        match self {
            Self::Arp(_) | Self::Ndp(_) | Self::Segment(_) => 0,
            Self::EchoReply { data, .. } => data.len(),
            Self::IcmpError { offending, .. } => offending.len(),
            Self::Datagram { payload, .. } | Self::Raw { payload, .. } => payload.len(),
            Self::Copy { segment, .. } => segment.len(),
            Self::Fragments(rest) => rest.held_bytes(),
        }
    }

    /// Whether it is what a DHCP client says to a server.
    pub(crate) fn is_to_dhcp_server(&self) -> bool {
        self.ports() == (dhcp::CLIENT_PORT, dhcp::SERVER_PORT)
    }

    /// Source and destination port, zero where it has none.
    pub(crate) fn ports(&self) -> (u16, u16) {
        match self {
            Self::Segment(header) => (header.source_port, header.destination_port),
            Self::Datagram { source_port, destination_port, .. } => {
                (*source_port, *destination_port)
            }
            Self::Copy { segment, .. } => match *segment.bytes() {
                [a, b, c, d, ..] => (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])),
                _ => (0, 0),
            },
            _ => (0, 0),
        }
    }

    /// Length with the transport header in bytes of what can be fragmented, and whether it may be.
    pub(crate) fn fragmentable(&self) -> Option<(usize, bool)> {
        match self {
            Self::Datagram { payload, may_fragment, .. } => {
                Some((FRAGMENTED_HEADER_LEN + payload.len(), *may_fragment))
            }
            Self::EchoReply { data, .. } => Some((FRAGMENTED_HEADER_LEN + data.len(), true)),
            // What is no longer than a fragment may be fits every path.
            Self::Raw { header, header_len, payload, may_fragment }
                if header.len() == usize::from(*header_len) =>
            {
                Some((header.len() + payload.len(), *may_fragment))
            }
            _ => None,
        }
    }

    /// The same message in fragments, where it may be fragmented.
    pub(crate) fn to_fragments(
        &self,
        template: &HeaderTemplate,
        identification: u32,
    ) -> Option<Self> {
        let mut header = [0; FRAGMENTED_HEADER_LEN];
        let (checksum_at, payload): (_, Chunks) = match self {
            Self::Datagram { source_port, destination_port, payload, .. } => {
                let (source_port, destination_port) = (*source_port, *destination_port);
                let payload_len = payload.len();
                UdpRepr { source_port, destination_port, payload_len }.emit(&mut header);
                (Some(UdpRepr::CHECKSUM_OFFSET.into()), payload.clone())
            }
            Self::EchoReply { to, request, data } => {
                let (identifier, sequence) = (request.identifier, request.sequence);
                match to {
                    IpAddr::V4(_) => {
                        Icmpv4Repr::EchoReply { identifier, sequence }.emit(&mut header);
                    }
                    IpAddr::V6(_) => {
                        Icmpv6Repr::EchoReply { identifier, sequence }.emit(&mut header);
                    }
                }
                (Some(Icmpv4Repr::CHECKSUM_OFFSET.into()), data.clone().into())
            }
            Self::Raw { header: theirs, payload, .. } => {
                header = *theirs;
                (None, payload.clone())
            }
            _ => return None,
        };
        let rest = Fragmenting::new(template, header, checksum_at, payload, identification);
        Some(Self::Fragments(rest))
    }
}

/// Appends a segment whose checksum is complete. Says whether there was room.
fn push_copy(out: &mut Multidata, segment: &Chunk, header_len: usize, ecn: u8) -> bool {
    let Some(header) = segment.bytes().get(..header_len) else { return false };
    let mut payload = segment.clone();
    payload.trim_front(header_len);
    push_complete(out, header, &payload.into(), ecn)
}

/// Appends a packet with whose checksum there is nothing to be done. Says whether there was room.
fn push_complete(out: &mut Multidata, header: &[u8], payload: &Chunks, ecn: u8) -> bool {
    let index = out.len();
    let attributes = Attributes { ecn, ..Attributes::default() };
    let Some(place) = out.push_packet(header.len(), attributes) else { return false };
    place.copy_from_slice(header);
    let has_room = out.append_chunks(payload, 0..payload.len());
    if !has_room {
        out.truncate(index);
    }
    has_room
}

/// A packet that waits to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    /// The network header to be.
    pub(crate) network: Network,
    /// Where it goes.
    pub(crate) next_hop: NextHop,
    /// What it says.
    pub(crate) message: Message,
}

impl Waiting for Outgoing {
    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.message.payload_len()
    }
}

/// Segments of no connection that may wait for the device.
const ANSWERS_MAX: usize = 1_024;

/// Messages of ARP and neighbour discovery that may wait where there is no room for others: whoever fills the queue
/// with datagrams must not keep the host from asking, answering and looking whether an address is taken.
const LINK_MESSAGES_MAX: usize = 64;

/// The bounded queues of such packets of one interface: what this host says of itself, and what
/// anybody can call forth. They take turns, so that a flood of the latter delays none of the former.
#[derive(Debug)]
pub(crate) struct Outbox {
    queue: VecDeque<Outgoing>,
    packets_max: usize,
    answers: VecDeque<Outgoing>,
    /// Whose turn it is.
    is_answers_turn: bool,
}

impl Outbox {
    pub(crate) fn new(packets_max: usize) -> Self {
        let (queue, answers) = (VecDeque::new(), VecDeque::new());
        Self { queue, packets_max, answers, is_answers_turn: false }
    }

    pub(crate) fn set_packets_max(&mut self, packets_max: usize) {
        self.packets_max = packets_max;
    }

    /// Queues a packet and says whether there was room; where not, it is dropped.
    #[must_use]
    pub(crate) fn push(&mut self, packet: Outgoing) -> bool {
        let is_of_link = matches!(packet.message, Message::Arp(_) | Message::Ndp(_));
        let more = if is_of_link { LINK_MESSAGES_MAX } else { 0 };
        let has_room = self.queue.len() < self.packets_max + more;
        if has_room {
            self.queue.push_back(packet);
        }
        has_room
    }

    /// As [`Outbox::push`], for a segment that answers one without a connection.
    #[must_use]
    pub(crate) fn push_answer(&mut self, packet: Outgoing) -> bool {
        let has_room = self.has_room_for_answers();
        if has_room {
            self.answers.push_back(packet);
        }
        has_room
    }

    /// Whether another packet may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() < self.packets_max
    }

    /// Whether a question about a neighbour waits for the device.
    pub(crate) fn has_question(&self) -> bool {
        self.queue.iter().any(|packet| match &packet.message {
            Message::Arp(message) => message.operation == wire::ArpOperation::Request,
            Message::Ndp(message) => matches!(message, NdpRepr::NeighbourSolicitation { .. }),
            _ => false,
        })
    }

    /// Whether another answer may be queued.
    pub(crate) fn has_room_for_answers(&self) -> bool {
        self.answers.len() < ANSWERS_MAX
    }

    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        self.is_answers_turn = !self.is_answers_turn;
        match self.is_answers_turn {
            true => self.answers.pop_front().or_else(|| self.queue.pop_front()),
            false => self.queue.pop_front().or_else(|| self.answers.pop_front()),
        }
    }

    /// Returns packets to the fronts of their queues, in their order; they were counted before.
    /// An answer stays an answer: a device that takes nothing would else let a flood of them fill
    /// the other queue, beyond its bound.
    pub(crate) fn put_back(&mut self, packets: impl DoubleEndedIterator<Item = Outgoing>) {
        for packet in packets.rev() {
            match packet.message {
                Message::Segment(_) => self.answers.push_front(packet),
                _ => self.queue.push_front(packet),
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.answers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ArpOperation;

    fn packet(message: Message) -> Outgoing {
        let next_hop = NextHop::Station(HardwareAddress::BROADCAST);
        Outgoing { network: Network::Arp, next_hop, message }
    }

    fn own() -> Outgoing {
        packet(Message::Arp(ArpRepr {
            operation: ArpOperation::Request,
            sender_hardware: HardwareAddress::ZERO,
            sender_protocol: Ipv4Addr::UNSPECIFIED,
            target_hardware: HardwareAddress::ZERO,
            target_protocol: Ipv4Addr::UNSPECIFIED,
        }))
    }

    /// A device that has no room is offered a packet again and again.
    #[test]
    fn what_a_full_device_hands_back_takes_no_room_of_others() {
        let mut outbox = Outbox::new(4);
        for _ in 0..10_000 {
            while outbox.push_answer(packet(Message::Segment(TcpHeader::default()))) {}
            let offered: Vec<_> = core::iter::from_fn(|| outbox.pop()).take(3).collect();
            outbox.put_back(offered.into_iter());
        }
        assert_eq!((outbox.queue.len(), outbox.answers.len()), (0, ANSWERS_MAX));
        assert!(outbox.push(own()));
        let is_own = |packet: Outgoing| matches!(packet.message, Message::Arp(_));
        assert!(outbox.pop().is_some_and(is_own) || outbox.pop().is_some_and(is_own));
    }
}
