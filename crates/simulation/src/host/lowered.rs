//! A device that takes blocks which are cut into frames below.

use batch::Multidata;
use device::lowering::{self, Contiguous};

/// The frames of the first `wanted` packets of a batch as they come out of blocks; `None` where a block is
/// not what it says.
pub(super) fn cut(batch: &Multidata, wanted: usize, form: Contiguous) -> Option<Vec<Vec<u8>>> {
    let mut frames = Vec::new();
    for block in lowering::blocks(batch, 0..wanted, form, 0) {
        let mut bytes = vec![0; block.len_bytes];
        block.lay_out(batch, &mut bytes)?;
        block.insert_headers(&mut bytes)?;
        for frame in block.frames() {
            let mut packet = bytes.get(frame.range)?.to_vec();
            if let Some(partial) = frame.checksum {
                let offset = usize::from(partial.transport_offset);
                lowering::complete_checksum(&mut packet, offset, partial.field_offset)?;
            }
            frames.push(packet);
        }
    }
    Some(frames)
}
