//! CPU time, pinning, and what the host is: for reports that explain a figure.

use crate::system_error::SystemError;
use core::fmt;
use rustix::param::clock_ticks_per_second;
use rustix::system::uname;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// CPU time that the calling thread has used, user and system.
#[must_use]
pub fn thread_time() -> Duration {
    duration(clock_gettime(ClockId::ThreadCPUTime))
}

/// How often the calling thread has given up its CPU to wait for something; 0 where /proc does not
/// tell.
#[must_use]
pub fn thread_waits() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    field(&status, "voluntary_ctxt_switches").and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// CPU time that all threads of this process have used, user and system.
#[must_use]
pub fn process_time() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

/// The part of [`process_time`] that was spent in the kernel, on system calls of this process. Exact
/// where the kernel accounts by time, else in ticks.
#[must_use]
#[allow(unsafe_code)]
pub fn process_kernel_time() -> Duration {
    let mut usage = core::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage` where it is told to; zeroes are a valid one.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = Duration::from_secs(usage.ru_stime.tv_sec.unsigned_abs());
    seconds + Duration::from_micros(usage.ru_stime.tv_usec.unsigned_abs())
}

fn duration(time: Timespec) -> Duration {
    Duration::try_from(time).unwrap_or_default()
}

/// What the whole system had done at some moment. Only the difference of two says anything.
#[derive(Clone, Copy, Debug)]
pub struct SystemSample {
    taken: Instant,
    busy: Duration,
    idle: Duration,
    cpus: usize,
}

/// How much CPU time the whole system used between two samples, over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemTime {
    /// By the kernel's ticks: work is charged to whoever runs when the clock ticks (usually 100 or
    /// 250 times a second), so work shorter than a tick may escape. Time stolen by the hypervisor
    /// is not in it.
    pub busy_by_ticks: Duration,
    /// All the time there was, less what the CPUs idled, which tickless kernels measure exactly.
    /// Contains everything, also stolen time.
    pub busy_by_idle: Duration,
}

impl SystemSample {
    /// What the system has done up to now.
    ///
    /// # Errors
    /// Where /proc/stat cannot be read.
    pub fn take() -> Result<Self, SystemError> {
        let text = fs::read_to_string("/proc/stat")
            .map_err(|error| SystemError::failed("/proc/stat cannot be read", &error))?;
        parse_stat(&text, Instant::now(), clock_ticks_per_second()).ok_or_else(|| {
            SystemError::new(ErrorKind::InvalidData, "/proc/stat has no line of all CPUs")
        })
    }

    /// What the system used since the earlier sample.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> SystemTime {
        let all = self.taken.duration_since(earlier.taken) * self.cpus as u32;
        SystemTime {
            busy_by_ticks: self.busy.saturating_sub(earlier.busy),
            busy_by_idle: all.saturating_sub(self.idle.saturating_sub(earlier.idle)),
        }
    }
}

/// proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal in ticks. What guests use is
/// contained in user and nice.
fn parse_stat(text: &str, taken: Instant, ticks_per_second: u64) -> Option<SystemSample> {
    let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut ticks = [0_u64; 8];
    for (place, field) in ticks.iter_mut().zip(all.split_ascii_whitespace()) {
        *place = field.parse().ok()?;
    }
    let [user, nice, system, idle, iowait, irq, softirq, _steal] = ticks;
    let time = |ticks: u64| {
        Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / ticks_per_second.max(1)))
    };
    let is_cpu = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    Some(SystemSample {
        taken,
        busy: time(user + nice + system + irq + softirq),
        idle: time(idle + iowait),
        cpus: text.lines().filter(is_cpu).count().max(1),
    })
}

/// The CPUs on which the calling thread may run.
///
/// # Errors
/// Where the system refuses.
pub fn allowed() -> Result<Vec<usize>, SystemError> {
    let set = sched_getaffinity(None)
        .map_err(|errno| SystemError::refused("the allowed CPUs are not told", errno))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Restricts the calling thread, and threads it starts from now on, to these CPUs.
///
/// # Errors
/// Where none of them exists or may be used.
pub fn pin(cpus: &[usize]) -> Result<(), SystemError> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    sched_setaffinity(None, &set).map_err(|errno| {
        SystemError::refused(format!("the thread could not be pinned to CPUs {cpus:?}"), errno)
    })
}

/// The CPU that the calling thread runs on at present.
#[must_use]
pub fn current() -> usize {
    sched_getcpu()
}

/// What the host is, for the head of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name and release of the kernel.
    pub kernel: String,
    /// The processor as it calls itself.
    pub cpu_model: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Memory in bytes; zero where it is not known.
    pub memory_bytes: u64,
}

impl Host {
    /// What this host is; what cannot be found is "unknown".
    #[must_use]
    pub fn describe() -> Self {
        let system = uname();
        let word = |text: &core::ffi::CStr| text.to_string_lossy().into_owned();
        let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kilobytes = field(&memory, "MemTotal").and_then(|value| {
            value.split_ascii_whitespace().next().and_then(|number| number.parse::<u64>().ok())
        });
        Self {
            kernel: format!("{} {}", word(system.sysname()), word(system.release())),
            cpu_model: field(&cpu_info, "model name")
                .or_else(|| field(&cpu_info, "Model"))
                .unwrap_or("unknown")
                .to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kilobytes.unwrap_or(0) * 1_024,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gibibytes = self.memory_bytes as f64 / f64::from(1 << 30);
        let Self { kernel, cpu_model, cpus, .. } = self;
        write!(formatter, "{kernel}, {cpus} CPUs ({cpu_model}), {gibibytes:.1} GiB")
    }
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_all_cpus_is_read_in_ticks() {
        let stat = "cpu  10 1 20 300 5 2 3 40 7 0\ncpu0 0 0\ncpu1 0 0\nctxt 99\n";
        let earlier = Instant::now();
        let sample = parse_stat(stat, earlier, 100).expect("a line of all CPUs");
        assert_eq!(sample.busy, Duration::from_millis(360));
        assert_eq!(sample.idle, Duration::from_millis(3_050));
        assert_eq!(sample.cpus, 2);
        let later = "cpu  20 1 20 400 5 2 3 40 7 0\ncpu0 0 0\ncpu1 0 0\n";
        let later = parse_stat(later, earlier + Duration::from_secs(1), 100).expect("the same");
        let used = later.since(&sample);
        assert_eq!(used.busy_by_ticks, Duration::from_millis(100));
        assert_eq!(used.busy_by_idle, Duration::from_secs(1));
        assert!(parse_stat("intr 5\n", earlier, 100).is_none());
        assert!(parse_stat("cpu  x\n", earlier, 100).is_none());
    }

    #[test]
    fn work_shows_in_the_clocks_of_thread_and_process() {
        let (process, thread) = (process_time(), thread_time());
        let started = Instant::now();
        let mut sum = 0_u64;
        while thread_time() - thread < Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_add(1));
            assert!(started.elapsed() < Duration::from_secs(20), "the clock stands still");
        }
        assert!(process_time() - process >= Duration::from_millis(5));
        SystemSample::take().expect("/proc is mounted");
    }

    #[test]
    fn a_thread_that_sleeps_has_waited() {
        let before = thread_waits();
        std::thread::sleep(Duration::from_millis(2));
        assert!(thread_waits() > before);
    }

    #[test]
    fn a_pinned_thread_runs_where_it_was_put() {
        let worker = std::thread::spawn(|| {
            let first = allowed().expect("an answer")[0];
            pin(&[first]).expect("it may run there already");
            assert_eq!(allowed().expect("an answer"), [first]);
            assert_eq!(current(), first);
            assert!(pin(&[]).is_err(), "nowhere to run");
        });
        worker.join().expect("the thread ends well");
    }

    #[test]
    fn the_host_describes_itself() {
        let host = Host::describe();
        assert!(host.kernel.starts_with("Linux "), "{host}");
        assert!(host.cpus >= 1);
        assert_eq!(field("a: 1\nmodel name\t: X\n", "model name"), Some("X"));
    }
}
