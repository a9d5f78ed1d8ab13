//! Header views and values of the protocols, and sequence numbers

pub mod seq;

pub use seq::SeqNumber;
