//! Fragments of any order, length and content: bounded, and what comes out is what went in.
//!
//! A model knows the pieces of every datagram that waits. Fragments that overlap or contradict each other end
//! theirs, whatever they say, and are counted with all that waited (RFC 5722, 4); what is whole consists of the
//! pieces that were taken, byte for byte. Which datagrams are given up for others, or for their time, is not
//! modelled: there is one source, so it is always the one that waits longest.

use crate::input::Input;
use batch::{Block, BlockPool, Chunk, PoolConfig};
use bytes::Bytes;
use counters::{DropCounters, DropReason};
use ip::{Reassembly, ReassemblyConfig, ReceivedFragment};
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use time::{Duration, Instant};

/// Data of every datagram is this function of the position, so all pieces agree but those that the
/// input makes disagree.
fn content(position: usize) -> u8 {
    (position.wrapping_mul(167) >> 3) as u8
}

/// An IPv4 fragment; `wrong` flips its data.
fn fragment(identification: u16, offset: u16, len: usize, more: bool, wrong: bool) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1];
    let start = usize::from(offset) * 8;
    packet.extend((start..start + len).map(|at| content(at) ^ u8::from(wrong)));
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[4..6].copy_from_slice(&identification.to_be_bytes());
    let field = (offset & 0x1fff) | if more { 0x2000 } else { 0 };
    packet[6..8].copy_from_slice(&field.to_be_bytes());
    let mut sum: u32 = packet[..20]
        .as_chunks::<2>()
        .0
        .iter()
        .map(|pair| u32::from(u16::from_be_bytes(*pair)))
        .sum();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet
}

/// What a fragment is to the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: usize,
    len: usize,
    more: bool,
    wrong: bool,
}

impl Piece {
    fn end(self) -> usize {
        self.start + self.len
    }

    fn byte(self, position: usize) -> u8 {
        content(position) ^ u8::from(self.wrong)
    }
}

/// A datagram that waits, or is remembered as broken.
#[derive(Debug, Default)]
struct Waiting {
    identification: u16,
    pieces: Vec<Piece>,
    broken: Option<DropReason>,
}

impl Waiting {
    /// Whether a piece came before, exactly so.
    fn has(&self, piece: Piece) -> bool {
        self.pieces.contains(&piece)
    }

    /// Whether a piece overlaps another, or says that the datagram ends elsewhere.
    fn contradicts(&self, piece: Piece) -> bool {
        self.pieces.iter().any(|other| {
            let overlaps = piece.start < other.end() && other.start < piece.end();
            let ends_twice = !piece.more && !other.more;
            let is_behind_the_end = (!other.more && piece.end() >= other.end())
                || (!piece.more && other.end() >= piece.end());
            overlaps || ends_twice || is_behind_the_end
        })
    }

    /// How long the datagram is, where all of it is here.
    fn whole_len(&self) -> Option<usize> {
        let end = self.pieces.iter().find(|piece| !piece.more)?.end();
        (self.pieces.iter().map(|piece| piece.len).sum::<usize>() == end).then_some(end)
    }

    /// A piece was handed in; `outcome` must be what becomes of it, and `dropped` how many that waited were
    /// dropped as overlapping with it.
    fn on_piece(&mut self, piece: Piece, outcome: Result<Option<&[u8]>, DropReason>, dropped: u64) {
        let others = self.pieces.len() as u64;
        let (expected, dropped_expected) = if let Some(reason) = self.broken {
            (Some(reason), 0)
        } else if self.has(piece) {
            (Some(DropReason::FragmentDuplicate), 0)
        } else if self.contradicts(piece) {
            *self = Self { broken: Some(DropReason::FragmentOverlap), pieces: Vec::new(), ..*self };
            (Some(DropReason::FragmentOverlap), others)
        } else {
            (None, 0)
        };
        assert_eq!(dropped, dropped_expected, "{piece:?} {outcome:?}");
        if let Some(reason) = expected {
            assert_eq!(outcome, Err(reason), "{piece:?}");
            return;
        }
        self.pieces.push(piece);
        let whole_len = self.whole_len();
        match outcome {
            Ok(data) => {
                assert_eq!(data.map(<[u8]>::len), whole_len, "{piece:?}");
                assert!(data.is_none_or(|data| self.is(data)), "other bytes than were taken");
            }
            // It was not copied, or all of them could not be put together.
            Err(DropReason::NoMemory) => match whole_len {
                None => drop(self.pieces.pop()),
                Some(_) => {
                    *self =
                        Self { broken: Some(DropReason::NoMemory), pieces: Vec::new(), ..*self };
                }
            },
            Err(reason) => panic!("{piece:?} was dropped: {reason:?}"),
        }
    }

    /// Whether this is the datagram that the pieces make.
    fn is(&self, data: &[u8]) -> bool {
        let all = self
            .pieces
            .iter()
            .flat_map(|piece| (piece.start..piece.end()).map(|at| (at, piece.byte(at))));
        all.into_iter().all(|(at, byte)| data.get(at) == Some(&byte))
    }
}

/// A reassembly, and what must be in it.
struct World {
    reassembly: Reassembly<RandomState>,
    pool: BlockPool,
    drops: DropCounters,
    /// The one that waits longest first.
    waiting: VecDeque<Waiting>,
    now: Instant,
}

impl World {
    fn on_fragment(&mut self, identification: u16, piece: Piece, sparse: bool) {
        let offset = (piece.start / 8) as u16;
        let packet = fragment(identification, offset, piece.len, piece.more, piece.wrong);
        let Ok(info) = ip::parse_fragment(&packet) else { return };
        let chunk = Chunk::whole(Block::from(Bytes::from(packet)));
        let arrival = ip::Arrival::default();
        let received = ReceivedFragment { interface: 0, packet: chunk, sparse, arrival };
        let is_low = self.pool.is_low();
        let before = self.drops.count(DropReason::FragmentOverlap);
        let (pool, drops) = (&self.pool, &mut self.drops);
        let outcome = self.reassembly.on_fragment(self.now, &info, received, pool, drops);
        if is_low {
            assert!(outcome.is_err());
            return;
        }
        let dropped = self.drops.count(DropReason::FragmentOverlap) - before;
        let is_it = |it: &Waiting| it.identification == identification;
        let index = self.waiting.iter().position(is_it).unwrap_or_else(|| {
            self.waiting.push_back(Waiting { identification, ..Waiting::default() });
            self.waiting.len() - 1
        });
        let data = outcome.as_ref().map(|whole| whole.as_ref().map(|it| &it.bytes()[20..]));
        self.waiting[index].on_piece(piece, data.map_err(|reason| *reason), dropped);
        if matches!(outcome, Ok(Some(_))) {
            self.waiting.remove(index);
        }
        self.forget_the_oldest();
    }

    fn expire(&mut self) {
        while self.reassembly.poll_timeout().is_some_and(|due| due <= self.now) {
            if self.reassembly.poll_expired(self.now, &mut self.drops).is_none() {
                break;
            }
        }
        self.forget_the_oldest();
    }

    /// What was given up is what waited longest.
    fn forget_the_oldest(&mut self) {
        assert!(self.reassembly.len() <= self.waiting.len(), "more waits than came");
        self.waiting.drain(..self.waiting.len() - self.reassembly.len());
    }
}

/// Runs one input: six bytes for each fragment.
pub fn run(bytes: &[u8]) {
    let pool = BlockPool::new(PoolConfig { limit_bytes: 1 << 20, ..PoolConfig::default() });
    let config = ReassemblyConfig {
        bytes_max: 100_000,
        source_bytes_max: 60_000,
        source_datagrams_max: 4,
        ..ReassemblyConfig::default()
    };
    let mut world = World {
        reassembly: Reassembly::new(config, RandomState::new()),
        pool,
        drops: DropCounters::default(),
        waiting: VecDeque::new(),
        now: Instant::from_millis(5),
    };
    let mut input = Input::new(bytes);
    for _ in 0..256 {
        if input.is_empty() {
            break;
        }
        let flags = input.byte();
        let identification = u16::from(input.byte() % 6);
        let (start, len) = (usize::from(input.word() % 200) * 8, usize::from(input.word() % 1_500));
        if flags & 4 != 0 {
            world.now += Duration::from_millis(u64::from(flags) * 100);
        }
        let piece = Piece { start, len, more: flags & 1 != 0, wrong: flags & 2 != 0 };
        world.on_fragment(identification, piece, flags & 8 != 0);
        world.expire();
        let reassembly = &world.reassembly;
        assert!(reassembly.held_bytes() <= config.bytes_max, "{}", reassembly.held_bytes());
        assert!(reassembly.len() <= config.source_datagrams_max);
    }
    let World { reassembly, pool, .. } = world;
    drop(reassembly);
    assert_eq!(pool.counters().outstanding_bytes, 0);
}
