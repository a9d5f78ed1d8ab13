//! What applications and sockets do to each other: opening, accepting, acting, and what an
//! application may be told.

use super::{Event, Pair, Phase, World};
use crate::application::{Behaviour, Doing, Ended, Endpoint};
use crate::checker::InFlight;
use crate::host::{PORTS, Socket};
use crate::random::scatter;
use core::net::SocketAddr;
use stack::{Readiness, SocketError, SynCookieMode};
use tcp::{Algorithm, TcpInfo};
use time::Duration;

/// The dynamic ports (RFC 6056, 3.2).
const PORT_FIRST: u16 = 49_152;

/// Ports of clients that use the same ones again and again.
const PORTS_WORN: u64 = 4;

impl World {
    /// A client opens a connection.
    pub(super) fn open(&mut self, index: usize) {
        self.counters.connections += 1;
        let mut random = self.random.fork(index as u64);
        let count = self.hosts.len() as u64;
        let client = random.within(0, count - 1) as usize;
        let server = (client + random.within(1, count - 1) as usize) % self.hosts.len();
        let ipv6 = random.chance(0.5);
        let remote = SocketAddr::new(self.hosts[server].address(ipv6), random.pick(&PORTS));
        let local = self.hosts[client].address(ipv6);
        let is_able = self.hosts[client].has_address(ipv6);
        let behaviour = Behaviour::draw(&mut random, self.scenario.stream_max);
        let port = match random.within(0, 19) {
            0 | 1 => Some(PORT_FIRST + random.within(0, PORTS_WORN - 1) as u16),
            2 => Some(self.port_that_wraps(client, server, local, remote, random.chance(0.5))),
            _ => None,
        };
        let local = port.map(|port| SocketAddr::new(local, port));
        let socket = match self.connect(client, local, remote) {
            Ok(socket) => socket,
            Err(SocketError::AddressInUse | SocketError::TooManySockets) => {
                self.counters.not_opened += 1;
                return;
            }
            Err(
                SocketError::NoRoute(_)
                | SocketError::NoSourceFor(_)
                | SocketError::AddressNotAvailable,
            ) if !is_able => {
                self.counters.not_opened += 1;
                return;
            }
            Err(error) => return self.fail("a connection can be opened", error.to_string()),
        };
        let shard = self.hosts[client].shard(socket.home);
        let info = shard.tcp_info(self.now, socket.id);
        let (Ok(local), Ok(info)) = (shard.local_address(socket.id), info) else {
            return self.fail("an open socket has an address and a state", String::new());
        };
        let pair = self.pairs.len();
        let ends = (local, remote);
        let hosts = [client, server];
        let endpoint = self.endpoints.len();
        let iss = info.send_next.0;
        self.pairs.push(Pair { hosts, client: endpoint, server: None, disturbed: false, iss });
        self.flows.insert((local, remote, iss), pair);
        self.add_endpoint(client, socket, ends, behaviour, pair);
        self.open_fast(endpoint);
        self.serve(client, socket.home);
    }

    /// Opens a connection as a thread does: what other squeues have said before is known first.
    fn connect(
        &mut self,
        host: usize,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<Socket, SocketError> {
        let home = self.hosts[host].home_to_connect(local, remote)?;
        self.take_in(host, home);
        let id = self.hosts[host].shard(home).tcp_connect(self.now, local, remote)?;
        Ok(Socket { home, id })
    }

    /// The port from which a connection's sequence numbers, the client's or the server's, wrap
    /// soonest.
    fn port_that_wraps(
        &self,
        client: usize,
        server: usize,
        local: core::net::IpAddr,
        remote: SocketAddr,
        of_client: bool,
    ) -> u16 {
        let distance = |port: &u16| {
            let local = SocketAddr::new(local, *port);
            let isn = match of_client {
                true => self.hosts[client].isn.initial_sequence(self.now, local, remote),
                false => self.hosts[server].isn.initial_sequence(self.now, remote, local),
            };
            // The server's clock goes on until the SYN arrives.
            u32::MAX - isn.0.wrapping_add(if of_client { 0 } else { 30_000 })
        };
        (PORT_FIRST..=u16::MAX).min_by_key(distance).unwrap_or(PORT_FIRST)
    }

    fn add_endpoint(
        &mut self,
        host: usize,
        socket: Socket,
        ends: (SocketAddr, SocketAddr),
        behaviour: Behaviour,
        pair: usize,
    ) -> usize {
        let index = self.endpoints.len();
        let name = scatter(self.scenario.seed ^ scatter(index as u64 + 1));
        let mut endpoint = Endpoint::new(self.now, host, socket, name, behaviour, pair);
        if self.phase > Phase::Busy {
            endpoint.hurry(self.now);
        }
        self.counters.slow_readers += u64::from(endpoint.behaviour.reads_slowly());
        self.endpoints.push(endpoint);
        self.ends.push(ends);
        self.by_ends.insert(ends, index);
        self.names.insert(name, index);
        let is_bbr = self.hosts[host].plan.tcp.congestion.algorithm == Algorithm::Bbr;
        self.counters.senders_bbr += u64::from(is_bbr);
        self.hosts[host].owners.insert(socket, index);
        self.live += 1;
        index
    }

    /// Passes on what a shard has to tell, and says whether that was anything.
    pub(super) fn take_events(&mut self, host: usize, home: usize) -> bool {
        let mut any = false;
        while let Some(event) = self.hosts[host].shard(home).poll_event() {
            let socket = Socket { home, id: event.socket };
            any = true;
            if self.hosts[host].listeners.contains(&socket) {
                let busy = self.phase == Phase::Busy && self.random.chance(0.1);
                if busy {
                    let after = Duration::from_millis(self.random.magnitude(1, 3_000));
                    self.accept_later(host, socket, after);
                } else {
                    self.accept(host, socket);
                }
                continue;
            }
            if self.hosts[host].datagrams == Some(socket) {
                self.receive_datagrams(host);
                continue;
            }
            let Some(index) = self.hosts[host].owners.get(&socket).copied() else { continue };
            if event.readiness.intersects(Readiness::CONNECTED) {
                self.endpoints[index].connected = true;
            }
            if event.readiness.intersects(Readiness::URGENT) {
                self.endpoints[index].marks.on_told();
            }
            if event.readiness.intersects(Readiness::CLOSED) {
                self.on_closed(index);
            }
            self.act(index);
        }
        any
    }

    /// Whatever waits for this listener is accepted.
    pub(super) fn accept(&mut self, host: usize, listener: Socket) {
        self.accepting.remove(&(host, listener));
        loop {
            let home = listener.home;
            let socket = match self.hosts[host].shard(home).tcp_accept(listener.id) {
                Ok(id) => Socket { home, id },
                // The listener may be one of before a restart.
                Err(SocketError::WouldBlock | SocketError::InvalidSocket) => return,
                Err(error) => return self.fail("accepting works", error.to_string()),
            };
            let shard = self.hosts[host].shard(home);
            let (status, info) = (shard.tcp_status(socket.id), shard.tcp_info(self.now, socket.id));
            let (Ok(status), Ok(info)) = (status, info) else {
                return self.fail("an accepted socket is open", String::new());
            };
            let ends = (status.local, status.remote);
            let Some(pair) = self.pair_of(ends, &info) else {
                let what = format!("{info:?}");
                let property = "what is accepted was opened by somebody".to_owned();
                return self.fail_with(property, what, Some(host), Some(ends));
            };
            let mut random = self.random.fork(socket.id.index() as u64);
            let behaviour = Behaviour::draw(&mut random, self.scenario.stream_max);
            let index = self.add_endpoint(host, socket, ends, behaviour, pair);
            match self.pairs[pair].server {
                None => {
                    self.pairs[pair].server = Some(index);
                    self.counters.established += 1;
                }
                // RFC 4987, 3.6, and RFC 7413, 2.1.
                Some(_)
                    if self.hosts[host].plan.syn_cookies != SynCookieMode::Never
                        || self.endpoints[self.pairs[pair].client].with_syn.is_some() => {}
                Some(first) => {
                    let what = format!("endpoint {first} was accepted for the same SYN");
                    let property = "a connection is accepted once".to_owned();
                    return self.fail_with(property, what, Some(host), Some(ends));
                }
            }
            self.endpoints[index].connected = true;
            // What came before it was accepted was told to nobody.
            self.endpoints[index].marks.on_told();
            self.act(index);
        }
    }

    /// The pair that an accepted connection belongs to, told by the number of the SYN that it came
    /// from: the same ends may have been those of another that was aborted and is accepted only now.
    fn pair_of(&self, ends: (SocketAddr, SocketAddr), info: &TcpInfo) -> Option<usize> {
        let (local, remote) = ends;
        let behind_syn = info.receive_next - info.bytes_received as u32;
        // A FIN may have come, too.
        let firsts = [behind_syn - 1, behind_syn - 2];
        firsts.into_iter().find_map(|irs| self.flows.get(&(remote, local, irs.0)).copied())
    }

    /// The stack says that a connection is over: of an error the application hears.
    fn on_closed(&mut self, index: usize) {
        let endpoint = &mut self.endpoints[index];
        if endpoint.connected || endpoint.ended.is_some() {
            return;
        }
        let host = &mut self.hosts[endpoint.host];
        let error = host
            .shard(endpoint.socket.home)
            .tcp_status(endpoint.socket.id)
            .ok()
            .and_then(|status| status.error);
        let mut doings = Vec::new();
        match error {
            Some(error) => endpoint.fail(self.now, host, error, &mut doings),
            None => doings.push(Doing::Absurd("an open that failed has no error")),
        }
        self.live -= 1;
        self.judge(index, doings);
    }

    /// Lets an application act.
    pub(super) fn act(&mut self, index: usize) {
        let endpoint = &mut self.endpoints[index];
        if endpoint.ended.is_some() {
            return;
        }
        let host = &mut self.hosts[endpoint.host];
        let doings = endpoint.act(self.now, host, &mut self.buffer);
        if let Some(at) = endpoint.wake_at {
            self.events.add(at, Event::Act { endpoint: index });
        }
        if endpoint.ended.is_some() {
            self.live -= 1;
        }
        self.judge(index, doings);
        let calls = core::mem::take(&mut self.endpoints[index].calls);
        self.counters.reads_of_chunks += calls[0];
        self.counters.peeks += calls[1];
        self.counters.options_changed += calls[2];
        match self.endpoints[index].ended {
            Some(Ended::InOrder) => self.counters.ended_in_order += 1,
            Some(Ended::ByWill) => self.counters.ended_by_will += 1,
            _ => {}
        }
    }

    pub(super) fn judge(&mut self, index: usize, doings: Vec<Doing>) {
        for doing in doings {
            let ends = self.ends[index];
            let host = self.endpoints[index].host;
            let verdict = match doing {
                Doing::Named(name) => self.on_named(index, name),
                Doing::AtEnd => self.on_end_of_stream(index),
                Doing::BrokeOff => {
                    self.set_disturbed(index);
                    Ok(())
                }
                Doing::Failed(error) => self.on_failed(index, error),
                Doing::Differs { offset } => {
                    Err(("bytes arrive as they were sent", format!("differs at {offset}")))
                }
                Doing::Absurd(what) => Err(("the stack keeps its word", what.to_owned())),
            };
            if let Err((property, what)) = verdict {
                self.fail_with(property.to_owned(), what, Some(host), Some(ends));
            }
        }
    }

    /// The first bytes say whose stream this is: it must be the other end's, and nobody else may
    /// have read it.
    fn on_named(&mut self, index: usize, name: u64) -> Result<(), (&'static str, String)> {
        let property = "bytes arrive at the other end of their own connection";
        let Some(peer) = self.names.get(&name).copied() else {
            return Err((property, "the stream is nobody's".to_owned()));
        };
        let (local, remote) = self.ends[index];
        if self.ends[peer] != (remote, local) {
            let (from, to) = self.ends[peer];
            return Err((property, format!("it is the stream from {from} to {to}")));
        }
        // What came with a SYN that was doubled may be read again (`fast_open.rs`).
        let with_syn = self.endpoints[peer].with_syn > Some(0);
        let readers = self.readers.entry(peer).or_default();
        readers.push(index);
        if readers.len() > 1 && !with_syn {
            return Err((property, format!("endpoints {readers:?} read the same")));
        }
        Ok(())
    }

    /// The end of a stream is told only where the peer said so, and then all of it was read.
    fn on_end_of_stream(&mut self, index: usize) -> Result<(), (&'static str, String)> {
        let property = "the end of the stream comes behind all of it";
        let endpoint = &self.endpoints[index];
        let received = endpoint.received;
        self.counters.bytes_read += received;
        let Some(name) = endpoint.peer_name else {
            return match received {
                0 => self.judge_empty_stream(index),
                _ => Err((property, format!("after {received} bytes, fewer than any stream has"))),
            };
        };
        let Some(peer) = self.names.get(&name).map(|peer| &self.endpoints[*peer]) else {
            return Err((property, "the stream is nobody's".to_owned()));
        };
        match peer.is_shut && peer.sent == received {
            true => self.judge_marks(index, true),
            false if peer.is_shut => Err((property, format!("{received} of {} bytes", peer.sent))),
            false => Err((property, format!("after {received} bytes; the peer goes on"))),
        }
    }

    /// A stream that ends before its first byte is that of somebody who said nothing, and said so.
    fn judge_empty_stream(&self, index: usize) -> Result<(), (&'static str, String)> {
        let pair = self.endpoints[index].pair;
        let client = self.pairs[pair].client;
        // Of a connection that was accepted several times (RFC 7413, 2.1) any may be the one.
        let mut others =
            self.endpoints.iter().enumerate().filter(|(other, it)| match index == client {
                true => *other != client && it.pair == pair,
                false => *other == client,
            });
        match others.any(|(_, it)| it.is_shut && it.sent == 0) {
            true => Ok(()),
            false => {
                let property = "the end of a stream is where the peer ended it";
                Err((property, "after 0 bytes, which nobody has ended there".to_owned()))
            }
        }
    }

    /// RFC 6093: marks are where the peer set them.
    pub(super) fn judge_marks(
        &mut self,
        index: usize,
        is_whole: bool,
    ) -> Result<(), (&'static str, String)> {
        let endpoint = &self.endpoints[index];
        self.counters.urgent_marks += endpoint.marks.seen_count() as u64;
        let peer = endpoint.peer_name.and_then(|name| self.names.get(&name));
        let Some(peer) = peer.map(|peer| &self.endpoints[*peer]) else { return Ok(()) };
        let checked = endpoint.marks.check(&peer.marks, is_whole);
        checked.map_err(|what| ("urgent marks arrive where they were set", what))
    }

    /// New data is sent within the congestion window only. Looked at for one connection of each
    /// batch, behind its last segment.
    pub(super) fn judge_flights(&mut self, host: usize) {
        let last = self.flights.pop();
        self.flights.clear();
        let Some(InFlight { ends, bytes, quiet }) = last else { return };
        let Some(index) = self.by_ends.get(&ends).copied() else { return };
        let endpoint = &self.endpoints[index];
        if endpoint.ended.is_some() || endpoint.host != host {
            return;
        }
        let Socket { home, id } = endpoint.socket;
        let Ok(info) = self.hosts[host].shard(home).tcp_info(self.now, id) else { return };
        // RFC 3168, 6.1.2: after a mark the window shrinks at once and the flight with ACKs.
        let shrinks = info.ecn && info.slow_start_threshold_bytes >= info.congestion_window_bytes;
        // BBR's window is what it believes of the path, and shrinks without a loss.
        let shrinks = shrinks || info.congestion == Algorithm::Bbr.name();
        if info.recovery != tcp::RecoveryState::Open || info.sacked_bytes > 0 || shrinks {
            return;
        }
        // RFC 8985, 7.2 and 7.3: where nothing was acknowledged for two round trips, or until the retransmission
        // timer would go off, what is sent is a tail loss probe, one segment beyond whatever an undone reduction had
        // left in flight.
        if info.rtt.is_some_and(|rtt| quiet >= info.rto.min(rtt * 2)) {
            return;
        }
        // RFC 3042: two segments in answer to duplicates; RFC 8985, 7.3: a probe is one more.
        let slack = 3 * u64::from(info.send_mss_bytes);
        if bytes > u64::from(info.congestion_window_bytes) + slack {
            let what = format!("{bytes} bytes in flight: {info:?}");
            let rule = "RFC 5681, 3.1: new data is sent within the congestion window";
            self.fail_with(rule.to_owned(), what, Some(host), Some(ends));
        }
    }

    pub(super) fn set_disturbed(&mut self, index: usize) {
        self.pairs[self.endpoints[index].pair].disturbed = true;
    }

    /// A host loses everything.
    pub(super) fn restart(&mut self, host: usize) {
        self.counters.restarts += 1;
        self.count_of(host);
        for index in 0..self.endpoints.len() {
            let endpoint = &mut self.endpoints[index];
            if endpoint.host == host && endpoint.ended.is_none() {
                endpoint.ended = Some(Ended::WithHost);
                endpoint.wake_at = None;
                self.live -= 1;
                self.counters.ended_with_host += 1;
            }
        }
        for pair in &mut self.pairs {
            pair.disturbed |= pair.hosts.contains(&host);
        }
        let held = self.hosts[host].restart(self.now);
        self.checker.on_restart(host, self.hosts[host].addresses());
        for shard in self.hosts[host].shards() {
            while shard.poll_address_event().is_some() {}
        }
        if held > 0 {
            self.fail("a shard that is gone holds no block", format!("{held} bytes"));
        }
        self.serve_all(host);
    }
}
