//! What each flow holds of a bounded queue, so that none fills it alone.
//!
//! Something comes in if its flow holds less of the queue than is still free, in number and in bytes (the
//! dynamic threshold of shared buffers; Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory
//! packet switches", 1998). So one flow alone may fill half the queue, two a third each, and there is always
//! room for a flow that has nothing in it. Flows are told apart by a key, 256 at a time: flows that meet in
//! one of these share what one may hold. Who can choose flows and knows how keys are made can have his meet
//! somebody else's, so keys are to be made with a secret.

/// Flows told apart. A power of two.
const FLOWS: usize = 256;

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct FlowShares {
    max: Held,
    held: Held,
    flows: Box<[Held; FLOWS]>,
}

/// What a flow, or all of one remainder of their keys, have in the queue.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    count: usize,
    bytes: usize,
}

/// Whether something came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is counted as being there.
    Admitted,
    /// The queue has no room for it.
    Full,
    /// Its flow has its share.
    Share,
}

impl FlowShares {
    /// Of a queue that may hold so many, and so many bytes; at least 2 of each.
    #[must_use]
    pub fn new(count_max: usize, bytes_max: usize) -> Self {
        Self {
            max: Held { count: count_max.max(2), bytes: bytes_max.max(2) },
            held: Held::default(),
            flows: Box::new([Held::default(); FLOWS]),
        }
    }

    /// How many are in the queue.
    #[must_use]
    pub fn count(&self) -> usize {
        self.held.count
    }

    /// How many bytes they hold.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.held.bytes
    }

    /// Whether nothing is in the queue, of any flow.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flows.iter().chain([&self.held]).all(|held| held.count == 0 && held.bytes == 0)
    }

    /// Whether one of so many bytes, of the flow of this key, may come in; if so, it is counted.
    pub fn admit(&mut self, key: u32, bytes: usize) -> Admission {
        let admission = self.would_admit(key, bytes);
        if admission == Admission::Admitted {
            for held in [&mut self.flows[key as usize % FLOWS], &mut self.held] {
                held.count += 1;
                held.bytes += bytes;
            }
        }
        admission
    }

    /// What [`FlowShares::admit`] would say; nothing is counted.
    #[must_use]
    pub fn would_admit(&self, key: u32, bytes: usize) -> Admission {
        let free = Held {
            count: self.max.count - self.held.count,
            bytes: self.max.bytes - self.held.bytes,
        };
        let flow = &self.flows[key as usize % FLOWS];
        if free.count == 0 || free.bytes < bytes {
            return Admission::Full;
        }
        if flow.count >= free.count || flow.bytes >= free.bytes {
            return Admission::Share;
        }
        Admission::Admitted
    }

    /// One of the flow of this key, which came in with so many bytes, has left.
    pub fn release(&mut self, key: u32, bytes: usize) {
        for held in [&mut self.flows[key as usize % FLOWS], &mut self.held] {
            held.count -= 1;
            held.bytes -= bytes;
        }
    }

    /// All have left.
    pub fn clear(&mut self) {
        self.held = Held::default();
        self.flows.fill(Held::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flow_gets_half_and_another_still_comes_in() {
        let mut shares = FlowShares::new(64, 1 << 20);
        let admitted = |shares: &mut FlowShares, key| {
            (0..64).take_while(|_| shares.admit(key, 1) == Admission::Admitted).count()
        };
        assert_eq!(admitted(&mut shares, 7), 32);
        assert_eq!(shares.admit(7, 1), Admission::Share);
        assert_eq!(admitted(&mut shares, 8), 16);
        shares.release(7, 1);
        assert_eq!(shares.count(), 47);
        assert_eq!(shares.admit(9, 2 << 20), Admission::Full);
        shares.clear();
        assert_eq!(admitted(&mut shares, 7), 32);
    }

    #[test]
    fn bytes_are_shared_as_well() {
        let mut shares = FlowShares::new(1_000, 1_000);
        assert_eq!(shares.admit(1, 500), Admission::Admitted);
        assert_eq!(shares.admit(1, 1), Admission::Share);
        assert_eq!(shares.admit(2, 501), Admission::Full);
        assert_eq!(shares.admit(2, 100), Admission::Admitted);
    }
}
