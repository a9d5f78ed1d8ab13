//! The rules of explicit congestion notification (RFC 3168) for one end of a connection.
//!
//! Both SYNs agree on it. Then new data may be marked by routers, the receiver echoes a mark until the
//! sender says that it has reduced its window, and the sender says so with the next new data.

use super::Broken;
use crate::packet::{Segment, flag};

/// What a SYN says that asks for it, of ECE and CWR.
const ASKS: u8 = flag::ECE | flag::CWR;

/// Codepoints of the network header.
const NOT_ECT: u8 = 0;
const ECT_0: u8 = 2;
const CE: u8 = 3;

/// What one end has said and heard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ecn {
    /// What our SYN said last of ECE and CWR, and the peer's.
    ours: u8,
    theirs: Option<u8>,
    /// Our SYN was perhaps repeated without asking (6.1.1.1), and the repetition still waits for its neighbour.
    pub(super) may_be_given_up: bool,
    /// A mark arrived, and no news behind it that the peer's window was reduced.
    may_echo: bool,
    /// A mark arrived with data that was new and in order, and no such news since.
    must_echo: bool,
    /// The peer's FIN arrived, so what is missing before it was sent before, too.
    has_ended: bool,
    /// The end of the data that said last that the window was reduced.
    told: u64,
    /// What was sent when an echo arrived behind that.
    heard: Option<u64>,
    /// Another arrived when all that was acknowledged, so it is high time to say so.
    must_tell: bool,
    /// Our stream was acknowledged up to here when the peer said last that its window is closed. What a shift cannot say
    /// it may have closed behind an edge that it had told of before (RFC 7323, 2.4).
    shut_at: Option<u64>,
}

/// What a segment that goes out is among the others of its connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// It carries data that was never sent before, up to here.
    pub(super) new_to: Option<u64>,
    /// It acknowledges all that arrived: others may be of the time of what they acknowledge.
    pub(super) is_latest: bool,
}

impl Ecn {
    pub(super) fn on_syn_sent(&mut self, syn: &Segment<'_>) {
        self.ours = syn.flags & ASKS;
    }

    /// A SYN of the peer was answered, or its SYN-ACK arrived. RFC 3168, 6.1.1: of several SYNs each must have
    /// asked, but of those that a cookie stands for, or that may have been dropped, `any` may be the one.
    pub(super) fn on_peer_known(&mut self, flags: u8, any: bool) {
        let before = self.theirs.replace(flags & ASKS);
        if let (Some(before), Some(theirs)) = (before, &mut self.theirs) {
            *theirs = if any { *theirs | before } else { *theirs & before };
        }
    }

    /// Whether marks must be echoed and answered.
    fn is_surely_agreed(&self) -> bool {
        self.is_agreed() && !self.may_be_given_up
    }

    /// RFC 3168, 6.1.1: the SYN says both, the SYN-ACK ECE alone.
    fn is_agreed(&self) -> bool {
        matches!((self.ours, self.theirs), (ASKS, Some(flag::ECE)) | (flag::ECE, Some(ASKS)))
    }

    /// A segment of the peer arrived, which is not a SYN. `is_next`: its data is the next in order;
    /// `sent` and `acked` are where our stream stands.
    pub(super) fn on_arrived(
        &mut self,
        segment: &Segment<'_>,
        ecn: u8,
        is_next: bool,
        (sent, acked): (u64, u64),
    ) {
        if segment.has(flag::CWR) {
            self.may_echo &= !is_next;
            self.must_echo = false;
        }
        if ecn == CE {
            self.may_echo = true;
            self.must_echo |= is_next && self.is_surely_agreed() && !self.has_ended;
        }
        if segment.window == 0 {
            self.shut_at = Some(acked);
        }
        match self.heard {
            _ if !segment.has(flag::ECE) => self.heard = None,
            // It was told that by what is on its way, or there is nothing that could be reduced.
            _ if acked <= self.told || sent == acked => {}
            Some(at) => self.must_tell |= acked > at && self.is_surely_agreed(),
            None => self.heard = Some(sent),
        }
    }

    /// Whether the peer said that it takes nothing from here, so that a byte may be a probe (RFC 9293, 3.8.6.1).
    pub(super) fn is_shut_at(&self, position: u64) -> bool {
        self.shut_at == Some(position)
    }

    /// The peer said all, and can tell nothing more with new data.
    pub(super) fn on_end(&mut self) {
        (self.has_ended, self.must_echo) = (true, false);
    }

    /// A piece of some segment arrived with a mark, and nobody knows of which.
    pub(super) fn on_marked_piece(&mut self) {
        self.may_echo = true;
    }

    /// A segment goes out, which is neither SYN nor reset.
    pub(super) fn judge(
        &mut self,
        segment: &Segment<'_>,
        ecn: u8,
        place: Place,
    ) -> Result<(), Broken> {
        let broken = |rule| Err((rule, format!("{segment}: ECN bits {ecn}, {self:?}, {place:?}")));
        if (ecn != NOT_ECT || segment.flags & ASKS != 0) && !self.is_agreed() {
            return broken("RFC 3168, 6.1.1: nothing of ECN where the SYNs did not agree on it");
        }
        if ecn != NOT_ECT && ecn != ECT_0 {
            return broken("RFC 3168, 5: a sender says ECT(0), and marks are for routers");
        }
        if segment.has(flag::CWR) && place.new_to.is_none() {
            return broken("RFC 3168, 6.1.2: CWR goes with new data");
        }
        if segment.has(flag::ECE) && !self.may_echo && place.is_latest {
            return broken("RFC 3168, 6.1.3: an echo is of a mark, until the peer heard of it");
        }
        if !segment.has(flag::ECE) && self.must_echo && place.is_latest {
            return broken("RFC 3168, 6.1.3: a mark is echoed until the peer heard of it");
        }
        let Some(end) = place.new_to else { return Ok(()) };
        if segment.has(flag::CWR) {
            (self.told, self.heard, self.must_tell) = (end, None, false);
        } else if self.must_tell {
            return broken("RFC 3168, 6.1.2: who heard of a mark says so with the next new data");
        }
        Ok(())
    }
}
