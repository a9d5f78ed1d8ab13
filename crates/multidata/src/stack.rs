//! The stack as its user sees it: how it is built, what it tells of itself, how it ends.

use crate::copy_in::CopyIn;
use crate::counters::Counters;
use crate::error::socket_error;
use crate::runtime::Clock;
use crate::runtime::intake::Intake;
use crate::runtime::squeue::{Core, LINK_HEADER_LEN_MAX, Port, Squeue};
use crate::runtime::turn::{After, Call};
use crate::runtime::waiting::Interest;
use crate::runtime::worker::Threads;
use batch::{BlockPool, PoolConfig};
use core::net::IpAddr;
use core::time::Duration;
use device::{Capabilities, DeviceCounters, DeviceError, Queue, TransmitMode};
use dhcp::ClientConfig;
use ip::Cidr;
use ip::router::{IdentifierKey, RouterConfig};
use stack::InterfaceId;
use stack::{
    AddressEvent, AddressOrigin, AddressState, AddressStatus, AddressingConfig, ClaimPolicy,
    InterfaceEvent, MultidataProtocols, PacketFilter, Shard, ShardConfig, SocketError,
    TransmitStatus,
};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use steering::{BatchSizes, Coalescing};
use time::Instant;

/// How long the connections of a stack whose last handle was dropped may take to deliver what they
/// hold. The thread that drops the last handle waits for it; [`Stack::shutdown`] takes another time.
pub const LINGER_ON_DROP: Duration = Duration::from_secs(1);

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
    /// Connections that may finish their business after their last handle was dropped; those beyond
    /// are reset.
    pub orphans_max: usize,
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
            time_wait_max: 65_536,
            orphans_max: 16_384,
            receive_trains: true,
        }
    }
}

/// The addresses and routes of an interface, and how batches reach its device.
#[derive(Clone, Debug, Default)]
pub struct InterfaceConfig {
    addresses: Vec<Cidr>,
    gateways: Vec<IpAddr>,
    mode: TransmitMode,
    addressing: AddressingConfig,
    slaac: Option<Option<IdentifierKey>>,
    mss_max: Option<u16>,
    coalescing: Coalescing,
}

impl InterfaceConfig {
    /// An interface with one address; the network it is on is reached directly.
    #[must_use]
    pub fn new(address: Cidr) -> Self {
        Self { addresses: vec![address], ..Self::default() }
    }

    /// An interface without fixed addresses: IPv4 from a DHCP server, IPv6 from routers.
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

    /// Adds an address, for example one of the other IP version.
    #[must_use]
    pub fn address(mut self, address: Cidr) -> Self {
        self.addresses.push(address);
        self
    }

    /// Names the router to everywhere else; at most one of each IP version, on one of the networks
    /// of the interface.
    #[must_use]
    pub fn gateway(mut self, gateway: IpAddr) -> Self {
        self.gateways.push(gateway);
        self
    }

    /// Limits the MSS of connections by this interface to `mss_max` bytes, both what is announced and
    /// what is sent: for networks that lose long packets and the reports of it as well. Peers get no
    /// segments shorter than [`tcp::MSS_MIN`] all the same.
    #[must_use]
    pub fn mss_clamp(mut self, mss_max: u16) -> Self {
        self.mss_max = Some(mss_max);
        self
    }

    /// How many frames the device hands up by one call, and how long the first of them may wait for
    /// others (seed 003, 5.2). The default grows with the backlog and holds nothing back.
    #[must_use]
    pub fn coalescing(mut self, coalescing: Coalescing) -> Self {
        self.coalescing = coalescing;
        self
    }

    /// Selects how batches reach the device; what the device cannot do becomes
    /// [`TransmitMode::Multidata`].
    #[must_use]
    pub fn mode(mut self, mode: TransmitMode) -> Self {
        self.mode = mode;
        self
    }
}

/// Collects what a stack is built from.
#[derive(Default)]
pub struct StackBuilder {
    config: StackConfig,
    pool: Option<BlockPool>,
    interfaces: Vec<(Box<dyn Queue>, InterfaceConfig)>,
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

    /// Adds an interface. A lone application thread sleeps on the first one; each further one has
    /// a thread that sleeps on it.
    #[must_use]
    pub fn interface(mut self, queue: impl Queue + 'static, config: InterfaceConfig) -> Self {
        self.interfaces.push((Box::new(queue), config));
        self
    }

    /// As [`StackBuilder::interface`], for a queue that is boxed already.
    #[must_use]
    pub fn boxed_interface(mut self, queue: Box<dyn Queue>, config: InterfaceConfig) -> Self {
        self.interfaces.push((queue, config));
        self
    }

    /// Starts the stack.
    ///
    /// # Errors
    /// There is no interface, a gateway is on no network of its interface, a device failed, or the
    /// system gave no random bytes or no thread.
    pub fn build(self) -> io::Result<Stack> {
        if self.interfaces.is_empty() {
            let message = "a stack needs an interface: add one with StackBuilder::interface";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        let pool = self.pool.unwrap_or_else(|| BlockPool::new(self.config.pool.clone()));
        let (send_buffer_bytes, nodelay) = (
            self.config.tcp.send_buffer_bytes_initial.min(self.config.tcp.send_buffer_bytes),
            self.config.tcp.nodelay,
        );
        let mut shard = Shard::new(ShardConfig {
            tcp: self.config.tcp,
            pool: pool.clone(),
            secret,
            sockets_max: self.config.sockets_max,
        });
        shard.set_time_wait_max(self.config.time_wait_max);
        shard.set_orphans_max(self.config.orphans_max);
        shard.set_receive_trains(self.config.receive_trains);
        let mut ports = Vec::with_capacity(self.interfaces.len());
        for (queue, config) in self.interfaces {
            ports.push(add_port(&mut shard, queue, config)?);
        }
        let squeue = Arc::new(Squeue::new(Core::new(shard, ports, pool), Clock::start()));
        let threads = Threads::start(&squeue)?;
        let copy_in = self.config.copy_in;
        let threads = Mutex::new(Some(threads));
        let runtime = Runtime { squeue, threads, copy_in, send_buffer_bytes, nodelay };
        Ok(Stack { runtime: Arc::new(runtime) })
    }
}

fn add_port(
    shard: &mut Shard,
    mut queue: Box<dyn Queue>,
    config: InterfaceConfig,
) -> io::Result<Port> {
    let capabilities = queue.capabilities();
    let mode =
        if capabilities.supports(config.mode) { config.mode } else { TransmitMode::Multidata };
    queue.set_mode(mode).map_err(io::Error::other)?;
    let wanted = config.mode;
    let frame_len_max = capabilities.mtu_bytes + LINK_HEADER_LEN_MAX;
    let InterfaceConfig { addresses, gateways, mut addressing, slaac, mss_max, coalescing, .. } =
        config;
    if let Some(key) = slaac {
        let mut random = IdentifierKey([0; 16]);
        getrandom::fill(&mut random.0).map_err(io::Error::other)?;
        addressing.routers = Some(RouterConfig::new(key.unwrap_or(random)));
    }
    let config = stack::InterfaceConfig { capabilities, mode: wanted, addresses, gateways };
    let id = shard.add_interface(config).map_err(socket_error)?;
    shard.set_mss_clamp(id, mss_max);
    // The clock starts at zero, when the stack does.
    shard.start_addressing(Instant::ZERO, id, addressing);
    let intake = Intake::new(coalescing);
    let mut port = Port { id, queue, intake, mode, frame_len_max, failed: None };
    // The device may be one that the stack only hands single packets.
    port.follow_mode(shard);
    Ok(port)
}

fn usable(all: &[AddressStatus]) -> Vec<Cidr> {
    let usable = all.iter().filter(|status| status.state != AddressState::Tentative);
    usable.map(|status| status.cidr).collect()
}

/// What the handles of a stack and its sockets share; the last of them ends it.
struct Runtime {
    squeue: Arc<Squeue>,
    threads: Mutex<Option<Threads>>,
    copy_in: CopyIn,
    send_buffer_bytes: usize,
    nodelay: bool,
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.squeue.stop(LINGER_ON_DROP);
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(threads) = threads {
            threads.join();
        }
    }
}

/// An interface as it stands.
#[derive(Clone, Debug)]
pub struct InterfaceStatus {
    /// Its addresses with the length of their networks, those that can be used.
    pub addresses: Vec<Cidr>,
    /// All its addresses, where they come from, and what they can be used for.
    pub address_status: Vec<AddressStatus>,
    /// DNS servers that DHCP and routers told of.
    pub name_servers: Vec<IpAddr>,
    /// What its device can do now.
    pub capabilities: Capabilities,
    /// How batches reach the device now.
    pub mode: TransmitMode,
    /// What stack and device agreed on for the way out. Reads as a line.
    pub transmit: TransmitStatus,
    /// What its device queue did so far.
    pub counters: DeviceCounters,
    /// How the frames that it receives are put together.
    pub coalescing: Coalescing,
    /// How many batches of which size came up from its device.
    pub batches: BatchSizes,
    /// Why its device failed, where it did.
    pub failed: Option<DeviceError>,
    /// What is wrong with its device at present and may pass, as an interface that is down:
    /// connections stand still until then.
    pub trouble: Option<DeviceError>,
}

/// A TCP/IP stack over one or several device queues. Clones are handles of the same stack; sockets
/// hold one each.
///
/// When the last handle and the last socket are gone, connections that still hold data or an
/// unacknowledged FIN get [`LINGER_ON_DROP`] to deliver it while the dropping thread waits; then
/// the stack's threads end and its devices are closed.
#[derive(Clone)]
pub struct Stack {
    runtime: Arc<Runtime>,
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Stack").finish_non_exhaustive()
    }
}

impl Stack {
    /// Starts to build a stack.
    #[must_use]
    pub fn builder() -> StackBuilder {
        StackBuilder::default()
    }

    /// Its interfaces, in the order in which they were added.
    #[must_use]
    pub fn interfaces(&self) -> Vec<InterfaceStatus> {
        let status = |shard: &Shard, port: &Port| {
            Some(InterfaceStatus {
                transmit: shard.transmit_status(port.id)?,
                addresses: usable(&shard.addresses(port.id)),
                address_status: shard.addresses(port.id),
                name_servers: shard.name_servers(port.id),
                capabilities: port.queue.capabilities(),
                mode: port.mode,
                counters: port.queue.counters(),
                coalescing: port.intake.coalescing(),
                batches: port.intake.sizes(),
                failed: port.failed.clone(),
                trouble: port.queue.trouble(),
            })
        };
        self.squeue()
            .look(|core| core.ports.iter().filter_map(|port| status(&core.shard, port)).collect())
    }

    /// Changes how the frames that interface `index` receives are put together.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn set_coalescing(&self, index: usize, coalescing: Coalescing) -> io::Result<()> {
        let outcome = self.squeue().once(|core, _| {
            let port = core.ports.get_mut(index).ok_or(SocketError::InvalidArgument)?;
            port.intake.set_coalescing(coalescing);
            Ok(())
        });
        outcome.map_err(socket_error)
    }

    /// Adds an address to interface `index`, with a route to its network.
    ///
    /// # Errors
    /// There is no such interface, no host can have the address, or the interface has it already.
    pub fn add_address(&self, index: usize, address: Cidr) -> io::Result<()> {
        self.with_interface(index, |shard, now, id| shard.add_address(now, id, address))
    }

    /// Takes an address from interface `index`. Connections from it fail with an error that says
    /// so; a leased address is given back.
    ///
    /// # Errors
    /// There is no such interface, or it does not have the address.
    pub fn remove_address(&self, index: usize, address: IpAddr) -> io::Result<()> {
        self.with_interface(index, |shard, now, id| shard.remove_address(now, id, address))
    }

    fn with_interface(
        &self,
        index: usize,
        call: impl FnOnce(&mut Shard, Instant, InterfaceId) -> Result<(), SocketError>,
    ) -> io::Result<()> {
        let outcome = self.squeue().once(|core, now| {
            let id = core.ports.get(index).map(|port| port.id);
            call(&mut core.shard, now, id.ok_or(SocketError::InvalidArgument)?)
        });
        outcome.map_err(socket_error)
    }

    /// Waits until interface `index` has an address that is good beyond the link, of IPv4 or of
    /// IPv6 as `is_wanted` says, and returns it.
    ///
    /// # Errors
    /// `TimedOut` where none came in time; `NetworkDown` where the device failed.
    pub fn wait_for_address(
        &self,
        index: usize,
        is_wanted: impl Fn(IpAddr) -> bool,
        timeout: Duration,
    ) -> io::Result<Cidr> {
        let call = Call {
            socket: None,
            interest: Interest::Readable,
            after: After::Leave,
            blocks: true,
            timeout: Some(timeout),
            expired: io::ErrorKind::TimedOut,
        };
        self.squeue().operate(&call, |core, now| {
            core.run(now);
            let id =
                core.ports.get(index).map(|port| port.id).ok_or(SocketError::InvalidArgument)?;
            let all = core.shard.addresses(id);
            let mut good = all.iter().filter(|status| {
                status.state != AddressState::Tentative
                    && status.origin != AddressOrigin::LinkLocal
                    && is_wanted(status.cidr.address())
            });
            good.next().map(|status| status.cidr).ok_or(SocketError::WouldBlock)
        })
    }

    /// The next thing that happened to an address of the stack, if any: assigned, removed, found to
    /// be somebody else's. At most 64 wait to be asked for; then the oldest is forgotten.
    #[must_use]
    pub fn poll_address_event(&self) -> Option<AddressEvent> {
        self.squeue().look(|core| core.shard.poll_address_event())
    }

    /// Selects how batches reach the device of interface `index` from now on.
    ///
    /// # Errors
    /// There is no such interface, or its device cannot do it; the old mode stays.
    pub fn set_transmit_mode(&self, index: usize, mode: TransmitMode) -> io::Result<()> {
        self.squeue().look(|core| {
            let Core { shard, ports, .. } = core;
            let invalid = |message| io::Error::new(io::ErrorKind::InvalidInput, message);
            let port = ports.get_mut(index).ok_or_else(|| invalid("there is no such interface"))?;
            if !port.queue.capabilities().supports(mode) {
                return Err(invalid("the interface's device cannot split super-frames"));
            }
            port.queue.set_mode(mode).map_err(io::Error::other)?;
            port.mode = mode;
            shard.set_mode(port.id, mode);
            port.follow_mode(shard);
            Ok(())
        })
    }

    /// Lets packets leave in batches, or one by one: by interface `index`, or where that is `None`
    /// by any (seed 000's `ip_multidata_outbound`; both must be on). On from the start; what is
    /// chosen holds from the next batch on, and [`InterfaceStatus::transmit`] shows it.
    ///
    /// # Errors
    /// There is no such interface, or its device failed at it.
    pub fn set_multidata_outbound(&self, index: Option<usize>, on: bool) -> io::Result<()> {
        self.squeue().look(|core| {
            let Core { shard, ports, .. } = core;
            let id = match index.map(|index| ports.get(index)) {
                Some(None) => return Err(socket_error(SocketError::InvalidArgument)),
                Some(Some(port)) => Some(port.id),
                None => None,
            };
            shard.set_multidata_outbound(id, on);
            ports.iter_mut().for_each(|port| port.follow_mode(shard));
            Ok(())
        })
    }

    /// Chooses which protocols leave interface `index` in batches with others.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn set_multidata_protocols(
        &self,
        index: usize,
        protocols: MultidataProtocols,
    ) -> io::Result<()> {
        self.with_interface(index, |shard, _, id| {
            shard.set_multidata_protocols(id, protocols);
            Ok(())
        })
    }

    /// Puts a packet filter on the ways out and in of all interfaces, loopback included, in place of
    /// any other; `None` takes it away. It is called with the stack's lock held and must not wait.
    pub fn set_filter(&self, filter: Option<Box<dyn PacketFilter>>) {
        self.squeue().look(|core| core.shard.set_filter(filter));
    }

    /// Adds a route to the network `destination` by interface `index`, by way of `gateway` or
    /// directly. Connections that it concerns follow at once.
    ///
    /// # Errors
    /// There is no such interface, or the families differ.
    pub fn add_route(
        &self,
        destination: Cidr,
        gateway: Option<IpAddr>,
        index: usize,
    ) -> io::Result<()> {
        self.with_interface(index, |shard, now, id| shard.add_route(now, destination, gateway, id))
    }

    /// Removes the route to the network `destination` by interface `index`. Connections that it
    /// concerns follow at once; those for which no route is left stay where they were.
    ///
    /// # Errors
    /// There is no such route.
    pub fn remove_route(&self, destination: Cidr, index: usize) -> io::Result<()> {
        self.with_interface(index, |shard, now, id| shard.remove_route(now, destination, id))
    }

    /// Removes interface `index`: its addresses, its routes, and the use of its device. The indices of
    /// the others stay. Connections by it move to another interface where a route leads there and
    /// their own address is that one's, too; all others fail with an error that says so.
    ///
    /// # Errors
    /// There is no such interface, or it was removed before.
    pub fn remove_interface(&self, index: usize) -> io::Result<()> {
        let removed = self.squeue().once(|core, now| {
            let port = core.ports.get_mut(index).ok_or(SocketError::InvalidArgument)?;
            core.shard.remove_interface(now, port.id)?;
            let message = "the interface was removed; add another to a new stack".to_owned();
            port.failed.get_or_insert(DeviceError { message });
            Ok(())
        });
        removed.map_err(socket_error)
    }

    /// The next thing that happened to an interface, if any: negotiated anew, its device failed or
    /// takes less, removed. Each reads as a sentence. At most 64 wait to be asked for; then the oldest
    /// is forgotten.
    #[must_use]
    pub fn poll_interface_event(&self) -> Option<InterfaceEvent> {
        self.squeue().look(|core| core.shard.poll_interface_event())
    }

    /// Sends no packets longer than this by interface `index` from now on; its device may take
    /// longer ones. Connections cut what is outstanding and too long anew, at once.
    ///
    /// # Errors
    /// `InvalidInput` where there is no such interface, its device does not take as much, or it is
    /// less than the 576 bytes that hosts rely on (RFC 791; IPv6 needs 1,280, RFC 8200, 5).
    pub fn set_mtu(&self, index: usize, mtu_bytes: usize) -> io::Result<()> {
        let invalid = |message| io::Error::new(io::ErrorKind::InvalidInput, message);
        let set = |core: &mut Core, now| {
            let Core { shard, ports, .. } = core;
            let port = ports.get(index).ok_or(SocketError::InvalidArgument)?;
            let is_in_range = (576..=port.queue.capabilities().mtu_bytes).contains(&mtu_bytes);
            if !is_in_range {
                return Err(SocketError::InvalidArgument);
            }
            shard.set_mtu(now, port.id, mtu_bytes);
            Ok(())
        };
        self.squeue().once(set).map_err(|_| invalid("the interface does not take this MTU"))
    }

    /// Limits packets by the route to the network `destination`, which is one of the interfaces' or
    /// [`Cidr::ANY_IPV4`] or [`Cidr::ANY_IPV6`] for what gateways are for; `None` is again what the
    /// interface takes. Connections follow with the next batch they send.
    ///
    /// # Errors
    /// `NetworkUnreachable` where there is no such route; `InvalidInput` for less than the 576 bytes
    /// that hosts rely on (RFC 791), or the 1,280 of IPv6 (RFC 8200, 5).
    pub fn set_route_mtu(&self, destination: Cidr, mtu_bytes: Option<usize>) -> io::Result<()> {
        let least = if destination.address().is_ipv4() { 576 } else { 1_280 };
        if mtu_bytes.is_some_and(|mtu_bytes| mtu_bytes < least) {
            let message = "hosts rely on longer packets than that";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let outcome = self.squeue().look(|core| core.shard.set_route_mtu(destination, mtu_bytes));
        outcome.map_err(socket_error)
    }

    /// The longest packet in bytes that is believed to reach `destination`, its IP header included:
    /// interface, route and reports of narrow places together (IP_MTU).
    ///
    /// # Errors
    /// `NetworkUnreachable` where no route leads there.
    pub fn path_mtu(&self, destination: IpAddr) -> io::Result<usize> {
        self.squeue().look(|core| core.shard.path_mtu(destination)).map_err(socket_error)
    }

    /// Everything that was counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.squeue().look(|core| {
            let (mut device, mut receive) = (DeviceCounters::default(), BatchSizes::default());
            for port in &core.ports {
                device.merge(&port.queue.counters());
                receive.merge(&port.intake.sizes());
            }
            Counters {
                stack: core.shard.counters(),
                device,
                receive,
                pool: self.squeue().pool.counters(),
                runtime: core.counters,
            }
        })
    }

    /// The pool that all packet memory comes from.
    #[must_use]
    pub fn pool(&self) -> &BlockPool {
        &self.squeue().pool
    }

    /// Waits until all connections that the application has closed have delivered their data and
    /// their FIN, and lets go of this handle. Sockets that are still open are not touched: they
    /// keep the stack alive.
    ///
    /// # Errors
    /// `TimedOut` where something was left to deliver after `timeout`; `NetworkDown` where the
    /// device failed.
    pub fn shutdown(self, timeout: Duration) -> io::Result<()> {
        let call = Call {
            socket: None,
            interest: Interest::Writable,
            after: After::Leave,
            blocks: true,
            timeout: Some(timeout),
            expired: io::ErrorKind::TimedOut,
        };
        let flushed = self.squeue().operate(&call, |core, now| {
            core.run(now);
            if core.is_flushed() { Ok(()) } else { Err(SocketError::WouldBlock) }
        });
        flushed.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => {
                let count = self.squeue().look(|core| core.undelivered_count());
                let message = format!("{count} closed connections had something left to deliver");
                io::Error::new(io::ErrorKind::TimedOut, message)
            }
            _ => error,
        })
    }

    pub(crate) fn squeue(&self) -> &Squeue {
        &self.runtime.squeue
    }

    pub(crate) fn tunables(&self) -> CopyIn {
        self.runtime.copy_in
    }

    /// What new connections' send buffers hold.
    pub(crate) fn send_buffer_bytes(&self) -> usize {
        self.runtime.send_buffer_bytes
    }

    /// Whether new connections send small segments at once.
    pub(crate) fn starts_with_nodelay(&self) -> bool {
        self.runtime.nodelay
    }
}
