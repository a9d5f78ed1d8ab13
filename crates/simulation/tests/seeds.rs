//! A few seeds in the dev profile, run twice: what the simulator itself promises.

use simulation::{Keep, run};

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
