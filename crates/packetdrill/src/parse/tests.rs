//! The language, piece by piece.

use super::parse;
use crate::script::{
    Action, ClassCheck, Direction, Expression, Flags, Fragment, Packet, Quoted, TcpOption,
    Transport, When,
};

fn packet(line: &str) -> Packet {
    let script = parse(&format!("0 {line}\n")).unwrap_or_else(|e| panic!("{line}: {}", e.message));
    match script.events.into_iter().next().map(|event| event.action) {
        Some(Action::Packet(packet)) => packet,
        other => panic!("{line}: {other:?}"),
    }
}

fn call(line: &str) -> crate::script::Call {
    let script = parse(&format!("0 {line}\n")).unwrap_or_else(|e| panic!("{line}: {}", e.message));
    match script.events.into_iter().next().map(|event| event.action) {
        Some(Action::Call(call)) => call,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn times_of_every_kind_are_read() {
    let text = "0 close(3) = 0\n+.5 close(3) = 0\n* > . 1:1(0) ack 1\n0.1~0.2 > . 1:1(0) ack 1\n\
                +0~+.01 > . 1:1(0) ack 1\n";
    let when: Vec<When> = parse(text).expect("a script").events.iter().map(|e| e.when).collect();
    assert_eq!(
        when,
        [
            When::Absolute(0),
            When::Relative(500_000),
            When::Any,
            When::AbsoluteRange(100_000, 200_000),
            When::RelativeRange(0, 10_000),
        ]
    );
}

#[test]
fn a_call_that_blocks_has_an_end() {
    for (line, ends_us) in
        [("...0.2 accept(3, ..., ...) = 4", 200_000), ("...1 read(3, ..., 9) = 9", 1_000_000)]
    {
        assert_eq!(call(line).ends_us, Some(ends_us), "{line}");
    }
    let script = parse("+.1...0.200 connect(3, ..., ...) = 0\n").expect("a script");
    assert_eq!(script.events[0].when, When::Relative(100_000));
}

#[test]
fn errors_have_names_and_notes() {
    let call = call("write(3, ..., 10) = -1 EPIPE (Broken pipe)");
    assert_eq!((call.errno.as_deref(), call.result), (Some("EPIPE"), Expression::Integer(-1)));
}

#[test]
fn structures_are_read_with_their_members() {
    let call = call("poll([{fd=4, events=POLLIN|POLLOUT, revents=0}], 1, -1) = 0");
    let Expression::List(entries) = &call.arguments[0] else { panic!("a list") };
    let Expression::Braces(members) = &entries[0] else { panic!("a structure") };
    assert_eq!(members.len(), 3);
    let events = crate::evaluate::member(members, "events").expect("events");
    assert_eq!(crate::evaluate::integer(events), Ok(5));
}

#[test]
fn a_segment_is_read_whole() {
    let packet =
        packet("> [ect0,nodf] SEW. 10:20(10) ack 5 win 100 urg 3 <mss 1460,nop,nop,sack 1:2 3:4>");
    assert_eq!((packet.direction, packet.ip.class), (Direction::Outbound, ClassCheck::Ecn(2)));
    assert!(packet.ip.may_fragment);
    let Transport::Tcp(tcp) = packet.transport else { panic!("TCP") };
    assert_eq!(tcp.flags.bits, Flags::SYN | Flags::ECE | Flags::CWR | Flags::ACK);
    assert_eq!((tcp.sequence, tcp.len, tcp.acknowledgment), (10, 10, 5));
    assert_eq!((tcp.window, tcp.urgent), (Some(100), 3));
    let options = [
        TcpOption::Mss(1460),
        TcpOption::Nop,
        TcpOption::Nop,
        TcpOption::Sack(vec![(1, 2), (3, 4)]),
    ];
    assert_eq!(tcp.options.as_deref(), Some(&options[..]));
}

#[test]
fn wildcards_ports_and_numbers_of_ace_are_read() {
    let Transport::Tcp(tcp) = packet("> 80 > 1234 P.5 1:1(0) ack 1 <...>").transport else {
        panic!("TCP")
    };
    assert_eq!((tcp.ports, tcp.options), (Some((80, 1234)), None));
    assert!(tcp.flags.is_ace && tcp.flags.has(Flags::ECE | Flags::AE));
    assert!(!tcp.flags.has(Flags::CWR));
}

#[test]
fn icmp_is_read_with_its_quotation() {
    let Transport::Icmp(icmp) =
        packet("< icmp unreachable frag_needed mtu 1000 [1:1001(1000)]").transport
    else {
        panic!("ICMP")
    };
    assert_eq!((icmp.code.as_deref(), icmp.mtu), (Some("frag_needed"), Some(1000)));
    assert!(matches!(icmp.quoted, Some(Quoted::Tcp { sequence: 1, len: 1000 })));
    let Transport::Icmp(icmp) = packet("< icmp packet_too_big mtu 1280 [udp (8)]").transport else {
        panic!("ICMP")
    };
    assert!(matches!((icmp.code, icmp.quoted), (None, Some(Quoted::Udp { len: 8 }))));
}

#[test]
fn defined_symbols_stand_for_their_meaning() {
    let text = "--define=COOKIE=\"ab\"\n--define=N=5\n0 write(3, COOKIE, N) = N\n";
    let script = parse(text).expect("a script");
    let Action::Call(call) = &script.events[0].action else { panic!("a call") };
    assert_eq!(call.arguments[1..], [Expression::Text(b"ab".to_vec()), Expression::Integer(5)]);
    assert_eq!(call.result, Expression::Integer(5));
}

#[test]
fn commands_code_and_marks_are_found() {
    let text = "// RFC 1\n// linux: no (only here)\n`init`\n0 %{ assert tcpi_rtt > 0 }%\n`done`\n";
    let script = parse(text).expect("a script");
    assert_eq!((script.init.as_deref(), script.cleanup.as_deref()), (Some("init"), Some("done")));
    assert_eq!(script.not_on_linux.as_deref(), Some("only here"));
    assert_eq!(script.not_in_batches, None);
    assert!(matches!(&script.events[0].action, Action::Code(code) if code.starts_with("assert")));
}

#[test]
fn mistakes_are_told_with_their_line() {
    for (text, line) in [
        ("0 close(3) = 0\n+0 > S 0:5(0)\n", 2),
        ("0 < S 0:0(0)\n", 1),
        ("0 close(3 = 0\n", 1),
        ("* close(3) = 0\n", 1),
        ("0 < ipv4 1.2.3.4 > 1.2.3.5: S 0:0(0) win 1\n", 1),
        ("", 1),
    ] {
        let error = parse(text).expect_err("a mistake");
        assert_eq!(error.line, line, "{text}: {}", error.message);
    }
}

#[test]
fn a_segment_that_arrives_may_carry_a_text() {
    let data = |line: &str| match packet(line).transport {
        Transport::Tcp(tcp) => tcp.data,
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(data("< P. 1:4(3) ack 1 win 9 data \"a\\x00b\""), Some(b"a\0b".to_vec()));
    assert_eq!(data("< P. 1:4(3) ack 1 win 9 <nop> data \"abc\""), Some(b"abc".to_vec()));
    assert_eq!(data("< P. 1:4(3) ack 1 win 9"), None);
    for wrong in [
        "< P. 1:5(4) ack 1 win 9 data \"abc\"",
        "< P. 1:4(3) ack 1 win 9 data 123",
        "> P. 1:4(3) ack 1 data \"abc\"",
    ] {
        assert!(parse(&format!("0 {wrong}\n")).is_err(), "{wrong}");
    }
}

#[test]
fn a_part_of_a_packet_is_named_as_by_tcpdump() {
    let part = |line: &str| packet(line).ip.fragment;
    let wanted = |len, offset, more| Some(Fragment { id: 7, len, offset, more });
    assert_eq!(part("< [frag 7:1480@0+] udp (3000)"), wanted(1_480, 0, true));
    assert_eq!(part("> [ect0, frag 7:48@2960] udp (3000)"), wanted(48, 2_960, false));
    assert_eq!(part("< [frag 7:8@8+] P. 1:101(100) ack 1 win 9"), wanted(8, 8, true));
    assert_eq!(part("< udp (3000)"), None);
    for wrong in
        ["< [frag 7:8@4+] udp (30)", "< [frag 7:8] udp (30)", "> [frag 7:8@8] . 1:1(0) ack 1"]
    {
        assert!(parse(&format!("0 {wrong}\n")).is_err(), "{wrong}");
    }
}
