//! How fast the path delivers (draft-ietf-ccwg-bbr, 4.1; the estimator of
//! draft-cheng-iccrg-delivery-rate-estimation).
//!
//! ```text
//!             first_sent_at          sent_at            delivered_at         now
//!   sending:      |----- send_elapsed ---|
//!   ACKs:                            prior delivered_at |--- ack_elapsed ----|
//!   rate  =  what was delivered since the segment was sent / max(send_elapsed, ack_elapsed)
//! ```
//!
//! Each sent record keeps a [`Snapshot`] of the sums as they were when it was sent. When an ACK or
//! a SACK block says that it arrived, what was delivered since then is known, and how long that took
//! at both ends of the path. The longer of the two is the denominator, so that ACKs that were held
//! back and then came together do not pass for a fast path.
//!
//! A sample taken while the application had nothing to send tells what the application needs and
//! not what the path can do: it is marked ([`RateSample::is_app_limited`]).
//!
//! In go three facts: sent ([`DeliveryRate::on_sent`]), delivered ([`DeliveryRate::on_delivered`])
//! and lost ([`DeliveryRate::on_lost`]); once per ACK [`DeliveryRate::sample`] gives what they
//! amount to.

use time::{Duration, Instant};

/// What one ACK tells of the path. Bytes and rates count payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RateSample {
    /// Delivered in all, now (C.delivered).
    pub(crate) total_delivered_bytes: u64,
    /// Delivered in all when the newest segment of this ACK was sent (RS.prior_delivered): a round
    /// trip is over when this passes what had been delivered at its start.
    pub(crate) prior_delivered_bytes: u64,
    /// Delivered in `interval` (RS.delivered).
    pub(crate) delivered_bytes: u64,
    /// Delivered by this ACK alone, by its number or by its SACK blocks (RS.newly_acked).
    pub(crate) newly_delivered_bytes: u32,
    /// Found lost since the sample before (RS.newly_lost).
    pub(crate) newly_lost_bytes: u32,
    /// Found lost since the newest segment of this ACK was sent (RS.lost).
    pub(crate) lost_bytes: u64,
    /// In flight when the newest segment of this ACK was sent, itself included (RS.tx_in_flight).
    pub(crate) tx_in_flight_bytes: u32,
    /// Sampling interval; `None` where it cannot be right: no segment was delivered, something was counted twice in
    /// it, or it is shorter than the least round trip.
    pub(crate) interval: Option<Duration>,
    /// Round trip of the newest segment of this ACK; `None` where it was sent more than once.
    pub(crate) rtt: Option<Duration>,
    /// The application, and not the path, bounded the rate.
    pub(crate) is_app_limited: bool,
    /// In flight now, behind this ACK.
    pub(crate) in_flight_bytes: u32,
    /// Of the records found lost since the sample before, the one with the most loss around it.
    pub(crate) worst_loss: Option<Loss>,
}

/// A lost record and what was lost since it was sent (draft-ietf-ccwg-bbr, 5.5.10: the state that
/// HandleLostPacket looks at).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    /// Its length.
    pub(crate) len_bytes: u32,
    /// In flight when it was sent, itself included (P.tx_in_flight).
    pub(crate) tx_in_flight_bytes: u32,
    /// Found lost since it was sent, itself included (C.lost - P.lost).
    pub(crate) lost_bytes: u64,
    /// The application bounded the rate when it was sent.
    pub(crate) is_app_limited: bool,
}

impl Loss {
    /// Whether more of the flight around this record was lost than around `other`.
    fn is_worse_than(&self, other: &Self) -> bool {
        u128::from(self.lost_bytes) * u128::from(other.tx_in_flight_bytes)
            >= u128::from(other.lost_bytes) * u128::from(self.tx_in_flight_bytes)
    }
}

impl RateSample {
    /// Bytes per second, if the sample holds a rate.
    pub(crate) fn rate(&self) -> Option<u64> {
        let interval_ns = self.interval?.as_nanos().max(1);
        let rate = u128::from(self.delivered_bytes) * 1_000_000_000 / interval_ns;
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

/// The sums at the time something was sent; part of its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    delivered_bytes: u64,
    lost_bytes: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    in_flight_bytes: u32,
    is_app_limited: bool,
}

impl Snapshot {
    /// What was in flight behind it, itself included.
    pub(crate) fn in_flight_bytes(&self) -> u32 {
        self.in_flight_bytes
    }

    /// Its record goes on with what was sent later.
    pub(crate) fn on_joined(&mut self, later: &Self) {
        self.in_flight_bytes = later.in_flight_bytes;
    }
}

/// The estimator of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeliveryRate {
    /// C.delivered.
    delivered_bytes: u64,
    /// C.lost.
    lost_bytes: u64,
    /// C.delivered_time.
    delivered_at: Instant,
    /// C.first_send_time: when the newest segment that was delivered had been sent.
    first_sent_at: Instant,
    /// C.app_limited: samples are limited until this much has been delivered; 0: they are not.
    app_limited_until_bytes: u64,
    /// In a box, as an idle connection has lost nothing.
    lost_since_sample: Option<Box<LostSince>>,
    /// The rate last measured, in bytes per second; 0: none was.
    last_rate: u64,
    /// The application bounded it.
    is_last_limited: bool,
}

/// What was found lost since the sample before, by an ACK or by a timer.
#[derive(Clone, Copy, Debug, Default)]
struct LostSince {
    bytes: u64,
    /// See [`RateSample::worst_loss`].
    worst: Option<Loss>,
}

/// What one ACK told so far; it lives no longer than its processing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gathered {
    newly_delivered_bytes: u32,
    /// Snapshot, time of sending and round trip of the newest segment delivered.
    newest: Option<(Snapshot, Instant, Option<Duration>)>,
    /// Since that was sent something was counted that had been before.
    is_recounted: bool,
}

impl Gathered {
    /// All has been gathered. The receiver reneged, or may have (RFC 2018, 8), so that up to this sum of what was
    /// delivered some was counted twice: what was sent before tells of no rate. (As in Linux.)
    pub(crate) fn leave_out_before(&mut self, recounted_until: u64) {
        let snapshot = self.newest.map(|(snapshot, ..)| snapshot);
        self.is_recounted = snapshot.is_some_and(|it| it.delivered_bytes < recounted_until);
    }
}

impl DeliveryRate {
    /// Data is sent, for the first time or again, while `in_flight_before` bytes are in flight and
    /// so that `in_flight_after` are. What comes back goes into the record.
    pub(crate) fn on_sent(
        &mut self,
        now: Instant,
        in_flight_before: u32,
        in_flight_after: u32,
    ) -> Snapshot {
        if in_flight_before == 0 {
            // A flight begins: the silence before it is not part of any interval.
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        Snapshot {
            delivered_bytes: self.delivered_bytes,
            lost_bytes: self.lost_bytes,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            in_flight_bytes: in_flight_after,
            is_app_limited: self.is_app_limited(),
        }
    }

    /// `bytes` of a record were delivered, last sent at `sent_at`; to be called once for each byte, but for those of
    /// which a report was forgotten ([`Gathered::leave_out_before`]), records in the order of their sequence numbers.
    /// `is_unsure`: its round trip is not known, because it was sent more than once or not at one instant. A round trip
    /// of zero is none: the clock stood still.
    pub(crate) fn on_delivered(
        &mut self,
        now: Instant,
        bytes: u32,
        snapshot: &Snapshot,
        sent_at: Instant,
        is_unsure: bool,
        gathered: &mut Gathered,
    ) {
        self.delivered_bytes += u64::from(bytes);
        self.delivered_at = now;
        gathered.newly_delivered_bytes = gathered.newly_delivered_bytes.saturating_add(bytes);
        if gathered.newest.is_none_or(|(_, newest_at, _)| sent_at >= newest_at) {
            let rtt = Some(now - sent_at).filter(|rtt| !is_unsure && !rtt.is_zero());
            gathered.newest = Some((*snapshot, sent_at, rtt));
        }
    }

    /// `bytes` of a record were found lost; to be called once for each time they were sent.
    pub(crate) fn on_lost(&mut self, bytes: u32, snapshot: &Snapshot) {
        self.lost_bytes += u64::from(bytes);
        let loss = Loss {
            len_bytes: bytes,
            tx_in_flight_bytes: snapshot.in_flight_bytes,
            lost_bytes: self.lost_bytes - snapshot.lost_bytes,
            is_app_limited: snapshot.is_app_limited,
        };
        let since = self.lost_since_sample.get_or_insert_default();
        since.bytes += u64::from(bytes);
        if since.worst.is_none_or(|worst| loss.is_worse_than(&worst)) {
            since.worst = Some(loss);
        }
    }

    /// What was found lost since the sample before says nothing of the path: it was not lost, or not for
    /// congestion.
    pub(crate) fn forgive_losses(&mut self) {
        if let Some(since) = &mut self.lost_since_sample {
            since.worst = None;
        }
    }

    /// The application has nothing to send although the window has room: what is in flight now will
    /// tell nothing of the path.
    pub(crate) fn on_app_limited(&mut self, in_flight_bytes: u32) {
        self.app_limited_until_bytes = (self.delivered_bytes + u64::from(in_flight_bytes)).max(1);
    }

    /// Whether what is sent now would tell nothing of the path ([`DeliveryRate::on_app_limited`]).
    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited_until_bytes != 0
    }

    /// What the ACK that was just taken in amounts to. `min_rtt`: the least round trip ever seen.
    /// `None` where it delivered nothing and nothing was lost.
    pub(crate) fn sample(
        &mut self,
        gathered: &Gathered,
        in_flight_bytes: u32,
        min_rtt: Option<Duration>,
    ) -> Option<RateSample> {
        if self.app_limited_until_bytes != 0 && self.delivered_bytes > self.app_limited_until_bytes
        {
            self.app_limited_until_bytes = 0;
        }
        if gathered.newest.is_none() && self.lost_since_sample.is_none() {
            return None;
        }
        let lost = self.lost_since_sample.take().map_or_else(LostSince::default, |since| *since);
        let mut sample = RateSample {
            total_delivered_bytes: self.delivered_bytes,
            prior_delivered_bytes: self.delivered_bytes,
            newly_delivered_bytes: gathered.newly_delivered_bytes,
            newly_lost_bytes: u32::try_from(lost.bytes).unwrap_or(u32::MAX),
            in_flight_bytes,
            worst_loss: lost.worst,
            ..RateSample::default()
        };
        let Some((snapshot, sent_at, rtt)) = gathered.newest else { return Some(sample) };
        self.first_sent_at = self.first_sent_at.max(sent_at);
        let send_elapsed = sent_at - snapshot.first_sent_at;
        let ack_elapsed = self.delivered_at - snapshot.delivered_at;
        let interval = send_elapsed.max(ack_elapsed);
        sample.prior_delivered_bytes = snapshot.delivered_bytes;
        sample.delivered_bytes = self.delivered_bytes - snapshot.delivered_bytes;
        sample.lost_bytes = self.lost_bytes - snapshot.lost_bytes;
        sample.tx_in_flight_bytes = snapshot.in_flight_bytes;
        sample.is_app_limited = snapshot.is_app_limited;
        sample.rtt = rtt;
        // Shorter than any round trip: the ACK was of an earlier copy of the segment.
        let plausible = !interval.is_zero() && min_rtt.is_none_or(|least| interval >= least);
        sample.interval = (plausible && !gathered.is_recounted).then_some(interval);
        self.remember(&sample);
        Some(sample)
    }

    /// As Linux reports it: the last rate that was not bounded by the application, or the highest of
    /// those that were.
    fn remember(&mut self, sample: &RateSample) {
        let Some(rate) = sample.rate() else { return };
        if !sample.is_app_limited || rate >= self.last_rate {
            (self.last_rate, self.is_last_limited) = (rate, sample.is_app_limited);
        }
    }

    /// The delivery rate last measured, in bytes per second, and whether the application bounded it.
    pub(crate) fn last(&self) -> Option<(u64, bool)> {
        (self.last_rate > 0).then_some((self.last_rate, self.is_last_limited))
    }

    /// Delivered in all, bytes.
    pub(crate) fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }

    /// Found lost in all, bytes.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_millis(1_000 + ms)
    }

    // draft-ietf-ccwg-bbr, 4.1.1: delivery_rate = data_acked / max(send_elapsed, ack_elapsed).
    #[test]
    fn the_rate_is_what_was_delivered_over_the_longer_of_both_ends() {
        let mut rate = DeliveryRate::default();
        let mut gathered = Gathered::default();
        let first = rate.on_sent(at(0), 0, 1_000);
        let second = rate.on_sent(at(10), 1_000, 2_000);
        rate.on_delivered(at(100), 1_000, &first, at(0), false, &mut gathered);
        let sample = rate.sample(&core::mem::take(&mut gathered), 1_000, None).expect("a sample");
        assert_eq!((sample.delivered_bytes, sample.prior_delivered_bytes), (1_000, 0));
        assert_eq!(sample.interval, Some(Duration::from_millis(100)));
        assert_eq!(sample.rtt, Some(Duration::from_millis(100)));
        assert_eq!(sample.rate(), Some(10_000));
        assert_eq!(sample.tx_in_flight_bytes, 1_000);
        // The ACK of the second is compressed towards the first: sending took longer than the ACKs.
        let third = rate.on_sent(at(101), 1_000, 2_000);
        rate.on_delivered(at(102), 1_000, &second, at(10), false, &mut gathered);
        let sample = rate.sample(&core::mem::take(&mut gathered), 1_000, None).expect("a sample");
        assert_eq!(sample.delivered_bytes, 2_000);
        assert_eq!(sample.interval, Some(Duration::from_millis(102)));
        rate.on_delivered(at(103), 1_000, &third, at(101), false, &mut gathered);
        let sample = rate.sample(&core::mem::take(&mut gathered), 0, None).expect("a sample");
        // Since the third was sent, at 101, 2,000 were delivered; it was sent 101 after the first.
        assert_eq!((sample.delivered_bytes, sample.prior_delivered_bytes), (2_000, 1_000));
        assert_eq!(sample.interval, Some(Duration::from_millis(101)));
    }

    // 4.1.2.3: "if RS.interval < MinRTT, the sample is discarded".
    #[test]
    fn an_interval_below_the_least_round_trip_is_no_rate() {
        let mut rate = DeliveryRate::default();
        let mut gathered = Gathered::default();
        let sent = rate.on_sent(at(0), 0, 1_000);
        rate.on_delivered(at(3), 1_000, &sent, at(0), true, &mut gathered);
        let sample = rate
            .sample(&core::mem::take(&mut gathered), 0, Some(Duration::from_millis(40)))
            .expect("a sample");
        assert_eq!((sample.interval, sample.rtt), (None, None));
        assert_eq!(sample.newly_delivered_bytes, 1_000);
        assert_eq!(rate.last(), None);
    }

    // 4.1.2.4: what was sent while the application limited it is marked, and what comes after is not.
    #[test]
    fn samples_are_marked_until_what_was_in_flight_is_delivered() {
        let mut rate = DeliveryRate::default();
        let mut gathered = Gathered::default();
        let _ = rate.on_sent(at(0), 0, 1_000);
        rate.on_app_limited(1_000);
        let limited = rate.on_sent(at(1), 1_000, 2_000);
        rate.on_delivered(at(41), 2_000, &limited, at(1), false, &mut gathered);
        assert!(
            rate.sample(&core::mem::take(&mut gathered), 0, None).expect("a sample").is_app_limited
        );
        let free = rate.on_sent(at(42), 0, 1_000);
        rate.on_delivered(at(82), 1_000, &free, at(42), false, &mut gathered);
        assert!(
            !rate
                .sample(&core::mem::take(&mut gathered), 0, None)
                .expect("a sample")
                .is_app_limited
        );
    }

    #[test]
    fn losses_are_counted_since_the_last_sample_and_since_the_segment_was_sent() {
        let mut rate = DeliveryRate::default();
        let mut gathered = Gathered::default();
        let first = rate.on_sent(at(0), 0, 1_000);
        rate.on_lost(500, &first);
        let second = rate.on_sent(at(1), 1_000, 2_000);
        let sample =
            rate.sample(&core::mem::take(&mut gathered), 2_000, None).expect("something was lost");
        assert_eq!((sample.newly_lost_bytes, sample.newly_delivered_bytes), (500, 0));
        rate.on_lost(70, &second);
        rate.on_lost(30, &first);
        rate.on_delivered(at(40), 1_000, &first, at(0), false, &mut gathered);
        rate.on_delivered(at(40), 1_000, &second, at(1), false, &mut gathered);
        let sample = rate.sample(&core::mem::take(&mut gathered), 0, None).expect("a sample");
        assert_eq!((sample.newly_lost_bytes, sample.lost_bytes), (100, 100));
        let worst = sample.worst_loss.expect("something was lost");
        assert_eq!((worst.len_bytes, worst.lost_bytes, worst.tx_in_flight_bytes), (30, 600, 1_000));
        assert!(rate.lost_since_sample.is_none());
        assert_eq!(rate.sample(&core::mem::take(&mut gathered), 0, None), None);
    }
}
