//! What a script is run against.

pub(crate) mod linux;
pub(crate) mod stack;

use posix::{Call, Errno, Reply};

/// What a call returned.
pub(crate) type Returned = Result<Reply, Errno>;

/// A host under test, its programs' system calls, its clock and its network. Times are in
/// microseconds since the backend was made.
pub(crate) trait Backend {
    /// The clock begins: what the script does before its first event takes no time.
    fn start(&mut self);

    /// The time.
    fn now_us(&mut self) -> u64;

    /// Lets time pass. Returns the time by which an event of the runner's own is judged: where time
    /// is real, one that comes late is the machine's doing and not the host's.
    fn wait_until(&mut self, at_us: u64) -> u64;

    /// Packets arrive at the host, at once.
    fn inject(&mut self, packets: &[Vec<u8>]) -> Result<(), String>;

    /// The next packet the host sent, and when; waits for it until `limit_us`.
    fn next_packet(&mut self, limit_us: u64) -> Option<(u64, Vec<u8>)>;

    /// Makes a call that is expected to return at once.
    ///
    /// # Errors
    /// It does not.
    fn call(&mut self, call: Call) -> Result<Returned, String>;

    /// Begins a call that may block, of which there is one at a time.
    fn begin(&mut self, call: Call);

    /// What the call begun last returned, and when; `None` while it blocks.
    fn finished(&mut self) -> Option<(u64, Returned)>;

    /// Runs a shell command, or what of it has a meaning here.
    fn command(&mut self, command: &str) -> Result<(), String>;
}
