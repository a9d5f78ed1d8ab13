//! `multidata bench latency`: transactions of a byte or few, this stack beside a kernel socket.
//!
//! ```text
//!   ours:              this stack ------------------------- TAP | kernel, a namespace of its own
//!   ours, relayed:     this stack - wire - relay ---------- TAP | kernel
//!   kernel, relayed:   kernel | TAP - relay --------------- TAP | kernel
//! ```
//!
//! The far end is always the kernel's TCP behind the same kind of TAP device. Whose frames cross a TAP
//! must be read and written by a process; where this stack is that process nothing stands between, and
//! a kernel socket needs somebody who carries its frames: the relay, a thread for each direction. So
//! the first row is what an application gets, and the second one is this stack behind the same relay.
//!
//! The near end asks and holds the clock, idle or beside a bulk transfer over another connection of the
//! same ends; every response is checked to be its request.

mod far;
mod results;

pub use far::Far;
pub use results::{LatencyRun, Results, SCHEMA};

use crate::growing::Growing;
use crate::loss::delay_line::DelayLineConfig;
use crate::loss::joint::Joint;
use crate::loss::receiver::open_tap;
use crate::progress::Progress;
use crate::scenario::Amount;
use crate::socket::Socket;
use crate::verify::{Flow, Pattern};
use crate::workload::request_response::{self, Asked, Asking};
use crate::workload::stream::READ_LEN_BYTES;
use crate::{Attempt, Failure};
use device::{
    FaultConfig, HardwareAddress, Medium, Queue, TransmitMode, WireConfig, WireEnd, wire,
};
use ip::Cidr;
use linux::{Sandbox, TapDevice};
use multidata::{Coalescing, InterfaceConfig, Stack};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 79, 0, 2));
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 79, 0, 1));
const PREFIX_LEN: u8 = 24;

/// What all contents derive from.
const SEED: u64 = 0x6c61_7465_6e63_7921;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What a bulk transfer writes in one call.
const WRITE_LEN_BYTES: usize = 64 << 10;

/// How long a bulk transfer runs before transactions are timed beside it.
const WARM_UP: Duration = Duration::from_millis(100);

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    /// This stack, on the far end's TAP.
    Ours,
    /// This stack behind a relay.
    OursRelayed,
    /// A kernel socket behind a relay.
    KernelRelayed,
}

impl Near {
    /// The name in tables and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ours => "multidata",
            Self::OursRelayed => "multidata, relayed",
            Self::KernelRelayed => "kernel, relayed",
        }
    }
}

/// What else the two ends do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Nothing.
    Idle,
    /// The near end sends as fast as it can.
    Send,
    /// The near end receives as fast as the far one sends.
    Receive,
}

impl Load {
    /// The name in tables and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Send => "beside sending",
            Self::Receive => "beside receiving",
        }
    }
}

/// One kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Who asks.
    pub near: Near,
    /// How this stack puts received frames together; without meaning for a kernel socket.
    pub coalescing: Coalescing,
    /// What goes on beside the transactions.
    pub load: Load,
}

/// Every near end with every load; this stack on the TAP with each coalescing.
#[must_use]
pub fn cases(loads: &[Load]) -> Vec<Case> {
    let nears = [
        (Near::Ours, Coalescing::ADAPTIVE),
        (Near::Ours, Coalescing::OFF),
        (Near::OursRelayed, Coalescing::ADAPTIVE),
        (Near::KernelRelayed, Coalescing::OFF),
    ];
    let each = |load: &Load| nears.map(|(near, coalescing)| Case { near, coalescing, load: *load });
    loads.iter().flat_map(each).collect()
}

/// All runs of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// What is compared.
    pub cases: Vec<Case>,
    /// Length of a request and of its response.
    pub len_bytes: usize,
    /// How long each run asks.
    pub time: Duration,
    /// Rounds; each runs every case once.
    pub rounds: usize,
}

/// Runs the comparison, in rounds that go forwards and backwards in turn, and adds what each run gave.
///
/// # Errors
/// The first failure ends it; the results hold what was measured before it.
pub fn compare(
    comparison: &Comparison,
    sandbox: Sandbox,
    results: &Growing<Results>,
) -> Result<(), Failure> {
    let progress = Progress::steps(comparison.cases.len() * comparison.rounds);
    let sandbox = Arc::new(sandbox);
    for round in 0..comparison.rounds {
        for index in crate::plan::round_order(round, comparison.cases.len()) {
            let case = comparison.cases[index];
            let name = format!("{}, {}", case.near.name(), case.load.name());
            progress.say(&format!("round {}: {name}", round + 1));
            let run = run(comparison, &sandbox, case).attempt(|| name)?;
            results.add(|all| all.runs.push(run));
            progress.advance(1);
        }
    }
    Ok(())
}

fn run(comparison: &Comparison, sandbox: &Arc<Sandbox>, case: Case) -> Result<LatencyRun, Failure> {
    let (far, queue) = Far::start(sandbox, FAR, PREFIX_LEN, comparison.len_bytes)?;
    let measured = match case.near {
        Near::Ours => over_stack(comparison, case, &far, queue),
        Near::OursRelayed => {
            let (near, joined) = wire(wire_config());
            let _relay = relay(joined, queue);
            over_stack(comparison, case, &far, near)
        }
        Near::KernelRelayed => {
            let (device, near) = open_tap(NEAR, PREFIX_LEN)?;
            let _relay = relay(near, queue);
            over_kernel(comparison, case, &far, &device)
        }
    };
    let (asked, bulk) = measured?;
    Ok(LatencyRun::of(case, asked, bulk))
}

/// What a bulk transfer moved.
#[derive(Clone, Copy, Debug)]
pub struct Bulk {
    bytes: u64,
    seconds: f64,
}

fn over_stack(
    comparison: &Comparison,
    case: Case,
    far: &Far,
    queue: impl Queue + 'static,
) -> Result<(Asked, Bulk), Failure> {
    let cidr = Cidr::new(NEAR, PREFIX_LEN)
        .ok_or_else(|| Failure::new("the run's addresses have no such prefix"))?;
    // Named, so that figures of all times compare.
    let interface = InterfaceConfig::new(cidr).mode(TransmitMode::Multidata);
    let stack = Stack::builder()
        .interface(queue, interface.coalescing(case.coalescing))
        .build()
        .attempt(|| "cannot start the stack")?;
    let connect = |to: SocketAddr| {
        let socket = multidata::TcpStream::connect_timeout(&stack, &to, CONNECT_TIMEOUT)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(crate::peer::kernel::STUCK))?;
        socket.set_write_timeout(Some(crate::peer::kernel::STUCK))?;
        Ok(socket)
    };
    measure(comparison, case.load, far, connect)
}

/// The device lives as long as the run.
fn over_kernel(
    comparison: &Comparison,
    case: Case,
    far: &Far,
    _device: &TapDevice,
) -> Result<(Asked, Bulk), Failure> {
    measure(comparison, case.load, far, |to| {
        let socket = crate::peer::kernel::connect(&to)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(crate::peer::kernel::STUCK))?;
        socket.set_write_timeout(Some(crate::peer::kernel::STUCK))?;
        Ok(socket)
    })
}

/// Asks, beside the load.
fn measure<S: Socket + Send>(
    comparison: &Comparison,
    load: Load,
    far: &Far,
    connect: impl Fn(SocketAddr) -> std::io::Result<S>,
) -> Result<(Asked, Bulk), Failure> {
    let open = |to| connect(to).attempt(|| format!("cannot connect to {to}"));
    let asking_socket = open(far.echo)?;
    let bulk_socket = match load {
        Load::Idle => None,
        Load::Send => Some(open(far.sink)?),
        Load::Receive => Some(open(far.source)?),
    };
    let port = asking_socket.local().attempt(|| "a connected socket has no address")?.port();
    let asking = Asking {
        pattern: Pattern::new(SEED, port, Flow::FromConnector),
        amount: Amount::Time(comparison.time),
        len_bytes: comparison.len_bytes,
    };
    let (stop, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let bulk = bulk_socket.map(|socket| {
            let (stop, moved) = (&stop, &moved);
            scope.spawn(move || transfer(&socket, load, stop, moved))
        });
        if bulk.is_some() {
            std::thread::sleep(WARM_UP);
        }
        let (before, started) = (moved.load(Ordering::SeqCst), Instant::now());
        let asked = request_response::ask(&asking_socket, &asking);
        let bytes = moved.load(Ordering::SeqCst) - before;
        let seconds = started.elapsed().as_secs_f64();
        stop.store(true, Ordering::SeqCst);
        if let Some(bulk) = bulk {
            bulk.join().unwrap_or_else(|_| Err(Failure::new("the bulk transfer panicked")))?;
        }
        Ok((asked?, Bulk { bytes, seconds }))
    })
}

/// Moves bytes until it is told to stop.
fn transfer(
    socket: &impl Socket,
    load: Load,
    stop: &AtomicBool,
    moved: &AtomicU64,
) -> Result<(), Failure> {
    let mut buffer = vec![0x5a; READ_LEN_BYTES];
    while !stop.load(Ordering::SeqCst) {
        let len = match load {
            Load::Receive => socket.receive(&mut buffer),
            Load::Send | Load::Idle => {
                socket.send(&buffer[..WRITE_LEN_BYTES]).map(|()| WRITE_LEN_BYTES)
            }
        };
        moved.fetch_add(len.attempt(|| "the bulk transfer failed")? as u64, Ordering::SeqCst);
    }
    Ok(())
}

/// Carries frames between two devices as fast as it can.
fn relay(near: impl Queue + 'static, far: impl Queue + 'static) -> Joint {
    let line = DelayLineConfig {
        rate_bits_per_s: u64::MAX,
        delay: Duration::ZERO,
        queue_bytes_max: usize::MAX,
    };
    let faults = FaultConfig::default();
    Joint::start(near, far, [faults; 2], [line; 2])
}

fn wire_config() -> WireConfig {
    let end = |last| WireEnd::plain(Medium::Ethernet(HardwareAddress([0x02, 0, 0, 0, 2, last])));
    WireConfig::new(end(2), end(3))
}
