//! What the first shard of a host learns of a link, and the others are told.
//!
//! The first shard alone asks routers and DHCP servers, because what must not be said twice is its to say
//! ([`crate::share`]), and what they answer is drawn up in one place: two shards that each leased an address,
//! or each formed one, would be two hosts. Addresses are claimed there and told to the others one by one;
//! routes, MTU, hop limit, times of neighbour resolution, DNS servers and whether an address is still preferred
//! are news, which every shard takes over by the same code, in the order in which the first one did.
//!
//! News may not be lost, and routers may be told to say something else as often as somebody likes. So the
//! others say when they have taken a piece, and where they are far behind the first does not listen to routers
//! until they have caught up.

use crate::network::NetworkLayer;
use crate::network::interfaces::InterfaceId;
use dhcp::Lease;
use ip::router::LinkChange;

/// Something that all shards of a host go by.
#[derive(Clone, Debug)]
pub(crate) enum LinkNews {
    /// What a DHCP server leased, or nothing any more.
    Leased(Option<Box<Lease>>),
    /// What a router said; neither [`LinkChange::Form`] nor [`LinkChange::Expire`].
    Router(LinkChange),
}

impl NetworkLayer {
    /// Something was learned: it holds here and, where this is the first of several shards, in the others.
    pub(super) fn learn(&mut self, id: InterfaceId, news: LinkNews) {
        self.tell_of_link(id, &news);
        self.follow_news(id, news);
    }

    /// What the first shard learned holds here, too.
    pub(crate) fn follow_news(&mut self, id: InterfaceId, news: LinkNews) {
        match news {
            LinkNews::Leased(lease) => self.configure(id, lease.as_deref()),
            LinkNews::Router(change) => self.follow_router(id, change),
        }
    }
}
