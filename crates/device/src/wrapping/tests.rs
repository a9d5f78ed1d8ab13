use crate::{
    Capabilities, DeviceCounters, DeviceError, Medium, Queue, Received, Room, Stop, TransmitMode,
    Transmitted, Waiter,
};
use batch::{BlockPool, Multidata, PoolConfig, ReceiveBatch};
use core::time::Duration;
use std::sync::Arc;

/// A queue that answers every call as no default would, and notes those that change it.
#[derive(Default)]
struct Peculiar {
    calls: Vec<&'static str>,
}

fn trouble() -> DeviceError {
    DeviceError::new(std::io::ErrorKind::NetworkDown, "the cable is loose")
}

struct NeverReady;

impl Waiter for NeverReady {
    fn wait(&self, _: Option<Duration>) {}

    fn wake(&self) {}

    fn is_ready(&self) -> Option<bool> {
        Some(false)
    }
}

impl Queue for Peculiar {
    fn capabilities(&self) -> Capabilities {
        Capabilities::plain(Medium::Ip, 777)
    }

    fn set_mode(&mut self, _: TransmitMode) -> Result<(), DeviceError> {
        self.calls.push("set_mode");
        Err(trouble())
    }

    fn room(&self) -> Room {
        Room { packets: 7, bytes: 77 }
    }

    fn transmit(&mut self, _: &Multidata) -> Transmitted {
        self.calls.push("transmit");
        Transmitted { taken: 3, stopped: Some(Stop::Refused) }
    }

    fn receive(&mut self, _: &BlockPool, _: &mut ReceiveBatch, frames_max: usize) -> Received {
        self.calls.push("receive");
        Received { frames: frames_max, more: true, failed: None }
    }

    fn reclaim(&mut self) {
        self.calls.push("reclaim");
    }

    fn is_stalled(&self) -> bool {
        true
    }

    fn trouble(&self) -> Option<DeviceError> {
        Some(trouble())
    }

    fn retry_after(&self) -> Option<Duration> {
        Some(Duration::from_millis(7))
    }

    fn waiter(&self) -> Arc<dyn Waiter> {
        Arc::new(NeverReady)
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters { transmit_lost: 7, ..DeviceCounters::default() }
    }
}

/// Has nothing of its own.
struct Plain(Peculiar);

impl Queue for Plain {
    crate::forward_queue!(|self| self.0);
}

/// Has two calls of its own, the first and the last but two.
struct Own(Peculiar);

impl Queue for Own {
    crate::forward_queue!(|self| self.0, but capabilities, retry_after);

    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu_bytes: 700, ..self.0.capabilities() }
    }

    fn retry_after(&self) -> Option<Duration> {
        None
    }
}

/// All that a queue answers, but for what it can do and when it is to be asked again.
fn assert_peculiar(queue: &mut dyn Queue) {
    assert_eq!(queue.set_mode(TransmitMode::Single), Err(trouble()));
    assert_eq!(queue.room(), Room { packets: 7, bytes: 77 });
    let transmitted = queue.transmit(&Multidata::default());
    assert_eq!(transmitted, Transmitted { taken: 3, stopped: Some(Stop::Refused) });
    let pool = BlockPool::new(PoolConfig::default());
    assert_eq!(queue.receive(&pool, &mut ReceiveBatch::new(), 5).frames, 5);
    queue.reclaim();
    assert!(queue.is_stalled());
    assert_eq!(queue.trouble(), Some(trouble()));
    assert_eq!(queue.waiter().is_ready(), Some(false));
    assert_eq!(queue.counters().transmit_lost, 7);
}

const CALLS: [&str; 4] = ["set_mode", "transmit", "receive", "reclaim"];

#[test]
fn every_call_that_is_not_named_reaches_the_queue_within() {
    let mut plain = Plain(Peculiar::default());
    assert_peculiar(&mut plain);
    assert_eq!(plain.capabilities().mtu_bytes, 777);
    assert_eq!(plain.retry_after(), Some(Duration::from_millis(7)));
    assert_eq!(plain.0.calls, CALLS);

    let mut boxed: Box<dyn Queue> = Box::new(Peculiar::default());
    assert_peculiar(&mut boxed);
    assert_eq!(boxed.retry_after(), Some(Duration::from_millis(7)));
}

#[test]
fn a_call_that_is_named_is_the_wrappers_own() {
    let mut own = Own(Peculiar::default());
    assert_peculiar(&mut own);
    assert_eq!((own.capabilities().mtu_bytes, own.retry_after()), (700, None));
    assert_eq!(own.0.calls, CALLS);
}
