//! What system calls wrote to the caller's memory, compared with the script.

use crate::evaluate::{int32, integer, member};
use crate::run::Runner;
use crate::run::contents::Pipe;
use crate::script::{Call, Expression};
use posix::{EpollEvent, Output, PollEntry, Reply};
use std::collections::VecDeque;

impl Runner<'_> {
    pub(super) fn take_reply(&mut self, call: &Call, reply: &Reply) -> Result<(), String> {
        let arguments = call.arguments.as_slice();
        match (call.name.as_str(), &reply.output) {
            ("socket" | "accept" | "epoll_create", _) => self.on_socket(call, reply),
            ("pipe", Output::Pipe(ends)) => {
                let (Some(Expression::List(fds)) | Some(Expression::Braces(fds))) =
                    arguments.first()
                else {
                    return Err("expected [fd, fd]".to_owned());
                };
                self.pipes.push(Pipe { ends: *ends, bytes: VecDeque::new() });
                for (script, live) in fds.iter().zip(ends) {
                    self.fds.insert(integer(script)?, *live);
                }
                Ok(())
            }
            ("read" | "recv" | "recvfrom", Output::Received { bytes, .. }) => {
                match arguments.get(1) {
                    Some(Expression::Text(text)) if !bytes.starts_with(text) && bytes != text => {
                        Err(format!("read {:?}", String::from_utf8_lossy(bytes)))
                    }
                    _ => Ok(()),
                }
            }
            ("recvmsg", Output::Received { flags, .. }) => {
                let Some(Expression::Braces(message)) = arguments.get(1) else { return Ok(()) };
                let wanted = member(message, "msg_flags").map_or(Ok(0), int32)?;
                match wanted == *flags {
                    true => Ok(()),
                    false => Err(format!("msg_flags: expected {wanted:#x}, was {flags:#x}")),
                }
            }
            ("getsockopt", Output::Value(value)) => check_option(arguments, value),
            ("ioctl", Output::Integer(value)) => match arguments.get(2) {
                Some(wanted @ (Expression::List(_) | Expression::Integer(_)))
                    if int32(wanted)? != *value =>
                {
                    Err(format!("expected [{}], was [{value}]", int32(wanted)?))
                }
                _ => Ok(()),
            },
            ("poll", Output::Polled(entries)) => check_poll(arguments, entries),
            ("epoll_wait", Output::Epoll(events)) => self.check_epoll(arguments, events),
            _ => Ok(()),
        }
    }

    fn check_epoll(&self, arguments: &[Expression], events: &[EpollEvent]) -> Result<(), String> {
        let wanted: Vec<&Expression> = match arguments.get(1) {
            Some(Expression::List(items)) => items.iter().collect(),
            Some(one @ Expression::Braces(_)) => vec![one],
            _ => return Ok(()),
        };
        for (wanted, found) in wanted.iter().zip(events) {
            let Expression::Braces(members) = wanted else { continue };
            let wanted = self.epoll_event(members)?;
            if wanted != *found {
                return Err(format!(
                    "expected events {:#x} data {}, was events {:#x} data {}",
                    wanted.events, wanted.data, found.events, found.data
                ));
            }
        }
        Ok(())
    }
}

fn check_option(arguments: &[Expression], value: &[u8]) -> Result<(), String> {
    let (Some(wanted), Some(len)) = (arguments.get(3), arguments.get(4)) else { return Ok(()) };
    if *wanted == Expression::Ellipsis {
        return Ok(());
    }
    let len = integer(len)?;
    if value.len() as i64 != len {
        return Err(format!("expected a value of {len} bytes, was {}", value.len()));
    }
    let number = |at: usize| {
        let bytes = value.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| i32::from_ne_bytes(*bytes))
    };
    let pairs = match wanted {
        Expression::Text(text) => {
            let found = value.split(|byte| *byte == 0).next().unwrap_or(value);
            let text = text.split(|byte| *byte == 0).next().unwrap_or(text);
            return match found == text {
                true => Ok(()),
                false => Err(format!("the value was {:?}", String::from_utf8_lossy(value))),
            };
        }
        Expression::Braces(members) => {
            let member = |name: &str| member(members, name).map_or(Ok(0), int32);
            vec![(member("onoff")?, number(0)), (member("linger")?, number(4))]
        }
        // Seconds and microseconds, each of 8 bytes.
        Expression::List(items) if items.len() == 2 => {
            vec![(int32(&items[0])?, number(0)), (int32(&items[1])?, number(8))]
        }
        other => vec![(int32(other)?, number(0))],
    };
    for (wanted, found) in pairs {
        if wanted != found {
            return Err(format!("the value: expected {wanted}, was {found}"));
        }
    }
    Ok(())
}

fn check_poll(arguments: &[Expression], entries: &[PollEntry]) -> Result<(), String> {
    let Some(Expression::List(wanted)) = arguments.first() else { return Ok(()) };
    for (wanted, found) in wanted.iter().zip(entries) {
        let Expression::Braces(members) = wanted else { continue };
        let revents = member(members, "revents").map_or(Ok(0), integer)? as i16;
        if revents != found.revents {
            return Err(format!("revents: expected {revents:#x}, was {:#x}", found.revents));
        }
    }
    Ok(())
}
