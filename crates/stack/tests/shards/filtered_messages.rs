//! A filter that takes batches gets the datagrams and ICMP messages of one flow together, as they leave.

use crate::harness::{self, Net, address, data};
use batch::{Block, Chunk, Multidata, ReceiveBatch};
use bytes::Bytes;
use core::net::SocketAddr;
use core::ops::Range;
use counters::DropReason;
use device::TransmitMode;
use stack::{
    FilterFlow, Handling, InterfaceId, MultidataProtocols, PacketFilter, SocketId, Verdict,
};
use std::sync::{Arc, Mutex};
use time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// What a filter was shown and what it says.
#[derive(Default)]
struct Seen {
    /// Packets of each call.
    calls: Vec<usize>,
    /// It drops packets whose last byte is one of these.
    drops: Vec<u8>,
    /// It marks packets whose last byte is at least this.
    marks_from: Option<u8>,
}

#[derive(Clone, Default)]
struct Watching(Arc<Mutex<Seen>>);

impl PacketFilter for Watching {
    fn handling(&self, _: &FilterFlow) -> Handling {
        Handling::Batches
    }

    fn transmit(
        &mut self,
        _: Instant,
        _: InterfaceId,
        batch: &Multidata,
        packets: Range<usize>,
        verdicts: &mut [Verdict],
    ) {
        let mut seen = self.0.lock().expect("no panic");
        seen.calls.push(packets.len());
        for (index, verdict) in packets.zip(verdicts) {
            let bytes = harness::bytes_of(&batch.packet(index).expect("a packet"));
            let last = *bytes.last().expect("a header at least");
            *verdict = match seen.marks_from {
                _ if seen.drops.contains(&last) => Verdict::Drop,
                Some(from) if last >= from => Verdict::Mark(46),
                _ => Verdict::Pass,
            };
        }
    }

    fn receive(&mut self, _: Instant, _: InterfaceId, _: &ReceiveBatch, _: &mut [Verdict]) {}
}

fn chunk(bytes: &[u8]) -> Chunk {
    Chunk::whole(Block::from(Bytes::copy_from_slice(bytes)))
}

/// Two hosts; the filter is on the first, whose socket sends to the two of the second.
fn net(seen: Seen) -> (Net, Watching, SocketId, [SocketId; 2]) {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let filter = Watching(Arc::new(Mutex::new(seen)));
    drop(net.hosts[0].shard.set_filter(Some(Box::new(filter.clone()))));
    let sender = net.hosts[0].shard.udp_bind(SocketAddr::new(address(0, false), 9)).expect("free");
    let receivers = [1, 2].map(|port| net.hosts[1].shard.udp_bind(to(port)).expect("free"));
    (net, filter, sender, receivers)
}

fn to(port: u16) -> SocketAddr {
    SocketAddr::new(address(1, false), port)
}

/// Datagrams of one byte each: these numbers, to these ports.
fn send(net: &mut Net, sender: SocketId, numbers: impl Iterator<Item = (u16, u8)>) {
    let datagrams: Vec<_> =
        numbers.map(|(port, number)| (to(port).into(), chunk(&[number]))).collect();
    let count = net.hosts[0].shard.udp_send_many(sender, &datagrams).expect("room");
    assert_eq!(count, datagrams.len());
}

fn received(net: &mut Net, socket: SocketId) -> Vec<u8> {
    let shard = &mut net.hosts[1].shard;
    core::iter::from_fn(|| shard.udp_receive(socket).ok()).map(|it| it.0.bytes()[0]).collect()
}

#[test]
fn packets_of_one_flow_behind_each_other_are_one_call() {
    let (mut net, filter, sender, receivers) = net(Seen::default());
    let echo = net.hosts[0].shard.raw_bind_echo(address(0, false), 3).expect("free");
    send(&mut net, sender, (0..10).map(|i| (1, i)).chain((0..7).map(|i| (2, i))));
    for _ in 0..5 {
        let request = chunk(&[8, 0, 0, 0, 0, 0, 0, 1, 99]);
        net.hosts[0].shard.raw_send(echo, address(1, false), request).expect("room");
    }
    send(&mut net, sender, (0..4).map(|i| (1, 10 + i)));
    // In fragments, each of which is looked at by itself.
    let long = [(to(2).into(), chunk(&data(4_000)))];
    net.hosts[0].shard.udp_send_many(sender, &long).expect("room");
    send(&mut net, sender, (0..2).map(|i| (2, 20 + i)));
    net.run(SECOND);
    assert_eq!(filter.0.lock().expect("no panic").calls, [10, 7, 5, 4, 1, 1, 1, 2]);
    assert_eq!(net.batches[0].2, 10 + 7 + 5 + 4 + 3 + 2, "and they leave in one batch");
    assert_eq!(received(&mut net, receivers[0]), (0..14).collect::<Vec<_>>());
    assert_eq!(received(&mut net, receivers[1]).len(), 7 + 1 + 2);
    assert!(net.hosts[0].shard.raw_receive(echo).is_ok());
}

#[test]
fn what_is_dropped_is_counted_and_everything_else_arrives_in_order() {
    for drops in
        [vec![], vec![0], vec![39], vec![5, 6, 7, 20], (0..40).collect(), (1..40).collect()]
    {
        let (mut net, filter, sender, receivers) = net(Seen { drops, ..Seen::default() });
        let numbers = |port: u16| (0..40).filter(move |i| u16::from(*i) / 10 % 2 == port - 1);
        send(&mut net, sender, (0..40).map(|i| (1 + u16::from(i / 10 % 2), i)));
        net.run(SECOND);
        let drops = filter.0.lock().expect("no panic").drops.clone();
        for (port, receiver) in (1..).zip(receivers) {
            let expected: Vec<u8> = numbers(port).filter(|it| !drops.contains(it)).collect();
            assert_eq!(received(&mut net, receiver), expected, "{drops:?}");
        }
        let counted = net.hosts[0].shard.counters().drops.count(DropReason::Filtered);
        assert_eq!(counted as usize, drops.len());
    }
}

/// Nothing stands still behind packets that the filter drops, also where it must leave alone.
#[test]
fn packets_that_leave_alone_leave_where_all_before_them_were_dropped() {
    let (mut net, _filter, sender, _) = net(Seen { drops: (0..50).collect(), ..Seen::default() });
    let id = net.hosts[0].interface;
    let protocols = MultidataProtocols { raw: false, ..MultidataProtocols::default() };
    net.hosts[0].shard.set_multidata_protocols(id, protocols);
    let raw = net.hosts[0].shard.raw_bind(253, address(0, false)).expect("free");
    let receiver = net.hosts[1].shard.raw_bind(253, address(1, false)).expect("free");
    for round in 0..5 {
        send(&mut net, sender, (0..45).map(|i| (1 + i / 43, i as u8)));
        let packet = chunk(&[100 + round]);
        net.hosts[0].shard.raw_send(raw, address(1, false), packet).expect("room");
    }
    net.run(SECOND);
    let shard = &mut net.hosts[1].shard;
    let arrived: Vec<u8> = core::iter::from_fn(|| shard.raw_receive(receiver).ok())
        .map(|packet| packet.payload.bytes()[0])
        .collect();
    assert_eq!(arrived, [100, 101, 102, 103, 104]);
    assert_eq!(net.hosts[0].shard.counters().drops.count(DropReason::Filtered), 225);
    assert!(!net.hosts[0].shard.wants_transmit());
}

#[test]
fn one_that_is_marked_among_several_is_looked_at_again_by_itself() {
    for marks_from in [0, 7, 19, 20] {
        let seen = Seen { marks_from: Some(marks_from), drops: vec![11], ..Seen::default() };
        let (mut net, filter, sender, receivers) = net(seen);
        send(&mut net, sender, (0..20).map(|i| (1, i)));
        net.run(SECOND);
        let expected: Vec<u8> = (0..20).filter(|it| *it != 11).collect();
        assert_eq!(received(&mut net, receivers[0]), expected, "{marks_from}");
        let sent = net.wire.iter().filter(|(from, _)| *from == 0);
        for (_, frame) in sent {
            let is_marked = *frame.last().expect("a byte") >= marks_from;
            assert_eq!(frame[1] >> 2, if is_marked { 46 } else { 0 });
        }
        assert_eq!(net.hosts[0].shard.counters().drops.count(DropReason::Filtered), 1);
        let calls = filter.0.lock().expect("no panic").calls.clone();
        assert_eq!(calls[0], 20);
        assert_eq!(calls.len() > 2, marks_from < 20, "{calls:?}");
    }
}
