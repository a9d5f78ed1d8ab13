//! The sockets of a shard: where they are kept and how a packet finds its own.
//!
//! Sockets lie in a slab; a [`SocketId`] is an index with a generation, so that an id that outlived
//! its socket names nothing. Two tables lead from addresses to indices: connections by their
//! four-tuple, listeners and UDP sockets by local port (`ports.rs`). The tables' hash is keyed, so that nobody
//! outside can choose addresses that collide.
//!
//! * `ports.rs` knows who is bound where, `taken_ports.rs` which ports a flow may be opened from.
//! * `pressure.rs` copies out of the devices' blocks what sockets hold when the pool runs low.
//! * `marks.rs` is what the packets of a socket say to routers.
//! * `slots.rs` gives the memory of slots back.

pub(crate) mod marks;
pub(crate) mod ports;
pub(crate) mod pressure;
pub(crate) mod slots;
pub(crate) mod taken_ports;

use crate::connections::backlog::Listener;
use crate::connections::tcp_socket::TcpSocket;
use crate::datagrams::raw_socket::{RawSocket, RawTable};
use crate::datagrams::udp_socket::UdpSocket;
use crate::error::SocketError;
use crate::event::{Events, Readiness, SocketEvent};
use crate::forwarding::Forwarder;
use crate::sockets::ports::Ports;
use crate::sockets::taken_ports::{Purpose, Standing, note};
use core::hash::{BuildHasher, Hash, Hasher};
use core::net::{IpAddr, SocketAddr};
use siphasher::sip::SipHasher13;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

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

/// A four-tuple as the table keeps it: two thirds of the size, of which there is one for each
/// connection and a third as many again unused. Without the scope of an IPv6 address, which no
/// packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowKey {
    local: IpAddr,
    remote: IpAddr,
    local_port: u16,
    remote_port: u16,
}

/// By whole words: derived, it writes a discriminant, a length and the bytes for each address, and SipHash
/// puts short writes together with care.
impl Hash for FlowKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let ports = u64::from(self.local_port) << 16 | u64::from(self.remote_port);
        if let (IpAddr::V4(local), IpAddr::V4(remote)) = (self.local, self.remote) {
            state.write_u64(u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits()));
        } else {
            for address in [self.local, self.remote] {
                let bits = match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
                    IpAddr::V6(address) => address.to_bits(),
                };
                state.write_u64((bits >> 64) as u64);
                state.write_u64(bits as u64);
            }
        }
        state.write_u64(ports);
    }
}

impl From<&Flow> for FlowKey {
    #[inline]
    fn from(flow: &Flow) -> Self {
        Self {
            local: flow.local.ip(),
            remote: flow.remote.ip(),
            local_port: flow.local.port(),
            remote_port: flow.remote.port(),
        }
    }
}

impl FlowKey {
    pub(crate) fn flow(&self) -> Flow {
        Flow {
            local: SocketAddr::new(self.local, self.local_port),
            remote: SocketAddr::new(self.remote, self.remote_port),
        }
    }
}

/// What a slot holds.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(Box<TcpSocket>),
    Listener(Box<Listener>),
    Forwarder(Box<Forwarder>),
    Udp(Box<UdpSocket>),
    Raw(Box<RawSocket>),
}

impl Socket {
    /// What was reported possible and not taken yet.
    fn pending(&mut self) -> &mut Readiness {
        match self {
            Self::Tcp(socket) => &mut socket.pending,
            Self::Listener(socket) => &mut socket.pending,
            Self::Forwarder(socket) => &mut socket.pending,
            Self::Udp(socket) => &mut socket.pending,
            Self::Raw(socket) => &mut socket.pending,
        }
    }
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    /// It is listed among those that hold the devices' blocks (`pressure.rs`), whatever socket it had then.
    is_holding: bool,
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

/// All sockets of a shard.
#[derive(Debug)]
pub(crate) struct Sockets {
    slots: Vec<Slot>,
    free: Vec<u32>,
    sockets_max: usize,
    /// The generation of the next socket. One count for all slots, so that slots can be given back.
    generation: u32,
    flows: HashMap<FlowKey, u32, Keys>,
    /// Where listeners and UDP sockets are bound, and which echo identifiers are taken.
    pub(crate) ports: Ports,
    /// Who has an IP protocol.
    pub(crate) raws: RawTable,
    /// What became possible on which.
    events: Events,
    /// The flow of the last segment and its connection.
    pub(crate) flow_cache: Option<(Flow, u32)>,
}

impl Sockets {
    pub(crate) fn new(keys: Keys, sockets_max: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            sockets_max,
            generation: 0,
            flows: HashMap::with_hasher(keys),
            ports: Ports::new(keys),
            raws: RawTable::default(),
            events: Events::default(),
            flow_cache: None,
        }
    }

    /// Stores a socket.
    pub(crate) fn insert(&mut self, socket: Socket) -> Result<SocketId, SocketError> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.sockets_max => {
                self.slots.push(Slot { generation: 0, is_holding: false, socket: None });
                self.slots.len() as u32 - 1
            }
            None => return Err(SocketError::TooManySockets),
        };
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let slot = &mut self.slots[index as usize];
        (slot.generation, slot.socket) = (generation, Some(socket));
        Ok(SocketId { index, generation })
    }

    /// Takes a socket out; its id names nothing from now on.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Socket> {
        let slot = self.slots.get_mut(index as usize)?;
        let socket = slot.socket.take()?;
        self.free.push(index);
        Some(socket)
    }

    /// How many connections have a four-tuple.
    pub(crate) fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// How many sockets there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// How many slots there are, used or not.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Gives memory back after many sockets were closed: the empty slots at the end, and what the
    /// tables hold in reserve. Says how many slots are left, where there are fewer now.
    pub(crate) fn shrink(&mut self) -> Option<usize> {
        let used = slots::shrink(&mut self.slots, &mut self.free, |slot| slot.socket.is_some())?;
        self.flows.shrink_to(slots::KEPT_MIN);
        self.events.shrink();
        Some(used)
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

    /// Notes whether a slot is listed among those that hold the devices' blocks, and says whether it was.
    #[inline]
    pub(crate) fn set_holding(&mut self, index: u32, is_holding: bool) -> bool {
        let slot = self.slots.get_mut(index as usize);
        // What is no slot need not be listed.
        slot.is_none_or(|slot| core::mem::replace(&mut slot.is_holding, is_holding))
    }

    /// The socket in slot `index`.
    pub(crate) fn socket_mut(&mut self, index: u32) -> Option<&mut Socket> {
        self.slots.get_mut(index as usize)?.socket.as_mut()
    }

    pub(crate) fn tcp(&mut self, index: u32) -> Option<&mut TcpSocket> {
        match self.slots.get_mut(index as usize)?.socket.as_mut()? {
            Socket::Tcp(socket) => Some(socket),
            _ => None,
        }
    }

    pub(crate) fn tcp_ref(&self, index: u32) -> Option<&TcpSocket> {
        match self.slots.get(index as usize)?.socket.as_ref()? {
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

    pub(crate) fn forwarder(&mut self, index: u32) -> Option<&mut Forwarder> {
        match self.slots.get_mut(index as usize)?.socket.as_mut()? {
            Socket::Forwarder(socket) => Some(socket),
            _ => None,
        }
    }

    pub(crate) fn udp(&mut self, index: u32) -> Option<&mut UdpSocket> {
        match self.slots.get_mut(index as usize)?.socket.as_mut()? {
            Socket::Udp(socket) => Some(socket),
            _ => None,
        }
    }

    pub(crate) fn raw(&mut self, index: u32) -> Option<&mut RawSocket> {
        match self.slots.get_mut(index as usize)?.socket.as_mut()? {
            Socket::Raw(socket) => Some(socket),
            _ => None,
        }
    }

    /// The sockets in the next `places_max` slots from `slot` on.
    pub(crate) fn page(&self, slot: usize, places_max: usize) -> impl Iterator<Item = &Socket> {
        let slots = self.slots.get(slot..).unwrap_or_default();
        slots.iter().take(places_max).filter_map(|slot| slot.socket.as_ref())
    }

    /// Every socket with its index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Socket)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| Some((index as u32, slot.socket.as_ref()?)))
    }

    /// A number that tells flows apart, and that nobody outside can choose.
    pub(crate) fn flow_number(&self, local: SocketAddr, remote: SocketAddr) -> u32 {
        self.flows.hasher().hash_one(FlowKey::from(&Flow { local, remote })) as u32
    }

    /// The connection of this four-tuple.
    pub(crate) fn by_flow(&self, flow: &Flow) -> Option<u32> {
        self.flows.get(&FlowKey::from(flow)).copied()
    }

    /// The connection that a caller names; the next two likewise.
    pub(crate) fn tcp_socket(&mut self, id: SocketId) -> Result<&mut TcpSocket, SocketError> {
        let index = self.index(id)?;
        self.tcp(index).ok_or(SocketError::InvalidSocket)
    }

    pub(crate) fn udp_socket(&mut self, id: SocketId) -> Result<&mut UdpSocket, SocketError> {
        let index = self.index(id)?;
        self.udp(index).ok_or(SocketError::InvalidSocket)
    }

    pub(crate) fn raw_socket(&mut self, id: SocketId) -> Result<&mut RawSocket, SocketError> {
        let index = self.index(id)?;
        self.raw(index).ok_or(SocketError::InvalidSocket)
    }

    /// Enters a connection's four-tuple; `false` where it is taken.
    pub(crate) fn add_flow(&mut self, flow: Flow, index: u32) -> bool {
        match self.flows.entry(FlowKey::from(&flow)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(index);
                true
            }
        }
    }

    /// Takes a four-tuple out, where it still is this connection's.
    pub(crate) fn remove_flow(&mut self, flow: &Flow, index: u32) {
        if let Entry::Occupied(found) = self.flows.entry(FlowKey::from(flow))
            && *found.get() == index
        {
            found.remove();
            self.ports.taken.release(flow.local.port());
        }
        self.flow_cache = self.flow_cache.filter(|(_, cached)| *cached != index);
    }

    /// Adds an event for the socket in slot `index`.
    pub(crate) fn notify(&mut self, index: u32, readiness: Readiness) {
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        if let Some(socket) = &mut slot.socket {
            let id = SocketId { index, generation: slot.generation };
            self.events.add(id, socket.pending(), readiness);
        }
    }

    /// The next socket on which something became possible.
    pub(crate) fn next_event(&mut self) -> Option<SocketEvent> {
        while let Some(id) = self.events.next() {
            let Ok(index) = self.index(id) else { continue };
            let Some(socket) = &mut self.slots[index as usize].socket else { continue };
            let readiness = core::mem::take(socket.pending());
            if !readiness.is_empty() {
                return Some(SocketEvent { socket: id, readiness });
            }
        }
        None
    }

    /// Picks a port that is free for `purpose`.
    pub(crate) fn pick_port(
        &mut self,
        purpose: Purpose,
        standing: impl Fn(&Self, u16) -> Standing,
    ) -> Result<u16, SocketError> {
        let destination = purpose.destination();
        let mut known = self.ports.taken.take(purpose);
        let mut found = None;
        for (port, step) in self.ports.candidates(destination).zip(0..) {
            if known.as_ref().is_some_and(|known| known.has(port)) {
                continue;
            }
            match standing(self, port) {
                Standing::Free => {
                    found = Some((port, step));
                    break;
                }
                Standing::Taken => note(&mut known, purpose, step, port),
                Standing::Passing => {}
            }
        }
        if let Some(known) = known {
            self.ports.taken.put(known);
        }
        let (port, steps) = found.ok_or(SocketError::NoPortLeft)?;
        self.ports.on_skipped(destination, steps);
        Ok(port)
    }
}
