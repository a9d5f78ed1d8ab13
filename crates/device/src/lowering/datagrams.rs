//! Runs of datagrams: one frame that a device hands up for many datagrams of one flow, cut into them.
//!
//! ```text
//!  handed up  | link | IP | UDP |  payload 0  |  payload 1  | 2 |
//!  cut        | link | IP | UDP |  payload 0  |   | link | IP | UDP |  payload 1  |   | link | IP | UDP | 2 |
//! ```
//!
//! A sender that leaves the cutting to its interface (UDP_SEGMENT, udp(7)) makes such frames, and so does
//! a kernel that merges what it receives. Above, a run of TCP segments is as good as one long segment and
//! stays a super-frame ([`batch::Segmented`]). Datagrams have bounds that mean something, so nobody above
//! can take several for one: filters, captures, raw sockets, ICMP errors and readers want each by itself.
//! Therefore a device cuts them before it hands them up, by a copy, for each needs headers of its own in
//! front of its payload.
//!
//! The checksum field of each holds the sum of its pseudo-header: who hands up a run vouches for the
//! payload, and says so of each datagram ([`batch::ReceivedChecksum::Partial`]).

use super::{
    IPV6_HEADER_LEN, NetworkVersion, PROTOCOL_UDP, UDP_CHECKSUM, network_version, put,
    stamp_network, word,
};
use checksum::Accumulator;

/// Datagrams of a run at most: twice what Linux makes (UDP_MAX_SEGMENTS).
pub const DATAGRAMS_MAX: usize = 256;

const UDP_HEADER_LEN: usize = 8;
const UDP_LENGTH: usize = 4;

/// A frame that stands for datagrams of one flow, each as long as the first but the last, which may be
/// shorter.
#[derive(Clone, Copy, Debug)]
pub struct DatagramRun<'a> {
    /// Link, network and transport header.
    headers: &'a [u8],
    payload: &'a [u8],
    /// Where the network and the transport header begin.
    network: usize,
    transport: usize,
    version: NetworkVersion,
    /// Payload bytes of each datagram but the last.
    payload_len: usize,
}

impl<'a> DatagramRun<'a> {
    /// Reads a frame with an IP packet behind `network_offset` bytes of link header, whose datagrams have
    /// `payload_len` bytes of payload.
    ///
    /// `None` where it is no whole packet of UDP, shorter than it says, or more than [`DATAGRAMS_MAX`]
    /// datagrams.
    #[must_use]
    pub fn parse(frame: &'a [u8], network_offset: usize, payload_len: u16) -> Option<Self> {
        let network = frame.get(network_offset..)?;
        let version = network_version(network, PROTOCOL_UDP)?;
        let (network_len, total_len) = match version {
            NetworkVersion::Ipv4 => (usize::from(network.first()? & 0x0f) * 4, word(network, 2)?),
            NetworkVersion::Ipv6 => (IPV6_HEADER_LEN, word(network, 4)?),
        };
        let total_len = match version {
            NetworkVersion::Ipv4 => usize::from(total_len),
            NetworkVersion::Ipv6 => usize::from(total_len) + IPV6_HEADER_LEN,
        };
        let packet = network.get(..total_len)?;
        let payload = packet.get(network_len + UDP_HEADER_LEN..)?;
        let transport = network_offset + network_len;
        let headers = frame.get(..transport + UDP_HEADER_LEN)?;
        let payload_len = usize::from(payload_len);
        let is_run = network_len >= super::IPV4_HEADER_LEN_MIN
            && payload_len > 0
            && (1..=payload_len * DATAGRAMS_MAX).contains(&payload.len());
        let run =
            Self { headers, payload, network: network_offset, transport, version, payload_len };
        is_run.then_some(run)
    }

    /// How many datagrams it is, at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.payload.len().div_ceil(self.payload_len)
    }

    /// Length in bytes of the frame of datagram `index`, link header included.
    #[must_use]
    pub fn len_of(&self, index: usize) -> usize {
        self.headers.len() + self.part(index).len()
    }

    /// Writes the frame of datagram `index` to the beginning of `out`, as the sender would have sent it but
    /// for the checksum, whose field holds the pseudo-header's sum. `None` where there is no room.
    pub fn write(&self, index: usize, out: &mut [u8]) -> Option<()> {
        let part = self.part(index);
        let frame = out.get_mut(..self.headers.len() + part.len())?;
        let (headers, payload) = frame.split_at_mut(self.headers.len());
        headers.copy_from_slice(self.headers);
        payload.copy_from_slice(part);
        let network_len = self.transport - self.network;
        stamp_network(frame, self.network, network_len, self.version, index)?;
        let udp_len = (UDP_HEADER_LEN + part.len()) as u16;
        put(frame, self.transport + UDP_LENGTH, udp_len)?;
        let addresses = match self.version {
            NetworkVersion::Ipv4 => self.network + 12..self.network + 20,
            NetworkVersion::Ipv6 => self.network + 8..self.network + 40,
        };
        let mut sum = Accumulator::new();
        sum.add(frame.get(addresses)?);
        sum.add_u16(u16::from(PROTOCOL_UDP));
        sum.add_u16(udp_len);
        put(frame, self.transport + usize::from(UDP_CHECKSUM), sum.sum())
    }

    fn part(&self, index: usize) -> &'a [u8] {
        let start = index.saturating_mul(self.payload_len).min(self.payload.len());
        let end = (start + self.payload_len).min(self.payload.len());
        self.payload.get(start..end).unwrap_or_default()
    }
}
