//! What the ICMP headers of both families have in common (RFC 792, RFC 4443).
//!
//! ```text
//!  |     type      |     code      |           checksum            |
//!  |                depends on the type, 4 bytes                   |
//!  |  echo: data;  error: the head of the packet it is about       |
//! ```
//!
//! [`IcmpView`] is checked bytes. What they mean depends on the family: [`Icmpv4Repr`](crate::Icmpv4Repr) and
//! [`Icmpv6Repr`](crate::Icmpv6Repr) are the values of the 8 bytes of header.

use crate::Malformed;

/// Bytes that are long enough for an ICMP header.
#[derive(Clone, Copy, Debug)]
pub struct IcmpView<'a> {
    message: &'a [u8],
    pub(crate) fixed: &'a [u8; 8],
    body: &'a [u8],
}

impl<'a> IcmpView<'a> {
    /// A message. The checksum is not looked at ([`IcmpView::checksum_ok`]).
    ///
    /// # Errors
    /// [`Malformed::Truncated`].
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, body) = message.split_first_chunk().ok_or(Malformed::Truncated)?;
        Ok(Self { message, fixed, body })
    }

    /// The message's type, one of the constants of the family's value or another.
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.fixed[0]
    }

    /// The message's code.
    #[must_use]
    pub fn code(&self) -> u8 {
        self.fixed[1]
    }

    /// What follows the 8 bytes of header.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Whether the checksum over header and body is right, as IPv4 has it; that of IPv6 covers the addresses,
    /// too, and is not looked at here.
    #[must_use]
    pub fn checksum_ok(&self) -> bool {
        checksum::sum(self.message) == 0xffff
    }
}
