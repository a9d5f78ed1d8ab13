//! A host: a shard, the device it stands on, and its two ways to the switch.
//!
//! The device is as a network card is: it takes a batch or a part of it, completes checksums and
//! splits super-frames where it said it would, puts arriving frames end to end into blocks of the
//! host's pool and calls the shard after it has waited a little for more of them.

use crate::link::Link;
use crate::random::Random;
use crate::scenario::{HostPlan, Scenario};
use batch::{
    BlockPool, Checksum, Frame, Multidata, PacketView, PoolConfig, ReceiveBatch, ReceivedChecksum,
};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use device::{
    Capabilities, HardwareAddress, Medium, Room, Segmentation, Stop, TransmitMode, Transmitted,
    lowering,
};
use stack::{
    AddressState, AddressingConfig, ClaimPolicy, InterfaceConfig, InterfaceId, ListenOptions,
    Shard, ShardConfig, SocketId,
};
use std::collections::BTreeMap;
use tcp::isn::IsnGenerator;
use time::Instant;

/// Frames that wait in the device for the shard; more are lost, as in a ring.
const RING_FRAMES_MAX: usize = 512;

/// Ports on which every host listens.
pub const PORTS: [u16; 2] = [80, 443];

/// The port on which every host answers datagrams with themselves, and from which it sends them.
pub const DATAGRAM_PORT: u16 = 7;

/// Sockets a host may have.
const SOCKETS_MAX: usize = 4_096;

/// A host of the world.
pub struct Host {
    /// What it was made from.
    pub plan: HostPlan,
    /// The shard.
    pub shard: Shard,
    /// Its one interface.
    pub interface: InterfaceId,
    /// The shard's pool.
    pub pool: BlockPool,
    /// The hardware address now in use.
    pub station: [u8; 6],
    /// The way to the switch.
    pub up: Link,
    /// The way from the switch.
    pub down: Link,
    /// Listening sockets.
    pub listeners: Vec<SocketId>,
    /// The socket for datagrams.
    pub datagrams: Option<SocketId>,
    /// Which endpoint of the world a socket belongs to.
    pub owners: BTreeMap<SocketId, usize>,
    /// The timer event that counts.
    pub timer_at: Option<Instant>,
    /// A call of the shard for arrived frames is under way.
    pub interrupt_pending: bool,
    /// What the shard's initial sequence numbers are drawn from.
    pub isn: IsnGenerator,
    number: usize,
    /// Which of its addresses it has now, or had last, in each family.
    turns: [u8; 2],
    incarnation: u64,
    bare_ip: bool,
    mtu: usize,
    ring: Vec<Vec<u8>>,
    transmit: Multidata,
    receive: ReceiveBatch,
    random: Random,
}

/// What a transmit call brought.
#[derive(Debug, Default)]
pub struct Sent {
    /// Complete frames, in order.
    pub frames: Vec<Vec<u8>>,
    /// The device was full; it must be asked again later.
    pub stopped: bool,
    /// Super-frames did not expand to the packets they were made of.
    pub lowered_wrongly: bool,
}

/// Addresses that a host has in each family, one after the other; those of 14 hosts stay below the
/// router's.
const ADDRESSES: u8 = 16;

/// One of the addresses of a host, `turn` of [`ADDRESSES`].
fn address(host: usize, ipv6: bool, turn: u8) -> IpAddr {
    let last = host as u8 * ADDRESSES + turn + 1;
    match ipv6 {
        false => IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
        true => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into())),
    }
}

/// Whether this is one of the addresses that the host has at one time or another.
#[must_use]
pub fn is_of(host: usize, candidate: IpAddr) -> bool {
    (0..ADDRESSES).any(|turn| address(host, candidate.is_ipv6(), turn) == candidate)
}

fn network(address: IpAddr) -> ip::Cidr {
    let len = if address.is_ipv6() { 64 } else { 24 };
    ip::Cidr::new(address, len).expect("the lengths are those of the families")
}

impl Host {
    /// Host `number` of the scenario, from `now` on.
    #[must_use]
    pub fn new(now: Instant, number: usize, scenario: &Scenario, random: &mut Random) -> Self {
        let plan = scenario.hosts[number].clone();
        let mut random = random.fork(number as u64);
        let frame_len_max = scenario.mtu + 14;
        let up = Link::new(plan.up.clone(), frame_len_max, random.fork(1));
        let down = Link::new(plan.down.clone(), frame_len_max, random.fork(2));
        let station = [2, 0, 0, 0, 0, number as u8 + 1];
        let medium = medium(scenario.bare_ip, station);
        let capabilities = capabilities(&plan, medium, scenario.mtu, &mut random);
        let turns = [0, 0];
        let made = Made::new(now, addresses(number, turns), &plan, capabilities, &mut random);
        Self {
            plan,
            shard: made.shard,
            interface: made.interface,
            pool: made.pool,
            station,
            up,
            down,
            listeners: made.listeners,
            datagrams: made.datagrams,
            owners: BTreeMap::new(),
            timer_at: None,
            interrupt_pending: false,
            isn: made.isn,
            number,
            turns,
            incarnation: 0,
            bare_ip: scenario.bare_ip,
            mtu: scenario.mtu,
            ring: Vec::new(),
            transmit: Multidata::default(),
            receive: ReceiveBatch::new(),
            random,
        }
    }

    /// The address it has in a family, or had last.
    #[must_use]
    pub fn address(&self, ipv6: bool) -> IpAddr {
        address(self.number, ipv6, self.turns[usize::from(ipv6)])
    }

    /// [`Host::address`] with its network.
    #[must_use]
    pub fn cidr(&self, ipv6: bool) -> ip::Cidr {
        network(self.address(ipv6))
    }

    /// The address it comes by now: the one it had, or the next.
    pub fn next_cidr(&mut self, ipv6: bool, another: bool) -> ip::Cidr {
        let turn = &mut self.turns[usize::from(ipv6)];
        *turn = (*turn + u8::from(another)) % ADDRESSES;
        self.cidr(ipv6)
    }

    /// What an address can be used for, where the shard knows it.
    #[must_use]
    pub fn address_state(&self, address: IpAddr) -> Option<AddressState> {
        let all = self.shard.addresses(self.interface);
        all.iter().find(|status| status.cidr.address() == address).map(|status| status.state)
    }

    /// Whether it can use its address of a family.
    #[must_use]
    pub fn has_address(&self, ipv6: bool) -> bool {
        let state = self.address_state(self.address(ipv6));
        state.is_some_and(|state| state != AddressState::Tentative)
    }

    /// All addresses that it can use.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let usable = [false, true].into_iter().filter(|ipv6| self.has_address(*ipv6));
        let mut addresses: Vec<_> = usable.map(|ipv6| self.address(ipv6)).collect();
        // Every interface with IPv6 has a link-local address where the stack makes one.
        let [a, b, c, d, e, f] = self.station.map(u16::from);
        let interface = [((a ^ 2) << 8) | b, (c << 8) | 0xff, 0xfe00 | d, (e << 8) | f];
        let [i, j, k, l] = interface;
        addresses.push(IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, i, j, k, l)));
        addresses
    }

    /// All state is lost. Returns how many bytes of the pool were still held when the old shard was
    /// gone: nothing should be.
    pub fn restart(&mut self, now: Instant) -> u64 {
        self.incarnation += 1;
        let medium = medium(self.bare_ip, self.station);
        let capabilities = capabilities(&self.plan, medium, self.mtu, &mut self.random);
        let addresses = addresses(self.number, self.turns);
        let made = Made::new(now, addresses, &self.plan, capabilities, &mut self.random);
        let pool = core::mem::replace(&mut self.pool, made.pool);
        self.shard = made.shard;
        self.interface = made.interface;
        self.listeners = made.listeners;
        self.datagrams = made.datagrams;
        self.isn = made.isn;
        self.owners.clear();
        self.timer_at = None;
        self.transmit.clear();
        pool.counters().outstanding_bytes
    }

    /// Another network card.
    pub fn change_card(&mut self) {
        self.station[4] = self.station[4].wrapping_add(1);
        let medium = medium(self.bare_ip, self.station);
        let capabilities = capabilities(&self.plan, medium, self.mtu, &mut self.random);
        self.shard.set_capabilities(self.interface, capabilities);
    }

    /// The interface and both links take packets of `mtu` bytes from now on.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
        self.up.set_frame_len_max(mtu + 14);
        self.down.set_frame_len_max(mtu + 14);
        let medium = medium(self.bare_ip, self.station);
        let capabilities = capabilities(&self.plan, medium, mtu, &mut self.random);
        self.shard.set_capabilities(self.interface, capabilities);
    }

    /// A frame reached the device; whether the shard must be called for it.
    pub fn on_frame(&mut self, frame: Vec<u8>) -> bool {
        let is_for_us = self.bare_ip
            || frame.first().is_some_and(|byte| byte & 1 == 1)
            || frame.get(..6) == Some(&self.station[..]);
        if !is_for_us || self.ring.len() == RING_FRAMES_MAX {
            return false;
        }
        self.ring.push(frame);
        !core::mem::replace(&mut self.interrupt_pending, true)
    }

    /// Hands the frames that wait to the shard, after `watch` has seen each that found memory.
    pub fn deliver(&mut self, now: Instant, mut watch: impl FnMut(&[u8])) {
        self.interrupt_pending = false;
        let frames = core::mem::take(&mut self.ring);
        let checksum = match self.plan.offload && self.random.chance(0.5) {
            // The device verified it: a frame that is damaged never comes up.
            true => ReceivedChecksum::Verified,
            false => ReceivedChecksum::Unverified,
        };
        let mut rest = frames.as_slice();
        while !rest.is_empty() {
            let many = self.random.pick(&[1, 4, 64, 64]).min(rest.len());
            let (part, behind) = rest.split_at(many);
            rest = behind;
            let len = part.iter().map(Vec::len).sum::<usize>();
            // Without memory the frames are lost, as in a card without descriptors.
            let Ok(mut block) = self.pool.allocate_receive(len) else { continue };
            let mut placed = Vec::with_capacity(many);
            let mut at = 0;
            for frame in part {
                if checksum == ReceivedChecksum::Verified
                    && crate::packet::read(frame, !self.bare_ip).is_err()
                {
                    continue;
                }
                block.bytes_mut()[at..at + frame.len()].copy_from_slice(frame);
                watch(frame);
                placed.push((at as u32, frame.len() as u32));
                at += frame.len();
            }
            let block = self.receive.add_block(block.freeze());
            for (offset, len) in placed {
                let frame = Frame { block, offset, len, checksum, segmented: None };
                let is_within = self.receive.push_frame(frame);
                debug_assert!(is_within, "frames lie within their block");
            }
        }
        self.shard.on_receive(now, self.interface, &mut self.receive);
        self.receive.clear();
    }

    /// One batch goes out, or a part of it.
    pub fn send(&mut self, now: Instant) -> Option<Sent> {
        let partly = self.random.chance(self.plan.partly_taken);
        let room = match partly && self.random.chance(0.5) {
            true => Room { packets: self.random.within(1, 8) as usize, bytes: 9_100 },
            false => Room::UNBOUNDED,
        };
        let built = self.shard.poll_transmit(now, self.interface, room, &mut self.transmit);
        if built == 0 {
            self.transmit.clear();
            return None;
        }
        let taken = if partly { self.random.within(0, built as u64) as usize } else { built };
        let (frames, lowered_wrongly) = self.lower(taken);
        let taken = frames.len();
        let stopped = taken < built;
        let transmitted = Transmitted { taken, stopped: stopped.then_some(Stop::Full) };
        self.shard.on_transmitted(now, self.interface, &transmitted);
        // A batch that is kept holds its blocks.
        self.transmit.clear();
        Some(Sent { frames, stopped, lowered_wrongly })
    }

    /// The frames of the first packets of the batch, at least `wanted` of them where a super-frame
    /// cannot be divided, and whether one of these was not what it should be.
    fn lower(&self, wanted: usize) -> (Vec<Vec<u8>>, bool) {
        let plain: Vec<_> = self.transmit.packets().map(|packet| complete(&packet)).collect();
        if self.plan.mode != TransmitMode::Lso {
            return (plain.into_iter().take(wanted).collect(), false);
        }
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for super_frame in lowering::super_frames(&self.transmit, 0, SEGMENTATION) {
            if frames.len() >= wanted {
                break;
            }
            let mut scratch = [0; lowering::HEADER_LEN_MAX];
            let Some(header) = super_frame.header(&self.transmit, &mut scratch) else {
                return (frames, true);
            };
            if !super_frame.is_merged() {
                frames.push(plain[super_frame.packets.start].clone());
                continue;
            }
            let link_len = if self.bare_ip { 0 } else { 14 };
            let mut bytes = header.to_vec();
            for part in self.transmit.payload_of(super_frame.packets.clone()) {
                bytes.extend_from_slice(part);
            }
            match lowering::expand(&bytes, link_len, super_frame.segment_len) {
                Some(packets) if packets == plain[super_frame.packets] => frames.extend(packets),
                _ => return (frames, true),
            }
        }
        (frames, false)
    }
}

const SEGMENTATION: Segmentation =
    Segmentation { tcp_ipv4: true, tcp_ipv6: true, len_bytes_max: 65_535 };

fn medium(bare_ip: bool, station: [u8; 6]) -> Medium {
    if bare_ip { Medium::Ip } else { Medium::Ethernet(HardwareAddress(station)) }
}

fn capabilities(plan: &HostPlan, medium: Medium, mtu: usize, random: &mut Random) -> Capabilities {
    Capabilities {
        batch_packets_max: random.pick(&[1, 7, 64, 64]),
        checksum_transmit: plan.offload,
        checksum_receive: plan.offload,
        segmentation: (plan.mode == TransmitMode::Lso).then_some(SEGMENTATION),
        ..Capabilities::plain(medium, mtu)
    }
}

/// A host's addresses of both families.
fn addresses(number: usize, turns: [u8; 2]) -> Vec<ip::Cidr> {
    [false, true].map(|ipv6| network(address(number, ipv6, turns[usize::from(ipv6)]))).to_vec()
}

/// What a restart makes anew.
struct Made {
    shard: Shard,
    interface: InterfaceId,
    pool: BlockPool,
    listeners: Vec<SocketId>,
    datagrams: Option<SocketId>,
    isn: IsnGenerator,
}

impl Made {
    fn new(
        now: Instant,
        addresses: Vec<ip::Cidr>,
        plan: &HostPlan,
        capabilities: Capabilities,
        random: &mut Random,
    ) -> Self {
        let pool = BlockPool::new(PoolConfig {
            limit_bytes: plan.pool_bytes,
            receive_reserve_bytes: plan.pool_bytes / 4,
            cached_limit_bytes: plan.pool_bytes.min(4 << 20),
            ..PoolConfig::default()
        });
        let mut secret = [0; 32];
        for word in secret.as_chunks_mut::<8>().0 {
            *word = random.word().to_le_bytes();
        }
        let isn = IsnGenerator::new(core::array::from_fn(|at| secret[at]));
        let mut shard = Shard::new(ShardConfig {
            tcp: plan.tcp.clone(),
            pool: pool.clone(),
            secret,
            sockets_max: SOCKETS_MAX,
        });
        shard.set_receive_trains(plan.receive_trains);
        let config =
            InterfaceConfig { capabilities, mode: plan.mode, addresses, gateways: Vec::new() };
        let interface = shard.add_interface(config);
        let interface = interface.expect("no gateway, so nothing can be refused");
        if plan.claims != ClaimPolicy::Trust {
            let (ipv4, ipv6) = (plan.claims, plan.claims);
            let config = AddressingConfig { ipv4, ipv6, ..AddressingConfig::default() };
            shard.start_addressing(now, interface, config);
        }
        let listeners = PORTS
            .iter()
            .filter_map(|port| {
                let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), *port);
                let options = ListenOptions {
                    backlog: plan.backlog,
                    half_open_max: plan.half_open_max,
                    syn_cookies: plan.syn_cookies,
                    fast_open_max: plan.fast_open_max,
                    ..ListenOptions::default()
                };
                shard.tcp_listen_with(any, options).ok()
            })
            .collect();
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), DATAGRAM_PORT);
        let datagrams = shard.udp_bind(any).ok();
        Self { shard, interface, pool, listeners, datagrams, isn }
    }
}

/// A packet of a batch as the device puts it on the wire.
fn complete(packet: &PacketView<'_>) -> Vec<u8> {
    let mut bytes = vec![0; packet.len()];
    let copied = packet.copy_to(&mut bytes);
    debug_assert!(copied.is_some(), "the vector is as long as the packet");
    if let Checksum::Partial { offset } = packet.attributes().checksum {
        let field = lowering::complete_checksum(&mut bytes, packet.transport_offset(), offset);
        debug_assert!(field.is_some(), "the field lies within the header");
    }
    bytes
}
