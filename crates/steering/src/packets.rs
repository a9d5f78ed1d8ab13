//! Packets and batches for the tests of this crate.

use batch::{Block, Frame, ReceiveBatch, ReceivedChecksum};
use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use wire::{
    EthernetRepr, HardwareAddress, Ipv4Repr, Ipv6Repr, SeqNumber, TcpFlags, TcpHeader, TcpOptions,
    UdpRepr, ether_type, protocol,
};

pub(crate) const OURS: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 1]);
pub(crate) const THEIRS: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 2]);

/// An IP packet around a transport header and payload.
pub(crate) fn packet(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let payload_len = payload.len();
    let mut bytes = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0; Ipv4Repr::LEN];
            let repr = Ipv4Repr {
                dscp_ecn: 0,
                identification: 7,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset_bytes: 0,
                hop_limit: 64,
                protocol,
                source,
                destination,
                payload_len,
            };
            repr.emit(&mut header);
            header
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = vec![0; Ipv6Repr::LEN];
            let repr = Ipv6Repr {
                dscp_ecn: 0,
                flow_label: 0,
                payload_len,
                next_header: protocol,
                hop_limit: 255,
                source,
                destination,
            };
            repr.emit(&mut header);
            header
        }
        _ => panic!("two families"),
    };
    bytes.extend_from_slice(payload);
    bytes
}

pub(crate) fn tcp(source: SocketAddr, destination: SocketAddr, sequence: u32) -> Vec<u8> {
    let header = TcpHeader {
        source_port: source.port(),
        destination_port: destination.port(),
        sequence: SeqNumber(sequence),
        acknowledgment: SeqNumber(1),
        flags: TcpFlags::ACK,
        window: 1_000,
        urgent: 0,
        options: TcpOptions::default(),
    };
    let mut segment = vec![0; header.header_len()];
    header.emit(&mut segment).expect("room");
    packet(source.ip(), destination.ip(), protocol::TCP, &segment)
}

pub(crate) fn udp(source: SocketAddr, destination: SocketAddr, data: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; UdpRepr::LEN];
    let repr = UdpRepr {
        source_port: source.port(),
        destination_port: destination.port(),
        payload_len: data.len(),
    };
    repr.emit(&mut datagram);
    datagram.extend_from_slice(data);
    packet(source.ip(), destination.ip(), protocol::UDP, &datagram)
}

pub(crate) fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; EthernetRepr::LEN];
    EthernetRepr { destination: OURS, source: THEIRS, ether_type }.emit(&mut frame);
    frame.extend_from_slice(payload);
    frame
}

pub(crate) fn arp() -> Vec<u8> {
    ethernet(ether_type::ARP, &[0; 28])
}

/// Frames end to end in one block.
pub(crate) fn batch<'a>(frames: impl IntoIterator<Item = &'a [u8]>) -> ReceiveBatch {
    let frames: Vec<&[u8]> = frames.into_iter().collect();
    let mut batch = ReceiveBatch::new();
    let block = batch.add_block(Block::from(Bytes::from(frames.concat())));
    let mut offset = 0;
    for frame in frames {
        let len = frame.len() as u32;
        let checksum = ReceivedChecksum::Unverified;
        assert!(batch.push_frame(Frame { block, offset, len, checksum, segmented: None }));
        offset += len;
    }
    batch
}

/// The last four bytes of the sequence number field of bare IPv4 segments.
pub(crate) fn sequence(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[24..28].try_into().expect("four bytes"))
}

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}
