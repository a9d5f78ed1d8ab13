//! Handshakes that peers began and have not completed: what is kept of each, or the cookie that keeps it for us.

use crate::connections::flow_table::FlowTable;
use crate::connections::spent_cookies::SpentCookies;
use crate::ingress::Unclaimed;
use crate::network::interfaces::InterfaceId;
use crate::sockets::{Flow, Keys, SocketId};
use core::hash::BuildHasher;
use std::sync::Arc;
use tcp::{HalfOpen, SynCookies};
use time::{Duration, Instant};
use wire::TcpFlags;

/// Time between two answers of a half-open connection to what does not complete it (RFC 5961, 7).
const ANSWER_INTERVAL: Duration = Duration::from_millis(500);

/// A half-open connection.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) listener: SocketId,
    /// The one that its SYN came by.
    pub(crate) interface: InterfaceId,
    pub(crate) kept: HalfOpen,
    /// The listener's settings when the SYN came: what the SYN-ACK offered holds (RFC 7323, 2.2).
    pub(crate) config: Arc<tcp::Config>,
    /// When a segment that does not complete the handshake was answered last.
    pub(crate) answered_at: Option<Instant>,
    /// Until then an ACK without data does not complete the handshake; `None` where any does.
    pub(crate) deferred_until: Option<Instant>,
}

impl Waiting {
    /// Whether the peer is there, and has yet to say something.
    pub(crate) fn is_deferred(&self, now: Instant) -> bool {
        self.kept.is_acknowledged() && self.deferred_until.is_some_and(|until| now < until)
    }

    /// Whether the time is over in which the peer, who is there, was to say something; said once.
    pub(crate) fn ends_deferral(&mut self) -> bool {
        self.kept.is_acknowledged() && self.deferred_until.take().is_some()
    }

    /// Its listener, what is kept of it, and the settings of the connection.
    pub(crate) fn parts(&self) -> (SocketId, HalfOpen, Arc<tcp::Config>) {
        (self.listener, self.kept, Arc::clone(&self.config))
    }
}

/// The handshakes of a shard.
pub(crate) struct Handshakes {
    pub(crate) half_open: FlowTable<Waiting>,
    pub(crate) syn_cookies: SynCookies,
    pub(crate) spent_cookies: SpentCookies,
}

impl Handshakes {
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            half_open: FlowTable::new(keys),
            syn_cookies: SynCookies::new(derive_key(keys, "SYN cookies")),
            spent_cookies: SpentCookies::new(keys),
        }
    }

    /// Whether the ACK of a handshake, which brings no data, is to be followed by some first; notes what is `kept` of
    /// it.
    pub(crate) fn defers(
        &mut self,
        now: Instant,
        segment: &Unclaimed,
        payload_len: u32,
        kept: HalfOpen,
    ) -> bool {
        let Some(waiting) = self.half_open.get_mut(&segment.flow) else { return false };
        waiting.kept = kept;
        // A FIN is all that there will be.
        let is_bare = payload_len == 0 && !segment.header.flags.contains(TcpFlags::FIN);
        if !is_bare || !waiting.is_deferred(now) {
            return false;
        }
        // Nothing was lost, so that is what is waited for next.
        let until = waiting.deferred_until.unwrap_or(now);
        self.half_open.set_deadline(&segment.flow, until);
        true
    }

    /// Whether a half-open connection may answer what does not complete it, and notes that it does: whoever
    /// forged the SYN's address would have each further segment reflected to whose it is (RFC 5961, 7).
    pub(crate) fn may_answer_again(&mut self, now: Instant, flow: &Flow) -> bool {
        let Some(waiting) = self.half_open.get_mut(flow) else { return false };
        let may = waiting.answered_at.is_none_or(|at| now - at >= ANSWER_INTERVAL);
        if may {
            waiting.answered_at = Some(now);
        }
        may
    }
}

/// A key for one purpose.
fn derive_key(keys: Keys, purpose: &str) -> [u8; 16] {
    let halves = [keys.hash_one((purpose, 1)), keys.hash_one((purpose, 2))];
    core::array::from_fn(|at| halves[at / 8].to_le_bytes()[at % 8])
}
