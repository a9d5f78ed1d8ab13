//! Arguments of system calls.

use crate::evaluate::{int32, integer, member};
use crate::flow::{Flow, Stage};
use crate::run::Runner;
use crate::run::contents::our_bytes;
use crate::script::{self, Expression};
use core::net::{IpAddr, SocketAddr};
use posix::abi::{AF_UNSPEC, MSG_FASTOPEN, SHUT_RD};
use posix::{Address, Call, EpollEvent, Fd, PollEntry};

type Prepared = Result<Call, String>;

impl Runner<'_> {
    /// The call with live values.
    pub(in crate::run) fn prepare(&mut self, call: &script::Call) -> Prepared {
        let arguments = call.arguments.as_slice();
        let wrong = || format!("{}() does not take these arguments", call.name);
        match (call.name.as_str(), arguments) {
            ("socket", [domain, kind, protocol]) => Ok(Call::Socket {
                domain: match domain {
                    Expression::Ellipsis => self.domain().into(),
                    other => int32(other)?,
                },
                kind: int32(kind)?,
                protocol: int32(protocol)?,
            }),
            ("bind", [fd, address, _]) => {
                let port = port_of(address)?.unwrap_or(self.config.bind_port);
                let address = self.address(self.config.local, port);
                self.bound(fd, port)?;
                Ok(Call::Bind { fd: self.fd(fd)?, address })
            }
            ("listen", [fd, backlog]) => {
                self.set_stage(fd, Stage::Listening)?;
                Ok(Call::Listen { fd: self.fd(fd)?, backlog: int32(backlog)? })
            }
            ("accept", [fd, ..]) => Ok(Call::Accept { fd: self.fd(fd)? }),
            ("connect", [fd, address, ..]) => self.connect(fd, address),
            ("shutdown", [fd, how]) => {
                let how = if *how == Expression::Ellipsis { SHUT_RD } else { int32(how)? };
                Ok(Call::Shutdown { fd: self.fd(fd)?, how })
            }
            ("close", [fd]) => {
                let live = self.fd(fd)?;
                self.fds.remove(&integer(fd)?);
                Ok(Call::Close { fd: live })
            }
            ("read", [fd, _, len]) if *len == Expression::Integer(0) => {
                Ok(Call::ReadNothing { fd: self.fd(fd)? })
            }
            ("read", [fd, _, len]) => self.receive(fd, len, None),
            ("recv" | "recvfrom", [fd, _, len, flags, ..]) => self.receive(fd, len, Some(flags)),
            ("readv", [fd, Expression::List(vector), _]) => Ok(match vector_len(vector)? {
                0 => Call::ReadNothing { fd: self.fd(fd)? },
                len => Call::Receive { fd: self.fd(fd)?, len, flags: 0 },
            }),
            ("recvmsg", [fd, Expression::Braces(message), flags]) => Ok(Call::Receive {
                fd: self.fd(fd)?,
                len: vector_len(vector_of(message)?)?,
                flags: int32(flags)?,
            }),
            ("getsockopt", [fd, level, name, _, len]) => Ok(Call::GetOption {
                fd: self.fd(fd)?,
                level: int32(level)?,
                name: int32(name)?,
                len: if *len == Expression::Ellipsis { 1_024 } else { integer(len)? as usize },
            }),
            ("setsockopt", [fd, level, name, value, len]) => Ok(Call::SetOption {
                fd: self.fd(fd)?,
                level: int32(level)?,
                name: int32(name)?,
                value: option_value(value, integer(len)? as usize)?,
            }),
            _ => match self.prepare_more(call)? {
                Some(call) => Ok(call),
                None => Err(wrong()),
            },
        }
    }

    fn prepare_write(&mut self, call: &script::Call) -> Result<Option<Call>, String> {
        let written = |runner: &Self| match call.arguments.first() {
            Some(fd) => runner.fd(fd).map(|fd| runner.place_to_write(fd)),
            None => Ok(0),
        };
        Ok(Some(match (call.name.as_str(), call.arguments.as_slice()) {
            ("write", [fd, data, len]) => {
                self.send(fd, bytes(data, len, written(self)?)?, None, None)?
            }
            ("send", [fd, data, len, flags]) => {
                self.send(fd, bytes(data, len, written(self)?)?, Some(flags), None)?
            }
            ("sendto", [fd, data, len, flags, address, ..]) => {
                self.send(fd, bytes(data, len, written(self)?)?, Some(flags), Some(address))?
            }
            ("writev", [fd, Expression::List(vector), _]) => {
                self.send(fd, vector_bytes(vector, written(self)?)?, None, None)?
            }
            ("sendmsg", [fd, Expression::Braces(message), flags]) => {
                let name = member(message, "msg_name").cloned();
                let bytes = vector_bytes(vector_of(message)?, written(self)?)?;
                self.send(fd, bytes, Some(flags), name.as_ref())?
            }
            ("sendfile", [fd, file, offset, count]) => {
                let file = self.files.get(&integer(file)?).ok_or("no such file")?;
                let from = integer(offset)? as usize;
                let count = integer(count)? as usize;
                let bytes = file.iter().skip(from).take(count).copied().collect();
                self.send(fd, bytes, None, None)?
            }
            _ => return Ok(None),
        }))
    }

    fn prepare_more(&mut self, call: &script::Call) -> Result<Option<Call>, String> {
        if let Some(call) = self.prepare_write(call)? {
            return Ok(Some(call));
        }
        Ok(Some(match (call.name.as_str(), call.arguments.as_slice()) {
            ("poll", [Expression::List(entries), _, timeout]) => Call::Poll {
                entries: entries.iter().map(|e| self.poll_entry(e)).collect::<Result<_, _>>()?,
                timeout_ms: int32(timeout)?,
            },
            ("epoll_create", [size]) => Call::EpollCreate { size: int32(size)? },
            ("epoll_ctl", [epoll, operation, fd, event]) => Call::EpollControl {
                epoll: self.fd(epoll)?,
                operation: int32(operation)?,
                fd: self.fd(fd)?,
                event: match event {
                    Expression::Braces(event) => self.epoll_event(event)?,
                    _ => EpollEvent::default(),
                },
            },
            ("epoll_wait", [epoll, _, events_max, timeout]) => Call::EpollWait {
                epoll: self.fd(epoll)?,
                events_max: int32(events_max)?,
                timeout_ms: int32(timeout)?,
            },
            ("fcntl", [fd, command, rest @ ..]) => Call::Fcntl {
                fd: self.fd(fd)?,
                command: int32(command)?,
                argument: rest.first().map_or(Ok(0), integer)?,
            },
            ("ioctl", [fd, request, rest @ ..]) => Call::Ioctl {
                fd: self.fd(fd)?,
                request: integer(request)? as u64,
                argument: match rest.first() {
                    None | Some(Expression::Ellipsis) => 0,
                    Some(argument) => int32(argument)?,
                },
            },
            ("pipe", [_]) => Call::Pipe,
            ("splice", [from, from_at, to, to_at, len, flags]) => Call::Splice {
                from: self.fd(from)?,
                to: self.fd(to)?,
                offsets: integer(from_at)? != 0 || integer(to_at)? != 0,
                len: integer(len)? as usize,
                flags: int32(flags)?.cast_unsigned(),
            },
            _ => return Ok(None),
        }))
    }

    /// The live descriptor; one that the script never opened stays as it is, to be refused.
    pub(in crate::run) fn fd(&self, fd: &Expression) -> Result<Fd, String> {
        let script = integer(fd)?;
        match self.fds.get(&script) {
            Some(live) => Ok(*live),
            None => Ok(-1),
        }
    }

    fn address(&self, ip: IpAddr, port: u16) -> Address {
        let ip = match (ip, self.domain() == posix::abi::AF_INET6) {
            (IpAddr::V4(ip), true) => IpAddr::V6(ip.to_ipv6_mapped()),
            (ip, _) => ip,
        };
        Address::Inet(SocketAddr::new(ip, port))
    }

    /// The flow of a socket takes the port it is bound to.
    fn bound(&mut self, fd: &Expression, port: u16) -> Result<(), String> {
        let live = self.fd(fd)?;
        if let Some(flow) = self.flows.iter_mut().find(|flow| flow.fd == Some(live)) {
            flow.local.set_port(port);
        }
        Ok(())
    }

    fn set_stage(&mut self, fd: &Expression, stage: Stage) -> Result<(), String> {
        let live = self.fd(fd)?;
        if let Some(index) = self.flows.iter().position(|flow| flow.fd == Some(live)) {
            self.flows[index].stage = stage;
            self.current = Some(index);
        }
        Ok(())
    }

    fn connect(&mut self, fd: &Expression, address: &Expression) -> Prepared {
        let live = self.fd(fd)?;
        let is_unspecified = match address {
            Expression::Braces(address) => {
                member(address, "sa_family").map(integer).transpose()? == Some(AF_UNSPEC.into())
            }
            Expression::Ellipsis => false,
            other => integer(other)? == i64::from(AF_UNSPEC),
        };
        if is_unspecified {
            self.set_stage(fd, Stage::New)?;
            return Ok(Call::Connect { fd: live, address: Address::Unspecified });
        }
        let port = port_of(address)?.unwrap_or(self.config.connect_port);
        self.connecting(live, port);
        let opens = |flow: &&mut Flow| flow.fd == Some(live) && flow.stage == Stage::Connecting;
        if let Some(flow) = self.flows.iter_mut().find(opens) {
            flow.written.clear();
            flow.read_count = 0;
        }
        Ok(Call::Connect { fd: live, address: self.address(self.config.remote, port) })
    }

    /// The next SYN is this socket's.
    fn connecting(&mut self, live: Fd, port: u16) {
        let Some(index) = self.flows.iter().position(|flow| flow.fd == Some(live)) else { return };
        let flow = &mut self.flows[index];
        if flow.stage == Stage::New || flow.is_unanswered() {
            flow.stage = Stage::Connecting;
            flow.remote.set_port(port);
            self.current = Some(index);
        }
    }

    fn receive(
        &mut self,
        fd: &Expression,
        len: &Expression,
        flags: Option<&Expression>,
    ) -> Prepared {
        Ok(Call::Receive {
            fd: self.fd(fd)?,
            len: usize::try_from(integer(len)?).map_err(|_| "a negative length")?,
            flags: flags.map_or(Ok(0), int32)?,
        })
    }

    fn send(
        &mut self,
        fd: &Expression,
        bytes: Vec<u8>,
        flags: Option<&Expression>,
        to: Option<&Expression>,
    ) -> Prepared {
        let live = self.fd(fd)?;
        let flags = flags.map_or(Ok(0), int32)?;
        let flow = self.flows.iter().find(|flow| flow.fd == Some(live));
        let is_udp = flow.is_some_and(|flow| flow.is_udp);
        let is_unspecified = matches!(to, Some(Expression::Word(word)) if flags & MSG_FASTOPEN != 0 && word == "AF_UNSPEC");
        let mut address = is_unspecified.then_some(Address::Unspecified);
        if let Some(to) = to
            && (is_udp || flags & MSG_FASTOPEN != 0)
            && !matches!(to, Expression::Integer(0) | Expression::Word(_))
        {
            let port = port_of(to)?.unwrap_or(self.config.connect_port);
            address = Some(self.address(self.config.remote, port));
            self.connecting(live, port);
        }
        self.on_write(live, &bytes);
        Ok(Call::Send { fd: live, bytes, flags, to: address, control: Vec::new() })
    }

    fn poll_entry(&self, entry: &Expression) -> Result<PollEntry, String> {
        let Expression::Braces(entry) = entry else { return Err("expected {fd=...}".to_owned()) };
        let fd = member(entry, "fd").ok_or("an entry of poll has an fd")?;
        let events = member(entry, "events").ok_or("an entry of poll has events")?;
        let script_fd = integer(fd)?;
        let fd = if script_fd < 0 { -1 } else { self.fd(fd)? };
        // Linux looks at a descriptor that is not open, and says so.
        let fd = if fd < 0 && script_fd >= 0 { 1_000_000 } else { fd };
        Ok(PollEntry { fd, events: integer(events)? as i16, revents: 0 })
    }

    pub(in crate::run) fn epoll_event(&self, event: &[Expression]) -> Result<EpollEvent, String> {
        let events = member(event, "events").map_or(Ok(0), integer)?;
        let fd = member(event, "fd").map(|fd| self.fd(fd)).transpose()?;
        let other = ["ptr", "u32", "u64"].iter().find_map(|name| member(event, name));
        let other = other.map(integer).transpose()?;
        let data = fd.map_or(other.unwrap_or(0), i64::from);
        Ok(EpollEvent { events: events as u32, data: data as u64 })
    }
}

/// The port in a socket address; `None` for `...`.
fn port_of(address: &Expression) -> Result<Option<u16>, String> {
    let Expression::Braces(members) = address else { return Ok(None) };
    let port = member(members, "sin_port").map(integer).transpose()?;
    Ok(port.and_then(|port| u16::try_from(port).ok()))
}

/// What is written: text as it is, for `...` what the runner has for that place of the stream.
fn bytes(data: &Expression, len: &Expression, place: u32) -> Result<Vec<u8>, String> {
    let len = usize::try_from(integer(len)?).map_err(|_| "a negative length")?;
    let mut bytes = match data {
        Expression::Text(text) => text.clone(),
        _ => our_bytes(place, len),
    };
    bytes.resize(len, 0);
    Ok(bytes)
}

/// The vector of a message.
fn vector_of(message: &[Expression]) -> Result<&[Expression], String> {
    match member(message, "msg_iov") {
        Some(Expression::List(vector)) => Ok(vector),
        _ => Err("a message has msg_iov(n)=[...]".to_owned()),
    }
}

fn vector_bytes(vector: &[Expression], place: u32) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    for item in vector {
        match item {
            Expression::Braces(pair) if pair.len() == 2 => {
                let place = place.wrapping_add(all.len() as u32);
                all.extend(bytes(&pair[0], &pair[1], place)?);
            }
            _ => return Err("expected {..., length}".to_owned()),
        }
    }
    Ok(all)
}

fn vector_len(vector: &[Expression]) -> Result<usize, String> {
    vector_bytes(vector, 0).map(|bytes| bytes.len())
}

/// The bytes of an option's value.
fn option_value(value: &Expression, len: usize) -> Result<Vec<u8>, String> {
    let mut bytes = match value {
        Expression::Text(text) => text.clone(),
        Expression::Braces(members) => {
            let numbers = ["onoff", "linger"].map(|name| member(members, name).map(int32));
            match numbers {
                [Some(onoff), Some(linger)] => {
                    [onoff?.to_ne_bytes(), linger?.to_ne_bytes()].concat()
                }
                _ => return Err("expected {onoff=..., linger=...}".to_owned()),
            }
        }
        // Seconds and microseconds.
        Expression::List(pair) if pair.len() == 2 && len == 16 => {
            [integer(&pair[0])?.to_ne_bytes(), integer(&pair[1])?.to_ne_bytes()].concat()
        }
        Expression::Function(name, arguments) if name == "inet6_addr" => match &arguments[..] {
            [Expression::Text(text)] => {
                let text = String::from_utf8_lossy(text);
                let address: core::net::Ipv6Addr =
                    text.parse().map_err(|_| format!("{text:?} is no IPv6 address"))?;
                address.octets().to_vec()
            }
            _ => return Err("inet6_addr takes a string".to_owned()),
        },
        other => int32(other)?.to_ne_bytes().to_vec(),
    };
    bytes.resize(len, 0);
    Ok(bytes)
}
