//! What poll(2) and epoll say of a file, and poll itself.

use crate::Errno;
use crate::abi::{
    POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRBAND,
    POLLWRNORM,
};
use crate::call::{Fd, Output, PollEntry, Reply};
use crate::descriptors::File;
use crate::host::{Attempt, Host, Stop, Task};
use crate::stream::Phase;
use tcp::State;
use time::Duration;

/// Entries poll takes (Linux: RLIMIT_NOFILE).
const ENTRIES_MAX: usize = 1_024;

const READABLE: i16 = POLLIN | POLLRDNORM;
const WRITABLE: i16 = POLLOUT | POLLWRNORM;

/// Whether the peer will send no more.
pub(crate) fn is_peer_done(state: State) -> bool {
    use State::{CloseWait, Closed, Closing, LastAck, TimeWait};
    matches!(state, Closed | CloseWait | Closing | LastAck | TimeWait)
}

impl Host {
    /// The poll bits that hold for a file, asked for or not.
    pub(crate) fn readiness(&mut self, fd: Fd) -> Result<i16, Errno> {
        match self.files.get(fd)? {
            File::Stream(_) => self.stream_readiness(fd),
            File::Datagram(_) => {
                let readable = if self.has_datagram(fd)? { READABLE } else { 0 };
                let reported = self.has_report(fd)?;
                let datagram = self.files.datagram(fd)?;
                let error = if datagram.error.is_some() || reported { POLLERR } else { 0 };
                let ended = if datagram.read_shut { READABLE | POLLRDHUP } else { 0 };
                let hung = datagram.read_shut && datagram.write_shut;
                Ok(readable
                    | ended
                    | WRITABLE
                    | POLLWRBAND
                    | error
                    | if hung { POLLHUP } else { 0 })
            }
            File::PipeRead(pipe) => {
                let hung = if pipe.is_other_end_closed() { POLLHUP } else { 0 };
                Ok(hung | if pipe.len() > 0 { READABLE } else { 0 })
            }
            File::PipeWrite(pipe) => {
                let broken = if pipe.is_other_end_closed() { POLLERR } else { 0 };
                Ok(broken | if pipe.is_writable() { WRITABLE } else { 0 })
            }
            File::Epoll(_) => Ok(if self.epoll_has_events(fd)? { READABLE } else { 0 }),
        }
    }

    fn stream_readiness(&mut self, fd: Fd) -> Result<i16, Errno> {
        if let Phase::Listening(id) = self.files.stream(fd)?.phase {
            let waits = self.shard().tcp_acceptable(id).unwrap_or(0) > 0;
            return Ok(if waits { READABLE } else { 0 });
        }
        let Some((_, status)) = self.status(fd)? else {
            // Where the first write opens (TCP_FASTOPEN_CONNECT), that may be done.
            let stream = self.files.stream(fd)?;
            let hung = if stream.deferred.is_some() { 0 } else { POLLHUP };
            let error = if stream.error_left.is_some() { POLLERR } else { 0 };
            let ended = if stream.read_shut { READABLE | POLLRDHUP } else { 0 };
            return Ok(WRITABLE | hung | error | ended);
        };
        let stream = self.files.stream(fd)?;
        let told_of = status.error.is_some() && !stream.error_told;
        let has_error = told_of || stream.zero_copy.has_notice();
        let is_closed = status.state == State::Closed;
        let read_done = is_peer_done(status.state) || stream.read_shut;
        let write_done = is_closed || stream.write_shut;
        let mut bits = 0;
        if is_closed || (read_done && write_done) {
            bits |= POLLHUP;
        }
        if read_done {
            bits |= READABLE | POLLRDHUP;
        }
        if status.urgent_mark.is_some() {
            bits |= POLLPRI;
        }
        // An open that another one crosses is under way, too; data that came with a SYN is there.
        let opens = matches!(stream.phase, Phase::Connecting(_));
        if status.state == State::SynSent || (opens && status.state == State::SynReceived) {
            return Ok(bits);
        }
        if status.readable_bytes >= stream.options.receive_low_water.max(1) {
            bits |= READABLE;
        }
        let least = status.send_buffer_bytes / 3;
        let low_water = stream.options.not_sent_low_water;
        // As Linux: half of what a write may begin with, so that who waits finds room for more than a byte.
        let few_unsent =
            low_water.is_none_or(|most| status.unsent_bytes < (most as usize).div_ceil(2));
        if write_done || (status.send_room_bytes >= least.max(1) && few_unsent) {
            bits |= WRITABLE;
        } else {
            stream.lacks_space = true;
        }
        Ok(bits | if has_error { POLLERR } else { 0 })
    }

    pub(crate) fn poll(
        &mut self,
        task: &Task,
        mut entries: Vec<PollEntry>,
        timeout_ms: i32,
    ) -> Attempt {
        if entries.len() > ENTRIES_MAX {
            return Err(Errno::EINVAL.into());
        }
        for entry in &mut entries {
            entry.revents = match entry.fd {
                ..0 => 0,
                fd => match self.readiness(fd) {
                    Ok(bits) => bits & (entry.events | POLLERR | POLLHUP),
                    Err(_) => POLLNVAL,
                },
            };
        }
        let count = entries.iter().filter(|entry| entry.revents != 0).count();
        if count > 0 || self.has_waited(task, timeout_ms) {
            return Ok(Reply { value: count as i64, output: Output::Polled(entries) });
        }
        Err(Stop::Wait(self.wait_until(task, timeout_ms)))
    }

    pub(crate) fn wait_until(&self, task: &Task, timeout_ms: i32) -> Option<time::Instant> {
        let timeout = u64::try_from(timeout_ms).ok()?;
        Some(task.started + Duration::from_millis(timeout))
    }

    pub(crate) fn has_waited(&self, task: &Task, timeout_ms: i32) -> bool {
        self.wait_until(task, timeout_ms).is_some_and(|until| self.now >= until)
    }
}
