//! A host's squeues: shards that share its interface, each with its desk at the exchange.
//!
//! What lies between the device and the shards is the threads' own (`steering`): soft ring sets, soft
//! rings, strays, and which home a flow has. Who runs when is the seed's to say (`schedule.rs`).

use super::{DATAGRAM_PORT, PORTS, SOCKETS_MAX, Socket};
use crate::random::Random;
use crate::scenario::HostPlan;
use batch::{BlockPool, PoolConfig};
use core::net::{Ipv4Addr, SocketAddr};
use device::Capabilities;
use stack::{
    AddressingConfig, ClaimPolicy, FastOpenOptions, Homes, InterfaceConfig, InterfaceId,
    ListenOptions, Shard, ShardConfig, Share, Stray,
};
use std::sync::Arc;
use steering::{Desk, Exchange, Home, SoftRingConfig, Spread};
use tcp::IsnGenerator;
use time::Instant;

/// A shard and what is its own alone.
pub(super) struct Squeue {
    pub(super) shard: Shard,
    /// Its one interface: the same number in all squeues.
    pub(super) interface: InterfaceId,
    /// Where there are several.
    pub(super) desk: Option<Desk<Stray>>,
    /// Frames on the device's ring of the same number.
    pub(super) ring: Vec<Vec<u8>>,
    /// The squeue is about to be called for them.
    pub(super) interrupt_pending: bool,
    /// The timer event that counts.
    pub(super) timer_at: Option<Instant>,
}

/// What a restart makes anew.
pub(super) struct Made {
    pub(super) squeues: Vec<Squeue>,
    pub(super) pool: BlockPool,
    pub(super) listeners: Vec<Socket>,
    pub(super) datagrams: Option<Socket>,
    pub(super) isn: IsnGenerator,
}

impl Made {
    pub(super) fn new(
        now: Instant,
        addresses: &[ip::Cidr],
        plan: &HostPlan,
        capabilities: &Capabilities,
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
        let homes = plan.squeues.spread.homes();
        let exchange = (homes > 1).then(|| {
            let rings = SoftRingConfig::default();
            Arc::new(Exchange::new(plan.squeues.spread, 1, rings))
        });
        let mut made =
            Self { squeues: Vec::new(), pool, listeners: Vec::new(), datagrams: None, isn };
        for home in 0..homes {
            let mut shard = Shard::new(ShardConfig {
                tcp: plan.tcp.clone(),
                pool: made.pool.clone(),
                secret,
                sockets_max: SOCKETS_MAX,
            });
            shard.set_receive_trains(plan.receive_trains);
            let desk = exchange.as_ref().map(|exchange| Desk::new(exchange, Home(home)));
            if exchange.is_some() {
                let homes = Arc::new(HomesOf(plan.squeues.spread));
                let count = plan.squeues.spread.homes().into();
                shard.set_share(Share { index: home.into(), count, homes });
            }
            let interface = add_interface(now, &mut shard, addresses, plan, capabilities);
            made.open(home.into(), &mut shard, plan);
            made.squeues.push(Squeue {
                shard,
                interface,
                desk,
                ring: Vec::new(),
                interrupt_pending: false,
                timer_at: None,
            });
        }
        made
    }

    /// The sockets that every squeue has from the beginning.
    fn open(&mut self, home: usize, shard: &mut Shard, plan: &HostPlan) {
        for port in PORTS {
            let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
            let options = ListenOptions {
                backlog: plan.backlog,
                half_open_max: plan.half_open_max,
                syn_cookies: plan.syn_cookies,
                fast_open: FastOpenOptions {
                    pending_max: plan.fast_open_max,
                    ..FastOpenOptions::default()
                },
                ..ListenOptions::default()
            };
            let listener = shard.tcp_listen_with(any, options);
            self.listeners.extend(listener.ok().map(|id| Socket { home, id }));
        }
        if plan.squeues.spread.home_of_datagrams(DATAGRAM_PORT).index() == home {
            let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), DATAGRAM_PORT);
            self.datagrams = shard.udp_bind(any).ok().map(|id| Socket { home, id });
        }
    }
}

fn add_interface(
    now: Instant,
    shard: &mut Shard,
    addresses: &[ip::Cidr],
    plan: &HostPlan,
    capabilities: &Capabilities,
) -> InterfaceId {
    let (capabilities, addresses) = (capabilities.clone(), addresses.to_vec());
    let config =
        InterfaceConfig { capabilities, mode: Some(plan.mode), addresses, gateways: Vec::new() };
    let interface = shard.add_interface(config);
    let interface = interface.expect("no gateway, so nothing can be refused");
    if plan.claims != ClaimPolicy::Trust {
        let (ipv4, ipv6) = (plan.claims, plan.claims);
        let config = AddressingConfig { ipv4, ipv6, ..AddressingConfig::default() };
        shard.start_addressing(now, interface, config);
    }
    interface
}

/// Who has what, as the squeues' threads know it.
struct HomesOf(Spread);

impl Homes for HomesOf {
    fn of_flow(&self, local: SocketAddr, remote: SocketAddr) -> usize {
        self.0.home_of_reply(local, remote).index()
    }

    fn of_port(&self, port: u16) -> usize {
        self.0.home_of_datagrams(port).index()
    }
}
