//! Connections of one interface get their turns by bytes, not by how much they have to say.

use crate::harness::{self, Net, data};
use device::TransmitMode;
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

/// Writers that take all they get, one after the other, from a pool that is too small for their buffers:
/// each has its share, the last as the first, and something is left for who comes later.
#[test]
fn writers_share_what_the_pool_has() {
    const WRITERS: usize = 60;
    const LEFT_BYTES: usize = 4 << 20;
    let mut net = Net::new(TransmitMode::Multidata, true);
    let connect = |net: &mut Net, port| net.connect_to(false, port).0;
    let writers: Vec<_> = (0..WRITERS as u16).map(|at| connect(&mut net, 100 + at)).collect();
    let late = connect(&mut net, 99);
    let host = &mut net.hosts[0];
    let held =
        host.pool.allocate(host.pool.left_to_share_bytes() - LEFT_BYTES).expect("it is left");
    let mut queued = [0_usize; WRITERS];
    loop {
        let before = queued;
        for (client, queued) in writers.iter().zip(&mut queued) {
            *queued += write_copied(host, net.now, *client, 16_384);
        }
        if queued == before {
            break;
        }
    }
    let even = LEFT_BYTES / (WRITERS + 1);
    for bytes in queued {
        assert!((even / 2..2 * even).contains(&bytes), "{bytes} of {even}: {queued:?}");
    }
    assert!(write_copied(host, net.now, late, 16_384) > 4_096, "nothing is left for the last");
    // With nothing left at all there is the least share, as far as there is memory.
    let rest = std::iter::from_fn(|| host.pool.allocate(256).ok());
    let rest: Vec<_> = std::iter::from_fn(|| host.pool.allocate(65_536).ok()).chain(rest).collect();
    assert_eq!(write_copied(host, net.now, late, 65_536), 0);
    let plan = host.shard.tcp_send_plan(late).expect("open");
    assert!(plan.lent_room_bytes > 1 << 19, "lent memory is not the pool's");
    drop((held, rest));
}

/// Peers that read nothing, each of which has its connection take all that it may: who comes behind them asks for
/// a little and has it, in a pool of the default size and in a small one.
#[test]
fn who_asks_for_a_little_has_it_behind_peers_that_read_nothing() {
    let small = batch::PoolConfig {
        limit_bytes: 1 << 20,
        receive_reserve_bytes: 256 << 10,
        ..batch::PoolConfig::default()
    };
    for (pool, stalled, late) in [(batch::PoolConfig::default(), 250, 200), (small, 15, 15)] {
        let mut net = Net::new(TransmitMode::Multidata, true);
        let [first, second] = net.hosts;
        net.hosts = [first.with_pool(0, pool), second];
        let clients: Vec<_> =
            (0..stalled + late).map(|at| net.connect_to(false, 1 + at).0).collect();
        let (stalled, late) = clients.split_at(usize::from(stalled));
        let host = &mut net.hosts[0];
        for client in stalled {
            while write_copied(host, net.now, *client, 65_536) > 0 {}
        }
        for (at, client) in late.iter().enumerate() {
            let written = write_copied(host, net.now, *client, 1_000);
            assert_eq!(written, 1_000, "nothing is left for {at}");
        }
    }
}

/// Copies into a block and queues as much of `len` bytes as the plan allows, for as long as the pool has
/// memory; says how much.
fn write_copied(
    host: &mut harness::Host,
    now: time::Instant,
    client: stack::SocketId,
    len: usize,
) -> usize {
    let room = host.shard.tcp_send_plan(client).expect("open").room_bytes.min(len);
    let Ok(block) = host.pool.allocate(room) else { return 0 };
    if room > 0 {
        let chunk = batch::Chunk::new(block.freeze(), 0..room);
        host.shard.tcp_append(now, client, chunk).expect("there is room");
    }
    room
}

/// A writer that waits for room is told once there is as much as it waits for, and not by every
/// acknowledgment.
#[test]
fn a_writer_is_told_of_room_that_is_worth_a_write() {
    for awaited_bytes in [None, Some(65_536_usize), Some(1 << 30)] {
        let mut net = Net::new(TransmitMode::Multidata, true);
        let (client, server) = net.connect(false);
        let bytes = data(4 << 20);
        // A few packets at a time, so that acknowledgments come one by one.
        net.hosts[0].take = Box::new(|built| built.min(4));
        let (mut written, mut received) = (0, Vec::new());
        let (mut events, mut steps) = (0, 0);
        while received.len() < bytes.len() {
            let room = net.write(0, client, &bytes[written..]);
            written += room;
            let shard = &mut net.hosts[0].shard;
            if let Some(awaited_bytes) = awaited_bytes {
                shard.tcp_await_room(client, awaited_bytes, false);
            }
            while shard.poll_event().is_some() {}
            // Until there is an event the writer sleeps.
            let mut is_told = false;
            while !is_told && received.len() < bytes.len() {
                net.step();
                net.now += Duration::from_micros(20);
                net.read(1, server, &mut received).expect("open");
                while let Some(event) = net.hosts[0].shard.poll_event() {
                    is_told |= event.readiness.intersects(stack::Readiness::WRITABLE);
                }
                steps += 1;
                assert!(steps < 100_000, "the writer was forgotten");
            }
            let plan = net.hosts[0].shard.tcp_send_plan(client).expect("open");
            events += usize::from(is_told && written < bytes.len());
            let wanted = awaited_bytes.map_or(1, |bytes| bytes.min(plan.share_bytes / 4));
            let is_empty = plan.lent_room_bytes >= plan.share_bytes;
            assert!(!is_told || is_empty || plan.room_bytes >= wanted, "{plan:?}");
        }
        assert!(received == bytes);
        // An event for each half dozen of packets, or for each 64 KiB.
        match awaited_bytes {
            None => assert!(events > 150, "{events}"),
            Some(_) => assert!(events < 70, "{events}"),
        }
    }
}

/// A writer that waits for room in its queue hears of it also where the pool has become short meanwhile: no
/// acknowledgment may come behind, and of memory there is no event, so it has to look by itself. Once it knows that it is
/// left alone.
#[test]
fn a_writer_that_waits_for_its_queue_is_told_that_the_pool_has_become_short() {
    const AWAITED_BYTES: usize = 65_536;
    let mut net = Net::new(TransmitMode::Multidata, true);
    let (client, server) = net.connect(false);
    let window = TcpOption::ReceiveBuffer(2 * AWAITED_BYTES);
    net.hosts[1].shard.tcp_set_option(net.now, server, window).expect("open");
    assert!(net.write(0, client, &data(4 << 20)) < 4 << 20, "the queue is full");
    net.hosts[0].shard.tcp_await_room(client, AWAITED_BYTES, false);
    let pool = &net.hosts[0].pool;
    let _held = pool.allocate(pool.left_to_send_bytes() - 4_096).expect("it is left");
    while net.hosts[0].shard.poll_event().is_some() {}
    // Until the peer's window is full.
    let is_told = |net: &mut Net| {
        net.run(Duration::from_millis(50));
        let mut is_told = false;
        while let Some(event) = net.hosts[0].shard.poll_event() {
            is_told |= event.readiness.intersects(stack::Readiness::WRITABLE);
        }
        is_told
    };
    assert!(is_told(&mut net), "it sleeps for ever");
    let plan = net.hosts[0].shard.tcp_send_plan(client).expect("open");
    assert!(plan.lent_room_bytes >= AWAITED_BYTES && plan.room_bytes == 0, "{plan:?}");
    net.hosts[0].shard.tcp_await_room(client, AWAITED_BYTES, false);
    net.hosts[1].shard.tcp_read(net.now, server, &mut [0; AWAITED_BYTES]).expect("it arrived");
    assert!(!is_told(&mut net), "it looks by itself");
    let more = net.hosts[0].shard.tcp_send_plan(client).expect("open");
    assert!(more.lent_room_bytes > plan.lent_room_bytes, "nothing was acknowledged: {more:?}");
}
