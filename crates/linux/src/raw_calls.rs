//! Socket calls by number, with everything that a C program can get wrong.
//!
//! For programs that ask the kernel what it says to a call, whatever the call is: descriptors are
//! numbers, addresses and options are bytes. Every function returns the error number of the
//! system. Memory is safe whatever is passed; as with any descriptor that is a number, it is the
//! caller's affair to name only those it opened.

#![allow(unsafe_code)]
#![allow(missing_docs, reason = "the calls are the system's")]

use core::ffi::{c_int, c_void};
use core::mem::size_of;

/// An error number.
pub type Errno = i32;

fn result(value: i64) -> Result<i64, Errno> {
    match value {
        -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        value => Ok(value),
    }
}

fn int(value: c_int) -> Result<i32, Errno> {
    result(value.into()).map(|value| value as i32)
}

/// Longest address that is read back.
const ADDRESS_BYTES_MAX: usize = 128;

pub fn socket(domain: i32, kind: i32, protocol: i32) -> Result<i32, Errno> {
    // SAFETY: no pointers.
    int(unsafe { libc::socket(domain, kind, protocol) })
}

pub fn bind(fd: i32, address: &[u8]) -> Result<i32, Errno> {
    // SAFETY: the kernel reads as many bytes as the slice has.
    int(unsafe { libc::bind(fd, address.as_ptr().cast(), address.len() as u32) })
}

pub fn listen(fd: i32, backlog: i32) -> Result<i32, Errno> {
    // SAFETY: no pointers.
    int(unsafe { libc::listen(fd, backlog) })
}

/// The new descriptor and the peer's address.
pub fn accept(fd: i32) -> Result<(i32, Vec<u8>), Errno> {
    let mut address = vec![0_u8; ADDRESS_BYTES_MAX];
    let mut len = ADDRESS_BYTES_MAX as u32;
    // SAFETY: the kernel writes at most `len` bytes to the buffer, and `len` itself.
    let accepted = int(unsafe { libc::accept(fd, address.as_mut_ptr().cast(), &raw mut len) })?;
    address.truncate(len as usize);
    Ok((accepted, address))
}

pub fn connect(fd: i32, address: &[u8]) -> Result<i32, Errno> {
    // SAFETY: the kernel reads as many bytes as the slice has.
    int(unsafe { libc::connect(fd, address.as_ptr().cast(), address.len() as u32) })
}

/// read(2): like [`receive`], but it has no flags and works on any file.
pub fn read(fd: i32, len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0_u8; len];
    // SAFETY: the kernel writes at most `len` bytes to the buffer.
    let count = result(unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), len) } as i64)?;
    bytes.truncate(count as usize);
    Ok(bytes)
}

/// recvmsg(2): how many, the bytes, where they came from, `msg_flags`.
pub fn receive(fd: i32, len: usize, flags: i32) -> Result<(i64, Vec<u8>, Vec<u8>, i32), Errno> {
    let mut bytes = vec![0_u8; len];
    let mut address = vec![0_u8; ADDRESS_BYTES_MAX];
    let mut control = [0_u64; 128];
    let mut vector =
        libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() };
    // SAFETY: a message of zeros is an empty one.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_name = address.as_mut_ptr().cast();
    message.msg_namelen = ADDRESS_BYTES_MAX as u32;
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    // Ancillary data is taken, so that nothing is said to be cut off, and thrown away.
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = core::mem::size_of_val(&control);
    // SAFETY: the kernel writes to the three buffers, no more than the lengths say.
    let count = result(unsafe { libc::recvmsg(fd, &raw mut message, flags) } as i64)?;
    bytes.truncate(count.max(0) as usize);
    address.truncate(message.msg_namelen as usize);
    Ok((count, bytes, address, message.msg_flags))
}

/// write(2).
pub fn write(fd: i32, bytes: &[u8]) -> Result<i64, Errno> {
    // SAFETY: the kernel reads as many bytes as the slice has.
    result(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) } as i64)
}

/// sendto(2).
pub fn send(fd: i32, bytes: &[u8], flags: i32, to: &[u8]) -> Result<i64, Errno> {
    let (address, len) = match to.is_empty() {
        true => (core::ptr::null(), 0),
        false => (to.as_ptr().cast(), to.len() as u32),
    };
    // SAFETY: the kernel reads as many bytes as the two slices have.
    let sent = unsafe {
        libc::sendto(
            fd,
            bytes.as_ptr().cast(),
            bytes.len(),
            flags | libc::MSG_NOSIGNAL,
            address,
            len,
        )
    };
    result(sent as i64)
}

/// fcntl(2) with commands whose argument is a number.
pub fn fcntl(fd: i32, command: i32, argument: i64) -> Result<i32, Errno> {
    let takes_number = [libc::F_DUPFD, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL];
    if !takes_number.contains(&command) {
        return Err(libc::EINVAL);
    }
    // SAFETY: these commands take a number or nothing.
    int(unsafe { libc::fcntl(fd, command, argument as c_int) })
}

/// ioctl(2) with requests about sockets and TUN files that read or write one `int`.
pub fn ioctl(fd: i32, request: u64, argument: i32) -> Result<(i32, i32), Errno> {
    const REQUESTS: [u64; 6] = [0x541B, 0x5411, 0x5421, 0x894B, 0x8905, 0x8004_54D3];
    if !REQUESTS.contains(&request) {
        return Err(libc::ENOTTY);
    }
    let mut value: c_int = argument;
    // SAFETY: FIONREAD, SIOCOUTQ, FIONBIO, SIOCOUTQNSD, SIOCATMARK and TUNGETSNDBUF take a pointer to an
    // int.
    let returned = int(unsafe { libc::ioctl(fd, request as _, &raw mut value) })?;
    Ok((returned, value))
}

pub fn close(fd: i32) -> Result<i32, Errno> {
    // SAFETY: no pointers; that nobody else owns the descriptor is the caller's affair.
    int(unsafe { libc::close(fd) })
}

pub fn shutdown(fd: i32, how: i32) -> Result<i32, Errno> {
    // SAFETY: no pointers.
    int(unsafe { libc::shutdown(fd, how) })
}

/// getsockopt(2). SO_GET_FILTER, which has the number of SO_ATTACH_FILTER, is refused as an option that there is
/// not: its length counts instructions of 8 bytes.
pub fn getsockopt(fd: i32, level: i32, name: i32, len: usize) -> Result<Vec<u8>, Errno> {
    if (level, name) == (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER) {
        return Err(libc::ENOPROTOOPT);
    }
    let mut value = vec![0_u8; len];
    let mut len = len as u32;
    // SAFETY: the kernel writes at most `len` bytes to the buffer, and `len` itself: of the options whose length
    // is in other units, SO_GET_FILTER, that was asked above.
    int(unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut len) })?;
    value.truncate(len as usize);
    Ok(value)
}

/// setsockopt(2). A value longer than an `int` goes to the options of SOL_SOCKET, IP, TCP, UDP and IPv6
/// that hold no address: others have the kernel write or read memory that they name (XDP_UMEM_REG,
/// IPT_SO_SET_REPLACE), and are refused as options that there are not.
pub fn setsockopt(fd: i32, level: i32, name: i32, value: &[u8]) -> Result<i32, Errno> {
    if value.len() > size_of::<c_int>() && !is_plain(level, name) {
        return Err(libc::ENOPROTOOPT);
    }
    // SAFETY: the kernel reads as many bytes as the slice has, and they name no memory: they are an int
    // at most, or of an option that is known to hold none.
    int(unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), value.len() as u32) })
}

/// Whether the value of an option is data and names no memory.
fn is_plain(level: i32, name: i32) -> bool {
    match level {
        libc::SOL_SOCKET => {
            ![libc::SO_ATTACH_FILTER, libc::SO_ATTACH_REUSEPORT_CBPF].contains(&name)
        }
        // Tables of packet filters begin at 64 (iptables, arptables, ebtables).
        libc::IPPROTO_IP => name < 64,
        // IP6T_SO_SET_REPLACE and IP6T_SO_SET_ADD_COUNTERS among the others.
        libc::IPPROTO_IPV6 => ![64, 65].contains(&name),
        libc::IPPROTO_TCP | libc::IPPROTO_UDP => true,
        _ => false,
    }
}

/// poll(2) over (descriptor, events); what is the case comes in the same order.
pub fn poll(entries: &[(i32, i16)], timeout_ms: i32) -> Result<(i32, Vec<i16>), Errno> {
    let entry = |(fd, events): &(i32, i16)| libc::pollfd { fd: *fd, events: *events, revents: 0 };
    let mut files: Vec<libc::pollfd> = entries.iter().map(entry).collect();
    // SAFETY: the kernel reads and writes as many entries as the vector has.
    let count = unsafe { libc::poll(files.as_mut_ptr(), files.len() as _, timeout_ms) };
    Ok((int(count)?, files.iter().map(|file| file.revents).collect()))
}

pub fn epoll_create(size: i32) -> Result<i32, Errno> {
    // SAFETY: no pointers.
    int(unsafe { libc::epoll_create(size) })
}

pub fn epoll_ctl(
    epoll: i32,
    operation: i32,
    fd: i32,
    events: u32,
    data: u64,
) -> Result<i32, Errno> {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: the kernel reads the event.
    int(unsafe { libc::epoll_ctl(epoll, operation, fd, &raw mut event) })
}

/// epoll_wait(2): (events, data) of each.
pub fn epoll_wait(epoll: i32, events_max: i32, timeout_ms: i32) -> Result<Vec<(u32, u64)>, Errno> {
    let room = usize::try_from(events_max).unwrap_or(0).min(1_024);
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; room.max(1)];
    let asked = events_max.min(room as i32);
    // SAFETY: the kernel writes at most as many events as were asked for, which the vector holds.
    let count = int(unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), asked, timeout_ms) })?;
    Ok(events[..count as usize].iter().map(|event| (event.events, event.u64)).collect())
}

pub fn pipe() -> Result<[i32; 2], Errno> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors.
    int(unsafe { libc::pipe(ends.as_mut_ptr()) })?;
    Ok(ends)
}

/// splice(2) without offsets.
pub fn splice(from: i32, to: i32, len: usize, flags: u32) -> Result<i64, Errno> {
    let none = core::ptr::null_mut();
    // SAFETY: the offsets are null.
    result(unsafe { libc::splice(from, none, to, none, len, flags) } as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel would say EBADF of the descriptor, if it were asked.
    #[test]
    fn options_that_hold_addresses_are_refused() {
        let set = |level, name, len| setsockopt(-1, level, name, &vec![0; len]);
        const SOL_XDP: i32 = 283;
        const XDP_UMEM_REG: i32 = 4;
        const SOL_PACKET: i32 = 263;
        let refused = [
            (SOL_XDP, XDP_UMEM_REG),
            (SOL_PACKET, 5),
            (libc::IPPROTO_IP, 64),
            (libc::IPPROTO_IP, 128),
            (libc::IPPROTO_IPV6, 64),
            (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
        ];
        for (level, name) in refused {
            assert_eq!(set(level, name, 32), Err(libc::ENOPROTOOPT), "{level}, {name}");
            assert_eq!(set(level, name, 4), Err(libc::EBADF), "{level}, {name}: a number");
        }
        for (level, name) in [
            (libc::SOL_SOCKET, libc::SO_LINGER),
            (libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP),
            (libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP),
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
        ] {
            assert_eq!(set(level, name, 8), Err(libc::EBADF), "{level}, {name}");
        }
    }

    #[test]
    fn an_option_whose_length_counts_instructions_is_refused() {
        let get = |name| getsockopt(-1, libc::SOL_SOCKET, name, 10);
        assert_eq!(get(libc::SO_GET_FILTER), Err(libc::ENOPROTOOPT));
        assert_eq!(get(libc::SO_LINGER), Err(libc::EBADF));
    }
}
