//! Datagrams to addresses and ports that are nobody's here, for a relay.

use crate::Stack;
use crate::error::socket_error;
use crate::groups::LastPlan;
use crate::runtime::squeue::Core;
use crate::runtime::waiting::Interest;
use crate::socket_set::SocketSet;
use crate::udp_sender::UdpSender;
use crate::udp_socket::{ReceivedDatagram, receive_many, show_each};
use core::task::{Context, Poll, Waker};
use ip::{Cidr, IcmpErrorKind};
use stack::{Envelope, SocketError, SocketId};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use time::Duration;

/// Takes the datagrams to all addresses of a prefix and all ports that no UDP socket has, and sends from
/// there: for relays that translate addresses. The interface they come by accepts the addresses
/// ([`InterfaceConfig::accept_any`](crate::InterfaceConfig::accept_any)). For one port of all addresses a
/// [`UdpSocket`](crate::UdpSocket) on an unspecified address is enough
/// ([`UdpSocket::recv_from_to`](crate::UdpSocket::recv_from_to)).
///
/// It holds up to 4 MiB and 16,384 datagrams, in each squeue, and of each flow as much as it has still room for; what comes
/// beyond is dropped and counted (`drop_socket_queue_full`). Senders get an ICMP error where [`UdpForwarder::refuse`] sends
/// one, and none else while it takes everything.
#[derive(Debug)]
pub struct UdpForwarder {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sockets: SocketSet,
    prefix: Cidr,
    last_plan: LastPlan,
}

/// A datagram of a relay.
#[derive(Clone, Copy, Debug)]
pub struct ForwardedDatagram<'a> {
    /// What it says, up to 65,507 bytes over IPv4 and 65,527 over IPv6.
    pub payload: &'a [u8],
    /// From where: any address of the forwarder's prefix and any port.
    pub from: SocketAddr,
    /// Where it goes.
    pub to: SocketAddr,
    /// The differentiated services code point in the upper six bits, ECN in the lower two: who relays what says of
    /// congestion hands that on, too (RFC 3168, 9.1). `None` is zero.
    pub traffic_class: Option<u8>,
}

impl UdpForwarder {
    /// Takes datagrams to `prefix`; of several forwarders the one with the longest prefix does.
    ///
    /// # Errors
    /// As [`TcpForwarder::bind`](crate::TcpForwarder::bind).
    pub fn bind(stack: &Stack, prefix: Cidr) -> io::Result<Self> {
        let sockets = SocketSet::open(stack, |_, core, _| core.shard.udp_forward(prefix))?;
        let first = sockets.first();
        let plan = first.squeue().look(|core| core.shard.datagram_plan(first.id));
        let last_plan = LastPlan::new(plan.map_err(socket_error)?);
        let prefix = prefix.network();
        Ok(Self { shared: Arc::new(Shared { sockets, prefix, last_plan }) })
    }

    /// Waits for a datagram and copies it out, with its sender and where it was sent to. What does not fit
    /// is lost.
    ///
    /// # Errors
    /// `WouldBlock` where the forwarder does not block, or not for longer, and there is none; the device failed.
    pub fn recv_from_to(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr, SocketAddr)> {
        let room = out.len();
        let (_, datagram) = self.shared.sockets.take(|core, id| receive(core, id, room))?;
        Ok(copied_out(&datagram, out))
    }

    /// As [`UdpForwarder::recv_from_to`] for a task, which is woken when there may be a datagram.
    ///
    /// # Errors
    /// The device failed.
    pub fn poll_recv_from_to(
        &self,
        context: &mut Context<'_>,
        out: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr, SocketAddr)>> {
        let room = out.len();
        let taken = self.shared.sockets.poll_take(context, |core, id| receive(core, id, room));
        taken.map_ok(|(_, datagram)| copied_out(&datagram, out))
    }

    /// Waits for a datagram and shows it, and at most `datagrams_max` in all of those that are there; says how many. As
    /// [`UdpSocket::recv_many`](crate::UdpSocket::recv_many).
    ///
    /// # Errors
    /// As [`UdpForwarder::recv_from_to`].
    pub fn recv_many(
        &self,
        datagrams_max: usize,
        show: impl FnMut(ReceivedDatagram<'_>),
    ) -> io::Result<usize> {
        let take = |core: &mut Core, id| receive_many(core, id, datagrams_max);
        let (_, taken) = self.shared.sockets.take(take)?;
        Ok(show_each(&taken, show))
    }

    /// As [`UdpForwarder::recv_many`] for a task, which is woken when there may be a datagram.
    ///
    /// # Errors
    /// The device failed.
    pub fn poll_recv_many(
        &self,
        context: &mut Context<'_>,
        datagrams_max: usize,
        show: impl FnMut(ReceivedDatagram<'_>),
    ) -> Poll<io::Result<usize>> {
        let take = |core: &mut Core, id| receive_many(core, id, datagrams_max);
        let taken = self.shared.sockets.poll_take(context, take);
        taken.map_ok(|(_, taken)| show_each(&taken, show))
    }

    /// Sends one datagram to `to` from the address and port `from`, mostly where the question was sent to, and
    /// returns its length.
    ///
    /// # Errors
    /// `InvalidInput` where `from` is not of the prefix or has no port; as
    /// [`UdpSocket::send_from_to`](crate::UdpSocket::send_from_to).
    pub fn send_from_to(
        &self,
        bytes: &[u8],
        from: SocketAddr,
        to: SocketAddr,
    ) -> io::Result<usize> {
        self.sender().send(bytes, envelope(from, to, None))
    }

    /// As [`UdpForwarder::send_from_to`] for a task, which is woken when there is room.
    ///
    /// # Errors
    /// As [`UdpForwarder::send_from_to`].
    pub fn poll_send_from_to(
        &self,
        context: &mut Context<'_>,
        bytes: &[u8],
        from: SocketAddr,
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.sender().poll_send(context, bytes, envelope(from, to, None))
    }

    /// Sends datagrams, also of different ends, in order, and returns how many: what came back to a relay together goes on
    /// together. As [`UdpSocket::send_many`](crate::UdpSocket::send_many).
    ///
    /// # Errors
    /// As [`UdpForwarder::send_from_to`], where the first datagram cannot be sent. Where a later one cannot, those
    /// before it are sent and counted, and a call that begins with it says why.
    pub fn send_many(&self, datagrams: &[ForwardedDatagram<'_>]) -> io::Result<usize> {
        self.sender().send_many(datagrams, parts)
    }

    /// As [`UdpForwarder::send_many`] for a task: as many of the first as go together, of 64 KiB and for which there is
    /// room, and how many that are. The task is woken when there is room for the first.
    ///
    /// # Errors
    /// As [`UdpForwarder::send_many`].
    pub fn poll_send_many(
        &self,
        context: &mut Context<'_>,
        datagrams: &[ForwardedDatagram<'_>],
    ) -> Poll<io::Result<usize>> {
        self.sender().poll_send_many(context, datagrams, parts)
    }

    /// Answers a datagram from `sender` to `to` with an ICMP error, from where it was sent to: that nobody is at the port
    /// ([`IcmpErrorKind::PortUnreachable`]) or nobody reaches the host, that it is forbidden, that it was too long. So a
    /// client tries elsewhere at once, and does not wait for its timer. `bytes` is the datagram, or its
    /// beginning, or nothing, as far as it is still there: the error quotes it. This never waits: where
    /// the limit for ICMP errors is reached it is dropped and counted (`drop_icmp_rate_limited`).
    ///
    /// # Errors
    /// `InvalidInput` where `to` is not of the prefix or `sender` of the other family; no route; `OutOfMemory`.
    pub fn refuse(
        &self,
        bytes: &[u8],
        sender: SocketAddr,
        to: SocketAddr,
        why: IcmpErrorKind,
    ) -> io::Result<()> {
        let socket = self.shared.sockets.first();
        let refuse =
            |core: &mut Core, now| core.shard.udp_refuse(now, socket.id, (sender, to), bytes, why);
        socket.squeue().once(refuse).map_err(socket_error)
    }

    /// What it takes datagrams to.
    #[must_use]
    pub fn prefix(&self) -> Cidr {
        self.shared.prefix
    }

    /// Another handle of the same forwarder.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`'s sockets.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { shared: Arc::clone(&self.shared) })
    }

    /// Whether calls wait (the default) or answer `WouldBlock`.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`'s sockets.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.shared.sockets.set_nonblocking(nonblocking);
        Ok(())
    }

    /// How long a receive waits; `None`, the default, is without end. An expired timeout is an
    /// error of kind `WouldBlock`.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared.sockets.first().set_timeout(Interest::Readable, timeout)
    }

    /// How long a send waits for room; as for receives.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared.sockets.first().set_timeout(Interest::Writable, timeout)
    }

    /// How long a receive waits.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`'s sockets.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.shared.sockets.first().timeout(Interest::Readable))
    }

    /// How long a send waits.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`'s sockets.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.shared.sockets.first().timeout(Interest::Writable))
    }

    /// Wakes `waker` once, at the next event `interest` is in. What is possible already wakes
    /// nobody: register first, then try.
    pub fn register_waker(&self, interest: Interest, waker: &Waker) {
        match interest {
            Interest::Readable => self.shared.sockets.register_waker(waker),
            // The first one sends for all.
            Interest::Writable => self.shared.sockets.first().register_waker(interest, waker),
        }
    }

    /// The first one sends for all.
    fn sender(&self) -> UdpSender<'_> {
        UdpSender { socket: self.shared.sockets.first(), last_plan: &self.shared.last_plan }
    }
}

fn parts<'a>(datagram: &'a ForwardedDatagram<'_>) -> (&'a [u8], Envelope) {
    (datagram.payload, envelope(datagram.from, datagram.to, datagram.traffic_class))
}

fn envelope(from: SocketAddr, to: SocketAddr, traffic_class: Option<u8>) -> Envelope {
    Envelope { from: Some(from), to: Some(to), traffic_class }
}

/// Takes the datagram that has waited longest.
pub(crate) fn receive(
    core: &mut Core,
    id: SocketId,
    room: usize,
) -> Result<stack::ReceivedDatagram, SocketError> {
    let datagram = core.shard.udp_receive_datagram(id)?;
    core.counters.bytes_copied_out += datagram.payload.len().min(room) as u64;
    Ok(datagram)
}

/// The same datagram, left where it is.
pub(crate) fn peek(core: &mut Core, id: SocketId) -> Result<stack::ReceivedDatagram, SocketError> {
    core.shard.udp_peek_datagram(id)
}

/// Copies out what fits; says how much, from where and to where.
pub(crate) fn copied_out(
    datagram: &stack::ReceivedDatagram,
    out: &mut [u8],
) -> (usize, SocketAddr, SocketAddr) {
    let len = datagram.payload.len().min(out.len());
    out[..len].copy_from_slice(&datagram.payload.bytes()[..len]);
    (len, datagram.source, datagram.destination)
}
