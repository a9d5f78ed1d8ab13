//! Many datagrams in one call, as sendmmsg(2) sends them.
//!
//! The datagrams of a call are copied in group by group, each group into one block, and queued
//! under one lock; then the shard runs once and they leave together, to however many peers.

use super::UdpSocket;
use crate::error::socket_error;
use crate::groups::{copy_group, group_len};
use crate::runtime::turn::After;
use crate::runtime::waiting::Interest;
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

impl UdpSocket {
    /// Sends datagrams, also to different peers, in order, and returns how many. They leave in
    /// batches: one call of the stack and, where the device takes them, one of the device for many.
    /// A socket that blocks sends all of them unless one cannot be sent.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`], where the first datagram cannot be sent. Where a later one cannot,
    /// those before it are sent and counted, and a call that begins with it says why.
    pub fn send_many(&self, datagrams: &[Datagram<'_>]) -> io::Result<usize> {
        let mut sent = 0;
        while let Some(rest) = datagrams.get(sent..).filter(|rest| !rest.is_empty()) {
            let group = &rest[..group_len(rest.iter().map(|it| it.payload.len()))];
            let (count, outcome) = self.send_group(group, sent == 0);
            sent += count;
            match outcome {
                Ok(()) => {}
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// Sends a group as far as it can be; `is_first` reports what an ICMP error said of earlier
    /// datagrams.
    fn send_group(&self, group: &[Datagram<'_>], is_first: bool) -> (usize, io::Result<()>) {
        let pool = self.socket.stack.pool();
        let chunks: Vec<_> = match copy_group(pool, group.iter().map(|it| it.payload)) {
            Ok(chunks) => group.iter().map(|it| it.to).zip(chunks).collect(),
            Err(error) => return (0, Err(socket_error(error))),
        };
        let (mut sent, mut unchecked) = (0, is_first);
        let call = self.socket.call(Interest::Writable, After::Run);
        let id = self.socket.id;
        let outcome = self.socket.squeue().operate(&call, |core, _| {
            if core::mem::take(&mut unchecked) {
                core.shard.udp_check(id)?;
            }
            while sent < chunks.len() {
                let count = core.shard.udp_send_many(id, &chunks[sent..])?;
                let queued = &chunks[sent..sent + count];
                core.counters.bytes_copied_in +=
                    queued.iter().map(|(_, chunk)| chunk.len() as u64).sum::<u64>();
                sent += count;
            }
            Ok(())
        });
        (sent, outcome)
    }
}
