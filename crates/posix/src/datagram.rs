//! UDP sockets as programs see them.

use crate::abi::{
    MSG_DONTWAIT, MSG_ERRQUEUE, MSG_MORE, MSG_OOB, MSG_PEEK, MSG_TRUNC, SHUT_RD, SHUT_WR,
};
use crate::addresses::Domain;
use crate::call::{Fd, Output, Reply};
use crate::control::Asked;
use crate::epoll::News;
use crate::host::{Attempt, Host, Task};
use crate::options::Options;
use crate::path_mtu::mtu_discovery;
use crate::told::Arrived;
use crate::{Address, ControlMessage, Errno};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use ip::Cidr;
use stack::{BindOptions, Envelope, SocketError, SocketId};
use std::collections::VecDeque;

/// The longest payload over either family (RFC 768: 65,535 bytes with the header).
const PAYLOAD_BYTES_MAX: usize = 65_527;

/// A UDP socket.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) domain: Domain,
    pub(crate) options: Options,
    /// Set once it is bound, by the program or by its first datagram.
    pub(crate) id: Option<SocketId>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) nonblocking: bool,
    /// shutdown(SHUT_RD) was called, be it in vain.
    pub(crate) read_shut: bool,
    /// shutdown(SHUT_WR) was called, be it in vain.
    pub(crate) write_shut: bool,
    /// Datagrams taken from the stack to look at them.
    held: VecDeque<Held>,
    /// What was sent with MSG_MORE so far, and where the datagram goes that it is of.
    gathered: Option<(Vec<u8>, SocketAddr)>,
    pub(crate) error: Option<Errno>,
}

/// A datagram, where it came from and when.
#[derive(Clone, Debug)]
struct Held {
    bytes: Vec<u8>,
    from: SocketAddr,
    arrived: Arrived,
}

impl Datagram {
    pub(crate) fn new(domain: Domain, nonblocking: bool) -> Self {
        Self {
            domain,
            options: Options::default(),
            id: None,
            peer: None,
            nonblocking,
            read_shut: false,
            write_shut: false,
            held: VecDeque::new(),
            gathered: None,
            error: None,
        }
    }

    /// Where datagrams to an address go. As Linux: a socket of AF_INET6 takes those of IPv4 also as they are.
    fn remote(&self, address: Address) -> Result<SocketAddr, Errno> {
        let address = match address {
            Address::Inet(plain) if plain.is_ipv4() => Address::seen_from(self.domain, plain),
            other => other,
        };
        address.for_domain(self.domain, self.options.ipv6_only)
    }

    /// Whether a call with these flags must not wait.
    fn waits_not(&self, flags: i32) -> bool {
        self.nonblocking || flags & MSG_DONTWAIT != 0
    }
}

impl Host {
    pub(crate) fn bind_datagram(&mut self, fd: Fd, local: SocketAddr) -> Attempt {
        if self.files.datagram(fd)?.id.is_some() {
            return Err(Errno::EINVAL.into());
        }
        self.make_datagram(fd, local)?;
        self.files.datagram(fd)?.options.settle_family(local);
        Ok(Reply::value(0))
    }

    pub(crate) fn connect_datagram(&mut self, fd: Fd, address: Address) -> Attempt {
        if address == Address::Unspecified {
            let datagram = self.files.datagram(fd)?;
            datagram.peer = None;
            if let Some(id) = datagram.id {
                self.shard().udp_disconnect(id)?;
            }
            return Ok(Reply::value(0));
        }
        let peer = self.files.datagram(fd)?.remote(address)?;
        self.check_broadcast(fd, peer)?;
        let id = self.datagram_id(fd)?;
        self.shard().udp_connect(id, peer)?;
        let peer = self.shard().udp_peer(id)?;
        self.files.datagram(fd)?.peer = Some(peer);
        Ok(Reply::value(0))
    }

    pub(crate) fn send_datagram(
        &mut self,
        task: &Task,
        fd: Fd,
        bytes: &[u8],
        flags: i32,
        to: Option<Address>,
        control: &[ControlMessage],
    ) -> Attempt {
        if flags & MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let datagram = self.files.datagram(fd)?;
        let names_nobody =
            |to: &Address| *to == Address::Unspecified && datagram.domain == Domain::Inet6;
        let to = to.filter(|to| !names_nobody(to)).map(|to| datagram.remote(to)).transpose()?;
        // As Linux: where the first of it goes, all of it goes.
        let to = datagram.gathered.as_ref().map_or(to, |(_, first)| Some(*first));
        let remote = to.or(datagram.peer).ok_or(Errno::EDESTADDRREQ)?;
        let asked = Asked::of_datagram(control, remote.is_ipv4())?;
        let marks = asked.over(datagram.options.marks_over(remote.is_ipv4(), datagram.domain));
        if let Some(error) = datagram.error.take() {
            return Err(error.into());
        }
        if datagram.write_shut {
            return Err(Errno::EPIPE.into());
        }
        self.check_broadcast(fd, remote)?;
        let datagram = self.files.datagram(fd)?;
        let before = datagram.gathered.as_ref().map_or(&[][..], |(before, _)| before);
        let whole = [before, bytes].concat();
        if flags & MSG_MORE != 0 {
            if whole.len() > PAYLOAD_BYTES_MAX {
                return Err(Errno::EMSGSIZE.into());
            }
            datagram.gathered = Some((whole, remote));
            return Ok(Reply::value(bytes.len() as i64));
        }
        let id = self.datagram_id(fd)?;
        self.shard().set_marks(id, marks)?;
        let chunk = Chunk::whole(Block::from(Bytes::from(whole)));
        let from = asked.source.map(|source| SocketAddr::new(source, 0));
        let envelope = Envelope { from, to, ..Envelope::default() };
        let sent = self.shard().udp_send_with(id, envelope, chunk);
        if sent != Err(SocketError::WouldBlock) {
            self.files.datagram(fd)?.gathered = None;
        }
        match sent {
            Ok(()) => {
                // As Linux: what leaves makes room.
                self.wake(fd, News::OUTPUT);
                Ok(Reply::value(bytes.len() as i64))
            }
            Err(SocketError::WouldBlock) => {
                let datagram = self.files.datagram(fd)?;
                let (waits_not, timeout) =
                    (datagram.waits_not(flags), datagram.options.send_timeout);
                Err(self.wait(task, waits_not, timeout))
            }
            Err(error) => Err(self.refusal(fd, error, &asked, remote.is_ipv4())?.into()),
        }
    }

    /// The error of a datagram that the stack did not take.
    fn refusal(
        &mut self,
        fd: Fd,
        error: SocketError,
        asked: &Asked,
        is_ipv4: bool,
    ) -> Result<Errno, Errno> {
        Ok(match error {
            // As Linux: a source that a control message names and this host does not have.
            SocketError::AddressNotAvailable if asked.source.is_some() && is_ipv4 => {
                Errno::ENETUNREACH
            }
            SocketError::AddressNotAvailable if asked.source.is_some() => Errno::EINVAL,
            SocketError::MessageTooLong if self.has_report(fd)? => {
                // It is told of there, too.
                self.wake(fd, News::ERROR);
                Errno::EMSGSIZE
            }
            error => error.into(),
        })
    }

    pub(crate) fn receive_datagram(
        &mut self,
        task: &Task,
        fd: Fd,
        len: usize,
        flags: i32,
    ) -> Attempt {
        if flags & MSG_ERRQUEUE != 0 {
            return self.read_report(fd, len);
        }
        self.hold_next(fd)?;
        let datagram = self.files.datagram(fd)?;
        if let Some(error) = datagram.error.take() {
            return Err(error.into());
        }
        let next = match flags & MSG_PEEK != 0 {
            true => datagram.held.front().cloned(),
            false => datagram.held.pop_front(),
        };
        let Some(Held { mut bytes, from, arrived }) = next else {
            if datagram.read_shut && !datagram.waits_not(flags) {
                // As Linux: the end is told to those only that would wait for more.
                return Ok(Reply::bytes(Vec::new()));
            }
            let (waits_not, timeout) =
                (datagram.waits_not(flags), datagram.options.receive_timeout);
            return Err(self.wait(task, waits_not, timeout));
        };
        let whole = bytes.len();
        let told = if whole > len { MSG_TRUNC } else { 0 };
        bytes.truncate(len);
        let value = if flags & MSG_TRUNC != 0 { whole } else { bytes.len() };
        let from = Some(Address::seen_from(datagram.domain, from));
        let control = self.told_of(fd, &arrived)?;
        let output = Output::Received { bytes, from, flags: told, control };
        Ok(Reply { value: value as i64, output })
    }

    /// socket(7), SO_BROADCAST: who has not asked for it sends to no broadcast address.
    fn check_broadcast(&mut self, fd: Fd, remote: SocketAddr) -> Result<(), Errno> {
        let asks = self.files.datagram(fd)?.options.broadcast;
        let of_network = |cidr: &Cidr| cidr.broadcast().map(IpAddr::V4) == Some(remote.ip());
        let is_broadcast = remote.ip() == IpAddr::V4(Ipv4Addr::BROADCAST)
            || self.config.addresses.iter().any(of_network);
        match is_broadcast && !asks {
            true => Err(Errno::EACCES),
            false => Ok(()),
        }
    }

    /// shutdown(2): of a socket without a peer it fails, but holds.
    pub(crate) fn shutdown_datagram(&mut self, fd: Fd, how: i32) -> Attempt {
        let datagram = self.files.datagram(fd)?;
        datagram.read_shut |= how != SHUT_WR;
        datagram.write_shut |= how != SHUT_RD;
        let has_peer = datagram.peer.is_some();
        self.wake(fd, News::STATE);
        match has_peer {
            true => Ok(Reply::value(0)),
            false => Err(Errno::ENOTCONN.into()),
        }
    }

    /// Whether a datagram waits.
    pub(crate) fn has_datagram(&mut self, fd: Fd) -> Result<bool, Errno> {
        self.hold_next(fd)?;
        Ok(!self.files.datagram(fd)?.held.is_empty())
    }

    pub(crate) fn next_datagram_len(&mut self, fd: Fd) -> Result<usize, Errno> {
        self.hold_next(fd)?;
        Ok(self.files.datagram(fd)?.held.front().map_or(0, |held| held.bytes.len()))
    }

    /// Takes an error from the stack; says whether there was one.
    pub(crate) fn hold_error(&mut self, fd: Fd) -> Result<bool, Errno> {
        let Some(id) = self.files.datagram(fd)?.id else { return Ok(false) };
        let Err(error) = self.shard().udp_check(id) else { return Ok(false) };
        let datagram = self.files.datagram(fd)?;
        // Without a peer a socket hears of errors where it asked for reports.
        let is_ipv4 = datagram.peer.map_or(datagram.domain == Domain::Inet, |peer| peer.is_ipv4());
        datagram.error = Some(Errno::told(error, is_ipv4));
        Ok(true)
    }

    /// Takes the next datagram from the stack, so that it can be looked at, and an error, which does not wait
    /// behind it.
    fn hold_next(&mut self, fd: Fd) -> Result<(), Errno> {
        self.hold_error(fd)?;
        let Some(id) = self.files.datagram(fd)?.id else { return Ok(()) };
        if !self.files.datagram(fd)?.held.is_empty() {
            return Ok(());
        }
        if let Ok(datagram) = self.shard().udp_receive_datagram(id) {
            let (bytes, from) = (datagram.payload.bytes().to_vec(), datagram.source);
            let arrived = Arrived {
                destination: datagram.destination,
                traffic_class: datagram.traffic_class,
                hop_limit: datagram.hop_limit,
                at: datagram.received_at.unwrap_or(self.now),
            };
            self.files.datagram(fd)?.held.push_back(Held { bytes, from, arrived });
        }
        Ok(())
    }

    /// The stack's socket, bound to any address where the program has not bound it.
    fn datagram_id(&mut self, fd: Fd) -> Result<SocketId, Errno> {
        let datagram = self.files.datagram(fd)?;
        if let Some(id) = datagram.id {
            return Ok(id);
        }
        let any = match datagram.domain {
            Domain::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Domain::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        self.make_datagram(fd, SocketAddr::new(any, 0))
    }

    /// The stack's socket for a program's.
    fn make_datagram(&mut self, fd: Fd, local: SocketAddr) -> Result<SocketId, Errno> {
        let options = self.files.datagram(fd)?.options.clone();
        let one_family = local.is_ipv4() || options.ipv6_only;
        let (shared, yielding) = (options.reuse_port, options.reuse_address);
        let bind = BindOptions { shared, yielding, one_family };
        let id = self.shard().udp_bind_with(local, bind)?;
        let mode = mtu_discovery(options.mtu_discovery)?;
        self.shard().udp_set_mtu_discovery(id, mode)?;
        self.shard().udp_set_ip_options(id, options.ip_options)?;
        self.shard().udp_set_dont_route(id, options.dont_route)?;
        self.files.datagram(fd)?.id = Some(id);
        self.bound_datagrams(fd)?;
        self.set_reports(fd, false)?;
        Ok(id)
    }
}
