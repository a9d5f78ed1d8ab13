//! TCP Fast Open (RFC 7413): data in the SYN, for who proved before that it is where it claims to be.
//!
//! ```text
//!   client                                       server
//!   SYN, cookie request                     ->
//!                                           <-   SYN-ACK, cookie
//!   ... another connection ...
//!   SYN, cookie, data                       ->   the connection is made, the data can be read
//!                                           <-   SYN-ACK that acknowledges the data, or only the SYN
//!                                           <-   the answer
//! ```
//!
//! To the sequence numbers, data in a SYN is like the byte of a zero-window probe: sent beyond
//! SND.NXT, for the peer to take or not. What the SYN-ACK does not acknowledge is new data; so nothing
//! is lost by a server that ignores it, and a SYN that must be sent again goes without it.
//!
//! The server answers without waiting: what its application writes goes behind the SYN-ACK, as much as the initial
//! window allows, and the answer is there after one round trip. The SYN-ACK is the handshake's own, so SND.UNA stands
//! behind the SYN from then on and what is in flight is data; a FIN waits for the handshake's end. When the SYN-ACK goes
//! again nobody has believed what followed it: it is lost, and goes again once the handshake is complete.
//!
//! Where cookies come from and are kept is the stack's: it knows addresses and connections that were.

use crate::config::Parameters;
use crate::connection::Connection;
use crate::event::Events;
use crate::receiver::queue::Arrival;
use crate::state::State;
use batch::{BlockPool, Chunk};
use time::Instant;
use wire::{SeqNumber, TCP_HEADER_LEN_MAX, TCP_HEADER_LEN_MIN, TcpFastOpen, TcpHeader};

/// The part of a connection that tries it.
#[derive(Debug, Default)]
pub(crate) struct FastOpen {
    /// What our SYN carries, or the SYN-ACK by which we accept.
    option: Option<TcpFastOpen>,
    /// The MSS the peer announced last, where data may go with the SYN; 0 where not.
    mss: u16,
    /// A SYN with the option or with data was lost.
    failed: bool,
    /// What the SYN-ACK brought.
    learned: Option<TcpFastOpen>,
    /// IRS of a connection whose SYN brought data.
    irs: Option<SeqNumber>,
}

/// What a connection learned of its peer's fast open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpenOutcome {
    /// A new cookie.
    pub cookie: Option<TcpFastOpen>,
    /// Data could go with the SYN.
    pub carried: bool,
    /// The peer's MSS, to be told with the cookie next time.
    pub mss: u16,
    /// The SYN with the option or with data was not answered, one without was: something on the path drops it.
    pub failed: bool,
}

impl Connection {
    /// The SYN will ask for a cookie, or show one, and then also carry queued data as far as `mss`,
    /// which the peer announced last, and the path allow. `None`: it carries data without a cookie, for a peer that
    /// is known to want none. For a connection whose SYN was not sent.
    pub fn offer_fast_open(&mut self, option: Option<TcpFastOpen>, mss: u16) {
        let asks = option.is_some_and(|option| option.cookie().is_empty());
        let mss = if asks { 0 } else { mss };
        self.fast_open = Some(Box::new(FastOpen { option, mss, ..FastOpen::default() }));
    }

    /// Passive open by a SYN with a valid cookie: as [`Connection::accept`], and its data can be read
    /// before the handshake is complete. The SYN-ACK brings `cookie`, where the one shown will be good no longer.
    #[must_use]
    pub fn accept_fast(
        parameters: Parameters,
        now: Instant,
        syn: &TcpHeader,
        data: Option<Chunk>,
        cookie: Option<TcpFastOpen>,
        pool: &BlockPool,
    ) -> Self {
        let mut connection = Self::accept(parameters, now, syn);
        let irs = Some(syn.sequence);
        connection.fast_open =
            Some(Box::new(FastOpen { option: cookie, irs, ..FastOpen::default() }));
        let room = connection.receiver.queue.window() as usize;
        if let Some(mut data) = data.filter(|data| !data.is_empty()) {
            data.truncate(room);
            let before = connection.receiver.queue.next();
            if connection.receiver.queue.insert(0, data, true, pool) == Arrival::InOrder {
                // Where the pool is low it is a part.
                let len = connection.receiver.queue.next().offset_from(before);
                connection.counters.bytes_received += u64::from(len);
                connection.counters.fast_open_bytes_received += u64::from(len);
                connection.totals.bytes_received += u64::from(len);
                connection.totals.data_segments_received += 1;
                connection.totals.syn_data = true;
                connection.events.insert(Events::READABLE);
            }
        }
        connection
    }

    /// What was learned, once the connection is established; given out once.
    pub fn take_fast_open_outcome(&mut self) -> Option<FastOpenOutcome> {
        let part = self.fast_open.take_if(|part| part.irs.is_none())?;
        let (mss, carried) = (self.negotiated.mss_peer(), part.mss > 0);
        Some(FastOpenOutcome { cookie: part.learned, carried, mss, failed: part.failed })
    }

    /// What our SYN carries, or our SYN-ACK: that of a connection we opened may cross the peer's SYN, and carries
    /// nothing.
    pub(crate) fn fast_open_option(&self, is_reply: bool) -> Option<TcpFastOpen> {
        let part = self.fast_open.as_deref()?;
        part.option.filter(|_| part.irs.is_some() == is_reply)
    }

    /// How many bytes go with the SYN.
    pub(crate) fn syn_data_len(&self) -> u32 {
        let Some(part) = self.fast_open.as_deref().filter(|part| part.mss > 0) else { return 0 };
        if self.state != State::SynSent {
            return 0;
        }
        // A SYN has no urgent pointer, and one for what it carried would come too late to be believed.
        if self.urgent.is_sending() {
            return 0;
        }
        self.sender.queue.len_of_segment(self.sender.sequence.iss + 1, self.room_with_syn(part))
    }

    /// How many bytes may go with the SYN that [`Connection::offer_fast_open`] prepared; 0 where none
    /// may.
    #[must_use]
    pub fn fast_open_room(&self) -> usize {
        let part = self.fast_open.as_deref().filter(|part| part.mss > 0);
        part.map_or(0, |part| self.room_with_syn(part) as usize)
    }

    /// Leaves room for all options that a header can have, as Linux does (`tcp_send_syn_data`): paths
    /// that add some of their own exist, and one that cannot is one that drops the SYN.
    fn room_with_syn(&self, part: &FastOpen) -> u32 {
        let mss = part.mss.min(self.negotiated.mss_send_max());
        let mss = self.negotiated.less_network_options(mss);
        u32::from(mss).saturating_sub((TCP_HEADER_LEN_MAX - TCP_HEADER_LEN_MIN) as u32)
    }

    /// RFC 7413, 4.2.1: a SYN that was lost goes again without data and option, which may be why.
    pub(crate) fn on_fast_open_timeout(&mut self) {
        let offers = |part: &&mut Box<FastOpen>| part.option.is_some() || part.mss > 0;
        if let Some(part) = self.fast_open.as_mut().filter(offers) {
            (part.option, part.mss, part.failed) = (None, 0, true);
        }
    }

    /// The SYN-ACK is here: what of the data it takes, and whether it brings a cookie.
    pub(crate) fn on_fast_open_reply(&mut self, header: &TcpHeader) {
        let Some(part) = &mut self.fast_open else { return };
        // What nobody asked for is not believed.
        let has_asked = part.option.is_some() || part.failed;
        let given = header.options.fast_open.filter(|option| !option.cookie().is_empty());
        part.learned = given.filter(|_| has_asked);
        // The answer to the first SYN after all, where it says anything of what only that had.
        part.failed &= part.learned.is_none();
        if header.acknowledgment.is_after(self.sender.sequence.una) {
            part.failed = false;
            self.sender.sequence.on_ack(header.acknowledgment);
            let taken = self.sender.queue.acknowledge(self.sender.sequence.una) as u64;
            self.counters.bytes_sent += taken;
            self.counters.bytes_acknowledged += taken;
            self.counters.fast_open_bytes_sent += taken;
            self.totals.bytes_sent += taken;
            self.totals.bytes_acknowledged += taken;
            self.totals.data_segments_sent += u64::from(taken > 0);
            self.totals.syn_data =
                taken > 0 && self.sender.sequence.una == self.sender.sequence.nxt;
        }
    }

    /// Whether this is the server's end, before the handshake is complete.
    pub(crate) fn is_opening_fast(&self) -> bool {
        self.state == State::SynReceived
            && self.fast_open.as_deref().is_some_and(|part| part.irs.is_some())
    }

    /// Whether data may follow the SYN-ACK at once (RFC 7413, 4.2.2): not once that was lost, or some of the data, which
    /// comes first. Nor where the peer cannot be reached for now: who has not heard the SYN-ACK believes nothing that
    /// follows it, so the rest waits for the handshake's end.
    pub(crate) fn answers_early(&self) -> bool {
        let is_whole = self.unanswered.syns == 0 && self.sender.recovery.lost_bytes() == 0;
        let is_unheard = self.unreachable.is_some();
        self.is_opening_fast() && !self.owing.syn && is_whole && !is_unheard
    }

    /// One past IRS, whatever came with the SYN.
    pub(crate) fn after_peer_syn(&self) -> SeqNumber {
        let irs = self.fast_open.as_ref().and_then(|part| part.irs);
        irs.map_or(self.receiver.queue.next(), |irs| irs + 1)
    }
}
