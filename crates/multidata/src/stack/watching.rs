//! Waiting for something to happen to an interface or an address.

use super::Stack;
use crate::error::device_error;
use crate::runtime::event_watch::Place;
use crate::runtime::locked;
use crate::runtime::turn::{After, Call};
use crate::runtime::waiting::{Interest, Parker, Sleeper};
use core::fmt;
use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;
use stack::{AddressEvent, InterfaceEvent, SocketError};
use std::io;
use std::sync::Arc;

/// While the stack is being built its squeues are run in turn, each for so long.
const LISTEN_MAX: Duration = Duration::from_millis(5);

/// Something happened to an interface or to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackEvent {
    /// What [`Stack::poll_interface_event`] tells.
    Interface(InterfaceEvent),
    /// What [`Stack::poll_address_event`] tells.
    Address(AddressEvent),
}

impl fmt::Display for StackEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(event) => event.fmt(formatter),
            Self::Address(event) => event.fmt(formatter),
        }
    }
}

impl Stack {
    /// Waits until something has happened to an interface or to an address, for as long as `timeout` says where there
    /// is one: a device failed, a cable was pulled, a lease was lost. What happened since this, or one of the
    /// `poll_*_event` calls, was asked last is told first, the interfaces' before the addresses'.
    /// Each event is told to one who asks; of several squeues each tells what all of them meet, as of a failed device,
    /// and who slept until the first met it mostly hears it again from the others.
    ///
    /// # Errors
    /// `TimedOut` where nothing happened in time; `NetworkDown` where the stack was ended ([`Stack::abort`]) and has had
    /// no other device since.
    pub fn wait_for_event(&self, timeout: Option<Duration>) -> io::Result<StackEvent> {
        // Beyond what an instant can say there is no limit.
        let until = timeout.and_then(|timeout| std::time::Instant::now().checked_add(timeout));
        // Not the thread's own: a waker that is called while events are asked for may wait for something itself, and
        // would take the notification.
        let (place, parker) = (self.runtime.event_watch.place(), Arc::<Parker>::default());
        loop {
            if let Some(outcome) = self.ask(&place, Sleeper::Thread(Arc::clone(&parker))) {
                return outcome;
            }
            let left =
                until.map(|until| until.saturating_duration_since(std::time::Instant::now()));
            if left == Some(Duration::ZERO) {
                let message = "nothing happened to an interface or an address in time";
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            if locked(&self.runtime.threads).is_none() {
                self.listen(&parker, left);
            } else {
                parker.park(left);
            }
        }
    }

    /// Runs the squeues for a while: none of the stack's threads does while it is being built.
    fn listen(&self, parker: &Parker, left: Option<Duration>) {
        let slice = left.map_or(LISTEN_MAX, |left| left.min(LISTEN_MAX));
        let call = Call {
            socket: None,
            interest: Interest::Readable,
            after: After::Leave,
            takes_bytes: 0,
            blocks: true,
            timeout: Some(slice),
            expired: io::ErrorKind::TimedOut,
        };
        for squeue in self.runtime.squeues.iter() {
            let waited = squeue.operate(&call, |core, now| {
                core.run(now);
                Err::<(), _>(SocketError::WouldBlock)
            });
            if waited.is_err_and(|error| error.kind() != io::ErrorKind::TimedOut) {
                // No device is left to wait for.
                parker.park(Some(slice));
            }
        }
    }

    /// As [`Stack::wait_for_event`] without a timeout, for tasks of any executor, but not while the stack is being built
    /// ([`StackBuilder::build_with`](crate::StackBuilder::build_with)): it hears nothing by this. Where the future is dropped, no event
    /// was taken. As long as it is there, the stack is, too.
    ///
    /// # Errors
    /// `NetworkDown` as [`Stack::wait_for_event`].
    pub async fn next_event(&self) -> io::Result<StackEvent> {
        let place = self.runtime.event_watch.place();
        poll_fn(|context| {
            let outcome = self.ask(&place, Sleeper::Task(context.waker().clone()));
            outcome.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    fn ask(&self, place: &Place, sleeper: Sleeper) -> Option<io::Result<StackEvent>> {
        place.enter(sleeper);
        let interface = self.poll_interface_event().map(StackEvent::Interface);
        let event = interface.or_else(|| self.poll_address_event().map(StackEvent::Address));
        let ended = || self.squeue(0).look(|core| core.devices.ended().map(device_error));
        event.map(Ok).or_else(|| ended().map(Err))
    }
}
