//! A device that is flooded: beside what its peer sends, SYNs from everywhere come in.
#![allow(dead_code, reason = "the test and the example each use a part")]

use batch::{BlockPool, Frame, ReceiveBatch, ReceivedChecksum};
use device::{Medium, Queue, Received, WireConfig, WireEnd};
use multidata::{InterfaceConfig, Stack, TcpListener, TcpStream};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Frames that a NIC holds until they are fetched.
const RING: u64 = 1_024;
const FRAME_LEN: usize = 44;

/// How fast the flood is, and what became of it.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    pub(crate) per_second: AtomicU64,
    pub(crate) delivered: AtomicU64,
    /// Beyond what the ring holds, because nobody fetched in time.
    pub(crate) overrun: AtomicU64,
}

/// A queue whose receives bring the flood's frames first, up to three of four.
pub(crate) struct Flooded<Q> {
    inner: Q,
    tap: Arc<Tap>,
    number: u32,
    fetched_at: Instant,
    due: f64,
}

impl<Q> Flooded<Q> {
    pub(crate) fn new(inner: Q, tap: Arc<Tap>) -> Self {
        Self { inner, tap, number: 0, fetched_at: Instant::now(), due: 0.0 }
    }

    fn due(&mut self) -> u64 {
        let now = Instant::now();
        let per_second = self.tap.per_second.load(Ordering::Relaxed);
        self.due += (now - self.fetched_at).as_secs_f64() * per_second as f64;
        self.fetched_at = now;
        if self.due > RING as f64 {
            let over = self.due as u64 - RING;
            self.tap.overrun.fetch_add(over, Ordering::Relaxed);
            self.due = RING as f64;
        }
        self.due as u64
    }
}

/// A SYN to 10.2.0.2:80 from one of a hundred thousand addresses beyond the link.
fn write_syn(number: u32, out: &mut [u8]) {
    let number = number.wrapping_mul(0x9e37_79b9);
    let source = (0x0a02_0100 + number % 60_000).to_be_bytes();
    out[..20].copy_from_slice(&[
        0x45,
        0,
        0,
        FRAME_LEN as u8,
        0,
        0,
        0x40,
        0,
        64,
        6,
        0,
        0,
        0,
        0,
        0,
        0,
        10,
        2,
        0,
        2,
    ]);
    out[12..16].copy_from_slice(&source);
    let port = 1_024 + (number >> 17) as u16;
    out[20..22].copy_from_slice(&port.to_be_bytes());
    out[22..24].copy_from_slice(&80_u16.to_be_bytes());
    out[24..28].copy_from_slice(&number.to_be_bytes());
    out[28..44].copy_from_slice(&[0, 0, 0, 0, 0x60, 2, 255, 255, 0, 0, 0, 0, 2, 4, 5, 180]);
    let ip = sum(&out[..20], 0);
    out[10..12].copy_from_slice(&ip.to_be_bytes());
    let tcp = sum(&out[12..44], 6 + 24);
    out[36..38].copy_from_slice(&tcp.to_be_bytes());
}

fn sum(bytes: &[u8], first: u32) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum = first + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

impl<Q: Queue> Queue for Flooded<Q> {
    device::forward_queue!(|self| self.inner, but receive);

    fn receive(
        &mut self,
        pool: &BlockPool,
        batch: &mut ReceiveBatch,
        frames_max: usize,
    ) -> Received {
        let count = self.due().min(frames_max as u64 * 3 / 4) as usize;
        let mut flood = 0;
        if count > 0
            && let Ok(mut block) = pool.allocate_receive(count * FRAME_LEN)
        {
            for at in 0..count {
                self.number = self.number.wrapping_add(1);
                write_syn(self.number, &mut block.bytes_mut()[at * FRAME_LEN..][..FRAME_LEN]);
            }
            let index = batch.add_block(block.freeze());
            for at in 0..count {
                let offset = (at * FRAME_LEN) as u32;
                let checksum = ReceivedChecksum::Unverified;
                let len = FRAME_LEN as u32;
                let frame = Frame { block: index, offset, len, checksum, segmented: None };
                flood += usize::from(batch.push_frame(frame));
            }
        }
        self.due -= flood as f64;
        self.tap.delivered.fetch_add(flood as u64, Ordering::Relaxed);
        let mut received = self.inner.receive(pool, batch, frames_max - flood);
        received.frames += flood;
        received.more |= self.due >= 1.0;
        received
    }
}

/// Two stacks on a wire; the right one listens on port 80 and is flooded as its tap says.
pub(crate) struct Ground {
    pub(crate) left: Stack,
    pub(crate) right: Stack,
    pub(crate) tap: Arc<Tap>,
    pub(crate) listener: TcpListener,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let end = WireEnd::plain(Medium::Ip);
        let (left, right) = device::wire(WireConfig::new(end, end));
        let tap = Arc::new(Tap::default());
        let interface = |address: &str| InterfaceConfig::new(address.parse().expect("an address"));
        let right = Flooded::new(right, Arc::clone(&tap));
        let left = Stack::builder().interface(left, interface("10.2.0.1/16")).build();
        let right = Stack::builder().interface(right, interface("10.2.0.2/16")).build();
        let (left, right) = (left.expect("a stack"), right.expect("a stack"));
        let listener = TcpListener::bind(&right, "10.2.0.2:80").expect("a free port");
        Self { left, right, tap, listener }
    }

    /// Sends for `span` over a new connection to the flooded stack and says how many bytes its
    /// application got in a second.
    pub(crate) fn goodput(&self, span: Duration) -> f64 {
        let mut client = TcpStream::connect(&self.left, "10.2.0.2:80").expect("listening");
        let (mut server, _) = self.listener.accept().expect("open");
        let writer = std::thread::spawn(move || {
            let block = vec![7; 65_536];
            while client.write_all(&block).is_ok() {}
        });
        let mut buffer = vec![0; 65_536];
        let began = Instant::now();
        let mut bytes = 0;
        while began.elapsed() < span {
            bytes += server.read(&mut buffer).expect("open");
        }
        let goodput = bytes as f64 / began.elapsed().as_secs_f64();
        server.abort();
        drop(server);
        writer.join().expect("no panic");
        goodput
    }
}
