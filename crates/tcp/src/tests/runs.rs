//! Segments that are decided on together are those that would be decided on one by one.

use super::harness::{
    ACK, Harness, ISS, MSS, PSH, SYN, Sent, chunk, parameters, plain_config, stream,
};
use crate::{Config, Connection, Pacing, PathProbing};
use batch::{Limits, Multidata};
use proptest::prelude::*;
use time::{Duration, Instant};
use wire::{TcpOptions, TcpTimestamps};

/// Bytes of a small write.
const PIECE_BYTES: usize = 50;

#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    WriteUrgent(usize),
    /// What is written ends a record.
    WriteRecord(usize),
    /// So many writes of a few bytes: what lies in more pieces than a segment may have is sent in shorter ones.
    WritePieces(usize),
    /// The peer acknowledges so much of what is in flight, in thousandths, and announces a window.
    Acknowledge(u32, u16),
    End,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..40_000_usize).prop_map(Step::Write),
        2 => (1..8_usize).prop_map(|segments| Step::Write(segments * MSS)),
        1 => (1..3_000_usize).prop_map(Step::WriteUrgent),
        2 => (1..9_000_usize).prop_map(Step::WriteRecord),
        1 => (1..8_usize).prop_map(|segments| Step::WriteRecord(segments * MSS)),
        2 => (1..80_usize).prop_map(Step::WritePieces),
        6 => (0..=1_000_u32, 1_u16..).prop_map(|(part, window)| Step::Acknowledge(part, window)),
        1 => Just(Step::End),
    ]
}

/// Sends all there is to send, in batches of these sizes, of each of which the device takes a part.
fn send(
    harness: &mut Harness,
    batches: &mut impl Iterator<Item = (usize, usize)>,
    records: &[u32],
) -> Vec<Sent> {
    let mut sent = Vec::new();
    loop {
        let (packets, taken) = batches.next().expect("an endless supply");
        let mut out = Multidata::default();
        out.set_limits(Limits { packets, ..Limits::default() });
        let count = harness.connection.poll_transmit(harness.now, &mut out);
        assert_eq!(count, out.len());
        if count == 0 {
            return sent;
        }
        let taken = taken.clamp(1, count);
        harness.connection.on_transmitted(harness.now, taken);
        let batch = super::harness::parse_all(&out);
        assert_runs(&batch);
        assert_records(&batch, records);
        sent.extend(batch.into_iter().take(taken));
    }
}

/// A run is what a segmentation engine makes of one super-frame.
fn assert_runs(batch: &[Sent]) {
    for (at, pair) in batch.windows(2).enumerate() {
        let [one, other] = pair else { continue };
        if one.run == 0 || one.run != other.run {
            continue;
        }
        assert_eq!(other.sequence(), one.sequence() + one.payload.len() as u32);
        assert!(other.payload.len() <= one.payload.len());
        assert_eq!(one.header.flags.without(PSH), one.header.flags, "pushed within a run");
        let behind = batch.get(at + 2).is_some_and(|third| third.run == one.run);
        assert!(!behind || other.payload.len() == one.payload.len(), "short within a run");
    }
}

/// No segment and no run goes beyond the end of a record, which is pushed.
fn assert_records(batch: &[Sent], records: &[u32]) {
    let end = |one: &Sent| one.sequence() + one.payload.len() as u32;
    for (at, one) in batch.iter().enumerate().filter(|(_, one)| !one.payload.is_empty()) {
        assert!(records.iter().all(|record| !(one.sequence() + 1..end(one)).contains(record)));
        if records.contains(&end(one)) {
            assert!(one.header.flags.contains(PSH));
            let is_in_run = |other: &Sent| one.run != 0 && one.run == other.run;
            assert!(!batch.get(at + 1).is_some_and(is_in_run), "a record ends within a run");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn segments_decided_together_are_those_decided_one_by_one(
        steps in prop::collection::vec(step(), 1..30),
        batches in prop::collection::vec((1..70_usize, 1..80_usize), 1..20),
        timestamps: bool,
        nodelay: bool,
    ) {
        let config = Config { pacing: Pacing::Off, nodelay, ..Config::default() };
        let clock = TcpTimestamps { value: 5, echo: 0 };
        let options = TcpOptions {
            mss: Some(MSS as u16),
            window_scale: Some(2),
            sack_permitted: true,
            timestamps: timestamps.then_some(clock),
            ..TcpOptions::default()
        };
        let mut together = Harness::established_with(config.clone(), options);
        let mut one_by_one = Harness::established_with(config, options);
        let mut batches = batches.into_iter().cycle();
        let mut singles = std::iter::repeat((1, 1));
        let (mut written, mut is_ended, mut records) = (0, false, Vec::new());
        for step in steps {
            for harness in [&mut together, &mut one_by_one] {
                match step {
                    Step::Write(len) | Step::WriteUrgent(len) | Step::WriteRecord(len) if !is_ended => {
                        let len = len.min(harness.connection.send_room());
                        if len > 0 {
                            let bytes = chunk(&stream(written..written + len));
                            match step {
                                Step::WriteUrgent(_) => harness.connection.append_urgent(harness.now, bytes),
                                _ => harness.connection.append(harness.now, bytes),
                            }
                            .expect("room");
                            if let Step::WriteRecord(_) = step {
                                harness.connection.end_record();
                                records.push(harness.connection.sender.queue.end_sequence().offset_from(ISS));
                            }
                        }
                    }
                    Step::WritePieces(count) if !is_ended => {
                        let count = count.min(harness.connection.send_room() / PIECE_BYTES);
                        for at in 0..count {
                            let from = written + at * PIECE_BYTES;
                            harness.write(&stream(from..from + PIECE_BYTES));
                        }
                    }
                    Step::Acknowledge(part, window) => {
                        let (una, nxt) = (harness.connection.sender.sequence.una, harness.connection.sender.sequence.nxt);
                        let part = u64::from(nxt.offset_from(una)) * u64::from(part) / 1_000;
                        let ack = una.offset_from(ISS) + part as u32;
                        harness.window = window;
                        harness.receive(ACK, 1, ack, b"");
                    }
                    Step::End => harness.connection.shutdown_write(),
                    _ => {}
                }
            }
            if let Step::Write(len) | Step::WriteUrgent(len) | Step::WriteRecord(len) = step {
                written += len;
            }
            if let Step::WritePieces(count) = step {
                written += count * PIECE_BYTES;
            }
            is_ended |= matches!(step, Step::End);
            let some = send(&mut together, &mut batches, &records);
            let others = send(&mut one_by_one, &mut singles, &records);
            prop_assert_eq!(some.len(), others.len());
            for (one, other) in some.iter().zip(&others) {
                prop_assert_eq!(&one.header, &other.header);
                prop_assert!(one.payload == other.payload);
                prop_assert_eq!(one.ecn, other.ecn);
            }
            prop_assert_eq!(together.connection.sender.sequence.nxt, one_by_one.connection.sender.sequence.nxt);
            prop_assert_eq!(together.connection.sender.window_use.is_limited, one_by_one.connection.sender.window_use.is_limited);
            prop_assert_eq!(
                format!("{:?}", together.connection.totals),
                format!("{:?}", one_by_one.connection.totals)
            );
        }
    }
}

/// Both probes in one batch: of a tail that may be lost (RFC 8985, 7.3), and of the path's
/// MTU (RFC 4821), between them and behind them what is new. Each carries the bytes of its number.
#[test]
fn probes_and_new_data_in_one_batch_carry_their_own_bytes() {
    let config = Config { path_probing: PathProbing::Always, nodelay: true, ..plain_config() };
    let mut parameters = parameters(Config { sack: true, ..config });
    (parameters.mss_send_max, parameters.mss_receive) = (1_460, 1_460);
    let now = Instant::from_millis(10_000);
    let mut harness = Harness::wrap(Connection::connect(parameters, now), now);
    harness.expect_one();
    harness.now += Duration::from_millis(10);
    harness.options =
        TcpOptions { mss: Some(1_460), sack_permitted: true, ..TcpOptions::default() };
    harness.receive(SYN | ACK, 0, 1, b"");
    harness.options = TcpOptions::default();
    harness.expect_one();
    harness.write(&stream(0..500));
    assert_eq!(harness.take_ranges(), [(1, 500)]);
    harness.now += Duration::from_millis(10);
    harness.receive(ACK, 1, 501, b"");
    harness.write(&stream(500..1_000));
    assert_eq!(harness.take_ranges(), [(501, 500)]);
    // The application writes much at the very moment at which the tail is probed.
    harness.write(&stream(1_000..21_000));
    harness.pass_to_deadline();
    let sent = harness.take();
    assert!(sent.iter().any(|segment| segment.payload.len() > 1_024), "an MTU probe is there");
    assert!(sent.len() > 3);
    for segment in &sent {
        let at = segment.sequence() as usize - 1;
        assert!(segment.payload == stream(at..at + segment.payload.len()), "other bytes at {at}");
    }
}
