//! All interfaces of a shard, and how they are named.
//!
//! ```text
//!   list:  | loopback | the first with a device | the second | ...
//!   id:      u32::MAX   0                         1
//!   index:   none       0                         1
//! ```
//!
//! So an id and the index by which applications count interfaces are one number, and a look-up is an addition.
//! The shard's own interface is there from the start. One that was removed keeps its place, so that the ids of others
//! stay.

use crate::error::SocketError;
use crate::interface::Interface;
use core::fmt;
use core::ops::{Index, IndexMut};

/// Names an interface of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceId(u32);

impl InterfaceId {
    /// The interface for packets to own addresses: it carries them itself, nobody drives it. Its
    /// `ip_multidata_outbound` and its status are those of any other.
    pub const LOOPBACK: Self = Self(u32::MAX);

    /// Its place among the interfaces that have a device, in the order in which they were added, from
    /// zero; `None` for [`InterfaceId::LOOPBACK`].
    #[must_use]
    pub fn index(self) -> Option<usize> {
        (self != Self::LOOPBACK).then_some(self.0 as usize)
    }

    /// What link-local addresses of its link have as their scope (`SocketAddrV6::scope_id`): one more than
    /// [`InterfaceId::index`], as zero says nothing; and zero for [`InterfaceId::LOOPBACK`].
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

    fn slot(self) -> usize {
        self.0.wrapping_add(1) as usize
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
}

impl Interfaces {
    pub(crate) fn new(loopback: Interface) -> Self {
        Self { list: vec![loopback] }
    }

    /// The id that the next one will have.
    pub(crate) fn next_id(&self) -> InterfaceId {
        InterfaceId(self.list.len() as u32 - 1)
    }

    pub(crate) fn push(&mut self, interface: Interface) {
        self.list.push(interface);
    }

    #[inline]
    pub(crate) fn get(&self, id: InterfaceId) -> Option<&Interface> {
        self.list.get(id.slot())
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: InterfaceId) -> Option<&mut Interface> {
        self.list.get_mut(id.slot())
    }

    /// The interface that applications mean by `id`: it has a device, and was not removed.
    ///
    /// # Errors
    /// [`SocketError::NoSuchInterface`].
    pub(crate) fn with_device(&mut self, id: InterfaceId) -> Result<&mut Interface, SocketError> {
        let interface = self.get_mut(id).filter(|it| !it.is_loopback && !it.is_removed);
        interface.ok_or(SocketError::NoSuchInterface)
    }

    /// Those that have a device in the order in which they were added, then the shard's own.
    pub(crate) fn ids(&self) -> impl Iterator<Item = InterfaceId> + use<> {
        (0..self.next_id().0).map(InterfaceId).chain([InterfaceId::LOOPBACK])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Interface> {
        self.list.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Interface> {
        self.list.iter_mut()
    }
}

impl Index<InterfaceId> for Interfaces {
    type Output = Interface;

    #[inline]
    fn index(&self, id: InterfaceId) -> &Interface {
        &self.list[id.slot()]
    }
}

impl IndexMut<InterfaceId> for Interfaces {
    #[inline]
    fn index_mut(&mut self, id: InterfaceId) -> &mut Interface {
        &mut self.list[id.slot()]
    }
}
