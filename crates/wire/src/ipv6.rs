//! The IPv6 header (RFC 8200, 3) and its fragment header (4.5).
//!
//! ```text
//!   0                   1                   2                   3
//!  |version| DSCP      |ECN|            flow label                 |
//!  |         payload length        |  next header  |   hop limit   |
//!  |                       source, 16 bytes                        |
//!  |                     destination, 16 bytes                     |
//! ```
//!
//! [`Ipv6View`] is checked bytes, [`Ipv6Repr`] the value. Extension headers are walked by the `ip`
//! crate: to the fixed header they are payload.

use crate::Malformed;
use core::net::Ipv6Addr;

/// Bytes that hold an IPv6 header whose payload length agrees with the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6View<'a> {
    fixed: &'a [u8; Ipv6Repr::LEN],
    payload: &'a [u8],
}

impl<'a> Ipv6View<'a> {
    /// A packet. Bytes behind the payload length (padding of the link) are left out.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], [`Malformed::BadVersion`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let view = Self::parse_quoted(bytes)?;
        if view.payload.len() < view.payload_len() {
            return Err(Malformed::Truncated);
        }
        Ok(view)
    }

    /// As [`Ipv6View::parse`] for the head of a packet, as an ICMP error quotes it: the payload may
    /// be shorter than its length says.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], [`Malformed::BadVersion`].
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, rest) = bytes.split_first_chunk().ok_or(Malformed::Truncated)?;
        let view = Self { fixed, payload: rest };
        if view.fixed[0] >> 4 != 6 {
            return Err(Malformed::BadVersion);
        }
        Ok(Self { payload: rest.get(..view.payload_len()).unwrap_or(rest), ..view })
    }

    /// Length of what follows the fixed header in bytes, as the header says.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        usize::from(u16::from_be_bytes([self.fixed[4], self.fixed[5]]))
    }

    /// The traffic class: DSCP and, in the low two bits, ECN.
    #[must_use]
    pub fn dscp_ecn(&self) -> u8 {
        self.fixed[0] << 4 | self.fixed[1] >> 4
    }

    /// The flow label, 20 bits (RFC 6437).
    #[must_use]
    pub fn flow_label(&self) -> u32 {
        u32::from_be_bytes([0, self.fixed[1] & 0xf, self.fixed[2], self.fixed[3]])
    }

    /// The header that follows, see [`crate::protocol`].
    #[must_use]
    pub fn next_header(&self) -> u8 {
        self.fixed[6]
    }

    /// How many routers may still forward the packet.
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.fixed[7]
    }

    /// The sender.
    #[must_use]
    pub fn source(&self) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.fixed[8..24]);
        octets.into()
    }

    /// The receiver.
    #[must_use]
    pub fn destination(&self) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.fixed[24..40]);
        octets.into()
    }

    /// What follows the fixed header: extension headers and the upper layer.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An IPv6 header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Repr {
    /// The traffic class: DSCP and, in the low two bits, ECN.
    pub dscp_ecn: u8,
    /// The flow label; its low 20 bits count.
    pub flow_label: u32,
    /// What follows the header, in bytes: at most 65,535.
    pub payload_len: usize,
    /// The header that follows.
    pub next_header: u8,
    /// How many routers may forward the packet.
    pub hop_limit: u8,
    /// The sender.
    pub source: Ipv6Addr,
    /// The receiver.
    pub destination: Ipv6Addr,
}

impl Ipv6Repr {
    /// Length of the header in bytes.
    pub const LEN: usize = 40;

    /// The value of a checked header.
    #[must_use]
    pub fn parse(view: &Ipv6View<'_>) -> Self {
        Self {
            dscp_ecn: view.dscp_ecn(),
            flow_label: view.flow_label(),
            payload_len: view.payload_len(),
            next_header: view.next_header(),
            hop_limit: view.hop_limit(),
            source: view.source(),
            destination: view.destination(),
        }
    }

    /// Writes the header to the front of `out`. A payload length beyond its field is cut to it.
    ///
    /// # Panics
    /// Where `out` is shorter than [`Ipv6Repr::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let payload_len = u16::try_from(self.payload_len).unwrap_or(u16::MAX);
        let first = 6 << 28 | u32::from(self.dscp_ecn) << 20 | self.flow_label & 0xf_ffff;
        let out = &mut out[..Self::LEN];
        out[..4].copy_from_slice(&first.to_be_bytes());
        out[4..6].copy_from_slice(&payload_len.to_be_bytes());
        out[6] = self.next_header;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.source.octets());
        out[24..40].copy_from_slice(&self.destination.octets());
    }
}

/// The fragment extension header as a value (RFC 8200, 4.5). Every sequence of 8 bytes is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6FragmentRepr {
    /// The header that the fragmentable part begins with.
    pub next_header: u8,
    /// Where this fragment lies in the fragmentable part, in bytes: a multiple of 8.
    pub offset_bytes: usize,
    /// Another fragment follows.
    pub more_fragments: bool,
    /// The identification of a packet's fragments.
    pub identification: u32,
}

impl Ipv6FragmentRepr {
    /// Length of the header in bytes.
    pub const LEN: usize = 8;

    /// The value of the header at the front of `bytes`.
    ///
    /// # Errors
    /// [`Malformed::Truncated`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let &[next_header, _, high, low, a, b, c, d] =
            bytes.first_chunk().ok_or(Malformed::Truncated)?;
        let word = u16::from_be_bytes([high, low]);
        Ok(Self {
            next_header,
            offset_bytes: usize::from(word & !7),
            more_fragments: word & 1 != 0,
            identification: u32::from_be_bytes([a, b, c, d]),
        })
    }

    /// Writes the header to the front of `out`.
    ///
    /// # Panics
    /// Where `out` is shorter than [`Ipv6FragmentRepr::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let word = self.offset_bytes as u16 & !7 | u16::from(self.more_fragments);
        let out = &mut out[..Self::LEN];
        out[0] = self.next_header;
        out[1] = 0;
        out[2..4].copy_from_slice(&word.to_be_bytes());
        out[4..8].copy_from_slice(&self.identification.to_be_bytes());
    }

    /// Whether this is a whole packet that only looks like a fragment: RFC 6946 demands that it be
    /// taken as it is, apart from all fragments.
    #[must_use]
    pub fn is_atomic(&self) -> bool {
        self.offset_bytes == 0 && !self.more_fragments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_a_known_header() {
        let mut bytes = [0; 44];
        bytes[..8].copy_from_slice(&[0x61, 0x2a, 0xbc, 0xde, 0, 3, 17, 64]);
        bytes[23] = 1;
        bytes[39] = 2;
        let view = Ipv6View::parse(&bytes).expect("a sound header");
        assert_eq!((view.dscp_ecn(), view.flow_label()), (0x12, 0xa_bcde));
        assert_eq!(view.source(), Ipv6Addr::LOCALHOST);
        assert_eq!(view.payload().len(), 3, "padding is left out");
        assert_eq!(Ipv6View::parse(&bytes[..42]).err(), Some(Malformed::Truncated));
        assert_eq!(Ipv6View::parse_quoted(&bytes[..42]).expect("cut").payload().len(), 2);
        assert_eq!(Ipv6View::parse(&bytes[..39]).err(), Some(Malformed::Truncated));
        bytes[0] = 0x45;
        assert_eq!(Ipv6View::parse(&bytes).err(), Some(Malformed::BadVersion));
    }

    proptest! {
        #[test]
        fn parse_after_emit_is_identity(
            (dscp_ecn, next_header, hop_limit) in any::<(u8, u8, u8)>(),
            (source, destination, payload_len) in any::<(u128, u128, u16)>(),
            flow_label in 0_u32..1 << 20,
        ) {
            let repr = Ipv6Repr {
                dscp_ecn, flow_label, payload_len: payload_len.into(), next_header, hop_limit,
                source: source.into(), destination: destination.into(),
            };
            let mut out = [0xa5; Ipv6Repr::LEN];
            repr.emit(&mut out);
            let view = Ipv6View::parse_quoted(&out).expect("what was emitted is sound");
            prop_assert_eq!(Ipv6Repr::parse(&view), repr);
        }

        #[test]
        fn fragment_headers_survive_the_wire(
            (next_header, more_fragments, identification) in any::<(u8, bool, u32)>(),
            offset in 0_usize..8192,
        ) {
            let repr = Ipv6FragmentRepr {
                next_header, offset_bytes: offset * 8, more_fragments, identification,
            };
            let mut out = [0xa5; Ipv6FragmentRepr::LEN];
            repr.emit(&mut out);
            prop_assert_eq!(Ipv6FragmentRepr::parse(&out), Ok(repr));
            prop_assert_eq!(repr.is_atomic(), offset == 0 && !more_fragments);
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..90)) {
            let _ = Ipv6FragmentRepr::parse(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = 0x60 | *first & 0xf;
            }
            for view in [Ipv6View::parse(&bytes), Ipv6View::parse_quoted(&bytes)].into_iter().flatten() {
                prop_assert!(Ipv6Repr::LEN + view.payload().len() <= bytes.len());
                let _ = Ipv6Repr::parse(&view);
            }
        }
    }
}
