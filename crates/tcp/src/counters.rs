//! What a connection counted.

counters::counters! {
    /// Counts of one connection's life; a shard adds up those of its connections.
    pub struct TcpCounters {
        /// Segments that arrived; a super-frame counts as the segments it stands for.
        segments_received,
        /// Payload bytes that arrived in order and were queued for the application.
        bytes_received,
        /// Segments handed to the device.
        segments_sent,
        /// Payload bytes handed to the device for the first time.
        bytes_sent,
        /// Segments with payload or FIN sent for the first time.
        data_segments_sent,
        /// Payload bytes acknowledged.
        bytes_acknowledged,
        /// Segments without payload that only acknowledge.
        pure_acks_sent,
        /// ACKs sent because the deferral was reached or RFC 5681, 4.2 asked for one.
        immediate_acks,
        /// ACKs sent because the delayed-ACK timer went off.
        delayed_acks,
        /// ACKs that announced a re-opened window.
        window_updates_sent,
        /// Challenge ACKs (RFC 5961) owed.
        challenge_acks,
        /// Challenge ACKs withheld by the rate limit.
        challenge_acks_limited,
        /// Segments sent again.
        retransmitted_segments,
        /// Bytes sent again.
        retransmitted_bytes,
        /// Times the retransmission timer went off.
        retransmission_timeouts,
        /// Times fast recovery was entered.
        fast_recoveries,
        /// Duplicate ACKs.
        duplicate_acks_received,
        /// Bytes newly reported by SACK blocks.
        sacked_bytes,
        /// Zero-window probes sent.
        window_probes_sent,
        /// Keepalive probes sent.
        keepalive_probes_sent,
        /// Segments that arrived ahead of their turn and were kept.
        out_of_order_segments,
        /// Segments with payload that had all arrived before.
        duplicate_segments,
        /// Bytes copied out of sparse blocks or tiny segments.
        copied_bytes,
        /// Resets sent.
        resets_sent,
        /// Resets received and obeyed.
        resets_received,
        /// Segments built and not taken by the device.
        segments_forgotten,
    }
}
