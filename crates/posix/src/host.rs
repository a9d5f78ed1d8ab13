//! The shard, its clock, its network, and the calls of its programs.

use crate::call::{Call, Fd, Output, Reply};
use crate::descriptors::{File, Files};
use crate::epoll::News;
use crate::readiness::is_peer_done;
use crate::{Address, Errno};
use batch::{Block, BlockPool, Frame, Multidata, PoolConfig, ReceiveBatch, ReceivedChecksum};
use bytes::Bytes;
use core::net::IpAddr;
use device::{Capabilities, Medium, Room, TransmitMode, Transmitted};
use ip::Cidr;
use stack::{
    InterfaceConfig, InterfaceId, ListenOptions, Shard, ShardConfig, SocketError, SocketEvent,
    SocketId,
};
use std::collections::VecDeque;
use time::{Duration, Instant};

/// Packets kept for whoever plays the network; more are not taken from the stack.
const SENT_MAX: usize = 100_000;

/// What a host is made from.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Settings of connections that do not ask for others.
    pub tcp: tcp::Config,
    /// When connections are probed whose program asks for that, and does not say when; in whole seconds.
    pub keepalive: tcp::Keepalive,
    /// What listeners are made with, where the program does not say.
    pub listen: ListenOptions,
    /// Who may use TCP Fast Open, in the bits of Linux's sysctl `tcp_fastopen`: 1 clients, 2 servers, 4 clients without a
    /// cookie, 0x200 servers that want none, 0x400 all listeners, each with its backlog.
    pub fast_open: i32,
    /// Its addresses.
    pub addresses: Vec<Cidr>,
    /// Routers to everywhere else.
    pub gateways: Vec<IpAddr>,
    /// Longest IP packet in bytes.
    pub mtu_bytes: usize,
    /// Unpredictable bytes for the shard.
    pub secret: [u8; 32],
    /// The lowest descriptor.
    pub first_fd: Fd,
    /// What a program binds to before anything else happened becomes an address of the host: for
    /// programs that bring their own idea of it.
    pub adopts_addresses: bool,
}

/// A host in virtual time.
pub struct Host {
    pub(crate) config: HostConfig,
    network: Option<Network>,
    pub(crate) now: Instant,
    pub(crate) files: Files,
    sent: VecDeque<(Instant, Vec<u8>)>,
}

struct Network {
    shard: Shard,
    interface: InterfaceId,
}

/// A system call under way.
#[derive(Debug)]
pub struct Task {
    pub(crate) call: Call,
    pub(crate) started: Instant,
    /// Bytes read so far.
    pub(crate) read: Vec<u8>,
    /// Bytes written so far.
    pub(crate) written: usize,
    /// The first attempt has begun what the call asks for.
    pub(crate) begun: bool,
    /// The call has sent the SYN: a write that did stands for connect(2) until the handshake is over.
    pub(crate) opened: bool,
    /// A connection that close(2) lingers on.
    pub(crate) lingering: Option<SocketId>,
    deadline: Option<Instant>,
}

impl Task {
    /// When the call gives up, where it does: a time at which it should be attempted.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

/// Why a call has not returned a value.
pub(crate) enum Stop {
    Errno(Errno),
    /// It blocks, until this instant at most.
    Wait(Option<Instant>),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<SocketError> for Stop {
    fn from(error: SocketError) -> Self {
        Self::Errno(error.into())
    }
}

pub(crate) type Attempt = Result<Reply, Stop>;

impl Host {
    /// What a call that cannot go on says: it waits since it began, for `timeout` at most, where it may.
    pub(crate) fn wait(&self, task: &Task, waits_not: bool, timeout: Option<Duration>) -> Stop {
        let until = timeout.map(|timeout| task.started + timeout);
        match waits_not || until.is_some_and(|until| self.now >= until) {
            true => Stop::Errno(Errno::EAGAIN),
            false => Stop::Wait(until),
        }
    }

    /// A host that has sent nothing and opened nothing.
    #[must_use]
    pub fn new(config: HostConfig) -> Self {
        let files = Files::new(config.first_fd);
        // Not zero, so that nothing takes the origin for "never".
        let now = Instant::from_millis(1_000);
        Self { config, network: None, now, files, sent: VecDeque::new() }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// When something will happen by itself.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let shard = self.network.as_ref().and_then(|network| network.shard.poll_timeout());
        shard.into_iter().chain(self.next_uncork()).min()
    }

    /// Goes on to the next thing that happens, at most to `limit`, and lets it happen. Calls under
    /// way should be attempted after it. Says what time it is: later than it was, by a microsecond at
    /// least, so that neither a limit that is past nor a deadline that is due and does nothing holds time up.
    pub fn step(&mut self, limit: Instant) -> Instant {
        let least = self.now + Duration::from_micros(1);
        self.now = self.poll_timeout().into_iter().fold(limit, Instant::min).max(least);
        self.uncork_due();
        self.flush();
        self.now
    }

    /// A packet arrives.
    pub fn inject(&mut self, packet: &[u8]) {
        self.inject_batch(&[packet]);
    }

    /// Packets arrive as one batch of the device, end to end in one block.
    pub fn inject_batch<P: AsRef<[u8]>>(&mut self, packets: &[P]) {
        let Some(first) = packets.first() else { return };
        let now = self.now;
        if self.config.adopts_addresses && self.network.is_none() {
            self.adopt(destination_of(first.as_ref()));
        }
        let network = self.network();
        let mut batch = ReceiveBatch::new();
        let bytes: Vec<u8> = packets.iter().flat_map(|packet| packet.as_ref()).copied().collect();
        let block = batch.add_block(Block::from(Bytes::from(bytes)));
        let mut offset = 0;
        for packet in packets {
            let len = packet.as_ref().len() as u32;
            let checksum = ReceivedChecksum::Unverified;
            let taken = batch.push_frame(Frame { block, offset, len, checksum, segmented: None });
            debug_assert!(taken, "the block is as long as all of them");
            offset += len;
        }
        network.shard.on_receive(now, network.interface, &mut batch);
        self.flush();
    }

    /// How many packets were taken as part of a train, behind its first.
    #[must_use]
    pub fn train_frames(&self) -> u64 {
        let network = self.network.as_ref();
        network.map_or(0, |network| network.shard.counters().shard.receive_train_frames)
    }

    /// The next packet that was sent, and when.
    pub fn take_packet(&mut self) -> Option<(Instant, Vec<u8>)> {
        self.sent.pop_front()
    }

    /// Whether a packet was sent that nobody has taken.
    #[must_use]
    pub fn has_packet(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Begins a call.
    #[must_use]
    pub fn begin(&self, call: Call) -> Task {
        Task {
            call,
            started: self.now,
            read: Vec::new(),
            written: 0,
            begun: false,
            opened: false,
            lingering: None,
            deadline: None,
        }
    }

    /// Goes on with a call; `None` where it blocks.
    pub fn attempt(&mut self, task: &mut Task) -> Option<Result<Reply, Errno>> {
        let attempt = self.dispatch(task);
        self.flush();
        match attempt {
            Ok(reply) => Some(Ok(reply)),
            Err(Stop::Errno(errno)) => Some(Err(errno)),
            Err(Stop::Wait(deadline)) => {
                task.begun = true;
                task.deadline = deadline;
                None
            }
        }
    }

    fn dispatch(&mut self, task: &mut Task) -> Attempt {
        match task.call.clone() {
            Call::Socket { domain, kind, protocol } => self.socket(domain, kind, protocol),
            Call::Bind { fd, address } => self.bind(fd, address),
            Call::Listen { fd, backlog } => self.listen(fd, backlog),
            Call::Accept { fd } => self.accept(task, fd),
            Call::Connect { fd, address } => self.connect(task, fd, address),
            Call::ReadNothing { fd } => self.read_nothing(fd),
            Call::Receive { fd, len, flags } => self.receive(task, fd, len, flags),
            Call::Send { fd, bytes, flags, to, control } => {
                self.send(task, fd, &bytes, flags, to, &control)
            }
            Call::Fcntl { fd, command, argument } => self.fcntl(fd, command, argument),
            Call::Ioctl { fd, request, argument } => self.ioctl(fd, request, argument),
            Call::Close { fd } => self.close(task, fd),
            Call::Shutdown { fd, how } => self.shutdown(fd, how),
            Call::GetOption { fd, level, name, len } => self.get_option(fd, level, name, len),
            Call::SetOption { fd, level, name, value } => {
                self.set_option(fd, level, name, &value).map_err(Stop::from)
            }
            Call::Poll { entries, timeout_ms } => self.poll(task, entries, timeout_ms),
            Call::EpollCreate { size } => self.epoll_create(size),
            Call::EpollControl { epoll, operation, fd, event } => {
                self.epoll_control(epoll, operation, fd, event)
            }
            Call::EpollWait { epoll, events_max, timeout_ms } => {
                self.epoll_wait(task, epoll, events_max, timeout_ms)
            }
            Call::Pipe => self.pipe(),
            Call::Splice { from, to, offsets, len, flags } => {
                self.splice(task, from, to, offsets, len, flags)
            }
        }
    }

    /// The shard, made when it is first needed, so that addresses can be adopted before.
    fn network(&mut self) -> &mut Network {
        let config = &self.config;
        self.network.get_or_insert_with(|| {
            let mut shard = Shard::new(ShardConfig {
                tcp: config.tcp.clone(),
                pool: BlockPool::new(PoolConfig::default()),
                secret: config.secret,
                sockets_max: 10_000,
            });
            let mut capabilities = Capabilities::plain(Medium::Ip, config.mtu_bytes);
            capabilities.batch_packets_max = 64;
            let interface = InterfaceConfig {
                capabilities,
                mode: Some(TransmitMode::Multidata),
                addresses: config.addresses.clone(),
                gateways: config.gateways.clone(),
            };
            let interface = shard.add_interface(interface).expect("gateways on their networks");
            Network { shard, interface }
        })
    }

    pub(crate) fn shard(&mut self) -> &mut Shard {
        &mut self.network().shard
    }

    pub(crate) fn has_network(&self) -> bool {
        self.network.is_some()
    }

    /// Lets everything happen that happens now: timers, packets out, events.
    pub(crate) fn flush(&mut self) {
        let Some(network) = &mut self.network else { return };
        let (shard, now) = (&mut network.shard, self.now);
        // A bound against timers that are due for ever.
        for _ in 0..SENT_MAX {
            let due = shard.poll_timeout().is_some_and(|at| at <= now);
            if due {
                shard.on_timeout(now);
            }
            let mut batch = Multidata::default();
            let built = shard.poll_transmit(now, network.interface, Room::UNBOUNDED, &mut batch);
            if built == 0 {
                if due && shard.poll_timeout().is_some_and(|at| at <= now) {
                    continue;
                }
                break;
            }
            let taken = built.min(SENT_MAX - self.sent.len());
            let stopped = (taken < built).then_some(device::Stop::Full);
            for packet in batch.packets().take(taken) {
                let mut bytes = vec![0; packet.len()];
                packet.copy_to(&mut bytes).expect("the buffer is as long as the packet");
                self.sent.push_back((now, bytes));
            }
            shard.on_transmitted(now, network.interface, &Transmitted { taken, stopped });
            if taken == 0 {
                break;
            }
        }
        self.notice_zero_copies();
        while let Some(event) = self.network.as_mut().and_then(|network| network.shard.poll_event())
        {
            // A socket that the program has closed is nobody's.
            let _ = self.on_event(event);
        }
    }

    /// Tells those who look at the file behind a socket what happened to it.
    fn on_event(&mut self, event: SocketEvent) -> Result<(), Errno> {
        use stack::Readiness;
        let is_its = |file: &File| match file {
            File::Stream(stream) => stream.id() == Some(event.socket),
            File::Datagram(datagram) => datagram.id == Some(event.socket),
            _ => false,
        };
        let fd = self.files.find(is_its).ok_or(Errno::EBADF)?;
        let has = |readiness| event.readiness.intersects(readiness);
        let mut news = match has(Readiness::READABLE | Readiness::ACCEPTABLE | Readiness::URGENT) {
            true => News::INPUT,
            false => News::NONE,
        };
        if let File::Datagram(_) = self.files.get(fd)? {
            if has(Readiness::WRITABLE) {
                news = news.and(News::OUTPUT);
            }
            if self.hold_error(fd)? {
                news = News::STATE;
            }
        } else {
            let status = self.status(fd)?.map(|(_, status)| status);
            let is_at_end = status.as_ref().is_some_and(|status| is_peer_done(status.state));
            let stream = self.files.stream(fd)?;
            let least = stream.options.receive_low_water;
            // As Linux: less than a program wants is no news for it (SO_RCVLOWAT).
            if status.is_some_and(|it| it.readable_bytes < least && it.urgent_mark.is_none()) {
                news = News::NONE;
            }
            // Room is news only for a program that found none.
            stream.space_made |= has(Readiness::WRITABLE) && stream.lacks_space;
            let ends = is_at_end && !core::mem::replace(&mut stream.end_seen, is_at_end);
            if ends || has(Readiness::CLOSED | Readiness::CONNECTED) {
                news = News::STATE;
            }
        }
        self.wake(fd, news);
        Ok(())
    }

    /// Its settings, for sockets that are opened from now on. Addresses, gateways, MTU and secret are looked at once,
    /// before the first socket is bound.
    pub fn config_mut(&mut self) -> &mut HostConfig {
        &mut self.config
    }

    fn fcntl(&mut self, fd: Fd, command: i32, argument: i64) -> Attempt {
        use crate::abi::{F_GETFD, F_GETFL, F_SETFD, F_SETFL, FD_CLOEXEC, O_NONBLOCK};
        let closes_on_exec = self.files.closes_on_exec(fd);
        let file = self.files.get(fd)?;
        let value = match command {
            F_GETFD => i32::from(closes_on_exec) * FD_CLOEXEC,
            F_SETFD => {
                self.files.set_close_on_exec(fd, argument & i64::from(FD_CLOEXEC) != 0);
                0
            }
            F_GETFL => file.access() | if file.is_nonblocking() { O_NONBLOCK } else { 0 },
            F_SETFL => {
                file.set_nonblocking(argument & i64::from(O_NONBLOCK) != 0);
                0
            }
            _ => return Err(Errno::EINVAL.into()),
        };
        Ok(Reply::value(value.into()))
    }

    fn bind(&mut self, fd: Fd, address: Address) -> Attempt {
        let (domain, options) = match self.files.get(fd)? {
            File::Stream(stream) => (stream.domain, &stream.options),
            File::Datagram(datagram) => (datagram.domain, &datagram.options),
            _ => return Err(Errno::ENOTSOCK.into()),
        };
        let is_free = options.free_bind;
        let local = address.for_domain(domain, options.ipv6_only).map_err(|error| match error {
            Errno::ENETUNREACH => Errno::EINVAL,
            other => other,
        })?;
        let is_ours = is_free
            || local.ip().is_loopback()
            || self.config.addresses.iter().any(|cidr| cidr.address() == local.ip());
        if !is_ours && !local.ip().is_unspecified() {
            if !self.config.adopts_addresses || self.has_network() {
                return Err(Errno::EADDRNOTAVAIL.into());
            }
            self.adopt(Some(local.ip()));
        }
        match self.files.get(fd)? {
            File::Stream(_) => self.bind_stream(fd, local),
            _ => self.bind_datagram(fd, local),
        }
    }

    /// Takes an address for one of its own, before all others, unless no host can have it: a packet may go anywhere.
    fn adopt(&mut self, address: Option<IpAddr>) {
        let prefix_len = if address.is_some_and(|address| address.is_ipv4()) { 16 } else { 48 };
        let known = |cidr: &Cidr| Some(cidr.address()) == address;
        if let Some(cidr) = address.and_then(|address| Cidr::new(address, prefix_len))
            && cidr.is_hosts()
            && !self.config.addresses.iter().any(known)
        {
            self.config.addresses.insert(0, cidr);
        }
    }

    fn close(&mut self, task: &mut Task, fd: Fd) -> Attempt {
        if let Some(id) = task.lingering {
            return self.linger(task, id);
        }
        let file = self.files.remove(fd).ok_or(Errno::EBADF)?;
        self.forget_interest(fd);
        match file {
            File::Stream(stream) => return self.close_stream(task, &stream),
            File::Datagram(datagram) => {
                let now = self.now;
                if let Some(id) = datagram.id {
                    self.shard().close(now, id);
                }
            }
            File::PipeRead(pipe) | File::PipeWrite(pipe) => {
                pipe.close_end();
                self.wake_pipe(&pipe, News::STATE);
            }
            File::Epoll(_) => {}
        }
        Ok(Reply::value(0))
    }

    fn ioctl(&mut self, fd: Fd, request: u64, argument: i32) -> Attempt {
        use crate::abi::{FIONBIO, FIONREAD, SIOCATMARK, SIOCOUTQ, SIOCOUTQNSD};
        let file = self.files.get(fd)?;
        let value = match request {
            FIONBIO => {
                file.set_nonblocking(argument != 0);
                return Ok(Reply::value(0));
            }
            FIONREAD => self.readable_bytes(fd)?,
            SIOCOUTQ => self.unacknowledged_bytes(fd)?,
            SIOCOUTQNSD => self.unsent_bytes(fd)?,
            SIOCATMARK => usize::from(self.is_at_mark(fd)?),
            _ => return Err(Errno::ENOTTY.into()),
        };
        let value = i32::try_from(value).unwrap_or(i32::MAX);
        Ok(Reply { value: 0, output: Output::Integer(value) })
    }
}

/// Where an IP packet goes.
fn destination_of(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => packet.get(16..20)?.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
        6 => packet.get(24..40)?.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
        _ => None,
    }
}
