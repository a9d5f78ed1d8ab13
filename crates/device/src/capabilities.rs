//! What a device can do, as found at run time.

use crate::lowering::{BlockForm, Contiguous, FRAMES_MAX};
use batch::{Checksum, PacketView};
use core::fmt;
use core::str::FromStr;
pub use wire::HardwareAddress;

/// What lies around the packets of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Ethernet frames: a link header of 14 bytes and neighbours to resolve.
    Ethernet(HardwareAddress),
    /// Bare IP packets (TUN): no link header, no neighbours.
    Ip,
}

/// How a batch reaches the device. It bounds how large a batch may grow and says how the device
/// receives it; the way to the device is one and the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TransmitMode {
    /// Batches of one packet (seed 000, the standard path).
    Single,
    /// Many packets in one call, linked to a chain, each with buffers and a descriptor of its own
    /// that the device handles one by one (seed 000, 3.1, "packet chaining"). It saves the calls
    /// between the layers and from them to the device and nothing below, about a tenth there; the
    /// mappings, locks and descriptors of `Single` remain, one for each packet.
    Chain,
    /// 1 to 43 frames in one block that is cut below (seed 003, 5.1, "packet fragmentation"). A
    /// batch is one block, as long as it fits 64 KiB. It saves all mappings and descriptors but one
    /// a block; the price is a copy of every frame into the block, on a device that would else
    /// gather it from where it lies.
    Contiguous(Contiguous),
    /// Header block, payload blocks and descriptors of many packets in one call (seed 000, 4).
    #[default]
    Multidata,
    /// As `Multidata`, and the device merges each run into one header and one large payload that
    /// is split below (seed 000, 3.2). Needs [`Capabilities::segmentation`].
    Lso,
}

impl TransmitMode {
    /// Every mode, with the longest blocks and both forms of them.
    pub const ALL: [Self; 6] = [
        Self::Single,
        Self::Chain,
        Self::Contiguous(Contiguous::FRAMES),
        Self::Contiguous(Contiguous::PAYLOAD),
        Self::Multidata,
        Self::Lso,
    ];

    /// Packets of one batch at most, of a device that takes `batch_packets_max` in one call.
    #[must_use]
    pub fn batch_packets_max(self, batch_packets_max: usize) -> usize {
        match self {
            Self::Single => 1,
            Self::Contiguous(contiguous) => contiguous.frames_max().min(batch_packets_max),
            Self::Chain | Self::Multidata | Self::Lso => batch_packets_max,
        }
    }

    /// The mode's name on command lines and in reports; that of the payload form of `Contiguous` is
    /// `replicated`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Chain => "chain",
            Self::Contiguous(contiguous) => match contiguous.form() {
                BlockForm::Frames => "contiguous",
                BlockForm::Payload => "replicated",
            },
            Self::Multidata => "multidata",
            Self::Lso => "lso",
        }
    }
}

impl FromStr for TransmitMode {
    type Err = String;

    /// A mode by its name; behind `contiguous` and `replicated` a colon and the frames of a block at
    /// most may follow.
    ///
    /// # Errors
    /// A sentence that says which modes there are.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, frames_max) = match text.split_once(':') {
            Some((name, frames_max)) => (name, Some(frames_max)),
            None => (text, None),
        };
        let names = Self::ALL.map(Self::name).join(", ");
        let unknown = || format!("no such mode; the modes are {names}");
        let mode = Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(unknown)?;
        match (mode, frames_max) {
            (mode, None) => Ok(mode),
            (Self::Contiguous(contiguous), Some(frames_max)) => frames_max
                .parse()
                .ok()
                .and_then(|frames_max| contiguous.with_frames_max(frames_max))
                .map(Self::Contiguous)
                .ok_or_else(|| format!("a block holds 1 to {FRAMES_MAX} frames")),
            (mode, Some(_)) => Err(format!("{mode} has no blocks whose frames could be bounded")),
        }
    }
}

impl fmt::Display for TransmitMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())?;
        match self {
            Self::Contiguous(contiguous) if contiguous.frames_max() < FRAMES_MAX => {
                write!(formatter, ":{}", contiguous.frames_max())
            }
            _ => Ok(()),
        }
    }
}

/// What a device takes as one super-frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// TCP over IPv4 can be split below.
    pub tcp_ipv4: bool,
    /// TCP over IPv6 can be split below.
    pub tcp_ipv6: bool,
    /// Longest IP packet in bytes, IP header included.
    pub len_bytes_max: usize,
}

/// The version of the contract between stack and device that this crate is: what a batch holds,
/// what its attributes say, and what a device answers (seed 000, 4.4.1: a stack that does not know
/// a device's version uses no Multidata on it).
pub const MULTIDATA_VERSION: u16 = 1;

/// The transport checksums that a device completes, where [`Capabilities::checksum_transmit`] says
/// that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumKinds {
    /// TCP over IPv4.
    pub tcp_ipv4: bool,
    /// TCP over IPv6.
    pub tcp_ipv6: bool,
    /// UDP over IPv4.
    pub udp_ipv4: bool,
    /// UDP over IPv6.
    pub udp_ipv6: bool,
}

impl ChecksumKinds {
    /// All of them: a device that is told where to sum and where to put the sum, as virtio-net is.
    pub const ALL: Self = Self { tcp_ipv4: true, tcp_ipv6: true, udp_ipv4: true, udp_ipv6: true };
}

/// The forms in which a device can be handed many packets, beside the batch itself
/// ([`TransmitMode::Multidata`]), which every device takes. Where a form would be only another name for
/// what the device does with a batch anyway, it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forms {
    /// Many packets in a call, each by itself ([`TransmitMode::Chain`]).
    pub chain: bool,
    /// Blocks of whole frames ([`BlockForm::Frames`]).
    pub frames: bool,
    /// Blocks of payload, in front of which headers are inserted ([`BlockForm::Payload`]).
    pub payload: bool,
}

impl Forms {
    /// All of them.
    pub const ALL: Self = Self { chain: true, frames: true, payload: true };
    /// None but batches.
    pub const NONE: Self = Self { chain: false, frames: false, payload: false };

    /// Whether a mode has a form of its own; super-frames are no matter of forms.
    #[must_use]
    pub const fn has(self, mode: TransmitMode) -> bool {
        match mode {
            TransmitMode::Single | TransmitMode::Multidata | TransmitMode::Lso => true,
            TransmitMode::Chain => self.chain,
            TransmitMode::Contiguous(contiguous) => match contiguous.form() {
                BlockForm::Frames => self.frames,
                BlockForm::Payload => self.payload,
            },
        }
    }
}

/// How a device divides one contiguous block into frames (seed 003).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentSplitting {
    /// Into pieces of one size, the last of them shorter.
    pub by_size: bool,
    /// Into pieces of given lengths.
    pub by_length: bool,
}

/// What a device can do. Found when it is opened; may change while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The contract the device was written for ([`MULTIDATA_VERSION`]).
    pub version: u16,
    /// What lies around the packets.
    pub medium: Medium,
    /// Longest IP packet in bytes, IP header included.
    pub mtu_bytes: usize,
    /// Packets the device takes in one call at most.
    pub batch_packets_max: usize,
    /// What stands between the stack and the device, as a tunnel's transform, asks for single packets.
    pub wants_single_packets: bool,
    /// Payload blocks that one batch may refer to at most.
    pub batch_blocks_max: usize,
    /// Payload bytes that one batch may hold at most.
    pub batch_bytes_max: usize,
    /// The longest payload block, in bytes, that the device can be shown. What lies in longer ones
    /// is copied for it.
    pub block_bytes_max: usize,
    /// The device fills in checksums left as `Partial`, of the kinds below.
    pub checksum_transmit: bool,
    /// Which ones.
    pub checksum_kinds: ChecksumKinds,
    /// The device hands up frames whose checksum is verified or need not be.
    pub checksum_receive: bool,
    /// The device splits super-frames on the way out.
    pub segmentation: Option<Segmentation>,
    /// The forms in which the device can be handed a batch.
    pub forms: Forms,
    /// How the device itself divides contiguous blocks on the way out; where it does not, whoever drives
    /// it cuts them.
    pub fragment_splitting: FragmentSplitting,
    /// The device hands up super-frames on the way in.
    pub receive_super_frames: bool,
    /// Frames the device hands up in one call at most (seed 003's coalescing); one for a device
    /// that delivers frame by frame.
    pub coalesced_frames_max: usize,
    /// Queue pairs.
    pub queues: usize,
    /// Somebody else speaks from its hardware address as well, as the kernel does: by that alone a DHCP server
    /// would take both for one client. A stack then asks by another identifier, which all stacks have in common: where
    /// two of them share a device, one must be given an identifier of its own.
    pub shares_address: bool,
}

impl Capabilities {
    /// A device of this medium and MTU without any offload, that can be handed a batch in every form.
    #[must_use]
    pub fn plain(medium: Medium, mtu_bytes: usize) -> Self {
        Self {
            medium,
            version: MULTIDATA_VERSION,
            mtu_bytes,
            batch_packets_max: 64,
            wants_single_packets: false,
            batch_blocks_max: usize::MAX,
            batch_bytes_max: usize::MAX,
            block_bytes_max: usize::MAX,
            checksum_transmit: false,
            checksum_kinds: ChecksumKinds::ALL,
            checksum_receive: false,
            segmentation: None,
            forms: Forms::ALL,
            fragment_splitting: FragmentSplitting::default(),
            receive_super_frames: false,
            coalesced_frames_max: usize::MAX,
            queues: 1,
            shares_address: false,
        }
    }

    /// Whether the device completes the transport checksum of packets of this IP protocol.
    #[must_use]
    pub fn completes_checksum(&self, is_ipv4: bool, protocol: u8) -> bool {
        let kinds = &self.checksum_kinds;
        self.checksum_transmit
            && match (protocol, is_ipv4) {
                (wire::protocol::TCP, true) => kinds.tcp_ipv4,
                (wire::protocol::TCP, false) => kinds.tcp_ipv6,
                (wire::protocol::UDP, true) => kinds.udp_ipv4,
                (wire::protocol::UDP, false) => kinds.udp_ipv6,
                _ => false,
            }
    }

    /// Whether a packet may be offered: it is no longer than the MTU, and its checksum is not missing. One
    /// that is left partial and that the device does not complete ([`Capabilities::completes`]) is completed
    /// by whoever drives the device.
    #[must_use]
    pub fn admits(&self, packet: &PacketView<'_>) -> bool {
        packet.len() - packet.link_header_len() <= self.mtu_bytes
            && !matches!(packet.attributes().checksum, Checksum::Missing { .. })
    }

    /// Whether a packet with this checksum leaves the device with a complete one, as it is or by the
    /// device's doing.
    #[must_use]
    pub fn completes(&self, checksum: Checksum) -> bool {
        match checksum {
            Checksum::Complete => true,
            Checksum::Partial { .. } => self.checksum_transmit,
            Checksum::Missing { .. } => false,
        }
    }

    /// The mode for who asked for `wanted`: [`TransmitMode::Multidata`] where the device has no form for
    /// it. For who asked for none, [`TransmitMode::Lso`] where the device splits super-frames, which then is
    /// several times as fast, and else `Multidata`.
    #[must_use]
    pub fn mode_for(&self, wanted: Option<TransmitMode>) -> TransmitMode {
        let mode = wanted.unwrap_or(TransmitMode::Lso);
        if self.supports(mode) { mode } else { TransmitMode::Multidata }
    }

    /// Whether the device was written for batches as this stack makes them.
    #[must_use]
    pub fn takes_multidata(&self) -> bool {
        self.version == MULTIDATA_VERSION
    }

    /// Whether a batch can be sent in this mode, and in its form.
    #[must_use]
    pub fn supports(&self, mode: TransmitMode) -> bool {
        self.forms.has(mode) && (mode != TransmitMode::Lso || self.segmentation.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_supported_where_the_device_has_its_form() {
        let few = Capabilities {
            forms: Forms { payload: true, ..Forms::NONE },
            ..Capabilities::plain(Medium::Ip, 1_500)
        };
        let modes = TransmitMode::ALL.into_iter().filter(|mode| few.supports(*mode));
        let names: Vec<_> = modes.map(TransmitMode::name).collect();
        assert_eq!(names, ["single", "replicated", "multidata"]);
        assert!(Capabilities { forms: Forms::ALL, ..few }.supports(TransmitMode::Chain));
    }

    #[test]
    fn who_asks_for_no_mode_gets_super_frames_where_the_device_splits_them() {
        let plain = Capabilities::plain(Medium::Ip, 1_500);
        let limits = Segmentation { tcp_ipv4: true, tcp_ipv6: true, len_bytes_max: 65_535 };
        let able = Capabilities { segmentation: Some(limits), ..plain.clone() };
        for (wanted, of_plain, of_able) in [
            (None, TransmitMode::Multidata, TransmitMode::Lso),
            (Some(TransmitMode::Lso), TransmitMode::Multidata, TransmitMode::Lso),
            (Some(TransmitMode::Single), TransmitMode::Single, TransmitMode::Single),
        ] {
            assert_eq!((plain.mode_for(wanted), able.mode_for(wanted)), (of_plain, of_able));
        }
    }

    #[test]
    fn a_mode_is_parsed_as_it_is_written() {
        let seven = Contiguous::PAYLOAD.with_frames_max(7).expect("in range");
        for mode in TransmitMode::ALL.into_iter().chain([TransmitMode::Contiguous(seven)]) {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert_eq!(TransmitMode::Contiguous(seven).to_string(), "replicated:7");
        let refused = |text: &str| text.parse::<TransmitMode>().expect_err("refused");
        assert!(refused("batch").contains("single, chain, contiguous"));
        assert!(refused("chain:3").contains("no blocks"));
        for text in ["contiguous:0", "contiguous:44", "contiguous:", "contiguous:-1"] {
            assert!(refused(text).contains("1 to 43"), "{text}");
        }
    }
}
