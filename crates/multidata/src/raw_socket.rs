//! A raw socket.

mod polling;
mod recv_many;
mod send_many;

pub use send_many::RawPacket;

use crate::Stack;
use crate::copy_in::Layout;
use crate::error::socket_error;
use crate::groups::{LastPlan, copy_one};
use crate::runtime::squeue::Core;
use crate::runtime::turn::After;
use crate::runtime::waiting::Interest;
use crate::socket::{Socket, check_buffer};
use batch::Chunks;
use core::task::Waker;
use ip::Cidr;
use stack::{MtuDiscovery, SocketError, SocketId};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use time::Duration;

/// The squeue of all raw sockets: what is neither TCP nor UDP comes to the first.
const HOME: usize = 0;

/// A packet that a [`RawSocket`] received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedPacket {
    /// Bytes that were copied out, or are shown.
    pub len: usize,
    /// Who sent it.
    pub source: IpAddr,
    /// The address of the stack, or the group, that it came to.
    pub destination: IpAddr,
    /// Its time to live or hop limit on arrival.
    pub hop_limit: u8,
}

/// A socket for packets of an IP protocol, without their IP headers, or for echo requests and what
/// answers them, or for the echo requests to others that a relay answers; shaped like
/// [`UdpSocket`](crate::UdpSocket), with addresses in the place of addresses and ports.
///
/// The IP header of what is sent is the stack's, and so is the checksum of ICMP and ICMPv6. A socket for a
/// protocol receives a copy of each packet of it, whatever the stack itself does with that; of ICMP,
/// of each sound one. TCP and UDP have sockets of their own and are refused. Packets that are too long
/// for their path go out in fragments, unless [`RawSocket::set_mtu_discovery`] forbids that.
#[derive(Debug)]
pub struct RawSocket {
    socket: Arc<Socket>,
    last_plan: Arc<LastPlan>,
}

impl RawSocket {
    /// A socket for packets of IP protocol `protocol`, of both families, to all addresses of `stack`.
    ///
    /// # Errors
    /// `Unsupported` for TCP (6), UDP (17), the extension headers of IPv6 (0, 43, 44, 60) and 255;
    /// `QuotaExceeded` where there are 64 such sockets.
    pub fn bind(stack: &Stack, protocol: u8) -> io::Result<Self> {
        Self::bind_at(stack, protocol, Ipv4Addr::UNSPECIFIED.into())
    }

    /// As [`RawSocket::bind`], for packets to and from one address of the stack.
    ///
    /// # Errors
    /// As [`RawSocket::bind`], and where the address is not the stack's.
    pub fn bind_at(stack: &Stack, protocol: u8, address: IpAddr) -> io::Result<Self> {
        Self::open(stack, |core| core.shard.raw_bind(protocol, address))
    }

    /// A socket for echo requests of one identifier ([`echo_request`](crate::echo_request) makes them), by the
    /// ICMP of the family of each destination. It receives the replies to them and the ICMP errors about them, and
    /// nothing else. Zero picks an identifier.
    ///
    /// # Errors
    /// `AddrInUse` where another socket has the identifier.
    pub fn bind_echo(stack: &Stack, identifier: u16) -> io::Result<Self> {
        Self::bind_echo_at(stack, identifier, Ipv4Addr::UNSPECIFIED.into())
    }

    /// As [`RawSocket::bind_echo`], from one address of the stack.
    ///
    /// # Errors
    /// As [`RawSocket::bind_echo`], and where the address is not the stack's.
    pub fn bind_echo_at(stack: &Stack, identifier: u16, address: IpAddr) -> io::Result<Self> {
        Self::open(stack, |core| core.shard.raw_bind_echo(address, identifier))
    }

    /// A socket for the echo requests to all addresses of a prefix that the stack accepts and does not have
    /// ([`InterfaceConfig::accept_any`](crate::InterfaceConfig::accept_any)), for relays. Of several the one with the
    /// longest prefix gets a request. It answers by [`RawSocket::send_from_to`], or nobody does.
    ///
    /// # Errors
    /// As [`TcpForwarder::bind`](crate::TcpForwarder::bind).
    pub fn forward_echo(stack: &Stack, prefix: Cidr) -> io::Result<Self> {
        Self::open(stack, |core| core.shard.echo_forward(prefix))
    }

    fn open(
        stack: &Stack,
        bind: impl FnOnce(&mut Core) -> Result<SocketId, SocketError>,
    ) -> io::Result<Self> {
        let (id, plan) = stack
            .squeue(HOME)
            .once(|core, _| {
                let id = bind(core)?;
                Ok((id, core.shard.datagram_plan(id)?))
            })
            .map_err(socket_error)?;
        let socket = Arc::new(Socket::new(stack.clone(), HOME, id));
        Ok(Self { socket, last_plan: Arc::new(LastPlan::new(plan)) })
    }

    /// The identifier of a socket for echo requests; zero of others.
    ///
    /// # Errors
    /// None; a socket that is open has one.
    pub fn echo_identifier(&self) -> io::Result<u16> {
        let id = self.socket.id;
        let local = self.socket.squeue().look(|core| core.shard.local_address(id));
        local.map(|local| local.port()).map_err(socket_error)
    }

    /// Sends one packet to `address`: what lies behind the IP header. Returns its length.
    ///
    /// # Errors
    /// No route; `InvalidInput` where it is too long, where an ICMP message is shorter than its header or
    /// is sent to the other family, or where a socket for echo requests is given anything else; the
    /// interface's queue stayed full for the write timeout; `OutOfMemory`, at once, where the block pool is exhausted.
    pub fn send_to(&self, bytes: &[u8], address: impl Into<IpAddr>) -> io::Result<usize> {
        self.send(bytes, None, address.into())
    }

    /// Sends an echo reply to `to` from the address `from`, by a socket for the echo requests to others
    /// ([`RawSocket::forward_echo`]). `message` is that of the request, all that was received of it, or one that
    /// differs in its data: it leaves as the reply. Returns its length.
    ///
    /// # Errors
    /// As [`RawSocket::send_to`]; `InvalidInput` by another socket, where `from` is not of the prefix, or
    /// where the message is no echo.
    pub fn send_from_to(&self, message: &[u8], from: IpAddr, to: IpAddr) -> io::Result<usize> {
        self.send(message, Some(from), to)
    }

    fn send(&self, bytes: &[u8], from: Option<IpAddr>, to: IpAddr) -> io::Result<usize> {
        let layout = self.last_plan.layout(&self.socket.stack);
        let copied = self.copy(&layout, bytes)?;
        let call = self.socket.call(Interest::Writable, After::Send);
        let squeue = self.socket.squeue();
        squeue.operate(&call, |core, _| self.send_copied(core, (from, to), &copied, &layout))
    }

    fn send_copied(
        &self,
        core: &mut Core,
        (from, to): (Option<IpAddr>, IpAddr),
        copied: &Chunks,
        layout: &Layout,
    ) -> Result<usize, SocketError> {
        let id = self.socket.id;
        match from {
            None => core.shard.raw_send(id, to, copied.clone())?,
            Some(from) => core.shard.raw_send_forwarded(id, from, to, copied.clone())?,
        }
        self.last_plan.renew(&self.socket.stack, core, id)?;
        layout.count(&mut core.counters, copied.len());
        core.pace.on_written(copied.len());
        Ok(copied.len())
    }

    /// Waits for a packet and copies it out, with its sender. What does not fit is lost.
    ///
    /// # Errors
    /// `WouldBlock` where there is none (in time).
    pub fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, IpAddr)> {
        self.recv(out).map(|packet| (packet.len, packet.source))
    }

    /// As [`RawSocket::recv_from`], with all that the IP header said.
    ///
    /// # Errors
    /// As [`RawSocket::recv_from`].
    pub fn recv(&self, out: &mut [u8]) -> io::Result<ReceivedPacket> {
        let call = self.socket.call(Interest::Readable, After::Send);
        let len = out.len();
        let packet = self.socket.squeue().operate(&call, |core, _| self.take(core, len))?;
        Ok(copy_out(&packet, out))
    }

    /// The next packet, of which `len_max` bytes will be copied out.
    fn take(&self, core: &mut Core, len_max: usize) -> Result<stack::RawPacket, SocketError> {
        let packet = core.shard.raw_receive(self.socket.id)?;
        core.counters.bytes_copied_out += packet.payload.len().min(len_max) as u64;
        Ok(packet)
    }

    /// Another handle of the same socket.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn try_clone(&self) -> io::Result<Self> {
        let last_plan = Arc::clone(&self.last_plan);
        Ok(Self { socket: Arc::clone(&self.socket), last_plan })
    }

    /// How long a receive waits; `None`, the default, is without end. An expired timeout is an
    /// error of kind `WouldBlock`.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_timeout(Interest::Readable, timeout)
    }

    /// How long a send waits for room; as for receives.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_timeout(Interest::Writable, timeout)
    }

    /// How long a receive waits.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.timeout(Interest::Readable))
    }

    /// How long a send waits.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.timeout(Interest::Writable))
    }

    /// Sets the time to live, or hop limit, of what is sent from now on.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_ttl(&self, ttl: u8) -> io::Result<()> {
        let id = self.socket.id;
        let set = |core: &mut Core, _| core.shard.raw_set_hop_limit(id, Some(ttl));
        self.socket.squeue().once_sending(set).map_err(socket_error)
    }

    /// How packets treat the MTU of their path (`IP_MTU_DISCOVER`).
    ///
    /// # Errors
    /// The socket is closed.
    pub fn set_mtu_discovery(&self, discovery: MtuDiscovery) -> io::Result<()> {
        let id = self.socket.id;
        let set = |core: &mut Core, _| core.shard.raw_set_mtu_discovery(id, discovery);
        self.socket.squeue().once_sending(set).map_err(socket_error)
    }

    /// How much may wait unread (SO_RCVBUF), as of
    /// [`UdpSocket::set_receive_buffer_size`](crate::UdpSocket::set_receive_buffer_size).
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_receive_buffer_size(&self, bytes: usize) -> io::Result<()> {
        check_buffer(bytes)?;
        let id = self.socket.id;
        self.socket
            .squeue()
            .look(|core| core.shard.raw_set_receive_buffer(id, bytes))
            .map_err(socket_error)
    }

    /// Whether calls wait (the default) or answer `WouldBlock`.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Wakes `waker` once, at the next event `interest` is in. What is possible already wakes
    /// nobody: register first, then try.
    pub fn register_waker(&self, interest: Interest, waker: &Waker) {
        self.socket.register_waker(interest, waker);
    }

    /// Copies a packet into blocks.
    fn copy(&self, layout: &Layout, bytes: &[u8]) -> io::Result<Chunks> {
        copy_one(&self.socket.stack, layout, bytes).map_err(socket_error)
    }
}

fn copy_out(packet: &stack::RawPacket, out: &mut [u8]) -> ReceivedPacket {
    let len = packet.payload.len().min(out.len());
    out[..len].copy_from_slice(&packet.payload.bytes()[..len]);
    about(packet, len)
}

/// What is told of a packet of which so many bytes are handed out.
fn about(packet: &stack::RawPacket, len: usize) -> ReceivedPacket {
    let stack::RawPacket { source, destination, hop_limit, .. } = *packet;
    ReceivedPacket { len, source, destination, hop_limit }
}
