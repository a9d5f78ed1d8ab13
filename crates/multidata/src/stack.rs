//! The stack as its user sees it: what it tells of itself, what can be changed, how it ends.

mod adding;
mod builder;
mod events;
mod inspecting;
mod replacing;
mod watching;

pub use builder::{InterfaceConfig, StackBuilder, StackConfig};
pub use inspecting::{Gauges, Sockets};
pub use watching::StackEvent;

use crate::copy_in::{Copied, CopyIn, CopyObserver, Layout};
use crate::counters::Counters;
use crate::error::{device_error, socket_error};
use crate::runtime::devices::Devices;
use crate::runtime::event_watch::EventWatch;
use crate::runtime::port::Port;
use crate::runtime::squeue::{Core, Squeue};
use crate::runtime::squeues::Squeues;
use crate::runtime::turn::{After, Call};
use crate::runtime::waiting::Interest;
use crate::runtime::worker::Threads;
use crate::runtime::{locked, shared_filter};
use batch::{BlockMut, BlockPool, Exhausted};
use builder::mtu_min_bytes;
use core::net::IpAddr;
use core::time::Duration;
use device::{Capabilities, DeviceCounters, DeviceError, TransmitMode};
use events::InterfaceEvents;
use ip::Cidr;
use stack::InterfaceId;
use stack::{
    AddressEvent, AddressOrigin, AddressState, AddressStatus, InterfaceEvent, MultidataProtocols,
    PacketFilter, Shard, SocketError, TransmitStatus,
};
use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use steering::{BatchSizes, Coalescing};
use time::Instant;
use wire::ndp::RouterAdvertisement;

/// How long the connections of a stack whose last handle was dropped may take to deliver what they
/// hold. The thread that drops the last handle waits for it; [`Stack::shutdown`] takes another time.
pub const LINGER_ON_DROP: Duration = Duration::from_secs(1);

fn usable(all: &[AddressStatus]) -> Vec<Cidr> {
    let usable = all.iter().filter(|status| status.state != AddressState::Tentative);
    usable.map(|status| status.cidr).collect()
}

/// The interfaces as one squeue has them.
fn status_of(squeue: &Squeue) -> Vec<InterfaceStatus> {
    let status = |shard: &Shard, port: &Port| {
        let (coalescing, batches) = (port.intake.coalescing(), port.intake.sizes());
        let queues = if port.receives { vec![QueueStatus { coalescing, batches }] } else { vec![] };
        let (ipv4_mtu_bytes, ipv6_mtu_bytes) = shard.mtus(port.id)?;
        Some(InterfaceStatus {
            id: port.id,
            ipv4_mtu_bytes,
            ipv6_mtu_bytes,
            accepted: shard.accepted(port.id).to_vec(),
            transmit: shard.transmit_status(port.id)?,
            addresses: usable(&shard.addresses(port.id)),
            address_status: shard.addresses(port.id),
            name_servers: shard.name_servers(port.id),
            capabilities: port.queue.capabilities(),
            mode: port.mode,
            counters: port.queue.counters(),
            coalescing,
            batches,
            queues,
            failed: port.failed().cloned(),
            trouble: port.queue.trouble(),
        })
    };
    squeue.look(|core| {
        core.devices.ports().iter().filter_map(|port| status(&core.shard, port)).collect()
    })
}

/// What the handles of a stack and its sockets share; the last of them ends it.
struct Runtime {
    squeues: Squeues,
    threads: Mutex<Option<Threads>>,
    /// How many queues every device must have, where the layout says so.
    rings: Option<usize>,
    pool: BlockPool,
    copy_in: CopyIn,
    copy_observer: Option<Arc<dyn CopyObserver>>,
    events: InterfaceEvents,
    event_watch: Arc<EventWatch>,
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.squeues.stop(LINGER_ON_DROP);
        let threads = locked(&self.threads).take();
        if let Some(threads) = threads {
            threads.join();
        }
    }
}

/// An interface as it stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InterfaceStatus {
    /// What events and other listings call it.
    pub id: InterfaceId,
    /// The longest packet of IPv4 that is sent by it, in bytes: what its device takes, what [`Stack::set_mtu`] leaves
    /// of that, and what a DHCP server said.
    pub ipv4_mtu_bytes: usize,
    /// The same of IPv6, and of what routers say.
    pub ipv6_mtu_bytes: usize,
    /// The prefixes whose addresses it accepts beside its own ([`Stack::set_accepted`]).
    pub accepted: Vec<Cidr>,
    /// Its addresses with the length of their networks, those that can be used.
    pub addresses: Vec<Cidr>,
    /// All its addresses, where they come from, and what they can be used for.
    pub address_status: Vec<AddressStatus>,
    /// DNS servers that DHCP and routers told of.
    pub name_servers: Vec<IpAddr>,
    /// What its device can do now.
    pub capabilities: Capabilities,
    /// How batches reach the device now.
    pub mode: TransmitMode,
    /// What stack and device agreed on for the way out. Reads as a line.
    pub transmit: TransmitStatus,
    /// What its device queue did so far.
    pub counters: DeviceCounters,
    /// How the frames that it receives are put together, by the first of its device's queues.
    pub coalescing: Coalescing,
    /// How many batches of which size came up from its device.
    pub batches: BatchSizes,
    /// The same of each queue of its device.
    pub queues: Vec<QueueStatus>,
    /// Why its device failed, where it did.
    pub failed: Option<DeviceError>,
    /// What is wrong with its device at present and may pass, as an interface that is down:
    /// connections stand still until then.
    pub trouble: Option<DeviceError>,
}

/// The way in of one queue of an interface's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStatus {
    /// How its frames are put together.
    pub coalescing: Coalescing,
    /// How many batches of which size came up from it.
    pub batches: BatchSizes,
}

/// How long [`Stack::abort`] waits for devices to take the resets.
const ABORT_MAX: Duration = Duration::from_millis(100);

/// A TCP/IP stack over one or several device queues. Clones are handles of the same stack; sockets
/// hold one each.
///
/// When the last handle and the last socket are gone, connections that still hold data or an
/// unacknowledged FIN, and datagrams whose neighbour has not answered yet, get [`LINGER_ON_DROP`] to
/// deliver it while the dropping thread waits; then the stack's threads end and its devices are closed.
#[derive(Clone)]
pub struct Stack {
    runtime: Arc<Runtime>,
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Stack").finish_non_exhaustive()
    }
}

impl Stack {
    /// Starts to build a stack.
    #[must_use]
    pub fn builder() -> StackBuilder {
        StackBuilder::default()
    }

    /// Its interfaces, in the order in which they were added.
    #[must_use]
    pub fn interfaces(&self) -> Vec<InterfaceStatus> {
        let mut squeues = self.runtime.squeues.iter().map(|squeue| status_of(squeue));
        let mut all = squeues.next().unwrap_or_default();
        for other in squeues {
            for (interface, other) in all.iter_mut().zip(other) {
                interface.counters.merge(&other.counters);
                interface.batches.merge(&other.batches);
                interface.queues.extend(other.queues);
                interface.failed = interface.failed.take().or(other.failed);
                interface.trouble = interface.trouble.take().or(other.trouble);
            }
        }
        all
    }

    /// Changes how the frames that interface `index` receives are put together, by all queues of its
    /// device.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn set_coalescing(&self, index: usize, coalescing: Coalescing) -> io::Result<()> {
        let outcome = self.runtime.squeues.everywhere(|core, _| {
            let port = core.devices.port_mut(index).ok_or(SocketError::NoSuchInterface)?;
            port.intake.set_coalescing(coalescing);
            Ok(())
        });
        outcome.map_err(socket_error)
    }

    /// As [`Stack::set_coalescing`], for queue `queue` of the interface's device alone, counted from zero.
    ///
    /// # Errors
    /// There is no such interface, or its device has no such queue.
    pub fn set_queue_coalescing(
        &self,
        index: usize,
        queue: usize,
        coalescing: Coalescing,
    ) -> io::Result<()> {
        // A queue is received from by the squeue of its number.
        let squeue = self.runtime.squeues.iter().nth(queue);
        let squeue = squeue.ok_or(SocketError::NoSuchInterface).map_err(socket_error)?;
        let outcome = squeue.once(|core, _| {
            let port = core.devices.port_mut(index).filter(|port| port.receives);
            let port = port.ok_or(SocketError::NoSuchInterface)?;
            port.intake.set_coalescing(coalescing);
            Ok(())
        });
        outcome.map_err(socket_error)
    }

    /// Adds an address to interface `index`, with a route to its network.
    ///
    /// # Errors
    /// There is no such interface, no host can have the address, or the interface has it already, or has 64.
    pub fn add_address(&self, index: usize, address: Cidr) -> io::Result<()> {
        self.with_interface(index, |shard, now, id| shard.add_address(now, id, address))
    }

    /// Takes an address from interface `index`. Connections from it fail with an error that says
    /// so; a leased address is given back.
    ///
    /// # Errors
    /// There is no such interface, or it does not have the address.
    pub fn remove_address(&self, index: usize, address: IpAddr) -> io::Result<()> {
        self.with_interface(index, |shard, now, id| shard.remove_address(now, id, address))
    }

    /// Speaks as the router of the link of interface `index` (RFC 4861, 6.2), for who is a network's way out by
    /// accepting all addresses ([`InterfaceConfig::accept_any`]); nothing is forwarded for it. Hosts are told
    /// `advertisement`, in place of what was said before, when they ask and every few minutes, up to ten: lifetimes
    /// in it are to be longer, half an hour, say. One of zero for the router gives hosts addresses and no way out. It
    /// comes from the link-local address of the interface, which has one where it has any IPv6 address, and says its
    /// hardware address, whatever `source_link` is. Where nobody has one, as behind a TUN, nothing is said.
    ///
    /// A stack that ends does not take it back: say a router's lifetime of zero before.
    ///
    /// # Errors
    /// There is no such interface, or it is a member of 64 IPv6 groups; `InvalidInput` where the message does not fit
    /// 1280 bytes.
    pub fn advertise_router(
        &self,
        index: usize,
        advertisement: &RouterAdvertisement,
    ) -> io::Result<()> {
        self.with_interface(index, |shard, now, id| {
            shard.advertise_router(now, id, advertisement.clone())
        })
    }

    fn with_interface(
        &self,
        index: usize,
        call: impl Fn(&mut Shard, Instant, InterfaceId) -> Result<(), SocketError>,
    ) -> io::Result<()> {
        let outcome = self.runtime.squeues.everywhere(|core, now| {
            let id = core.devices.port(index).map(|port| port.id);
            call(&mut core.shard, now, id.ok_or(SocketError::NoSuchInterface)?)
        });
        outcome.map_err(socket_error)
    }

    /// Waits until interface `index` has an address that is good beyond the link, of IPv4 or of
    /// IPv6 as `is_wanted` says, and returns it.
    ///
    /// # Errors
    /// `TimedOut` where none came in time; `NetworkDown` where the device failed; there is no such interface, or it
    /// was removed meanwhile.
    pub fn wait_for_address(
        &self,
        index: usize,
        is_wanted: impl Fn(IpAddr) -> bool,
        timeout: Duration,
    ) -> io::Result<Cidr> {
        let call = Call {
            socket: None,
            interest: Interest::Readable,
            after: After::Leave,
            takes_bytes: 0,
            blocks: true,
            timeout: Some(timeout),
            expired: io::ErrorKind::TimedOut,
        };
        // Another interface may take the index while this waits.
        let id = self.interface_id(index);
        self.squeue(0).operate(&call, |core, now| {
            core.run(now);
            let is_there = |id: &InterfaceId| core.shard.has_interface(*id);
            let id = id.filter(is_there).ok_or(SocketError::NoSuchInterface)?;
            let all = core.shard.addresses(id);
            let mut good = all.iter().filter(|status| {
                status.state != AddressState::Tentative
                    && status.origin != AddressOrigin::LinkLocal
                    && is_wanted(status.cidr.address())
            });
            good.next().map(|status| status.cidr).ok_or(SocketError::WouldBlock)
        })
    }

    /// The next thing that happened to an address of the stack, if any: assigned, removed, found to
    /// be somebody else's. At most 64 wait to be asked for; then the oldest is forgotten.
    #[must_use]
    pub fn poll_address_event(&self) -> Option<AddressEvent> {
        self.squeue(0).look(|core| core.shard.poll_address_event())
    }

    /// Selects how batches reach the device of interface `index` from now on; `None` as for
    /// [`InterfaceConfig::mode`].
    ///
    /// # Errors
    /// There is no such interface, or its device cannot do it; the old mode stays.
    pub fn set_transmit_mode(
        &self,
        index: usize,
        mode: impl Into<Option<TransmitMode>>,
    ) -> io::Result<()> {
        let wanted = mode.into();
        let mode_of =
            |capabilities: &Capabilities| wanted.unwrap_or_else(|| capabilities.mode_for(None));
        let check = |core: &mut Core| {
            let capabilities = port_at(&mut core.devices, index)?.queue.capabilities();
            let mode = mode_of(&capabilities);
            match capabilities.supports(mode) {
                true => Ok(()),
                false => {
                    Err(invalid(format!("the interface's device has no form for mode {mode}")))
                }
            }
        };
        self.runtime.squeues.everywhere_if(check, |core, _| {
            let Core { shard, devices, .. } = core;
            let port = port_at(devices, index)?;
            let mode = mode_of(&port.queue.capabilities());
            port.queue.set_mode(mode).map_err(io::Error::from)?;
            port.mode = mode;
            shard.set_mode(port.id, wanted);
            port.follow_mode(shard);
            Ok(())
        })
    }

    /// Lets packets leave in batches, or one by one: by interface `index`, or where that is `None`
    /// by any (seed 000's `ip_multidata_outbound`; both must be on). On from the start; what is
    /// chosen holds from the next batch on, and [`InterfaceStatus::transmit`] shows it.
    ///
    /// # Errors
    /// There is no such interface, or its device failed at it.
    pub fn set_multidata_outbound(&self, index: Option<usize>, on: bool) -> io::Result<()> {
        self.runtime.squeues.everywhere(|core, _| {
            let Core { shard, devices, .. } = core;
            let id = match index.map(|index| devices.port(index)) {
                Some(None) => return Err(socket_error(SocketError::NoSuchInterface)),
                Some(Some(port)) => Some(port.id),
                None => None,
            };
            shard.set_multidata_outbound(id, on);
            devices.ports_mut().iter_mut().for_each(|port| port.follow_mode(shard));
            Ok(())
        })
    }

    /// Chooses which protocols leave interface `index` in batches with others.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn set_multidata_protocols(
        &self,
        index: usize,
        protocols: MultidataProtocols,
    ) -> io::Result<()> {
        self.with_interface(index, |shard, _, id| {
            shard.set_multidata_protocols(id, protocols);
            Ok(())
        })
    }

    /// Puts a packet filter on the ways out and in of all interfaces, loopback included, in place of
    /// any other; `None` takes it away. It is called with the stack's lock held and must not wait. Where
    /// it panics, what it was asked about is dropped (`drop_filter_panicked`), whichever thread it was.
    pub fn set_filter(&self, filter: Option<Box<dyn PacketFilter>>) {
        let filters = shared_filter::for_each(filter, self.runtime.squeues.len());
        // Of two who set one at once, one is the last in all squeues.
        let replaced: Vec<_> = self.runtime.squeues.alone(|all| {
            let pairs = all.iter().zip(filters);
            pairs
                .map(|(squeue, filter)| squeue.look(|core| core.shard.set_filter(filter)))
                .collect()
        });
        // Application code again, which no lock is held for.
        drop(replaced);
    }

    /// Adds a route to the network `destination` by interface `index`, by way of `gateway` or
    /// directly. Connections that it concerns follow at once.
    ///
    /// # Errors
    /// There is no such interface, the families differ, or the gateway is an own address of the stack.
    pub fn add_route(
        &self,
        destination: Cidr,
        gateway: Option<IpAddr>,
        index: usize,
    ) -> io::Result<()> {
        self.with_interface(index, |shard, now, id| shard.add_route(now, destination, gateway, id))
    }

    /// Removes the route to the network `destination` by interface `index`. Connections that it
    /// concerns follow at once; those for which no route is left stay where they were.
    ///
    /// # Errors
    /// There is no such route.
    pub fn remove_route(&self, destination: Cidr, index: usize) -> io::Result<()> {
        self.with_interface(index, |shard, now, id| shard.remove_route(now, destination, id))
    }

    /// Has packets to the network `destination` leave by the route over interface `index` beside all
    /// others to it that are marked so (RTF_MULTIRT of Solaris): each packet of a connection and each
    /// datagram goes out once by every one of them, alone. What one way loses the other brings; TCP drops
    /// what comes twice, who receives datagrams sees both. The interfaces must share the source address.
    ///
    /// # Errors
    /// There is no such route.
    pub fn set_route_duplicating(
        &self,
        destination: Cidr,
        index: usize,
        on: bool,
    ) -> io::Result<()> {
        self.with_interface(index, |shard, now, id| {
            shard.set_route_duplicating(now, destination, id, on)
        })
    }

    /// Has interface `index` accept all addresses of these prefixes beside its own, in place of those that it
    /// accepted before ([`InterfaceConfig::accept_any`]), at most 64: for a tunnel whose peers, or a network whose guests, come
    /// and go. Connections to and from addresses that it accepts no more go on; new ones to them are not
    /// answered.
    ///
    /// # Errors
    /// There is no such interface; `InvalidInput` for more than 64 prefixes.
    pub fn set_accepted(&self, index: usize, prefixes: &[Cidr]) -> io::Result<()> {
        self.with_interface(index, |shard, _, id| shard.set_accepted(id, prefixes))
    }

    /// Removes interface `index`: its addresses, its routes, and its device, which is closed on return. The indices of
    /// the others stay, and its own is that of the next one that is added ([`Stack::add_interface`]). Connections by it move to another interface where a route leads there and
    /// their own address is that one's, too; all others fail with an error that says so.
    ///
    /// # Errors
    /// There is no such interface, or it was removed before.
    pub fn remove_interface(&self, index: usize) -> io::Result<()> {
        let id = self.interface_id(index);
        self.remove_exactly(id.ok_or(SocketError::NoSuchInterface).map_err(socket_error)?)
    }

    /// Which interface has the index now, or had it last.
    fn interface_id(&self, index: usize) -> Option<InterfaceId> {
        self.squeue(0).look(|core| core.devices.port(index).map(|port| port.id))
    }

    /// Removes this interface, and never another one that has its index by now.
    fn remove_exactly(&self, id: InterfaceId) -> io::Result<()> {
        let mut removed = Vec::new();
        let mut panic = None;
        self.runtime.squeues.each(|squeue| removed.push(squeue.remove(id, &mut panic)));
        // Application code is let go of when no lock is held and all squeues go on without it. The squeues are equal
        // in their interfaces, so either all refuse or none does.
        let old: Result<Vec<_>, _> =
            removed.into_iter().map(|it| it.map(|it| it.empty(&mut panic))).collect();
        let outcome = old.map(drop).map_err(socket_error);
        panic.map_or(outcome, |panic| resume_unwind(panic))
    }

    /// Says that interface `index` may be on another link, or was of no use for a while: a network was joined, a cable
    /// moved, the machine woke up. What was found out there is found out anew, as when a device comes up again
    /// ([`InterfaceEvent::LinkRestored`], which does the same): neighbours are asked again, addresses are checked and
    /// told of as [`InterfaceConfig::claims`] says, used meanwhile, and given up where another station has them;
    /// routers are asked for, a DHCP server whether the leased address is right. Connections stay.
    ///
    /// The stack's clock stands still while the machine sleeps (on Linux it is CLOCK_MONOTONIC), as that of the kernel's
    /// connections does: timeouts then do not end connections that nobody could serve. But leases of
    /// addresses and lifetimes of routers count on as if no time had passed, so call this on waking up: a server
    /// takes an address back that it has given away. Without a server's answer a lease that ran out meanwhile is used
    /// for what the clock says is left of it; who knows that it is over removes the address.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn link_changed(&self, index: usize) -> io::Result<()> {
        self.with_interface(index, |shard, now, id| {
            if !shard.has_interface(id) {
                return Err(SocketError::NoSuchInterface);
            }
            shard.on_link_changed(now, id);
            Ok(())
        })
    }

    /// The next thing that happened to an interface, if any: negotiated anew, its device failed, is of
    /// no use for now or takes less, removed. Each reads as a sentence. What several squeues met is told
    /// once where they tell it by then; who asks while some have yet to meet it hears it again from those.
    /// At most 64 of each squeue wait to be asked for; then the oldest is forgotten.
    #[must_use]
    pub fn poll_interface_event(&self) -> Option<InterfaceEvent> {
        self.runtime.events.poll(&self.runtime.squeues)
    }

    /// Sends no packets longer than this by interface `index` from now on; its device may take
    /// longer ones. Connections cut what is outstanding and too long anew, at once.
    ///
    /// # Errors
    /// `InvalidInput` where there is no such interface, its device does not take as much, or it is
    /// less than the 576 bytes that hosts rely on (RFC 791), or, with an IPv6 address, the 1,280 of RFC 8200, 5.
    pub fn set_mtu(&self, index: usize, mtu_bytes: usize) -> io::Result<()> {
        // The first squeue claims addresses, so it has them as soon as any has.
        let has_ipv6 =
            self.squeue(0).look(|core| core.devices.port(index).map(|it| core.has_ipv6(it)));
        let least = mtu_min_bytes(has_ipv6.unwrap_or(false));
        let check = |core: &mut Core| {
            let most = port_at(&mut core.devices, index)?.queue.capabilities().mtu_bytes;
            match (least..=most).contains(&mtu_bytes) {
                true => Ok(()),
                false => {
                    Err(invalid(format!("the interface takes an MTU of {least} to {most} bytes")))
                }
            }
        };
        self.runtime.squeues.everywhere_if(check, |core, now| {
            let id = port_at(&mut core.devices, index)?.id;
            core.shard.set_mtu(now, id, mtu_bytes);
            Ok(())
        })
    }

    /// Limits packets by the route to the network `destination`, which is one of the interfaces' or
    /// [`Cidr::ANY_IPV4`] or [`Cidr::ANY_IPV6`] for what gateways are for; `None` is again what the
    /// interface takes. Connections follow with the next batch they send.
    ///
    /// # Errors
    /// `NetworkUnreachable` where there is no such route; `InvalidInput` for less than the 576 bytes
    /// that hosts rely on (RFC 791), or the 1,280 of IPv6 (RFC 8200, 5).
    pub fn set_route_mtu(&self, destination: Cidr, mtu_bytes: Option<usize>) -> io::Result<()> {
        let least = if destination.address().is_ipv4() { 576 } else { 1_280 };
        if mtu_bytes.is_some_and(|mtu_bytes| mtu_bytes < least) {
            return Err(invalid(format!("hosts rely on packets of {least} bytes")));
        }
        let set = |core: &mut Core, _| core.shard.set_route_mtu(destination, mtu_bytes);
        let outcome = self.runtime.squeues.everywhere(set);
        outcome.map_err(socket_error)
    }

    /// The longest packet in bytes that is believed to reach `destination`, its IP header included:
    /// interface, route and reports of narrow places together (IP_MTU).
    ///
    /// # Errors
    /// `NetworkUnreachable` where no route leads there.
    pub fn path_mtu(&self, destination: IpAddr) -> io::Result<usize> {
        let mut least = usize::MAX;
        for squeue in self.runtime.squeues.iter() {
            let known = squeue.look(|core| core.shard.path_mtu(destination));
            least = least.min(known.map_err(socket_error)?);
        }
        Ok(least)
    }

    /// Everything that was counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for squeue in self.runtime.squeues.iter() {
            sum.merge(&squeue.counters());
        }
        sum.pool = self.runtime.pool.counters();
        sum
    }

    /// As [`Stack::counters`], for each squeue by itself; the pool is everybody's and counts nothing
    /// here.
    #[must_use]
    pub fn squeue_counters(&self) -> Vec<Counters> {
        self.runtime.squeues.iter().map(|squeue| squeue.counters()).collect()
    }

    /// The CPU that the threads of squeue `index` are kept on, by the system's number; `None` where they are
    /// not ([`StackBuilder::pin`]) or there is no such squeue.
    #[must_use]
    pub fn squeue_cpu(&self, index: usize) -> Option<usize> {
        let squeues = &self.runtime.squeues;
        (index < squeues.len()).then(|| squeues.cpu(index))?
    }

    /// The pool that all packet memory comes from.
    #[must_use]
    pub fn pool(&self) -> &BlockPool {
        &self.runtime.pool
    }

    /// Waits until all connections that the application has closed have delivered their data and
    /// their FIN, and datagrams have left that wait for the device or for a neighbour's answer, and lets go of this
    /// handle. A neighbour that does not answer is given up after three seconds. Sockets that are still open are not touched: they
    /// keep the stack alive.
    ///
    /// More closed connections at once than [`StackConfig::orphans_max`](field@crate::StackConfig::orphans_max) are
    /// reset, and what they held is not waited for.
    ///
    /// # Errors
    /// `TimedOut` where something was left to deliver after `timeout`; `NetworkDown` where all that was left
    /// is for a device that failed.
    pub fn shutdown(self, timeout: Duration) -> io::Result<()> {
        // Beyond what an instant can say there is no limit.
        let until = std::time::Instant::now().checked_add(timeout);
        let mut stranded = None;
        let flushed = self.runtime.squeues.iter().try_for_each(|squeue| {
            let call = Call {
                socket: None,
                // It is asked also where all devices have failed: perhaps behind the last byte.
                interest: Interest::Readable,
                after: After::Leave,
                takes_bytes: 0,
                blocks: true,
                timeout: until
                    .map(|until| until.saturating_duration_since(std::time::Instant::now())),
                expired: io::ErrorKind::TimedOut,
            };
            squeue.operate(&call, |core, now| {
                core.run(now);
                if !core.is_flushed() {
                    return Err(SocketError::WouldBlock);
                }
                stranded = stranded.take().or_else(|| core.stranded().cloned());
                Ok(())
            })
        });
        flushed.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => {
                let counts = self.runtime.squeues.iter();
                let count: usize =
                    counts.map(|squeue| squeue.look(|core| core.undelivered_count())).sum();
                let message = match count {
                    0 => "something was left to send".to_owned(),
                    _ => format!("{count} closed connections had something left to deliver"),
                };
                io::Error::new(io::ErrorKind::TimedOut, message)
            }
            _ => error,
        })?;
        stranded.map_or(Ok(()), |error| Err(device_error(&error)))
    }

    /// Ends the stack at once, whoever has handles and sockets of it: connections are reset, those included whose
    /// handshake is under way, as far as the devices take the resets within a tenth of a second, and calls on sockets fail, those that wait
    /// in other threads and in tasks included, with `NetworkDown` or, on a connection, `ConnectionAborted`; who waits for
    /// events ([`Stack::wait_for_event`]) hears it as well. What
    /// has arrived by then can still be read. Who gives it other devices ([`Stack::replace_queues`]) has a stack
    /// again. Threads and memory of the stack, and its devices, go when the sockets are dropped, as ever, and that takes no
    /// time then; who carries the packets of a [`device::packet_pipe`] hears of the end then, too.
    pub fn abort(&self) {
        let until = std::time::Instant::now() + ABORT_MAX;
        let mut panic = None;
        self.runtime.squeues.each(|squeue| {
            squeue.once_of_all(&mut panic, |core, now| core.shard.tcp_abort_all(now));
            // A device that panics again takes nothing.
            let mut again = None;
            while squeue.look(|core| !core.devices.all_failed() && core.shard.wants_transmit())
                && again.is_none()
                && std::time::Instant::now() < until
            {
                squeue.once_of_all(&mut again, |_, _| ());
                std::thread::yield_now();
            }
            panic = panic.take().or(again);
            squeue.once_of_all(&mut panic, |core, _| core.end());
        });
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Squeue `index`, or where there is none the first.
    pub(crate) fn squeue(&self, index: usize) -> &Squeue {
        self.runtime.squeues.at(index)
    }

    pub(crate) fn squeues(&self) -> &Squeues {
        &self.runtime.squeues
    }

    pub(crate) fn tunables(&self) -> CopyIn {
        self.runtime.copy_in
    }

    /// Copies writes into blocks; see [`Copied::fill`].
    pub(crate) fn fill<'a>(
        &self,
        copied: &mut Copied,
        layout: &Layout,
        writes: impl Iterator<Item = &'a [u8]> + Clone,
        first: Option<BlockMut>,
    ) -> Result<usize, Exhausted> {
        let Some(observer) = &self.runtime.copy_observer else {
            return copied.fill(&self.runtime.pool, layout, writes, first);
        };
        observer.on_begin();
        let filled = copied.fill(&self.runtime.pool, layout, writes, first);
        observer.on_end();
        filled
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// The device of interface `index`.
fn port_at(devices: &mut Devices, index: usize) -> io::Result<&mut Port> {
    devices.port_mut(index).ok_or_else(|| socket_error(SocketError::NoSuchInterface))
}
