//! Contiguous blocks: the frames of a batch laid into one buffer, and cut out of it below.
//!
//! This is the *packet fragmentation* of seed 003, section 5.1: a host hands a programmable network
//! card one long block with several frames in it, the card takes it over in one transfer and cuts
//! it. What it saves is a mapping, a descriptor and a transfer for each frame but one; what it costs
//! is laying the frames into the block, which the host must do with a copy. [`blocks`] says which
//! packets go together, [`FrameBlock::lay_out`] makes the block, [`FrameBlock::frames`] is how it is
//! cut.
//!
//! ```text
//!  0        slot                     slot                     slot            len_bytes
//!  | prefix | header payload | pad | prefix | header payload | pad | prefix | header pa|
//!           ^ multiple of 8                 ^ multiple of 8
//! ```
//!
//! A block holds 1 to 43 frames and, unless a single frame is longer, at most 64 KiB, the longest
//! transfer of the card (seed 003, 5.1.1). Every frame begins at a multiple of 8 bytes, because the
//! card's MAC can read none that does not (there). A device that needs bytes of its own in front of
//! each frame (a virtio-net header) asks for a prefix, which lies directly before the frame.
//!
//! A block is cut by one length where all of its frames but the last have it
//! ([`Split::Fixed`], the document's Algorithm 1), else by a list of lengths ([`Split::Lengths`],
//! its section 5.1.3).
//!
//! In the form [`BlockForm::Payload`] only payload is carried and the gaps where headers belong are
//! filled below ([`FrameBlock::insert_headers`], seed 003's future work, 5.1.3): one header crosses,
//! and for each frame the two fields that do not follow from its place, checksum and TCP flags.
//! Identification, lengths, sequence number and the IPv4 header's checksum do follow. This trusts
//! nobody: a packet whose header is not exactly what would be inserted begins another block.
//!
//! What always holds: the frames cut from the blocks of a batch are its packets, in order, byte for
//! byte, in the checksum state the packets had.

use super::{
    HEADER_LEN_MAX, IPV6_HEADER_LEN, NetworkVersion, PROTOCOL_TCP, TCP_CHECKSUM, TCP_FLAGS,
    UDP_CHECKSUM, advance_sequence, put, word,
};
use batch::{Checksum, Multidata, PacketView};
use core::ops::Range;

/// Frames of one block at most (seed 003, 5.1.1: of 1,512 bytes, in 64 KiB).
pub const FRAMES_MAX: usize = 43;

/// Length of a block of several frames at most, in bytes.
pub const BLOCK_LEN_MAX: usize = 65_536;

/// Frames begin at multiples of this.
pub const FRAME_ALIGN_BYTES: usize = 8;

const PROTOCOL_UDP: u8 = 17;
const TCP_HEADER_LEN_MIN: usize = super::TCP_HEADER_LEN_MIN;
const UDP_HEADER_LEN: usize = 8;

/// What a contiguous block carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockForm {
    /// Whole frames.
    #[default]
    Frames,
    /// Payload, with gaps for headers, which are replicated and adjusted below.
    Payload,
}

/// How blocks of the contiguous mode are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Contiguous {
    frames_max: u8,
    form: BlockForm,
}

impl Contiguous {
    /// Whole frames, as many as a block may hold.
    pub const FRAMES: Self = Self { frames_max: FRAMES_MAX as u8, form: BlockForm::Frames };
    /// Payload with replicated headers, as many frames as a block may hold.
    pub const PAYLOAD: Self = Self { frames_max: FRAMES_MAX as u8, form: BlockForm::Payload };

    /// The same form with at most `frames_max` frames in a block; `None` where that is not in
    /// 1..=[`FRAMES_MAX`].
    #[must_use]
    pub const fn with_frames_max(self, frames_max: usize) -> Option<Self> {
        match frames_max {
            1..=FRAMES_MAX => Some(Self { frames_max: frames_max as u8, ..self }),
            _ => None,
        }
    }

    /// Frames of a block at most, 1 to [`FRAMES_MAX`].
    #[must_use]
    pub const fn frames_max(self) -> usize {
        self.frames_max as usize
    }

    /// What a block carries.
    #[must_use]
    pub const fn form(self) -> BlockForm {
        self.form
    }
}

/// A checksum that is left to the device, as a NIC is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Bytes from the frame's first to the first that is summed, the transport header's.
    pub transport_offset: u16,
    /// Bytes from there to the field, which holds the sum of the pseudo-header.
    pub field_offset: u8,
}

/// What the device is told of a frame in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameDescriptor {
    /// Its length in bytes, link header included, padding and prefix not.
    pub len_bytes: u32,
    /// Its transport checksum, where that is not complete.
    pub checksum: Option<PartialChecksum>,
}

/// How a block is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Split {
    /// Into frames like this one; the last may be shorter.
    Fixed(FrameDescriptor),
    /// Into these frames, one after the other.
    Lengths(Vec<FrameDescriptor>),
}

/// What is inserted in front of the payload of a block's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Replica {
    template: [u8; HEADER_LEN_MAX],
    layout: HeaderLayout,
    adjustments: Vec<Adjustment>,
}

/// What of a header does not follow from its place in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Adjustment {
    checksum: u16,
    tcp_flags: u8,
}

/// Where the headers are in the bytes of a frame, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeaderLayout {
    len: usize,
    network: usize,
    transport: usize,
    /// `None` where no second header can be made of the template.
    kind: Option<(NetworkVersion, Transport)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

/// Packets of a batch that go to the device as one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameBlock {
    /// Their indices in the batch; never empty.
    pub packets: Range<usize>,
    /// Length of the block: to the end of the last frame.
    pub len_bytes: usize,
    /// How it is cut.
    pub split: Split,
    /// Where the first frame begins: the prefix, rounded up.
    gap: usize,
    replica: Option<Box<Replica>>,
}

/// A frame in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockFrame {
    /// Where it lies in the block, without its prefix; begins at a multiple of
    /// [`FRAME_ALIGN_BYTES`].
    pub range: Range<usize>,
    /// Its transport checksum, where that is not complete.
    pub checksum: Option<PartialChecksum>,
}

impl FrameBlock {
    /// The frames of the block, in order.
    pub fn frames(&self) -> impl Iterator<Item = BlockFrame> + '_ {
        let (gap, block_len) = (self.gap, self.len_bytes);
        let mut slot = 0;
        (0..self.packets.len()).map_while(move |index| {
            let frame = match &self.split {
                Split::Fixed(frame) => *frame,
                Split::Lengths(frames) => *frames.get(index)?,
            };
            let start = slot + gap;
            let end = (start + frame.len_bytes as usize).min(block_len);
            slot = end.next_multiple_of(FRAME_ALIGN_BYTES);
            Some(BlockFrame { range: start..end, checksum: frame.checksum })
        })
    }

    /// Whether the block carries payload alone, and [`FrameBlock::insert_headers`] must be called
    /// before it is cut.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.replica.is_some()
    }

    /// Writes the block to the front of `out`: all frames, or in the payload form what the upper
    /// side hands down. Prefixes, padding and gaps are left as they are. `None` where `out` is
    /// shorter than [`FrameBlock::len_bytes`] or `batch` is not the one the block was made of.
    pub fn lay_out(&self, batch: &Multidata, out: &mut [u8]) -> Option<()> {
        for (index, frame) in self.packets.clone().zip(self.frames()) {
            let packet = batch.packet(index)?;
            let out = out.get_mut(frame.range)?;
            if self.replica.is_none() {
                packet.copy_to(out).filter(|len| *len == out.len())?;
                continue;
            }
            let mut rest = out.get_mut(packet.header_len()..)?;
            for piece in packet.payload() {
                let (here, behind) = rest.split_at_mut_checked(piece.len())?;
                here.copy_from_slice(piece);
                rest = behind;
            }
        }
        Some(())
    }

    /// Fills the gaps in front of the payload, as the device below does that replicates headers.
    /// Nothing to do where the block carries whole frames. `None` where `block` is too short.
    pub fn insert_headers(&self, block: &mut [u8]) -> Option<()> {
        let Some(replica) = &self.replica else { return Some(()) };
        let mut payload_offset = 0;
        for (index, frame) in self.frames().enumerate() {
            let payload_len = frame.range.len().checked_sub(replica.layout.len)?;
            let out = block.get_mut(frame.range)?.get_mut(..replica.layout.len)?;
            out.copy_from_slice(replica.template.get(..replica.layout.len)?);
            if let Some(by) = replica.adjustments.get(index.wrapping_sub(1)) {
                replica.layout.adjust(out, index, payload_offset, payload_len, *by)?;
            }
            payload_offset += payload_len;
        }
        Some(())
    }
}

/// The blocks in which the packets `packets` of `batch` go to a device that cuts them. Together
/// they cover every packet once, in order. Each frame has `prefix_len` bytes directly before it
/// that are the device's.
pub fn blocks(
    batch: &Multidata,
    packets: Range<usize>,
    contiguous: Contiguous,
    prefix_len: usize,
) -> FrameBlocks<'_> {
    let end = packets.end.min(batch.len());
    let gap = prefix_len.next_multiple_of(FRAME_ALIGN_BYTES);
    FrameBlocks { batch, contiguous, gap, next: packets.start, end }
}

/// Iterator of [`blocks`].
#[derive(Clone, Debug)]
pub struct FrameBlocks<'a> {
    batch: &'a Multidata,
    contiguous: Contiguous,
    gap: usize,
    next: usize,
    end: usize,
}

impl Iterator for FrameBlocks<'_> {
    type Item = FrameBlock;

    fn next(&mut self) -> Option<FrameBlock> {
        if self.next >= self.end {
            return None;
        }
        let mut filling = Filling::new(&self.batch.packet(self.next)?, self.contiguous, self.gap);
        let end = self.end.min(self.next + self.contiguous.frames_max());
        let mut index = self.next + 1;
        while index < end
            && let Some(packet) = self.batch.packet(index)
            && filling.add(&packet)
        {
            index += 1;
        }
        let block = filling.finish(self.next..index, self.gap);
        self.next = index;
        Some(block)
    }
}

/// A block that packets are being added to.
struct Filling {
    gap: usize,
    len_bytes: usize,
    split: Split,
    /// The frame added last, where it was not the first.
    last: FrameDescriptor,
    count: usize,
    payload_len: usize,
    replica: Option<Box<Replica>>,
}

impl Filling {
    fn new(head: &PacketView<'_>, contiguous: Contiguous, gap: usize) -> Self {
        let replica = match contiguous.form() {
            BlockForm::Frames => None,
            BlockForm::Payload => Replica::new(head).map(Box::new),
        };
        let frame = descriptor(head);
        let payload_len = head.payload_len();
        let len_bytes = gap + head.len();
        Self {
            gap,
            len_bytes,
            split: Split::Fixed(frame),
            last: frame,
            count: 1,
            payload_len,
            replica,
        }
    }

    /// Adds a packet, where it may stand in this block.
    fn add(&mut self, packet: &PacketView<'_>) -> bool {
        let slot = self.len_bytes.next_multiple_of(FRAME_ALIGN_BYTES);
        let len_bytes = slot + self.gap + packet.len();
        if len_bytes > BLOCK_LEN_MAX {
            return false;
        }
        if let Some(replica) = &mut self.replica
            && !replica.add(self.count, self.payload_len, packet)
        {
            return false;
        }
        let frame = descriptor(packet);
        match &mut self.split {
            // The frame before this one must not have been the shorter one that ends a block.
            Split::Fixed(first)
                if self.last == *first
                    && frame.checksum == first.checksum
                    && frame.len_bytes <= first.len_bytes => {}
            Split::Fixed(first) => {
                let mut frames = Vec::with_capacity(FRAMES_MAX);
                frames.resize(self.count - 1, *first);
                frames.extend([self.last, frame]);
                self.split = Split::Lengths(frames);
            }
            Split::Lengths(frames) => frames.push(frame),
        }
        self.last = frame;
        self.len_bytes = len_bytes;
        self.payload_len += packet.payload_len();
        self.count += 1;
        true
    }

    fn finish(self, packets: Range<usize>, gap: usize) -> FrameBlock {
        let Self { len_bytes, split, replica, .. } = self;
        FrameBlock { packets, len_bytes, split, gap, replica }
    }
}

fn descriptor(packet: &PacketView<'_>) -> FrameDescriptor {
    let checksum = match packet.attributes().checksum {
        Checksum::Partial { offset } => Some(PartialChecksum {
            transport_offset: packet.transport_offset() as u16,
            field_offset: offset,
        }),
        Checksum::Complete | Checksum::Missing { .. } => None,
    };
    FrameDescriptor { len_bytes: packet.len() as u32, checksum }
}

impl Replica {
    /// A template, of the first packet of a block.
    fn new(head: &PacketView<'_>) -> Option<Self> {
        let header = head.header();
        let mut template = [0; HEADER_LEN_MAX];
        template.get_mut(..header.len())?.copy_from_slice(header);
        Some(Self { template, layout: HeaderLayout::of(head), adjustments: Vec::new() })
    }

    /// Takes note of what is to be adjusted for `packet`, which stands at `index` in the block
    /// behind `payload_offset` bytes of payload; says whether that makes its header.
    fn add(&mut self, index: usize, payload_offset: usize, packet: &PacketView<'_>) -> bool {
        let (header, layout) = (packet.header(), self.layout);
        if layout.kind.is_none() || HeaderLayout::of(packet) != layout {
            return false;
        }
        let Some(by) = layout.adjustment(header) else { return false };
        let mut made = self.template;
        let Some(made) = made.get_mut(..layout.len) else { return false };
        let adjusted = layout.adjust(made, index, payload_offset, packet.payload_len(), by);
        if adjusted.is_none() || made != header {
            return false;
        }
        self.adjustments.push(by);
        true
    }
}

impl HeaderLayout {
    fn of(packet: &PacketView<'_>) -> Self {
        let header = packet.header();
        let (network, transport) = (packet.link_header_len(), packet.transport_offset());
        Self { len: header.len(), network, transport, kind: kind(header, network, transport) }
    }

    /// What a header has that does not follow from its place.
    fn adjustment(self, header: &[u8]) -> Option<Adjustment> {
        let (_, transport) = self.kind?;
        let tcp_flags = match transport {
            Transport::Tcp => *header.get(self.transport + TCP_FLAGS)?,
            Transport::Udp => 0,
        };
        let checksum = word(header, self.transport + transport.checksum_offset())?;
        Some(Adjustment { checksum, tcp_flags })
    }

    /// Makes the header of frame `index` of a copy of the template.
    fn adjust(
        self,
        header: &mut [u8],
        index: usize,
        payload_offset: usize,
        payload_len: usize,
        by: Adjustment,
    ) -> Option<()> {
        let (version, transport) = self.kind?;
        let len = |start: usize| u16::try_from(self.len - start + payload_len).ok();
        match version {
            NetworkVersion::Ipv4 => {
                let (length, identification) =
                    (word(header, self.network + 2)?, word(header, self.network + 4)?);
                let (total, next) = (len(self.network)?, identification.wrapping_add(index as u16));
                let sum = checksum::update(word(header, self.network + 10)?, length, total);
                put(header, self.network + 2, total)?;
                put(header, self.network + 4, next)?;
                put(header, self.network + 10, checksum::update(sum, identification, next))?;
            }
            NetworkVersion::Ipv6 => put(header, self.network + 4, len(self.transport)?)?,
        }
        match transport {
            Transport::Tcp => {
                advance_sequence(header, self.transport, payload_offset);
                *header.get_mut(self.transport + TCP_FLAGS)? = by.tcp_flags;
            }
            Transport::Udp => put(header, self.transport + 4, len(self.transport)?)?,
        }
        put(header, self.transport + transport.checksum_offset(), by.checksum)
    }
}

impl Transport {
    fn checksum_offset(self) -> usize {
        usize::from(match self {
            Self::Tcp => TCP_CHECKSUM,
            Self::Udp => UDP_CHECKSUM,
        })
    }
}

/// Which headers these are, where a template can be made of them.
fn kind(header: &[u8], network: usize, transport: usize) -> Option<(NetworkVersion, Transport)> {
    let ip = header.get(network..transport)?;
    let (version, protocol) = match ip.first()? >> 4 {
        4 => (NetworkVersion::Ipv4, *ip.get(9)?),
        6 if ip.len() == IPV6_HEADER_LEN => (NetworkVersion::Ipv6, ip[6]),
        _ => return None,
    };
    let (transport_header, len) = match protocol {
        PROTOCOL_TCP => (Transport::Tcp, TCP_HEADER_LEN_MIN),
        PROTOCOL_UDP => (Transport::Udp, UDP_HEADER_LEN),
        _ => return None,
    };
    (header.len() >= transport + len).then_some((version, transport_header))
}
