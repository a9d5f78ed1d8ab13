//! Every reason for which packets go one by one where a batch of several could have gone.
//!
//! The conditions are those of seed 000, 4.4.2 (asked when a connection is bound to a route, and
//! again when that changes) and 4.4.3 (asked with each batch), and those that this stack adds.
//! Each time a flow is sent packet by packet for a reason, the reason is counted once.

macro_rules! refusals {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// Why a flow does not use Multidata, for now or as long as its path is what it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum MultidataRefusal {
            $($(#[$doc])* $variant,)*
        }

        impl MultidataRefusal {
            /// Every reason, in the order of the declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The reason's name in statistics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

refusals! {
    /// The operator switched it off, for the interface or for all (`ip_multidata_outbound`).
    NotEnabled => "multidata_not_enabled",
    /// The interface's transmit mode is `single`.
    SingleMode => "multidata_not_in_mode",
    /// The device was written for another version of the contract.
    NotCapable => "multidata_not_capable",
    /// A packet filter asks for the packets of this flow one by one (4.4.2, 2 a).
    FilterPolicy => "multidata_not_by_filter",
    /// What the device does to each packet, as a tunnel's cipher, asks for them one by one.
    TransformPolicy => "multidata_not_by_transform",
    /// The connection's own policy asks for single packets (4.4.3, 1 b).
    FlowPolicy => "multidata_not_by_flow_policy",
    /// A socket option takes the connection off the fast path (4.4.2, 2 b).
    SlowPathOption => "multidata_not_by_option",
    /// The packet's protocol is not among those that go in batches (4.4.2, 2 c).
    Protocol => "multidata_not_protocol",
    /// Each packet is marked with a quality of service of its own (4.4.2, 2 d).
    QosMarking => "multidata_not_qos",
    /// Each packet leaves by several routes at once (4.4.2, 2 e).
    MultiRouted => "multidata_not_multi_routed",
    /// The connection is not established: there is a handshake to send (4.4.3, 1 c).
    NotEstablished => "multidata_not_established",
    /// The peer's window has no room for a whole segment (4.4.3, 1 d).
    SmallWindow => "multidata_not_window",
    /// Less than a whole segment waits to be sent (4.4.3, 1 e).
    SmallData => "multidata_not_data",
    /// The packet has IP options, or a hop-by-hop header (4.4.3, 1 f).
    IpOptions => "multidata_not_ip_options",
}

/// One counter for each [`MultidataRefusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalCounters {
    counts: [u64; MultidataRefusal::ALL.len()],
}

impl Default for RefusalCounters {
    fn default() -> Self {
        Self { counts: [0; MultidataRefusal::ALL.len()] }
    }
}

impl RefusalCounters {
    /// Counts one batch that was a single packet for this reason.
    pub fn add(&mut self, refusal: MultidataRefusal) {
        self.counts[refusal as usize] += 1;
    }

    /// How often this was the reason.
    #[must_use]
    pub fn count(&self, refusal: MultidataRefusal) -> u64 {
        self.counts[refusal as usize]
    }

    /// Adds the figures of another table to this one.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
    }

    /// Visits every reason, in the order of declaration.
    pub fn for_each(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        for refusal in MultidataRefusal::ALL {
            visit(refusal.name(), self.count(*refusal));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_own_counter_and_name() {
        let mut counters = RefusalCounters::default();
        for refusal in MultidataRefusal::ALL {
            counters.add(*refusal);
        }
        let mut names = std::collections::HashSet::new();
        counters.for_each(&mut |name, count| {
            assert_eq!(count, 1, "{name}");
            assert!(names.insert(name), "{name} stands for two reasons");
        });
        let mut twice = counters;
        twice.merge(&counters);
        assert_eq!(twice.count(MultidataRefusal::SmallData), 2);
    }
}
