//! IPv6 flow labels (RFC 6437, 3): one for each flow of TCP or UDP, which tells routers that share traffic out among paths
//! what belongs together, without a look behind the IPv6 header (of fragments and what is encrypted there is none).
//!
//! A label is a hash of addresses and ports under a key of the host: nothing is kept, every packet of a flow has the same
//! one, and who sees a label learns nothing of others. What is of no such flow (ICMPv6, raw packets) has none.

use crate::outbox::Network;
use crate::sockets::Keys;
use core::hash::BuildHasher;

/// The values that 20 bits have, without that of "no label".
const LABELS: u64 = (1 << 20) - 1;

/// Labels flows.
#[derive(Debug)]
pub(crate) struct FlowLabels {
    keys: Keys,
}

impl FlowLabels {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { keys }
    }

    /// Labels the header of a packet that goes from one port to another, where it is one of IPv6.
    pub(crate) fn label(&self, network: &mut Network, source_port: u16, destination_port: u16) {
        let Network::Ip(template) = network else { return };
        if template.source().is_ipv4() {
            return;
        }
        let ends = (template.source(), source_port, template.destination(), destination_port);
        let hash = self.keys.hash_one(("flow label", template.protocol(), ends));
        template.set_flow_label((hash % LABELS) as u32 + 1);
    }
}
