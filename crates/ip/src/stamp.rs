//! Network headers for a run of packets, in one call.
//!
//! This is IP's whole part in the way out of a packet, unless it is a fragment (`fragmenting.rs` writes their
//! headers). Every packet pays it, so nothing is computed
//! here that the [`HeaderTemplate`] could have held, and the family is looked at once per call. A
//! run keeps consecutive identifications, as Linux gives the segments of a super-frame, so that a
//! run sent packet by packet and one split below are the same bytes.
//!
//! A run whose headers nobody has written but the first, the model of the others, has that one stamped for
//! all. Where the device makes the checksums that is all there is to do, for the headers differ in
//! nothing but what counts on. Else every packet has a sum of its own, and all are written here.

use crate::HeaderTemplate;
use crate::template::Header;
use batch::{Checksum, Multidata};
use checksum::Accumulator;
use core::ops::Range;
use wire::{Ipv4Repr, Ipv6Repr, protocol};

/// Where the identification and the header's checksum are in an IPv4 header (RFC 791, 3.1), in bytes.
const IDENTIFICATION: u8 = 4;
const HEADER_CHECKSUM: u8 = 10;

/// Gives the packets `packets` of the batch a network header made from `template` and fills in
/// their transport checksum where it is [`Checksum::Missing`]: complete, or with `offload` and for
/// TCP and UDP as the pseudo-header's sum, which the device completes.
///
/// The range does not end within packets that one header implies.
///
/// `identification` is that of the next IPv4 packet and is counted on for each; IPv6 leaves it. Any
/// value will do for packets that nobody fragments (RFC 6864, 4.1); for others the counter keeps
/// 65,535 packets between two of the same number.
///
/// Returns how many were stamped. That is all of them unless one is longer than its length field
/// holds (65,535 bytes), has no headroom left, or names a checksum field outside its header: there
/// stamping ends, and this packet and those behind it must not be sent.
#[must_use]
pub fn stamp(
    batch: &mut Multidata,
    packets: Range<usize>,
    template: &HeaderTemplate,
    identification: &mut u16,
    offload: bool,
) -> usize {
    let first = *identification;
    let headed = match &template.header {
        Header::Ipv4 { bytes, sum, .. } => {
            let head = (bytes, template.options(), *sum);
            for_each(batch, packets.clone(), |batch, index, number| {
                stamp_ipv4(batch, index, head, first.wrapping_add(number as u16))
            })
        }
        Header::Ipv6 { bytes } => {
            for_each(batch, packets.clone(), |batch, index, _| stamp_ipv6(batch, index, bytes))
        }
    };
    let headed = packets.start..packets.start + headed;
    let transport = Transport::new(template, offload);
    if !transport.offload {
        batch.write_headers(headed.clone());
    }
    let stamped = for_each(batch, headed, |batch, index, _| transport.fill(batch, index));
    if matches!(template.header, Header::Ipv4 { .. }) {
        *identification = first.wrapping_add(stamped as u16);
    }
    stamped
}

/// Calls `stamp` for those of the packets whose headers are written, until it says `None`, with a
/// packet's index in the batch and its number among these. Says how many are stamped then.
#[inline]
fn for_each(
    batch: &mut Multidata,
    packets: Range<usize>,
    mut stamp: impl FnMut(&mut Multidata, usize, usize) -> Option<()>,
) -> usize {
    let mut number = 0;
    while number < packets.len() {
        let index = packets.start + number;
        if stamp(batch, index, number).is_none() {
            break;
        }
        number += 1 + batch.implied_behind(index);
    }
    number.min(packets.len())
}

#[inline]
fn stamp_ipv4(
    batch: &mut Multidata,
    index: usize,
    (template, options, template_sum): (&[u8; Ipv4Repr::LEN], &[u8], u32),
    identification: u16,
) -> Option<()> {
    let view = batch.packet(index)?;
    // What the template has not got already, so that the sum of both is their union.
    let ecn = view.attributes().ecn & 0b11 & !template[1];
    let header_len = Ipv4Repr::LEN + options.len();
    let total_len = u16::try_from(view.len() + header_len).ok()?;
    let (headers, _) = batch.prepend_network(index, header_len)?;
    let (network, behind) = headers.split_first_chunk_mut::<{ Ipv4Repr::LEN }>()?;
    if !options.is_empty() {
        behind.get_mut(..options.len())?.copy_from_slice(options);
    }
    // Five words of 16 bits at most: two folds take back every carry.
    let sum = template_sum + u32::from(ecn) + u32::from(total_len) + u32::from(identification);
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    *network = *template;
    network[1] |= ecn;
    network[2..4].copy_from_slice(&total_len.to_be_bytes());
    network[4..6].copy_from_slice(&identification.to_be_bytes());
    network[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    if batch.implied_behind(index) > 0 {
        batch.count_identification(index, IDENTIFICATION, HEADER_CHECKSUM);
    }
    Some(())
}

#[inline]
fn stamp_ipv6(batch: &mut Multidata, index: usize, template: &[u8; Ipv6Repr::LEN]) -> Option<()> {
    let view = batch.packet(index)?;
    let ecn = view.attributes().ecn & 0b11;
    let payload_len = u16::try_from(view.len()).ok()?;
    let (headers, _) = batch.prepend_network(index, Ipv6Repr::LEN)?;
    let network = headers.first_chunk_mut::<{ Ipv6Repr::LEN }>()?;
    *network = *template;
    network[1] |= ecn << 4;
    network[4..6].copy_from_slice(&payload_len.to_be_bytes());
    Some(())
}

/// What the transport checksums of a run have in common.
#[derive(Clone, Copy)]
struct Transport {
    /// Sum of the pseudo-header without the length.
    pseudo_sum: u16,
    /// The device completes the checksum.
    offload: bool,
    /// What stands in the field for a computed zero. RFC 768: "If the computed checksum is zero,
    /// it is transmitted as all ones"; the others have no such rule.
    zero: u16,
}

impl Transport {
    fn new(template: &HeaderTemplate, offload: bool) -> Self {
        let protocol = template.protocol;
        Self {
            pseudo_sum: template.pseudo_sum,
            offload: offload && matches!(protocol, protocol::TCP | protocol::UDP),
            zero: if protocol == protocol::UDP { 0xffff } else { 0 },
        }
    }

    /// Fills in the checksum of a packet, where it is missing, and notes in which state that is left
    /// and how many bytes of payload had to be read for it.
    #[inline]
    fn fill(self, batch: &mut Multidata, index: usize) -> Option<()> {
        let Checksum::Missing { offset } = batch.attributes(index)?.checksum else {
            return Some(());
        };
        let (header, payload, payload_len) = batch.transport_mut(index)?;
        let mut sum = Accumulator::default();
        sum.add_u16(self.pseudo_sum);
        sum.add_u16((header.len() + payload_len) as u16);
        let (value, left, read) = if self.offload {
            // Equal in all packets that this one implies: their payload is as long.
            (sum.sum(), Checksum::Partial { offset }, 0)
        } else {
            sum.add(header);
            let read = payload.add_to(&mut sum);
            let checksum = sum.finish();
            (if checksum == 0 { self.zero } else { checksum }, Checksum::Complete, read)
        };
        let field = header.get_mut(usize::from(offset)..)?.first_chunk_mut()?;
        *field = value.to_be_bytes();
        batch.set_checksum(index, left);
        batch.count_summed(read);
        Some(())
    }
}

#[cfg(test)]
mod tests;
