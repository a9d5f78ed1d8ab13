//! What a shard holds: the books that must balance when everything is over.

use crate::shard::Shard;

/// How many things of each kind a shard holds now. With every socket closed and everything that
/// waits for a timer over, all of it is zero again; a number that is not is a leak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Sockets, connections that only finish closing included.
    pub sockets: usize,
    /// Four-tuples of connections.
    pub flows: usize,
    /// Local ports of listeners and UDP sockets, and echo identifiers.
    pub ports: usize,
    /// Handshakes that peers began.
    pub half_open: usize,
    /// SYNs that wait for a relay's decision.
    pub forwarded: usize,
    /// Connections in TIME-WAIT without an application.
    pub time_wait: usize,
    /// SYN cookies that have opened a connection.
    pub spent_cookies: usize,
    /// Deadlines of sockets.
    pub deadlines: usize,
    /// Connections that wait for a neighbour's address.
    pub waiting_for_neighbours: usize,
    /// Datagrams of which fragments are missing.
    pub reassemblies: usize,
    /// Bytes of blocks that datagrams and raw packets which nobody has read are counted with.
    pub unread_bytes: usize,
    /// Bytes that connections are counted with for what they have received and nobody has read.
    pub unread_stream_bytes: usize,
}

impl Shard {
    /// How many bytes came in order for the readers of connections, and how many those have read, since the beginning.
    #[inline]
    #[must_use]
    pub fn stream_bytes(&self) -> (u64, u64) {
        self.connection_counters.stream_bytes()
    }

    /// What the shard holds now.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        Holdings {
            sockets: self.sockets.len(),
            flows: self.sockets.flow_count(),
            ports: self.sockets.ports.len(),
            half_open: self.handshakes.half_open.len(),
            forwarded: self.forwarding.pending_count(),
            time_wait: self.detached.time_wait.len(),
            spent_cookies: self.handshakes.spent_cookies.len(),
            deadlines: self.deadlines.len(),
            waiting_for_neighbours: self.network.interfaces.iter().map(|i| i.waiting.len()).sum(),
            reassemblies: self.network.reassembly.len(),
            unread_bytes: self.unread.bytes(),
            unread_stream_bytes: self.unread_streams.bytes(),
        }
    }
}
