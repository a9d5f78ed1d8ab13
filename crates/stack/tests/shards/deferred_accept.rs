//! Listeners that wait for a connection's first data (TCP_DEFER_ACCEPT).

use crate::harness::craft::segment;
use crate::harness::{Net, address};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::SocketAddr;
use device::TransmitMode;
use stack::{ListenOptions, SocketError, SocketId};
use time::Duration;
use wire::{SeqNumber, TcpFlags, TcpHeader};

const SECOND: Duration = Duration::from_secs(1);

/// A listener that waits 30 s, and a connection to it.
fn opened() -> (Net, SocketId, SocketId) {
    opened_with(tcp::Config::default())
}

fn opened_with(config: tcp::Config) -> (Net, SocketId, SocketId) {
    let mut net = Net::with_config(TransmitMode::Multidata, false, config);
    net.delay = Duration::from_millis(10);
    let local = SocketAddr::new(address(1, false), 80);
    let options = ListenOptions { defer_accept: 30 * SECOND, ..ListenOptions::default() };
    let listener = net.hosts[1].shard.tcp_listen_with(local, options).expect("free");
    let client = net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
    net.run(20 * SECOND);
    let status = net.hosts[0].shard.tcp_status(client).expect("open");
    assert_eq!(status.state, tcp::State::Established, "to the client it is open");
    assert_eq!(net.hosts[1].shard.tcp_accept(listener), Err(SocketError::WouldBlock));
    (net, listener, client)
}

/// What the server knows of its first connection.
fn accepted(net: &mut Net, listener: SocketId) -> tcp::TcpInfo {
    let accepted = net.hosts[1].shard.tcp_accept(listener).expect("open");
    net.hosts[1].shard.tcp_info(net.now, accepted).expect("open")
}

#[test]
fn what_is_accepted_has_something_to_read() {
    let (mut net, listener, client) = opened();
    let sent = net.hosts[1].shard.counters().shard;
    assert_eq!((sent.syn_acks_sent, sent.syn_acks_sent_again), (1, 0), "nothing was lost");
    let chunk = Chunk::whole(Block::from(Bytes::from_static(b"request")));
    net.hosts[0].shard.tcp_append(net.now, client, chunk).expect("room");
    net.run(SECOND);
    let accepted = net.hosts[1].shard.tcp_accept(listener).expect("it has data");
    let mut received = Vec::new();
    net.read(1, accepted, &mut received).expect("open");
    assert_eq!(received, b"request");
}

#[test]
fn who_says_nothing_is_accepted_in_the_end() {
    let (mut net, listener, _) = opened();
    net.run(9 * SECOND);
    assert_eq!(net.hosts[1].shard.tcp_accept(listener), Err(SocketError::WouldBlock));
    net.run(2 * SECOND);
    assert!(net.hosts[1].shard.tcp_accept(listener).is_ok());
}

#[test]
fn who_has_nothing_to_say_is_accepted_at_once() {
    let (mut net, listener, client) = opened();
    net.hosts[0].shard.tcp_shutdown_write(net.now, client).expect("open");
    net.run(SECOND);
    let accepted = net.hosts[1].shard.tcp_accept(listener).expect("its end is here");
    let status = net.hosts[1].shard.tcp_status(accepted).expect("open");
    assert_eq!((status.state, status.at_end), (tcp::State::CloseWait, true));
}

/// RFC 6298, 2 and 5.7: neither what the client took to say something nor the SYN-ACK that asked for an ACK more
/// is of the path.
#[test]
fn the_silence_of_the_client_is_no_round_trip() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    net.delay = Duration::from_millis(10);
    let usual = {
        let local = SocketAddr::new(address(1, false), 81);
        let listener = net.hosts[1].shard.tcp_listen(local, 1).expect("free");
        net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
        net.run(SECOND);
        accepted(&mut net, listener)
    };
    assert!(usual.rtt.is_some_and(|rtt| rtt < SECOND));
    for speaks in [true, false] {
        let (mut net, listener, client) = opened();
        if speaks {
            let chunk = Chunk::whole(Block::from(Bytes::from_static(b"request")));
            net.hosts[0].shard.tcp_append(net.now, client, chunk).expect("room");
        } else {
            net.run(10 * SECOND);
        }
        net.run(SECOND);
        let found = accepted(&mut net, listener);
        let of_path = |info: &tcp::TcpInfo| (info.rtt, info.rto, info.congestion_window_bytes);
        assert_eq!(of_path(&found), of_path(&usual), "{speaks}");
    }
}

/// The SYN-ACK that ends the time is none that went again for want of an answer.
#[test]
fn who_says_nothing_is_accepted_also_where_no_syn_ack_goes_again() {
    let config = tcp::Config { syn_ack_retries: 0, ..tcp::Config::default() };
    let (mut net, listener, _) = opened_with(config);
    net.run(11 * SECOND);
    assert!(net.hosts[1].shard.tcp_accept(listener).is_ok());
}

// The timer of the SYN-ACK, which has arrived, is a second's.
#[test]
fn who_says_nothing_is_accepted_when_the_time_is_over_however_short_it_is() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    net.delay = Duration::from_millis(10);
    let local = SocketAddr::new(address(1, false), 80);
    let options =
        ListenOptions { defer_accept: Duration::from_millis(300), ..ListenOptions::default() };
    let listener = net.hosts[1].shard.tcp_listen_with(local, options).expect("free");
    net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
    net.run(Duration::from_millis(290));
    assert_eq!(net.hosts[1].shard.tcp_accept(listener), Err(SocketError::WouldBlock));
    net.run(Duration::from_millis(60));
    assert!(net.hosts[1].shard.tcp_accept(listener).is_ok());
}

/// RFC 6298, 5.5: what is waited for is a peer that is there; of another the SYN-ACK was lost, and goes again as from any
/// listener.
#[test]
fn a_syn_ack_that_nobody_answered_goes_again_while_there_is_time() {
    let sent = |defer_accept, silence| {
        let mut net = Net::new(TransmitMode::Multidata, false);
        let local = SocketAddr::new(address(1, false), 80);
        let options = ListenOptions { defer_accept, ..ListenOptions::default() };
        net.hosts[1].shard.tcp_listen_with(local, options).expect("free");
        let syn = TcpHeader {
            source_port: 1_024,
            destination_port: 80,
            sequence: SeqNumber(1),
            flags: TcpFlags::SYN,
            window: 65_535,
            ..TcpHeader::default()
        };
        net.inject(1, [segment([10, 0, 0, 77], &syn)]);
        net.run(silence);
        net.hosts[1].shard.counters().shard.syn_acks_sent_again
    };
    for (seconds, again) in [(2, 1), (5, 2)] {
        let silence = Duration::from_millis(500) + seconds * SECOND;
        for defer_accept in [Duration::ZERO, SECOND / 2, 30 * SECOND] {
            assert_eq!(sent(defer_accept, silence), again, "{seconds} s, {defer_accept:?}");
        }
    }
}
