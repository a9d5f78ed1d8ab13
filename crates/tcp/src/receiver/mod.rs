//! What one side of a connection receives with: what arrived and was not read, how much more may come, and what the peer
//! is to be told of it.
//!
//! It knows neither the state of the connection nor its own stream ([`crate::sender`]).

pub(crate) mod acknowledging;
pub(crate) mod assembler;
pub(crate) mod cuts;
pub(crate) mod duplicates;
pub(crate) mod queue;
pub(crate) mod unstretched;
pub(crate) mod window_tuning;

use crate::config::Config;
use crate::counters::Counting;
use crate::ecn::MarkEcho;
use crate::options::Negotiated;
use crate::receiver::acknowledging::{Acknowledging, Owed};
use crate::receiver::duplicates::Duplicates;
use crate::receiver::queue::{Arrival, ReceiveQueue};
use crate::receiver::window_tuning::WindowTuning;
use counters::DropReason;
use time::Instant;
use wire::{SackBlocks, SeqNumber, TcpFlags, TcpHeader, TcpOptions};

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) queue: ReceiveQueue,
    pub(crate) duplicates: Duplicates,
    pub(crate) window_tuning: WindowTuning,
    /// Last.ACK.sent (RFC 7323, 4.3).
    pub(crate) last_ack_sent: SeqNumber,
    pub(crate) acks: Acknowledging,
    pub(crate) mark_echo: MarkEcho,
}

impl Receiver {
    /// Nothing has arrived, not even the peer's SYN.
    pub(crate) fn new(config: &Config, on_same_subnet: bool, now: Instant) -> Self {
        let deferral = match on_same_subnet {
            true => config.deferred_acks_max_local,
            false => config.deferred_acks_max_remote,
        };
        let acks =
            Acknowledging::new(deferral, config.quick_acks, config.challenge_acks_per_second);
        Self {
            queue: ReceiveQueue::new(config.receive_buffer_first(), config.assembler),
            duplicates: Duplicates::default(),
            window_tuning: WindowTuning::new(now, config.receive_limit_bytes()),
            last_ack_sent: SeqNumber(0),
            acks: acks.with_each_quick(config.quick_acks_each).with_stretch(config.stretch_acks),
            mark_echo: MarkEcho::default(),
        }
    }

    /// Room was made, by reading or by a larger buffer.
    pub(crate) fn tell_of_window(&mut self, negotiated: &Negotiated, counters: &mut Counting) {
        // RFC 9293, 3.8.6.2.2: the peer hears of a re-opened window when it is worth a segment. An ACK
        // that is owed now, or due, says what the window is when it goes.
        let (mss, shift) = (negotiated.payload_max_receive(), negotiated.receive_shift);
        if self.acks.owed() != Owed::Now
            && self.acks.due_count() == 0
            && self.queue.wants_update(mss, shift)
        {
            self.acks.owe_now();
            counters.window_updates_sent += 1;
        }
    }

    /// The window to announce, as it stands in the header (RFC 7323, 2.2). Rounded down: the edge
    /// that was announced stays valid for what arrives ([`crate::receiver::queue`]).
    pub(crate) fn window_field(&self, negotiated: &Negotiated) -> u16 {
        let (mss, shift) = (negotiated.payload_max_receive(), negotiated.receive_shift);
        u16::try_from(self.queue.window_to_announce(mss, shift) >> shift).unwrap_or(u16::MAX)
    }

    /// Options of a segment that is not a SYN. RFC 2018, 4: SACK blocks go into every ACK for as
    /// long as something waits out of order.
    pub(crate) fn segment_options(&self, now: Instant, negotiated: &Negotiated) -> TcpOptions {
        let sack = match negotiated.sack {
            true => self.queue.sack_blocks(negotiated.sack_blocks_max()),
            false => SackBlocks::NONE,
        };
        negotiated.options(now, sack)
    }

    /// Payload of a full segment behind the options it would carry now (RFC 6691).
    pub(crate) fn payload_room(&self, negotiated: &Negotiated) -> u32 {
        if self.queue.has_gap() && negotiated.sack {
            // The clock does not change the length of the options.
            let options = self.segment_options(Instant::ZERO, negotiated).len_bytes() as u32;
            u32::from(negotiated.mss_send()).saturating_sub(options).max(1)
        } else {
            negotiated.payload_max()
        }
    }

    /// Owes a challenge ACK, within the rate limit (RFC 5961, 7).
    pub(crate) fn challenge(&mut self, now: Instant, counters: &mut Counting) {
        if self.acks.owe_challenge(now) {
            counters.challenge_acks += 1;
        } else {
            counters.challenge_acks_limited += 1;
        }
    }

    /// RFC 7323, 4.3 (2), for a segment with this header, which begins at `sequence`.
    #[inline]
    pub(crate) fn take_timestamp_of(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        sequence: SeqNumber,
        negotiated: &mut Negotiated,
    ) {
        if let (Some(ours), Some(theirs)) = (&mut negotiated.timestamps, header.options.timestamps)
            && !header.flags.contains(TcpFlags::RST)
        {
            let covers = sequence.is_at_or_before(self.last_ack_sent);
            ours.on_segment(now, theirs.value, covers);
        }
    }

    /// What arrived was not kept: says why.
    pub(crate) fn on_refused(&mut self, arrival: Arrival, counters: &mut Counting) -> DropReason {
        // As if it had been lost: an ACK now would only ask for it again at once.
        match arrival {
            Arrival::NoMemory => return DropReason::NoMemory,
            Arrival::TooMuchUnread => return DropReason::StreamsFull,
            _ => {}
        }
        if self.queue.has_gap() {
            counters.out_of_order_refused += 1;
        }
        self.acks.owe_now();
        DropReason::ReceiveBufferFull
    }
}
