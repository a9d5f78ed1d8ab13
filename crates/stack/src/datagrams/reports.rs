//! What routers, hosts and this stack itself say of datagrams that a socket sent (IP_RECVERR, IPV6_RECVERR).
//!
//! Otherwise only a connected socket hears of an error, as what its next call returns, and not which datagram it is
//! about. A socket that asks for reports hears of all its errors, connected or not, and keeps for each what the ICMP
//! message says: who sent it, its type and code, and what it quotes of the datagram. They are kept until they are read or
//! the program wants no more of them.
//!
//! What always holds: what the reports of a socket cost is less than [`REPORTS_BYTES_MAX`]; anybody can forge them, and
//! those for which there is no room are lost.

use crate::datagrams::udp_socket::UdpSocket;
use crate::error::SocketError;
use crate::event::Readiness;
use crate::ingress::Incoming;
use crate::network::way::MtuDiscovery;
use crate::outbox::{Message, Outgoing};
use crate::shard::Shard;
use crate::sockets::SocketId;
use crate::sockets::ports::Protocol;
use core::net::{IpAddr, SocketAddr};
use ip::PacketInfo;
use std::collections::VecDeque;
use time::Instant;
use wire::UdpRepr;

/// What the reports of one socket may cost (Linux: net.core.rmem_default).
const REPORTS_BYTES_MAX: usize = 212_992;

/// What keeping one costs besides what it quotes (Linux's `truesize` of a short one).
const REPORT_COST_BYTES: usize = 832;

/// Type and code of the messages that say that a host on the link does not answer (RFC 792; RFC 4443, 3.1).
const SILENT_IPV4: (u8, u8) = (3, 1);
const SILENT_IPV6: (u8, u8) = (1, 3);

/// Traffic class and hop limit of such a message from this host to itself: RFC 1812, 4.3.2.5, has the precedence of errors
/// over IPv4, which are of the network's control.
const ERROR_CLASS_IPV4: u8 = 0xc0;
const OWN_HOP_LIMIT: u8 = 64;

/// An error of a datagram that was sent or was to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReport {
    /// What a call would return.
    pub error: SocketError,
    /// Where the datagram was to go.
    pub remote: SocketAddr,
    /// Who says so.
    pub origin: ReportOrigin,
    /// The MTU in bytes where the datagram is too long, the place of what was not understood, or zero.
    pub info: u32,
    /// What is known of the datagram's payload.
    pub payload: Vec<u8>,
    /// When that came in; nothing is known of what no message said.
    pub received_at: Option<Instant>,
}

/// Where a report comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportOrigin {
    /// This stack, which did not send the datagram.
    Local,
    /// An ICMP message.
    Icmp {
        /// Its sender.
        offender: IpAddr,
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
        /// Where it was sent to.
        destination: IpAddr,
        /// The traffic class of its packet.
        traffic_class: u8,
        /// How many routers might still have forwarded it: from that some know how far away its sender is.
        hop_limit: u8,
    },
}

/// The reports that a socket keeps.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    of_ipv4: bool,
    of_ipv6: bool,
    queue: VecDeque<ErrorReport>,
    held_bytes: usize,
}

impl Reports {
    fn push(&mut self, report: ErrorReport) {
        let cost = report.payload.len() + REPORT_COST_BYTES;
        if self.held_bytes + cost < REPORTS_BYTES_MAX {
            self.held_bytes += cost;
            self.queue.push_back(report);
        }
    }
}

impl UdpSocket {
    /// The reports, where the socket wants those of datagrams to `remote`.
    fn reports_of(&mut self, remote: SocketAddr) -> Option<&mut Reports> {
        let is_ipv4 = remote.is_ipv4();
        self.reports.as_deref_mut().filter(|it| if is_ipv4 { it.of_ipv4 } else { it.of_ipv6 })
    }

    /// Keeps the report of an error, if the socket wants it, and says whether it does.
    pub(crate) fn on_report(
        &mut self,
        report: impl FnOnce() -> ErrorReport,
        remote: SocketAddr,
    ) -> bool {
        let Some(reports) = self.reports_of(remote) else { return false };
        reports.push(report());
        true
    }
}

impl Shard {
    /// Has a socket keep reports of errors of what it sends over either family, or drop those that it has. Errors are
    /// then told of by [`Shard::udp_check`] though the socket has no peer.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn udp_set_reports(
        &mut self,
        id: SocketId,
        of_ipv4: bool,
        of_ipv6: bool,
    ) -> Result<(), SocketError> {
        let socket = self.sockets.udp_socket(id)?;
        match of_ipv4 || of_ipv6 {
            true => {
                let reports = socket.reports.get_or_insert_default();
                (reports.of_ipv4, reports.of_ipv6) = (of_ipv4, of_ipv6);
            }
            false => socket.reports = None,
        }
        Ok(())
    }

    /// Drops the reports that a socket has.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn udp_clear_reports(&mut self, id: SocketId) -> Result<(), SocketError> {
        if let Some(reports) = &mut self.sockets.udp_socket(id)?.reports {
            (reports.queue, reports.held_bytes) = (VecDeque::new(), 0);
        }
        Ok(())
    }

    /// An error of a datagram from `local` to `remote`, and what more is known of it.
    pub(crate) fn on_udp_error(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        error: SocketError,
        report: impl FnOnce() -> ErrorReport,
    ) -> bool {
        let found = self.sockets.ports.find(Protocol::Udp, local, remote);
        let found = found.or_else(|| self.datagram_forwarder_at(local.ip()));
        let Some(index) = found else { return false };
        let Some(socket) = self.sockets.udp(index) else { return false };
        let is_wanted =
            error != SocketError::MessageTooLong || socket.mtu_discovery != MtuDiscovery::Dont;
        // RFC 1122, 4.1.3.3: errors are passed up; without a report, only a connected socket can tell whose they are.
        if is_wanted && (socket.on_report(report, remote) || socket.peer == Some(remote)) {
            socket.error = Some(error);
            self.sockets.notify(index, Readiness::READABLE | Readiness::WRITABLE);
        }
        true
    }

    /// The oldest report, which stays.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn udp_peek_report(&mut self, id: SocketId) -> Result<Option<&ErrorReport>, SocketError> {
        let reports = self.sockets.udp_socket(id)?.reports.as_deref();
        Ok(reports.and_then(|reports| reports.queue.front()))
    }

    /// Takes the oldest report.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn udp_take_report(&mut self, id: SocketId) -> Result<Option<ErrorReport>, SocketError> {
        let Some(reports) = &mut self.sockets.udp_socket(id)?.reports else { return Ok(None) };
        let report = reports.queue.pop_front();
        let cost = report.as_ref().map_or(0, |it| it.payload.len() + REPORT_COST_BYTES);
        reports.held_bytes -= cost;
        Ok(report)
    }
}

impl ErrorReport {
    /// Of an ICMP message that came in.
    pub(crate) fn of_icmp(
        now: Instant,
        incoming: &Incoming<'_>,
        error: SocketError,
        remote: SocketAddr,
    ) -> Self {
        let message = incoming.transport_bytes();
        let byte = |at: usize| message.get(at).copied().unwrap_or(0);
        let (kind, code, offender) = (byte(0), byte(1), incoming.info.source);
        let word = u32::from_be_bytes([byte(4), byte(5), byte(6), byte(7)]);
        let info = match (offender, error) {
            (IpAddr::V6(_), _) => word,
            // RFC 1191, 4, and RFC 792: the MTU in the lower half, and the pointer in the first byte.
            (_, SocketError::MessageTooLong) => word & 0xffff,
            (_, SocketError::ParameterProblem) => word >> 24,
            _ => 0,
        };
        let quoted = message.get(8..).unwrap_or(&[]);
        let payload = ip::parse_quoted(quoted).ok().and_then(|info| {
            // The length that the datagram's own header tells may end before what is quoted.
            let datagram = info.transport(quoted);
            let len = usize::from(u16::from_be_bytes([*datagram.get(4)?, *datagram.get(5)?]));
            datagram.get(..len.min(datagram.len()))?.get(UdpRepr::LEN..).map(<[u8]>::to_vec)
        });
        let PacketInfo { destination, traffic_class, hop_limit, .. } = *incoming.info;
        let origin =
            ReportOrigin::Icmp { offender, kind, code, destination, traffic_class, hop_limit };
        Self {
            error,
            remote,
            origin,
            info,
            payload: payload.unwrap_or_default(),
            received_at: Some(now),
        }
    }

    /// Of a datagram that waited for a neighbour who does not answer: as Linux tells of it, by a message of its own.
    pub(crate) fn of_silence(packet: &Outgoing, remote: SocketAddr) -> Self {
        let offender = packet.network.addresses().0;
        let ((kind, code), traffic_class) = match offender {
            IpAddr::V4(_) => (SILENT_IPV4, ERROR_CLASS_IPV4),
            IpAddr::V6(_) => (SILENT_IPV6, 0),
        };
        let mut payload = Vec::new();
        if let Message::Datagram { payload: bytes, .. } = &packet.message {
            payload.resize(bytes.len(), 0);
            bytes.copy_to(&mut payload);
        }
        let origin = ReportOrigin::Icmp {
            offender,
            kind,
            code,
            destination: offender,
            traffic_class,
            hop_limit: OWN_HOP_LIMIT,
        };
        let error = SocketError::HostUnreachable;
        Self { error, remote, origin, info: 0, payload, received_at: None }
    }

    /// Of a datagram that no packet takes that may leave.
    pub(crate) fn of_length(mtu_bytes: usize, remote: SocketAddr) -> Self {
        let (error, origin) = (SocketError::MessageTooLong, ReportOrigin::Local);
        let info = u32::try_from(mtu_bytes).unwrap_or(u32::MAX);
        Self { error, remote, origin, info, payload: Vec::new(), received_at: None }
    }
}
