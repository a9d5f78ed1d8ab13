//! Packets that are not a connection's: datagrams, ICMP, resets, neighbour messages.
//!
//! A connection can build its segments afresh at any time, so it queues none. What cannot be
//! rebuilt waits here as a small value, bounded, until a device has taken it.

use batch::{Attributes, Chunk, Multidata};
use core::net::IpAddr;
use ip::{Echo, HeaderTemplate, IcmpErrorKind};
use std::collections::VecDeque;
use tcp::ResetReply;
use wire::{ArpRepr, HardwareAddress, NdpRepr};

/// What lies between the transport and the link header.
#[derive(Clone, Debug)]
pub(crate) enum Network {
    /// An IP header made from this template.
    Ip(HeaderTemplate),
    /// Nothing: the "transport header" is an ARP message.
    Arp,
}

/// Where a packet goes once its network header is on.
#[derive(Clone, Copy, Debug)]
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
    EchoReply { to: IpAddr, request: Echo, data: Chunk },
    IcmpError { kind: IcmpErrorKind, offending: Chunk },
    Reset { local_port: u16, remote_port: u16, reply: ResetReply },
    Datagram { source_port: u16, destination_port: u16, payload: Chunk },
}

impl Message {
    /// Appends the message to the batch as a packet without network header. Says whether there was
    /// room; where not, the batch has not changed.
    pub(crate) fn push(&self, out: &mut Multidata, attributes: Attributes) -> bool {
        match self {
            Self::Arp(message) => link::push_arp(out, message),
            Self::Ndp(message) => link::push_ndp(out, message),
            Self::EchoReply { to, request, data } => {
                ip::push_echo_reply(out, *to, request, data, attributes)
            }
            Self::IcmpError { kind, offending } => {
                ip::push_error(out, *kind, offending, attributes)
            }
            Self::Reset { local_port, remote_port, reply } => {
                tcp::push_reset(out, attributes, *local_port, *remote_port, *reply)
            }
            Self::Datagram { source_port, destination_port, payload } => {
                udp::push_datagram(out, *source_port, *destination_port, payload, attributes)
            }
        }
    }
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

/// The bounded queue of such packets of one interface.
#[derive(Debug)]
pub(crate) struct Outbox {
    queue: VecDeque<Outgoing>,
    packets_max: usize,
}

impl Outbox {
    pub(crate) fn new(packets_max: usize) -> Self {
        Self { queue: VecDeque::new(), packets_max }
    }

    /// Queues a packet and says whether there was room; where not, it is dropped.
    #[must_use]
    pub(crate) fn push(&mut self, packet: Outgoing) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.queue.push_back(packet);
        }
        has_room
    }

    /// Whether another packet may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() < self.packets_max
    }

    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        self.queue.pop_front()
    }

    /// Returns packets to the front of the queue, in their order; they were counted before.
    pub(crate) fn put_back(&mut self, packets: impl DoubleEndedIterator<Item = Outgoing>) {
        for packet in packets.rev() {
            self.queue.push_front(packet);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
