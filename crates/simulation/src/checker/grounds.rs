//! What the wire shows of the reasons for an error: that who gives up has waited, that who is asked has
//! answered, that a reset arrived.

use super::waits::R2_SYN_ACK_MIN;
use super::{Checker, Flow, Patience, Watched};
use core::net::SocketAddr;
use time::{Duration, Instant};

/// How long an announcement may wait for a neighbour, or is missing that was given up with it.
const ANNOUNCEMENT_MAX: Duration = Duration::from_secs(130);

/// A connection, and which hosts have its ends.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The host of this end, and that of the other.
    pub hosts: [usize; 2],
    /// This end's address, and the other's.
    pub ends: (SocketAddr, SocketAddr),
    /// The initial sequence number of who opened it: others may have had the same ends.
    pub iss: u32,
}

impl Line {
    /// The same, seen from the other end.
    #[must_use]
    pub fn turned(self) -> Self {
        let (hosts, ends) = ([self.hosts[1], self.hosts[0]], (self.ends.1, self.ends.0));
        Self { hosts, ends, ..self }
    }
}

impl Checker {
    fn watched(&self, line: Line) -> &Watched {
        &self.hosts[line.hosts[0]]
    }

    /// The connection as this end sends it, where the last one of these ends is still this one.
    fn flow(&self, line: Line) -> Option<&Flow> {
        let flow = self.watched(line).flows.get(&line.ends)?;
        let (iss, irs) = flow.numbers();
        (iss == line.iss || irs == Some(line.iss)).then_some(flow)
    }

    /// Whether the wire still shows this connection, and not a later one of the same ends.
    #[must_use]
    pub fn knows(&self, line: Line) -> bool {
        self.flow(line).is_some()
    }

    /// Whether a reset arrived that this end has to obey. A SYN that comes twice may open a connection twice, as one
    /// with data does (RFC 7413, 2.1): then it may have been for the one before.
    #[must_use]
    pub fn has_heard_reset(&self, line: Line) -> bool {
        let answers = self.watched(line).answers.get(&line.ends).into_iter().flatten();
        let before = answers.filter(|it| it.numbers().1 == Some(line.iss));
        self.flow(line).into_iter().chain(before).any(Flow::has_heard_reset)
    }

    /// Whether this end waited for the other long enough to give up, and the other has answered all that
    /// came to it.
    #[must_use]
    pub fn has_waited_in_vain(&self, now: Instant, line: Line, patience: Patience) -> bool {
        let asked_at = self.watched(line).neighbours.asked_at(line.ends.1.ip());
        let waited =
            self.flow(line).is_some_and(|it| it.has_waited_in_vain(now, patience, asked_at));
        (waited || self.has_answered_unseen(now, line)) && !self.owes_answer(now, line.turned())
    }

    /// Whether this end may have sent its SYN-ACK in vain for as long as it has to, of which the first were given up with
    /// a neighbour and nobody has seen them, or none.
    fn has_answered_unseen(&self, now: Instant, line: Line) -> bool {
        let watched = self.watched(line);
        let syns = watched.syns.get(&line.ends).into_iter().flatten();
        let since = syns.filter(|it| it.sequence == line.iss).map(|it| it.since).next();
        let asked_at = watched.neighbours.asked_at(line.ends.1.ip());
        let is_unanswered = self.flow(line).is_none_or(Flow::is_unanswered);
        is_unanswered
            && since.is_some_and(|at| now.since(at) >= R2_SYN_ACK_MIN && asked_at >= Some(at))
    }

    /// Whether something came to this end that it should have answered by now.
    #[must_use]
    pub fn owes_answer(&self, now: Instant, line: Line) -> bool {
        let watched = self.watched(line);
        let asked_at = watched.neighbours.asked_at(line.ends.1.ip());
        !watched.facts.drops && self.flow(line).is_some_and(|it| it.owes_answer(now, asked_at))
    }

    /// Whether this end's host asked for its neighbour as often as it takes to give it up, and that has
    /// answered the requests that came to it. An application that looks seldom is told late of what has happened
    /// since it began, at `begun_at`.
    #[must_use]
    pub fn has_asked_in_vain(&self, now: Instant, line: Line, begun_at: Instant) -> bool {
        let (local, remote) = (line.ends.0.ip(), line.ends.1.ip());
        let peer = self.watched(line.turned());
        let neighbours = &self.watched(line).neighbours;
        let asked = neighbours.has_asked_in_vain(now, remote)
            || neighbours.given_up_at(remote).is_some_and(|at| at >= begun_at);
        asked && (peer.facts.drops || !peer.neighbours.owes_answer(now, local))
    }

    /// Whether this end refused a segment before it said anything, as behind a SYN cookie, whichever of its SYN-ACKs
    /// the other end believed.
    #[must_use]
    pub fn has_refused(&self, line: Line) -> bool {
        let answers = self.watched(line).answers.get(&line.ends).into_iter().flatten();
        let mut others = answers.filter(|it| it.numbers().1 == Some(line.iss));
        self.flow(line).is_none_or(Flow::has_refused) || others.any(Flow::has_refused)
    }

    /// What is left of the window that this end announced last, where it expects this number next, if its
    /// announcements do not wait for a neighbour, or were lost with it: nothing repeats an ACK.
    #[must_use]
    pub fn window_left(&self, now: Instant, line: Line, next: u32) -> Option<u64> {
        let watched = self.watched(line);
        let neighbour = line.ends.1.ip();
        let asked_at = watched.neighbours.asked_at(neighbour);
        let waits = asked_at.is_some_and(|at| now.since(at) < ANNOUNCEMENT_MAX);
        let lost_at = watched.neighbours.given_up_at(neighbour);
        let flow = self.flow(line).filter(|_| !waits && !watched.facts.drops);
        flow.filter(|it| lost_at <= it.arrived_at()).map(|it| it.window_left(next))
    }

    /// What the wire shows of both ends, for whoever asks what happened.
    #[must_use]
    pub fn describe(&self, line: Line) -> String {
        let text = |line: Line| match self.flow(line) {
            Some(flow) => format!("host {}: {}", line.hosts[0], flow.describe()),
            None => format!("host {}: nothing", line.hosts[0]),
        };
        format!("{}; {}", text(line), text(line.turned()))
    }

    /// Whether the first end, if it gave up the connection, could not make itself heard by the second: its
    /// reset was lost or did not name the next byte, or it was not sent because the neighbour did not answer
    /// requests.
    #[must_use]
    pub fn is_unheard(&self, line: Line) -> bool {
        match (self.flow(line), self.flow(line.turned())) {
            (Some(here), Some(there)) if here.is_other_end_of(there) => {
                let is_silent = self.watched(line).neighbours.is_silent(line.ends.1.ip());
                (here.has_sent_reset() || is_silent) && !there.has_heard_reset()
            }
            _ => false,
        }
    }

    /// Whether the first end gave the connection up when it had waited long enough, and the second has not
    /// heard so. A reset names the byte behind what was sent (RFC 9293, 3.10.5), of which the byte of a window
    /// probe is no part: where the window has opened unheard, the second has taken that and expects the next.
    #[must_use]
    pub fn has_given_up_unheard(&self, line: Line, patience: Patience) -> bool {
        let asked_at = self.watched(line).neighbours.asked_at(line.ends.1.ip());
        let given_up = self.flow(line).is_some_and(|it| it.has_given_up(patience, asked_at));
        given_up && self.is_unheard(line)
    }
}
