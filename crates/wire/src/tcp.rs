//! The TCP header (RFC 9293, 3.1) and its options: MSS (RFC 9293, 3.7.1), window scale and
//! timestamps (RFC 7323), SACK permitted and SACK (RFC 2018).
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
            options: TcpOptions::parse(options),
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
        len
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
        if let Some(shift) = self.window_scale {
            writer.put(&[OPTION_NOP, OPTION_WINDOW_SCALE, 3, shift]);
        }
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
        let count = self.sack_count(self.len_before_sack());
        if count > 0 {
            writer.put(&[OPTION_NOP, OPTION_NOP, OPTION_SACK, (2 + 8 * count) as u8]);
            for (start, end) in &self.sack.as_slice()[..count] {
                writer.put(&start.0.to_be_bytes());
                writer.put(&end.0.to_be_bytes());
            }
        }
    }

    fn parse(bytes: &[u8]) -> Self {
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
                    // A length below 2 or beyond the end ends the options.
                    let Some(body) = rest.get(2..usize::from(*len)) else { return options };
                    options.read(*kind, body);
                    rest = &rest[usize::from(*len)..];
                }
                [_] => return options,
            }
        }
    }

    /// Takes one option; one of a wrong length is ignored.
    fn read(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            (OPTION_MSS, [high, low]) => self.mss = Some(u16::from_be_bytes([*high, *low])),
            (OPTION_WINDOW_SCALE, [shift]) => self.window_scale = Some(*shift),
            (OPTION_SACK_PERMITTED, []) => self.sack_permitted = true,
            (OPTION_TIMESTAMPS, body) if body.len() == 8 => self.timestamps = timestamps(body),
            (OPTION_SACK, body) if body.len() % 8 == 0 => {
                for block in body.chunks_exact(8) {
                    if let (Some(start), Some(end)) = (long(block, 0), long(block, 4)) {
                        self.sack.push(SeqNumber(start), SeqNumber(end));
                    }
                }
            }
            _ => {}
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
                },
            };
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
            prop_assert!(TcpHeader::parse(&bytes).is_ok());
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

    #[test]
    fn flags_print_by_name() {
        assert_eq!(format!("{:?}", TcpFlags::SYN | TcpFlags::ACK), "SYN|ACK");
        assert_eq!(format!("{:?}", TcpFlags::NONE), "-");
    }
}
