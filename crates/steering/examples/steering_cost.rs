//! What steering costs: nanoseconds a frame for hashing, classifying, splitting and a soft ring, and the
//! soft ring beside a channel without a lock.
//!
//! `cargo run --release -p multidata-steering --example steering_cost`

use batch::{Block, Frame, ReceiveBatch, ReceivedChecksum};
use bytes::Bytes;
use core::net::SocketAddr;
use device::Medium;
use std::hint::black_box;
use std::sync::mpsc::sync_channel;
use std::time::Instant;
use steering::{
    Home, Lane, Policy, SoftRing, SoftRingConfig, SoftRingSet, Spread, classify, toeplitz,
};
use wire::{Ipv4Repr, SeqNumber, TcpFlags, TcpHeader, TcpOptions, protocol};

/// Short runs, of which the fastest counts: the others were disturbed.
const RUNS: usize = 400;

fn main() {
    let packets: Vec<Vec<u8>> = (0..16).map(packet).collect();
    println!("nanoseconds each, the fastest of {RUNS} runs");
    reading(&packets);
    splitting(&packets);
    soft_rings(&packets);
    channels(&packets);
}

fn reading(packets: &[Vec<u8>]) {
    let ends: Vec<_> = (0..16).map(remote).collect();
    let local = SocketAddr::from(([10, 0, 0, 1], 80));
    row(
        "hash, IPv4",
        measure(1 << 11, |n| {
            for index in 0..n {
                black_box(toeplitz::hash(black_box(ends[index % 16]), local));
            }
        }),
    );
    let six: Vec<SocketAddr> = (0..16_u16)
        .map(|flow| SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, flow], flow)))
        .collect();
    row(
        "hash, IPv6",
        measure(1 << 11, |n| {
            for index in 0..n {
                black_box(toeplitz::hash(black_box(six[index % 16]), six[0]));
            }
        }),
    );
    row(
        "parse alone, a segment",
        measure(1 << 11, |n| {
            for index in 0..n {
                let _ = black_box(ip::parse(black_box(&packets[index % 16])));
            }
        }),
    );
    row(
        "classify a segment",
        measure(1 << 11, |n| {
            for index in 0..n {
                black_box(classify(black_box(&packets[index % 16]), Medium::Ip));
            }
        }),
    );
}

fn splitting(packets: &[Vec<u8>]) {
    let frames = 64;
    for (name, layout, homes, flows) in [
        ("split R1S0F0 (bypass)", "R1S0F0", 1, 1),
        ("split R1S2F1, one flow", "R1S2F1", 2, 1),
        ("split R1S2F1, 16 flows in turn", "R1S2F1", 2, 16),
        ("split R2S0F0 (spread by device), 16 flows", "R2S0F0", 2, 16),
    ] {
        let spread = Spread::new(layout.parse().expect(layout), Policy::Flow, homes).expect(layout);
        let mut set = SoftRingSet::new(spread, 0);
        let source = Source::new(packets, frames, flows);
        let fill = measure(1 << 11, |n| {
            for _ in 0..n / frames {
                black_box(source.batch());
            }
        });
        let all = measure(1 << 11, |n| {
            for _ in 0..n / frames {
                let mut batch = source.batch();
                set.split(&mut batch, Medium::Ip);
                set.lanes_mut().iter_mut().for_each(|lane| lane.batch_mut().clear());
            }
        });
        row(name, all - fill);
    }
}

fn soft_rings(packets: &[Vec<u8>]) {
    for frames in [1, 4, 32, 64] {
        let source = Source::new(packets, frames, 1);
        let ring = SoftRing::new(SoftRingConfig::default());
        let mut out = ReceiveBatch::new();
        let fill = measure(1 << 11, |n| {
            for _ in 0..n / frames {
                black_box(source.lane());
            }
        });
        let all = measure(1 << 11, |n| {
            for _ in 0..n / frames {
                source.lane().push_to(&ring);
                ring.drain(256, &mut out);
                out.clear();
            }
        });
        row(&format!("soft ring in and out, one thread, batches of {frames}"), all - fill);
    }
}

/// As between soft rings, to see what their lock costs.
fn channels(packets: &[Vec<u8>]) {
    for frames in [1, 4, 32, 64] {
        let source = Source::new(packets, frames, 1);
        let (sender, receiver) = sync_channel::<Lane>(16);
        let fill = measure(1 << 11, |n| {
            for _ in 0..n / frames {
                black_box(source.lane());
            }
        });
        let all = measure(1 << 11, |n| {
            for _ in 0..n / frames {
                assert!(sender.try_send(source.lane()).is_ok());
                black_box(receiver.try_recv().expect("just sent"));
            }
        });
        row(&format!("channel without a lock, in and out, batches of {frames}"), all - fill);
    }
}

fn row(name: &str, ns: f64) {
    println!("{ns:8.1}  {name}");
}

fn measure(count: usize, mut work: impl FnMut(usize)) -> f64 {
    let runs = (0..RUNS).map(|_| {
        let start = Instant::now();
        work(count);
        start.elapsed().as_nanos() as f64 / count as f64
    });
    runs.fold(f64::INFINITY, f64::min)
}

/// Batches of segments in one block.
struct Source {
    block: Block,
    frames: Vec<Frame>,
}

impl Source {
    fn new(packets: &[Vec<u8>], frames: usize, flows: usize) -> Self {
        let bytes: Vec<u8> = (0..frames).flat_map(|index| packets[index % flows].clone()).collect();
        let len = packets[0].len() as u32;
        let frame = |index| Frame {
            block: 0,
            offset: index * len,
            len,
            checksum: ReceivedChecksum::Verified,
            segmented: None,
        };
        let frames = (0..frames as u32).map(frame).collect();
        Self { block: Block::from(Bytes::from(bytes)), frames }
    }

    fn batch(&self) -> ReceiveBatch {
        let mut batch = ReceiveBatch::new();
        batch.add_block(self.block.clone());
        for frame in &self.frames {
            assert!(batch.push_frame(*frame));
        }
        batch
    }

    fn lane(&self) -> Lane {
        let mut lane = Lane::new(Home::FIRST);
        let batch = self.batch();
        for index in 0..self.frames.len() {
            lane.share_frame(&batch, index, 7);
        }
        lane
    }
}

fn remote(flow: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 9], 40_000 + flow))
}

/// A full segment of a flow.
fn packet(flow: u16) -> Vec<u8> {
    let header = TcpHeader {
        source_port: remote(flow).port(),
        destination_port: 80,
        sequence: SeqNumber(1),
        acknowledgment: SeqNumber(1),
        flags: TcpFlags::ACK,
        window: 1_000,
        urgent: 0,
        options: TcpOptions::default(),
    };
    let mut packet = vec![0; 1_500];
    let repr = Ipv4Repr {
        dscp_ecn: 0,
        identification: 7,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset_bytes: 0,
        hop_limit: 64,
        protocol: protocol::TCP,
        source: [10, 0, 0, 9].into(),
        destination: [10, 0, 0, 1].into(),
        payload_len: 1_480,
    };
    repr.emit(&mut packet);
    header.emit(&mut packet[20..]).expect("room");
    packet
}
