//! The rules of TCP for a segment alone, whatever its connection.

use super::Broken;
use crate::packet::{Segment, flag};

/// Judges what needs no knowledge of the connection. `ecn` is the two bits of the network header.
pub(super) fn judge(segment: &Segment<'_>, ecn: u8) -> Result<(), Broken> {
    let options = &segment.options;
    let text = || segment.to_string();
    if segment.has(flag::SYN) && (segment.has(flag::FIN) || segment.has(flag::RST)) {
        return Err(("RFC 9293, 3.5: a SYN is neither FIN nor RST", text()));
    }
    if !segment.has(flag::ACK) && !segment.has(flag::SYN) && !segment.has(flag::RST) {
        return Err(("RFC 9293, 3.1: an established connection always sends ACK", text()));
    }
    if segment.has(flag::RST) && !segment.payload.is_empty() {
        return Err(("RFC 9293, 3.5.2: resets of this stack carry nothing", text()));
    }
    let only_in_syn =
        options.mss.is_some() || options.window_scale.is_some() || options.sack_permitted;
    if only_in_syn && !segment.has(flag::SYN) {
        return Err(("RFC 9293, 3.7.1, RFC 7323, 2.2, RFC 2018, 2: options of SYNs only", text()));
    }
    if options.window_scale.is_some_and(|shift| shift > 14) {
        return Err(("RFC 7323, 2.3: a shift of 14 at most", text()));
    }
    if options.fast_open.is_some() && !segment.has(flag::SYN) {
        return Err(("RFC 7413, 4.1.1: fast open is an option of SYNs only", text()));
    }
    if segment.has(flag::SYN) && options.sack.iter().any(Option::is_some) {
        return Err(("RFC 2018, 3: no SACK blocks in a SYN", text()));
    }
    if ecn != 0 && (segment.has(flag::SYN) || segment.has(flag::RST)) {
        return Err(("RFC 3168, 6.1.1: SYNs and resets are not ECN-capable", text()));
    }
    if ecn != 0 && segment.payload.is_empty() {
        return Err(("RFC 3168, 6.1.4: segments without data are not ECN-capable", text()));
    }
    Ok(())
}
