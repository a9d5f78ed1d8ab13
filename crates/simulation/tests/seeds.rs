//! A few seeds in the dev profile, run twice: what the simulator itself promises.

use simulation::scenario::Scenario;
use simulation::{Keep, World, run};

#[test]
fn a_seed_repeats_to_the_bit_whether_or_not_somebody_looks() {
    for seed in 1..=6 {
        let first = run(seed, Keep::default()).unwrap_or_else(|failure| panic!("{failure}"));
        let keep = Keep { last_frames: true, capture: true };
        let second = run(seed, keep).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.counters, second.counters, "seed {seed}");
    }
}

#[test]
fn seeds_differ_and_something_happens_in_them() {
    let reports: Vec<_> = (1..=12)
        .map(|seed| run(seed, Keep::default()).unwrap_or_else(|failure| panic!("{failure}")))
        .collect();
    let sum = |of: fn(&simulation::Report) -> u64| reports.iter().map(of).sum::<u64>();
    assert!(sum(|report| report.counters.ended_in_order) > 500);
    assert!(sum(|report| report.counters.segments_checked) > 10_000);
    assert!(sum(|report| report.links.link_lost + report.links.link_corrupted) > 20);
    let hashes: std::collections::BTreeSet<_> = reports.iter().map(|report| report.hash).collect();
    assert_eq!(hashes.len(), reports.len());
}

/// The same world twice, with trains and without: every frame, its time and what was read are the same.
#[test]
fn trains_change_nothing_that_can_be_seen() {
    let mut frames = 0;
    for seed in 100..=140 {
        let [with, without] = [true, false].map(|receive_trains| {
            let mut scenario = Scenario::draw(seed);
            for host in &mut scenario.hosts {
                host.receive_trains = receive_trains;
            }
            let report = World::new(scenario, Keep::default()).run();
            report.unwrap_or_else(|failure| panic!("{failure}"))
        });
        assert_eq!(with.hash, without.hash, "seed {seed}");
        assert_eq!(with.counters.bytes_read, without.counters.bytes_read, "seed {seed}");
        assert_eq!(without.counters.train_frames, 0);
        frames += with.counters.train_frames;
    }
    assert!(frames > 500, "only {frames} frames came in trains");
}
