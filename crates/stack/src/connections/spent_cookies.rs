//! SYN cookies that have opened a connection. Nothing but this remembers them: while a cookie is valid,
//! a repeated ACK of a connection that is over would open another one in the middle of its stream, and
//! the peer would read bytes of both. Where the table is full, the one that expires first makes room.

use crate::connections::flow_table::FlowTable;
use crate::sockets::{Flow, Keys};
use tcp::SYN_COOKIE_LIFETIME;
use time::Instant;
use wire::SeqNumber;

/// Four-tuples of which they are remembered; about 110 bytes each, their places in the tables included. With
/// more than 512 such connections a second the oldest are forgotten while they could still be brought back.
const SPENT_COOKIES_MAX: usize = 65_536;

/// Cookies of one four-tuple; who opens more in the time of one is not remembered from the beginning.
const EACH_MAX: usize = 4;

/// Bounded in number and in time.
#[derive(Debug)]
pub(crate) struct SpentCookies {
    /// The ISSs that were the cookies, the latest first.
    cookies: FlowTable<[Option<SeqNumber>; EACH_MAX]>,
}

impl SpentCookies {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { cookies: FlowTable::new(keys) }
    }

    /// `cookie` has opened a connection.
    pub(crate) fn add(&mut self, now: Instant, flow: Flow, cookie: SeqNumber) {
        let mut spent = self.cookies.remove(&flow).unwrap_or_default();
        if self.cookies.len() >= SPENT_COOKIES_MAX {
            self.cookies.remove_first();
        }
        spent.rotate_right(1);
        spent[0] = Some(cookie);
        self.cookies.insert(flow, spent, now + SYN_COOKIE_LIFETIME);
    }

    /// Whether `cookie` has opened a connection already.
    pub(crate) fn contains(&mut self, flow: &Flow, cookie: SeqNumber) -> bool {
        self.cookies.get_mut(flow).is_some_and(|spent| spent.contains(&Some(cookie)))
    }

    pub(crate) fn len(&self) -> usize {
        self.cookies.len()
    }

    /// When the first expires, or before.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.cookies.next()
    }

    /// Forgets those that no peer can bring back any more.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        while self.cookies.pop_due(now).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;
    use time::Duration;

    fn flow(number: u32) -> Flow {
        let local = SocketAddr::new([10, 0, 0, 1].into(), 80);
        Flow { local, remote: SocketAddr::new(number.to_be_bytes().into(), 9) }
    }

    #[test]
    fn spent_cookies_are_bounded_in_number_and_in_time() {
        let mut spent = SpentCookies::new(Keys(1, 2));
        let start = Instant::from_millis(5);
        for number in 0..=SPENT_COOKIES_MAX as u32 {
            let at = start + Duration::from_micros(250 * u64::from(number));
            spent.add(at, flow(number), SeqNumber(number));
        }
        let last = SPENT_COOKIES_MAX as u32;
        assert_eq!(spent.len(), SPENT_COOKIES_MAX);
        // One of the oldest made room: the wheel knows them to a few seconds.
        let is_gone = |number: &u32| !spent.contains(&flow(*number), SeqNumber(*number));
        let gone: Vec<u32> = (0..=last).filter(is_gone).collect();
        assert!(matches!(gone[..], [one] if one < last / 2), "{gone:?}");
        assert!(!spent.contains(&flow(last), SeqNumber(0)), "another cookie of the same peer");
        spent.add(start + Duration::from_secs(17), flow(last), SeqNumber(0));
        assert!(spent.contains(&flow(last), SeqNumber(0)));
        assert!(spent.contains(&flow(last), SeqNumber(last)), "the one before, too");
        spent.on_timeout(start + (SYN_COOKIE_LIFETIME - Duration::from_secs(1)));
        assert_eq!(spent.len(), SPENT_COOKIES_MAX);
        spent.on_timeout(start + SYN_COOKIE_LIFETIME + Duration::from_secs(60));
        assert_eq!((spent.len(), spent.poll_timeout()), (0, None));
    }
}
