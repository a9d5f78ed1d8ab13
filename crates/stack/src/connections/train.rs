//! Trains on the way in: frames that repeat the headers of the frame before them (seed 000, 7:
//! "Multidata Receive").
//!
//! The first segment of a train goes the whole way up. While the frames behind it say the same but
//! for what must differ - lengths, the packet's identification, checksums, the sequence number, which
//! goes on where the last one ended, and PSH - their headers are compared and not read, and the
//! connection takes what is left of them as one unit ([`tcp::Connection::on_followers`]).
//!
//! ```text
//!   Ethernet              IPv4                          TCP
//!   | dst src type |  ... | len id | ... | sum | ... | ports | seq | ack .. P .. win | sum | ...
//!   | =            |  =   | check  | =   | ok? | =   | =     | +n  | =               | ok? | =
//! ```
//!
//! A frame that differs in anything else ends the train and goes the whole way itself. What is
//! learned from a train is exactly what would be learned from its segments one by one; the switch
//! [`Shard::set_receive_trains`] is there so that both can be compared.

use crate::ingress::Incoming;
use crate::shard::Shard;
use batch::{ReceiveBatch, ReceivedChecksum};
use checksum::Accumulator;
use counters::BatchSizes;
use time::Instant;
use wire::{Ipv4Repr, SeqNumber, TCP_HEADER_LEN_MIN, TcpFlags, TcpHeader, protocol};

/// Words of the longest headers that are compared: Ethernet, IPv6 without extension headers, TCP with
/// timestamps.
const WORDS: usize = 11;

const BYTES: usize = 8 * WORDS;

/// A TCP header with timestamps and nothing else, as everybody lays it out.
const HEADER_LEN_TIMESTAMPS: usize = TCP_HEADER_LEN_MIN + 12;

/// What the frames of a train have in common.
#[derive(Debug, Default)]
struct Train {
    /// The connection; `None` between trains.
    socket: Option<u32>,
    header: TcpHeader,
    /// The bytes of the headers, and which of them must be the same.
    image: [u64; WORDS],
    mask: [u64; WORDS],
    /// Words of those that are in use.
    words: usize,
    /// Where the network header, the transport header and the payload begin in the frame.
    network: usize,
    transport: usize,
    payload: usize,
    is_ipv4: bool,
    pseudo_header_sum: u16,
}

impl Train {
    /// Begins a train with the segment that connection `socket` took just now, where the frame behind
    /// it may follow.
    fn begin(&mut self, incoming: &Incoming<'_>, header: &TcpHeader, socket: u32) {
        let bytes = incoming.batch.bytes(incoming.index);
        let payload = incoming.transport + header_len(incoming);
        let expected = header.sequence + (incoming.end - payload) as u32;
        let next = incoming.batch.bytes(incoming.index + 1);
        if sequence_at(next, incoming.transport) != Some(expected) {
            return;
        }
        self.words = payload.div_ceil(8);
        if self.words > WORDS || bytes.len() < payload {
            return;
        }
        self.network = incoming.transport - incoming.info.header_len;
        self.transport = incoming.transport;
        self.payload = payload;
        self.is_ipv4 = incoming.info.source.is_ipv4();
        let mut image = [0; BYTES];
        image[..payload].copy_from_slice(&bytes[..payload]);
        self.image = words_of(&image);
        self.mask = words_of(&self.mask());
        self.pseudo_header_sum =
            ip::pseudo_header_sum(incoming.info.source, incoming.info.destination, protocol::TCP);
        self.header = *header;
        self.socket = Some(socket);
    }

    /// All ones where followers say what the leader said.
    fn mask(&self) -> [u8; BYTES] {
        let mut mask = [0; BYTES];
        mask[..self.payload].fill(0xff);
        let (network, transport) = (self.network, self.transport);
        if self.is_ipv4 {
            mask[network + 2..network + 6].fill(0); // length, identification
            mask[network + 10..network + 12].fill(0); // checksum
        } else {
            mask[network + 4..network + 6].fill(0); // payload length
        }
        mask[transport + 4..transport + 8].fill(0); // sequence number
        mask[transport + 13] = !TcpFlags::PSH.0;
        mask[transport + 16..transport + 18].fill(0); // checksum
        mask
    }

    /// Frame `index` as the follower that begins at `sequence`, with at most `room` bytes of payload;
    /// `None` where it is something else.
    #[inline]
    fn follower(
        &self,
        batch: &ReceiveBatch,
        index: usize,
        (sequence, room): (SeqNumber, u32),
        summed_bytes: &mut u64,
    ) -> Option<tcp::Follower> {
        let bytes = batch.bytes(index);
        let words = bytes.get(..8 * self.words)?.chunks_exact(8);
        let pairs = self.image.iter().zip(&self.mask).zip(words);
        let differing = pairs.fold(0, |differing, ((image, mask), word)| {
            differing | ((word_of(word) ^ image) & mask)
        });
        if differing != 0 || sequence_at(bytes, self.transport) != Some(sequence) {
            return None;
        }
        let end = self.end_of(bytes)?;
        let payload_len = end.checked_sub(self.payload).filter(|len| *len > 0)?;
        if payload_len > room as usize {
            return None;
        }
        let frame = batch.frame(index)?;
        if frame.checksum == ReceivedChecksum::Unverified {
            let segment = &bytes[self.transport..end];
            let mut sum = Accumulator::default();
            sum.add_u16(self.pseudo_header_sum);
            sum.add_u32(segment.len() as u32);
            sum.add(segment);
            if sum.sum() != 0xffff {
                return None;
            }
            *summed_bytes += segment.len() as u64;
        }
        let flags = TcpFlags(bytes[self.transport + 13]);
        Some(tcp::Follower {
            payload: batch.chunk(index, self.payload..end)?,
            sparse: batch.is_sparse(index),
            segment_len: crate::ingress::segment_len_of(&frame),
            pushed: flags.contains(TcpFlags::PSH),
        })
    }

    /// Where the packet of a frame ends, by its network header; `None` where that is wrong.
    #[inline]
    fn end_of(&self, bytes: &[u8]) -> Option<usize> {
        let network = bytes.get(self.network..)?;
        let length = |at: usize| usize::from(u16::from_be_bytes([network[at], network[at + 1]]));
        let len = match self.is_ipv4 {
            true => {
                let header = network.get(..Ipv4Repr::LEN)?;
                (checksum::sum(header) == 0xffff).then(|| length(2))?
            }
            false => length(4) + (self.transport - self.network),
        };
        (len <= network.len()).then_some(self.network + len)
    }
}

/// The trains of a shard.
#[derive(Debug)]
pub(crate) struct Trains {
    are_taken: bool,
    /// The one that may be under way.
    current: Train,
    sizes: BatchSizes,
}

impl Default for Trains {
    fn default() -> Self {
        Self { are_taken: true, current: Train::default(), sizes: BatchSizes::default() }
    }
}

impl Shard {
    /// Whether frames that repeat the headers of the frame before them are taken as trains: on by
    /// default. It changes how much work they are and nothing else.
    pub fn set_receive_trains(&mut self, on: bool) {
        self.trains.are_taken = on;
    }

    /// How many segments connections took as one unit, those that went alone included; a super-frame
    /// is one.
    #[must_use]
    pub fn train_sizes(&self) -> BatchSizes {
        self.trains.sizes
    }

    /// Takes the frames from `index` on that follow the one before, and says where they end.
    #[inline]
    pub(crate) fn on_train(&mut self, now: Instant, batch: &ReceiveBatch, index: usize) -> usize {
        let Some(socket) = self.trains.current.socket.take() else { return index };
        let mut end = index;
        let Self { network, trains, sockets, pool, counters, .. } = self;
        let train = &trains.current;
        let Some(socket) = sockets.tcp(socket) else { return index };
        let outcome = self.connection_counters.lend(&mut socket.connection, |connection| {
            connection.on_followers(now, &train.header, pool, |sequence, room| {
                let summed_bytes = &mut counters.checksummed_receive_bytes;
                if network.filter.as_ref().is_some_and(|filter| !filter.passes(end)) {
                    return None;
                }
                let follower = train.follower(batch, end, (sequence, room), summed_bytes)?;
                end += 1;
                Some(follower)
            })
        });
        if let Err(reason) = outcome {
            self.drops.add(reason);
        }
        self.counters.receive_trains += u64::from(end > index);
        self.counters.receive_train_frames += (end - index) as u64;
        self.trains.sizes.add(1 + end - index);
        end
    }
}

impl Trains {
    /// Notes that a connection took a segment, and whether others may follow it.
    #[inline]
    pub(crate) fn lead(&mut self, incoming: &Incoming<'_>, header: &TcpHeader, socket: u32) {
        let is_last = incoming.index + 1 >= incoming.batch.len();
        if !is_last && self.are_taken && may_lead(incoming, header) {
            self.current.begin(incoming, header, socket);
        }
        if self.current.socket.is_none() {
            self.sizes.add(1);
        }
    }
}

/// Whether a segment is one of those that come in trains: data and an ACK, and nothing else to say.
fn may_lead(incoming: &Incoming<'_>, header: &TcpHeader) -> bool {
    let plain = TcpFlags::ACK | TcpFlags::PSH;
    let header_len = header_len(incoming);
    let has_only_timestamps = match header.options.timestamps {
        Some(_) => header_len == HEADER_LEN_TIMESTAMPS,
        None => header_len == TCP_HEADER_LEN_MIN,
    };
    header.flags.contains(TcpFlags::ACK)
        && header.flags.without(plain) == TcpFlags::NONE
        && has_only_timestamps
        && incoming.end > incoming.transport + header_len
        && !incoming.info.has_options
        && !incoming.info.fragmented
        && incoming.info.ecn() != crate::ECN_CE
}

/// Length of the TCP header, which was read before.
fn header_len(incoming: &Incoming<'_>) -> usize {
    let offset = incoming.batch.bytes(incoming.index).get(incoming.transport + 12);
    offset.map_or(0, |offset| usize::from(offset >> 4) * 4)
}

/// SEG.SEQ of the TCP header at `transport`.
#[inline]
fn sequence_at(bytes: &[u8], transport: usize) -> Option<SeqNumber> {
    let field = bytes.get(transport + 4..transport + 8)?.first_chunk::<4>()?;
    Some(SeqNumber(u32::from_be_bytes(*field)))
}

#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk::<8>().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn words_of(bytes: &[u8; BYTES]) -> [u64; WORDS] {
    core::array::from_fn(|at| word_of(&bytes[8 * at..]))
}
