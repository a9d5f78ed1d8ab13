//! The queue on a pair of datagram sockets, which behave like a packet socket without needing
//! privilege: one message, one frame, and no more of them than the receiver's queue holds.

use super::*;
use batch::{Attributes, Block};
use bytes::Bytes;
use device::{HardwareAddress, Medium};
use std::os::unix::net::UnixDatagram;

fn pair() -> (PacketQueue, UnixDatagram) {
    let (ours, theirs) = UnixDatagram::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("an option of sockets");
    theirs.set_nonblocking(true).expect("an option of sockets");
    let socket = Arc::new(OwnedFd::from(ours));
    let waiter = Arc::new(FileWaiter::new(Arc::clone(&socket)).expect("an eventfd"));
    let medium = Medium::Ethernet(HardwareAddress([2, 0, 0, 0, 0, 1]));
    let forms = crate::PacketDevice::FORMS;
    let capabilities = Capabilities { forms, ..Capabilities::plain(medium, 1_500) };
    let link = Link::of_socket(Arc::clone(&socket));
    (PacketQueue::new(socket, waiter, link, capabilities, None), theirs)
}

/// Packets of a header of 40 bytes, and payload in so many pieces.
fn batch_of(count: usize, payload_len: usize, pieces: usize) -> Multidata {
    let mut batch = Multidata::default();
    let bytes: Vec<u8> = (0..count * payload_len).map(|at| (at % 251) as u8).collect();
    let blocks: Vec<Block> = (0..pieces).map(|_| Block::from(Bytes::from(bytes.clone()))).collect();
    for index in 0..count {
        let header = batch.push_packet(40, Attributes::default()).expect("room");
        header.fill(index as u8);
        let step = payload_len / pieces;
        for (piece, block) in blocks.iter().enumerate() {
            assert!(batch.append_span(block, index * payload_len + piece * step, step));
        }
    }
    batch
}

/// The packets of a batch as they lie there, from `first` on.
fn packets(batch: &Multidata, first: usize) -> Vec<Vec<u8>> {
    let copy = |packet: batch::PacketView<'_>| {
        let mut bytes = vec![0; packet.len()];
        packet.copy_to(&mut bytes).expect("room for the packet");
        bytes
    };
    batch.packets().skip(first).map(copy).collect()
}

/// What arrived at the other end, behind empty virtio-net headers.
fn frames_at(peer: &UnixDatagram) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 70_000];
    let next = || {
        let len = peer.recv(&mut buffer).ok()?;
        assert_eq!(buffer[..VNET_HEADER_LEN], [0; VNET_HEADER_LEN]);
        Some(buffer[VNET_HEADER_LEN..len].to_vec())
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn a_batch_is_one_system_call() {
    for mode in TransmitMode::ALL {
        let (mut queue, peer) = pair();
        let is_refused = matches!(mode, TransmitMode::Lso | TransmitMode::Chain);
        assert_eq!(queue.set_mode(mode).is_err(), is_refused, "{mode}");
        if is_refused {
            continue;
        }
        let batch = batch_of(8, 1_000, 2);
        assert_eq!(queue.transmit(&batch), Transmitted { taken: 8, stopped: None });
        assert_eq!(frames_at(&peer), packets(&batch, 0));
        let counters = queue.counters();
        assert_eq!((counters.transmit_packets, counters.transmit_frames), (8, 8));
        assert_eq!((counters.transmit_syscalls, counters.transmit_bytes), (1, 8 * 1_040));
        // Headers and two pieces of payload, or what they were laid out to.
        let each = if matches!(mode, TransmitMode::Contiguous(_)) { 1 } else { 3 };
        assert_eq!(counters.transmit_mappings, 8 * each, "{mode}");
    }
    let (mut queue, _peer) = pair();
    assert_eq!(queue.transmit(&Multidata::default()), Transmitted { taken: 0, stopped: None });
}

/// Seed 003, 5.1.1: every frame of a contiguous block begins at a multiple of eight bytes.
#[test]
fn frames_of_a_block_lie_aligned_each_behind_its_virtio_net_header() {
    for contiguous in [Contiguous::FRAMES, Contiguous::PAYLOAD] {
        let (mut queue, peer) = pair();
        queue.set_mode(TransmitMode::Contiguous(contiguous)).expect("a form it has");
        let batch = batch_of(9, 333, 3);
        assert_eq!(queue.transmit(&batch).taken, 9);
        assert_eq!(frames_at(&peer), packets(&batch, 0));
        assert_eq!(queue.staged.len(), 9);
        for frame in &queue.staged {
            assert_eq!((frame.front.start + VNET_HEADER_LEN) % FRAME_ALIGN_BYTES, 0);
            assert!(!frame.is_gathered && frame.front.len() == VNET_HEADER_LEN + 373);
        }
        // What can never go ends the blocks behind what can.
        let mut batch = batch_of(2, 100, 1);
        let checksum = Checksum::Missing { offset: 16 };
        let attributes = Attributes { checksum, ..Attributes::default() };
        batch.push_packet(40, attributes).expect("room").fill(9);
        let expected = Transmitted { taken: 2, stopped: Some(Stop::Refused) };
        assert_eq!(queue.transmit(&batch), expected);
        assert_eq!(frames_at(&peer), packets(&batch, 0)[..2]);
    }
}

/// Headers are replicated for the frames of a run, as the device below would do it.
#[test]
fn a_replicated_block_comes_out_with_the_headers_of_its_packets() {
    let (mut queue, peer) = pair();
    queue.set_mode(TransmitMode::Contiguous(Contiguous::PAYLOAD)).expect("a form it has");
    let mut batch = Multidata::default();
    let block = Block::from(Bytes::from((0..3_000).map(|at| at as u8).collect::<Vec<_>>()));
    let attributes =
        Attributes { checksum: Checksum::Partial { offset: 6 }, ..Attributes::default() };
    for index in 0..3_u8 {
        let udp = batch.push_packet(8, attributes).expect("room");
        udp.copy_from_slice(&[0, 1, 0, 2, 1008_u16.to_be_bytes()[0], 240, 0, index]);
        assert!(batch.append_span(&block, usize::from(index) * 1_000, 1_000));
        let (ip, _) = batch.prepend_network(usize::from(index), 20).expect("headroom");
        ip[..20].copy_from_slice(&[
            0x45, 0, 4, 4, 0, index, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        let sum = !checksum::sum(&ip[..20]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        batch.prepend(usize::from(index), 14).expect("headroom").fill(2);
    }
    assert_eq!(queue.transmit(&batch), Transmitted { taken: 3, stopped: None });
    let mut expected = packets(&batch, 0);
    for packet in &mut expected {
        complete_checksum(packet, 34, 6).expect("a datagram");
    }
    assert_eq!(frames_at(&peer), expected);
    let spans = queue.staged.iter().map(|frame| frame.front.end).collect::<Vec<_>>();
    assert!(spans.windows(2).all(|pair| pair[1] - pair[0] == 1_064), "one block: {spans:?}");
}

#[test]
fn a_full_device_takes_what_fits_and_the_rest_later() {
    let (mut queue, peer) = pair();
    // Such a socket queues some ten messages, or a few hundred where the system was told so.
    let batch = batch_of(60, 1_000, 1);
    let (mut sent, mut expected) = (0, Vec::new());
    let stopped = loop {
        let Transmitted { taken, stopped } = queue.transmit(&batch);
        expected.extend_from_slice(&packets(&batch, 0)[..taken]);
        sent += taken;
        assert!(sent < 100_000, "the device never gets full");
        if stopped.is_some() {
            break stopped;
        }
    };
    assert_eq!(stopped, Some(Stop::Full));
    assert_eq!(frames_at(&peer), expected);
    assert_eq!(queue.counters().transmit_packets, sent as u64);
    assert_eq!(queue.counters().transmit_full, 1);
    let again = queue.transmit(&batch_of(2, 100, 1));
    assert_eq!(again, Transmitted { taken: 2, stopped: None });
}

/// Where poll(2) says that there is room all the while, waiting for room would be spinning.
#[test]
fn room_is_waited_for_only_where_the_socket_has_none() {
    for (errno, waits) in [(Errno::AGAIN, true), (Errno::NOBUFS, false), (Errno::NOMEM, false)] {
        let (mut queue, _peer) = pair();
        assert_eq!(queue.on_send_error(errno, 0), Stop::Full);
        assert_eq!(queue.waiter.wants_room(), waits, "{errno}");
        assert_eq!(queue.counters.transmit_full, 1);
    }
}

#[test]
fn a_packet_that_can_never_go_ends_the_batch_behind_those_before_it() {
    let (mut queue, peer) = pair();
    let mut batch = batch_of(3, 100, 1);
    let long = Block::from(Bytes::from(vec![7; 2_000]));
    batch.push_packet(40, Attributes::default()).expect("room").fill(9);
    assert!(batch.append_span(&long, 0, 2_000));
    batch.push_packet(40, Attributes::default()).expect("room").fill(9);
    let expected = Transmitted { taken: 3, stopped: Some(Stop::Refused) };
    assert_eq!(queue.transmit(&batch), expected);
    assert_eq!(frames_at(&peer), packets(&batch, 0)[..3]);
}

#[test]
fn a_frame_of_too_many_pieces_is_laid_end_to_end() {
    let (mut queue, peer) = pair();
    let block = Block::from(Bytes::from((0..200).collect::<Vec<u8>>()));
    let mut batch = Multidata::default();
    batch.push_packet(40, Attributes::default()).expect("room").fill(1);
    // Backwards, so that no two pieces follow each other.
    (0..100).rev().for_each(|at| assert!(batch.append_span(&block, at * 2, 2)));
    assert_eq!(queue.transmit(&batch).taken, 1);
    assert_eq!(frames_at(&peer), packets(&batch, 0));
}

/// Sends a frame of this length as the kernel would, and returns it.
fn deliver(peer: &UnixDatagram, len: usize, seed: u8) -> Vec<u8> {
    let frame: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(7) ^ seed).collect();
    peer.send(&[vec![0; VNET_HEADER_LEN], frame.clone()].concat()).expect("room in the queue");
    frame
}

#[test]
fn frames_of_every_length_come_up_in_order_whatever_the_shape_of_the_call() {
    let (mut queue, peer) = pair();
    let pool = BlockPool::new(batch::PoolConfig::default());
    let mut received = ReceiveBatch::new();
    // The first long frame meets a narrow call, the later ones wide calls.
    for round in 0..40 {
        let lens = match round {
            0..10 => [60, 65_000, 61, 1_514, 9_000, 62],
            _ => [60, 1_514, 61, 1_514, 60, 62],
        };
        let sent: Vec<_> =
            lens.iter().enumerate().map(|(at, len)| deliver(&peer, *len, at as u8)).collect();
        received.clear();
        let outcome = queue.receive(&pool, &mut received, 256);
        assert_eq!((outcome.frames, outcome.failed), (lens.len(), None));
        for (index, frame) in sent.iter().enumerate() {
            assert_eq!(received.bytes(index), frame, "frame {index} of round {round}");
        }
    }
    let counters = queue.counters();
    assert_eq!((counters.receive_frames, counters.receive_dropped), (240, 0));
    // Narrow again at the end: two calls a round, of which one finds nothing or is cut short.
    let before = counters.receive_syscalls;
    (0..4).for_each(|at| drop(deliver(&peer, 60, at)));
    received.clear();
    assert_eq!(queue.receive(&pool, &mut received, 256).frames, 4);
    assert!(queue.counters().receive_syscalls - before <= 2);
}

/// Sends a run of datagrams of `each` bytes of payload as the kernel would, and returns the payloads.
fn deliver_run(peer: &UnixDatagram, each: usize, count: usize, seed: u8) -> Vec<Vec<u8>> {
    let payload: Vec<u8> = (0..each * count - 1).map(|at| (at % 251) as u8 ^ seed).collect();
    let udp_len = (8 + payload.len()) as u16;
    // VIRTIO_NET_HDR_GSO_UDP_L4 with a partial checksum, which lies 34 and 6 bytes into the frame.
    let mut message = vec![1, 5];
    for word in [42, each as u16, 34, 6] {
        message.extend(word.to_ne_bytes());
    }
    message.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    message.extend([0x45, 0]);
    message.extend((20 + udp_len).to_be_bytes());
    message.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    message.extend([0, 7, 0, 9]);
    message.extend(udp_len.to_be_bytes());
    message.extend([0, 0]);
    message.extend(&payload);
    peer.send(&message).expect("room in the queue");
    payload.chunks(each).map(<[u8]>::to_vec).collect()
}

/// Whatever the shape of the call, and however few are wanted at a time, between frames of other kinds.
#[test]
fn a_run_of_datagrams_comes_up_one_by_one_in_order() {
    for (each, count, frames_max) in [(1_000, 40, 256), (1_400, 45, 7), (20, 50, 3), (100, 8, 1)] {
        let (mut queue, peer) = pair();
        let pool = BlockPool::new(batch::PoolConfig::default());
        let mut sent = Vec::new();
        for seed in 0..3 {
            let before = deliver(&peer, 300, seed);
            sent.push(before[42..].to_vec());
            sent.extend(deliver_run(&peer, each, count, seed));
        }
        let (mut came, mut batches) = (Vec::new(), 0);
        loop {
            let mut received = ReceiveBatch::new();
            let outcome = queue.receive(&pool, &mut received, frames_max);
            assert_eq!((outcome.frames, outcome.failed), (received.len(), None));
            assert!(outcome.frames <= frames_max);
            for index in 0..received.len() {
                let is_cut = received.bytes(index)[12..14] == [8, 0];
                let frame = received.frame(index).expect("it is there");
                assert_eq!(frame.segmented, None);
                assert_eq!(frame.checksum == batch::ReceivedChecksum::Partial, is_cut);
                came.push(received.bytes(index)[42..].to_vec());
            }
            batches += usize::from(outcome.frames > 0);
            if !outcome.more && outcome.frames == 0 {
                break;
            }
        }
        assert!(came == sent, "{each}, {count}, {frames_max}: {} of {}", came.len(), sent.len());
        let counters = queue.counters();
        assert_eq!(counters.receive_coalesced, 3 * count as u64);
        assert_eq!(counters.receive_frames, sent.len() as u64);
        assert_eq!((counters.receive_batches, counters.receive_dropped), (batches as u64, 0));
        let bytes: usize = sent.iter().map(|payload| payload.len() + 42).sum();
        assert_eq!(counters.receive_bytes, bytes as u64);
    }
}

#[test]
fn the_bound_of_a_call_leaves_frames_for_the_next() {
    let (mut queue, peer) = pair();
    let pool = BlockPool::new(batch::PoolConfig::default());
    let mut received = ReceiveBatch::new();
    let sent: Vec<_> = (0..9).map(|at| deliver(&peer, 100, at)).collect();
    let outcome = queue.receive(&pool, &mut received, 5);
    assert_eq!((outcome.frames, outcome.more), (5, true));
    let outcome = queue.receive(&pool, &mut received, 5);
    assert_eq!((outcome.frames, outcome.more), (4, false));
    for (index, frame) in sent.iter().enumerate() {
        assert_eq!(received.bytes(index), frame);
    }
}

#[test]
fn an_interface_that_is_lost_makes_the_queue_full_and_says_why() {
    let (mut queue, peer) = pair();
    assert_eq!(queue.trouble(), None);
    // As sendmmsg would say it of an interface that was deleted.
    assert_eq!(queue.on_send_error(Errno::NXIO, 0), Stop::Full);
    let trouble = queue.trouble().expect("it is away");
    assert!(trouble.message.contains("no-such-if0 is gone"), "{trouble}");
    let refused = queue.transmit(&batch_of(1, 100, 1));
    assert_eq!(refused, Transmitted { taken: 0, stopped: Some(Stop::Full) });
    assert!(frames_at(&peer).is_empty());
    assert_eq!(queue.counters().links_lost, 1);
}

/// packet(7) sockets say EINVAL of a frame that has no virtio-net header, and what recvmmsg(2) cannot say
/// any more, because it has frames to bring, it leaves to the next call.
#[test]
fn an_error_that_receiving_left_behind_is_not_charged_to_a_frame() {
    let sent = |answers: &[Result<usize, Errno>]| {
        let (mut answers, mut asked) = (answers.iter(), Vec::new());
        let mut counters = DeviceCounters::default();
        let outcome = send_all(8, &mut counters, &mut Patience::default(), |first| {
            asked.push(first);
            *answers.next().expect("it is asked no more")
        });
        assert_eq!(counters.transmit_syscalls, asked.len() as u64);
        ((outcome.frames, outcome.refused), asked, counters.receive_dropped)
    };
    let invalid = Err(Errno::INVAL);
    assert_eq!(sent(&[invalid, Ok(8)]), ((8, None), vec![0, 0], 1));
    assert_eq!(sent(&[Ok(3), invalid, Err(Errno::INTR), Ok(5)]).0, (8, None));
    // Said twice of one frame, it is about that frame.
    assert_eq!(sent(&[invalid, invalid]), ((0, Some(Errno::INVAL)), vec![0, 0], 0));
    assert_eq!(sent(&[invalid, Ok(3), invalid, invalid]).0, (3, Some(Errno::INVAL)));
    assert_eq!(sent(&[Ok(3), Err(Errno::AGAIN)]), ((3, Some(Errno::AGAIN)), vec![0, 3], 0));
}

#[test]
fn a_frame_that_is_never_taken_is_lost_alone() {
    let (mut patience, mut counters) = (Patience::default(), DeviceCounters::default());
    // The third of eight and the sixth are dropped, whatever comes.
    let mut offer = |from: usize| {
        let sent = send_all(8 - from, &mut counters, &mut patience, |first| match from + first {
            2 | 5 => Err(Errno::NOBUFS),
            at => Ok([2, 5, 8].into_iter().find(|end| *end > at).unwrap_or(8) - at),
        });
        (from + sent.frames, sent.lost, sent.refused)
    };
    assert_eq!(offer(0), (2, vec![], Some(Errno::NOBUFS)));
    // What stood in front of it has gone. A thread that gets no time is as patient as it must.
    let started = std::time::Instant::now();
    while offer(2) != (8, vec![0, 3], None) {
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "nothing is given up");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A queue that was full, has taken frames since, and is full again is no reason to lose one.
#[test]
fn patience_begins_anew_with_every_frame_that_is_taken() {
    let (mut patience, mut counters) = (Patience::default(), DeviceCounters::default());
    let full = Err(Errno::NOBUFS);
    let mut offer = |answers: &[Result<usize, Errno>]| {
        let mut answers = answers.iter();
        send_all(8, &mut counters, &mut patience, |_| *answers.next().expect("it is asked no more"))
    };
    let nothing_lost = |frames| Sent { frames, lost: vec![], refused: Some(Errno::NOBUFS) };
    for _ in 0..2 {
        assert_eq!(offer(&[Ok(3), full]), nothing_lost(3));
        // Longer than anybody is patient.
        std::thread::sleep(std::time::Duration::from_millis(110));
    }
}
