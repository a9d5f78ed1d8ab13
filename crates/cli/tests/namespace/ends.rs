//! How transfers end that do not come to their end: what the kernel's socket at the other end hears.

use crate::files::contents;
use crate::ground::{DEVICE, KERNEL, Running, connect, link, stack_at};
use crate::network::cannot_run;
use linux::{Interface, PacketConfig, PacketDevice, VethPair};
use multidata::{InterfaceConfig, Stack};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;
use tempfile::tempdir;

/// Whether the stream ended by a reset, whatever came before it.
fn is_reset(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    matches!(stream.read_to_end(&mut rest), Err(error) if error.kind() == ErrorKind::ConnectionReset)
}

pub(crate) fn interrupt(running: &Running, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(running.0.id()).expect("a process id"));
    kill(pid, signal).expect("a child of ours");
}

pub(crate) fn unwritten_file_is_no_orderly_end() {
    let directory = tempdir().expect("a temporary directory");
    // All of it fits a window: the kernel has sent its FIN before anything fails.
    for (port, file) in [(7_020, "/dev/full".into()), (7_021, directory.path().join("data.bin"))] {
        let at = stack_at(0, port);
        let running = Running::start(&format!("receive {at} {} {}", file.display(), link(0)));
        let mut stream = connect(at);
        if port == 7_021 {
            std::fs::remove_dir_all(directory.path()).expect("a directory of ours");
        }
        stream.write_all(b"all of it").expect("the stack receives");
        let _ = stream.shutdown(Shutdown::Write);
        assert!(is_reset(&mut stream), "{}: an orderly end", file.display());
        let (code, sentence) = running.end();
        assert_eq!(code, Some(1), "{sentence}");
        assert!(sentence.contains("cannot write"), "{sentence}");
    }
}

pub(crate) fn full_disk_is_no_orderly_end() {
    let directory = tempdir().expect("a temporary directory");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    if let Err(why) = mount(Some("tmpfs"), directory.path(), Some("tmpfs"), flags, Some("size=64k"))
    {
        cannot_run("a_full_disk_is_no_orderly_end", &format!("no small disk to be had: {why}"));
        return;
    }
    let file = directory.path().join("data.bin");
    let at = stack_at(0, 7_022);
    let running = Running::start(&format!("receive {at} {} {}", file.display(), link(0)));
    let mut stream = connect(at);
    stream.write_all(&contents(65_537)).expect("the stack receives");
    let _ = stream.shutdown(Shutdown::Write);
    let reset = is_reset(&mut stream);
    let (code, sentence) = running.end();
    umount2(directory.path(), MntFlags::MNT_DETACH).expect("it was mounted");
    assert_eq!(code, Some(1), "{sentence}");
    assert!(reset, "an orderly end");
}

/// A file of so many bytes that no buffers hold them, on its way to a kernel that does not read yet.
fn stalled(options: &str, then: impl FnOnce(&Running, &std::path::Path)) -> (Running, TcpStream) {
    let directory = tempdir().expect("a temporary directory");
    let file = directory.path().join("data.bin");
    std::fs::write(&file, contents(LONG_LEN_BYTES)).expect("room for it");
    let listener = TcpListener::bind((KERNEL[0], 0)).expect("the kernel's address");
    let to = listener.local_addr().expect("it is bound");
    let running = Running::start(&format!("send {} {to} {} {options}", file.display(), link(0)));
    let (mut stream, _) = listener.accept().expect("the stack connects");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream.read_exact(&mut [0]).expect("the stack sends");
    then(&running, &file);
    (running, stream)
}

const LONG_LEN_BYTES: usize = 64 << 20;

pub(crate) fn shrunken_file_is_told() {
    let cut = |_: &Running, file: &std::path::Path| {
        OpenOptions::new()
            .write(true)
            .open(file)
            .expect("a file of ours")
            .set_len(100)
            .expect("ours");
    };
    let (running, mut stream) = stalled("", cut);
    assert!(is_reset(&mut stream), "half of a file with an orderly end");
    let (code, sentence) = running.end();
    assert_eq!(code, Some(1), "{sentence}");
    assert!(sentence.contains("became shorter while it was sent"), "{sentence}");
}

pub(crate) fn grown_file_is_sent_as_it_was() {
    let append = |_: &Running, file: &std::path::Path| {
        let mut file = OpenOptions::new().append(true).open(file).expect("a file of ours");
        file.write_all(b"and more").expect("room for it");
    };
    let (running, mut stream) = stalled("", append);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("an orderly end");
    drop(stream);
    assert_eq!(rest.len() + 1, LONG_LEN_BYTES);
    let (code, sentence) = running.end();
    assert_eq!(code, Some(0), "{sentence}");
    assert!(sentence.contains("grew while it was sent"), "{sentence}");
}

pub(crate) fn interruption_resets_the_connection() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGQUIT, 131), (Signal::SIGTERM, 143)] {
        // The rate holds packets back, and the reset must not wait behind a file of them.
        for options in ["", "--rate 1M"] {
            let (running, mut stream) = stalled(options, |running, _| interrupt(running, signal));
            assert!(
                is_reset(&mut stream),
                "{signal} {options}: the kernel's end was left connected"
            );
            assert_eq!(running.end(), (Some(code), String::new()));
        }
        let directory = tempdir().expect("a temporary directory");
        let at = stack_at(0, 7_023);
        let file = directory.path().join("data.bin");
        let running = Running::start(&format!("receive {at} {} {}", file.display(), link(0)));
        let mut stream = connect(at);
        stream.write_all(b"a beginning").expect("the stack receives");
        interrupt(&running, signal);
        assert!(is_reset(&mut stream), "{signal}: the kernel's end was left connected");
        assert_eq!(running.end(), (Some(code), String::new()));
        let left = std::fs::read_dir(directory.path()).expect("ours").count();
        assert_eq!(left, 0, "left behind");
    }
}

pub(crate) fn ignored_signals_stay_ignored() {
    let directory = tempdir().expect("a temporary directory");
    let file = directory.path().join("data.bin");
    let at = stack_at(0, 7_026);
    // As nohup starts it, and a script that puts it into the background.
    let arguments = format!("receive {at} {} {}", file.display(), link(0));
    let running = Running::start_after("trap '' HUP INT", &arguments);
    let mut stream = connect(at);
    stream.write_all(b"a beginning").expect("the stack receives");
    for signal in [Signal::SIGHUP, Signal::SIGINT] {
        interrupt(&running, signal);
    }
    // Longer than the way out of who heeds them.
    std::thread::sleep(Duration::from_millis(1_500));
    stream.write_all(b" and an end").expect("the stack receives");
    stream.shutdown(Shutdown::Write).expect("it is connected");
    stream.read_to_end(&mut Vec::new()).expect("an orderly end");
    assert_eq!(running.end(), (Some(0), String::new()));
    assert_eq!(std::fs::read(&file).expect("the file is there"), b"a beginning and an end");
}

pub(crate) fn device_that_goes_is_told() {
    let interface = Interface::named(DEVICE).expect("the test's own device");
    let at = stack_at(0, 7_024);
    let mut running = Running::start(&format!("receive {at} /dev/null {}", link(0)));
    let stream = connect(at);
    let mut lines = BufReader::new(running.0.stderr.take().expect("piped")).lines();
    let mut line = || lines.next().expect("the command lives").expect("a pipe of text");
    interface.set_down().expect("root of its own network may");
    let lost = line();
    interface.set_up().expect("root of its own network may");
    let restored = line();
    // The kernel drops IPv6 addresses of an interface that goes down.
    let _ = interface.add_address(KERNEL[1], 64);
    drop(stream);
    assert!(lost.contains("tap0: nothing can be sent or received for now"), "{lost}");
    assert!(restored.contains("tap0 can be used again"), "{restored}");

    let pair = VethPair::new("gone-near", "gone-far").expect("root of the namespace");
    pair.set_up().expect("root of the namespace");
    let kernel = "10.10.0.1".parse().expect("an address");
    pair.far().add_address(kernel, 24).expect("root of the namespace");
    let link = "--device gone-near --address 10.10.0.2/24";
    let mut running = Running::start(&format!("receive 10.10.0.2:7025 /dev/null {link}"));
    let stream = connect("10.10.0.2:7025".parse().expect("an address"));
    let mut lines = BufReader::new(running.0.stderr.take().expect("piped")).lines();
    drop(pair);
    let lost = lines.next().expect("the command lives").expect("a pipe of text");
    drop(stream);
    assert!(lost.contains("gone-near: nothing can be sent or received for now"), "{lost}");
}

pub(crate) fn somebody_elses_address_is_told() {
    let pair = VethPair::new("twin-near", "twin-far").expect("root of the namespace");
    pair.set_up().expect("root of the namespace");
    let mut device = PacketDevice::open(&PacketConfig::new("twin-far")).expect("an interface");
    let queue = device.queue(0).expect("the first");
    let config = InterfaceConfig::new("10.11.0.2/24".parse().expect("an address"));
    let owner = Stack::builder().interface(queue, config).build().expect("a stack");
    let link = "--device twin-near --address 10.11.0.2/24";
    let (code, _, errors) =
        Running::start(&format!("ping 10.11.0.9 {link} --timeout 20 --count 1")).output();
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("the address 10.11.0.2 is in use"), "{errors}");
    drop(owner);
}
