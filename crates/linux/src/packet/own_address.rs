//! Our hardware address, for which the interface is to go on taking frames.
//!
//! An interface takes what is for its own address, and for others that it is told of by a packet socket,
//! whether that receives anything or not. Where ours is its own it is told nothing, for many a device has no
//! way to take a second one but to take every frame. But its own may become another one: it is given one, a
//! bridge takes that of another port, an interface is made anew. Then it is told of ours, as it is from the start
//! where the two differ.

use super::calls::{self, Membership};
use crate::ioctl;
use device::{DeviceError, HardwareAddress};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::ErrorKind;

/// The address that a program asks for.
///
/// # Errors
/// It is that of a group, from which nothing comes.
pub(crate) fn asked_for(address: HardwareAddress) -> Result<HardwareAddress, DeviceError> {
    match address.is_multicast() {
        true => {
            let message =
                format!("the address {address} cannot be ours: it is a multicast address");
            Err(DeviceError::new(ErrorKind::InvalidInput, message))
        }
        false => Ok(address),
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct OwnAddress {
    address: HardwareAddress,
    /// The interface was told of it.
    is_told: bool,
}

impl OwnAddress {
    pub(crate) fn new(address: HardwareAddress) -> Self {
        Self { address, is_told: false }
    }

    /// Tells interface `index` by this packet socket, where its address is not ours and it does not know yet.
    ///
    /// # Errors
    /// Where the interface is gone, or refuses.
    pub(crate) fn keep(&mut self, socket: &OwnedFd, index: u32) -> Result<(), Errno> {
        if self.is_told {
            return Ok(());
        }
        let name = ioctl::name(socket, index)?;
        if ioctl::hardware_address(socket, &name)? != self.address {
            calls::join(socket, index, Membership::Unicast(self.address))?;
            self.is_told = true;
        }
        Ok(())
    }

    /// The same for an interface that was not known before, or forgot what it was told.
    ///
    /// # Errors
    /// As [`OwnAddress::keep`].
    pub(crate) fn keep_anew(&mut self, socket: &OwnedFd, index: u32) -> Result<(), Errno> {
        self.is_told = false;
        self.keep(socket, index)
    }
}

/// The same by a packet socket of its own, which receives nothing, for what has none. The interface takes what is
/// for groups as well: neighbours ask for our IPv6 addresses by those (RFC 4861, 7.2.2), which the kernel
/// is no member of.
#[derive(Debug)]
pub(crate) struct Teller {
    socket: OwnedFd,
    index: u32,
    own_address: OwnAddress,
}

impl Teller {
    /// For `address` on interface `index`, which is told where it has another.
    ///
    /// # Errors
    /// Where there is no packet socket to be had, or the interface is gone, or refuses.
    pub(crate) fn new(address: HardwareAddress, index: u32) -> Result<Self, Errno> {
        let socket = calls::open()?;
        calls::join(&socket, index, Membership::AllMulticast)?;
        let mut teller = Self { socket, index, own_address: OwnAddress::new(address) };
        teller.keep()?;
        Ok(teller)
    }

    /// As [`OwnAddress::keep`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn keep(&mut self) -> Result<(), Errno> {
        self.own_address.keep(&self.socket, self.index)
    }
}
