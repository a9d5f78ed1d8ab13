//! The ends of connections and datagrams as applications write them, and as packets have them.
//!
//! A socket address of IPv6 can say more than a packet.
//!
//! * `::ffff:a.b.c.d` stands for an IPv4 address (RFC 4291, 2.5.5.2) and is never on the wire: who connects,
//!   binds or sends to it speaks IPv4, as with `std::net`, and is told the IPv4 address when he asks.
//! * `fe80::1%2` is `fe80::1` on the link of one interface (RFC 4007): a link-local address means nothing
//!   without it, for each link may have a host of that name. The number is that of [`InterfaceId::scope_id`].
//!   Zero leaves the choice to the routes, which is the first interface with link-local addresses, and in what is
//!   handed out it says that both ends are this host's. Of other addresses scopes say nothing.
//! * Flow labels are not chosen by applications.
//!
//! * `0.0.0.0` and `::` are nobody's. Who connects or sends there means this host, as on Linux: programs take the
//!   address that they listen at for one to connect to.
//!
//! What is given is taken apart here, and what is handed out is put together; between the two, flows and ports are
//! known by what packets say.

use crate::error::{BadArgument, SocketError};
use crate::network::NetworkLayer;
use crate::network::interfaces::InterfaceId;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address and port as the sockets of a shard have them: an IPv4-mapped IPv6 address is the IPv4 address, only
/// link-local addresses have a scope, and none has a flow label.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    let SocketAddr::V6(given) = address else { return address };
    with_scope(SocketAddr::new(given.ip().to_canonical(), given.port()), given.scope_id())
}

/// `address`, of which no scope is known, as it is told to applications: heard, or bound, at interface `id`.
#[inline]
pub(crate) fn scoped(address: SocketAddr, id: InterfaceId) -> SocketAddr {
    with_scope(address, id.scope_id())
}

/// Whether what came in by interface `id` is for a socket bound to `local`. Between our own addresses there is no link.
#[inline]
pub(crate) fn is_in_scope(local: SocketAddr, id: InterfaceId) -> bool {
    match local {
        SocketAddr::V6(local) if local.scope_id() != 0 => {
            local.scope_id() == id.scope_id() || id == InterfaceId::LOOPBACK
        }
        _ => true,
    }
}

#[inline]
fn with_scope(mut address: SocketAddr, scope_id: u32) -> SocketAddr {
    if let SocketAddr::V6(address) = &mut address
        && is_of_a_link(IpAddr::V6(*address.ip()))
    {
        address.set_scope_id(scope_id);
    }
    address
}

/// Whether an address means something on one link only: unicast, and groups of the link and of the interface (RFC
/// 4007, 5; RFC 4291, 2.7).
#[inline]
pub(crate) fn is_of_a_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => match address.octets() {
            [0xff, scope, ..] => matches!(scope & 0x0f, 1 | 2),
            _ => address.is_unicast_link_local(),
        },
    }
}

impl NetworkLayer {
    /// Where what is for `remote` goes from `local`. Nobody stands for the own address that it comes from, over IPv4,
    /// or else for a loopback address, which is of IPv4 where `local` is.
    pub(crate) fn or_this_host(&self, remote: SocketAddr, local: IpAddr) -> SocketAddr {
        let has_own = || !local.is_unspecified() && self.is_own_address(local);
        let host = match (remote.ip(), local) {
            (remote, _) if !remote.is_unspecified() => remote,
            (IpAddr::V4(_), IpAddr::V4(_)) if has_own() => local,
            (IpAddr::V6(_), IpAddr::V6(_)) => Ipv6Addr::LOCALHOST.into(),
            (IpAddr::V6(_), IpAddr::V4(_)) if !has_own() => Ipv6Addr::LOCALHOST.into(),
            _ => Ipv4Addr::LOCALHOST.into(),
        };
        SocketAddr::new(host, remote.port())
    }

    /// What packets have of an address, and the interface that its scope names.
    ///
    /// # Errors
    /// [`SocketError::NoSuchInterface`].
    pub(crate) fn take_scope(
        &self,
        address: SocketAddr,
    ) -> Result<(SocketAddr, Option<InterfaceId>), SocketError> {
        match canonical(address) {
            SocketAddr::V6(address) if address.scope_id() != 0 => {
                let id = InterfaceId::scoped(address.scope_id());
                let plain = SocketAddr::new(IpAddr::V6(*address.ip()), address.port());
                match self.has_interface(id) {
                    true => Ok((plain, Some(id))),
                    false => Err(SocketError::NoSuchInterface),
                }
            }
            plain => Ok((plain, None)),
        }
    }
}

/// The one interface that two scopes name.
///
/// # Errors
/// [`BadArgument::ScopesDiffer`].
pub(crate) fn agreed(
    one: Option<InterfaceId>,
    other: Option<InterfaceId>,
) -> Result<Option<InterfaceId>, SocketError> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => {
            Err(BadArgument::ScopesDiffer { one: one.scope_id(), other: other.scope_id() }.into())
        }
        _ => Ok(one.or(other)),
    }
}

/// # Errors
/// [`BadArgument::NoPort`]: nobody has port zero, it is only asked for.
pub(crate) fn has_port(remote: SocketAddr) -> Result<(), BadArgument> {
    if remote.port() == 0 { Err(BadArgument::NoPort(remote.ip())) } else { Ok(()) }
}

/// # Errors
/// [`BadArgument::FamiliesDiffer`]: no packet has both addresses.
pub(crate) fn of_one_family(local: IpAddr, remote: IpAddr) -> Result<(), BadArgument> {
    match local.is_ipv4() == remote.is_ipv4() {
        true => Ok(()),
        false => Err(BadArgument::FamiliesDiffer { local, remote }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv6Addr, SocketAddrV6};

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address and a port")
    }

    // RFC 4291, 2.5.5.2.
    #[test]
    fn a_mapped_address_is_the_ipv4_one_and_flow_labels_are_left_out() {
        assert_eq!(canonical(at("[::ffff:10.0.0.1]:80")), at("10.0.0.1:80"));
        assert_eq!(canonical(at("10.0.0.1:80")), at("10.0.0.1:80"));
        assert_eq!(canonical(at("[::10.0.0.1]:80")), at("[::10.0.0.1]:80"));
        let labelled = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 80, 7, 0);
        assert_eq!(canonical(labelled.into()), at("[::1]:80"));
    }

    // RFC 4007, 6: a zone belongs to an address of its scope.
    #[test]
    fn only_addresses_of_a_link_have_a_scope() {
        for (given, kept) in [
            ("[fe80::1%3]:80", "[fe80::1%3]:80"),
            ("[ff02::1%3]:80", "[ff02::1%3]:80"),
            ("[ff01::1%3]:80", "[ff01::1%3]:80"),
            ("[ff05::1%3]:80", "[ff05::1]:80"),
            ("[fd00::1%3]:80", "[fd00::1]:80"),
            ("[::%3]:80", "[::]:80"),
            ("[fe80::1]:80", "[fe80::1]:80"),
        ] {
            assert_eq!(canonical(at(given)), at(kept), "{given}");
        }
    }
}
