//! The pseudo-header: what the checksums of TCP, UDP and ICMPv6 cover besides their own bytes
//! (RFC 9293, 3.1; RFC 768; RFC 8200, 8.1).
//!
//! Both families sum up the same things: the addresses, the protocol and the length of transport
//! header and payload. The length is 16 bits here, since no jumbograms are sent or taken.

use checksum::Accumulator;
use core::net::IpAddr;

/// The sum of a pseudo-header without its length, which is another for every packet: folded, not
/// inverted. Both addresses are of one family.
#[must_use]
pub fn sum(source: IpAddr, destination: IpAddr, protocol: u8) -> u16 {
    let mut sum = Accumulator::default();
    for address in [source, destination] {
        match address {
            IpAddr::V4(address) => sum.add_u32(address.to_bits()),
            IpAddr::V6(address) => sum.add(&address.octets()),
        }
    }
    sum.add_u16(u16::from(protocol));
    sum.sum()
}
