//! System calls and what they return, as data.

use crate::{Address, ControlMessage};

/// A file descriptor.
pub type Fd = i32;

/// A system call. Lengths of what is read are totals: a vector of buffers is filled by the caller
/// from the bytes that come back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the arguments are the system's")]
pub enum Call {
    Socket {
        domain: i32,
        kind: i32,
        protocol: i32,
    },
    Bind {
        fd: Fd,
        address: Address,
    },
    Listen {
        fd: Fd,
        backlog: i32,
    },
    Accept {
        fd: Fd,
    },
    Connect {
        fd: Fd,
        address: Address,
    },
    /// read and readv of no bytes at all, which look at nothing; recv of none waits as others do.
    ReadNothing {
        fd: Fd,
    },
    /// read, readv, recv, recvfrom and recvmsg.
    Receive {
        fd: Fd,
        len: usize,
        flags: i32,
    },
    /// write, writev, send, sendto and sendmsg.
    Send {
        fd: Fd,
        bytes: Vec<u8>,
        flags: i32,
        to: Option<Address>,
        control: Vec<ControlMessage>,
    },
    Fcntl {
        fd: Fd,
        command: i32,
        argument: i64,
    },
    Ioctl {
        fd: Fd,
        request: u64,
        argument: i32,
    },
    Close {
        fd: Fd,
    },
    Shutdown {
        fd: Fd,
        how: i32,
    },
    GetOption {
        fd: Fd,
        level: i32,
        name: i32,
        len: usize,
    },
    SetOption {
        fd: Fd,
        level: i32,
        name: i32,
        value: Vec<u8>,
    },
    Poll {
        entries: Vec<PollEntry>,
        timeout_ms: i32,
    },
    EpollCreate {
        size: i32,
    },
    EpollControl {
        epoll: Fd,
        operation: i32,
        fd: Fd,
        event: EpollEvent,
    },
    EpollWait {
        epoll: Fd,
        events_max: i32,
        timeout_ms: i32,
    },
    Pipe,
    /// `offsets` says whether any offset was given, which neither pipes nor sockets have.
    Splice {
        from: Fd,
        to: Fd,
        offsets: bool,
        len: usize,
        flags: u32,
    },
}

/// One entry of poll(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollEntry {
    /// The descriptor; a negative one is passed over.
    pub fd: Fd,
    /// What is asked for.
    pub events: i16,
    /// What is the case.
    pub revents: i16,
}

/// `struct epoll_event`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpollEvent {
    /// Event bits and flags.
    pub events: u32,
    /// The caller's own.
    pub data: u64,
}

/// What a call that succeeded returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The return value.
    pub value: i64,
    /// What it wrote to the caller's memory.
    pub output: Output,
}

/// What a call wrote to the caller's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Output {
    Nothing,
    /// Bytes read, where they came from, flags as in `msg_flags`, and control messages, where the program asked to be told
    /// more or read the error queue.
    Received {
        bytes: Vec<u8>,
        from: Option<Address>,
        flags: i32,
        control: Vec<ControlMessage>,
    },
    Address(Address),
    /// The value of an option.
    Value(Vec<u8>),
    /// What an ioctl wrote.
    Integer(i32),
    Polled(Vec<PollEntry>),
    Epoll(Vec<EpollEvent>),
    Pipe([Fd; 2]),
}

impl Reply {
    /// A bare return value.
    #[must_use]
    pub fn value(value: i64) -> Self {
        Self { value, output: Output::Nothing }
    }

    /// Bytes that were read, and nothing besides.
    #[must_use]
    pub fn bytes(bytes: Vec<u8>) -> Self {
        let value = bytes.len() as i64;
        Self {
            value,
            output: Output::Received { bytes, from: None, flags: 0, control: Vec::new() },
        }
    }
}
