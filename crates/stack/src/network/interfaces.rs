//! All interfaces of a shard, and how they are named.
//!
//! ```text
//!   list:   | loopback | the first with a device | the second | ...
//!   place:    none       0                         1
//!   id:       u32::MAX   0                         1            and 1,024 more each time that the place is given again
//! ```
//!
//! The place is the index by which applications count interfaces, and for those that a host begins with it is the
//! id, so a look-up is an addition and a comparison. The shard's own interface is there from the start. One that was
//! removed keeps its place, so that those of others stay, until the next one that is added takes it. That one has
//! another id: what still has the old one, a socket, a packet under way, another shard's news, means an interface
//! that was removed, and never the one that came after it.

use crate::error::{BadArgument, SocketError};
use crate::network::interface::{Interface, InterfaceConfig};
use core::fmt;
use core::ops::{Index, IndexMut};
use device::{Capabilities, Medium};
use std::sync::Arc;

/// The interfaces with a device that a host can have at once.
pub const INTERFACES_MAX: usize = PLACE_MASK as usize;

/// The bits of an id that say the place; the others say how often that was given again.
const PLACE_BITS: u32 = 10;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;

/// Names an interface of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceId(u32);

impl InterfaceId {
    /// The interface for packets to own addresses: it carries them itself, nobody drives it. Its
    /// `ip_multidata_outbound` and its status are those of any other.
    pub const LOOPBACK: Self = Self(u32::MAX);

    /// Its place among the interfaces that have a device, in the order in which they were added, from
    /// zero; `None` for [`InterfaceId::LOOPBACK`]. The place of one that was removed is given to the next one that is
    /// added, whose id is another all the same.
    #[must_use]
    pub fn index(self) -> Option<usize> {
        (self != Self::LOOPBACK).then_some((self.0 & PLACE_MASK) as usize)
    }

    /// What link-local addresses of its link have as their scope (`SocketAddrV6::scope_id`): one more than
    /// [`InterfaceId::index`], as zero says nothing, and another number, which no interface had before, where the place
    /// was that of one that was removed; zero for [`InterfaceId::LOOPBACK`].
    #[must_use]
    #[inline]
    pub fn scope_id(self) -> u32 {
        self.0.wrapping_add(1)
    }

    /// The interface whose scope this is.
    pub(crate) fn scoped(scope_id: u32) -> Self {
        Self(scope_id.wrapping_sub(1))
    }

    /// The number that routes, batches and fragments know it by.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The interface with this number.
    pub(crate) fn numbered(number: u32) -> Self {
        Self(number)
    }

    #[inline]
    fn slot(self) -> usize {
        (self.0.wrapping_add(1) & PLACE_MASK) as usize
    }

    /// The id of who has the place next.
    fn successor(self) -> Self {
        Self(self.0.wrapping_add(1 << PLACE_BITS))
    }
}

impl fmt::Display for InterfaceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index() {
            Some(index) => write!(formatter, "interface {index}"),
            None => formatter.write_str("the loopback interface"),
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Interfaces {
    list: Vec<Interface>,
    /// Of those that have a device.
    ids: Arc<[InterfaceId]>,
    /// What ids name whose place another interface has taken: one that was removed.
    gone: Interface,
}

impl Interfaces {
    pub(crate) fn new(loopback: Interface) -> Self {
        let capabilities = Capabilities::plain(Medium::Ip, 0);
        let (addresses, gateways) = (Vec::new(), Vec::new());
        let config = InterfaceConfig { capabilities, mode: None, addresses, gateways };
        let gone = Interface::new(config, InterfaceId::LOOPBACK, 0);
        let gone = Interface { is_removed: true, ..gone };
        Self { list: vec![loopback], ids: Arc::default(), gone }
    }

    /// The id that the next one will have: in the first place that is free, or behind all others.
    ///
    /// # Errors
    /// [`BadArgument::TooManyInterfaces`] where there are [`INTERFACES_MAX`].
    pub(crate) fn next_id(&self) -> Result<InterfaceId, SocketError> {
        let free = self.ids.iter().find(|id| self.list[id.slot()].is_removed);
        match free {
            Some(id) => Ok(id.successor()),
            None if self.ids.len() < INTERFACES_MAX => Ok(InterfaceId(self.ids.len() as u32)),
            None => Err(BadArgument::TooManyInterfaces.into()),
        }
    }

    /// Puts an interface where its id says, which is that of [`Interfaces::next_id`].
    pub(crate) fn put(&mut self, interface: Interface) {
        match self.list.get_mut(interface.id.slot()) {
            Some(place) => *place = interface,
            None => self.list.push(interface),
        }
        self.ids = self.list[1..].iter().map(|interface| interface.id).collect();
    }

    #[inline]
    pub(crate) fn get(&self, id: InterfaceId) -> Option<&Interface> {
        let interface = self.list.get(id.slot())?;
        Some(if interface.id == id { interface } else { &self.gone })
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: InterfaceId) -> Option<&mut Interface> {
        let interface = self.list.get_mut(id.slot())?;
        Some(if interface.id == id { interface } else { &mut self.gone })
    }

    /// The interface that applications mean by `id`: it has a device, and was not removed.
    ///
    /// # Errors
    /// [`SocketError::NoSuchInterface`].
    pub(crate) fn with_device(&mut self, id: InterfaceId) -> Result<&mut Interface, SocketError> {
        let interface = self.get_mut(id).filter(|it| !it.is_loopback && !it.is_removed);
        interface.ok_or(SocketError::NoSuchInterface)
    }

    /// Those that have a device by their places, then the shard's own.
    pub(crate) fn ids(&self) -> impl Iterator<Item = InterfaceId> + use<> {
        let ids = Arc::clone(&self.ids);
        (0..ids.len()).map(move |place| ids[place]).chain([InterfaceId::LOOPBACK])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Interface> {
        self.list.iter()
    }

    /// With what stands for those that were removed: what is left there is cleared as elsewhere.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Interface> {
        self.list.iter_mut().chain([&mut self.gone])
    }
}

impl Index<InterfaceId> for Interfaces {
    type Output = Interface;

    #[inline]
    fn index(&self, id: InterfaceId) -> &Interface {
        let interface = &self.list[id.slot()];
        if interface.id == id { interface } else { &self.gone }
    }
}

impl IndexMut<InterfaceId> for Interfaces {
    #[inline]
    fn index_mut(&mut self, id: InterfaceId) -> &mut Interface {
        let interface = &mut self.list[id.slot()];
        if interface.id == id { interface } else { &mut self.gone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(id: InterfaceId) -> Interface {
        let capabilities = Capabilities::plain(Medium::Ip, 1_500);
        let (addresses, gateways) = (Vec::new(), Vec::new());
        let config = InterfaceConfig { capabilities, mode: None, addresses, gateways };
        Interface::new(config, id, 0)
    }

    #[test]
    fn a_place_is_taken_again_and_an_id_never() {
        let mut interfaces = Interfaces::new(interface(InterfaceId::LOOPBACK));
        let add = |interfaces: &mut Interfaces| {
            let id = interfaces.next_id().expect("a place");
            interfaces.put(interface(id));
            id
        };
        let [first, second] = [add(&mut interfaces), add(&mut interfaces)];
        assert_eq!((first.index(), second.index(), second.scope_id()), (Some(0), Some(1), 2));
        let mut past = Vec::new();
        for _ in 0..5 {
            let id = add(&mut interfaces);
            assert_eq!(id.index(), Some(2));
            assert!(!past.contains(&id) && !interfaces[id].is_removed);
            assert!(past.iter().all(|old| interfaces[*old].is_removed));
            assert!(interfaces.with_device(id).is_ok());
            interfaces[id].is_removed = true;
            past.push(id);
        }
        interfaces[first].is_removed = true;
        assert_eq!(add(&mut interfaces).index(), Some(0), "the first that is free");
        assert!(interfaces[InterfaceId::LOOPBACK].id == InterfaceId::LOOPBACK);
        let ids: Vec<_> = interfaces.ids().map(InterfaceId::index).collect();
        assert_eq!(ids, [Some(0), Some(1), Some(2), None]);
        // However often, it is neither the own interface's nor another place's.
        let last = InterfaceId(u32::MAX - 1);
        assert_eq!(last.index(), Some(INTERFACES_MAX - 1));
        assert_eq!(last.successor().index(), Some(INTERFACES_MAX - 1));
        assert!(InterfaceId::LOOPBACK.slot() == 0 && last.slot() == INTERFACES_MAX);
    }
}
