//! Followers of a train count as they would one by one.

use super::harness::*;
use crate::Follower;
use std::collections::VecDeque;
use time::Duration;

/// Hands in two segments from `start` on that say the same, as a train or one by one.
fn receive_two(harness: &mut Harness, train: bool, start: u32, ack: u32) {
    let bytes = stream(0..MSS);
    let leader = harness.header(ACK, start, ack);
    harness.receive_header(&leader, &bytes).expect("taken");
    if !train {
        let header = harness.header(ACK, start + MSS as u32, ack);
        harness.receive_header(&header, &bytes).expect("taken");
        return;
    }
    let mut followers = VecDeque::from([chunk(&bytes)]);
    let outcome = harness.connection.on_followers(harness.now, &leader, &harness.pool, |_, _| {
        let payload = followers.pop_front()?;
        Some(Follower { payload, sparse: false, segment_len: 0, pushed: false })
    });
    outcome.expect("taken");
}

// A peer that answers with a closed window lives (RFC 9293, 3.8.6.1, MUST-37), be it by a train.
#[test]
fn a_closed_window_forgives_timeouts_in_a_train_too() {
    let timeouts = [false, true].map(|train| {
        let mut harness = Harness::established(plain_config());
        harness.write(&stream(0..1_000));
        harness.take();
        for _ in 0..3 {
            harness.pass_to_deadline();
            harness.take();
        }
        harness.window = 0;
        receive_two(&mut harness, train, 1, 1);
        harness.connection.unanswered.timeouts
    });
    assert_eq!(timeouts[0], timeouts[1], "one by one, and as a train");
}

// RFC 9293, 3.8.6.1, MUST-36: the window that a follower closes is probed.
#[test]
fn a_window_that_a_follower_closes_is_probed() {
    let deadlines = [false, true].map(|train| {
        let mut harness = Harness::established(plain_config());
        harness.now += Duration::from_millis(10);
        // A pure ACK overtook the first segment: SND.WL1 is the number of the second.
        harness.receive(ACK, 1_001, 1, b"");
        harness.write(&stream(0..1_000));
        harness.window = 0;
        receive_two(&mut harness, train, 1, 1);
        harness.connection.poll_timeout()
    });
    assert_eq!(deadlines[0], deadlines[1], "one by one, and as a train");
}
