//! Resets for segments that belong to no connection (RFC 9293, 3.10.7.1), and how segments without a
//! connection are sent.

use batch::{Attributes, Checksum, Multidata};
use wire::{SeqNumber, TCP_CHECKSUM_OFFSET, TcpFlags, TcpHeader};

/// The reset that answers a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetReply {
    /// SEG.SEQ.
    pub sequence: SeqNumber,
    /// SEG.ACK, where the answered segment had no ACK to take the sequence from.
    pub acknowledgment: Option<SeqNumber>,
}

/// What to answer to a segment without a connection; `payload_len` in bytes. A reset is never
/// answered.
#[must_use]
pub fn reset_reply(header: &TcpHeader, payload_len: u32) -> Option<ResetReply> {
    if header.flags.contains(TcpFlags::RST) {
        return None;
    }
    if header.flags.contains(TcpFlags::ACK) {
        return Some(ResetReply { sequence: header.acknowledgment, acknowledgment: None });
    }
    let len = payload_len
        + u32::from(header.flags.contains(TcpFlags::SYN))
        + u32::from(header.flags.contains(TcpFlags::FIN));
    Some(ResetReply { sequence: SeqNumber(0), acknowledgment: Some(header.sequence + len) })
}

impl ResetReply {
    /// The reset; the ports are ours and the peer's.
    #[must_use]
    pub fn header(&self, local_port: u16, remote_port: u16) -> TcpHeader {
        TcpHeader {
            source_port: local_port,
            destination_port: remote_port,
            sequence: self.sequence,
            acknowledgment: self.acknowledgment.unwrap_or_default(),
            flags: match self.acknowledgment {
                Some(_) => TcpFlags::RST | TcpFlags::ACK,
                None => TcpFlags::RST,
            },
            ..TcpHeader::default()
        }
    }
}

/// Appends a segment that is nothing but a header, of no connection, to a batch. Says whether there
/// was room.
#[must_use]
pub fn push_control(out: &mut Multidata, header: &TcpHeader) -> bool {
    let checksum = Checksum::Missing { offset: TCP_CHECKSUM_OFFSET };
    let attributes = Attributes { checksum, ..Attributes::default() };
    out.push_packet(header.header_len(), attributes)
        .is_some_and(|bytes| header.emit(bytes).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_cases_of_rfc_9293_3_10_7_1() {
        let mut header = TcpHeader {
            sequence: SeqNumber(u32::MAX),
            acknowledgment: SeqNumber(77),
            flags: TcpFlags::RST | TcpFlags::ACK,
            ..TcpHeader::default()
        };
        assert_eq!(reset_reply(&header, 0), None);
        header.flags = TcpFlags::ACK;
        let by_ack = ResetReply { sequence: SeqNumber(77), acknowledgment: None };
        assert_eq!(reset_reply(&header, 5), Some(by_ack));
        header.flags = TcpFlags::SYN | TcpFlags::FIN;
        let by_length = ResetReply { sequence: SeqNumber(0), acknowledgment: Some(SeqNumber(6)) };
        assert_eq!(reset_reply(&header, 5), Some(by_length));
    }

    #[test]
    fn the_reset_is_a_bare_header() {
        let mut batch = Multidata::default();
        let reply = ResetReply { sequence: SeqNumber(5), acknowledgment: Some(SeqNumber(6)) };
        assert!(push_control(&mut batch, &reply.header(80, 1024)));
        let packet = batch.packet(0).expect("one");
        let (header, len) = TcpHeader::parse(packet.header()).expect("well formed");
        assert_eq!((len, header.source_port, header.destination_port), (20, 80, 1024));
        assert_eq!(header.flags, TcpFlags::RST | TcpFlags::ACK);
        assert_eq!(packet.attributes().checksum, Checksum::Missing { offset: 16 });
    }
}
