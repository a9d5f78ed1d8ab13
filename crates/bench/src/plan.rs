//! Which scenarios a job runs, and in which order.
//!
//! Rounds alternate: every scenario runs once before any runs again, so that what drifts on the
//! machine drifts for all of them. Odd rounds run backwards, so that none always follows the same
//! neighbour.

use crate::scenario::{Amount, DeviceKind, Direction, Scenario, Workload};
use device::TransmitMode;
use std::time::Duration;

/// Rounds of the main job.
pub const DEFAULT_ROUNDS: usize = 3;

/// The main job: what a newcomer wants to see, each run this long.
#[must_use]
pub fn default_job(time: Duration) -> Vec<Scenario> {
    use DeviceKind::{Tap, Wire};
    use Direction::{Receive, Send};
    use TransmitMode::{Lso, Multidata, Single};
    let scenario = |device, direction, mode, napi| Scenario {
        amount: Amount::Time(time),
        napi,
        ..Scenario::stream(device, direction, mode)
    };
    vec![
        scenario(Tap, Send, Single, false),
        scenario(Tap, Send, Multidata, false),
        scenario(Tap, Send, Single, true),
        scenario(Tap, Send, Multidata, true),
        scenario(Tap, Send, Lso, false),
        scenario(Tap, Receive, Single, false),
        scenario(Tap, Receive, Multidata, false),
        scenario(Tap, Receive, Multidata, true),
        scenario(Tap, Receive, Lso, false),
        scenario(Wire, Send, Single, false),
        scenario(Wire, Send, Multidata, false),
    ]
}

/// What of a job can run where there is no TAP: the same scenarios over the wire, each once.
/// The wire carries no super-frames to a kernel, so `lso` stays only where the wire takes it.
#[must_use]
pub fn over_the_wire(job: &[Scenario]) -> Vec<Scenario> {
    each_once(job.iter().map(|scenario| Scenario {
        device: DeviceKind::Wire,
        napi: false,
        io_uring: false,
        ..scenario.clone()
    }))
}

/// All of these in their order, each once: what a list names twice is measured as often as all others.
#[must_use]
pub fn each_once<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// The indices of `count` scenarios in the order in which round `round` runs them.
pub fn round_order(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |index| if round.is_multiple_of(2) { index } else { count - 1 - index })
}

/// Whether any of these scenarios needs a network of its own, with interfaces or sockets in it.
#[must_use]
pub fn needs_network(job: &[Scenario]) -> bool {
    job.iter().any(|scenario| scenario.device != DeviceKind::Wire)
}

/// Whether any of these scenarios needs a TAP or TUN device.
#[must_use]
pub fn needs_tap(job: &[Scenario]) -> bool {
    job.iter().any(|scenario| scenario.device.is_tun())
}

/// How many bytes the verification pass of a scenario moves each way: as many as a run that is
/// bounded in bytes, a fixed amount before runs that are bounded in time. Less before those that send no more than a
/// rate allows, which would take minutes for it, and before long transactions fewer of them; over each connection some.
#[must_use]
pub fn verification_amount(scenario: &Scenario) -> Amount {
    const BEFORE_TIMED_RUNS: u64 = 64 << 20;
    const TRANSACTIONS: u64 = 200;
    let connections = scenario.connections as u64;
    match (scenario.workload, scenario.amount) {
        (Workload::Stream, Amount::Bytes(bytes)) => Amount::Bytes(bytes),
        (Workload::Stream, Amount::Time(time)) => {
            let rate = scenario.rate.filter(|_| scenario.direction.sends());
            let of_run = rate.map(|bits| (bits as f64 / 8.0 * time.as_secs_f64()) as u64);
            let bytes = of_run.map_or(BEFORE_TIMED_RUNS, |bytes| bytes.min(BEFORE_TIMED_RUNS));
            Amount::Bytes(bytes.max(connections))
        }
        (Workload::RequestResponse { len_bytes }, _) => {
            let len_bytes = len_bytes as u64;
            let transactions = TRANSACTIONS.min(BEFORE_TIMED_RUNS / len_bytes.max(1));
            Amount::Bytes(transactions.max(connections) * len_bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_the_main_job_is_sound() {
        for scenario in default_job(Duration::from_secs(1)) {
            assert_eq!(scenario.check(), Ok(()), "{}", scenario.name());
        }
    }

    #[test]
    fn without_a_tap_nothing_needs_the_kernel_and_nothing_runs_twice() {
        let wire = over_the_wire(&default_job(Duration::from_secs(1)));
        assert!(!needs_network(&wire) && !needs_tap(&wire));
        for (index, scenario) in wire.iter().enumerate() {
            assert_eq!(scenario.check(), Ok(()));
            assert!(!wire[..index].contains(scenario), "{} runs twice", scenario.name());
        }
    }

    #[test]
    fn only_what_stands_on_a_tap_needs_one() {
        let scenario = |device| Scenario::stream(device, Direction::Send, TransmitMode::Multidata);
        let without = [DeviceKind::Packet, DeviceKind::Xdp, DeviceKind::Tunnel].map(scenario);
        assert!(needs_network(&without) && !needs_tap(&without));
        assert!(without.iter().all(|it| needs_network(core::slice::from_ref(it))));
        for device in [DeviceKind::Tap, DeviceKind::Tun, DeviceKind::TapPair] {
            assert!(needs_network(&[scenario(device)]) && needs_tap(&[scenario(device)]));
        }
    }

    #[test]
    fn a_verification_takes_no_longer_than_what_it_stands_before() {
        let stream = Scenario::stream(DeviceKind::Wire, Direction::Send, TransmitMode::Multidata);
        let rated = |rate, seconds| Scenario {
            rate: Some(rate),
            amount: Amount::Time(Duration::from_secs(seconds)),
            ..stream.clone()
        };
        assert_eq!(verification_amount(&stream), Amount::Bytes(64 << 20));
        assert_eq!(verification_amount(&rated(1_000_000, 2)), Amount::Bytes(250_000));
        assert_eq!(verification_amount(&rated(10_000_000_000, 2)), Amount::Bytes(64 << 20));
        let slow = Scenario { connections: 9, ..rated(8, 1) };
        assert_eq!(verification_amount(&slow), Amount::Bytes(9), "a byte each");
        let receiving = Scenario { direction: Direction::Receive, ..rated(1_000_000, 2) };
        assert_eq!(verification_amount(&receiving), Amount::Bytes(64 << 20), "not held to it");
        let asking = |len_bytes, connections| Scenario {
            workload: Workload::RequestResponse { len_bytes },
            connections,
            ..stream.clone()
        };
        assert_eq!(verification_amount(&asking(1, 1)), Amount::Bytes(200));
        assert_eq!(verification_amount(&asking(1, 1_000)), Amount::Bytes(1_000), "one each");
        assert_eq!(verification_amount(&asking(16 << 20, 1)), Amount::Bytes(64 << 20));
        assert_eq!(verification_amount(&asking(1 << 30, 1)), Amount::Bytes(1 << 30));
    }

    #[test]
    fn every_round_runs_every_scenario_once() {
        for round in 0..4 {
            let mut order: Vec<usize> = round_order(round, 5).collect();
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3, 4]);
        }
        assert_ne!(round_order(0, 5).next(), round_order(1, 5).next());
    }
}
