//! What a batch of many segments says is what they would say in batches of one.

use super::harness::*;
use crate::{Config, Pacing};
use proptest::prelude::*;
use time::Duration;
use wire::{TcpOptions, TcpTimestamps};

#[derive(Clone, Copy, Debug)]
enum Step {
    Write(usize),
    Urgent(usize),
    /// The peer acknowledges so many of the bytes in flight, in parts of 1,000, and has received what is `sacked`
    /// behind that.
    Ack {
        thousandths: u32,
        sacked: Option<(u32, u32)>,
        window: u16,
    },
    Receive(usize),
    Pass(u32),
    Deadline,
    Cork(bool),
    Shutdown,
}

fn step() -> impl Strategy<Value = Step> {
    let sacked = prop_oneof![2 => Just(None), 1 => (0..20_u32, 1..10_u32).prop_map(Some)];
    let window = prop_oneof![4 => Just(60_000_u16), 1 => 0..20_000_u16];
    prop_oneof![
        8 => (1..20_000_usize).prop_map(Step::Write),
        1 => (1..3_000_usize).prop_map(Step::Urgent),
        10 => (0..1_001_u32, sacked, window).prop_map(|(thousandths, sacked, window)| Step::Ack {
            thousandths,
            sacked,
            window
        }),
        2 => (1..2_500_usize).prop_map(Step::Receive),
        4 => (0..300_u32).prop_map(Step::Pass),
        2 => Just(Step::Deadline),
        1 => any::<bool>().prop_map(Step::Cork),
        1 => Just(Step::Shutdown),
    ]
}

struct Side {
    harness: Harness,
    received: u32,
    /// One past the highest number of ours on the wire.
    sent: u32,
    una: u32,
}

impl Side {
    fn new(sack: bool, timestamps: bool, nodelay: bool, packets: usize) -> Self {
        let pacing = Pacing::Off;
        let config = Config { sack, timestamps, nodelay, pacing, ..plain_config() };
        let options = TcpOptions {
            mss: Some(MSS as u16),
            sack_permitted: sack,
            timestamps: timestamps.then_some(TcpTimestamps { value: 9_000, echo: 0 }),
            ..TcpOptions::default()
        };
        let mut harness = Harness::established_with(config, options);
        harness.batch_limit(packets);
        Self { harness, received: 1, sent: 1, una: 1 }
    }

    fn apply(&mut self, step: Step) -> String {
        // Nothing comes back at the instant at which it left.
        self.harness.pass(Duration::from_millis(1));
        let harness = &mut self.harness;
        match step {
            Step::Write(len) => {
                let _ = harness.connection.append(harness.now, chunk(&stream(0..len)));
            }
            Step::Urgent(len) => {
                let _ = harness.connection.append_urgent(harness.now, chunk(&stream(0..len)));
            }
            Step::Ack { thousandths, sacked, window } => {
                let flight = self.sent - self.una;
                self.una += (u64::from(flight) * u64::from(thousandths) / 1_000) as u32;
                harness.window = window;
                let mut header = harness.header(ACK, self.received, self.una);
                if let Some((from, count)) = sacked {
                    let start = self.una + from * MSS as u32;
                    let end = (start + count * MSS as u32).min(self.sent);
                    if start > self.una && start < end {
                        header.options.sack.push(ISS + start, ISS + end);
                    }
                }
                let _ = harness.receive_header(&header, b"");
                harness.connection.on_batch_end(harness.now);
            }
            Step::Receive(len) => {
                let _ = harness.try_receive(ACK, self.received, self.una, &stream(0..len));
                self.received = harness.connection.receiver.queue.next().offset_from(IRS);
                let _ = harness.connection.read(&mut vec![0; len]);
            }
            Step::Pass(ms) => harness.pass(Duration::from_millis(ms.into())),
            Step::Deadline if harness.connection.poll_timeout().is_some() => {
                harness.pass_to_deadline();
            }
            Step::Deadline => {}
            Step::Cork(on) => harness.connection.set_cork(on),
            Step::Shutdown => harness.connection.shutdown_write(),
        }
        let sent = harness.take();
        for one in &sent {
            let fin = u32::from(one.header.flags.contains(FIN));
            self.sent = self.sent.max(one.sequence() + one.payload.len() as u32 + fin);
        }
        let told: String =
            sent.iter().map(|it| format!("{:?} {:?}\n", it.header, it.payload.len())).collect();
        let connection = &harness.connection;
        format!("{told}{:?} {:?}", connection.state(), connection.poll_timeout())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_batch_says_what_batches_of_one_say(
        steps in prop::collection::vec(step(), 1..40),
        sack: bool, timestamps: bool, nodelay: bool,
    ) {
        let mut sides = [1_000, 1].map(|packets| Side::new(sack, timestamps, nodelay, packets));
        for step in steps {
            let [batched, single] = sides.each_mut().map(|side| side.apply(step));
            prop_assert!(
                batched == single, "after {:?}\nbatched {}\nsingle {}", step, batched, single
            );
        }
    }
}
