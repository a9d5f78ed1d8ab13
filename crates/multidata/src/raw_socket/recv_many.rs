//! Many packets in one call; see `udp_socket/recv_many.rs`, which does the same with datagrams.

use super::{RawSocket, ReceivedPacket, about};
use crate::runtime::turn::After;
use crate::runtime::waiting::Interest;
use crate::udp_socket::take_many;
use core::task::{Context, Poll};
use std::io;

impl RawSocket {
    /// Waits for a packet and shows it, and those that are there behind it, `packets_max` in all but at least one; says
    /// how many. `show` gets all that the IP header said and what lay behind it, and may take its time: it is called under
    /// no lock.
    ///
    /// # Errors
    /// As [`RawSocket::recv`].
    pub fn recv_many(
        &self,
        packets_max: usize,
        show: impl FnMut(ReceivedPacket, &[u8]),
    ) -> io::Result<usize> {
        let (call, id) = (self.socket.call(Interest::Readable, After::Send), self.socket.id);
        let taken = self
            .socket
            .squeue()
            .operate(&call, |core, _| take_many(packets_max, || core.shard.raw_receive(id)));
        Ok(show_each(&taken?, show))
    }

    /// As [`RawSocket::recv_many`] for a task, which is woken when there may be a packet.
    ///
    /// # Errors
    /// As [`RawSocket::recv`].
    pub fn poll_recv_many(
        &self,
        context: &mut Context<'_>,
        packets_max: usize,
        show: impl FnMut(ReceivedPacket, &[u8]),
    ) -> Poll<io::Result<usize>> {
        let id = self.socket.id;
        let taken = self.socket.poll(Interest::Readable, After::Send, context, |core, _| {
            take_many(packets_max, || core.shard.raw_receive(id))
        });
        taken.map_ok(|taken| show_each(&taken, show))
    }
}

/// Shows them, and says how many.
fn show_each(taken: &[stack::RawPacket], mut show: impl FnMut(ReceivedPacket, &[u8])) -> usize {
    for packet in taken {
        show(about(packet, packet.payload.len()), packet.payload.bytes());
    }
    taken.len()
}
