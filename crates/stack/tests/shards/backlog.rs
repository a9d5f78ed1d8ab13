//! Handshakes that peers begin: full queues, SYN cookies, floods, and what is left in TIME-WAIT.

use crate::harness::craft::{internet_checksum, segment};
use crate::harness::{self, Fate, Net, address, data};
use core::net::SocketAddr;
use counters::DropReason;
use device::TransmitMode;
use stack::{BindOptions, ListenOptions, Readiness, SocketError, SocketId, SynCookieMode};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use tcp::State;
use time::Duration;
use wire::{SeqNumber, TcpFlags, TcpHeader, TcpOptions, TcpTimestamps};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn listen(net: &mut Net, options: ListenOptions) -> (SocketId, SocketAddr) {
    let local = SocketAddr::new(address(1, false), 80);
    (net.hosts[1].shard.tcp_listen_with(local, options).expect("a free port"), local)
}

fn syn(port: u16, number: u32) -> TcpHeader {
    TcpHeader {
        source_port: port,
        destination_port: 80,
        sequence: SeqNumber(number),
        flags: TcpFlags::SYN,
        window: 65_535,
        options: TcpOptions { mss: Some(1_460), ..TcpOptions::default() },
        ..TcpHeader::default()
    }
}

/// What host 1 sent of TCP since `mark`.
fn answers(net: &Net, mark: usize) -> Vec<TcpHeader> {
    let is_tcp = |frame: &[u8]| frame[0] == 0x45 && frame[9] == 6;
    let of_host_1 = net.wire[mark..].iter().filter(|(from, frame)| *from == 1 && is_tcp(frame));
    of_host_1.filter_map(|(_, frame)| Some(TcpHeader::parse(frame.get(20..)?).ok()?.0)).collect()
}

// RFC 4987, 3.6: with a full backlog, who means it still gets a connection, with all options that
// the timestamp carries; and data flows both ways.
#[test]
fn a_connection_by_cookie_is_like_any_other() {
    for timestamps in [true, false] {
        let config = tcp::Config { timestamps, ..tcp::Config::default() };
        let mut net = Net::with_config(TransmitMode::Multidata, false, config);
        let options =
            ListenOptions { syn_cookies: SynCookieMode::Always, ..ListenOptions::default() };
        let (listener, local) = listen(&mut net, options);
        let client = net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
        net.run(10 * MS);
        assert_eq!(net.hosts[1].shard.half_open_count(), 0);
        let server = net.hosts[1].shard.tcp_accept(listener).expect("an open connection");
        let counters = net.hosts[1].shard.counters().shard;
        assert_eq!((counters.syn_cookies_sent, counters.syn_cookies_accepted), (1, 1));
        let bytes = data(300_000);
        net.transfer((1, server), (0, client), &bytes, 5 * SECOND);
        net.transfer((0, client), (1, server), &bytes, 5 * SECOND);
        // The window scale survived the cookie where timestamps carried it.
        let scaled = net.wire.iter().filter(|(from, _)| *from == 1).any(|(_, frame)| {
            TcpHeader::parse(&frame[20..]).is_ok_and(|(header, _)| {
                header.flags.contains(TcpFlags::SYN) && header.options.window_scale.is_some()
            })
        });
        assert_eq!(scaled, timestamps);
    }
}

// RFC 4987, 3.6; 4: the half-open ones fill up, then cookies; no handshake is forgotten for it.
#[test]
fn a_flood_of_spoofed_syns_keeps_nobody_out() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let options = ListenOptions { half_open_max: 32, ..ListenOptions::default() };
    let (listener, local) = listen(&mut net, options);
    for number in 0..1_000_u32 {
        let source = [192, 0, (number >> 8) as u8, number as u8];
        net.inject(1, [segment(source, &syn(1_024 + number as u16, number))]);
        // What goes to hosts that never asked goes nowhere: there is no route, or nobody answers.
        if number % 50 == 0 {
            let port = net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
            net.run(10 * MS);
            let accepted = net.hosts[1].shard.tcp_accept(listener).expect("not kept out");
            let status = net.hosts[1].shard.tcp_status(accepted).expect("open");
            assert_eq!(status.state, State::Established);
            net.hosts[0].shard.close(net.now, port);
        }
    }
    assert_eq!(net.hosts[1].shard.half_open_count(), 32);
    assert!(net.hosts[1].shard.counters().shard.syn_cookies_accepted >= 19);
    // Five repetitions, and they are gone.
    net.run(120 * SECOND);
    assert_eq!(net.hosts[1].shard.half_open_count(), 0);
    assert_eq!(net.hosts[1].shard.counters().shard.half_open_timeouts, 32);
}

#[test]
fn without_cookies_what_is_beyond_the_backlog_is_dropped_and_counted() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let syn_cookies = SynCookieMode::Never;
    let (_, _) =
        listen(&mut net, ListenOptions { half_open_max: 8, syn_cookies, ..Default::default() });
    for port in 0..20 {
        net.inject(1, [segment([10, 0, 0, 9], &syn(2_000 + port, 5))]);
    }
    assert_eq!(net.hosts[1].shard.half_open_count(), 8);
    assert_eq!(net.hosts[1].shard.counters().drops.count(DropReason::BacklogFull), 12);
    // Those that nobody completed leave their places.
    net.run(120 * SECOND);
    assert_eq!(net.hosts[1].shard.half_open_count(), 0);
    for port in 0..8 {
        net.inject(1, [segment([10, 0, 0, 9], &syn(3_000 + port, 5))]);
    }
    assert_eq!(net.hosts[1].shard.half_open_count(), 8);
}

// RFC 4987, 3.6: forged and late cookies open nothing and are answered with a reset; where no cookie
// was sent lately, not even a valid one is looked at.
#[test]
fn cookies_that_were_not_sent_are_refused() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let syn_cookies = SynCookieMode::Always;
    let (listener, _) = listen(&mut net, ListenOptions { syn_cookies, ..Default::default() });
    let ack = |number: u32, ack: SeqNumber| TcpHeader {
        acknowledgment: ack,
        flags: TcpFlags::ACK,
        ..syn(4_000, number)
    };
    net.inject(1, [segment([10, 0, 0, 9], &ack(1, SeqNumber(77)))]);
    assert_eq!(net.hosts[1].shard.counters().shard.syn_cookies_refused, 0, "none was out");
    let mark = net.wire.len();
    net.inject(1, [segment([10, 0, 0, 9], &syn(4_000, 500))]);
    net.run(MS);
    let cookie = answers(&net, mark).last().expect("a SYN-ACK").sequence;
    net.inject(1, [segment([10, 0, 0, 9], &ack(501, cookie + 200))]);
    net.inject(1, [segment([10, 0, 0, 9], &ack(900, cookie + 1))]);
    assert_eq!(net.hosts[1].shard.counters().shard.syn_cookies_refused, 2);
    assert_eq!(net.hosts[1].shard.tcp_accept(listener), Err(SocketError::WouldBlock));
    net.run(200 * SECOND);
    net.inject(1, [segment([10, 0, 0, 9], &ack(501, cookie + 1))]);
    assert_eq!(net.hosts[1].shard.tcp_accept(listener), Err(SocketError::WouldBlock), "too old");
    assert_eq!(net.hosts[1].shard.counters().shard.syn_cookies_accepted, 0);
}

// RFC 7323, 2.2: the window scale of a SYN-ACK holds for the connection, whatever is set on its listener
// before the last ACK comes; and of a cookie nobody knows what it offered.
#[test]
fn a_handshake_under_way_keeps_the_settings_of_its_syn_ack() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, _) = listen(&mut net, ListenOptions::default());
    let mut first = syn(4_000, 500);
    first.options.window_scale = Some(7);
    let mark = net.wire.len();
    net.inject(1, [segment([10, 0, 0, 9], &first)]);
    net.run(MS);
    let answer = *answers(&net, mark).last().expect("a SYN-ACK");
    let scale = answer.options.window_scale.expect("it was offered one");
    assert!(scale > 0);
    let small = tcp::Config {
        receive_buffer_bytes: 8_192,
        receive_buffer_bytes_initial: 8_192,
        ..tcp::Config::default()
    };
    let shard = &mut net.hosts[1].shard;
    shard.tcp_set_listener(listener, Arc::new(small)).expect("it listens");
    let flags = TcpFlags::ACK;
    let ack = TcpHeader { acknowledgment: answer.sequence + 1, flags, ..syn(4_000, 501) };
    net.inject(1, [segment([10, 0, 0, 9], &ack)]);
    let server = net.hosts[1].shard.tcp_accept(listener).expect("an open connection");
    let now = net.now;
    let info = net.hosts[1].shard.tcp_info(now, server).expect("open");
    assert_eq!(info.window_scale, Some((7, scale)));
    // And the next one is of the new settings.
    let mark = net.wire.len();
    net.inject(1, [segment([10, 0, 0, 9], &TcpHeader { source_port: 4_001, ..first })]);
    net.run(MS);
    let answer = *answers(&net, mark).last().expect("a SYN-ACK");
    assert_eq!(answer.options.window_scale, Some(0));
}

// RFC 4987, 3.6: a cookie tells of a connection that nobody remembers, so it could tell of it twice. Were
// it believed again, the peer would find bytes of a new stream where the old one went on.
#[test]
fn a_cookie_opens_one_connection() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let syn_cookies = SynCookieMode::Always;
    let (listener, _) = listen(&mut net, ListenOptions { syn_cookies, ..Default::default() });
    let mark = net.wire.len();
    net.inject(1, [segment([10, 0, 0, 9], &syn(4_000, 500))]);
    net.run(MS);
    let cookie = answers(&net, mark).last().expect("a SYN-ACK").sequence;
    let flags = TcpFlags::ACK;
    let ack = TcpHeader { acknowledgment: cookie + 1, flags, ..syn(4_000, 501) };
    net.inject(1, [segment([10, 0, 0, 9], &ack)]);
    let server = net.hosts[1].shard.tcp_accept(listener).expect("an open connection");
    net.hosts[1].shard.tcp_abort(net.now, server);
    net.run(MS);
    let mark = net.wire.len();
    net.inject(1, [segment([10, 0, 0, 9], &ack)]);
    net.run(MS);
    assert_eq!(net.hosts[1].shard.tcp_accept(listener), Err(SocketError::WouldBlock));
    let counters = net.hosts[1].shard.counters().shard;
    assert_eq!((counters.syn_cookies_accepted, counters.syn_cookies_spent), (1, 1));
    assert!(answers(&net, mark).last().expect("an answer").flags.contains(TcpFlags::RST));
    // Another SYN of the same port gets a cookie of its own.
    let mark = net.wire.len();
    net.inject(1, [segment([10, 0, 0, 9], &syn(4_000, 90_000))]);
    net.run(MS);
    let cookie = answers(&net, mark).last().expect("a SYN-ACK").sequence;
    let ack = TcpHeader { acknowledgment: cookie + 1, flags, ..syn(4_000, 90_001) };
    net.inject(1, [segment([10, 0, 0, 9], &ack)]);
    assert!(net.hosts[1].shard.tcp_accept(listener).is_ok());
    net.run(400 * SECOND);
    assert_eq!(net.hosts[1].shard.holdings().spent_cookies, 0, "none is kept for ever");
}

// RFC 7323, 2.2: what a cookie's SYN-ACK offered is not in the cookie; of a listener that has other settings since it is not
// good.
#[test]
fn a_cookie_of_before_a_listener_was_set_anew_is_not_good() {
    for is_set in [false, true] {
        let mut net = Net::new(TransmitMode::Multidata, false);
        let syn_cookies = SynCookieMode::Always;
        let (listener, _) =
            listen(&mut net, ListenOptions { syn_cookies, ..ListenOptions::default() });
        net.inject(1, [segment([10, 0, 0, 9], &syn(4_000, 500))]);
        net.run(MS);
        let cookie = answers(&net, 0).last().expect("a SYN-ACK").sequence;
        if is_set {
            let shard = &mut net.hosts[1].shard;
            shard.tcp_set_listener(listener, Arc::default()).expect("it listens");
        }
        let flags = TcpFlags::ACK;
        let ack = TcpHeader { flags, acknowledgment: cookie + 1, ..syn(4_000, 501) };
        net.inject(1, [segment([10, 0, 0, 9], &ack)]);
        assert_eq!(net.hosts[1].shard.tcp_accept(listener).is_ok(), !is_set);
    }
}

// RFC 4987, 3.6: of two answers to a SYN, a cookie and then an ordinary one, the peer may believe
// either; refusing the cookie would reset a connection that the peer has open.
#[test]
fn a_cookie_is_good_though_the_backlog_has_room_again() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, _) =
        listen(&mut net, ListenOptions { half_open_max: 1, ..ListenOptions::default() });
    net.inject(1, [segment([10, 0, 0, 9], &syn(4_000, 500))]);
    let mark = net.wire.len();
    net.inject(1, [segment([10, 0, 0, 9], &syn(4_001, 500))]);
    net.run(MS);
    let cookie = answers(&net, mark).last().expect("a SYN-ACK").sequence;
    let reset = TcpHeader { flags: TcpFlags::RST, sequence: SeqNumber(501), ..syn(4_000, 0) };
    net.inject(1, [segment([10, 0, 0, 9], &reset)]);
    net.inject(1, [segment([10, 0, 0, 9], &syn(4_001, 500))]);
    assert_eq!(net.hosts[1].shard.half_open_count(), 1, "not by cookie this time");
    let mark = net.wire.len();
    let flags = TcpFlags::ACK;
    let ack = TcpHeader { flags, acknowledgment: cookie + 1, ..syn(4_001, 501) };
    net.inject(1, [segment([10, 0, 0, 9], &ack)]);
    net.run(MS);
    assert!(answers(&net, mark).iter().all(|answer| !answer.flags.contains(TcpFlags::RST)));
    net.hosts[1].shard.tcp_accept(listener).expect("the peer has it open");
    assert_eq!(net.hosts[1].shard.half_open_count(), 0);
}

// A full accept queue drops the ACK; the SYN-ACK comes again, and so does the ACK when there is room.
#[test]
fn a_full_accept_queue_delays_the_handshake() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, local) =
        listen(&mut net, ListenOptions { backlog: 2, ..ListenOptions::default() });
    let clients: Vec<_> = (0..3)
        .map(|_| net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route"))
        .collect();
    net.run(10 * MS);
    let drops = net.hosts[1].shard.counters().drops;
    assert_eq!(drops.count(DropReason::AcceptQueueFull), 1);
    assert_eq!(net.hosts[1].shard.half_open_count(), 1);
    for _ in 0..2 {
        net.hosts[1].shard.tcp_accept(listener).expect("one of two");
    }
    net.run(2 * SECOND);
    let server = net.hosts[1].shard.tcp_accept(listener).expect("the third");
    let remote = net.hosts[1].shard.tcp_status(server).expect("open").remote;
    let client = clients
        .iter()
        .copied()
        .find(|client| net.hosts[0].shard.local_address(*client).expect("open") == remote);
    net.transfer((0, client.expect("ours")), (1, server), &data(10_000), SECOND);
}

/// The handshake takes so many, and they do not wait a second behind it until the SYN-ACK comes again.
#[test]
fn a_burst_of_hundreds_waits_to_be_accepted() {
    const BURST: usize = 900;
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, local) = listen(&mut net, ListenOptions::default());
    for _ in 0..BURST {
        net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
    }
    net.run(100 * MS);
    let accept = || net.hosts[1].shard.tcp_accept(listener).ok();
    assert_eq!(core::iter::from_fn(accept).count(), BURST);
}

#[test]
fn a_lost_syn_ack_is_sent_again_and_a_lost_ack_is_made_good_by_data() {
    for lost in [TcpFlags::SYN | TcpFlags::ACK, TcpFlags::ACK] {
        let mut net = Net::new(TransmitMode::Multidata, false);
        let (listener, local) = listen(&mut net, ListenOptions::default());
        let loses = Rc::new(Cell::new(true));
        let decide = Rc::clone(&loses);
        net.fate = Box::new(move |_, frame| {
            let flags = TcpFlags(frame[33]);
            if flags == lost && decide.replace(false) { Fate::Lose } else { Fate::Deliver }
        });
        let client = net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
        net.run(10 * MS);
        net.write(0, client, b"first");
        net.run(3 * SECOND);
        assert!(!loses.get());
        let server = net.hosts[1].shard.tcp_accept(listener).expect("an open connection");
        let mut received = Vec::new();
        net.read(1, server, &mut received).expect("open");
        assert_eq!(received, b"first");
    }
}

// SO_REUSEPORT.
#[test]
fn listeners_that_share_a_port_share_the_connections() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let bind = BindOptions { shared: true, ..BindOptions::default() };
    let options = ListenOptions { bind, ..ListenOptions::default() };
    let listeners: Vec<_> = (0..3).map(|_| listen(&mut net, options.clone()).0).collect();
    let local = SocketAddr::new(address(1, false), 80);
    for _ in 0..90 {
        net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
        net.run(MS);
    }
    for listener in listeners {
        let shard = &mut net.hosts[1].shard;
        let count = core::iter::from_fn(|| shard.tcp_accept(listener).ok()).count();
        assert!((15..=45).contains(&count), "{count}");
    }
}

/// Opens a connection and closes it from host 0, which is left in TIME-WAIT.
fn time_wait(net: &mut Net, listener: SocketId, local: SocketAddr) -> SocketAddr {
    let client = net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
    net.run(10 * MS);
    let server = net.hosts[1].shard.tcp_accept(listener).expect("open");
    let own = net.hosts[0].shard.local_address(client).expect("open");
    net.hosts[0].shard.close(net.now, client);
    net.run(10 * MS);
    net.hosts[1].shard.close(net.now, server);
    net.run(10 * MS);
    own
}

// RFC 9293, 3.10.7.4: 2 MSL; the table is bounded and no socket is taken up by it.
#[test]
fn time_wait_takes_no_socket_and_ends_after_two_msl() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, local) = listen(&mut net, ListenOptions::default());
    net.hosts[0].shard.set_time_wait_max(5);
    for _ in 0..8 {
        time_wait(&mut net, listener, local);
    }
    let shard = &net.hosts[0].shard;
    assert_eq!((shard.socket_count(), shard.time_wait_count()), (0, 5));
    let counters = shard.counters().shard;
    assert_eq!((counters.time_wait_entered, counters.time_wait_recycled), (8, 3));
    assert_eq!(net.hosts[1].shard.socket_count(), 1, "the listener");
    net.run(59 * SECOND);
    assert_eq!(net.hosts[0].shard.time_wait_count(), 5);
    net.run(2 * SECOND);
    assert_eq!(net.hosts[0].shard.time_wait_count(), 0);
    net.hosts[0].shard.set_time_wait_max(0);
    time_wait(&mut net, listener, local);
    let shard = &net.hosts[0].shard;
    assert_eq!((shard.socket_count(), shard.time_wait_count()), (0, 0));
    assert_eq!(shard.counters().shard.time_wait_recycled, 4);
}

// RFC 9293, 3.10.7.4: who was replaced while its application still had the socket leaves nothing behind
// that could speak for its successor.
#[test]
fn a_connection_that_a_syn_replaced_in_time_wait_is_not_kept_when_its_socket_goes() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, remote) = listen(&mut net, ListenOptions::default());
    let local = Some(SocketAddr::new(harness::address(0, false), 50_000));
    let first = net.hosts[0].shard.tcp_connect(net.now, local, remote).expect("a route");
    net.run(10 * MS);
    let before = net.hosts[1].shard.tcp_accept(listener).expect("open");
    net.hosts[1].shard.tcp_shutdown_write(net.now, before).expect("open");
    net.run(10 * MS);
    net.hosts[0].shard.close(net.now, first);
    net.run(SECOND);
    let state = |net: &mut Net, id| net.hosts[1].shard.tcp_status(id).expect("open").state;
    assert_eq!(state(&mut net, before), tcp::State::TimeWait);
    let second = net.hosts[0].shard.tcp_connect(net.now, local, remote).expect("a route");
    net.run(10 * MS);
    let after = net.hosts[1].shard.tcp_accept(listener).expect("open");
    net.hosts[1].shard.close(net.now, before);
    assert_eq!(net.hosts[1].shard.time_wait_count(), 0);
    assert_eq!(state(&mut net, after), tcp::State::Established);
    net.transfer((0, second), (1, after), &data(1_000), SECOND);
}

// RFC 9293, 3.10.7.4: a FIN that comes again is acknowledged and begins 2 MSL anew. RFC 1337: a reset
// does not end it.
#[test]
fn a_repeated_fin_is_acknowledged_in_time_wait_and_a_reset_is_not_obeyed() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, local) = listen(&mut net, ListenOptions::default());
    let mark = net.wire.len();
    time_wait(&mut net, listener, local);
    let fin = net.wire[mark..]
        .iter()
        .rfind(|(from, frame)| *from == 1 && frame[33] & 1 == 1)
        .expect("a FIN")
        .1
        .clone();
    net.run(40 * SECOND);
    let mark = net.wire.len();
    net.inject(0, [fin.clone()]);
    net.run(40 * SECOND);
    let is_tcp = |frame: &[u8]| frame[0] == 0x45 && frame[9] == 6;
    let acks = net.wire[mark..].iter().filter(|(from, frame)| *from == 0 && is_tcp(frame)).count();
    assert_eq!(acks, 1);
    assert_eq!(net.hosts[0].shard.time_wait_count(), 1);
    let mut reset = fin;
    reset[33] = TcpFlags::RST.0 | TcpFlags::ACK.0;
    let end = usize::from(u16::from_be_bytes([reset[2], reset[3]]));
    reset[36..38].fill(0);
    let mut pseudo = [&reset[12..20], &[0, 6]].concat();
    pseudo.extend(((end - 20) as u16).to_be_bytes());
    pseudo.extend(&reset[20..end]);
    let sum = internet_checksum(&pseudo);
    reset[36..38].copy_from_slice(&sum.to_be_bytes());
    net.inject(0, [reset]);
    let shard = &net.hosts[0].shard;
    // The other came from the peer, which knew nothing of the connection any more.
    assert_eq!(shard.counters().drops.count(DropReason::TimeWaitReset), 2);
    assert_eq!(shard.time_wait_count(), 1);
}

// RFC 6191, 2, at both ends: the same ports again, at once where the server is in TIME-WAIT, and
// after a second where the client is.
#[test]
fn the_same_ports_may_be_used_again_when_timestamps_tell_the_connections_apart() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, local) = listen(&mut net, ListenOptions::default());
    let own = time_wait(&mut net, listener, local);
    let early = net.hosts[0].shard.tcp_connect(net.now, Some(own), local);
    assert_eq!(early, Err(SocketError::AddressInUse));
    net.run(SECOND);
    let client = net.hosts[0].shard.tcp_connect(net.now, Some(own), local).expect("reusable");
    net.run(10 * MS);
    let server = net.hosts[1].shard.tcp_accept(listener).expect("open");
    // Now the server closes first.
    net.hosts[1].shard.close(net.now, server);
    net.run(10 * MS);
    net.hosts[0].shard.close(net.now, client);
    net.run(10 * MS);
    assert_eq!(net.hosts[1].shard.time_wait_count(), 1);
    let client = net.hosts[0].shard.tcp_connect(net.now, Some(own), local).expect("free");
    net.run(10 * MS);
    let server = net.hosts[1].shard.tcp_accept(listener).expect("open");
    assert_eq!(net.hosts[1].shard.counters().shard.time_wait_replaced, 1);
    net.transfer((0, client), (1, server), &data(50_000), SECOND);
}

// RFC 6056, 2: what must be unique is the four-tuple.
#[test]
fn one_local_port_serves_connections_to_several_peers() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let own = SocketAddr::new(address(0, false), 5_000);
    let mut pairs = Vec::new();
    for port in [80, 81, 82] {
        let local = SocketAddr::new(address(1, false), port);
        let listener = net.hosts[1].shard.tcp_listen(local, 4).expect("free");
        let client = net.hosts[0].shard.tcp_connect(net.now, Some(own), local).expect("free");
        net.run(10 * MS);
        pairs.push((client, net.hosts[1].shard.tcp_accept(listener).expect("open")));
        let again = net.hosts[0].shard.tcp_connect(net.now, Some(own), local);
        assert_eq!(again, Err(SocketError::AddressInUse));
    }
    for (client, server) in pairs {
        net.transfer((0, client), (1, server), &data(5_000), SECOND);
    }
}

// RFC 7323, 3.2: the timestamp of a half-open connection is echoed by its repetitions.
#[test]
fn a_repeated_syn_gets_the_same_syn_ack() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    listen(&mut net, ListenOptions::default());
    let mut header = syn(3_000, 9);
    header.options.timestamps = Some(TcpTimestamps { value: 77, echo: 0 });
    let mark = net.wire.len();
    for _ in 0..2 {
        net.inject(1, [segment([10, 0, 0, 9], &header)]);
        net.run(300 * MS);
    }
    let answers = answers(&net, mark);
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert_eq!(answers[0].sequence, answers[1].sequence);
    for answer in answers {
        assert_eq!(answer.flags, TcpFlags::SYN | TcpFlags::ACK);
        assert_eq!(answer.options.timestamps.map(|it| it.echo), Some(77));
    }
}

// The pauses of a SYN-ACK begin within the bounds of every other timeout.
#[test]
fn a_syn_ack_waits_for_the_least_timeout_where_the_first_is_less() {
    let mut config = tcp::Config::default();
    config.rtt.rto_initial = Duration::ZERO;
    config.rtt.rto_min = 300 * MS;
    let mut net = Net::with_config(TransmitMode::Multidata, false, config);
    listen(&mut net, ListenOptions::default());
    let mark = net.wire.len();
    net.inject(1, [segment([10, 0, 0, 9], &syn(3_000, 9))]);
    for (pass, sent) in [(299, 1), (2, 2), (598, 2), (2, 3)] {
        net.run(pass * MS);
        assert_eq!(answers(&net, mark).len(), sent);
    }
}

// RFC 7323, 4.3: TS.Recent follows, or the client would take all its waiting for the round trip of the path.
#[test]
fn a_later_repetition_of_a_syn_has_its_own_timestamp_echoed() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    listen(&mut net, ListenOptions::default());
    let mut header = syn(3_000, 9);
    let mark = net.wire.len();
    for value in [77, 577] {
        header.options.timestamps = Some(TcpTimestamps { value, echo: 0 });
        net.inject(1, [segment([10, 0, 0, 9], &header)]);
        net.run(400 * MS);
    }
    let echoes = answers(&net, mark).into_iter().map(|it| it.options.timestamps.map(|it| it.echo));
    assert_eq!(echoes.collect::<Vec<_>>(), [Some(77), Some(577)]);
}

// RFC 6298, 2.5: the pause between two SYN-ACKs doubles up to a minute, though data may wait longer.
#[test]
fn no_more_than_a_minute_passes_between_two_syn_acks() {
    let config = tcp::Config { syn_ack_retries: 8, ..tcp::Config::default() };
    let mut net = Net::with_config(TransmitMode::Multidata, false, config);
    listen(&mut net, ListenOptions::default());
    net.inject(1, [segment([10, 0, 0, 9], &syn(3_000, 9))]);
    while net.step() {}
    let mut sent_at = Vec::new();
    for second in 0..300 {
        if !answers(&net, 0).is_empty() {
            sent_at.push(second);
            net.wire.clear();
        }
        net.run(SECOND);
    }
    let pauses: Vec<_> = sent_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
}

// A program that listens again, after a restart or with other settings, is who the next SYN is for.
#[test]
fn a_syn_whose_listener_is_gone_is_for_the_one_that_listens_now() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, _) = listen(&mut net, ListenOptions::default());
    net.inject(1, [segment([10, 0, 0, 9], &syn(3_000, 9))]);
    net.run(100 * MS);
    net.hosts[1].shard.close(net.now, listener);
    let (listener, _) = listen(&mut net, ListenOptions::default());
    let mark = net.wire.len();
    net.inject(1, [segment([10, 0, 0, 9], &syn(3_000, 9))]);
    net.run(100 * MS);
    let answers = answers(&net, mark);
    let [syn_ack] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(syn_ack.flags, TcpFlags::SYN | TcpFlags::ACK);
    let ack = TcpHeader {
        sequence: SeqNumber(10),
        acknowledgment: syn_ack.sequence + 1,
        flags: TcpFlags::ACK,
        ..syn(3_000, 9)
    };
    net.inject(1, [segment([10, 0, 0, 9], &ack)]);
    assert!(net.hosts[1].shard.tcp_accept(listener).is_ok());
    assert_eq!(net.hosts[1].shard.half_open_count(), 0);
}

// Without one it is as without any listener.
#[test]
fn what_comes_for_a_listener_that_is_gone_is_answered_with_a_reset() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, _) = listen(&mut net, ListenOptions::default());
    net.inject(1, [segment([10, 0, 0, 9], &syn(3_000, 9))]);
    net.run(100 * MS);
    net.hosts[1].shard.close(net.now, listener);
    let mark = net.wire.len();
    net.inject(1, [segment([10, 0, 0, 9], &syn(3_000, 9))]);
    net.run(100 * MS);
    let flags: Vec<_> = answers(&net, mark).iter().map(|answer| answer.flags).collect();
    assert_eq!(flags, [TcpFlags::RST | TcpFlags::ACK]);
    assert_eq!(net.hosts[1].shard.half_open_count(), 0);
}

// RFC 5961, 7: whoever forged one SYN would have every further segment reflected to whose address it was.
#[test]
fn a_half_open_connection_answers_one_segment_in_half_a_second() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    listen(&mut net, ListenOptions::default());
    net.inject(1, [segment([10, 0, 0, 9], &syn(4_000, 1))]);
    net.run(MS);
    let iss = answers(&net, 0)[0].sequence;
    // Beyond the window, with an acknowledgment that is right.
    let stray = TcpHeader {
        sequence: SeqNumber(1_000_000),
        acknowledgment: iss + 1,
        flags: TcpFlags::ACK,
        ..syn(4_000, 0)
    };
    for header in [stray, syn(4_000, 1)] {
        net.run(500 * MS);
        let mark = net.wire.len();
        net.inject(1, (0..20).map(|_| segment([10, 0, 0, 9], &header)));
        net.run(MS);
        assert_eq!(answers(&net, mark).len(), 1);
    }
}

// RFC 9293, 3.10.7.1 asks for a reset; a flood must not be doubled for it.
#[test]
fn resets_for_segments_without_a_connection_are_limited() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    for number in 0..10_000 {
        let header = TcpHeader { flags: TcpFlags::ACK, ..syn(5_000, number) };
        net.inject(1, [segment([10, 0, 0, 9], &header)]);
        if number % 100 == 0 {
            net.run(MS);
        }
    }
    let counters = net.hosts[1].shard.counters();
    let (sent, withheld) = (
        counters.shard.resets_without_connection,
        counters.drops.count(DropReason::ResetRateLimited),
    );
    assert_eq!(sent + withheld, 10_000);
    assert!((300..=1_500).contains(&sent), "{sent}");
    net.run(SECOND);
    let header = TcpHeader { flags: TcpFlags::ACK, ..syn(5_000, 1) };
    net.inject(1, [segment([10, 0, 0, 9], &header)]);
    assert_eq!(net.hosts[1].shard.counters().shard.resets_without_connection, sent + 1);
}

// Connections that nobody owns may finish, but not any number of them.
#[test]
fn orphans_beyond_the_limit_are_reset() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, local) = listen(&mut net, ListenOptions::default());
    net.hosts[0].shard.set_orphans_max(3);
    let clients: Vec<_> = (0..5)
        .map(|_| net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route"))
        .collect();
    net.run(10 * MS);
    net.fate = Box::new(|_, _| Fate::Lose);
    for client in clients {
        net.write(0, client, b"undelivered");
        net.hosts[0].shard.close(net.now, client);
    }
    let shard = &net.hosts[0].shard;
    assert_eq!((shard.orphan_count(), shard.counters().shard.orphans_reset), (5, 2));
    net.run(MS);
    assert_eq!(net.hosts[0].shard.orphan_count(), 3, "the resets are out");
    net.fate = Box::new(|_, _| Fate::Deliver);
    net.run(10 * SECOND);
    let mut delivered = 0;
    while let Ok(server) = net.hosts[1].shard.tcp_accept(listener) {
        let mut received = Vec::new();
        delivered += u32::from(net.read(1, server, &mut received).is_ok() && !received.is_empty());
        net.hosts[1].shard.close(net.now, server);
    }
    assert_eq!(delivered, 3);
    net.run(SECOND);
    assert_eq!(net.hosts[0].shard.orphan_count(), 0);
}

// What nobody has accepted is reset with its listener, and is an orphan for as long as that takes.
#[test]
fn what_waits_to_be_accepted_goes_with_its_listener() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, local) = listen(&mut net, ListenOptions::default());
    let client = net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
    net.run(10 * MS);
    net.hosts[1].shard.close(net.now, listener);
    assert_eq!(net.hosts[1].shard.orphan_count(), 1);
    net.run(10 * MS);
    assert_eq!(net.hosts[1].shard.orphan_count(), 0);
    assert_eq!(net.hosts[1].shard.socket_count(), 0);
    let status = net.hosts[0].shard.tcp_status(client).expect("ours");
    assert_eq!(status.state, State::Closed);
}

// Who accepts one at each call, as a thread does that serves it, is called again while others wait.
#[test]
fn who_accepts_one_hears_of_the_next() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, local) = listen(&mut net, ListenOptions::default());
    for _ in 0..3 {
        net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
    }
    net.run(10 * MS);
    let shard = &mut net.hosts[1].shard;
    let mut accepted = 0;
    while let Some(event) = shard.poll_event() {
        if event.socket == listener {
            assert_eq!(event.readiness, Readiness::ACCEPTABLE);
            shard.tcp_accept(listener).expect("an open connection");
            accepted += 1;
        }
    }
    assert_eq!(accepted, 3);
}

// As elsewhere, a backlog of none is one of a single connection.
#[test]
fn a_backlog_that_is_set_to_none_takes_one() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, local) = listen(&mut net, ListenOptions::default());
    net.hosts[1].shard.tcp_set_backlog(listener, 0).expect("it listens");
    net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
    net.run(10 * MS);
    net.hosts[1].shard.tcp_accept(listener).expect("it was taken");
}

// What has nothing left to do, or nothing but TIME-WAIT, which takes no socket, is none of them.
#[test]
fn who_has_nothing_to_finish_is_no_orphan_too_many() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    net.hosts[0].shard.set_orphans_max(0);
    let (first, its_peer) = net.connect(false);
    net.hosts[0].shard.tcp_shutdown_write(net.now, first).expect("open");
    net.run(10 * MS);
    net.hosts[1].shard.close(net.now, its_peer);
    net.run(10 * MS);
    let (second, its_peer) = net.connect_to(false, 81);
    net.hosts[1].shard.tcp_abort(net.now, its_peer);
    net.run(10 * MS);
    let to = SocketAddr::new(address(1, false), 82);
    let third = net.hosts[0].shard.tcp_connect(net.now, None, to).expect("a route");
    let states =
        [first, second, third].map(|id| net.hosts[0].shard.tcp_status(id).expect("there").state);
    assert_eq!(states, [State::TimeWait, State::Closed, State::SynSent]);
    for id in [first, second, third] {
        net.hosts[0].shard.close(net.now, id);
    }
    let shard = &net.hosts[0].shard;
    assert_eq!((shard.socket_count(), shard.time_wait_count()), (0, 1));
    assert_eq!(shard.counters().shard.orphans_reset, 0);
}

// RFC 6056, 2; RFC 9293, 3.3.1: as many connections as there are four-tuples, not as there are ports.
#[test]
fn one_address_opens_more_connections_than_it_has_ports() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let own: Vec<SocketAddr> = (0..3)
        .flat_map(|port| {
            let to = SocketAddr::new(address(1, false), 80 + port);
            (0..300)
                .map(|_| {
                    let shard = &mut net.hosts[0].shard;
                    let id = shard.tcp_connect(net.now, None, to).expect("a free four-tuple");
                    let local = shard.local_address(id).expect("open");
                    shard.tcp_abort(net.now, id);
                    shard.close(net.now, id);
                    local
                })
                .collect::<Vec<_>>()
        })
        .collect();
    // To one destination no port comes again soon, though each was free again at once.
    for of_one in own.chunks(300) {
        let distinct: std::collections::HashSet<_> = of_one.iter().collect();
        assert_eq!(distinct.len(), 300);
    }
}

// RFC 9293, 3.10.5, SYN-RECEIVED: an abort resets those whose handshake is under way as well.
#[test]
fn an_abort_of_all_resets_peers_whose_handshake_is_under_way() {
    // The SYN-ACK is lost, or the ACK that completes the handshake.
    for lost in [TcpFlags::SYN | TcpFlags::ACK, TcpFlags::ACK] {
        let mut net = Net::new(TransmitMode::Multidata, false);
        let (_, local) = listen(&mut net, ListenOptions::default());
        net.fate = Box::new(
            move |_, frame| {
                if TcpFlags(frame[33]) == lost { Fate::Lose } else { Fate::Deliver }
            },
        );
        let client = net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
        net.run(10 * MS);
        assert_eq!(net.hosts[1].shard.half_open_count(), 1);
        net.hosts[1].shard.tcp_abort_all(net.now);
        assert_eq!(net.hosts[1].shard.half_open_count(), 0);
        net.run(10 * MS);
        let status = net.hosts[0].shard.tcp_status(client).expect("open");
        assert_eq!(status.state, State::Closed, "{lost:?}");
    }
}
