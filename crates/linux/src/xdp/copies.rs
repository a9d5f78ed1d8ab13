//! What the copies on the way out cost: an experiment, not a test, and therefore ignored.
//!
//! `cargo test --release -p multidata-linux --lib copies -- --ignored --nocapture`, as root.
//!
//! Full segments of MTU 1500 go from an application's buffer over a virtual cable, by real sends, in
//! one of four ways. The far end has no address and drops them, so that of the kernel there is as
//! little as can be, and what differs shows as much as it ever can.
//!
//! | way | `write` copies into | sending |
//! |---|---|---|
//! | `gather` | a block of the pool | copies headers and payload into one chunk: the way of this crate |
//! | `apart` | a block of the pool | copies headers into one chunk and payload into another (`scatter_gather`) |
//! | `gaps` | chunks, one a segment, behind a gap | writes headers into the gap |
//! | `placed` | chunks, two segments in each | writes headers into a chunk of their own, two descriptors |
//!
//! The last two copy once. Their chunks are held until the peer has acknowledged them, here for as
//! many writes as the window holds, and are used again in turn; those of the first two are free as soon as
//! the frame has left, and the last one freed is used next. Each way reads the payload for
//! its checksum just before it is sent, as the stack does for a device without offload. Data leaves
//! either in the call that wrote it, or when a whole window has been written behind it, as it does
//! where the send buffer is full.

use super::XdpConfig;
use super::socket::{Rings, descriptor};
use super::umem::Chunk;
use crate::{VethPair, cpu, namespace};
use rustix::net::{SendFlags, send};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

const SEGMENT_LEN: usize = 1_448;
/// Ethernet, IPv4, TCP with timestamps.
const HEADER_LEN: usize = 66;
/// Segments of one write of some 64 KiB.
const SEGMENTS: usize = 44;
const WRITE_LEN: usize = SEGMENTS * SEGMENT_LEN;
/// Where payload begins in a chunk that leaves room for headers.
const GAP: usize = 128;
/// Writes that fill a window: of 256 KiB, which a second level of cache holds, and of 1 MiB.
const WINDOWS: [usize; 2] = [4, 16];
/// Writes beyond a window whose chunks are on their way back.
const MARGIN: usize = 4;
/// A buffer of the application's that is in no cache.
const COLD_WRITES: usize = 512;
const WRITES_PER_RUN: usize = 1_000;
const RUNS: usize = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Gather,
    Apart,
    Gaps,
    Placed,
}

const WAYS: [Way; 4] = [Way::Gather, Way::Apart, Way::Gaps, Way::Placed];

/// One way with all of its memory.
struct Sender {
    way: Way,
    rings: Rings,
    header: [u8; HEADER_LEN],
    /// Bytes at the end of the UMEM that are in chunks for payload.
    held_len: usize,
    /// The pool's blocks, used in turn, and how many writes were made and sent.
    blocks: Vec<Vec<u8>>,
    written: usize,
    sent: usize,
    /// Chunks of payload that was acknowledged, and of payload that was written, in order.
    idle: VecDeque<Chunk>,
    ready: VecDeque<Chunk>,
}

impl Sender {
    fn new(way: Way, pair: &VethPair, window: usize) -> Self {
        // A chunk of 4 KiB holds two segments.
        let chunk_len = if way == Way::Placed { 4_096 } else { 2_048 };
        let several = matches!(way, Way::Apart | Way::Placed);
        let config =
            XdpConfig { receive_frames: 64, transmit_frames: 1_024, ..XdpConfig::new("unused") };
        let mut refused = Vec::new();
        let mut rings = Rings::open(pair.near(), 0, chunk_len, several, &config, &mut refused)
            .expect("a cable of our own");
        assert_eq!(refused, [""; 0]);
        let held = match way {
            Way::Gather | Way::Apart => 0,
            Way::Gaps => (window + MARGIN) * SEGMENTS,
            Way::Placed => (window + MARGIN) * SEGMENTS / 2,
        };
        let idle = rings.free.split_off(rings.free.len() - held).into();
        let blocks = vec![vec![0; WRITE_LEN]; window + 1];
        let mut header = [0; HEADER_LEN];
        header[..6].copy_from_slice(&pair.far().hardware_address().expect("it has one").0);
        // An ethertype for experiments (IEEE 802), which nobody takes.
        header[12..14].copy_from_slice(&[0x88, 0xb5]);
        let held_len = held * chunk_len;
        let ready = VecDeque::new();
        Self { way, rings, header, held_len, blocks, written: 0, sent: 0, idle, ready }
    }

    fn write(&mut self, source: &[u8]) {
        let umem = &mut self.rings.umem;
        match self.way {
            Way::Gather | Way::Apart => {
                let index = self.written % self.blocks.len();
                self.blocks[index].copy_from_slice(source);
            }
            Way::Gaps => {
                for piece in source.chunks(SEGMENT_LEN) {
                    let mut chunk = self.idle.pop_front().expect("the window is held");
                    umem.bytes_mut(&mut chunk)[GAP..GAP + SEGMENT_LEN].copy_from_slice(piece);
                    self.ready.push_back(chunk);
                }
            }
            Way::Placed => {
                for piece in source.chunks(2 * SEGMENT_LEN) {
                    let mut chunk = self.idle.pop_front().expect("the window is held");
                    umem.bytes_mut(&mut chunk)[..piece.len()].copy_from_slice(piece);
                    self.ready.push_back(chunk);
                }
            }
        }
        self.written += 1;
    }

    /// Sends what one call wrote.
    fn transmit(&mut self) {
        self.take_back_sent();
        match self.way {
            Way::Gather | Way::Apart => self.push_blocks(),
            Way::Gaps => self.push_gaps(),
            Way::Placed => self.push_placed(),
        }
        self.sent += 1;
        self.rings.transmit.submit();
        let started = Instant::now();
        while self.rings.transmit.pending() > 0 {
            let _ = send(&self.rings.socket, &[], SendFlags::DONTWAIT);
            assert!(started.elapsed() < Duration::from_secs(5), "the kernel takes nothing");
        }
    }

    fn push_blocks(&mut self) {
        let index = self.sent % self.blocks.len();
        for segment in self.blocks[index].chunks(SEGMENT_LEN) {
            black_box(checksum::sum(segment));
            let mut chunk = self.rings.free.pop().expect("there are enough");
            let bytes = self.rings.umem.bytes_mut(&mut chunk);
            bytes[..HEADER_LEN].copy_from_slice(&self.header);
            if self.way == Way::Gather {
                bytes[HEADER_LEN..HEADER_LEN + SEGMENT_LEN].copy_from_slice(segment);
                let address = self.rings.umem.give(chunk);
                let whole = descriptor(address, HEADER_LEN + SEGMENT_LEN, false);
                self.rings.transmit.push(whole);
                continue;
            }
            let address = self.rings.umem.give(chunk);
            self.rings.transmit.push(descriptor(address, HEADER_LEN, true));
            let mut chunk = self.rings.free.pop().expect("there are enough");
            self.rings.umem.bytes_mut(&mut chunk)[..SEGMENT_LEN].copy_from_slice(segment);
            let address = self.rings.umem.give(chunk);
            self.rings.transmit.push(descriptor(address, SEGMENT_LEN, false));
        }
    }

    fn push_gaps(&mut self) {
        for _ in 0..SEGMENTS {
            let mut chunk = self.ready.pop_front().expect("it was written");
            let bytes = self.rings.umem.bytes_mut(&mut chunk);
            black_box(checksum::sum(&bytes[GAP..GAP + SEGMENT_LEN]));
            bytes[GAP - HEADER_LEN..GAP].copy_from_slice(&self.header);
            let address = self.rings.umem.give(chunk) + (GAP - HEADER_LEN) as u64;
            let whole = descriptor(address, HEADER_LEN + SEGMENT_LEN, false);
            self.rings.transmit.push(whole);
        }
    }

    fn push_placed(&mut self) {
        for _ in 0..SEGMENTS / 2 {
            let mut payload = self.ready.pop_front().expect("it was written");
            for segment in self.rings.umem.bytes_mut(&mut payload).chunks(SEGMENT_LEN).take(2) {
                black_box(checksum::sum(segment));
            }
            let payload = self.rings.umem.give(payload);
            for offset in [0, SEGMENT_LEN] {
                let mut chunk = self.rings.free.pop().expect("there are enough");
                let bytes = self.rings.umem.bytes_mut(&mut chunk);
                bytes[..HEADER_LEN].copy_from_slice(&self.header);
                let address = self.rings.umem.give(chunk);
                self.rings.transmit.push(descriptor(address, HEADER_LEN, true));
                let segment = descriptor(payload + offset as u64, SEGMENT_LEN, false);
                self.rings.transmit.push(segment);
            }
        }
    }

    fn take_back_sent(&mut self) {
        let _ = self.rings.completion.look();
        let held_from = self.rings.umem.len() - self.held_len as u64;
        while let Some(address) = self.rings.completion.pop() {
            // The second segment of a chunk stands for both.
            let is_first = self.way == Way::Placed && address % 4_096 == 0;
            match address < held_from {
                true => self.rings.free.extend(self.rings.umem.take_back(address)),
                false if is_first => {}
                false => self.idle.extend(self.rings.umem.take_back(address)),
            }
        }
        self.rings.completion.release();
    }
}

/// Nanoseconds a segment, from the copy-in to the return of the send.
fn run(sender: &mut Sender, source: &[u8], lag: usize) -> f64 {
    while sender.sent < sender.written {
        sender.transmit();
    }
    let mut pieces = source.chunks_exact(WRITE_LEN).cycle();
    for _ in 0..lag {
        sender.write(pieces.next().expect("without end"));
    }
    let started = Instant::now();
    for _ in 0..WRITES_PER_RUN {
        sender.write(pieces.next().expect("without end"));
        sender.transmit();
    }
    started.elapsed().as_nanos() as f64 / (WRITES_PER_RUN * SEGMENTS) as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
#[ignore = "a measurement: run it by itself, optimised, as root"]
fn copies_on_the_way_out() {
    namespace::enter_by_thread().expect("root of the machine");
    let cpus = cpu::allowed().expect("known");
    cpu::pin(&cpus[cpus.len() - 1..]).expect("one of them");
    // A cable for each way, because a queue has one socket.
    let pairs: Vec<VethPair> = (0..WAYS.len())
        .map(|index| VethPair::new(&format!("n{index}"), &format!("f{index}")))
        .collect::<Result<_, _>>()
        .expect("root of the namespace");
    pairs.iter().for_each(|pair| pair.set_up().expect("root of the namespace"));
    for window in WINDOWS {
        let mut senders: Vec<Sender> =
            WAYS.iter().zip(&pairs).map(|(way, pair)| Sender::new(*way, pair, window)).collect();
        for (about, source_writes) in [("hot", 1), ("cold", COLD_WRITES)] {
            let source = vec![1; source_writes * WRITE_LEN];
            for (when, lag) in [("at once", 0), ("a window later", window - 1)] {
                let about = format!("window {window}, source {about}, sent {when}");
                compare(&mut senders, &source, lag, &about);
            }
        }
    }
}

/// All ways by turns, beside the first of them.
fn compare(senders: &mut [Sender], source: &[u8], lag: usize, about: &str) {
    let mut times = vec![Vec::new(); senders.len()];
    for _ in 0..RUNS {
        for (sender, times) in senders.iter_mut().zip(&mut times) {
            times.push(run(sender, source, lag));
        }
    }
    for (way, own) in WAYS.iter().zip(&times) {
        let mut ratios: Vec<f64> = own.iter().zip(&times[0]).map(|(own, one)| own / one).collect();
        let ratio = median(&mut ratios);
        println!(
            "{about}: {way:?} {:.0} ns a segment, {ratio:.3} of Gather ({:.3} to {:.3})",
            median(&mut own.clone()),
            ratios[RUNS / 4],
            ratios[RUNS * 3 / 4],
        );
    }
}
