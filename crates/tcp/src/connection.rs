//! A connection: its parts, and what its owner may do with it.
//!
//! Each part owns one idea and lies in the module of that name; the work on them is split by the
//! direction it comes from: [`crate::input`] takes segments, [`crate::output`] builds them,
//! [`crate::timeouts`] takes the passing of time, and this module takes the application's calls.
//!
//! ```text
//!   append, shutdown, close           on_segment, on_batch_end        on_timeout
//!            \                               |                           /
//!   send_queue  send  recovery  congestion  receive  acks  timers  negotiated
//!                                |
//!                poll_transmit -> Multidata -> on_transmitted(taken)
//! ```
//!
//! What always holds: nothing changes between `poll_transmit` and `on_transmitted`; only the latter
//! moves SND.NXT. SND.UNA =< SND.NXT =< SND.MAX; the send queue begins at SND.UNA.

use crate::acknowledging::Acknowledging;
use crate::config::{Config, Parameters};
use crate::congestion::{Congestion as _, Controller};
use crate::counters::TcpCounters;
use crate::event::{ConnectionError, Events, SendError};
use crate::options::Negotiated;
use crate::output::Plan;
use crate::receive_queue::ReceiveQueue;
use crate::recovery::{Phase, Recovery};
use crate::rtt::RttEstimator;
use crate::send_queue::SendQueue;
use crate::send_sequence::SendSequence;
use crate::state::State;
use crate::timers::{Timer, Timers};
use batch::Chunk;
use time::Instant;
use wire::{SeqNumber, TcpHeader};

/// A segment measured for its round-trip time: one past its last byte, and when it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) end: SeqNumber,
    pub(crate) sent_at: Instant,
}

/// A reset that is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwedReset {
    pub(crate) sequence: SeqNumber,
    pub(crate) acknowledgment: Option<SeqNumber>,
}

/// What is owed to the peer beside data and ACKs, and how the end of the stream stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Owing {
    /// The SYN or SYN-ACK.
    pub(crate) syn: bool,
    pub(crate) reset: Option<OwedReset>,
    /// A zero-window probe, or a small segment in its stead.
    pub(crate) window_probe: bool,
    pub(crate) keepalive_probe: bool,
    /// The application closed its side: a FIN stands behind the last byte.
    pub(crate) fin: bool,
    /// Nobody will read any more.
    pub(crate) orphaned: bool,
    /// The connection began with our SYN.
    pub(crate) active: bool,
}

/// How often something went unanswered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unanswered {
    pub(crate) syns: u32,
    pub(crate) timeouts: u32,
    pub(crate) window_probes: u32,
    /// Probes since the window closed; answers do not reset it.
    pub(crate) persist_backoff: u32,
    pub(crate) keepalive_probes: u32,
}

/// One TCP connection.
#[derive(Debug)]
pub struct Connection {
    pub(crate) state: State,
    pub(crate) config: Config,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) send: SendSequence,
    pub(crate) send_queue: SendQueue,
    pub(crate) recovery: Recovery,
    pub(crate) congestion: Controller,
    pub(crate) cwnd_limited: bool,
    pub(crate) receive: ReceiveQueue,
    pub(crate) last_ack_sent: SeqNumber,
    pub(crate) acks: Acknowledging,
    pub(crate) negotiated: Negotiated,
    pub(crate) rtt: RttEstimator,
    pub(crate) timed: Option<Timed>,
    pub(crate) last_sent_at: Instant,
    pub(crate) last_received_at: Instant,
    pub(crate) timers: Timers,
    pub(crate) owing: Owing,
    pub(crate) unanswered: Unanswered,
    pub(crate) plan: Plan,
    pub(crate) events: Events,
    pub(crate) error: Option<ConnectionError>,
    pub(crate) counters: TcpCounters,
}

impl Connection {
    /// Active open: the SYN is sent by the next `poll_transmit`.
    #[must_use]
    pub fn connect(parameters: Parameters, now: Instant) -> Self {
        let mut connection = Self::new(parameters, now, State::SynSent);
        connection.owing.active = true;
        connection
    }

    /// Passive open: `syn` is the peer's SYN, which the listener found acceptable; the SYN-ACK is
    /// sent by the next `poll_transmit`. Data in a SYN is left to be sent again by the peer.
    #[must_use]
    pub fn accept(parameters: Parameters, now: Instant, syn: &TcpHeader) -> Self {
        let mut connection = Self::new(parameters, now, State::SynReceived);
        connection.take_syn(now, syn);
        connection
    }

    fn new(parameters: Parameters, now: Instant, state: State) -> Self {
        let negotiated = Negotiated::offer(&parameters);
        let mut config = parameters.config;
        config.receive_buffer_bytes = config.receive_buffer_bytes.clamp(1, 1 << 30);
        config.send_buffer_bytes = config.send_buffer_bytes.clamp(1, 1 << 30);
        let deferral = match parameters.on_same_subnet {
            true => config.deferred_acks_max_local,
            false => config.deferred_acks_max_remote,
        };
        let iss = parameters.isn;
        Self {
            state,
            local_port: parameters.local_port,
            remote_port: parameters.remote_port,
            send: SendSequence::new(iss),
            send_queue: SendQueue::new(iss + 1, config.send_buffer_bytes),
            recovery: Recovery::new(iss),
            congestion: Controller::new(&config.congestion, negotiated.payload_max()),
            cwnd_limited: false,
            receive: ReceiveQueue::new(config.receive_buffer_bytes, config.assembler),
            last_ack_sent: SeqNumber(0),
            acks: Acknowledging::new(deferral, config.quick_acks, config.challenge_acks_per_second),
            negotiated,
            rtt: RttEstimator::new(config.rtt),
            timed: None,
            last_sent_at: now,
            last_received_at: now,
            timers: Timers::default(),
            owing: Owing { syn: true, ..Owing::default() },
            unanswered: Unanswered::default(),
            plan: Plan::default(),
            events: Events::NONE,
            error: None,
            counters: TcpCounters::default(),
            config,
        }
    }

    /// The peer's SYN is here.
    pub(crate) fn take_syn(&mut self, now: Instant, syn: &TcpHeader) {
        self.negotiated.on_syn(now, &syn.options);
        self.receive.on_syn(syn.sequence);
        self.last_ack_sent = self.receive.next();
        // RFC 7323, 2.2: the window of a SYN is never scaled.
        self.send.on_syn(syn.sequence, syn.acknowledgment, u32::from(syn.window));
        self.recovery.set_sack(self.negotiated.sack);
        // What cannot be announced is no window: reads would seem to open it for ever.
        self.set_receive_buffer(self.config.receive_buffer_bytes);
        // Nothing was sent, so this is the initial window for the real segment size.
        self.congestion = Controller::new(&self.config.congestion, self.negotiated.payload_max());
        if self.unanswered.syns > 0 {
            self.congestion.on_handshake_loss(self.negotiated.payload_max());
        }
    }

    /// Both SYNs are acknowledged.
    pub(crate) fn enter_established(&mut self, now: Instant) {
        self.state = State::Established;
        self.owing.syn = false;
        self.unanswered.syns = 0;
        self.rtt.on_established();
        self.timers.stop(Timer::Retransmission);
        self.events.insert(Events::CONNECTED | Events::WRITABLE);
        self.last_received_at = now;
        if let Some(keepalive) = self.config.keepalive {
            self.timers.set(Timer::Keepalive, now + keepalive.idle);
        }
        if self.owing.fin {
            self.state = State::FinWait1;
        }
    }

    /// There is no connection any more.
    pub(crate) fn enter_closed(&mut self, error: Option<ConnectionError>) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.timers.stop_all();
        self.send_queue.clear();
        self.owing = Owing { orphaned: self.owing.orphaned, ..Owing::default() };
        self.events.insert(Events::CLOSED | Events::READABLE | Events::WRITABLE);
        if error.is_some() {
            self.error = self.error.or(error);
            self.events.insert(Events::FAILED);
        }
        if self.owing.orphaned {
            self.receive.clear();
        }
    }

    pub(crate) fn enter_time_wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.timers.stop_all();
        self.owing.window_probe = false;
        self.timers.set(Timer::Lifetime, now + self.config.time_wait);
    }

    pub(crate) fn enter_fin_wait_2(&mut self, now: Instant) {
        self.state = State::FinWait2;
        if self.owing.orphaned {
            self.timers.set(Timer::Lifetime, now + self.config.fin_wait_2);
        }
    }

    /// Fails with a reset to the peer.
    pub(crate) fn fail_with_reset(&mut self, error: Option<ConnectionError>) {
        let reset =
            OwedReset { sequence: self.send.nxt, acknowledgment: Some(self.receive.next()) };
        self.enter_closed(error);
        self.owing.reset = Some(reset);
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Events {
        core::mem::take(&mut self.events)
    }

    /// The state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Why the connection failed, if it did.
    #[must_use]
    pub fn error(&self) -> Option<ConnectionError> {
        self.error
    }

    /// Whether nothing is left to be done: the state is CLOSED and no reset is owed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.state == State::Closed && self.owing.reset.is_none()
    }

    /// What the connection counted.
    #[must_use]
    pub fn counters(&self) -> &TcpCounters {
        &self.counters
    }

    /// Settings, as clamped to what is possible.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The payload of a full segment, in bytes.
    #[must_use]
    pub fn payload_max(&self) -> usize {
        self.negotiated.payload_max() as usize
    }

    /// The congestion window, in bytes.
    #[must_use]
    pub fn congestion_window(&self) -> u32 {
        self.congestion.window()
    }

    /// The smoothed round-trip time, once measured.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<time::Duration> {
        self.rtt.smoothed()
    }

    /// Bytes queued and not yet acknowledged.
    #[must_use]
    pub fn send_queue_len(&self) -> usize {
        self.send_queue.len()
    }

    /// How many bytes [`Connection::append`] takes now; 0 once this side has closed.
    #[must_use]
    pub fn send_room(&self) -> usize {
        if self.state.accepts_data() && !self.owing.fin { self.send_queue.room() } else { 0 }
    }

    /// Queues data to be sent. Small chunks are merged into the block before them.
    ///
    /// # Errors
    /// [`SendError::Full`] where the chunk is longer than [`Connection::send_room`],
    /// [`SendError::Closed`] where this side has closed or the connection is gone.
    pub fn append(&mut self, now: Instant, chunk: Chunk) -> Result<(), SendError> {
        if !self.state.accepts_data() || self.owing.fin {
            return Err(SendError::Closed);
        }
        if chunk.len() > self.send_queue.room() {
            return Err(SendError::Full);
        }
        if self.send.flight() == 0 && now - self.last_sent_at > self.rtt.rto() {
            // RFC 5681, 4.1: after a silence of more than one RTO the old window proves nothing.
            self.congestion.on_idle_restart(self.negotiated.payload_max());
        }
        self.send_queue.append(chunk);
        self.arm_persist(now);
        Ok(())
    }

    /// Moves received bytes to `out` and says how many: 0 where there are none now, or at the end
    /// of the stream ([`Connection::at_end_of_stream`] tells which).
    ///
    /// # Errors
    /// Why the connection failed, once everything received before was read.
    pub fn read(&mut self, _now: Instant, out: &mut [u8]) -> Result<usize, ConnectionError> {
        let count = self.receive.read(out);
        if count == 0 && !out.is_empty() {
            return self.error.map_or(Ok(0), Err);
        }
        self.on_read();
        Ok(count)
    }

    /// Hands out up to `len_max` received bytes without copying them; `None` where there are none.
    pub fn read_chunk(&mut self, len_max: usize) -> Option<Chunk> {
        let chunk = self.receive.read_chunk(len_max)?;
        self.on_read();
        Some(chunk)
    }

    fn on_read(&mut self) {
        // RFC 9293, 3.8.6.2.2: the peer hears of a re-opened window when it is worth a segment.
        if self.state.receives_data()
            && self.receive.wants_update(self.negotiated.payload_max_receive())
        {
            self.acks.owe_now();
            self.counters.window_updates_sent += 1;
        }
    }

    /// Bytes received and not yet read.
    #[must_use]
    pub fn readable_len(&self) -> usize {
        self.receive.len()
    }

    /// Whether the peer's FIN is here and all before it was read.
    #[must_use]
    pub fn at_end_of_stream(&self) -> bool {
        self.receive.len() == 0
            && (self.state.has_peer_fin() || (self.state == State::Closed && self.error.is_none()))
    }

    /// Closes this side's stream: a FIN follows the last queued byte. Receiving goes on.
    pub fn shutdown_write(&mut self, _now: Instant) {
        match self.state {
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            // The FIN waits for the handshake.
            State::SynSent | State::SynReceived => {}
            _ => return,
        }
        self.owing.fin = true;
    }

    /// The application is gone: nobody will read, and this side's stream ends behind what is
    /// queued. Data that nobody read, or that arrives from now on, makes it a reset, so that the
    /// peer learns that it was lost (RFC 9293, 3.6.1; RFC 2525, 2.17).
    pub fn close(&mut self, now: Instant) {
        self.owing.orphaned = true;
        match self.state {
            State::SynSent => self.enter_closed(None),
            State::Closed | State::TimeWait | State::Closing | State::LastAck => {
                self.receive.clear();
            }
            _ if self.receive.len() > 0 => self.fail_with_reset(None),
            State::FinWait2 => self.enter_fin_wait_2(now),
            _ => self.shutdown_write(now),
        }
    }

    /// Ends the connection at once, with a reset where the peer must hear of it (RFC 9293, 3.10.5).
    pub fn abort(&mut self, _now: Instant) {
        match self.state {
            State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait => self.fail_with_reset(Some(ConnectionError::Aborted)),
            _ => self.enter_closed(Some(ConnectionError::Aborted)),
        }
    }

    /// Small segments are sent at once from now on, or no more.
    pub fn set_nodelay(&mut self, nodelay: bool) {
        self.config.nodelay = nodelay;
    }

    /// Changes the size of the send buffer; what is queued stays.
    pub fn set_send_buffer(&mut self, bytes: usize) {
        self.config.send_buffer_bytes = bytes.clamp(1, 1 << 30);
        self.send_queue.set_capacity(self.config.send_buffer_bytes);
    }

    /// Size of the send buffer in bytes.
    #[must_use]
    pub fn send_buffer(&self) -> usize {
        self.send_queue.capacity()
    }

    /// Changes the size of the receive buffer. What the handshake's window scale cannot announce is
    /// not used, and a window that was announced is not taken back.
    pub fn set_receive_buffer(&mut self, bytes: usize) {
        let largest = 65_535_usize << self.negotiated.receive_shift;
        self.config.receive_buffer_bytes = bytes.clamp(1, largest);
        self.receive.set_capacity(self.config.receive_buffer_bytes);
    }

    /// Turns keepalive on or off.
    pub fn set_keepalive(&mut self, now: Instant, keepalive: Option<crate::config::Keepalive>) {
        self.config.keepalive = keepalive;
        self.unanswered.keepalive_probes = 0;
        match keepalive {
            Some(keepalive) if self.state.is_synchronized() => {
                self.timers.set(Timer::Keepalive, now + keepalive.idle);
            }
            _ => self.timers.stop(Timer::Keepalive),
        }
    }

    /// The path to the peer takes no longer segments than this (RFC 1191, RFC 8201): what is
    /// outstanding and was too long is sent again. RFC 8201, 4: a report MUST NOT raise what is
    /// believed of the path, so a longer length than before changes nothing.
    pub fn on_path_mtu(&mut self, now: Instant, mss_send_max: u16) {
        let before = self.negotiated.payload_max();
        self.negotiated.set_path_mss(mss_send_max);
        let after = self.negotiated.payload_max();
        if after == before {
            return;
        }
        self.congestion.on_mss_change(after);
        if self.state.sends_data() {
            if self.recovery.phase() == Phase::Fast && self.send.flight() > 0 {
                // All of it is sent again, which ends this recovery for the window as well.
                self.congestion.on_recovery_exit(now);
            }
            self.recovery.on_path_change(&self.send);
            self.timed = None;
            self.timers.stop(Timer::Retransmission);
            self.timers.set(Timer::Retransmission, now + self.rtt.rto());
        }
    }

    /// SND.UNA: the oldest sequence number that is not acknowledged.
    #[must_use]
    pub fn first_unacknowledged(&self) -> SeqNumber {
        self.send.una
    }

    /// Whether `sequence` was sent and is not acknowledged: what an ICMP error must quote to be
    /// believed (RFC 5927, 4.1).
    #[must_use]
    pub fn is_outstanding(&self, sequence: SeqNumber) -> bool {
        self.send.una.is_at_or_before(sequence) && sequence.is_before(self.send.max)
    }

    /// ICMP says that the peer cannot be reached. `sequence` is that of the segment it quotes: one
    /// that is not outstanding proves nothing (RFC 5927). Ends an open that is under way; for a
    /// synchronised connection it is a soft error that retransmission outlives (RFC 9293, 3.9.2.2).
    /// Says whether the report was plausible.
    pub fn on_unreachable(&mut self, error: ConnectionError, sequence: SeqNumber) -> bool {
        let plausible =
            self.send.una.is_at_or_before(sequence) && sequence.is_before(self.send.max);
        if plausible && matches!(self.state, State::SynSent | State::SynReceived) {
            self.enter_closed(Some(error));
        }
        plausible
    }

    /// Whether a SYN that arrives in TIME-WAIT may begin a new connection between the same ports
    /// (RFC 6191; RFC 9293, 3.10.7.4): its timestamp, or else its sequence number, is beyond all
    /// that the old connection saw. The new initial sequence number must be beyond
    /// [`Connection::next_isn_min`].
    #[must_use]
    pub fn may_be_replaced_by(&self, now: Instant, syn: &TcpHeader) -> bool {
        if self.state != State::TimeWait {
            return self.state == State::Closed;
        }
        match (self.negotiated.timestamps, syn.options.timestamps) {
            (Some(ours), Some(theirs)) => {
                !ours.is_old(now, theirs.value)
                    && (theirs.value != ours.option(now).echo
                        || syn.sequence.is_after(self.receive.next()))
            }
            _ => syn.sequence.is_after(self.receive.next()),
        }
    }

    /// The least initial sequence number of a connection that replaces this one.
    #[must_use]
    pub fn next_isn_min(&self) -> SeqNumber {
        self.send.max + 1
    }
}
