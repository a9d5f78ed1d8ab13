//! What can be said against the interfaces of a stack before a device is touched.
//!
//! Refused is what cannot work, with a sentence that names the interface, what was asked for and what can be. Whatever may
//! be meant is left: two interfaces with the same address, for example, are two ways to the same hosts.

use super::InterfaceConfig;
use crate::stack::invalid;
use core::net::IpAddr;
use device::Queue;
use ip::Cidr;
use stack::{ACCEPTED_PREFIXES_MAX, ADDRESSES_MAX, INTERFACES_MAX};
use std::io;

/// The longest packet that every link must carry, for IPv4 (RFC 791) and for IPv6 (RFC 8200, 5).
const MTU_MIN_IPV4_BYTES: usize = 576;
const MTU_MIN_IPV6_BYTES: usize = 1_280;

/// The longest packet there is: 65,535 bytes behind the header of IPv6. Jumbograms (RFC 2675) are not sent.
const PACKET_LEN_MAX: usize = 65_575;

/// The most packets that an interface may be told to keep for its device.
const TRANSMIT_QUEUE_MAX: usize = 65_536;

/// What can be said against the interfaces before a device is touched.
pub(super) fn check_interfaces(
    interfaces: &[(Vec<Box<dyn Queue>>, InterfaceConfig)],
    squeues: usize,
    rings: Option<usize>,
) -> io::Result<()> {
    if interfaces.is_empty() {
        return Err(invalid(String::from(
            "a stack needs an interface: add one with StackBuilder::interface",
        )));
    }
    let mut all = interfaces.iter().enumerate();
    all.try_for_each(|(index, (queues, config))| {
        check_interface(index, queues, config, squeues, rings)
    })?;
    let is_own = |address| interfaces.iter().any(|(_, config)| has_address(config, address));
    let mut configs = interfaces.iter().map(|(_, config)| config).enumerate();
    configs.try_for_each(|(index, config)| check_own_gateways(index, config, is_own))
}

/// The same of one, in a stack of so many squeues, where every device may have to have so many queues.
pub(in crate::stack) fn check_interface(
    index: usize,
    queues: &[Box<dyn Queue>],
    config: &InterfaceConfig,
    squeues: usize,
    rings: Option<usize>,
) -> io::Result<()> {
    if index >= INTERFACES_MAX {
        return Err(invalid(format!("a stack has {INTERFACES_MAX} interfaces at most")));
    }
    if queues.is_empty() || queues.len() > squeues {
        return Err(invalid(format!(
            "interface {index} has {} queues: it needs one at least, and one for each of the \
             {squeues} squeues at most (StackBuilder::squeues)",
            queues.len()
        )));
    }
    if let Some(rings) = rings.filter(|rings| *rings != queues.len()) {
        return Err(invalid(format!(
            "interface {index} has {} queues, and the layout says {rings} rings",
            queues.len()
        )));
    }
    if let Some((queue, _)) = config.queue_coalescing.range(queues.len()..).next() {
        return Err(invalid(format!(
            "coalescing of queue {queue} was set, and interface {index} has {}",
            queues.len()
        )));
    }
    check_addresses(index, config)?;
    check_gateways(index, config)?;
    let mtu_bytes = queues.iter().map(|queue| queue.capabilities().mtu_bytes).min();
    let has_ipv6 =
        config.slaac.is_some() || config.addresses.iter().any(|it| it.address().is_ipv6());
    check_mtu(index, has_ipv6, mtu_bytes.unwrap_or(0))?;
    check_bounds(index, has_ipv6, mtu_bytes.unwrap_or(0), config)
}

/// The stack takes the same addresses as here; here they can be named.
fn check_addresses(index: usize, config: &InterfaceConfig) -> io::Result<()> {
    let all = &config.addresses;
    if let Some(address) = all.iter().find(|address| !address.is_hosts()) {
        return Err(invalid(format!(
            "no host can have the address {address} of interface {index}: it is unspecified, a group's, or \
             stands for all hosts of its network"
        )));
    }
    let twins = all
        .iter()
        .enumerate()
        .find(|(at, address)| all[..*at].iter().any(|other| other.address() == address.address()));
    if let Some((_, twice)) = twins {
        return Err(invalid(format!("interface {index} is given the address {twice} twice")));
    }
    if all.len() > ADDRESSES_MAX {
        return Err(invalid(format!(
            "interface {index} is given {} addresses: it can have {ADDRESSES_MAX}; whole networks are for \
             InterfaceConfig::accept_any",
            all.len()
        )));
    }
    Ok(())
}

fn check_gateways(index: usize, config: &InterfaceConfig) -> io::Result<()> {
    let is_other = |(destination, gateway): &&(Cidr, Option<IpAddr>)| {
        gateway.is_some_and(|it| it.is_ipv4() != destination.address().is_ipv4())
    };
    if let Some((destination, Some(gateway))) = config.routes.iter().find(is_other) {
        return Err(invalid(format!(
            "interface {index} cannot reach {destination} by {gateway}, which is of the other IP version"
        )));
    }
    check_ways(index, config)?;
    let is_near = |gateway: &IpAddr| config.addresses.iter().any(|it| it.contains(*gateway));
    match config.gateways.iter().find(|gateway| !is_near(gateway)) {
        None => Ok(()),
        Some(gateway) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "the gateway {gateway} is on no network of interface {index}: give the interface an \
                 address whose network contains it, or, where the link has no routers, use \
                 InterfaceConfig::default_route"
            ),
        )),
    }
}

/// Of two ways to one network by one interface, one would be taken and the other never; by two interfaces, the other stands
/// by.
fn check_ways(index: usize, config: &InterfaceConfig) -> io::Result<()> {
    let everywhere = |gateway: &IpAddr| match gateway {
        IpAddr::V4(_) => Cidr::ANY_IPV4,
        IpAddr::V6(_) => Cidr::ANY_IPV6,
    };
    let gateways = config.gateways.iter().map(|gateway| (everywhere(gateway), Some(*gateway)));
    let routes = config.routes.iter().map(|(to, gateway)| (to.network(), *gateway));
    let ways: Vec<(Cidr, Option<IpAddr>)> = gateways.chain(routes).collect();
    let way = |gateway: Option<IpAddr>| {
        gateway.map_or_else(|| String::from("directly"), |gateway| format!("by {gateway}"))
    };
    for (at, (to, gateway)) in ways.iter().enumerate() {
        if let Some((_, other)) = ways[..at].iter().find(|it| it.0 == *to && it.1 != *gateway) {
            return Err(invalid(format!(
                "interface {index} is told to reach {to} {} and {}: name one way",
                way(*other),
                way(*gateway)
            )));
        }
    }
    Ok(())
}

/// Who is his own gateway hands packets to himself, and forwards none. `is_own`: whether the stack has an address.
pub(in crate::stack) fn check_own_gateways(
    index: usize,
    config: &InterfaceConfig,
    is_own: impl Fn(IpAddr) -> bool,
) -> io::Result<()> {
    let by_routes = config.routes.iter().filter_map(|(_, gateway)| *gateway);
    let mut gateways = config.gateways.iter().copied().chain(by_routes);
    let own = gateways.find(|it| it.is_loopback() || has_address(config, *it) || is_own(*it));
    match own {
        None => Ok(()),
        Some(gateway) => Err(invalid(format!(
            "the gateway {gateway} of interface {index} is an own address of the stack: name the router's"
        ))),
    }
}

fn has_address(config: &InterfaceConfig, address: IpAddr) -> bool {
    config.addresses.iter().any(|it| it.address() == address)
}

/// What an interface is to keep to of its own.
fn check_bounds(
    index: usize,
    has_ipv6: bool,
    device_mtu_bytes: usize,
    config: &InterfaceConfig,
) -> io::Result<()> {
    if config.accepted.len() > ACCEPTED_PREFIXES_MAX {
        return Err(invalid(format!(
            "interface {index} is to accept {} prefixes: it can accept {ACCEPTED_PREFIXES_MAX}",
            config.accepted.len()
        )));
    }
    if let Some(mss_max) = config.mss_max.filter(|mss_max| *mss_max < tcp::MSS_MIN) {
        return Err(invalid(format!(
            "the MSS of interface {index} cannot be clamped to {mss_max} bytes: {} is the least",
            tcp::MSS_MIN
        )));
    }
    let least = mtu_min_bytes(has_ipv6);
    let mtus = least..=device_mtu_bytes;
    if let Some(mtu_bytes) = config.mtu_bytes.filter(|mtu_bytes| !mtus.contains(mtu_bytes)) {
        return Err(invalid(format!(
            "the MTU of interface {index} cannot be {mtu_bytes} bytes: {least} to {device_mtu_bytes}, what \
             its device takes, can be"
        )));
    }
    let queues = 1..=TRANSMIT_QUEUE_MAX;
    match config.transmit_queue.filter(|packets_max| !queues.contains(packets_max)) {
        None => Ok(()),
        Some(packets_max) => Err(invalid(format!(
            "{packets_max} packets cannot wait for the device of interface {index}: 1 to \
             {TRANSMIT_QUEUE_MAX} can"
        ))),
    }
}

/// The least MTU of an interface.
pub(in crate::stack) fn mtu_min_bytes(has_ipv6: bool) -> usize {
    if has_ipv6 { MTU_MIN_IPV6_BYTES } else { MTU_MIN_IPV4_BYTES }
}

/// A link that carries less than every host may rely on cannot carry IP; one that carries more than there is
/// has not thought of what it says.
pub(in crate::stack) fn check_mtu(
    index: usize,
    has_ipv6: bool,
    mtu_bytes: usize,
) -> io::Result<()> {
    let least = mtu_min_bytes(has_ipv6);
    if mtu_bytes < least {
        let version = if has_ipv6 { "IPv6 (RFC 8200, 5)" } else { "IPv4 (RFC 791)" };
        return Err(invalid(format!(
            "the device of interface {index} carries packets of {mtu_bytes} bytes at most, and {version} \
             needs {least}"
        )));
    }
    if mtu_bytes > PACKET_LEN_MAX {
        return Err(invalid(format!(
            "the device of interface {index} says that it carries packets of {mtu_bytes} bytes: IP has none \
             longer than {PACKET_LEN_MAX}"
        )));
    }
    Ok(())
}
