//! Explicit congestion notification (RFC 3168): routers mark packets instead of dropping them.
//!
//! ```text
//!   sender                     router                     receiver
//!     data, ECT(0)  ----------> CE ----------------------> echo begins
//!     window reduced, once  <---------- ACK, ECE ---------- on every segment
//!     new data, CWR ----------------------------------------> echo ends
//! ```
//!
//! Both sides agree in the handshake: ECE and CWR in the SYN, ECE alone in the SYN-ACK. An answer
//! that echoes both flags comes from a host that does not know them. A SYN that must be sent again
//! asks no more, in case somebody on the path drops such SYNs (RFC 3168, 6.1.1.1).
//!
//! What always holds: without an agreement no packet is ECN-capable and no flag is set; only new
//! data is ECN-capable, neither pure ACKs nor what is sent again nor window probes (RFC 3168, 6.1.4
//! to 6.1.6); the window is reduced once per window of data, whether for marks or for losses.
//!
//! Accurate ECN (RFC 9768) is absent: an AccECN SYN is answered as by a host of RFC 3168, which the
//! RFC provides for.

use wire::{SeqNumber, TcpFlags};

/// The codepoint of a packet whose sender understands marks (RFC 3168, 5): ECT(0).
const ECT0: u8 = 0b10;

/// The flags of an ECN-setup SYN.
const SETUP: TcpFlags = TcpFlags(TcpFlags::ECE.0 | TcpFlags::CWR.0);

/// Whether connections use explicit congestion notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EcnMode {
    /// Never.
    Off,
    /// Where the peer asks for it, as Linux does unless told otherwise: some paths still drop SYNs
    /// that ask.
    #[default]
    Accept,
    /// Ask for it, too.
    Request,
}

/// What a sender does about marks, and whether that was agreed on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ecn {
    /// `Request`: our SYN asked, or will, and no SYN of ours did not.
    mode: EcnMode,
    on: bool,
    /// The next new data says that the window was reduced.
    owes_cwr: bool,
    /// Data up to here was sent with the window as it was before the last reduction, where `has_reduced`. (Every idle
    /// connection has these, and as an `Option` they are longer.)
    reduced_at: SeqNumber,
    has_reduced: bool,
    /// The same of the last reduction for a mark, which stands where one behind it was a mistake.
    marked_at: SeqNumber,
    has_marked: bool,
    /// The last reduction was for a mark, and its round trip is not over.
    reducing: bool,
    /// The last reduction was for a mark, or one before it whose CWR had not left yet.
    for_mark: bool,
}

/// What an ACK means for the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Echo {
    /// The round trip of the last reduction for a mark is over.
    pub(crate) over: bool,
    /// The window is to be reduced.
    pub(crate) reduce: bool,
}

impl Ecn {
    pub(crate) fn new(mode: EcnMode) -> Self {
        Self { mode, ..Self::default() }
    }

    /// Flags of our SYN, or of our SYN-ACK once the peer's SYN was taken.
    pub(crate) fn syn_flags(&self, is_reply: bool) -> TcpFlags {
        match is_reply {
            true if self.on => TcpFlags::ECE,
            false if self.mode == EcnMode::Request => SETUP,
            _ => TcpFlags::NONE,
        }
    }

    /// Our SYN was not answered: the next ones do not ask, and RFC 3168, 6.1.1 forbids
    /// ECN-capable packets to a host that has sent such a SYN.
    pub(crate) fn on_syn_timeout(&mut self) {
        if !self.on && self.mode == EcnMode::Request {
            self.mode = EcnMode::Accept;
        }
    }

    /// The peer's SYN or SYN-ACK. Says whether ECN is agreed on.
    pub(crate) fn on_syn(&mut self, flags: TcpFlags, we_asked_first: bool) -> bool {
        let asks = flags.contains(SETUP);
        self.on = match we_asked_first {
            true if flags.contains(TcpFlags::ACK) => {
                self.mode == EcnMode::Request && flags.contains(TcpFlags::ECE) && !asks
            }
            // Both opened at once: both must have asked.
            true => self.mode == EcnMode::Request && asks,
            false => self.mode != EcnMode::Off && asks,
        };
        self.on
    }

    /// The peer's SYN came again. RFC 3168, 6.1.1: one that does not ask ends the agreement, for its sender
    /// keeps to none.
    pub(crate) fn on_syn_again(&mut self, flags: TcpFlags) {
        self.on &= flags.contains(SETUP);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// The codepoint of new data.
    pub(crate) fn codepoint(&self) -> u8 {
        if self.on { ECT0 } else { 0 }
    }

    pub(crate) fn owes_cwr(&self) -> bool {
        self.owes_cwr
    }

    /// The first new data since the reduction was sent.
    pub(crate) fn on_cwr_sent(&mut self) {
        self.owes_cwr = false;
    }

    /// An ACK arrived, `echoed` with ECE. `outstanding`: something was in flight before it.
    pub(crate) fn on_ack(&mut self, echoed: bool, una: SeqNumber, outstanding: bool) -> Echo {
        // Beyond that point and not at it: only then the peer may have seen CWR.
        if !self.on || self.has_reduced && una.is_at_or_before(self.reduced_at) {
            return Echo::default();
        }
        (self.has_reduced, self.has_marked) = (false, false);
        Echo { over: core::mem::take(&mut self.reducing), reduce: echoed && outstanding }
    }

    /// The window was reduced for a mark.
    pub(crate) fn on_mark(&mut self, nxt: SeqNumber) {
        self.on_reduced(nxt);
        (self.reducing, self.for_mark) = (true, true);
        (self.marked_at, self.has_marked) = (self.reduced_at, self.has_reduced);
    }

    /// Whether the window was reduced for a mark in this round trip: what is lost in it is no reason to reduce it
    /// again, but for the packet with CWR, which is the first behind it (RFC 3168, 6.1.2).
    pub(crate) fn is_reducing(&self, una: SeqNumber) -> bool {
        self.reducing && self.has_reduced && una.is_before(self.reduced_at)
    }

    /// Recovery from a loss is over, and so is the round trip of a reduction before it; says whether there was one.
    pub(crate) fn on_recovery_exit(&mut self) -> bool {
        core::mem::take(&mut self.reducing)
    }

    /// The window was reduced, for whatever reason: RFC 3168, 6.1.2 wants CWR on the first new data
    /// behind it, and no second reaction within the window of data.
    pub(crate) fn on_reduced(&mut self, nxt: SeqNumber) {
        if self.on {
            (self.reduced_at, self.has_reduced) = (nxt, true);
            // The CWR that leaves for both must leave though this was a mistake, and until then the mark is echoed.
            self.for_mark &= self.owes_cwr;
            if self.for_mark {
                (self.marked_at, self.has_marked) = (nxt, true);
            }
            self.owes_cwr = true;
            self.reducing = false;
        }
    }

    /// The loss was a mistake: where the window was reduced for it, there is nothing to tell the peer. One that was
    /// reduced for a mark already stays so, the peer is to be told of that, and until it has heard it echoes the same
    /// mark; says whether the round trip of the mark is over.
    pub(crate) fn on_undo(&mut self) -> bool {
        if self.for_mark {
            return !self.reducing;
        }
        self.owes_cwr = false;
        (self.reduced_at, self.has_reduced) = (self.marked_at, self.has_marked);
        false
    }
}

/// A receiver's part: from a mark on every segment echoes it, until the peer says that it heard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MarkEcho {
    is_on: bool,
}

impl MarkEcho {
    /// Flags of every segment that carries an ACK.
    pub(crate) fn flags(&self) -> TcpFlags {
        if self.is_on { TcpFlags::ECE } else { TcpFlags::NONE }
    }

    /// Data within the window arrived, ECN being agreed on; RFC 3168, 6.1.3: the echo goes on until CWR comes, and a
    /// mark on that very packet begins another. Says whether the peer should hear at once.
    pub(crate) fn on_data(&mut self, flags: TcpFlags, marked: bool) -> bool {
        let reduced = flags.contains(TcpFlags::CWR);
        if reduced {
            self.is_on = false;
        }
        let begins = marked && !self.is_on;
        self.is_on |= marked;
        begins || reduced
    }
}
