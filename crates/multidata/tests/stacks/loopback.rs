//! Programs that talk to themselves: threads of one stack, over its loopback.

use crate::pair::{self, pair, pair_with};
use counters::DropReason;
use multidata::{Stack, TcpListener, TcpStream, UdpSocket};
use std::io::{Read, Write};

#[test]
fn two_threads_of_one_stack_exchange_mebibytes_over_loopback() {
    let (stack, _other): (Stack, Stack) = pair();
    let listener = TcpListener::bind(&stack, "127.0.0.1:80").expect("a free port");
    let sent: Vec<u8> =
        (0..8_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = TcpStream::connect(&stack, "127.0.0.1:80").expect("loopback");
            client.write_all(&sent).expect("connected");
            client.shutdown(std::net::Shutdown::Write).expect("connected");
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).expect("answered");
            assert_eq!(answer, b"all of it");
        });
        let (mut server, _) = listener.accept().expect("connected");
        let mut received = Vec::new();
        server.read_to_end(&mut received).expect("sent");
        assert!(received == sent);
        server.write_all(b"all of it").expect("connected");
    });
    let counted = stack.counters();
    assert!(counted.stack.shard.loopback_packets > counted.stack.shard.loopback_batches);
    // What is late on a busy machine may be repeated; the way itself refuses nothing.
    let way = [
        DropReason::NoRoute,
        DropReason::NotOurAddress,
        DropReason::BadSource,
        DropReason::TcpChecksum,
        DropReason::NoMemory,
    ];
    for reason in way {
        assert_eq!(counted.stack.drops.count(reason), 0, "{reason:?}");
    }
}

/// As on Linux: programs take the address that they listen at for one to connect to.
#[test]
fn who_connects_to_nobody_is_connected_to_this_host() {
    for squeues in [1, 3] {
        let (stack, _other) = pair_with(|builder| builder.squeues(squeues));
        for any in ["0.0.0.0:0", "[::]:0"] {
            let listener = TcpListener::bind(&stack, any).expect("a free port");
            let there = listener.local_addr().expect("it is open");
            for _ in 0..2 * squeues {
                let client = TcpStream::connect(&stack, there).expect("this host");
                let peer = client.peer_addr().expect("connected");
                assert!(peer.ip().is_loopback(), "{peer}");
                listener.accept().expect("connected");
            }
            let receiver = UdpSocket::bind(&stack, any).expect("a free port");
            let sender = UdpSocket::bind(&stack, any).expect("a free port");
            let there = receiver.local_addr().expect("it is open");
            sender.send_to(b"one", there).expect("this host");
            sender.connect(there).expect("this host");
            sender.send(b"two").expect("this host");
            for expected in [b"one", b"two"] {
                let mut bytes = [0; 3];
                let (_, from) = receiver.recv_from(&mut bytes).expect("a datagram");
                assert!(from.ip().is_loopback() && bytes == *expected, "{from}");
            }
        }
    }
}

#[test]
fn a_datagram_wakes_the_thread_that_waits_for_it() {
    let (stack, _other) = pair();
    let waiting = UdpSocket::bind(&stack, "127.0.0.1:53").expect("a free port");
    let sending = UdpSocket::bind(&stack, "127.0.0.1:54").expect("a free port");
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| {
            let mut bytes = [0; 9];
            waiting.recv_from(&mut bytes).map(|(count, from)| (count, from.port(), bytes))
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        sending.send_to(b"wake up!!", "127.0.0.1:53").expect("loopback");
        let heard = heard.join().expect("no panic").expect("a datagram");
        assert_eq!(heard, (9, 54, *b"wake up!!"));
    });
}

#[test]
fn batches_are_switched_off_and_on_and_the_status_shows_it() {
    let (stack, _other) = pair();
    assert!(stack.interfaces()[0].transmit.refusal.is_none());
    stack.set_multidata_outbound(Some(0), false).expect("an interface");
    let line = stack.interfaces()[0].transmit.to_string();
    assert!(line.contains("transmit single") && line.ends_with("multidata_not_enabled"), "{line}");
    assert_eq!(stack.interfaces()[0].mode, device::TransmitMode::Single);
    stack.set_multidata_outbound(Some(0), true).expect("an interface");
    assert_ne!(stack.interfaces()[0].mode, device::TransmitMode::Single);
    assert!(stack.set_multidata_outbound(Some(9), true).is_err());
}

#[test]
fn a_connection_over_loopback_ends_where_no_interface_is_left_and_keeps_nobody_busy() {
    let (stack, _other): (Stack, Stack) = pair();
    let listener = TcpListener::bind(&stack, "127.0.0.1:80").expect("a free port");
    let client = TcpStream::connect(&stack, "127.0.0.1:80").expect("loopback");
    let (server, _) = listener.accept().expect("connected");
    stack.remove_interface(0).expect("it is there");
    drop(client);
    let runtime = || stack.counters().runtime;
    let rests = || {
        let before = runtime().squeue_runs_unfinished;
        std::thread::sleep(std::time::Duration::from_millis(50));
        runtime().squeue_runs_unfinished == before
    };
    let started = std::time::Instant::now();
    while !rests() {
        assert!(started.elapsed() < pair::PATIENCE, "it works for ever: {:?}", runtime());
    }
    drop(server);
}
