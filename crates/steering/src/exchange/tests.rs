use super::*;
use crate::packets::{address, batch, sequence, tcp};
use crate::spread::Policy;
use core::net::SocketAddr;
use counters::DropReason;

fn exchange(layout: &str, frames_max: usize) -> Arc<Exchange<u32>> {
    let layout: crate::Layout = layout.parse().expect(layout);
    let spread = Spread::new(layout, Policy::Flow, layout.homes_max()).expect("a spread");
    Arc::new(Exchange::new(spread, 1, SoftRingConfig { frames_max, bytes_max: 1 << 20 }))
}

fn remote(flow: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 9], 40_000 + flow))
}

/// Segments `numbers` of eight flows.
fn segments(numbers: core::ops::Range<u32>) -> ReceiveBatch {
    let each = |number| (0..8).map(move |flow| tcp(remote(flow), address("10.0.0.1:80"), number));
    let packets: Vec<_> = numbers.flat_map(each).collect();
    batch(packets.iter().map(Vec::as_slice))
}

/// Flow and number of what a shard is given.
fn note(seen: &mut Vec<(u16, u32)>, batch: &ReceiveBatch) {
    for index in 0..batch.len() {
        let packet = batch.bytes(index);
        let flow = u16::from_be_bytes([packet[20], packet[21]]) - 40_000;
        seen.push((flow, sequence(packet)));
    }
}

fn take_in(desk: &mut Desk<u32>, seen: &mut Vec<(u16, u32)>) -> TakenIn {
    desk.take_in(&mut ReceiveBatch::new(), |arrived| match arrived {
        Arrived::Frames(0, batch) => note(seen, batch),
        other => panic!("{other:?}"),
    })
}

#[test]
fn every_home_gets_what_is_its_own_in_order_and_is_told_of_it() {
    for layout in ["R1S2F1", "R2S2F1", "R1S3F1"] {
        let exchange = exchange(layout, 1_024);
        let homes = exchange.spread().homes();
        let mut desks: Vec<_> =
            (0..homes).map(|home| Desk::new(&exchange, crate::Home(home))).collect();
        let mut seen = vec![Vec::new(); homes.into()];
        for numbers in [0..2, 2..5, 5..6] {
            desks[0].spread(0, Medium::Ip, &mut segments(numbers), |own| note(&mut seen[0], own));
        }
        assert_eq!(desks[0].take_concerned(), (1 << homes) - 2, "all but itself");
        assert_eq!(desks[0].take_concerned(), 0, "once");
        for (home, desk) in desks.iter_mut().enumerate() {
            let waiting = desk.depth();
            let taken = take_in(desk, &mut seen[home]);
            assert_eq!(taken, TakenIn { frames: waiting, more: false }, "{layout}");
            assert_eq!(desk.moved().1, waiting as u64);
        }
        for flow in 0..8 {
            let home = exchange.spread().home_of_reply(address("10.0.0.1:80"), remote(flow));
            for (index, seen) in seen.iter().enumerate() {
                let numbers = seen.iter().filter(|it| it.0 == flow).map(|it| it.1);
                let expected = if home == crate::Home(index as u16) { 0..6 } else { 0..0 };
                assert!(numbers.eq(expected), "{layout}: flow {flow} at home {index}");
            }
        }
    }
}

// Without fan-out a ring's soft rings are one home's: R1S1F0, R1S8F0.
#[test]
fn soft_rings_of_one_home_carry_all_its_frames_flow_by_flow() {
    for layout in ["R1S1F0", "R1S8F0", "R2S2F0"] {
        let exchange = exchange(layout, 1_024);
        let mut desk = Desk::new(&exchange, crate::Home(0));
        let (mut seen, mut batches) = (Vec::new(), 0);
        for numbers in [0..2, 2..5] {
            desk.spread(0, Medium::Ip, &mut segments(numbers), |own| {
                note(&mut seen, own);
                batches += 1;
            });
        }
        for flow in 0..8 {
            assert!(seen.iter().filter(|it| it.0 == flow).map(|it| it.1).eq(0..5), "{layout}");
        }
        let rings = desk.soft_ring_counters();
        assert_eq!((rings.soft_ring_frames, rings.soft_ring_drained_frames), (40, 40), "{layout}");
        assert_eq!(desk.set_counters().srs_tcp, 40, "{layout}");
        assert_eq!(batches > 2, layout != "R1S1F0", "{layout}: {batches} batches");
        assert_eq!((desk.depth(), desk.take_concerned(), desk.moved()), (0, 0, (0, 0)));
    }
    let exchange = exchange("R1S0F0", 1_024);
    let mut desk = Desk::new(&exchange, crate::Home(0));
    desk.spread(0, Medium::Ip, &mut segments(0..2), |own| own.clear());
    assert_eq!(desk.soft_ring_counters(), SoftRingCounters::default());
}

#[test]
fn what_a_ring_does_not_take_is_counted_at_its_home() {
    let exchange = exchange("R1S2F1", 8);
    let [mut first, mut second] = [0, 1].map(|home| Desk::new(&exchange, crate::Home(home)));
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for numbers in [0..40, 40..80] {
        first.spread(0, Medium::Ip, &mut segments(numbers), |batch| note(&mut own, batch));
    }
    take_in(&mut second, &mut others);
    let drops = second.drops();
    let dropped = drops.count(DropReason::SoftRingFull) + drops.count(DropReason::SoftRingShare);
    assert!(dropped > 0, "the ring was small");
    assert_eq!(own.len() as u64 + others.len() as u64 + dropped, 640);
    assert!(others.is_sorted_by_key(|seen| seen.1), "what came in is in order");
}

#[test]
fn strays_are_bounded_and_come_in_order() {
    let exchange = exchange("R1S2F1", 8);
    let [mut first, mut second] = [0, 1].map(|home| Desk::new(&exchange, crate::Home(home)));
    let light = |key| StrayWeight::Packet { key, held_bytes: 0 };
    // One flow gets half, and leaves room for another.
    let half = StrayShares::PACKETS_MAX as u32 / 2;
    (0..half + 3).for_each(|stray| first.hand_on(1, stray, light(5)));
    first.hand_on(1, half, light(6));
    first.hand_on(1, 99, StrayWeight::Kept);
    first.hand_on(7, 0, light(5));
    assert_eq!(first.take_concerned(), 2, "there is no home 7");
    assert_eq!(second.depth(), half as usize + 2);
    let mut seen = Vec::new();
    let taken = second.take_in(&mut ReceiveBatch::new(), |arrived| match arrived {
        Arrived::Stray(stray) => seen.push(stray),
        Arrived::Frames(..) => panic!("there are none"),
    });
    assert_eq!(taken.frames, half as usize + 2);
    let last = seen.pop();
    assert!(seen.into_iter().eq(0..=half));
    assert_eq!(last, Some(99), "there is room for what must not be dropped");
    assert_eq!(second.drops().count(DropReason::StrayQueueShare), 3);
    assert_eq!(second.depth(), 0);
}

#[test]
fn questions_about_neighbours_have_a_bound_of_their_own() {
    let exchange = exchange("R1S2F1", 8);
    let [mut first, mut second] = [0, 1].map(|home| Desk::new(&exchange, crate::Home(home)));
    let question = StrayWeight::Neighbour;
    let light = |key| StrayWeight::Packet { key, held_bytes: 0 };
    (0..StrayShares::PACKETS_MAX as u32).for_each(|flow| first.hand_on(1, 1, light(flow)));
    let packets = second.depth();
    for _ in 0..2 {
        (0..StrayShares::NEIGHBOURS_MAX + 5).for_each(|_| first.hand_on(1, 2, question));
    }
    assert_eq!(
        second.depth(),
        packets + StrayShares::NEIGHBOURS_MAX,
        "packets do not keep them out"
    );
    second.take_in(&mut ReceiveBatch::new(), |_| ());
    (0..StrayShares::NEIGHBOURS_MAX + 5).for_each(|_| first.hand_on(1, 2, question));
    first.hand_on(1, 1, light(1));
    assert_eq!(second.depth(), StrayShares::NEIGHBOURS_MAX + 1, "nor do they keep packets out");
}

#[test]
fn strays_that_hold_much_are_bounded_by_what_they_hold() {
    let exchange = exchange("R1S2F1", 8);
    let [mut first, mut second] = [0, 1].map(|home| Desk::new(&exchange, crate::Home(home)));
    let held_bytes = StrayShares::BYTES_MAX / 4;
    let heavy = |key| StrayWeight::Packet { key, held_bytes };
    // Twice, because what was taken weighs nothing any more.
    for round in 1..=2 {
        (0..6).for_each(|stray| first.hand_on(1, stray, heavy(stray)));
        first.hand_on(1, 6, StrayWeight::Neighbour);
        first.hand_on(1, 7, StrayWeight::Kept);
        let mut seen = Vec::new();
        second.take_in(&mut ReceiveBatch::new(), |arrived| match arrived {
            Arrived::Stray(stray) => seen.push(stray),
            Arrived::Frames(..) => panic!("there are none"),
        });
        assert_eq!(seen, [0, 1, 2, 3, 6, 7]);
        assert_eq!(second.drops().count(DropReason::StrayQueueFull), 2 * round);
    }
}

#[test]
fn an_interface_that_comes_later_has_soft_rings_that_can_be_emptied() {
    let exchange = exchange("R1S2F1", 1_024);
    let [mut first, mut second] = [0, 1].map(|home| Desk::new(&exchange, crate::Home(home)));
    let more = exchange.more_soft_rings();
    first.add_interface(&more);
    second.add_interface(&more);
    assert_eq!((first.interfaces(), second.interfaces()), (2, 2));
    let mut own = 0;
    for interface in [0, 1, 1] {
        first.spread(interface, Medium::Ip, &mut segments(0..40), |frames| own += frames.len());
    }
    let waiting = second.depth();
    assert_eq!((own + waiting, waiting % 3), (3 * 320, 0));
    // Of the interface that was removed, and of that alone, nothing is left.
    let mut batch = ReceiveBatch::new();
    let mut taken = 0;
    second.take_frames(1, &mut batch, |frames| taken += frames.len());
    assert_eq!((taken, second.depth()), (waiting / 3 * 2, waiting / 3));
    second.take_frames(1, &mut batch, |frames| panic!("{} more", frames.len()));
    second.take_frames(2, &mut batch, |frames| panic!("{} of none", frames.len()));
    let mut seen = Vec::new();
    assert_eq!(take_in(&mut second, &mut seen).frames, waiting / 3);
}
