//! The stream over very many connections: a task for each, all of them in the calling thread.
//!
//! A thread for each connection measures the system's scheduler long before a thousand of them. A
//! server of very many connections has tasks, and so have both ends here: this stack's sockets in the
//! hands of tokio's tasks ([`multidata_tokio`]), the kernel's over epoll. Buffers are the thread's and
//! not the tasks', so that ten thousand connections do not differ from ten in what the application's
//! own memory does to the caches. A task writes once and reads once in a turn and then lets the others
//! go on: otherwise the first to come, whose data leaves as fast as it writes, would write megabytes
//! before the last had its first turn, and few connections would be active at a time.
//!
//! An end tells apart what moved while all were busy, and what that cost (`Window`). When sending ends, ten thousand
//! sockets hold a gigabyte, which the fast ones empty soon and the last ones alone, after their retransmission
//! timeouts: a run of 6 s took 60, and said of its middle nothing.

use super::{Amount, Busy, Outcome, READ_LEN_BYTES, Receiving, Sender, Sending, Task, Totals};
use crate::measure::Clocks;
use crate::peer::kernel::STUCK;
use crate::socket::Socket;
use crate::{Attempt, Failure};
use multidata::Stack;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

thread_local! {
    /// What is written, and what is read into. No task keeps it from one poll to the next.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Does the task over each of these connections, and leaves them ended in both directions.
///
/// # Errors
/// The first failure, as a sentence; nothing moved for long.
pub fn run_all<S: Socket>(
    sockets: Vec<S>,
    tasks: &[Task],
    stack: Option<&Stack>,
) -> Result<Totals, Failure> {
    let refused = || "cannot start tasks";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.attempt(refused)?;
    let patience = patience_for(tasks.iter().map(time_of).max().unwrap_or_default());
    let window = Arc::new(Window::of(tasks));
    let before = Sender::of_this_thread();
    let outcomes = runtime.block_on(async {
        if let Some(stack) = stack {
            multidata_tokio::drive(stack).attempt(|| "cannot run the stack by tasks")?;
        }
        let mut running = Vec::with_capacity(sockets.len());
        let started = Instant::now();
        for (socket, task) in sockets.into_iter().zip(tasks) {
            let stream = socket.for_tasks().attempt(refused)?;
            let mut work = Work::new(stream, task.clone(), started, Arc::clone(&window));
            running.push(tokio::spawn(poll_fn(move |context| work.poll(context))));
        }
        let all = async {
            let mut outcomes = Vec::with_capacity(running.len());
            for task in running {
                outcomes.push(task.await.attempt(|| "a task of the workload panicked")??);
            }
            Ok::<_, Failure>(outcomes)
        };
        let in_time = tokio::time::timeout(patience, all).await;
        in_time
            .map_err(|_| Failure::new(format!("not all was done in {} s", patience.as_secs())))?
    })?;
    let mut totals = Totals { busy: window.busy(), ..Totals::of(&outcomes) };
    if tasks.iter().any(|task| task.send.is_some()) {
        totals.sender = Sender::of_this_thread().since(before);
    }
    Ok(totals)
}

/// How long all of it may take. A sender of thousands whose segments a short queue drops waits as long again, each time,
/// as it has waited until then (RFC 6298, 5.5), and goes on doing so behind the end, until the others are done.
fn patience_for(time: Duration) -> Duration {
    4 * (time + STUCK)
}

/// For how long it sends or is sent to.
fn time_of(task: &Task) -> Duration {
    let sent = task.send.as_ref().and_then(|sending| sending.amount.time());
    let received = task.receive.as_ref().and_then(|receiving| receiving.time);
    sent.max(received).unwrap_or(Duration::ZERO)
}

/// The time in which all connections are busy: from a quarter of the time for sending to three quarters,
/// counted from the first byte that this end wrote or read. What is read, what moves and what that costs are
/// of the same time: the clocks are read with the first byte of it and the first one behind it.
#[derive(Debug, Default)]
struct Window {
    time: Option<Duration>,
    first: OnceLock<Instant>,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    clocks: [OnceLock<Option<Clocks>>; 2],
}

impl Window {
    fn of(tasks: &[Task]) -> Self {
        let received = |task: &Task| task.receive.as_ref()?.time;
        let sent = |task: &Task| task.send.as_ref()?.amount.time();
        let times = tasks.iter().flat_map(|task| [received(task), sent(task)]);
        Self { time: times.flatten().min(), ..Self::default() }
    }

    fn on_read(&self, now: Instant, count: usize) {
        self.on_moved(now, count, &self.read_bytes, || Clocks::read().ok());
    }

    fn on_written(&self, now: Instant, count: usize) {
        self.on_moved(now, count, &self.written_bytes, || Clocks::read().ok());
    }

    fn on_moved(
        &self,
        now: Instant,
        count: usize,
        bytes: &AtomicU64,
        read: impl FnOnce() -> Option<Clocks>,
    ) {
        let Some(time) = self.time else { return };
        let passed = now.duration_since(*self.first.get_or_init(|| now));
        if passed >= time / 4 {
            let is_over = passed >= time * 3 / 4;
            self.clocks[usize::from(is_over)].get_or_init(read);
            if !is_over {
                bytes.fetch_add(count as u64, Ordering::Relaxed);
            }
        }
    }

    fn busy(&self) -> Option<Busy> {
        let seconds = (self.time? / 2).as_secs_f64();
        let [bytes, written] =
            [&self.read_bytes, &self.written_bytes].map(|bytes| bytes.load(Ordering::Relaxed));
        let [began, ended] = [0, 1].map(|at: usize| self.clocks[at].get().copied().flatten());
        let spent = began.zip(ended).map(|(began, ended)| began.spent_until(&ended));
        let moved_bytes = bytes + written;
        (moved_bytes > 0).then_some(Busy { bytes, moved_bytes, seconds, spent })
    }
}

/// One end of one connection.
struct Work<S> {
    window: Arc<Window>,
    stream: S,
    task: Task,
    started: Instant,
    outcome: Outcome,
    is_all_sent: bool,
    is_ended: bool,
    /// The peer ended its stream.
    is_all_received: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Work<S> {
    fn new(stream: S, task: Task, started: Instant, window: Arc<Window>) -> Self {
        Self {
            window,
            stream,
            is_all_sent: task.send.is_none(),
            task,
            started,
            outcome: Outcome::default(),
            is_ended: false,
            is_all_received: false,
        }
    }

    /// Ready when both directions have ended.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Outcome, Failure>> {
        let sent = self.poll_send(context)?;
        let received = self.poll_receive(context)?;
        // An end that only receives says by its own end that everything arrived.
        let is_done = sent.is_ready() && (self.task.send.is_some() || received.is_ready());
        if is_done && !self.is_ended {
            let ended = ready!(Pin::new(&mut self.stream).poll_shutdown(context));
            ended.attempt(|| "cannot end the stream")?;
            self.is_ended = true;
        }
        match is_done && received.is_ready() {
            true => Poll::Ready(Ok(self.outcome)),
            false => Poll::Pending,
        }
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, Failure> {
        if !self.is_all_sent
            && let Some(sending) = &self.task.send
        {
            let (bytes_max, time) = match sending.amount {
                Amount::Bytes(bytes) => (bytes, Duration::MAX),
                Amount::Time(time) => (u64::MAX, time),
            };
            let at = self.outcome.sent_bytes;
            if at >= bytes_max || self.started.elapsed() >= time {
                self.is_all_sent = true;
                return Ok(Poll::Ready(()));
            }
            let left = usize::try_from(bytes_max - at).unwrap_or(usize::MAX);
            let len = left.min(sending.write_len_bytes);
            match write(Pin::new(&mut self.stream), context, sending, at, len) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(count) => {
                    let count = count.attempt(|| format!("sending failed after {at} bytes"))?;
                    self.outcome.sent_bytes += count as u64;
                    self.window.on_written(Instant::now(), count);
                    context.waker().wake_by_ref();
                    return Ok(Poll::Pending);
                }
            }
        }
        Ok(Poll::Ready(()))
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, Failure> {
        if !self.is_all_received {
            let at = self.outcome.received_bytes;
            let receiving = self.task.receive.as_ref();
            let read = read(Pin::new(&mut self.stream), context, receiving, at)?;
            let Poll::Ready(count) = read else { return Ok(Poll::Pending) };
            if count == 0 {
                self.is_all_received = true;
                let first = self.outcome.received_between.map(|(first, _)| first);
                self.outcome.received_between = first.map(|first| (first, Instant::now()));
                return Ok(Poll::Ready(()));
            }
            let now = Instant::now();
            self.outcome.received_between.get_or_insert((now, now));
            self.window.on_read(now, count);
            self.outcome.received_bytes += count as u64;
            self.outcome.reads += 1;
            context.waker().wake_by_ref();
            return Ok(Poll::Pending);
        }
        Ok(Poll::Ready(()))
    }
}

/// Writes what stands at `at` of the stream, at most `len` bytes.
fn write<S: AsyncWrite>(
    stream: Pin<&mut S>,
    context: &mut Context<'_>,
    sending: &Sending,
    at: u64,
    len: usize,
) -> Poll<io::Result<usize>> {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < len {
            // Written once: zeroes of the allocator's would all be one page, which no application's data is.
            buffer.resize(len, 0);
        }
        let bytes = &mut buffer[..len];
        // No more than is checked: to fill writes of many megabytes for each of thousands took longer than the run, in
        // which most of them then never had a turn.
        let left = sending.verified_len_bytes.saturating_sub(at);
        let checked = usize::try_from(left).map_or(len, |left| left.min(len));
        sending.pattern.fill(at, &mut bytes[..checked]);
        stream.poll_write(context, bytes)
    })
}

/// Reads once and checks what came; 0 at the end of the stream.
fn read<S: AsyncRead>(
    stream: Pin<&mut S>,
    context: &mut Context<'_>,
    receiving: Option<&Receiving>,
    at: u64,
) -> Result<Poll<usize>, Failure> {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < READ_LEN_BYTES {
            buffer.resize(READ_LEN_BYTES, 0);
        }
        let mut bytes = ReadBuf::new(buffer);
        let read = match stream.poll_read(context, &mut bytes) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(read) => read,
        };
        read.attempt(|| format!("receiving failed after {at} bytes"))?;
        match (receiving, bytes.filled()) {
            (_, []) => {}
            (Some(receiving), filled) => receiving.check(at, filled)?,
            (None, _) => {
                let sentence = "the other end sent data where it should only have ended the stream";
                return Err(Failure::new(sentence));
            }
        }
        Ok(Poll::Ready(bytes.filled().len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_moved_in_the_middle_half_of_the_time_and_so_do_its_costs() {
        let window = Window { time: Some(Duration::from_millis(400)), ..Window::default() };
        let first = Instant::now();
        let looks = RefCell::new(Vec::new());
        for (ms, count) in [(0, 1), (99, 2), (101, 4), (299, 8), (301, 16), (9_000, 32)] {
            let now = first + Duration::from_millis(ms);
            for bytes in [&window.read_bytes, &window.written_bytes] {
                window.on_moved(now, count, bytes, || {
                    looks.borrow_mut().push(ms);
                    Clocks::read().ok()
                });
            }
        }
        let busy = window.busy().expect("some came");
        assert_eq!((busy.bytes, busy.moved_bytes, busy.seconds), (4 + 8, 2 * (4 + 8), 0.2));
        assert!(busy.spent.is_some());
        assert_eq!(*looks.borrow(), [101, 301], "the clocks are read at both ends of it");
    }

    #[test]
    fn an_end_that_only_sends_tells_what_that_cost() {
        let window = Window { time: Some(Duration::from_millis(400)), ..Window::default() };
        let first = Instant::now();
        for ms in [0, 200, 400] {
            window.on_written(first + Duration::from_millis(ms), 1);
        }
        let busy = window.busy().expect("some left");
        assert_eq!((busy.bytes, busy.moved_bytes), (0, 1));
        assert!(busy.spent.is_some());
    }

    #[test]
    fn a_time_in_which_nothing_came_is_not_told_apart() {
        let window = Window { time: Some(Duration::from_millis(400)), ..Window::default() };
        window.on_read(Instant::now(), 1);
        assert_eq!(window.busy(), None);
    }

    #[test]
    fn a_run_that_ends_by_bytes_has_no_such_time() {
        let window = Window::default();
        window.on_read(Instant::now(), 1);
        assert_eq!(window.busy(), None);
    }

    #[test]
    fn a_write_is_filled_as_far_as_it_is_checked() {
        let pattern = crate::verify::Pattern::new(1, 1, crate::verify::Flow::FromConnector);
        let sending = |verified_len_bytes| Sending {
            pattern,
            amount: Amount::Bytes(100),
            write_len_bytes: 100,
            zero_copy: false,
            verified_len_bytes,
        };
        let written = |at, verified_len_bytes| {
            BUFFER.with_borrow_mut(|buffer| *buffer = vec![0xff; 100]);
            let mut out = Vec::new();
            let context = &mut Context::from_waker(std::task::Waker::noop());
            let sending = sending(verified_len_bytes);
            let wrote = write(Pin::new(&mut out), context, &sending, at, 100);
            assert!(matches!(wrote, Poll::Ready(Ok(100))), "{wrote:?}");
            out
        };
        for (at, verified_len_bytes, checked) in
            [(0, u64::MAX, 100), (0, 40, 40), (30, 40, 10), (40, 40, 0), (50, 40, 0)]
        {
            let out = written(at, verified_len_bytes);
            assert_eq!(pattern.check(at, &out[..checked]), Ok(()));
            assert!(out[checked..].iter().all(|byte| *byte == 0xff), "{at} {verified_len_bytes}");
        }
    }

    #[test]
    fn an_end_that_is_sent_to_waits_as_long_as_one_that_sends() {
        let minute = Duration::from_secs(60);
        let pattern = crate::verify::Pattern::new(1, 1, crate::verify::Flow::FromConnector);
        let receive = super::super::Receiving {
            time: Some(minute),
            pattern,
            zero_copy: false,
            verified_len_bytes: 0,
        };
        let task = Task { cpu: None, send: None, receive: Some(receive) };
        assert_eq!(time_of(&task), minute);
    }
}
