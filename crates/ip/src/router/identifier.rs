//! Interface identifiers that are stable and tell nothing (RFC 7217).

use core::fmt;
use core::hash::Hasher;
use core::net::Ipv6Addr;
use siphasher::sip128::{Hasher128, SipHasher24};
use wire::HardwareAddress;

/// The secret key of RFC 7217, 5: at least 128 bits, known to nobody else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IdentifierKey(pub [u8; 16]);

/// A secret is not shown.
impl fmt::Debug for IdentifierKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("IdentifierKey")
    }
}

/// RFC 7217, 5: RID = F(Prefix, Net_Iface, Network_ID, DAD_Counter, secret_key), of which the low 64
/// bits follow the prefix. F is SipHash-2-4; Net_Iface is the hardware address; there is no
/// Network_ID. Where the result is a reserved identifier the next one is taken.
#[must_use]
pub fn stable_address(
    prefix: Ipv6Addr,
    station: HardwareAddress,
    duplicates: u8,
    key: &IdentifierKey,
) -> Ipv6Addr {
    let mut counter = u32::from(duplicates);
    loop {
        let mut hasher = SipHasher24::new_with_key(&key.0);
        hasher.write(&prefix.octets()[..8]);
        hasher.write(&station.0);
        hasher.write_u32(counter);
        let identifier = hasher.finish128().h1;
        if !is_reserved(identifier) {
            let network = u128::from(prefix) & !u128::from(u64::MAX);
            return Ipv6Addr::from(network | u128::from(identifier));
        }
        // The chance of a second turn is 2^-50.
        counter = counter.wrapping_add(1 << 8);
    }
}

/// RFC 5453, 3 and the IANA registry: the subnet routers' anycast address, the block of IANA's
/// Ethernet addresses, the subnet anycast addresses.
fn is_reserved(identifier: u64) -> bool {
    identifier == 0
        || (0x0200_5eff_fe00_0000..=0x0200_5eff_fe00_5213).contains(&identifier)
        || (0xfdff_ffff_ffff_ff80..=0xfdff_ffff_ffff_ffff).contains(&identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7217, 4: the same on the same network, others on others, nothing in common.
    #[test]
    fn identifiers_are_stable_on_a_network_and_differ_between_networks() {
        let key = IdentifierKey([7; 16]);
        let station = HardwareAddress([2, 0, 0, 0, 0, 1]);
        let prefix = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        let one = prefix("2001:db8:1::");
        let address = stable_address(one, station, 0, &key);
        assert_eq!(address, stable_address(one, station, 0, &key));
        assert_eq!(address.octets()[..8], one.octets()[..8]);
        let others = [
            stable_address(prefix("2001:db8:2::"), station, 0, &key),
            stable_address(one, HardwareAddress([2, 0, 0, 0, 0, 2]), 0, &key),
            stable_address(one, station, 1, &key),
            stable_address(one, station, 0, &IdentifierKey([8; 16])),
        ];
        for other in others {
            assert_ne!(other.octets()[8..], address.octets()[8..]);
        }
        assert_eq!(format!("{key:?}"), "IdentifierKey");
    }

    #[test]
    fn reserved_identifiers_are_known() {
        assert!(is_reserved(0) && is_reserved(0xfdff_ffff_ffff_ffff));
        assert!(is_reserved(0x0200_5eff_fe00_0001));
        assert!(!is_reserved(1) && !is_reserved(0xfdff_ffff_ffff_ff7f));
    }
}
