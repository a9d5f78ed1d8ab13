//! The filter and the outbox: messages of one flow that leave one behind the other are looked at together.
//!
//! A datagram or an ICMP message waits as a value of its own, but a call of
//! [`udp_send_many`](crate::Shard::udp_send_many) is a run of them to few peers. A filter that takes batches gets as many of one
//! flow as come behind each other in one call. What it drops is gone, and what lies behind that is built
//! afresh, as with connections. A filter that marks one of several gets them again, one by one. Fragments are always
//! looked at one by one: they have no ports, and each may be marked.

use crate::network::NetworkLayer;
use crate::network::filter::FilterFlow;
use crate::network::interfaces::InterfaceId;
use crate::outbox::{Message, Network, Outgoing};
use batch::Multidata;
use core::net::SocketAddr;
use time::Instant;

/// A message in the batch.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) packet: Outgoing,
    /// Packets that it became.
    pub(crate) count: usize,
    pub(crate) mtu_bytes: usize,
}

/// The last messages of the batch, which the filter has not seen: one, or several of one flow.
#[derive(Debug, Default)]
pub(crate) struct Unscreened {
    messages: Vec<Built>,
    flow: Option<FilterFlow>,
    /// So many messages to come are looked at one by one, because the filter marks.
    one_by_one: usize,
}

impl Unscreened {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether a message of this flow, if it is of one, may be looked at together with those that are here.
    pub(crate) fn takes(&self, flow: Option<&FilterFlow>) -> bool {
        let is_one_flow = flow.is_some() && flow == self.flow.as_ref();
        self.messages.is_empty() || (is_one_flow && self.one_by_one == 0)
    }

    pub(crate) fn push(&mut self, message: Built, flow: Option<FilterFlow>) {
        self.messages.push(message);
        self.flow = flow;
    }
}

impl NetworkLayer {
    /// The flow of a message as filters are asked about it; ARP has none.
    pub(crate) fn filter_flow(&self, id: InterfaceId, packet: &Outgoing) -> Option<FilterFlow> {
        let Network::Ip(template) = &packet.network else { return None };
        let (source_port, destination_port) = packet.message.ports();
        let protocol = match template.protocol() {
            // That header has the router alert of MLD; nothing else that leaves has one.
            wire::protocol::HOP_BY_HOP => wire::protocol::ICMPV6,
            protocol => protocol,
        };
        Some(FilterFlow {
            interface: id,
            protocol,
            local: SocketAddr::new(template.source(), source_port),
            remote: SocketAddr::new(template.destination(), destination_port),
        })
    }

    /// The flow with whose messages this one may be looked at, where there is a filter.
    pub(crate) fn screened_with(&self, id: InterfaceId, packet: &Outgoing) -> Option<FilterFlow> {
        let is_one_packet = !matches!(packet.message, Message::Fragments(_));
        (self.filter.is_some() && is_one_packet).then(|| self.filter_flow(id, packet))?
    }

    /// Has the filter look at the last messages of the batch, and puts back into the outbox what is to be
    /// built afresh. Says whether the batch is shorter now.
    pub(crate) fn screen_waiting(
        &mut self,
        now: Instant,
        id: InterfaceId,
        out: &mut Multidata,
        unscreened: &mut Unscreened,
    ) -> bool {
        let packets: usize = unscreened.messages.iter().map(|message| message.count).sum();
        if unscreened.len() < 2 {
            unscreened.one_by_one = unscreened.one_by_one.saturating_sub(unscreened.len());
            let stays = self.admit_small(now, id, out, packets);
            let messages = unscreened.messages.drain(..).filter(|_| stays);
            let offered = &mut self.interfaces[id].offered;
            messages.for_each(|it| offered.push(it.packet, it.count, it.mtu_bytes));
            return !stays;
        }
        let first = out.len() - packets;
        let screened = self.screen(now, id, out, first..first + packets);
        self.drops.add_many(self.filtered_for(0), screened.dropped as u64);
        let interface = &mut self.interfaces[id];
        // Each of several messages is one packet.
        let mut messages = unscreened.messages.drain(..);
        for it in messages.by_ref().take(screened.passed) {
            interface.offered.push(it.packet, it.count, it.mtu_bytes);
        }
        messages.by_ref().take(screened.dropped).for_each(drop);
        let again: Vec<Outgoing> = messages.map(|it| it.packet).collect();
        unscreened.one_by_one = if screened.wants_single { again.len() } else { 0 };
        interface.outbox.put_back(again.into_iter());
        screened.passed < packets
    }
}
