//! What the command shows beside its figures: a progress bar, a capture file.

use indicatif::{ProgressBar, ProgressStyle};
use simulation::trace::{Captured, Way};

/// A line that says how far it is, on a terminal only.
pub(crate) fn progress(count: u64, seconds: Option<f64>) -> ProgressBar {
    let (bar, template) = match seconds {
        Some(_) => (ProgressBar::no_length(), "{spinner} {pos} seeds {elapsed} {per_sec}"),
        None => (ProgressBar::new(count), "[{pos:>2}/{len}] {bar:24} {elapsed} {eta} {per_sec}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// All frames as a pcapng file, an interface per host (the format's draft, section 4).
pub(crate) fn pcapng(frames: &[Captured], hosts: usize, ethernet: bool) -> Vec<u8> {
    let mut file = Vec::new();
    let mut section = vec![];
    section.extend(0x1a2b_3c4d_u32.to_le_bytes());
    section.extend([1, 0, 0, 0]);
    section.extend(u64::MAX.to_le_bytes());
    block(&mut file, 0x0a0d_0d0a, &section);
    for _ in 0..hosts {
        let link_type: u16 = if ethernet { 1 } else { 101 };
        let mut interface = vec![];
        interface.extend(link_type.to_le_bytes());
        interface.extend([0; 6]);
        // if_tsresol: nanoseconds; then the end of the options.
        interface.extend([9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        block(&mut file, 1, &interface);
    }
    for frame in frames {
        let at = frame.at.as_nanos();
        let mut packet = vec![];
        packet.extend((frame.host as u32).to_le_bytes());
        packet.extend(((at >> 32) as u32).to_le_bytes());
        packet.extend((at as u32).to_le_bytes());
        packet.extend((frame.bytes.len() as u32).to_le_bytes());
        packet.extend((frame.bytes.len() as u32).to_le_bytes());
        packet.extend(&frame.bytes);
        packet.resize(packet.len().next_multiple_of(4), 0);
        // epb_flags: 1 is inbound, 2 outbound.
        let way: u32 = if frame.way == Way::In { 1 } else { 2 };
        packet.extend([2, 0, 4, 0]);
        packet.extend(way.to_le_bytes());
        packet.extend([0; 4]);
        block(&mut file, 6, &packet);
    }
    file
}

fn block(file: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let len = (body.len() + 12) as u32;
    file.extend(kind.to_le_bytes());
    file.extend(len.to_le_bytes());
    file.extend(body);
    file.extend(len.to_le_bytes());
}
