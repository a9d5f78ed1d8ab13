//! Settings of a connection. Where a tunable of the seeds exists, its name stands beside.

use crate::buffers::BUFFER_BYTES_MAX;
use crate::ecn::EcnMode;
use crate::receiver::assembler::AssemblerConfig;
use crate::sender::congestion::CongestionConfig;
use crate::sender::pacing::Pacing;
use crate::sender::path_mtu::PathProbing;
use crate::sender::rtt::RttConfig;
use core::num::NonZeroU64;
use std::sync::Arc;
use time::Duration;
use wire::SeqNumber;

/// The MSS over IPv4 when the peer announces none (RFC 9293, 3.7.1, MUST-15).
pub const MSS_DEFAULT_IPV4: u16 = 536;

/// The same over IPv6.
pub const MSS_DEFAULT_IPV6: u16 = 1_220;

/// The least segment size worked with; a peer that announces less gets segments of this size, so
/// that a hostile MSS cannot turn a stream into a flood of headers.
pub const MSS_MIN: u16 = 64;

/// When an idle connection is probed (RFC 9293, 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe. RFC 9293, MUST-28: two hours by default.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without an answer after which the connection has failed. A user timeout that is set or agreed on stands
    /// in its place.
    pub count: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(7_200), interval: Duration::from_secs(75), count: 9 }
    }
}

impl Keepalive {
    /// Whether a silent peer can be probed so.
    ///
    /// # Errors
    /// What is zero, and what to do about it: without a time to wait or a probe to answer, the connection fails at once.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.idle.is_zero() {
            return Err("keepalive.idle is zero: set a time above zero, or no keepalive at all");
        }
        if self.interval.is_zero() {
            return Err("keepalive.interval is zero: set a time above zero");
        }
        if self.count == 0 {
            return Err("keepalive.count is zero: set one probe at least, or no keepalive at all");
        }
        Ok(())
    }
}

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// The most bytes the application may queue for sending (`tcp_xmit_hiwat`).
    pub send_buffer_bytes: usize,
    /// Where the send buffer begins; it grows up to `send_buffer_bytes`, to twice of what may be in
    /// flight. Not less than that turns the tuning off.
    pub send_buffer_bytes_initial: usize,
    /// The most bytes received and not yet read, and so the largest window announced
    /// (`tcp_recv_hiwat`); at most 1 GiB (RFC 7323, 2.3), without window scaling 65,535.
    pub receive_buffer_bytes: usize,
    /// Where the window begins; it grows up to `receive_buffer_bytes` by what the application reads
    /// in a round trip. Not less than that turns the tuning off.
    ///
    /// 128 KiB: a peer's first flight is about 14 KiB (RFC 6928), so slow start takes three round
    /// trips to fill it, and each of them is measured before.
    pub receive_buffer_bytes_initial: usize,
    /// Small segments are sent at once (TCP_NODELAY): Nagle's algorithm (RFC 9293, 3.7.4) is off.
    pub nodelay: bool,
    /// With Nagle's algorithm on, a small segment waits only while another *small* one is
    /// unacknowledged (RFC 9293, A.3: Minshall's modification), so that the tail of a large write
    /// goes out with the rest, as Linux does. On by default: held back, the tail of each write of one of
    /// very many connections is a visit of its own at both ends, and an ACK of its own behind the
    /// deferral. Where the device takes super-frames and the path is near it has no effect: there the
    /// tail would be a super-frame of its own (`output/super_frame.rs`).
    pub minshall: bool,
    /// Keepalive; off by default (RFC 9293, MUST-25).
    pub keepalive: Option<Keepalive>,
    /// Offer timestamps (RFC 7323, 3).
    pub timestamps: bool,
    /// Drop segments that come without the timestamps agreed on, as RFC 7323, 3.2 says one SHOULD. Off by
    /// default, as with Linux and FreeBSD: there are peers that leave them out of keepalives, or of everything
    /// behind the handshake, and firewalls that take them out, and every connection to these would hang.
    pub timestamps_required: bool,
    /// Offer selective acknowledgment (RFC 2018).
    pub sack: bool,
    /// Report by it what arrives twice (RFC 2883).
    pub duplicate_reports: bool,
    /// Send the last segment again, or new data, where a peer with SACK is silent for two round trips (RFC 8985, 7).
    pub tail_loss_probes: bool,
    /// Offer window scaling (RFC 7323, 2).
    pub window_scaling: bool,
    /// Congestion control.
    pub congestion: CongestionConfig,
    /// Whether data is spread over the round trip.
    pub pacing: Pacing,
    /// The rate that is not exceeded, in bytes per second: data is spread then whatever `pacing` says
    /// (SO_MAX_PACING_RATE). What is sent again counts and does not wait.
    pub pacing_rate_max: Option<NonZeroU64>,
    /// When the connection finds out itself what its path takes (RFC 4821).
    pub path_probing: PathProbing,
    /// Explicit congestion notification (RFC 3168): accepted where the peer asks.
    pub ecn: EcnMode,
    /// Whether one ACK may stand for all segments of a batch that the device brings, and for more than
    /// two of those that come one by one, as the deferrals below say. On by default. Off is the letter
    /// of RFC 1122: an ACK for every second segment, or for every one where the deferral is 1, each with
    /// its own number, however many come in at one instant.
    pub stretch_acks: bool,
    /// Segments acknowledged by one ACK at most, to peers on the same subnet
    /// (`tcp_local_dacks_max`, 8), unless they come in one batch.
    pub deferred_acks_max_local: u8,
    /// The same to others (`tcp_deferred_acks_max`, 2).
    pub deferred_acks_max_remote: u8,
    /// How long an ACK may be held back (`tcp_deferred_acks_interval`): 40 ms. RFC 9293, 3.8.6.3:
    /// MUST be below 500 ms.
    pub deferred_acks_interval: Duration,
    /// Segments from the start, or after a loss or a pause, that are acknowledged at least two by
    /// two, because the peer is in slow start and counts ACKs.
    pub quick_acks: u32,
    /// Acknowledge each of those on its own, as Linux does; but while the application answers what arrives, the ACK waits
    /// for the answer.
    pub quick_acks_each: bool,
    /// Set PSH on the last segment of every burst, not only where the send queue ends, as Linux does
    /// (RFC 9293, 3.9.1 leaves it to the sender): a receiver that coalesces segments need not wait
    /// for more.
    pub push_bursts: bool,
    /// The largest MSS announced and used (TCP_MAXSEG), where it is below what the path takes.
    pub mss_max: Option<u16>,
    /// Retransmission timeouts.
    pub rtt: RttConfig,
    /// SYNs sent again before an open fails (`tcp_ip_abort_cinterval` in time): 7, 247 s in all (RFC 9293, 3.8.3,
    /// MUST-23: R2 of a SYN is at least three minutes).
    pub syn_retries: u32,
    /// SYN-ACKs sent again before a peer's half-open connection is forgotten: 5, 63 s in all
    /// (`tcp_ip_abort_linterval`).
    pub syn_ack_retries: u32,
    /// Times in a row that the retransmission timer may go off before the connection has failed: 15
    /// (RFC 9293, 3.8.3: R2, at least 100 s). A user timeout that is set or agreed on stands in its place.
    pub retries: u32,
    /// The same for a connection whose application is gone, be its user timeout longer: 8, as Linux has it.
    pub orphan_retries: u32,
    /// Longest time that what was sent may wait for its acknowledgment (data, a SYN, a keepalive
    /// probe), and data for the peer's closed window to open; `None`: as `retries` says, or as agreed on with
    /// the peer.
    pub user_timeout: Option<Duration>,
    /// Tell the peer by an option, and take the longer one of both where none is set here (RFC 5482). So a peer can have
    /// us wait for an hour, the most that is taken from it, where retries or keepalive alone would have given it up.
    pub user_timeout_option: bool,
    /// 2 MSL (`tcp_time_wait_interval`): 60 s.
    pub time_wait: Duration,
    /// How long FIN-WAIT-2 lasts when the application is gone (`tcp_fin_wait_2_flush_interval`). Where it is
    /// zero the connection ends with a reset instead of entering it, and the peer's FIN is not waited for.
    pub fin_wait_2: Duration,
    /// Challenge ACKs per second (RFC 5961, 7).
    pub challenge_acks_per_second: u32,
    /// Bounds of what waits out of order.
    pub assembler: AssemblerConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            send_buffer_bytes: 6 << 20,
            send_buffer_bytes_initial: 1 << 20,
            receive_buffer_bytes: 6 << 20,
            receive_buffer_bytes_initial: 128 << 10,
            nodelay: false,
            minshall: true,
            keepalive: None,
            timestamps: true,
            timestamps_required: false,
            sack: true,
            duplicate_reports: true,
            tail_loss_probes: true,
            window_scaling: true,
            congestion: CongestionConfig::default(),
            pacing: Pacing::default(),
            pacing_rate_max: None,
            path_probing: PathProbing::default(),
            ecn: EcnMode::default(),
            stretch_acks: true,
            deferred_acks_max_local: 8,
            deferred_acks_max_remote: 2,
            deferred_acks_interval: Duration::from_millis(40),
            quick_acks: 8,
            quick_acks_each: false,
            push_bursts: false,
            mss_max: None,
            rtt: RttConfig::default(),
            syn_retries: 7,
            syn_ack_retries: 5,
            retries: 15,
            orphan_retries: 8,
            user_timeout: None,
            user_timeout_option: false,
            time_wait: Duration::from_secs(60),
            fin_wait_2: Duration::from_secs(60),
            challenge_acks_per_second: 10,
            assembler: AssemblerConfig::default(),
        }
    }
}

impl Config {
    /// Whether a connection can work with these settings. One that is made with others takes the least there is for a
    /// buffer, and fails as soon as it waits for its peer.
    ///
    /// # Errors
    /// The field that is wrong, and what to do about it.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.send_buffer_bytes == 0 {
            return Err("send_buffer_bytes is zero: a buffer must hold at least one byte");
        }
        if self.send_buffer_bytes_initial == 0 {
            return Err("send_buffer_bytes_initial is zero: a buffer must hold at least one byte");
        }
        if self.receive_buffer_bytes == 0 {
            return Err("receive_buffer_bytes is zero: a buffer must hold at least one byte");
        }
        if self.receive_buffer_bytes_initial == 0 {
            return Err(
                "receive_buffer_bytes_initial is zero: a buffer must hold at least one byte",
            );
        }
        if self.user_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(
                "user_timeout is zero: set a time above zero, or none for the retries' own",
            );
        }
        self.keepalive.map_or(Ok(()), |keepalive| keepalive.check())
    }

    /// How far a receive buffer may grow.
    pub(crate) fn receive_limit_bytes(&self) -> usize {
        self.receive_buffer_bytes.clamp(1, BUFFER_BYTES_MAX)
    }

    /// The receive buffer that a connection begins with.
    pub(crate) fn receive_buffer_first(&self) -> usize {
        self.receive_limit_bytes().min(self.receive_buffer_bytes_initial).max(1)
    }
}

/// What a connection is told of its circumstances when it is made.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Our port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
    /// Our initial sequence number; see `crate::isn`.
    pub isn: SeqNumber,
    /// Added to the timestamp clock; see `crate::isn`.
    pub timestamp_offset: u32,
    /// The MSS we announce: what our interface receives, without IP and TCP headers.
    pub mss_receive: u16,
    /// The longest segment the path to the peer takes, without IP and TCP headers.
    pub mss_send_max: u16,
    /// The MSS of a peer that announces none: [`MSS_DEFAULT_IPV4`] or [`MSS_DEFAULT_IPV6`]. Every
    /// path of the family takes segments of this size.
    pub mss_default: u16,
    /// Whether the peer is on our subnet: then more ACKs are deferred.
    pub on_same_subnet: bool,
    /// Settings, shared by all connections that have not changed theirs.
    pub config: Arc<Config>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_connection_can_work_with_is_named() {
        assert_eq!(Config::default().check(), Ok(()));
        let probed = |keepalive| Config { keepalive: Some(keepalive), ..Config::default() };
        assert_eq!(probed(Keepalive::default()).check(), Ok(()));
        let usual = Config::default;
        let zero = Duration::ZERO;
        for (field, config) in [
            ("send_buffer_bytes ", Config { send_buffer_bytes: 0, ..usual() }),
            ("send_buffer_bytes_initial ", Config { send_buffer_bytes_initial: 0, ..usual() }),
            ("receive_buffer_bytes ", Config { receive_buffer_bytes: 0, ..usual() }),
            (
                "receive_buffer_bytes_initial ",
                Config { receive_buffer_bytes_initial: 0, ..usual() },
            ),
            ("user_timeout ", Config { user_timeout: Some(zero), ..usual() }),
            ("keepalive.idle ", probed(Keepalive { idle: zero, ..Keepalive::default() })),
            ("keepalive.interval ", probed(Keepalive { interval: zero, ..Keepalive::default() })),
            ("keepalive.count ", probed(Keepalive { count: 0, ..Keepalive::default() })),
        ] {
            let refused = config.check().expect_err(field);
            assert!(refused.starts_with(field), "{refused}");
        }
    }
}
