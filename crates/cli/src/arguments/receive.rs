//! The arguments of `bench receive`.

use super::{DeviceArgument, Job, OutputArguments, Reading, Switch, connections_up_to};
use bench::layouts::{self, Placement};
use bench::receive::{Axes, Count, parse_blocks, parse_hold_off};
use bench::scenario::{CONNECTIONS_MAX, DeviceKind, Direction, Scenario};
use bench::sizes::{parse_buffer_size, parse_seconds};
use clap::Args;
use device::TransmitMode;
use multidata::{Layout, Polling};
use std::path::PathBuf;
use std::time::Duration;

/// Frames at a time, and for how long they are held, where nothing is said.
const COUNTS: [Count; 8] = [
    Count::Frames(1),
    Count::Frames(2),
    Count::Frames(4),
    Count::Frames(8),
    Count::Frames(16),
    Count::Frames(32),
    Count::Frames(64),
    Count::Adaptive,
];
const HOLD_OFFS: [Duration; 2] = [Duration::ZERO, Duration::from_micros(50)];

/// The axes: every value of each with every value of the others.
#[derive(Clone, Debug, Args)]
pub(crate) struct CoalescingArguments {
    /// Devices [default: wire,tap; with --layout wire]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "DEVICE,..")]
    device: Vec<DeviceArgument>,
    /// Frames that come up at a time at most, 1 to 256; adaptive: as many as wait, the stack's default
    /// [default: 1,2,4,8,16,32,64,adaptive; with --layout adaptive]
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    coalesce: Vec<Count>,
    /// How long they are held for others, beginning anew with each: off, or a time such as 50us
    /// [default: off,50us; with --layout off]
    #[arg(long, value_name = "TIME,..", value_delimiter = ',', value_parser = parse_hold_off)]
    hold_off: Vec<Duration>,
    /// Connections at the same time
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1",
          value_parser = connections_up_to(CONNECTIONS_MAX))]
    connections: Vec<usize>,
    /// Layouts of the receiver, as in R2S0F0: rings of the device, soft rings behind each, and 1 where
    /// each soft ring has a squeue of its own (fan-out)
    #[arg(long, value_name = "RaSbFc,..", value_delimiter = ',')]
    layout: Vec<Layout>,
    /// With --layout, where the application's threads run: on the core of their connection's squeue, on
    /// the core after it, anywhere
    #[arg(
        long,
        value_name = "core,other,anywhere",
        value_delimiter = ',',
        default_value = "core",
        requires = "layout"
    )]
    placement: Vec<Placement>,
    /// With --layout, when the receiver asks its device again without sleeping: never, under a backlog, whenever
    /// it would wait [default: the stack's own: under a backlog where there are several squeues]
    #[arg(long, value_name = "off,adaptive,always", value_delimiter = ',', requires = "layout")]
    polling: Vec<Polling>,
    /// How packet sockets receive: in blocks that the kernel hands over when they are full or after a time,
    /// such as 1ms (TPACKET_V3), or frames as they come (off)
    #[arg(long, value_name = "off,TIME,..", value_delimiter = ',', default_value = "off",
          value_parser = parse_blocks)]
    blocks: Vec<Duration>,
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
        let is_laid_out = !self.layout.is_empty();
        let devices = [DeviceArgument::Wire, DeviceArgument::Tap];
        let devices = or_else(self.device, [devices[0]], &devices, is_laid_out);
        let axes = Axes {
            devices: devices.iter().map(|device| (*device).into()).collect(),
            offload: self.offload.iter().map(|switch| *switch == Switch::On).collect(),
            counts: or_else(self.coalesce, [Count::Adaptive], &COUNTS, is_laid_out),
            hold_offs: or_else(self.hold_off, [Duration::ZERO], &HOLD_OFFS, is_laid_out),
            connections: self.connections,
        };
        let common = Scenario {
            mtu_bytes: self.mtu,
            pin: self.pin,
            ..Scenario::stream(DeviceKind::Wire, Direction::Receive, TransmitMode::Multidata)
        };
        let scenarios = axes.scenarios(self.seconds, &common).into_iter();
        let in_blocks = scenarios.flat_map(|scenario| {
            self.blocks.iter().map(move |blocks| Scenario {
                receive_blocks: (!blocks.is_zero()).then_some(*blocks),
                ..scenario.clone()
            })
        });
        let mut scenarios: Vec<Scenario> = in_blocks.filter(|it| it.check().is_ok()).collect();
        for scenario in &mut scenarios {
            scenario.udp_offload =
                scenario.device != DeviceKind::Tunnel || self.udp_offload == Switch::On;
        }
        if scenarios.is_empty() {
            return Err(
                "no combination of these can be measured: --offload on is for wire, tap, tun \
                        and packet, --blocks 1ms for packet, --mtu 576 to 65521"
                    .to_owned(),
            );
        }
        let mut reading = Reading::Receive;
        if is_laid_out {
            reading = Reading::Layouts;
            let axes = layouts::Axes {
                layouts: self.layout,
                placements: self.placement,
                pollings: self.polling,
            };
            scenarios = axes.scenarios(&scenarios);
        }
        Ok(Job {
            scenarios,
            may_use_wire: false,
            output: self.output,
            reading,
            left_out: Vec::new(),
        })
    }
}

/// What was given, or what is measured without it: one value by layouts, several otherwise.
fn or_else<T: Clone>(given: Vec<T>, one: [T; 1], several: &[T], is_laid_out: bool) -> Vec<T> {
    match given.is_empty() {
        false => given,
        true if is_laid_out => one.to_vec(),
        true => several.to_vec(),
    }
}
