//! TAP and TUN: network interfaces whose medium is a file.
//!
//! What the kernel sends over the interface we read, what we write it receives. With a virtio-net
//! header in front of each frame both sides may leave checksums to the other and hand over
//! super-frames of up to 64 KiB, which costs an eighth per byte of frames of 1,500. NAPI lets the
//! kernel coalesce our real frames itself (GRO); in a thread of its own that doubles what plain
//! frames reach, at the price of a second CPU.
//!
//! [`TapDevice::open`] asks for all of it and takes what it gets: [`TapDevice::negotiated`] says
//! what is on and what was refused. [`TapDevice::from_fd`] does with a file that somebody else opened, in
//! a namespace that may be out of our reach.

mod descriptor;
mod link;
mod queue;
mod receive;
mod write_ring;

pub use queue::TapQueue;

use crate::interface::Interface;
use crate::ioctl;
use crate::system_error::{SystemError, kind_of, said};
use crate::vnet::VNET_HEADER_LEN;
use crate::waiter::FileWaiter;
use device::{Capabilities, DeviceError, HardwareAddress, Medium, Segmentation};
use link::Link;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io::ErrorKind;
use std::sync::Arc;
use write_ring::WriteRing;

const TUN_FILE: &str = "/dev/net/tun";

const IFF_TUN: i16 = 0x0001;
const IFF_TAP: i16 = 0x0002;
const IFF_NAPI: i16 = 0x0010;
const IFF_MULTI_QUEUE: i16 = 0x0100;
const IFF_NO_PI: i16 = 0x1000;
const IFF_VNET_HDR: i16 = 0x4000;

const TUN_F_CSUM: u32 = 0x01;
const TUN_F_TSO4: u32 = 0x02;
const TUN_F_TSO6: u32 = 0x04;
/// Of runs of datagrams. The driver takes both or neither.
const TUN_F_USO4: u32 = 0x20;
const TUN_F_USO6: u32 = 0x40;

/// What the kernel holds for us at least before it drops. TUN interfaces come with 500.
const QUEUE_PACKETS_MIN: usize = 1_000;

/// The MTU of a new interface, taken for that of one which cannot be asked.
const MTU_BYTES: usize = 1_500;

/// Which kind of interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TapKind {
    /// Ethernet frames.
    #[default]
    Tap,
    /// Bare IP packets.
    Tun,
}

/// How the kernel takes in the frames that we write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Napi {
    /// At once, within our system call.
    #[default]
    Off,
    /// By its polling, so that it coalesces the segments of a flow.
    On,
    /// The same in a kernel thread, which may run on another CPU. What the kernel's TCP does with our segments is off our
    /// thread then: a third more to three times the throughput where the kernel is the other end, most for sending over very many
    /// connections (README.md, "Measured"); a lone question and its answer wait for two threads more. Only root may set
    /// it; a persistent interface keeps it, for others who attach to it with this.
    Threaded,
}

/// Whether frames are written many by one system call (io_uring), or each by its own.
///
/// A ring has two effects beyond its device, which is why it is asked for: the kernel takes it apart in
/// its own time after a process was killed, and until then the interface is in use; and what it
/// finishes for a thread may end that thread's own waits in system calls that have a timeout with
/// `EINTR`, as a signal would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IoUring {
    /// Each by its own, write(2).
    #[default]
    Off,
    /// Many by one call where the kernel lets us; where not, [`TapDevice::refused`] says why and
    /// `rings_lost` of the queue's counters is 1.
    Auto,
    /// Many by one call, or the device does not open.
    On,
}

/// How to open a TAP or TUN interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// The interface's name, 15 bytes at most; `None` lets the kernel choose one. An interface
    /// that does not exist is made and disappears with the device; a persistent one is attached to.
    pub name: Option<String>,
    /// Which kind of interface.
    pub kind: TapKind,
    /// Ask for checksum offload and super-frames in both directions.
    pub offload: bool,
    /// With `offload`: let the kernel hand up super-frames. The other direction has its own switch,
    /// [`device::TransmitMode`].
    pub receive_super_frames: bool,
    /// With super-frames: have the kernel leave the datagrams together that a sender leaves to its interface
    /// to cut (UDP_SEGMENT), which takes Linux 6.2. Then one read brings many, for less of the CPU where
    /// senders wait for answers, as QUIC does. Off by default: the kernel hands those of a sender that waits
    /// for nothing up so fast that a thread which reads them one by one takes in what it has no room for, and
    /// reads few. And those of IPv6 behind extension headers are lost, which the kernel would have cut.
    pub uncut_datagrams: bool,
    /// How the kernel takes in the frames that we write.
    pub napi: Napi,
    /// The longest IP packet in bytes; `None` keeps what the interface has (1,500 for a new one).
    pub mtu_bytes: Option<usize>,
    /// Our own address on a TAP interface, not the kernel's; `None` picks a random one.
    pub hardware_address: Option<HardwareAddress>,
    /// How many bytes of our frames the kernel queues before it says that it is full; bytes count
    /// with the kernel's overhead. Only NAPI queues at all, and of TCP never more than the peers'
    /// windows. `None`, the default, leaves it without bound: with any bound the driver allocates
    /// every frame the slow way (`tun_can_build_skb` asks for an unbounded queue), which costs a
    /// sender of full frames a fifth of its throughput. Set it where datagrams may flood.
    pub send_queue_bytes: Option<usize>,
    /// Whether frames are written many by one system call. It needs Linux 6.0.
    pub io_uring: IoUring,
    /// How many queues the interface has, at least 1. The kernel sends a flow by the queue that we last
    /// wrote a frame of it to, for as long as it keeps that in mind (some seconds), and else by one
    /// of its choice. A persistent interface takes more than one only where it was made for that
    /// (`ip tuntap add ... multi_queue`).
    pub queues: usize,
}

impl Default for TapConfig {
    fn default() -> Self {
        Self {
            name: None,
            kind: TapKind::Tap,
            offload: true,
            receive_super_frames: true,
            uncut_datagrams: false,
            napi: Napi::Off,
            mtu_bytes: None,
            hardware_address: None,
            send_queue_bytes: None,
            io_uring: IoUring::default(),
            queues: 1,
        }
    }
}

/// An open TAP or TUN interface.
#[derive(Debug)]
pub struct TapDevice {
    /// The first queue's file, by which the interface is changed.
    file: Arc<OwnedFd>,
    /// Those that were not taken yet.
    queues: Vec<Option<Opened>>,
    name: String,
    /// As it was found, in the namespace where it was found; absent where it is out of reach.
    interface: Option<Interface>,
    vnet: bool,
    capabilities: Capabilities,
    on: Vec<&'static str>,
    refused: Vec<String>,
}

/// A queue: a file of its own on the same interface.
#[derive(Debug)]
struct Opened {
    file: Arc<OwnedFd>,
    waiter: Arc<FileWaiter>,
    ring: Option<Box<WriteRing>>,
    /// A ring was wanted and not to be had.
    is_ring_refused: bool,
}

impl Opened {
    fn new(
        file: OwnedFd,
        interface: Option<&Interface>,
        wanted: IoUring,
        on: &mut Vec<&'static str>,
        refused: &mut Vec<String>,
    ) -> Result<Self, DeviceError> {
        let file = Arc::new(file);
        // Who only receives learns by changes that the interface is down, and can do without.
        let waiter = match interface {
            Some(_) => FileWaiter::of_interface(Arc::clone(&file)),
            None => FileWaiter::new(Arc::clone(&file)),
        };
        let waiter =
            waiter.map_err(|errno| SystemError::refused("an eventfd could not be made", errno))?;
        let ring = open_ring(&file, wanted, on, refused)?;
        let is_ring_refused = ring.is_none() && wanted != IoUring::Off;
        Ok(Self { file, waiter: Arc::new(waiter), ring, is_ring_refused })
    }
}

impl TapDevice {
    /// Opens an interface. It is left down and without addresses: see [`Interface`].
    ///
    /// # Errors
    /// Where there is no TUN driver, no permission, or no such interface to be had.
    pub fn open(config: &TapConfig) -> Result<Self, DeviceError> {
        let name = config.name.as_deref().unwrap_or("");
        if name.len() > ioctl::NAME_LEN_MAX {
            let message = format!(
                "the interface name {name:?} is too long: {} bytes are allowed",
                ioctl::NAME_LEN_MAX
            );
            return Err(DeviceError::new(ErrorKind::InvalidInput, message));
        }
        if config.queues == 0 {
            let message = "a TAP or TUN interface has one queue at least";
            return Err(DeviceError::new(ErrorKind::InvalidInput, message));
        }
        let file = open_driver()?;
        let mut refused = Vec::new();
        let attached = attach(&file, name, config, &mut refused)?;
        let (name, flags) = (attached.name.clone(), attached.flags);
        let mut device = Self::set_up(file, attached, config, refused)?;
        for index in 1..config.queues {
            let file = open_driver()?;
            ioctl::tun_attach(&file, &name, flags).map_err(|errno| {
                let what = format!("queue {index} of the interface {name} is not to be had");
                SystemError::refused(what, errno)
            })?;
            // What the first one got and was refused holds for all.
            let interface = device.interface.as_ref();
            let (on, refused) = (&mut Vec::new(), &mut Vec::new());
            device.queues.push(Some(Opened::new(file, interface, config.io_uring, on, refused)?));
        }
        if config.queues > 1 {
            device.on.push("several queues");
        }
        // The driver bounds the queues that are there when it is told.
        device.bound_send_queue(config);
        Ok(device)
    }

    /// Takes a TAP or TUN interface by a file that another opened: who has the namespace, as the process
    /// of a rootless container that passes it by a socket (SCM_RIGHTS), a VPN service, whoever starts virtual
    /// machines. Its kind, its name and its NAPI are what they are, and it is the device's one queue,
    /// so `kind`, `name` and `queues` of `config` are not looked at; super-frames and checksum
    /// offload are to be had where it was attached with IFF_VNET_HDR. From now on it does not block, for
    /// everybody who holds it.
    ///
    /// The interface itself is asked and changed where it is in the network namespace of the calling thread, which
    /// only somebody with CAP_NET_ADMIN there is told (and only by Linux 5.8). Where it is not, or nobody
    /// tells, [`TapDevice::refused`] says so: then its MTU is what `config` says, or 1,500, nothing
    /// notices when it changes, and that the interface is down is noticed by who sends.
    ///
    /// # Errors
    /// Where it is no file of the TUN driver, is attached to no interface, or was attached without IFF_NO_PI; where
    /// the header in front of its frames is not ours and cannot be made so.
    pub fn from_fd(file: OwnedFd, config: &TapConfig) -> Result<Self, DeviceError> {
        let mut refused = Vec::new();
        let attached = descriptor::attached(&file, config, &mut refused)?;
        let mut device = Self::set_up(file, attached, config, refused)?;
        device.bound_send_queue(config);
        Ok(device)
    }

    /// The device of one queue, with what can be had of what was asked for.
    fn set_up(
        file: OwnedFd,
        attached: Attached,
        config: &TapConfig,
        mut refused: Vec<String>,
    ) -> Result<Self, DeviceError> {
        let Attached { name, flags, interface } = attached;
        let vnet = flags & IFF_VNET_HDR != 0;
        let mut on = Vec::new();
        let offload = negotiate_offload(&file, vnet, config, &mut on, &mut refused)?;
        let mtu_bytes = match &interface {
            Some(interface) => {
                let napi = flags & IFF_NAPI != 0;
                negotiate_napi(interface, napi, config.napi, &mut on, &mut refused);
                configure(interface, config.mtu_bytes, &mut refused)?
            }
            None => config.mtu_bytes.unwrap_or(MTU_BYTES),
        };
        let medium = match flags & IFF_TAP != 0 {
            true => Medium::Ethernet(own_address(config, &file, &name)?),
            false => Medium::Ip,
        };
        let segmentation =
            Segmentation { tcp_ipv4: true, tcp_ipv6: true, len_bytes_max: usize::from(u16::MAX) };
        let transmits_partial = vnet && config.offload;
        let capabilities = Capabilities {
            checksum_transmit: transmits_partial,
            checksum_receive: offload & TUN_F_CSUM != 0,
            segmentation: transmits_partial.then_some(segmentation),
            receive_super_frames: offload & TUN_F_TSO4 != 0,
            ..Capabilities::plain(medium, mtu_bytes)
        };
        let first = Opened::new(file, interface.as_ref(), config.io_uring, &mut on, &mut refused)?;
        let file = Arc::clone(&first.file);
        let queues = vec![Some(first)];
        Ok(Self { file, queues, name, interface, vnet, capabilities, on, refused })
    }

    fn bound_send_queue(&mut self, config: &TapConfig) {
        let Some(len_bytes) = config.send_queue_bytes else { return };
        let len_bytes = i32::try_from(len_bytes).unwrap_or(i32::MAX);
        if let Err(errno) = ioctl::tun_set_send_buffer(&self.file, len_bytes) {
            self.refused.push(format!("a bound of the send queue ({})", said(errno)));
        }
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's side of the interface, to bring it up and give it addresses.
    ///
    /// # Errors
    /// Where the interface is gone from the namespace in which it was opened, or out of reach
    /// ([`TapDevice::from_fd`]).
    pub fn interface(&self) -> Result<Interface, SystemError> {
        let name = &self.name;
        match &self.interface {
            Some(interface) if interface.exists() => interface.try_clone(),
            Some(_) => {
                let message = format!("the interface {name} is gone, or in another namespace");
                Err(SystemError::new(ErrorKind::NotFound, message))
            }
            None => {
                let message = format!("the interface {name} is out of reach");
                Err(SystemError::new(ErrorKind::NotFound, message))
            }
        }
    }

    /// A sentence: what is on, and what was asked for and refused.
    #[must_use]
    pub fn negotiated(&self) -> String {
        let medium = match self.capabilities.medium {
            Medium::Ethernet(_) => "TAP",
            Medium::Ip => "TUN",
        };
        let on = if self.on.is_empty() { "nothing extra".to_owned() } else { self.on.join(", ") };
        let refused = if self.refused.is_empty() {
            "nothing was refused".to_owned()
        } else {
            format!("refused: {}", self.refused.join("; "))
        };
        let (name, mtu_bytes) = (&self.name, self.capabilities.mtu_bytes);
        format!("{medium} {name}, MTU {mtu_bytes}, with {on}; {refused}")
    }

    /// What was asked for and refused, with the reason; empty where all was granted.
    #[must_use]
    pub fn refused(&self) -> &[String] {
        &self.refused
    }
}

impl TapDevice {
    /// Keeps the interface when the device is closed, for a later program to attach to, or lets
    /// it go with the device again.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn set_persistent(&self, on: bool) -> Result<(), SystemError> {
        ioctl::tun_set_persistent(&self.file, on).map_err(|errno| {
            SystemError::refused(format!("the interface {} cannot be kept", self.name), errno)
        })
    }
}

impl TapDevice {
    /// What it can do: each of its queues has the same to begin with.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    /// Opens queue `index`, counted from zero, which a stack is built on.
    ///
    /// # Errors
    /// Where there is no such queue, or it is taken.
    pub fn queue(&mut self, index: usize) -> Result<TapQueue, DeviceError> {
        let interface = self.interface.as_ref().map(Interface::try_clone).transpose()?;
        let count = self.queues.len();
        let opened = self.queues.get_mut(index).map(Option::take);
        let Some(Some(Opened { file, waiter, ring, is_ring_refused })) = opened else {
            let (kind, why) = match (opened, count) {
                (Some(_), _) => (ErrorKind::ResourceBusy, "is taken".to_owned()),
                (None, 1) => (ErrorKind::NotFound, "does not exist: it has one queue".to_owned()),
                (None, _) => {
                    (ErrorKind::NotFound, format!("does not exist: it has {count} queues"))
                }
            };
            let message = format!("queue {index} of the interface {} {why}", self.name);
            return Err(DeviceError::new(kind, message));
        };
        let capabilities = self.capabilities.clone();
        let link = Link::new(Arc::clone(&file), self.name.clone(), interface);
        let mut queue = TapQueue::new(file, waiter, link, self.vnet, capabilities, ring);
        if is_ring_refused {
            queue.count_ring_refused();
        }
        Ok(queue)
    }
}

/// The file of the first queue, for whom it is to be passed to ([`TapDevice::from_fd`]), say.
impl AsFd for TapDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What a file of the driver is attached to.
struct Attached {
    name: String,
    /// `IFF_*`, as they were granted.
    flags: i16,
    /// Absent where it is out of reach.
    interface: Option<Interface>,
}

fn open_driver() -> Result<OwnedFd, DeviceError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(TUN_FILE, flags, Mode::empty()).map_err(open_error)
}

/// Why the driver's file could not be opened, and what to do.
fn open_error(errno: Errno) -> DeviceError {
    let what_to_do = match errno {
        Errno::NOENT => {
            "the file is missing: load the driver (`modprobe tun`) or make the file (`mkdir -p \
             /dev/net && mknod /dev/net/tun c 10 200`)"
        }
        Errno::NODEV | Errno::NXIO => {
            "the kernel has no TUN driver: load it (`modprobe tun`) or build it (CONFIG_TUN)"
        }
        Errno::ACCESS | Errno::PERM => {
            "permission was denied: run as root, or let this user open it (`chmod 666 \
             /dev/net/tun`; in a container, pass the device on)"
        }
        _ => "the system refused",
    };
    let message = format!("{TUN_FILE} cannot be opened: {what_to_do}: {}", said(errno));
    DeviceError::new(kind_of(errno), message)
}

/// Makes the interface or attaches to it.
fn attach(
    file: &OwnedFd,
    name: &str,
    config: &TapConfig,
    refused: &mut Vec<String>,
) -> Result<Attached, DeviceError> {
    // A driver so old that it cannot be asked knows only the bare frame.
    let features = ioctl::tun_features(file).unwrap_or(0);
    let base = IFF_NO_PI | if config.kind == TapKind::Tap { IFF_TAP } else { IFF_TUN };
    let extras =
        [(IFF_VNET_HDR, config.offload, "offload"), (IFF_NAPI, config.napi != Napi::Off, "NAPI")];
    let several = if config.queues > 1 { IFF_MULTI_QUEUE } else { 0 };
    let mut flags = base | several;
    for (flag, wanted, what) in extras {
        if !wanted {
            continue;
        }
        if features & flag as u32 == 0 {
            refused.push(format!("{what} (the TUN driver does not know it)"));
        } else {
            flags |= flag;
        }
    }
    loop {
        match ioctl::tun_attach(file, name, flags) {
            Ok(name) => {
                agree(file, &name, flags)?;
                let interface = Some(Interface::named(&name)?);
                return Ok(Attached { name, flags, interface });
            }
            // Known, but not to be had: without it, then.
            Err(Errno::INVAL | Errno::OPNOTSUPP) if flags & IFF_NAPI != 0 => {
                flags &= !IFF_NAPI;
                refused.push("NAPI (the interface does not take it)".into());
            }
            Err(errno) => return Err(attach_error(name, config.kind, errno)),
        }
    }
}

/// Whether what stands in front of a frame is what was asked for with `flags`. An interface of several queues
/// keeps the flags of whom it had before, and says nothing. The length of the virtio-net header and what the
/// kernel may leave to us are one for the whole interface, too, and become what we ask for: whoever shares one
/// with another program has to agree on them with it.
///
/// # Errors
/// Where it is not.
fn agree(file: &OwnedFd, name: &str, flags: i16) -> Result<(), DeviceError> {
    const SHAPE: i16 = IFF_VNET_HDR | IFF_NO_PI;
    // Where the driver cannot be asked, it is as it was asked for.
    let has = ioctl::tun_interface(file).map_or(flags, |(_, has)| has);
    if has & SHAPE == flags & SHAPE {
        return Ok(());
    }
    let or = match (has & IFF_NO_PI, has & IFF_VNET_HDR) {
        (0, _) => "",
        (_, 0) => ", or open it without offload",
        _ => ", or open it with offload",
    };
    let message = format!(
        "another program holds queues of the interface {name}, with something else in front of its frames than \
         was asked for: stop that program, or choose another name{or}"
    );
    Err(DeviceError::new(ErrorKind::ResourceBusy, message))
}

/// Why an interface is not to be had, and what to do.
fn attach_error(name: &str, kind: TapKind, errno: Errno) -> DeviceError {
    let kind = if kind == TapKind::Tap { "TAP" } else { "TUN" };
    let user = rustix::process::getuid().as_raw();
    let what = match errno {
        Errno::PERM | Errno::ACCESS => format!(
            "permission was denied: run as root, in a user namespace of your own or with \
             CAP_NET_ADMIN, or have root make a persistent interface for you (`ip tuntap add \
             {name} mode {} user {user}`)",
            kind.to_lowercase(),
        ),
        Errno::BUSY => "another program holds it: stop that, or choose another name".into(),
        Errno::INVAL => format!(
            "either the name is not valid, or an interface of this name exists that is no {kind} \
             interface or has other flags: choose another name"
        ),
        _ => "the system refused".into(),
    };
    let name = if name.is_empty() { String::new() } else { format!(" {name:?}") };
    let message = format!("no {kind} interface{name} to be had: {what}: {}", said(errno));
    DeviceError::new(kind_of(errno), message)
}

/// Switches offloads on, or off on a persistent interface that had them, and returns those that
/// hold for frames which the kernel sends.
fn negotiate_offload(
    file: &OwnedFd,
    vnet: bool,
    config: &TapConfig,
    on: &mut Vec<&'static str>,
    refused: &mut Vec<String>,
) -> Result<u32, DeviceError> {
    // Whoever had the file or a persistent interface before may have set another.
    if vnet && ioctl::tun_header_len(file) != Ok(VNET_HEADER_LEN as i32) {
        ioctl::tun_set_header_len(file, VNET_HEADER_LEN as i32)
            .map_err(|errno| SystemError::refused("the virtio-net header was refused", errno))?;
    }
    // A file that somebody else opened may have the header although nobody asked for offload.
    let vnet = vnet && config.offload;
    if vnet {
        on.push("checksum offload and super-frames to the kernel");
    }
    let super_frames = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
    let wanted: &[u32] = match (vnet, config.receive_super_frames) {
        (true, true) => &[super_frames, TUN_F_CSUM, 0],
        (true, false) => &[TUN_F_CSUM, 0],
        (false, _) => &[0],
    };
    for offload in wanted {
        match ioctl::tun_set_offload(file, *offload) {
            Ok(()) => {
                match *offload {
                    0 => {}
                    TUN_F_CSUM => on.push("checksum offload from the kernel"),
                    _ => on.push("checksum offload and super-frames from the kernel"),
                }
                match *offload == super_frames {
                    _ if !config.uncut_datagrams => {}
                    true => negotiate_datagrams(file, *offload, on, refused),
                    false => refused.push(
                        "runs of datagrams from the kernel (super-frames are off)".to_owned(),
                    ),
                }
                return Ok(*offload);
            }
            Err(errno) => refused.push(match offload {
                0 => format!("switching offload from the kernel off ({})", said(errno)),
                _ => format!("offload {offload:#x} from the kernel ({})", said(errno)),
            }),
        }
    }
    Ok(0)
}

/// Asks for the datagrams that a sender leaves to its interface to cut (UDP_SEGMENT), in one frame, beside
/// what was granted. We cut them as the kernel would, and read them by one call. Where they are refused
/// it cuts them.
fn negotiate_datagrams(
    file: &OwnedFd,
    granted: u32,
    on: &mut Vec<&'static str>,
    refused: &mut Vec<String>,
) {
    match ioctl::tun_set_offload(file, granted | TUN_F_USO4 | TUN_F_USO6) {
        Ok(()) => on.push("runs of datagrams from the kernel"),
        Err(errno) => refused
            .push(format!("runs of datagrams from the kernel, for Linux 6.2 ({})", said(errno))),
    }
}

/// The ring that frames are written by, where one is wanted and to be had.
fn open_ring(
    file: &Arc<OwnedFd>,
    wanted: IoUring,
    on: &mut Vec<&'static str>,
    refused: &mut Vec<String>,
) -> Result<Option<Box<WriteRing>>, DeviceError> {
    if wanted == IoUring::Off {
        return Ok(None);
    }
    match WriteRing::new(Arc::clone(file)) {
        Ok(ring) => {
            on.push("many frames by one call (io_uring)");
            Ok(Some(Box::new(ring)))
        }
        Err(errno) if wanted == IoUring::Auto => {
            refused.push(ring_error(errno));
            Ok(None)
        }
        Err(errno) => Err(DeviceError::new(kind_of(errno), ring_error(errno))),
    }
}

/// Why there is no io_uring, and what to do.
fn ring_error(errno: Errno) -> String {
    let what_to_do = match errno {
        Errno::NOSYS => {
            "this kernel was built without it, or a filter of system calls hides it (containers often \
             have one): let it through, or write each frame by a call of its own (IoUring::Off)"
        }
        Errno::PERM | Errno::ACCESS => {
            "it is forbidden: allow it (`sysctl kernel.io_uring_disabled=0`, or in the filter of the \
             container's system calls), or write each frame by a call of its own (IoUring::Off)"
        }
        Errno::INVAL => {
            "this kernel is too old, it takes Linux 6.0: write each frame by a call of its own \
             (IoUring::Off)"
        }
        Errno::NOMEM => {
            "no memory may be locked for it: raise the limit (`ulimit -l`), or write each frame by a \
             call of its own (IoUring::Off)"
        }
        _ => "the system refused",
    };
    format!("io_uring cannot be had: {what_to_do}: {}", said(errno))
}

fn negotiate_napi(
    interface: &Interface,
    granted: bool,
    wanted: Napi,
    on: &mut Vec<&'static str>,
    refused: &mut Vec<String>,
) {
    if !granted {
        return;
    }
    if wanted == Napi::Threaded {
        match interface.set_threaded_napi(true) {
            Ok(()) => {
                on.push("threaded NAPI");
                return;
            }
            Err(error) => refused.push(format!("a thread for NAPI ({error})")),
        }
    }
    on.push("NAPI");
}

/// Gives the kernel's side its MTU and queue length, and returns the MTU that holds.
fn configure(
    interface: &Interface,
    mtu_bytes: Option<usize>,
    refused: &mut Vec<String>,
) -> Result<usize, DeviceError> {
    if let Some(mtu_bytes) = mtu_bytes
        && let Err(error) = interface.set_mtu_bytes(mtu_bytes)
    {
        refused.push(format!("an MTU of {mtu_bytes} ({error})"));
    }
    if interface.transmit_queue_packets()? < QUEUE_PACKETS_MIN
        && let Err(error) = interface.set_transmit_queue_packets(QUEUE_PACKETS_MIN)
    {
        refused.push(format!("a queue of {QUEUE_PACKETS_MIN} packets ({error})"));
    }
    Ok(interface.mtu_bytes()?)
}

/// Our address on the link: the one asked for, or a random one of the locally administered.
fn own_address(
    config: &TapConfig,
    file: &OwnedFd,
    name: &str,
) -> Result<HardwareAddress, DeviceError> {
    let kernel = ioctl::hardware_address(file, name).map_err(|errno| {
        let what = format!("the interface {name} could not be asked for its hardware address");
        SystemError::refused(what, errno)
    })?;
    if let Some(address) = config.hardware_address {
        if address == kernel || address.is_multicast() {
            let message = format!(
                "the address {address} cannot be ours: it is {}",
                if address == kernel { "the kernel's own" } else { "a multicast address" }
            );
            return Err(DeviceError::new(ErrorKind::InvalidInput, message));
        }
        return Ok(address);
    }
    Ok(random_address(kernel)?)
}

/// A random address of the locally administered, not the `kernel`'s.
pub(crate) fn random_address(kernel: HardwareAddress) -> Result<HardwareAddress, SystemError> {
    let mut octets = [0; 6];
    getrandom(&mut octets, GetRandomFlags::empty())
        .map_err(|errno| SystemError::refused("no random address could be made", errno))?;
    // Locally administered, one station (IEEE 802, 8.2).
    octets[0] = octets[0] & 0xfc | 0x02;
    if HardwareAddress(octets) == kernel {
        octets[5] ^= 1;
    }
    Ok(HardwareAddress(octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let says = |error: DeviceError, what: &str| {
            assert!(error.message.contains(what), "{what:?} is not in: {error}");
        };
        says(open_error(Errno::NOENT), "modprobe tun");
        says(open_error(Errno::NOENT), "mknod /dev/net/tun c 10 200");
        says(open_error(Errno::ACCESS), "run as root");
        says(attach_error("tap7", TapKind::Tap, Errno::PERM), "ip tuntap add tap7 mode tap user");
        says(attach_error("tap7", TapKind::Tap, Errno::BUSY), "another program holds it");
        says(attach_error("lo", TapKind::Tun, Errno::INVAL), "no TUN interface");
    }

    #[test]
    fn a_name_that_is_too_long_is_refused_before_anything_is_opened() {
        let config =
            TapConfig { name: Some("a-name-that-is-too-long".into()), ..TapConfig::default() };
        let error = TapDevice::open(&config).expect_err("16 bytes and more never fit");
        assert!(error.message.contains("too long"), "{error}");
    }
}
