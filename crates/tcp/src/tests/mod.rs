//! Segment scripts against one connection, and two connections joined back to back.

mod bottleneck;
mod close;
mod duplicates;
mod ecn;
mod far;
mod few_blocks;
mod handshake;
pub(crate) mod harness;
mod hostile;
mod info;
mod joined;
mod loss;
mod lossy;
mod options;
mod pauses;
mod recovery;
mod reset;
mod runs;
mod states;
mod super_frames;
mod timers;
mod transfer;
mod unstretched;
mod urgent;
mod window;
mod window_tuning;
