use super::*;
use proptest::prelude::*;

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const HOST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12, 0x3456);

fn envelope(source: Ipv6Addr, destination: Ipv6Addr) -> NdpEnvelope {
    NdpEnvelope { source, destination, hop_limit: NDP_HOP_LIMIT }
}

fn emitted(repr: &NdpRepr) -> Vec<u8> {
    let mut bytes = vec![0xa5; repr.emitted_len()];
    repr.emit(&mut bytes);
    bytes
}

fn solicitation(source_link: Option<HardwareAddress>) -> Vec<u8> {
    emitted(&NdpRepr::NeighbourSolicitation { target: HOST, source_link })
}

#[test]
fn the_solicited_node_group_ends_with_the_address() {
    assert_eq!(solicited_node(HOST), "ff02::1:ff12:3456".parse::<Ipv6Addr>().expect("an address"));
}

#[test]
fn a_message_that_a_router_could_have_forwarded_is_refused() {
    // RFC 4861, 7.1.1: hop limit 255.
    let forwarded = NdpEnvelope { hop_limit: 254, ..envelope(ROUTER, HOST) };
    assert_eq!(NdpRepr::parse(&solicitation(None), &forwarded), Err(Malformed::BadField));
    assert!(NdpRepr::parse(&solicitation(None), &envelope(ROUTER, HOST)).is_ok());
}

#[test]
fn code_and_length_are_checked_for_every_message() {
    for kind in ROUTER_SOLICITATION..=REDIRECT {
        let mut bytes = vec![0; 40];
        bytes[0] = kind;
        bytes[1] = 1;
        let result = NdpRepr::parse(&bytes, &envelope(ROUTER, HOST));
        assert_eq!(result, Err(Malformed::BadField), "code of {kind}");
        bytes[1] = 0;
        let shortest = match kind {
            ROUTER_SOLICITATION => 8,
            ROUTER_ADVERTISEMENT => 16,
            REDIRECT => 40,
            _ => 24,
        };
        let result = NdpRepr::parse(&bytes[..shortest], &envelope(ROUTER, HOST));
        assert!(result.is_ok(), "{kind}: {result:?}");
        let result = NdpRepr::parse(&bytes[..shortest - 1], &envelope(ROUTER, HOST));
        assert_eq!(result, Err(Malformed::Truncated), "length of {kind}");
    }
    let echo = [128, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(NdpRepr::parse(&echo, &envelope(ROUTER, HOST)), Err(Malformed::BadVersion));
}

#[test]
fn an_option_of_length_zero_refuses_the_message() {
    // RFC 4861, 4.6 and 7.1.1.
    let mut bytes = solicitation(Some(HardwareAddress([2, 0, 0, 0, 0, 1])));
    bytes.extend([14, 0, 0, 0, 0, 0, 0, 0]);
    let result = NdpRepr::parse(&bytes, &envelope(ROUTER, HOST));
    assert_eq!(result, Err(Malformed::BadOption));
    bytes[33] = 1;
    assert!(NdpRepr::parse(&bytes, &envelope(ROUTER, HOST)).is_ok(), "unknown options are ignored");
    bytes[33] = 2;
    let result = NdpRepr::parse(&bytes, &envelope(ROUTER, HOST));
    assert_eq!(result, Err(Malformed::Truncated));
}

#[test]
fn a_duplicate_address_probe_has_no_hardware_address_and_goes_to_the_group() {
    // RFC 4861, 7.1.1.
    let nobody = Ipv6Addr::UNSPECIFIED;
    let probe = envelope(nobody, solicited_node(HOST));
    assert!(NdpRepr::parse(&solicitation(None), &probe).is_ok());
    let link = Some(HardwareAddress([2, 0, 0, 0, 0, 1]));
    assert_eq!(NdpRepr::parse(&solicitation(link), &probe), Err(Malformed::BadOption));
    let unicast = envelope(nobody, HOST);
    assert_eq!(NdpRepr::parse(&solicitation(None), &unicast), Err(Malformed::BadField));
}

#[test]
fn an_answer_to_a_group_is_not_solicited() {
    // RFC 4861, 7.1.2.
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let mut repr = NdpRepr::NeighbourAdvertisement {
        router: false,
        solicited: true,
        replaces: true,
        target: HOST,
        target_link: None,
    };
    let result = NdpRepr::parse(&emitted(&repr), &envelope(HOST, all_nodes));
    assert_eq!(result, Err(Malformed::BadField));
    if let NdpRepr::NeighbourAdvertisement { solicited, .. } = &mut repr {
        *solicited = false;
    }
    assert_eq!(NdpRepr::parse(&emitted(&repr), &envelope(HOST, all_nodes)), Ok(repr.clone()));
}

#[test]
fn routers_speak_from_link_local_addresses() {
    // RFC 4861, 6.1.2 and 8.1.
    let redirect = NdpRepr::Redirect { target: ROUTER, destination: HOST, target_link: None };
    let bytes = emitted(&redirect);
    assert_eq!(NdpRepr::parse(&bytes, &envelope(ROUTER, HOST)), Ok(redirect));
    assert_eq!(NdpRepr::parse(&bytes, &envelope(HOST, HOST)), Err(Malformed::BadField));
    let elsewhere = NdpRepr::Redirect { target: HOST, destination: ROUTER, target_link: None };
    let result = NdpRepr::parse(&emitted(&elsewhere), &envelope(ROUTER, HOST));
    assert_eq!(result, Err(Malformed::BadField), "the target is neither a router nor the host");
}

fn advertisement() -> RouterAdvertisement {
    RouterAdvertisement {
        hop_limit: 64,
        managed: true,
        other: false,
        preference: RouterPreference::High,
        router_lifetime_s: 1_800,
        reachable_ms: 30_000,
        retransmit_ms: 1_000,
        source_link: Some(HardwareAddress([2, 0, 0, 0, 0, 1])),
        mtu_bytes: Some(1_500),
        prefixes: Vec::new(),
        name_servers: Vec::new(),
    }
}

/// RFC 4861, 6.3.4 ("for each Prefix Information option") and RFC 8106, 5.1: an option for each lifetime; 5.3.1: an
/// option that contradicts itself is invalid, and not the message.
#[test]
fn every_option_of_an_advertisement_is_read_but_for_those_that_contradict_themselves() {
    let prefix = |number: u16| PrefixInformation {
        prefix: Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 0),
        prefix_len_bits: 64,
        on_link: true,
        autonomous: true,
        valid_s: u32::MAX,
        preferred_s: 3_600,
    };
    let servers = |lifetime_s, count: u16| {
        let addresses = (0..count).map(|last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
        NameServers { lifetime_s, addresses: addresses.collect() }
    };
    let prefixes: Vec<PrefixInformation> = (0..40).map(prefix).collect();
    let name_servers = vec![servers(0, 1), servers(600, 127), servers(u32::MAX, 2)];
    let whole = RouterAdvertisement { prefixes, name_servers, ..advertisement() };
    let mut bytes = emitted(&NdpRepr::RouterAdvertisement(whole.clone()));
    let parsed = |bytes: &[u8]| match NdpRepr::parse(bytes, &envelope(ROUTER, HOST)) {
        Ok(NdpRepr::RouterAdvertisement(parsed)) => parsed,
        other => panic!("{other:?}"),
    };
    assert_eq!(parsed(&bytes), whole);
    // A prefix of 129 bits, half an address of a server, an MTU and a prefix of another length than theirs.
    let mut wrong = vec![0; 32];
    wrong[..3].copy_from_slice(&[3, 4, 129]);
    bytes.extend(wrong);
    for (kind, units) in [(25, 4), (25, 1), (5, 2), (3, 3)] {
        bytes.extend([&[kind, units][..], &vec![0; usize::from(units) * 8 - 2]].concat());
    }
    assert_eq!(parsed(&bytes), whole);
    // A hardware address of another length is one of another medium: RFC 4861, 6.1.2 is about the whole.
    bytes.extend([&[1, 2][..], &[0; 14]].concat());
    let refused = NdpRepr::parse(&bytes, &envelope(ROUTER, HOST));
    assert_eq!(refused, Err(Malformed::BadOption));
}

/// RFC 4191, 2.2: 10 is reserved and MUST be treated as if it were 00.
#[test]
fn a_routers_preference_survives_and_reserved_bits_mean_medium() {
    for preference in [RouterPreference::Low, RouterPreference::Medium, RouterPreference::High] {
        let repr =
            NdpRepr::RouterAdvertisement(RouterAdvertisement { preference, ..advertisement() });
        let mut bytes = emitted(&repr);
        assert_eq!(NdpRepr::parse(&bytes, &envelope(ROUTER, HOST)), Ok(repr));
        bytes[5] = bytes[5] & !0x18 | 0x10;
        let parsed = NdpRepr::parse(&bytes, &envelope(ROUTER, HOST));
        let Ok(NdpRepr::RouterAdvertisement(parsed)) = parsed else { panic!("{parsed:?}") };
        assert_eq!(parsed.preference, RouterPreference::Medium);
    }
}

fn any_repr() -> impl Strategy<Value = NdpRepr> {
    let link = prop::option::of(any::<[u8; 6]>().prop_map(HardwareAddress));
    let unicast = any::<u64>().prop_map(|low| Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(low)));
    (0..4, link, unicast, any::<[bool; 3]>()).prop_map(|(kind, link, target, flags)| match kind {
        0 => NdpRepr::RouterSolicitation { source_link: link },
        1 => NdpRepr::NeighbourSolicitation { target, source_link: link },
        2 => NdpRepr::NeighbourAdvertisement {
            router: flags[0],
            solicited: flags[1],
            replaces: flags[2],
            target,
            target_link: link,
        },
        _ => NdpRepr::Redirect { target, destination: HOST, target_link: link },
    })
}

proptest! {
    #[test]
    fn what_was_emitted_parses_to_the_same(repr in any_repr()) {
        prop_assert_eq!(NdpRepr::parse(&emitted(&repr), &envelope(ROUTER, HOST)), Ok(repr.clone()));
    }

    #[test]
    fn any_bytes_parse_or_are_refused(
        kind in ROUTER_SOLICITATION..=REDIRECT,
        rest in prop::collection::vec(prop_oneof![0..6_u8, any::<u8>()], 0..200),
    ) {
        let mut bytes = vec![kind, 0];
        bytes.extend(rest);
        let _ = NdpRepr::parse(&bytes, &envelope(ROUTER, HOST));
    }
}
