//! Hosts that lose addresses and come by others, or by the same again.
//!
//! ```text
//!   lose_address     connections from it fail at once, with the error that says so; peers hear nothing
//!     absence        nobody answers for it
//!   regain_address   the same, or the host's next one: claimed as the host claims its addresses
//!   claim_taken      when all is quiet: one that a neighbour has, which must not be taken
//! ```
//!
//! The checker believes a host to have an address while its shard says so, so an address is not to be
//! used while it is tentative (RFC 5227, 2.1.1; RFC 4862, 5.4) nor when it is gone.

use super::{Event, World};
use crate::application::{Ended, Endpoint};
use core::net::IpAddr;
use stack::{AddressEvent, AddressState, ClaimPolicy, SocketError};
use tcp::State;
use time::Duration;

/// What must hold of connections whose address goes.
const FAILS: &str = "a connection whose local address is gone fails with the error that says so";

impl World {
    /// A host loses the address it has in one family, if it has one.
    pub(super) fn lose_address(
        &mut self,
        host: usize,
        ipv6: bool,
        absence: Duration,
        another: bool,
    ) {
        let address = self.hosts[host].address(ipv6);
        let users = self.users_of(host, address);
        let now = self.now;
        let removed = self.everywhere(host, |shard, id| shard.remove_address(now, id, address));
        if removed.is_err() {
            return;
        }
        self.counters.addresses_lost += 1;
        self.lost_addresses.insert((host, address));
        self.take_address_events(host);
        for pair in &mut self.pairs {
            pair.disturbed |= pair.hosts.contains(&host);
        }
        for index in users {
            let socket = self.endpoints[index].socket;
            let status = self.hosts[host].shard(socket.home).tcp_status(socket.id);
            if !status.is_ok_and(|status| status.error == Some(SocketError::AddressRemoved)) {
                let ends = self.ends[index];
                let what = format!("{status:?}");
                return self.fail_with(FAILS.to_owned(), what, Some(host), Some(ends));
            }
            self.endpoints[index].has_lost_address = true;
            self.counters.connections_without_address += 1;
        }
        self.serve_all(host);
        self.events.add(self.now + absence, Event::Regain { host, ipv6, another });
    }

    /// Endpoints of open connections from this address.
    fn users_of(&mut self, host: usize, address: IpAddr) -> Vec<usize> {
        let is_candidate = |(index, endpoint): &(usize, &Endpoint)| {
            let is_from = self.ends[*index].0.ip() == address;
            is_from && endpoint.host == host && endpoint.ended.is_none()
        };
        let candidates: Vec<_> =
            self.endpoints.iter().enumerate().filter(is_candidate).map(|(i, _)| i).collect();
        let it = &mut self.hosts[host];
        let is_open = |index: &usize| {
            let socket = self.endpoints[*index].socket;
            let status = it.shard(socket.home).tcp_status(socket.id);
            status.is_ok_and(|status| status.error.is_none() && status.state != State::Closed)
        };
        candidates.into_iter().filter(is_open).collect()
    }

    /// The host claims the address it had, or its next one.
    pub(super) fn regain_address(&mut self, host: usize, ipv6: bool, another: bool) {
        let cidr = self.hosts[host].next_cidr(ipv6, another);
        match self.add_address(host, cidr) {
            // It has restarted in the meantime, and has its address since.
            Ok(()) | Err(SocketError::AddressInUse) => self.serve_all(host),
            Err(error) => self.fail("an address that is free can be added", error.to_string()),
        }
    }

    fn add_address(&mut self, host: usize, cidr: ip::Cidr) -> Result<(), SocketError> {
        let now = self.now;
        self.everywhere(host, |shard, id| shard.add_address(now, id, cidr))
    }

    /// Takes note of what became of a host's addresses: its first shard speaks for all.
    pub(super) fn take_address_events(&mut self, host: usize) {
        while let Some(event) = self.hosts[host].shard(0).poll_address_event() {
            match event {
                AddressEvent::Assigned(_, cidr) => {
                    self.counters.addresses_assigned += 1;
                    self.checker.add_address(host, cidr.address());
                }
                AddressEvent::Removed(_, cidr) => {
                    self.checker.remove_address(host, cidr.address());
                }
                AddressEvent::Duplicate(_, address, station) => {
                    if !self.taken_claims.contains(&(host, address)) {
                        let what = format!("host {host} hears of {address} at {station:?}");
                        self.fail("a duplicate is one", what);
                    }
                    self.counters.duplicates_found += 1;
                }
                _ => {}
            }
        }
    }

    /// The first host that asks before it takes an address is given, by mistake, one that its
    /// neighbour has.
    pub(super) fn claim_taken(&mut self) {
        if self.scenario.bare_ip {
            return;
        }
        for ipv6 in [false, true] {
            let asks = |policy| match policy {
                ClaimPolicy::Probe => true,
                ClaimPolicy::Optimistic => ipv6,
                ClaimPolicy::Trust | ClaimPolicy::Announce => false,
            };
            let Some(host) = self.hosts.iter().position(|host| asks(host.plan.claims)) else {
                continue;
            };
            let neighbour = (host + 1) % self.hosts.len();
            let cidr = self.hosts[neighbour].cidr(ipv6);
            if self.hosts[neighbour].address_state(0, cidr.address())
                != Some(AddressState::Preferred)
            {
                continue;
            }
            self.taken_claims.insert((host, cidr.address()));
            if let Err(error) = self.add_address(host, cidr) {
                return self.fail("an address can be asked about", error.to_string());
            }
            self.serve_all(host);
        }
    }

    /// Who was given an address that its neighbour has does not have it.
    pub(super) fn audit_addresses(&mut self) {
        for (host, address) in self.taken_claims.clone() {
            if let Some(state) = self.hosts[host].address_state(0, address) {
                let property =
                    "RFC 5227, 2.1.1 and RFC 4862, 5.4.5: an address in use is not taken";
                self.fail(property, format!("host {host} has {address}, {state:?}"));
            }
        }
    }

    /// Whether this end may be told of the error as far as its address goes: a connection whose address
    /// is gone hears of nothing else, and no other hears of that.
    pub(super) fn judge_lost_address(
        &self,
        index: usize,
        error: SocketError,
    ) -> Result<(), (&'static str, String)> {
        let endpoint = &self.endpoints[index];
        let was_lost = self.lost_addresses.contains(&(endpoint.host, self.ends[index].0.ip()));
        let is_right = match error {
            SocketError::AddressRemoved => was_lost,
            // What shutting down a connection says that is over (shutdown(2)).
            SocketError::NotConnected => true,
            _ => !endpoint.has_lost_address,
        };
        debug_assert_eq!(endpoint.ended, Some(Ended::By(error)), "it was told");
        if is_right { Ok(()) } else { Err((FAILS, format!("it was told: {error}"))) }
    }
}
