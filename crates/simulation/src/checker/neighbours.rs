//! Who asks for whose hardware address, and who answers (ARP, and RFC 4861).

use super::Broken;
use core::net::IpAddr;
use std::collections::BTreeMap;
use time::{Duration, Instant};

/// RFC 1122, 2.3.2.1: requests for one address at most once per second; with room for a clock that
/// was not asked at the exact moment.
const REQUEST_INTERVAL_MIN: Duration = Duration::from_millis(900);

/// RFC 4861, 10: MAX_MULTICAST_SOLICIT, a second apart; whose answers do not come is given up then.
const REQUESTS: u32 = 3;

/// How long what was sent may have waited for an answer, or an answer for its turn.
const WAIT_MAX: Duration = Duration::from_secs(4);
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// Requests for an address.
#[derive(Clone, Copy, Debug)]
struct Asked {
    last_at: Instant,
    /// How many came since the last answer.
    in_vain: u32,
    /// Two of them came one after the other: what goes there may be given up unsent.
    silent: bool,
    /// When the last came of as many as it takes to give the neighbour up.
    given_up_at: Option<Instant>,
}

/// The neighbours of a host.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    asked: BTreeMap<IpAddr, Asked>,
    /// Who asked for which of the own addresses and was not answered, since when.
    owed: BTreeMap<IpAddr, (IpAddr, Instant)>,
    /// Who was answered, and when last.
    answered: BTreeMap<IpAddr, Instant>,
    /// Since when the host is on this link: who was asked before was asked elsewhere.
    linked_at: Option<Instant>,
}

impl Neighbours {
    /// The host asks for the address.
    pub(super) fn judge_request(&mut self, now: Instant, target: IpAddr) -> Result<(), Broken> {
        let before = self.asked.get(&target).copied();
        let is_here = |it: &Asked| self.linked_at.is_none_or(|at| it.last_at > at);
        let gap = before.filter(is_here).map(|before| now.since(before.last_at));
        let in_vain = before.map_or(0, |before| before.in_vain) + 1;
        let given_up_at = before.and_then(|before| before.given_up_at);
        self.asked.insert(
            target,
            Asked {
                last_at: now,
                in_vain,
                given_up_at: Some(now).filter(|_| in_vain >= REQUESTS).or(given_up_at),
                silent: before.is_some_and(|before| before.silent)
                    || gap.is_some_and(|gap| gap < 2 * REQUEST_INTERVAL_MIN),
            },
        );
        match gap {
            Some(gap) if gap < REQUEST_INTERVAL_MIN => Err((
                "RFC 1122, 2.3.2.1 and RFC 4861, 7.2.2: one request per second for an address",
                format!("{target} is asked for again after {gap:?}"),
            )),
            _ => Ok(()),
        }
    }

    /// Something was heard of the neighbour, perhaps an answer. Says whether it had been silent.
    pub(super) fn on_heard_of(&mut self, neighbour: IpAddr, is_answer: bool) -> bool {
        let Some(asked) = self.asked.get_mut(&neighbour) else { return false };
        if is_answer {
            asked.in_vain = 0;
        }
        core::mem::take(&mut asked.silent)
    }

    /// A neighbour asks for an address that the host has. What is for a group comes to each of the host's
    /// squeues, later to some, and one of them answers.
    pub(super) fn on_asked(&mut self, now: Instant, neighbour: IpAddr, address: IpAddr) {
        let is_fresh = |at: &Instant| now.since(*at) < REQUEST_INTERVAL_MIN;
        if !self.answered.get(&neighbour).is_some_and(is_fresh) {
            self.owed.entry(neighbour).or_insert((address, now));
        }
    }

    /// The host may be on another link.
    pub(super) fn on_link_changed(&mut self, now: Instant) {
        self.linked_at = Some(now);
    }

    /// The neighbour is told of an address.
    pub(super) fn on_answered(&mut self, now: Instant, neighbour: IpAddr) {
        self.owed.remove(&neighbour);
        self.answered.insert(neighbour, now);
    }

    pub(super) fn on_address_removed(&mut self, address: IpAddr) {
        self.owed.retain(|_, (owed, _)| *owed != address);
    }

    /// What goes to the neighbour may be given up unsent.
    pub(super) fn is_silent(&self, neighbour: IpAddr) -> bool {
        self.asked.get(&neighbour).is_some_and(|asked| asked.silent)
    }

    /// Whether what went to the neighbour lately may have been given up unsent, though something was heard of it since:
    /// who is given up stays so for a while, and whoever waits may learn of it late.
    pub(super) fn may_have_lost(&self, now: Instant, neighbour: IpAddr) -> bool {
        let is_late = |at| now.since(at) <= WAIT_MAX;
        self.is_silent(neighbour) || self.given_up_at(neighbour).is_some_and(is_late)
    }

    /// When the neighbour was asked for last: what goes to it may have waited since, or been given up.
    pub(super) fn asked_at(&self, neighbour: IpAddr) -> Option<Instant> {
        self.asked.get(&neighbour).map(|asked| asked.last_at)
    }

    /// When the neighbour may have been given up last, and what went to it was lost.
    pub(super) fn given_up_at(&self, neighbour: IpAddr) -> Option<Instant> {
        self.asked.get(&neighbour).and_then(|asked| asked.given_up_at)
    }

    /// The neighbour was asked for as often as it takes to give it up, lately, and nothing was heard of it.
    pub(super) fn has_asked_in_vain(&self, now: Instant, neighbour: IpAddr) -> bool {
        let asked = self.asked.get(&neighbour);
        asked.is_some_and(|it| it.in_vain >= REQUESTS && now.since(it.last_at) <= WAIT_MAX)
    }

    /// The neighbour asked and should have an answer by now.
    pub(super) fn owes_answer(&self, now: Instant, neighbour: IpAddr) -> bool {
        self.owed.get(&neighbour).is_some_and(|(_, at)| now.since(*at) > ANSWER_MAX)
    }
}
