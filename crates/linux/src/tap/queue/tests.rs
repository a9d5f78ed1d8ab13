//! The queue on files that behave like a TUN file without needing privilege: a pair of datagram
//! sockets (one write, one frame), a timer (every write is EINVAL), a file open for writing only.

use super::*;
use crate::tap::write_ring;
use crate::withheld;
use batch::{Attributes, Block, ReceivedChecksum};
use bytes::Bytes;
use device::lowering::{NetworkVersion, expand};
use device::{Medium, Segmentation};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

const OFFLOAD: bool = true;
const PLAIN: bool = false;

fn queue_on(file: impl Into<OwnedFd>, offload: bool) -> TapQueue {
    let file = Arc::new(file.into());
    let waiter = Arc::new(FileWaiter::new(Arc::clone(&file)).expect("an eventfd"));
    let segmentation =
        Segmentation { tcp_ipv4: true, tcp_ipv6: true, len_bytes_max: usize::from(u16::MAX) };
    let capabilities = Capabilities {
        checksum_transmit: offload,
        checksum_receive: offload,
        segmentation: offload.then_some(segmentation),
        receive_super_frames: offload,
        ..Capabilities::plain(Medium::Ip, 1_500)
    };
    let link = Link::new(Arc::clone(&file), "TAP".to_owned(), None);
    TapQueue::new(file, waiter, link, offload, capabilities, None)
}

fn pair(offload: bool) -> (TapQueue, UnixDatagram) {
    let (ours, theirs) = UnixDatagram::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("an option of sockets");
    theirs.set_nonblocking(true).expect("an option of sockets");
    (queue_on(ours, offload), theirs)
}

/// The driver consumes a frame that it cannot describe, and says EINVAL (`tun_put_user`). A file that cannot be
/// read says it without end.
#[test]
fn a_frame_that_cannot_be_described_is_lost_and_is_not_the_end() {
    let unreadable = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
    let mut queue = queue_on(unreadable.expect("a file"), OFFLOAD);
    let (pool, mut received) = (BlockPool::new(batch::PoolConfig::default()), ReceiveBatch::new());
    for call in 1..4 {
        let outcome = queue.receive(&pool, &mut received, 5);
        assert_eq!((outcome.frames, outcome.failed, outcome.more), (0, None, true));
        assert_eq!(queue.counters().receive_dropped, 5 * call);
    }
}

/// What arrived at the other end.
fn frames_at(peer: &UnixDatagram) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 70_000];
    std::iter::from_fn(|| peer.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec())).collect()
}

/// A run of `count` packets of TCP over IPv4 with `len` bytes each.
fn tcp_batch(count: usize, len: usize, checksum: Checksum) -> Multidata {
    let mut batch = Multidata::default();
    let bytes: Vec<u8> = (0..count * len).map(|at| (at % 251) as u8).collect();
    let block = Block::from(Bytes::from(bytes));
    let attributes = Attributes { run: batch.next_run(), checksum, ..Attributes::default() };
    for index in 0..count {
        let tcp = batch.push_packet(20, attributes).expect("room");
        tcp.fill(0);
        tcp[4..8].copy_from_slice(&((index * len) as u32).to_be_bytes());
        tcp[12..14].copy_from_slice(&[0x50, 0x10]);
        assert!(batch.append_span(&block, index * len, len));
        let (header, _) = batch.prepend_network(index, 20).expect("headroom");
        let ip = &mut header[..20];
        ip.fill(0);
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&((40 + len) as u16).to_be_bytes());
        ip[4..6].copy_from_slice(&(index as u16).to_be_bytes());
        ip[8..10].copy_from_slice(&[64, 6]);
        ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let ip_checksum = !checksum::sum(ip);
        ip[10..12].copy_from_slice(&ip_checksum.to_be_bytes());
        let mut pseudo = checksum::Accumulator::new();
        pseudo.add(&ip[12..20]);
        pseudo.add_u16(6);
        pseudo.add_u16((20 + len) as u16);
        header[36..38].copy_from_slice(&pseudo.sum().to_be_bytes());
    }
    batch
}

/// The same run with one header written, as TCP builds it.
fn tcp_run(count: usize, len: usize, checksum: Checksum) -> Multidata {
    let mut batch = tcp_batch(1, len, checksum);
    let bytes: Vec<u8> = (0..count * len).map(|at| (at % 251) as u8).collect();
    let implied = batch.push_implied(count - 1, 4, (&Block::from(Bytes::from(bytes)), len));
    assert_eq!(implied, count - 1, "there is room");
    batch.count_identification(0, 4, 10);
    batch
}

/// The packets of a batch as they lie there.
fn packets(batch: &Multidata) -> Vec<Vec<u8>> {
    batch
        .packets()
        .map(|packet| {
            let mut bytes = vec![0; packet.len()];
            packet.copy_to(&mut bytes).expect("room for the packet");
            bytes
        })
        .collect()
}

fn completed(batch: &Multidata) -> Vec<Vec<u8>> {
    let mut packets = packets(batch);
    for packet in &mut packets {
        device::lowering::complete_checksum(packet, 20, 16).expect("a TCP packet");
    }
    packets
}

const PARTIAL: Checksum = Checksum::Partial { offset: 16 };

/// Modes in which every packet is a frame.
const UNMERGED: [TransmitMode; 5] = [
    TransmitMode::Single,
    TransmitMode::Chain,
    TransmitMode::Contiguous(Contiguous::FRAMES),
    TransmitMode::Contiguous(Contiguous::PAYLOAD),
    TransmitMode::Multidata,
];

#[test]
fn a_run_that_is_written_once_leaves_as_if_it_had_been_written_out() {
    for mode in UNMERGED.into_iter().chain([TransmitMode::Lso]) {
        let frames = |batch: &Multidata| {
            let (mut queue, peer) = pair(OFFLOAD);
            queue.set_mode(mode).expect("every form can be sent");
            let transmitted = queue.transmit(batch);
            assert_eq!(transmitted, Transmitted { taken: batch.len(), stopped: None });
            frames_at(&peer)
        };
        let (run, written) = (tcp_run(50, 1_400, PARTIAL), tcp_batch(50, 1_400, PARTIAL));
        assert_eq!(frames(&run), frames(&written), "{mode}");
        // 46 of them are one frame, and 4 another.
        assert_eq!(frames(&run).len(), if mode == TransmitMode::Lso { 2 } else { 50 });
        if mode == TransmitMode::Lso {
            let untouched = tcp_run(50, 1_400, PARTIAL);
            frames(&untouched);
            assert!(!untouched.has_made_headers(), "nobody looked at a packet");
        }
    }
}

#[test]
fn every_packet_leaves_as_one_frame_and_is_counted() {
    for mode in UNMERGED {
        let (mut queue, peer) = pair(PLAIN);
        queue.set_mode(mode).expect("every device can");
        let batch = tcp_batch(5, 100, Checksum::Complete);
        assert_eq!(queue.transmit(&batch), Transmitted { taken: 5, stopped: None });
        assert_eq!(frames_at(&peer), packets(&batch));
        let counters = queue.counters();
        assert_eq!((counters.transmit_batches, counters.transmit_packets), (1, 5));
        assert_eq!((counters.transmit_frames, counters.transmit_syscalls), (5, 5));
        assert_eq!(counters.transmit_bytes, 5 * 140);
    }
}

#[test]
fn an_empty_batch_is_no_call() {
    let (mut queue, _peer) = pair(PLAIN);
    assert_eq!(queue.transmit(&Multidata::default()), Transmitted { taken: 0, stopped: None });
    assert_eq!(queue.counters(), DeviceCounters::default());
}

#[test]
fn partial_checksums_are_the_kernels_or_completed_here() {
    for (mode, len) in UNMERGED.into_iter().flat_map(|mode| [(mode, 101), (mode, 3_000)]) {
        let batch = tcp_batch(2, len, PARTIAL);
        let (mut queue, peer) = pair(OFFLOAD);
        queue.capabilities.mtu_bytes = 4_000;
        queue.set_mode(mode).expect("every device can");
        assert_eq!(queue.transmit(&batch).taken, 2);
        for (frame, packet) in frames_at(&peer).iter().zip(packets(&batch)) {
            assert_eq!(frame[..10], VnetHeader::partial(20, 16).emit());
            assert_eq!(frame[10..], packet, "{mode}");
        }
        let (mut queue, peer) = pair(PLAIN);
        queue.capabilities.mtu_bytes = 4_000;
        queue.set_mode(mode).expect("every device can");
        assert_eq!(queue.transmit(&batch).taken, 2);
        assert_eq!(frames_at(&peer), completed(&batch));
    }
}

#[test]
fn a_batch_of_one_block_is_the_bound_of_the_contiguous_mode() {
    let (mut queue, _peer) = pair(PLAIN);
    assert_eq!(queue.capabilities().batch_packets_max, BATCH_PACKETS);
    let nine = Contiguous::PAYLOAD.with_frames_max(9).expect("in range");
    queue.set_mode(TransmitMode::Contiguous(nine)).expect("every device can");
    assert_eq!(queue.capabilities().batch_packets_max, 9);
}

#[test]
fn a_run_leaves_as_a_super_frame_that_expands_to_its_packets() {
    let batch = tcp_batch(20, 1_000, PARTIAL);
    let (mut queue, peer) = pair(OFFLOAD);
    queue.set_mode(TransmitMode::Lso).expect("it was offered");
    assert_eq!(queue.transmit(&batch).taken, 20);
    let frames = frames_at(&peer);
    assert_eq!(frames.len(), 1);
    let wanted = VnetHeader::partial(20, 16).segmented(NetworkVersion::Ipv4, 40, 1_000, false);
    assert_eq!(frames[0][..10], wanted.emit());
    assert_eq!(expand(&frames[0][10..], 0, 1_000).expect("a TCP packet"), completed(&batch));
    let counters = queue.counters();
    assert_eq!((counters.transmit_packets, counters.transmit_frames), (20, 1));
    assert_eq!(counters.transmit_bytes, 20 * 1_040);
}

#[test]
fn a_frame_of_too_many_pieces_is_laid_end_to_end() {
    let mut batch = Multidata::default();
    let block = Block::from(Bytes::from_static(b"abcdefgh"));
    batch.push_packet(8, Attributes::default()).expect("room").fill(0xaa);
    for at in 0..2 * PIECES_MAX {
        // Two parts that never lie side by side.
        assert!(batch.append_span(&block, (at % 2) * 4, 3));
    }
    let (mut queue, peer) = pair(PLAIN);
    assert_eq!(queue.transmit(&batch).taken, 1);
    assert_eq!(frames_at(&peer), packets(&batch));
}

#[test]
fn a_full_device_takes_the_front_of_a_batch_and_says_when_it_has_room() {
    for mode in [TransmitMode::Multidata, TransmitMode::Contiguous(Contiguous::FRAMES)] {
        fill_up(mode);
    }
}

fn fill_up(mode: TransmitMode) {
    let batch = tcp_batch(64, 1_000, Checksum::Complete);
    let (ours, peer) = UnixDatagram::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("an option of sockets");
    peer.set_nonblocking(true).expect("an option of sockets");
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, 16_384).expect("less than there is");
    let mut queue = queue_on(ours, PLAIN);
    queue.set_mode(mode).expect("every device can");
    let mut all = packets(&batch);
    let first = queue.transmit(&batch);
    assert_eq!(first.stopped, Some(Stop::Full));
    assert_eq!(queue.counters().transmit_full, 1);
    assert_eq!(queue.counters().transmit_packets, first.taken as u64);
    assert_eq!(queue.counters().transmit_syscalls, first.taken as u64 + 1);
    let waiter = queue.waiter();
    let reader = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        frames_at(&peer)
    });
    let started = Instant::now();
    waiter.wait(Some(Duration::from_secs(10)));
    assert!(started.elapsed() < Duration::from_secs(5), "room ends the wait");
    all.truncate(first.taken);
    assert_eq!(reader.join().expect("the reader ends well"), all);
}

#[test]
fn a_refused_offload_is_taken_back_one_step_at_a_time() {
    let timer =
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty()).expect("a timer file");
    let mut queue = queue_on(timer, OFFLOAD);
    queue.set_mode(TransmitMode::Lso).expect("it was offered");
    let partial = tcp_batch(3, 100, PARTIAL);
    let revoked = Transmitted { taken: 0, stopped: Some(Stop::Revoked) };

    assert_eq!(queue.transmit(&partial), revoked);
    let capabilities = queue.capabilities();
    assert_eq!((capabilities.segmentation, capabilities.checksum_transmit), (None, true));
    assert!(queue.set_mode(TransmitMode::Lso).is_err());

    assert_eq!(queue.transmit(&partial), revoked);
    assert!(!queue.capabilities().checksum_transmit);

    let refused = Transmitted { taken: 0, stopped: Some(Stop::Refused) };
    assert_eq!(queue.transmit(&tcp_batch(3, 100, Checksum::Complete)), refused);
    assert_eq!(queue.counters().capabilities_revoked, 2);
    assert_eq!(queue.counters().transmit_packets, 0);
}

/// What a ring makes of frames offered together: these outcomes, in which the last was written.
fn overtaken(queue: &mut TapQueue, batch: &Multidata, outcomes: &[(Offer, Errno)]) -> Transmitted {
    let last = Offer { end: batch.len(), packets: 1, bytes: 140, merged: false, partial: false };
    let offers: Vec<Offer> = outcomes.iter().map(|(offer, _)| *offer).chain([last]).collect();
    let results = outcomes.iter().map(|(_, errno)| Err(*errno)).chain([Ok(())]);
    let mut tally = Tally::default();
    queue.settle_all(batch, &offers, &results.collect::<Vec<_>>(), &mut tally);
    queue.finish(batch, tally)
}

#[test]
fn a_super_frame_that_is_refused_and_overtaken_leaves_packet_by_packet() {
    let batch = tcp_batch(6, 100, PARTIAL);
    let (mut queue, peer) = pair(OFFLOAD);
    queue.set_mode(TransmitMode::Lso).expect("it was offered");
    let offer = |end| Offer { end, packets: 2, bytes: 280, merged: true, partial: true };
    let refused = [(offer(2), Errno::INVAL), (offer(4), Errno::INVAL)];
    let transmitted = overtaken(&mut queue, &batch, &refused);
    assert_eq!(transmitted, Transmitted { taken: 6, stopped: Some(Stop::Revoked) });
    let frames: Vec<Vec<u8>> = frames_at(&peer).iter().map(|frame| frame[10..].to_vec()).collect();
    assert_eq!(frames, completed(&batch)[..4]);
    let counters = queue.counters();
    assert_eq!((counters.transmit_late, counters.transmit_lost), (4, 0));
    assert_eq!(counters.transmit_packets, 5, "one was written before");
    assert_eq!((counters.capabilities_revoked, queue.capabilities().segmentation), (1, None));
}

#[test]
fn what_was_overtaken_and_finds_no_room_goes_before_the_next_batch() {
    let batch = tcp_batch(3, 1_000, Checksum::Complete);
    let (ours, peer) = UnixDatagram::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("an option of sockets");
    peer.set_nonblocking(true).expect("an option of sockets");
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, 16_384).expect("less than there is");
    let mut queue = queue_on(ours, PLAIN);
    while queue.transmit(&batch).stopped.is_none() {}
    let full = Transmitted { taken: 3, stopped: Some(Stop::Full) };
    let offer = |end| Offer { end, packets: 1, bytes: 1_040, merged: false, partial: false };
    let refused = [(offer(1), Errno::AGAIN), (offer(2), Errno::NOBUFS)];
    assert_eq!(overtaken(&mut queue, &batch, &refused), full);
    assert_eq!(queue.transmit(&batch), Transmitted { taken: 0, ..full }, "still");
    frames_at(&peer);
    queue.waiter().wait(Some(Duration::from_secs(10)));
    queue.reclaim();
    assert_eq!(frames_at(&peer), packets(&batch)[..2]);
    assert_eq!(queue.transmit(&batch), Transmitted { taken: 3, stopped: None });
    let counters = queue.counters();
    assert_eq!((counters.transmit_late, counters.transmit_lost), (2, 0));
}

#[test]
fn packets_that_can_never_be_sent_are_refused_one_by_one() {
    for mode in UNMERGED {
        let (mut queue, peer) = pair(PLAIN);
        queue.set_mode(mode).expect("every device can");
        let too_long = tcp_batch(1, 1_461, Checksum::Complete);
        let refused = Transmitted { taken: 0, stopped: Some(Stop::Refused) };
        assert_eq!(queue.transmit(&too_long), refused);
        let mut second = tcp_batch(3, 1_460, Checksum::Complete);
        second.set_checksum(1, Checksum::Missing { offset: 16 });
        let transmitted = queue.transmit(&second);
        assert_eq!(transmitted, Transmitted { taken: 1, stopped: Some(Stop::Refused) });
        assert_eq!(frames_at(&peer).len(), 1);
    }
}

#[test]
fn a_file_that_is_no_device_fails_in_words() {
    let (reader, writer) = (std::fs::File::open("/dev/null"), std::fs::OpenOptions::new());
    let mut queue = queue_on(reader.expect("everyone may"), PLAIN);
    let Some(Stop::Failed(error)) = queue.transmit(&tcp_batch(1, 1, Checksum::Complete)).stopped
    else {
        panic!("a file open for reading took a frame");
    };
    assert!(error.message.contains("failed"), "{error}");
    let writer = writer.clone().write(true).open("/dev/null").expect("everyone may");
    let received = queue_on(writer, PLAIN).receive(&pool(), &mut ReceiveBatch::new(), 9);
    assert!(received.failed.is_some() && received.frames == 0);
}

fn pool() -> BlockPool {
    BlockPool::new(batch::PoolConfig::default())
}

#[test]
fn frames_come_up_as_they_were_sent() {
    let (mut queue, peer) = pair(PLAIN);
    let (pool, mut batch) = (pool(), ReceiveBatch::new());
    for len in [60_usize, 1_400, 64] {
        peer.send(&vec![len as u8; len]).expect("room");
    }
    let received = queue.receive(&pool, &mut batch, 100);
    assert_eq!(received, Received { frames: 3, more: false, failed: None });
    for (index, len) in [60_usize, 1_400, 64].into_iter().enumerate() {
        assert_eq!(batch.bytes(index), vec![len as u8; len]);
        let frame = batch.frame(index).expect("it was received");
        assert_eq!((frame.offset % 64, frame.checksum), (0, ReceivedChecksum::Unverified));
    }
    let counters = queue.counters();
    assert_eq!((counters.receive_batches, counters.receive_frames), (1, 3));
    assert_eq!((counters.receive_bytes, counters.receive_syscalls), (1_524, 4));

    batch.clear();
    assert_eq!(queue.receive(&pool, &mut batch, 100), Received::default());
    assert_eq!(queue.counters().receive_batches, 1);
    assert!(batch.is_empty());
}

#[test]
fn the_callers_bound_holds_and_the_rest_comes_next_time() {
    let (mut queue, peer) = pair(PLAIN);
    let (pool, mut batch) = (pool(), ReceiveBatch::new());
    for byte in 0..5_u8 {
        peer.send(&[byte; 40]).expect("room");
    }
    assert_eq!(queue.receive(&pool, &mut batch, 2).frames, 2);
    let received = queue.receive(&pool, &mut batch, 2);
    assert!(received.more && received.frames == 2);
    assert_eq!(queue.receive(&pool, &mut batch, 2).frames, 1);
    let firsts: Vec<u8> = (0..5).map(|index| batch.bytes(index)[0]).collect();
    assert_eq!(firsts, [0, 1, 2, 3, 4]);
}

#[test]
fn blocks_grow_with_the_traffic_and_shrink_without_it() {
    let (mut queue, peer) = pair(PLAIN);
    let (pool, mut batch) = (pool(), ReceiveBatch::new());
    let mut receive = |queue: &mut TapQueue, count: usize| {
        (0..count).for_each(|_| assert!(peer.send(&[1; 1_500]).is_ok()));
        batch.clear();
        assert_eq!(queue.receive(&pool, &mut batch, 100).frames, count);
        batch.chunk(0, 0..1).map(|chunk| chunk.block().len())
    };
    assert_eq!(receive(&mut queue, 1), Some(2_048));
    receive(&mut queue, 10);
    assert_eq!(receive(&mut queue, 10), Some(32_768), "ten frames and as much as one more");
    for _ in 0..10 {
        receive(&mut queue, 1);
    }
    assert_eq!(receive(&mut queue, 1), Some(4_096));
}

/// read(2) cuts off what it has no room for, and frames of before are still on their way.
#[test]
fn there_is_room_for_the_longest_frames_that_there_were() {
    let (mut queue, peer) = pair(PLAIN);
    let mut batch = ReceiveBatch::new();
    for mtu_bytes in [9_000, 1_500] {
        queue.receiver.make_room(mtu_bytes);
    }
    // Blocks shrink as far as they may.
    for _ in 0..9 {
        peer.send(&[7; 60]).expect("room");
        assert_eq!(queue.receive(&pool(), &mut batch, 9).frames, 1);
    }
    batch.clear();
    peer.send(&[7; 9_000]).expect("room");
    assert_eq!(queue.receive(&pool(), &mut batch, 9).frames, 1);
    assert_eq!(batch.bytes(0), [7; 9_000]);
}

#[test]
fn super_frames_come_up_whole_with_what_the_kernel_knows_of_them() {
    let (mut queue, peer) = pair(OFFLOAD);
    let (pool, mut batch) = (pool(), ReceiveBatch::new());
    let header = VnetHeader::partial(20, 16).segmented(NetworkVersion::Ipv4, 40, 1_448, false);
    let frame: Vec<u8> = (0..65_535).map(|at| (at % 249) as u8).collect();
    peer.send(&[&header.emit()[..], &frame[..]].concat()).expect("room");
    peer.send(&[0; 70]).expect("room");
    peer.send(&[0; 9]).expect("room for what is not even a virtio-net header");
    assert_eq!(queue.receive(&pool, &mut batch, 100).frames, 2);
    assert_eq!(batch.bytes(0), frame);
    let first = batch.frame(0).expect("it was received");
    assert_eq!(first.checksum, ReceivedChecksum::Partial);
    assert_eq!(first.segmented.map(|segmented| segmented.segment_len), Some(1_448));
    let second = batch.frame(1).expect("it was received");
    assert_eq!((second.len, second.checksum), (60, ReceivedChecksum::Unverified));
    assert!(batch.is_sparse(1) && !batch.is_sparse(0));
}

#[test]
fn an_exhausted_pool_leaves_the_frames_where_they_are() {
    let (mut queue, peer) = pair(PLAIN);
    let small =
        BlockPool::new(batch::PoolConfig { limit_bytes: 1_000, ..batch::PoolConfig::default() });
    let mut batch = ReceiveBatch::new();
    peer.send(&[7; 100]).expect("room");
    assert_eq!(queue.receive(&small, &mut batch, 10).frames, 0);
    // Frames that cannot be taken are no reason to spin.
    let (waiter, started) = (queue.waiter(), Instant::now());
    for _ in 0..20 {
        waiter.wait(Some(Duration::from_secs(10)));
    }
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(20) && waited < Duration::from_secs(10), "{waited:?}");
    assert_eq!(queue.receive(&pool(), &mut batch, 10).frames, 1);
    assert_eq!(batch.bytes(0), [7; 100]);
}

#[test]
fn a_failed_device_is_not_waited_for() {
    let writer = std::fs::OpenOptions::new().write(true).open("/dev/null").expect("everyone may");
    let mut queue = queue_on(writer, PLAIN);
    let waiter = queue.waiter();
    waiter.wait(Some(Duration::from_secs(10)));
    assert!(queue.receive(&pool(), &mut ReceiveBatch::new(), 9).failed.is_some());
    let started = Instant::now();
    waiter.wait(Some(Duration::from_millis(50)));
    assert!(started.elapsed() >= Duration::from_millis(50), "the file is readable for ever");
    waiter.wake();
    waiter.wait(Some(Duration::from_secs(10)));
    assert!(started.elapsed() < Duration::from_secs(5), "it can still be woken");
}

#[test]
fn waking_before_the_wait_costs_no_system_call() {
    let (queue, _peer) = pair(PLAIN);
    let waiter = queue.waiter();
    waiter.wake();
    waiter.wake();
    let started = Instant::now();
    waiter.wait(Some(Duration::from_secs(10)));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(queue.counters().wait_syscalls, 0);
    waiter.wait(Some(Duration::from_millis(10)));
    assert!(started.elapsed() >= Duration::from_millis(10), "one wake ends one wait");
}

#[test]
fn a_wait_ends_when_woken_and_when_a_frame_comes() {
    let (queue, peer) = pair(PLAIN);
    let waiter = queue.waiter();
    let timed = |act: &mut dyn FnMut()| {
        let waiter = Arc::clone(&waiter);
        let waiting = std::thread::spawn(move || {
            let started = Instant::now();
            waiter.wait(Some(Duration::from_secs(20)));
            started.elapsed()
        });
        std::thread::sleep(Duration::from_millis(30));
        act();
        assert!(waiting.join().expect("the waiter ends well") < Duration::from_secs(10));
    };
    timed(&mut || waiter.wake());
    timed(&mut || assert!(peer.send(&[1; 50]).is_ok()));
}

/// Where poll(2) says that there is room all the while, waiting for room would be spinning.
#[test]
fn room_is_waited_for_only_where_the_file_has_none() {
    let batch = tcp_batch(1, 100, Checksum::Complete);
    for (errno, waits) in [(Errno::AGAIN, true), (Errno::NOBUFS, false), (Errno::NOMEM, false)] {
        let (mut queue, _peer) = pair(PLAIN);
        let offer = Offer { end: 1, packets: 1, bytes: 140, merged: false, partial: false };
        let tally = Tally { failure: Some((errno, offer)), ..Tally::default() };
        let full = Transmitted { taken: 0, stopped: Some(Stop::Full) };
        assert_eq!(queue.finish(&batch, tally), full);
        assert_eq!(queue.waiter.wants_room(), waits, "{errno}");
        assert_eq!(queue.counters.transmit_full, 1);
    }
}

/// A failure that is met where nobody is told of it, by [`Queue::reclaim`], is told by the next call.
#[test]
fn a_failure_of_what_is_late_is_told_by_the_next_call() {
    let failed = || {
        // What is open for reading only says EBADF to a write, and EOF to a read.
        let file = std::fs::File::open("/dev/null").expect("it is always there");
        let mut queue = queue_on(file, PLAIN);
        queue.kept.extend([vec![0x45; 40], vec![0x45; 60]]);
        queue.reclaim();
        assert!(queue.is_stalled(), "it is called again soon");
        assert_eq!((queue.counters().transmit_lost, queue.kept.len()), (2, 0));
        queue
    };
    let mut queue = failed();
    let transmitted = queue.transmit(&tcp_batch(1, 100, Checksum::Complete));
    assert!(matches!(transmitted, Transmitted { taken: 0, stopped: Some(Stop::Failed(_)) }));
    assert!(!queue.is_stalled());
    let mut queue = failed();
    let pool = BlockPool::new(batch::PoolConfig::default());
    let received = queue.receive(&pool, &mut ReceiveBatch::new(), 8);
    let error = received.failed.expect("it failed").message;
    assert!(error.contains("the interface TAP failed"), "{error}");
}

/// What it did not take finds no room, and leaves by calls of its own afterwards.
#[test]
fn a_ring_that_the_kernel_stops_to_serve_loses_nothing() {
    let (mut queue, peer) = pair(PLAIN);
    match write_ring::tests::unserved(Arc::clone(&queue.file)) {
        Ok(ring) => queue.ring = Some(Box::new(ring)),
        Err(errno) => {
            let name = "a_ring_that_the_kernel_stops_to_serve_loses_nothing";
            return withheld::cannot_run(name, &errno.to_string());
        }
    }
    let batch = tcp_batch(5, 100, Checksum::Complete);
    let full = Transmitted { taken: 0, stopped: Some(Stop::Full) };
    assert_eq!(queue.transmit(&batch), full);
    assert!(frames_at(&peer).is_empty());
    assert_eq!(queue.transmit(&batch), Transmitted { taken: 5, stopped: None });
    assert_eq!(frames_at(&peer), packets(&batch));
    let counters = queue.counters();
    assert_eq!((counters.rings_lost, counters.transmit_packets), (1, 5));
    assert_eq!((counters.transmit_lost, counters.transmit_late), (0, 0));
}

/// A packet of one-byte pieces, more of them than a ring gathers.
fn push_scattered(batch: &mut Multidata) {
    let block = Block::from(Bytes::from((0..=255).collect::<Vec<u8>>()));
    batch.push_packet(40, Attributes::default()).expect("room").fill(0x45);
    // Backwards, so that no two pieces follow each other, and too long for a slot.
    for round in 0..9 {
        (0..256).rev().for_each(|at| assert!(batch.append_span(&block, at, 1), "{round}"));
    }
}

/// As it stands in the batch: behind what is staged, and not at all where that was refused.
#[test]
fn what_a_ring_cannot_take_keeps_its_place() {
    let with_ring = || {
        let (mut queue, peer) = pair(PLAIN);
        queue.capabilities.mtu_bytes = 65_535;
        let ring = write_ring::WriteRing::new(Arc::clone(&queue.file))?;
        queue.ring = Some(Box::new(ring));
        Ok::<_, Errno>((queue, peer))
    };
    let (mut queue, peer) = match with_ring() {
        Ok(made) => made,
        Err(errno) => {
            let name = "what_a_ring_cannot_take_keeps_its_place";
            return withheld::cannot_run(name, &errno.to_string());
        }
    };
    let mut batch = tcp_batch(2, 100, Checksum::Complete);
    push_scattered(&mut batch);
    assert_eq!(queue.transmit(&batch), Transmitted { taken: 3, stopped: None });
    assert_eq!(frames_at(&peer), packets(&batch));
    assert_eq!(queue.counters().transmit_syscalls, 2);

    let (mut queue, peer) = with_ring().expect("as before");
    rustix::net::sockopt::set_socket_send_buffer_size(&*queue.file, 16_384).expect("less");
    let mut batch = tcp_batch(2, 60_000, Checksum::Complete);
    push_scattered(&mut batch);
    let refused = Transmitted { taken: 0, stopped: Some(Stop::Refused) };
    assert_eq!(queue.transmit(&batch), refused);
    assert!(frames_at(&peer).is_empty());
}

/// Each may have been down for a moment; only of a row without a frame in between there can be too many.
#[test]
fn a_frame_that_is_written_ends_a_row_of_doubts() {
    let (mut queue, _peer) = pair(PLAIN);
    for _ in 0..4 {
        (0..8).for_each(|_| assert!(queue.link.is_passing(State::Up)));
        assert_eq!(queue.transmit(&tcp_batch(1, 100, Checksum::Complete)).stopped, None);
    }
}
