//! What a connection asks of its path: packets one by one, neighbours only, a traffic class, a hop limit, ACKs
//! at once.

use super::TcpStream;
use crate::error::socket_error;
use crate::socket::{hop_limit, traffic_class};
use stack::{PacketMarks, TcpOption};
use std::io;

impl TcpStream {
    /// Sends packet by packet (`true`) whatever the device can do, from the next packet on: for a path on
    /// which bursts do harm, or to see what batches are worth. Counted as `multidata_not_by_flow_policy`.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn set_single_packets(&self, single_packets: bool) -> io::Result<()> {
        self.set_option(TcpOption::SinglePackets(single_packets))
    }

    /// Reaches the peer only as a neighbour, never by a gateway (SO_DONTROUTE): while only a gateway leads
    /// there nothing leaves, and the connection ends as with a peer that does not answer. It takes the
    /// connection out of batches (`multidata_not_by_option`).
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn set_dont_route(&self, dont_route: bool) -> io::Result<()> {
        self.set_option(TcpOption::DontRoute(dont_route))
    }

    /// Acknowledges at once what waits for its acknowledgment and the next segments (`true`), or leaves that to
    /// the usual policy again (TCP_QUICKACK). It does not last: after 16 segments the policy is as it was.
    ///
    /// # Errors
    /// None; the signature is that of the standard library's extension for Linux.
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        self.set_option(TcpOption::QuickAcks(quickack))
    }

    /// How many routers may forward the packets from now on (IP_TTL, IPV6_UNICAST_HOPS), 1 to 255. For the
    /// SYN-ACK see [`ListenOptions::marks`](crate::ListenOptions::marks).
    ///
    /// # Errors
    /// `InvalidInput` for other numbers.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let ttl = hop_limit(ttl)?;
        self.change_marks(|marks| marks.hop_limit = Some(ttl))
    }

    /// How many routers may forward the packets; 64 where nothing else was asked for, as far as this socket
    /// knows: on an IPv6 link routers may have said otherwise.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(self.marks()?.hop_limit.map_or(crate::socket::TTL_DEFAULT, |ttl| ttl.get().into()))
    }

    /// The type of service or traffic class of the packets from now on (IP_TOS, IPV6_TCLASS), up to 255: the
    /// differentiated services code point in the upper six bits. The lower two are TCP's own (ECN) and are
    /// ignored. All packets of a connection have one class, so they stay in batches.
    ///
    /// # Errors
    /// `InvalidInput` for other numbers.
    pub fn set_tos(&self, tos: u32) -> io::Result<()> {
        let class = traffic_class(tos)?;
        self.change_marks(|marks| marks.traffic_class = class)
    }

    /// What was set by [`TcpStream::set_tos`]; zero at first, or what the listener had.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn tos(&self) -> io::Result<u32> {
        Ok(self.marks()?.traffic_class.into())
    }

    fn marks(&self) -> io::Result<PacketMarks> {
        self.squeue_look(|shard, id| shard.marks(id)).map_err(socket_error)
    }

    fn change_marks(&self, change: impl FnOnce(&mut PacketMarks)) -> io::Result<()> {
        let set = |shard: &mut stack::Shard, id| {
            let mut marks = shard.marks(id)?;
            change(&mut marks);
            shard.set_marks(id, marks)
        };
        self.squeue_look(set).map_err(socket_error)
    }
}
