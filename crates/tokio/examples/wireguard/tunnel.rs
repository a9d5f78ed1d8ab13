//! The way of a batch between the stack and the network, sealed on the one side and opened on the other.

use super::config::Config;
use boringtun::noise::errors::WireGuardError;
use boringtun::noise::{Tunn, TunnResult};
use multidata::device::{PacketReceiver, PacketSender};
use multidata::ip::Cidr;
use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use std::fmt::Arguments;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::{MissedTickBehavior, interval};

/// The longest datagram, and as much as one call sends.
const DATAGRAM_MAX_BYTES: usize = 65_507;

/// What sealing adds to a packet at most.
const SEAL_BYTES: usize = 32;

/// Room that a handshake message needs, and so any call of the protocol (`Tunn::encapsulate`).
const MESSAGE_BYTES: usize = 148;

/// How often the protocol's timers are looked after.
const TICK: Duration = Duration::from_millis(250);

/// Room of the kernel's for what comes while this thread is busy.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Carries packets between a stack and a WireGuard peer.
pub(crate) struct Tunnel {
    noise: Tunn,
    allowed: Vec<Cidr>,
    network: Network,
    to_stack: PacketSender,
    from_stack: PacketReceiver,
    /// There is no session any more, and it was said, once until the peer is heard again.
    is_silent: bool,
    /// A packet of the stack's.
    packet: Vec<u8>,
    /// What the network brought.
    received: Vec<u8>,
    /// What leaves: sealed packets end to end.
    sealed: Vec<u8>,
    /// What was opened, end to end.
    opened: Vec<u8>,
}

impl Tunnel {
    pub(crate) async fn open(
        config: &Config,
        to_stack: PacketSender,
        from_stack: PacketReceiver,
    ) -> io::Result<Self> {
        let named = |error| at(format_args!("endpoint {}", config.endpoint), error);
        let mut found = tokio::net::lookup_host(&config.endpoint).await.map_err(named)?;
        let endpoint = found.next().ok_or_else(|| named(ErrorKind::NotFound.into()))?;
        let noise = Tunn::new(
            config.private_key.clone(),
            config.peer_key,
            config.preshared_key,
            config.keepalive_s,
            std::process::id(),
            None,
        );
        Ok(Self {
            noise,
            allowed: config.allowed.clone(),
            network: Network::open(config.listen_port, endpoint).await?,
            to_stack,
            from_stack,
            is_silent: false,
            packet: vec![0; config.mtu_bytes],
            received: vec![0; usize::from(u16::MAX)],
            sealed: vec![0; DATAGRAM_MAX_BYTES],
            opened: vec![0; usize::from(u16::MAX) + MESSAGE_BYTES],
        })
    }

    /// Carries, until the stack is gone.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Until the peer has heard of us it does not know where we are.
        self.begin().await;
        loop {
            tokio::select! {
                len = poll_fn(|context| self.from_stack.poll_recv(context, &mut self.packet)) => {
                    self.seal(len?).await;
                }
                meta = self.network.receive(&mut self.received) => {
                    if let Some(meta) = meta {
                        self.open_all(meta).await?;
                    }
                }
                _ = ticks.tick() => self.look_after_timers().await,
            }
        }
    }

    async fn begin(&mut self) {
        if let TunnResult::WriteToNetwork(message) =
            self.noise.format_handshake_initiation(&mut self.sealed, false)
        {
            self.network.send(message, &[message.len()]).await;
        }
    }

    /// Seals the packet that was received, and those that wait behind it as far as one call takes them.
    async fn seal(&mut self, first_len: usize) {
        let (mut lens, mut end, mut next) = (Vec::new(), 0, Some(first_len));
        while let Some(len) = next {
            let packet = &self.packet[..len];
            if Tunn::dst_address(packet).is_some_and(|to| is_of(&self.allowed, to))
                && let TunnResult::WriteToNetwork(sealed) =
                    self.noise.encapsulate(packet, &mut self.sealed[end..])
            {
                lens.push(sealed.len());
                end += sealed.len();
            }
            let room = self.sealed.len() - end;
            next = match room >= (self.packet.len() + SEAL_BYTES).max(MESSAGE_BYTES) {
                true => self.from_stack.try_recv(&mut self.packet).ok(),
                false => None,
            };
        }
        self.network.send(&self.sealed, &lens).await;
    }

    /// Opens the datagrams that one call brought; what they hold for the stack goes there as one batch.
    async fn open_all(&mut self, meta: RecvMeta) -> io::Result<()> {
        let (mut packets, mut end) = (Vec::<Range<usize>>::new(), 0);
        for datagram in self.received[..meta.len].chunks(meta.stride.max(1)) {
            let source = Some(meta.addr.ip());
            let opened = self.noise.decapsulate(source, datagram, &mut self.opened[end..]);
            let (len, from) = match opened {
                TunnResult::WriteToTunnelV4(packet, from) => (packet.len(), IpAddr::from(from)),
                TunnResult::WriteToTunnelV6(packet, from) => (packet.len(), IpAddr::from(from)),
                TunnResult::WriteToNetwork(answer) => {
                    // A handshake is under way, or over.
                    self.is_silent = false;
                    self.network.send(answer, &[answer.len()]).await;
                    send_waiting(&mut self.noise, &self.network, &mut self.sealed).await;
                    continue;
                }
                // A forged or repeated one is nobody's business, and a keepalive says nothing more.
                TunnResult::Err(_) | TunnResult::Done => continue,
            };
            // A peer may have another MTU, and a header may say that there is nothing: the stack takes neither.
            let is_sound = (1..=self.packet.len()).contains(&len);
            if is_sound && is_of(&self.allowed, from) {
                packets.push(end..end + len);
                end += len;
            }
        }
        let packets: Vec<&[u8]> = packets.into_iter().map(|range| &self.opened[range]).collect();
        let mut left = &packets[..];
        while !left.is_empty() {
            let sent = poll_fn(|context| self.to_stack.poll_send_many(context, left)).await;
            left = &left[sent?..];
        }
        Ok(())
    }

    async fn look_after_timers(&mut self) {
        match self.noise.update_timers(&mut self.sealed) {
            TunnResult::WriteToNetwork(message) => {
                self.network.send(message, &[message.len()]).await;
            }
            TunnResult::Err(WireGuardError::ConnectionExpired) => {
                if !self.is_silent {
                    eprintln!(
                        "wireguard: no session with {}: it does not answer (does it know our key?), or \
                         nothing was sent for long",
                        self.network.peer
                    );
                }
                self.is_silent = true;
                // The next packet begins anew. Who wants keepalives may only wait for what the peer sends, and a peer that was
                // started anew sends nothing before it has heard of us.
                if self.noise.persistent_keepalive().is_some() {
                    self.begin().await;
                }
            }
            _ => {}
        }
    }
}

/// What waited for the end of the handshake.
async fn send_waiting(noise: &mut Tunn, network: &Network, sealed: &mut [u8]) {
    while let TunnResult::WriteToNetwork(sealed) = noise.decapsulate(None, &[], sealed) {
        network.send(sealed, &[sealed.len()]).await;
    }
}

/// An error with what it is about.
fn at(what: Arguments<'_>, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Cryptokey routing: what the peer may send, and what goes to it.
fn is_of(allowed: &[Cidr], address: IpAddr) -> bool {
    allowed.iter().any(|network| network.contains(address))
}

/// The socket to the peer.
struct Network {
    socket: UdpSocket,
    state: UdpSocketState,
    peer: SocketAddr,
}

impl Network {
    async fn open(port: u16, peer: SocketAddr) -> io::Result<Self> {
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let bound = UdpSocket::bind((any, port)).await;
        let socket = bound.map_err(|error| at(format_args!("ListenPort {port}"), error))?;
        // So it hears nobody else.
        let connected = socket.connect(peer).await;
        connected.map_err(|error| at(format_args!("endpoint {peer}"), error))?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // As much as the system grants.
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), RECEIVE_BUFFER_BYTES);
        Ok(Self { socket, state, peer })
    }

    /// Sends datagrams that lie end to end, as many at once as may be: those of one length, and one that is shorter
    /// behind them (`UDP_SEGMENT`). What the system does not take is lost, as datagrams are.
    async fn send(&self, bytes: &[u8], lens: &[usize]) {
        let (mut start, mut left) = (0, lens);
        while let Some(&first) = left.first() {
            let equal = left.iter().take_while(|len| **len == first).count();
            let ends_run = left.get(equal).is_some_and(|len| *len < first);
            let count = (equal + usize::from(ends_run)).min(self.state.max_gso_segments());
            let run = count.max(1);
            let len = left[..run].iter().sum::<usize>();
            let transmit = Transmit {
                destination: self.peer,
                ecn: None,
                contents: &bytes[start..start + len],
                segment_size: (run > 1).then_some(first),
                src_ip: None,
            };
            let send = || self.state.try_send(UdpSockRef::from(&self.socket), &transmit);
            if self.socket.async_io(Interest::WRITABLE, send).await.is_err() {
                // It may have been what the path says of an earlier one, which is told once.
                let _ = send();
            }
            start += len;
            left = &left[run..];
        }
    }

    /// Waits for datagrams of one sender, of one length but for the last one (`UDP_GRO`). `None` is what the path says of
    /// an earlier datagram: that nobody listens there may pass.
    async fn receive(&self, out: &mut [u8]) -> Option<RecvMeta> {
        let mut meta = [RecvMeta::default()];
        let mut slices = [IoSliceMut::new(out)];
        let receive = || self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut meta);
        let received = self.socket.async_io(Interest::READABLE, receive).await;
        let [meta] = meta;
        received.is_ok().then_some(meta)
    }
}
