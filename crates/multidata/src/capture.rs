//! Captures into files.
//!
//! A [`CaptureFile`] wraps device queues ([`CaptureFile::wrap`]) and has a thread that carries what
//! they saw to a pcapng file, one section for each queue. The stack never waits for that thread:
//! where the disk is slow or full, packets are missing from the file, counted, and nothing else
//! happens.

use device::Queue;
use device::capture::{Capture, CaptureConfig, CaptureCounters, CaptureQueue};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often what was captured is carried to the file.
const INTERVAL: Duration = Duration::from_millis(20);

/// A file that captures go to. Dropped, it is complete.
///
/// ```no_run
/// # fn run(queue: impl device::Queue + 'static) -> std::io::Result<()> {
/// use multidata::{CaptureFile, InterfaceConfig, Stack};
/// let capture = CaptureFile::create("packets.pcapng")?;
/// let queue = capture.wrap(Box::new(queue))?;
/// let stack = Stack::builder().boxed_interface(queue, InterfaceConfig::automatic()).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CaptureFile {
    file: File,
    config: CaptureConfig,
    writers: std::sync::Mutex<Vec<Writer>>,
}

/// The thread of one wrapped queue; a sender that is gone ends it.
#[derive(Debug)]
struct Writer {
    capture: Capture,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl CaptureFile {
    /// Makes the file, or empties one that is there.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        File::create(&path)?;
        Self::append(path)
    }

    /// Adds to the file, or makes it: pcapng files can be laid end to end.
    ///
    /// # Errors
    /// The file cannot be opened or made.
    pub fn append(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self { file, config: CaptureConfig::default(), writers: Vec::new().into() })
    }

    /// Captures with these bounds from the next queue on.
    #[must_use]
    pub fn config(mut self, config: CaptureConfig) -> Self {
        self.config = config;
        self
    }

    /// The same queue, with everything that passes it captured. The file of several queues has
    /// their packets in sections of their own only as long as one is written at a time; for several
    /// at once take several files.
    ///
    /// # Errors
    /// The file's handle cannot be shared, or there is no thread.
    pub fn wrap(&self, queue: Box<dyn Queue>) -> io::Result<Box<dyn Queue>> {
        let (queue, capture) = CaptureQueue::new(queue, self.config, Box::new(now_ns));
        let (stop, stopped) = channel();
        let (file, source) = (self.file.try_clone()?, capture.clone());
        let thread = Builder::new()
            .name("capture".to_owned())
            .spawn(move || carry(&source, file, &stopped))?;
        let writer = Writer { capture, stop: Some(stop), thread: Some(thread) };
        self.writers.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(writer);
        Ok(Box::new(queue))
    }

    /// What was captured, and what was not, over all queues.
    #[must_use]
    pub fn counters(&self) -> CaptureCounters {
        let mut counters = CaptureCounters::default();
        let writers = self.writers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        writers.iter().for_each(|writer| counters.merge(&writer.capture.counters()));
        counters
    }

    /// Carries the rest to the file and ends the capture. Queues that are still in use go on
    /// without.
    ///
    /// # Errors
    /// The file could not be written: what it holds ends somewhere.
    pub fn finish(self) -> io::Result<CaptureCounters> {
        let mut writers = self.writers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        writers.iter_mut().try_for_each(Writer::end)?;
        drop(writers);
        Ok(self.counters())
    }
}

impl Writer {
    fn end(&mut self) -> io::Result<()> {
        self.stop = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            _ => Ok(()),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Whoever wants to know calls `finish`.
        let _ = self.end();
    }
}

/// Carries blocks to the file until it is told to stop, and what is left then. After an error
/// nothing is written any more: half a block would make the rest unreadable.
fn carry(capture: &Capture, mut file: File, stopped: &Receiver<()>) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut outcome = Ok(());
    loop {
        let is_over = stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout);
        capture.take(&mut bytes);
        if outcome.is_ok() && !bytes.is_empty() {
            outcome = file.write_all(&bytes);
        }
        bytes.clear();
        if is_over {
            return outcome;
        }
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
