//! What a datagram says of itself that its socket does not: where it goes, and from where.

use crate::datagrams::udp_socket::UdpSocket;
use crate::error::{BadArgument, SocketError};
use crate::network::endpoint::{canonical, has_port};
use core::net::SocketAddr;

/// Where a datagram goes, where it comes from, and how it is marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Of a socket this address, which is one of ours or accepted, and the socket's own port, whatever is said here:
    /// what answers from where it was asked (IP_PKTINFO). `None` or an unspecified address is as if none were named. Of
    /// a forwarder ([`Shard::udp_forward`](crate::Shard::udp_forward)), which needs one: any address of its prefix and
    /// any port.
    pub from: Option<SocketAddr>,
    /// `None`: to the peer the socket is connected to.
    pub to: Option<SocketAddr>,
    /// In place of the socket's: the differentiated services code point in the upper six bits, ECN in the lower two.
    pub traffic_class: Option<u8>,
}

impl From<SocketAddr> for Envelope {
    fn from(to: SocketAddr) -> Self {
        Self { to: Some(to), ..Self::default() }
    }
}

impl UdpSocket {
    /// From where a datagram leaves that is to come from there; `None` is the socket's own address.
    ///
    /// # Errors
    /// A forwarder's that has none, or one that is not of its prefix.
    pub(crate) fn origin(
        &self,
        from: Option<SocketAddr>,
    ) -> Result<Option<SocketAddr>, SocketError> {
        let from = from.map(canonical);
        let Some(prefix) = self.prefix else {
            let named = from.filter(|from| !from.ip().is_unspecified());
            return Ok(named.map(|mut from| {
                from.set_port(self.local.port());
                from
            }));
        };
        let from = from.ok_or(BadArgument::NoSource)?;
        has_port(from)?;
        match prefix.contains(from.ip()) {
            true => Ok(Some(from)),
            false => Err(BadArgument::OutsidePrefix { address: from.ip(), prefix }.into()),
        }
    }
}
