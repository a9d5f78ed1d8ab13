//! What devices hand up: frames of which the kernel says something, and messages of a tunnel.

use crate::input::Input;
use batch::{Attributes, Block, HeaderLayout, Limits, Multidata, ReceivedChecksum};
use bytes::Bytes;
use device::Transform;
use device::lowering::DatagramRun;
use device::transform::Null;
use linux::fuzzed::{ETHERNET_LEN, HEADER_LEN, Taken};
use linux::{ChaChaKeys, ChaChaPoly};

/// A byte that says of which device, one for the room of each call, the header, and the frame. What goes up is the
/// frame as it came, or the datagrams of which it is a run, all of them and nothing else.
pub fn offloaded(bytes: &[u8]) {
    let Some(([way, room], bytes)) = bytes.split_first_chunk() else { return };
    let Some((header, frame)) = bytes.split_first_chunk::<HEADER_LEN>() else { return };
    if frame.is_empty() {
        return;
    }
    let (link_len, is_packet) = match way % 3 {
        0 => (0, false),
        1 => (ETHERNET_LEN, false),
        _ => (ETHERNET_LEN, true),
    };
    let room = usize::from(*room).max(1);
    let Some(taken) = linux::fuzzed::offloaded(*header, frame, (link_len, is_packet), room) else {
        return;
    };
    if let [Taken { bytes, segment_len, .. }] = &taken[..]
        && bytes == frame
    {
        return assert!(segment_len.is_none_or(|len| len > 0 && usize::from(len) < frame.len()));
    }
    // `gso_size` of the header.
    let payload_len = u16::from_ne_bytes([header[4], header[5]]);
    let run = DatagramRun::parse(frame, link_len, payload_len).expect("only a run is cut");
    assert_eq!(taken.len(), run.count());
    for (index, Taken { bytes, checksum, segment_len }) in taken.iter().enumerate() {
        let mut expected = vec![0; run.len_of(index)];
        run.write(index, &mut expected).expect("so much room is asked for");
        assert_eq!(bytes, &expected);
        assert_eq!((*checksum, *segment_len), (ReceivedChecksum::Partial, None));
    }
}

/// Packets at most in a message that is sealed here.
const PACKETS_MAX: usize = 16;

/// The longest packet that is sealed here.
const PACKET_LEN_MAX: u16 = 600;

/// A message as whoever likes may send it, and packets that the peer has sealed, of which one is damaged on the way.
///
/// # Panics
/// Where something comes out that nobody sealed, or comes out twice.
pub fn tunnelled(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let segment_len = 1 + usize::from(input.word() % PACKET_LEN_MAX);
    let (damaged, bit) = (usize::from(input.word()), input.byte() % 8);
    let message = input.part(usize::MAX);
    if message.is_empty() {
        return;
    }
    let keys = ChaChaKeys { seal: [1; 32], open: [2; 32] };
    let (mut near, mut far) = (ChaChaPoly::new(&keys), ChaChaPoly::new(&keys.swapped()));
    let opened = linux::fuzzed::tunnelled(message, segment_len, &mut Null);
    assert_eq!(opened.concat(), message);
    assert!(linux::fuzzed::tunnelled(message, segment_len, &mut far).is_empty());

    let packets: Vec<&[u8]> = message.chunks(segment_len).take(PACKETS_MAX).collect();
    let sealed: Vec<Vec<u8>> = packets.iter().map(|packet| seal(&mut near, packet)).collect();
    let (segment_len, whole) = (segment_len + near.overhead_bytes(), sealed.concat());
    let mut with_damage = whole.clone();
    let damaged = damaged % whole.len();
    with_damage[damaged] ^= 1 << bit;
    let damaged = damaged / segment_len;
    let opened = linux::fuzzed::tunnelled(&with_damage, segment_len, &mut far);
    let others = packets.iter().enumerate().filter(|(at, _)| *at != damaged).map(|(_, it)| *it);
    assert_eq!(opened, others.collect::<Vec<_>>());
    // The damaged one may be sent again; what came is known.
    let opened = linux::fuzzed::tunnelled(&whole, segment_len, &mut far);
    assert_eq!(opened, [packets[damaged]]);
    assert!(linux::fuzzed::tunnelled(&whole, segment_len, &mut far).is_empty());
}

fn seal(transform: &mut dyn Transform, packet: &[u8]) -> Vec<u8> {
    let mut batch = Multidata::new(HeaderLayout::default(), Limits::default());
    batch.push_packet(0, Attributes::default()).expect("room");
    let block = Block::from(Bytes::copy_from_slice(packet));
    assert!(batch.append_span(&block, 0, packet.len()));
    let mut out = vec![0; packet.len() + transform.overhead_bytes()];
    let packet = batch.packet(0).expect("one");
    let len = transform.seal(&packet, &mut out).expect("room for it");
    out.truncate(len);
    out
}
