//! Connections in TIME-WAIT whose application is gone: a bounded table of small entries, beside the
//! sockets and not counted among them. Where it is full, the oldest makes room, and is counted. Those that have more to
//! finish stay sockets (*orphans*); here they are only counted.
//!
//! ACKs from here have no options in the IPv4 header, though the connection's packets had some (IP_OPTIONS).
//! Linux sends none of the socket's from there either: it turns round those of the segment that it answers (a
//! recorded route), which RFC 1122, 4.2.3.8 leaves to a TCP and this one does nowhere.

use crate::connections::flow_table::FlowTable;
use crate::ingress::{Incoming, Origin, Unclaimed};
use crate::shard::Shard;
use crate::sockets::ports::Protocol;
use crate::sockets::taken_ports::Standing;
use crate::sockets::{Flow, Keys};
use counters::DropReason;
use tcp::{TimeWait, TimeWaitVerdict};
use time::Instant;
use wire::SeqNumber;

/// What a segment in TIME-WAIT led to.
pub(crate) enum Judged {
    /// It was dealt with.
    Done(Result<(), DropReason>),
    /// It begins a new connection, whose ISS is at or after this.
    Begins(SeqNumber),
}

/// Connections that may finish their business without an application.
const ORPHANS_MAX: usize = 16_384;

/// Connections in TIME-WAIT without an application, unless [`Shard::set_time_wait_max`] says otherwise: about
/// 300 bytes each, their places in the tables included.
pub const TIME_WAIT_MAX: usize = 65_536;

/// Connections whose application is gone.
pub(crate) struct Detached {
    /// Those of them that have something to finish, as which they are sockets still.
    pub(crate) orphans: usize,
    pub(crate) orphans_max: usize,
    /// What is left of the others.
    pub(crate) time_wait: FlowTable<TimeWait>,
    pub(crate) time_wait_max: usize,
}

impl Detached {
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            orphans: 0,
            orphans_max: ORPHANS_MAX,
            time_wait: FlowTable::new(keys),
            time_wait_max: TIME_WAIT_MAX,
        }
    }
}

impl Shard {
    /// Keeps of a connection what TIME-WAIT needs.
    pub(crate) fn enter_time_wait(&mut self, now: Instant, index: u32, kept: TimeWait) {
        let Some(socket) = self.sockets.tcp(index) else { return };
        let (flow, deadline) = (socket.flow(), socket.connection.poll_timeout());
        let deadline = deadline.unwrap_or(now + kept.lifetime());
        // A SYN may have replaced it while its application still had the socket; what is kept of it now
        // would speak for the successor once that is gone.
        let is_replaced = self.sockets.by_flow(&flow) != Some(index);
        self.remove_connection(index);
        if is_replaced {
            return;
        }
        if self.detached.time_wait_max == 0 {
            self.counters.time_wait_recycled += 1;
            return;
        }
        while self.detached.time_wait.len() >= self.detached.time_wait_max
            && let Some((oldest, _)) = self.detached.time_wait.remove_first()
        {
            self.sockets.ports.taken.release(oldest.local.port());
            self.counters.time_wait_recycled += 1;
        }
        self.counters.time_wait_entered += 1;
        self.detached.time_wait.insert(flow, kept, deadline);
    }

    /// A segment for a connection in TIME-WAIT; `None` where there is none.
    pub(crate) fn on_time_wait(
        &mut self,
        now: Instant,
        incoming: &Incoming<'_>,
        segment: &Unclaimed,
    ) -> Option<Judged> {
        let Unclaimed { flow, header, .. } = segment;
        let payload_len = segment.payload_len(incoming);
        let kept = self.detached.time_wait.get_mut(flow)?;
        let verdict = kept.on_segment(now, header, payload_len);
        let (answer, lifetime) = (kept.acknowledgment(now), kept.lifetime());
        Some(match verdict {
            TimeWaitVerdict::Replace(isn_min) if self.awaits(&incoming.origin, flow) => {
                Judged::Begins(isn_min)
            }
            TimeWaitVerdict::Restart => {
                self.detached.time_wait.set_deadline(flow, now + lifetime);
                self.network.answer_segment(incoming, answer);
                Judged::Done(Err(DropReason::Duplicate))
            }
            TimeWaitVerdict::Acknowledge | TimeWaitVerdict::Replace(_) => {
                self.network.answer_segment(incoming, answer);
                Judged::Done(Err(DropReason::OutOfWindow))
            }
            TimeWaitVerdict::Drop(reason) => Judged::Done(Err(reason)),
        })
    }

    /// Whether a listener or a forwarder would get a SYN of this flow that came from `origin`: what this
    /// host sends to itself is for no forwarder.
    pub(crate) fn awaits(&self, origin: &Origin, flow: &Flow) -> bool {
        let is_loopback = self.network.interfaces[origin.interface].is_loopback;
        self.sockets.ports.find(Protocol::Tcp, flow.local, flow.remote).is_some()
            || (!is_loopback && self.forwarding.forwarder_of(flow.local.ip()).is_some())
    }

    /// A SYN was taken, and its connection follows whatever had these ports: until then that goes on, for a SYN
    /// that finds no listener or no room opens nothing.
    pub(crate) fn on_successor(&mut self, flow: &Flow) {
        if let Some(index) = self.sockets.by_flow(flow) {
            self.sockets.remove_flow(flow, index);
        }
        if self.detached.time_wait.remove(flow).is_some() {
            self.sockets.ports.taken.release(flow.local.port());
            self.counters.time_wait_replaced += 1;
        }
    }

    /// Forgets those whose 2 MSL are over.
    pub(crate) fn on_time_wait_timeout(&mut self, now: Instant) {
        while let Some((flow, _)) = self.detached.time_wait.pop_due(now) {
            self.sockets.ports.taken.release(flow.local.port());
        }
    }
}

/// Whether a connection with these settings may be opened between these ports though the last one is in
/// TIME-WAIT, and then from which ISS on. `None` where it may not.
pub(crate) fn reusable(
    time_wait: &FlowTable<TimeWait>,
    now: Instant,
    flow: &Flow,
    config: &tcp::Config,
) -> Option<Option<SeqNumber>> {
    match time_wait.get(flow) {
        None => Some(None),
        // Without timestamps its segments would look like late ones of the last.
        Some(_) if !config.timestamps => None,
        Some(kept) => kept.may_be_reused(now).map(Some),
    }
}

/// How the last connection between these ports stands to a new one with these settings.
pub(crate) fn standing_in_time_wait(
    time_wait: &FlowTable<TimeWait>,
    now: Instant,
    flow: &Flow,
    config: &tcp::Config,
) -> Standing {
    match (reusable(time_wait, now, flow, config), time_wait.get(flow)) {
        (Some(_), _) => Standing::Free,
        (None, Some(kept)) if config.timestamps && kept.has_timestamps() => Standing::Passing,
        (None, _) => Standing::Taken,
    }
}
