//! The headers of one poll's segments.

use super::Kind;
use crate::config::Config;
use crate::connection::Connection;
use crate::ecn::Ecn;
use crate::options::Negotiated;
use crate::state::State;
use crate::user_timeout;
use time::Instant;
use wire::{SeqNumber, TCP_HEADER_LEN_MAX, TcpFlags, TcpHeader, TcpOptions};

/// The header of this poll's segments.
pub(super) struct Stamp {
    pub(super) bytes: [u8; TCP_HEADER_LEN_MAX],
    pub(super) len: usize,
}

impl Stamp {
    fn new(header: &TcpHeader) -> Self {
        let mut bytes = [0; TCP_HEADER_LEN_MAX];
        let len = header.emit(&mut bytes).unwrap_or(0);
        Self { bytes, len }
    }

    /// That of a segment with an ACK.
    pub(super) fn of(connection: &Connection, window: u16, options: TcpOptions) -> Self {
        Self::of_number(connection, connection.receiver.queue.next(), window, options)
    }

    /// The same with this acknowledgment number.
    fn of_number(
        connection: &Connection,
        number: SeqNumber,
        window: u16,
        options: TcpOptions,
    ) -> Self {
        Self::new(&TcpHeader {
            source_port: connection.local_port,
            destination_port: connection.remote_port,
            sequence: SeqNumber(0),
            acknowledgment: number,
            flags: TcpFlags::ACK | connection.receiver.mark_echo.flags(),
            window,
            urgent: 0,
            options,
        })
    }

    /// That of an ACK whose first block reports a duplicate (RFC 2883, 4), where there is one to report. The blocks
    /// behind it are the usual ones.
    pub(super) fn of_report(connection: &Connection, now: Instant, window: u16) -> Option<Self> {
        let negotiated = &connection.negotiated;
        let sack = connection.receiver.report_sack(negotiated)?;
        Some(Self::of(connection, window, negotiated.options(now, sack)))
    }

    /// That of an ACK that is due, with its flags: as it would have been if its segment had come alone.
    #[cold]
    pub(super) fn of_due(
        connection: &Connection,
        now: Instant,
        index: usize,
    ) -> Option<(Self, TcpFlags)> {
        let Connection { receiver, negotiated, .. } = connection;
        let due = receiver.acks.due(index)?;
        let window = connection.due_window(due.number) >> negotiated.receive_shift;
        let mut options = negotiated.options(now, due.sack);
        if let Some(timestamps) = &mut options.timestamps {
            timestamps.echo = due.echo;
        }
        let window = u16::try_from(window).unwrap_or(u16::MAX);
        let stamp = Self::of_number(connection, due.number, window, options);
        Some((stamp, TcpFlags::ACK | due.ecn))
    }

    /// That of a SYN or of a reset, which have little in common with the other segments.
    pub(super) fn of_control(connection: &Connection, now: Instant, kind: Kind) -> Self {
        if kind == Kind::Syn {
            return Self::new(&connection.syn_header(now));
        }
        let mut header = TcpHeader {
            source_port: connection.local_port,
            destination_port: connection.remote_port,
            flags: TcpFlags::RST,
            ..TcpHeader::default()
        };
        if let Some(ack) = connection.owing.reset.and_then(|reset| reset.acknowledgment) {
            header.flags |= TcpFlags::ACK;
            header.acknowledgment = ack;
            // RFC 7323, 3.2: a reset of this connection's own SHOULD have timestamps, too.
            header.options.timestamps = connection.negotiated.timestamps.map(|it| it.option(now));
        }
        Self::new(&header)
    }
}

/// What a SYN or a SYN-ACK says of its connection, which need not be there yet.
pub(crate) struct Opening<'a> {
    pub(crate) ports: (u16, u16),
    pub(crate) iss: SeqNumber,
    /// One past the peer's SYN, where that is here.
    pub(crate) acknowledgment: Option<SeqNumber>,
    pub(crate) window_bytes: usize,
    pub(crate) ecn: &'a Ecn,
    pub(crate) negotiated: &'a Negotiated,
    pub(crate) config: &'a Config,
}

impl Opening<'_> {
    pub(crate) fn header(&self, now: Instant) -> TcpHeader {
        let is_reply = self.acknowledgment.is_some();
        let mut header = TcpHeader {
            source_port: self.ports.0,
            destination_port: self.ports.1,
            sequence: self.iss,
            acknowledgment: self.acknowledgment.unwrap_or_default(),
            flags: TcpFlags::SYN | self.ecn.syn_flags(is_reply),
            // RFC 7323, 2.2: the window of a SYN is never scaled.
            window: u16::try_from(self.window_bytes).unwrap_or(u16::MAX),
            options: self.negotiated.syn_options(now, is_reply),
            ..TcpHeader::default()
        };
        header.options.user_timeout = user_timeout::announced(self.config);
        if is_reply {
            header.flags |= TcpFlags::ACK;
        }
        header
    }
}

impl Connection {
    /// The window behind an earlier number: what came behind it was part of it. In bytes, not rounded yet:
    /// rounded twice, its edge would lie before one that was announced.
    pub(super) fn due_window(&self, number: SeqNumber) -> u32 {
        self.plan.window_exact.saturating_add(self.receiver.queue.next().offset_from(number))
    }

    /// The header of our SYN or SYN-ACK.
    pub(crate) fn syn_header(&self, now: Instant) -> TcpHeader {
        let is_reply = self.state == State::SynReceived;
        let opening = Opening {
            ports: self.ports(),
            iss: self.sender.sequence.iss,
            acknowledgment: is_reply.then_some(self.receiver.queue.next()),
            // RFC 9293, 3.8.6: behind data that came with the peer's SYN (RFC 7413) it is smaller, and its right edge
            // stays where it was.
            window_bytes: match is_reply {
                true => self.receiver.queue.window() as usize,
                false => self.receiver.queue.capacity(),
            },
            ecn: &self.sender.ecn,
            negotiated: &self.negotiated,
            config: &self.config,
        };
        let mut header = opening.header(now);
        header.options.fast_open = self.fast_open_option(is_reply);
        header
    }
}
