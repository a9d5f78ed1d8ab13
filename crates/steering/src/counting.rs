//! What is counted between a device queue and a squeue.

counters::counters! {
    /// What one soft ring set saw.
    pub struct SoftRingSetCounters {
        /// Batches split.
        srs_batches,
        /// Frames in them.
        srs_frames,
        /// Batches that went on whole, unread: there is one home.
        srs_batches_bypassed,
        /// TCP segments.
        srs_tcp,
        /// Of these, segments of the same flow as the one before, which were not hashed.
        srs_flow_cache_hits,
        /// TCP segments that the device had spread: they stayed with the ring's home.
        srs_tcp_spread_by_device,
        /// Datagrams.
        srs_udp,
        /// ICMP errors about a flow.
        srs_icmp_errors,
        /// Frames that every home needed.
        srs_everyone,
        /// Fragments.
        srs_fragments,
        /// Everything else.
        srs_other,
    }
}

counters::counters! {
    /// What one soft ring saw.
    pub struct SoftRingCounters {
        /// Batches put in.
        soft_ring_batches,
        /// Frames put in.
        soft_ring_frames,
        /// Bytes of frames put in.
        soft_ring_bytes,
        /// Frames that were not let in, because the ring was full.
        soft_ring_dropped_full,
        /// Frames that were not let in, because their flow had its share of the ring.
        soft_ring_dropped_share,
        /// Batches taken out.
        soft_ring_drains,
        /// Frames in them.
        soft_ring_drained_frames,
    }
}

counters::counters! {
    /// Who came to a squeue, and what it did.
    pub struct SqueueCounters {
        /// Times a thread entered.
        squeue_enters,
        /// Of these, times another thread was inside and had to be waited for.
        squeue_enters_contended,
        /// Times a thread entered that was not the last one inside.
        squeue_migrations,
        /// Batches processed at once by the thread that brought them.
        squeue_inline_batches,
        /// Batches left for whoever was inside.
        squeue_queued_batches,
        /// Times a thread that left found work that had been queued meanwhile.
        squeue_owed_on_leaving,
        /// Turns in which frames were waited for: interrupt mode.
        interrupt_turns,
        /// Turns in which the device was asked without waiting: poll mode.
        poll_turns,
        /// Changes from interrupt to poll mode.
        to_polling,
        /// Threads woken to run the squeue.
        squeue_worker_wakeups,
    }
}
