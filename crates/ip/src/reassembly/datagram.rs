//! One datagram: the pieces of it that have come.

use super::{ReceivedFragment, Turn};
use crate::Arrival;
use crate::fragment::{DATAGRAM_LEN_MAX, Fragment};
use batch::{BlockPool, Chunk};
use counters::DropReason;
use wire::Ipv6Repr;

/// Pieces of one datagram at most: as many as 65,535 bytes have over a path of 68 bytes (RFC 791:
/// what every module must forward), which carries 48 of data in each.
const PIECES_MAX: usize = 1_366;

/// The ECN bits (RFC 3168, 5).
const NOT_ECT: u8 = 0b00;
const CE: u8 = 0b11;

/// Data of a fragment, at its place.
#[derive(Debug)]
struct Piece {
    start: usize,
    data: Chunk,
}

impl Piece {
    fn end(&self) -> usize {
        self.start + self.data.len()
    }
}

/// The first fragment, whose headers become those of the datagram.
#[derive(Debug)]
struct First {
    packet: Chunk,
    arrival: Arrival,
    repeated_len: usize,
    named_at: usize,
    /// What the fragment header names. RFC 8200, 4.5: only that of the first fragment counts.
    protocol: u8,
}

/// What became of a fragment that was added.
pub(super) enum Added {
    Waiting,
    Complete(Chunk),
}

/// A fragment that was not added.
pub(super) struct Refused {
    pub(super) reason: DropReason,
    /// Fragments that were held and are dropped with it.
    pub(super) others_dropped: u64,
}

impl From<DropReason> for Refused {
    fn from(reason: DropReason) -> Self {
        Self { reason, others_dropped: 0 }
    }
}

/// Where a fragment stands to those that came before it.
enum Place {
    Free,
    Repeated,
    Taken,
}

/// A datagram that waits for fragments, or one that was found broken and is remembered as such.
#[derive(Debug)]
pub(super) struct Datagram {
    turn: Turn,
    /// In the order of the datagram, without overlap, none empty.
    pieces: Vec<Piece>,
    /// Length of all data, once the last fragment is here.
    total_len: Option<usize>,
    covered_len: usize,
    /// One bit for each value of the ECN field that has come.
    ecn_seen: u8,
    first: Option<First>,
    held_bytes: usize,
    /// Its fragments contradicted each other: what else comes of it is dropped, for this reason.
    broken: Option<DropReason>,
}

impl Datagram {
    pub(super) fn new(turn: Turn) -> Self {
        Self {
            turn,
            pieces: Vec::new(),
            total_len: None,
            covered_len: 0,
            ecn_seen: 0,
            first: None,
            held_bytes: 0,
            broken: None,
        }
    }

    pub(super) fn turn(&self) -> Turn {
        self.turn
    }

    /// Bytes pinned for the fragments, and what it costs to remember them.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(super) fn fragment_count(&self) -> u64 {
        self.pieces.len() as u64
    }

    pub(super) fn into_first(self) -> Option<(Chunk, Arrival)> {
        self.first.map(|first| (first.packet, first.arrival))
    }

    /// Adds a fragment; with `copies` it is copied out of the block it came in.
    pub(super) fn add(
        &mut self,
        fragment: &Fragment,
        received: &ReceivedFragment,
        copies: bool,
        pool: &BlockPool,
    ) -> Result<Added, Refused> {
        if let Some(reason) = self.broken {
            return Err(reason.into());
        }
        let data = &received.packet.bytes()[fragment.data.clone()];
        let at = self.pieces.partition_point(|piece| piece.start < fragment.offset);
        match self.place(fragment, at, data) {
            Place::Free => {}
            Place::Repeated => return Err(DropReason::FragmentDuplicate.into()),
            Place::Taken => return Err(self.give_up(DropReason::FragmentOverlap)),
        }
        if self.pieces.len() >= PIECES_MAX {
            return Err(self.give_up(DropReason::FragmentLimit));
        }
        self.ecn_seen |= 1 << fragment.info.ecn();
        let contradicts = 1 << NOT_ECT | 1 << CE;
        if self.ecn_seen & contradicts == contradicts {
            // RFC 3168, 5.3: a mark must not be lost, and none may be made where the transport is
            // not ECN-capable; what is both is dropped.
            return Err(self.give_up(DropReason::FragmentEcn));
        }
        let packet =
            if copies { compact(&received.packet, pool)? } else { received.packet.clone() };
        self.insert(at, fragment, packet, received.arrival);
        if self.total_len != Some(self.covered_len) {
            return Ok(Added::Waiting);
        }
        match self.assemble(pool) {
            Ok(packet) => Ok(Added::Complete(packet)),
            Err(reason) => {
                let others_dropped = self.fragment_count() - 1;
                self.give_up(reason);
                Err(Refused { reason, others_dropped })
            }
        }
    }

    /// Where a fragment stands to those that came before it.
    fn place(&self, fragment: &Fragment, at: usize, data: &[u8]) -> Place {
        if let Some(piece) = self.pieces.get(at)
            && piece.start == fragment.offset
            && piece.data.bytes() == data
        {
            // RFC 8200, 4.5: exact duplicates may be dropped alone.
            let is_last = self.total_len == Some(fragment.end());
            return if is_last != fragment.more { Place::Repeated } else { Place::Taken };
        }
        let before = at.checked_sub(1).and_then(|before| self.pieces.get(before));
        let overlaps = before.is_some_and(|piece| piece.end() > fragment.offset)
            || self.pieces.get(at).is_some_and(|piece| piece.start < fragment.end());
        let contradicts = match (self.total_len, fragment.more) {
            (Some(total), true) => fragment.end() >= total,
            (Some(_), false) => true,
            (None, true) => false,
            (None, false) => self.pieces.last().is_some_and(|piece| piece.end() > fragment.end()),
        };
        if overlaps || contradicts { Place::Taken } else { Place::Free }
    }

    fn insert(&mut self, at: usize, fragment: &Fragment, packet: Chunk, arrival: Arrival) {
        let block = packet.block();
        let neighbour = at.checked_sub(1).and_then(|before| self.pieces.get(before));
        let neighbour = neighbour.or_else(|| self.pieces.get(at));
        let is_pinned = neighbour.is_some_and(|piece| piece.data.block().is_same(block));
        self.held_bytes += size_of::<Piece>() + if is_pinned { 0 } else { block.len() };
        let mut data = packet.clone();
        data.truncate(fragment.data.end);
        data.trim_front(fragment.data.start);
        if !fragment.more {
            self.total_len = Some(fragment.end());
        }
        self.covered_len += data.len();
        self.pieces.insert(at, Piece { start: fragment.offset, data });
        if fragment.offset == 0 {
            self.first = Some(First {
                packet,
                arrival,
                repeated_len: fragment.repeated_len,
                named_at: fragment.named_at,
                protocol: fragment.info.protocol,
            });
        }
    }

    /// Lets go of all fragments and remembers that the rest is not wanted: RFC 5722, 4 has those
    /// dropped, too, that have not come yet.
    fn give_up(&mut self, reason: DropReason) -> Refused {
        let others_dropped = self.fragment_count();
        *self = Self { broken: Some(reason), ..Self::new(self.turn) };
        Refused { reason, others_dropped }
    }

    /// Copies all pieces behind the headers of the first one, which then say nothing of fragments.
    fn assemble(&self, pool: &BlockPool) -> Result<Chunk, DropReason> {
        let first = self.first.as_ref().ok_or(DropReason::Fragment)?;
        let len = first.repeated_len + self.covered_len;
        let is_ipv4 = first.packet.bytes().first().is_some_and(|byte| byte >> 4 == 4);
        let counted_len = if is_ipv4 { len } else { len - Ipv6Repr::LEN };
        if counted_len > DATAGRAM_LEN_MAX {
            // The headers of the first fragment are longer than those of the last.
            return Err(DropReason::Fragment);
        }
        let mut block = pool.allocate_receive(len).map_err(|_| DropReason::NoMemory)?;
        let (header, mut rest) = block.bytes_mut()[..len].split_at_mut(first.repeated_len);
        header.copy_from_slice(&first.packet.bytes()[..first.repeated_len]);
        for piece in &self.pieces {
            let (place, behind) = rest.split_at_mut(piece.data.len());
            place.copy_from_slice(piece.data.bytes());
            rest = behind;
        }
        if is_ipv4 {
            self.mend_ipv4(header, counted_len as u16);
        } else {
            self.mend_ipv6(header, counted_len as u16, first);
        }
        Ok(Chunk::new(block.freeze(), 0..len))
    }

    fn mend_ipv4(&self, header: &mut [u8], total_len: u16) {
        header[1] = header[1] & !3 | self.ecn(header[1] & 3);
        header[2..4].copy_from_slice(&total_len.to_be_bytes());
        // Neither flags nor offset.
        header[6..8].fill(0);
        header[10..12].fill(0);
        let checksum = !checksum::sum(header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    fn mend_ipv6(&self, header: &mut [u8], payload_len: u16, first: &First) {
        header[1] = header[1] & !0x30 | self.ecn(header[1] >> 4 & 3) << 4;
        header[4..6].copy_from_slice(&payload_len.to_be_bytes());
        header[first.named_at] = first.protocol;
    }

    /// RFC 3168, 5.3: congestion that any fragment met is the datagram's.
    fn ecn(&self, of_first: u8) -> u8 {
        if self.ecn_seen & (1 << CE) != 0 { CE } else { of_first }
    }
}

/// A copy in a block of its own, so that the one it came in can go.
fn compact(packet: &Chunk, pool: &BlockPool) -> Result<Chunk, DropReason> {
    let mut block = pool.allocate_receive(packet.len()).map_err(|_| DropReason::NoMemory)?;
    block.bytes_mut()[..packet.len()].copy_from_slice(packet.bytes());
    Ok(Chunk::new(block.freeze(), 0..packet.len()))
}
