//! What connections counted.
//!
//! A table is long, connections are many, and who asks wants the sums. So a connection has no table
//! of its own but counts in one that its owner lends it for the time of a call
//! ([`Connection::swap_lent`](crate::Connection::swap_lent)). One that was lent none makes
//! its own when it first counts something, and its owner may collect that later. What is to be known
//! of each connection stands in [`crate::info`].

use crate::sender::recovery::Flight;
use core::ops::{Deref, DerefMut};

counters::counters! {
    /// Counts of one connection's life; a shard adds up those of its connections.
    pub struct TcpCounters {
        /// Segments that arrived; a super-frame counts as the segments it stands for.
        segments_received,
        /// Of these, without the timestamps that were agreed on; resets are not counted.
        timestamps_missing,
        /// Payload bytes that arrived in order and were queued for the application.
        bytes_received,
        /// Of these, bytes that the application has taken.
        bytes_read,
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
        /// Times the reordering timer found a loss (RFC 8985, 6.2).
        reordering_timeouts,
        /// Tail loss probes sent (RFC 8985, 7.3).
        tail_loss_probes,
        /// Losses that a tail loss probe repaired by itself.
        tail_loss_repairs,
        /// Bytes taken for lost, as often as they were.
        lost_bytes,
        /// Ranges that were sent again and lost again.
        retransmissions_lost,
        /// ACKs that showed that segments had overtaken each other.
        reordering_seen,
        /// Timeouts that F-RTO found spurious (RFC 5682).
        spurious_timeouts,
        /// Recoveries taken back because what was taken for lost arrived before it was sent again.
        undone_by_originals,
        /// Recoveries taken back because a timestamp proved them a mistake (RFC 3522).
        undone_by_timestamps,
        /// Recoveries taken back because all that was sent again arrived twice (RFC 3708).
        undone_by_duplicates,
        /// Times slow start ended without a loss, because round trips grew (RFC 9406).
        slow_start_exits,
        /// Connections whose handshake agreed on explicit congestion notification (RFC 3168).
        ecn_connections,
        /// Data segments that arrived with a mark of congestion.
        ecn_marks_received,
        /// ACKs that echoed a mark.
        ecn_echoes_received,
        /// Reductions of the congestion window for a mark.
        reductions_for_marks,
        /// Reductions of the congestion window for a loss that ACKs told of.
        reductions_for_loss,
        /// Reductions of the congestion window for a timeout.
        reductions_for_timeout,
        /// Times new data had to wait for its release ([`crate::Pacing`]).
        pacing_waits,
        /// Duplicate ACKs.
        duplicate_acks_received,
        /// Bytes newly reported by SACK blocks.
        sacked_bytes,
        /// Duplicates that SACK blocks reported (RFC 2883).
        duplicate_sacks_received,
        /// SACK blocks that were empty, reversed or about what was never sent.
        sack_blocks_invalid,
        /// Edges of SACK blocks not taken note of because there were too many ranges.
        sack_edges_refused,
        /// Times the peer took back what it had SACKed (RFC 2018, 8).
        sack_reneges,
        /// Times that timeouts told that long segments do not arrive (RFC 4821, 7.7).
        black_holes,
        /// Longer segments sent to find out whether the path takes them.
        mtu_probes_sent,
        /// Of these, lost.
        mtu_probes_lost,
        /// Times that longer segments were sent because a probe had arrived.
        mtu_probes_arrived,
        /// Zero-window probes sent.
        window_probes_sent,
        /// Keepalive probes sent.
        keepalive_probes_sent,
        /// Segments that arrived ahead of their turn and were kept.
        out_of_order_segments,
        /// Segments of which something differed from what had arrived there before, and stayed; as far as that was
        /// not read yet, and of what is in order in the newest 64 chunks.
        overlap_conflicts,
        /// Segments ahead of their turn that were refused, in whole or in part, because too much
        /// waits.
        out_of_order_refused,
        /// Duplicate ranges reported to peers (RFC 2883).
        duplicates_reported,
        /// Duplicate ranges not reported, because others waited for that.
        duplicates_unreported,
        /// Segments with payload that had all arrived before.
        duplicate_segments,
        /// Times a receive buffer was enlarged, because the application reads so fast.
        receive_buffer_growths,
        /// Times a peer announced urgent data that was not known to be.
        urgent_marks_received,
        /// Bytes copied out of sparse blocks or tiny segments.
        copied_bytes,
        /// Bytes of payload that a SYN carried and the peer took (RFC 7413).
        fast_open_bytes_sent,
        /// Bytes of payload that came with a SYN and were taken.
        fast_open_bytes_received,
        /// Resets sent.
        resets_sent,
        /// Resets received and obeyed.
        resets_received,
        /// Segments built and not taken by the device.
        segments_forgotten,
    }
}

/// What an owner of many connections lends each of them for the time of a call, so that none needs its own.
#[derive(Debug, Default)]
pub struct Lent {
    /// The table in which the connection counts.
    pub counters: TcpCounters,
    /// Memory for records, of the last connection of which nothing was outstanding any more: who sends a little at a
    /// time would go to the allocator for every segment, and an idle one is to keep none.
    flight: Option<Box<Flight>>,
}

/// The table a connection counts in, with what else it was lent.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    lent: Option<Box<Lent>>,
}

impl Counting {
    pub(crate) fn swap(&mut self, lent: &mut Option<Box<Lent>>) {
        core::mem::swap(&mut self.lent, lent);
    }

    /// Where memory for records lies ready.
    #[inline]
    pub(crate) fn spare_flight(&mut self) -> Option<&mut Option<Box<Flight>>> {
        self.lent.as_mut().map(|lent| &mut lent.flight)
    }
}

impl Deref for Counting {
    type Target = TcpCounters;

    fn deref(&self) -> &TcpCounters {
        self.lent.as_ref().map_or(&TcpCounters::ZERO, |lent| &lent.counters)
    }
}

impl DerefMut for Counting {
    #[inline]
    fn deref_mut(&mut self) -> &mut TcpCounters {
        &mut self.lent.get_or_insert_with(Box::default).counters
    }
}
