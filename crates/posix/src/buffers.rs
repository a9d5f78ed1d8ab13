//! Sizes of buffers, and what is in them, as Linux tells of them.

use crate::Errno;
use crate::abi::{SO_RCVBUFFORCE, SO_SNDBUFFORCE};
use crate::call::Fd;
use crate::descriptors::File;
use crate::host::Host;

/// Buffers of UDP sockets that do not ask for others (Linux: wmem_default, rmem_default).
const DATAGRAM_BUFFER_DEFAULT: usize = 212_992;

/// The largest that may be asked for (Linux: net.core.wmem_max, net.core.rmem_max). A negative size is a huge one.
const BUFFER_MAX: u32 = 4 << 20;

impl Host {
    /// Has a socket for datagrams hold no more unread than its program says, where it says so. Of a connection that is
    /// its window's business.
    pub(crate) fn bound_datagrams(&mut self, fd: Fd) -> Result<(), Errno> {
        if let File::Datagram(datagram) = self.files.get(fd)?
            && let (Some(id), Some(bytes)) = (datagram.id, datagram.options.receive_buffer)
        {
            self.shard().udp_set_receive_buffer(id, bytes)?;
        }
        Ok(())
    }

    /// SO_MEMINFO: nine counts of 32 bits, of which a socket here has what waits to be read and to be
    /// acknowledged, and the sizes of the buffers.
    pub(crate) fn memory_info(&mut self, fd: Fd) -> Result<Vec<u8>, Errno> {
        let status = match self.is_stream(fd) {
            true => self.status(fd)?.map(|(_, status)| status),
            false => None,
        };
        let of = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let unread = status.as_ref().map_or(0, |status| of(status.readable_bytes));
        let queued = status.as_ref().map_or(0, |status| of(status.unacknowledged_bytes));
        let (sending, receiving) = self.buffer_sizes(fd)?;
        let counts = [unread, of(receiving), queued, of(sending), 0, queued, 0, 0, 0];
        Ok(counts.iter().flat_map(|count| count.to_ne_bytes()).collect())
    }

    /// Sizes of the buffers for sending and receiving as Linux tells of them: what was set, or else of a connection
    /// what its queues hold now, or what they will begin with. Half of the buffer for receiving is for payload.
    pub(crate) fn buffer_sizes(&mut self, fd: Fd) -> Result<(usize, usize), Errno> {
        let now = self.now;
        let is_stream = self.is_stream(fd);
        let id = if is_stream { self.files.stream(fd)?.connection() } else { None };
        let info = id.and_then(|id| self.shard().tcp_info(now, id).ok());
        let base = &self.config.tcp;
        let (sending, receiving) = match info {
            Some(info) => (info.send_buffer_bytes, info.receive_buffer_bytes * 2),
            None if is_stream => {
                (base.send_buffer_bytes_initial, base.receive_buffer_bytes_initial * 2)
            }
            None => (DATAGRAM_BUFFER_DEFAULT, DATAGRAM_BUFFER_DEFAULT),
        };
        let options = self.options(fd)?;
        Ok((options.send_buffer.unwrap_or(sending), options.receive_buffer.unwrap_or(receiving)))
    }
}

/// The size that SO_SNDBUF, SO_RCVBUF or what forces them ask for.
pub(crate) fn buffer_bytes(name: i32, value: i32) -> usize {
    match name {
        SO_SNDBUFFORCE | SO_RCVBUFFORCE => value.clamp(0, i32::MAX / 2) as usize,
        _ => value.cast_unsigned().min(BUFFER_MAX) as usize,
    }
}
