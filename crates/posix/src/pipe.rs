//! Pipes, and splicing between them and sockets.

use crate::Errno;
use crate::abi::{O_RDONLY, O_WRONLY, SPLICE_F_ALL, SPLICE_F_NONBLOCK};
use crate::call::{Fd, Output, Reply};
use crate::descriptors::File;
use crate::epoll::News;
use crate::host::{Attempt, Host, Stop, Task};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes a pipe holds (pipe(7)).
const PIPE_BYTES: usize = 65_536;

/// What is written whole or not at all (pipe(7), PIPE_BUF).
const WHOLE_BYTES_MAX: usize = 4_096;

/// What both ends of a pipe share. A lock, though one thread uses it at a time, because the host
/// may move between threads.
#[derive(Debug, Default)]
struct Shared {
    bytes: VecDeque<u8>,
    ends_closed: u8,
}

/// One end of a pipe.
#[derive(Debug, Clone)]
pub(crate) struct Pipe {
    shared: Arc<Mutex<Shared>>,
    pub(crate) nonblocking: bool,
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether both are ends of the same pipe.
    fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().bytes.len()
    }

    pub(crate) fn room(&self) -> usize {
        // What was put back may be more than it holds.
        PIPE_BYTES.saturating_sub(self.len())
    }

    /// Whether there is room for whatever goes whole: as POSIX has it of poll(2), and Linux as long as a page is free.
    pub(crate) fn is_writable(&self) -> bool {
        self.room() >= WHOLE_BYTES_MAX
    }

    pub(crate) fn is_other_end_closed(&self) -> bool {
        self.lock().ends_closed > 0
    }

    pub(crate) fn close_end(&self) {
        self.lock().ends_closed += 1;
    }

    pub(crate) fn read(&self, len: usize) -> Attempt {
        if len > 0 && self.len() == 0 && !self.is_other_end_closed() {
            return Err(match self.nonblocking {
                true => Stop::Errno(Errno::EAGAIN),
                false => Stop::Wait(None),
            });
        }
        Ok(Reply::bytes(self.take(len)))
    }

    fn take(&self, len: usize) -> Vec<u8> {
        let mut shared = self.lock();
        let count = len.min(shared.bytes.len());
        shared.bytes.drain(..count).collect()
    }

    fn look(&self, len: usize) -> Vec<u8> {
        self.lock().bytes.iter().take(len).copied().collect()
    }

    fn put(&self, bytes: &[u8]) {
        self.lock().bytes.extend(bytes);
    }

    fn put_back(&self, bytes: &[u8]) {
        let mut shared = self.lock();
        for byte in bytes.iter().rev() {
            shared.bytes.push_front(*byte);
        }
    }

    pub(crate) fn write(&self, task: &mut Task, bytes: &[u8]) -> Attempt {
        // As Linux: of nothing it is not asked who reads, and what went before nobody did is told.
        match (self.is_other_end_closed() && !bytes.is_empty(), task.written) {
            (true, 0) => return Err(Errno::EPIPE.into()),
            (true, written) => return Ok(Reply::value(written as i64)),
            (false, _) => {}
        }
        let room = self.room();
        let count = match bytes.len() <= WHOLE_BYTES_MAX && room < bytes.len() {
            true => 0,
            false => room.min(bytes.len() - task.written),
        };
        self.put(&bytes[task.written..task.written + count]);
        task.written += count;
        match (task.written == bytes.len(), self.nonblocking, task.written) {
            (true, ..) | (false, true, 1..) => Ok(Reply::value(task.written as i64)),
            (false, true, 0) => Err(Errno::EAGAIN.into()),
            (false, false, _) => Err(Stop::Wait(None)),
        }
    }
}

impl Host {
    pub(crate) fn pipe(&mut self) -> Attempt {
        // One end alone would be nobody's.
        if !self.files.have_room_for(2) {
            return Err(Errno::EMFILE.into());
        }
        let shared = Arc::new(Mutex::new(Shared::default()));
        let end = Pipe { shared, nonblocking: false };
        let read = self.files.insert(File::PipeRead(end.clone()))?;
        let write = self.files.insert(File::PipeWrite(end))?;
        Ok(Reply { value: 0, output: Output::Pipe([read, write]) })
    }

    /// Something happened to a pipe: its ends that are open hear what concerns them. News of input are for the one
    /// that reads, of output for the one that writes; each end has no other.
    pub(crate) fn wake_pipe(&mut self, pipe: &Pipe, news: News) {
        let reads = |file: &File| matches!(file, File::PipeRead(end) if end.is_of(pipe));
        let writes = |file: &File| matches!(file, File::PipeWrite(end) if end.is_of(pipe));
        for fd in [self.files.find(reads), self.files.find(writes)].into_iter().flatten() {
            self.wake(fd, news);
        }
    }

    /// Room in a pipe is news where there was not enough.
    pub(crate) fn wake_writer(&mut self, pipe: &Pipe, was_full: bool) {
        if was_full && pipe.is_writable() {
            self.wake_pipe(pipe, News::OUTPUT);
        }
    }

    /// splice(2): one of the two is a pipe, the other a stream; of nothing, as in Linux, whatever they are.
    pub(crate) fn splice(
        &mut self,
        task: &mut Task,
        from: Fd,
        to: Fd,
        offsets: bool,
        len: usize,
        flags: u32,
    ) -> Attempt {
        if len == 0 {
            return Ok(Reply::value(0));
        }
        self.check_splice(from, to, offsets, flags)?;
        let may_not_wait = flags & SPLICE_F_NONBLOCK != 0;
        let source = match self.files.get(from)? {
            File::PipeRead(pipe) => Some(pipe.clone()),
            File::Stream(_) => None,
            _ => return Err(Errno::EINVAL.into()),
        };
        let sink = match self.files.get(to)? {
            File::PipeWrite(pipe) => Some(pipe.clone()),
            File::Stream(_) => None,
            _ => return Err(Errno::EINVAL.into()),
        };
        match (source, sink) {
            (None, Some(pipe)) => {
                if pipe.is_other_end_closed() {
                    return Err(Errno::EPIPE.into());
                }
                let room = pipe.room().min(len);
                if room == 0 {
                    return Err(stop(may_not_wait || pipe.nonblocking));
                }
                let reply = self.receive(task, from, room, dont_wait(may_not_wait))?;
                if let Output::Received { bytes, .. } = &reply.output {
                    pipe.put(bytes);
                    if !bytes.is_empty() {
                        self.wake_pipe(&pipe, News::INPUT);
                    }
                }
                Ok(Reply::value(reply.value))
            }
            (Some(pipe), None) => {
                // What the call began with it goes on with, whatever comes into the pipe meanwhile.
                let most = if task.read.is_empty() { len } else { task.read.len() };
                task.read.truncate(task.written);
                task.read.extend(pipe.look(most - task.written));
                if task.read.is_empty() {
                    return match pipe.is_other_end_closed() {
                        true => Ok(Reply::value(0)),
                        false => Err(stop(may_not_wait || pipe.nonblocking)),
                    };
                }
                let (bytes, before) = (task.read.clone(), task.written);
                let attempt = self.send(task, to, &bytes, dont_wait(may_not_wait), None, &[]);
                // What was sent is in the pipe no more, also while the call waits; what is not sent stays there.
                let was_full = !pipe.is_writable();
                pipe.take(task.written - before);
                if let Err(Stop::Errno(_)) = attempt {
                    // It went with a SYN that nobody answered.
                    pipe.put_back(&bytes[..task.written]);
                }
                self.wake_writer(&pipe, was_full);
                attempt
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// What splice(2) asks before it looks at what the files are, in Linux's order.
    fn check_splice(&mut self, from: Fd, to: Fd, offsets: bool, flags: u32) -> Result<(), Errno> {
        if flags & !SPLICE_F_ALL != 0 {
            return Err(Errno::EINVAL);
        }
        let reads = self.files.get(from)?.access() != O_WRONLY;
        let writes = self.files.get(to)?.access() != O_RDONLY;
        match (offsets, reads && writes) {
            (true, _) => Err(Errno::ESPIPE),
            (false, true) => Ok(()),
            (false, false) => Err(Errno::EBADF),
        }
    }
}

fn stop(may_not_wait: bool) -> Stop {
    if may_not_wait { Stop::Errno(Errno::EAGAIN) } else { Stop::Wait(None) }
}

fn dont_wait(may_not_wait: bool) -> i32 {
    if may_not_wait { crate::abi::MSG_DONTWAIT } else { 0 }
}
