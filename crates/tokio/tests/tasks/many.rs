//! What an event costs among a hundred thousand connections: counted, not timed.

use crate::pair::{self, pair, pair_with, right, run};
use multidata::{ListenOptions, Stack, StackConfig};
use multidata_tokio::{TcpListener, TcpStream};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const IDLE: usize = 100_000;

/// Listeners that they are spread over: a client has 16,384 ports of its own to connect to each from.
const LISTENERS: usize = 8;

/// The first listener's port.
const PORT: u16 = 8_000;

/// Counts how often a future is polled.
async fn counted<T>(polls: Arc<AtomicUsize>, future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |context| {
        polls.fetch_add(1, Ordering::SeqCst);
        future.as_mut().poll(context)
    })
    .await
}

/// What the idle connections were polled, and how many of them have ended.
#[derive(Clone, Default)]
struct Idle {
    polls: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl Idle {
    /// Accepts a part of them, and has a task for each wait for a byte.
    async fn accept(self, listener: TcpListener) {
        for _ in 0..IDLE / LISTENERS {
            let (mut stream, _) = listener.accept().await.expect("it came");
            let Self { polls, ended } = self.clone();
            tokio::spawn(async move {
                let end = counted(polls, stream.read_u8()).await;
                ended.fetch_add(usize::from(end.is_err()), Ordering::SeqCst);
            });
        }
    }

    /// Opens all of them.
    async fn open(&self, left: &Stack, right_stack: &Stack) -> Vec<TcpStream> {
        let options = ListenOptions { backlog: 4_096, ..ListenOptions::default() };
        let mut connecting = Vec::new();
        for port in (PORT..).take(LISTENERS) {
            let listener = TcpListener::bind_with(right_stack, right(port), &options);
            tokio::spawn(self.clone().accept(listener.expect("a port")));
            let left = left.clone();
            connecting.push(tokio::spawn(async move {
                let mut clients = Vec::with_capacity(IDLE / LISTENERS);
                for _ in 0..IDLE / LISTENERS {
                    clients.push(TcpStream::connect(&left, right(port)).await.expect("it listens"));
                }
                clients
            }));
        }
        let mut clients = Vec::with_capacity(IDLE);
        for connected in connecting {
            clients.extend(connected.await.expect("it went well"));
        }
        clients
    }
}

#[test]
fn a_hundred_thousand_idle_connections_are_not_woken_for_one() {
    run(async {
        let config = StackConfig { sockets_max: 2 * IDLE, ..StackConfig::default() };
        let (left, right_stack) = pair_with(&config, 1);
        let idle = Idle::default();
        let clients = idle.open(&left, &right_stack).await;
        let Idle { polls: idle_polls, ended: served } = idle;
        // Every one of them waits now, on both ends of the active one, too.
        wait(|| idle_polls.load(Ordering::SeqCst) >= IDLE).await;
        let (mut active, mut answering) = pair::connected(&left, &right_stack).await;
        let polls_before = idle_polls.load(Ordering::SeqCst);
        let before = right_stack.counters().runtime;
        let rounds = 1_000_u32;
        let active_polls = Arc::new(AtomicUsize::new(0));
        let answering = tokio::spawn(counted(Arc::clone(&active_polls), async move {
            for _ in 0..rounds {
                let number = answering.read_u32().await.expect("the client writes");
                answering.write_u32(number).await.expect("the client reads");
            }
        }));
        for round in 0..rounds {
            active.write_u32(round).await.expect("the server reads");
            assert_eq!(active.read_u32().await.expect("the server writes"), round);
        }
        answering.await.expect("it went well");
        assert_eq!(idle_polls.load(Ordering::SeqCst), polls_before, "idle tasks were woken");
        // At most one wake-up of the task for each number, and the start of it.
        let polls = active_polls.load(Ordering::SeqCst);
        assert!(polls <= 2 * rounds as usize, "{polls} polls for {rounds} numbers");
        // Of threads: the stack's own for a deadline, and of tasks: the one; however many there are.
        let after = right_stack.counters().runtime;
        let wakeups = after.wakeups_sent - before.wakeups_sent;
        assert!(wakeups <= 4 * u64::from(rounds), "{wakeups} wake-ups for {rounds} numbers");
        let visited = after.sleepers_visited - before.sleepers_visited;
        assert!(visited <= 8 * u64::from(rounds), "{visited} looked at for {rounds} numbers");
        drop(clients);
        wait(|| served.load(Ordering::SeqCst) == IDLE).await;
        assert!(idle_polls.load(Ordering::SeqCst) <= polls_before + 2 * IDLE);
    });
}

#[test]
fn a_waiting_task_costs_nothing() {
    run(async {
        let (left, right_stack) = pair();
        let (_client, mut server) = pair::connected(&left, &right_stack).await;
        let polls = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&polls);
        let waiting = tokio::spawn(async move { counted(counting, server.read_u8()).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        let before = right_stack.counters().runtime;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let after = right_stack.counters().runtime;
        let turns = after.squeue_runs - before.squeue_runs;
        assert!(turns <= 5, "{turns} turns of the stack for nothing");
        assert_eq!(polls.load(Ordering::SeqCst), 1);
        waiting.abort();
    });
}

async fn wait(mut is_there: impl FnMut() -> bool) {
    while !is_there() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
