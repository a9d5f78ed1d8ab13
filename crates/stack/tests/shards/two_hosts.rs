//! Two shards on one link: neighbours, echo, datagrams, streams, and what goes wrong.

use crate::harness::{Fate, Net, address, data};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::SocketAddr;
use counters::DropReason;
use device::TransmitMode;
use proptest::prelude::*;
use stack::{Readiness, SocketError, TcpOption};
use time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn chunk(bytes: &[u8]) -> Chunk {
    Chunk::whole(Block::from(Bytes::copy_from_slice(bytes)))
}

#[test]
fn streams_cross_in_every_mode_family_and_medium() {
    for mode in [TransmitMode::Single, TransmitMode::Multidata] {
        for ethernet in [true, false] {
            for ipv6 in [false, true] {
                let mut net = Net::new(mode, ethernet);
                let (client, server) = net.connect(ipv6);
                net.transfer((0, client), (1, server), &data(300_000), 20 * SECOND);
                net.transfer((1, server), (0, client), &data(200_001), 20 * SECOND);
                net.hosts[0].shard.close(net.now, client);
                net.hosts[1].shard.close(net.now, server);
                net.run(200 * SECOND);
                assert_eq!(net.hosts[0].shard.socket_count(), 0, "closed and forgotten");
                assert_eq!(net.hosts[1].shard.socket_count(), 1, "the listener");
                for host in &net.hosts {
                    assert_eq!(host.pool.counters().outstanding_bytes, 0, "a block leaked");
                }
            }
        }
    }
}

#[test]
fn single_mode_sends_batches_of_one_and_multidata_sends_many() {
    let packets_per_batch = |mode| {
        let mut net = Net::new(mode, true);
        let (client, server) = net.connect(false);
        net.transfer((0, client), (1, server), &data(500_000), 20 * SECOND);
        let counters = net.hosts[0].shard.counters().shard;
        counters.transmit_packets as f64 / counters.transmit_batches as f64
    };
    assert!((packets_per_batch(TransmitMode::Single) - 1.0).abs() < f64::EPSILON);
    assert!(packets_per_batch(TransmitMode::Multidata) > 5.0);
}

#[test]
fn a_lost_arp_request_is_repeated_and_a_silent_neighbour_fails_the_connection() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let mut lost = 0;
    net.fate = Box::new(move |_, frame| {
        let is_arp = frame[12..14] == [8, 6];
        lost += u32::from(is_arp);
        if is_arp && lost == 1 { Fate::Lose } else { Fate::Deliver }
    });
    let remote = SocketAddr::new(address(1, false), 80);
    net.hosts[1].shard.tcp_listen(remote, 1).expect("a free port");
    let client = net.hosts[0].shard.tcp_connect(net.now, None, remote).expect("a route");
    net.run(5 * SECOND);
    let status = net.hosts[0].shard.tcp_status(client).expect("open");
    assert_eq!(status.state, tcp::State::Established);

    let mut net = Net::new(TransmitMode::Multidata, true);
    net.fate = Box::new(|_, _| Fate::Lose);
    let client = net.hosts[0].shard.tcp_connect(net.now, None, remote).expect("a route");
    net.run(10 * SECOND);
    let status = net.hosts[0].shard.tcp_status(client).expect("not closed by its owner");
    assert_eq!(status.error, Some(SocketError::HostUnreachable));
}

/// RFC 4861, 7.3.1: acknowledgments prove that the neighbour is there, so nobody asks for it again.
#[test]
fn a_busy_neighbour_is_not_probed() {
    for ipv6 in [false, true] {
        let mut net = Net::new(TransmitMode::Multidata, true);
        let (client, server) = net.connect(ipv6);
        let mut received = Vec::new();
        for _ in 0..200 {
            net.write(0, client, b"still there");
            net.run(SECOND);
            assert_eq!(net.read(1, server, &mut received), Ok(false));
        }
        assert_eq!(received.len(), 200 * 11);
        let neighbours = net.hosts[0].shard.counters().neighbours;
        assert_eq!(neighbours.neighbour_requests, 1, "the one that found it");
    }
}

#[test]
fn datagrams_wait_for_their_neighbour_and_errors_come_back() {
    for ipv6 in [false, true] {
        let mut net = Net::new(TransmitMode::Multidata, true);
        let to = SocketAddr::new(address(1, ipv6), 53);
        let server = net.hosts[1].shard.udp_bind(to).expect("a free port");
        let local = SocketAddr::new(address(0, ipv6), 0);
        let client = net.hosts[0].shard.udp_bind(local).expect("a port");
        for i in 0..10_u8 {
            net.hosts[0].shard.udp_send(client, Some(to), chunk(&[i; 100])).expect("room");
        }
        net.run(SECOND);
        for i in 0..10_u8 {
            let (payload, from) = net.hosts[1].shard.udp_receive(server).expect("a datagram");
            assert_eq!(payload.bytes(), [i; 100]);
            assert_eq!(from.ip(), address(0, ipv6));
        }
        assert_eq!(net.hosts[1].shard.udp_receive(server).err(), Some(SocketError::WouldBlock));
        // No IP packet is as long as that, in fragments or not.
        let long = chunk(&[0; 65_536]);
        let refused = net.hosts[0].shard.udp_send(client, Some(to), long);
        assert_eq!(refused, Err(SocketError::MessageTooLong));
        // Nobody listens there: a connected socket hears of it.
        let nobody = SocketAddr::new(address(1, ipv6), 54);
        net.hosts[0].shard.udp_connect(client, nobody).expect("a route");
        net.hosts[0].shard.udp_send(client, None, chunk(b"anyone?")).expect("room");
        net.run(SECOND);
        let error = net.hosts[0].shard.udp_receive(client).err();
        assert_eq!(error, Some(SocketError::ConnectionRefused));
        let drops = net.hosts[1].shard.counters().drops;
        assert_eq!(drops.count(DropReason::PortUnreachable), 1);
    }
}

#[test]
fn nobody_listening_is_a_refusal_and_a_full_backlog_is_silence() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let remote = SocketAddr::new(address(1, false), 80);
    let client = net.hosts[0].shard.tcp_connect(net.now, None, remote).expect("a route");
    net.run(SECOND);
    let status = net.hosts[0].shard.tcp_status(client).expect("still owned");
    assert_eq!(status.error, Some(SocketError::ConnectionRefused));

    let listener = net.hosts[1].shard.tcp_listen(remote, 2).expect("a free port");
    assert_eq!(net.hosts[1].shard.tcp_listen(remote, 2).err(), Some(SocketError::AddressInUse));
    for _ in 0..3 {
        net.hosts[0].shard.tcp_connect(net.now, None, remote).expect("a route");
    }
    net.run(Duration::from_millis(100));
    assert!(net.hosts[1].shard.counters().drops.count(DropReason::AcceptQueueFull) >= 1);
    for _ in 0..2 {
        net.hosts[1].shard.tcp_accept(listener).expect("two were let in");
    }
    assert_eq!(net.hosts[1].shard.tcp_accept(listener).err(), Some(SocketError::WouldBlock));
    // The third tries again and finds room.
    net.run(4 * SECOND);
    net.hosts[1].shard.tcp_accept(listener).expect("the SYN was sent again");
}

#[test]
fn events_tell_of_what_became_possible() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let remote = SocketAddr::new(address(1, false), 80);
    let listener = net.hosts[1].shard.tcp_listen(remote, 2).expect("a free port");
    let client = net.hosts[0].shard.tcp_connect(net.now, None, remote).expect("a route");
    net.run(SECOND);
    let event = net.hosts[1].shard.poll_event().expect("a connection waits");
    assert_eq!((event.socket, event.readiness), (listener, Readiness::ACCEPTABLE));
    let event = net.hosts[0].shard.poll_event().expect("the open succeeded");
    assert!(event.socket == client && event.readiness.intersects(Readiness::CONNECTED));
    let server = net.hosts[1].shard.tcp_accept(listener).expect("waits");
    net.write(0, client, b"hello");
    net.run(SECOND);
    let event = net.hosts[1].shard.poll_event().expect("data came");
    assert!(event.socket == server && event.readiness.intersects(Readiness::READABLE));
    net.hosts[0].shard.tcp_abort(net.now, client);
    net.run(SECOND);
    let event = net.hosts[1].shard.poll_event().expect("a reset came");
    assert!(event.readiness.intersects(Readiness::CLOSED));
    let mut read = Vec::new();
    assert_eq!(net.read(1, server, &mut read), Err(SocketError::ConnectionReset));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A device may take any part of any batch: what was not taken is built afresh, and the stream
    /// does not notice.
    #[test]
    fn any_part_of_a_batch_may_be_taken(takes in prop::collection::vec(0_usize..70, 1..40), ipv6: bool) {
        let mut net = Net::new(TransmitMode::Multidata, true);
        let (client, server) = net.connect(ipv6);
        for host in &mut net.hosts {
            let takes = takes.clone();
            let mut turn = 0;
            host.take = Box::new(move |built| {
                turn += 1;
                // Now and then everything, so that there is progress whatever the list says.
                if turn % 5 == 0 { built } else { takes[turn % takes.len()] }
            });
        }
        net.transfer((0, client), (1, server), &data(150_000), 60 * SECOND);
        net.transfer((1, server), (0, client), &data(50_000), 60 * SECOND);
    }

    /// Whatever comes in, nothing panics, and what was open stays open.
    #[test]
    fn no_frame_harms(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 0..50), kind in 0..4_usize) {
        let mut net = Net::new(TransmitMode::Multidata, true);
        let (client, server) = net.connect(false);
        // Half of the bytes of a real frame let the noise reach deeper.
        let real = net.wire[net.wire.len() - 1 - kind].1.clone();
        let frames = frames.into_iter().map(|noise| {
            let keep = real.len() / 4 * kind;
            let mut frame = real[..keep.min(real.len())].to_vec();
            frame.extend(noise);
            frame
        });
        net.inject(0, frames.collect::<Vec<_>>());
        net.run(SECOND);
        net.transfer((0, client), (1, server), &data(5_000), 20 * SECOND);
    }

    /// Nor do real frames with a few bytes changed. Checksums let none of them through to a
    /// stream, so it arrives as it was sent.
    #[test]
    fn no_changed_frame_harms(changes in prop::collection::vec((0_usize..200, any::<u8>()), 1..8)) {
        let mut net = Net::new(TransmitMode::Multidata, true);
        let (client, server) = net.connect(false);
        net.write(0, client, &data(4_000));
        net.run(SECOND);
        let mut frames: Vec<Vec<u8>> = net.wire.iter().map(|(_, frame)| frame.clone()).collect();
        for frame in &mut frames {
            for (at, value) in &changes {
                let len = frame.len();
                frame[at % len] ^= value;
            }
        }
        for to in [0, 1] {
            net.inject(to, frames.clone());
        }
        net.run(SECOND);
        let mut received = Vec::new();
        // A changed sequence of bytes may be a valid reset by chance of the test's own making only
        // if the checksum fits, which one-byte changes cannot bring about.
        if changes.len() == 1 {
            prop_assert_eq!(net.read(1, server, &mut received), Ok(false));
            prop_assert_eq!(received, data(4_000));
        }
    }
}

// Neither brings an acknowledgment that would tell of it: a peer whose window is closed answers probes only.
#[test]
fn who_waits_for_room_is_told_at_once_of_a_larger_buffer_and_of_the_end_of_writing() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let (client, _server) = net.connect(false);
    let bytes = data(1 << 20);
    while net.write(0, client, &bytes) > 0 {
        net.run(Duration::from_millis(500));
    }
    let now = net.now;
    let shard = &mut net.hosts[0].shard;
    while shard.poll_event().is_some() {}
    let size = shard.tcp_status(client).expect("open").send_buffer_bytes;
    for option in [Some(TcpOption::SendBuffer(2 * size)), None] {
        shard.tcp_await_room(client, 10_000, false);
        match option {
            Some(option) => shard.tcp_set_option(now, client, option).expect("open"),
            None => shard.tcp_shutdown_write(now, client).expect("open"),
        }
        let event = shard.poll_event().expect("it concerns who waits");
        assert!(event.socket == client && event.readiness.intersects(Readiness::WRITABLE));
        assert!(shard.poll_event().is_none());
    }
}

// RFC 9293, MUST-33: what is urgent can be told from what is not, however it is read.
#[test]
fn a_read_of_several_pieces_stops_at_the_urgent_mark() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (client, server) = net.connect(false);
    let chunk = |bytes: &'static [u8]| Chunk::whole(Block::from(Bytes::from_static(bytes)));
    assert_eq!(net.write(0, client, &[1; 5_000]), 5_000);
    let shard = &mut net.hosts[0].shard;
    shard.tcp_append_urgent(net.now, client, chunk(b"now!")).expect("room");
    assert_eq!(net.write(0, client, &[2; 5_000]), 5_000);
    net.run(Duration::from_millis(100));
    let shard = &mut net.hosts[1].shard;
    let mut reads = Vec::new();
    while let Ok(len) = shard.tcp_read_chunks(net.now, server, (usize::MAX, usize::MAX), |_| {}) {
        reads.push((len, shard.tcp_status(server).expect("open").urgent_mark));
    }
    assert_eq!(reads, [(5_003, Some(0)), (5_001, None)]);
}
