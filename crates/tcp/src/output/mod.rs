//! The one way out: plan, build, commit.
//!
//! `poll_transmit` walks through what the state calls for, in a fixed order, and appends each
//! segment to the batch; `on_transmitted` applies the first segments of that, as many as the device
//! took. Between the two the connection is as it was before, so what was not taken needs no undoing:
//! it is planned afresh from whatever the state is then.
//!
//! ```text
//!   poll_transmit:   plan (what is next?) -> build (write it, behind a stamp) -> Multidata
//!   on_transmitted:  commit (what the device took)
//! ```
//!
//! Every segment is written by [`build`] from a stamp, the header of this poll: within one call all
//! segments carry the same acknowledgment, window, timestamp and SACK blocks, so a segment costs a
//! copy of the stamp and two patched fields. Consecutive new segments of full size form
//! a run, and are decided on, written and committed together as far as their payload lies in one
//! block: a run of forty-four is one decision and one header.

mod build;
mod commit;
mod plan;
mod stamp;
mod super_frame;

use crate::connection::Connection;
use crate::receiver::acknowledging::Owed;
use crate::sender::queue::SendQueue;
use crate::sender::recovery::Again;
use batch::{Attributes, Checksum, Multidata};
use build::Builder;
use counters::MultidataRefusal;
use plan::Planner;
pub(crate) use stamp::Opening;
use stamp::Stamp;
use time::Instant;
use wire::{SeqNumber, TCP_CHECKSUM_OFFSET, TcpFlags};

/// What a planned segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reset,
    Syn,
    Again,
    New,
    /// A tail loss probe: new data, or the last segment again (RFC 8985, 7.3).
    LossProbe,
    /// New data, longer than the path is known to take (RFC 4821, 7).
    MtuProbe,
    WindowProbe,
    KeepaliveProbe,
    /// An ACK of an earlier number than the newest ([`crate::receiver::unstretched`]).
    Due,
    Ack,
}

/// A segment as decided, or several full ones of new data.
#[derive(Clone, Copy, Debug)]
struct Planned {
    kind: Kind,
    sequence: SeqNumber,
    /// Payload bytes of each.
    len: u32,
    /// How many follow each other; more than one of new data only, without FIN.
    count: u32,
    fin: bool,
    /// It lay in too many pieces, and is no shorter for want of data.
    is_cut: bool,
}

impl Planned {
    /// A single segment.
    fn one(kind: Kind, sequence: SeqNumber, len: u32, fin: bool) -> Self {
        Self { kind, sequence, len, count: 1, fin, is_cut: false }
    }

    /// What was sent before. The last number of a range may be the FIN's.
    fn again(kind: Kind, again: Again, queue: &SendQueue) -> Self {
        let len = again.len.min(queue.len_from(again.sequence));
        Self::one(kind, again.sequence, len, len < again.len)
    }

    /// Payload bytes of all.
    fn bytes(&self) -> u32 {
        self.len * self.count
    }

    /// One past the last sequence number.
    fn end(&self) -> SeqNumber {
        self.sequence + self.bytes() + u32::from(self.fin)
    }
}

/// What the last `poll_transmit` built. Kept between calls for its memory.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    segments: Vec<Planned>,
    acknowledgment: SeqNumber,
    window: u32,
    /// What `window` was before it was rounded to the header's unit, where an ACK is due.
    window_exact: u32,
    /// Payload bytes of a full segment, behind the options that it carried.
    full: u32,
    /// The peer's window held something back.
    window_closed: bool,
}

/// Planned segments that an idle connection keeps room for: one ACK.
const PLAN_KEPT: usize = 1;

impl Plan {
    fn clear(&mut self) {
        self.segments.clear();
        if self.segments.capacity() == 0 {
            self.segments.reserve_exact(PLAN_KEPT);
        }
    }

    /// The burst was the last for now: a connection that waits for work keeps no memory for it.
    pub(crate) fn release(&mut self) {
        if self.segments.capacity() > PLAN_KEPT {
            self.segments = Vec::new();
        }
    }
}

impl Connection {
    /// Whether [`Connection::poll_transmit`] has something to send now.
    #[must_use]
    pub fn wants_transmit(&self, now: Instant) -> bool {
        if self.state.is_synchronized()
            && self.owing.reset.is_none()
            && (self.receiver.acks.owed() == Owed::Now || self.receiver.acks.due_count() > 0)
        {
            // If nothing else goes out, the ACK does.
            return true;
        }
        if self.is_quiet() {
            debug_assert_eq!(Planner::at(self, now).next_segment(self).map(|it| it.kind), None);
            return false;
        }
        let plans = || Planner::at(self, now).next_segment(self).is_some();
        if self.goes_at_once(now) {
            debug_assert!(plans(), "nothing holds it back");
            return true;
        }
        plans()
    }

    /// Appends what the state calls for, as far as the batch has room, and says how many segments
    /// that are. Commits nothing: [`Connection::on_transmitted`] does, and must come before
    /// anything else is done with the connection, or not at all.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Multidata) -> usize {
        self.plan.clear();
        let window = self.receiver.window_field(&self.negotiated);
        self.plan.window = u32::from(window) << self.negotiated.receive_shift;
        self.plan.acknowledgment = self.receiver.queue.next();
        if self.receiver.acks.due_count() > 0 {
            let (mss, shift) =
                (self.negotiated.payload_max_receive(), self.negotiated.receive_shift);
            self.plan.window_exact = self.receiver.queue.window_to_announce(mss, shift);
        }
        let options = self.receiver.segment_options(now, &self.negotiated);
        let mut planner = Planner::at(self, now);
        let mut builder = Builder {
            attributes: Attributes {
                run: 0,
                checksum: Checksum::Missing { offset: TCP_CHECKSUM_OFFSET },
                ecn: 0,
            },
            stamp: Stamp::of(self, window, options),
            report: Stamp::of_report(self, now, window),
            due: 0,
            cursor: None,
            run_len: 0,
            flags: TcpFlags::ACK | self.receiver.mark_echo.flags(),
            new_data_ecn: self.sender.ecn.codepoint(),
            owes_cwr: self.sender.ecn.owes_cwr(),
        };
        let mut built = 0;
        while let Some(mut segment) = planner.next_segment(self) {
            let asked = segment.len;
            if !builder.push(self, now, &mut segment, out) {
                break;
            }
            if segment.len < asked {
                match segment.kind {
                    Kind::New | Kind::MtuProbe => planner.on_cut(&segment, asked),
                    // A probe of what was sent before moves nothing.
                    Kind::LossProbe if !segment.sequence.is_before(self.sender.sequence.nxt) => {
                        planner.on_cut(&segment, asked);
                    }
                    Kind::Again => {
                        planner.walk.on_shortened(segment.end(), asked - segment.len);
                    }
                    _ => {}
                }
            }
            if planner.may_lead(self, &segment, asked) {
                let more = planner.more_new(self);
                segment.count += builder.push_more(self, &segment, more, out);
                planner.on_more(&segment);
            }
            built += segment.count as usize;
            self.plan.segments.push(segment);
        }
        if self.config.push_bursts {
            self.push_burst(out);
        }
        self.sender.window_use.is_limited = planner.is_cwnd_limited();
        self.plan.window_closed = planner.window_closed;
        self.plan.full = planner.full;
        built
    }

    /// Why the connection has no more than one packet to send, by the conditions that seed 000, 4.4.3
    /// has for Multidata; `None` where they hold, or nothing waits to be sent.
    #[must_use]
    pub fn multidata_refusal(&self) -> Option<MultidataRefusal> {
        if !self.state.sends_data() {
            return Some(MultidataRefusal::NotEstablished);
        }
        let mss = self.negotiated.payload_max();
        match self.sender.unsent_len() {
            0 => None,
            _ if self.sender.sequence.usable(self.sender.sequence.nxt) < mss => {
                Some(MultidataRefusal::SmallWindow)
            }
            unsent if unsent < mss => Some(MultidataRefusal::SmallData),
            _ => None,
        }
    }

    /// Sets PSH on the last of several segments of new data ([`crate::Config::push_bursts`]).
    fn push_burst(&self, out: &mut Multidata) {
        let news = self.plan.segments.iter().rev();
        let news = news.take_while(|segment| segment.kind == Kind::New && segment.len > 0);
        if news.map(|segment| segment.count).sum::<u32>() > 1
            && let Some(header) = out.last_header_mut()
        {
            header[13] |= TcpFlags::PSH.0;
        }
    }
}
