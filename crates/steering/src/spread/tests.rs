use super::*;
use crate::packets::address;
use proptest::prelude::*;

fn spread(layout: &str, policy: Policy, homes: u16) -> Spread {
    Spread::new(layout.parse().expect(layout), policy, homes).expect("a spread")
}

#[test]
fn homes_must_be_what_the_layout_feeds_or_fewer() {
    let layout: Layout = "R1S8F1".parse().expect("a layout");
    assert!(Spread::new(layout, Policy::Flow, 8).is_ok());
    assert!(Spread::new(layout, Policy::Flow, 2).is_ok());
    for homes in [0, 9] {
        let error = Spread::new(layout, Policy::Flow, homes).expect_err("out of bounds");
        assert_eq!(error.to_string(), format!("R1S8F1 feeds 1 to 8 squeues, not {homes}"));
    }
}

#[test]
fn policies_are_read_as_they_are_written() {
    for (policy, name) in Policy::ALL {
        assert_eq!(policy.to_string(), name);
        assert_eq!(name.parse(), Ok(policy));
    }
    let error = "size".parse::<Policy>().expect_err("unknown").to_string();
    assert_eq!(error, "connections are spread by flow, source or protocol, not by \"size\"");
}

#[test]
fn consecutive_ports_are_spread_over_all_homes() {
    for homes in [2, 3, 4, 8] {
        let spread = spread("R1S8F1", Policy::Flow, homes);
        for remote in ["10.0.0.9:40000", "192.168.7.3:1024", "[fd00::9]:55001"] {
            let mut counts = vec![0; homes.into()];
            let first = address(remote);
            let local = address(if first.is_ipv4() { "10.0.0.1:80" } else { "[fd00::1]:80" });
            for step in 0..64 {
                let remote = SocketAddr::new(first.ip(), first.port() + step);
                counts[spread.home_of_reply(local, remote).index()] += 1;
            }
            let fair = 64 / i32::from(homes);
            let is_even = counts.iter().all(|count| (fair / 3..=3 * fair).contains(count));
            assert!(is_even, "{remote} over {homes}: {counts:?}");
        }
    }
}

/// The device brings most segments to the ring of their connection's home; which that is, the flow says all the
/// same, also for errors about it.
#[test]
fn where_the_device_spreads_flows_the_ring_is_asked_first_and_the_flow_decides() {
    let (local, remote) = (address("10.0.0.1:80"), address("10.0.0.9:40000"));
    let flow = Flow { remote, local };
    let (by_device, by_hash) =
        (spread("R4S0F0", Policy::Flow, 4), spread("R1S4F1", Policy::Flow, 4));
    assert_eq!(by_device.home_of_reply(local, remote), by_hash.home_of_reply(local, remote));
    assert_eq!(by_device.target(&Class::Tcp(flow), || flow.hash()), Target::Ring);
    let error = Class::IcmpError(Transport::Tcp, flow);
    let Target::Slot(slot) = by_device.target(&error, || flow.hash()) else { panic!("a home") };
    assert_eq!(by_device.home_of_slot(slot), by_device.home_of_reply(local, remote));
    // Two hosts with as many homes agree on which one a connection has.
    assert_eq!(by_device.home_of_reply(local, remote), by_device.home_of_reply(remote, local));
}

#[test]
fn protocols_have_a_home_each_as_far_as_there_are_homes() {
    let remote = address("10.0.0.9:80");
    for (homes, expected) in [(1, [0, 0, 0]), (2, [1, 0, 0]), (3, [1, 2, 0]), (8, [1, 2, 0])] {
        let spread = spread(&format!("R1S{homes}F1"), Policy::Protocol, homes);
        let flow = Flow { remote, local: address("10.0.0.1:9") };
        let homes = [Class::Tcp(flow), Class::Udp(flow), Class::Other].map(|class| {
            match spread.target(&class, || 0) {
                Target::Slot(slot) => spread.home_of_slot(slot).0,
                target => panic!("{target:?}"),
            }
        });
        assert_eq!(homes, expected);
    }
}

proptest! {
    #[test]
    fn a_socket_has_one_home_whoever_sends(port: u16, remote_port: u16, remote: [u8; 4]) {
        for (layout, homes) in [("R1S8F1", 8), ("R1S8F1", 3), ("R4S0F0", 4), ("R1S1F0", 1)] {
            let spread = spread(layout, Policy::Flow, homes);
            let flow = Flow {
                remote: SocketAddr::from((remote, remote_port)),
                local: SocketAddr::from(([10, 0, 0, 1], port)),
            };
            for class in [Class::Udp(flow), Class::IcmpError(Transport::Udp, flow)] {
                match spread.target(&class, || flow.hash()) {
                    Target::Slot(slot) => prop_assert_eq!(
                        spread.home_of_slot(slot), spread.home_of_datagrams(port)
                    ),
                    target => prop_assert!(false, "{:?}", target),
                }
            }
            prop_assert!(spread.home_of_datagrams(port).0 < homes);
        }
    }
}
