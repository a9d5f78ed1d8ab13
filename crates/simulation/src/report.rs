//! What a run brought: figures of one that held, and the facts of one that did not.

use crate::link::LinkCounters;
use core::fmt;
use core::net::SocketAddr;
use time::{Duration, Instant};

counters::counters! {
    /// What happened in a run.
    pub struct RunCounters {
        /// Connections that were to be opened.
        connections,
        /// Of these, opened from both sides.
        established,
        /// Ends that read to the end of the stream and closed.
        ended_in_order,
        /// Ends that closed early or aborted of their own will.
        ended_by_will,
        /// Ends that were told of an error, which had a cause.
        ended_by_error,
        /// Ends that were gone with their host.
        ended_with_host,
        /// Connections that the own side refused to open (no port, address in use).
        not_opened,
        /// Bytes that arrived as they were sent.
        bytes_read,
        /// Urgent marks that readers came upon.
        urgent_marks,
        /// Connections that showed a cookie when they were opened (RFC 7413).
        cookies_shown,
        /// SYNs with data, or a cookie alone, that made a connection at once.
        fast_opens_accepted,
        /// Bytes that came with them.
        fast_open_bytes,
        /// Ends whose peer was gone with its host, and which found out by an error.
        half_open_found,
        /// Ends that began deaf, or that rest between reads.
        slow_readers,
        /// Segments of open connections that announced a window of nothing.
        windows_closed,
        /// Probes of windows that were closed.
        window_probes,
        /// Probes of peers that were silent.
        keepalive_probes,
        /// Datagrams sent.
        datagrams,
        /// Datagrams that came to the other host or back, as they were sent.
        datagrams_received,
        /// Hosts that restarted.
        restarts,
        /// Addresses that hosts lost.
        addresses_lost,
        /// Addresses that hosts came by, at the beginning or later.
        addresses_assigned,
        /// Open connections whose local address was taken away.
        connections_without_address,
        /// Addresses that were not taken because a neighbour has them.
        duplicates_found,
        /// Frames that went up in trains, each but the first of a train.
        train_frames,
        /// Super-frames that devices handed up.
        super_frames,
        /// Devices that were replaced by others.
        devices_replaced,
        /// Times all links and interfaces came to take shorter packets, or longer ones.
        mtu_changes,
        /// Packets that a narrow path swallowed.
        swallowed,
        /// Reads that took blocks without a copy.
        reads_of_chunks,
        /// Reads that looked first.
        peeks,
        /// Options that were changed under way.
        options_changed,
        /// Connections that ended by a user timeout.
        user_timeouts,
        /// Ends of connections whose sender was BBR.
        senders_bbr,
        /// Datagrams that were sent when all was calm, and had to arrive and come back.
        datagrams_due,
        /// Segments that a middlebox sent on in fragments.
        segments_cut,
        /// Segments that the device brought to another squeue than that of their connection.
        handed_on,
        /// Frames and strays that squeues handed to each other.
        handed_over,
        /// Times a squeue was called and did not come for a while.
        stalls,
        /// TCP segments that the checker judged.
        segments_checked,
        /// Frames sent and received.
        frames,
    }
}

/// A run in which everything held.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// What happened.
    pub counters: RunCounters,
    /// What the links did.
    pub links: LinkCounters,
    /// Virtual time that went by.
    pub span: Duration,
    /// A number that is another if a single bit of a frame, or its time, was.
    pub hash: u64,
}

/// A run in which something did not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed that replays it.
    pub seed: u64,
    /// When.
    pub at: Instant,
    /// What did not hold: a sentence, or an RFC's.
    pub property: String,
    /// The facts.
    pub what: String,
    /// On which host.
    pub host: Option<usize>,
    /// The connection, the end on that host first.
    pub flow: Option<(SocketAddr, SocketAddr)>,
    /// The last frames of the connection, or of all.
    pub frames: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at.as_nanos() as f64 / 1e9;
        writeln!(out, "seed {} at {seconds:.6} s: {}", self.seed, self.property)?;
        writeln!(out, "  {}", self.what)?;
        if let Some(host) = self.host {
            writeln!(out, "  on host {host}")?;
        }
        if let Some((local, remote)) = self.flow {
            writeln!(out, "  connection {local} - {remote}")?;
        }
        for frame in &self.frames {
            writeln!(out, "  {frame}")?;
        }
        Ok(())
    }
}
