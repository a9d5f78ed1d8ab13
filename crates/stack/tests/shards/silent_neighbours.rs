//! What a neighbour that does not answer, and a queue that is full, must not keep a shard from.

use crate::harness::{Fate, Net, address, data};
use batch::Multidata;
use core::net::SocketAddr;
use counters::DropReason;
use device::{Room, TransmitMode, Transmitted};
use stack::{AddressState, AddressingConfig, ClaimPolicy, SocketError, SocketId};
use std::sync::mpsc;
use time::Duration;

/// A test of what never ended would never end.
fn within_ten_seconds(test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    is_done.recv_timeout(core::time::Duration::from_secs(10)).expect("the shard hangs, or failed");
}

fn word() -> batch::Chunk {
    batch::Chunk::whole(batch::Block::from(bytes::Bytes::from_static(b"word")))
}

/// The Ethernet frames that the first host has sent since the wire was cleared.
fn sent(net: &Net) -> impl Iterator<Item = &[u8]> {
    net.wire.iter().filter(|(from, _)| *from == 0).map(|(_, frame)| &frame[..])
}

/// ARP messages among them of one operation.
fn arps(net: &Net, operation: u8) -> Vec<&[u8]> {
    sent(net).filter(|it| it[12..14] == [8, 6] && it[21] == operation).collect()
}

/// A net and a socket of the first host, from which datagrams go to the second.
fn datagrams() -> (Net, SocketId) {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let local = SocketAddr::new(address(0, false), 0);
    let socket = net.hosts[0].shard.udp_bind(local).expect("a port");
    (net, socket)
}

/// Sends until there is no room.
fn fill(net: &mut Net, socket: SocketId) {
    let to = SocketAddr::new(address(1, false), 9);
    loop {
        match net.hosts[0].shard.udp_send(socket, Some(to), word()) {
            Ok(()) => {}
            Err(SocketError::WouldBlock) => return,
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// A net whose hosts have a connection, of which the first has lost its neighbour and is about to give it up.
fn forsaken() -> (Net, SocketId) {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (client, _) = net.connect(false);
    let (now, id) = (net.now, net.hosts[0].interface);
    net.fate = Box::new(|_, _| Fate::Lose);
    net.hosts[0].shard.on_link_changed(now, id);
    net.write(0, client, &data(20_000));
    net.run(Duration::from_millis(2_900));
    (net, client)
}

#[test]
fn a_segment_for_nobody_that_does_not_fit_ends_the_turn() {
    within_ten_seconds(|| {
        let (mut net, _) = forsaken();
        net.now += Duration::from_millis(200);
        let (now, id) = (net.now, net.hosts[0].interface);
        let shard = &mut net.hosts[0].shard;
        shard.on_timeout(now);
        let mut batch = Multidata::default();
        let taken = shard.poll_transmit(now, id, Room { packets: 64, bytes: 500 }, &mut batch);
        shard.on_transmitted(now, id, &Transmitted { taken, stopped: None });
    });
}

#[test]
fn a_segment_for_nobody_behind_a_batch_of_many_blocks_ends_the_turn() {
    within_ten_seconds(|| {
        let mut net = Net::new(TransmitMode::Multidata, true);
        let (busy, busy_peer) = net.connect(true);
        let (client, _) = net.connect_to(false, 81);
        let mut read = Vec::new();
        for _ in 0..100 {
            net.write(0, busy, &data(100_000));
            net.run(Duration::from_millis(5));
            net.read(1, busy_peer, &mut read).expect("open");
        }
        net.fate = Box::new(|_, frame| match frame[12..14] == [0x86, 0xdd] {
            true => Fate::Deliver,
            false => Fate::Lose,
        });
        let (now, id) = (net.now, net.hosts[0].interface);
        net.hosts[0].shard.on_link_changed(now, id);
        for _ in 0..100 {
            net.write(0, client, &data(200));
        }
        net.write(0, busy, &data(1));
        net.run(Duration::from_millis(2_900));
        net.read(1, busy_peer, &mut read).expect("open");
        net.run(Duration::from_millis(1));
        for _ in 0..400 {
            net.write(0, busy, &data(200));
        }
        net.now += Duration::from_millis(200);
        let now = net.now;
        let shard = &mut net.hosts[0].shard;
        shard.on_timeout(now);
        let mut batch = Multidata::default();
        for _ in 0..4 {
            let taken = shard.poll_transmit(now, id, Room::UNBOUNDED, &mut batch);
            shard.on_transmitted(now, id, &Transmitted { taken, stopped: None });
        }
    });
}

#[test]
fn every_packet_for_a_silent_neighbour_is_counted() {
    let (mut net, client) = forsaken();
    let drops =
        |net: &Net| net.hosts[0].shard.counters().drops.count(DropReason::NeighbourUnreachable);
    assert_eq!(drops(&net), 0);
    net.run(Duration::from_millis(150));
    let status = net.hosts[0].shard.tcp_status(client).expect("open");
    let sent = status.unacknowledged_bytes - status.unsent_bytes;
    assert_eq!(drops(&net) as usize, sent.div_ceil(1_448));
}

// RFC 4861, 7.3.3: a neighbour is probed while it is used, before all are asked again.
#[test]
fn a_busy_sender_of_datagrams_still_probes_its_neighbour() {
    let (mut net, socket) = datagrams();
    let mut probes = 0;
    for _ in 0..3_000 {
        fill(&mut net, socket);
        net.wire.clear();
        net.step();
        probes += arps(&net, 1).iter().filter(|frame| frame[0] != 0xff).count();
        net.now += Duration::from_millis(20);
    }
    assert!(probes > 0);
}

#[test]
fn a_busy_sender_of_datagrams_still_answers_who_asks_for_it() {
    let (mut net, socket) = datagrams();
    fill(&mut net, socket);
    net.run(Duration::from_millis(10));
    fill(&mut net, socket);
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 99, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 99, 10, 0, 0, 7]);
    frame.extend([0; 6]);
    frame.extend([10, 0, 0, 1]);
    net.wire.clear();
    net.inject(0, [frame]);
    for _ in 0..20 {
        net.step();
    }
    assert_eq!(arps(&net, 2).len(), 1);
}

// RFC 4862, 5.4: duplicate address detection MUST be performed on all unicast addresses.
#[test]
fn no_address_is_taken_that_nobody_was_asked_about() {
    let (mut net, socket) = datagrams();
    let (now, id) = (net.now, net.hosts[0].interface);
    let config = AddressingConfig { ipv6: ClaimPolicy::Probe, ..AddressingConfig::default() };
    net.hosts[0].shard.start_addressing(now, id, config);
    net.run(Duration::from_secs(5));
    fill(&mut net, socket);
    let (now, claimed) = (net.now, "2001:db8::7/64".parse().expect("a network"));
    net.wire.clear();
    net.hosts[0].shard.add_address(now, id, claimed).expect("room");
    for _ in 0..300 {
        net.step();
        fill(&mut net, socket);
        net.now += Duration::from_millis(20);
    }
    let all = net.hosts[0].shard.addresses(id);
    let state = all.iter().find(|it| it.cidr == claimed).map(|it| it.state);
    let asked = sent(&net).filter(|it| it[12..14] == [0x86, 0xdd] && it[20] == 58 && it[54] == 135);
    assert_eq!((asked.count(), state), (1, Some(AddressState::Preferred)));
}

// RFC 1122, 2.3.2.1: one request a second for an address.
#[test]
fn a_device_that_was_full_for_a_while_is_not_flooded_with_one_question() {
    let (mut net, socket) = datagrams();
    net.hosts[0].take = Box::new(|_| 0);
    let to = SocketAddr::new(address(1, false), 9);
    for _ in 0..120 {
        let _ = net.hosts[0].shard.udp_send(socket, Some(to), word());
        for _ in 0..4 {
            net.step();
            net.now += Duration::from_millis(250);
        }
    }
    net.hosts[0].take = Box::new(|built| built);
    net.wire.clear();
    for _ in 0..50 {
        net.step();
    }
    // The one that waited, and the one that is overdue.
    let asked = arps(&net, 1).len();
    assert!((1..=2).contains(&asked), "{asked} requests for one address at once");
}
