//! Several squeues behind a middlebox: what tells too little of its flow to be steered by it, fragments
//! and errors, reaches the squeue of its connection or socket, whatever ring it comes by.

use crate::narrow::{CLOSED_PORT, Long, Middlebox, Rings};
use crate::pair::{self, LEFT, RIGHT, interface, right};
use multidata::{Stack, TcpListener, TcpStream, UdpSocket};
use std::io::ErrorKind;
use std::time::Duration;

/// Rings that keep each flow, and frames that are all hashed, over two and over four squeues.
const LAYOUTS: [&str; 3] = ["R2S0F0", "R2S2F1", "R4S0F0"];

fn stacks(layout: &str, long: Long) -> (Middlebox, Stack, Stack) {
    let layout: multidata::Layout = layout.parse().expect("a layout");
    let (middlebox, left, right) = Middlebox::open(layout.rings().into(), long);
    let build = |rings: Rings, address| {
        let builder = Stack::builder().layout(layout);
        builder.multiqueue_interface(rings, interface(address)).build().expect("a stack")
    };
    (middlebox, build(left, LEFT), build(right, RIGHT))
}

/// Eight connections from left to right, over which bytes go both ways, and more until there were some in each
/// squeue of both: where frames are all hashed, their ports, which are random, say in which.
fn exchange_in_every_squeue(left: &Stack, right_stack: &Stack, listening: u16) {
    let listener = TcpListener::bind(right_stack, right(listening)).expect("a free port");
    for seed in 0..64 {
        if seed >= 8 && [left, right_stack].into_iter().all(|it| !connections(it).contains(&0)) {
            return;
        }
        let client = TcpStream::connect(left, right(listening)).expect("it listens");
        let (server, _) = listener.accept().expect("a connection");
        pair::exchange(&client, &server, seed, 50_000);
    }
    panic!("a squeue without connections: {:?}", [left, right_stack].map(connections));
}

/// How many connections there were in each squeue.
fn connections(stack: &Stack) -> Vec<u64> {
    let counts = stack.squeue_counters().into_iter().map(|it| it.stack.shard);
    counts.map(|it| it.connections_accepted + it.connections_opened).collect()
}

#[test]
fn segments_in_fragments_come_to_their_connection() {
    for layout in LAYOUTS {
        let (_middlebox, left, right_stack) = stacks(layout, Long::Cut);
        exchange_in_every_squeue(&left, &right_stack, 80);
        for stack in [&left, &right_stack] {
            let shard = stack.counters().stack.shard;
            // A squeue that did not know the connection would have reset it, and ended the exchange.
            assert!(shard.datagrams_reassembled >= 8 * 50_000 / 1_460, "{layout}");
        }
    }
}

#[test]
fn datagrams_in_fragments_by_several_rings_come_to_their_socket() {
    for layout in LAYOUTS {
        let (_middlebox, left, right_stack) = stacks(layout, Long::Cut);
        let client = UdpSocket::bind(&left, (LEFT, 0)).expect("a free port");
        for port in 5_000..5_008 {
            let server = UdpSocket::bind(&right_stack, right(port)).expect("a free port");
            server.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
            client.send_to(&[port as u8; 1_400], right(port)).expect("a route");
            let mut buffer = [0; 2_000];
            let (count, _) = server.recv_from(&mut buffer).expect("sent");
            assert_eq!(buffer[..count], [port as u8; 1_400], "{layout}");
        }
        assert_eq!(right_stack.counters().stack.shard.datagrams_reassembled, 8, "{layout}");
    }
}

#[test]
fn reports_of_a_narrow_path_come_to_their_connection() {
    for layout in LAYOUTS {
        let (_middlebox, left, right_stack) = stacks(layout, Long::Report);
        exchange_in_every_squeue(&left, &right_stack, 81);
        for stack in [&left, &right_stack] {
            // Each squeue's own connections were told.
            let lowered = stack.squeue_counters().into_iter().map(|it| it.stack.shard);
            let lowered: Vec<u64> = lowered.map(|it| it.path_mtus_lowered).collect();
            assert!(lowered.iter().all(|count| *count > 0), "{layout}: {lowered:?}");
            assert_eq!(stack.counters().stack.shard.fragments_received, 0, "{layout}");
        }
    }
}

#[test]
fn a_connection_that_is_refused_by_an_error_hears_of_it_in_every_squeue() {
    for layout in LAYOUTS {
        let (_middlebox, left, _right_stack) = stacks(layout, Long::Report);
        for _ in 0..8 {
            // Were the error lost, it would be `TimedOut`.
            let refused = TcpStream::connect(&left, right(CLOSED_PORT)).expect_err("closed");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{layout}");
        }
    }
}
