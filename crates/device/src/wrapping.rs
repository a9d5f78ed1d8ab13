//! Queues around queues: what a wrapper leaves as it is.
//!
//! Some calls of [`Queue`](crate::Queue) have a default, which is right for a device that has nothing to
//! say there and wrong for a queue around another one: it would keep silent what the queue within says.
//! So a wrapper names the calls that it has of its own, and all others are passed on, those as well that
//! the trait will have one day.

/// Passes calls of a [`Queue`](crate::Queue) on to the queue within, all but those that are named.
///
/// It stands in the implementation of the trait; what stands between the bars is always `self`, and behind
/// them is where the queue within lies.
///
/// ```
/// use device::{Queue, WireConfig, WireEnd, Medium};
///
/// struct Named<Q> {
///     inner: Q,
///     name: &'static str,
/// }
///
/// impl<Q: Queue> Queue for Named<Q> {
///     device::forward_queue!(|self| self.inner, but trouble);
///
///     fn trouble(&self) -> Option<device::DeviceError> {
///         let mut trouble = self.inner.trouble()?;
///         trouble.message = format!("{}: {}", self.name, trouble.message);
///         Some(trouble)
///     }
/// }
///
/// let end = WireEnd::plain(Medium::Ip);
/// let (left, _right) = device::wire(WireConfig::new(end, end));
/// let queue = Named { inner: left, name: "the office" };
/// assert_eq!(queue.capabilities().mtu_bytes, 1_500);
/// ```
#[macro_export]
macro_rules! forward_queue {
    (|$self:ident| $inner:expr $(, but $($own:ident),+)?) => {
        $crate::forward_queue_calls! {
            [$($($own)+)?] $self, $inner =>
            capabilities set_mode room transmit receive
            reclaim is_stalled trouble retry_after waiter counters
        }
    };
}

/// The calls of [`forward_queue`], each unless it is among those in brackets.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_queue_calls {
    ($own:tt $self:ident, $inner:expr => $($call:ident)+) => {
        $($crate::forward_queue_calls! { $call $own $self, $inner })+
    };
    (capabilities [capabilities $($own:ident)*] $($to:tt)*) => {};
    (set_mode [set_mode $($own:ident)*] $($to:tt)*) => {};
    (room [room $($own:ident)*] $($to:tt)*) => {};
    (transmit [transmit $($own:ident)*] $($to:tt)*) => {};
    (receive [receive $($own:ident)*] $($to:tt)*) => {};
    (reclaim [reclaim $($own:ident)*] $($to:tt)*) => {};
    (is_stalled [is_stalled $($own:ident)*] $($to:tt)*) => {};
    (trouble [trouble $($own:ident)*] $($to:tt)*) => {};
    (retry_after [retry_after $($own:ident)*] $($to:tt)*) => {};
    (waiter [waiter $($own:ident)*] $($to:tt)*) => {};
    (counters [counters $($own:ident)*] $($to:tt)*) => {};
    ($call:ident [$other:ident $($own:ident)*] $($to:tt)*) => {
        $crate::forward_queue_calls! { $call [$($own)*] $($to)* }
    };
    (capabilities [] $self:ident, $inner:expr) => {
        fn capabilities(&$self) -> $crate::Capabilities {
            $crate::Queue::capabilities(&$inner)
        }
    };
    (set_mode [] $self:ident, $inner:expr) => {
        fn set_mode(&mut $self, mode: $crate::TransmitMode) -> Result<(), $crate::DeviceError> {
            $crate::Queue::set_mode(&mut $inner, mode)
        }
    };
    (room [] $self:ident, $inner:expr) => {
        fn room(&$self) -> $crate::Room {
            $crate::Queue::room(&$inner)
        }
    };
    (transmit [] $self:ident, $inner:expr) => {
        fn transmit(&mut $self, batch: &$crate::batch::Multidata) -> $crate::Transmitted {
            $crate::Queue::transmit(&mut $inner, batch)
        }
    };
    (receive [] $self:ident, $inner:expr) => {
        fn receive(
            &mut $self,
            pool: &$crate::batch::BlockPool,
            batch: &mut $crate::batch::ReceiveBatch,
            frames_max: usize,
        ) -> $crate::Received {
            $crate::Queue::receive(&mut $inner, pool, batch, frames_max)
        }
    };
    (reclaim [] $self:ident, $inner:expr) => {
        fn reclaim(&mut $self) {
            $crate::Queue::reclaim(&mut $inner);
        }
    };
    (is_stalled [] $self:ident, $inner:expr) => {
        fn is_stalled(&$self) -> bool {
            $crate::Queue::is_stalled(&$inner)
        }
    };
    (trouble [] $self:ident, $inner:expr) => {
        fn trouble(&$self) -> Option<$crate::DeviceError> {
            $crate::Queue::trouble(&$inner)
        }
    };
    (retry_after [] $self:ident, $inner:expr) => {
        fn retry_after(&$self) -> Option<::core::time::Duration> {
            $crate::Queue::retry_after(&$inner)
        }
    };
    (waiter [] $self:ident, $inner:expr) => {
        fn waiter(&$self) -> ::std::sync::Arc<dyn $crate::Waiter> {
            $crate::Queue::waiter(&$inner)
        }
    };
    (counters [] $self:ident, $inner:expr) => {
        fn counters(&$self) -> $crate::DeviceCounters {
            $crate::Queue::counters(&$inner)
        }
    };
}

#[cfg(test)]
mod tests;
