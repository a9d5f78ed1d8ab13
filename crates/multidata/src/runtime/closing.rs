//! What is left to deliver of connections that the application has closed.

use super::port::Port;
use super::squeue::Core;
use device::DeviceError;
use stack::{Shard, SocketId};
use tcp::State;
use time::Instant;

/// Closed connections that are kept in mind before the finished ones among them are forgotten.
const CHECK_MIN: usize = 64;

/// Connections the application let go of that may have something left to deliver.
pub(super) struct Closing {
    sockets: Vec<SocketId>,
    /// With so many, the finished ones among them are forgotten.
    checked_at: usize,
}

impl Default for Closing {
    fn default() -> Self {
        Self { sockets: Vec::new(), checked_at: CHECK_MIN }
    }
}

impl Closing {
    /// Keeps one more in mind.
    fn add(&mut self, shard: &mut Shard, socket: SocketId) {
        self.sockets.push(socket);
        if self.sockets.len() >= self.checked_at {
            self.forget_delivered(shard);
            self.checked_at = CHECK_MIN.max(2 * self.sockets.len());
        }
    }

    fn forget_delivered(&mut self, shard: &mut Shard) {
        self.sockets.retain(|id| !is_delivered(shard, *id));
        self.sockets.shrink_to(CHECK_MIN.max(2 * self.sockets.len()));
    }

    fn iter(&self) -> impl Iterator<Item = SocketId> {
        self.sockets.iter().copied()
    }
}

/// Whether a closed connection has delivered all it held. In FIN-WAIT-2 and TIME-WAIT the peer
/// has acknowledged everything, FIN included.
pub(crate) fn is_delivered(shard: &mut Shard, id: SocketId) -> bool {
    let is_over = |state| matches!(state, State::FinWait2 | State::TimeWait | State::Closed);
    shard.tcp_status(id).map_or(true, |status| is_over(status.state))
}

impl Core {
    /// Lets go of a socket; a connection goes on delivering what is queued.
    pub(crate) fn close(&mut self, now: Instant, socket: SocketId) {
        self.shard.close(now, socket);
        self.waiting.forget(socket);
        self.closing.add(&mut self.shard, socket);
    }

    /// Whether all closed connections have delivered their data and their FIN, and no datagram or
    /// reset waits, for the device or for a neighbour to answer; but for those of devices that failed.
    pub(crate) fn is_flushed(&mut self) -> bool {
        self.closing.forget_delivered(&mut self.shard);
        let shard = &self.shard;
        !shard.wants_transmit()
            && !shard.awaits_neighbours()
            && self.closing.iter().all(|id| self.failure_of(Some(id)).is_some())
    }

    /// Why something that is left to deliver will not be: its device failed.
    pub(crate) fn stranded(&self) -> Option<&DeviceError> {
        let closed = self.closing.iter().find_map(|id| self.failure_of(Some(id)));
        let waits = |port: &&Port| port.failed().is_some() && self.shard.has_messages(port.id);
        closed.or_else(|| self.devices.ports().iter().find(waits)?.failed())
    }

    /// Closed connections with something left to deliver.
    pub(crate) fn undelivered_count(&self) -> usize {
        self.closing.sockets.len()
    }
}
