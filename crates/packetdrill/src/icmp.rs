//! ICMP messages by name (RFC 792, RFC 1122, RFC 4443).

use crate::script::Icmp;

/// A message's name, type, and the names of its codes.
type Kind = (&'static str, u8, &'static [(&'static str, u8)]);

const ICMPV4: &[Kind] = &[
    ("echo_reply", 0, &[]),
    (
        "unreachable",
        3,
        &[
            ("net_unreachable", 0),
            ("host_unreachable", 1),
            ("protocol_unreachable", 2),
            ("port_unreachable", 3),
            ("frag_needed", 4),
            ("source_route_failed", 5),
            ("net_unknown", 6),
            ("host_unknown", 7),
            ("source_host_isolated", 8),
            ("net_prohibited", 9),
            ("host_prohibited", 10),
            ("net_unreachable_for_tos", 11),
            ("host_unreachable_for_tos", 12),
            ("packet_filtered", 13),
            ("precedence_violation", 14),
            ("precedence_cutoff", 15),
        ],
    ),
    ("source_quench", 4, &[]),
    ("redirect", 5, &[]),
    ("echo_request", 8, &[]),
    ("time_exceeded", 11, &[]),
    ("parameter_problem", 12, &[]),
    ("timestamp_request", 13, &[]),
    ("timestamp_reply", 14, &[]),
    ("information_request", 15, &[]),
    ("information_reply", 16, &[]),
    ("address_mask_request", 17, &[]),
    ("address_mask_reply", 18, &[]),
];

const ICMPV6: &[Kind] = &[
    (
        "unreachable",
        1,
        &[
            ("net_unreachable", 0),
            ("no_route", 0),
            ("admin_prohibited", 1),
            ("not_neighbour", 2),
            ("address_unreachable", 3),
            ("port_unreachable", 4),
        ],
    ),
    ("packet_too_big", 2, &[]),
    ("time_exceeded", 3, &[("exceeded_hop_limit", 0), ("exceeded_frag_time", 1)]),
    (
        "parameter_problem",
        4,
        &[("header_field", 0), ("unknown_next_header", 1), ("unknown_option", 2)],
    ),
    ("echo_request", 128, &[]),
    ("echo_reply", 129, &[]),
];

/// Type and code of a message.
pub(crate) fn numbers(icmp: &Icmp, is_ipv4: bool) -> Result<(u8, u8), String> {
    let table = if is_ipv4 { ICMPV4 } else { ICMPV6 };
    let known = table.iter().find(|(name, ..)| *name == icmp.kind);
    let numbered = |text: &str, prefix: &str| text.strip_prefix(prefix)?.parse::<u8>().ok();
    let kind = known.map(|(_, kind, _)| *kind).or_else(|| numbered(&icmp.kind, "type_"));
    let kind = kind.ok_or_else(|| format!("no ICMP type is called {:?}", icmp.kind))?;
    let Some(name) = icmp.code.as_deref() else { return Ok((kind, 0)) };
    let codes = known.map_or(&[][..], |(.., codes)| *codes);
    let code = codes.iter().find(|(known, _)| *known == name).map(|(_, code)| *code);
    let code = code.or_else(|| numbered(name, "code_"));
    Ok((kind, code.ok_or_else(|| format!("no ICMP code is called {name:?}"))?))
}
