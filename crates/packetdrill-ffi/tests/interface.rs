//! The built library, loaded as packetdrill loads it, and driven through the C structure. With
//! `--ignored`, the packetdrill binary that the environment variable `PACKETDRILL` names runs our
//! scripts, too.

#[path = "../../linux/tests/network/withheld.rs"]
mod withheld;

use multidata_packetdrill::Interface;
use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use withheld::cannot_run;

type Init = unsafe extern "C" fn(*const c_char, *mut Interface);

/// The library beside the test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let directory = test.parent().expect("a directory").to_owned();
    let name = "libmultidata_packetdrill.so";
    [directory.join(name), directory.join("..").join(name)]
        .into_iter()
        .find(|path| path.exists())
        .expect("cargo builds the library before its tests")
}

/// The structure as the library fills it in.
fn load(flags: &str) -> Interface {
    let path = CString::new(library().to_str().expect("a path of text")).expect("no zero");
    let flags = CString::new(flags).expect("no zero");
    // SAFETY: the library is ours and does nothing when it is loaded.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "the library can be loaded");
    // SAFETY: the handle was just opened.
    let symbol = unsafe { libc::dlsym(handle, c"packetdrill_interface_init".as_ptr()) };
    assert!(!symbol.is_null(), "the library exports what packetdrill looks for");
    // SAFETY: that is the type of the symbol.
    let init: Init = unsafe { core::mem::transmute::<*mut c_void, Init>(symbol) };
    let mut interface = core::mem::MaybeUninit::uninit();
    // SAFETY: the flags end with a zero, and the function fills the structure in.
    unsafe {
        init(flags.as_ptr(), interface.as_mut_ptr());
        interface.assume_init()
    }
}

fn address(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([192, 168, 44, 55]) },
        sin_zero: [0; 8],
    }
}

const ADDRESS_LEN: u32 = size_of::<libc::sockaddr_in>() as u32;

/// An IPv4 packet with a TCP segment from 192.0.2.1:5555 to 192.168.44.55:8080.
fn segment(flags: u8, sequence: u32, acknowledgment: u32) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 168, 44, 55];
    let checksum = checksum(&ip, 0);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut tcp = [5555_u16.to_be_bytes(), 8080_u16.to_be_bytes()].concat();
    tcp.extend(sequence.to_be_bytes());
    tcp.extend(acknowledgment.to_be_bytes());
    tcp.extend([0x50, flags, 0x80, 0, 0, 0, 0, 0]);
    let mut pseudo = ip[12..20].to_vec();
    pseudo.extend([0, 6, 0, 20]);
    pseudo.extend(&tcp);
    let checksum = self::checksum(&pseudo, 0);
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    ip.extend(tcp);
    ip
}

const TCP_INQ: i32 = 36;
static ON: i32 = 1;

/// The segment with text behind its header.
fn with_text(mut packet: Vec<u8>, text: &[u8]) -> Vec<u8> {
    packet.extend(text);
    let len = packet.len() as u16;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[10..12].fill(0);
    let sum = checksum(&packet[..20], 0);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet[36..38].fill(0);
    let mut summed = packet[12..20].to_vec();
    summed.extend([0, 6]);
    summed.extend((len - 20).to_be_bytes());
    summed.extend(&packet[20..]);
    let sum = checksum(&summed, 0);
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    packet
}

// What packetdrill does for a code block, with the library preloaded: the system's call, by its name.
#[test]
fn the_system_call_of_code_blocks_reaches_the_session() {
    let interface = load("");
    let data = interface.userdata;
    let ask = preloaded_getsockopt();
    let mut info = [0_u8; 512];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the pointers are to what lives as long as the calls.
    unsafe {
        let fd = (interface.socket)(data, libc::AF_INET, libc::SOCK_STREAM, 0);
        let value = info.as_mut_ptr().cast();
        assert_eq!(ask(fd, libc::IPPROTO_TCP, libc::TCP_INFO, value, &raw mut len), 0);
        assert_eq!((len, info[0]), (280, 7), "of a socket that is closed");
        (interface.free)(data);
        assert_eq!(ask(fd, libc::IPPROTO_TCP, libc::TCP_INFO, value, &raw mut len), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOTSOCK));

        let real = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        let mut len = 4;
        assert_eq!(ask(real, libc::SOL_SOCKET, libc::SO_TYPE, value, &raw mut len), 0);
        assert_eq!((len, info[0]), (4, libc::SOCK_STREAM as u8), "the kernel's own sockets");
        libc::close(real);
    }
}

type Ask = unsafe extern "C" fn(i32, i32, i32, *mut c_void, *mut libc::socklen_t) -> i32;

/// What the library has to be preloaded for.
fn preloaded_getsockopt() -> Ask {
    let path = CString::new(library().to_str().expect("a path of text")).expect("no zero");
    // SAFETY: as in `load`; the type is the system call's.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        let symbol = libc::dlsym(handle, c"getsockopt".as_ptr());
        let mut place: libc::Dl_info = core::mem::zeroed();
        assert_ne!(libc::dladdr(symbol, &raw mut place), 0);
        let name = std::ffi::CStr::from_ptr(place.dli_fname).to_string_lossy().into_owned();
        assert!(name.contains("multidata_packetdrill"), "it is the library's own: {name}");
        core::mem::transmute::<*mut c_void, Ask>(symbol)
    }
}

fn checksum(bytes: &[u8], start: u32) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum = words.fold(start, |sum, word| sum + word);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

#[test]
fn a_handshake_goes_through_the_structure() {
    let interface = load("tcp_timestamps=0,tcp_sack=0");
    let data = interface.userdata;
    let local = address(8080);
    let local = (&raw const local).cast::<libc::sockaddr>();
    // SAFETY: what C code would do, with pointers to what lives as long as the calls.
    unsafe {
        let listener = (interface.socket)(data, libc::AF_INET, libc::SOCK_STREAM, 0);
        assert!(listener >= 0);
        assert_eq!((interface.bind)(data, listener, local, ADDRESS_LEN), 0);
        assert_eq!((interface.listen)(data, listener, 1), 0);
        let syn = segment(0x02, 100, 0);
        assert_eq!((interface.netdev_send)(data, syn.as_ptr().cast(), syn.len()), 0);

        let mut packet = [0_u8; 2_048];
        let (mut len, mut time_us) = (packet.len(), 0);
        let buffer = packet.as_mut_ptr().cast();
        assert_eq!((interface.netdev_receive)(data, buffer, &raw mut len, &raw mut time_us), 0);
        // The settings left nothing but the MSS in the SYN-ACK.
        assert_eq!((len, packet[33], &packet[40..44]), (44, 0x12, &[2, 4, 5, 180][..]));
        let isn = u32::from_be_bytes([packet[24], packet[25], packet[26], packet[27]]);

        let ack = segment(0x10, 101, isn.wrapping_add(1));
        assert_eq!((interface.netdev_send)(data, ack.as_ptr().cast(), ack.len()), 0);
        let (mut peer, mut peer_len) = (address(0), ADDRESS_LEN);
        let peer = (&raw mut peer).cast::<libc::sockaddr>();
        let accepted = (interface.accept)(data, listener, peer, &raw mut peer_len);
        assert!(accepted > listener);
        assert_eq!(
            (peer_len, (*peer.cast::<libc::sockaddr_in>()).sin_port),
            (16, 5555_u16.to_be())
        );

        assert_eq!((interface.write)(data, accepted, c"hello".as_ptr().cast(), 5), 5);
        let mut len = packet.len();
        assert_eq!((interface.netdev_receive)(data, buffer, &raw mut len, &raw mut time_us), 0);
        assert_eq!(&packet[40..len], b"hello");
        // A bad pointer costs nothing of what is there, and a message tells what is left of it.
        let text = with_text(segment(0x18, 101, isn.wrapping_add(6)), b"a word");
        assert_eq!((interface.netdev_send)(data, text.as_ptr().cast(), text.len()), 0);
        assert_eq!((interface.read)(data, accepted, core::ptr::null_mut(), 6), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
        let on = (&raw const ON).cast();
        assert_eq!((interface.setsockopt)(data, accepted, libc::IPPROTO_TCP, TCP_INQ, on, 4), 0);
        for (room, flags) in [(64, 0), (8, libc::MSG_CTRUNC)] {
            let mut control = [0_u64; 8];
            let mut buffer = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: 2 };
            let mut message: libc::msghdr = core::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut buffer, 1);
            (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), room);
            message.msg_namelen = 7;
            assert_eq!((interface.recvmsg)(data, accepted, &raw mut message, 0), 2);
            assert_eq!((message.msg_flags, message.msg_namelen), (flags, 7), "nobody asked who");
            if flags == 0 {
                let told = *libc::CMSG_FIRSTHDR(&raw const message);
                assert_eq!((told.cmsg_level, told.cmsg_type), (libc::IPPROTO_TCP, TCP_INQ));
                let value = libc::CMSG_DATA(libc::CMSG_FIRSTHDR(&raw const message));
                assert_eq!(value.cast::<i32>().read_unaligned(), 4);
            } else {
                assert_eq!(message.msg_controllen, 0);
            }
        }
        // What was written with MSG_ZEROCOPY is told of when it is acknowledged, as sendmsg(2)'s documentation has it.
        let so_zerocopy = libc::SO_ZEROCOPY;
        assert_eq!((interface.setsockopt)(data, accepted, libc::SOL_SOCKET, so_zerocopy, on, 4), 0);
        let zero_copy = libc::MSG_ZEROCOPY;
        assert_eq!((interface.send)(data, accepted, c"again".as_ptr().cast(), 5, zero_copy), 5);
        for acknowledges in [false, true] {
            if acknowledges {
                let ack = segment(0x10, 107, isn.wrapping_add(11));
                assert_eq!((interface.netdev_send)(data, ack.as_ptr().cast(), ack.len()), 0);
            }
            let mut control = [0_u64; 8];
            let mut message: libc::msghdr = core::mem::zeroed();
            (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), 64);
            let returned =
                (interface.recvmsg)(data, accepted, &raw mut message, libc::MSG_ERRQUEUE);
            assert_eq!(returned, if acknowledges { 0 } else { -1 });
            if acknowledges {
                assert_eq!(message.msg_flags, libc::MSG_ERRQUEUE);
                let told = *libc::CMSG_FIRSTHDR(&raw const message);
                assert_eq!((told.cmsg_level, told.cmsg_type), (libc::SOL_IP, libc::IP_RECVERR));
                assert_eq!(told.cmsg_len as usize, 16 + 16 + size_of::<libc::sockaddr_in>());
                let error = libc::CMSG_DATA(libc::CMSG_FIRSTHDR(&raw const message));
                let error = error.cast::<libc::sock_extended_err>().read_unaligned();
                assert_eq!((error.ee_errno, error.ee_origin, error.ee_code), (0, 5, 1));
                assert_eq!((error.ee_info, error.ee_data), (0, 0));
            }
        }
        assert_eq!((interface.close)(data, accepted), 0);
        (interface.free)(data);
    }
}

/// A listener with a connection that waits to be accepted, and what the peer's next segments acknowledge.
///
/// # Safety
/// The structure is one of [`load`]'s.
unsafe fn asked(interface: &Interface) -> (i32, u32) {
    let data = interface.userdata;
    let local = address(8080);
    let mut packet = [0_u8; 2_048];
    let (mut len, mut time_us) = (packet.len(), 0);
    // SAFETY: what C code would do, with pointers to what lives as long as the calls.
    unsafe {
        let listener = (interface.socket)(data, libc::AF_INET, libc::SOCK_STREAM, 0);
        let local = (&raw const local).cast();
        assert_eq!((interface.bind)(data, listener, local, ADDRESS_LEN), 0);
        assert_eq!((interface.listen)(data, listener, 1), 0);
        let syn = segment(0x02, 100, 0);
        assert_eq!((interface.netdev_send)(data, syn.as_ptr().cast(), syn.len()), 0);
        let buffer = packet.as_mut_ptr().cast();
        assert_eq!((interface.netdev_receive)(data, buffer, &raw mut len, &raw mut time_us), 0);
        let first = u32::from_be_bytes([packet[24], packet[25], packet[26], packet[27]]) + 1;
        let ack = segment(0x10, 101, first);
        assert_eq!((interface.netdev_send)(data, ack.as_ptr().cast(), ack.len()), 0);
        (listener, first)
    }
}

/// A connection on the listener's host, and what the peer's next segments acknowledge.
///
/// # Safety
/// The structure is one of [`load`]'s.
unsafe fn connected(interface: &Interface) -> (i32, u32) {
    // SAFETY: as there.
    unsafe {
        let (listener, first) = asked(interface);
        let null = core::ptr::null_mut();
        let accepted = (interface.accept)(interface.userdata, listener, null, null.cast());
        assert!(accepted > listener);
        (accepted, first)
    }
}

// Every call that the handshake above does not make.
#[test]
fn the_other_calls_go_through_the_structure() {
    let interface = load("tcp_timestamps=0,tcp_sack=0");
    let data = interface.userdata;
    let mut text = [0_u8; 64];
    // SAFETY: as above.
    unsafe {
        let (fd, first) = connected(&interface);
        let place = text.as_mut_ptr().cast::<c_void>();
        let null = core::ptr::null_mut::<c_void>();

        // Descriptors, and what they are ready for.
        let flags = (interface.fcntl)(data, fd, libc::F_GETFL, 0);
        assert_eq!(flags & (libc::O_ACCMODE | libc::O_NONBLOCK), libc::O_RDWR);
        let nonblocking = i64::from(libc::O_NONBLOCK);
        assert_eq!((interface.fcntl)(data, fd, libc::F_SETFL, nonblocking), 0);
        assert_eq!((interface.read)(data, fd, place, 9), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN));
        let epoll = (interface.epoll_create)(data, 1);
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 42 };
        let add = libc::EPOLL_CTL_ADD;
        assert_eq!((interface.epoll_ctl)(data, epoll, add, fd, &raw mut event), 0);
        let mut told = libc::epoll_event { events: 0, u64: 0 };
        assert_eq!((interface.epoll_wait)(data, epoll, &raw mut told, 1, 0), 0);
        let packet = with_text(segment(0x18, 101, first), b"one two three!");
        assert_eq!((interface.netdev_send)(data, packet.as_ptr().cast(), packet.len()), 0);
        assert_eq!((interface.epoll_wait)(data, epoll, &raw mut told, 1, 0), 1);
        assert_eq!(({ told.events }, { told.u64 }), (libc::EPOLLIN as u32, 42));
        let mut entry = libc::pollfd { fd, events: libc::POLLIN | libc::POLLOUT, revents: 0 };
        assert_eq!((interface.poll)(data, &raw mut entry, 1, 0), 1);
        assert_eq!(entry.revents, libc::POLLIN | libc::POLLOUT);

        // Every way to read, of fourteen bytes.
        let mut count = 0;
        assert_eq!((interface.ioctl)(data, fd, libc::FIONREAD, &raw mut count), 0);
        assert_eq!(count, 14);
        assert_eq!((interface.recv)(data, fd, place, 3, libc::MSG_PEEK), 3);
        let (mut from, mut from_len) = (address(0), ADDRESS_LEN);
        let from = (&raw mut from).cast();
        let got = (interface.recvfrom)(data, fd, place, 4, 0, from, &raw mut from_len);
        assert_eq!((got, &text[..4]), (4, &b"one "[..]));
        let place = text.as_mut_ptr();
        let pieces = [(place, 2), (place.add(2), 2)]
            .map(|(at, iov_len)| libc::iovec { iov_base: at.cast(), iov_len });
        assert_eq!((interface.readv)(data, fd, pieces.as_ptr(), 2), 4);
        assert_eq!(&text[..4], b"two ");
        let mut pipe = [0; 2];
        assert_eq!((interface.pipe)(data, pipe.as_mut_ptr()), 0);
        let none = null.cast();
        assert_eq!((interface.splice)(data, fd, none, pipe[1], none, 6, 0), 6);
        assert_eq!((interface.read)(data, pipe[0], text.as_mut_ptr().cast(), 9), 6);
        assert_eq!(&text[..6], b"three!");

        // Every way to write.
        let word = c"word".as_ptr().cast_mut().cast::<c_void>();
        let nobody = core::ptr::null();
        assert_eq!((interface.sendto)(data, fd, word, 4, 0, nobody, 0), 4);
        let piece = libc::iovec { iov_base: word, iov_len: 4 };
        let pieces = [piece, libc::iovec { iov_base: word, iov_len: 2 }];
        assert_eq!((interface.writev)(data, fd, pieces.as_ptr(), 2), 6);
        let mut message: libc::msghdr = core::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (pieces.as_ptr().cast_mut(), 2);
        assert_eq!((interface.sendmsg)(data, fd, &raw const message, 0), 6);
        const SIOCOUTQ: u64 = 0x5411;
        assert_eq!((interface.ioctl)(data, fd, SIOCOUTQ, &raw mut count), 0);
        assert_eq!(count, 16);

        // The end.
        let (mut kind, mut kind_len) = (0_i32, 4);
        let value = (&raw mut kind).cast();
        let (socket, so_type) = (libc::SOL_SOCKET, libc::SO_TYPE);
        assert_eq!((interface.getsockopt)(data, fd, socket, so_type, value, &raw mut kind_len), 0);
        assert_eq!((kind, kind_len), (libc::SOCK_STREAM, 4));
        assert_eq!((interface.shutdown)(data, fd, libc::SHUT_WR), 0);
        assert_eq!((interface.send)(data, fd, word, 4, libc::MSG_NOSIGNAL), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EPIPE));
        let remote = address(1);
        let remote = (&raw const remote).cast();
        assert_eq!((interface.connect)(data, fd, remote, ADDRESS_LEN), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EISCONN));
        (interface.free)(data);
    }
}

#[test]
fn time_passes_where_packetdrill_lets_it() {
    let interface = load("");
    let now_us = || {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let none = core::ptr::null_mut();
        // SAFETY: the structure lives as long as the call.
        let returned = unsafe { (interface.gettimeofday)(interface.userdata, &raw mut time, none) };
        assert_eq!(returned, 0);
        time.tv_sec * 1_000_000 + time.tv_usec
    };
    let before = now_us();
    // SAFETY: no pointers but the session.
    assert_eq!(unsafe { (interface.usleep)(interface.userdata, 250_000) }, 0);
    let slept_us = now_us() - before;
    assert!((250_000..250_010).contains(&slept_us), "{slept_us}");
    // A look at the clock takes a microsecond, so that who waits for it in a loop gets on.
    assert_eq!(now_us() - now_us(), -1);
    // SAFETY: made by the library, freed once.
    unsafe { (interface.free)(interface.userdata) };
}

#[test]
fn bad_pointers_are_errors_as_from_the_kernel() {
    let interface = load("");
    let data = interface.userdata;
    let errno = || std::io::Error::last_os_error().raw_os_error();
    // SAFETY: the addresses are not to be read, which is what the calls must find out.
    unsafe {
        let fd = (interface.socket)(data, libc::AF_INET, libc::SOCK_STREAM, 0);
        assert_eq!((interface.bind)(data, fd, core::ptr::null(), ADDRESS_LEN), -1);
        assert_eq!(errno(), Some(libc::EFAULT));
        assert_eq!((interface.setsockopt)(data, fd, 1, 2, core::ptr::null(), 4), -1);
        assert_eq!(errno(), Some(libc::EFAULT));
        assert_eq!((interface.listen)(data, 9_999, 1), -1);
        assert_eq!(errno(), Some(libc::EBADF));
        // As Linux, which looks at the descriptor, then at the connection, and at the buffer last.
        for (of, error) in [(9_999, libc::EBADF), (fd, libc::EPIPE)] {
            assert_eq!((interface.write)(data, of, core::ptr::null(), 5), -1);
            assert_eq!(errno(), Some(error));
            assert_eq!((interface.sendmsg)(data, of, core::ptr::null(), 0), -1);
            assert_eq!(errno(), Some(if of == fd { libc::EFAULT } else { error }));
        }
        let (none, nothing) = (core::ptr::null_mut::<c_void>(), core::ptr::null::<c_void>());
        assert_eq!((interface.bind)(data, 9_999, nothing.cast(), ADDRESS_LEN), -1);
        assert_eq!(errno(), Some(libc::EBADF));
        assert_eq!((interface.connect)(data, 9_999, nothing.cast(), ADDRESS_LEN), -1);
        assert_eq!(errno(), Some(libc::EBADF));
        assert_eq!((interface.setsockopt)(data, 9_999, 1, 2, nothing, 4), -1);
        assert_eq!(errno(), Some(libc::EBADF));
        assert_eq!((interface.getsockopt)(data, 9_999, 1, 2, none, none.cast()), -1);
        assert_eq!(errno(), Some(libc::EBADF));
        assert_eq!((interface.ioctl)(data, 9_999, libc::FIONBIO, none.cast()), -1);
        assert_eq!(errno(), Some(libc::EBADF));
        assert_eq!((interface.readv)(data, 9_999, nothing.cast(), 1), -1);
        assert_eq!(errno(), Some(libc::EBADF));
        assert_eq!((interface.recvmsg)(data, 9_999, none.cast(), 0), -1);
        assert_eq!(errno(), Some(libc::EBADF));
        let datagrams = (interface.socket)(data, libc::AF_INET, libc::SOCK_DGRAM, 0);
        assert_eq!((interface.write)(data, datagrams, core::ptr::null(), 5), -1);
        assert_eq!(errno(), Some(libc::EFAULT));
        // More buffers than the system takes.
        let mut message: libc::msghdr = core::mem::zeroed();
        message.msg_iovlen = 1_025;
        assert_eq!((interface.sendmsg)(data, fd, &raw const message, 0), -1);
        assert_eq!(errno(), Some(libc::EMSGSIZE));
        assert_eq!((interface.recvmsg)(data, fd, &raw mut message, 0), -1);
        assert_eq!(errno(), Some(libc::EMSGSIZE));
        assert_eq!((interface.writev)(data, fd, core::ptr::null(), 1_025), -1);
        assert_eq!(errno(), Some(libc::EINVAL));
        (interface.free)(data);
    }
}

/// Whether a thread waits for something.
fn sleeps(tid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
}

#[test]
fn a_call_that_blocks_returns_when_time_has_passed() {
    struct Shared(Interface);
    // SAFETY: packetdrill calls the functions of one structure from two threads.
    unsafe impl Sync for Shared {}
    let shared = Shared(load(""));
    let shared = &shared;
    let data = shared.0.userdata as usize;
    let local = address(8080);
    // SAFETY: what C code would do, with pointers to what lives as long as the calls.
    let listener = unsafe {
        let data = data as *mut c_void;
        let fd = (shared.0.socket)(data, libc::AF_INET, libc::SOCK_STREAM, 0);
        (shared.0.bind)(data, fd, (&raw const local).cast(), ADDRESS_LEN);
        (shared.0.listen)(data, fd, 1);
        fd
    };
    let caller = &AtomicI32::new(0);
    let is_through = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let poll = scope.spawn(move || {
            let mut file = libc::pollfd { fd: listener, events: libc::POLLIN, revents: 0 };
            let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
            let data = data as *mut c_void;
            // SAFETY: as above.
            unsafe {
                caller.store(libc::gettid(), Ordering::SeqCst);
                let count = (shared.0.poll)(data, &raw mut file, 1, 300);
                (shared.0.gettimeofday)(data, &raw mut time, core::ptr::null_mut());
                // It has something to do with what it got, and does not sleep over it.
                let looked = std::time::Instant::now();
                while looked.elapsed() < std::time::Duration::from_millis(50) {
                    core::hint::spin_loop();
                }
                is_through.store(true, Ordering::SeqCst);
                (count, time.tv_sec * 1_000_000 + time.tv_usec)
            }
        });
        // The other thread sleeps in its call; then a second of virtual time.
        while !sleeps(caller.load(Ordering::SeqCst)) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let mut before = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: as above.
        unsafe {
            let data = data as *mut c_void;
            (shared.0.gettimeofday)(data, &raw mut before, core::ptr::null_mut());
            (shared.0.usleep)(data, 1_000_000);
        }
        assert!(is_through.load(Ordering::SeqCst), "time went on without it");
        let (count, at_us) = poll.join().expect("no panic");
        let took_us = at_us - (before.tv_sec * 1_000_000 + before.tv_usec);
        // It returned in the midst of the second that the main thread slept.
        assert_eq!(count, 0);
        assert!((290_000..300_010).contains(&took_us), "{took_us}");
    });
    // SAFETY: made by the library, freed once.
    unsafe { (shared.0.free)(data as *mut c_void) };
}

// packetdrill's main thread holds a lock while it waits for a packet, and lends it while it sleeps: there the other one takes
// what its call has brought.
#[test]
fn a_call_that_returned_is_over_before_time_goes_on() {
    struct Shared(Interface);
    // SAFETY: packetdrill calls the functions of one structure from two threads.
    unsafe impl Sync for Shared {}
    let shared = Shared(load(""));
    let shared = &shared;
    let data = shared.0.userdata as usize;
    let caller = &AtomicI32::new(0);
    let is_through = &std::sync::Mutex::new(false);
    std::thread::scope(|scope| {
        let lent = is_through.lock().expect("nobody panics");
        scope.spawn(move || {
            let mut file = libc::pollfd { fd: -1, events: 0, revents: 0 };
            let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
            let data = data as *mut c_void;
            // SAFETY: what C code would do, with pointers to what lives as long as the calls.
            unsafe {
                caller.store(libc::gettid(), Ordering::SeqCst);
                (shared.0.poll)(data, &raw mut file, 1, 300);
                (shared.0.gettimeofday)(data, &raw mut time, core::ptr::null_mut());
            }
            *is_through.lock().expect("nobody panics") = true;
        });
        while !sleeps(caller.load(Ordering::SeqCst)) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let (mut packet, mut len, mut at) = ([0_u8; 100], 100_usize, 0);
        // SAFETY: as above.
        unsafe {
            let data = data as *mut c_void;
            (shared.0.netdev_receive)(data, packet.as_mut_ptr().cast(), &raw mut len, &raw mut at);
            drop(lent);
            (shared.0.usleep)(data, 1_000);
        }
        assert!(*is_through.lock().expect("nobody panics"));
    });
    // SAFETY: made by the library, freed once.
    unsafe { (shared.0.free)(data as *mut c_void) };
}

// It waits for the start of its next call by sleeping in the library, which is no reason to wait for it.
#[test]
fn a_thread_that_goes_on_does_not_wait_for_itself() {
    struct Shared(Interface);
    // SAFETY: packetdrill calls the functions of one structure from two threads.
    unsafe impl Sync for Shared {}
    let shared = Shared(load(""));
    let shared = &shared;
    let data = shared.0.userdata as usize;
    let caller = &AtomicI32::new(0);
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let mut file = libc::pollfd { fd: -1, events: 0, revents: 0 };
            let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
            let data = data as *mut c_void;
            // SAFETY: what C code would do, with pointers to what lives as long as the calls.
            unsafe {
                caller.store(libc::gettid(), Ordering::SeqCst);
                (shared.0.poll)(data, &raw mut file, 1, 300);
                (shared.0.gettimeofday)(data, &raw mut time, core::ptr::null_mut());
                (shared.0.usleep)(data, 1_000);
            }
        });
        while !sleeps(caller.load(Ordering::SeqCst)) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let started = std::time::Instant::now();
        let (mut packet, mut len, mut at) = ([0_u8; 100], 100_usize, 0);
        // SAFETY: as above.
        unsafe {
            let data = data as *mut c_void;
            (shared.0.netdev_receive)(data, packet.as_mut_ptr().cast(), &raw mut len, &raw mut at);
        }
        thread.join().expect("no panic");
        // Patience with a thread that seems to be kept from running is 30 s.
        assert!(started.elapsed() < std::time::Duration::from_secs(20));
    });
    // SAFETY: made by the library, freed once.
    unsafe { (shared.0.free)(data as *mut c_void) };
}

// packetdrill's second thread waits for the start of its call by looking at the clock, while the first
// waits for it: with looks that take no time both would wait for ever.
#[test]
fn looks_of_any_thread_let_time_pass() {
    struct Shared(Interface);
    // SAFETY: packetdrill calls the functions of one structure from two threads.
    unsafe impl Sync for Shared {}
    let shared = Shared(load(""));
    let shared = &shared;
    let now_us = || {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let none = core::ptr::null_mut();
        // SAFETY: the structure lives as long as the threads.
        unsafe { (shared.0.gettimeofday)(shared.0.userdata, &raw mut time, none) };
        time.tv_sec * 1_000_000 + time.tv_usec
    };
    let start = now_us() + 50;
    let reached = std::thread::scope(|scope| {
        scope.spawn(|| (0..1_000).any(|_| now_us() >= start)).join().expect("no panic")
    });
    assert!(reached, "a thousand looks took less than 50 us");
    // SAFETY: made by the library, freed once.
    unsafe { (shared.0.free)(shared.0.userdata) };
}

// packetdrill opens files with open(2), for which the structure has nothing, and closes them through it; and it
// calls sendfile(2) itself.
#[test]
fn files_of_the_system_are_closed_and_not_written_to_sockets() {
    let interface = load("");
    let data = interface.userdata;
    let errno = || std::io::Error::last_os_error().raw_os_error();
    // SAFETY: the descriptors are this test's own, and the pointers to what lives as long as the calls.
    unsafe {
        let fd = (interface.socket)(data, libc::AF_INET, libc::SOCK_STREAM, 0);
        let file = libc::open(c"/proc/self/status".as_ptr(), libc::O_RDONLY);
        assert!(file >= 0);
        assert_eq!(libc::sendfile(fd, file, core::ptr::null_mut(), 10), -1);
        assert_eq!(errno(), Some(libc::EBADF));
        // A number far from those that other tests are given meanwhile.
        let moved = libc::fcntl(file, libc::F_DUPFD, 700);
        libc::close(file);
        assert_eq!((interface.close)(data, moved), 0);
        assert_eq!(libc::fcntl(moved, libc::F_GETFD), -1);
        assert_eq!((interface.close)(data, moved), -1);
        assert_eq!(errno(), Some(libc::EBADF));
        (interface.free)(data);
    }
}

#[test]
fn lengths_below_zero_are_refused() {
    let interface = load("");
    let data = interface.userdata;
    let errno = || std::io::Error::last_os_error().raw_os_error();
    let mut bytes = [0_u8; 8];
    // SAFETY: the pointers are to what lives as long as the calls.
    unsafe {
        let fd = (interface.socket)(data, libc::AF_INET, libc::SOCK_STREAM, 0);
        let mut len = u32::MAX;
        let value = bytes.as_mut_ptr().cast::<c_void>();
        let level = libc::SOL_SOCKET;
        assert_eq!((interface.getsockopt)(data, fd, level, libc::SO_TYPE, value, &raw mut len), -1);
        assert_eq!(errno(), Some(libc::EINVAL));
        let part = |iov_len: usize| libc::iovec { iov_base: value, iov_len };
        let parts = [part(4), part(usize::MAX)];
        assert_eq!((interface.writev)(data, fd, parts.as_ptr(), 2), -1);
        assert_eq!(errno(), Some(libc::EINVAL));
        assert_eq!((interface.readv)(data, fd, parts.as_ptr(), 2), -1);
        assert_eq!(errno(), Some(libc::EINVAL));
        // Nothing to write is none either, where a vector says so, and takes nothing where write(2) says it.
        assert_eq!((interface.writev)(data, fd, parts.as_ptr(), 0), 0);
        assert_eq!((interface.write)(data, fd, value, 0), -1);
        assert_eq!(errno(), Some(libc::EPIPE));
        // Nothing to read is no call on the socket, which has no connection.
        assert_eq!((interface.read)(data, fd, value, 0), 0);
        assert_eq!((interface.recv)(data, fd, value, 0, 0), -1);
        assert_eq!(errno(), Some(libc::ENOTCONN));
        (interface.free)(data);
    }
}

// packetdrill waits for a call that blocks for a second of real time, in which the library must see that it waits,
// and then let happen all that the call needs: here a hundred SYNs.
#[test]
fn a_call_that_is_waited_for_returns_after_all_that_happens_by_itself() {
    struct Shared(Interface);
    // SAFETY: packetdrill calls the functions of one structure from two threads.
    unsafe impl Sync for Shared {}
    let shared = Shared(load(""));
    let shared = &shared;
    let data = shared.0.userdata as usize;
    let remote = address(8080);
    let count = 100;
    let local = libc::sockaddr_in { sin_addr: libc::in_addr { s_addr: 0x0a0a_0a0a }, ..remote };
    // SAFETY: what C code would do, with pointers to what lives as long as the calls.
    let fd = unsafe {
        let data = data as *mut c_void;
        let fd = (shared.0.socket)(data, libc::AF_INET, libc::SOCK_STREAM, 0);
        (shared.0.bind)(data, fd, (&raw const local).cast(), ADDRESS_LEN);
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_SYNCNT);
        assert_eq!((shared.0.setsockopt)(data, fd, level, name, (&raw const count).cast(), 4), 0);
        fd
    };
    let started = std::time::Instant::now();
    std::thread::scope(|scope| {
        let connect = scope.spawn(move || {
            // SAFETY: as above.
            let returned = unsafe {
                let data = data as *mut c_void;
                (shared.0.connect)(data, fd, (&raw const remote).cast(), ADDRESS_LEN)
            };
            (returned, std::io::Error::last_os_error().raw_os_error())
        });
        assert_eq!(connect.join().expect("no panic"), (-1, Some(libc::ETIMEDOUT)));
    });
    // With one event in the time in which the library sees that it is waited for, this takes 15 s.
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    // SAFETY: made by the library, freed once.
    unsafe { (shared.0.free)(data as *mut c_void) };
}

// packetdrill's main thread waits for a command in backquotes as well, and then not for the call that blocks meanwhile.
#[test]
fn a_call_beside_a_command_does_not_run_through_its_time() {
    struct Shared(Interface);
    // SAFETY: packetdrill calls the functions of one structure from two threads.
    unsafe impl Sync for Shared {}
    let shared = Shared(load(""));
    let shared = &shared;
    let data = shared.0.userdata as usize;
    let remote = address(8080);
    let count = 100;
    let local = libc::sockaddr_in { sin_addr: libc::in_addr { s_addr: 0x0a0a_0a0a }, ..remote };
    // SAFETY: what C code would do, with pointers to what lives as long as the calls.
    let fd = unsafe {
        let data = data as *mut c_void;
        let fd = (shared.0.socket)(data, libc::AF_INET, libc::SOCK_STREAM, 0);
        (shared.0.bind)(data, fd, (&raw const local).cast(), ADDRESS_LEN);
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_SYNCNT);
        assert_eq!((shared.0.setsockopt)(data, fd, level, name, (&raw const count).cast(), 4), 0);
        fd
    };
    let ended = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let connect = scope.spawn(move || {
            // SAFETY: as above.
            let returned = unsafe {
                let data = data as *mut c_void;
                (shared.0.connect)(data, fd, (&raw const remote).cast(), ADDRESS_LEN)
            };
            ended.store(true, Ordering::SeqCst);
            returned
        });
        let status = Command::new("sleep").arg("0.6").status().expect("a command");
        assert!(status.success());
        // A hundred SYNs go out before it is given up, and in 150 ms at most one.
        assert!(!ended.load(Ordering::SeqCst), "it ran through all its time");
        assert_eq!(connect.join().expect("no panic"), -1);
    });
    // SAFETY: made by the library, freed once.
    unsafe { (shared.0.free)(data as *mut c_void) };
}

/// Scripts that packetdrill itself can run with a shared library: those without code blocks and
/// without several connections, which only our runner has. Nobody is expected to have packetdrill, so
/// this is ignored, not a test that could not run:
/// `PACKETDRILL=... unshare -n cargo test -p multidata-packetdrill-ffi -- --ignored`, in a network namespace of its own
/// because scripts set sysctls.
#[test]
#[ignore = "PACKETDRILL must name a packetdrill binary"]
fn packetdrill_runs_our_scripts_through_the_library() {
    let packetdrill = std::env::var_os("PACKETDRILL").expect("PACKETDRILL names a binary");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    let mut failures = Vec::new();
    let (mut run, mut excused) = (0, 0);
    for directory in std::fs::read_dir(root).expect("scripts").flatten() {
        let Ok(files) = std::fs::read_dir(directory.path()) else { continue };
        for file in files.flatten().map(|file| file.path()) {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let ports =
                text.lines().any(|line| line.contains(" > 8080 ") || line.contains("8080 > "));
            let marked = text.contains("// packetdrill: no");
            let is_script = file.extension().is_some_and(|extension| extension == "pkt");
            if !is_script || marked || text.contains("%{") || ports {
                continue;
            }
            run += 1;
            let version = match text.contains("--ip_version") {
                true => "--verbose",
                false => "--ip_version=ipv4",
            };
            let output = Command::new(&packetdrill)
                .arg(version)
                .arg(format!("--so_filename={}", library().display()))
                .arg("--so_flags=linux_habits=0")
                .arg(&file)
                .output()
                .expect("packetdrill runs");
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            // Our runner's language is a little wider: it pads options and wraps sequence numbers.
            let is_ours =
                ["semantic error", "unknown symbol", "Expected [<element>]", "unable to find fd"]
                    .iter()
                    .any(|wider| errors.contains(wider));
            excused += usize::from(!output.status.success() && is_ours);
            if !output.status.success() && !is_ours {
                failures.push(format!("{}: {errors}", file.display()));
            }
        }
    }
    assert!(run - excused >= 225, "it could not read {excused} of {run}");
    assert!(failures.is_empty(), "{} of {run}:\n{}", failures.len(), failures.join("\n"));
}

// socket(7), SO_TIMESTAMP.
#[test]
fn a_message_tells_when_a_datagram_came() {
    let interface = load("");
    let data = interface.userdata;
    let mut packet =
        vec![0x45, 0, 0, 29, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 168, 44, 55];
    let sum = checksum(&packet, 0);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([5555_u16.to_be_bytes(), 8080_u16.to_be_bytes(), [0, 9], [0, 0]].concat());
    packet.push(b'x');
    // SAFETY: as above.
    unsafe {
        let fd = (interface.socket)(data, libc::AF_INET, libc::SOCK_DGRAM, 0);
        let local = address(8080);
        let at = (&raw const local).cast();
        assert_eq!((interface.bind)(data, fd, at, ADDRESS_LEN), 0);
        for (option, nanos) in [(libc::SO_TIMESTAMP, 1_000), (libc::SO_TIMESTAMPNS, 1)] {
            let on = (&raw const ON).cast();
            assert_eq!((interface.setsockopt)(data, fd, libc::SOL_SOCKET, option, on, 4), 0);
            let clock = || {
                let mut now: libc::timeval = core::mem::zeroed();
                (interface.gettimeofday)(data, &raw mut now, core::ptr::null_mut());
                now.tv_sec * 1_000_000_000 + now.tv_usec * 1_000
            };
            assert_eq!((interface.usleep)(data, 1_234_567), 0);
            let before = clock();
            assert_eq!((interface.netdev_send)(data, packet.as_ptr().cast(), packet.len()), 0);
            let after = clock();
            let (mut text, mut control) = ([0_u8; 8], [0_u64; 8]);
            let mut buffer = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: 8 };
            let mut message: libc::msghdr = core::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut buffer, 1);
            (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), 64);
            assert_eq!((interface.recvmsg)(data, fd, &raw mut message, 0), 1);
            assert_eq!(message.msg_controllen as usize, 32);
            let told = *libc::CMSG_FIRSTHDR(&raw const message);
            assert_eq!((told.cmsg_level, told.cmsg_type), (libc::SOL_SOCKET, option));
            let value = libc::CMSG_DATA(libc::CMSG_FIRSTHDR(&raw const message));
            let [seconds, parts] = value.cast::<[i64; 2]>().read_unaligned();
            let told = seconds * 1_000_000_000 + parts * nanos;
            assert!((before..=after).contains(&told), "{before} {told} {after}");
        }
        (interface.free)(data);
    }
}

// Linux's __sys_accept4(): what could not be told of is nobody's, and the peer hears of that.
#[test]
fn a_connection_that_accept_cannot_tell_of_is_closed() {
    let interface = load("");
    let data = interface.userdata;
    let mut packet = [0_u8; 2_048];
    let (mut len, mut time_us) = (packet.len(), 0);
    // SAFETY: as above, and the last pointer is written to only by the kernel, which looks whether it may.
    unsafe {
        let mut part = libc::iovec { iov_base: (&raw mut time_us).cast(), iov_len: 8 };
        if libc::process_vm_readv(libc::getpid(), &raw mut part, 1, &raw const part, 1, 0) != 8 {
            let name = "a_connection_that_accept_cannot_tell_of_is_closed";
            return cannot_run(name, "a process may not read its own memory by system call");
        }
        let (listener, _) = asked(&interface);
        let mut peer = address(0);
        let place = (&raw mut peer).cast();
        let nowhere = core::ptr::without_provenance_mut(8);
        assert_eq!((interface.accept)(data, listener, place, nowhere), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
        let buffer = packet.as_mut_ptr().cast();
        assert_eq!((interface.netdev_receive)(data, buffer, &raw mut len, &raw mut time_us), 0);
        assert_eq!(packet[33] & 0x05, 0x01, "a FIN");
        (interface.free)(data);
    }
}
