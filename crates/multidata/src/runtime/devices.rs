//! The device queues of a squeue, which come and go, and what became of all of them together.

use super::port::Port;
use super::removed_queue::RemovedQueue;
use super::shared_queue::Place;
use super::squeue::{Core, Squeue};
use super::turn::{Panic, ask_keeping};
use super::waiter_slot::Replaced;
use device::{DeviceCounters, DeviceError, Queue, TransmitMode};
use stack::{InterfaceId, Shard, SocketError, SocketId};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use steering::{BatchSizes, SoftRings};
use time::Instant;

/// See the module documentation.
pub(crate) struct Devices {
    ports: Vec<Port>,
    /// Whether frames are taken from them: not while what is there from the start is being bound.
    hears: bool,
    /// All failed; the first one's sentence.
    failed: Option<DeviceError>,
    /// How many have, when they were looked at last; [`COUNTED_AFRESH`] where one came since.
    failures: usize,
    /// The stack was ended ([`Core::end`]), and has had no other device since.
    ended: Option<DeviceError>,
    /// What those have done that were replaced, or removed and had their place taken.
    past: DeviceCounters,
    past_batches: BatchSizes,
}

/// As many devices never fail: the next look finds that it is another number, whatever it is.
const COUNTED_AFRESH: usize = usize::MAX;

impl Devices {
    pub(super) fn new(ports: Vec<Port>) -> Self {
        Self {
            ports,
            hears: true,
            failed: None,
            failures: 0,
            ended: None,
            past: DeviceCounters::default(),
            past_batches: BatchSizes::default(),
        }
    }

    /// One for each interface, those included that were removed.
    pub(crate) fn ports(&self) -> &[Port] {
        &self.ports
    }

    pub(crate) fn ports_mut(&mut self) -> &mut [Port] {
        &mut self.ports
    }

    /// The one of interface `index`.
    pub(crate) fn port(&self, index: usize) -> Option<&Port> {
        self.ports.get(index)
    }

    pub(crate) fn port_mut(&mut self, index: usize) -> Option<&mut Port> {
        self.ports.get_mut(index)
    }

    fn index_of(&self, id: InterfaceId) -> Option<usize> {
        self.ports.iter().position(|port| port.id == id)
    }

    /// Has frames taken from them, or not.
    pub(crate) fn set_hears(&mut self, hears: bool) {
        self.hears = hears;
    }

    /// The one of interface `index`, where frames are taken from it.
    pub(super) fn heard(&mut self, index: usize) -> Option<&mut Port> {
        self.ports.get_mut(index).filter(|port| self.hears && port.failed().is_none())
    }

    /// When held frames are to be fetched for at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.ports.iter().filter_map(|port| port.intake.deadline()).min()
    }

    /// Whether all have failed.
    pub(crate) fn all_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Why a call is in vain: all have failed, or that of the interface it concerns.
    fn failure(&self, interface: impl FnOnce() -> Option<InterfaceId>) -> Option<&DeviceError> {
        if self.failed.is_some() || self.failures == 0 {
            return self.failed.as_ref();
        }
        self.ports[self.index_of(interface()?)?].failed()
    }

    /// So many have failed now. Says whether that is news.
    fn on_looked_at(&mut self, failures: usize) -> bool {
        if failures == self.failures {
            return false;
        }
        self.failures = failures;
        let first = self.ports.iter().find_map(|port| port.failed().cloned());
        self.failed = first.filter(|_| failures == self.ports.len());
        true
    }

    /// Nothing is sent or received from now on.
    fn end(&mut self) {
        let message = "the stack was ended by Stack::abort";
        let ended = DeviceError::new(ErrorKind::NetworkDown, message);
        for port in &mut self.ports {
            // It is no event of the interface.
            port.health.fail_untold(ended.clone());
        }
        self.ended = Some(ended);
    }

    /// Why the stack was ended, where it was.
    pub(crate) fn ended(&self) -> Option<&DeviceError> {
        self.ended.as_ref()
    }

    /// Puts another device in the place of that of interface `index`; see [`Port::replace`].
    fn replace(
        &mut self,
        index: usize,
        shard: &mut Shard,
        now: Instant,
        place: Place,
        wanted: Option<TransmitMode>,
        panic: &mut Option<Panic>,
    ) -> Box<dyn Queue> {
        let port = &mut self.ports[index];
        self.past.merge(&ask_keeping(panic, || port.queue.counters()));
        (self.failures, self.ended) = (COUNTED_AFRESH, None);
        port.replace(shard, now, place, wanted)
    }

    /// Puts one in the place of interface `index`, or behind all others; says what was in its place.
    fn put(&mut self, index: usize, port: Port) -> Option<Box<dyn Queue>> {
        // Somebody works again.
        self.failed = self.failed.take().filter(|_| port.failed().is_some());
        self.ended = None;
        let Some(place) = self.ports.get_mut(index) else {
            self.ports.push(port);
            return None;
        };
        let old = core::mem::replace(place, port);
        // No turn may have counted it before.
        self.failures = COUNTED_AFRESH;
        self.past.merge(&old.queue.counters());
        self.past_batches.merge(&old.intake.sizes());
        Some(old.queue)
    }

    /// What they have done, and how many batches of which size came up from them, with those in the past.
    pub(super) fn counted(&self) -> (DeviceCounters, BatchSizes) {
        let mut sum = (self.past, self.past_batches);
        for port in &self.ports {
            sum.0.merge(&port.queue.counters());
            sum.1.merge(&port.intake.sizes());
        }
        sum
    }
}

impl Core {
    /// Tells what the devices have met. Those who wait for a device that failed are woken: where others
    /// are left, it concerns the connections by this one.
    pub(super) fn look_at_devices(&mut self, now: Instant) {
        let mut failures = 0;
        for index in 0..self.devices.ports.len() {
            let port = &mut self.devices.ports[index];
            port.tell(&mut self.shard, now);
            if port.failed().is_some() {
                failures += 1;
                self.hand_up_held(now, index);
            }
        }
        if self.devices.on_looked_at(failures) {
            self.concern.on_failure();
            self.watch.on_failure();
            self.waiting.wake_all();
        }
    }

    /// Why a call on this socket, or on none, is in vain: all devices have failed, or the one that the
    /// connection leaves by.
    pub(crate) fn failure_of(&self, socket: Option<SocketId>) -> Option<&DeviceError> {
        self.devices.failure(|| self.shard.tcp_interface(socket?))
    }

    /// Nothing is sent or received from now on, and every call fails, those that wait included.
    pub(crate) fn end(&mut self) {
        self.devices.end();
        self.waiting.on_interface_event();
    }

    /// Whether an interface has an IPv6 address, or asks for one.
    pub(crate) fn has_ipv6(&self, port: &Port) -> bool {
        self.shard.addresses(port.id).iter().any(|status| status.cidr.address().is_ipv6())
    }
}

impl Squeue {
    /// Puts another device in the place of that of interface `id`, and runs it. Threads
    /// that sleep on the old one have left when [`Replaced::empty`] returns. Where the interface was removed
    /// meanwhile, the device is handed back.
    pub(crate) fn replace(
        &self,
        id: InterfaceId,
        place: Place,
        wanted: Option<TransmitMode>,
        panic: &mut Option<Panic>,
    ) -> Result<Replaced, Place> {
        let waiter = place.queue.waiter();
        let mut of_old = None;
        let replaced = self.once_of_all(panic, |core, now| {
            // Another interface may have its index by now.
            let index = core.devices.index_of(id);
            let Some(index) = index.filter(|_| core.shard.has_interface(id)) else {
                return Err(place);
            };
            core.hand_up_held(now, index);
            let Core { shard, devices, .. } = core;
            let old = devices.replace(index, shard, now, place, wanted, &mut of_old);
            // Under the lock: who decides to sleep finds the new one.
            Ok(self.waiters.replace(index, waiter, old))
        });
        *panic = panic.take().or(of_old);
        replaced
    }

    /// Removes interface `id`, and what it stood on, which is handed out as by [`Squeue::replace`].
    pub(crate) fn remove(
        &self,
        id: InterfaceId,
        panic: &mut Option<Panic>,
    ) -> Result<Replaced, SocketError> {
        let mut of_old = None;
        let removed = self.once_of_all(panic, |core, now| {
            let index = core.devices.index_of(id);
            let index = index.ok_or(SocketError::NoSuchInterface)?;
            core.hand_up_held(now, index);
            let port = &mut core.devices.ports[index];
            let status = core.shard.transmit_status(id).ok_or(SocketError::NoSuchInterface)?;
            core.shard.remove_interface(now, id)?;
            let counters = ask_keeping(&mut of_old, || port.queue.counters());
            let left = RemovedQueue::new(status.capabilities, counters);
            let waiter = left.waiter();
            let old = port.remove(left);
            Ok(self.waiters.remove(index, waiter, old))
        });
        *panic = panic.take().or(of_old);
        removed
    }

    /// Adds the interface that `add` makes in the shard, in the place of one that was removed or behind all others;
    /// says what was in its place.
    ///
    /// # Errors
    /// What `add` says.
    pub(crate) fn add(
        &self,
        add: impl FnOnce(&mut Shard, Instant) -> io::Result<Port>,
        panic: &mut Option<Panic>,
    ) -> io::Result<Option<Replaced>> {
        self.once_of_all(panic, |core, now| {
            let port = add(&mut core.shard, now)?;
            let index = port.id.index().unwrap_or_default();
            let waiter = port.queue.waiter();
            if let (Some(desk), Some(old)) = (&mut core.desk, core.devices.ports.get(index)) {
                // They are of the one that was removed, and not of this.
                let shard = &mut core.shard;
                desk.take_frames(index, &mut core.receive, |frames| {
                    shard.on_receive(now, old.id, frames);
                });
            }
            let old = core.devices.put(index, port);
            let replaced = self.waiters.put(index, waiter, old);
            core.shard.reroute_all(now);
            Ok(replaced)
        })
    }

    /// Soft rings for one more interface, where something lies between the devices and the shards: also where this is
    /// the only squeue and has soft rings of its own.
    pub(crate) fn more_soft_rings(&self) -> Option<Arc<SoftRings>> {
        self.look(|core| core.desk.as_ref().map(|desk| desk.exchange().more_soft_rings()))
    }

    /// Interface `index` is about to be added everywhere, with these soft rings. It may have been before, in vain.
    pub(crate) fn learn_of_interface(&self, index: usize, rings: &Arc<SoftRings>) {
        self.look(|core| {
            if let Some(desk) = core.desk.as_mut().filter(|it| it.interfaces() <= index) {
                desk.add_interface(rings);
            }
        });
    }

    /// The number that the next interface will have, and how many there are, with those that were removed.
    pub(crate) fn next_index(&self) -> (usize, usize) {
        self.look(|core| {
            let is_free = |port: &Port| !core.shard.has_interface(port.id);
            let count = core.devices.ports.len();
            (core.devices.ports.iter().position(is_free).unwrap_or(count), count)
        })
    }
}
