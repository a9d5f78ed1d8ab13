//! IPv6 flow labels (RFC 6437, 3): one for each flow of TCP or UDP, which tells routers that share traffic out among paths
//! what belongs together, without a look behind the IPv6 header (of fragments and what is encrypted there is none).
//!
//! A label is a hash of addresses and ports under a key of the host: nothing is kept, every packet of a flow has the same
//! one, and who sees a label learns nothing of others. What is of no such flow (ICMPv6, raw packets) has none.

use crate::outbox::Network;
use crate::sockets::Keys;
use core::hash::{BuildHasher, Hasher};
use core::net::IpAddr;

/// The values that 20 bits have, without that of "no label".
const LABELS: u64 = (1 << 20) - 1;

/// Labels flows.
#[derive(Debug)]
pub(crate) struct FlowLabels {
    keys: Keys,
}

impl FlowLabels {
    /// With keys that follow from those of the host, whose tables show nothing of labels then.
    pub(crate) fn new(keys: Keys) -> Self {
        let derived = |number| keys.hash_one(("flow labels", number));
        Self { keys: Keys(derived(1), derived(2)) }
    }

    /// Labels the header of a packet that goes from one port to another, where it is one of IPv6.
    pub(crate) fn label(&self, network: &mut Network, source_port: u16, destination_port: u16) {
        let Network::Ip(template) = network else { return };
        let (IpAddr::V6(source), IpAddr::V6(destination)) =
            (template.source(), template.destination())
        else {
            return;
        };
        // In one piece, because each datagram has it made.
        let mut ends = [0; 40];
        ends[..16].copy_from_slice(&source.octets());
        ends[16..32].copy_from_slice(&destination.octets());
        ends[32..34].copy_from_slice(&source_port.to_be_bytes());
        ends[34..36].copy_from_slice(&destination_port.to_be_bytes());
        ends[36] = template.protocol();
        let mut hasher = self.keys.build_hasher();
        hasher.write(&ends);
        template.set_flow_label((hasher.finish() % LABELS) as u32 + 1);
    }
}
