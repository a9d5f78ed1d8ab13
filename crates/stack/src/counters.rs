//! What the shard counted.

use counters::DropCounters;
use link::NeighbourCounters;

counters::counters! {
    /// Events of the way in and the way out above the device.
    pub struct ShardCounters {
        /// Receive batches that held at least one frame.
        receive_batches,
        /// Frames in them.
        receive_frames,
        /// Transmit batches built with at least one packet.
        transmit_batches,
        /// Packets in them.
        transmit_packets,
        /// Packets built that the device did not take and that were forgotten.
        transmit_not_taken,
        /// Header runs stamped: one route and neighbour look-up each.
        transmit_runs,
        /// Bytes of payload and header summed in software for checksums on the way in.
        checksummed_receive_bytes,
        /// Bytes of connections' payload summed in software for checksums on the way out.
        checksummed_transmit_bytes,
        /// Segments that met the flow of the segment before them (no look-up).
        flow_cache_hits,
        /// Segments whose flow was looked up.
        flow_lookups,
        /// Connections opened from this side.
        connections_opened,
        /// Connections opened by peers.
        connections_accepted,
        /// Echo requests answered.
        echo_replies,
        /// Resets sent for segments without a connection.
        resets_without_connection,
        /// Timer calls that found work.
        timeouts,
    }
}

/// All tables of a shard.
#[derive(Clone, Copy, Debug, Default)]
pub struct StackCounters {
    /// Events of the way in and the way out.
    pub shard: ShardCounters,
    /// Events of all connections, living and past.
    pub tcp: tcp::TcpCounters,
    /// Neighbour resolution on all interfaces.
    pub neighbours: NeighbourCounters,
    /// Packets dropped, by reason.
    pub drops: DropCounters,
}

impl StackCounters {
    /// Visits every counter, table by table.
    pub fn for_each(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        self.shard.for_each(visit);
        self.tcp.for_each(visit);
        self.neighbours.for_each(visit);
        self.drops.for_each(visit);
    }
}
