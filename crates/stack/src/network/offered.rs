//! What of the outbox the device is looking at.
//!
//! A message is one packet, or where it is longer than its path takes, as many fragments as the
//! batch had room for. Nothing of it is gone before a device has taken it: what was not goes back to
//! the front of the outbox, a datagram in fragments with what is left of it.

use crate::network::interface::Interface;
use crate::network::paths::mtu_to;
use crate::outbox::{Message, Network, Outgoing};
use crate::sockets::Keys;
use batch::Multidata;
use ip::{Identifications, PathMtus, RouteTable, Trust};
use std::collections::VecDeque;

/// How a message goes over a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// In one packet, or it was split before.
    Whole,
    /// In fragments.
    Split,
    /// Not at all: it is too long and must not be fragmented.
    TooLong,
}

/// A message in the batch.
#[derive(Debug)]
struct Offer {
    packet: Outgoing,
    /// Packets of it in the batch that were not taken so far.
    built: usize,
    mtu_bytes: usize,
}

/// The messages in the batch, in its order.
#[derive(Debug, Default)]
pub(crate) struct Offered {
    offers: VecDeque<Offer>,
}

impl Offered {
    pub(crate) fn len(&self) -> usize {
        self.offers.len()
    }

    pub(crate) fn push(&mut self, packet: Outgoing, built: usize, mtu_bytes: usize) {
        self.offers.push_back(Offer { packet, built, mtu_bytes });
    }

    /// The device took `count` more packets.
    pub(crate) fn on_taken(&mut self, mut count: usize) {
        while count > 0
            && let Some(offer) = self.offers.front_mut()
        {
            let taken = count.min(offer.built);
            (offer.built, count) = (offer.built - taken, count - taken);
            if !offer.packet.on_sent(offer.mtu_bytes, taken) {
                // There is more of it, and nothing behind it in the batch.
                break;
            }
            self.offers.pop_front();
        }
    }

    /// What was not taken.
    pub(crate) fn drain(&mut self) -> impl DoubleEndedIterator<Item = Outgoing> + '_ {
        self.offers.drain(..).map(|offer| offer.packet)
    }
}

impl Outgoing {
    /// Appends the message to the batch, where it is too long for `mtu_bytes` as fragments with
    /// their network headers, and says how many packets that are: none where there is no room now.
    pub(crate) fn push(&self, out: &mut Multidata, mtu_bytes: usize) -> usize {
        let (Message::Fragments(rest), Network::Ip(template)) = (&self.message, &self.network)
        else {
            return usize::from(self.message.push(out));
        };
        // A batch ends between datagrams, not within one, unless none could hold it.
        let count = rest.packet_count(template, mtu_bytes);
        if count > out.room_packets() && count <= out.limits().packets && !out.is_empty() {
            return 0;
        }
        rest.push(out, template, mtu_bytes)
    }

    /// Whether `count` packets are less than all of it.
    pub(crate) fn is_cut_short(&self, mtu_bytes: usize, count: usize) -> bool {
        match (&self.message, &self.network) {
            (Message::Fragments(rest), Network::Ip(template)) => {
                count < rest.packet_count(template, mtu_bytes)
            }
            _ => false,
        }
    }

    /// The longest packet that the path takes, for what may be fragmented; else what the interface
    /// does.
    pub(crate) fn mtu_bytes(
        &self,
        interface: &Interface,
        routes: &RouteTable,
        path_mtus: &PathMtus<Keys>,
    ) -> usize {
        match (&self.network, &self.message) {
            (
                Network::Ip(template),
                Message::Datagram { .. }
                | Message::EchoReply { .. }
                | Message::Raw { .. }
                | Message::Fragments(_),
            ) => mtu_to(interface, routes, path_mtus, template.destination(), Trust::Unverified),
            _ => interface.mtu_bytes(self.network.is_ipv4()),
        }
    }

    /// Makes fragments of a message that is too long for its path, or that needs an identification
    /// of its own because routers may fragment it.
    pub(crate) fn fit(
        &mut self,
        link_mtu_bytes: usize,
        path_mtu_bytes: usize,
        ids: &mut Identifications<Keys>,
    ) -> Fit {
        let Network::Ip(template) = &self.network else { return Fit::Whole };
        let Some((len, may_fragment)) = self.message.fragmentable() else { return Fit::Whole };
        let len = template.header_len() + len;
        if !may_fragment {
            return if len > link_mtu_bytes { Fit::TooLong } else { Fit::Whole };
        }
        let is_long = len > path_mtu_bytes;
        if !is_long && template.dont_fragment() {
            return Fit::Whole;
        }
        let (source, destination) = (template.source(), template.destination());
        let identification = ids.next(source, destination, template.protocol());
        if let Some(fragments) = self.message.to_fragments(template, identification) {
            self.message = fragments;
        }
        if is_long { Fit::Split } else { Fit::Whole }
    }

    /// Whether the network headers are on already when [`Outgoing::push`] is done.
    pub(crate) fn is_stamped(&self) -> bool {
        matches!(self.message, Message::Fragments(_))
    }

    /// A device took `count` packets of it. Says whether nothing is left.
    fn on_sent(&mut self, mtu_bytes: usize, count: usize) -> bool {
        match (&mut self.message, &self.network) {
            (Message::Fragments(rest), Network::Ip(template)) => {
                rest.on_sent(template, mtu_bytes, count)
            }
            _ => true,
        }
    }
}
