//! Which home a frame goes to.
//!
//! A *home* is a squeue, by number. A [`Spread`] is a pure function of layout, policy and number of
//! homes, the same for every ring and every thread, so that all frames of a connection meet at one
//! home for life, and so that one can ask beforehand where the replies to a new connection will come
//! ([`Spread::home_of_reply`]), and choose a port by it.

use crate::classify::{Class, Flow, Transport};
use crate::layout::Layout;
use crate::toeplitz;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

/// A squeue, by number from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Home(pub u16);

impl Home {
    /// Where everything goes that belongs nowhere else.
    pub const FIRST: Self = Self(0);

    /// As an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// By what TCP connections are spread. Datagrams go by their destination port in any case, so that
/// all of a socket's come to one home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// By the hash over both addresses and both ports.
    #[default]
    Flow,
    /// By the hash over the peer's address: all connections of a peer have one home.
    Source,
    /// TCP, UDP and everything else have a home each, as far as there are so many: with two homes
    /// UDP is with everything else.
    Protocol,
}

impl Policy {
    /// Every policy and its name.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Flow, "flow"), (Self::Source, "source"), (Self::Protocol, "protocol")];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.into_iter().find(|(policy, _)| policy == self);
        f.write_str(name.map_or("", |(_, name)| name))
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let policy = Self::ALL.into_iter().find(|(_, name)| *name == text);
        policy
            .map(|(policy, _)| policy)
            .ok_or_else(|| UnknownPolicy(text.chars().take(40).collect()))
    }
}

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connections are spread by flow, source or protocol, not by {:?}", self.0)
    }
}

impl core::error::Error for UnknownPolicy {}

/// More homes than the layout can feed, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSpread {
    layout: Layout,
    homes: u16,
}

impl fmt::Display for BadSpread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layout, homes } = self;
        write!(f, "{layout} feeds 1 to {} squeues, not {homes}", layout.homes_max())
    }
}

impl core::error::Error for BadSpread {}

/// Whom a frame concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The home that has this slot, see `Spread::home_of_slot`.
    Slot(u16),
    /// The home of the ring it came on, because the device has spread the flows; and where that does not have
    /// the connection, [`Spread::home_of_reply`].
    Ring,
    /// Every home.
    All,
}

/// Where frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    layout: Layout,
    policy: Policy,
    homes: u16,
}

impl Spread {
    /// Everything goes to one home.
    pub const SINGLE: Self = Self { layout: Layout::SINGLE, policy: Policy::Flow, homes: 1 };

    /// A spread of `layout` over `homes`: what the layout can feed, or fewer, which then share.
    ///
    /// # Errors
    /// [`BadSpread`] where there is no home, or more than [`Layout::homes_max`].
    pub fn new(layout: Layout, policy: Policy, homes: u16) -> Result<Self, BadSpread> {
        if homes == 0 || homes > layout.homes_max() {
            return Err(BadSpread { layout, homes });
        }
        Ok(Self { layout, policy, homes })
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// How many homes there are, at least 1.
    #[must_use]
    pub fn homes(&self) -> u16 {
        self.homes
    }

    /// The home that polls ring `ring` of the device.
    #[must_use]
    pub(crate) fn home_of_ring(&self, ring: u16) -> Home {
        Home(ring % self.homes)
    }

    /// Slots are soft rings under fan-out and rings otherwise; where there are more of them than
    /// homes, homes have several.
    #[must_use]
    pub(crate) fn home_of_slot(&self, slot: u16) -> Home {
        Home(slot % self.homes)
    }

    /// The home of the connection between `local` and `remote`: the frames that `remote` sends come to it, by
    /// whichever ring.
    #[must_use]
    pub fn home_of_reply(&self, local: SocketAddr, remote: SocketAddr) -> Home {
        let flow = Flow { remote, local };
        self.home_of_slot(self.tcp(&flow, || flow.hash()))
    }

    /// The home at which a connection from `local`, as far as that is given, to `remote` is to be opened,
    /// so that its replies come there; `None` where it may be any, because the port is still to be chosen.
    /// `source` is asked for the address that packets to `remote` leave with only where it matters.
    ///
    /// # Errors
    /// What `source` says.
    pub fn home_to_connect<E>(
        &self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        source: impl FnOnce() -> Result<IpAddr, E>,
    ) -> Result<Option<Home>, E> {
        let port = local.map_or(0, |local| local.port());
        if port == 0 && self.policy == Policy::Flow {
            return Ok(None);
        }
        let address = match local.map(|local| local.ip()) {
            Some(address) if !address.is_unspecified() => address,
            _ => source()?,
        };
        Ok(Some(self.home_of_reply(SocketAddr::new(address, port), remote)))
    }

    /// The home to which datagrams for this port come: that of the socket bound to it.
    #[must_use]
    pub fn home_of_datagrams(&self, port: u16) -> Home {
        self.home_of_slot(self.udp(port))
    }

    /// Whom a frame of this class concerns; `hash` is asked for [`Flow::hash`] only where it is
    /// needed.
    #[inline]
    pub fn target(&self, class: &Class, hash: impl FnOnce() -> u32) -> Target {
        match class {
            Class::Tcp(_) if self.layout.is_spread_by_device() => Target::Ring,
            Class::Tcp(flow) | Class::IcmpError(Transport::Tcp, flow) => {
                Target::Slot(self.tcp(flow, hash))
            }
            Class::Udp(flow) | Class::IcmpError(Transport::Udp, flow) => {
                Target::Slot(self.udp(flow.local.port()))
            }
            Class::Everyone => Target::All,
            Class::Fragment { .. } | Class::Other => Target::Slot(0),
        }
    }

    fn tcp(&self, flow: &Flow, hash: impl FnOnce() -> u32) -> u16 {
        let slots = self.slots();
        match self.policy {
            _ if slots == 1 => 0,
            Policy::Flow => scaled(hash(), slots),
            Policy::Source => scaled(toeplitz::hash_source(flow.remote.ip()), slots),
            Policy::Protocol => 1 % slots,
        }
    }

    fn udp(&self, port: u16) -> u16 {
        let slots = self.slots();
        match self.policy {
            _ if slots == 1 => 0,
            Policy::Protocol => 2 % slots,
            Policy::Flow | Policy::Source => scaled(toeplitz::hash_port(port), slots),
        }
    }

    fn slots(&self) -> u16 {
        self.layout.homes_max()
    }
}

/// What [`scaled`] multiplies by.
pub(crate) const SCATTER: u32 = 0x9e37_79b1;

/// A hash as one of `count`, at least 1. The hash is linear: consecutive ports differ in few of its
/// bits, and perhaps in none of the highest; a multiplication carries every bit there.
pub(crate) fn scaled(hash: u32, count: u16) -> u16 {
    let mixed = hash.wrapping_mul(SCATTER);
    // Less than `count`, as a high word of a product with it.
    ((u64::from(mixed) * u64::from(count)) >> 32) as u16
}

#[cfg(test)]
mod tests;
