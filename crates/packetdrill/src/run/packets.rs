//! Packets: which flow they belong to, how they are made, how they are waited for.

use super::contents::{peer_bytes, place};
use super::{Due, Runner, is_tcp};
use crate::check::{Slack, check};
use crate::config::{IpVersion, Joins};
use crate::flow::{Flow, Stage};
use crate::fragment;
use crate::icmp;
use crate::live::{self, Body, LivePacket, LiveTcp, decode, encode, encode_ip, encode_options};
use crate::notation;
use crate::script::{ClassCheck, Direction, Flags, Icmp, Packet, Quoted, Tcp, Transport};
use core::net::SocketAddr;

impl Runner<'_> {
    /// Makes a packet of the script, which arrives with the next [`Runner::deliver`].
    pub(super) fn inbound(&mut self, packet: &Packet) -> Result<(), String> {
        let index = self.flow_for(packet)?;
        let datagram = match &packet.transport {
            Transport::Udp(udp) => self.arriving_payload(packet.ip.fragment, udp.len.into()),
            _ => Vec::new(),
        };
        let flow = &mut self.flows[index];
        if let Transport::Tcp(tcp) = &packet.transport
            && tcp.flags.has(Flags::SYN)
        {
            flow.on_peer_syn(tcp.sequence, tcp.options.as_deref().unwrap_or_default());
        }
        let body = match &packet.transport {
            Transport::Tcp(tcp) => {
                let mut live = live_tcp(tcp);
                live.source_port = tcp.ports.map_or(0, |ports| ports.0);
                live.destination_port = tcp.ports.map_or(0, |ports| ports.1);
                if live.source_port == 0 {
                    live.source_port = flow.remote.port();
                }
                if live.destination_port == 0 {
                    live.destination_port = flow.local.port();
                }
                flow.inbound(&mut live, self.config.ts_echo_scaled)?;
                Body::Tcp(live)
            }
            Transport::Udp(udp) => Body::Udp {
                source_port: udp.ports.map_or(flow.remote.port(), |ports| ports.0),
                destination_port: udp.ports.map_or(flow.local.port(), |ports| ports.1),
                payload: datagram,
            },
            Transport::Icmp(icmp) => inbound_icmp(icmp, flow)?,
        };
        let class = match packet.ip.class {
            ClassCheck::Any | ClassCheck::Ect01 => 0,
            ClassCheck::Ecn(bits) => bits,
            ClassCheck::Byte(byte) => byte,
        };
        let live = LivePacket {
            source: flow.remote.ip(),
            destination: flow.local.ip(),
            class,
            ttl: packet.ip.ttl.unwrap_or(255),
            flow_label: packet.ip.flow_label.unwrap_or(0),
            is_whole: true,
            body,
        };
        let whole = encode(&live);
        self.arriving.push(match &packet.ip.fragment {
            Some(part) => fragment::cut(&whole, part),
            None => whole,
        });
        Ok(())
    }

    /// Lets the packets that were made arrive, as one batch.
    pub(super) fn deliver(&mut self) -> Result<(), String> {
        let arriving = core::mem::take(&mut self.arriving);
        if arriving.is_empty() { Ok(()) } else { self.backend.inject(&arriving) }
    }

    /// Waits for the packet that the script expects, and compares it.
    pub(super) fn outbound(&mut self, packet: &Packet, due: Due) -> Result<(), String> {
        let index = self.flow_for(packet)?;
        let limit_us = due.limit_us();
        let wanted_len = match &packet.transport {
            Transport::Tcp(tcp) => usize::from(tcp.len),
            _ => 0,
        };
        let is_ace = matches!(&packet.transport, Transport::Tcp(tcp) if tcp.flags.is_ace);
        let mut whole: Option<(u64, LivePacket)> = None;
        loop {
            let found = self.next_for(index, packet, limit_us)?;
            let Some((at_us, live)) = found else {
                let seen = whole.map_or_else(String::new, |(_, seen)| {
                    format!("\n     was: {} and no more", notation::live(&seen, is_ace))
                });
                let expected = notation::script(packet);
                return Err(format!("nothing was sent\nexpected: {expected}{seen}"));
            };
            let is_full = self.is_full_sized(index, &live);
            let (at_us, joined) = match whole.take() {
                None => (at_us, live),
                Some((first_us, first)) => (first_us, join(first, live, is_ace)?),
            };
            let len = match &joined.body {
                Body::Tcp(tcp) => tcp.payload.len(),
                _ => 0,
            };
            let joins = match self.config.joins {
                Joins::None => false,
                Joins::Full => is_full,
                Joins::Any => true,
            };
            if len > 0 && len < wanted_len && joins {
                whole = Some((at_us, joined));
                continue;
            }
            return self.compare(index, packet, &joined, due, at_us);
        }
    }

    /// Whether a segment is as long as the peer's MSS lets it be (RFC 9293, 3.7.1).
    fn is_full_sized(&self, index: usize, live: &LivePacket) -> bool {
        let Body::Tcp(tcp) = &live.body else { return false };
        let (default, headers) = if live.source.is_ipv4() { (536, 40) } else { (1_220, 60) };
        let mss = self.flows[index].peer_mss.unwrap_or(default);
        let mss = usize::from(mss).min(self.config.mtu_bytes - headers);
        tcp.payload.len() + encode_options(&tcp.options).len().next_multiple_of(4) == mss
    }

    fn compare(
        &mut self,
        index: usize,
        packet: &Packet,
        actual: &LivePacket,
        due: Due,
        at_us: u64,
    ) -> Result<(), String> {
        let slack = Slack {
            timestamp_us: (self.config.ts_tick_us > 0).then_some(self.config.tolerance_us),
            tick_us: self.config.ts_tick_us,
        };
        let is_ace = matches!(&packet.transport, Transport::Tcp(tcp) if tcp.flags.is_ace);
        let result = check(packet, actual, slack).and_then(|()| {
            let local = self.flows[index].local.ip();
            if actual.source != local {
                return Err(format!("the source: expected {local}, was {}", actual.source));
            }
            match &actual.body {
                Body::Tcp(_)
                    if self.config.exactly && !actual.is_whole && !packet.ip.may_fragment =>
                {
                    return Err("DF is not set".to_owned());
                }
                Body::Tcp(tcp) => self.check_segment(index, tcp)?,
                Body::Udp { payload, .. } => self.check_datagram(payload)?,
                _ => {}
            }
            self.check_time("the packet", due, at_us)?;
            self.check_pending()
        });
        result.map_err(|why| {
            format!(
                "{why}\nexpected: {}\n     was: {}  at {:.6} s",
                notation::script(packet),
                notation::live(actual, is_ace),
                at_us as f64 / 1e6
            )
        })
    }

    /// What was sent when the script ends must stand in it: nothing else would see an answer to its last event.
    pub(super) fn check_silence(&mut self) -> Result<(), String> {
        let now_us = self.backend.now_us();
        let sent = core::iter::from_fn(|| self.backend.next_packet(now_us)).collect::<Vec<_>>();
        for (at_us, bytes) in self.unclaimed.drain(..).chain(sent).collect::<Vec<_>>() {
            let live = decode(&bytes)?;
            if at_us == now_us && (0..self.flows.len()).any(|index| self.is_of_flow(index, &live)) {
                return Err(format!(
                    "sent, and not in the script: {}  at {:.6} s",
                    notation::live(&live, false),
                    at_us as f64 / 1e6
                ));
            }
        }
        Ok(())
    }

    /// The next packet that belongs to a flow, in the script's numbers.
    fn next_for(
        &mut self,
        index: usize,
        packet: &Packet,
        limit_us: u64,
    ) -> Result<Option<(u64, LivePacket)>, String> {
        let mut waiting = std::mem::take(&mut self.unclaimed);
        loop {
            let next = match waiting.pop_front() {
                Some(next) => next,
                None => match self.backend.next_packet(limit_us) {
                    Some(next) => next,
                    None => return Ok(None),
                },
            };
            let live = match decode(&next.1) {
                Ok(live) => live,
                Err(why) if why == "a fragment" => return Err("a fragment was sent".to_owned()),
                Err(why) => return Err(format!("a packet that cannot be read was sent: {why}")),
            };
            if !self.belongs(index, packet, &live) {
                let other = (0..self.flows.len()).any(|other| self.is_of_flow(other, &live));
                if other {
                    self.unclaimed.push_back(next);
                }
                continue;
            }
            waiting.extend(self.unclaimed.drain(..));
            self.unclaimed = waiting;
            return Ok(Some((next.0, self.in_script_numbers(index, packet, live))));
        }
    }

    /// Whether a packet that was sent is of the flow. Learns our port from a first SYN or datagram.
    fn belongs(&mut self, index: usize, packet: &Packet, live: &LivePacket) -> bool {
        let wants_icmp = matches!(packet.transport, Transport::Icmp(_));
        if let Body::Icmp { .. } = live.body {
            return wants_icmp && live.destination == self.flows[index].remote.ip();
        }
        let flow = &mut self.flows[index];
        let learns = flow.stage == Stage::Connecting || flow.local.port() == 0;
        let (source, destination) = match &live.body {
            Body::Tcp(tcp) if !flow.is_udp => {
                let is_first = tcp.has(Flags::SYN) && !tcp.has(Flags::ACK);
                let ends = (tcp.source_port, tcp.destination_port);
                if learns && is_first && ends.1 == flow.remote.port() {
                    flow.forget_isn();
                    flow.local = SocketAddr::new(live.source, ends.0);
                    flow.stage = Stage::Open;
                }
                ends
            }
            Body::Udp { source_port, destination_port, .. } if flow.is_udp => {
                if learns && *destination_port == flow.remote.port() {
                    flow.local = SocketAddr::new(live.source, *source_port);
                    flow.stage = Stage::Open;
                }
                (*source_port, *destination_port)
            }
            _ => return false,
        };
        live.destination == flow.remote.ip()
            && source == flow.local.port()
            && destination == flow.remote.port()
    }

    fn is_of_flow(&self, index: usize, live: &LivePacket) -> bool {
        let flow = &self.flows[index];
        match &live.body {
            Body::Tcp(tcp) => {
                !flow.is_udp
                    && tcp.destination_port == flow.remote.port()
                    && (tcp.source_port == flow.local.port() || flow.stage == Stage::Connecting)
            }
            _ => false,
        }
    }

    fn in_script_numbers(
        &mut self,
        index: usize,
        packet: &Packet,
        mut live: LivePacket,
    ) -> LivePacket {
        let Body::Tcp(tcp) = &mut live.body else { return live };
        let flow = &mut self.flows[index];
        if tcp.has(Flags::SYN) {
            flow.on_isn(tcp.sequence);
        }
        let expected = match &packet.transport {
            Transport::Tcp(Tcp { options: Some(options), .. }) => {
                options.iter().find_map(|option| match option {
                    crate::script::TcpOption::Timestamps { value, .. } => Some(*value),
                    _ => None,
                })
            }
            _ => None,
        };
        flow.outbound(tcp, expected);
        live
    }

    /// The flow of a packet of the script; a first packet may make it.
    pub(super) fn flow_for(&mut self, packet: &Packet) -> Result<usize, String> {
        let ports = match &packet.transport {
            Transport::Tcp(tcp) => tcp.ports,
            _ => None,
        };
        let ports = ports.map(|(source, destination)| match packet.direction {
            Direction::Inbound => (source, destination),
            Direction::Outbound => (destination, source),
        });
        let index = match self.find_flow(packet, ports) {
            Some(index) => index,
            None => {
                let index = self.passive_flow(packet, ports)?;
                self.current = Some(index);
                index
            }
        };
        if let Transport::Tcp(tcp) = &packet.transport
            && packet.direction == Direction::Outbound
            && tcp.flags.has(Flags::SYN)
        {
            self.flows[index].expect_isn(tcp.sequence);
        }
        Ok(index)
    }

    fn find_flow(&mut self, packet: &Packet, ports: Option<(u16, u16)>) -> Option<usize> {
        if let Some(ports) = ports {
            let known = self.flows.iter().position(|flow| flow.script_ports == Some(ports));
            if known.is_some() {
                return known;
            }
            // Our own SYN: the ports it names are those of the socket that connects.
            let index = self.current?;
            let flow = &mut self.flows[index];
            if packet.direction == Direction::Outbound && flow.script_ports.is_none() {
                flow.script_ports = Some(ports);
                return Some(index);
            }
            return None;
        }
        let index = self.current?;
        let opens_passively = packet.direction == Direction::Inbound
            && is_tcp(&packet.transport)
            && self.flows[index].stage == Stage::Listening;
        (!opens_passively).then_some(index)
    }

    /// A flow that a packet from outside begins.
    fn passive_flow(
        &mut self,
        packet: &Packet,
        ports: Option<(u16, u16)>,
    ) -> Result<usize, String> {
        if packet.direction == Direction::Outbound && is_tcp(&packet.transport) {
            return Err("no socket of the script could send this packet".to_owned());
        }
        let (remote_port, local_port) = match ports {
            Some(ports) => ports,
            None => {
                self.next_port += 1;
                (self.next_port, self.config.bind_port)
            }
        };
        let local = SocketAddr::new(self.config.local, local_port);
        let remote = SocketAddr::new(self.config.remote, remote_port);
        let is_udp = matches!(packet.transport, Transport::Udp(_));
        let mut flow = Flow::new(Stage::Open, is_udp, local, remote);
        flow.script_ports = ports;
        self.flows.push(flow);
        Ok(self.flows.len() - 1)
    }

    /// A flow for a socket that the program made.
    pub(super) fn socket_flow(&mut self, fd: posix::Fd, is_udp: bool) {
        let local =
            SocketAddr::new(self.config.local, if is_udp { 0 } else { self.config.bind_port });
        let remote = SocketAddr::new(self.config.remote, self.config.connect_port);
        let mut flow = Flow::new(Stage::New, is_udp, local, remote);
        flow.fd = Some(fd);
        self.flows.push(flow);
        self.current = Some(self.flows.len() - 1);
    }

    /// The family of the program's sockets.
    pub(super) fn domain(&self) -> u16 {
        match self.config.ip {
            IpVersion::V4 => posix::abi::AF_INET,
            IpVersion::V4MappedV6 | IpVersion::V6 => posix::abi::AF_INET6,
        }
    }
}

fn live_tcp(tcp: &Tcp) -> LiveTcp {
    LiveTcp {
        source_port: 0,
        destination_port: 0,
        sequence: tcp.sequence,
        acknowledgment: tcp.acknowledgment,
        flags: tcp.flags.bits,
        window: tcp.window.unwrap_or(0),
        urgent: tcp.urgent,
        options: tcp.options.clone().unwrap_or_default(),
        payload: tcp.data.clone().unwrap_or_else(|| {
            peer_bytes(place(tcp.sequence, tcp.flags.has(Flags::SYN)), tcp.len.into())
        }),
    }
}

/// An ICMP message with the beginning of the packet it is about.
fn inbound_icmp(icmp: &Icmp, flow: &Flow) -> Result<Body, String> {
    let is_ipv4 = flow.local.is_ipv4();
    let (kind, code) = icmp::numbers(icmp, is_ipv4)?;
    let mut rest = [0; 4];
    match (icmp.mtu, is_ipv4) {
        (Some(mtu), true) => rest[2..].copy_from_slice(&(mtu as u16).to_be_bytes()),
        (Some(mtu), false) => rest = mtu.to_be_bytes(),
        (None, _) => {}
    }
    if let Some(id) = icmp.id {
        rest[..2].copy_from_slice(&id.to_be_bytes());
    }
    let (protocol, transport, len) = match icmp.quoted {
        None => return Ok(Body::Icmp { kind, code, rest, quoted: Vec::new() }),
        Some(Quoted::Raw { len }) => {
            let quoted = vec![0; usize::from(len).saturating_sub(8)];
            return Ok(Body::Icmp { kind, code, rest, quoted });
        }
        Some(Quoted::Tcp { sequence, len }) => {
            let mut bytes = flow.local.port().to_be_bytes().to_vec();
            bytes.extend(flow.remote.port().to_be_bytes());
            bytes.extend(flow.quoted_sequence(sequence).to_be_bytes());
            (live::TCP, bytes, usize::from(len) + 20)
        }
        Some(Quoted::Udp { len }) => {
            let mut bytes = flow.local.port().to_be_bytes().to_vec();
            bytes.extend(flow.remote.port().to_be_bytes());
            bytes.extend((len + 8).to_be_bytes());
            bytes.extend([0, 0]);
            (live::UDP, bytes, usize::from(len) + 8)
        }
    };
    let quoted = LivePacket {
        source: flow.local.ip(),
        destination: flow.remote.ip(),
        class: 0,
        ttl: 60,
        flow_label: 0,
        is_whole: true,
        body: Body::Other { protocol, len },
    };
    let mut bytes = encode_ip(&quoted, protocol, len);
    bytes.extend(transport);
    Ok(Body::Icmp { kind, code, rest, quoted: bytes })
}

/// Two segments that follow each other, as one: a script may say in one line what leaves as several
/// segments.
fn join(first: LivePacket, next: LivePacket, ace: bool) -> Result<LivePacket, String> {
    let mut joined = first.clone();
    if let (Body::Tcp(whole), Body::Tcp(part)) = (&mut joined.body, &next.body) {
        let end = whole.sequence.wrapping_add(whole.payload.len() as u32);
        let kept = !(Flags::FIN | Flags::PSH | Flags::CWR);
        if part.sequence == end
            && part.flags & kept == whole.flags & kept
            && part.acknowledgment == whole.acknowledgment
            && !part.payload.is_empty()
        {
            whole.payload.extend_from_slice(&part.payload);
            // As an engine that splits a segment has it: the last one ends it, and pushes.
            whole.flags =
                whole.flags & !(Flags::FIN | Flags::PSH) | part.flags & (Flags::FIN | Flags::PSH);
            return Ok(joined);
        }
    }
    Err(format!(
        "the segments do not belong together\n     was: {}\n     and: {}",
        notation::live(&first, ace),
        notation::live(&next, ace)
    ))
}
