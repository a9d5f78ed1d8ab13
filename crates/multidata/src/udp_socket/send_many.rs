//! Many datagrams in one call, as sendmmsg(2) sends them.
//!
//! The datagrams of a call are copied in group by group (`groups.rs`) and queued under one lock; then the
//! shard runs once and they leave together, to however many peers.

use super::UdpSocket;
use crate::RuntimeCounters;
use crate::error::socket_error;
use crate::groups::{copy_group, send_groups};
use crate::runtime::outside::lend;
use crate::runtime::turn::After;
use crate::runtime::waiting::Interest;
use batch::{Block, Chunk, Chunks};
use bytes::Bytes;
use stack::SocketError;
use std::io;
use std::net::SocketAddr;

/// A datagram to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// What it says, up to 65,507 bytes over IPv4 and 65,527 over IPv6.
    pub payload: &'a [u8],
    /// Where it goes; `None` is the peer of a connected socket.
    pub to: Option<SocketAddr>,
}

/// A datagram to be sent from the caller's own memory.
#[derive(Clone, Debug)]
pub struct LentDatagram {
    /// What it says, up to 65,507 bytes over IPv4 and 65,527 over IPv6.
    pub payload: Bytes,
    /// Where it goes; `None` is the peer of a connected socket.
    pub to: Option<SocketAddr>,
}

impl UdpSocket {
    /// Sends datagrams, also to different peers, in order, and returns how many. They leave in
    /// batches: one call of the stack and, where the device takes them, one of the device for many.
    /// A socket that blocks sends all of them unless one cannot be sent.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`], where the first datagram cannot be sent. Where a later one cannot,
    /// those before it are sent and counted, and a call that begins with it says why.
    pub fn send_many(&self, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
        let mut is_first = true;
        let len = |datagram: &Datagram<'_>| datagram.payload.len();
        send_groups(&self.socket.stack, &self.last_plan, datagrams, len, |group| {
            self.copy_and_send(group, core::mem::take(&mut is_first))
        })
    }

    /// As [`UdpSocket::send_many`], from the caller's own memory, without a copy. It is held until the device
    /// took the datagrams.
    ///
    /// # Errors
    /// As [`UdpSocket::send_many`].
    pub fn send_many_bytes(&self, datagrams: &[LentDatagram]) -> io::Result<usize> {
        let mut is_first = true;
        let len = |datagram: &LentDatagram| datagram.payload.len();
        send_groups(&self.socket.stack, &self.last_plan, datagrams, len, |group| {
            if group.iter().any(|it| it.payload.len() > usize::from(u16::MAX)) {
                // It stands alone in its group.
                return (0, Err(socket_error(SocketError::MessageTooLong)));
            }
            let block = |it: &LentDatagram| Block::from(lend(it.payload.clone()));
            let lent = |it: &LentDatagram| (it.to, Chunk::whole(block(it)).into());
            let lent: Vec<_> = group.iter().map(lent).collect();
            let count = |counters: &mut RuntimeCounters, len| counters.bytes_lent += len as u64;
            self.send_group(&lent, core::mem::take(&mut is_first), count)
        })
    }

    /// Copies a group and sends it as far as it can be.
    fn copy_and_send(&self, group: &[Datagram<'_>], is_first: bool) -> (usize, io::Result<()>) {
        let payloads = group.iter().map(|it| it.payload);
        match copy_group(&self.socket.stack, &self.last_plan, payloads) {
            Ok((copied, layout)) => {
                let copied: Vec<_> = group.iter().map(|it| it.to).zip(copied).collect();
                self.send_group(&copied, is_first, |counters, len| layout.count(counters, len))
            }
            Err(error) => (0, Err(socket_error(error))),
        }
    }

    /// Sends a group as far as it can be; `is_first` reports what an ICMP error said of earlier
    /// datagrams. `count` is told how many bytes were queued.
    fn send_group(
        &self,
        datagrams: &[(Option<SocketAddr>, Chunks)],
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
                let queued = core.shard.udp_send_many(id, &datagrams[sent..])?;
                let queued = &datagrams[sent..sent + queued];
                let len = queued.iter().map(|(_, it)| it.len()).sum();
                count(&mut core.counters, len);
                core.unpolled_bytes += len;
                sent += queued.len();
            }
            self.last_plan.set(core.shard.datagram_plan(id)?);
            Ok(())
        });
        (sent, outcome)
    }
}
