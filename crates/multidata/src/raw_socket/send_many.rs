//! Many packets in one call; see `udp_socket/send_many.rs`, which does the same with datagrams.

use super::RawSocket;
use crate::error::socket_error;
use crate::groups::{copy_group, send_groups};
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
        let len = |packet: &RawPacket<'_>| packet.payload.len();
        send_groups(&self.socket.stack, &self.last_plan, packets, len, |group| {
            self.send_group(group)
        })
    }

    fn send_group(&self, group: &[RawPacket<'_>]) -> (usize, io::Result<()>) {
        let payloads = group.iter().map(|it| it.payload);
        let layout = self.last_plan.layout(&self.socket.stack);
        let copied = match copy_group(&self.socket.stack, &layout, payloads) {
            Ok(copied) => copied,
            Err(error) => return (0, Err(socket_error(error))),
        };
        let packets: Vec<_> = group.iter().map(|it| it.to).zip(copied).collect();
        let (mut sent, id) = (0, self.socket.id);
        let call = self.socket.call(Interest::Writable, After::Send);
        let outcome = self.socket.squeue().operate(&call, |core, _| {
            while sent < packets.len() {
                let count = core.shard.raw_send_many(id, &packets[sent..])?;
                let queued = &packets[sent..sent + count];
                let len = queued.iter().map(|(_, it)| it.len()).sum();
                layout.count(&mut core.counters, len);
                core.pace.on_written(len);
                sent += count;
            }
            self.last_plan.renew(&self.socket.stack, core, id)
        });
        (sent, outcome)
    }
}
