//! What happens to this stack's device and address while the program is busy with a connection, said once on
//! standard error; an address that another host had
//! before ends the program.

use crate::ending::{self, Why};
use crate::output::complain;
use bench::{Attempt, Failure};
use multidata::{AddressEvent, InterfaceEvent, Stack};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the stack is asked.
const PERIOD: Duration = Duration::from_millis(100);

/// How long after the beginning another host's claim to our address means that ours was wrong. Later it is the other
/// one that came to an address in use: ours is kept and defended.
const BEGINNING: Duration = Duration::from_secs(3);

/// A thread that asks the stack what happened. Dropped, it ends and lets go of the stack.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to watch the stack's only interface, which users know by `name`; `own` is its address where the
    /// command line fixed it.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn begin(stack: &Stack, name: &str, own: Option<IpAddr>) -> Result<Self, Failure> {
        let (stop, stopped) = channel();
        let (stack, name) = (stack.clone(), name.to_owned());
        let thread = std::thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || watch(stack, &name, own, &stopped))
            .attempt(|| "cannot watch the device")?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(stack: Stack, name: &str, own: Option<IpAddr>, stopped: &Receiver<()>) {
    let began = Instant::now();
    loop {
        while let Some(event) = stack.poll_interface_event() {
            if let Some(sentence) = sentence(name, &event) {
                complain(&sentence);
            }
        }
        while let Some(event) = stack.poll_address_event() {
            let (address, station) = match event {
                AddressEvent::Duplicate(_, address, station) => (address, station),
                AddressEvent::Removed(_, cidr) => {
                    // A lease that ran out, or a prefix that its router took back.
                    complain(&format!("this stack has the address {} no more", cidr.address()));
                    continue;
                }
                AddressEvent::LeaseTooShort(_, server, seconds) => {
                    complain(&format!(
                        "the DHCP server {server} on {name} leases for {seconds} s only, which is not taken"
                    ));
                    continue;
                }
                _ => continue,
            };
            let sentence =
                format!("the address {address} is in use: the host at {station} on {name} has it");
            if own == Some(address) && began.elapsed() < BEGINNING {
                let failure = Failure::new(format!("{sentence}; give this stack another one"));
                // Not here, as the main thread waits for this one on its way out.
                let _ =
                    std::thread::Builder::new().spawn(move || ending::begin(Why::Useless(failure)));
            } else {
                complain(&sentence);
            }
        }
        if stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// What a user should hear of an event, if anything.
fn sentence(name: &str, event: &InterfaceEvent) -> Option<String> {
    match event {
        InterfaceEvent::LinkLost(_, why) => {
            Some(format!("{name}: nothing can be sent or received for now: {why}"))
        }
        InterfaceEvent::LinkRestored(_) => Some(format!("{name} can be used again")),
        InterfaceEvent::DeviceFailed(_, _, why) => Some(format!("{name} failed: {why}")),
        InterfaceEvent::MtuShrunk(_, mtu_bytes) => {
            Some(format!("{name} takes packets of {mtu_bytes} bytes at most now"))
        }
        InterfaceEvent::PacketRefused(_) => Some(format!(
            "{name} refused a packet for good, which was dropped; others are only counted"
        )),
        _ => None,
    }
}
