//! What the shard counted.

use crate::network::interface::Interface;
use counters::{DropCounters, RefusalCounters};
use link::NeighbourCounters;
use tcp::{Connection, Lent, TcpCounters};

counters::counters! {
    /// Events of the way in and the way out above the device.
    pub struct ShardCounters {
        /// Receive batches that held at least one frame.
        receive_batches,
        /// Frames in them.
        receive_frames,
        /// Trains: frames that repeat the headers of the frame before them.
        receive_trains,
        /// Frames of trains, without the first of each, which goes the whole way up.
        receive_train_frames,
        /// Transmit batches built with at least one packet.
        transmit_batches,
        /// Packets in them.
        transmit_packets,
        /// Packets built that the device did not take and that were forgotten.
        transmit_not_taken,
        /// Payload bytes copied because their blocks were longer than the device can be shown.
        transmit_copied_bytes,
        /// Batches of which the device took some packets and not all.
        device_took_part,
        /// Batches of which the device took nothing.
        device_took_nothing,
        /// Batches that ended because the device was full.
        device_full,
        /// Batches that ended at a packet the device will never take.
        device_refused,
        /// Batches that ended because the device took a capability back.
        device_revoked,
        /// Times a device failed, found in sending or in receiving.
        device_failures,
        /// Devices replaced by others while the interface stayed.
        devices_replaced,
        /// Times an interface's link was another one, or may have been: its device replaced or of use again, or
        /// the program said so.
        links_changed,
        /// Times a device began to take only shorter packets.
        device_mtus_shrunk,
        /// Times the way out of an interface was negotiated.
        transmit_negotiations,
        /// Times a connection that could leave in batches could no more.
        multidata_flows_stopped,
        /// Times such a connection could again.
        multidata_flows_started,
        /// Connections that another route led to another interface.
        connections_rerouted,
        /// Copies of packets queued for another route to the same network.
        packets_duplicated,
        /// Interfaces removed.
        interfaces_removed,
        /// Events of interfaces forgotten because nobody asked for them.
        interface_events_forgotten,
        /// Batches that this shard sent to itself.
        loopback_batches,
        /// Packets in them that arrived.
        loopback_packets,
        /// Calls of the packet filter.
        filter_calls,
        /// Of these, calls that ended in a panic of the filter, and other questions to it that did.
        filter_panics,
        /// Received super-frames taken apart for it.
        filter_expansions,
        /// Header runs stamped: one route and neighbour look-up each.
        transmit_runs,
        /// Bytes of payload and header summed in software for checksums on the way in.
        checksummed_receive_bytes,
        /// Bytes of payload read for checksums on the way out: those whose sums were not made when
        /// they were copied in (`bytes_summed_in_copy` of the runtime), or that were cut otherwise.
        /// Datagrams that went out in fragments are not in it.
        checksummed_transmit_bytes,
        /// Segments that met the flow of the segment before them (no look-up).
        flow_cache_hits,
        /// Segments whose flow was looked up.
        flow_lookups,
        /// Segments that the device, left to spread the flows, brought to a shard that does not have their
        /// connection, and that went on to the one that has or would have it.
        segments_handed_on,
        /// Times only the receive reserve of the block pool was left, and unread payload began to be copied
        /// out of the devices' blocks.
        pool_pressures,
        /// Bytes of it that were.
        pressure_copied_bytes,
        /// Connections opened from this side.
        connections_opened,
        /// Connections opened by peers.
        connections_accepted,
        /// SYN-ACKs sent for half-open connections, repetitions included.
        syn_acks_sent,
        /// SYN-ACKs sent again because nothing came.
        syn_acks_sent_again,
        /// Half-open connections forgotten because nothing came.
        half_open_timeouts,
        /// SYN cookies sent.
        syn_cookies_sent,
        /// SYN cookies that came back and opened a connection.
        syn_cookies_accepted,
        /// ACKs that came while SYN cookies were out and were none.
        syn_cookies_refused,
        /// SYN cookies that came back after the connection they had opened.
        syn_cookies_spent,
        /// SYNs that became pending connections of a forwarder. Each is counted in one of accepted, refused, ignored,
        /// taken back and expired when it is none any more.
        forwards_pending,
        /// Pending connections that were accepted.
        forwards_accepted,
        /// Pending connections that were refused.
        forwards_refused,
        /// Pending connections that were forgotten without an answer because the program said so, or closed their
        /// forwarder before it took them.
        forwards_ignored,
        /// Pending connections that were reset by their peer, or that another socket had when they were accepted.
        forwards_taken_back,
        /// SYNs of pending connections that came again, and were absorbed.
        forwards_repeated,
        /// Pending connections forgotten because nobody decided while their peer was heard of.
        forwards_expired,
        /// Connections whose TIME-WAIT outlived their socket.
        time_wait_entered,
        /// The oldest of those, forgotten for want of room.
        time_wait_recycled,
        /// Connections in TIME-WAIT that a new one took the place of (RFC 6191).
        time_wait_replaced,
        /// Connections made by a SYN with a valid fast open cookie.
        fast_opens_accepted,
        /// SYNs with a valid cookie that took the usual way, as too many such connections were pending.
        fast_opens_limited,
        /// Destinations whose fast open cookie was forgotten to make room for another's.
        fast_open_cookies_evicted,
        /// Connections reset because too many had lost their application.
        orphans_reset,
        /// Echo requests answered.
        echo_replies,
        /// Resets sent for segments without a connection.
        resets_without_connection,
        /// Reports of multicast memberships sent.
        group_reports,
        /// Probes and announcements of own addresses sent.
        address_messages,
        /// Times another station was heard to use an address of ours.
        address_disputes,
        /// Fragments received.
        fragments_received,
        /// Datagrams put together from them.
        datagrams_reassembled,
        /// Datagrams and echo replies that were too long for one packet, and went out in fragments.
        datagrams_fragmented,
        /// Reports of a path that takes less than was believed.
        path_mtus_lowered,
        /// Reports of that forgotten before their time to make room for others.
        path_mtus_evicted,
        /// Events of addresses forgotten because nobody asked for them.
        address_events_forgotten,
        /// Timer calls that found work.
        timeouts,
    }
}

/// What all connections of a shard counted, living and past: one table, lent to whichever is at
/// work. Connections without a table of their own are what makes a hundred thousand of them cheap.
#[derive(Debug)]
pub(crate) struct ConnectionCounters {
    lent: Option<Box<Lent>>,
}

impl Default for ConnectionCounters {
    fn default() -> Self {
        Self { lent: Some(Box::default()) }
    }
}

impl ConnectionCounters {
    /// Calls `work` on a connection that counts in the shard's table meanwhile.
    #[inline]
    pub(crate) fn lend<T>(
        &mut self,
        connection: &mut Connection,
        work: impl FnOnce(&mut Connection) -> T,
    ) -> T {
        connection.swap_lent(&mut self.lent);
        let outcome = work(connection);
        connection.swap_lent(&mut self.lent);
        outcome
    }

    /// Takes in what a connection counted while it was lent nothing.
    #[inline]
    pub(crate) fn collect(&mut self, connection: &mut Connection) {
        let mut own = None;
        connection.swap_lent(&mut own);
        if let (Some(lent), Some(own)) = (&mut self.lent, own) {
            lent.counters.merge(&own.counters);
        }
    }

    /// How many bytes came in order, and how many of those were read.
    #[inline]
    pub(crate) fn stream_bytes(&self) -> (u64, u64) {
        let counters = self.lent.as_ref().map(|lent| &lent.counters);
        counters.map_or((0, 0), |it| (it.bytes_received, it.bytes_read))
    }

    /// The sums so far.
    pub(crate) fn sums(&self) -> TcpCounters {
        self.lent.as_ref().map(|lent| lent.counters).unwrap_or_default()
    }
}

/// What is counted by interfaces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InterfaceCounters {
    pub(crate) routers: ip::router::RouterCounters,
    pub(crate) dhcp: dhcp::DhcpCounters,
    pub(crate) neighbours: NeighbourCounters,
}

impl InterfaceCounters {
    /// Adds what one has counted so far.
    pub(crate) fn add(&mut self, interface: &Interface) {
        if let Some(part) = &interface.addressing.autoconfiguration {
            self.routers.merge(&part.counters());
        }
        if let Some(part) = &interface.addressing.advertiser {
            self.routers.merge(&part.counters());
        }
        if let Some(part) = &interface.addressing.leasing {
            self.dhcp.merge(&part.counters());
        }
        self.neighbours.merge(&interface.neighbours.counters());
    }
}

/// All tables of a shard.
#[derive(Clone, Copy, Debug, Default)]
pub struct StackCounters {
    /// Events of the way in and the way out.
    pub shard: ShardCounters,
    /// Events of all connections, living and past.
    pub tcp: tcp::TcpCounters,
    /// Odd options of TCP segments.
    pub tcp_options: wire::TcpOptionCounters,
    /// Router discovery on all interfaces.
    pub routers: ip::router::RouterCounters,
    /// DHCP on all interfaces.
    pub dhcp: dhcp::DhcpCounters,
    /// Neighbour resolution on all interfaces.
    pub neighbours: NeighbourCounters,
    /// Batches that were single packets, by reason.
    pub refusals: RefusalCounters,
    /// Packets dropped, by reason.
    pub drops: DropCounters,
}

impl StackCounters {
    /// Adds the figures of another shard.
    pub fn merge(&mut self, other: &Self) {
        self.shard.merge(&other.shard);
        self.tcp.merge(&other.tcp);
        self.tcp_options.merge(&other.tcp_options);
        self.routers.merge(&other.routers);
        self.dhcp.merge(&other.dhcp);
        self.neighbours.merge(&other.neighbours);
        self.refusals.merge(&other.refusals);
        self.drops.merge(&other.drops);
    }

    /// Visits every counter, table by table.
    pub fn for_each(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.shard.for_each(visit);
        self.tcp.for_each(visit);
        self.tcp_options.for_each(visit);
        self.routers.for_each(visit);
        self.dhcp.for_each(visit);
        self.neighbours.for_each(visit);
        self.refusals.for_each(visit);
        self.drops.for_each(visit);
    }
}
