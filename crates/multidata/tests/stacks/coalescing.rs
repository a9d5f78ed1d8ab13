//! Coalescing in real time: what it does to transactions of one byte and to a stream.

use crate::pair::{self, check_pattern, connected, pair, send_pattern};
use device::Queue;
use multidata::{BatchSizes, Coalescing, InterfaceConfig, Stack, TcpStream};
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

/// The median of so many transactions of one byte each way.
fn transaction(client: &mut TcpStream, server: &mut TcpStream, count: usize) -> Duration {
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = [0];
            for _ in 0..count {
                server.read_exact(&mut byte).expect("a request");
                server.write_all(&byte).expect("room");
            }
        });
        let mut times: Vec<Duration> = (0..count)
            .map(|_| {
                let started = Instant::now();
                client.write_all(&[7]).expect("room");
                client.read_exact(&mut [0]).expect("a response");
                started.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[count / 2]
    })
}

fn set(stacks: [&Stack; 2], coalescing: Coalescing) {
    for stack in stacks {
        stack.set_coalescing(0, coalescing).expect("it has one interface");
        assert_eq!(stack.interfaces()[0].coalescing, coalescing);
    }
}

/// In alternation, so that what the machine does meanwhile it does to both; the bound is wide.
#[test]
fn transactions_are_no_slower_with_adaptive_coalescing_than_one_by_one() {
    let (left, right) = pair();
    let (mut client, mut server) = connected(&left, &right);
    for stream in [&client, &server] {
        stream.set_nodelay(true).expect("every socket has it");
    }
    let mut ratios: Vec<f64> = (0..7)
        .map(|_| {
            let [one_by_one, adaptive] = [Coalescing::OFF, Coalescing::ADAPTIVE].map(|setting| {
                set([&left, &right], setting);
                transaction(&mut client, &mut server, 300)
            });
            adaptive.as_secs_f64() / one_by_one.as_secs_f64()
        })
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    assert!(ratios[3] < 1.5, "adaptive / one by one: {ratios:.2?}");

    let held = Coalescing { count: 64, hold_off: Duration::from_millis(2), adaptive: false };
    set([&left, &right], held);
    let slow = transaction(&mut client, &mut server, 20);
    assert!(slow >= Duration::from_millis(4), "both ways wait for the hold-off: {slow:?}");
}

#[test]
fn a_stream_arrives_whole_with_every_setting_and_in_the_batches_it_allows() {
    const LEN: usize = 4 << 20;
    let hold_off = Duration::from_micros(50);
    let fixed = |count, hold_off| Coalescing { count, hold_off, adaptive: false };
    for setting in [
        Coalescing::OFF,
        Coalescing::ADAPTIVE,
        fixed(4, Duration::ZERO),
        fixed(42, hold_off),
        fixed(0, hold_off),
        Coalescing { count: 8, ..Coalescing::ADAPTIVE },
    ] {
        let (left, right) = pair();
        set([&left, &right], setting);
        let (mut client, mut server) = connected(&left, &right);
        let bytes: Vec<u8> = (0..LEN).map(|at| (at * 7 + at / 256) as u8).collect();
        thread::scope(|scope| {
            scope.spawn(|| client.write_all(&bytes).expect("room comes"));
            let mut read = vec![0; LEN];
            server.read_exact(&mut read).expect("all of it");
            assert!(read == bytes, "{setting:?}");
        });
        let mut sizes = [0; 10];
        let mut index = 0;
        right.interfaces()[0].batches.for_each(&mut |_, count| {
            sizes[index] = count;
            index += 1;
        });
        // Powers of two: the first bucket holds lone frames, the third up to four, ...
        let bucket = match setting {
            Coalescing { count: 0, hold_off: Duration::ZERO, adaptive: false } => 0,
            Coalescing { count: 4, .. } => 2,
            Coalescing { count: 8, .. } => 3,
            Coalescing { count: 42, .. } => 6,
            _ => 8,
        };
        assert!(sizes[bucket + 1..].iter().all(|count| *count == 0), "{setting:?}: {sizes:?}");
        assert!(sizes.iter().sum::<u64>() > 0);
    }
}

/// A block that comes up in several batches is not copied from as if each were all of it.
#[test]
fn a_stream_in_small_batches_is_not_copied_once_more() {
    const LEN: u64 = 8 << 20;
    for count in [1, 4, 8, 16] {
        let (left, right) = pair();
        set([&left, &right], Coalescing { count, ..Coalescing::OFF });
        let (client, server) = connected(&left, &right);
        thread::scope(|scope| {
            scope.spawn(|| send_pattern(&client, 1, LEN));
            check_pattern(&server, 1, LEN);
        });
        let copied = right.counters().stack.tcp.copied_bytes;
        assert!(copied < LEN / 20, "{count} frames a batch: {copied} of {LEN} bytes were copied");
    }
}

#[test]
fn an_interface_or_a_queue_that_is_not_there_is_refused() {
    let (left, _right) = pair();
    assert!(left.set_coalescing(1, Coalescing::OFF).is_err());
    assert!(left.set_queue_coalescing(1, 0, Coalescing::OFF).is_err());
    assert!(left.set_queue_coalescing(0, 1, Coalescing::OFF).is_err());
    assert_eq!(left.interfaces()[0].queues.len(), 1);
    let (queue, _far) = device::wire(pair::ethernet());
    let config = pair::interface(pair::LEFT).queue_coalescing(1, Coalescing::OFF);
    let refused = Stack::builder().interface(queue, config).build().expect_err("it has one queue");
    assert!(refused.to_string().contains("queue 1"), "{refused}");
    // One squeue receives; the other has nothing to coalesce.
    let (queue, _far) = device::wire(pair::ethernet());
    let stack = Stack::builder().squeues(2).interface(queue, pair::interface(pair::LEFT)).build();
    let stack = stack.expect("a stack");
    assert_eq!(stack.interfaces()[0].queues.len(), 1);
    assert!(stack.set_queue_coalescing(0, 1, Coalescing::OFF).is_err());
}

/// Two stacks of two squeues on a wire of two rings, each of which keeps the connections that began on it,
/// where `right`'s interface is configured so.
fn two_rings(right: impl Fn(InterfaceConfig) -> InterfaceConfig) -> [Stack; 2] {
    let mut near: Vec<Box<dyn Queue>> = Vec::new();
    let mut far: Vec<Box<dyn Queue>> = Vec::new();
    for _ in 0..2 {
        let (one, other) = device::wire(pair::ethernet());
        near.push(Box::new(one));
        far.push(Box::new(other));
    }
    let build = |queues, config| {
        let layout = "R2S0F0".parse().expect("a layout");
        Stack::builder().layout(layout).multiqueue_interface(queues, config).build()
    };
    let stacks =
        [build(near, pair::interface(pair::LEFT)), build(far, right(pair::interface(pair::RIGHT)))];
    stacks.map(|stack| stack.expect("a stack"))
}

/// Sends so much by connections in each squeue.
fn send_by_both(left: &Stack, right: &Stack) {
    for _ in 0..2 {
        // Squeues are taken in turn.
        let (client, server) = connected(left, right);
        thread::scope(|scope| {
            scope.spawn(|| send_pattern(&client, 3, 1 << 20));
            check_pattern(&server, 3, 1 << 20);
        });
    }
}

/// Batches of one frame, of two to four, and of more, that came by each queue.
fn sizes(stack: &Stack) -> [[u64; 3]; 2] {
    let queues = &stack.interfaces()[0].queues;
    let of = |queue: usize| {
        let mut counts = [0; 3];
        let mut largest = BatchSizes::LARGEST.iter();
        queues[queue].batches.for_each(&mut |_, count| {
            let place = match largest.next() {
                Some(1) => 0,
                Some(2..=4) => 1,
                _ => 2,
            };
            counts[place] += count;
        });
        counts
    };
    assert_eq!(queues.len(), 2);
    [of(0), of(1)]
}

#[test]
fn two_queues_of_a_device_are_coalesced_each_in_its_way() {
    let four = Coalescing { count: 4, ..Coalescing::OFF };
    // Queue 0 is as the interface, queue 1 as itself.
    let [left, right] = two_rings(|it| it.coalescing(Coalescing::OFF).queue_coalescing(1, four));
    send_by_both(&left, &right);
    let [[ones, few, many], [_, fours, more]] = sizes(&right);
    assert!(ones > 700 && few + many == 0, "one by one: {ones}, {few}, {many}");
    // What the sender puts in at once is there at once.
    assert!(fours > 0 && more == 0, "up to four: {fours}, {more}");

    // The other way round, while it runs; and the stack of the other end is not asked.
    right.set_queue_coalescing(0, 0, four).expect("it has two queues");
    right.set_queue_coalescing(0, 1, Coalescing::OFF).expect("it has two queues");
    let queues = right.interfaces().remove(0).queues;
    assert_eq!([queues[0].coalescing, queues[1].coalescing], [four, Coalescing::OFF]);
    let before = sizes(&right);
    send_by_both(&left, &right);
    let after = sizes(&right);
    assert!(after[0][1] > before[0][1] && after[0][2] == 0, "{before:?}, {after:?}");
    assert!(after[1][0] > before[1][0] + 700, "{before:?}, {after:?}");
    assert_eq!(after[1][1..], before[1][1..], "{before:?}, {after:?}");

    right.set_coalescing(0, Coalescing::ADAPTIVE).expect("it is there");
    let queues = right.interfaces().remove(0).queues;
    assert!(queues.iter().all(|queue| queue.coalescing == Coalescing::ADAPTIVE));
}

#[test]
fn batches_are_counted_at_each_stage_and_by_each_squeue() {
    let [left, right] = two_rings(|it| it);
    send_by_both(&left, &right);
    let sum = |sizes: BatchSizes| {
        let mut sum = 0;
        sizes.for_each(&mut |_, count| sum += count);
        sum
    };
    let all = right.counters();
    for counters in right.squeue_counters() {
        assert!(sum(counters.receive) > 0 && sum(counters.trains) > 0);
        let runtime = counters.runtime;
        let batches = runtime.squeue_inline_batches + runtime.squeue_queued_batches;
        assert_eq!(sum(counters.squeue), batches);
        assert!(sum(counters.squeue) >= sum(counters.receive));
    }
    let shard = all.stack.shard;
    let (units, segments) = (sum(all.trains), all.stack.tcp.segments_received);
    assert!(units + shard.receive_train_frames <= segments, "a segment is in one unit");
    assert!(units + shard.receive_train_frames > segments / 2, "{units} of {segments}");
    let alone = all.trains.batches_of_1;
    assert_eq!(sum(all.trains) - alone, shard.receive_trains, "the others are trains");
    let mut named = 0;
    all.for_each(&mut |name, value| {
        let is_size = |table: &str| name.starts_with(table) && name.contains(".batches_of_");
        named += u64::from(is_size("squeue") || is_size("trains")) * value;
    });
    assert_eq!(named, sum(all.squeue) + units);
}
