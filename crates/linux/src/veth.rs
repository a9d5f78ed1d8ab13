//! Two Ethernet interfaces joined by a virtual cable.
//!
//! Devices that take over an existing interface (AF_PACKET, AF_XDP) need one that nobody else uses.
//! One end of the pair, the *near* one, is theirs: the kernel has no address there and does not
//! speak. The *far* one is the kernel's, with addresses and whatever else a host has.

use crate::interface::Interface;
use crate::netlink;
use crate::system_error::SystemError;

/// A pair of interfaces; both disappear with this value.
#[derive(Debug)]
pub struct VethPair {
    near: Interface,
    far: Interface,
}

impl VethPair {
    /// Makes a pair in the calling thread's network namespace. Both ends are down.
    ///
    /// # Errors
    /// Where the system refuses (it needs CAP_NET_ADMIN and the veth driver), or where one of the
    /// names is taken or longer than 15 bytes.
    pub fn new(near: &str, far: &str) -> Result<Self, SystemError> {
        Self::with_queues(near, far, 1)
    }

    /// The same with so many queues each way at either end, 4,096 at most: what goes out by a queue
    /// comes in by that of the same number.
    ///
    /// # Errors
    /// As [`VethPair::new`], or where there cannot be so many queues.
    pub fn with_queues(near: &str, far: &str, queues: u32) -> Result<Self, SystemError> {
        Self::with_uneven_queues(near, far, queues, queues)
    }

    /// The same with so many queues `there`, from the near end to the far one, and so many `back`.
    ///
    /// # Errors
    /// As [`VethPair::with_queues`].
    pub fn with_uneven_queues(
        near: &str,
        far: &str,
        there: u32,
        back: u32,
    ) -> Result<Self, SystemError> {
        netlink::add_veth_pair(near, far, (there, back)).map_err(|errno| {
            let what = format!("the veth pair {near:?} and {far:?} could not be made");
            SystemError::refused(what, errno)
        })?;
        let pair = Self { near: Interface::named(near)?, far: Interface::named(far)? };
        // A kernel without IPv6 has nothing to be switched off.
        let _ = pair.near.disable_ipv6();
        Ok(pair)
    }

    /// The end for a device of ours: no address, and the kernel does not speak there.
    #[must_use]
    pub fn near(&self) -> &Interface {
        &self.near
    }

    /// The kernel's end.
    #[must_use]
    pub fn far(&self) -> &Interface {
        &self.far
    }

    /// Sets the longest IP packet that both ends carry.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn set_mtu_bytes(&self, mtu: usize) -> Result<(), SystemError> {
        self.near.set_mtu_bytes(mtu)?;
        self.far.set_mtu_bytes(mtu)
    }

    /// Brings both ends up.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn set_up(&self) -> Result<(), SystemError> {
        self.near.set_up()?;
        self.far.set_up()
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        // It takes the other end along. It fails only where the pair is gone already.
        let _ = self.near.remove();
    }
}
