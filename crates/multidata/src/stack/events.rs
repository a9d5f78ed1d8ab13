//! What happened to interfaces, of all squeues as one list.
//!
//! Each squeue tells what it has met. What concerns all of them, as an interface that goes down, each
//! tells, in the same order; users hear once what they tell by the time they are asked, and again what one
//! of them tells later.

use crate::runtime::squeues::Squeues;
use stack::InterfaceEvent;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Events that were fetched from the squeues and not asked for yet: at most what the squeues keep.
#[derive(Debug, Default)]
pub(super) struct InterfaceEvents(Mutex<VecDeque<InterfaceEvent>>);

impl InterfaceEvents {
    /// The next event, if any. The squeues are asked when none is left.
    pub(super) fn poll(&self, squeues: &Squeues) -> Option<InterfaceEvent> {
        // Who is woken by a look into the squeues may ask, too.
        let _within = squeues.at(0).within();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            for squeue in squeues.iter() {
                let poll = || squeue.look(|core| core.shard.poll_interface_event());
                join(&mut all, core::iter::from_fn(poll));
            }
        }
        all.pop_front()
    }
}

/// Adds what one squeue tells, in its order, to what others told.
fn join(all: &mut VecDeque<InterfaceEvent>, own: impl Iterator<Item = InterfaceEvent>) {
    let mut at = 0;
    for event in own {
        match all.iter_mut().skip(at).position(|told| absorbs(told, &event)) {
            Some(behind) => at += behind + 1,
            None => {
                all.insert(at, event);
                at += 1;
            }
        }
    }
}

/// Whether `told` says what `event` does, or says it now.
fn absorbs(told: &mut InterfaceEvent, event: &InterfaceEvent) -> bool {
    use InterfaceEvent::{
        BlocksCopied, DeviceFailed, DeviceReplaced, Negotiated, Removed, TookPart,
    };
    match (told, event) {
        (Removed(one, ended), Removed(other, more)) if one == other => {
            *ended += more;
            true
        }
        (DeviceFailed(one, _, why), DeviceFailed(other, _, because)) => {
            one == other && why == because
        }
        (Negotiated(one, status), Negotiated(other, same))
        | (DeviceReplaced(one, status), DeviceReplaced(other, same)) => {
            let negotiations = status.negotiations;
            one == other && **status == stack::TransmitStatus { negotiations, ..(**same).clone() }
        }
        (TookPart(one, ..), TookPart(other, ..))
        | (BlocksCopied(one, _), BlocksCopied(other, _)) => one == other,
        (told, event) => told == event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::{Capabilities, Medium, TransmitMode};
    use stack::{InterfaceConfig, InterfaceId, Shard, ShardConfig};

    fn id() -> InterfaceId {
        let pool = batch::BlockPool::new(batch::PoolConfig::default());
        let tcp = tcp::Config::default();
        let mut shard = Shard::new(ShardConfig { tcp, pool, secret: [0; 32], sockets_max: 9 });
        let capabilities = Capabilities::plain(Medium::Ip, 1_500);
        let mode = Some(TransmitMode::Multidata);
        let (addresses, gateways) = (Vec::new(), Vec::new());
        let config = InterfaceConfig { capabilities, mode, addresses, gateways };
        shard.add_interface(config).expect("the first")
    }

    #[test]
    fn what_all_squeues_tell_is_heard_once_and_what_one_tells_twice_is_heard_twice() {
        use InterfaceEvent::{DeviceFailed, LinkLost, LinkRestored, Removed};
        let id = id();
        let lost = || LinkLost(id, "it is down".into());
        let failed = |taken| DeviceFailed(id, taken, "it is gone".into());
        let own = [
            vec![lost(), LinkRestored(id), lost(), Removed(id, 2)],
            vec![lost(), LinkRestored(id), failed(None), lost(), Removed(id, 3)],
            vec![failed(Some(4)), lost(), Removed(id, 0)],
        ];
        let mut all = VecDeque::new();
        own.into_iter().for_each(|own| join(&mut all, own.into_iter()));
        let heard = [lost(), LinkRestored(id), failed(None), lost(), Removed(id, 5)];
        assert_eq!(all, heard);
    }
}
