//! IP_RECVERR and IPV6_RECVERR: what was said of datagrams that a socket sent, each with the datagram's beginning, on the
//! error queue (ip(7), ipv6(7)).
//!
//! The stack keeps the reports. As in Linux they are beside what calls return: the error of the oldest that is left is
//! that of the next call, and who has read them all has heard of it.

use crate::abi::*;
use crate::addresses::Domain;
use crate::call::{Fd, Output, Reply};
use crate::epoll::News;
use crate::host::{Attempt, Host};
use crate::told::Arrived;
use crate::{Address, ControlMessage, Errno, told};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use stack::{ErrorReport, ReportOrigin};

/// Lengths of a struct sockaddr_in and a struct sockaddr_in6.
const ADDRESS_LEN_IPV4: usize = 16;
const ADDRESS_LEN_IPV6: usize = 28;

/// A struct sock_extended_err, and behind it the address of whose error it is.
pub(crate) struct ExtendedError {
    pub(crate) errno: u32,
    pub(crate) origin: u8,
    pub(crate) kind: u8,
    pub(crate) code: u8,
    pub(crate) info: u32,
    pub(crate) data: u32,
    pub(crate) offender: Option<IpAddr>,
}

impl ExtendedError {
    pub(crate) fn message(&self, domain: Domain) -> ControlMessage {
        let mut data = self.errno.to_ne_bytes().to_vec();
        data.extend([self.origin, self.kind, self.code, 0]);
        data.extend(self.info.to_ne_bytes());
        data.extend(self.data.to_ne_bytes());
        let head = data.len();
        let (level, kind, len) = match domain {
            Domain::Inet => (IPPROTO_IP, IP_RECVERR, ADDRESS_LEN_IPV4),
            Domain::Inet6 => (IPPROTO_IPV6, IPV6_RECVERR, ADDRESS_LEN_IPV6),
        };
        // Family and port, of IPv6 the flow, and the address.
        match (domain, self.offender) {
            (Domain::Inet, Some(IpAddr::V4(offender))) => {
                data.extend(AF_INET.to_ne_bytes());
                data.extend([0; 2]);
                data.extend(offender.octets());
            }
            (Domain::Inet6, Some(offender)) => {
                data.extend(AF_INET6.to_ne_bytes());
                data.extend([0; 6]);
                data.extend(told::octets(offender));
            }
            _ => {}
        }
        data.resize(head + len, 0);
        ControlMessage { level, kind, data }
    }
}

/// The error of a report, as a call returns it.
fn errno_of(report: &ErrorReport) -> Errno {
    Errno::told(report.error, report.remote.is_ipv4())
}

impl Host {
    /// Has the stack keep the reports that a socket asks for, or drop those that it has, where one of its families wants
    /// no more.
    pub(crate) fn set_reports(&mut self, fd: Fd, clears: bool) -> Result<(), Errno> {
        let datagram = self.files.datagram(fd)?;
        let Some(id) = datagram.id else { return Ok(()) };
        let asked = &datagram.options.asked;
        let of_ipv4 = asked.contains(&(IPPROTO_IP, IP_RECVERR));
        let of_ipv6 = asked.contains(&(IPPROTO_IPV6, IPV6_RECVERR));
        self.shard().udp_set_reports(id, of_ipv4, of_ipv6)?;
        if clears {
            self.shard().udp_clear_reports(id)?;
        }
        Ok(())
    }

    pub(crate) fn has_report(&mut self, fd: Fd) -> Result<bool, Errno> {
        let Some(id) = self.files.datagram(fd)?.id else { return Ok(false) };
        Ok(self.shard().udp_peek_report(id)?.is_some())
    }

    /// recvmsg(2) with MSG_ERRQUEUE, of a socket for datagrams. It waits for nothing, and what is looked at is read.
    pub(crate) fn read_report(&mut self, fd: Fd, len: usize) -> Attempt {
        self.hold_error(fd)?;
        let id = self.files.datagram(fd)?.id.ok_or(Errno::EAGAIN)?;
        let Some(report) = self.shard().udp_take_report(id)? else {
            return Err(Errno::EAGAIN.into());
        };
        let is_icmp = |report: &ErrorReport| report.origin != ReportOrigin::Local;
        let next = self.shard().udp_peek_report(id)?;
        let (is_left, next) = (next.is_some(), next.filter(|next| is_icmp(next)).map(errno_of));
        if is_left {
            // As Linux: an edge, be it that nothing came meanwhile.
            self.wake(fd, News::ERROR);
        }
        let now = self.now;
        let datagram = self.files.datagram(fd)?;
        if next.is_some() || is_icmp(&report) {
            datagram.error = next;
        }
        let mut error = ExtendedError {
            errno: errno_of(&report).0.cast_unsigned(),
            origin: SO_EE_ORIGIN_LOCAL,
            kind: 0,
            code: 0,
            info: report.info,
            data: 0,
            offender: None,
        };
        let mut remote = report.remote;
        let at = report.received_at.unwrap_or(now);
        let mut control: Vec<_> =
            datagram.options.timestamps.map(|option| told::stamp(option, at)).into_iter().collect();
        if let ReportOrigin::Icmp { offender, kind, code, destination, traffic_class, hop_limit } =
            report.origin
        {
            (error.kind, error.code, error.offender) = (kind, code, Some(offender));
            error.origin = match offender {
                IpAddr::V4(_) => SO_EE_ORIGIN_ICMP,
                IpAddr::V6(_) => SO_EE_ORIGIN_ICMP6,
            };
            // Of the message's packet is told what is told of datagrams.
            let destination = SocketAddr::new(destination, 0);
            let arrived = Arrived { destination, traffic_class, hop_limit, at };
            control.extend(arrived.tell(datagram, Ipv4Addr::UNSPECIFIED));
        } else if remote.is_ipv4() {
            // As Linux: of what did not leave over IPv4 the port is the peer's, where there is one.
            remote.set_port(datagram.peer.map_or(0, |peer| peer.port()));
        }
        control.push(error.message(datagram.domain));
        let from = Some(Address::seen_from(datagram.domain, remote));
        let cut = if report.payload.len() > len { MSG_TRUNC } else { 0 };
        let mut bytes = report.payload;
        bytes.truncate(len);
        let value = bytes.len() as i64;
        Ok(Reply {
            value,
            output: Output::Received { bytes, from, flags: MSG_ERRQUEUE | cut, control },
        })
    }
}
