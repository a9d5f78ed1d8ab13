//! The built command, as a user runs it: arguments, errors, JSON, and short runs of every kind.

mod arguments;
mod big;
mod harness;
mod measured;
