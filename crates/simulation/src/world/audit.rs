//! What must hold at the end of each phase.

use super::datagrams::{LAST_WORDS, REACHABLE};
use super::{Event, Phase, QUIET, World};
use crate::application::{Ending, Endpoint};
use stack::Holdings;
use time::Duration;

/// After the last endpoint has ended: FIN-WAIT-2 and TIME-WAIT of a minute each, a FIN whose
/// repetition has backed off, and a peer that has to be found first.
const CLOSING_PATIENCE: Duration = Duration::from_secs(1_200);

impl World {
    /// The links turn good and applications finish what they do.
    pub(super) fn calm(&mut self) {
        self.judge_wakes();
        self.phase = Phase::Calm;
        for host in &mut self.hosts {
            host.up.calm();
            host.down.calm();
        }
        let patience = self.scenario.patience();
        self.events.add(self.now + patience / 2, Event::GiveUp);
        self.events.add(self.now + patience, Event::Deadline(Phase::Calm));
        for index in 0..self.endpoints.len() {
            self.endpoints[index].hurry(self.now);
            self.act(index);
        }
        for host in 0..self.hosts.len() {
            for listener in self.hosts[host].listeners.clone() {
                self.accept(host, listener);
            }
            self.serve_all(host);
        }
    }

    /// A peer that broke off may have been heard by nobody: its reset was lost, or its host
    /// restarted; or its connection gave up when its application had left. Who has said all, knows
    /// that it arrived and only listens would wait for ever, as RFC 9293, 3.8.4 has it without
    /// keepalive; so applications give up.
    pub(super) fn give_up(&mut self) {
        for index in 0..self.endpoints.len() {
            let endpoint = &self.endpoints[index];
            let (host, socket) = (endpoint.host, endpoint.socket);
            let (is_ready, pair) = (endpoint.is_shut && endpoint.ended.is_none(), endpoint.pair);
            let is_alone = is_ready && (self.pairs[pair].disturbed || self.was_given_up(index));
            if !is_alone {
                continue;
            }
            let status = self.hosts[host].shard(socket.home).tcp_status(socket.id);
            if status.is_ok_and(|status| status.unacknowledged_bytes == 0) {
                self.endpoints[index].behaviour.ending = Ending::Abort { after: 0 };
                self.act(index);
                self.serve(host, socket.home);
            }
        }
    }

    /// Whether the peer's connection gave up (its retries or probes went unanswered) when its application
    /// had left, and could not make itself heard. By its host's books it is gone.
    fn was_given_up(&self, index: usize) -> bool {
        let endpoint = &self.endpoints[index];
        let [client, server] = self.pairs[endpoint.pair].hosts;
        let peer = if endpoint.host == client { server } else { client };
        let is_there = |other: &&Endpoint| other.host == peer && other.ended.is_none();
        let host = &self.hosts[peer];
        let known = self.endpoints.iter().filter(is_there).count()
            + host.listeners.len()
            + usize::from(host.datagrams.is_some());
        host.holdings().map(|held| held.sockets).sum::<usize>() == known
            && self.checker.is_unheard(self.line(index).turned())
    }

    /// Goes on to the next phase where this one is over.
    pub(super) fn advance_phase(&mut self) {
        if self.phase == Phase::Calm && self.live == 0 {
            self.phase = Phase::Closing;
            for host in 0..self.hosts.len() {
                for listener in core::mem::take(&mut self.hosts[host].listeners) {
                    self.hosts[host].shard(listener.home).close(self.now, listener.id);
                }
                self.serve_all(host);
            }
            self.events.add(self.now + LAST_WORDS + REACHABLE, Event::DatagramsRehearsed);
            self.events.add(self.now + CLOSING_PATIENCE, Event::Deadline(Phase::Closing));
        }
        if self.phase == Phase::Closing
            && self.hosts.iter().all(|host| host.holdings().all(|held| held == Holdings::default()))
        {
            self.phase = Phase::Quiet;
            self.events.add(self.now + QUIET, Event::Deadline(Phase::Quiet));
            self.claim_taken();
        }
    }

    /// A phase must be over by now.
    pub(super) fn on_deadline(&mut self, phase: Phase) {
        if phase != self.phase {
            return;
        }
        match phase {
            Phase::Calm => self.fail_stuck(),
            Phase::Closing => {
                let left: Vec<_> = self.hosts.iter().flat_map(|host| host.holdings()).collect();
                self.fail("every connection ends and leaves nothing", format!("{left:?}"));
            }
            Phase::Quiet => self.audit(),
            Phase::Busy | Phase::Over => {}
        }
    }

    /// Somebody still waits though the network has long been good.
    fn fail_stuck(&mut self) {
        let Some(index) = self.endpoints.iter().position(|endpoint| endpoint.ended.is_none())
        else {
            return;
        };
        let endpoint = &self.endpoints[index];
        let (host, socket) = (endpoint.host, endpoint.socket);
        let status = self.hosts[host].shard(socket.home).tcp_status(socket.id);
        let endpoint = &self.endpoints[index];
        let what = format!(
            "{} endpoints wait; the first has sent {} of {} bytes, read {}, end {}, shut {}: {status:?}",
            self.live,
            endpoint.sent,
            endpoint.behaviour.stream_len,
            endpoint.received,
            endpoint.at_end,
            endpoint.is_shut,
        );
        let property = "everybody makes progress over a good network".to_owned();
        self.fail_with(property, what, Some(host), Some(self.ends[index]));
    }

    /// Nothing is left: no block, no deadline, nothing to send.
    fn audit(&mut self) {
        self.phase = Phase::Over;
        self.audit_addresses();
        self.audit_readers();
        for number in 0..self.hosts.len() {
            let host = &mut self.hosts[number];
            let held_bytes = host.pool.counters().outstanding_bytes;
            let deadline = host.shards().find_map(|shard| shard.poll_timeout());
            let wants = host.shards().any(|shard| shard.wants_transmit());
            let books = host.audit_exchange();
            if held_bytes > 0 {
                self.fail("no block is leaked", format!("host {number} holds {held_bytes} bytes"));
            } else if let Some(deadline) = deadline {
                self.fail("no timer is leaked", format!("host {number} waits for {deadline:?}"));
            } else if wants {
                self.fail("an idle host has nothing to send", format!("host {number}"));
            } else if let Some(books) = books {
                let property = "what squeues hand to each other is taken, or counted as dropped";
                self.fail(property, format!("host {number}: {books}"));
            }
        }
    }
}
