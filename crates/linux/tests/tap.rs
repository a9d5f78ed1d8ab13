//! TAP and TUN against the kernel, in a network of the test's own.

mod network;

mod tap_tests {
    pub(crate) mod datagrams;
    pub(crate) mod errors;
    pub(crate) mod filter;
    pub(crate) mod packets;
    pub(crate) mod streams;
}

use device::DeviceError;
use linux::{IoUring, Napi, TapConfig, TapDevice, TapKind};
use std::process::ExitCode;
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
        let uncut_datagrams = true;
        let config =
            TapConfig { kind, offload, napi, io_uring, uncut_datagrams, ..TapConfig::default() };
        TapDevice::open(&config)
    }
}

type Test = (String, Box<dyn Fn()>);

fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = vec![
        ("errors_name_what_is_wrong".into(), Box::new(errors::names_are_taken_and_refused)),
        ("queues_beside_another_programs".into(), Box::new(errors::queues_beside_another_programs)),
        ("every_queue_is_bounded".into(), Box::new(errors::every_queue_is_bounded)),
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
        ("a_shorter_mtu_is_told_to_who_only_sends".into(), Box::new(errors::a_shorter_mtu)),
        ("a_longer_mtu_cuts_nothing_off".into(), Box::new(errors::a_longer_mtu)),
        (
            "the_first_frame_of_a_longer_mtu".into(),
            Box::new(errors::the_first_frame_of_a_longer_mtu),
        ),
        ("no_ring_is_said_and_counted".into(), Box::new(errors::no_ring_is_said_and_counted)),
        (
            "a_thread_for_napi_that_is_there_is_not_refused".into(),
            Box::new(errors::a_thread_for_napi_that_is_there_is_not_refused),
        ),
        (
            "a_descriptor_is_what_it_was_attached_as".into(),
            Box::new(errors::a_descriptor_is_what_it_was_attached_as),
        ),
        ("a_veth_pair_comes_and_goes".into(), Box::new(errors::a_veth_pair_comes_and_goes)),
        ("settings_reach_the_kernel".into(), Box::new(errors::settings_reach_the_kernel)),
    ];
    for ground in Ground::all() {
        let name = ground.name();
        tests.push((format!("datagrams_{name}"), Box::new(move || datagrams::both_ways(ground))));
        tests.push((format!("streams_{name}"), Box::new(move || streams::both_ways(ground))));
        if ground.offload {
            let uncut = format!("uncut_datagrams_{name}");
            tests.push((uncut, Box::new(move || datagrams::uncut(ground))));
        }
    }
    let needs_ring = |(name, _): &Test| name.ends_with("_ring_on");
    tests.into_iter().map(|test| if needs_ring(&test) { with_ring(test) } else { test }).collect()
}

/// A test that writes many frames by one call, and says so where the kernel does not let us.
fn with_ring((name, test): Test) -> Test {
    let announced = name.clone();
    let ring = TapConfig { io_uring: IoUring::On, ..TapConfig::default() };
    let run = move || match TapDevice::open(&ring) {
        Ok(_) => test(),
        Err(why) => network::cannot_run(&announced, &why.message),
    };
    (name, Box::new(run))
}

fn main() -> ExitCode {
    network::run(&tests(), network::enter_with_tun)
}
