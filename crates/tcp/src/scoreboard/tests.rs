//! The scoreboard against the definitions of RFC 6675, taken literally, byte by byte.

use proptest::prelude::*;

use super::*;

const MSS: u32 = 10;

/// Everything below begins shortly before the numbers wrap.
const ISS: SeqNumber = SeqNumber(u32::MAX - 25);

fn at(offset: u32) -> SeqNumber {
    ISS + offset
}

fn block((start, end): (u32, u32)) -> (SeqNumber, SeqNumber) {
    (at(start), at(end))
}

/// A scoreboard with `SND.UNA` at 0 that was told of `ranges`, of 100 bytes outstanding.
fn scoreboard(ranges: &[(u32, u32)]) -> Scoreboard {
    let mut scoreboard = Scoreboard::new(ISS);
    for &range in ranges {
        let outcome = scoreboard.on_sack([block(range)], ISS, at(100));
        assert_eq!(outcome.newly_sacked_bytes, range.1 - range.0);
    }
    scoreboard
}

fn ranges(scoreboard: &Scoreboard) -> Vec<(u32, u32)> {
    scoreboard.ranges().map(|(start, end)| (start.offset_from(ISS), end.offset_from(ISS))).collect()
}

// RFC 6675, 4, IsLost: DupThresh discontiguous ranges.
#[test]
fn three_ranges_above_make_a_byte_lost() {
    let two = scoreboard(&[(10, 11), (20, 21)]);
    assert!(!two.is_lost(at(0), MSS));
    let three = scoreboard(&[(10, 11), (20, 21), (30, 31)]);
    assert!(three.is_lost(at(0), MSS) && three.is_lost(at(9), MSS));
    assert!(!three.is_lost(at(10), MSS), "SACKed");
    assert!(!three.is_lost(at(11), MSS), "only two ranges above");
    assert!(!three.is_lost(at(31), MSS) && !three.is_lost(at(99), MSS));
    assert!(!three.is_lost(ISS - 1, MSS), "acknowledged");
}

// RFC 6675, 4, IsLost: more than (DupThresh - 1) * SMSS bytes.
#[test]
fn more_than_two_segments_above_make_a_byte_lost() {
    assert!(!scoreboard(&[(10, 30)]).is_lost(at(0), MSS));
    assert!(scoreboard(&[(10, 31)]).is_lost(at(0), MSS));
}

#[test]
fn pipe_counts_what_is_in_the_network() {
    let scoreboard = scoreboard(&[(10, 20), (30, 40), (50, 60)]);
    // 70 of 100 are not SACKed, of which [0, 10) is lost by three ranges.
    assert_eq!(scoreboard.pipe(at(0), at(100), MSS), 60);
    // [20, 30) has two ranges above it, which are 20 bytes, not more.
    assert!(!scoreboard.is_lost(at(20), MSS));
    // Retransmitted, and so back in the network.
    assert_eq!(scoreboard.pipe(at(5), at(100), MSS), 65);
    assert_eq!(scoreboard.pipe(at(10), at(100), MSS), 70);
    // Retransmitted though not lost: counted twice, as SetPipe says.
    assert_eq!(scoreboard.pipe(at(25), at(100), MSS), 75);
    // Without any SACK all of it is in the network.
    assert_eq!(Scoreboard::new(ISS).pipe(ISS, at(100), MSS), 100);
}

#[test]
fn next_seg_goes_through_the_rules() {
    let scoreboard = scoreboard(&[(15, 20), (30, 40), (50, 70)]);
    // Rule 1: the lost holes are [0, 15) and [20, 30) and, with 20 bytes above, not [40, 50).
    assert_eq!(scoreboard.next_lost(at(0), MSS, 10), Some((at(0), 10)));
    assert_eq!(scoreboard.next_lost(at(10), MSS, 10), Some((at(10), 5)));
    assert_eq!(scoreboard.next_lost(at(15), MSS, 10), Some((at(20), 10)));
    assert_eq!(scoreboard.next_lost(at(15), MSS, 4), Some((at(20), 4)));
    assert_eq!(scoreboard.next_lost(at(30), MSS, 10), None);
    // `HighRxt` behind `SND.UNA` means that nothing was retransmitted.
    assert_eq!(scoreboard.next_lost(ISS - 7, MSS, 10), Some((at(0), 10)));
    // Rule 3: not lost, but below the highest SACK.
    assert_eq!(scoreboard.next_hole(at(30), 10), Some((at(40), 10)));
    assert_eq!(scoreboard.next_hole(at(50), 10), None);
    // Rule 4: includes the highest un-SACKed byte.
    assert_eq!(scoreboard.rescue(at(100), 10), Some((at(90), 10)));
    assert_eq!(scoreboard.rescue(at(75), 10), Some((at(70), 5)));
    assert_eq!(scoreboard.rescue(at(70), 7), Some((at(43), 7)));
    assert_eq!(Scoreboard::new(ISS).rescue(ISS, 7), None);
    // After a timeout: whatever is missing before a limit.
    assert_eq!(scoreboard.next_unsacked(at(50), at(100), 90), Some((at(70), 30)));
    assert_eq!(scoreboard.next_unsacked(at(0), at(12), 90), Some((at(0), 12)));
}

#[test]
fn blocks_outside_the_outstanding_data_are_ignored() {
    let mut scoreboard = Scoreboard::new(ISS);
    for (start, end) in [(0, 10), (90, 101), (20, 20), (30, 20), (101, 120), (200, 210)] {
        let outcome = scoreboard.on_sack([block((start, end))], ISS - 50, at(100));
        assert_eq!(outcome.invalid_count, 1, "{start} {end}");
        assert_eq!((outcome.newly_sacked_bytes, outcome.duplicate), (0, None));
    }
    assert!(scoreboard.is_empty());
    assert_eq!(scoreboard.on_sack([block((90, 100))], ISS, at(100)).newly_sacked_bytes, 10);
    assert_eq!(scoreboard.highest_sacked(), Some(at(100)));
}

// RFC 2883, 4.1 and 4.2.
#[test]
fn a_duplicate_report_is_told_apart() {
    let mut scoreboard = Scoreboard::new(at(0));
    scoreboard.on_ack(at(40));
    // Below the cumulative ACK.
    let outcome = scoreboard.on_sack([block((30, 40)), block((50, 60))], at(40), at(100));
    assert_eq!(outcome.duplicate, Some(block((30, 40))));
    assert_eq!((outcome.newly_sacked_bytes, outcome.invalid_count), (10, 0));
    // Within the second block.
    let outcome = scoreboard.on_sack([block((52, 54)), block((50, 60))], at(40), at(100));
    assert_eq!(outcome.duplicate, Some(block((52, 54))));
    assert_eq!((outcome.newly_sacked_bytes, outcome.invalid_count), (0, 0));
    // Only the first block can be one.
    let outcome = scoreboard.on_sack([block((50, 62)), block((50, 55))], at(40), at(100));
    assert_eq!((outcome.newly_sacked_bytes, outcome.duplicate), (2, None));
    // An ACK from before: the block was news then and is stale now, but reports no duplicate.
    let outcome = scoreboard.on_sack([block((20, 30))], at(10), at(100));
    assert_eq!(outcome, SackOutcome::default());
}

#[test]
fn a_receiver_that_reneges_is_believed() {
    let mut scoreboard = scoreboard(&[(10, 20), (40, 50)]);
    scoreboard.on_ack(at(15));
    assert_eq!(ranges(&scoreboard), [(40, 50)]);
    assert_eq!(scoreboard.reneged_count(), 1);
    assert_eq!(scoreboard.next_hole(at(15), 90), Some((at(15), 25)));
    scoreboard.on_ack(at(50));
    assert!(scoreboard.is_empty() && scoreboard.sacked_bytes() == 0);
    assert_eq!(scoreboard.reneged_count(), 1);
    // Back in time: ignored.
    scoreboard.on_ack(at(30));
    assert_eq!(scoreboard.pipe(at(50), at(100), MSS), 50);
}

// RFC 2018, 8.
#[test]
fn a_timeout_forgets() {
    let mut scoreboard = scoreboard(&[(10, 20), (40, 50)]);
    scoreboard.on_timeout();
    assert!(scoreboard.is_empty() && scoreboard.highest_sacked().is_none());
    assert_eq!(scoreboard.pipe(at(0), at(100), MSS), 100);
    assert_eq!(scoreboard.next_unsacked(at(0), at(100), 10), Some((at(0), 10)));
}

#[test]
fn ranges_are_bounded_and_still_join() {
    let mut scoreboard = Scoreboard::new(ISS);
    for index in 0..300 {
        let outcome = scoreboard.on_sack([block((2 + 4 * index, 3 + 4 * index))], ISS, at(10_000));
        assert_eq!(outcome.refused_count, u32::from(index as usize >= RANGES_MAX));
    }
    assert_eq!(scoreboard.ranges().count(), RANGES_MAX);
    // Grows a range; needs no room.
    assert_eq!(scoreboard.on_sack([block((3, 4))], ISS, at(10_000)).newly_sacked_bytes, 1);
    // Joins them all.
    let outcome = scoreboard.on_sack([block((1, 9_000))], ISS, at(10_000));
    assert_eq!(outcome.newly_sacked_bytes, 8_999 - RANGES_MAX as u32 - 1);
    assert_eq!(ranges(&scoreboard), [(1, 9_000)]);
}

/// One flag per byte of the stream.
struct Model {
    una: usize,
    sacked: Vec<bool>,
}

impl Model {
    fn on_ack(&mut self, una: usize) {
        self.una = una;
        let renegade = (una..self.sacked.len()).take_while(|&at| self.sacked[at]).count();
        self.sacked[una..una + renegade].fill(false);
        self.sacked[..una].fill(false);
    }

    fn on_sack(&mut self, start: usize, end: usize) -> u32 {
        if start >= end || start <= self.una || end > self.sacked.len() {
            return 0;
        }
        let new = self.sacked[start..end].iter().filter(|&&sacked| !sacked).count();
        self.sacked[start..end].fill(true);
        new as u32
    }

    fn is_lost(&self, at: usize) -> bool {
        let above = &self.sacked[at + 1..];
        let bytes = above.iter().filter(|&&sacked| sacked).count();
        let starts = (0..above.len()).filter(|&i| above[i] && (i == 0 || !above[i - 1])).count();
        !self.sacked[at] && (starts >= 3 || bytes > 2 * MSS as usize)
    }

    fn pipe(&self, high_rxt: usize) -> u32 {
        (self.una..self.sacked.len())
            .filter(|&at| !self.sacked[at])
            .map(|at| u32::from(!self.is_lost(at)) + u32::from(at < high_rxt))
            .sum()
    }

    /// The first byte from `from` on that is wanted, and how many follow, none of them SACKed.
    fn first(&self, from: usize, wanted: impl Fn(usize) -> bool) -> Option<(SeqNumber, u32)> {
        let start = (from.max(self.una)..self.sacked.len()).find(|&at| wanted(at))?;
        let len = (start..self.sacked.len()).take_while(|&at| wanted(at)).count();
        Some((at(start as u32), (len as u32).min(MSS)))
    }

    fn rescue(&self) -> Option<(SeqNumber, u32)> {
        let last = (self.una..self.sacked.len()).rfind(|&at| !self.sacked[at])?;
        let hole = (self.una..=last).rev().take_while(|&at| !self.sacked[at]).count();
        let len = hole.min(MSS as usize);
        Some((at((last + 1 - len) as u32), len as u32))
    }
}

#[derive(Clone, Debug)]
enum Event {
    Send(usize),
    Ack(usize),
    Sack(Vec<(usize, usize)>),
    Timeout,
}

fn event() -> impl Strategy<Value = Event> {
    let span = (0_usize..200, 0_usize..25).prop_map(|(start, len)| (start, start + len));
    prop_oneof![
        2 => (1_usize..60).prop_map(Event::Send),
        1 => (0_usize..30).prop_map(Event::Ack),
        6 => proptest::collection::vec(span, 1..5).prop_map(Event::Sack),
        1 => Just(Event::Timeout),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn equals_the_definitions(
        events in proptest::collection::vec(event(), 1..40),
        high_rxt in 0_usize..200,
    ) {
        let mut scoreboard = Scoreboard::new(ISS);
        let mut model = Model { una: 0, sacked: Vec::new() };
        for event in events {
            match event {
                Event::Send(len) => model.sacked.extend(vec![false; len]),
                Event::Ack(len) => {
                    let una = (model.una + len).min(model.sacked.len());
                    if una > model.una {
                        model.on_ack(una);
                    }
                    scoreboard.on_ack(at(una as u32));
                }
                Event::Sack(blocks) => {
                    let sequences =
                        blocks.iter().map(|&(start, end)| block((start as u32, end as u32)));
                    // An ACK so old that no block is below it: duplicates are tested elsewhere.
                    let outcome =
                        scoreboard.on_sack(sequences, ISS - 1, at(model.sacked.len() as u32));
                    // A duplicate lies within the second block, which is good or bad for both.
                    let skip = usize::from(outcome.duplicate.is_some());
                    let new: u32 =
                        blocks.iter().skip(skip).map(|&(start, end)| model.on_sack(start, end)).sum();
                    prop_assert_eq!(outcome.newly_sacked_bytes, new);
                }
                Event::Timeout => {
                    scoreboard.on_timeout();
                    model.sacked.fill(false);
                }
            }
            let sent = model.sacked.len();
            let nxt = at(sent as u32);
            let rxt = at(high_rxt as u32);
            for offset in model.una..sent {
                let seq = at(offset as u32);
                prop_assert_eq!(scoreboard.is_sacked(seq), model.sacked[offset]);
                prop_assert_eq!(scoreboard.is_lost(seq, MSS), model.is_lost(offset));
            }
            let sacked = model.sacked.iter().filter(|&&sacked| sacked).count();
            prop_assert_eq!(scoreboard.sacked_bytes() as usize, sacked);
            let highest = model.sacked.iter().rposition(|&sacked| sacked).map_or(0, |at| at + 1);
            prop_assert_eq!(
                scoreboard.highest_sacked(), (highest > 0).then(|| at(highest as u32)));
            prop_assert_eq!(scoreboard.pipe(rxt, nxt, MSS), model.pipe(high_rxt));
            prop_assert_eq!(
                scoreboard.next_lost(rxt, MSS, MSS),
                model.first(high_rxt, |at| model.is_lost(at)));
            prop_assert_eq!(
                scoreboard.next_hole(rxt, MSS),
                model.first(high_rxt, |at| at < highest && !model.sacked[at]));
            prop_assert_eq!(
                scoreboard.next_unsacked(rxt, nxt, MSS),
                model.first(high_rxt, |at| !model.sacked[at]));
            prop_assert_eq!(scoreboard.rescue(nxt, MSS), model.rescue());
        }
    }

    #[test]
    fn anything_at_all_is_survived(
        events in proptest::collection::vec((any::<[u32; 4]>(), any::<u8>()), 0..60)
    ) {
        let mut scoreboard = Scoreboard::new(ISS);
        for (numbers, kind) in events {
            let [a, b, c, d] = numbers.map(SeqNumber);
            match kind % 4 {
                0 => scoreboard.on_ack(a),
                1 => { scoreboard.on_sack([(a, b), (c, d)], c, d); }
                2 => { scoreboard.on_sack([(a, a + kind.into()), (b, b + 9)], c, d); }
                _ => scoreboard.on_timeout(),
            }
            let _ = scoreboard.pipe(a, b, c.0);
            let _ = scoreboard.is_lost(a, d.0);
            let _ = scoreboard.next_lost(a, b.0, c.0);
            let _ = scoreboard.next_hole(a, b.0);
            let _ = scoreboard.next_unsacked(a, b, c.0);
            let _ = scoreboard.rescue(a, b.0);
            prop_assert!(scoreboard.ranges().count() <= RANGES_MAX);
        }
    }
}
