//! The ends of connections and datagrams as applications write them, and as packets have them.
//!
//! A socket address of IPv6 can say more than a packet. `::ffff:a.b.c.d` stands for an IPv4 address
//! (RFC 4291, 2.5.5.2) and is never on the wire: who connects, binds or sends to it speaks IPv4, as with
//! `std::net`, and is told the IPv4 address when he asks. Flow labels are not chosen by applications.

use core::net::SocketAddr;

/// An address and port as the sockets of a shard have them: an IPv4-mapped IPv6 address is the IPv4 address,
/// and what no packet carries is left out.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv6Addr, SocketAddrV6};

    // RFC 4291, 2.5.5.2.
    #[test]
    fn a_mapped_address_is_the_ipv4_one_and_flow_labels_are_left_out() {
        let at = |text: &str| -> SocketAddr { text.parse().expect("an address and a port") };
        assert_eq!(canonical(at("[::ffff:10.0.0.1]:80")), at("10.0.0.1:80"));
        assert_eq!(canonical(at("10.0.0.1:80")), at("10.0.0.1:80"));
        assert_eq!(canonical(at("[::10.0.0.1]:80")), at("[::10.0.0.1]:80"));
        let labelled = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 80, 7, 0);
        assert_eq!(canonical(labelled.into()), at("[::1]:80"));
    }
}
