//! connect(2), with the answers that Linux gives at each stage of it.

use crate::call::{Fd, Reply};
use crate::descriptors::File;
use crate::epoll::News;
use crate::host::{Attempt, Host, Stop, Task};
use crate::stream::{Phase, is_open};
use crate::{Address, Errno};
use stack::SocketId;
use tcp::State;

impl Host {
    pub(crate) fn connect(&mut self, task: &mut Task, fd: Fd, address: Address) -> Attempt {
        if matches!(self.files.get(fd)?, File::Datagram(_)) {
            return self.connect_datagram(fd, address);
        }
        let now = self.now;
        let stream = self.files.stream(fd)?;
        if address == Address::Unspecified {
            match stream.id() {
                Some(id) => self.disconnect(fd, id)?,
                None => {
                    stream.become_idle();
                    stream.deferred = None;
                    self.wake(fd, News::STATE);
                }
            }
            return Ok(Reply::value(0));
        }
        match stream.phase {
            Phase::Listening(_) | Phase::Connected(_) => Err(Errno::EISCONN.into()),
            Phase::Connecting(_) if stream.must_leave && !task.begun => Err(Errno::EINVAL.into()),
            Phase::Connecting(_) => self.go_on_connecting(task, fd),
            // Another call has given up what this one waited for.
            Phase::Idle if task.begun => {
                Err(self.take_error(fd)?.unwrap_or(Errno::ECONNABORTED).into())
            }
            Phase::Idle if stream.deferred.is_some() => Err(Errno::EISCONN.into()),
            Phase::Idle if stream.options.fast_open.on_connect => {
                let remote = address.for_domain(stream.domain, stream.options.ipv6_only)?;
                let (local, options) = (stream.bound, stream.options.clone());
                let without_cookie = self.opens_without_cookie(&options);
                if !self.shard().tcp_may_open_fast(now, local, remote, without_cookie) {
                    self.open(fd, address)?;
                    if let Some(id) = self.files.stream(fd)?.connection() {
                        // The SYN asks for one.
                        self.shard().tcp_offer_fast_open(now, id, without_cookie)?;
                    }
                    (task.begun, task.opened) = (true, true);
                    return self.first_answer(task, fd);
                }
                self.files.stream(fd)?.deferred = Some(address);
                Ok(Reply::value(0))
            }
            Phase::Idle => {
                self.open(fd, address)?;
                (task.begun, task.opened) = (true, true);
                self.first_answer(task, fd)
            }
        }
    }

    /// Leaves what a socket listens for or is connected to; it may begin again.
    pub(crate) fn disconnect(&mut self, fd: Fd, id: SocketId) -> Result<(), Errno> {
        let now = self.now;
        let state = self.status(fd)?.map(|(_, status)| status.state);
        let was_open = state.is_some_and(|state| state != State::Closed);
        // As Linux: a peer that has all from this side and has ended its own hears of no reset, nor does the program.
        let is_reset = was_open && !matches!(state, Some(State::Closing | State::LastAck));
        let untold = self.take_error(fd)?;
        let stream = self.files.stream(fd)?;
        stream.become_idle();
        stream.deferred = None;
        stream.error_left = if is_reset { Some(Errno::ECONNRESET) } else { untold };
        if was_open {
            self.shard().tcp_abort(now, id);
        }
        self.shard().close(now, id);
        self.wake(fd, News::STATE);
        Ok(())
    }

    /// What connect(2) says when it has just begun.
    fn first_answer(&mut self, task: &Task, fd: Fd) -> Attempt {
        self.flush();
        self.go_on_connecting(task, fd)
    }

    /// Sends the SYN.
    pub(crate) fn open(&mut self, fd: Fd, address: Address) -> Result<(), Errno> {
        let now = self.now;
        let stream = self.files.stream(fd)?;
        let remote = address.for_domain(stream.domain, stream.options.ipv6_only)?;
        let (local, options) = (stream.bound, stream.options.clone());
        let config = options.config(&self.config.tcp);
        let opened = self.shard().tcp_connect_with(now, local, remote, config);
        // As Linux: of the address that the program has bound, no other port is left to try.
        let id = opened.map_err(|error| match error.into() {
            Errno::EADDRINUSE => Errno::EADDRNOTAVAIL,
            errno => errno,
        })?;
        let stream = self.files.stream(fd)?;
        stream.phase = Phase::Connecting(id);
        (stream.error_told, stream.error_left, stream.end_seen) = (false, None, false);
        stream.deferred = None;
        if stream.read_shut {
            self.shard().tcp_shutdown_read(id)?;
        }
        self.apply_options(fd)
    }

    fn go_on_connecting(&mut self, task: &Task, fd: Fd) -> Attempt {
        let Some((id, status)) = self.status(fd)? else {
            self.files.stream(fd)?.become_idle();
            return Err(Errno::ECONNABORTED.into());
        };
        if is_open(status.state) {
            self.files.stream(fd)?.phase = Phase::Connected(id);
            return Ok(Reply::value(0));
        }
        if status.state == State::Closed {
            return Err(self.give_up_connecting(fd, id)?.into());
        }
        let stream = self.files.stream(fd)?;
        let (waits_not, timeout) = (stream.waits_not(0), stream.options.send_timeout);
        // The call that has sent the SYN says so, any other that somebody else has.
        let told = if task.opened { Errno::EINPROGRESS } else { Errno::EALREADY };
        match self.wait(task, waits_not, timeout) {
            Stop::Errno(_) => Err(told.into()),
            stop => Err(stop),
        }
    }

    /// The connection was never made: says why, and the socket can try again.
    pub(crate) fn give_up_connecting(&mut self, fd: Fd, id: SocketId) -> Result<Errno, Errno> {
        let now = self.now;
        let error = self.take_error(fd)?.unwrap_or(Errno::ECONNABORTED);
        self.files.stream(fd)?.become_idle();
        self.shard().close(now, id);
        self.wake(fd, News::STATE);
        Ok(error)
    }
}
