//! Receiver livelock (the work of receiving must not crowd out the work that it is received for): a
//! flood that is faster than this stack.

mod flooding;
mod pair;

use batch::{Block, BlockPool, Frame, Multidata, ReceiveBatch, ReceivedChecksum};
use bytes::Bytes;
use counters::DropReason;
use device::{
    Capabilities, DeviceCounters, DeviceError, Medium, Queue, Received, Room, TransmitMode,
    Transmitted, Waiter,
};
use flooding::Ground;
use multidata::{Stack, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// More than any machine here takes.
const BEYOND: u64 = 50_000_000;

/// Floods of which one must leave enough. One that others kept from the CPUs says nothing.
const FLOODS_MAX: usize = 8;

// Every turn has a budget, after which the application has its turn; what nobody fetches in time is
// lost in the device, where it costs nothing. In the quiet the first flood leaves a twentieth to a third of the
// goodput, and in the first 300 ms behind it comes half of what came before to twice as much. Where ten others wanted
// the two CPUs, 11 of 46 floods left less than is asked for here, and never more than two in a row.
#[test]
fn a_flood_beyond_capacity_leaves_some_goodput_and_is_over_when_it_ends() {
    let ground = Ground::new();
    let goodput = |per_second| {
        ground.tap.per_second.store(per_second, Ordering::Relaxed);
        ground.goodput(Duration::from_millis(300))
    };
    let leaves_enough = || {
        let (before, during, after) = (goodput(0), goodput(BEYOND), goodput(0));
        println!("{before:.0} {during:.0} {after:.0} bytes/s");
        during > before / 50.0 && after > before / 2.0
    };
    let is_borne = std::iter::repeat_with(leaves_enough).take(FLOODS_MAX).any(|enough| enough);
    let counters = ground.right.counters().stack;
    let overrun = ground.tap.overrun.load(Ordering::Relaxed);
    assert!(overrun > 0, "the flood was not beyond capacity");
    assert!(is_borne, "no flood leaves a fiftieth, and is over at once");
    let shed: u64 = [DropReason::TransmitQueueFull, DropReason::BacklogFull, DropReason::NoMemory]
        .into_iter()
        .map(|reason| counters.drops.count(reason))
        .sum();
    assert!(counters.shard.syn_cookies_sent + shed > 1_000, "{counters:?}");
}

/// A device from which datagrams come as fast as they are taken.
struct Datagrams(Bytes);

/// The port they are for.
const SINK: u16 = 6_668;

impl Datagrams {
    /// As many as one call may bring, end to end.
    const PER_CALL: usize = 44;

    /// Their length, headers and nothing in them.
    const LEN: u32 = 28;

    fn new() -> Self {
        let mut datagram = [
            0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2, 0x1f, 0x40, 0, 0,
            0, 8, 0, 0,
        ];
        datagram[22..24].copy_from_slice(&SINK.to_be_bytes());
        let sum = !checksum::sum(&datagram[..20]);
        datagram[10..12].copy_from_slice(&sum.to_be_bytes());
        Self(datagram.repeat(Self::PER_CALL).into())
    }
}

/// There is always something to take.
struct Ready;

impl Waiter for Ready {
    fn wait(&self, _: Option<Duration>) {}

    fn wake(&self) {}
}

impl Queue for Datagrams {
    fn capabilities(&self) -> Capabilities {
        Capabilities::plain(Medium::Ip, 1_500)
    }

    fn set_mode(&mut self, _: TransmitMode) -> Result<(), DeviceError> {
        Ok(())
    }

    fn room(&self) -> Room {
        Room::UNBOUNDED
    }

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        Transmitted { taken: batch.len(), stopped: None }
    }

    fn receive(&mut self, _: &BlockPool, batch: &mut ReceiveBatch, max: usize) -> Received {
        let frames = max.min(Self::PER_CALL);
        let block = batch.add_block(Block::from(self.0.clone()));
        for offset in (0..).step_by(Self::LEN as usize).take(frames) {
            let (len, checksum) = (Self::LEN, ReceivedChecksum::Unverified);
            assert!(batch.push_frame(Frame { block, offset, len, checksum, segmented: None }));
        }
        Received { frames, more: true, ..Received::default() }
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::new(Ready)
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

// With a whole turn after, or a worker's before, each datagram that is read, all but one in a thousand are lost
// at a socket that is full.
#[test]
fn a_reader_of_single_datagrams_takes_turns_with_a_flood_of_them() {
    const READ: u64 = 20_000;
    for squeues in [1, 2] {
        let builder = Stack::builder().squeues(squeues);
        let stack = builder.interface(Datagrams::new(), pair::interface(pair::RIGHT)).build();
        let stack = stack.expect("a stack");
        let sink = UdpSocket::bind(&stack, pair::right(SINK)).expect("a free port");
        let runs = || stack.counters().runtime.squeue_runs;
        // While the system keeps the reader from running, turns are made without it.
        let turns = || {
            let (before, started) = (runs(), Instant::now());
            for _ in 0..READ {
                assert_eq!(sink.recv_from(&mut [0; 64]).expect("a datagram").0, 0);
            }
            println!("{squeues} squeues: {} turns, {:?}", runs() - before, started.elapsed());
            runs() - before
        };
        let is_shared = std::iter::repeat_with(turns).take(5).any(|turns| turns < READ / 4);
        assert!(is_shared, "a turn for each datagram");
    }
}
