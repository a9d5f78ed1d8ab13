//! Groups of a host of several shards.
//!
//! A datagram to a group comes to the shard that has the sockets of its port, so a shard keeps to itself who of
//! its sockets listens to what. Two things are everybody's:
//!
//! * *Reports.* Routers know hosts, not shards: of one that leaves a group while another listens they must not
//!   hear. So the first shard reports, what all of them want together, and answers queries; the others
//!   tell it what their sockets want, each time that changes, and keep silent. The groups of addresses all have.
//!   Where the first has no room for a group any more it is not reported; its listeners hear what the
//!   link brings all the same.
//! * *The loop.* What a socket here sends to a group is for listeners here, too, and these are where the port
//!   it goes to is at home.

use crate::network::NetworkLayer;
use crate::network::interfaces::InterfaceId;
use crate::network::multicast::Listener;
use crate::shard::Shard;
use core::net::IpAddr;
use counters::DropReason;
use ip::membership::Filter;
use time::Instant;

/// What the sockets of a shard want of a group; `None`: nothing any more.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// Whose.
    pub(crate) shard: usize,
    pub(crate) group: IpAddr,
    pub(crate) filter: Option<Filter>,
}

impl Shard {
    /// Hands a datagram that a socket here sent to a group to all sockets of this host that listen.
    ///
    /// # Errors
    /// Those of this shard are full.
    pub(crate) fn loop_to_group(
        &mut self,
        id: InterfaceId,
        datagram: udp::Datagram,
    ) -> Result<(), DropReason> {
        match self.network.sharing.other_home_of_port(datagram.destination.port()) {
            Some(home) => {
                self.network.hand_on_looped(home, id, datagram);
                Ok(())
            }
            None => self.deliver_to_group(id, datagram),
        }
    }
}

impl NetworkLayer {
    /// A socket has joined a group or left it: the first shard hears of it, where that is another one.
    pub(crate) fn tell_of_wish(&mut self, id: InterfaceId, group: IpAddr) {
        if let Some(shard) = self.sharing.follower() {
            let filter = self.interfaces[id].groups.wanted_by_sockets(group);
            self.hand_on_wish(id, Wish { shard, group, filter });
        }
    }

    /// The sockets of another shard want this from now on.
    pub(crate) fn on_wish(&mut self, now: Instant, id: InterfaceId, wish: &Wish) {
        let listener = Listener::Shard(wish.shard);
        let Some(filter) = wish.filter.clone() else {
            self.leave_group(now, id, wish.group, listener);
            return;
        };
        // Together with those of others they may be more sources than one membership holds.
        if !self.join_group(now, id, wish.group, listener, filter) {
            self.join_group(now, id, wish.group, listener, Filter::AnySource);
        }
    }
}
