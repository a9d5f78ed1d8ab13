//! A file of the TUN driver that somebody else opened: what the kernel says it is.
//!
//! The driver answers for the interface whatever namespace it is in; the interface itself, its MTU and whether
//! it is up, is asked by its name, which is another interface's in another namespace. So it is
//! asked only where it is in the namespace of the calling thread for sure.

use super::{Attached, IFF_NAPI, IFF_NO_PI, IFF_VNET_HDR, MTU_BYTES, Napi, TapConfig};
use crate::interface::Interface;
use crate::ioctl;
use crate::system_error::{SystemError, said};
use core::ops::RangeInclusive;
use device::DeviceError;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, open};
use std::io::ErrorKind;

/// The network namespace of the calling thread.
const OUR_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// What the driver takes (ETH_MIN_MTU), and what fits an IPv4 header.
const MTU_BYTES_POSSIBLE: RangeInclusive<usize> = 68..=65_535;

/// What `file` is attached to. It does not block from now on.
pub(super) fn attached(
    file: &OwnedFd,
    config: &TapConfig,
    refused: &mut Vec<String>,
) -> Result<Attached, DeviceError> {
    let (name, flags) = ioctl::tun_interface(file).map_err(|errno| {
        let what = "the descriptor is no TAP or TUN file, or is attached to no interface";
        SystemError::refused(what, errno)
    })?;
    check_shape(&name, flags)?;
    if config.offload && flags & IFF_VNET_HDR == 0 {
        refused.push("offload (the descriptor was attached without IFF_VNET_HDR)".to_owned());
    }
    if config.napi != Napi::Off && flags & IFF_NAPI == 0 {
        refused.push("NAPI (the descriptor was attached without IFF_NAPI)".to_owned());
    }
    fcntl_getfl(file).and_then(|flags| fcntl_setfl(file, flags | OFlags::NONBLOCK)).map_err(
        |errno| SystemError::refused("the descriptor cannot be made not to block", errno),
    )?;
    let interface = match reach(file, &name) {
        Ok(interface) => Some(interface),
        Err(why) => {
            let mtu_bytes = config.mtu_bytes.unwrap_or(MTU_BYTES);
            if !MTU_BYTES_POSSIBLE.contains(&mtu_bytes) {
                let message = format!("no interface has an MTU of {mtu_bytes}");
                return Err(DeviceError::new(ErrorKind::InvalidInput, message));
            }
            refused.push(format!(
                "watching the interface, whose MTU is taken to be {mtu_bytes} ({why})"
            ));
            None
        }
    };
    Ok(Attached { name, flags, interface })
}

/// Whether what stands in front of a frame is a virtio-net header or nothing.
fn check_shape(name: &str, flags: i16) -> Result<(), DeviceError> {
    if flags & IFF_NO_PI != 0 {
        return Ok(());
    }
    let message = format!(
        "the descriptor of the interface {name} has packet information in front of its frames: attach it with \
         IFF_NO_PI"
    );
    Err(DeviceError::new(ErrorKind::InvalidInput, message))
}

/// The interface by the calling thread's namespace, or why it cannot be had.
fn reach(file: &OwnedFd, name: &str) -> Result<Interface, String> {
    let untold = |errno| format!("its network namespace could not be asked for: {}", said(errno));
    let its = ioctl::tun_namespace(file).and_then(fstat).map_err(untold)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let ours = open(OUR_NAMESPACE, flags, Mode::empty()).and_then(fstat);
    let ours = ours.map_err(|errno| format!("{OUR_NAMESPACE}: {}", said(errno)))?;
    if (its.st_dev, its.st_ino) != (ours.st_dev, ours.st_ino) {
        return Err("it is in another network namespace".to_owned());
    }
    Interface::named(name).map_err(|error| error.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TapDevice;
    use std::fs::File;

    #[test]
    fn what_cannot_be_spoken_with_is_refused_with_what_to_do() {
        let nothing = File::open("/dev/null").expect("Linux has it");
        let error = TapDevice::from_fd(nothing.into(), &TapConfig::default());
        let error = error.expect_err("no TAP").message;
        assert!(error.contains("no TAP or TUN file"), "{error}");
        let error = check_shape("tap7", IFF_VNET_HDR).expect_err("with packet information").message;
        assert!(error.contains("tap7") && error.contains("with IFF_NO_PI"), "{error}");
        assert_eq!(check_shape("tap7", IFF_NO_PI), Ok(()));
    }
}
