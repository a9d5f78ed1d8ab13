//! Fragments of any order, length and content: bounded, and what comes out is what went in.

use crate::input::Input;
use batch::{Block, BlockPool, Chunk, PoolConfig};
use bytes::Bytes;
use counters::DropCounters;
use ip::{Reassembly, ReassemblyConfig, ReceivedFragment};
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

/// Runs one input: six bytes for each fragment.
pub fn run(bytes: &[u8]) {
    let pool = BlockPool::new(PoolConfig { limit_bytes: 1 << 20, ..PoolConfig::default() });
    let config = ReassemblyConfig {
        bytes_max: 100_000,
        source_bytes_max: 60_000,
        source_datagrams_max: 4,
        ..ReassemblyConfig::default()
    };
    let mut reassembly = Reassembly::new(config, RandomState::new());
    let mut drops = DropCounters::default();
    let mut now = Instant::from_millis(5);
    let mut input = Input::new(bytes);
    for _ in 0..256 {
        if input.is_empty() {
            break;
        }
        let flags = input.byte();
        let identification = u16::from(input.byte() % 6);
        let (offset, len) = (input.word() % 200, usize::from(input.word() % 1_500));
        let packet = fragment(identification, offset, len, flags & 1 != 0, flags & 2 != 0);
        if flags & 4 != 0 {
            now += Duration::from_millis(u64::from(flags) * 100);
        }
        let Ok(info) = ip::parse_fragment(&packet) else { continue };
        let chunk = Chunk::whole(Block::from(Bytes::from(packet)));
        let arrival = ip::Arrival { link_multicast: false, directed_broadcast: false };
        let sparse = flags & 8 != 0;
        let received = ReceivedFragment { interface: 0, packet: chunk, sparse, arrival };
        let outcome = reassembly.on_fragment(now, &info, received, &pool, &mut drops);
        if let Ok(Some(whole)) = outcome {
            let data = &whole.bytes()[20..];
            let wrong = data.first().map_or(0, |first| first ^ content(0));
            let agrees = |(at, byte): (usize, &u8)| byte ^ content(at) <= 1;
            assert!(data.iter().enumerate().all(agrees), "bytes of nobody ({wrong})");
        }
        while reassembly.poll_timeout().is_some_and(|due| due <= now) {
            if reassembly.poll_expired(now, &mut drops).is_none() {
                break;
            }
        }
        assert!(reassembly.held_bytes() <= config.bytes_max, "{}", reassembly.held_bytes());
        assert!(reassembly.len() <= config.source_datagrams_max);
    }
    drop(reassembly);
    assert_eq!(pool.counters().outstanding_bytes, 0);
}
