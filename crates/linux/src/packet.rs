//! Packet sockets (AF_PACKET, packet(7)): one more host on an interface of the kernel's.
//!
//! The interface is the user's: an Ethernet card, one end of a veth pair, a bridge. The socket sends
//! and receives Ethernet frames beside the kernel's own stack, with a hardware address of its own
//! or with the interface's. A virtio-net header stands in front of every frame, both ways: it tells
//! of checksums that are yet to be completed and of super-frames, which come from any interface
//! that merges or segments (GRO, TSO of a veth peer), and it hands super-frames over to be split by
//! the interface, or by the kernel in front of it.
//!
//! The kernel's own traffic over the interface is not seen, so the kernel of this very host cannot
//! be talked to by the interface itself, as with a macvlan; by the other end of a veth pair it can.

mod block_ring;
mod calls;
mod link;
pub(crate) mod own_address;
mod patience;
mod queue;
mod receive;

pub use queue::PacketQueue;

use crate::interface::Interface;
use crate::system_error::{SystemError, interface_down, kind_of, said};
use crate::tap::random_address;
use crate::waiter::FileWaiter;
use block_ring::BlockRing;
use calls::{Membership, PacketOption};
use device::{Capabilities, DeviceError, Forms, HardwareAddress, Medium, Segmentation};
use link::Link;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use steering::Spread;

/// Whose hardware address the stack has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketAddress {
    /// A random one, locally administered, which the interface is told to receive as well. The
    /// kernel passes over frames to it early.
    #[default]
    Random,
    /// This one, which the interface is told to receive as well.
    Own(HardwareAddress),
    /// The interface's, for networks that let a port have one address only (Wi-Fi, many clouds). The
    /// kernel sees our frames, too, and drops them, unless it forwards packets: then do not use it. Its IP
    /// addresses must not be ours; of DHCP servers a stack gets another one than the kernel's client.
    Interface,
}

/// How to open a packet socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketConfig {
    /// The interface's name.
    pub interface: String,
    /// Whose hardware address the stack has.
    pub address: PacketAddress,
    /// Have the interface receive every frame, where it does not take a second address otherwise.
    /// Frames to others are dropped before they are copied, in any case.
    pub promiscuous: bool,
    /// Leave checksums and the splitting of super-frames to the interface, or to the kernel in
    /// front of it. What comes in has them as the other end sends them, whatever is said here.
    pub offload: bool,
    /// Pass by the interface's queueing discipline (PACKET_QDISC_BYPASS): less work for a frame,
    /// and no fairness with the kernel's own traffic.
    pub bypass_queue: bool,
    /// How many bytes of our frames wait in the kernel at most, with the kernel's overhead.
    pub send_queue_bytes: usize,
    /// How many bytes of frames wait to be received at most, with the kernel's overhead, which is
    /// as much again for full frames of 1,500 bytes. Of each queue.
    pub receive_queue_bytes: usize,
    /// Receive in blocks of memory shared with the kernel (TPACKET_V3), `receive_queue_bytes` of them, each
    /// handed over when it is full or after so long (whole milliseconds, one at least). It saves system calls and
    /// wake-ups, and a lone frame waits for it; `None` takes frames as they come.
    pub receive_blocks: Option<Duration>,
    /// How many queues the device has, one for each home, and which frames come by which: a stack of
    /// several squeues that is spread so finds each connection's frames at the queue of its squeue
    /// (PACKET_FANOUT). An interface that is deleted is not taken up again by several.
    pub spread: Spread,
}

impl PacketConfig {
    /// On this interface, with a random hardware address and all offloads.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            address: PacketAddress::Random,
            promiscuous: false,
            offload: true,
            bypass_queue: false,
            send_queue_bytes: 4 << 20,
            receive_queue_bytes: 16 << 20,
            receive_blocks: None,
            spread: Spread::SINGLE,
        }
    }
}

/// One socket of a device, until its queue is taken.
#[derive(Debug)]
struct Opened {
    socket: Arc<OwnedFd>,
    waiter: Arc<FileWaiter>,
    link: Link,
    blocks: Option<BlockRing>,
}

/// A packet socket that is open, or several that share an interface, one for each queue.
#[derive(Debug)]
pub struct PacketDevice {
    queues: Vec<Option<Opened>>,
    name: String,
    capabilities: Capabilities,
    on: Vec<&'static str>,
    refused: Vec<String>,
}

impl PacketDevice {
    /// A message is gathered for each packet, or each frame of a block laid out for it.
    pub const FORMS: Forms = Forms { chain: false, ..Forms::ALL };

    /// Opens a socket on an interface, which may be down; for several, since Linux 6.13.
    ///
    /// # Errors
    /// Where there is no such interface, it is no Ethernet interface, or there is no permission.
    pub fn open(config: &PacketConfig) -> Result<Self, DeviceError> {
        let name = &config.interface;
        let interface = Interface::named(name)?;
        if !interface.is_ethernet()? {
            let message = format!(
                "the interface {name} carries no Ethernet frames: open another one, or a TUN device"
            );
            return Err(DeviceError::new(ErrorKind::Unsupported, message));
        }
        let kernel = interface.hardware_address()?;
        let address = own_address(config.address, kernel)?;
        let (mut on, mut refused) = (Vec::new(), Vec::new());
        let mut memberships = vec![Membership::AllMulticast];
        if config.promiscuous {
            memberships.push(Membership::Promiscuous);
        }
        let mut queues = Vec::new();
        for _ in 0..config.spread.homes() {
            // What is said of the last holds for all: they are asked for the same.
            (on, refused) = (Vec::new(), Vec::new());
            let socket = open_socket(name, address)?;
            if config.spread.homes() > 1 {
                // Until it shares the interface's frames with the others it would receive all of them,
                // and so would each.
                calls::attach_closed_filter(&socket).map_err(filter_refused)?;
            }
            negotiate(&socket, config, &mut on, &mut refused);
            let retire = config.receive_blocks;
            let blocks =
                retire.map(|retire| BlockRing::new(&socket, config.receive_queue_bytes, retire));
            let blocks = blocks.transpose().map_err(|errno| blocks_refused(config, errno))?;
            let socket = Arc::new(socket);
            let bound = Link::bind(Arc::clone(&socket), name, address, memberships.clone());
            let link = bound.map_err(|errno| {
                SystemError::refused(format!("the interface {name} cannot be taken up"), errno)
            })?;
            // What it tells of, sending tells as well, but for an MTU that is shorter now than super-frames'
            // segments.
            let waiter = FileWaiter::of_interface(Arc::clone(&socket))
                .map_err(|errno| SystemError::refused("an eventfd could not be made", errno))?;
            queues.push(Opened { socket, waiter: Arc::new(waiter), link, blocks });
        }
        if queues.len() > 1 {
            share(&mut queues, &config.spread).map_err(|errno| share_refused(&interface, errno))?;
            open_filters(&queues, address)?;
            on.push("several queues");
        }
        let segmentation =
            Segmentation { tcp_ipv4: true, tcp_ipv6: true, len_bytes_max: usize::from(u16::MAX) };
        let capabilities = Capabilities {
            checksum_transmit: config.offload,
            checksum_receive: true,
            segmentation: config.offload.then_some(segmentation),
            forms: Self::FORMS,
            receive_super_frames: true,
            queues: queues.len(),
            shares_address: address == kernel,
            ..Capabilities::plain(Medium::Ethernet(address), interface.mtu_bytes()?)
        };
        let queues = queues.into_iter().map(Some).collect();
        Ok(Self { queues, name: name.clone(), capabilities, on, refused })
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A sentence: what is on, and what was asked for and refused.
    #[must_use]
    pub fn negotiated(&self) -> String {
        let on = if self.on.is_empty() { "nothing extra".to_owned() } else { self.on.join(", ") };
        let refused = if self.refused.is_empty() {
            "nothing was refused".to_owned()
        } else {
            format!("refused: {}", self.refused.join("; "))
        };
        let (name, mtu_bytes) = (&self.name, self.capabilities.mtu_bytes);
        format!("packet socket on {name}, MTU {mtu_bytes}, with {on}; {refused}")
    }

    /// What was asked for and refused, with the reason; empty where all was granted.
    #[must_use]
    pub fn refused(&self) -> &[String] {
        &self.refused
    }
}

impl PacketDevice {
    /// What it can do: each of its queues has the same to begin with.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    /// Opens queue `index`, counted from zero, which a stack is built on.
    ///
    /// # Errors
    /// Where there is no such queue, or it is taken.
    pub fn queue(&mut self, index: usize) -> Result<PacketQueue, DeviceError> {
        let count = self.queues.len();
        let opened = self.queues.get_mut(index).map(Option::take);
        let Some(Some(Opened { socket, waiter, link, blocks })) = opened else {
            let (kind, why) = match opened {
                Some(_) => (ErrorKind::ResourceBusy, String::from("is taken")),
                None => (ErrorKind::NotFound, format!("does not exist: it has {count}")),
            };
            let message = format!("queue {index} of the packet socket on {} {why}", self.name);
            return Err(DeviceError::new(kind, message));
        };
        Ok(PacketQueue::new(socket, waiter, link, self.capabilities.clone(), blocks))
    }
}

/// A socket that only takes what is for `address`, and is bound to nothing.
fn open_socket(name: &str, address: HardwareAddress) -> Result<OwnedFd, DeviceError> {
    let socket = calls::open().map_err(|errno| open_error(name, errno))?;
    let refuse = |what: &'static str| {
        move |errno: Errno| SystemError::refused(format!("{what} was refused"), errno)
    };
    calls::enable(&socket, PacketOption::IgnoreOutgoing)
        .map_err(refuse("PACKET_IGNORE_OUTGOING, which Linux has since 4.20,"))?;
    calls::enable(&socket, PacketOption::VnetHeader).map_err(refuse("the virtio-net header"))?;
    calls::attach_filter(&socket, address).map_err(filter_refused)?;
    Ok(socket)
}

/// The memory of the blocks is the kernel's, for each queue as much, and may be more than it has or may give.
fn blocks_refused(config: &PacketConfig, errno: Errno) -> DeviceError {
    let PacketConfig { interface, receive_queue_bytes, spread, .. } = config;
    let queues = spread.homes();
    let what = format!(
        "receiving from the interface {interface} in blocks (PACKET_RX_RING) was refused, {receive_queue_bytes} bytes \
         for each of {queues} queues: ask for fewer (`receive_queue_bytes`), or for none (`receive_blocks`)"
    );
    SystemError::refused(what, errno).into()
}

fn filter_refused(errno: Errno) -> DeviceError {
    SystemError::refused("the filter for our frames was refused", errno).into()
}

/// Has sockets that share an interface receive from now on.
fn open_filters(queues: &[Opened], address: HardwareAddress) -> Result<(), DeviceError> {
    for queue in queues {
        calls::attach_filter(&queue.socket, address).map_err(filter_refused)?;
    }
    Ok(())
}

/// Divides the frames of the interface among the sockets.
fn share(queues: &mut [Opened], spread: &Spread) -> Result<(), Errno> {
    let mut number = None;
    for (index, queue) in queues.iter_mut().enumerate() {
        number = Some(calls::join_fan_out(&queue.socket, number)?);
        queue.link.set_shared();
        if index == 0
            && let Some(program) = spread.socket_program()
        {
            calls::set_fan_out_program(&queue.socket, &program)?;
        }
    }
    Ok(())
}

/// Sockets of an interface that is down cannot share it before Linux 6.13.
fn share_refused(interface: &Interface, errno: Errno) -> DeviceError {
    match interface.is_up() {
        Ok(false) if errno == Errno::INVAL => interface_down(&interface.called_or_found()),
        _ => SystemError::refused("dividing frames among sockets was refused", errno).into(),
    }
}

/// Asks for what is good to have.
fn negotiate(
    socket: &OwnedFd,
    config: &PacketConfig,
    on: &mut Vec<&'static str>,
    refused: &mut Vec<String>,
) {
    if config.offload {
        on.push("checksum offload and super-frames");
    }
    if config.receive_blocks.is_some() {
        on.push("received in blocks");
    }
    let bypass = if config.bypass_queue {
        calls::enable(socket, PacketOption::BypassQueue).map(|()| on.push("the queue passed by"))
    } else {
        Ok(())
    };
    let asked = [
        ("passing by the queue", bypass),
        ("the length of the send queue", calls::set_send_buffer(socket, config.send_queue_bytes)),
        (
            "the length of the receive queue",
            calls::set_receive_buffer(socket, config.receive_queue_bytes),
        ),
    ];
    for (what, outcome) in asked {
        if let Err(errno) = outcome {
            refused.push(format!("{what} ({})", said(errno)));
        }
    }
}

fn own_address(
    wanted: PacketAddress,
    kernel: HardwareAddress,
) -> Result<HardwareAddress, DeviceError> {
    match wanted {
        PacketAddress::Interface => Ok(kernel),
        PacketAddress::Own(address) => own_address::asked_for(address),
        PacketAddress::Random => Ok(random_address(kernel)?),
    }
}

/// Why there is no packet socket, and what to do.
fn open_error(name: &str, errno: Errno) -> DeviceError {
    let what = match errno {
        Errno::PERM | Errno::ACCESS => {
            "permission was denied: run as root, with CAP_NET_RAW, or in a user namespace of your own"
        }
        Errno::AFNOSUPPORT => "the kernel has no packet sockets: load them (`modprobe af_packet`)",
        _ => "the system refused",
    };
    let message = format!("no packet socket on {name} to be had: {what}: {}", said(errno));
    DeviceError::new(kind_of(errno), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{VethPair, namespace, withheld};

    #[test]
    fn an_interface_that_is_down_and_cannot_be_shared_is_to_be_brought_up() {
        let pair = namespace::enter_by_thread().and_then(|()| VethPair::new("near0", "far0"));
        let pair = match pair {
            Ok(pair) => pair,
            Err(error) => {
                let name = "an_interface_that_is_down_and_cannot_be_shared_is_to_be_brought_up";
                return withheld::cannot_run(name, &error.message);
            }
        };
        let says = |errno| share_refused(pair.near(), errno).message;
        assert!(says(Errno::INVAL).contains("ip link set near0 up"), "{}", says(Errno::INVAL));
        assert!(says(Errno::NOMEM).contains("dividing frames"), "{}", says(Errno::NOMEM));
        pair.set_up().expect("root of the namespace");
        assert!(says(Errno::INVAL).contains("dividing frames"), "{}", says(Errno::INVAL));
    }

    /// Said by its octets or not: a DHCP server must not take the stack for the kernel.
    #[test]
    fn the_interfaces_address_is_shared_however_it_is_asked_for() {
        let pair = namespace::enter_by_thread().and_then(|()| VethPair::new("near0", "far0"));
        let pair = match pair {
            Ok(pair) => pair,
            Err(error) => {
                let name = "the_interfaces_address_is_shared_however_it_is_asked_for";
                return withheld::cannot_run(name, &error.message);
            }
        };
        let kernels = pair.near().hardware_address().expect("it has one");
        let shares = |address| {
            let config = PacketConfig { address, ..PacketConfig::new("near0") };
            let device = PacketDevice::open(&config).expect("root of the namespace");
            device.capabilities().shares_address
        };
        assert!(shares(PacketAddress::Interface) && shares(PacketAddress::Own(kernels)));
        assert!(!shares(PacketAddress::Random));
    }

    #[test]
    fn errors_say_what_to_do() {
        let error = open_error("eth0", Errno::PERM);
        assert!(error.message.contains("CAP_NET_RAW"), "{error}");
        let error = PacketDevice::open(&PacketConfig::new("no-such-if0")).expect_err("none");
        assert!(error.message.contains("no-such-if0"), "{error}");
        let error = PacketDevice::open(&PacketConfig::new("lo")).expect_err("no Ethernet");
        assert!(error.message.contains("no Ethernet"), "{error}");
        let config = PacketConfig { receive_queue_bytes: 16 << 30, ..PacketConfig::new("eth0") };
        let error = blocks_refused(&config, Errno::NOMEM);
        for word in ["eth0", "17179869184", "receive_queue_bytes", "Cannot allocate memory"] {
            assert!(error.message.contains(word), "{error}");
        }
        let group = PacketAddress::Own(HardwareAddress([1, 0, 0, 0, 0, 0]));
        assert!(own_address(group, HardwareAddress([2, 0, 0, 0, 0, 1])).is_err());
    }
}
