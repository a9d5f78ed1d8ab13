//! TAP and TUN against the kernel, in a network of the test's own.
//!
//! There is no test harness, because namespaces must be entered before any thread starts. The
//! output has the harness's form, and a filter on the command line works as usual. What the
//! machine does not grant is announced as `CANNOT RUN`, never passed over in silence.

mod tap_tests {
    pub(crate) mod datagrams;
    pub(crate) mod errors;
    pub(crate) mod filter;
    pub(crate) mod packets;
    pub(crate) mod streams;
}

use device::DeviceError;
use linux::{IoUring, Napi, Sandbox, TapConfig, TapDevice, TapKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use tap_tests::{datagrams, errors, streams};

/// What a test runs on: the kind of interface, offload, NAPI, many frames by one call or one.
#[derive(Clone, Copy, Debug)]
struct Ground {
    kind: TapKind,
    offload: bool,
    napi: Napi,
    io_uring: IoUring,
}

impl Ground {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for kind in [TapKind::Tap, TapKind::Tun] {
            for offload in [false, true] {
                for napi in [Napi::Off, Napi::On, Napi::Threaded] {
                    for io_uring in [IoUring::Off, IoUring::On] {
                        all.push(Self { kind, offload, napi, io_uring });
                    }
                }
            }
        }
        all
    }

    fn name(self) -> String {
        let offload = if self.offload { "offload" } else { "plain" };
        let Self { kind, napi, io_uring, .. } = self;
        format!("{kind:?}_{offload}_napi_{napi:?}_ring_{io_uring:?}").to_lowercase()
    }

    fn open(self) -> Result<TapDevice, DeviceError> {
        let Self { kind, offload, napi, io_uring } = self;
        TapDevice::open(&TapConfig { kind, offload, napi, io_uring, ..TapConfig::default() })
    }
}

type Test = (String, Box<dyn Fn()>);

fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = vec![
        ("errors_name_what_is_wrong".into(), Box::new(errors::names_are_taken_and_refused)),
        ("a_device_that_goes_down_or_away".into(), Box::new(errors::down_and_gone)),
        ("a_full_queue_has_room_again".into(), Box::new(|| errors::full_and_emptied(IoUring::Off))),
        (
            "a_full_queue_has_room_again_ring_on".into(),
            Box::new(|| errors::full_and_emptied(IoUring::On)),
        ),
        (
            "a_refused_packet_in_the_middle".into(),
            Box::new(|| errors::a_refused_packet_in_the_middle(IoUring::Off)),
        ),
        (
            "a_refused_packet_in_the_middle_ring_on".into(),
            Box::new(|| errors::a_refused_packet_in_the_middle(IoUring::On)),
        ),
        ("no_ring_is_said_and_counted".into(), Box::new(errors::no_ring_is_said_and_counted)),
        ("a_veth_pair_comes_and_goes".into(), Box::new(errors::a_veth_pair_comes_and_goes)),
        ("settings_reach_the_kernel".into(), Box::new(errors::settings_reach_the_kernel)),
    ];
    for ground in Ground::all() {
        let name = ground.name();
        tests.push((format!("datagrams_{name}"), Box::new(move || datagrams::both_ways(ground))));
        tests.push((format!("streams_{name}"), Box::new(move || streams::both_ways(ground))));
    }
    tests
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let tests: Vec<Test> = tests()
        .into_iter()
        .filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter.as_str())))
        .collect();
    if arguments.iter().any(|argument| argument == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", tests.len());
    let started = Instant::now();
    let (mut passed, mut failed) = (0, 0);
    if let Err(why) = enter() {
        for (name, _) in &tests {
            announce(name, &why);
            println!("test {name} ... ok");
        }
        passed = tests.len();
    } else {
        let ring = TapConfig { io_uring: IoUring::On, ..TapConfig::default() };
        let no_ring = TapDevice::open(&ring).err();
        for (name, test) in &tests {
            if let (true, Some(why)) = (name.ends_with("_ring_on"), &no_ring) {
                announce(name, &why.message);
                println!("test {name} ... ok");
                passed += 1;
                continue;
            }
            let verdict = catch_unwind(AssertUnwindSafe(test));
            if verdict.is_ok() {
                passed += 1
            } else {
                failed += 1
            }
            println!("test {name} ... {}", if verdict.is_ok() { "ok" } else { "FAILED" });
        }
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; \
         0 filtered out; finished in {:.2}s\n",
        started.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Enters a network of our own and tries whether it has the TUN driver.
fn enter() -> Result<(), String> {
    let sandbox = Sandbox::enter().map_err(|error| error.message)?;
    sandbox.refused().iter().for_each(|sentence| eprintln!("note: {sentence}"));
    TapDevice::open(&TapConfig::default()).map(drop).map_err(|error| error.message)
}

/// Says that a test could not run, for people and for `cargo xtask test`.
fn announce(test: &str, why: &str) {
    eprintln!("CANNOT RUN: {test}: {why}");
    if let Some(directory) = std::env::var_os("MULTIDATA_CANNOT_RUN_DIR") {
        let path = PathBuf::from(directory).join(test);
        if let Err(error) = std::fs::write(&path, why) {
            eprintln!("{} could not be written: {error}", path.display());
        }
    }
}
