//! Options that concern what a host of one processor and one device does not have, or what Linux itself only keeps:
//! they are kept without effect, and told again.

use crate::Errno;
use crate::abi::*;
use crate::call::Fd;
use crate::host::Host;
use core::ops::RangeInclusive;
use std::collections::BTreeMap;

/// Level, name, and the values that Linux takes.
const KEPT: &[(i32, i32, RangeInclusive<i32>)] = &[
    // How long a thread spins before it sleeps, and where packets are processed.
    (SOL_SOCKET, SO_BUSY_POLL, 0..=i32::MAX),
    (SOL_SOCKET, SO_INCOMING_CPU, i32::MIN..=i32::MAX),
    // Ports are chosen when a socket connects.
    (IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, i32::MIN..=i32::MAX),
    // Linux has forgotten what it meant, and tells zero.
    (IPPROTO_TCP, TCP_THIN_DUPACK, 0..=1),
    (SOL_SOCKET, SO_DEBUG, i32::MIN..=i32::MAX),
    // Segments have checksums, whatever is said here.
    (SOL_SOCKET, SO_NO_CHECK, i32::MIN..=i32::MAX),
];

/// Those that are on or off, whatever the number.
const FLAGS: [(i32, i32); 3] =
    [(SOL_SOCKET, SO_DEBUG), (SOL_SOCKET, SO_NO_CHECK), (IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT)];

/// What was set of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptOptions {
    values: BTreeMap<(i32, i32), i32>,
}

impl Host {
    /// Whether it is one of them, of this socket. Datagrams do without checksums where that is asked for, which this
    /// stack does not have.
    pub(crate) fn keeps(&mut self, fd: Fd, level: i32, name: i32) -> bool {
        let is_of_streams = level == IPPROTO_TCP || (level, name) == (SOL_SOCKET, SO_NO_CHECK);
        range(level, name).is_some() && (!is_of_streams || self.is_stream(fd))
    }
}

fn range(level: i32, name: i32) -> Option<&'static RangeInclusive<i32>> {
    let mut all = KEPT.iter();
    all.find(|kept| (kept.0, kept.1) == (level, name)).map(|(_, _, range)| range)
}

impl KeptOptions {
    /// # Errors
    /// `EINVAL`: the value is out of range.
    pub(crate) fn set(&mut self, level: i32, name: i32, value: i32) -> Result<(), Errno> {
        match range(level, name) {
            Some(range) if range.contains(&value) => {
                let is_flag = FLAGS.contains(&(level, name));
                let value = if is_flag { i32::from(value != 0) } else { value };
                self.values.insert((level, name), value);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn value(&self, level: i32, name: i32) -> i32 {
        match (level, name) {
            (IPPROTO_TCP, TCP_THIN_DUPACK) => 0,
            // No processor, before there is one.
            (SOL_SOCKET, SO_INCOMING_CPU) => self.values.get(&(level, name)).copied().unwrap_or(-1),
            _ => self.values.get(&(level, name)).copied().unwrap_or(0),
        }
    }
}
