//! Networks on the link and addresses formed from them, with their lifetimes.

use super::identifier::{IdentifierKey, stable_address};
use super::{LinkChange, RouterCounters};
use core::net::Ipv6Addr;
use std::collections::VecDeque;
use time::{Duration, Instant};
use wire::HardwareAddress;
use wire::ndp::PrefixInformation;

/// The end of what lasts for ever.
pub(super) const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// Other identifiers that are tried after a duplicate (RFC 7217, 6: IDGEN_RETRIES).
const RETRIES_MAX: u8 = 3;

/// RFC 4862, 5.5.3 e: a lifetime is not shortened below this by an unauthenticated advertisement.
const TWO_HOURS: Duration = Duration::from_secs(2 * 3_600);

/// Length of the prefix of an address with an interface identifier of 64 bits (RFC 4291, 2.5.1).
const PREFIX_LEN: u8 = 64;

/// When a lifetime ends that begins now; all ones are for ever (RFC 4861, 4.6.2).
pub(super) fn until(now: Instant, lifetime_s: u32) -> Instant {
    match lifetime_s {
        u32::MAX => NEVER,
        seconds => now + Duration::from_secs(seconds.into()),
    }
}

#[derive(Clone, Debug)]
struct Network {
    prefix: Ipv6Addr,
    prefix_len: u8,
    until: Instant,
}

#[derive(Clone, Debug)]
struct Formed {
    prefix: Ipv6Addr,
    address: Ipv6Addr,
    duplicates: u8,
    valid_until: Instant,
    preferred_until: Instant,
    is_preferred: bool,
}

/// Both lists of one interface.
#[derive(Debug)]
pub(super) struct Prefixes {
    key: IdentifierKey,
    station: HardwareAddress,
    entries_max: usize,
    networks: Vec<Network>,
    formed: Vec<Formed>,
}

impl Prefixes {
    pub(super) fn new(key: IdentifierKey, station: HardwareAddress, entries_max: usize) -> Self {
        Self { key, station, entries_max, networks: Vec::new(), formed: Vec::new() }
    }

    fn form(
        &mut self,
        prefix: Ipv6Addr,
        valid_until: Instant,
        preferred_until: Instant,
        changes: &mut VecDeque<LinkChange>,
    ) {
        let address = stable_address(prefix, self.station, 0, &self.key);
        let formed = Formed {
            prefix,
            address,
            duplicates: 0,
            valid_until,
            preferred_until,
            is_preferred: true,
        };
        self.formed.push(formed);
        changes.push_back(LinkChange::Form(address));
    }

    /// RFC 4861, 6.3.4: prefixes with the on-link flag.
    pub(super) fn on_network(
        &mut self,
        now: Instant,
        told: &PrefixInformation,
        changes: &mut VecDeque<LinkChange>,
        counters: &mut RouterCounters,
    ) {
        // "If the prefix is the link-local prefix, silently ignore the Prefix Information option."
        if !told.on_link || told.prefix.is_unicast_link_local() || told.prefix.is_multicast() {
            return;
        }
        // That everybody is a neighbour contradicts the router that says so, and would stand in the
        // place of every default route.
        if told.prefix_len_bits == 0 {
            return;
        }
        let (prefix, prefix_len) =
            (masked(told.prefix, told.prefix_len_bits), told.prefix_len_bits);
        let is_it =
            |network: &Network| (network.prefix, network.prefix_len) == (prefix, prefix_len);
        let known = self.networks.iter().position(is_it);
        match (known, told.valid_s) {
            // "... and the new Valid Lifetime is zero: time-out the prefix immediately."
            (Some(at), 0) => {
                self.networks.remove(at);
                changes.push_back(LinkChange::OffLink { prefix, prefix_len });
            }
            (None, 0) => {}
            (Some(at), valid_s) => self.networks[at].until = until(now, valid_s),
            (None, valid_s) if self.networks.len() < self.entries_max => {
                self.networks.push(Network { prefix, prefix_len, until: until(now, valid_s) });
                changes.push_back(LinkChange::OnLink { prefix, prefix_len });
            }
            (None, _) => counters.router_entries_refused += 1,
        }
    }

    /// RFC 4862, 5.5.3: prefixes with the autonomous flag.
    pub(super) fn on_autonomous(
        &mut self,
        now: Instant,
        told: &PrefixInformation,
        changes: &mut VecDeque<LinkChange>,
        counters: &mut RouterCounters,
    ) {
        // a), b) and c).
        if !told.autonomous
            || told.prefix.is_unicast_link_local()
            || told.prefix.is_multicast()
            || told.preferred_s > told.valid_s
        {
            return;
        }
        // d) "If the sum of the prefix length and interface identifier length does not equal 128
        // bits, the Prefix Information option MUST be ignored."
        if told.prefix_len_bits != PREFIX_LEN {
            return;
        }
        let prefix = masked(told.prefix, PREFIX_LEN);
        let (valid_until, preferred_until) =
            (until(now, told.valid_s), until(now, told.preferred_s));
        let known = self.formed.iter_mut().find(|formed| formed.prefix == prefix);
        let Some(formed) = known else {
            if told.valid_s == 0 {
                return;
            }
            if self.formed.len() >= self.entries_max {
                counters.router_entries_refused += 1;
                return;
            }
            self.form(prefix, valid_until, preferred_until, changes);
            return self.on_timeout(now, changes);
        };
        formed.preferred_until = preferred_until;
        // e) 1. "If the received Valid Lifetime is greater than 2 hours or greater than
        // RemainingLifetime, set the valid lifetime [...] to the advertised Valid Lifetime."
        // 2. "If RemainingLifetime is less than or equal to 2 hours, ignore [...] the valid
        // lifetime". 3. "Otherwise, reset the valid lifetime [...] to 2 hours."
        if valid_until > now + TWO_HOURS || valid_until > formed.valid_until {
            formed.valid_until = valid_until;
        } else {
            counters.router_lifetimes_refused += 1;
            if formed.valid_until > now + TWO_HOURS {
                formed.valid_until = now + TWO_HOURS;
            }
        }
        self.on_timeout(now, changes);
    }

    pub(super) fn on_duplicate(&mut self, address: Ipv6Addr, changes: &mut VecDeque<LinkChange>) {
        let Some(formed) = self.formed.iter_mut().find(|formed| formed.address == address) else {
            return;
        };
        if formed.duplicates >= RETRIES_MAX {
            return;
        }
        formed.duplicates += 1;
        let Formed { prefix, duplicates, is_preferred, .. } = *formed;
        formed.address = stable_address(prefix, self.station, duplicates, &self.key);
        changes.push_back(LinkChange::Form(formed.address));
        if !is_preferred {
            changes.push_back(LinkChange::Prefer(formed.address, false));
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let networks = self.networks.iter().map(|network| network.until);
        let preferred = self.formed.iter().filter(|f| f.is_preferred).map(|f| f.preferred_until);
        let valid = self.formed.iter().map(|formed| formed.valid_until);
        networks.chain(preferred).chain(valid).min()
    }

    /// Ends what is over, and says what changed of what is preferred.
    pub(super) fn on_timeout(&mut self, now: Instant, changes: &mut VecDeque<LinkChange>) {
        self.networks.retain(|network| {
            let lives = now < network.until;
            if !lives {
                let Network { prefix, prefix_len, .. } = *network;
                changes.push_back(LinkChange::OffLink { prefix, prefix_len });
            }
            lives
        });
        self.formed.retain_mut(|formed| {
            let lives = now < formed.valid_until;
            let is_preferred = now < formed.preferred_until;
            if !lives {
                changes.push_back(LinkChange::Expire(formed.address));
            } else if is_preferred != formed.is_preferred {
                formed.is_preferred = is_preferred;
                changes.push_back(LinkChange::Prefer(formed.address, is_preferred));
            }
            lives
        });
    }
}

fn masked(prefix: Ipv6Addr, len: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
    Ipv6Addr::from(u128::from(prefix) & mask)
}
