//! On which ring of the device a frame comes in.
//!
//! The device reads as much as cards do: it keeps a flow on one ring, and what it cannot tell the flow of
//! (fragments, ICMP errors, ARP) it puts on any, each frame anew. Where the stack trusts it
//! ([`Layout::is_spread_by_device`](steering::Layout::is_spread_by_device)), that ring is the one by which
//! the flow's last packet went out, as with flow director tables and TAP devices of several queues; a flow of
//! which none went out goes by the hash. Where the stack hashes by itself, it goes by the hash for ever, to a
//! ring which need not be that of its home.

use crate::random::Random;
use device::Medium;
use std::collections::HashMap;
use steering::{Class, Flow, Spread, classify};

/// The receive side of a device: which ring has what.
pub(super) struct Rings {
    count: u16,
    /// The rings by which flows went out, where the device is to bring answers there.
    learned: Option<HashMap<Flow, u16>>,
    random: Random,
}

impl Rings {
    pub(super) fn new(spread: Spread, random: Random) -> Self {
        let layout = spread.layout();
        let learned = layout.is_spread_by_device().then(HashMap::new);
        Self { count: layout.rings(), learned, random }
    }

    /// The ring on which this frame comes in.
    pub(super) fn ring_of(&mut self, frame: &[u8], medium: Medium) -> usize {
        if self.count == 1 {
            return 0;
        }
        match classify(frame, medium) {
            Class::Tcp(flow) | Class::Udp(flow) => {
                let learned = self.learned.as_ref().and_then(|it| it.get(&flow).copied());
                usize::from(learned.unwrap_or((flow.hash() % u32::from(self.count)) as u16))
            }
            _ => self.random.within(0, u64::from(self.count) - 1) as usize,
        }
    }

    /// A packet, without its link header, went out by the ring of a squeue.
    pub(super) fn on_sent(&mut self, packet: &[u8], home: usize) {
        let Some(learned) = &mut self.learned else { return };
        if let Class::Tcp(Flow { remote, local }) = classify(packet, Medium::Ip) {
            let answers = Flow { remote: local, local: remote };
            learned.insert(answers, home as u16 % self.count);
        }
    }
}
