//! The peer's window, as what arrived told of it.

/// Edges remembered of those that arrived last: which of them counts depends on what was dropped and what was put
/// together on the way through the host.
const EDGES: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PeerWindow {
    /// The highest right edge that arrived.
    pub(super) edge: u64,
    /// The largest window that arrived.
    pub(super) max: u64,
    /// Behind the peer's SYN, of which who sends cookies remembers no window.
    pub(super) max_later: u64,
    /// The right edges that arrived last.
    last_edges: [Option<u64>; EDGES],
}

impl PeerWindow {
    /// The peer takes so much behind the position `ack`, as a SYN or another segment says.
    pub(super) fn on_told(&mut self, ack: u64, window: u64, is_syn: bool) {
        let edge = ack + window;
        self.edge = self.edge.max(edge);
        self.max = self.max.max(window);
        self.max_later = self.max_later.max(if is_syn { 0 } else { window });
        if !self.last_edges.contains(&Some(edge)) {
            self.last_edges.rotate_right(1);
            self.last_edges[0] = Some(edge);
        }
    }

    /// Whether the window may end there now. An ACK that another overtook may have taken it back (RFC 9293, 3.10.7.4:
    /// of two that acknowledge the same, the later that comes counts).
    pub(super) fn may_end_at(&self, position: u64) -> bool {
        self.last_edges.contains(&Some(position))
    }
}
