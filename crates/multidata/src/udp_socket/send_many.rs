//! Many datagrams in one call, as sendmmsg(2) sends them.
//!
//! The datagrams of a call are copied in group by group, each group into one block, and queued
//! under one lock; then the shard runs once and they leave together, to however many peers. A group
//! is what fits 64 KiB, so a call of any length holds no more memory than that outside the stack.

use super::UdpSocket;
use crate::error::socket_error;
use crate::runtime::turn::After;
use crate::runtime::waiting::Interest;
use batch::Chunk;
use stack::SocketError;
use std::io;
use std::net::SocketAddr;

/// Payload of one group in bytes: the longest that a length of 16 bits can say, so that a datagram
/// that is too long stands alone.
const GROUP_BYTES_MAX: usize = u16::MAX as usize;

/// Datagrams of one group.
const GROUP_DATAGRAMS_MAX: usize = 256;

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
            let group = &rest[..group_len(rest)];
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
        let chunks = match self.copy_group(group) {
            Ok(chunks) => chunks,
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

    /// Copies a group into one block.
    fn copy_group(
        &self,
        group: &[Datagram<'_>],
    ) -> Result<Vec<(Option<SocketAddr>, Chunk)>, SocketError> {
        let len = group.iter().map(|datagram| datagram.payload.len()).sum();
        if len > GROUP_BYTES_MAX {
            return Err(SocketError::MessageTooLong);
        }
        let block = self.socket.stack.pool().allocate(len);
        let mut block = block.map_err(|_| SocketError::NoMemory)?;
        let mut rest = block.bytes_mut();
        for Datagram { payload, .. } in group {
            let (here, behind) = rest.split_at_mut(payload.len());
            here.copy_from_slice(payload);
            rest = behind;
        }
        let block = block.freeze();
        let mut end = 0;
        let chunks = group.iter().map(|Datagram { payload, to }| {
            let start = end;
            end += payload.len();
            (*to, Chunk::new(block.clone(), start..end))
        });
        Ok(chunks.collect())
    }
}

/// How many datagrams go as one group: at least one.
fn group_len(datagrams: &[Datagram<'_>]) -> usize {
    let mut bytes = 0_usize;
    let fitting = datagrams.iter().take(GROUP_DATAGRAMS_MAX).take_while(|datagram| {
        bytes = bytes.saturating_add(datagram.payload.len());
        bytes <= GROUP_BYTES_MAX
    });
    fitting.count().max(1)
}
