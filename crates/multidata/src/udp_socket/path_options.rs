//! What a socket asks of the paths of its datagrams: neighbours only, a traffic class, a hop limit.

use super::UdpSocket;
use crate::error::socket_error;
use crate::socket::{hop_limit, traffic_class};
use stack::PacketMarks;
use std::io;

impl UdpSocket {
    /// Reaches peers only as neighbours, never by a gateway (SO_DONTROUTE): a datagram to another is refused as
    /// `NetworkUnreachable`.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn set_dont_route(&self, dont_route: bool) -> io::Result<()> {
        let id = self.socket.id;
        self.socket
            .squeue()
            .look(|core| core.shard.udp_set_dont_route(id, dont_route))
            .map_err(socket_error)
    }

    /// How many routers may forward datagrams to single peers from now on (IP_TTL, IPV6_UNICAST_HOPS), 1 to
    /// 255; for groups see [`UdpSocket::set_multicast_ttl`].
    ///
    /// # Errors
    /// `InvalidInput` for other numbers.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let ttl = hop_limit(ttl)?;
        self.change_marks(|marks| marks.hop_limit = Some(ttl))
    }

    /// How many routers may forward a datagram; 64 where nothing else was asked for, as far as this socket
    /// knows: on an IPv6 link routers may have said otherwise.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(self.marks()?.hop_limit.map_or(crate::socket::TTL_DEFAULT, |ttl| ttl.get().into()))
    }

    /// The type of service or traffic class of datagrams from now on (IP_TOS, IPV6_TCLASS), up to 255: the
    /// differentiated services code point, and in the lower two bits ECN.
    ///
    /// # Errors
    /// `InvalidInput` for other numbers.
    pub fn set_tos(&self, tos: u32) -> io::Result<()> {
        let class = traffic_class(tos)?;
        self.change_marks(|marks| marks.traffic_class = class)
    }

    /// What was set by [`UdpSocket::set_tos`]; zero at first.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn tos(&self) -> io::Result<u32> {
        Ok(self.marks()?.traffic_class.into())
    }

    fn marks(&self) -> io::Result<PacketMarks> {
        let id = self.socket.id;
        self.socket.squeue().look(|core| core.shard.marks(id)).map_err(socket_error)
    }

    fn change_marks(&self, change: impl FnOnce(&mut PacketMarks)) -> io::Result<()> {
        let id = self.socket.id;
        let set = |core: &mut crate::runtime::squeue::Core| {
            let mut marks = core.shard.marks(id)?;
            change(&mut marks);
            core.shard.set_marks(id, marks)
        };
        self.socket.squeue().look(set).map_err(socket_error)
    }
}
