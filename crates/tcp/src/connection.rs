//! A connection: its parts, and what its owner may do with it.
//!
//! What it sends with and what it receives with are types of their own ([`crate::sender`], [`crate::receiver`]), each made
//! of parts that own one idea. The state machine joins them; the work on it is split by the direction it comes from:
//! [`crate::input`] takes segments, [`crate::output`] builds them, [`crate::timeouts`] takes the passing of time,
//! [`crate::settings`] what is changed of it, and this module its owner's other calls.
//!
//! ```text
//!   append, shutdown, close        on_segment, on_batch_end        on_timeout
//!            \                            |                           /
//!             state  owing  timers  negotiated  events  unanswered
//!                     |                             |
//!       Sender: sequence, queue, recovery,    Receiver: queue, acks,
//!       congestion, pacer, path_mtu, rtt      duplicates, window_tuning
//!                     |                             |
//!               poll_transmit -> Multidata -> on_transmitted(taken)
//! ```
//!
//! What always holds: nothing changes between `poll_transmit` and `on_transmitted`; only the latter
//! moves SND.NXT.

use crate::config::{Config, Parameters};
use crate::counters::{Counting, Lent, TcpCounters};
use crate::event::{ConnectionError, Events, SendError};
use crate::fast_open::FastOpen;
use crate::info::Totals;
use crate::options::Negotiated;
use crate::output::Plan;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::sender::chronograph::Waits;
use crate::sender::congestion::{Congestion as _, Controller};
use crate::sender::path_mtu::PathMtu;
use crate::state::State;
use crate::timers::{Timer, Timers};
use crate::urgent::Urgent;
use crate::user_timeout;
use batch::{BlockPool, Chunk};
use counters::trace;
use std::sync::Arc;
use time::{Duration, Instant};
use wire::{SeqNumber, TcpHeader};

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
    /// The application has said that it will not, though it is there.
    pub(crate) read_shut: bool,
    /// The connection began with our SYN.
    pub(crate) active: bool,
}

impl Owing {
    /// Whether a probe of the window or of the peer's life is owed.
    #[inline]
    pub(crate) fn is_probing(&self) -> bool {
        self.window_probe || self.keepalive_probe
    }
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
    /// Shared until this connection changes something ([`Connection::config_mut`]).
    pub(crate) config: Arc<Config>,
    /// What the peer made of ours (RFC 5482), in seconds; 0 where nothing was agreed on.
    pub(crate) user_timeout_agreed_s: u16,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) negotiated: Negotiated,
    pub(crate) fast_open: Option<Box<FastOpen>>,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) urgent: Urgent,
    pub(crate) last_received_at: Instant,
    pub(crate) timers: Timers,
    pub(crate) owing: Owing,
    pub(crate) unanswered: Unanswered,
    /// What the network said of the peer since that answered last.
    pub(crate) unreachable: Option<ConnectionError>,
    pub(crate) plan: Plan,
    pub(crate) events: Events,
    pub(crate) error: Option<ConnectionError>,
    pub(crate) counters: Counting,
    pub(crate) totals: Totals,
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
        let mut negotiated = Negotiated::offer(&parameters);
        let probing = parameters.config.path_probing;
        let path_mtu = PathMtu::new(parameters.mss_send_max, parameters.mss_default, probing);
        negotiated.set_path_mss(path_mtu.mss());
        let Parameters { config, on_same_subnet, .. } = parameters;
        Self {
            state,
            local_port: parameters.local_port,
            remote_port: parameters.remote_port,
            sender: Sender::new(&config, parameters.isn, negotiated.payload_max(), path_mtu, now),
            receiver: Receiver::new(&config, on_same_subnet, now),
            negotiated,
            last_received_at: now,
            timers: Timers::default(),
            owing: Owing { syn: true, ..Owing::default() },
            unanswered: Unanswered::default(),
            unreachable: None,
            plan: Plan::default(),
            events: Events::NONE,
            error: None,
            counters: Counting::default(),
            urgent: Urgent::default(),
            totals: Totals::default(),
            user_timeout_agreed_s: 0,
            fast_open: None,
            config,
        }
    }

    /// The peer's SYN is here.
    pub(crate) fn take_syn(&mut self, now: Instant, syn: &TcpHeader) {
        self.negotiated.on_syn(now, &syn.options);
        if let Some(agreed) = user_timeout::agreed(&self.config, syn.options.user_timeout) {
            self.user_timeout_agreed_s = agreed.as_secs() as u16;
        }
        self.sender.path_mtu.on_syn(self.negotiated.mss_peer(), self.negotiated.sack);
        self.negotiated.set_path_mss(self.sender.path_mtu.mss());
        if self.sender.ecn.on_syn(syn.flags, self.owing.active) {
            self.counters.ecn_connections += 1;
        }
        self.receiver.queue.on_syn(syn.sequence);
        self.receiver.last_ack_sent = self.receiver.queue.next();
        // RFC 7323, 2.2: the window of a SYN is never scaled.
        self.sender.sequence.on_syn(syn.sequence, u32::from(syn.window));
        self.sender.recovery.set_sack(self.negotiated.sack);
        // What cannot be announced is no window: reads would seem to open it for ever.
        let largest = self.negotiated.receive_buffer_largest();
        self.receiver.window_tuning.set_limit(largest);
        let least = self.negotiated.receive_buffer_least();
        self.receiver.queue.set_capacity(self.receiver.queue.capacity().clamp(least, largest));
        // Nothing was sent, so this is the initial window for the real segment size.
        self.sender.congestion =
            Controller::new(&self.config.congestion, self.negotiated.payload_max());
        if self.unanswered.syns > 0 {
            self.sender.congestion.on_handshake_loss(self.negotiated.payload_max());
        }
    }

    /// Changes the state, and nothing that depends on it.
    #[inline]
    pub(crate) fn enter(&mut self, state: State) {
        trace!(
            local_port = self.local_port,
            remote_port = self.remote_port,
            before = ?self.state,
            now = ?state,
            "state changed"
        );
        self.state = state;
    }

    /// Both SYNs are acknowledged.
    pub(crate) fn enter_established(&mut self, now: Instant) {
        self.enter(State::Established);
        self.owing.syn = false;
        self.unanswered.syns = 0;
        self.sender.rtt.on_established();
        self.sender.tell_round_trip(now);
        self.timers.stop(Timer::Retransmission);
        self.timers.stop(Timer::User);
        self.events.insert(Events::CONNECTED | Events::WRITABLE);
        self.last_received_at = now;
        // What came with the SYN may have been read before (RFC 7413, 4.2.2).
        self.tell_of_window();
        if let Some(keepalive) = self.config.keepalive {
            self.timers.set(Timer::Keepalive, now + keepalive.idle);
        }
        if self.owing.fin {
            self.enter(State::FinWait1);
        }
    }

    /// There is no connection any more.
    pub(crate) fn enter_closed(&mut self, error: Option<ConnectionError>) {
        if self.state == State::Closed {
            return;
        }
        self.enter(State::Closed);
        self.timers.stop_all();
        self.sender.queue.clear();
        self.sender.chronograph.enter(self.last_received_at, Waits::Nothing);
        self.owing = Owing { orphaned: self.owing.orphaned, ..Owing::default() };
        self.unreachable = None;
        self.events.insert(Events::CLOSED | Events::READABLE | Events::WRITABLE);
        if error.is_some() {
            self.error = self.error.or(error);
            self.events.insert(Events::FAILED);
        }
        if self.owing.orphaned {
            self.receiver.queue.clear();
        }
    }

    pub(crate) fn enter_time_wait(&mut self, now: Instant) {
        self.enter(State::TimeWait);
        self.timers.stop_all();
        self.owing.window_probe = false;
        self.timers.set(Timer::Lifetime, now + self.config.time_wait);
    }

    pub(crate) fn enter_fin_wait_2(&mut self, now: Instant) {
        let by_acknowledgment = self.state == State::FinWait1;
        self.enter(State::FinWait2);
        match self.config.fin_wait_2 {
            _ if !self.owing.orphaned => {}
            Duration::ZERO => {
                self.fail_with_reset(None);
                if let Some(reset) = self.owing.reset.as_mut().filter(|_| by_acknowledgment) {
                    // What the segment would be answered with in CLOSED (RFC 9293, 3.10.7.1).
                    reset.acknowledgment = None;
                }
            }
            span => self.timers.set(Timer::Lifetime, now + span),
        }
    }

    /// Fails with a reset to the peer.
    pub(crate) fn fail_with_reset(&mut self, error: Option<ConnectionError>) {
        let (sequence, acknowledgment) = (self.reset_sequence(), Some(self.receiver.queue.next()));
        self.enter_closed(error);
        self.owing.reset = Some(OwedReset { sequence, acknowledgment });
    }

    /// The number, or where that is our SYN's the one behind it. An open connection has left its initial number behind,
    /// which lies ahead again half of the sequence space later.
    pub(crate) fn behind_syn(&self, number: SeqNumber) -> SeqNumber {
        if self.state.is_synchronized() {
            number
        } else {
            number.later_of(self.sender.sequence.iss + 1)
        }
    }

    /// Where the peer takes a reset: at SND.NXT (RFC 9293, 3.10.5), and where its window has shrunk to less than was
    /// sent, at the edge of that, as Linux does it. What its scale rounded off is no shrinking, and a FIN needs no window.
    fn reset_sequence(&self) -> SeqNumber {
        let edge = self.behind_syn(self.sender.sequence.una) + self.sender.sequence.window;
        let rounding = (1 << self.negotiated.send_shift) - 1;
        let sent = self.sender.sequence.nxt.earlier_of(self.sender.queue.end_sequence());
        if sent.is_after(edge + rounding) { edge } else { self.sender.sequence.nxt }
    }

    /// The reset behind the one just sent, if any: the peer may have taken the byte that probed its window and the ACK
    /// of it be lost. Then its RCV.NXT is behind that, and it obeys no other (RFC 5961, 3.2).
    pub(crate) fn reset_behind_probe(&self) -> Option<OwedReset> {
        let OwedReset { sequence, acknowledgment } = self.owing.reset?;
        let is_unanswered = self.unanswered.window_probes > 0 && acknowledgment.is_some();
        let is_wanted = is_unanswered && sequence.is_before(self.sender.sequence.max);
        is_wanted.then_some(OwedReset { sequence: self.sender.sequence.max, acknowledgment })
    }

    /// How long what was sent may wait for its acknowledgment, where there is such a limit.
    pub(crate) fn user_timeout(&self) -> Option<Duration> {
        let agreed = Duration::from_secs(self.user_timeout_agreed_s.into());
        self.config.user_timeout.or((!agreed.is_zero()).then_some(agreed))
    }

    /// Whether the peer is told of duplicates (RFC 2883).
    pub(crate) fn reports_duplicates(&self) -> bool {
        self.negotiated.sack && self.config.duplicate_reports
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Events {
        core::mem::take(&mut self.events)
    }

    /// Our port and the peer's.
    #[must_use]
    pub fn ports(&self) -> (u16, u16) {
        (self.local_port, self.remote_port)
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

    /// What the connection counted in the table it has now.
    #[must_use]
    pub fn counters(&self) -> &TcpCounters {
        &self.counters
    }

    /// Exchanges the table in which the connection counts for another one, with what else is lent:
    /// an owner of many connections lends each of them the same for the time of a call, and takes it
    /// back. A connection without a table makes one when it has something to count.
    pub fn swap_lent(&mut self, lent: &mut Option<Box<Lent>>) {
        self.counters.swap(lent);
    }

    /// The settings. Sizes of buffers are as asked for: [`Connection::send_buffer`] and
    /// [`Connection::receive_buffer`] say what became of them, and of Nagle's algorithm
    /// [`Connection::nodelay`].
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
        self.sender.congestion.window()
    }

    /// The rate at which data is spread now, in bytes per second; `None` where it is not.
    #[must_use]
    pub fn pacing_rate(&self) -> Option<u64> {
        self.sender.pacing_rate(&self.config)
    }

    /// The smoothed round-trip time, once measured.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.sender.rtt.smoothed()
    }

    /// Bytes queued and not yet acknowledged.
    #[must_use]
    pub fn send_queue_len(&self) -> usize {
        self.sender.queue.len()
    }

    /// Bytes queued and never sent.
    #[must_use]
    pub fn unsent_len(&self) -> usize {
        // Numbers in flight may be the SYN's.
        let unsent = self.sender.queue.len_from(self.behind_syn(self.sender.sequence.nxt));
        self.sender.queue.len().min(unsent as usize)
    }

    /// Whether this side has not closed: what has no room now may have some later.
    #[must_use]
    pub fn accepts_data(&self) -> bool {
        self.state.accepts_data() && !self.owing.fin
    }

    /// How many bytes [`Connection::append`] takes now; 0 once this side has closed.
    #[must_use]
    pub fn send_room(&self) -> usize {
        if self.accepts_data() { self.sender.queue.room() } else { 0 }
    }

    /// How data that is appended now will be cut: the payload of a full segment, at least 1, and how
    /// much of the segment that it begins in is queued already. A guess: a window that ends, a push
    /// or another option in the header cuts otherwise.
    #[must_use]
    pub fn segmenting(&self) -> (usize, usize) {
        let full = self.receiver.payload_room(&self.negotiated).max(1) as usize;
        (full, self.unsent_len() % full)
    }

    /// Queues data to be sent. Small chunks are merged into the block before them.
    ///
    /// # Errors
    /// [`SendError::Full`] where the chunk is longer than [`Connection::send_room`],
    /// [`SendError::Closed`] where this side has closed or the connection is gone.
    pub fn append(&mut self, now: Instant, chunk: Chunk) -> Result<(), SendError> {
        if !self.accepts_data() {
            return Err(SendError::Closed);
        }
        if chunk.len() > self.sender.queue.room() {
            return Err(SendError::Full);
        }
        self.sender.on_data_after_silence(now, &self.config, self.negotiated.payload_max());
        self.sender.window_use.after_silence |= self.sender.queue.len() == 0;
        if self.sender.queue.len() == 0 {
            self.sender.chronograph.enter(now, Waits::Path);
        }
        self.sender.queue.append(chunk);
        self.sender.cork.on_append();
        self.arm_persist(now);
        self.arm_pacing(now);
        Ok(())
    }

    /// What was appended last ends a record: no segment has bytes from before and behind its end, nor does a run.
    /// The peer is not told where that is. Nothing happens where all of it is acknowledged.
    pub fn end_record(&mut self) {
        self.sender.queue.end_record();
    }

    /// Moves received bytes to `out` and says how many: 0 where there are none now, or at the end
    /// of the stream ([`Connection::at_end_of_stream`] tells which).
    ///
    /// # Errors
    /// Why the connection failed before the peer's FIN came, once everything received before was read.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, ConnectionError> {
        let len_max = self.read_len_max(out.len());
        let count = self.receiver.queue.read(&mut out[..len_max]);
        if count == 0 && !out.is_empty() {
            return self.error.filter(|_| !self.at_end_of_stream()).map_or(Ok(0), Err);
        }
        self.on_read(count);
        Ok(count)
    }

    /// Hands out up to `len_max` received bytes without copying them; `None` where there are none.
    pub fn read_chunk(&mut self, len_max: usize) -> Option<Chunk> {
        let chunk = self.receiver.queue.read_chunk(self.read_len_max(len_max))?;
        self.on_read(chunk.len());
        Some(chunk)
    }

    fn on_read(&mut self, bytes: usize) {
        self.counters.bytes_read += bytes as u64;
        self.receiver.window_tuning.on_read(bytes);
        self.note_read_urgent();
        self.tell_of_window();
    }

    /// Room was made, by reading or by a larger buffer.
    pub(crate) fn tell_of_window(&mut self) {
        if self.state.receives_data() {
            self.receiver.tell_of_window(&self.negotiated, &mut self.counters);
        }
    }

    /// Copies received bytes to `out`, those that [`Connection::read`] would take, and leaves them where they are.
    #[must_use]
    pub fn peek(&self, out: &mut [u8]) -> usize {
        let len_max = self.read_len_max(out.len());
        self.receiver.queue.peek(&mut out[..len_max])
    }

    /// Bytes received and not yet read.
    #[must_use]
    pub fn readable_len(&self) -> usize {
        self.receiver.queue.len()
    }

    /// What is held of the pool for bytes that arrived and were not read, those included that came ahead of their turn:
    /// the blocks that they lie in, or, where [`Connection::copy_out`] would come to less, twice as many bytes as they
    /// are. Its owner has [`batch::Unread`] count it.
    #[inline]
    #[must_use]
    pub fn unread_held_bytes(&self) -> usize {
        self.receiver.queue.held_bytes()
    }

    /// Whether the blocks in which unread bytes lie are much longer than these: memory that
    /// [`Connection::copy_out`] can give back.
    #[must_use]
    pub fn holds_much_more_than_unread(&self) -> bool {
        self.receiver.queue.holds_much_more()
    }

    /// Copies unread bytes, about `bytes_max` at most, out of blocks of which they are the lesser part,
    /// so that these go back to `pool`; says how many.
    pub fn copy_out(&mut self, pool: &BlockPool, bytes_max: usize) -> usize {
        self.receiver.queue.copy_out(pool, bytes_max)
    }

    /// Whether the peer's FIN is here and all before it was read, whatever became of the other direction then.
    #[must_use]
    pub fn at_end_of_stream(&self) -> bool {
        self.receiver.queue.len() == 0
            && (self.receiver.queue.has_fin()
                || (self.state == State::Closed && self.error.is_none()))
    }

    /// Closes this side's stream: a FIN follows the last queued byte. Receiving goes on.
    pub fn shutdown_write(&mut self) {
        match self.state {
            State::Established => self.enter(State::FinWait1),
            State::CloseWait => self.enter(State::LastAck),
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
                self.receiver.queue.clear();
            }
            _ if self.receiver.queue.len() > 0 => self.fail_with_reset(None),
            State::FinWait2 => self.enter_fin_wait_2(now),
            _ => self.shutdown_write(),
        }
    }

    /// Ends the connection at once, with a reset where the peer must hear of it (RFC 9293, 3.10.5).
    pub fn abort(&mut self) {
        match self.state {
            State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait => self.fail_with_reset(Some(ConnectionError::Aborted)),
            _ => self.enter_closed(Some(ConnectionError::Aborted)),
        }
    }

    /// The local address is gone: nothing can be sent from it, not even a reset.
    pub fn on_address_removed(&mut self) {
        self.enter_closed(Some(ConnectionError::AddressRemoved));
        self.owing.reset = None;
    }

    /// SND.UNA: the oldest sequence number that is not acknowledged.
    #[must_use]
    pub fn first_unacknowledged(&self) -> SeqNumber {
        // There SND.UNA stands behind the SYN, which nobody has acknowledged (`fast_open.rs`).
        if self.is_opening_fast() { self.sender.sequence.iss } else { self.sender.sequence.una }
    }

    /// Whether `sequence` was sent and is not acknowledged: what an ICMP error must quote to be
    /// believed (RFC 5927, 4.1).
    #[must_use]
    pub fn is_outstanding(&self, sequence: SeqNumber) -> bool {
        self.first_unacknowledged().is_at_or_before(sequence)
            && sequence.is_before(self.sender.sequence.max)
    }

    /// ICMP says that the peer cannot be reached. `sequence` is that of the segment it quotes: one
    /// that is not outstanding proves nothing (RFC 5927). Ends an open that is under way; for a
    /// synchronised connection it is a soft error that retransmission outlives (RFC 9293, 3.9.2.2), and
    /// that is told in the stead of a timeout where the peer is not heard of again.
    /// So it is for one whose SYN brought a cookie, as on Linux: the application has it, and would serve
    /// the peer, whose SYN comes again, a second time. Says whether the report was plausible.
    pub fn on_unreachable(&mut self, error: ConnectionError, sequence: SeqNumber) -> bool {
        let plausible = self.is_outstanding(sequence);
        let is_opening = matches!(self.state, State::SynSent | State::SynReceived);
        match is_opening && !self.is_opening_fast() {
            _ if !plausible => {}
            true => self.enter_closed(Some(error)),
            false => self.unreachable = Some(error),
        }
        plausible
    }

    /// Why the peer of an open connection cannot be reached, as a router says of what it has not acknowledged yet; told
    /// once. RFC 9293, 3.9.2.2, SHLD-25: what does not end a connection should be made available to the application.
    pub fn take_soft_error(&mut self) -> Option<ConnectionError> {
        self.unreachable.take()
    }

    /// Why a connection ends whose peer has not answered in time (RFC 5461, 2.2).
    pub(crate) fn timeout_error(&self) -> ConnectionError {
        self.unreachable.unwrap_or(ConnectionError::TimedOut)
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
        let timestamps = self.negotiated.timestamps.as_ref();
        crate::time_wait::replaces(now, timestamps, self.receiver.queue.next(), syn)
    }

    /// The least initial sequence number of a connection that replaces this one.
    #[must_use]
    pub fn next_isn_min(&self) -> SeqNumber {
        self.sender.sequence.max + 1
    }
}
