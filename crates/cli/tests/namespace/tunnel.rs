//! Two of the built commands, one sending and one receiving, with a tunnel between them.

use crate::files::contents;
use crate::ground::Running;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::tempdir;

/// A file with a key, which its owner alone can read.
fn key_file(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("room for it");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("a file of ours");
    path
}

fn key(digit: &str) -> String {
    format!("{}\n", digit.repeat(64))
}

/// An address of the loopback interface that nobody uses.
fn free() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("the interface is up");
    socket.local_addr().expect("bound")
}

/// Sends `content` through a tunnel that begins at `from` and ends at `at`, which is the same unless
/// something lies between, and returns what arrived.
fn through(content: &[u8], from: SocketAddr, at: SocketAddr, options: &str) -> Vec<u8> {
    let directory = tempdir().expect("a temporary directory");
    let key_file = key_file(directory.path(), "key", &key("7"));
    let (source, sink) = (directory.path().join("source"), directory.path().join("sink"));
    std::fs::write(&source, content).expect("room for it");
    let (source, sink_name, key_file) = (source.display(), sink.display(), key_file.display());
    let end = |at, host| format!("--tunnel {at} --key-file {key_file} --address 10.77.0.{host}/24");
    // Whoever is there first waits for the other.
    let send = format!("send {source} 10.77.0.1:7000 {} {options}", end(from, 2));
    let sending = Running::start(&send);
    let receiving = format!("receive 10.77.0.1:7000 {sink_name} {}", end(at, 1));
    let receiving = Running::start(&receiving);
    assert_eq!(sending.end(), (Some(0), String::new()));
    assert_eq!(receiving.end(), (Some(0), String::new()));
    std::fs::read(&sink).expect("the file is there")
}

pub(crate) fn a_file_goes_through() {
    let content = contents(5_000_001);
    for options in ["", "--mode single", "--checksums"] {
        let at = free();
        assert!(through(&content, at, at, options) == content, "{options}");
    }
}

/// Carries datagrams between whoever sends to `near` and `far`, and loses some: every tenth, and the first
/// of each kind that a handshake has. Ends when told.
fn lossy_road(near: &UdpSocket, far: SocketAddr, is_over: &AtomicBool) -> usize {
    let back = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("the interface is up");
    for socket in [near, &back] {
        socket.set_nonblocking(true).expect("a socket of ours");
    }
    let (mut sender, mut buffer) = (None, vec![0; 70_000]);
    let (mut counts, mut lost) = ([0_usize; 2], 0);
    let mut is_lost = |direction: usize| {
        counts[direction] += 1;
        let is_lost = counts[direction] == 1 || counts[direction] % 10 == 0;
        lost += usize::from(is_lost);
        is_lost
    };
    while !is_over.load(Ordering::Relaxed) {
        let mut is_idle = true;
        if let Ok((len, from)) = near.recv_from(&mut buffer) {
            (sender, is_idle) = (Some(from), false);
            if !is_lost(0) {
                let _ = back.send_to(&buffer[..len], far);
            }
        }
        if let (Ok(len), Some(sender)) = (back.recv(&mut buffer), sender) {
            is_idle = false;
            if !is_lost(1) {
                let _ = near.send_to(&buffer[..len], sender);
            }
        }
        if is_idle {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    lost
}

// What is lost of the handshake is sent again, and what is lost in the tunnel TCP makes good.
pub(crate) fn lost_datagrams() {
    let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("the interface is up");
    let (from, at) = (near.local_addr().expect("bound"), free());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let road = scope.spawn(|| lossy_road(&near, at, &is_over));
        // Datagrams of 64 KiB, as the loopback interface takes them.
        let content = contents(3_000_000);
        let received = through(&content, from, at, "");
        is_over.store(true, Ordering::Relaxed);
        assert!(received == content);
        assert!(road.join().expect("no panic") > 5);
    });
}

pub(crate) fn another_key() {
    let directory = tempdir().expect("a temporary directory");
    let at = free();
    let [ours, theirs] = ["1", "2"]
        .map(|digit| key_file(directory.path(), digit, &key(digit)).display().to_string());
    let sink = directory.path().join("sink");
    let _receiving = Running::start(&format!(
        "receive 10.77.0.1:7000 {} --tunnel {at} --key-file {theirs} --address 10.77.0.1/24",
        sink.display()
    ));
    let (code, sentence) = Running::start(&format!(
        "send {ours} 10.77.0.1:7000 --tunnel {at} --key-file {ours} --address 10.77.0.2/24"
    ))
    .end();
    assert_eq!(code, Some(1));
    let wanted = format!("nobody with this key answered at {at} for 15 s");
    assert!(sentence.contains(&wanted), "{sentence}");
    assert!(!sink.exists());
}

pub(crate) fn bad_key_files() {
    let directory = tempdir().expect("a temporary directory");
    let short = key_file(directory.path(), "short", "abc");
    let open = key_file(directory.path(), "open", &key("3"));
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o640)).expect("a file of ours");
    let missing = directory.path().join("missing");
    let binary = directory.path().join("binary");
    std::fs::write(&binary, [0xff; 64]).expect("room for it");
    std::fs::set_permissions(&binary, PermissionsExt::from_mode(0o600)).expect("a file of ours");
    let folder = directory.path().to_path_buf();
    for (file, wanted) in [
        (&short, "does not hold 64 hexadecimal digits"),
        (&binary, "does not hold 64 hexadecimal digits"),
        (&folder, "it is a directory"),
        (&open, "is open to others: keep it to yourself with: chmod 600"),
        (&missing, "cannot read the key file"),
    ] {
        let (code, sentence) = Running::start(&format!(
            "send {} 10.77.0.1:7000 --tunnel 127.0.0.1:9 --key-file {} --address 10.77.0.2/24",
            open.display(),
            file.display()
        ))
        .end();
        assert_eq!(code, Some(1));
        assert!(
            sentence.contains(wanted) && sentence.contains(&*file.to_string_lossy()),
            "{sentence}"
        );
    }
}
