//! The model against a path of known rate and delay, packet by packet, without TCP around it; some of
//! the cases of the draft's appendix.

use super::*;
use crate::sender::rate::{DeliveryRate, Gathered, Snapshot};
use std::collections::VecDeque;
use wire::SeqNumber;

const MSS: u32 = 1_448;

struct Sent {
    snapshot: Snapshot,
    sent_at: Instant,
    /// When its ACK arrives; `None` if it is lost.
    acked_at: Option<Instant>,
}

/// A sender that always has data, on a path with a buffer.
struct Path {
    bbr: Bbr,
    rate: DeliveryRate,
    now: Instant,
    next_send_at: Instant,
    link_free_at: Instant,
    sent: VecDeque<Sent>,
    in_flight: u32,
    min_rtt: Option<Duration>,
    random: u64,
    in_recovery_until: Option<u64>,
    sent_count: u64,
    // The path.
    bytes_per_second: u64,
    delay: Duration,
    buffer_bytes: u64,
    loss_per_mille: u64,
    overflows: u64,
}

impl Path {
    fn new(mbit: u64, delay_ms: u64, buffer_bytes: u64) -> Self {
        let now = Instant::from_millis(1_000);
        Self {
            bbr: Bbr::new(&CongestionConfig::default(), MSS),
            rate: DeliveryRate::default(),
            now,
            next_send_at: now,
            link_free_at: now,
            sent: VecDeque::new(),
            in_flight: 0,
            min_rtt: None,
            random: 99,
            in_recovery_until: None,
            sent_count: 0,
            bytes_per_second: mbit * 125_000,
            delay: Duration::from_millis(delay_ms),
            buffer_bytes,
            loss_per_mille: 0,
            overflows: 0,
        }
    }

    fn is_lost(&mut self, queue_bytes: u64) -> bool {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let overflow = queue_bytes > self.buffer_bytes;
        self.overflows += u64::from(overflow);
        overflow || (self.random >> 33) % 1_000 < self.loss_per_mille
    }

    fn send(&mut self) {
        let snapshot = self.rate.on_sent(self.now, self.in_flight, self.in_flight + MSS);
        if self.in_flight == 0 {
            self.bbr.on_flight_start(self.now, false);
        }
        self.in_flight += MSS;
        let queue_bytes = volume(self.bytes_per_second, self.link_free_at - self.now);
        let lost = self.is_lost(queue_bytes);
        if !lost {
            let takes =
                Duration::from_nanos(u64::from(MSS) * 1_000_000_000 / self.bytes_per_second);
            self.link_free_at = self.link_free_at.max(self.now) + takes;
        }
        let acked_at = (!lost).then(|| self.link_free_at + self.delay);
        self.sent.push_back(Sent { snapshot, sent_at: self.now, acked_at });
        self.sent_count += 1;
        let rate = self.bbr.pacing_rate().expect("BBR has one");
        let takes = Duration::from_nanos(u64::from(MSS) * 1_000_000_000 / rate);
        self.next_send_at = self.next_send_at.max(self.now) + takes;
    }

    /// The first packet that is not lost is acknowledged; those before it are found lost.
    fn acknowledge(&mut self) {
        let (mut lost, mut gathered) = (false, Gathered::default());
        while self.sent.front().is_some_and(|sent| sent.acked_at.is_none()) {
            let sent = self.sent.pop_front().expect("there");
            self.rate.on_lost(MSS, &sent.snapshot);
            self.in_flight -= MSS;
            lost = true;
        }
        let Some(sent) = self.sent.pop_front() else { return };
        self.in_flight -= MSS;
        let Sent { snapshot, sent_at, .. } = sent;
        self.rate.on_delivered(self.now, MSS, &snapshot, sent_at, false, &mut gathered);
        let rtt = self.now - sent.sent_at;
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |least| least.min(rtt)));
        let before = self.sent_count - self.sent.len() as u64;
        let rate = self.rate.sample(&gathered, self.in_flight, self.min_rtt);
        self.bbr.on_ack(&Acked {
            now: self.now,
            acked_bytes: MSS,
            in_flight_before: self.in_flight + MSS,
            app_limited: false,
            rtt: Some(rtt),
            rtt_sample: Some(rtt),
            una: SeqNumber(0),
            nxt: SeqNumber(0),
            rate,
            sack: true,
            mss: MSS,
        });
        if self.in_recovery_until.is_some_and(|until| before > until) {
            self.in_recovery_until = None;
            self.bbr.on_recovery_exit(self.now);
        }
        if lost && self.in_recovery_until.is_none() {
            self.in_recovery_until = Some(self.sent_count);
            self.bbr.on_loss(self.now, self.in_flight, MSS);
        }
        if self.bbr.is_holding_back() {
            self.rate.on_app_limited(self.in_flight);
        }
    }

    /// Runs and says which share of the path's rate was delivered.
    fn run(&mut self, duration: Duration) -> f64 {
        let end = self.now + duration;
        let before = self.rate.delivered_bytes();
        while self.now < end {
            let room = self.in_flight + MSS <= self.bbr.window() || self.in_flight == 0;
            let first = self.sent.iter().find_map(|sent| sent.acked_at);
            let send_at = room.then(|| self.next_send_at.max(self.now));
            match (first, send_at) {
                (Some(acked_at), Some(send_at)) if send_at < acked_at => {
                    self.now = send_at;
                    self.send();
                }
                (Some(acked_at), _) => {
                    self.now = self.now.max(acked_at);
                    self.acknowledge();
                }
                (None, Some(send_at)) => {
                    self.now = send_at;
                    self.send();
                }
                (None, None) => {
                    // All in flight was lost: the timer.
                    self.now += Duration::from_millis(300);
                    self.sent.clear();
                    self.in_flight = 0;
                    self.bbr.on_timeout(self.now, 0, MSS);
                }
            }
        }
        let delivered = self.rate.delivered_bytes() - before;
        delivered as f64 / (self.bytes_per_second as f64 * duration.as_secs_f64())
    }

    fn bdp(&self) -> u64 {
        volume(self.bytes_per_second, self.delay)
    }
}

const SECOND: Duration = Duration::from_secs(1);

// Appendix: "Exiting STARTUP on Bandwidth Plateau", "Exiting DRAIN Based on Inflight".
#[test]
fn startup_finds_the_rate_and_the_cycle_keeps_to_it() {
    let mut path = Path::new(100, 40, 10_000_000);
    path.run(SECOND);
    assert!(path.bbr.full.reached && path.bbr.is_probing_bandwidth_cycle());
    let error = path.bbr.max_bandwidth() as f64 / path.bytes_per_second as f64 - 1.0;
    assert!(error.abs() < 0.05, "{error}");
    let share = path.run(4 * SECOND);
    assert!(share > 0.95, "{share}");
    // Two windows are the most that is in flight, and nothing overflowed the buffer.
    assert!(path.bbr.cwnd < 3 * path.bdp(), "{} {}", path.bbr.cwnd, path.bdp());
    assert_eq!(path.overflows, 0);
}

// What loss-based control cannot do: losses below the threshold change nothing.
#[test]
fn one_per_cent_of_random_loss_costs_little() {
    let mut path = Path::new(100, 40, 500_000);
    path.loss_per_mille = 10;
    path.run(2 * SECOND);
    let share = path.run(8 * SECOND);
    assert!(share > 0.9, "{share}");
}

// Section 5.5.10: too much loss while probing bounds what is in flight.
#[test]
fn a_shallow_buffer_bounds_what_is_in_flight() {
    let mut path = Path::new(100, 40, 100_000);
    path.run(3 * SECOND);
    assert_ne!(path.bbr.inflight_long, INFINITE);
    let (before, sent_before) = (path.overflows, path.sent_count);
    let share = path.run(6 * SECOND);
    assert!(share > 0.85, "{share}");
    let lost = (path.overflows - before) as f64 / (path.sent_count - sent_before) as f64;
    assert!(lost < 0.02, "{lost}");
}

// Appendix: "Entering and Exiting PROBE_RTT".
#[test]
fn a_standing_queue_is_emptied_to_measure_the_least_round_trip() {
    let mut path = Path::new(50, 30, 10_000_000);
    let mut probed = false;
    for _ in 0..140 {
        path.run(SECOND / 20);
        probed |= path.bbr.phase == Phase::ProbeRtt;
    }
    assert!(probed);
    assert_ne!(path.bbr.phase, Phase::ProbeRtt);
    assert_eq!(path.bbr.min_rtt.map(|rtt| rtt.as_millis()), Some(30));
}

// Appendix: "Increasing Bandwidth 10x", "Decreasing Bandwidth 10x".
#[test]
fn the_model_follows_a_path_that_changes() {
    let mut path = Path::new(10, 40, 300_000);
    path.run(3 * SECOND);
    path.bytes_per_second *= 10;
    path.run(8 * SECOND);
    let faster = path.run(3 * SECOND);
    assert!(faster > 0.9, "{faster}");
    path.bytes_per_second /= 10;
    path.run(10 * SECOND);
    let slower = path.bbr.max_bandwidth() as f64 / path.bytes_per_second as f64;
    assert!(slower < 1.3, "{slower}");
    assert!(path.run(3 * SECOND) > 0.9);
}

// Section 5.5.11: a loss that was none restores what was believed before.
#[test]
fn a_mistaken_loss_is_taken_back() {
    let mut path = Path::new(100, 40, 10_000_000);
    path.run(3 * SECOND);
    let (window, now) = (path.bbr.window(), path.now);
    path.bbr.on_timeout(now, window, MSS);
    assert_eq!(path.bbr.window(), MSS);
    path.bbr.on_undo();
    assert_eq!(path.bbr.window(), window);
}

// RFC 3168, and 3.7 of the draft: a mark MUST be treated as congestion.
#[test]
fn a_mark_ends_startup_and_bounds_the_cycle() {
    let mut path = Path::new(100, 40, 10_000_000);
    path.run(SECOND / 10);
    assert_eq!(path.bbr.phase, Phase::Startup);
    path.bbr.on_mark(path.now, path.in_flight, MSS);
    path.run(SECOND / 10);
    assert_ne!(path.bbr.phase, Phase::Startup);
    let mut path = Path::new(100, 40, 10_000_000);
    path.run(2 * SECOND);
    while path.bbr.phase != Phase::Cruise {
        path.run(SECOND / 100);
    }
    path.bbr.on_mark(path.now, path.in_flight, MSS);
    path.run(SECOND / 10);
    assert_ne!(path.bbr.bandwidth_short, INFINITE);
}

// RFC 4821, 7.6: the loss of a probe alone "MUST NOT be treated as an indication of congestion".
#[test]
fn a_lost_probe_of_the_mtu_is_no_loss_to_the_model() {
    use crate::sender::congestion::Controller;
    use crate::tests::harness::*;
    use crate::{Algorithm, Config, Connection, PathProbing};
    let congestion = CongestionConfig { algorithm: Algorithm::Bbr, ..CongestionConfig::default() };
    let path_probing = PathProbing::Always;
    let config = Config { sack: true, path_probing, congestion, ..plain_config() };
    let mut parameters = parameters(config);
    (parameters.mss_send_max, parameters.mss_receive) = (1_460, 1_460);
    let now = Instant::from_millis(10_000);
    let mut harness = Harness::wrap(Connection::connect(parameters, now), now);
    harness.expect_one();
    harness.now += Duration::from_millis(10);
    harness.options.mss = Some(1_460);
    harness.options.sack_permitted = true;
    harness.receive(SYN | ACK, 0, 1, b"");
    harness.options = wire::TcpOptions::default();
    harness.expect_one();
    harness.write(&stream(0..1_024));
    harness.expect_one();
    harness.now += Duration::from_millis(10);
    harness.receive(ACK, 1, 1_025, b"");
    harness.write(&stream(1_024..6_580));
    assert_eq!(harness.take_ranges()[..2], [(1_025, 1_460), (2_485, 1_024)]);
    harness.now += Duration::from_millis(10);
    harness.options.sack.push(ISS + 2_485, ISS + 5_557);
    harness.receive(ACK, 1, 1_025, b"");
    assert_eq!(harness.connection.counters().mtu_probes_lost, 1);
    let Controller::Bbr(bbr) = &harness.connection.sender.congestion else {
        panic!("BBR was asked for")
    };
    assert!(!bbr.loss_in_round);
}

// draft-ietf-ccwg-bbr, 4.1.2.3: a sample of an interval that is too short is discarded.
#[test]
fn rounds_without_a_rate_are_no_plateau() {
    let mut bbr = Bbr::new(&CongestionConfig::default(), MSS);
    let (mut now, mut delivered) = (Instant::from_millis(1_000), 0);
    for round in 0..4 {
        now += Duration::from_millis(10);
        let prior_delivered_bytes = delivered;
        delivered += 10 * u64::from(MSS);
        let rate = Some(crate::sender::rate::RateSample {
            total_delivered_bytes: delivered,
            prior_delivered_bytes,
            newly_delivered_bytes: 10 * MSS,
            delivered_bytes: 10 * u64::from(MSS),
            tx_in_flight_bytes: 10 * MSS,
            interval: (round == 0).then_some(Duration::from_millis(10)),
            ..crate::sender::rate::RateSample::default()
        });
        bbr.on_ack(&Acked {
            now,
            acked_bytes: 10 * MSS,
            in_flight_before: 10 * MSS,
            app_limited: false,
            rtt: Some(Duration::from_millis(10)),
            rtt_sample: None,
            una: SeqNumber(0),
            nxt: SeqNumber(0),
            rate,
            sack: true,
            mss: MSS,
        });
    }
    assert_eq!(bbr.phase, Phase::Startup);
}
