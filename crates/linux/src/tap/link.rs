//! The interface of a TUN file: whether it is up, and whether it is there at all.
//!
//! The driver says EIO to whatever is written while the interface is down, and EBADFD to every call once
//! it was deleted or the file was detached from it. poll(2) tells both apart without a name, which may
//! be another interface's by now, and which means nothing where the interface was moved to another
//! namespace: the file is in error when the interface is gone, and writable only while it is up. So
//! what is down takes nothing and loses nothing that a connection owes, and what is gone has failed.

use crate::interface::Interface;
use crate::ioctl;
use crate::system_error::interface_down;
use device::{DeviceCounters, DeviceError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::sync::Arc;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Link {
    file: Arc<OwnedFd>,
    name: String,
    /// The interface as it was found when it was opened; absent where it is out of reach.
    interface: Option<Interface>,
    /// Why the interface is of no use now.
    lost: Option<DeviceError>,
    /// Writes that met EIO although the interface was up, since one passed or the interface was seen down.
    doubts: usize,
}

/// How many writes in a row may have met an interface that is up again when it is looked at.
const DOUBTS_MAX: usize = 8;

/// How an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    /// It may come up again.
    Down,
    /// It was deleted, or the file was detached from it: that is for good.
    Gone,
}

impl Link {
    pub(super) fn new(file: Arc<OwnedFd>, name: String, interface: Option<Interface>) -> Self {
        Self { file, name, interface, lost: None, doubts: 0 }
    }

    /// The interface's name, by which it was found.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The longest packet that the interface takes by now, where it can be asked.
    pub(super) fn mtu_bytes(&self) -> Option<usize> {
        self.interface.as_ref().filter(|it| it.exists())?.mtu_bytes().ok()
    }

    /// Why the interface is of no use now.
    pub(super) fn trouble(&self) -> Option<&DeviceError> {
        self.lost.as_ref()
    }

    /// Whether the interface was down when it was looked at last.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Looks at the interface, and counts where it went down or came up again.
    pub(super) fn look(&mut self, counters: &mut DeviceCounters) -> State {
        let state = self.state();
        match state {
            State::Up => counters.links_restored += u64::from(self.lost.take().is_some()),
            State::Down if self.lost.is_none() => {
                counters.links_lost += 1;
                // It may have another name by now, and to bring it up takes that.
                let now = ioctl::tun_interface(&self.file).map(|(name, _)| name);
                self.lost = Some(interface_down(now.as_deref().unwrap_or(&self.name)));
            }
            State::Down | State::Gone => {}
        }
        state
    }

    /// Takes an EIO, and says whether the write is worth repeating: an interface that is up may have
    /// been down a moment ago, and several times where it flaps, but not each time.
    pub(super) fn is_passing(&mut self, state: State) -> bool {
        self.doubts = if state == State::Up { self.doubts + 1 } else { 0 };
        state != State::Gone && self.doubts <= DOUBTS_MAX
    }

    /// A write has passed.
    pub(super) fn on_written(&mut self) {
        self.doubts = 0;
    }

    fn state(&self) -> State {
        let mut files = [PollFd::new(&*self.file, PollFlags::OUT)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let told = match poll(&mut files, Some(&at_once)) {
            Ok(_) => files[0].revents(),
            Err(_) => PollFlags::empty(),
        };
        if told.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
            return State::Gone;
        }
        // What is up and full is not writable either.
        let is_up = |it: &Interface| it.exists() && it.is_up().unwrap_or(false);
        match told.contains(PollFlags::OUT) || self.interface.as_ref().is_some_and(is_up) {
            true => State::Up,
            false => State::Down,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::withheld;
    use std::os::unix::net::UnixDatagram;

    /// Neither is writable; where the interface is within reach that tells.
    #[test]
    fn an_interface_that_is_full_is_not_down() {
        let loopback = Interface::named("lo").expect("it is always there");
        if loopback.is_up() != Ok(true) {
            return withheld::cannot_run("an_interface_that_is_full_is_not_down", "lo is down");
        }
        let (file, _peer) = UnixDatagram::pair().expect("a pair of sockets");
        file.set_nonblocking(true).expect("an option of sockets");
        while file.send(&[0; 1_000]).is_ok() {}
        let (file, mut counters) = (Arc::new(OwnedFd::from(file)), DeviceCounters::default());
        let mut within_reach = Link::new(Arc::clone(&file), "lo".to_owned(), Some(loopback));
        assert_eq!(within_reach.look(&mut counters), State::Up);
        let mut out_of_reach = Link::new(file, "lo".to_owned(), None);
        assert_eq!(out_of_reach.look(&mut counters), State::Down);
        assert_eq!(counters.links_lost, 1);
    }

    #[test]
    fn an_interface_that_flaps_has_not_failed() {
        let (file, _peer) = UnixDatagram::pair().expect("a pair of sockets");
        let mut link = Link::new(Arc::new(file.into()), "TAP".to_owned(), None);
        let mut is_passing = |states: &[State]| {
            states.iter().map(|state| link.is_passing(*state)).collect::<Vec<_>>()
        };
        assert_eq!(is_passing(&[State::Up; 3]), [true; 3]);
        // It was down each time, as far as that was seen.
        assert_eq!(is_passing(&[State::Up, State::Down].repeat(20)), [true; 40]);
        assert_eq!(is_passing(&[State::Up; DOUBTS_MAX]), [true; DOUBTS_MAX]);
        assert_eq!(is_passing(&[State::Up, State::Gone]), [false; 2]);
        link.on_written();
        assert!(link.is_passing(State::Up));
    }
}
