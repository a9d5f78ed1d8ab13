//! The arguments of `bench receive`.

use super::{DeviceArgument, Job, OutputArguments, Reading, Switch};
use bench::receive::{Axes, Count, parse_hold_off};
use bench::scenario::{DeviceKind, Direction, Scenario};
use bench::sizes::{parse_buffer_size, parse_seconds};
use clap::Args;
use device::TransmitMode;
use std::path::PathBuf;
use std::time::Duration;

/// The axes: every value of each with every value of the others.
#[derive(Clone, Debug, Args)]
pub(crate) struct CoalescingArguments {
    /// Devices
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "DEVICE,..",
        default_value = "wire,tap"
    )]
    device: Vec<DeviceArgument>,
    /// Frames that come up at a time at most, 1 to 256; adaptive: as many as wait, the stack's default
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "1,2,4,8,16,32,64,adaptive"
    )]
    coalesce: Vec<Count>,
    /// How long they are held for others, beginning anew with each: off, or a time such as 50us
    #[arg(long, value_name = "TIME,..", value_delimiter = ',', default_value = "off,50us",
          value_parser = parse_hold_off)]
    hold_off: Vec<Duration>,
    /// Connections at the same time
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1")]
    connections: Vec<usize>,
    /// Super-frames and checksum offload, where the device has them
    #[arg(long, value_enum, value_delimiter = ',', value_name = "on,off", default_value = "off")]
    offload: Vec<Switch>,
    /// Many datagrams of a tunnel by one call (UDP_SEGMENT, UDP_GRO); off: one datagram a call
    #[arg(long, value_enum, default_value_t = Switch::On)]
    udp_offload: Switch,
    /// Longest IP packet of the device
    #[arg(long, value_name = "N", default_value = "1500", value_parser = parse_buffer_size)]
    mtu: usize,
    /// Keep this stack on the first CPU and the kernel's end on the second
    #[arg(long)]
    pin: bool,
    /// How long each run receives
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "0.5")]
    seconds: Duration,
    /// Also write a page with plots, readable offline, into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

impl CoalescingArguments {
    /// The job.
    ///
    /// # Errors
    /// A sentence, where no combination can be measured.
    pub(super) fn job(self) -> Result<Job, String> {
        let axes = Axes {
            devices: self.device.iter().map(|device| (*device).into()).collect(),
            offload: self.offload.iter().map(|switch| *switch == Switch::On).collect(),
            counts: self.coalesce,
            hold_offs: self.hold_off,
            connections: self.connections,
        };
        let common = Scenario {
            mtu_bytes: self.mtu,
            pin: self.pin,
            ..Scenario::stream(DeviceKind::Wire, Direction::Receive, TransmitMode::Multidata)
        };
        let mut scenarios = axes.scenarios(self.seconds, &common);
        for scenario in &mut scenarios {
            scenario.udp_offload =
                scenario.device != DeviceKind::Tunnel || self.udp_offload == Switch::On;
        }
        if scenarios.is_empty() {
            return Err(
                "no combination of these can be measured: --offload on is for wire, tap, tun \
                        and packet, --mtu 576 to 65521, --connections 1 to 1000"
                    .to_owned(),
            );
        }
        Ok(Job { scenarios, may_use_wire: false, output: self.output, reading: Reading::Receive })
    }
}
