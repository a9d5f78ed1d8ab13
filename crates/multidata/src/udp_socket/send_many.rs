//! Many datagrams in one call, as sendmmsg(2) sends them.

use super::UdpSocket;
use bytes::Bytes;
use core::task::{Context, Poll};
use stack::Envelope;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// A datagram to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Datagram<'a> {
    /// What it says, up to 65,507 bytes over IPv4 and 65,527 over IPv6.
    pub payload: &'a [u8],
    /// Where it goes; `None` is the peer of a connected socket.
    pub to: Option<SocketAddr>,
    /// From which address, as [`UdpSocket::send_from_to`] has it; `None` is the socket's own, or that of the way.
    pub from: Option<IpAddr>,
    /// In place of [`UdpSocket::set_tos`]'s: the differentiated services code point in the upper six bits, ECN in the
    /// lower two (RFC 9000, 13.4).
    pub traffic_class: Option<u8>,
}

/// A datagram to be sent from the caller's own memory.
#[derive(Clone, Debug, Default)]
pub struct LentDatagram {
    /// What it says, up to 65,507 bytes over IPv4 and 65,527 over IPv6.
    pub payload: Bytes,
    /// As [`Datagram::to`].
    pub to: Option<SocketAddr>,
    /// As [`Datagram::from`].
    pub from: Option<IpAddr>,
    /// As [`Datagram::traffic_class`].
    pub traffic_class: Option<u8>,
}

impl UdpSocket {
    /// Sends datagrams, also to different peers, in order, and returns how many. They leave in
    /// batches: one call of the stack and, where the device takes them, one of the device for many.
    /// A socket that blocks sends all of them unless one cannot be sent.
    ///
    /// # Errors
    /// As [`UdpSocket::send_from_to`], where the first datagram cannot be sent. Where a later one cannot,
    /// those before it are sent and counted, and a call that begins with it says why.
    pub fn send_many(&self, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
        self.sender().send_many(datagrams, parts)
    }

    /// As [`UdpSocket::send_many`] for a task: as many of the first as go together, of 64 KiB and for which there is room,
    /// and how many that are. The task is woken when there is room for the first.
    ///
    /// # Errors
    /// As [`UdpSocket::send_many`].
    pub fn poll_send_many(
        &self,
        context: &mut Context<'_>,
        datagrams: &[Datagram<'_>],
    ) -> Poll<io::Result<usize>> {
        self.sender().poll_send_many(context, datagrams, parts)
    }

    /// As [`UdpSocket::send_many`], from the caller's own memory, without a copy. It is held until the device
    /// took the datagrams.
    ///
    /// # Errors
    /// As [`UdpSocket::send_many`].
    pub fn send_many_bytes(&self, datagrams: &[LentDatagram]) -> io::Result<usize> {
        self.sender().send_many_lent(datagrams, |it| {
            (&it.payload, envelope(it.from, it.to, it.traffic_class))
        })
    }
}

fn parts<'a>(datagram: &'a Datagram<'_>) -> (&'a [u8], Envelope) {
    (datagram.payload, envelope(datagram.from, datagram.to, datagram.traffic_class))
}

/// The port it comes from is the socket's.
pub(super) fn envelope(
    from: Option<IpAddr>,
    to: Option<SocketAddr>,
    traffic_class: Option<u8>,
) -> Envelope {
    Envelope { from: from.map(|from| SocketAddr::new(from, 0)), to, traffic_class }
}
