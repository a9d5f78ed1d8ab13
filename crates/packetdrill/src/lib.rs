//! Segment scripts: packetdrill's language, run in virtual time against this stack or in real time
//! against the Linux kernel.
//!
//! A script (`.pkt`) says which system calls a program makes, which packets arrive and which must
//! be sent, and when. [`parse`] reads it; [`run_on_stack`] plays it. What a run is made of:
//!
//! * `parse/`, `script.rs`: text to events; `config.rs`, `settings.rs`: options and sysctls;
//! * `run/`: the interpreter; `flow.rs`: the script's numbers and the live ones; `live.rs`, `fragment.rs`:
//!   packets as bytes, with an encoder of its own; `check.rs`, `notation.rs`: comparing and showing them;
//! * `evaluate.rs`, `assertion.rs`: expressions, and assertions over `tcp_info`;
//! * `backend.rs`: what a script is run against.

mod assertion;
mod backend;
mod check;
mod config;
mod errnos;
mod evaluate;
mod flow;
mod fragment;
mod icmp;
mod live;
mod notation;
mod parse;
mod run;
mod script;
mod settings;
mod symbols;

pub use config::Judge;
pub use parse::{ParseError, parse};
pub use run::Failure;
pub use script::Script;

use config::{Config, IpVersion};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use ip::Cidr;
use posix::HostConfig;
use std::path::Path;

/// Runs a script against this stack, in virtual time. `text` is its text, for the settings in its
/// comments.
///
/// # Errors
/// The first thing that did not happen as the script says.
pub fn run_on_stack(script: &Script, text: &str, judge: Judge) -> Result<(), Failure> {
    run_on(script, text, false, judge).map(|_| ())
}

/// The same, with the packets that arrive at one instant, and with nothing between them, as one batch
/// of the device, as a device that coalesces brings them. Says how many of them the stack took as part
/// of a train, behind its first.
///
/// # Errors
/// The first thing that did not happen as the script says.
pub fn run_on_stack_in_batches(script: &Script, text: &str) -> Result<u64, Failure> {
    run_on(script, text, true, Judge::Exactly)
}

fn run_on(script: &Script, text: &str, in_batches: bool, judge: Judge) -> Result<u64, Failure> {
    let whole = |message| Failure { line: 0, message };
    let config = Config::of(script, judge).map_err(whole)?;
    let mut host = host_config();
    let prefix_len = if config.ip == IpVersion::V6 { 48 } else { 16 };
    let network = Cidr::new(config.local, prefix_len);
    host.addresses = vec![network.ok_or_else(|| whole("no such network".to_owned()))?];
    host.gateways = vec![beside(config.local)];
    host.mtu_bytes = config.mtu_bytes;
    settings::apply_comments(text, &mut host);
    let mut backend = backend::stack::StackBackend::new(host, script.directory.clone());
    run::run(script, &mut backend, in_batches, judge)?;
    Ok(backend.train_frames())
}

/// Another address of the same network. It stands for the gateway, which on a link without hardware
/// addresses nobody looks for.
#[must_use]
pub fn beside(local: IpAddr) -> IpAddr {
    match local {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() ^ 1).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() ^ 1).into(),
    }
}

/// Runs a script against the Linux kernel, in real time, in a network namespace that this process
/// enters for good; so it does so once, and before it starts a thread. Commands of the script run
/// in `directory`.
///
/// # Errors
/// What the machine does not grant (`Err(Ok(sentence))`), or the first thing that did not happen as
/// the script says.
pub fn run_on_linux(script: &Script, directory: &Path) -> Result<(), Result<String, Failure>> {
    let judge = Judge::AsPacketdrill;
    let config = Config::of(script, judge).map_err(|message| Err(Failure { line: 0, message }))?;
    let backend = backend::linux::LinuxBackend::new(&config, directory.to_owned());
    let mut backend = backend.map_err(Ok)?;
    run::run(script, &mut backend, false, judge).map_err(Err)
}

/// A host as packetdrill's scripts expect it, with an address of each family: the sizes of its
/// buffers are those of packetdrill's own `defaults.sh`, from which the window scale follows.
///
/// # Panics
/// Never: the networks are constants.
#[must_use]
pub fn host_config() -> HostConfig {
    let address = |text: &str| text.parse::<IpAddr>().expect("a constant address");
    let network = |text: &str, prefix_len| Cidr::new(address(text), prefix_len);
    let tcp = tcp::Config {
        send_buffer_bytes: 4 << 20,
        send_buffer_bytes_initial: 256 << 10,
        receive_buffer_bytes: 15 << 20,
        // Linux leaves half of what it calls the buffer to payload.
        receive_buffer_bytes_initial: 270_000,
        syn_retries: 5,
        // Scripts are written for hosts whose interfaces have no scheduler that paces.
        pacing: tcp::Pacing::Off,
        // As Linux has it, whose behaviour scripts describe.
        minshall: true,
        ..tcp::Config::default()
    };
    HostConfig {
        tcp,
        keepalive: tcp::Keepalive::default(),
        listen: posix::ListenOptions::default(),
        fast_open: posix::abi::TFO_CLIENT_ENABLE | posix::abi::TFO_SERVER_ENABLE,
        addresses: [network("192.168.0.1", 16), network("fd3d:fa7b:d17d::1", 48)]
            .into_iter()
            .flatten()
            .collect(),
        gateways: vec![address("192.168.255.254"), address("fd3d:fa7b:d17d:8888::1")],
        mtu_bytes: 1_500,
        secret: [7; 32],
        first_fd: 3,
        adopts_addresses: false,
    }
}

/// The settings of [`apply_linux_habits`].
pub const LINUX_HABITS: &str = "quick_acks=16 quick_acks_each=1 push_bursts=1 tcp_mtu_probing=0";

/// Makes choices that RFCs leave open as Linux makes them: each of the first segments is
/// acknowledged on its own, PSH stands at the end of each burst, and what is lost three times is not taken for
/// longer than the path takes (RFC 4821). For scripts that nobody here wrote.
pub fn apply_linux_habits(config: &mut HostConfig) {
    apply_settings(LINUX_HABITS, config);
}

/// Applies `name=value` settings, by the names of Linux's sysctls, found in `text`.
pub fn apply_settings(text: &str, config: &mut HostConfig) {
    settings::apply(text, config);
}

/// Applies what a script sets before its first event: in comments, and in its first commands with the shell scripts that
/// they run, as they are seen from `directory`. The script need not be one that [`parse`] takes.
pub fn apply_script_settings(text: &str, directory: &Path, config: &mut HostConfig) {
    settings::apply_comments(text, config);
    for command in settings::first_commands(text) {
        settings::apply_command(command, directory, config);
    }
}
