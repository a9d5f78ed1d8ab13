//! Several shards that are one host: which of them has what.
//!
//! Each shard of a host has the same interfaces, addresses and routes, and sockets of its own. Who
//! drives them gives each what is for its sockets ([`Homes`] says which shard that is), and gives all
//! of them what hosts say to find each other: every shard keeps its own neighbours. What must not be
//! done twice the first shard does: it answers who asks for an address of ours, and it puts fragments
//! together. A datagram that turns out to be for a socket of another shard only here, because it was
//! in fragments or came over loopback, is a [`Stray`]; the driver carries it there.

use crate::ingress::Origin;
use crate::interface::InterfaceId;
use crate::shard::Shard;
use crate::sockets::Flow;
use batch::{Chunk, Frame, ReceiveBatch, ReceivedChecksum};
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use counters::DropReason;
use std::collections::VecDeque;
use std::sync::Arc;
use time::Instant;
use wire::{HardwareAddress, TcpHeader, UdpView, protocol};

/// Strays that wait to be fetched at most; what comes beyond is dropped and counted.
const STRAYS_MAX: usize = 1_024;

/// Which shard has what. The same for all shards of a host, and for as long as they live.
pub trait Homes: Send + Sync {
    /// The shard that gets the segments which `remote` sends to `local`, counted from zero; `None`
    /// where that is whichever sends to `remote`, because the device brings answers there.
    fn of_flow(&self, local: SocketAddr, remote: SocketAddr) -> Option<usize>;

    /// The shard whose UDP sockets have this local port.
    fn of_port(&self, port: u16) -> usize;
}

/// What a shard is among those of its host.
#[derive(Clone)]
pub struct Share {
    /// Its number, below `count`. The first one, zero, answers for all.
    pub index: usize,
    /// How many there are.
    pub count: usize,
    /// Who has what.
    pub homes: Arc<dyn Homes>,
}

impl fmt::Debug for Share {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "shard {} of {}", self.index, self.count)
    }
}

/// A whole packet that another shard has the socket for.
#[derive(Clone, Debug)]
pub struct Stray {
    /// The shard it is for.
    pub home: usize,
    interface: InterfaceId,
    station: Option<HardwareAddress>,
    link_multicast: bool,
    fragmented: bool,
    checksum: ReceivedChecksum,
    packet: Chunk,
}

impl Stray {
    /// The packet's length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.packet.len()
    }
}

/// A shard's part in its host, and the strays it has for others.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    share: Option<Share>,
    strays: VecDeque<Stray>,
}

impl Sharing {
    /// Whether other shards of the host have sockets, too.
    pub(crate) fn has_others(&self) -> bool {
        self.share.is_some()
    }

    /// Whether this shard answers for all.
    pub(crate) fn is_first(&self) -> bool {
        self.share.as_ref().is_none_or(|share| share.index == 0)
    }

    /// Whether segments of this flow come to this shard.
    pub(crate) fn is_home_of(&self, flow: &Flow) -> bool {
        let home = self.share.as_ref().and_then(|it| it.homes.of_flow(flow.local, flow.remote));
        home.is_none_or(|home| self.share.as_ref().is_none_or(|share| home == share.index))
    }

    /// Whether datagrams to this port come to this shard.
    pub(crate) fn is_home_of_port(&self, port: u16) -> bool {
        self.share.as_ref().is_none_or(|share| share.homes.of_port(port) == share.index)
    }

    /// The other shard that this packet is for, if any: its home by its transport header.
    fn home_elsewhere(&self, packet: &[u8]) -> Option<usize> {
        let share = self.share.as_ref()?;
        let info = ip::parse(packet).ok()?;
        let transport = info.transport(packet);
        let home = match info.protocol {
            protocol::UDP => {
                share.homes.of_port(UdpView::parse(transport).ok()?.destination_port())
            }
            protocol::TCP => {
                let (header, _) = TcpHeader::parse(transport).ok()?;
                let local = SocketAddr::new(info.destination, header.destination_port);
                share.homes.of_flow(local, SocketAddr::new(info.source, header.source_port))?
            }
            _ => return None,
        };
        (home != share.index).then_some(home)
    }
}

impl Shard {
    /// Makes this shard one of several of its host. Before interfaces and sockets are added.
    pub fn set_share(&mut self, share: Share) {
        self.identifications.share(share.index, share.count);
        self.sharing.share = Some(share);
    }

    /// The address that packets to `remote` leave with, where their sender does not choose one.
    ///
    /// # Errors
    /// [`SocketError::NoRoute`](crate::SocketError::NoRoute) where none leads there.
    pub fn source_for(&self, remote: IpAddr) -> Result<IpAddr, crate::SocketError> {
        let (interface, _) = self.route(remote)?;
        self.interfaces[interface.0 as usize].source_for(remote)
    }

    /// The next packet that another shard has the socket for, in the order they came.
    pub fn poll_stray(&mut self) -> Option<Stray> {
        self.sharing.strays.pop_front()
    }

    /// Takes in what [`Shard::poll_stray`] of another shard gave out.
    pub fn on_stray(&mut self, now: Instant, stray: &Stray) {
        let Stray { interface, station, link_multicast, .. } = *stray;
        if self.interfaces.get(interface.0 as usize).is_none_or(|it| it.is_removed) {
            return self.drops.add(DropReason::InterfaceRemoved);
        }
        self.checked_addresses = None;
        let origin = Origin { interface, station, link_multicast };
        let outcome = self.on_whole(now, origin, &stray.packet, stray.checksum, stray.fragmented);
        if let Err(reason) = outcome {
            self.drops.add(reason);
        }
        self.end_batch(now);
    }

    /// A packet that came otherwise than in a frame of its own.
    pub(crate) fn on_whole(
        &mut self,
        now: Instant,
        origin: Origin,
        packet: &Chunk,
        checksum: ReceivedChecksum,
        fragmented: bool,
    ) -> Result<(), DropReason> {
        let mut batch = ReceiveBatch::new();
        let block = batch.add_block(packet.block().clone());
        let (offset, len) = (packet.offset() as u32, packet.len() as u32);
        if !batch.push_frame(Frame { block, offset, len, checksum, segmented: None }) {
            return Err(DropReason::Truncated);
        }
        match ip::parse(packet.bytes()) {
            Ok(mut info) => {
                info.fragmented = fragmented;
                self.on_packet(now, origin, &batch, 0, 0, &info)
            }
            // Fragments of fragments: RFC 8200, 4.5 has one fragment header in a packet.
            Err(DropReason::Fragment) => Err(DropReason::MalformedIp),
            Err(reason) => {
                self.on_unreadable(now, origin, &batch, 0, 0);
                Err(reason)
            }
        }
    }

    /// Gives a packet that was put together here to the shard that has its socket; says whether it
    /// is another one.
    pub(crate) fn leaves_as_stray(&mut self, origin: Origin, packet: &Chunk) -> bool {
        let Some(home) = self.sharing.home_elsewhere(packet.bytes()) else { return false };
        let Origin { interface, station, link_multicast } = origin;
        self.add_stray(Stray {
            home,
            interface,
            station,
            link_multicast,
            fragmented: true,
            checksum: ReceivedChecksum::Unverified,
            packet: packet.clone(),
        });
        true
    }

    /// Takes the datagrams for sockets of other shards out of what this shard sent to itself.
    /// Connections stay: both of their ends are here.
    pub(crate) fn sort_out_loopback(&mut self, interface: InterfaceId, frames: &mut ReceiveBatch) {
        if !self.sharing.has_others() {
            return;
        }
        let mut kept = ReceiveBatch::new();
        for index in 0..frames.len() {
            let Some(frame) = frames.frame(index) else { continue };
            let Some(packet) = frames.chunk(index, 0..frame.len as usize) else { continue };
            let is_udp = ip::parse(packet.bytes()).is_ok_and(|it| it.protocol == protocol::UDP);
            match self.sharing.home_elsewhere(packet.bytes()).filter(|_| is_udp) {
                Some(home) => self.add_stray(Stray {
                    home,
                    interface,
                    station: None,
                    link_multicast: false,
                    fragmented: false,
                    checksum: frame.checksum,
                    packet,
                }),
                None => {
                    let block = kept.add_block(packet.block().clone());
                    let fits = kept.push_frame(Frame { block, ..frame });
                    debug_assert!(fits, "it lay in this block before");
                }
            }
        }
        *frames = kept;
    }

    fn add_stray(&mut self, stray: Stray) {
        if self.sharing.strays.len() >= STRAYS_MAX {
            return self.drops.add(DropReason::StrayQueueFull);
        }
        self.sharing.strays.push_back(stray);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct ByPort;

    impl Homes for ByPort {
        fn of_flow(&self, local: SocketAddr, remote: SocketAddr) -> Option<usize> {
            Some(usize::from(local.port() ^ remote.port()) % 2)
        }

        fn of_port(&self, port: u16) -> usize {
            usize::from(port) % 2
        }
    }

    #[test]
    fn a_packet_is_elsewhere_where_another_shard_has_its_socket() {
        let share = Share { index: 0, count: 2, homes: Arc::new(ByPort) };
        let sharing = Sharing { share: Some(share), strays: VecDeque::new() };
        let mut packet = [0; 28];
        packet[0] = 0x45;
        packet[3] = 28;
        (packet[8], packet[9]) = (64, protocol::UDP);
        (packet[12], packet[16]) = (10, 10);
        packet[25] = 8;
        for (port, elsewhere) in [(6, None), (7, Some(1))] {
            packet[23] = port;
            (packet[10], packet[11]) = (0, 0);
            let sum = !checksum::sum(&packet[..20]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(sharing.home_elsewhere(&packet), elsewhere, "{port}");
        }
        for len in 0..28 {
            assert_eq!(sharing.home_elsewhere(&packet[..len]), None, "cut off at {len}");
        }
        assert!(sharing.is_home_of_port(2) && !sharing.is_home_of_port(3));
        assert!(Sharing::default().is_home_of_port(3), "an only shard has all");
    }
}
