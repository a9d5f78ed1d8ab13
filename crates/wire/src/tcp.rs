//! The TCP header (RFC 9293, 3.1) and its options: MSS (RFC 9293, 3.7.1), window scale and
//! timestamps (RFC 7323), SACK permitted and SACK (RFC 2018), user timeout (RFC 5482), fast open
//! (RFC 7413, and as Linux had it before 4.1, under RFC 6994).
//!
//! ```text
//!   0       2       4               8              12      13      14      16      18      20
//!   | source| dest. |  sequence     | acknowledgm. | off   | flags | window| check | urgent| options
//! ```
//!
//! [`TcpHeader`] is the value; parsing reads it from the first bytes of a segment and says how
//! long the header was, emitting writes it with a zero checksum, which belongs to who knows the
//! pseudo-header. A header is malformed only where its length contradicts itself; an option that
//! is cut off ends the options, as elsewhere, and what was read before it stands.

mod option_counters;

pub use option_counters::TcpOptionCounters;

use crate::{Malformed, SeqNumber};
use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// Length of a header without options in bytes.
pub const TCP_HEADER_LEN_MIN: usize = 20;

/// Length of the longest header in bytes.
pub const TCP_HEADER_LEN_MAX: usize = 60;

/// Bytes from the start of the header to the checksum field.
pub const TCP_CHECKSUM_OFFSET: u8 = 16;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_MSS: u8 = 2;
const OPTION_WINDOW_SCALE: u8 = 3;
const OPTION_SACK_PERMITTED: u8 = 4;
const OPTION_SACK: u8 = 5;
const OPTION_TIMESTAMPS: u8 = 8;
const OPTION_USER_TIMEOUT: u8 = 28;
const OPTION_FAST_OPEN: u8 = 34;
const OPTION_EXPERIMENT: u8 = 254;

/// What an experimental option of fast open begins with (RFC 6994).
const FAST_OPEN_EXPERIMENT: [u8; 2] = [0xf9, 0x89];

/// The control bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No bit set.
    pub const NONE: Self = Self(0);
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(0x20);
    /// ECN-Echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion Window Reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Whether all bits of `other` are set here.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether a bit of `other` is set here.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The bits of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bits set here and not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for TcpFlags {
    type Output = Self;

    fn bitor(self, rhs: Self) -> Self {
        self.union(rhs)
    }
}

impl BitOrAssign for TcpFlags {
    fn bitor_assign(&mut self, rhs: Self) {
        self.0 |= rhs.0;
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let mut separator = "";
        for (bit, name) in NAMES.into_iter().enumerate() {
            if self.0 & (1 << bit) != 0 {
                write!(formatter, "{separator}{name}")?;
                separator = "|";
            }
        }
        if separator.is_empty() { formatter.write_str("-") } else { Ok(()) }
    }
}

/// The timestamps option (RFC 7323, 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpTimestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the receiver's clock, as the sender last saw it; means something with ACK only.
    pub echo: u32,
}

/// Up to four SACK blocks (RFC 2018, 3), each start and one past the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(SeqNumber, SeqNumber); 4],
    count: u8,
}

impl SackBlocks {
    /// No blocks.
    pub const NONE: Self = Self { blocks: [(SeqNumber(0), SeqNumber(0)); 4], count: 0 };

    /// Appends a block; a fifth one is left out, for it fits no header.
    pub fn push(&mut self, start: SeqNumber, end: SeqNumber) {
        if let Some(slot) = self.blocks.get_mut(self.count as usize) {
            *slot = (start, end);
            self.count += 1;
        }
    }

    /// The blocks in the order of the option.
    #[must_use]
    pub fn as_slice(&self) -> &[(SeqNumber, SeqNumber)] {
        &self.blocks[..self.count as usize]
    }

    /// How many blocks there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is no block.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// The fast open option (RFC 7413, 4.1.1): a cookie of 4 to 16 bytes, or the request for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpFastOpen {
    bytes: [u8; 16],
    len: u8,
    is_experimental: bool,
}

impl TcpFastOpen {
    /// Asks for a cookie.
    pub const REQUEST: Self = Self { bytes: [0; 16], len: 0, is_experimental: false };

    /// A cookie, or the request where `bytes` is empty. `None` for a length that none may have.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let valid = matches!(bytes.len(), 0 | 4..=16) && bytes.len().is_multiple_of(2);
        if !valid {
            return None;
        }
        let mut option = Self { len: bytes.len() as u8, ..Self::REQUEST };
        option.bytes[..bytes.len()].copy_from_slice(bytes);
        Some(option)
    }

    /// The cookie; empty for the request.
    #[must_use]
    pub fn cookie(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The same cookie as the option of `other`'s kind: the one assigned, or the experimental one, in which it came
    /// from hosts of before RFC 7413. Who asks by one does not know the other.
    #[must_use]
    pub const fn in_the_form_of(self, other: Self) -> Self {
        Self { is_experimental: other.is_experimental, ..self }
    }

    /// What stands before the cookie.
    fn head(&self) -> ([u8; 4], usize) {
        let [first, second] = FAST_OPEN_EXPERIMENT;
        match self.is_experimental {
            true => ([OPTION_EXPERIMENT, 4 + self.len, first, second], 4),
            false => ([OPTION_FAST_OPEN, 2 + self.len, 0, 0], 2),
        }
    }

    /// Length of the option with its padding.
    fn padded_len(&self) -> usize {
        (self.head().1 + usize::from(self.len)).next_multiple_of(4)
    }
}

/// The user timeout option (RFC 5482, 3.1): 15 bits of seconds or minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpUserTimeout(pub u16);

impl TcpUserTimeout {
    const MINUTES: u16 = 1 << 15;

    /// The option for a timeout, rounded up to what it can say; at most 32,767 minutes.
    #[must_use]
    pub fn from_seconds(seconds: u64) -> Self {
        let value = |count: u64| count.min(u64::from(Self::MINUTES - 1)) as u16;
        match seconds < u64::from(Self::MINUTES) {
            true => Self(value(seconds)),
            false => Self(value(seconds.div_ceil(60)) | Self::MINUTES),
        }
    }

    /// The timeout in seconds. Zero is no timeout: the option is to be ignored.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        let count = (self.0 & !Self::MINUTES) as u64;
        if self.0 & Self::MINUTES != 0 { count * 60 } else { count }
    }
}

/// The options this stack knows. Others are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// Maximum segment size in bytes, in a SYN.
    pub mss: Option<u16>,
    /// Shift count of the window field, in a SYN; as sent, not cut to 14.
    pub window_scale: Option<u8>,
    /// SACK permitted, in a SYN.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<TcpTimestamps>,
    /// SACK blocks.
    pub sack: SackBlocks,
    /// User timeout (RFC 5482).
    pub user_timeout: Option<TcpUserTimeout>,
    /// Fast open, in a SYN (RFC 7413).
    pub fast_open: Option<TcpFastOpen>,
}

/// A TCP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpHeader {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// SEG.SEQ.
    pub sequence: SeqNumber,
    /// SEG.ACK; means something with the ACK bit only.
    pub acknowledgment: SeqNumber,
    /// The control bits.
    pub flags: TcpFlags,
    /// The window field, unscaled.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// Options.
    pub options: TcpOptions,
}

impl TcpHeader {
    /// Reads the header at the front of `segment` and says how long it is in bytes.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] where the segment ends within the header,
    /// [`Malformed::BadLength`] where the data offset is below 5 words.
    pub fn parse(segment: &[u8]) -> Result<(Self, usize), Malformed> {
        Self::parse_counted(segment, &mut TcpOptionCounters::default())
    }

    /// As [`TcpHeader::parse`], and counts what is odd about the options.
    ///
    /// # Errors
    /// As [`TcpHeader::parse`].
    pub fn parse_counted(
        segment: &[u8],
        odd: &mut TcpOptionCounters,
    ) -> Result<(Self, usize), Malformed> {
        let Some((fixed, rest)) = segment.split_first_chunk::<TCP_HEADER_LEN_MIN>() else {
            return Err(Malformed::Truncated);
        };
        let len = usize::from(fixed[12] >> 4) * 4;
        let Some(options_len) = len.checked_sub(TCP_HEADER_LEN_MIN) else {
            return Err(Malformed::BadLength);
        };
        let options = rest.get(..options_len).ok_or(Malformed::Truncated)?;
        let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let long = |at: usize| {
            u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        let header = Self {
            source_port: word(0),
            destination_port: word(2),
            sequence: SeqNumber(long(4)),
            acknowledgment: SeqNumber(long(8)),
            flags: TcpFlags(fixed[13]),
            window: word(14),
            urgent: word(18),
            options: TcpOptions::parse(options, odd),
        };
        Ok((header, len))
    }

    /// How many bytes [`TcpHeader::emit`] writes: a multiple of 4, at most 60.
    #[must_use]
    pub fn header_len(&self) -> usize {
        TCP_HEADER_LEN_MIN + self.options.len_bytes()
    }

    /// Writes the header with a zero checksum to the front of `out` and says how long it is.
    /// `None`, and nothing is written, where `out` is too short.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let len = self.header_len();
        let out = out.get_mut(..len)?;
        let (fixed, options) = out.split_first_chunk_mut::<TCP_HEADER_LEN_MIN>()?;
        fixed[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.sequence.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.acknowledgment.0.to_be_bytes());
        fixed[12] = ((len / 4) as u8) << 4;
        fixed[13] = self.flags.0;
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        fixed[16..18].copy_from_slice(&[0, 0]);
        fixed[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        self.options.emit(options);
        Some(len)
    }
}

impl TcpOptions {
    /// Bytes the options take, padded to a multiple of 4; at most 40, because SACK blocks beyond
    /// the room are left out.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        let before_sack = self.len_before_sack();
        match self.sack_count(before_sack) {
            0 => before_sack,
            count => before_sack + 4 + 8 * count,
        }
    }

    /// MSS takes 4 bytes; window scale 3 and a NOP; SACK permitted hides in the two NOPs in front
    /// of the timestamps, or takes 2 and two NOPs; timestamps take 10 and two bytes in front.
    fn len_before_sack(&self) -> usize {
        let mut len = 0;
        if self.mss.is_some() {
            len += 4;
        }
        if self.window_scale.is_some() {
            len += 4;
        }
        if self.timestamps.is_some() {
            len += 12;
        } else if self.sack_permitted {
            len += 4;
        }
        if self.user_timeout.is_some() {
            len += 4;
        }
        len + self.fast_open_fitting(len).map_or(0, |option| option.padded_len())
    }

    /// Fast open, where there is room behind `before` bytes of options.
    fn fast_open_fitting(&self, before: usize) -> Option<TcpFastOpen> {
        let room = TCP_HEADER_LEN_MAX - TCP_HEADER_LEN_MIN - before;
        self.fast_open.filter(|option| option.padded_len() <= room)
    }

    fn sack_count(&self, before_sack: usize) -> usize {
        let room = (TCP_HEADER_LEN_MAX - TCP_HEADER_LEN_MIN).saturating_sub(before_sack + 4) / 8;
        self.sack.len().min(room)
    }

    fn emit(&self, out: &mut [u8]) {
        let mut writer = Writer { out, at: 0 };
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            writer.put(&[OPTION_MSS, 4, high, low]);
        }
        // The order is Linux's, so that segment scripts written for it can be run here.
        match (self.sack_permitted, self.timestamps.is_some()) {
            (true, true) => writer.put(&[OPTION_SACK_PERMITTED, 2]),
            (true, false) => writer.put(&[OPTION_NOP, OPTION_NOP, OPTION_SACK_PERMITTED, 2]),
            (false, true) => writer.put(&[OPTION_NOP, OPTION_NOP]),
            (false, false) => {}
        }
        if let Some(timestamps) = self.timestamps {
            writer.put(&[OPTION_TIMESTAMPS, 10]);
            writer.put(&timestamps.value.to_be_bytes());
            writer.put(&timestamps.echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            writer.put(&[OPTION_NOP, OPTION_WINDOW_SCALE, 3, shift]);
        }
        if let Some(TcpUserTimeout(value)) = self.user_timeout {
            let [high, low] = value.to_be_bytes();
            writer.put(&[OPTION_USER_TIMEOUT, 4, high, low]);
        }
        if let Some(option) = self.fast_open_fitting(writer.at) {
            let (head, head_len) = option.head();
            writer.put(&head[..head_len]);
            writer.put(option.cookie());
            let len = head_len + option.cookie().len();
            writer.put(&[OPTION_NOP, OPTION_NOP][..option.padded_len() - len]);
        }
        let count = self.sack_count(self.len_before_sack());
        if count > 0 {
            writer.put(&[OPTION_NOP, OPTION_NOP, OPTION_SACK, (2 + 8 * count) as u8]);
            for (start, end) in &self.sack.as_slice()[..count] {
                writer.put(&start.0.to_be_bytes());
                writer.put(&end.0.to_be_bytes());
            }
        }
    }

    fn parse(bytes: &[u8], odd: &mut TcpOptionCounters) -> Self {
        let mut options = Self::default();
        // What nearly every segment of an established connection carries.
        if let [OPTION_NOP, OPTION_NOP, OPTION_TIMESTAMPS, 10, body @ ..] = bytes
            && body.len() == 8
        {
            options.timestamps = timestamps(body);
            return options;
        }
        let mut rest = bytes;
        loop {
            match rest {
                [] | [OPTION_END, ..] => return options,
                [OPTION_NOP, tail @ ..] => rest = tail,
                [kind, len, ..] => {
                    // A length below 2 or beyond the end ends the options: where the next one
                    // begins is not known.
                    let len = usize::from(*len);
                    let Some(body) = rest.get(2..len) else {
                        match len {
                            0 | 1 => odd.tcp_options_no_length += 1,
                            _ => odd.tcp_options_truncated += 1,
                        }
                        return options;
                    };
                    options.read(*kind, body, odd);
                    rest = &rest[len..];
                }
                [_] => {
                    odd.tcp_options_truncated += 1;
                    return options;
                }
            }
        }
    }

    /// Takes one option; one of a wrong length, or that came before, is ignored.
    fn read(&mut self, kind: u8, body: &[u8], odd: &mut TcpOptionCounters) {
        let is_repeated = match kind {
            OPTION_MSS => self.mss.is_some(),
            OPTION_WINDOW_SCALE => self.window_scale.is_some(),
            OPTION_SACK_PERMITTED => self.sack_permitted,
            OPTION_TIMESTAMPS => self.timestamps.is_some(),
            OPTION_SACK => !self.sack.is_empty(),
            OPTION_USER_TIMEOUT => self.user_timeout.is_some(),
            OPTION_FAST_OPEN => self.fast_open.is_some(),
            OPTION_EXPERIMENT if body.starts_with(&FAST_OPEN_EXPERIMENT) => {
                self.fast_open.is_some()
            }
            _ => {
                odd.tcp_options_unknown += 1;
                return;
            }
        };
        if is_repeated {
            odd.tcp_options_repeated += 1;
            return;
        }
        match (kind, body) {
            (OPTION_MSS, [high, low]) => self.mss = Some(u16::from_be_bytes([*high, *low])),
            (OPTION_WINDOW_SCALE, [shift]) => self.window_scale = Some(*shift),
            (OPTION_SACK_PERMITTED, []) => self.sack_permitted = true,
            (OPTION_TIMESTAMPS, body) if body.len() == 8 => self.timestamps = timestamps(body),
            (OPTION_USER_TIMEOUT, [high, low]) => {
                self.user_timeout = Some(TcpUserTimeout(u16::from_be_bytes([*high, *low])));
            }
            (OPTION_FAST_OPEN | OPTION_EXPERIMENT, body) => {
                let is_experimental = kind == OPTION_EXPERIMENT;
                let cookie = if is_experimental { &body[2..] } else { body };
                let option = TcpFastOpen::new(cookie);
                self.fast_open = option.map(|it| TcpFastOpen { is_experimental, ..it });
                odd.tcp_options_bad_length += u64::from(self.fast_open.is_none());
            }
            (OPTION_SACK, body) if body.len() % 8 == 0 && !body.is_empty() => {
                for block in body.chunks_exact(8) {
                    if let (Some(start), Some(end)) = (long(block, 0), long(block, 4)) {
                        self.sack.push(SeqNumber(start), SeqNumber(end));
                    }
                }
            }
            _ => odd.tcp_options_bad_length += 1,
        }
    }
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_be_bytes(*four))
}

fn timestamps(body: &[u8]) -> Option<TcpTimestamps> {
    Some(TcpTimestamps { value: long(body, 0)?, echo: long(body, 4)? })
}

/// Writes one option after the other; the caller made the room with [`TcpOptions::len_bytes`].
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        if let Some(room) = self.out.get_mut(self.at..self.at + bytes.len()) {
            room.copy_from_slice(bytes);
            self.at += bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers() -> impl Strategy<Value = TcpHeader> {
        let fixed = (
            any::<u16>(),
            any::<u16>(),
            any::<u32>(),
            any::<u32>(),
            any::<u8>(),
            any::<u16>(),
            any::<u16>(),
        );
        let options = (
            any::<Option<u16>>(),
            any::<Option<u8>>(),
            any::<bool>(),
            any::<Option<(u32, u32)>>(),
            prop::collection::vec(any::<(u32, u32)>(), 0..=4),
            any::<Option<u16>>(),
            prop::option::of((0_usize..=6, any::<bool>()).prop_flat_map(|(half, experimental)| {
                let len = if half == 0 { 0 } else { 2 * half + 2 };
                (prop::collection::vec(any::<u8>(), len), Just(experimental))
            })),
        );
        (fixed, options).prop_map(|(fixed, options)| {
            let mut header = TcpHeader {
                source_port: fixed.0,
                destination_port: fixed.1,
                sequence: SeqNumber(fixed.2),
                acknowledgment: SeqNumber(fixed.3),
                flags: TcpFlags(fixed.4),
                window: fixed.5,
                urgent: fixed.6,
                options: TcpOptions {
                    mss: options.0,
                    window_scale: options.1,
                    sack_permitted: options.2,
                    timestamps: options.3.map(|(value, echo)| TcpTimestamps { value, echo }),
                    sack: SackBlocks::NONE,
                    user_timeout: options.5.map(TcpUserTimeout),
                    fast_open: options.6.and_then(|(bytes, is_experimental)| {
                        Some(TcpFastOpen { is_experimental, ..TcpFastOpen::new(&bytes)? })
                    }),
                },
            };
            header.options.fast_open =
                header.options.fast_open.filter(|it| it.padded_len() + 24 <= 40);
            let room = (40 - header.options.len_bytes()).saturating_sub(4) / 8;
            for (start, end) in options.4.into_iter().take(room) {
                header.options.sack.push(SeqNumber(start), SeqNumber(end));
            }
            header
        })
    }

    proptest! {
        #[test]
        fn parse_after_emit_is_identity(header in headers()) {
            let mut bytes = [0xee; 80];
            let len = header.emit(&mut bytes).expect("room");
            prop_assert_eq!(len, header.header_len());
            prop_assert!(len % 4 == 0 && len <= TCP_HEADER_LEN_MAX);
            prop_assert!(bytes[len..].iter().all(|byte| *byte == 0xee), "wrote beyond its length");
            prop_assert_eq!(TcpHeader::parse(&bytes), Ok((header, len)));
            prop_assert_eq!(header.emit(&mut bytes[..len - 1]), None);
        }

        #[test]
        fn any_bytes_parse_or_fail_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((_, len)) = TcpHeader::parse(&bytes) {
                prop_assert!((20..=60).contains(&len) && len <= bytes.len());
            }
        }

        #[test]
        fn any_options_parse_without_panic(mut options in prop::collection::vec(0_u8..12, 40)) {
            let mut bytes = vec![0; 20];
            bytes[12] = 0xf0;
            bytes.append(&mut options);
            let mut odd = TcpOptionCounters::default();
            prop_assert!(TcpHeader::parse_counted(&bytes, &mut odd).is_ok());
            let (mut count, mut ends) = (0, odd.tcp_options_no_length + odd.tcp_options_truncated);
            odd.for_each(&mut |_, value| count += value);
            prop_assert!(count <= 20, "an option has two bytes at least");
            ends = ends.max(1);
            prop_assert_eq!(ends, 1, "the options end once");
        }
    }

    #[test]
    fn a_data_offset_that_contradicts_itself_is_malformed() {
        let mut bytes = [0; 24];
        bytes[12] = 0x40;
        assert_eq!(TcpHeader::parse(&bytes), Err(Malformed::BadLength));
        bytes[12] = 0x70;
        assert_eq!(TcpHeader::parse(&bytes), Err(Malformed::Truncated));
        assert_eq!(TcpHeader::parse(&bytes[..19]), Err(Malformed::Truncated));
    }

    // RFC 6994, 3: an experiment is told by its identifier, and others under the same kind are ignored.
    #[test]
    fn fast_open_is_read_and_written_in_the_form_of_the_experiment() {
        let parse = |options: [u8; 12]| {
            let mut bytes = vec![0; 20];
            bytes[12] = 0x80;
            bytes.extend_from_slice(&options);
            TcpHeader::parse(&bytes).expect("well formed").0.options
        };
        let bytes = [254, 12, 0xf9, 0x89, 1, 2, 3, 4, 5, 6, 7, 8];
        let options = parse(bytes);
        let shown = options.fast_open.expect("a cookie");
        assert_eq!(shown.cookie(), [1, 2, 3, 4, 5, 6, 7, 8]);
        let mut out = [0; 12];
        options.emit(&mut out);
        assert_eq!((options.len_bytes(), out), (12, bytes));
        let given = TcpFastOpen::new(&[9; 8]).expect("eight bytes");
        assert_eq!(given.in_the_form_of(shown).padded_len(), 12);
        assert_eq!(given.padded_len(), 12);
        let request = parse([254, 4, 0xf9, 0x89, 0, 0, 0, 0, 0, 0, 0, 0]).fast_open;
        assert_eq!(request, Some(TcpFastOpen::REQUEST.in_the_form_of(shown)));
        assert_eq!(parse([254, 12, 0xf9, 0x8a, 1, 2, 3, 4, 5, 6, 7, 8]).fast_open, None);
        assert_eq!(parse([254, 3, 0xf9, 0, 0, 0, 0, 0, 0, 0, 0, 0]).fast_open, None);
    }

    // RFC 9293, 3.1: MUST-6, unknown options are ignored.
    #[test]
    fn unknown_options_are_skipped_and_a_bad_length_ends_the_options() {
        let parse = |options: [u8; 12]| {
            let mut bytes = vec![0; 20];
            bytes[12] = 0x80;
            bytes.extend_from_slice(&options);
            TcpHeader::parse(&bytes).expect("well formed").0.options
        };
        let options = parse([254, 4, 9, 9, 2, 4, 5, 180, 1, 3, 3, 7]);
        assert_eq!((options.mss, options.window_scale), (Some(1460), Some(7)));
        let options = parse([2, 4, 5, 180, 254, 0, 3, 3, 7, 1, 1, 1]);
        assert_eq!((options.mss, options.window_scale), (Some(1460), None), "length 0");
        let options = parse([2, 4, 5, 180, 254, 99, 3, 3, 7, 1, 1, 1]);
        assert_eq!((options.mss, options.window_scale), (Some(1460), None), "beyond the end");
        let options = parse([2, 3, 5, 3, 3, 7, 0, 4, 2, 1, 1, 1]);
        assert_eq!((options.mss, options.window_scale), (None, Some(7)), "wrong length, skipped");
        assert!(!options.sack_permitted, "behind the end of options");
    }

    // RFC 5482, 3.1; RFC 7413, 4.1.1.
    #[test]
    fn user_timeouts_round_up_and_cookies_have_an_even_length() {
        let seconds = |seconds| TcpUserTimeout::from_seconds(seconds).seconds();
        assert_eq!([seconds(5), seconds(32_767), seconds(32_768)], [5, 32_767, 32_820]);
        assert_eq!(seconds(u64::MAX), 32_767 * 60);
        let valid = |len: usize| TcpFastOpen::new(&[7; 20][..len]).is_some();
        let lens: Vec<usize> = (0..20).filter(|len| valid(*len)).collect();
        assert_eq!(lens, [0, 4, 6, 8, 10, 12, 14, 16]);
    }

    fn parse_odd(options: &[u8]) -> (TcpOptions, TcpOptionCounters) {
        let mut bytes = vec![0; 20];
        bytes.extend_from_slice(options);
        bytes.resize(bytes.len().next_multiple_of(4), OPTION_NOP);
        bytes[12] = ((bytes.len() / 4) as u8) << 4;
        let mut odd = TcpOptionCounters::default();
        let (header, _) = TcpHeader::parse_counted(&bytes, &mut odd).expect("well formed");
        (header.options, odd)
    }

    // RFC 9293, 3.2: MUST-6 and MUST-7.
    #[test]
    fn whatever_is_odd_about_options_is_counted_and_what_is_not_is_used() {
        const MSS: [u8; 4] = [2, 4, 5, 180];
        const ZERO: TcpOptionCounters = TcpOptionCounters::ZERO;
        let cases: [(&str, &[u8], TcpOptionCounters); 10] = [
            (
                "unknown",
                &[254, 6, 1, 2, 3, 4],
                TcpOptionCounters { tcp_options_unknown: 1, ..ZERO },
            ),
            ("unknown and empty", &[200, 2], TcpOptionCounters { tcp_options_unknown: 1, ..ZERO }),
            ("bad length", &[3, 4, 7, 7], TcpOptionCounters { tcp_options_bad_length: 1, ..ZERO }),
            ("no block", &[5, 2], TcpOptionCounters { tcp_options_bad_length: 1, ..ZERO }),
            (
                "half a block",
                &[5, 6, 0, 0, 0, 1],
                TcpOptionCounters { tcp_options_bad_length: 1, ..ZERO },
            ),
            (
                "long timestamps",
                &[8, 11, 0, 0, 0, 1, 0, 0, 0, 1, 9],
                TcpOptionCounters { tcp_options_bad_length: 1, ..ZERO },
            ),
            ("again", &[2, 4, 2, 0], TcpOptionCounters { tcp_options_repeated: 1, ..ZERO }),
            ("no length", &[8, 0], TcpOptionCounters { tcp_options_no_length: 1, ..ZERO }),
            (
                "its own length only",
                &[8, 1],
                TcpOptionCounters { tcp_options_no_length: 1, ..ZERO },
            ),
            ("cut off", &[8, 10, 0, 0], TcpOptionCounters { tcp_options_truncated: 1, ..ZERO }),
        ];
        for (name, option, expected) in cases {
            let bytes = [&MSS[..], option].concat();
            assert_eq!(
                parse_odd(&bytes),
                (TcpOptions { mss: Some(1460), ..TcpOptions::default() }, expected),
                "{name}"
            );
        }
        let (options, odd) = parse_odd(&[&[8, 99, 1, 1][..], &MSS].concat());
        assert_eq!((options.mss, odd.tcp_options_truncated), (None, 1), "where it ends is unknown");
        let (options, odd) = parse_odd(&[&[1, 1, 1][..], &MSS, &[2]].concat());
        assert_eq!((options.mss, odd.tcp_options_truncated), (Some(1460), 1), "a kind and no more");
        let (options, odd) = parse_odd(&[&[0][..], &MSS].concat());
        assert_eq!((options.mss, odd), (None, ZERO), "behind the end of the list");
    }

    #[test]
    fn flags_print_by_name() {
        assert_eq!(format!("{:?}", TcpFlags::SYN | TcpFlags::ACK), "SYN|ACK");
        assert_eq!(format!("{:?}", TcpFlags::NONE), "-");
    }
}
