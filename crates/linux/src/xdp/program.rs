//! The program that the kernel runs for every frame of the interface, and its table of sockets.
//!
//! It is five instructions, assembled by hand, so that nothing has to be compiled or installed:
//!
//! ```text
//!   r2 = ctx->rx_queue_index
//!   r1 = the table of sockets (BPF_MAP_TYPE_XSKMAP)
//!   r3 = XDP_PASS
//!   return bpf_redirect_map(r1, r2, r3)
//! ```
//!
//! A frame goes to the socket that stands in the table at the number of its queue; where there is
//! none it goes to the kernel as ever. The program is attached by a link (bpf(2), BPF_LINK_CREATE,
//! Linux 5.9), which the kernel takes away with its last descriptor: when the device and its queues
//! are dropped, when the process panics, when it is killed.

#![allow(unsafe_code)]

use super::XdpAttach;
use crate::system_error::{kind_of, said};
use core::ffi::CStr;
use device::DeviceError;
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::io::{Errno, Result};

const BPF_MAP_CREATE: i32 = 0;
const BPF_MAP_UPDATE_ELEM: i32 = 2;
const BPF_PROG_LOAD: i32 = 5;
const BPF_LINK_CREATE: i32 = 28;

const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;

const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// None of the functions that the program calls is reserved to programs under the GPL.
const LICENSE: &CStr = c"MIT OR Apache-2.0";

/// The program, attached to one interface. It is detached with this value.
#[derive(Debug)]
pub(super) struct Program {
    sockets: OwnedFd,
    /// Held, not used: the kernel detaches the program with it.
    _link: OwnedFd,
    is_native: bool,
    takes_fragments: bool,
}

/// What a program was asked to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) interface_index: u32,
    pub(super) queues: u32,
    pub(super) attach: XdpAttach,
    /// Frames longer than a page, in fragments.
    pub(super) fragments: bool,
}

impl Program {
    /// Loads the program and attaches it. What was wished for and could not be had goes to `refused`.
    pub(super) fn attach(
        wanted: Wanted,
        name: &str,
        refused: &mut Vec<String>,
    ) -> core::result::Result<Self, DeviceError> {
        let sockets =
            create_map(wanted.queues).map_err(|errno| bpf_error(name, "make a table", errno))?;
        let mut takes_fragments = wanted.fragments;
        let program = match load(&sockets, takes_fragments) {
            // A kernel before 5.18 does not know the flag.
            Err(Errno::INVAL) if takes_fragments => {
                refused.push(format!("frames in fragments ({})", said(Errno::INVAL)));
                takes_fragments = false;
                load(&sockets, false)
            }
            loaded => loaded,
        };
        let program = program.map_err(|errno| bpf_error(name, "load a program", errno))?;
        let native = (XDP_FLAGS_DRV_MODE, true);
        let generic = (XDP_FLAGS_SKB_MODE, false);
        let ways: &[(u32, bool)] = match wanted.attach {
            XdpAttach::Auto => &[native, generic],
            XdpAttach::Native => &[native],
            XdpAttach::Generic => &[generic],
        };
        let mut last = Errno::OPNOTSUPP;
        for (flags, is_native) in ways {
            match create_link(&program, wanted.interface_index, *flags) {
                Ok(link) => {
                    return Ok(Self {
                        sockets,
                        _link: link,
                        is_native: *is_native,
                        takes_fragments,
                    });
                }
                Err(errno @ (Errno::OPNOTSUPP | Errno::INVAL | Errno::RANGE)) if ways.len() > 1 => {
                    if *is_native {
                        refused.push(format!("native XDP ({})", said(errno)));
                    }
                    last = errno;
                }
                Err(errno) => {
                    last = errno;
                    break;
                }
            }
        }
        Err(attach_error(name, wanted.attach, last))
    }

    /// Whether the driver itself runs the program, before the kernel has made a packet of the frame.
    pub(super) fn is_native(&self) -> bool {
        self.is_native
    }

    /// Whether it takes frames in fragments.
    pub(super) fn takes_fragments(&self) -> bool {
        self.takes_fragments
    }

    /// From now on the frames of this queue go to the socket.
    pub(super) fn direct(&self, queue: u32, socket: impl AsFd) -> Result<()> {
        let key = queue;
        let value = socket.as_fd().as_raw_fd();
        let attributes = UpdateElement {
            map: self.sockets.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const key).expose_provenance() as u64,
            value: (&raw const value).expose_provenance() as u64,
            flags: 0,
        };
        bpf(BPF_MAP_UPDATE_ELEM, &attributes).map(drop)
    }
}

/// The parts of `union bpf_attr` (linux/bpf.h) that we use; the kernel takes what is left out as
/// zero.
#[repr(C)]
struct CreateMap {
    kind: u32,
    key_len: u32,
    value_len: u32,
    entries_max: u32,
}

#[repr(C)]
struct UpdateElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct LoadProgram {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface_index: u32,
    attach_type: u32,
}

#[repr(C)]
struct CreateLink {
    program: u32,
    interface_index: u32,
    attach_type: u32,
    flags: u32,
}

/// Attributes of bpf(2).
///
/// # Safety
/// The type must be the beginning of the attributes of the commands it is used with, without
/// padding, and addresses in it must be those of memory that the command may use so.
unsafe trait Attributes {}
// SAFETY: four words, no addresses.
unsafe impl Attributes for CreateMap {}
// SAFETY: the addresses are set in `Program::direct` alone: a key and a value of four bytes each,
// as the table was made for, that outlive the call.
unsafe impl Attributes for UpdateElement {}
// SAFETY: the addresses are set in `load` alone: as many instructions as it says and a string that
// ends with zero, which outlive the call, and no log.
unsafe impl Attributes for LoadProgram {}
// SAFETY: four words, no addresses.
unsafe impl Attributes for CreateLink {}

/// bpf(2).
fn bpf<A: Attributes>(command: i32, attributes: &A) -> Result<i32> {
    // SAFETY: the kernel reads as many bytes as the type has, and what the addresses in them name.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, &raw const *attributes, size_of::<A>() as u32)
    };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

/// bpf(2) with a command that makes a descriptor.
fn bpf_open<A: Attributes>(command: i32, attributes: &A) -> Result<OwnedFd> {
    let descriptor = bpf(command, attributes)?;
    // SAFETY: these commands return a fresh descriptor (always closed on exec), which nobody else
    // knows.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn create_map(queues: u32) -> Result<OwnedFd> {
    let attributes =
        CreateMap { kind: BPF_MAP_TYPE_XSKMAP, key_len: 4, value_len: 4, entries_max: queues };
    bpf_open(BPF_MAP_CREATE, &attributes)
}

fn load(sockets: &OwnedFd, fragments: bool) -> Result<OwnedFd> {
    let instructions = assemble(sockets.as_raw_fd());
    let attributes = LoadProgram {
        kind: BPF_PROG_TYPE_XDP,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr().expose_provenance() as u64,
        license: LICENSE.as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_len: 0,
        log: 0,
        kernel_version: 0,
        flags: if fragments { BPF_F_XDP_HAS_FRAGS } else { 0 },
        name: *b"multidata\0\0\0\0\0\0\0",
        interface_index: 0,
        attach_type: BPF_XDP,
    };
    bpf_open(BPF_PROG_LOAD, &attributes)
}

fn create_link(program: &OwnedFd, interface_index: u32, flags: u32) -> Result<OwnedFd> {
    let program = program.as_raw_fd() as u32;
    let attributes = CreateLink { program, interface_index, attach_type: BPF_XDP, flags };
    bpf_open(BPF_LINK_CREATE, &attributes)
}

/// `struct bpf_insn`: operation, registers, offset, immediate (RFC 9669, 3).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    operation: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    const fn new(operation: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Self {
        // Two fields of four bits, which the machine lays out as it does its bytes.
        let registers = if cfg!(target_endian = "big") { to << 4 | from } else { from << 4 | to };
        Self { operation, registers, offset, immediate }
    }
}

fn assemble(sockets: i32) -> [Instruction; 6] {
    const LOAD_WORD: u8 = 0x61;
    const LOAD_64_BITS: u8 = 0x18;
    const SET: u8 = 0xb7;
    const CALL: u8 = 0x85;
    const RETURN: u8 = 0x95;
    /// That the 64 bits are a table, named by its descriptor.
    const TABLE: u8 = 1;
    /// Where `struct xdp_md` has the number of the queue.
    const RX_QUEUE_INDEX: i16 = 16;
    const XDP_PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    [
        Instruction::new(LOAD_WORD, 2, 1, RX_QUEUE_INDEX, 0),
        Instruction::new(LOAD_64_BITS, 1, TABLE, 0, sockets),
        Instruction::new(0, 0, 0, 0, 0),
        Instruction::new(SET, 3, 0, 0, XDP_PASS),
        Instruction::new(CALL, 0, 0, 0, REDIRECT_MAP),
        Instruction::new(RETURN, 0, 0, 0, 0),
    ]
}

/// Why the kernel would not have our program, and what to do.
fn bpf_error(name: &str, what: &str, errno: Errno) -> DeviceError {
    let why = match errno {
        Errno::PERM | Errno::ACCESS => {
            "permission was denied: run as root of the machine (CAP_NET_ADMIN and CAP_BPF; root of \
             a user namespace is not enough)"
        }
        Errno::NOSYS | Errno::INVAL => {
            "the kernel has no AF_XDP: it takes Linux 5.9 with CONFIG_BPF_SYSCALL and \
             CONFIG_XDP_SOCKETS"
        }
        _ => "the system refused",
    };
    let message =
        format!("no AF_XDP on the interface {name}: could not {what}: {why}: {}", said(errno));
    DeviceError::new(kind_of(errno), message)
}

/// Why the program could not be attached, and what to do.
fn attach_error(name: &str, attach: XdpAttach, errno: Errno) -> DeviceError {
    let why = match (errno, attach) {
        (Errno::BUSY | Errno::EXIST, _) => {
            "another XDP program is attached: detach it (`ip link set dev NAME xdp off`) or choose \
             another interface"
        }
        (Errno::OPNOTSUPP, XdpAttach::Native) => {
            "the driver cannot run it: ask for the generic way"
        }
        (Errno::RANGE | Errno::INVAL, XdpAttach::Native) => {
            "the driver does not take it with this MTU: lower the MTU, allow several buffers for a \
             frame, or ask for the generic way"
        }
        (Errno::PERM | Errno::ACCESS, _) => "permission was denied: it needs CAP_NET_ADMIN",
        (Errno::NODEV, _) => "the interface is gone",
        _ => "the system refused",
    };
    let message = format!(
        "no AF_XDP on the interface {name}: the program could not be attached: {why}: {}",
        said(errno)
    );
    DeviceError::new(kind_of(errno), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let says = |error: DeviceError, what: &str| {
            assert!(error.message.contains(what), "{what:?} is not in: {error}");
        };
        says(bpf_error("eth7", "load a program", Errno::PERM), "CAP_BPF");
        says(bpf_error("eth7", "load a program", Errno::NOSYS), "CONFIG_XDP_SOCKETS");
        says(attach_error("eth7", XdpAttach::Auto, Errno::BUSY), "another XDP program");
        says(attach_error("eth7", XdpAttach::Native, Errno::OPNOTSUPP), "generic way");
        says(attach_error("eth7", XdpAttach::Native, Errno::RANGE), "lower the MTU");
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn the_program_is_what_an_assembler_makes_of_it() {
        let [queue, table, _, pass, call, end] = assemble(7);
        assert_eq!(
            queue,
            Instruction { operation: 0x61, registers: 0x12, offset: 16, immediate: 0 }
        );
        assert_eq!(
            table,
            Instruction { operation: 0x18, registers: 0x11, offset: 0, immediate: 7 }
        );
        assert_eq!(pass, Instruction { operation: 0xb7, registers: 0x03, offset: 0, immediate: 2 });
        assert_eq!((call.operation, call.immediate, end.operation), (0x85, 51, 0x95));
    }
}
