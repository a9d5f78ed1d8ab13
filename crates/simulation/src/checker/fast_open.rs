//! The rules of TCP Fast Open (RFC 7413): who may send data with a SYN, and whose is taken.
//!
//! What a host may show as a client is what arrived in answers of that peer, and what it may believe as
//! a server is what it gave that peer itself, lately and in this life: a restart changes its key.

use super::{Broken, Syn};
use crate::packet::{Cookie, Segment, flag};
use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};
use time::{Duration, Instant};

/// A cookie is good for the step of six hours in which it was given and the one behind it; and an
/// answer may be sent again for a while.
const LIFETIME: Duration = Duration::from_secs(12 * 3_600 + 600);

/// The cookies that a host has seen.
#[derive(Debug, Default)]
pub(super) struct Cookies {
    /// What arrived, from which peer.
    arrived: BTreeSet<(IpAddr, Cookie)>,
    /// What was given, by which own address to which peer, and when last.
    given: BTreeMap<(IpAddr, IpAddr, Cookie), Instant>,
}

impl Cookies {
    /// A segment of a peer arrived intact.
    pub(super) fn on_arrived(&mut self, segment: &Segment<'_>) {
        if let Some(cookie) = segment.options.fast_open
            && segment.has(flag::SYN | flag::ACK)
        {
            self.arrived.insert((segment.source.ip(), cookie));
        }
    }

    /// A SYN without ACK goes out, for the first time or again.
    pub(super) fn on_syn_sent(&self, syn: &Segment<'_>, is_new: bool) -> Result<(), Broken> {
        let cookie = syn.options.fast_open.filter(|cookie| !cookie.is_empty());
        let peer = syn.destination.ip();
        if !syn.payload.is_empty() && cookie.is_none() {
            return Err((
                "RFC 7413, 4.1.3: data goes with a SYN that shows a cookie",
                syn.to_string(),
            ));
        }
        if cookie.is_some_and(|cookie| !self.arrived.contains(&(peer, cookie))) {
            return Err((
                "RFC 7413, 4.1.3: a client shows the cookie that the server gave it",
                syn.to_string(),
            ));
        }
        if !is_new && syn.options.fast_open.is_some() {
            return Err((
                "RFC 7413, 4.2.1: a SYN that is sent again goes without data and cookie",
                syn.to_string(),
            ));
        }
        Ok(())
    }

    /// A SYN-ACK goes out; `syns` arrived from its peer.
    pub(super) fn on_answer_sent(
        &mut self,
        now: Instant,
        answer: &Segment<'_>,
        syns: &[Syn],
    ) -> Result<(), Broken> {
        let (local, peer) = (answer.source.ip(), answer.destination.ip());
        let beyond = |syn: &Syn| answer.acknowledgment.wrapping_sub(syn.sequence.wrapping_add(1));
        let mut asked = syns.iter().filter(|syn| beyond(syn) <= syn.payload_len);
        let is_good = |syn: &Syn| {
            let given = syn.options.fast_open.and_then(|it| self.given.get(&(local, peer, it)));
            given.is_some_and(|at| now.since(*at) <= LIFETIME)
        };
        if asked.clone().any(|syn| beyond(syn) > 0) && !asked.clone().any(is_good) {
            return Err((
                "RFC 7413, 4.2.2: data of a SYN is taken from who shows a valid cookie",
                answer.to_string(),
            ));
        }
        let Some(cookie) = answer.options.fast_open else { return Ok(()) };
        if cookie.is_empty() || !asked.any(|syn| syn.options.fast_open.is_some()) {
            return Err((
                "RFC 7413, 4.1.2 and 4.2.2: a cookie is given to who asked or showed one",
                answer.to_string(),
            ));
        }
        self.given.insert((local, peer, cookie), now);
        Ok(())
    }
}
