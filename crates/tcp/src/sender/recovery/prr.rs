//! Proportional rate reduction: how much each ACK may send in fast recovery (RFC 9937).
//!
//! The window does not drop at once and then wait for half the flight to drain; for each byte that
//! the receiver got, `ssthresh / RecoverFS` bytes go out, so that the flight has shrunk to the
//! threshold when recovery ends. Where losses have taken it below the threshold already, it grows
//! back, by what was delivered (CRB), or by one segment per ACK more while recovery makes progress
//! without further loss (SSRB).

/// The state of one recovery. Bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prr {
    /// prr_delivered.
    delivered: u64,
    /// prr_out.
    out: u64,
    /// RecoverFS.
    flight_at_entry: u64,
    /// cwnd as the last ACK left it: inflight and SndCnt.
    window: u32,
}

impl Prr {
    /// Fast recovery begins. `flight`: FlightSize before this ACK, `sacked_before`: what of it had
    /// been SACKed by earlier ones (RFC 9937, 6.1).
    pub(crate) fn on_enter(flight: u32, sacked_before: u32) -> Self {
        let flight_at_entry = u64::from(flight.saturating_sub(sacked_before)).max(1);
        Self { flight_at_entry, ..Self::default() }
    }

    /// An ACK in recovery, the first included, or the timer that begins it (RFC 9937, 6.2). `in_flight` is the pipe
    /// behind it; `safe`: SND.UNA moved and nothing more was found lost.
    pub(crate) fn on_ack(
        &mut self,
        delivered: u32,
        in_flight: u32,
        threshold: u32,
        safe: bool,
        mss: u32,
    ) {
        if delivered == 0 && self.window > 0 {
            // No DeliveredData, no step: what the ACKs before have let go stands.
            return;
        }
        self.delivered += u64::from(delivered);
        let mut count = if in_flight > threshold {
            let target = (self.delivered * u64::from(threshold)).div_ceil(self.flight_at_entry);
            target.saturating_sub(self.out)
        } else {
            let mut count = self.delivered.saturating_sub(self.out).max(u64::from(delivered));
            if safe {
                count += u64::from(mss);
            }
            count.min(u64::from(threshold - in_flight))
        };
        if self.out == 0 {
            // "Force a fast retransmit upon entering recovery": a fraction of a segment sends none.
            count = count.max(u64::from(mss));
        }
        self.window = in_flight.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Data was sent in recovery, for the first time or again.
    pub(crate) fn on_sent(&mut self, bytes: u32) {
        self.out = self.out.saturating_add(u64::from(bytes));
    }

    /// The window in bytes.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twenty segments of 1,000 bytes, the first of which is lost: one ACK per other segment.
    fn one_lost_of_twenty(threshold: u32) -> Vec<u32> {
        let mut prr = Prr::on_enter(20_000, 2_000);
        let mut in_flight = 20_000 - 3_000 - 1_000;
        let mut sent = Vec::new();
        for ack in 0..17 {
            if ack > 0 {
                in_flight -= 1_000;
            }
            prr.on_ack(1_000, in_flight, threshold, false, 1_000);
            let mut count = 0;
            while prr.window().saturating_sub(in_flight) >= 1_000 {
                prr.on_sent(1_000);
                in_flight += 1_000;
                count += 1;
            }
            sent.push(count);
        }
        sent
    }

    // RFC 9937, 4: "PRR ... sends data in proportion to the data delivered": with half the window
    // every second ACK sends, with 0.7 of it seven of ten.
    #[test]
    fn the_reduction_is_spread_over_the_round_trip() {
        let half = one_lost_of_twenty(10_000);
        assert_eq!(half[0], 1, "the retransmission goes out at once");
        assert!(half.iter().all(|count| *count <= 1), "{half:?}");
        assert_eq!(half.iter().sum::<u32>(), 10, "{half:?}");
        let cubic: u32 = one_lost_of_twenty(14_000).iter().sum();
        assert_eq!(cubic, 14);
    }

    // RFC 9937, 6.2: below the threshold CRB sends what was delivered, SSRB a segment more.
    #[test]
    fn below_the_threshold_it_grows_back_by_one_segment_per_safe_ack() {
        let mut prr = Prr::on_enter(20_000, 0);
        prr.on_ack(1_000, 3_000, 10_000, false, 1_000);
        assert_eq!(prr.window(), 4_000);
        prr.on_sent(1_000);
        prr.on_ack(1_000, 3_000, 10_000, true, 1_000);
        assert_eq!(prr.window(), 5_000);
        prr.on_sent(2_000);
        prr.on_ack(9_000, 9_500, 10_000, true, 1_000);
        assert_eq!(prr.window(), 10_000, "never beyond the threshold");
    }

    // RFC 9937, 6.2: what an ACK has let go is not taken back by one that says nothing.
    #[test]
    fn an_ack_that_delivers_nothing_changes_nothing() {
        let mut prr = Prr::on_enter(20_000, 0);
        prr.on_ack(1_000, 3_000, 10_000, false, 1_000);
        prr.on_sent(1_000);
        prr.on_ack(1_000, 3_000, 10_000, true, 1_000);
        assert_eq!(prr.window(), 5_000);
        prr.on_ack(0, 3_000, 10_000, false, 1_000);
        assert_eq!(prr.window(), 5_000);
        // But where recovery begins with none, a segment goes again.
        let mut begins = Prr::on_enter(20_000, 0);
        begins.on_ack(0, 19_000, 10_000, false, 1_000);
        assert_eq!(begins.window(), 20_000);
    }

    // RFC 9937, 6.2: "CEIL(prr_delivered * ssthresh / RecoverFS)": no byte is lost to rounding.
    #[test]
    fn a_part_of_a_byte_counts_as_one() {
        let mut prr = Prr::on_enter(3_000, 0);
        prr.on_ack(0, 2_500, 2_000, false, 1_000);
        prr.on_sent(1_000);
        prr.on_ack(2_000, 2_500, 2_000, false, 1_000);
        assert_eq!(prr.window(), 2_500 + 334);
    }
}
