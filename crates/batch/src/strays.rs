//! How much may wait of what shards of one host have for each other, of *strays*.
//!
//! They wait twice: in the shard that has something until its driver fetches it, and for the shard that it is for
//! until that one's driver comes. Both places bound them so: packets by their number and by the memory that they hold,
//! fairly between flows; questions about neighbours and the answers by their number alone, so that floods of
//! packets do not keep them out and they keep no packets out, and one who asks asks again. What is said once is
//! not dropped; whoever makes such sees to it that there is little.

use crate::flow_shares::{Admission, FlowShares};
use counters::DropReason;

/// How much a stray weighs where too much waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrayWeight {
    /// It is a packet of the flow that this key stands for, and holds so many bytes of memory.
    Packet {
        /// To be made with a secret, as [`FlowShares`] says.
        key: u32,
        /// Of the whole block that the packet lies in, however short it is.
        held_bytes: usize,
    },
    /// It is a question about a neighbour or the answer to one.
    Neighbour,
    /// It must not be dropped.
    Kept,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct StrayShares {
    packets: FlowShares,
    neighbours: usize,
}

impl StrayShares {
    /// Packets that wait in one place at most.
    pub const PACKETS_MAX: usize = 1_024;

    /// Bytes that they hold at most: as much as may wait in a soft ring.
    pub const BYTES_MAX: usize = 8 << 20;

    /// Questions about neighbours, and answers, that wait in one place at most.
    pub const NEIGHBOURS_MAX: usize = 256;

    /// Of a place where nothing waits.
    #[must_use]
    pub fn new() -> Self {
        Self { packets: FlowShares::new(Self::PACKETS_MAX, Self::BYTES_MAX), neighbours: 0 }
    }

    /// Counts a stray that is to wait as being there.
    ///
    /// # Errors
    /// Why it must be dropped instead.
    pub fn admit(&mut self, weight: StrayWeight) -> Result<(), DropReason> {
        match weight {
            StrayWeight::Packet { key, held_bytes } => match self.packets.admit(key, held_bytes) {
                Admission::Admitted => Ok(()),
                Admission::Full => Err(DropReason::StrayQueueFull),
                Admission::Share => Err(DropReason::StrayQueueShare),
            },
            StrayWeight::Neighbour if self.neighbours >= Self::NEIGHBOURS_MAX => {
                Err(DropReason::StrayQueueFull)
            }
            StrayWeight::Neighbour => {
                self.neighbours += 1;
                Ok(())
            }
            StrayWeight::Kept => Ok(()),
        }
    }

    /// One that was admitted with this weight has left.
    pub fn release(&mut self, weight: StrayWeight) {
        match weight {
            StrayWeight::Packet { key, held_bytes } => self.packets.release(key, held_bytes),
            StrayWeight::Neighbour => self.neighbours -= 1,
            StrayWeight::Kept => {}
        }
    }

    /// All have left.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.neighbours = 0;
    }
}

impl Default for StrayShares {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_makes_room_for_its_kind() {
        let mut shares = StrayShares::new();
        let packet = StrayWeight::Packet { key: 7, held_bytes: 1 };
        let half = (0..).take_while(|_| shares.admit(packet).is_ok()).count();
        assert_eq!(half, StrayShares::PACKETS_MAX / 2, "what one flow gets");
        assert_eq!(shares.admit(packet), Err(DropReason::StrayQueueShare));
        for _ in 0..StrayShares::NEIGHBOURS_MAX {
            assert_eq!(shares.admit(StrayWeight::Neighbour), Ok(()));
        }
        assert_eq!(shares.admit(StrayWeight::Neighbour), Err(DropReason::StrayQueueFull));
        assert_eq!(shares.admit(StrayWeight::Kept), Ok(()));
        shares.release(StrayWeight::Kept);
        assert_eq!(shares.admit(packet), Err(DropReason::StrayQueueShare));
        shares.release(packet);
        assert_eq!(shares.admit(StrayWeight::Neighbour), Err(DropReason::StrayQueueFull));
        assert_eq!(shares.admit(packet), Ok(()));
        shares.release(StrayWeight::Neighbour);
        assert_eq!(shares.admit(StrayWeight::Neighbour), Ok(()));
        shares.clear();
        assert_eq!(shares.admit(packet), Ok(()));
    }
}
