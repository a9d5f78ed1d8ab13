//! The interpreter: events in order, each at its time.

mod calls;
mod contents;
mod fragments;
mod packets;
mod pending;
#[cfg(test)]
mod tests;

use crate::assertion::Variables;
use crate::backend::Backend;
use crate::config::{Config, Judge};
use crate::flow::Flow;
use crate::script::{Action, Direction, Event, Script, Transport, When};
use posix::Fd;
use std::collections::HashMap;
use std::collections::VecDeque;

/// A script that did not go as it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Line in the script; zero where it concerns the whole.
    pub line: usize,
    /// What was expected and what happened, perhaps over several lines.
    pub message: String,
}

/// How long an expected packet is waited for beyond its time.
const PATIENCE_US: u64 = 2_000_000;

/// How long a packet that may come at any time is waited for.
const PATIENCE_ANY_US: u64 = 600_000_000;

/// When an event is due, in microseconds since the start; a range for some packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    first_us: u64,
    last_us: u64,
    is_any: bool,
    is_range: bool,
    /// What times of the event count from.
    base_us: u64,
}

impl Due {
    /// Until when a packet is waited for.
    fn limit_us(self) -> u64 {
        match self.is_any {
            true => self.first_us + PATIENCE_ANY_US,
            false => self.last_us + PATIENCE_US,
        }
    }
}

pub(crate) struct Runner<'a> {
    config: Config,
    backend: &'a mut dyn Backend,
    flows: Vec<Flow>,
    current: Option<usize>,
    /// Packets that arrive together come as one batch.
    in_batches: bool,
    /// Packets that were made and are still to arrive.
    arriving: Vec<Vec<u8>>,
    /// Packets of flows other than the one that was waited for.
    unclaimed: VecDeque<(u64, Vec<u8>)>,
    /// Script's to live descriptors.
    fds: HashMap<i64, Fd>,
    /// Datagrams that arrived and were not read, and those that were sent and not seen.
    arrived: contents::Datagrams,
    sent: contents::Datagrams,
    in_parts: fragments::InParts,
    pipes: Vec<contents::Pipe>,
    writing: Option<contents::Writing>,
    /// Files that open() made, by the script's descriptor.
    files: HashMap<i64, Vec<u8>>,
    variables: Variables,
    pending: Option<pending::Pending>,
    next_port: u16,
    line: usize,
    /// Time of the event before, and whether it was an inbound packet.
    last: Option<(u64, bool)>,
}

/// Runs a script against a backend. `in_batches`: packets that arrive at one instant, with nothing
/// between them, arrive as one batch.
pub(crate) fn run(
    script: &Script,
    backend: &mut dyn Backend,
    in_batches: bool,
    judge: Judge,
) -> Result<(), Failure> {
    let config = Config::of(script, judge).map_err(|message| Failure { line: 0, message })?;
    let mut runner = Runner {
        config,
        backend,
        flows: Vec::new(),
        current: None,
        in_batches,
        arriving: Vec::new(),
        unclaimed: VecDeque::new(),
        fds: HashMap::new(),
        arrived: contents::Datagrams::default(),
        sent: contents::Datagrams::default(),
        in_parts: fragments::InParts::default(),
        pipes: Vec::new(),
        writing: None,
        files: HashMap::new(),
        variables: Variables::new(),
        pending: None,
        next_port: 41_000,
        line: 0,
        last: None,
    };
    let result = runner.script(script);
    if let Some(cleanup) = &script.cleanup {
        // Whatever became of the script, what it changed is put back.
        let _ = runner.backend.command(cleanup);
    }
    result.map_err(|message| Failure { line: runner.line, message })
}

impl Runner<'_> {
    fn script(&mut self, script: &Script) -> Result<(), String> {
        if let Some(init) = &script.init {
            self.backend.command(init)?;
        }
        self.backend.start();
        for event in &script.events {
            self.line = event.line;
            self.event(event)?;
        }
        self.deliver()?;
        self.finish_pending(None)?;
        if self.config.exactly { self.check_silence() } else { Ok(()) }
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        let due = self.due(event);
        if !self.arriving.is_empty() && !self.arrives_with_the_last(event, due) {
            self.deliver()?;
        }
        match &event.action {
            Action::Packet(packet) if packet.direction == Direction::Outbound => {
                match packet.ip.fragment {
                    Some(part) => self.outbound_fragment(packet, part, due)?,
                    None => self.outbound(packet, due)?,
                }
            }
            Action::Packet(packet) => {
                self.wait_for(due)?;
                self.inbound(packet)?;
                if !self.in_batches {
                    self.deliver()?;
                }
            }
            Action::Call(call) => {
                self.wait_for(due)?;
                self.system_call(call, due)?;
            }
            Action::Command(command) => {
                self.wait_for(due)?;
                self.backend.command(command)?;
            }
            Action::Code(code) => {
                self.wait_for(due)?;
                let info = self.tcp_info()?;
                crate::assertion::run(code, &info, &mut self.variables)?;
            }
        }
        let is_inbound = is_inbound(&event.action);
        let at_us = if is_inbound { due.first_us } else { self.backend.now_us() };
        self.last = Some((at_us, is_inbound));
        Ok(())
    }

    /// When an event is due. Relative times count from now, but packets that come in one after the
    /// other from each other, so that delays of the runner do not add up.
    fn due(&mut self, event: &Event) -> Due {
        let base = match self.last {
            Some((at_us, true)) if is_inbound(&event.action) => at_us,
            _ => self.backend.now_us(),
        };
        let range = |first_us, last_us, base_us| Due {
            first_us,
            last_us,
            is_any: false,
            is_range: true,
            base_us,
        };
        let one = |us, base_us| Due { is_range: false, ..range(us, us, base_us) };
        match event.when {
            When::Absolute(us) => one(us, 0),
            When::Relative(us) => one(base + us, base),
            When::Any => Due { is_any: true, ..one(base, base) },
            When::AbsoluteRange(first, last) => range(first, last, 0),
            When::RelativeRange(first, last) => range(base + first, base + last, base),
        }
    }

    /// Whether an event is a packet of the same batch as the one before.
    fn arrives_with_the_last(&mut self, event: &Event, due: Due) -> bool {
        is_inbound(&event.action) && due.first_us <= self.backend.now_us()
    }

    fn wait_for(&mut self, due: Due) -> Result<(), String> {
        let at_us = self.backend.wait_until(due.first_us);
        self.check_pending()?;
        self.check_time("the event", due, at_us)
    }

    /// Whether something happened when it should have.
    fn check_time(&self, what: &str, due: Due, at_us: u64) -> Result<(), String> {
        if due.is_any {
            return Ok(());
        }
        let since_last = self.last.map_or(0, |(last_us, _)| due.first_us.saturating_sub(last_us));
        let percent = (since_last as f64 * self.config.tolerance_percent / 100.0) as u64;
        let tolerance = self.config.tolerance_us.max(percent);
        if at_us + tolerance >= due.first_us && at_us <= due.last_us + tolerance {
            return Ok(());
        }
        let seconds = |us: u64| us as f64 / 1e6;
        let expected = match due.is_range {
            true => format!("{:.6}~{:.6}", seconds(due.first_us), seconds(due.last_us)),
            false => format!("{:.6}", seconds(due.first_us)),
        };
        Err(format!(
            "timing: {what} was expected at {expected} s and came at {:.6} s, {:.6} s from the event \
             before (tolerance {:.6} s)",
            seconds(at_us),
            seconds(at_us.saturating_sub(self.last.map_or(0, |(last_us, _)| last_us))),
            seconds(tolerance)
        ))
    }

    /// `struct tcp_info` of the connection under test.
    fn tcp_info(&mut self) -> Result<Vec<u8>, String> {
        let flow = self.current.and_then(|index| self.flows.get(index));
        let fd = flow.and_then(|flow| flow.fd).ok_or("no connection to ask for tcp_info")?;
        let call = posix::Call::GetOption {
            fd,
            level: posix::abi::IPPROTO_TCP,
            name: posix::abi::TCP_INFO,
            len: 1_024,
        };
        match self.backend.call(call)? {
            Ok(posix::Reply { output: posix::Output::Value(value), .. }) => Ok(value),
            other => Err(format!("tcp_info was refused: {other:?}")),
        }
    }
}

fn is_inbound(action: &Action) -> bool {
    matches!(action, Action::Packet(packet) if packet.direction == Direction::Inbound)
}

/// Whether a packet is TCP.
fn is_tcp(transport: &Transport) -> bool {
    matches!(transport, Transport::Tcp(_))
}
