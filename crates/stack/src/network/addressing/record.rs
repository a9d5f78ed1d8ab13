//! What is kept of one address.

use ip::Cidr;
use link::Claim;

/// Where an address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressOrigin {
    /// The program gave it.
    Fixed,
    /// Leased from a DHCP server.
    Dhcp,
    /// Formed by this host for the link alone (RFC 4862, 5.3).
    LinkLocal,
    /// Formed from a prefix that a router told of (RFC 4862, 5.5).
    Router,
}

/// What an address can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// Nothing: neighbours are being asked whether it is taken.
    Tentative,
    /// Everything but telling neighbours to replace what they know (RFC 4429); they are being asked
    /// whether it is taken.
    Optimistic,
    /// Everything.
    Preferred,
    /// What uses it already; new connections prefer others (RFC 4862, 5.5.4).
    Deprecated,
}

/// An address of an interface, as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressStatus {
    /// The address and the length of its network's prefix.
    pub cidr: Cidr,
    /// Where it comes from.
    pub origin: AddressOrigin,
    /// What it can be used for.
    pub state: AddressState,
}

/// What is kept of one address.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) cidr: Cidr,
    pub(crate) origin: AddressOrigin,
    pub(crate) claim: Claim,
    /// Used while it is asked about.
    pub(crate) is_optimistic: bool,
    /// Not to be taken for what is new.
    pub(crate) is_deprecated: bool,
    /// Announcements replace what neighbours know: the hardware address has changed.
    pub(crate) replaces: bool,
}

impl Record {
    pub(crate) fn new(
        cidr: Cidr,
        origin: AddressOrigin,
        claim: Claim,
        is_optimistic: bool,
    ) -> Self {
        Self { cidr, origin, claim, is_optimistic, is_deprecated: false, replaces: false }
    }

    pub(crate) fn state(&self) -> AddressState {
        match (self.claim.is_probing(), self.is_optimistic) {
            (true, false) => AddressState::Tentative,
            (true, true) => AddressState::Optimistic,
            (false, _) if self.is_deprecated => AddressState::Deprecated,
            (false, _) => AddressState::Preferred,
        }
    }

    pub(crate) fn status(&self) -> AddressStatus {
        AddressStatus { cidr: self.cidr, origin: self.origin, state: self.state() }
    }
}
