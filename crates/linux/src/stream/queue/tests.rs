//! The queue over a pair of sockets, whose other end reads and writes bytes.

use super::super::{LENGTH_LEN, StreamConfig, StreamDevice};
use super::*;
use batch::{Attributes, Checksum, Limits, PoolConfig};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

const MTU_BYTES: usize = 9_000;

fn queue() -> (StreamQueue, UnixStream) {
    queue_of(100_000)
}

/// A queue for whose frames the kernel has so much room.
fn queue_of(socket_buffer_bytes: usize) -> (StreamQueue, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let usual = StreamConfig::default();
    let config = StreamConfig { mtu_bytes: MTU_BYTES, socket_buffer_bytes, ..usual };
    let mut device = StreamDevice::over(ours, &config).expect("a stream");
    (device.queue(0).expect("it has one"), theirs)
}

fn pool() -> BlockPool {
    BlockPool::new(PoolConfig::default())
}

/// Bytes that tell of a frame which it is and where in it they are.
fn content(index: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (index * 31 + at * 7 + at / 256) as u8).collect()
}

/// A batch of packets of these lengths from packet `first` on, a header of 54 bytes at most and payload in pieces.
fn batch_of(lens: &[usize], first: usize) -> Multidata {
    let pool = pool();
    let mut batch = Multidata::default();
    batch.set_limits(Limits { blocks: usize::MAX, ..Limits::default() });
    for (index, len) in lens.iter().enumerate().skip(first) {
        let bytes = content(index, *len);
        let (header, payload) = bytes.split_at(54.min(*len));
        let attributes = Attributes { checksum: Checksum::Complete, ..Attributes::default() };
        batch.push_packet(header.len(), attributes).expect("room").copy_from_slice(header);
        for piece in payload.chunks(1 + index % 5 * 700 + 300) {
            let mut block = pool.allocate(piece.len()).expect("room");
            block.bytes_mut()[..piece.len()].copy_from_slice(piece);
            assert!(batch.append_span(&block.freeze(), 0, piece.len()));
        }
    }
    batch
}

fn framed(frames: &[Vec<u8>]) -> Vec<u8> {
    let framed = |frame: &Vec<u8>| [&(frame.len() as u32).to_be_bytes()[..], frame].concat();
    frames.iter().flat_map(framed).collect()
}

/// What is to be had now, `frames_max` a call, and the failure behind it.
fn received(
    queue: &mut StreamQueue,
    pool: &BlockPool,
    frames_max: usize,
) -> (Vec<Vec<u8>>, Option<DeviceError>) {
    let mut frames = Vec::new();
    let mut batch = ReceiveBatch::new();
    loop {
        batch.clear();
        let received = queue.receive(pool, &mut batch, frames_max);
        assert_eq!(received.frames, batch.len());
        assert!(batch.len() <= frames_max);
        frames.extend((0..batch.len()).map(|index| batch.bytes(index).to_vec()));
        if !received.more {
            return (frames, received.failed);
        }
        assert_eq!(received.failed, None, "more comes");
    }
}

#[test]
fn a_batch_of_usual_frames_leaves_by_one_call_and_comes_by_one() {
    let (mut queue, mut peer) = queue();
    let lens = [1_514; 40];
    assert_eq!(queue.transmit(&batch_of(&lens, 0)), Transmitted { taken: 40, stopped: None });
    let sent = queue.counters();
    assert_eq!((sent.transmit_syscalls, sent.transmit_mappings), (1, 1));
    assert_eq!((sent.transmit_packets, sent.transmit_bytes), (40, 40 * 1_514));
    let frames: Vec<Vec<u8>> = (0..40).map(|index| content(index, 1_514)).collect();
    let mut bytes = vec![0; 40 * (LENGTH_LEN + 1_514)];
    peer.read_exact(&mut bytes).expect("all of it");
    assert!(bytes == framed(&frames), "other bytes");
    // Back, into blocks that have grown to what comes.
    for _ in 0..5 {
        peer.write_all(&bytes).expect("room");
        let (came, failed) = received(&mut queue, &pool(), 64);
        assert_eq!(failed, None);
        assert!(came == frames, "other frames");
    }
    let before = queue.counters();
    peer.write_all(&bytes).expect("room");
    let mut batch = ReceiveBatch::new();
    assert_eq!(queue.receive(&pool(), &mut batch, 64).frames, 40);
    // One that brings all, and one that finds nothing.
    assert_eq!(queue.counters().receive_syscalls - before.receive_syscalls, 2);
}

/// A stream takes what it has room for, in the middle of frames. What it took of one has to go on.
#[test]
fn of_what_the_stream_took_in_part_the_rest_goes_first_and_nothing_twice() {
    // With more it takes calls of up to 100 KiB all or not at all.
    let (mut queue, mut peer) = queue_of(4_000);
    let lens: Vec<usize> = (0..64).map(|index| 60 + index * 139).collect();
    let once: Vec<Vec<u8>> = lens.iter().enumerate().map(|(i, len)| content(i, *len)).collect();
    let (mut wanted, mut came) = (Vec::new(), Vec::new());
    let (mut fulls, mut stalls) = (0, 0);
    let mut bytes = vec![0; 7_001];
    peer.set_nonblocking(true).expect("an option of sockets");
    for _ in 0..20 {
        let mut first = 0;
        while first < lens.len() {
            // What was not taken is offered again.
            let Transmitted { taken, stopped } = queue.transmit(&batch_of(&lens, first));
            first += taken;
            match stopped {
                Some(Stop::Full) => fulls += 1,
                stopped => assert_eq!(stopped, None),
            }
            stalls += usize::from(queue.is_stalled());
            while let Ok(len @ 1..) = peer.read(&mut bytes) {
                came.extend_from_slice(&bytes[..len]);
            }
        }
        wanted.extend_from_slice(&once);
    }
    while queue.is_stalled() {
        queue.reclaim();
        while let Ok(len @ 1..) = peer.read(&mut bytes) {
            came.extend_from_slice(&bytes[..len]);
        }
    }
    assert!(came == framed(&wanted), "lost, twice or in another order");
    assert!(fulls > 5 && stalls > 5, "{fulls} and {stalls} show nothing");
    assert_eq!(queue.counters().transmit_packets, 20 * 64);
}

/// Who waits for room is called when there is some, and the rest of a frame goes without a new batch.
#[test]
fn the_rest_of_a_frame_leaves_when_there_is_room() {
    let (mut queue, mut peer) = queue();
    let batch = batch_of(&[8_000; 60], 0);
    let taken = queue.transmit(&batch).taken;
    assert!(queue.is_stalled() && taken < 60, "{taken} of 60 fit");
    let reader = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        let mut bytes = vec![0; taken * (LENGTH_LEN + 8_000)];
        peer.read_exact(&mut bytes).map(|()| peer)
    });
    let started = Instant::now();
    while queue.is_stalled() {
        assert!(started.elapsed() < Duration::from_secs(20), "nobody calls");
        queue.waiter().wait(Some(Duration::from_secs(60)));
        queue.reclaim();
    }
    reader.join().expect("no panic").expect("all that was taken");
}

#[test]
fn a_packet_that_can_never_be_sent_is_refused_behind_those_that_can() {
    let (mut queue, mut peer) = queue();
    let refused = Transmitted { taken: 2, stopped: Some(Stop::Refused) };
    assert_eq!(queue.transmit(&batch_of(&[100, 200, MTU_BYTES + 15, 300], 0)), refused);
    let mut partial = Multidata::default();
    let checksum = Checksum::Partial { offset: 16 };
    partial.push_packet(60, Attributes { checksum, ..Attributes::default() }).expect("room");
    let refused = Transmitted { taken: 0, stopped: Some(Stop::Refused) };
    assert_eq!(queue.transmit(&partial), refused);
    drop(queue);
    let mut bytes = Vec::new();
    peer.read_to_end(&mut bytes).expect("all of it");
    assert_eq!(bytes.len(), 300 + 2 * LENGTH_LEN);
}

/// As often as it is asked, and what came before is handed up.
#[test]
fn an_end_that_has_closed_is_a_failure_behind_what_it_sent() {
    let (mut queue, mut peer) = queue();
    let frames = [content(1, 100), content(2, 200), content(3, 300)];
    peer.write_all(&framed(&frames)).expect("room");
    // A frame that is not all there is lost.
    peer.write_all(&framed(&[content(4, 400)])[..300]).expect("room");
    drop(peer);
    let stopped = queue.transmit(&batch_of(&[100], 0)).stopped;
    assert_eq!(stopped, Some(Stop::Full), "it is told of by what finds nothing more");
    let (came, failed) = received(&mut queue, &pool(), 2);
    assert!(came == frames, "{} came", came.len());
    for failed in [failed, received(&mut queue, &pool(), 2).1] {
        let failed = failed.expect("it is gone");
        assert_eq!(failed.kind, ErrorKind::NetworkDown);
        assert!(failed.message.contains("has closed it"), "{failed}");
    }
    assert!(!queue.is_stalled());
}

/// It is found where nobody is told of it, and whoever sleeps is to come back for it.
#[test]
fn an_end_that_reads_no_more_is_told_of_though_the_rest_of_a_frame_found_it() {
    let (mut queue, peer) = queue();
    queue.transmit(&batch_of(&[8_000; 60], 0));
    assert!(queue.is_stalled());
    peer.shutdown(std::net::Shutdown::Read).expect("it is connected");
    queue.reclaim();
    assert!(queue.is_stalled(), "nobody would come back");
    let failed = received(&mut queue, &pool(), 64).1.expect("it is of no use");
    assert_eq!(failed.kind, ErrorKind::NetworkDown);
    assert!(!queue.is_stalled());
    let stopped = queue.transmit(&batch_of(&[100], 0)).stopped;
    assert_eq!(stopped, Some(Stop::Failed(failed)));
}

#[test]
fn what_is_no_stream_of_frames_is_a_failure_and_takes_no_memory() {
    for length in [0, FRAME_LEN_MAX as u32 + 1, u32::MAX] {
        let (mut queue, mut peer) = queue();
        peer.write_all(&framed(&[content(1, 100)])).expect("room");
        peer.write_all(&length.to_be_bytes()).expect("room");
        peer.write_all(&[0; 5_000]).expect("room");
        let pool = pool();
        let (came, failed) = received(&mut queue, &pool, 64);
        assert_eq!(came, [content(1, 100)]);
        let said = failed.expect("it is of no use").message;
        assert!(said.contains(&format!("a length of {length} ")), "{said}");
        assert_eq!(received(&mut queue, &pool, 64).0, Vec::<Vec<u8>>::new());
        assert_eq!(pool.counters().outstanding_bytes, 0);
    }
}

/// It waits in the kernel until there is memory.
#[test]
fn nothing_is_lost_for_want_of_memory() {
    let (mut queue, mut peer) = queue();
    peer.write_all(&framed(&[content(1, 100)])).expect("room");
    let small = BlockPool::new(PoolConfig { limit_bytes: 0, ..PoolConfig::default() });
    assert_eq!(received(&mut queue, &small, 64), (Vec::new(), None));
    let started = Instant::now();
    queue.waiter().wait(Some(Duration::from_secs(60)));
    assert!(started.elapsed() < Duration::from_secs(30), "it is looked for again");
    assert_eq!(received(&mut queue, &pool(), 64).0, [content(1, 100)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However the bytes come, and however few frames are wanted at a time.
    #[test]
    fn frames_come_up_as_they_were_sent(
        lens in prop::collection::vec(prop_oneof![1..200_usize, 1_000..2_000_usize, 1..69_632_usize], 1..40),
        chunks in prop::collection::vec(1..9_000_usize, 1..8),
        frames_max in 1..70_usize,
    ) {
        let (mut queue, mut peer) = queue();
        let frames: Vec<Vec<u8>> = lens.iter().enumerate().map(|(i, len)| content(i, *len)).collect();
        let bytes = framed(&frames);
        let pool = pool();
        let (mut came, mut at) = (Vec::new(), 0);
        for chunk in chunks.iter().cycle() {
            if at == bytes.len() {
                break;
            }
            let end = bytes.len().min(at + chunk);
            peer.write_all(&bytes[at..end]).expect("room");
            at = end;
            let (some, failed) = received(&mut queue, &pool, frames_max);
            prop_assert_eq!(failed, None);
            came.extend(some);
        }
        prop_assert!(came == frames, "{} of {} came", came.len(), frames.len());
    }
}

/// After much has come, which blocks grew with.
#[test]
fn a_pool_with_no_room_for_a_large_block_receives_into_small_ones() {
    let (mut queue, mut peer) = queue();
    let frames: Vec<Vec<u8>> = (0..40).map(|index| content(index, 1_514)).collect();
    for _ in 0..9 {
        peer.write_all(&framed(&frames)).expect("room");
        assert_eq!(received(&mut queue, &pool(), 64), (frames.clone(), None));
    }
    let limit_bytes = 32_768;
    let config =
        PoolConfig { limit_bytes, receive_reserve_bytes: limit_bytes / 4, ..PoolConfig::default() };
    let pool = BlockPool::new(config);
    peer.write_all(&framed(&frames)).expect("room");
    let mut came = Vec::new();
    for _ in 0..9 {
        came.extend(received(&mut queue, &pool, 64).0);
    }
    assert!(came == frames, "{} of {} frames", came.len(), frames.len());
}
