//! What an interface owes leaves in one batch, whatever protocol it is of.

use crate::harness::{self, Net, address, craft, data, station};
use batch::{Block, Chunk, Multidata};
use bytes::Bytes;
use core::net::SocketAddr;
use device::lowering::blocks;
use device::{Contiguous, Room, TransmitMode, Transmitted};
use time::Duration;

/// Host 1 of an Ethernet link owes host 0 echo replies, an ICMP error, a reset, datagrams to several
/// ports and a stream; one call has all of it.
#[test]
fn echo_replies_errors_resets_datagrams_and_segments_ride_together() {
    for ipv6 in [false, true] {
        let mut net = Net::new(TransmitMode::Multidata, true);
        let (_, server) = net.connect(ipv6);
        net.run(Duration::from_secs(1));
        let (theirs, ours) = (address(0, ipv6), address(1, ipv6));
        let (icmp, echo) = match ipv6 {
            false => (wire::protocol::ICMP, 8),
            true => (wire::protocol::ICMPV6, 128),
        };
        let crafted = |protocol, transport: &[u8], checksum_at| {
            let checksummed = (transport, checksum_at);
            craft::packet(station(1), (theirs, ours), protocol, 64, checksummed)
        };
        let ping = |number| {
            let mut echo = [echo, 0, 0, 0, 0, 7, 0, number, 1, 2, 3];
            if ipv6 {
                return crafted(icmp, &echo, 2);
            }
            // Of ICMP for IPv4 the checksum has no pseudo-header.
            let checksum = !checksum::sum(&echo);
            echo[2..4].copy_from_slice(&checksum.to_be_bytes());
            craft::packet_as_it_is(station(1), (theirs, ours), icmp, 64, &echo)
        };
        let to_nobody = [0, 99, 0x40, 0, 0, 12, 0, 0, 1, 2, 3, 4];
        let syn = [0, 99, 0x40, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 16, 0, 0, 0, 0, 0];
        net.write(1, server, &data(5_000));
        let socket = net.hosts[1].shard.udp_bind(SocketAddr::new(ours, 0)).expect("a free port");
        let chunk = Chunk::whole(Block::from(Bytes::from_static(b"datagram")));
        let datagrams: Vec<_> = (0..9_u16)
            .map(|port| (SocketAddr::new(theirs, 5_000 + port % 3).into(), chunk.clone()))
            .collect();
        let queued = net.hosts[1].shard.udp_send_many(socket, &datagrams).expect("room");
        assert_eq!(queued, 9);
        let frames = [ping(1), ping(2), crafted(17, &to_nobody, 6), crafted(6, &syn, 16), ping(3)];
        net.inject(1, frames);

        let (host, mut batch) = (&mut net.hosts[1], Multidata::default());
        let built = host.shard.poll_transmit(net.now, host.interface, Room::UNBOUNDED, &mut batch);
        let network_len = if ipv6 { 40 } else { 20 };
        let count = |is: &dyn Fn(u8, &[u8]) -> bool| {
            let packets = batch.packets().map(|packet| harness::bytes_of(&packet));
            packets
                .filter(|bytes| {
                    let protocol = bytes[if ipv6 { 14 + 6 } else { 14 + 9 }];
                    is(protocol, &bytes[14 + network_len..])
                })
                .count()
        };
        let (reply, unreachable) = if ipv6 { (129, 1) } else { (0, 3) };
        assert_eq!(count(&|protocol, icmp_bytes| protocol == icmp && icmp_bytes[0] == reply), 3);
        assert_eq!(count(&|protocol, bytes| protocol == icmp && bytes[0] == unreachable), 1);
        assert_eq!(count(&|protocol, _| protocol == 17), 9);
        assert_eq!(count(&|protocol, tcp| protocol == 6 && tcp[13] & 4 != 0), 1, "the reset");
        assert!(count(&|protocol, tcp| protocol == 6 && tcp.len() > 1_000) >= 3, "the stream");
        assert!(built >= 17);

        // And in one block, cut to the same packets.
        let all: Vec<_> = blocks(&batch, 0..built, Contiguous::FRAMES, 0).collect();
        assert_eq!(all.len(), 1);
        let mut bytes = vec![0; all[0].len_bytes];
        all[0].lay_out(&batch, &mut bytes).expect("as long as it says");
        for (packet, frame) in batch.packets().zip(all[0].frames()) {
            assert_eq!(bytes[frame.range], harness::bytes_of(&packet));
        }
        let taken = Transmitted { taken: built, stopped: None };
        host.shard.on_transmitted(net.now, host.interface, &taken);
    }
}
