//! The queue of a stream of frames: a batch out by one call, a batch in by one call.

use super::FRAME_LEN_MAX;
use super::receive::{End, Receiver};
use super::send::Sender;
use crate::system_error::said;
use crate::waiter::FileWaiter;
use batch::{BlockPool, Multidata, ReceiveBatch};
use device::{
    Capabilities, DeviceCounters, DeviceError, Queue, Received, Room, Stop, TransmitMode,
    Transmitted, Waiter,
};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::ErrorKind;
use std::sync::Arc;

/// The transmit and receive pair of a [`StreamDevice`](super::StreamDevice).
#[derive(Debug)]
pub struct StreamQueue {
    socket: Arc<OwnedFd>,
    waiter: Arc<FileWaiter>,
    capabilities: Capabilities,
    mode: TransmitMode,
    sender: Sender,
    receiver: Receiver,
    /// What the socket failed of, which it says once.
    failed: Option<DeviceError>,
    /// A receive has said so, behind all that had come.
    is_told: bool,
    counters: DeviceCounters,
}

impl StreamQueue {
    pub(super) fn new(
        socket: Arc<OwnedFd>,
        waiter: Arc<FileWaiter>,
        capabilities: Capabilities,
    ) -> Self {
        Self {
            socket,
            waiter,
            capabilities,
            mode: TransmitMode::Multidata,
            sender: Sender::default(),
            receiver: Receiver::default(),
            failed: None,
            is_told: false,
            counters: DeviceCounters::default(),
        }
    }

    /// Sends as much of `batch` as the stream takes, and says how much that was and what stopped it.
    fn send(&mut self, batch: &Multidata) -> (usize, Option<Stop>) {
        let mut taken = 0;
        if let Err(errno) = self.sender.send_rest(&self.socket, &mut self.counters) {
            return (taken, Some(self.on_send_error(errno)));
        }
        while taken < batch.len() {
            let laid = self.sender.lay_out(batch, taken, &self.capabilities);
            if laid == 0 {
                return (taken, Some(Stop::Refused));
            }
            match self.sender.send(&self.socket, batch, taken, &mut self.counters) {
                Ok(sent) => taken += sent,
                Err(errno) => return (taken, Some(self.on_send_error(errno))),
            }
            if self.sender.has_rest() {
                let stop = self.on_send_error(Errno::AGAIN);
                return (taken, (taken < batch.len()).then_some(stop));
            }
        }
        (taken, None)
    }

    /// What it means that the stream took nothing.
    fn on_send_error(&mut self, errno: Errno) -> Stop {
        match errno {
            Errno::AGAIN => {
                self.waiter.want_room();
                Stop::Full
            }
            // Memory is short, and not the socket's room.
            Errno::NOBUFS | Errno::NOMEM => Stop::Full,
            errno => {
                self.fail(match errno {
                    Errno::PIPE | Errno::CONNRESET => End::Closed,
                    errno => End::Failed(errno),
                });
                // Who is told of a failure receives no more, and what the other end has sent before may lie there still.
                Stop::Full
            }
        }
    }

    /// Notes that the stream is of no use any more, which the receive says that finds nothing more.
    fn fail(&mut self, end: End) {
        let message = match end {
            End::Closed => "the other end of the stream of frames has closed it: connect it anew, \
                            and replace the device"
                .to_owned(),
            End::Unframed(len) => format!(
                "the other end of the stream sends no frames, of which each stands behind its length in four \
                 bytes, as `-netdev stream` of QEMU has them: a length of {len} is not one of 1 to \
                 {FRAME_LEN_MAX}"
            ),
            End::Failed(errno) => format!("the stream of frames failed: {}", said(errno)),
        };
        let error = DeviceError::new(ErrorKind::NetworkDown, message);
        self.failed.get_or_insert(error);
    }
}

impl Queue for StreamQueue {
    fn capabilities(&self) -> Capabilities {
        let batch_packets_max = self.mode.batch_packets_max(self.capabilities.batch_packets_max);
        Capabilities { batch_packets_max, ..self.capabilities.clone() }
    }

    fn set_mode(&mut self, mode: TransmitMode) -> Result<(), DeviceError> {
        if !self.capabilities.supports(mode) {
            let message = format!(
                "a stream of frames has no form for mode {mode}: use mode {}",
                TransmitMode::Multidata
            );
            return Err(DeviceError::new(ErrorKind::Unsupported, message));
        }
        self.mode = mode;
        Ok(())
    }

    fn room(&self) -> Room {
        Room::UNBOUNDED
    }

    fn transmit(&mut self, batch: &Multidata) -> Transmitted {
        if batch.is_empty() {
            return Transmitted { taken: 0, stopped: None };
        }
        self.counters.transmit_batches += 1;
        let (taken, stopped) = match &self.failed {
            Some(error) if self.is_told => (0, Some(Stop::Failed(error.clone()))),
            Some(_) => (0, Some(Stop::Full)),
            None => self.send(batch),
        };
        let bytes = batch.packets().take(taken).map(|packet| packet.len() as u64).sum::<u64>();
        self.counters.transmit_packets += taken as u64;
        self.counters.transmit_frames += taken as u64;
        self.counters.transmit_bytes += bytes;
        self.counters.transmit_full += u64::from(stopped == Some(Stop::Full));
        Transmitted { taken, stopped }
    }

    fn receive(
        &mut self,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
    ) -> Received {
        let counters = &mut self.counters;
        let (mut received, end) =
            self.receiver.receive(&self.socket, pool, batch, frames_max, counters);
        if let Some(end) = end {
            self.fail(end);
        }
        // What came before is to be had first.
        let is_last = !received.more && !self.receiver.is_starved;
        received.failed = self.failed.clone().filter(|_| is_last);
        self.is_told |= received.failed.is_some();
        self.waiter.on_receive(self.receiver.is_starved, self.is_told);
        received
    }

    fn reclaim(&mut self) {
        if self.failed.is_none()
            && let Err(errno) = self.sender.send_rest(&self.socket, &mut self.counters)
        {
            self.on_send_error(errno);
        }
    }

    /// The rest of a frame, of which the stream took a part, or a failure that nobody was told of.
    fn is_stalled(&self) -> bool {
        match self.failed {
            Some(_) => !self.is_told,
            None => self.sender.has_rest(),
        }
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::clone(&self.waiter) as Arc<dyn Waiter>
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters { wait_syscalls: self.waiter.syscalls(), ..self.counters }
    }
}

#[cfg(test)]
mod tests;
