//! A persistent TAP in a network of our own, and the command run over it.

use linux::{TapConfig, TapDevice};
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const DEVICE: &str = "tap0";
/// The kernel's side and this stack's, IPv4 and IPv6.
pub(crate) const KERNEL: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1)),
];
pub(crate) const STACK: [&str; 2] = ["10.9.0.2", "fd09::2"];

/// Longest time any step may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes the TAP, with the kernel's addresses on it, and lets go of it.
pub(crate) fn make_device() -> Result<(), String> {
    let config =
        TapConfig { name: Some(DEVICE.to_owned()), offload: false, ..TapConfig::default() };
    let device = TapDevice::open(&config).map_err(|error| error.to_string())?;
    let interface = device.interface().map_err(|error| error.to_string())?;
    device
        .set_persistent(true)
        .and_then(|()| interface.add_address(KERNEL[0], 24))
        .and_then(|()| interface.add_address(KERNEL[1], 64))
        .and_then(|()| interface.set_up())
        .map_err(|error| error.to_string())
}

/// The options that name the device and this stack's address on it.
pub(crate) fn link(version: usize) -> String {
    let prefix_len = [24, 64][version];
    format!("--device {DEVICE} --address {}/{prefix_len}", STACK[version])
}

/// Where this stack listens.
pub(crate) fn stack_at(version: usize, port: u16) -> SocketAddr {
    SocketAddr::new(STACK[version].parse().expect("an address"), port)
}

/// The command at work. Dropped, it ends.
pub(crate) struct Running(pub(crate) Child);

const COMMAND: &str = env!("CARGO_BIN_EXE_multidata");

impl Running {
    /// It heeds all signals, also where the tests do not: they may be started in the background of a script, which
    /// has its children ignore interruptions.
    pub(crate) fn start(arguments: &str) -> Self {
        let heeding = ["--default-signal=HUP,INT,QUIT,TERM", COMMAND];
        Self::spawn(Command::new("env").args(heeding).args(arguments.split_whitespace()))
    }

    /// As a shell starts it after `before`.
    pub(crate) fn start_after(before: &str, arguments: &str) -> Self {
        Self::spawn(
            Command::new("sh").arg("-c").arg(format!("{before}; exec {COMMAND} {arguments}")),
        )
    }

    fn spawn(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("the command was built"))
    }

    /// Whether it has not ended.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.0.try_wait().expect("a child of ours").is_none()
    }

    /// Waits for its end: the exit code and the one sentence on standard error.
    pub(crate) fn end(self) -> (Option<i32>, String) {
        let (code, _, sentence) = self.output();
        assert!(sentence.lines().count() <= 1, "one sentence: {sentence}");
        (code, sentence)
    }

    /// Waits for its end: the exit code, standard output and standard error, each of which must
    /// fit a pipe.
    pub(crate) fn output(mut self) -> (Option<i32>, String, String) {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().expect("a child of ours") {
                break status;
            }
            assert!(started.elapsed() < PATIENCE, "the command hangs");
            std::thread::sleep(Duration::from_millis(2));
        };
        let (mut output, mut errors) = (String::new(), String::new());
        let stdout = self.0.stdout.as_mut().expect("piped");
        stdout.read_to_string(&mut output).expect("a pipe of text");
        let stderr = self.0.stderr.as_mut().expect("piped");
        stderr.read_to_string(&mut errors).expect("a pipe of text");
        assert!(!errors.contains("panicked"), "{errors}");
        (status.code(), output, errors)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already where the test waited for it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connects as soon as this stack listens.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    let started = Instant::now();
    loop {
        match TcpStream::connect_timeout(&to, Duration::from_secs(5)) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
                return stream;
            }
            Err(error) => assert!(started.elapsed() < PATIENCE, "{to}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
