//! Sockets, their options, the clock and the network.
//!
//! Every function here and in `files.rs` is called by packetdrill with the session in `data` and
//! with pointers as C has them; what they point to goes through `memory.rs`.

#![allow(clippy::missing_safety_doc, reason = "the same for all: see above")]

use crate::memory;
use crate::session::Session;
use libc::{sockaddr, socklen_t, timeval};
use posix::{Address, Call, Errno, Output, Reply};
use std::ffi::{c_int, c_long, c_longlong, c_uint, c_ulong, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use time::Duration;

/// Runs a call with the session; an error goes to errno, a panic becomes an error.
pub(crate) unsafe fn enter(
    data: *mut c_void,
    call: impl FnOnce(&Session) -> Result<i64, Errno>,
) -> i64 {
    // SAFETY: packetdrill hands back what it was given, until it calls `free`.
    let session = unsafe { &*data.cast::<Session>() };
    let result = catch_unwind(AssertUnwindSafe(|| call(session)));
    match result.unwrap_or(Err(Errno::EIO)) {
        Ok(value) => value,
        Err(errno) => {
            // SAFETY: the location of this thread's errno.
            unsafe { *libc::__errno_location() = errno.0 };
            -1
        }
    }
}

pub(crate) unsafe extern "C" fn free(data: *mut c_void) {
    // SAFETY: it was made by `Box::into_raw`, and packetdrill frees it once, with its second
    // thread gone.
    drop(unsafe { Box::from_raw(data.cast::<Session>()) });
}

pub(crate) unsafe extern "C" fn socket(
    data: *mut c_void,
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    let call = |session: &Session| {
        let reply = session.call(Call::Socket { domain, kind, protocol })?;
        session.publish(reply.value as i32).map(i64::from)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

/// Reads a socket address.
pub(crate) unsafe fn address(from: *const sockaddr, len: socklen_t) -> Result<Address, Errno> {
    if len > 128 {
        return Err(Errno::EINVAL);
    }
    // SAFETY: see the module.
    let bytes = unsafe { memory::read(from.cast(), len as usize)? };
    let family: &[u8; 2] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
    let family = u16::from_ne_bytes(*family);
    let port = || bytes.get(2..4).map(|port| u16::from_be_bytes([port[0], port[1]]));
    let ip: Option<IpAddr> = match family {
        posix::abi::AF_INET if len >= 16 => bytes
            .get(4..8)
            .and_then(|ip| ip.first_chunk::<4>())
            .map(|ip| Ipv4Addr::from(*ip).into()),
        posix::abi::AF_INET6 if len >= 24 => bytes
            .get(8..24)
            .and_then(|ip| ip.first_chunk::<16>())
            .map(|ip| Ipv6Addr::from(*ip).into()),
        posix::abi::AF_INET | posix::abi::AF_INET6 => return Err(Errno::EINVAL),
        posix::abi::AF_UNSPEC => return Ok(Address::Unspecified),
        other => return Ok(Address::Other(other)),
    };
    match (ip, port()) {
        (Some(ip), Some(port)) => Ok(Address::Inet(SocketAddr::new(ip, port))),
        _ => Err(Errno::EINVAL),
    }
}

/// The bytes of a socket address.
pub(crate) fn address_bytes(address: Address) -> Vec<u8> {
    let mut bytes = Vec::new();
    match address {
        Address::Inet(SocketAddr::V4(address)) => {
            bytes.extend(posix::abi::AF_INET.to_ne_bytes());
            bytes.extend(address.port().to_be_bytes());
            bytes.extend(address.ip().octets());
            bytes.resize(16, 0);
        }
        Address::Inet(SocketAddr::V6(address)) => {
            bytes.extend(posix::abi::AF_INET6.to_ne_bytes());
            bytes.extend(address.port().to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(address.ip().octets());
            bytes.resize(28, 0);
        }
        Address::Unspecified | Address::Other(_) => {}
    }
    bytes
}

/// Writes an address and its length to where the caller wants them, cut to the room there is.
pub(crate) unsafe fn give_address(
    address: Option<Address>,
    to: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    if to.is_null() || len.is_null() {
        return Ok(());
    }
    let bytes = address.map(address_bytes).unwrap_or_default();
    // SAFETY: see the module.
    unsafe {
        let room = memory::read_value(len)? as usize;
        memory::write(to.cast(), &bytes[..bytes.len().min(room)])?;
        memory::write_value(len, bytes.len() as socklen_t)
    }
}

pub(crate) unsafe extern "C" fn bind(
    data: *mut c_void,
    fd: c_int,
    at: *const sockaddr,
    len: socklen_t,
) -> c_int {
    let call = |session: &Session| {
        let fd = session.open_fd(fd)?;
        // SAFETY: see the module.
        let address = unsafe { address(at, len)? };
        session.call(Call::Bind { fd, address }).map(|reply| reply.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn listen(data: *mut c_void, fd: c_int, backlog: c_int) -> c_int {
    let call = |session: &Session| {
        session.call(Call::Listen { fd: session.fd(fd), backlog }).map(|reply| reply.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn accept(
    data: *mut c_void,
    fd: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let call = |session: &Session| {
        let reply = session.call(Call::Accept { fd: session.fd(fd) })?;
        let address = match reply.output {
            Output::Address(address) => Some(address),
            _ => None,
        };
        // SAFETY: see the module.
        let given = unsafe { give_address(address, from, len) };
        let fd = reply.value as i32;
        // Nobody would know of the connection: as in the kernel it is closed.
        given.and_then(|()| session.publish(fd)).map(i64::from).inspect_err(|_| {
            let _ = session.call(Call::Close { fd });
        })
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn connect(
    data: *mut c_void,
    fd: c_int,
    to: *const sockaddr,
    len: socklen_t,
) -> c_int {
    let call = |session: &Session| {
        let fd = session.open_fd(fd)?;
        // SAFETY: see the module.
        let address = unsafe { address(to, len)? };
        session.call(Call::Connect { fd, address }).map(|reply| reply.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn fcntl(
    data: *mut c_void,
    fd: c_int,
    command: c_int,
    argument: c_long,
) -> c_int {
    let call = |session: &Session| {
        let fd = session.fd(fd);
        session.call(Call::Fcntl { fd, command, argument }).map(|reply| reply.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn ioctl(
    data: *mut c_void,
    fd: c_int,
    request: c_ulong,
    argument: *mut c_int,
) -> c_int {
    let call = |session: &Session| {
        let fd = session.open_fd(fd)?;
        let reads = request == posix::abi::FIONBIO;
        // SAFETY: see the module.
        let value = if reads { unsafe { memory::read_value(argument)? } } else { 0 };
        let reply = session.call(Call::Ioctl { fd, request, argument: value })?;
        if let Output::Integer(value) = reply.output {
            // SAFETY: see the module.
            unsafe { memory::write_value(argument, value)? };
        }
        Ok(reply.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn close(data: *mut c_void, fd: c_int) -> c_int {
    let call = |session: &Session| {
        if !session.has_published(fd) {
            // What packetdrill opened with open(2), for which there is nothing in the structure.
            // SAFETY: the caller's own call.
            return match unsafe { libc::close(fd) } {
                0 => Ok(0),
                _ => {
                    Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)))
                }
            };
        }
        let reply = session.call(Call::Close { fd: session.fd(fd) });
        session.retire(fd);
        reply.map(|reply| reply.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn shutdown(data: *mut c_void, fd: c_int, how: c_int) -> c_int {
    let call = |session: &Session| {
        session.call(Call::Shutdown { fd: session.fd(fd), how }).map(|reply| reply.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn getsockopt(
    data: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let call = |session: &Session| {
        let fd = session.open_fd(fd)?;
        // SAFETY: see the module.
        let room = unsafe { memory::read_value(len)? };
        // Signed in the kernel.
        let room = usize::try_from(room.cast_signed()).map_err(|_| Errno::EINVAL)?;
        let call = Call::GetOption { fd, level, name, len: room };
        let Reply { value: returned, output } = session.call(call)?;
        if let Output::Value(bytes) = output {
            // SAFETY: see the module.
            unsafe {
                memory::write(value, &bytes)?;
                memory::write_value(len, bytes.len() as socklen_t)?;
            }
        }
        Ok(returned)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn setsockopt(
    data: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let call = |session: &Session| {
        let fd = session.open_fd(fd)?;
        if len > 65_536 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: see the module.
        let value = unsafe { memory::read(value, len as usize)? };
        let call = Call::SetOption { fd, level, name, value };
        session.call(call).map(|reply| reply.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn netdev_send(
    data: *mut c_void,
    packet: *const c_void,
    len: usize,
) -> c_int {
    let call = |session: &Session| {
        // SAFETY: see the module.
        session.inject(&unsafe { memory::read(packet, len)? });
        Ok(0)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn netdev_receive(
    data: *mut c_void,
    packet: *mut c_void,
    len: *mut usize,
    time_us: *mut c_longlong,
) -> c_int {
    let call = |session: &Session| {
        // SAFETY: see the module.
        let room = unsafe { memory::read_value(len)? };
        let (at_us, bytes) = match session.next_packet() {
            Some((at, bytes)) => ((at.as_nanos() / 1_000) as c_longlong, bytes),
            None => {
                // packetdrill has no word for it here, and says that a packet of no bytes came.
                eprintln!("no packet was sent, and nothing is left that could send one");
                (0, Vec::new())
            }
        };
        let bytes = &bytes[..bytes.len().min(room)];
        // SAFETY: see the module.
        unsafe {
            memory::write(packet, bytes)?;
            memory::write_value(len, bytes.len())?;
            memory::write_value(time_us, at_us)?;
        }
        Ok(0)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn usleep(data: *mut c_void, us: c_uint) -> c_int {
    let call = |session: &Session| {
        session.sleep(Duration::from_micros(us.into()));
        Ok(0)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn gettimeofday(
    data: *mut c_void,
    time: *mut timeval,
    _zone: *mut c_void,
) -> c_int {
    let call = |session: &Session| {
        let now_us = session.look_at_clock().as_nanos() / 1_000;
        let value = timeval {
            tv_sec: (now_us / 1_000_000) as libc::time_t,
            tv_usec: (now_us % 1_000_000) as libc::suseconds_t,
        };
        // SAFETY: see the module.
        unsafe { memory::write_value(time, value)? };
        Ok(0)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}
