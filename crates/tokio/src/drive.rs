//! A stack in tokio's event loop.

use multidata::{Driver, DriverFile, Stack, Turn};
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the current runtime run `stack`: a packet that comes wakes the task that waits for it without another thread in
/// between, for which [`multidata::Driver`] says what that asks of the runtime. The stack's own threads stand aside, and
/// come back when the runtime is gone.
///
/// # Errors
/// As [`Stack::drivers`].
///
/// # Panics
/// Outside a runtime, or in one that was built without I/O (`enable_io`).
pub fn drive(stack: &Stack) -> io::Result<()> {
    // Here, where somebody hears of the error, and before the first is run: where one cannot be, none is.
    let watched = stack.drivers()?.into_iter().map(|driver| Ok((watch(driver.file())?, driver)));
    for (file, driver) in watched.collect::<io::Result<Vec<_>>>()? {
        tokio::spawn(run(driver, file));
    }
    Ok(())
}

#[allow(
    deprecated,
    reason = "what would take its place is unsafe, for files that change or close under it; this one does neither"
)]
fn watch(file: DriverFile) -> io::Result<AsyncFd<DriverFile>> {
    AsyncFd::with_interest(file, Interest::READABLE)
}

async fn run(mut driver: Driver, mut file: AsyncFd<DriverFile>) {
    loop {
        match driver.turn() {
            Turn::Wait => {}
            Turn::Again => {
                tokio::task::yield_now().await;
                continue;
            }
            Turn::Ended => return,
        }
        if *file.get_ref() != driver.file() {
            // What cannot be watched is left to the stack's own threads.
            let Ok(other) = watch(driver.file()) else { return };
            file = other;
        }
        match file.readable().await {
            Ok(mut guard) => guard.clear_ready(),
            Err(_) => return,
        }
    }
}
