//! Many datagrams in one call, as recvmmsg(2) receives them.
//!
//! They are taken out under one lock and shown to the caller where they lie, under none: nothing is copied but
//! what the caller copies.

use super::UdpSocket;
use crate::runtime::squeue::Core;
use crate::runtime::turn::After;
use crate::runtime::waiting::Interest;
use core::task::{Context, Poll};
use stack::{SocketError, SocketId};
use std::io;
use std::net::SocketAddr;

/// A datagram that was received.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedDatagram<'a> {
    /// What it says; may be empty.
    pub payload: &'a [u8],
    /// Who sent it.
    pub source: SocketAddr,
    /// Where it was sent to.
    pub destination: SocketAddr,
    /// The traffic class it came with: the differentiated services code point in the upper six bits, ECN in the lower
    /// two (RFC 3168, 5), which protocols with congestion control of their own answer (RFC 9000, 13.4). Of a
    /// fragmented one, what its fragments say together.
    pub traffic_class: u8,
    /// How many routers might still have forwarded it.
    pub hop_limit: u8,
}

impl UdpSocket {
    /// Waits for a datagram and shows it, and those that are there behind it, `datagrams_max` in all but at least one;
    /// says how many. `show` may take its time: it is called under no lock.
    ///
    /// A server of small questions, as of DNS, takes and answers all that are there at once:
    ///
    /// ```
    /// use multidata::{Datagram, UdpSocket};
    ///
    /// fn answer_those_that_wait(socket: &UdpSocket) -> std::io::Result<()> {
    ///     let mut answers = Vec::new();
    ///     socket.recv_many(64, |asked| {
    ///         answers.push((asked.payload.to_ascii_uppercase(), asked.source));
    ///     })?;
    ///     let answers = answers.iter().map(|(payload, to)| Datagram {
    ///         payload,
    ///         to: Some(*to),
    ///         ..Datagram::default()
    ///     });
    ///     let answers: Vec<_> = answers.collect();
    ///     let mut left = &answers[..];
    ///     while !left.is_empty() {
    ///         // One that cannot be sent is left out, as a network loses it.
    ///         let sent = socket.send_many(left).unwrap_or(1);
    ///         left = &left[sent..];
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn recv_many(
        &self,
        datagrams_max: usize,
        show: impl FnMut(ReceivedDatagram<'_>),
    ) -> io::Result<usize> {
        let (call, id) = (self.socket.call(Interest::Readable, After::Send), self.socket.id);
        let take = |core: &mut Core, _| receive_many(core, id, datagrams_max);
        Ok(show_each(&self.socket.squeue().operate(&call, take)?, show))
    }

    /// As [`UdpSocket::recv_many`] for a task, which is woken when there may be a datagram.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn poll_recv_many(
        &self,
        context: &mut Context<'_>,
        datagrams_max: usize,
        show: impl FnMut(ReceivedDatagram<'_>),
    ) -> Poll<io::Result<usize>> {
        let id = self.socket.id;
        let take = |core: &mut Core, _| receive_many(core, id, datagrams_max);
        let taken = self.socket.poll(Interest::Readable, After::Send, context, take);
        taken.map_ok(|taken| show_each(&taken, show))
    }
}

/// Takes the datagrams that have waited longest, at least one.
pub(crate) fn receive_many(
    core: &mut Core,
    id: SocketId,
    datagrams_max: usize,
) -> Result<Vec<stack::ReceivedDatagram>, SocketError> {
    take_many(datagrams_max, || core.shard.udp_receive_datagram(id))
}

/// Takes at least one, and as many more as there are, `count_max` in all.
pub(crate) fn take_many<T>(
    count_max: usize,
    mut take: impl FnMut() -> Result<T, SocketError>,
) -> Result<Vec<T>, SocketError> {
    let mut taken = vec![take()?];
    while taken.len() < count_max
        && let Ok(another) = take()
    {
        taken.push(another);
    }
    Ok(taken)
}

/// Shows them, and says how many.
pub(crate) fn show_each(
    taken: &[stack::ReceivedDatagram],
    mut show: impl FnMut(ReceivedDatagram<'_>),
) -> usize {
    for it in taken {
        show(ReceivedDatagram {
            payload: it.payload.bytes(),
            source: it.source,
            destination: it.destination,
            traffic_class: it.traffic_class,
            hop_limit: it.hop_limit,
        });
    }
    taken.len()
}
