//! The doors of this crate that bytes come in by, for fuzzers: what the kernel says of a frame, and what a tunnel's
//! peer sends. They are nobody else's affair, and not part of what this crate promises.

use crate::datagrams::Uncut;
use crate::pending::Pending;
use crate::vnet::{Meaning, VNET_HEADER_LEN, VnetHeader};
use batch::{BlockPool, PoolConfig, ReceiveBatch, ReceivedChecksum};
use device::DeviceCounters;
use device::Transform;

/// Length in bytes of a link header.
pub const ETHERNET_LEN: usize = crate::datagrams::ETHERNET_LEN;

/// Length in bytes of the header in front of a frame (`struct virtio_net_hdr`).
pub const HEADER_LEN: usize = VNET_HEADER_LEN;

/// Bytes of a frame that a packet socket looks at to tell what it is.
const FRONT_LEN: usize = 128;

/// A frame that went up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// It, from the link header on.
    pub bytes: Vec<u8>,
    /// What is said of its checksum.
    pub checksum: ReceivedChecksum,
    /// Bytes of payload in each of its segments, where it has several.
    pub segment_len: Option<u16>,
}

/// What goes up of `frame`, in calls that have room for `room` frames each, where a device with `link_len` bytes
/// of link header says this of it; a packet socket (`is_packet`) says it also of what lies in a tunnel. `None`
/// where it is dropped.
///
/// # Panics
/// Where the header is not written as it was read.
#[must_use]
pub fn offloaded(
    header: [u8; HEADER_LEN],
    frame: &[u8],
    (link_len, is_packet): (usize, bool),
    room: usize,
) -> Option<Vec<Taken>> {
    let parsed = VnetHeader::parse(header);
    assert_eq!(parsed.emit(), header);
    let meaning = match is_packet {
        true => {
            let front = &frame[..frame.len().min(FRONT_LEN)];
            parsed.meaning_of_frame(front, frame.len()).unwrap_or(Meaning::NOTHING)
        }
        false => parsed.meaning(frame.len()),
    };
    let pool = BlockPool::new(PoolConfig::default());
    let mut block = pool.allocate_receive(frame.len()).expect("an empty pool has room");
    block.bytes_mut().get_mut(..frame.len())?.copy_from_slice(frame);
    let (mut pending, mut counters) = (Pending::new(link_len), DeviceCounters::default());
    match pending.accept(&pool, block.bytes(), 0..frame.len(), meaning, &mut counters) {
        Ok(()) => {}
        Err(Uncut::Malformed) => return None,
        Err(Uncut::Exhausted) => panic!("a pool with one block cannot hold a run of datagrams"),
    }
    let mut batch = ReceiveBatch::new();
    let (mut frames, spare) = pending.hand_up(block, &mut batch, room);
    drop(spare);
    while pending.has_held() {
        frames += pending.hand_up_held(&mut batch, room);
    }
    assert_eq!(frames, batch.len());
    let taken = (0..batch.len()).filter_map(|at| batch.frame(at).map(|frame| (at, frame)));
    let taken = taken.map(|(at, frame)| Taken {
        bytes: batch.bytes(at).to_vec(),
        checksum: frame.checksum,
        segment_len: frame.segmented.map(|it| it.segment_len),
    });
    Some(taken.collect())
}

/// The packets of a message of a tunnel's socket: datagrams of `segment_len` bytes, but for the last, which
/// `transform` opens.
#[must_use]
pub fn tunnelled(
    message: &[u8],
    segment_len: usize,
    transform: &mut dyn Transform,
) -> Vec<Vec<u8>> {
    crate::tunnel::opened(message, segment_len, transform)
}
