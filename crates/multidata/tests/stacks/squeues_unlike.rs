//! Several squeues whose device queues are not alike: what one of them cannot do is done by none.

use crate::pair::{LEFT, interface};
use device::{Medium, Queue, TransmitMode, WireConfig, WireEnd};
use multidata::Stack;

#[test]
fn what_one_queue_of_a_device_cannot_do_is_done_by_none() {
    let (able, plain) = (WireEnd::offloading(Medium::Ip), WireEnd::plain(Medium::Ip));
    let wires = [(able, 9_000), (plain, 1_500)];
    let (queues, _peers): (Vec<Box<dyn Queue>>, Vec<_>) = wires
        .map(|(end, mtu_bytes)| WireConfig { mtu_bytes, ..WireConfig::new(end, end) })
        .map(device::wire)
        .map(|(near, far)| (Box::new(near) as _, far))
        .into_iter()
        .unzip();
    let config = interface(LEFT).mode(TransmitMode::Multidata);
    let builder = Stack::builder().squeues(2).multiqueue_interface(queues, config);
    let stack = builder.build().expect("a stack");
    let status = || {
        let status = stack.interfaces().remove(0);
        (status.mode, status.transmit.wanted, status.ipv4_mtu_bytes)
    };
    let before = status();
    assert_eq!(before.0, TransmitMode::Multidata);
    let error = stack.set_transmit_mode(0, TransmitMode::Lso).expect_err("the second cannot");
    assert!(error.to_string().contains("no form for mode lso"), "{error}");
    stack.set_mtu(0, 8_000).expect_err("the second takes 1,500 bytes");
    assert_eq!(status(), before);
    stack.set_mtu(0, 1_400).expect("both do");
    assert_eq!(status().2, 1_400);
}
