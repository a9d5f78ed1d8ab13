//! Many writes by one system call: io_uring(7).
//!
//! ```text
//!  slots   [ frame 0 |  frame 1 | header 2 |  ...   ]   registered memory, SLOT_LEN bytes each
//!  pieces  [            header 2, payload, payload  ]   what WRITEV gathers
//!  staged  [ slot 0   | slot 1   | pieces 0..3 | .. ]   one submission each, in order
//! ```
//!
//! A frame that was laid out in a slot is a WRITE_FIXED, one that lies elsewhere a WRITE, one in
//! pieces a WRITEV; the file is registered, too. The submissions are not linked: linking costs more
//! than the calls that it saves. The kernel runs them in order while it takes them, as the file is
//! non-blocking, so frames leave in order, and all are done when [`Staging::submit`] returns.
//!
//! What always holds: the kernel has none of our memory behind [`Staging::submit`]. Should it ever put a
//! write off (a driver that would rather be polled), that write is cancelled, and it counts as one
//! that found no room.

#![allow(unsafe_code)]

use core::marker::PhantomData;
use io_uring::types::{CancelBuilder, Fixed};
use io_uring::{EnterFlags, IoUring, opcode, squeue};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

/// Frames in one system call at most.
pub(super) const STAGED_MAX: usize = 64;

/// Bytes of a slot: what is laid end to end ([`super::queue`]) with the virtio-net header, rounded up
/// so that slots begin at lines of the cache and not all at the same place of a page.
pub(super) const SLOT_LEN: usize = 2_112;

/// Pieces of all frames of one call. A frame that finds no room among them goes by a call of its own.
const PIECES_MAX: usize = 256;

/// As often a submission that was interrupted, or found no memory, is tried again.
const SUBMIT_TRIES_MAX: usize = 16;

/// `struct iovec`, as addresses, so that the ring can move between threads: between two calls none of
/// them is in use.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Piece {
    address: usize,
    len: usize,
}

impl Piece {
    fn of(bytes: &[u8]) -> Self {
        Self { address: bytes.as_ptr().expose_provenance(), len: bytes.len() }
    }
}

/// A frame that is to be written.
#[derive(Clone, Copy, Debug)]
enum Staged {
    /// It lies in the slot of its own index.
    Slot { len: usize },
    /// It lies elsewhere, in one piece.
    Whole(Piece),
    /// It is gathered from these pieces.
    Gathered { first: usize, count: usize },
}

/// An io_uring for one file.
pub(super) struct WriteRing {
    ring: IoUring,
    file: Arc<OwnedFd>,
    /// [`STAGED_MAX`] slots. It never grows: the kernel knows its pages.
    slots: Vec<u8>,
    /// The kernel has the slots' pages at hand.
    is_registered: bool,
    is_broken: bool,
    pieces: Vec<Piece>,
    staged: Vec<Staged>,
    outcomes: Vec<Result<(), Errno>>,
}

impl core::fmt::Debug for WriteRing {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut it = formatter.debug_struct("WriteRing");
        it.field("is_registered", &self.is_registered).finish_non_exhaustive()
    }
}

impl WriteRing {
    /// A ring for `file`, which must be open without blocking.
    ///
    /// # Errors
    /// The kernel has no io_uring, or none that is new enough, or allows it to nobody.
    pub(super) fn new(file: Arc<OwnedFd>) -> Result<Self, Errno> {
        let entries = STAGED_MAX as u32;
        // No thread ever waits in it, so completions need not interrupt one. That only one thread
        // submits (SINGLE_ISSUER) is not so: whoever holds the squeue does.
        let ring = IoUring::builder().setup_coop_taskrun().build(entries).map_err(errno)?;
        let submitter = ring.submitter();
        submitter.register_files(&[file.as_raw_fd()]).map_err(errno)?;
        match submitter.register_sync_cancel(None, CancelBuilder::any()) {
            // There is nothing to cancel, and the kernel knows how.
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {}
            Err(error) => return Err(errno(error)),
        }
        let slots = vec![0_u8; STAGED_MAX * SLOT_LEN];
        let whole =
            libc::iovec { iov_base: slots.as_ptr().cast_mut().cast(), iov_len: slots.len() };
        // SAFETY: the memory is that of `slots`, which never moves or grows and is freed behind the
        // ring: fields are dropped in their order, and the kernel holds the pages itself besides.
        // Where the kernel may pin no more memory of ours, writes name it by its address.
        let is_registered = unsafe { submitter.register_buffers(&[whole]) }.is_ok();
        Ok(Self {
            ring,
            file,
            slots,
            is_registered,
            is_broken: false,
            pieces: Vec::with_capacity(PIECES_MAX),
            staged: Vec::with_capacity(STAGED_MAX),
            outcomes: Vec::with_capacity(STAGED_MAX),
        })
    }

    /// Begins a call. Frames that are staged in it may borrow what lives for `'frames`.
    pub(super) fn stage<'frames>(&mut self) -> Staging<'_, 'frames> {
        self.staged.clear();
        self.pieces.clear();
        Staging { ring: self, frames: PhantomData }
    }
}

impl Drop for WriteRing {
    fn drop(&mut self) {
        // The kernel takes a ring apart in its own time, and an interface is there as long as its
        // file: that is let go of now.
        let _ = self.ring.submitter().unregister_files();
    }
}

/// Frames that will be written by one call.
pub(super) struct Staging<'ring, 'frames> {
    ring: &'ring mut WriteRing,
    frames: PhantomData<&'frames [u8]>,
}

impl<'frames> Staging<'_, 'frames> {
    /// How many frames are staged.
    pub(super) fn len(&self) -> usize {
        self.ring.staged.len()
    }

    /// Whether another frame finds room.
    pub(super) fn has_room(&self) -> bool {
        self.len() < STAGED_MAX
    }

    /// Memory for the next frame, or for the header of one that is gathered; `None` where there is no
    /// room for another.
    pub(super) fn slot(&mut self) -> Option<&mut [u8]> {
        let index = self.len();
        self.ring.slots.get_mut(index * SLOT_LEN..(index + 1) * SLOT_LEN)
    }

    /// Stages the first `len` bytes of the slot.
    pub(super) fn push_slot(&mut self, len: usize) {
        debug_assert!(self.has_room() && len <= SLOT_LEN, "only what Staging::slot gave");
        self.ring.staged.push(Staged::Slot { len: len.min(SLOT_LEN) });
    }

    /// How many pieces of memory the staged frames are gathered from.
    pub(super) fn pieces(&self) -> usize {
        let pieces = |staged: &Staged| match staged {
            Staged::Slot { .. } | Staged::Whole(_) => 1,
            Staged::Gathered { count, .. } => *count,
        };
        self.ring.staged.iter().map(pieces).sum()
    }

    /// Stages a frame that lies elsewhere. There must be room for it.
    pub(super) fn push_whole(&mut self, frame: &'frames [u8]) {
        debug_assert!(self.has_room(), "the caller asked");
        self.ring.staged.push(Staged::Whole(Piece::of(frame)));
    }

    /// Stages the first `head_len` bytes of the slot and the pieces behind them as one frame; `false`
    /// where they are too many.
    pub(super) fn push_gathered(
        &mut self,
        head_len: usize,
        payload: impl Iterator<Item = &'frames [u8]>,
    ) -> bool {
        let index = self.len();
        let head = self.ring.slots.get(index * SLOT_LEN..).and_then(|slot| slot.get(..head_len));
        let (Some(head), true) = (head, self.has_room()) else { return false };
        let first = self.ring.pieces.len();
        let front = (!head.is_empty()).then(|| Piece::of(head));
        for piece in front.into_iter().chain(payload.map(Piece::of)) {
            if self.ring.pieces.len() == PIECES_MAX {
                self.ring.pieces.truncate(first);
                return false;
            }
            self.ring.pieces.push(piece);
        }
        let count = self.ring.pieces.len() - first;
        self.ring.staged.push(Staged::Gathered { first, count });
        true
    }

    /// Writes all that is staged by one system call, which `syscalls` counts, and begins anew. The
    /// result says for each frame, in their order, what became of it.
    pub(super) fn submit(&mut self, syscalls: &mut u64) -> &[Result<(), Errno>] {
        let ring = &mut *self.ring;
        ring.outcomes.clear();
        // A lone frame costs less by write(2): the ring is for sharing a call.
        if let [Staged::Slot { len }] = *ring.staged {
            *syscalls += 1;
            let written = rustix::io::write(&*ring.file, &ring.slots[..len]);
            ring.outcomes.push(written.map(drop).map_err(without_room));
        } else {
            ring.submit_staged(syscalls);
        }
        ring.staged.clear();
        ring.pieces.clear();
        &ring.outcomes
    }
}

impl WriteRing {
    /// Whether the kernel stopped to take submissions. The ring must not be used again.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn submit_staged(&mut self, syscalls: &mut u64) {
        // What the kernel does not come to has found no room.
        self.outcomes.resize(self.staged.len(), Err(Errno::AGAIN));
        if self.is_broken {
            return;
        }
        for (index, staged) in self.staged.iter().enumerate() {
            let entry = self.entry(index, *staged).user_data(index as u64);
            // SAFETY: the memory that it names is the ring's own or borrowed for as long as frames
            // are staged (`'frames`), and when this function returns the kernel is done with it:
            // either every submission is completed, or it was never taken and, as the ring is
            // broken from then on, never will be.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            debug_assert!(pushed.is_ok(), "the queue has STAGED_MAX entries, and all are free");
        }
        keep_submitting(|| {
            *syscalls += 1;
            self.ring.submit()?;
            Ok(self.ring.submission().is_empty())
        });
        let untaken = self.ring.submission().len();
        self.is_broken = untaken > 0;
        self.take_back(self.staged.len() - untaken, syscalls);
    }

    /// Sees to it that so many submissions, which the kernel took, are completed: a write that was put off is
    /// taken back, and completes as cancelled.
    fn take_back(&mut self, taken: usize, syscalls: &mut u64) {
        let mut left = taken.saturating_sub(self.reap());
        while left > 0 {
            *syscalls += 2;
            let submitter = self.ring.submitter();
            let _ = submitter.register_sync_cancel(None, CancelBuilder::any());
            let (none, one, wait) = (0, 1, EnterFlags::GETEVENTS.bits());
            // SAFETY: the call has no argument that names memory, and submits nothing: what was never taken, as
            // `submit_and_wait` would do, must not be now.
            let _ = unsafe { submitter.enter::<libc::sigset_t>(none, one, wait, None) };
            left = left.saturating_sub(self.reap());
        }
    }

    /// Takes completions, and says how many.
    fn reap(&mut self) -> usize {
        let mut count = 0;
        for completion in self.ring.completion() {
            let index = usize::try_from(completion.user_data()).unwrap_or(usize::MAX);
            let outcome = match completion.result() {
                0.. => Ok(()),
                code => Err(without_room(Errno::from_raw_os_error(-code))),
            };
            if let Some(slot) = self.outcomes.get_mut(index) {
                *slot = outcome;
            }
            count += 1;
        }
        count
    }

    fn entry(&self, index: usize, staged: Staged) -> squeue::Entry {
        match staged {
            Staged::Slot { len } => {
                let address = self.slots[index * SLOT_LEN..].as_ptr();
                if self.is_registered {
                    opcode::WriteFixed::new(FILE, address, len as u32, 0).build()
                } else {
                    opcode::Write::new(FILE, address, len as u32).build()
                }
            }
            Staged::Whole(Piece { address, len }) => {
                let address = core::ptr::with_exposed_provenance(address);
                opcode::Write::new(FILE, address, len as u32).build()
            }
            Staged::Gathered { first, count } => {
                let pieces = self.pieces[first..first + count].as_ptr();
                opcode::Writev::new(FILE, pieces.cast(), count as u32).build()
            }
        }
    }
}

/// Has `submit` called until it says that all is taken, as often as [`SUBMIT_TRIES_MAX`] says while the
/// kernel takes some, or none for now.
fn keep_submitting(mut submit: impl FnMut() -> io::Result<bool>) {
    for _ in 0..SUBMIT_TRIES_MAX {
        match submit().map_err(errno) {
            Ok(false) | Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(true) | Err(_) => return,
        }
    }
}

/// The one file that is registered.
const FILE: Fixed = Fixed(0);

/// A write that was put off and taken back, or interrupted, is one for which there was no room.
fn without_room(errno: Errno) -> Errno {
    match errno {
        Errno::CANCELED | Errno::INTR => Errno::AGAIN,
        errno => errno,
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::withheld;
    use rustix::fs::{OFlags, fcntl_setfl};

    /// A ring that the kernel stops to serve, as where a filter of system calls comes later: it takes no
    /// submission.
    pub(in crate::tap) fn unserved(file: Arc<OwnedFd>) -> Result<WriteRing, Errno> {
        let mut ring = WriteRing::new(file)?;
        let disabled = IoUring::builder().setup_r_disabled().build(STAGED_MAX as u32);
        ring.ring = disabled.map_err(errno)?;
        Ok(ring)
    }

    #[test]
    fn what_was_interrupted_is_submitted_again_and_not_for_ever() {
        let calls = |answers: &[Result<bool, Errno>]| {
            let mut asked = 0;
            keep_submitting(|| {
                asked += 1;
                let answer = answers.get(asked - 1).or(answers.last()).expect("an answer");
                answer.map_err(io::Error::from)
            });
            asked
        };
        assert_eq!(calls(&[Ok(true)]), 1);
        assert_eq!(calls(&[Err(Errno::INTR), Err(Errno::AGAIN), Ok(false), Ok(true)]), 4);
        assert_eq!(calls(&[Ok(false), Err(Errno::BADFD), Ok(true)]), 2);
        assert_eq!(calls(&[Err(Errno::AGAIN)]), SUBMIT_TRIES_MAX);
    }

    /// A full pipe that may block puts a write off, as a driver might.
    #[test]
    fn a_write_that_is_put_off_is_taken_back_and_nothing_else_is_taken_then() {
        let (_reader, writer) = std::io::pipe().expect("a pipe");
        let writer = OwnedFd::from(writer);
        fcntl_setfl(&writer, OFlags::NONBLOCK).expect("a pipe");
        while rustix::io::write(&writer, &[0; 4_096]).is_ok() {}
        fcntl_setfl(&writer, OFlags::empty()).expect("a pipe");
        let mut ring = match WriteRing::new(Arc::new(writer)) {
            Ok(ring) => ring,
            Err(errno) => {
                let name = "a_write_that_is_put_off_is_taken_back_and_nothing_else_is_taken_then";
                return withheld::cannot_run(name, &errno.to_string());
            }
        };
        ring.outcomes.resize(2, Ok(()));
        for index in 0..2 {
            let entry = ring.entry(index, Staged::Slot { len: 9 }).user_data(index as u64);
            // SAFETY: the slots live as long as the ring.
            unsafe { ring.ring.submission().push(&entry) }.expect("room");
            if index == 0 {
                assert_eq!(ring.ring.submit().expect("an entry"), 1);
            }
        }
        ring.take_back(1, &mut 0);
        assert_eq!(ring.outcomes, [Err(Errno::AGAIN), Ok(())]);
        assert_eq!(ring.ring.submission().len(), 1, "the other was never the kernel's");
    }
}
