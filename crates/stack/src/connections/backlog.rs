//! Listeners: connections that peers ask for (`handshakes.rs` keeps them), and those that wait to be accepted.
//!
//! ```text
//!   SYN --> half-open (its SYN) --ACK--> connection in the accept queue --> tcp_accept
//!     \                                     /
//!      --> full: SYN cookie ------ACK------
//! ```
//!
//! Both queues are bounded. Where the half-open ones are full, and the listener is set to it, a SYN
//! cookie keeps the connection outside (RFC 4987, 3.6). Where the accept queue is full, SYNs are
//! dropped, and so is the ACK that would complete a handshake: the SYN-ACK is sent again until there
//! is room or the peer has waited long enough, as BSD and Linux do.

use crate::connections::fast_open::{FastOpenOptions, Openings};
use crate::connections::handshakes::Waiting;
use crate::error::SocketError;
use crate::event::Readiness;
use crate::ingress::{Incoming, Unclaimed};
use crate::inspection::SocketKind;
use crate::network::NetworkLayer;
use crate::network::endpoint::{canonical, is_in_scope};
use crate::network::interfaces::InterfaceId;
use crate::outbox::{Message, NextHop, Outgoing};
use crate::shard::Shard;
use crate::sockets::marks::PacketMarks;
use crate::sockets::ports::{BindOptions, Protocol};
use crate::sockets::{Flow, Socket, SocketId, Sockets};
use core::net::SocketAddr;
use counters::DropReason;
use std::collections::VecDeque;
use std::sync::Arc;
use tcp::{HalfOpen, SYN_COOKIE_LIFETIME, State, SynCookies, Verdict};
use time::{Duration, Instant};
use wire::{TcpFastOpen, TcpHeader};

/// When a listener answers SYNs with cookies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynCookieMode {
    /// Never: SYNs beyond the limit are dropped.
    Never,
    /// Where as many connections are half-open as may be.
    #[default]
    WhenFull,
    /// Always; nothing is half-open here.
    Always,
}

/// What a listener is made from.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Settings of the connections that come of it; `None` for those of the shard.
    pub config: Option<Arc<tcp::Config>>,
    /// Connections that are open and wait to be accepted, in each of several squeues; at least one. [`BACKLOG_DEFAULT`]
    /// by default.
    pub backlog: usize,
    /// Connections whose handshake is under way; some 150 bytes each, with their places in the tables. At
    /// least one.
    pub half_open_max: usize,
    /// What happens beyond that.
    pub syn_cookies: SynCookieMode,
    /// How it serves TCP Fast Open; by default not at all.
    pub fast_open: FastOpenOptions,
    /// How long, from its SYN on, a connection is kept back whose peer has sent nothing (TCP_DEFER_ACCEPT): the ACK that
    /// completes its handshake is not taken, until data comes or the SYN-ACK, which goes again when the time is over,
    /// brings another. For protocols in which the client speaks first: who accepts finds something to read. Zero, the
    /// default: not at all. What SYN cookies open is not kept back.
    pub defer_accept: Duration,
    /// The address may be one that the host does not have yet (IP_FREEBIND): one that moves between hosts, of which only
    /// one answers for it at a time. Connections come once it is there.
    pub free_bind: bool,
    /// How it stands to other listeners.
    pub bind: BindOptions,
    /// What its SYN-ACKs and its connections say to routers.
    pub marks: PacketMarks,
}

/// Connections that wait to be accepted by a listener that names no other number. As many as may be half-open, so that a
/// burst of peers which the handshake takes is not held up behind it: who finds the queue full has the last ACK of its
/// handshake dropped and waits a second for the SYN-ACK to come again. tokio has 1,024, `std::net` 128; Linux's
/// `net.core.somaxconn`, 4,096 since 5.4, is no default but a bound on what programs ask for. An idle connection takes 1.5
/// KiB at most, so a full queue takes 1.5 MiB and what the peers have sent.
pub const BACKLOG_DEFAULT: usize = 1_024;

/// Half-open connections of a listener that names no other number.
const HALF_OPEN_MAX: usize = 1_024;

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            config: None,
            backlog: BACKLOG_DEFAULT,
            half_open_max: HALF_OPEN_MAX,
            syn_cookies: SynCookieMode::default(),
            fast_open: FastOpenOptions::default(),
            defer_accept: Duration::ZERO,
            free_bind: false,
            bind: BindOptions::default(),
            marks: PacketMarks::default(),
        }
    }
}

/// Longest time between two SYN-ACKs (RFC 6298, 2.5: a maximum may be placed on the RTO, of 60 s at least).
const SYN_ACK_PAUSE_MAX: Duration = Duration::from_secs(60);

/// A listener.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) local: SocketAddr,
    options: ListenOptions,
    /// Settings of the connections it opens.
    config: Arc<tcp::Config>,
    half_open: usize,
    /// Those of [`FastOpenOptions::pending_max`].
    pub(crate) openings: Openings,
    accept_queue: VecDeque<SocketId>,
    /// When a cookie was sent last: long after that, none is believed.
    cookie_sent_at: Option<Instant>,
    pub(crate) pending: Readiness,
}

impl Listener {
    pub(crate) fn marks(&self) -> PacketMarks {
        self.options.marks
    }

    pub(crate) fn set_marks(&mut self, marks: PacketMarks) {
        self.options.marks = marks;
    }

    /// Whether a cookie that it sent may still come back.
    fn has_sent_cookie_lately(&self, now: Instant) -> bool {
        self.cookie_sent_at.is_some_and(|sent_at| now - sent_at <= SYN_COOKIE_LIFETIME)
    }

    /// What it is, for whoever looks.
    pub(crate) fn kind(&self) -> SocketKind {
        SocketKind::TcpListener {
            half_open: self.half_open,
            waiting: self.accept_queue.len(),
            waiting_max: self.options.backlog,
        }
    }

    fn is_accept_queue_full(&self) -> bool {
        self.accept_queue.len() >= self.options.backlog
    }
}

impl Shard {
    /// Listens on `local` with the default options and this backlog.
    ///
    /// # Errors
    /// As [`Shard::tcp_listen_with`].
    pub fn tcp_listen(
        &mut self,
        local: SocketAddr,
        backlog: usize,
    ) -> Result<SocketId, SocketError> {
        self.tcp_listen_with(local, ListenOptions { backlog, ..ListenOptions::default() })
    }

    /// Listens on `local`; port zero picks one, an unspecified address stands for all.
    ///
    /// # Errors
    /// The address is not ours or in use, or there are too many sockets.
    pub fn tcp_listen_with(
        &mut self,
        local: SocketAddr,
        mut options: ListenOptions,
    ) -> Result<SocketId, SocketError> {
        let local = canonical(local);
        if !options.free_bind {
            self.network.check_local(local)?;
        }
        let local = self.with_port(Protocol::Tcp, local, options.bind)?;
        options.backlog = options.backlog.max(1);
        options.half_open_max = options.half_open_max.max(1);
        let bind = options.bind;
        let config = options.config.take().unwrap_or_else(|| Arc::clone(&self.config));
        let listener = Listener {
            local,
            options,
            config,
            half_open: 0,
            openings: Openings::default(),
            accept_queue: VecDeque::new(),
            cookie_sent_at: None,
            pending: Readiness::NONE,
        };
        let id = self.sockets.insert(Socket::Listener(Box::new(listener)))?;
        let index = id.index() as u32;
        self.sockets.ports.add(Protocol::Tcp, local, bind, index).map(|()| id)
    }

    /// Changes the settings of the connections that a listener opens from now on. Those whose handshake is under
    /// way complete it with the old ones; of SYN cookies that are out nobody knows what they offered, so they are
    /// believed no more.
    ///
    /// # Errors
    /// There is no such listener.
    pub fn tcp_set_listener(
        &mut self,
        listener: SocketId,
        config: Arc<tcp::Config>,
    ) -> Result<(), SocketError> {
        let index = self.sockets.index(listener)?;
        let listener = self.sockets.listener(index).ok_or(SocketError::InvalidSocket)?;
        listener.config = config;
        listener.cookie_sent_at = None;
        Ok(())
    }

    /// Changes how a listener serves fast open ([`ListenOptions::fast_open`]): with other keys for example.
    ///
    /// # Errors
    /// There is no such listener.
    pub fn tcp_set_fast_open(
        &mut self,
        listener: SocketId,
        options: FastOpenOptions,
    ) -> Result<(), SocketError> {
        let index = self.sockets.index(listener)?;
        let listener = self.sockets.listener(index).ok_or(SocketError::InvalidSocket)?;
        listener.options.fast_open = options;
        Ok(())
    }

    /// Changes how long connections are kept back whose peer says nothing ([`ListenOptions::defer_accept`]).
    ///
    /// # Errors
    /// There is no such listener.
    pub fn tcp_set_defer_accept(
        &mut self,
        listener: SocketId,
        defer_accept: Duration,
    ) -> Result<(), SocketError> {
        let index = self.sockets.index(listener)?;
        let listener = self.sockets.listener(index).ok_or(SocketError::InvalidSocket)?;
        listener.options.defer_accept = defer_accept;
        Ok(())
    }

    /// Changes how many connections may wait to be accepted ([`ListenOptions::backlog`]). Those that wait
    /// already stay.
    ///
    /// # Errors
    /// There is no such listener.
    pub fn tcp_set_backlog(
        &mut self,
        listener: SocketId,
        backlog: usize,
    ) -> Result<(), SocketError> {
        let index = self.sockets.index(listener)?;
        let listener = self.sockets.listener(index).ok_or(SocketError::InvalidSocket)?;
        listener.options.backlog = backlog.max(1);
        Ok(())
    }

    /// Takes a connection from a listener's queue.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] where there is none yet.
    pub fn tcp_accept(&mut self, listener: SocketId) -> Result<SocketId, SocketError> {
        let index = self.sockets.index(listener)?;
        let listener = self.sockets.listener(index).ok_or(SocketError::InvalidSocket)?;
        let id = listener.accept_queue.pop_front().ok_or(SocketError::WouldBlock)?;
        let more = !listener.accept_queue.is_empty();
        if let Ok(child) = self.sockets.index(id)
            && let Some(socket) = self.sockets.tcp(child)
        {
            socket.parent = None;
        }
        if more {
            self.sockets.notify(index, Readiness::ACCEPTABLE);
        }
        Ok(id)
    }

    /// How many connections wait to be accepted.
    ///
    /// # Errors
    /// There is no such listener.
    pub fn tcp_acceptable(&mut self, listener: SocketId) -> Result<usize, SocketError> {
        let index = self.sockets.index(listener)?;
        let listener = self.sockets.listener(index).ok_or(SocketError::InvalidSocket)?;
        Ok(listener.accept_queue.len())
    }

    /// Resets what a listener that is gone had waiting. Its half-open connections are forgotten when
    /// they are heard of again.
    pub(crate) fn close_listener(&mut self, now: Instant, index: u32, listener: Listener) {
        self.sockets.ports.remove(Protocol::Tcp, listener.local.port(), index);
        for id in listener.accept_queue {
            let Ok(index) = self.sockets.index(id) else { continue };
            if let Some(socket) = self.sockets.tcp(index) {
                socket.parent = None;
                socket.detached = true;
                socket.connection.abort();
                self.detached.orphans += 1;
            }
            self.settle(now, index);
        }
    }

    /// A SYN for a listener.
    pub(crate) fn on_syn(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        listener: u32,
        mut segment: Unclaimed,
    ) -> Result<(), DropReason> {
        let isn_min = segment.isn_min.or_else(|| self.fast_open.failed_opening(now, &segment.flow));
        segment.isn_min = isn_min;
        let has_room = self.sockets.has_room();
        let listening = self.sockets.listener(listener).ok_or(DropReason::NoConnection)?;
        if listening.is_accept_queue_full() {
            return Err(DropReason::AcceptQueueFull);
        }
        if !has_room {
            return Err(DropReason::SocketsFull);
        }
        // The answer would be dropped: better at once, before it costs anything.
        if !self.network.interfaces[incoming.origin.interface].outbox.has_room_for_answers() {
            return Err(DropReason::TransmitQueueFull);
        }
        let fast_open = listening.options.fast_open;
        let may_open_fast = listening.openings.has_room(now, fast_open.pending_max);
        let opening = self.fast_open.fast_opening(now, incoming, &segment, fast_open);
        if opening.is_fast {
            if may_open_fast {
                return self.accept_fast(now, incoming, listener, &segment, opening.cookie);
            }
            self.counters.fast_opens_limited += 1;
        }
        let listening = self.sockets.listener(listener).ok_or(DropReason::NoConnection)?;
        let is_full = listening.half_open >= listening.options.half_open_max;
        let by_cookie = match listening.options.syn_cookies {
            SynCookieMode::Never => false,
            SynCookieMode::WhenFull => is_full,
            // A successor of TIME-WAIT, or of a failed Fast Open, needs an ISS that a cookie does not give.
            SynCookieMode::Always => is_full || isn_min.is_none(),
        };
        if by_cookie && isn_min.is_none() {
            listening.cookie_sent_at = Some(now);
            let config = Arc::clone(&listening.config);
            self.send_cookie(now, incoming, &segment, config);
            return Ok(());
        }
        if is_full {
            return Err(DropReason::BacklogFull);
        }
        self.begin_handshake(now, incoming, listener, &segment, opening.cookie)
    }

    /// Keeps what there is to keep of a SYN, and answers it.
    fn begin_handshake(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        listener: u32,
        segment: &Unclaimed,
        cookie: Option<TcpFastOpen>,
    ) -> Result<(), DropReason> {
        let Unclaimed { flow, header, isn_min, .. } = segment;
        let id = self.sockets.id(listener).ok_or(DropReason::NoConnection)?;
        let listening = self.sockets.listener(listener).ok_or(DropReason::NoConnection)?;
        listening.half_open += 1;
        let defer_accept = listening.options.defer_accept;
        let config = Arc::clone(&listening.config);
        let mut parameters =
            self.parameters(now, incoming.origin.interface, flow, Arc::clone(&config));
        if let Some(isn_min) = isn_min {
            parameters.isn = parameters.isn.later_of(*isn_min);
        }
        if isn_min.is_some() {
            self.on_successor(flow);
        }
        let kept = HalfOpen::new(now, header, parameters.isn);
        let interface = incoming.origin.interface;
        let pause = config.rtt.rto_first();
        let waiting = Waiting {
            listener: id,
            interface,
            kept,
            config,
            answered_at: None,
            deferred_until: Some(now + defer_accept).filter(|_| !defer_accept.is_zero()),
        };
        self.handshakes.half_open.insert(*flow, waiting, now + pause);
        let mut syn_ack = kept.syn_ack(now, parameters);
        syn_ack.options.fast_open = cookie;
        self.send_syn_ack(incoming.origin.interface, flow, id, syn_ack);
        Ok(())
    }

    /// What is half-open between these ports. Where its listener is gone it is forgotten: what comes is for whoever
    /// listens there now, if anybody does.
    pub(crate) fn half_open_of(
        &mut self,
        flow: &Flow,
    ) -> Option<(SocketId, HalfOpen, Arc<tcp::Config>)> {
        let waiting = self.handshakes.half_open.get_mut(flow)?.parts();
        if self.sockets.listener_config(waiting.0).is_none() {
            self.forget_half_open(flow);
            return None;
        }
        Some(waiting)
    }

    /// A segment for a half-open connection.
    pub(crate) fn on_half_open(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        segment: &Unclaimed,
        waiting: (SocketId, HalfOpen, Arc<tcp::Config>),
    ) -> Result<(), DropReason> {
        let (listener, kept, config) = waiting;
        let Unclaimed { flow, header, .. } = segment;
        let payload_len = segment.payload_len(incoming);
        let window = config.receive_buffer_bytes.min(65_535) as u32;
        let parameters = |shard: &Self| {
            shard.parameters(now, incoming.origin.interface, flow, Arc::clone(&config))
        };
        match kept.check(header, payload_len, window) {
            Verdict::Open => {
                let mut kept = kept;
                kept.on_acknowledged(now, header, || parameters(self));
                if self.handshakes.defers(now, segment, payload_len, kept) {
                    return Ok(());
                }
                self.complete(now, incoming, segment, listener, &kept, config)
            }
            Verdict::SendAgain | Verdict::Acknowledge
                if !self.handshakes.may_answer_again(now, flow) =>
            {
                Err(DropReason::OutOfWindow)
            }
            Verdict::SendAgain => {
                let mut kept = kept;
                kept.on_repeated(header);
                let syn_ack = kept.syn_ack(now, parameters(self));
                if let Some(waiting) = self.handshakes.half_open.get_mut(flow) {
                    waiting.kept = kept;
                }
                self.send_syn_ack(incoming.origin.interface, flow, listener, syn_ack);
                Err(DropReason::Duplicate)
            }
            Verdict::Acknowledge => {
                let answer = kept.acknowledgment(now, parameters(self));
                self.network.answer_segment(incoming, answer);
                Err(DropReason::OutOfWindow)
            }
            Verdict::Reset(reply) => {
                // A SYN that came twice may have had two answers, the first of them a cookie while
                // the backlog was full: the peer believes the one that reached it first.
                if let Ok(listener) = self.sockets.index(listener)
                    && let Some(outcome) = self.on_cookie(now, incoming, listener, segment)
                {
                    return outcome;
                }
                if !self.reset_limit.allow(now) {
                    self.drops.add(DropReason::ResetRateLimited);
                    return Err(DropReason::BadAck);
                }
                let reset = reply.header(flow.local.port(), flow.remote.port());
                self.network.answer_segment(incoming, reset);
                Err(DropReason::BadAck)
            }
            Verdict::Forget => {
                self.forget_half_open(flow);
                Err(DropReason::BadState)
            }
            Verdict::Drop(reason) => Err(reason),
        }
    }

    /// An ACK that belongs to nothing may bring a cookie back. `None` where no cookie was sent lately.
    pub(crate) fn on_cookie(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        listener: u32,
        segment: &Unclaimed,
    ) -> Option<Result<(), DropReason>> {
        let id = self.sockets.id(listener)?;
        if !self.sockets.listener(listener)?.has_sent_cookie_lately(now) {
            return None;
        }
        let Unclaimed { flow, header, .. } = segment;
        let Some(kept) = self.handshakes.syn_cookies.decode(now, flow.local, flow.remote, header)
        else {
            self.counters.syn_cookies_refused += 1;
            return None;
        };
        if self.handshakes.spent_cookies.contains(flow, kept.iss) {
            self.counters.syn_cookies_spent += 1;
            return None;
        }
        let config = self.sockets.listener_config(id)?;
        let outcome = self.complete(now, incoming, segment, id, &kept, config);
        if outcome.is_ok() {
            self.counters.syn_cookies_accepted += 1;
        }
        Some(outcome)
    }

    /// Lets the SYN-ACKs be sent again whose time has come, and forgets those that were sent often
    /// enough.
    pub(crate) fn on_backlog_timeout(&mut self, now: Instant) {
        while let Some((flow, mut waiting)) = self.handshakes.half_open.pop_due(now) {
            if waiting.is_deferred(now) {
                // Nothing was lost.
                let until = waiting.deferred_until.unwrap_or(now);
                self.handshakes.half_open.insert(flow, waiting, until);
                continue;
            }
            // Nor was it where the time is over: the SYN-ACK asks for one more ACK.
            if !waiting.ends_deferral() {
                waiting.kept.on_timeout(now);
            }
            let goes_on = self.network.may_answer(&flow, &waiting)
                && self.sockets.listener_config(waiting.listener).is_some()
                && waiting.kept.timeouts() <= waiting.config.syn_ack_retries;
            if !goes_on {
                self.counters.half_open_timeouts += 1;
                self.sockets.leave_backlog(waiting.listener);
                continue;
            }
            let config = Arc::clone(&waiting.config);
            let backoff = 1 << waiting.kept.timeouts().min(16);
            let longest = config.rtt.rto_most().min(SYN_ACK_PAUSE_MAX);
            let pause = config.rtt.rto_first().saturating_mul(backoff).min(longest);
            let parameters = self.parameters(now, waiting.interface, &flow, config);
            let (interface, listener) = (waiting.interface, waiting.listener);
            let syn_ack = waiting.kept.syn_ack(now, parameters);
            self.handshakes.half_open.insert(flow, waiting, now + pause);
            self.counters.syn_acks_sent_again += 1;
            self.send_syn_ack(interface, &flow, listener, syn_ack);
        }
    }

    /// Resets all half-open connections (RFC 9293, 3.10.5). A peer whose last ACK was lost, or was not taken, believes
    /// its connection open; another has no answer yet and would ask for one for minutes.
    pub(crate) fn reset_half_open(&mut self, now: Instant) {
        while let Some((flow, waiting)) = self.handshakes.half_open.remove_first() {
            self.sockets.leave_backlog(waiting.listener);
            if self.network.may_answer(&flow, &waiting) {
                let (listener, kept, config) = waiting.parts();
                let parameters = self.parameters(now, waiting.interface, &flow, config);
                let reset = kept.reset(now, parameters);
                self.send_of_backlog(waiting.interface, &flow, listener, reset);
            }
        }
    }

    /// The handshake is complete: `segment` is its last ACK.
    fn complete(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        segment: &Unclaimed,
        parent: SocketId,
        kept: &HalfOpen,
        config: Arc<tcp::Config>,
    ) -> Result<(), DropReason> {
        let listener = self.sockets.index(parent).map_err(|_| DropReason::NoConnection)?;
        let has_room = self.sockets.has_room();
        let listening = self.sockets.listener(listener).ok_or(DropReason::NoConnection)?;
        if listening.is_accept_queue_full() {
            return Err(DropReason::AcceptQueueFull);
        }
        if !has_room {
            return Err(DropReason::SocketsFull);
        }
        let flow = segment.flow;
        let next_hop = self.network.way_back(incoming.origin.interface, flow.remote.ip())?;
        let parameters = self.parameters(now, incoming.origin.interface, &flow, config);
        let mut connection = kept.open(now, parameters);
        let taken = segment.as_tcp_segment(incoming);
        let (counters, pool) = (&mut self.connection_counters, &self.pool);
        let outcome = counters.lend(&mut connection, |it| it.on_segment(now, taken, pool));
        if connection.state() == State::SynReceived {
            return outcome.and(Err(DropReason::BadAck));
        }
        let index = self
            .open(connection, flow, incoming.origin.interface, next_hop, Some(parent))
            .map_err(|_| DropReason::SocketsFull)?;
        self.counters.connections_accepted += 1;
        self.forget_half_open(&flow);
        if kept.is_from_cookie() {
            self.handshakes.spent_cookies.add(now, flow, kept.iss);
        }
        self.sockets.enqueue(listener, index);
        self.touch(index);
        outcome
    }

    fn forget_half_open(&mut self, flow: &Flow) {
        if let Some(waiting) = self.handshakes.half_open.remove(flow) {
            self.sockets.leave_backlog(waiting.listener);
        }
    }

    fn send_cookie(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        segment: &Unclaimed,
        config: Arc<tcp::Config>,
    ) {
        let Unclaimed { flow, header: syn, .. } = segment;
        let (local, remote, timestamps) = (flow.local, flow.remote, config.timestamps);
        let kept = self.handshakes.syn_cookies.encode(now, local, remote, syn, timestamps);
        let parameters = self.parameters(now, incoming.origin.interface, flow, config);
        let mut syn_ack = kept.syn_ack(now, parameters);
        SynCookies::mark(&kept, &mut syn_ack);
        self.counters.syn_cookies_sent += 1;
        // To the station it came from: spoofed sources on the link must not fill the neighbour cache.
        self.network.answer_segment(incoming, syn_ack);
    }

    fn send_syn_ack(
        &mut self,
        interface: InterfaceId,
        flow: &Flow,
        listener: SocketId,
        syn_ack: TcpHeader,
    ) {
        if self.send_of_backlog(interface, flow, listener, syn_ack) {
            self.counters.syn_acks_sent += 1;
        }
    }

    /// Sends a segment of a half-open connection, and says whether there is a way to its peer.
    fn send_of_backlog(
        &mut self,
        interface: InterfaceId,
        flow: &Flow,
        listener: SocketId,
        header: TcpHeader,
    ) -> bool {
        let Ok(next_hop) = self.network.way_back(interface, flow.remote.ip()) else {
            self.drops.add(DropReason::NoRoute);
            return false;
        };
        let (local, remote) = (flow.local.ip(), flow.remote.ip());
        let marks = self.sockets.listener_marks(listener);
        let sender = &self.network.interfaces[interface];
        let network = sender.header(local, remote, wire::protocol::TCP, marks);
        self.network.send_answer(
            interface,
            Outgoing {
                network,
                next_hop: NextHop::Neighbour(next_hop),
                message: Message::Segment(header),
            },
        );
        true
    }
}

impl Sockets {
    /// Whether what comes in by interface `id` is for this listener.
    pub(crate) fn listens_at(&mut self, listener: u32, id: InterfaceId) -> bool {
        self.listener(listener).is_some_and(|it| is_in_scope(it.local, id))
    }

    /// Puts a connection into the accept queue.
    pub(crate) fn enqueue(&mut self, listener: u32, index: u32) {
        let id = self.id(index);
        if let (Some(listening), Some(id)) = (self.listener(listener), id) {
            listening.accept_queue.push_back(id);
            self.notify(listener, Readiness::ACCEPTABLE);
        }
    }

    pub(crate) fn listener_config(&mut self, listener: SocketId) -> Option<Arc<tcp::Config>> {
        let index = self.index(listener).ok()?;
        self.listener(index).map(|listening| Arc::clone(&listening.config))
    }

    fn leave_backlog(&mut self, listener: SocketId) {
        if let Ok(index) = self.index(listener)
            && let Some(listening) = self.listener(index)
        {
            listening.half_open = listening.half_open.saturating_sub(1);
        }
    }
}

impl NetworkLayer {
    /// Whether the address that was asked is still ours. Whoever asked may ask again when it is back; until then
    /// nobody may answer.
    fn may_answer(&self, flow: &Flow, waiting: &Waiting) -> bool {
        let interface = self.interfaces.get(waiting.interface);
        interface.is_some_and(|interface| interface.may_send_from(flow.local.ip()))
    }
}
