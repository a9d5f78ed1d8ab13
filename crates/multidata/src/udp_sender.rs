//! The way out of datagrams, one or many in a call, of sockets and of forwarders.
//!
//! The datagrams of a call are copied in group by group (`groups.rs`) and queued under one lock; then the
//! shard runs once and they leave together, to however many peers.

use crate::RuntimeCounters;
use crate::copy_in::Layout;
use crate::error::socket_error;
use crate::groups::{LastPlan, copy_group, copy_one, first_group, send_groups};
use crate::runtime::outside::lend;
use crate::runtime::squeue::Core;
use crate::runtime::turn::After;
use crate::runtime::waiting::Interest;
use crate::socket::Socket;
use batch::{Block, Chunk, Chunks};
use bytes::Bytes;
use core::task::{Context, Poll};
use stack::{Envelope, SocketError};
use std::io;

/// The socket that sends, and what is known of its datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UdpSender<'a> {
    pub(crate) socket: &'a Socket,
    pub(crate) last_plan: &'a LastPlan,
}

impl UdpSender<'_> {
    /// Copies a datagram and sends it; says how long it is.
    pub(crate) fn send(&self, bytes: &[u8], envelope: Envelope) -> io::Result<usize> {
        let layout = self.layout();
        let copied = self.copy(&layout, bytes)?;
        self.send_chunks(&copied, envelope, |counters| layout.count(counters, copied.len()))
    }

    /// The same for a task, which is woken when there is room.
    pub(crate) fn poll_send(
        &self,
        context: &Context<'_>,
        bytes: &[u8],
        envelope: Envelope,
    ) -> Poll<io::Result<usize>> {
        let layout = self.layout();
        let copied = self.copy(&layout, bytes)?;
        self.socket.poll(Interest::Writable, After::Send, context, |core, _| {
            self.queue(core, envelope, &copied)?;
            layout.count(&mut core.counters, copied.len());
            Ok(copied.len())
        })
    }

    /// Sends a datagram from the caller's own memory; says how long it is.
    pub(crate) fn send_lent(&self, bytes: Bytes, envelope: Envelope) -> io::Result<usize> {
        if bytes.len() > usize::from(u16::MAX) {
            return Err(socket_error(SocketError::MessageTooLong));
        }
        let lent = Chunks::from(Chunk::whole(Block::from(lend(bytes))));
        self.send_chunks(&lent, envelope, |counters| counters.bytes_lent += lent.len() as u64)
    }

    /// Copies datagrams and sends them, as `of` tells each; says how many.
    pub(crate) fn send_many<T>(
        &self,
        datagrams: &[T],
        of: impl Fn(&T) -> (&[u8], Envelope),
    ) -> io::Result<usize> {
        let mut is_first = true;
        let len = |it: &T| of(it).0.len();
        send_groups(&self.socket.stack, self.last_plan, datagrams, len, |group| {
            let layout = self.layout();
            match self.copy_many(&layout, group, &of) {
                Ok(copied) => {
                    let count = |counters: &mut RuntimeCounters, len| layout.count(counters, len);
                    self.send_group(&copied, core::mem::take(&mut is_first), count)
                }
                Err(error) => (0, Err(error)),
            }
        })
    }

    /// Copies as many datagrams as go together, and sends those of them for which there is room; says how many. The task
    /// is woken when there is room for the first.
    pub(crate) fn poll_send_many<T>(
        &self,
        context: &Context<'_>,
        datagrams: &[T],
        of: impl Fn(&T) -> (&[u8], Envelope),
    ) -> Poll<io::Result<usize>> {
        let len = |it: &T| of(it).0.len();
        let group = first_group(&self.socket.stack, self.last_plan, datagrams, len);
        if group.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let layout = self.layout();
        let copied = self.copy_many(&layout, group, &of)?;
        let count = |counters: &mut RuntimeCounters, len| layout.count(counters, len);
        let id = self.socket.id;
        self.socket.poll(Interest::Writable, After::Send, context, |core, _| {
            core.shard.udp_check(id)?;
            self.queue_many(core, &copied, count)
        })
    }

    /// Sends datagrams from the caller's own memory; says how many.
    pub(crate) fn send_many_lent<T>(
        &self,
        datagrams: &[T],
        of: impl Fn(&T) -> (&Bytes, Envelope),
    ) -> io::Result<usize> {
        let mut is_first = true;
        let len = |it: &T| of(it).0.len();
        send_groups(&self.socket.stack, self.last_plan, datagrams, len, |group| {
            if group.iter().any(|it| len(it) > usize::from(u16::MAX)) {
                // It stands alone in its group.
                return (0, Err(socket_error(SocketError::MessageTooLong)));
            }
            let lent = |it: &T| {
                let (bytes, envelope) = of(it);
                (envelope, Chunk::whole(Block::from(lend(bytes.clone()))).into())
            };
            let lent: Vec<_> = group.iter().map(lent).collect();
            let count = |counters: &mut RuntimeCounters, len| counters.bytes_lent += len as u64;
            self.send_group(&lent, core::mem::take(&mut is_first), count)
        })
    }

    /// Sends a group as far as it can be; `is_first` reports what an ICMP error said of earlier
    /// datagrams. `count` is told how many bytes were queued.
    fn send_group(
        &self,
        datagrams: &[(Envelope, Chunks)],
        is_first: bool,
        count: impl Fn(&mut RuntimeCounters, usize),
    ) -> (usize, io::Result<()>) {
        let (mut sent, mut unchecked) = (0, is_first);
        let call = self.socket.call(Interest::Writable, After::Send);
        let id = self.socket.id;
        let outcome = self.socket.squeue().operate(&call, |core, _| {
            if core::mem::take(&mut unchecked) {
                core.shard.udp_check(id)?;
            }
            while sent < datagrams.len() {
                sent += self.queue_many(core, &datagrams[sent..], &count)?;
            }
            Ok(())
        });
        (sent, outcome)
    }

    fn send_chunks(
        &self,
        payload: &Chunks,
        envelope: Envelope,
        count: impl Fn(&mut RuntimeCounters),
    ) -> io::Result<usize> {
        let call = self.socket.call(Interest::Writable, After::Send);
        self.socket.squeue().operate(&call, |core, _| {
            self.queue(core, envelope, payload)?;
            count(&mut core.counters);
            Ok(payload.len())
        })
    }

    fn queue(
        &self,
        core: &mut Core,
        envelope: Envelope,
        payload: &Chunks,
    ) -> Result<(), SocketError> {
        core.shard.udp_send_with(self.socket.id, envelope, payload.clone())?;
        self.on_queued(core, payload.len())
    }

    fn queue_many(
        &self,
        core: &mut Core,
        datagrams: &[(Envelope, Chunks)],
        count: impl Fn(&mut RuntimeCounters, usize),
    ) -> Result<usize, SocketError> {
        let queued = core.shard.udp_send_many(self.socket.id, datagrams)?;
        let len = datagrams[..queued].iter().map(|(_, it)| it.len()).sum();
        count(&mut core.counters, len);
        self.on_queued(core, len)?;
        Ok(queued)
    }

    fn on_queued(&self, core: &mut Core, len: usize) -> Result<(), SocketError> {
        core.pace.on_written(len);
        self.last_plan.renew(&self.socket.stack, core, self.socket.id)
    }

    fn layout(&self) -> Layout {
        self.last_plan.layout(&self.socket.stack)
    }

    /// Copies a datagram into blocks.
    fn copy(&self, layout: &Layout, bytes: &[u8]) -> io::Result<Chunks> {
        copy_one(&self.socket.stack, layout, bytes).map_err(socket_error)
    }

    /// Copies a group, or its front.
    fn copy_many<T>(
        &self,
        layout: &Layout,
        group: &[T],
        of: impl Fn(&T) -> (&[u8], Envelope),
    ) -> io::Result<Vec<(Envelope, Chunks)>> {
        let payloads = group.iter().map(|it| of(it).0);
        let copied = copy_group(&self.socket.stack, layout, payloads).map_err(socket_error)?;
        Ok(group.iter().map(|it| of(it).1).zip(copied).collect())
    }
}
