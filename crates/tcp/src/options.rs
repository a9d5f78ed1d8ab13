//! What the two SYNs agreed on, and the timestamps of the segments after them (RFC 7323).

use crate::buffers::BUFFER_BYTES_MAX;
use crate::config::{Config, MSS_MIN, Parameters};
use time::{Duration, Instant};
use wire::{SackBlocks, SeqNumber, TcpHeader, TcpOptions, TcpTimestamps};

/// RFC 7323, 2.3: a shift count above 14 MUST be taken for 14.
pub(crate) const WINDOW_SHIFT_MAX: u8 = 14;

/// Of our timestamps' clock.
pub(crate) const TIMESTAMP_TICK: Duration = Duration::from_millis(1);

/// RFC 7323, 5.5: TS.Recent of a connection idle for longer than this is invalid.
const TIMESTAMP_RECENT_LIFETIME: Duration = Duration::from_secs(24 * 24 * 3600);

/// Timestamps in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamps {
    /// Added to our clock.
    offset: u32,
    /// TS.Recent, once there was one.
    recent: u32,
    recent_at: Option<Instant>,
}

impl Timestamps {
    /// Our clock (RFC 7323, 5.4).
    fn value(&self, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.offset)
    }

    /// What goes into a segment sent now.
    pub(crate) fn option(&self, now: Instant) -> TcpTimestamps {
        TcpTimestamps { value: self.value(now), echo: self.recent }
    }

    /// PAWS (RFC 7323, 5.3 R1): whether a segment with this TSval is from the past.
    pub(crate) fn is_old(&self, now: Instant, value: u32) -> bool {
        let valid = self.recent_at.is_some_and(|at| now - at < TIMESTAMP_RECENT_LIFETIME);
        valid && SeqNumber(value).is_before(SeqNumber(self.recent))
    }

    /// RFC 7323, 4.3 (2): takes TSval into TS.Recent where it is not older and the segment begins
    /// at or before the last ACK sent.
    pub(crate) fn on_segment(&mut self, now: Instant, value: u32, covers_last_ack: bool) {
        if covers_last_ack && !self.is_old(now, value) {
            self.recent = value;
            self.recent_at = Some(now);
        }
    }

    /// Whether an echo of our clock is from before `sent_at`. Zero is what peers send that have nothing to echo.
    pub(crate) fn is_echo_before(&self, echo: u32, sent_at: Instant) -> bool {
        echo != 0 && SeqNumber(echo).is_before(SeqNumber(self.value(sent_at)))
    }

    /// How many ticks ago our clock showed what is echoed, unless it is nonsense.
    pub(crate) fn age(&self, now: Instant, echo: u32) -> Option<Duration> {
        let elapsed_ms = self.value(now).wrapping_sub(echo);
        (echo != 0 && elapsed_ms < 1 << 30).then(|| Duration::from_millis(elapsed_ms.into()))
    }

    /// The round-trip time that an echo of our clock tells, a tick at least.
    pub(crate) fn round_trip(&self, now: Instant, echo: u32) -> Option<Duration> {
        Some(self.age(now, echo)?.max(TIMESTAMP_TICK))
    }
}

/// What was offered and, once the peer's SYN is here, agreed.
#[derive(Clone, Debug)]
pub(crate) struct Negotiated {
    /// The most that a SYN of ours may have said: the peer may have heard the first.
    mss_receive: u16,
    /// What the next one says.
    mss_announced: u16,
    mss_send_max: u16,
    mss_peer: u16,
    /// Bytes of options in each packet's network header.
    network_options_len: u8,
    /// What follows from path, peer and these ([`Negotiated::mss_send`]): it is asked for ten times a segment.
    mss_send: u16,
    /// Applied to windows the peer announces.
    pub(crate) send_shift: u8,
    /// Applied to windows we announce.
    pub(crate) receive_shift: u8,
    window_scaling: bool,
    pub(crate) sack: bool,
    pub(crate) timestamps: Option<Timestamps>,
}

impl Negotiated {
    /// What we offer.
    pub(crate) fn offer(parameters: &Parameters) -> Self {
        let config = &parameters.config;
        let timestamps =
            Timestamps { offset: parameters.timestamp_offset, recent: 0, recent_at: None };
        let mut offer = Self {
            mss_receive: parameters.mss_receive,
            mss_announced: parameters.mss_receive,
            mss_send_max: parameters.mss_send_max,
            mss_peer: parameters.mss_default,
            network_options_len: 0,
            mss_send: MSS_MIN,
            send_shift: 0,
            receive_shift: shift_for(config),
            window_scaling: config.window_scaling,
            sack: config.sack,
            timestamps: config.timestamps.then_some(timestamps),
        };
        offer.set_mss_send();
        offer
    }

    /// Takes the options of the peer's SYN: what one side did not offer is off.
    pub(crate) fn on_syn(&mut self, now: Instant, options: &TcpOptions) {
        if let Some(mss) = options.mss {
            self.mss_peer = mss;
            self.set_mss_send();
        }
        match options.window_scale.filter(|_| self.window_scaling) {
            Some(shift) => self.send_shift = shift.min(WINDOW_SHIFT_MAX),
            None => {
                self.window_scaling = false;
                self.receive_shift = 0;
            }
        }
        self.sack &= options.sack_permitted;
        match (&mut self.timestamps, options.timestamps) {
            (Some(ours), Some(theirs)) => {
                ours.recent = theirs.value;
                ours.recent_at = Some(now);
            }
            _ => self.timestamps = None,
        }
    }

    /// The options of our SYN, or of our SYN-ACK once the peer's SYN was taken.
    pub(crate) fn syn_options(&self, now: Instant, is_reply: bool) -> TcpOptions {
        let mut timestamps = self.timestamps.map(|timestamps| timestamps.option(now));
        if let Some(timestamps) = timestamps.as_mut().filter(|_| !is_reply) {
            // RFC 7323, 3.2: TSecr is only valid with ACK, and MUST be zero without.
            timestamps.echo = 0;
        }
        TcpOptions {
            mss: Some(self.mss_announced),
            window_scale: self.window_scaling.then_some(self.receive_shift),
            sack_permitted: self.sack,
            timestamps,
            ..TcpOptions::default()
        }
    }

    /// No segment of the peer's is longer.
    pub(crate) fn mss_receive(&self) -> u16 {
        self.mss_receive
    }

    /// The MSS we announce.
    pub(crate) fn mss_announced(&self) -> u16 {
        self.mss_announced
    }

    /// Announces no more than this in a SYN that is still to be sent, or sent again.
    pub(crate) fn lower_mss_announced(&mut self, mss: u16) {
        self.mss_announced = self.mss_announced.min(mss);
    }

    /// Shifts of the peer's windows and of ours, where windows are scaled.
    pub(crate) fn window_shifts(&self) -> Option<(u8, u8)> {
        self.window_scaling.then_some((self.send_shift, self.receive_shift))
    }

    pub(crate) fn set_path_mss(&mut self, mss_send_max: u16) {
        self.mss_send_max = mss_send_max;
        self.set_mss_send();
    }

    /// What the peer announced.
    pub(crate) fn mss_peer(&self) -> u16 {
        self.mss_peer
    }

    /// What the path takes, whatever the peer announced.
    pub(crate) fn mss_send_max(&self) -> u16 {
        self.mss_send_max
    }

    pub(crate) fn set_network_options(&mut self, len_bytes: u8) {
        self.network_options_len = len_bytes;
        self.set_mss_send();
    }

    /// What peer and path take behind headers without options.
    pub(crate) fn mss_path(&self) -> u16 {
        self.mss_peer.min(self.mss_send_max)
    }

    /// What of a segment that fits path or peer may be sent beside the network header's options.
    pub(crate) fn less_network_options(&self, mss: u16) -> u16 {
        mss.saturating_sub(self.network_options_len.into())
    }

    /// The longest segment that may be sent, TCP's options included: RFC 9293, 3.7.1, MUST-16, has the
    /// network header's taken from it whether path or peer sets the bound (RFC 6691).
    #[inline]
    pub(crate) fn mss_send(&self) -> u16 {
        self.mss_send
    }

    fn set_mss_send(&mut self) {
        self.mss_send = self.less_network_options(self.mss_path()).max(MSS_MIN);
    }

    /// SMSS: the payload of a full segment with the options that every segment carries.
    pub(crate) fn payload_max(&self) -> u32 {
        let options = if self.timestamps.is_some() { 12 } else { 0 };
        u32::from(self.mss_send()) - options
    }

    /// Our estimate of the peer's full segment, for decisions about the receive window.
    pub(crate) fn payload_max_receive(&self) -> u32 {
        u32::from(self.mss_announced.max(MSS_MIN)) - if self.timestamps.is_some() { 12 } else { 0 }
    }

    /// Whether the header lacks a timestamp that was agreed on (RFC 7323, 3.2).
    pub(crate) fn is_missing_timestamp(&self, header: &TcpHeader) -> bool {
        self.timestamps.is_some() && header.options.timestamps.is_none()
    }

    /// The options of a segment that is no SYN.
    pub(crate) fn options(&self, now: Instant, sack: SackBlocks) -> TcpOptions {
        let timestamps = self.timestamps.map(|timestamps| timestamps.option(now));
        TcpOptions { timestamps, sack, ..TcpOptions::default() }
    }

    /// Four blocks fit the 40 bytes of options without timestamps, 2 + 4 * 8 = 34, and three beside
    /// them: with their own 10, four would take 44 before any padding.
    pub(crate) fn sack_blocks_max(&self) -> usize {
        if self.timestamps.is_some() { 3 } else { 4 }
    }

    /// The smallest buffer that works with the handshake's window scale: windows are rounded down to its units,
    /// so of less than one nothing could ever be announced; and of two at least one is announced again, by the
    /// rule of silly windows, when all was read.
    pub(crate) fn receive_buffer_least(&self) -> usize {
        match self.receive_shift {
            0 => 1,
            shift => 2 << shift,
        }
    }

    /// The largest buffer that the handshake's window scale can announce.
    pub(crate) fn receive_buffer_largest(&self) -> usize {
        (65_535_usize << self.receive_shift).min(BUFFER_BYTES_MAX)
    }
}

/// The smallest shift with which the whole buffer can be announced (RFC 7323, 2.3).
fn shift_for(config: &Config) -> u8 {
    if !config.window_scaling {
        return 0;
    }
    let fits = |shift: &u8| config.receive_buffer_bytes <= 65_535 << *shift;
    (0..WINDOW_SHIFT_MAX).find(fits).unwrap_or(WINDOW_SHIFT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shift_is_the_least_that_fits_the_buffer() {
        let shift =
            |receive_buffer_bytes| shift_for(&Config { receive_buffer_bytes, ..Config::default() });
        assert_eq!(
            [shift(65_535), shift(65_536), shift(1 << 20), shift(usize::MAX)],
            [0, 1, 5, 14]
        );
        assert_eq!(shift_for(&Config { window_scaling: false, ..Config::default() }), 0);
    }

    // RFC 7323, 3.2: a TSecr of zero echoes nothing.
    #[test]
    fn zero_is_no_echo() {
        let timestamps = Timestamps { offset: 0, recent: 0, recent_at: None };
        let sent_at = Instant::from_millis(500);
        assert!(timestamps.is_echo_before(499, sent_at));
        assert!(!timestamps.is_echo_before(0, sent_at) && !timestamps.is_echo_before(500, sent_at));
    }

    // RFC 7323, 5.5.
    #[test]
    fn paws_refuses_the_past_for_24_days() {
        let mut timestamps = Timestamps { offset: 0, recent: 0, recent_at: None };
        let start = Instant::from_millis(10);
        assert!(!timestamps.is_old(start, u32::MAX), "nothing to compare with yet");
        timestamps.on_segment(start, 1000, true);
        assert!(timestamps.is_old(start, 999));
        assert!(!timestamps.is_old(start, 1000));
        timestamps.on_segment(start, 2000, false);
        assert!(!timestamps.is_old(start, 1000), "a segment beyond the last ACK does not count");
        let later = start + TIMESTAMP_RECENT_LIFETIME;
        assert!(!timestamps.is_old(later, 999));
        timestamps.on_segment(later, 7, true);
        assert_eq!(timestamps.option(later).echo, 7);
    }
}
