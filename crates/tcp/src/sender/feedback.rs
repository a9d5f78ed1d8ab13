//! What an ACK tells the sender: what arrived, how long that took, and how much may be in flight now.

use crate::counters::Counting;
use crate::options::Negotiated;
use crate::sender::Sender;
use crate::sender::congestion::{Acked, Congestion as _};
use crate::sender::recovery::Delivered;
use crate::sender::recovery::sack::Report;
use time::{Duration, Instant};
use wire::TcpHeader;

/// What is known of an ACK.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckFacts {
    /// SND.UNA moved, and by how much.
    pub(crate) advanced: bool,
    pub(crate) acked: u32,
    /// FlightSize before it.
    pub(crate) flight_before: u32,
    /// It is a duplicate ACK (RFC 5681, 2; RFC 6675, 2).
    pub(crate) duplicate: bool,
    /// It says nothing but this: no data, no SYN or FIN, the window unchanged (RFC 5681, 2), and no SACK blocks.
    pub(crate) is_bare: bool,
    pub(crate) report: Report,
    pub(crate) delivered: Delivered,
    /// The round trip it measured.
    pub(crate) rtt_sample: Option<Duration>,
}

impl Sender {
    /// Enters what the ACK delivered into the records; says whether there is anything to count.
    #[inline]
    pub(crate) fn take_deliveries(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        facts: &mut AckFacts,
        negotiated: &Negotiated,
        counters: &mut Counting,
    ) -> bool {
        let blocks = header.options.sack.as_slice();
        let has_blocks = negotiated.sack && !blocks.is_empty();
        if has_blocks {
            let (una, nxt) = (self.sequence.una, self.sequence.nxt);
            facts.report = Report::new(blocks, header.acknowledgment, una, nxt);
        } else if !facts.advanced {
            return false;
        }
        let timestamps = negotiated.timestamps.zip(header.options.timestamps);
        self.recovery.on_delivered(
            now,
            (self.sequence.una, &facts.report),
            self.rtt.min_rtt(),
            negotiated.payload_max(),
            |sent_at| {
                timestamps.is_some_and(|(ours, theirs)| ours.is_echo_before(theirs.echo, sent_at))
            },
            &mut facts.delivered,
        );
        self.recovery.give_up_flight(counters.spare_flight());
        has_blocks || facts.delivered.reordered || facts.delivered.reneged
    }

    /// What congestion control makes of the ACK.
    pub(crate) fn tell_controller(
        &mut self,
        now: Instant,
        facts: &AckFacts,
        negotiated: &Negotiated,
        counters: &mut Counting,
    ) {
        let pipe = self.recovery.pipe(&self.sequence);
        let rate = self.recovery.rate.sample(&facts.delivered.gathered, pipe, self.rtt.min_rtt());
        if facts.advanced {
            let unused = self.window_use.on_ack(now, facts.flight_before, self.rtt.rto_ns());
            if let Some(used_bytes) = unused {
                self.congestion.on_unused(used_bytes);
            }
        } else if rate.is_none() {
            return;
        }
        let in_first_slow_start = self.congestion.slow_start_threshold() == u32::MAX;
        self.congestion.on_ack(&Acked {
            now,
            acked_bytes: facts.acked,
            in_flight_before: facts.flight_before,
            app_limited: !self.window_use.is_limited,
            rtt: self.rtt.smoothed(),
            rtt_sample: facts.rtt_sample,
            una: self.sequence.una,
            nxt: self.sequence.nxt,
            rate,
            sack: negotiated.sack,
            mss: negotiated.payload_max(),
        });
        if self.congestion.is_holding_back() {
            self.recovery.rate.on_app_limited(pipe);
        }
        if in_first_slow_start && self.congestion.slow_start_threshold() != u32::MAX {
            counters.slow_start_exits += 1;
        }
    }

    /// Measures the round trip: by the records of what was sent, which is exact, and once in a window
    /// is enough; or else, as Karn's rule forbids to measure what was sent again, by the echo of our
    /// timestamp (RFC 7323, 4.1).
    pub(crate) fn sample_round_trip(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        facts: &AckFacts,
        negotiated: &Negotiated,
    ) -> Option<Duration> {
        // It may not have moved for longer than numbers last.
        self.measured_until = self.measured_until.later_of(self.sequence.una);
        let Some(sent_at) = facts.delivered.first_sent_at.filter(|_| !facts.delivered.ambiguous)
        else {
            return self.sample_timestamp(now, header, negotiated);
        };
        let rtt = now - sent_at;
        if self.sequence.una == self.measured_until {
            self.measured_until = self.sequence.nxt;
            self.rtt.on_sample(rtt);
            self.recovery.probe.on_round_trip();
        }
        // Zero measures the clock, not the path.
        Some(rtt).filter(|rtt| !rtt.is_zero())
    }

    /// The same by the echo alone.
    pub(crate) fn sample_timestamp(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        negotiated: &Negotiated,
    ) -> Option<Duration> {
        let echo = header.options.timestamps.map(|timestamps| timestamps.echo);
        let (ours, echo) = negotiated.timestamps.zip(echo)?;
        let rtt = ours.round_trip(now, echo)?;
        let flight = self.sequence.flight();
        let expected = flight.div_ceil(2 * negotiated.payload_max()).max(1);
        self.rtt.on_sample_of(rtt, expected);
        self.recovery.probe.on_round_trip();
        Some(rtt)
    }
}
