//! epoll: a list of interests, level- or edge-triggered.
//!
//! As in Linux, an epoll has a queue of files that may have something to report, and each is looked at when it is its
//! turn: what is not the case any more is passed over, and what is level-triggered goes to the end of the queue
//! when it was reported, so that none starves where events are taken one by one. A file comes into the queue when the
//! interest is set, and when something happens to it that the interest asks for ([`Host::wake`]): for an
//! edge-triggered interest that is the edge. One that is level-triggered comes in whenever it has something to report.

use crate::Errno;
use crate::abi::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT,
    EPOLLWAKEUP, POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDNORM, POLLWRNORM,
};
use crate::call::{EpollEvent, Fd, Output, Reply};
use crate::descriptors::File;
use crate::host::{Attempt, Host, Stop, Task};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// An epoll file.
#[derive(Debug, Default)]
pub(crate) struct Epoll {
    interests: BTreeMap<Fd, Interest>,
    /// Files that may have something to report, each once.
    queue: VecDeque<Fd>,
}

#[derive(Clone, Copy, Debug)]
struct Interest {
    event: EpollEvent,
    /// A one-shot interest that was reported, until it is modified.
    spent: bool,
}

impl Interest {
    /// The events asked for, and those that nobody needs to ask for.
    fn mask(&self) -> u32 {
        self.event.events & !FLAGS | u32::from((POLLERR | POLLHUP) as u16)
    }

    fn is_level(&self) -> bool {
        self.event.events & EPOLLET == 0
    }
}

/// What happened to a file: the poll bits that it may concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News(u16);

impl News {
    pub(crate) const NONE: Self = Self(0);
    /// There is something to read.
    pub(crate) const INPUT: Self = Self((POLLIN | POLLRDNORM | POLLPRI) as u16);
    /// There is room again.
    pub(crate) const OUTPUT: Self = Self((POLLOUT | POLLWRNORM) as u16);
    /// The error queue has something.
    pub(crate) const ERROR: Self = Self(POLLERR as u16);
    /// The file is in another state, which concerns everybody.
    pub(crate) const STATE: Self = Self(u16::MAX);

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Flags in the event mask that are not events.
const FLAGS: u32 = EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE;

/// All that may be asked for together with EPOLLEXCLUSIVE (Linux: EPOLLEXCLUSIVE_OK_BITS).
const EXCLUSIVE_BITS: u32 =
    (POLLIN | POLLOUT | POLLERR | POLLHUP) as u32 | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;

/// How many times an epoll may lie within another (Linux: EP_MAX_NESTS). What looking costs doubles with each.
const NESTS_MAX: usize = 4;

/// Linux: ELOOP.
const LOOP: Errno = Errno(40);

impl Epoll {
    /// Puts a file into the queue where the interest in it asks for such news.
    fn wake(&mut self, fd: Fd, news: News) -> bool {
        let asks =
            |interest: &Interest| !interest.spent && interest.mask() & u32::from(news.0) != 0;
        let wakes = self.interests.get(&fd).is_some_and(asks);
        if wakes && !self.queue.contains(&fd) {
            self.queue.push_back(fd);
        }
        wakes
    }

    fn forget(&mut self, fd: Fd) {
        self.interests.remove(&fd);
        self.queue.retain(|queued| *queued != fd);
    }

    fn interests(&self) -> Vec<(Fd, Interest)> {
        self.interests.iter().map(|(fd, interest)| (*fd, *interest)).collect()
    }
}

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
        let known = self.epoll(epoll)?.interests.contains_key(&fd);
        if fd == epoll || !self.may_be_exclusive(operation, fd, event) {
            return Err(Errno::EINVAL.into());
        }
        let is_exclusive = |it: &Interest| it.event.events & EPOLLEXCLUSIVE != 0;
        let excludes = self.epoll(epoll)?.interests.get(&fd).is_some_and(is_exclusive);
        match operation {
            EPOLL_CTL_ADD if known => return Err(Errno::EEXIST.into()),
            EPOLL_CTL_MOD | EPOLL_CTL_DEL if !known => return Err(Errno::ENOENT.into()),
            EPOLL_CTL_MOD if excludes => return Err(Errno::EINVAL.into()),
            EPOLL_CTL_ADD if self.nests_too_deep(epoll, fd) => return Err(LOOP.into()),
            EPOLL_CTL_ADD | EPOLL_CTL_MOD => {
                let interest = Interest { event, spent: false };
                self.epoll(epoll)?.interests.insert(fd, interest);
                if self.report(fd, interest).is_some() {
                    self.epoll(epoll)?.wake(fd, News::STATE);
                    // Who looks at the epoll hears of it as well.
                    self.wake(epoll, News::INPUT);
                }
            }
            EPOLL_CTL_DEL => self.epoll(epoll)?.forget(fd),
            _ => return Err(Errno::EINVAL.into()),
        }
        Ok(Reply::value(0))
    }

    /// Whether epolls would look at each other in a circle, or through more of them than Linux allows, if one looked at
    /// this file: some way leads on after as many steps.
    fn nests_too_deep(&mut self, epoll: Fd, fd: Fd) -> bool {
        let (mut epolls, mut looks) = (BTreeSet::new(), vec![(epoll, fd)]);
        for (outer, file) in self.files.iter_mut() {
            if let File::Epoll(epoll) = file {
                epolls.insert(outer);
                looks.extend(epoll.interests.keys().map(|inner| (outer, *inner)));
            }
        }
        looks.retain(|(_, inner)| epolls.contains(inner));
        let mut reached = epolls;
        for _ in 0..=NESTS_MAX {
            let from_there = looks.iter().filter(|(outer, _)| reached.contains(outer));
            reached = from_there.map(|(_, inner)| *inner).collect();
        }
        !reached.is_empty()
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

    /// EPOLLEXCLUSIVE is said when an interest is new, of a file that is no epoll, and with no more than it goes with.
    fn may_be_exclusive(&mut self, operation: i32, fd: Fd, event: EpollEvent) -> bool {
        let is_epoll = matches!(self.files.get(fd), Ok(File::Epoll(_)));
        match (event.events & EPOLLEXCLUSIVE != 0, operation) {
            (true, EPOLL_CTL_ADD) => !is_epoll && event.events & !EXCLUSIVE_BITS == 0,
            (true, EPOLL_CTL_MOD) => false,
            _ => true,
        }
    }

    /// A closed file is nobody's interest any more.
    pub(crate) fn forget_interest(&mut self, fd: Fd) {
        for (_, file) in self.files.iter_mut() {
            if let File::Epoll(epoll) = file {
                epoll.forget(fd);
            }
        }
    }

    /// Something happened to a file: whoever asked for it looks at it. An epoll that does is news to those
    /// that look at the epoll.
    pub(crate) fn wake(&mut self, fd: Fd, news: News) {
        let (mut seen, mut happened) = (BTreeSet::new(), vec![(fd, news)]);
        while let Some((fd, news)) = happened.pop() {
            for (epoll_fd, file) in self.files.iter_mut() {
                if let File::Epoll(epoll) = file
                    && epoll.wake(fd, news)
                    && seen.insert(epoll_fd)
                {
                    happened.push((epoll_fd, News::INPUT));
                }
            }
        }
    }

    pub(crate) fn epoll_has_events(&mut self, epoll: Fd) -> Result<bool, Errno> {
        self.fill_queue(epoll)?;
        let epoll = self.epoll(epoll)?;
        let queued: Vec<(Fd, Interest)> =
            epoll.interests().into_iter().filter(|(fd, _)| epoll.queue.contains(fd)).collect();
        Ok(queued.into_iter().any(|(fd, interest)| self.report(fd, interest).is_some()))
    }

    /// Puts into the queue what has something to report and was not woken: room that became enough meanwhile,
    /// and levels.
    fn fill_queue(&mut self, epoll: Fd) -> Result<(), Errno> {
        for (fd, interest) in self.epoll(epoll)?.interests() {
            self.notice_space(fd)?;
            if !interest.is_level() && matches!(self.files.get(fd), Ok(File::Epoll(_))) {
                // Nobody else notices it for what the inner one looks at.
                self.fill_queue(fd)?;
            }
            if interest.is_level() && self.report(fd, interest).is_some() {
                self.epoll(epoll)?.wake(fd, News::STATE);
            }
        }
        Ok(())
    }

    /// Room is news when there is enough for poll(2), once, and only for a program that found none.
    fn notice_space(&mut self, fd: Fd) -> Result<(), Errno> {
        let made = matches!(self.files.get(fd), Ok(File::Stream(stream)) if stream.space_made);
        if made && self.readiness(fd)? & POLLOUT != 0 {
            let stream = self.files.stream(fd)?;
            (stream.space_made, stream.lacks_space) = (false, false);
            self.wake(fd, News::OUTPUT);
        }
        Ok(())
    }

    /// What is there may be enough now that a program wants less (SO_RCVLOWAT): news, as in Linux, for those that
    /// wait for it.
    pub(crate) fn notice_input(&mut self, fd: Fd) -> Result<(), Errno> {
        let is_connection =
            matches!(self.files.get(fd)?, File::Stream(stream) if stream.connection().is_some());
        if is_connection && self.readiness(fd)? & POLLIN != 0 {
            self.wake(fd, News::INPUT);
        }
        Ok(())
    }

    /// The room there is may be enough now that a program allows more to be unsent (TCP_NOTSENT_LOWAT).
    pub(crate) fn notice_output(&mut self, fd: Fd) -> Result<(), Errno> {
        if self.readiness(fd)? & POLLOUT != 0 {
            self.files.stream(fd)?.space_made = true;
            self.notice_space(fd)?;
        }
        Ok(())
    }

    /// Events to report, which are then reported.
    fn collect(&mut self, epoll: Fd, events_max: usize) -> Result<Vec<EpollEvent>, Errno> {
        self.fill_queue(epoll)?;
        let mut events = Vec::new();
        let mut again = Vec::new();
        while events.len() < events_max {
            let Some(fd) = self.epoll(epoll)?.queue.pop_front() else { break };
            let Some(interest) = self.epoll(epoll)?.interests.get(&fd).copied() else { continue };
            let Some(bits) = self.report(fd, interest) else { continue };
            events.push(EpollEvent { events: bits, data: interest.event.data });
            if interest.event.events & EPOLLONESHOT != 0 {
                let spent = Interest { spent: true, ..interest };
                self.epoll(epoll)?.interests.insert(fd, spent);
            } else if interest.is_level() {
                again.push(fd);
            }
        }
        self.epoll(epoll)?.queue.extend(again);
        Ok(events)
    }

    /// The bits of an interest that there are to report.
    fn report(&mut self, fd: Fd, interest: Interest) -> Option<u32> {
        let ready = self.readiness(fd).ok()? as u16;
        let bits = u32::from(ready) & interest.mask();
        (bits != 0 && !interest.spent).then_some(bits)
    }

    fn epoll(&mut self, fd: Fd) -> Result<&mut Epoll, Errno> {
        match self.files.get(fd)? {
            File::Epoll(epoll) => Ok(epoll),
            _ => Err(Errno::EINVAL),
        }
    }
}
