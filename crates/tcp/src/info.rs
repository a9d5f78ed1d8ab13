//! How a connection is doing, for whoever wants to know: what Linux calls `tcp_info`.
//!
//! [`TcpInfo`] is a value, put together when it is asked for; a connection keeps only [`Totals`],
//! sums that nothing else needs. Windows, rates and everything that counts data are in bytes here,
//! where Linux counts segments; [`TcpInfo::segments`] converts.

use crate::connection::Connection;
use crate::sender::congestion::Congestion as _;
use crate::sender::recovery::RecoveryState;
use crate::state::State;
use time::{Duration, Instant};
use wire::SeqNumber;

/// Sums of one connection's life.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) segments_received: u64,
    pub(crate) segments_sent: u64,
    pub(crate) data_segments_received: u64,
    pub(crate) data_segments_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_acknowledged: u64,
    pub(crate) bytes_retransmitted: u64,
    pub(crate) segments_retransmitted: u32,
    pub(crate) segments_out_of_order: u32,
    pub(crate) marked_segments_received: u32,
    pub(crate) duplicates_reported_by_peer: u32,
    pub(crate) reorderings_seen: u32,
    /// The data that went, or came, with the SYN was all taken.
    pub(crate) syn_data: bool,
}

/// Adds to a sum that stays at the largest number it can hold.
#[inline]
pub(crate) fn count(sum: &mut u32, by: u32) {
    *sum = sum.saturating_add(by);
}

/// What is sent and not acknowledged, in segments: of each burst as many as it has at the MSS of today.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// All of them.
    pub all: u32,
    /// Of these, reported by SACK.
    pub sacked: u32,
    /// Of these, found lost and not sent again.
    pub lost: u32,
    /// Of these, sent again and not known to have arrived.
    pub again: u32,
}

/// A connection at one instant.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TcpInfo {
    /// RFC 9293 state.
    pub state: State,
    /// What the sender does about loss.
    pub recovery: RecoveryState,
    /// Times in a row that the retransmission timer went off.
    pub retransmits: u32,
    /// Unanswered probes of a closed window and of an idle peer.
    pub probes: u32,
    /// How often the retransmission timeout has doubled.
    pub backoff: u32,

    /// Timestamps are in use (RFC 7323).
    pub timestamps: bool,
    /// Selective acknowledgment is in use (RFC 2018).
    pub sack: bool,
    /// Marks of congestion are in use (RFC 3168).
    pub ecn: bool,
    /// The data of the SYN, ours or the peer's, was all taken with it (RFC 7413).
    pub syn_data: bool,
    /// Shift of the windows the peer announces, and of ours (RFC 7323, 2); `None` where they are not
    /// scaled.
    pub window_scale: Option<(u8, u8)>,

    /// The retransmission timeout, back-off included (RFC 6298).
    pub rto: Duration,
    /// How long an ACK may be held back.
    pub ato: Duration,
    /// Payload of a full segment to the peer, and of one from it.
    pub send_mss_bytes: u32,
    /// See `send_mss_bytes`.
    pub receive_mss_bytes: u32,
    /// The MSS that our SYN announced.
    pub advertised_mss_bytes: u32,
    /// The longest segment that the path is believed to take, options included.
    pub path_mss_bytes: u32,

    /// SND.NXT and RCV.NXT: where in a capture the connection is.
    pub send_next: SeqNumber,
    /// See `send_next`.
    pub receive_next: SeqNumber,

    /// Sent and not acknowledged.
    pub unacknowledged_bytes: u32,
    /// Of these, reported by SACK.
    pub sacked_bytes: u32,
    /// Of these, found lost and not sent again.
    pub lost_bytes: u32,
    /// Of these, sent again and not known to have arrived.
    pub again_bytes: u32,
    /// Queued and never sent.
    pub unsent_bytes: u32,
    /// What is unacknowledged, and what became of it, in segments.
    pub outstanding: SegmentCounts,

    /// Since data was sent last.
    pub since_data_sent: Duration,
    /// Since an acceptable segment arrived last.
    pub since_received: Duration,
    /// Since data arrived in order last; before that as `since_received`.
    pub since_data_received: Duration,

    /// Smoothed round-trip time and its variation, once measured (RFC 6298).
    pub rtt: Option<Duration>,
    /// See `rtt`.
    pub rtt_variation: Option<Duration>,
    /// The least round-trip time measured. Not zero: samples within one reading of the clock do not count.
    pub rtt_min: Option<Duration>,
    /// The receiver's estimate of the round-trip time, which paces the window's growth.
    pub receive_rtt: Option<Duration>,

    /// The congestion control's name.
    pub congestion: &'static str,
    /// The congestion window.
    pub congestion_window_bytes: u32,
    /// `ssthresh`; `u32::MAX` before the first reduction.
    pub slow_start_threshold_bytes: u32,
    /// How far the path is known to reorder, in segments (RFC 8985, 6.2.1; at least 3).
    pub reordering_segments: u32,
    /// Payload that was delivered, by ACK or by SACK, and that was found lost, in all.
    pub delivered_bytes: u64,
    /// See `delivered_bytes`.
    pub lost_bytes_total: u64,
    /// The rate at which data is spread, in bytes per second; `None` where it is not.
    pub pacing_rate: Option<u64>,
    /// The rate at which the path delivered when last measured, in bytes per second, and whether the
    /// application bounded it.
    pub delivery_rate: Option<(u64, bool)>,
    /// SND.WND, the window the peer offers.
    pub send_window_bytes: u32,
    /// RCV.WND, the window we offer.
    pub receive_window_bytes: u32,
    /// Size of the receive buffer, which the window follows.
    pub receive_buffer_bytes: usize,
    /// Size of the send buffer.
    pub send_buffer_bytes: usize,

    /// Segments, pure ACKs included.
    pub segments_sent: u64,
    /// See `segments_sent`.
    pub segments_received: u64,
    /// Segments with payload, sent for the first time.
    pub data_segments_sent: u64,
    /// Segments with payload that was new.
    pub data_segments_received: u64,
    /// Payload sent for the first time.
    pub bytes_sent: u64,
    /// Payload acknowledged.
    pub bytes_acknowledged: u64,
    /// Payload that arrived in order.
    pub bytes_received: u64,
    /// Segments sent again, and their payload.
    pub segments_retransmitted: u32,
    /// See `segments_retransmitted`.
    pub bytes_retransmitted: u64,
    /// Segments that arrived ahead of their turn.
    pub segments_out_of_order: u32,
    /// Duplicate ranges that the peer reported (RFC 2883).
    pub duplicates_reported_by_peer: u32,
    /// Times that data was seen to be overtaken.
    pub reorderings_seen: u32,
    /// Segments that arrived with a mark of congestion (RFC 3168).
    pub marked_segments_received: u32,

    /// Time with something to send, or sent and not acknowledged.
    pub busy: Duration,
    /// Of that, time in which the peer's window held data back.
    pub window_limited: Duration,
    /// Of that, time in which all of a full send buffer was in flight.
    pub send_buffer_limited: Duration,
}

impl TcpInfo {
    /// How many full segments so many bytes are, as Linux's structure counts them.
    #[must_use]
    pub fn segments(&self, bytes: u32) -> u32 {
        bytes.div_ceil(self.send_mss_bytes.max(1))
    }
}

impl Connection {
    /// The connection at this instant.
    #[must_use]
    pub fn info(&self, now: Instant) -> TcpInfo {
        let Totals { segments_received, segments_sent, .. } = self.totals;
        let negotiated = &self.negotiated;
        let times = self.sender.chronograph.times(now);
        TcpInfo {
            state: self.state,
            recovery: self.sender.recovery.state(),
            retransmits: self.unanswered.timeouts.max(self.unanswered.syns),
            probes: self.unanswered.window_probes + self.unanswered.keepalive_probes,
            backoff: self.sender.rtt.backoff_count(),
            timestamps: negotiated.timestamps.is_some(),
            sack: negotiated.sack,
            ecn: self.sender.ecn.is_on(),
            syn_data: self.totals.syn_data,
            window_scale: negotiated.window_shifts(),
            rto: self.sender.rtt.rto(),
            ato: self.config.deferred_acks_interval,
            send_mss_bytes: negotiated.payload_max(),
            receive_mss_bytes: negotiated.payload_max_receive(),
            advertised_mss_bytes: negotiated.mss_announced().into(),
            path_mss_bytes: negotiated.mss_send().into(),
            send_next: self.sender.sequence.nxt,
            receive_next: self.receiver.queue.next(),
            unacknowledged_bytes: self.sender.sequence.flight(),
            sacked_bytes: self.sender.recovery.sacked_bytes(),
            lost_bytes: self.sender.recovery.lost_bytes(),
            again_bytes: self.sender.recovery.again_bytes(),
            unsent_bytes: self.unsent_len() as u32,
            outstanding: self
                .sender
                .recovery
                .segments(&self.sender.sequence, negotiated.payload_max()),
            since_data_sent: now - self.sender.last_data_sent_at,
            since_received: now - self.last_received_at,
            since_data_received: now
                - self.receiver.acks.last_data_at().unwrap_or(self.last_received_at),
            rtt: self.sender.rtt.smoothed(),
            rtt_variation: self.sender.rtt.variation(),
            rtt_min: self.sender.rtt.min_rtt(),
            receive_rtt: self.receiver.window_tuning.rtt(self.sender.rtt.smoothed_ns()),
            congestion: self.config.congestion.algorithm.name(),
            congestion_window_bytes: self.sender.congestion.window(),
            slow_start_threshold_bytes: self.sender.congestion.slow_start_threshold(),
            reordering_segments: self.sender.recovery.reordering(),
            delivered_bytes: self.sender.recovery.rate.delivered_bytes(),
            lost_bytes_total: self.sender.recovery.rate.lost_bytes(),
            pacing_rate: self.pacing_rate(),
            delivery_rate: self.sender.recovery.rate.last(),
            send_window_bytes: self.sender.sequence.window,
            receive_window_bytes: self.receiver.queue.window(),
            receive_buffer_bytes: self.receiver.queue.capacity(),
            send_buffer_bytes: self.sender.queue.capacity(),
            segments_sent,
            segments_received,
            data_segments_sent: self.totals.data_segments_sent,
            data_segments_received: self.totals.data_segments_received,
            bytes_sent: self.totals.bytes_sent,
            bytes_acknowledged: self.totals.bytes_acknowledged,
            bytes_received: self.totals.bytes_received,
            segments_retransmitted: self.totals.segments_retransmitted,
            bytes_retransmitted: self.totals.bytes_retransmitted,
            segments_out_of_order: self.totals.segments_out_of_order,
            duplicates_reported_by_peer: self.totals.duplicates_reported_by_peer,
            reorderings_seen: self.totals.reorderings_seen,
            marked_segments_received: self.totals.marked_segments_received,
            busy: times.busy,
            window_limited: times.window_limited,
            send_buffer_limited: times.send_buffer_limited,
        }
    }
}
