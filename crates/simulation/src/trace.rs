//! What went over the wire: a hash of all of it, and the last frames for whoever asks what happened.

use crate::packet;
use crate::random::scatter;
use core::net::SocketAddr;
use std::collections::VecDeque;
use time::Instant;

/// Frames remembered. Enough for the last seconds of a busy world.
const FRAMES_MAX: usize = 6_000;

/// Bytes of a damaged frame that are shown.
const SHOWN_LEN: usize = 50;

/// Which way a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The host sent it.
    Out,
    /// The host's shard was given it.
    In,
}

#[derive(Clone, Debug)]
struct Remembered {
    at: Instant,
    host: usize,
    way: Way,
    len: usize,
    text: String,
    flow: Option<(SocketAddr, SocketAddr)>,
}

/// The trace of a run.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    frames: u64,
    /// Kept only where somebody will look at it: writing it down costs more than the stack.
    last: Option<VecDeque<Remembered>>,
    /// Every frame whole, for a capture file.
    captured: Option<Vec<Captured>>,
}

/// A frame of a capture.
#[derive(Clone, Debug)]
pub struct Captured {
    /// When.
    pub at: Instant,
    /// At which host.
    pub host: usize,
    /// Which way.
    pub way: Way,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Trace {
    /// A trace that remembers the last frames, or only their hash; `capture` keeps all of them.
    #[must_use]
    pub fn new(remembers: bool, capture: bool) -> Self {
        Self {
            hash: 0,
            frames: 0,
            last: remembers.then(VecDeque::new),
            captured: capture.then(Vec::new),
        }
    }

    /// A frame went by.
    pub fn add(&mut self, at: Instant, host: usize, way: Way, frame: &[u8], ethernet: bool) {
        self.frames += 1;
        let mut hash = self.hash ^ scatter(at.as_nanos() ^ ((host as u64) << 60) ^ way as u64);
        let (words, rest) = frame.as_chunks::<8>();
        for word in words {
            hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
        }
        for byte in rest {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        self.hash = hash;
        if let Some(captured) = &mut self.captured {
            captured.push(Captured { at, host, way, bytes: frame.to_vec() });
        }
        if let Some(last) = &mut self.last {
            if last.len() == FRAMES_MAX {
                last.pop_front();
            }
            last.push_back(remember(at, host, way, frame, ethernet));
        }
    }

    /// A number that differs where a frame differs, in a bit or in its time.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many frames went by.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// The last `count` frames between two addresses, or of all, as lines of text.
    #[must_use]
    pub fn lines(&self, flow: Option<(SocketAddr, SocketAddr)>, count: usize) -> Vec<String> {
        let belongs = |frame: &&Remembered| match (flow, frame.flow) {
            (Some((a, b)), Some(ends)) => ends == (a, b) || ends == (b, a),
            (Some(_), None) => false,
            (None, _) => true,
        };
        let frames: Vec<_> = self.last.iter().flatten().filter(belongs).collect();
        let line = |frame: &&Remembered| {
            let way = if frame.way == Way::Out { "sends" } else { "gets " };
            let at = frame.at.as_nanos();
            let (seconds, rest) = (at / 1_000_000_000, at % 1_000_000_000);
            format!(
                "{seconds}.{rest:09} host {} {way} {} ({} bytes)",
                frame.host, frame.text, frame.len
            )
        };
        frames[frames.len().saturating_sub(count)..].iter().map(line).collect()
    }

    /// All frames, where they were to be captured.
    #[must_use]
    pub fn captured(&self) -> &[Captured] {
        self.captured.as_deref().unwrap_or(&[])
    }
}

fn remember(at: Instant, host: usize, way: Way, frame: &[u8], ethernet: bool) -> Remembered {
    let (text, flow) = match packet::read(frame, ethernet) {
        Ok(packet) => {
            let flow = match &packet.body {
                packet::Body::Ip(ip) => match &ip.transport {
                    packet::Transport::Tcp(segment) => Some((segment.source, segment.destination)),
                    _ => None,
                },
                packet::Body::Arp(_) => None,
            };
            (packet.to_string(), flow)
        }
        Err(error) => {
            let head = &frame[..frame.len().min(SHOWN_LEN)];
            (format!("damaged: {error}: {head:02x?}"), None)
        }
    };
    Remembered { at, host, way, len: frame.len(), text, flow }
}
