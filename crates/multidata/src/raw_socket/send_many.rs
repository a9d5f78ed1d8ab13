//! Many packets in one call; see `udp_socket/send_many.rs`, which does the same with datagrams.

use super::RawSocket;
use crate::error::socket_error;
use crate::groups::{copy_group, group_len};
use crate::runtime::turn::After;
use crate::runtime::waiting::Interest;
use std::io;
use std::net::IpAddr;

/// A packet to be sent.
#[derive(Clone, Copy, Debug)]
pub struct RawPacket<'a> {
    /// What lies behind the IP header, up to 65,515 bytes over IPv4 and 65,535 over IPv6.
    pub payload: &'a [u8],
    /// Where it goes.
    pub to: IpAddr,
}

impl RawSocket {
    /// Sends packets, also to different peers, in order, and returns how many. They leave in batches: one
    /// call of the stack and, where the device takes them, one of the device for many. A socket that
    /// blocks sends all of them unless one cannot be sent.
    ///
    /// # Errors
    /// As [`RawSocket::send_to`], where the first packet cannot be sent. Where a later one cannot, those
    /// before it are sent and counted, and a call that begins with it says why.
    pub fn send_many(&self, packets: &[RawPacket<'_>]) -> io::Result<usize> {
        let mut sent = 0;
        while let Some(rest) = packets.get(sent..).filter(|rest| !rest.is_empty()) {
            let group = &rest[..group_len(rest.iter().map(|it| it.payload.len()))];
            let (count, outcome) = self.send_group(group);
            sent += count;
            match outcome {
                Ok(()) => {}
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    fn send_group(&self, group: &[RawPacket<'_>]) -> (usize, io::Result<()>) {
        let pool = self.socket.stack.pool();
        let chunks: Vec<_> = match copy_group(pool, group.iter().map(|it| it.payload)) {
            Ok(chunks) => group.iter().map(|it| it.to).zip(chunks).collect(),
            Err(error) => return (0, Err(socket_error(error))),
        };
        let (mut sent, id) = (0, self.socket.id);
        let call = self.socket.call(Interest::Writable, After::Run);
        let outcome = self.socket.squeue().operate(&call, |core, _| {
            while sent < chunks.len() {
                let count = core.shard.raw_send_many(id, &chunks[sent..])?;
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
