//! What happened, event by event, for those who watch: the `tracing` crate, where it is asked for.
//!
//! Counters say how often; an event says when, and to whom. Events are off by default, and then
//! `trace!` leaves nothing in the code: neither a branch nor its arguments. With the feature
//! `tracing` every event goes to the subscriber of the process, with the target `multidata`: states
//! that change, segments sent again, recovery that begins and ends, timers that go off, packets
//! that are dropped. They are as many as the packets of a bad path, so this is for looking at one
//! problem, not for running always.

/// Emits an event with the fields and the message of `tracing::debug!`, if the feature `tracing` is
/// on; otherwise it is nothing, and its arguments are not evaluated.
#[cfg(feature = "tracing")]
#[macro_export]
macro_rules! trace {
    ($($event:tt)*) => {
        $crate::tracing::debug!(target: "multidata", $($event)*)
    };
}

/// Emits an event with the fields and the message of `tracing::debug!`, if the feature `tracing` is
/// on; otherwise it is nothing, and its arguments are not evaluated.
#[cfg(not(feature = "tracing"))]
#[macro_export]
macro_rules! trace {
    ($($event:tt)*) => {};
}
