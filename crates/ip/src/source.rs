//! Which of a host's addresses to send from (RFC 6724, 5).
//!
//! Of the rules those are here that a host without mobility and temporary addresses can tell
//! apart: 1 (the destination itself), 2 (scope), 3 (not deprecated), 5.5 (the next hop's), 6 (label)
//! and 8 (longest matching prefix); candidates are one interface's (rule 5) and stand in the order of
//! preference where all rules are silent. IPv4 takes rules 1 to 5.5 and, for 8, only whether the destination
//! is on the address's network, as RFC 1122, 3.3.4.3 has it.
//!
//! Rule 5.5 asks which prefixes the next hop has told of. What is looked at is whether the next hop is on the
//! address's network, so it says nothing of routers that are known by their link-local address: of which of
//! them a prefix is, nobody keeps. For IPv4 that is what Linux does, too: a packet that goes by a gateway
//! has an address of that gateway's network.

use crate::Cidr;
use core::cmp::Ordering;
use core::net::{IpAddr, Ipv6Addr};

/// An address that may be the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceCandidate {
    /// The address and its network.
    pub cidr: Cidr,
    /// It should not be taken for what is new.
    pub is_deprecated: bool,
}

/// The best source for `destination`, of its family, of what is handed to `next_hop`: a gateway, or the
/// destination itself. `None` where there is none.
pub fn select_source(
    candidates: impl IntoIterator<Item = SourceCandidate>,
    destination: IpAddr,
    next_hop: IpAddr,
) -> Option<IpAddr> {
    let mut best: Option<SourceCandidate> = None;
    for candidate in candidates {
        if candidate.cidr.address().is_ipv4() != destination.is_ipv4() {
            continue;
        }
        let is_better = best.is_none_or(|best| {
            compare(&candidate, &best, destination, next_hop) == Ordering::Greater
        });
        if is_better {
            best = Some(candidate);
        }
    }
    best.map(|candidate| candidate.cidr.address())
}

/// Greater where `a` is the better source.
fn compare(
    a: &SourceCandidate,
    b: &SourceCandidate,
    destination: IpAddr,
    next_hop: IpAddr,
) -> Ordering {
    let (source_a, source_b) = (a.cidr.address(), b.cidr.address());
    let is_same = |source: IpAddr| source == destination;
    is_same(source_a)
        .cmp(&is_same(source_b))
        .then_with(|| by_scope(scope(source_a), scope(source_b), scope(destination)))
        .then_with(|| b.is_deprecated.cmp(&a.is_deprecated))
        .then_with(|| a.cidr.contains(next_hop).cmp(&b.cidr.contains(next_hop)))
        .then_with(|| has_label_of(source_a, destination).cmp(&has_label_of(source_b, destination)))
        .then_with(|| matching_len(a, destination).cmp(&matching_len(b, destination)))
}

/// Rule 2: "If Scope(SA) < Scope(SB): If Scope(SA) < Scope(D), then prefer SB and otherwise prefer
/// SA."
fn by_scope(a: u8, b: u8, destination: u8) -> Ordering {
    match a.cmp(&b) {
        Ordering::Equal => Ordering::Equal,
        Ordering::Less if a < destination => Ordering::Less,
        Ordering::Less => Ordering::Greater,
        Ordering::Greater if b < destination => Ordering::Greater,
        Ordering::Greater => Ordering::Less,
    }
}

/// RFC 6724, 3.1 and 3.2: scopes as those of multicast addresses.
fn scope(address: IpAddr) -> u8 {
    const LINK_LOCAL: u8 = 2;
    const SITE_LOCAL: u8 = 5;
    const GLOBAL: u8 = 14;
    match address {
        IpAddr::V4(address) if address.is_link_local() || address.is_loopback() => LINK_LOCAL,
        IpAddr::V4(_) => GLOBAL,
        IpAddr::V6(address) if address.is_multicast() => address.octets()[1] & 0xf,
        IpAddr::V6(address) if address.is_unicast_link_local() || address.is_loopback() => {
            LINK_LOCAL
        }
        IpAddr::V6(address) if address.segments()[0] & 0xffc0 == 0xfec0 => SITE_LOCAL,
        IpAddr::V6(_) => GLOBAL,
    }
}

fn has_label_of(source: IpAddr, destination: IpAddr) -> bool {
    match (source, destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => label(source) == label(destination),
        _ => true,
    }
}

/// The default policy table of RFC 6724, 2.1.
fn label(address: Ipv6Addr) -> u8 {
    let segments = address.segments();
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 1] => 0,
        [0, 0, 0, 0, 0, 0xffff, _, _] => 4,
        [0, 0, 0, 0, 0, 0, _, _] => 3,
        [0x2001, 0, ..] => 5,
        [0x2002, ..] => 2,
        [0x3ffe, ..] => 12,
        [first, ..] if first & 0xfe00 == 0xfc00 => 13,
        [first, ..] if first & 0xffc0 == 0xfec0 => 11,
        _ => 1,
    }
}

/// Rule 8: leading bits in common, at most the prefix's length.
fn matching_len(candidate: &SourceCandidate, destination: IpAddr) -> u32 {
    match (candidate.cidr.address(), destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let common = (u128::from(source) ^ u128::from(destination)).leading_zeros();
            common.min(candidate.cidr.prefix_len().into())
        }
        _ if candidate.cidr.contains(destination) => candidate.cidr.prefix_len().into(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The source chosen for `destination` on the link from `candidates`; `!` in front stands for deprecated.
    fn chosen(candidates: &[&str], destination: &str) -> String {
        chosen_by(candidates, destination, destination)
    }

    /// The same, of what goes by `next_hop`.
    fn chosen_by(candidates: &[&str], destination: &str, next_hop: &str) -> String {
        let candidates = candidates.iter().map(|text| SourceCandidate {
            cidr: text.trim_start_matches('!').parse().expect("a network"),
            is_deprecated: text.starts_with('!'),
        });
        let [destination, next_hop] =
            [destination, next_hop].map(|text| text.parse().expect("an address"));
        let source = select_source(candidates, destination, next_hop);
        source.map_or("none".into(), |source| source.to_string())
    }

    /// The examples of RFC 6724, 10.1, but for those about mobility and temporary addresses.
    #[test]
    fn the_examples_of_rfc_6724_come_out_as_printed() {
        for (destination, first, second) in [
            ("2001:db8:1::1", "2001:db8:3::1/64", "fe80::1/64"),
            ("ff05::1", "2001:db8:3::1/64", "fe80::1/64"),
            ("fe80::1", "fe80::2/64", "2001:db8:3::1/64"),
            ("fd11::1", "fd11:2::2/64", "2001:db8:3::2/64"),
            ("2001:db8:1::1", "2001:db8:1::1/64", "2001:db8:2::1/64"),
            ("2002:c633:6401::1", "2002:c633:6401::d5e3/64", "2001:db8:1::2/64"),
            ("2001:db8:1::d5e3", "2001:db8:1::2/64", "2001:db8:3::2/64"),
        ] {
            let expected = first.split('/').next().expect("an address");
            assert_eq!(chosen(&[first, second], destination), expected, "{destination}");
            assert_eq!(chosen(&[second, first], destination), expected, "{destination}");
        }
    }

    #[test]
    fn a_deprecated_address_is_taken_where_there_is_no_other_of_its_scope() {
        assert_eq!(
            chosen(&["!2001:db8::1/64", "2001:db8:9::1/64"], "2001:db8::2"),
            "2001:db8:9::1"
        );
        assert_eq!(chosen(&["!2001:db8::1/64", "fe80::1/64"], "2001:db8::2"), "2001:db8::1");
        assert_eq!(chosen(&["!2001:db8::1/64"], "2001:db8::2"), "2001:db8::1");
    }

    #[test]
    fn ipv4_prefers_the_network_of_the_destination_and_else_what_comes_first() {
        let candidates = ["169.254.0.9/16", "10.0.0.1/24", "192.168.0.1/24"];
        assert_eq!(chosen(&candidates, "192.168.0.77"), "192.168.0.1");
        assert_eq!(chosen(&candidates, "193.0.0.1"), "10.0.0.1");
        assert_eq!(chosen(&candidates, "169.254.3.3"), "169.254.0.9");
        assert_eq!(chosen(&candidates, "fd00::1"), "none");
    }

    /// RFC 6724, 5, rule 5.5; the routers of one network do not forward for another.
    #[test]
    fn what_goes_by_a_gateway_leaves_from_the_gateways_network() {
        let candidates = ["192.168.9.2/24", "10.0.0.2/24"];
        for (destination, gateway, expected) in [
            ("192.0.2.1", "10.0.0.1", "10.0.0.2"),
            ("192.0.2.1", "192.168.9.1", "192.168.9.2"),
            ("192.0.2.1", "172.16.0.1", "192.168.9.2"),
            ("192.168.9.77", "10.0.0.1", "10.0.0.2"),
        ] {
            assert_eq!(chosen_by(&candidates, destination, gateway), expected, "{gateway}");
        }
        let candidates = ["2001:db8:1::2/64", "2001:db8:8::2/64", "fe80::2/64"];
        let (far, gateway) = ("2001:db8:9::1", "2001:db8:1::1");
        assert_eq!(chosen_by(&candidates, far, gateway), "2001:db8:1::2");
        assert_eq!(chosen_by(&candidates, far, "fe80::1"), "2001:db8:8::2", "rule 8");
    }
}
