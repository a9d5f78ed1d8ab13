//! The turn among the writers of one stream: handles share it, and one of them writes at a time.
//!
//! A thread waits for its turn as long as its call may last, which a writer before it can outlast whose peer
//! reads nothing. A call that may not wait is told so; a task that found the turn taken is woken when it
//! ends, and so is whoever had a waker entered before it was refused.

use crate::copy_in::Copied;
use crate::runtime::turn::After;
use crate::runtime::waiting::{Interest, Sleeper};
use crate::runtime::{locked, waited_while};
use crate::socket::Socket;
use core::ops::{Deref, DerefMut};
use core::task::{Context, Poll};
use std::io::{self, ErrorKind};
use std::sync::{Condvar, Mutex};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct WriteTurns {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    /// What writers copy into, one after the other; not here while one of them has the turn.
    copied: Option<Copied>,
    /// Threads that wait for it. Where there is none nobody is called: that is a system call.
    threads: usize,
    /// Tasks that found it taken, each once.
    tasks: Vec<Sleeper>,
    /// A call was refused that may not wait.
    has_refused: bool,
}

impl Default for WriteTurns {
    fn default() -> Self {
        let copied = Some(Copied::default());
        let state = State { copied, threads: 0, tasks: Vec::new(), has_refused: false };
        Self { state: Mutex::new(state), ended: Condvar::new() }
    }
}

/// The turn, until it is dropped.
#[derive(Debug)]
pub(super) struct WriteTurn<'a> {
    turns: &'a WriteTurns,
    socket: &'a Socket,
    copied: Copied,
}

impl WriteTurns {
    /// The turn, waited for as long as writes of `socket` may wait.
    ///
    /// # Errors
    /// `WouldBlock` where they may not, or this one did so in vain.
    pub(super) fn take<'a>(&'a self, socket: &'a Socket) -> io::Result<WriteTurn<'a>> {
        let call = socket.call(Interest::Writable, After::Leave);
        let mut state = locked(&self.state);
        if state.copied.is_none() && call.blocks {
            state.threads += 1;
            let is_taken = |state: &mut State| state.copied.is_none();
            state = waited_while(&self.ended, state, call.timeout, is_taken);
            state.threads -= 1;
        }
        let taken = state.copied.take();
        state.has_refused |= taken.is_none();
        let copied = taken.ok_or(ErrorKind::WouldBlock)?;
        Ok(WriteTurn { turns: self, socket, copied })
    }

    /// The turn; where it is taken the task is woken when it ends.
    pub(super) fn poll_take<'a>(
        &'a self,
        socket: &'a Socket,
        context: &Context<'_>,
    ) -> Poll<WriteTurn<'a>> {
        let mut state = locked(&self.state);
        match state.copied.take() {
            Some(copied) => Poll::Ready(WriteTurn { turns: self, socket, copied }),
            None => {
                state.add_task(context);
                Poll::Pending
            }
        }
    }

    /// Ready where nobody has the turn; otherwise as [`WriteTurns::poll_take`].
    pub(super) fn poll_free(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = locked(&self.state);
        match state.copied.is_some() {
            true => Poll::Ready(()),
            false => {
                state.add_task(context);
                Poll::Pending
            }
        }
    }
}

impl State {
    fn add_task(&mut self, context: &Context<'_>) {
        let is_same = |known: &Sleeper| match known {
            Sleeper::Task(known) => known.will_wake(context.waker()),
            Sleeper::Thread(_) => false,
        };
        if !self.tasks.iter().any(is_same) {
            self.tasks.push(Sleeper::Task(context.waker().clone()));
        }
    }
}

impl Deref for WriteTurn<'_> {
    type Target = Copied;

    fn deref(&self) -> &Copied {
        &self.copied
    }
}

impl DerefMut for WriteTurn<'_> {
    fn deref_mut(&mut self) -> &mut Copied {
        &mut self.copied
    }
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        let mut copied = core::mem::take(&mut self.copied);
        // What an error or a panic left is not written.
        copied.chunks.clear();
        let mut state = locked(&self.turns.state);
        state.copied = Some(copied);
        let tasks = core::mem::take(&mut state.tasks);
        let has_refused = core::mem::take(&mut state.has_refused);
        let has_threads = state.threads > 0;
        drop(state);
        if has_threads {
            self.turns.ended.notify_one();
        }
        for task in tasks {
            // One that panics keeps nobody else waiting.
            task.wake();
        }
        // Not where this is what a panic does on its way: another may not follow.
        if has_refused && !std::thread::panicking() {
            self.socket.squeue().once(|core, _| core.wake_socket(self.socket.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InterfaceConfig, Stack, TcpStream};
    use core::sync::atomic::{AtomicUsize, Ordering};
    use core::task::Waker;
    use device::{Medium, WireConfig, WireEnd};
    use std::io::Write as _;
    use std::sync::Arc;
    use std::task::Wake;

    #[derive(Default)]
    struct Calls(AtomicUsize);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn who_found_the_turn_taken_is_woken_when_it_ends() {
        let end = WireEnd::plain(Medium::Ip);
        let (near, _far) = device::wire(WireConfig::new(end, end));
        let interface = InterfaceConfig::new("10.1.0.1/24".parse().expect("an address"));
        let stack = Stack::builder().interface(near, interface).build().expect("a stack");
        let (local, peer) = (([10, 1, 0, 1], 9).into(), ([10, 1, 0, 2], 9).into());
        let id = stack.squeue(0).once(|core, now| core.shard.tcp_connect(now, Some(local), peer));
        let mut stream = TcpStream::new(Socket::new(stack, 0, id.expect("a route")), local, peer);
        let other = stream.try_clone().expect("always");
        stream.set_nonblocking(true).expect("always");
        let (polling, registered) = (Arc::<Calls>::default(), Arc::<Calls>::default());
        let waker = Waker::from(Arc::clone(&polling));
        let context = &mut Context::from_waker(&waker);

        let turn = other.take_write_turn().expect("nobody writes");
        for _ in 0..2 {
            assert!(stream.poll_write(context, b"x").is_pending());
            assert!(stream.poll_writable(context).is_pending());
        }
        stream.register_waker(Interest::Writable, &Waker::from(Arc::clone(&registered)));
        let error = stream.write(b"x").expect_err("somebody else writes");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let counts = || [&polling, &registered].map(|calls| calls.0.load(Ordering::SeqCst));
        assert_eq!(counts(), [0, 0]);
        drop(turn);
        assert_eq!(counts(), [1, 1]);
    }
}
