//! `multidata send` and `multidata receive`: a file over one TCP connection of this stack.
//!
//! The device (a TAP, or any other Ethernet interface by a packet socket) is the user's; this stack is one more host on its
//! subnet, with the address it is given, and answers ARP, neighbour solicitations and ping as long
//! as the program runs. Or the two programs meet in a tunnel (`tunnel.rs`).

use crate::arguments::{AddressArgument, LinkArguments, ReceiveArguments, SendArguments, Switch};
use crate::tunnel::{self, Checksums, Key};
use bench::progress::Progress;
use bench::whole_file::WholeFile;
use bench::{Attempt, Failure};
use device::{Device, DeviceError, Queue, RateConfig, RateQueue};
use linux::{Interface, Napi, PacketConfig, PacketDevice, TapConfig, TapDevice, TunnelDevice};
use multidata::dhcp::ClientConfig;
use multidata::{CaptureFile, InterfaceConfig, Stack, TcpListener, TcpStream};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// How much is read from a file, or from the connection, at once.
const PIECE_LEN_BYTES: usize = 256 << 10;

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a DHCP server or a router may take to answer.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the last ACKs may take once the application is done.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the sending end of a tunnel stays in TIME-WAIT: some retransmissions of the other's FIN.
const LAST_ACK_TIME: Duration = Duration::from_secs(2);

/// `multidata send FILE ADDR:PORT`: connects, sends, ends the stream, waits for the other end's end.
///
/// # Errors
/// A sentence.
pub(crate) fn send(arguments: &SendArguments) -> Result<(), Failure> {
    let name = arguments.file.display();
    let mut file = File::open(&arguments.file).attempt(|| format!("cannot read {name}"))?;
    let about = file.metadata().attempt(|| format!("cannot read {name}"))?;
    if about.is_dir() {
        return Err(Failure::new(format!("cannot read {name}: it is a directory")));
    }
    let (stack, capture) = open(&arguments.link, arguments.rate, tunnel::open_to)?;
    let to = arguments.to;
    let mut stream = TcpStream::connect_timeout(&stack, &to, CONNECT_TIMEOUT)
        .map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => {
                format!("nobody answered for {} s", CONNECT_TIMEOUT.as_secs())
            }
            _ => error.to_string(),
        })
        .attempt(|| format!("cannot connect to {to}"))?;
    let progress = Progress::bytes(about.is_file().then_some(about.len()));
    let mut piece = vec![0; PIECE_LEN_BYTES];
    loop {
        let len = match file.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            outcome => outcome.attempt(|| format!("cannot read {name}"))?,
        };
        if len == 0 {
            break;
        }
        stream.write_all(&piece[..len]).attempt(|| format!("the connection to {to} failed"))?;
        progress.advance(len as u64);
    }
    stream.shutdown(Shutdown::Write).attempt(|| "cannot end the stream")?;
    progress.say("waiting for the other end");
    loop {
        // What a talkative other end says meanwhile is not ours to keep.
        let len = stream
            .read(&mut piece)
            .attempt(|| format!("{to} did not confirm that it received everything"))?;
        if len == 0 {
            break;
        }
    }
    drop(stream);
    if arguments.link.tunnel.is_some() {
        // Nobody but this program answers here: where the last ACK is lost, the other end asks again.
        std::thread::sleep(LAST_ACK_TIME);
    }
    flush(stack)?;
    finish(capture)
}

/// `multidata receive ADDR:PORT FILE`: listens, accepts one connection, writes what comes.
///
/// # Errors
/// A sentence; nothing of the file is left then.
pub(crate) fn receive(arguments: &ReceiveArguments) -> Result<(), Failure> {
    let (at, name) = (arguments.at, arguments.file.display());
    let mut file = WholeFile::begin(&arguments.file)?;
    remove_when_interrupted(file.temporary_path().map(PathBuf::from))?;
    let (stack, capture) = open(&arguments.link, None, tunnel::open_at)?;
    let listener = TcpListener::bind(&stack, at).attempt(|| format!("cannot listen on {at}"))?;
    let (mut stream, from) = listener.accept().attempt(|| "cannot accept a connection")?;
    // One connection was asked for; whoever else comes is refused.
    drop(listener);
    let progress = Progress::bytes(None);
    progress.say(&format!("from {from}"));
    let mut piece = vec![0; PIECE_LEN_BYTES];
    loop {
        let len =
            stream.read(&mut piece).attempt(|| format!("the connection from {from} failed"))?;
        if len == 0 {
            break;
        }
        file.write_all(&piece[..len]).attempt(|| format!("cannot write {name}"))?;
        progress.advance(len as u64);
    }
    // Only what is durable is acknowledged by our end of the stream.
    file.finish()?;
    drop(stream);
    flush(stack)?;
    finish(capture)
}

/// A queue of the interface: of itself where it is a TAP, of a packet socket on any other.
fn open_queue(interface: &Interface, offload: bool) -> Result<Box<dyn Queue>, DeviceError> {
    let name = interface.name().to_owned();
    let complain = |refused: &[String], negotiated: String| {
        if !refused.is_empty() {
            crate::output::complain(&negotiated);
        }
    };
    if interface.is_tun() {
        let name = Some(name);
        let config = TapConfig { name, offload, napi: Napi::Off, ..TapConfig::default() };
        let mut device = TapDevice::open(&config)?;
        complain(device.refused(), device.negotiated());
        return Ok(Box::new(device.queue(0)?));
    }
    let mut device = PacketDevice::open(&PacketConfig { offload, ..PacketConfig::new(name) })?;
    complain(device.refused(), device.negotiated());
    Ok(Box::new(device.queue(0)?))
}

/// How an end of a tunnel comes about.
pub(crate) type Meet = fn(SocketAddr, &Key, Checksums) -> Result<TunnelDevice, Failure>;

/// A queue of the tunnel, where the user asks for one.
fn tunnel_queue(link: &LinkArguments, meet: Meet) -> Result<Option<Box<dyn Queue>>, Failure> {
    let (Some(at), Some(key_file)) = (link.tunnel, &link.key_file) else { return Ok(None) };
    let checksums = if link.checksums { Checksums::Kept } else { Checksums::LeftToCipher };
    let mut device = meet(at, &Key::read(key_file)?, checksums)?;
    if !device.refused().is_empty() {
        crate::output::complain(device.negotiated());
    }
    let queue = device.queue(0).attempt(|| "cannot use the tunnel")?;
    Ok(Some(Box::new(queue)))
}

/// A queue of the device that the user names.
fn device_queue(link: &LinkArguments) -> Result<Box<dyn Queue>, Failure> {
    let name = link.device.as_deref().unwrap_or_default();
    let interface = Interface::named(name).map_err(|error| {
        Failure::new(format!(
            "{error}; make it first, for example: ip tuntap add {name} mode tap && ip addr add \
             10.0.0.1/24 dev {name} && ip link set {name} up"
        ))
    })?;
    if let Some(address) = link.address.fixed().map(|cidr| cidr.address())
        && let Some(owner) = kernel_interface_of(address)?
    {
        return Err(Failure::new(format!(
            "the address {address} is in use: it is the kernel's on {owner}; give this stack \
             another one of the same subnet"
        )));
    }
    let offload = link.offload == Switch::On;
    let queue = open_queue(&interface, offload).attempt(|| format!("cannot use {name}"))?;
    if !interface.is_up().attempt(|| format!("cannot use {name}"))? {
        return Err(Failure::new(format!(
            "the interface {name} is down: bring it up with: ip link set {name} up"
        )));
    }
    Ok(queue)
}

/// This stack on the device that the user names, or in the tunnel.
pub(crate) fn open(
    link: &LinkArguments,
    rate: Option<u64>,
    meet: Meet,
) -> Result<(Stack, Option<CaptureFile>), Failure> {
    let mut queue = match tunnel_queue(link, meet)? {
        Some(queue) => queue,
        None => device_queue(link)?,
    };
    let config = match link.address {
        AddressArgument::Fixed(cidr) => InterfaceConfig::new(cidr),
        AddressArgument::Dhcp => InterfaceConfig::default().dhcp(ClientConfig::default()),
        AddressArgument::Slaac => InterfaceConfig::default().slaac(),
    };
    let mut config = config.mode(link.mode);
    if let Some(gateway) = link.gateway {
        config = config.gateway(gateway);
    }
    let mut capture = None;
    if let Some(path) = &link.capture {
        let refused = || format!("cannot capture into {}", path.display());
        let file = CaptureFile::create(path).attempt(refused)?;
        queue = file.wrap(queue).attempt(refused)?;
        capture = Some(file);
    }
    if let Some(bits_per_second) = rate {
        let limit = multidata::rate_limit(RateConfig::new(bits_per_second));
        queue = Box::new(RateQueue::new(queue, limit));
    }
    let stack = Stack::builder().boxed_interface(queue, config).build();
    let stack = stack.attempt(|| "cannot start the stack")?;
    for interface in stack.interfaces() {
        // What was asked for and is not what came out is worth a line.
        if interface.transmit.mode != interface.transmit.wanted {
            crate::output::complain(&interface.transmit.to_string());
        }
    }
    if link.address.fixed().is_none() {
        let is_ipv4 = link.address.is_ipv4();
        let got = stack
            .wait_for_address(0, |address| address.is_ipv4() == is_ipv4, ADDRESS_TIMEOUT)
            .attempt(|| {
                let name = link.device.as_deref().unwrap_or_default();
                format!("no address by {} on {name}", link.address)
            })?;
        crate::output::complain(&format!("this stack has the address {got}"));
    }
    Ok((stack, capture))
}

/// Completes the capture, and says so where it is not whole.
pub(crate) fn finish(capture: Option<CaptureFile>) -> Result<(), Failure> {
    let Some(capture) = capture else { return Ok(()) };
    let counters = capture.finish().attempt(|| "the capture is not complete")?;
    if counters.capture_lost > 0 {
        let sentence = format!("{} packets are missing from the capture", counters.capture_lost);
        crate::output::complain(&sentence);
    }
    Ok(())
}

/// The kernel's interface that has this address: two hosts with one address talk to nobody.
fn kernel_interface_of(address: IpAddr) -> Result<Option<String>, Failure> {
    let interfaces = nix::ifaddrs::getifaddrs().attempt(|| "cannot list the kernel's addresses")?;
    Ok(interfaces.into_iter().find_map(|interface| {
        let storage = interface.address?;
        let owned = match (storage.as_sockaddr_in(), storage.as_sockaddr_in6()) {
            (Some(ipv4), _) => SocketAddr::from((ipv4.ip(), 0)).ip(),
            (None, Some(ipv6)) => SocketAddr::from((ipv6.ip(), 0)).ip(),
            (None, None) => return None,
        };
        (owned == address).then_some(interface.interface_name)
    }))
}

/// Lets the connection deliver its end before the device goes away.
pub(crate) fn flush(stack: Stack) -> Result<(), Failure> {
    stack.shutdown(FLUSH_TIMEOUT).attempt(|| "the end of the connection was not delivered")
}

/// Makes an interruption from the terminal, or a polite request to end, remove the temporary file
/// before the program ends. Signals go to a thread of their own, so nothing is done inside a
/// handler.
fn remove_when_interrupted(temporary: Option<PathBuf>) -> Result<(), Failure> {
    let refused = || "cannot arrange for interruptions";
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&signals), None).attempt(refused)?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if let Ok(signal) = signals.wait() {
                if let Some(temporary) = temporary {
                    let _ = std::fs::remove_file(temporary);
                }
                std::process::exit(128 + signal as i32);
            }
        })
        .map(drop)
        .attempt(refused)
}
