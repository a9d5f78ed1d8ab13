//! Messages as they lie in a datagram (RFC 2131, 2; RFC 2132).
//!
//! ```text
//!  | op | htype | hlen | hops |  xid 4  | secs 2 | flags 2 | ciaddr | yiaddr | siaddr | giaddr |
//!  | chaddr 16 | sname 64 | file 128 | 99 130 83 99 | code len bytes | code len bytes | ... 255 |
//! ```
//!
//! What a client sends is a [`ClientMessage`], what it reads a [`ServerMessage`]: the fields and
//! options that the client and the server here have a use for. Options may be continued in `sname`
//! and `file` (RFC 2132, 9.3) and be split (RFC 3396).

use core::net::Ipv4Addr;
use wire::{HardwareAddress, Malformed};

const FIXED_LEN: usize = 236;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// RFC 2131, 2, by way of BOOTP: shorter messages are refused by some servers and relays.
const LEN_MIN: usize = 300;
/// Longest option value that is put together, RFC 3396 pieces and all.
const OPTION_LEN_MAX: usize = 1_024;
/// Routers and DNS servers that are kept of one message.
pub(crate) const LIST_MAX: usize = 16;
/// A client identifier may be as long as one of RFC 4361: its type, an IAID, and a DUID (RFC 8415, 11.1). With
/// everything else it fits what every server takes.
const CLIENT_IDENTIFIER_LEN_MAX: usize = 135;

const OP_REQUEST: u8 = 1;
const OP_REPLY: u8 = 2;
const HARDWARE_ETHERNET: u8 = 1;
const FLAG_BROADCAST: u16 = 0x8000;

pub(crate) mod code {
    pub(crate) const PAD: u8 = 0;
    pub(crate) const SUBNET_MASK: u8 = 1;
    pub(crate) const ROUTERS: u8 = 3;
    pub(crate) const NAME_SERVERS: u8 = 6;
    pub(crate) const HOST_NAME: u8 = 12;
    pub(crate) const MTU: u8 = 26;
    pub(crate) const REQUESTED_ADDRESS: u8 = 50;
    pub(crate) const LEASE_TIME: u8 = 51;
    pub(crate) const OVERLOAD: u8 = 52;
    pub(crate) const MESSAGE_TYPE: u8 = 53;
    pub(crate) const SERVER_IDENTIFIER: u8 = 54;
    pub(crate) const PARAMETERS: u8 = 55;
    pub(crate) const MESSAGE_LEN_MAX: u8 = 57;
    pub(crate) const RENEWAL_TIME: u8 = 58;
    pub(crate) const REBINDING_TIME: u8 = 59;
    pub(crate) const CLIENT_IDENTIFIER: u8 = 61;
    pub(crate) const CLASSLESS_ROUTES: u8 = 121;
    pub(crate) const END: u8 = 255;
}

/// What is asked for. RFC 3442: classless routes before routers, which they replace.
const PARAMETERS: [u8; 8] = [
    code::SUBNET_MASK,
    code::CLASSLESS_ROUTES,
    code::ROUTERS,
    code::NAME_SERVERS,
    code::MTU,
    code::LEASE_TIME,
    code::RENEWAL_TIME,
    code::REBINDING_TIME,
];

/// The type of a message (RFC 2132, 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// A client looks for servers.
    Discover,
    /// A server has an address to give.
    Offer,
    /// A client takes an offer, or wants its lease extended.
    Request,
    /// The address is somebody's already.
    Decline,
    /// A server commits the lease.
    Ack,
    /// A server refuses.
    Nak,
    /// A client gives its address back.
    Release,
    /// A client that has its address from elsewhere asks for everything else.
    Inform,
}

impl MessageKind {
    const ALL: [(u8, Self); 8] = [
        (1, Self::Discover),
        (2, Self::Offer),
        (3, Self::Request),
        (4, Self::Decline),
        (5, Self::Ack),
        (6, Self::Nak),
        (7, Self::Release),
        (8, Self::Inform),
    ];

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == number).map(|(_, kind)| *kind)
    }

    pub(crate) fn number(self) -> u8 {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or(0, |(number, _)| *number)
    }
}

/// What a client sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMessage {
    /// What it is.
    pub kind: MessageKind,
    /// Tells this exchange from others.
    pub transaction: u32,
    /// Seconds since the client began.
    pub seconds: u16,
    /// The client's own address, where it has one already; unspecified otherwise, and then the
    /// answer is asked to be broadcast.
    pub client_address: Ipv4Addr,
    /// The client's hardware address.
    pub station: HardwareAddress,
    /// The address asked for, declined or given back.
    pub requested: Option<Ipv4Addr>,
    /// The server that is meant.
    pub server: Option<Ipv4Addr>,
    /// What servers know the client by, with its type: 2 to 135 bytes, of which those behind are left out.
    /// `None` is the hardware address (RFC 2132, 9.14).
    pub client_identifier: Option<Vec<u8>>,
    /// The client's name.
    pub host_name: Option<String>,
}

/// A client identifier (RFC 4361, 6.1) for who shares the hardware address `station` with another client: of type
/// 255, with an IAID that is this stack's and a DUID of the hardware address (RFC 8415, 11.4). The same at each start.
#[must_use]
pub fn distinct_identifier(station: HardwareAddress) -> Vec<u8> {
    const IAID: [u8; 4] = *b"mdat";
    const DUID_LL: [u8; 4] = [0, 3, 0, HARDWARE_ETHERNET];
    [&[255][..], &IAID, &DUID_LL, &station.0].concat()
}

impl ClientMessage {
    /// The bytes of the datagram.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = vec![0; FIXED_LEN];
        // RFC 2131, table 5: both fields are zero in DECLINE and RELEASE, which have no answer.
        let is_answered = matches!(self.kind, MessageKind::Discover | MessageKind::Request);
        let seconds = if is_answered { self.seconds } else { 0 };
        out[..3].copy_from_slice(&[OP_REQUEST, HARDWARE_ETHERNET, 6]);
        out[4..8].copy_from_slice(&self.transaction.to_be_bytes());
        out[8..10].copy_from_slice(&seconds.to_be_bytes());
        // RFC 2131, 4.1: who cannot receive unicast before it is configured sets the flag.
        let is_deaf = is_answered && self.client_address.is_unspecified();
        let flags = if is_deaf { FLAG_BROADCAST } else { 0 };
        out[10..12].copy_from_slice(&flags.to_be_bytes());
        out[12..16].copy_from_slice(&self.client_address.octets());
        out[28..34].copy_from_slice(&self.station.0);
        out.extend(COOKIE);
        let mut option = |code: u8, value: &[u8]| {
            out.extend([code, value.len() as u8]);
            out.extend(value);
        };
        option(code::MESSAGE_TYPE, &[self.kind.number()]);
        match &self.client_identifier {
            Some(own) => {
                option(code::CLIENT_IDENTIFIER, &own[..own.len().min(CLIENT_IDENTIFIER_LEN_MAX)]);
            }
            None => {
                let [a, b, c, d, e, f] = self.station.0;
                option(code::CLIENT_IDENTIFIER, &[HARDWARE_ETHERNET, a, b, c, d, e, f]);
            }
        }
        if let Some(address) = self.requested {
            option(code::REQUESTED_ADDRESS, &address.octets());
        }
        if let Some(server) = self.server {
            option(code::SERVER_IDENTIFIER, &server.octets());
        }
        // RFC 2131, table 5: neither of these in DECLINE and RELEASE.
        if is_answered {
            option(code::PARAMETERS, &PARAMETERS);
            option(code::MESSAGE_LEN_MAX, &1_472_u16.to_be_bytes());
            if let Some(name) = &self.host_name {
                let bytes = name.as_bytes();
                option(code::HOST_NAME, &bytes[..bytes.len().min(63)]);
            }
        }
        out.push(code::END);
        out.resize(out.len().max(LEN_MIN), 0);
        out
    }

    /// Reads a datagram's payload.
    ///
    /// # Errors
    /// As [`ServerMessage::parse`], the other way round; [`Malformed::BadVersion`] also where a relay sent it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (fixed, options) = split(bytes, OP_REQUEST)?;
        let areas = areas(fixed, options);
        let value = |code| collect(&areas, code);
        let kind = kind(&areas).filter(|kind| {
            !matches!(kind, MessageKind::Offer | MessageKind::Ack | MessageKind::Nak)
        });
        let is_relayed = fixed[24..28] != [0; 4];
        let [.., x0, x1, x2, x3, s0, s1] =
            *fixed.first_chunk::<10>().ok_or(Malformed::Truncated)?;
        let identifier = value(code::CLIENT_IDENTIFIER);
        Ok(Self {
            kind: kind.filter(|_| !is_relayed).ok_or(Malformed::BadVersion)?,
            transaction: u32::from_be_bytes([x0, x1, x2, x3]),
            seconds: u16::from_be_bytes([s0, s1]),
            client_address: Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15]),
            station: station(fixed),
            requested: address(&value(code::REQUESTED_ADDRESS))?,
            server: address(&value(code::SERVER_IDENTIFIER))?,
            client_identifier: Some(identifier)
                .filter(|it| (2..=CLIENT_IDENTIFIER_LEN_MAX).contains(&it.len())),
            host_name: String::from_utf8(value(code::HOST_NAME)).ok().filter(|it| !it.is_empty()),
        })
    }
}

/// What a server answers to `question`, which was read as a [`ClientMessage`]: an answer has the fields of its question,
/// but for those that RFC 2131, table 3 says otherwise of.
pub(crate) fn answer(
    question: &[u8],
    kind: MessageKind,
    yours: Ipv4Addr,
    options: &[(u8, Vec<u8>)],
) -> Vec<u8> {
    let mut out = question[..FIXED_LEN].to_vec();
    out[0] = OP_REPLY;
    // Hops and seconds.
    out[3] = 0;
    out[8..10].fill(0);
    if kind != MessageKind::Ack {
        // The client's address, which only an ACK has again.
        out[12..16].fill(0);
    }
    out[16..20].copy_from_slice(&yours.octets());
    out[20..28].fill(0);
    out[44..].fill(0);
    out.extend(COOKIE);
    out.extend([code::MESSAGE_TYPE, 1, kind.number()]);
    for (code, value) in options {
        out.extend([*code, value.len() as u8]);
        out.extend(value);
    }
    out.push(code::END);
    out.resize(out.len().max(LEN_MIN), 0);
    out
}

/// A route that a server gave (RFC 3442).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The network; its host bits are zero.
    pub network: Ipv4Addr,
    /// Length of its prefix in bits, 0 to 32.
    pub prefix_len: u8,
    /// The router; unspecified where the network is on the link.
    pub gateway: Ipv4Addr,
}

/// What a server sent, as far as this client has a use for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerMessage {
    /// What it is: an offer, an ACK or a NAK.
    pub kind: MessageKind,
    /// The client's transaction.
    pub transaction: u32,
    /// The client's hardware address.
    pub station: HardwareAddress,
    /// The address offered or leased.
    pub your_address: Ipv4Addr,
    /// Who sent it.
    pub server: Option<Ipv4Addr>,
    /// Length of the network's prefix in bits.
    pub prefix_len: Option<u8>,
    /// Routers, the best first; at most 16.
    pub routers: Vec<Ipv4Addr>,
    /// Routes, which replace `routers` where there are any (RFC 3442); at most 204, as many as their option holds.
    pub routes: Vec<Route>,
    /// DNS servers; at most 16.
    pub name_servers: Vec<Ipv4Addr>,
    /// Longest packet in bytes.
    pub mtu_bytes: Option<u16>,
    /// Length of the lease in seconds; all ones: for ever.
    pub lease_s: Option<u32>,
    /// When to renew it (T1), in seconds.
    pub renewal_s: Option<u32>,
    /// When to ask any server (T2), in seconds.
    pub rebinding_s: Option<u32>,
}

impl ServerMessage {
    /// Reads a datagram's payload.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] where it is too short; [`Malformed::BadVersion`] where it is no DHCP
    /// message from a server to an Ethernet client; [`Malformed::BadOption`] where an option that
    /// matters contradicts itself.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (fixed, options) = split(bytes, OP_REPLY)?;
        let areas = areas(fixed, options);
        let value = |code| collect(&areas, code);
        let kind = kind(&areas).filter(|kind| {
            matches!(kind, MessageKind::Offer | MessageKind::Ack | MessageKind::Nak)
        });
        let [.., x0, x1, x2, x3] = *fixed.first_chunk::<8>().ok_or(Malformed::Truncated)?;
        let mask = address(&value(code::SUBNET_MASK))?;
        let prefix_len = match mask.map(u32::from) {
            Some(mask) if mask.leading_ones() + mask.trailing_zeros() < 32 => {
                return Err(Malformed::BadOption);
            }
            mask => mask.map(|mask| mask.leading_ones() as u8),
        };
        Ok(Self {
            kind: kind.ok_or(Malformed::BadVersion)?,
            transaction: u32::from_be_bytes([x0, x1, x2, x3]),
            station: station(fixed),
            your_address: Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]),
            server: address(&value(code::SERVER_IDENTIFIER))?,
            prefix_len,
            routers: addresses(&value(code::ROUTERS)),
            routes: routes(&value(code::CLASSLESS_ROUTES))?,
            name_servers: addresses(&value(code::NAME_SERVERS)),
            mtu_bytes: number(&value(code::MTU)).map(u16::from_be_bytes),
            lease_s: number(&value(code::LEASE_TIME)).map(u32::from_be_bytes),
            renewal_s: number(&value(code::RENEWAL_TIME)).map(u32::from_be_bytes),
            rebinding_s: number(&value(code::REBINDING_TIME)).map(u32::from_be_bytes),
        })
    }
}

/// The fixed part of a message of an Ethernet client or to one, and what lies behind the cookie.
fn split(bytes: &[u8], op: u8) -> Result<(&[u8; FIXED_LEN], &[u8]), Malformed> {
    let (fixed, rest) = bytes.split_first_chunk::<FIXED_LEN>().ok_or(Malformed::Truncated)?;
    let options = rest.strip_prefix(&COOKIE).ok_or(Malformed::BadVersion)?;
    match fixed[..3] == [op, HARDWARE_ETHERNET, 6] {
        true => Ok((fixed, options)),
        false => Err(Malformed::BadVersion),
    }
}

fn kind(areas: &[&[u8]]) -> Option<MessageKind> {
    collect(areas, code::MESSAGE_TYPE).first().copied().and_then(MessageKind::from_number)
}

fn station(fixed: &[u8; FIXED_LEN]) -> HardwareAddress {
    HardwareAddress(core::array::from_fn(|index| fixed[28 + index]))
}

/// Where options lie: behind the cookie and, where the overload option says so, in `file` and
/// `sname`, in this order (RFC 2131, 4.1).
fn areas<'a>(fixed: &'a [u8; FIXED_LEN], options: &'a [u8]) -> Vec<&'a [u8]> {
    let overload = collect(&[options], code::OVERLOAD).first().copied().unwrap_or(0);
    let mut areas = vec![options];
    if overload & 1 != 0 {
        areas.push(&fixed[108..236]);
    }
    if overload & 2 != 0 {
        areas.push(&fixed[44..108]);
    }
    areas
}

/// The value of an option, its pieces put together (RFC 3396, 7); empty where there is none. An
/// option that is cut off ends its area.
fn collect(areas: &[&[u8]], wanted: u8) -> Vec<u8> {
    let mut value = Vec::new();
    for area in areas {
        let mut rest = *area;
        // Every turn takes at least one byte.
        loop {
            rest = match *rest {
                [] | [code::END, ..] => break,
                [code::PAD, ref rest @ ..] => rest,
                [code, len, ref rest @ ..] => {
                    let Some((piece, rest)) = rest.split_at_checked(len.into()) else { break };
                    if code == wanted && value.len() + piece.len() <= OPTION_LEN_MAX {
                        value.extend_from_slice(piece);
                    }
                    rest
                }
                [_] => break,
            };
        }
    }
    value
}

fn number<const LEN: usize>(value: &[u8]) -> Option<[u8; LEN]> {
    value.try_into().ok()
}

fn address(value: &[u8]) -> Result<Option<Ipv4Addr>, Malformed> {
    match value {
        [] => Ok(None),
        [a, b, c, d] => Ok(Some(Ipv4Addr::new(*a, *b, *c, *d))),
        _ => Err(Malformed::BadOption),
    }
}

fn addresses(value: &[u8]) -> Vec<Ipv4Addr> {
    let all = value
        .chunks_exact(4)
        .map(|octets| Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]));
    all.take(LIST_MAX).collect()
}

/// RFC 3442: a prefix length, as many octets of the network as matter, a router.
fn routes(value: &[u8]) -> Result<Vec<Route>, Malformed> {
    let mut routes = Vec::new();
    let mut rest = value;
    // Every turn takes at least five bytes.
    while let [prefix_len, tail @ ..] = rest {
        let significant = usize::from(*prefix_len).div_ceil(8);
        let (Some((network, tail)), true) = (tail.split_at_checked(significant), *prefix_len <= 32)
        else {
            return Err(Malformed::BadOption);
        };
        let (gateway, tail) = tail.split_first_chunk::<4>().ok_or(Malformed::BadOption)?;
        let mut octets = [0; 4];
        octets[..significant].copy_from_slice(network);
        let mask = u32::MAX.checked_shl(32 - u32::from(*prefix_len)).unwrap_or(0);
        let network = Ipv4Addr::from(u32::from_be_bytes(octets) & mask);
        routes.push(Route { network, prefix_len: *prefix_len, gateway: (*gateway).into() });
        rest = tail;
    }
    Ok(routes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STATION: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 1]);

    /// A server's message with these options, in wire format.
    fn reply(options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; FIXED_LEN];
        bytes[..3].copy_from_slice(&[OP_REPLY, 1, 6]);
        bytes[4..8].copy_from_slice(&7_u32.to_be_bytes());
        bytes[16..20].copy_from_slice(&[10, 0, 0, 9]);
        bytes[28..34].copy_from_slice(&STATION.0);
        bytes.extend(COOKIE);
        bytes.extend(options);
        bytes
    }

    /// RFC 2131, 2 and 4.1; RFC 2132, 9.
    #[test]
    fn a_discover_is_laid_out_as_rfc_2131_says() {
        let message = ClientMessage {
            kind: MessageKind::Discover,
            transaction: 0x0102_0304,
            seconds: 5,
            client_address: Ipv4Addr::UNSPECIFIED,
            station: STATION,
            requested: Some(Ipv4Addr::new(10, 0, 0, 9)),
            server: None,
            client_identifier: None,
            host_name: Some("here".into()),
        };
        let bytes = message.emit();
        assert!(bytes.len() >= 300);
        assert_eq!(bytes[..12], [1, 1, 6, 0, 1, 2, 3, 4, 0, 5, 0x80, 0]);
        assert_eq!(bytes[28..34], STATION.0);
        assert_eq!(bytes[236..243], [99, 130, 83, 99, 53, 1, 1]);
        let text = bytes.windows(6).any(|window| window == [12, 4, b'h', b'e', b'r', b'e']);
        assert!(text && bytes.windows(6).any(|window| window == [50, 4, 10, 0, 0, 9]));
        assert_eq!(bytes[243..252], [61, 7, 1, 2, 0, 0, 0, 0, 1], "the hardware address");
        let declined = ClientMessage { kind: MessageKind::Decline, ..message.clone() };
        assert_eq!(declined.emit()[8..12], [0; 4], "table 5: neither seconds nor flags");
        let bound = ClientMessage { client_address: Ipv4Addr::new(10, 0, 0, 9), ..message };
        assert_eq!(bound.emit()[10..12], [0, 0], "who has an address takes unicast");
    }

    /// RFC 2131, 2: "the client identifier [...] MUST be unique" on its subnet; RFC 4361, 6.1.
    #[test]
    fn who_shares_a_hardware_address_has_an_identifier_of_its_own() {
        let own = distinct_identifier(STATION);
        assert_eq!(own, [&[255][..], b"mdat", &[0, 3, 0, 1], &STATION.0].concat());
        for (identifier, len) in [(own, 15), (vec![7; 1_000], CLIENT_IDENTIFIER_LEN_MAX)] {
            let message = ClientMessage {
                kind: MessageKind::Request,
                transaction: 1,
                seconds: 0,
                client_address: Ipv4Addr::UNSPECIFIED,
                station: STATION,
                requested: Some(Ipv4Addr::new(10, 0, 0, 9)),
                server: Some(Ipv4Addr::new(10, 0, 0, 1)),
                client_identifier: Some(identifier.clone()),
                host_name: Some("h".repeat(100)),
            };
            let bytes = message.emit();
            assert_eq!(bytes[243..245], [61, len as u8]);
            assert_eq!(bytes[245..245 + len], identifier[..len]);
            assert!(bytes.len() <= 548, "what every server takes: {}", bytes.len());
        }
    }

    /// RFC 3442 bounds them by their option alone.
    #[test]
    fn as_many_routes_are_read_as_their_option_holds() {
        let near = |number: u8| [24, 10, 1, number, 10, 0, 0, 1];
        let mut pieces = vec![53, 1, 5];
        for piece in 0..4 {
            pieces.extend([121, 248]);
            (0..31).for_each(|number| pieces.extend(near(31 * piece + number)));
        }
        // The default route last.
        pieces.extend([121, 5, 0, 10, 0, 0, 2, 255]);
        let message = ServerMessage::parse(&reply(&pieces)).expect("a sound message");
        assert_eq!(message.routes.len(), 125);
        let last = message.routes.last().expect("many");
        assert_eq!((last.prefix_len, last.gateway), (0, Ipv4Addr::new(10, 0, 0, 2)));
    }

    #[test]
    fn an_ack_is_read_with_all_that_it_brings() {
        let options = [
            &[53, 1, 5, 54, 4, 10, 0, 0, 1, 1, 4, 255, 255, 255, 0][..],
            &[3, 8, 10, 0, 0, 1, 10, 0, 0, 2, 6, 4, 10, 0, 0, 53, 26, 2, 0x05, 0x78],
            &[51, 4, 0, 0, 14, 16, 58, 4, 0, 0, 7, 8, 59, 4, 0, 0, 12, 78, 0, 0],
            // RFC 3442, in two pieces (RFC 3396): 10.17/16 by 10.0.0.3, everything by 10.0.0.1.
            &[121, 4, 16, 10, 17, 10, 121, 8, 0, 0, 3, 0, 10, 0, 0, 1, 255],
        ]
        .concat();
        let message = ServerMessage::parse(&reply(&options)).expect("a sound message");
        assert_eq!(message.kind, MessageKind::Ack);
        assert_eq!((message.transaction, message.station), (7, STATION));
        assert_eq!(message.your_address, Ipv4Addr::new(10, 0, 0, 9));
        assert_eq!((message.server, message.prefix_len), (Some([10, 0, 0, 1].into()), Some(24)));
        assert_eq!(message.routers, [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)]);
        assert_eq!(message.name_servers, [Ipv4Addr::new(10, 0, 0, 53)]);
        assert_eq!(message.mtu_bytes, Some(1_400));
        let times = (message.lease_s, message.renewal_s, message.rebinding_s);
        assert_eq!(times, (Some(3_600), Some(1_800), Some(3_150)));
        let route = |network: [u8; 4], prefix_len, gateway: [u8; 4]| Route {
            network: network.into(),
            prefix_len,
            gateway: gateway.into(),
        };
        let expected = [route([10, 17, 0, 0], 16, [10, 0, 0, 3]), route([0; 4], 0, [10, 0, 0, 1])];
        assert_eq!(message.routes, expected);
    }

    /// RFC 2132, 9.3: "the option's value: 1 the 'file' field [...] 2 the 'sname' field 3 both".
    #[test]
    fn options_continue_where_the_overload_option_says() {
        let mut bytes = reply(&[53, 1, 2, 52, 1, 3, 255]);
        bytes[108..115].copy_from_slice(&[51, 4, 0, 0, 0, 60, 255]);
        bytes[44..51].copy_from_slice(&[54, 4, 10, 0, 0, 1, 255]);
        let message = ServerMessage::parse(&bytes).expect("a sound message");
        assert_eq!((message.lease_s, message.server), (Some(60), Some([10, 0, 0, 1].into())));
        bytes[242] = 0;
        let message = ServerMessage::parse(&bytes).map(|message| message.lease_s);
        assert_eq!(message, Err(Malformed::BadVersion), "byte 242 was the message's type");
    }

    #[test]
    fn what_is_no_answer_of_a_server_is_refused() {
        let offer = [53, 1, 2];
        let parse = |options: &[u8]| ServerMessage::parse(&reply(options)).map(|_| ());
        assert_eq!(parse(&offer), Ok(()));
        assert_eq!(parse(&[53, 1, 1]), Err(Malformed::BadVersion), "a client's message");
        assert_eq!(parse(&[]), Err(Malformed::BadVersion));
        let with = |more: &[u8]| parse(&[&offer[..], more].concat());
        assert_eq!(with(&[1, 4, 255, 0, 255, 0]), Err(Malformed::BadOption), "a mask with holes");
        assert_eq!(with(&[54, 3, 10, 0, 0]), Err(Malformed::BadOption));
        assert_eq!(with(&[121, 5, 33, 0, 0, 0, 0]), Err(Malformed::BadOption));
        assert_eq!(with(&[121, 4, 8, 10, 0, 0]), Err(Malformed::BadOption));
        let mut bytes = reply(&offer);
        bytes[0] = OP_REQUEST;
        assert_eq!(ServerMessage::parse(&bytes).map(|_| ()), Err(Malformed::BadVersion));
        assert_eq!(ServerMessage::parse(&bytes[..235]).map(|_| ()), Err(Malformed::Truncated));
    }

    proptest! {
        #[test]
        fn any_options_parse_within_the_bounds_or_are_refused(options: Vec<u8>, kind in 2_u8..7) {
            let options = [&[53, 1, kind][..], &options].concat();
            if let Ok(message) = ServerMessage::parse(&reply(&options)) {
                prop_assert!(message.routers.len().max(message.name_servers.len()) <= LIST_MAX);
                prop_assert!(message.routes.len() <= OPTION_LEN_MAX / 5);
            }
        }

        #[test]
        fn any_bytes_parse_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = ServerMessage::parse(&bytes);
        }
    }
}
