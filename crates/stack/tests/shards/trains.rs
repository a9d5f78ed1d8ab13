//! Trains change how much work segments are, and nothing else: two pairs of hosts, one that takes
//! trains and one that takes each segment alone, say the same to the last bit, whatever happens to
//! the frames between them.

use crate::addresses;
use crate::harness::{Fate, Net, data};
use core::net::Ipv4Addr;
use counters::DropReason;
use device::TransmitMode;
use proptest::prelude::*;
use stack::{ClaimPolicy, SocketError, SocketId};
use time::Duration;
use wire::ArpOperation;

/// What happens to a frame on its way.
#[derive(Clone, Copy, Debug)]
enum Accident {
    Lost,
    Twice,
    /// After the one behind it.
    Late,
    /// A bit of it is another.
    Damaged(usize),
    /// Padding of the link, which is no part of the packet.
    Padded,
    /// The network marked it (RFC 3168).
    Marked,
    /// It took a longer way.
    Aged,
    /// The sender pushed.
    Pushed,
    /// The sender's window is another.
    Window(u16),
    /// The sender's clock is ahead.
    Clock(u8),
    /// The sender acknowledges less.
    Older(u16),
    /// It ends the stream, or resets it, or asks for something else.
    Flag(u8),
}

fn accident() -> impl Strategy<Value = Accident> {
    prop_oneof![
        4 => Just(Accident::Lost),
        4 => Just(Accident::Twice),
        4 => Just(Accident::Late),
        6 => any::<usize>().prop_map(Accident::Damaged),
        2 => Just(Accident::Padded),
        2 => Just(Accident::Marked),
        2 => Just(Accident::Aged),
        6 => Just(Accident::Pushed),
        6 => any::<u16>().prop_map(Accident::Window),
        4 => any::<u8>().prop_map(Accident::Clock),
        3 => any::<u16>().prop_map(Accident::Older),
        2 => prop_oneof![Just(0x01), Just(0x20), Just(0x40), Just(0x80), Just(0x04), Just(0x02)]
            .prop_map(Accident::Flag),
    ]
}

/// Accidents by the number of the frame that they happen to.
fn accidents() -> impl Strategy<Value = Vec<(usize, Accident)>> {
    prop::collection::vec((0..900_usize, accident()), 0..60)
}

const NETWORK: usize = 14;

/// How many frames a full queue marks.
const MARKED: usize = 6;

/// Where the TCP header of a frame begins; `None` for what is no TCP.
fn transport(frame: &[u8]) -> Option<usize> {
    match frame.get(NETWORK)? >> 4 {
        4 if frame[NETWORK + 9] == 6 => Some(NETWORK + 20),
        6 if frame[NETWORK + 6] == 6 => Some(NETWORK + 40),
        _ => None,
    }
}

/// Writes a word of a frame, and mends the checksum that covers it.
fn set(frame: &mut [u8], at: usize, word: [u8; 2], sum_at: Option<usize>) {
    let old = u16::from_be_bytes([frame[at], frame[at + 1]]);
    frame[at..at + 2].copy_from_slice(&word);
    let Some(sum_at) = sum_at else { return };
    let sum = u16::from_be_bytes([frame[sum_at], frame[sum_at + 1]]);
    let sum = checksum::update(sum, old, u16::from_be_bytes(word));
    frame[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
}

fn happen(accident: Accident, frame: &mut Vec<u8>) {
    let Some(tcp) = transport(frame) else { return };
    let is_ipv4 = tcp == NETWORK + 20;
    let (tcp_sum, ip_sum) = (Some(tcp + 16), is_ipv4.then_some(NETWORK + 10));
    match accident {
        Accident::Damaged(bit) => {
            let bit = bit % (8 * frame.len());
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        Accident::Padded => frame.extend([0; 9]),
        Accident::Marked if is_ipv4 => {
            let word = [frame[NETWORK], frame[NETWORK + 1] | 3];
            set(frame, NETWORK, word, ip_sum);
        }
        Accident::Marked => set(frame, NETWORK, [0x60, 0x30], None),
        Accident::Aged if is_ipv4 => {
            let word = [frame[NETWORK + 8] - 1, frame[NETWORK + 9]];
            set(frame, NETWORK + 8, word, ip_sum);
        }
        Accident::Aged => frame[NETWORK + 7] -= 1,
        Accident::Pushed | Accident::Flag(_) => {
            let flag = if let Accident::Flag(flag) = accident { flag } else { 8 };
            let word = [frame[tcp + 12], frame[tcp + 13] | flag];
            set(frame, tcp + 12, word, tcp_sum);
        }
        Accident::Window(window) => set(frame, tcp + 14, window.to_be_bytes(), tcp_sum),
        Accident::Older(less) => {
            let low = u16::from_be_bytes([frame[tcp + 10], frame[tcp + 11]]);
            set(frame, tcp + 10, low.saturating_sub(less).to_be_bytes(), tcp_sum);
        }
        Accident::Clock(ahead) if frame[tcp + 12] >> 4 == 8 => {
            let at = tcp + 26;
            let low = u16::from_be_bytes([frame[at], frame[at + 1]]);
            set(frame, at, low.saturating_add(ahead.into()).to_be_bytes(), tcp_sum);
        }
        _ => {}
    }
}

/// Lets accidents happen to the frames towards both hosts, counted from the first on.
fn road(accidents: Vec<(usize, Accident)>) -> impl FnMut(usize, &mut Vec<Vec<u8>>) {
    let mut number = 0;
    move |_, frames| {
        let mut arriving = Vec::with_capacity(frames.len());
        let mut late = None;
        for mut frame in frames.drain(..) {
            let concerns = |at: usize, accident: &Accident| match accident {
                Accident::Marked => (at..at + MARKED).contains(&number),
                _ => at == number,
            };
            let own = accidents.iter().filter(|(at, it)| concerns(*at, it)).map(|(_, it)| *it);
            let (mut count, mut is_late) = (1, false);
            for accident in own {
                match accident {
                    Accident::Lost => count = 0,
                    Accident::Twice => count = 2,
                    Accident::Late => is_late = true,
                    _ => happen(accident, &mut frame),
                }
            }
            number += 1;
            let before: Option<Vec<u8>> = late.take();
            match is_late {
                true => late = Some(frame),
                false => arriving.extend(std::iter::repeat_n(frame, count)),
            }
            arriving.extend(before);
        }
        arriving.extend(late);
        *frames = arriving;
    }
}

/// Both ends talk at once for a while; returns all that can be seen of it.
fn talk(trains: bool, (ipv6, ecn): (bool, bool), accidents: &[(usize, Accident)]) -> (Net, String) {
    let ecn = if ecn { tcp::EcnMode::Request } else { tcp::EcnMode::default() };
    let config = tcp::Config { ecn, ..tcp::Config::default() };
    let mut net = Net::with_config(TransmitMode::Multidata, true, config);
    for host in &mut net.hosts {
        host.shard.set_receive_trains(trains);
    }
    let (client, server) = net.connect(ipv6);
    net.mangle = Box::new(road(accidents.to_vec()));
    let (there, back) = (data(700_000), data(90_000));
    let (mut sent, mut received) = ([0; 2], [Vec::new(), Vec::new()]);
    let ends: [SocketId; 2] = [client, server];
    let mut errors = Vec::new();
    for round in 0..400 {
        for (host, bytes) in [&there[..], &back[..]].into_iter().enumerate() {
            sent[host] += net.write(host, ends[host], &bytes[sent[host]..]);
        }
        // A reader that falls behind, too.
        if round % 7 != 3 {
            for host in 0..2 {
                if let Err(error) = net.read(host, ends[host], &mut received[host]) {
                    errors.push((host, round, error));
                }
            }
        }
        net.run(Duration::from_micros(if round % 50 == 49 { 300_000 } else { 400 }));
    }
    let now = net.now;
    let mut seen = format!("{sent:?} {errors:?}");
    for (host, end) in net.hosts.iter_mut().zip(ends) {
        let shard = &mut host.shard;
        let mut counters = shard.counters();
        // How the work was divided is the one difference there may be.
        counters.shard.receive_trains = 0;
        counters.shard.receive_train_frames = 0;
        counters.shard.flow_cache_hits = 0;
        counters.shard.flow_lookups = 0;
        seen += &format!("\n{counters:?}\n{:?}", shard.tcp_info(now, end));
    }
    seen += &format!("\n{received:?}");
    (net, seen)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn a_train_says_what_its_segments_say_one_by_one(
        accidents in accidents(), ipv6: bool, ecn: bool,
    ) {
        let (with, seen_with) = talk(true, (ipv6, ecn), &accidents);
        let (without, seen_without) = talk(false, (ipv6, ecn), &accidents);
        prop_assert_eq!(with.wire.len(), without.wire.len());
        for (number, (one, other)) in with.wire.iter().zip(&without.wire).enumerate() {
            prop_assert_eq!(one, other, "frame {} of the wire", number);
        }
        prop_assert!(seen_with == seen_without, "the ends disagree");
        let followed =
            |net: &Net| net.hosts[1].shard.counters().shard.receive_train_frames;
        prop_assert_eq!(followed(&without), 0);
    }
}

#[test]
fn most_segments_of_a_stream_follow_another() {
    for ipv6 in [false, true] {
        let (net, _) = talk(true, (ipv6, false), &[]);
        let counters = net.hosts[1].shard.counters();
        let followed = counters.shard.receive_train_frames;
        let segments = counters.tcp.segments_received;
        assert!(2 * followed > segments, "{followed} of {segments} segments followed another");
    }
}

/// Connections hear of it at the end of the batch: until then the address is what stands in their way.
#[test]
fn what_follows_the_loss_of_its_address_in_one_batch_is_for_nobody() {
    let mut net = addresses::net(ClaimPolicy::Probe);
    let (client, server) = net.connect(false);
    let (now, id) = (net.now, net.hosts[0].interface);
    net.hosts[0].shard.on_link_changed(now, id);
    let is_data = |from: usize, frame: &[u8]| from == 1 && frame.len() > 500;
    net.fate = Box::new(move |from, frame| match is_data(from, frame) {
        true => Fate::Lose,
        false => Fate::Deliver,
    });
    net.wire.clear();
    net.write(1, server, &data(2_000));
    net.run(Duration::from_millis(1));
    let sent = net.wire.iter().filter(|(from, frame)| is_data(*from, frame));
    let mut frames: Vec<_> = sent.map(|(_, frame)| frame.clone()).collect();
    assert_eq!(frames.len(), 2);
    let (own, nobody) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::UNSPECIFIED);
    frames.insert(1, addresses::arp(ArpOperation::Reply, own, nobody));
    net.inject(0, frames);
    let shard = &mut net.hosts[0].shard;
    assert_eq!(shard.drop_count(DropReason::NotOurAddress), 1);
    assert!((1..2_000).contains(&shard.counters().tcp.bytes_received), "what came before");
    let status = shard.tcp_status(client).expect("not closed");
    assert_eq!(status.error, Some(SocketError::AddressRemoved));
    assert!(shard.poll_event().is_some_and(|event| event.socket == client));
}
