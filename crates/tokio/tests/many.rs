//! What an event costs among ten thousand connections: counted, not timed.

mod pair;

use multidata::ListenOptions;
use multidata_tokio::{TcpListener, TcpStream};
use pair::{pair, right, run};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const IDLE: usize = 10_000;

/// Counts how often a future is polled.
async fn counted<T>(polls: Arc<AtomicUsize>, future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |context| {
        polls.fetch_add(1, Ordering::SeqCst);
        future.as_mut().poll(context)
    })
    .await
}

#[test]
fn ten_thousand_idle_connections_are_not_woken_for_one() {
    run(async {
        let (left, right_stack) = pair();
        let options = ListenOptions { backlog: 4_096, ..ListenOptions::default() };
        let listener = TcpListener::bind_with(&right_stack, right(7), &options).expect("a port");
        let idle_polls = Arc::new(AtomicUsize::new(0));
        let served = Arc::new(AtomicUsize::new(0));
        let (polls, ends) = (Arc::clone(&idle_polls), Arc::clone(&served));
        let accepting = tokio::spawn(async move {
            for _ in 0..IDLE {
                let (mut stream, _) = listener.accept().await.expect("it came");
                let (polls, ends) = (Arc::clone(&polls), Arc::clone(&ends));
                tokio::spawn(async move {
                    let end = counted(polls, stream.read_u8()).await;
                    ends.fetch_add(usize::from(end.is_err()), Ordering::SeqCst);
                });
            }
            listener
        });
        let mut clients = Vec::with_capacity(IDLE);
        for _ in 0..IDLE {
            clients.push(TcpStream::connect(&left, right(7)).await.expect("it listens"));
        }
        let listener = accepting.await.expect("it went well");
        // Every one of them waits now, on both ends of the active one, too.
        wait(|| idle_polls.load(Ordering::SeqCst) >= IDLE).await;
        let (active, accepted) =
            tokio::join!(TcpStream::connect(&left, right(7)), listener.accept());
        let (mut active, mut answering) =
            (active.expect("it listens"), accepted.expect("it came").0);
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
        let wakeups = right_stack.counters().runtime.wakeups_sent - before.wakeups_sent;
        assert!(wakeups <= 4 * u64::from(rounds), "{wakeups} wake-ups for {rounds} numbers");
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
