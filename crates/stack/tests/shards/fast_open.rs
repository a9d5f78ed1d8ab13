//! TCP Fast Open (RFC 7413), both ends, with networks that lose or mangle its SYNs.

use crate::harness::{self, Fate, Net, address};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::SocketAddr;
use core::num::NonZeroU64;
use device::TransmitMode;
use stack::{FastOpenKeys, FastOpenOptions, SocketError, SocketId, TcpOption};
use std::cell::Cell;
use std::rc::Rc;
use time::Duration;
use wire::{TcpFlags, TcpHeader};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn server(net: &mut Net, fast_open_max: usize) -> (SocketId, SocketAddr) {
    let local = SocketAddr::new(address(1, false), 80);
    let options = harness::fast_open(fast_open_max);
    (net.hosts[1].shard.tcp_listen_with(local, options).expect("free"), local)
}

fn open(net: &mut Net, to: SocketAddr, data: &[u8]) -> Result<SocketId, SocketError> {
    let chunk = Chunk::whole(Block::from(Bytes::copy_from_slice(data)));
    net.hosts[0].shard.tcp_connect_fast(net.now, None, to, None, chunk, false)
}

fn open_without_cookie(net: &mut Net, to: SocketAddr, data: &[u8]) -> SocketId {
    let chunk = Chunk::whole(Block::from(Bytes::copy_from_slice(data)));
    let shard = &mut net.hosts[0].shard;
    shard.tcp_connect_fast(net.now, None, to, None, chunk, true).expect("a route")
}

/// Segments with SYN since `mark`: who sent it, the header, the length of its data.
fn syns(net: &Net, mark: usize) -> Vec<(usize, TcpHeader, usize)> {
    let parse = |(from, frame): &(usize, Vec<u8>)| {
        if frame[0] != 0x45 || frame[9] != 6 {
            return None;
        }
        let (header, len) = TcpHeader::parse(&frame[20..]).ok()?;
        header.flags.contains(TcpFlags::SYN).then_some((*from, header, frame.len() - 20 - len))
    };
    net.wire[mark..].iter().filter_map(parse).collect()
}

fn read_all(net: &mut Net, id: SocketId) -> Vec<u8> {
    let mut received = Vec::new();
    net.read(1, id, &mut received).expect("open");
    received
}

/// A net in which the client has its cookie.
fn with_cookie(fast_open_max: usize) -> (Net, SocketId, SocketAddr) {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, to) = server(&mut net, fast_open_max);
    let client = open(&mut net, to, b"first").expect("a route");
    net.run(10 * MS);
    let accepted = net.hosts[1].shard.tcp_accept(listener).expect("open");
    assert_eq!(read_all(&mut net, accepted), b"first", "by the usual way");
    net.hosts[0].shard.close(net.now, client);
    net.hosts[1].shard.close(net.now, accepted);
    net.run(10 * MS);
    (net, listener, to)
}

// RFC 7413, 3: request, cookie, and then data in the SYN that the server's application reads before
// the handshake is complete.
#[test]
fn the_second_connection_begins_with_data() {
    let (mut net, listener, to) = with_cookie(16);
    let mark = net.wire.len();
    let loses = Rc::new(Cell::new(true));
    let decide = Rc::clone(&loses);
    net.fate = Box::new(move |from, _| match from == 1 && decide.get() {
        true => Fate::Lose,
        false => Fate::Deliver,
    });
    let client = open(&mut net, to, b"in the SYN").expect("a route");
    net.run(10 * MS);
    let accepted = net.hosts[1].shard.tcp_accept(listener).expect("before the handshake");
    assert_eq!(read_all(&mut net, accepted), b"in the SYN");
    let (_, syn, data_len) = syns(&net, mark)[0];
    assert_eq!(data_len, 10);
    // RFC 9293, 3.8.6: the data lies in the buffer, so the edge is where it would be without.
    let (_, syn_ack, _) =
        *syns(&net, mark).iter().find(|(from, ..)| *from == 1).expect("an answer");
    assert_eq!(syn_ack.acknowledgment, syn.sequence + 11);
    assert_eq!(syn_ack.acknowledgment + u32::from(syn_ack.window), syn.sequence + 1 + 65_535);
    assert_eq!(syn.options.fast_open.expect("a cookie").cookie().len(), 8);
    // RFC 7413, 4.2.1: the SYN-ACK was lost; the SYN comes again without data, and what the server
    // has is not delivered twice.
    loses.set(false);
    net.run(5 * SECOND);
    let again = syns(&net, mark);
    let repeated = again.iter().filter(|(from, ..)| *from == 0).nth(1).expect("a repetition");
    assert_eq!((repeated.1.options.fast_open, repeated.2), (None, 0));
    assert_eq!(read_all(&mut net, accepted), b"");
    let status = net.hosts[1].shard.tcp_status(accepted).expect("open");
    assert_eq!(status.state, tcp::State::Established);
    let sent = net.hosts[0].shard.counters().tcp.fast_open_bytes_sent;
    assert_eq!((sent, net.hosts[1].shard.counters().tcp.fast_open_bytes_received), (10, 10));
    let now = net.now;
    let [ours, theirs] = [(0, client), (1, accepted)]
        .map(|(host, id)| net.hosts[host].shard.tcp_info(now, id).expect("open"));
    assert_eq!((ours.bytes_sent, ours.bytes_acknowledged, theirs.bytes_received), (10, 10, 10));
}

// RFC 7413, 4.1.3.1: larger data goes on behind the SYN's share.
#[test]
fn what_the_syn_has_no_room_for_follows_the_handshake() {
    let (mut net, listener, to) = with_cookie(16);
    let bytes = harness::data(20_000);
    let mark = net.wire.len();
    open(&mut net, to, &bytes).expect("a route");
    net.run(SECOND);
    let accepted = net.hosts[1].shard.tcp_accept(listener).expect("open");
    assert_eq!(read_all(&mut net, accepted), bytes);
    // A path of 1,500 bytes, less an IPv4 header and the longest that TCP has.
    assert_eq!(syns(&net, mark)[0].2, 1_500 - 20 - 60);
}

// RFC 6093: the mark of urgent data arrives, though a SYN has none.
#[test]
fn urgent_data_does_not_go_with_the_syn() {
    let (mut net, listener, to) = with_cookie(16);
    let mark = net.wire.len();
    let (now, shard) = (net.now, &mut net.hosts[0].shard);
    let id = shard.tcp_connect(now, None, to).expect("a route");
    assert!(shard.tcp_offer_fast_open(now, id, false).expect("new") > 0, "there is a cookie");
    let chunk = Chunk::whole(Block::from(Bytes::from_static(b"urgent")));
    shard.tcp_append_urgent(now, id, chunk).expect("room");
    net.run(SECOND);
    let (_, syn, data_len) = syns(&net, mark)[0];
    assert_eq!((syn.options.fast_open.map(|it| it.cookie().len()), data_len), (Some(8), 0));
    let accepted = net.hosts[1].shard.tcp_accept(listener).expect("open");
    let status = net.hosts[1].shard.tcp_status(accepted).expect("open");
    assert_eq!((status.readable_bytes, status.urgent_mark), (6, Some(5)));
}

// RFC 7413, 4.2.2: a server that does not take the data acknowledges the SYN alone.
#[test]
fn a_server_without_fast_open_gets_the_data_after_the_handshake() {
    let (mut net, listener, to) = with_cookie(16);
    net.hosts[1].shard.close(net.now, listener);
    let (listener, _) = server(&mut net, 0);
    open(&mut net, to, b"unheard in the SYN").expect("a route");
    net.run(SECOND);
    let accepted = net.hosts[1].shard.tcp_accept(listener).expect("open");
    assert_eq!(read_all(&mut net, accepted), b"unheard in the SYN");
    assert_eq!(net.hosts[1].shard.counters().shard.fast_opens_accepted, 0);
}

// RFC 7413, 4.1.3: "For a multihomed client, the cookies are dependent on the client and server IP addresses."
#[test]
fn each_address_of_a_client_has_a_cookie_of_its_own() {
    let (mut net, listener, to) = with_cookie(16);
    let (now, id) = (net.now, net.hosts[0].interface);
    let second = ip::Cidr::new([10, 0, 0, 77].into(), 24).expect("a network");
    net.hosts[0].shard.add_address(now, id, second).expect("a new one");
    let first = harness::address(0, false);
    // The second address learns its cookie, and the first one's is still there.
    for (local, data_len) in [(second.address(), 0), (second.address(), 4), (first, 4)] {
        let (now, mark) = (net.now, net.wire.len());
        let local = Some(SocketAddr::new(local, 0));
        let chunk = Chunk::whole(Block::from(Bytes::from_static(b"data")));
        let shard = &mut net.hosts[0].shard;
        let may_open_fast = shard.tcp_may_open_fast(now, local, to, false);
        assert_eq!(may_open_fast, data_len > 0, "{local:?}");
        shard.tcp_connect_fast(now, local, to, None, chunk, false).expect("a route");
        net.run(10 * MS);
        let accepted = net.hosts[1].shard.tcp_accept(listener).expect("open");
        assert_eq!(read_all(&mut net, accepted), b"data");
        let syns = syns(&net, mark);
        assert_eq!((syns[0].2, syns.len()), (data_len, 2), "{local:?}");
        let asked = syns[0].1.options.fast_open.expect("an option").cookie().len();
        assert_eq!(asked, if data_len == 0 { 0 } else { 8 }, "{local:?}");
    }
    assert_eq!(net.hosts[1].shard.counters().shard.fast_opens_accepted, 2);
}

// RFC 7413, 7.1: a path that swallows such SYNs costs one timeout, and then no more.
/// Programs connect to the address that they listen at.
#[test]
fn who_connects_to_nobody_opens_fast_where_this_host_gave_a_cookie() {
    for any in ["0.0.0.0:80", "[::]:80"] {
        let mut net = Net::new(TransmitMode::Multidata, false);
        let (any, now) = (any.parse().expect("an address"), net.now);
        let options = harness::fast_open(16);
        net.hosts[0].shard.tcp_listen_with(any, options).expect("free");
        let may = |net: &Net| net.hosts[0].shard.tcp_may_open_fast(now, None, any, false);
        assert!(!may(&net));
        for is_fast in [false, true] {
            assert_eq!(may(&net), is_fast);
            open(&mut net, any, b"hello").expect("this host");
            net.run(10 * MS);
            let counters = net.hosts[0].shard.counters();
            assert_eq!(counters.tcp.fast_open_bytes_received > 0, is_fast, "{any}");
        }
    }
}

#[test]
fn a_path_that_drops_syns_with_data_is_spared_them() {
    let (mut net, listener, to) = with_cookie(16);
    net.fate = Box::new(|_, frame| {
        let len = TcpHeader::parse(&frame[20..]).map_or(0, |(_, len)| len);
        let is_syn = frame[9] == 6 && frame[33] & 2 != 0;
        if is_syn && frame.len() > 20 + len { Fate::Lose } else { Fate::Deliver }
    });
    for (round, wait) in [(0, 3_000), (1, 100)] {
        let mark = net.wire.len();
        open(&mut net, to, b"data").expect("a route");
        net.run(wait * MS);
        let accepted = net.hosts[1].shard.tcp_accept(listener).expect("in time");
        assert_eq!(read_all(&mut net, accepted), b"data");
        assert_eq!(syns(&net, mark)[0].2, if round == 0 { 4 } else { 0 });
    }
}

// RFC 7413, 5.1: PendingFastOpenRequests is bounded; beyond it handshakes are as usual.
#[test]
fn pending_requests_are_bounded() {
    let (mut net, listener, to) = with_cookie(2);
    net.fate = Box::new(|from, _| if from == 1 { Fate::Lose } else { Fate::Deliver });
    for _ in 0..5 {
        open(&mut net, to, b"data").expect("a route");
    }
    net.run(10 * MS);
    let counters = net.hosts[1].shard.counters().shard;
    assert_eq!((counters.fast_opens_accepted, counters.fast_opens_limited), (2, 3));
    net.fate = Box::new(|_, _| Fate::Deliver);
    net.run(5 * SECOND);
    for _ in 0..5 {
        let accepted = net.hosts[1].shard.tcp_accept(listener).expect("open");
        assert_eq!(read_all(&mut net, accepted), b"data");
    }
    // The handshakes are complete: there is room again.
    open(&mut net, to, b"data").expect("a route");
    net.run(10 * MS);
    // The lost SYN-ACKs looked like a path that drops SYNs with data.
    let counters = net.hosts[1].shard.counters().shard;
    assert_eq!((counters.fast_opens_accepted, counters.fast_opens_limited), (2, 3));
}

// RFC 7413, 5.1: requests that their client resets go on counting for a while, and then no more.
#[test]
fn pending_requests_that_are_reset_go_on_counting_for_a_while() {
    let (mut net, _, to) = with_cookie(2);
    net.fate = Box::new(|from, _| if from == 1 { Fate::Lose } else { Fate::Deliver });
    for _ in 0..2 {
        let client = open(&mut net, to, b"data").expect("a route");
        net.run(10 * MS);
        net.hosts[0].shard.tcp_abort(net.now, client);
    }
    // Their SYN-ACKs come again and meet nobody: a reset each.
    net.fate = Box::new(|_, _| Fate::Deliver);
    net.run(5 * SECOND);
    assert_eq!(net.hosts[0].shard.counters().shard.resets_without_connection, 2);
    let counts = |net: &Net| {
        let counters = net.hosts[1].shard.counters().shard;
        (counters.fast_opens_accepted, counters.fast_opens_limited)
    };
    open(&mut net, to, b"data").expect("a route");
    net.run(SECOND);
    assert_eq!(counts(&net), (2, 1));
    net.run(60 * SECOND);
    open(&mut net, to, b"data").expect("a route");
    net.run(SECOND);
    assert_eq!(counts(&net), (3, 1));
}

/// The cookies of the SYN-ACKs since `mark`, and what SYNs brought of data.
fn cookies(net: &Net, mark: usize) -> (Vec<Option<Vec<u8>>>, Vec<usize>) {
    let syns = syns(net, mark);
    let answers = syns.iter().filter(|(from, ..)| *from == 1);
    let cookie = |(_, header, _): &(usize, TcpHeader, usize)| {
        header.options.fast_open.map(|it| it.cookie().to_vec())
    };
    let data = syns.iter().filter(|(from, ..)| *from == 0).map(|(.., len)| *len);
    (answers.map(cookie).collect(), data.collect())
}

// RFC 7413, 4.1.2: keys change, and what the one before made is good for a while.
#[test]
fn a_change_of_keys_turns_no_client_away() {
    let (mut net, listener, to) = with_cookie(16);
    let (old, new) = ([1; 16], [2; 16]);
    let steps = [
        // The cookie it has is of keys that the listener has no more: it is given another.
        (FastOpenKeys { primary: old, backup: None }, true, false),
        (FastOpenKeys { primary: old, backup: Some(new) }, false, true),
        (FastOpenKeys { primary: new, backup: Some(old) }, true, true),
        (FastOpenKeys { primary: new, backup: None }, false, true),
    ];
    for (keys, gives_another, is_fast) in steps {
        let options = FastOpenOptions { pending_max: 16, keys: Some(keys), without_cookie: false };
        net.hosts[1].shard.tcp_set_fast_open(listener, options).expect("it listens");
        let mark = net.wire.len();
        let accepted = net.hosts[1].shard.counters().shard.fast_opens_accepted;
        open(&mut net, to, b"data").expect("a route");
        net.run(10 * MS);
        let (given, data) = cookies(&net, mark);
        assert_eq!((given[0].is_some(), data), (gives_another, vec![4]), "{keys:?}");
        let counters = net.hosts[1].shard.counters().shard;
        assert_eq!(counters.fast_opens_accepted - accepted, u64::from(is_fast));
        let id = net.hosts[1].shard.tcp_accept(listener).expect("open");
        assert_eq!(read_all(&mut net, id), b"data");
    }
}

// RFC 7413, 7.3: where sources cannot be forged a server may do without cookies.
#[test]
fn data_goes_without_a_cookie_where_both_ends_are_set_to_it() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, to) = server(&mut net, 2);
    let options =
        FastOpenOptions { pending_max: 2, without_cookie: true, ..FastOpenOptions::default() };
    net.hosts[1].shard.tcp_set_fast_open(listener, options).expect("it listens");
    net.fate = Box::new(|from, _| if from == 1 { Fate::Lose } else { Fate::Deliver });
    for _ in 0..3 {
        open_without_cookie(&mut net, to, b"at once");
    }
    net.run(10 * MS);
    let accepted = net.hosts[1].shard.tcp_accept(listener).expect("before the handshake");
    assert_eq!(read_all(&mut net, accepted), b"at once");
    let (given, data) = cookies(&net, 0);
    assert_eq!((given[0].as_ref(), data), (None, vec![7, 7, 7]));
    let counters = net.hosts[1].shard.counters().shard;
    assert_eq!((counters.fast_opens_accepted, counters.fast_opens_limited), (2, 1));
    // The SYN-ACKs were lost: the SYNs go again alone, and nothing is delivered twice.
    let mark = net.wire.len();
    net.fate = Box::new(|_, _| Fate::Deliver);
    net.run(5 * SECOND);
    assert!(cookies(&net, mark).1.iter().all(|len| *len == 0));
    assert_eq!(read_all(&mut net, accepted), b"");
}

#[test]
fn a_server_that_wants_a_cookie_gets_what_went_without_one_behind_the_handshake() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (listener, to) = server(&mut net, 2);
    let long = harness::data(20_000);
    open_without_cookie(&mut net, to, &long);
    net.run(SECOND);
    let (given, data) = cookies(&net, 0);
    // Nothing was asked for, and the MSS is that of the own path.
    assert_eq!((given[0].as_ref(), data), (None, vec![1_500 - 20 - 60]));
    let accepted = net.hosts[1].shard.tcp_accept(listener).expect("open");
    assert_eq!(read_all(&mut net, accepted), long);
    assert_eq!(net.hosts[1].shard.counters().shard.fast_opens_accepted, 0);
}

/// A connection that came with "data" in its SYN, accepted before its handshake is complete: what host 0 sends but SYNs is
/// lost.
fn accepted_early(net: &mut Net, listener: SocketId, to: SocketAddr) -> (SocketId, SocketId) {
    net.fate = Box::new(|from, frame| match from == 0 && frame[33] & 2 == 0 {
        true => Fate::Lose,
        false => Fate::Deliver,
    });
    let client = open(net, to, b"data").expect("a route");
    net.run(10 * MS);
    let accepted = net.hosts[1].shard.tcp_accept(listener).expect("before the handshake");
    assert_eq!(read_all(net, accepted), b"data");
    (client, accepted)
}

fn answer(net: &mut Net, id: SocketId, bytes: &[u8]) {
    let chunk = Chunk::whole(Block::from(Bytes::copy_from_slice(bytes)));
    net.hosts[1].shard.tcp_append(net.now, id, chunk).expect("room");
}

// RFC 7413, 4.2.2: the server MAY send data before the handshake is complete, within the initial window (RFC 6928).
#[test]
fn the_answer_does_not_wait_for_the_handshake() {
    let (mut net, listener, to) = with_cookie(16);
    let (client, accepted) = accepted_early(&mut net, listener, to);
    let long = harness::data(40_000);
    answer(&mut net, accepted, &long);
    net.hosts[1].shard.close(net.now, accepted);
    net.run(10 * MS);
    let mut received = Vec::new();
    net.read(0, client, &mut received).expect("open");
    let mss = 1_500 - 40 - 12;
    assert_eq!(received, long[..10 * mss]);
    let status = net.hosts[0].shard.tcp_status(client).expect("open");
    assert!(!status.at_end, "the end is for when the handshake is complete");
    // The ACKs arrive: the rest follows.
    net.fate = Box::new(|_, _| Fate::Deliver);
    net.run(2 * SECOND);
    net.read(0, client, &mut received).expect("open");
    assert_eq!(received, long);
    let status = net.hosts[0].shard.tcp_status(client).expect("open");
    assert_eq!((status.at_end, status.state), (true, tcp::State::CloseWait));
}

// It is spread like any other data.
#[test]
fn a_limited_answer_goes_on_before_the_handshake() {
    let (mut net, listener, to) = with_cookie(16);
    let (client, accepted) = accepted_early(&mut net, listener, to);
    let rate = TcpOption::PacingRateMax(NonZeroU64::new(50_000));
    net.hosts[1].shard.tcp_set_option(net.now, accepted, rate).expect("open");
    let long = harness::data(10_000);
    answer(&mut net, accepted, &long);
    net.run(500 * MS);
    let mut received = Vec::new();
    net.read(0, client, &mut received).expect("open");
    assert_eq!(received, long, "within the timeout of the SYN-ACK");
}

// What follows a SYN-ACK that was lost meets a peer that waits for one: it goes again.
#[test]
fn an_answer_behind_a_lost_syn_ack_goes_again() {
    let (mut net, listener, to) = with_cookie(16);
    net.fate = Box::new(|from, _| if from == 1 { Fate::Lose } else { Fate::Deliver });
    let client = open(&mut net, to, b"data").expect("a route");
    net.run(10 * MS);
    let accepted = net.hosts[1].shard.tcp_accept(listener).expect("before the handshake");
    let long = harness::data(8_000);
    answer(&mut net, accepted, &long);
    net.run(10 * MS);
    let mark = net.wire.len();
    net.fate = Box::new(|_, _| Fate::Deliver);
    net.run(1_500 * MS);
    let mut received = Vec::new();
    net.read(0, client, &mut received).expect("open");
    assert_eq!(received, long, "within a timeout of the SYN-ACK");
    let again = cookies(&net, mark);
    assert!(!again.0.is_empty(), "the SYN-ACK went again");
}

// RFC 9293, 3.10.7.4: to an application that has accepted it, a reset connection was not refused.
#[test]
fn a_reset_before_the_handshake_is_complete_is_one_to_who_accepted() {
    let (mut net, listener, to) = with_cookie(16);
    let (client, accepted) = accepted_early(&mut net, listener, to);
    answer(&mut net, accepted, b"answer");
    net.run(10 * MS);
    net.fate = Box::new(|_, _| Fate::Deliver);
    net.hosts[0].shard.tcp_abort(net.now, client);
    net.run(10 * MS);
    let status = net.hosts[1].shard.tcp_status(accepted).expect("not closed");
    assert_eq!(status.error, Some(SocketError::ConnectionReset));
}

// RFC 9293, 3.4.3: nothing that is late of a connection may belong to the next one between the same ports. Here the network
// makes the next one, by bringing a SYN twice whose first connection has answered, and was aborted.
#[test]
fn a_syn_that_comes_twice_opens_behind_all_that_the_first_was_answered() {
    let (mut net, listener, to) = with_cookie(16);
    let mark = net.wire.len();
    net.fate = Box::new(|from, _| if from == 1 { Fate::Lose } else { Fate::Deliver });
    open(&mut net, to, b"data").expect("a route");
    net.run(MS);
    let accepted = net.hosts[1].shard.tcp_accept(listener).expect("before the handshake");
    answer(&mut net, accepted, &harness::data(10_000));
    net.run(MS);
    net.hosts[1].shard.tcp_abort(net.now, accepted);
    net.run(MS);
    let end_of = |(from, frame): &(usize, Vec<u8>)| {
        let (header, len) = TcpHeader::parse(&frame[20..]).ok().filter(|_| *from == 1)?;
        Some(header.sequence + (frame.len() - 20 - len) as u32)
    };
    let ends = net.wire[mark..].iter().filter_map(end_of);
    let end = ends.reduce(|one, other| one.later_of(other)).expect("an answer");
    let (_, syn) = net.wire[mark..].iter().find(|(from, _)| *from == 0).expect("sent").clone();
    // Whoever listens by then.
    net.hosts[1].shard.close(net.now, listener);
    server(&mut net, 16);
    let mark = net.wire.len();
    net.hosts[1].inbox.push(syn);
    net.run(MS);
    let (from, syn_ack, _) = syns(&net, mark)[0];
    assert_eq!(from, 1);
    assert!(syn_ack.sequence.is_after(end), "{:?} is not behind {end:?}", syn_ack.sequence);
    assert_eq!(net.hosts[1].shard.counters().shard.fast_opens_accepted, 2);
}
