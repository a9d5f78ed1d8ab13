//! A bridge of the kernel's: interfaces joined as by an Ethernet switch.
//!
//! Two TAP interfaces on one bridge are a cable between two stacks of this kind: every frame takes the
//! kernel's way in and its way out, and no TCP but theirs is on it.

use crate::interface::Interface;
use crate::netlink;
use crate::system_error::SystemError;

/// A bridge; it disappears with this value, its ports stay.
#[derive(Debug)]
pub struct Bridge {
    interface: Interface,
}

impl Bridge {
    /// Makes a bridge without ports in the calling thread's network namespace and brings it up. The
    /// kernel does not speak there: it has no address on it.
    ///
    /// # Errors
    /// Where the system refuses (it needs CAP_NET_ADMIN and the bridge driver), or where the name is
    /// taken or longer than 15 bytes.
    pub fn new(name: &str) -> Result<Self, SystemError> {
        netlink::add_bridge(name).map_err(|errno| {
            SystemError::refused(format!("the bridge {name:?} could not be made"), errno)
        })?;
        let bridge = Self { interface: Interface::named(name)? };
        // A kernel without IPv6 has nothing to be switched off.
        let _ = bridge.interface.disable_ipv6();
        bridge.interface.set_up()?;
        Ok(bridge)
    }

    /// Makes an interface a port of the bridge; the kernel does not speak there either.
    ///
    /// # Errors
    /// Where the system refuses, as for an interface that is a port already.
    pub fn add_port(&self, port: &Interface) -> Result<(), SystemError> {
        let _ = port.disable_ipv6();
        port.join(&self.interface).map_err(|errno| {
            let names = (port.name(), self.interface.name());
            let what = format!("{:?} could not be made a port of {:?}", names.0, names.1);
            SystemError::refused(what, errno)
        })
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // It fails only where the bridge is gone already.
        let _ = self.interface.remove();
    }
}
