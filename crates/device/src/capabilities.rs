//! What a device can do, as found at run time.

use core::fmt;
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
    /// Header block, payload blocks and descriptors of many packets in one call (seed 000, 4).
    #[default]
    Multidata,
    /// As `Multidata`, and the device merges each run into one header and one large payload that
    /// is split below (seed 000, 3.2). Needs [`Capabilities::segmentation`].
    Lso,
}

impl TransmitMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Single, Self::Multidata, Self::Lso];

    /// The mode's name on command lines and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Multidata => "multidata",
            Self::Lso => "lso",
        }
    }
}

impl fmt::Display for TransmitMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
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

/// What a device can do. Found when it is opened; may shrink while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// What lies around the packets.
    pub medium: Medium,
    /// Longest IP packet in bytes, IP header included.
    pub mtu_bytes: usize,
    /// Packets the device takes in one call at most.
    pub batch_packets_max: usize,
    /// The device fills in TCP and UDP checksums left as `Partial`.
    pub checksum_transmit: bool,
    /// The device hands up frames whose checksum is verified or need not be.
    pub checksum_receive: bool,
    /// The device splits super-frames on the way out.
    pub segmentation: Option<Segmentation>,
    /// The device hands up super-frames on the way in.
    pub receive_super_frames: bool,
    /// Queue pairs.
    pub queues: usize,
}

impl Capabilities {
    /// A device of this medium and MTU without any offload.
    #[must_use]
    pub fn plain(medium: Medium, mtu_bytes: usize) -> Self {
        Self {
            medium,
            mtu_bytes,
            batch_packets_max: 64,
            checksum_transmit: false,
            checksum_receive: false,
            segmentation: None,
            receive_super_frames: false,
            queues: 1,
        }
    }

    /// Whether a batch can be sent in this mode.
    #[must_use]
    pub fn supports(&self, mode: TransmitMode) -> bool {
        match mode {
            TransmitMode::Single | TransmitMode::Multidata => true,
            TransmitMode::Lso => self.segmentation.is_some(),
        }
    }
}
