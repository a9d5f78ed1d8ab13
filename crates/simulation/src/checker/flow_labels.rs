//! The rules of IPv6 flow labels (RFC 6437): every flow has one, and all its packets have the same.

use super::Broken;
use crate::packet::{Ip, Transport};
use core::net::SocketAddr;
use std::collections::BTreeMap;

/// The labels of the connections of a host, by the ends, the own first.
#[derive(Debug, Default)]
pub(super) struct FlowLabels {
    of_connections: BTreeMap<(SocketAddr, SocketAddr), u32>,
}

impl FlowLabels {
    /// A packet goes out.
    pub(super) fn judge(&mut self, ip: &Ip<'_>) -> Result<(), Broken> {
        let Some(label) = ip.flow_label else { return Ok(()) };
        let is_labelled = label != 0;
        match &ip.transport {
            Transport::Udp { .. } if !is_labelled => {
                Err(("RFC 6437, 3: every flow of datagrams has a label", "it is zero".to_owned()))
            }
            Transport::Tcp(segment) => {
                let known = self.of_connections.entry((segment.source, segment.destination));
                let known = *known.or_insert(label);
                if is_labelled && known == label {
                    return Ok(());
                }
                let text = format!("{segment}: label {label:#x} after {known:#x}");
                Err(("RFC 6437, 3: the segments of a connection have one label", text))
            }
            _ => Ok(()),
        }
    }
}
