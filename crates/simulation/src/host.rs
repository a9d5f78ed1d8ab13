//! A host: its shards, the device they stand on, and its two ways to the switch.
//!
//! The device is as a network card is: it takes a batch or a part of it, completes checksums and
//! splits super-frames where it said it would, puts arriving frames end to end into blocks of the
//! host's pool and calls the shard after it has waited a little for more of them.

mod cutter;
mod lowered;
mod merger;
mod order;
mod rings;
mod schedule;
mod squeue;

use crate::link::Link;
use crate::random::Random;
use crate::scenario::{HostPlan, Scenario};
use batch::{BlockPool, Frame, Multidata, PacketView, ReceiveBatch, ReceivedChecksum, Segmented};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use cutter::Cutter;
use device::{
    Capabilities, HardwareAddress, Medium, Room, Segmentation, Stop, TransmitMode, Transmitted,
    lowering,
};
use order::{Ends, Order};
use rings::Rings;
use schedule::Schedule;
use squeue::{Made, Squeue};
use stack::{AddressState, Holdings, InterfaceId, Shard, SocketError, SocketId, StackCounters};
use std::collections::BTreeMap;
use steering::{Arrived, Home};
use tcp::IsnGenerator;
use time::{Duration, Instant};

/// Frames that wait in the device for the shard; more are lost, as in a ring.
const RING_FRAMES_MAX: usize = 512;

/// Ports on which every host listens.
pub const PORTS: [u16; 2] = [80, 443];

/// The port on which every host answers datagrams with themselves, and from which it sends them.
pub const DATAGRAM_PORT: u16 = 7;

/// Sockets a host may have.
const SOCKETS_MAX: usize = 4_096;

/// A socket of a host: in which of its squeues, and which there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Socket {
    /// The squeue that is its home.
    pub home: usize,
    /// Its name there.
    pub id: SocketId,
}

/// A host of the world.
pub struct Host {
    /// What it was made from.
    pub plan: HostPlan,
    /// The pool of all its shards.
    pub pool: BlockPool,
    /// The hardware address now in use.
    pub station: [u8; 6],
    /// The way to the switch.
    pub up: Link,
    /// The way from the switch.
    pub down: Link,
    /// Listening sockets.
    pub listeners: Vec<Socket>,
    /// The socket for datagrams.
    pub datagrams: Option<Socket>,
    /// Which endpoint of the world a socket belongs to.
    pub owners: BTreeMap<Socket, usize>,
    /// What the shards' initial sequence numbers are drawn from.
    pub isn: IsnGenerator,
    squeues: Vec<Squeue>,
    /// Super-frames that the device handed up.
    super_frames: u64,
    rings: Rings,
    cutter: Cutter,
    schedule: Schedule,
    order: Order,
    number: usize,
    /// Which of its addresses it has now, or had last, in each family.
    turns: [u8; 2],
    incarnation: u64,
    bare_ip: bool,
    mtu: usize,
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
        let made = Made::new(now, &addresses(number, turns), &plan, &capabilities, &mut random);
        // A stream of its own: with one squeue nothing is drawn from it.
        let seed = scenario.seed ^ 0x5c4e_d01e ^ number as u64;
        let schedule = Schedule::new(made.squeues.len(), Random::new(seed));
        let rings = Rings::new(plan.squeues.spread, Random::new(seed ^ 0x0417_65e7));
        Self {
            plan,
            pool: made.pool,
            station,
            up,
            down,
            listeners: made.listeners,
            datagrams: made.datagrams,
            owners: BTreeMap::new(),
            isn: made.isn,
            squeues: made.squeues,
            super_frames: 0,
            rings,
            cutter: Cutter::default(),
            schedule,
            order: Order::default(),
            number,
            turns,
            incarnation: 0,
            bare_ip: scenario.bare_ip,
            mtu: scenario.mtu,
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

    /// What an address can be used for, where a squeue knows it. The first speaks for all; the others hear of it when
    /// they run next.
    #[must_use]
    pub fn address_state(&self, squeue: usize, address: IpAddr) -> Option<AddressState> {
        let Squeue { shard, interface, .. } = &self.squeues[squeue];
        let all = shard.addresses(*interface);
        all.iter().find(|status| status.cidr.address() == address).map(|status| status.state)
    }

    /// Whether each of its squeues can use its address of a family.
    #[must_use]
    pub fn has_address(&self, ipv6: bool) -> bool {
        let address = self.address(ipv6);
        let mut states = (0..self.squeues.len()).map(|squeue| self.address_state(squeue, address));
        states.all(|it| it.is_some_and(|state| state != AddressState::Tentative))
    }

    /// All addresses that it can use, that of the link among them where it has IPv6 and stations.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let first = &self.squeues[0];
        let all = first.shard.addresses(first.interface);
        let usable = all.iter().filter(|status| status.state != AddressState::Tentative);
        usable.map(|status| status.cidr.address()).collect()
    }

    /// All state is lost. Returns how many bytes of the pool were still held when the old shards were
    /// gone: nothing should be.
    pub fn restart(&mut self, now: Instant) -> u64 {
        self.incarnation += 1;
        let medium = medium(self.bare_ip, self.station);
        let capabilities = capabilities(&self.plan, medium, self.mtu, &mut self.random);
        let addresses = addresses(self.number, self.turns);
        let made = Made::new(now, &addresses, &self.plan, &capabilities, &mut self.random);
        let pool = core::mem::replace(&mut self.pool, made.pool);
        let before = core::mem::replace(&mut self.squeues, made.squeues);
        for (squeue, before) in self.squeues.iter_mut().zip(before) {
            // The device goes on.
            (squeue.ring, squeue.interrupt_pending) = (before.ring, before.interrupt_pending);
        }
        self.order = Order::default();
        self.listeners = made.listeners;
        self.datagrams = made.datagrams;
        self.isn = made.isn;
        self.owners.clear();
        self.transmit.clear();
        pool.counters().outstanding_bytes
    }

    /// Another network card.
    pub fn change_card(&mut self) {
        self.station[4] = self.station[4].wrapping_add(1);
        self.order.on_station_changed();
        let medium = medium(self.bare_ip, self.station);
        let capabilities = capabilities(&self.plan, medium, self.mtu, &mut self.random);
        for squeue in &mut self.squeues {
            squeue.shard.set_capabilities(squeue.interface, capabilities.clone());
        }
    }

    /// Another device, which may do other things.
    pub fn replace_device(&mut self, now: Instant) {
        self.plan.offload = self.plan.mode == TransmitMode::Lso || !self.plan.offload;
        let medium = medium(self.bare_ip, self.station);
        let capabilities = capabilities(&self.plan, medium, self.mtu, &mut self.random);
        for squeue in &mut self.squeues {
            squeue.ring.clear();
            let Squeue { shard, interface, .. } = squeue;
            shard.on_device_replaced(now, *interface, capabilities.clone());
        }
    }

    /// Bytes of the longest IP packet that the interface takes.
    #[must_use]
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// The interface and both links take packets of `mtu` bytes from now on.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
        self.up.set_frame_len_max(mtu + 14);
        self.down.set_frame_len_max(mtu + 14);
        let medium = medium(self.bare_ip, self.station);
        let capabilities = capabilities(&self.plan, medium, mtu, &mut self.random);
        for squeue in &mut self.squeues {
            squeue.shard.set_capabilities(squeue.interface, capabilities.clone());
        }
    }

    /// How many squeues it has.
    #[must_use]
    pub fn homes(&self) -> usize {
        self.squeues.len()
    }

    /// The shard of a squeue.
    pub fn shard(&mut self, home: usize) -> &mut Shard {
        &mut self.squeues[home].shard
    }

    /// The shard of a squeue, and what its interface is called there.
    pub fn shard_and_interface(&mut self, home: usize) -> (&mut Shard, InterfaceId) {
        let squeue = &mut self.squeues[home];
        (&mut squeue.shard, squeue.interface)
    }

    /// All shards.
    pub fn shards(&mut self) -> impl Iterator<Item = &mut Shard> {
        self.squeues.iter_mut().map(|squeue| &mut squeue.shard)
    }

    /// What is held by each shard.
    pub fn holdings(&self) -> impl Iterator<Item = Holdings> + '_ {
        self.squeues.iter().map(|squeue| squeue.shard.holdings())
    }

    /// How many super-frames its device handed up.
    #[must_use]
    pub fn super_frames(&self) -> u64 {
        self.super_frames
    }

    /// What each shard has counted.
    pub fn counters(&self) -> impl Iterator<Item = StackCounters> + '_ {
        self.squeues.iter().map(|squeue| squeue.shard.counters())
    }

    /// Frames and strays that its squeues handed to each other.
    #[must_use]
    pub fn handed_over(&self) -> u64 {
        self.squeues.iter().filter_map(|it| it.desk.as_ref()).map(|desk| desk.moved().0).sum()
    }

    /// The squeue in which a connection is to be opened, so that the peer's answers come there.
    ///
    /// # Errors
    /// No route leads to the peer.
    pub fn home_to_connect(
        &mut self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<usize, SocketError> {
        let source = || self.squeues[0].shard.source_for(remote);
        let home = self.plan.squeues.spread.home_to_connect(local, remote, source)?;
        Ok(home.map_or_else(|| self.schedule.pick(), Home::index))
    }

    /// A frame reached the device; the squeue that must be called for it.
    pub fn on_frame(&mut self, frame: Vec<u8>) -> Option<usize> {
        let medium = medium(self.bare_ip, self.station);
        let ring = self.rings.ring_of(&frame, medium);
        let squeue = &mut self.squeues[ring];
        if !is_for(&frame, medium) || squeue.ring.len() == RING_FRAMES_MAX {
            return None;
        }
        squeue.ring.push(frame);
        let was_pending = core::mem::replace(&mut squeue.interrupt_pending, true);
        (!was_pending).then_some(ring)
    }

    /// What the middlebox before the host makes of a frame that is too long for it: fragments, or nothing
    /// where it is no segment.
    pub fn cut(&mut self, frame: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mtu = self.plan.path_mtu.filter(|_| self.plan.cuts)?;
        self.cutter.cut(frame, self.bare_ip, mtu)
    }

    /// A squeue takes what others handed to it, and then frames that wait on its ring: to its shard goes
    /// what is its own, after `watch` has seen it, and to others the rest. Whether frames are left.
    pub fn deliver(&mut self, now: Instant, home: usize, mut watch: impl FnMut(&[u8])) -> bool {
        self.take_in(now, home, &mut watch);
        let frames_max = self.schedule.frames();
        let ring = &mut self.squeues[home].ring;
        let frames: Vec<_> = ring.drain(..frames_max.min(ring.len())).collect();
        self.squeues[home].interrupt_pending = !self.squeues[home].ring.is_empty();
        self.place(&frames);
        let medium = medium(self.bare_ip, self.station);
        let Self { squeues, receive, order, cutter, .. } = self;
        let Squeue { shard, desk, interface, .. } = &mut squeues[home];
        let mut watch = watched(&mut watch, cutter, medium);
        match desk {
            None => {
                (0..receive.len()).for_each(|index| watch(receive.bytes(index)));
                shard.on_receive(now, *interface, receive);
            }
            Some(desk) => {
                for index in 0..receive.len() {
                    order.on_taken(receive.bytes(index), medium);
                }
                desk.spread(0, medium, receive, |own| {
                    for index in 0..own.len() {
                        order.on_given(own.bytes(index), medium);
                        watch(own.bytes(index));
                    }
                    shard.on_receive(now, *interface, own);
                });
            }
        }
        self.receive.clear();
        self.squeues[home].interrupt_pending
    }

    /// Puts frames into blocks of the pool, as the device does.
    fn place(&mut self, frames: &[Vec<u8>]) {
        let checksum = match self.plan.offload && self.random.chance(0.5) {
            // The device verified it: a frame that is damaged never comes up.
            true => ReceivedChecksum::Verified,
            false => ReceivedChecksum::Unverified,
        };
        let merges = self.plan.merges && self.random.chance(0.7);
        let merged: Vec<_> = match merges {
            true => merger::merged(frames, self.bare_ip),
            false => Vec::new(),
        };
        self.super_frames += merged.iter().filter(|it| it.segment_len.is_some()).count() as u64;
        let plain = frames.iter().filter(|_| !merges).map(|bytes| (bytes.as_slice(), None));
        let merged = merged.iter().map(|it| (it.bytes.as_slice(), it.segment_len));
        let frames: Vec<_> = plain.chain(merged).collect();
        let mut rest = frames.as_slice();
        while !rest.is_empty() {
            let many = self.random.pick(&[1, 4, 64, 64]).min(rest.len());
            let (part, behind) = rest.split_at(many);
            rest = behind;
            let len = part.iter().map(|(bytes, _)| bytes.len()).sum::<usize>();
            // Without memory the frames are lost, as in a card without descriptors.
            let Ok(mut block) = self.pool.allocate_receive(len) else { continue };
            let mut placed = Vec::with_capacity(many);
            let mut at = 0;
            for (frame, segment_len) in part {
                if checksum == ReceivedChecksum::Verified
                    && crate::packet::read(frame, !self.bare_ip).is_err()
                {
                    continue;
                }
                block.bytes_mut()[at..at + frame.len()].copy_from_slice(frame);
                placed.push((at as u32, frame.len() as u32, *segment_len));
                at += frame.len();
            }
            let block = self.receive.add_block(block.freeze());
            for (offset, len, segment_len) in placed {
                let segmented = segment_len.map(|segment_len| Segmented { segment_len });
                let frame = Frame { block, offset, len, checksum, segmented };
                let is_within = self.receive.push_frame(frame);
                debug_assert!(is_within, "frames lie within their block");
            }
        }
    }

    /// A squeue takes what others handed to it.
    pub fn take_in(&mut self, now: Instant, home: usize, mut watch: impl FnMut(&[u8])) {
        let medium = medium(self.bare_ip, self.station);
        let Self { squeues, receive, order, cutter, .. } = self;
        let Squeue { shard, desk, interface, .. } = &mut squeues[home];
        let Some(desk) = desk else { return };
        let mut watch = watched(&mut watch, cutter, medium);
        let taken = desk.take_in(receive, |arrived| match arrived {
            Arrived::Frames(_, frames) => {
                for index in 0..frames.len() {
                    order.on_given(frames.bytes(index), medium);
                    watch(frames.bytes(index));
                }
                shard.on_receive(now, *interface, frames);
            }
            Arrived::Stray(stray) => shard.on_stray(now, &stray),
        });
        receive.clear();
        if taken.more {
            self.schedule.want(home);
        }
    }

    /// A squeue hands on what turned out to be for others; a bit for each that is to be told of this
    /// or of frames.
    pub fn hand_on(&mut self, home: usize) -> u64 {
        let Squeue { shard, desk, .. } = &mut self.squeues[home];
        let Some(desk) = desk else { return 0 };
        while let Some(stray) = shard.poll_stray() {
            let (home, weight) = (stray.home, stray.weight());
            desk.hand_on(home, stray, weight);
        }
        desk.take_concerned()
    }

    /// This squeue has something to do.
    pub fn want(&mut self, home: usize) {
        self.schedule.want(home);
    }

    /// So have those for which something is due that was kept from running until now.
    pub fn want_due(&mut self, now: Instant) {
        for (home, squeue) in self.squeues.iter().enumerate() {
            if squeue.shard.poll_timeout().is_some_and(|due| due <= now) {
                self.schedule.want(home);
            }
        }
    }

    /// The squeue that runs next, of those that have something to do.
    pub fn next_to_run(&mut self, now: Instant) -> Option<usize> {
        self.schedule.next(now)
    }

    /// Until when the system keeps the squeue from running, if it does.
    #[must_use]
    pub fn stalled_until(&self, now: Instant, home: usize) -> Option<Instant> {
        self.schedule.stalled_until(now, home)
    }

    /// Until when a squeue that is called now does not come, where the system keeps it from running.
    pub fn stall(&mut self, now: Instant, home: usize) -> Option<Instant> {
        self.schedule.stall(now, home, self.plan.squeues.stalls)
    }

    /// How long it takes until a squeue runs that was told of something.
    pub fn delay(&mut self) -> Duration {
        self.schedule.delay()
    }

    /// When a squeue's timer goes off, for the event that counts.
    pub fn timer(&mut self, home: usize) -> &mut Option<Instant> {
        &mut self.squeues[home].timer_at
    }

    /// A connection of which frames reached their shard in another order than they came, or twice.
    #[must_use]
    pub fn shuffled(&self) -> Option<Ends> {
        self.order.broken()
    }

    /// What is wrong with the books of what squeues handed to each other, when nothing is under way.
    #[must_use]
    pub fn audit_exchange(&self) -> Option<String> {
        let desks = || self.squeues.iter().filter_map(|squeue| squeue.desk.as_ref());
        let (mut over, mut taken, mut dropped, mut waiting) = (0, 0, 0, 0);
        for desk in desks() {
            let moved = desk.moved();
            (over, taken) = (over + moved.0, taken + moved.1);
            dropped += desk.drops().total();
            waiting += desk.depth();
        }
        let lost = self.order.lost();
        let is_right = waiting == 0 && over == taken + dropped && lost <= dropped;
        (!is_right).then(|| {
            format!(
                "{over} handed over, {taken} taken, {dropped} dropped, {waiting} waiting; \
                 {lost} segments were seen by no shard"
            )
        })
    }

    /// One batch goes out, or a part of it.
    pub fn send(&mut self, now: Instant, home: usize) -> Option<Sent> {
        let partly = self.random.chance(self.plan.partly_taken);
        let room = match partly && self.random.chance(0.5) {
            true => Room { packets: self.random.within(1, 8) as usize, bytes: 9_100 },
            false => Room::UNBOUNDED,
        };
        let Squeue { shard, interface, .. } = &mut self.squeues[home];
        let built = shard.poll_transmit(now, *interface, room, &mut self.transmit);
        if built == 0 {
            self.transmit.clear();
            return None;
        }
        let taken = if partly { self.random.within(0, built as u64) as usize } else { built };
        let (frames, lowered_wrongly) = self.lower(taken);
        let taken = frames.len();
        let stopped = taken < built;
        let transmitted = Transmitted { taken, stopped: stopped.then_some(Stop::Full) };
        let Squeue { shard, interface, .. } = &mut self.squeues[home];
        shard.on_transmitted(now, *interface, &transmitted);
        // A batch that is kept holds its blocks.
        self.transmit.clear();
        let network = if self.bare_ip { 0 } else { 14 };
        for frame in &frames {
            self.rings.on_sent(frame.get(network..).unwrap_or(&[]), home);
        }
        Some(Sent { frames, stopped, lowered_wrongly })
    }

    /// The frames of the first packets of the batch, at least `wanted` of them where a super-frame
    /// cannot be divided, and whether one of these was not what it should be.
    fn lower(&self, wanted: usize) -> (Vec<Vec<u8>>, bool) {
        let plain: Vec<_> = self.transmit.packets().map(|packet| complete(&packet)).collect();
        match self.plan.mode {
            TransmitMode::Contiguous(form) => {
                let lowered = lowered::cut(&self.transmit, wanted, form);
                let is_right = lowered.as_ref().is_some_and(|it| plain.starts_with(it));
                return (lowered.unwrap_or_default(), !is_right);
            }
            TransmitMode::Lso => {}
            _ => return (plain.into_iter().take(wanted).collect(), false),
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

/// Lets `watch` see a frame, and the segment that is whole with it where it was cut on its way. What waited while
/// the network card was exchanged is for nobody any more.
fn watched(
    watch: &mut impl FnMut(&[u8]),
    cutter: &mut Cutter,
    medium: Medium,
) -> impl FnMut(&[u8]) {
    move |frame| {
        if !is_for(frame, medium) {
            return;
        }
        watch(frame);
        if let Some(whole) = cutter.on_arrived(frame, medium == Medium::Ip) {
            watch(&whole);
        }
    }
}

/// Whether a frame is for this station, or for a group.
fn is_for(frame: &[u8], medium: Medium) -> bool {
    match medium {
        Medium::Ip => true,
        Medium::Ethernet(station) => {
            frame.first().is_some_and(|byte| byte & 1 == 1) || frame.get(..6) == Some(&station.0)
        }
    }
}

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

/// A packet of a batch as the device puts it on the wire.
fn complete(packet: &PacketView<'_>) -> Vec<u8> {
    let mut bytes = vec![0; packet.len()];
    let copied = lowering::copy_complete(packet, &mut bytes);
    debug_assert!(copied.is_some(), "the vector is as long as the packet, and the field within");
    bytes
}
