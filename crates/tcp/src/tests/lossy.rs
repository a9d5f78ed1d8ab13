//! A bulk transfer over a path that loses segments at random, in virtual time: how fast it is, and
//! what the time is spent on.

use super::harness::chunk;
use crate::sender::congestion::{Algorithm, CongestionConfig};
use crate::{Config, Connection, EcnMode, Parameters, Segment, State, TcpCounters};
use batch::{Block, BlockPool, Chunk, Multidata, PoolConfig};
use bytes::Bytes;
use std::collections::BTreeMap;
use time::{Duration, Instant};
use wire::{SeqNumber, TcpHeader};

/// Bytes per second of the slowest link: 1 Gbit/s.
const LINK_RATE: u64 = 125_000_000;

/// What the queue in front of it holds.
const QUEUE_BYTES: u64 = 1_000_000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

struct Path {
    now: Instant,
    random: Random,
    loss_permille: u64,
    one_way: Duration,
    /// When each direction's link has sent what it holds.
    free_at: [Instant; 2],
    flying: BTreeMap<(Instant, u64), (usize, TcpHeader, Vec<u8>)>,
    sent: u64,
    ends: [Connection; 2],
    out: Multidata,
    pool: BlockPool,
    received: u64,
}

fn parameters(port: u16, mss: u16, config: Config) -> Parameters {
    Parameters {
        local_port: port,
        remote_port: 1 - port,
        isn: SeqNumber(u32::MAX - 100_000),
        timestamp_offset: 0,
        mss_receive: mss,
        mss_send_max: mss,
        mss_default: 536,
        on_same_subnet: false,
        config: config.into(),
    }
}

impl Path {
    fn new(seed: u64, loss_permille: u64, rtt: Duration) -> Self {
        Self::with(Config::default(), seed, loss_permille, rtt, 1_460)
    }

    fn with(config: Config, seed: u64, loss_permille: u64, rtt: Duration, mss: u16) -> Self {
        let config =
            Config { send_buffer_bytes: 16 << 20, receive_buffer_bytes: 16 << 20, ..config };
        let now = Instant::from_millis(1_000);
        let mut client = Connection::connect(parameters(0, mss, config.clone()), now);
        let mut out = Multidata::default();
        client.poll_transmit(now, &mut out);
        client.on_transmitted(now, 1);
        let syn = super::harness::parse_all(&out).remove(0).header;
        let server = Connection::accept(parameters(1, mss, config), now, &syn);
        Self {
            now: now + rtt / 2,
            random: Random(seed),
            loss_permille,
            one_way: rtt / 2,
            free_at: [now; 2],
            flying: BTreeMap::new(),
            sent: 0,
            ends: [client, server],
            out,
            pool: BlockPool::new(PoolConfig::default()),
            received: 0,
        }
    }

    fn transmit(&mut self, index: usize) {
        loop {
            self.out.clear();
            let built = self.ends[index].poll_transmit(self.now, &mut self.out);
            if built == 0 {
                return;
            }
            self.ends[index].on_transmitted(self.now, built);
            for segment in super::harness::parse_all(&self.out) {
                let len = segment.payload.len() as u64 + 66;
                let start = self.free_at[index].max(self.now);
                let waits = (start - self.now).as_nanos() as u64;
                if waits > QUEUE_BYTES * 1_000_000_000 / LINK_RATE
                    || self.random.next() % 1_000 < self.loss_permille
                {
                    continue;
                }
                let sent_at = start + Duration::from_nanos(len * 1_000_000_000 / LINK_RATE);
                self.free_at[index] = sent_at;
                self.sent += 1;
                let key = (sent_at + self.one_way, self.sent);
                self.flying.insert(key, (1 - index, segment.header, segment.payload));
            }
        }
    }

    fn step(&mut self) {
        if matches!(self.ends[0].state(), State::Established) {
            while self.ends[0].send_room() >= 65_536 {
                self.ends[0].append(self.now, chunk(&[7; 65_536])).expect("room");
            }
        }
        while let Some(chunk) = self.ends[1].read_chunk(1 << 20) {
            self.received += chunk.len() as u64;
        }
        self.transmit(0);
        self.transmit(1);
        let deadlines = self.ends.iter().filter_map(Connection::poll_timeout);
        let arrival = self.flying.first_key_value().map(|(key, _)| key.0);
        let next = deadlines.chain(arrival).min().expect("something happens");
        self.now = self.now.max(next);
        let now = self.now;
        let mut touched = [false; 2];
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= now) {
            let (to, header, payload) = entry.remove();
            let segment = Segment {
                header: &header,
                payload: Some(Chunk::whole(Block::from(Bytes::from(payload)))),
                sparse: false,
                segment_len: 0,
                congestion_experienced: false,
            };
            let _ = self.ends[to].on_segment(now, segment, &self.pool);
            touched[to] = true;
        }
        for (end, touched) in self.ends.iter_mut().zip(touched) {
            if touched {
                end.on_batch_end(now);
            }
            end.on_timeout(now);
        }
    }

    /// Bytes per second, and what the sender counted.
    fn run(mut self, duration: Duration) -> (u64, TcpCounters) {
        let end = self.now + duration;
        while self.now < end {
            self.step();
        }
        (self.received * 1_000 / duration.as_millis() as u64, *self.ends[0].counters())
    }
}

/// Mathis et al.: `MSS / RTT * sqrt(3 / 2p)`, which Reno reaches where losses are single and every
/// one of them is repaired without a timeout.
fn reno_rate(loss_permille: u64, rtt: Duration) -> u64 {
    let loss = loss_permille as f64 / 1_000.0;
    (1_448.0 / rtt.as_secs_f64() * (1.5 / loss).sqrt()) as u64
}

/// The rate over paths that lose so many per mille, in tenths of Reno's: at least and at most; and which part of the
/// time timeouts may take at most.
fn check(loss_permille: u64, tenths: core::ops::RangeInclusive<u64>, waiting_divisor: u32) {
    for rtt_ms in [2, 20, 100] {
        let rtt = Duration::from_millis(rtt_ms);
        let (mut bytes, mut timeouts, runs) = (0, 0, 6);
        for seed in 0..runs {
            let path = Path::new(seed, loss_permille, rtt);
            let (rate, counters) = path.run(Duration::from_secs(20));
            bytes += rate;
            timeouts += counters.retransmission_timeouts;
        }
        let (rate, expected) = (bytes / runs, reno_rate(loss_permille, rtt));
        println!("{rtt_ms} ms: {rate} B/s of {expected}, {timeouts} timeouts");
        let bounds = expected * tenths.start()..=expected * tenths.end();
        assert!(bounds.contains(&(rate * 10)), "{rtt_ms} ms: {rate} B/s of {expected}");
        let waited = (rtt + Duration::from_millis(200)) * timeouts as u32;
        let waited_max = Duration::from_secs(20 * runs) / waiting_divisor;
        assert!(waited < waited_max, "{rtt_ms} ms: {waited:?} waited");
    }
}

// RFC 8985, 3.2: with lost retransmissions and lost tails found by RACK-TLP, no path is ruled by the
// retransmission timer; and no mistake is taken back that was none, or the rate would be too good.
// (A window of four segments that loses its retransmission, too, has often nothing left that could tell.)
#[test]
fn five_per_cent_of_loss_is_not_ruled_by_timeouts() {
    check(50, 5..=10, 6);
}

// RFC 9438, 4.3: in the Reno-friendly region CUBIC is as fast as Reno is. It was up to a fifth faster when limited
// transmit counted for what a loss reduces (RFC 5681, 3.2, step 2).
#[test]
fn two_per_cent_of_loss_leave_what_they_leave_to_reno() {
    check(20, 9..=11, 100);
}

// Numbers that were current half of the sequence space ago lie ahead again. A connection that took its initial number
// for one of them kept no account of what it sent from two gigabytes on, and did not repair what was lost of it.
#[test]
fn losses_are_repaired_beyond_half_of_the_sequence_space() {
    // Two segments of this length, which is what the default begins with, draw no three duplicate ACKs.
    let usual = || Config { receive_buffer_bytes_initial: 4 << 20, ..Config::default() };
    let with = |algorithm| {
        let congestion = CongestionConfig { algorithm, ..usual().congestion };
        Config { congestion, ..usual() }
    };
    let configs = [
        usual(),
        with(Algorithm::Bbr),
        Config { sack: false, ..with(Algorithm::NewReno) },
        Config { timestamps: false, ecn: EcnMode::Request, ..usual() },
    ];
    for (index, config) in configs.into_iter().enumerate() {
        let mut path = Path::with(config, 1, 0, Duration::from_millis(2), 65_000);
        let (mut moved_at, mut received) = (path.now, 0);
        while path.received < 9 << 29 {
            // For an eighth of the way something is lost; before the second and the fourth time nothing was for long.
            path.loss_permille =
                u64::from(matches!(path.received >> 26, 0..4 | 33..37 | 48..52 | 65..69)) * 5;
            path.step();
            if path.received > received {
                (moved_at, received) = (path.now, path.received);
            }
            let silence = path.now - moved_at;
            let info = || path.ends[0].info(path.now);
            assert!(silence < Duration::from_secs(3), "{index}: {received} bytes, {:?}", info());
        }
        let counters = path.ends[0].counters();
        assert!(counters.fast_recoveries >= 8, "{index}: {counters:?}");
        assert!(counters.retransmission_timeouts < 20, "{index}: {counters:?}");
    }
}
