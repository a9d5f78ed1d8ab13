//! Windows: the peer's (probing, silly windows) and ours (RFC 9293, 3.8.6).

use super::harness::*;
use super::recovery;
use crate::{Config, Connection, State};
use batch::{BlockPool, PoolConfig};
use time::{Duration, Instant};
use wire::{TcpHeader, TcpOptions};

fn config() -> Config {
    Config { nodelay: true, receive_buffer_bytes: 4_000, ..plain_config() }
}

// RFC 9293, 3.8.6.1.
#[test]
fn a_closed_window_is_probed_with_growing_pauses_and_then_used() {
    let mut harness = Harness::established(config());
    harness.window = 0;
    harness.receive(ACK, 1, 1, b"");
    harness.write(&stream(0..2_000));
    harness.expect_nothing();
    let mut waits = Vec::new();
    for _ in 0..4 {
        waits.push(harness.pass_to_deadline());
        let probe = harness.expect_one();
        assert_eq!((probe.sequence(), probe.payload.len()), (1, 1));
        harness.receive(ACK, 1, 1, b"");
    }
    assert!(waits.windows(2).all(|pair| pair[1] >= pair[0].mul_f32(1.9)), "{waits:?}");
    // The peer takes the probe's byte, and opens.
    harness.window = 1_500;
    harness.receive(ACK, 1, 2, b"");
    assert_eq!(harness.take_ranges(), [(2, 1_000)]);
}

/// RFC 9293, 3.8.6: a retransmission of the peer brings a newer acknowledgment behind an older
/// sequence number; what it offers counts, and the right edge stays where the peer put it.
#[test]
fn an_old_sequence_number_with_a_new_acknowledgment_does_not_move_the_edge() {
    let mut harness = Harness::established(config());
    harness.window = 2_000;
    harness.receive(ACK, 1, 1, b"");
    harness.write(&stream(0..6_000));
    assert_eq!(harness.take_ranges(), [(1, 1_000), (1_001, 1_000)]);
    // Later data of the peer arrives first, and makes its sequence number the newest.
    harness.receive(ACK, 11, 1, b"later");
    harness.take();
    harness.window = 500;
    harness.receive(ACK, 1, 2_001, b"0123456789");
    let sent: u64 = harness.take().iter().map(|segment| segment.payload.len() as u64).sum();
    assert!(sent <= 500, "{sent} bytes into a window of 500");
}

// MUST-37.
#[test]
fn probing_goes_on_for_as_long_as_the_peer_answers() {
    let mut harness = Harness::established(config());
    harness.window = 0;
    harness.receive(ACK, 1, 1, b"");
    harness.write(b"waiting");
    for _ in 0..40 {
        harness.pass_to_deadline();
        harness.expect_one();
        harness.receive(ACK, 1, 1, b"");
    }
    assert_eq!(harness.connection.state(), State::Established);
    for _ in 0..17 {
        harness.pass_to_deadline();
        harness.take();
    }
    assert_eq!(harness.connection.state(), State::Closed, "nobody answers any more");
}

#[test]
fn an_orphan_does_not_probe_for_ever() {
    let mut harness = Harness::established(config());
    harness.window = 0;
    harness.receive(ACK, 1, 1, b"");
    harness.write(b"waiting");
    harness.connection.close(harness.now);
    let mut probes = 0;
    while harness.connection.state() != State::Closed {
        harness.pass_to_deadline();
        harness.take();
        let _ = harness.try_receive(ACK, 1, 1, b"");
        probes += 1;
        assert!(probes < 50);
    }
}

// RFC 9293, 3.8.6.2.1.
#[test]
fn a_sliver_of_window_is_not_used_until_the_override_timer() {
    let mut harness = Harness::established(config());
    harness.window = 10;
    harness.receive(ACK, 1, 1, b"");
    harness.write(&stream(0..2_000));
    harness.expect_nothing();
    harness.pass_to_deadline();
    assert_eq!(harness.take_ranges(), [(1, 10)]);
}

#[test]
fn the_window_limits_a_burst_and_half_of_the_largest_window_is_worth_a_segment() {
    let mut harness = Harness::established(config());
    harness.window = 1_600;
    // The largest window so far was that of the SYN-ACK; make the peer one that never had more.
    harness.receive(ACK, 1, 1, b"");
    harness.write(&stream(0..5_000));
    assert_eq!(harness.take_ranges(), [(1, 1_000)]);
    harness.receive(ACK, 1, 1_001, b"");
    assert_eq!(harness.take_ranges(), [(1_001, 1_000)]);
}

#[test]
fn our_window_shrinks_as_data_waits_and_reopens_when_worth_it() {
    let mut harness = Harness::established(config());
    for at in 0..4 {
        harness.receive(ACK, 1 + at * 1_000, 1, &stream(0..1_000));
    }
    let sent = harness.take();
    assert_eq!(sent.last().expect("acks").header.window, 0);
    // A probe of the closed window: not taken, but answered.
    harness.receive(ACK, 4_001, 1, b"p");
    let answer = harness.expect_one();
    assert_eq!((answer.acknowledgment(), answer.header.window), (4_001, 0));
    harness.read(1_000);
    harness.expect_nothing();
    harness.read(1_000);
    let update = harness.expect_one();
    assert_eq!((update.acknowledgment(), update.header.window), (4_001, 2_000));
    assert_eq!(harness.connection.counters().window_updates_sent, 1);
}

#[test]
fn a_window_that_is_read_open_piece_by_piece_is_updated_once() {
    let mut harness = Harness::established(config());
    for at in 0..4 {
        harness.receive(ACK, 1 + at * 1_000, 1, &stream(0..1_000));
    }
    assert_eq!(harness.take().last().expect("acks").header.window, 0);
    while harness.connection.read_chunk(500).is_some() {}
    assert_eq!(harness.expect_one().header.window, 4_000);
    assert_eq!(harness.connection.counters().window_updates_sent, 1);
}

// RFC 9293, 3.8.6.2.1: the window is not taken back.
#[test]
fn the_right_edge_never_moves_back() {
    let mut harness = Harness::established(config());
    let mut edge = 4_001;
    let mut next = 1;
    for round in 0..200_u32 {
        let len = 1 + (round * 379) % 900;
        let len = len.min(edge - next);
        if len > 0 {
            let _ = harness.try_receive(ACK, next, 1, &stream(0..len as usize));
            next += len;
        }
        if round % 3 == 0 {
            harness.read(700);
        }
        if round == 100 {
            harness.connection.set_receive_buffer(1_000);
        }
        for sent in harness.take() {
            let announced = sent.acknowledgment() + u32::from(sent.header.window);
            assert!(announced >= edge, "{announced} after {edge}");
            edge = announced;
        }
        assert!(harness.connection.readable_len() <= 4_000);
    }
    assert!(next > 10_000, "the script moved data: {next}");
}

#[test]
fn data_beyond_the_window_is_cut_and_the_fin_behind_it_with_it() {
    let mut harness = Harness::established(config());
    harness.receive(FIN | ACK, 1, 1, &stream(0..4_500));
    assert_eq!(harness.connection.readable_len(), 4_000);
    assert_eq!(harness.connection.state(), State::Established);
    assert_eq!(harness.expect_one().acknowledgment(), 4_001);
    harness.pass(Duration::from_secs(1));
}

// RFC 5681, 2: an ACK that says nothing new is a duplicate, and three of them a loss.
#[test]
fn a_window_that_cannot_be_announced_is_not_announced_again_and_again() {
    let mut harness =
        Harness::established(Config { receive_buffer_bytes: 1 << 20, ..plain_config() });
    for at in 0..4 {
        harness.receive(ACK, 1 + at * 1_000, 1, &stream(0..1_000));
    }
    harness.take();
    for _ in 0..40 {
        harness.read(10);
    }
    harness.expect_nothing();
    assert_eq!(harness.connection.receive_buffer(), 65_535);
}

// RFC 7323, 2.2: rounded down to the scale's unit, a smaller buffer would be announced as none, for ever.
#[test]
fn a_buffer_smaller_than_the_scale_can_say_is_made_larger() {
    let config = Config { receive_buffer_bytes: 15 << 20, window_scaling: true, ..plain_config() };
    for initial in [true, false] {
        let receive_buffer_bytes_initial = if initial { 100 } else { 60_000 };
        let config = Config { receive_buffer_bytes_initial, ..config.clone() };
        let options = wire::TcpOptions { window_scale: Some(0), ..wire::TcpOptions::default() };
        let mut harness = Harness::established_with(config, options);
        if !initial {
            harness.connection.set_receive_buffer(100);
        }
        assert_eq!(harness.connection.receive_buffer(), 512);
        let mut next = 1;
        for _ in 0..1_000 {
            // The peer fills what it was offered, to the byte.
            let window = harness.connection.receiver.queue.window().min(1_000);
            let known =
                u32::from(harness.connection.receiver.window_field(&harness.connection.negotiated))
                    << 8;
            assert!(known > 0 || window > 0, "{next}");
            harness.receive(ACK, next, 1, &stream(0..known.min(1_000) as usize));
            next += known.min(1_000);
            harness.take();
            harness.read(1_000);
            harness.take();
        }
        assert!(next > 200_000, "{next}");
    }
}

// RFC 7413, 4.2.2: what came with the SYN may be read before the handshake is complete; RFC 9293, 3.8.6.2.2.
#[test]
fn room_that_was_made_before_the_handshake_was_complete_is_told_of_behind_it() {
    let syn = TcpHeader { sequence: IRS, flags: SYN, window: 5_000, ..TcpHeader::default() };
    let pool = BlockPool::new(PoolConfig::default());
    let data = Some(chunk(&stream(0..4_000)));
    let now = Instant::from_millis(1);
    let connection = Connection::accept_fast(parameters(config()), now, &syn, data, None, &pool);
    let mut harness = Harness::wrap(connection, now);
    let syn_ack = harness.expect_one();
    assert_eq!((syn_ack.acknowledgment(), syn_ack.header.window), (4_001, 0));
    assert_eq!(harness.read(4_000), stream(0..4_000));
    harness.expect_nothing();
    harness.receive(ACK, 4_001, 1, b"");
    let told = harness.expect_one();
    assert_eq!((told.acknowledgment(), told.header.window), (4_001, 4_000));
}

// RFC 9293, 3.10.7.4, MUST-66: "If the RCV.WND is zero, no segments will be acceptable, but special allowance should be
// made to accept valid ACKs".
#[test]
fn two_ends_whose_probes_were_taken_and_whose_windows_are_closed_hear_each_other() {
    let (mut harness, taken) = both_have_probed();
    // The last of what we took was a probe to the peer: its SND.NXT is before it.
    harness.try_receive(ACK, taken, 2, b"").expect("an ACK that counts");
    assert_eq!(harness.connection.first_unacknowledged(), ISS + 2);
    assert_eq!(harness.expect_one().sequence(), 2, "what stands before RCV.NXT is answered");
    let refused = harness.try_receive(ACK, taken - 1, 2, b"");
    assert_eq!(refused, Err(counters::DropReason::OutOfWindow));
}

// What the peer says of its window stands there, too, and our own may be open before it hears of that.
#[test]
fn two_ends_whose_probes_were_taken_and_whose_windows_opened_do_not_answer_each_other_for_ever() {
    let (mut harness, taken) = both_have_probed();
    harness.read(taken as usize);
    assert!(harness.take().iter().any(|sent| sent.header.window > 0), "our window is open");
    harness.window = 1_000;
    harness.try_receive(ACK, taken, 2, b"").expect("an ACK that counts");
    assert_eq!(harness.connection.first_unacknowledged(), ISS + 2);
    let sent = harness.take();
    assert_eq!(sent.iter().map(|it| it.payload.len()).sum::<usize>(), 3, "all that waited");
    // Once the peer goes on from there, what stands before is a keepalive probe, whose ACK says nothing.
    harness.receive(ACK, taken + 1, 5, b"on");
    let refused = harness.try_receive(ACK, taken + 2, 5, b"");
    assert_eq!(refused, Err(counters::DropReason::OutOfWindow));
}

// RFC 9293, 3.8.6.2.1: the override timeout of silly window avoidance; 3.8.6.1.
#[test]
fn a_longer_segment_size_does_not_leave_data_without_a_timer() {
    let mut harness = recovery::path(Config { sack: false, ..recovery::sack_config() });
    harness.connection.set_path_mss(harness.now, 200);
    harness.write(&stream(0..2_000));
    assert_eq!(harness.take().len(), 10);
    harness.write(&stream(2_000..4_000));
    harness.window = 500;
    harness.now += recovery::RTT;
    harness.receive(ACK, 1, 2_001, b"");
    // The shard looks the path up before it fills the next batch.
    harness.connection.set_path_mss(harness.now, 1_000);
    let sent = harness.take().len();
    assert!(sent > 0 || harness.connection.poll_timeout().is_some(), "waits for ever");
}

/// A connection that has sent the first byte of `more` as a probe, and has taken so many bytes, of which the last is a
/// probe of a window that the peer holds for closed.
fn both_have_probed() -> (Harness, u32) {
    let config = Config {
        nodelay: true,
        window_scaling: true,
        receive_buffer_bytes: 200_000,
        ..plain_config()
    };
    let options = TcpOptions { mss: Some(1_000), window_scale: Some(4), ..TcpOptions::default() };
    let mut harness = Harness::established_with(config, options);
    harness.window = 0;
    // What the scale of our window cannot say is left of it.
    let scale = 1 << harness.connection.negotiated.receive_shift;
    assert!(scale > 1);
    let ours = harness.connection.receiver.queue.window() - (scale - 1);
    harness.receive(ACK, 1, 1, &stream(0..ours as usize));
    harness.pass_to_deadline();
    assert_eq!(harness.take().last().map(|sent| sent.header.window), Some(0));
    assert_eq!(harness.connection.receiver.queue.window(), scale - 1);
    harness.receive(ACK, 1 + ours, 1, b"p");
    harness.write(b"more");
    while harness.connection.counters().window_probes_sent == 0 {
        harness.take();
        harness.pass_to_deadline();
        harness.flush();
    }
    assert_eq!(harness.take_ranges(), [(1, 1)], "a probe");
    (harness, ours + 1)
}

// RFC 7323, 2.2: of a buffer of a gibibyte the unit of windows is 16 KiB, and so eleven segments long.
#[test]
fn no_read_is_told_of_by_a_window_that_says_what_the_last_one_said() {
    let config = Config { window_scaling: true, receive_buffer_bytes: 1 << 30, ..plain_config() };
    let options =
        TcpOptions { mss: Some(MSS as u16), window_scale: Some(0), ..TcpOptions::default() };
    let mut harness = Harness::established_with(config, options);
    let mut at = 1;
    while harness.connection.receiver.queue.window() > 0 {
        let len = harness.connection.receiver.queue.window().min(MSS as u32);
        harness.receive(ACK, at, 1, &stream(0..len as usize));
        at += len;
    }
    let mut window = harness.take().last().map(|it| it.header.window);
    assert_eq!(window, Some(0));
    let mut updates = 0;
    while !harness.read(500).is_empty() {
        for update in harness.take() {
            assert!(Some(update.header.window) > window, "{:?}", update.header);
            window = Some(update.header.window);
            updates += 1;
        }
    }
    assert!((1..5).contains(&updates), "{updates} updates");
}
