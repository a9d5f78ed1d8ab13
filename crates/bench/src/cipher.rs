//! What a tunnel's transform does alone, on one core: the limit that the tunnel is held against.
//!
//! A batch of equal packets, whose payload lies in one block as TCP's does, is sealed into a block
//! over and over, and what was sealed is opened, batch by batch. No system call is made in between but
//! to read the clock, which is the thread's CPU time: who else runs on the machine does not count.

use crate::{Attempt, Failure};
use batch::{Attributes, Block, Limits, Multidata};
use device::Transform;
use device::transform::Null;
use linux::cpu::thread_time;
use linux::{ChaChaKeys, ChaChaPoly};
use std::time::Duration;

/// Headers of IPv4 and of TCP with timestamps.
const HEADER_LEN: usize = 52;

/// Bytes of a batch: what the tunnel lowers at once.
const BATCH_BYTES: usize = 128 << 10;

/// What one transform does alone, in 10^9 bits of packets a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alone {
    /// The transform.
    pub name: &'static str,
    /// Sealing.
    pub seal_gbps: f64,
    /// Opening.
    pub open_gbps: f64,
}

/// Measures each transform with packets of `len_bytes` for `time`, in `rounds` that alternate, and
/// gives the medians.
///
/// # Errors
/// A sentence, where there are no random bytes for keys.
pub fn measure(len_bytes: usize, time: Duration, rounds: usize) -> Result<Vec<Alone>, Failure> {
    let mut runs: [Vec<(f64, f64)>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..rounds.max(1) {
        let keys = ChaChaKeys::generate().attempt(|| "cannot make keys")?;
        runs[0].push(run(&mut Null, &mut Null, len_bytes, time)?);
        let mut far = ChaChaPoly::new(&keys.swapped());
        runs[1].push(run(&mut ChaChaPoly::new(&keys), &mut far, len_bytes, time)?);
    }
    let median = |figures: Vec<f64>| crate::statistics::median(&figures).unwrap_or(0.0);
    let names = ["null", "chacha20poly1305"];
    let alone = names.into_iter().zip(&runs).map(|(name, runs)| Alone {
        name,
        seal_gbps: median(runs.iter().map(|(seal, _)| *seal).collect()),
        open_gbps: median(runs.iter().map(|(_, open)| *open).collect()),
    });
    Ok(alone.collect())
}

/// One run: Gbit/s of sealing and of opening.
fn run(
    near: &mut dyn Transform,
    far: &mut dyn Transform,
    len_bytes: usize,
    time: Duration,
) -> Result<(f64, f64), Failure> {
    let batch = packets(len_bytes)?;
    let step = len_bytes + near.overhead_bytes();
    let mut block = vec![0; batch.len() * step];
    let (mut sealing, mut opening, mut rounds) = (Duration::ZERO, Duration::ZERO, 0_u32);
    while sealing + opening < time {
        let started = thread_time();
        for (packet, out) in batch.packets().zip(block.chunks_mut(step)) {
            let sealed = near.seal(&packet, out);
            if sealed != Some(step) {
                return Err(Failure::new("a packet was not sealed"));
            }
        }
        let sealed = thread_time();
        for datagram in block.chunks_mut(step) {
            far.open(datagram).map_err(|reason| {
                Failure::new(format!("a sealed packet was not opened: {}", reason.name()))
            })?;
        }
        (sealing, opening) = (sealing + (sealed - started), opening + (thread_time() - sealed));
        rounds += 1;
    }
    let gbit = f64::from(rounds) * (batch.len() * len_bytes) as f64 * 8.0 / 1e9;
    Ok((gbit / sealing.as_secs_f64(), gbit / opening.as_secs_f64()))
}

/// A batch of equal packets.
fn packets(len_bytes: usize) -> Result<Multidata, Failure> {
    let too_short = || Failure::new(format!("a packet has {HEADER_LEN} bytes of headers and more"));
    let payload_len = len_bytes.checked_sub(HEADER_LEN).filter(|len| *len > 0);
    let payload_len = payload_len.ok_or_else(too_short)?;
    let count = (BATCH_BYTES / len_bytes).max(1);
    let limits = Limits { packets: count, payload_bytes: usize::MAX, ..Limits::default() };
    let mut batch = Multidata::new(batch::HeaderLayout::default(), limits);
    let block = Block::from(bytes::Bytes::from(vec![0x5a; count * payload_len]));
    for index in 0..count {
        let header = batch.push_packet(HEADER_LEN, Attributes::default()).ok_or_else(too_short)?;
        header.fill(0x45);
        if !batch.append_span(&block, index * payload_len, payload_len) {
            return Err(too_short());
        }
    }
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_transforms_are_measured_and_headers_alone_are_no_packet() {
        let measured = measure(1_448, Duration::from_millis(5), 1).expect("they work");
        assert_eq!(measured.len(), 2);
        assert!(measured.iter().all(|alone| alone.seal_gbps > 0.0 && alone.open_gbps > 0.0));
        assert!(measure(HEADER_LEN, Duration::from_millis(1), 1).is_err());
    }
}
