//! What a seed means: hosts, links, disturbances and how many connections, before anything runs.
//!
//! A scenario is a value that can be printed. What connections do is drawn while the world runs,
//! from streams of the same seed (`crate::world`).

use crate::link::LinkPlan;
use crate::random::Random;
use device::TransmitMode;
use stack::{ClaimPolicy, SynCookieMode};
use steering::{Layout, Policy, Spread};
use tcp::{Algorithm, Config, EcnMode, Idle, Keepalive, Pacing, PathProbing};
use time::{Duration, Instant};

/// When the hosts begin: early enough to have asked about their addresses when the first connection is
/// opened (RFC 5227, 1.1: eight seconds).
pub const BEGINNING: Instant = Instant::from_millis(1_000);

/// When the first connection is opened.
pub const START: Instant = Instant::from_millis(10_000);

/// The squeues of a host, and who keeps them from running.
#[derive(Clone, Copy, Debug)]
pub struct SqueuesPlan {
    /// How many there are, how many rings the device has, and what flow goes where.
    pub spread: Spread,
    /// How often a squeue that is called does not come for a while.
    pub stalls: f64,
}

/// A host.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Its squeues.
    pub squeues: SqueuesPlan,
    /// How batches reach its device.
    pub mode: TransmitMode,
    /// The device completes checksums (and splits super-frames in `Lso`).
    pub offload: bool,
    /// Settings of its connections.
    pub tcp: Config,
    /// Bytes of its block pool.
    pub pool_bytes: usize,
    /// Frames wait this long for others before the shard is called.
    pub coalescing: Duration,
    /// Segments that repeat the headers of the one before them go up as trains; which is to change nothing
    /// that can be seen.
    pub receive_trains: bool,
    /// The device hands segments of a flow up as super-frames.
    pub merges: bool,
    /// How often the device takes a part of a batch only.
    pub partly_taken: f64,
    /// Connections that may wait to be accepted.
    pub backlog: usize,
    /// Connections whose handshake may be under way.
    pub half_open_max: usize,
    /// When SYNs are answered with cookies.
    pub syn_cookies: SynCookieMode,
    /// Connections that may have begun with data and wait for the end of their handshake.
    pub fast_open_max: usize,
    /// What it does on the link for its addresses before and after it uses them.
    pub claims: ClaimPolicy,
    /// Longest IP packet that the way from the switch to the host takes, where a router there
    /// reports longer ones (RFC 1191, RFC 8201).
    pub path_mtu: Option<usize>,
    /// It drops them without a word: a black hole (RFC 4821, 1).
    pub swallows: bool,
    /// That router is a middlebox that sends segments on in fragments, whatever they forbid; of other packets
    /// it reports that they are too long.
    pub cuts: bool,
    /// The host's way to the switch.
    pub up: LinkPlan,
    /// The way from the switch to the host.
    pub down: LinkPlan,
}

impl HostPlan {
    /// Whether memory may be so scarce that what arrives has to be dropped.
    #[must_use]
    pub fn is_scarce(&self) -> bool {
        self.pool_bytes < 8 << 20
    }
}

/// Something that happens to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Nothing passes between a host and the switch for a while.
    Blackout {
        /// Which host.
        host: usize,
        /// For how long.
        span: Duration,
    },
    /// A host loses all its state and begins anew with the same addresses.
    Restart {
        /// Which host.
        host: usize,
    },
    /// A host's device is replaced by another one with the same address, which can do other things.
    DeviceReplaced {
        /// Which host.
        host: usize,
    },
    /// A host's network card is exchanged: another hardware address.
    CardChange {
        /// Which host.
        host: usize,
    },
    /// A host loses its address in one family and gets it again, or another one.
    AddressLoss {
        /// Which host.
        host: usize,
        /// Which family.
        ipv6: bool,
        /// For how long it has none.
        absence: Duration,
        /// Whether it gets another one.
        another: bool,
    },
    /// All links and interfaces take packets of this length from now on.
    MtuChange {
        /// Bytes of an IP packet.
        mtu: usize,
    },
}

/// All that a seed fixes beforehand.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// The hosts, two at least.
    pub hosts: Vec<HostPlan>,
    /// Bare IP between two hosts, without Ethernet.
    pub bare_ip: bool,
    /// Longest IP packet.
    pub mtu: usize,
    /// Connections to open.
    pub connections: usize,
    /// Datagrams to send.
    pub datagrams: usize,
    /// Over which time both happens.
    pub spread: Duration,
    /// Bytes that a connection carries one way at most.
    pub stream_max: u64,
    /// The share of connections that are opened with a cookie, or ask for one (RFC 7413).
    pub fast_open: f64,
    /// What happens when.
    pub disturbances: Vec<(Instant, Disturbance)>,
    /// When the links turn good and applications finish what they do.
    pub calm_at: Instant,
}

impl Scenario {
    /// The scenario of `seed`.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let bare_ip = random.chance(0.2);
        let count = if bare_ip { 2 } else { random.pick(&[2, 2, 3, 4]) };
        let mtu = random.pick(&[1_500, 1_500, 1_500, 1_280, 1_400, 9_000]);
        let weather = random.pick(&Weather::ALL);
        let mut hosts =
            (0..count).map(|_| draw_host(&mut random, weather, mtu)).collect::<Vec<_>>();
        // Many small connections, or few large ones: about the same work.
        let connections = random.magnitude(30, 400) as usize;
        let stream_max = random.pick(&[200, 20_000, 20_000, 100_000, 400_000, 2_000_000]);
        let connections = match stream_max {
            0..=20_000 => connections,
            20_001..=400_000 => connections.min(80),
            _ => connections.min(12),
        };
        let mut spread = Duration::from_millis(random.magnitude(100, 30_000));
        let mut early = Random::new(seed ^ 0xfa57_09e4);
        let fast_open = early.pick(&[0.0, 0.0, 0.3, 0.9]);
        let mut connections = connections;
        if fast_open > 0.0 {
            draw_fast_open(&mut early, &mut hosts, &mut spread, &mut connections);
        }
        let calm_at = START + spread + Duration::from_millis(random.within(500, 60_000));
        let disturbances = draw_disturbances(&mut random, count, mtu, calm_at);
        let mut spreading = Random::new(seed ^ 0x050e_e0e5);
        for host in &mut hosts {
            host.squeues = draw_squeues(&mut spreading);
            draw_cuts(&mut spreading, host, mtu);
        }
        let mut more = Random::new(seed ^ 0x10ad_ed00);
        let holes = more.chance(0.25);
        for host in &mut hosts {
            draw_more(&mut more, host, holes);
        }
        let datagrams = random.pick(&[0, 10, 60]);
        Self {
            seed,
            hosts,
            bare_ip,
            mtu,
            connections,
            datagrams,
            spread,
            stream_max,
            fast_open,
            disturbances,
            calm_at,
        }
    }

    /// How long after the calm everything must be over. Retransmission and persist timers have
    /// backed off to two minutes at most by then (RFC 9293, 3.8.6.1), a neighbour may have to be
    /// found again, a peer that keeps nothing out of order costs a timeout for every few segments, and
    /// the slowest link has to carry what is left.
    #[must_use]
    pub fn patience(&self) -> Duration {
        let slowest = self.hosts.iter().flat_map(|host| [host.up.rate, host.down.rate]).min();
        let bytes = 4 * self.stream_max * self.connections as u64;
        Duration::from_secs(3_600) + Duration::from_secs(bytes / slowest.unwrap_or(1).max(1))
    }
}

/// The kind of faults that a scenario has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    Clear,
    Lossy,
    Bursty,
    Shuffled,
    Noisy,
    Narrow,
    Storm,
}

impl Weather {
    const ALL: [Self; 7] = [
        Self::Clear,
        Self::Lossy,
        Self::Bursty,
        Self::Shuffled,
        Self::Noisy,
        Self::Narrow,
        Self::Storm,
    ];
}

fn draw_link(random: &mut Random, weather: Weather) -> LinkPlan {
    let mut plan = LinkPlan {
        rate: random.magnitude(1_000_000, 1_250_000_000),
        queue_bytes: random.magnitude(30_000, 4_000_000),
        delay: Duration::from_micros(random.magnitude(5, 100_000)),
        marks: random.chance(0.3),
        ..LinkPlan::clean()
    };
    let all = weather == Weather::Storm;
    if all || weather == Weather::Lossy {
        plan.loss = random.pick(&[0.001, 0.01, 0.03, 0.08]);
    }
    if all || weather == Weather::Bursty {
        plan.turns_bad = random.pick(&[0.0005, 0.002, 0.01]);
        plan.turns_good = random.pick(&[0.05, 0.2, 0.5]);
        plan.loss_bad = random.pick(&[0.3, 0.7, 1.0]);
    }
    if all || weather == Weather::Shuffled {
        plan.reorder = random.pick(&[0.005, 0.03, 0.2]);
        plan.hold = Duration::from_micros(random.magnitude(20, 50_000));
        plan.jitter = Duration::from_micros(random.magnitude(1, 5_000));
        plan.overtaking = random.chance(0.5);
    }
    if all || weather == Weather::Noisy {
        plan.duplicate = random.pick(&[0.0, 0.01, 0.1]);
        plan.corrupt = random.pick(&[0.001, 0.01, 0.05]);
    }
    if weather == Weather::Narrow {
        plan.rate = random.magnitude(50_000, 1_000_000);
        plan.queue_bytes = random.magnitude(5_000, 200_000);
    }
    plan
}

fn draw_host(random: &mut Random, weather: Weather, mtu: usize) -> HostPlan {
    let mode = random.pick(&TransmitMode::ALL);
    let small = random.chance(0.15);
    HostPlan {
        squeues: SqueuesPlan { spread: Spread::SINGLE, stalls: 0.0 },
        mode,
        offload: mode == TransmitMode::Lso || random.chance(0.3),
        tcp: draw_settings(random),
        pool_bytes: if small { random.magnitude(512 << 10, 4 << 20) as usize } else { 64 << 20 },
        coalescing: Duration::from_micros(random.pick(&[0, 0, 20, 100, 1_000])),
        receive_trains: true,
        merges: false,
        partly_taken: random.pick(&[0.0, 0.0, 0.05, 0.4]),
        backlog: random.pick(&[1, 4, 64, 1_024]),
        half_open_max: random.pick(&[1, 8, 1_024, 1_024, 1_024, 1_024]),
        syn_cookies: random.pick(&[
            SynCookieMode::Never,
            SynCookieMode::WhenFull,
            SynCookieMode::WhenFull,
            SynCookieMode::WhenFull,
            SynCookieMode::Always,
        ]),
        fast_open_max: 0,
        claims: random.pick(&[ClaimPolicy::Trust, ClaimPolicy::Optimistic, ClaimPolicy::Probe]),
        path_mtu: random.chance(0.2).then(|| random.within(1_280, mtu as u64) as usize),
        swallows: false,
        cuts: false,
        up: draw_link(random, weather),
        down: draw_link(random, weather),
    }
}

/// Every second host has one squeue; others up to four, over as many rings of the device, which has spread
/// the flows then for a part of them, or fewer.
fn draw_squeues(random: &mut Random) -> SqueuesPlan {
    let homes = random.pick(&[1, 1, 1, 2, 3, 4]);
    let rings = random.within(1, homes) as u16;
    let policy = random.pick(&[Policy::Flow, Policy::Flow, Policy::Source, Policy::Protocol]);
    let homes = homes as u16;
    let spread = match homes {
        1 => Some(Spread::SINGLE),
        _ if random.chance(0.4) => Layout::new(homes, random.pick(&[0, 0, 2]), false)
            .ok()
            .and_then(|layout| Spread::new(layout, policy, homes).ok()),
        _ => Layout::new(rings, homes, true)
            .ok()
            .and_then(|layout| Spread::new(layout, policy, homes).ok()),
    };
    let spread = spread.expect(
        "a layout feeds as many squeues as it has soft rings to fan out over, or else rings",
    );
    SqueuesPlan { spread, stalls: random.pick(&[0.0, 0.001, 0.01, 0.05]) }
}

/// Middleboxes that cut, above all where the device has to tell flows apart and cannot.
fn draw_cuts(random: &mut Random, host: &mut HostPlan, mtu: usize) {
    let share = match host.squeues.spread.layout().is_spread_by_device() {
        true => 0.6,
        false => 0.1,
    };
    host.cuts = random.chance(share);
    if host.cuts && host.path_mtu.is_none() {
        host.path_mtu = Some(random.within(1_280, mtu as u64) as usize);
    }
}

/// What devices, paths and users of a host may do besides. `holes`: paths of this world swallow what is too
/// long for them.
fn draw_more(random: &mut Random, host: &mut HostPlan, holes: bool) {
    host.merges = random.chance(0.3);
    host.swallows = holes && !host.cuts && host.path_mtu.is_some();
    host.tcp.user_timeout_option = random.chance(0.2);
    // Longer than anybody is deaf.
    if random.chance(0.1) {
        host.tcp.user_timeout = Some(Duration::from_secs(random.within(30, 120)));
    }
    if host.tcp.congestion.algorithm == Algorithm::NewReno && random.chance(0.4) {
        host.tcp.congestion.algorithm = Algorithm::Bbr;
    }
    if random.chance(0.15) {
        host.tcp.path_probing = PathProbing::Always;
    }
}

/// Listeners that take data with SYNs, and sometimes days that are longer than a cookie lives and a path
/// that swallowed a SYN is spared the next one (RFC 7413, 4.1.2 and 7.1; hours).
fn draw_fast_open(
    random: &mut Random,
    hosts: &mut [HostPlan],
    spread: &mut Duration,
    connections: &mut usize,
) {
    for host in hosts.iter_mut() {
        host.fast_open_max = random.pick(&[0, 1, 8, 256, 256]);
    }
    if random.chance(0.3) {
        *spread = Duration::from_secs(random.within(4 * 3_600, 40 * 3_600));
        *connections = (*connections).min(80);
        // Links turn from frame to frame: where few are sent, a bad one would be a dead one for hours.
        for host in hosts.iter_mut() {
            host.up.turns_good = host.up.turns_good.max(0.5);
            host.down.turns_good = host.down.turns_good.max(0.5);
        }
        // Who asks every second for a day whether its peer is there costs as much as all the rest.
        for keepalive in hosts.iter_mut().filter_map(|host| host.tcp.keepalive.as_mut()) {
            keepalive.idle *= 100;
        }
    }
}

fn draw_settings(random: &mut Random) -> Config {
    let send_buffer_bytes = random.magnitude(2_048, 4 << 20) as usize;
    let receive_buffer_bytes = random.magnitude(512, 4 << 20) as usize;
    let mut config = Config {
        send_buffer_bytes,
        send_buffer_bytes_initial: random.magnitude(2_048, 4 << 20) as usize,
        receive_buffer_bytes,
        receive_buffer_bytes_initial: random.magnitude(512, 4 << 20) as usize,
        ecn: random.pick(&[EcnMode::Off, EcnMode::Accept, EcnMode::Request, EcnMode::Request]),
        quick_acks: random.pick(&[0, 2, 8, 8]),
        nodelay: random.chance(0.3),
        timestamps: random.chance(0.8),
        sack: random.chance(0.8),
        window_scaling: random.chance(0.8),
        deferred_acks_max_local: random.pick(&[1, 2, 8, 8, 16]),
        deferred_acks_max_remote: random.pick(&[1, 2, 2, 8]),
        deferred_acks_interval: Duration::from_millis(random.pick(&[1, 40, 40, 200])),
        time_wait: Duration::from_millis(random.pick(&[1_000, 60_000, 60_000])),
        ..Config::default()
    };
    if random.chance(0.2) {
        config.keepalive = Some(Keepalive {
            idle: Duration::from_secs(random.within(1, 60)),
            interval: Duration::from_secs(random.within(1, 20)),
            count: 9,
        });
    }
    if random.chance(0.2) {
        config.assembler.pieces_max = random.magnitude(4, 64) as usize;
        config.assembler.bytes_max = random.magnitude(20_000, 200_000) as usize;
    }
    // Of a number that was drawn already, so that the worlds of old seeds stay as they were.
    config.stretch_acks = !config.receive_buffer_bytes_initial.is_multiple_of(4);
    config.congestion.initial_window_segments = random.pick(&[1, 2, 10, 10, 10, 64]);
    config.congestion.hystart = random.chance(0.7);
    config.congestion.algorithm =
        random.pick(&[Algorithm::Cubic, Algorithm::Cubic, Algorithm::NewReno, Algorithm::NewReno]);
    config.congestion.idle = random.pick(&[Idle::Decay, Idle::Decay, Idle::Restart, Idle::Keep]);
    config.pacing = random.pick(&[Pacing::Auto, Pacing::Auto, Pacing::On, Pacing::Off]);
    config
}

fn draw_disturbances(
    random: &mut Random,
    hosts: usize,
    mtu: usize,
    calm_at: Instant,
) -> Vec<(Instant, Disturbance)> {
    let count = random.pick(&[0, 0, 0, 1, 1, 2, 5]);
    let mut disturbances: Vec<_> = (0..count)
        .map(|_| {
            let span_ms = calm_at.since(START).as_millis() as u64;
            let at = START + Duration::from_millis(random.within(0, span_ms));
            let host = random.within(0, hosts as u64 - 1) as usize;
            let span = Duration::from_millis(random.magnitude(10, 40_000));
            let mtu = random.pick(&[mtu, mtu.min(1_400), mtu.min(1_280)]);
            let blackout = Disturbance::Blackout { host, span };
            let absence = match random.chance(0.4) {
                true => Duration::ZERO,
                false => Duration::from_millis(random.magnitude(1, 60_000)),
            };
            let (ipv6, another) = (random.chance(0.5), random.chance(0.5));
            let loss = Disturbance::AddressLoss { host, ipv6, absence, another };
            let kinds = [
                blackout,
                blackout,
                loss,
                loss,
                Disturbance::Restart { host },
                Disturbance::CardChange { host },
                Disturbance::DeviceReplaced { host },
                Disturbance::MtuChange { mtu },
            ];
            (at, random.pick(&kinds))
        })
        .collect();
    disturbances.sort_by_key(|(at, _)| *at);
    disturbances
}
