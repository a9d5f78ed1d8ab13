//! The stack as its user sees it: how it is built, what it tells of itself, how it ends.

use crate::copy_in::CopyIn;
use crate::counters::Counters;
use crate::error::socket_error;
use crate::runtime::Clock;
use crate::runtime::squeue::{Core, LINK_HEADER_LEN_MAX, Port, Squeue};
use crate::runtime::turn::{After, Call};
use crate::runtime::waiting::Interest;
use crate::runtime::worker::Threads;
use batch::{BlockPool, PoolConfig};
use core::net::IpAddr;
use core::time::Duration;
use device::{Capabilities, DeviceCounters, DeviceError, Queue, TransmitMode};
use ip::Cidr;
use stack::{Shard, ShardConfig, SocketError};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

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
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            pool: PoolConfig::default(),
            tcp: tcp::Config::default(),
            copy_in: CopyIn::default(),
            sockets_max: 65_536,
        }
    }
}

/// The addresses and routes of an interface, and how batches reach its device.
#[derive(Clone, Debug, Default)]
pub struct InterfaceConfig {
    addresses: Vec<Cidr>,
    gateways: Vec<IpAddr>,
    mode: TransmitMode,
}

impl InterfaceConfig {
    /// An interface with one address; the network it is on is reached directly.
    #[must_use]
    pub fn new(address: Cidr) -> Self {
        Self { addresses: vec![address], ..Self::default() }
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
        let (send_buffer_bytes, nodelay) =
            (self.config.tcp.send_buffer_bytes, self.config.tcp.nodelay);
        let mut shard = Shard::new(ShardConfig {
            tcp: self.config.tcp,
            pool: pool.clone(),
            secret,
            sockets_max: self.config.sockets_max,
        });
        let mut ports = Vec::with_capacity(self.interfaces.len());
        let mut addresses = Vec::with_capacity(self.interfaces.len());
        for (queue, config) in self.interfaces {
            addresses.push(config.addresses.clone());
            ports.push(add_port(&mut shard, queue, config)?);
        }
        let squeue = Arc::new(Squeue::new(Core::new(shard, ports, pool), Clock::start()));
        let threads = Threads::start(&squeue)?;
        let copy_in = self.config.copy_in;
        let threads = Mutex::new(Some(threads));
        let runtime = Runtime { squeue, threads, copy_in, send_buffer_bytes, nodelay, addresses };
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
    let frame_len_max = capabilities.mtu_bytes + LINK_HEADER_LEN_MAX;
    let InterfaceConfig { addresses, gateways, .. } = config;
    let config = stack::InterfaceConfig { capabilities, mode, addresses, gateways };
    let id = shard.add_interface(config).map_err(socket_error)?;
    Ok(Port { id, queue, mode, frame_len_max, failed: None })
}

/// What the handles of a stack and its sockets share; the last of them ends it.
struct Runtime {
    squeue: Arc<Squeue>,
    threads: Mutex<Option<Threads>>,
    copy_in: CopyIn,
    send_buffer_bytes: usize,
    nodelay: bool,
    addresses: Vec<Vec<Cidr>>,
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
    /// Its addresses with the length of their networks.
    pub addresses: Vec<Cidr>,
    /// What its device can do now.
    pub capabilities: Capabilities,
    /// How batches reach the device now.
    pub mode: TransmitMode,
    /// What its device queue did so far.
    pub counters: DeviceCounters,
    /// Why its device failed, where it did.
    pub failed: Option<DeviceError>,
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
        formatter.debug_struct("Stack").field("addresses", &self.runtime.addresses).finish()
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
        let status = |(port, addresses): (&Port, &Vec<Cidr>)| InterfaceStatus {
            addresses: addresses.clone(),
            capabilities: port.queue.capabilities(),
            mode: port.mode,
            counters: port.queue.counters(),
            failed: port.failed.clone(),
        };
        let look =
            |core: &mut Core| core.ports.iter().zip(&self.runtime.addresses).map(status).collect();
        self.squeue().look(look)
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
            port.mode = shard.set_mode(port.id, mode);
            Ok(())
        })
    }

    /// Everything that was counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.squeue().look(|core| {
            let mut device = DeviceCounters::default();
            core.ports.iter().for_each(|port| device.merge(&port.queue.counters()));
            Counters {
                stack: core.shard.counters(),
                device,
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
