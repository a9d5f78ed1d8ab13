//! The send sequence variables (RFC 9293, 3.3.1).

use wire::SeqNumber;

/// What was sent, what was acknowledged, and what the peer lets us send.
#[derive(Clone, Debug)]
pub(crate) struct SendSequence {
    /// ISS.
    pub(crate) iss: SeqNumber,
    /// SND.UNA.
    pub(crate) una: SeqNumber,
    /// SND.NXT. It never moves back: what is to be sent again is recovery's to say.
    pub(crate) nxt: SeqNumber,
    /// One past the highest number ever sent: beyond SND.NXT only by the byte of a zero-window
    /// probe, which the peer may take or not.
    pub(crate) max: SeqNumber,
    /// One past the last segment that was sent and was not full (Minshall).
    small: SeqNumber,
    /// SND.WND in bytes.
    pub(crate) window: u32,
    /// Max(SND.WND): the largest window the peer ever announced.
    pub(crate) window_max: u32,
    /// SND.WL1 and SND.WL2: where the window was last taken from.
    wl1: SeqNumber,
    wl2: SeqNumber,
}

impl SendSequence {
    pub(crate) fn new(iss: SeqNumber) -> Self {
        Self {
            iss,
            una: iss,
            nxt: iss,
            max: iss,
            small: iss,
            window: 0,
            window_max: 0,
            wl1: SeqNumber(0),
            wl2: iss,
        }
    }

    /// FlightSize: sequence numbers sent and not acknowledged.
    pub(crate) fn flight(&self) -> u32 {
        self.nxt.offset_from(self.una)
    }

    /// The usable window at `nxt`, in bytes.
    pub(crate) fn usable(&self, nxt: SeqNumber) -> u32 {
        (self.una + self.window).distance(nxt).max(0).cast_unsigned()
    }

    /// Everything before `end` was sent.
    pub(crate) fn on_sent(&mut self, end: SeqNumber) {
        self.nxt = self.nxt.later_of(end);
        self.max = self.max.later_of(end);
    }

    /// A segment that was not full and ends at `end` was sent for the first time.
    pub(crate) fn on_small_sent(&mut self, end: SeqNumber) {
        self.small = end;
    }

    /// Whether the last such segment is not acknowledged.
    pub(crate) fn has_small_outstanding(&self) -> bool {
        self.small.is_after(self.una) && self.small.is_at_or_before(self.nxt)
    }

    /// SEG.ACK moved SND.UNA. Says by how much.
    pub(crate) fn on_ack(&mut self, ack: SeqNumber) -> u32 {
        let count = ack.offset_from(self.una);
        self.una = ack;
        self.nxt = self.nxt.later_of(ack);
        count
    }

    /// Takes the window of a segment that is not older than the one it was last taken from. Says
    /// whether it changed.
    ///
    /// RFC 9293, 3.10.7.4 compares SEG.SEQ first. Acknowledgments come first here: a retransmission
    /// has an old sequence number and may still bring the newest acknowledgment. By the letter it
    /// would move SND.UNA and leave SND.WND, and with it the right edge would move beyond what the
    /// peer ever offered.
    pub(crate) fn on_window(&mut self, sequence: SeqNumber, ack: SeqNumber, window: u32) -> bool {
        let newer =
            self.wl2.is_before(ack) || (self.wl2 == ack && self.wl1.is_at_or_before(sequence));
        if !newer {
            return false;
        }
        (self.wl1, self.wl2) = (sequence, ack);
        let changed = self.window != window;
        self.window = window;
        self.window_max = self.window_max.max(window);
        changed
    }

    /// Takes the window of the peer's SYN, which may acknowledge nothing.
    pub(crate) fn on_syn(&mut self, sequence: SeqNumber, window: u32) {
        (self.wl1, self.wl2) = (sequence, self.una);
        self.window = window;
        self.window_max = window;
    }
}
