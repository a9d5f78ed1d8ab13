//! A UDP socket of the kernel and our queue exchange datagrams, over IPv4 and IPv6.

use super::packets::{Station, UDP, addresses};
use crate::Ground;
use batch::{Block, Multidata, ReceivedChecksum};
use bytes::Bytes;
use device::Queue;
use std::net::UdpSocket;
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
    ours: std::net::SocketAddr,
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
