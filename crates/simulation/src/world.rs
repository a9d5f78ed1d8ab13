//! The world: virtual time, what is to happen when, and what must hold.
//!
//! ```text
//!   busy: connections open, links misbehave, hosts restart     until Scenario::calm_at
//!   calm: links are good, applications finish without pauses   until every endpoint has ended
//!   closing: listeners are closed                              until no shard has a socket
//!   quiet: nothing is left that could happen                   then the books are audited
//! ```
//!
//! Everything is drawn from the seed, and events of one moment have an order, so a run repeats to
//! the bit. `running.rs` is who runs when, `traffic.rs` what applications and sockets do to each other, `audit.rs` what must
//! hold at the end of a phase, `addresses.rs` how hosts come by addresses and lose them, `fast_open.rs`
//! connections that begin with data.

mod addresses;
mod audit;
mod causes;
mod datagrams;
mod event;
mod fast_open;
mod running;
mod traffic;
mod waiting;

use crate::application::Endpoint;
use crate::checker::{Checker, Facts, InFlight};
use crate::host::{Host, Socket};
use crate::link::Arrival;
use crate::random::Random;
use crate::report::{Failure, Report, RunCounters};
use crate::scenario::{BEGINNING, Disturbance, HostPlan, START, Scenario};
use crate::trace::{Trace, Way};
use core::net::{IpAddr, SocketAddr};
use datagrams::Datagram;
use event::{Event, Events};
use stack::SynCookieMode;
use std::collections::{BTreeMap, BTreeSet};
use time::{Duration, Instant};

/// Frames after which a run is taken to go on for ever; the busiest has a tenth of it.
const FRAMES_MAX: u64 = 5_000_000;

/// How long everything stays quiet before the books are audited: longer than a neighbour's entry
/// takes to be probed and given up, and than a path's MTU is remembered (RFC 1191, 6.3: ten minutes).
const QUIET: Duration = Duration::from_secs(700);

/// What of a run is kept to look at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep {
    /// The last frames, as text, for a failure.
    pub last_frames: bool,
    /// All frames, for a capture file.
    pub capture: bool,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Busy,
    Calm,
    Closing,
    Quiet,
    Over,
}

/// Two ends of a connection.
#[derive(Debug)]
struct Pair {
    hosts: [usize; 2],
    /// The endpoint that opened it.
    client: usize,
    /// The first endpoint that was accepted for it, once there is one.
    server: Option<usize>,
    /// Something happened that lets either end see an error.
    disturbed: bool,
    /// The client's initial sequence number.
    iss: u32,
}

/// See the module documentation.
pub struct World {
    scenario: Scenario,
    keep: Keep,
    now: Instant,
    events: Events,
    phase: Phase,
    hosts: Vec<Host>,
    endpoints: Vec<Endpoint>,
    /// Ends of each endpoint's connection, its own first.
    ends: Vec<(SocketAddr, SocketAddr)>,
    /// Endpoints that have not ended.
    live: usize,
    pairs: Vec<Pair>,
    /// The pair that was opened from a client's to a server's address with this sequence number.
    flows: BTreeMap<(SocketAddr, SocketAddr, u32), usize>,
    /// Whose stream it is.
    names: BTreeMap<u64, usize>,
    /// Who reads the stream of an endpoint.
    readers: BTreeMap<usize, Vec<usize>>,
    datagrams: Vec<Datagram>,
    /// From whom to whom, and whether over IPv6, those were rehearsed that must arrive.
    rehearsed: BTreeSet<(usize, usize, bool)>,
    /// The endpoint that has a connection, by its ends.
    by_ends: BTreeMap<(SocketAddr, SocketAddr), usize>,
    /// Hosts and the addresses they lost at some time.
    lost_addresses: BTreeSet<(usize, IpAddr)>,
    /// Hosts and addresses that they are given though a neighbour has them.
    taken_claims: BTreeSet<(usize, IpAddr)>,
    /// Listeners whose application comes to accept later.
    accepting: BTreeSet<(usize, Socket)>,
    /// What was seen of endpoints that wait.
    seen: BTreeMap<usize, waiting::Seen>,
    /// What is in flight after the batch that goes out now.
    flights: Vec<InFlight>,
    checker: Checker,
    trace: Trace,
    random: Random,
    counters: RunCounters,
    failure: Option<Box<Failure>>,
    buffer: Vec<u8>,
}

/// Runs the scenario of `seed`.
///
/// # Errors
/// What did not hold, first.
pub fn run(seed: u64, keep: Keep) -> Result<Report, Box<Failure>> {
    World::new(Scenario::draw(seed), keep).run()
}

impl World {
    /// A world in which nothing has happened yet.
    #[must_use]
    pub fn new(scenario: Scenario, keep: Keep) -> Self {
        let mut random = Random::new(scenario.seed ^ 0x5eed);
        let mut checker = Checker::default();
        let hosts: Vec<_> = (0..scenario.hosts.len())
            .map(|number| Host::new(BEGINNING, number, &scenario, &mut random))
            .collect();
        for host in &hosts {
            let facts = facts_of(&host.plan);
            checker.add_host(host.addresses(), !scenario.bare_ip, scenario.mtu, facts);
        }
        let mut events = Events::default();
        for (host, it) in hosts.iter().enumerate() {
            for home in 0..it.homes() {
                events.add(BEGINNING, Event::Run { host, home });
            }
        }
        let mut openings = random.fork(7);
        for index in 0..scenario.connections {
            let span_us = scenario.spread.as_micros() as u64;
            let at = START + Duration::from_micros(openings.within(0, span_us));
            events.add(at, Event::Open { index });
        }
        for index in 0..scenario.datagrams {
            let span_us = scenario.spread.as_micros() as u64;
            let at = START + Duration::from_micros(openings.within(0, span_us));
            events.add(at, Event::Datagram { index });
        }
        for (at, disturbance) in &scenario.disturbances {
            events.add(*at, Event::Disturb(*disturbance));
        }
        events.add(scenario.calm_at, Event::Calm);
        events.add(START, Event::Look);
        Self {
            keep,
            now: BEGINNING,
            events,
            phase: Phase::Busy,
            hosts,
            endpoints: Vec::new(),
            ends: Vec::new(),
            live: 0,
            pairs: Vec::new(),
            flows: BTreeMap::new(),
            names: BTreeMap::new(),
            readers: BTreeMap::new(),
            datagrams: Vec::new(),
            rehearsed: BTreeSet::new(),
            by_ends: BTreeMap::new(),
            lost_addresses: BTreeSet::new(),
            taken_claims: BTreeSet::new(),
            accepting: BTreeSet::new(),
            seen: BTreeMap::new(),
            flights: Vec::new(),
            checker,
            trace: Trace::new(keep.last_frames, keep.capture),
            random: random.fork(9),
            counters: RunCounters::default(),
            failure: None,
            buffer: vec![0; 65_536],
            scenario,
        }
    }

    /// Lets everything happen.
    ///
    /// # Errors
    /// What did not hold, first.
    pub fn run(mut self) -> Result<Report, Box<Failure>> {
        self.play();
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(self.report()),
        }
    }

    /// Lets everything happen and gives all frames as well.
    pub fn run_captured(mut self) -> (Result<Report, Box<Failure>>, Trace) {
        self.play();
        let report = self.report();
        (self.failure.map_or(Ok(report), Err), self.trace)
    }

    fn play(&mut self) {
        while self.phase != Phase::Over && self.failure.is_none() {
            let Some((at, event)) = self.events.next() else {
                self.fail("something is always to happen until the end", String::new());
                break;
            };
            self.now = self.now.max(at);
            self.handle(event);
            if self.trace.frames() > FRAMES_MAX {
                self.fail("a run comes to an end", format!("{FRAMES_MAX} frames went by"));
            }
            if let Some(finding) = self.checker.findings().first() {
                let (property, what) = (finding.rule.to_owned(), finding.what.clone());
                let (host, flow) = (finding.host, finding.flow);
                self.fail_with(property, what, Some(host), flow);
            }
            self.advance_phase();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Open { index } => self.open(index),
            Event::Datagram { index } => self.send_datagram(index),
            Event::AtSwitch { from, frame, damaged } => self.switch(from, frame, damaged),
            Event::AtHost { host, frame } => {
                if let Some(home) = self.hosts[host].on_frame(frame) {
                    let at = self.now + self.hosts[host].plan.coalescing;
                    self.events.add(at, Event::Interrupt { host, home });
                }
            }
            Event::Interrupt { host, home } => self.interrupt(host, home),
            Event::Timer { host, home } => {
                if *self.hosts[host].timer(home) == Some(self.now) {
                    *self.hosts[host].timer(home) = None;
                    self.serve(host, home);
                }
            }
            Event::Run { host, home } => self.serve(host, home),
            Event::Act { endpoint } => {
                if self.endpoints[endpoint].wake_at == Some(self.now) {
                    let (host, home) =
                        (self.endpoints[endpoint].host, self.endpoints[endpoint].socket.home);
                    // Its squeue may have taken something in and not run since.
                    self.take_events(host, home);
                    self.act(endpoint);
                    self.serve(host, home);
                }
            }
            Event::Accept { host, listener } => {
                self.accept(host, listener);
                self.serve(host, listener.home);
            }
            Event::Disturb(disturbance) => self.disturb(disturbance),
            Event::Regain { host, ipv6, another } => self.regain_address(host, ipv6, another),
            Event::Look => self.look(),
            Event::DatagramsRehearsed => self.rehearse_datagrams(),
            Event::DatagramsDue => self.send_due_datagrams(),
            Event::DatagramsOver => self.judge_datagrams(),
            Event::Calm => self.calm(),
            Event::GiveUp => self.give_up(),
            Event::Deadline(phase) => self.on_deadline(phase),
        }
    }

    fn put_on_wire(&mut self, host: usize, frame: Vec<u8>) {
        self.trace.add(self.now, host, Way::Out, &frame, !self.scenario.bare_ip);
        if let Some(flight) = self.checker.on_sent(self.now, host, &frame) {
            self.flights.push(flight);
        }
        let arrivals = self.hosts[host].up.carry(self.now, frame.len());
        for (arrival, frame) in arrived(arrivals, frame, self.scenario.bare_ip, false) {
            let damaged = arrival.flipped_bit.is_some();
            self.events.add(arrival.at, Event::AtSwitch { from: host, frame, damaged });
        }
    }

    /// The switch passes a frame on: to the station it is for, or to all others.
    fn switch(&mut self, from: usize, frame: Vec<u8>, damaged: bool) {
        let destination = frame.get(..6);
        let known = self.hosts.iter().position(|host| destination == Some(&host.station[..]));
        let known = known.filter(|_| !self.scenario.bare_ip);
        for host in (0..self.hosts.len()).filter(|host| *host != from) {
            if known.is_none_or(|known| known == host) {
                if let Some(fragments) = self.hosts[host].cut(&frame) {
                    self.counters.segments_cut += 1;
                    for fragment in fragments {
                        self.carry_down(host, fragment, damaged);
                    }
                    continue;
                }
                if let Some(report) = self.too_long_for(host, &frame) {
                    if self.hosts[host].plan.swallows {
                        self.counters.swallowed += 1;
                        continue;
                    }
                    self.events.add(self.now, Event::AtHost { host: from, frame: report });
                    continue;
                }
                self.carry_down(host, frame.clone(), damaged);
            }
        }
    }

    fn carry_down(&mut self, host: usize, frame: Vec<u8>, damaged: bool) {
        let arrivals = self.hosts[host].down.carry(self.now, frame.len());
        for (arrival, frame) in arrived(arrivals, frame, self.scenario.bare_ip, damaged) {
            self.events.add(arrival.at, Event::AtHost { host, frame });
        }
    }

    /// A router before the host takes packets of its path's length only: what it says of others.
    fn too_long_for(&self, host: usize, frame: &[u8]) -> Option<Vec<u8>> {
        let mtu = self.hosts[host].plan.path_mtu?;
        crate::frame::too_long(frame, self.scenario.bare_ip, mtu)
    }

    fn disturb(&mut self, disturbance: Disturbance) {
        match disturbance {
            Disturbance::Blackout { host, span } => {
                let until = self.now + span;
                self.hosts[host].up.darken(until);
                self.hosts[host].down.darken(until);
            }
            Disturbance::Restart { host } => self.restart(host),
            Disturbance::AddressLoss { host, ipv6, absence, another } => {
                self.lose_address(host, ipv6, absence, another);
            }
            Disturbance::CardChange { host } => {
                if !self.scenario.bare_ip {
                    self.hosts[host].change_card();
                    self.serve_all(host);
                }
            }
            Disturbance::DeviceReplaced { host } => {
                self.counters.devices_replaced += 1;
                self.hosts[host].replace_device(self.now);
                self.checker.on_device_replaced(self.now, host);
                self.serve_all(host);
            }
            Disturbance::MtuChange { mtu } => {
                self.counters.mtu_changes += u64::from(self.hosts[0].mtu() != mtu);
                for host in 0..self.hosts.len() {
                    self.hosts[host].set_mtu(mtu);
                    self.checker.set_mtu(self.now, host, mtu);
                    self.serve_all(host);
                }
            }
        }
    }

    fn report(&mut self) -> Report {
        let mut links = crate::link::LinkCounters::default();
        for host in &self.hosts {
            links.merge(&host.up.counters());
            links.merge(&host.down.counters());
        }
        (0..self.hosts.len()).for_each(|host| self.count_of(host));
        let mut counters = self.counters;
        counters.segments_checked = self.checker.segments();
        counters.windows_closed = self.checker.windows_closed();
        counters.frames = self.trace.frames();
        let span = self.now.since(START);
        Report { seed: self.scenario.seed, counters, links, span, hash: self.trace.hash() }
    }

    /// Takes note of what a host's shards have counted, at the end of its life.
    fn count_of(&mut self, host: usize) {
        for counters in self.hosts[host].counters() {
            self.counters.fast_opens_accepted += counters.shard.fast_opens_accepted;
            self.counters.fast_open_bytes += counters.tcp.fast_open_bytes_received;
            self.counters.train_frames += counters.shard.receive_train_frames;
            self.counters.handed_on += counters.shard.segments_handed_on;
            self.counters.window_probes += counters.tcp.window_probes_sent;
            self.counters.keepalive_probes += counters.tcp.keepalive_probes_sent;
        }
        self.counters.handed_over += self.hosts[host].handed_over();
        self.counters.super_frames += self.hosts[host].super_frames();
    }

    /// Something that must hold does not.
    fn fail(&mut self, property: &str, what: String) {
        self.fail_with(property.to_owned(), what, None, None);
    }

    fn fail_with(
        &mut self,
        property: String,
        what: String,
        host: Option<usize>,
        flow: Option<(SocketAddr, SocketAddr)>,
    ) {
        if self.failure.is_some() {
            return;
        }
        let frames = if self.keep.last_frames { self.trace.lines(flow, 40) } else { Vec::new() };
        let seed = self.scenario.seed;
        let at = self.now;
        self.failure = Some(Box::new(Failure { seed, at, property, what, host, flow, frames }));
    }
}

/// What the checker may know of a host.
fn facts_of(plan: &HostPlan) -> Facts {
    Facts {
        cookies: plan.syn_cookies != SynCookieMode::Never,
        drops: plan.is_scarce() || plan.cuts,
        nagle: !plan.tcp.nodelay,
        initial_window_segments: plan.tcp.congestion.initial_window_segments,
    }
}

/// The frames of these arrivals. A frame is damaged once at most: two flipped bits can make up for
/// each other in a sum, and then no checksum of TCP would show them; of a datagram in fragments only
/// the first is. What may not be damaged is lost instead. That goes for ARP messages, too, because
/// nothing but the link's own checksum would show the damage.
fn arrived(
    arrivals: [Option<Arrival>; 2],
    frame: Vec<u8>,
    bare_ip: bool,
    damaged: bool,
) -> impl Iterator<Item = (Arrival, Vec<u8>)> {
    let is_spared = crate::frame::has_no_checksum_of_its_own(&frame, bare_ip);
    let [first, second] = arrivals;
    let doubled = second.map(|arrival| (arrival, frame.clone()));
    let both = first.map(|arrival| (arrival, frame)).into_iter().chain(doubled);
    both.filter_map(move |(arrival, mut frame)| {
        if let Some(bit) = arrival.flipped_bit.filter(|_| !damaged) {
            if is_spared {
                return None;
            }
            if let Some(byte) = frame.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
        if arrival.marked && !damaged {
            crate::frame::mark_congestion(&mut frame, bare_ip);
        }
        Some((arrival, frame))
    })
}
