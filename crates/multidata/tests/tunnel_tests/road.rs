//! The road between two tunnel ends: two sockets of the kernel with a thread that carries datagrams
//! from one to the other, and harms them on the way.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Every how many datagrams one suffers; 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Harm {
    /// One bit is another.
    pub(crate) tamper: u64,
    /// It comes twice, the second time a little later.
    pub(crate) replay: u64,
    /// Its last bytes are missing.
    pub(crate) truncate: u64,
}

/// How often what was done.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) tampered: AtomicU64,
    pub(crate) replayed: AtomicU64,
    pub(crate) truncated: AtomicU64,
}

/// The road. Dropped, it is gone: both ends hear from the kernel that nobody listens.
pub(crate) struct Road {
    pub(crate) done: Arc<Done>,
    ends: Arc<AtomicBool>,
    carriers: Vec<JoinHandle<()>>,
}

impl Road {
    /// A road with these addresses, the first towards `left`, the second towards `right`.
    pub(crate) fn open(
        (towards_left, left): (SocketAddr, SocketAddr),
        (towards_right, right): (SocketAddr, SocketAddr),
        harm: Harm,
    ) -> Self {
        let socket = |at, to: SocketAddr| {
            let socket = UdpSocket::bind(at).expect("the road's own address");
            socket.connect(to).expect("loopback");
            socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
            Arc::new(socket)
        };
        let near = socket(towards_left, left);
        let far = socket(towards_right, right);
        let (done, ends) = (Arc::<Done>::default(), Arc::<AtomicBool>::default());
        let carry = |from: &Arc<UdpSocket>, to: &Arc<UdpSocket>| {
            let (from, to) = (Arc::clone(from), Arc::clone(to));
            let (done, ends) = (Arc::clone(&done), Arc::clone(&ends));
            std::thread::spawn(move || carry(&from, &to, harm, &done, &ends))
        };
        let carriers = vec![carry(&near, &far), carry(&far, &near)];
        Self { done, ends, carriers }
    }
}

impl Drop for Road {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for carrier in self.carriers.drain(..) {
            carrier.join().expect("it carries");
        }
    }
}

fn carry(from: &UdpSocket, to: &UdpSocket, harm: Harm, done: &Done, ends: &AtomicBool) {
    let is_due = |count: u64, every: u64| every != 0 && count.is_multiple_of(every);
    let mut buffer = vec![0; 65_536];
    let mut again: Option<Vec<u8>> = None;
    let mut count = 0;
    while !ends.load(Ordering::Relaxed) {
        // Errors are timeouts, and ends that are not there (yet).
        let Ok(len) = from.recv(&mut buffer) else { continue };
        count += 1;
        let datagram = &mut buffer[..len];
        if let Some(again) = again.take() {
            let _ = to.send(&again);
            done.replayed.fetch_add(1, Ordering::Relaxed);
        }
        if is_due(count, harm.replay) {
            again = Some(datagram.to_vec());
        }
        if is_due(count, harm.tamper) {
            datagram[(count as usize * 31) % len] ^= 0x10;
            done.tampered.fetch_add(1, Ordering::Relaxed);
            again = None;
        }
        let mut left = len;
        if is_due(count, harm.truncate) {
            // Alternately too short for any packet, and one byte short.
            left = if count.is_multiple_of(2 * harm.truncate) { 11 } else { len - 1 };
            done.truncated.fetch_add(1, Ordering::Relaxed);
            again = None;
        }
        let _ = to.send(&datagram[..left]);
    }
}
