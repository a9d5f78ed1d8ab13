//! Whether a packet that was sent is the one the script expects.

use crate::icmp;
use crate::live::{Body, LivePacket, LiveTcp, encode_options};
use crate::script::{ClassCheck, Flags, Icmp, IpInfo, Packet, Tcp, TcpOption, Transport};
use core::fmt::Debug;

/// What is compared with some slack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slack {
    /// Microseconds by which a timestamp may be off; `None` where it is not checked.
    pub(crate) timestamp_us: Option<u64>,
    /// Microseconds a tick of the timestamp clock lasts.
    pub(crate) tick_us: u64,
}

fn field<T: PartialEq + Debug>(name: &str, expected: T, actual: T) -> Result<(), String> {
    match expected == actual {
        true => Ok(()),
        false => Err(format!("{name}: expected {expected:?}, was {actual:?}")),
    }
}

/// Compares a packet, already in the script's numbers, with what the script has.
pub(crate) fn check(expected: &Packet, actual: &LivePacket, slack: Slack) -> Result<(), String> {
    if expected.ip.may_fragment && actual.is_whole {
        return Err("DF is set".to_owned());
    }
    check_ip(&expected.ip, actual.class, actual.ttl, actual.flow_label)?;
    match (&expected.transport, &actual.body) {
        (Transport::Tcp(expected), Body::Tcp(actual)) => check_tcp(expected, actual, slack),
        (Transport::Udp(expected), Body::Udp { payload, .. }) => {
            field("the payload's length", usize::from(expected.len), payload.len())
        }
        (Transport::Icmp(expected), Body::Icmp { kind, code, rest, .. }) => {
            check_icmp(expected, actual.source.is_ipv4(), (*kind, *code, *rest))
        }
        _ => Err("a packet of another protocol".to_owned()),
    }
}

/// Compares what the script says of an IP header.
pub(crate) fn check_ip(
    expected: &IpInfo,
    class: u8,
    ttl: u8,
    flow_label: u32,
) -> Result<(), String> {
    match expected.class {
        ClassCheck::Any => {}
        ClassCheck::Ecn(bits) => field("the ECN bits", bits, class & 3)?,
        ClassCheck::Ect01 if matches!(class & 3, 1 | 2) => {}
        ClassCheck::Ect01 => return Err(format!("the ECN bits: expected ECT, {}", class & 3)),
        ClassCheck::Byte(byte) => field("the TOS byte", byte, class)?,
    }
    if let Some(wanted) = expected.ttl {
        field("the TTL", wanted, ttl)?;
    }
    match expected.flow_label.is_some_and(|label| label != 0) && flow_label == 0 {
        true => Err("the packet has no flow label".to_owned()),
        false => Ok(()),
    }
}

fn check_tcp(expected: &Tcp, actual: &LiveTcp, slack: Slack) -> Result<(), String> {
    for (letter, bit) in Flags::LETTERS {
        let is_ecn = bit & (Flags::ECE | Flags::CWR | Flags::AE) != 0;
        let name = if expected.flags.is_ace && is_ecn { "the ACE field" } else { "the flag" };
        let (wanted, found) = (expected.flags.bits & bit != 0, actual.flags & bit != 0);
        if wanted != found {
            return Err(format!("{name} {letter}: expected {wanted}, was {found}"));
        }
    }
    field("reserved bits", 0, actual.flags >> 9)?;
    field("the sequence number", expected.sequence, actual.sequence)?;
    field("the payload's length", usize::from(expected.len), actual.payload.len())?;
    field("the acknowledgment number", expected.acknowledgment, actual.acknowledgment)?;
    if let Some(window) = expected.window {
        field("the window", window, actual.window)?;
    }
    field("the urgent pointer", expected.urgent, actual.urgent)?;
    match &expected.options {
        Some(options) => check_options(options, &actual.options, slack),
        None => Ok(()),
    }
}

fn check_options(expected: &[TcpOption], actual: &[TcpOption], slack: Slack) -> Result<(), String> {
    // A script may leave padding at the end to the runner.
    let padding =
        encode_options(expected).len().next_multiple_of(4) - encode_options(expected).len();
    let mut wanted = expected.to_vec();
    if wanted.len() + padding == actual.len() {
        let fill = actual.last().filter(|o| matches!(o, TcpOption::Nop | TcpOption::Eol));
        wanted.extend(std::iter::repeat_n(fill.cloned().unwrap_or(TcpOption::Eol), padding));
    }
    if wanted.len() != actual.len() {
        return Err("the TCP options differ".to_owned());
    }
    for (wanted, found) in wanted.iter().zip(actual) {
        match (wanted, found) {
            (
                TcpOption::Timestamps { value, echo },
                TcpOption::Timestamps { value: found, echo: found_echo },
            ) => {
                field("TSecr", echo, found_echo)?;
                let off = u64::from(found.wrapping_sub(*value).cast_signed().unsigned_abs());
                if slack.timestamp_us.is_some_and(|most| off * slack.tick_us > most) {
                    return Err(format!("TSval: expected {value}, was {found}"));
                }
            }
            (wanted, found) if wanted == found => {}
            (wanted, found) => {
                return Err(format!("a TCP option: expected {wanted:?}, was {found:?}"));
            }
        }
    }
    Ok(())
}

fn check_icmp(expected: &Icmp, is_ipv4: bool, actual: (u8, u8, [u8; 4])) -> Result<(), String> {
    let (kind, code) = icmp::numbers(expected, is_ipv4)?;
    field("the ICMP type", kind, actual.0)?;
    field("the ICMP code", code, actual.1)?;
    if let Some(mtu) = expected.mtu {
        let bytes = actual.2;
        let told = match is_ipv4 {
            true => u32::from(u16::from_be_bytes([bytes[2], bytes[3]])),
            false => u32::from_be_bytes(bytes),
        };
        field("the MTU", mtu, told)?;
    }
    Ok(())
}
