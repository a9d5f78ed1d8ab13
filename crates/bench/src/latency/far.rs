//! The far end: kernel sockets in a network namespace of their own, behind a TAP device.
//!
//! A namespace belongs to a thread and to those that it starts, so the far end is one that accepts on
//! three ports and starts a thread for each connection: the first port answers, the second takes what
//! comes, the third sends as fast as it can.

use crate::loss::receiver::open_tap;
use crate::workload::request_response::answer;
use crate::{Attempt, Failure};
use linux::{Sandbox, TapDevice, TapQueue};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the ports are looked at.
const LOOK: Duration = Duration::from_millis(1);

/// How long one call of a bulk transfer waits, so that it ends where its peer is gone.
const CALL_MAX: Duration = Duration::from_millis(200);

/// What a bulk transfer moves in one call.
const CALL_LEN_BYTES: usize = 256 << 10;

/// The far end at work. Dropped, it ends.
#[derive(Debug)]
pub struct Far {
    /// Answers each request with the same bytes.
    pub echo: SocketAddr,
    /// Reads and forgets.
    pub sink: SocketAddr,
    /// Writes.
    pub source: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread holds.
struct Ports {
    _device: TapDevice,
    listeners: [TcpListener; 3],
    len_bytes: usize,
    stop: Arc<AtomicBool>,
}

impl Far {
    /// Starts it; the queue is the other side of its TAP device.
    ///
    /// # Errors
    /// A sentence: no namespace, no device, no address.
    pub fn start(
        sandbox: &Arc<Sandbox>,
        address: IpAddr,
        prefix_len: u8,
        len_bytes: usize,
    ) -> Result<(Self, TapQueue), Failure> {
        let (sender, ready) = sync_channel(1);
        let (sandbox, stop) = (Arc::clone(sandbox), Arc::<AtomicBool>::default());
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            match open(&sandbox, address, prefix_len, len_bytes, stopping) {
                Ok((ports, addresses, queue)) => {
                    if sender.send(Ok((addresses, queue))).is_ok() {
                        ports.serve();
                    }
                }
                Err(failure) => drop(sender.send(Err(failure))),
            }
        });
        let ([echo, sink, source], queue) =
            ready.recv().attempt(|| "the far end did not start")??;
        Ok((Self { echo, sink, source, stop, thread: Some(thread) }, queue))
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // A far end that panicked has said so.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn open(
    sandbox: &Sandbox,
    address: IpAddr,
    prefix_len: u8,
    len_bytes: usize,
    stop: Arc<AtomicBool>,
) -> Result<(Ports, [SocketAddr; 3], TapQueue), Failure> {
    let refused = || "cannot set the far end's network up";
    sandbox.enter_further().attempt(refused)?;
    let (device, queue) = open_tap(address, prefix_len)?;
    let listen = || {
        let listener = crate::peer::kernel::listen((address, 0).into(), 1)?;
        listener.set_nonblocking(true)?;
        Ok::<_, std::io::Error>((listener.local_addr()?, listener))
    };
    let [echo, sink, source] =
        [listen().attempt(refused)?, listen().attempt(refused)?, listen().attempt(refused)?];
    let addresses = [echo.0, sink.0, source.0];
    let listeners = [echo.1, sink.1, source.1];
    Ok((Ports { _device: device, listeners, len_bytes, stop }, addresses, queue))
}

impl Ports {
    /// Accepts until it is told to stop. What fails on a connection shows at the near end.
    fn serve(&self) {
        std::thread::scope(|scope| {
            while !self.stop.load(Ordering::SeqCst) {
                for (role, listener) in self.listeners.iter().enumerate() {
                    let Ok((socket, _)) = listener.accept() else { continue };
                    scope.spawn(move || self.work(&socket, role));
                }
                std::thread::sleep(LOOK);
            }
        });
    }

    fn work(&self, socket: &TcpStream, role: usize) {
        let is_ready = socket.set_nonblocking(false).is_ok()
            && socket.set_nodelay(true).is_ok()
            && (role == 0
                || socket.set_read_timeout(Some(CALL_MAX)).is_ok()
                    && socket.set_write_timeout(Some(CALL_MAX)).is_ok());
        match role {
            _ if !is_ready => {}
            0 => drop(answer(socket, self.len_bytes)),
            _ => self.move_bytes(socket, role == 1),
        }
    }

    fn move_bytes(&self, mut socket: &TcpStream, reads: bool) {
        let mut buffer = vec![0x5a; CALL_LEN_BYTES];
        while !self.stop.load(Ordering::SeqCst) {
            let moved = if reads { socket.read(&mut buffer) } else { socket.write(&buffer) };
            match moved {
                Ok(0) => return,
                Err(error) if !crate::loss::receiver::is_timeout(&error) => return,
                _ => {}
            }
        }
    }
}
