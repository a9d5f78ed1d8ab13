//! One stack on several wires.

mod pair;

use multidata::{InterfaceConfig, Stack, TcpListener, TcpStream};
use pair::exchange;

fn interface(address: &str) -> InterfaceConfig {
    InterfaceConfig::new(address.parse().expect("an address"))
}

#[test]
fn a_stack_talks_over_all_its_interfaces_at_once() {
    let wires: Vec<_> = (0..3).map(|_| device::wire(pair::ethernet())).collect();
    let mut hub = Stack::builder();
    let mut peers = Vec::new();
    for (index, (near, far)) in wires.into_iter().enumerate() {
        hub = hub.interface(near, interface(&format!("10.2.{index}.1/24")));
        let peer = Stack::builder().interface(far, interface(&format!("10.2.{index}.2/24")));
        peers.push(peer.build().expect("a stack"));
    }
    let hub = hub.build().expect("a stack");
    assert_eq!(hub.interfaces().len(), 3);
    let listener = TcpListener::bind(&hub, "0.0.0.0:80").expect("a free port");
    std::thread::scope(|scope| {
        for (index, peer) in peers.iter().enumerate() {
            let client = TcpStream::connect(peer, format!("10.2.{index}.1:80")).expect("there");
            let (server, _) = listener.accept().expect("there");
            scope.spawn(move || exchange(&client, &server, index as u64, 4 << 20));
        }
    });
}

#[test]
fn streams_go_on_when_the_mtu_changes() {
    let (left, right_stack) = pair::pair();
    let (client, server) = pair::connected(&left, &right_stack);
    std::thread::scope(|scope| {
        scope.spawn(|| pair::exchange(&client, &server, 3, 16 << 20));
        for mtu_bytes in [600, 1_500, 576, 1_000, 1_500] {
            std::thread::sleep(std::time::Duration::from_millis(10));
            left.set_mtu(0, mtu_bytes).expect("the device takes more");
            right_stack.set_mtu(0, mtu_bytes).expect("the device takes more");
        }
    });
    for mtu_bytes in [575, 1_501] {
        let error = left.set_mtu(0, mtu_bytes).expect_err("out of range");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
    assert!(left.set_mtu(1, 1_000).is_err(), "there is one interface");
}
