//! TCP_CORK and MSG_MORE: segments that are not full wait for more, for 200 ms at most.

use crate::Errno;
use crate::call::Fd;
use crate::descriptors::File;
use crate::host::Host;
use crate::stream::Stream;
use stack::{SocketId, TcpOption};
use time::{Duration, Instant};

/// As tcp(7) says of TCP_CORK.
const CORK_SPAN_MAX: Duration = Duration::from_millis(200);

impl Stream {
    fn is_corked(&self) -> bool {
        self.options.cork || self.more_follows
    }
}

impl Host {
    /// Tells the stack whether this stream holds back what is short.
    pub(crate) fn set_cork(&mut self, fd: Fd) -> Result<(), Errno> {
        let now = self.now;
        let stream = self.files.stream(fd)?;
        let Some(id) = stream.connection() else { return Ok(()) };
        let corked = stream.is_corked();
        stream.cork_ends = match (corked, stream.cork_ends) {
            (true, None) => Some(now + CORK_SPAN_MAX),
            (true, ends) => ends,
            (false, _) => None,
        };
        // A connection that is gone has nothing to hold back.
        let _ = self.shard().tcp_set_option(now, id, TcpOption::Cork(corked));
        Ok(())
    }

    /// TCP_NODELAY lets go of what is held back now, though the cork stays in (tcp(7)).
    pub(crate) fn flush_corked(&mut self, fd: Fd) -> Result<(), Errno> {
        let now = self.now;
        let stream = self.files.stream(fd)?;
        if let Some(id) = stream.connection().filter(|_| stream.options.nodelay) {
            stream.cork_ends = None;
            let _ = self.shard().tcp_set_option(now, id, TcpOption::Cork(false));
        }
        Ok(())
    }

    /// When something held back must go.
    pub(crate) fn next_uncork(&self) -> Option<Instant> {
        self.files.streams().filter_map(|(_, stream)| stream.cork_ends).min()
    }

    /// Lets go of what was held back for long enough.
    pub(crate) fn uncork_due(&mut self) {
        let now = self.now;
        let mut due: Vec<SocketId> = Vec::new();
        for (_, file) in self.files.iter_mut() {
            if let File::Stream(stream) = file
                && stream.cork_ends.is_some_and(|ends| ends <= now)
            {
                stream.cork_ends = None;
                due.extend(stream.connection());
            }
        }
        for id in due {
            // As above; what is written next is held back again.
            let _ = self.shard().tcp_set_option(now, id, TcpOption::Cork(false));
        }
    }
}
