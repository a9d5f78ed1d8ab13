//! What a stack is built from.

mod checks;

pub(super) use self::checks::{check_interface, check_mtu, check_own_gateways, mtu_min_bytes};

use self::checks::check_interfaces;
use super::events::InterfaceEvents;
use super::{Runtime, Stack, invalid};
use crate::affinity;
use crate::copy_in::{CopyIn, CopyObserver};
use crate::error::socket_error;
use crate::runtime::event_watch::EventWatch;
use crate::runtime::hand_over::HandOver;
use crate::runtime::port::Port;
use crate::runtime::shared_queue;
use crate::runtime::squeue::{Core, Squeue};
use crate::runtime::squeues::Squeues;
use crate::runtime::worker::Threads;
use crate::runtime::{Clock, locked};
use batch::{BlockPool, PoolConfig};
use core::net::IpAddr;
use device::{Queue, TransmitMode};
use dhcp::ClientConfig;
use ip::Cidr;
use ip::router::{IdentifierKey, RouterConfig};
use stack::{AddressingConfig, ClaimPolicy, Shard, ShardConfig, TIME_WAIT_MAX};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use steering::{Coalescing, Layout, Policy, Polling, Spread};
use time::Instant;

/// Settings of a stack that do not belong to one interface.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// Sizes of the pool that all packet memory comes from, and its bound.
    pub pool: PoolConfig,
    /// Settings that new connections start with.
    pub tcp: tcp::Config,
    /// How writes are copied in.
    pub copy_in: CopyIn,
    /// Sockets that may be open at once, connections that finish closing included.
    pub sockets_max: usize,
    /// Connections in TIME-WAIT that are remembered beside them, about 300 bytes each; the oldest
    /// makes room.
    pub time_wait_max: usize,
    /// Connections of each squeue that may finish their business after their last handle was dropped; those
    /// that are dropped beyond are reset, and what they held is lost (`orphans_reset`). `None` stands for a
    /// quarter of `sockets_max`, and 16,384 at least.
    pub orphans_max: Option<usize>,
    /// Whether received segments that repeat the headers of the one before them are taken as one unit
    /// ([`Shard::set_receive_trains`]); off only to see what that saves.
    pub receive_trains: bool,
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            pool: PoolConfig::default(),
            tcp: tcp::Config::default(),
            copy_in: CopyIn::default(),
            sockets_max: 65_536,
            time_wait_max: TIME_WAIT_MAX,
            orphans_max: None,
            receive_trains: true,
        }
    }
}

/// Connections without handles that a stack keeps at least, where nobody says how many.
const ORPHANS_MIN: usize = 16_384;

impl StackConfig {
    fn orphans_max(&self) -> usize {
        self.orphans_max.unwrap_or_else(|| ORPHANS_MIN.max(self.sockets_max / 4))
    }

    /// A shard with these settings.
    fn shard(&self, pool: BlockPool, secret: [u8; 32]) -> Shard {
        let (tcp, sockets_max) = (self.tcp.clone(), self.sockets_max);
        let mut shard = Shard::new(ShardConfig { tcp, pool, secret, sockets_max });
        shard.set_time_wait_max(self.time_wait_max);
        shard.set_orphans_max(self.orphans_max());
        shard.set_receive_trains(self.receive_trains);
        shard
    }
}

/// The addresses and routes of an interface, and how batches reach its device.
#[derive(Clone, Debug, Default)]
pub struct InterfaceConfig {
    addresses: Vec<Cidr>,
    gateways: Vec<IpAddr>,
    mode: Option<TransmitMode>,
    addressing: AddressingConfig,
    slaac: Option<Option<IdentifierKey>>,
    mss_max: Option<u16>,
    mtu_bytes: Option<usize>,
    transmit_queue: Option<usize>,
    coalescing: Coalescing,
    queue_coalescing: BTreeMap<usize, Coalescing>,
    accepted: Vec<Cidr>,
    routes: Vec<(Cidr, Option<IpAddr>)>,
}

impl InterfaceConfig {
    /// An interface with one address; the network it is on is reached directly.
    #[must_use]
    pub fn new(address: Cidr) -> Self {
        Self { addresses: vec![address], ..Self::default() }
    }

    /// An interface without fixed addresses: IPv4 from a DHCP server, IPv6 from routers. Of several
    /// squeues the first one asks, and what it learns holds for all.
    /// [`Stack::wait_for_address`] waits for the first.
    #[must_use]
    pub fn automatic() -> Self {
        Self::default().dhcp(ClientConfig::default()).slaac()
    }

    /// Leases an IPv4 address from a DHCP server (RFC 2131), with its routes and DNS servers.
    #[must_use]
    pub fn dhcp(mut self, config: ClientConfig) -> Self {
        self.addressing.dhcp = Some(config);
        self
    }

    /// Listens to IPv6 routers (RFC 4861) and forms addresses from what they say (RFC 4862). The
    /// interface identifiers are others at each start; [`InterfaceConfig::slaac_with_key`] keeps
    /// them.
    #[must_use]
    pub fn slaac(mut self) -> Self {
        self.slaac = Some(None);
        self
    }

    /// As [`InterfaceConfig::slaac`], with identifiers that are the same on the same network
    /// whenever the key is (RFC 7217).
    #[must_use]
    pub fn slaac_with_key(mut self, key: IdentifierKey) -> Self {
        self.slaac = Some(Some(key));
        self
    }

    /// What is done on the link before and after addresses are used, for IPv4 and for IPv6. The
    /// default announces IPv4 addresses and uses IPv6 addresses optimistically: neither delays the
    /// start of a program.
    #[must_use]
    pub fn claims(mut self, ipv4: ClaimPolicy, ipv6: ClaimPolicy) -> Self {
        (self.addressing.ipv4, self.addressing.ipv6) = (ipv4, ipv6);
        self
    }

    /// Adds an address, for example one of the other IP version: 64 in all at most. Whole networks are for
    /// [`InterfaceConfig::accept_any`]. Two interfaces may have one address, for two ways to the same hosts
    /// ([`Stack::set_route_duplicating`]).
    #[must_use]
    pub fn address(mut self, address: Cidr) -> Self {
        self.addresses.push(address);
        self
    }

    /// Names the router to everywhere else, on one of the networks of the interface and not this stack itself; at most one
    /// of each IP version. Where several interfaces have one, that of the first is used, and the others' once it goes.
    #[must_use]
    pub fn gateway(mut self, gateway: IpAddr) -> Self {
        self.gateways.push(gateway);
        self
    }

    /// Reaches the network `destination` by this interface, by way of `gateway` or directly
    /// ([`Stack::add_route`] does it later); one way to each network.
    #[must_use]
    pub fn route(mut self, destination: Cidr, gateway: Option<IpAddr>) -> Self {
        self.routes.push((destination, gateway));
        self
    }

    /// Reaches everything directly by this interface, of both IP versions: for links that have no routers,
    /// such as a tunnel with one end at the other side.
    #[must_use]
    pub fn default_route(self) -> Self {
        self.route(Cidr::ANY_IPV4, None).route(Cidr::ANY_IPV6, None)
    }

    /// Accepts every address of `prefix` ([`Cidr::ANY_IPV4`] and [`Cidr::ANY_IPV6`] for all there are), at
    /// most 64 prefixes, which [`Stack::set_accepted`] changes later: TCP and UDP to them reach sockets here, which answer from there. For what
    /// others do by "any IP" or a promiscuous mode: tunnels' clients, networks of virtual machines,
    /// transparent proxies. A listener or UDP socket on an unspecified address takes them as well; what no
    /// socket has is for a [`TcpForwarder`](crate::TcpForwarder) and a
    /// [`UdpForwarder`](crate::UdpForwarder). Sockets may be bound to such an address,
    /// and connections opened from it. What the stack's other interfaces have themselves stays closed to this
    /// one's network, also where the prefix contains it: a listener on the address of one interface is
    /// reached by that interface alone. Never accepted are loopback, groups, broadcast, IPv6 link-local addresses
    /// and IPv6 addresses that stand for IPv4 ones (`::ffff:127.0.0.1`), so that a relay which dials what it is handed
    /// does not end in its own host.
    ///
    /// They do not become the stack's own addresses: what it sends to them itself leaves by its routes, it
    /// answers no pings to them ([`RawSocket::forward_echo`](crate::RawSocket::forward_echo) does), and it tells no neighbour on an Ethernet that it has them (no
    /// proxy ARP or NDP): hosts there name an address of the stack as their router. Answers leave by a route
    /// as everything does, so let one lead to the peers ([`Stack::add_route`]), where they are not on a
    /// network of the interface.
    #[must_use]
    pub fn accept_any(mut self, prefix: Cidr) -> Self {
        self.accepted.push(prefix);
        self
    }

    /// Limits the MSS of connections by this interface to `mss_max` bytes, both what is announced and
    /// what is sent: for networks that lose long packets and the reports of it as well. At least
    /// [`tcp::MSS_MIN`], 64 bytes.
    #[must_use]
    pub fn mss_clamp(mut self, mss_max: u16) -> Self {
        self.mss_max = Some(mss_max);
        self
    }

    /// Sends no packets longer than this by the interface, in bytes with the IP header, and tells peers of TCP so
    /// from the first connection on; the device may take longer ones. At least 576, with an IPv6 address 1,280.
    /// [`Stack::set_mtu`] changes it later.
    #[must_use]
    pub fn mtu(mut self, mtu_bytes: usize) -> Self {
        self.mtu_bytes = Some(mtu_bytes);
        self
    }

    /// How many datagrams, raw packets and messages of the stack's own may wait for the device, of all sockets
    /// together (the bound that SO_SNDBUF is elsewhere), in each squeue: 1 to 65,536; 256 where it is not
    /// set. Beyond it who sends waits or hears `WouldBlock`, and what the stack says by itself is dropped
    /// and counted (`drop_transmit_queue_full`). Segments of connections wait in their send buffers and not here.
    #[must_use]
    pub fn transmit_queue(mut self, packets_max: usize) -> Self {
        self.transmit_queue = Some(packets_max);
        self
    }

    /// How many frames the device hands up by one call, and how long the first of them may wait for
    /// others (seed 003, 5.2). The default grows with the backlog and holds nothing back.
    #[must_use]
    pub fn coalescing(mut self, coalescing: Coalescing) -> Self {
        self.coalescing = coalescing;
        self
    }

    /// The same of the device's queue `queue` alone, counted from zero; the others follow
    /// [`InterfaceConfig::coalescing`].
    #[must_use]
    pub fn queue_coalescing(mut self, queue: usize, coalescing: Coalescing) -> Self {
        self.queue_coalescing.insert(queue, coalescing);
        self
    }

    /// Selects how batches reach the device; what the device cannot do becomes
    /// [`TransmitMode::Multidata`]. Without it, or with `None`, that follows the device, and follows it to
    /// what takes its place: [`TransmitMode::Lso`] where it splits super-frames, else `Multidata`
    /// ([`Capabilities::mode_for`](device::Capabilities::mode_for)).
    #[must_use]
    pub fn mode(mut self, mode: impl Into<Option<TransmitMode>>) -> Self {
        self.mode = mode.into();
        self
    }
}

/// Collects what a stack is built from.
#[derive(Default)]
pub struct StackBuilder {
    config: StackConfig,
    pool: Option<BlockPool>,
    interfaces: Vec<(Vec<Box<dyn Queue>>, InterfaceConfig)>,
    squeues: Option<usize>,
    layout: Option<Layout>,
    policy: Policy,
    polling: Option<Polling>,
    is_pinned: bool,
    copy_observer: Option<Arc<dyn CopyObserver>>,
}

impl StackBuilder {
    /// Replaces all settings.
    #[must_use]
    pub fn config(mut self, config: StackConfig) -> Self {
        self.config = config;
        self
    }

    /// Uses this pool, perhaps one shared with other stacks, in place of an own one.
    #[must_use]
    pub fn pool(mut self, pool: BlockPool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Settings that new connections start with.
    #[must_use]
    pub fn tcp(mut self, config: tcp::Config) -> Self {
        self.config.tcp = config;
        self
    }

    /// How writes are copied in.
    #[must_use]
    pub fn copy_in(mut self, copy_in: CopyIn) -> Self {
        self.config.copy_in = copy_in;
        self
    }

    /// Has somebody see when writes are copied in.
    #[must_use]
    pub fn copy_observer(mut self, observer: Arc<dyn CopyObserver>) -> Self {
        self.copy_observer = Some(observer);
        self
    }

    /// Adds an interface. A lone application thread sleeps on the first one; each further one has
    /// a thread that sleeps on it.
    #[must_use]
    pub fn interface(self, queue: impl Queue + 'static, config: InterfaceConfig) -> Self {
        self.boxed_interface(Box::new(queue), config)
    }

    /// As [`StackBuilder::interface`], for a queue that is boxed already.
    #[must_use]
    pub fn boxed_interface(self, queue: Box<dyn Queue>, config: InterfaceConfig) -> Self {
        self.multiqueue_interface(vec![queue], config)
    }

    /// As [`StackBuilder::interface`], for a device that spreads its traffic over several queues: the
    /// squeues receive from one each. With fewer queues than squeues, the first squeues receive, and
    /// hand on what is for the others; all of them transmit.
    #[must_use]
    pub fn multiqueue_interface(
        mut self,
        queues: Vec<Box<dyn Queue>>,
        config: InterfaceConfig,
    ) -> Self {
        self.interfaces.push((queues, config));
        self
    }

    /// Spreads the work over this many squeues, at least one, which threads can be in at the same
    /// time; one for each core that the stack is to use is a good number. Each has all addresses and
    /// routes; a connection belongs to one of them for life, a UDP socket to that of its port. Bounds
    /// on sockets, backlogs and rates hold in each. The default is 1.
    ///
    /// Frames are classified in software and handed to the squeue they are for, by whichever queue of
    /// the device they came (`R1S4F1` for 4 squeues, in the words of [`StackBuilder::layout`]).
    #[must_use]
    pub fn squeues(mut self, count: usize) -> Self {
        (self.squeues, self.layout) = (Some(count), None);
        self
    }

    /// Spreads the work as [`Layout`] says: so many rings (queues of the device, which every interface
    /// must have then), soft rings, and with fan-out a squeue for each soft ring, without it a squeue
    /// for each ring, whose frames pass the soft rings, flow by flow, before they come to the one squeue
    /// (`R1S8F0`; it costs reading each frame once more, and gives a flow its share of a batch at most).
    /// Without fan-out a segment is not hashed: the squeue of the ring on which it came has its connection, or
    /// hands it on to the one that has (`segments_handed_on`). That pays where the device spreads flows as the
    /// stack does: a TAP, which brings a flow by the queue that we sent by last; packet sockets, whose frames the
    /// kernel divides by our hash; another stack at the other end of as many wires.
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> Self {
        (self.layout, self.squeues) = (Some(layout), None);
        self
    }

    /// By what connections are spread over squeues; by the hash of their addresses and ports, unless
    /// this says otherwise.
    #[must_use]
    pub fn spread_by(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// When whoever waits for frames, the worker or an application thread in a call, asks the devices again
    /// without sleeping (seed 004, III A): under a backlog waiting and being woken for each batch is waste.
    /// [`Polling::Always`] never sleeps on the first interface's device and takes a CPU for each squeue in which
    /// somebody waits, also when nothing comes; threads of further interfaces sleep on theirs all the same.
    ///
    /// Without this setting the workers of several squeues are adaptive, and nobody else polls.
    #[must_use]
    pub fn polling(mut self, polling: Polling) -> Self {
        self.polling = Some(polling);
        self
    }

    /// Keeps the threads of each squeue on a CPU of its own, as far as the process may use so many, the
    /// first squeue's on the first of them, and opens connections in the squeue of the CPU that the calling thread runs on.
    /// A system other than Linux refuses it when the stack is built.
    #[must_use]
    pub fn pin(mut self, on: bool) -> Self {
        self.is_pinned = on;
        self
    }

    /// How frames are spread over how many squeues.
    fn spread(&self) -> io::Result<Spread> {
        let layout = match (self.layout, self.squeues) {
            (Some(layout), _) => layout,
            (None, None | Some(1)) => return Ok(Spread::SINGLE),
            (None, Some(count)) => u16::try_from(count)
                .map_err(|_| invalid(format!("a stack cannot have {count} squeues")))
                .and_then(|count| match count {
                    0 => Err(invalid(String::from("a stack has one squeue at least"))),
                    _ => Layout::new(1, count, true).map_err(|error| invalid(error.to_string())),
                })?,
        };
        let spread = Spread::new(layout, self.policy, layout.homes_max());
        spread.map_err(|error| invalid(error.to_string()))
    }

    /// What can be said against the settings.
    fn check_settings(&self) -> io::Result<()> {
        let tcp = self.config.tcp.check();
        tcp.map_err(|wrong| invalid(format!("tcp::Config of the stack: {wrong}")))?;
        let pool = self.pool.as_ref().map_or(&self.config.pool, BlockPool::config).check();
        pool.map_err(|wrong| invalid(format!("PoolConfig of the stack: {wrong}")))
    }

    /// Starts the stack.
    ///
    /// # Errors
    /// There is no interface, an address is none of a host's, is there twice or one of more than 64, a gateway is on no network of its interface or the stack itself, an interface has
    /// two ways to one network or an MSS of less than 64 bytes, a device carries shorter packets than
    /// IP needs (576 bytes, 1,280 with an IPv6 address), an interface is to have an MTU or a transmit queue that it
    /// cannot have, has more
    /// queues than there are squeues, sets the coalescing of one that it has not, or accepts more than 64 prefixes, the
    /// settings of TCP or of the pool are such that nothing could work ([`tcp::Config::check`], [`PoolConfig::check`]), a
    /// device failed, or the system gave no random bytes or no thread, or did not keep one where it is to be ([`StackBuilder::pin`]).
    pub fn build(self) -> io::Result<Stack> {
        self.build_with(|_| Ok(())).map(|(stack, ())| stack)
    }

    /// As [`StackBuilder::build`], and does `prepare` before the stack hears anything: listeners and sockets
    /// that are bound there, however many, refuse nobody who came before them. It hears what comes from when
    /// `prepare` has returned, or waits for something.
    ///
    /// # Errors
    /// As [`StackBuilder::build`], or what `prepare` says.
    pub fn build_with<T>(
        self,
        prepare: impl FnOnce(&Stack) -> io::Result<T>,
    ) -> io::Result<(Stack, T)> {
        let spread = self.spread()?;
        let count = usize::from(spread.homes());
        let rings = self.layout.map(|layout| usize::from(layout.rings()));
        check_interfaces(&self.interfaces, count, rings)?;
        self.check_settings()?;
        let cpus = if self.is_pinned { affinity::allowed()? } else { vec![] };
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        let pool = self.pool.unwrap_or_else(|| BlockPool::new(self.config.pool.clone()));
        let mut ring_secret = [[0; 8]; 2];
        getrandom::fill(ring_secret.as_flattened_mut()).map_err(io::Error::other)?;
        let ring_secret = ring_secret.map(u64::from_le_bytes);
        let desks = HandOver::new(spread, self.interfaces.len(), ring_secret);
        let hand_over = desks.clone().filter(|it| it.has_several());
        let mut shards: Vec<(Shard, Vec<Port>)> = Vec::with_capacity(count);
        for index in 0..count {
            // The secret is the same for all: a SYN cookie or a fast open cookie of one is good in another.
            let mut shard = self.config.shard(pool.clone(), secret);
            if let Some(hand_over) = &hand_over {
                shard.set_share(hand_over.share(index));
            }
            shards.push((shard, Vec::with_capacity(self.interfaces.len())));
        }
        for (mut queues, mut config) in self.interfaces {
            ask_devices(&mut queues, &mut config)?;
            let places = shared_queue::distribute(queues, count);
            for (queue, ((shard, ports), place)) in shards.iter_mut().zip(places).enumerate() {
                // The clock starts at zero, when the stack does.
                ports.push(add_port(shard, Instant::ZERO, place, queue, config.clone())?);
            }
        }
        let clock = Clock::start();
        let event_watch = Arc::<EventWatch>::default();
        let squeues = shards.into_iter().enumerate().map(|(index, (shard, ports))| {
            let desk = desks.as_ref().map(|it| it.desk(index));
            let mut core = Core::new(shard, ports, pool.clone(), desk);
            core.devices.set_hears(false);
            core.waiting.event_watch = Arc::clone(&event_watch);
            if let Some(polling) = self.polling {
                core.set_polling(polling);
            }
            Arc::new(Squeue::new(core, clock, hand_over.clone().map(|it| (index, it))))
        });
        let squeues = Squeues::new(squeues.collect(), hand_over.clone(), cpus);
        let copy_in = self.config.copy_in;
        let copy_observer = self.copy_observer;
        let events = InterfaceEvents::default();
        let threads = Mutex::default();
        let runtime =
            Runtime { squeues, threads, rings, pool, copy_in, copy_observer, events, event_watch };
        let stack = Stack { runtime: Arc::new(runtime) };
        let prepared = prepare(&stack);
        for squeue in stack.squeues().iter() {
            squeue.look(|core| core.devices.set_hears(true));
        }
        let prepared = prepared?;
        // Who adds an interface meanwhile has it watched by these, or by one of its own; it may be one whom a look into
        // the squeues wakes.
        let within = stack.runtime.squeues.at(0).within();
        let mut threads = locked(&stack.runtime.threads);
        *threads = Some(Threads::start(&stack.runtime.squeues)?);
        drop(threads);
        drop(within);
        Ok((stack, prepared))
    }
}

/// Brings the devices to the mode that the interface begins with, asks them what is waited for, and has the system say
/// what is random: all that can fail of itself, before any shard has the interface.
pub(super) fn ask_devices(
    queues: &mut [Box<dyn Queue>],
    config: &mut InterfaceConfig,
) -> io::Result<()> {
    for queue in queues {
        let mode = queue.capabilities().mode_for(config.mode);
        queue.set_mode(mode).map_err(io::Error::from)?;
        drop(queue.waiter());
    }
    if let Some(key @ None) = &mut config.slaac {
        let mut random = IdentifierKey([0; 16]);
        getrandom::fill(&mut random.0).map_err(io::Error::other)?;
        *key = Some(random);
    }
    Ok(())
}

/// Adds an interface whose devices were asked ([`ask_devices`]) to a shard, which receives from the device's queue `queue` if from any.
pub(super) fn add_port(
    shard: &mut Shard,
    now: Instant,
    place: shared_queue::Place,
    queue: usize,
    config: InterfaceConfig,
) -> io::Result<Port> {
    let capabilities = place.queue.capabilities();
    let mode = capabilities.mode_for(config.mode);
    let wanted = config.mode;
    let (accepted, routes) = (config.accepted.clone(), config.routes.clone());
    let coalescing = config.queue_coalescing.get(&queue).copied().unwrap_or(config.coalescing);
    let InterfaceConfig { mss_max, mtu_bytes, transmit_queue, .. } = config;
    let InterfaceConfig { addresses, gateways, mut addressing, slaac, .. } = config;
    addressing.routers = slaac.flatten().map(RouterConfig::new);
    let config = stack::InterfaceConfig { capabilities, mode: wanted, addresses, gateways };
    let id = shard.add_interface(config).map_err(socket_error)?;
    shard.set_mss_clamp(id, mss_max);
    if let Some(mtu_bytes) = mtu_bytes {
        shard.set_mtu(now, id, mtu_bytes);
    }
    if let Some(packets_max) = transmit_queue {
        shard.set_transmit_queue(id, packets_max);
    }
    shard.set_accepted(id, &accepted).map_err(socket_error)?;
    for (destination, gateway) in routes {
        // Connections that are there are rerouted once, when all is in place (`Squeue::add`).
        shard.insert_route(destination, gateway, id).map_err(socket_error)?;
    }
    shard.start_addressing(now, id, addressing);
    let mut port = Port::new(id, place, coalescing);
    port.mode = mode;
    // The device may be one that the stack only hands single packets.
    port.follow_mode(shard);
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_sockets_may_be_dropped_at_once() {
        let orphans = |sockets_max, orphans_max| {
            StackConfig { sockets_max, orphans_max, ..StackConfig::default() }.orphans_max()
        };
        assert_eq!(StackConfig::default().orphans_max(), 16_384);
        assert_eq!(orphans(1_000, None), 16_384);
        assert_eq!(orphans(1_000_000, None), 250_000);
        assert_eq!(orphans(1_000_000, Some(9)), 9);
    }
}
