//! The rules of TCP for one connection as one end sends it.
//!
//! Positions count from the initial sequence number: the SYN is at zero, the first byte at one.
//! Streams of a simulation are far shorter than 2 GiB, so a position is the plain difference of two
//! sequence numbers.

mod answering;
mod flights;
mod past;
mod peer_window;
mod resetting;

use super::early::Early;
use super::echoes::Echoes;
use super::ecn::{Ecn, Place};
use super::nagle::Nagle;
use super::ranges::Ranges;
use super::waits::{Patience, Stage, Waits};
use super::{Broken, Circumstances, Facts, Syn};
use crate::packet::{Options, Segment, flag};
use flights::Repeats;
use peer_window::PeerWindow;
use std::collections::VecDeque;
use time::{Duration, Instant};

/// Differences from here on are backwards.
const HALF: u32 = 1 << 31;

/// RFC 5961, 7 and 10: challenge ACKs are counted by the second.
const CHALLENGES_COUNTED_FOR: Duration = Duration::from_secs(1);
/// RFC 9293, 3.8.6.3: an ACK is delayed by less than half a second; and a squeue may be kept from running.
const ACK_DELAY_MAX: Duration = Duration::from_millis(600);

/// How long before an answer a neighbour may have been asked for last which it waits for.
const NEIGHBOUR_WAIT_MAX: Duration = Duration::from_secs(4);

/// One end of a connection as the wire shows it.
#[derive(Debug)]
pub(crate) struct Flow {
    iss: u32,
    irs: Option<u32>,
    ours: Options,
    theirs: Options,
    is_ipv6: bool,
    /// One past the last position sent.
    end: u64,
    /// One past the last position sent as data; the byte of a window probe is not.
    data_end: u64,
    /// The position of the FIN.
    fin: Option<u64>,
    /// What was sent and is not acknowledged, from `bytes_from` on.
    bytes: VecDeque<u8>,
    bytes_from: u64,
    /// SND.UP as the segments say it: one past the last urgent position, or where nothing was urgent 0.
    urgent_end: u64,
    /// The highest acknowledgment that arrived, and of those in segments that are surely acceptable.
    acked: u64,
    acked_surely: u64,
    peer_window: PeerWindow,
    /// What arrived of the peer's stream.
    arrived: Ranges,
    early: Early,
    /// Behind what may be the byte of a probe of our closed window, until the peer goes on from there.
    probed_to: Option<u64>,
    /// Where our window was closed last.
    closed_at: Option<u64>,
    /// The highest acknowledgment sent, and the highest right edge announced.
    ack_sent: u64,
    edge_sent: u64,
    value_sent: Option<u32>,
    echoes: Echoes,
    /// Another SYN-ACK than the first, while none was answered: the first may have come to nobody.
    other_answer: Option<(u32, Options)>,
    /// It has said something other than SYNs and resets.
    spoke_at: Option<Instant>,
    reset_sent: bool,
    /// When the first reset went out, and what was waited for then.
    at_reset: Option<(Instant, Waits)>,
    /// What it waited for when the last segment arrived.
    waits_before: Waits,
    /// One that is to be obeyed: it names the next byte (RFC 5961, 3.2).
    reset_heard: bool,
    /// A reset refused a segment before anything was said.
    has_refused: bool,
    waits: Waits,
    /// Since when a segment that is to be answered waits for it: one with data, or from below what had
    /// arrived, as a keepalive probe is.
    owes_since: Option<Instant>,
    /// When something left last that says what had arrived.
    told_at: Option<Instant>,
    ecn: Ecn,
    nagle: Nagle,
    /// One past what went with the first SYN.
    syn_end: u64,
    /// Nothing has arrived since data was sent first.
    is_first_flight: bool,
    /// The position of the peer's FIN.
    peer_fin: Option<u64>,
    /// Segments were given up unsent, for a neighbour that did not answer.
    may_skip: bool,
    is_passive: bool,
    repeats: Option<Repeats>,
    /// Where the last segment carried data that was never sent before: for how long nothing new had been sent or
    /// acknowledged.
    sent_new: Option<Duration>,
    /// When something new was sent or acknowledged last.
    moved_at: Instant,
}

impl Flow {
    /// A connection whose first SYN this is.
    pub(crate) fn new(syn: &Segment<'_>) -> Self {
        Self {
            iss: syn.sequence,
            irs: None,
            ours: syn.options,
            theirs: Options::default(),
            is_ipv6: syn.source.is_ipv6(),
            end: 0,
            data_end: 0,
            fin: None,
            bytes: VecDeque::new(),
            bytes_from: 1,
            urgent_end: 0,
            acked: 0,
            acked_surely: 0,
            peer_window: PeerWindow::default(),
            arrived: Ranges::default(),
            early: Early::default(),
            probed_to: None,
            closed_at: None,
            ack_sent: 0,
            edge_sent: 0,
            value_sent: None,
            echoes: Echoes::default(),
            other_answer: None,
            spoke_at: None,
            reset_sent: false,
            at_reset: None,
            waits_before: Waits::default(),
            reset_heard: false,
            has_refused: false,
            waits: Waits::default(),
            owes_since: None,
            told_at: None,
            ecn: Ecn::default(),
            nagle: Nagle::default(),
            syn_end: 1 + syn.payload.len() as u64,
            is_first_flight: true,
            peer_fin: None,
            may_skip: false,
            is_passive: syn.has(flag::ACK),
            repeats: None,
            sent_new: None,
            moved_at: Instant::ZERO,
        }
    }

    /// Whether nothing of ours was acknowledged.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.acked == 0
    }

    /// Whether the segment goes on with what was sent behind the SYN, sends some of it again, or is a keepalive probe,
    /// which stands where the SYN did if nothing was.
    pub(crate) fn has_place_for(&self, segment: &Segment<'_>) -> bool {
        (1..=self.end).contains(&self.position(segment.sequence)) || self.is_probe(segment)
    }

    /// RFC 9293, 3.8.4: a keepalive probe stands one before what the peer expects.
    fn is_probe(&self, segment: &Segment<'_>) -> bool {
        segment.is_empty() && self.position(segment.sequence) + 1 == self.acked
    }

    /// What is sent next is not sent by a timer.
    pub(crate) fn forget_repeats(&mut self) {
        self.repeats = None;
    }

    /// The neighbour is asked for, so what the timer would send may wait.
    pub(crate) fn on_neighbour_asked(&mut self) {
        if let Some(repeats) = &mut self.repeats {
            repeats.has_waited = true;
        }
    }

    /// Whether this is the other end of the same connection.
    pub(crate) fn is_other_end_of(&self, other: &Self) -> bool {
        self.is_joined_to(other.numbers())
    }

    /// The initial sequence numbers, its own first.
    pub(crate) fn numbers(&self) -> (u32, Option<u32>) {
        (self.iss, self.irs)
    }

    /// Whether these are the numbers of the other end of the same connection.
    pub(crate) fn is_joined_to(&self, (iss, irs): (u32, Option<u32>)) -> bool {
        self.irs == Some(iss) && irs == Some(self.iss)
    }

    /// Whether this end has waited for the peer long enough to give up.
    pub(crate) fn has_waited_in_vain(
        &self,
        now: Instant,
        patience: Patience,
        asked_at: Option<Instant>,
    ) -> bool {
        let is_in_vain =
            |now, waits: &Waits| waits.is_in_vain(now, patience, self.stage(), asked_at);
        // What arrives behind its reset says nothing of why it was sent.
        is_in_vain(now, &self.waits) || self.at_reset.is_some_and(|(at, it)| is_in_vain(at, &it))
    }

    /// Whether this end gave the connection up by a reset when it had waited long enough.
    pub(crate) fn has_given_up(&self, patience: Patience, asked_at: Option<Instant>) -> bool {
        let waited =
            |(at, waits): (Instant, Waits)| waits.is_in_vain(at, patience, self.stage(), asked_at);
        self.reset_sent && self.at_reset.is_some_and(waited)
    }

    fn stage(&self) -> Stage {
        match (self.irs, self.is_passive && self.acked_surely == 0) {
            (None, _) => Stage::Opening,
            (Some(_), true) => Stage::Answering,
            (Some(_), false) => Stage::Open,
        }
    }

    /// Whether a reset refused a segment before this end said anything, as behind a SYN cookie.
    pub(crate) fn has_refused(&self) -> bool {
        self.has_refused
    }

    /// What it has sent and heard, in short.
    pub(crate) fn describe(&self) -> String {
        let Self { end, acked, ack_sent, waits, owes_since, .. } = self;
        let arrived = self.arrived.contiguous();
        format!(
            "sent {end}, acknowledged {acked}, arrived {arrived}, of which {ack_sent}, {waits:?}, \
             owes an answer since {owes_since:?}"
        )
    }

    /// When its first SYN went out.
    pub(crate) fn began_at(&self) -> Option<Instant> {
        self.waits.syn_at()
    }

    /// When anything of the connection arrived last.
    pub(crate) fn arrived_at(&self) -> Option<Instant> {
        self.waits.arrived_at()
    }

    /// What is left of the window that this end announced last, where it expects this number next.
    pub(crate) fn window_left(&self, next: u32) -> u64 {
        self.edge_sent.saturating_sub(self.peer_position(next))
    }

    /// What goes out next may have been given up unsent in part.
    pub(crate) fn let_skip(&mut self) {
        self.may_skip = true;
    }

    /// A piece of a segment arrived with a mark of congestion.
    pub(crate) fn on_marked_piece(&mut self) {
        self.ecn.on_marked_piece();
    }

    /// Whether this end ended the connection by a reset.
    pub(crate) fn has_sent_reset(&self) -> bool {
        self.reset_sent
    }

    /// Whether a reset arrived that this end has to obey.
    pub(crate) fn has_heard_reset(&self) -> bool {
        self.reset_heard
    }

    pub(crate) fn iss(&self) -> u32 {
        self.iss
    }

    /// A SYN goes out, perhaps with data (RFC 7413).
    pub(crate) fn on_syn_sent(
        &mut self,
        now: Instant,
        syn: &Segment<'_>,
        is_new: bool,
        mtu: usize,
    ) -> Result<(), Broken> {
        let headers = if self.is_ipv6 { 60 } else { 40 };
        match syn.options.mss {
            Some(mss) if usize::from(mss) + headers <= mtu => {}
            mss => {
                let what = format!("{mss:?} over an MTU of {mtu}");
                return Err(("RFC 9293, 3.7.1, MUST-14 and MUST-67: an MSS that fits", what));
            }
        }
        if !is_new {
            self.judge_backoff(now, 0, 1, true)?;
        } else {
            self.repeats = Some(Repeats::new(now, 0, 1));
        }
        self.waits.on_syn_sent(now);
        self.forget_debts();
        self.ecn.on_syn_sent(syn);
        self.ours = syn.options;
        self.value_sent = syn.options.timestamps.map(|(value, _)| value).or(self.value_sent);
        self.end = self.end.max(1 + syn.payload.len() as u64);
        if self.bytes.is_empty() {
            self.bytes.extend(syn.payload);
        }
        Ok(())
    }

    /// A SYN-ACK goes out again: what acknowledged it was not taken, perhaps for want of memory.
    pub(crate) fn on_answer_repeated(&mut self) {
        self.acked_surely = 0;
    }

    /// A SYN-ACK goes out in answer to `syn`, the last of `syns`.
    pub(crate) fn on_answer_sent(
        &mut self,
        segment: &Segment<'_>,
        syn: &Syn,
        syns: &[Syn],
        facts: Facts,
    ) -> Result<(), Broken> {
        let (ours, theirs) = (&segment.options, &syn.options);
        let unasked = (ours.window_scale.is_some() && theirs.window_scale.is_none())
            || (ours.timestamps.is_some() && theirs.timestamps.is_none())
            || (ours.sack_permitted && !theirs.sack_permitted);
        if unasked {
            return Err((
                "RFC 7323, 1.3 and RFC 2018, 2: a SYN-ACK offers only what the SYN did",
                segment.to_string(),
            ));
        }
        self.ecn.on_peer_known(syn.flags, facts.cookies || facts.drops);
        if self.irs != Some(syn.sequence) {
            self.on_peer_known(syn.sequence, syn.options);
            self.peer_window.on_told(1, syn.window.into(), true);
        }
        // What waited for its neighbour was made for the first of several.
        let same = syns.iter().filter(|it| it.sequence == syn.sequence);
        let stamps = same.filter_map(|it| it.options.timestamps);
        stamps.for_each(|(value, _)| self.echoes.on_arrived(value, None));
        self.ack_sent = self.ack_sent.max(self.peer_position(segment.acknowledgment));
        // What came with the SYN and is not acknowledged was not taken (RFC 7413, 4.2.2).
        self.arrived.add(1, self.ack_sent);
        self.edge_sent = self.edge_sent.max(self.ack_sent + u64::from(segment.window));
        Ok(())
    }

    /// A segment that is neither SYN nor RST goes out.
    /// Where the neighbour did not answer, segments may have been given up before the device saw
    /// them, as if they had been lost behind it: then `may_skip` says so.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        ecn: u8,
        circumstances: Circumstances,
    ) -> Result<(), Broken> {
        let position = self.position(segment.sequence);
        let may_skip = self.may_skip || circumstances.may_skip;
        if may_skip && position > self.end && position < u64::from(HALF) {
            self.may_skip = false;
            self.waits.on_unseen();
            self.bytes.clear();
            self.bytes_from = position;
            self.end = position;
        }
        let speaks_first = self.spoke_at.is_none();
        self.spoke_at.get_or_insert(now);
        if speaks_first && self.is_passive {
            self.forget_refusals();
        }
        if self.reset_sent || self.irs.is_none() {
            return Err((
                "RFC 9293, 3.10.7.1: nothing but resets after a reset, or before the peer's SYN",
                segment.to_string(),
            ));
        }
        if speaks_first
            && let Some((irs, options)) = self.other_answer.take()
            && segment.acknowledgment == irs.wrapping_add(1)
        {
            self.on_peer_known(irs, options);
        }
        let is_late = self.owes_answer(now, circumstances.asked_at) && !circumstances.host.drops;
        self.owes_since = None;
        self.told_at = Some(now);
        if is_late {
            return Err((
                "RFC 9293, 3.8.6.3: an ACK is delayed by less than half a second",
                segment.to_string(),
            ));
        }
        self.judge_acknowledgment(segment)?;
        self.judge_options(segment, circumstances.host.drops)?;
        self.judge_sequence(segment)?;
        self.judge_urgent(segment)?;
        self.judge_flight(now, segment, circumstances)?;
        self.judge_data(now, segment, circumstances)?;
        self.waits.on_sent(now, self.end > self.acked, self.is_probe(segment));
        self.judge_ecn(segment, ecn, circumstances)
    }

    /// The peer's MSS.
    fn mss(&self) -> u16 {
        self.theirs.mss.unwrap_or(if self.is_ipv6 { 1_220 } else { 536 }).max(64)
    }

    fn judge_acknowledgment(&mut self, segment: &Segment<'_>) -> Result<(), Broken> {
        let ack = self.peer_position(segment.acknowledgment);
        let text = |more: &str| format!("{segment}: {more}");
        if ack > self.arrived.contiguous() {
            let what = text(&format!("{ack} of {}", self.arrived.contiguous()));
            return Err(("RFC 9293, 3.4: only what arrived is acknowledged", what));
        }
        if ack < self.ack_sent {
            let what = text(&format!("{ack} after {}", self.ack_sent));
            return Err(("RFC 9293, 3.4: an acknowledgment never goes back", what));
        }
        self.ack_sent = ack;
        // What a shift cannot say is cut off (RFC 7323, 2.3).
        let shift = self.shifts().0;
        let edge = ack + (u64::from(segment.window) << shift);
        if edge + (1 << shift) <= self.edge_sent {
            let what = text(&format!("edge {edge} after {}", self.edge_sent));
            return Err(("RFC 9293, 3.8.6: the window's right edge does not shrink", what));
        }
        self.edge_sent = self.edge_sent.max(edge);
        if segment.window == 0 {
            self.closed_at = Some(ack);
        }
        Ok(())
    }

    fn judge_options(&mut self, segment: &Segment<'_>, drops: bool) -> Result<(), Broken> {
        let agreed = self.ours.timestamps.is_some() && self.theirs.timestamps.is_some();
        if agreed != segment.options.timestamps.is_some() {
            let rule = "RFC 7323, 3.2: timestamps in every segment once agreed on, else in none";
            return Err((rule, segment.to_string()));
        }
        if let Some((value, echo)) = segment.options.timestamps {
            if self.value_sent.is_some_and(|before| value.wrapping_sub(before) >= HALF) {
                let what = format!("{segment}: after {:?}", self.value_sent);
                return Err(("RFC 7323, 5.4: the timestamp clock does not go back", what));
            }
            self.value_sent = Some(value);
            self.echoes.judge(segment, echo, (self.ack_sent, !drops))?;
        }
        self.judge_sack(segment)
    }

    fn judge_sack(&self, segment: &Segment<'_>) -> Result<(), Broken> {
        let blocks: Vec<_> = segment
            .options
            .sack
            .iter()
            .flatten()
            .map(|(start, end)| (self.peer_position(*start), self.peer_position(*end)))
            .collect();
        if blocks.is_empty() {
            return Ok(());
        }
        if !(self.ours.sack_permitted && self.theirs.sack_permitted) {
            return Err((
                "RFC 2018, 4: SACK only where the peer permitted it",
                segment.to_string(),
            ));
        }
        let ack = self.peer_position(segment.acknowledgment);
        for (index, (start, end)) in blocks.iter().copied().enumerate() {
            // RFC 2883, 4: the first block may tell of a duplicate, below the acknowledgment or
            // within the second block.
            let within = |other: &(u64, u64)| other.0 <= start && end <= other.1;
            let is_duplicate = index == 0 && (end <= ack || blocks.get(1).is_some_and(within));
            let known = start < end && self.arrived.contains(start, end);
            if !known || (start <= ack && !is_duplicate) {
                let what = format!("{segment}: block {start}..{end}, ack {ack}");
                return Err(("RFC 2018, 3 and 4: SACK blocks are of what arrived and waits", what));
            }
        }
        Ok(())
    }

    fn judge_sequence(&mut self, segment: &Segment<'_>) -> Result<(), Broken> {
        let position = self.position(segment.sequence);
        let end = position + u64::from(segment.len());
        let text = |more: &str| format!("{segment}: {more}");
        if position > self.end {
            let what = text(&format!("at {position}, sent up to {}", self.end));
            return Err(("RFC 9293, 3.4: sequence numbers leave nothing out", what));
        }
        if self.fin.is_some_and(|fin| end > fin + 1) {
            let what = text(&format!("FIN was at {:?}", self.fin));
            return Err(("RFC 9293, 3.6: nothing is sent behind a FIN", what));
        }
        if segment.has(flag::FIN) {
            if self.fin.is_none() && end < self.end {
                return Err(("RFC 9293, 3.6: a FIN stands behind all data", text("it moved")));
            }
            if self.fin.is_some_and(|fin| fin + 1 != end) {
                return Err(("RFC 9293, 3.6: a FIN keeps its place", text("it moved")));
            }
        }
        // RFC 9293, 3.8.6.1: a probe of a closed window is one byte. A FIN needs no room in a buffer.
        let (data_end, is_probe) = (position + segment.payload.len() as u64, segment.len() == 1);
        if !segment.payload.is_empty() && data_end > self.peer_window.edge + u64::from(is_probe) {
            let what = text(&format!("ends at {end}, the window at {}", self.peer_window.edge));
            return Err(("RFC 9293, 3.8.6: nothing beyond the offered window", what));
        }
        let mss = usize::from(self.mss());
        let options_len = segment.header_len - 20;
        if segment.payload.len() + options_len > mss.max(options_len + 1) {
            let what = text(&format!("{options_len} bytes of options, the MSS is {mss}"));
            return Err(("RFC 6691, 2: payload and options fit the peer's MSS", what));
        }
        Ok(())
    }

    fn judge_urgent(&mut self, segment: &Segment<'_>) -> Result<(), Broken> {
        let position = self.position(segment.sequence);
        let text = |more: &str| format!("{segment}: {more}");
        if !segment.has(flag::URG) {
            let is_before = position < self.urgent_end && self.acked < self.urgent_end;
            return match is_before && !segment.payload.is_empty() {
                true => Err((
                    "RFC 9293, 3.10.4: segments say what is urgent until it is acknowledged",
                    text(&format!("urgent up to {}", self.urgent_end)),
                )),
                false => Ok(()),
            };
        }
        let end = position + u64::from(segment.urgent);
        if segment.urgent == 0 || self.fin.is_some_and(|fin| end > fin) {
            let rule = "RFC 9293, 3.8.5, MUST-62: the pointer names the byte behind urgent data";
            return Err((rule, text(&format!("FIN was at {:?}", self.fin))));
        }
        // MUST-31: what a pointer cannot reach is pointed towards.
        if end < self.urgent_end && segment.urgent < u16::MAX {
            let rule = "RFC 9293, 3.8.5: what was urgent stays urgent until it is acknowledged";
            return Err((rule, text(&format!("urgent up to {}", self.urgent_end))));
        }
        self.urgent_end = self.urgent_end.max(end);
        Ok(())
    }

    fn judge_ecn(
        &mut self,
        segment: &Segment<'_>,
        ecn: u8,
        circumstances: Circumstances,
    ) -> Result<(), Broken> {
        let position = self.position(segment.sequence);
        let end = position + segment.payload.len() as u64;
        // 6.1.6: a probe of a closed window is neither ECN-capable nor says CWR, nor is it the sending of its byte.
        let is_shut = end > self.peer_window.edge || self.ecn.is_shut_at(position);
        let is_probe = segment.payload.len() == 1 && ecn == 0 && is_shut;
        let is_new = !segment.payload.is_empty() && end > self.data_end && !is_probe;
        let new_to = Some(end).filter(|_| is_new);
        let is_latest = self.ack_sent == self.arrived.contiguous() && !circumstances.host.drops;
        self.ecn.judge(segment, ecn, Place { new_to, is_latest })?;
        if ecn != 0 && position < self.data_end {
            let what = format!("{segment}: ECN bits {ecn}, sent up to {}", self.data_end);
            return Err(("RFC 3168, 6.1.5: what is sent again is not ECN-capable", what));
        }
        // A single byte that is not ECN-capable may be a window probe (6.1.6), which is not yet
        // the sending of that byte.
        if ecn != 0 || segment.payload.len() > 1 {
            self.data_end = self.data_end.max(position + segment.payload.len() as u64);
        }
        Ok(())
    }

    fn judge_data(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        circumstances: Circumstances,
    ) -> Result<(), Broken> {
        let position = self.position(segment.sequence);
        let end = position + u64::from(segment.len());
        if !segment.is_empty() {
            let last_at = self.repeats.as_ref().map(|repeats| repeats.last_at);
            let may_wait = circumstances
                .asked_at
                .is_some_and(|at| last_at.is_none_or(|last_at| at + NEIGHBOUR_WAIT_MAX > last_at));
            self.judge_backoff(now, position, segment.len(), may_wait)?;
        }
        let payload_end = position + segment.payload.len() as u64;
        let held_end = self.bytes_from + self.bytes.len() as u64;
        for at in position.max(self.bytes_from)..payload_end.min(held_end) {
            let sent = self.bytes[(at - self.bytes_from) as usize];
            if sent != segment.payload[(at - position) as usize] {
                let what = format!("{segment}: differs at {at}");
                return Err(("RFC 9293, 3.4: a retransmission carries the same bytes", what));
            }
        }
        if payload_end > held_end {
            let skip = held_end.saturating_sub(position) as usize;
            self.bytes.extend(&segment.payload[skip.min(segment.payload.len())..]);
        }
        if segment.has(flag::FIN) {
            self.fin = Some(end - 1);
        }
        let is_new = !segment.payload.is_empty() && end > self.end;
        self.sent_new = is_new.then(|| now.since(self.moved_at));
        if is_new {
            self.moved_at = now;
        }
        self.end = self.end.max(end);
        Ok(())
    }

    /// A segment of the peer arrived intact.
    pub(crate) fn on_arrived(&mut self, now: Instant, segment: &Segment<'_>, ecn: u8) {
        let may_have_repeated = self.repeats.take().is_some_and(|it| it.has_waited);
        if !self.is_of_the_past(segment) && !segment.has(flag::RST) {
            self.waits_before = self.waits;
            self.waits.on_arrived(now);
        }
        self.is_first_flight &= self.end <= 1;
        if segment.has(flag::RST) {
            return self.on_reset_arrived(now, segment);
        }
        if segment.has(flag::SYN | flag::ACK)
            && self.irs.is_none()
            && self.position(segment.acknowledgment) >= 1
            && self.position(segment.acknowledgment) <= self.end
        {
            self.on_peer_known(segment.sequence, segment.options);
            self.ecn.on_peer_known(segment.flags, false);
            self.ecn.may_be_given_up = may_have_repeated;
        }
        let is_other = self.irs.is_some_and(|irs| irs != segment.sequence);
        if segment.has(flag::SYN | flag::ACK)
            && is_other
            && self.spoke_at.is_none()
            && !self.is_passive
        {
            self.other_answer = Some((segment.sequence, segment.options));
            self.peer_window.on_told(1, segment.window.into(), true);
        }
        let is_syn = segment.has(flag::SYN);
        let Some(irs) = self.irs else { return self.early.keep(segment) };
        if is_syn && segment.sequence != irs {
            return;
        }
        let start = self.peer_position(segment.sequence);
        let before = self.arrived.contiguous();
        // The window may be open again, and the prober not have heard.
        if segment.len() == 1 && start == before && self.closed_at == Some(start) {
            self.probed_to = Some(start + 1);
        } else if self.probed_to.is_some_and(|end| (end..u64::from(HALF)).contains(&start)) {
            self.probed_to = None;
        }
        if self.asks_for_answer(now, segment, start) {
            self.owes_since.get_or_insert(now);
        }
        // Nor is anything that comes with the same SYN again.
        if start < u64::from(HALF) && !(is_syn && self.is_passive) {
            self.arrived.add(start, start + u64::from(segment.len()));
        }
        if segment.has(flag::ACK) {
            self.take_acknowledgment(now, segment, before);
        }
        // What came out of order may have been dropped for want of room, so only who has said that it expects
        // this one surely takes it.
        let data_end = start + segment.payload.len() as u64;
        let is_next = start == before && start == self.ack_sent && !segment.payload.is_empty();
        let is_next = is_next && !self.is_half_open() && data_end <= self.edge_sent && !is_syn;
        let is_next = is_next && !self.may_be_too_old(segment);
        if let Some((value, _)) = segment.options.timestamps {
            self.echoes.on_arrived(value, Some(data_end).filter(|_| is_next));
        }
        if !is_syn {
            self.ecn.on_arrived(segment, ecn, is_next, (self.end, self.acked));
            if segment.has(flag::FIN) {
                self.ecn.on_end();
                self.peer_fin = Some(data_end);
            }
        }
    }

    /// What it says of our stream; the peer's had come up to `before`.
    fn take_acknowledgment(&mut self, now: Instant, segment: &Segment<'_>, before: u64) {
        let (start, is_syn) = (self.peer_position(segment.sequence), segment.has(flag::SYN));
        let ack = self.position(segment.acknowledgment);
        if ack > self.end {
            return;
        }
        let shift = if is_syn { 0 } else { self.shifts().1 };
        let window = u64::from(segment.window) << shift;
        self.peer_window.on_told(ack, window, is_syn);
        // RFC 9293, 3.10.7.4: of what lies before RCV.NXT, as a keepalive probe does, nothing is looked at.
        let is_old = !is_syn && start < before && start + u64::from(segment.len()) <= before;
        self.on_acknowledged(now, ack, !is_old);
    }

    fn on_acknowledged(&mut self, now: Instant, ack: u64, surely: bool) {
        if ack > self.acked {
            self.moved_at = now;
        }
        if surely && ack > self.acked_surely {
            self.acked_surely = ack;
            self.waits.on_acknowledged(now, ack == self.end);
        }
        self.acked = self.acked.max(ack);
        let gone = self.acked.saturating_sub(self.bytes_from).min(self.bytes.len() as u64);
        self.bytes.drain(..gone as usize);
        self.bytes_from += gone;
    }

    fn on_peer_known(&mut self, irs: u32, options: Options) {
        self.irs = Some(irs);
        self.theirs = options;
        self.arrived = Ranges::default();
        self.arrived.add(0, 1);
        self.echoes.on_syn(options.timestamps.map(|(value, _)| value));
        for said in self.early.take() {
            let start = self.peer_position(said.sequence);
            if start < u64::from(HALF) {
                self.arrived.add(start, start + u64::from(said.len));
                said.timestamp.into_iter().for_each(|it| self.echoes.on_arrived(it, None));
            }
            let ack = self.position(said.acknowledgment);
            // Perhaps nobody has seen it, so it is no measure of what is a small segment.
            if ack <= self.end {
                let edge = ack + (u64::from(said.window) << self.shifts().1);
                self.peer_window.edge = self.peer_window.edge.max(edge);
            }
        }
    }

    /// Shifts of our window and of the peer's (RFC 7323, 2.2: both or none).
    fn shifts(&self) -> (u8, u8) {
        match (self.ours.window_scale, self.theirs.window_scale) {
            (Some(ours), Some(theirs)) => (ours.min(14), theirs.min(14)),
            _ => (0, 0),
        }
    }

    fn position(&self, sequence: u32) -> u64 {
        u64::from(sequence.wrapping_sub(self.iss))
    }

    fn peer_position(&self, sequence: u32) -> u64 {
        u64::from(sequence.wrapping_sub(self.irs.unwrap_or(sequence)))
    }
}
