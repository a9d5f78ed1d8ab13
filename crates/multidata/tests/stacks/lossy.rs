//! Two stacks over a wire that loses, reorders, duplicates and corrupts: the bytes still arrive,
//! all of them and in order.

use crate::pair::{self, LEFT, RIGHT, connected, exchange, interface};
use device::{FaultConfig, FaultQueue, TransmitMode};
use multidata::{InterfaceConfig, Stack};

/// Two stacks on a wire with these faults in both directions.
fn faulty_pair(
    wire: device::WireConfig,
    faults: FaultConfig,
    mode: TransmitMode,
) -> (Stack, Stack) {
    let (left, right) = device::wire(wire);
    let build = |queue, interface: InterfaceConfig, seed| {
        let queue = FaultQueue::new(queue, FaultConfig { seed, ..faults });
        Stack::builder().interface(queue, interface.mode(mode)).build().expect("a stack")
    };
    let left = build(left, interface(LEFT), faults.seed);
    (left, build(right, interface(RIGHT), faults.seed + 1))
}

fn survives(wire: device::WireConfig, faults: FaultConfig, mode: TransmitMode, len: u64) {
    let (left, right) = faulty_pair(wire, faults, mode);
    let (client, server) = connected(&left, &right);
    exchange(&client, &server, faults.seed, len);
    let mut harm = 0;
    for stack in [&left, &right] {
        let counters = stack.counters().stack;
        harm += counters.tcp.out_of_order_segments + counters.tcp.retransmitted_segments;
    }
    assert!(harm > 0, "the wire did no harm");
}

#[test]
fn loss_reordering_and_duplication_together() {
    let faults = FaultConfig {
        seed: 11,
        loss: 0.01,
        duplicate: 0.01,
        reorder: 0.01,
        reorder_distance_max: 8,
        ..FaultConfig::default()
    };
    survives(pair::ethernet(), faults, TransmitMode::Multidata, 8 << 20);
}

#[test]
fn loss_in_every_transmit_mode() {
    for mode in TransmitMode::ALL {
        // A super-frame is lost as a whole, often a whole window, and costs a timeout.
        let loss = if mode == TransmitMode::Lso { 0.03 } else { 0.01 };
        let faults = FaultConfig { seed: 12, loss, ..FaultConfig::default() };
        survives(pair::offloading_ethernet(), faults, mode, 4 << 20);
    }
}

#[test]
fn corruption_is_found_by_checksums() {
    let faults = FaultConfig { seed: 13, corrupt: 0.01, ..FaultConfig::default() };
    survives(pair::ethernet(), faults, TransmitMode::Multidata, 4 << 20);
}

#[test]
fn heavy_reordering_alone() {
    let faults =
        FaultConfig { seed: 14, reorder: 0.2, reorder_distance_max: 20, ..FaultConfig::default() };
    survives(pair::ethernet(), faults, TransmitMode::Multidata, 4 << 20);
}
