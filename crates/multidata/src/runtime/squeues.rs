//! The squeues of a stack.
//!
//! A stack has one squeue, or several that threads can be in at the same time. Each is a shard with
//! all of the stack's addresses and routes, with device queues and with sockets of its own; a socket
//! belongs to one of them for life. What concerns all sockets is done in each, one after the other,
//! and by one thread at a time ([`Squeues::everywhere`]).

use super::hand_over::HandOver;
use super::squeue::{Core, Squeue};
use crate::affinity;
use core::net::SocketAddr;
use stack::{Homes, SocketError};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use steering::{Home, Policy};
use time::{Duration, Instant};

/// All squeues of a stack.
pub(crate) struct Squeues {
    all: Box<[Arc<Squeue>]>,
    hand_over: Option<Arc<HandOver>>,
    /// Where the next connection is opened that may be anywhere, and where the next UDP socket is.
    next_connection: AtomicUsize,
    next_socket: AtomicUsize,
    /// Held while something is changed in all of them.
    changing: Mutex<()>,
    /// The CPUs that the squeues' threads are kept on; empty where they are not.
    cpus: Vec<usize>,
}

impl Squeues {
    pub(crate) fn new(
        all: Vec<Arc<Squeue>>,
        hand_over: Option<Arc<HandOver>>,
        cpus: Vec<usize>,
    ) -> Self {
        if let Some(hand_over) = &hand_over {
            hand_over.connect(&all);
        }
        let (next_connection, next_socket) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (all, changing) = (all.into_boxed_slice(), Mutex::new(()));
        Self { all, hand_over, next_connection, next_socket, changing, cpus }
    }

    /// The CPU that the threads of squeue `index` are kept on.
    pub(crate) fn cpu(&self, index: usize) -> Option<usize> {
        self.cpus.get(index % self.cpus.len().max(1)).copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Squeue `index`, or where there is none the first.
    pub(crate) fn at(&self, index: usize) -> &Squeue {
        self.all.get(index).unwrap_or(&self.all[0])
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Squeue>> {
        self.all.iter()
    }

    /// Does the same in every squeue. The first one's answer counts: where it refuses nothing is done
    /// in the others, and what it takes they take as well, because they are equal in all that is
    /// changed this way. Where a device panics in the turn that follows in one, the others come first.
    pub(crate) fn everywhere<T, E>(
        &self,
        act: impl Fn(&mut Core, Instant) -> Result<T, E>,
    ) -> Result<T, E> {
        self.everywhere_if(|_| Ok(()), act)
    }

    /// As [`Squeues::everywhere`], for what the devices of one squeue may forbid and those of another not: where `check`
    /// refuses in any of them, nothing is done.
    pub(crate) fn everywhere_if<T, E>(
        &self,
        check: impl Fn(&mut Core) -> Result<(), E>,
        act: impl Fn(&mut Core, Instant) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut panic = None;
        let outcome = self.alone(|all| {
            // The first one's reasons are the best.
            all.iter().try_for_each(|squeue| squeue.look(&check))?;
            let first = all[0].once_of_all(&mut panic, &act)?;
            for squeue in &all[1..] {
                squeue.once_of_all(&mut panic, &act)?;
            }
            Ok(first)
        });
        panic.map_or(outcome, |panic| resume_unwind(panic))
    }

    /// Does something in each squeue, one after the other.
    pub(crate) fn each(&self, mut act: impl FnMut(&Squeue)) {
        self.alone(|all| all.iter().for_each(|squeue| act(squeue)));
    }

    /// Does something while nobody else changes anything in all of them.
    pub(crate) fn alone<T>(&self, act: impl FnOnce(&[Arc<Squeue>]) -> T) -> T {
        // The application's wakers may change something in turn.
        let _within = self.all[0].within();
        let _turn = super::locked(&self.changing);
        act(&self.all)
    }

    /// The squeue for a connection from `local`, as far as that is given, to `remote`.
    ///
    /// # Errors
    /// No route leads there.
    pub(crate) fn for_connection(
        &self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<usize, SocketError> {
        let Some(hand_over) = &self.hand_over else { return Ok(0) };
        // Homes go by what packets say.
        let (local, remote) = (local.map(stack::canonical), stack::canonical(remote));
        let source = || self.all[0].look(|core| core.shard.source_for(remote));
        let home = hand_over.spread().home_to_connect(local, remote, source)?.map(Home::index);
        Ok(home.unwrap_or_else(|| self.pick(&self.next_connection)))
    }

    /// The squeue for a UDP socket bound to `port`, or to any where that is zero.
    pub(crate) fn for_port(&self, port: u16) -> usize {
        let Some(hand_over) = &self.hand_over else { return 0 };
        // Where one squeue has the datagrams of all ports, the others have no port to pick.
        let is_by_port = hand_over.spread().policy() != Policy::Protocol;
        if port == 0 && is_by_port { self.pick(&self.next_socket) } else { hand_over.of_port(port) }
    }

    /// The squeue of the CPU that the calling thread runs on, where squeues have CPUs and this is one of
    /// theirs, and else each in turn: of its kind, for who asks for a name by a socket each time before he connects would
    /// have all his connections in every second squeue.
    fn pick(&self, next: &AtomicUsize) -> usize {
        let here = match self.cpus.is_empty() {
            true => None,
            false => {
                affinity::current().and_then(|here| self.cpus.iter().position(|it| *it == here))
            }
        };
        // There may be more CPUs than squeues.
        let here = here.filter(|index| *index < self.all.len());
        here.unwrap_or_else(|| next.fetch_add(1, Ordering::Relaxed) % self.all.len())
    }

    /// Tells all threads that the stack's last handle is gone.
    pub(crate) fn stop(&self, linger: Duration) {
        for squeue in &self.all {
            squeue.stop(linger);
        }
    }

    /// Bytes that were copied in so far: whether writers get on.
    pub(crate) fn copied_in_bytes(&self) -> u64 {
        self.all.iter().map(|squeue| squeue.look(|core| core.counters.bytes_copied_in)).sum()
    }
}

#[cfg(test)]
mod tests {
    use crate::runtime::squeue::Squeue;
    use crate::runtime::waiting::Sleeper;
    use crate::{InterfaceConfig, Stack};
    use batch::{Multidata, ReceiveBatch};
    use core::ops::Range;
    use device::{Medium, WireConfig, WireEnd};
    use stack::{FilterFlow, Handling, InterfaceId, PacketFilter, Verdict};
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    /// A filter that lets everything pass.
    struct Open;

    impl PacketFilter for Open {
        fn handling(&self, _: &FilterFlow) -> Handling {
            Handling::Batches
        }

        fn transmit(
            &mut self,
            _: time::Instant,
            _: InterfaceId,
            _: &Multidata,
            _: Range<usize>,
            _: &mut [Verdict],
        ) {
        }

        fn receive(
            &mut self,
            _: time::Instant,
            _: InterfaceId,
            _: &ReceiveBatch,
            _: &mut [Verdict],
        ) {
        }
    }

    /// A waker that takes the filter away.
    struct Closing(Stack);

    impl Wake for Closing {
        fn wake(self: Arc<Self>) {
            self.0.set_filter(None);
        }
    }

    #[test]
    fn of_two_filters_that_are_set_at_once_all_squeues_have_the_same() {
        let end = WireEnd::plain(Medium::Ip);
        let (near, _far) = device::wire(WireConfig::new(end, end));
        let interface = InterfaceConfig::new("10.1.0.1/24".parse().expect("an address"));
        let stack = Stack::builder().squeues(2).interface(near, interface);
        let stack = stack.build().expect("a stack");
        // Who comes to the first squeue next calls the waker when he has left it.
        let mut core = stack.squeue(0).lock();
        core.waiting.wake(Sleeper::Task(Waker::from(Arc::new(Closing(stack.clone())))));
        core.desk.as_ref().expect("there is another squeue").exchange().announce(0);
        drop(core);
        stack.set_filter(Some(Box::new(Open)));
        let had = |squeue: &Arc<Squeue>| squeue.look(|core| core.shard.set_filter(None).is_some());
        let had: Vec<bool> = stack.squeues().iter().map(had).collect();
        assert_eq!(had[0], had[1], "whichever came last");
    }
}
