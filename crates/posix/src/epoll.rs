//! epoll: a list of interests, level- or edge-triggered.

use crate::Errno;
use crate::abi::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLONESHOT, POLLERR, POLLHUP,
};
use crate::call::{EpollEvent, Fd, Output, Reply};
use crate::descriptors::File;
use crate::host::{Attempt, Host, Stop, Task};
use std::collections::BTreeMap;

/// An epoll file.
#[derive(Debug, Default)]
pub(crate) struct Epoll {
    interests: BTreeMap<Fd, Interest>,
}

#[derive(Clone, Copy, Debug)]
struct Interest {
    event: EpollEvent,
    /// Count of changes of the file when it was last reported; `None` before.
    seen: Option<u64>,
    /// A one-shot interest that was reported, until it is modified.
    spent: bool,
}

/// Flags in the event mask that are not events.
const FLAGS: u32 = EPOLLET | EPOLLONESHOT | 1 << 29 | 1 << 28;

impl Host {
    pub(crate) fn epoll_create(&mut self, size: i32) -> Attempt {
        if size <= 0 {
            return Err(Errno::EINVAL.into());
        }
        Ok(Reply::value(self.files.insert(File::Epoll(Epoll::default()))?.into()))
    }

    pub(crate) fn epoll_control(
        &mut self,
        epoll: Fd,
        operation: i32,
        fd: Fd,
        event: EpollEvent,
    ) -> Attempt {
        if !self.files.contains(fd) {
            return Err(Errno::EBADF.into());
        }
        let epoll_fd = epoll;
        let epoll = self.epoll(epoll)?;
        if fd == epoll_fd {
            return Err(Errno::EINVAL.into());
        }
        let known = epoll.interests.contains_key(&fd);
        match operation {
            EPOLL_CTL_ADD if known => return Err(Errno::EEXIST.into()),
            EPOLL_CTL_MOD | EPOLL_CTL_DEL if !known => return Err(Errno::ENOENT.into()),
            EPOLL_CTL_ADD | EPOLL_CTL_MOD => {
                epoll.interests.insert(fd, Interest { event, seen: None, spent: false });
            }
            EPOLL_CTL_DEL => {
                epoll.interests.remove(&fd);
            }
            _ => return Err(Errno::EINVAL.into()),
        }
        Ok(Reply::value(0))
    }

    pub(crate) fn epoll_wait(
        &mut self,
        task: &Task,
        epoll: Fd,
        events_max: i32,
        timeout_ms: i32,
    ) -> Attempt {
        let events_max = match usize::try_from(events_max) {
            Ok(max @ 1..) => max,
            _ => return Err(Errno::EINVAL.into()),
        };
        let events = self.collect(epoll, events_max)?;
        if events.is_empty() && !self.has_waited(task, timeout_ms) {
            return Err(Stop::Wait(self.wait_until(task, timeout_ms)));
        }
        Ok(Reply { value: events.len() as i64, output: Output::Epoll(events) })
    }

    /// A closed file is nobody's interest any more.
    pub(crate) fn forget_interest(&mut self, fd: Fd) {
        for file in self.files.iter_mut() {
            if let File::Epoll(epoll) = file {
                epoll.interests.remove(&fd);
            }
        }
    }

    pub(crate) fn epoll_has_events(&mut self, epoll: Fd) -> Result<bool, Errno> {
        let interests: Vec<(Fd, Interest)> =
            self.epoll(epoll)?.interests.iter().map(|(fd, interest)| (*fd, *interest)).collect();
        Ok(interests.into_iter().any(|(fd, interest)| self.report(fd, interest).is_some()))
    }

    /// Events to report, which are then reported.
    fn collect(&mut self, epoll: Fd, events_max: usize) -> Result<Vec<EpollEvent>, Errno> {
        let interests: Vec<(Fd, Interest)> =
            self.epoll(epoll)?.interests.iter().map(|(fd, interest)| (*fd, *interest)).collect();
        let mut events = Vec::new();
        for (fd, interest) in interests {
            if events.len() == events_max {
                break;
            }
            let Some(bits) = self.report(fd, interest) else { continue };
            let changes = self.changes(fd);
            let kept = self.epoll(epoll)?.interests.get_mut(&fd).ok_or(Errno::ENOENT)?;
            kept.seen = Some(changes);
            kept.spent = interest.event.events & EPOLLONESHOT != 0;
            events.push(EpollEvent { events: bits, data: interest.event.data });
        }
        Ok(events)
    }

    /// The bits of an interest that there are to report.
    fn report(&mut self, fd: Fd, interest: Interest) -> Option<u32> {
        if interest.spent {
            return None;
        }
        let ready = self.readiness(fd).ok()? as u16;
        let always = (POLLERR | POLLHUP) as u16;
        let bits = u32::from(ready) & (interest.event.events & !FLAGS | u32::from(always));
        let is_edge = interest.event.events & EPOLLET != 0;
        let is_news = interest.seen != Some(self.changes(fd));
        (bits != 0 && (!is_edge || is_news)).then_some(bits)
    }

    fn changes(&mut self, fd: Fd) -> u64 {
        match self.files.get(fd) {
            Ok(File::Stream(stream)) => {
                if core::mem::take(&mut stream.space_made) {
                    stream.changes += 1;
                }
                stream.changes
            }
            Ok(File::Datagram(datagram)) => datagram.changes,
            _ => 0,
        }
    }

    fn epoll(&mut self, fd: Fd) -> Result<&mut Epoll, Errno> {
        match self.files.get(fd)? {
            File::Epoll(epoll) => Ok(epoll),
            _ => Err(Errno::EINVAL),
        }
    }
}
