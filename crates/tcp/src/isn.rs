//! Initial sequence numbers and timestamp offsets that an outsider cannot guess.
//!
//! RFC 6528 (RFC 9293, 3.4.1): `ISN = M + F(local, remote, key)`, where M is a clock of 4 us
//! steps and F a keyed pseudo-random function of the four-tuple. For one four-tuple the numbers
//! rise with time, so that segments of an older incarnation are told apart; between four-tuples
//! they say nothing about each other. F is SipHash-2-4 under a 128-bit key that the embedder
//! draws once per stack.
//!
//! RFC 7323, 5.4 advises the same for the timestamp clock: a random offset per connection hides
//! the uptime and stops one connection's clock from telling another's. It is fixed per four-tuple,
//! because PAWS and a reused TIME-WAIT need timestamps that never step back.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;
use time::Instant;
use wire::SeqNumber;

/// One step of M takes 4 us (RFC 6528, 3).
const CLOCK_STEP_NS: u64 = 4_000;

/// Draws initial sequence numbers and timestamp offsets from one key.
#[derive(Clone)]
pub struct IsnGenerator {
    key: [u8; 16],
}

/// What a hash is for; keeps one purpose's values from revealing another's.
#[derive(Clone, Copy)]
enum Purpose {
    SequenceNumber = 1,
    TimestampOffset = 2,
}

impl IsnGenerator {
    /// A generator for `key`, 16 bytes from a cryptographic random source, secret to the stack.
    #[must_use]
    pub fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// The initial sequence number of a connection that begins at `now`.
    #[must_use]
    pub fn initial_sequence(
        &self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> SeqNumber {
        // M is a 32-bit clock: it wraps every 4.77 hours, as intended.
        let clock = low_32_bits(now.as_nanos() / CLOCK_STEP_NS);
        SeqNumber(self.hash(Purpose::SequenceNumber, local, remote)) + clock
    }

    /// What the connection adds to its timestamp clock (RFC 7323, 5.4).
    #[must_use]
    pub fn timestamp_offset(&self, local: SocketAddr, remote: SocketAddr) -> u32 {
        self.hash(Purpose::TimestampOffset, local, remote)
    }

    fn hash(&self, purpose: Purpose, local: SocketAddr, remote: SocketAddr) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&[purpose as u8]);
        write_ends(&mut hasher, local, remote);
        low_32_bits(hasher.finish())
    }
}

/// Never shows the key.
impl core::fmt::Debug for IsnGenerator {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("IsnGenerator").finish_non_exhaustive()
    }
}

/// Family, address and port of both ends. The family stands first, so that no two pairs of addresses give the same bytes;
/// they are written as one, because SipHash puts short writes together with care.
pub(crate) fn write_ends(hasher: &mut SipHasher24, local: SocketAddr, remote: SocketAddr) {
    let mut bytes = [0; 2 * (1 + 16 + 2)];
    let mut len = 0;
    let mut push = |part: &[u8]| {
        bytes[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    };
    for end in [local, remote] {
        match end.ip() {
            IpAddr::V4(ip) => {
                push(&[4]);
                push(&ip.octets());
            }
            IpAddr::V6(ip) => {
                push(&[6]);
                push(&ip.octets());
            }
        }
        push(&end.port().to_be_bytes());
    }
    hasher.write(&bytes[..len]);
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
pub(crate) const fn low_32_bits(value: u64) -> u32 {
    value as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use std::collections::HashSet;
    use time::Duration;

    fn v4(last: u8, port: u16) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::new(10, 0, 0, last).into(), port)
    }

    #[test]
    fn rises_by_one_every_four_microseconds() {
        let generator = IsnGenerator::new([7; 16]);
        let start = Instant::from_millis(5);
        let first = generator.initial_sequence(start, v4(1, 80), v4(2, 9000));
        for (later_us, steps) in [(3, 0), (4, 1), (4_000, 1_000), (4_000_000, 1_000_000)] {
            let later = start + Duration::from_micros(later_us);
            let second = generator.initial_sequence(later, v4(1, 80), v4(2, 9000));
            assert_eq!(second.distance(first), steps);
        }
        // The clock wraps with the sequence space instead of overflowing.
        let _ = generator.initial_sequence(Instant::from_nanos(u64::MAX), v4(1, 80), v4(2, 9000));
    }

    #[test]
    fn every_part_of_the_four_tuple_and_the_key_counts() {
        let now = Instant::ZERO;
        let ip6 = |last| SocketAddr::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last).into(), 80);
        let tuples = [
            (v4(1, 80), v4(2, 9000)),
            (v4(2, 9000), v4(1, 80)),
            (v4(1, 81), v4(2, 9000)),
            (v4(3, 80), v4(2, 9000)),
            (v4(1, 80), v4(3, 9000)),
            (v4(1, 80), v4(2, 9001)),
            (ip6(1), ip6(2)),
            (ip6(1), ip6(3)),
        ];
        let mut seen = HashSet::new();
        for key in [[0; 16], [1; 16]] {
            let generator = IsnGenerator::new(key);
            for (local, remote) in tuples {
                assert!(seen.insert(generator.initial_sequence(now, local, remote).0));
                assert!(seen.insert(generator.timestamp_offset(local, remote)));
            }
        }
    }

    #[test]
    fn the_same_connection_gets_the_same_values() {
        let (one, other) = (IsnGenerator::new([9; 16]), IsnGenerator::new([9; 16]));
        let (local, remote) = (v4(1, 80), v4(2, 9000));
        assert_eq!(one.timestamp_offset(local, remote), other.timestamp_offset(local, remote));
        assert_eq!(
            one.initial_sequence(Instant::ZERO, local, remote),
            other.initial_sequence(Instant::ZERO, local, remote)
        );
    }

    #[test]
    fn debug_output_does_not_show_the_key() {
        assert!(!format!("{:?}", IsnGenerator::new([0xab; 16])).contains("171"));
    }
}
