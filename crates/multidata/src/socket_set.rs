//! A socket that connections arrive at in every squeue: a listener, a forwarder.
//!
//! In a stack of several squeues it is a socket in each of them, and connections wait where they are
//! at home. Who takes one begins at another squeue each time, so that none of them waits behind the
//! others, and sleeps as tasks do: the threads of the squeues wake it.

use crate::Stack;
use crate::error::socket_error;
use crate::runtime::squeue::Core;
use crate::runtime::turn::After;
use crate::runtime::waiting::{Interest, Parker};
use crate::socket::Socket;
use core::task::{Context, Poll, Waker};
use stack::{SocketError, SocketId};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use time::Instant;

/// One socket in each squeue.
#[derive(Debug)]
pub(crate) struct SocketSet {
    /// By the number of the squeue; the first one's settings are those of all.
    sockets: Box<[Socket]>,
    /// Where the next call begins to look.
    next: AtomicUsize,
}

impl SocketSet {
    /// Opens a socket in each squeue, the first one first; `open` is told its number.
    pub(crate) fn open(
        stack: &Stack,
        mut open: impl FnMut(usize, &mut Core, Instant) -> Result<SocketId, SocketError>,
    ) -> io::Result<Self> {
        let mut sockets = Vec::new();
        for home in 0..stack.squeues().len() {
            let id = stack.squeue(home).once(|core, now| open(home, core, now));
            sockets.push(Socket::new(stack.clone(), home, id.map_err(socket_error)?));
        }
        Ok(Self { sockets: sockets.into_boxed_slice(), next: AtomicUsize::new(0) })
    }

    pub(crate) fn first(&self) -> &Socket {
        &self.sockets[0]
    }

    /// Waits until `take` gets something from one of the sockets; says which.
    pub(crate) fn take<T>(
        &self,
        take: impl Fn(&mut Core, SocketId) -> Result<T, SocketError>,
    ) -> io::Result<(&Socket, T)> {
        let call = self.first().call(Interest::Readable, After::Send);
        if let [only] = &*self.sockets {
            let taken = only.squeue().operate(&call, |core, _| take(core, only.id))?;
            return Ok((only, taken));
        }
        if !call.blocks {
            return self.take_once(take);
        }
        let until = call.timeout.map(|timeout| std::time::Instant::now() + timeout);
        let parker = Arc::new(Parker::default());
        let waker = Waker::from(Arc::clone(&parker));
        loop {
            if let Poll::Ready(outcome) = self.poll_take(&Context::from_waker(&waker), &take) {
                if outcome.is_err() {
                    // Some sockets may have it already, and nobody else does.
                    self.forget_waker(&waker);
                }
                return outcome;
            }
            let left =
                until.map(|until| until.saturating_duration_since(std::time::Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.forget_waker(&waker);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            parker.park(left);
        }
    }

    fn take_once<T>(
        &self,
        take: impl Fn(&mut Core, SocketId) -> Result<T, SocketError>,
    ) -> io::Result<(&Socket, T)> {
        let mut outcome = Err(io::ErrorKind::WouldBlock.into());
        for socket in self.in_turn() {
            let taken =
                socket.squeue().operate(&socket.call_once(), |core, _| take(core, socket.id));
            outcome = taken.map(|taken| (socket, taken));
            if !matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                break;
            }
        }
        outcome
    }

    /// As [`SocketSet::take`] for a task, which is woken when there may be something.
    pub(crate) fn poll_take<T>(
        &self,
        context: &Context<'_>,
        take: impl Fn(&mut Core, SocketId) -> Result<T, SocketError>,
    ) -> Poll<io::Result<(&Socket, T)>> {
        for socket in self.in_turn() {
            let taken = socket
                .poll(Interest::Readable, After::Send, context, |core, _| take(core, socket.id));
            if let Poll::Ready(taken) = taken {
                // After an error it may be in for another task as well, which waits on.
                if taken.is_ok() && self.sockets.len() > 1 {
                    self.forget_waker(context.waker());
                }
                return Poll::Ready(taken.map(|taken| (socket, taken)));
            }
        }
        Poll::Pending
    }

    /// The sockets, from another one on each time.
    fn in_turn(&self) -> impl Iterator<Item = &Socket> {
        let start = self.next.fetch_add(1, Ordering::Relaxed) % self.sockets.len();
        self.sockets[start..].iter().chain(&self.sockets[..start])
    }

    /// Does the same to each.
    pub(crate) fn set(
        &self,
        set: impl Fn(&mut Core, SocketId) -> Result<(), SocketError>,
    ) -> io::Result<()> {
        self.sockets.iter().try_for_each(|socket| {
            let set = socket.squeue().once(|core, _| set(core, socket.id));
            set.map_err(socket_error)
        })
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.sockets[0].set_nonblocking(nonblocking);
    }

    /// Wakes `waker` once, when there is something to take in one of them.
    pub(crate) fn register_waker(&self, waker: &Waker) {
        for socket in &self.sockets {
            socket.register_waker(Interest::Readable, waker);
        }
    }

    /// No squeue is to call this waker any more.
    fn forget_waker(&self, waker: &Waker) {
        self.sockets.iter().for_each(|socket| socket.forget_waker(waker));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InterfaceConfig;
    use core::cell::Cell;
    use device::{Medium, WireConfig, WireEnd};

    #[test]
    fn an_error_takes_nobodys_waker_away() {
        let end = WireEnd::plain(Medium::Ip);
        let (near, _far) = device::wire(WireConfig::new(end, end));
        let interface = InterfaceConfig::new("10.1.0.1/24".parse().expect("an address"));
        let stack = Stack::builder().squeues(2).interface(near, interface);
        let stack = stack.build().expect("a stack");
        let bind = |_, core: &mut Core, _| core.shard.udp_bind(([10, 1, 0, 1], 0).into());
        let set = SocketSet::open(&stack, bind).expect("free ports");
        let waits = || {
            let squeues = stack.squeues();
            squeues.iter().filter(|it| it.look(|core| core.waiting.has_tasks())).count()
        };
        let context = Context::from_waker(Waker::noop());
        let nothing = |_: &mut Core, _| Err::<(), _>(SocketError::WouldBlock);
        assert!(set.poll_take(&context, nothing).is_pending());
        assert_eq!(waits(), 2);
        let asked = Cell::new(0);
        let failing = |_: &mut Core, _| {
            asked.set(asked.get() + 1);
            let is_first = asked.get() <= 2;
            Err::<(), _>(if is_first { SocketError::WouldBlock } else { SocketError::NoMemory })
        };
        assert!(matches!(set.poll_take(&context, failing), Poll::Ready(Err(_))));
        assert_eq!(waits(), 2, "another task has the same waker, and waits on");
        set.forget_waker(Waker::noop());
        assert_eq!(waits(), 0);
        set.register_waker(Waker::noop());
        assert_eq!(waits(), 2);
        set.forget_waker(Waker::noop());
        let told = Cell::new(0);
        let tell = |_: &mut Core, _| {
            told.set(told.get() + 1);
            Ok(())
        };
        set.set(tell).expect("nothing refuses");
        assert_eq!(told.get(), 2, "what one is set to all are");
        assert!(set.poll_take(&context, nothing).is_pending());
        assert!(matches!(set.poll_take(&context, |_, _| Ok(())), Poll::Ready(Ok(_))));
        assert_eq!(waits(), 0, "who got something waits nowhere");
        let timeout = Some(std::time::Duration::from_millis(1));
        set.first().set_timeout(Interest::Readable, timeout).expect("not zero");
        assert!(set.take(nothing).is_err());
        assert_eq!(waits(), 0, "nor does who has waited for as long as it would");
        asked.set(1);
        assert!(set.take(failing).is_err());
        assert_eq!(waits(), 0, "a thread takes its own out");
        assert!(set.poll_take(&context, nothing).is_pending());
        drop(set);
        assert_eq!(waits(), 0, "nor does who waited for what is closed");
    }
}
