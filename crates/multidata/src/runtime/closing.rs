//! What is left to deliver of connections that the application has closed.

use super::port::Port;
use super::squeue::Core;
use device::DeviceError;
use stack::SocketId;
use tcp::State;
use time::Instant;

/// Closed connections that are kept in mind before the finished ones among them are forgotten.
pub(super) const CHECK_MIN: usize = 64;

impl Core {
    /// Lets go of a socket; a connection goes on delivering what is queued.
    pub(crate) fn close(&mut self, now: Instant, socket: SocketId) {
        self.shard.close(now, socket);
        self.waiting.forget(socket, &mut self.woken);
        self.closing.push(socket);
        if self.closing.len() >= self.closing_checked_at {
            self.forget_delivered();
            self.closing_checked_at = CHECK_MIN.max(2 * self.closing.len());
        }
    }

    /// Whether all closed connections have delivered their data and their FIN, and no datagram or
    /// reset waits, for the device or for a neighbour to answer; but for those of devices that failed.
    pub(crate) fn is_flushed(&mut self) -> bool {
        self.forget_delivered();
        let shard = &self.shard;
        let is_stranded = |id: &SocketId| self.failure_of(Some(*id)).is_some();
        !shard.wants_transmit()
            && !shard.awaits_neighbours()
            && self.closing.iter().all(is_stranded)
    }

    /// Why something that is left to deliver will not be: its device failed.
    pub(crate) fn stranded(&self) -> Option<&DeviceError> {
        let closed = self.closing.iter().find_map(|id| self.failure_of(Some(*id)));
        let waits = |port: &&Port| port.failed.is_some() && self.shard.has_messages(port.id);
        closed.or_else(|| self.ports.iter().find(waits)?.failed.as_ref())
    }

    /// Closed connections with something left to deliver.
    pub(crate) fn undelivered_count(&self) -> usize {
        self.closing.len()
    }

    fn forget_delivered(&mut self) {
        let mut closing = core::mem::take(&mut self.closing);
        closing.retain(|id| !self.is_delivered(*id));
        closing.shrink_to(CHECK_MIN.max(2 * closing.len()));
        self.closing = closing;
    }

    /// Whether a closed connection has delivered all it held. In FIN-WAIT-2 and TIME-WAIT the peer
    /// has acknowledged everything, FIN included.
    pub(crate) fn is_delivered(&mut self, id: SocketId) -> bool {
        let is_over = |state| matches!(state, State::FinWait2 | State::TimeWait | State::Closed);
        self.shard.tcp_status(id).map_or(true, |status| is_over(status.state))
    }
}
