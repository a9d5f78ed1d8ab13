//! AF_XDP: an interface of the kernel's whose frames come and go through memory that we share with
//! it.
//!
//! A program of five instructions in the driver hands the frames of a queue to our socket before
//! the kernel has looked at them; what we send bypasses the kernel's protocols and queues. Frames
//! lie in chunks of the *UMEM*, memory that is registered once for each queue. Four rings pass
//! the chunks to and fro ([`ring`]). The only system calls are one *kick* for a batch and the
//! waiting; what was received already needs none.
//!
//! ```text
//!  Multidata --copy--> UMEM chunks -> tx ring --kick--> driver -> completion ring -> free chunks
//!  pooled blocks <-copy-- UMEM chunks <- rx ring <- driver <- fill ring <- the same chunks
//! ```
//!
//! *Both ways one copy, on purpose.* On the way out headers and payload are gathered into chunks just
//! before the kick, from blocks that the checksum has just brought into the cache. Payload that is
//! written to chunks by the socket, with gaps for headers, saves that copy, is no faster (`copies.rs`),
//! and holds a chunk for every packet that is not acknowledged yet; headers and payload in descriptors of
//! their own ([`XdpConfig::scatter_gather`]) cost the kernel more than the copy. On the way in frames are
//! copied to pooled blocks, so that a reader who takes his time never keeps chunks from the driver.
//!
//! *Negotiation.* The program runs in the driver where it can and behind it where not (generic);
//! zero-copy where the driver does it. [`XdpDevice::negotiated`] says what came out. The kernel's
//! interface says nothing of checksums: every frame is verified here. On a virtual cable (veth)
//! the far end must therefore complete its own
//! ([`Feature::TransmitChecksum`](crate::Feature::TransmitChecksum) off there), or be trusted
//! ([`XdpConfig::trusts_checksums`]). Nor does it say of which VLAN a frame is whose tag a device has taken out: that
//! is switched off ([`Feature::ReceiveVlanOffload`](crate::Feature::ReceiveVlanOffload)), and stays so, where the
//! interface has it, so that tagged frames come with their tags and are dropped. A virtual cable takes out none, and is handed
//! frames without the tags that the far end left to it: where that has VLANs,
//! [`Feature::TransmitVlanOffload`](crate::Feature::TransmitVlanOffload) must be off there.
//!
//! *Back-pressure.* Nothing is sent for which there are not enough free chunks, one for each
//! descriptor of the packet. A chunk is free when the
//! kernel says that its frame left; it says so in a ring and raises no event, so who waits for room
//! looks again after a millisecond, until it is there. Who has nothing more to send does not look.

#[cfg(test)]
mod copies;
mod division;
mod program;
mod queue;
mod receive;
mod ring;
mod socket;
mod umem;

pub use queue::XdpQueue;

use crate::interface::{Feature, Interface};
use crate::packet::own_address::{self, Teller};
use crate::system_error::{SystemError, said};
use device::{Capabilities, DeviceError, Forms, HardwareAddress, Medium};
use program::{Program, Wanted};
use socket::Rings;
use std::io::ErrorKind;
use std::sync::Arc;

/// Where the program runs that hands frames over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum XdpAttach {
    /// In the driver where it can, else behind it.
    #[default]
    Auto,
    /// In the driver, before the kernel makes a packet of a frame.
    Native,
    /// Behind the driver, on any interface; slower.
    Generic,
}

/// Who moves frames between the UMEM and the hardware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum XdpCopy {
    /// The hardware itself where the driver knows how, else the kernel by copying.
    #[default]
    Auto,
    /// The kernel by copying.
    Copy,
    /// The hardware itself, or opening fails.
    ZeroCopy,
}

/// How to take over an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// The interface's name. It must exist; the kernel no longer sees frames of the queues that are
    /// opened. That its device takes VLAN tags out of frames is switched off; where
    /// [`XdpDevice::refused`] says that this was refused, frames of all VLANs seem to be of the untagged network.
    pub interface: String,
    /// Where the program runs.
    pub attach: XdpAttach,
    /// Who moves frames.
    pub copy: XdpCopy,
    /// Take frames that are longer than a chunk in several. It is on by itself where the MTU needs it.
    pub multi_buffer: bool,
    /// Send headers and payload in descriptors of their own (XDP_USE_SG, Linux 6.6), for what handles
    /// them better so. The kernel, where it copies, does not: it fetches a page for each descriptor
    /// behind the first. And a driver that cannot gather leaves the copying to the kernel.
    pub scatter_gather: bool,
    /// Take transport checksums of received frames as verified. Only for a peer on the same machine
    /// that leaves them out. Datagrams that it also leaves uncut (UDP_SEGMENT) are dropped and counted: nothing
    /// says where one ends.
    pub trusts_checksums: bool,
    /// Chunks that wait to be received into; rounded up to a power of two, from 64 to 65,536.
    pub receive_frames: u32,
    /// Chunks for frames that were sent and have not left yet; rounded as above.
    pub transmit_frames: u32,
    /// Let a waiting thread poll the driver for this many microseconds before it sleeps
    /// (SO_PREFER_BUSY_POLL, Linux 5.11).
    pub busy_poll_us: Option<u32>,
    /// Our address on the link; `None` takes the interface's. Another one the interface is told to receive as
    /// well.
    pub hardware_address: Option<HardwareAddress>,
}

impl XdpConfig {
    /// Takes over `interface` as well as it goes.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            attach: XdpAttach::default(),
            copy: XdpCopy::default(),
            multi_buffer: false,
            scatter_gather: false,
            trusts_checksums: false,
            receive_frames: 2_048,
            transmit_frames: 1_024,
            busy_poll_us: None,
            hardware_address: None,
        }
    }
}

/// What XDP keeps in front of a received frame in its chunk (`XDP_PACKET_HEADROOM`), in bytes.
const HEADROOM: usize = 256;
/// A page: the longest chunk that the kernel takes.
const CHUNK_LEN_MAX: usize = 4_096;
const CHUNK_LEN_SHORT: usize = 2_048;
/// Ethernet header and one VLAN tag in bytes.
const LINK_LEN_MAX: usize = 18;
/// The kernel gathers a packet of at most so many chunks.
const CHUNKS_PER_PACKET_MAX: usize = 16;
/// Queues that are taken at most.
const QUEUES_MAX: usize = 64;

/// An interface that was taken over. It has as many queues as the driver has for both directions: a queue
/// by which frames only come is left to the kernel, and so are its frames.
///
/// The program is detached when the device and all of its queues are gone; the kernel then has its
/// frames again.
#[derive(Debug)]
pub struct XdpDevice {
    config: XdpConfig,
    /// The one that the program is attached to, whatever its name is by now.
    interface: Interface,
    program: Arc<Program>,
    chunk_len: usize,
    capabilities: Capabilities,
    taken: Vec<bool>,
    refused: Vec<String>,
    /// How frames are moved, known with the first queue.
    moves: Option<&'static str>,
    /// Whether packets may take several descriptors, known with the first queue.
    takes_several: Option<bool>,
}

impl XdpDevice {
    /// Every packet has chunks and descriptors of its own, and nothing below cuts any.
    pub const FORMS: Forms = Forms::NONE;

    /// Attaches the program to the interface.
    ///
    /// # Errors
    /// Where there is no such interface, no permission, another program, or no AF_XDP in this kernel.
    pub fn open(config: &XdpConfig) -> Result<Self, DeviceError> {
        let interface = Interface::named(&config.interface)?;
        let mtu_bytes = interface.mtu_bytes()?;
        let address = match config.hardware_address {
            Some(address) => own_address::asked_for(address)?,
            None => interface.hardware_address()?,
        };
        let frame_len_max = mtu_bytes + LINK_LEN_MAX;
        let is_long = frame_len_max > CHUNK_LEN_MAX - HEADROOM;
        let chunk_len = match frame_len_max <= CHUNK_LEN_SHORT - HEADROOM && !config.multi_buffer {
            true => CHUNK_LEN_SHORT,
            false => CHUNK_LEN_MAX,
        };
        let mut refused = Vec::new();
        let counts = queue_counts(&config.interface);
        let queues = counts.both();
        refused.extend(counts.kept_back());
        let wanted = Wanted {
            interface_index: interface.index(),
            queues: queues as u32,
            attach: config.attach,
            fragments: config.multi_buffer || is_long,
        };
        let program = Program::attach(wanted, &config.interface, &mut refused)?;
        // Before any queue is directed here.
        refused.extend(keep_tags(&interface).err());
        let capabilities = Capabilities {
            queues,
            forms: Self::FORMS,
            checksum_receive: config.trusts_checksums,
            ..Capabilities::plain(Medium::Ethernet(address), mtu_bytes)
        };
        let chunks = if program.takes_fragments() { CHUNKS_PER_PACKET_MAX } else { 1 };
        let mut device = Self {
            config: config.clone(),
            interface,
            program: Arc::new(program),
            chunk_len,
            capabilities,
            taken: vec![false; queues],
            refused,
            moves: None,
            takes_several: None,
        };
        device.limit_mtu(chunks);
        Ok(device)
    }

    /// Lowers the MTU to what fits so many chunks.
    fn limit_mtu(&mut self, chunks: usize) {
        let mtu_bytes = self.capabilities.mtu_bytes;
        let fits = chunks * (self.chunk_len - HEADROOM) - LINK_LEN_MAX;
        if mtu_bytes > fits {
            self.refused.push(format!("the MTU of {mtu_bytes} (no more than {fits} fit)"));
            self.capabilities.mtu_bytes = fits;
        }
    }

    /// The interface's name, by which it was found.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.interface
    }

    /// The kernel's side of the interface.
    ///
    /// # Errors
    /// Where the interface is gone.
    pub fn interface(&self) -> Result<Interface, SystemError> {
        if !self.interface.exists() {
            let message = format!("the interface {} is gone: it was deleted", self.name());
            return Err(SystemError::new(ErrorKind::NotFound, message));
        }
        self.interface.try_clone()
    }

    /// A sentence: what is on, and what was asked for and refused. Who moves frames, and in how many
    /// descriptors, is known once a queue is open.
    #[must_use]
    pub fn negotiated(&self) -> String {
        let mut on = vec![if self.program.is_native() { "native XDP" } else { "generic XDP" }];
        on.extend(self.moves);
        if self.program.takes_fragments() && self.takes_several != Some(false) {
            on.push("several buffers for a frame");
        }
        if self.config.scatter_gather && self.takes_several == Some(true) {
            on.push("headers and payload in descriptors of their own");
        }
        let refused = match self.refused.as_slice() {
            [] => "nothing was refused".to_owned(),
            refused => format!("refused: {}", refused.join("; ")),
        };
        let (name, mtu_bytes) = (self.name(), self.capabilities.mtu_bytes);
        format!("AF_XDP {name}, MTU {mtu_bytes}, with {}; {refused}", on.join(", "))
    }

    /// What was asked for and refused, with the reason; empty where all was granted.
    #[must_use]
    pub fn refused(&self) -> &[String] {
        &self.refused
    }
}

impl XdpDevice {
    /// What it can do: each of its queues has the same to begin with.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    /// Opens queue `index`, counted from zero, which a stack is built on.
    ///
    /// # Errors
    /// Where there is no such queue, or it is taken.
    pub fn queue(&mut self, index: usize) -> Result<XdpQueue, DeviceError> {
        let queues = self.taken.len();
        match self.taken.get(index) {
            Some(false) => {}
            taken => {
                let (kind, why) = match taken {
                    Some(_) => (ErrorKind::ResourceBusy, "is taken".to_owned()),
                    None => {
                        let why = format!("does not exist: it has {queues} for both directions");
                        (ErrorKind::NotFound, why)
                    }
                };
                let name = self.name();
                let message = format!("queue {index} of the interface {name} {why}");
                return Err(DeviceError::new(kind, message));
            }
        }
        let interface = self.interface()?;
        let rings = Rings::open(
            &interface,
            index as u32,
            self.chunk_len,
            self.program.takes_fragments() || self.config.scatter_gather,
            &self.config,
            &mut self.refused,
        )?;
        self.moves = Some(if rings.is_zero_copy { "zero-copy" } else { "copies by the kernel" });
        self.takes_several = Some(rings.takes_several);
        if !rings.takes_several {
            self.limit_mtu(1);
        }
        let teller = self.teller(&interface);
        let program = Arc::clone(&self.program);
        let capabilities = self.capabilities.clone();
        let queue = XdpQueue::new(rings, (interface, teller), program, capabilities, &self.config)?;
        self.program.direct(index as u32, queue.socket()).map_err(|errno| {
            let name = self.name();
            SystemError::refused(format!("queue {index} of {name} could not be directed"), errno)
        })?;
        self.taken[index] = true;
        Ok(queue)
    }

    /// What has the interface take frames for groups, and for our address, whatever its own is or becomes.
    fn teller(&mut self, interface: &Interface) -> Option<Teller> {
        let Medium::Ethernet(address) = self.capabilities.medium else { return None };
        let told = Teller::new(address, interface.index());
        told.map_err(|errno| {
            let why = said(errno);
            self.refused.push(format!(
                "frames for {address} and for groups taken by the interface ({why})"
            ));
        })
        .ok()
    }
}

/// Has frames of VLANs come with their tags; an interface that cannot be asked takes out none. What is wrong
/// where that is refused.
fn keep_tags(interface: &Interface) -> Result<(), String> {
    let offload = Feature::ReceiveVlanOffload;
    if !interface.has_feature(offload).unwrap_or(false) {
        return Ok(());
    }
    interface.set_feature(offload, false).map_err(|error| {
        format!("frames of VLANs kept apart from those of the untagged network ({error})")
    })
}

/// How many queues the driver has each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QueueCounts {
    receive: usize,
    transmit: usize,
}

impl QueueCounts {
    /// Queues that go both ways, one at least. The kernel binds a socket to any of either direction, and
    /// takes what is sent by a transmit queue that does not exist without a word, for ever.
    fn both(self) -> usize {
        self.receive.min(self.transmit).clamp(1, QUEUES_MAX)
    }

    /// That the kernel keeps some, and what to do.
    fn kept_back(self) -> Option<String> {
        let (Self { receive, transmit }, both) = (self, self.both());
        let why = match both < QUEUES_MAX {
            true => format!("there are {transmit} to send by: make them as many, `ethtool -L`"),
            false => format!("{QUEUES_MAX} are taken at most: make them as few, `ethtool -L`"),
        };
        let kept = format!("queues from {both} on of the {receive} that frames come by ({why})");
        (receive > both).then_some(kept)
    }
}

/// How many queues the driver has each way; none where the system does not say.
fn queue_counts(name: &str) -> QueueCounts {
    let mut counts = QueueCounts::default();
    let queues = std::fs::read_dir(format!("/sys/class/net/{name}/queues"));
    for entry in queues.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        counts.receive += usize::from(name.starts_with("rx-"));
        counts.transmit += usize::from(name.starts_with("tx-"));
    }
    counts
}
