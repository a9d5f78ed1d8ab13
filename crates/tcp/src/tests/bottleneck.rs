//! Several connections over one link with a rate, a delay and a buffer, in virtual time: what
//! congestion control makes of it.
//!
//! ```text
//!   senders -> [ buffer, dropped at its end or marked ] -> rate -> delay -> receivers
//!              <-------------------------- delay ------------------------
//! ```

use super::harness::parse_all;
use crate::sender::congestion::{Algorithm, CongestionConfig};
use crate::{Config, Connection, EcnMode, Pacing, Parameters, Segment};
use batch::{Block, BlockPool, Chunk, Multidata, PoolConfig};
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use time::{Duration, Instant};
use wire::{SeqNumber, TcpHeader};

const MSS: u16 = 1_448;

/// IP and TCP headers with timestamps.
const HEADER_LEN: u64 = 52;

/// The link.
#[derive(Clone, Copy, Debug)]
struct Link {
    bytes_per_second: u64,
    /// Both ways together.
    round_trip: Duration,
    buffer_bytes: u64,
    /// Lost beside what the buffer cannot hold.
    loss_per_mille: u64,
    /// ECN-capable packets are marked where more than this waits.
    mark_above_bytes: u64,
}

impl Link {
    const fn mbit(mbit: u64, round_trip_ms: u64, buffer_bytes: u64) -> Self {
        Self {
            bytes_per_second: mbit * 125_000,
            round_trip: Duration::from_millis(round_trip_ms),
            buffer_bytes,
            loss_per_mille: 0,
            mark_above_bytes: u64::MAX,
        }
    }

    /// Bytes that fill the path without a queue.
    fn bandwidth_delay_product(&self) -> u64 {
        self.bytes_per_second * self.round_trip.as_millis() as u64 / 1_000
    }
}

struct Packet {
    flow: usize,
    to_receiver: bool,
    header: TcpHeader,
    payload: Bytes,
    marked: bool,
}

struct Flow {
    sender: Connection,
    receiver: Option<Connection>,
    received_bytes: u64,
}

struct World {
    now: Instant,
    link: Link,
    link_free_at: Instant,
    flows: Vec<Flow>,
    packets: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    flying: Vec<Option<Packet>>,
    free: Vec<usize>,
    order: u64,
    random: u64,
    pool: BlockPool,
    out: Multidata,
    data: Block,
    overflows: u64,
    queue_bytes_max: u64,
}

impl World {
    fn new(link: Link) -> Self {
        Self {
            now: Instant::from_millis(10_000),
            link,
            link_free_at: Instant::ZERO,
            flows: Vec::new(),
            packets: BinaryHeap::new(),
            flying: Vec::new(),
            free: Vec::new(),
            order: 0,
            random: 7,
            pool: BlockPool::new(PoolConfig::default()),
            out: Multidata::default(),
            data: Block::from(Bytes::from(vec![0x5a; 64 << 10])),
            overflows: 0,
            queue_bytes_max: 0,
        }
    }

    fn parameters(index: usize, to_receiver: bool, config: &Arc<Config>) -> Parameters {
        let ports = (1_000 + index as u16, 80);
        let (local_port, remote_port) = if to_receiver { ports } else { (ports.1, ports.0) };
        Parameters {
            local_port,
            remote_port,
            isn: SeqNumber(index as u32 * 77_777 + u32::from(local_port)),
            timestamp_offset: index as u32,
            mss_receive: MSS + 12,
            mss_send_max: MSS + 12,
            mss_default: crate::MSS_DEFAULT_IPV4,
            on_same_subnet: false,
            config: Arc::clone(config),
        }
    }

    fn add_flow(&mut self, config: &Arc<Config>) {
        let parameters = Self::parameters(self.flows.len(), true, config);
        let sender = Connection::connect(parameters, self.now);
        self.flows.push(Flow { sender, receiver: None, received_bytes: 0 });
    }

    fn percent(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % 1_000
    }

    fn transmit(&mut self, flow: usize, to_receiver: bool) {
        loop {
            let end = &mut self.flows[flow];
            let connection = match to_receiver {
                true => &mut end.sender,
                false => match &mut end.receiver {
                    Some(receiver) => receiver,
                    None => return,
                },
            };
            self.out.clear();
            let built = connection.poll_transmit(self.now, &mut self.out);
            if built == 0 {
                return;
            }
            connection.on_transmitted(self.now, built);
            for sent in parse_all(&self.out) {
                let len = sent.payload.len() as u64 + HEADER_LEN;
                let mut marked = false;
                let half = self.link.round_trip / 2;
                let arrives_at = if to_receiver {
                    let waits = self.link_free_at - self.now;
                    let queue_bytes =
                        waits.as_nanos() as u64 * self.link.bytes_per_second / 1_000_000_000;
                    if queue_bytes + len > self.link.buffer_bytes {
                        self.overflows += 1;
                        continue;
                    }
                    self.queue_bytes_max = self.queue_bytes_max.max(queue_bytes + len);
                    if self.percent() < self.link.loss_per_mille {
                        continue;
                    }
                    marked = sent.ecn == 2 && queue_bytes > self.link.mark_above_bytes;
                    let takes_ns = len * 1_000_000_000 / self.link.bytes_per_second;
                    self.link_free_at =
                        self.link_free_at.max(self.now) + Duration::from_nanos(takes_ns);
                    self.link_free_at + half
                } else {
                    self.now + half
                };
                let payload = Bytes::from(sent.payload);
                let packet = Packet { flow, to_receiver, header: sent.header, payload, marked };
                let slot = self.free.pop().unwrap_or(self.flying.len());
                if slot == self.flying.len() {
                    self.flying.push(None);
                }
                self.flying[slot] = Some(packet);
                self.order += 1;
                self.packets.push(Reverse((arrives_at, self.order, slot)));
            }
        }
    }

    fn fill(&mut self, flow: usize) {
        let sender = &mut self.flows[flow].sender;
        while sender.send_room() >= self.data.len() {
            let chunk = Chunk::whole(self.data.clone());
            sender.append(self.now, chunk).expect("room");
        }
    }

    fn deliver(&mut self, packet: Packet) {
        let flow = &mut self.flows[packet.flow];
        let connection = if packet.to_receiver {
            if flow.receiver.is_none() {
                let config = Arc::new(Config { ecn: EcnMode::Accept, ..Config::default() });
                let parameters = Self::parameters(packet.flow, false, &config);
                flow.receiver = Some(Connection::accept(parameters, self.now, &packet.header));
                return;
            }
            flow.receiver.as_mut().expect("made before")
        } else {
            &mut flow.sender
        };
        let payload = Some(Chunk::whole(Block::from(packet.payload)));
        let segment = Segment {
            header: &packet.header,
            payload: payload.filter(|chunk| !chunk.is_empty()),
            sparse: false,
            segment_len: 0,
            congestion_experienced: packet.marked,
        };
        let _ = connection.on_segment(self.now, segment, &self.pool);
        connection.on_batch_end(self.now);
        while let Some(chunk) = connection.read_chunk(usize::MAX) {
            flow.received_bytes += chunk.len() as u64;
        }
    }

    /// Runs for `duration`, with all senders always having data.
    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        for flow in 0..self.flows.len() {
            self.fill(flow);
            self.transmit(flow, true);
        }
        loop {
            let arrival = self.packets.peek().map(|Reverse((at, ..))| *at);
            let timers = self.flows.iter().flat_map(|flow| {
                let receiver = flow.receiver.as_ref().and_then(Connection::poll_timeout);
                [flow.sender.poll_timeout(), receiver]
            });
            let next = timers.flatten().chain(arrival).min().expect("something happens");
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            let touched = match arrival {
                Some(at) if at <= self.now => {
                    let Reverse((_, _, slot)) = self.packets.pop().expect("peeked");
                    let packet = self.flying[slot].take().expect("flying");
                    self.free.push(slot);
                    let flow = packet.flow;
                    self.deliver(packet);
                    flow..flow + 1
                }
                _ => 0..self.flows.len(),
            };
            for flow in touched {
                let now = self.now;
                let end = &mut self.flows[flow];
                end.sender.on_timeout(now);
                if let Some(receiver) = &mut end.receiver {
                    receiver.on_timeout(now);
                }
                self.transmit(flow, false);
                self.fill(flow);
                self.transmit(flow, true);
            }
        }
    }

    /// What each flow received in `duration`, as a share of the link's rate.
    fn shares(&mut self, duration: Duration) -> Vec<f64> {
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.received_bytes).collect();
        self.run(duration);
        let possible = self.link.bytes_per_second as f64 * duration.as_secs_f64()
            / (1.0 + HEADER_LEN as f64 / f64::from(MSS));
        let received = self.flows.iter().zip(before);
        received.map(|(flow, before)| (flow.received_bytes - before) as f64 / possible).collect()
    }
}

fn config(algorithm: Algorithm) -> Config {
    Config {
        congestion: CongestionConfig { algorithm, ..CongestionConfig::default() },
        ..Config::default()
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_single_flow_fills_a_link_with_a_buffer_of_its_delay() {
    for algorithm in [Algorithm::Cubic, Algorithm::NewReno] {
        let link = Link::mbit(20, 40, 100_000);
        let mut world = World::new(link);
        world.add_flow(&Arc::new(config(algorithm)));
        world.run(4 * SECOND);
        let share = world.shares(6 * SECOND)[0];
        assert!(share > 0.9, "{algorithm:?}: {share}");
    }
}

// RFC 9406: the first slow start ends before the buffer overflows, where it is deep.
#[test]
fn slow_start_ends_before_a_deep_buffer_overflows() {
    let mut overflows = Vec::new();
    for hystart in [true, false] {
        let mut link = Link::mbit(50, 40, 0);
        // Five rounds of a quarter's growth are a factor of three, behind two for noticing.
        link.buffer_bytes = 10 * link.bandwidth_delay_product();
        let mut world = World::new(link);
        let mut config = config(Algorithm::Cubic);
        config.congestion.hystart = hystart;
        world.add_flow(&Arc::new(config));
        world.run(4 * SECOND);
        overflows.push(world.overflows);
        let sender = &world.flows[0].sender;
        assert_eq!(sender.counters().slow_start_exits, u64::from(hystart));
        let share = world.shares(2 * SECOND)[0];
        assert!(share > 0.9, "{hystart}: {share}");
    }
    assert_eq!(overflows[0], 0);
    assert!(overflows[1] > 0, "or the test shows nothing");
}

#[test]
fn two_flows_share_a_link_fairly() {
    for algorithm in [Algorithm::Cubic, Algorithm::NewReno] {
        let mut world = World::new(Link::mbit(20, 40, 100_000));
        let config = Arc::new(config(algorithm));
        world.add_flow(&config);
        world.run(3 * SECOND);
        world.add_flow(&config);
        world.run(12 * SECOND);
        let shares = world.shares(20 * SECOND);
        let sum: f64 = shares.iter().sum();
        let squares: f64 = shares.iter().map(|share| share * share).sum();
        let fairness = sum * sum / (2.0 * squares);
        assert!(sum > 0.9, "{algorithm:?}: {shares:?}");
        assert!(fairness > 0.9, "{algorithm:?}: Jain's index {fairness} of {shares:?}");
    }
}

// RFC 3168: marks instead of losses.
#[test]
fn marks_keep_the_queue_short_without_a_loss() {
    let mut link = Link::mbit(20, 20, 200_000);
    link.mark_above_bytes = 30_000;
    let mut world = World::new(link);
    let request = Config { ecn: EcnMode::Request, ..config(Algorithm::Cubic) };
    world.add_flow(&Arc::new(request));
    world.run(3 * SECOND);
    let share = world.shares(5 * SECOND)[0];
    assert!(share > 0.9, "{share}");
    let counters = *world.flows[0].sender.counters();
    assert!(counters.reductions_for_marks > 1, "{counters:?}");
    assert_eq!((counters.retransmitted_segments, world.overflows), (0, 0));
}

// A window that fits the path needs no buffer if it is spread over the round trip; sent as ACKs
// release it, slow start puts half of it into the queue.
#[test]
fn a_paced_slow_start_needs_no_buffer() {
    let queues = [Pacing::Auto, Pacing::Off].map(|pacing| {
        let mut world = World::new(Link::mbit(100, 40, 1 << 20));
        let mut config = Config { pacing, ..config(Algorithm::Cubic) };
        config.congestion.window_cap_bytes = 200_000;
        world.add_flow(&Arc::new(config));
        world.run(2 * SECOND);
        let counters = world.flows[0].sender.counters();
        assert_eq!(counters.pacing_waits > 0, pacing == Pacing::Auto);
        assert_eq!(world.flows[0].sender.congestion_window(), 200_000);
        world.queue_bytes_max
    });
    assert!(queues[0] < 30_000 && queues[1] > 80_000, "{queues:?}");
}

// Below a millisecond nothing is paced (see `crate::pacing`).
#[test]
fn a_short_path_is_not_paced() {
    let mut link = Link::mbit(100, 1, 1 << 20);
    link.round_trip = Duration::from_micros(400);
    let mut world = World::new(link);
    world.add_flow(&Arc::new(config(Algorithm::Cubic)));
    world.run(SECOND / 2);
    assert_eq!(world.flows[0].sender.counters().pacing_waits, 0);
    assert_eq!(world.flows[0].sender.pacing_rate(), None);
    let share = world.shares(SECOND / 2)[0];
    assert!(share > 0.95, "{share}");
}

// Where every hundredth packet is lost whatever is sent, control by loss gives up most of the path.
#[test]
fn bbr_fills_a_path_with_random_loss() {
    let share_of = |algorithm, random| {
        let mut link = Link::mbit(100, 40, 500_000);
        link.loss_per_mille = 10;
        let mut world = World { random, ..World::new(link) };
        world.add_flow(&Arc::new(config(algorithm)));
        world.run(3 * SECOND);
        world.shares(5 * SECOND)[0]
    };
    // A round that by chance loses far more than its hundredth counts as congestion, rightly, and
    // costs that run a second or two; so it is the middle one of several that says what holds.
    let mut shares: Vec<f64> = (1..10).map(|random| share_of(Algorithm::Bbr, random)).collect();
    shares.sort_by(f64::total_cmp);
    let (bbr, cubic) = (shares[4], share_of(Algorithm::Cubic, 7));
    assert!(shares[0] > 0.7, "{shares:?}");
    // What is lost once is not received: 1 per cent of it.
    assert!(bbr > 0.9, "{bbr}");
    assert!(cubic < 0.5 * bbr, "or the path shows nothing: {cubic}");
}

#[test]
fn two_bbr_flows_share_a_link() {
    let mut world = World::new(Link::mbit(20, 40, 200_000));
    let config = Arc::new(config(Algorithm::Bbr));
    world.add_flow(&config);
    world.run(3 * SECOND);
    world.add_flow(&config);
    world.run(20 * SECOND);
    let shares = world.shares(15 * SECOND);
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    assert!(sum > 0.9, "{shares:?}");
    assert!(sum * sum / (2.0 * squares) > 0.85, "{shares:?}");
}

// What a receiver refuses is lost once more: every loss found is one that there was.
#[test]
fn a_receiver_keeps_a_whole_window_behind_a_gap() {
    let mut link = Link::mbit(400, 40, 1 << 20);
    link.loss_per_mille = 1;
    let mut world = World::new(link);
    world.add_flow(&Arc::new(config(Algorithm::Bbr)));
    world.run(2 * SECOND);
    let receiver = world.flows[0].receiver.as_ref().expect("accepted");
    assert_eq!(receiver.counters().out_of_order_refused, 0);
    let share = world.shares(SECOND)[0];
    assert!(share > 0.8, "{share}");
}
