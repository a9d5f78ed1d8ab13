//! Ethernet frames over a stream socket: the cable to a virtual machine, or to a switch in user space.
//!
//! It is what QEMU calls `-netdev stream`, and what passt, gvproxy and libslirp's helpers speak: each frame
//! behind its length, four bytes in network order.
//!
//! ```text
//!  stream   | length | frame | length | frame | ...
//! ```
//!
//! Neither end needs root, an interface or a namespace. A stream is where batches cost least of all devices: as many frames as
//! there are leave by one system call and come by one, and lie end to end in the block that they were read into.
//!
//! The socket is of the caller's making (Unix, TCP, vsock), and of either side. When the other end is gone the device
//! has failed; a stack whose machine comes back replaces it, and its connections go on.

mod queue;
mod receive;
mod send;

pub use queue::StreamQueue;

use crate::packet::own_address;
use crate::system_error::SystemError;
use crate::tap::random_address;
use crate::waiter::FileWaiter;
use device::{Capabilities, DeviceError, Forms, HardwareAddress, Medium};
use rustix::fd::OwnedFd;
use rustix::net::{SocketType, getpeername, sockopt};
use std::io::ErrorKind;
use std::sync::Arc;

/// What stands in front of every frame, in bytes.
const LENGTH_LEN: usize = 4;

/// The longest frame in bytes, which is QEMU's.
const FRAME_LEN_MAX: usize = 69_632;

/// What packets may be no longer than at least (RFC 791), and at most.
const MTU_BYTES_MIN: usize = 68;
const MTU_BYTES_MAX: usize = 65_535;

/// How to use a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Our own address on the link; `None` picks a random one.
    pub hardware_address: Option<HardwareAddress>,
    /// The longest IP packet in bytes, which the other end must have likewise: 68 to 65,535. What comes may be longer.
    /// Nothing that is 1,500 bytes long lies between two ends of a socket, so where the other end can have more, more
    /// is faster.
    pub mtu_bytes: usize,
    /// What the kernel may hold for the other end, with its overhead, as far as the system grants it
    /// (`net.core.wmem_max`): as many frames as are to wait there, and to be read by one call.
    pub socket_buffer_bytes: usize,
}

impl Default for StreamConfig {
    fn default() -> Self {
        // A few hundred usual frames.
        Self { hardware_address: None, mtu_bytes: 1_500, socket_buffer_bytes: 1 << 20 }
    }
}

/// One end of a stream of frames. It has one queue.
#[derive(Debug)]
pub struct StreamDevice {
    socket: Arc<OwnedFd>,
    capabilities: Capabilities,
    address: HardwareAddress,
    about: String,
    is_taken: bool,
}

impl StreamDevice {
    /// Batches, and single packets: the stream has no form of its own for others.
    pub const FORMS: Forms = Forms::NONE;

    /// Makes a device of a stream socket that is connected. Whether the socket blocks does not matter.
    ///
    /// # Errors
    /// Where it is no stream socket or not connected, or the configuration cannot be.
    pub fn over(socket: impl Into<OwnedFd>, config: &StreamConfig) -> Result<Self, DeviceError> {
        let socket = socket.into();
        let refused = |errno| SystemError::refused("frames cannot go over this file", errno);
        if sockopt::socket_type(&socket).map_err(refused)? != SocketType::STREAM {
            let message = "frames cannot go over this socket: it is no stream (SOCK_STREAM)";
            return Err(DeviceError::new(ErrorKind::InvalidInput, message));
        }
        getpeername(&socket).map_err(|errno| {
            SystemError::refused("frames cannot go over this socket before it is connected", errno)
        })?;
        let mtu_bytes = config.mtu_bytes;
        if !(MTU_BYTES_MIN..=MTU_BYTES_MAX).contains(&mtu_bytes) {
            let message = format!(
                "a stream of frames cannot have an MTU of {mtu_bytes}: {MTU_BYTES_MIN} to \
                 {MTU_BYTES_MAX} bytes are possible"
            );
            return Err(DeviceError::new(ErrorKind::InvalidInput, message));
        }
        // The system grants what it grants, and every stream has some.
        let _ = sockopt::set_socket_send_buffer_size(&socket, config.socket_buffer_bytes);
        let address = match config.hardware_address {
            Some(address) => own_address::asked_for(address)?,
            // Of the other end's nothing is known, and of two at random none is like another.
            None => random_address(HardwareAddress([0; 6]))?,
        };
        let capabilities = Capabilities {
            forms: Self::FORMS,
            ..Capabilities::plain(Medium::Ethernet(address), mtu_bytes)
        };
        let about = format!(
            "frames over a stream socket, MTU {mtu_bytes}, address {address}; nothing was refused"
        );
        Ok(Self { socket: Arc::new(socket), capabilities, address, about, is_taken: false })
    }

    /// Our own address on the link.
    #[must_use]
    pub fn hardware_address(&self) -> HardwareAddress {
        self.address
    }

    /// A sentence: what is on.
    #[must_use]
    pub fn negotiated(&self) -> &str {
        &self.about
    }

    /// What it can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    /// Opens queue `index`, counted from zero, which a stack is built on.
    ///
    /// # Errors
    /// Where there is no such queue, or it is taken.
    pub fn queue(&mut self, index: usize) -> Result<StreamQueue, DeviceError> {
        let refused = match (index, self.is_taken) {
            (0, false) => None,
            (0, true) => Some((ErrorKind::ResourceBusy, "is taken")),
            _ => Some((ErrorKind::NotFound, "does not exist: it has one queue")),
        };
        if let Some((kind, why)) = refused {
            return Err(DeviceError::new(kind, format!("queue {index} of the stream {why}")));
        }
        let waiter = FileWaiter::new(Arc::clone(&self.socket))
            .map_err(|errno| SystemError::refused("an eventfd could not be made", errno))?;
        self.is_taken = true;
        let socket = Arc::clone(&self.socket);
        Ok(StreamQueue::new(socket, Arc::new(waiter), self.capabilities.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    fn refusal(socket: impl Into<OwnedFd>, config: &StreamConfig) -> String {
        StreamDevice::over(socket, config).expect_err("it cannot be").message
    }

    #[test]
    fn what_is_no_connected_stream_is_refused_in_words() {
        let usual = StreamConfig::default();
        let (datagrams, _peer) = UnixDatagram::pair().expect("a pair of sockets");
        assert!(refusal(datagrams, &usual).contains("no stream"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        assert!(refusal(listener, &usual).contains("before it is connected"));
        let file = std::fs::File::open("/dev/null").expect("it can be read");
        assert!(refusal(file, &usual).contains("frames cannot go over this file"));
    }

    #[test]
    fn a_configuration_that_cannot_be_is_refused_in_words() {
        let stream = || UnixStream::pair().expect("a pair of sockets").0;
        for mtu_bytes in [67, 65_536] {
            let config = StreamConfig { mtu_bytes, ..StreamConfig::default() };
            assert!(
                refusal(UnixStream::pair().expect("a pair").0, &config).contains("68 to 65535")
            );
        }
        let group = Some(HardwareAddress([1, 0, 0, 0, 0, 0]));
        let config = StreamConfig { hardware_address: group, ..StreamConfig::default() };
        assert!(StreamDevice::over(stream(), &config).is_err());
    }

    #[test]
    fn it_has_one_queue_over_any_stream() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(address).expect("somebody listens");
        let mut device = StreamDevice::over(stream, &StreamConfig::default()).expect("a stream");
        assert_eq!(device.queue(1).expect_err("there is none").kind, ErrorKind::NotFound);
        device.queue(0).expect("it is there");
        assert_eq!(device.queue(0).expect_err("it is taken").kind, ErrorKind::ResourceBusy);
    }
}
