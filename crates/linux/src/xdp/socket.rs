//! Opening an AF_XDP socket: the UMEM, the four rings, and the bond with a queue of an interface.

use super::ring::{CONTINUED, Consumer, Descriptor, Producer, Ring};
use super::umem::{Chunk, Umem};
use super::{XdpConfig, XdpCopy};
use crate::interface::Interface;
use crate::raw_calls;
use crate::system_error::{kind_of, said};
use device::DeviceError;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_mmap_offsets, xdp_options,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SOL_SOCKET: i32 = 1;
const SO_BUSY_POLL: i32 = 46;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
const SOL_XDP: i32 = 283;
/// How many frames one kick sends; 32 without it (linux/if_xdp.h, Linux 6.18).
const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
/// One kick is to send a whole batch.
const TRANSMIT_BUDGET: i32 = 256;
/// How long the kernel is given to let go of the queue of a socket that was just closed, which it
/// does in a work item of its own.
const CLOSING: Duration = Duration::from_millis(200);
/// Frames that a busy-polling thread takes from the driver at once.
const POLL_BUDGET: i32 = 64;

/// A bound socket and everything that is shared with the kernel through it.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) umem: Umem,
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
    pub(super) receive: Consumer<Descriptor>,
    pub(super) transmit: Producer<Descriptor>,
    /// Chunks for transmission.
    pub(super) free: Vec<Chunk>,
    /// Whether the hardware moves frames itself.
    pub(super) is_zero_copy: bool,
    /// Whether a packet may take several descriptors.
    pub(super) takes_several: bool,
    /// Whether the kernel tells after each kick that sent something what it has taken from the transmit ring.
    pub(super) tells_taken: bool,
}

impl Rings {
    /// Opens queue `queue` of an interface. Packets in several descriptors, if they are wanted, may be
    /// refused, which goes to `refused`.
    pub(super) fn open(
        interface: &Interface,
        queue: u32,
        chunk_len: usize,
        several: bool,
        config: &XdpConfig,
        refused: &mut Vec<String>,
    ) -> Result<Self, DeviceError> {
        let name = interface.name();
        let failed = |what: &str| {
            let what = what.to_owned();
            move |errno: Errno| socket_error(name, queue, &what, errno)
        };
        let receive_count = ring_size(config.receive_frames);
        let transmit_count = ring_size(config.transmit_frames);
        let family = AddressFamily::XDP;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            socket_with(family, SocketType::RAW, flags, None).map_err(failed("open a socket"))?;
        let (umem, mut free) =
            Umem::new(chunk_len, receive_count + transmit_count).map_err(failed("get memory"))?;
        register(&socket, &umem).map_err(failed("register memory"))?;
        set_xdp_umem_fill_ring_size(&socket, receive_count)
            .and_then(|()| set_xdp_umem_completion_ring_size(&socket, transmit_count))
            .and_then(|()| set_xdp_rx_ring_size(&socket, receive_count))
            .and_then(|()| set_xdp_tx_ring_size(&socket, transmit_count))
            .map_err(failed("make the rings"))?;
        let tells_taken = set_options(&socket, config, transmit_count, refused);
        let offsets = xdp_mmap_offsets(&socket).map_err(failed("find the rings"))?;
        let map = failed("map the rings");
        let fill = Ring::map(&socket, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, receive_count);
        let completion =
            Ring::map(&socket, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, transmit_count);
        let receive = Ring::map(&socket, XDP_PGOFF_RX_RING, &offsets.rx, receive_count);
        let transmit = Ring::map(&socket, XDP_PGOFF_TX_RING, &offsets.tx, transmit_count);
        let mut fill = Producer::new(fill.map_err(&map)?);
        for chunk in free.drain(..receive_count as usize) {
            fill.push(umem.give(chunk));
        }
        fill.submit();
        let bind = |flags| bind_queue(&socket, interface.index(), queue, flags);
        let takes_several =
            negotiate(bind, config.copy, several, refused).map_err(failed("bind to it"))?;
        let is_zero_copy = xdp_options(&socket)
            .is_ok_and(|options| options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY));
        Ok(Self {
            socket: Arc::new(socket),
            umem,
            fill,
            completion: Consumer::new(completion.map_err(&map)?),
            receive: Consumer::new(receive.map_err(&map)?),
            transmit: Producer::new(transmit.map_err(&map)?),
            free,
            is_zero_copy,
            takes_several,
            tells_taken,
        })
    }
}

/// Entries of the ring for so many frames.
fn ring_size(frames: u32) -> u32 {
    frames.clamp(64, 65_536).next_power_of_two()
}

fn register(socket: &OwnedFd, umem: &Umem) -> rustix::io::Result<()> {
    let registration = XdpUmemReg {
        addr: umem.address(),
        len: umem.len(),
        chunk_size: umem.chunk_len() as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    set_xdp_umem_reg(socket, registration)
}

/// Options without which everything works, only slower. Says whether the kernel is so new that it tells
/// after each kick that sent something what it has taken, which it does since 6.17. It refuses a budget
/// beyond the ring.
fn set_options(
    socket: &OwnedFd,
    config: &XdpConfig,
    ring_len: u32,
    refused: &mut Vec<String>,
) -> bool {
    let set = |level, option, value: i32| {
        raw_calls::setsockopt(socket.as_raw_fd(), level, option, &value.to_ne_bytes())
            .map(drop)
            .map_err(|errno| said(Errno::from_raw_os_error(errno)))
    };
    // An older kernel has no such option, and a kick for every 32 frames does.
    let budget = TRANSMIT_BUDGET.min(i32::try_from(ring_len).unwrap_or(i32::MAX));
    let has_budget = set(SOL_XDP, XDP_MAX_TX_SKB_BUDGET, budget).is_ok();
    if let Some(time_us) = config.busy_poll_us {
        let time_us = i32::try_from(time_us).unwrap_or(i32::MAX);
        let outcome = set(SOL_SOCKET, SO_PREFER_BUSY_POLL, 1)
            .and_then(|()| set(SOL_SOCKET, SO_BUSY_POLL, time_us))
            .and_then(|()| set(SOL_SOCKET, SO_BUSY_POLL_BUDGET, POLL_BUDGET));
        if let Err(error) = outcome {
            refused.push(format!("busy polling ({error})"));
        }
    }
    has_budget
}

/// Binds by `bind`, and says whether packets may take several descriptors (XDP_USE_SG) where that is
/// wanted: a kernel before 6.6 does not know the flag, and a driver that is to move frames itself may
/// take only whole ones. With neither way of moving frames asked for, the kernel tries zero-copy first.
fn negotiate(
    mut bind: impl FnMut(SocketAddrXdpFlags) -> rustix::io::Result<()>,
    copy: XdpCopy,
    several: bool,
    refused: &mut Vec<String>,
) -> rustix::io::Result<bool> {
    let flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP
        | match copy {
            XdpCopy::Auto => SocketAddrXdpFlags::empty(),
            XdpCopy::Copy => SocketAddrXdpFlags::XDP_COPY,
            XdpCopy::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
        };
    if !several {
        return bind(flags).map(|()| false);
    }
    match bind(flags | SocketAddrXdpFlags::XDP_USE_SG) {
        Err(errno @ (Errno::INVAL | Errno::OPNOTSUPP)) => {
            bind(flags)?;
            refused.push(format!("packets in several descriptors ({})", said(errno)));
            Ok(false)
        }
        bound => bound.map(|()| true),
    }
}

/// Binds the socket to a queue.
fn bind_queue(
    socket: &OwnedFd,
    interface_index: u32,
    queue: u32,
    flags: SocketAddrXdpFlags,
) -> rustix::io::Result<()> {
    let address = SocketAddrXdp::new(flags, interface_index, queue);
    let started = Instant::now();
    loop {
        match bind(socket, &address) {
            Err(Errno::BUSY) if started.elapsed() < CLOSING => {
                std::thread::sleep(Duration::from_millis(1));
            }
            bound => return bound,
        }
    }
}

/// Why a queue could not be opened, and what to do.
fn socket_error(name: &str, queue: u32, what: &str, errno: Errno) -> DeviceError {
    let why = match errno {
        Errno::PERM | Errno::ACCESS => {
            "permission was denied: it needs CAP_NET_RAW in the network namespace of the interface"
        }
        Errno::AFNOSUPPORT => "the kernel has no AF_XDP (CONFIG_XDP_SOCKETS)",
        Errno::NOBUFS | Errno::NOMEM => {
            "there is too little memory that may be locked: raise the limit (`ulimit -l`) or take \
             fewer frames"
        }
        Errno::BUSY => "another socket holds the queue: stop that program",
        Errno::OPNOTSUPP => {
            "the driver does not do zero-copy: leave the way of moving frames to the kernel"
        }
        Errno::NODEV | Errno::NXIO => "the interface is gone",
        Errno::NETDOWN => "the interface is down: bring it up first",
        _ => "the system refused",
    };
    let message = format!(
        "no AF_XDP on queue {queue} of the interface {name}: could not {what}: {why}: {}",
        said(errno)
    );
    DeviceError::new(kind_of(errno), message)
}

/// The descriptor of a part of a packet, of which more comes or not.
pub(super) fn descriptor(address: u64, len: usize, is_continued: bool) -> Descriptor {
    Descriptor { address, len: len as u32, options: if is_continued { CONTINUED } else { 0 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let says = |errno, what: &str| {
            let error = socket_error("eth7", 3, "bind to it", errno);
            assert!(error.message.contains(what), "{what:?} is not in: {error}");
            assert!(error.message.contains("queue 3 of the interface eth7"), "{error}");
        };
        says(Errno::PERM, "CAP_NET_RAW");
        says(Errno::NOBUFS, "ulimit -l");
        says(Errno::BUSY, "another socket");
        says(Errno::NETDOWN, "bring it up");
        says(Errno::OPNOTSUPP, "zero-copy");
    }

    /// Who wants several descriptors for a packet and is refused is bound without, and told; whatever
    /// else is wrong is an error as it is without.
    #[test]
    fn several_descriptors_are_negotiated() {
        let negotiated = |copy, several, says: &dyn Fn(bool) -> rustix::io::Result<()>| {
            let (mut tried, mut refused) = (Vec::new(), Vec::new());
            let bind = |flags: SocketAddrXdpFlags| {
                tried.push(flags);
                says(flags.contains(SocketAddrXdpFlags::XDP_USE_SG))
            };
            let bound = negotiate(bind, copy, several, &mut refused);
            (bound, tried, refused.join("; "))
        };
        let (plain, copy) = (SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, SocketAddrXdpFlags::XDP_COPY);
        let gather = SocketAddrXdpFlags::XDP_USE_SG;
        let granted = negotiated(XdpCopy::Auto, true, &|_| Ok(()));
        assert_eq!(granted, (Ok(true), vec![plain | gather], String::new()));
        let whole = negotiated(XdpCopy::Copy, false, &|_| Ok(()));
        assert_eq!(whole, (Ok(false), vec![plain | copy], String::new()));
        for errno in [Errno::INVAL, Errno::OPNOTSUPP] {
            let says = |several| if several { Err(errno) } else { Ok(()) };
            let (bound, tried, refused) = negotiated(XdpCopy::Auto, true, &says);
            assert_eq!((bound, tried), (Ok(false), vec![plain | gather, plain]));
            assert!(refused.starts_with("packets in several descriptors ("), "{refused}");
            // The driver cannot do what was asked for at all.
            let never = negotiated(XdpCopy::ZeroCopy, true, &|_| Err(errno));
            assert_eq!((never.0, never.2), (Err(errno), String::new()));
        }
        let down = negotiated(XdpCopy::Auto, true, &|_| Err(Errno::NETDOWN));
        assert_eq!((down.0, down.1.len()), (Err(Errno::NETDOWN), 1));
    }

    #[test]
    fn rings_have_powers_of_two() {
        assert_eq!([0, 64, 65, 2_048, u32::MAX].map(ring_size), [64, 64, 128, 2_048, 65_536]);
    }
}
