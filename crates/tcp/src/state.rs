//! The connection states (RFC 9293, 3.3.2).

/// State of a connection, named as in RFC 9293. A listener is not a connection here, so `Listen`
/// is a state that no [`Connection`](crate::Connection) is ever in; it is there for who shows
/// listeners and connections in one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// There is no connection (any more).
    Closed,
    /// Waits for a connection request from any remote.
    Listen,
    /// Has sent a SYN and waits for a matching one.
    SynSent,
    /// Has sent and received a SYN and waits for the ACK of its own.
    SynReceived,
    /// Open: data flows both ways.
    Established,
    /// This side closed; its FIN is not yet acknowledged.
    FinWait1,
    /// This side closed and its FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer closed; this side may still send.
    CloseWait,
    /// Both closed at the same time; our FIN is not yet acknowledged.
    Closing,
    /// The peer closed first, then this side; our FIN is not yet acknowledged.
    LastAck,
    /// Both closed; waits until old segments have died.
    TimeWait,
}

impl State {
    /// Whether both SYNs are acknowledged.
    #[must_use]
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::Closed | Self::Listen | Self::SynSent | Self::SynReceived)
    }

    /// Whether the peer may still send data.
    #[must_use]
    pub const fn receives_data(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// Whether the application may still queue data to send (in the first two, for later).
    #[must_use]
    pub const fn accepts_data(self) -> bool {
        matches!(self, Self::SynSent | Self::SynReceived | Self::Established | Self::CloseWait)
    }

    /// Whether queued data, or a FIN, may be sent or sent again.
    #[must_use]
    pub const fn sends_data(self) -> bool {
        matches!(
            self,
            Self::Established | Self::CloseWait | Self::FinWait1 | Self::Closing | Self::LastAck
        )
    }
}
