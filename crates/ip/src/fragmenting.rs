//! A datagram on its way out that is longer than its path takes (RFC 791, 3.2; RFC 8200, 4.5).
//!
//! The transport checksum is over the whole datagram, so it is made once, here; then each fragment
//! is a packet of the batch: an IP header, the transport header in front of the first, and a span of
//! the application's block. Nothing is copied. Which fragments a device took is remembered, so that
//! the rest can follow in a later batch, under the same identification.

use crate::HeaderTemplate;
use crate::template::Header;
use batch::{Attributes, Chunks, Multidata};
use checksum::Accumulator;
use core::hash::{BuildHasher, Hasher};
use core::net::IpAddr;
use wire::{Ipv4Options, Ipv4Repr, Ipv6FragmentRepr, Ipv6Repr, protocol};

/// Length of the transport headers of what is fragmented: UDP and ICMP; of raw packets, as many bytes.
pub const FRAGMENTED_HEADER_LEN: usize = 8;

const MORE_FRAGMENTS: u16 = 0x2000;

/// A datagram, or the rest of one, that goes out in fragments.
#[derive(Clone, Debug)]
pub struct Fragmenting {
    /// The transport header, complete.
    header: [u8; FRAGMENTED_HEADER_LEN],
    payload: Chunks,
    identification: u32,
    /// Bytes of header and payload that were sent already: a multiple of 8 until all are.
    sent_bytes: usize,
}

impl Fragmenting {
    /// A datagram with this transport header, whose checksum field lies at `checksum_at`, if it has one,
    /// and is filled in, for the network header of `template`. `identification` is one that no other
    /// datagram of these addresses has had lately ([`Identifications`]).
    ///
    /// # Panics
    /// Where the checksum field is not within the header.
    #[must_use]
    pub fn new(
        template: &HeaderTemplate,
        mut header: [u8; FRAGMENTED_HEADER_LEN],
        checksum_at: Option<usize>,
        payload: impl Into<Chunks>,
        identification: u32,
    ) -> Self {
        let payload = payload.into();
        let whole =
            |header| Self { header, payload: payload.clone(), identification, sent_bytes: 0 };
        let Some(checksum_at) = checksum_at else { return whole(header) };
        let field = checksum_at..checksum_at + 2;
        header[field.clone()].fill(0);
        let mut sum = Accumulator::default();
        if template.protocol() != protocol::ICMP {
            sum.add_u16(template.pseudo_sum);
            sum.add_u16((header.len() + payload.len()) as u16);
        }
        sum.add(&header);
        sum.add_sum(payload.sum().0, payload.len());
        let checksum = match sum.finish() {
            // RFC 768: a computed zero is transmitted as all ones.
            0 if template.protocol() == protocol::UDP => 0xffff,
            checksum => checksum,
        };
        header[field].copy_from_slice(&checksum.to_be_bytes());
        whole(header)
    }

    /// Into how many packets what is left goes, over a path that takes `mtu_bytes`.
    #[must_use]
    pub fn packet_count(&self, template: &HeaderTemplate, mtu_bytes: usize) -> usize {
        (self.len() - self.sent_bytes).div_ceil(step_bytes(template, mtu_bytes))
    }

    /// Adds the next fragments to the batch with their network headers, as many as there is room
    /// for, and says how many that are. Commits nothing: [`Fragmenting::on_sent`] does.
    pub fn push(
        &self,
        batch: &mut Multidata,
        template: &HeaderTemplate,
        mtu_bytes: usize,
    ) -> usize {
        let step = step_bytes(template, mtu_bytes);
        let first = batch.len();
        let mut at = self.sent_bytes;
        while at < self.len() {
            let end = self.len().min(at + step);
            if self.push_one(batch, template, at, end).is_none() {
                break;
            }
            at = end;
        }
        batch.len() - first
    }

    /// A device took the next `count` packets. Says whether nothing is left.
    pub fn on_sent(&mut self, template: &HeaderTemplate, mtu_bytes: usize, count: usize) -> bool {
        let step = step_bytes(template, mtu_bytes);
        self.sent_bytes = self.len().min(self.sent_bytes + step.saturating_mul(count));
        self.sent_bytes == self.len()
    }

    /// Bytes of payload that it holds until all are sent.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.payload.len()
    }

    /// Length of transport header and payload in bytes.
    fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    /// Adds the packet of the bytes `at..end` of transport header and payload. `None` where there is
    /// no room; then the batch has not changed.
    fn push_one(
        &self,
        batch: &mut Multidata,
        template: &HeaderTemplate,
        at: usize,
        end: usize,
    ) -> Option<()> {
        let index = batch.len();
        let header: &[u8] = if at == 0 { &self.header } else { &[] };
        let place = batch.push_packet(header.len(), Attributes::default())?;
        place.copy_from_slice(header);
        let start = at.saturating_sub(self.header.len());
        let len = end - self.header.len() - start;
        let more = end < self.len();
        let appended = batch.append_chunks(&self.payload, start..start + len);
        if appended && self.stamp(batch, index, template, at, more).is_some() {
            return Some(());
        }
        batch.truncate(index);
        None
    }

    fn stamp(
        &self,
        batch: &mut Multidata,
        index: usize,
        template: &HeaderTemplate,
        offset: usize,
        more: bool,
    ) -> Option<()> {
        let data_len = batch.packet(index)?.len();
        match &template.header {
            Header::Ipv4 { bytes, options, .. } => {
                // RFC 791, 3.1: what follows the first fragment has only the options marked as copied.
                let options = options.as_deref().copied().unwrap_or(Ipv4Options::NONE);
                let options = if offset == 0 { options } else { options.copied() };
                let header_len = Ipv4Repr::LEN + options.bytes().len();
                let (headers, _) = batch.prepend_network(index, header_len)?;
                let network = headers.get_mut(..header_len)?;
                network[..Ipv4Repr::LEN].copy_from_slice(bytes);
                network[Ipv4Repr::LEN..].copy_from_slice(options.bytes());
                network[0] = 0x40 | (header_len / 4) as u8;
                let total_len = u16::try_from(header_len + data_len).ok()?;
                let flags = if more { MORE_FRAGMENTS } else { 0 };
                network[2..4].copy_from_slice(&total_len.to_be_bytes());
                network[4..6].copy_from_slice(&(self.identification as u16).to_be_bytes());
                network[6..8].copy_from_slice(&(flags | (offset / 8) as u16).to_be_bytes());
                let checksum = !checksum::sum(network);
                network[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            Header::Ipv6 { bytes } => {
                let len = Ipv6Repr::LEN + Ipv6FragmentRepr::LEN;
                let (headers, _) = batch.prepend_network(index, len)?;
                let (network, rest) = headers.split_first_chunk_mut::<{ Ipv6Repr::LEN }>()?;
                *network = *bytes;
                let payload_len = u16::try_from(Ipv6FragmentRepr::LEN + data_len).ok()?;
                network[4..6].copy_from_slice(&payload_len.to_be_bytes());
                network[6] = protocol::FRAGMENT;
                let fragment = Ipv6FragmentRepr {
                    next_header: template.protocol(),
                    offset_bytes: offset,
                    more_fragments: more,
                    identification: self.identification,
                };
                fragment.emit(rest);
            }
        }
        Some(())
    }
}

/// Data of each fragment but the last: a multiple of 8. Fragments with fewer options than the first
/// are no longer for it.
fn step_bytes(template: &HeaderTemplate, mtu_bytes: usize) -> usize {
    let headers = match template.header {
        Header::Ipv4 { .. } => template.header_len(),
        Header::Ipv6 { .. } => Ipv6Repr::LEN + Ipv6FragmentRepr::LEN,
    };
    (mtu_bytes.saturating_sub(headers) / 8 * 8).max(8)
}

/// How many counters there are: collisions only make two peers share a count.
const COUNTERS: usize = 256;

/// Identifications of datagrams that may be fragmented (RFC 7739, 5.3): a counter, and in front of
/// it a keyed hash of the addresses, so that whoever sees those of one peer cannot tell those of
/// another, and no two of one peer meet within 2^32 datagrams, or 65,536 of IPv4 (RFC 6864, 4.2).
#[derive(Debug)]
pub struct Identifications<S> {
    hasher: S,
    counters: Box<[u32; COUNTERS]>,
    step: u32,
    first: u32,
}

impl<S: BuildHasher> Identifications<S> {
    /// Counters at zero. `hasher` is keyed with what nobody outside knows.
    #[must_use]
    pub fn new(hasher: S) -> Self {
        Self { hasher, counters: Box::new([0; COUNTERS]), step: 1, first: 0 }
    }

    /// Leaves room between its numbers for `count` users of the same keys, of which this is number
    /// `index`: what each of them sends to one peer never meets, within a share of the numbers.
    pub fn share(&mut self, index: usize, count: usize) {
        // A power of two, so that it holds beyond where the 16 bits of IPv4 begin again.
        self.step = u32::try_from(count.next_power_of_two()).unwrap_or(1 << 16);
        self.first = index as u32;
    }

    /// The identification of the next datagram between these addresses.
    pub fn next(&mut self, source: IpAddr, destination: IpAddr, protocol: u8) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        for address in [source, destination] {
            match address {
                IpAddr::V4(address) => hasher.write(&address.octets()),
                IpAddr::V6(address) => hasher.write(&address.octets()),
            }
        }
        hasher.write_u8(protocol);
        let hash = hasher.finish();
        let counter = &mut self.counters[(hash >> 32) as usize % COUNTERS];
        *counter = counter.wrapping_add(1);
        let own = counter.wrapping_mul(self.step).wrapping_add(self.first);
        (hash as u32).wrapping_add(own)
    }
}

#[cfg(test)]
mod tests;
