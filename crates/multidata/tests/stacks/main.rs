//! Stacks at both ends of a wire, in real time: one binary, as each would link the whole stack anew. Tests that count
//! the threads of their process or measure, and those that enter a network of their own, have binaries of their own.

#[path = "../pair/mod.rs"]
mod pair;

mod bypass;
mod capture;
mod coalescing;
mod copy_in;
mod device_failure;
mod device_polling;
mod embedding;
mod forwarding;
mod inhibited;
mod inspecting;
mod interfaces;
#[cfg(target_os = "linux")]
mod late_loops;
mod lone;
mod loopback;
mod lossy;
mod narrow;
mod options;
mod panics;
mod panics_of_all;
mod polling;
mod rate;
mod raw;
mod reentering;
mod replaced_devices;
mod squeues;
mod squeues_narrow;
mod squeues_revoked;
mod squeues_unlike;
mod stalls;
mod streams;
mod tcp;
mod udp;
mod unread;
