//! Packets in packetdrill's notation, for people.

use crate::fragment::LiveFragment;
use crate::live::{Body, LivePacket, LiveTcp};
use crate::script::{self, ClassCheck, Flags, TcpOption, Transport};
use core::fmt::Write as _;

/// A packet as it was seen, in the script's sequence space.
pub(crate) fn live(packet: &LivePacket, ace: bool) -> String {
    let mut out = ecn(packet.class & 3).map_or(String::new(), |name| format!("[{name}] "));
    match &packet.body {
        Body::Tcp(tcp) => out.push_str(&live_tcp(tcp, ace)),
        Body::Udp { payload, .. } => {
            let _ = write!(out, "udp ({})", payload.len());
        }
        Body::Icmp { kind, code, .. } => {
            let _ = write!(out, "icmp type_{kind} code_{code}");
        }
        Body::Other { protocol, len } => {
            let _ = write!(out, "protocol {protocol} ({len})");
        }
    }
    out
}

fn live_tcp(tcp: &LiveTcp, ace: bool) -> String {
    let len = tcp.payload.len() as u32;
    let mut out = flags(tcp.flags, ace);
    let end = tcp.sequence.wrapping_add(len);
    let _ = write!(out, " {}:{end}({len})", tcp.sequence);
    if tcp.has(Flags::ACK) {
        let _ = write!(out, " ack {}", tcp.acknowledgment);
    }
    let _ = write!(out, " win {}", tcp.window);
    if tcp.has(Flags::URG) {
        let _ = write!(out, " urg {}", tcp.urgent);
    }
    if !tcp.options.is_empty() {
        let _ = write!(out, " <{}>", options(&tcp.options));
    }
    out
}

/// A packet as the script has it.
pub(crate) fn script(packet: &script::Packet) -> String {
    let mut out = match packet.ip.class {
        ClassCheck::Any => String::new(),
        ClassCheck::Ecn(bits) => format!("[{}] ", ecn(bits).unwrap_or("noecn")),
        ClassCheck::Ect01 => "[ect01] ".to_owned(),
        ClassCheck::Byte(byte) => format!("[tos {byte:#x}] "),
    };
    if let Some(part) = packet.ip.fragment {
        out.push_str(&named(part.id, part.len.into(), part.offset.into(), part.more));
    }
    match &packet.transport {
        Transport::Tcp(tcp) => {
            out.push_str(&flags(tcp.flags.bits, tcp.flags.is_ace));
            let end = tcp.sequence.wrapping_add(tcp.len.into());
            let _ = write!(out, " {}:{end}({})", tcp.sequence, tcp.len);
            if tcp.flags.has(Flags::ACK) {
                let _ = write!(out, " ack {}", tcp.acknowledgment);
            }
            if let Some(window) = tcp.window {
                let _ = write!(out, " win {window}");
            }
            if tcp.flags.has(Flags::URG) {
                let _ = write!(out, " urg {}", tcp.urgent);
            }
            match &tcp.options {
                None => out.push_str(" <...>"),
                Some(list) if list.is_empty() => {}
                Some(list) => {
                    let _ = write!(out, " <{}>", options(list));
                }
            }
        }
        Transport::Udp(udp) => {
            let _ = write!(out, "udp ({})", udp.len);
        }
        Transport::Icmp(icmp) => {
            let _ = write!(out, "icmp {} {}", icmp.kind, icmp.code.as_deref().unwrap_or(""));
        }
    }
    out
}

/// A fragment as it was seen.
pub(crate) fn fragment(found: &LiveFragment) -> String {
    let part = named(found.identification, found.data.len(), found.offset, found.more);
    format!("{part}protocol {}", found.protocol)
}

fn named(id: u32, len: usize, offset: usize, more: bool) -> String {
    format!("[frag {id}:{len}@{offset}{}] ", if more { "+" } else { "" })
}

fn ecn(bits: u8) -> Option<&'static str> {
    [None, Some("ect1"), Some("ect0"), Some("ce")][usize::from(bits & 3)]
}

fn flags(bits: u16, ace: bool) -> String {
    let ecn_bits = Flags::ECE | Flags::CWR | Flags::AE;
    let shown = if ace { bits & !ecn_bits } else { bits };
    let mut out: String = Flags::LETTERS
        .iter()
        .filter(|(_, bit)| shown & bit != 0)
        .map(|(letter, _)| *letter)
        .collect();
    if ace {
        let _ = write!(out, "{}", (bits >> 6 & 3) | (bits >> 8 & 1) << 2);
    }
    if out.is_empty() {
        out.push('-');
    }
    out
}

fn options(list: &[TcpOption]) -> String {
    list.iter().map(option).collect::<Vec<_>>().join(",")
}

fn option(option: &TcpOption) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match option {
        TcpOption::Eol => "eol".to_owned(),
        TcpOption::Nop => "nop".to_owned(),
        TcpOption::Mss(mss) => format!("mss {mss}"),
        TcpOption::WindowScale(shift) => format!("wscale {shift}"),
        TcpOption::SackPermitted => "sackOK".to_owned(),
        TcpOption::Sack(blocks) => {
            let blocks: Vec<String> =
                blocks.iter().map(|(left, right)| format!("{left}:{right}")).collect();
            format!("sack {}", blocks.join(" "))
        }
        TcpOption::Timestamps { value, echo } => format!("TS val {value} ecr {echo}"),
        TcpOption::Md5(digest) => format!("md5 {}", hex(digest)),
        TcpOption::FastOpen(cookie) => format!("FO {}", hex(cookie)),
        TcpOption::FastOpenExperimental(cookie) => format!("FOEXP {}", hex(cookie)),
        TcpOption::AccEcn { kind, counters } => {
            let names = if *kind == 172 { ["e0b", "ceb", "e1b"] } else { ["e1b", "ceb", "e0b"] };
            let pairs = names.iter().zip(counters);
            let text: Vec<String> = pairs.map(|(name, value)| format!("{name} {value}")).collect();
            format!("ECN {}", text.join(" "))
        }
        TcpOption::Other { kind, data } => format!("kind {kind} {}", hex(data)),
    }
}
