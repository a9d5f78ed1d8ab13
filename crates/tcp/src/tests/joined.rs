//! Two connections back to back over a network that loses, reorders and duplicates, in virtual time,
//! thousands of seeds; and devices that take any part of a batch.

use super::harness::{chunk, stream};
use crate::sender::congestion::{Algorithm, CongestionConfig};
use crate::{Config, Connection, Parameters, PathProbing, Segment, State};
use batch::{Block, BlockPool, Chunk, Limits, Multidata, PoolConfig};
use bytes::Bytes;
use time::{Duration, Instant};
use wire::{SeqNumber, TcpHeader};

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

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[derive(Clone, Copy, Debug)]
struct Network {
    loss_percent: u64,
    duplicate_percent: u64,
    jitter_us: u64,
    delay_us: u64,
    /// Whether devices take only a part of what is built.
    partial: bool,
}

struct End {
    connection: Option<Connection>,
    to_send: Vec<u8>,
    appended: usize,
    shut: bool,
    received: Vec<u8>,
    out: Multidata,
}

struct Flying {
    at: Instant,
    order: u64,
    to: usize,
    header: TcpHeader,
    payload: Vec<u8>,
}

struct World {
    now: Instant,
    random: Random,
    network: Network,
    ends: [End; 2],
    flying: Vec<Flying>,
    sent: u64,
    pool: BlockPool,
    configs: [Config; 2],
}

fn config(random: &mut Random) -> Config {
    let algorithm = if random.percent(50) { Algorithm::Cubic } else { Algorithm::NewReno };
    let buffers = [3_000, 20_000, 70_000, 300_000];
    let probings = [PathProbing::Off, PathProbing::OnBlackHole, PathProbing::Always];
    Config {
        path_probing: probings[random.below(3) as usize],
        sack: random.percent(60),
        timestamps: random.percent(60),
        window_scaling: random.percent(60),
        nodelay: random.percent(30),
        congestion: CongestionConfig { algorithm, ..CongestionConfig::default() },
        send_buffer_bytes: buffers[random.below(4) as usize],
        receive_buffer_bytes: buffers[random.below(4) as usize],
        deferred_acks_max_local: 1 + random.below(8) as u8,
        stretch_acks: random.percent(70),
        // Longer than the longest RTO, or a lost last ACK is a reset connection.
        time_wait: Duration::from_secs(3_000),
        ..Config::default()
    }
}

impl World {
    fn new(seed: u64, network: Network, len_bytes: u64) -> Self {
        let mut random = Random(seed);
        let configs = [config(&mut random), config(&mut random)];
        let now = Instant::from_millis(random.below(1 << 33));
        let lens = [random.below(len_bytes), random.below(len_bytes)];
        let packets = 1 + random.below(40) as usize;
        let blocks = [1, 2, 5, 64][random.below(4) as usize];
        let limits = Limits { packets, blocks, ..Limits::default() };
        let end = |len: u64, start: usize| {
            let mut out = Multidata::default();
            out.set_limits(limits);
            End {
                connection: None,
                to_send: stream(start..start + len as usize),
                appended: 0,
                shut: false,
                received: Vec::new(),
                out,
            }
        };
        let mut world = Self {
            now,
            ends: [end(lens[0], 0), end(lens[1], 5_000_000)],
            random,
            network,
            flying: Vec::new(),
            sent: 0,
            pool: BlockPool::new(PoolConfig::default()),
            configs,
        };
        let parameters = world.parameters(0);
        let mut connection = Connection::connect(parameters, now);
        // Nothing, or two to forty segments.
        connection.set_super_frame_len(world.random.below(4) as u16 * 7_000);
        world.ends[0].connection = Some(connection);
        world
    }

    fn parameters(&mut self, index: usize) -> Parameters {
        Parameters {
            local_port: index as u16,
            remote_port: 1 - index as u16,
            isn: SeqNumber(self.random.next() as u32),
            timestamp_offset: self.random.next() as u32,
            mss_default: crate::MSS_DEFAULT_IPV4,
            mss_receive: 1_460,
            mss_send_max: 500 + self.random.below(961) as u16,
            on_same_subnet: true,
            config: self.configs[index].clone().into(),
        }
    }

    /// Runs applications and devices until nothing moves without time.
    fn settle(&mut self) {
        for index in 0..2 {
            self.run_application(index);
            self.run_device(index);
        }
    }

    fn run_application(&mut self, index: usize) {
        let (now, random) = (self.now, &mut self.random);
        let end = &mut self.ends[index];
        let Some(connection) = &mut end.connection else { return };
        while end.appended < end.to_send.len() && connection.send_room() > 0 {
            let rest = end.to_send.len() - end.appended;
            let len = (1 + random.below(5_000) as usize).min(rest).min(connection.send_room());
            let bytes = &end.to_send[end.appended..end.appended + len];
            let piece = if random.percent(50) {
                chunk(bytes)
            } else {
                let mut block = self.pool.allocate(len).expect("room");
                block.bytes_mut()[..len].copy_from_slice(bytes);
                Chunk::new(block.freeze(), 0..len)
            };
            connection.append(now, piece).expect("room");
            end.appended += len;
        }
        if end.appended == end.to_send.len() && !end.shut {
            end.shut = true;
            connection.shutdown_write();
        }
        let mut buffer = vec![0; 1 + random.below(20_000) as usize];
        let count = connection.read(&mut buffer).expect("no error");
        end.received.extend_from_slice(&buffer[..count]);
        if random.percent(20)
            && let Some(chunk) = connection.read_chunk(1 + random.below(3_000) as usize)
        {
            end.received.extend_from_slice(chunk.bytes());
        }
    }

    fn run_device(&mut self, index: usize) {
        for _ in 0..200 {
            let end = &mut self.ends[index];
            let Some(connection) = &mut end.connection else { return };
            end.out.clear();
            let wants = connection.wants_transmit(self.now);
            let built = connection.poll_transmit(self.now, &mut end.out);
            assert_eq!(wants, built > 0);
            if built == 0 {
                return;
            }
            let taken = match self.network.partial {
                true => self.random.below(built as u64 + 1) as usize,
                false => built,
            };
            connection.on_transmitted(self.now, taken);
            let sent = super::harness::parse_all(&end.out);
            for segment in sent.into_iter().take(taken) {
                self.fly(1 - index, segment.header, segment.payload);
            }
        }
    }

    fn fly(&mut self, to: usize, header: TcpHeader, payload: Vec<u8>) {
        let copies = u64::from(!self.random.percent(self.network.loss_percent))
            + u64::from(self.random.percent(self.network.duplicate_percent));
        for _ in 0..copies {
            let delay = self.network.delay_us + self.random.below(self.network.jitter_us);
            self.sent += 1;
            self.flying.push(Flying {
                at: self.now + Duration::from_micros(delay),
                order: self.sent,
                to,
                header,
                payload: payload.clone(),
            });
        }
    }

    fn deliver(&mut self, flying: Flying) {
        let now = self.now;
        if self.ends[flying.to].connection.is_none() {
            if flying.header.flags != wire::TcpFlags::SYN {
                return;
            }
            let parameters = self.parameters(flying.to);
            self.ends[flying.to].connection =
                Some(Connection::accept(parameters, now, &flying.header));
            return;
        }
        let sparse = self.random.percent(10);
        let Some(connection) = &mut self.ends[flying.to].connection else { return };
        let segment = Segment {
            header: &flying.header,
            payload: Some(Chunk::whole(Block::from(Bytes::from(flying.payload)))),
            sparse,
            segment_len: 0,
            congestion_experienced: false,
        };
        let _ = connection.on_segment(now, segment, &self.pool);
    }

    fn is_done(&self) -> bool {
        self.ends.iter().all(|end| {
            end.connection.as_ref().is_some_and(|connection| {
                matches!(connection.state(), State::Closed | State::TimeWait)
            })
        })
    }

    /// One step in time. `false` where nothing is left to happen.
    fn step(&mut self) -> bool {
        self.settle();
        let arrival = self.flying.iter().map(|flying| flying.at).min();
        let deadline = self
            .ends
            .iter()
            .filter_map(|end| end.connection.as_ref().and_then(Connection::poll_timeout))
            .min();
        let Some(next) = arrival.into_iter().chain(deadline).min() else { return false };
        self.now = self.now.max(next);
        let now = self.now;
        let (mut due, later): (Vec<_>, Vec<_>) =
            core::mem::take(&mut self.flying).into_iter().partition(|flying| flying.at <= now);
        self.flying = later;
        due.sort_by_key(|flying| (flying.at, flying.order));
        for flying in due {
            self.deliver(flying);
        }
        for end in &mut self.ends {
            if let Some(connection) = &mut end.connection {
                connection.on_batch_end(now);
                connection.on_timeout(now);
            }
        }
        true
    }

    fn run(&mut self, seed: u64) {
        let start = self.now;
        let mut steps = 0;
        while !self.is_done() {
            steps += 1;
            let moves = self.step();
            let context = || {
                format!(
                    "seed {seed} {:?} after {steps} steps, {:?}: {:?}",
                    self.network,
                    self.now - start,
                    self.ends.each_ref().map(|end| {
                        (
                            end.received.len(),
                            end.appended,
                            end.connection.as_ref().map(|c| (c.state(), c.error(), *c.counters())),
                        )
                    })
                )
            };
            assert!(moves, "stuck: {}", context());
            assert!(steps < 200_000, "does not end: {}", context());
        }
        self.run_application(0);
        self.run_application(1);
        for index in 0..2 {
            while self.ends[index].connection.as_ref().is_some_and(|c| c.readable_len() > 0) {
                self.run_application(index);
            }
            let (expected, received) = (&self.ends[1 - index].to_send, &self.ends[index].received);
            assert_eq!(expected.len(), received.len(), "seed {seed}: length at end {index}");
            assert!(expected == received, "seed {seed}: bytes at end {index}");
        }
        let bytes = self.ends.each_ref().map(|end| end.to_send.len() as u64);
        for index in 0..2 {
            let counters = self.ends[index].connection.as_ref().map(|c| *c.counters());
            let counters = counters.expect("a connection");
            assert_eq!(counters.bytes_received, bytes[1 - index], "seed {seed}");
            if self.network.loss_percent == 0
                && self.network.duplicate_percent == 0
                && self.network.jitter_us <= 1
            {
                // A probe takes an ACK that is held back for a silence (RFC 8985, 7.2).
                let retransmitted = counters.retransmitted_segments;
                let probes = counters.tail_loss_probes;
                assert!(retransmitted <= probes, "seed {seed}: nothing was lost");
                assert_eq!(counters.retransmission_timeouts, 0, "seed {seed}");
            }
        }
    }
}

fn run_seeds(seeds: core::ops::Range<u64>, network: Network, len_bytes: u64) {
    for seed in seeds {
        World::new(seed, network, len_bytes).run(seed);
    }
}

const PERFECT: Network = Network {
    loss_percent: 0,
    duplicate_percent: 0,
    jitter_us: 1,
    delay_us: 5_000,
    partial: false,
};

#[test]
fn a_perfect_network_needs_no_retransmission() {
    run_seeds(0..300, PERFECT, 200_000);
}

#[test]
fn any_part_of_a_batch_may_be_taken() {
    run_seeds(0..500, Network { partial: true, ..PERFECT }, 100_000);
}

#[test]
fn loss_reordering_and_duplication_lose_no_byte() {
    let network = Network {
        loss_percent: 5,
        duplicate_percent: 3,
        jitter_us: 4_000,
        delay_us: 2_000,
        partial: false,
    };
    run_seeds(0..700, network, 60_000);
}

#[test]
fn heavy_loss_with_partial_takes_ends_all_the_same() {
    let network = Network {
        loss_percent: 20,
        duplicate_percent: 10,
        jitter_us: 20_000,
        delay_us: 100,
        partial: true,
    };
    run_seeds(10_000..10_500, network, 20_000);
}
