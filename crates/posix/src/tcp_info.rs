//! `struct tcp_info` as Linux lays it out. Fields that nothing here knows of are zero.

use crate::Errno;
use crate::call::Fd;
use crate::host::Host;
use crate::stream::{Phase, is_open};
use core::time::Duration;
use tcp::{RecoveryState, State, TcpInfo};

/// Bytes of the structure, up to and including what Accurate ECN counts.
const LEN_BYTES: usize = 280;

/// Linux's number of a threshold that was never set.
const THRESHOLD_INFINITE: u32 = 0x7fff_ffff;

impl Host {
    pub(crate) fn tcp_info(&mut self, fd: Fd) -> Result<Vec<u8>, Errno> {
        let stream = self.files.stream(fd)?;
        if let Phase::Listening(id) = stream.phase {
            let backlog = stream.backlog;
            let waiting = self.shard().tcp_acceptable(id)?;
            return Ok(lay_out_listener(waiting as u32, backlog as u32));
        }
        let now = self.now();
        let Some((id, status)) = self.status(fd)? else { return Ok(lay_out_closed()) };
        let path_mtu = self.shard().path_mtu(status.remote.ip()).unwrap_or(0);
        let rate_max = self.files.stream(fd)?.options.pacing_rate_max;
        match self.shard().tcp_info(now, id) {
            Ok(mut info) => {
                info.state = status.state;
                let mut bytes = lay_out(&info, path_mtu as u32);
                if let Some(rate) = rate_max {
                    bytes[112..120].copy_from_slice(&rate.get().to_ne_bytes());
                }
                Ok(bytes)
            }
            Err(_) => Ok(lay_out_closed()),
        }
    }
}

fn lay_out_closed() -> Vec<u8> {
    let mut bytes = vec![0; LEN_BYTES];
    bytes[0] = number_of(State::Closed);
    bytes
}

/// Of a listener two fields say other things than their names: how many connections wait to be accepted, and how many
/// may.
fn lay_out_listener(waiting: u32, backlog: u32) -> Vec<u8> {
    let mut bytes = vec![0; LEN_BYTES];
    bytes[0] = number_of(State::Listen);
    bytes[24..28].copy_from_slice(&waiting.to_ne_bytes());
    bytes[28..32].copy_from_slice(&backlog.to_ne_bytes());
    bytes
}

fn lay_out(info: &TcpInfo, path_mtu_bytes: u32) -> Vec<u8> {
    let mut bytes = vec![0; LEN_BYTES];
    bytes[0] = number_of(info.state);
    bytes[1] = match info.recovery {
        // TCP_CA_Disorder: reports came that something is missing, and nothing is done about it yet.
        RecoveryState::Open => u8::from(info.sacked_bytes > 0),
        RecoveryState::Fast => 3,
        RecoveryState::Loss => 4,
    };
    bytes[2] = info.retransmits as u8;
    bytes[3] = info.probes as u8;
    bytes[4] = info.backoff as u8;
    let (send_shift, receive_shift) = info.window_scale.unwrap_or((0, 0));
    bytes[5] = u8::from(info.timestamps)
        | u8::from(info.sack) << 1
        | u8::from(info.window_scale.is_some()) << 2
        | u8::from(info.ecn) << 3
        // Bit 4, that the peer marks its segments, is not told apart from bit 3.
        | u8::from(info.syn_data) << 5;
    bytes[6] = send_shift | receive_shift << 4;
    bytes[7] = u8::from(info.delivery_rate.is_some_and(|(_, limited)| limited));
    lay_out_words(info, &mut bytes);
    bytes[60..64].copy_from_slice(&path_mtu_bytes.to_ne_bytes());
    lay_out_sums(info, &mut bytes);
    bytes
}

/// The fields of 64 bits: rates, sums and times.
fn lay_out_sums(info: &TcpInfo, bytes: &mut [u8]) {
    for (at, value) in [
        (104, info.pacing_rate.unwrap_or(u64::MAX)),
        (112, u64::MAX),
        (120, info.bytes_acknowledged),
        (128, info.bytes_received),
        (160, info.delivery_rate.map_or(0, |(rate, _)| rate)),
        (168, info.busy.as_micros() as u64),
        (176, info.window_limited.as_micros() as u64),
        (184, info.send_buffer_limited.as_micros() as u64),
        (200, info.bytes_sent + info.bytes_retransmitted),
        (208, info.bytes_retransmitted),
    ] {
        bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }
}

/// The fields of 32 bits.
fn lay_out_words(info: &TcpInfo, bytes: &mut [u8]) {
    let whole = |bytes: u32| bytes / info.send_mss_bytes.max(1);
    let threshold = match info.slow_start_threshold_bytes {
        u32::MAX => THRESHOLD_INFINITE,
        bytes => whole(bytes),
    };
    for (at, value) in [
        (8, micros(info.rto)),
        (12, micros(info.ato)),
        (16, info.send_mss_bytes),
        (20, info.receive_mss_bytes),
        (24, info.outstanding.all),
        (28, info.outstanding.sacked),
        (32, info.outstanding.lost),
        (36, info.outstanding.again),
        (44, millis(info.since_data_sent)),
        (52, millis(info.since_data_received)),
        // Every segment that is taken has an ACK.
        (56, millis(info.since_received)),
        // What the window may grow to while nothing else changes.
        (64, info.receive_buffer_bytes as u32),
        (68, info.rtt.map_or(0, micros)),
        (72, info.rtt_variation.map_or(0, micros)),
        (76, threshold),
        (80, whole(info.congestion_window_bytes)),
        (84, info.advertised_mss_bytes),
        (88, info.reordering_segments),
        (92, info.receive_rtt.map_or(0, micros)),
        (96, info.receive_buffer_bytes as u32),
        (100, info.segments_retransmitted),
        (136, info.segments_sent as u32),
        (140, info.segments_received as u32),
        (144, info.unsent_bytes),
        (148, info.rtt_min.map_or(u32::MAX, micros)),
        (152, info.data_segments_received as u32),
        // Linux counts what was sent again as well.
        (156, (info.data_segments_sent as u32).wrapping_add(info.segments_retransmitted)),
        // In segments of today's size, like all that the connection counts in bytes. The SYN is one.
        (
            192,
            (info.delivered_bytes.div_ceil(info.send_mss_bytes.max(1).into()) as u32)
                .wrapping_add(u32::from(is_open(info.state))),
        ),
        (216, info.duplicates_reported_by_peer),
        (220, info.reorderings_seen),
        (224, info.segments_out_of_order),
        (228, info.send_window_bytes),
        (232, info.receive_window_bytes),
    ] {
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// Linux's number for a state.
fn number_of(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Listen => 10,
        State::Closing => 11,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcp::{Connection, Parameters};
    use time::Instant;

    #[test]
    fn what_was_delivered_wraps_as_on_linux() {
        let parameters = Parameters {
            local_port: 1,
            remote_port: 2,
            isn: Default::default(),
            timestamp_offset: 0,
            mss_receive: 1_460,
            mss_send_max: 1_460,
            mss_default: 536,
            on_same_subnet: false,
            config: tcp::Config::default().into(),
        };
        let mut info = Connection::connect(parameters, Instant::ZERO).info(Instant::ZERO);
        info.state = State::Established;
        info.delivered_bytes = u64::from(info.send_mss_bytes) * u64::from(u32::MAX);
        assert_eq!(lay_out(&info, 1_500)[192..196], [0; 4]);
    }
}
