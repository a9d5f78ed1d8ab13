//! Network headers for a run of packets, in one call.
//!
//! This is IP's whole part in the way out of a packet: every packet pays it, so nothing is computed
//! here that the [`HeaderTemplate`] could have held, and the family is looked at once per call. A
//! run keeps consecutive identifications, as Linux gives the segments of a super-frame, so that a
//! run sent packet by packet and one split below are the same bytes.

use crate::HeaderTemplate;
use crate::template::Header;
use batch::{Checksum, Multidata, Payload};
use checksum::Accumulator;
use core::ops::Range;
use wire::{Ipv4Repr, Ipv6Repr, protocol};

/// Gives the packets `packets` of the batch a network header made from `template` and fills in
/// their transport checksum where it is [`Checksum::Missing`]: complete, or with `offload` and for
/// TCP and UDP as the pseudo-header's sum, which the device completes.
///
/// `identification` is that of the next IPv4 packet and is counted on for each; IPv6 leaves it. Any
/// value will do for packets that nobody fragments (RFC 6864, 4.1); for others the counter keeps
/// 65,535 packets between two of the same number.
///
/// Returns how many were stamped. That is all of them unless one is longer than its length field
/// holds (65,535 bytes), has no headroom left, or names a checksum field outside its header: there
/// stamping ends, and this packet and those behind it must not be sent.
pub fn stamp(
    batch: &mut Multidata,
    packets: Range<usize>,
    template: &HeaderTemplate,
    identification: &mut u16,
    offload: bool,
) -> usize {
    let transport = Transport::new(template, offload);
    let mut stamped = 0;
    match &template.header {
        Header::Ipv4 { bytes, sum, .. } => {
            let head = (bytes, template.options(), *sum);
            for index in packets {
                if stamp_ipv4(batch, index, head, *identification, transport).is_none() {
                    break;
                }
                *identification = identification.wrapping_add(1);
                stamped += 1;
            }
        }
        Header::Ipv6 { bytes } => {
            for index in packets {
                if stamp_ipv6(batch, index, bytes, transport).is_none() {
                    break;
                }
                stamped += 1;
            }
        }
    }
    stamped
}

fn stamp_ipv4(
    batch: &mut Multidata,
    index: usize,
    (template, options, template_sum): (&[u8; Ipv4Repr::LEN], &[u8], u32),
    identification: u16,
    transport: Transport,
) -> Option<()> {
    let view = batch.packet(index)?;
    let (attributes, transport_len) = (view.attributes(), view.len());
    // What the template has not got already, so that the sum of both is their union.
    let ecn = attributes.ecn & 0b11 & !template[1];
    let header_len = Ipv4Repr::LEN + options.len();
    let total_len = u16::try_from(transport_len + header_len).ok()?;
    let (headers, payload) = batch.prepend_network(index, header_len)?;
    let (network, mut header) = headers.split_first_chunk_mut::<{ Ipv4Repr::LEN }>()?;
    if !options.is_empty() {
        let (place, behind) = header.split_at_mut_checked(options.len())?;
        place.copy_from_slice(options);
        header = behind;
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
    let (left, read) =
        transport.fill(attributes.checksum, header, payload, transport_len as u16)?;
    batch.set_checksum(index, left);
    batch.count_summed(read);
    Some(())
}

fn stamp_ipv6(
    batch: &mut Multidata,
    index: usize,
    template: &[u8; Ipv6Repr::LEN],
    transport: Transport,
) -> Option<()> {
    let view = batch.packet(index)?;
    let attributes = view.attributes();
    let payload_len = u16::try_from(view.len()).ok()?;
    let (headers, payload) = batch.prepend_network(index, Ipv6Repr::LEN)?;
    let (network, header) = headers.split_first_chunk_mut::<{ Ipv6Repr::LEN }>()?;
    *network = *template;
    network[1] |= (attributes.ecn & 0b11) << 4;
    network[4..6].copy_from_slice(&payload_len.to_be_bytes());
    let (left, read) = transport.fill(attributes.checksum, header, payload, payload_len)?;
    batch.set_checksum(index, left);
    batch.count_summed(read);
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

    /// Fills in the checksum of one packet and says in which state it is left, and how many bytes of
    /// payload had to be read for it. `transport_len` is that of header and payload.
    fn fill(
        self,
        state: Checksum,
        header: &mut [u8],
        payload: Payload<'_>,
        transport_len: u16,
    ) -> Option<(Checksum, usize)> {
        let Checksum::Missing { offset } = state else { return Some((state, 0)) };
        let mut sum = Accumulator::default();
        sum.add_u16(self.pseudo_sum);
        sum.add_u16(transport_len);
        let (value, left, read) = if self.offload {
            (sum.sum(), Checksum::Partial { offset }, 0)
        } else {
            sum.add(header);
            let read = payload.add_to(&mut sum);
            let checksum = sum.finish();
            (if checksum == 0 { self.zero } else { checksum }, Checksum::Complete, read)
        };
        let field = header.get_mut(usize::from(offset)..)?.first_chunk_mut()?;
        *field = value.to_be_bytes();
        Some((left, read))
    }
}

#[cfg(test)]
mod tests;
