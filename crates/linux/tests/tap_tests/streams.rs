//! The kernel's TCP and just enough TCP by hand: a stream each way, in every transmit mode, with
//! super-frames where the interface has them. No loss is expected and none is survived.

use super::packets::{Arrived, Station, TCP, addresses};
use crate::Ground;
use batch::{Block, HeaderLayout, Limits, Multidata};
use bytes::Bytes;
use device::{Queue, TransmitMode};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);
const OUR_PORT: u16 = 4_243;
const SEGMENT_LEN: usize = 1_400;
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
/// Fits the first window of the kernel, so that nothing need be waited for.
const STREAM_LEN: usize = 40 * SEGMENT_LEN + 77;

pub(crate) fn both_ways(ground: Ground) {
    for ipv6 in [false, true] {
        for mode in TransmitMode::ALL {
            if mode == TransmitMode::Lso && !ground.offload {
                continue;
            }
            let mut station = Station::open(ground);
            let listener =
                TcpListener::bind((addresses(ipv6).0, 0)).expect("the address is the kernel's");
            let port = listener.local_addr().expect("it is bound").port();
            let mut ours = Flow::open(&mut station, ipv6, port);
            let (mut stream, _) = listener.accept().expect("the handshake is over");
            stream.set_read_timeout(Some(PATIENCE)).expect("an option of sockets");
            stream.set_write_timeout(Some(PATIENCE)).expect("an option of sockets");

            ours.send_stream(&mut station, mode, &mut stream);
            ours.receive_stream(ground, &mut station, &mut stream);
        }
    }
}

/// Our side of a connection.
struct Flow {
    ipv6: bool,
    port: u16,
    sequence: u32,
    acknowledgment: u32,
}

impl Flow {
    /// RFC 9293, 3.5: the three-way handshake.
    fn open(station: &mut Station, ipv6: bool, port: u16) -> Self {
        let mut flow = Self { ipv6, port, sequence: 0xffff_f000, acknowledgment: 0 };
        let mut syn = flow.header(SYN, 0).to_vec();
        syn.extend_from_slice(&[2, 4, 5, 120]);
        syn[12] = 0x60;
        station.send_one(TCP, ipv6, &syn, &[]);
        let synchronised = station.wait_for(|arrived| flow.is_ours(&arrived).then_some(arrived));
        assert_eq!(synchronised.transport[13], SYN | ACK);
        flow.sequence = flow.sequence.wrapping_add(1);
        flow.acknowledgment = number(&synchronised.transport, 4).wrapping_add(1);
        let ack = flow.header(ACK, 0);
        station.send_one(TCP, ipv6, &ack, &[]);
        flow
    }

    /// A header at `offset` bytes behind what is acknowledged.
    fn header(&self, flags: u8, offset: usize) -> [u8; 20] {
        let mut header = [0; 20];
        header[..2].copy_from_slice(&OUR_PORT.to_be_bytes());
        header[2..4].copy_from_slice(&self.port.to_be_bytes());
        header[4..8].copy_from_slice(&self.sequence.wrapping_add(offset as u32).to_be_bytes());
        header[8..12].copy_from_slice(&self.acknowledgment.to_be_bytes());
        header[12..16].copy_from_slice(&[0x50, flags, 0xff, 0xff]);
        header
    }

    fn is_ours(&self, arrived: &Arrived) -> bool {
        arrived.protocol == TCP
            && arrived.transport.get(..2) == Some(&self.port.to_be_bytes())
            && arrived.transport.get(2..4) == Some(&OUR_PORT.to_be_bytes())
    }

    /// Sends a stream as one batch, and sees it arrive in the kernel's socket.
    fn send_stream(&mut self, station: &mut Station, mode: TransmitMode, stream: &mut TcpStream) {
        let bytes: Vec<u8> = (0..STREAM_LEN).map(|at| (at * 7 + at / 256) as u8).collect();
        let block = Block::from(Bytes::from(bytes.clone()));
        let limits = Limits { packets: 64, ..Limits::default() };
        let mut batch = Multidata::new(HeaderLayout::default(), limits);
        station.queue.set_mode(mode).expect("the interface can");
        let run = batch.next_run();
        for start in (0..STREAM_LEN).step_by(SEGMENT_LEN) {
            let end = STREAM_LEN.min(start + SEGMENT_LEN);
            let flags = if end == STREAM_LEN { ACK | PSH } else { ACK };
            let header = self.header(flags, start);
            station.push(&mut batch, TCP, self.ipv6, &header, (&block, start..end), run);
            if mode == TransmitMode::Single {
                station.send(&batch);
                batch.clear();
            }
        }
        let before = station.queue.counters();
        let disordered = out_of_order();
        station.send(&batch);
        let frames = station.queue.counters().transmit_frames - before.transmit_frames;
        match mode {
            TransmitMode::Single => assert_eq!(frames, 0),
            TransmitMode::Chain | TransmitMode::Contiguous(_) | TransmitMode::Multidata => {
                assert_eq!(frames, 41, "{mode}");
            }
            TransmitMode::Lso => assert_eq!(frames, 1, "one super-frame"),
        }
        let mut read = vec![0; STREAM_LEN];
        stream.read_exact(&mut read).expect("the kernel took the segments");
        assert!(read == bytes, "the kernel read other bytes than were sent");
        assert_eq!(out_of_order(), disordered, "segments overtook each other");
        self.sequence = self.sequence.wrapping_add(STREAM_LEN as u32);
    }

    /// Lets the kernel send a stream and acknowledges what comes, in order.
    fn receive_stream(&mut self, ground: Ground, station: &mut Station, stream: &mut TcpStream) {
        let bytes: Vec<u8> = (0..STREAM_LEN).map(|at| (at * 11 + at / 256) as u8).collect();
        std::thread::scope(|scope| {
            // Of Linux's usual buffers one holds less than the stream.
            scope.spawn(|| stream.write_all(&bytes).expect("all is acknowledged"));
            self.read_stream(ground, station, &bytes);
        });
    }

    fn read_stream(&mut self, ground: Ground, station: &mut Station, bytes: &[u8]) {
        let (mut read, mut super_frames) = (Vec::new(), 0);
        while read.len() < STREAM_LEN {
            let arrived = station.wait_for(|arrived| {
                let follows = number(&arrived.transport, 4) == self.acknowledgment;
                (self.is_ours(&arrived) && follows && !payload(&arrived).is_empty())
                    .then_some(arrived)
            });
            if !ground.offload {
                assert!(arrived.sum_is_right && arrived.segmented.is_none());
            }
            super_frames += usize::from(arrived.segmented.is_some());
            let payload = payload(&arrived);
            read.extend_from_slice(payload);
            self.acknowledgment = self.acknowledgment.wrapping_add(payload.len() as u32);
            let ack = self.header(ACK, 0);
            station.send_one(TCP, self.ipv6, &ack, &[]);
        }
        assert!(read == bytes, "other bytes came than the kernel was given");
        assert_eq!(super_frames > 0, ground.offload, "super-frames come with offload and only so");
    }
}

/// How many segments came to the kernel's TCP, of the network we are in, out of order.
fn out_of_order() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").expect("Linux has it");
    let mut rows = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (rows.next().unwrap_or(""), rows.next().unwrap_or(""));
    let mut columns = names.split(' ').zip(values.split(' '));
    let (_, count) = columns.find(|(name, _)| *name == "TCPOFOQueue").expect("Linux counts them");
    count.parse().expect("a number")
}

fn number(transport: &[u8], at: usize) -> u32 {
    transport.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes)
}

fn payload(arrived: &Arrived) -> &[u8] {
    let header_len = arrived.transport.get(12).map_or(0, |byte| (byte >> 4) as usize * 4);
    arrived.transport.get(header_len..).unwrap_or(&[])
}
