//! How closely runs are judged.

use super::contents::{compare, our_bytes, peer_bytes};
use crate::{Judge, parse, run_on_stack};

/// A connection that is open, from which `rest` goes on at 0.2 s.
fn judged(rest: &str) -> [bool; 2] {
    let text = format!(
        "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
        +0 bind(3, ..., ...) = 0
        +0 listen(3, 1) = 0
        +.1 < S 0:0(0) win 32792 <mss 1000,nop,nop,sackOK>
        +0 > S. 0:0(0) ack 1 <mss 1460,nop,nop,sackOK>
        +.1 < . 1:1(0) ack 1 win 32792
        +0 accept(3, ..., ...) = 4
        +0 setsockopt(4, SOL_TCP, TCP_NODELAY, [1], 4) = 0
        {rest}"
    );
    let script = parse(&text).expect("a script");
    [Judge::Exactly, Judge::AsPacketdrill].map(|judge| run_on_stack(&script, &text, judge).is_ok())
}

#[test]
fn a_time_must_be_exact_where_it_is_virtual() {
    let write = "+0 write(4, ..., 100) = 100";
    assert_eq!(judged(&format!("{write}\n +0 > P. 1:101(100) ack 1")), [true; 2]);
    assert_eq!(judged(&format!("{write}\n +.000001 > P. 1:101(100) ack 1")), [false, true]);
    assert_eq!(judged(&format!("{write}\n +.1 > P. 1:101(100) ack 1")), [false; 2]);
}

#[test]
fn only_full_sized_segments_stand_for_one() {
    let rest = "+0 write(4, ..., 2500) = 2500\n +0 > P. 1:2501(2500) ack 1";
    assert_eq!(judged(rest), [true; 2]);
    let rest = "+0 write(4, ..., 500) = 500\n +0 write(4, ..., 500) = 500
        +0 > P. 1:1001(1000) ack 1";
    assert_eq!(judged(rest), [false, true]);
}

#[test]
fn what_answers_the_last_event_must_be_in_the_script() {
    let rest = "+.1 < . 70001:70002(1) ack 1 win 32792";
    assert_eq!(judged(rest), [false, true]);
    assert_eq!(judged(&format!("{rest}\n +0 > . 1:1(0) ack 1")), [true; 2]);
}

#[test]
fn bytes_are_told_apart_by_their_place() {
    assert_eq!(compare("read", 5, &peer_bytes(5, 100), &peer_bytes(5, 100)), Ok(()));
    for wrong in [peer_bytes(6, 100), peer_bytes(5, 99), our_bytes(5, 100), vec![0; 100]] {
        assert!(compare("read", 5, &peer_bytes(5, 100), &wrong).is_err());
    }
    let mut late = peer_bytes(0, 100);
    late[70] ^= 1;
    let why = compare("sent", 0, &peer_bytes(0, 100), &late).expect_err("a wrong byte");
    assert!(why.contains("place 70"), "{why}");
}

#[test]
fn what_is_read_is_what_the_script_says_or_what_belongs_there() {
    let segment = |data: &str, read: &str| {
        format!(
            "+.1 < P. 1:4(3) ack 1 win 32792 {data}\n +0 read(4, {read}, 100) = 3\n +.04 > . 1:1(0) ack 4"
        )
    };
    assert_eq!(judged(&segment("", "...")), [true; 2]);
    assert_eq!(judged(&segment("data \"abc\"", "\"abc\"")), [true; 2]);
    for (data, read) in [
        ("data \"abc\"", "..."),
        ("", "\"abc\""),
        ("data \"abc\"", "\"abd\""),
        ("data \"abd\"", "\"abc\""),
    ] {
        assert_eq!(judged(&segment(data, read)), [false; 2], "{data} {read}");
    }
}

#[test]
fn what_is_sent_in_fragments_is_compared_part_by_part() {
    let holds = |second: &str| {
        let text = format!(
            "0 socket(..., SOCK_DGRAM, IPPROTO_UDP) = 3
            +0 connect(3, ..., ...) = 0
            +0 write(3, ..., 2000) = 2000
            +0 > [frag 1:1480@0+] udp (2000)
            +0 > [frag 1:528@1480] udp (2000)
            +0 write(3, ..., 2000) = 2000
            {second}"
        );
        let script = parse(&text).expect("a script");
        run_on_stack(&script, &text, Judge::Exactly)
    };
    let right = "+0 > [frag 2:1480@0+] udp (2000)\n +0 > [frag 2:528@1480] udp (2000)";
    assert_eq!(holds(right), Ok(()));
    for (wrong, why) in [
        (right.replace("frag 2", "frag 1"), "the identification: expected"),
        (right.replacen("frag 2", "frag 3", 1), "that of another datagram"),
        (right.replace("0+]", "0]"), "another part"),
        (right.replace("1480@0", "1472@0"), "another part"),
        (right.replace("(2000)", "(2008)"), "no such datagram"),
        (right.replacen("+0", "+.1", 1), "timing"),
        ("+0 > udp (2000)".to_owned(), "a fragment was sent"),
    ] {
        let failure = holds(&wrong).expect_err(&wrong);
        assert!(failure.message.contains(why), "{wrong}: {}", failure.message);
    }
}
