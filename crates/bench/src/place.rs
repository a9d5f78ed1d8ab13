//! Where runs take place: a network of our own, and the addresses in it.
//!
//! [`Place::enter`] gives the process a network namespace that nobody else sees; every device
//! lives and dies there. It must run before the first thread starts.

use crate::scenario::{DeviceKind, PeerKind, Scenario};
use crate::station::Station;
use crate::{Attempt, Failure};
use device::TransmitMode;
use linux::Sandbox;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The network of the runs: private addresses (RFC 1918) and unique local ones (RFC 4193).
const NEAR: (IpAddr, IpAddr) = (
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2)),
);
const FAR: (IpAddr, IpAddr) = (
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1)),
);

/// The addresses of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// This stack's.
    pub near: IpAddr,
    /// The other end's.
    pub far: IpAddr,
    /// Length of the prefix that both share.
    pub prefix_len: u8,
}

impl Addresses {
    /// Those of a scenario.
    #[must_use]
    pub const fn of(scenario: &Scenario) -> Self {
        if scenario.ipv6 {
            Self { near: NEAR.1, far: FAR.1, prefix_len: 64 }
        } else {
            Self { near: NEAR.0, far: FAR.0, prefix_len: 24 }
        }
    }
}

/// A network of our own in which TAP devices can be made.
#[derive(Debug)]
pub struct Place {
    sandbox: Sandbox,
}

impl Place {
    /// Enters it, and makes sure that a TAP device can be had there.
    ///
    /// # Errors
    /// A sentence that says why there is none, and how to get one.
    pub fn enter() -> Result<Self, Failure> {
        let sandbox = Sandbox::enter().map_err(|error| no_tap(&error.to_string()))?;
        let probe =
            Scenario::stream(DeviceKind::Tap, crate::Direction::Send, TransmitMode::Multidata);
        match Station::over_kernel_device(&probe) {
            Ok(_) => Ok(Self { sandbox }),
            Err(failure) => Err(no_tap(&failure.to_string())),
        }
    }

    /// Enters it for what needs no TAP device.
    ///
    /// # Errors
    /// A sentence that says why there is none.
    pub fn enter_without_devices() -> Result<Self, Failure> {
        let sandbox = Sandbox::enter().attempt(|| "no network of its own can be had")?;
        Ok(Self { sandbox })
    }

    /// Why a scenario cannot run here, although TAP devices can be had: an offload or a thread for
    /// NAPI that this kernel, or this container, does not grant.
    #[must_use]
    pub fn why_not(&self, scenario: &Scenario) -> Option<Failure> {
        match scenario.peer() {
            PeerKind::Own if scenario.device == DeviceKind::TapPair => {
                Station::pair(scenario).err()
            }
            PeerKind::Own => None,
            PeerKind::Kernel => Station::over_kernel_device(scenario).err(),
        }
    }

    /// What is less than wished for, a sentence each.
    #[must_use]
    pub fn shortcomings(&self) -> &[String] {
        self.sandbox.refused()
    }
}

fn no_tap(reason: &str) -> Failure {
    Failure::new(format!(
        "no TAP device can be had: {reason}. To get one, run on Linux with the tun module loaded \
         (modprobe tun), /dev/net/tun open to you (chmod 666 /dev/net/tun), and either user \
         namespaces allowed (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone) \
         or as root"
    ))
}

/// Does something in a thread that is kept on this CPU, or where none is named in the calling one.
///
/// # Errors
/// A sentence, where there is no such CPU for this process.
pub fn on_cpu<T: Send>(cpu: Option<usize>, act: impl FnOnce() -> T + Send) -> Result<T, Failure> {
    let Some(cpu) = cpu else { return Ok(act()) };
    let done = std::thread::scope(|scope| scope.spawn(|| pin_to_cpu(cpu).map(|()| act())).join());
    done.unwrap_or_else(|_| Err(Failure::new("a thread on a CPU of its own panicked")))
}

/// Keeps the calling thread, and the threads it starts from now on, on one CPU.
///
/// # Errors
/// A sentence, where there is no such CPU for this process.
pub fn pin_to_cpu(cpu: usize) -> Result<(), Failure> {
    linux::cpu::pin(&[cpu]).attempt(|| format!("cannot run on CPU {cpu} only"))
}
