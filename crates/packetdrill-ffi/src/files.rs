//! Reading, writing, poll, epoll, pipes.

use crate::calls::{address, address_bytes, enter, give_address};
use crate::session::Session;
use crate::{control, memory};
use libc::{epoll_event, iovec, loff_t, msghdr, nfds_t, pollfd, sockaddr, socklen_t, ssize_t};
use posix::{Address, Call, ControlMessage, EpollEvent, Errno, Output, PollEntry};
use std::ffi::{c_int, c_uint, c_void};

/// The most that one call moves.
const TRANSFER_BYTES_MAX: usize = 1 << 30;

/// The most buffers of a vector (IOV_MAX).
const VECTOR_MAX: usize = 1_024;

/// What a read brought.
struct Received {
    value: i64,
    bytes: Vec<u8>,
    from: Option<Address>,
    flags: i32,
    control: Vec<ControlMessage>,
}

fn receive(session: &Session, fd: c_int, len: usize, flags: c_int) -> Result<Received, Errno> {
    let len = len.min(TRANSFER_BYTES_MAX);
    receive_as(session, Call::Receive { fd: session.fd(fd), len, flags })
}

/// As read(2) does, which of no bytes is another call than recv(2).
fn read_call(session: &Session, fd: c_int, len: usize) -> Result<Received, Errno> {
    match len {
        0 => receive_as(session, Call::ReadNothing { fd: session.fd(fd) }),
        _ => receive(session, fd, len, 0),
    }
}

fn receive_as(session: &Session, call: Call) -> Result<Received, Errno> {
    let reply = session.call(call)?;
    let value = reply.value;
    let (bytes, from, flags, control) = match reply.output {
        Output::Received { bytes, from, flags, control } => (bytes, from, flags, control),
        _ => (Vec::new(), None, 0, Vec::new()),
    };
    Ok(Received { value, bytes, from, flags, control })
}

/// Sends what was read of the caller's memory. Where that could not be read, a connection that takes nothing says
/// so first.
fn send_bytes(
    session: &Session,
    fd: posix::Fd,
    bytes: Result<Vec<u8>, Errno>,
    flags: c_int,
    to: Option<Address>,
    control: Vec<ControlMessage>,
) -> Result<i64, Errno> {
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(Errno::EFAULT) => {
            let kind = kind_of(session, fd)?;
            let is_stream = kind == Output::Value(posix::abi::SOCK_STREAM.to_ne_bytes().to_vec());
            if is_stream && flags & posix::abi::MSG_FASTOPEN == 0 {
                session.call(Call::Send { fd, bytes: Vec::new(), flags, to, control })?;
            }
            return Err(Errno::EFAULT);
        }
        Err(error) => return Err(error),
    };
    session.call(Call::Send { fd, bytes, flags, to, control }).map(|reply| reply.value)
}

/// What SO_TYPE says, which sockets alone have.
fn kind_of(session: &Session, fd: posix::Fd) -> Result<Output, Errno> {
    let (level, name) = (posix::abi::SOL_SOCKET, posix::abi::SO_TYPE);
    session.call(Call::GetOption { fd, level, name, len: 4 }).map(|reply| reply.output)
}

/// As the kernel answers where there is nowhere to read to: what is there stays there.
fn receive_nowhere(session: &Session, fd: c_int, flags: c_int) -> Result<i64, Errno> {
    match receive(session, fd, 1, flags | posix::abi::MSG_PEEK)?.value {
        0 => Ok(0),
        _ => Err(Errno::EFAULT),
    }
}

/// Reads a vector of buffers. `too_many` is the error where there are more than the system takes.
unsafe fn vector(vector: *const iovec, count: usize, too_many: Errno) -> Result<Vec<iovec>, Errno> {
    if count > VECTOR_MAX {
        return Err(too_many);
    }
    let item = |index: usize| {
        // SAFETY: an iovec is plain data; see the module `calls` for the pointers.
        let item: iovec = unsafe { memory::read_value(vector.wrapping_add(index))? };
        // Signed in the kernel.
        if item.iov_len > isize::MAX.cast_unsigned() { Err(Errno::EINVAL) } else { Ok(item) }
    };
    (0..count).map(item).collect()
}

/// Spreads bytes over buffers.
unsafe fn scatter(bytes: &[u8], buffers: &[iovec]) -> Result<(), Errno> {
    let mut rest = bytes;
    for buffer in buffers {
        let (part, after) = rest.split_at(rest.len().min(buffer.iov_len));
        // SAFETY: see the module `calls`.
        unsafe { memory::write(buffer.iov_base, part)? };
        rest = after;
    }
    Ok(())
}

/// Joins what lies in buffers.
unsafe fn gather(buffers: &[iovec]) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    for buffer in buffers {
        if buffer.iov_len > TRANSFER_BYTES_MAX - bytes.len() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: see the module `calls`.
        bytes.extend(unsafe { memory::read(buffer.iov_base, buffer.iov_len)? });
    }
    Ok(bytes)
}

fn len_of(buffers: &[iovec]) -> usize {
    buffers.iter().fold(0, |len: usize, buffer| len.saturating_add(buffer.iov_len))
}

pub(crate) unsafe extern "C" fn read(
    data: *mut c_void,
    fd: c_int,
    buffer: *mut c_void,
    len: usize,
) -> ssize_t {
    if len == 0 {
        let call = |session: &Session| read_call(session, fd, 0).map(|received| received.value);
        // SAFETY: see `enter`.
        return unsafe { enter(data, call) as ssize_t };
    }
    // SAFETY: the same arguments, and no flags.
    unsafe { recv(data, fd, buffer, len, 0) }
}

pub(crate) unsafe extern "C" fn readv(
    data: *mut c_void,
    fd: c_int,
    buffers: *const iovec,
    count: c_int,
) -> ssize_t {
    let call = |session: &Session| {
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
        session.open_fd(fd)?;
        // SAFETY: see the module `calls`.
        let buffers = unsafe { vector(buffers, count, Errno::EINVAL)? };
        let received = read_call(session, fd, len_of(&buffers))?;
        // SAFETY: see the module `calls`.
        unsafe { scatter(&received.bytes, &buffers)? };
        Ok(received.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as ssize_t }
}

pub(crate) unsafe extern "C" fn recv(
    data: *mut c_void,
    fd: c_int,
    buffer: *mut c_void,
    len: usize,
    flags: c_int,
) -> ssize_t {
    let none = core::ptr::null_mut();
    // SAFETY: the same arguments, and no address asked for.
    unsafe { recvfrom(data, fd, buffer, len, flags, none, core::ptr::null_mut()) }
}

pub(crate) unsafe extern "C" fn recvfrom(
    data: *mut c_void,
    fd: c_int,
    buffer: *mut c_void,
    len: usize,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    let call = |session: &Session| {
        if buffer.is_null() && len > 0 {
            return receive_nowhere(session, fd, flags);
        }
        let received = receive(session, fd, len, flags)?;
        // SAFETY: see the module `calls`.
        unsafe {
            memory::write(buffer, &received.bytes)?;
            give_address(received.from, from, from_len)?;
        }
        Ok(received.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as ssize_t }
}

pub(crate) unsafe extern "C" fn recvmsg(
    data: *mut c_void,
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    let call = |session: &Session| {
        session.open_fd(fd)?;
        // SAFETY: a message header is plain data; see the module `calls` for the pointers.
        let mut header = unsafe { memory::read_value(message)? };
        // SAFETY: see the module `calls`.
        let buffers = unsafe { vector(header.msg_iov, header.msg_iovlen, Errno::EMSGSIZE)? };
        let received = receive(session, fd, len_of(&buffers), flags)?;
        // SAFETY: see the module `calls`.
        unsafe { scatter(&received.bytes, &buffers)? };
        let bytes = received.from.map(address_bytes).unwrap_or_default();
        if !header.msg_name.is_null() {
            let room = bytes.len().min(header.msg_namelen as usize);
            // SAFETY: see the module `calls`.
            unsafe { memory::write(header.msg_name, &bytes[..room])? };
            header.msg_namelen = bytes.len() as socklen_t;
        }
        // SAFETY: see the module `calls`.
        let (control_len, cut) = unsafe { control::give(&header, &received.control)? };
        header.msg_controllen = control_len as _;
        header.msg_flags = received.flags | cut;
        // SAFETY: see the module `calls`.
        unsafe { memory::write_value(message, header)? };
        Ok(received.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as ssize_t }
}

pub(crate) unsafe extern "C" fn write(
    data: *mut c_void,
    fd: c_int,
    buffer: *const c_void,
    len: usize,
) -> ssize_t {
    // SAFETY: the same arguments, and no flags.
    unsafe { send(data, fd, buffer, len, 0) }
}

pub(crate) unsafe extern "C" fn writev(
    data: *mut c_void,
    fd: c_int,
    buffers: *const iovec,
    count: c_int,
) -> ssize_t {
    let call = |session: &Session| {
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
        let fd = session.open_fd(fd)?;
        // SAFETY: see the module `calls`.
        let bytes = unsafe { vector(buffers, count, Errno::EINVAL).and_then(|it| gather(&it)) };
        // As in the kernel, which sends an empty datagram for write(2) of nothing alone.
        if bytes.as_ref().is_ok_and(Vec::is_empty) && kind_of(session, fd).is_ok() {
            return Ok(0);
        }
        send_bytes(session, fd, bytes, 0, None, Vec::new())
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as ssize_t }
}

pub(crate) unsafe extern "C" fn send(
    data: *mut c_void,
    fd: c_int,
    buffer: *const c_void,
    len: usize,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the same arguments, and no address.
    unsafe { sendto(data, fd, buffer, len, flags, core::ptr::null(), 0) }
}

pub(crate) unsafe extern "C" fn sendto(
    data: *mut c_void,
    fd: c_int,
    buffer: *const c_void,
    len: usize,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    let call = |session: &Session| {
        let fd = session.open_fd(fd)?;
        if len > TRANSFER_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        // SAFETY: see the module `calls`.
        let to = match to.is_null() || to_len == 0 {
            true => None,
            // SAFETY: see the module `calls`.
            false => Some(unsafe { address(to, to_len)? }),
        };
        // SAFETY: see the module `calls`.
        let bytes = unsafe { memory::read(buffer, len) };
        send_bytes(session, fd, bytes, flags, to, Vec::new())
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as ssize_t }
}

pub(crate) unsafe extern "C" fn sendmsg(
    data: *mut c_void,
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    let call = |session: &Session| {
        let fd = session.open_fd(fd)?;
        // SAFETY: a message header is plain data; see the module `calls` for the pointers.
        let header = unsafe { memory::read_value(message)? };
        // SAFETY: see the module `calls`.
        let buffers = unsafe { vector(header.msg_iov, header.msg_iovlen, Errno::EMSGSIZE)? };
        // SAFETY: see the module `calls`.
        let control = unsafe { control::read(&header)? };
        // SAFETY: see the module `calls`.
        let bytes = unsafe { gather(&buffers) };
        let to = match header.msg_name.is_null() || header.msg_namelen == 0 {
            true => None,
            // SAFETY: see the module `calls`.
            false => Some(unsafe { address(header.msg_name.cast(), header.msg_namelen)? }),
        };
        send_bytes(session, fd, bytes, flags, to, control)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as ssize_t }
}

pub(crate) unsafe extern "C" fn poll(
    data: *mut c_void,
    files: *mut pollfd,
    count: nfds_t,
    timeout_ms: c_int,
) -> c_int {
    let call = |session: &Session| {
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
        if count > VECTOR_MAX {
            return Err(Errno::EINVAL);
        }
        let mut entries = Vec::new();
        for index in 0..count {
            // SAFETY: an entry is plain data; see the module `calls` for the pointers.
            let file = unsafe { memory::read_value(files.wrapping_add(index))? };
            let fd = match (file.fd, session.fd(file.fd)) {
                (..0, _) => -1,
                // Not open, which is told in its entry.
                (_, ..0) => c_int::MAX,
                (_, fd) => fd,
            };
            entries.push(PollEntry { fd, events: file.events, revents: 0 });
        }
        let reply = session.call(Call::Poll { entries, timeout_ms })?;
        if let Output::Polled(entries) = &reply.output {
            for (index, entry) in entries.iter().enumerate() {
                let at = files.wrapping_add(index);
                // SAFETY: see above.
                unsafe {
                    let file = memory::read_value(at)?;
                    memory::write_value(at, pollfd { revents: entry.revents, ..file })?;
                }
            }
        }
        Ok(reply.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn epoll_create(data: *mut c_void, size: c_int) -> c_int {
    let call = |session: &Session| {
        let reply = session.call(Call::EpollCreate { size })?;
        session.publish(reply.value as i32).map(i64::from)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn epoll_ctl(
    data: *mut c_void,
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let call = |session: &Session| {
        let event = match operation {
            posix::abi::EPOLL_CTL_DEL => EpollEvent::default(),
            _ => {
                // SAFETY: an event is plain data; see the module `calls` for the pointers.
                let event = unsafe { memory::read_value(event)? };
                EpollEvent { events: event.events, data: event.u64 }
            }
        };
        let (epoll, fd) = (session.fd(epoll), session.fd(fd));
        let call = Call::EpollControl { epoll, operation, fd, event };
        session.call(call).map(|reply| reply.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn epoll_wait(
    data: *mut c_void,
    epoll: c_int,
    events: *mut epoll_event,
    events_max: c_int,
    timeout_ms: c_int,
) -> c_int {
    let call = |session: &Session| {
        let epoll = session.fd(epoll);
        let reply = session.call(Call::EpollWait { epoll, events_max, timeout_ms })?;
        if let Output::Epoll(found) = &reply.output {
            for (index, event) in found.iter().enumerate() {
                let value = epoll_event { events: event.events, u64: event.data };
                // SAFETY: see the module `calls`.
                unsafe { memory::write_value(events.wrapping_add(index), value)? };
            }
        }
        Ok(reply.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn pipe(data: *mut c_void, ends: *mut c_int) -> c_int {
    let call = |session: &Session| {
        let reply = session.call(Call::Pipe)?;
        if let Output::Pipe([read, write]) = reply.output {
            let real = [session.publish(read)?, session.publish(write)?];
            // SAFETY: see the module `calls`.
            unsafe { memory::write_value(ends.cast::<[c_int; 2]>(), real)? };
        }
        Ok(reply.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as c_int }
}

pub(crate) unsafe extern "C" fn splice(
    data: *mut c_void,
    from: c_int,
    from_at: *mut loff_t,
    to: c_int,
    to_at: *mut loff_t,
    len: usize,
    flags: c_uint,
) -> ssize_t {
    let call = |session: &Session| {
        // packetdrill passes the address of an offset where a script has NULL: the offset is zero.
        // SAFETY: see the module `calls`.
        let given = |at: *mut loff_t| match at.is_null() {
            true => Ok(false),
            // SAFETY: see the module `calls`.
            false => unsafe { memory::read_value(at) }.map(|offset| offset != 0),
        };
        let offsets = given(from_at)? || given(to_at)?;
        let (from, to) = (session.fd(from), session.fd(to));
        session.call(Call::Splice { from, to, offsets, len, flags }).map(|reply| reply.value)
    };
    // SAFETY: see `enter`.
    unsafe { enter(data, call) as ssize_t }
}
