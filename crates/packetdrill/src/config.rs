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

/// How closely a run is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// Time is virtual and the stack this one: every time is as the script has it, only full-sized
    /// segments stand for one, DF is set, and nothing is sent that is not in the script.
    Exactly,
    /// Times within packetdrill's own tolerance, and any segments that follow each other may stand for one.
    AsPacketdrill,
}

/// Which segments, sent one after the other, may stand in a script as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joins {
    None,
    /// Those of which all but the last are as long as the peer's MSS lets them be.
    Full,
    Any,
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
    pub(crate) joins: Joins,
    /// What a script need not say holds, too: DF is set, and nothing is sent that is not in it.
    pub(crate) exactly: bool,
}

impl Config {
    /// The options of a script.
    pub(crate) fn of(script: &Script, judge: Judge) -> Result<Self, String> {
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
        let exactly = judge == Judge::Exactly;
        let (tolerance_us, tolerance_percent) = if exactly { (0, 0.0) } else { (4_000, 12.5) };
        Ok(Self {
            ip,
            local: address("local_ip", local)?,
            remote: address("remote_ip", remote)?,
            bind_port: number("bind_port", 8080)? as u16,
            connect_port: number("connect_port", 8080)? as u16,
            mtu_bytes: number("mtu", 1500)? as usize,
            tolerance_us: number("tolerance_usecs", tolerance_us)?,
            tolerance_percent: value("tolerance_percent")
                .map_or(Ok(tolerance_percent), str::parse)
                .map_err(|_| "--tolerance_percent: no number".to_owned())?,
            ts_tick_us: number("tcp_ts_tick_usecs", 0)?,
            ts_echo_scaled: value("tcp_ts_ecr_scaled").is_some(),
            exactly,
            joins: match value("strict_segments") {
                Some(_) => Joins::None,
                None if exactly => Joins::Full,
                None => Joins::Any,
            },
        })
    }
}
