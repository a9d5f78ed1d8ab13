//! The kernel's side of a network interface: what `ip link` and `ip addr` do, without them.

use crate::ioctl;
use crate::netlink;
use crate::system_error::SystemError;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use device::HardwareAddress;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Of what is longer a TAP says, and a TUN, that it is not permitted: its ring is one allocation of the kernel's, 4 MiB at
/// most, of pointers.
const TAP_QUEUE_PACKETS_MAX: usize = (4 << 20) / 8;

const IFF_UP: i16 = 0x1;
const IFF_RUNNING: i16 = 0x40;

/// How long the kernel is given for what it does a moment later: its link watch runs once a second.
const PATIENCE: Duration = Duration::from_secs(2);

/// What an interface may do for the kernel's TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Completing checksums of packets on their way out. Where a device hands up frames and says
    /// nothing of their checksums (AF_XDP), its peer on a virtual cable must not leave them out.
    TransmitChecksum,
    /// Splitting super-frames on their way out.
    Segmentation,
    /// Splitting super-frames in software just before they go out.
    SoftwareSegmentation,
    /// Coalescing segments on their way in (GRO).
    Coalescing,
    /// Taking VLAN tags out of frames on their way in: they come up beside the frame, and not at all where frames
    /// are handed up alone (AF_XDP), which then seem to be of the untagged network.
    ReceiveVlanOffload,
    /// Leaving it to the device to put VLAN tags into frames on their way out. A virtual cable does not, so its
    /// far end finds them beside the frame.
    TransmitVlanOffload,
}

/// How a feature is switched: by a command of its own, whose question is the number before it, or as a bit of
/// the flags that have one together.
enum Switch {
    Command(u32),
    Flag(u32),
}

const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;

impl Feature {
    /// The command or flag of linux/ethtool.h, and what `ethtool -K` calls it.
    const fn switch(self) -> (Switch, &'static str) {
        match self {
            Self::TransmitChecksum => (Switch::Command(0x17), "tx"),
            Self::Segmentation => (Switch::Command(0x1f), "tso"),
            Self::SoftwareSegmentation => (Switch::Command(0x24), "gso"),
            Self::Coalescing => (Switch::Command(0x2c), "gro"),
            Self::ReceiveVlanOffload => (Switch::Flag(1 << 8), "rxvlan"),
            Self::TransmitVlanOffload => (Switch::Flag(1 << 7), "txvlan"),
        }
    }
}

/// An interface of the network namespace in which this value was made.
///
/// Changing it needs CAP_NET_ADMIN there, as [`Sandbox`](crate::Sandbox) gives it. Addresses,
/// neighbours and routes, and what is switched by files of /proc and /sys (IPv6, threaded NAPI), go to the
/// namespace of the calling thread; everything else to that in which the value was made.
#[derive(Debug)]
pub struct Interface {
    name: String,
    index: u32,
    /// Any socket will do: ioctls of interfaces need one to know the namespace.
    socket: OwnedFd,
    /// For what no ioctl does; absent where the process may have none.
    requests: Option<OwnedFd>,
}

impl Interface {
    /// The interface of this name.
    ///
    /// # Errors
    /// Where there is none.
    pub fn named(name: &str) -> Result<Self, SystemError> {
        let refused =
            |errno| SystemError::refused(format!("there is no interface {name:?}"), errno);
        let socket =
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
                .map_err(refused)?;
        if name.is_empty() || name.len() > ioctl::NAME_LEN_MAX {
            return Err(refused(Errno::NODEV));
        }
        let index = ioctl::index(&socket, name).map_err(refused)?;
        Ok(Self { name: name.to_owned(), index, socket, requests: netlink::socket().ok() })
    }

    /// Another value for the same interface in the same namespace, whatever that of the calling thread is.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub fn try_clone(&self) -> Result<Self, SystemError> {
        let copy = |socket: &OwnedFd| {
            rustix::io::fcntl_dupfd_cloexec(socket, 0)
                .map_err(|errno| self.refused("be asked by another socket", errno))
        };
        let (socket, requests) =
            (copy(&self.socket)?, self.requests.as_ref().map(copy).transpose()?);
        Ok(Self { name: self.name.clone(), index: self.index, socket, requests })
    }

    /// The name by which it was found. It may have another one by now, and is the same interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number by which the kernel knows it.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether it is still there: not deleted, not another one of the same name.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.called().is_ok()
    }

    /// Whether it is up.
    ///
    /// # Errors
    /// Where the interface is gone.
    pub fn is_up(&self) -> Result<bool, SystemError> {
        let flags = self.asked(|socket, name| ioctl::flags(socket, name));
        Ok(flags.map_err(|errno| self.refused("be asked for its flags", errno))? & IFF_UP != 0)
    }

    /// Brings it up.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn set_up(&self) -> Result<(), SystemError> {
        self.change_flags(|flags| flags | IFF_UP, "be brought up")
    }

    /// Takes it down.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn set_down(&self) -> Result<(), SystemError> {
        self.change_flags(|flags| flags & !IFF_UP, "be taken down")
    }

    fn change_flags(&self, change: impl Fn(i16) -> i16, what: &str) -> Result<(), SystemError> {
        self.asked(|socket, name| {
            ioctl::set_flags(socket, name, change(ioctl::flags(socket, name)?))
        })
        .map_err(|errno| self.refused(what, errno))
    }

    /// The longest IP packet it carries, in bytes.
    ///
    /// # Errors
    /// Where the interface is gone.
    pub fn mtu_bytes(&self) -> Result<usize, SystemError> {
        self.asked(|socket, name| ioctl::mtu(socket, name))
            .map_err(|errno| self.refused("be asked for its MTU", errno))
    }

    /// Sets the longest IP packet it carries.
    ///
    /// # Errors
    /// Where the system refuses; every kind of interface has its own bounds.
    pub fn set_mtu_bytes(&self, mtu: usize) -> Result<(), SystemError> {
        self.asked(|socket, name| ioctl::set_mtu(socket, name, mtu))
            .map_err(|errno| self.refused(format_args!("be given an MTU of {mtu}"), errno))
    }

    /// The kernel's own hardware address on it; all zero where the medium has none.
    ///
    /// # Errors
    /// Where the interface is gone.
    pub fn hardware_address(&self) -> Result<HardwareAddress, SystemError> {
        self.asked(|socket, name| ioctl::hardware_address(socket, name))
            .map_err(|errno| self.refused("be asked for its hardware address", errno))
    }

    /// Whether it carries Ethernet frames to and from other hosts.
    ///
    /// # Errors
    /// Where the interface is gone.
    pub fn is_ethernet(&self) -> Result<bool, SystemError> {
        self.asked(|socket, name| ioctl::is_ethernet(socket, name))
            .map_err(|errno| self.refused("be asked for its medium", errno))
    }

    /// Whether it is a TAP or TUN interface, or may be one so far as /sys tells.
    #[must_use]
    pub fn is_tun(&self) -> bool {
        let directory = std::path::Path::new("/sys/class/net").join(self.called_or_found());
        !directory.exists() || directory.join("tun_flags").exists()
    }

    /// Sets the kernel's own hardware address on it.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn set_hardware_address(&self, address: HardwareAddress) -> Result<(), SystemError> {
        self.asked(|socket, name| ioctl::set_hardware_address(socket, name, address))
            .map_err(|errno| self.refused(format_args!("be given the address {address}"), errno))
    }

    /// How many packets wait at most on their way out of the kernel. For a TAP interface that is
    /// the queue we read from.
    ///
    /// # Errors
    /// Where the interface is gone.
    pub fn transmit_queue_packets(&self) -> Result<usize, SystemError> {
        self.asked(|socket, name| ioctl::queue_len(socket, name))
            .map_err(|errno| self.refused("be asked for its queue length", errno))
    }

    /// Sets how many packets wait at most on their way out of the kernel. A TAP or TUN takes 524,288.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn set_transmit_queue_packets(&self, packets: usize) -> Result<(), SystemError> {
        let len = u32::try_from(packets).unwrap_or(u32::MAX);
        let most = match packets > TAP_QUEUE_PACKETS_MAX {
            true => ", of which a TAP or TUN takes 524,288 at most",
            false => "",
        };
        let set = self.requests().and_then(|it| netlink::set_queue_len(it, self.index, len));
        set.map_err(|errno| {
            self.refused(format_args!("be given a queue of {packets} packets{most}"), errno)
        })
    }

    /// Gives it an address and, by the prefix, a network. On an interface that is up the address
    /// can be used on return: for IPv6 no duplicate is looked for, and the call waits (rarely, and
    /// up to two seconds each) until the link is ready and the kernel takes packets to the address.
    ///
    /// # Errors
    /// Where the system refuses, or the address does not come to life.
    pub fn add_address(&self, address: IpAddr, prefix_len: u8) -> Result<(), SystemError> {
        // An IPv6 address that comes before the link is ready, which takes a moment after `set_up`,
        // never gets its route: the kernel takes it up again only if a duplicate is looked for.
        let ready = match address {
            IpAddr::V4(_) => false,
            IpAddr::V6(_) => self.is_up()? && eventually(|| self.is_running().unwrap_or(false)),
        };
        let what = format_args!("be given the address {address}/{prefix_len}");
        netlink::add_address(self.index, address, prefix_len)
            .map_err(|errno| self.refused(what, errno))?;
        if let IpAddr::V6(address) = address
            && ready
            && !eventually(|| takes_packets_to(address))
        {
            return Err(self.refused(what, Errno::TIMEDOUT));
        }
        Ok(())
    }

    /// The name that it has now, or had where it is gone, for who is to do something about it.
    pub(crate) fn called_or_found(&self) -> String {
        self.called().unwrap_or_else(|_| self.name.clone())
    }

    /// The name that it has now, by which the kernel wants to be asked.
    fn called(&self) -> Result<String, Errno> {
        ioctl::name(&self.socket, self.index)
    }

    /// What the kernel says to a call that names it.
    fn asked<T>(&self, call: impl Fn(&OwnedFd, &str) -> Result<T, Errno>) -> Result<T, Errno> {
        call(&self.socket, &self.called()?)
    }

    /// Whether it is up and its link is.
    fn is_running(&self) -> Result<bool, Errno> {
        Ok(self.asked(|socket, name| ioctl::flags(socket, name))? & IFF_RUNNING != 0)
    }

    /// Tells it a neighbour for good, so that the kernel never asks for it.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn add_neighbour(
        &self,
        address: IpAddr,
        hardware_address: HardwareAddress,
    ) -> Result<(), SystemError> {
        netlink::add_neighbour(self.index, address, hardware_address)
            .map_err(|errno| self.refused(format_args!("be told the neighbour {address}"), errno))
    }

    /// Routes a network over it, by way of a gateway where there is one.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn add_route(
        &self,
        destination: IpAddr,
        prefix_len: u8,
        gateway: Option<IpAddr>,
    ) -> Result<(), SystemError> {
        netlink::add_route(self.index, destination, prefix_len, gateway).map_err(|errno| {
            self.refused(format_args!("be the route to {destination}/{prefix_len}"), errno)
        })
    }

    /// Moves NAPI polling of the interface into a kernel thread of its own, or back, while somebody is attached who has
    /// NAPI. A persistent interface keeps it, for those who attach to it later and may not set it.
    ///
    /// # Errors
    /// Where the kernel cannot (before 5.12), where only root may, or where /sys shows another network namespace.
    pub fn set_threaded_napi(&self, on: bool) -> Result<(), SystemError> {
        let path = format!("/sys/class/net/{}/threaded", self.called_or_found());
        let wanted = if on { "1" } else { "0" };
        if fs::read_to_string(&path).is_ok_and(|is_now| is_now.trim() == wanted) {
            return Ok(());
        }
        fs::write(&path, wanted).map_err(|error| {
            SystemError::failed(format_args!("{path} could not be written"), &error)
        })
    }

    /// Switches a feature on or off, as `ethtool -K` does.
    ///
    /// # Errors
    /// Where the system refuses, or the interface cannot do it.
    pub fn set_feature(&self, feature: Feature, on: bool) -> Result<(), SystemError> {
        let (switch, word) = feature.switch();
        let switched = match switch {
            Switch::Command(command) => self.ethtool(command, u32::from(on)),
            Switch::Flag(flag) => self.ethtool(ETHTOOL_GFLAGS, 0).and_then(|flags| {
                let wanted = if on { flags | flag } else { flags & !flag };
                self.ethtool(ETHTOOL_SFLAGS, wanted)
            }),
        };
        switched.map(drop).map_err(|errno| {
            let state = if on { "on" } else { "off" };
            self.refused(format_args!("have {word} switched {state}"), errno)
        })
    }

    /// Whether a feature is on.
    ///
    /// # Errors
    /// Where the interface is gone, or cannot be asked.
    pub fn has_feature(&self, feature: Feature) -> Result<bool, SystemError> {
        let (switch, word) = feature.switch();
        let asked = match switch {
            Switch::Command(command) => self.ethtool(command - 1, 0).map(|word| word != 0),
            Switch::Flag(flag) => self.ethtool(ETHTOOL_GFLAGS, 0).map(|flags| flags & flag != 0),
        };
        asked.map_err(|errno| self.refused(format_args!("say whether {word} is on"), errno))
    }

    fn ethtool(&self, command: u32, data: u32) -> Result<u32, Errno> {
        self.asked(|socket, name| ioctl::ethtool(socket, name, command, data))
    }

    /// Keeps the kernel from speaking IPv6 on it: no link-local address, no router solicitations. It goes by the
    /// name, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn disable_ipv6(&self) -> Result<(), SystemError> {
        let path = format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", self.called_or_found());
        fs::write(&path, "1").map_err(|error| {
            SystemError::failed(format_args!("{path} could not be written"), &error)
        })
    }

    /// Deletes it, as `ip link delete` does; whoever has it open finds it gone.
    ///
    /// # Errors
    /// Where the system refuses, as for loopback.
    pub fn delete(self) -> Result<(), SystemError> {
        self.remove().map_err(|errno| self.refused("be deleted", errno))
    }

    /// The same for who has only a part in it.
    pub(crate) fn remove(&self) -> Result<(), Errno> {
        netlink::delete_link(self.requests()?, self.index)
    }

    /// Makes it a port of a bridge, which is in the same namespace.
    pub(crate) fn join(&self, bridge: &Self) -> Result<(), Errno> {
        netlink::set_master(bridge.requests()?, self.index, bridge.index)
    }

    fn requests(&self) -> Result<&OwnedFd, Errno> {
        self.requests.as_ref().ok_or(Errno::AFNOSUPPORT)
    }

    fn refused(&self, what: impl fmt::Display, errno: Errno) -> SystemError {
        let hint = if errno == Errno::PERM { " (it needs CAP_NET_ADMIN)" } else { "" };
        let name = self.called_or_found();
        SystemError::refused(format!("the interface {name} could not {what}{hint}"), errno)
    }
}

/// Whether `condition` comes true in time.
fn eventually(condition: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if started.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the kernel has a route to itself for this address.
fn takes_packets_to(address: Ipv6Addr) -> bool {
    // Where the table cannot be read, nothing can be waited for. That of /proc/net is the main thread's.
    let Ok(table) = fs::read_to_string("/proc/thread-self/net/ipv6_route") else { return true };
    lists_host_route(&table, address)
}

/// Lines of the table begin with the destination in hex digits and the prefix length.
fn lists_host_route(table: &str, address: Ipv6Addr) -> bool {
    let wanted = format!("{:032x} 80 ", u128::from(address));
    table.lines().any(|line| line.starts_with(&wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{VethPair, namespace, withheld};

    #[test]
    fn a_host_route_is_found_and_a_network_route_is_not_taken_for_it() {
        let table = "fd070000000000000000000000000001 80 00000000000000000000000000000000 00 lo\n\
                     fd080000000000000000000000000000 40 00000000000000000000000000000000 00 a\n";
        let lists = |address: &str| lists_host_route(table, address.parse().expect("an address"));
        assert!(lists("fd07::1"));
        assert!(!lists("fd07::2") && !lists("fd08::"));
    }

    #[test]
    fn an_interface_that_is_given_another_name_is_the_same() {
        let pair = namespace::enter_by_thread().and_then(|()| VethPair::new("old0", "far0"));
        let pair = match pair {
            Ok(pair) => pair,
            Err(error) => {
                let name = "an_interface_that_is_given_another_name_is_the_same";
                return withheld::cannot_run(name, &error.message);
            }
        };
        let near = pair.near();
        netlink::set_name(near.index(), "new0").expect("root of the namespace");
        assert!(near.exists() && Interface::named("old0").is_err());
        near.set_up().and_then(|()| near.set_mtu_bytes(1_400)).expect("root of the namespace");
        assert_eq!((near.is_up(), near.mtu_bytes()), (Ok(true), Ok(1_400)));
        assert!(near.set_mtu_bytes(1).expect_err("too short").message.contains("new0"));
        // Another one of its name is another one.
        let other = VethPair::new("old0", "far1").expect("root of the namespace");
        assert_eq!((near.mtu_bytes(), other.near().mtu_bytes()), (Ok(1_400), Ok(1_500)));
        let near = near.try_clone().expect("a descriptor");
        drop(pair);
        assert!(!near.exists() && near.is_up().is_err());
    }

    /// Two interfaces of one number in two namespaces, where threads of both change one of them.
    #[test]
    fn what_is_changed_and_deleted_is_the_interface_of_its_own_namespace() {
        let make = |near: &'static str, far: &'static str| {
            thread::spawn(|| namespace::enter_by_thread().and_then(|()| VethPair::new(near, far)))
        };
        let there = make("there0", "there1").join().expect("no panic");
        let here = namespace::enter_by_thread().and_then(|()| VethPair::new("here0", "here1"));
        let (here, there) = match (here, there) {
            (Ok(here), Ok(there)) => (here, there),
            (Err(error), _) | (_, Err(error)) => {
                let name = "what_is_changed_and_deleted_is_the_interface_of_its_own_namespace";
                return withheld::cannot_run(name, &error.message);
            }
        };
        assert_eq!(here.near().index(), there.near().index());
        there.near().set_transmit_queue_packets(77).expect("root of the namespace");
        assert_eq!(there.near().transmit_queue_packets(), Ok(77));
        assert_ne!(here.near().transmit_queue_packets(), Ok(77));
        let near = there.near().try_clone().expect("a descriptor");
        drop(there);
        assert!(here.near().exists() && !near.exists());
    }

    #[test]
    fn an_ipv6_address_is_there_also_in_the_namespace_of_one_thread() {
        let lo = namespace::enter_by_thread().and_then(|()| Interface::named("lo"));
        let lo = match lo {
            Ok(lo) => lo,
            Err(error) => {
                let name = "an_ipv6_address_is_there_also_in_the_namespace_of_one_thread";
                return withheld::cannot_run(name, &error.message);
            }
        };
        let address = "fd07::1".parse().expect("an address");
        assert_eq!(lo.add_address(address, 64), Ok(()));
    }

    #[test]
    fn a_name_that_is_taken_is_said_to_be() {
        let pair = namespace::enter_by_thread().and_then(|()| VethPair::new("near0", "far0"));
        let _pair = match pair {
            Ok(pair) => pair,
            Err(error) => {
                return withheld::cannot_run("a_name_that_is_taken_is_said_to_be", &error.message);
            }
        };
        for (near, far) in [("near0", "far1"), ("near1", "far0")] {
            let kind = VethPair::new(near, far).expect_err("one of them is taken").kind;
            assert_eq!(kind, std::io::ErrorKind::AlreadyExists, "{near}, {far}");
        }
        assert!(Interface::named("near1").is_err() && Interface::named("far1").is_err());
    }

    #[test]
    fn an_interface_that_is_not_there_is_named_in_the_error() {
        let error = Interface::named("no-such-if0").expect_err("no such interface");
        assert!(error.message.contains("no-such-if0"), "{error}");
        assert!(Interface::named("").is_err());
        assert!(Interface::named("a-name-that-is-too-long").is_err());
    }
}
