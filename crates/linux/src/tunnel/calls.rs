//! The system calls of a UDP tunnel, as safe functions: many datagrams out and in by one call.
//!
//! With `UDP_SEGMENT` a message is one long buffer that the kernel cuts into datagrams of equal
//! size; with `UDP_GRO` a message that comes up may be several datagrams of one size end to end.
//! Both sizes travel beside the message, as ancillary data (udp(7)).

#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::mem::{size_of, size_of_val, zeroed};
use core::ops::Range;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Messages of one call at most, in either direction.
pub(super) const MESSAGES_MAX: usize = 32;

const SOL_UDP: c_int = 17;
const UDP_SEGMENT: c_int = 103;
const UDP_GRO: c_int = 104;

/// Room for one ancillary number with its header, aligned as the kernel wants it.
type Control = [u64; 4];
const CONTROL_LEN: usize = size_of::<Control>();

/// Datagrams that leave as one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Where they lie in the block, end to end.
    pub(super) bytes: Range<usize>,
    /// The length of each but the last, which may be shorter.
    pub(super) segment_len: usize,
    /// How many.
    pub(super) count: usize,
}

/// A message that came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// How many bytes of its slot it fills.
    pub(super) len: usize,
    /// The length of each datagram in it but the last, where there are several.
    pub(super) segment_len: usize,
    /// It was longer than its slot.
    pub(super) is_truncated: bool,
    /// Who sent it, where the kernel says so.
    pub(super) source: Option<SocketAddr>,
}

/// Sends the first [`MESSAGES_MAX`] of `messages`, whose bytes lie in `block`, to the socket's peer,
/// and says how many went; an error is about the first of them.
pub(super) fn send(socket: &OwnedFd, block: &[u8], messages: &[Message]) -> Result<usize, Errno> {
    // SAFETY: vectors, control buffers and message headers of zeros are empty ones.
    let mut vectors: [libc::iovec; MESSAGES_MAX] = unsafe { zeroed() };
    let mut controls: [Control; MESSAGES_MAX] = [[0; 4]; MESSAGES_MAX];
    // SAFETY: as above.
    let mut headers: [libc::mmsghdr; MESSAGES_MAX] = unsafe { zeroed() };
    let mut count = 0;
    for (((message, vector), control), header) in
        messages.iter().zip(&mut vectors).zip(&mut controls).zip(&mut headers)
    {
        let Some(bytes) = block.get(message.bytes.clone()) else { return Err(Errno::INVAL) };
        // The kernel only reads what it sends.
        *vector = libc::iovec { iov_base: bytes.as_ptr() as *mut c_void, iov_len: bytes.len() };
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        if message.count > 1 {
            let segment_len = u16::try_from(message.segment_len).map_err(|_| Errno::INVAL)?;
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
            // SAFETY: CMSG_SPACE only computes.
            header.msg_hdr.msg_controllen = unsafe { libc::CMSG_SPACE(2) } as _;
            // SAFETY: the control buffer is aligned and has room for a header and two bytes, so the
            // first header lies within it, and its data behind it.
            unsafe {
                let ancillary = libc::CMSG_FIRSTHDR(&raw const header.msg_hdr);
                (*ancillary).cmsg_level = SOL_UDP;
                (*ancillary).cmsg_type = UDP_SEGMENT;
                (*ancillary).cmsg_len = libc::CMSG_LEN(2) as _;
                libc::CMSG_DATA(ancillary).cast::<u16>().write_unaligned(segment_len);
            }
        }
        count += 1;
    }
    // SAFETY: the first `count` headers name buffers that live until the call returns.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
    };
    if sent < 0 { Err(last_errno()) } else { Ok(sent as usize) }
}

/// Receives a message into each of the first [`MESSAGES_MAX`] of `slots`, as far as there are any,
/// and adds what came to `arrivals`.
pub(super) fn receive(
    socket: &OwnedFd,
    slots: &mut [IoSliceMut<'_>],
    arrivals: &mut Vec<Arrival>,
) -> Result<(), Errno> {
    // SAFETY: addresses and message headers of zeros are empty ones.
    let mut sources: [libc::sockaddr_in6; MESSAGES_MAX] = unsafe { zeroed() };
    let mut controls: [Control; MESSAGES_MAX] = [[0; 4]; MESSAGES_MAX];
    // SAFETY: as above.
    let mut headers: [libc::mmsghdr; MESSAGES_MAX] = unsafe { zeroed() };
    let mut count = 0;
    for (((slot, source), control), header) in
        slots.iter_mut().zip(&mut sources).zip(&mut controls).zip(&mut headers)
    {
        header.msg_hdr.msg_name = (&raw mut *source).cast();
        header.msg_hdr.msg_namelen = size_of_val(source) as u32;
        // `IoSliceMut` has the layout of the system's vector, as the standard library promises.
        header.msg_hdr.msg_iov = (&raw mut *slot).cast();
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = control.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = CONTROL_LEN as _;
        count += 1;
    }
    let no_timeout = core::ptr::null_mut();
    // SAFETY: the first `count` headers name buffers that live until the call returns, and the
    // kernel writes no more than their lengths say.
    let received = unsafe {
        let flags = libc::MSG_DONTWAIT as _;
        libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, flags, no_timeout)
    };
    if received < 0 {
        return Err(last_errno());
    }
    for (header, source) in headers.iter().zip(&sources).take(received as usize) {
        let len = header.msg_len as usize;
        arrivals.push(Arrival {
            len,
            segment_len: coalesced(&header.msg_hdr).unwrap_or(len),
            is_truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            source: address(source, header.msg_hdr.msg_namelen as usize),
        });
    }
    Ok(())
}

/// The length of the datagrams that the kernel merged into this message.
fn coalesced(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel left a control buffer of valid headers, whose length it wrote to the message
    // header; the data of ours is an `int`.
    unsafe {
        let mut ancillary = libc::CMSG_FIRSTHDR(header);
        while let Some(found) = ancillary.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (SOL_UDP, UDP_GRO) {
                let len = libc::CMSG_DATA(found).cast::<c_int>().read_unaligned();
                return usize::try_from(len).ok().filter(|len| *len > 0);
            }
            ancillary = libc::CMSG_NXTHDR(header, found);
        }
    }
    None
}

/// The address that the kernel wrote; both kinds fit the longer one and say which they are.
fn address(source: &libc::sockaddr_in6, len: usize) -> Option<SocketAddr> {
    match c_int::from(source.sin6_family) {
        libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
            // A socket of IPv6 is told of a sender of IPv4 by a mapped address.
            let ip = Ipv6Addr::from(source.sin6_addr.s6_addr).to_canonical();
            Some(SocketAddr::new(ip, u16::from_be(source.sin6_port)))
        }
        libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
            // An IPv4 address lies where the longer kind has its flow label.
            let ip = IpAddr::V4(Ipv4Addr::from(source.sin6_flowinfo.to_ne_bytes()));
            Some(SocketAddr::new(ip, u16::from_be(source.sin6_port)))
        }
        _ => None,
    }
}

/// Switches off what whoever had the socket before may have asked for and what nobody here looks at: ancillary
/// data that would leave no room for ours, errors and times that are kept in a queue of their own, for which
/// poll(2) says an error until somebody fetches them, messages that are held back, and such as are cut or merged,
/// which is asked for anew. What the kernel does not know, or not of this kind of socket, is off.
pub(super) fn switch_off_extras(socket: &OwnedFd) {
    const SO_RCVMARK: c_int = 75;
    const SO_RCVPRIORITY: c_int = 82;
    const UDP_CORK: c_int = 1;
    for (level, name) in [
        (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
        (libc::SOL_SOCKET, SO_RCVMARK),
        (libc::SOL_SOCKET, SO_RCVPRIORITY),
        (libc::IPPROTO_IP, libc::IP_RECVERR),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        (SOL_UDP, UDP_CORK),
        (SOL_UDP, UDP_SEGMENT),
        (SOL_UDP, UDP_GRO),
    ] {
        let _ = set_option(socket, level, name, 0);
    }
}

/// Asks the kernel to hand up datagrams merged.
pub(super) fn set_coalescing(socket: &OwnedFd) -> Result<(), Errno> {
    set_option(socket, SOL_UDP, UDP_GRO, 1)
}

/// Asks whether the kernel cuts messages into datagrams: it knows the option or it does not.
pub(super) fn knows_segmentation(socket: &OwnedFd) -> Result<(), Errno> {
    set_option(socket, SOL_UDP, UDP_SEGMENT, 0)
}

/// Forbids fragments, and lets the kernel learn what the path takes (RFC 1191, RFC 8201).
pub(super) fn set_path_mtu_discovery(socket: &OwnedFd, is_ipv4: bool) -> Result<(), Errno> {
    const DO: c_int = 2;
    match is_ipv4 {
        true => set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, DO),
        false => set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, DO),
    }
}

/// The longest IP packet that the path to the socket's peer is known to take.
pub(super) fn path_mtu_bytes(socket: &OwnedFd, is_ipv4: bool) -> Result<usize, Errno> {
    let mtu_bytes = match is_ipv4 {
        true => option(socket, libc::IPPROTO_IP, libc::IP_MTU),
        false => option(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    Ok(usize::try_from(mtu_bytes?).unwrap_or(0))
}

/// Gives the socket this much memory for what waits in each direction, beyond the system's limit
/// where that is allowed, and says how much it has now to receive.
pub(super) fn set_buffers(socket: &OwnedFd, len_bytes: usize) -> Result<usize, Errno> {
    let wanted = c_int::try_from(len_bytes).unwrap_or(c_int::MAX);
    for (forced, polite) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if set_option(socket, libc::SOL_SOCKET, forced, wanted).is_err() {
            set_option(socket, libc::SOL_SOCKET, polite, wanted)?;
        }
    }
    // The kernel counts its own overhead and so doubles what it is told (socket(7)).
    Ok(usize::try_from(option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF)?).unwrap_or(0) / 2)
}

fn set_option(socket: &OwnedFd, level: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
    let len = size_of_val(&value) as u32;
    // SAFETY: the kernel reads an int.
    let outcome = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len)
    };
    if outcome < 0 { Err(last_errno()) } else { Ok(()) }
}

fn option(socket: &OwnedFd, level: c_int, name: c_int) -> Result<c_int, Errno> {
    let (mut value, mut len): (c_int, u32) = (0, size_of::<c_int>() as u32);
    // SAFETY: the kernel writes at most an int, and its length.
    let outcome = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    };
    if outcome < 0 { Err(last_errno()) } else { Ok(value) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
