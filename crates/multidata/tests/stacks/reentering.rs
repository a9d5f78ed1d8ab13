//! Application code that uses the stack where the stack lets go of it or calls it: owners of lent memory that
//! close sockets when they are dropped, wakers that act in place.

use crate::pair::{self, LEFT, connected, exchange, pair_with, right};
use bytes::Bytes;
use multidata::{ConnectOptions, Interest, LentDatagram, Stack, TcpListener, TcpStream, UdpSocket};
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// Memory that keeps something until it is delivered.
struct Owner<T>(Vec<u8>, #[allow(dead_code, reason = "it is dropped")] T);

impl<T> AsRef<[u8]> for Owner<T> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn owned<T: Send + 'static>(bytes: &[u8], kept: T) -> Bytes {
    Bytes::from_owner(Owner(bytes.to_vec(), kept))
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < pair::PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_connection_may_be_closed_by_the_memory_that_it_delivers() {
    for squeues in [1, 2] {
        let (left, right_stack) = pair_with(|builder| builder.squeues(squeues));
        for _ in 0..8 {
            let (client, mut server) = connected(&left, &right_stack);
            let client = Arc::new(client);
            client.write_bytes(owned(&[7; 100_000], Arc::clone(&client))).expect("connected");
            drop(client);
            server.set_read_timeout(Some(pair::PATIENCE)).expect("a time");
            let mut received = Vec::new();
            server.read_to_end(&mut received).expect("it was closed when all had arrived");
            assert!(received == [7; 100_000]);
        }
        // With a connection's first bytes, on it and on another one.
        let listener = TcpListener::bind(&right_stack, right(0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (other, mut other_end) = connected(&left, &right_stack);
        let first = owned(b"first", other);
        let options = ConnectOptions { first, ..ConnectOptions::default() };
        let client = TcpStream::connect_with(&left, address, &options).expect("it listens");
        drop(options);
        let (mut server, _) = listener.accept().expect("it is there");
        server.read_exact(&mut [0; 5]).expect("it was sent");
        other_end.set_read_timeout(Some(pair::PATIENCE)).expect("a time");
        assert_eq!(other_end.read(&mut [0]).expect("it was closed"), 0);
        exchange(&client, &server, 5, 1 << 20);
    }
}

#[test]
fn a_socket_may_be_closed_by_a_datagram_that_left() {
    for squeues in [1, 2] {
        let (left, right_stack) = pair_with(|builder| builder.squeues(squeues));
        let receiver = UdpSocket::bind(&right_stack, right(0)).expect("a free port");
        let to = receiver.local_addr().expect("bound");
        let bind = |port| UdpSocket::bind(&left, (LEFT, port));
        let ports = 9_000..9_016;
        let kept: Vec<_> = ports.clone().map(|port| bind(port).expect("a free port")).collect();
        // Behind those: any port that is free may be its own.
        let socket = bind(0).expect("a free port");
        for (index, kept) in kept.into_iter().enumerate() {
            let payload = owned(b"datagram", kept);
            let sent = match index % 2 {
                0 => socket.send_bytes_to(payload, to),
                _ => socket.send_many_bytes(&[LentDatagram {
                    payload,
                    to: Some(to),
                    ..LentDatagram::default()
                }]),
            };
            sent.expect("a route");
        }
        // The first of them waited for the neighbour.
        for port in ports {
            until("the socket was not closed", || bind(port).is_ok());
        }
    }
}

struct Panicking(Arc<AtomicUsize>);

impl Drop for Panicking {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("of the test's own making");
    }
}

#[test]
fn an_owner_that_panics_costs_nobody_anything() {
    let (left, right_stack) = pair_with(|builder| builder);
    let (client, server) = connected(&left, &right_stack);
    let dropped = Arc::<AtomicUsize>::default();
    for count in 1..=3 {
        let lent = owned(&[7; 5_000], Panicking(Arc::clone(&dropped)));
        client.write_bytes(lent).expect("connected");
        let mut server = &server;
        server.read_exact(&mut [0; 5_000]).expect("it is delivered");
        until("it was not let go of", || dropped.load(Ordering::SeqCst) == count);
    }
    exchange(&client, &server, 3, 1 << 20);
    until("they are counted", || left.counters().runtime.wakers_panicked == 3);
    let runtime = left.counters().runtime;
    assert_eq!(runtime.panics_inside + runtime.workers_restarted, 0);
}

/// A waker that does in place what its task would.
struct InPlace<F>(F, Mutex<usize>);

impl<F: Fn() + Send + Sync + 'static> InPlace<F> {
    fn waker(act: F) -> (Arc<Self>, Waker) {
        let it = Arc::new(Self(act, Mutex::new(0)));
        (Arc::clone(&it), Waker::from(it))
    }

    fn count(&self) -> usize {
        *self.1.lock().expect("no panic")
    }
}

impl<F: Fn() + Send + Sync + 'static> Wake for InPlace<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
        *self.1.lock().expect("no panic") += 1;
    }
}

#[test]
fn a_waker_may_change_the_stack_whose_change_woke_it() {
    for squeues in [1, 2] {
        let (left, right_stack) = pair_with(|builder| builder.squeues(squeues));
        let pairs: Vec<_> = (0..4).map(|_| connected(&left, &right_stack)).collect();
        let stack: Stack = left.clone();
        let (in_place, waker) = InPlace::waker(move || {
            while stack.poll_interface_event().is_some() {}
            stack.add_route("10.7.0.0/16".parse().expect("a network"), None, 0).expect_err("gone");
        });
        for (client, _) in &pairs {
            client.register_waker(Interest::Readable, &waker);
        }
        left.remove_interface(0).expect("it is there");
        until("a waker was forgotten", || in_place.count() == pairs.len());
        let error = (&pairs[0].0).read(&mut [0]).expect_err("its address is gone");
        assert_eq!(error.kind(), std::io::ErrorKind::AddrNotAvailable, "{error}");
    }
}
