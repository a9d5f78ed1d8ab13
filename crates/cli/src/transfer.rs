//! `multidata send` and `multidata receive`: a file over one TCP connection of this stack.
//!
//! The device (a TAP or TUN, or any other Ethernet interface by a packet socket) is the user's; this stack is one more host on its
//! subnet, with the address it is given, and answers ARP, neighbour solicitations and ping as long
//! as the program runs. Or the two programs meet in a tunnel (`tunnel.rs`).

use crate::arguments::{AddressArgument, LinkArguments, ReceiveArguments, SendArguments, Switch};
use crate::ending;
use crate::output::tell;
use crate::tunnel::{self, Checksums, Key};
use crate::watch::Watch;
use bench::progress::Progress;
use bench::whole_file::WholeFile;
use bench::{Attempt, Failure};
use device::{DeviceError, Queue, RateConfig, RateQueue, TransmitMode};
use linux::{
    Interface, Napi, PacketConfig, PacketDevice, TapConfig, TapDevice, TapKind, TunnelDevice,
};
use multidata::dhcp::ClientConfig;
use multidata::ip::Cidr;
use multidata::tcp::congestion::Algorithm;
use multidata::tcp::{self, Keepalive};
use multidata::{CaptureFile, InterfaceConfig, Stack, TcpListener, TcpStream};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How much is read from a file, or from the connection, at once.
const PIECE_LEN_BYTES: usize = 256 << 10;

/// How long a DHCP server or a router may take to answer.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a listener is asked for a connection.
const ACCEPT_PERIOD: Duration = Duration::from_millis(20);

/// When a silent other end is asked whether it is still there: one that died, or cannot be reached, is noticed after
/// a minute.
const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(20), interval: Duration::from_secs(5), count: 8 };

/// When a write that does not get on looks whether the other end says something.
const TALK_TIME: Duration = Duration::from_millis(20);

/// How long the last ACKs may take once the application is done.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the sending end of a tunnel stays in TIME-WAIT: some retransmissions of the other's FIN.
const LAST_ACK_TIME: Duration = Duration::from_secs(2);

/// `multidata send FILE ADDR:PORT`: connects, sends, ends the stream, waits for the other end's end.
///
/// # Errors
/// A sentence.
pub(crate) fn send(arguments: &SendArguments) -> Result<(), Failure> {
    let mut source = Source::open(&arguments.file)?;
    ending::arrange()?;
    let sending = Sending { rate: arguments.rate, congestion: arguments.congestion };
    let mut link = open(&arguments.link, sending, tunnel::open_to)?;
    link.watch()?;
    let to = arguments.to;
    let outcome = connect(&link.stack, to, arguments.timeout)
        .and_then(|stream| over(stream, |stream| send_all(&mut source, stream, to)));
    if outcome.is_ok() && arguments.link.tunnel.is_some() {
        // Nobody but this program answers here: where the last ACK is lost, the other end asks again.
        std::thread::sleep(LAST_ACK_TIME);
    }
    let closed = link.close();
    outcome.and(closed)
}

fn connect(stack: &Stack, to: SocketAddr, timeout: Duration) -> Result<TcpStream, Failure> {
    tell(&format!("connecting to {to}"));
    let started = Instant::now();
    TcpStream::connect_timeout(stack, &to, timeout)
        .map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => {
                // TCP itself may have given up first.
                let waited = timeout.min(started.elapsed());
                format!("nobody answered for {} s", (waited.as_secs_f64() * 10.0).round() / 10.0)
            }
            _ => error.to_string(),
        })
        .attempt(|| format!("cannot connect to {to}"))
}

/// What is sent.
struct Source {
    name: String,
    file: File,
    /// What a regular file held at the beginning, which is what is sent of it: a log that grows faster than the
    /// network carries it would never end. Those of /proc say that they hold nothing, and are read to their end.
    len_bytes: Option<u64>,
}

impl Source {
    fn open(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let refused = || format!("cannot read {name}");
        let is_standard_input = path == Path::new("-");
        let file = match is_standard_input {
            true if is_input_closed() => return Err("standard input is closed").attempt(refused),
            true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
            false => File::open(path),
        };
        let file = file.attempt(refused)?;
        let about = file.metadata().attempt(refused)?;
        if about.is_dir() {
            return Err("it is a directory").attempt(refused);
        }
        // Of standard input something may have been read before.
        let is_known = about.is_file() && about.len() > 0 && !is_standard_input;
        let len_bytes = is_known.then_some(about.len());
        Ok(Self { name, file, len_bytes })
    }

    /// The next piece, at most what `piece` holds; nothing at the end.
    fn read(&mut self, sent_bytes: u64, piece: &mut [u8]) -> Result<usize, Failure> {
        let Self { name, file, len_bytes } = self;
        let left = len_bytes.map_or(u64::MAX, |all| all - sent_bytes);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
        let len = loop {
            match file.read(&mut piece[..wanted]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                outcome => break outcome.attempt(|| format!("cannot read {name}"))?,
            }
        };
        match len_bytes {
            Some(all) if len == 0 && sent_bytes < *all => Err(Failure::new(format!(
                "{name} became shorter while it was sent: it ended after {sent_bytes} of {all} bytes, and the \
                 connection was reset"
            ))),
            _ => Ok(len),
        }
    }

    /// Says that a file was not sent to its end, where it has another one by now.
    fn tell_growth(&self) {
        let Some(all) = self.len_bytes else { return };
        if self.file.metadata().is_ok_and(|about| about.len() > all) {
            let name = &self.name;
            crate::output::complain(&format!(
                "{name} grew while it was sent: the {all} bytes that it had at the beginning went out"
            ));
        }
    }
}

/// Whether this process was started without standard input. Rust's runtime opens /dev/null in its place, which would be
/// sent as an empty file; for reading and writing, where a shell that is asked for /dev/null opens it for reading.
fn is_input_closed() -> bool {
    let about = std::fs::read_to_string("/proc/self/fdinfo/0").unwrap_or_default();
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok());
    // O_ACCMODE and O_RDWR.
    let is_for_both = flags.is_some_and(|flags| flags & 3 == 2);
    let place = std::fs::read_link("/proc/self/fd/0");
    is_for_both && place.is_ok_and(|place| place == Path::new("/dev/null"))
}

/// Sends the file and waits until the other end has ended its stream.
fn send_all(source: &mut Source, stream: &mut TcpStream, to: SocketAddr) -> Result<(), Failure> {
    let progress = Progress::bytes(source.len_bytes);
    let mut piece = vec![0; PIECE_LEN_BYTES];
    let mut sent_bytes = 0;
    stream.set_write_timeout(Some(TALK_TIME)).attempt(|| "cannot set the connection up")?;
    loop {
        let len = source.read(sent_bytes, &mut piece)?;
        if len == 0 {
            break;
        }
        let mut rest = &piece[..len];
        while !rest.is_empty() {
            let written = match stream.write(rest) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => unheard(stream),
                outcome => outcome,
            };
            let written = written.attempt(|| format!("the connection to {to} failed"))?;
            rest = &rest[written..];
        }
        progress.advance(len as u64);
        sent_bytes += len as u64;
    }
    source.tell_growth();
    stream.shutdown(Shutdown::Write).attempt(|| "cannot end the stream")?;
    progress.say("waiting for the other end");
    loop {
        let len = stream
            .read(&mut piece)
            .attempt(|| format!("{to} did not confirm that it received everything"))?;
        if len == 0 {
            return Ok(());
        }
    }
}

/// Takes in what a talkative other end has said, which is not ours to keep, and wrote nothing: one that echoes reads on
/// only where it is read.
fn unheard(stream: &mut TcpStream) -> io::Result<usize> {
    let mut piece = vec![0; PIECE_LEN_BYTES];
    stream.set_nonblocking(true)?;
    let outcome = loop {
        match stream.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(0),
            Ok(0) => break Ok(0),
            Ok(_) => {}
            Err(error) => break Err(error),
        }
    };
    stream.set_nonblocking(false)?;
    outcome
}

/// `multidata receive ADDR:PORT FILE`: listens, accepts one connection, writes what comes.
///
/// # Errors
/// A sentence; nothing of the file is left then.
pub(crate) fn receive(arguments: &ReceiveArguments) -> Result<(), Failure> {
    ending::arrange()?;
    let file = WholeFile::begin(&arguments.file)?;
    if let Some(temporary) = file.temporary_path() {
        ending::remove_at_end(temporary.to_owned());
    }
    // Who is at the other end of a tunnel may ask at once. An address that is not there yet cannot be bound.
    let is_fixed = arguments.link.address.fixed().is_some();
    let (mut link, listener) =
        open_with(&arguments.link, Sending::default(), tunnel::open_at, |stack| {
            is_fixed.then(|| TcpListener::bind(stack, arguments.at))
        })?;
    let name = arguments.file.display().to_string();
    let listener = listener.unwrap_or_else(|| TcpListener::bind(&link.stack, arguments.at));
    let outcome = accept(&mut link, arguments.at, listener)
        .and_then(|(stream, from)| over(stream, |stream| receive_all(stream, from, file, &name)));
    let closed = link.close();
    outcome.and(closed)
}

/// The one connection that was asked for; whoever else comes is refused.
fn accept(
    link: &mut Link,
    at: SocketAddr,
    listener: io::Result<TcpListener>,
) -> Result<(TcpStream, SocketAddr), Failure> {
    let listener = listener.attempt(|| format!("cannot listen on {at}"))?;
    link.watch()?;
    // Nothing ends a wait for a connection, so it must not be one where the program is to end.
    listener.set_nonblocking(true).attempt(|| "cannot accept a connection")?;
    tell(&format!("listening on {at}"));
    loop {
        match listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ending::check()?;
                std::thread::sleep(ACCEPT_PERIOD);
            }
            outcome => return outcome.attempt(|| "cannot accept a connection"),
        }
    }
}

/// Writes what comes, and makes it durable.
fn receive_all(
    stream: &mut TcpStream,
    from: SocketAddr,
    mut file: WholeFile,
    name: &str,
) -> Result<(), Failure> {
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
    // Who was interrupted while the last bytes came keeps nothing.
    ending::check()?;
    // Only what is durable is acknowledged by our end of the stream.
    file.finish()
}

/// Transfers over a connection. Where that fails or is interrupted the other end hears a reset: an orderly end it
/// would take for the file's, or for the word that all of it is safe.
fn over(
    mut stream: TcpStream,
    transfer: impl FnOnce(&mut TcpStream) -> Result<(), Failure>,
) -> Result<(), Failure> {
    stream.set_keepalive_with(Some(KEEPALIVE)).attempt(|| "cannot set the connection up")?;
    ending::reset_at_end(stream.try_clone().attempt(|| "cannot set the connection up")?);
    // Whoever interrupted before had no connection to reset.
    let outcome = ending::check().and_then(|()| transfer(&mut stream));
    let outcome = outcome.and_then(|()| ending::check());
    if outcome.is_err() {
        stream.abort();
    }
    ending::spare_connection();
    outcome
}

/// A queue of the interface: of itself where it is a TAP or TUN, of a packet socket on any other.
fn open_queue(interface: &Interface, link: &LinkArguments) -> Result<Box<dyn Queue>, DeviceError> {
    let offload = link.offload;
    let is_wanted = offload == Some(Switch::On) || link.mode == Some(TransmitMode::Lso);
    let name = interface.name().to_owned();
    let complain = |refused: &[String], negotiated: String| {
        // What nobody asked for may be refused.
        if !refused.is_empty() && is_wanted {
            crate::output::complain(&negotiated);
        }
    };
    let offload = offload != Some(Switch::Off);
    if interface.is_tun() {
        let kind = if interface.is_ethernet()? { TapKind::Tap } else { TapKind::Tun };
        let name = Some(name);
        let config = TapConfig { name, kind, offload, napi: Napi::Off, ..TapConfig::default() };
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
            "{error}; make it first, for example: ip tuntap add {name} mode tap && {}ip link set {name} up",
            kernel_address(link.address.fixed())
                .map(|cidr| format!("ip addr add {cidr} dev {name} && "))
                .unwrap_or_default()
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
    let queue = open_queue(&interface, link).attempt(|| format!("cannot use {name}"))?;
    if !interface.is_up().attempt(|| format!("cannot use {name}"))? {
        return Err(Failure::new(format!(
            "the interface {name} is down: bring it up with: ip link set {name} up"
        )));
    }
    Ok(queue)
}

/// An address for the kernel at the other end of a TAP: of the network of ours, and another one.
fn kernel_address(ours: Option<Cidr>) -> Option<Cidr> {
    let ours = ours?;
    let next = |address: IpAddr, by: u8| match address {
        IpAddr::V4(it) => IpAddr::from(Ipv4Addr::from_bits(it.to_bits().wrapping_add(by.into()))),
        IpAddr::V6(it) => IpAddr::from(Ipv6Addr::from_bits(it.to_bits().wrapping_add(by.into()))),
    };
    let near = (1..=2).map(|by| next(ours.network().address(), by));
    let mut free = near.filter(|it| ours.contains(*it) && *it != ours.address());
    Cidr::new(free.next()?, ours.prefix_len())
}

/// How this stack sends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sending {
    /// Bits of frames a second.
    pub(crate) rate: Option<u64>,
    pub(crate) congestion: Algorithm,
}

/// This stack on the device that the user names, or in the tunnel.
pub(crate) fn open(link: &LinkArguments, sending: Sending, meet: Meet) -> Result<Link, Failure> {
    open_with(link, sending, meet, |_| ()).map(|(link, ())| link)
}

/// The same, and does `prepare` before the stack hears anything.
fn open_with<T>(
    link: &LinkArguments,
    sending: Sending,
    meet: Meet,
    prepare: impl FnOnce(&Stack) -> T,
) -> Result<(Link, T), Failure> {
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
    if let Some(mtu_bytes) = link.mtu {
        config = config.mtu(mtu_bytes);
    }
    let mut capture = None;
    if let Some(path) = &link.capture {
        let refused = || format!("cannot capture into {}", path.display());
        let file = CaptureFile::create(path).attempt(refused)?;
        queue = file.wrap(queue).attempt(refused)?;
        capture = Some(file);
    }
    if let Some(bits_per_second) = sending.rate {
        let limit = multidata::rate_limit(RateConfig::new(bits_per_second));
        queue = Box::new(RateQueue::new(queue, limit));
    }
    let mut tcp = tcp::Config::default();
    tcp.congestion.algorithm = sending.congestion;
    let builder = Stack::builder().tcp(tcp).boxed_interface(queue, config);
    let built = builder.build_with(|stack| Ok(prepare(stack)));
    let (stack, prepared) = built.attempt(|| "cannot start the stack")?;
    let name = link.device.as_deref().unwrap_or("the tunnel").to_owned();
    for interface in stack.interfaces() {
        let mode = interface.transmit.mode;
        // What was asked for and is not what came out is worth a line.
        if let Some(wanted) = interface.transmit.wanted.filter(|wanted| *wanted != mode) {
            crate::output::complain(&format!(
                "{name} has no form for {wanted}; the mode is {mode}"
            ));
        }
    }
    let own = link.address.fixed().map(|cidr| cidr.address());
    if own.is_none() {
        let is_ipv4 = link.address.is_ipv4();
        tell(&format!("waiting for an address by {} on {name}", link.address));
        let got = stack
            .wait_for_address(0, |address| address.is_ipv4() == is_ipv4, ADDRESS_TIMEOUT)
            .map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => {
                    let who = match is_ipv4 {
                        true => "no DHCP server answered",
                        false => "no router announced a prefix",
                    };
                    format!("{who} for {} s", ADDRESS_TIMEOUT.as_secs())
                }
                _ => error.to_string(),
            })
            .attempt(|| format!("no address by {} on {name}", link.address))?;
        crate::output::complain(&format!("this stack has the address {got}"));
    }
    Ok((Link { stack, name, own, watch: None, capture, counters: link.counters }, prepared))
}

/// This stack and what goes with it.
pub(crate) struct Link {
    pub(crate) stack: Stack,
    name: String,
    own: Option<IpAddr>,
    watch: Option<Watch>,
    capture: Option<CaptureFile>,
    /// Whether what was counted is printed at the end.
    counters: bool,
}

impl Link {
    /// Begins to say what happens to the device and to the address: once a listener stands, as whoever asks for it
    /// may be there already.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn watch(&mut self) -> Result<(), Failure> {
        self.watch = Some(Watch::begin(&self.stack, &self.name, self.own)?);
        Ok(())
    }

    /// Lets the connection deliver its end, or its reset, before the device goes away, and completes the capture.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn close(self) -> Result<(), Failure> {
        drop(self.watch);
        let counted = self.counters.then(|| self.stack.clone());
        let flushed = self.stack.shutdown(FLUSH_TIMEOUT);
        if let Some(stack) = counted {
            crate::output::note(&counted_lines(&stack));
        }
        let finished = finish(self.capture);
        flushed.attempt(|| "the end of the connection was not delivered").and(finished)
    }
}

/// Every counter that is not zero, a line each.
fn counted_lines(stack: &Stack) -> String {
    let mut lines = String::new();
    stack.counters().for_each(&mut |name, value| {
        if value > 0 {
            lines += &format!("{name} {value}\n");
        }
    });
    lines
}

/// Completes the capture, and says so where it is not whole.
fn finish(capture: Option<CaptureFile>) -> Result<(), Failure> {
    let Some(capture) = capture else { return Ok(()) };
    let counters = capture.finish().attempt(|| "the capture is not complete")?;
    crate::output::tell_missing(counters.capture_lost);
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
