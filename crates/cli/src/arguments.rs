//! What the command line says.
//!
//! Everything is parsed here, once, into values the rest of the program can use without looking
//! again; contradictions between options are found here too and end the program with exit code 2.

mod address;
mod copy_in;
mod files;
mod latency;
mod many;
mod ping;
mod receive;
mod transfer;
mod transmit;

pub(crate) use address::AddressArgument;
use bench::layouts::{self, Placement};
use bench::loss::run::PRODUCT_MAX_BYTES;
use bench::plan::each_once;
use bench::receive::parse_blocks;
use bench::scenario::{
    Amount, DeviceKind, Direction, Outbound, PeerKind, Scenario, TransformKind, Workload,
};
use bench::sizes::{parse_buffer_size, parse_rate, parse_seconds, parse_size_above_zero};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
pub(crate) use copy_in::CopyInArguments;
use device::TransmitMode;
pub(crate) use latency::LatencyArguments;
pub(crate) use many::ManyArguments;
use multidata::Layout;
use multidata::tcp::congestion::Algorithm;
pub(crate) use ping::PingArguments;
pub(crate) use receive::CoalescingArguments;
use std::path::PathBuf;
use std::time::Duration;
pub(crate) use transfer::{LinkArguments, ReceiveArguments, SendArguments};
pub(crate) use transmit::TransmitArguments;

/// Congestion controls that the kernel has, too, wherever it runs.
const CONGESTION_OF_BOTH: [Algorithm; 2] = [Algorithm::Cubic, Algorithm::NewReno];

const SIZES: &str = "Sizes are bytes, or a number with K, M, G or T, which are powers of 1024.";

/// A userspace TCP/IP stack whose unit of work is a batch of packets.
#[derive(Debug, Parser)]
#[command(name = "multidata", version, after_help = SIZES, disable_help_subcommand = true)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Measure this stack; without arguments: against the kernel's TCP, one packet at a time and in
    /// batches, both directions, every byte verified
    #[command(after_help = SIZES)]
    Bench(BenchArguments),
    /// Send a file to a TCP listener
    #[command(after_help = SIZES)]
    Send(SendArguments),
    /// Receive a file over one TCP connection
    #[command(after_help = SIZES)]
    Receive(ReceiveArguments),
    /// Ask a host for echoes, several in a batch: round-trip times and loss
    #[command(after_help = SIZES)]
    Ping(PingArguments),
    /// The kernel's end of a measurement, started by `bench` itself
    #[command(name = bench::peer::kernel::VERB, hide = true)]
    KernelEnd,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    pub(crate) workload: Option<BenchVerb>,
    #[command(flatten)]
    pub(crate) job: JobArguments,
}

/// What the main job can be told.
#[derive(Clone, Debug, Args)]
pub(crate) struct JobArguments {
    /// How long each run sends
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "1")]
    pub(crate) seconds: Duration,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// How often, and where the results go.
#[derive(Clone, Debug, Args)]
pub(crate) struct OutputArguments {
    /// Rounds; the medians of as many runs are shown
    #[arg(long, value_name = "R", default_value_t = bench::plan::DEFAULT_ROUNDS as u64,
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) runs: u64,
    /// Also write every run to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchVerb {
    /// A byte stream, as fast as it goes
    #[command(after_help = SIZES)]
    Stream(StreamArguments),
    /// Requests and responses, one transaction after the other
    #[command(name = "rr", after_help = SIZES)]
    RequestResponse(RequestResponseArguments),
    /// What copying a write in costs: order of allocation, block size, checksum in the copy, no copy
    #[command(name = "copyin", after_help = SIZES)]
    CopyIn(CopyInArguments),
    /// Goodput over a bad path, this stack as sender beside Linux as sender
    Loss(LossArguments),
    /// Transactions of a byte, this stack beside a kernel socket with the same far end, idle and beside a
    /// bulk transfer
    Latency(LatencyArguments),
    /// What a tunnel's cipher does alone, on one core
    Cipher(CipherArguments),
    /// Every transmit scheme on every device, by length of a write and number of connections
    #[command(after_help = SIZES)]
    Transmit(TransmitArguments),
    /// Receiving, by how many frames come up at a time, how long they are held, and connections; or by
    /// rings, soft rings, fan-out (--layout) and where the application runs
    #[command(after_help = SIZES)]
    Receive(CoalescingArguments),
    /// Streams over very many connections at the same time, a task for each
    #[command(after_help = SIZES)]
    Many(ManyArguments),
}

/// What joins the two ends.
#[derive(Clone, Debug, Args)]
pub(crate) struct PathArguments {
    /// What joins the two ends; without it: a TAP where one can be had, else the wire
    #[arg(long, value_enum)]
    device: Option<DeviceArgument>,
    /// Checksum offload and super-frames [default: on where the only mode is lso]
    #[arg(long, value_enum)]
    offload: Option<Switch>,
    /// The interface below a packet socket takes super-frames as they are; off: the kernel splits them
    /// before it, so that frames of the MTU cross
    #[arg(long, value_enum, default_value_t = Switch::On)]
    tso: Switch,
    /// Threaded NAPI: the kernel coalesces our frames
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    napi: Switch,
    /// Frames reach a TAP or TUN device many by one call (io_uring); on,off measures both in
    /// alternation
    #[arg(long, value_enum, value_delimiter = ',', value_name = "on,off", default_value = "off")]
    io_uring: Vec<Switch>,
    /// What a tunnel does to each packet; several are measured in alternation
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME,..", default_value = "null")]
    transform: Vec<TransformArgument>,
    /// Many datagrams of a tunnel by one call (UDP_SEGMENT, UDP_GRO); off: one datagram a call
    #[arg(long, value_enum, value_delimiter = ',', value_name = "on,off", default_value = "on")]
    udp_offload: Vec<Switch>,
    /// Both ends of a tunnel leave transport checksums of the packets in it to the cipher; on,off measures
    /// both in alternation
    #[arg(long, value_enum, value_delimiter = ',', value_name = "on,off", default_value = "off")]
    trust_checksums: Vec<Switch>,
    /// ip_multidata_outbound: whether packets of this stack may leave in batches; several are measured
    /// in alternation
    #[arg(long, value_enum, value_delimiter = ',', value_name = "on,off,..", default_value = "on")]
    multidata_outbound: Vec<OutboundArgument>,
    /// The other end; follows from the device
    #[arg(long, value_enum)]
    peer: Option<PeerArgument>,
    /// Longest IP packet of the device; in a tunnel, of the path that it takes
    #[arg(long, value_name = "N", default_value = "1500", value_parser = parse_buffer_size)]
    mtu: usize,
    /// IPv6 instead of IPv4
    #[arg(long)]
    ipv6: bool,
    /// Squeues of the stack, which threads can be in at the same time; over a wire, of both stacks
    #[arg(long, value_name = "1..64", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=64))]
    squeues: u16,
    /// Packet sockets on the interface, one for each squeue; with 1, all squeues share it
    #[arg(long, value_name = "1..64", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=64))]
    queues: u16,
    /// A packet socket receives in blocks that the kernel hands over when they are full or after a time, such
    /// as 1ms (TPACKET_V3); off: frames as they come (recvmmsg); several are measured in alternation
    #[arg(long, value_name = "off,TIME,..", value_delimiter = ',', default_value = "off",
          value_parser = parse_blocks)]
    blocks: Vec<Duration>,
    /// Keep this stack on the first CPU and the kernel's end on the second
    #[arg(long)]
    pin: bool,
    /// Write every packet of this stack to this pcapng file, a section for each run
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct StreamArguments {
    #[command(flatten)]
    path: PathArguments,
    /// Which way the bytes flow, as seen from this stack; both: at once, over each connection
    #[arg(long, value_enum, default_value_t = DirectionArgument::Send)]
    direction: DirectionArgument,
    /// Modes to measure, in alternation: single, chain, contiguous, replicated, multidata, lso;
    /// contiguous:N and replicated:N with at most N frames in a block, 1 to 43
    /// [default: single,multidata, or lso with --offload on]
    #[arg(long, value_delimiter = ',', value_name = "MODE,..")]
    mode: Vec<TransmitMode>,
    /// Connections at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    connections: usize,
    /// End each run after so many bytes in each direction
    #[arg(long, value_name = "N", value_parser = parse_size_above_zero, conflicts_with = "seconds")]
    bytes: Option<u64>,
    /// End each run after so many seconds of sending [default: 1]
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// What the application writes in one call
    #[arg(long, value_name = "B", default_value = "64K", value_parser = parse_buffer_size)]
    write_size: usize,
    /// Send buffer of this stack's sockets
    #[arg(long, value_name = "B", value_parser = parse_buffer_size)]
    send_buffer: Option<usize>,
    /// Receive buffer of this stack's sockets
    #[arg(long, value_name = "B", value_parser = parse_buffer_size)]
    receive_buffer: Option<usize>,
    /// Send the application's memory without copying it, and read by taking the blocks that were
    /// received into
    #[arg(long)]
    zero_copy: bool,
    /// So many bits of frames a second leave this stack at most, headers included, such as 100M; K, M
    /// and G are powers of 1000 here
    #[arg(long, value_name = "BITS", value_parser = parse_rate)]
    rate: Option<u64>,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RequestResponseArguments {
    #[command(flatten)]
    path: PathArguments,
    /// Modes to measure, in alternation, as for stream [default: multidata]
    #[arg(long, value_delimiter = ',', value_name = "MODE,..")]
    mode: Vec<TransmitMode>,
    /// Length of a request and of its response
    #[arg(long, value_name = "B", default_value = "1", value_parser = parse_buffer_size)]
    size: usize,
    /// Connections at the same time, each of which waits for its answer
    #[arg(long, value_name = "N", default_value_t = 1)]
    connections: usize,
    /// Layouts of this stack, as for receive
    #[arg(long, value_name = "RaSbFc,..", value_delimiter = ',', conflicts_with = "squeues")]
    layout: Vec<Layout>,
    /// With --layout, where the application's threads run, as for receive
    #[arg(
        long,
        value_name = "core,other,anywhere",
        value_delimiter = ',',
        default_value = "core",
        requires = "layout"
    )]
    placement: Vec<Placement>,
    /// How long each run asks
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "1")]
    seconds: Duration,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CipherArguments {
    /// Length of a packet
    #[arg(long, value_name = "B", default_value = "1448", value_parser = parse_buffer_size)]
    pub(crate) size: usize,
    /// How long each run takes
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "1")]
    pub(crate) seconds: Duration,
    /// Rounds; the medians of as many runs are shown
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) runs: u64,
    /// Stay on the first CPU
    #[arg(long)]
    pub(crate) pin: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LossArguments {
    /// Frames lost each way, in percent; every value with every round-trip time
    #[arg(long, value_name = "PERCENT,..", value_delimiter = ',', default_value = "0,0.1,1,5",
          value_parser = parse_loss)]
    pub(crate) loss: Vec<f64>,
    /// Round-trip times of the path, in milliseconds
    #[arg(long, value_name = "MS,..", value_delimiter = ',', default_value = "1,10,20,100",
          value_parser = clap::value_parser!(u64).range(0..=1_000))]
    pub(crate) rtt: Vec<u64>,
    /// Frames reordered each way, in percent
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = parse_percent)]
    pub(crate) reorder: f64,
    /// Frames corrupted each way, in percent
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = parse_percent)]
    pub(crate) corrupt: f64,
    /// Rate of the path, in Mbit/s
    #[arg(long, value_name = "MBIT/S", default_value_t = 1_000,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) rate: u64,
    /// Congestion control of both senders
    #[arg(long, default_value = "cubic", value_parser = congestion_of(CONGESTION_OF_BOTH))]
    pub(crate) congestion: Algorithm,
    /// How long each run receives
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "4")]
    pub(crate) seconds: Duration,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

impl LossArguments {
    /// These, where no path holds more than the buffers of both ends are made for.
    ///
    /// # Errors
    /// A sentence that names the options that cannot stand together.
    pub(crate) fn checked(self) -> Result<Self, String> {
        let cells = crate::loss_verb::cells(&self);
        let most = PRODUCT_MAX_BYTES;
        match cells.iter().find(|cell| cell.product_bytes() > most) {
            None => Ok(self),
            Some(cell) => Err(format!(
                "--rate {} and --rtt {} have {:.0} MB on the way, where both ends have buffers for {:.0}: they would be \
                 what is measured",
                self.rate,
                cell.round_trip.as_millis(),
                cell.product_bytes() as f64 / 1e6,
                most as f64 / 1e6,
            )),
        }
    }
}

/// One of these congestion controls, by its name.
fn congestion_of<const N: usize>(all: [Algorithm; N]) -> impl TypedValueParser<Value = Algorithm> {
    PossibleValuesParser::new(all.map(Algorithm::name)).try_map(|name| name.parse::<Algorithm>())
}

fn parse_loss(text: &str) -> Result<f64, String> {
    match parse_percent(text)? {
        percent if percent >= 100.0 => {
            Err("where all frames are lost nothing arrives: give less than 100".to_owned())
        }
        percent => Ok(percent),
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("give a percentage from 0 to 100".to_owned()),
    }
}

/// A parser for numbers of connections, of which there may be so many at the same time.
fn connections_up_to(most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| match text.parse() {
        Ok(count) if (1..=most).contains(&count) => Ok(count),
        _ => Err(format!("give a number from 1 to {most}")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DeviceArgument {
    Tap,
    Tun,
    /// Two TAPs on a bridge, this stack at both ends
    TapPair,
    Packet,
    Xdp,
    Wire,
    /// Frames over a stream socket, as to a virtual machine, this stack at both ends
    Stream,
    Tunnel,
}

/// The switch `ip_multidata_outbound`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutboundArgument {
    /// Batches may leave
    On,
    /// Packets leave one by one, by every interface
    Off,
    /// Packets leave one by one, by the interface of the run
    OffAtInterface,
}

impl From<OutboundArgument> for Outbound {
    fn from(outbound: OutboundArgument) -> Self {
        match outbound {
            OutboundArgument::On => Self::On,
            OutboundArgument::Off => Self::Off,
            OutboundArgument::OffAtInterface => Self::OffAtInterface,
        }
    }
}

/// What a tunnel does to each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TransformArgument {
    Null,
    Chacha20poly1305,
}

impl From<TransformArgument> for TransformKind {
    fn from(transform: TransformArgument) -> Self {
        match transform {
            TransformArgument::Null => Self::Null,
            TransformArgument::Chacha20poly1305 => Self::ChaChaPoly,
        }
    }
}

impl From<DeviceArgument> for DeviceKind {
    fn from(device: DeviceArgument) -> Self {
        match device {
            DeviceArgument::Tap => Self::Tap,
            DeviceArgument::Tun => Self::Tun,
            DeviceArgument::TapPair => Self::TapPair,
            DeviceArgument::Packet => Self::Packet,
            DeviceArgument::Xdp => Self::Xdp,
            DeviceArgument::Wire => Self::Wire,
            DeviceArgument::Stream => Self::Stream,
            DeviceArgument::Tunnel => Self::Tunnel,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PeerArgument {
    Kernel,
    #[value(name = "self")]
    Own,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DirectionArgument {
    Send,
    Receive,
    Both,
}

impl From<DirectionArgument> for Direction {
    fn from(argument: DirectionArgument) -> Self {
        match argument {
            DirectionArgument::Send => Self::Send,
            DirectionArgument::Receive => Self::Receive,
            DirectionArgument::Both => Self::Both,
        }
    }
}

/// A job as the command line asks for it.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) scenarios: Vec<Scenario>,
    /// The device was left to us: where there is no TAP, the wire will do.
    pub(crate) may_use_wire: bool,
    pub(crate) output: OutputArguments,
    pub(crate) reading: Reading,
    /// What was asked for and is not measured, a sentence each.
    pub(crate) left_out: Vec<String>,
}

/// What the results of a job are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Modes of transmission.
    Modes,
    /// The same, and what the device was shown.
    Transmit,
    /// Policies of the copy-in.
    CopyIn,
    /// Coalescing of what is received.
    Receive,
    /// Rings, soft rings and fan-out.
    Layouts,
    /// Numbers of connections.
    Many,
}

impl BenchArguments {
    /// The directory of the report, where one was asked for.
    pub(crate) fn report(&self) -> Option<PathBuf> {
        match &self.workload {
            Some(BenchVerb::Transmit(arguments)) => arguments.report.clone(),
            Some(BenchVerb::Receive(arguments)) => arguments.report.clone(),
            _ => None,
        }
    }

    /// The job.
    ///
    /// # Errors
    /// A sentence, where options contradict each other.
    pub(crate) fn job(self) -> Result<Job, String> {
        let mut job = match self.workload {
            None => Job {
                scenarios: bench::plan::default_job(self.job.seconds),
                may_use_wire: true,
                output: self.job.output,
                reading: Reading::Modes,
                left_out: Vec::new(),
            },
            Some(BenchVerb::Stream(arguments)) => arguments.job()?,
            Some(BenchVerb::RequestResponse(arguments)) => arguments.job()?,
            Some(BenchVerb::Transmit(arguments)) => arguments.job()?,
            Some(BenchVerb::Receive(arguments)) => arguments.job()?,
            Some(BenchVerb::CopyIn(arguments)) => arguments.job()?,
            Some(BenchVerb::Many(arguments)) => arguments.job()?,
            Some(BenchVerb::Loss(_) | BenchVerb::Latency(_) | BenchVerb::Cipher(_)) => {
                return Err("a measurement of its own is no list of scenarios".into());
            }
        };
        let capture = job.scenarios.iter().find_map(|scenario| scenario.capture.as_deref());
        let json = job.output.json.as_deref();
        files::check_distinct(&[("--capture", capture), ("--json", json)], &[])?;
        job.scenarios = each_once(job.scenarios);
        job.scenarios.iter().try_for_each(Scenario::check)?;
        Ok(job)
    }
}

impl PathArguments {
    fn device(&self) -> Result<DeviceKind, String> {
        let device = match (self.device, self.peer) {
            (Some(device), _) => device.into(),
            (None, Some(PeerArgument::Own)) => DeviceKind::Wire,
            (None, _) => DeviceKind::Tap,
        };
        match (self.peer, device.peer()) {
            (Some(PeerArgument::Kernel), PeerKind::Own) => Err(
                "--peer kernel needs --device tap, tun, packet or xdp: wires, streams and tunnels end in a \
                 stack of ours"
                    .into(),
            ),
            (Some(PeerArgument::Own), PeerKind::Kernel) => {
                Err("--peer self needs --device wire, tap-pair, stream or tunnel: all others end in the kernel"
                    .into())
            }
            _ => Ok(device),
        }
    }

    fn may_use_wire(&self) -> bool {
        self.device.is_none() && self.peer.is_none()
    }

    /// The modes and whether offload is on, each following from the other where not given.
    fn modes(&self, given: &[TransmitMode], default: &[TransmitMode]) -> (Vec<TransmitMode>, bool) {
        let mut modes = each_once(given.iter().copied());
        if modes.is_empty() {
            modes = match self.offload {
                Some(Switch::On) => vec![TransmitMode::Lso],
                _ => default.to_vec(),
            };
        }
        let offload = match self.offload {
            Some(switch) => switch == Switch::On,
            None => modes == [TransmitMode::Lso],
        };
        (modes, offload)
    }

    fn scenarios(
        &self,
        modes: &[TransmitMode],
        default: &[TransmitMode],
    ) -> Result<Vec<Scenario>, String> {
        let device = self.device()?;
        let (modes, offload) = self.modes(modes, default);
        let each = modes.into_iter().flat_map(|mode| {
            let switches =
                move |transform| self.udp_offload.iter().map(move |udp| (transform, udp));
            let ways = self.transform.iter().flat_map(switches);
            let rings = ways.flat_map(|way| self.io_uring.iter().map(move |ring| (way, *ring)));
            rings
                .map(move |((transform, udp_offload), ring)| (mode, *transform, *udp_offload, ring))
        });
        let scenarios = each.map(|(mode, transform, udp_offload, ring)| Scenario {
            io_uring: ring == Switch::On,
            transform: transform.into(),
            udp_offload: udp_offload == Switch::On,
            // Where offload was left open, it is on for the one mode that needs it.
            offload: offload || (self.offload.is_none() && mode == TransmitMode::Lso),
            tso: self.tso == Switch::On,
            napi: self.napi == Switch::On,
            mtu_bytes: self.mtu,
            ipv6: self.ipv6,
            pin: self.pin,
            squeues: self.squeues,
            queues: self.queues,
            capture: self.capture.clone(),
            ..Scenario::stream(device, Direction::Send, mode)
        });
        Ok(scenarios.flat_map(|scenario| self.switched(&scenario)).collect())
    }

    /// The scenario with each position of the switches that stand for themselves.
    fn switched(&self, scenario: &Scenario) -> Vec<Scenario> {
        let mut all = Vec::new();
        for trust in &self.trust_checksums {
            let trust_checksums = *trust == Switch::On;
            for &blocks in &self.blocks {
                let positions = self.multidata_outbound.iter();
                all.extend(positions.map(|it| Scenario {
                    trust_checksums,
                    receive_blocks: (!blocks.is_zero()).then_some(blocks),
                    outbound: (*it).into(),
                    ..scenario.clone()
                }));
            }
        }
        all
    }
}

impl StreamArguments {
    fn job(self) -> Result<Job, String> {
        let default = [TransmitMode::Single, TransmitMode::Multidata];
        let scenarios = self.path.scenarios(&self.mode, &default)?;
        let amount = match (self.bytes, self.seconds) {
            (Some(bytes), _) => Amount::Bytes(bytes),
            (None, Some(seconds)) => Amount::Time(seconds),
            (None, None) => Amount::Time(Duration::from_secs(1)),
        };
        Ok(Job {
            scenarios: scenarios
                .into_iter()
                .map(|scenario| Scenario {
                    direction: self.direction.into(),
                    connections: self.connections,
                    amount,
                    write_len_bytes: self.write_size,
                    zero_copy: self.zero_copy,
                    send_buffer_bytes: self.send_buffer,
                    receive_buffer_bytes: self.receive_buffer,
                    rate: self.rate,
                    ..scenario
                })
                .collect(),
            may_use_wire: self.path.may_use_wire(),
            output: self.output,
            reading: Reading::Modes,
            left_out: Vec::new(),
        })
    }
}

impl RequestResponseArguments {
    fn job(self) -> Result<Job, String> {
        let scenarios = self.path.scenarios(&self.mode, &[TransmitMode::Multidata])?;
        let scenarios = scenarios.into_iter().map(|scenario| Scenario {
            workload: Workload::RequestResponse { len_bytes: self.size },
            direction: Direction::Both,
            connections: self.connections,
            amount: Amount::Time(self.seconds),
            ..scenario
        });
        let scenarios = scenarios.collect::<Vec<_>>();
        let axes = layouts::Axes {
            layouts: self.layout,
            placements: self.placement,
            pollings: Vec::new(),
        };
        Ok(Job {
            scenarios: match axes.layouts.is_empty() {
                true => scenarios,
                false => axes.scenarios(&scenarios),
            },
            may_use_wire: self.path.may_use_wire(),
            output: self.output,
            reading: Reading::Modes,
            left_out: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
