//! The sockets of a shard: where they are kept and how a packet finds its own.
//!
//! Sockets lie in a slab; a [`SocketId`] is an index with a generation, so that an id that outlived
//! its socket names nothing. Three tables lead from addresses to indices: connections by their
//! four-tuple, listeners and UDP sockets by local port. The tables' hash is keyed, so that nobody
//! outside can choose addresses that collide.

use crate::error::SocketError;
use crate::event::Readiness;
use crate::tcp_socket::{Listener, TcpSocket};
use crate::udp_socket::UdpSocket;
use core::hash::{BuildHasher, Hasher};
use core::net::{IpAddr, SocketAddr};
use siphasher::sip::SipHasher13;
use std::collections::HashMap;

/// Names a socket of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId {
    index: u32,
    generation: u32,
}

impl SocketId {
    /// A number below the largest count of sockets that were open at once: an index for tables
    /// kept beside the shard.
    #[must_use]
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// A connection's four-tuple, seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// What a slot holds.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(Box<TcpSocket>),
    Listener(Box<Listener>),
    Udp(Box<UdpSocket>),
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    socket: Option<Socket>,
}

/// Hash keys, taken from the shard's secret.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys(pub(crate) u64, pub(crate) u64);

impl BuildHasher for Keys {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

/// Which protocol a port belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

/// All sockets of a shard.
#[derive(Debug)]
pub(crate) struct Sockets {
    slots: Vec<Slot>,
    free: Vec<u32>,
    sockets_max: usize,
    flows: HashMap<Flow, u32, Keys>,
    /// Listeners and UDP sockets by protocol, address (`None` for any) and port.
    ports: HashMap<(Protocol, Option<IpAddr>, u16), u32, Keys>,
    keys: Keys,
    ports_picked: u64,
}

/// RFC 6056, section 3.2: the dynamic ports, which is what IANA sets aside for them.
const EPHEMERAL_PORTS: core::ops::RangeInclusive<u16> = 49_152..=65_535;

impl Sockets {
    pub(crate) fn new(keys: Keys, sockets_max: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            sockets_max,
            flows: HashMap::with_hasher(keys),
            ports: HashMap::with_hasher(keys),
            keys,
            ports_picked: 0,
        }
    }

    /// Stores a socket.
    pub(crate) fn insert(&mut self, socket: Socket) -> Result<SocketId, SocketError> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.sockets_max => {
                self.slots.push(Slot { generation: 0, socket: None });
                self.slots.len() as u32 - 1
            }
            None => return Err(SocketError::TooManySockets),
        };
        let slot = &mut self.slots[index as usize];
        slot.socket = Some(socket);
        Ok(SocketId { index, generation: slot.generation })
    }

    /// Takes a socket out; its id names nothing from now on.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Socket> {
        let slot = self.slots.get_mut(index as usize)?;
        let socket = slot.socket.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(socket)
    }

    /// Whether another socket can be stored.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < self.sockets_max
    }

    /// The id of the socket in slot `index`.
    pub(crate) fn id(&self, index: u32) -> Option<SocketId> {
        let slot = self.slots.get(index as usize)?;
        slot.socket.as_ref().map(|_| SocketId { index, generation: slot.generation })
    }

    /// The slot of a socket that is still open.
    pub(crate) fn index(&self, id: SocketId) -> Result<u32, SocketError> {
        match self.slots.get(id.index as usize) {
            Some(slot) if slot.generation == id.generation && slot.socket.is_some() => Ok(id.index),
            _ => Err(SocketError::InvalidSocket),
        }
    }

    pub(crate) fn tcp(&mut self, index: u32) -> Option<&mut TcpSocket> {
        match self.slots.get_mut(index as usize)?.socket.as_mut()? {
            Socket::Tcp(socket) => Some(socket),
            _ => None,
        }
    }

    pub(crate) fn listener(&mut self, index: u32) -> Option<&mut Listener> {
        match self.slots.get_mut(index as usize)?.socket.as_mut()? {
            Socket::Listener(socket) => Some(socket),
            _ => None,
        }
    }

    pub(crate) fn udp(&mut self, index: u32) -> Option<&mut UdpSocket> {
        match self.slots.get_mut(index as usize)?.socket.as_mut()? {
            Socket::Udp(socket) => Some(socket),
            _ => None,
        }
    }

    /// What was reported possible on the socket and not taken yet.
    pub(crate) fn pending(&mut self, index: u32) -> Option<&mut Readiness> {
        Some(match self.slots.get_mut(index as usize)?.socket.as_mut()? {
            Socket::Tcp(socket) => &mut socket.pending,
            Socket::Listener(socket) => &mut socket.pending,
            Socket::Udp(socket) => &mut socket.pending,
        })
    }

    /// Every socket with its index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Socket)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| Some((index as u32, slot.socket.as_ref()?)))
    }

    /// The connection of this four-tuple.
    pub(crate) fn by_flow(&self, flow: &Flow) -> Option<u32> {
        self.flows.get(flow).copied()
    }

    /// Enters a connection's four-tuple; `false` where it is taken.
    pub(crate) fn add_flow(&mut self, flow: Flow, index: u32) -> bool {
        if self.flows.contains_key(&flow) {
            return false;
        }
        self.flows.insert(flow, index);
        true
    }

    /// Takes a four-tuple out, where it still is this connection's.
    pub(crate) fn remove_flow(&mut self, flow: &Flow, index: u32) {
        if self.by_flow(flow) == Some(index) {
            self.flows.remove(flow);
        }
    }

    /// The listener or UDP socket at this address and port, or else at any address and this port.
    pub(crate) fn by_port(&self, protocol: Protocol, local: SocketAddr) -> Option<u32> {
        let exact = self.ports.get(&(protocol, Some(local.ip()), local.port()));
        exact.or_else(|| self.ports.get(&(protocol, None, local.port()))).copied()
    }

    /// Enters a local address and port; an unspecified address stands for all of them.
    pub(crate) fn add_port(
        &mut self,
        protocol: Protocol,
        local: SocketAddr,
        index: u32,
    ) -> Result<(), SocketError> {
        if !self.is_port_free(protocol, local) {
            return Err(SocketError::AddressInUse);
        }
        self.ports.insert(port_key(protocol, local), index);
        Ok(())
    }

    pub(crate) fn remove_port(&mut self, protocol: Protocol, local: SocketAddr) {
        self.ports.remove(&port_key(protocol, local));
    }

    /// Whether no listener or UDP socket has this address and port, nor any address and this port.
    pub(crate) fn is_port_free(&self, protocol: Protocol, local: SocketAddr) -> bool {
        let any = (protocol, None, local.port());
        if self.ports.contains_key(&port_key(protocol, local)) || self.ports.contains_key(&any) {
            return false;
        }
        !local.ip().is_unspecified()
            || !self.ports.keys().any(|key| key.0 == protocol && key.2 == local.port())
    }

    /// Picks a port for which `is_free` holds, starting at an unpredictable place and going on from
    /// there (RFC 6056, 3.3.1: simple port randomization).
    pub(crate) fn pick_port(
        &mut self,
        is_free: impl Fn(&Self, u16) -> bool,
    ) -> Result<u16, SocketError> {
        self.ports_picked += 1;
        let mut hasher = self.keys.build_hasher();
        hasher.write_u64(self.ports_picked);
        let count = u32::from(EPHEMERAL_PORTS.end() - EPHEMERAL_PORTS.start()) + 1;
        let start = (hasher.finish() % u64::from(count)) as u32;
        (0..count)
            .map(|step| EPHEMERAL_PORTS.start() + ((start + step) % count) as u16)
            .find(|port| is_free(self, *port))
            .ok_or(SocketError::NoPortLeft)
    }
}

fn port_key(protocol: Protocol, local: SocketAddr) -> (Protocol, Option<IpAddr>, u16) {
    let address = (!local.ip().is_unspecified()).then_some(local.ip());
    (protocol, address, local.port())
}
