//! `struct packetdrill_interface`, field by field in packetdrill's order.
//!
//! `fcntl` and `ioctl` are variadic there. Functions with one argument more take their place: on
//! the architectures this runs on, an integer or a pointer behind the dots is passed where a
//! further argument would be; one that the caller left out is read only for commands that have none.

use crate::{calls, files};
use libc::{
    epoll_event, iovec, loff_t, msghdr, nfds_t, pollfd, sockaddr, socklen_t, ssize_t, timeval,
};
use std::ffi::{c_int, c_long, c_longlong, c_uint, c_ulong, c_void};

type Data = *mut c_void;

/// `struct packetdrill_interface`
#[repr(C)]
#[allow(missing_docs, reason = "the names are packetdrill's")]
pub struct Interface {
    pub userdata: Data,
    pub free: unsafe extern "C" fn(Data),
    pub socket: unsafe extern "C" fn(Data, c_int, c_int, c_int) -> c_int,
    pub bind: unsafe extern "C" fn(Data, c_int, *const sockaddr, socklen_t) -> c_int,
    pub listen: unsafe extern "C" fn(Data, c_int, c_int) -> c_int,
    pub accept: unsafe extern "C" fn(Data, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    pub connect: unsafe extern "C" fn(Data, c_int, *const sockaddr, socklen_t) -> c_int,
    pub read: unsafe extern "C" fn(Data, c_int, *mut c_void, usize) -> ssize_t,
    pub readv: unsafe extern "C" fn(Data, c_int, *const iovec, c_int) -> ssize_t,
    pub recv: unsafe extern "C" fn(Data, c_int, *mut c_void, usize, c_int) -> ssize_t,
    pub recvfrom: unsafe extern "C" fn(
        Data,
        c_int,
        *mut c_void,
        usize,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t,
    pub recvmsg: unsafe extern "C" fn(Data, c_int, *mut msghdr, c_int) -> ssize_t,
    pub write: unsafe extern "C" fn(Data, c_int, *const c_void, usize) -> ssize_t,
    pub writev: unsafe extern "C" fn(Data, c_int, *const iovec, c_int) -> ssize_t,
    pub send: unsafe extern "C" fn(Data, c_int, *const c_void, usize, c_int) -> ssize_t,
    pub sendto: unsafe extern "C" fn(
        Data,
        c_int,
        *const c_void,
        usize,
        c_int,
        *const sockaddr,
        socklen_t,
    ) -> ssize_t,
    pub sendmsg: unsafe extern "C" fn(Data, c_int, *const msghdr, c_int) -> ssize_t,
    pub fcntl: unsafe extern "C" fn(Data, c_int, c_int, c_long) -> c_int,
    pub ioctl: unsafe extern "C" fn(Data, c_int, c_ulong, *mut c_int) -> c_int,
    pub close: unsafe extern "C" fn(Data, c_int) -> c_int,
    pub shutdown: unsafe extern "C" fn(Data, c_int, c_int) -> c_int,
    pub getsockopt:
        unsafe extern "C" fn(Data, c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    pub setsockopt:
        unsafe extern "C" fn(Data, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    pub poll: unsafe extern "C" fn(Data, *mut pollfd, nfds_t, c_int) -> c_int,
    pub netdev_send: unsafe extern "C" fn(Data, *const c_void, usize) -> c_int,
    pub netdev_receive:
        unsafe extern "C" fn(Data, *mut c_void, *mut usize, *mut c_longlong) -> c_int,
    pub usleep: unsafe extern "C" fn(Data, c_uint) -> c_int,
    pub gettimeofday: unsafe extern "C" fn(Data, *mut timeval, *mut c_void) -> c_int,
    pub epoll_create: unsafe extern "C" fn(Data, c_int) -> c_int,
    pub epoll_ctl: unsafe extern "C" fn(Data, c_int, c_int, c_int, *mut epoll_event) -> c_int,
    pub epoll_wait: unsafe extern "C" fn(Data, c_int, *mut epoll_event, c_int, c_int) -> c_int,
    pub pipe: unsafe extern "C" fn(Data, *mut c_int) -> c_int,
    pub splice: unsafe extern "C" fn(
        Data,
        c_int,
        *mut loff_t,
        c_int,
        *mut loff_t,
        usize,
        c_uint,
    ) -> ssize_t,
}

/// The structure with everything in its place.
pub(crate) fn interface(userdata: Data) -> Interface {
    Interface {
        userdata,
        free: calls::free,
        socket: calls::socket,
        bind: calls::bind,
        listen: calls::listen,
        accept: calls::accept,
        connect: calls::connect,
        read: files::read,
        readv: files::readv,
        recv: files::recv,
        recvfrom: files::recvfrom,
        recvmsg: files::recvmsg,
        write: files::write,
        writev: files::writev,
        send: files::send,
        sendto: files::sendto,
        sendmsg: files::sendmsg,
        fcntl: calls::fcntl,
        ioctl: calls::ioctl,
        close: calls::close,
        shutdown: calls::shutdown,
        getsockopt: calls::getsockopt,
        setsockopt: calls::setsockopt,
        poll: files::poll,
        netdev_send: calls::netdev_send,
        netdev_receive: calls::netdev_receive,
        usleep: calls::usleep,
        gettimeofday: calls::gettimeofday,
        epoll_create: files::epoll_create,
        epoll_ctl: files::epoll_ctl,
        epoll_wait: files::epoll_wait,
        pipe: files::pipe,
        splice: files::splice,
    }
}
