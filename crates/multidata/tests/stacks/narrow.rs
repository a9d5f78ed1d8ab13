//! A middlebox between two stacks with several rings each: packets that are too long for it go on in
//! fragments, whatever they forbid, or come back as a report, by another ring than they came by.

use crate::pair;
use batch::{Attributes, Block, BlockPool, Multidata, PoolConfig, ReceiveBatch};
use bytes::Bytes;
use device::{Queue, WireQueue};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::{EthernetRepr, Icmpv4Repr, Ipv4Repr, Ipv4View, TcpHeader, ether_type, protocol};

/// The longest packet that it lets pass.
pub(crate) const MTU_BYTES: usize = 700;

/// A TCP port that it lets nobody reach.
pub(crate) const CLOSED_PORT: u16 = 99;

/// What becomes of packets that are too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Long {
    /// They go on in fragments, each by the next ring.
    Cut,
    /// Their sender is told (RFC 1191, 3).
    Report,
}

/// Carries frames between the stacks until it is dropped.
pub(crate) struct Middlebox {
    ends: Arc<AtomicBool>,
    carrier: Option<JoinHandle<()>>,
}

/// The rings of one stack's device.
pub(crate) type Rings = Vec<Box<dyn Queue>>;

impl Middlebox {
    /// A middlebox and the devices of so many rings on its left and its right.
    pub(crate) fn open(rings: usize, long: Long) -> (Self, Rings, Rings) {
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
                if carry(&mut sides, &pool, long, &mut identification) == 0 {
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
fn carry(
    sides: &mut [Vec<WireQueue>; 2],
    pool: &BlockPool,
    long: Long,
    identification: &mut u16,
) -> usize {
    let (mut carried, mut batch) = (0, ReceiveBatch::new());
    for side in 0..2 {
        for ring in 0..sides[side].len() {
            batch.clear();
            sides[side][ring].receive(pool, &mut batch, 64);
            for frame in (0..batch.len()).map(|index| batch.bytes(index)) {
                if let Some(report) = report(frame, long) {
                    send(&mut sides[side], ring + 1, &report);
                    continue;
                }
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

/// What the sender of this frame is told instead of having it carried on.
fn report(frame: &[u8], long: Long) -> Option<Vec<u8>> {
    let view = packet_of(frame)?;
    let is_closed = view.protocol() == protocol::TCP
        && TcpHeader::parse(view.payload())
            .is_ok_and(|(header, _)| header.destination_port == CLOSED_PORT);
    let (code, next_hop_mtu) = if is_closed {
        (Icmpv4Repr::CODE_PORT, 0)
    } else if long == Long::Report && view.total_len() > MTU_BYTES {
        (Icmpv4Repr::CODE_FRAGMENTATION_NEEDED, MTU_BYTES as u16)
    } else {
        return None;
    };
    let packet = &frame[EthernetRepr::LEN..];
    let quoted = &packet[..packet.len().min(200)];
    let mut message = [&[0; Icmpv4Repr::LEN], quoted].concat();
    Icmpv4Repr::DestinationUnreachable { code, next_hop_mtu }.emit(&mut message);
    let sum = !checksum::sum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let repr = Ipv4Repr {
        dscp_ecn: 0,
        identification: 1,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset_bytes: 0,
        hop_limit: 64,
        protocol: protocol::ICMP,
        source: Ipv4Addr::new(10, 1, 0, 254),
        destination: view.source(),
        payload_len: message.len(),
    };
    // Back to the station that sent it.
    let stations = [&frame[6..12], &frame[..6], &frame[12..14]].concat();
    Some([&stations[..], &emitted(&repr), &message].concat())
}
