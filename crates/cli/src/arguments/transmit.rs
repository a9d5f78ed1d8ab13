//! The arguments of `bench transmit`.

use super::{DeviceArgument, Job, OutputArguments, Switch, TransformArgument, connections_up_to};
use bench::scenario::{CONNECTIONS_MAX, DeviceKind, Direction, Scenario};
use bench::sizes::{parse_buffer_size, parse_seconds};
use bench::transmit::Axes;
use clap::Args;
use device::TransmitMode;
use std::path::PathBuf;
use std::time::Duration;

/// The axes: every value of each with every value of the others.
#[derive(Clone, Debug, Args)]
pub(crate) struct TransmitArguments {
    /// Devices
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "DEVICE,..",
        default_value = "wire,tap"
    )]
    device: Vec<DeviceArgument>,
    /// Schemes; lso where the device takes super-frames [default: all]
    #[arg(long, value_delimiter = ',', value_name = "MODE,..")]
    mode: Vec<TransmitMode>,
    /// What the application writes in one call
    #[arg(long, value_name = "B,..", value_delimiter = ',', default_value = "16K,64K,1M",
          value_parser = parse_buffer_size)]
    write_size: Vec<usize>,
    /// Connections at the same time
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,10",
          value_parser = connections_up_to(CONNECTIONS_MAX))]
    connections: Vec<usize>,
    /// Threaded NAPI of TAP and TUN devices
    #[arg(long, value_enum, value_delimiter = ',', value_name = "on,off", default_value = "off")]
    napi: Vec<Switch>,
    /// Frames reach a TAP or TUN device many by one call (io_uring)
    #[arg(long, value_enum, value_delimiter = ',', value_name = "on,off", default_value = "off")]
    io_uring: Vec<Switch>,
    /// What a tunnel does to each packet
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,..", default_value = "null")]
    transform: Vec<TransformArgument>,
    /// Many datagrams of a tunnel by one call (UDP_SEGMENT, UDP_GRO); off: one datagram a call
    #[arg(long, value_enum, value_delimiter = ',', value_name = "on,off", default_value = "on")]
    udp_offload: Vec<Switch>,
    /// Lend the application's memory instead of copying it
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "on,off",
        default_value = "off,on"
    )]
    zero_copy: Vec<Switch>,
    /// Measure where the senders' time goes, which costs some; with off,on it shows how much
    #[arg(long, value_enum, value_delimiter = ',', value_name = "on,off", default_value = "off")]
    times: Vec<Switch>,
    /// Longest IP packet of the device
    #[arg(long, value_name = "N", default_value = "1500", value_parser = parse_buffer_size)]
    mtu: usize,
    /// Keep this stack on the first CPU and the kernel's end on the second
    #[arg(long)]
    pin: bool,
    /// How long each run sends
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "1")]
    seconds: Duration,
    /// Also write a page with plots, readable offline, into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

impl TransmitArguments {
    /// The job.
    ///
    /// # Errors
    /// A sentence, where no combination can be measured.
    pub(super) fn job(self) -> Result<Job, String> {
        let modes = match self.mode.is_empty() {
            true => TransmitMode::ALL.to_vec(),
            false => self.mode,
        };
        let is_on = |switches: &[Switch]| switches.iter().map(|it| *it == Switch::On).collect();
        let axes = Axes {
            devices: self.device.iter().map(|device| (*device).into()).collect(),
            modes,
            write_len_bytes: self.write_size,
            connections: self.connections,
            zero_copy: is_on(&self.zero_copy),
            napi: is_on(&self.napi),
            io_uring: is_on(&self.io_uring),
            transforms: self.transform.iter().map(|transform| (*transform).into()).collect(),
            udp_offload: is_on(&self.udp_offload),
            times: is_on(&self.times),
        };
        let common = Scenario {
            mtu_bytes: self.mtu,
            pin: self.pin,
            ..Scenario::stream(DeviceKind::Wire, Direction::Send, TransmitMode::Multidata)
        };
        let scenarios = axes.scenarios(self.seconds, &common);
        let left_out = axes.left_out(&common);
        if scenarios.is_empty() {
            return Err(format!(
                "no combination of these can be measured: lso needs a device with offload, --napi on a \
                 TAP or TUN, --mtu 576 to 65521. {}",
                left_out.join(". ")
            ));
        }
        let reading = super::Reading::Transmit;
        Ok(Job { scenarios, may_use_wire: false, output: self.output, reading, left_out })
    }
}
