//! A raw socket.

use crate::direction::Direction;
use multidata::ip::Cidr;
use multidata::{ReceivedPacket, Stack};
use std::io;
use std::net::IpAddr;
use std::task::Context;

/// A raw socket: packets of an IP protocol, or echo requests and what answers them, see
/// [`multidata::RawSocket`].
///
/// Any number of tasks may send and receive by one socket; a packet goes to one of them.
#[derive(Debug)]
pub struct RawSocket {
    socket: multidata::RawSocket,
    readable: Direction,
    writable: Direction,
}

impl RawSocket {
    /// A socket for packets of IP protocol `protocol`, at once.
    ///
    /// # Errors
    /// As [`multidata::RawSocket::bind`].
    pub fn bind(stack: &Stack, protocol: u8) -> io::Result<Self> {
        multidata::RawSocket::bind(stack, protocol).and_then(Self::try_from)
    }

    /// A socket for echo requests of one identifier, at once; zero picks one.
    ///
    /// # Errors
    /// As [`multidata::RawSocket::bind_echo`].
    pub fn bind_echo(stack: &Stack, identifier: u16) -> io::Result<Self> {
        multidata::RawSocket::bind_echo(stack, identifier).and_then(Self::try_from)
    }

    /// Sends one packet to `address`, what lies behind the IP header, and returns its length. Where the
    /// future is dropped, it was not sent.
    ///
    /// # Errors
    /// As [`multidata::RawSocket::send_to`]; `OutOfMemory` where the block pool is exhausted.
    pub async fn send_to(&self, bytes: &[u8], address: impl Into<IpAddr>) -> io::Result<usize> {
        let address = address.into();
        self.writable.wait(|context| self.socket.poll_send_to(context, bytes, address)).await
    }

    /// A socket for the echo requests to others' addresses, at once; see [`multidata::RawSocket::forward_echo`].
    ///
    /// # Errors
    /// As there.
    pub fn forward_echo(stack: &Stack, prefix: Cidr) -> io::Result<Self> {
        multidata::RawSocket::forward_echo(stack, prefix).and_then(Self::try_from)
    }

    /// Sends an echo reply from an address of others; see [`multidata::RawSocket::send_from_to`]. Where the future is
    /// dropped, it was not sent.
    ///
    /// # Errors
    /// As there; `OutOfMemory` where the block pool is exhausted.
    pub async fn send_from_to(
        &self,
        message: &[u8],
        from: IpAddr,
        to: IpAddr,
    ) -> io::Result<usize> {
        let send = |it: &mut Context<'_>| self.socket.poll_send_from_to(it, message, from, to);
        self.writable.wait(send).await
    }

    /// Waits for a packet and copies it out; what does not fit is lost. Where the future is dropped, no
    /// packet was taken.
    ///
    /// # Errors
    /// As [`multidata::RawSocket::recv`].
    pub async fn recv(&self, out: &mut [u8]) -> io::Result<ReceivedPacket> {
        self.readable.wait(|context| self.socket.poll_recv(context, out)).await
    }

    /// As [`RawSocket::recv`]: the length and the sender.
    ///
    /// # Errors
    /// As [`RawSocket::recv`].
    pub async fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, IpAddr)> {
        self.recv(out).await.map(|packet| (packet.len, packet.source))
    }

    /// Waits for a packet and shows it, and at most `packets_max` in all of those that are there; says how many. See
    /// [`multidata::RawSocket::recv_many`]. Where the future is dropped, no packet was taken.
    ///
    /// # Errors
    /// As [`RawSocket::recv`].
    pub async fn recv_many(
        &self,
        packets_max: usize,
        mut show: impl FnMut(ReceivedPacket, &[u8]),
    ) -> io::Result<usize> {
        let receive = |it: &mut Context<'_>| self.socket.poll_recv_many(it, packets_max, &mut show);
        self.readable.wait(receive).await
    }

    /// Waits until a receive would not wait. Another task may have the packet before this one tries.
    ///
    /// # Errors
    /// The device failed.
    pub async fn readable(&self) -> io::Result<()> {
        self.readable.wait(|context| self.socket.poll_readable(context)).await
    }

    /// Waits until a send would not wait: not at all, unless one found the queue of an interface full, and it has been
    /// since.
    ///
    /// # Errors
    /// The device failed.
    pub async fn writable(&self) -> io::Result<()> {
        self.writable.wait(|context| self.socket.poll_writable(context)).await
    }

    /// As [`RawSocket::send_to`], without waiting.
    ///
    /// # Errors
    /// `WouldBlock` where the queue of the interface is full; as [`RawSocket::send_to`].
    pub fn try_send_to(&self, bytes: &[u8], address: impl Into<IpAddr>) -> io::Result<usize> {
        self.socket.send_to(bytes, address)
    }

    /// As [`RawSocket::recv`], without waiting.
    ///
    /// # Errors
    /// `WouldBlock` where there is no packet; as [`RawSocket::recv`].
    pub fn try_recv(&self, out: &mut [u8]) -> io::Result<ReceivedPacket> {
        self.socket.recv(out)
    }

    /// The socket itself, for settings. It does not block, and should not be made to.
    #[must_use]
    pub fn socket(&self) -> &multidata::RawSocket {
        &self.socket
    }
}

impl TryFrom<multidata::RawSocket> for RawSocket {
    type Error = io::Error;

    /// The socket in the hands of tasks; its other handles do not wait any more, either.
    fn try_from(socket: multidata::RawSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, readable: Direction::new(), writable: Direction::new() })
    }
}
