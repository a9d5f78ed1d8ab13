//! What of the application's runs only where its thread holds none of a stack's locks.
//!
//! Wakers, and the memory that writes lend ([`lend`]), are the application's code: a waker may run a task in
//! place, and the owner of lent memory may keep a socket open until it is dropped. Either may call the stack,
//! and would wait for a lock that its own thread holds; or hold up, and be held up by, a thread that waits for
//! both. Lent memory is let go of wherever a segment is acknowledged or a datagram taken, in the middle of the
//! shard, so what is done under a lock cannot be asked to hand it out. Instead each thread counts how many
//! locks it is [`Within`]. Where that is not zero, memory is put aside; as are the wakers of a squeue that was
//! run within another lock ([`Squeues::everywhere`](super::squeues::Squeues::everywhere)). Whoever leaves the
//! last lock wakes and lets go of them.
//!
//! What always holds: what is put aside on a thread is done by this thread, before the call of the stack that
//! it was in returns. Nothing is put aside by a thread that is within no lock.

use super::squeue::{Core, Squeue};
use super::waiting::Sleeper;
use bytes::Bytes;
use core::cell::{Cell, RefCell};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

struct Thread {
    locks: Cell<usize>,
    /// It is empty where `locks` is zero, so nothing is lost with a thread; and because nothing is to be
    /// dropped with it, it can be used to the thread's very end.
    aside: RefCell<ManuallyDrop<Aside>>,
}

#[derive(Default)]
struct Aside {
    wakers: Vec<Waker>,
    lent: Vec<Bytes>,
}

thread_local! {
    static THREAD: Thread = const {
        let aside = Aside { wakers: Vec::new(), lent: Vec::new() };
        Thread { locks: Cell::new(0), aside: RefCell::new(ManuallyDrop::new(aside)) }
    };
}

/// The calling thread holds a lock, or is about to. To be dropped behind the lock.
pub(crate) struct Within<'a> {
    /// Counts what panicked of what was put aside.
    panicked: &'a AtomicU64,
    /// It stays in its thread.
    _thread: PhantomData<*const ()>,
}

impl<'a> Within<'a> {
    fn enter(panicked: &'a AtomicU64) -> Self {
        THREAD.with(|thread| thread.locks.set(thread.locks.get() + 1));
        Self { panicked, _thread: PhantomData }
    }

    /// Wakes those who wait, or puts the wakers aside where this is not the thread's only lock; that of this one
    /// is released. Threads of the stack's own making are woken at once: they may be what others wait for.
    pub(crate) fn wake(&self, woken: Vec<Sleeper>) {
        let is_only = THREAD.with(|thread| thread.locks.get() == 1);
        for sleeper in woken {
            match sleeper {
                Sleeper::Task(waker) if !is_only => {
                    THREAD.with(|thread| thread.aside.borrow_mut().wakers.push(waker));
                }
                sleeper => self.count(sleeper.wake()),
            }
        }
    }

    fn count(&self, went_well: bool) {
        if !went_well {
            self.panicked.fetch_add(1, Ordering::Relaxed);
        }
    }

    // Seldom called.
    #[cold]
    fn do_aside(&self, aside: Aside) {
        let Aside { wakers, lent } = aside;
        for waker in wakers {
            self.count(Sleeper::Task(waker).wake());
        }
        // Behind the wakers: it may wait for somebody.
        for bytes in lent {
            self.count(catch_unwind(AssertUnwindSafe(|| drop(bytes))).is_ok());
        }
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        let aside = THREAD.with(|thread| {
            let left = thread.locks.get() - 1;
            thread.locks.set(left);
            let mut aside = thread.aside.borrow_mut();
            let is_due = left == 0 && !(aside.wakers.is_empty() && aside.lent.is_empty());
            is_due.then(|| core::mem::take(&mut **aside))
        });
        if let Some(aside) = aside {
            self.do_aside(aside);
        }
    }
}

impl Squeue {
    /// For the time of a lock under which this squeue is run.
    pub(crate) fn within(&self) -> Within<'_> {
        Within::enter(&self.wakers_panicked)
    }
}

/// A squeue's lock.
pub(crate) struct Entered<'a> {
    // Fields are dropped in their order.
    pub(super) core: MutexGuard<'a, Core>,
    pub(super) within: Within<'a>,
}

impl Deref for Entered<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

/// The caller's memory as the stack may hold it: its owner is dropped under no lock.
pub(crate) fn lend(bytes: Bytes) -> Bytes {
    // Nobody else has any of it, and it has no owner's code (`Bytes::from_owner` and static memory are never
    // called unique): to let go of it is the allocator's affair.
    if bytes.is_unique() { bytes } else { Bytes::from_owner(Lent(bytes)) }
}

struct Lent(Bytes);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        THREAD.with(|thread| {
            if thread.locks.get() > 0 {
                thread.aside.borrow_mut().lent.push(core::mem::take(&mut self.0));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Arc, Mutex};
    use std::task::Wake;

    /// Memory, and a waker, that say in which order they were dropped and called.
    struct Owner(Arc<Mutex<Vec<&'static str>>>, &'static str);

    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            self.1.as_bytes()
        }
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.lock().expect("no panic").push(self.1);
        }
    }

    impl Wake for Owner {
        fn wake(self: Arc<Self>) {
            self.0.lock().expect("no panic").push("woken");
        }
    }

    #[test]
    fn what_is_let_go_of_or_woken_within_locks_is_when_the_last_is_left() {
        let (panicked, told) = (AtomicU64::new(0), Arc::<Mutex<Vec<_>>>::default());
        let lent = |name| lend(Bytes::from_owner(Owner(Arc::clone(&told), name)));
        let said = || std::mem::take(&mut *told.lock().expect("no panic"));
        drop(lent("at once"));
        assert_eq!(said(), ["at once"]);
        let waker = Waker::from(Arc::new(Owner(Arc::clone(&told), "waker")));
        let outer = Within::enter(&panicked);
        let inner = Within::enter(&panicked);
        let shared = lent("lent");
        drop(shared.clone());
        drop(shared.slice(1..2));
        drop(shared);
        inner.wake(vec![Sleeper::Task(waker.clone())]);
        drop(inner);
        assert!(said().is_empty());
        drop(outer);
        assert_eq!(said(), ["woken", "lent"]);
        let only = Within::enter(&panicked);
        only.wake(vec![Sleeper::Task(waker)]);
        assert_eq!(said(), ["woken", "waker"]);
        drop(only);
        // Another thread's locks are its own.
        let _within = Within::enter(&panicked);
        let other = lent("elsewhere");
        std::thread::spawn(move || drop(other)).join().expect("no panic");
        assert_eq!(said(), ["elsewhere"]);
    }

    struct Panicking<'a>(&'a AtomicUsize);

    impl AsRef<[u8]> for Panicking<'_> {
        fn as_ref(&self) -> &[u8] {
            &[]
        }
    }

    impl Drop for Panicking<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("of the test's own making");
        }
    }

    #[test]
    fn what_panics_is_counted_and_the_rest_is_done() {
        static DROPPED: AtomicUsize = AtomicUsize::new(0);
        let panicked = AtomicU64::new(0);
        let within = Within::enter(&panicked);
        drop([(); 3].map(|()| lend(Bytes::from_owner(Panicking(&DROPPED)))));
        drop(within);
        assert_eq!((panicked.load(Ordering::SeqCst), DROPPED.load(Ordering::SeqCst)), (3, 3));
    }

    #[test]
    fn memory_without_an_owner_is_lent_as_it_is() {
        let memory = Bytes::from(vec![7; 9]);
        let (at, lent) = (memory.as_ptr(), lend(memory));
        assert!(lent.is_unique() && lent.as_ptr() == at);
        assert!(!lend(lent.clone()).is_unique());
    }
}
