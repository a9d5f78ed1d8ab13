//! ARP for IPv4 over Ethernet (RFC 826).
//!
//! ```text
//!  | hardware: 1 | protocol: 0x0800 | 6 | 4 | operation |
//!  | sender: hardware 6, protocol 4 | target: hardware 6, protocol 4 |
//! ```

use crate::{HardwareAddress, Malformed, ether_type};
use core::net::Ipv4Addr;

const HARDWARE_ETHERNET: u16 = 1;

/// What an ARP message asks or says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    /// Who has the target's protocol address?
    Request,
    /// The sender has it.
    Reply,
}

/// Bytes that hold an ARP message for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct ArpView<'a> {
    bytes: &'a [u8; ArpRepr::LEN],
    operation: ArpOperation,
}

impl<'a> ArpView<'a> {
    /// The payload of a frame of type ARP; padding behind the message is left out.
    ///
    /// RFC 826, "Packet Reception": hardware type and protocol type are asked for first.
    ///
    /// # Errors
    /// [`Malformed::Truncated`]; [`Malformed::BadVersion`] for other hardware or another protocol;
    /// [`Malformed::BadLength`] for address lengths that these two do not have;
    /// [`Malformed::BadField`] for an operation that is neither request nor reply.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; ArpRepr::LEN] = bytes.first_chunk().ok_or(Malformed::Truncated)?;
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        if word(0) != HARDWARE_ETHERNET || word(2) != ether_type::IPV4 {
            return Err(Malformed::BadVersion);
        }
        if bytes[4..6] != [6, 4] {
            return Err(Malformed::BadLength);
        }
        let operation = match word(6) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return Err(Malformed::BadField),
        };
        Ok(Self { bytes, operation })
    }

    /// What the message asks or says.
    #[must_use]
    pub fn operation(&self) -> ArpOperation {
        self.operation
    }

    /// The sender's hardware address.
    #[must_use]
    pub fn sender_hardware(&self) -> HardwareAddress {
        self.hardware(8)
    }

    /// The sender's protocol address.
    #[must_use]
    pub fn sender_protocol(&self) -> Ipv4Addr {
        self.protocol(14)
    }

    /// The target's hardware address; means nothing in a request.
    #[must_use]
    pub fn target_hardware(&self) -> HardwareAddress {
        self.hardware(18)
    }

    /// The target's protocol address.
    #[must_use]
    pub fn target_protocol(&self) -> Ipv4Addr {
        self.protocol(24)
    }

    fn hardware(&self, at: usize) -> HardwareAddress {
        HardwareAddress(core::array::from_fn(|index| self.bytes[at + index]))
    }

    fn protocol(&self, at: usize) -> Ipv4Addr {
        let octets: [u8; 4] = core::array::from_fn(|index| self.bytes[at + index]);
        Ipv4Addr::from(octets)
    }
}

/// An ARP message for IPv4 over Ethernet, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpRepr {
    /// What the message asks or says.
    pub operation: ArpOperation,
    /// The sender's hardware address.
    pub sender_hardware: HardwareAddress,
    /// The sender's protocol address; unspecified in a probe (RFC 5227, 1.1).
    pub sender_protocol: Ipv4Addr,
    /// The target's hardware address; zero in a request.
    pub target_hardware: HardwareAddress,
    /// The target's protocol address.
    pub target_protocol: Ipv4Addr,
}

impl ArpRepr {
    /// Length of the message in bytes.
    pub const LEN: usize = 28;

    /// The value of a checked message.
    #[must_use]
    pub fn parse(view: &ArpView<'_>) -> Self {
        Self {
            operation: view.operation(),
            sender_hardware: view.sender_hardware(),
            sender_protocol: view.sender_protocol(),
            target_hardware: view.target_hardware(),
            target_protocol: view.target_protocol(),
        }
    }

    /// Writes the message to the front of `out`.
    ///
    /// # Panics
    /// Where `out` is shorter than [`ArpRepr::LEN`].
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..Self::LEN];
        out[0..2].copy_from_slice(&HARDWARE_ETHERNET.to_be_bytes());
        out[2..4].copy_from_slice(&ether_type::IPV4.to_be_bytes());
        out[4..6].copy_from_slice(&[6, 4]);
        let operation: u16 = match self.operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        };
        out[6..8].copy_from_slice(&operation.to_be_bytes());
        out[8..14].copy_from_slice(&self.sender_hardware.0);
        out[14..18].copy_from_slice(&self.sender_protocol.octets());
        out[18..24].copy_from_slice(&self.target_hardware.0);
        out[24..28].copy_from_slice(&self.target_protocol.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> [u8; 28] {
        let mut bytes = [0; 28];
        ArpRepr {
            operation: ArpOperation::Request,
            sender_hardware: HardwareAddress([2, 0, 0, 0, 0, 1]),
            sender_protocol: Ipv4Addr::new(10, 0, 0, 1),
            target_hardware: HardwareAddress::ZERO,
            target_protocol: Ipv4Addr::new(10, 0, 0, 2),
        }
        .emit(&mut bytes);
        bytes
    }

    #[test]
    fn a_request_is_laid_out_as_rfc_826_says() {
        assert_eq!(
            request(),
            [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]
        );
    }

    #[test]
    fn other_hardware_protocols_lengths_and_operations_are_refused() {
        for (at, value, error) in [
            (1, 6, Malformed::BadVersion),
            (2, 0x86, Malformed::BadVersion),
            (4, 8, Malformed::BadLength),
            (5, 16, Malformed::BadLength),
            (7, 3, Malformed::BadField),
        ] {
            let mut bytes = request();
            bytes[at] = value;
            assert_eq!(ArpView::parse(&bytes).unwrap_err(), error, "byte {at}");
        }
        assert_eq!(ArpView::parse(&request()[..27]).unwrap_err(), Malformed::Truncated);
    }

    proptest! {
        #[test]
        fn what_was_emitted_parses_to_the_same(
            reply: bool, sender: ([u8; 6], [u8; 4]), target: ([u8; 6], [u8; 4]), padding in 0..20_usize,
        ) {
            let repr = ArpRepr {
                operation: if reply { ArpOperation::Reply } else { ArpOperation::Request },
                sender_hardware: HardwareAddress(sender.0),
                sender_protocol: sender.1.into(),
                target_hardware: HardwareAddress(target.0),
                target_protocol: target.1.into(),
            };
            let mut bytes = vec![0; ArpRepr::LEN + padding];
            repr.emit(&mut bytes);
            prop_assert_eq!(ArpRepr::parse(&ArpView::parse(&bytes).expect("emitted")), repr);
        }

        #[test]
        fn any_bytes_parse_or_are_refused(bytes: Vec<u8>) {
            let _ = ArpView::parse(&bytes).map(|view| ArpRepr::parse(&view));
        }
    }
}
