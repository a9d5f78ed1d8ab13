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
        squeue_entries,
        /// Of these, times another thread was inside and had to be waited for.
        squeue_entries_contended,
        /// Times a thread entered that was not the last one inside.
        squeue_migrations,
        /// Batches processed at once by the thread that brought them.
        squeue_inline_batches,
        /// Batches left for whoever was inside.
        squeue_queued_batches,
        /// Times a thread that left found work that had been queued meanwhile.
        squeue_owed_on_leaving,
        /// Turns in which frames were waited for: interrupt mode.
        squeue_interrupt_turns,
        /// Turns in which the device was asked without waiting: poll mode.
        squeue_poll_turns,
        /// Changes from interrupt to poll mode.
        squeue_to_poll_mode,
        /// Changes from poll to interrupt mode.
        squeue_to_interrupt_mode,
        /// Threads woken to run the squeue.
        squeue_worker_wakeups,
    }
}

/// Declares a histogram: names of the counters and the largest batch each counts.
macro_rules! histogram {
    ($($(#[$doc:meta])* $field:ident <= $largest:literal,)*) => {
        counters::counters! {
            /// How many batches there were of which size, in powers of two: the table of one stage
            /// (a device queue, a soft ring, a squeue).
            pub struct BatchSizes {
                $($(#[$doc])* $field,)*
            }
        }

        impl BatchSizes {
            /// Counts a batch of `frames`; one of none is not counted.
            pub fn add(&mut self, frames: usize) {
                match frames {
                    0 => {}
                    $(..=$largest => self.$field += 1,)*
                    _ => self.batches_of_257_up += 1,
                }
            }
        }
    };
}

histogram! {
    /// One frame alone.
    batches_of_1 <= 1,
    /// Two frames.
    batches_of_2 <= 2,
    /// Three or four.
    batches_of_3_to_4 <= 4,
    /// Five to eight.
    batches_of_5_to_8 <= 8,
    /// Nine to sixteen.
    batches_of_9_to_16 <= 16,
    /// Seventeen to 32.
    batches_of_17_to_32 <= 32,
    /// 33 to 64.
    batches_of_33_to_64 <= 64,
    /// 65 to 128.
    batches_of_65_to_128 <= 128,
    /// 129 to 256.
    batches_of_129_to_256 <= 256,
    /// Larger ones.
    batches_of_257_up <= 0x7fff_ffff,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_its_place() {
        let mut sizes = BatchSizes::default();
        for frames in [0, 1, 2, 3, 4, 5, 8, 9, 256, 257, usize::MAX] {
            sizes.add(frames);
        }
        let mut counts = Vec::new();
        sizes.for_each(&mut |_, count| counts.push(count));
        assert_eq!(counts, [1, 1, 2, 2, 1, 0, 0, 0, 1, 2]);
    }
}
