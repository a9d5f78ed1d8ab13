//! Who runs when: a host's squeues, one after the other, as its schedule says.
//!
//! A turn is what a thread does that has a squeue: it takes in what others handed over, does what is due,
//! tells applications, sends a batch, and hands on what is for others. Whoever it handed something to is
//! told and runs at once or a little later; who is called may also be kept from running for a while.

use super::{Event, Phase, World};
use crate::trace::Way;
use stack::{InterfaceId, Shard, SocketError};
use time::Duration;

/// Turns that a host may take in one moment before it is taken to run in circles.
const TURNS_MAX: usize = 2_000;

impl World {
    /// The device calls a squeue for what has arrived on its ring.
    pub(super) fn interrupt(&mut self, host: usize, home: usize) {
        self.stall(host, home);
        if let Some(until) = self.hosts[host].stalled_until(self.now, home) {
            return self.events.add(until, Event::Interrupt { host, home });
        }
        let (checker, trace, now) = (&mut self.checker, &mut self.trace, self.now);
        let ethernet = !self.scenario.bare_ip;
        let is_more = self.hosts[host].deliver(now, home, |frame| {
            trace.add(now, host, Way::In, frame, ethernet);
            checker.on_arrived(now, host, frame);
        });
        self.serve(host, home);
        if is_more {
            let at = self.now + self.hosts[host].delay();
            self.events.add(at, Event::Interrupt { host, home });
        }
    }

    /// Now and then the system does not let a squeue run that is called.
    fn stall(&mut self, host: usize, home: usize) -> bool {
        let until = match self.phase {
            Phase::Busy => self.hosts[host].stall(self.now, home),
            _ => None,
        };
        if let Some(until) = until {
            self.counters.stalls += 1;
            self.events.add(until, Event::Run { host, home });
        }
        until.is_some()
    }

    /// Lets all squeues of a host do everything they can do now.
    pub(super) fn serve_all(&mut self, host: usize) {
        for home in 1..self.hosts[host].homes() {
            self.hosts[host].want(home);
        }
        self.serve(host, 0);
    }

    /// Lets a squeue do everything it can do now, and whoever else of the host has something to do, and
    /// notes when they want to be called next.
    pub(super) fn serve(&mut self, host: usize, home: usize) {
        self.hosts[host].want(home);
        self.hosts[host].want_due(self.now);
        for turn in 0.. {
            if turn > TURNS_MAX {
                return self.fail("a host comes to rest", format!("host {host} runs in circles"));
            }
            let Some(home) = self.hosts[host].next_to_run(self.now) else { break };
            self.turn(host, home);
            self.tell(host, home);
        }
        if let Some(ends) = self.hosts[host].shuffled() {
            let property = "frames of a connection reach its shard in the order in which they came";
            return self.fail_with(property.to_owned(), String::new(), Some(host), Some(ends));
        }
        for home in 0..self.hosts[host].homes() {
            self.set_timer(host, home);
        }
    }

    /// A squeue takes what others handed to it.
    pub(super) fn take_in(&mut self, host: usize, home: usize) {
        let (checker, trace, now) = (&mut self.checker, &mut self.trace, self.now);
        let ethernet = !self.scenario.bare_ip;
        self.hosts[host].take_in(now, home, |frame| {
            trace.add(now, host, Way::In, frame, ethernet);
            checker.on_arrived(now, host, frame);
        });
    }

    /// Does the same in every squeue of a host, as a call of the program does that concerns all. The first
    /// one's answer counts, and where it refuses nothing is done in others.
    pub(super) fn everywhere(
        &mut self,
        host: usize,
        act: impl Fn(&mut Shard, InterfaceId) -> Result<(), SocketError>,
    ) -> Result<(), SocketError> {
        for home in 0..self.hosts[host].homes() {
            self.take_in(host, home);
            let (shard, interface) = self.hosts[host].shard_and_interface(home);
            act(shard, interface)?;
            self.tell(host, home);
        }
        Ok(())
    }

    /// A turn of a squeue, which wants another where this was not all.
    fn turn(&mut self, host: usize, home: usize) {
        let now = self.now;
        self.take_in(host, home);
        let shard = self.hosts[host].shard(home);
        if shard.poll_timeout().is_some_and(|due| due <= now) {
            shard.on_timeout(now);
        }
        self.take_events(host, home);
        self.take_address_events(host);
        let Some(sent) = self.hosts[host].send(now, home) else {
            // Looking for something to send may have ended a connection.
            if self.take_events(host, home) {
                self.hosts[host].want(home);
            }
            return;
        };
        if sent.lowered_wrongly {
            self.fail("super-frames expand to the packets they are made of", String::new());
        }
        for frame in sent.frames {
            self.put_on_wire(host, frame);
        }
        self.judge_flights(host);
        if sent.stopped {
            let pause = Duration::from_micros(self.random.within(1, 300));
            self.events.add(now + pause, Event::Run { host, home });
        } else {
            self.hosts[host].want(home);
        }
    }

    /// Tells the squeues to which this one handed something.
    fn tell(&mut self, host: usize, home: usize) {
        let mut concerned = self.hosts[host].hand_on(home);
        while concerned != 0 {
            let other = concerned.trailing_zeros() as usize;
            concerned &= concerned - 1;
            if self.stall(host, other) {
                continue;
            }
            match self.hosts[host].delay() {
                Duration::ZERO => self.hosts[host].want(other),
                delay => self.events.add(self.now + delay, Event::Run { host, home: other }),
            }
        }
    }

    fn set_timer(&mut self, host: usize, home: usize) {
        let now = self.now;
        if self.hosts[host].stalled_until(now, home).is_some() {
            // It runs when it can again.
            return;
        }
        let Some(due) = self.hosts[host].shard(home).poll_timeout() else { return };
        if due <= now {
            return self.fail("what is due is done", format!("host {host}: due at {due:?}"));
        }
        let timer = self.hosts[host].timer(home);
        if timer.is_none_or(|at| due < at || at <= now) {
            *timer = Some(due);
            self.events.add(due, Event::Timer { host, home });
        }
    }
}
