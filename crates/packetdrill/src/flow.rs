//! A connection in two worlds: as the script has it, and as it is on the wire.
//!
//! The peer's sequence numbers are the same in both. Ours differ by the initial sequence number,
//! which the script calls 0 and the stack chooses; our timestamps differ by an offset, too. Ports
//! and addresses are the runner's choice, unless the script names ports.

use crate::live::LiveTcp;
use crate::script::TcpOption;
use core::net::SocketAddr;
use posix::Fd;
use std::collections::HashMap;

/// What the runner knows of a socket that packets belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A socket was made.
    New,
    /// It listens: the next packet from outside makes a flow of its own.
    Listening,
    /// connect was called: the next SYN is its.
    Connecting,
    /// Packets flow.
    Open,
}

/// A connection, or a UDP socket.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) stage: Stage,
    pub(crate) is_udp: bool,
    /// The remote and the local port in the script, where it names them.
    pub(crate) script_ports: Option<(u16, u16)>,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// The program's descriptor, live.
    pub(crate) fd: Option<Fd>,
    /// Added to our sequence numbers on the way from the script to the wire.
    offset: Option<u32>,
    script_isn: Option<u32>,
    /// Script's to live values of our timestamps.
    timestamps: HashMap<u32, u32>,
    first_timestamp: Option<(u32, u32)>,
}

impl Flow {
    pub(crate) fn new(stage: Stage, is_udp: bool, local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            stage,
            is_udp,
            script_ports: None,
            local,
            remote,
            fd: None,
            offset: None,
            script_isn: None,
            timestamps: HashMap::new(),
            first_timestamp: None,
        }
    }

    /// The script says with which number our side begins.
    pub(crate) fn expect_isn(&mut self, script_isn: u32) {
        if self.offset.is_none() {
            self.script_isn = Some(script_isn);
        }
    }

    /// Our SYN, or SYN-ACK, was seen.
    pub(crate) fn on_isn(&mut self, live_isn: u32) {
        if let Some(script_isn) = self.script_isn.take() {
            self.offset = Some(live_isn.wrapping_sub(script_isn));
        }
    }

    fn to_live(&self, sequence: u32) -> u32 {
        sequence.wrapping_add(self.offset.unwrap_or(0))
    }

    /// Our sequence number in an ICMP error's quotation.
    pub(crate) fn quoted_sequence(&self, sequence: u32) -> u32 {
        self.to_live(sequence)
    }

    /// A segment of the script on its way to the stack.
    pub(crate) fn inbound(&self, tcp: &mut LiveTcp, scaled: bool) -> Result<(), String> {
        let has_ack = tcp.has(crate::script::Flags::ACK);
        if has_ack {
            tcp.acknowledgment = self.to_live(tcp.acknowledgment);
        }
        for option in &mut tcp.options {
            match option {
                TcpOption::Sack(blocks) => {
                    for (left, right) in blocks {
                        (*left, *right) = (self.to_live(*left), self.to_live(*right));
                    }
                }
                TcpOption::Timestamps { echo, .. } if has_ack => {
                    *echo = self.live_echo(*echo, scaled)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn live_echo(&self, echo: u32, scaled: bool) -> Result<u32, String> {
        if let Some(live) = self.timestamps.get(&echo) {
            return Ok(*live);
        }
        match self.first_timestamp {
            Some((script, live)) if scaled => Ok(echo.wrapping_sub(script).wrapping_add(live)),
            _ => Err(format!("no packet was sent before with TS val {echo}, to be echoed")),
        }
    }

    /// A segment of the stack, put into the script's numbers. `expected` is the TSval that the
    /// script has in its place.
    pub(crate) fn outbound(&mut self, tcp: &mut LiveTcp, expected: Option<u32>) {
        tcp.sequence = tcp.sequence.wrapping_sub(self.offset.unwrap_or(0));
        for option in &mut tcp.options {
            if let TcpOption::Timestamps { value, .. } = option
                && let Some(script) = expected
            {
                self.timestamps.insert(script, *value);
                let (first_script, first_live) =
                    *self.first_timestamp.get_or_insert((script, *value));
                *value = value.wrapping_sub(first_live).wrapping_add(first_script);
            }
        }
    }
}
