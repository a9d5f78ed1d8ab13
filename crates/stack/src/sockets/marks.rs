//! What the packets of a socket say to routers: traffic class and hop limit.
//!
//! A connection has them in its header template, so they cost a packet nothing and it stays in batches. What
//! a listener has goes with its SYN-ACKs and to its connections, as on Linux. Answers that nobody keeps a
//! socket for go without: SYN cookies, and ACKs of the TIME-WAIT table.

use crate::error::SocketError;
use crate::shard::Shard;
use crate::sockets::{SocketId, Sockets};
use core::num::NonZeroU8;
use ip::HeaderTemplate;

/// The bits of the traffic class that are not DSCP (RFC 3168, 5).
const ECN_MASK: u8 = 0b11;

/// What a socket asks to have in the IP header of its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketMarks {
    /// IP_TOS, or the traffic class of IPv6: the differentiated services code point in the upper six bits.
    /// The lower two, ECN, are the application's in datagrams; those of segments are TCP's own.
    pub traffic_class: u8,
    /// IP_TTL, or the hop limit of IPv6; `None` for what the interface says. It is not for multicast.
    pub hop_limit: Option<NonZeroU8>,
}

impl PacketMarks {
    /// Writes them into the header of segments. `usual` is the hop limit of who asks for none.
    pub(crate) fn write(self, template: &mut HeaderTemplate, usual: u8) {
        template.set_dscp_ecn(self.traffic_class & !ECN_MASK);
        template.set_hop_limit(self.hop_limit.map_or(usual, NonZeroU8::get));
    }
}

impl Shard {
    /// What a connection, a listener or a UDP socket was given last.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn marks(&mut self, id: SocketId) -> Result<PacketMarks, SocketError> {
        let index = self.sockets.index(id)?;
        if let Some(socket) = self.sockets.tcp(index) {
            return Ok(socket.path.marks);
        }
        if let Some(listener) = self.sockets.listener(index) {
            return Ok(listener.marks());
        }
        self.sockets.udp(index).map(|socket| socket.marks).ok_or(SocketError::InvalidSocket)
    }

    /// Gives them to a connection, a listener or a UDP socket: to what is sent from now on.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn set_marks(&mut self, id: SocketId, marks: PacketMarks) -> Result<(), SocketError> {
        let index = self.sockets.index(id)?;
        if let Some(socket) = self.sockets.tcp(index) {
            let is_ipv4 = socket.path.network.is_ipv4();
            let usual = self.network.interfaces[socket.path.interface].hop_limit(is_ipv4);
            socket.path.marks = marks;
            socket.path.network.set_marks(marks, usual);
        } else if let Some(listener) = self.sockets.listener(index) {
            listener.set_marks(marks);
        } else {
            self.sockets.udp(index).ok_or(SocketError::InvalidSocket)?.marks = marks;
        }
        Ok(())
    }
}

impl Sockets {
    /// Those of a listener; none where it is gone.
    pub(crate) fn listener_marks(&mut self, listener: SocketId) -> PacketMarks {
        let index = self.index(listener).ok();
        let listener = index.and_then(|index| self.listener(index));
        listener.map_or(PacketMarks::default(), |listener| listener.marks())
    }
}
