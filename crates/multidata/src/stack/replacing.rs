//! Another device below an interface: where one failed for good, as a TAP that was deleted.

use super::builder::check_mtu;
use super::{Stack, invalid};
use crate::runtime::shared_queue;
use crate::runtime::squeue::Squeue;
use device::{Medium, Queue};
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;

impl Stack {
    /// Puts another device below interface `index`, as where its own has failed; one that still works is
    /// closed. The interface keeps its addresses and routes, and with them its connections keep what they hold:
    /// calls on them no longer fail, and what was outstanding is sent again by the new device. What both
    /// can do is negotiated as when an interface comes up. The link is taken for another one ([`Stack::link_changed`]).
    ///
    /// # Errors
    /// As [`Stack::replace_queues`].
    pub fn replace_device(&self, index: usize, queue: impl Queue + 'static) -> io::Result<()> {
        self.replace_queues(index, vec![Box::new(queue)])
    }

    /// As [`Stack::replace_device`], for a device of several queues: as many as the interface was built
    /// with ([`StackBuilder::multiqueue_interface`](crate::StackBuilder::multiqueue_interface)).
    ///
    /// # Errors
    /// `InvalidInput` where there is no such interface, it was removed, it has another number of queues or the
    /// other kind of medium (Ethernet frames or bare IP packets), the new device carries less than IP needs,
    /// or does not keep connections on its queues where the layout relies on that; or the new device failed.
    pub fn replace_queues(&self, index: usize, mut queues: Vec<Box<dyn Queue>>) -> io::Result<()> {
        let squeues = &self.runtime.squeues;
        // The devices are asked under no lock, and meanwhile another interface may take the index.
        let id = self.interface_id(index);
        let receives = |squeue: &&Arc<Squeue>| {
            squeue.look(|core| {
                core.devices.port(index).is_some_and(|it| Some(it.id) == id && it.receives)
            })
        };
        let count = squeues.iter().filter(receives).count();
        if count != queues.len() {
            let message = match count {
                0 => format!("there is no interface {index}"),
                _ => format!(
                    "interface {index} has {count} queues, and so must the device that takes its place: {} \
                     were given",
                    queues.len()
                ),
            };
            return Err(invalid(message));
        }
        let status = self.squeue(0).look(|core| {
            let port = core.devices.port(index).filter(|port| Some(port.id) == id)?;
            let status = core.shard.transmit_status(port.id);
            let status = status.filter(|_| core.shard.has_interface(port.id))?;
            Some((port.id, status, core.has_ipv6(port)))
        });
        let removed = || invalid(format!("interface {index} was removed"));
        let (id, status, has_ipv6) = status.ok_or_else(removed)?;
        for queue in &queues {
            let capabilities = queue.capabilities();
            let is_ethernet = |medium| matches!(medium, Medium::Ethernet(_));
            if is_ethernet(capabilities.medium) != is_ethernet(status.capabilities.medium) {
                let message = format!("interface {index} has another kind of medium");
                return Err(invalid(message));
            }
            check_mtu(index, has_ipv6, capabilities.mtu_bytes)?;
        }
        let wanted = status.wanted;
        for queue in &mut queues {
            let mode = queue.capabilities().mode_for(wanted);
            queue.set_mode(mode).map_err(io::Error::from)?;
            // A device that panics is to do so before any squeue has one of its queues.
            drop(queue.waiter());
        }
        let mut places = shared_queue::distribute(queues, squeues.len()).into_iter();
        let (mut replaced, mut panic) = (Vec::new(), None);
        squeues.each(|squeue| {
            replaced
                .extend(places.next().map(|place| squeue.replace(id, place, wanted, &mut panic)));
        });
        // Application code is let go of when no lock is held and all squeues go on without it.
        let (replaced, refused): (Vec<_>, Vec<_>) = replaced.into_iter().partition(Result::is_ok);
        let old: Vec<_> = replaced.into_iter().flatten().map(|it| it.empty(&mut panic)).collect();
        drop(old);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        if refused.is_empty() { Ok(()) } else { Err(removed()) }
    }
}
