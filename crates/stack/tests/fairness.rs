//! Connections of one interface get their turns by bytes, not by how much they have to say.

mod harness;

use device::TransmitMode;
use harness::{Net, data};
use stack::TcpOption;
use time::Duration;

/// Four connections that always have more to send than a batch holds, and one that sends a little:
/// each of the four gets an equal share, and the small one never waits for more than one round.
#[test]
fn connections_share_an_interface_by_bytes() {
    let mut net = Net::new(TransmitMode::Multidata, true);
    let pairs: Vec<_> = (0..5).map(|host| net.connect_to(false, 80 + host)).collect();
    let nodelay = TcpOption::NoDelay(true);
    net.hosts[0].shard.tcp_set_option(net.now, pairs[4].0, nodelay).expect("open");
    let bytes = data(400_000);
    let mut written = [0_usize; 5];
    let mut received: Vec<Vec<u8>> = vec![Vec::new(); 5];
    let mut small_waited = Duration::ZERO;
    for round in 0..400_u32 {
        for (at, (client, _)) in pairs.iter().enumerate().take(4) {
            written[at] += net.write(0, *client, &bytes);
        }
        written[4] += net.write(0, pairs[4].0, &[7; 100]);
        let before = net.now;
        let wanted = written[4];
        // One batch each way, and time passes as on a link of 1 Gbit/s.
        for _ in 0..20 {
            net.step();
            net.now += Duration::from_micros(700);
            for (at, (_, server)) in pairs.iter().enumerate() {
                net.read(1, *server, &mut received[at]).expect("open");
            }
            if received[4].len() == wanted {
                break;
            }
        }
        if round > 20 {
            small_waited = small_waited.max(net.now - before);
        }
    }
    assert_eq!(received[4].len(), written[4], "nothing of the small one waits");
    let large: Vec<usize> = received[..4].iter().map(Vec::len).collect();
    let (least, most) = (*large.iter().min().expect("four"), *large.iter().max().expect("four"));
    assert!(least > 5_000_000, "{large:?}");
    assert!(most * 10 <= least * 13, "unequal: {large:?}");
    assert!(small_waited <= Duration::from_millis(12), "{small_waited:?}");
}
