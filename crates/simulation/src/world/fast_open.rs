//! Connections that begin with data (RFC 7413): who opens them, and what of them may be seen twice.
//!
//! A SYN that the network doubles may make a connection again that has been, and what came with it is
//! then read again; nothing behind it is, because no one answers the handshake of the second. And one
//! that its server left before the client heard of it is made anew by the SYN that the client repeats.

use super::World;
use crate::random::{Random, scatter};

impl World {
    /// A connection that is being opened shows its peer's cookie or asks for one, and may say something
    /// at once.
    pub(super) fn open_fast(&mut self, index: usize) {
        let label = 0xfa57 ^ scatter(self.scenario.seed ^ scatter(index as u64));
        let mut random = Random::new(label);
        if !random.chance(self.scenario.fast_open) {
            return;
        }
        let endpoint = &mut self.endpoints[index];
        let host = &mut self.hosts[endpoint.host];
        let shows_cookie = match host.shard(endpoint.socket.home).tcp_offer_fast_open(
            self.now,
            endpoint.socket.id,
            false,
        ) {
            Ok(room) => room > 0,
            Err(error) => return self.fail("a cookie can be shown", error.to_string()),
        };
        let len = random.pick(&[1, 8, 500, 1_460, 1_460, 20_000]);
        let doings = endpoint.speak_early(self.now, host, len);
        if shows_cookie {
            endpoint.with_syn = Some(endpoint.sent);
            self.counters.cookies_shown += 1;
        }
        self.judge(index, doings);
    }

    /// Of several who read one stream at most one read more than came with the SYN.
    pub(super) fn audit_readers(&mut self) {
        for (speaker, readers) in &self.readers {
            let with_syn = self.endpoints[*speaker].with_syn.unwrap_or(0);
            let goes_on = |reader: &&usize| self.endpoints[**reader].received > with_syn;
            if readers.iter().filter(goes_on).count() > 1 {
                let property = "RFC 7413, 2.1: only what came with a SYN may be seen twice";
                let what = format!("endpoints {readers:?} read more than {with_syn} bytes");
                return self.fail(property, what);
            }
        }
    }
}
