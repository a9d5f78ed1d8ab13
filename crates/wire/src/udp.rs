//! The UDP header (RFC 768).
//!
//! ```text
//!  |          source port          |       destination port        |
//!  |             length            |           checksum            |
//! ```
//!
//! [`UdpView`] is checked bytes, [`UdpRepr`] the value. The checksum covers a pseudo-header that
//! only the network layer knows, so [`UdpRepr::emit`] leaves it zero.

use crate::Malformed;

/// Bytes that hold a UDP header whose length agrees with the bytes.
#[derive(Clone, Copy, Debug)]
pub struct UdpView<'a> {
    fixed: &'a [u8; UdpRepr::LEN],
    payload: &'a [u8],
}

impl<'a> UdpView<'a> {
    /// A datagram. Bytes behind its length are left out.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], [`Malformed::BadLength`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, rest) = bytes.split_first_chunk().ok_or(Malformed::Truncated)?;
        let view = Self { fixed, payload: rest };
        // A length of zero means a jumbogram (RFC 2675, 4), which no device here carries.
        let payload_len = view.len().checked_sub(UdpRepr::LEN).ok_or(Malformed::BadLength)?;
        let payload = rest.get(..payload_len).ok_or(Malformed::Truncated)?;
        Ok(Self { payload, ..view })
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.fixed[at], self.fixed[at + 1]])
    }

    /// The sender's port; 0 where the sender expects no answer.
    #[must_use]
    pub fn source_port(&self) -> u16 {
        self.word(0)
    }

    /// The receiver's port.
    #[must_use]
    pub fn destination_port(&self) -> u16 {
        self.word(2)
    }

    /// Length of header and payload in bytes, as the header says: at least 8.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a datagram has a header at least")]
    pub fn len(&self) -> usize {
        usize::from(self.word(4))
    }

    /// The checksum field; 0 where the sender did not compute one (IPv4 only).
    #[must_use]
    pub fn checksum(&self) -> u16 {
        self.word(6)
    }

    /// What follows the header.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A UDP header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpRepr {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// What follows the header, in bytes: at most 65,527.
    pub payload_len: usize,
}

impl UdpRepr {
    /// Length of the header in bytes.
    pub const LEN: usize = 8;

    /// Bytes from the start of the header to the checksum field.
    pub const CHECKSUM_OFFSET: u8 = 6;

    /// The value of a checked header.
    #[must_use]
    pub fn parse(view: &UdpView<'_>) -> Self {
        Self {
            source_port: view.source_port(),
            destination_port: view.destination_port(),
            payload_len: view.len() - Self::LEN,
        }
    }

    /// Writes the header to the front of `out`, with a checksum of zero. A length beyond its field
    /// is cut to it.
    ///
    /// # Panics
    /// Where `out` is shorter than [`UdpRepr::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let len = u16::try_from(self.payload_len + Self::LEN).unwrap_or(u16::MAX);
        let out = &mut out[..Self::LEN];
        out[..2].copy_from_slice(&self.source_port.to_be_bytes());
        out[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        out[4..6].copy_from_slice(&len.to_be_bytes());
        out[6..8].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_must_agree() {
        let bytes = [0x12, 0x34, 0, 53, 0, 10, 0xab, 0xcd, 1, 2, 0xff];
        let view = UdpView::parse(&bytes).expect("a sound header");
        assert_eq!((view.source_port(), view.destination_port()), (0x1234, 53));
        assert_eq!((view.checksum(), view.payload()), (0xabcd, &[1, 2][..]));
        assert_eq!(UdpView::parse(&bytes[..9]).err(), Some(Malformed::Truncated));
        assert_eq!(UdpView::parse(&bytes[..7]).err(), Some(Malformed::Truncated));
        for short in [0, 7] {
            let mut bytes = bytes;
            bytes[5] = short;
            assert_eq!(UdpView::parse(&bytes).err(), Some(Malformed::BadLength));
        }
    }

    proptest! {
        #[test]
        fn parse_after_emit_is_identity(
            (source_port, destination_port) in any::<(u16, u16)>(),
            payload_len in 0_usize..=65_527,
        ) {
            let repr = UdpRepr { source_port, destination_port, payload_len };
            let mut out = vec![0xa5; UdpRepr::LEN + payload_len];
            repr.emit(&mut out);
            let view = UdpView::parse(&out).expect("what was emitted is sound");
            prop_assert_eq!(view.checksum(), 0);
            prop_assert_eq!(UdpRepr::parse(&view), repr);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(view) = UdpView::parse(&bytes) {
                prop_assert_eq!(view.len(), UdpRepr::LEN + view.payload().len());
            }
        }
    }
}
