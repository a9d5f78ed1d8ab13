//! Just enough rtnetlink (RFC 3549, rtnetlink(7)) to give an interface addresses and neighbours.
//!
//! A request is one message of fixed parts and attributes, its answer one acknowledgement with an
//! error number. Everything is built by hand in native byte order, as the kernel wants it.

use core::net::IpAddr;
use device::HardwareAddress;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{bind, recv, send, socket_with};
use std::sync::{Mutex, PoisonError};

const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWNEIGH: u16 = 28;

const NLM_F_REQUEST: u16 = 0x001;
const NLM_F_ACK: u16 = 0x004;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;

/// A message header is 16 bytes.
const HEADER_LEN: usize = 16;

/// The number of the last request. Who makes one holds it until the answer is there: a socket may be shared, and of
/// two who read it each might have the other's.
static SEQUENCE: Mutex<u32> = Mutex::new(0);

/// A socket for requests that are for the network namespace in which it is made, whoever makes them later.
pub(crate) fn socket() -> Result<OwnedFd, Errno> {
    // Protocol 0 of AF_NETLINK is NETLINK_ROUTE.
    socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
}

/// A message in the making.
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A message of this type whose fixed part is `body`.
    fn new(kind: u16, body: &[u8]) -> Self {
        Self::flagged(kind, NLM_F_REPLACE, body)
    }

    /// One that makes an interface, of which there must be none of its name.
    fn making(body: &[u8]) -> Self {
        Self::flagged(RTM_NEWLINK, NLM_F_EXCL, body)
    }

    fn flagged(kind: u16, flag: u16, body: &[u8]) -> Self {
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | flag;
        let mut bytes = vec![0; HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(body);
        Self { bytes }
    }

    /// What stands in an attribute that holds attributes, behind `body`.
    fn nested(body: &[u8]) -> Self {
        Self { bytes: body.to_vec() }
    }

    /// Appends an attribute; all lengths here are short.
    fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.bytes.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self
    }

    /// Sends the message in the network namespace of the calling thread and waits for the kernel's verdict.
    fn execute(self) -> Result<(), Errno> {
        self.execute_by(&socket()?)
    }

    /// The same in the namespace of `socket`.
    fn execute_by(mut self, socket: &OwnedFd) -> Result<(), Errno> {
        let mut sequence = SEQUENCE.lock().unwrap_or_else(PoisonError::into_inner);
        *sequence = sequence.wrapping_add(1);
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        send(socket, &self.bytes, SendFlags::empty())?;
        let mut answer = [0; 1_024];
        loop {
            match recv(socket, &mut answer, RecvFlags::empty()) {
                // The answer to a request whose maker did not wait for it is nobody's.
                Ok(_) if answer[8..12] != sequence.to_ne_bytes() => {}
                Ok((len, _)) => return verdict(answer.get(..len).unwrap_or(&[])),
                // What was asked for is done, or is not, and is still to be told.
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// What an acknowledgement says: type NLMSG_ERROR and the negated error number, 0 for success.
fn verdict(answer: &[u8]) -> Result<(), Errno> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let error = answer
        .get(HEADER_LEN..HEADER_LEN + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_ne_bytes);
    match (kind, error) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => Err(Errno::from_raw_os_error(error.wrapping_neg())),
        _ => Err(Errno::PROTO),
    }
}

/// A non-blocking socket that can be read whenever an interface of the network namespace changes,
/// comes or goes.
pub(crate) fn changes() -> Result<OwnedFd, Errno> {
    const RTMGRP_LINK: u32 = 1;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, RTMGRP_LINK))?;
    Ok(socket)
}

/// The fixed part of messages about interface `index` itself.
fn interface_body(index: u32) -> Vec<u8> {
    // struct ifinfomsg: family, padding, type, index, flags, mask of flags to change.
    let mut body = vec![0; 4];
    body.extend_from_slice(&index.to_ne_bytes());
    body.extend_from_slice(&[0; 8]);
    body
}

/// Makes two Ethernet interfaces that are the two ends of one cable, with so many queues from the near one to
/// the far one, and so many back.
pub(crate) fn add_veth_pair(near: &str, far: &str, (there, back): (u32, u32)) -> Result<(), Errno> {
    const IFLA_NUM_TX_QUEUES: u16 = 31;
    const IFLA_NUM_RX_QUEUES: u16 = 32;
    const IFLA_INFO_DATA: u16 = 2;
    const VETH_INFO_PEER: u16 = 1;
    let end = |attributes: Message, name: &str, transmit: u32, receive: u32| {
        let name: Vec<u8> = name.bytes().chain([0]).collect();
        attributes
            .attribute(IFLA_IFNAME, &name)
            .attribute(IFLA_NUM_TX_QUEUES, &transmit.to_ne_bytes())
            .attribute(IFLA_NUM_RX_QUEUES, &receive.to_ne_bytes())
    };
    let peer = end(Message::nested(&interface_body(0)), far, back, there);
    let data = Message::nested(&[]).attribute(VETH_INFO_PEER, &peer.bytes);
    let info = Message::nested(&[])
        .attribute(IFLA_INFO_KIND, b"veth")
        .attribute(IFLA_INFO_DATA, &data.bytes);
    end(Message::making(&interface_body(0)), near, there, back)
        .attribute(IFLA_LINKINFO, &info.bytes)
        .execute()
}

/// Makes a bridge without ports.
pub(crate) fn add_bridge(name: &str) -> Result<(), Errno> {
    let name: Vec<u8> = name.bytes().chain([0]).collect();
    let info = Message::nested(&[]).attribute(IFLA_INFO_KIND, b"bridge");
    Message::making(&interface_body(0))
        .attribute(IFLA_IFNAME, &name)
        .attribute(IFLA_LINKINFO, &info.bytes)
        .execute()
}

/// Makes interface `index` a port of the bridge `master`, both of the namespace of `socket`.
pub(crate) fn set_master(socket: &OwnedFd, index: u32, master: u32) -> Result<(), Errno> {
    const IFLA_MASTER: u16 = 10;
    Message::new(RTM_SETLINK, &interface_body(index))
        .attribute(IFLA_MASTER, &master.to_ne_bytes())
        .execute_by(socket)
}

/// Gives interface `index` another name, for tests of what that leaves as it is.
#[cfg(test)]
pub(crate) fn set_name(index: u32, name: &str) -> Result<(), Errno> {
    let name: Vec<u8> = name.bytes().chain([0]).collect();
    Message::new(RTM_SETLINK, &interface_body(index)).attribute(IFLA_IFNAME, &name).execute()
}

/// Deletes interface `index` of the namespace of `socket`.
pub(crate) fn delete_link(socket: &OwnedFd, index: u32) -> Result<(), Errno> {
    Message::new(RTM_DELLINK, &interface_body(index)).execute_by(socket)
}

/// Sets how many packets the transmit queue of interface `index` of the namespace of `socket` holds. The ioctl for
/// this wants root of the whole machine; this one is content with root of the namespace.
pub(crate) fn set_queue_len(socket: &OwnedFd, index: u32, packets: u32) -> Result<(), Errno> {
    const IFLA_TXQLEN: u16 = 13;
    Message::new(RTM_SETLINK, &interface_body(index))
        .attribute(IFLA_TXQLEN, &packets.to_ne_bytes())
        .execute_by(socket)
}

/// Gives interface `index` an address. An IPv6 address is used at once, without looking for a
/// duplicate first.
pub(crate) fn add_address(index: u32, address: IpAddr, prefix_len: u8) -> Result<(), Errno> {
    const IFA_F_NODAD: u8 = 0x02;
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    let (family, octets, flags) = match address {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec(), 0),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec(), IFA_F_NODAD),
    };
    let scope = 0;
    let mut body = vec![family, prefix_len, flags, scope];
    body.extend_from_slice(&index.to_ne_bytes());
    Message::new(RTM_NEWADDR, &body)
        .attribute(IFA_LOCAL, &octets)
        .attribute(IFA_ADDRESS, &octets)
        .execute()
}

/// Enters a neighbour of interface `index` for good, so that nobody asks for it.
pub(crate) fn add_neighbour(
    index: u32,
    address: IpAddr,
    hardware_address: HardwareAddress,
) -> Result<(), Errno> {
    const NUD_PERMANENT: u16 = 0x80;
    const NDA_DST: u16 = 1;
    const NDA_LLADDR: u16 = 2;
    let (family, octets) = family_and_octets(address);
    let mut body = vec![family, 0, 0, 0];
    body.extend_from_slice(&index.to_ne_bytes());
    body.extend_from_slice(&NUD_PERMANENT.to_ne_bytes());
    body.extend_from_slice(&[0, 0]);
    Message::new(RTM_NEWNEIGH, &body)
        .attribute(NDA_DST, &octets)
        .attribute(NDA_LLADDR, &hardware_address.0)
        .execute()
}

/// Routes a network over interface `index`, by way of a gateway where there is one.
pub(crate) fn add_route(
    index: u32,
    destination: IpAddr,
    prefix_len: u8,
    gateway: Option<IpAddr>,
) -> Result<(), Errno> {
    const RT_TABLE_MAIN: u8 = 254;
    const RTPROT_STATIC: u8 = 4;
    const RT_SCOPE_UNIVERSE: u8 = 0;
    const RT_SCOPE_LINK: u8 = 253;
    const RTN_UNICAST: u8 = 1;
    const RTA_DST: u16 = 1;
    const RTA_OIF: u16 = 4;
    const RTA_GATEWAY: u16 = 5;
    let (family, octets) = family_and_octets(destination);
    let scope = if gateway.is_none() { RT_SCOPE_LINK } else { RT_SCOPE_UNIVERSE };
    let mut body = vec![family, prefix_len, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, scope, RTN_UNICAST];
    body.extend_from_slice(&0_u32.to_ne_bytes());
    let mut message = Message::new(RTM_NEWROUTE, &body)
        .attribute(RTA_DST, &octets)
        .attribute(RTA_OIF, &index.to_ne_bytes());
    if let Some(gateway) = gateway {
        message = message.attribute(RTA_GATEWAY, &family_and_octets(gateway).1);
    }
    message.execute()
}

fn family_and_octets(address: IpAddr) -> (u8, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_to_four_bytes_and_lengths_are_not() {
        let message = Message::new(9, &[1, 2, 3, 4]).attribute(7, b"abcdef").attribute(8, b"x");
        let at = |range: core::ops::Range<usize>| message.bytes[range].to_vec();
        assert_eq!(at(20..22), 10_u16.to_ne_bytes());
        assert_eq!(at(24..32), b"abcdef\0\0");
        assert_eq!(at(32..34), 5_u16.to_ne_bytes());
        assert_eq!(message.bytes.len(), 37);
    }

    #[test]
    fn an_answer_is_success_only_when_it_says_so() {
        let mut answer = [0; 36];
        assert_eq!(verdict(&answer), Err(Errno::PROTO));
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert_eq!(verdict(&answer), Ok(()));
        answer[16..20].copy_from_slice(&(-17_i32).to_ne_bytes());
        assert_eq!(verdict(&answer), Err(Errno::EXIST));
        assert_eq!(verdict(&answer[..18]), Err(Errno::PROTO));
    }

    /// As where the wait for it failed. It says that all is well, and the other request is refused.
    #[test]
    fn an_answer_that_nobody_waited_for_is_not_that_to_the_next_request() {
        const NLMSG_NOOP: u16 = 1;
        let socket = socket().expect("everybody may have one");
        let mut request = Message::new(NLMSG_NOOP, &[]);
        request.bytes[..4].copy_from_slice(&(HEADER_LEN as u32).to_ne_bytes());
        send(&socket, &request.bytes, SendFlags::empty()).expect("the kernel listens");
        let nobodys = i32::MAX as u32;
        assert!(delete_link(&socket, nobodys).is_err());
    }
}
