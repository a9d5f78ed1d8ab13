//! One direction of an emulated path: a rate, a queue in front of it, and a delay behind it.
//!
//! It keeps no time of its own: it is told the time and says when things are due, so it is tested
//! without waiting.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What a direction does to its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayLineConfig {
    /// Bits a second, Ethernet's own 24 bytes around each frame (preamble, checksum, gap) included.
    pub rate_bits_per_s: u64,
    /// From the last bit on the wire to the receiver.
    pub delay: Duration,
    /// Bytes that wait in front of the wire at most; what comes then is lost (drop tail).
    pub queue_bytes_max: usize,
}

/// Preamble, frame check sequence and gap between frames (IEEE 802.3).
const FRAME_OVERHEAD_BYTES: usize = 24;

/// The shortest frame, without its frame check sequence.
const FRAME_LEN_MIN: usize = 60;

/// Frames on their way in one direction.
#[derive(Debug)]
pub struct DelayLine {
    config: DelayLineConfig,
    /// When the wire is free.
    free_at: Option<Instant>,
    frames: VecDeque<(Instant, Vec<u8>)>,
    overflowed: u64,
}

impl DelayLine {
    /// An empty line.
    #[must_use]
    pub fn new(config: DelayLineConfig) -> Self {
        Self { config, free_at: None, frames: VecDeque::new(), overflowed: 0 }
    }

    /// A frame enters. Says whether the queue had room for it.
    pub fn push(&mut self, now: Instant, frame: &[u8]) -> bool {
        let start = self.free_at.map_or(now, |free_at| free_at.max(now));
        if self.bytes_in(start - now) > self.config.queue_bytes_max as u128 {
            self.overflowed += 1;
            return false;
        }
        let len = frame.len().max(FRAME_LEN_MIN) + FRAME_OVERHEAD_BYTES;
        let nanos = len as u64 * 8 * 1_000_000_000 / self.config.rate_bits_per_s.max(1);
        let sent = start + Duration::from_nanos(nanos);
        self.free_at = Some(sent);
        self.frames.push_back((sent + self.config.delay, frame.to_vec()));
        true
    }

    /// How many bytes the wire takes in this time.
    fn bytes_in(&self, time: Duration) -> u128 {
        time.as_nanos() * u128::from(self.config.rate_bits_per_s) / 8_000_000_000
    }

    /// The next frame, where it has arrived.
    pub fn pop(&mut self, now: Instant) -> Option<Vec<u8>> {
        let (due, _) = self.frames.front()?;
        if *due > now {
            return None;
        }
        self.frames.pop_front().map(|(_, frame)| frame)
    }

    /// When the next frame arrives.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.frames.front().map(|(due, _)| *due)
    }

    /// Frames that found the queue full.
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(queue_bytes_max: usize) -> DelayLine {
        DelayLine::new(DelayLineConfig {
            rate_bits_per_s: 1_000_000_000,
            delay: Duration::from_millis(5),
            queue_bytes_max,
        })
    }

    #[test]
    fn a_frame_takes_its_time_on_the_wire_and_then_the_delay() {
        let (mut line, now) = (line(1 << 20), Instant::now());
        assert!(line.push(now, &[0; 1514]));
        // (1514 + 24) bytes at 1 Gbit/s.
        let due = now + Duration::from_nanos(12_304) + Duration::from_millis(5);
        assert_eq!(line.next_due(), Some(due));
        assert_eq!(line.pop(due - Duration::from_nanos(1)), None);
        assert_eq!(line.pop(due).map(|frame| frame.len()), Some(1514));
        assert_eq!(line.pop(due), None);
    }

    #[test]
    fn frames_follow_each_other_at_the_rate_and_in_order() {
        let (mut line, now) = (line(1 << 20), Instant::now());
        for number in 0..100 {
            assert!(line.push(now, &[number; 1514]));
        }
        let end = now + Duration::from_millis(5) + Duration::from_nanos(100 * 12_304);
        assert_eq!(line.frames.back().map(|(due, _)| *due), Some(end));
        let order: Vec<u8> = std::iter::from_fn(|| line.pop(end)).map(|frame| frame[0]).collect();
        assert_eq!(order, (0..100).collect::<Vec<u8>>());
    }

    #[test]
    fn what_finds_the_queue_full_is_lost_and_counted() {
        let (mut line, now) = (line(10 * 1538), Instant::now());
        let taken = (0..100).filter(|_| line.push(now, &[0; 1514])).count();
        // One on the wire, ten behind it, and the one that finds exactly ten.
        assert!((11..=12).contains(&taken), "{taken}");
        assert_eq!(line.overflowed(), 100 - taken as u64);
        assert!(line.push(now + Duration::from_millis(1), &[0; 1514]), "it drained");
    }
}
