//! What a super-frame brings is what its segments would have brought one by one, in the same batch.

use super::harness::*;
use crate::{Config, EcnMode, Segment};
use batch::Chunk;
use proptest::prelude::*;
use time::Duration;
use wire::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, TcpTimestamps};

const URG: TcpFlags = TcpFlags::URG;
const ECE: TcpFlags = TcpFlags::ECE;
const CWR: TcpFlags = TcpFlags::CWR;

/// Segments that follow each other.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Where it begins, from the end of what was sent last on: so many segments, and bytes.
    back: (i32, i32),
    count: usize,
    /// Length of the last segment.
    last: usize,
    flags: TcpFlags,
    marked: bool,
    /// How old its timestamp is, in milliseconds.
    age: u32,
    /// What it acknowledges of ours, in bytes less than all.
    unacknowledged: u32,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Run(Run),
    BatchEnd,
    Transmit,
    Read(usize),
    Write(usize),
    Buffer(usize),
    Pass(u32),
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    /// Payload of its full segments, at most.
    segment_len: usize,
    sack: bool,
    timestamps: bool,
    ecn: bool,
    scale: Option<u8>,
}

/// How we acknowledge, and how much we take.
#[derive(Clone, Copy, Debug)]
struct Policy {
    deferral: u8,
    quick: u32,
    quick_each: bool,
    stretch: bool,
    buffer_bytes: usize,
    /// Whether duplicates are reported.
    reports: bool,
}

fn run() -> impl Strategy<Value = Run> {
    let back = prop_oneof![
        6 => Just((0, 0)),
        3 => (-6_i32..6).prop_map(|segments| (segments, 0)),
        1 => (-6_i32..6, -900_i32..900),
    ];
    let flags = prop_oneof![
        8 => Just(ACK), 4 => Just(ACK | PSH), 1 => Just(ACK | ECE), 1 => Just(ACK | CWR),
        1 => Just(ACK | URG), 1 => Just(ACK | PSH | FIN),
    ];
    let count = prop_oneof![9 => 1..12_usize, 1 => 12..45_usize];
    let last = prop_oneof![3 => Just(MSS), 2 => 1..=MSS];
    let age = prop_oneof![12 => Just(0_u32), 1 => 1..50_u32];
    let unacknowledged = prop_oneof![4 => Just(0), 1 => 0..3_000_u32];
    (back, count, last, flags, any::<u8>(), age, unacknowledged).prop_map(
        |(back, count, last, flags, marked, age, unacknowledged)| {
            let marked = marked < 20;
            Run { back, count, last, flags, marked, age, unacknowledged }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => run().prop_map(Step::Run),
        6 => Just(Step::BatchEnd),
        10 => Just(Step::Transmit),
        4 => (1..30_000_usize).prop_map(Step::Read),
        2 => (1..5_000_usize).prop_map(Step::Write),
        1 => (1..70_000_usize).prop_map(Step::Buffer),
        3 => (0..90_u32).prop_map(Step::Pass),
    ]
}

fn peer() -> impl Strategy<Value = Peer> {
    let segment_len = prop_oneof![2 => Just(MSS), 1 => 300..MSS];
    let scale = prop_oneof![1 => Just(None), 2 => (0..4_u8).prop_map(Some)];
    (segment_len, any::<bool>(), any::<bool>(), any::<bool>(), scale).prop_map(
        |(segment_len, sack, timestamps, ecn, scale)| Peer {
            segment_len: segment_len - if timestamps { 12 } else { 0 },
            sack,
            timestamps,
            ecn,
            scale,
        },
    )
}

fn policy() -> impl Strategy<Value = Policy> {
    let deferral = prop_oneof![Just(1_u8), Just(2), Just(8)];
    let quick = (prop_oneof![Just(0_u32), 1..20_u32], any::<bool>());
    let buffer_bytes = prop_oneof![Just(20_000_usize), Just(200_000)];
    (deferral, quick, any::<bool>(), buffer_bytes, any::<bool>()).prop_map(
        |(deferral, (quick, quick_each), stretch, buffer_bytes, reports)| Policy {
            deferral,
            quick,
            quick_each,
            stretch,
            buffer_bytes,
            reports,
        },
    )
}

fn connected(policy: Policy, peer: Peer) -> Harness {
    let config = Config {
        sack: peer.sack,
        timestamps: peer.timestamps,
        // Where a gap is filled fewer ACKs go out than with `stretch_acks` off of single segments, and each window is
        // rounded to what its field can say.
        window_scaling: peer.scale.is_some() && (policy.stretch || policy.buffer_bytes < 65_536),
        ecn: if peer.ecn { EcnMode::Request } else { EcnMode::Off },
        stretch_acks: policy.stretch,
        deferred_acks_max_local: policy.deferral,
        quick_acks: policy.quick,
        quick_acks_each: policy.quick_each,
        receive_buffer_bytes: policy.buffer_bytes,
        duplicate_reports: policy.reports,
        // Each segment beyond the window is challenged, and a super-frame is once.
        challenge_acks_per_second: u32::MAX,
        ..plain_config()
    };
    let timestamps = peer.timestamps.then_some(TcpTimestamps { value: 9_000, echo: 0 });
    let mut harness = Harness::connect(config);
    harness.expect_one();
    harness.options = TcpOptions {
        mss: Some(MSS as u16),
        window_scale: peer.scale,
        sack_permitted: peer.sack,
        timestamps,
        ..TcpOptions::default()
    };
    harness.receive(if peer.ecn { SYN | ACK | ECE } else { SYN | ACK }, 0, 1, b"");
    harness.options = TcpOptions { timestamps, ..TcpOptions::default() };
    harness.expect_one();
    harness
}

/// One of the two connections, and how it gets what the peer sends.
struct Side {
    harness: Harness,
    merged: bool,
    peer: Peer,
    /// Highest number that the peer sent.
    sent: u32,
    /// The number of its FIN.
    fin: Option<u32>,
    /// The number behind our newest byte on the wire.
    ours: u32,
    /// How many segments had come again when segments were sent last.
    again: u64,
    /// Something has come since that lay beyond the window, and has ever.
    beyond: bool,
    was_beyond: bool,
    /// Something has waited behind a gap since segments were sent last.
    gap: bool,
}

/// What can be seen of a step.
#[derive(Debug, PartialEq)]
struct Seen {
    sent: Vec<String>,
    /// What was reported as having come again.
    again: Vec<(u32, u32)>,
    state: String,
}

impl Side {
    fn new(policy: Policy, peer: Peer, merged: bool) -> Self {
        Self {
            harness: connected(policy, peer),
            merged,
            peer,
            sent: 1,
            fin: None,
            ours: 1,
            again: 0,
            beyond: false,
            was_beyond: false,
            gap: false,
        }
    }

    fn apply(&mut self, step: Step) -> Seen {
        let (mut sent, mut again, mut state) = (Vec::new(), Vec::new(), String::new());
        match step {
            Step::Run(run) => self.receive(run),
            Step::BatchEnd => self.harness.connection.on_batch_end(self.harness.now),
            Step::Transmit => (sent, again) = self.transmit(),
            Step::Read(len) => {
                state = match self.harness.connection.state().receives_data() {
                    true => format!("{:?}\n", self.harness.read(len)),
                    false => String::new(),
                }
            }
            Step::Write(len) => {
                let bytes = chunk(&stream(0..len));
                let _ = self.harness.connection.append(self.harness.now, bytes);
            }
            Step::Buffer(bytes) => self.harness.connection.set_receive_buffer(bytes),
            Step::Pass(ms) => {
                (sent, again) = self.transmit();
                self.harness.pass(Duration::from_millis(ms.into()));
            }
        }
        Seen { sent, again, state: state + &self.state() }
    }

    fn receive(&mut self, mut run: Run) {
        self.gap |= self.harness.connection.receiver.queue.has_gap();
        let Some((start, len)) = self.place(&mut run) else { return };
        let edge = self.harness.connection.receiver.queue.edge().offset_from(IRS);
        self.beyond |= start + len as u32 > edge;
        self.was_beyond |= self.beyond;
        let full = self.peer.segment_len;
        let step = if self.merged { len } else { full };
        let bytes = stream(start as usize..start as usize + len);
        for at in (0..len).step_by(step) {
            let part = step.min(len - at);
            let header = self.header(&run, (start, at, part), len);
            let Ok(mut block) = self.harness.pool.allocate_receive(part) else { continue };
            block.copy_in(0, &bytes[at..at + part], None);
            let segment = Segment {
                header: &header,
                payload: Some(Chunk::new(block.freeze(), 0..part)),
                sparse: false,
                segment_len: if part > full { full as u32 } else { 0 },
                congestion_experienced: run.marked && self.peer.ecn,
            };
            let harness = &mut self.harness;
            let _ = harness.connection.on_segment(harness.now, segment, &harness.pool);
        }
    }

    /// Where a run begins, and how long it is. What a peer cannot say of it, it does not say.
    fn place(&mut self, run: &mut Run) -> Option<(u32, usize)> {
        let full = self.peer.segment_len;
        let len = (run.count - 1) * full + run.last.min(full);
        let back = run.back.0 * full as i32 + run.back.1;
        let start = self.sent.saturating_add_signed(back).max(1);
        let end = (start + len as u32).min(self.fin.unwrap_or(u32::MAX));
        if start >= end {
            return None;
        }
        if start != self.sent {
            // RFC 3168, 6.1.2: it stands on new data.
            run.flags = run.flags.without(CWR);
        }
        if run.flags.contains(FIN) && end >= self.sent {
            self.fin = Some(end);
        }
        run.flags = run.flags.without(FIN);
        if self.fin == Some(end) {
            run.flags |= FIN;
        }
        self.sent = self.sent.max(end);
        Some((start, (end - start) as usize))
    }

    /// A device merges segments with the same flags, but for those that end the super-frame or begin it.
    fn header(&self, run: &Run, (start, at, part): (u32, usize, usize), len: usize) -> TcpHeader {
        let mut flags = run.flags;
        if at + part < len {
            flags = flags.without(PSH | FIN);
        }
        if at > 0 {
            flags = flags.without(CWR);
        }
        let ack = self.ours.saturating_sub(run.unacknowledged).max(1);
        let mut header = self.harness.header(flags, start + at as u32, ack);
        if flags.contains(URG) {
            // Of the same byte, which lies behind all of them.
            header.urgent = (len + 100 - at) as u16;
        }
        if let Some(timestamps) = &mut header.options.timestamps {
            timestamps.value = (self.harness.now.as_millis() as u32).wrapping_sub(run.age);
        }
        header
    }

    fn transmit(&mut self) -> (Vec<String>, Vec<(u32, u32)>) {
        self.harness.connection.on_batch_end(self.harness.now);
        let sent = self.harness.take();
        for one in &sent {
            let fin = u32::from(one.header.flags.contains(FIN));
            self.ours = self.ours.max(one.sequence() + one.payload.len() as u32 + fin);
        }
        let again = self.harness.connection.counters().duplicate_segments;
        let is_told = self.peer.sack
            || again > core::mem::replace(&mut self.again, again)
            || core::mem::take(&mut self.beyond);
        let mut brief = Vec::new();
        let acknowledges =
            |one: &Sent| (one.acknowledgment(), one.header.window, one.header.options.timestamps);
        let is_bare = |one: &Sent| one.payload.is_empty() && !one.header.flags.contains(FIN);
        for (index, one) in sent.iter().enumerate() {
            let before = index.checked_sub(1).map(|it| &sent[it]);
            let mut beside = before.into_iter().chain(sent[index..].iter().find(|it| !is_bare(it)));
            // How many ACKs tell of what came again or beyond the window is no matter, nor of what came ahead of its
            // turn to who has SACK.
            let is_idle = beside.any(|it| acknowledges(it) == acknowledges(one));
            if !(is_told && is_bare(one) && is_idle) {
                brief.push(told(one));
            }
        }
        (brief, reported_again(&sent))
    }

    fn state(&self) -> String {
        let connection = &self.harness.connection;
        let receive = &connection.receiver.queue;
        let mut waits = receive.sack_blocks(4).as_slice().to_vec();
        waits.sort_by_key(|(start, _)| start.offset_from(IRS));
        let counters = connection.counters();
        let counted = [
            counters.segments_received,
            counters.bytes_received,
            counters.out_of_order_segments,
            // A FIN, and what lies beyond the window, is new where all before it is not.
            if self.fin.is_none() && !self.was_beyond { counters.duplicate_segments } else { 0 },
            // Of those that wait already they are counted in a super-frame, too.
            counters.ecn_marks_received.min(1),
            connection.totals.data_segments_received,
        ];
        format!(
            "{:?} next {} window {} of {} len {} gap {} {waits:?} mark {:?} timeout {:?} {counted:?}\n",
            connection.state(),
            receive.next().offset_from(IRS),
            receive.window(),
            connection.receive_buffer(),
            connection.readable_len(),
            receive.has_gap(),
            connection.urgent_mark(),
            connection.poll_timeout(),
        )
    }
}

fn told(one: &Sent) -> String {
    let TcpHeader { flags, window, urgent, options, .. } = one.header;
    let (sequence, len, ack) = (one.sequence(), one.payload.len(), one.acknowledgment());
    let times = options.timestamps;
    format!("{sequence} {len} {flags:?} ack {ack} window {window} urgent {urgent} {times:?}\n")
}

/// Whether what was seen with super-frames is what it has to be. `fills`: a super-frame may have filled a gap, or
/// lain over what waited. With `stretch` off it has one ACK then of what waited, though each of its segments would
/// have had one; and of a segment one range is reported, though where the one before it moves RCV.NXT into it, it
/// would have two.
fn is_same(merged: &Seen, single: &Seen, fills: bool, stretch: bool) -> bool {
    if !fills {
        return merged == single;
    }
    let newest =
        |seen: &Seen| seen.sent.last().map(|it| it[it.find("ack").unwrap_or(0)..].to_owned());
    let mut left = single.sent.iter();
    let mut again = merged.again.iter();
    let is_in =
        |(start, end): &(u32, u32)| single.again.iter().any(|it| it.0 <= *start && *end <= it.1);
    merged.state == single.state
        && newest(merged) == newest(single)
        && merged.sent.iter().all(|one| left.any(|other| other == one))
        && (!stretch || merged.sent == single.sent)
        && again.all(is_in)
}

/// What is reported as having come again (RFC 2883, 4), as ranges from our peer's initial number.
fn reported_again(sent: &[Sent]) -> Vec<(u32, u32)> {
    let mut ranges = Vec::new();
    for one in sent {
        let blocks = one.header.options.sack.as_slice();
        let is_within = |(start, end): &(SeqNumber, SeqNumber), of: &(SeqNumber, SeqNumber)| {
            start.is_at_or_after(of.0) && end.is_at_or_before(of.1)
        };
        if let Some(first) = blocks.first()
            && (first.0.is_before(one.header.acknowledgment)
                || blocks.get(1).is_some_and(|second| is_within(first, second)))
        {
            ranges.push((first.0.offset_from(IRS), first.1.offset_from(IRS)));
        }
    }
    ranges.sort_unstable();
    let mut joined: Vec<(u32, u32)> = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_super_frame_is_its_segments_one_by_one(
        steps in prop::collection::vec(step(), 1..40),
        policy in policy(),
        peer in peer(),
    ) {
        let mut sides = [true, false].map(|merged| Side::new(policy, peer, merged));
        for step in steps {
            let [merged, single] = sides.each_mut().map(|side| side.apply(step));
            let gap = sides.iter().any(|side| side.gap);
            prop_assert!(
                is_same(&merged, &single, gap, policy.stretch),
                "after {:?}\nmerged {:#?}\nsingle {:#?}", step, merged, single
            );
            if matches!(step, Step::Transmit | Step::Pass(_)) {
                for side in &mut sides {
                    side.gap = side.harness.connection.receiver.queue.has_gap();
                }
            }
            let [merged, single] =
                sides.each_mut().map(|side| side.harness.connection.take_events());
            prop_assert_eq!(merged, single, "after {:?}", step);
        }
    }
}

// RFC 9293, 3.7.1: the peer's segments are as long as the SYN that it heard says, be it the first of two.
#[test]
fn who_heard_the_first_syn_sends_segments_as_long_as_that_says() {
    let mut harness = Harness::connect(plain_config());
    harness.expect_one();
    harness.connection.set_announced_mss(500);
    harness.options.mss = Some(MSS as u16);
    harness.receive(SYN | ACK, 0, 1, b"");
    harness.options.mss = None;
    let header = harness.header(ACK, 1, 1);
    let segment = Segment {
        header: &header,
        payload: Some(chunk(&stream(0..3 * MSS))),
        sparse: false,
        segment_len: MSS as u32,
        congestion_experienced: false,
    };
    let before = harness.connection.counters().segments_received;
    harness.connection.on_segment(harness.now, segment, &harness.pool).expect("taken");
    assert_eq!(harness.connection.counters().segments_received - before, 3);
}
