//! A TUN interface as a file of packets, one a read: for whoever plays the network in front of the
//! kernel, packet by packet. A stack wants [`TapDevice`](crate::TapDevice) instead.

use crate::interface::Interface;
use crate::ioctl;
use crate::system_error::SystemError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::time::Duration;

const IFF_TUN: i16 = 0x0001;
const IFF_NO_PI: i16 = 0x1000;

/// Longest packet.
const PACKET_BYTES_MAX: usize = 65_536;

/// An open TUN interface, which disappears with it.
#[derive(Debug)]
pub struct TunFile {
    file: OwnedFd,
    interface: Interface,
}

impl TunFile {
    /// Makes the interface `name`. It is left down and without addresses: see [`Interface`].
    ///
    /// # Errors
    /// Where there is no TUN driver or no permission.
    pub fn open(name: &str) -> Result<Self, SystemError> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
            .map_err(|errno| SystemError::refused("/dev/net/tun could not be opened", errno))?;
        ioctl::tun_attach(&file, name, IFF_TUN | IFF_NO_PI)
            .map_err(|errno| SystemError::refused("a TUN interface could not be made", errno))?;
        Ok(Self { file, interface: Interface::named(name)? })
    }

    /// The kernel's side of it.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The next packet that the kernel sent; `None` where there is none yet.
    ///
    /// # Errors
    /// Where the interface is gone.
    pub fn read(&self) -> Result<Option<Vec<u8>>, SystemError> {
        let mut packet = vec![0; PACKET_BYTES_MAX];
        match rustix::io::read(&self.file, packet.as_mut_slice()) {
            Ok(len) => {
                packet.truncate(len);
                Ok(Some(packet))
            }
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(SystemError::refused("no packet could be read", errno)),
        }
    }

    /// Lets a packet arrive at the kernel.
    ///
    /// # Errors
    /// What the kernel has against it.
    pub fn write(&self, packet: &[u8]) -> Result<(), SystemError> {
        rustix::io::write(&self.file, packet)
            .map(|_| ())
            .map_err(|errno| SystemError::refused("the packet was refused", errno))
    }

    /// Waits until a packet can be read, for `timeout` at most.
    pub fn wait(&self, timeout: Duration) {
        let mut files = [PollFd::new(&self.file, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // What went wrong shows when it is read.
        let _ = poll(&mut files, Some(&timeout));
    }
}
