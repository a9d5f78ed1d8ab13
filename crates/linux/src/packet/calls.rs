//! The system calls of packet sockets (packet(7)) that no safe crate offers, as safe functions.

#![allow(unsafe_code)]

use core::ffi::{c_int, c_uint};
use core::mem::{size_of, zeroed};
use device::HardwareAddress;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io::{IoSlice, IoSliceMut};
use steering::Instruction;

/// An option of the level SOL_PACKET that is a number (`linux/if_packet.h`).
#[derive(Clone, Copy, Debug)]
pub(super) enum PacketOption {
    /// A virtio-net header stands in front of every frame, both ways.
    VnetHeader = 15,
    /// Frames pass by the interface's queueing discipline.
    BypassQueue = 20,
    /// Frames that this host sends are not received.
    IgnoreOutgoing = 23,
}

/// What an interface is told to receive beyond its own address.
#[derive(Clone, Copy, Debug)]
pub(super) enum Membership {
    /// Frames to this address, too.
    Unicast(HardwareAddress),
    /// Frames to every multicast address.
    AllMulticast,
    /// Every frame.
    Promiscuous,
}

/// A packet socket that is bound to nothing and receives nothing yet. It does not block.
pub(super) fn open() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Protocol zero: nothing is received before `bind`, so filters can be set first.
    socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
}

/// Binds to interface `index`, for all protocols.
pub(super) fn bind(socket: &OwnedFd, index: u32) -> Result<()> {
    // SAFETY: an address of zeros is valid.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as c_int;
    let len = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the kernel reads `len` bytes of the address.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })
}

/// Whether the socket is bound to interface `index`. The kernel takes a deleted one, and one that was moved to
/// another namespace, from all of its sockets.
pub(super) fn is_bound(socket: &OwnedFd, index: u32) -> bool {
    // SAFETY: an address of zeros is valid.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the kernel writes at most `len` bytes to the address, and `len` itself.
    let asked = check(unsafe {
        libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut len)
    });
    asked.is_ok() && u32::try_from(address.sll_ifindex) == Ok(index)
}

/// Switches an option on.
pub(super) fn enable(socket: &OwnedFd, option: PacketOption) -> Result<()> {
    let on: c_int = 1;
    set(socket, libc::SOL_PACKET, option as c_int, &on)
}

/// Bounds the memory of frames on their way out, beyond the system's own bound where the process
/// may (CAP_NET_ADMIN).
pub(super) fn set_send_buffer(socket: &OwnedFd, len_bytes: usize) -> Result<()> {
    set_buffer(socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, len_bytes)
}

/// Bounds the memory of frames that wait to be received; as [`set_send_buffer`].
pub(super) fn set_receive_buffer(socket: &OwnedFd, len_bytes: usize) -> Result<()> {
    set_buffer(socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, len_bytes)
}

fn set_buffer(socket: &OwnedFd, forced: c_int, usual: c_int, len_bytes: usize) -> Result<()> {
    // The kernel doubles it, for its own overhead.
    let len = c_int::try_from(len_bytes / 2).unwrap_or(c_int::MAX / 2);
    match set(socket, libc::SOL_SOCKET, forced, &len) {
        Err(Errno::PERM) => set(socket, libc::SOL_SOCKET, usual, &len),
        outcome => outcome,
    }
}

/// Tells interface `index` to receive more, as long as the socket lives and is bound.
pub(super) fn join(socket: &OwnedFd, index: u32, membership: Membership) -> Result<()> {
    const PACKET_MR_PROMISC: u16 = 1;
    const PACKET_MR_ALLMULTI: u16 = 2;
    const PACKET_MR_UNICAST: u16 = 3;
    const PACKET_ADD_MEMBERSHIP: c_int = 1;
    let (kind, octets) = match membership {
        Membership::Unicast(address) => (PACKET_MR_UNICAST, Some(address.0)),
        Membership::AllMulticast => (PACKET_MR_ALLMULTI, None),
        Membership::Promiscuous => (PACKET_MR_PROMISC, None),
    };
    let mut request = MembershipRequest { index: index as c_int, kind, len: 0, address: [0; 8] };
    if let Some(octets) = octets {
        request.len = octets.len() as u16;
        request.address[..octets.len()].copy_from_slice(&octets);
    }
    set(socket, libc::SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request)
}

/// `struct packet_mreq`.
#[repr(C)]
struct MembershipRequest {
    index: c_int,
    kind: u16,
    len: u16,
    address: [u8; 8],
}

/// Lets the socket receive only what is for `address` or for many, and nothing that bears a VLAN
/// tag: the tag itself does not come up, so such a frame would seem to be of the untagged network.
pub(super) fn attach_filter(socket: &OwnedFd, address: HardwareAddress) -> Result<()> {
    set_filter(socket, &mut filter(address))
}

/// Lets the socket receive nothing.
pub(super) fn attach_closed_filter(socket: &OwnedFd) -> Result<()> {
    set_filter(socket, &mut [libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 }])
}

/// Another filter takes the place of one that is attached.
fn set_filter(socket: &OwnedFd, program: &mut [libc::sock_filter]) -> Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// The code of a classic BPF instruction that ends a program, with how much of the frame is taken.
const RETURN: u16 = 0x06;

/// The filter in classic BPF (`linux/filter.h`).
fn filter(address: HardwareAddress) -> [libc::sock_filter; 10] {
    const LOAD_WORD: u16 = 0x20;
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_EQUAL: u16 = 0x15;
    const JUMP_SET: u16 = 0x45;
    const WHOLE: u32 = u32::MAX;
    let [a, b, c, d, e, f] = address.0;
    let tag_present = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG_PRESENT) as u32;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // Jumps count from the next step; step 8 drops, step 9 takes.
    [
        step(LOAD_WORD, 0, 0, tag_present),
        step(JUMP_EQUAL, 0, 6, 0),
        step(LOAD_BYTE, 0, 0, 0),
        step(JUMP_SET, 5, 0, 1),
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_EQUAL, 0, 2, u32::from_be_bytes([a, b, c, d])),
        step(LOAD_HALF, 0, 0, 4),
        step(JUMP_EQUAL, 1, 0, u32::from(u16::from_be_bytes([e, f]))),
        step(RETURN, 0, 0, 0),
        step(RETURN, 0, 0, WHOLE),
    ]
}

/// Has the socket receive into a ring of `count` blocks (TPACKET_V3), which it then shares at offset 0. A
/// block with something in it is handed over after `retire_ms` at the latest.
pub(super) fn set_receive_ring(
    socket: &OwnedFd,
    block_len: u32,
    count: u32,
    retire_ms: u32,
) -> Result<()> {
    const PACKET_RX_RING: c_int = 5;
    const PACKET_VERSION: c_int = 10;
    const TPACKET_V3: c_int = 2;
    /// Blocks hold frames of any length; the kernel asks for one all the same.
    const FRAME_LEN: u32 = 2_048;
    set(socket, libc::SOL_PACKET, PACKET_VERSION, &TPACKET_V3)?;
    // struct tpacket_req3: blocks, frames, time, and no private room and no features.
    let frames = (block_len / FRAME_LEN).saturating_mul(count);
    let request: [c_uint; 7] = [block_len, count, FRAME_LEN, frames, retire_ms, 0, 0];
    set(socket, libc::SOL_PACKET, PACKET_RX_RING, &request)
}

/// The error that waits at the socket, which is none afterwards.
pub(super) fn take_error(socket: &OwnedFd) -> Result<()> {
    rustix::net::sockopt::socket_error(socket)?
}

/// How frames are divided among the sockets of a fan-out: as a program says (PACKET_FANOUT_CBPF).
const FAN_OUT_BY_PROGRAM: c_int = 6;
/// The kernel chooses a number for the fan-out that no other has.
const FAN_OUT_UNIQUE: c_int = 0x2000;
/// As [`PacketOption::IgnoreOutgoing`], which a fan-out does not take from its sockets.
const FAN_OUT_IGNORE_OUTGOING: c_int = 0x4000;

/// Joins a bound socket to the fan-out of this number, or begins one, and says its number. Each frame is
/// for one of its sockets, which count from 0 in the order in which they joined.
pub(super) fn join_fan_out(socket: &OwnedFd, number: Option<u16>) -> Result<u16> {
    const PACKET_FANOUT: c_int = 18;
    let kind = FAN_OUT_BY_PROGRAM | FAN_OUT_IGNORE_OUTGOING;
    let wanted = match number {
        Some(number) => c_int::from(number) | kind << 16,
        None => (kind | FAN_OUT_UNIQUE) << 16,
    };
    set(socket, libc::SOL_PACKET, PACKET_FANOUT, &wanted)?;
    let mut joined: c_int = 0;
    let mut len = size_of::<c_int>() as u32;
    // SAFETY: the kernel writes at most `len` bytes to the number, and `len` itself.
    check(unsafe {
        let value = (&raw mut joined).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, PACKET_FANOUT, value, &raw mut len)
    })?;
    Ok(joined as u16)
}

/// Says by which program the socket's fan-out divides frames; without one all are for the first socket.
pub(super) fn set_fan_out_program(socket: &OwnedFd, program: &[Instruction]) -> Result<()> {
    const PACKET_FANOUT_DATA: c_int = 22;
    let mut program: Vec<libc::sock_filter> = program
        .iter()
        .map(|step| libc::sock_filter {
            code: step.code,
            jt: step.jump_true,
            jf: step.jump_false,
            k: step.value,
        })
        .collect();
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    set(socket, libc::SOL_PACKET, PACKET_FANOUT_DATA, &program)
}

/// How many frames the kernel dropped for want of room since the last call.
pub(super) fn take_drops(socket: &OwnedFd) -> Result<u64> {
    const PACKET_STATISTICS: c_int = 6;
    // struct tpacket_stats: frames that came, frames that were dropped.
    let mut statistics: [c_uint; 2] = [0; 2];
    let mut len = size_of::<[c_uint; 2]>() as u32;
    // SAFETY: the kernel writes at most `len` bytes to the array, and `len` itself.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            PACKET_STATISTICS,
            statistics.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    Ok(statistics[1].into())
}

/// Sends one message for each range of `pieces`, in order, and returns how many were taken. The
/// error is that of the first.
pub(super) fn send_many(
    socket: &OwnedFd,
    pieces: &[IoSlice<'_>],
    ends: &[usize],
    first: usize,
) -> Result<usize> {
    let mut start = first.checked_sub(1).map_or(0, |before| ends[before]);
    let mut messages = Vec::with_capacity(ends.len() - first);
    for end in &ends[first..] {
        let of_message = &pieces[start..*end];
        // SAFETY: a message of zeros is an empty one.
        let mut message: libc::mmsghdr = unsafe { zeroed() };
        // An IoSlice has the layout of an iovec; the kernel only reads what it points to.
        message.msg_hdr.msg_iov = of_message.as_ptr().cast_mut().cast();
        message.msg_hdr.msg_iovlen = of_message.len() as _;
        messages.push(message);
        start = *end;
    }
    let count = messages.len() as c_uint;
    // SAFETY: `messages` holds `count` messages, each with pieces that outlive the call.
    let taken = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
    check(taken)?;
    Ok(taken as usize)
}

/// What one message brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Its length in bytes, virtio-net header included.
    pub(super) len: usize,
    /// It was longer than its room, and its end is lost.
    pub(super) is_cut: bool,
}

/// Receives into `rooms`, `pieces_each` of them for a message, and lists in `arrivals` what came.
pub(super) fn receive_many(
    socket: &OwnedFd,
    rooms: &mut [IoSliceMut<'_>],
    pieces_each: usize,
    arrivals: &mut Vec<Arrival>,
) -> Result<()> {
    arrivals.clear();
    let mut messages: Vec<libc::mmsghdr> = rooms
        .chunks_exact_mut(pieces_each)
        .map(|pieces| {
            // SAFETY: a message of zeros is an empty one.
            let mut message: libc::mmsghdr = unsafe { zeroed() };
            // An IoSliceMut has the layout of an iovec.
            message.msg_hdr.msg_iov = pieces.as_mut_ptr().cast();
            message.msg_hdr.msg_iovlen = pieces.len() as _;
            message
        })
        .collect();
    let (flags, no_timeout) = (libc::MSG_DONTWAIT, core::ptr::null_mut());
    let count = messages.len() as c_uint;
    // SAFETY: `messages` holds `count` messages, each with rooms that are ours alone and outlive
    // the call.
    let came = unsafe {
        let messages = messages.as_mut_ptr();
        libc::recvmmsg(socket.as_raw_fd(), messages, count, flags as _, no_timeout)
    };
    check(came)?;
    arrivals.extend(messages.iter().take(came as usize).map(|message| Arrival {
        len: message.msg_len as usize,
        is_cut: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
    }));
    Ok(())
}

/// setsockopt(2) with a value that is plain data without padding, or points to such.
fn set<T>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) -> Result<()> {
    let len = size_of::<T>() as u32;
    // SAFETY: the kernel reads `len` bytes of the value.
    check(unsafe {
        let value = core::ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, len)
    })
}

fn check(returned: c_int) -> Result<()> {
    if returned >= 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))
}
