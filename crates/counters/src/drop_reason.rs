//! Every reason for which a packet may be dropped, in one list.
//!
//! Nothing is dropped silently: who drops a packet names the reason, and the reason is counted.

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// Why a packet was dropped. The list is one for all layers, so that a reader finds every
        /// loss of a running stack in one table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DropReason {
            $($(#[$doc])* $variant,)*
        }

        impl DropReason {
            /// Every reason, in the order of the declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The reason's name in statistics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

drop_reasons! {
    /// A frame shorter than its headers say, or too short to hold them.
    Truncated => "drop_truncated",
    /// A link-layer header of an unknown EtherType.
    UnknownEtherType => "drop_unknown_ethertype",
    /// A frame addressed to another station.
    NotOurFrame => "drop_not_our_frame",
    /// A packet whose IP version is neither 4 nor 6, or differs from the EtherType.
    BadVersion => "drop_bad_version",
    /// An IP header that contradicts itself (header length, total length, option lengths).
    MalformedIp => "drop_malformed_ip",
    /// A source address that no packet may carry (multicast, broadcast, our own, loopback).
    BadSource => "drop_bad_source",
    /// A packet to an address that is not ours; a host does not forward (RFC 1122, 3.2.1.3).
    NotOurAddress => "drop_not_our_address",
    /// A packet to one host in a frame to many (RFC 1122, 3.3.6).
    LinkBroadcast => "drop_link_broadcast",
    /// The IPv4 header checksum is wrong.
    IpChecksum => "drop_ip_checksum",
    /// A fragment that breaks the rules: of no length that may be, beyond 65,535 bytes, or a first
    /// one without whole headers.
    Fragment => "drop_fragment",
    /// A fragment of a datagram whose fragments overlapped or contradicted each other (RFC 8200, 4.5).
    FragmentOverlap => "drop_fragment_overlap",
    /// A fragment that came twice.
    FragmentDuplicate => "drop_fragment_duplicate",
    /// A fragment given up to keep what reassembly holds within its bounds.
    FragmentLimit => "drop_fragment_limit",
    /// A fragment of a datagram whose other fragments did not come in time.
    FragmentTimeout => "drop_fragment_timeout",
    /// A fragment of a datagram whose ECN fields contradicted each other (RFC 3168, 5.3).
    FragmentEcn => "drop_fragment_ecn",
    /// A transport protocol that nobody here speaks.
    UnknownProtocol => "drop_unknown_protocol",
    /// An ARP or neighbour-discovery message that breaks its rules.
    MalformedNeighbour => "drop_malformed_neighbour",
    /// A message of another station that claims an address of ours; it was taken note of.
    AddressDisputed => "drop_address_disputed",
    /// A redirect: first hops are learned from advertisements alone.
    RedirectRefused => "drop_redirect_refused",
    /// An ICMP message that breaks its rules.
    MalformedIcmp => "drop_malformed_icmp",
    /// The ICMP checksum is wrong.
    IcmpChecksum => "drop_icmp_checksum",
    /// An ICMP error about something we never sent, or with an impossible sequence number.
    UnrelatedIcmp => "drop_unrelated_icmp",
    /// An ICMP answer withheld by the rate limit (RFC 4443, 2.4 f).
    IcmpRateLimited => "drop_icmp_rate_limited",
    /// A frame that met a full soft ring on its way to its squeue.
    SoftRingFull => "drop_soft_ring_full",
    /// A frame of a flow that had its share of a soft ring already.
    SoftRingShare => "drop_soft_ring_share",
    /// A TCP header that contradicts itself.
    MalformedTcp => "drop_malformed_tcp",
    /// The TCP checksum is wrong.
    TcpChecksum => "drop_tcp_checksum",
    /// A TCP segment for which there is neither connection nor listener.
    NoConnection => "drop_no_connection",
    /// A SYN that met a full listen backlog.
    BacklogFull => "drop_backlog_full",
    /// A SYN for a forwarder that has as many pending connections as it may.
    ForwarderFull => "drop_forwarder_full",
    /// A SYN, or the ACK that would have completed a handshake, that met a full accept queue.
    AcceptQueueFull => "drop_accept_queue_full",
    /// A SYN, or the ACK that would have completed a handshake, where as many sockets are open as may
    /// be.
    SocketsFull => "drop_sockets_full",
    /// A reset in TIME-WAIT (RFC 1337).
    TimeWaitReset => "drop_time_wait_reset",
    /// A segment without a connection whose answer the rate limit withheld.
    ResetRateLimited => "drop_reset_rate_limited",
    /// A segment outside the receive window.
    OutOfWindow => "drop_out_of_window",
    /// A segment refused by PAWS (RFC 7323, 5).
    Paws => "drop_paws",
    /// An acknowledgment of data never sent, or far too old (RFC 5961, 5).
    BadAck => "drop_bad_ack",
    /// Payload for which neither buffer nor out-of-order range was left.
    ReceiveBufferFull => "drop_receive_buffer_full",
    /// Payload that was received before.
    Duplicate => "drop_duplicate",
    /// A segment that the connection's state has no use for.
    BadState => "drop_bad_state",
    /// A UDP header that contradicts itself.
    MalformedUdp => "drop_malformed_udp",
    /// The UDP checksum is wrong, or missing where IPv6 demands one.
    UdpChecksum => "drop_udp_checksum",
    /// A datagram for a port that nobody listens on.
    PortUnreachable => "drop_port_unreachable",
    /// A datagram for a socket whose receive queue is full.
    SocketQueueFull => "drop_socket_queue_full",
    /// A datagram or raw packet for a socket that has others unread, where all sockets together hold about as much
    /// unread as they may.
    DatagramsFull => "drop_datagrams_full",
    /// Data for a connection that has some unread, where all connections together hold about as much unread as they may.
    StreamsFull => "drop_streams_full",
    /// No route to the destination.
    NoRoute => "drop_no_route",
    /// Queued for sending from an address that the interface has no more.
    SourceRemoved => "drop_source_removed",
    /// A packet for another shard of the host, of which too many waited, or a router's advertisement while too
    /// much that others learn from earlier ones waited.
    StrayQueueFull => "drop_stray_queue_full",
    /// A packet for another shard of the host, of a flow that had its share of what may wait there.
    StrayQueueShare => "drop_stray_queue_share",
    /// The queue of packets that wait for a neighbour was full.
    NeighbourQueueFull => "drop_neighbour_queue_full",
    /// The neighbour did not answer.
    NeighbourUnreachable => "drop_neighbour_unreachable",
    /// The queue of small packets to send (control, ICMP, datagrams) was full.
    TransmitQueueFull => "drop_transmit_queue_full",
    /// A datagram longer than the path takes.
    TooLong => "drop_too_long",
    /// The block pool was exhausted.
    NoMemory => "drop_no_memory",
    /// The device refused this packet for good.
    DeviceRefused => "drop_device_refused",
    /// A datagram that the tunnel's peer did not seal, or that was changed on its way.
    TunnelForged => "drop_tunnel_forged",
    /// A datagram of the tunnel that came before, or is far too old.
    TunnelReplayed => "drop_tunnel_replayed",
    /// A datagram from an address that is not the tunnel's peer.
    TunnelForeign => "drop_tunnel_foreign",
    /// A packet filter of this stack said so.
    Filtered => "drop_filtered",
    /// A packet filter of this stack panicked when it was asked.
    FilterPanicked => "drop_filter_panicked",
    /// It waited to be sent by an interface that was removed.
    InterfaceRemoved => "drop_interface_removed",
}

/// One counter for each [`DropReason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropCounters {
    counts: [u64; DropReason::ALL.len()],
}

impl Default for DropCounters {
    fn default() -> Self {
        Self { counts: [0; DropReason::ALL.len()] }
    }
}

impl DropCounters {
    /// Counts one packet dropped for this reason.
    pub fn add(&mut self, reason: DropReason) {
        crate::trace!(reason = reason.name(), "packet dropped");
        self.counts[reason as usize] += 1;
    }

    /// Counts several packets dropped for this reason.
    pub fn add_many(&mut self, reason: DropReason, count: u64) {
        crate::trace!(reason = reason.name(), count, "packets dropped");
        self.counts[reason as usize] += count;
    }

    /// How many packets were dropped for this reason.
    #[must_use]
    pub fn count(&self, reason: DropReason) -> u64 {
        self.counts[reason as usize]
    }

    /// How many packets were dropped in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds the figures of another table to this one.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
    }

    /// Visits every reason, in the order of declaration.
    pub fn for_each(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        for reason in DropReason::ALL {
            visit(reason.name(), self.count(*reason));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_counter_and_name() {
        let mut drops = DropCounters::default();
        for reason in DropReason::ALL {
            drops.add(*reason);
        }
        assert_eq!(drops.total(), DropReason::ALL.len() as u64);
        let mut names = std::collections::HashSet::new();
        drops.for_each(&mut |name, count| {
            assert_eq!(count, 1, "{name}");
            assert!(names.insert(name), "{name} stands for two reasons");
        });
    }
}
