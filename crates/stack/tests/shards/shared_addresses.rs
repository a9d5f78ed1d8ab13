//! Addresses by DHCP and from routers where several shards are one host: the first one asks, all have them.

use crate::harness::craft::{self, STRANGER};
use crate::harness::{bytes_of, receive_batch, station};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use counters::DropReason;
use device::{Capabilities, Medium, Room, TransmitMode, Transmitted};
use ip::router::{IdentifierKey, RouterConfig, stable_address};
use stack::{
    AddressState, AddressingConfig, ClaimPolicy, Homes, InterfaceConfig, InterfaceId, Shard,
    ShardConfig, Share, SocketError, Stray,
};
use std::collections::VecDeque;
use std::sync::Arc;
use time::{Duration, Instant};
use wire::ndp::{NameServers, PrefixInformation, RouterAdvertisement, RouterPreference};
use wire::{EthernetRepr, HardwareAddress, Ipv4View, NdpRepr, UdpView};

const COUNT: usize = 3;
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const LEASED: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
const KEY: IdentifierKey = IdentifierKey([9; 16]);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x99);
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0);

struct ByPort;

impl Homes for ByPort {
    fn of_flow(&self, local: SocketAddr, remote: SocketAddr) -> usize {
        usize::from(local.port() ^ remote.port()) % COUNT
    }

    fn of_port(&self, port: u16) -> usize {
        usize::from(port) % COUNT
    }
}

/// Shards that are one host, and what they have for each other.
struct Host {
    now: Instant,
    shards: Vec<(Shard, InterfaceId)>,
    strays: VecDeque<Stray>,
}

impl Host {
    fn new(config: &AddressingConfig) -> Self {
        let now = Instant::from_millis(1_000);
        let shards = (0..COUNT).map(|index| {
            let pool = batch::BlockPool::new(batch::PoolConfig::default());
            let tcp = tcp::Config::default();
            let mut shard =
                Shard::new(ShardConfig { tcp, pool, secret: [4; 32], sockets_max: 100 });
            shard.set_share(Share { index, count: COUNT, homes: Arc::new(ByPort) });
            let config_of_interface = InterfaceConfig {
                capabilities: Capabilities::plain(Medium::Ethernet(station(0)), 1_500),
                mode: Some(TransmitMode::Multidata),
                addresses: Vec::new(),
                gateways: Vec::new(),
            };
            let id = shard.add_interface(config_of_interface).expect("a sound configuration");
            shard.start_addressing(now, id, config.clone());
            (shard, id)
        });
        Self { now, shards: shards.collect(), strays: VecDeque::new() }
    }

    /// A frame that every shard gets.
    fn hear(&mut self, frame: &[u8]) {
        for (shard, id) in &mut self.shards {
            shard.on_receive(self.now, *id, &mut receive_batch(vec![frame.to_vec()]));
        }
    }

    /// Collects what shards have for each other.
    fn collect(&mut self) {
        for (shard, _) in &mut self.shards {
            self.strays.extend(core::iter::from_fn(|| shard.poll_stray()));
        }
    }

    /// Carries what they have for each other, until there is nothing.
    fn carry(&mut self) {
        self.collect();
        while let Some(stray) = self.strays.pop_front() {
            self.shards[stray.home].0.on_stray(self.now, &stray);
            self.collect();
        }
    }

    /// Lets so much time go by in steps; what each shard sends goes to `answer`, which may answer it.
    fn run(&mut self, span: Duration, mut answer: impl FnMut(usize, &[u8]) -> Option<Vec<u8>>) {
        let end = self.now + span;
        while self.now < end {
            self.now += Duration::from_millis(50);
            let mut answers = Vec::new();
            for (index, (shard, id)) in self.shards.iter_mut().enumerate() {
                if shard.poll_timeout().is_some_and(|due| due <= self.now) {
                    shard.on_timeout(self.now);
                }
                for frame in sent(self.now, shard, *id) {
                    answers.extend(answer(index, &frame));
                }
            }
            answers.iter().for_each(|frame| self.hear(frame));
            self.carry();
        }
    }

    fn drops(&self, reason: DropReason) -> u64 {
        self.shards.iter().map(|(shard, _)| shard.counters().drops.count(reason)).sum()
    }

    /// The same in all shards, which is what it is in the first.
    fn in_all<T: PartialEq + core::fmt::Debug>(
        &mut self,
        look: impl Fn(&mut Shard, InterfaceId) -> T,
    ) -> T {
        let mut found: Vec<T> =
            self.shards.iter_mut().map(|(shard, id)| look(shard, *id)).collect();
        let first = found.remove(0);
        assert!(found.iter().all(|other| *other == first), "{first:?}, in others {found:?}");
        first
    }

    fn states(&mut self) -> Vec<(IpAddr, AddressState)> {
        self.in_all(|shard, id| {
            let all = shard.addresses(id);
            let mut all: Vec<_> = all.iter().map(|it| (it.cidr.address(), it.state)).collect();
            all.sort_unstable_by_key(|(address, _)| *address);
            all
        })
    }

    /// Opens a connection in every shard, and says from which address; the next hop has to be asked for.
    fn connect(&mut self, remote: &str) -> Result<IpAddr, SocketError> {
        let (remote, now) = (remote.parse().expect("an address"), self.now);
        self.in_all(|shard, _| {
            let socket = shard.tcp_connect(now, None, SocketAddr::new(remote, 80))?;
            shard.local_address(socket).map(|local| local.ip())
        })
    }
}

fn sent(now: Instant, shard: &mut Shard, id: InterfaceId) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    loop {
        let mut batch = batch::Multidata::default();
        let taken = shard.poll_transmit(now, id, Room::UNBOUNDED, &mut batch);
        if taken == 0 {
            return frames;
        }
        frames.extend(batch.packets().map(|packet| bytes_of(&packet)));
        shard.on_transmitted(now, id, &Transmitted { taken, stopped: None });
    }
}

/// What a server answers that leases one address for ten minutes, with a route to 10.9/16 and a default route.
fn leasing(frame: &[u8]) -> Option<Vec<u8>> {
    leasing_in(frame, 0)
}

/// The same, of a network whose mask ends like this.
fn leasing_in(frame: &[u8], mask: u8) -> Option<Vec<u8>> {
    let ip = Ipv4View::parse(frame.get(EthernetRepr::LEN..)?).ok()?;
    let view = UdpView::parse(ip.payload()).ok()?;
    if (ip.protocol(), view.destination_port()) != (wire::protocol::UDP, 67) {
        return None;
    }
    let message = view.payload();
    let answer = match message[242] {
        1 => 2,
        3 => 5,
        _ => return None,
    };
    let mut bytes = vec![0; 236];
    bytes[..3].copy_from_slice(&[2, 1, 6]);
    bytes[4..8].copy_from_slice(&message[4..8]);
    bytes[16..20].copy_from_slice(&[10, 0, 0, 9]);
    bytes[28..34].copy_from_slice(&station(0).0);
    bytes.extend([99, 130, 83, 99, 53, 1, answer, 54, 4, 10, 0, 0, 254]);
    bytes.extend([1, 4, 255, 255, 255, mask, 6, 4, 10, 0, 0, 53, 26, 2, 0x05, 0x78]);
    bytes.extend([121, 12, 16, 10, 9, 10, 0, 0, 2, 0, 10, 0, 0, 254, 51, 4, 0, 0, 2, 88]);
    let mut datagram = vec![0; 8];
    wire::UdpRepr { source_port: 67, destination_port: 68, payload_len: bytes.len() }
        .emit(&mut datagram);
    datagram.extend(bytes);
    let addresses = (SERVER.into(), Ipv4Addr::BROADCAST.into());
    let everybody = HardwareAddress::BROADCAST;
    Some(craft::packet(everybody, addresses, wire::protocol::UDP, 64, (&datagram, 6)))
}

/// RFC 2131: one lease for the host. Its address, routes, MTU and DNS servers hold in every shard, and are
/// gone in every shard when it runs out.
#[test]
fn one_shard_leases_an_address_and_all_have_it_as_long_as_it_lasts() {
    let dhcp = Some(dhcp::ClientConfig::default());
    let mut host = Host::new(&AddressingConfig { dhcp, ..AddressingConfig::default() });
    let mut asked = [0; COUNT];
    host.run(Duration::from_secs(15), |index, frame| {
        let answer = leasing(frame)?;
        asked[index] += 1;
        Some(answer)
    });
    assert_eq!(asked, [2, 0, 0], "one DISCOVER and one REQUEST");
    assert_eq!(host.states(), [(LEASED, AddressState::Preferred)]);
    assert_eq!(host.in_all(|shard, id| shard.name_servers(id)), [IpAddr::from([10, 0, 0, 53])]);
    for remote in ["10.0.0.7", "10.9.1.1", "192.0.2.1"] {
        assert_eq!(host.connect(remote), Ok(LEASED), "{remote}");
        let mtu = host.in_all(|shard, _| shard.path_mtu(remote.parse().expect("an address")));
        assert_eq!(mtu, Ok(1_400));
    }
    assert_eq!(host.drops(DropReason::PortUnreachable), 0, "DHCP is heard by all");

    // Nobody answers any more.
    host.run(Duration::from_secs(700), |index, frame| {
        let answer = leasing(frame);
        assert!(answer.is_none() || index == 0, "shard {index} asks");
        None
    });
    assert_eq!(host.states(), []);
    assert_eq!(host.in_all(|shard, id| shard.name_servers(id)), [] as [IpAddr; 0]);
    for remote in ["10.0.0.7", "10.9.1.1", "192.0.2.1"] {
        let nothing = SocketError::NoSourceFor(remote.parse().expect("an address"));
        assert_eq!(host.connect(remote), Err(nothing));
    }
}

/// RFC 1122, 3.2.1.3: no packet comes from all hosts of a network, also where that was one host's address before.
#[test]
fn who_had_the_address_that_a_new_mask_makes_everybodys_is_heard_by_no_shard_any_more() {
    let dhcp = Some(dhcp::ClientConfig::default());
    let mut host = Host::new(&AddressingConfig { dhcp, ..AddressingConfig::default() });
    let (mut asked, mut extension) = (0, None);
    // The server is a neighbour whom nobody knows, so everybody is asked for an extension in the end.
    host.run(Duration::from_secs(550), |_, frame| {
        asked += u32::from(leasing(frame).is_some());
        match asked {
            3.. => {
                extension = extension.take().or_else(|| leasing_in(frame, 128));
                None
            }
            _ => leasing(frame),
        }
    });
    let mut segment = vec![0; wire::TCP_HEADER_LEN_MIN];
    wire::TcpHeader::default().emit(&mut segment).expect("room");
    let addresses = (Ipv4Addr::new(10, 0, 0, 127).into(), LEASED);
    let segment = craft::packet(station(0), addresses, wire::protocol::TCP, 64, (&segment, 16));
    host.hear(&extension.expect("the lease was to be extended"));
    let dropped = |host: &Host| {
        let of = |(shard, _): &(Shard, InterfaceId)| shard.drop_count(DropReason::BadSource);
        host.shards.iter().map(of).collect::<Vec<_>>()
    };
    host.hear(&segment);
    assert_eq!(dropped(&host), [1, 0, 0], "the others are about to hear of it");
    host.carry();
    let before = dropped(&host);
    host.hear(&segment);
    assert_eq!(dropped(&host), before.iter().map(|count| count + 1).collect::<Vec<_>>());
}

fn routed(policy: ClaimPolicy) -> Host {
    let routers = Some(RouterConfig::new(KEY));
    let config = AddressingConfig { ipv6: policy, routers, ..AddressingConfig::default() };
    Host::new(&config)
}

fn advertised(router_lifetime_s: u16, preferred_s: u32, hop_limit: u8) -> Vec<u8> {
    let prefixes = vec![PrefixInformation {
        prefix: PREFIX,
        prefix_len_bits: 64,
        on_link: true,
        autonomous: true,
        valid_s: 3_600,
        preferred_s,
    }];
    let name_servers = vec![NameServers { lifetime_s: 1_000, addresses: vec![ROUTER] }];
    let message = RouterAdvertisement {
        hop_limit,
        managed: false,
        other: false,
        preference: RouterPreference::Medium,
        router_lifetime_s,
        reachable_ms: 0,
        retransmit_ms: 0,
        source_link: Some(STRANGER),
        mtu_bytes: Some(1_300),
        prefixes,
        name_servers,
    };
    craft::ndp(ROUTER, ALL_NODES, 255, &NdpRepr::RouterAdvertisement(message))
}

fn formed(prefix: Ipv6Addr, tries: u8) -> IpAddr {
    stable_address(prefix, station(0), tries, &KEY).into()
}

/// Kinds of neighbour discovery that a frame may be.
fn kind(frame: &[u8]) -> Option<u8> {
    (frame.get(12..14)? == [0x86, 0xdd] && frame.get(20) == Some(&58)).then(|| frame[54])
}

/// RFC 4861, 6.3 and RFC 4862, 5.5: one shard asks and draws the conclusions, and all of them hold in all.
#[test]
fn one_shard_listens_to_routers_and_all_follow_them() {
    let mut host = routed(ClaimPolicy::Probe);
    let mut asked = [0; COUNT];
    host.run(Duration::from_secs(10), |index, frame| {
        asked[index] += u32::from(matches!(kind(frame), Some(133 | 135)));
        None
    });
    assert!(asked[0] >= 3 && asked[1..] == [0, 0], "{asked:?}");
    host.hear(&advertised(600, 1_800, 33));
    host.run(Duration::from_secs(3), |_, _| None);
    let (local, global) = (formed(ROUTER, 0), formed(PREFIX, 0));
    let (preferred, deprecated) = (AddressState::Preferred, AddressState::Deprecated);
    assert_eq!(host.states(), [(global, preferred), (local, preferred)]);
    assert_eq!(host.in_all(|shard, id| shard.name_servers(id)), [IpAddr::V6(ROUTER)]);
    assert_eq!(host.connect("2001:db8:9::1"), Ok(global));
    let now = host.now;
    let remote = IpAddr::V6(PREFIX);
    assert_eq!(host.in_all(|shard, _| shard.path_mtu(remote)), Ok(1_300));
    // Each shard knows the router's hardware address from what it said, and its hop limit.
    let hop_limits: Vec<_> = host
        .shards
        .iter_mut()
        .flat_map(|(shard, id)| sent(now, shard, *id))
        .filter(|frame| frame[12..14] == [0x86, 0xdd] && frame[20] == wire::protocol::TCP)
        .map(|frame| (frame[..6].to_vec(), frame[21]))
        .collect();
    assert_eq!(hop_limits, vec![(STRANGER.0.to_vec(), 33); COUNT]);

    host.hear(&advertised(0, 0, 33));
    host.run(Duration::from_secs(1), |_, _| None);
    assert_eq!(host.states(), [(global, deprecated), (local, preferred)]);
    let far = "2001:db8:9::1";
    assert_eq!(host.connect(far), Err(SocketError::NoRoute(far.parse().expect("an address"))));
    assert_eq!(host.connect("2001:db8:1::77").map(|_| ()), Ok(()), "on the link");
    assert_eq!(host.drops(DropReason::UnrelatedIcmp), 0);
}

/// RFC 4862, 5.5.4: a prefix that is deprecated when it is first heard of gives an address that is deprecated in
/// all shards, also where others are asked for it first.
#[test]
fn an_address_that_was_never_preferred_is_so_in_no_shard() {
    let mut host = routed(ClaimPolicy::Probe);
    host.run(Duration::from_secs(5), |_, _| None);
    host.hear(&advertised(600, 0, 0));
    host.run(Duration::from_secs(3), |_, _| None);
    let (local, global) = (formed(ROUTER, 0), formed(PREFIX, 0));
    assert_eq!(
        host.states(),
        [(global, AddressState::Deprecated), (local, AddressState::Preferred)]
    );
}

/// RFC 4862, 5.4: an address that somebody has is used in no shard, and all have the next one.
#[test]
fn an_address_that_is_taken_is_formed_anew_for_all() {
    let mut host = routed(ClaimPolicy::Probe);
    host.run(Duration::from_secs(5), |_, _| None);
    host.hear(&advertised(600, 1_800, 0));
    let IpAddr::V6(target) = formed(PREFIX, 0) else { panic!("an IPv6 address") };
    host.run(Duration::from_millis(100), |_, _| None);
    let taken = NdpRepr::NeighbourAdvertisement {
        router: false,
        solicited: false,
        replaces: true,
        target,
        target_link: Some(STRANGER),
    };
    host.hear(&craft::ndp(ROUTER, ALL_NODES, 255, &taken));
    host.run(Duration::from_secs(5), |_, _| None);
    let settled = AddressState::Preferred;
    assert_eq!(host.states(), [(formed(PREFIX, 1), settled), (formed(ROUTER, 0), settled)]);
}

/// Whoever makes routers say something else with every packet, while other shards stand still, fills no
/// memory; and when they go on they agree with the first again.
#[test]
fn a_flood_of_advertisements_waits_for_the_slowest_shard() {
    let mut host = routed(ClaimPolicy::Trust);
    host.run(Duration::from_secs(5), |_, _| None);
    let mut waiting = VecDeque::new();
    for round in 0..20_000 {
        let frame =
            advertised(round % 2 * 600, 1_800 * u32::from(round % 2), 30 + (round % 9) as u8);
        let (now, (shard, id)) = (host.now, &mut host.shards[0]);
        shard.on_receive(now, *id, &mut receive_batch(vec![frame]));
        waiting.extend(core::iter::from_fn(|| shard.poll_stray()));
    }
    assert!((4_000..5_000).contains(&waiting.len()), "{} wait", waiting.len());
    assert!(host.drops(DropReason::StrayQueueFull) > 10_000);
    host.strays = waiting;
    host.carry();
    host.hear(&advertised(600, 1_800, 77));
    host.carry();
    let states = host.states();
    assert!(states.contains(&(formed(PREFIX, 0), AddressState::Preferred)), "{states:?}");
    assert!(host.connect("2001:db8:9::1").is_ok());
}

/// RFC 4861, 6.2: of several shards the first one speaks, and all know who asked.
#[test]
fn one_shard_speaks_as_the_router_of_the_link() {
    let mut host = Host::new(&AddressingConfig::default());
    let own = "fd00::1/64".parse().expect("a network");
    for (shard, id) in &mut host.shards {
        shard.add_address(host.now, *id, own).expect("there is room");
        let message = RouterAdvertisement { router_lifetime_s: 1_800, ..Default::default() };
        shard.advertise_router(host.now, *id, message).expect("an interface");
    }
    host.run(Duration::from_secs(5), |_, _| None);
    let asker = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x77);
    let routers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
    let message = NdpRepr::RouterSolicitation { source_link: Some(STRANGER) };
    host.hear(&craft::ndp(asker, routers, 255, &message));
    let mut said = [0; COUNT];
    host.run(Duration::from_secs(4), |index, frame| {
        said[index] += u32::from(kind(frame) == Some(134));
        None
    });
    assert_eq!(said, [1, 0, 0]);
    let now = host.now;
    let known = host.in_all(|shard, id| {
        let known = shard.list_neighbours(now, id).map(|it| it.address);
        known.collect::<Vec<_>>()
    });
    assert_eq!(known, [IpAddr::V6(asker)]);
    assert_eq!(DropReason::ALL.iter().map(|reason| host.drops(*reason)).sum::<u64>(), 0);
}
