//! Why a socket call failed.

use crate::datagrams::raw_socket::ICMP_LEN_MIN;
use crate::forwarding::ACCEPTED_PREFIXES_MAX;
use crate::network::interfaces::INTERFACES_MAX;
use core::fmt;
use core::net::IpAddr;
use ip::Cidr;
use tcp::ConnectionError;

/// Why a socket call failed. Every variant reads as a sentence that says what was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketError {
    /// The call cannot be answered now; an event will say when to try again.
    WouldBlock,
    /// Another socket has this local address and port, or the interface has the address already.
    AddressInUse,
    /// No interface of this stack has this local address.
    AddressNotAvailable,
    /// Every local port that could be picked is taken.
    NoPortLeft,
    /// No route of this stack leads to this address or network, or none that the socket may take.
    NoRoute(IpAddr),
    /// A router on the way said that no route of its leads to the destination.
    NetworkUnreachable,
    /// Nothing can be sent to this address: no interface, or not the one on the way, has an address of its IP version to
    /// send from.
    NoSourceFor(IpAddr),
    /// The device of the interface on the way has failed.
    DeviceFailed,
    /// The neighbour on the way did not answer, or a router said that the host is unreachable.
    HostUnreachable,
    /// A router on the way said that it does not know the host.
    HostUnknown,
    /// A router said that this host is cut off from the network.
    SourceIsolated,
    /// A router said that a packet could not go the way that it asks for.
    SourceRouteFailed,
    /// A router or the host said that it does not understand a packet's header.
    ParameterProblem,
    /// The host said that it does not speak the protocol.
    ProtocolUnreachable,
    /// A filter on the way, or a policy of a router's, forbids it. ICMPv6 says so; of IPv4 it is
    /// [`HostUnreachable`](Self::HostUnreachable), as hosts have it there.
    Prohibited,
    /// The peer answered the SYN with a reset.
    ConnectionRefused,
    /// The peer reset the connection.
    ConnectionReset,
    /// This side aborted the connection.
    ConnectionAborted,
    /// The connection's local address was taken from its interface.
    AddressRemoved,
    /// The peer did not answer in time.
    TimedOut,
    /// The socket is not connected, or not yet.
    NotConnected,
    /// The sending side was shut down.
    BrokenPipe,
    /// The datagram is longer than the path takes.
    MessageTooLong,
    /// A destination is needed: the socket is not connected to one.
    DestinationRequired,
    /// No memory is left in the block pool, or the socket's queue is full for good.
    NoMemory,
    /// The number names no open socket, or a socket of another kind.
    InvalidSocket,
    /// The stack holds as many sockets as it may, or as many raw sockets or forwarders.
    TooManySockets,
    /// Packets of this IP protocol are not a raw socket's: the stack reads and writes them itself.
    ProtocolNotRaw,
    /// The stack has no such interface, or not any more.
    NoSuchInterface,
    /// The interface has as many addresses as it may.
    TooManyAddresses,
    /// No host can have this address.
    NoHostAddress,
    /// An argument cannot be meant, or not beside another.
    InvalidArgument(BadArgument),
}

/// Which argument of a call is wrong, and in what. Every variant reads as a sentence with what was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadArgument {
    /// No packet has addresses of both families.
    FamiliesDiffer {
        /// The address to send from, or of the source that a member of a group asks for.
        local: IpAddr,
        /// The address to send to, or the group.
        remote: IpAddr,
    },
    /// The scopes of the two addresses name different interfaces.
    ScopesDiffer {
        /// What the one says.
        one: u32,
        /// What the other says.
        other: u32,
    },
    /// The port that was named at this address is zero, which asks for any and is nobody's.
    NoPort(IpAddr),
    /// The unspecified address is nobody's.
    NoDestination(IpAddr),
    /// This address stands for many hosts, and a connection has one peer.
    PeerIsMany(IpAddr),
    /// From a loopback address to one that is not this host's.
    LoopbackLeaves {
        /// The address to send to.
        remote: IpAddr,
    },
    /// Nothing comes from a group.
    SourceIsGroup(IpAddr),
    /// A forwarder has no address of its own, and none was named.
    NoSource,
    /// The address is not of the forwarder's prefix, or no single host's.
    OutsidePrefix {
        /// The address to answer from.
        address: IpAddr,
        /// What the forwarder takes.
        prefix: Cidr,
    },
    /// A forwarder cannot be connected.
    Forwarder,
    /// The socket is not a forwarder.
    NoForwarder,
    /// What was to be joined is not a group.
    NoGroup(IpAddr),
    /// Packets to this group do not leave the host, and a raw socket's do not come back to it.
    GroupOfThisHost(IpAddr),
    /// IPv6 has its options elsewhere.
    Ipv4OptionsOverIpv6,
    /// A hop limit of zero.
    NoHops,
    /// The socket is for the ICMP of the other family.
    IcmpOfOtherFamily(IpAddr),
    /// An ICMP message without its type, code and checksum.
    IcmpTooShort {
        /// The length that was given, in bytes.
        len: usize,
    },
    /// What the socket sends are echo requests, or a forwarder's answers, and this is neither.
    NoEcho,
    /// Of several shards only the first has raw sockets.
    NotFirstShard,
    /// A gateway of the other family.
    GatewayOfOtherFamily {
        /// The gateway.
        gateway: IpAddr,
        /// The network it was to lead to.
        destination: Cidr,
    },
    /// The gateway is on no network of the interface.
    FarGateway(IpAddr),
    /// The gateway is this host itself, which forwards nothing.
    OwnGateway(IpAddr),
    /// Two gateways to everywhere, of one family, by one interface.
    TwoGateways(IpAddr, IpAddr),
    /// More prefixes to accept than [`ACCEPTED_PREFIXES_MAX`](crate::ACCEPTED_PREFIXES_MAX).
    TooManyPrefixes(usize),
    /// There are [`INTERFACES_MAX`](crate::INTERFACES_MAX) interfaces.
    TooManyInterfaces,
    /// The text is no key for fast open.
    FastOpenKey,
}

impl fmt::Display for BadArgument {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FamiliesDiffer { local, remote } => write!(
                formatter,
                "no packet goes from {local} to {remote}: one is an IPv4 address and the other an IPv6 one"
            ),
            Self::ScopesDiffer { one, other } => write!(
                formatter,
                "the scopes of the two addresses name different interfaces: {one} and {other}"
            ),
            Self::NoPort(address) => {
                write!(formatter, "the port at {address} is 0, which is nobody's: name another")
            }
            Self::NoDestination(address) => {
                write!(formatter, "{address} stands for no host: name the one to send to")
            }
            Self::PeerIsMany(address) => write!(
                formatter,
                "{address} is a group's or stands for all hosts of a network, and a connection has one peer"
            ),
            Self::LoopbackLeaves { remote } => {
                write!(
                    formatter,
                    "nothing goes from a loopback address to {remote}: it is another host's"
                )
            }
            Self::SourceIsGroup(address) => {
                write!(formatter, "nothing comes from {address}: it is a group's address")
            }
            Self::OutsidePrefix { address, prefix } => write!(
                formatter,
                "{address} is not the address of a host in {prefix}, which the forwarder is for"
            ),
            Self::NoGroup(address) => {
                write!(formatter, "{address} is not the address of a multicast group")
            }
            Self::GroupOfThisHost(group) => {
                write!(formatter, "nothing to the group {group} leaves this host")
            }
            Self::IcmpOfOtherFamily(address) => write!(
                formatter,
                "the socket is for the ICMP of the other IP version than that of {address}"
            ),
            Self::IcmpTooShort { len } => write!(
                formatter,
                "an ICMP message has a header of {ICMP_LEN_MIN} bytes at least, and this one {len}"
            ),
            Self::TooManyPrefixes(count) => write!(
                formatter,
                "{count} prefixes cannot be accepted: {ACCEPTED_PREFIXES_MAX} can, and a shorter one contains many"
            ),
            Self::TooManyInterfaces => {
                write!(formatter, "a stack has {INTERFACES_MAX} interfaces at most: remove one")
            }
            _ => self.fmt_of_gateway(formatter),
        }
    }
}

impl BadArgument {
    /// Those of gateways, and those that hold nothing.
    fn fmt_of_gateway(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GatewayOfOtherFamily { gateway, destination } => write!(
                formatter,
                "the gateway {gateway} does not lead to {destination}: one is IPv4 and the other IPv6"
            ),
            Self::FarGateway(gateway) => write!(
                formatter,
                "the gateway {gateway} is on no network of the interface: give that an address whose network contains it"
            ),
            Self::OwnGateway(gateway) => write!(
                formatter,
                "the gateway {gateway} is an own address, and this host forwards nothing: name the router's"
            ),
            Self::TwoGateways(one, other) => write!(
                formatter,
                "an interface has one gateway of each IP version, not both {one} and {other}"
            ),
            _ => formatter.write_str(self.sentence()),
        }
    }

    /// What is said of those that hold nothing.
    fn sentence(self) -> &'static str {
        match self {
            Self::NoSource => {
                "a forwarder has no address of its own: name the one of its prefix to send from"
            }
            Self::Forwarder => "a forwarder cannot be connected to one peer",
            Self::NoForwarder => "the socket is not a forwarder",
            Self::Ipv4OptionsOverIpv6 => "the connection is over IPv6, which has no IPv4 options",
            Self::NoHops => "a hop limit is a number from 1 to 255",
            Self::NoEcho => {
                "the message is no whole echo request of the destination's IP version, and the socket is for these"
            }
            Self::NotFirstShard => "of several shards only the first has raw sockets",
            Self::FastOpenKey => {
                "a fast open key is four words of eight hexadecimal digits, with `-` between them and a comma before a \
                 second one"
            }
            _ => "an argument is wrong",
        }
    }
}

impl std::error::Error for BadArgument {}

impl From<BadArgument> for SocketError {
    fn from(wrong: BadArgument) -> Self {
        Self::InvalidArgument(wrong)
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::WouldBlock => "the call would have to wait",
            Self::AddressInUse => {
                "the local address is in use: another socket has it with this port, or the interface has it \
                 already"
            }
            Self::AddressNotAvailable => "no interface of this stack has this local address",
            Self::NoPortLeft => "every local port that could be picked is taken",
            Self::NoRoute(to) => {
                return write!(
                    formatter,
                    "no route leads to {to}, or none that the socket may take: give the interface a gateway or a route"
                );
            }
            Self::NetworkUnreachable => "a router on the way has no route to the destination, and says so",
            Self::NoSourceFor(to) => {
                let version = if to.is_ipv4() { "IPv4" } else { "IPv6" };
                return write!(
                    formatter,
                    "there is no {version} address to reach {to} from: give the interface on the way one (or wait until \
                     it has one), and a route"
                );
            }
            Self::DeviceFailed => "the device of the interface on the way has failed",
            Self::HostUnreachable => "the host is unreachable: its neighbour does not answer, or a router says so",
            Self::HostUnknown => "a router on the way does not know the host",
            Self::SourceIsolated => "a router says that this host is cut off from the network",
            Self::SourceRouteFailed => "the host cannot be reached on the way that the packet asks for",
            Self::ParameterProblem => "a packet's header was not understood on its way",
            Self::ProtocolUnreachable => "the host does not speak the protocol, and says so",
            Self::Prohibited => "a filter on the way forbids it",
            Self::ConnectionRefused => "the peer refused the connection",
            Self::ConnectionReset => "the peer reset the connection",
            Self::ConnectionAborted => "the connection was aborted on this side",
            Self::AddressRemoved => "the local address was taken from its interface",
            Self::TimedOut => "the peer did not answer in time",
            Self::NotConnected => "the socket is not connected",
            Self::BrokenPipe => "the sending side of the socket was shut down",
            Self::MessageTooLong => "the datagram is longer than the path takes",
            Self::DestinationRequired => "the socket is not connected: name a destination",
            Self::NoMemory => "no memory is left for packets: raise the pool's limit",
            Self::InvalidSocket => "the number names no open socket of this kind",
            Self::TooManySockets => {
                "the stack holds as many sockets as it may: close some, or raise `sockets_max` (raw \
                 sockets and forwarders are 64 of a kind at most)"
            }
            Self::ProtocolNotRaw => {
                "the stack keeps this IP protocol to itself: TCP and UDP have sockets of their own"
            }
            Self::NoSuchInterface => {
                "there is no such interface: they count from 0, in the order in which they were added"
            }
            Self::TooManyAddresses => {
                "the interface has 64 addresses, as many as it may: whole networks are for \
                 `InterfaceConfig::accept_any`"
            }
            Self::NoHostAddress => {
                "no host can have this address: it is unspecified, a group's, or stands for all hosts of its \
                 network"
            }
            Self::InvalidArgument(wrong) => return wrong.fmt(formatter),
        })
    }
}

impl std::error::Error for SocketError {}

/// Why a connection ended, or what is said of its peer.
pub(crate) fn connection_error(error: ConnectionError) -> SocketError {
    match error {
        ConnectionError::Refused => SocketError::ConnectionRefused,
        ConnectionError::Reset => SocketError::ConnectionReset,
        ConnectionError::BrokenPipe => SocketError::BrokenPipe,
        ConnectionError::TimedOut => SocketError::TimedOut,
        ConnectionError::HostUnreachable => SocketError::HostUnreachable,
        ConnectionError::NetworkUnreachable => SocketError::NetworkUnreachable,
        ConnectionError::HostUnknown => SocketError::HostUnknown,
        ConnectionError::SourceIsolated => SocketError::SourceIsolated,
        ConnectionError::SourceRouteFailed => SocketError::SourceRouteFailed,
        ConnectionError::ParameterProblem => SocketError::ParameterProblem,
        ConnectionError::ProtocolUnreachable => SocketError::ProtocolUnreachable,
        ConnectionError::Prohibited => SocketError::Prohibited,
        ConnectionError::AddressRemoved => SocketError::AddressRemoved,
        ConnectionError::Aborted => SocketError::ConnectionAborted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_that_is_refused_is_named_with_its_value() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let (local, remote) = (ip("10.0.0.1"), ip("fd00::1"));
        let prefix = "10.0.0.0/8".parse().expect("a network");
        for (wrong, names) in [
            (BadArgument::FamiliesDiffer { local, remote }, "10.0.0.1 to fd00::1"),
            (BadArgument::ScopesDiffer { one: 3, other: 4 }, "3 and 4"),
            (BadArgument::NoPort(remote), "fd00::1 is 0"),
            (BadArgument::PeerIsMany(ip("224.0.0.1")), "224.0.0.1"),
            (BadArgument::OutsidePrefix { address: remote, prefix }, "fd00::1 is not"),
            (BadArgument::FarGateway(local), "10.0.0.1"),
            (BadArgument::TooManyPrefixes(70), "70 prefixes"),
        ] {
            let sentence = SocketError::from(wrong).to_string();
            assert!(sentence.contains(names), "{sentence}");
        }
    }

    /// It is returned by every call.
    #[test]
    fn an_error_stays_small() {
        assert!(size_of::<SocketError>() <= 40, "{}", size_of::<SocketError>());
    }
}
