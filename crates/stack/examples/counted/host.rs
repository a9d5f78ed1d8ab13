//! A shard, its end of the wire and the loop that drives both.

use batch::{BlockPool, Multidata, PoolConfig, ReceiveBatch};
use core::net::SocketAddr;
use device::{Medium, Queue, TransmitMode, WireConfig, WireEnd, WireQueue};
use stack::{InterfaceConfig, InterfaceId, Shard, ShardConfig, SocketId};
use time::{Duration, Instant};

pub(crate) const SERVER: &str = "10.0.0.2:80";

pub(crate) struct Host {
    pub(crate) shard: Shard,
    interface: InterfaceId,
    queue: WireQueue,
    pub(crate) pool: BlockPool,
    transmit: Multidata,
    receive: ReceiveBatch,
    frames_max: usize,
}

impl Host {
    pub(crate) fn new(
        address: &str,
        mut queue: WireQueue,
        mode: TransmitMode,
        seed: u8,
    ) -> Option<Self> {
        queue.set_mode(mode).ok()?;
        let pool = BlockPool::new(PoolConfig::default());
        let mut shard = Shard::new(ShardConfig {
            tcp: tcp::Config::default(),
            pool: pool.clone(),
            secret: [seed; 32],
            sockets_max: 16,
        });
        let interface = shard.add_interface(InterfaceConfig {
            capabilities: queue.capabilities(),
            mode: Some(mode),
            addresses: vec![address.parse().ok()?],
            gateways: Vec::new(),
        });
        Some(Self {
            shard,
            interface: interface.ok()?,
            queue,
            pool,
            transmit: Multidata::default(),
            receive: ReceiveBatch::new(),
            // One packet at a time goes for the way in as well.
            frames_max: if mode == TransmitMode::Single { 1 } else { 256 },
        })
    }

    /// Takes in what the wire has and sends what there is to send; says whether anything moved.
    #[inline(never)]
    pub(crate) fn run(&mut self, now: Instant) -> bool {
        let received = self.queue.receive(&self.pool, &mut self.receive, self.frames_max);
        self.shard.on_receive(now, self.interface, &mut self.receive);
        if self.shard.poll_timeout().is_some_and(|due| due <= now) {
            self.shard.on_timeout(now);
        }
        let mut sent = false;
        loop {
            let room = self.queue.room();
            if self.shard.poll_transmit(now, self.interface, room, &mut self.transmit) == 0 {
                break;
            }
            let transmitted = self.queue.transmit(&self.transmit);
            self.shard.on_transmitted(now, self.interface, &transmitted);
            sent |= transmitted.taken > 0;
            if transmitted.stopped.is_some() {
                break;
            }
        }
        while self.shard.poll_event().is_some() {}
        received.frames > 0 || sent
    }
}

/// Both hosts run until nothing moves, at one moment of virtual time.
pub(crate) fn run_both(hosts: &mut [Host; 2], now: &mut Instant) {
    while hosts[0].run(*now) | hosts[1].run(*now) {}
    *now += Duration::from_micros(100);
}

/// Two hosts, of which the second listens at [`SERVER`], with the listener.
pub(crate) fn pair(mode: TransmitMode) -> Option<([Host; 2], SocketId)> {
    let end = match mode {
        TransmitMode::Lso => WireEnd::offloading(Medium::Ip),
        _ => WireEnd::plain(Medium::Ip),
    };
    let (left, right) = device::wire(WireConfig::new(end, end));
    let client = Host::new("10.0.0.1/24", left, mode, 1)?;
    let mut server = Host::new("10.0.0.2/24", right, mode, 2)?;
    let listener = server.shard.tcp_listen(SERVER.parse().ok()?, 1).ok()?;
    Some(([client, server], listener))
}

/// Opens a connection: the sockets of both ends.
pub(crate) fn connect(
    hosts: &mut [Host; 2],
    now: &mut Instant,
    listener: SocketId,
) -> Option<[SocketId; 2]> {
    let server: SocketAddr = SERVER.parse().ok()?;
    let client = hosts[0].shard.tcp_connect(*now, None, server).ok()?;
    run_both(hosts, now);
    Some([client, hosts[1].shard.tcp_accept(listener).ok()?])
}

/// A UDP socket at each host, that of the second at [`SERVER`].
pub(crate) fn bind(hosts: &mut [Host; 2]) -> Option<[SocketId; 2]> {
    let client = hosts[0].shard.udp_bind("10.0.0.1:0".parse().ok()?).ok()?;
    Some([client, hosts[1].shard.udp_bind(SERVER.parse().ok()?).ok()?])
}
