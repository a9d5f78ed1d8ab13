//! TIME-WAIT without a connection (RFC 9293, 3.10.7.4): the little that is needed to answer what is
//! late, and to know whether a new SYN is new.
//!
//! A host that closes first keeps TIME-WAIT for every connection it had within the last minute. By
//! then the application is gone and no data can come, so a connection would be mostly empty queues.

use crate::connection::Connection;
use crate::options::Timestamps;
use crate::state::State;
use counters::DropReason;
use time::{Duration, Instant};
use wire::{SeqNumber, TcpFlags, TcpHeader, TcpOptions};

/// Time between two answers to segments outside the window (RFC 5961, 7).
const ANSWER_INTERVAL: Duration = Duration::from_millis(500);

/// RFC 6191, 2: how much later by its timestamps a connection must be to follow another at once.
const REUSE_AFTER: Duration = Duration::from_secs(1);

/// A connection in TIME-WAIT.
#[derive(Clone, Copy, Debug)]
pub struct TimeWait {
    local_port: u16,
    remote_port: u16,
    /// SND.NXT.
    send_next: SeqNumber,
    /// RCV.NXT.
    receive_next: SeqNumber,
    window_field: u16,
    timestamps: Option<Timestamps>,
    answered_at: Option<Instant>,
    entered_at: Instant,
    /// 2 MSL, as the connection had it.
    lifetime: Duration,
}

/// What a segment in TIME-WAIT asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeWaitVerdict {
    /// A SYN that may begin a new connection; its ISS must be at or after this.
    Replace(SeqNumber),
    /// The FIN came again: answer with [`TimeWait::acknowledgment`] and wait 2 MSL from now.
    Restart,
    /// Answer with [`TimeWait::acknowledgment`].
    Acknowledge,
    /// Nothing.
    Drop(DropReason),
}

impl Connection {
    /// What is left of this connection where that is TIME-WAIT and nothing is owed.
    #[must_use]
    pub fn time_wait(&self, now: Instant) -> Option<TimeWait> {
        (self.state == State::TimeWait && !self.wants_transmit(now)).then(|| TimeWait {
            local_port: self.local_port,
            remote_port: self.remote_port,
            send_next: self.sender.sequence.max,
            receive_next: self.receiver.queue.next(),
            window_field: self.receiver.window_field(&self.negotiated),
            timestamps: self.negotiated.timestamps,
            answered_at: None,
            entered_at: now,
            lifetime: self.config.time_wait,
        })
    }
}

impl TimeWait {
    /// Judges a segment with `payload_len` bytes.
    pub fn on_segment(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        payload_len: u32,
    ) -> TimeWaitVerdict {
        let has = |flag| header.flags.contains(flag);
        if has(TcpFlags::RST) {
            // RFC 1337, 3 (fix F1): a reset does not end TIME-WAIT before its time.
            return TimeWaitVerdict::Drop(DropReason::TimeWaitReset);
        }
        if has(TcpFlags::SYN) && !has(TcpFlags::ACK) && self.may_be_replaced_by(now, header) {
            return TimeWaitVerdict::Replace(self.send_next + 1);
        }
        let len = payload_len + u32::from(has(TcpFlags::SYN)) + u32::from(has(TcpFlags::FIN));
        let end = header.sequence + len;
        if has(TcpFlags::FIN) && end == self.receive_next && !self.is_old(now, header) {
            return TimeWaitVerdict::Restart;
        }
        if len == 0 && header.sequence == self.receive_next && !self.is_old(now, header) {
            return TimeWaitVerdict::Drop(DropReason::BadState);
        }
        if self.answered_at.is_some_and(|at| now - at < ANSWER_INTERVAL) {
            return TimeWaitVerdict::Drop(DropReason::OutOfWindow);
        }
        self.answered_at = Some(now);
        TimeWaitVerdict::Acknowledge
    }

    /// How long it lasts from its beginning, and from each restart.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// The ACK that says where the connection stood.
    #[must_use]
    pub fn acknowledgment(&self, now: Instant) -> TcpHeader {
        TcpHeader {
            source_port: self.local_port,
            destination_port: self.remote_port,
            sequence: self.send_next,
            acknowledgment: self.receive_next,
            flags: TcpFlags::ACK,
            window: self.window_field,
            urgent: 0,
            options: TcpOptions {
                timestamps: self.timestamps.map(|timestamps| timestamps.option(now)),
                ..TcpOptions::default()
            },
        }
    }

    /// Whether this side may open a new connection between the same ports (RFC 6191 from the other
    /// end): timestamps tell its segments from those of the old one once their clock has moved on.
    /// The new ISS must be at or after what is returned.
    #[must_use]
    pub fn may_be_reused(&self, now: Instant) -> Option<SeqNumber> {
        let reusable = self.timestamps.is_some() && now - self.entered_at >= REUSE_AFTER;
        reusable.then_some(self.send_next + 1)
    }

    /// Whether it ends for a new connection after a while.
    #[must_use]
    pub fn has_timestamps(&self) -> bool {
        self.timestamps.is_some()
    }

    fn is_old(&self, now: Instant, header: &TcpHeader) -> bool {
        match (&self.timestamps, header.options.timestamps) {
            (Some(ours), Some(theirs)) => ours.is_old(now, theirs.value),
            _ => false,
        }
    }

    /// RFC 6191, 2.
    fn may_be_replaced_by(&self, now: Instant, syn: &TcpHeader) -> bool {
        replaces(now, self.timestamps.as_ref(), self.receive_next, syn)
    }
}

/// Whether `syn` is beyond all that the old connection saw: by its timestamp, or where those are
/// equal or missing, by its sequence number.
pub(crate) fn replaces(
    now: Instant,
    timestamps: Option<&Timestamps>,
    receive_next: SeqNumber,
    syn: &TcpHeader,
) -> bool {
    match (timestamps, syn.options.timestamps) {
        (Some(ours), Some(theirs)) => {
            let is_same = theirs.value == ours.option(now).echo;
            !ours.is_old(now, theirs.value) && (!is_same || syn.sequence.is_after(receive_next))
        }
        _ => syn.sequence.is_after(receive_next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::harness::{ACK, FIN, Harness, RST, SYN, plain_config};
    use crate::{Config, MSS_DEFAULT_IPV4};
    use wire::TcpTimestamps;

    fn time_wait(timestamps: bool) -> (Harness, TimeWait) {
        let clock = timestamps.then_some(TcpTimestamps { value: 500, echo: 0 });
        let options =
            TcpOptions { mss: Some(MSS_DEFAULT_IPV4), timestamps: clock, ..TcpOptions::default() };
        let config = Config { timestamps, ..plain_config() };
        let mut harness = Harness::established_with(config, options);
        harness.connection.shutdown_write();
        harness.take();
        harness.receive(FIN | ACK, 1, 2, b"");
        assert!(harness.connection.time_wait(harness.now).is_none(), "the ACK is owed first");
        harness.take();
        let kept = harness.connection.time_wait(harness.now).expect("nothing is owed");
        (harness, kept)
    }

    // RFC 9293, 3.10.7.4; RFC 1337, 3; RFC 6191, 2.
    #[test]
    fn what_comes_in_time_wait_is_answered_or_not() {
        let (harness, kept) = time_wait(false);
        let verdict = |flags, sequence, len| {
            let header = harness.header(flags, sequence, 2);
            kept.clone().on_segment(harness.now, &header, len)
        };
        let next = harness.connection.next_isn_min();
        assert_eq!(verdict(RST, 2, 0), TimeWaitVerdict::Drop(DropReason::TimeWaitReset));
        assert_eq!(verdict(FIN | ACK, 1, 0), TimeWaitVerdict::Restart);
        assert_eq!(verdict(ACK, 2, 0), TimeWaitVerdict::Drop(DropReason::BadState));
        assert_eq!(verdict(ACK, 1, 0), TimeWaitVerdict::Acknowledge);
        assert_eq!(verdict(ACK, 2, 10), TimeWaitVerdict::Acknowledge);
        assert_eq!(verdict(SYN, 2, 0), TimeWaitVerdict::Acknowledge);
        assert_eq!(verdict(SYN, 3, 0), TimeWaitVerdict::Replace(next));
        assert_eq!(verdict(SYN | ACK, 3, 0), TimeWaitVerdict::Acknowledge);
        let ack = kept.acknowledgment(harness.now);
        assert_eq!((ack.flags, ack.sequence + 1), (ACK, next));
    }

    // RFC 6191, 2: the timestamp decides, whatever the sequence number.
    #[test]
    fn a_later_timestamp_begins_anew() {
        let (mut harness, kept) = time_wait(true);
        for (value, sequence, replaces) in
            [(501, 0, true), (500, 3, true), (500, 1, false), (499, 9, false)]
        {
            harness.options.timestamps = Some(TcpTimestamps { value, echo: 0 });
            let header = harness.header(SYN, sequence, 0);
            let verdict = kept.clone().on_segment(harness.now, &header, 0);
            let replaced = matches!(verdict, TimeWaitVerdict::Replace(_));
            assert_eq!(replaced, replaces, "{value} {sequence}");
        }
        assert_eq!(kept.may_be_reused(harness.now), None);
        assert!(kept.may_be_reused(harness.now + REUSE_AFTER).is_some());
    }

    // RFC 9293, 3.10.7.4, first, and RFC 7323, 5.3, R1: what is old by its timestamp is answered, and no more.
    #[test]
    fn a_late_copy_of_the_fin_does_not_begin_the_wait_anew() {
        let (mut harness, kept) = time_wait(true);
        for (value, expected) in [
            (499, TimeWaitVerdict::Acknowledge),
            (500, TimeWaitVerdict::Restart),
            (501, TimeWaitVerdict::Restart),
        ] {
            harness.options.timestamps = Some(TcpTimestamps { value, echo: 0 });
            let header = harness.header(FIN | ACK, 1, 2);
            assert_eq!(kept.clone().on_segment(harness.now, &header, 0), expected, "{value}");
        }
    }

    // RFC 7323, 5.3, R1: what is older than what was here is not acceptable, and is acknowledged though there is nothing
    // in it.
    #[test]
    fn an_old_timestamp_is_answered() {
        let (mut harness, kept) = time_wait(true);
        let answers = [
            (499, TimeWaitVerdict::Acknowledge),
            (500, TimeWaitVerdict::Drop(DropReason::BadState)),
        ];
        for (value, verdict) in answers {
            harness.options.timestamps = Some(TcpTimestamps { value, echo: 0 });
            let header = harness.header(ACK, 2, 2);
            assert_eq!(kept.clone().on_segment(harness.now, &header, 0), verdict, "{value}");
        }
    }

    // RFC 5961, 7: two hosts must not answer each other for ever.
    #[test]
    fn answers_are_limited() {
        let (harness, mut kept) = time_wait(false);
        let header = harness.header(ACK, 1, 2);
        let mut answers = 0;
        for round in 0..1_000 {
            let now = harness.now + Duration::from_millis(round);
            answers += u32::from(kept.on_segment(now, &header, 0) == TimeWaitVerdict::Acknowledge);
        }
        assert_eq!(answers, 2);
    }
}
