//! Control messages (cmsg(3)) that a program hands to sendmsg(2), and that recvmsg(2) brings.

use crate::memory;
use libc::msghdr;
use posix::{ControlMessage, Errno};

/// The most bytes of control messages (Linux: net.core.optmem_max).
const CONTROL_BYTES_MAX: usize = 131_072;

/// A message's length, level and type.
const HEADER_BYTES: usize = 16;

/// What stands in the caller's memory.
///
/// # Errors
/// `EFAULT`: it does not; `ENOBUFS`: there is too much of it; `EINVAL`: a message is shorter than its header or longer
/// than what is there.
pub(crate) unsafe fn read(header: &msghdr) -> Result<Vec<ControlMessage>, Errno> {
    let len = header.msg_controllen;
    if len > CONTROL_BYTES_MAX {
        return Err(Errno::ENOBUFS);
    }
    // SAFETY: see the module `calls`.
    parse(&unsafe { memory::read(header.msg_control, len)? })
}

fn parse(bytes: &[u8]) -> Result<Vec<ControlMessage>, Errno> {
    let (mut messages, mut rest) = (Vec::new(), bytes);
    while let Some((len, level, kind)) = head(rest) {
        let data = rest.get(HEADER_BYTES..len).ok_or(Errno::EINVAL)?;
        messages.push(ControlMessage { level, kind, data: data.to_vec() });
        rest = rest.get(len.next_multiple_of(8)..).unwrap_or(&[]);
    }
    Ok(messages)
}

/// Writes the messages for which there is room; the length that was written, and a flag where that was not enough.
pub(crate) unsafe fn give(
    header: &msghdr,
    messages: &[ControlMessage],
) -> Result<(usize, i32), Errno> {
    let room = if header.msg_control.is_null() { 0 } else { header.msg_controllen };
    let (bytes, is_cut) = emit(messages, room);
    // SAFETY: see the module `calls`.
    unsafe { memory::write(header.msg_control, &bytes)? };
    Ok((bytes.len(), if is_cut { libc::MSG_CTRUNC } else { 0 }))
}

/// The messages in the memory of the caller, and whether they were too long for it. As in the kernel: of one that does
/// not fit there is what does, where its head fits, and a shorter one behind it may.
fn emit(messages: &[ControlMessage], room: usize) -> (Vec<u8>, bool) {
    let (mut bytes, mut is_cut) = (Vec::new(), false);
    for ControlMessage { level, kind, data } in messages {
        let left = room - bytes.len();
        let whole = HEADER_BYTES + data.len();
        is_cut |= left < whole;
        if left < HEADER_BYTES {
            continue;
        }
        let end = bytes.len() + whole.next_multiple_of(8).min(left);
        let told = whole.min(left);
        bytes.extend(told.to_ne_bytes());
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(&data[..told - HEADER_BYTES]);
        bytes.resize(end, 0);
    }
    (bytes, is_cut)
}

/// What is too short for a head is passed over, as in the kernel.
fn head(bytes: &[u8]) -> Option<(usize, i32, i32)> {
    let number = |at: usize| bytes.get(at..)?.first_chunk().copied().map(i32::from_ne_bytes);
    let len = bytes.first_chunk().copied().map(u64::from_ne_bytes)?;
    // What does not fit is longer than anything.
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(CONTROL_BYTES_MAX + 1);
    Some((len, number(8)?, number(12)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: u64, level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn messages_follow_each_other_at_words() {
        let mut bytes = message(17, 0, 1, &[8, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(message(20, 41, 67, &[9, 0, 0, 0]));
        let of = |level, kind, data: &[u8]| ControlMessage { level, kind, data: data.to_vec() };
        assert_eq!(parse(&bytes), Ok(vec![of(0, 1, &[8]), of(41, 67, &[9, 0, 0, 0])]));
        assert_eq!(parse(&bytes[..15]), Ok(Vec::new()));
    }

    #[test]
    fn messages_are_written_as_far_as_there_is_room() {
        let of = |level, kind, data: &[u8]| ControlMessage { level, kind, data: data.to_vec() };
        let all = [of(1, 29, &[7; 16]), of(0, 8, &[8; 12]), of(0, 1, &[9])];
        let whole = [
            message(32, 1, 29, &[7; 16]),
            message(28, 0, 8, &[8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 0, 0, 0, 0]),
            message(17, 0, 1, &[9, 0, 0, 0, 0, 0, 0, 0]),
        ];
        assert_eq!(emit(&all, 100), (whole.concat(), false));
        assert_eq!(emit(&all, 88), (whole.concat(), false));
        assert_eq!(emit(&all, 60), (whole.concat()[..60].to_vec(), true));
        assert_eq!(emit(&all, 40), (whole[0].clone(), true));
        assert_eq!(emit(&all, 20), (message(20, 1, 29, &[7; 4]), true));
        assert_eq!(emit(&all, 0), (Vec::new(), true));
        assert_eq!(emit(&[], 0), (Vec::new(), false));
    }

    #[test]
    fn a_length_that_cannot_be_is_refused() {
        for len in [0, 15, 25, u64::MAX] {
            assert_eq!(parse(&message(len, 0, 1, &[0; 8])), Err(Errno::EINVAL), "{len}");
        }
    }
}
