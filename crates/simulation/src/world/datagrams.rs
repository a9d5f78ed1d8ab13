//! Datagrams: every host sends some and gives back what it gets.
//!
//! They may be lost, doubled and shuffled; what arrives is whole and comes from where it says. Long
//! ones go in fragments, of which some are lost or damaged: half a datagram must never come up.

use super::World;
use crate::host::{self, DATAGRAM_PORT};
use crate::random::scatter;
use crate::stream;
use batch::Chunk;
use core::net::SocketAddr;
use stack::SocketError;

/// A datagram that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    from: usize,
    to: usize,
    len: usize,
}

impl World {
    fn datagram_name(&self, index: usize) -> u64 {
        // The upper half leads back to the index.
        let noise = scatter(self.scenario.seed ^ 0xda7a) & 0xffff_ffff_0000_0000;
        noise | index as u64
    }

    /// A host sends a datagram to another.
    pub(super) fn send_datagram(&mut self, number: usize) {
        let mut random = self.random.fork(0xda7a + number as u64);
        let count = self.hosts.len() as u64;
        let from = random.within(0, count - 1) as usize;
        let to = (from + random.within(1, count - 1) as usize) % self.hosts.len();
        let len = match random.chance(0.4) {
            true => random.magnitude(stream::NAME_LEN, 20_000),
            false => random.magnitude(stream::NAME_LEN, 1_200),
        } as usize;
        let index = self.datagrams.len();
        let name = self.datagram_name(index);
        let host = &mut self.hosts[from];
        let Ok(mut block) = host.pool.allocate(len) else { return };
        stream::fill(name, 0, &mut block.bytes_mut()[..len]);
        let chunk = Chunk::new(block.freeze(), 0..len);
        let ipv6 = random.chance(0.5);
        let Some(socket) = host.datagrams else { return };
        let is_able = host.has_address(ipv6);
        let address = SocketAddr::new(self.hosts[to].address(ipv6), DATAGRAM_PORT);
        self.datagrams.push(Datagram { from, to, len });
        match self.hosts[from].shard(socket.home).udp_send(socket.id, Some(address), chunk) {
            Ok(()) => self.counters.datagrams += 1,
            Err(SocketError::WouldBlock) => {}
            Err(SocketError::NoRoute | SocketError::AddressNotAvailable) if !is_able => {}
            Err(error) => return self.fail("a datagram can be sent", error.to_string()),
        }
        self.serve(from, socket.home);
    }

    /// Whatever came to a host's socket is looked at, and given back to where it came from.
    pub(super) fn receive_datagrams(&mut self, host: usize) {
        let Some(socket) = self.hosts[host].datagrams else { return };
        while let Ok((payload, source)) = self.hosts[host].shard(socket.home).udp_receive(socket.id)
        {
            let name =
                payload.bytes().first_chunk::<8>().map_or(0, |head| u64::from_le_bytes(*head));
            let index = (name & 0xffff_ffff) as usize;
            let known = self.datagrams.get(index).copied();
            let known = known.filter(|_| name == self.datagram_name(index));
            let Some(datagram) = known else {
                return self
                    .fail("a datagram arrives as it was sent", format!("{name:x} is nobody's"));
            };
            let came_from = if host == datagram.to { datagram.from } else { datagram.to };
            let is_whole = payload.len() == datagram.len
                && stream::first_difference(name, 0, payload.bytes()).is_none();
            let is_right_way = (host == datagram.to || host == datagram.from)
                && host::is_of(came_from, source.ip());
            if !is_whole || !is_right_way {
                let what = format!("{datagram:?}: {} bytes from {source} at {host}", payload.len());
                return self.fail("a datagram arrives as it was sent", what);
            }
            self.counters.datagrams_received += 1;
            if host == datagram.to {
                // It may be too much; then it is lost like others.
                let shard = self.hosts[host].shard(socket.home);
                let sent = shard.udp_send(socket.id, Some(source), payload);
                self.counters.datagrams += u64::from(sent.is_ok());
            }
        }
    }
}
