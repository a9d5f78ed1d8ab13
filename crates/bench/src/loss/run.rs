//! One sender over one path, once; and all of them in turn.

use super::cell::{Cell, Sender};
use super::delay_line::DelayLineConfig;
use super::joint::Joint;
use super::receiver::{Ended, Order, Reading, Receiver, is_timeout, open_silent_tap, open_tap};
use super::results::{LossRun, Results};
use crate::growing::Growing;
use crate::progress::Progress;
use crate::verify::{Flow, Pattern};
use crate::{Attempt, Failure};
use device::FaultConfig;
use ip::Cidr;
use linux::{PacketConfig, PacketDevice, Sandbox, TapDevice, TapQueue, kernel_socket};
use multidata::{InterfaceConfig, Stack};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tcp::Algorithm;

const SENDER_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 0, 2));
const RECEIVER_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 0, 1));
const PREFIX_LEN: u8 = 24;

/// Both senders and the receiver may hold this much, several times what may be on the way ([`PRODUCT_MAX_BYTES`]), so
/// that no window is the limit.
const BUFFER_MAX_BYTES: usize = 64 << 20;

/// The largest product of rate and round-trip time: of its buffer a receiver grants half as its window, and this stack's
/// sender has half of a kernel's.
pub const PRODUCT_MAX_BYTES: u64 = BUFFER_MAX_BYTES as u64 / 4;

/// How long an open may take, and how long a write waits before it looks whether to go on.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const WRITE_WAIT: Duration = Duration::from_millis(50);

/// How many frames wait where the joint's thread is late: ten times the queue of the path, which is to be the one that
/// overflows, and counts.
const QUEUE_PACKETS: usize = 10_000;

/// What is written in one call.
const WRITE_LEN_BYTES: usize = 64 << 10;

/// All runs of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The paths.
    pub cells: Vec<Cell>,
    /// Congestion control of both senders.
    pub algorithm: Algorithm,
    /// How long each run is.
    pub time: Duration,
    /// Rounds; in each, both senders run over every path.
    pub rounds: usize,
}

/// Runs the comparison, and adds what each run gave. In every round a cell's two runs follow each other, and the order of
/// the two alternates.
///
/// # Errors
/// The first failure ends it; the results hold what was measured before it.
pub fn compare(
    comparison: &Comparison,
    sandbox: Sandbox,
    results: &Growing<Results>,
) -> Result<(), Failure> {
    let progress = Progress::steps(comparison.cells.len() * comparison.rounds * 2);
    let sandbox = Arc::new(sandbox);
    sandbox.set_tcp_buffers_max(BUFFER_MAX_BYTES).attempt(|| "cannot set up the sender")?;
    for round in 0..comparison.rounds {
        for cell in &comparison.cells {
            let order = match round % 2 {
                0 => [Sender::Ours, Sender::Linux],
                _ => [Sender::Linux, Sender::Ours],
            };
            for sender in order {
                progress.say(&format!("round {}: {cell}: {}", round + 1, sender.name()));
                let run = run(comparison, &sandbox, cell, sender, round as u64)
                    .attempt(|| format!("{cell}, {} as sender", sender.name()))?;
                results.add(|all| all.runs.push(run));
                progress.advance(1);
            }
        }
    }
    Ok(())
}

fn run(
    comparison: &Comparison,
    sandbox: &Arc<Sandbox>,
    cell: &Cell,
    sender: Sender,
    seed: u64,
) -> Result<LossRun, Failure> {
    let order = Order {
        address: RECEIVER_ADDRESS,
        prefix_len: PREFIX_LEN,
        time: comparison.time,
        buffer_max_bytes: BUFFER_MAX_BYTES,
        seed,
    };
    let (receiver, far) = Receiver::start(sandbox, order)?;
    let faults = [0, 1].map(|direction| faults(cell, seed * 2 + direction));
    let lines = [line(cell); 2];
    let to = receiver.listening;
    let (device, near) = open_way_out(sender)?;
    let joint = Joint::start(near, far, faults, lines);
    let mut counters = crate::measure::Counters::new();
    let reading = match sender {
        Sender::Ours => {
            let stack = build(comparison.algorithm, device.name())?;
            let reading = read_while(receiver, |stop, ended| {
                send_ours(&stack, to, seed, (stop, ended));
            });
            stack.counters().for_each(&mut |name, value| {
                counters.insert(name.to_owned(), value);
            });
            // What is still queued is of no more use.
            let _ = stack.shutdown(Duration::ZERO);
            reading
        }
        Sender::Linux => {
            let name = comparison.algorithm.kernel_name();
            read_while(receiver, |stop, ended| send_linux(name, to, seed, (stop, ended)))
        }
    };
    let carried = joint.finish();
    let reading = reading?;
    Ok(LossRun {
        sender: sender.name().to_owned(),
        loss_percent: cell.loss_percent,
        reorder_percent: cell.reorder_percent,
        corrupt_percent: cell.corrupt_percent,
        round_trip_ms: cell.round_trip.as_secs_f64() * 1e3,
        rate_bits_per_s: cell.rate_bits_per_s,
        bytes: reading.bytes,
        seconds: reading.seconds,
        goodput_mbps: reading.bytes as f64 * 8.0 / 1e6 / reading.seconds,
        frames_carried: carried[0].frames,
        frames_overflowed: carried[0].overflowed,
        counters,
    })
}

fn faults(cell: &Cell, seed: u64) -> FaultConfig {
    FaultConfig {
        seed,
        loss: cell.loss_percent / 100.0,
        reorder: cell.reorder_percent / 100.0,
        corrupt: cell.corrupt_percent / 100.0,
        ..FaultConfig::default()
    }
}

fn line(cell: &Cell) -> DelayLineConfig {
    DelayLineConfig {
        rate_bits_per_s: cell.rate_bits_per_s,
        delay: cell.round_trip / 2,
        queue_bytes_max: cell.queue_bytes_max,
    }
}

/// The interface by which both senders leave. Its queue is the same for both, and neither hears of a frame that it drops:
/// a TAP takes frames off their sender's account at once.
fn open_way_out(sender: Sender) -> Result<(TapDevice, TapQueue), Failure> {
    let (device, near) = match sender {
        Sender::Ours => open_silent_tap()?,
        Sender::Linux => open_tap(SENDER_ADDRESS, PREFIX_LEN)?,
    };
    let refused = || "cannot set up the sender's interface";
    let interface = device.interface().attempt(refused)?;
    interface.set_transmit_queue_packets(QUEUE_PACKETS).attempt(refused)?;
    Ok((device, near))
}

/// This stack as one more host at the kernel's side of the interface, by a packet socket. Its frames leave it whole,
/// checksums and all.
fn build(algorithm: Algorithm, interface: &str) -> Result<Stack, Failure> {
    let refused = || format!("cannot open a packet socket on {interface}");
    let config = PacketConfig { offload: false, ..PacketConfig::new(interface) };
    let mut socket = PacketDevice::open(&config).attempt(refused)?;
    let queue = socket.queue(0).attempt(refused)?;
    let mut tcp = tcp::Config { send_buffer_bytes: BUFFER_MAX_BYTES / 2, ..tcp::Config::default() };
    tcp.congestion.algorithm = algorithm;
    let cidr = Cidr::new(SENDER_ADDRESS, PREFIX_LEN)
        .ok_or_else(|| Failure::new("the run's addresses have no such prefix"))?;
    Stack::builder()
        .tcp(tcp)
        .interface(queue, InterfaceConfig::new(cidr))
        .build()
        .attempt(|| "cannot start the stack")
}

/// What the receiver reads while `send` sends, which is told when to stop.
fn read_while(
    receiver: Receiver,
    send: impl FnOnce(&AtomicBool, Ended) + Send,
) -> Result<Reading, Failure> {
    let (stop, ended) = (AtomicBool::new(false), receiver.ended());
    std::thread::scope(|scope| {
        scope.spawn(|| send(&stop, ended));
        let reading = receiver.finish();
        stop.store(true, Ordering::SeqCst);
        reading
    })
}

/// Writes until it is told to stop or nobody reads any more. What goes wrong before that shows at
/// the receiver; that it cannot connect ends the run.
fn send_ours(stack: &Stack, to: SocketAddr, seed: u64, (stop, ended): (&AtomicBool, Ended)) {
    let connected = multidata::TcpStream::connect_timeout(stack, &to, CONNECT_TIMEOUT);
    let Some(mut socket) = ended.unless_connected(connected) else { return };
    let Ok(local) = socket.local_addr() else { return };
    let _ = socket.set_write_timeout(Some(WRITE_WAIT));
    send(&mut socket, Pattern::new(seed, local.port(), Flow::FromConnector), stop);
}

fn send_linux(congestion: &str, to: SocketAddr, seed: u64, (stop, ended): (&AtomicBool, Ended)) {
    let connected = kernel_socket::connect(&to, congestion, CONNECT_TIMEOUT);
    let Some(mut socket) = ended.unless_connected(connected) else { return };
    let Ok(local) = socket.local_addr() else { return };
    let _ = socket.set_write_timeout(Some(WRITE_WAIT));
    send(&mut socket, Pattern::new(seed, local.port(), Flow::FromConnector), stop);
}

fn send(socket: &mut impl Write, pattern: Pattern, stop: &AtomicBool) {
    let mut buffer = vec![0; WRITE_LEN_BYTES];
    let mut offset = 0;
    while !stop.load(Ordering::SeqCst) {
        pattern.fill(offset, &mut buffer);
        let mut rest = &buffer[..];
        while !rest.is_empty() && !stop.load(Ordering::SeqCst) {
            match socket.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if is_timeout(&error) => {}
                Err(_) => return,
            }
        }
        offset += buffer.len() as u64;
    }
}
