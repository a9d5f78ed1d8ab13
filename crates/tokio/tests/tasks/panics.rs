//! Halves of a stream that a task drops because its device panics.

use crate::pair::{right, run};
use multidata::batch::{BlockPool, ReceiveBatch};
use multidata::device::{
    self, HardwareAddress, Medium, Queue, Received, WireConfig, WireEnd, wire,
};
use multidata::{InterfaceConfig, Stack};
use multidata_tokio::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::AsyncReadExt;

/// Panics in tasks while it is told to.
struct Device {
    queue: device::WireQueue,
    panics: Arc<AtomicBool>,
}

impl Queue for Device {
    device::forward_queue!(|self| self.queue, but receive);

    fn receive(&mut self, pool: &BlockPool, batch: &mut ReceiveBatch, max: usize) -> Received {
        let thread = std::thread::current();
        let is_worker = thread.name().is_some_and(|name| name.starts_with("squeue-"));
        assert!(is_worker || !self.panics.load(Ordering::SeqCst), "of the test's own making");
        self.queue.receive(pool, batch, max)
    }
}

#[test]
fn halves_of_a_task_that_a_device_makes_panic_end_their_stream() {
    run(async {
        let end = |last| WireEnd::plain(Medium::Ethernet(HardwareAddress([2, 0, 0, 0, 0, last])));
        let (near, far) = wire(WireConfig::new(end(1), end(2)));
        let panics = Arc::<AtomicBool>::default();
        let near = Device { queue: near, panics: Arc::clone(&panics) };
        let interface = |address: &str| InterfaceConfig::new(address.parse().expect("an address"));
        let left = Stack::builder().interface(near, interface("10.1.0.1/24")).build();
        let other = Stack::builder().interface(far, interface("10.1.0.2/24")).build();
        let (left, other) = (left.expect("a stack"), other.expect("a stack"));
        let listener = TcpListener::bind(&other, right(7)).expect("a free port");
        let stream = TcpStream::connect(&left, right(7)).await.expect("it listens");
        let (mut server, _) = listener.accept().await.expect("it is there");
        let (mut reader, writer) = stream.into_split();
        panics.store(true, Ordering::SeqCst);
        let task = tokio::spawn(async move {
            let _writer = writer;
            reader.read(&mut [0]).await
        });
        let panic = task.await.expect_err("who panics hears of it").into_panic();
        assert_eq!(panic.downcast_ref(), Some(&"of the test's own making"));
        panics.store(false, Ordering::SeqCst);
        assert_eq!(server.read(&mut [0]).await.expect("the stream was ended"), 0);
    });
}
