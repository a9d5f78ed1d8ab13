//! Interfaces that come while the stack runs: a tunnel that is up later, a second network of a container.

use super::builder::{InterfaceConfig, add_port, ask_devices, check_interface, check_own_gateways};
use super::{Stack, locked};
use crate::runtime::shared_queue;
use crate::runtime::turn::Panic;
use crate::runtime::waiter_slot::Replaced;
use device::Queue;
use stack::InterfaceId;
use std::io;
use std::panic::resume_unwind;

impl Stack {
    /// Adds an interface, as [`StackBuilder::interface`](crate::StackBuilder::interface) does before the stack
    /// is built, and says which one it is for all calls that take an index: that of the first one that was removed
    /// ([`Stack::remove_interface`]), or the next. Sockets on unspecified addresses hear by it at once; connections that its
    /// routes concern leave by it from now on. Events and listings name it by an id of its own
    /// ([`InterfaceStatus::id`](crate::InterfaceStatus::id)), also in the place of another one.
    ///
    /// # Errors
    /// As [`StackBuilder::build`](crate::StackBuilder::build) of an interface; a stack has 1,023 at most. Nothing was
    /// added then.
    pub fn add_interface(
        &self,
        queue: impl Queue + 'static,
        config: InterfaceConfig,
    ) -> io::Result<usize> {
        self.add_multiqueue_interface(vec![Box::new(queue)], config)
    }

    /// As [`Stack::add_interface`], for a device of several queues
    /// ([`StackBuilder::multiqueue_interface`](crate::StackBuilder::multiqueue_interface)).
    ///
    /// # Errors
    /// As [`Stack::add_interface`].
    pub fn add_multiqueue_interface(
        &self,
        mut queues: Vec<Box<dyn Queue>>,
        mut config: InterfaceConfig,
    ) -> io::Result<usize> {
        // What is in the place of the new one, or is refused, is let go of under no lock.
        let mut left: Vec<Replaced> = Vec::new();
        let mut panic = None;
        let added = self.add_to_all(&mut queues, &mut config, &mut left, &mut panic);
        left.into_iter().map(|it| it.empty(&mut panic)).for_each(drop);
        drop(queues);
        let (index, id) = added?;
        let watched = self.watch(index);
        // Of any device of the stack. All squeues have the interface, and go on.
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        match watched {
            Ok(()) => Ok(index),
            Err(error) => {
                // The system had no thread for it.
                let _ = self.remove_exactly(id);
                Err(error)
            }
        }
    }

    /// Takes the queues where nothing is to be said against them.
    fn add_to_all(
        &self,
        queues: &mut Vec<Box<dyn Queue>>,
        config: &mut InterfaceConfig,
        left: &mut Vec<Replaced>,
        panic: &mut Option<Panic>,
    ) -> io::Result<(usize, InterfaceId)> {
        let squeues = &self.runtime.squeues;
        squeues.alone(|all| {
            let (index, known) = all[0].next_index();
            check_interface(index, queues, config, all.len(), self.runtime.rings)?;
            // One squeue may have heard of an address and another not yet: that it is nobody's all have to say.
            let is_own = |address| {
                all.iter().any(|squeue| squeue.look(|core| core.shard.is_own_address(address)))
            };
            check_own_gateways(index, config, is_own)?;
            // Added to some squeues only, it would have used up its id there, and all later ones in its place would
            // have other ids in them than in the rest.
            ask_devices(queues, config)?;
            if index == known
                && let Some(rings) = all[0].more_soft_rings()
            {
                // All know where to hand frames, others' or a soft ring of their own, before the first frame comes.
                all.iter().for_each(|squeue| squeue.learn_of_interface(index, &rings));
            }
            let queues = core::mem::take(queues);
            let places = shared_queue::distribute(queues, all.len()).into_iter();
            // The first squeue speaks for all on the link, and comes last: what it says of the interface it says
            // to squeues that have it.
            for (number, place) in places.enumerate().rev() {
                let add = |shard: &mut stack::Shard, now| {
                    add_port(shard, now, place, number, config.clone())
                };
                // All that a shard may refuse is checked, and the squeues are equal in it.
                left.extend(all[number].add(add, panic)?);
            }
            Ok((index, all[0].look(|core| core.devices.ports()[index].id)))
        })
    }

    /// Has the new interface watched in the squeues that receive from it.
    fn watch(&self, index: usize) -> io::Result<()> {
        let squeues = &self.runtime.squeues;
        // Who is woken by a look into the squeues may add an interface, too.
        let _within = squeues.at(0).within();
        let mut threads = locked(&self.runtime.threads);
        // While the stack is being built there are none, and all interfaces are watched when there are.
        let Some(threads) = threads.as_mut() else { return Ok(()) };
        for (number, squeue) in squeues.iter().enumerate() {
            let receives =
                squeue.look(|core| core.devices.port(index).is_some_and(|port| port.receives));
            if receives {
                threads.watch(squeue, number, index, squeues.cpu(number))?;
            }
        }
        Ok(())
    }
}
