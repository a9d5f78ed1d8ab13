//! Looking inside: what a stack has, as `ss`, `ip route` and `ip neigh` show it, and how much of it.
//!
//! Nothing here runs the stack, and no lock is held for longer than a page of sockets takes, or the neighbours of one
//! interface. Routes alone are all copied at once, some nanoseconds each: their order is that of one moment.

use super::Stack;
use core::iter::FusedIterator;
use stack::{ListPosition, NeighbourStatus, RouteStatus, SocketKind, SocketStatus};
use tcp::State;

/// Places that are looked at under one lock, for which others may wait. Of 100,000 connections each costs a microsecond,
/// the time of its cache misses; 128 of them were held for more than a hundred.
const PLACES_MAX: usize = 32;

/// Neighbours that an interface knows at most.
const NEIGHBOURS_MAX: usize = 1_024;

counters::counters! {
    /// How much of everything there is now. What [`Counters`](crate::Counters) have only grows, this comes and goes.
    pub struct Gauges {
        /// Connections that have a socket, those included that were not accepted yet and those that only
        /// finish closing.
        tcp_connections,
        /// Of these, those in ESTABLISHED.
        tcp_established,
        /// Of these, those whose last handle was dropped.
        tcp_orphans,
        /// Handshakes that peers began and have not completed.
        tcp_half_open,
        /// SYNs that wait for the decision of a forwarder.
        tcp_forwarder_pending,
        /// Connections in TIME-WAIT that have no socket any more.
        tcp_time_wait,
        /// Listeners: in a stack of several squeues there is one in each.
        tcp_listeners,
        /// Connections that wait to be accepted.
        tcp_accept_queue,
        /// Forwarders of connections, one in each squeue.
        tcp_forwarders,
        /// UDP sockets and forwarders of datagrams.
        udp_sockets,
        /// Raw sockets, of protocols, for pings, and forwarders of those.
        raw_sockets,
        /// Bytes that have arrived and can be read, of all sockets; of datagrams and packets with what holding them
        /// costs.
        received_bytes,
        /// Bytes of blocks that the datagrams and packets among them are counted with, of which there is a limit for all
        /// sockets together (`PoolConfig::datagrams_limit_bytes`).
        datagrams_bytes,
        /// Bytes that connections are counted with for what they have received and nobody has read, of which there is a
        /// limit for all of them together, too (`PoolConfig::streams_limit_bytes`).
        streams_bytes,
        /// Bytes that the peers of connections have not acknowledged, those that were never sent included.
        unacknowledged_bytes,
        /// Bytes of blocks that are in use, of the pool and of everybody who shares it.
        pool_used_bytes,
        /// Bytes that can still be had from the pool to send; the receive reserve is not among them.
        pool_left_bytes,
    }
}

impl Gauges {
    fn add(&mut self, socket: &SocketStatus) {
        let count = match socket.kind {
            SocketKind::Tcp(state) => {
                self.tcp_established += u64::from(state == State::Established);
                self.tcp_orphans += u64::from(socket.is_orphan);
                &mut self.tcp_connections
            }
            SocketKind::TcpListener { waiting, .. } => {
                self.tcp_accept_queue += waiting as u64;
                &mut self.tcp_listeners
            }
            SocketKind::TcpForwarder { .. } => &mut self.tcp_forwarders,
            SocketKind::Udp | SocketKind::UdpForwarder(_) => &mut self.udp_sockets,
            _ => &mut self.raw_sockets,
        };
        *count += 1;
        self.received_bytes += socket.received_bytes as u64;
        self.unacknowledged_bytes += socket.unacknowledged_bytes as u64;
    }
}

impl Stack {
    /// How much of everything there is now. It looks at every socket, as [`Stack::sockets`] does: for a program that
    /// publishes figures every few seconds.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let mut sum = Gauges::default();
        self.squeue_gauges().iter().for_each(|gauges| sum.merge(gauges));
        let pool = self.pool();
        sum.pool_used_bytes = pool.counters().outstanding_bytes;
        sum.pool_left_bytes = pool.left_to_send_bytes() as u64;
        sum
    }

    /// As [`Stack::gauges`], for each squeue by itself; the pool is everybody's and is zero here.
    #[must_use]
    pub fn squeue_gauges(&self) -> Vec<Gauges> {
        let gauges = |squeue: usize| {
            let mut sum = self.squeue(squeue).look(|core| Gauges {
                tcp_half_open: core.shard.half_open_count() as u64,
                tcp_forwarder_pending: core.shard.forwarded_count() as u64,
                tcp_time_wait: core.shard.time_wait_count() as u64,
                datagrams_bytes: core.shard.holdings().unread_bytes as u64,
                streams_bytes: core.shard.holdings().unread_stream_bytes as u64,
                ..Gauges::ZERO
            });
            let mut from = Some(ListPosition::default());
            while let Some(position) = from.filter(|position| position.is_of_sockets()) {
                from = self.squeue(squeue).look(|core| {
                    core.shard.list_sockets(position, PLACES_MAX, &mut |socket| sum.add(&socket))
                });
            }
            sum
        };
        (0..self.squeues().len()).map(gauges).collect()
    }

    /// Its sockets, half-open connections and connections in TIME-WAIT, squeue by squeue. A listener, and a
    /// forwarder of connections, is there once for each squeue.
    ///
    /// They are fetched page by page, while the stack goes on in between: what was there all the time, and was the same
    /// of the three, is shown once; what came or went meanwhile may be shown or not, a connection whose handshake
    /// completed not at all, one that closed in TIME-WAIT again; and no two figures need be of one moment.
    #[must_use]
    pub fn sockets(&self) -> Sockets<'_> {
        Sockets {
            stack: self,
            squeue: 0,
            from: Some(ListPosition::default()),
            page: Vec::new().into_iter(),
        }
    }

    /// Its routes, those of the longest prefixes first, in the order in which they are tried.
    #[must_use]
    pub fn routes(&self) -> Vec<RouteStatus> {
        self.squeue(0).look(|core| core.shard.list_routes().collect())
    }

    /// What it knows of neighbours, at most 1,024 of each interface, one interface after the other. Of several squeues
    /// the first one knows most, and is asked.
    #[must_use]
    pub fn neighbours(&self) -> Vec<NeighbourStatus> {
        let squeue = self.squeue(0);
        let now = squeue.now();
        let ids: Vec<_> =
            squeue.look(|core| core.devices.ports().iter().map(|port| port.id).collect());
        let mut all = Vec::new();
        for id in ids {
            // Nothing is allocated under the lock.
            all.reserve(NEIGHBOURS_MAX);
            squeue.look(|core| all.extend(core.shard.list_neighbours(now, id)));
        }
        all
    }
}

/// What [`Stack::sockets`] shows.
#[derive(Debug)]
pub struct Sockets<'a> {
    stack: &'a Stack,
    squeue: usize,
    from: Option<ListPosition>,
    page: std::vec::IntoIter<SocketStatus>,
}

impl Iterator for Sockets<'_> {
    type Item = SocketStatus;

    fn next(&mut self) -> Option<SocketStatus> {
        loop {
            if let Some(socket) = self.page.next() {
                return Some(socket);
            }
            let Some(from) = self.from else {
                if self.squeue + 1 >= self.stack.squeues().len() {
                    return None;
                }
                self.squeue += 1;
                self.from = Some(ListPosition::default());
                continue;
            };
            // Nothing is allocated under the lock.
            let mut page = Vec::with_capacity(PLACES_MAX);
            self.from = self.stack.squeue(self.squeue).look(|core| {
                core.shard.list_sockets(from, PLACES_MAX, &mut |socket| page.push(socket))
            });
            self.page = page.into_iter();
        }
    }
}

impl FusedIterator for Sockets<'_> {}
