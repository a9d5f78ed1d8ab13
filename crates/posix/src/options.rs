//! Socket options: kept with the socket, and passed on to the stack where it has the setting.
//!
//! An option the stack does not have is refused with `ENOPROTOOPT`, not accepted in silence. A few
//! are kept without effect, because they concern what this host does not have (sharing of
//! addresses that linger, priorities of queues, rules for marked packets): they are marked, or stand in
//! `kept_options.rs`.

use crate::Errno;
use crate::abi::*;
use crate::addresses::Domain;
use crate::buffers::buffer_bytes;
use crate::call::{Fd, Output, Reply};
use crate::descriptors::File;
use crate::fast_open::{FastOpen, is_of_fast_open};
use crate::host::{Attempt, Host};
use crate::kept_options::KeptOptions;
use crate::path_mtu::IP_PMTUDISC_WANT;
use crate::stream::Phase;
use crate::told::Asked;
use core::net::SocketAddr;
use core::num::NonZeroU64;
use stack::{Ipv4Options, PacketMarks, TcpOption};
use std::sync::Arc;
use tcp::Algorithm;
use time::Duration;

/// Longest TCP_LINGER2 (Linux: TCP_FIN_TIMEOUT_MAX).
const LINGER2_MAX_S: i32 = 120;

/// Length of the name of a congestion control (Linux: TCP_CA_NAME_MAX).
const CONGESTION_NAME_LEN: usize = 16;

/// Least sizes, doubled (Linux: SOCK_MIN_SNDBUF, SOCK_MIN_RCVBUF).
const SEND_BUFFER_MIN: usize = 4_608;
const RECEIVE_BUFFER_MIN: usize = 2_304;

/// What was set on a socket.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) reuse_address: bool,
    pub(crate) reuse_port: bool,
    pub(crate) broadcast: bool,
    out_of_band_inline: bool,
    pub(crate) priority: i32,
    mark: i32,
    kept: KeptOptions,
    /// Twice what was asked for, as Linux tells it.
    pub(crate) send_buffer: Option<usize>,
    pub(crate) receive_buffer: Option<usize>,
    pub(crate) receive_low_water: usize,
    pub(crate) receive_timeout: Option<Duration>,
    pub(crate) send_timeout: Option<Duration>,
    pub(crate) linger: Option<Duration>,
    /// SO_TIMESTAMP or SO_TIMESTAMPNS, whichever was asked for last.
    pub(crate) timestamps: Option<i32>,
    /// SO_ZEROCOPY: writes with MSG_ZEROCOPY are told of.
    pub(crate) zero_copy: bool,
    keepalive: bool,
    pub(crate) keepalive_idle_s: i32,
    pub(crate) keepalive_interval_s: i32,
    pub(crate) keepalive_count: i32,
    pub(crate) nodelay: bool,
    /// TCP_QUICKACK as it was set last; what it does passes.
    quick_acks: bool,
    congestion: Option<Algorithm>,
    syn_count: i32,
    user_timeout_ms: i32,
    /// Unsigned, though the call takes and tells an `int`.
    pub(crate) not_sent_low_water: Option<u32>,
    pub(crate) cork: bool,
    /// TCP_INQ: reading tells what is left.
    pub(crate) tells_unread: bool,
    pub(crate) fast_open: FastOpen,
    /// IP_FREEBIND: bind(2) takes addresses that the host does not have.
    pub(crate) free_bind: bool,
    /// TCP_DEFER_ACCEPT, in seconds.
    pub(crate) defer_accept_s: i32,
    /// SO_MAX_PACING_RATE, in bytes per second.
    pub(crate) pacing_rate_max: Option<NonZeroU64>,
    mss_max: Option<u16>,
    window_clamp: Option<usize>,
    /// TCP_LINGER2, in seconds; -1 where FIN-WAIT-2 is not entered.
    linger2_s: i32,
    pub(crate) mtu_discovery: i32,
    /// Of an IPv4 header.
    pub(crate) ip_options: Ipv4Options,
    /// Of the header of the socket's family.
    pub(crate) marks: PacketMarks,
    /// What IP_TOS and IP_TTL say of a socket of AF_INET6: for IPv4.
    pub(crate) marks_ipv4: PacketMarks,
    pub(crate) dont_route: bool,
    pub(crate) ipv6_only: bool,
    /// What recvmsg(2) is to tell besides (`told.rs`).
    pub(crate) asked: Asked,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            reuse_address: false,
            reuse_port: false,
            broadcast: false,
            out_of_band_inline: false,
            priority: 0,
            mark: 0,
            kept: KeptOptions::default(),
            send_buffer: None,
            receive_buffer: None,
            receive_low_water: 1,
            receive_timeout: None,
            send_timeout: None,
            linger: None,
            timestamps: None,
            zero_copy: false,
            keepalive: false,
            keepalive_idle_s: 7_200,
            keepalive_interval_s: 75,
            keepalive_count: 9,
            nodelay: false,
            quick_acks: true,
            congestion: None,
            syn_count: 0,
            user_timeout_ms: 0,
            not_sent_low_water: None,
            cork: false,
            tells_unread: false,
            fast_open: FastOpen::default(),
            free_bind: false,
            defer_accept_s: 0,
            pacing_rate_max: None,
            mss_max: None,
            window_clamp: None,
            linger2_s: 0,
            mtu_discovery: IP_PMTUDISC_WANT,
            ip_options: Ipv4Options::NONE,
            marks: PacketMarks::default(),
            marks_ipv4: PacketMarks::default(),
            dont_route: false,
            ipv6_only: false,
            asked: Asked::new(),
        }
    }
}

/// The congestion control of Linux's name.
fn algorithm_of(name: &[u8]) -> Result<Algorithm, Errno> {
    let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
    let mut all = Algorithm::ALL.into_iter();
    all.find(|algorithm| algorithm.kernel_name().as_bytes() == name).ok_or(Errno::ENOENT)
}

impl Options {
    /// What the receive window may be, where the program says so: half of the buffer that Linux
    /// tells of is for payload.
    fn window_bytes(&self) -> Option<usize> {
        let buffer = self.receive_buffer.map(|bytes| bytes / 2);
        buffer.into_iter().chain(self.window_clamp).min()
    }

    /// As Linux: who binds to an address of IPv6 is for that family alone from then on, and is told so (IPV6_V6ONLY).
    pub(crate) fn settle_family(&mut self, bound: SocketAddr) {
        self.ipv6_only |= bound.is_ipv6() && !bound.ip().is_unspecified();
    }

    /// The marks of packets over IPv4 or IPv6.
    pub(crate) fn marks_over(&self, is_ipv4: bool, domain: Domain) -> PacketMarks {
        if is_ipv4 && domain == Domain::Inet6 { self.marks_ipv4 } else { self.marks }
    }

    pub(crate) fn defer_accept(&self) -> Duration {
        Duration::from_secs(self.defer_accept_s.max(0).unsigned_abs().into())
    }

    fn keepalive(&self) -> Option<tcp::Keepalive> {
        let seconds = |value: i32| Duration::from_secs(value.max(0) as u64);
        self.keepalive.then(|| tcp::Keepalive {
            idle: seconds(self.keepalive_idle_s),
            interval: seconds(self.keepalive_interval_s),
            count: self.keepalive_count.max(0) as u32,
        })
    }

    /// Settings of a connection that is made with these options.
    pub(crate) fn config(&self, base: &tcp::Config) -> Arc<tcp::Config> {
        let mut config = base.clone();
        config.nodelay = self.nodelay;
        config.keepalive = self.keepalive();
        if let Some(algorithm) = self.congestion {
            config.congestion.algorithm = algorithm;
        }
        if let Some(bytes) = self.send_buffer {
            config.send_buffer_bytes = bytes;
        }
        if let Some(bytes) = self.window_bytes() {
            config.receive_buffer_bytes = bytes;
        }
        // A size that was asked for is not tuned; the window of the handshake follows it, too.
        if let Some(bytes) = self.send_buffer {
            config.send_buffer_bytes_initial = bytes;
        }
        if let Some(bytes) = self.window_bytes() {
            config.receive_buffer_bytes_initial = bytes;
        }
        config.mss_max = self.mss_max;
        config.pacing_rate_max = self.pacing_rate_max.or(base.pacing_rate_max);
        config.fin_wait_2 = self.fin_wait_2(base);
        if self.syn_count > 0 {
            config.syn_retries = self.syn_count as u32;
        }
        config.user_timeout = self.user_timeout(base);
        Arc::new(config)
    }

    fn user_timeout(&self, base: &tcp::Config) -> Option<Duration> {
        let timeout_ms = u64::try_from(self.user_timeout_ms).ok().filter(|timeout| *timeout > 0);
        timeout_ms.map(Duration::from_millis).or(base.user_timeout)
    }

    /// TCP_LINGER2: zero stands for what others have, less for a reset in the place of FIN-WAIT-2.
    fn fin_wait_2(&self, base: &tcp::Config) -> Duration {
        match self.linger2_s {
            0 => base.fin_wait_2,
            seconds => Duration::from_secs(seconds.max(0).unsigned_abs().into()),
        }
    }
}

impl Host {
    pub(crate) fn options(&mut self, fd: Fd) -> Result<&mut Options, Errno> {
        match self.files.get(fd)? {
            File::Stream(stream) => Ok(&mut stream.options),
            File::Datagram(datagram) => Ok(&mut datagram.options),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    pub(crate) fn is_stream(&mut self, fd: Fd) -> bool {
        matches!(self.files.get(fd), Ok(File::Stream(_)))
    }

    pub(crate) fn set_option(
        &mut self,
        fd: Fd,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<Reply, Errno> {
        self.check_family(fd, level, Errno::ENOPROTOOPT)?;
        match (level, name) {
            (SOL_SOCKET, SO_LINGER | SO_RCVTIMEO | SO_SNDTIMEO) => {
                let (first, second) = pair(name, value)?;
                let options = self.options(fd)?;
                if name == SO_LINGER {
                    // As Linux: less than nothing is for ever, or as good as that.
                    let seconds = (second as i32).cast_unsigned();
                    options.linger = (first != 0).then(|| Duration::from_secs(seconds.into()));
                } else {
                    if !(0..1_000_000).contains(&second) {
                        // Linux: EDOM.
                        return Err(Errno(33));
                    }
                    let timeout = match (first, second) {
                        (0, 0) => None,
                        // As Linux: less than none is not to wait.
                        (..0, _) => Some(Duration::ZERO),
                        _ => Some(
                            Duration::from_secs(first.unsigned_abs())
                                + Duration::from_micros(second.unsigned_abs()),
                        ),
                    };
                    match name {
                        SO_RCVTIMEO => options.receive_timeout = timeout,
                        _ => options.send_timeout = timeout,
                    }
                }
            }
            (SOL_SOCKET, SO_MAX_PACING_RATE) => {
                self.options(fd)?.pacing_rate_max = pacing_rate(value)?;
            }
            _ if self.keeps(fd, level, name) => {
                self.options(fd)?.kept.set(level, name, integer_of(level, value)?)?;
            }
            _ if self.may_ask(fd, level, name) => self.set_asked(fd, level, name, value)?,
            (SOL_SOCKET, _) => self.set_socket_option(fd, name, integer(value)?)?,
            (IPPROTO_TCP, _) if self.is_stream(fd) => self.set_tcp_option(fd, name, value)?,
            (IPPROTO_IP, IP_MTU_DISCOVER) | (IPPROTO_IPV6, IPV6_MTU_DISCOVER)
                if !self.is_stream(fd) =>
            {
                self.set_mtu_discovery(fd, integer_of(level, value)?)?;
            }
            (IPPROTO_IP, IP_MTU_DISCOVER) | (IPPROTO_IPV6, IPV6_MTU_DISCOVER) => {
                self.set_stream_mtu_discovery(fd, integer_of(level, value)?)?;
            }
            (IPPROTO_IPV6, IPV6_V6ONLY) => self.set_one_family(fd, integer(value)?)?,
            (IPPROTO_IP, IP_FREEBIND) | (IPPROTO_IPV6, IPV6_FREEBIND) if self.is_stream(fd) => {
                self.options(fd)?.free_bind = something_of(level, value)? != 0;
            }
            (IPPROTO_IP, IP_OPTIONS) => self.set_ip_options(fd, value)?,
            (IPPROTO_IP, IP_TOS | IP_TTL) | (IPPROTO_IPV6, IPV6_TCLASS | IPV6_UNICAST_HOPS) => {
                self.set_marks(fd, level, name, value)?;
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }
        if self.is_stream(fd) {
            self.apply_options(fd)?;
        }
        Ok(Reply::value(0))
    }

    fn set_socket_option(&mut self, fd: Fd, name: i32, value: i32) -> Result<(), Errno> {
        let (is_stream, largest) = (self.is_stream(fd), self.config.tcp.receive_buffer_bytes);
        let options = self.options(fd)?;
        let on = value != 0;
        match name {
            SO_REUSEADDR => {
                options.reuse_address = on;
                return self.set_yielding(fd);
            }
            SO_REUSEPORT => options.reuse_port = on,
            SO_BROADCAST => options.broadcast = on,
            // Kept without effect: see above.
            SO_PRIORITY => options.priority = value,
            SO_MARK => options.mark = value,
            SO_OOBINLINE => options.out_of_band_inline = on,
            SO_KEEPALIVE => options.keepalive = on,
            // As Linux: one or the other, and whichever is switched off, none is left.
            SO_TIMESTAMP | SO_TIMESTAMPNS if !is_stream => {
                options.timestamps = on.then_some(name);
            }
            SO_ZEROCOPY if !(0..=1).contains(&value) => return Err(Errno::EINVAL),
            SO_ZEROCOPY => options.zero_copy = on,
            SO_DONTROUTE => {
                options.dont_route = on;
                return self.set_dont_route(fd);
            }
            SO_SNDBUF | SO_SNDBUFFORCE => {
                options.send_buffer = Some((buffer_bytes(name, value) * 2).max(SEND_BUFFER_MIN));
            }
            SO_RCVBUF | SO_RCVBUFFORCE => {
                let bytes = buffer_bytes(name, value) * 2;
                options.receive_buffer = Some(bytes.max(RECEIVE_BUFFER_MIN));
                return self.bound_datagrams(fd);
            }
            SO_RCVLOWAT => {
                // Linux: of a stream half of its buffer at most, or nothing would ever be enough.
                let asked = if value < 0 { i32::MAX } else { value };
                let most = match is_stream {
                    true => options.receive_buffer.unwrap_or(largest) / 2,
                    false => usize::MAX,
                };
                options.receive_low_water = (asked as usize).min(most).max(1);
                return self.notice_input(fd);
            }
            SO_TYPE | SO_ERROR | SO_ACCEPTCONN | SO_DOMAIN | SO_PROTOCOL | SO_SNDLOWAT => {
                return Err(Errno::ENOPROTOOPT);
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    /// A stream's is looked at when another is bound.
    fn set_yielding(&mut self, fd: Fd) -> Result<(), Errno> {
        if let File::Datagram(datagram) = self.files.get(fd)?
            && let Some(id) = datagram.id
        {
            let on = datagram.options.reuse_address;
            self.shard().udp_set_yielding(id, on)?;
        }
        Ok(())
    }

    /// To a connection it is passed on with all others.
    fn set_dont_route(&mut self, fd: Fd) -> Result<(), Errno> {
        if let File::Datagram(datagram) = self.files.get(fd)?
            && let Some(id) = datagram.id
        {
            let on = datagram.options.dont_route;
            self.shard().udp_set_dont_route(id, on)?;
        }
        Ok(())
    }

    fn set_tcp_option(&mut self, fd: Fd, name: i32, bytes: &[u8]) -> Result<(), Errno> {
        if name == TCP_CONGESTION && bytes.is_empty() {
            return Err(Errno::EINVAL);
        }
        if name == TCP_CONGESTION {
            self.options(fd)?.congestion = Some(algorithm_of(bytes)?);
            return Ok(());
        }
        if is_of_fast_open(name) {
            return self.set_fast_open(fd, name, bytes);
        }
        let value = integer(bytes)?;
        let is_idle = self.is_idle(fd)?;
        let options = self.options(fd)?;
        let within = |range: core::ops::RangeInclusive<i32>| match range.contains(&value) {
            true => Ok(value),
            false => Err(Errno::EINVAL),
        };
        match name {
            TCP_NODELAY => {
                options.nodelay = value != 0;
                return self.flush_corked(fd);
            }
            TCP_QUICKACK => {
                options.quick_acks = value != 0;
                return self.set_quick_acks(fd);
            }
            TCP_KEEPIDLE => options.keepalive_idle_s = within(1..=32_767)?,
            TCP_KEEPINTVL => options.keepalive_interval_s = within(1..=32_767)?,
            TCP_KEEPCNT => options.keepalive_count = within(1..=127)?,
            TCP_SYNCNT => options.syn_count = within(1..=127)?,
            TCP_USER_TIMEOUT => options.user_timeout_ms = within(0..=i32::MAX)?,
            TCP_NOTSENT_LOWAT => {
                options.not_sent_low_water = Some(value.cast_unsigned()).filter(|bytes| *bytes > 0);
                return self.notice_output(fd);
            }
            TCP_CORK => {
                options.cork = value != 0;
                return self.set_cork(fd);
            }
            // Linux: TCP_MIN_MSS to MAX_TCP_WINDOW, and zero for none.
            TCP_MAXSEG if value == 0 => options.mss_max = None,
            TCP_MAXSEG => options.mss_max = Some(within(88..=32_767)? as u16),
            TCP_WINDOW_CLAMP if value == 0 && !is_idle => return Err(Errno::EINVAL),
            TCP_WINDOW_CLAMP if value == 0 => options.window_clamp = None,
            TCP_WINDOW_CLAMP => {
                // As Linux: less than nothing is as little as there may be.
                let bytes = usize::try_from(value).unwrap_or(0);
                options.window_clamp = Some(bytes.max(RECEIVE_BUFFER_MIN / 2));
            }
            TCP_DEFER_ACCEPT => options.defer_accept_s = crate::stream::deferral_s(value),
            TCP_LINGER2 => options.linger2_s = value.clamp(-1, LINGER2_MAX_S),
            TCP_INQ => options.tells_unread = within(0..=1)? != 0,
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    /// A socket without a connection has nothing to acknowledge: it only keeps what was set.
    fn set_quick_acks(&mut self, fd: Fd) -> Result<(), Errno> {
        let now = self.now;
        let stream = self.files.stream(fd)?;
        let on = stream.options.quick_acks;
        if let Some(id) = stream.connection() {
            self.shard().tcp_set_option(now, id, TcpOption::QuickAcks(on))?;
        }
        Ok(())
    }

    /// Those of IPv6 are of sockets of AF_INET6 alone, those of IPv4 of both.
    fn check_family(&mut self, fd: Fd, level: i32, otherwise: Errno) -> Result<(), Errno> {
        let domain = match self.files.get(fd)? {
            File::Stream(stream) => stream.domain,
            File::Datagram(datagram) => datagram.domain,
            _ => return Err(Errno::ENOTSOCK),
        };
        match level == IPPROTO_IPV6 && domain == Domain::Inet {
            true => Err(otherwise),
            false => Ok(()),
        }
    }

    /// A socket that is bound already has taken its place among the others.
    fn set_one_family(&mut self, fd: Fd, value: i32) -> Result<(), Errno> {
        let is_bound = match self.files.get(fd)? {
            File::Stream(_) => self.is_bound(fd)?,
            File::Datagram(datagram) => datagram.id.is_some(),
            _ => false,
        };
        if is_bound {
            return Err(Errno::EINVAL);
        }
        self.options(fd)?.ipv6_only = value != 0;
        Ok(())
    }

    fn set_ip_options(&mut self, fd: Fd, value: &[u8]) -> Result<(), Errno> {
        let ip_options = Ipv4Options::parse(value).map_err(|_| Errno::EINVAL)?;
        self.options(fd)?.ip_options = ip_options;
        if !self.is_stream(fd)
            && let Some(id) = self.files.datagram(fd)?.id
        {
            self.shard().udp_set_ip_options(id, ip_options)?;
        }
        Ok(())
    }

    /// Passes on to a connection what can change while it is open, and to a listener all that its
    /// connections begin with.
    pub(crate) fn apply_options(&mut self, fd: Fd) -> Result<(), Errno> {
        let now = self.now;
        let base = &self.config.tcp;
        let stream = self.files.stream(fd)?;
        let options = stream.options.clone();
        if let Phase::Listening(id) = stream.phase {
            let config = options.config(base);
            let is_ipv4 = stream.bound.is_some_and(|bound| bound.is_ipv4());
            let marks = options.marks_over(is_ipv4, stream.domain);
            let fast_open = self.served(&options);
            self.shard().set_marks(id, marks)?;
            self.shard().tcp_set_fast_open(id, fast_open)?;
            self.shard().tcp_set_defer_accept(id, options.defer_accept())?;
            return Ok(self.shard().tcp_set_listener(id, config)?);
        }
        let Some(id) = stream.connection() else { return Ok(()) };
        let mut settings =
            vec![TcpOption::NoDelay(options.nodelay), TcpOption::Keepalive(options.keepalive())];
        settings.extend(options.congestion.map(TcpOption::Congestion));
        settings.extend(options.send_buffer.map(TcpOption::SendBuffer));
        settings.extend(options.window_bytes().map(TcpOption::ReceiveBuffer));
        settings.push(TcpOption::UserTimeout(options.user_timeout(base)));
        settings.push(TcpOption::FinWait2(options.fin_wait_2(base)));
        let rate = options.pacing_rate_max.or(base.pacing_rate_max);
        settings.push(TcpOption::PacingRateMax(rate));
        settings.push(TcpOption::IpOptions(options.ip_options));
        settings.push(TcpOption::DontRoute(options.dont_route));
        let domain = stream.domain;
        if let Ok(status) = self.shard().tcp_status(id) {
            let marks = options.marks_over(status.remote.is_ipv4(), domain);
            let _ = self.shard().set_marks(id, marks);
        }
        for setting in settings {
            // A connection that is gone has no settings.
            let _ = self.shard().tcp_set_option(now, id, setting);
        }
        Ok(())
    }

    pub(crate) fn get_option(&mut self, fd: Fd, level: i32, name: i32, len: usize) -> Attempt {
        self.check_family(fd, level, Errno::EOPNOTSUPP)?;
        let mut value = match (level, name) {
            (SOL_SOCKET, SO_ERROR) => self.error_value(fd)?.to_ne_bytes().to_vec(),
            (SOL_SOCKET, SO_MEMINFO) => self.memory_info(fd)?,
            (SOL_SOCKET, SO_MAX_PACING_RATE) => {
                let rate = self.options(fd)?.pacing_rate_max.map_or(u64::MAX, NonZeroU64::get);
                match len {
                    8.. => rate.to_ne_bytes().to_vec(),
                    _ => u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes().to_vec(),
                }
            }
            _ if self.keeps(fd, level, name) => {
                self.options(fd)?.kept.value(level, name).to_ne_bytes().to_vec()
            }
            _ if self.may_ask(fd, level, name) => {
                i32::from(self.options(fd)?.asked.contains(&(level, name))).to_ne_bytes().to_vec()
            }
            (SOL_SOCKET, _) => self.socket_option(fd, name)?,
            (IPPROTO_IP, IP_MTU_DISCOVER) | (IPPROTO_IPV6, IPV6_MTU_DISCOVER) => {
                self.options(fd)?.mtu_discovery.to_ne_bytes().to_vec()
            }
            (IPPROTO_IP, IP_OPTIONS) => self.options(fd)?.ip_options.bytes().to_vec(),
            (IPPROTO_IP, IP_TOS | IP_TTL) | (IPPROTO_IPV6, IPV6_TCLASS | IPV6_UNICAST_HOPS) => {
                self.marks_option(fd, level, name)?.to_ne_bytes().to_vec()
            }
            (IPPROTO_TCP, TCP_INFO) if self.is_stream(fd) => self.tcp_info(fd)?,
            // As of CUBIC and Reno, which tell nothing.
            (IPPROTO_TCP, TCP_CC_INFO) if self.is_stream(fd) => Vec::new(),
            (IPPROTO_TCP, TCP_CONGESTION) if self.is_stream(fd) => {
                let set = self.options(fd)?.congestion;
                let algorithm = set.unwrap_or(self.config.tcp.congestion.algorithm);
                let mut name = algorithm.kernel_name().as_bytes().to_vec();
                name.resize(CONGESTION_NAME_LEN, 0);
                name
            }
            (IPPROTO_TCP, _) if self.is_stream(fd) && is_of_fast_open(name) => {
                self.fast_open_option(fd, name)?
            }
            (IPPROTO_TCP, _) if self.is_stream(fd) => {
                self.tcp_option(fd, name)?.to_ne_bytes().to_vec()
            }
            (IPPROTO_IP, IP_FREEBIND) | (IPPROTO_IPV6, IPV6_FREEBIND) if self.is_stream(fd) => {
                i32::from(self.options(fd)?.free_bind).to_ne_bytes().to_vec()
            }
            (IPPROTO_IPV6, IPV6_V6ONLY) => {
                i32::from(self.options(fd)?.ipv6_only).to_ne_bytes().to_vec()
            }
            (IPPROTO_IP, IP_MTU) | (IPPROTO_IPV6, IPV6_MTU) => {
                self.path_mtu(fd)?.to_ne_bytes().to_vec()
            }
            (IPPROTO_IP | IPPROTO_IPV6, _) => return Err(Errno::ENOPROTOOPT.into()),
            // As Linux: a level that the socket does not have is unknown to either family in its own words.
            _ => {
                self.check_family(fd, IPPROTO_IPV6, Errno::EOPNOTSUPP)?;
                return Err(Errno::ENOPROTOOPT.into());
            }
        };
        // As ip(7) has it: where there is no room for more, a byte.
        if level == IPPROTO_IP
            && (1..value.len()).contains(&len)
            && matches!(value.as_slice(), [_, 0, 0, 0])
        {
            value.truncate(1);
        }
        value.truncate(len);
        Ok(Reply { value: 0, output: Output::Value(value) })
    }

    fn error_value(&mut self, fd: Fd) -> Result<i32, Errno> {
        if let File::Datagram(_) = self.files.get(fd)? {
            self.has_datagram(fd)?;
            return Ok(self.files.datagram(fd)?.error.take().map_or(0, |error| error.0));
        }
        Ok(self.take_any_error(fd)?.map_or(0, |error| error.0))
    }

    fn socket_option(&mut self, fd: Fd, name: i32) -> Result<Vec<u8>, Errno> {
        let is_stream = self.is_stream(fd);
        let (listens, domain) = match self.files.get(fd)? {
            File::Stream(stream) => (matches!(stream.phase, Phase::Listening(_)), stream.domain),
            File::Datagram(datagram) => (false, datagram.domain),
            _ => return Err(Errno::ENOTSOCK),
        };
        let (sending, receiving) = self.buffer_sizes(fd)?;
        let options = self.options(fd)?;
        let pair = |first: i64, second: i64| {
            let mut bytes = first.to_ne_bytes().to_vec();
            bytes.extend(second.to_ne_bytes());
            bytes
        };
        let time = |timeout: Option<Duration>| {
            let timeout = timeout.unwrap_or_default();
            pair(timeout.as_secs() as i64, timeout.subsec_micros().into())
        };
        let value = match name {
            SO_RCVTIMEO => return Ok(time(options.receive_timeout)),
            SO_SNDTIMEO => return Ok(time(options.send_timeout)),
            SO_LINGER => {
                let seconds = options.linger.map_or(0, |span| span.as_secs() as i32);
                let mut bytes = i32::from(options.linger.is_some()).to_ne_bytes().to_vec();
                bytes.extend(seconds.to_ne_bytes());
                return Ok(bytes);
            }
            SO_REUSEADDR => options.reuse_address.into(),
            SO_REUSEPORT => options.reuse_port.into(),
            SO_BROADCAST => options.broadcast.into(),
            SO_DONTROUTE => options.dont_route.into(),
            SO_OOBINLINE => options.out_of_band_inline.into(),
            SO_PRIORITY => options.priority,
            SO_MARK => options.mark,
            SO_KEEPALIVE => options.keepalive.into(),
            SO_TIMESTAMP | SO_TIMESTAMPNS if !is_stream => {
                (options.timestamps == Some(name)).into()
            }
            SO_ZEROCOPY => options.zero_copy.into(),
            SO_SNDBUF => sending as i32,
            SO_RCVBUF => receiving as i32,
            SO_RCVLOWAT => options.receive_low_water as i32,
            SO_SNDLOWAT => 1,
            SO_TYPE => {
                if is_stream {
                    SOCK_STREAM
                } else {
                    SOCK_DGRAM
                }
            }
            SO_PROTOCOL => {
                if is_stream {
                    IPPROTO_TCP
                } else {
                    IPPROTO_UDP
                }
            }
            SO_DOMAIN => i32::from(if domain == Domain::Inet { AF_INET } else { AF_INET6 }),
            SO_ACCEPTCONN => listens.into(),
            _ => return Err(Errno::ENOPROTOOPT),
        };
        Ok(value.to_ne_bytes().to_vec())
    }

    fn tcp_option(&mut self, fd: Fd, name: i32) -> Result<i32, Errno> {
        if name == TCP_MAXSEG {
            return self.segment_size(fd);
        }
        let options = self.options(fd)?;
        Ok(match name {
            TCP_NODELAY => options.nodelay.into(),
            TCP_QUICKACK => options.quick_acks.into(),
            TCP_KEEPIDLE => options.keepalive_idle_s,
            TCP_KEEPINTVL => options.keepalive_interval_s,
            TCP_KEEPCNT => options.keepalive_count,
            TCP_SYNCNT if options.syn_count == 0 => self.config.tcp.syn_retries as i32,
            TCP_SYNCNT => options.syn_count,
            TCP_USER_TIMEOUT => options.user_timeout_ms,
            TCP_CORK => options.cork.into(),
            TCP_WINDOW_CLAMP => options.window_clamp.unwrap_or(0) as i32,
            TCP_INQ => options.tells_unread.into(),
            TCP_DEFER_ACCEPT => options.defer_accept_s,
            TCP_LINGER2 if options.linger2_s == 0 => self.config.tcp.fin_wait_2.as_secs() as i32,
            TCP_LINGER2 => options.linger2_s,
            TCP_NOTSENT_LOWAT => options.not_sent_low_water.unwrap_or(0).cast_signed(),
            _ => return Err(Errno::ENOPROTOOPT),
        })
    }
}

impl Host {
    /// TCP_MAXSEG: of a connection what it sends, before that what was asked for.
    fn segment_size(&mut self, fd: Fd) -> Result<i32, Errno> {
        let now = self.now;
        let id = self.files.stream(fd)?.connection();
        if let Some(info) = id.and_then(|id| self.shard().tcp_info(now, id).ok()) {
            return Ok(info.send_mss_bytes as i32);
        }
        Ok(self.options(fd)?.mss_max.unwrap_or(tcp::MSS_DEFAULT_IPV4).into())
    }
}

/// Of IPv4 a byte will do, or, as on Linux for most options, nothing at all for zero; those of IPv6 have four.
fn integer_of(level: i32, value: &[u8]) -> Result<i32, Errno> {
    if level == IPPROTO_IP { short_integer(value) } else { integer(value) }
}

/// The same for options of IPv4 that want a byte at least.
fn something_of(level: i32, value: &[u8]) -> Result<i32, Errno> {
    if level == IPPROTO_IP { integer_or_byte(value) } else { integer(value) }
}

pub(crate) fn short_integer(value: &[u8]) -> Result<i32, Errno> {
    if value.is_empty() { Ok(0) } else { integer_or_byte(value) }
}

/// As ip(7) has it: a byte will do.
pub(crate) fn integer_or_byte(value: &[u8]) -> Result<i32, Errno> {
    match value {
        [byte, rest @ ..] if rest.len() < 3 => Ok((*byte).into()),
        _ => integer(value),
    }
}

pub(crate) fn integer(value: &[u8]) -> Result<i32, Errno> {
    let bytes = value.first_chunk().ok_or(Errno::EINVAL)?;
    Ok(i32::from_ne_bytes(*bytes))
}

/// A rate in 32 bits or in 64; all ones, or zero, is none.
fn pacing_rate(value: &[u8]) -> Result<Option<NonZeroU64>, Errno> {
    let short = integer(value)?.cast_unsigned();
    let rate = match value.first_chunk() {
        Some(long) => u64::from_ne_bytes(*long),
        None if short == u32::MAX => u64::MAX,
        None => short.into(),
    };
    Ok(NonZeroU64::new(rate).filter(|rate| rate.get() != u64::MAX))
}

/// The two numbers of a `struct linger` or a `struct timeval`.
fn pair(name: i32, value: &[u8]) -> Result<(i64, i64), Errno> {
    if name == SO_LINGER {
        let second = value.get(4..).ok_or(Errno::EINVAL)?;
        return Ok((integer(value)?.into(), integer(second)?.into()));
    }
    let first = value.first_chunk().ok_or(Errno::EINVAL)?;
    let second = value.get(8..).and_then(|rest| rest.first_chunk()).ok_or(Errno::EINVAL)?;
    Ok((i64::from_ne_bytes(*first), i64::from_ne_bytes(*second)))
}
