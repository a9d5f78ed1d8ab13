//! `multidata bench copyin`.

use super::{DeviceArgument, Job, OutputArguments, PathArguments, Reading, Switch};
use bench::copy_in::{self, Policy, WRITE_LENS_BYTES};
use bench::scenario::{DeviceKind, Scenario};
use bench::sizes::{parse_buffer_size, parse_seconds};
use clap::Args;
use device::TransmitMode;
use std::time::Duration;

#[derive(Clone, Debug, Args)]
pub(crate) struct CopyInArguments {
    #[command(flatten)]
    path: PathArguments,
    /// What the application writes in one call [default: 16K,64K,256K,1M]
    #[arg(long, value_name = "B,..", value_delimiter = ',', value_parser = parse_buffer_size)]
    write_size: Vec<usize>,
    /// old, zero-copy, or interleaved or first with -mss, -page or -whole and perhaps -folded
    /// [default: all of them]
    #[arg(long, value_name = "POLICY,..", value_delimiter = ',')]
    policy: Vec<Policy>,
    /// Send each write as datagrams of this length in one call, too, not only as part of a stream
    #[arg(long, value_name = "B,..", value_delimiter = ',', value_parser = parse_buffer_size)]
    datagram: Vec<usize>,
    /// Send buffer of this stack's sockets (tcp_xmit_hiwat)
    #[arg(long, value_name = "B", value_parser = parse_buffer_size)]
    send_buffer: Option<usize>,
    /// A blocked write goes on when so many bytes fit (tcp_xmit_lowat)
    #[arg(long, value_name = "B", value_parser = parse_buffer_size)]
    low_water: Option<usize>,
    /// Longest block a write is copied into (strmsgsz)
    #[arg(long, value_name = "B", value_parser = parse_buffer_size)]
    largest_block: Option<usize>,
    /// Longest block that is kept for reuse (DBLK_MAX_CACHE)
    #[arg(long, value_name = "B", value_parser = parse_buffer_size)]
    largest_cached: Option<usize>,
    /// How long each run sends
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "0.3")]
    seconds: Duration,
    #[command(flatten)]
    output: OutputArguments,
}

impl CopyInArguments {
    pub(super) fn job(self) -> Result<Job, String> {
        let policies = if self.policy.is_empty() { Policy::all() } else { self.policy.clone() };
        let policies: Vec<Policy> = policies
            .into_iter()
            .map(|policy| policy.with(self.largest_block, self.low_water))
            .collect();
        let sizes = if self.write_size.is_empty() { &WRITE_LENS_BYTES } else { &*self.write_size };
        let paths: Vec<Scenario> = self
            .paths()?
            .into_iter()
            .map(|path| Scenario {
                send_buffer_bytes: self.send_buffer,
                largest_cached_len_bytes: self.largest_cached,
                ..path
            })
            .collect();
        Ok(Job {
            left_out: Vec::new(),
            scenarios: copy_in::scenarios(&paths, sizes, &policies, &self.datagram, self.seconds),
            may_use_wire: self.path.may_use_wire(),
            output: self.output,
            reading: Reading::CopyIn,
        })
    }

    /// The path asked for, or else both that show something.
    fn paths(&self) -> Result<Vec<Scenario>, String> {
        let over = |path: &PathArguments| path.scenarios(&[], &[TransmitMode::Multidata]);
        if !self.path.may_use_wire() {
            return over(&self.path);
        }
        let mut paths = Vec::new();
        for device in copy_in::default_devices() {
            let path = self.path.clone();
            paths.extend(over(&match device {
                DeviceKind::Wire => {
                    PathArguments { device: Some(DeviceArgument::Wire), napi: Switch::Off, ..path }
                }
                _ => PathArguments { device: Some(DeviceArgument::Tap), ..path },
            })?);
        }
        Ok(paths)
    }
}
