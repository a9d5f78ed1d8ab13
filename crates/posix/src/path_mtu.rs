//! IP_MTU_DISCOVER and IP_MTU, and those of IPv6: what is done about the MTU of a path, and what is known of it.

use crate::Errno;
use crate::call::Fd;
use crate::descriptors::File;
use crate::host::Host;

/// IP_PMTUDISC_WANT
pub(crate) const IP_PMTUDISC_WANT: i32 = 1;

impl Host {
    pub(crate) fn set_mtu_discovery(&mut self, fd: Fd, value: i32) -> Result<(), Errno> {
        let mode = mtu_discovery(value)?;
        self.options(fd)?.mtu_discovery = value;
        if let Some(id) = self.files.datagram(fd)?.id {
            self.shard().udp_set_mtu_discovery(id, mode)?;
        }
        Ok(())
    }

    /// TCP always finds the path's MTU and sends segments that fit, which is what both WANT and DO ask for; it
    /// has nothing else.
    pub(crate) fn set_stream_mtu_discovery(&mut self, fd: Fd, value: i32) -> Result<(), Errno> {
        match mtu_discovery(value)? {
            stack::MtuDiscovery::Want | stack::MtuDiscovery::Do => {
                self.options(fd)?.mtu_discovery = value;
                Ok(())
            }
            stack::MtuDiscovery::Dont | stack::MtuDiscovery::Probe => Err(Errno::ENOPROTOOPT),
        }
    }

    /// What is believed of the path to the peer of a connected socket (ip(7), IP_MTU).
    pub(crate) fn path_mtu(&mut self, fd: Fd) -> Result<i32, Errno> {
        let peer = match self.files.get(fd)? {
            File::Datagram(datagram) => datagram.peer,
            File::Stream(stream) => match stream.connection() {
                Some(id) => Some(self.shard().tcp_status(id)?.remote),
                None => None,
            },
            _ => None,
        };
        let peer = peer.ok_or(Errno::ENOTCONN)?;
        Ok(i32::try_from(self.shard().path_mtu(peer.ip())?).unwrap_or(i32::MAX))
    }
}

pub(crate) fn mtu_discovery(value: i32) -> Result<stack::MtuDiscovery, Errno> {
    Ok(match value {
        0 => stack::MtuDiscovery::Dont,
        1 => stack::MtuDiscovery::Want,
        2 => stack::MtuDiscovery::Do,
        3 => stack::MtuDiscovery::Probe,
        _ => return Err(Errno::EINVAL),
    })
}
