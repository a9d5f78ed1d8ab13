//! The wire checker: whether what a stack sends is what RFCs let it send.
//!
//! It stands where a capture would: it sees every frame that a host's device took
//! ([`Checker::on_sent`]) and every frame that was handed to the host's shard
//! ([`Checker::on_arrived`]), and nothing of what is inside the stack. What arrived bounds what may
//! be sent: acknowledgments of what arrived only, data within the window that arrived only.
//! A frame counts as arrived where it is intact; whether the stack could keep it is the stack's own
//! affair, so every bound is on the safe side and a finding is a mistake, of the stack or of the
//! checker.
//!
//! Here are the rules of link and network; those of TCP are in `flow.rs`. Each finding names its
//! rule by RFC and section.

mod alone;
mod early;
mod echoes;
mod ecn;
mod fast_open;
mod flow;
mod flow_labels;
mod grounds;
mod nagle;
mod neighbours;
mod ranges;
mod resets;
#[cfg(test)]
mod tests;
mod waits;

use crate::packet::{self, Body, Ip, Packet, Segment, Transport, flag};
use core::net::{IpAddr, SocketAddr};
use fast_open::Cookies;
use flow::Flow;
use flow_labels::FlowLabels;
use neighbours::Neighbours;
use resets::Provocations;
use std::collections::BTreeMap;
use time::{Duration, Instant};

pub use grounds::Line;
pub use waits::Patience;

/// A rule was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// When.
    pub at: Instant,
    /// By which host.
    pub host: usize,
    /// Which rule, with the RFC and section it stands in.
    pub rule: &'static str,
    /// The facts.
    pub what: String,
    /// The connection, seen from the host: its own end first.
    pub flow: Option<(SocketAddr, SocketAddr)>,
}

/// What a connection has in flight with the new data that it has just sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The connection, the sender's end first.
    pub ends: (SocketAddr, SocketAddr),
    /// Sent and not acknowledged.
    pub bytes: u64,
    /// For how long nothing new had been sent or acknowledged.
    pub quiet: Duration,
}

/// A rule that a segment broke, and the facts.
pub(crate) type Broken = (&'static str, String);

/// SYNs remembered for one pair of ends.
const SYNS_MAX: usize = 16;

/// Findings kept; the first is what matters.
const FINDINGS_MAX: usize = 16;

/// How long a SYN may wait in its host before it is sent.
const MTU_GRACE: Duration = Duration::from_secs(5);

/// All stations.
const BROADCAST: [u8; 6] = [0xff; 6];

/// A SYN that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Syn {
    pub(crate) sequence: u32,
    pub(crate) flags: u8,
    pub(crate) options: packet::Options,
    pub(crate) window: u16,
    pub(crate) payload_len: u32,
    /// When the first of the same came.
    pub(crate) since: Instant,
}

/// What the checker is told of a host beforehand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// RFC 4987, 3.6: an ACK alone may begin a connection, also one that has been.
    pub cookies: bool,
    /// What arrives may be dropped before its connection sees it: for want of memory, or because a piece of
    /// it is damaged.
    pub drops: bool,
    /// Nagle's algorithm is on in all its connections.
    pub nagle: bool,
    /// Segments of its first flights (RFC 6928), 0 where nothing is known of them.
    pub initial_window_segments: u32,
}

/// What is known where a segment goes out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    pub(crate) host: Facts,
    /// Others before it may have been given up unsent.
    pub(crate) may_skip: bool,
    /// When its neighbour was asked for last, for which it may have waited.
    pub(crate) asked_at: Option<Instant>,
}

/// What the checker knows of a host.
#[derive(Debug)]
struct Watched {
    addresses: Vec<IpAddr>,
    ethernet: bool,
    mtu: usize,
    /// Those that it had lately, and until when.
    mtus_before: Vec<(Instant, usize)>,
    facts: Facts,
    flows: BTreeMap<(SocketAddr, SocketAddr), Flow>,
    /// Other SYN-ACKs than the last one: a cookie may bring them back, and a reset that waits for its neighbour
    /// may be sent behind the next one.
    answers: BTreeMap<(SocketAddr, SocketAddr), Vec<Flow>>,
    syns: BTreeMap<(SocketAddr, SocketAddr), Vec<Syn>>,
    neighbours: Neighbours,
    provocations: Provocations,
    /// Those of fast open, which are others than the cookies of `cookies`.
    fast_open: Cookies,
    flow_labels: FlowLabels,
}

/// Watches the wire of all hosts of a world.
#[derive(Debug, Default)]
pub struct Checker {
    hosts: Vec<Watched>,
    findings: Vec<Finding>,
    segments: u64,
    windows_closed: u64,
}

impl Checker {
    /// A host with these addresses; hosts are counted in the order of these calls.
    pub fn add_host(&mut self, addresses: Vec<IpAddr>, ethernet: bool, mtu: usize, facts: Facts) {
        self.hosts.push(Watched {
            addresses,
            ethernet,
            mtu,
            mtus_before: Vec::new(),
            facts,
            flows: BTreeMap::new(),
            answers: BTreeMap::new(),
            syns: BTreeMap::new(),
            neighbours: Neighbours::default(),
            provocations: Provocations::default(),
            fast_open: Cookies::default(),
            flow_labels: FlowLabels::default(),
        });
    }

    /// The host begins anew with these addresses and knows nothing of its past.
    pub fn on_restart(&mut self, host: usize, addresses: Vec<IpAddr>) {
        let watched = &mut self.hosts[host];
        watched.addresses = addresses;
        watched.flows.clear();
        watched.answers.clear();
        watched.syns.clear();
        watched.neighbours = Neighbours::default();
        watched.provocations = Provocations::default();
        watched.fast_open = Cookies::default();
        watched.flow_labels = FlowLabels::default();
    }

    /// The host's interface takes packets up to this length now.
    pub fn set_mtu(&mut self, now: Instant, host: usize, mtu: usize) {
        let watched = &mut self.hosts[host];
        watched.mtus_before.retain(|(until, _)| now.since(*until) < MTU_GRACE);
        watched.mtus_before.push((now, watched.mtu));
        watched.mtu = mtu;
    }

    /// The host has another device, and may be on another link.
    pub fn on_device_replaced(&mut self, now: Instant, host: usize) {
        self.hosts[host].neighbours.on_link_changed(now);
    }

    /// The host may use this address from now on.
    pub fn add_address(&mut self, host: usize, address: IpAddr) {
        self.hosts[host].addresses.push(address);
    }

    /// The host may not use this address any more.
    pub fn remove_address(&mut self, host: usize, address: IpAddr) {
        let watched = &mut self.hosts[host];
        watched.addresses.retain(|other| *other != address);
        watched.neighbours.on_address_removed(address);
        let flows = watched.flows.iter_mut().filter(|((local, _), _)| local.ip() == address);
        flows.for_each(|(_, flow)| flow.forget_debts());
    }

    /// What was found, the first of it.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// How many TCP segments were judged.
    #[must_use]
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Of these, how many announced a window of nothing on an open connection.
    #[must_use]
    pub fn windows_closed(&self) -> u64 {
        self.windows_closed
    }

    /// A device took this frame from its host. Where it carries new data, whose and how much is in
    /// flight with it.
    pub fn on_sent(&mut self, now: Instant, host: usize, frame: &[u8]) -> Option<InFlight> {
        let watched = &mut self.hosts[host];
        let mut flow = None;
        let judged = match packet::read(frame, watched.ethernet) {
            Err(error) => Err(("RFC 1122, 3.2.1: a frame that is sound", error)),
            Ok(packet) => match &packet.body {
                Body::Arp(arp) => watched.judge_arp(now, arp),
                Body::Ip(ip) => watched.judge_ip(now, ip).and_then(|()| match &ip.transport {
                    Transport::Tcp(segment) => {
                        self.segments += 1;
                        self.windows_closed += u64::from(segment.closes_window());
                        flow = Some((segment.source, segment.destination));
                        watched.judge_segment(now, segment, ip.ecn)
                    }
                    _ => Ok(()),
                }),
            },
        };
        if let Err((rule, what)) = judged {
            self.report(Finding { at: now, host, rule, what, flow });
        }
        let ends = flow?;
        let (bytes, quiet) = watched_flight(&self.hosts[host], ends)?;
        Some(InFlight { ends, bytes, quiet })
    }

    /// This frame was handed to the host's shard.
    pub fn on_arrived(&mut self, now: Instant, host: usize, frame: &[u8]) {
        let watched = &mut self.hosts[host];
        let Ok(packet) = packet::read(frame, watched.ethernet) else { return };
        // Nothing but the link's own checksum shows damage of its header; no station is a group.
        if packet.stations.is_some_and(|(_, source)| source[0] & 1 != 0) || is_astray(&packet) {
            return;
        }
        // RFC 1122, 4.2.3.10: nor is a segment taken that came to a group of stations.
        let is_to_group = packet.stations.is_some_and(|(destination, _)| destination[0] & 1 != 0);
        let ip = match &packet.body {
            Body::Arp(arp) => return watched.take_arp(now, arp),
            Body::Ip(ip) => ip,
        };
        match &ip.transport {
            Transport::Tcp(_) if is_to_group => {}
            Transport::Tcp(segment) if watched.addresses.contains(&ip.destination) => {
                watched.take_segment(now, segment, ip.ecn);
            }
            Transport::Icmp { kind, code, rest } => {
                if let Some(peer) = too_long_for(ip.source.is_ipv6(), *kind, *code, rest) {
                    watched.on_shorter_path(peer);
                }
                if let Some(target) = solicited(ip, *kind, rest) {
                    watched.take_solicitation(now, ip, *kind, target);
                }
            }
            Transport::Other(_) if ip.fragment && ip.ecn == 3 => {
                let flows = watched.flows.iter_mut();
                let of_peer = flows.filter(|((_, remote), _)| remote.ip() == ip.source);
                of_peer.for_each(|(_, flow)| flow.on_marked_piece());
            }
            _ => {}
        }
    }

    /// Adds a finding of somebody else.
    pub fn report(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Whether the frame came to a group of stations that nobody of its packet's is in: the link's header is damaged.
fn is_astray(packet: &Packet<'_>) -> bool {
    let Some((station, _)) = packet.stations else { return false };
    let group = match &packet.body {
        Body::Ip(ip) => match ip.destination {
            IpAddr::V6(group) if group.is_multicast() => {
                let [.., a, b, c, d] = group.octets();
                [0x33, 0x33, a, b, c, d]
            }
            IpAddr::V4(group) if group.is_multicast() => {
                let [_, a, b, c] = group.octets();
                [0x01, 0x00, 0x5e, a & 0x7f, b, c]
            }
            _ => BROADCAST,
        },
        Body::Arp(_) => BROADCAST,
    };
    station[0] & 1 != 0 && station != BROADCAST && station != group
}

/// To whom a packet was too long for the path, where an ICMP message says so. `rest` is what follows
/// its first four bytes: the MTU and the packet.
fn too_long_for(is_ipv6: bool, kind: u8, code: u8, rest: &[u8]) -> Option<IpAddr> {
    match (is_ipv6, kind, code) {
        (false, 3, 4) => rest.get(20..)?.first_chunk::<4>().map(|it| IpAddr::from(*it)),
        (true, 2, 0) => rest.get(28..)?.first_chunk::<16>().map(|it| IpAddr::from(*it)),
        _ => None,
    }
}

/// The address that a neighbour solicitation or advertisement is about (RFC 4861, 4.3 and 4.4). No checksum
/// covers the hop limit, without which it is none (7.1.1 and 7.1.2).
fn solicited(ip: &Ip<'_>, kind: u8, rest: &[u8]) -> Option<IpAddr> {
    let is_one = ip.source.is_ipv6() && matches!(kind, 135 | 136) && ip.hop_limit == 255;
    let target = rest.get(4..20).filter(|_| is_one)?;
    <[u8; 16]>::try_from(target).ok().map(IpAddr::from)
}

fn watched_flight(watched: &Watched, ends: (SocketAddr, SocketAddr)) -> Option<(u64, Duration)> {
    watched.flows.get(&ends).and_then(Flow::new_flight)
}

impl Watched {
    fn judge_arp(&mut self, now: Instant, arp: &packet::Arp) -> Result<(), Broken> {
        let announces = arp.sender == arp.target || arp.sender.is_unspecified();
        if !announces && !self.addresses.contains(&arp.sender) {
            return Err(("RFC 826: the sender's address is its own", arp.sender.to_string()));
        }
        match arp.operation == 1 && !announces {
            true => self.judge_request(now, arp.target),
            false => {
                self.neighbours.on_answered(now, arp.target);
                Ok(())
            }
        }
    }

    fn judge_request(&mut self, now: Instant, target: IpAddr) -> Result<(), Broken> {
        let flows = self.flows.iter_mut().filter(|((_, remote), _)| remote.ip() == target);
        flows.for_each(|(_, flow)| flow.on_neighbour_asked());
        self.neighbours.judge_request(now, target)
    }

    fn take_arp(&mut self, now: Instant, arp: &packet::Arp) {
        let is_announcement = arp.sender == arp.target || arp.sender.is_unspecified();
        if arp.operation == 1 && !is_announcement && self.addresses.contains(&arp.target) {
            self.neighbours.on_asked(now, arp.sender, arp.target);
        }
        self.on_heard_of(arp.sender, arp.operation == 2);
    }

    fn take_solicitation(&mut self, now: Instant, ip: &Ip<'_>, kind: u8, target: IpAddr) {
        let asks = kind == 135 && !ip.source.is_unspecified();
        if asks && self.addresses.contains(&target) {
            self.neighbours.on_asked(now, ip.source, target);
        }
        let is_answer = kind == 136;
        let is_ours = ip.destination.is_multicast() || self.addresses.contains(&ip.destination);
        if is_answer && !is_ours {
            // Who asked is not there any more.
            return;
        }
        self.on_heard_of(if is_answer { target } else { ip.source }, is_answer);
    }

    /// A neighbour spoke: what goes to it is sent again.
    fn on_heard_of(&mut self, neighbour: IpAddr, is_answer: bool) {
        if self.neighbours.on_heard_of(neighbour, is_answer) {
            let flows = self.flows.iter_mut().filter(|((_, remote), _)| remote.ip() == neighbour);
            flows.for_each(|(_, flow)| flow.let_skip());
        }
    }

    fn judge_ip(&mut self, now: Instant, ip: &Ip<'_>) -> Result<(), Broken> {
        let unspecified = ip.source.is_unspecified();
        if !self.addresses.contains(&ip.source) && !unspecified {
            return Err(("RFC 1122, 3.2.1.3: the source is one of ours", ip.source.to_string()));
        }
        if ip.len > self.mtu {
            let what = format!("{} bytes, the MTU is {}", ip.len, self.mtu);
            return Err(("RFC 1122, 3.3.2: no packet is longer than the MTU", what));
        }
        if ip.trailer_len > 0 {
            let what = format!("{} bytes behind the packet", ip.trailer_len);
            return Err(("RFC 894: the frame ends with the packet", what));
        }
        if ip.hop_limit == 0 {
            return Err(("RFC 1122, 3.2.1.7: a TTL above zero", "TTL 0".to_owned()));
        }
        self.flow_labels.judge(ip)?;
        match &ip.transport {
            Transport::Tcp(_) if !ip.dont_fragment => {
                Err(("RFC 1191, 3: segments forbid fragmenting", "DF is clear".to_owned()))
            }
            Transport::Icmp { kind: 133..=136, .. }
                if ip.source.is_ipv6() && ip.hop_limit != 255 =>
            {
                Err(("RFC 4861, 4: a hop limit of 255", ip.hop_limit.to_string()))
            }
            Transport::Icmp { kind: 135, rest, .. } if ip.source.is_ipv6() && !unspecified => {
                let target = rest.get(4..20).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
                target.map_or(Ok(()), |target| self.judge_request(now, IpAddr::from(target)))
            }
            Transport::Icmp { kind: 136, .. } if ip.source.is_ipv6() => {
                self.neighbours.on_answered(now, ip.destination);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn judge_segment(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        ecn: u8,
    ) -> Result<(), Broken> {
        let ends = (segment.source, segment.destination);
        alone::judge(segment, ecn)?;
        if segment.has(flag::RST) {
            let silent = self.neighbours.may_have_lost(now, segment.destination.ip());
            let flow = self.flows.get_mut(&ends);
            let asked_at = self.neighbours.asked_at(segment.destination.ip());
            let ends_it = flow.is_some_and(|it| it.on_reset_sent(now, segment, asked_at))
                || self.ends_former(now, segment);
            return if ends_it || silent { Ok(()) } else { self.provocations.judge(segment) };
        }
        if segment.has(flag::SYN) {
            return self.judge_syn(now, segment);
        }
        let circumstances = Circumstances {
            host: self.facts,
            may_skip: self.neighbours.may_have_lost(now, segment.destination.ip()),
            asked_at: self.neighbours.asked_at(segment.destination.ip()),
        };
        if self.facts.cookies {
            self.bring_back(segment);
        }
        let waits = self.has_answer_in_waiting(segment);
        match self.flows.get_mut(&ends) {
            None if waits => Ok(()),
            Some(flow) => flow.judge(now, segment, ecn, circumstances),
            None => Err((
                "RFC 9293, 3.10.7.1: a connection that does not exist sends resets only",
                segment.to_string(),
            )),
        }
    }

    /// Whether it is the ACK of a half-open connection whose SYN-ACK nobody has seen: that waits for a
    /// neighbour, and what refuses a segment goes back to where that came from, and need not.
    fn has_answer_in_waiting(&self, segment: &Segment<'_>) -> bool {
        let ends = (segment.source, segment.destination);
        let answers = |syn: &Syn| segment.acknowledgment == syn.sequence.wrapping_add(1);
        segment.flags == flag::ACK
            && segment.payload.is_empty()
            && !self.flows.contains_key(&ends)
            && self.neighbours.asked_at(segment.destination.ip()).is_some()
            && self.syns.get(&ends).is_some_and(|syns| syns.iter().any(answers))
    }

    /// Whether a reset ends a connection whose ends another has by now: it waited for its neighbour, or the SYN-ACK of
    /// the other left in the same moment.
    fn ends_former(&mut self, now: Instant, reset: &Segment<'_>) -> bool {
        let ends = (reset.source, reset.destination);
        let asked_at = self.neighbours.asked_at(reset.destination.ip());
        let has_waited = asked_at.is_some();
        let is_at_once = self.flows.get(&ends).is_some_and(|flow| flow.began_at() == Some(now));
        let answers = self.answers.get_mut(&ends);
        (has_waited || is_at_once)
            && answers.into_iter().flatten().any(|it| it.on_reset_sent(now, reset, asked_at))
    }

    /// A cookie came back: the segment may belong to a SYN-ACK that is not the last.
    fn bring_back(&mut self, segment: &Segment<'_>) {
        let ends = (segment.source, segment.destination);
        let Some(flow) = self.flows.get_mut(&ends) else { return };
        if !flow.has_place_for(segment)
            && let Some(answers) = self.answers.get_mut(&ends)
            && let Some(answer) = answers.iter_mut().find(|answer| answer.has_place_for(segment))
        {
            core::mem::swap(flow, answer);
            flow.forget_debts();
        }
    }

    /// A SYN goes out: of a new connection, or again.
    fn judge_syn(&mut self, now: Instant, segment: &Segment<'_>) -> Result<(), Broken> {
        let ends = (segment.source, segment.destination);
        let is_new = self.flows.get(&ends).is_none_or(|flow| flow.iss() != segment.sequence);
        if is_new {
            let before = self.flows.insert(ends, Flow::new(segment));
            if let Some(before) = before.filter(|_| segment.has(flag::ACK)) {
                let answers = self.answers.entry(ends).or_default();
                if answers.len() == SYNS_MAX {
                    answers.remove(0);
                }
                answers.push(before);
            }
        }
        let Some(flow) = self.flows.get_mut(&ends) else { return Ok(()) };
        // A SYN that waits for its neighbour is of the time when it was made, whatever changed since, and how
        // often.
        let lately = |(until, _): &&(Instant, usize)| now.since(*until) < MTU_GRACE;
        let mtus_before = self.mtus_before.iter().filter(lately).map(|(_, mtu)| *mtu);
        let mtu = mtus_before.fold(self.mtu, usize::max);
        flow.on_syn_sent(now, segment, is_new, mtu)?;
        if !segment.has(flag::ACK) {
            return self.fast_open.on_syn_sent(segment, is_new);
        }
        if self.facts.drops && !is_new {
            flow.on_answer_repeated();
        }
        let answers = |syn: &&Syn| {
            let beyond = segment.acknowledgment.wrapping_sub(syn.sequence.wrapping_add(1));
            beyond <= syn.payload_len
        };
        let syns = self.syns.get(&ends).map_or(&[][..], Vec::as_slice);
        self.fast_open.on_answer_sent(now, segment, syns)?;
        match syns.iter().rev().find(answers) {
            Some(syn) => flow.on_answer_sent(segment, syn, syns, self.facts),
            None => Err((
                "RFC 9293, 3.10.7.2: a SYN-ACK acknowledges a SYN that arrived",
                segment.to_string(),
            )),
        }
    }

    /// RFC 1191, 6.4: what was too long is sent again at once, and what stands before it with it.
    fn on_shorter_path(&mut self, peer: IpAddr) {
        let flows = self.flows.iter_mut().filter(|((_, remote), _)| remote.ip() == peer);
        flows.for_each(|(_, flow)| flow.forget_repeats());
    }

    fn take_segment(&mut self, now: Instant, segment: &Segment<'_>, ecn: u8) {
        let ends = (segment.destination, segment.source);
        self.provocations.on_arrived(ends, segment);
        self.fast_open.on_arrived(segment);
        if segment.has(flag::SYN) && !segment.has(flag::ACK) {
            let syns = self.syns.entry(ends).or_default();
            let first = syns.iter().find(|it| it.sequence == segment.sequence);
            let since = first.map_or(now, |it| it.since);
            if syns.len() == SYNS_MAX {
                syns.remove(0);
            }
            syns.push(Syn {
                since,
                sequence: segment.sequence,
                flags: segment.flags,
                options: segment.options,
                window: segment.window,
                payload_len: segment.payload.len() as u32,
            });
        }
        if self.facts.cookies
            && segment.has(flag::ACK)
            && let Some(flow) = self.flows.get_mut(&ends)
        {
            // Which of several SYN-ACKs the peer believes.
            let believes = |answer: &Flow| segment.acknowledgment == answer.iss().wrapping_add(1);
            if flow.is_unanswered()
                && !believes(flow)
                && let Some(answers) = self.answers.get_mut(&ends)
                && let Some(answer) = answers.iter_mut().find(|answer| believes(answer))
            {
                core::mem::swap(flow, answer);
                flow.forget_debts();
            }
        }
        let answers = self.answers.get_mut(&ends).into_iter().flatten();
        for flow in self.flows.get_mut(&ends).into_iter().chain(answers) {
            flow.on_arrived(now, segment, ecn);
        }
    }
}
