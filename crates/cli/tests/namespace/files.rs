//! Files to and from the kernel, and everything that can go wrong meanwhile.

use crate::ground::{DEVICE, KERNEL, Running, STACK, connect, link, stack_at};
use crate::network::cannot_run;
use linux::{Interface, TapConfig, TapDevice, TapKind, VethPair};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::tempdir;

/// Bytes that betray where they belong.
pub(crate) fn contents(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory of ours");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into()).collect()
}

/// Sends a file with these options and returns what a kernel socket received.
fn sent(version: usize, content: &[u8], options: &str) -> Vec<u8> {
    let directory = tempdir().expect("a temporary directory");
    let file = directory.path().join("data.bin");
    std::fs::write(&file, content).expect("room for it");
    let listener = TcpListener::bind((KERNEL[version], 0)).expect("the kernel's address");
    let to = listener.local_addr().expect("it is bound");
    let running =
        Running::start(&format!("send {} {to} {} {options}", file.display(), link(version)));
    let (mut stream, from) = listener.accept().expect("the stack connects");
    assert_eq!(from.ip().to_string(), STACK[version]);
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("the stack ends its stream");
    drop(stream);
    assert_eq!(running.end(), (Some(0), String::new()));
    received
}

pub(crate) fn goes_to_a_kernel_socket() {
    let content = contents(5_000_001);
    for version in [0, 1] {
        for options in ["", "--mode single"] {
            assert!(sent(version, &content, options) == content, "IPv{version} {options}");
        }
    }
}

/// Sends a file with these options and `--counters`; returns what was counted.
fn counted(content: &[u8], options: &str) -> impl Fn(&str) -> u64 {
    let directory = tempdir().expect("a temporary directory");
    let file = directory.path().join("data.bin");
    std::fs::write(&file, content).expect("room for it");
    let listener = TcpListener::bind((KERNEL[0], 0)).expect("the kernel's address");
    let to = listener.local_addr().expect("it is bound");
    let (file, link) = (file.display(), link(0));
    let running = Running::start(&format!("send {file} {to} {link} {options} --counters"));
    let (mut stream, _) = listener.accept().expect("the stack connects");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("the stack ends its stream");
    drop(stream);
    assert!(received == content, "{options}");
    let (code, output, counters) = running.output();
    assert_eq!((code, output.as_str()), (Some(0), ""), "{counters}");
    move |name: &str| {
        let find = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        counters.lines().find_map(find).unwrap_or_else(|| panic!("no {name}: {counters}"))
    }
}

pub(crate) fn mode_follows_the_device() {
    let content = contents(5_000_001);
    for (options, merges) in [("", true), ("--offload off", false), ("--mode multidata", false)] {
        let count = counted(&content, options);
        let (packets, frames) = (count("device.transmit_packets"), count("device.transmit_frames"));
        assert_eq!(frames * 4 < packets, merges, "{options}: {frames} frames, {packets} packets");
    }
}

pub(crate) fn is_sent_as_it_was_asked_for() {
    let content = contents(500_001);
    let count = counted(&content, "--mtu 600 --congestion bbr");
    assert!(count("device.transmit_packets") > 500_001 / 560, "they are longer");
    let (file, silent) = ("/dev/null", "10.9.0.99:7");
    let sentences = [
        ("--mtu 100", "the MTU of interface 0 cannot be 100 bytes: 576 to 1500"),
        ("--timeout 0.2", "nobody answered for 0.2 s"),
    ];
    for (options, part) in sentences {
        let running = Running::start(&format!("send {file} {silent} {} {options}", link(0)));
        let (code, sentence) = running.end();
        assert_eq!(code, Some(1), "{sentence}");
        assert!(sentence.contains(part), "{sentence}");
    }
}

pub(crate) fn is_sent_at_the_rate_that_was_asked_for() {
    let content = contents(2_000_000);
    let started = std::time::Instant::now();
    assert!(sent(0, &content, "--rate 20M") == content);
    // But for the burst, which is 64 KiB.
    let least = (content.len() - 65_536) as f64 * 8.0 / 20e6;
    assert!(started.elapsed().as_secs_f64() >= least, "{:?}", started.elapsed());
}

pub(crate) fn capture_holds_what_was_sent() {
    let directory = tempdir().expect("a temporary directory");
    let capture = directory.path().join("packets.pcapng");
    let content = contents(300_000);
    assert!(sent(0, &content, &format!("--capture {}", capture.display())) == content);
    let bytes = std::fs::read(&capture).expect("the file is there");
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a section header");
    let piece = &content[100_000..100_500];
    assert!(bytes.windows(piece.len()).any(|window| window == piece));
}

/// Lets the kernel send these bytes and returns the file that the stack wrote.
fn received(version: usize, content: &[u8], port: u16) -> Vec<u8> {
    let directory = tempdir().expect("a temporary directory");
    let file = directory.path().join("data.bin");
    std::fs::write(&file, "an older file").expect("room for it");
    let at = stack_at(version, port);
    let running = Running::start(&format!("receive {at} {} {}", file.display(), link(version)));
    let mut stream = connect(at);
    stream.write_all(content).expect("the stack receives");
    stream.shutdown(Shutdown::Write).expect("it is connected");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the stack ends its stream");
    assert!(rest.is_empty());
    assert_eq!(running.end(), (Some(0), String::new()));
    assert_eq!(names(directory.path()), ["data.bin"]);
    std::fs::read(&file).expect("the file is there")
}

pub(crate) fn comes_from_a_kernel_socket() {
    let content = contents(5_000_001);
    for version in [0, 1] {
        assert!(received(version, &content, 7_001) == content, "IPv{version}");
    }
}

/// The interface is no TAP, so the command opens a packet socket on it.
pub(crate) fn over_a_packet_socket() {
    let pair = VethPair::new("cable-near", "cable-far").expect("root of the namespace");
    pair.set_up().expect("root of the namespace");
    let kernel = "10.8.0.1".parse().expect("an address");
    pair.far().add_address(kernel, 24).expect("root of the namespace");
    let directory = tempdir().expect("a temporary directory");
    let file = directory.path().join("data.bin");
    let content = contents(5_000_001);
    std::fs::write(&file, &content).expect("room for it");
    let listener = TcpListener::bind((kernel, 0)).expect("the kernel's address");
    let to = listener.local_addr().expect("it is bound");
    let link = "--device cable-near --address 10.8.0.2/24";
    for options in ["", "--offload off", "--offload on --mode lso"] {
        let running = Running::start(&format!("send {} {to} {link} {options}", file.display()));
        let (mut stream, from) = listener.accept().expect("the stack connects");
        assert_eq!(from.ip().to_string(), "10.8.0.2");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("the stack ends its stream");
        drop(stream);
        assert_eq!(running.end(), (Some(0), String::new()));
        assert!(received == content, "{options}");
    }
    pair.near().set_down().expect("root of the namespace");
    let (code, sentence) = Running::start(&format!("send {} {to} {link}", file.display())).end();
    assert_eq!(code, Some(1));
    assert!(sentence.contains("ip link set cable-near up"), "{sentence}");
}

pub(crate) fn over_a_tun() {
    let (name, kind) = (Some("tun7".to_owned()), TapKind::Tun);
    let device = TapDevice::open(&TapConfig { name, kind, offload: false, ..TapConfig::default() });
    let device = device.expect("root of the namespace");
    let interface = device.interface().expect("it was made");
    let kernel = "10.11.0.1".parse().expect("an address");
    device.set_persistent(true).expect("it is ours");
    interface.add_address(kernel, 24).expect("root of the namespace");
    interface.set_up().expect("root of the namespace");
    drop(device);
    let directory = tempdir().expect("a temporary directory");
    let file = directory.path().join("data.bin");
    let content = contents(1_000_001);
    std::fs::write(&file, &content).expect("room for it");
    let listener = TcpListener::bind((kernel, 0)).expect("the kernel's address");
    let to = listener.local_addr().expect("it is bound");
    let link = "--device tun7 --address 10.11.0.2/24";
    let mut running = Running::start(&format!("send {} {to} {link}", file.display()));
    listener.set_nonblocking(true).expect("a socket of ours");
    let (mut stream, _) = loop {
        match listener.accept() {
            Ok(accepted) => break accepted,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        assert!(running.is_alive(), "{:?}", running.end());
        std::thread::sleep(Duration::from_millis(5));
    };
    stream.set_nonblocking(false).expect("a socket of ours");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("the stack ends its stream");
    drop(stream);
    assert_eq!(running.end(), (Some(0), String::new()));
    assert!(received == content);
    interface.delete().expect("root of the namespace");
}

pub(crate) fn echoed_file_does_not_stand() {
    let directory = tempdir().expect("a temporary directory");
    let file = directory.path().join("data.bin");
    // More than all buffers of both ends hold.
    let content = contents(48 << 20);
    std::fs::write(&file, &content).expect("room for it");
    let listener = TcpListener::bind((KERNEL[0], 0)).expect("the kernel's address");
    let to = listener.local_addr().expect("it is bound");
    let running = Running::start(&format!("send {} {to} {}", file.display(), link(0)));
    let (mut stream, _) = listener.accept().expect("the stack connects");
    let mut other = stream.try_clone().expect("a socket of ours");
    assert_eq!(std::io::copy(&mut stream, &mut other).expect("all of it"), content.len() as u64);
    drop((stream, other));
    assert_eq!(running.end(), (Some(0), String::new()));
}

pub(crate) fn empty_travels_too() {
    assert!(sent(0, b"", "").is_empty());
    assert!(received(0, b"", 7_002).is_empty());
}

/// RFC 1071, for a message of even length.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

pub(crate) fn ping_is_answered() {
    let directory = tempdir().expect("a temporary directory");
    let file = directory.path().join("data.bin");
    let at = stack_at(0, 7_003);
    let running = Running::start(&format!("receive {at} {} {}", file.display(), link(0)));
    let icmp = socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Icmp)
        .expect("root of its own network may");
    setsockopt(&icmp, sockopt::ReceiveTimeout, &TimeVal::new(0, 200_000)).expect("a timeout");
    let SocketAddr::V4(to) = at else { panic!("an IPv4 address") };
    let mut request = *b"\x08\0\0\0\x12\x34\0\x01multidat";
    let checksum = internet_checksum(&request).to_be_bytes();
    request[2..4].copy_from_slice(&checksum);
    let started = Instant::now();
    let answered = 'answered: loop {
        // The stack may not run yet; then the kernel finds no neighbour.
        let _ = sendto(
            icmp.as_raw_fd(),
            &request,
            &SockaddrIn::from(std::net::SocketAddrV4::new(*to.ip(), 0)),
            MsgFlags::empty(),
        );
        let mut packet = [0; 200];
        while let Ok(len) = recv(icmp.as_raw_fd(), &mut packet, MsgFlags::empty()) {
            // A raw socket sees the IPv4 header, here without options, and all of ICMP.
            if len >= 36 && packet[12..16] == [10, 9, 0, 2] && packet[20] == 0 {
                assert_eq!(packet[24..36], request[4..16], "identifier, sequence and data");
                break 'answered true;
            }
        }
        if started.elapsed() > Duration::from_secs(20) {
            break false;
        }
    };
    assert!(answered, "no answer");
    let mut stream = connect(at);
    stream.write_all(b"all is well").expect("the stack receives");
    drop(stream);
    assert_eq!(running.end(), (Some(0), String::new()));
    assert_eq!(std::fs::read(&file).expect("the file is there"), b"all is well");
}

pub(crate) fn refused_connection() {
    let listener = TcpListener::bind((KERNEL[0], 0)).expect("the kernel's address");
    let to = listener.local_addr().expect("it is bound");
    drop(listener);
    let (code, sentence) = Running::start(&format!("send /dev/null {to} {}", link(0))).end();
    assert_eq!(code, Some(1), "{sentence}");
    assert!(sentence.contains(&format!("cannot connect to {to}")), "{sentence}");
    assert!(sentence.to_lowercase().contains("refused"), "{sentence}");
}

pub(crate) fn reset_leaves_no_file() {
    let directory = tempdir().expect("a temporary directory");
    let file = directory.path().join("data.bin");
    let at = stack_at(0, 7_004);
    let running = Running::start(&format!("receive {at} {} {}", file.display(), link(0)));
    let mut stream = connect(at);
    stream.write_all(&contents(300_000)).expect("the stack receives");
    // Closing with a linger time of zero resets the connection (RFC 9293, 3.9.1.6 ABORT).
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(&stream, sockopt::Linger, &linger).expect("an option of every socket");
    drop(stream);
    let (code, sentence) = running.end();
    assert_eq!(code, Some(1), "{sentence}");
    assert!(sentence.contains("the connection from 10.9.0.1"), "{sentence}");
    assert!(names(directory.path()).is_empty(), "something was left behind");
}

pub(crate) fn full_disk_leaves_no_file() {
    let directory = tempdir().expect("a temporary directory");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    if let Err(why) =
        mount(Some("tmpfs"), directory.path(), Some("tmpfs"), flags, Some("size=256k"))
    {
        cannot_run("a_full_disk_leaves_no_file", &format!("no small disk to be had: {why}"));
        return;
    }
    let file = directory.path().join("data.bin");
    let at = stack_at(0, 7_005);
    let running = Running::start(&format!("receive {at} {} {}", file.display(), link(0)));
    let mut stream = connect(at);
    // The stack gives up in the middle, so this end may fail too.
    let _ = stream.write_all(&contents(4_000_000));
    let (code, sentence) = running.end();
    let left = names(directory.path());
    umount2(directory.path(), MntFlags::MNT_DETACH).expect("it was mounted");
    assert_eq!(code, Some(1), "{sentence}");
    assert!(sentence.contains("No space left on device"), "{sentence}");
    assert!(left.is_empty(), "left behind: {left:?}");
}

pub(crate) fn interruption_leaves_no_file() {
    let directory = tempdir().expect("a temporary directory");
    let file = directory.path().join("data.bin");
    let at = stack_at(0, 7_006);
    let running = Running::start(&format!("receive {at} {} {}", file.display(), link(0)));
    let mut stream = connect(at);
    stream.write_all(b"a beginning").expect("the stack receives");
    let pid = Pid::from_raw(i32::try_from(running.0.id()).expect("a process id"));
    kill(pid, Signal::SIGTERM).expect("a child of ours");
    let (code, sentence) = running.end();
    assert_eq!(code, Some(128 + Signal::SIGTERM as i32), "{sentence}");
    assert!(names(directory.path()).is_empty(), "something was left behind");
}

pub(crate) fn in_use() {
    let kernel = KERNEL[0];
    let arguments = format!("send /dev/null {kernel}:9 --device {DEVICE} --address {kernel}/24");
    let (code, sentence) = Running::start(&arguments).end();
    assert_eq!(code, Some(1), "{sentence}");
    assert!(sentence.contains(&format!("the address {kernel} is in use")), "{sentence}");

    let at = stack_at(0, 7_007);
    let receive = format!("receive {at} /dev/null {}", link(0));
    let holder = Running::start(&receive);
    let stream = connect(at);
    let (code, sentence) = Running::start(&receive).end();
    assert_eq!(code, Some(1), "{sentence}");
    assert!(sentence.contains(DEVICE) && sentence.contains("another program"), "{sentence}");
    drop(stream);
    assert_eq!(holder.end(), (Some(0), String::new()));
}

pub(crate) fn not_ours() {
    let arguments = format!("receive 10.9.0.77:7008 /dev/null {}", link(0));
    // The command line contradicts itself, so its usage follows the sentence.
    let (code, _, sentence) = Running::start(&arguments).output();
    assert_eq!(code, Some(2), "{sentence}");
    assert!(sentence.contains("10.9.0.77:7008 is not at this stack's --address"), "{sentence}");
}

pub(crate) fn device_down() {
    let interface = Interface::named(DEVICE).expect("the test's own device");
    interface.set_down().expect("root of its own network may");
    let (code, sentence) =
        Running::start(&format!("receive 10.9.0.2:7009 /dev/null {}", link(0))).end();
    interface.set_up().expect("root of its own network may");
    // The kernel drops IPv6 addresses of an interface that goes down.
    let _ = interface.add_address(KERNEL[1], 64);
    assert_eq!(code, Some(1), "{sentence}");
    assert!(sentence.contains(&format!("ip link set {DEVICE} up")), "{sentence}");
}
