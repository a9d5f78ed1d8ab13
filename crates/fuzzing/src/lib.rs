//! What fuzzers run: one function of bytes for each door that bytes come in by.
//!
//! The functions are plain, so three drivers share them: libFuzzer by the targets in `fuzz/`, a
//! test that runs the corpora and random mutations of them in a few seconds on a stable compiler
//! (`tests/corpora.rs`), and the planted mistakes (`cargo xtask canaries`). A function panics where
//! something does not hold, and every input is good: what it makes of the bytes is its own affair.
//!
//! * [`parsers`]: no parser panics, and what it reads it writes again.
//! * [`devices`]: what the kernel says of a frame, and what a tunnel's peer sends.
//! * [`steering`]: frames are what the parsers say, each in its home, in order.
//! * [`reassembly`]: fragments of any kind, bounded, and what comes out is what went in.
//! * [`client`]: a DHCP client, and servers that say what they like.
//! * [`segments`]: a shard with live connections and a peer who sends what it likes, over bare IPv4 and,
//!   with super-frames, marks and neighbours, over Ethernet.
//! * [`calls`]: two shards, sockets used in any order with any settings, frames lost, repeated and late.

pub mod calls;
pub mod client;
pub mod devices;
mod first_come;
pub mod input;
pub mod parsers;
mod peer;
pub mod reassembly;
pub mod segments;
mod settings;
mod station;
pub mod steering;

/// A function to fuzz.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, that of the target and of the directory of its corpus.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "link", run: parsers::link },
    Target { name: "network", run: parsers::network },
    Target { name: "control", run: parsers::control },
    Target { name: "transport", run: parsers::transport },
    Target { name: "leases", run: parsers::leases },
    Target { name: "offloaded", run: devices::offloaded },
    Target { name: "tunnelled", run: devices::tunnelled },
    Target { name: "steering", run: steering::run },
    Target { name: "reassembly", run: reassembly::run },
    Target { name: "client", run: client::run },
    Target { name: "segments", run: segments::run },
    Target { name: "frames", run: segments::run_over_ethernet },
    Target { name: "calls", run: calls::run },
];
