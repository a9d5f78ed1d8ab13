//! Which bytes packets and calls carry.
//!
//! A byte of the peer follows from its place in the stream, so that what a program reads says whether
//! it is what arrived: in order, cut at the right place, nothing twice. What the program writes differs
//! from place to place, too, and is kept: what a packet carries must be what was written there. A text
//! in a script stays as it is: what is written, what a segment carries (`data`), or what is read.

use super::Runner;
use crate::evaluate::int32;
use crate::live::LiveTcp;
use crate::script::{Call, Expression, Flags};
use posix::abi::{MSG_ERRQUEUE, MSG_OOB, MSG_PEEK};
use posix::{Errno, Fd, Output, Reply};
use std::collections::VecDeque;

/// Datagrams under way in one direction, and the bytes they had, which count the places of the next.
#[derive(Default)]
pub(super) struct Datagrams {
    list: Vec<Vec<u8>>,
    places: u32,
}

/// A pipe of the program: its ends, and what lies in it.
pub(super) struct Pipe {
    pub(super) ends: [Fd; 2],
    pub(super) bytes: VecDeque<u8>,
}

/// What a call under way would write, of which its return says how much it did.
pub(super) enum Writing {
    /// To the stream of a flow, which had so many bytes before.
    Stream(usize, usize),
    /// A datagram, the last of those sent.
    Datagram,
    Pipe(usize, Vec<u8>),
}

/// The byte of the peer at a place of its stream, of which the first is zero.
pub(super) fn peer_byte(place: u32) -> u8 {
    (place.wrapping_mul(0x9e37_79b1) >> 24) as u8
}

/// Bytes of the peer.
pub(super) fn peer_bytes(place: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|index| peer_byte(place.wrapping_add(index))).collect()
}

/// Bytes that the program writes where a script leaves them open; never what the peer has there.
pub(super) fn our_bytes(place: u32, len: usize) -> Vec<u8> {
    peer_bytes(place, len).into_iter().map(|byte| byte ^ 0x80).collect()
}

/// The place in the stream of a segment's first byte, in the script's numbers: one less than its
/// sequence number, and behind the SYN, whose number is absolute.
pub(super) fn place(sequence: u32, is_syn: bool) -> u32 {
    if is_syn { 0 } else { sequence.wrapping_sub(1) }
}

impl Datagrams {
    pub(super) fn push(&mut self, bytes: Vec<u8>) {
        self.places = self.places.wrapping_add(bytes.len() as u32);
        self.list.push(bytes);
    }

    /// The first datagram of so many bytes.
    pub(super) fn of_len(&self, len: usize) -> Option<&[u8]> {
        self.list.iter().map(Vec::as_slice).find(|datagram| datagram.len() == len)
    }

    /// Finds the datagram that begins with these bytes, rather one that is no longer.
    fn find(&self, bytes: &[u8]) -> Option<usize> {
        let whole = self.list.iter().position(|datagram| datagram == bytes);
        whole.or_else(|| self.list.iter().position(|datagram| datagram.starts_with(bytes)))
    }
}

impl Runner<'_> {
    /// The payload of a datagram that arrives.
    pub(super) fn arriving_datagram(&mut self, len: usize) -> Vec<u8> {
        let bytes = peer_bytes(self.arrived.places, len);
        self.arrived.push(bytes.clone());
        bytes
    }

    /// The place of what is written next to a descriptor.
    pub(super) fn place_to_write(&self, fd: Fd) -> u32 {
        match self.flows.iter().find(|flow| flow.fd == Some(fd)) {
            Some(flow) if flow.is_udp => self.sent.places,
            Some(flow) => flow.written.len() as u32,
            None => 0,
        }
    }

    /// A call is about to write. What it does not take it gives back with its return.
    pub(super) fn on_write(&mut self, fd: Fd, bytes: &[u8]) {
        self.writing = None;
        if let Some(index) = self.pipes.iter().position(|pipe| pipe.ends[1] == fd) {
            self.writing = Some(Writing::Pipe(index, bytes.to_vec()));
        } else if let Some(index) = self.flows.iter().position(|flow| flow.fd == Some(fd)) {
            let flow = &mut self.flows[index];
            self.writing = Some(match flow.is_udp {
                true => {
                    self.sent.push(bytes.to_vec());
                    Writing::Datagram
                }
                false => {
                    let before = flow.written.len();
                    flow.written.extend_from_slice(bytes);
                    Writing::Stream(index, before)
                }
            });
        }
    }

    /// A call has returned: what it wrote is kept, and what it read compared.
    pub(super) fn on_return(
        &mut self,
        call: &Call,
        returned: &Result<Reply, Errno>,
    ) -> Result<(), String> {
        let taken = returned.as_ref().map_or(0, |reply| usize::try_from(reply.value).unwrap_or(0));
        match self.writing.take() {
            Some(Writing::Stream(index, before)) => {
                self.flows[index].written.truncate(before + taken);
            }
            Some(Writing::Datagram) if returned.is_err() => {
                self.sent.list.pop();
            }
            Some(Writing::Pipe(index, bytes)) => {
                self.pipes[index].bytes.extend(&bytes[..taken.min(bytes.len())]);
            }
            Some(Writing::Datagram) | None => {}
        }
        let Ok(reply) = returned else { return Ok(()) };
        match (call.name.as_str(), &reply.output) {
            ("splice", _) => {
                let (from, to) = (self.argument_fd(call, 0)?, self.argument_fd(call, 2)?);
                self.on_splice(from, to, taken);
                Ok(())
            }
            (name, Output::Received { bytes, .. }) => {
                let at = match name {
                    "recv" | "recvfrom" => Some(3),
                    "recvmsg" => Some(2),
                    _ => None,
                };
                let flags = at.and_then(|at| call.arguments.get(at)).map_or(Ok(0), int32)?;
                let fd = self.argument_fd(call, 0)?;
                let read = self.on_read(fd, bytes, taken, flags);
                // A text is what the script says was read, and compared with the rest of the reply.
                if matches!(call.arguments.get(1), Some(Expression::Text(_))) {
                    Ok(())
                } else {
                    read
                }
            }
            _ => Ok(()),
        }
    }

    fn argument_fd(&self, call: &Call, index: usize) -> Result<Fd, String> {
        call.arguments.get(index).map_or(Ok(-1), |fd| self.fd(fd))
    }

    fn on_splice(&mut self, from: Fd, to: Fd, count: usize) {
        let moved: Vec<u8> = match self.pipes.iter_mut().find(|pipe| pipe.ends[0] == from) {
            Some(pipe) => pipe.bytes.drain(..count.min(pipe.bytes.len())).collect(),
            None => match self.flows.iter_mut().find(|flow| flow.fd == Some(from)) {
                Some(flow) => {
                    flow.read_count = flow.read_count.wrapping_add(count as u32);
                    peer_bytes(flow.read_count.wrapping_sub(count as u32), count)
                }
                None => return,
            },
        };
        if let Some(pipe) = self.pipes.iter_mut().find(|pipe| pipe.ends[1] == to) {
            pipe.bytes.extend(moved);
        } else if let Some(flow) = self.flows.iter_mut().find(|flow| flow.fd == Some(to)) {
            flow.written.extend(moved);
        }
    }

    fn on_read(&mut self, fd: Fd, bytes: &[u8], taken: usize, flags: i32) -> Result<(), String> {
        if flags & (MSG_OOB | MSG_ERRQUEUE) != 0 {
            return Ok(());
        }
        let stays = flags & MSG_PEEK != 0;
        if let Some(pipe) = self.pipes.iter_mut().find(|pipe| pipe.ends[0] == fd) {
            let wanted: Vec<u8> = pipe.bytes.drain(..bytes.len().min(pipe.bytes.len())).collect();
            return compare("read", 0, &wanted, bytes);
        }
        let Some(flow) = self.flows.iter_mut().find(|flow| flow.fd == Some(fd)) else {
            return Ok(());
        };
        if flow.is_udp {
            let index = self.arrived.find(bytes);
            if bytes.is_empty() && index.is_none_or(|index| !self.arrived.list[index].is_empty()) {
                // The end, after shutdown(2), which is no datagram.
                return Ok(());
            }
            let Some(index) = index else {
                return Err("what was read is of no datagram that arrived".to_owned());
            };
            if !stays {
                self.arrived.list.remove(index);
            }
            return Ok(());
        }
        let place = flow.read_count;
        if !stays {
            flow.read_count = place.wrapping_add(taken as u32);
        }
        compare("read", place, &peer_bytes(place, bytes.len()), bytes)
    }

    /// Whether a segment carries what the program wrote to that place of its stream.
    pub(super) fn check_segment(&self, index: usize, tcp: &LiveTcp) -> Result<(), String> {
        let written = &self.flows[index].written;
        let place = place(tcp.sequence, tcp.has(Flags::SYN));
        let from = written.len().min(place as usize);
        let until = written.len().min(from + tcp.payload.len());
        compare("sent", place, &written[from..until], &tcp.payload)
    }

    /// Whether a datagram is one that the program sent.
    pub(super) fn check_datagram(&mut self, payload: &[u8]) -> Result<(), String> {
        match self.sent.list.iter().position(|sent| sent == payload) {
            Some(index) => {
                self.sent.list.remove(index);
                Ok(())
            }
            None => Err("the payload is of no datagram that the program sent".to_owned()),
        }
    }
}

pub(super) fn compare(what: &str, place: u32, wanted: &[u8], found: &[u8]) -> Result<(), String> {
    if wanted == found {
        return Ok(());
    }
    let equal = wanted.iter().zip(found).take_while(|(wanted, found)| wanted == found).count();
    let shown = |bytes: &[u8]| match bytes.get(equal) {
        Some(byte) => format!("{byte:#04x}"),
        None => "nothing".to_owned(),
    };
    Err(format!(
        "the bytes that were {what}: at place {} of the stream expected {}, was {}",
        place.wrapping_add(equal as u32),
        shown(wanted),
        shown(found)
    ))
}
