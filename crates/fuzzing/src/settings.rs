//! Every setting that a socket, an interface or a shard has while it runs, at any value.
//!
//! What is set must be what is asked for again; a call about a socket that is gone or of another kind must fail
//! and do no harm.

use crate::station::Station;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::num::{NonZeroU8, NonZeroU64};
use ip::Cidr;
use stack::{
    FastOpenOptions, Ipv4Options, MtuDiscovery, MulticastOptions, PacketMarks, SocketId, TcpOption,
};
use std::sync::Arc;
use time::{Duration, Instant};

/// How many [`set`] knows.
pub(crate) const SETTINGS: u8 = 32;

/// The MTU of stations.
const MTU: usize = 1_500;

/// A number of any magnitude: twelve bits, moved by the other four.
fn any(value: u16) -> u64 {
    let number = u128::from(value & 0xfff) << (4 * (value >> 12));
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn any_size(value: u16) -> usize {
    usize::try_from(any(value)).unwrap_or(usize::MAX)
}

/// A span of any length, from microseconds on.
fn any_span(value: u16) -> Duration {
    Duration::from_micros(any(value))
}

/// Options of IPv4 that may be sent, and some that may not.
fn any_ip_options(value: u16) -> Ipv4Options {
    const ROUTE: [u8; 39] = {
        let mut route = [0; 39];
        (route[0], route[1], route[2]) = (7, 39, 4);
        route
    };
    let given: &[u8] = match value % 5 {
        0 => &[],
        1 => &[148, 4, 0, 0],
        2 => &[1, 1, 1],
        3 => &ROUTE,
        _ => &value.to_le_bytes(),
    };
    Ipv4Options::parse(given).unwrap_or(Ipv4Options::NONE)
}

fn any_marks(value: u16) -> PacketMarks {
    let [traffic_class, hop_limit] = value.to_le_bytes();
    PacketMarks { traffic_class, hop_limit: NonZeroU8::new(hop_limit) }
}

fn any_discovery(value: u16) -> MtuDiscovery {
    match value % 4 {
        0 => MtuDiscovery::Want,
        1 => MtuDiscovery::Dont,
        2 => MtuDiscovery::Do,
        _ => MtuDiscovery::Probe,
    }
}

/// The option of connections with this number.
fn tcp_option(setting: u8, value: u16) -> TcpOption {
    let on = value & 1 != 0;
    let is_some = value != 0;
    match setting {
        0 => TcpOption::NoDelay(on),
        1 => TcpOption::QuickAcks(on),
        2 => TcpOption::SendBuffer(any_size(value)),
        3 => TcpOption::ReceiveBuffer(any_size(value)),
        4 => TcpOption::Congestion(tcp::Algorithm::ALL[usize::from(value % 3)]),
        5 => TcpOption::Keepalive(is_some.then(|| tcp::Keepalive {
            idle: any_span(value),
            interval: any_span(value.rotate_left(4)),
            count: any(value.rotate_left(8)) as u32,
        })),
        6 => TcpOption::Cork(on),
        7 => TcpOption::UserTimeout(is_some.then(|| any_span(value))),
        8 => TcpOption::FinWait2(any_span(value)),
        9 => TcpOption::PacingRateMax(NonZeroU64::new(any(value))),
        10 => TcpOption::SinglePackets(on),
        11 => TcpOption::DontRoute(on),
        _ => TcpOption::IpOptions(any_ip_options(value)),
    }
}

/// Changes one setting, of a socket if it has it.
pub(crate) fn set(
    station: &mut Station,
    now: Instant,
    socket: SocketId,
    remote: SocketAddr,
    (setting, value): (u8, u16),
) {
    match setting % SETTINGS {
        setting @ 0..=12 => set_tcp(station, now, socket, tcp_option(setting, value)),
        13 => {
            let marks = any_marks(value);
            if station.shard.set_marks(socket, marks).is_ok() {
                assert_eq!(station.shard.marks(socket), Ok(marks));
            }
        }
        14 => station.shard.tcp_await_room(socket, any_size(value), value & 1 != 0),
        15 => drop(station.shard.tcp_offer_fast_open(now, socket, value & 1 != 0)),
        setting @ 16..=19 => set_listener(station, socket, setting, value),
        setting @ 20..=26 => set_datagrams(station, socket, remote, setting, value),
        27 => {
            let limit = value.to_le_bytes()[0];
            let outcome = station.shard.raw_set_hop_limit(socket, (value > 0xff).then_some(limit));
            assert!(outcome.is_err() || value <= 0xff || limit > 0, "nobody sends a limit of 0");
            let _ = station.shard.raw_set_mtu_discovery(socket, any_discovery(value));
            let _ = station.shard.raw_set_receive_buffer(socket, any_size(value));
        }
        28 => group(station, now, socket, value),
        _ => set_shard(station, now, setting % SETTINGS, value),
    }
}

fn set_tcp(station: &mut Station, now: Instant, socket: SocketId, option: TcpOption) {
    let shard = &mut station.shard;
    if shard.tcp_set_option(now, socket, option).is_err() {
        return;
    }
    // What was set may have ended the connection at once.
    let (Ok(status), Ok(info)) = (shard.tcp_status(socket), shard.tcp_info(now, socket)) else {
        return;
    };
    match option {
        TcpOption::NoDelay(on) => assert_eq!(status.is_nodelay, on),
        TcpOption::SendBuffer(bytes) => {
            assert!((1..=bytes.max(1)).contains(&status.send_buffer_bytes), "{status:?}");
            assert_eq!(info.send_buffer_bytes, status.send_buffer_bytes);
        }
        TcpOption::ReceiveBuffer(_) => assert!(info.receive_buffer_bytes > 0, "{info:?}"),
        TcpOption::Congestion(algorithm) => assert_eq!(info.congestion, algorithm.name()),
        TcpOption::PacingRateMax(Some(max)) => {
            assert!(info.pacing_rate.is_some_and(|rate| rate <= max.get()), "{info:?}");
        }
        _ => {}
    }
}

/// Settings of listeners, for what they open from now on.
fn set_listener(station: &mut Station, socket: SocketId, setting: u8, value: u16) {
    let shard = &mut station.shard;
    let _ = match setting {
        16 => shard.tcp_set_backlog(socket, any_size(value)),
        17 => shard.tcp_set_defer_accept(socket, any_span(value)),
        18 => {
            let without_cookie = value & 1 != 0;
            let pending_max = usize::from(value >> 1 & 7);
            let options =
                FastOpenOptions { pending_max, without_cookie, ..FastOpenOptions::default() };
            shard.tcp_set_fast_open(socket, options)
        }
        _ => {
            let config = tcp::Config {
                timestamps: value & 1 == 0,
                sack: value & 2 == 0,
                window_scaling: value & 4 == 0,
                stretch_acks: value & 8 == 0,
                mss_max: (value & 16 != 0).then_some(value >> 5),
                ..tcp::Config::default()
            };
            shard.tcp_set_listener(socket, Arc::new(config))
        }
    };
}

/// Settings of UDP sockets.
fn set_datagrams(
    station: &mut Station,
    socket: SocketId,
    remote: SocketAddr,
    setting: u8,
    value: u16,
) {
    let shard = &mut station.shard;
    let _ = match setting {
        20 => shard.udp_set_mtu_discovery(socket, any_discovery(value)),
        21 => shard.udp_set_ip_options(socket, any_ip_options(value)),
        22 => shard.udp_set_dont_route(socket, value & 1 != 0),
        23 => shard.udp_set_receive_buffer(socket, any_size(value)),
        24 => {
            let connected = shard.udp_connect(socket, remote);
            if connected.is_ok() {
                assert_eq!(shard.udp_peer(socket), Ok(remote));
            }
            connected
        }
        25 => {
            let disconnected = shard.udp_disconnect(socket);
            assert!(disconnected.is_err() || shard.udp_peer(socket).is_err());
            disconnected
        }
        _ => {
            let [hop_limit, flags] = value.to_le_bytes();
            let interface = (flags & 2 != 0).then_some(station.interface);
            let options = MulticastOptions { hop_limit, is_looped: flags & 1 != 0, interface };
            let outcome = shard.udp_set_multicast(socket, options);
            assert!(outcome.is_err() || shard.udp_multicast(socket) == Ok(options));
            outcome
        }
    };
}

/// Joins a group, of all sources or of one, or leaves it.
fn group(station: &mut Station, now: Instant, socket: SocketId, value: u16) {
    let [number, flags] = value.to_le_bytes();
    let group = IpAddr::from(Ipv4Addr::new(239, 0, 0, number));
    let source = IpAddr::from(Ipv4Addr::new(10, 0, 0, flags >> 2));
    let interface = (flags & 1 != 0).then_some(station.interface);
    let _ = match flags & 2 {
        0 => {
            let sources = if flags & 128 != 0 { &[source][..] } else { &[] };
            station.shard.udp_join(now, socket, group, interface, sources)
        }
        _ => station.shard.udp_leave(now, socket, group, interface),
    };
}

/// Settings of the interface and of the shard.
fn set_shard(station: &mut Station, now: Instant, setting: u8, value: u16) {
    let (shard, interface) = (&mut station.shard, station.interface);
    match (setting, value & 3) {
        (29, 0) => shard.set_mss_clamp(interface, Some(value >> 2)),
        (29, 1) => shard.set_mss_clamp(interface, None),
        (29, 2) => shard.set_transmit_queue(interface, any_size(value)),
        (29, _) => shard.set_receive_trains(value & 4 != 0),
        (30, 0) => shard.set_time_wait_max(any_size(value)),
        (30, 1) => shard.set_orphans_max(any_size(value)),
        (30, _) => {
            let network = Cidr::new(Ipv4Addr::new(10, 0, 0, 0).into(), 24).expect("a network");
            let mtu_bytes = (value & 1 != 0).then(|| any_size(value));
            let _ = shard.set_route_mtu(network, mtu_bytes);
        }
        _ => shard.set_mtu(now, interface, any_size(value)),
    }
}

/// Takes back what may hold a connection up for longer than anybody waits.
pub(crate) fn relax(station: &mut Station, now: Instant, sockets: impl Iterator<Item = SocketId>) {
    station.shard.set_mtu(now, station.interface, MTU);
    station.shard.set_mss_clamp(station.interface, None);
    let network = Cidr::new(Ipv4Addr::new(10, 0, 0, 0).into(), 24).expect("a network");
    let _ = station.shard.set_route_mtu(network, None);
    for socket in sockets {
        for option in [
            TcpOption::PacingRateMax(None),
            TcpOption::FinWait2(Duration::from_secs(60)),
            TcpOption::DontRoute(false),
        ] {
            let _ = station.shard.tcp_set_option(now, socket, option);
        }
    }
}
