//! Connections that have moved more than half of the sequence space, or all of it, before something happens for the
//! first time; and those that were silent for as long as their clocks take to wrap. Numbers that were kept since the
//! beginning lie ahead again there.

use super::harness::{chunk, parse_all};
use crate::config::Keepalive;
use crate::sender::congestion::{Algorithm, CongestionConfig};
use crate::{Config, Connection, Events, Parameters, Segment, State};
use batch::{Block, BlockPool, Chunk, Multidata, PoolConfig};
use bytes::Bytes;
use time::{Duration, Instant};
use wire::{SeqNumber, TcpHeader};

/// Longest write.
const WRITE_LEN: usize = 65_000;

/// Where things happen: before and behind each half of the sequence space.
const PLACES: [u64; 4] = [1 << 30, 5 << 29, 7 << 29, 9 << 29];

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Two connections and a path without loss. What is moved is all zeros, and copied nowhere.
struct Pair {
    now: Instant,
    ends: [Connection; 2],
    out: Multidata,
    pool: BlockPool,
    zeros: Bytes,
    /// What each end has read.
    read: [u64; 2],
    /// Whether each end reads.
    reads: [bool; 2],
    /// Segments from each end that are lost next.
    lose: [usize; 2],
}

impl Pair {
    fn new(config: Config) -> Self {
        let config = Config {
            send_buffer_bytes: 4 << 20,
            send_buffer_bytes_initial: 4 << 20,
            receive_buffer_bytes: 4 << 20,
            ..config
        };
        let parameters = |port: u16, isn| Parameters {
            local_port: port,
            remote_port: 1 - port,
            isn: SeqNumber(isn),
            timestamp_offset: u32::MAX - 100_000,
            mss_receive: WRITE_LEN as u16,
            mss_send_max: WRITE_LEN as u16,
            mss_default: 536,
            on_same_subnet: false,
            config: config.clone().into(),
        };
        let now = Instant::from_millis(1_000);
        let mut client = Connection::connect(parameters(0, u32::MAX - 7_000), now);
        let mut out = Multidata::default();
        client.poll_transmit(now, &mut out);
        client.on_transmitted(now, 1);
        let syn = parse_all(&out).remove(0).header;
        let server = Connection::accept(parameters(1, 77_000), now, &syn);
        let mut pair = Self {
            now,
            ends: [client, server],
            out,
            pool: BlockPool::new(PoolConfig::default()),
            zeros: Bytes::from(vec![0; WRITE_LEN]),
            read: [0; 2],
            reads: [true; 2],
            lose: [0; 2],
        };
        pair.exchange();
        pair
    }

    fn zeros(&self, len: usize) -> Chunk {
        Chunk::new(Block::from(self.zeros.clone()), 0..len)
    }

    /// Hands over what one end sends, and says how many segments that were.
    fn transmit(&mut self, from: usize) -> usize {
        self.out.clear();
        let built = self.ends[from].poll_transmit(self.now, &mut self.out);
        self.ends[from].on_transmitted(self.now, built);
        let brief = |packet: batch::PacketView<'_>| {
            let (header, _) = TcpHeader::parse(packet.header()).expect("well formed");
            (header, packet.payload().map(<[u8]>::len).sum())
        };
        let segments: Vec<(TcpHeader, usize)> = self.out.packets().map(brief).collect();
        let to = 1 - from;
        for (header, len) in segments {
            if self.lose[from] > 0 {
                self.lose[from] -= 1;
                continue;
            }
            let segment = Segment {
                header: &header,
                payload: Some(self.zeros(len)),
                sparse: false,
                segment_len: 0,
                congestion_experienced: false,
            };
            let _ = self.ends[to].on_segment(self.now, segment, &self.pool);
        }
        self.ends[to].on_batch_end(self.now);
        self.read_all(to);
        built
    }

    fn read_all(&mut self, index: usize) {
        while self.reads[index]
            && let Some(chunk) = self.ends[index].read_chunk(usize::MAX)
        {
            self.read[index] += chunk.len() as u64;
        }
    }

    /// Exchanges segments until there are no more, without a timer.
    fn exchange(&mut self) {
        while self.transmit(0) + self.transmit(1) > 0 {
            self.now += Duration::from_millis(1);
        }
    }

    /// Lets time pass, with all that the timers do.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.exchange();
            let deadlines = self.ends.iter().filter_map(Connection::poll_timeout);
            let Some(next) = deadlines.min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            for connection in &mut self.ends {
                connection.on_timeout(self.now);
            }
        }
        self.now = self.now.max(end);
    }

    fn fill(&mut self, from: usize) {
        while self.ends[from].send_room() >= WRITE_LEN {
            let chunk = self.zeros(WRITE_LEN);
            self.ends[from].append(self.now, chunk).expect("room");
        }
    }

    /// Moves data from one end until the other has read so much.
    fn move_to(&mut self, from: usize, total: u64) {
        while self.read[1 - from] < total {
            let before = self.read[1 - from];
            self.fill(from);
            self.exchange();
            if self.read[1 - from] == before {
                // The last one waits for a timer.
                self.pass(Duration::from_millis(300));
                assert!(self.read[1 - from] > before, "{:?}", self.ends[from].info(self.now));
            }
        }
        self.pass(Duration::from_millis(500));
        assert_eq!(self.ends[from].send_queue_len(), 0, "all is acknowledged");
        let counters = self.ends[from].counters();
        assert_eq!(counters.retransmission_timeouts, 0, "{counters:?}");
    }

    /// A little from one end, which arrives at once.
    fn say(&mut self, from: usize) {
        let before = self.read[1 - from];
        self.ends[from].append(self.now, chunk(&[0; 100])).expect("room");
        self.exchange();
        assert_eq!(self.read[1 - from], before + 100);
    }
}

/// The settings that decide which numbers are kept.
fn configs() -> [Config; 3] {
    let usual = Config::default();
    let reno = CongestionConfig { algorithm: Algorithm::NewReno, ..usual.congestion };
    let bbr = CongestionConfig { algorithm: Algorithm::Bbr, ..usual.congestion };
    [
        usual.clone(),
        Config { timestamps: false, congestion: bbr, ..usual.clone() },
        Config { timestamps: false, sack: false, congestion: reno, ..usual },
    ]
}

/// Every case: with each of the settings, from the client or from the server, each place once.
fn at_each_place(mut check: impl FnMut(&mut Pair, usize)) {
    for config in configs() {
        for from in [0, 1] {
            let mut pair = Pair::new(config.clone());
            for place in PLACES {
                pair.move_to(from, place);
                check(&mut pair, from);
            }
        }
    }
}

#[test]
fn an_urgent_byte_is_announced_and_read() {
    at_each_place(|pair, from| {
        for from in [from, 1 - from] {
            let to = 1 - from;
            pair.ends[to].take_events();
            pair.reads[to] = false;
            pair.ends[from].append(pair.now, chunk(&[0; 10])).expect("room");
            pair.ends[from].append_urgent(pair.now, chunk(&[0])).expect("room");
            pair.exchange();
            assert!(pair.ends[to].take_events().contains(Events::URGENT));
            assert_eq!(pair.ends[to].urgent_mark(), Some(10));
            pair.reads[to] = true;
            pair.read_all(to);
            assert_eq!(pair.ends[to].urgent_mark(), None);
            pair.pass(Duration::from_secs(1));
            assert_eq!(pair.ends[from].send_queue_len(), 0);
        }
    });
}

#[test]
fn a_window_closes_is_probed_and_opens_again() {
    at_each_place(|pair, from| {
        let (to, before) = (1 - from, pair.read[1 - from]);
        pair.reads[to] = false;
        for _ in 0..40 {
            pair.fill(from);
            pair.exchange();
        }
        pair.pass(Duration::from_secs(30));
        assert_eq!(pair.ends[from].info(pair.now).send_window_bytes, 0);
        assert!(pair.ends[from].counters().window_probes_sent > 0);
        // The other way goes on meanwhile.
        pair.say(to);
        pair.reads[to] = true;
        pair.read_all(to);
        pair.pass(Duration::from_secs(60));
        assert_eq!(pair.ends[from].send_queue_len(), 0);
        assert!(pair.read[to] > before);
    });
}

#[test]
fn an_end_that_only_listened_sends() {
    at_each_place(|pair, from| {
        let to = 1 - from;
        pair.say(to);
        let before = pair.read[from];
        pair.lose[to] = 1;
        for _ in 0..3 {
            pair.fill(to);
            pair.exchange();
        }
        pair.pass(Duration::from_secs(3));
        assert_eq!(pair.ends[to].send_queue_len(), 0, "what was lost is repaired");
        assert!(pair.read[from] > before);
    });
}

#[test]
fn losses_at_the_end_are_repaired_before_the_timer() {
    at_each_place(|pair, from| {
        let before = pair.read[1 - from];
        pair.lose[from] = 1;
        pair.ends[from].append(pair.now, chunk(&[0; 100])).expect("room");
        pair.exchange();
        pair.pass(Duration::from_secs(1));
        assert_eq!(pair.read[1 - from], before + 100);
        let counters = pair.ends[from].counters();
        let is_probed = counters.tail_loss_probes > 0 || !pair.ends[from].info(pair.now).sack;
        assert!(is_probed, "{counters:?}");
        // The timer of those without SACK counts as one; what follows begins anew.
        let mut table = None;
        pair.ends[from].swap_lent(&mut table);
    });
}

#[test]
fn an_end_closes_or_gives_up_and_the_other_hears_of_it() {
    for place in PLACES {
        for from in [0, 1] {
            for closes in [from, 1 - from] {
                let mut pair = Pair::new(Config { timestamps: from == 0, ..Config::default() });
                pair.move_to(from, place);
                pair.ends[closes].shutdown_write();
                pair.exchange();
                assert!(pair.ends[1 - closes].at_end_of_stream());
                pair.say(1 - closes);
                pair.ends[1 - closes].shutdown_write();
                pair.exchange();
                let states = [closes, 1 - closes].map(|index| pair.ends[index].state());
                assert_eq!(states, [State::TimeWait, State::Closed]);
            }
            let mut pair = Pair::new(Config::default());
            pair.move_to(from, place);
            pair.ends[1 - from].abort();
            pair.exchange();
            assert!(pair.ends.iter().all(|end| end.state() == State::Closed));
        }
    }
}

/// The longest silence is a little more than the clock of timestamps takes to wrap.
#[test]
fn silence_of_any_length_leaves_a_connection_as_it_was() {
    for keepalive in [None, Some(Keepalive::default())] {
        for config in configs() {
            for (days, from) in [(23, 0), (25, 0), (30, 1), (50, 0), (75, 1), (100, 0)] {
                let mut pair = Pair::new(Config { keepalive, ..config.clone() });
                pair.move_to(0, 5 << 29);
                pair.move_to(1, 1 << 20);
                pair.pass(DAY * days);
                pair.say(from);
                pair.say(1 - from);
                let total = pair.read[1 - from] + (64 << 20);
                pair.lose[from] = 1;
                pair.fill(from);
                pair.exchange();
                pair.pass(Duration::from_secs(2));
                pair.ends[from].swap_lent(&mut None);
                pair.move_to(from, total);
                let rtt = pair.ends[1 - from].info(pair.now).receive_rtt;
                assert!(rtt < Some(Duration::from_secs(1)), "{days} days: {rtt:?}");
            }
        }
    }
}
