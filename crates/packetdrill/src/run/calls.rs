//! System calls: from the script's notation to a [`posix::Call`], and the check of what it returned.

mod arguments;
mod returned;

use super::{Due, Runner};
use crate::evaluate::{errno, errno_name, int32, integer};
use crate::flow::Stage;
use crate::script::{Call, Expression};
use posix::{Address, Errno, Output, Reply};
use std::path::Path;

/// Stands for the descriptor of a flow whose socket the program has closed.
const CLOSED: posix::Fd = -1;

impl Runner<'_> {
    pub(super) fn system_call(&mut self, call: &Call, due: Due) -> Result<(), String> {
        if let Some(end_us) = call.ends_us {
            // The end is on the same scale as the beginning.
            return self.begin_call(call, due, due.base_us + end_us);
        }
        self.finish_pending(None)?;
        if self.is_runners_own(call)? {
            return Ok(());
        }
        let live = self.prepare(call)?;
        let returned = self.backend.call(live)?;
        let result = self.check_return(call, returned);
        result.map_err(|why| format!("{}(): {why}", call.name))
    }

    /// Compares what a call returned with what the script says it returns.
    pub(super) fn check_return(
        &mut self,
        call: &Call,
        returned: Result<Reply, Errno>,
    ) -> Result<(), String> {
        let contents = self.on_return(call, &returned);
        let wanted = match &call.result {
            Expression::Ellipsis => None,
            expression => Some(integer(expression)?),
        };
        let makes_fd = matches!(call.name.as_str(), "socket" | "accept" | "epoll_create");
        let was = match &returned {
            Ok(reply) => format!("{}", reply.value),
            Err(number) => format!("-1 {}", errno_name(number.0)),
        };
        match (&returned, wanted) {
            (_, None) => {}
            (Ok(_), Some(0..)) if makes_fd => {}
            (Ok(reply), Some(wanted)) if reply.value == wanted => {}
            (Err(_), Some(-1)) => {}
            (_, Some(wanted)) => {
                let name = call.errno.as_deref().unwrap_or("");
                return Err(format!("expected {wanted} {name}, returned {was}"));
            }
        }
        if let Some(name) = &call.errno {
            let number = errno(name).ok_or_else(|| format!("{name} is no error"))?;
            match returned {
                Err(found) if found.0 == number => return Ok(()),
                Err(_) => return Err(format!("expected -1 {name}, returned {was}")),
                Ok(_) => {}
            }
        }
        contents?;
        match returned {
            Ok(reply) => self.take_reply(call, &reply),
            Err(_) => Ok(()),
        }
    }

    /// Calls that concern the runner rather than the stack under test: files and capabilities.
    fn is_runners_own(&mut self, call: &Call) -> Result<bool, String> {
        match (call.name.as_str(), call.arguments.as_slice()) {
            ("cap_set", _) => Ok(true),
            ("open", [Expression::Text(path), ..]) => {
                let path = String::from_utf8_lossy(path).into_owned();
                let bytes = std::fs::read(Path::new(&path))
                    .map_err(|error| format!("open({path:?}): {error}"))?;
                self.files.insert(integer(&call.result)?, bytes);
                Ok(true)
            }
            ("close", [fd]) => Ok(self.files.remove(&integer(fd)?).is_some()),
            _ => Ok(false),
        }
    }

    /// What a call changes in the runner's idea of sockets.
    pub(super) fn on_socket(&mut self, call: &Call, reply: &Reply) -> Result<(), String> {
        let script_fd = integer(&call.result)?;
        let live = i32::try_from(reply.value).map_err(|_| "a descriptor beyond 32 bits")?;
        if self.fds.contains_key(&script_fd) {
            return Err(format!("descriptor {script_fd} is in use in the script"));
        }
        self.fds.insert(script_fd, live);
        // A descriptor that was closed is given out again: it is not the old flow's any more.
        for flow in self.flows.iter_mut().filter(|flow| flow.fd == Some(live)) {
            flow.fd = Some(CLOSED);
        }
        match call.name.as_str() {
            "socket" => {
                let kind = call.arguments.get(1).map(int32).transpose()?.unwrap_or(0);
                self.socket_flow(live, kind & 0xf == posix::abi::SOCK_DGRAM);
            }
            "accept" => {
                // Where the backend tells whose the connection is: another may have opened first.
                let port = match &reply.output {
                    Output::Address(Address::Inet(remote)) => Some(remote.port()),
                    _ => None,
                };
                let waiting = |flow: &&mut crate::flow::Flow| {
                    flow.fd.is_none()
                        && flow.stage == Stage::Open
                        && !flow.is_udp
                        && port.is_none_or(|port| flow.remote.port() == port)
                };
                if let Some(flow) = self.flows.iter_mut().find(waiting) {
                    flow.fd = Some(live);
                    flow.written.clear();
                    flow.read_count = 0;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
