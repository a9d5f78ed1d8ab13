//! The Linux kernel in a network namespace of this process's own, over a TUN interface, in real
//! time.
//!
//! Packets are taken from the interface whenever this side waits for anything, so that the time at
//! which one is taken is that at which it was sent. A call that blocks has a thread of its own.

use super::{Backend, Returned};
use crate::config::{Config, IpVersion};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use linux::{Sandbox, TunFile, raw_calls};
use posix::abi::{AF_INET, AF_INET6, AF_UNSPEC};
use posix::{Address, Call, EpollEvent, Errno, Output, PollEntry, Reply};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

const INTERFACE: &str = "tun0";

/// Longest sleep before a call that blocks, and packets, are looked at.
const NAP: Duration = Duration::from_micros(500);

/// What packetdrill's scripts are written for: settings of a common Linux of today, which a fresh
/// namespace may derive otherwise.
const SYSCTLS: &[(&str, &str)] = &[
    ("ipv4/tcp_rmem", "4096 540000 15728640"),
    ("ipv4/tcp_wmem", "4096 262144 4194304"),
    ("ipv4/tcp_timestamps", "1"),
    ("ipv4/tcp_sack", "1"),
    ("ipv4/tcp_dsack", "1"),
    ("ipv4/tcp_ecn", "0"),
    ("ipv4/tcp_syn_retries", "5"),
    ("ipv4/tcp_synack_retries", "5"),
    ("ipv4/tcp_frto", "2"),
    ("ipv4/tcp_reordering", "3"),
    ("ipv4/tcp_congestion_control", "cubic"),
    ("ipv4/tcp_slow_start_after_idle", "0"),
    ("ipv4/tcp_early_retrans", "4"),
    ("ipv4/tcp_recovery", "1"),
    ("ipv4/tcp_syncookies", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
];

/// The kernel, and the call under way on it.
pub(crate) struct LinuxBackend {
    tun: TunFile,
    start: Instant,
    /// Where commands run: scripts name others relative to themselves.
    directory: PathBuf,
    sent: VecDeque<(u64, Vec<u8>)>,
    call: Option<Receiver<(Instant, Returned)>>,
    finished: Option<(u64, Returned)>,
}

impl LinuxBackend {
    /// Enters a namespace and sets up the interface. No thread may have been started before.
    ///
    /// # Errors
    /// A sentence on what the machine does not grant.
    pub(crate) fn new(config: &Config, directory: PathBuf) -> Result<Self, String> {
        Sandbox::enter().map_err(|error| error.to_string())?;
        for (name, value) in SYSCTLS {
            // What this kernel does not know it need not be told.
            let _ = std::fs::write(format!("/proc/sys/net/{name}"), value);
        }
        let tun = TunFile::open(INTERFACE).map_err(|error| error.to_string())?;
        let interface = tun.interface();
        let prefix_len = if config.ip == IpVersion::V6 { 48 } else { 16 };
        let everywhere: IpAddr = match config.local {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        interface
            .set_mtu_bytes(config.mtu_bytes)
            .and_then(|()| interface.set_up())
            .and_then(|()| interface.add_address(config.local, prefix_len))
            .and_then(|()| interface.add_route(everywhere, 0, None))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            tun,
            start: Instant::now(),
            directory,
            sent: VecDeque::new(),
            call: None,
            finished: None,
        })
    }

    /// Takes what was sent, and the end of the call under way.
    fn look(&mut self) {
        while let Ok(Some(packet)) = self.tun.read() {
            let at_us = self.start.elapsed().as_micros() as u64;
            self.sent.push_back((at_us, packet));
        }
        let Some(call) = &self.call else { return };
        match call.try_recv() {
            Ok((at, returned)) => {
                let at_us = at.saturating_duration_since(self.start).as_micros() as u64;
                self.finished = Some((at_us, returned));
                self.call = None;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => self.call = None,
        }
    }
}

impl Backend for LinuxBackend {
    fn start(&mut self) {
        self.start = Instant::now();
    }

    fn now_us(&mut self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    fn wait_until(&mut self, at_us: u64) -> u64 {
        loop {
            self.look();
            let now_us = self.now_us();
            if now_us >= at_us {
                return at_us;
            }
            self.tun.wait(Duration::from_micros(at_us - now_us).min(NAP));
        }
    }

    fn inject(&mut self, packets: &[Vec<u8>]) -> Result<(), String> {
        let mut packets = packets.iter();
        packets.try_for_each(|packet| self.tun.write(packet).map_err(|error| error.to_string()))
    }

    fn next_packet(&mut self, limit_us: u64) -> Option<(u64, Vec<u8>)> {
        // Nobody waits in real time for what may come in ten minutes.
        let limit_us = limit_us.min(self.now_us() + 60_000_000);
        loop {
            self.look();
            if let Some(packet) = self.sent.pop_front() {
                return Some(packet);
            }
            let now_us = self.now_us();
            if now_us >= limit_us {
                return None;
            }
            self.tun.wait(Duration::from_micros(limit_us - now_us).min(NAP));
        }
    }

    fn call(&mut self, call: Call) -> Result<Returned, String> {
        Ok(make(&call))
    }

    fn begin(&mut self, call: Call) {
        self.finished = None;
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let returned = make(&call);
            // Nobody listens any more where the script has failed.
            let _ = sender.send((Instant::now(), returned));
        });
        self.call = Some(receiver);
        // The call must be under way before the script goes on.
        std::thread::sleep(Duration::from_micros(500));
        self.look();
    }

    fn finished(&mut self) -> Option<(u64, Returned)> {
        self.look();
        self.finished.take()
    }

    fn command(&mut self, command: &str) -> Result<(), String> {
        // packetdrill's own scripts name the files they leave for each other by it.
        let parent = std::process::id().to_string();
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(&self.directory).env("PPID", parent);
        let output = shell.output();
        let output = output.map_err(|error| format!("sh: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let errors = String::from_utf8_lossy(&output.stderr);
                Err(format!("`{command}` failed ({}): {errors}", output.status))
            }
        }
    }
}

fn make(call: &Call) -> Returned {
    let reply = match call {
        Call::ReadNothing { .. } | Call::Receive { .. } | Call::Send { .. } => transfer(call),
        Call::GetOption { .. } | Call::SetOption { .. } | Call::Ioctl { .. } => option(call),
        Call::Poll { .. }
        | Call::EpollCreate { .. }
        | Call::EpollControl { .. }
        | Call::EpollWait { .. } => wait(call),
        other => control(other),
    };
    reply.map_err(Errno)
}

fn value(value: i32) -> Reply {
    Reply::value(value.into())
}

fn control(call: &Call) -> Result<Reply, i32> {
    Ok(match call {
        Call::Socket { domain, kind, protocol } => {
            value(raw_calls::socket(*domain, *kind, *protocol)?)
        }
        Call::Bind { fd, address } => value(raw_calls::bind(*fd, &sockaddr(*address))?),
        Call::Listen { fd, backlog } => value(raw_calls::listen(*fd, *backlog)?),
        Call::Accept { fd } => {
            let (accepted, from) = raw_calls::accept(*fd)?;
            let output = address(&from).map_or(Output::Nothing, Output::Address);
            Reply { value: accepted.into(), output }
        }
        Call::Connect { fd, address } => value(raw_calls::connect(*fd, &sockaddr(*address))?),
        Call::Fcntl { fd, command, argument } => value(raw_calls::fcntl(*fd, *command, *argument)?),
        Call::Close { fd } => value(raw_calls::close(*fd)?),
        Call::Shutdown { fd, how } => value(raw_calls::shutdown(*fd, *how)?),
        Call::Pipe => Reply { value: 0, output: Output::Pipe(raw_calls::pipe()?) },
        Call::Splice { from, to, len, flags, .. } => {
            Reply::value(raw_calls::splice(*from, *to, *len, *flags)?)
        }
        _ => return Err(Errno::ENOSYS.0),
    })
}

fn transfer(call: &Call) -> Result<Reply, i32> {
    match call {
        Call::ReadNothing { fd } => {
            let bytes = raw_calls::read(*fd, 0)?;
            Ok(Reply::bytes(bytes))
        }
        Call::Receive { fd, len, flags } => match raw_calls::receive(*fd, *len, *flags) {
            // Pipes have no messages.
            Err(errno) if errno == Errno::ENOTSOCK.0 => {
                let bytes = raw_calls::read(*fd, *len)?;
                Ok(Reply::bytes(bytes))
            }
            Err(errno) => Err(errno),
            Ok((value, bytes, from, flags)) => {
                let from = address(&from);
                Ok(Reply {
                    value,
                    output: Output::Received { bytes, from, flags, control: Vec::new() },
                })
            }
        },
        Call::Send { fd, bytes, flags, to, .. } => {
            let to = to.map(sockaddr).unwrap_or_default();
            match raw_calls::send(*fd, bytes, *flags, &to) {
                Err(errno) if errno == Errno::ENOTSOCK.0 => {
                    raw_calls::write(*fd, bytes).map(Reply::value)
                }
                other => other.map(Reply::value),
            }
        }
        _ => Err(Errno::ENOSYS.0),
    }
}

fn option(call: &Call) -> Result<Reply, i32> {
    Ok(match call {
        Call::GetOption { fd, level, name, len } => {
            let bytes = raw_calls::getsockopt(*fd, *level, *name, *len)?;
            Reply { value: 0, output: Output::Value(bytes) }
        }
        Call::SetOption { fd, level, name, value: bytes } => {
            value(raw_calls::setsockopt(*fd, *level, *name, bytes)?)
        }
        Call::Ioctl { fd, request, argument } => {
            let (returned, written) = raw_calls::ioctl(*fd, *request, *argument)?;
            Reply { value: returned.into(), output: Output::Integer(written) }
        }
        _ => return Err(Errno::ENOSYS.0),
    })
}

fn wait(call: &Call) -> Result<Reply, i32> {
    Ok(match call {
        Call::Poll { entries, timeout_ms } => {
            let asked: Vec<(i32, i16)> = entries.iter().map(|e| (e.fd, e.events)).collect();
            let (count, revents) = raw_calls::poll(&asked, *timeout_ms)?;
            let polled = entries.iter().zip(revents);
            let polled = polled.map(|(entry, revents)| PollEntry { revents, ..*entry }).collect();
            Reply { value: count.into(), output: Output::Polled(polled) }
        }
        Call::EpollCreate { size } => value(raw_calls::epoll_create(*size)?),
        Call::EpollControl { epoll, operation, fd, event } => {
            value(raw_calls::epoll_ctl(*epoll, *operation, *fd, event.events, event.data)?)
        }
        Call::EpollWait { epoll, events_max, timeout_ms } => {
            let events = raw_calls::epoll_wait(*epoll, *events_max, *timeout_ms)?;
            let events: Vec<EpollEvent> =
                events.into_iter().map(|(events, data)| EpollEvent { events, data }).collect();
            Reply { value: events.len() as i64, output: Output::Epoll(events) }
        }
        _ => return Err(Errno::ENOSYS.0),
    })
}

/// The bytes of a `sockaddr`.
fn sockaddr(address: Address) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    match address {
        Address::Inet(SocketAddr::V4(address)) => {
            bytes.extend(AF_INET.to_ne_bytes());
            bytes.extend(address.port().to_be_bytes());
            bytes.extend(address.ip().octets());
            bytes.resize(16, 0);
        }
        Address::Inet(SocketAddr::V6(address)) => {
            bytes.extend(AF_INET6.to_ne_bytes());
            bytes.extend(address.port().to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(address.ip().octets());
            bytes.extend([0; 4]);
        }
        Address::Unspecified => {
            bytes.extend(AF_UNSPEC.to_ne_bytes());
            bytes.resize(16, 0);
        }
        Address::Other(family) => {
            bytes.extend(family.to_ne_bytes());
            bytes.resize(16, 0);
        }
    }
    bytes
}

fn address(bytes: &[u8]) -> Option<Address> {
    let family = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    let ip: IpAddr = match family {
        AF_INET => Ipv4Addr::from(*bytes.get(4..8)?.first_chunk::<4>()?).into(),
        AF_INET6 => Ipv6Addr::from(*bytes.get(8..24)?.first_chunk::<16>()?).into(),
        other => return Some(Address::Other(other)),
    };
    Some(Address::Inet(SocketAddr::new(ip, port)))
}
