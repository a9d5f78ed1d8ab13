use super::*;
use crate::packets::{OURS, address, arp, batch, ethernet, sequence, tcp, udp};
use crate::spread::Policy;
use core::net::SocketAddr;
use wire::ether_type;

fn set(layout: &str, homes: u16, ring: u16) -> SoftRingSet {
    let layout = layout.parse().expect(layout);
    SoftRingSet::new(Spread::new(layout, Policy::Flow, homes).expect("a spread"), ring)
}

/// Segments of some flows, one of each in turn, numbered within their flow.
fn segments(flows: u16, each: u32) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for number in 0..each {
        for flow in 0..flows {
            packets.push(tcp(remote(flow), address("10.0.0.1:80"), number));
        }
    }
    packets
}

fn remote(flow: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 9], 40_000 + flow))
}

fn split(set: &mut SoftRingSet, packets: &[Vec<u8>], medium: Medium) {
    let mut batch = batch(packets.iter().map(Vec::as_slice));
    set.split(&mut batch, medium);
    assert!(batch.is_empty());
}

#[test]
fn every_segment_is_in_its_home_once_and_in_order() {
    for (layout, homes) in [("R1S2F1", 2), ("R1S8F1", 8), ("R1S8F1", 3), ("R1S8F0", 1)] {
        let mut set = set(layout, homes, 0);
        split(&mut set, &segments(16, 5), Medium::Ip);
        let spread = set.spread;
        let mut seen = vec![Vec::new(); 16];
        for lane in set.lanes_mut() {
            let home = lane.home();
            let batch = lane.batch_mut();
            for index in 0..batch.len() {
                let packet = batch.bytes(index);
                let flow = u16::from_be_bytes([packet[20], packet[21]]) - 40_000;
                let expected = spread.home_of_reply(address("10.0.0.1:80"), remote(flow));
                assert_eq!(expected, home, "{layout}");
                seen[usize::from(flow)].push(sequence(packet));
            }
        }
        assert!(seen.iter().all(|numbers| numbers.iter().copied().eq(0..5)), "{layout}: {seen:?}");
    }
}

#[test]
fn runs_of_a_flow_are_hashed_once() {
    let mut set = set("R1S2F1", 2, 0);
    let packets: Vec<_> = (0..40)
        .map(|number| tcp(remote(number as u16 / 20), address("10.0.0.1:80"), number))
        .collect();
    split(&mut set, &packets, Medium::Ip);
    assert_eq!((set.counters().srs_tcp, set.counters().srs_flow_cache_hits), (40, 38));
}

#[test]
fn bytes_are_not_copied() {
    let packets = segments(4, 4);
    let mut batch = batch(packets.iter().map(Vec::as_slice));
    let (start, end) = (batch.bytes(0).as_ptr(), batch.bytes(15).as_ptr());
    let mut set = set("R1S4F1", 4, 0);
    set.split(&mut batch, Medium::Ip);
    for lane in set.lanes_mut() {
        let batch = lane.batch_mut();
        for index in 0..batch.len() {
            assert!((start..=end).contains(&batch.bytes(index).as_ptr()));
        }
    }
}

#[test]
fn everyone_gets_what_everyone_needs_once() {
    for (layout, homes) in
        [("R1S4F1", 4), ("R1S8F1", 4), ("R4S0F0", 4), ("R4S2F0", 4), ("R1S8F0", 1), ("R4S0F0", 2)]
    {
        for ring in 0..layout[1..2].parse().expect("a digit") {
            let mut set = set(layout, homes, ring);
            split(&mut set, &[arp()], Medium::Ethernet(OURS));
            let mut counts = vec![0; homes.into()];
            for lane in set.lanes_mut() {
                counts[lane.home().index()] += lane.len();
            }
            assert_eq!(counts, vec![1; homes.into()], "{layout} ring {ring}");
        }
    }
}

/// What says whose home a flow is of does not say which of the home's soft rings it passes.
#[test]
fn flows_of_one_home_pass_all_of_its_soft_rings() {
    let mut set = set("R4S8F0", 4, 2);
    let (spread, local) = (set.spread, address("10.0.0.1:80"));
    let at_home = |flow: &u16| spread.home_of_reply(local, remote(*flow)) == Home(2);
    let packets: Vec<_> =
        (0..1_000).filter(at_home).map(|flow| tcp(remote(flow), local, 1)).collect();
    split(&mut set, &packets, Medium::Ip);
    let lens: Vec<_> = set.lanes_mut()[..8].iter().map(|lane| lane.len()).collect();
    let fair = packets.len() / 8;
    assert!(lens.iter().all(|len| (fair / 3..=3 * fair).contains(len)), "{lens:?}");
}

#[test]
fn what_the_device_has_spread_stays_and_what_it_cannot_know_is_steered() {
    for (layout, own_lanes) in [("R4S0F0", 1), ("R4S2F0", 2)] {
        let mut set = set(layout, 4, 2);
        let spread = set.spread;
        assert_eq!((set.home(), set.lanes.len()), (Home(2), own_lanes + 3));
        let mut packets: Vec<_> =
            segments(8, 2).iter().map(|it| ethernet(ether_type::IPV4, it)).collect();
        for port in 1_000..1_020 {
            let local = SocketAddr::from(([10, 0, 0, 1], port));
            packets.push(ethernet(ether_type::IPV4, &udp(remote(1), local, b"data")));
        }
        split(&mut set, &packets, Medium::Ethernet(OURS));
        let mut segments = 0;
        for lane in set.lanes_mut() {
            let home = lane.home();
            let batch = lane.batch_mut();
            for index in 0..batch.len() {
                match classify(batch.bytes(index), Medium::Ethernet(OURS)) {
                    Class::Tcp(_) => {
                        segments += 1;
                        assert_eq!(home, Home(2));
                    }
                    Class::Udp(flow) => {
                        assert_eq!(home, spread.home_of_datagrams(flow.local.port()));
                    }
                    class => panic!("{class:?}"),
                }
            }
        }
        assert_eq!(segments, 16);
        assert_eq!(set.counters().srs_tcp_spread_by_device, 16);
    }
}

#[test]
fn with_one_home_and_no_soft_rings_nothing_is_read() {
    let mut set = set("R1S0F0", 1, 0);
    let packets = [vec![0; 3], vec![1; 2_000]];
    split(&mut set, &packets, Medium::Ip);
    assert_eq!(set.lanes_mut()[0].len(), 2);
    assert_eq!((set.counters().srs_batches_bypassed, set.counters().srs_other), (1, 0));
    // What was not dealt with does not come a second time.
    split(&mut set, &[], Medium::Ip);
    assert!(set.lanes_mut()[0].is_empty());
}

#[test]
fn a_lane_goes_into_its_ring_with_its_flows() {
    let mut set = set("R1S2F1", 2, 0);
    let rings: Vec<_> = set
        .lanes_mut()
        .iter()
        .map(|_| SoftRing::new(crate::SoftRingConfig { frames_max: 16, bytes_max: 1 << 20 }))
        .collect();
    // One flow floods; the others still come through, whichever ring they share with it.
    let mut packets: Vec<_> =
        (0..100).map(|number| tcp(remote(0), address("10.0.0.1:80"), number)).collect();
    packets.extend(segments(5, 1).drain(1..));
    split(&mut set, &packets, Medium::Ip);
    for (lane, ring) in set.lanes_mut().iter_mut().zip(&rings) {
        lane.push_to(ring);
        assert!(lane.is_empty());
    }
    let queued: usize = rings.iter().map(SoftRing::depth).sum();
    assert_eq!(queued, 8 + 4);
}

// Who knows the public hash must not be able to have his flows share what another may hold of a ring.
#[test]
fn a_secret_tells_flows_of_one_hash_apart_and_moves_none_elsewhere() {
    let spread = |layout: &str| {
        let layout: crate::Layout = layout.parse().expect(layout);
        Spread::new(layout, crate::Policy::Flow, layout.homes_max()).expect("a spread")
    };
    let flow = |port| {
        let segment = crate::packets::tcp(
            std::net::SocketAddr::from(([10, 0, 0, 9], port)),
            crate::packets::address("10.0.0.1:80"),
            0,
        );
        batch([segment.as_slice()])
    };
    let keys = |set: &mut SoftRingSet| -> Vec<(usize, u32)> {
        (1..100)
            .map(|port| {
                set.split(&mut flow(port), Medium::Ip);
                let lanes = set.lanes_mut().iter().enumerate();
                let mut filled = lanes.filter(|(_, lane)| !lane.is_empty());
                filled.next().map(|(index, lane)| (index, lane.keys[0])).expect("a lane")
            })
            .collect()
    };
    let open = keys(&mut SoftRingSet::new(spread("R1S4F1"), 0));
    let secret = keys(&mut SoftRingSet::new(spread("R1S4F1"), 0).with_secret([1, 2]));
    let other = keys(&mut SoftRingSet::new(spread("R1S4F1"), 0).with_secret([1, 3]));
    let lanes = |keys: &[(usize, u32)]| keys.iter().map(|it| it.0).collect::<Vec<_>>();
    assert_eq!(lanes(&open), lanes(&secret));
    let differ = |a: &[(usize, u32)], b: &[(usize, u32)]| {
        a.iter().zip(b).filter(|(a, b)| a.1 % 256 != b.1 % 256).count()
    };
    assert!(differ(&open, &secret) > 80 && differ(&secret, &other) > 80);
}
