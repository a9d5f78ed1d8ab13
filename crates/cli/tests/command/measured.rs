//! Short runs of every kind: what they report, and that every byte arrived.

use crate::harness::{has_network, has_tap, has_xdp, measure, run, run_after};
use serde_json::Value;
use std::io::Read;
use std::time::Duration;

const FIELDS: [&str; 22] = [
    "batches",
    "bytes",
    "connections",
    "counters",
    "device",
    "direction",
    "mode",
    "mtu",
    "napi",
    "offload",
    "packets",
    "peer",
    "scenario",
    "seconds",
    "stack_cpu_s_per_gb",
    "stack_kernel_cpu_s_per_gb",
    "syscalls",
    "system_cpu_s_per_gb",
    "throughput_gbps",
    "verified",
    "write_len_bytes",
    "zero_copy",
];

fn runs(results: &Value) -> &Vec<Value> {
    results["runs"].as_array().expect("runs are a list")
}

/// A run that must have moved so many bytes, every one of them verified.
fn check(run: &Value, bytes: u64) {
    assert_eq!(run["verified"], true, "{run}");
    assert_eq!(run["bytes"], bytes, "{run}");
    assert!(run["seconds"].as_f64().expect("a number") > 0.0, "{run}");
    assert!(run["throughput_gbps"].as_f64().expect("a number") > 0.0, "{run}");
    let [packets, batches] =
        ["packets", "batches"].map(|name| run[name].as_u64().expect("a number"));
    assert!(packets > 0 && batches > 0 && batches <= packets, "{run}");
}

fn moves(arguments: &str, run_count: usize, bytes: u64) {
    let results = measure(&format!("bench stream {arguments} --runs 1"));
    assert_eq!(runs(&results).len(), run_count, "{arguments}");
    runs(&results).iter().for_each(|run| check(run, bytes));
}

#[test]
fn the_json_of_a_wire_run_has_every_field_of_the_schema() {
    let results = measure("bench stream --device wire --mode single,multidata --bytes 1M --runs 2");
    assert_eq!(results["schema"], "multidata-bench/2");
    for field in ["date", "kernel", "cpu", "cpus", "program", "profile", "arguments"] {
        assert!(!results["host"][field].is_null(), "{field}: {}", results["host"]);
    }
    assert_eq!(results["host"]["complete"], true);
    assert_eq!(runs(&results).len(), 4);
    for run in runs(&results) {
        let mut fields: Vec<&str> =
            run.as_object().expect("an object").keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields, FIELDS);
        assert_eq!((&run["device"], &run["peer"]), (&"wire".into(), &"self".into()));
        assert_eq!(run["direction"], "send");
        check(run, 1 << 20);
        let counters = run["counters"].as_object().expect("an object");
        assert_eq!(counters["device.transmit_packets"], run["packets"]);
    }
    let order: Vec<&Value> = runs(&results).iter().map(|run| &run["mode"]).collect();
    assert_eq!(order, ["single", "multidata", "multidata", "single"], "rounds alternate");
}

#[test]
fn single_means_batches_of_one_and_multidata_more() {
    let results = measure("bench stream --device wire --mode single,multidata --bytes 8M --runs 1");
    for run in runs(&results) {
        let [packets, batches] =
            ["packets", "batches"].map(|name| run[name].as_f64().expect("a number"));
        match run["mode"].as_str() {
            // A batch of one that found the device full is offered again.
            Some("single") => assert!(packets <= batches, "{run}"),
            _ => assert!(packets / batches > 2.0, "{run}"),
        }
    }
}

#[test]
fn over_the_wire_every_direction_and_version_arrives() {
    moves("--device wire --direction receive --bytes 2M", 2, 2 << 20);
    moves("--device wire --direction both --bytes 2M --ipv6", 2, 4 << 20);
    moves("--peer self --offload on --mode single,multidata,lso --bytes 2M", 3, 2 << 20);
    moves("--device wire --connections 5 --bytes 2000001 --zero-copy", 2, 2_000_001);
    moves("--device wire --mtu 9000 --write-size 777 --bytes 300K", 2, 300 << 10);
    moves("--device wire --send-buffer 32K --receive-buffer 32K --bytes 1M", 2, 1 << 20);
}

#[test]
fn over_a_tap_every_mode_and_direction_arrives() {
    if !has_tap("over_a_tap_every_mode_and_direction_arrives") {
        return;
    }
    for direction in ["send", "receive"] {
        let direction = format!("--device tap --direction {direction} --bytes 3M");
        moves(&format!("{direction} --mode single,multidata"), 2, 3 << 20);
        moves(&format!("{direction} --offload on --mode single,multidata,lso"), 3, 3 << 20);
        moves(&format!("{direction} --napi on --ipv6"), 2, 3 << 20);
    }
    moves("--direction both --bytes 3M --ipv6 --mode lso", 1, 6 << 20);
    moves("--direction send --connections 4 --bytes 3M --zero-copy", 2, 3 << 20);
    moves("--direction receive --connections 4 --bytes 3M --mtu 9000", 2, 3 << 20);
}

#[test]
fn over_a_tun_every_mode_and_direction_arrives() {
    if !has_tap("over_a_tun_every_mode_and_direction_arrives") {
        return;
    }
    moves("--device tun --direction send --bytes 3M", 2, 3 << 20);
    moves("--device tun --direction receive --bytes 3M --ipv6", 2, 3 << 20);
    moves("--device tun --direction both --bytes 3M --offload on --mode lso,multidata", 2, 6 << 20);
    moves("--device tun --direction send --bytes 3M --napi on --mode multidata", 1, 3 << 20);
}

#[test]
fn the_kernels_end_has_as_many_sockets_as_it_may() {
    if !has_tap("the_kernels_end_has_as_many_sockets_as_it_may") {
        return;
    }
    let many = "bench many --device tap --direction send --seconds 0.05 --runs 1 --connections";
    let ran = run_after("ulimit -Sn 128", &format!("{many} 200"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = run_after("ulimit -n 128", &format!("{many} 20,200"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let left_out =
        "left out: tap send 200 tasks multidata: 200 sockets of the kernel's are more than";
    assert!(ran.stderr.contains(left_out), "{ran:?}");
    assert!(ran.stdout.contains(" 20 ") && !ran.stdout.contains(" 200 "), "{ran:?}");
}

#[test]
fn over_two_taps_on_a_bridge_every_mode_and_direction_arrives() {
    if !has_tap("over_two_taps_on_a_bridge_every_mode_and_direction_arrives") {
        return;
    }
    let both = "--device tap-pair --direction both --bytes 3M";
    moves(&format!("{both} --mode single,multidata"), 2, 6 << 20);
    moves(&format!("{both} --offload on --mode multidata,lso --ipv6"), 2, 6 << 20);
    moves(&format!("{both} --io-uring on --mode multidata --mtu 9000"), 1, 6 << 20);
}

#[test]
fn over_xdp_every_mode_and_direction_arrives() {
    let test = "over_xdp_every_mode_and_direction_arrives";
    if !has_tap(test) || !has_xdp(test) {
        return;
    }
    for direction in ["send", "receive", "both"] {
        let moved = if direction == "both" { 6 << 20 } else { 3 << 20 };
        let direction = format!("--device xdp --direction {direction} --bytes 3M");
        moves(&format!("{direction} --mode single,multidata"), 2, moved);
        moves(&format!("{direction} --mode multidata --mtu 9000 --ipv6"), 1, moved);
    }
    moves("--device xdp --direction send --bytes 3M --napi on --mode multidata", 1, 3 << 20);
}

#[test]
fn over_a_packet_socket_every_mode_and_direction_arrives() {
    if !has_tap("over_a_packet_socket_every_mode_and_direction_arrives") {
        return;
    }
    for direction in ["send", "receive"] {
        let direction = format!("--device packet --direction {direction} --bytes 3M");
        moves(&format!("{direction} --mode single,multidata"), 2, 3 << 20);
        moves(
            &format!("{direction} --offload on --mode single,multidata,lso --mtu 9000"),
            3,
            3 << 20,
        );
        moves(&format!("{direction} --napi on --ipv6 --mode multidata"), 1, 3 << 20);
    }
    moves("--device packet --direction both --connections 4 --bytes 3M --zero-copy", 2, 6 << 20);
}

#[test]
fn through_a_tunnel_every_transform_and_direction_arrives() {
    if !has_network("through_a_tunnel_every_transform_and_direction_arrives") {
        return;
    }
    let both = "--device tunnel --transform null,chacha20poly1305 --bytes 3M";
    moves(both, 4, 3 << 20);
    moves(&format!("{both} --direction both --udp-offload on,off --mode multidata"), 4, 6 << 20);
    moves(&format!("{both} --direction receive --ipv6 --mtu 9000 --connections 3"), 4, 3 << 20);
    let results = measure("bench rr --device tunnel --seconds 0.1 --runs 1");
    assert!(runs(&results)[0]["counters"]["transactions"].as_u64().expect("a number") > 0);
}

#[test]
fn the_switch_of_the_way_out_is_seen_in_the_batches() {
    let results = measure(
        "bench stream --device wire --mode multidata --bytes 3M --runs 1 \
         --multidata-outbound on,off,off-at-interface",
    );
    let [on, off, off_at_interface] = &runs(&results)[..] else { panic!("three positions") };
    for run in [on, off, off_at_interface] {
        check(run, 3 << 20);
    }
    let figure = |run: &Value, name: &str| run[name].as_u64().expect("a number");
    assert!(figure(on, "packets") > 4 * figure(on, "batches"), "{on}");
    for (run, name) in [(off, "outbound-off"), (off_at_interface, "outbound-off-at-interface")] {
        assert_eq!(run["scenario"], format!("wire {name} send multidata"));
        assert_eq!(figure(run, "packets"), figure(run, "batches"), "{run}");
    }
}

#[test]
fn what_a_capture_is_missing_is_said() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pipe = directory.path().join("capture");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("it is everywhere");
    assert!(made.success());
    // Open for both, so that it does not end with the first who writes; and read at some 10 MB/s.
    let mut reader =
        std::fs::File::options().read(true).write(true).open(&pipe).expect("it was made");
    std::thread::spawn(move || {
        let mut piece = vec![0; 64 << 10];
        while reader.read(&mut piece).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let capture = pipe.display();
    let bench = "bench stream --device wire --mode multidata --bytes 64M --runs 1 --capture";
    let ran = run(&format!("{bench} {capture}"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains(" packets are missing from the capture"), "{ran:?}");
    let ran =
        run("bench stream --device wire --mode multidata --bytes 4K --runs 1 --capture /dev/null");
    assert!(!ran.stderr.contains("missing"), "{ran:?}");
}

#[test]
fn a_cipher_is_measured_alone() {
    let outcome = run("bench cipher --seconds 0.01 --runs 1");
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!((outcome.code, lines.len()), (Some(0), 2), "{lines:?}");
    assert!(lines[1].starts_with("chacha20poly1305: packets of 1448 bytes"), "{lines:?}");
}

#[test]
fn both_senders_leave_by_an_interface_over_the_same_bad_path() {
    if !has_tap("both_senders_leave_by_an_interface_over_the_same_bad_path") {
        return;
    }
    let path = "--loss 1 --reorder 1 --corrupt 1 --rtt 1";
    let results = measure(&format!("bench loss {path} --seconds 0.3 --runs 2"));
    let senders: Vec<_> = runs(&results).iter().map(|run| run["sender"].as_str()).collect();
    assert_eq!(senders, ["multidata", "linux", "linux", "multidata"].map(Some));
    for run in runs(&results) {
        assert!(run["bytes"].as_u64() > Some(0), "{run}");
        assert!(run["frames_carried"].as_u64() > Some(0), "{run}");
        // A wire within the process takes no system calls.
        let calls = run["counters"]["device.transmit_syscalls"].as_u64();
        assert_eq!(calls > Some(0), run["sender"] == "multidata", "{run}");
    }
}

#[test]
fn transactions_are_counted_and_timed() {
    let wire = measure("bench rr --device wire --seconds 0.1 --runs 1");
    let mut all = vec![wire];
    if has_tap("transactions_are_counted_and_timed") {
        all.push(measure("bench rr --device tap --seconds 0.1 --runs 1"));
        all.push(measure("bench rr --device tun --ipv6 --size 3000 --seconds 0.1 --runs 1"));
    }
    for results in &all {
        for run in runs(results) {
            let transactions = run["counters"]["transactions"].as_u64().expect("a count");
            assert!(transactions > 0, "{run}");
            assert!(run["counters"]["transaction_median_ns"].as_u64() > Some(0), "{run}");
            assert_eq!(run["bytes"].as_u64().expect("a count") % (2 * transactions), 0, "{run}");
            assert_eq!(run["verified"], true);
        }
    }
}

#[test]
fn the_main_job_prints_a_table_and_what_batching_brought() {
    if !has_tap("the_main_job_prints_a_table_and_what_batching_brought") {
        return;
    }
    let ran = run("bench --seconds 0.05 --runs 1");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for row in [
        "tap send single",
        "tap send multidata",
        "tap napi send single",
        "tap napi send multidata",
        "tap offload send lso",
        "tap receive single",
        "tap receive multidata",
        "tap offload receive lso",
        "wire send single",
        "wire send multidata",
    ] {
        assert!(ran.stdout.contains(row), "{row} is missing: {}", ran.stdout);
    }
    assert!(ran.stdout.contains("Sending over a plain TAP, batches of"), "{}", ran.stdout);
    assert!(ran.stdout.contains("times"), "{}", ran.stdout);
}

#[test]
fn transmit_schemes_are_compared_and_drawn() {
    let directory = std::env::temp_dir().join(format!("transmit-{}", std::process::id()));
    let place = directory.display();
    let results = measure(&format!(
        "bench transmit --device wire --mode single,multidata --write-size 4K,64K --connections 1 \
         --zero-copy off,on --times on --seconds 0.02 --runs 1 --report {place}"
    ));
    assert_eq!(runs(&results).len(), 8);
    let page = std::fs::read_to_string(directory.join("index.html")).expect("a page");
    assert_eq!(
        page.matches("<svg").count(),
        10,
        "for memory copied and lent: four plots, and where time went"
    );
    std::fs::remove_dir_all(&directory).expect("it was ours");
}

#[test]
fn coalescing_is_compared_and_drawn_and_one_by_one_is_one_by_one() {
    let directory = std::env::temp_dir().join(format!("receive-{}", std::process::id()));
    let place = directory.display();
    let results = measure(&format!(
        "bench receive --device wire --coalesce 1,8,adaptive --hold-off off,50us --connections 1,2 \
         --seconds 0.02 --runs 1 --report {place}"
    ));
    let runs = runs(&results);
    assert_eq!(runs.len(), 8, "1, 8, 8 held and adaptive, for one connection and for two");
    for run in runs {
        let name = run["scenario"].as_str().expect("a name");
        let batches = |size: &str| run["counters"][format!("receive.{size}")].as_u64().unwrap_or(0);
        let larger = batches("batches_of_9_to_16") + batches("batches_of_17_to_32");
        let few =
            batches("batches_of_2") + batches("batches_of_3_to_4") + batches("batches_of_5_to_8");
        if name.ends_with("up 1") {
            assert_eq!(few + larger, 0, "{name}");
            assert!(batches("batches_of_1") > 0, "{name}");
        } else if name.contains("up 8") {
            assert_eq!(larger, 0, "{name}");
        }
    }
    let page = std::fs::read_to_string(directory.join("index.html")).expect("a page");
    assert_eq!(page.matches("<svg").count(), 2 * 6 + 1, "two paths, and the seed's own figure");
    std::fs::remove_dir_all(&directory).expect("it was ours");
}

#[test]
fn what_squeues_counted_is_told_summed_and_for_each() {
    // Anywhere: squeues get connections in turn, however few CPUs there are.
    let arguments = "bench receive --device wire --layout R1S0F0,R2S0F0,R1S2F1 --placement anywhere \
                     --connections 4 --seconds 0.02 --runs 1";
    let results = measure(arguments);
    for run in runs(&results) {
        let name = run["scenario"].as_str().expect("a name");
        let count = |counter: String| run["counters"][counter].as_u64();
        let sum = |prefix: &str, table: &str| {
            let sizes = ["1", "2", "3_to_4", "5_to_8", "9_to_16", "17_to_32", "33_to_64"];
            let counts =
                sizes.iter().filter_map(|size| count(format!("{prefix}{table}.batches_of_{size}")));
            counts.sum::<u64>()
        };
        for table in ["receive", "squeue", "trains"] {
            assert!(sum("", table) > 0, "{name}: {table}");
        }
        assert_eq!(sum("", "soft_rings") > 0, name.contains("R1S2F1"), "{name}");
        for index in 0..2 {
            let prefix = format!("squeue_{index}.");
            let enters = count(format!("{prefix}runtime.squeue_enters"));
            assert_eq!(enters > Some(0), !name.contains("R1S0F0"), "{name}: {enters:?}");
            assert_eq!(sum(&prefix, "squeue") > 0, enters.is_some(), "{name}");
        }
    }
    let told = run(arguments).stdout.replace('\n', " ");
    for part in ["contended", "migra-", "batches:", "99 in 100"] {
        assert!(told.contains(part), "{part} is missing: {told}");
    }
}
