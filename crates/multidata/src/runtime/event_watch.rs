//! Who waits for something to happen to an interface or an address.
//!
//! Such events are told once, to whoever asks first ([`Stack::poll_interface_event`](crate::Stack::poll_interface_event)).
//! Who waits for one enters and then asks; a squeue whose shard has one to tell takes all who are entered, under its
//! lock, and wakes them when it is released. So an event that came before the question is its answer, and one that came
//! after it finds who asked.

use super::locked;
use super::waiting::Sleeper;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Those who wait, of all squeues of a stack.
#[derive(Debug, Default)]
pub(crate) struct EventWatch {
    state: Mutex<State>,
    /// Somebody waits.
    is_watched: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    sleepers: Vec<(u64, Sleeper)>,
    /// The number of the last place.
    last: u64,
}

impl EventWatch {
    /// Somebody who is to wait: entered by [`Place::enter`], and taken out when this is dropped.
    pub(crate) fn place(self: &Arc<Self>) -> Place {
        let mut state = locked(&self.state);
        state.last += 1;
        Place { watch: Arc::clone(self), number: state.last }
    }

    /// Moves all who wait to `woken`. There is something to ask for.
    pub(super) fn on_events(&self, woken: &mut Vec<Sleeper>) {
        // Who enters after this was read asks after it, too, and finds what there is: the lock of the squeue is
        // between the two.
        if !self.is_watched.load(Ordering::SeqCst) {
            return;
        }
        let mut state = locked(&self.state);
        self.is_watched.store(false, Ordering::SeqCst);
        woken.extend(state.sleepers.drain(..).map(|(_, sleeper)| sleeper));
    }
}

/// See [`EventWatch::place`].
#[derive(Debug)]
pub(crate) struct Place {
    watch: Arc<EventWatch>,
    number: u64,
}

impl Place {
    /// Enters who is to be woken, once, in place of whom it was before.
    pub(crate) fn enter(&self, sleeper: Sleeper) {
        let mut state = locked(&self.watch.state);
        let old = take(&mut state.sleepers, self.number);
        state.sleepers.push((self.number, sleeper));
        self.watch.is_watched.store(true, Ordering::SeqCst);
        drop(state);
        // A waker is the application's code, which is let go of under no lock.
        drop(old);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let old = take(&mut locked(&self.watch.state).sleepers, self.number);
        drop(old);
    }
}

fn take(sleepers: &mut Vec<(u64, Sleeper)>, number: u64) -> Option<Sleeper> {
    let at = sleepers.iter().position(|(other, _)| *other == number)?;
    Some(sleepers.swap_remove(at).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn who_waits_is_woken_once_and_who_left_is_forgotten() {
        let watch = Arc::<EventWatch>::default();
        let task = || Sleeper::Task(Waker::noop().clone());
        let mut woken = Vec::new();
        let (first, second) = (watch.place(), watch.place());
        first.enter(task());
        first.enter(task());
        second.enter(task());
        drop(second);
        assert_eq!(locked(&watch.state).sleepers.len(), 1);
        watch.on_events(&mut woken);
        watch.on_events(&mut woken);
        assert_eq!(woken.len(), 1);
        first.enter(task());
        watch.on_events(&mut woken);
        assert_eq!(woken.len(), 2);
    }
}
