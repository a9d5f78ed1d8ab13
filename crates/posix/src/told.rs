//! What recvmsg(2) tells besides the bytes (cmsg(3)), and the options of sockets for datagrams that ask for it.
//!
//! As in Linux the messages come in a fixed order, and those of IPv4 are told of datagrams over IPv4 on a socket of
//! AF_INET6 too, if its program asks for them at that level. What is asked for is on or off, whatever the number.

use crate::abi::*;
use crate::addresses::Domain;
use crate::call::Fd;
use crate::datagram::Datagram;
use crate::host::Host;
use crate::options::{integer, short_integer};
use crate::{ControlMessage, Errno};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::BTreeSet;
use time::Instant;

/// Level and name of the options.
const ASKED: [(i32, i32); 8] = [
    (IPPROTO_IP, IP_PKTINFO),
    (IPPROTO_IP, IP_RECVTTL),
    (IPPROTO_IP, IP_RECVTOS),
    (IPPROTO_IP, IP_RECVERR),
    (IPPROTO_IPV6, IPV6_RECVPKTINFO),
    (IPPROTO_IPV6, IPV6_RECVHOPLIMIT),
    (IPPROTO_IPV6, IPV6_RECVTCLASS),
    (IPPROTO_IPV6, IPV6_RECVERR),
];

/// The number of the one interface of this host.
const INTERFACE: i32 = 1;

/// Those that are on.
pub(crate) type Asked = BTreeSet<(i32, i32)>;

/// What a received datagram's packet says besides its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    /// Where it was sent to.
    pub(crate) destination: SocketAddr,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) at: Instant,
}

impl Host {
    /// Whether it is one of them, of a socket that has it.
    pub(crate) fn may_ask(&mut self, fd: Fd, level: i32, name: i32) -> bool {
        ASKED.contains(&(level, name)) && !self.is_stream(fd)
    }

    pub(crate) fn set_asked(
        &mut self,
        fd: Fd,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<(), Errno> {
        let value = if level == IPPROTO_IP { short_integer(value) } else { integer(value) }?;
        let asked = &mut self.options(fd)?.asked;
        match value {
            0 => asked.remove(&(level, name)),
            _ => asked.insert((level, name)),
        };
        match (level, name) {
            (IPPROTO_IP, IP_RECVERR) | (IPPROTO_IPV6, IPV6_RECVERR) => {
                self.set_reports(fd, value == 0)
            }
            _ => Ok(()),
        }
    }

    /// What is told of a datagram.
    pub(crate) fn told_of(
        &mut self,
        fd: Fd,
        arrived: &Arrived,
    ) -> Result<Vec<ControlMessage>, Errno> {
        let ours = self.config.addresses.iter().filter_map(|cidr| match cidr.address() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        let ours: Vec<Ipv4Addr> = ours.collect();
        let datagram = self.files.datagram(fd)?;
        // Where an answer comes from: of what went to everybody it is an address of the interface.
        let source = match arrived.destination.ip() {
            IpAddr::V4(destination) if destination.is_loopback() || ours.contains(&destination) => {
                destination
            }
            IpAddr::V4(destination) => ours.first().copied().unwrap_or(destination),
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        let stamp = datagram.options.timestamps.map(|option| stamp(option, arrived.at));
        Ok(stamp.into_iter().chain(arrived.tell(datagram, source)).collect())
    }
}

impl Arrived {
    /// What the packet says of which the program of this socket asks to be told. `source` is where an answer over IPv4
    /// comes from.
    pub(crate) fn tell(&self, datagram: &Datagram, source: Ipv4Addr) -> Vec<ControlMessage> {
        let asked = &datagram.options.asked;
        let mut told = Vec::new();
        if datagram.domain == Domain::Inet6 {
            self.tell_ipv6(asked, &mut told);
        }
        if let IpAddr::V4(destination) = self.destination.ip() {
            self.tell_ipv4(asked, (source, destination), &mut told);
        }
        told
    }

    fn tell_ipv4(
        &self,
        asked: &Asked,
        (source, destination): (Ipv4Addr, Ipv4Addr),
        told: &mut Vec<ControlMessage>,
    ) {
        let mut tell = |option, kind, data: Vec<u8>| {
            if asked.contains(&(IPPROTO_IP, option)) {
                told.push(ControlMessage { level: IPPROTO_IP, kind, data });
            }
        };
        // struct in_pktinfo
        let info = [INTERFACE.to_ne_bytes(), source.octets(), destination.octets()].concat();
        tell(IP_PKTINFO, IP_PKTINFO, info);
        tell(IP_RECVTTL, IP_TTL, number(self.hop_limit));
        tell(IP_RECVTOS, IP_TOS, vec![self.traffic_class]);
    }

    fn tell_ipv6(&self, asked: &Asked, told: &mut Vec<ControlMessage>) {
        let mut tell = |option, kind, data: Vec<u8>| {
            if asked.contains(&(IPPROTO_IPV6, option)) {
                told.push(ControlMessage { level: IPPROTO_IPV6, kind, data });
            }
        };
        // struct in6_pktinfo
        let destination = octets(self.destination.ip());
        let info = [&destination[..], &INTERFACE.to_ne_bytes()].concat();
        tell(IPV6_RECVPKTINFO, IPV6_PKTINFO, info);
        if self.destination.is_ipv6() {
            tell(IPV6_RECVHOPLIMIT, IPV6_HOPLIMIT, number(self.hop_limit));
            tell(IPV6_RECVTCLASS, IPV6_TCLASS, number(self.traffic_class));
        }
    }
}

/// An address as a socket of AF_INET6 has it.
pub(crate) fn octets(address: IpAddr) -> [u8; 16] {
    let address: Ipv6Addr = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    address.octets()
}

fn number(byte: u8) -> Vec<u8> {
    i32::from(byte).to_ne_bytes().to_vec()
}

/// TCP_INQ: what is left to be read.
pub(crate) fn unread(count: i32) -> ControlMessage {
    let data = count.to_ne_bytes().to_vec();
    ControlMessage { level: IPPROTO_TCP, kind: TCP_INQ, data }
}

/// SO_TIMESTAMP, SO_TIMESTAMPNS: a struct timeval or a struct timespec of the host's time, in a message of the option's
/// kind.
pub(crate) fn stamp(option: i32, at: Instant) -> ControlMessage {
    let nanos = at.as_nanos();
    let unit = if option == SO_TIMESTAMP { 1_000 } else { 1 };
    let parts = [nanos / 1_000_000_000, nanos % 1_000_000_000 / unit];
    let data = parts.iter().flat_map(|part| part.to_ne_bytes()).collect();
    ControlMessage { level: SOL_SOCKET, kind: option, data }
}
