//! This stack over one device: what a run opens before it starts its clocks.

use crate::layouts::{Placement, Spreading};
use crate::measure::Counters;
use crate::peer::kernel::STUCK;
use crate::place::{Addresses, on_cpu};
use crate::scenario::{DeviceKind, Outbound, Scenario, Times};
use crate::socket::{Socket, retry_interrupted};
use crate::times::{CopyTimes, TimedQueue};
use crate::workload::stream::{By, Task, Workers};
use crate::{Attempt, Failure};
use batch::{BlockPool, PoolConfig};
use bytes::Bytes;
use device::{HardwareAddress, Medium, Queue, RateConfig, RateQueue, WireConfig, WireEnd, wire};
use ip::Cidr;
use linux::{
    Bridge, Feature, IoUring, Napi, PacketConfig, PacketDevice, StreamConfig, StreamDevice,
    SystemError, TapConfig, TapDevice, TapKind, TunnelDevice, VethPair, XdpConfig, XdpDevice,
};
use multidata::{
    CaptureFile, InterfaceConfig, Layout, Policy, Stack, TcpListener, TcpStream, UdpSocket,
};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use steering::{BadSpread, Spread};

/// The bridge between two TAP devices.
const BRIDGE_NAME: &str = "bench-bridge";

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the next connection may take to come: a little longer than the other end tries.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(12);

/// The ends of the cable of a packet socket, ours and the kernel's.
const VETH_NAMES: (&str, &str) = ("bench-near", "bench-far");

/// The tables that are kept of each squeue as well, where there are several: where work goes and waits, and in
/// what batches.
const PER_SQUEUE: [&str; 7] =
    ["runtime.", "device.", "receive.", "steering.", "soft_rings.", "squeue.", "trains."];

/// A stack with one interface.
#[derive(Debug)]
pub struct Station {
    stack: Stack,
    address: IpAddr,
    about: String,
    spreading: Option<Spreading>,
    /// Whether it is the end that measures.
    is_near: bool,
    /// The CPUs that this process may use.
    cpus: Vec<usize>,
    /// After so long a connection that was made here is stuck if nothing moves.
    patience: Duration,
    /// What the stack sends and receives goes here; it ends behind the stack.
    capture: Option<CaptureFile>,
    /// Held open: what the queue stands on lives as long as this.
    _ground: Option<Ground>,
}

/// What a device's queue stands on.
#[derive(Debug)]
enum Ground {
    /// A TAP lives as long as its descriptor.
    Tap { _device: TapDevice },
    /// A TAP that is a port of a bridge, which lives as long as one of its ports.
    Port { _device: TapDevice, _bridge: Arc<Bridge> },
    /// One end of a cable.
    Veth { _pair: VethPair },
}

/// This stack's end of a device.
struct Opened {
    queues: Queues,
    about: String,
    ground: Option<Ground>,
}

impl Station {
    /// This stack at one end of a device, the kernel at the other.
    ///
    /// # Errors
    /// A sentence: the device cannot be had, or not as the scenario wants it.
    pub fn over_kernel_device(scenario: &Scenario) -> Result<Self, Failure> {
        let opened = match scenario.device {
            DeviceKind::Packet => open_packet_socket(scenario)?,
            DeviceKind::Xdp => open_xdp(scenario)?,
            _ => open_tap(scenario)?,
        };
        Self::over(scenario, opened, true)
    }

    /// Two stacks of this process, one at each end of a wire, of a pair of TAPs or of a stream of frames: this one and the other
    /// one.
    ///
    /// # Errors
    /// A sentence: a device cannot be had, or a stack not be built.
    pub fn pair(scenario: &Scenario) -> Result<(Self, Self), Failure> {
        let (near, far) = match scenario.device {
            DeviceKind::TapPair => open_tap_pair(scenario)?,
            DeviceKind::Stream => open_stream(scenario)?,
            _ => open_wire(scenario),
        };
        Ok((Self::over(scenario, near, true)?, Self::over(scenario, far, false)?))
    }

    fn over(scenario: &Scenario, opened: Opened, is_near: bool) -> Result<Self, Failure> {
        let Opened { queues, about, ground } = opened;
        let addresses = Addresses::of(scenario);
        let address = if is_near { addresses.near } else { addresses.far };
        // One end sees everything.
        let (queues, capture) = if is_near { wrapped(scenario, queues)? } else { (queues, None) };
        let stack = build(scenario, queues, (address, addresses.prefix_len), is_near)?;
        let station = Self::of(scenario, stack, about, is_near)?;
        Ok(Self { capture, _ground: ground, ..station })
    }

    /// This stack at one end of a tunnel whose device is open: the near end, which measures and
    /// captures, or the far one.
    ///
    /// # Errors
    /// A sentence, where the stack cannot be built.
    pub fn over_tunnel(
        scenario: &Scenario,
        mut device: TunnelDevice,
        is_near: bool,
    ) -> Result<Self, Failure> {
        let addresses = Addresses::of(scenario);
        let address = if is_near { addresses.near } else { addresses.far };
        let about = without_ports(device.negotiated());
        let queue = device.queue(0).attempt(|| "cannot open the tunnel")?;
        let (queues, capture) = wrapped(scenario, vec![Box::new(queue)])?;
        let stack = build(scenario, queues, (address, addresses.prefix_len), is_near)?;
        Ok(Self { capture, ..Self::of(scenario, stack, about, is_near)? })
    }

    fn of(
        scenario: &Scenario,
        stack: Stack,
        about: String,
        is_near: bool,
    ) -> Result<Self, Failure> {
        let addresses = Addresses::of(scenario);
        Ok(Self {
            stack,
            address: if is_near { addresses.near } else { addresses.far },
            about,
            spreading: scenario.spreading,
            is_near,
            cpus: linux::cpu::allowed().attempt(|| "the CPUs of this process are not known")?,
            patience: patience_for(scenario),
            capture: None,
            _ground: None,
        })
    }

    /// Ends the stack, and behind it the capture. Says how many packets are missing from that, which was slower than
    /// they came.
    ///
    /// # Errors
    /// A sentence: the file could not be written to its end.
    pub fn close(self) -> Result<u64, Failure> {
        let Self { stack, capture, _ground, .. } = self;
        drop(stack);
        let Some(capture) = capture else { return Ok(0) };
        let counters = capture.finish().attempt(|| "the capture is not complete")?;
        Ok(counters.capture_lost)
    }

    /// What the device said is on.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Everything the stack counted so far, and what each squeue did where there are several.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::new();
        self.stack.counters().for_each(&mut |name, value| {
            counters.insert(name.to_owned(), value);
        });
        let squeues = self.stack.squeue_counters();
        if squeues.len() > 1 {
            for (index, squeue) in squeues.iter().enumerate() {
                let prefix = crate::counted::squeue_prefix(index);
                squeue.for_each(&mut |name, value| {
                    if PER_SQUEUE.iter().any(|table| name.starts_with(table)) {
                        counters.insert(format!("{prefix}{name}"), value);
                    }
                });
            }
        }
        counters
    }

    /// Listens on a port of the stack's choice for as many connections at once.
    ///
    /// # Errors
    /// A sentence.
    pub fn listen(&self, connections: usize) -> Result<TcpListener, Failure> {
        self.listen_on(0, connections)
    }

    /// As [`Station::listen`], on this port.
    ///
    /// # Errors
    /// A sentence.
    pub fn listen_on(&self, port: u16, connections: usize) -> Result<TcpListener, Failure> {
        TcpListener::bind_with_backlog(&self.stack, (self.address, port), connections)
            .attempt(|| format!("cannot listen on port {port} of {}", self.address))
    }

    /// A socket for datagrams on a port of the stack's choice.
    ///
    /// # Errors
    /// A sentence.
    pub fn udp_socket(&self) -> Result<UdpSocket, Failure> {
        let socket = UdpSocket::bind(&self.stack, (self.address, 0));
        let socket = socket.attempt(|| format!("cannot have a UDP socket at {}", self.address))?;
        let stuck = Some(STUCK);
        socket.set_write_timeout(stuck).attempt(|| "cannot set a socket up")?;
        Ok(socket)
    }

    /// Connects as often as wanted; where squeues have CPUs, from each in turn.
    ///
    /// # Errors
    /// A sentence.
    pub fn connect(&self, to: SocketAddr, connections: usize) -> Result<Vec<TcpStream>, Failure> {
        let connect = |cpu| {
            let socket =
                on_cpu(cpu, || TcpStream::connect_timeout(&self.stack, &to, CONNECT_TIMEOUT))?;
            prepared(socket.attempt(|| format!("cannot connect to {to}"))?, self.patience)
        };
        let is_pinned = self.spreading.filter(|it| it.placement != Placement::Anywhere);
        let squeues = is_pinned.map_or(1, |it| it.layout.homes_max().into());
        (0..connections)
            .map(|index| {
                connect(is_pinned.and_then(|it| it.squeue_cpu(index % squeues, &self.cpus)))
            })
            .collect()
    }

    /// By whom the work over its connections is done.
    pub fn by(&self, workers: Workers) -> By<'_> {
        workers.of(Some(&self.stack))
    }

    /// Says of each task on which CPU it is to be done: that of its connection, as the scenario has it.
    pub fn place(&self, sockets: &[TcpStream], tasks: &mut [Task]) {
        for (socket, task) in sockets.iter().zip(tasks) {
            task.cpu = self.cpu_of(socket);
        }
    }

    /// Each connection, and the CPU that its thread is to be kept on.
    #[must_use]
    pub fn placed<'a>(&self, sockets: &'a [TcpStream]) -> Vec<(&'a TcpStream, Option<usize>)> {
        sockets.iter().map(|socket| (socket, self.cpu_of(socket))).collect()
    }

    fn cpu_of(&self, socket: &TcpStream) -> Option<usize> {
        let spreading = self.spreading?;
        match self.is_near {
            true => spreading.receiver_cpu(socket.squeue(), &self.cpus),
            false => spreading.sender_cpu(socket.squeue(), &self.cpus),
        }
    }
}

/// A TAP or TUN device with the kernel at its other end.
fn open_tap(scenario: &Scenario) -> Result<Opened, Failure> {
    let mut device = tap(scenario)?;
    let addresses = Addresses::of(scenario);
    device
        .interface()
        .and_then(|interface| {
            interface.add_address(addresses.far, addresses.prefix_len)?;
            interface.set_up()
        })
        .attempt(|| "cannot configure the kernel's side of the device")?;
    let (queues, about) = queues_of(scenario, &mut device)?;
    Ok(Opened { queues, about, ground: Some(Ground::Tap { _device: device }) })
}

/// Two TAP devices as ports of a bridge of their own. As any switch it drops what a port's queue has no room
/// for; a TAP with the kernel's TCP behind it makes that wait instead.
fn open_tap_pair(scenario: &Scenario) -> Result<(Opened, Opened), Failure> {
    let bridge = Bridge::new(BRIDGE_NAME).attempt(|| "cannot join two TAP devices")?;
    let bridge = Arc::new(bridge);
    let port = || {
        let mut device = tap(scenario)?;
        device
            .interface()
            .and_then(|interface| {
                bridge.add_port(&interface)?;
                interface.set_up()
            })
            .attempt(|| "cannot join two TAP devices")?;
        let (queues, about) = queues_of(scenario, &mut device)?;
        let about = format!("one of two on a bridge: {about}");
        let ground = Ground::Port { _device: device, _bridge: bridge.clone() };
        Ok(Opened { queues, about, ground: Some(ground) })
    };
    Ok((port()?, port()?))
}

fn tap(scenario: &Scenario) -> Result<TapDevice, Failure> {
    let kind = if scenario.device == DeviceKind::Tun { TapKind::Tun } else { TapKind::Tap };
    let device = TapDevice::open(&TapConfig {
        kind,
        offload: scenario.offload,
        napi: if scenario.napi { Napi::Threaded } else { Napi::Off },
        mtu_bytes: Some(scenario.mtu_bytes),
        io_uring: if scenario.io_uring { IoUring::On } else { IoUring::Off },
        queues: rings(scenario).into(),
        ..TapConfig::default()
    })
    .attempt(|| no_device(scenario))?;
    if let Some(packets) = scenario.queue_packets {
        device
            .interface()
            .and_then(|interface| interface.set_transmit_queue_packets(packets))
            .attempt(|| "cannot set the length of the device's queue")?;
    }
    Ok(device)
}

fn no_device(scenario: &Scenario) -> &'static str {
    match scenario.device {
        DeviceKind::Tun => "cannot open a TUN device",
        _ => "cannot open a TAP device",
    }
}

/// The queues of a device that is up, and what it says of itself.
fn queues_of(scenario: &Scenario, device: &mut TapDevice) -> Result<(Queues, String), Failure> {
    let about = complete(device.negotiated(), device.refused())?;
    let queues: Result<Queues, Failure> = (0..rings(scenario))
        .map(|ring| Ok(Box::new(device.queue(ring.into()).attempt(|| no_device(scenario))?) as _))
        .collect();
    Ok((queues?, about))
}

/// The near end of a cable is ours and has no address of the kernel's, the far end is the kernel's.
fn cable(scenario: &Scenario) -> Result<VethPair, Failure> {
    let (near, far) = VETH_NAMES;
    let pair = VethPair::new(near, far).attempt(|| "cannot make a pair of interfaces")?;
    let addresses = Addresses::of(scenario);
    configure(&pair, scenario)
        .and_then(|()| pair.far().add_address(addresses.far, addresses.prefix_len))
        .attempt(|| "cannot configure the pair of interfaces")?;
    Ok(pair)
}

fn open_xdp(scenario: &Scenario) -> Result<Opened, Failure> {
    let pair = cable(scenario)?;
    let near = pair.near().name().to_owned();
    let refused = || format!("cannot take {near} over by AF_XDP");
    let mut device = XdpDevice::open(&XdpConfig::new(&*near)).attempt(refused)?;
    let queue = Box::new(device.queue(0).attempt(refused)?);
    // Who moves frames is known with the queue.
    let about = complete(device.negotiated(), device.refused())?;
    Ok(Opened { queues: vec![queue], about, ground: Some(Ground::Veth { _pair: pair }) })
}

fn open_packet_socket(scenario: &Scenario) -> Result<Opened, Failure> {
    let pair = cable(scenario)?;
    let near = pair.near().name();
    let refused = || format!("cannot open a packet socket on {near}");
    let spread = spread_of_sockets(scenario).attempt(refused)?;
    let config = PacketConfig {
        offload: scenario.offload,
        receive_blocks: scenario.receive_blocks,
        spread,
        ..PacketConfig::new(near)
    };
    let mut device = PacketDevice::open(&config).attempt(refused)?;
    let about = complete(device.negotiated(), device.refused())?;
    let queues: Result<Queues, Failure> = (0..spread.homes())
        .map(|queue| Ok(Box::new(device.queue(queue.into()).attempt(refused)?) as _))
        .collect();
    Ok(Opened { queues: queues?, about, ground: Some(Ground::Veth { _pair: pair }) })
}

/// How the kernel is to divide frames among packet sockets: as the stack does among its squeues, where
/// there is a socket for each.
fn spread_of_sockets(scenario: &Scenario) -> Result<Spread, BadSpread> {
    match scenario.spreading {
        Some(spreading) if spreading.layout.rings() > 1 => {
            Spread::new(spreading.layout, Policy::Flow, spreading.layout.homes_max())
        }
        None if scenario.queues > 1 => {
            let layout = Layout::new(1, scenario.queues, true).unwrap_or(Layout::SINGLE);
            Spread::new(layout, Policy::Flow, layout.homes_max())
        }
        _ => Ok(Spread::SINGLE),
    }
}

/// Without offload neither end splits, merges or leaves checksums out, and without TSO neither splits; with
/// NAPI the far end merges what it polls.
fn configure(pair: &VethPair, scenario: &Scenario) -> Result<(), SystemError> {
    pair.set_mtu_bytes(scenario.mtu_bytes)?;
    for end in [pair.near(), pair.far()] {
        if !(scenario.offload && scenario.tso) {
            end.set_feature(Feature::Segmentation, false)?;
            end.set_feature(Feature::SoftwareSegmentation, false)?;
        }
        if !scenario.offload {
            end.set_feature(Feature::TransmitChecksum, false)?;
        }
    }
    pair.far().set_feature(Feature::Coalescing, scenario.napi)?;
    pair.set_up()?;
    if scenario.napi { pair.far().set_threaded_napi(true) } else { Ok(()) }
}

/// What is said of a tunnel, the same for each run: ports are others every time.
fn without_ports(about: &str) -> String {
    let word = |word: &str| {
        let place = word.trim_end_matches(',');
        match place.parse::<SocketAddr>() {
            Ok(address) => word.replacen(place, &address.ip().to_string(), 1),
            Err(_) => word.to_owned(),
        }
    };
    about.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Where a device does less than the scenario is about, its figures would be those of another
/// scenario.
fn complete(about: String, refused: &[String]) -> Result<String, Failure> {
    if refused.is_empty() {
        return Ok(about);
    }
    Err(Failure::new(format!("this kernel does not do all of it: {about}")))
}

/// Accepts so many connections. Where the next one does not come in time, the other end has failed.
///
/// # Errors
/// A sentence.
pub fn accept(listener: &TcpListener, connections: usize) -> Result<Vec<TcpStream>, Failure> {
    (0..connections).map(|_| prepared(accept_one(listener, ACCEPT_TIMEOUT)?, STUCK)).collect()
}

/// Accepts a connection that comes within `timeout`.
fn accept_one(listener: &TcpListener, timeout: Duration) -> Result<TcpStream, Failure> {
    let refused = || "cannot accept a connection";
    let started = Instant::now();
    listener.set_nonblocking(true).attempt(refused)?;
    loop {
        match listener.accept() {
            Ok((socket, _)) => return Ok(socket),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                return Err(error).attempt(refused);
            }
            Err(_) if started.elapsed() > timeout => {
                return Err(format!("none came for {} s", timeout.as_secs())).attempt(refused);
            }
            // Nothing is measured yet.
            Err(_) => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}

/// How long nothing may move for an application that sends. Held to a rate, it hears nothing of the other end until
/// what lies in its buffer has left.
fn patience_for(scenario: &Scenario) -> Duration {
    let buffer_bytes = tcp::Config::default().send_buffer_bytes;
    let buffer_bytes = scenario.send_buffer_bytes.unwrap_or(buffer_bytes) as u64;
    // The rate is the device's, by which the buffers of all connections leave.
    let all_bits = buffer_bytes.saturating_mul(8 * scenario.connections as u64);
    let emptied_s = |bits_per_second| all_bits.div_ceil(bits_per_second);
    STUCK + Duration::from_secs(scenario.rate.map_or(0, emptied_s))
}

/// A connection on which nothing moves for long is stuck, and the run fails instead of hanging.
fn prepared(socket: TcpStream, patience: Duration) -> Result<TcpStream, Failure> {
    let stuck = Some(patience);
    socket
        .set_read_timeout(stuck)
        .and_then(|()| socket.set_write_timeout(stuck))
        .attempt(|| "cannot set a socket up")?;
    Ok(socket)
}

/// Rings of the device.
fn rings(scenario: &Scenario) -> u16 {
    scenario.spreading.map_or(1, |spreading| spreading.layout.rings())
}

/// One end of a wire or of several that are rings of the same device.
type Queues = Vec<Box<dyn Queue>>;

/// The two ends of a wire as the scenario wants it.
fn open_wire(scenario: &Scenario) -> (Opened, Opened) {
    let end = |last| {
        let medium = Medium::Ethernet(HardwareAddress([0x02, 0, 0, 0, 0, last]));
        if scenario.offload { WireEnd::offloading(medium) } else { WireEnd::plain(medium) }
    };
    let config = WireConfig { mtu_bytes: scenario.mtu_bytes, ..WireConfig::new(end(2), end(1)) };
    let rings = (0..rings(scenario)).map(|_| wire(config));
    let (near, far): (Queues, Queues) =
        rings.map(|(near, far)| (Box::new(near) as _, Box::new(far) as _)).unzip();
    let about = "wire in this process, loss-free and bounded";
    let opened = |queues| Opened { queues, about: about.to_owned(), ground: None };
    (opened(near), opened(far))
}

/// The two ends of a stream of frames.
fn open_stream(scenario: &Scenario) -> Result<(Opened, Opened), Failure> {
    let opened = |socket: UnixStream, last| {
        let hardware_address = Some(HardwareAddress([0x02, 0, 0, 0, 0, last]));
        let mtu_bytes = scenario.mtu_bytes;
        let config = StreamConfig { hardware_address, mtu_bytes, ..StreamConfig::default() };
        let mut device =
            StreamDevice::over(socket, &config).attempt(|| "no frames can go over it")?;
        let queue = device.queue(0).attempt(|| "cannot open the stream")?;
        let about = device.negotiated().to_owned();
        Ok(Opened { queues: vec![Box::new(queue)], about, ground: None })
    };
    let (near, far) = UnixStream::pair().attempt(|| "cannot make a pair of sockets")?;
    Ok((opened(near, 2)?, opened(far, 1)?))
}

/// The queues, with a rate and with what passes them captured where the scenario says so.
fn wrapped(scenario: &Scenario, queues: Queues) -> Result<(Queues, Option<CaptureFile>), Failure> {
    let queues = match scenario.times {
        Times::Off => queues,
        // Next to the device: what else is around it is this stack's work.
        Times::On | Times::Beside => {
            queues.into_iter().map(|queue| Box::new(TimedQueue::new(queue)) as _).collect()
        }
    };
    let queues = match scenario.rate {
        None => queues,
        Some(bits_per_second) => {
            let limit = multidata::rate_limit(RateConfig::new(bits_per_second));
            let limited = |queue| Box::new(RateQueue::new(queue, limit.clone())) as _;
            queues.into_iter().map(limited).collect()
        }
    };
    let Some(path) = &scenario.capture else { return Ok((queues, None)) };
    let refused = || format!("cannot capture into {}", path.display());
    let capture = CaptureFile::append(path).attempt(refused)?;
    let queues: Result<Queues, Failure> =
        queues.into_iter().map(|queue| capture.wrap(queue).attempt(refused)).collect();
    Ok((queues?, Some(capture)))
}

fn build(
    scenario: &Scenario,
    queues: Queues,
    (address, prefix_len): (IpAddr, u8),
    is_near: bool,
) -> Result<Stack, Failure> {
    let mut tcp = tcp::Config::default();
    if let Some(bytes) = scenario.send_buffer_bytes {
        tcp.send_buffer_bytes = bytes;
    }
    if let Some(bytes) = scenario.receive_buffer_bytes {
        tcp.receive_buffer_bytes = bytes;
    }
    let cidr = Cidr::new(address, prefix_len)
        .ok_or_else(|| Failure::new("the run's addresses have no such prefix"))?;
    let config = InterfaceConfig::new(cidr).mode(scenario.mode).coalescing(scenario.coalescing);
    let mut pool = PoolConfig::for_connections(scenario.connections);
    if let Some(len_bytes) = scenario.largest_cached_len_bytes {
        pool.largest_cached_len_bytes = len_bytes;
    }
    let builder = match scenario.spreading {
        None => Stack::builder().squeues(scenario.squeues.into()),
        Some(spreading) if is_near => Stack::builder()
            .layout(spreading.layout)
            .pin(spreading.placement != Placement::Anywhere),
        Some(spreading) => Stack::builder().layout(spreading.of_sender()),
    };
    let polling = scenario.spreading.filter(|_| is_near).and_then(|it| it.polling);
    let builder = match polling {
        Some(polling) => builder.polling(polling),
        None => builder,
    };
    let builder = match scenario.times {
        Times::On | Times::Beside if is_near => builder.copy_observer(Arc::new(CopyTimes)),
        _ => builder,
    };
    let stack = builder
        .tcp(tcp)
        .copy_in(scenario.copy_in)
        .pool(BlockPool::new(pool))
        .multiqueue_interface(queues, config)
        .build()
        .attempt(|| "cannot start the stack")?;
    let switched = match scenario.outbound {
        Outbound::On => Ok(()),
        Outbound::OffAtInterface => stack.set_multidata_outbound(Some(0), false),
        Outbound::Off => stack.set_multidata_outbound(None, false),
    };
    switched.attempt(|| "cannot switch ip_multidata_outbound off")?;
    Ok(stack)
}

impl Socket for TcpStream {
    type ForTasks = multidata_tokio::TcpStream;

    fn for_tasks(self) -> io::Result<Self::ForTasks> {
        self.try_into()
    }

    const LENDS: bool = true;

    fn receive_shared(&self, len_max: usize, pieces: &mut Vec<Bytes>) -> io::Result<usize> {
        self.read_bytes_vectored(len_max, pieces)
    }

    fn receive(&self, bytes: &mut [u8]) -> io::Result<usize> {
        retry_interrupted(|| (&*self).read(bytes))
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        (&*self).write_all(bytes)
    }

    fn send_shared(&self, bytes: Bytes) -> io::Result<()> {
        self.write_bytes(bytes)
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn local(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn remote(&self) -> io::Result<SocketAddr> {
        self.peer_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Direction;
    use device::TransmitMode;

    #[test]
    fn tunnels_of_several_runs_are_told_of_in_the_same_words() {
        for (about, wanted) in [
            ("from 127.0.0.1:5 to 127.0.0.1:77, MTU 9", "from 127.0.0.1 to 127.0.0.1, MTU 9"),
            ("from [::1]:5 to [fe80::1]:77, MTU 9", "from ::1 to fe80::1, MTU 9"),
        ] {
            assert_eq!(without_ports(about), wanted);
        }
    }

    #[test]
    fn what_leaves_slowly_is_waited_for() {
        let scenario = Scenario::stream(DeviceKind::Wire, Direction::Send, TransmitMode::Multidata);
        assert_eq!(patience_for(&scenario), STUCK);
        let slow = Scenario { rate: Some(100_000), send_buffer_bytes: Some(1 << 20), ..scenario };
        assert_eq!(patience_for(&slow), STUCK + Duration::from_secs(84));
        let shared = Scenario { connections: 2, ..slow };
        assert_eq!(patience_for(&shared), STUCK + Duration::from_secs(168));
    }

    #[test]
    fn a_connection_that_never_comes_is_not_waited_for_without_end() {
        let scenario = Scenario::stream(DeviceKind::Wire, Direction::Send, TransmitMode::Multidata);
        let (_near, far) = Station::pair(&scenario).expect("a wire needs no privilege");
        let listener = far.listen(1).expect("a free port");
        let failure =
            accept_one(&listener, Duration::from_millis(20)).expect_err("nobody connects");
        assert!(failure.to_string().contains("none came"), "{failure}");
    }
}
