//! A middlebox between two stacks with several rings each: packets that are too long for it go on in
//! fragments, whatever they forbid.

use super::pair;
use batch::{Attributes, Block, BlockPool, Multidata, PoolConfig, ReceiveBatch};
use bytes::Bytes;
use device::{Queue, WireQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::{EthernetRepr, Ipv4Repr, Ipv4View, ether_type};

/// The longest packet that it lets pass.
pub(crate) const MTU_BYTES: usize = 700;

/// Carries frames between the stacks until it is dropped.
pub(crate) struct Middlebox {
    ends: Arc<AtomicBool>,
    carrier: Option<JoinHandle<()>>,
}

/// The rings of one stack's device.
pub(crate) type Rings = Vec<Box<dyn Queue>>;

impl Middlebox {
    /// A middlebox and the devices of so many rings on its left and its right.
    pub(crate) fn open(rings: usize) -> (Self, Rings, Rings) {
        let (mut left, mut right): (Rings, Rings) = (Vec::new(), Vec::new());
        let mut sides: [Vec<WireQueue>; 2] = [Vec::new(), Vec::new()];
        for _ in 0..rings {
            let (stack, near) = device::wire(pair::ethernet());
            let (far, other_stack) = device::wire(pair::ethernet());
            left.push(Box::new(stack));
            right.push(Box::new(other_stack));
            sides[0].push(near);
            sides[1].push(far);
        }
        let ends = Arc::<AtomicBool>::default();
        let is_over = Arc::clone(&ends);
        let carrier = std::thread::spawn(move || {
            let pool = BlockPool::new(PoolConfig::default());
            let mut identification = 0;
            while !is_over.load(Ordering::Relaxed) {
                if carry(&mut sides, &pool, &mut identification) == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        });
        (Self { ends, carrier: Some(carrier) }, left, right)
    }
}

impl Drop for Middlebox {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let joined = self.carrier.take().map(JoinHandle::join);
        assert!(joined.is_none_or(|it| it.is_ok()), "it carries to the end");
    }
}

/// Carries what is there, and says how many frames that was.
fn carry(sides: &mut [Vec<WireQueue>; 2], pool: &BlockPool, identification: &mut u16) -> usize {
    let (mut carried, mut batch) = (0, ReceiveBatch::new());
    for side in 0..2 {
        for ring in 0..sides[side].len() {
            batch.clear();
            sides[side][ring].receive(pool, &mut batch, 64);
            for frame in (0..batch.len()).map(|index| batch.bytes(index)) {
                let pieces = cut(frame, identification);
                for (at, piece) in pieces.iter().enumerate() {
                    send(&mut sides[1 - side], ring + at, piece);
                }
            }
            carried += batch.len();
        }
    }
    carried
}

fn send(side: &mut [WireQueue], ring: usize, frame: &[u8]) {
    let mut batch = Multidata::default();
    let (link, packet) = frame.split_at(EthernetRepr::LEN);
    let (head, rest) = packet.split_at(20);
    batch.push_packet(head.len(), Attributes::default()).expect("room").copy_from_slice(head);
    assert!(batch.append_span(&Block::from(Bytes::copy_from_slice(rest)), 0, rest.len()));
    batch.prepend(0, link.len()).expect("headroom").copy_from_slice(link);
    let count = side.len();
    // A full ring loses it, as any would.
    side[ring % count].transmit(&batch);
}

/// The packet in a frame, where it is one of IPv4 and no fragment.
fn packet_of(frame: &[u8]) -> Option<Ipv4View<'_>> {
    let is_ipv4 = frame[12..14] == ether_type::IPV4.to_be_bytes();
    let view = Ipv4View::parse(&frame[EthernetRepr::LEN..]).ok().filter(|_| is_ipv4)?;
    (!view.is_fragment()).then_some(view)
}

/// The frame, or the frames with its fragments.
fn cut(frame: &[u8], identification: &mut u16) -> Vec<Vec<u8>> {
    let Some(view) = packet_of(frame).filter(|view| view.total_len() > MTU_BYTES) else {
        return vec![frame.to_vec()];
    };
    *identification = identification.wrapping_add(1);
    let payload = view.payload();
    let step = (MTU_BYTES - Ipv4Repr::LEN) / 8 * 8;
    let pieces = payload.chunks(step).enumerate().map(|(at, piece)| {
        let repr = Ipv4Repr {
            identification: *identification,
            dont_fragment: false,
            more_fragments: at * step + piece.len() < payload.len(),
            fragment_offset_bytes: at * step,
            payload_len: piece.len(),
            ..Ipv4Repr::parse(&view)
        };
        [&frame[..EthernetRepr::LEN], &emitted(&repr), piece].concat()
    });
    pieces.collect()
}

fn emitted(repr: &Ipv4Repr) -> [u8; Ipv4Repr::LEN] {
    let mut header = [0; Ipv4Repr::LEN];
    repr.emit(&mut header);
    header
}
