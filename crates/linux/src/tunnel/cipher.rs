//! ChaCha20-Poly1305 (RFC 8439) as a transform, from the RustCrypto crate of that name.
//!
//! This is an example of a [`Transform`], not a VPN protocol: there is no handshake, no change of
//! keys, no cookie against floods and no roaming. Who needs those takes a protocol that has them
//! (WireGuard, IPsec, DTLS) and gives this the keys that it agreed on.
//!
//! ```text
//!  0          8                          8 + len      8 + len + 16
//!  | counter  | the packet, encrypted    | tag        |
//! ```
//!
//! * Each direction has a key of its own. The nonce is 4 bytes of zero and the counter, 64 bits, most
//!   significant byte first, which begins at 0 and never repeats: when it is used up nothing is
//!   sealed any more.
//! * So **a key must never be used for two tunnels**, nor for the same tunnel opened again: the
//!   counter begins anew and two packets under one nonce give both away.
//! * What is received is authenticated before it is decrypted, and its counter must be new
//!   ([`ReplayWindow`]).
//!
//! The cipher wants its input in one piece, so the pieces of a packet are copied to where the sealed
//! packet is to lie and encrypted there, in the cache of the first level: the bytes are fetched from
//! memory once. The copy takes a fiftieth of what the cipher does.

use crate::system_error::SystemError;
use batch::PacketView;
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit, Nonce, Tag};
use core::fmt;
use core::ops::Range;
use counters::DropReason;
use device::Transform;
use device::transform::ReplayWindow;
use rustix::rand::{GetRandomFlags, getrandom};

const COUNTER_LEN: usize = 8;
const TAG_LEN: usize = 16;

/// The two keys of one end. The other end has them the other way round. They are fresh for each
/// tunnel; see the module's documentation.
#[derive(Clone)]
pub struct ChaChaKeys {
    /// For what this end sends.
    pub seal: [u8; 32],
    /// For what this end receives.
    pub open: [u8; 32],
}

impl ChaChaKeys {
    /// Random keys, from the system.
    ///
    /// # Errors
    /// Where the system gives no random bytes.
    pub fn generate() -> Result<Self, SystemError> {
        let mut keys = Self { seal: [0; 32], open: [0; 32] };
        for key in [&mut keys.seal, &mut keys.open] {
            // Up to 256 bytes come whole.
            getrandom(&mut *key, GetRandomFlags::empty())
                .map_err(|errno| SystemError::refused("the system gave no random bytes", errno))?;
        }
        Ok(keys)
    }

    /// The same keys as the other end needs them.
    #[must_use]
    pub fn swapped(&self) -> Self {
        Self { seal: self.open, open: self.seal }
    }
}

impl fmt::Debug for ChaChaKeys {
    /// Keys do not belong into logs.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ChaChaKeys")
    }
}

/// The transform. It adds 24 bytes to each packet.
pub struct ChaChaPoly {
    sealing: ChaCha20Poly1305,
    opening: ChaCha20Poly1305,
    counter: u64,
    window: ReplayWindow,
}

impl ChaChaPoly {
    /// An end that has sealed and opened nothing.
    #[must_use]
    pub fn new(keys: &ChaChaKeys) -> Self {
        Self {
            sealing: ChaCha20Poly1305::new(&keys.seal.into()),
            opening: ChaCha20Poly1305::new(&keys.open.into()),
            counter: 0,
            window: ReplayWindow::new(),
        }
    }
}

impl fmt::Debug for ChaChaPoly {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ChaChaPoly").field("counter", &self.counter).finish_non_exhaustive()
    }
}

impl Transform for ChaChaPoly {
    fn name(&self) -> &'static str {
        "chacha20poly1305"
    }

    fn overhead_bytes(&self) -> usize {
        COUNTER_LEN + TAG_LEN
    }

    fn is_authenticated(&self) -> bool {
        true
    }

    fn seal(&mut self, packet: &PacketView<'_>, out: &mut [u8]) -> Option<usize> {
        // The last counter is never used, so that the next one always exists.
        let next = self.counter.checked_add(1)?;
        let len = packet.len();
        let out = out.get_mut(..COUNTER_LEN + len + TAG_LEN)?;
        let (counter, rest) = out.split_at_mut(COUNTER_LEN);
        let (text, tag) = rest.split_at_mut(len);
        counter.copy_from_slice(&self.counter.to_be_bytes());
        packet.copy_to(text)?;
        let nonce = nonce(self.counter);
        let made = self.sealing.encrypt_inout_detached(&nonce, &[], text.into()).ok()?;
        tag.copy_from_slice(&made);
        self.counter = next;
        Some(COUNTER_LEN + len + TAG_LEN)
    }

    fn open(&mut self, datagram: &mut [u8]) -> Result<Range<usize>, DropReason> {
        let (counter, rest) =
            datagram.split_first_chunk_mut::<COUNTER_LEN>().ok_or(DropReason::Truncated)?;
        let (text, tag) = rest.split_last_chunk_mut::<TAG_LEN>().ok_or(DropReason::Truncated)?;
        if text.is_empty() {
            return Err(DropReason::Truncated);
        }
        let counter = u64::from_be_bytes(*counter);
        // Before the cipher: a replayed flood is cheap to refuse.
        if !self.window.is_new(counter) {
            return Err(DropReason::TunnelReplayed);
        }
        let end = COUNTER_LEN + text.len();
        let tag = Tag::from(*tag);
        self.opening
            .decrypt_inout_detached(&nonce(counter), &[], text.into(), &tag)
            .map_err(|_| DropReason::TunnelForged)?;
        self.window.accept(counter);
        Ok(COUNTER_LEN..end)
    }
}

fn nonce(counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::from(nonce)
}

#[cfg(test)]
mod tests;
