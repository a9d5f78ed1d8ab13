//! A UDP tunnel: packets of this stack as datagrams of a UDP flow of the kernel.
//!
//! Both ends have a UDP socket; each packet is transformed ([`Transform`]) and becomes one datagram.
//! A batch leaves as few messages that the kernel cuts (`UDP_SEGMENT`), and comes up as few messages
//! that it merged (`UDP_GRO`): fragmentation by fixed size and coalescing, seed 003, for a tunnel.
//!
//! ```text
//!  inner packet            | IP | TCP | payload |
//!  datagram   | IP | UDP | what the transform makes of it |
//! ```
//!
//! The tunnel carries bare IP packets: there is no link header and no neighbour. Its MTU is that of
//! the path to the peer less what lies around a packet. Datagrams are never fragmented (RFC 8899
//! says why); where the path turns out to take less, the MTU shrinks while the tunnel runs.
//!
//! The socket is connected, so that the kernel refuses datagrams from elsewhere with an ICMP error and
//! tells of a peer that is not there. What it had queued before is looked at here, and dropped.

mod calls;
#[cfg(feature = "chacha20poly1305")]
mod cipher;
mod lowered;
mod queue;
mod receive;

#[cfg(feature = "chacha20poly1305")]
pub use cipher::{ChaChaKeys, ChaChaPoly};
pub use queue::TunnelQueue;
#[cfg(feature = "fuzzed")]
pub(crate) use receive::opened;

use crate::system_error::{SystemError, said};
use crate::waiter::FileWaiter;
use batch::ReceivedChecksum;
use calls::MESSAGES_MAX;
use device::{Capabilities, DeviceError, Forms, FragmentSplitting, Medium, Transform};
use lowered::{DATAGRAM_LEN_MAX, Lowered};
use receive::Receiver;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

/// The least MTU of hosts (RFC 791).
const MTU_BYTES_MIN: usize = 576;

/// How to open a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelConfig {
    /// The longest inner IP packet in bytes; `None` takes what the path to the peer leaves.
    pub mtu_bytes: Option<usize>,
    /// Let the kernel cut messages into datagrams (`UDP_SEGMENT`).
    pub segment: bool,
    /// Let the kernel merge datagrams (`UDP_GRO`).
    pub coalesce: bool,
    /// Messages of one system call, 1 to 32. With 1, and neither `segment` nor `coalesce`, each call
    /// moves one datagram.
    pub messages_per_call: usize,
    /// Leave out transport checksums of inner packets and believe those that come: what the peer has
    /// sealed nobody has changed. The transform must be authenticated, and both ends must have agreed on it:
    /// that they do so, and that each seals only what its own stack has made. An end that forwarded packets
    /// of others would vouch for bytes that may have been damaged before they reached it. The default
    /// writes and verifies them.
    pub trust_checksums: bool,
    /// What the kernel may hold for us in each direction. A burst beyond it is lost.
    pub socket_buffer_bytes: usize,
}

impl Default for TunnelConfig {
    fn default() -> Self {
        Self {
            mtu_bytes: None,
            segment: true,
            coalesce: true,
            messages_per_call: MESSAGES_MAX,
            trust_checksums: false,
            // Twice the largest window that a connection on a near path opens, as full datagrams.
            socket_buffer_bytes: 4 << 20,
        }
    }
}

/// One end of a tunnel. It has one queue.
pub struct TunnelDevice {
    socket: Arc<OwnedFd>,
    local: SocketAddr,
    peer: SocketAddr,
    /// Goes to the queue.
    transform: Option<Box<dyn Transform>>,
    config: TunnelConfig,
    capabilities: Capabilities,
    about: String,
    refused: Vec<String>,
}

impl core::fmt::Debug for TunnelDevice {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(&self.about)
    }
}

impl TunnelDevice {
    /// Datagrams leave end to end in messages that the kernel cuts, or each as a message of its own.
    pub const FORMS: Forms = Forms { chain: true, ..Forms::NONE };

    /// Opens an end at `local`, whose port may be 0 for any, to `peer`.
    ///
    /// # Errors
    /// Where the address is taken or not ours, no way leads to the peer, or the configuration
    /// contradicts itself.
    pub fn open(
        local: SocketAddr,
        peer: SocketAddr,
        transform: Box<dyn Transform>,
        config: TunnelConfig,
    ) -> Result<Self, DeviceError> {
        let socket = UdpSocket::bind(local).map_err(|error| {
            DeviceError::new(error.kind(), format!("no tunnel can begin at {local}: {error}"))
        })?;
        Self::over(socket, peer, transform, config)
    }

    /// Makes an end of a UDP socket that is bound already: somebody agreed on keys over it, say. What it was asked
    /// for that comes beside datagrams (IP_RECVERR, timestamps) is switched off.
    ///
    /// # Errors
    /// As [`TunnelDevice::open`].
    pub fn over(
        socket: UdpSocket,
        peer: SocketAddr,
        transform: Box<dyn Transform>,
        mut config: TunnelConfig,
    ) -> Result<Self, DeviceError> {
        let failed = |what: &str, error: std::io::Error| {
            let message = format!("the tunnel to {peer} cannot be opened: {what}: {error}");
            DeviceError::new(error.kind(), message)
        };
        if config.trust_checksums && !transform.is_authenticated() {
            let message = format!(
                "the transform {} authenticates nothing, so checksums are needed: do without \
                 trust_checksums",
                transform.name()
            );
            return Err(DeviceError::new(ErrorKind::InvalidInput, message));
        }
        socket.connect(canonical(peer)).map_err(|error| failed("no way leads there", error))?;
        // No address in particular is this host's, and datagrams come from one that is.
        let peer = socket.peer_addr().map_err(|error| failed("its peer is not told", error))?;
        let peer = canonical(peer);
        socket.set_nonblocking(true).map_err(|error| failed("its socket blocks", error))?;
        let local = socket.local_addr().map_err(|error| failed("it has no address", error))?;
        let socket = OwnedFd::from(socket);
        calls::switch_off_extras(&socket);
        let said = |what, errno: Errno| failed(what, said(errno));
        calls::set_path_mtu_discovery(&socket, peer.is_ipv4())
            .map_err(|errno| said("fragments cannot be forbidden", errno))?;
        let mut refused = Vec::new();
        let buffer_bytes = calls::set_buffers(&socket, config.socket_buffer_bytes)
            .map_err(|errno| said("its buffers cannot be set", errno))?;
        if buffer_bytes < config.socket_buffer_bytes {
            refused.push(format!(
                "buffers of {} bytes (the system's limit net.core.rmem_max gives {buffer_bytes})",
                config.socket_buffer_bytes
            ));
        }
        negotiate(&socket, &mut config, &mut refused);
        let mtu_bytes = mtu_bytes(&socket, peer, &*transform, config.mtu_bytes)?;
        let capabilities = Capabilities {
            checksum_transmit: config.trust_checksums,
            checksum_receive: config.trust_checksums,
            forms: Self::FORMS,
            fragment_splitting: FragmentSplitting { by_size: config.segment, by_length: false },
            ..Capabilities::plain(Medium::Ip, mtu_bytes)
        };
        let about = about(local, peer, &*transform, &config, mtu_bytes, &refused);
        let transform = Some(transform);
        let socket = Arc::new(socket);
        Ok(Self { socket, local, peer, transform, config, capabilities, about, refused })
    }

    /// This end's address and port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// A sentence: what is on, and what was asked for and refused.
    #[must_use]
    pub fn negotiated(&self) -> &str {
        &self.about
    }

    /// What was asked for and refused, with the reason; empty where all was granted.
    #[must_use]
    pub fn refused(&self) -> &[String] {
        &self.refused
    }
}

impl TunnelDevice {
    /// What it can do: each of its queues has the same to begin with.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    /// Opens queue `index`, counted from zero, which a stack is built on.
    ///
    /// # Errors
    /// Where there is no such queue, or it is taken.
    pub fn queue(&mut self, index: usize) -> Result<TunnelQueue, DeviceError> {
        let waiter = FileWaiter::new(Arc::clone(&self.socket))
            .map_err(|errno| SystemError::refused("an eventfd could not be made", errno))?;
        let transform = if index == 0 { self.transform.take() } else { None };
        let Some(transform) = transform else {
            let (kind, why) = match index {
                0 => (ErrorKind::ResourceBusy, "is taken"),
                _ => (ErrorKind::NotFound, "does not exist: it has one queue"),
            };
            let message = format!("queue {index} of the tunnel to {} {why}", self.peer);
            return Err(DeviceError::new(kind, message));
        };
        let config = &self.config;
        let datagram_len_max = self.capabilities.mtu_bytes + transform.overhead_bytes();
        let checksum = match config.trust_checksums {
            true => ReceivedChecksum::Verified,
            false => ReceivedChecksum::Unverified,
        };
        let (coalesce, messages_max) = (config.coalesce, config.messages_per_call);
        Ok(TunnelQueue::new(
            (Arc::clone(&self.socket), Arc::new(waiter)),
            self.peer,
            transform,
            self.capabilities.clone(),
            Lowered::new(messages_max, config.segment),
            Receiver::new(self.peer, coalesce, datagram_len_max, messages_max, checksum),
        ))
    }
}

/// A mapped address as that of IPv4: the path to it is one of IPv4, and so are the options of its socket that count.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::from((ip, address.port())),
        IpAddr::V6(_) => address,
    }
}

/// Switches on what the kernel knows, and off in `config` what it does not.
fn negotiate(socket: &OwnedFd, config: &mut TunnelConfig, refused: &mut Vec<String>) {
    if config.segment
        && let Err(errno) = calls::knows_segmentation(socket)
    {
        config.segment = false;
        refused.push(format!("UDP_SEGMENT ({})", said(errno)));
    }
    if config.coalesce
        && let Err(errno) = calls::set_coalescing(socket)
    {
        config.coalesce = false;
        refused.push(format!("UDP_GRO ({})", said(errno)));
    }
}

/// The MTU of the tunnel: what was asked for, where the path leaves that.
fn mtu_bytes(
    socket: &OwnedFd,
    peer: SocketAddr,
    transform: &dyn Transform,
    wanted: Option<usize>,
) -> Result<usize, DeviceError> {
    let path_mtu_bytes = calls::path_mtu_bytes(socket, peer.is_ipv4())
        .map_err(|errno| SystemError::refused(format!("the way to {peer} has no MTU"), errno))?;
    let left = inner_mtu_bytes(path_mtu_bytes, peer, transform).unwrap_or(0);
    let mtu_bytes = wanted.unwrap_or(left);
    if (MTU_BYTES_MIN..=left).contains(&mtu_bytes) {
        return Ok(mtu_bytes);
    }
    let message = format!(
        "the tunnel to {peer} cannot have an MTU of {mtu_bytes}: the path takes packets of \
         {path_mtu_bytes} bytes, which leaves {left}, and hosts rely on {MTU_BYTES_MIN}"
    );
    Err(DeviceError::new(ErrorKind::InvalidInput, message))
}

/// What a path leaves for inner packets, the headers around them and the transform's part taken off.
fn inner_mtu_bytes(
    path_mtu_bytes: usize,
    peer: SocketAddr,
    transform: &dyn Transform,
) -> Option<usize> {
    datagram_len_max(path_mtu_bytes, peer)?.checked_sub(transform.overhead_bytes())
}

/// The longest datagram that a path to `peer` takes.
fn datagram_len_max(path_mtu_bytes: usize, peer: SocketAddr) -> Option<usize> {
    const UDP_HEADER_LEN: usize = 8;
    let ip_header_len = if peer.is_ipv4() { 20 } else { 40 };
    let datagram_len = path_mtu_bytes.checked_sub(ip_header_len + UDP_HEADER_LEN)?;
    Some(datagram_len.min(DATAGRAM_LEN_MAX))
}

fn about(
    local: SocketAddr,
    peer: SocketAddr,
    transform: &dyn Transform,
    config: &TunnelConfig,
    mtu_bytes: usize,
    refused: &[String],
) -> String {
    let mut on = Vec::new();
    if config.segment {
        on.push("UDP_SEGMENT");
    }
    if config.coalesce {
        on.push("UDP_GRO");
    }
    if config.trust_checksums {
        on.push("trust in the transform's authentication instead of checksums");
    }
    let on = if on.is_empty() { "nothing extra".to_owned() } else { on.join(", ") };
    let refused = match refused {
        [] => "nothing was refused".to_owned(),
        refused => format!("refused: {}", refused.join("; ")),
    };
    let transform = transform.name();
    format!(
        "UDP tunnel from {local} to {peer}, MTU {mtu_bytes}, transform {transform}, with {on}; \
         {refused}"
    )
}
