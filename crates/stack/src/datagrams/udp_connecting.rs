//! UDP sockets with one peer.
//!
//! A socket that is bound to an address sends from there, connected or not. One that is bound to none has, as on Linux,
//! the address of its own that leads to the peer from when it is connected: it tells it, sends to the peer from it, and
//! hears the peer at no other. Groups and everybody's address are not narrowed by it.
//!
//! ```text
//!   bound to no address --connect--> source chosen --no way from it any more--> another chosen
//!            ^                            |
//!            +--------- disconnect -------+
//! ```
//!
//! A source is kept though another would be chosen by now, because the peer knows it. On Linux a socket whose source was
//! taken from the host fails from then on over IPv4 (ENETUNREACH, also of connect(2) until AF_UNSPEC), and over IPv6 sends on
//! from an address that the host does not have. Here the next datagram, or who asks for the source, has another chosen: a peer that
//! knows its clients by more than their addresses (QUIC, WireGuard) then goes on, and others would have to be asked
//! anew in either case.

use crate::datagrams::udp_socket::UdpSocket;
use crate::error::{BadArgument, SocketError};
use crate::network::endpoint::{agreed, canonical, has_port, is_of_a_link, scoped};
use crate::network::interfaces::InterfaceId;
use crate::network::way::{Way, is_for_many};
use crate::shard::Shard;
use crate::sockets::{SocketId, Sockets};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

impl UdpSocket {
    /// The end that datagrams to the peer come from, or else what the socket is bound to.
    pub(crate) fn own_end(&self) -> SocketAddr {
        self.source.unwrap_or(self.local)
    }

    /// Whether what goes to `remote` comes from the source that was chosen for the peer.
    pub(crate) fn keeps_source_to(&self, remote: SocketAddr) -> bool {
        self.local.ip().is_unspecified() && self.peer == Some(canonical(remote))
    }
}

impl Shard {
    /// Names the only peer: datagrams of others are dropped, and sends need no address. A socket that is bound to no
    /// address has from now on the one that leads there ([`Shard::local_address`]).
    ///
    /// # Errors
    /// No route leads there, or the families differ.
    pub fn udp_connect(&mut self, id: SocketId, peer: SocketAddr) -> Result<(), SocketError> {
        let (plain, by) = self.network.take_scope(peer)?;
        let socket = self.sockets.udp_socket(id)?;
        if socket.prefix.is_some() {
            return Err(BadArgument::Forwarder.into());
        }
        let local = socket.local;
        let plain = self.network.or_this_host(plain, local.ip());
        has_port(plain)?;
        self.sockets.udp_socket(id)?.may_speak_to(plain)?;
        let (local, of) = self.network.take_scope(local)?;
        let peer = match is_for_many(plain.ip()) {
            true => canonical(peer),
            // On a link, the peer is the one that the way leads to now.
            false if is_of_a_link(plain.ip()) => {
                let source = Some(local.ip()).filter(|it| !it.is_multicast());
                let source = source.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
                let (id, _) = self.network.route_from(source, plain.ip(), agreed(by, of)?)?;
                scoped(plain, id)
            }
            false => self.network.route(plain.ip()).map(|_| plain)?,
        };
        self.sockets.udp_socket(id)?.peer = Some(peer);
        self.sockets.set_source(id, None)?;
        self.settle_source(id);
        Ok(())
    }

    /// Takes from everybody again, at what it is bound to, and sends nowhere by itself.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn udp_disconnect(&mut self, id: SocketId) -> Result<(), SocketError> {
        let socket = self.sockets.udp_socket(id)?;
        (socket.peer, socket.source) = (None, None);
        let port = socket.local.port();
        self.sockets.ports.disconnect(port, id.index() as u32);
        Ok(())
    }

    /// Says anew whether a bound socket yields ([`BindOptions::yielding`](crate::BindOptions::yielding)) to those that are
    /// bound from now on.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn udp_set_yielding(&mut self, id: SocketId, yields: bool) -> Result<(), SocketError> {
        let port = self.sockets.udp_socket(id)?.local.port();
        self.sockets.ports.set_yielding(port, id.index() as u32, yields);
        Ok(())
    }

    /// The peer of a connected socket.
    ///
    /// # Errors
    /// There is no such socket, or it has no peer.
    pub fn udp_peer(&mut self, id: SocketId) -> Result<SocketAddr, SocketError> {
        self.sockets.udp_socket(id)?.peer.ok_or(SocketError::NotConnected)
    }

    /// The end of our own of a UDP socket.
    pub(crate) fn udp_own_end(&mut self, id: SocketId) -> Result<SocketAddr, SocketError> {
        self.settle_source(id);
        self.sockets.udp_socket(id).map(|socket| socket.own_end())
    }

    /// Sees that a connected socket that is bound to no address has the source of its next datagram. Where there is none,
    /// as on an interface without addresses, the first datagram that can leave brings it.
    fn settle_source(&mut self, id: SocketId) {
        let Ok(socket) = self.sockets.udp_socket(id) else { return };
        let Some(peer) = socket.peer.filter(|peer| socket.keeps_source_to(*peer)) else { return };
        if let Ok((peer, by)) = self.network.take_scope(peer) {
            let _ = self.way_to_peer(id, peer.ip(), by);
        }
    }

    /// The way to the peer from a connected socket that is bound to no address: from its source as long as one leads
    /// from there, and else from another, which it has from then on.
    pub(crate) fn way_to_peer(
        &mut self,
        id: SocketId,
        peer: IpAddr,
        asked: Option<InterfaceId>,
    ) -> Result<Way, SocketError> {
        let socket = self.sockets.udp_socket(id)?;
        let (bound, source, multicast) = (socket.local, socket.source, socket.multicast);
        let kept = source.map(|source| self.network.way(source.ip(), peer, asked, multicast));
        if let Some(Ok(way)) = kept {
            return Ok(way);
        }
        let way = self.network.way(bound.ip(), peer, asked, multicast);
        let chosen = way.as_ref().ok();
        let chosen =
            chosen.map(|way| scoped(SocketAddr::new(way.source, bound.port()), way.interface_id));
        self.sockets.set_source(id, chosen)?;
        way
    }
}

impl Sockets {
    fn set_source(&mut self, id: SocketId, source: Option<SocketAddr>) -> Result<(), SocketError> {
        let socket = self.udp_socket(id)?;
        socket.source = source;
        let (port, peer) = (socket.local.port(), socket.peer);
        if let Some(peer) = peer {
            let source = source.map(|source| source.ip());
            self.ports.connect(port, id.index() as u32, peer, source);
        }
        Ok(())
    }
}
