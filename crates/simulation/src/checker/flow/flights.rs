//! How much is sent at once, how little, and when again.

use super::Flow;
use crate::checker::{Broken, Circumstances};
use crate::packet::{Segment, flag};
use time::{Duration, Instant};

/// RFC 6298, 2.5: a bound on the RTO of at least 60 s; gaps near it need not double any more.
const BACKOFF_ENDS: Duration = Duration::from_secs(50);

/// Gaps shorter than this are not those of a timer.
const TIMER_MIN: Duration = Duration::from_millis(5);

/// The least RTO (RFC 6298, 2.4 has a second; everybody a fifth of it).
const RTO_MIN: Duration = Duration::from_millis(200);

/// Repetitions of the same first position without anything having arrived in between.
#[derive(Clone, Debug)]
pub(super) struct Repeats {
    pub(super) position: u64,
    len: u32,
    pub(super) last_at: Instant,
    /// The two gaps before, the older first.
    gaps: [Option<Duration>; 2],
    /// The neighbour was asked for since the last: what the timer sends may have waited for the answer.
    pub(super) has_waited: bool,
    /// Bytes sent with the last, and behind it.
    since_last: u64,
}

impl Repeats {
    /// Nothing of it was sent before.
    pub(super) fn new(now: Instant, position: u64, len: u32) -> Self {
        Self {
            position,
            len,
            last_at: now,
            gaps: [None, None],
            has_waited: false,
            since_last: len.into(),
        }
    }
}

impl Flow {
    /// What is in flight, where the last segment carried new data, and for how long nothing had moved before it.
    pub(crate) fn new_flight(&self) -> Option<(u64, Duration)> {
        self.sent_new.map(|quiet| (self.end - self.acked, quiet))
    }

    /// How much may be sent at once, and how little.
    pub(super) fn judge_flight(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        circumstances: Circumstances,
    ) -> Result<(), Broken> {
        if segment.payload.is_empty() {
            return Ok(());
        }
        let position = self.position(segment.sequence);
        let end = position + segment.payload.len() as u64;
        let mss = u64::from(self.mss());
        if self.is_first_flight && circumstances.host.initial_window_segments > 0 {
            let segments = u64::from(circumstances.host.initial_window_segments);
            let window = (segments * mss).min((segments * 1_460).max(2 * mss));
            // RFC 8985, 7.3: a probe is one more.
            if end - 1 > window + mss {
                let what = format!("{segment}: {} bytes, the window is {window}", end - 1);
                return Err(("RFC 6928, 2: the first flight is within the initial window", what));
            }
        }
        // What is sent again because a timer ran out makes room for other things.
        self.is_first_flight &= position >= self.end || position < self.syn_end;
        // The first repetition may be a tail loss probe (RFC 8985, 7.3).
        let timed_out = self.repeats.as_mut().filter(|it| it.gaps.iter().all(Option::is_some));
        if let Some(repeats) = timed_out.filter(|it| it.position != position) {
            repeats.since_last += segment.payload.len() as u64;
            if repeats.since_last > mss {
                let what = format!("{segment}: behind {repeats:?}, the MSS is {mss}");
                return Err(("RFC 5681, 3.1: one full segment at most after a timeout", what));
            }
        }
        let is_new = position == self.end && position >= self.data_end;
        // What acknowledges the urgent data may have come with old data, of which nothing is looked at.
        let is_alone =
            self.urgent_end <= self.acked_surely && segment.flags & (flag::FIN | flag::URG) == 0;
        let host = circumstances.host;
        let forgets = host.cookies && self.is_passive;
        let window_max = if forgets { self.peer_window.max_later } else { self.peer_window.max };
        let full = mss.min(window_max);
        if is_new && is_alone && host.nagle && end != self.peer_window.edge {
            self.nagle.judge(now, segment, (end, self.acked), full)?;
        }
        // A probe of a closed window is not yet the sending of its byte.
        let new_to = Some(end).filter(|end| is_new && *end <= self.peer_window.edge);
        self.nagle.on_sent(now, new_to, segment.payload.len(), full);
        Ok(())
    }

    /// RFC 6298, 5.5 and RFC 9293, 3.8.6.1: the timer backs off. A gap is compared with the one
    /// before the last, because the last may lack a repetition that never reached the device.
    /// `may_wait`: it may have waited for its neighbour.
    pub(super) fn judge_backoff(
        &mut self,
        now: Instant,
        position: u64,
        len: u32,
        may_wait: bool,
    ) -> Result<(), Broken> {
        let is_new = position >= self.end;
        let fresh = Some(Repeats::new(now, position, len));
        let Some(repeats) = &mut self.repeats else {
            self.repeats = fresh;
            return Ok(());
        };
        if is_new {
            return Ok(());
        }
        // What is cut anew is no repetition: a shorter one is sent at once where the path is found to take
        // less (RFC 1191, 6.4), a longer one where it takes more.
        if repeats.position != position || len != repeats.len {
            if position <= repeats.position {
                self.repeats = fresh;
            }
            return Ok(());
        }
        let gap = now.since(repeats.last_at);
        let [older, old] = repeats.gaps;
        let backs_off =
            |older: Duration| gap >= older.mul_f64(1.5) || gap >= BACKOFF_ENDS || older < TIMER_MIN;
        // RFC 4861, 7.2.2: what waits for an answer is sent when it comes, so the gap is longer than the timer's, and
        // the one behind it may be shorter: a SYN-ACK's timer has gone on meanwhile, and repetitions that waited for
        // the same answer leave together.
        let timed = Some(gap).filter(|_| !repeats.has_waited);
        let is_second = old.is_some() && timed.is_some() && !may_wait;
        *repeats = Repeats { gaps: [old, timed], ..Repeats::new(now, position, len) };
        // The first repetition may be a tail loss probe (RFC 8985, 7.3).
        if is_second && gap < RTO_MIN {
            let what = format!("position {position} again after {gap:?}, before that {old:?}");
            return Err(("RFC 6298, 2.4: the timer runs for the least RTO at least", what));
        }
        match older {
            Some(older) if old.is_some() && !backs_off(older) => Err((
                "RFC 6298, 5.5 and RFC 9293, 3.8.6.1: repetitions back off",
                format!("position {position} again after {gap:?}, before that {old:?}, {older:?}"),
            )),
            _ => Ok(()),
        }
    }
}
