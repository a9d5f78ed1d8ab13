//! A second stack of ours at the other end of a UDP tunnel, in a process of its own.
//!
//! The two processes are joined by the kernel's loopback. Each binds a socket of its own; the near
//! end tells the far one its address, the keys, and whether checksums are left out, in the task
//! ([`TunnelEnd`]), and the far end answers with its own address once it listens inside the tunnel, on a
//! port that both know.

use crate::scenario::{Direction, Scenario, TransformKind};
use crate::station::{self, Station};
use crate::{Attempt, Failure};
use device::transform::Null;
use device::{DeviceError, Transform, TransmitMode};
use linux::{ChaChaKeys, ChaChaPoly, TunnelConfig, TunnelDevice};
use multidata::TcpStream;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// Where the far end listens inside the tunnel.
pub const PORT: u16 = 5_001;

/// Bytes around a packet in its datagram: the headers of UDP and of IPv4.
const OUTER_HEADERS_LEN: usize = 28;

/// What the far end must know to stand there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TunnelEnd {
    /// The near end of the tunnel.
    pub near: SocketAddr,
    /// The far end's keys: for what it sends, and for what it receives.
    keys: Option<([u8; 32], [u8; 32])>,
    udp_offload: bool,
    trust_checksums: bool,
    is_single: bool,
    ipv6: bool,
    mtu_bytes: usize,
    send_buffer_bytes: Option<usize>,
    receive_buffer_bytes: Option<usize>,
}

impl TunnelEnd {
    /// The far end of a scenario whose near end is here, and the near end's transform.
    ///
    /// # Errors
    /// A sentence, where there are no random bytes for keys.
    pub fn of(
        scenario: &Scenario,
        near: SocketAddr,
    ) -> Result<(Self, Box<dyn Transform>), Failure> {
        let keys = match scenario.transform {
            TransformKind::Null => None,
            TransformKind::ChaChaPoly => {
                Some(ChaChaKeys::generate().attempt(|| "cannot make keys for the tunnel")?)
            }
        };
        let end = Self {
            near,
            keys: keys.as_ref().map(|keys| (keys.open, keys.seal)),
            udp_offload: scenario.udp_offload,
            trust_checksums: scenario.trust_checksums,
            is_single: scenario.mode == TransmitMode::Single,
            ipv6: scenario.ipv6,
            mtu_bytes: scenario.mtu_bytes,
            send_buffer_bytes: scenario.send_buffer_bytes,
            receive_buffer_bytes: scenario.receive_buffer_bytes,
        };
        Ok((end, transform(keys)))
    }

    /// The far end's stack, with the connections of the near end, once it has `said` where it is.
    ///
    /// # Errors
    /// A sentence.
    pub fn meet(
        &self,
        connections: usize,
        said: impl FnOnce(SocketAddr),
    ) -> Result<(Station, Vec<TcpStream>), Failure> {
        let mode = if self.is_single { TransmitMode::Single } else { TransmitMode::Multidata };
        let scenario = Scenario {
            udp_offload: self.udp_offload,
            trust_checksums: self.trust_checksums,
            ipv6: self.ipv6,
            mtu_bytes: self.mtu_bytes,
            send_buffer_bytes: self.send_buffer_bytes,
            receive_buffer_bytes: self.receive_buffer_bytes,
            ..Scenario::stream(crate::scenario::DeviceKind::Tunnel, Direction::Receive, mode)
        };
        let keys = self.keys.map(|(seal, open)| ChaChaKeys { seal, open });
        let device = open(&scenario, socket()?, self.near, transform(keys))?;
        let at = device.local_addr();
        let station = Station::over_tunnel(&scenario, device, false)?;
        let listener = station.listen_on(PORT, connections)?;
        said(at);
        let sockets = station::accept(&listener, connections)?;
        Ok((station, sockets))
    }
}

/// A socket of the kernel's on the loopback interface.
///
/// # Errors
/// A sentence.
pub fn socket() -> Result<UdpSocket, Failure> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).attempt(|| "cannot bind a UDP socket for the tunnel")
}

/// An end of the tunnel as the scenario wants it: its MTU is that of the path, not of the packets in
/// the tunnel.
///
/// # Errors
/// A sentence, also where the kernel does less than the scenario is about.
pub fn open(
    scenario: &Scenario,
    socket: UdpSocket,
    peer: SocketAddr,
    transform: Box<dyn Transform>,
) -> Result<TunnelDevice, Failure> {
    let around = OUTER_HEADERS_LEN + transform.overhead_bytes();
    let mut config = TunnelConfig {
        mtu_bytes: Some(scenario.mtu_bytes.saturating_sub(around)),
        trust_checksums: scenario.trust_checksums,
        ..TunnelConfig::default()
    };
    if !scenario.udp_offload {
        config = TunnelConfig { segment: false, coalesce: false, messages_per_call: 1, ..config };
    }
    let opened: Result<TunnelDevice, DeviceError> =
        TunnelDevice::over(socket, peer, transform, config);
    let device = opened.attempt(|| "cannot open the tunnel")?;
    match device.refused() {
        [] => Ok(device),
        _ => {
            Err(Failure::new(format!("this kernel does not do all of it: {}", device.negotiated())))
        }
    }
}

/// Bytes that such a tunnel puts around a packet.
#[must_use]
pub fn around_bytes(kind: TransformKind) -> usize {
    let keys = match kind {
        TransformKind::Null => None,
        // Of any keys the length is the same.
        TransformKind::ChaChaPoly => Some(ChaChaKeys { seal: [0; 32], open: [0; 32] }),
    };
    OUTER_HEADERS_LEN + transform(keys).overhead_bytes()
}

fn transform(keys: Option<ChaChaKeys>) -> Box<dyn Transform> {
    match keys {
        None => Box::new(Null),
        Some(keys) => Box::new(ChaChaPoly::new(&keys)),
    }
}
