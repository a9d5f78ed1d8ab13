//! One scenario, once.
//!
//! ```text
//!  open the device and the stack(s) -> meet: connect and accept -> read the clocks
//!    -> both ends work -> read the clocks -> compare what both ends say -> a Run
//! ```
//!
//! Everything is opened afresh, so a run owes nothing to the one before it.

use crate::copy_in::{DATAGRAM_BYTES_ARRIVED, SENDER_CPU_NS, SENDER_WAITS};
use crate::measure::{self, Clocks, Counters, Spent};
use crate::peer::kernel::{Done, KernelEnd, Meeting, Task, Work};
use crate::peer::tunnel::TunnelEnd;
use crate::peer::{tunnel, wire};
use crate::place::{Addresses, pin_to_cpu};
use crate::results::{
    LEAST_RECEIVED_BYTES, MOST_RECEIVED_BYTES, RECEIVED_BYTES, Run, TRANSACTION_MEDIAN_NS,
    TRANSACTION_P99_NS, TRANSACTIONS,
};
use crate::scenario::{Amount, DeviceKind, Direction, PeerKind, Scenario, Times, Workload};
use crate::station::{self, Station};
use crate::statistics::ratio;
use crate::times::SENDER_ELAPSED_NS;
use crate::verify::{Flow, Pattern, TIMED_VERIFIED_LEN_BYTES};
use crate::workload::datagrams;
use crate::workload::request_response::{self, Asked, AskingAll};
use crate::workload::stream::{self, Plan, Sender, Totals};
use crate::{Attempt, Failure, plan};
use multidata::TcpStream;
use std::net::{SocketAddr, UdpSocket};

/// All contents derive from this.
const SEED: u64 = 0x6d75_6c74_6964_6174;

/// The CPUs of `--pin`.
const STACK_CPU: usize = 0;
const KERNEL_CPU: usize = 1;

/// Whether a run is timed, or the pass before it in which every byte is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Every byte is checked.
    Verification,
    /// The length and the first 4 MiB are checked.
    Timed,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Its figures.
    pub run: Run,
    /// What the device said is on.
    pub about: String,
    /// Packets that are missing from its capture.
    pub capture_lost: u64,
}

/// Runs a scenario once.
///
/// # Errors
/// A sentence that begins with the scenario's name.
pub fn run(scenario: &Scenario, pass: Pass) -> Result<Ran, Failure> {
    let amount = match pass {
        Pass::Verification => plan::verification_amount(scenario),
        Pass::Timed => scenario.amount,
    };
    let bounds = Bounds {
        amount,
        verified_len_bytes: match pass {
            Pass::Verification => u64::MAX,
            Pass::Timed => TIMED_VERIFIED_LEN_BYTES.div_ceil(scenario.connections.max(1) as u64),
        },
    };
    if scenario.pin {
        pin_to_cpu(STACK_CPU)?;
    }
    if let Some(len_bytes) = scenario.datagram_len_bytes {
        let plan = datagrams::Plan {
            pattern: Pattern::new(SEED, 0, Flow::FromConnector),
            amount: bounds.amount,
            len_bytes,
            write_len_bytes: scenario.write_len_bytes,
            zero_copy: scenario.zero_copy,
            verified_len_bytes: bounds.verified_len_bytes,
            receiver_cpu: scenario.pin.then_some(KERNEL_CPU),
        };
        return send_datagrams(scenario, &plan).attempt(|| scenario.name());
    }
    let ran = match scenario.peer() {
        PeerKind::Kernel => against_kernel(scenario, bounds),
        PeerKind::Own if scenario.device == DeviceKind::Tunnel => through_tunnel(scenario, bounds),
        PeerKind::Own => against_self(scenario, bounds),
    };
    ran.attempt(|| scenario.name())
}

/// How much moves, and how much of it is checked.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    amount: Amount,
    verified_len_bytes: u64,
}

/// What both ends say, and what it cost.
struct Measured {
    work: WorkDone,
    spent: Spent,
    counters: Counters,
}

enum WorkDone {
    Streamed { ours: Totals, theirs: Box<Totals> },
    Asked(Asked),
    Sent(datagrams::Outcome),
}

impl WorkDone {
    /// What arrived while all connections were busy, where the ends told that apart.
    fn busy_gbps(&self) -> Option<f64> {
        let Self::Streamed { ours, theirs } = self else { return None };
        let busy = [ours.busy, theirs.busy].into_iter().flatten().filter(|busy| busy.bytes > 0);
        busy.filter_map(|busy| ratio(busy.bytes as f64 * 8e-9, busy.seconds)).reduce(|a, b| a + b)
    }

    /// What was spent, and on how many bytes: of the time in which all connections were busy, where this end
    /// told that apart, else of the whole run.
    fn spent_on(&self, whole: Spent, bytes: u64) -> (Spent, u64) {
        let ours = match self {
            Self::Streamed { ours, .. } => ours.busy,
            Self::Asked(_) | Self::Sent(_) => None,
        };
        let busy = ours.and_then(|busy| Some((busy.spent?, busy.moved_bytes)));
        busy.unwrap_or((whole, bytes))
    }
}

fn against_kernel(scenario: &Scenario, bounds: Bounds) -> Result<Ran, Failure> {
    let station = Station::over_kernel_device(scenario)?;
    let addresses = Addresses::of(scenario);
    let connects = scenario.workload == Workload::Stream && scenario.direction.sends();
    let task = |meeting| Task {
        meeting,
        connections: scenario.connections,
        workers: scenario.workers,
        work: their_work(scenario, bounds, connects),
        cpu: scenario.pin.then_some(KERNEL_CPU),
    };
    let (kernel, sockets) = if connects {
        let listen = SocketAddr::new(addresses.far, 0);
        let kernel = KernelEnd::start(&task(Meeting::Listen(listen)))?;
        let sockets = station.connect(kernel.listening()?, scenario.connections);
        (kernel, sockets)
    } else {
        let listener = station.listen(scenario.connections)?;
        let at = listener.local_addr().attempt(|| "a listening socket has no address")?;
        let kernel = KernelEnd::start(&task(Meeting::Connect(at)))?;
        let sockets = station::accept(&listener, scenario.connections);
        (kernel, sockets)
    };
    let ran = against_process(scenario, bounds, connects, (&station, sockets, kernel))?;
    station.close().map(|capture_lost| Ran { capture_lost, ..ran })
}

/// Against a second stack of ours in another process.
fn through_tunnel(scenario: &Scenario, bounds: Bounds) -> Result<Ran, Failure> {
    let socket = tunnel::socket()?;
    let near = socket.local_addr().attempt(|| "a bound socket has no address")?;
    let (far, transform) = TunnelEnd::of(scenario, near)?;
    let task = Task {
        meeting: Meeting::Tunnel(far),
        connections: scenario.connections,
        workers: scenario.workers,
        work: their_work(scenario, bounds, true),
        cpu: scenario.pin.then_some(KERNEL_CPU),
    };
    let process = KernelEnd::start(&task)?;
    let device = tunnel::open(scenario, socket, process.listening()?, transform)?;
    let station = Station::over_tunnel(scenario, device, true)?;
    let at = SocketAddr::new(Addresses::of(scenario).far, tunnel::PORT);
    let sockets = station.connect(at, scenario.connections);
    let ran = against_process(scenario, bounds, true, (&station, sockets, process))?;
    station.close().map(|capture_lost| Ran { capture_lost, ..ran })
}

/// The work of this end and that of a process at the other end, with connections that exist.
fn against_process(
    scenario: &Scenario,
    bounds: Bounds,
    connects: bool,
    (station, sockets, kernel): (&Station, Result<Vec<TcpStream>, Failure>, KernelEnd),
) -> Result<Ran, Failure> {
    let sockets = match sockets {
        Ok(sockets) => sockets,
        Err(ours) => return Err(kernel.blame(ours)),
    };
    let clocks = Clocks::read()?;
    let before = station.counters();
    let ours = match work(scenario, bounds, connects, (station, sockets)) {
        Ok(ours) => ours,
        Err(ours) => return Err(kernel.blame(ours)),
    };
    let measured = |work| -> Result<Measured, Failure> {
        let spent = clocks.spent()?;
        let counters = measure::counted_since(&before, &station.counters());
        Ok(Measured { work, spent, counters })
    };
    let measured = measured(ours)?;
    let measured = match (measured.work, kernel.done()?) {
        (WorkDone::Streamed { ours, .. }, Done::Streamed(theirs)) => {
            let work = WorkDone::Streamed { ours, theirs: Box::new(theirs) };
            Measured { work, ..measured }
        }
        (WorkDone::Asked(answered), Done::Asked(asked))
            if answered.transactions == asked.transactions =>
        {
            Measured { work: WorkDone::Asked(asked), ..measured }
        }
        _ => return Err(Failure::new("the two ends do not agree on what they did")),
    };
    conclude(scenario, &measured, station.about())
}

/// This end's part of the work; what the other end did is not known yet.
fn work(
    scenario: &Scenario,
    bounds: Bounds,
    connected: bool,
    (station, sockets): (&Station, Vec<TcpStream>),
) -> Result<WorkDone, Failure> {
    match (scenario.workload, &sockets[..]) {
        (Workload::Stream, _) => {
            let mut tasks = our_plan(scenario, bounds, connected).tasks(&sockets)?;
            station.place(&sockets, &mut tasks);
            let ours = stream::run_all_by(station.by(scenario.workers), sockets, &tasks)?;
            Ok(WorkDone::Streamed { ours, theirs: Box::default() })
        }
        (Workload::RequestResponse { len_bytes }, [_, ..]) => {
            for socket in &sockets {
                socket.set_nodelay(true).attempt(|| "cannot set a socket up")?;
            }
            let transactions = request_response::answer_all(&station.placed(&sockets), len_bytes)?;
            Ok(WorkDone::Asked(Asked { transactions, ..Asked::default() }))
        }
        (Workload::RequestResponse { .. }, []) => {
            Err(Failure::new("there is no connection to answer over"))
        }
    }
}

fn against_self(scenario: &Scenario, bounds: Bounds) -> Result<Ran, Failure> {
    let (near, far) = Station::pair(scenario)?;
    let pair = wire::meet(&near, &far, scenario.connections)?;
    let clocks = Clocks::read()?;
    let before = near.counters();
    let work = match scenario.workload {
        Workload::Stream => {
            let mut near_tasks = our_plan(scenario, bounds, true).tasks(&pair.near)?;
            let mut far_tasks = their_plan(scenario, bounds, true).tasks(&pair.far)?;
            near.place(&pair.near, &mut near_tasks);
            far.place(&pair.far, &mut far_tasks);
            let by = [&near, &far].map(|station| station.by(scenario.workers));
            let (ours, theirs) = wire::stream(by, pair, &near_tasks, &far_tasks)?;
            WorkDone::Streamed { ours, theirs: Box::new(theirs) }
        }
        Workload::RequestResponse { len_bytes } => {
            let amount = bounds.amount;
            let asking = AskingAll { seed: SEED, connected: false, amount, len_bytes };
            WorkDone::Asked(wire::ask(&pair, (&near, &far), &asking)?)
        }
    };
    let spent = clocks.spent()?;
    let counters = measure::counted_since(&before, &near.counters());
    let ran = conclude(scenario, &Measured { work, spent, counters }, near.about())?;
    near.close().map(|capture_lost| Ran { capture_lost, ..ran })
}

/// Datagrams to a socket of the kernel's, or of a second stack, in this process.
fn send_datagrams(scenario: &Scenario, plan: &datagrams::Plan) -> Result<Ran, Failure> {
    let mut started = None;
    let (near, _far, outcome) = match scenario.peer() {
        PeerKind::Kernel => {
            let near = Station::over_kernel_device(scenario)?;
            let refused = || "cannot open a socket of the kernel's";
            let far = UdpSocket::bind((Addresses::of(scenario).far, 0)).attempt(refused)?;
            let to = far.local_addr().attempt(refused)?;
            let socket = near.udp_socket()?;
            let begin = || started = Some((Clocks::read(), near.counters()));
            let outcome = datagrams::run(&socket, &far, to, plan, begin)?;
            (near, None, outcome)
        }
        PeerKind::Own => {
            let (near, other) = Station::pair(scenario)?;
            let far = other.udp_socket()?;
            let to = far.local_addr().attempt(|| "a socket has no address")?;
            let socket = near.udp_socket()?;
            let begin = || started = Some((Clocks::read(), near.counters()));
            let outcome = datagrams::run(&socket, &far, to, plan, begin)?;
            (near, Some(other), outcome)
        }
    };
    let Some((clocks, before)) = started else {
        return Err(Failure::new("no datagram was sent"));
    };
    let spent = clocks?.spent()?;
    let counters = measure::counted_since(&before, &near.counters());
    let work = WorkDone::Sent(outcome);
    let ran = conclude(scenario, &Measured { work, spent, counters }, near.about())?;
    near.close().map(|capture_lost| Ran { capture_lost, ..ran })
}

fn our_plan(scenario: &Scenario, bounds: Bounds, connected: bool) -> Plan {
    Plan {
        seed: SEED,
        connected,
        sends: scenario.direction.sends(),
        receives: scenario.direction.receives(),
        amount: bounds.amount,
        write_len_bytes: scenario.write_len_bytes,
        zero_copy: scenario.zero_copy,
        verified_len_bytes: bounds.verified_len_bytes,
    }
}

fn their_plan(scenario: &Scenario, bounds: Bounds, we_connected: bool) -> Plan {
    Plan {
        connected: !we_connected,
        sends: scenario.direction.receives(),
        receives: scenario.direction.sends(),
        // Where only we send, what is measured is the sending end: the other one reads as ever.
        zero_copy: scenario.zero_copy && scenario.direction.receives(),
        ..our_plan(scenario, bounds, we_connected)
    }
}

/// What another process at the other end is to do.
fn their_work(scenario: &Scenario, bounds: Bounds, we_connected: bool) -> Work {
    match scenario.workload {
        Workload::Stream => Work::Stream(their_plan(scenario, bounds, we_connected)),
        Workload::RequestResponse { len_bytes } => {
            Work::Ask { seed: SEED, amount: bounds.amount, len_bytes }
        }
    }
}

/// Compares what both ends say and makes the figures.
fn conclude(scenario: &Scenario, measured: &Measured, about: &str) -> Result<Ran, Failure> {
    let mut counters = measured.counters.clone();
    let (bytes, seconds) = match &measured.work {
        WorkDone::Streamed { ours, theirs } => {
            agree("this stack sent", ours.sent_bytes, theirs.received_bytes)?;
            agree("the other end sent", theirs.sent_bytes, ours.received_bytes)?;
            enter_sender(scenario, &ours.sender, &mut counters);
            let receiver = if ours.received_bytes > 0 { ours } else { &**theirs };
            enter_receiver(receiver, &mut counters);
            (ours.sent_bytes + theirs.sent_bytes, ours.receiving_s.max(theirs.receiving_s))
        }
        WorkDone::Asked(asked) => {
            counters.insert(TRANSACTIONS.to_owned(), asked.transactions);
            counters.insert(TRANSACTION_MEDIAN_NS.to_owned(), asked.median_ns);
            counters.insert(TRANSACTION_P99_NS.to_owned(), asked.p99_ns);
            let len_bytes = match scenario.workload {
                Workload::RequestResponse { len_bytes } => len_bytes as u64,
                Workload::Stream => 0,
            };
            (2 * len_bytes * asked.transactions, asked.seconds)
        }
        WorkDone::Sent(sent) => {
            enter_sender(scenario, &sent.sender, &mut counters);
            counters.insert(DATAGRAM_BYTES_ARRIVED.to_owned(), sent.received_bytes);
            (sent.sent_bytes, sent.seconds)
        }
    };
    let arrived_bytes = match &measured.work {
        WorkDone::Sent(sent) => sent.received_bytes,
        _ => bytes,
    };
    if let Amount::Bytes(_) = scenario.amount
        && arrived_bytes == 0
    {
        return Err(Failure::new("nothing arrived"));
    }
    let count = |name: &str| measure::counter(&measured.counters, name);
    let sent = (count("device.transmit_packets"), count("device.transmit_batches"));
    let received = (count("device.receive_frames"), count("device.receive_batches"));
    let (packets, batches) = match scenario.direction {
        Direction::Send => sent,
        Direction::Receive => received,
        Direction::Both => (sent.0 + received.0, sent.1 + received.1),
    };
    let gb = bytes as f64 / 1e9;
    let busy_gbps = measured.work.busy_gbps();
    let (spent, spent_on_bytes) = measured.work.spent_on(measured.spent, bytes);
    let each_gb = |seconds: f64| ratio(seconds, spent_on_bytes as f64 / 1e9).unwrap_or(0.0);
    let run = Run {
        bytes,
        seconds,
        throughput_gbps: busy_gbps.or_else(|| ratio(gb * 8.0, seconds)).unwrap_or(0.0),
        stack_cpu_s_per_gb: each_gb(spent.process_cpu_s),
        stack_kernel_cpu_s_per_gb: each_gb(spent.kernel_cpu_s),
        system_cpu_s_per_gb: each_gb(spent.system_cpu_s),
        packets,
        batches,
        syscalls: count("device.transmit_syscalls")
            + count("device.receive_syscalls")
            + count("device.wait_syscalls"),
        verified: true,
        counters,
        ..Run::of(scenario)
    };
    Ok(Ran { run, about: about.to_owned(), capture_lost: 0 })
}

/// What sending took, and where that time went, if it was measured.
fn enter_sender(scenario: &Scenario, sender: &Sender, counters: &mut Counters) {
    counters.insert(SENDER_CPU_NS.to_owned(), sender.cpu_ns);
    counters.insert(SENDER_WAITS.to_owned(), sender.waits);
    if scenario.times != Times::Off {
        counters.insert(SENDER_ELAPSED_NS.to_owned(), sender.elapsed_ns);
        sender.taken.count(counters);
    }
}

/// What came, and how evenly.
fn enter_receiver(receiver: &Totals, counters: &mut Counters) {
    for (name, bytes) in [
        (RECEIVED_BYTES, receiver.received_bytes),
        (LEAST_RECEIVED_BYTES, receiver.least_received_bytes),
        (MOST_RECEIVED_BYTES, receiver.most_received_bytes),
    ] {
        counters.insert(name.to_owned(), bytes);
    }
}

fn agree(who: &str, sent_bytes: u64, received_bytes: u64) -> Result<(), Failure> {
    if sent_bytes == received_bytes {
        return Ok(());
    }
    Err(Failure::new(format!("{who} {sent_bytes} bytes, and {received_bytes} arrived")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::stream::Busy;
    use device::TransmitMode;

    #[test]
    fn costs_are_of_the_time_that_throughput_is_of() {
        let spent = |process_cpu_s| Spent { process_cpu_s, ..Spent::default() };
        let busy = Busy { bytes: 0, moved_bytes: 500, seconds: 0.5, spent: Some(spent(1.0)) };
        let ended = Totals { busy: Some(Busy { bytes: 400, ..busy }), ..Totals::default() };
        let streamed = |busy| WorkDone::Streamed {
            ours: Totals { busy, ..Totals::default() },
            theirs: Box::new(ended),
        };
        assert_eq!(streamed(Some(busy)).spent_on(spent(9.0), 900), (spent(1.0), 500));
        assert_eq!(streamed(None).spent_on(spent(9.0), 900), (spent(9.0), 900), "not theirs");
        assert_eq!(streamed(Some(busy)).busy_gbps(), streamed(None).busy_gbps());
    }

    #[test]
    fn the_other_end_writes_what_the_row_says() {
        let tap = Scenario::stream(DeviceKind::Tap, Direction::Receive, TransmitMode::Multidata);
        let scenario = Scenario { write_len_bytes: 1_000, ..tap };
        let bounds = Bounds { amount: scenario.amount, verified_len_bytes: 0 };
        let Work::Stream(plan) = their_work(&scenario, bounds, false) else {
            panic!("it is a stream");
        };
        assert_eq!((plan.sends, plan.write_len_bytes), (true, 1_000));
        assert_eq!(Run::of(&scenario).write_len_bytes, 1_000);
    }

    #[test]
    fn a_length_that_differs_is_a_failure() {
        assert!(agree("this stack sent", 5, 5).is_ok());
        let sentence = agree("this stack sent", 5, 4).unwrap_err().to_string();
        assert_eq!(sentence, "this stack sent 5 bytes, and 4 arrived");
    }
}
