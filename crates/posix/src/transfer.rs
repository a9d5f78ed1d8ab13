//! Reading and writing, on sockets of both kinds and pipes.

use crate::abi::{
    MSG_EOR, MSG_ERRQUEUE, MSG_FASTOPEN, MSG_MORE, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL,
    MSG_ZEROCOPY, POLLRDHUP,
};
use crate::call::{Fd, Output, Reply};
use crate::descriptors::File;
use crate::epoll::News;
use crate::host::{Attempt, Host, Stop, Task};
use crate::stream::{Phase, is_open};
use crate::{Address, ControlMessage, Errno, control, told};
use batch::{Block, Chunk};
use bytes::Bytes;
use stack::{SocketError, SocketId};
use tcp::State;

/// The longest single read or write (Linux: `MAX_RW_COUNT`).
const TRANSFER_BYTES_MAX: usize = 0x7fff_f000;

/// The longest piece of what was written (Linux: of a super-frame).
const PIECE_BYTES_MAX: u32 = 65_535;

/// Where reading what is there ended.
enum End {
    /// There was as much as was asked for.
    Enough,
    /// At the end of the stream, or before an urgent byte.
    Over,
    Stopped(SocketError),
}

impl Host {
    pub(crate) fn read_nothing(&mut self, fd: Fd) -> Attempt {
        match self.files.get(fd)? {
            File::PipeWrite(_) => Err(Errno::EBADF.into()),
            File::Epoll(_) => Err(Errno::EINVAL.into()),
            File::Stream(_) | File::Datagram(_) | File::PipeRead(_) => Ok(Reply::bytes(Vec::new())),
        }
    }

    pub(crate) fn receive(&mut self, task: &mut Task, fd: Fd, len: usize, flags: i32) -> Attempt {
        let len = len.min(TRANSFER_BYTES_MAX);
        match self.files.get(fd)? {
            File::Stream(_) if flags & MSG_ERRQUEUE != 0 => self.read_notice(fd),
            File::Stream(_) => {
                let reply = self.receive_stream(task, fd, len, flags)?;
                self.with_unread(fd, reply)
            }
            File::Datagram(_) => self.receive_datagram(task, fd, len, flags),
            File::PipeRead(pipe) => {
                let pipe = pipe.clone();
                let was_full = !pipe.is_writable();
                let reply = pipe.read(len)?;
                self.wake_writer(&pipe, was_full);
                Ok(reply)
            }
            File::PipeWrite(_) => Err(Errno::EBADF.into()),
            File::Epoll(_) => Err(Errno::EINVAL.into()),
        }
    }

    /// Adds what TCP_INQ asks for: the bytes left to be read, or 1 for the end of the stream.
    fn with_unread(&mut self, fd: Fd, mut reply: Reply) -> Attempt {
        if self.files.stream(fd)?.options.tells_unread
            && let Output::Received { control, .. } = &mut reply.output
        {
            let left = self.readable_bytes(fd)?;
            let is_over = self.readiness(fd)? & POLLRDHUP != 0;
            let count = if left == 0 { usize::from(is_over) } else { left };
            control.push(told::unread(i32::try_from(count).unwrap_or(i32::MAX)));
        }
        Ok(reply)
    }

    fn receive_stream(&mut self, task: &mut Task, fd: Fd, len: usize, flags: i32) -> Attempt {
        let stream = self.files.stream(fd)?;
        if flags & MSG_OOB != 0 {
            let listens = matches!(stream.phase, Phase::Listening(_));
            return Err(if listens { Errno::ENOTCONN } else { Errno::EINVAL }.into());
        }
        let Some(id) = stream.connection() else {
            if stream.deferred.is_some() {
                // The connection is to come, by a write.
                let (waits_not, timeout) =
                    (stream.waits_not(flags), stream.options.receive_timeout);
                return Err(self.wait(task, waits_not, timeout));
            }
            let is_shut = stream.read_shut && stream.phase == Phase::Idle;
            // An open that was given up is told of once.
            return match self.take_error(fd)? {
                Some(error) => Err(error.into()),
                None if is_shut => Ok(received(task, flags)),
                None => Err(Errno::ENOTCONN.into()),
            };
        };
        let end = self.read_available(task, fd, id, len, flags & MSG_PEEK != 0)?;
        let now_read = task.read.len();
        let stream = self.files.stream(fd)?;
        let least = match flags & MSG_WAITALL != 0 {
            true => len,
            false => stream.options.receive_low_water,
        };
        match end {
            End::Enough => Ok(received(task, flags)),
            _ if now_read > 0 && now_read >= least => Ok(received(task, flags)),
            End::Stopped(SocketError::WouldBlock) if !stream.read_shut => {
                let (waits_not, timeout) =
                    (stream.waits_not(flags), stream.options.receive_timeout);
                match self.wait(task, waits_not, timeout) {
                    Stop::Errno(_) if now_read > 0 => Ok(received(task, flags)),
                    stop => Err(stop),
                }
            }
            End::Stopped(error) if error != SocketError::WouldBlock && now_read == 0 => {
                // Told once; after that the stream has merely ended.
                match self.take_error(fd)? {
                    Some(error) => Err(error.into()),
                    None => Ok(received(task, flags)),
                }
            }
            _ => Ok(received(task, flags)),
        }
    }

    /// Adds what is there to what a call has read. Who only looks sees the same bytes at each attempt.
    fn read_available(
        &mut self,
        task: &mut Task,
        fd: Fd,
        id: SocketId,
        len: usize,
        peeks: bool,
    ) -> Result<End, Errno> {
        if peeks {
            task.read.clear();
        }
        if len == 0 {
            // Nothing is read, but it waits until something could be.
            return Ok(match self.read_some(id, 1, true) {
                Ok(bytes) if bytes.is_empty() => End::Over,
                Ok(_) => End::Enough,
                Err(error) => End::Stopped(error),
            });
        }
        while task.read.len() < len {
            match self.read_some(id, len - task.read.len(), peeks) {
                Ok(bytes) if bytes.is_empty() => return Ok(End::Over),
                Ok(bytes) => task.read.extend(bytes),
                Err(error) => return Ok(End::Stopped(error)),
            }
            if self.is_at_mark(fd)? {
                // A read stops before the last urgent byte.
                return Ok(End::Over);
            }
            if peeks && task.read.len() < len {
                let is_over = self.readiness(fd)? & POLLRDHUP != 0;
                return Ok(if is_over { End::Over } else { End::Stopped(SocketError::WouldBlock) });
            }
        }
        Ok(End::Enough)
    }

    /// Bytes that are there; none at the end of the stream.
    fn read_some(&mut self, id: SocketId, len: usize, peeks: bool) -> Result<Vec<u8>, SocketError> {
        let now = self.now;
        let readable = self.shard().tcp_status(id)?.readable_bytes;
        let mut buffer = vec![0; len.min(readable.max(1))];
        let count = match peeks {
            true => self.shard().tcp_peek(id, &mut buffer)?,
            false => self.shard().tcp_read(now, id, &mut buffer)?,
        };
        buffer.truncate(count);
        Ok(buffer)
    }

    pub(crate) fn send(
        &mut self,
        task: &mut Task,
        fd: Fd,
        bytes: &[u8],
        flags: i32,
        to: Option<Address>,
        control: &[ControlMessage],
    ) -> Attempt {
        match self.files.get(fd)? {
            File::Stream(_) => {
                control::check_stream(control)?;
                let attempt = self.send_stream(task, fd, bytes, flags, to);
                if flags & MSG_ZEROCOPY != 0 && attempt.as_ref().is_ok_and(|reply| reply.value > 0)
                {
                    self.on_zero_copy(fd)?;
                }
                attempt
            }
            File::Datagram(_) => self.send_datagram(task, fd, bytes, flags, to, control),
            File::PipeWrite(pipe) => {
                let (pipe, before) = (pipe.clone(), task.written);
                let attempt = pipe.write(task, bytes);
                if task.written > before {
                    self.wake_pipe(&pipe, News::INPUT);
                }
                attempt
            }
            File::PipeRead(_) => Err(Errno::EBADF.into()),
            File::Epoll(_) => Err(Errno::EINVAL.into()),
        }
    }

    fn send_stream(
        &mut self,
        task: &mut Task,
        fd: Fd,
        bytes: &[u8],
        flags: i32,
        to: Option<Address>,
    ) -> Attempt {
        let opens_fast = self.opens_fast();
        let stream = self.files.stream(fd)?;
        let phase = stream.phase;
        let opens = flags & MSG_FASTOPEN != 0 && !task.begun;
        if opens && (!opens_fast || to == Some(Address::Unspecified)) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let to = to.filter(|_| opens).or(stream.deferred);
        let id = match phase {
            Phase::Idle if to.is_some() || opens => {
                return self.send_fast(task, fd, bytes, flags, to);
            }
            // As connect(2).
            Phase::Connected(_) if opens => return Err(Errno::EISCONN.into()),
            Phase::Idle | Phase::Listening(_) => {
                return Err(self.take_error(fd)?.unwrap_or(Errno::EPIPE).into());
            }
            Phase::Connecting(id) | Phase::Connected(id) => id,
        };
        let state = self.shard().tcp_status(id)?.state;
        if matches!(phase, Phase::Connecting(_)) {
            match state {
                // As connect(2); the first that finds the handshake done goes on.
                State::SynSent | State::SynReceived if opens => return Err(Errno::EALREADY.into()),
                State::SynSent | State::SynReceived if task.opened => {
                    return self.wait_to_open(task, fd, flags);
                }
                State::SynSent | State::SynReceived => return self.wait_to_send(task, fd, flags),
                // What went with the SYN went nowhere.
                State::Closed if task.opened => {
                    return Err(self.give_up_connecting(fd, id)?.into());
                }
                _ => {}
            }
        }
        if is_open(state) && (opens || task.opened) {
            // It has told of success as connect(2) would; other writes leave that to connect(2).
            self.files.stream(fd)?.phase = Phase::Connected(id);
        }
        if task.written == 0 {
            self.check_direction(fd, state, bytes)?;
            self.files.stream(fd)?.more_follows = flags & MSG_MORE != 0;
            self.set_cork(fd)?;
        }
        while task.written < bytes.len() {
            match self.append(fd, id, &bytes[task.written..], flags) {
                Ok(0) => {
                    self.files.stream(fd)?.lacks_space = true;
                    return self.wait_to_send(task, fd, flags);
                }
                Ok(count) => task.written += count,
                Err(_) if task.written > 0 => break,
                Err(_) => {
                    let error = self.take_error(fd)?;
                    return Err(error.unwrap_or(Errno::EPIPE).into());
                }
            }
        }
        Ok(Reply::value(task.written as i64))
    }

    /// Refuses what the connection would not: data in a direction that the program has ended before the connection
    /// began, and nothing at all in one that takes no more.
    fn check_direction(&mut self, fd: Fd, state: State, bytes: &[u8]) -> Result<(), Errno> {
        let is_shut = self.files.stream(fd)?.write_shut;
        match is_shut || (bytes.is_empty() && !takes_data(state)) {
            true => Err(self.take_error(fd)?.unwrap_or(Errno::EPIPE)),
            false => Ok(()),
        }
    }

    /// RFC 7413: asks for a cookie, or shows the one there is, and says how much was queued. A call that
    /// may wait queues the rest as well, and so it goes with the ACK of the SYN-ACK.
    fn send_with_syn(&mut self, fd: Fd, bytes: &[u8], flags: i32) -> Result<usize, Errno> {
        let now = self.now;
        let stream = self.files.stream(fd)?;
        let may_wait = !stream.waits_not(flags);
        let (id, options) = (stream.connection(), stream.options.clone());
        let Some(id) = id else { return Ok(0) };
        let without_cookie = self.opens_without_cookie(&options);
        let room = self.shard().tcp_offer_fast_open(now, id, without_cookie)?;
        let count = if may_wait { bytes.len() } else { room.min(bytes.len()) };
        match count {
            // Nothing to write is an open and no more.
            0 => Ok(0),
            // What is urgent goes with no SYN, for which the call asks; where a part is queued, no record ends with it.
            _ if count < bytes.len() => Ok(self.append(fd, id, &bytes[..count], 0)?),
            _ => Ok(self.append(fd, id, bytes, flags & MSG_EOR)?),
        }
    }

    /// Queues what there is room for. Once a program has found no room, there is none for it
    /// before a third of the buffer is free, as Linux has it.
    fn append(
        &mut self,
        fd: Fd,
        id: SocketId,
        bytes: &[u8],
        flags: i32,
    ) -> Result<usize, SocketError> {
        let now = self.now;
        let status = self.shard().tcp_status(id)?;
        let room = self.shard().tcp_send_room(id)?;
        let Ok(stream) = self.files.stream(fd) else { return Ok(0) };
        let least = match stream.lacks_space {
            true => status.send_buffer_bytes / 3,
            false => 1,
        };
        if room < least {
            return Ok(0);
        }
        let low_water = stream.options.not_sent_low_water;
        let room = match low_water {
            Some(low_water) => room.min(self.unsent_room(id, low_water as usize)?),
            None => room,
        };
        let Ok(stream) = self.files.stream(fd) else { return Ok(0) };
        if room == 0 {
            return Ok(0);
        }
        stream.lacks_space = false;
        let count = room.min(bytes.len());
        stream.written += count as u64;
        let chunk = Chunk::whole(Block::from(Bytes::copy_from_slice(&bytes[..count])));
        match flags & MSG_OOB != 0 {
            true => self.shard().tcp_append_urgent(now, id, chunk)?,
            false => self.shard().tcp_append(now, id, chunk)?,
        }
        if flags & MSG_EOR != 0 && count == bytes.len() {
            self.shard().tcp_end_record(id)?;
        }
        Ok(count)
    }

    /// What may be queued besides, where the program bounds what is unsent (TCP_NOTSENT_LOWAT). As in Linux, data is
    /// kept in pieces of what leaves at once at most, half of the peer's window: the last piece is filled up, and
    /// another begun only where less than the bound is unsent.
    fn unsent_room(&mut self, id: SocketId, low_water: usize) -> Result<usize, SocketError> {
        // What may leave has left.
        self.flush();
        let now = self.now;
        let info = self.shard().tcp_info(now, id)?;
        let (mss, unsent) = (info.send_mss_bytes.max(1), info.unsent_bytes as usize);
        let piece = (info.send_window_bytes / 2).min(PIECE_BYTES_MAX) / mss * mss;
        let piece = piece.max(mss) as usize;
        match unsent % piece {
            0 if unsent >= low_water => Ok(0),
            filled => Ok(piece - filled),
        }
    }

    fn wait_to_send(&mut self, task: &Task, fd: Fd, flags: i32) -> Attempt {
        let stream = self.files.stream(fd)?;
        let (waits_not, timeout) = (stream.waits_not(flags), stream.options.send_timeout);
        match self.wait(task, waits_not, timeout) {
            Stop::Errno(_) if task.written > 0 => Ok(Reply::value(task.written as i64)),
            stop => Err(stop),
        }
    }

    /// Opens, with data in the SYN where a cookie is known (RFC 7413), else asking for one. The rest
    /// follows the handshake, for which a call that may block waits.
    fn send_fast(
        &mut self,
        task: &mut Task,
        fd: Fd,
        bytes: &[u8],
        flags: i32,
        to: Option<Address>,
    ) -> Attempt {
        self.open(fd, to.ok_or(Errno::EDESTADDRREQ)?)?;
        (task.begun, task.opened) = (true, true);
        let stream = self.files.stream(fd)?;
        stream.more_follows = flags & MSG_MORE != 0;
        self.set_cork(fd)?;
        task.written = self.send_with_syn(fd, bytes, flags)?;
        self.wait_to_open(task, fd, flags)
    }

    /// As connect(2) waits, but what went with the SYN is told where the call does not.
    fn wait_to_open(&mut self, task: &Task, fd: Fd, flags: i32) -> Attempt {
        self.wait_to_send(task, fd, flags).map_err(|stop| match stop {
            Stop::Errno(Errno::EAGAIN) => Stop::Errno(Errno::EINPROGRESS),
            other => other,
        })
    }

    /// Whether everything before an urgent byte was read.
    pub(crate) fn is_at_mark(&mut self, fd: Fd) -> Result<bool, Errno> {
        if !self.is_stream(fd) {
            return Err(Errno::ENOTTY);
        }
        Ok(self.status(fd)?.is_some_and(|(_, status)| status.urgent_mark == Some(0)))
    }

    pub(crate) fn readable_bytes(&mut self, fd: Fd) -> Result<usize, Errno> {
        match self.files.get(fd)? {
            File::Stream(stream) if matches!(stream.phase, Phase::Listening(_)) => {
                Err(Errno::EINVAL)
            }
            File::Stream(_) => Ok(self.status(fd)?.map_or(0, |(_, status)| status.readable_bytes)),
            File::Datagram(_) => self.next_datagram_len(fd),
            File::PipeRead(pipe) | File::PipeWrite(pipe) => Ok(pipe.len()),
            File::Epoll(_) => Err(Errno::ENOTTY),
        }
    }

    pub(crate) fn unacknowledged_bytes(&mut self, fd: Fd) -> Result<usize, Errno> {
        match self.files.get(fd)? {
            File::Datagram(_) => Ok(0),
            File::Stream(stream) if matches!(stream.phase, Phase::Listening(_)) => {
                Err(Errno::EINVAL)
            }
            File::Stream(_) => {
                let status = self.status(fd)?.map(|(_, status)| status);
                Ok(status.map_or(0, |status| match status.state {
                    // Linux: what goes with a SYN is not counted before it is answered.
                    State::SynSent | State::SynReceived => 0,
                    // The FIN counts as well (Linux: `write_seq - snd_una`).
                    State::FinWait1 | State::Closing | State::LastAck => {
                        status.unacknowledged_bytes + 1
                    }
                    _ => status.unacknowledged_bytes,
                }))
            }
            _ => Err(Errno::ENOTTY),
        }
    }
}

impl Host {
    pub(crate) fn unsent_bytes(&mut self, fd: Fd) -> Result<usize, Errno> {
        match self.files.get(fd)? {
            File::Stream(stream) if !matches!(stream.phase, Phase::Listening(_)) => {
                let status = self.status(fd)?.map(|(_, status)| status);
                let is_open = |state| !matches!(state, State::SynSent | State::SynReceived);
                Ok(status.filter(|it| is_open(it.state)).map_or(0, |it| it.unsent_bytes))
            }
            File::Stream(_) => Err(Errno::EINVAL),
            _ => Err(Errno::ENOTTY),
        }
    }
}

/// Whether a stream in this state takes what is written.
fn takes_data(state: State) -> bool {
    matches!(state, State::SynReceived | State::Established | State::CloseWait)
}

fn received(task: &mut Task, flags: i32) -> Reply {
    let bytes = core::mem::take(&mut task.read);
    let value = bytes.len() as i64;
    // RFC 9293 has no messages; with MSG_TRUNC Linux throws away what it counts.
    let bytes = if flags & MSG_TRUNC != 0 { Vec::new() } else { bytes };
    Reply { value, ..Reply::bytes(bytes) }
}
