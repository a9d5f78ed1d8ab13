//! Packets of scripts.

use super::Parsed;
use super::scanner::{Meaning, Scanner};
use crate::script::{
    ClassCheck, Direction, Expression, Flags, Fragment, Icmp, IpInfo, Packet, Quoted, Tcp,
    TcpOption, Transport, Udp,
};

/// ECN code points (RFC 3168, 5).
const ECT1: u8 = 1;
const ECT0: u8 = 2;
const CE: u8 = 3;

pub(super) fn packet(scanner: &mut Scanner<'_>) -> Parsed<Packet> {
    let direction = match scanner.accept("<") {
        true => Direction::Inbound,
        false => {
            scanner.expect(">")?;
            Direction::Outbound
        }
    };
    scanner.skip_space()?;
    for encapsulation in ["ipv4", "ipv6", "gre", "GREv0", "mpls", "psp"] {
        if scanner.accept_word(encapsulation) {
            return Err(scanner.error(format!("encapsulation ({encapsulation}) is not supported")));
        }
    }
    let ip = ip_info(scanner)?;
    if ip.class == ClassCheck::Ect01 && direction == Direction::Inbound {
        return Err(scanner.error("[ect01] is only for packets that are sent"));
    }
    if ip.may_fragment && direction == Direction::Inbound {
        return Err(scanner.error("[nodf] is only for packets that are sent"));
    }
    scanner.skip_space()?;
    let transport = if scanner.accept_word("udp") {
        Transport::Udp(udp(scanner)?)
    } else if scanner.accept_word("icmp") {
        Transport::Icmp(icmp(scanner)?)
    } else {
        let tcp = tcp(scanner)?;
        if direction == Direction::Inbound && tcp.window.is_none() {
            return Err(scanner.error("a packet that is received must have a window"));
        }
        if direction == Direction::Inbound && tcp.options.is_none() {
            return Err(scanner.error("<...> is only for packets that are sent"));
        }
        if direction == Direction::Outbound && tcp.data.is_some() {
            return Err(scanner.error("data is only for packets that are received"));
        }
        Transport::Tcp(tcp)
    };
    let is_udp = matches!(transport, Transport::Udp(_));
    if direction == Direction::Outbound && ip.fragment.is_some() && !is_udp {
        return Err(scanner.error("only datagrams are sent in fragments"));
    }
    Ok(Packet { direction, ip, transport })
}

fn ip_info(scanner: &mut Scanner<'_>) -> Parsed<IpInfo> {
    let mut info = IpInfo::default();
    let close = match scanner.peek() {
        Some('[') => "]",
        Some('(') => ")",
        _ => return Ok(info),
    };
    scanner.advance(1);
    loop {
        scanner.skip_space()?;
        match scanner.raw_word().as_str() {
            "noecn" => info.class = ClassCheck::Ecn(0),
            "ect0" => info.class = ClassCheck::Ecn(ECT0),
            "ect1" => info.class = ClassCheck::Ecn(ECT1),
            "ce" => info.class = ClassCheck::Ecn(CE),
            "ect01" => info.class = ClassCheck::Ect01,
            "tos" => info.class = ClassCheck::Byte(scanner.number("tos")?),
            "ttl" => info.ttl = Some(scanner.number("ttl")?),
            "frag" => info.fragment = Some(fragment(scanner)?),
            "nodf" => info.may_fragment = true,
            "flowlabel" => info.flow_label = Some(scanner.number("flowlabel")?),
            other => return Err(scanner.error(format!("{other:?} says nothing of an IP header"))),
        }
        scanner.skip_space()?;
        if scanner.accept(close) {
            return Ok(info);
        }
        scanner.expect(",")?;
    }
}

/// `7:1480@0+`
fn fragment(scanner: &mut Scanner<'_>) -> Parsed<Fragment> {
    let id = scanner.number("the identification")?;
    scanner.expect(":")?;
    let len = scanner.number("the length")?;
    scanner.expect("@")?;
    let offset: u16 = scanner.number("the offset")?;
    if !offset.is_multiple_of(8) {
        return Err(scanner.error("the offset of a fragment is a multiple of 8"));
    }
    Ok(Fragment { id, len, offset, more: scanner.accept("+") })
}

/// `80 > 8080`, where it stands.
fn ports(scanner: &mut Scanner<'_>) -> Parsed<Option<(u16, u16)>> {
    scanner.skip_space()?;
    let rest = scanner.rest();
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
    if digits == 0 || !rest[digits..].trim_start().starts_with('>') {
        return Ok(None);
    }
    let source = scanner.number("the source port")?;
    scanner.expect(">")?;
    let destination = scanner.number("the destination port")?;
    scanner.skip_space()?;
    Ok(Some((source, destination)))
}

fn tcp(scanner: &mut Scanner<'_>) -> Parsed<Tcp> {
    let ports = ports(scanner)?;
    let flags = flags(scanner)?;
    let (sequence, len) = sequence(scanner)?;
    let mut tcp = Tcp {
        ports,
        flags,
        sequence,
        len,
        acknowledgment: 0,
        window: None,
        urgent: 0,
        data: None,
        options: Some(Vec::new()),
    };
    scanner.skip_space()?;
    if scanner.accept_word("ack") {
        tcp.acknowledgment = scanner.number("the acknowledgment number")?;
        scanner.skip_space()?;
    }
    if scanner.accept_word("win") {
        tcp.window = Some(scanner.number("the window")?);
        scanner.skip_space()?;
    }
    if scanner.accept_word("urg") {
        tcp.urgent = scanner.number("the urgent pointer")?;
        scanner.skip_space()?;
    }
    if scanner.accept("<") {
        scanner.skip_space()?;
        if scanner.accept("...") {
            tcp.options = None;
            scanner.expect(">")?;
        } else {
            tcp.options = Some(options(scanner)?);
        }
        scanner.skip_space()?;
    }
    if scanner.accept_word("data") {
        tcp.data = Some(data(scanner, len)?);
    }
    Ok(tcp)
}

/// `data "text"`, in the place of the bytes that belong there.
fn data(scanner: &mut Scanner<'_>, len: u16) -> Parsed<Vec<u8>> {
    scanner.skip_space()?;
    let Expression::Text(bytes) = super::expression::expression(scanner)? else {
        return Err(scanner.error("data is a text"));
    };
    match bytes.len() == usize::from(len) {
        true => Ok(bytes),
        false => {
            Err(scanner.error(format!("{} bytes of data, and a length of {len}", bytes.len())))
        }
    }
}

fn flags(scanner: &mut Scanner<'_>) -> Parsed<Flags> {
    let rest = scanner.rest();
    let len = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let mut flags = Flags::default();
    for letter in rest[..len].chars() {
        if let Some((_, bit)) = Flags::LETTERS.iter().find(|(name, _)| *name == letter) {
            flags.bits |= bit;
        } else if let Some(ace) = letter.to_digit(8) {
            flags.is_ace = ace != 0;
            flags.bits |= (ace as u16 & 0b11) << 6 | (ace as u16 >> 2) << 8;
        } else if letter != '-' {
            return Err(scanner.error(format!("{letter:?} is no TCP flag")));
        }
    }
    if len == 0 {
        return Err(scanner.error("expected TCP flags"));
    }
    scanner.advance(len);
    Ok(flags)
}

/// `1:1001(1000)`
fn sequence(scanner: &mut Scanner<'_>) -> Parsed<(u32, u16)> {
    let first: u32 = scanner.number("the sequence number")?;
    scanner.expect(":")?;
    let end: u32 = scanner.number("the end of the sequence")?;
    scanner.expect("(")?;
    let len: u16 = scanner.number("the length")?;
    if first.wrapping_add(u32::from(len)) != end {
        return Err(scanner.error("the sequence numbers do not agree with the length"));
    }
    scanner.expect(")")?;
    Ok((first, len))
}

fn options(scanner: &mut Scanner<'_>) -> Parsed<Vec<TcpOption>> {
    let mut options = Vec::new();
    loop {
        scanner.skip_space()?;
        options.push(option(scanner)?);
        scanner.skip_space()?;
        if scanner.accept(">") {
            return Ok(options);
        }
        scanner.expect(",")?;
    }
}

fn option(scanner: &mut Scanner<'_>) -> Parsed<TcpOption> {
    let name = scanner.raw_word();
    Ok(match name.as_str() {
        "nop" => TcpOption::Nop,
        "eol" => TcpOption::Eol,
        "mss" => TcpOption::Mss(scanner.number("mss")?),
        "wscale" => TcpOption::WindowScale(scanner.number("wscale")?),
        "sackOK" => TcpOption::SackPermitted,
        "sack" => TcpOption::Sack(sack_blocks(scanner)?),
        "TS" => {
            scanner.skip_space()?;
            scanner.expect("val")?;
            let value = scanner.number("TSval")?;
            scanner.expect("ecr")?;
            TcpOption::Timestamps { value, echo: scanner.number("TSecr")? }
        }
        "md5" => TcpOption::Md5(hex(scanner)?),
        "FO" => TcpOption::FastOpen(hex(scanner)?),
        "FOEXP" => TcpOption::FastOpenExperimental(hex(scanner)?),
        "ECN" => acc_ecn(scanner)?,
        "kind" => {
            let kind = scanner.number("a kind")?;
            TcpOption::Other { kind, data: hex(scanner)? }
        }
        other => return Err(scanner.error(format!("{other:?} is no TCP option"))),
    })
}

fn sack_blocks(scanner: &mut Scanner<'_>) -> Parsed<Vec<(u32, u32)>> {
    let mut blocks = Vec::new();
    loop {
        scanner.skip_space()?;
        if !scanner.peek().is_some_and(|c| c.is_ascii_digit()) {
            return Ok(blocks);
        }
        let left = scanner.number("the left edge")?;
        scanner.expect(":")?;
        blocks.push((left, scanner.number("the right edge")?));
    }
}

fn hex(scanner: &mut Scanner<'_>) -> Parsed<Vec<u8>> {
    scanner.skip_space()?;
    let word = scanner.raw_word();
    let digits = match scanner.meaning(&word) {
        Some(Meaning::Text(text) | Meaning::Word(text)) => text.clone(),
        Some(Meaning::Integer(value)) => value.to_string(),
        None => word,
    };
    if !digits.len().is_multiple_of(2) {
        return Err(scanner.error("an odd number of hexadecimal digits"));
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16);
    let bytes: Result<Vec<u8>, _> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.map_err(|_| scanner.error("expected hexadecimal digits"))
}

fn acc_ecn(scanner: &mut Scanner<'_>) -> Parsed<TcpOption> {
    let mut kind = 0;
    let mut counters = Vec::new();
    loop {
        scanner.skip_space()?;
        let Some(name) = ["e0b", "ceb", "e1b"].into_iter().find(|n| scanner.accept_word(n)) else {
            return match kind {
                0 => Err(scanner.error("ECN wants e0b, ceb or e1b")),
                _ => Ok(TcpOption::AccEcn { kind, counters }),
            };
        };
        if counters.is_empty() {
            kind = if name == "e0b" { 172 } else { 174 };
        }
        counters.push(scanner.number("a counter")?);
    }
}

fn udp(scanner: &mut Scanner<'_>) -> Parsed<Udp> {
    let ports = ports(scanner)?;
    scanner.expect("(")?;
    let len = scanner.number("the length")?;
    scanner.expect(")")?;
    Ok(Udp { ports, len })
}

fn icmp(scanner: &mut Scanner<'_>) -> Parsed<Icmp> {
    scanner.skip_space()?;
    let kind = scanner.raw_word();
    scanner.skip_space()?;
    let mut icmp = Icmp { kind, code: None, mtu: None, id: None, quoted: None };
    let is_keyword = ["mtu", "id"].iter().any(|word| {
        scanner.rest().strip_prefix(word).is_some_and(|rest| rest.starts_with(char::is_whitespace))
    });
    // The next event begins with a digit, a plus or a star, so a letter belongs here.
    if !is_keyword && scanner.peek().is_some_and(|c| c.is_ascii_alphabetic()) {
        let word = scanner.raw_word();
        icmp.code = Some(match scanner.meaning(&word) {
            Some(Meaning::Word(meaning)) => meaning.clone(),
            _ => word,
        });
        scanner.skip_space()?;
    }
    if scanner.accept_word("mtu") {
        icmp.mtu = Some(scanner.number("the MTU")?);
        scanner.skip_space()?;
    }
    if scanner.accept_word("id") {
        icmp.id = Some(scanner.number("the identifier")?);
        scanner.skip_space()?;
    }
    if scanner.accept("[") {
        scanner.skip_space()?;
        let (is_udp, is_raw) = (scanner.accept_word("udp"), scanner.accept_word("raw"));
        icmp.quoted = Some(if is_udp || is_raw {
            scanner.expect("(")?;
            let len = scanner.number("the length")?;
            scanner.expect(")")?;
            if is_udp { Quoted::Udp { len } } else { Quoted::Raw { len } }
        } else {
            let (sequence, len) = sequence(scanner)?;
            Quoted::Tcp { sequence, len }
        });
        scanner.expect("]")?;
    }
    Ok(icmp)
}
