//! What a run is.
//!
//! A [`Scenario`] says everything that decides a run's figures, and nothing else: the device, the
//! transmit mode, the direction, the amount. It can be checked for contradictions without touching
//! the system ([`Scenario::check`]).

use crate::layouts::{self, Spreading};
use crate::workload::stream::Workers;
use core::fmt;
use device::{Forms, TransmitMode};
use multidata::{Coalescing, CopyIn};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// What the two ends are joined by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A TAP device: Ethernet frames to and from the kernel.
    Tap,
    /// A TUN device: IP packets to and from the kernel.
    Tun,
    /// Two TAP devices that a bridge of the kernel's joins: two stacks in one process, and no TCP of the
    /// kernel's.
    TapPair,
    /// A packet socket at one end of a veth pair, the kernel at the other.
    Packet,
    /// AF_XDP at one end of a veth pair, the kernel at the other.
    Xdp,
    /// The in-process wire: two stacks in one process.
    Wire,
    /// Frames over a stream socket of the kernel's (a Unix pair), as to a virtual machine: two stacks in one process.
    Stream,
    /// A UDP tunnel over the kernel's loopback: two stacks in two processes.
    Tunnel,
}

impl DeviceKind {
    /// The name on command lines and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tap => "tap",
            Self::Tun => "tun",
            Self::TapPair => "tap-pair",
            Self::Packet => "packet",
            Self::Xdp => "xdp",
            Self::Wire => "wire",
            Self::Stream => "stream",
            Self::Tunnel => "tunnel",
        }
    }

    /// The forms in which this device can be handed a batch.
    #[must_use]
    pub const fn forms(self) -> Forms {
        match self {
            Self::Tap | Self::Tun | Self::TapPair | Self::Wire => Forms::ALL,
            Self::Packet => linux::PacketDevice::FORMS,
            Self::Xdp => linux::XdpDevice::FORMS,
            Self::Stream => linux::StreamDevice::FORMS,
            Self::Tunnel => linux::TunnelDevice::FORMS,
        }
    }

    /// Whether the kernel makes the device as a TAP or TUN.
    #[must_use]
    pub const fn is_tun(self) -> bool {
        matches!(self, Self::Tap | Self::Tun | Self::TapPair)
    }

    /// What stands at the other end of this device.
    #[must_use]
    pub const fn peer(self) -> PeerKind {
        match self {
            Self::Tap | Self::Tun | Self::Packet | Self::Xdp => PeerKind::Kernel,
            Self::TapPair | Self::Wire | Self::Stream | Self::Tunnel => PeerKind::Own,
        }
    }
}

/// What a tunnel does to each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TransformKind {
    /// Nothing.
    #[default]
    Null,
    /// ChaCha20-Poly1305 with fresh keys for each run.
    ChaChaPoly,
}

/// The switch `ip_multidata_outbound` of seed 000: whether packets may leave in batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outbound {
    /// They may.
    #[default]
    On,
    /// Off for the interface of the run.
    OffAtInterface,
    /// Off for the whole stack.
    Off,
}

impl Outbound {
    /// The word in the names of scenarios, where it is not the usual one.
    #[must_use]
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Self::On => None,
            Self::OffAtInterface => Some("outbound-off-at-interface"),
            Self::Off => Some("outbound-off"),
        }
    }
}

/// Whether it is measured where the time of those who send goes (`times`), which takes some itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Times {
    /// It is not.
    #[default]
    Off,
    /// It is.
    On,
    /// It is, and beside it runs the same scenario where it is not.
    Beside,
}

impl Times {
    /// The word in the names of scenarios that tells those apart that run beside each other.
    #[must_use]
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Self::Off | Self::On => None,
            Self::Beside => Some("timed"),
        }
    }
}

/// What stands at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerKind {
    /// The kernel's TCP.
    Kernel,
    /// A second stack of ours.
    Own,
}

impl PeerKind {
    /// The name on command lines and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Own => "self",
        }
    }
}

/// Which way the bytes flow, as seen from this stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From this stack to the other end.
    Send,
    /// From the other end to this stack.
    Receive,
    /// Both ways at once, over each connection.
    Both,
}

impl Direction {
    /// The name on command lines and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Both => "both",
        }
    }

    /// Whether this stack sends bulk data.
    #[must_use]
    pub const fn sends(self) -> bool {
        matches!(self, Self::Send | Self::Both)
    }

    /// Whether this stack receives bulk data.
    #[must_use]
    pub const fn receives(self) -> bool {
        matches!(self, Self::Receive | Self::Both)
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Amount {
    /// After this many bytes in each direction, divided among the connections.
    Bytes(u64),
    /// After this time of sending.
    Time(Duration),
}

impl Amount {
    /// The time of sending, where that ends it.
    #[must_use]
    pub const fn time(self) -> Option<Duration> {
        match self {
            Self::Bytes(_) => None,
            Self::Time(time) => Some(time),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => {
                write!(formatter, "{} bytes each way", crate::sizes::format_size(*bytes))
            }
            Self::Time(time) => write!(formatter, "{} s", time.as_secs_f64()),
        }
    }
}

/// What travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// A byte stream, as fast as it goes.
    Stream,
    /// This many bytes to this stack, and the same bytes back, one transaction after the other.
    RequestResponse {
        /// Length of a request and of its response.
        len_bytes: usize,
    },
}

/// One kind of run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// What travels.
    pub workload: Workload,
    /// What joins the two ends.
    pub device: DeviceKind,
    /// The device completes checksums and takes and gives super-frames.
    pub offload: bool,
    /// The interface below a packet socket takes super-frames as they are; else the kernel splits them before
    /// it (GSO), and packets no longer than the MTU cross the pair. Refused where there is no choice.
    pub tso: bool,
    /// The kernel polls its end in a thread of its own and coalesces our frames.
    pub napi: bool,
    /// Frames reach a TAP or TUN device many by one call (io_uring); else each by its own. Without
    /// meaning elsewhere.
    pub io_uring: bool,
    /// Frames that the kernel keeps at most until this stack reads them from a TAP or TUN device, or the
    /// device's default. Refused elsewhere.
    pub queue_packets: Option<usize>,
    /// Which way the bytes flow.
    pub direction: Direction,
    /// How batches reach the device; `Single` also receives frame by frame.
    pub mode: TransmitMode,
    /// Connections at the same time.
    pub connections: usize,
    /// Who does the work over them.
    pub workers: Workers,
    /// How the frames that this stack receives are put together; `Single` takes them one by one.
    pub coalescing: Coalescing,
    /// Longest IP packet of the device.
    pub mtu_bytes: usize,
    /// When the run ends.
    pub amount: Amount,
    /// How much the application writes in one call.
    pub write_len_bytes: usize,
    /// Each write goes as datagrams of this length, in one call, to whoever has room for them; else as part
    /// of a stream.
    pub datagram_len_bytes: Option<usize>,
    /// Write with `write_bytes`, which sends the caller's memory without a copy.
    pub zero_copy: bool,
    /// How the stack copies in what is written otherwise.
    pub copy_in: CopyIn,
    /// Largest block that this stack's pool keeps for reuse, or the default.
    pub largest_cached_len_bytes: Option<usize>,
    /// Words that tell this scenario from others of its job that differ in what the rest of the name
    /// does not say.
    pub label: Option<String>,
    /// Send buffer of this stack's sockets, or the default.
    pub send_buffer_bytes: Option<usize>,
    /// Receive buffer of this stack's sockets, or the default.
    pub receive_buffer_bytes: Option<usize>,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// What a tunnel does to each packet; without meaning elsewhere.
    pub transform: TransformKind,
    /// A tunnel sends and receives many datagrams by one call (UDP_SEGMENT, UDP_GRO); else one
    /// datagram a call. Without meaning elsewhere.
    pub udp_offload: bool,
    /// Both ends of a tunnel leave transport checksums of the packets in it to the cipher, which
    /// authenticates them. Without meaning elsewhere.
    pub trust_checksums: bool,
    /// Whether packets of this stack may leave in batches, whatever the mode.
    pub outbound: Outbound,
    /// Keep this stack on the first CPU and the kernel's end on the second.
    pub pin: bool,
    /// Squeues of the stacks, which share the device's queues.
    pub squeues: u16,
    /// Packet sockets on the interface, each of which brings a squeue the frames of its own connections.
    pub queues: u16,
    /// A packet socket receives in blocks that the kernel hands over when they are full or after so long
    /// (TPACKET_V3), in whole milliseconds; else frames as they come.
    pub receive_blocks: Option<Duration>,
    /// Rings, soft rings and where the application runs, in place of a number of squeues.
    pub spreading: Option<Spreading>,
    /// Bits of frames a second that leave this stack at most, by all queues of its device together.
    pub rate: Option<u64>,
    /// Whether it is measured where the senders' time goes.
    pub times: Times,
    /// Packets of this stack are written to this file, a section for each run.
    pub capture: Option<PathBuf>,
}

/// What the application usually writes in one call.
const WRITE_LEN_BYTES: usize = 64 << 10;

/// The least IP packet that the ends can use, RFC 791 and RFC 8200.
const MTU_MIN_IPV4: usize = 576;
const MTU_MIN_IPV6: usize = 1_280;
/// The datagram that says where it belongs, without which it cannot be verified; the longest over IPv4.
const DATAGRAM_LEN_BYTES_MIN: usize = 8;
const DATAGRAM_LEN_BYTES_MAX: usize = 65_507;
/// The kernel's bound for TAP devices.
const MTU_MAX: usize = 65_521;
/// Threads are given out per connection; more than this is for tasks.
pub const CONNECTIONS_MAX: usize = 1_000;
/// The kernel connects from one address, by default from any of 28,232 ports, some of which are in TIME-WAIT from the
/// run before.
pub const TASK_CONNECTIONS_MAX: usize = 19_000;

impl Scenario {
    /// A stream over this device, with the defaults of the command.
    #[must_use]
    pub fn stream(device: DeviceKind, direction: Direction, mode: TransmitMode) -> Self {
        Self {
            workload: Workload::Stream,
            device,
            offload: mode == TransmitMode::Lso,
            tso: true,
            napi: false,
            io_uring: false,
            queue_packets: None,
            direction,
            mode,
            connections: 1,
            workers: Workers::Threads,
            coalescing: Self::coalescing_of(mode),
            mtu_bytes: 1_500,
            amount: Amount::Time(Duration::from_secs(1)),
            write_len_bytes: WRITE_LEN_BYTES,
            datagram_len_bytes: None,
            zero_copy: false,
            copy_in: CopyIn::default(),
            largest_cached_len_bytes: None,
            label: None,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            ipv6: false,
            transform: TransformKind::Null,
            udp_offload: true,
            trust_checksums: false,
            outbound: Outbound::On,
            pin: false,
            squeues: 1,
            queues: 1,
            receive_blocks: None,
            spreading: None,
            rate: None,
            times: Times::Off,
            capture: None,
        }
    }

    /// How frames are received where only the way out was chosen: one packet at a time in both
    /// directions, or in batches in both.
    #[must_use]
    pub fn coalescing_of(mode: TransmitMode) -> Coalescing {
        match mode {
            TransmitMode::Single => Coalescing::OFF,
            _ => Coalescing::default(),
        }
    }

    /// What stands at the other end.
    #[must_use]
    pub const fn peer(&self) -> PeerKind {
        self.device.peer()
    }

    /// A name that tells this scenario from the others of a job: what joins the ends, the way, the
    /// length of a write and the number of connections where they are not the usual ones, and the
    /// mode.
    #[must_use]
    pub fn name(&self) -> String {
        let connections;
        let mode = self.mode.to_string();
        let mut words = vec![self.device.name()];
        if self.device == DeviceKind::Tunnel && self.transform == TransformKind::ChaChaPoly {
            words.push("chacha20poly1305");
        }
        if self.device == DeviceKind::Tunnel && !self.udp_offload {
            words.push("one-a-call");
        }
        if self.trust_checksums {
            words.push("trusting");
        }
        if self.ipv6 {
            words.push("ipv6");
        }
        let squeues;
        if self.squeues > 1 {
            squeues = format!("{} squeues", self.squeues);
            words.push(&squeues);
        }
        let (queues, blocks);
        let waiting = self.queue_packets.map(|packets| format!("queue-{packets}"));
        if self.queues > 1 {
            queues = format!("{} queues", self.queues);
            words.push(&queues);
        }
        if let Some(retire) = self.receive_blocks {
            blocks = format!("blocks-{}ms", retire.as_millis());
            words.push(&blocks);
        }
        words.extend(waiting.as_deref());
        let switches = [
            (self.napi, "napi"),
            (self.io_uring, "io-uring"),
            (self.offload, "offload"),
            (!self.tso, "gso"),
        ];
        words.extend(switches.into_iter().filter_map(|(is_on, word)| is_on.then_some(word)));
        words.extend(self.outbound.word());
        match self.workload {
            Workload::Stream => words.push(self.direction.name()),
            Workload::RequestResponse { .. } => words.push("request-response"),
        }
        let datagrams = self.datagram_word();
        words.extend(datagrams.as_deref());
        if self.zero_copy && self.label.is_none() {
            words.push("zero-copy");
        }
        let write = self.write_word();
        words.extend(write.as_deref());
        if self.workers != Workers::Threads {
            let driven = if self.workers == Workers::Drivers { "driven " } else { "" };
            connections = format!("{} {driven}tasks", self.connections);
            words.push(&connections);
        } else if self.connections > 1 {
            connections = format!("x{}", self.connections);
            words.push(&connections);
        }
        let rate;
        if let Some(bits_per_second) = self.rate {
            rate = format!("{}Mbit/s", bits_per_second as f64 / 1e6);
            words.push(&rate);
        }
        words.push(&mode);
        words.extend(self.times.word());
        words.extend(self.label.as_deref());
        words.join(" ")
    }

    /// What the application writes in one call, whatever it says by it.
    #[must_use]
    pub const fn written_len_bytes(&self) -> usize {
        match self.workload {
            Workload::Stream => self.write_len_bytes,
            Workload::RequestResponse { len_bytes } => len_bytes,
        }
    }

    /// The length of a write, of a request, where it is not the usual one.
    fn write_word(&self) -> Option<String> {
        let usual = match self.workload {
            Workload::Stream => WRITE_LEN_BYTES,
            Workload::RequestResponse { .. } => 1,
        };
        let len_bytes = self.written_len_bytes();
        (len_bytes != usual).then(|| crate::sizes::format_size(len_bytes as u64))
    }

    fn datagram_word(&self) -> Option<String> {
        let len_bytes = self.datagram_len_bytes? as u64;
        Some(format!("datagrams-{}", crate::sizes::format_size(len_bytes)))
    }

    /// A sentence where the mode is only a name on this device: the stack would fall back to another.
    #[must_use]
    pub fn lacks_form(&self) -> Option<String> {
        (!self.device.forms().has(self.mode)).then(|| {
            format!(
                "--mode {} is not for --device {}, which has no form for it: packets would leave as in \
                 mode multidata",
                self.mode,
                self.device.name()
            )
        })
    }

    /// Looks for contradictions.
    ///
    /// # Errors
    /// A sentence that names the options that cannot stand together.
    pub fn check(&self) -> Result<(), String> {
        if let Some(why) = self.lacks_form() {
            return Err(why);
        }
        if self.mode == TransmitMode::Lso && !self.offload {
            return Err(
                "--mode lso needs --offload on: without it the device takes no super-frame"
                    .to_owned(),
            );
        }
        if self.peer() == PeerKind::Own && self.napi {
            return Err(
                "--napi on is for devices with the kernel at their other end: only there it takes frames in"
                    .to_owned(),
            );
        }
        let has_choice = self.device == DeviceKind::Packet && self.offload;
        if !(self.tso || has_choice) {
            return Err(
                "--tso off is for --device packet --offload on: elsewhere the device decides \
                        who splits super-frames"
                    .to_owned(),
            );
        }
        if self.device == DeviceKind::Packet && self.napi && self.offload && self.tso {
            return Err("--napi on with --device packet needs --offload off or --tso off: a veth \
                        interface polls only for frames that it does not split itself"
                .to_owned());
        }
        if matches!(self.device, DeviceKind::Xdp | DeviceKind::Stream) && self.offload {
            return Err(
                "--offload on is for other devices: AF_XDP and streams of frames take neither super-frames nor \
                 unfinished checksums"
                    .to_owned(),
            );
        }
        self.check_datagrams()?;
        self.check_tunnel()?;
        self.check_packet_socket()?;
        self.check_tun()?;
        self.check_mtu()?;
        let connections_max = match self.workers {
            Workers::Threads => CONNECTIONS_MAX,
            Workers::Tasks | Workers::Drivers => TASK_CONNECTIONS_MAX,
        };
        if !(1..=connections_max).contains(&self.connections) {
            return Err(format!(
                "--connections {} is out of range: give 1 to {connections_max}",
                self.connections
            ));
        }
        if let Amount::Bytes(bytes) = self.amount
            && bytes < self.connections as u64
        {
            return Err(format!(
                "--bytes {bytes} is less than one byte for each of {} connections",
                self.connections
            ));
        }
        layouts::check(self)
    }

    fn check_mtu(&self) -> Result<(), String> {
        // A tunnel's is that of the path: packets in it are shorter by what it puts around them.
        let around = match self.device {
            DeviceKind::Tunnel => crate::peer::tunnel::around_bytes(self.transform),
            _ => 0,
        };
        let least = around + if self.ipv6 { MTU_MIN_IPV6 } else { MTU_MIN_IPV4 };
        match self.mtu_bytes {
            mtu if (least..=MTU_MAX).contains(&mtu) => Ok(()),
            mtu => Err(format!("--mtu {mtu} is out of range: give {least} to {MTU_MAX}")),
        }
    }

    fn check_datagrams(&self) -> Result<(), String> {
        let Some(len_bytes) = self.datagram_len_bytes else { return Ok(()) };
        if self.device == DeviceKind::Tunnel {
            return Err("--datagram is for other devices than tunnels".to_owned());
        }
        let (least, most) = (DATAGRAM_LEN_BYTES_MIN, DATAGRAM_LEN_BYTES_MAX);
        if !(least..=most).contains(&len_bytes) {
            return Err(format!("--datagram {len_bytes} is out of range: give {least} to {most}"));
        }
        let is_one_way = self.workload == Workload::Stream && self.direction == Direction::Send;
        if self.connections > 1 || !is_one_way {
            return Err("--datagram is for one socket that sends".to_owned());
        }
        if self.write_len_bytes < len_bytes {
            return Err(format!(
                "--write-size {} is less than one datagram of --datagram {len_bytes}",
                self.write_len_bytes
            ));
        }
        Ok(())
    }

    fn check_tunnel(&self) -> Result<(), String> {
        if self.device == DeviceKind::Tunnel && self.offload {
            return Err(
                "--offload on is not for tunnels, which transform every packet: they have \
                        --udp-offload"
                    .to_owned(),
            );
        }
        if self.device != DeviceKind::Tunnel
            && (self.transform != TransformKind::Null || !self.udp_offload)
        {
            return Err("--transform and --udp-offload need --device tunnel".to_owned());
        }
        if self.trust_checksums && self.transform == TransformKind::Null {
            return Err(
                "--trust-checksums on needs --device tunnel and --transform chacha20poly1305: what \
                 nothing authenticates needs its checksums"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn check_tun(&self) -> Result<(), String> {
        if self.io_uring && !self.device.is_tun() {
            return Err(
                "--io-uring on needs --device tap, tun or tap-pair: the others have calls of their own \
                        for many frames"
                    .to_owned(),
            );
        }
        if self.queue_packets.is_some() && !self.device.is_tun() {
            return Err(
                "--queue needs --device tap, tun or tap-pair: the kernel keeps frames of no others for us"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn check_packet_socket(&self) -> Result<(), String> {
        if self.device != DeviceKind::Packet && (self.queues > 1 || self.receive_blocks.is_some()) {
            return Err("--queues and --blocks need --device packet".to_owned());
        }
        if self.queues > 1 && self.queues != self.squeues {
            return Err(format!(
                "--queues {} needs --squeues {}: each squeue of a packet socket's has a queue, or one has \
                 the only one",
                self.queues, self.queues
            ));
        }
        if self.queues > 1 && self.capture.is_some() {
            return Err("--capture is for one queue, without --queues".to_owned());
        }
        Ok(())
    }

    /// The share of connection `index` in [`Amount::Bytes`]; the first ones take the remainder.
    #[must_use]
    pub fn share_bytes(bytes: u64, connections: usize, index: usize) -> u64 {
        let connections = connections.max(1) as u64;
        bytes / connections + u64::from((index as u64) < bytes % connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_are_named() {
        let sound = Scenario::stream(DeviceKind::Tap, Direction::Send, TransmitMode::Multidata);
        assert_eq!(sound.check(), Ok(()));
        let broken = [
            (Scenario { mode: TransmitMode::Lso, offload: false, ..sound.clone() }, "--offload"),
            (
                Scenario { device: DeviceKind::Xdp, mode: TransmitMode::Chain, ..sound.clone() },
                "--mode chain is not for --device xdp",
            ),
            (Scenario { device: DeviceKind::Wire, napi: true, ..sound.clone() }, "--napi"),
            (
                Scenario { device: DeviceKind::Packet, napi: true, offload: true, ..sound.clone() },
                "--offload off",
            ),
            (Scenario { tso: false, ..sound.clone() }, "--tso off"),
            (
                Scenario { device: DeviceKind::Packet, tso: false, ..sound.clone() },
                "--tso off is for --device packet --offload on",
            ),
            (Scenario { device: DeviceKind::Xdp, offload: true, ..sound.clone() }, "--offload on"),
            (Scenario { device: DeviceKind::Tunnel, offload: true, ..sound.clone() }, "--offload"),
            (Scenario { transform: TransformKind::ChaChaPoly, ..sound.clone() }, "--transform"),
            (Scenario { udp_offload: false, ..sound.clone() }, "--udp-offload"),
            (
                Scenario { device: DeviceKind::Tunnel, trust_checksums: true, ..sound.clone() },
                "--transform chacha20poly1305",
            ),
            (
                Scenario { device: DeviceKind::Packet, io_uring: true, ..sound.clone() },
                "--io-uring",
            ),
            (
                Scenario { device: DeviceKind::Wire, queue_packets: Some(5_000), ..sound.clone() },
                "--queue ",
            ),
            (Scenario { queues: 2, squeues: 2, ..sound.clone() }, "--device packet"),
            (
                Scenario { receive_blocks: Some(Duration::from_millis(1)), ..sound.clone() },
                "--blocks",
            ),
            (Scenario { device: DeviceKind::Packet, queues: 2, ..sound.clone() }, "--squeues 2"),
            (Scenario { datagram_len_bytes: Some(70_000), ..sound.clone() }, "--datagram 70000"),
            (Scenario { datagram_len_bytes: Some(7), ..sound.clone() }, "--datagram 7"),
            (
                Scenario { datagram_len_bytes: Some(1_000), write_len_bytes: 999, ..sound.clone() },
                "--write-size 999",
            ),
            (Scenario { mtu_bytes: 100, ..sound.clone() }, "--mtu"),
            (Scenario { mtu_bytes: 600, ipv6: true, ..sound.clone() }, "--mtu"),
            (
                Scenario { device: DeviceKind::Tunnel, mtu_bytes: 603, ..sound.clone() },
                "--mtu 603 is out of range: give 604",
            ),
            (
                Scenario {
                    device: DeviceKind::Tunnel,
                    transform: TransformKind::ChaChaPoly,
                    ipv6: true,
                    mtu_bytes: 1_331,
                    ..sound.clone()
                },
                "--mtu 1331 is out of range: give 1332",
            ),
            (Scenario { connections: 0, ..sound.clone() }, "--connections"),
            (Scenario { connections: 9, amount: Amount::Bytes(8), ..sound.clone() }, "--bytes"),
        ];
        for (scenario, option) in broken {
            let sentence = scenario.check().unwrap_err();
            assert!(sentence.contains(option), "{sentence}");
        }
    }

    #[test]
    fn shares_add_up() {
        for (bytes, connections) in [(10, 3), (9, 3), (1, 1), (1_000_003, 7)] {
            let sum: u64 = (0..connections)
                .map(|index| Scenario::share_bytes(bytes, connections, index))
                .sum();
            assert_eq!(sum, bytes);
        }
    }

    #[test]
    fn transactions_are_named_and_stored_by_their_length() {
        let wire = Scenario::stream(DeviceKind::Wire, Direction::Both, TransmitMode::Multidata);
        let of = |len_bytes| {
            let workload = Workload::RequestResponse { len_bytes };
            crate::results::Run::of(&Scenario { workload, ..wire.clone() })
        };
        assert_eq!(of(1).scenario, "wire request-response multidata");
        assert_eq!(of(2_048).scenario, "wire request-response 2K multidata");
        assert_eq!((of(1).write_len_bytes, of(2_048).write_len_bytes), (1, 2_048));
    }

    #[test]
    fn names_tell_scenarios_apart() {
        let plan = crate::plan::default_job(Duration::from_secs(1));
        let mut names: Vec<String> = plan.iter().map(Scenario::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), plan.len());
    }
}
