//! The arguments of `bench many`.

use super::{
    DeviceArgument, DirectionArgument, Job, OutputArguments, Reading, Switch, connections_up_to,
};
use bench::many::Axes;
use bench::scenario::{DeviceKind, Direction, Scenario, TASK_CONNECTIONS_MAX};
use bench::sizes::{parse_buffer_size, parse_seconds};
use clap::Args;
use device::TransmitMode;
use std::time::Duration;

/// The kernel keeps a pointer for each, and some two KiB for each that waits.
const QUEUE_PACKETS_MAX: usize = 1 << 20;

fn parse_queue(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(packets) if (1..=QUEUE_PACKETS_MAX).contains(&packets) => Ok(packets),
        _ => Err(format!("give a number from 1 to {QUEUE_PACKETS_MAX}")),
    }
}

/// The axes: every value of each with every value of the others.
#[derive(Clone, Debug, Args)]
pub(crate) struct ManyArguments {
    /// Devices
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "DEVICE,..",
        default_value = "wire,tap"
    )]
    device: Vec<DeviceArgument>,
    /// Which way the bytes flow, as seen from this stack
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "WAY,..",
        default_value = "send,receive"
    )]
    direction: Vec<DirectionArgument>,
    /// Connections at the same time, each a task; the first is what the others are compared with
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "64,256,1000,4000,10000",
        value_parser = connections_up_to(TASK_CONNECTIONS_MAX)
    )]
    connections: Vec<usize>,
    /// The thread of the tasks runs the stack as well (`multidata_tokio::drive`); off: the stack's own threads do
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "on,off",
        default_value = "off,on"
    )]
    drive: Vec<Switch>,
    /// Threaded NAPI: threads of the kernel take our frames in, which may run on another CPU; several are
    /// measured in alternation
    #[arg(long, value_enum, value_delimiter = ',', value_name = "on,off", default_value = "off")]
    napi: Vec<Switch>,
    /// What the application writes in one call
    #[arg(long, value_name = "B", default_value = "64K", value_parser = parse_buffer_size)]
    write_size: usize,
    /// Super-frames and checksum offload, where the device has them
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    offload: Switch,
    /// Longest IP packet of the device
    #[arg(long, value_name = "N", default_value = "1500", value_parser = parse_buffer_size)]
    mtu: usize,
    /// Frames that the kernel keeps at most until this stack reads them from a TAP or TUN device (txqueuelen)
    /// [default: 1000]
    #[arg(long, value_name = "N", value_parser = parse_queue)]
    queue: Option<usize>,
    /// Keep this stack on the first CPU and the kernel's end on the second
    #[arg(long)]
    pin: bool,
    /// How long each run sends
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "2")]
    seconds: Duration,
    #[command(flatten)]
    output: OutputArguments,
}

impl ManyArguments {
    /// The job.
    ///
    /// # Errors
    /// A sentence, where no combination can be measured.
    pub(super) fn job(self) -> Result<Job, String> {
        let is_on = |switches: &[Switch]| switches.iter().map(|it| *it == Switch::On).collect();
        let axes = Axes {
            devices: self.device.iter().map(|device| (*device).into()).collect(),
            directions: self.direction.iter().map(|direction| (*direction).into()).collect(),
            driven: is_on(&self.drive),
            napi: is_on(&self.napi),
            connections: self.connections,
        };
        let offload = self.offload == Switch::On;
        let mode = if offload { TransmitMode::Lso } else { TransmitMode::Multidata };
        let common = Scenario {
            mtu_bytes: self.mtu,
            queue_packets: self.queue,
            pin: self.pin,
            write_len_bytes: self.write_size,
            ..Scenario::stream(DeviceKind::Wire, Direction::Send, mode)
        };
        if self.queue.is_some() && !axes.devices.iter().any(|device| device.is_tun()) {
            return Err("--queue needs one of --device tap, tun and tap-pair".to_owned());
        }
        let scenarios = axes.scenarios(self.seconds, &common);
        if scenarios.is_empty() {
            return Err(
                "no combination of these can be measured: --offload on is for wire, tap, tun \
                        and packet, --napi on for tap, tun and packet without offload, --mtu 576 to 65521"
                    .to_owned(),
            );
        }
        Ok(Job {
            scenarios,
            may_use_wire: false,
            output: self.output,
            reading: Reading::Many,
            left_out: Vec::new(),
        })
    }
}
