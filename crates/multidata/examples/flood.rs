//! Goodput of an established connection over the in-process wire while SYNs from everywhere reach the
//! same device: `cargo run --release -p multidata --example flood [SYNs per second] [seconds]`.
//! Quiet and flooded runs alternate; each prints its ratio.

#[path = "../tests/flooding/mod.rs"]
mod flooding;

use flooding::Ground;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |default: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (per_second, seconds) = (number(100_000), number(2));
    let ground = Ground::new();
    let span = Duration::from_secs(seconds);
    ground.goodput(span / 4);
    let mut ratios = Vec::new();
    for round in 1..=5 {
        let quiet = ground.goodput(span);
        ground.tap.per_second.store(per_second, Ordering::Relaxed);
        let flooded = ground.goodput(span);
        ground.tap.per_second.store(0, Ordering::Relaxed);
        let ratio = flooded / quiet;
        println!(
            "{round}: {:.0} MB/s quiet, {:.0} MB/s flooded: {ratio:.2}",
            quiet / 1e6,
            flooded / 1e6
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    let counters = ground.right.counters();
    println!(
        "median {:.2}; {} SYNs delivered, {} lost in the device's ring, {} cookies sent, pool {} bytes",
        ratios[ratios.len() / 2],
        ground.tap.delivered.load(Ordering::Relaxed),
        ground.tap.overrun.load(Ordering::Relaxed),
        counters.stack.shard.syn_cookies_sent,
        counters.pool.outstanding_bytes,
    );
}
