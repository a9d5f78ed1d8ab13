use super::*;
use proptest::prelude::*;

const fn ms(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn seq(number: u32) -> SeqNumber {
    SeqNumber(number)
}

fn ignore(_: &Record) {}

/// Ten segments of 1,000 bytes, sent two at a time, a millisecond apart.
fn ten() -> SentRecords {
    let mut sent = SentRecords::new(seq(0));
    for burst in 0..5 {
        let start = burst * 2_000;
        let at = ms(100 + u64::from(burst));
        sent.on_sent(at, seq(start), seq(start + 2_000), Snapshot::default());
    }
    sent
}

fn lost(sent: &SentRecords) -> Vec<(u32, u32)> {
    let lost = sent.iter().filter(|record| record.fate == Fate::Lost);
    lost.map(|record| (record.start.0, record.end.0)).collect()
}

#[test]
fn a_burst_is_one_record_until_something_cuts_it() {
    let mut sent = SentRecords::new(seq(0));
    for segment in 0..64 {
        let start = segment * 1_000;
        sent.on_sent(ms(1), seq(start), seq(start + 1_000), Snapshot::default());
    }
    assert_eq!(sent.records.len(), 1);
    sent.on_ack(seq(500), &mut ignore);
    assert_eq!(sent.records.len(), 1);
    sent.on_sack(seq(3_000), seq(4_000), &mut ignore);
    assert_eq!(sent.records.len(), 3);
    sent.on_sack(seq(4_000), seq(9_000), &mut ignore);
    assert_eq!(sent.records.len(), 3, "neighbours that were SACKed are one");
    sent.on_ack(seq(64_000), &mut ignore);
    assert_eq!((sent.records.len(), sent.records.capacity()), (0, 0));
}

// RFC 8985, 6.2, step 5: what was sent before something that was delivered is lost once the
// reordering window has passed.
#[test]
fn what_was_sent_before_something_delivered_is_lost_when_its_time_has_passed() {
    let mut sent = ten();
    let sacked = sent.on_sack(seq(5_000), seq(6_000), &mut ignore);
    assert_eq!(sacked, Sacked { newly_bytes: 1_000, refused_count: 0 });
    let (newest, wait) = ((ms(102), seq(6_000)), Duration::from_millis(50));
    let judged = sent.judge(ms(151), newest, wait, &mut ignore);
    assert_eq!((lost(&sent), judged.next_at), (vec![(0, 2_000), (2_000, 4_000)], Some(ms(152))));
    let judged = sent.judge(ms(152), newest, wait, &mut ignore);
    assert_eq!((judged.lost_bytes, judged.next_at), (1_000, None));
    assert_eq!(sent.next_lost(seq(0), 9_000), Some((seq(0), 5_000)), "neighbours are one range");
    assert_eq!(sent.next_lost(seq(1_500), 9_000), Some((seq(1_500), 3_500)));
}

// RFC 8985, 3.2: "lost retransmissions" are found like any other loss.
#[test]
fn a_retransmission_is_lost_when_something_sent_after_it_arrives() {
    let mut sent = ten();
    sent.on_sack(seq(2_000), seq(10_000), &mut ignore);
    let wait = Duration::from_millis(50);
    sent.judge(ms(200), (ms(104), seq(10_000)), wait, &mut ignore);
    sent.on_sent_again(ms(200), seq(0), seq(1_000), Snapshot::default());
    sent.on_sent_again(ms(210), seq(1_000), seq(2_000), Snapshot::default());
    assert_eq!(sent.lost_bytes(), 0);
    let mut newest = None;
    sent.on_sack(seq(1_000), seq(2_000), &mut |part| newest = Some((part.sent_at, part.end)));
    let judged = sent.judge(ms(260), newest.expect("delivered"), wait, &mut ignore);
    assert_eq!((judged.lost_bytes, judged.lost_again_count), (1_000, 1));
    assert_eq!(lost(&sent), [(0, 1_000)]);
}

// RFC 2018, 8: a receiver that acknowledges up to what it had reported no longer has it.
#[test]
fn what_a_reneging_receiver_had_reported_is_sent_again() {
    let mut sent = ten();
    sent.on_sack(seq(3_000), seq(5_000), &mut ignore);
    sent.on_sack(seq(8_000), seq(9_000), &mut ignore);
    assert!(!sent.on_ack(seq(1_000), &mut ignore));
    assert!(sent.on_ack(seq(3_000), &mut ignore), "it would have acknowledged 5,000");
    assert_eq!((sent.sacked_bytes(), sent.lost_bytes()), (0, 3_000));
    assert_eq!(lost(&sent), [(3_000, 5_000), (8_000, 9_000)]);
}

// The SACK attack: every second byte of a large window.
#[test]
fn a_hostile_receiver_gets_a_bounded_number_of_records() {
    let mut sent = SentRecords::new(seq(0));
    sent.on_sent(ms(1), seq(0), seq(1 << 20), Snapshot::default());
    let mut refused = 0;
    for block in 1..100_000 {
        let start = seq(block * 10);
        refused += sent.on_sack(start, start + 1, &mut ignore).refused_count;
    }
    assert!(sent.records.len() <= RECORDS_MAX && refused > 0, "{} {refused}", sent.records.len());
    // Nothing of it keeps the rest from being found and sent, piece by piece.
    sent.judge(ms(500), (ms(2), seq(1 << 20)), Duration::ZERO, &mut ignore);
    let mut at = 500;
    while let Some((start, len)) = sent.next_lost(seq(0), 700) {
        at += 1;
        sent.on_sent_again(ms(at), start, start + len, Snapshot::default());
        assert!(sent.records.len() <= 2 * RECORDS_MAX);
    }
    assert_eq!(sent.lost_bytes(), 0);
    // And all of it can be lost once more.
    let judged = sent.judge(ms(9_000), (ms(8_000), seq(1 << 20)), Duration::ZERO, &mut ignore);
    assert_eq!(judged.lost_bytes + sent.sacked_bytes(), 1 << 20);
}

#[test]
fn one_byte_writes_make_a_bounded_number_of_records() {
    let mut sent = SentRecords::new(seq(0));
    for byte in 0..100_000 {
        sent.on_sent(ms(u64::from(byte)), seq(byte), seq(byte + 1), Snapshot::default());
    }
    assert!(sent.records.len() <= RECORDS_MAX);
    assert_eq!(sent.iter().map(Record::len).sum::<u32>(), 100_000);
}

#[test]
fn what_was_joined_for_want_of_records_measures_nothing_until_it_is_sent_again() {
    let mut sent = SentRecords::new(seq(0));
    for byte in 0..RECORDS_MAX as u32 + 10 {
        sent.on_sent(ms(u64::from(byte)), seq(byte), seq(byte + 1), Snapshot::default());
    }
    let joined = |sent: &SentRecords| sent.iter().filter(|record| record.is_joined).count();
    assert_eq!((joined(&sent), sent.iter().last().map(Record::len)), (1, Some(11)));
    let end = seq(RECORDS_MAX as u32 + 10);
    sent.on_sent_again(ms(9_000), end - 11, end, Snapshot::default());
    assert_eq!(joined(&sent), 0);
}

/// A byte of the naive model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Byte {
    sent_at: Instant,
    transmissions: u8,
    fate: Fate,
}

/// What the records are held against: one state for each byte.
#[derive(Debug, Default)]
struct Model {
    una: u32,
    bytes: Vec<Byte>,
    newest: Option<(Instant, SeqNumber)>,
    reneged: bool,
}

impl Model {
    fn outstanding(&mut self) -> &mut [Byte] {
        let una = self.una as usize;
        &mut self.bytes[una..]
    }

    fn count(&self, fate: Fate) -> u32 {
        let outstanding = &self.bytes[self.una as usize..];
        outstanding.iter().filter(|byte| byte.fate == fate).count() as u32
    }

    fn deliver(&mut self, at: u32) {
        let byte = self.bytes[at as usize];
        let this = (byte.sent_at, FIRST + at + 1);
        if self.newest.is_none_or(|newest| sent_after(this, newest)) {
            self.newest = Some(this);
        }
    }

    fn judge(&mut self, now: Instant, newest: (Instant, SeqNumber), wait: Duration) {
        for (at, byte) in self.bytes.iter_mut().enumerate().skip(self.una as usize) {
            let before = sent_after(newest, (byte.sent_at, FIRST + at as u32 + 1));
            if byte.fate == Fate::Flying && before && byte.sent_at + wait <= now {
                byte.fate = Fate::Lost;
            }
        }
    }
}

/// Close to where the numbers wrap.
const FIRST: SeqNumber = SeqNumber(u32::MAX - 300);

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u32),
    Ack(u32),
    Sack(u32, u32),
    Again(u32),
    Probe,
    Judge(u64),
    Timeout(u64),
    Undo,
    Forget,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u32..60).prop_map(Step::Send),
        2 => (0_u32..50).prop_map(Step::Ack),
        5 => (1_u32..300, 1_u32..40).prop_map(|(start, len)| Step::Sack(start, len)),
        5 => (1_u32..30).prop_map(Step::Again),
        1 => Just(Step::Probe),
        4 => (0_u64..40).prop_map(Step::Judge),
        1 => (0_u64..40).prop_map(Step::Timeout),
        1 => Just(Step::Undo),
        1 => Just(Step::Forget),
        4 => (1_u64..20).prop_map(Step::Pass),
    ]
}

struct Pair {
    now: Instant,
    sent: SentRecords,
    model: Model,
}

impl Pair {
    fn run(&mut self, step: Step) {
        let outstanding = self.model.bytes.len() as u32 - self.model.una;
        let nxt = FIRST + self.model.bytes.len() as u32;
        match step {
            Step::Pass(ms) => self.now += Duration::from_millis(ms),
            Step::Send(len) => {
                self.now += Duration::from_millis(1);
                self.sent.on_sent(self.now, nxt, nxt + len, Snapshot::default());
                let (sent_at, fate) = (self.now, Fate::Flying);
                let byte = Byte { sent_at, transmissions: 1, fate };
                self.model.bytes.extend((0..len).map(|_| byte));
            }
            Step::Ack(len) => self.ack(len.min(outstanding)),
            Step::Sack(start, len) => {
                let end = (start + len).min(outstanding);
                if start < end {
                    self.sack(self.model.una + start, self.model.una + end);
                }
            }
            Step::Again(len) => {
                let first = self.model.outstanding().iter().position(|b| b.fate == Fate::Lost);
                let next = self.sent.next_lost(FIRST + self.model.una, len);
                assert_eq!(first.is_some(), next.is_some());
                let Some((start, len)) = next else { return };
                assert_eq!(start, FIRST + self.model.una + first.unwrap_or(0) as u32);
                self.again(start, len);
            }
            Step::Probe => {
                if let Some((start, len)) = self.sent.last_segments() {
                    assert_eq!(start + len, nxt);
                    let last = if len % 10 == 0 { len.min(10) } else { len % 10 };
                    self.again(nxt - last, last);
                }
            }
            Step::Judge(wait_ms) => {
                let Some(newest) = self.model.newest else { return };
                let wait = Duration::from_millis(wait_ms);
                self.sent.judge(self.now, newest, wait, &mut ignore);
                self.model.judge(self.now, newest, wait);
            }
            Step::Timeout(wait_ms) => self.time_out(Duration::from_millis(wait_ms)),
            // What was reported and then missed was lost: nobody takes that back.
            Step::Undo if self.model.reneged => {}
            Step::Undo => {
                self.sent.unmark_lost();
                for byte in self.model.outstanding() {
                    if byte.fate == Fate::Lost && byte.transmissions == 1 {
                        byte.fate = Fate::Flying;
                    }
                }
            }
            Step::Forget => {
                self.sent.forget_sacks();
                self.forget();
            }
        }
    }

    fn forget(&mut self) {
        self.model.reneged = true;
        for byte in self.model.outstanding() {
            if byte.fate == Fate::Sacked {
                byte.fate = Fate::Lost;
            }
        }
    }

    fn time_out(&mut self, wait: Duration) {
        self.sent.mark_lost_on_timeout(self.now, wait, &mut ignore);
        let now = self.now;
        let head = self.sent.iter().next().map_or(0, |record| record.len() as usize);
        for (at, byte) in self.model.outstanding().iter_mut().enumerate() {
            if byte.fate == Fate::Flying && (at < head || byte.sent_at + wait <= now) {
                byte.fate = Fate::Lost;
            }
        }
    }

    fn again(&mut self, start: SeqNumber, len: u32) {
        // Ties of time are broken by sequence numbers, which is right for one burst only.
        self.now += Duration::from_millis(1);
        self.sent.on_sent_again(self.now, start, start + len, Snapshot::default());
        let from = start.offset_from(FIRST) as usize;
        for byte in &mut self.model.bytes[from..from + len as usize] {
            if byte.fate != Fate::Sacked {
                byte.fate = Fate::Flying;
                byte.sent_at = self.now;
                byte.transmissions = byte.transmissions.saturating_add(1);
            }
        }
    }

    fn ack(&mut self, len: u32) {
        let una = self.model.una + len;
        let mut visited = Vec::new();
        let reneged = self.sent.on_ack(FIRST + una, &mut |part| visited.push(*part));
        let mut expected = 0;
        for at in self.model.una..una {
            if self.model.bytes[at as usize].fate != Fate::Sacked {
                expected += 1;
                self.model.deliver(at);
            }
        }
        assert_eq!(visited.iter().map(Record::len).sum::<u32>(), expected);
        self.model.una = una;
        let sacked = self.model.outstanding().first().is_some_and(|b| b.fate == Fate::Sacked);
        assert_eq!(reneged, sacked);
        if sacked {
            self.forget();
        }
    }

    fn sack(&mut self, start: u32, end: u32) {
        let mut visited = 0;
        let sacked =
            self.sent.on_sack(FIRST + start, FIRST + end, &mut |part| visited += part.len());
        let mut expected = 0;
        for at in start..end {
            if self.model.bytes[at as usize].fate != Fate::Sacked {
                expected += 1;
                self.model.deliver(at);
                self.model.bytes[at as usize].fate = Fate::Sacked;
            }
        }
        assert_eq!((sacked.newly_bytes, visited, sacked.refused_count), (expected, expected, 0));
    }

    fn check(&self) {
        let mut at = self.model.una;
        for record in self.sent.iter() {
            assert_eq!(record.start, FIRST + at, "records touch");
            assert!(record.len() > 0);
            for byte in &self.model.bytes[at as usize..(at + record.len()) as usize] {
                assert_eq!(byte.fate, record.fate);
                if byte.fate != Fate::Sacked {
                    assert!(byte.sent_at <= record.sent_at);
                }
            }
            at += record.len();
        }
        assert_eq!(at as usize, self.model.bytes.len(), "all is covered");
        assert_eq!(self.sent.sacked_bytes(), self.model.count(Fate::Sacked));
        assert_eq!(self.sent.lost_bytes(), self.model.count(Fate::Lost));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn the_records_agree_with_a_state_for_each_byte(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let mut pair = Pair {
            now: ms(1_000),
            sent: SentRecords::new(FIRST),
            model: Model::default(),
        };
        for step in steps {
            pair.run(step);
            pair.check();
        }
    }
}
