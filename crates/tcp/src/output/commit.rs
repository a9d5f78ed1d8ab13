//! What the device took has happened.

use super::{Kind, Planned};
use crate::connection::Connection;
use crate::info::count;
use crate::receiver::acknowledging::Owed;
use crate::sender::congestion::Congestion as _;
use crate::sender::recovery::Again;
use crate::timers::Timer;
use counters::trace;
use time::Instant;
use wire::SeqNumber;

impl Connection {
    /// The device took the first `taken` segments of the last [`Connection::poll_transmit`].
    pub fn on_transmitted(&mut self, now: Instant, taken: usize) {
        let mut segments = core::mem::take(&mut self.plan.segments);
        let taken = cut(&mut segments, &mut self.counters.segments_forgotten, taken);
        let flight_before = self.sender.sequence.flight();
        // The SYN is not among what is recorded.
        let nxt_before = self.behind_syn(self.sender.sequence.nxt);
        for segment in &segments {
            self.on_segment_sent(now, segment);
        }
        if self.pacing_rate().is_some() {
            let bytes = segments.iter().map(Planned::bytes).sum();
            self.sender.on_paced(
                now,
                bytes,
                flight_before,
                &self.config,
                self.negotiated.payload_max(),
            );
        }
        self.plan.segments = segments;
        self.plan.segments.clear();
        if self.sender.queue.len() == 0 {
            self.plan.release();
        }
        if taken == 0 {
            return;
        }
        self.counters.segments_sent += taken as u64;
        self.totals.segments_sent += taken as u64;
        self.sender.note_wait(now, self.plan.window_closed);
        let app_limited = self.sender.recovery.rate.is_app_limited();
        if self.sender.sequence.nxt.is_after(nxt_before) {
            let spare = self.counters.spare_flight();
            self.sender.recovery.on_sent(now, nxt_before, &self.sender.sequence, spare);
            self.arm_probe_timer(now);
            // Less than a segment is the application's doing, too: Nagle or a cork holds it back.
            let unsent = self.sender.unsent_len();
            if !self.sender.window_use.is_limited && unsent < self.negotiated.payload_max() {
                let pipe = self.sender.recovery.pipe(&self.sender.sequence);
                self.sender.recovery.rate.on_app_limited(pipe);
            }
        }
        if flight_before == 0 && self.sender.sequence.flight() > 0 {
            // What ended when the window was full was not marked as what the application limits; a silence is.
            let app_limited =
                core::mem::take(&mut self.sender.window_use.after_silence) || app_limited;
            self.sender.congestion.on_flight_start(now, app_limited);
        }
        self.arm_persist(now);
        self.arm_pacing(now);
    }

    fn on_segment_sent(&mut self, now: Instant, segment: &Planned) {
        match segment.kind {
            Kind::Reset => {
                self.owing.reset = self.reset_behind_probe();
                self.counters.resets_sent += 1;
                return;
            }
            Kind::Syn => {
                self.owing.syn = false;
                let first = self.sender.sequence.nxt == self.sender.sequence.iss;
                self.sender.sequence.on_sent(self.sender.sequence.iss + 1);
                if self.is_opening_fast() {
                    self.sender.sequence.on_ack(self.sender.sequence.iss + 1);
                }
                // Karn: of two it could not be told which was answered.
                self.sender.syn_sent_at = if first { now } else { Instant::ZERO };
                self.counters.retransmitted_segments += u64::from(!first);
                count(&mut self.totals.segments_retransmitted, u32::from(!first));
                // A SYN-ACK that the peer's own repetition asked for does not put off the timeout.
                self.timers.set_if_idle(Timer::Retransmission, self.sender.rtt.expires_at(now));
                if let Some(user_timeout) = self.user_timeout() {
                    self.timers.set_if_idle(Timer::User, now + user_timeout);
                }
                self.sender.sequence.max =
                    self.sender.sequence.max.later_of(self.sender.sequence.iss + 1 + segment.len);
                // The window of a SYN is not scaled and was taken note of when the peer's came.
                self.receiver.last_ack_sent = self.plan.acknowledgment;
                self.receiver.acks.on_sent();
                return;
            }
            Kind::Again => self.on_sent_again(now, segment),
            Kind::New => self.on_new_sent(now, segment),
            Kind::LossProbe => self.on_loss_probe_sent(now, segment),
            Kind::MtuProbe => {
                self.on_new_sent(now, segment);
                self.on_mtu_probe_sent(segment.sequence, segment.len);
            }
            Kind::WindowProbe => {
                self.owing.window_probe = false;
                self.sender.sequence.max = self.sender.sequence.max.later_of(segment.end());
                self.unanswered.window_probes = self.unanswered.window_probes.saturating_add(1);
                self.unanswered.persist_backoff = self.unanswered.persist_backoff.saturating_add(1);
                self.counters.window_probes_sent += 1;
            }
            Kind::KeepaliveProbe => {
                self.owing.keepalive_probe = false;
                self.counters.keepalive_probes_sent += 1;
            }
            Kind::Due => return self.on_due_sent(now),
            Kind::Ack => {
                self.receiver.acks.on_repeat_sent();
                self.counters.pure_acks_sent += 1;
                if self.receiver.duplicates.next().is_some() {
                    self.receiver.on_duplicate_reported(&mut self.counters);
                }
            }
        }
        self.on_ack_carried();
    }

    #[inline]
    fn on_new_sent(&mut self, now: Instant, segment: &Planned) {
        let end = segment.end();
        self.owing.window_probe = false;
        self.sender.last_data_sent_at = now;
        self.sender.window_use.is_decayed = false;
        self.sender.sequence.on_sent(end);
        if segment.len > 0 {
            self.receiver.acks.on_answer(now);
        }
        if segment.len > 0 && segment.len < self.plan.full && !segment.is_cut {
            self.sender.sequence.on_small_sent(end);
        }
        self.counters.bytes_sent += u64::from(segment.bytes());
        self.totals.bytes_sent += u64::from(segment.bytes());
        self.totals.data_segments_sent += u64::from(segment.count);
        self.counters.data_segments_sent += u64::from(segment.count);
        if segment.len > 0 && self.sender.ecn.owes_cwr() {
            self.sender.ecn.on_cwr_sent();
        }
        if !self.timers.is_set(Timer::Retransmission) {
            self.timers.set(Timer::Retransmission, self.sender.rtt.expires_at(now));
            self.timers.stop(Timer::Persist);
            if let Some(user_timeout) = self.user_timeout() {
                self.timers.set_if_idle(Timer::User, now + user_timeout);
            }
        }
    }

    fn on_sent_again(&mut self, now: Instant, segment: &Planned) {
        trace!(
            local_port = self.local_port,
            remote_port = self.remote_port,
            sequence = segment.sequence.0,
            len = segment.len,
            "sent again"
        );
        self.sender.last_data_sent_at = now;
        self.sender.window_use.is_decayed = false;
        self.counters.retransmitted_segments += 1;
        self.counters.retransmitted_bytes += u64::from(segment.len);
        count(&mut self.totals.segments_retransmitted, 1);
        self.totals.bytes_retransmitted += u64::from(segment.len);
        let len = segment.len + u32::from(segment.fin);
        let timestamp = self.negotiated.timestamps.map(|ours| ours.option(now).value);
        let again = Again { sequence: segment.sequence, len };
        self.sender.recovery.on_sent_again(now, again, &self.sender.sequence, timestamp);
        if segment.sequence == self.sender.sequence.una {
            // The timer stands for the first segment, which has just left once more.
            self.timers.set(Timer::Retransmission, self.sender.rtt.expires_at(now));
        } else {
            self.timers.set_if_idle(Timer::Retransmission, self.sender.rtt.expires_at(now));
        }
    }

    /// A segment of `len` bytes was sent to find out whether the path takes it.
    fn on_mtu_probe_sent(&mut self, start: SeqNumber, len: u32) {
        let options = u32::from(self.negotiated.mss_path())
            .saturating_sub(self.receiver.payload_room(&self.negotiated));
        let mss = u16::try_from(len + options).unwrap_or(u16::MAX);
        // One that came out no longer than the others, for want of spans, tells nothing.
        if mss > self.sender.path_mtu.mss() {
            self.sender.path_mtu.on_probe_sent(start, start + len, mss);
            self.counters.mtu_probes_sent += 1;
        }
    }

    fn on_loss_probe_sent(&mut self, now: Instant, segment: &Planned) {
        self.counters.tail_loss_probes += 1;
        let again = segment.end().is_at_or_before(self.sender.sequence.nxt);
        let flight_bytes = self.sender.recovery.flight_at_last();
        if again {
            self.on_sent_again(now, segment);
        } else {
            self.on_new_sent(now, segment);
        }
        let again_from = again.then_some(segment.sequence);
        self.sender.recovery.probe.on_sent(self.sender.sequence.nxt, again_from, flight_bytes);
        // RFC 8985, 7.3: "the sender MUST re-arm the RTO timer".
        self.timers.set(Timer::Retransmission, self.sender.rtt.expires_at(now));
    }

    /// An ACK of an earlier number was taken.
    #[cold]
    fn on_due_sent(&mut self, now: Instant) {
        let Some(due) = self.receiver.acks.on_due_sent() else { return };
        self.counters.pure_acks_sent += 1;
        self.counters.immediate_acks += 1;
        // Its window, as far as it reaches beyond what arrived behind its number.
        let shift = self.negotiated.receive_shift;
        let announced = (self.due_window(due.number) >> shift).min(u16::MAX.into()) << shift;
        let behind = self.receiver.queue.next().offset_from(due.number);
        self.receiver.queue.on_announced(announced.saturating_sub(behind), shift);
        match self.receiver.acks.owed() {
            Owed::Nothing => self.timers.stop(Timer::DelayedAck),
            // The time of a segment behind it begins with that.
            Owed::Later => {
                self.timers.set(Timer::DelayedAck, now + self.config.deferred_acks_interval);
            }
            Owed::Now => {}
        }
    }

    /// A segment with this poll's acknowledgment and window was taken.
    #[inline]
    fn on_ack_carried(&mut self) {
        if self.plan.acknowledgment != self.receiver.queue.next() {
            return;
        }
        if self.receiver.acks.owed() != Owed::Nothing {
            if self.receiver.acks.owed() == Owed::Now {
                self.counters.immediate_acks += 1;
            }
            self.receiver.acks.on_sent();
            self.timers.stop(Timer::DelayedAck);
        }
        self.receiver.last_ack_sent = self.plan.acknowledgment;
        self.receiver.queue.on_announced(self.plan.window, self.negotiated.receive_shift);
    }
}

/// Cuts what was planned to its first `taken` segments, or all of them where there are fewer: says how
/// many are left, and adds the others to `forgotten`.
fn cut(planned: &mut Vec<Planned>, forgotten: &mut u64, taken: usize) -> usize {
    let (mut left, mut kept) = (taken, 0);
    for segment in planned.iter_mut() {
        let count = left.min(segment.count as usize);
        *forgotten += u64::from(segment.count) - count as u64;
        left -= count;
        if count > 0 {
            kept += 1;
            segment.count = count as u32;
        }
    }
    planned.truncate(kept);
    taken - left
}
