//! Whatever a peer sends and an application does: no panic, bounded memory, bounded answers, timers
//! that move on.

use super::harness::*;
use crate::{Config, State};
use proptest::prelude::*;
use time::Duration;
use wire::{SeqNumber, TcpFlags, TcpOptions, TcpTimestamps};

#[derive(Clone, Debug)]
enum Step {
    Segment {
        flags: u8,
        sequence: u32,
        ack: u32,
        window: u16,
        len: usize,
        timestamps: Option<(u32, u32)>,
        sack: Vec<(u32, u32)>,
    },
    Write(usize),
    Read(usize),
    Transmit(usize),
    Pass(u32),
    Shutdown,
    Close,
    PathMtu(u16),
}

/// Numbers near the interesting ones, and any.
fn numbers() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0_u32..8, 4 => 0_u32..30_000, 1 => (0_u32..100).prop_map(|n| n.wrapping_neg()), 1 => any::<u32>()]
}

fn steps() -> impl Strategy<Value = Step> {
    let flags = prop_oneof![6 => Just(0x10_u8), 2 => Just(0x12), 2 => Just(0x11), 1 => any::<u8>()];
    let segment =
        (
            flags,
            numbers(),
            numbers(),
            any::<u16>(),
            0_usize..3_000,
            any::<Option<(u32, u32)>>(),
            prop::collection::vec((numbers(), numbers()), 0..4),
        )
            .prop_map(|(flags, sequence, ack, window, len, timestamps, sack)| {
                Step::Segment { flags, sequence, ack, window, len, timestamps, sack }
            });
    prop_oneof![
        10 => segment,
        3 => (1_usize..5_000).prop_map(Step::Write),
        2 => (0_usize..5_000).prop_map(Step::Read),
        6 => (0_usize..70).prop_map(Step::Transmit),
        3 => (0_u32..200_000).prop_map(Step::Pass),
        1 => Just(Step::Shutdown),
        1 => Just(Step::Close),
        1 => any::<u16>().prop_map(Step::PathMtu),
    ]
}

fn apply(harness: &mut Harness, step: Step) {
    match step {
        Step::Segment { flags, sequence, ack, window, len, timestamps, sack } => {
            harness.window = window;
            harness.options = TcpOptions {
                mss: Some(window),
                timestamps: timestamps.map(|(value, echo)| TcpTimestamps { value, echo }),
                sack_permitted: true,
                window_scale: Some(flags),
                ..TcpOptions::default()
            };
            for (start, end) in sack {
                harness.options.sack.push(ISS + start, ISS + end);
            }
            let payload = stream(0..len);
            let _ = harness.try_receive(TcpFlags(flags), sequence, ack, &payload);
        }
        Step::Write(len) => {
            let len = len.min(harness.connection.send_room());
            if len > 0 {
                harness.write(&stream(0..len));
            }
        }
        Step::Read(len) => {
            let mut out = vec![0; len];
            let _ = harness.connection.read(&mut out);
        }
        Step::Transmit(most) => {
            harness.out.clear();
            let wants = harness.connection.wants_transmit(harness.now);
            let built = harness.connection.poll_transmit(harness.now, &mut harness.out);
            assert_eq!(wants, built > 0);
            assert_eq!(parse_all(&harness.out).len(), built);
            harness.connection.on_transmitted(harness.now, built.min(most));
        }
        Step::Pass(ms) => {
            harness.now += Duration::from_millis(u64::from(ms));
            harness.connection.on_timeout(harness.now);
            let next = harness.connection.poll_timeout();
            assert!(next.is_none_or(|next| next > harness.now), "a timer that does not move on");
        }
        Step::Shutdown => harness.connection.shutdown_write(),
        Step::Close => harness.connection.close(harness.now),
        Step::PathMtu(mtu) => harness.connection.set_path_mss(harness.now, mtu),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]
    #[test]
    fn nothing_from_the_network_panics_or_grows_without_bound(
        steps in prop::collection::vec(steps(), 1..120),
        rich in any::<bool>(),
        passive in any::<bool>(),
    ) {
        let config = Config { timestamps: rich, sack: rich, window_scaling: rich, ..plain_config() };
        let mut harness = Harness::connect(config.clone());
        if passive {
            let syn = harness.header(SYN, 0, 0);
            let now = harness.now;
            let connection = crate::Connection::accept(parameters(config), now, &syn);
            harness = Harness::wrap(connection, now);
        }
        for step in steps {
            apply(&mut harness, step);
            let connection = &harness.connection;
            prop_assert!(connection.readable_len() <= 20_000 + 1);
            let send = &connection.sender.sequence;
            prop_assert!(send.una.is_at_or_before(send.nxt) && send.nxt.is_at_or_before(send.max));
            let sent = SeqNumber::offset_from(send.nxt, send.una);
            if connection.state() == State::Closed {
                prop_assert_eq!(connection.poll_timeout(), None);
            } else {
                prop_assert!(sent as usize <= connection.send_queue_len() + 2);
            }
        }
        // Whatever it was, it comes to an end of what it wants to say.
        harness.flush();
    }
}
