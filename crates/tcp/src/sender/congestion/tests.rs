//! Both algorithms against the formulas of their RFCs, on a path with a fixed round-trip time.

use proptest::prelude::*;

use super::*;
use crate::sender::rate::Loss;

const MSS: u32 = 1_000;

/// A controller whose window is always full, on a path of `rtt`.
struct Path {
    controller: Controller,
    now: Instant,
    rtt: Duration,
    una: SeqNumber,
}

impl Path {
    fn new(algorithm: Algorithm, rtt_ms: u64) -> Self {
        Self::with(CongestionConfig { algorithm, ..CongestionConfig::default() }, rtt_ms)
    }

    fn with(config: CongestionConfig, rtt_ms: u64) -> Self {
        Self {
            controller: Controller::new(&config, MSS),
            now: Instant::from_millis(1_000),
            rtt: Duration::from_millis(rtt_ms),
            una: SeqNumber(u32::MAX - 100_000),
        }
    }

    fn window(&self) -> u32 {
        self.controller.window()
    }

    fn ack(&mut self, acked_bytes: u32, in_flight_before: u32, app_limited: bool) {
        let rtt = Some(self.rtt);
        let now = self.now;
        let nxt = self.una + in_flight_before.max(acked_bytes);
        self.una += acked_bytes;
        let acked = Acked {
            now,
            acked_bytes,
            in_flight_before,
            app_limited,
            rtt,
            rtt_sample: rtt,
            una: self.una,
            nxt,
            rate: None,
            sack: true,
            mss: MSS,
        };
        self.controller.on_ack(&acked);
    }

    /// One window is acknowledged, `segments_per_ack` at a time, evenly over a round trip.
    fn round_trip(&mut self, segments_per_ack: u32) {
        let in_flight = self.window();
        let step = segments_per_ack * MSS;
        let ack_count = in_flight.div_ceil(step);
        let mut left = in_flight;
        for _ in 0..ack_count {
            self.now += self.rtt / ack_count;
            let acked = step.min(left);
            self.ack(acked, in_flight, false);
            left -= acked;
        }
    }

    fn lose(&mut self) {
        let in_flight = self.window();
        self.controller.on_loss(self.now, in_flight, MSS);
        self.now += self.rtt;
        self.controller.on_recovery_exit(self.now);
    }

    /// In congestion avoidance with this window after a loss.
    fn after_loss_at(algorithm: Algorithm, rtt_ms: u64, segments: u32) -> Self {
        let mut path = Self::new(algorithm, rtt_ms);
        while path.window() < segments * MSS {
            path.ack(MSS.min(segments * MSS - path.window()), path.window(), false);
        }
        path.lose();
        path
    }
}

const RTO: Duration = Duration::from_millis(300);
const SILENCE: Duration = Duration::from_secs(3_600);

const BOTH: [Algorithm; 2] = [Algorithm::NewReno, Algorithm::Cubic];

// RFC 6928, 2.
#[test]
fn the_initial_window_is_ten_segments_or_their_usual_bytes() {
    for algorithm in BOTH {
        let config = CongestionConfig { algorithm, ..CongestionConfig::default() };
        for (mss, expected) in [(536, 5_360), (1_460, 14_600), (8_960, 17_920), (40_000, 80_000)] {
            assert_eq!(Controller::new(&config, mss).window(), expected);
        }
        let mut controller = Controller::new(&config, 1_460);
        controller.on_handshake_loss(1_460);
        assert_eq!(controller.window(), 1_460);
    }
}

#[test]
fn slow_start_doubles_per_round_trip_whatever_the_acks_cover() {
    for algorithm in BOTH {
        for segments_per_ack in [1, 2, 8, 1_000] {
            let mut path = Path::new(algorithm, 50);
            for _ in 0..4 {
                path.round_trip(segments_per_ack);
            }
            assert_eq!(path.window(), 160 * MSS, "{algorithm:?} {segments_per_ack}");
            assert_eq!(path.controller.slow_start_threshold(), u32::MAX);
        }
    }
}

// RFC 3465, 2.2.
#[test]
fn a_limit_bounds_the_growth_per_ack() {
    let config =
        CongestionConfig { slow_start_limit_segments: Some(2), ..CongestionConfig::default() };
    let mut path = Path::new(Algorithm::NewReno, 50);
    path.controller = Controller::new(&config, MSS);
    path.ack(8 * MSS, 10 * MSS, false);
    assert_eq!(path.window(), 12 * MSS);
}

#[test]
fn newreno_halves_and_then_adds_a_segment_per_round_trip() {
    for segments_per_ack in [1, 2, 8] {
        let mut path = Path::after_loss_at(Algorithm::NewReno, 50, 80);
        assert_eq!(path.window(), 40 * MSS);
        for round in 1..=10 {
            path.round_trip(segments_per_ack);
            assert_eq!(path.window(), (40 + round) * MSS);
        }
    }
}

#[test]
fn one_ack_is_worth_one_segment_to_newreno() {
    let mut path = Path::after_loss_at(Algorithm::NewReno, 50, 80);
    path.ack(400 * MSS, 40 * MSS, false);
    for _ in 0..3 {
        path.ack(1, 41 * MSS, false);
    }
    assert_eq!(path.window(), 41 * MSS);
}

#[test]
fn slow_start_that_crosses_the_threshold_goes_on_as_avoidance() {
    let mut path = Path::after_loss_at(Algorithm::NewReno, 50, 80);
    path.controller.on_timeout(path.now, 40 * MSS, MSS);
    assert_eq!((path.window(), path.controller.slow_start_threshold()), (MSS, 20 * MSS));
    // What was in flight at the timeout counts one segment per ACK (RFC 3465, 2.3).
    path.ack(39 * MSS, 40 * MSS, false);
    assert_eq!(path.window(), 2 * MSS);
    path.ack(3 * MSS, 10 * MSS, false);
    assert_eq!(path.window(), 5 * MSS);
    // 15 segments reach the threshold, 25 are left: a window of 20 and then some.
    path.ack(40 * MSS, 40 * MSS, false);
    assert_eq!(path.window(), 21 * MSS);
}

#[test]
fn a_reduction_is_of_what_was_in_flight_and_once_per_recovery() {
    for (algorithm, expected) in [(Algorithm::NewReno, 20 * MSS), (Algorithm::Cubic, 28 * MSS)] {
        let mut path = Path::new(algorithm, 50);
        for _ in 0..4 {
            path.round_trip(1);
        }
        path.controller.on_loss(path.now, 40 * MSS, MSS);
        assert_eq!(path.window(), expected);
        assert_eq!(path.controller.slow_start_threshold(), expected);
        path.controller.on_loss(path.now, 20 * MSS, MSS);
        path.ack(10 * MSS, 40 * MSS, false);
        assert_eq!(path.window(), expected, "held during recovery");
        path.controller.on_recovery_exit(path.now);
        path.ack(expected, expected, false);
        assert!(path.window() > expected);
        // The least is two segments.
        path.controller.on_loss(path.now, MSS, MSS);
        assert_eq!(path.window(), 2 * MSS);
    }
}

#[test]
fn an_undo_restores_what_was_before_and_only_once() {
    for algorithm in BOTH {
        let mut path = Path::after_loss_at(algorithm, 50, 80);
        path.round_trip(1);
        let (window, threshold) = (path.window(), path.controller.slow_start_threshold());
        for timeout in [true, false] {
            if timeout {
                path.controller.on_timeout(path.now, window, MSS);
                assert_eq!(path.window(), MSS);
            } else {
                path.controller.on_loss(path.now, window, MSS);
                assert!(path.window() < window);
            }
            path.controller.on_undo();
            assert_eq!(path.window(), window);
            assert_eq!(path.controller.slow_start_threshold(), threshold);
        }
        path.round_trip(1);
        let grown = path.window();
        assert!(grown > window, "an undone recovery is over");
        path.controller.on_undo();
        assert_eq!(path.window(), grown);
    }
}

// RFC 7661, RFC 9438, 5.8.
#[test]
fn an_unused_window_does_not_grow() {
    for algorithm in BOTH {
        let mut path = Path::new(algorithm, 50);
        path.ack(MSS, 4 * MSS, true);
        assert_eq!(path.window(), 10 * MSS);
        // In slow start more than half a window in use is enough.
        path.ack(MSS, 6 * MSS, true);
        assert_eq!(path.window(), 11 * MSS);
        let mut path = Path::after_loss_at(algorithm, 50, 80);
        let window = path.window();
        for _ in 0..100 {
            path.now += path.rtt;
            path.ack(30 * MSS, 30 * MSS, true);
        }
        assert_eq!(path.window(), window);
    }
}

// RFC 5681, 4.1.
#[test]
fn a_restart_after_silence_begins_at_the_initial_window() {
    for algorithm in BOTH {
        let config = CongestionConfig { algorithm, idle: Idle::Restart, ..Default::default() };
        let mut path = Path::with(config, 50);
        path.ack(70 * MSS, 10 * MSS, false);
        path.lose();
        let threshold = path.controller.slow_start_threshold();
        path.controller.on_idle(SILENCE, RTO, MSS);
        assert_eq!(path.window(), 10 * MSS);
        assert_eq!(path.controller.slow_start_threshold(), threshold);
        path.round_trip(1);
        assert_eq!(path.window(), 20 * MSS);
        path.controller.on_timeout(path.now, MSS, MSS);
        path.controller.on_idle(SILENCE, RTO, MSS);
        assert_eq!(path.window(), MSS, "never more than it was");
    }
}

// RFC 2861, 3.1: "for each RTO of idle time cwnd is halved, down to the restart window, and
// ssthresh is set to the maximum of its value and three quarters of cwnd".
#[test]
fn silence_halves_the_window_once_per_timeout_down_to_the_initial_window() {
    for algorithm in BOTH {
        for timeouts in [1, 2, 3, 30, 50] {
            let mut path = Path::after_loss_at(algorithm, 50, 80);
            let window = path.window();
            path.controller.on_idle(RTO * timeouts + RTO / 2, RTO, MSS);
            let halved = window.checked_shr(timeouts).unwrap_or(0).max(10 * MSS);
            assert_eq!(path.window(), halved, "{algorithm:?} {timeouts}");
            assert!(path.controller.slow_start_threshold() >= window / 4 * 3);
        }
    }
}

// RFC 2861, 3.2: "if the window was not fully used for an RTO, it is reduced to the average of it
// and of what was used".
#[test]
fn a_window_that_was_not_needed_for_a_timeout_sinks_half_way_to_what_was() {
    for algorithm in BOTH {
        let mut path = Path::after_loss_at(algorithm, 50, 80);
        let window = path.window();
        path.controller.on_unused(20 * MSS);
        assert_eq!(path.window(), window / 2 + 10 * MSS);
        assert!(path.controller.slow_start_threshold() >= window / 4 * 3);
        path.controller.on_unused(0);
        path.controller.on_unused(0);
        assert!(path.window() >= 10 * MSS, "never below the initial window");
        let keep = CongestionConfig { algorithm, idle: Idle::Keep, ..Default::default() };
        let mut kept = Path::with(keep, 50);
        kept.ack(10 * MSS, 10 * MSS, false);
        kept.controller.on_unused(0);
        kept.controller.on_idle(SILENCE, RTO, MSS);
        assert_eq!(kept.window(), 20 * MSS);
    }
}

// RFC 3168, 6.1.2: the reaction to a mark is that to a lost packet; RFC 9438, 4.6: with CUBIC's
// factor, and down to one segment.
#[test]
fn a_mark_reduces_the_window_like_a_loss_and_once() {
    for (algorithm, expected) in [(Algorithm::NewReno, 20), (Algorithm::Cubic, 28)] {
        let mut path = Path::new(algorithm, 50);
        path.round_trip(1);
        path.round_trip(1);
        path.controller.on_mark(path.now, 40 * MSS, MSS);
        assert_eq!(path.window(), expected * MSS);
        path.controller.on_mark(path.now, 40 * MSS, MSS);
        path.ack(10 * MSS, 40 * MSS, false);
        assert_eq!(path.window(), expected * MSS, "once, and no growth in this round trip");
        path.controller.on_recovery_exit(path.now);
        path.controller.on_mark(path.now, MSS, MSS);
        assert_eq!((path.window(), path.controller.slow_start_threshold()), (MSS, 2 * MSS));
    }
}

// RFC 9406, 4.2; RFC 9438, 4.10: CUBIC leaves slow start without a loss and goes on from there.
#[test]
fn slow_start_ends_without_loss_where_round_trips_grow() {
    for algorithm in BOTH {
        let mut path = Path::new(algorithm, 40);
        for _ in 0..3 {
            path.round_trip(1);
        }
        let mut rounds = 0;
        while path.controller.slow_start_threshold() == u32::MAX {
            path.rtt += Duration::from_millis(6);
            path.round_trip(1);
            rounds += 1;
            assert!(rounds < 20);
        }
        let left_at = path.window();
        let threshold = path.controller.slow_start_threshold();
        assert!(threshold <= left_at && left_at < threshold + 2 * MSS, "{left_at} {threshold}");
        // One round of detection and five of a quarter's growth instead of six doublings.
        assert!(left_at < 80 * MSS * 8, "{left_at}");
        path.round_trip(1);
        assert!(path.window() > left_at && path.window() < left_at + left_at / 4);
        let off = CongestionConfig { algorithm, hystart: false, ..Default::default() };
        let mut off = Path::with(off, 40);
        for _ in 0..8 {
            off.rtt += Duration::from_millis(6);
            off.round_trip(1);
        }
        assert_eq!(off.controller.slow_start_threshold(), u32::MAX);
    }
}

#[test]
fn a_smaller_segment_size_keeps_the_number_of_segments() {
    for algorithm in BOTH {
        let mut path = Path::after_loss_at(algorithm, 50, 80);
        let segments = path.window() / MSS;
        path.controller.on_mss_change(MSS / 2);
        assert_eq!(path.window(), segments * MSS / 2);
        path.controller.on_mss_change(MSS);
        assert_eq!(path.window(), segments * MSS / 2);
        path.controller.on_mss_change(40 * MSS);
        assert_eq!(path.window(), 80 * MSS, "two segments are the least");
    }
}

#[test]
fn the_window_grows_to_its_cap_and_is_at_least_a_segment() {
    for algorithm in BOTH {
        for (cap_segments, expected) in [(25, 25), (5, 5), (0, 1)] {
            let window_cap_bytes = cap_segments * MSS;
            let config = CongestionConfig { algorithm, window_cap_bytes, ..Default::default() };
            let mut path = Path::with(config, 50);
            for _ in 0..5 {
                path.round_trip(1);
            }
            assert_eq!(path.window(), expected * MSS);
        }
    }
}

/// Round trips until the window reaches `segments`.
fn time_to_reach(path: &mut Path, segments: u32) -> Duration {
    let start = path.now;
    while path.window() < segments * MSS {
        path.round_trip(2);
        assert!(path.now - start < Duration::from_secs(1_000));
    }
    path.now - start
}

// RFC 9438, 4.2: K = cubic_root((W_max - cwnd_epoch) / C).
#[test]
fn cubic_returns_to_its_plateau_at_k_and_goes_on_beyond() {
    // 1,000 segments: K = (300 / 0.4)^(1/3) = 9.09 s; the path is long enough not to be Reno's.
    let mut path = Path::after_loss_at(Algorithm::Cubic, 100, 1_000);
    assert_eq!(path.window(), 700 * MSS);
    let rising = time_to_reach(&mut path, 990).as_secs_f64();
    // 10 segments below the plateau at K - (10 / 0.4)^(1/3) = 6.16 s.
    assert!((5.9..6.4).contains(&rising), "{rising}");
    let flat = time_to_reach(&mut path, 1_010).as_secs_f64();
    // And 10 above it at K + 2.92 s: 5.84 s later.
    assert!((5.5..6.2).contains(&flat), "{flat}");
    let window = path.window();
    for _ in 0..50 {
        path.round_trip(2);
    }
    assert!(path.window() > window + 150 * MSS, "convex: faster and faster");
}

// RFC 9438, 4.2: the target is W_cubic(t + RTT).
#[test]
fn cubic_aims_one_round_trip_ahead() {
    let mut path = Path::after_loss_at(Algorithm::Cubic, 100, 1_000);
    path.ack(1, 700 * MSS, false);
    path.now += path.rtt;
    path.ack(700 * MSS, 700 * MSS, false);
    // 1000 + 0.4 * (0.2 - 9.086)^3 = 719.4; without the round trip it would be 709.8.
    assert_eq!(path.window() / MSS, 719);
}

#[test]
fn cubic_grows_at_most_by_half_per_round_trip() {
    let mut path = Path::after_loss_at(Algorithm::Cubic, 100, 20);
    for _ in 0..100 {
        path.now += Duration::from_secs(60);
        let before = path.window();
        path.ack(before, before, false);
        assert!(path.window() <= before + before / 2 + 1);
    }
    assert_eq!(path.window(), 1 << 30);
}

// RFC 9438, 4.3: alpha = 0.53 segments per round trip up to cwnd_prior, then one.
#[test]
fn cubic_is_reno_on_short_paths() {
    let mut path = Path::after_loss_at(Algorithm::Cubic, 1, 40);
    assert_eq!(path.window(), 28 * MSS);
    let mut rounds = 0;
    while path.window() < 40 * MSS {
        path.round_trip(1);
        rounds += 1;
    }
    assert!((21..=24).contains(&rounds), "12 / 0.53 = 22.7: {rounds}");
    for _ in 0..20 {
        path.round_trip(1);
    }
    let segments = path.window() / MSS;
    assert!((59..=61).contains(&segments), "{segments}");
}

// RFC 9438, 4.7.
#[test]
fn cubic_converges_fast_when_it_loses_below_its_plateau() {
    let mut path = Path::after_loss_at(Algorithm::Cubic, 100, 1_000);
    path.lose();
    assert_eq!(path.window(), 490 * MSS);
    // The plateau is 700 * 0.85 = 595 instead of 700: K = (105 / 0.4)^(1/3) = 6.40 s.
    let rising = time_to_reach(&mut path, 585).as_secs_f64();
    assert!((3.2..3.8).contains(&rising), "K - 2.92 s: {rising}");
    // With the plateau at 700 it would be at 663 by then.
    let later = time_to_reach(&mut path, 605).as_secs_f64();
    assert!(later > 5.0, "{later}");
}

// RFC 9438, 4.8: K = 0 and W_max = cwnd in the first stage after a timeout.
#[test]
fn cubic_starts_convex_after_a_timeout() {
    let mut path = Path::after_loss_at(Algorithm::Cubic, 100, 1_000);
    path.controller.on_timeout(path.now, 700 * MSS, MSS);
    assert_eq!(path.controller.slow_start_threshold(), 490 * MSS);
    time_to_reach(&mut path, 490);
    // 0.4 * 5^3 = 50 segments after 5 s; Reno's estimate has 26 by then.
    let rising = time_to_reach(&mut path, 540).as_secs_f64();
    assert!((4.6..5.2).contains(&rising), "{rising}");
}

// RFC 9438, 4.2: t MUST NOT include application-limited periods.
#[test]
fn cubic_does_not_count_the_time_its_window_was_not_used() {
    let mut busy = Path::after_loss_at(Algorithm::Cubic, 100, 1_000);
    let mut limited = Path::after_loss_at(Algorithm::Cubic, 100, 1_000);
    let mut idle = Path::after_loss_at(Algorithm::Cubic, 100, 1_000);
    for path in [&mut busy, &mut limited, &mut idle] {
        path.round_trip(2);
    }
    for _ in 0..200 {
        limited.now += limited.rtt;
        limited.ack(10 * MSS, 10 * MSS, true);
    }
    idle.now += Duration::from_secs(20);
    idle.controller.on_flight_start(idle.now, true);
    for path in [&mut busy, &mut limited, &mut idle] {
        for _ in 0..20 {
            path.round_trip(2);
        }
    }
    for path in [&limited, &idle] {
        let difference = path.window().abs_diff(busy.window());
        assert!(difference < 3 * MSS, "{} {}", path.window(), busy.window());
    }
}

#[test]
fn algorithms_are_read_as_they_are_named_and_the_default_is_cubic() {
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.name().parse(), Ok(algorithm));
    }
    assert_eq!(CongestionConfig::default().algorithm, Algorithm::Cubic);
    let unknown = "reno".parse::<Algorithm>().expect_err("the kernel's name");
    assert_eq!(unknown, "no such congestion control; there are cubic, newreno, bbr");
}

/// Some rate sample, not always a plausible one.
fn sample(a: u32, b: u32) -> Option<RateSample> {
    let total_delivered_bytes = u64::from(a) << (b % 20);
    let prior_delivered_bytes = total_delivered_bytes.saturating_sub(u64::from(b));
    (!a.is_multiple_of(7)).then(|| RateSample {
        total_delivered_bytes,
        prior_delivered_bytes,
        delivered_bytes: total_delivered_bytes - prior_delivered_bytes,
        newly_delivered_bytes: b % 100_000,
        newly_lost_bytes: if b.is_multiple_of(3) { a % 50_000 } else { 0 },
        lost_bytes: u64::from(a % 200_000),
        tx_in_flight_bytes: b,
        interval: (!b.is_multiple_of(11)).then(|| Duration::from_nanos(u64::from(a))),
        rtt: (!b.is_multiple_of(5)).then(|| Duration::from_nanos(u64::from(b))),
        is_app_limited: a.is_multiple_of(13),
        in_flight_bytes: a % 3_000_000,
        worst_loss: (b.is_multiple_of(3)).then_some(Loss {
            len_bytes: a % 60_000,
            tx_in_flight_bytes: b,
            lost_bytes: u64::from(a),
            is_app_limited: false,
        }),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn the_window_stays_within_its_bounds(
        algorithm in prop_oneof![
            Just(Algorithm::NewReno), Just(Algorithm::Cubic), Just(Algorithm::Bbr)
        ],
        cap in 0_u32..2_000_000,
        events in proptest::collection::vec((0_u8..14, any::<u32>(), any::<u32>()), 0..300),
    ) {
        let config = CongestionConfig { algorithm, window_cap_bytes: cap, ..Default::default() };
        let mut controller = Controller::new(&config, MSS);
        let mut now = Instant::ZERO;
        let mut mss = MSS;
        // One segment is enough after a timeout or a lost SYN, until the window has grown.
        let mut loss_window = false;
        for (kind, a, b) in events {
            now += Duration::from_micros(u64::from(a % 3_000_000));
            match kind {
                0 => controller.on_loss(now, a % 3_000_000, mss),
                1 => { controller.on_timeout(now, b, mss); loss_window = true; }
                2 => controller.on_recovery_exit(now),
                3 => controller.on_undo(),
                4 => controller.on_idle(Duration::from_millis(b.into()), RTO, mss),
                7 => { controller.on_mark(now, a % 3_000_000, mss); loss_window = true; }
                8 => controller.on_unused(b),
                5 => { mss = 500 + b % 10_000; controller.on_mss_change(mss); }
                6 => controller.on_flight_start(now, true),
                _ => controller.on_ack(&Acked {
                    now,
                    acked_bytes: if b % 7 == 0 { a } else { a % 100_000 },
                    in_flight_before: b,
                    app_limited: a % 5 == 0,
                    rtt: (b % 3 != 0).then(|| Duration::from_micros(u64::from(b))),
                    rtt_sample: (b % 5 == 0).then(|| Duration::from_micros(u64::from(b))),
                    una: SeqNumber(a),
                    nxt: SeqNumber(a.wrapping_add(b >> 2)),
                    rate: sample(a, b),
                    sack: true,
                    mss,
                }),
            }
            let window = controller.window();
            prop_assert!(window >= mss && window <= cap.max(mss), "{window} {mss} {cap}");
            loss_window &= window < 2 * mss;
            if !loss_window {
                prop_assert!(window >= cap.min(2 * mss), "{window} {mss} {cap}");
            }
            prop_assert!(controller.slow_start_threshold() >= 2 * mss);
        }
    }
}
