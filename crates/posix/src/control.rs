//! What sendmsg(2) is told besides the bytes (cmsg(3)): how this one message is marked, and where it comes from.
//!
//! As in Linux a connection looks at messages of the level SOL_SOCKET alone, and a datagram also at those of the level of
//! the addresses it goes by; what is of another level is passed over, and what is not known at its own is refused.

use crate::Errno;
use crate::abi::{
    IP_PKTINFO, IP_RETOPTS, IP_TOS, IP_TTL, IPPROTO_IP, IPPROTO_IPV6, IPV6_DONTFRAG, IPV6_HOPLIMIT,
    IPV6_PKTINFO, IPV6_TCLASS, SCM_CREDENTIALS, SCM_RIGHTS, SO_MARK, SO_PRIORITY, SO_TIMESTAMPING,
    SOL_SOCKET,
};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::num::NonZeroU8;
use stack::PacketMarks;

/// A control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlMessage {
    /// `cmsg_level`
    pub level: i32,
    /// `cmsg_type`
    pub kind: i32,
    /// What follows the header.
    pub data: Vec<u8>,
}

/// What one datagram asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) source: Option<IpAddr>,
    traffic_class: Option<u8>,
    hop_limit: Option<NonZeroU8>,
}

impl Asked {
    /// # Errors
    /// `EINVAL`: what is asked for is not known, or has no such value.
    pub(crate) fn of_datagram(control: &[ControlMessage], is_ipv4: bool) -> Result<Self, Errno> {
        let mut asked = Self::default();
        for message in control {
            match message.level {
                SOL_SOCKET => check_socket_message(message)?,
                IPPROTO_IP if is_ipv4 => asked.take_ipv4(message)?,
                IPPROTO_IPV6 if !is_ipv4 => asked.take_ipv6(message)?,
                _ => {}
            }
        }
        Ok(asked)
    }

    /// The marks of the datagram, on a socket that has these.
    pub(crate) fn over(self, marks: PacketMarks) -> PacketMarks {
        PacketMarks {
            traffic_class: self.traffic_class.unwrap_or(marks.traffic_class),
            hop_limit: self.hop_limit.or(marks.hop_limit),
        }
    }

    fn take_ipv4(&mut self, message: &ControlMessage) -> Result<(), Errno> {
        match (message.kind, message.data.as_slice()) {
            (IP_TOS, [class]) => self.traffic_class = Some(*class),
            (IP_TOS, data) => self.traffic_class = Some(byte(data)?),
            (IP_TTL, data) => {
                self.hop_limit = Some(NonZeroU8::new(byte(data)?).ok_or(Errno::EINVAL)?);
            }
            // struct in_pktinfo: the interface, of which this host has one, the source, and where a datagram was for.
            (IP_PKTINFO, [_, _, _, _, a, b, c, d, _, _, _, _]) => {
                self.take_source(Ipv4Addr::new(*a, *b, *c, *d).into());
            }
            // Options stand in the header that the socket's own have.
            (IP_RETOPTS, data) if data.len() <= 40 => {}
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    fn take_ipv6(&mut self, message: &ControlMessage) -> Result<(), Errno> {
        match (message.kind, message.data.as_slice()) {
            (IPV6_TCLASS, data) => self.traffic_class = Some(byte_or_usual(data)?.unwrap_or(0)),
            (IPV6_HOPLIMIT, data) => {
                self.hop_limit = byte_or_usual(data)?.and_then(NonZeroU8::new);
            }
            // struct in6_pktinfo: the source, and the interface.
            (IPV6_PKTINFO, data) if data.len() == 20 => {
                let source = data.first_chunk::<16>().ok_or(Errno::EINVAL)?;
                self.take_source(Ipv6Addr::from(*source).into());
            }
            (IPV6_DONTFRAG, data) if matches!(integer(data)?, 0..=1) => {}
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    fn take_source(&mut self, source: IpAddr) {
        self.source = Some(source).filter(|source| !source.is_unspecified());
    }
}

/// # Errors
/// `EINVAL`: not known, or not of its size.
pub(crate) fn check_stream(control: &[ControlMessage]) -> Result<(), Errno> {
    let mut of_socket = control.iter().filter(|message| message.level == SOL_SOCKET);
    of_socket.try_for_each(check_socket_message)
}

/// Descriptors and names of users are for sockets of another family, which have none here.
fn check_socket_message(message: &ControlMessage) -> Result<(), Errno> {
    match message.kind {
        SCM_RIGHTS | SCM_CREDENTIALS => Ok(()),
        SO_MARK | SO_PRIORITY | SO_TIMESTAMPING => integer(&message.data).map(|_| ()),
        _ => Err(Errno::EINVAL),
    }
}

fn integer(data: &[u8]) -> Result<i32, Errno> {
    data.try_into().map(i32::from_ne_bytes).map_err(|_| Errno::EINVAL)
}

fn byte(data: &[u8]) -> Result<u8, Errno> {
    u8::try_from(integer(data)?).map_err(|_| Errno::EINVAL)
}

/// A byte, or -1 for none.
fn byte_or_usual(data: &[u8]) -> Result<Option<u8>, Errno> {
    match integer(data)? {
        -1 => Ok(None),
        _ => byte(data).map(Some),
    }
}
