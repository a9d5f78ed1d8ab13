//! Datagrams: every host sends some and gives back what it gets.
//!
//! They may be lost, doubled and shuffled; what arrives is whole and comes from where it says. Long
//! ones go in fragments, of which some are lost or damaged: half a datagram must never come up.

use super::{Event, World};
use crate::host::{self, DATAGRAM_PORT};
use crate::random::scatter;
use crate::stream;
use batch::Chunk;
use core::net::SocketAddr;
use stack::SocketError;
use time::Duration;

/// A datagram that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    from: usize,
    to: usize,
    len: usize,
    /// Whether it came to the other host, and back.
    came: [bool; 2],
    /// Nothing excuses its loss.
    is_due: bool,
}

/// How long a neighbour that was heard of counts as reachable, and is not probed whatever becomes of what
/// is sent to it (RFC 4861, 7.3.2).
pub(super) const REACHABLE: Duration = Duration::from_secs(30);

/// How long connections that are over to their applications may still hear of each other: a FIN that is sent again
/// confirms its sender's address of before.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(10);

/// How long before the datagrams that must arrive others go the same ways: whose neighbour has another
/// hardware address by now finds out with them (RFC 4861, 7.3.3: eleven seconds).
const REHEARSAL: Duration = Duration::from_secs(30);

/// How long those take at most that must arrive, there and back.
const ARRIVAL_MAX: Duration = Duration::from_secs(30);

/// As long as any path takes.
const DUE_LEN: usize = 500;

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
        let ipv6 = random.chance(0.5);
        self.send_one(Datagram { from, to, len, came: [false; 2], is_due: false }, ipv6);
    }

    fn send_one(&mut self, datagram: Datagram, ipv6: bool) {
        let Datagram { from, to, len, .. } = datagram;
        let index = self.datagrams.len();
        let name = self.datagram_name(index);
        let host = &mut self.hosts[from];
        let Ok(mut block) = host.pool.allocate(len) else { return };
        stream::fill(name, 0, &mut block.bytes_mut()[..len]);
        let chunk = Chunk::new(block.freeze(), 0..len);
        let Some(socket) = host.datagrams else { return };
        let is_able = host.has_address(ipv6);
        let address = SocketAddr::new(self.hosts[to].address(ipv6), DATAGRAM_PORT);
        self.datagrams.push(datagram);
        match self.hosts[from].shard(socket.home).udp_send(socket.id, Some(address), chunk) {
            Ok(()) => self.counters.datagrams += 1,
            Err(SocketError::WouldBlock) => {}
            Err(
                SocketError::NoRoute(_)
                | SocketError::NoSourceFor(_)
                | SocketError::AddressNotAvailable,
            ) if !is_able => {}
            Err(error) => return self.fail("a datagram can be sent", error.to_string()),
        }
        self.serve(from, socket.home);
    }

    /// All connections are over, the links are good and nobody counts as reachable for what was heard
    /// before: datagrams go everywhere, and at last some that must arrive.
    pub(super) fn rehearse_datagrams(&mut self) {
        self.send_everywhere(false);
        self.events.add(self.now + REHEARSAL, Event::DatagramsDue);
    }

    pub(super) fn send_due_datagrams(&mut self) {
        self.send_everywhere(true);
        self.events.add(self.now + ARRIVAL_MAX, Event::DatagramsOver);
    }

    fn send_everywhere(&mut self, is_due: bool) {
        for from in 0..self.hosts.len() {
            for to in (0..self.hosts.len()).filter(|to| *to != from) {
                for ipv6 in [false, true] {
                    if !self.hosts[from].has_address(ipv6) || !self.hosts[to].has_address(ipv6) {
                        continue;
                    }
                    // A host whose address was away during the rehearsal may still be looked for where it was.
                    let is_known = !self.rehearsed.insert((from, to, ipv6));
                    let is_due = is_due && is_known;
                    self.counters.datagrams_due += u64::from(is_due);
                    let datagram = Datagram { from, to, len: DUE_LEN, came: [false; 2], is_due };
                    self.send_one(datagram, ipv6);
                }
            }
        }
    }

    /// Those that had to arrive did.
    pub(super) fn judge_datagrams(&mut self) {
        let is_lost = |it: &&Datagram| it.is_due && it.came != [true; 2];
        if let Some(lost) = self.datagrams.iter().find(is_lost) {
            let what = format!("{lost:?}");
            self.fail("a datagram arrives over good links, and its echo comes back", what);
        }
        for host in 0..self.hosts.len() {
            if let Some(socket) = self.hosts[host].datagrams.take() {
                self.hosts[host].shard(socket.home).close(self.now, socket.id);
            }
            self.serve_all(host);
        }
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
            self.datagrams[index].came[usize::from(host == datagram.from)] = true;
            if host == datagram.to {
                // It may be too much; then it is lost like others.
                let shard = self.hosts[host].shard(socket.home);
                let sent = shard.udp_send(socket.id, Some(source), payload);
                self.counters.datagrams += u64::from(sent.is_ok());
            }
        }
    }
}
