//! TCP Fast Open (RFC 7413), both ends, with networks that lose or mangle its SYNs.

mod harness;

use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::SocketAddr;
use device::TransmitMode;
use harness::{Fate, Net, address};
use stack::{ListenOptions, SocketError, SocketId};
use std::cell::Cell;
use std::rc::Rc;
use time::Duration;
use wire::{TcpFlags, TcpHeader};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn server(net: &mut Net, fast_open_max: usize) -> (SocketId, SocketAddr) {
    let local = SocketAddr::new(address(1, false), 80);
    let options = ListenOptions { fast_open_max, ..ListenOptions::default() };
    (net.hosts[1].shard.tcp_listen_with(local, options).expect("free"), local)
}

fn open(net: &mut Net, to: SocketAddr, data: &[u8]) -> Result<SocketId, SocketError> {
    let chunk = Chunk::whole(Block::from(Bytes::copy_from_slice(data)));
    net.hosts[0].shard.tcp_connect_fast(net.now, None, to, None, chunk)
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
    assert!(shard.tcp_offer_fast_open(now, id).expect("new") > 0, "there is a cookie");
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

// RFC 7413, 7.1: a path that swallows such SYNs costs one timeout, and then no more.
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
