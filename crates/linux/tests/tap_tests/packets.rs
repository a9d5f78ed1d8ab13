//! Packets by hand, and a bare station that speaks just enough to be reached.

use crate::Ground;
use batch::{Attributes, Block, BlockPool, Checksum, Multidata, PoolConfig, ReceiveBatch};
use batch::{ReceivedChecksum, Segmented};
use bytes::Bytes;
use device::{HardwareAddress, Medium, Queue, TransmitMode};
use linux::{TapDevice, TapQueue};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// The kernel's address and ours.
pub(crate) fn addresses(ipv6: bool) -> (IpAddr, IpAddr) {
    if ipv6 {
        let address = |last| IpAddr::V6(Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, last));
        (address(1), address(2))
    } else {
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 7, 0, last));
        (address(1), address(2))
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A packet that came up, taken apart.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) protocol: u8,
    /// The transport header and what follows.
    pub(crate) transport: Vec<u8>,
    pub(crate) checksum: ReceivedChecksum,
    pub(crate) segmented: Option<Segmented>,
    /// Whether the sum over pseudo-header and packet is what a complete packet has.
    pub(crate) sum_is_right: bool,
}

/// Our end of the interface: a queue and no stack.
pub(crate) struct Station {
    device: TapDevice,
    pub(crate) queue: TapQueue,
    pool: BlockPool,
    ours: Option<HardwareAddress>,
    kernel: HardwareAddress,
    identification: u16,
    /// Packets that came up and were not looked at yet.
    arrived: VecDeque<Arrived>,
}

impl Station {
    /// Opens an interface, brings it up and gives the kernel its addresses. The IPv4 neighbour is
    /// left for ARP to find; the IPv6 neighbour is told to the kernel.
    pub(crate) fn open(ground: Ground) -> Self {
        let device = ground.open().expect("an interface");
        let wanted = device.capabilities();
        // Linux 6.2 leaves datagrams uncut, an older one does not.
        let is_due = |refused: &&String| !refused.starts_with("runs of datagrams");
        assert_eq!(device.refused().iter().find(is_due), None, "{}", device.negotiated());
        assert_eq!(wanted.checksum_transmit, ground.offload);
        assert_eq!(wanted.receive_super_frames, ground.offload);
        Self::on(device)
    }

    /// The same on an interface that is open already.
    pub(crate) fn on(mut device: TapDevice) -> Self {
        let interface = device.interface().expect("it is there");
        interface.set_up().expect("we are root here");
        for (ipv6, prefix_len) in [(false, 24), (true, 64)] {
            interface.add_address(addresses(ipv6).0, prefix_len).expect("we are root here");
        }
        let ours = match device.capabilities().medium {
            Medium::Ethernet(address) => Some(address),
            Medium::Ip => None,
        };
        if let Some(address) = ours {
            interface.add_neighbour(addresses(true).1, address).expect("we are root here");
        }
        let kernel = interface.hardware_address().expect("it is there");
        let queue = device.queue(0).expect("nobody took it");
        let pool = BlockPool::new(PoolConfig::default());
        Self { device, queue, pool, ours, kernel, identification: 1, arrived: VecDeque::new() }
    }

    pub(crate) fn device(&self) -> &TapDevice {
        &self.device
    }

    /// Appends a packet: `transport` is the transport header with a checksum field of zero at
    /// `field`. The checksum is left to the kernel where it takes that.
    pub(crate) fn push(
        &mut self,
        batch: &mut Multidata,
        protocol: u8,
        ipv6: bool,
        transport: &[u8],
        payload: (&Block, core::ops::Range<usize>),
        run: u32,
    ) {
        let field = if protocol == TCP { 16 } else { 6 };
        let attributes = Attributes { run, ..Attributes::default() };
        let header = batch.push_packet(transport.len(), attributes).expect("room");
        header.copy_from_slice(transport);
        assert!(batch.append_span(payload.0, payload.1.start, payload.1.len()));
        let index = batch.len() - 1;
        let network_len = if ipv6 { 40 } else { 20 };
        let (headers, pieces) = batch.prepend_network(index, network_len).expect("headroom");
        let (ip, transport) = headers.split_at_mut(network_len);
        let len = transport.len() + payload.1.len();
        let mut sum = checksum::Accumulator::new();
        sum.add(&network_header(ip, protocol, len, ipv6, self.identification));
        self.identification = self.identification.wrapping_add(1);
        sum.add_u16(u16::from(protocol));
        sum.add_u16(len as u16);
        let offload = self.queue.capabilities().checksum_transmit;
        let value = if offload {
            sum.sum()
        } else {
            sum.add(transport);
            pieces.for_each(|piece| sum.add(piece));
            match sum.finish() {
                // Zero would say that there is none, which IPv6 does not allow (RFC 8200, 8.1).
                0 if protocol == UDP => 0xffff,
                value => value,
            }
        };
        transport[field..field + 2].copy_from_slice(&value.to_be_bytes());
        let partial = Checksum::Partial { offset: field as u8 };
        batch.set_checksum(index, if offload { partial } else { Checksum::Complete });
        if let Some(ours) = self.ours {
            let link = batch.prepend(index, 14).expect("headroom");
            link[..6].copy_from_slice(&self.kernel.0);
            link[6..12].copy_from_slice(&ours.0);
            link[12..].copy_from_slice(if ipv6 { &[0x86, 0xdd] } else { &[8, 0] });
        }
    }

    /// Sends all of a batch.
    pub(crate) fn send(&mut self, batch: &Multidata) {
        let transmitted = self.queue.transmit(batch);
        assert_eq!((transmitted.taken, transmitted.stopped), (batch.len(), None));
    }

    /// Sends one packet.
    pub(crate) fn send_one(&mut self, protocol: u8, ipv6: bool, transport: &[u8], payload: &[u8]) {
        let mut batch = Multidata::default();
        let block = Block::from(Bytes::copy_from_slice(payload));
        self.push(&mut batch, protocol, ipv6, transport, (&block, 0..payload.len()), 0);
        self.queue.set_mode(TransmitMode::Multidata).expect("every device can");
        self.send(&batch);
    }

    /// Waits for packets to our address, answers ARP, and hands each to `look` until that returns
    /// something.
    pub(crate) fn wait_for<T>(&mut self, mut look: impl FnMut(Arrived) -> Option<T>) -> T {
        let waiter = self.queue.waiter();
        let started = Instant::now();
        let mut batch = ReceiveBatch::new();
        loop {
            while let Some(arrived) = self.arrived.pop_front() {
                if let Some(found) = look(arrived) {
                    return found;
                }
            }
            assert!(started.elapsed() < Duration::from_secs(10), "nothing came in ten seconds");
            batch.clear();
            let received = self.queue.receive(&self.pool, &mut batch, 64);
            assert_eq!(received.failed, None);
            for index in 0..batch.len() {
                let frame = batch.frame(index).expect("it was received");
                let bytes = batch.bytes(index);
                if self.answer_arp(bytes) {
                    continue;
                }
                let arrived = take_apart(self.network(bytes), frame.checksum, frame.segmented);
                self.arrived.extend(arrived);
            }
            if batch.is_empty() {
                waiter.wait(Some(Duration::from_millis(100)));
            }
        }
    }

    /// What lies behind the link header.
    fn network<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(if self.ours.is_some() { 14 } else { 0 }..).unwrap_or(&[])
    }

    /// Answers a request for our address (RFC 826); says whether the frame was ARP.
    fn answer_arp(&mut self, frame: &[u8]) -> bool {
        let Some(ours) = self.ours else { return false };
        if frame.get(12..14) != Some(&[8, 6]) {
            return false;
        }
        let our_ip = octets(addresses(false).1);
        if frame.get(20..22) == Some(&[0, 1]) && frame.get(38..42) == Some(&our_ip) {
            let mut batch = Multidata::default();
            let arp = batch.push_packet(28, Attributes::default()).expect("room");
            arp[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 2]);
            arp[8..14].copy_from_slice(&ours.0);
            arp[14..18].copy_from_slice(&our_ip);
            arp[18..28].copy_from_slice(&frame[22..32]);
            let link = batch.prepend(0, 14).expect("headroom");
            link[..6].copy_from_slice(&frame[6..12]);
            link[6..12].copy_from_slice(&ours.0);
            link[12..].copy_from_slice(&[8, 6]);
            self.send(&batch);
        }
        true
    }
}

/// Writes the IP header from us to the kernel and returns the two addresses.
fn network_header(ip: &mut [u8], protocol: u8, len: usize, ipv6: bool, id: u16) -> Vec<u8> {
    let (kernel, ours) = addresses(ipv6);
    let both = [octets(ours), octets(kernel)].concat();
    ip.fill(0);
    if ipv6 {
        ip[0] = 0x60;
        ip[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        ip[6..8].copy_from_slice(&[protocol, 64]);
        ip[8..40].copy_from_slice(&both);
    } else {
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&((20 + len) as u16).to_be_bytes());
        ip[4..6].copy_from_slice(&id.to_be_bytes());
        ip[6] = 0x40;
        ip[8..10].copy_from_slice(&[64, protocol]);
        ip[12..20].copy_from_slice(&both);
        let checksum = !checksum::sum(ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    both
}

/// Takes a packet to our address apart; `None` for all others.
fn take_apart(
    ip: &[u8],
    checksum: ReceivedChecksum,
    segmented: Option<Segmented>,
) -> Option<Arrived> {
    let ipv6 = ip.first()? >> 4 == 6;
    let (protocol, both, transport) = if ipv6 {
        (*ip.get(6)?, ip.get(8..40)?, ip.get(40..)?)
    } else {
        assert_eq!(checksum::sum(ip.get(..20)?), 0xffff, "the kernel's header checksum");
        (*ip.get(9)?, ip.get(12..20)?, ip.get(20..)?)
    };
    if both[both.len() / 2..] != octets(addresses(ipv6).1) {
        return None;
    }
    let mut sum = checksum::Accumulator::new();
    sum.add(both);
    sum.add_u16(u16::from(protocol));
    sum.add_u32(transport.len() as u32);
    sum.add(transport);
    let sum_is_right = sum.sum() == 0xffff;
    Some(Arrived { protocol, transport: transport.to_vec(), checksum, segmented, sum_is_right })
}
