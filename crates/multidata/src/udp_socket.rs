//! A UDP socket.

mod path_options;
mod polling;
mod recv_many;
mod send_many;

pub use recv_many::ReceivedDatagram;
pub(crate) use recv_many::{receive_many, show_each, take_many};
use send_many::envelope;
pub use send_many::{Datagram, LentDatagram};

use crate::Stack;
use crate::error::socket_error;
use crate::groups::LastPlan;
use crate::runtime::squeue::Core;
use crate::runtime::turn::After;
use crate::runtime::waiting::Interest;
use crate::socket::{Socket, check_buffer, each_address, ip_options};
use crate::udp_forwarder::{copied_out, peek, receive};
use crate::udp_sender::UdpSender;
use bytes::Bytes;
use core::task::Waker;
use stack::{BindOptions, Envelope, InterfaceId, MtuDiscovery, MulticastOptions, SocketError};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use time::Duration;

/// A UDP socket; shaped like [`std::net::UdpSocket`].
///
/// Datagrams of up to 65,507 bytes over IPv4 and 65,527 over IPv6 are sent, in fragments where the
/// path takes no longer packets, unless [`UdpSocket::set_mtu_discovery`] forbids that.
///
/// Every socket may send to everybody: there is no `set_broadcast`, which `std::net` has, and nothing to ask for. What
/// goes to 255.255.255.255 is for everybody on one link, by the interface that has the address the socket is bound to, or
/// the one of [`UdpSocket::set_multicast_interface`], of the default route, or the first; what goes to the last address
/// of a network of the stack's, as 10.1.0.255 of 10.1.0.0/24, is for everybody there. Other sockets of the stack itself do not
/// hear it. A socket on an unspecified address, and none on one of the stack's own, takes what others send to everybody
/// in either way, each of those that share the port, and from 0.0.0.0 where they have no address yet, so it may be a DHCP
/// server's.
#[derive(Debug)]
pub struct UdpSocket {
    socket: Arc<Socket>,
    last_plan: Arc<LastPlan>,
}

impl UdpSocket {
    /// A socket for datagrams to `address` of `stack`. Port zero picks one; an unspecified address
    /// stands for all addresses of the stack. Link-local ones are told with their scope, and taken with it, see
    /// [`TcpStream::connect`](crate::TcpStream::connect).
    ///
    /// # Errors
    /// The address is not one of the stack's, or in use.
    pub fn bind<A: ToSocketAddrs>(stack: &Stack, address: A) -> io::Result<Self> {
        Self::bind_with(stack, address, BindOptions::default())
    }

    /// As [`UdpSocket::bind`], for a socket that may share its port or keeps to one family.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`].
    pub fn bind_with<A: ToSocketAddrs>(
        stack: &Stack,
        address: A,
        options: BindOptions,
    ) -> io::Result<Self> {
        each_address(address, |address| {
            let home = stack.squeues().for_port(address.port());
            let (id, plan) = stack
                .squeue(home)
                .once(|core, _| {
                    let id = core.shard.udp_bind_with(address, options)?;
                    Ok((id, core.shard.datagram_plan(id)?))
                })
                .map_err(socket_error)?;
            let socket = Arc::new(Socket::new(stack.clone(), home, id));
            Ok(Self { socket, last_plan: Arc::new(LastPlan::new(plan)) })
        })
    }

    /// Receives datagrams to `group`, which all sockets get that joined it and are bound to its port
    /// ([`BindOptions::shared`] lets several be), by interface `interface` (`None`: the one the route to the
    /// group names, else the first with an address of the family): those of `sources`, or of
    /// everybody where there are none. Routers are told (RFC 3376, RFC 3810), of at most 64 groups of each
    /// family on an interface; beyond them, in a stack of several squeues, a socket hears what the link brings.
    ///
    /// # Errors
    /// `InvalidInput` where this is no group, a source is of the other family or there is no such interface;
    /// `OutOfMemory` where the interface is a member of 64 groups, or there are more than 32 sources.
    pub fn join_multicast(
        &self,
        group: IpAddr,
        interface: Option<usize>,
        sources: &[IpAddr],
    ) -> io::Result<()> {
        let id = self.socket.id;
        let join = |core: &mut Core, now| {
            let by = interface_id(core, interface)?;
            core.shard.udp_join(now, id, group, by, sources)
        };
        self.socket.squeue().once(join).map_err(socket_error)
    }

    /// Ends what [`UdpSocket::join_multicast`] began.
    ///
    /// # Errors
    /// `AddrNotAvailable` where the socket is not in the group.
    pub fn leave_multicast(&self, group: IpAddr, interface: Option<usize>) -> io::Result<()> {
        let id = self.socket.id;
        let leave = |core: &mut Core, now| {
            let by = interface_id(core, interface)?;
            core.shard.udp_leave(now, id, group, by)
        };
        self.socket.squeue().once(leave).map_err(socket_error)
    }

    /// How many routers may forward datagrams to groups, plus one: 1, the default, keeps them on
    /// the link, 0 in this stack.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn set_multicast_ttl(&self, hop_limit: u8) -> io::Result<()> {
        self.set_multicast(|_, options| {
            options.hop_limit = hop_limit;
            Ok(())
        })
    }

    /// Whether listeners of this stack get datagrams to groups, too; they do by default.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn set_multicast_loop(&self, is_looped: bool) -> io::Result<()> {
        self.set_multicast(|_, options| {
            options.is_looped = is_looped;
            Ok(())
        })
    }

    /// The interface by which datagrams to groups, and to everybody on a link (255.255.255.255), leave; `None`
    /// as in [`UdpSocket::join_multicast`].
    ///
    /// # Errors
    /// `InvalidInput` where there is no such interface.
    pub fn set_multicast_interface(&self, interface: Option<usize>) -> io::Result<()> {
        self.set_multicast(|core, options| {
            options.interface = interface_id(core, interface)?;
            Ok(())
        })
    }

    fn set_multicast(
        &self,
        change: impl FnOnce(&Core, &mut MulticastOptions) -> Result<(), SocketError>,
    ) -> io::Result<()> {
        let id = self.socket.id;
        let set = |core: &mut Core, _| {
            let mut options = core.shard.udp_multicast(id)?;
            change(core, &mut options)?;
            core.shard.udp_set_multicast(id, options)
        };
        self.socket.squeue().once_sending(set).map_err(socket_error)
    }

    /// Names the only peer: [`UdpSocket::send`] sends to it and only its datagrams are received. A socket that is
    /// bound to an unspecified address has the one from now on that leads there, and another if the stack loses that.
    ///
    /// # Errors
    /// No route leads there.
    pub fn connect<A: ToSocketAddrs>(&self, address: A) -> io::Result<()> {
        each_address(address, |address| {
            let connect = |core: &mut crate::runtime::squeue::Core, _| {
                core.shard.udp_connect(self.socket.id, address)
            };
            self.socket.squeue().once_sending(connect).map_err(socket_error)
        })
    }

    /// Sends one datagram to `address` and returns its length.
    ///
    /// # Errors
    /// No route, too long, the interface's queue stayed full for the write timeout; `OutOfMemory`, at once, where the
    /// block pool is exhausted.
    pub fn send_to<A: ToSocketAddrs>(&self, bytes: &[u8], address: A) -> io::Result<usize> {
        self.sender().send(bytes, envelope(None, Some(first_of(address)?), None))
    }

    /// As [`UdpSocket::send_to`], from the address `from` and the socket's port (IP_PKTINFO, which `std::net`
    /// does not have): so a socket on an unspecified address answers from where it was asked, as
    /// [`UdpSocket::recv_from_to`] tells it. It is one of the stack's own or of a prefix that an interface
    /// accepts ([`InterfaceConfig::accept_any`](crate::InterfaceConfig::accept_any)).
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`]; `AddrNotAvailable` where the stack does not have the address, `InvalidInput`
    /// where the families differ.
    pub fn send_from_to<A: ToSocketAddrs>(
        &self,
        bytes: &[u8],
        from: IpAddr,
        address: A,
    ) -> io::Result<usize> {
        self.sender().send(bytes, envelope(Some(from), Some(first_of(address)?), None))
    }

    /// As [`UdpSocket::send_to`], from the caller's own memory, without a copy. It is held until the
    /// device took the datagram.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`].
    pub fn send_bytes_to<A: ToSocketAddrs>(&self, bytes: Bytes, address: A) -> io::Result<usize> {
        self.sender().send_lent(bytes, envelope(None, Some(first_of(address)?), None))
    }

    /// As [`UdpSocket::send`], from the caller's own memory, without a copy.
    ///
    /// # Errors
    /// As [`UdpSocket::send`].
    pub fn send_bytes(&self, bytes: Bytes) -> io::Result<usize> {
        self.sender().send_lent(bytes, Envelope::default())
    }

    /// Sends one datagram to the peer and returns its length.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`], and where the socket has no peer. A connected socket also reports
    /// that the peer's host or port was found unreachable.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.sender().send(bytes, Envelope::default())
    }

    /// Waits for a datagram and copies it out, with its sender. What does not fit is lost.
    ///
    /// # Errors
    /// `WouldBlock` where there is none (in time). A connected socket also reports, once and before any datagram, that the
    /// peer's host or port was found unreachable.
    pub fn recv_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_from_to(out).map(|(len, source, _)| (len, source))
    }

    /// As [`UdpSocket::recv_from`], with where the datagram was sent to as well (IP_PKTINFO): for a socket on
    /// an unspecified address one of the stack's own, of an accepted prefix
    /// ([`InterfaceConfig::accept_any`](crate::InterfaceConfig::accept_any)), a group, or everybody's.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn recv_from_to(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr, SocketAddr)> {
        let call = self.socket.call(Interest::Readable, After::Send);
        let id = self.socket.id;
        let datagram =
            self.socket.squeue().operate(&call, |core, _| receive(core, id, out.len()))?;
        Ok(copied_out(&datagram, out))
    }

    /// As [`UdpSocket::recv_from`], for a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn recv(&self, out: &mut [u8]) -> io::Result<usize> {
        self.recv_from(out).map(|(len, _)| len)
    }

    /// As [`UdpSocket::recv_from`]; the datagram stays to be received.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn peek_from(&self, out: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let call = self.socket.call(Interest::Readable, After::Leave);
        let id = self.socket.id;
        let datagram = self.socket.squeue().operate(&call, |core, _| peek(core, id))?;
        let (len, source, _) = copied_out(&datagram, out);
        Ok((len, source))
    }

    /// As [`UdpSocket::peek_from`], for a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn peek(&self, out: &mut [u8]) -> io::Result<usize> {
        self.peek_from(out).map(|(len, _)| len)
    }

    /// Takes the error that waits to be reported: that the peer of a connected socket was found
    /// unreachable. The next call would report it, and does not then.
    ///
    /// # Errors
    /// None; the signature is that of `std::net`.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let id = self.socket.id;
        let checked = self.socket.squeue().look(|core| core.shard.udp_check(id));
        Ok(checked.err().map(socket_error))
    }

    /// The address datagrams are received at; of a connected socket, where they come from, too, whatever it was bound to.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let id = self.socket.id;
        self.socket.squeue().look(|core| core.shard.local_address(id)).map_err(socket_error)
    }

    /// The only peer.
    ///
    /// # Errors
    /// `NotConnected` where the socket has none.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let peer = self.socket.squeue().look(|core| core.shard.udp_peer(self.socket.id));
        peer.map_err(socket_error)
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

    /// How much may wait unread (SO_RCVBUF): payload, and a fixed cost for each datagram; 212,992 bytes where it
    /// is not set. What finds no room is dropped and counted (`drop_socket_queue_full`). Queued payload holds
    /// blocks of the stack's pool, of which there is a bound for all sockets together
    /// ([`PoolConfig::datagrams_limit_bytes`](batch::PoolConfig::datagrams_limit_bytes)); one alone may have half of that,
    /// and what finds no room there is counted as `drop_datagrams_full`.
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_receive_buffer_size(&self, bytes: usize) -> io::Result<()> {
        check_buffer(bytes)?;
        let id = self.socket.id;
        self.socket
            .squeue()
            .look(|core| core.shard.udp_set_receive_buffer(id, bytes))
            .map_err(socket_error)
    }

    /// How datagrams treat the MTU of their path (`IP_MTU_DISCOVER`, which `std::net` does not have).
    ///
    /// # Errors
    /// The socket is closed.
    pub fn set_mtu_discovery(&self, discovery: MtuDiscovery) -> io::Result<()> {
        let set = |core: &mut crate::runtime::squeue::Core, _| {
            core.shard.udp_set_mtu_discovery(self.socket.id, discovery)
        };
        self.socket.squeue().once_sending(set).map_err(socket_error)
    }

    /// Puts options into the IPv4 header of every datagram from now on (IP_OPTIONS), as
    /// [`TcpStream::set_ip_options`](crate::TcpStream::set_ip_options) does; datagrams over IPv6 have
    /// none.
    ///
    /// # Errors
    /// `InvalidInput` for options that are malformed or of a kind that is not sent.
    pub fn set_ip_options(&self, options: &[u8]) -> io::Result<()> {
        let options = ip_options(options)?;
        let id = self.socket.id;
        self.socket
            .squeue()
            .once_sending(|core, _| core.shard.udp_set_ip_options(id, options))
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

    fn sender(&self) -> UdpSender<'_> {
        UdpSender { socket: &self.socket, last_plan: &self.last_plan }
    }
}

fn first_of(address: impl ToSocketAddrs) -> io::Result<SocketAddr> {
    let unresolved =
        || io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses");
    address.to_socket_addrs()?.next().ok_or_else(unresolved)
}

fn interface_id(core: &Core, index: Option<usize>) -> Result<Option<InterfaceId>, SocketError> {
    let Some(index) = index else { return Ok(None) };
    let port = core.devices.port(index).ok_or(SocketError::NoSuchInterface)?;
    Ok(Some(port.id))
}
