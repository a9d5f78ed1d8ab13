//! A bounded table of small things that have a four-tuple and a deadline: half-open connections, and
//! those in TIME-WAIT. They are no sockets, so nothing here counts against the limit of those.

use crate::sockets::slots;
use crate::sockets::{Flow, FlowKey, Keys};
use crate::wheel::Wheel;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use time::Instant;

/// Entries by four-tuple and by deadline.
#[derive(Debug)]
pub(crate) struct FlowTable<T> {
    slots: Vec<Option<(FlowKey, T)>>,
    free: Vec<u32>,
    by_flow: HashMap<FlowKey, u32, Keys>,
    wheel: Wheel,
}

impl<T> FlowTable<T> {
    pub(crate) fn new(keys: Keys) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_flow: HashMap::with_hasher(keys),
            wheel: Wheel::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_flow.len()
    }

    /// How many slots there are, used or not.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// What lies in the next `places_max` slots from `slot` on.
    pub(crate) fn page(&self, slot: usize, places_max: usize) -> impl Iterator<Item = (Flow, &T)> {
        let slots = self.slots.get(slot..).unwrap_or_default().iter().take(places_max);
        slots.filter_map(|slot| slot.as_ref().map(|(key, value)| (key.flow(), value)))
    }

    pub(crate) fn contains(&self, flow: &Flow) -> bool {
        self.by_flow.contains_key(&FlowKey::from(flow))
    }

    pub(crate) fn get(&self, flow: &Flow) -> Option<&T> {
        let index = *self.by_flow.get(&FlowKey::from(flow))?;
        self.slots.get(index as usize)?.as_ref().map(|(_, value)| value)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, flow: &Flow) -> Option<&mut T> {
        if self.by_flow.is_empty() {
            return None;
        }
        let index = *self.by_flow.get(&FlowKey::from(flow))?;
        self.slots.get_mut(index as usize)?.as_mut().map(|(_, value)| value)
    }

    /// Enters `value`, in place of what the four-tuple may have had.
    pub(crate) fn insert(&mut self, flow: Flow, value: T, deadline: Instant) {
        let key = FlowKey::from(&flow);
        let index = match self.by_flow.entry(key) {
            Entry::Occupied(found) => *found.get(),
            Entry::Vacant(place) => *place.insert(self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            })),
        };
        self.slots[index as usize] = Some((key, value));
        self.wheel.set(index, deadline);
    }

    pub(crate) fn set_deadline(&mut self, flow: &Flow, deadline: Instant) {
        if let Some(index) = self.by_flow.get(&FlowKey::from(flow)) {
            self.wheel.set(*index, deadline);
        }
    }

    pub(crate) fn remove(&mut self, flow: &Flow) -> Option<T> {
        let index = self.by_flow.remove(&FlowKey::from(flow))?;
        self.wheel.cancel(index);
        let (_, value) = self.slots.get_mut(index as usize)?.take()?;
        self.free.push(index);
        self.shrink();
        Some(value)
    }

    /// When the first entry is due, or before.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.wheel.next()
    }

    /// Takes out an entry that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Flow, T)> {
        let index = self.wheel.pop_due(now)?;
        let flow = self.slots.get(index as usize)?.as_ref()?.0.flow();
        self.remove(&flow).map(|value| (flow, value))
    }

    /// Takes out the entry with the earliest deadline, or one within the same few seconds.
    pub(crate) fn remove_first(&mut self) -> Option<(Flow, T)> {
        let index = self.wheel.first()?;
        let flow = self.slots.get(index as usize)?.as_ref()?.0.flow();
        self.remove(&flow).map(|value| (flow, value))
    }

    /// Gives memory back once three quarters of it are empty.
    fn shrink(&mut self) {
        if let Some(used) = slots::shrink(&mut self.slots, &mut self.free, Option::is_some) {
            self.by_flow.shrink_to(slots::KEPT_MIN);
            self.wheel.shrink(used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, SocketAddr};
    use time::Duration;

    fn flow(number: u32) -> Flow {
        let address: IpAddr = number.to_be_bytes().into();
        let local = SocketAddr::new([10, 0, 0, 1].into(), 80);
        Flow { local, remote: SocketAddr::new(address, 9) }
    }

    #[test]
    fn entries_leave_in_the_order_of_their_deadlines_and_the_memory_with_them() {
        let mut table = FlowTable::new(Keys(1, 2));
        let at = |number: u32| Instant::from_millis(5) + Duration::from_millis(number.into());
        for number in 0..20_000 {
            table.insert(flow(number), number, at(number));
        }
        table.insert(flow(0), 0, at(30_000));
        table.set_deadline(&flow(3), at(3_000));
        assert_eq!(table.len(), 20_000, "it took the place of what was there");
        let (_, first) = table.remove_first().expect("many");
        assert_eq!(first, 1);
        assert_eq!(table.pop_due(at(2)).map(|(_, number)| number), Some(2));
        let mut count = 0;
        while table.pop_due(at(20_000)).is_some() {
            count += 1;
        }
        assert_eq!((count, table.len()), (19_997, 1));
        assert!(table.remove(&flow(0)).is_some());
        assert!(table.slots.capacity() <= slots::KEPT_MIN);
        assert!(table.by_flow.capacity() <= 2 * slots::KEPT_MIN);
    }
}
