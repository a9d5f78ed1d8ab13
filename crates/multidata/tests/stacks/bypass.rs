//! Where the device is left to spread the flows (seed 004, III A), a segment that it brings by another ring than
//! that of its connection's squeue finds it all the same.

use crate::pair::{self, LEFT, RIGHT, check_pattern, interface, right, send_pattern};
use device::Queue;
use multidata::{Stack, TcpListener, TcpStream};

/// How many rings each of two stacks has, and connections there are between them.
const RINGS: usize = 2;
const CONNECTIONS: u64 = 32;

/// Two stacks with a layout each; what leaves by a ring comes in by the same one, or by the next.
fn stacks(layouts: [&str; 2], are_crossed: bool) -> [Stack; 2] {
    let wires = (0..RINGS).map(|_| device::wire(pair::ethernet()));
    let (near, mut far): (Vec<_>, Vec<_>) = wires.unzip();
    far.rotate_left(usize::from(are_crossed));
    let boxed = |queues: Vec<device::WireQueue>| {
        queues.into_iter().map(|queue| Box::new(queue) as Box<dyn Queue>).collect()
    };
    let build = |layout: &str, queues, address| {
        let builder = Stack::builder().layout(layout.parse().expect("a layout"));
        builder.multiqueue_interface(queues, interface(address)).build().expect("a stack")
    };
    [build(layouts[0], boxed(near), LEFT), build(layouts[1], boxed(far), RIGHT)]
}

/// Data both ways over connections that the left stack opens.
fn exchange([left, right_stack]: &[Stack; 2]) {
    let listener = TcpListener::bind(right_stack, right(80)).expect("a free port");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..CONNECTIONS {
                let (stream, _) = listener.accept().expect("a connection");
                scope.spawn(move || {
                    check_pattern(&stream, 1, 100_000);
                    send_pattern(&stream, !1, 100_000);
                });
            }
        });
        for _ in 0..CONNECTIONS {
            scope.spawn(move || {
                let stream = TcpStream::connect(left, right(80)).expect("it listens");
                send_pattern(&stream, 1, 100_000);
                check_pattern(&stream, !1, 100_000);
            });
        }
    });
}

fn handed_on(stack: &Stack) -> u64 {
    stack.counters().stack.shard.segments_handed_on
}

/// Both ends give a connection the same ring, because its hash is the same in both directions.
#[test]
fn two_stacks_with_as_many_rings_agree_on_the_ring_of_each_connection() {
    let stacks = stacks(["R2S0F0", "R2S0F0"], false);
    exchange(&stacks);
    for stack in &stacks {
        assert_eq!(handed_on(stack), 0);
        let opened = stack
            .squeue_counters()
            .into_iter()
            .map(|it| it.stack.shard.connections_opened + it.stack.shard.connections_accepted);
        assert!(opened.into_iter().all(|count| count > 0));
    }
}

/// With and without soft rings behind the rings, beside a peer that fans out, and where every segment comes by the
/// wrong ring.
#[test]
fn a_segment_by_any_ring_reaches_its_connection() {
    for layouts in [["R2S0F0", "R2S0F0"], ["R2S4F0", "R2S0F0"], ["R2S2F1", "R2S0F0"]] {
        let stacks = stacks(layouts, true);
        exchange(&stacks);
        assert!(handed_on(&stacks[1]) > 2 * CONNECTIONS, "{layouts:?}");
    }
}
