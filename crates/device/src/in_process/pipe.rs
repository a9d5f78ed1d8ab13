//! The other end of a wire in the hands of a program: IP packets one by one or many at a time, for threads and tasks.
//!
//! ```text
//!   stack -- WireQueue -- lane --> PacketReceiver -- recv --> program: seals, sends
//!   stack <- WireQueue <- lane --- PacketSender  <-- send --- program: receives, opens
//! ```
//!
//! The halves have nothing in common but their end, so one thread or task may wait for the stack while another waits
//! for the network. What waits to be received is taken out of the lane many at a time, and handed out one by one. What is
//! sent together lies in one block, and reaches the stack as one batch.

use super::lane::{Doorbell, Lane, Opened, QueuedFrame, Staged};
use super::{BLOCK_LEN_MAX, WireConfig, WireEnd, WireQueue, aligned, lane_pool, peer_gone};
use crate::{Medium, Room};
use batch::{BlockPool, Frame, ReceiveBatch, ReceivedChecksum};
use core::task::{Context, Poll};
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Packets that are taken out of the lane at once.
const TAKEN_PACKETS_MAX: usize = 64;

/// A device for a stack, without stations and offloads, whose packets the program carries itself: what the stack
/// sends is received there, what is sent there the stack receives. It holds 1,024 packets and 2 MiB in each
/// direction. Where one of the halves is dropped the device has failed, of the sender once the stack has received what was
/// sent before, and the other half says so as well; where the stack or its interface is gone, both do.
///
/// A task's waker is called by the stack, under the lock of a squeue: as every waker it may note that there is something
/// to do, and not do it.
///
/// # Panics
/// Where `mtu_bytes` is zero or beyond 65,535.
#[must_use]
pub fn packet_pipe(mtu_bytes: usize) -> (WireQueue, PacketSender, PacketReceiver) {
    assert!((1..=usize::from(u16::MAX)).contains(&mtu_bytes), "no packet has {mtu_bytes} bytes");
    let end = WireEnd::plain(Medium::Ip);
    pipe(&WireConfig { mtu_bytes, ..WireConfig::new(end, end) })
}

fn pipe(config: &WireConfig) -> (WireQueue, PacketSender, PacketReceiver) {
    let WireConfig { mtu_bytes, a: end, .. } = *config;
    let [stack, sender, receiver] = [(); 3].map(|()| Arc::new(Doorbell::default()));
    let there = Arc::new(Lane::new(Arc::clone(&stack), Arc::clone(&receiver)));
    let back = Arc::new(Lane::new(Arc::clone(&sender), Arc::clone(&stack)));
    let queue = WireQueue::new(config, end, end, [&there, &back], stack);
    let capacity = Room { packets: config.capacity_packets, bytes: config.capacity_bytes };
    let (pool, staged) = (lane_pool(config), Staged::default());
    let receiver = PacketReceiver::new([there, Arc::clone(&back)], receiver);
    let sender = PacketSender { lane: back, doorbell: sender, capacity, mtu_bytes, pool, staged };
    (queue, sender, receiver)
}

/// Hands packets to the stack behind a [`packet_pipe`].
#[derive(Debug)]
pub struct PacketSender {
    lane: Arc<Lane>,
    doorbell: Arc<Doorbell>,
    capacity: Room,
    mtu_bytes: usize,
    pool: BlockPool,
    staged: Staged,
}

impl PacketSender {
    /// Hands over one IP packet, and waits where there is no room for it. The stack takes nothing in it on trust.
    ///
    /// # Errors
    /// `InvalidInput` for a packet that is empty or longer than the MTU; `NetworkDown` where the stack, its
    /// interface or the other half is gone.
    pub fn send(&mut self, packet: &[u8]) -> Result<()> {
        self.send_many(&[packet]).map(drop)
    }

    /// Hands over packets, in order, and says how many: as many as there is room for, at least one, for which it
    /// waits. They reach the stack as one batch.
    ///
    /// # Errors
    /// As [`PacketSender::send`], where the first packet cannot be sent.
    pub fn send_many(&mut self, packets: &[&[u8]]) -> Result<usize> {
        loop {
            match self.try_send_many(packets) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let lane = &self.lane;
                    self.doorbell.wait(None, || lane.is_closed());
                }
                outcome => return outcome,
            }
        }
    }

    /// As [`PacketSender::send_many`], and does not wait.
    ///
    /// # Errors
    /// As [`PacketSender::send`]; `WouldBlock` where there is no room: a thread may let the packet be lost, as a
    /// network does.
    pub fn try_send_many(&mut self, packets: &[&[u8]]) -> Result<usize> {
        if self.is_closed() {
            return Err(peer_gone().into());
        }
        // Read before the room is: whatever leaves the lane from here on is noticed below.
        let before = self.lane.packets();
        let count = self.stage(packets)?;
        if count == 0 && !packets.is_empty() {
            self.lane.block_sender(before);
            return Err(ErrorKind::WouldBlock.into());
        }
        self.lane.push(&mut self.staged);
        self.lane.signal();
        Ok(count)
    }

    /// As [`PacketSender::send_many`] for a task, which is woken when there is room.
    ///
    /// # Errors
    /// As [`PacketSender::send`].
    pub fn poll_send_many(
        &mut self,
        context: &mut Context<'_>,
        packets: &[&[u8]],
    ) -> Poll<Result<usize>> {
        let doorbell = Arc::clone(&self.doorbell);
        poll(&doorbell, context, || self.try_send_many(packets))
    }

    /// Whether the stack, its interface or the other half is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lane.is_closed()
    }

    /// Lays as many packets as there is room for end to end into a block, and says how many.
    fn stage(&mut self, packets: &[&[u8]]) -> Result<usize> {
        let mut left = Room {
            packets: self.capacity.packets.saturating_sub(self.lane.packets()),
            bytes: self.capacity.bytes.saturating_sub(self.lane.bytes()),
        };
        let mut len_bytes = 0;
        let fits = |packet: &&&[u8]| {
            let is_sound = (1..=self.mtu_bytes).contains(&packet.len());
            let is_first = len_bytes == 0;
            if !is_sound || left.packets == 0 || left.bytes < packet.len() {
                return false;
            }
            len_bytes += aligned(packet.len());
            left.packets -= 1;
            left.bytes -= packet.len();
            is_first || len_bytes <= BLOCK_LEN_MAX
        };
        let count = packets.iter().take_while(fits).count();
        let taken = packets.get(..count).unwrap_or(&[]);
        match packets.first() {
            Some(first) if !(1..=self.mtu_bytes).contains(&first.len()) => {
                let message = format!(
                    "a packet of {} bytes cannot be handed over: the pipe takes 1 to {}, its MTU",
                    first.len(),
                    self.mtu_bytes
                );
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
            _ if taken.is_empty() => return Ok(0),
            _ => {}
        }
        let no_memory = |_| Error::new(ErrorKind::OutOfMemory, "the pipe has no memory left");
        let mut block = self.pool.allocate(len_bytes).map_err(no_memory)?;
        let mut at = 0;
        for packet in taken {
            block.bytes_mut()[at..at + packet.len()].copy_from_slice(packet);
            let frame = Frame {
                block: 0,
                offset: at as u32,
                len: packet.len() as u32,
                checksum: ReceivedChecksum::Unverified,
                segmented: None,
            };
            self.staged.push_frame(QueuedFrame { frame, packets: 1 });
            at += aligned(packet.len());
        }
        self.staged.push_block(block.freeze(), count);
        Ok(count)
    }
}

/// The stack has what was sent before, and then lets the other half know.
impl Drop for PacketSender {
    fn drop(&mut self) {
        self.lane.close();
    }
}

/// Takes what the stack behind a [`packet_pipe`] sends.
#[derive(Debug)]
pub struct PacketReceiver {
    lane: Arc<Lane>,
    /// The other half's.
    other: Arc<Lane>,
    doorbell: Arc<Doorbell>,
    opened: Opened,
    /// What was taken out of the lane, and how much of it was handed out.
    taken: ReceiveBatch,
    handed_out: usize,
}

impl PacketReceiver {
    fn new([lane, other]: [Arc<Lane>; 2], doorbell: Arc<Doorbell>) -> Self {
        let (opened, taken) = (Opened::default(), ReceiveBatch::new());
        Self { lane, other, doorbell, opened, taken, handed_out: 0 }
    }

    /// Waits for an IP packet and copies it out; says how long it is. What does not fit is lost.
    ///
    /// # Errors
    /// `NetworkDown` where the stack, its interface or the other half is gone, once everything the stack sent was received.
    pub fn recv(&mut self, out: &mut [u8]) -> Result<usize> {
        loop {
            match self.try_recv(out) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let lane = &self.lane;
                    self.doorbell.wait(None, || lane.packets() > 0 || lane.is_closed());
                }
                outcome => return outcome,
            }
        }
    }

    /// As [`PacketReceiver::recv`], and does not wait.
    ///
    /// # Errors
    /// As [`PacketReceiver::recv`]; `WouldBlock` where there is none.
    pub fn try_recv(&mut self, out: &mut [u8]) -> Result<usize> {
        if self.handed_out >= self.taken.len() {
            self.taken.clear();
            self.handed_out = 0;
            // Asked for first: what the stack sent before it went is still in the lane.
            let is_closed = self.lane.is_closed();
            let (count, ..) = self.lane.pop(&mut self.opened, &mut self.taken, TAKEN_PACKETS_MAX);
            match (count, is_closed) {
                (0, true) => return Err(peer_gone().into()),
                (0, false) => return Err(ErrorKind::WouldBlock.into()),
                _ => {}
            }
        }
        let packet = self.taken.bytes(self.handed_out);
        self.handed_out += 1;
        let len = packet.len().min(out.len());
        out[..len].copy_from_slice(&packet[..len]);
        Ok(len)
    }

    /// As [`PacketReceiver::recv`] for a task, which is woken when there is one.
    ///
    /// # Errors
    /// As [`PacketReceiver::recv`].
    pub fn poll_recv(&mut self, context: &mut Context<'_>, out: &mut [u8]) -> Poll<Result<usize>> {
        let doorbell = Arc::clone(&self.doorbell);
        poll(&doorbell, context, || self.try_recv(out))
    }
}

/// A stack whose device has failed neither receives nor sends: who waits for one at the other half would wait for ever, as
/// who waits for a packet at a socket would where it only could not be answered.
impl Drop for PacketReceiver {
    fn drop(&mut self) {
        self.lane.close();
        self.other.close();
    }
}

/// Attempts something for a task that the doorbell wakes where it would have to wait.
fn poll<T>(
    doorbell: &Doorbell,
    context: &Context<'_>,
    mut attempt: impl FnMut() -> Result<T>,
) -> Poll<Result<T>> {
    let would_block =
        |outcome: &Result<T>| matches!(outcome, Err(it) if it.kind() == ErrorKind::WouldBlock);
    let mut outcome = attempt();
    if would_block(&outcome) {
        doorbell.register(context.waker());
        // It may have become possible before the doorbell knew of the task.
        outcome = attempt();
    }
    if would_block(&outcome) { Poll::Pending } else { Poll::Ready(outcome) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Queue, Stop};
    use batch::{Attributes, Block, BlockPool, Multidata, PoolConfig};
    use bytes::Bytes;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use core::task::Waker;
    use core::time::Duration;
    use std::sync::Mutex;
    use std::task::Wake;
    use std::time::Instant;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn batch_of(packets: &[&'static [u8]]) -> Multidata {
        let mut batch = Multidata::default();
        for packet in packets {
            batch.push_packet(0, Attributes::default()).expect("room");
            assert!(batch.append_span(&Block::from(Bytes::from_static(packet)), 0, packet.len()));
        }
        batch
    }

    /// What came, after one call.
    fn received(queue: &mut WireQueue) -> Vec<Vec<u8>> {
        let mut batch = ReceiveBatch::new();
        queue.receive(&BlockPool::new(PoolConfig::default()), &mut batch, 9_999);
        (0..batch.len()).map(|index| batch.bytes(index).to_vec()).collect()
    }

    fn kind<T>(outcome: Result<T>) -> Option<ErrorKind> {
        outcome.err().map(|error| error.kind())
    }

    #[test]
    fn packets_are_handed_out_one_by_one_and_go_in_as_a_batch() {
        let (mut queue, mut sender, mut receiver) = packet_pipe(1_500);
        let mut out = [0; 3];
        assert_eq!(kind(receiver.try_recv(&mut out)), Some(ErrorKind::WouldBlock));
        assert_eq!(queue.transmit(&batch_of(&[b"one", b"two", b"three"])).taken, 3);
        for (len, bytes) in [(3, b"one"), (3, b"two"), (3, b"thr")] {
            assert_eq!(receiver.recv(&mut out).expect("it was sent"), len);
            assert_eq!(&out, bytes, "what does not fit is lost");
        }
        assert_eq!(kind(receiver.try_recv(&mut out)), Some(ErrorKind::WouldBlock));

        assert_eq!(sender.send_many(&[b"four", b"five"]).expect("there is room"), 2);
        sender.send(b"six").expect("there is room");
        assert_eq!(received(&mut queue), [&b"four"[..], b"five", b"six"]);
        let long = [0; 1_501];
        for (packets, count) in [([&b"a"[..], &[]], Some(1)), ([&long[..], b"b"], None)] {
            let sent = sender.send_many(&packets);
            assert_eq!(sent.as_ref().ok().copied(), count);
            assert_eq!(kind(sent), count.is_none().then_some(ErrorKind::InvalidInput));
        }
        for wrong in [&long[..], &[]] {
            let error = sender.send(wrong).expect_err("no packet of that pipe").to_string();
            assert!(error.contains(&format!("{} bytes", wrong.len())), "{error}");
            assert!(error.contains("1 to 1500"), "{error}");
        }
        assert_eq!(sender.send_many(&[]).expect("nothing to send"), 0);
    }

    #[test]
    fn a_pipe_holds_so_many_bytes_and_a_block_of_it_fewer() {
        let (mut queue, mut sender, _receiver) = packet_pipe(65_535);
        let packet = [7; 65_000];
        assert_eq!(sender.send_many(&[&packet[..]; 4]).expect("room"), 2, "in one block");
        let more = (0..).take_while(|_| sender.try_send_many(&[&packet]).is_ok()).count();
        assert_eq!((2 + more) * packet.len(), (2 << 20) / packet.len() * packet.len());
        let received = received(&mut queue);
        assert!(received.len() == 2 + more && received.iter().all(|it| *it == packet));
    }

    /// The other end may go between any two steps of a call.
    #[test]
    fn what_the_stack_sent_before_it_went_is_received() {
        for _ in 0..2_000 {
            let (mut queue, _sender, mut receiver) = packet_pipe(1_500);
            let stack = std::thread::spawn(move || queue.transmit(&batch_of(&[b"x"])).taken);
            let mut out = [0; 9];
            let outcomes = core::iter::repeat_with(|| kind(receiver.try_recv(&mut out)));
            let until = outcomes.take_while(|it| *it != Some(ErrorKind::NetworkDown));
            assert_eq!(until.filter(Option::is_none).count(), stack.join().expect("no panic"));
        }
    }

    #[test]
    fn tasks_are_woken_by_packets_by_room_and_by_the_end() {
        let (mut queue, mut sender, mut receiver) = packet_pipe(1_500);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let count = || woken.0.swap(0, Ordering::SeqCst);
        let mut out = [0; 9];
        assert!(receiver.poll_recv(&mut context, &mut out).is_pending());
        assert_eq!(count(), 0);
        queue.transmit(&batch_of(&[b"packet"]));
        assert_eq!(count(), 1);
        assert!(matches!(receiver.poll_recv(&mut context, &mut out), Poll::Ready(Ok(6))));

        while sender.try_send_many(&[&[7; 1_500]]).is_ok() {}
        assert!(sender.poll_send_many(&mut context, &[b"late"]).is_pending());
        assert_eq!(count(), 0);
        assert_eq!(received(&mut queue).len(), 1_024);
        assert_eq!(count(), 1);
        assert!(matches!(sender.poll_send_many(&mut context, &[b"late"]), Poll::Ready(Ok(1))));

        assert!(receiver.poll_recv(&mut context, &mut out).is_pending());
        queue.transmit(&batch_of(&[b"last"]));
        drop(queue);
        assert_eq!(count(), 1, "nobody waits a second time by himself");
        assert!(matches!(receiver.poll_recv(&mut context, &mut out), Poll::Ready(Ok(4))));
        let end = receiver.poll_recv(&mut context, &mut out);
        assert!(matches!(end, Poll::Ready(Err(it)) if it.kind() == ErrorKind::NetworkDown));
        assert_eq!(kind(sender.send(b"x")), Some(ErrorKind::NetworkDown));
        assert!(sender.is_closed());
    }

    /// To whoever asks first: the stack, which may have nothing to send or nothing to receive.
    #[test]
    fn a_device_without_one_of_its_halves_has_failed_in_both_directions() {
        let pool = BlockPool::new(PoolConfig::default());
        for has_receiver in [false, true] {
            let (mut queue, sender, receiver) = packet_pipe(1_500);
            let (sender, receiver) = (Some(sender), Some(receiver));
            let _left = (sender.filter(|_| !has_receiver), receiver.filter(|_| has_receiver));
            assert!(queue.receive(&pool, &mut ReceiveBatch::new(), 9).failed.is_some());
            let stopped = queue.transmit(&batch_of(&[b"x"])).stopped;
            assert!(matches!(stopped, Some(Stop::Failed(_))));
        }
    }

    /// The device has failed, so nothing comes from it or is taken any more.
    #[test]
    fn who_waits_at_one_half_hears_that_the_other_is_gone() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let count = || woken.0.swap(0, Ordering::SeqCst);
        let mut out = [0; 9];

        let (_queue, mut sender, receiver) = packet_pipe(1_500);
        while sender.try_send_many(&[&[7; 1_500]]).is_ok() {}
        assert!(sender.poll_send_many(&mut context, &[b"late"]).is_pending());
        drop(receiver);
        assert_eq!(count(), 1);
        assert_eq!(kind(sender.send(b"late")), Some(ErrorKind::NetworkDown));
        assert!(sender.is_closed());

        let (mut queue, mut sender, mut receiver) = packet_pipe(1_500);
        assert!(receiver.poll_recv(&mut context, &mut out).is_pending());
        queue.transmit(&batch_of(&[b"last"]));
        assert_eq!(count(), 1);
        sender.send(b"before").expect("room");
        drop(sender);
        let pool = BlockPool::new(PoolConfig::default());
        let received = queue.receive(&pool, &mut ReceiveBatch::new(), 9);
        assert_eq!((received.frames, received.failed.is_some()), (1, true));
        assert_eq!(receiver.recv(&mut out).expect("it was sent before"), 4);
        assert_eq!(kind(receiver.recv(&mut out)), Some(ErrorKind::NetworkDown));
    }

    /// It found none, and says so after the stack has taken everything: nobody would tell it any more.
    #[test]
    fn room_that_comes_while_a_thread_is_about_to_wait_for_it_is_not_missed() {
        const PACKETS: usize = 150_000;
        let end = WireEnd::plain(Medium::Ip);
        let config = WireConfig { capacity_packets: 1, ..WireConfig::new(end, end) };
        let (mut queue, mut sender, _receiver) = pipe(&config);
        let stack = std::thread::spawn(move || {
            let (pool, mut batch) = (BlockPool::new(PoolConfig::default()), ReceiveBatch::new());
            let mut left = PACKETS;
            while left > 0 {
                batch.clear();
                left -= queue.receive(&pool, &mut batch, 9).frames;
                std::thread::yield_now();
            }
        });
        for _ in 0..PACKETS {
            while sender.try_send_many(&[b"packet"]).is_err() {
                // Seldom within the few instructions that this is about; a sleep each time would make it more seldom still.
                while sender.lane.packets() > 0 {
                    std::thread::yield_now();
                }
                let asked = Instant::now();
                sender.doorbell.wait(Some(Duration::from_secs(20)), || false);
                assert!(asked.elapsed() < Duration::from_secs(10), "nobody rang");
            }
        }
        stack.join().expect("all were taken");
    }

    /// A task that has one of the halves, as far as a waker knows of it.
    struct Holder(#[allow(dead_code, reason = "it is dropped")] Mutex<PacketReceiver>);

    impl Wake for Holder {
        fn wake(self: Arc<Self>) {}
    }

    /// A half goes on in another task, and its waker was the last holder of the one before, which had the other half.
    #[test]
    fn a_task_that_waits_no_more_is_let_go_of_under_no_lock() {
        let (told, outcome) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let (_queue, mut sender, receiver) = packet_pipe(1_500);
            while sender.try_send_many(&[&[7; 1_500]]).is_ok() {}
            let task = Waker::from(Arc::new(Holder(Mutex::new(receiver))));
            let first = sender.poll_send_many(&mut Context::from_waker(&task), &[b"late"]);
            assert!(first.is_pending());
            drop(task);
            let mut context = Context::from_waker(Waker::noop());
            let second = sender.poll_send_many(&mut context, &[b"late"]);
            told.send(second.map(kind)).expect("somebody waits");
        });
        let outcome = outcome.recv_timeout(core::time::Duration::from_secs(20));
        let gone = Poll::Ready(Some(ErrorKind::NetworkDown));
        assert_eq!(outcome, Ok(gone), "it waits for a lock of its own");
    }
}
