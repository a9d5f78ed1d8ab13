//! SO_ZEROCOPY: what was written with MSG_ZEROCOPY is told of on the error queue.
//!
//! A call here hands over its bytes by value, so that its buffer is free at once, and every notice says
//! that the bytes were copied, as Linux's do where a device cannot gather. When a notice comes is
//! Linux's all the same: with the ACK of the last byte. Notices that nobody has read yet are one, of a range.

use crate::Errno;
use crate::abi::{MSG_ERRQUEUE, SO_EE_CODE_ZEROCOPY_COPIED, SO_EE_ORIGIN_ZEROCOPY};
use crate::call::{Fd, Output, Reply};
use crate::epoll::News;
use crate::error_queue::ExtendedError;
use crate::host::{Attempt, Host};
use std::collections::VecDeque;
use tcp::State;

/// Writes of a stream that are to be told of.
#[derive(Debug, Default)]
pub(crate) struct ZeroCopy {
    /// The number of the next.
    next: u32,
    /// Those that are not acknowledged, with the place in the stream at which each ends. Each has a byte
    /// at least, so that the send buffer bounds them.
    waiting: VecDeque<(u64, u32)>,
    /// The first and the last of those that are, and of which the program was not told.
    notice: Option<(u32, u32)>,
}

impl ZeroCopy {
    pub(crate) fn has_notice(&self) -> bool {
        self.notice.is_some()
    }

    /// Everything before this place is acknowledged. Says whether that is news.
    fn on_acknowledged(&mut self, place: u64) -> bool {
        let mut is_news = false;
        while let Some((_, number)) = self.waiting.front().filter(|(end, _)| *end <= place) {
            let first = self.notice.map_or(*number, |(first, _)| first);
            self.notice = Some((first, *number));
            self.waiting.pop_front();
            is_news = true;
        }
        is_news
    }
}

impl Host {
    /// A write with MSG_ZEROCOPY has queued something.
    pub(crate) fn on_zero_copy(&mut self, fd: Fd) -> Result<(), Errno> {
        let stream = self.files.stream(fd)?;
        if stream.options.zero_copy {
            let zero_copy = &mut stream.zero_copy;
            zero_copy.waiting.push_back((stream.written, zero_copy.next));
            zero_copy.next = zero_copy.next.wrapping_add(1);
        }
        Ok(())
    }

    /// Looks which writes were acknowledged meanwhile, and wakes who waits to be told.
    pub(crate) fn notice_zero_copies(&mut self) {
        let waits = self.files.streams().filter(|(_, stream)| !stream.zero_copy.waiting.is_empty());
        for fd in waits.map(|(fd, _)| fd).collect::<Vec<_>>() {
            let unacknowledged = match self.status(fd) {
                Ok(Some((_, status))) if status.state != State::Closed => {
                    status.unacknowledged_bytes as u64
                }
                _ => 0,
            };
            let Ok(stream) = self.files.stream(fd) else { continue };
            let place = stream.written.saturating_sub(unacknowledged);
            if stream.zero_copy.on_acknowledged(place) {
                self.wake(fd, News::ERROR);
            }
        }
    }

    /// recvmsg(2) with MSG_ERRQUEUE.
    pub(crate) fn read_notice(&mut self, fd: Fd) -> Attempt {
        let stream = self.files.stream(fd)?;
        let (first, last) = stream.zero_copy.notice.take().ok_or(Errno::EAGAIN)?;
        // No error, and so nobody's.
        let notice = ExtendedError {
            errno: 0,
            origin: SO_EE_ORIGIN_ZEROCOPY,
            kind: 0,
            code: SO_EE_CODE_ZEROCOPY_COPIED,
            info: first,
            data: last,
            offender: None,
        };
        let control = vec![notice.message(stream.domain)];
        let (bytes, flags) = (Vec::new(), MSG_ERRQUEUE);
        Ok(Reply { value: 0, output: Output::Received { bytes, from: None, flags, control } })
    }
}
