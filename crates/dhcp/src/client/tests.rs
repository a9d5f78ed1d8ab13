use super::*;

const STATION: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 1]);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

struct Bed {
    client: Client,
    jitter: Jitter,
    now: Instant,
}

impl Bed {
    fn new() -> Self {
        let mut jitter = Jitter::new(3);
        let now = Instant::from_millis(1_000);
        let client = Client::new(now, ClientConfig::default(), STATION, &mut jitter);
        Self { client, jitter, now }
    }

    fn actions(&mut self) -> Vec<Action> {
        core::iter::from_fn(|| self.client.poll_action()).collect()
    }

    /// Goes on to the client's next deadline and says what it does there.
    fn next(&mut self) -> Vec<Action> {
        let due = self.client.poll_timeout().expect("the client waits for something");
        assert!(due >= self.now);
        self.now = due;
        self.client.on_timeout(due, &mut self.jitter);
        self.actions()
    }

    /// The one message sent, with where it went to and what option 53 of it says.
    fn sent(actions: &[Action]) -> (&Packet, u8) {
        let [Action::Send(packet)] = actions else { panic!("{actions:?}") };
        (packet, packet.payload[242])
    }

    /// A server's answer to the exchange under way.
    fn answer(&mut self, kind: u8, options: &[u8]) -> Vec<Action> {
        let mut bytes = self.reply(kind);
        bytes.extend([1, 4, 255, 255, 255, 0, 3, 4, 10, 0, 0, 254]);
        bytes.extend(options);
        self.hear(&bytes)
    }

    /// The kind and the server, and nothing else yet.
    fn reply(&self, kind: u8) -> Vec<u8> {
        let mut bytes = vec![0; 236];
        bytes[..3].copy_from_slice(&[2, 1, 6]);
        bytes[4..8].copy_from_slice(&self.client.transaction.to_be_bytes());
        bytes[16..20].copy_from_slice(&OURS.octets());
        bytes[28..34].copy_from_slice(&STATION.0);
        bytes.extend([99, 130, 83, 99, 53, 1, kind, 54, 4, 10, 0, 0, 1]);
        bytes
    }

    /// As [`Bed::answer`], with these options alone beside the kind and the server.
    fn answer_barely(&mut self, kind: u8, options: &[u8]) -> Vec<Action> {
        let mut bytes = self.reply(kind);
        bytes.extend(options);
        self.hear(&bytes)
    }

    fn hear(&mut self, bytes: &[u8]) -> Vec<Action> {
        self.client.on_message(self.now, bytes, &mut self.jitter);
        self.actions()
    }

    fn is_over(actions: &[Action]) -> bool {
        actions == [Action::Deconfigure(OURS)]
    }

    fn lease_option(seconds: u32) -> Vec<u8> {
        [&[51, 4][..], &seconds.to_be_bytes()].concat()
    }

    /// A client with a lease of so many seconds.
    fn bound(lease_s: u32) -> Self {
        let mut bed = Self::new();
        bed.next();
        bed.answer(OFFER, &[]);
        bed.answer(ACK, &Self::lease_option(lease_s));
        bed.client.on_checked();
        bed.actions();
        assert!(bed.client.lease().is_some());
        bed
    }
}

const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const DECLINE: u8 = 4;
const ACK: u8 = 5;
const NAK: u8 = 6;
const RELEASE: u8 = 7;

fn has_option(packet: &Packet, option: &[u8]) -> bool {
    packet.payload[240..].windows(option.len()).any(|window| window == option)
}

/// RFC 2131, 3.1: the whole way from INIT to BOUND. 4.3.2: a request in SELECTING carries 'server
/// identifier' and 'requested IP address', and 'ciaddr' MUST be zero.
#[test]
fn an_address_is_discovered_requested_checked_and_bound() {
    let mut bed = Bed::new();
    let actions = bed.next();
    let (packet, kind) = Bed::sent(&actions);
    assert_eq!((kind, packet.destination), (DISCOVER, Ipv4Addr::BROADCAST));
    assert_eq!(packet.source, Ipv4Addr::UNSPECIFIED);
    let actions = bed.answer(OFFER, &[]);
    let (packet, kind) = Bed::sent(&actions);
    assert_eq!((kind, packet.destination), (REQUEST, Ipv4Addr::BROADCAST));
    assert!(has_option(packet, &[50, 4, 10, 0, 0, 9]) && has_option(packet, &[54, 4, 10, 0, 0, 1]));
    assert_eq!(packet.payload[12..16], [0; 4]);
    assert_eq!(bed.client.lease(), None);
    let actions = bed.answer(ACK, &Bed::lease_option(3_600));
    let lease = Lease {
        address: OURS,
        prefix_len: 24,
        server: SERVER,
        routes: vec![Route {
            network: Ipv4Addr::UNSPECIFIED,
            prefix_len: 0,
            gateway: Ipv4Addr::new(10, 0, 0, 254),
        }],
        name_servers: vec![],
        mtu_bytes: None,
    };
    assert_eq!(actions, [Action::Check(lease.clone())]);
    assert_eq!(bed.client.lease(), None, "not before it was found free");
    bed.client.on_checked();
    assert_eq!(bed.actions(), [Action::Configure(lease.clone())]);
    assert_eq!(bed.client.lease(), Some(&lease));
}

/// RFC 2131, 4.1: 4, 8, 16, 32, 64, 64 seconds, each one second more or less at random.
#[test]
fn a_discover_without_an_answer_is_repeated_ever_more_rarely() {
    let mut bed = Bed::new();
    let mut last = None;
    for expected_s in [0, 4, 8, 16, 32, 64, 64, 64] {
        let actions = bed.next();
        assert_eq!(Bed::sent(&actions).1, DISCOVER);
        if let Some(last) = last {
            let waited = (bed.now - last).as_secs_f64();
            assert!((waited - f64::from(expected_s)).abs() <= 1.0, "{waited}");
        }
        last = Some(bed.now);
    }
}

/// RFC 2131, 3.1, 3: the REQUEST has the 'secs' of the DISCOVER.
#[test]
fn a_request_says_the_seconds_of_its_discover() {
    let mut bed = Bed::new();
    bed.next();
    let actions = bed.next();
    let seconds = Bed::sent(&actions).0.payload[8..10].to_vec();
    assert_ne!(seconds, [0, 0], "the second DISCOVER");
    bed.now += Duration::from_secs(2);
    let actions = bed.answer(OFFER, &[]);
    assert_eq!(Bed::sent(&actions).0.payload[8..10], seconds);
    assert_eq!(Bed::sent(&bed.next()).0.payload[8..10], seconds, "and again");
}

#[test]
fn requests_without_an_answer_end_in_a_new_discover() {
    let mut bed = Bed::new();
    bed.next();
    bed.answer(OFFER, &[]);
    for _ in 1..4 {
        assert_eq!(Bed::sent(&bed.next()).1, REQUEST);
    }
    assert_eq!(bed.next(), []);
    assert_eq!(Bed::sent(&bed.next()).1, DISCOVER);
}

/// RFC 2131, 4.4.5: T1 at half of the lease, by unicast to the server; T2 at seven eighths, by
/// broadcast; 4.3.2: 'ciaddr' is ours, and neither option is there.
#[test]
fn a_lease_is_renewed_then_rebound_then_lost() {
    let mut bed = Bed::bound(800);
    let asked = bed.now;
    let actions = bed.next();
    let (packet, kind) = Bed::sent(&actions);
    assert_eq!((bed.now - asked).as_secs(), 400);
    assert_eq!((kind, packet.source, packet.destination), (REQUEST, OURS, SERVER));
    assert_eq!(packet.payload[12..16], OURS.octets());
    // RFC 2131, 2: 'secs' are those since the renewal began.
    assert_eq!(packet.payload[8..10], [0, 0]);
    assert!(!has_option(packet, &[54, 4]) && !has_option(packet, &[50, 4]));
    // Half of the remaining 300 seconds, then of 150, then 60 is the least.
    assert_eq!(Bed::sent(&bed.next()).0.destination, SERVER);
    assert_eq!((bed.now - asked).as_secs(), 550);
    bed.next();
    assert_eq!((bed.now - asked).as_secs(), 625);
    bed.next();
    assert_eq!((bed.now - asked).as_secs(), 685);
    let actions = bed.next();
    let (packet, _) = Bed::sent(&actions);
    assert_eq!((bed.now - asked).as_secs(), 700);
    assert_eq!((packet.source, packet.destination), (OURS, Ipv4Addr::BROADCAST));
    assert_eq!(packet.payload[8..10], 300_u16.to_be_bytes());
    bed.next();
    assert_eq!((bed.now - asked).as_secs(), 760);
    assert_eq!(bed.next(), [Action::Deconfigure(OURS)]);
    assert_eq!((bed.now - asked).as_secs(), 800);
    assert_eq!(bed.client.counters().dhcp_expired, 1);
    assert_eq!(bed.client.lease(), None);
    assert_eq!(Bed::sent(&bed.next()).1, DISCOVER);
}

#[test]
fn an_ack_extends_the_lease_from_when_it_was_asked_for() {
    for asks in [1, 4] {
        let mut bed = Bed::bound(800);
        for _ in 0..asks {
            bed.next();
        }
        let asked = bed.now;
        bed.now += Duration::from_secs(2);
        let actions = bed.answer(ACK, &Bed::lease_option(1_000));
        assert!(matches!(&actions[..], [Action::Configure(lease)] if lease.address == OURS));
        bed.next();
        if asks == 1 {
            assert_eq!((bed.now - asked).as_secs(), 500, "half of the lease after the request");
        }
    }
}

/// RFC 2131, 3.1, 4: "If the client receives a DHCPNAK message, the client restarts the
/// configuration process"; 4.4.5: and stops using its address at once.
#[test]
fn a_nak_takes_the_address_away_and_begins_anew_after_a_pause() {
    let mut bed = Bed::bound(800);
    bed.next();
    let refused_at = bed.now;
    assert_eq!(bed.answer(NAK, &[]), [Action::Deconfigure(OURS)]);
    assert_eq!(Bed::sent(&bed.next()).1, DISCOVER);
    assert!(bed.now - refused_at >= Duration::from_secs(4), "no fast loop");
    bed.answer(OFFER, &[]);
    assert_eq!(bed.answer(NAK, &[]), [], "nothing was configured");
    assert_eq!(bed.client.counters().dhcp_naks, 2);
}

/// RFC 2131, 3.1, 5 and 4.4.4: DECLINE is broadcast, with the address and the server, and the
/// client waits at least ten seconds.
#[test]
fn an_address_that_somebody_has_is_declined() {
    let mut bed = Bed::new();
    bed.next();
    bed.answer(OFFER, &[]);
    bed.answer(ACK, &Bed::lease_option(800));
    let found_at = bed.now;
    bed.client.on_conflict(bed.now, &mut bed.jitter);
    let actions = bed.actions();
    let (packet, kind) = Bed::sent(&actions);
    assert_eq!((kind, packet.destination), (DECLINE, Ipv4Addr::BROADCAST));
    assert!(has_option(packet, &[50, 4, 10, 0, 0, 9]) && has_option(packet, &[54, 4, 10, 0, 0, 1]));
    assert_eq!(Bed::sent(&bed.next()).1, DISCOVER);
    assert!(bed.now - found_at >= Duration::from_secs(10));
}

/// RFC 2131, 4.4.6: by unicast, to the server.
#[test]
fn a_released_address_is_given_back_and_nothing_follows() {
    let mut bed = Bed::bound(800);
    bed.client.release(bed.now, &mut bed.jitter);
    let actions = bed.actions();
    let [Action::Send(packet), Action::Deconfigure(OURS)] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((packet.payload[242], packet.source, packet.destination), (RELEASE, OURS, SERVER));
    // Table 5: a server identifier is a MUST.
    assert!(has_option(packet, &[54, 4, 10, 0, 0, 1]));
    assert_eq!(bed.client.poll_timeout(), None);
}

/// RFC 2131, 4.4.6 speaks of leases in use; one that is only being checked is not used afterwards.
#[test]
fn an_address_that_is_released_while_it_is_checked_is_not_used() {
    let mut bed = Bed::new();
    bed.next();
    bed.answer(OFFER, &[]);
    let actions = bed.answer(ACK, &Bed::lease_option(800));
    assert!(matches!(actions[..], [Action::Check(_)]), "{actions:?}");
    bed.client.release(bed.now, &mut bed.jitter);
    assert_eq!(bed.actions(), [Action::Deconfigure(OURS)]);
    bed.client.on_checked();
    assert_eq!((bed.actions(), bed.client.lease()), (vec![], None));
}

/// RFC 2131, 4.4.5: the expiration is "the sum of the time at which the client sent the DHCPREQUEST
/// message and the duration of the lease in the DHCPACK message".
#[test]
fn a_lease_that_is_granted_late_counts_from_the_request_that_was_answered() {
    let mut bed = Bed::bound(800);
    let (began_at, mut count) = (bed.now, 0);
    while bed.now - began_at < Duration::from_secs(690) {
        assert_eq!(Bed::sent(&bed.next()).1, REQUEST);
        count += 1;
        assert!(count < 20);
    }
    let actions = bed.answer(ACK, &Bed::lease_option(200));
    assert!(matches!(actions[..], [Action::Configure(_)]), "{actions:?}");
    assert_eq!(bed.client.poll_timeout(), Some(bed.now + Duration::from_secs(100)));
}

/// RFC 2131, 4.4.1: "the client MUST discard [messages] whose xid does not match"; and what fits no
/// state, or makes no sense, changes nothing.
#[test]
fn answers_to_other_questions_are_ignored_and_counted() {
    let mut bed = Bed::new();
    assert_eq!(bed.answer(OFFER, &[]), [], "nothing was asked yet");
    bed.next();
    assert_eq!(bed.answer(ACK, &Bed::lease_option(800)), []);
    assert_eq!(bed.answer(NAK, &[]), []);
    assert!(!bed.client.on_message(bed.now, b"whatever", &mut bed.jitter));
    bed.client.transaction ^= 1;
    let other = bed.client.transaction;
    bed.client.transaction ^= 1;
    let mut foreign = vec![0; 300];
    foreign[4..8].copy_from_slice(&other.to_be_bytes());
    bed.client.on_message(bed.now, &foreign, &mut bed.jitter);
    let mut of_another_client = bed.reply(OFFER);
    of_another_client[33] ^= 1;
    assert_eq!(bed.hear(&of_another_client), []);
    bed.answer(OFFER, &[]);
    assert_eq!(bed.answer(OFFER, &[]), [], "one offer was taken");
    assert_eq!(bed.answer(ACK, &[]), [], "a lease without a length");
    let short = bed.answer(ACK, &Bed::lease_option(5));
    assert_eq!(short, [Action::TooShort(SERVER, 5)], "or with next to none");
    assert_eq!(bed.client.counters().dhcp_ignored, 9);
}

/// RFC 2131, 3.1, 3 and 4.4.5: who was not asked grants nothing and takes nothing away.
#[test]
fn answers_of_another_server_than_the_one_that_was_asked_are_ignored() {
    let of_another = |bed: &mut Bed, kind| {
        let mut bytes = bed.reply(kind);
        *bytes.last_mut().expect("the server") += 1;
        bytes.extend(Bed::lease_option(800));
        bed.hear(&bytes)
    };
    let mut bed = Bed::new();
    bed.next();
    bed.answer(OFFER, &[]);
    for kind in [ACK, NAK] {
        assert_eq!(of_another(&mut bed, kind), [], "{kind}");
    }
    bed.answer(ACK, &Bed::lease_option(800));
    bed.client.on_checked();
    bed.actions();
    assert_eq!(Bed::sent(&bed.next()).0.destination, SERVER);
    for kind in [ACK, NAK] {
        assert_eq!(of_another(&mut bed, kind), [], "{kind}");
    }
    assert!(bed.client.lease().is_some());
}

/// What a server refused, or somebody else has, is not asked for again.
#[test]
fn an_address_that_is_not_to_be_had_is_wanted_no_more() {
    let is_wanted = |actions: &[Action]| has_option(Bed::sent(actions).0, &[50, 4, 10, 0, 0, 9]);
    for is_refused in [true, false] {
        let mut bed = Bed::new();
        let wanted = Some(OURS);
        let config = ClientConfig { wanted, ..ClientConfig::default() };
        bed.client = Client::new(bed.now, config, STATION, &mut bed.jitter);
        assert!(is_wanted(&bed.next()));
        bed.answer(OFFER, &[]);
        if is_refused {
            bed.answer(NAK, &[]);
        } else {
            bed.answer(ACK, &Bed::lease_option(800));
            bed.client.on_conflict(bed.now, &mut bed.jitter);
            bed.actions();
        }
        assert!(!is_wanted(&bed.next()));
    }
}

/// RFC 2131, 4.4.1: a lease counts from "the time at which the DHCPREQUEST was sent", not from the DISCOVER.
#[test]
fn a_lease_counts_from_its_request_however_late_the_offer_came() {
    let mut bed = Bed::new();
    bed.next();
    bed.now += Duration::from_secs(3);
    bed.answer(OFFER, &[]);
    let asked = bed.now;
    bed.answer(ACK, &Bed::lease_option(800));
    bed.client.on_checked();
    bed.actions();
    bed.next();
    assert_eq!((bed.now - asked).as_secs(), 400);
}

/// RFC 2131, 3.3: "the value [...] 0xffffffff represents infinity".
#[test]
fn a_lease_for_ever_is_never_renewed_and_times_out_of_order_are_not_believed() {
    let bed = Bed::bound(u32::MAX);
    assert_eq!(bed.client.poll_timeout(), Some(Instant::from_nanos(u64::MAX)));
    // T1 behind T2, T2 behind the end, and a T1 that would have us ask all the time.
    for (renew_s, rebind_s) in [(700_u32, 600_u32), (700, 900), (1, 600)] {
        let mut bed = Bed::new();
        bed.next();
        bed.answer(OFFER, &[]);
        let asked = bed.now;
        let told = [&[58, 4][..], &renew_s.to_be_bytes(), &[59, 4], &rebind_s.to_be_bytes()];
        bed.answer(ACK, &[Bed::lease_option(800), told.concat()].concat());
        bed.client.on_checked();
        bed.actions();
        bed.next();
        assert_eq!((bed.now - asked).as_secs(), 400, "{renew_s} {rebind_s}");
    }
}

/// RFC 2131, 3.7 and 4.3.2, INIT-REBOOT: on another link the lease is verified, without 'server identifier' and
/// with 'ciaddr' zero; a server there may refuse it; where there is none it stays in use (3.2, 4).
#[test]
fn a_lease_is_verified_on_another_link() {
    let other = HardwareAddress([2, 0, 0, 0, 0, 7]);
    for answer in [Some(ACK), Some(NAK), None] {
        let mut bed = Bed::bound(800);
        let granted = bed.now;
        bed.now += Duration::from_secs(10);
        let station = if answer.is_none() { other } else { STATION };
        bed.client.on_new_link(bed.now, station, &mut bed.jitter);
        let actions = bed.next();
        assert!((bed.now - granted).as_secs() < 12, "at once");
        let (packet, kind) = Bed::sent(&actions);
        assert_eq!((kind, packet.destination), (REQUEST, Ipv4Addr::BROADCAST));
        assert!(has_option(packet, &[50, 4, 10, 0, 0, 9]) && !has_option(packet, &[54, 4]));
        assert_eq!(packet.payload[12..16], [0; 4]);
        assert_eq!(packet.payload[28..34], station.0);
        assert!(bed.client.lease().is_some(), "used meanwhile");
        match answer {
            Some(ACK) => {
                let actions = bed.answer(ACK, &Bed::lease_option(800));
                assert!(matches!(actions[..], [Action::Configure(_)]));
                let asked = bed.now;
                assert_eq!(Bed::sent(&bed.next()).0.destination, SERVER);
                assert!((398..=400).contains(&(bed.now - asked).as_secs()), "T1 counts from now");
            }
            Some(_) => {
                assert_eq!(bed.answer(NAK, &[]), [Action::Deconfigure(OURS)]);
                assert_eq!(Bed::sent(&bed.next()).1, DISCOVER);
            }
            None => {
                for _ in 1..4 {
                    assert_eq!(Bed::sent(&bed.next()).1, REQUEST);
                }
                assert_eq!(bed.next(), [], "nobody is there");
                assert_eq!(Bed::sent(&bed.next()).0.destination, SERVER);
                assert_eq!((bed.now - granted).as_secs(), 400, "T1 as before");
            }
        }
    }
}

#[test]
fn a_lease_that_ends_while_it_is_verified_is_given_up() {
    let mut bed = Bed::bound(30);
    let granted = bed.now;
    bed.now += Duration::from_secs(14);
    bed.client.on_new_link(bed.now, STATION, &mut bed.jitter);
    let last = loop {
        let actions = bed.next();
        if !actions.is_empty() && Bed::is_over(&actions) {
            break bed.now;
        }
        assert!(actions.is_empty() || bed.now - granted < Duration::from_secs(30), "{actions:?}");
    };
    assert_eq!((last - granted).as_secs(), 30);
    assert_eq!(bed.client.lease(), None);
}

#[test]
fn what_was_offered_on_another_link_is_not_taken() {
    for acked in [false, true] {
        let mut bed = Bed::new();
        bed.next();
        bed.answer(OFFER, &[]);
        if acked {
            bed.answer(ACK, &Bed::lease_option(800));
        }
        bed.client.on_new_link(bed.now, STATION, &mut bed.jitter);
        let given_up = if acked { vec![Action::Deconfigure(OURS)] } else { vec![] };
        assert_eq!(bed.actions(), given_up);
        assert_eq!(Bed::sent(&bed.next()).1, DISCOVER);
    }
    let mut bed = Bed::bound(800);
    bed.client.release(bed.now, &mut bed.jitter);
    bed.client.on_new_link(bed.now, STATION, &mut bed.jitter);
    assert_eq!(bed.client.poll_timeout(), None, "who has given it back asks for no other");
}

/// Servers that say everything in the first ACK alone (MikroTik's) must not take the routes away by the second.
#[test]
fn an_extension_keeps_what_its_ack_does_not_carry() {
    let first = [&Bed::lease_option(800)[..], &[6, 4, 10, 0, 0, 53, 26, 2, 0x05, 0x78]].concat();
    for asks in [1, 5] {
        let mut bed = Bed::new();
        bed.next();
        bed.answer(OFFER, &[]);
        bed.answer(ACK, &first);
        bed.client.on_checked();
        bed.actions();
        let before = bed.client.lease().cloned().expect("bound");
        assert_eq!((before.routes.len(), before.mtu_bytes), (1, Some(1_400)));
        for _ in 0..asks {
            bed.next();
        }
        let actions = bed.answer_barely(ACK, &Bed::lease_option(800));
        assert_eq!(actions, [Action::Configure(before.clone())], "RENEWING, REBINDING");
        bed.client.on_new_link(bed.now, STATION, &mut bed.jitter);
        bed.next();
        let actions = bed.answer_barely(ACK, &Bed::lease_option(800));
        assert_eq!(actions, [Action::Configure(before.clone())], "REBOOTING");
        bed.next();
        // What it does carry is new, or none any more.
        let options = [&Bed::lease_option(800)[..], &[6, 4, 10, 0, 0, 54, 3, 4, 0, 0, 0, 0]];
        let actions = bed.answer_barely(ACK, &options.concat());
        let name_servers = vec![Ipv4Addr::new(10, 0, 0, 54)];
        let after = Lease { name_servers, routes: vec![], ..before };
        assert_eq!(actions, [Action::Configure(after)]);
    }
}

#[test]
fn routers_and_name_servers_that_cannot_be_any_are_passed_over() {
    let lease = |options: &[u8]| {
        let mut bed = Bed::new();
        bed.next();
        bed.answer(OFFER, &[]);
        let options = [&Bed::lease_option(800)[..], &[1, 4, 255, 255, 255, 0], options].concat();
        match &bed.answer_barely(ACK, &options)[..] {
            [Action::Check(lease)] => lease.clone(),
            other => panic!("{other:?}"),
        }
    };
    let gateways = |lease: Lease| lease.routes.into_iter().map(|it| it.gateway).collect::<Vec<_>>();
    let sound = Ipv4Addr::new(10, 0, 0, 3);
    for wrong in [[0; 4], OURS.octets(), [10, 0, 0, 255], [255; 4], [127, 0, 0, 1], [224, 0, 0, 2]]
    {
        let one = [&[3, 4][..], &wrong].concat();
        assert!(gateways(lease(&one)).is_empty(), "{wrong:?}");
        let two = [&[3, 8][..], &wrong, &sound.octets()].concat();
        assert_eq!(gateways(lease(&two)), [sound]);
    }
    // RFC 3442: there an unspecified router means that the network is on the link.
    let classless = lease(&[121, 10, 0, 0, 0, 0, 0, 0, 10, 0, 0, 9]);
    assert_eq!(gateways(classless), [Ipv4Addr::UNSPECIFIED], "and not by our own address");
    // RFC 3021: of a network of two, each can be a router.
    let mut bed = Bed::new();
    bed.next();
    let options = [&Bed::lease_option(800)[..], &[1, 4, 255, 255, 255, 254, 3, 4, 10, 0, 0, 9]];
    let lower = Ipv4Addr::new(10, 0, 0, 8);
    let mut actions = Vec::new();
    for kind in [OFFER, ACK] {
        let mut bytes = [bed.reply(kind), options.concat()].concat();
        bytes[16..20].copy_from_slice(&lower.octets());
        actions = bed.hear(&bytes);
    }
    let [Action::Check(of_two)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(gateways(of_two.clone()), [OURS]);
    let padded = lease(&[6, 12, 10, 0, 0, 53, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(padded.name_servers, [Ipv4Addr::new(10, 0, 0, 53)]);
}

/// Networks that register machines lease for 10 to 30 s.
#[test]
fn a_short_lease_is_taken_and_one_that_is_too_short_is_told_of() {
    let mut bed = Bed::bound(LEASE_MIN_S);
    let granted = bed.now;
    for (destination, at_s) in [(SERVER, 5), (Ipv4Addr::BROADCAST, 8)] {
        assert_eq!(Bed::sent(&bed.next()).0.destination, destination);
        assert_eq!((bed.now - granted).as_secs(), at_s);
    }
    assert_eq!(bed.next(), [Action::Deconfigure(OURS)]);
    assert_eq!((bed.now - granted).as_secs(), 10);

    let mut bed = Bed::new();
    bed.next();
    let short = Bed::lease_option(LEASE_MIN_S - 1);
    assert_eq!(bed.answer(OFFER, &short), [Action::TooShort(SERVER, 9)]);
    assert_eq!(bed.answer(OFFER, &short), [], "told once");
    assert_eq!(Bed::sent(&bed.next()).1, DISCOVER, "it goes on asking");
    let offered = bed.answer(OFFER, &Bed::lease_option(600));
    assert_eq!(Bed::sent(&offered).1, REQUEST, "and takes what is long enough");
    let counters = bed.client.counters();
    assert_eq!((counters.dhcp_too_short, counters.dhcp_ignored, counters.dhcp_taken), (2, 2, 1));
}
