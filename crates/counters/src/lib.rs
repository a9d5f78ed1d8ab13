//! Counter tables and the reasons for which a packet may be dropped.
//!
//! One table serves three readers: the user's statistics, the bench's explanation of a figure
//! and the simulation's invariants. A counter is a plain `u64` with one owner; a table is declared
//! once with [`counters!`], which also gives every counter its name and its description. Who must
//! know when something happened uses [`trace!`].

mod batch_sizes;
mod drop_reason;
mod multidata_refusal;
mod trace;

pub use batch_sizes::BatchSizes;
pub use drop_reason::{DropCounters, DropReason};
pub use multidata_refusal::{MultidataRefusal, RefusalCounters};
#[cfg(feature = "tracing")]
#[doc(hidden)]
pub use tracing;

/// Declares a struct of `u64` counters that knows the names of its fields.
///
/// The struct gets `ZERO`, `merge` (add another table's figures) and `for_each` (visit name and value, in
/// the order of declaration).
///
/// ```
/// counters::counters! {
///     /// What the example counted.
///     pub struct Example {
///         /// Packets handed down.
///         packets,
///     }
/// }
/// let mut one = Example { packets: 2 };
/// one.merge(&Example { packets: 3 });
/// one.for_each(&mut |name, value| assert_eq!((name, value), ("packets", 5)));
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$outer:meta])* $visibility:vis struct $name:ident {
        $($(#[$inner:meta])* $field:ident),* $(,)?
    }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $visibility struct $name {
            $($(#[$inner])* pub $field: u64,)*
        }

        impl $name {
            /// A table in which nothing was counted.
            pub const ZERO: Self = Self { $($field: 0,)* };

            /// Adds the figures of another table of the same kind to this one.
            pub fn merge(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }

            /// Visits every counter, in the order of declaration.
            pub fn for_each(&self, visit: &mut dyn FnMut(&'static str, u64)) {
                $(visit(stringify!($field), self.$field);)*
            }
        }
    };
}
