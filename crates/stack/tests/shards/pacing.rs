//! The rate of a connection, set by the application.

use crate::harness::{self, Net, address};
use batch::{Block, Chunk};
use bytes::Bytes;
use core::net::SocketAddr;
use core::num::NonZeroU64;
use device::TransmitMode;
use stack::TcpOption;
use time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Two segments may go at once, and the last may have a part of its time left.
const TOLERANCE_BYTES: usize = 3 * 1_500;

#[test]
fn a_rate_that_was_set_is_kept_to_from_the_first_byte_on() {
    let mut net = Net::new(TransmitMode::Multidata, false);
    let local = SocketAddr::new(address(1, false), 80);
    let listener = net.hosts[1].shard.tcp_listen(local, 10).expect("free");
    let client = net.hosts[0].shard.tcp_connect(net.now, None, local).expect("a route");
    net.run(10 * MS);
    let server = net.hosts[1].shard.tcp_accept(listener).expect("open");
    let limit = |net: &mut Net, rate: u64| {
        let option = TcpOption::PacingRateMax(NonZeroU64::new(rate));
        net.hosts[0].shard.tcp_set_option(net.now, client, option).expect("open");
    };
    limit(&mut net, 50_000);
    let bytes = harness::data(400_000);
    let chunk = Chunk::whole(Block::from(Bytes::copy_from_slice(&bytes)));
    net.hosts[0].shard.tcp_append(net.now, client, chunk).expect("room");
    let mut received = Vec::new();
    let mut expected = 0;
    for (rate, seconds) in [(50_000, 3), (1_000, 20), (100_000, 1)] {
        limit(&mut net, rate as u64);
        for _ in 0..seconds {
            net.run(1_000 * MS);
            net.read(1, server, &mut received).expect("open");
            expected += rate;
            let error = received.len().abs_diff(expected);
            assert!(error <= TOLERANCE_BYTES, "{rate}: {} of {expected}", received.len());
        }
    }
    // Who changes it every millisecond has no more.
    for turn in 0..1_000 {
        limit(&mut net, 10_000 + turn % 2);
        net.run(MS);
    }
    net.read(1, server, &mut received).expect("open");
    expected += 10_000;
    let error = received.len().abs_diff(expected);
    assert!(error <= TOLERANCE_BYTES, "{} of {expected}", received.len());
    // Without a limit nothing waits, though the path is too short for anything else to spread it.
    limit(&mut net, 0);
    net.run(10 * MS);
    net.read(1, server, &mut received).expect("open");
    assert_eq!(received, bytes);
}
