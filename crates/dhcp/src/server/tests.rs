use super::*;
use crate::message::{Route, ServerMessage, distinct_identifier};
use crate::{Action, Client, ClientConfig, Lease};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use time::Jitter;

const SERVER: Ipv4Addr = host(2);
const LEASE: Duration = Duration::from_secs(3_600);

const fn host(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 2, last)
}

const fn station(number: u8) -> HardwareAddress {
    HardwareAddress([2, 0, 0, 0, 0, number])
}

fn config(leased: RangeInclusive<Ipv4Addr>) -> ServerConfig {
    ServerConfig {
        address: SERVER,
        prefix_len: 24,
        leased,
        leased_per_link_max: usize::MAX,
        lease_s: 3_600,
        routers: vec![SERVER],
        name_servers: vec![host(3)],
        mtu_bytes: Some(1_400),
    }
}

/// What a client that has no address says.
fn message(kind: MessageKind, station: HardwareAddress) -> ClientMessage {
    ClientMessage {
        kind,
        transaction: 0x0102_0304,
        seconds: 7,
        client_address: Ipv4Addr::UNSPECIFIED,
        station,
        requested: None,
        server: None,
        client_identifier: None,
        host_name: None,
    }
}

/// A server, the time, and by which link its clients are heard.
struct Bed {
    server: Server,
    now: Instant,
    link: u64,
}

impl Bed {
    /// A server that leases so many addresses from 10.0.2.15 on.
    fn new(count: u8) -> Self {
        Self {
            server: Server::new(config(host(15)..=host(14 + count))),
            now: Instant::from_millis(1_000),
            link: 0,
        }
    }

    fn say(&mut self, message: &ClientMessage) -> Option<(Ipv4Addr, ServerMessage)> {
        let answer = self.server.on_message(self.now, self.link, &message.emit())?;
        let read = ServerMessage::parse(&answer.payload).expect("a sound message");
        assert_eq!((read.transaction, read.station), (message.transaction, message.station));
        assert_eq!(read.server, Some(SERVER));
        Some((answer.destination, read))
    }

    fn discover(&mut self, station: HardwareAddress) -> Option<Ipv4Addr> {
        let (to, offer) = self.say(&message(MessageKind::Discover, station))?;
        assert_eq!((to, offer.kind), (Ipv4Addr::BROADCAST, MessageKind::Offer));
        Some(offer.your_address)
    }

    /// Asks for an address, of this server where it was offered.
    fn request(
        &mut self,
        station: HardwareAddress,
        wanted: Ipv4Addr,
        of: Option<Ipv4Addr>,
    ) -> bool {
        let request = message(MessageKind::Request, station);
        let request = ClientMessage { requested: Some(wanted), server: of, ..request };
        let (to, answer) = self.say(&request).expect("it is answered");
        assert_eq!(to, Ipv4Addr::BROADCAST);
        match answer.kind {
            MessageKind::Ack => assert_eq!(answer.your_address, wanted),
            kind => assert_eq!((kind, answer.your_address), (MessageKind::Nak, [0; 4].into())),
        }
        answer.kind == MessageKind::Ack
    }

    /// As [`Bed::discover`], with an address that the station would like.
    fn wish(&mut self, station: HardwareAddress, wished: Ipv4Addr) -> Option<Ipv4Addr> {
        let discover = message(MessageKind::Discover, station);
        let (_, offer) = self.say(&ClientMessage { requested: Some(wished), ..discover })?;
        Some(offer.your_address)
    }

    fn lease(&mut self, station: HardwareAddress) -> Option<Ipv4Addr> {
        let offered = self.discover(station)?;
        assert!(self.request(station, offered, Some(SERVER)));
        Some(offered)
    }

    fn release(&mut self, station: HardwareAddress, address: Ipv4Addr) {
        let release = message(MessageKind::Release, station);
        let release = ClientMessage { client_address: address, server: Some(SERVER), ..release };
        assert_eq!(self.say(&release), None, "nothing answers it");
    }

    fn decline(&mut self, station: HardwareAddress, address: Ipv4Addr) {
        let decline = message(MessageKind::Decline, station);
        let decline = ClientMessage { requested: Some(address), server: Some(SERVER), ..decline };
        assert_eq!(self.say(&decline), None, "nothing answers it");
    }
}

/// RFC 2131, 3.1 and 4.4.5, with the client of this crate.
#[test]
fn a_client_gets_a_lease_with_all_that_goes_with_it_and_keeps_it() {
    let mut bed = Bed::new(9);
    let mut jitter = Jitter::new(1);
    let mut client = Client::new(bed.now, ClientConfig::default(), station(1), &mut jitter);
    let (mut configured, mut destinations) = (Vec::new(), Vec::new());
    let end = bed.now + LEASE * 3;
    while bed.now < end {
        bed.now = client.poll_timeout().expect("it waits for something");
        client.on_timeout(bed.now, &mut jitter);
        while let Some(action) = client.poll_action() {
            match action {
                Action::Send(packet) => {
                    let answer = bed.server.on_message(bed.now, 0, &packet.payload);
                    let answer = answer.expect("it is answered");
                    destinations.push(answer.destination);
                    assert!(client.on_message(bed.now, &answer.payload, &mut jitter));
                }
                Action::Check(_) => client.on_checked(),
                Action::Configure(lease) => configured.push(lease),
                other => panic!("{other:?}"),
            }
        }
    }
    let network = Ipv4Addr::UNSPECIFIED;
    let expected = Lease {
        address: host(15),
        prefix_len: 24,
        server: SERVER,
        routes: vec![Route { network, prefix_len: 0, gateway: SERVER }],
        name_servers: vec![host(3)],
        mtu_bytes: Some(1_400),
    };
    assert!(configured.len() > 3 && configured.iter().all(|lease| *lease == expected));
    let (first, renewed) = destinations.split_at(2);
    assert!(first.iter().all(|to| to.is_broadcast()), "it has no address yet");
    assert!(renewed.iter().all(|to| *to == host(15)), "RFC 2131, 4.1: to ciaddr");
}

#[test]
fn each_station_has_an_address_of_its_own_and_gets_it_again() {
    let mut bed = Bed::new(9);
    let leased = [1, 2, 3].map(|number| bed.lease(station(number)));
    assert_eq!(leased, [15, 16, 17].map(|last| Some(host(last))));
    assert_eq!(bed.lease(station(2)), Some(host(16)), "it was started anew");
    bed.release(station(2), host(16));
    assert_eq!(bed.server.counters().dhcp_releases, 1);
    bed.now += LEASE * 2;
    assert_eq!(bed.discover(station(4)), Some(host(18)), "what nobody had goes first");
    assert_eq!(bed.lease(station(2)), Some(host(16)), "it came back after its lease");
    assert_eq!(bed.lease(station(1)), Some(host(15)));
}

/// RFC 2131, 4.3.1: an offer is not another's either, for a while.
#[test]
fn who_asks_at_once_is_offered_another_address() {
    let mut bed = Bed::new(9);
    let offers = [1, 2, 1].map(|number| bed.discover(station(number)));
    assert_eq!(offers, [15, 16, 15].map(|last| Some(host(last))));
    assert!(bed.request(station(2), host(16), Some(SERVER)));
    assert!(bed.request(station(1), host(15), Some(SERVER)));
    assert_eq!(bed.wish(station(3), host(20)), Some(host(20)));
    bed.now += OFFER / 2;
    assert_eq!(bed.wish(station(4), host(20)), Some(host(17)));
    bed.now += OFFER / 2;
    assert_eq!(bed.wish(station(5), host(20)), Some(host(20)), "nobody took it");
}

#[test]
fn when_all_is_leased_others_wait_for_what_is_given_up() {
    let mut bed = Bed::new(2);
    bed.lease(station(1));
    bed.lease(station(2));
    assert_eq!(bed.discover(station(3)), None);
    assert!(!bed.request(station(3), host(15), None));
    let counters = bed.server.counters();
    assert_eq!((counters.dhcp_exhausted, counters.dhcp_refusals), (1, 1));
    assert_eq!((counters.dhcp_offers, counters.dhcp_acks, counters.dhcp_unanswered), (2, 2, 0));
    bed.release(station(2), host(16));
    assert_eq!(bed.lease(station(3)), Some(host(16)));
    assert_eq!(bed.discover(station(2)), None, "its address is another's");
    bed.now += LEASE;
    assert_eq!(bed.lease(station(2)), Some(host(15)), "all have ended: what was leased first");
}

#[test]
fn who_is_gone_with_its_link_keeps_no_address_from_others() {
    let mut bed = Bed::new(3);
    for number in [1, 2, 3] {
        bed.link = number.into();
        bed.lease(station(number));
    }
    bed.decline(station(3), host(17));
    bed.link = 9;
    assert_eq!(bed.discover(station(4)), None);
    bed.server.on_link_gone(bed.now, 2);
    assert_eq!(bed.lease(station(2)), Some(host(16)), "it is the first to ask again");
    bed.server.on_link_gone(bed.now, 2);
    assert_eq!(bed.discover(station(4)), None, "it came back by another link");
    bed.server.on_link_gone(bed.now, 9);
    assert_eq!(bed.lease(station(4)), Some(host(16)));
    bed.server.on_link_gone(bed.now, 3);
    assert_eq!(bed.lease(station(2)), Some(host(17)), "what was seen there is gone, too");
    assert_eq!(bed.discover(station(5)), None, "the first is still there");
}

#[test]
fn a_lease_is_where_its_station_was_heard_last() {
    let mut bed = Bed::new(2);
    bed.link = 1;
    assert_eq!(bed.discover(station(1)), Some(host(15)));
    bed.server.on_link_gone(bed.now, 1);
    assert_eq!(bed.wish(station(2), host(15)), Some(host(15)), "the offer went with its link");
    assert!(bed.request(station(2), host(15), Some(SERVER)));
    bed.link = 3;
    bed.lease(station(4));
    bed.link = 2;
    let renewal = message(MessageKind::Request, station(2));
    let renewal = ClientMessage { client_address: host(15), ..renewal };
    let (_, granted) = bed.say(&renewal).expect("it is answered");
    assert_eq!(granted.kind, MessageKind::Ack);
    bed.server.on_link_gone(bed.now, 1);
    assert_eq!(bed.discover(station(3)), None, "it moved");
    bed.server.on_link_gone(bed.now, 2);
    assert_eq!(bed.discover(station(3)), Some(host(15)));
}

#[test]
fn an_address_is_reached_by_the_link_of_whom_it_is_leased_to() {
    let mut bed = Bed::new(4);
    let link_of = |bed: &Bed, last| bed.server.link_of(bed.now, host(last));
    for number in [1, 2, 3] {
        bed.link = number.into();
        assert_eq!(bed.discover(station(number)), Some(host(14 + number)));
        assert_eq!(link_of(&bed, 14 + number), None, "it is only offered");
        bed.lease(station(number));
    }
    assert_eq!(
        [14, 15, 16, 17, 18].map(|it| link_of(&bed, it)),
        [None, Some(1), Some(2), Some(3), None]
    );
    bed.decline(station(3), host(17));
    bed.server.on_link_gone(bed.now, 1);
    assert_eq!([15, 16, 17].map(|it| link_of(&bed, it)), [None, Some(2), None]);
    bed.now += LEASE;
    assert_eq!(link_of(&bed, 16), None, "it has ended");
}

#[test]
fn what_was_given_back_before_its_link_went_was_given_up_then() {
    let mut bed = Bed::new(2);
    for number in [1, 2] {
        bed.link = number.into();
        bed.lease(station(number));
    }
    for number in [1, 2] {
        bed.now += Duration::from_secs(1);
        bed.link = number.into();
        bed.release(station(number), host(14 + number));
    }
    bed.now += Duration::from_secs(1);
    bed.server.on_link_gone(bed.now, 1);
    assert_eq!(bed.discover(station(3)), Some(host(15)));
}

#[test]
fn a_flood_of_discovers_keeps_nobody_from_a_lease() {
    let mut bed = Bed::new(4);
    let kept = bed.lease(station(1)).expect("all are free");
    let early = bed.discover(station(2)).expect("three are free");
    for number in 0..10_000_u32 {
        let [a, b, c, d] = number.to_be_bytes();
        let offered = bed.discover(HardwareAddress([6, 6, a, b, c, d]));
        assert!(offered.is_some_and(|offered| offered != kept));
    }
    assert!(bed.request(station(2), early, Some(SERVER)), "an offer of it binds nobody else");
    assert!(bed.lease(station(3)).is_some_and(|third| ![kept, early].contains(&third)));
    assert_eq!(bed.lease(station(1)), Some(kept));
    assert_eq!(bed.server.places.len(), 4);
}

/// RFC 2131, 4.3.2: INIT-REBOOT, and a server that was started anew itself.
#[test]
fn a_link_has_no_more_addresses_than_it_is_allowed() {
    let mut bed = Bed::new(9);
    bed.server =
        Server::new(ServerConfig { leased_per_link_max: 2, ..config(host(15)..=host(23)) });
    assert_eq!([bed.lease(station(1)), bed.lease(station(2))], [Some(host(15)), Some(host(16))]);
    assert_eq!(bed.discover(station(3)), None, "two are there");
    assert!(!bed.request(station(3), host(20), None));
    let counters = bed.server.counters();
    assert_eq!((counters.dhcp_exhausted, counters.dhcp_refusals), (1, 1));
    assert!(bed.request(station(1), host(15), None), "who is there has it as before");
    bed.link = 1;
    let third = bed.lease(station(3)).expect("another link has its own");
    bed.decline(station(3), third);
    bed.lease(station(3)).expect("one is left to it");
    assert_eq!(bed.discover(station(4)), None, "what is said to be in use counts as had");
    bed.link = 0;
    bed.now += LEASE;
    bed.lease(station(4)).expect("nobody is there any more");
}

#[test]
fn a_lease_is_as_long_as_clients_take_it() {
    let mut bed = Bed::new(1);
    bed.server = Server::new(ServerConfig { lease_s: 0, ..config(host(15)..=host(15)) });
    let address = bed.discover(station(1)).expect("it is free");
    let request = message(MessageKind::Request, station(1));
    let request = ClientMessage { requested: Some(address), ..request };
    let (_, ack) = bed.say(&request).expect("it is answered");
    assert_eq!((ack.kind, ack.lease_s), (MessageKind::Ack, Some(LEASE_MIN_S)));
}

#[test]
fn who_had_an_address_keeps_it_unless_it_is_anothers_or_of_elsewhere() {
    let mut bed = Bed::new(9);
    assert!(bed.request(station(1), host(20), None), "nobody has it");
    assert!(!bed.request(station(2), host(20), None));
    assert!(bed.request(station(1), host(20), None));
    for elsewhere in [host(1), SERVER, host(99), [192, 168, 0, 15].into()] {
        assert!(!bed.request(station(3), elsewhere, None), "{elsewhere}");
    }
    let renewal = message(MessageKind::Request, station(2));
    let renewal = ClientMessage { client_address: host(20), ..renewal };
    let (to, refusal) = bed.say(&renewal).expect("it is answered");
    assert_eq!((to, refusal.kind), (Ipv4Addr::BROADCAST, MessageKind::Nak), "RFC 2131, 4.1");
    assert_eq!(refusal.lease_s, None, "RFC 2131, table 3");
    // Who takes another has the former no more.
    assert!(bed.request(station(1), host(21), None));
    assert_eq!(bed.wish(station(2), host(20)), Some(host(20)));
    assert!(bed.request(station(2), host(20), Some(SERVER)));
    assert_eq!(bed.lease(station(1)), Some(host(21)));
}

#[test]
fn what_a_client_wishes_for_it_is_offered_where_nobody_has_it() {
    let mut bed = Bed::new(9);
    for (number, wished, offered) in [(1, 20, 20), (2, 20, 15), (3, 99, 16), (1, 22, 20)] {
        assert_eq!(bed.wish(station(number), host(wished)), Some(host(offered)));
    }
}

#[test]
fn what_another_server_is_asked_for_changes_nothing() {
    let mut bed = Bed::new(1);
    bed.lease(station(1));
    for kind in [MessageKind::Request, MessageKind::Decline, MessageKind::Release] {
        let message = message(kind, station(1));
        let message = ClientMessage { server: Some(host(9)), ..message };
        let message = match kind {
            MessageKind::Release => ClientMessage { client_address: host(15), ..message },
            _ => ClientMessage { requested: Some(host(15)), ..message },
        };
        assert_eq!(bed.say(&message), None);
        assert_eq!(bed.discover(station(2)), None, "{kind:?}: it is leased");
    }
    assert_eq!(bed.server.counters().dhcp_unanswered, 3);
}

/// RFC 2131, 4.3.3: "MUST mark the network address as not available".
#[test]
fn what_was_declined_nobody_gets_for_a_while() {
    let mut bed = Bed::new(2);
    bed.lease(station(1));
    bed.decline(station(2), host(15));
    assert_eq!(bed.lease(station(1)), Some(host(15)), "it was another's word");
    bed.decline(station(1), host(15));
    assert_eq!(bed.server.counters().dhcp_conflicts, 1);
    assert_eq!(bed.lease(station(1)), Some(host(16)));
    assert_eq!(bed.discover(station(2)), None);
    assert!(!bed.request(station(2), host(15), None));
    bed.now += Duration::from_secs(599);
    assert_eq!(bed.discover(station(2)), None);
    bed.now += Duration::from_secs(1);
    assert_eq!(bed.lease(station(2)), Some(host(15)));
}

#[test]
fn a_release_is_of_ones_own_lease_alone() {
    let mut bed = Bed::new(2);
    bed.lease(station(1));
    bed.lease(station(2));
    bed.release(station(2), host(15));
    bed.release(station(3), host(15));
    assert_eq!(bed.discover(station(3)), None);
    assert_eq!(bed.server.counters().dhcp_releases, 0);
}

/// Virtual machines that are told one hardware address are rare; one that takes another's is worse.
#[test]
fn who_sits_at_another_link_gives_back_and_spoils_nobodys_lease() {
    let mut bed = Bed::new(1);
    bed.link = 1;
    bed.lease(station(1));
    bed.link = 2;
    assert_eq!(bed.discover(station(1)), Some(host(15)));
    bed.release(station(1), host(15));
    bed.decline(station(1), host(15));
    bed.server.on_link_gone(bed.now, 2);
    assert_eq!(bed.discover(station(2)), None);
    bed.link = 1;
    bed.release(station(1), host(15));
    assert_eq!(bed.discover(station(2)), Some(host(15)));
}

/// RFC 2131, 4.3.5.
#[test]
fn who_has_an_address_from_elsewhere_is_told_the_rest() {
    let mut bed = Bed::new(1);
    let inform = message(MessageKind::Inform, station(1));
    let inform = ClientMessage { client_address: host(200), ..inform };
    let (to, told) = bed.say(&inform).expect("it is of the network");
    assert_eq!((to, told.kind), (host(200), MessageKind::Ack));
    assert_eq!((told.your_address, told.lease_s), (Ipv4Addr::UNSPECIFIED, None));
    assert_eq!((told.name_servers, told.mtu_bytes), (vec![host(3)], Some(1_400)));
    let foreign = ClientMessage { client_address: [192, 0, 2, 1].into(), ..inform };
    assert_eq!(bed.say(&foreign), None);
    assert_eq!(bed.server.counters().dhcp_acks, 1);
    assert_eq!(bed.lease(station(2)), Some(host(15)), "nothing was leased");
}

/// RFC 2131, 4.1 and RFC 6842, 3.
#[test]
fn an_answer_has_the_fields_of_its_question_and_fits_everybody() {
    let all: Vec<_> = (100..120).map(host).collect();
    let lists =
        ServerConfig { routers: all.clone(), name_servers: all, ..config(host(15)..=host(15)) };
    let mut server = Server::new(lists);
    for identifier in [distinct_identifier(station(1)), vec![7; 135]] {
        let discover = message(MessageKind::Discover, station(1));
        let discover = ClientMessage { client_identifier: Some(identifier.clone()), ..discover };
        let question = discover.emit();
        let answer = server.on_message(Instant::ZERO, 0, &question).expect("it is free").payload;
        assert!((300..=548).contains(&answer.len()), "{}", answer.len());
        assert_eq!(answer[..12], [2, 1, 6, 0, 1, 2, 3, 4, 0, 0, 0x80, 0], "the flag comes back");
        assert_eq!((&answer[12..16], &answer[16..20]), (&[0; 4][..], &[10, 0, 2, 15][..]));
        assert_eq!((&answer[20..28], &answer[28..44]), (&[0; 8][..], &question[28..44]));
        let option = [&[61, identifier.len() as u8][..], &identifier].concat();
        assert!(answer.windows(option.len()).any(|window| window == option));
        let read = ServerMessage::parse(&answer).expect("a sound message");
        assert_eq!((read.routers.len(), read.name_servers.len()), (LIST_MAX, LIST_MAX));
    }
}

/// RFC 2131, table 3, and RFC 6842, 3: "If the 'client identifier' option is set in a message received from a client".
#[test]
fn an_answer_repeats_of_its_question_what_is_to_be_repeated_alone() {
    let mut bed = Bed::new(1);
    let identifier = distinct_identifier(station(1));
    let option = [&[61, identifier.len() as u8][..], &identifier].concat();
    let foreign = Some([192, 0, 2, 1].into());
    for (kind, requested, is_renewal, answered) in [
        (MessageKind::Discover, None, false, MessageKind::Offer),
        (MessageKind::Request, foreign, false, MessageKind::Nak),
        (MessageKind::Request, None, true, MessageKind::Ack),
    ] {
        let client_identifier = Some(identifier.clone());
        let question = message(kind, station(1));
        let mut question = ClientMessage { requested, client_identifier, ..question }.emit();
        // Hops; the client's address, where it counts; the next server's; the names of a server and of a file.
        question[3] = 9;
        if is_renewal || kind == MessageKind::Discover {
            question[12..16].copy_from_slice(&[10, 0, 2, 15]);
        }
        question[20..24].fill(7);
        question[44..236].fill(7);
        let answer = bed.server.on_message(bed.now, 0, &question).expect("it is answered").payload;
        assert_eq!(answer[240..243], [53, 1, answered.number()]);
        assert!(answer.windows(option.len()).any(|window| window == option), "{answered:?}");
        assert_eq!((answer[3], &answer[20..24], &answer[44..236]), (0, &[0; 4][..], &[0; 192][..]));
        let client = if is_renewal { [10, 0, 2, 15] } else { [0; 4] };
        assert_eq!(answer[12..16], client, "{answered:?}");
    }
}

/// RFC 2132, 3.5 and 3.8: "the minimum length for this option is 4 octets".
#[test]
fn where_there_is_neither_router_nor_name_server_none_is_told() {
    let lists = ServerConfig {
        routers: Vec::new(),
        name_servers: Vec::new(),
        ..config(host(15)..=host(15))
    };
    let question = message(MessageKind::Discover, station(1)).emit();
    let answer = Server::new(lists).on_message(Instant::ZERO, 0, &question);
    let answer = answer.expect("it is free").payload;
    let has_empty =
        answer[240..].windows(2).any(|pair| [[3, 0], [6, 0]].iter().any(|it| pair == it));
    assert!(!has_empty, "{:?}", &answer[240..]);
}

#[test]
fn only_hosts_of_the_network_are_leased() {
    let leased = |config: ServerConfig| {
        let server = Server::new(config);
        server.places.iter().map(|place| place.address).collect::<Vec<_>>()
    };
    let all = Ipv4Addr::UNSPECIFIED..=Ipv4Addr::BROADCAST;
    let one = leased(config(all.clone()));
    assert_eq!(one.len(), 252);
    assert!(![0, 2, 3, 255].iter().any(|last| one.contains(&host(*last))));
    assert_eq!(leased(ServerConfig { prefix_len: 31, ..config(all.clone()) }), [] as [Ipv4Addr; 0]);
    let pair = ServerConfig { prefix_len: 31, name_servers: Vec::new(), ..config(all.clone()) };
    assert_eq!(leased(pair), [host(3)]);
    assert_eq!(leased(ServerConfig { prefix_len: 0, ..config(all.clone()) }).len(), LEASED_MAX);
    for prefix_len in [32, 40] {
        assert_eq!(leased(ServerConfig { prefix_len, ..config(all.clone()) }).len(), 0);
    }
    assert_eq!(leased(config(RangeInclusive::new(host(20), host(10)))).len(), 0);
}

#[test]
fn what_is_no_question_of_a_station_here_is_not_answered() {
    let mut bed = Bed::new(9);
    let discover = message(MessageKind::Discover, station(1)).emit();
    let mut refused = |why: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = discover.clone();
        change(&mut bytes);
        assert_eq!(bed.server.on_message(bed.now, 0, &bytes), None, "{why}");
    };
    refused("a server's", &|bytes| bytes[0] = 2);
    refused("of Token Ring", &|bytes| bytes[1] = 6);
    refused("of a longer address", &|bytes| bytes[2] = 16);
    refused("by a relay", &|bytes| bytes[24] = 10);
    refused("of a group", &|bytes| bytes[28] = 1);
    refused("of nobody", &|bytes| bytes[28..34].fill(0));
    refused("of BOOTP", &|bytes| bytes[236] = 0);
    refused("without a type", &|bytes| bytes[240] = 0);
    refused("an offer", &|bytes| bytes[242] = 2);
    refused("of no known type", &|bytes| bytes[242] = 9);
    refused("cut off", &|bytes| bytes.truncate(235));
    refused("for nothing", &|bytes| bytes[242] = 3);
    assert_eq!(bed.server.counters().dhcp_unanswered, 12);
    assert_eq!(bed.discover(station(1)), Some(host(15)));
}

/// What stations say, one byte each: who, what, and about which address.
fn deed(bed: &mut Bed, [who, what, which]: [u8; 3]) -> Option<ServerMessage> {
    let kinds = [
        MessageKind::Discover,
        MessageKind::Request,
        MessageKind::Request,
        MessageKind::Release,
        MessageKind::Decline,
        MessageKind::Inform,
    ];
    let about = Some(host(13 + which % 8));
    let kind = kinds[usize::from(what) % kinds.len()];
    let mut said = message(kind, station(1 + who % 6));
    said.requested = about.filter(|_| what & 64 == 0);
    said.client_address =
        about.filter(|_| what & 32 != 0 || kind == MessageKind::Release).unwrap_or([0; 4].into());
    said.server = Some(if which & 128 == 0 { SERVER } else { host(9) }).filter(|_| what & 128 == 0);
    bed.now += Duration::from_secs(u64::from(which) * u64::from(who >> 4));
    bed.say(&said).map(|(_, answer)| answer)
}

proptest! {
    #[test]
    fn no_address_is_leased_to_two(deeds in prop::collection::vec(any::<[u8; 3]>(), 0..200)) {
        let mut bed = Bed::new(4);
        // Who was granted what, until when.
        let mut leases = HashMap::<Ipv4Addr, (HardwareAddress, Instant)>::new();
        for bytes in deeds {
            let declines_before = bed.server.counters().dhcp_conflicts;
            let releases_before = bed.server.counters().dhcp_releases;
            let answer = deed(&mut bed, bytes);
            let who = station(1 + bytes[0] % 6);
            let now = bed.now;
            leases.retain(|_, (_, until)| *until > now);
            let counters = bed.server.counters();
            if counters.dhcp_conflicts != declines_before || counters.dhcp_releases != releases_before {
                leases.retain(|_, (its, _)| *its != who);
            }
            if let Some(ack) = answer.filter(|it| it.kind == MessageKind::Ack && it.lease_s.is_some()) {
                let address = ack.your_address;
                prop_assert!((15..=18).contains(&address.octets()[3]));
                prop_assert!(leases.get(&address).is_none_or(|(its, _)| *its == who));
                leases.retain(|_, (its, _)| *its != who);
                leases.insert(address, (who, now + LEASE));
            }
            let stations = bed.server.places.iter().filter_map(|place| place.station);
            prop_assert_eq!(stations.clone().collect::<HashSet<_>>().len(), stations.count());
        }
    }

    #[test]
    fn any_bytes_are_answered_or_not(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        Bed::new(2).server.on_message(Instant::ZERO, 0, &bytes);
    }

    #[test]
    fn any_options_are_answered_within_the_bounds(options: Vec<u8>, kind in 1_u8..9, overload in 0_u8..4) {
        let mut bytes = message(MessageKind::Discover, station(1)).emit();
        bytes.truncate(240);
        bytes[60..200].fill(7);
        bytes.extend([53, 1, kind, 52, 1, overload]);
        bytes.extend(options);
        if let Some(answer) = Bed::new(2).server.on_message(Instant::ZERO, 0, &bytes) {
            prop_assert!((300..=548).contains(&answer.payload.len()));
            prop_assert!(ServerMessage::parse(&answer.payload).is_ok());
        }
    }
}
