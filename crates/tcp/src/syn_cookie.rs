//! SYN cookies (RFC 4987, 3.6): the half-open connection is kept by its peer.
//!
//! When the backlog is full, the ISS of the SYN-ACK says what would have been kept. It is laid out as
//! Linux does it, so that what is known of its strength holds here, but for three things:
//!
//! ```text
//!   ISS = F1(tuple, IRS) + IRS + (t << 24)
//!         + ((F2(tuple, t, options) + (index of the MSS << 21)) mod 2^24)
//! ```
//!
//! Linux leaves IRS out of F1 and the options out of F2, and does not shift the index. Then valid cookies are neighbours: a
//! segment that is a few bytes further on in the stream brings one with a smaller index, so that where
//! the ACK and the first bytes are lost, the connection begins without them and the peer is told that
//! they arrived; and an ACK of the first bytes of a connection that is over brings one with a larger
//! index, and the peer takes the new connection's bytes for the old one's.
//!
//! t counts steps of 64 s and makes a cookie good for at most two of them; F1 and F2 are SipHash-2-4
//! under a secret key. Of 2^32 numbers, 16 are valid at any time, so a blind sender needs 2^28
//! attempts for one connection, and they are only looked at for two minutes after a cookie was sent.
//!
//! The MSS is one of eight. Window scale, SACK and ECN do not fit: with timestamps they are carried by
//! the low six bits of our TSval, which the peer echoes; without timestamps they are off.
//!
//! ```text
//!   TSval bit  5     4      3..0
//!              ECN   SACK   window scale, 15 for none
//! ```
//!
//! Without the timestamp that the SYN-ACK asked for, an ACK brings nothing back. What the SYN-ACK agreed to is not known
//! then: taken for nothing, windows would be read wrongly at both ends, as Linux does it, and each of the 64 cases that is
//! tried is one number more that a guess may hit. So a peer that offers timestamps and leaves them out later is reset
//! where only a cookie knows of it; otherwise it is served.
//!
//! Data may bring a cookie back, too, when the connection that it began has been and is gone, and then it
//! echoes a later TSval, whose low bits are those of a clock. F2 refuses it unless they say the same.

use crate::config::{MSS_DEFAULT_IPV4, MSS_DEFAULT_IPV6};
use crate::half_open::HalfOpen;
use core::hash::Hasher;
use core::net::SocketAddr;
use siphasher::sip::SipHasher24;
use time::{Duration, Instant};
use wire::{SeqNumber, TcpFlags, TcpHeader, TcpTimestamps, TcpUserTimeout};

/// How long a cookie may be valid at most, and so how long after the last one they are accepted.
pub const SYN_COOKIE_LIFETIME: Duration = Duration::from_secs(128);

const STEP_SECONDS: u64 = 64;
const STEPS_MAX: u32 = 2;
const DATA_MASK: u32 = (1 << 24) - 1;
const INDEX_SHIFT: u32 = 21;

/// Segment sizes that a cookie can name; the largest that is not above the peer's is taken.
const MSS: [u16; 8] = [64, 536, 1_220, 1_300, 1_400, 1_440, 1_460, 8_940];

const OPTION_BITS: u32 = 6;
const OPTION_MASK: u32 = (1 << OPTION_BITS) - 1;
const NO_WINDOW_SCALE: u32 = 15;
const SACK_BIT: u32 = 1 << 4;
const ECN_BIT: u32 = 1 << 5;

/// Makes and reads SYN cookies.
#[derive(Clone)]
pub struct SynCookies {
    key: [u8; 16],
}

impl SynCookies {
    /// For `key`, 16 secret bytes.
    #[must_use]
    pub fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// What is left of a SYN when only a cookie remembers it, the cookie as its ISS. `timestamps` says
    /// whether the SYN-ACK would answer with some: else they carry nothing, whatever the SYN offers.
    #[must_use]
    pub fn encode(
        &self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        syn: &TcpHeader,
        timestamps: bool,
    ) -> HalfOpen {
        let mss = syn.options.mss.unwrap_or(mss_default(remote));
        let index = MSS.iter().rposition(|known| *known <= mss).unwrap_or(0);
        let step = step_at(now);
        let irs = syn.sequence.0;
        let mut kept = HalfOpen::new(now, syn, SeqNumber(0));
        kept.mss = Some(MSS[index]);
        kept.timestamp = kept.timestamp.filter(|_| timestamps);
        if kept.timestamp.is_none() {
            (kept.window_scale, kept.sack_permitted, kept.ecn) = (None, false, TcpFlags::NONE);
        }
        let purpose = purpose(kept.timestamp.map(|_| option_bits(&kept)));
        let index_bits = (index as u32) << INDEX_SHIFT;
        let data = self.hash(purpose, local, remote, step).wrapping_add(index_bits) & DATA_MASK;
        kept.iss = SeqNumber(self.hash(1, local, remote, irs)) + irs + (step << 24) + data;
        kept
    }

    /// Puts the options of `kept` into the TSval of its SYN-ACK, which may go back by up to 127 ms
    /// for it, but never ahead of our clock.
    pub fn mark(kept: &HalfOpen, syn_ack: &mut TcpHeader) {
        let Some(timestamps) = &mut syn_ack.options.timestamps else { return };
        let marked = timestamps.value & !OPTION_MASK | option_bits(kept);
        timestamps.value = match marked > timestamps.value {
            true => marked.wrapping_sub(1 << OPTION_BITS),
            false => marked,
        };
    }

    /// The SYN that a cookie remembers, where `header` is the ACK of a valid one.
    #[must_use]
    pub fn decode(
        &self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        header: &TcpHeader,
    ) -> Option<HalfOpen> {
        let (irs, iss) = (header.sequence - 1, header.acknowledgment - 1);
        let cookie = iss.0.wrapping_sub(self.hash(1, local, remote, irs.0)).wrapping_sub(irs.0);
        let age = step_at(now).wrapping_sub(cookie >> 24) & 0xff;
        if age >= STEPS_MAX {
            return None;
        }
        let step = step_at(now).wrapping_sub(age);
        let purpose = purpose(header.options.timestamps.map(|it| it.echo & OPTION_MASK));
        let data = cookie.wrapping_sub(self.hash(purpose, local, remote, step)) & DATA_MASK;
        if data & ((1 << INDEX_SHIFT) - 1) != 0 {
            return None;
        }
        let mss = *MSS.get((data >> INDEX_SHIFT) as usize)?;
        let mut kept = HalfOpen {
            iss,
            irs,
            window: header.window,
            mss: Some(mss),
            window_scale: None,
            sack_permitted: false,
            timestamp: None,
            // No room for it: the connection waits for as long as if the peer had said nothing.
            user_timeout: TcpUserTimeout::default(),
            ecn: TcpFlags::NONE,
            sent_at: None,
            timeouts: 0,
            is_repeated: false,
            acknowledged: None,
        };
        if let Some(TcpTimestamps { value, echo }) = header.options.timestamps {
            kept.timestamp = Some(value);
            let scale = echo & NO_WINDOW_SCALE;
            kept.window_scale = (scale != NO_WINDOW_SCALE).then_some(scale as u8);
            kept.sack_permitted = echo & SACK_BIT != 0;
            if echo & ECN_BIT != 0 {
                kept.ecn = TcpFlags::ECE | TcpFlags::CWR;
            }
        }
        Some(kept)
    }

    fn hash(&self, purpose: u8, local: SocketAddr, remote: SocketAddr, number: u32) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&[purpose]);
        hasher.write(&number.to_be_bytes());
        crate::isn::write_ends(&mut hasher, local, remote);
        crate::isn::low_32_bits(hasher.finish())
    }
}

/// What the low bits of the TSval say.
fn option_bits(kept: &HalfOpen) -> u32 {
    let scale = kept.window_scale.map_or(NO_WINDOW_SCALE, |shift| u32::from(shift.min(14)));
    let sack = if kept.sack_permitted { SACK_BIT } else { 0 };
    let ecn = if kept.ecn == TcpFlags::NONE { 0 } else { ECN_BIT };
    scale | sack | ecn
}

/// Tells F2 from F1, which is 1, and by the options, `None` without timestamps.
fn purpose(options: Option<u32>) -> u8 {
    options.map_or(3, |bits| 2 | (bits as u8) << 2)
}

/// Never shows the key.
impl core::fmt::Debug for SynCookies {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("SynCookies").finish_non_exhaustive()
    }
}

/// RFC 9293, 3.7.1, MUST-15.
fn mss_default(remote: SocketAddr) -> u16 {
    if remote.is_ipv4() { MSS_DEFAULT_IPV4 } else { MSS_DEFAULT_IPV6 }
}

/// Steps of 64 s; the low eight bits matter.
fn step_at(now: Instant) -> u32 {
    crate::isn::low_32_bits(now.as_nanos() / (STEP_SECONDS * 1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::TcpOptions;

    fn tuple() -> (SocketAddr, SocketAddr) {
        ("10.0.0.1:80".parse().expect("good"), "10.0.0.9:4242".parse().expect("good"))
    }

    fn ack_of(syn_ack: &TcpHeader, irs: SeqNumber, value: u32) -> TcpHeader {
        TcpHeader {
            sequence: irs + 1,
            acknowledgment: syn_ack.sequence + 1,
            flags: TcpFlags::ACK,
            window: 77,
            options: TcpOptions {
                timestamps: syn_ack
                    .options
                    .timestamps
                    .map(|ours| TcpTimestamps { value, echo: ours.value }),
                ..TcpOptions::default()
            },
            ..TcpHeader::default()
        }
    }

    proptest! {
        // RFC 4987, 3.6; RFC 7323 options by the timestamp.
        #[test]
        fn what_a_cookie_keeps_comes_back(
            irs: u32,
            mss: u16,
            scale in proptest::option::of(0_u8..20),
            sack: bool,
            ecn: bool,
            clock in proptest::option::of(any::<u32>()),
            now_ms in 0_u64..1 << 40,
            later_ms in 0_u64..64_000,
        ) {
            let cookies = SynCookies::new([5; 16]);
            let (local, remote) = tuple();
            let both = TcpFlags::ECE | TcpFlags::CWR;
            let syn = TcpHeader {
                sequence: SeqNumber(irs),
                flags: if ecn { TcpFlags::SYN | both } else { TcpFlags::SYN },
                options: TcpOptions {
                    mss: Some(mss),
                    window_scale: scale,
                    sack_permitted: sack,
                    timestamps: clock.map(|value| TcpTimestamps { value, echo: 0 }),
                    ..TcpOptions::default()
                },
                ..TcpHeader::default()
            };
            let now = Instant::from_millis(now_ms);
            let kept = cookies.encode(now, local, remote, &syn, true);
            let ours = TcpTimestamps { value: 1_000_000, echo: 0 };
            let mut syn_ack = TcpHeader { sequence: kept.iss, ..TcpHeader::default() };
            syn_ack.options.timestamps = clock.map(|_| ours);
            SynCookies::mark(&kept, &mut syn_ack);
            if let Some(marked) = syn_ack.options.timestamps {
                prop_assert!((ours.value - 127..=ours.value).contains(&marked.value));
            }
            let ack = ack_of(&syn_ack, syn.sequence, 3);
            let later = Instant::from_millis(now_ms + later_ms);
            let back = cookies.decode(later, local, remote, &ack).expect("valid");
            prop_assert_eq!((back.iss, back.irs, back.mss), (kept.iss, kept.irs, kept.mss));
            prop_assert!(back.mss <= Some(mss.max(64)));
            let by_timestamp = clock.is_some();
            prop_assert_eq!(back.sack_permitted, sack && by_timestamp);
            prop_assert_eq!(back.window_scale, scale.map(|s| s.min(14)).filter(|_| by_timestamp));
            prop_assert_eq!(back.ecn == both, ecn && by_timestamp);
            // Data that comes much later echoes another TSval, or one with the same bits.
            let mut data = ack;
            if let Some(timestamps) = &mut data.options.timestamps {
                timestamps.echo += 37;
                prop_assert_eq!(cookies.decode(later, local, remote, &data), None);
                data.options.timestamps = None;
                prop_assert_eq!(cookies.decode(later, local, remote, &data), None);
            }
            let old = Instant::from_millis(now_ms + 128_000);
            prop_assert_eq!(cookies.decode(old, local, remote, &ack), None);
        }

        #[test]
        fn a_guess_is_refused(irs: u32, guess: u32) {
            let (local, remote) = tuple();
            let header = TcpHeader {
                sequence: SeqNumber(irs),
                acknowledgment: SeqNumber(guess),
                ..TcpHeader::default()
            };
            let now = Instant::from_millis(9_000_000);
            // Sixteen of 2^32 are valid.
            prop_assert_eq!(SynCookies::new([6; 16]).decode(now, local, remote, &header), None);
        }
    }

    /// RFC 7323, 1.3: without timestamps of ours nothing of the SYN's options can come back, so the
    /// SYN-ACK must not agree to them.
    #[test]
    fn without_timestamps_of_ours_no_option_is_agreed_on() {
        let (local, remote) = tuple();
        let options = TcpOptions {
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(TcpTimestamps { value: 5, echo: 0 }),
            ..TcpOptions::default()
        };
        let syn = TcpHeader { sequence: SeqNumber(7), options, ..TcpHeader::default() };
        let kept = SynCookies::new([5; 16]).encode(Instant::ZERO, local, remote, &syn, false);
        assert_eq!((kept.window_scale, kept.sack_permitted, kept.timestamp), (None, false, None));
    }

    /// RFC 9293, 3.4: a connection begins with the first byte. A segment from further on in the
    /// stream brings no valid cookie, though its acknowledgment is the right one; nor does one that
    /// acknowledges more than the SYN-ACK.
    #[test]
    fn a_cookie_is_for_one_pair_of_initial_sequence_numbers() {
        let cookies = SynCookies::new([5; 16]);
        let (local, remote) = tuple();
        for irs in (0..50_u32).map(|step| SeqNumber(step.wrapping_mul(91_000_007))) {
            let mut syn = TcpHeader { sequence: irs, ..TcpHeader::default() };
            syn.options.mss = Some(9_000);
            let kept = cookies.encode(Instant::ZERO, local, remote, &syn, true);
            let syn_ack = TcpHeader { sequence: kept.iss, ..TcpHeader::default() };
            for ahead in 1..2_000 {
                let further = ack_of(&syn_ack, irs + ahead, 0);
                let more = TcpHeader {
                    acknowledgment: syn_ack.sequence + 1 + ahead,
                    ..ack_of(&syn_ack, irs, 0)
                };
                for ack in [further, more] {
                    assert_eq!(cookies.decode(Instant::ZERO, local, remote, &ack), None, "{ahead}");
                }
            }
        }
    }

    #[test]
    fn a_cookie_is_for_one_four_tuple_and_one_key() {
        let cookies = SynCookies::new([5; 16]);
        let (local, remote) = tuple();
        let syn = TcpHeader { sequence: SeqNumber(7), ..TcpHeader::default() };
        let kept = cookies.encode(Instant::ZERO, local, remote, &syn, true);
        let syn_ack = TcpHeader { sequence: kept.iss, ..TcpHeader::default() };
        let ack = ack_of(&syn_ack, syn.sequence, 0);
        assert!(cookies.decode(Instant::ZERO, local, remote, &ack).is_some());
        let mut other = remote;
        other.set_port(4243);
        assert_eq!(cookies.decode(Instant::ZERO, local, other, &ack), None);
        let another_key = SynCookies::new([4; 16]);
        assert_eq!(another_key.decode(Instant::ZERO, local, remote, &ack), None);
    }
}
