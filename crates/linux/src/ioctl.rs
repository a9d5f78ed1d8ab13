//! The ioctls of the TUN driver and of network interfaces, as safe functions.
//!
//! The kernel's structures are declared here, no header is needed: `struct ifreq` (net/if.h) is a
//! name of 16 bytes and a union, of which we use the first 8 bytes; it is never longer than
//! [`Request`].

#![allow(unsafe_code)]

use core::ffi::c_void;
use device::HardwareAddress;
use rustix::fd::{AsFd, FromRawFd, OwnedFd};
use rustix::io::{Errno, Result};
use rustix::ioctl::{Getter, IntegerSetter, Ioctl, IoctlOutput, Opcode, Setter, Updater, opcode};

/// Longest interface name in bytes (IFNAMSIZ less the final zero).
pub(crate) const NAME_LEN_MAX: usize = 15;

const TUNSETPERSIST: Opcode = opcode::write::<i32>(b'T', 203);
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
const TUNGETFEATURES: Opcode = opcode::read::<u32>(b'T', 207);
const TUNGETIFF: Opcode = opcode::read::<u32>(b'T', 210);
const TUNSETOFFLOAD: Opcode = opcode::write::<u32>(b'T', 208);
const TUNSETSNDBUF: Opcode = opcode::write::<i32>(b'T', 212);
const TUNGETVNETHDRSZ: Opcode = opcode::read::<i32>(b'T', 215);
const TUNSETVNETHDRSZ: Opcode = opcode::write::<i32>(b'T', 216);
const TUNGETDEVNETNS: Opcode = opcode::none(b'T', 227);

const SIOCGIFNAME: Opcode = 0x8910;
const SIOCGIFFLAGS: Opcode = 0x8913;
const SIOCSIFFLAGS: Opcode = 0x8914;
const SIOCGIFMTU: Opcode = 0x8921;
const SIOCSIFMTU: Opcode = 0x8922;
const SIOCSIFHWADDR: Opcode = 0x8924;
const SIOCGIFHWADDR: Opcode = 0x8927;
const SIOCGIFINDEX: Opcode = 0x8933;
const SIOCGIFTXQLEN: Opcode = 0x8942;
const SIOCETHTOOL: Opcode = 0x8946;

const ARPHRD_ETHER: i16 = 1;

/// `struct ifreq`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    name: [u8; NAME_LEN_MAX + 1],
    value: [u8; 24],
}

impl Request {
    /// A request about the interface `name`, which is cut where it is too long.
    pub(crate) fn new(name: &str) -> Self {
        let mut request = Self { name: [0; NAME_LEN_MAX + 1], value: [0; 24] };
        let len = name.len().min(NAME_LEN_MAX);
        request.name[..len].copy_from_slice(&name.as_bytes()[..len]);
        request
    }

    fn with_i16(mut self, value: i16) -> Self {
        self.value[..2].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn with_i32(mut self, value: i32) -> Self {
        self.value[..4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn name(&self) -> String {
        let len = self.name.iter().position(|byte| *byte == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..len]).into_owned()
    }

    fn i16(&self) -> i16 {
        i16::from_ne_bytes([self.value[0], self.value[1]])
    }

    fn i32(&self) -> i32 {
        let [a, b, c, d, ..] = self.value;
        i32::from_ne_bytes([a, b, c, d])
    }
}

/// Creates the interface, or attaches to it where it exists, and returns its name.
pub(crate) fn tun_attach(tun: impl AsFd, name: &str, flags: i16) -> Result<String> {
    let mut request = Request::new(name).with_i16(flags);
    update::<TUNSETIFF>(tun, &mut request)?;
    Ok(request.name())
}

/// The interface that is attached to: its name, in the namespace where it is, and its `IFF_*` flags.
pub(crate) fn tun_interface(tun: impl AsFd) -> Result<(String, i16)> {
    let request = query::<TUNGETIFF>(tun, "")?;
    Ok((request.name(), request.i16()))
}

/// The network namespace of the interface that is attached to. It takes CAP_NET_ADMIN there, and Linux 5.8.
pub(crate) fn tun_namespace(tun: impl AsFd) -> Result<OwnedFd> {
    // SAFETY: TUNGETDEVNETNS has no argument.
    unsafe { rustix::ioctl::ioctl(tun, Namespace) }
}

/// TUNGETDEVNETNS, whose answer is a file.
struct Namespace;

// SAFETY: TUNGETDEVNETNS reads and writes no memory, and what it returns where it does not fail is a file that
// it has opened for the caller.
unsafe impl Ioctl for Namespace {
    type Output = OwnedFd;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        TUNGETDEVNETNS
    }

    fn as_ptr(&mut self) -> *mut c_void {
        core::ptr::null_mut()
    }

    unsafe fn output_from_ptr(file: IoctlOutput, _: *mut c_void) -> Result<OwnedFd> {
        // SAFETY: see above.
        Ok(unsafe { OwnedFd::from_raw_fd(file) })
    }
}

/// The `IFF_*` flags that the driver knows.
pub(crate) fn tun_features(tun: impl AsFd) -> Result<u32> {
    // SAFETY: TUNGETFEATURES writes an unsigned int.
    unsafe { rustix::ioctl::ioctl(tun, Getter::<TUNGETFEATURES, u32>::new()) }
}

/// Says which offloads we accept in frames that come from the kernel.
pub(crate) fn tun_set_offload(tun: impl AsFd, offload: u32) -> Result<()> {
    // SAFETY: TUNSETOFFLOAD takes the flags themselves as its argument, not a pointer.
    unsafe {
        let call = IntegerSetter::<TUNSETOFFLOAD>::new_usize(offload as usize);
        rustix::ioctl::ioctl(tun, call)
    }
}

/// The length of the virtio-net header in front of every frame.
pub(crate) fn tun_header_len(tun: impl AsFd) -> Result<i32> {
    // SAFETY: TUNGETVNETHDRSZ writes an int.
    unsafe { rustix::ioctl::ioctl(tun, Getter::<TUNGETVNETHDRSZ, i32>::new()) }
}

/// Sets the length of the virtio-net header in front of every frame.
pub(crate) fn tun_set_header_len(tun: impl AsFd, len_bytes: i32) -> Result<()> {
    // SAFETY: TUNSETVNETHDRSZ reads an int.
    unsafe { rustix::ioctl::ioctl(tun, Setter::<TUNSETVNETHDRSZ, i32>::new(len_bytes)) }
}

/// Bounds the memory of frames that we wrote and the kernel has not yet looked at.
pub(crate) fn tun_set_send_buffer(tun: impl AsFd, len_bytes: i32) -> Result<()> {
    // SAFETY: TUNSETSNDBUF reads an int.
    unsafe { rustix::ioctl::ioctl(tun, Setter::<TUNSETSNDBUF, i32>::new(len_bytes)) }
}

/// Keeps the interface when the file is closed, or lets it go with it.
pub(crate) fn tun_set_persistent(tun: impl AsFd, on: bool) -> Result<()> {
    // SAFETY: TUNSETPERSIST takes its argument by value.
    unsafe { rustix::ioctl::ioctl(tun, IntegerSetter::<TUNSETPERSIST>::new_usize(usize::from(on))) }
}

/// The `IFF_*` flags of an interface.
pub(crate) fn flags(socket: impl AsFd, name: &str) -> Result<i16> {
    query::<SIOCGIFFLAGS>(socket, name).map(|answer| answer.i16())
}

pub(crate) fn set_flags(socket: impl AsFd, name: &str, flags: i16) -> Result<()> {
    update::<SIOCSIFFLAGS>(socket, &mut Request::new(name).with_i16(flags))
}

pub(crate) fn mtu(socket: impl AsFd, name: &str) -> Result<usize> {
    let answer = query::<SIOCGIFMTU>(socket, name)?;
    usize::try_from(answer.i32()).map_err(|_| Errno::RANGE)
}

pub(crate) fn set_mtu(socket: impl AsFd, name: &str, mtu: usize) -> Result<()> {
    let mtu = i32::try_from(mtu).map_err(|_| Errno::RANGE)?;
    update::<SIOCSIFMTU>(socket, &mut Request::new(name).with_i32(mtu))
}

/// How many packets the transmit queue of an interface holds.
pub(crate) fn queue_len(socket: impl AsFd, name: &str) -> Result<usize> {
    let answer = query::<SIOCGIFTXQLEN>(socket, name)?;
    usize::try_from(answer.i32()).map_err(|_| Errno::RANGE)
}

pub(crate) fn index(socket: impl AsFd, name: &str) -> Result<u32> {
    let answer = query::<SIOCGIFINDEX>(socket, name)?;
    u32::try_from(answer.i32()).map_err(|_| Errno::RANGE)
}

/// The name that interface `index` has now.
pub(crate) fn name(socket: impl AsFd, index: u32) -> Result<String> {
    let mut request = Request::new("").with_i32(index.try_into().map_err(|_| Errno::NODEV)?);
    update::<SIOCGIFNAME>(socket, &mut request)?;
    Ok(request.name())
}

/// The hardware address of the kernel's side; zero where the medium has none. A TUN file answers for the
/// interface that it is attached to, whatever the name.
pub(crate) fn hardware_address(socket: impl AsFd, name: &str) -> Result<HardwareAddress> {
    // The union holds a `struct sockaddr`: the family, then the address.
    let [_, _, a, b, c, d, e, f, ..] = query::<SIOCGIFHWADDR>(socket, name)?.value;
    Ok(HardwareAddress([a, b, c, d, e, f]))
}

pub(crate) fn set_hardware_address(
    socket: impl AsFd,
    name: &str,
    address: HardwareAddress,
) -> Result<()> {
    let mut request = Request::new(name).with_i16(ARPHRD_ETHER);
    request.value[2..8].copy_from_slice(&address.0);
    update::<SIOCSIFHWADDR>(socket, &mut request)
}

/// Whether the medium is Ethernet.
pub(crate) fn is_ethernet(socket: impl AsFd, name: &str) -> Result<bool> {
    Ok(query::<SIOCGIFHWADDR>(socket, name)?.i16() == ARPHRD_ETHER)
}

/// Asks for features of an interface, or switches them, by one of the commands (linux/ethtool.h) that take a
/// `struct ethtool_value`, and returns its word.
pub(crate) fn ethtool(socket: impl AsFd, name: &str, command: u32, data: u32) -> Result<u32> {
    /// `struct ethtool_value`.
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let mut value = Value { command, data };
    let mut request = Request::new(name);
    let address = (&raw mut value).expose_provenance();
    request.value[..size_of::<usize>()].copy_from_slice(&address.to_ne_bytes());
    // The union holds the address of `value`, which lives until the call returns; of the commands
    // in question the kernel reads and writes two words there.
    update::<SIOCETHTOOL>(socket, &mut request)?;
    Ok(value.data)
}

fn query<const OPCODE: Opcode>(socket: impl AsFd, name: &str) -> Result<Request> {
    let mut request = Request::new(name);
    update::<OPCODE>(socket, &mut request)?;
    Ok(request)
}

/// Hands a request to the kernel, which may write its answer into it. Only for the opcodes above
/// that take a `struct ifreq`.
fn update<const OPCODE: Opcode>(file: impl AsFd, request: &mut Request) -> Result<()> {
    // SAFETY: every opcode used with this function reads and writes a `struct ifreq`, which is
    // not longer than a Request; all bytes of a Request are initialised and any value is valid.
    // The one opcode that follows an address in the request, SIOCETHTOOL, is used by `ethtool`
    // alone, with the address of a value of its own.
    unsafe { rustix::ioctl::ioctl(file, Updater::<OPCODE, Request>::new(request)) }
}
