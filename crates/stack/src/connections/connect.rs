//! How a connection is opened from here: the way to its peer, the address and the port that it leaves with.
//!
//! A port is picked as RFC 6056, 3.3.4 has it. Taken are those of other connections to the same peer, and of
//! those in TIME-WAIT, unless timestamps tell the segments of a new one from theirs (RFC 6191, seen from the other
//! end): then a pair of ports can be used again after a second, and not after 2 MSL, which would be 1,075
//! connections a second to one address and port for whoever closes first.

use crate::connections::time_wait::{reusable, standing_in_time_wait};
use crate::error::{BadArgument, SocketError};
use crate::network::endpoint::{agreed, has_port, of_one_family, scoped};
use crate::shard::Shard;
use crate::sockets::ports::{BindOptions, Protocol};
use crate::sockets::taken_ports::{Purpose, Standing};
use crate::sockets::{Flow, SocketId};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tcp::Connection;
use time::Instant;

impl Shard {
    /// Opens a connection to `remote`. `local` asks for an own address and port; where it is
    /// `None`, or the port is zero, they are picked.
    ///
    /// # Errors
    /// No route, no free port, the four-tuple in use, or too many sockets.
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<SocketId, SocketError> {
        let config = Arc::clone(&self.config);
        self.tcp_connect_with(now, local, remote, config)
    }

    /// As [`Shard::tcp_connect`], with settings of the connection's own.
    ///
    /// # Errors
    /// As [`Shard::tcp_connect`].
    pub fn tcp_connect_with(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        config: Arc<tcp::Config>,
    ) -> Result<SocketId, SocketError> {
        let (remote, by) = self.network.take_scope(remote)?;
        let (local, of) = local.map(|local| self.network.take_scope(local)).transpose()?.unzip();
        let asked = agreed(by, of.flatten())?;
        let from = local.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |local| local.ip());
        let remote = self.network.or_this_host(remote, from);
        // RFC 9293, 3.9.2.3, MUST-46: neither broadcast nor multicast is a peer.
        let is_broadcast = self.network.interfaces.iter().any(|i| i.is_broadcast(remote.ip()));
        if remote.ip().is_multicast() || is_broadcast {
            return Err(BadArgument::PeerIsMany(remote.ip()).into());
        }
        has_port(remote)?;
        let (usual, next_hop) = self.network.route_by(remote.ip(), asked)?;
        let address = match local.map(|local| local.ip()) {
            Some(address) if !address.is_unspecified() => address,
            _ => self.network.interfaces[usual].source_for(remote.ip(), next_hop)?,
        };
        of_one_family(address, remote.ip())?;
        let end = SocketAddr::new(address, 0);
        self.network.check_local(of.flatten().map_or(end, |id| scoped(end, id)))?;
        let (interface, next_hop) = match local {
            Some(_) => self.network.route_from(address, remote.ip(), asked)?,
            None => (usual, next_hop),
        };
        if address.is_loopback() && !self.network.interfaces[interface].is_loopback {
            return Err(BadArgument::LoopbackLeaves { remote: remote.ip() }.into());
        }
        let port = match local.map(|local| local.port()) {
            Some(port) if port != 0 => port,
            _ => {
                let stays = self.network.interfaces[interface].is_loopback;
                self.pick_port_to(now, address, remote, &config, stays)?
            }
        };
        let flow = Flow { local: SocketAddr::new(address, port), remote };
        if self.sockets.by_flow(&flow).is_some() || self.handshakes.half_open.contains(&flow) {
            return Err(SocketError::AddressInUse);
        }
        let isn_min = reusable(&self.detached.time_wait, now, &flow, &config)
            .ok_or(SocketError::AddressInUse)?;
        let mut parameters = self.parameters(now, interface, &flow, config);
        if let Some(isn_min) = isn_min {
            parameters.isn = parameters.isn.later_of(isn_min);
        }
        let connection = Connection::connect(parameters, now);
        let index = self.open(connection, flow, interface, next_hop, None)?;
        if let Some(socket) = self.sockets.tcp(index) {
            socket.path.keeps_interface = interface != usual;
        }
        if self.detached.time_wait.remove(&flow).is_some() {
            self.counters.time_wait_replaced += 1;
        }
        self.counters.connections_opened += 1;
        self.settle(now, index);
        self.sockets.id(index).ok_or(SocketError::InvalidSocket)
    }

    /// A local port for a connection from `address` to `remote`. Over loopback (`stays`) both ends are this
    /// shard's, wherever the flow would be at home.
    fn pick_port_to(
        &mut self,
        now: Instant,
        address: IpAddr,
        remote: SocketAddr,
        config: &tcp::Config,
        stays: bool,
    ) -> Result<u16, SocketError> {
        let Self { network, sockets, detached, handshakes, .. } = self;
        let timestamps = config.timestamps;
        let purpose = Purpose::Connect { from: address, to: remote, timestamps, stays };
        sockets.pick_port(purpose, |sockets, port| {
            let local = SocketAddr::new(address, port);
            let flow = Flow { local, remote };
            let may_be_taken = (stays || network.sharing.may_open(&flow))
                && sockets.by_flow(&flow).is_none()
                && sockets.ports.is_free(Protocol::Tcp, local, BindOptions::default());
            match may_be_taken {
                false => Standing::Taken,
                true if handshakes.half_open.contains(&flow) => Standing::Passing,
                true => standing_in_time_wait(&detached.time_wait, now, &flow, config),
            }
        })
    }
}
