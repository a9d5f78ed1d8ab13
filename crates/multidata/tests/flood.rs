//! Receiver livelock (the work of receiving must not crowd out the work that it is received for): a
//! flood that is faster than this stack.

mod flooding;

use counters::DropReason;
use flooding::Ground;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// More than any machine here takes.
const BEYOND: u64 = 50_000_000;

// Every turn has a budget, after which the application has its turn; what nobody fetches in time is
// lost in the device, where it costs nothing.
#[test]
fn a_flood_beyond_capacity_leaves_some_goodput_and_is_over_when_it_ends() {
    let ground = Ground::new();
    let span = Duration::from_millis(300);
    let before = ground.goodput(span);
    ground.tap.per_second.store(BEYOND, Ordering::Relaxed);
    let during = ground.goodput(span);
    ground.tap.per_second.store(0, Ordering::Relaxed);
    let after = ground.goodput(span);
    let counters = ground.right.counters().stack;
    let overrun = ground.tap.overrun.load(Ordering::Relaxed);
    println!("{before:.0} {during:.0} {after:.0} bytes/s, overrun {overrun}");
    assert!(overrun > 0, "the flood was not beyond capacity");
    assert!(during > before / 1_000.0 && during > 10_000.0, "{before} {during}");
    assert!(after > before / 4.0, "recovers at once: {before} {after}");
    let shed: u64 = [DropReason::TransmitQueueFull, DropReason::BacklogFull, DropReason::NoMemory]
        .into_iter()
        .map(|reason| counters.drops.count(reason))
        .sum();
    assert!(counters.shard.syn_cookies_sent + shed > 1_000, "{counters:?}");
}
