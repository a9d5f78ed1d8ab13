//! The machines of a network: how they call, what they are told of it, and by which way each is reached.

use super::{BUFFER_BYTES, DOMAIN, Policy, REST, relay};
use linux::{StreamConfig, StreamDevice};
use multidata::device::HardwareAddress;
use multidata::dhcp::{Answer, CLIENT_PORT, Server, ServerConfig};
use multidata::ip::{NameServers, PrefixInformation, RouterAdvertisement};
use multidata::{Stack, time};
use multidata_tokio::UdpSocket;
use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{UnixListener, UnixStream};

/// Who is who in the network of a machine, as slirp has it.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
pub(crate) const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
pub(crate) const LEASED: RangeInclusive<Ipv4Addr> =
    Ipv4Addr::new(10, 0, 2, 15)..=Ipv4Addr::new(10, 0, 2, 254);
pub(crate) const PREFIX_LEN: u8 = 24;

/// As slirp has it, too. It is the same one each time: a machine remembers it for longer than a forwarder may run, and some
/// systems know by it which network they are in.
const GATEWAY_HARDWARE: HardwareAddress = HardwareAddress([0x52, 0x55, 10, 0, 2, 2]);

/// The same by IPv6. The number of the network was drawn once (RFC 4193, 3.2.1), and means nothing beyond the forwarder, as
/// that of the other one. The router has a fixed address: a machine remembers it for longer than a forwarder may run.
pub(crate) const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
pub(crate) const PREFIX_V6: Ipv6Addr = Ipv6Addr::new(0xfd56, 0xe3ef, 0x03c6, 0, 0, 0, 0, 0);
pub(crate) const NAME_SERVER_V6: Ipv6Addr = Ipv6Addr::new(0xfd56, 0xe3ef, 0x03c6, 0, 0, 0, 0, 3);
pub(crate) const PREFIX_LEN_V6: u8 = 64;

/// How long what the router says holds (RFC 4861, 6.2.1: their defaults).
const ROUTER_S: u16 = 1_800;
const PREFERRED_S: u32 = 7 * 86_400;
const VALID_S: u32 = 30 * 86_400;

/// Somebody whom everybody can reach who has a way out by IPv6: a server of the root of names. Nothing is sent there.
pub(crate) const ABROAD: Ipv6Addr = Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30);

/// How often it is looked whether this host has a way out by IPv6.
pub(crate) const LOOK: Duration = Duration::from_secs(10);

/// How long an address is a machine's that is still there and does not ask for it again.
const LEASE_S: u32 = 3_600;

/// Addresses that one machine may have: firmware, system and what runs in that may each ask for one.
const LEASED_TO_ONE_MAX: usize = 16;

/// Relays for the virtual machines that call at a Unix socket.
pub(crate) async fn serve_machines(
    path: &str,
    machines: Arc<Machines>,
    policy: Policy,
) -> Result<(), Box<dyn Error>> {
    // An earlier run may have left its own; whatever else is there stays, and the name is taken.
    if std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path).map_err(|error| format!("{path}: {error}"))?;
    loop {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                println!("{path}: {error}");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        let machines = Arc::clone(&machines);
        tokio::spawn(async move {
            if let Err(gone) = serve_machine(socket, machines, policy).await {
                println!("{gone}");
            }
        });
    }
}

/// Relays for one, until it goes.
async fn serve_machine(
    socket: UnixStream,
    machines: Arc<Machines>,
    policy: Policy,
) -> Result<(), Box<dyn Error>> {
    let config =
        StreamConfig { hardware_address: Some(GATEWAY_HARDWARE), ..StreamConfig::default() };
    let mut device = StreamDevice::over(socket.into_std()?, &config)?;
    println!("{}", device.negotiated());
    relay(device.queue(0)?, machines, policy).await
}

/// What is known of all machines.
pub(crate) struct Machines {
    /// The addresses that they have by DHCP.
    server: Mutex<Server>,
    began: Instant,
    links: AtomicU64,
    /// The stack at this end of each link.
    stacks: Mutex<HashMap<u64, Stack>>,
}

impl Machines {
    pub(crate) fn new(leased: RangeInclusive<Ipv4Addr>) -> Self {
        let server = Server::new(ServerConfig {
            address: GATEWAY,
            prefix_len: PREFIX_LEN,
            leased,
            leased_per_link_max: LEASED_TO_ONE_MAX,
            lease_s: LEASE_S,
            routers: vec![GATEWAY],
            name_servers: vec![NAME_SERVER],
            mtu_bytes: u16::try_from(StreamConfig::default().mtu_bytes).ok(),
        });
        Self {
            server: Mutex::new(server),
            began: Instant::now(),
            links: AtomicU64::new(0),
            stacks: Mutex::default(),
        }
    }

    /// The stacks at this end of the links by which somebody may have this address: the machine that it was leased to, or else
    /// any, as each is in a network of its own.
    pub(crate) fn stacks_towards(&self, address: IpAddr) -> Vec<Stack> {
        let leased = match address {
            IpAddr::V4(address) => self.with(|server, now| server.link_of(now, address)),
            IpAddr::V6(_) => None,
        };
        let stacks = self.lock_stacks();
        match leased.and_then(|number| stacks.get(&number)) {
            Some(its) => vec![its.clone()],
            None => stacks.values().cloned().collect(),
        }
    }

    fn lock_stacks(&self) -> MutexGuard<'_, HashMap<u64, Stack>> {
        self.stacks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Server, time::Instant) -> T) -> T {
        let now = time::Instant::ZERO + self.began.elapsed();
        act(&mut self.server.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}

/// The way to a machine, with which its leases go.
pub(crate) struct Link {
    machines: Arc<Machines>,
    number: u64,
}

impl Link {
    /// `stack` is the one at this end.
    pub(crate) fn new(machines: Arc<Machines>, stack: Stack) -> Self {
        let number = machines.links.fetch_add(1, Ordering::Relaxed);
        machines.lock_stacks().insert(number, stack);
        Self { machines, number }
    }

    fn answer_to(&self, message: &[u8]) -> Option<Answer> {
        self.machines.with(|server, now| server.on_message(now, self.number, message))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // It may be the last handle, and take its time to go: not under the lock.
        let stack = self.machines.lock_stacks().remove(&self.number);
        drop(stack);
        self.machines.with(|server, now| server.on_link_gone(now, self.number));
    }
}

/// Answers those who ask for an address.
pub(crate) async fn lease_addresses(socket: UdpSocket, link: Link) -> io::Result<()> {
    let mut bytes = vec![0; BUFFER_BYTES];
    loop {
        let (len, _) = socket.recv_from(&mut bytes).await?;
        if let Some(Answer { destination, payload }) = link.answer_to(&bytes[..len]) {
            let to = (destination, CLIENT_PORT);
            // What cannot be sent is lost, as datagrams are: the machine asks again.
            let _ = socket.send_from_to(&payload, GATEWAY.into(), to).await;
        }
    }
}

/// Tells machines of the router, and again where this host has found or lost its way out.
pub(crate) async fn advertise(stack: Stack) -> io::Result<()> {
    let mut told = None;
    loop {
        let has_way_out = has_way_out();
        if told.replace(has_way_out) != Some(has_way_out) {
            stack.advertise_router(0, &advertisement(has_way_out))?;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether this host can send to the whole world by IPv6, as far as its routes and addresses say. Linux lets a host that has
/// a route and no address for it take one that is good on the link or for loopback alone.
fn has_way_out() -> bool {
    let ask = || {
        let socket = std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
        socket.connect((ABROAD, DOMAIN))?;
        socket.local_addr()
    };
    let is_good = |own: Ipv6Addr| !own.is_loopback() && !own.is_unicast_link_local();
    matches!(ask(), Ok(SocketAddr::V6(own)) if is_good(*own.ip()))
}

fn advertisement(has_way_out: bool) -> RouterAdvertisement {
    let prefix = PrefixInformation {
        prefix: PREFIX_V6,
        prefix_len_bits: PREFIX_LEN_V6,
        on_link: true,
        autonomous: true,
        valid_s: VALID_S,
        preferred_s: PREFERRED_S,
    };
    let servers = NameServers { lifetime_s: ROUTER_S.into(), addresses: vec![NAME_SERVER_V6] };
    RouterAdvertisement {
        router_lifetime_s: if has_way_out { ROUTER_S } else { 0 },
        mtu_bytes: u32::try_from(StreamConfig::default().mtu_bytes).ok(),
        prefixes: vec![prefix],
        name_servers: vec![servers],
        ..RouterAdvertisement::default()
    }
}
