//! The big transfer: 64 MiB each way between this stack and the kernel.

use crate::harness::{has_tap, measure};

const BYTES: u64 = 64 << 20;

fn moves_64_mib(test: &str, version: &str) {
    if !has_tap(test) {
        return;
    }
    for direction in ["send", "receive"] {
        for path in
            ["--offload off --mode single,multidata", "--offload on --mode single,multidata,lso"]
        {
            let arguments = format!(
                "bench stream --device tap --direction {direction} {path} --bytes 64M --runs 1 {version}"
            );
            let results = measure(&arguments);
            let runs = results["runs"].as_array().expect("runs are a list");
            let modes = path.split(',').count();
            assert_eq!(runs.len(), modes, "{arguments}");
            for run in runs {
                assert_eq!(run["verified"], true, "{arguments}: {run}");
                assert_eq!(run["bytes"], BYTES, "{arguments}: {run}");
                assert_eq!(run["direction"], direction, "{arguments}: {run}");
            }
        }
    }
}

#[test]
fn moves_64_mib_each_way_on_a_tap_ipv4() {
    moves_64_mib("moves_64_mib_each_way_on_a_tap_ipv4", "");
}

#[test]
fn moves_64_mib_each_way_on_a_tap_ipv6() {
    moves_64_mib("moves_64_mib_each_way_on_a_tap_ipv6", "--ipv6");
}
