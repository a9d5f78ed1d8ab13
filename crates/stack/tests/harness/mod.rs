//! Two shards on one link, in virtual time.
#![allow(dead_code, reason = "each test file uses its own part of the harness")]

pub(crate) mod craft;

use batch::{
    Block, BlockPool, Chunk, Frame, Multidata, PoolConfig, ReceiveBatch, ReceivedChecksum,
};
use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use device::{
    Capabilities, HardwareAddress, Medium, Room, Stop, TransmitMode, Transmitted, lowering,
};
use stack::{
    FastOpenOptions, InterfaceConfig, InterfaceId, ListenOptions, Shard, ShardConfig, SocketError,
    SocketId,
};
use std::collections::VecDeque;
use time::{Duration, Instant};

/// What a link does to one frame.
pub(crate) enum Fate {
    Deliver,
    Lose,
}

/// Decides on a frame, given its sender.
pub(crate) type Decide = dyn FnMut(usize, &[u8]) -> Fate;

/// Changes the frames of a batch, given its receiver.
pub(crate) type Mangle = dyn FnMut(usize, &mut Vec<Vec<u8>>);

/// What a device does with one batch instead of taking it.
pub(crate) struct Turn {
    /// Packets that it takes all the same.
    pub(crate) take: usize,
    pub(crate) stop: Stop,
    /// What it can do from then on.
    pub(crate) then: Option<Capabilities>,
}

/// A listener of which so many connections may begin with data.
pub(crate) fn fast_open(pending_max: usize) -> ListenOptions {
    let fast_open = FastOpenOptions { pending_max, ..FastOpenOptions::default() };
    ListenOptions { fast_open, ..ListenOptions::default() }
}

/// A shard with one interface and the frames on their way to it.
pub(crate) struct Host {
    pub(crate) shard: Shard,
    pub(crate) interface: InterfaceId,
    pub(crate) pool: BlockPool,
    pub(crate) inbox: Vec<Vec<u8>>,
    /// How many of the packets of a batch the device takes; the rest was never sent.
    pub(crate) take: Box<dyn FnMut(usize) -> usize>,
    /// What its device does with the next batches of several packets.
    pub(crate) script: VecDeque<Turn>,
    /// Interfaces beside the first, on the same link: what they send arrives at the other host.
    pub(crate) more: Vec<InterfaceId>,
    /// Its device receives into blocks of its pool, as long as this, and has frames wait where there are none.
    pub(crate) receives_into: Option<usize>,
}

impl Host {
    /// Another pool than that of default size.
    pub(crate) fn with_pool(mut self, index: usize, config: PoolConfig) -> Self {
        self.pool = BlockPool::new(config);
        self.shard = shard(index, tcp::Config::default(), &self.pool);
        self.interface = interface(&mut self.shard, index, TransmitMode::Multidata, true);
        self
    }

    /// What its device hands up.
    fn receive(&mut self) -> ReceiveBatch {
        let Some(block_len) = self.receives_into else {
            return receive_batch(self.inbox.drain(..));
        };
        self.shard.relieve_pool();
        let (mut batch, mut taken) = (ReceiveBatch::new(), 0);
        while taken < self.inbox.len() {
            let Ok(mut block) = self.pool.allocate_receive(block_len) else { break };
            let (mut at, mut frames) = (0, Vec::new());
            for frame in &self.inbox[taken..] {
                let Some(room) = block.bytes_mut().get_mut(at..at + frame.len()) else { break };
                room.copy_from_slice(frame);
                frames.push((at, frame.len()));
                at += frame.len();
            }
            taken += frames.len();
            let block = batch.add_block(block.freeze());
            for (at, len) in frames {
                let (offset, len) = (at as u32, len as u32);
                let checksum = ReceivedChecksum::Unverified;
                assert!(batch.push_frame(Frame { block, offset, len, checksum, segmented: None }));
            }
        }
        self.inbox.drain(..taken);
        batch
    }
}

/// Two hosts and the time.
pub(crate) struct Net {
    pub(crate) now: Instant,
    pub(crate) hosts: [Host; 2],
    pub(crate) fate: Box<Decide>,
    /// What becomes of the frames that a host is about to receive in one batch.
    pub(crate) mangle: Box<Mangle>,
    /// Every frame that was sent, with its sender.
    pub(crate) wire: Vec<(usize, Vec<u8>)>,
    /// Every batch that was offered: its sender, the interface, and its packets.
    pub(crate) batches: Vec<(usize, InterfaceId, usize)>,
    /// How long a batch is on its way: no time, unless a test asks in which order things were sent.
    pub(crate) delay: Duration,
}

pub(crate) fn address(host: usize, ipv6: bool) -> IpAddr {
    let text = match (host, ipv6) {
        (0, false) => "10.0.0.1",
        (_, false) => "10.0.0.2",
        (0, true) => "fd00::1",
        (_, true) => "fd00::2",
    };
    text.parse().expect("an address")
}

pub(crate) fn station(host: usize) -> HardwareAddress {
    HardwareAddress([2, 0, 0, 0, 0, host as u8 + 1])
}

pub(crate) fn shard(index: usize, tcp: tcp::Config, pool: &BlockPool) -> Shard {
    let secret = [index as u8 + 7; 32];
    Shard::new(ShardConfig { tcp, pool: pool.clone(), secret, sockets_max: 1_000 })
}

fn interface(shard: &mut Shard, index: usize, mode: TransmitMode, ethernet: bool) -> InterfaceId {
    let medium = if ethernet { Medium::Ethernet(station(index)) } else { Medium::Ip };
    let addresses = vec![
        ip::Cidr::new(address(index, false), 24).expect("a network"),
        ip::Cidr::new(address(index, true), 64).expect("a network"),
    ];
    let capabilities = Capabilities::plain(medium, 1_500);
    let config =
        InterfaceConfig { capabilities, mode: Some(mode), addresses, gateways: Vec::new() };
    shard.add_interface(config).expect("a sound configuration")
}

fn host(index: usize, mode: TransmitMode, ethernet: bool, config: tcp::Config) -> Host {
    let pool = BlockPool::new(PoolConfig::default());
    let mut shard = shard(index, config, &pool);
    let interface = interface(&mut shard, index, mode, ethernet);
    Host {
        shard,
        interface,
        pool,
        inbox: Vec::new(),
        take: Box::new(|built| built),
        script: VecDeque::new(),
        more: Vec::new(),
        receives_into: None,
    }
}

impl Net {
    pub(crate) fn new(mode: TransmitMode, ethernet: bool) -> Self {
        Self::with_config(mode, ethernet, tcp::Config::default())
    }

    pub(crate) fn with_config(mode: TransmitMode, ethernet: bool, config: tcp::Config) -> Self {
        Self {
            now: Instant::from_millis(1_000),
            hosts: [host(0, mode, ethernet, config.clone()), host(1, mode, ethernet, config)],
            fate: Box::new(|_, _| Fate::Deliver),
            mangle: Box::new(|_, _| {}),
            wire: Vec::new(),
            batches: Vec::new(),
            delay: Duration::ZERO,
        }
    }

    /// Lets everything happen that happens now, and says whether anything did.
    pub(crate) fn step(&mut self) -> bool {
        let sent = self.send(0) | self.send(1);
        let mut moved = false;
        for (index, host) in self.hosts.iter_mut().enumerate() {
            if !host.inbox.is_empty() {
                (self.mangle)(index, &mut host.inbox);
                let mut batch = host.receive();
                moved |= !batch.is_empty();
                host.shard.on_receive(self.now, host.interface, &mut batch);
            }
        }
        sent || moved
    }

    /// One batch of each interface of one host goes out.
    fn send(&mut self, from: usize) -> bool {
        let mut ids = vec![self.hosts[from].interface];
        ids.extend(&self.hosts[from].more);
        ids.into_iter().fold(false, |sent, id| self.send_by(from, id) | sent)
    }

    fn send_by(&mut self, from: usize, id: InterfaceId) -> bool {
        let mut batch = Multidata::default();
        let host = &mut self.hosts[from];
        if host.shard.poll_timeout().is_some_and(|due| due <= self.now) {
            host.shard.on_timeout(self.now);
        }
        let built = host.shard.poll_transmit(self.now, id, Room::UNBOUNDED, &mut batch);
        if built == 0 {
            return false;
        }
        self.batches.push((from, id, built));
        let mut taken = (host.take)(built).min(built);
        let mut stopped = (taken < built).then_some(Stop::Full);
        let turn = if built > 1 { host.script.pop_front() } else { None };
        if let Some(turn) = &turn {
            (taken, stopped) = (turn.take.min(built), Some(turn.stop.clone()));
        }
        host.shard.on_transmitted(self.now, id, &Transmitted { taken, stopped });
        if let Some(capabilities) = turn.and_then(|turn| turn.then) {
            host.shard.set_capabilities(id, capabilities);
        }
        for packet in batch.packets().take(taken) {
            let frame = bytes_of(&packet);
            self.wire.push((from, frame.clone()));
            if matches!((self.fate)(from, &frame), Fate::Deliver) {
                self.hosts[1 - from].inbox.push(frame);
            }
        }
        true
    }

    /// Hands frames to a host as one batch, as if they had come over the link.
    pub(crate) fn inject(&mut self, to: usize, frames: impl IntoIterator<Item = Vec<u8>>) {
        let host = &mut self.hosts[to];
        let mut batch = receive_batch(frames);
        host.shard.on_receive(self.now, host.interface, &mut batch);
    }

    /// Runs until nothing moves; then goes on to the next deadline, and so on for `span`.
    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            for _ in 0..100_000 {
                if !self.step() {
                    break;
                }
                self.now += self.delay;
            }
            let next = self.hosts.iter().filter_map(|host| host.shard.poll_timeout()).min();
            match next {
                Some(next) if next <= end => {
                    self.now = next.max(self.now + Duration::from_micros(1))
                }
                _ => break,
            }
        }
        self.now = end.max(self.now);
    }

    /// Opens a connection from host 0 to host 1 and returns both ends.
    pub(crate) fn connect(&mut self, ipv6: bool) -> (SocketId, SocketId) {
        self.connect_to(ipv6, 80)
    }

    /// The same to a port of host 1.
    pub(crate) fn connect_to(&mut self, ipv6: bool, port: u16) -> (SocketId, SocketId) {
        let local = SocketAddr::new(address(1, ipv6), port);
        let listener = self.hosts[1].shard.tcp_listen(local, 16).expect("a free port");
        let client = self.hosts[0].shard.tcp_connect(self.now, None, local).expect("a route");
        self.run(Duration::from_millis(10));
        let server = self.hosts[1].shard.tcp_accept(listener).expect("an open connection");
        (client, server)
    }

    /// Queues as much of `bytes` as there is room for.
    pub(crate) fn write(&mut self, host: usize, id: SocketId, bytes: &[u8]) -> usize {
        let shard = &mut self.hosts[host].shard;
        let room = shard.tcp_send_room(id).unwrap_or(0).min(bytes.len());
        if room > 0 {
            let chunk = Chunk::whole(Block::from(Bytes::copy_from_slice(&bytes[..room])));
            shard.tcp_append(self.now, id, chunk).expect("there is room");
        }
        room
    }

    /// Reads whatever is there; the flag tells of the end of the stream.
    pub(crate) fn read(
        &mut self,
        host: usize,
        id: SocketId,
        into: &mut Vec<u8>,
    ) -> Result<bool, SocketError> {
        let mut buffer = [0; 20_000];
        loop {
            match self.hosts[host].shard.tcp_read(self.now, id, &mut buffer) {
                Ok(0) => return Ok(true),
                Ok(count) => into.extend_from_slice(&buffer[..count]),
                Err(SocketError::WouldBlock) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Moves `bytes` from one end to the other and closes the sending side; panics where they do
    /// not arrive within `span`.
    pub(crate) fn transfer(
        &mut self,
        from: (usize, SocketId),
        to: (usize, SocketId),
        bytes: &[u8],
        span: Duration,
    ) {
        let end = self.now + span;
        let (mut sent, mut received) = (0, Vec::new());
        let mut is_shut = false;
        loop {
            sent += self.write(from.0, from.1, &bytes[sent..]);
            if sent == bytes.len() && !is_shut {
                self.hosts[from.0].shard.tcp_shutdown_write(self.now, from.1).expect("connected");
                is_shut = true;
            }
            self.run(Duration::from_micros(500));
            if self.read(to.0, to.1, &mut received).expect("no error") {
                break;
            }
            assert!(self.now < end, "{} of {} bytes after {span:?}", received.len(), bytes.len());
        }
        assert!(received == bytes, "the stream arrived changed");
    }
}

pub(crate) fn bytes_of(packet: &batch::PacketView<'_>) -> Vec<u8> {
    let mut bytes = vec![0; packet.len()];
    // As a device with the offload does it.
    lowering::copy_complete(packet, &mut bytes).expect("room, and a field");
    bytes
}

pub(crate) fn receive_batch(frames: impl IntoIterator<Item = Vec<u8>>) -> ReceiveBatch {
    let mut batch = ReceiveBatch::new();
    for frame in frames {
        let len = frame.len() as u32;
        let block = batch.add_block(Block::from(Bytes::from(frame)));
        let frame = Frame {
            block,
            offset: 0,
            len,
            checksum: ReceivedChecksum::Unverified,
            segmented: None,
        };
        assert!(batch.push_frame(frame));
    }
    batch
}

pub(crate) fn data(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}
