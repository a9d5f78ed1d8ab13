//! This stack in virtual time: a script takes as long as its packets take to be computed.

use super::{Backend, Returned};
use crate::settings;
use posix::{Call, Host, HostConfig, Task};
use std::path::PathBuf;
use time::{Duration, Instant};

/// How long a call that is not marked as blocking may take, in virtual time.
const CALL_PATIENCE: Duration = Duration::from_secs(600);

/// A host and the call under way on it.
pub(crate) struct StackBackend {
    config: HostConfig,
    /// Where the shell scripts lie that commands run.
    directory: PathBuf,
    /// Made by the first thing that needs it: what comes before are settings.
    host: Option<Host>,
    start: Instant,
    task: Option<Task>,
    finished: Option<(u64, Returned)>,
}

impl StackBackend {
    pub(crate) fn new(config: HostConfig, directory: PathBuf) -> Self {
        let start = Host::new(config.clone()).now();
        Self { config, directory, host: None, start, task: None, finished: None }
    }

    /// How many packets were taken as part of a train, behind its first.
    pub(crate) fn train_frames(&self) -> u64 {
        self.host.as_ref().map_or(0, Host::train_frames)
    }

    fn host(&mut self) -> &mut Host {
        let config = &self.config;
        self.host.get_or_insert_with(|| Host::new(config.clone()))
    }

    fn at(&self, us: u64) -> Instant {
        self.start + Duration::from_micros(us)
    }

    /// The call under way may have been waiting for what just happened.
    fn attempt(&mut self) {
        let Some(mut task) = self.task.take() else { return };
        match self.host().attempt(&mut task) {
            Some(returned) => self.finished = Some((self.now_us(), returned)),
            None => self.task = Some(task),
        }
    }

    /// Goes on to what happens next, at most to `limit`.
    fn step(&mut self, limit: Instant) {
        let deadline = self.task.as_ref().and_then(Task::deadline);
        let limit = deadline.map_or(limit, |deadline| deadline.min(limit));
        self.host().step(limit);
        self.attempt();
    }
}

impl Backend for StackBackend {
    fn start(&mut self) {}

    fn now_us(&mut self) -> u64 {
        let start = self.start;
        (self.host().now() - start).as_micros() as u64
    }

    fn wait_until(&mut self, at_us: u64) -> u64 {
        let at = self.at(at_us);
        while self.host().now() < at {
            self.step(at);
        }
        self.now_us()
    }

    fn inject(&mut self, packets: &[Vec<u8>]) -> Result<(), String> {
        self.host().inject_batch(packets);
        self.attempt();
        Ok(())
    }

    fn next_packet(&mut self, limit_us: u64) -> Option<(u64, Vec<u8>)> {
        let limit = self.at(limit_us);
        while !self.host().has_packet() && self.host().now() < limit {
            self.step(limit);
        }
        let start = self.start;
        let (at, packet) = self.host().take_packet()?;
        Some(((at - start).as_micros() as u64, packet))
    }

    fn call(&mut self, call: Call) -> Result<Returned, String> {
        let host = self.host();
        let patience = host.now() + CALL_PATIENCE;
        let mut task = host.begin(call);
        loop {
            if let Some(returned) = self.host().attempt(&mut task) {
                self.attempt();
                return Ok(returned);
            }
            if self.host().now() >= patience {
                return Err("the call blocks for ever".to_owned());
            }
            let limit = task.deadline().map_or(patience, |deadline| deadline.min(patience));
            self.step(limit);
        }
    }

    fn begin(&mut self, call: Call) {
        self.finished = None;
        self.task = Some(self.host().begin(call));
        self.attempt();
    }

    fn finished(&mut self) -> Option<(u64, Returned)> {
        self.finished.take()
    }

    fn command(&mut self, command: &str) -> Result<(), String> {
        let config = self.host.as_mut().map_or(&mut self.config, Host::config_mut);
        settings::apply_command(command, &self.directory, config);
        Ok(())
    }
}
