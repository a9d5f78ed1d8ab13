//! Datagrams and raw packets, copied in by the policy of the stack ([`CopyIn`](crate::CopyIn)), one or many in
//! a call.
//!
//! ```text
//!   send_many -> group of datagrams -> blocks, shared or not -> each datagram its chunks -> shard
//!                up to 64 KiB          (`copy_in.rs`, as of a stream)                       under one lock
//! ```
//!
//! A call is copied in group by group, so one of any length holds no more memory than a group outside the
//! stack; a single datagram is a group of one.

use crate::Stack;
use crate::copy_in::{Copied, Layout};
use crate::runtime::squeue::Core;
use batch::Chunks;
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use stack::{DatagramPlan, SocketError, SocketId};

/// Payload of one group in bytes: the longest that a length of 16 bits can say, so that a packet that is
/// too long stands alone.
const GROUP_BYTES_MAX: usize = u16::MAX as usize;

/// Packets of one group.
const GROUP_PACKETS_MAX: usize = 256;

thread_local! {
    /// Empty between two calls; its memory is reused. Boxed, for a call takes it out.
    static COPIED: Cell<Option<Box<Copied>>> = const { Cell::new(None) };
}

/// What is known of a socket's datagrams since the last one: asking before would take the lock twice.
#[derive(Debug)]
pub(crate) struct LastPlan {
    packet_len_bytes: AtomicUsize,
    needs_sums: AtomicBool,
}

impl LastPlan {
    pub(crate) fn new(plan: DatagramPlan) -> Self {
        Self {
            packet_len_bytes: AtomicUsize::new(plan.packet_len_bytes),
            needs_sums: AtomicBool::new(plan.needs_sums),
        }
    }

    /// Asks again, for the next ones, where how they are laid into blocks depends on it.
    pub(crate) fn renew(
        &self,
        stack: &Stack,
        core: &mut Core,
        id: SocketId,
    ) -> Result<(), SocketError> {
        if stack.tunables().minds_datagrams() {
            self.set(core.shard.datagram_plan(id)?);
        }
        Ok(())
    }

    fn set(&self, plan: DatagramPlan) {
        self.packet_len_bytes.store(plan.packet_len_bytes, Ordering::Relaxed);
        self.needs_sums.store(plan.needs_sums, Ordering::Relaxed);
    }

    /// How the next ones are laid into blocks.
    pub(crate) fn layout(&self, stack: &Stack) -> Layout {
        stack.tunables().of_datagrams(&self.plan())
    }

    fn plan(&self) -> DatagramPlan {
        DatagramPlan {
            packet_len_bytes: self.packet_len_bytes.load(Ordering::Relaxed),
            needs_sums: self.needs_sums.load(Ordering::Relaxed),
        }
    }
}

/// Sends `items` in groups: `send_group` says how many of its group went, and why no more did. Returns how
/// many went in all.
///
/// # Errors
/// That of the first item; where a later one cannot be sent, those before it are.
pub(crate) fn send_groups<T, E>(
    stack: &Stack,
    plan: &LastPlan,
    items: &[T],
    payload_len: impl Fn(&T) -> usize,
    mut send_group: impl FnMut(&[T]) -> (usize, Result<(), E>),
) -> Result<usize, E> {
    let mut sent = 0;
    while let Some(rest) = items.get(sent..).filter(|rest| !rest.is_empty()) {
        let group = first_group(stack, plan, rest, &payload_len);
        let (count, outcome) = send_group(group);
        sent += count;
        match outcome {
            Ok(()) => {}
            Err(error) if sent == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(sent)
}

/// Those of the first `items` that go as one group: at least one, where there is any.
pub(crate) fn first_group<'a, T>(
    stack: &Stack,
    plan: &LastPlan,
    items: &'a [T],
    payload_len: impl Fn(&T) -> usize,
) -> &'a [T] {
    let hand_over_bytes = stack.tunables().hand_over_bytes(plan.plan().packet_len_bytes);
    &items[..group_len(items.iter().map(payload_len), hand_over_bytes).min(items.len())]
}

/// How many packets of these lengths go as one group, which holds at most `hand_over_bytes`: at least one.
fn group_len(payload_lens: impl Iterator<Item = usize>, hand_over_bytes: usize) -> usize {
    let mut bytes = 0_usize;
    let fitting = payload_lens.take(GROUP_PACKETS_MAX).take_while(|len| {
        bytes = bytes.saturating_add(*len);
        bytes <= GROUP_BYTES_MAX.min(hand_over_bytes)
    });
    fitting.count().max(1)
}

/// Copies a group, or as many of its front as there is memory for, and at least one.
///
/// # Errors
/// [`SocketError::MessageTooLong`] for a packet that is longer than any may be, and no memory.
pub(crate) fn copy_group<'a>(
    stack: &Stack,
    layout: &Layout,
    payloads: impl Iterator<Item = &'a [u8]> + Clone,
) -> Result<Vec<Chunks>, SocketError> {
    let taken = copy(stack, layout, payloads.clone(), |copied| {
        payloads.map_while(|payload| copied.take(payload.len())).collect::<Vec<_>>()
    })?;
    if taken.is_empty() { Err(SocketError::NoMemory) } else { Ok(taken) }
}

/// Copies one packet.
///
/// # Errors
/// As [`copy_group`].
pub(crate) fn copy_one(
    stack: &Stack,
    layout: &Layout,
    payload: &[u8],
) -> Result<Chunks, SocketError> {
    let payloads = core::iter::once(payload);
    let taken = copy(stack, layout, payloads, |copied| copied.take(payload.len()))?;
    taken.ok_or(SocketError::NoMemory)
}

/// Copies packets and has `take` take them.
fn copy<'a, T>(
    stack: &Stack,
    layout: &Layout,
    payloads: impl Iterator<Item = &'a [u8]> + Clone,
    take: impl FnOnce(&mut Copied) -> T,
) -> Result<T, SocketError> {
    if payloads.clone().map(<[u8]>::len).sum::<usize>() > GROUP_BYTES_MAX {
        return Err(SocketError::MessageTooLong);
    }
    let mut copied = COPIED.try_with(Cell::take).unwrap_or_default().unwrap_or_default();
    let filled = stack.fill(&mut copied, layout, payloads, None);
    let taken = filled.map(|_| take(&mut copied));
    // What could not be copied to its end.
    copied.chunks.clear();
    // A thread that is ending has it no more.
    let _ = COPIED.try_with(|it| it.set(Some(copied)));
    taken.map_err(|_| SocketError::NoMemory)
}
