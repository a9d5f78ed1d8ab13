//! A connection that a peer asked for and has not confirmed: SYN-RECEIVED in 64 bytes.
//!
//! Anybody can send a SYN from any address, so what a SYN costs must be little (RFC 4987, 3.4). Kept
//! is what it said, not what follows from it: the SYN-ACK, its repetitions and at last the
//! [`Connection`] are made from the SYN anew, by the code that every connection uses. What a SYN
//! cookie brings back is the same value.
//!
//! ```text
//!   SYN -> HalfOpen -> syn_ack         ACK -> check -> open -> Connection::on_segment(ACK)
//!   SYN -> SynCookies::encode -> syn_ack         ACK -> SynCookies::decode -> the same
//! ```

use crate::config::Parameters;
use crate::connection::Connection;
use crate::ecn::Ecn;
use crate::options::{Negotiated, TIMESTAMP_TICK};
use crate::output::Opening;
use crate::reset::ResetReply;
use crate::timers::Timer;
use counters::DropReason;
use time::Instant;
use wire::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, TcpTimestamps, TcpUserTimeout};

/// What is kept of a SYN until its sender confirms it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpen {
    /// ISS: the sequence number of our SYN-ACK.
    pub iss: SeqNumber,
    /// IRS: the sequence number of the SYN.
    pub(crate) irs: SeqNumber,
    pub(crate) window: u16,
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    /// TSval of the SYN.
    pub(crate) timestamp: Option<u32>,
    /// What the peer announced by RFC 5482; zero, which says nothing, where it did not.
    pub(crate) user_timeout: TcpUserTimeout,
    /// ECE and CWR, which ask for ECN (RFC 3168, 6.1.1).
    pub(crate) ecn: TcpFlags,
    /// When the SYN-ACK was sent, the last time for want of an answer; `None` where only a cookie tells of it.
    pub(crate) sent_at: Option<Instant>,
    /// How often it was sent again because nothing came.
    pub(crate) timeouts: u16,
    /// It was sent again because the SYN came again.
    pub(crate) is_repeated: bool,
    /// What was known when it was acknowledged first, which need not complete the handshake.
    pub(crate) acknowledged: Option<Acknowledged>,
}

/// The first ACK of a SYN-ACK. What comes after it tells how long the peer, or who accepts, took, and nothing of the
/// path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    /// The round trip that it measured, in microseconds; zero where it measured none.
    round_trip_us: u32,
    /// [`HalfOpen::timeouts`] before it.
    timeouts: u16,
}

/// What a segment for a [`HalfOpen`] asks for (RFC 9293, 3.10.7.4 in SYN-RECEIVED after a passive
/// open).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It acknowledges our SYN: [`HalfOpen::open`], and hand it to the connection.
    Open,
    /// The SYN came again: so does the SYN-ACK.
    SendAgain,
    /// It is outside the window: answer with [`HalfOpen::acknowledgment`].
    Acknowledge,
    /// It acknowledges what was never sent.
    Reset(ResetReply),
    /// The peer wants no connection: forget it.
    Forget,
    /// Nothing.
    Drop(DropReason),
}

impl HalfOpen {
    /// What `syn` says; `iss` is the sequence number its answer will have.
    #[must_use]
    pub fn new(now: Instant, syn: &TcpHeader, iss: SeqNumber) -> Self {
        let ecn = TcpFlags::ECE | TcpFlags::CWR;
        Self {
            iss,
            irs: syn.sequence,
            window: syn.window,
            mss: syn.options.mss,
            window_scale: syn.options.window_scale,
            sack_permitted: syn.options.sack_permitted,
            timestamp: syn.options.timestamps.map(|timestamps| timestamps.value),
            user_timeout: syn.options.user_timeout.unwrap_or_default(),
            ecn: syn.flags.without(TcpFlags(!ecn.0)),
            sent_at: Some(now),
            timeouts: 0,
            is_repeated: false,
            acknowledged: None,
        }
    }

    /// IRS: the sequence number of the SYN.
    #[must_use]
    pub fn irs(&self) -> SeqNumber {
        self.irs
    }

    /// The connection with its SYN-ACK yet to be sent, where the SYN was left without an answer so far.
    #[must_use]
    pub fn accept(&self, now: Instant, mut parameters: Parameters) -> Connection {
        parameters.isn = self.iss;
        Connection::accept(parameters, now, &self.syn())
    }

    /// The reset that refuses the SYN; the ports are ours and the peer's.
    #[must_use]
    pub fn refusal(&self, local_port: u16, remote_port: u16) -> TcpHeader {
        let reply = ResetReply { sequence: SeqNumber(0), acknowledgment: Some(self.irs + 1) };
        reply.header(local_port, remote_port)
    }

    /// Whether nothing but a SYN cookie tells of it.
    #[must_use]
    pub fn is_from_cookie(&self) -> bool {
        self.sent_at.is_none()
    }

    /// What the connection will have agreed on.
    fn negotiated(&self, now: Instant, parameters: &Parameters) -> Negotiated {
        let mut negotiated = Negotiated::offer(parameters);
        negotiated.on_syn(now, &self.syn().options);
        negotiated
    }

    /// The SYN-ACK, as the connection would send it, and without one: of most SYNs of a flood none comes.
    #[must_use]
    pub fn syn_ack(&self, now: Instant, parameters: Parameters) -> TcpHeader {
        let config = &parameters.config;
        let mut ecn = Ecn::new(config.ecn);
        ecn.on_syn(self.ecn, false);
        let opening = Opening {
            ports: (parameters.local_port, parameters.remote_port),
            iss: self.iss,
            acknowledgment: Some(self.irs + 1),
            window_bytes: config.receive_buffer_first(),
            ecn: &ecn,
            negotiated: &self.negotiated(now, &parameters),
            config,
        };
        opening.header(now)
    }

    /// The timer of the SYN-ACK went off: it is sent again.
    pub fn on_timeout(&mut self, now: Instant) {
        self.timeouts = self.timeouts.saturating_add(1);
        self.sent_at = self.sent_at.map(|_| now);
    }

    /// The SYN came again, and the SYN-ACK is sent again for it.
    pub fn on_repeated(&mut self, syn: &TcpHeader) {
        self.is_repeated = true;
        self.on_syn_again(syn);
    }

    /// The SYN came again before it was answered. RFC 3168, 6.1.1: who has received a SYN that does not ask for ECN
    /// SHOULD NOT use it, for its sender will not.
    pub fn on_syn_again(&mut self, syn: &TcpHeader) {
        self.ecn = self.ecn.without(TcpFlags(!syn.flags.0));
        // RFC 7323, 4.3: TS.Recent follows, or the client would take all its waiting for the path's round trip.
        let later = syn.options.timestamps.filter(|it| {
            self.timestamp.is_some_and(|before| SeqNumber(it.value).is_after(SeqNumber(before)))
        });
        self.timestamp = later.map(|it| it.value).or(self.timestamp);
    }

    /// A segment acknowledges the SYN-ACK. It is the first of them that tells of the path, also where the handshake is
    /// completed by one that comes much later.
    pub fn on_acknowledged(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        parameters: impl FnOnce() -> Parameters,
    ) {
        if self.acknowledged.is_some() {
            return;
        }
        let round_trip = match self.sent_at.filter(|_| !self.is_ambiguous()) {
            Some(sent_at) => Some(now - sent_at),
            None => {
                let ours = self.negotiated(now, &parameters()).timestamps;
                let echo = header.options.timestamps.map(|timestamps| timestamps.echo);
                let age = ours.zip(echo).and_then(|(ours, echo)| ours.round_trip(now, echo));
                // The echo of one before the last tells how long none of the peer's ACKs arrived.
                let since = self.sent_at.filter(|_| self.timeouts > 0).map(|at| now - at);
                age.filter(|age| since.is_none_or(|since| *age <= since + TIMESTAMP_TICK))
            }
        };
        let us = round_trip.map_or(0, |it| it.as_micros().max(1));
        self.acknowledged = Some(Acknowledged {
            round_trip_us: u32::try_from(us).unwrap_or(u32::MAX),
            timeouts: self.timeouts,
        });
    }

    /// Whether the peer has acknowledged the SYN-ACK.
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        self.acknowledged.is_some()
    }

    /// Karn: of several SYN-ACKs it could not be told which was answered.
    fn is_ambiguous(&self) -> bool {
        self.is_repeated || self.timeouts > 0
    }

    /// When a SYN-ACK was sent that is acknowledged `now`; zero where that cannot be told. After the ACK that came
    /// first, it is as long ago as that measured.
    fn measured_from(&self, now: Instant) -> Instant {
        match self.acknowledged {
            Some(Acknowledged { round_trip_us: 0, .. }) => Instant::ZERO,
            Some(Acknowledged { round_trip_us, .. }) => {
                Instant::ZERO + (now - Instant::from_micros(round_trip_us.into()))
            }
            None => self.sent_at.filter(|_| !self.is_ambiguous()).unwrap_or_default(),
        }
    }

    /// How often the SYN-ACK was sent again because nothing came.
    #[must_use]
    pub fn timeouts(&self) -> u32 {
        self.timeouts.into()
    }

    /// It returns to LISTEN, and the peer's next SYN begins anew. To a peer that has acknowledged the SYN-ACK, and only
    /// has no data yet, the connection is open: its SYN is challenged (RFC 5961, 4.2).
    fn on_syn_in_window(&self) -> Verdict {
        if self.acknowledged.is_some() { Verdict::Acknowledge } else { Verdict::Forget }
    }

    /// What a segment with `payload_len` bytes asks for; `window` is what the SYN-ACK announced.
    #[must_use]
    pub fn check(&self, header: &TcpHeader, payload_len: u32, window: u32) -> Verdict {
        let flags = header.flags;
        let has = |flag| flags.contains(flag);
        if has(TcpFlags::SYN) && !flags.intersects(TcpFlags::ACK | TcpFlags::RST) {
            if header.sequence == self.irs {
                return Verdict::SendAgain;
            }
            return match header.sequence.in_window(self.irs + 1, window) {
                true => self.on_syn_in_window(),
                false => Verdict::Acknowledge,
            };
        }
        // First: the sequence number. A zero window is never announced here.
        let next = self.irs + 1;
        let first = header.sequence.in_window(next, window);
        let last = payload_len > 0 && (header.sequence + (payload_len - 1)).in_window(next, window);
        // At the right edge stand the ACKs of a peer whose data has filled the window and been lost; see
        // `Connection::check_sequence`.
        let edge = header.sequence == next + window && flags == TcpFlags::ACK;
        if !first && !last && !edge {
            return match has(TcpFlags::RST) {
                true => Verdict::Drop(DropReason::OutOfWindow),
                false => Verdict::Acknowledge,
            };
        }
        // Second: RST (RFC 5961, 3.2). Fourth: SYN.
        if has(TcpFlags::RST) {
            let exact = header.sequence == next;
            return if exact { Verdict::Forget } else { Verdict::Acknowledge };
        }
        if has(TcpFlags::SYN) {
            return self.on_syn_in_window();
        }
        // Fifth: ACK.
        if !has(TcpFlags::ACK) {
            return Verdict::Drop(DropReason::BadAck);
        }
        if header.acknowledgment != self.iss + 1 {
            return Verdict::Reset(ResetReply {
                sequence: header.acknowledgment,
                acknowledgment: None,
            });
        }
        Verdict::Open
    }

    /// The bare ACK that answers a segment outside the window.
    #[must_use]
    pub fn acknowledgment(&self, now: Instant, parameters: Parameters) -> TcpHeader {
        let syn_ack = self.syn_ack(now, parameters);
        // RFC 7323, 2.2: the window of a SYN is not scaled, that of every other segment is.
        let shift = syn_ack.options.window_scale.unwrap_or(0);
        TcpHeader {
            sequence: self.iss + 1,
            flags: TcpFlags::ACK,
            window: syn_ack.window >> shift,
            options: TcpOptions { timestamps: syn_ack.options.timestamps, ..TcpOptions::default() },
            ..syn_ack
        }
    }

    /// The reset that ends it (RFC 9293, 3.10.5, SYN-RECEIVED): at SND.NXT for a peer to whom the connection is open
    /// already, with the acknowledgment that one in SYN-SENT asks for.
    #[must_use]
    pub fn reset(&self, now: Instant, parameters: Parameters) -> TcpHeader {
        let flags = TcpFlags::RST | TcpFlags::ACK;
        TcpHeader { flags, window: 0, ..self.acknowledgment(now, parameters) }
    }

    /// The connection in SYN-RECEIVED, its SYN-ACK sent. The segment that completes the handshake is
    /// for [`Connection::on_segment`].
    #[must_use]
    pub fn open(&self, now: Instant, parameters: Parameters) -> Connection {
        let sent_at = self.sent_at.unwrap_or(now);
        let mut connection = self.accept(sent_at, parameters);
        for _ in 0..self.acknowledged.map_or(self.timeouts, |it| it.timeouts) {
            connection.on_syn_timeout(now);
        }
        connection.owing.syn = false;
        connection.sender.sequence.on_sent(self.iss + 1);
        connection.receiver.acks.on_sent();
        connection.receiver.last_ack_sent = connection.receiver.queue.next();
        connection.sender.syn_sent_at = self.measured_from(now);
        let rto = connection.sender.rtt.rto();
        connection.timers.set(Timer::Retransmission, sent_at + rto);
        connection
    }

    /// The SYN as far as it matters, without its ports.
    #[must_use]
    pub fn syn(&self) -> TcpHeader {
        TcpHeader {
            sequence: self.irs,
            flags: TcpFlags::SYN | self.ecn,
            window: self.window,
            options: TcpOptions {
                mss: self.mss,
                window_scale: self.window_scale,
                sack_permitted: self.sack_permitted,
                timestamps: self.timestamp.map(|value| TcpTimestamps { value, echo: 0 }),
                user_timeout: Some(self.user_timeout).filter(|it| *it != TcpUserTimeout::default()),
                ..TcpOptions::default()
            },
            ..TcpHeader::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::State;
    use crate::tests::harness::{ACK, FIN, IRS, ISS, RST, SYN, parameters, plain_config};
    use crate::{Config, Segment};

    fn segment<'a>(header: &'a TcpHeader, payload: Option<&[u8]>) -> Segment<'a> {
        Segment {
            header,
            payload: payload.map(crate::tests::harness::chunk),
            sparse: false,
            segment_len: 0,
            congestion_experienced: false,
        }
    }

    fn half_open() -> HalfOpen {
        let syn = TcpHeader {
            sequence: IRS,
            flags: SYN,
            window: 5_000,
            options: TcpOptions { mss: Some(900), window_scale: Some(3), ..TcpOptions::default() },
            ..TcpHeader::default()
        };
        HalfOpen::new(Instant::from_millis(1), &syn, ISS)
    }

    // RFC 9293, 3.10.7.4, SYN-RECEIVED: each check in its order.
    #[test]
    fn every_segment_is_judged_as_in_syn_received() {
        let verdict = |flags, sequence: u32, ack: u32, len| {
            let header = TcpHeader {
                sequence: IRS + sequence,
                acknowledgment: ISS + ack,
                flags,
                ..TcpHeader::default()
            };
            half_open().check(&header, len, 20_000)
        };
        let reset = |ack| Verdict::Reset(ResetReply { sequence: ISS + ack, acknowledgment: None });
        for (flags, sequence, ack, len, expected) in [
            (SYN, 0, 0, 0, Verdict::SendAgain),
            (SYN, 500, 0, 0, Verdict::Forget),
            (SYN, 90_000, 0, 0, Verdict::Acknowledge),
            (SYN | ACK, 0, 1, 0, Verdict::Acknowledge),
            (SYN | ACK, 1, 1, 0, Verdict::Forget),
            (ACK, 1, 1, 0, Verdict::Open),
            (ACK, 1, 1, 700, Verdict::Open),
            (ACK, 0, 1, 700, Verdict::Open),
            (FIN | ACK, 1, 1, 0, Verdict::Open),
            (ACK, 30_000, 1, 0, Verdict::Acknowledge),
            (ACK, 20_001, 1, 0, Verdict::Open),
            (ACK, 20_002, 1, 0, Verdict::Acknowledge),
            (SYN | ACK, 20_001, 1, 0, Verdict::Acknowledge),
            (ACK, 1, 0, 0, reset(0)),
            (ACK, 1, 2, 0, reset(2)),
            (TcpFlags::NONE, 1, 1, 5, Verdict::Drop(DropReason::BadAck)),
            (RST, 1, 0, 0, Verdict::Forget),
            (RST, 2, 0, 0, Verdict::Acknowledge),
            (RST, 0, 0, 0, Verdict::Drop(DropReason::OutOfWindow)),
        ] {
            assert_eq!(verdict(flags, sequence, ack, len), expected, "{flags:?} {sequence} {ack}");
        }
    }

    #[test]
    fn the_connection_it_becomes_has_agreed_on_what_the_syn_said() {
        let config = Config { window_scaling: true, ..plain_config() };
        let now = Instant::from_millis(51);
        let syn_ack = half_open().syn_ack(now, parameters(config.clone()));
        assert_eq!((syn_ack.flags, syn_ack.sequence), (SYN | ACK, ISS));
        assert_eq!(syn_ack.acknowledgment, IRS + 1);
        assert!(syn_ack.options.window_scale.is_some());
        let mut connection = half_open().open(now, parameters(config));
        let ack = TcpHeader {
            sequence: IRS + 1,
            acknowledgment: ISS + 1,
            flags: ACK,
            window: 100,
            ..TcpHeader::default()
        };
        let segment = segment(&ack, None);
        let pool = batch::BlockPool::new(batch::PoolConfig::default());
        assert_eq!(connection.on_segment(now, segment, &pool), Ok(()));
        assert_eq!(connection.state(), State::Established);
        assert_eq!((connection.payload_max(), connection.sender.sequence.window), (900, 800));
        assert_eq!(connection.smoothed_rtt(), Some(time::Duration::from_millis(50)));
        assert!(!connection.wants_transmit(now));
    }

    #[test]
    fn the_syn_ack_is_what_the_connection_would_send() {
        let now = Instant::from_millis(51);
        let asks = HalfOpen { ecn: TcpFlags::ECE | TcpFlags::CWR, ..half_open() };
        let says_more = HalfOpen { timestamp: Some(7), sack_permitted: true, ..asks };
        let says_little = HalfOpen { mss: None, window_scale: None, ..half_open() };
        let small = Config {
            receive_buffer_bytes: 3_000,
            ecn: crate::EcnMode::Accept,
            user_timeout_option: true,
            ..Config::default()
        };
        for config in [plain_config(), Config::default(), small] {
            for kept in [half_open(), asks, says_more, says_little] {
                let connection = kept.accept(now, parameters(config.clone()));
                let syn_ack = kept.syn_ack(now, parameters(config.clone()));
                assert_eq!(syn_ack, connection.syn_header(now));
            }
        }
    }

    // RFC 3168, 6.1.1 and 6.1.1.1: a client that repeats its SYN without asking will not echo marks.
    #[test]
    fn a_syn_that_asks_for_ecn_no_more_is_answered_without() {
        let now = Instant::from_millis(1_000);
        let mut half_open = half_open();
        half_open.ecn = TcpFlags::ECE | TcpFlags::CWR;
        let asks = half_open.syn();
        half_open.on_repeated(&asks);
        assert!(half_open.open(now, parameters(plain_config())).info(now).ecn);
        half_open.on_repeated(&TcpHeader { flags: TcpFlags::SYN, ..asks });
        let syn_ack = half_open.syn_ack(now, parameters(plain_config()));
        assert!(!syn_ack.flags.contains(TcpFlags::ECE));
        half_open.on_repeated(&asks);
        assert!(!half_open.open(now, parameters(plain_config())).info(now).ecn, "of several any");
    }

    // RFC 5961, 4: whoever guesses sequence numbers cannot end what is open to its client.
    #[test]
    fn a_syn_is_challenged_where_the_handshake_only_waits_for_data() {
        let mut half_open = half_open();
        let ack = TcpHeader { acknowledgment: ISS + 1, flags: ACK, ..TcpHeader::default() };
        let syn = |flags| TcpHeader {
            sequence: IRS + 500,
            acknowledgment: ISS + 1,
            flags,
            ..TcpHeader::default()
        };
        assert_eq!(half_open.check(&syn(SYN), 0, 20_000), Verdict::Forget);
        half_open.on_acknowledged(Instant::from_millis(51), &ack, || parameters(plain_config()));
        for flags in [SYN, SYN | ACK] {
            assert_eq!(half_open.check(&syn(flags), 0, 20_000), Verdict::Acknowledge);
        }
    }

    // RFC 7323, 4.1: the echo is of the SYN-ACK, however long its ACK has been lost and the client silent.
    #[test]
    fn data_behind_a_cookie_measures_no_round_trip() {
        let config = Config { timestamps: true, ..plain_config() };
        let smoothed = |payload: Option<&[u8]>| {
            let half_open = HalfOpen { sent_at: None, timestamp: Some(7), ..half_open() };
            let sent_at = Instant::from_millis(1_000);
            let syn_ack = half_open.syn_ack(sent_at, parameters(config.clone()));
            let ours = syn_ack.options.timestamps.expect("the SYN had one").value;
            let now = sent_at + time::Duration::from_secs(38);
            let mut connection = half_open.open(now, parameters(config.clone()));
            let options = TcpOptions {
                timestamps: Some(TcpTimestamps { value: 8, echo: ours }),
                ..TcpOptions::default()
            };
            let header = TcpHeader {
                sequence: IRS + 1,
                acknowledgment: ISS + 1,
                flags: ACK,
                options,
                ..TcpHeader::default()
            };
            let segment = segment(&header, payload);
            let pool = batch::BlockPool::new(batch::PoolConfig::default());
            assert_eq!(connection.on_segment(now, segment, &pool), Ok(()));
            assert_eq!(connection.state(), State::Established);
            connection.smoothed_rtt()
        };
        assert_eq!(smoothed(Some(b"at last")), None);
        assert_eq!(smoothed(None), Some(time::Duration::from_secs(38)));
    }

    // RFC 6298, 3 (Karn): of two SYN-ACKs it cannot be told which was answered, but by a timestamp.
    #[test]
    fn a_syn_ack_that_was_repeated_measures_no_round_trip() {
        let mut half_open = half_open();
        half_open.on_repeated(&half_open.syn());
        let now = Instant::from_millis(1_051);
        let mut connection = half_open.open(now, parameters(plain_config()));
        let ack = TcpHeader {
            sequence: IRS + 1,
            acknowledgment: ISS + 1,
            flags: ACK,
            ..TcpHeader::default()
        };
        let segment = segment(&ack, None);
        let pool = batch::BlockPool::new(batch::PoolConfig::default());
        assert_eq!(connection.on_segment(now, segment, &pool), Ok(()));
        assert_eq!(connection.smoothed_rtt(), None);
    }

    /// The connection once the client, whose ACK came after 50 ms, has said something after 5 s.
    fn opened_late(mut half_open: HalfOpen, echo: Option<u32>) -> Connection {
        let config = Config { timestamps: true, ..plain_config() };
        let timestamps = |value| echo.map(|echo| TcpTimestamps { value, echo });
        let options = |value| TcpOptions { timestamps: timestamps(value), ..TcpOptions::default() };
        let ack = TcpHeader {
            sequence: IRS + 1,
            acknowledgment: ISS + 1,
            flags: ACK,
            window: 100,
            options: options(8),
            ..TcpHeader::default()
        };
        let first = Instant::from_millis(1_051);
        half_open.on_acknowledged(first, &ack, || parameters(config.clone()));
        // Neither what comes later nor that the SYN-ACK is sent again tells anything.
        let now = Instant::from_millis(6_001);
        half_open.on_timeout(now);
        half_open.on_acknowledged(now, &ack, || parameters(config.clone()));
        let mut connection = half_open.open(now, parameters(config));
        let header = TcpHeader { options: options(9), ..ack };
        let segment = segment(&header, None);
        let pool = batch::BlockPool::new(batch::PoolConfig::default());
        assert_eq!(connection.on_segment(now, segment, &pool), Ok(()));
        connection
    }

    // RFC 6298, 2: the first ACK is of the path, all later ones are of who had nothing to say.
    #[test]
    fn the_first_acknowledgment_measures_the_round_trip() {
        let sent_at = Instant::from_millis(1_001);
        let rtt = Some(time::Duration::from_millis(50));
        let once = HalfOpen { sent_at: Some(sent_at), ..half_open() };
        let connection = opened_late(once, None);
        let window = connection.info(Instant::from_millis(6_001)).congestion_window_bytes;
        assert_eq!(connection.smoothed_rtt(), rtt);
        assert!(window > 1_800, "no segment was lost: {window}");
        // Karn: of two SYN-ACKs a timestamp alone tells which was answered.
        let twice = HalfOpen { is_repeated: true, timestamp: Some(7), ..once };
        let config = Config { timestamps: true, ..plain_config() };
        let syn_ack = twice.syn_ack(sent_at, parameters(config));
        let ours = syn_ack.options.timestamps.expect("both have them").value;
        assert_eq!(opened_late(twice, Some(ours)).smoothed_rtt(), rtt);
        let untold = HalfOpen { timestamp: None, ..twice };
        assert_eq!(opened_late(untold, None).smoothed_rtt(), None);
    }

    // RFC 7323, 4.3: a client whose ACKs were lost for a while goes on echoing the first SYN-ACK.
    #[test]
    fn the_echo_of_an_earlier_syn_ack_measures_no_round_trip() {
        let config = Config { timestamps: true, ..plain_config() };
        let measured = |of_last: bool, is_deferred: bool| {
            let mut half_open = HalfOpen { timestamp: Some(7), ..half_open() };
            let mut sent_at = Instant::from_millis(1);
            let syn_ack = |half_open: &HalfOpen, now| {
                let syn_ack = half_open.syn_ack(now, parameters(config.clone()));
                syn_ack.options.timestamps.expect("the SYN had one").value
            };
            let first = syn_ack(&half_open, sent_at);
            for pause_s in [1, 2, 4] {
                sent_at += time::Duration::from_secs(pause_s);
                half_open.on_timeout(sent_at);
            }
            let echo = if of_last { syn_ack(&half_open, sent_at) } else { first };
            let timestamps = Some(TcpTimestamps { value: 8, echo });
            let ack = TcpHeader {
                sequence: IRS + 1,
                acknowledgment: ISS + 1,
                flags: ACK,
                options: TcpOptions { timestamps, ..TcpOptions::default() },
                ..TcpHeader::default()
            };
            let mut now = sent_at + time::Duration::from_millis(50);
            let mut payload = None;
            if is_deferred {
                half_open.on_acknowledged(now, &ack, || parameters(config.clone()));
                now += time::Duration::from_secs(1);
                payload = Some(&b"data"[..]);
            }
            let mut connection = half_open.open(now, parameters(config.clone()));
            let pool = batch::BlockPool::new(batch::PoolConfig::default());
            assert_eq!(connection.on_segment(now, segment(&ack, payload), &pool), Ok(()));
            connection.smoothed_rtt()
        };
        for is_deferred in [false, true] {
            let rtt = Some(time::Duration::from_millis(50));
            assert_eq!(measured(true, is_deferred), rtt, "deferred: {is_deferred}");
            assert_eq!(measured(false, is_deferred), None, "deferred: {is_deferred}");
        }
    }

    // RFC 7323, 4.3: a SYN that comes again is at Last.ACK.sent, and TS.Recent becomes that of the latest.
    #[test]
    fn the_timestamp_of_the_latest_syn_is_echoed() {
        let config = Config { timestamps: true, ..plain_config() };
        let mut half_open = HalfOpen { timestamp: Some(u32::MAX), ..half_open() };
        let echoed = |half_open: &HalfOpen| {
            let syn_ack = half_open.syn_ack(Instant::from_millis(5), parameters(config.clone()));
            syn_ack.options.timestamps.expect("both have them").echo
        };
        for (value, expected) in [(7, 7), (3, 7)] {
            let timestamps = Some(TcpTimestamps { value, echo: 0 });
            let options = TcpOptions { timestamps, ..TcpOptions::default() };
            half_open.on_repeated(&TcpHeader { flags: SYN, options, ..TcpHeader::default() });
            assert_eq!(echoed(&half_open), expected);
        }
        let mut without = self::half_open();
        without.on_repeated(&half_open.syn());
        assert_eq!(without.timestamp, None, "the first SYN says what is agreed on");
    }

    // RFC 5482, 3: a passive open takes the peer's timeout, too.
    #[test]
    fn the_user_timeout_of_the_syn_is_kept() {
        let seconds = |seconds| TcpUserTimeout::from_seconds(seconds);
        let config = Config { user_timeout_option: true, ..plain_config() };
        for (theirs, agreed) in [(None, None), (Some(0), None), (Some(500), Some(500))] {
            let options = TcpOptions { user_timeout: theirs.map(seconds), ..TcpOptions::default() };
            let syn = TcpHeader { sequence: IRS, flags: SYN, options, ..TcpHeader::default() };
            let now = Instant::from_millis(1);
            let connection = HalfOpen::new(now, &syn, ISS).open(now, parameters(config.clone()));
            assert_eq!(connection.user_timeout(), agreed.map(time::Duration::from_secs));
        }
    }

    // RFC 9293, 3.8.3: a SYN-ACK has its own limit.
    #[test]
    fn a_late_handshake_opens_a_connection() {
        let config = Config { syn_retries: 1, syn_ack_retries: 4, ..plain_config() };
        let mut half_open = half_open();
        let now = Instant::from_millis(30_000);
        (0..4).for_each(|_| half_open.on_timeout(now));
        assert_eq!(half_open.open(now, parameters(config)).state(), State::SynReceived);
    }

    /// RFC 7323, 2.2, and RFC 9293, 3.8.6: unscaled, the bare ACK would offer a window that nobody
    /// can keep open.
    #[test]
    fn the_bare_ack_offers_what_the_syn_ack_did() {
        let config = Config { receive_buffer_bytes: 1 << 20, ..plain_config() };
        let config =
            Config { window_scaling: true, receive_buffer_bytes_initial: 1 << 20, ..config };
        let now = Instant::from_millis(51);
        let syn_ack = half_open().syn_ack(now, parameters(config.clone()));
        let ack = half_open().acknowledgment(now, parameters(config));
        let shift = syn_ack.options.window_scale.expect("both scale");
        assert!(shift > 0);
        let offered = u32::from(ack.window) << shift;
        assert!((1..=u32::from(syn_ack.window)).contains(&offered), "{offered}");
    }

    #[test]
    fn it_is_small() {
        assert!(size_of::<HalfOpen>() <= 64, "{}", size_of::<HalfOpen>());
    }
}
