//! How a script is run: its options, over the runner's own.

use crate::script::Script;
use core::net::IpAddr;

/// Which IP the sockets and the packets are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IpVersion {
    V4,
    /// IPv6 sockets, IPv4 packets.
    V4MappedV6,
    V6,
}

/// How a script is run.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) ip: IpVersion,
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    pub(crate) bind_port: u16,
    pub(crate) connect_port: u16,
    pub(crate) mtu_bytes: usize,
    pub(crate) tolerance_us: u64,
    pub(crate) tolerance_percent: f64,
    pub(crate) ts_tick_us: u64,
    pub(crate) ts_echo_scaled: bool,
    /// What is sent as several segments does not count as one.
    pub(crate) strict_segments: bool,
}

impl Config {
    /// The options of a script.
    pub(crate) fn of(script: &Script) -> Result<Self, String> {
        let value = |name: &str| {
            let found = script.options.iter().rev().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str())
        };
        let ip = match value("ip_version").unwrap_or("ipv4") {
            "ipv4" => IpVersion::V4,
            "ipv6" => IpVersion::V6,
            "ipv4_mapped_ipv6" | "ipv4-mapped-ipv6" => IpVersion::V4MappedV6,
            other => return Err(format!("--ip_version={other}: not known")),
        };
        let (local, remote) = match ip {
            IpVersion::V6 => ("fd3d:fa7b:d17d::1", "2001:db8::1"),
            _ => ("192.168.0.1", "192.0.2.1"),
        };
        let address = |name: &str, default: &str| {
            let text = value(name).unwrap_or(default).split('/').next().unwrap_or("");
            text.parse().map_err(|_| format!("--{name}={text}: no address"))
        };
        let number = |name: &str, default: u64| match value(name) {
            Some(text) => text.parse().map_err(|_| format!("--{name}={text}: no number")),
            None => Ok(default),
        };
        Ok(Self {
            ip,
            local: address("local_ip", local)?,
            remote: address("remote_ip", remote)?,
            bind_port: number("bind_port", 8080)? as u16,
            connect_port: number("connect_port", 8080)? as u16,
            mtu_bytes: number("mtu", 1500)? as usize,
            tolerance_us: number("tolerance_usecs", 4_000)?,
            tolerance_percent: value("tolerance_percent")
                .map_or(Ok(12.5), str::parse)
                .map_err(|_| "--tolerance_percent: no number".to_owned())?,
            ts_tick_us: number("tcp_ts_tick_usecs", 0)?,
            ts_echo_scaled: value("tcp_ts_ecr_scaled").is_some(),
            strict_segments: value("strict_segments").is_some(),
        })
    }
}
