//! Frames that were refused although others behind them were written: late rather than lost.
//!
//! A ring has no way to stop at a frame that is refused: the kernel goes on with the next one. What was
//! overtaken is written again by a call of its own, packet by packet and complete, so that no offload can be
//! what is refused; what finds no room then is kept, the next batch has to wait for it, and
//! waiting for room ends when there is some. So at most one submission is kept.

use super::pieces::{Offer, Tally, complete, weightier};
use super::{TapQueue, write_frame};
use batch::Multidata;
use device::Stop;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Whole frames, in order, each with what the driver wants in front of it.
pub(super) type Kept = VecDeque<Vec<u8>>;

impl TapQueue {
    /// A frame was refused although one behind it was written, so the batch cannot end in front of it.
    pub(super) fn on_overtaken(
        &mut self,
        batch: &Multidata,
        offer: Offer,
        errno: Errno,
        tally: &mut Tally,
    ) {
        let stop = self.on_write_error(errno, offer.merged, offer.partial);
        let packets = offer.end - offer.packets..offer.end;
        let stop = match stop {
            Stop::Full | Stop::Revoked => {
                packets.for_each(|index| self.keep(batch, index));
                let is_written = self.write_kept();
                let failed = self.failed.take().map(Stop::Failed);
                failed.or_else(|| (stop == Stop::Revoked || !is_written).then_some(stop))
            }
            // Another call would be refused as well.
            Stop::Refused => {
                self.counters.transmit_lost += packets.len() as u64;
                None
            }
            Stop::Failed(_) => {
                self.counters.transmit_lost += packets.len() as u64;
                Some(stop)
            }
        };
        if let Some(stop) = stop {
            tally.overtaken = Some(match tally.overtaken.take() {
                Some(other) => weightier(other, stop),
                None => stop,
            });
        }
    }

    /// Keeps a packet of the batch as a frame that asks nothing of the driver.
    fn keep(&mut self, batch: &Multidata, index: usize) {
        let prefix_len = self.prefix_len();
        let whole = batch.packet(index).and_then(|packet| {
            let mut whole = vec![0; prefix_len + packet.len()];
            packet.copy_to(whole.get_mut(prefix_len..)?)?;
            complete(&mut whole, prefix_len, &packet)?;
            Some(whole)
        });
        match whole {
            Some(whole) => self.kept.push_back(whole),
            None => self.counters.transmit_lost += 1,
        }
    }

    /// Writes what is kept, as far as there is room, and says whether nothing is left of it. Where the device
    /// has failed that is noted, to be told by the next call that can.
    pub(super) fn write_kept(&mut self) -> bool {
        while let Some(whole) = self.kept.front() {
            match write_frame(&self.file, &[IoSlice::new(whole)], &mut self.counters) {
                Ok(()) => {
                    self.link.on_written();
                    self.counters.transmit_late += 1;
                    self.counters.transmit_packets += 1;
                    self.counters.transmit_bytes += (whole.len() - self.prefix_len()) as u64;
                    self.counters.transmit_frames += 1;
                }
                Err(errno) => match self.on_write_error(errno, false, false) {
                    Stop::Full => return false,
                    Stop::Refused | Stop::Revoked => self.counters.transmit_lost += 1,
                    Stop::Failed(error) => {
                        self.counters.transmit_lost += self.kept.len() as u64;
                        self.kept.clear();
                        self.failed = Some(error);
                        // Until it is told, who waits is to hear of the file.
                        self.waiter.on_receive(self.receiver.is_starved, false);
                        return true;
                    }
                },
            }
            self.kept.pop_front();
        }
        true
    }
}
