//! What an interface that cannot be had, is full, down or deleted answers.

use super::filter::forbid_io_uring;
use super::packets::{Arrived, Station, UDP, addresses};
use crate::Ground;
use batch::{Attributes, Block, BlockPool, Checksum, Multidata, PoolConfig, ReceiveBatch};
use bytes::Bytes;
use device::{HardwareAddress, Medium, Queue, Stop, Transmitted, Waiter};
use linux::{Feature, Interface, IoUring, Napi, TapConfig, TapDevice, TapKind, TapQueue, VethPair};
use rustix::mount::{MountFlags, mount_remount};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn named(name: &str) -> TapConfig {
    TapConfig { name: Some(name.into()), ..TapConfig::default() }
}

const GROUND: Ground =
    Ground { kind: TapKind::Tap, offload: true, napi: Napi::Off, io_uring: IoUring::Auto };

pub(crate) fn names_are_taken_and_refused() {
    let mut first = TapDevice::open(&named("taken0")).expect("a new name");
    assert_eq!(first.name(), "taken0");
    let error = TapDevice::open(&named("taken0")).expect_err("the first holds it");
    assert!(error.message.contains("taken0") && error.message.contains("another program"));
    let error = TapDevice::open(&named("lo")).expect_err("loopback is no TAP interface");
    assert!(error.message.contains("exists that is no TAP interface"), "{error}");
    let error = TapDevice::open(&named("a/b")).expect_err("no valid name");
    assert!(error.message.contains("not valid"), "{error}");

    let queue = first.queue(0).expect("the first time");
    assert!(first.queue(0).expect_err("the second time").message.contains("taken"));
    assert!(first.queue(1).expect_err("there is one").message.contains("one queue"));
    drop((first, queue));
    TapDevice::open(&named("taken0")).expect("the name is free again");
}

/// An interface of several queues takes another program's beside ours, whatever that asks for, and keeps the
/// virtio-net header that it has, or has not.
pub(crate) fn queues_beside_another_programs() {
    let several = |offload| TapConfig { queues: 2, offload, ..named("both0") };
    for offload in [false, true] {
        let first = TapDevice::open(&several(offload)).expect("a new name");
        let error = TapDevice::open(&several(!offload)).expect_err("the first holds it").message;
        assert!(error.contains("another program holds queues of the interface both0"), "{error}");
        let with = if offload { "or open it with offload" } else { "or open it without offload" };
        assert!(error.contains(with), "{error}");
        TapDevice::open(&several(offload)).expect("the same in front of frames");
        drop(first);
        let other = TapDevice::open(&several(!offload)).expect("the name is free again");
        assert_eq!(other.capabilities().checksum_transmit, !offload);
    }
}

pub(crate) fn every_queue_is_bounded() {
    const TUNGETSNDBUF: u64 = 0x8004_54d3;
    let files = || {
        let open = std::fs::read_dir("/proc/self/fd").expect("proc").flatten();
        let is_tun = |path: &std::path::Path| path.ends_with("net/tun");
        let of = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
        open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| is_tun(&path)))
            .filter_map(of)
            .collect::<Vec<i32>>()
    };
    let before = files();
    let config = TapConfig { queues: 3, send_queue_bytes: Some(65_536), ..named("bound0") };
    let device = TapDevice::open(&config).expect("a new name");
    assert_eq!(device.refused(), [""; 0], "{}", device.negotiated());
    let ours = files().into_iter().filter(|file| !before.contains(file));
    let bounds =
        ours.map(|file| linux::raw_calls::ioctl(file, TUNGETSNDBUF, 0).expect("a TUN file").1);
    assert_eq!(bounds.collect::<Vec<i32>>(), [65_536; 3]);
}

/// One UDP packet to nobody.
fn packet(station: &mut Station) -> Multidata {
    let mut batch = Multidata::default();
    let block = batch::Block::from(bytes::Bytes::from_static(b"payload"));
    let udp = [0x10, 0, 0x10, 0, 0, 15, 0, 0];
    station.push(&mut batch, UDP, false, &udp, (&block, 0..7), 0);
    batch
}

pub(crate) fn down_and_gone() {
    let mut station = Station::open(GROUND);
    let batch = packet(&mut station);
    station.send(&batch);
    let interface = station.device().interface().expect("it is there");

    let waiter = station.queue.waiter();
    let full = Transmitted { taken: 0, stopped: Some(Stop::Full) };
    for _ in 0..3 {
        interface.set_down().expect("we are root here");
        assert_eq!(station.queue.transmit(&batch), full);
        assert_eq!(station.queue.transmit(&batch), full, "still");
        let trouble = station.queue.trouble().expect("it is down").message;
        assert!(trouble.contains("is down: bring it up"), "{trouble}");
        assert!(station.queue.capabilities().checksum_transmit, "that was not the offload's fault");
        // Waiting for it is no spinning, and ends when it is up.
        receive_all(&mut station.queue);
        while waits(&waiter, Duration::from_millis(30)) < Duration::from_millis(30) {
            receive_all(&mut station.queue);
        }
        interface.set_up().expect("we are root here");
        assert!(waits(&waiter, Duration::from_secs(10)) < Duration::from_secs(5));
        station.send(&batch);
        assert_eq!(station.queue.trouble(), None);
    }
    let counters = station.queue.counters();
    assert_eq!((counters.links_lost, counters.links_restored), (3, 3));
    assert_eq!((counters.transmit_full, counters.transmit_lost), (6, 0));

    // Who only receives learns of it as well.
    interface.set_down().expect("we are root here");
    while station.queue.trouble().is_none() {
        waiter.wait(Some(Duration::from_secs(10)));
        receive_all(&mut station.queue);
    }

    interface.delete().expect("we are root here");
    let transmitted = station.queue.transmit(&batch);
    let Some(Stop::Failed(error)) = transmitted.stopped else { panic!("{transmitted:?}") };
    assert!(error.message.contains("is gone"), "{error}");
    let pool = BlockPool::new(PoolConfig::default());
    let received = station.queue.receive(&pool, &mut ReceiveBatch::new(), 64);
    assert!(received.failed.expect("it is gone").message.contains("is gone"));
}

/// Fetches what came, and forgets it.
fn receive_all(queue: &mut TapQueue) {
    let (pool, mut received) = (BlockPool::new(PoolConfig::default()), ReceiveBatch::new());
    while queue.receive(&pool, &mut received, 64).frames > 0 {
        received.clear();
    }
}

/// How long a wait takes.
fn waits(waiter: &Arc<dyn Waiter>, timeout: Duration) -> Duration {
    let started = Instant::now();
    waiter.wait(Some(timeout));
    started.elapsed()
}

/// NAPI's thread empties the queue that we fill: all is taken in the end, nothing hangs.
pub(crate) fn full_and_emptied(io_uring: IoUring) {
    let config = TapConfig {
        io_uring,
        napi: Napi::Threaded,
        send_queue_bytes: Some(32 * 1_024),
        ..TapConfig::default()
    };
    let mut station = Station::on(TapDevice::open(&config).expect("an interface"));
    let waiter = station.queue.waiter();
    let (mut taken, mut full, mut longest_wait) = (0, 0, Duration::ZERO);
    let mut batch = Multidata::default();
    let block = batch::Block::from(bytes::Bytes::from(vec![7; 1_000]));
    let udp = [0x10, 0, 0x10, 0, 1_008_u16.to_be_bytes()[0], 1_008_u16.to_be_bytes()[1], 0, 0];
    for _ in 0..64 {
        station.push(&mut batch, UDP, false, &udp, (&block, 0..1_000), 0);
    }
    let mut round = 0;
    while round < 100 || (full == 0 && round < 10_000) {
        let transmitted = station.queue.transmit(&batch);
        taken += transmitted.taken as u64;
        match transmitted.stopped {
            None => {}
            Some(Stop::Full) => {
                full += 1;
                // What the kernel says to our packets would end the wait as well.
                receive_all(&mut station.queue);
                let started = Instant::now();
                waiter.wait(Some(Duration::from_secs(10)));
                longest_wait = longest_wait.max(started.elapsed());
            }
            stopped => panic!("{stopped:?}"),
        }
        round += 1;
    }
    assert!(full > 0, "32 KiB of queue were never full");
    assert!(longest_wait < Duration::from_secs(5), "{longest_wait:?} until there was room");
    let started = Instant::now();
    while station.queue.counters().transmit_packets < taken {
        station.queue.reclaim();
        assert!(started.elapsed() < Duration::from_secs(5), "what is late finds no room");
        // NAPI's thread may have no other core to run on.
        std::thread::sleep(Duration::from_millis(1));
    }
    let counters = station.queue.counters();
    assert_eq!((counters.transmit_packets, counters.transmit_lost), (taken, 0));
    assert_eq!(counters.transmit_full, full);
    if io_uring == IoUring::Off {
        assert_eq!(counters.transmit_late, 0, "each frame is known before the next is written");
    }
}

/// The driver takes packets of IP only. One by one nothing passes such a packet; by a ring those behind it
/// do, and it is lost: it can never be sent.
pub(crate) fn a_refused_packet_in_the_middle(io_uring: IoUring) {
    let config = TapConfig { kind: TapKind::Tun, offload: false, io_uring, ..TapConfig::default() };
    let mut station = Station::on(TapDevice::open(&config).expect("an interface"));
    let mut batch = Multidata::default();
    let block = batch::Block::from(bytes::Bytes::from(vec![7; 100]));
    let udp = [0x10, 0, 0x10, 0, 0, 108, 0, 0];
    for index in 0..4 {
        if index == 1 {
            let attributes = Attributes { checksum: Checksum::Complete, ..Attributes::default() };
            batch.push_packet(20, attributes).expect("room").fill(0);
        } else {
            station.push(&mut batch, UDP, false, &udp, (&block, 0..100), 0);
        }
    }
    let transmitted = station.queue.transmit(&batch);
    let counters = station.queue.counters();
    if io_uring == IoUring::On {
        assert_eq!(transmitted, Transmitted { taken: 4, stopped: None });
        assert_eq!((counters.transmit_packets, counters.transmit_lost), (3, 1));
        assert_eq!(counters.transmit_syscalls, 1);
    } else {
        assert_eq!(transmitted, Transmitted { taken: 1, stopped: Some(Stop::Refused) });
        assert_eq!((counters.transmit_packets, counters.transmit_lost), (1, 0));
    }
    // At the end of a batch it is the first one not taken, either way.
    let mut batch = Multidata::default();
    station.push(&mut batch, UDP, false, &udp, (&block, 0..100), 0);
    let attributes = Attributes { checksum: Checksum::Complete, ..Attributes::default() };
    batch.push_packet(20, attributes).expect("room").fill(0);
    let transmitted = station.queue.transmit(&batch);
    assert_eq!(transmitted, Transmitted { taken: 1, stopped: Some(Stop::Refused) });
}

/// A filter of system calls, as containers have them, hides io_uring from one thread.
pub(crate) fn no_ring_is_said_and_counted() {
    let hidden = std::thread::spawn(|| {
        forbid_io_uring().expect("whoever gives privileges up may filter");
        let open = |io_uring| TapDevice::open(&TapConfig { io_uring, ..TapConfig::default() });
        let error = open(IoUring::On).expect_err("there is none");
        assert!(error.message.contains("a filter of system calls hides it"), "{error}");
        let mut device = open(IoUring::Auto).expect("each frame by itself");
        assert_eq!(device.refused().len(), 1, "{}", device.negotiated());
        assert!(device.refused()[0].contains("io_uring cannot be had"));
        assert_eq!(device.queue(0).expect("nobody took it").counters().rings_lost, 1);
        let mut device = open(IoUring::Off).expect("each frame by itself");
        assert_eq!(device.refused(), [""; 0], "it was not asked for");
        assert_eq!(device.queue(0).expect("nobody took it").counters().rings_lost, 0);
    });
    hidden.join().expect("what the thread asserted");
}

/// What root has set for a persistent interface is there for who may not set it.
pub(crate) fn a_thread_for_napi_that_is_there_is_not_refused() {
    let config = TapConfig { napi: Napi::Threaded, ..named("kept0") };
    let first = TapDevice::open(&config).expect("a new name");
    first.set_persistent(true).expect("ours to keep");
    drop(first);
    let read_only = |flags| mount_remount("/sys", MountFlags::BIND | flags, "").expect("our own");
    read_only(MountFlags::RDONLY);
    let with_thread = TapDevice::open(&config).map(|device| device.negotiated());
    let without = TapDevice::open(&TapConfig { name: Some("other0".into()), ..config.clone() });
    let without = without.map(|device| device.negotiated());
    read_only(MountFlags::empty());
    let with_thread = with_thread.expect("it persists");
    assert!(with_thread.ends_with(", threaded NAPI; nothing was refused"), "{with_thread}");
    let without = without.expect("polled otherwise");
    assert!(without.contains(", NAPI; refused: a thread for NAPI ("), "{without}");
    TapDevice::open(&config).and_then(|it| Ok(it.set_persistent(false)?)).expect("ours to delete");
}

pub(crate) fn settings_reach_the_kernel() {
    let ours = HardwareAddress([2, 0, 0, 0, 0, 7]);
    let config = TapConfig {
        napi: Napi::Threaded,
        mtu_bytes: Some(9_000),
        hardware_address: Some(ours),
        io_uring: IoUring::On,
        uncut_datagrams: true,
        ..named("wide0")
    };
    let device = TapDevice::open(&config).expect("a new name");
    assert_eq!(device.capabilities().medium, Medium::Ethernet(ours));
    assert_eq!(device.capabilities().mtu_bytes, 9_000);
    // Linux 6.2 leaves datagrams uncut, an older one does not.
    let (runs, refused) = match device.refused() {
        [] => ("runs of datagrams from the kernel, ", "nothing was refused".to_owned()),
        refused => ("", format!("refused: {}", refused.join("; "))),
    };
    let negotiated = format!(
        "TAP wide0, MTU 9000, with checksum offload and super-frames to the kernel, checksum \
         offload and super-frames from the kernel, {runs}threaded NAPI, many frames by one call \
         (io_uring); {refused}"
    );
    assert_eq!(device.negotiated(), negotiated);
    let threaded = std::fs::read_to_string("/sys/class/net/wide0/threaded").expect("our own /sys");
    assert_eq!(threaded.trim(), "1");
    let interface = device.interface().expect("it is there");
    assert_eq!(interface.mtu_bytes(), Ok(9_000));
    assert!(!interface.is_up().expect("it is there"), "bringing it up is the user's business");
    assert_ne!(interface.hardware_address(), Ok(ours));

    let tun = TapConfig { kind: TapKind::Tun, ..named("bare0") };
    let tun = TapDevice::open(&tun).expect("a new name");
    assert_eq!(tun.capabilities().medium, Medium::Ip);
    let interface = tun.interface().expect("it is there");
    assert_eq!(interface.transmit_queue_packets(), Ok(1_000));
    interface.set_transmit_queue_packets(524_288).expect("the most that the driver takes");
    let error = interface.set_transmit_queue_packets(524_289).expect_err("one more");
    assert!(error.message.contains("524,288 at most"), "{error}");
    assert_eq!(interface.transmit_queue_packets(), Ok(524_288));

    let error = TapDevice::open(&TapConfig { mtu_bytes: Some(1 << 20), ..named("wide1") })
        .expect("an MTU that is refused is no reason to fail");
    assert_eq!(error.capabilities().mtu_bytes, 1_500);
    assert!(error.refused()[0].contains("MTU of 1048576"), "{}", error.negotiated());
}

/// Whatever is asked for: frames have no header in front that says of a checksum or of segments.
pub(crate) fn a_descriptor_is_what_it_was_attached_as() {
    let plain = TapConfig { offload: false, ..named("bare1") };
    let opened = TapDevice::open(&plain).expect("a new name");
    let file = opened.as_fd().try_clone_to_owned().expect("descriptors are left");
    let config = TapConfig { napi: Napi::On, ..TapConfig::default() };
    let device = TapDevice::from_fd(file, &config).expect("it is attached");
    let capabilities = device.capabilities();
    assert!(!capabilities.checksum_transmit && capabilities.segmentation.is_none());
    let refused = device.refused().join("; ");
    assert!(refused.contains("offload (the descriptor was attached without"), "{refused}");
    assert!(refused.contains("NAPI (the descriptor was attached without"), "{refused}");
}

pub(crate) fn a_veth_pair_comes_and_goes() {
    let pair = VethPair::new("near0", "far0").expect("root of the namespace");
    let taken = VethPair::new("near0", "far1").expect_err("near0 is taken");
    assert!(taken.message.contains("near0"), "{taken}");
    pair.set_mtu_bytes(9_000).expect("veth takes it");
    assert_eq!(pair.far().mtu_bytes(), Ok(9_000));
    pair.set_up().expect("root of the namespace");
    let features = [
        Feature::TransmitChecksum,
        Feature::Segmentation,
        Feature::SoftwareSegmentation,
        Feature::Coalescing,
    ];
    for feature in features {
        for on in [false, true] {
            pair.far().set_feature(feature, on).expect("veth has all of them");
        }
    }
    assert!(Interface::named("lo").expect("always").set_feature(features[2], false).is_ok());
    drop(pair);
    assert!(Interface::named("near0").is_err() && Interface::named("far0").is_err());
}

/// Who sends and never waits is told of a shorter MTU within some batches, and of one that is longer again;
/// the frames that the interface was opened for are the longest.
pub(crate) fn a_shorter_mtu() {
    let mut station = Station::on(TapDevice::open(&TapConfig::default()).expect("the driver"));
    let interface = station.device().interface().expect("it is there");
    let block = Block::from(Bytes::from(vec![0; 1_200]));
    let mut batch = Multidata::default();
    station.push(&mut batch, UDP, false, &[0; 8], (&block, 0..1_200), 0);
    let mut until_told = |mtu_bytes: usize, wanted: usize| {
        interface.set_mtu_bytes(mtu_bytes).expect("we are root here");
        let mut sent = (0..1_000).map(|_| station.queue.transmit(&batch).stopped);
        assert!(sent.any(|stop| stop == Some(Stop::Revoked)), "not told of {mtu_bytes} bytes");
        drop(sent);
        assert_eq!(station.queue.capabilities().mtu_bytes, wanted);
        station.queue.transmit(&batch)
    };
    let refused = Transmitted { taken: 0, stopped: Some(Stop::Refused) };
    assert_eq!(until_told(1_000, 1_000), refused);
    let taken = Transmitted { taken: 1, stopped: None };
    assert_eq!(until_told(9_000, 1_500), taken);
    assert_eq!(station.queue.counters().capabilities_revoked, 1);
}

/// read(2) cuts off what it has no room for, without a word: an MTU that was raised needs more.
pub(crate) fn a_longer_mtu() {
    let mut station = Station::on(TapDevice::open(&TapConfig::default()).expect("the driver"));
    let interface = station.device().interface().expect("it is there");
    let (theirs, ours) = addresses(false);
    let (sender, port) = (std::net::UdpSocket::bind((theirs, 0)).expect("its address"), 9);
    let block = Block::from(Bytes::from(vec![0; 100]));
    let mut batch = Multidata::default();
    station.push(&mut batch, UDP, false, &[0; 8], (&block, 0..100), 0);
    for mtu_bytes in [9_000, 1_500, 9_000] {
        interface.set_mtu_bytes(mtu_bytes).expect("we are root here");
        // Some turns, so that it is noticed.
        for _ in 0..1_000 {
            station.queue.transmit(&batch);
        }
        sender.send_to(&vec![7; mtu_bytes - 28], (ours, port)).expect("there is room");
        let is_it = |arrived: &Arrived| {
            arrived.protocol == UDP && arrived.transport.get(2..4) == Some(&[0, port as u8])
        };
        let len = station.wait_for(|arrived| is_it(&arrived).then_some(arrived.transport.len()));
        assert_eq!(len, mtu_bytes - 20);
    }
}

/// Who waits is told of the MTU and of its first frame at once, and has no room for that frame before.
pub(crate) fn the_first_frame_of_a_longer_mtu() {
    let config = TapConfig { offload: false, ..TapConfig::default() };
    let mut station = Station::on(TapDevice::open(&config).expect("the driver"));
    let interface = station.device().interface().expect("it is there");
    let (theirs, ours) = addresses(false);
    let Medium::Ethernet(address) = station.queue.capabilities().medium else { panic!("a TAP") };
    interface.add_neighbour(ours, address).expect("we are root here");
    let sender = std::net::UdpSocket::bind((theirs, 0)).expect("its address");
    interface.set_mtu_bytes(9_000).expect("we are root here");
    sender.send_to(&[7; 8_000], (ours, 9)).expect("there is room");
    station.queue.waiter().wait(Some(Duration::from_secs(5)));
    let is_it = |arrived: &Arrived| arrived.protocol == UDP && arrived.transport[2..4] == [0, 9];
    let len = station.wait_for(|arrived| is_it(&arrived).then_some(arrived.transport.len()));
    assert_eq!(len, 8_008);
}
