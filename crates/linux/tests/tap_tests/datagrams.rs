//! A UDP socket of the kernel and our queue exchange datagrams, over IPv4 and IPv6.

use super::packets::{Arrived, Station, UDP, addresses};
use crate::Ground;
use batch::{Block, Multidata, ReceivedChecksum};
use bytes::Bytes;
use device::Queue;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

const OUR_PORT: u16 = 4_242;

pub(crate) fn both_ways(ground: Ground) {
    for ipv6 in [false, true] {
        let mut station = Station::open(ground);
        let (kernel, ours) = addresses(ipv6);
        let socket = UdpSocket::bind((kernel, 0)).expect("the address is the kernel's");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("an option of sockets");
        let port = socket.local_addr().expect("it is bound").port();

        kernel_to_us(ground, &mut station, &socket, (ours, OUR_PORT).into(), port);
        us_to_kernel(ground, &mut station, &socket, ipv6, port);
    }
}

fn kernel_to_us(
    ground: Ground,
    station: &mut Station,
    socket: &UdpSocket,
    ours: SocketAddr,
    port: u16,
) {
    let mut incomplete = 0;
    for len in [1, 100, 1_200] {
        let payload = vec![len as u8; len];
        socket.send_to(&payload, ours).expect("the network is there");
        let arrived = station.wait_for(|arrived| {
            let ours = arrived.transport.get(2..4) == Some(&OUR_PORT.to_be_bytes());
            (arrived.protocol == UDP && ours).then_some(arrived)
        });
        assert_eq!(arrived.transport[..2], port.to_be_bytes());
        assert_eq!(arrived.transport[8..], payload);
        assert_eq!(arrived.segmented, None);
        if ground.offload {
            assert_eq!(arrived.checksum, ReceivedChecksum::Partial);
            incomplete += usize::from(!arrived.sum_is_right);
        } else {
            assert_eq!(arrived.checksum, ReceivedChecksum::Unverified);
            assert!(arrived.sum_is_right);
        }
    }
    // By chance the sum of the pseudo-header alone is the whole one: once in 65,536, not each time.
    assert_eq!(incomplete > 0, ground.offload, "the kernel leaves checksums to us if we offer it");
}

/// The kernel's socket sends many datagrams by one call and leaves the cutting to its interface
/// (UDP_SEGMENT): each arrives, in its order, more of them in a frame than a caller may want at a time.
pub(crate) fn uncut(ground: Ground) {
    const SOL_UDP: i32 = 17;
    const UDP_SEGMENT: i32 = 103;
    for ipv6 in [false, true] {
        let mut station = Station::open(ground);
        let (kernel, ours) = addresses(ipv6);
        let socket = UdpSocket::bind((kernel, 0)).expect("the address is the kernel's");
        let to = SocketAddr::from((ours, OUR_PORT));
        let is_ours = |arrived: &Arrived| {
            arrived.protocol == UDP && arrived.transport.get(2..4) == Some(&OUR_PORT.to_be_bytes())
        };
        // The neighbour is known when it has answered.
        socket.send_to(b"first", to).expect("the network is there");
        station.wait_for(|arrived| is_ours(&arrived).then_some(()));
        let before = station.queue.counters();
        let bytes: Vec<u8> = (0..64_000).map(|at| (at % 251) as u8).collect();
        let runs = [(1_000, 41), (1_400, 3), (30, 60), (1_452, 44), (700, 1)];
        for (len, count) in runs {
            let segment = i32::try_from(len).expect("short").to_ne_bytes();
            linux::raw_calls::setsockopt(socket.as_raw_fd(), SOL_UDP, UDP_SEGMENT, &segment)
                .expect("Linux has it since 4.18");
            let sent = &bytes[..len * count - 9];
            assert_eq!(socket.send_to(sent, to).expect("the network is there"), sent.len());
        }
        for (len, count) in runs {
            for part in bytes[..len * count - 9].chunks(len) {
                let arrived = station.wait_for(|arrived| is_ours(&arrived).then_some(arrived));
                assert_eq!(arrived.transport[4..6], (part.len() as u16 + 8).to_be_bytes());
                assert!(arrived.transport[8..] == *part, "other bytes of {len}");
                assert_eq!(arrived.checksum, ReceivedChecksum::Partial);
            }
        }
        let (after, cut) = (station.queue.counters(), 41 + 3 + 60 + 44);
        let is_uncut = station.device().refused().is_empty();
        let coalesced = after.receive_coalesced - before.receive_coalesced;
        assert_eq!(coalesced, if is_uncut { cut } else { 0 });
        assert_eq!(after.receive_dropped, 0);
    }
}

fn us_to_kernel(ground: Ground, station: &mut Station, socket: &UdpSocket, ipv6: bool, port: u16) {
    const COUNT: usize = 20;
    let bytes: Vec<u8> = (0..COUNT * 1_000).map(|at| (at % 253) as u8).collect();
    let block = Block::from(Bytes::from(bytes.clone()));
    let mut batch = Multidata::default();
    let before = station.queue.counters();
    for index in 0..COUNT {
        let len = 1_000 - index;
        let mut udp = [0; 8];
        udp[..2].copy_from_slice(&OUR_PORT.to_be_bytes());
        udp[2..4].copy_from_slice(&port.to_be_bytes());
        udp[4..6].copy_from_slice(&((8 + len) as u16).to_be_bytes());
        let start = index * 1_000;
        station.push(&mut batch, UDP, ipv6, &udp, (&block, start..start + len), 0);
    }
    station.send(&batch);
    let after = station.queue.counters();
    assert_eq!(after.transmit_packets - before.transmit_packets, COUNT as u64);
    assert_eq!(after.transmit_frames - before.transmit_frames, COUNT as u64);
    let mut buffer = [0; 2_000];
    for index in 0..COUNT {
        let (len, peer) = socket.recv_from(&mut buffer).unwrap_or_else(|error| {
            panic!("datagram {index} did not reach the kernel on {ground:?}: {error}")
        });
        let start = index * 1_000;
        assert_eq!(buffer[..len], bytes[start..start + 1_000 - index]);
        assert_eq!((peer.ip(), peer.port()), (addresses(ipv6).1, OUR_PORT));
    }
}
