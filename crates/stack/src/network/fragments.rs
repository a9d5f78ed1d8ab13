//! Fragments on their way in, and packets that cannot be read.
//!
//! Whole packets never come here. A fragment waits in the shard's [`ip::Reassembly`]; the datagram
//! that its last fragment completes takes the way of every other packet, as a batch of one.

use crate::ingress::Origin;
use crate::network::NetworkLayer;
use crate::network::interfaces::InterfaceId;
use crate::shard::Shard;
use batch::ReceiveBatch;
use counters::DropReason;
use ip::{Arrival, IcmpErrorKind, ReceivedFragment};
use time::Instant;

impl Shard {
    /// A fragment, `network` bytes into frame `index`.
    pub(crate) fn on_fragment(
        &mut self,
        now: Instant,
        origin: Origin,
        batch: &ReceiveBatch,
        index: usize,
        network: usize,
    ) -> Result<(), DropReason> {
        self.counters.fragments_received += 1;
        let bytes = batch.bytes(index).get(network..).unwrap_or(&[]);
        let fragment = match ip::parse_fragment(bytes) {
            Ok(fragment) => fragment,
            Err(refused) => {
                if let Some(kind) = refused.answer {
                    self.network.answer_unreadable(now, origin, batch, index, network, kind);
                }
                return Err(refused.reason);
            }
        };
        // Of neighbour discovery nothing comes in fragments (RFC 6980, 5).
        self.network.check_addresses(&origin, &fragment.info, &[])?;
        let end = network + fragment.info.total_len;
        let received = ReceivedFragment {
            packet: batch.chunk(index, network..end).ok_or(DropReason::Truncated)?,
            sparse: batch.is_sparse(index),
            interface: origin.interface.number(),
            arrival: self.network.arrival(&origin, &fragment.info),
        };
        let (pool, drops) = (&self.pool, &mut self.drops);
        match self.network.reassembly.on_fragment(now, &fragment, received, pool, drops)? {
            Some(packet) => {
                self.counters.datagrams_reassembled += 1;
                self.on_put_together(now, origin, packet)
            }
            None => Ok(()),
        }
    }
}

impl NetworkLayer {
    /// Gives up the datagrams whose fragments did not come in time, and tells the senders of those
    /// whose first fragment did (RFC 1122, 3.3.2; RFC 8200, 4.5).
    pub(crate) fn expire_fragments(&mut self, now: Instant) {
        while let Some(expired) = self.reassembly.poll_expired(now, &mut self.drops) {
            let Some((packet, arrival)) = expired.first else { continue };
            let Ok(info) = ip::parse_fixed(packet.bytes()) else { continue };
            let Arrival { link_multicast, .. } = arrival;
            let interface = InterfaceId::numbered(expired.interface);
            let origin = Origin { interface, station: None, link_multicast, is_home: false };
            self.send_error_about(
                now,
                &origin,
                &info,
                packet,
                IcmpErrorKind::ReassemblyTimeExceeded,
            );
        }
    }

    /// A packet that IP cannot read: its sender is told what was not understood, where IPv6 asks
    /// for it.
    pub(crate) fn on_unreadable(
        &mut self,
        now: Instant,
        origin: Origin,
        batch: &ReceiveBatch,
        index: usize,
        network: usize,
    ) {
        let bytes = batch.bytes(index).get(network..).unwrap_or(&[]);
        if let Some(kind) = ip::parameter_problem(bytes) {
            self.answer_unreadable(now, origin, batch, index, network, kind);
        }
    }

    fn answer_unreadable(
        &mut self,
        now: Instant,
        origin: Origin,
        batch: &ReceiveBatch,
        index: usize,
        network: usize,
        kind: IcmpErrorKind,
    ) {
        let bytes = batch.bytes(index).get(network..).unwrap_or(&[]);
        let Ok(info) = ip::parse_fixed(bytes) else { return };
        if self.check_addresses(&origin, &info, &[]).is_err() {
            return;
        }
        if let Some(packet) = batch.chunk(index, network..network + info.total_len) {
            self.send_error_about(now, &origin, &info, packet, kind);
        }
    }
}
