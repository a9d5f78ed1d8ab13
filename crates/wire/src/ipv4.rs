//! The IPv4 header (RFC 791, 3.1).
//!
//! ```text
//!   0                   1                   2                   3
//!  |version|  IHL  | DSCP      |ECN|          total length         |
//!  |         identification        |0|D|M|      fragment offset    |
//!  |   hop limit   |    protocol   |        header checksum        |
//!  |                            source                             |
//!  |                         destination                           |
//!  |                     options, 0 to 40 bytes                    |
//! ```
//!
//! [`Ipv4View`] is checked bytes; after [`Ipv4View::parse`] no accessor can fail. [`Ipv4Repr`] is
//! the value of a header without options. What a socket's packets have of them is
//! [`crate::Ipv4Options`].

use crate::Malformed;
use core::net::Ipv4Addr;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// Bytes that hold an IPv4 header whose lengths agree with each other and with the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4View<'a> {
    fixed: &'a [u8; Ipv4Repr::LEN],
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4View<'a> {
    /// A packet: version, header length and total length are checked, the checksum is not
    /// ([`Ipv4View::checksum_ok`]). Bytes behind the total length (padding of the link) are left
    /// out.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], [`Malformed::BadVersion`], [`Malformed::BadLength`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let view = Self::parse_quoted(bytes)?;
        let payload_len = view.total_len() - view.header_len();
        let payload = view.payload.get(..payload_len).ok_or(Malformed::Truncated)?;
        Ok(Self { payload, ..view })
    }

    /// As [`Ipv4View::parse`] for the head of a packet, as an ICMP error quotes it: the payload may
    /// be shorter than the total length says.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], [`Malformed::BadVersion`], [`Malformed::BadLength`].
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let fixed = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        let fixed: &[u8; Ipv4Repr::LEN] = fixed;
        let [first, ..] = *fixed;
        // RFC 1122, 3.2.1.1: a datagram whose version is not 4 MUST be silently discarded.
        if first >> 4 != 4 {
            return Err(Malformed::BadVersion);
        }
        let header_len = usize::from(first & 0xf) * 4;
        if header_len < Ipv4Repr::LEN {
            return Err(Malformed::BadLength);
        }
        let (header, rest) = bytes.split_at_checked(header_len).ok_or(Malformed::Truncated)?;
        let view = Self { fixed, header, payload: rest };
        let payload_len = view.total_len().checked_sub(header_len).ok_or(Malformed::BadLength)?;
        Ok(Self { payload: rest.get(..payload_len).unwrap_or(rest), ..view })
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.fixed[at], self.fixed[at + 1]])
    }

    /// Length of the header with its options, in bytes: 20 to 60.
    #[must_use]
    pub fn header_len(&self) -> usize {
        self.header.len()
    }

    /// Length of header and payload in bytes, as the header says.
    #[must_use]
    pub fn total_len(&self) -> usize {
        usize::from(self.word(2))
    }

    /// The differentiated services code point and, in the low two bits, ECN (RFC 2474, RFC 3168).
    #[must_use]
    pub fn dscp_ecn(&self) -> u8 {
        self.fixed[1]
    }

    /// The identification of a datagram's fragments.
    #[must_use]
    pub fn identification(&self) -> u16 {
        self.word(4)
    }

    /// DF: no router may fragment the packet.
    #[must_use]
    pub fn dont_fragment(&self) -> bool {
        self.word(6) & DONT_FRAGMENT != 0
    }

    /// MF: another fragment follows this one.
    #[must_use]
    pub fn more_fragments(&self) -> bool {
        self.word(6) & MORE_FRAGMENTS != 0
    }

    /// Where this fragment's payload lies in the datagram, in bytes: a multiple of 8.
    #[must_use]
    pub fn fragment_offset_bytes(&self) -> usize {
        usize::from(self.word(6) & OFFSET_MASK) * 8
    }

    /// Whether this is part of a datagram only.
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.word(6) & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// How many routers may still forward the packet (RFC 791's time to live).
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.fixed[8]
    }

    /// The protocol of the payload, see [`crate::protocol`].
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.fixed[9]
    }

    /// The sender.
    #[must_use]
    pub fn source(&self) -> Ipv4Addr {
        let [.., a, b, c, d, _, _, _, _] = *self.fixed;
        Ipv4Addr::new(a, b, c, d)
    }

    /// The receiver.
    #[must_use]
    pub fn destination(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.fixed;
        Ipv4Addr::new(a, b, c, d)
    }

    /// The options as they lie: 0 to 40 bytes.
    #[must_use]
    pub fn options(&self) -> &'a [u8] {
        &self.header[Ipv4Repr::LEN..]
    }

    /// What follows the header.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Whether the header checksum is right.
    #[must_use]
    pub fn checksum_ok(&self) -> bool {
        checksum::sum(self.header) == 0xffff
    }
}

/// An IPv4 header without options, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Repr {
    /// The differentiated services code point and, in the low two bits, ECN.
    pub dscp_ecn: u8,
    /// The identification of a datagram's fragments.
    pub identification: u16,
    /// DF: no router may fragment the packet.
    pub dont_fragment: bool,
    /// MF: another fragment follows.
    pub more_fragments: bool,
    /// Where this fragment's payload lies in the datagram, in bytes: a multiple of 8, less than
    /// 65,536.
    pub fragment_offset_bytes: usize,
    /// How many routers may forward the packet.
    pub hop_limit: u8,
    /// The protocol of the payload.
    pub protocol: u8,
    /// The sender.
    pub source: Ipv4Addr,
    /// The receiver.
    pub destination: Ipv4Addr,
    /// What follows the header, in bytes: at most 65,515.
    pub payload_len: usize,
}

impl Ipv4Repr {
    /// Length of the header in bytes.
    pub const LEN: usize = 20;

    /// The value of a checked header. Options are left out.
    #[must_use]
    pub fn parse(view: &Ipv4View<'_>) -> Self {
        Self {
            dscp_ecn: view.dscp_ecn(),
            identification: view.identification(),
            dont_fragment: view.dont_fragment(),
            more_fragments: view.more_fragments(),
            fragment_offset_bytes: view.fragment_offset_bytes(),
            hop_limit: view.hop_limit(),
            protocol: view.protocol(),
            source: view.source(),
            destination: view.destination(),
            payload_len: view.total_len() - view.header_len(),
        }
    }

    /// Writes the header, checksum included, to the front of `out`. Lengths and offsets beyond
    /// their field are cut to it.
    ///
    /// # Panics
    /// Where `out` is shorter than [`Ipv4Repr::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        self.emit_unsummed(out);
        let checksum = !checksum::sum(&out[..Self::LEN]);
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    /// As [`Ipv4Repr::emit`], with a checksum of zero.
    ///
    /// # Panics
    /// As [`Ipv4Repr::emit`].
    #[inline]
    pub fn emit_unsummed(&self, out: &mut [u8]) {
        let total_len = u16::try_from(self.payload_len + Self::LEN).unwrap_or(u16::MAX);
        let flags = if self.dont_fragment { DONT_FRAGMENT } else { 0 }
            | if self.more_fragments { MORE_FRAGMENTS } else { 0 }
            | (self.fragment_offset_bytes / 8) as u16 & OFFSET_MASK;
        let out = &mut out[..Self::LEN];
        out[0] = 0x45;
        out[1] = self.dscp_ecn;
        out[2..4].copy_from_slice(&total_len.to_be_bytes());
        out[4..6].copy_from_slice(&self.identification.to_be_bytes());
        out[6..8].copy_from_slice(&flags.to_be_bytes());
        out[8] = self.hop_limit;
        out[9] = self.protocol;
        out[10..12].fill(0);
        out[12..16].copy_from_slice(&self.source.octets());
        out[16..20].copy_from_slice(&self.destination.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// From RFC 1071's neighbourhood: a header whose checksum is known to be 0xb861.
    const SAMPLE: [u8; 20] = [
        0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,
        0xc7,
    ];

    #[test]
    fn reads_and_writes_a_known_header() {
        let view = Ipv4View::parse_quoted(&SAMPLE).expect("a sound header");
        assert!(view.checksum_ok() && view.dont_fragment() && !view.is_fragment());
        let repr = Ipv4Repr::parse(&view);
        assert_eq!((repr.payload_len, repr.protocol), (0x73 - 20, 17));
        assert_eq!(repr.destination, Ipv4Addr::new(192, 168, 0, 199));
        let mut out = [0xff; 20];
        repr.emit(&mut out);
        assert_eq!(out, SAMPLE);
    }

    #[test]
    fn refuses_headers_that_contradict_themselves() {
        let parse = |at: usize, value: u8| {
            let mut bytes = [0; 0x73];
            bytes[..20].copy_from_slice(&SAMPLE);
            bytes[at] = value;
            Ipv4View::parse(&bytes).map(|view| view.payload().len())
        };
        assert_eq!(parse(0, 0x45), Ok(0x73 - 20));
        assert_eq!(parse(0, 0x46), Ok(0x73 - 24));
        assert_eq!(parse(0, 0x65), Err(Malformed::BadVersion));
        assert_eq!(parse(0, 0x44), Err(Malformed::BadLength));
        assert_eq!(parse(3, 19), Err(Malformed::BadLength));
        assert_eq!(parse(3, 20), Ok(0));
        assert_eq!(parse(3, 0x74), Err(Malformed::Truncated));
        assert_eq!(Ipv4View::parse(&SAMPLE[..19]).err(), Some(Malformed::Truncated));
        let quoted = Ipv4View::parse_quoted(&SAMPLE).expect("its payload may be cut");
        assert!(quoted.payload().is_empty());
    }

    #[test]
    fn every_flipped_bit_spoils_the_checksum() {
        for bit in 0..160 {
            let mut bytes = SAMPLE;
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(view) = Ipv4View::parse_quoted(&bytes) {
                assert!(!view.checksum_ok(), "bit {bit}");
            }
        }
    }

    proptest! {
        #[test]
        fn parse_after_emit_is_identity(
            (dscp_ecn, identification, dont_fragment, more_fragments) in any::<(u8, u16, bool, bool)>(),
            (hop_limit, protocol, source, destination) in any::<(u8, u8, u32, u32)>(),
            offset in 0_usize..8192,
            payload_len in 0_usize..=65_515,
        ) {
            let repr = Ipv4Repr {
                dscp_ecn, identification, dont_fragment, more_fragments,
                fragment_offset_bytes: offset * 8,
                hop_limit, protocol, source: source.into(), destination: destination.into(),
                payload_len,
            };
            let mut out = [0xa5; Ipv4Repr::LEN];
            repr.emit(&mut out);
            let view = Ipv4View::parse_quoted(&out).expect("what was emitted is sound");
            prop_assert!(view.checksum_ok());
            prop_assert_eq!(Ipv4Repr::parse(&view), repr);
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..90)) {
            for first in [None, Some(0x45), Some(0x4f)] {
                if let (Some(byte), Some(first)) = (bytes.first_mut(), first) {
                    *byte = first;
                }
                for view in [Ipv4View::parse(&bytes), Ipv4View::parse_quoted(&bytes)].into_iter().flatten() {
                    let _ = (Ipv4Repr::parse(&view), view.checksum_ok());
                    prop_assert!(view.header_len() + view.payload().len() <= bytes.len());
                    prop_assert_eq!(view.options().len() + Ipv4Repr::LEN, view.header_len());
                }
            }
        }
    }
}
