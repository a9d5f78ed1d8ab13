//! A connection in two worlds: as the script has it, and as it is on the wire.
//!
//! As packetdrill has it, and tcpdump: segments with SYN have absolute sequence numbers, all others
//! count from the SYN. The peer's initial sequence number is the script's; ours the stack chooses. Our
//! timestamps differ by an offset, too. Ports and addresses are the runner's choice, unless the script
//! names ports.

use crate::live::LiveTcp;
use crate::script::{Flags, TcpOption};
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
    /// What the program wrote to the stream.
    pub(crate) written: Vec<u8>,
    /// Bytes of the peer's stream that the program has read.
    pub(crate) read_count: u32,
    /// The longest segment that the peer takes, options included, where it said so.
    pub(crate) peer_mss: Option<u16>,
    /// With which number our side begins, in the script and on the wire once it was seen there.
    script_isn: Option<u32>,
    live_isn: Option<u32>,
    peer_isn: Option<u32>,
    /// Our SYN came first. Of several answers the last counts, up to our own.
    is_active: bool,
    has_answered: bool,
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
            written: Vec::new(),
            peer_mss: None,
            read_count: 0,
            script_isn: None,
            live_isn: None,
            peer_isn: None,
            is_active: false,
            has_answered: false,
            timestamps: HashMap::new(),
            first_timestamp: None,
        }
    }

    /// The script says with which number our side begins.
    pub(crate) fn expect_isn(&mut self, script_isn: u32) {
        if self.live_isn.is_none() {
            self.script_isn = Some(script_isn);
            self.is_active = self.peer_isn.is_none();
        }
    }

    /// A new SYN is ours: what one before it began with does not count any more.
    pub(crate) fn forget_isn(&mut self) {
        self.live_isn = None;
    }

    /// Nothing came for a SYN of ours yet, so that the socket may have left it and send another.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.is_active && self.peer_isn.is_none()
    }

    /// Our SYN, or SYN-ACK, was seen.
    pub(crate) fn on_isn(&mut self, live_isn: u32) {
        if self.script_isn.is_some() && self.live_isn.is_none() {
            self.live_isn = Some(live_isn);
        }
    }

    /// The peer's SYN is about to arrive.
    pub(crate) fn on_peer_syn(&mut self, isn: u32, options: &[TcpOption]) {
        self.peer_mss = options.iter().find_map(|option| match option {
            TcpOption::Mss(mss) => Some(*mss),
            _ => None,
        });
        if self.peer_isn.is_none() || (self.is_active && !self.has_answered) {
            self.peer_isn = Some(isn);
        }
    }

    /// What is added to our sequence numbers on the way from the script to the wire.
    fn offset(&self, is_syn: bool) -> u32 {
        let script_isn = self.script_isn.filter(|_| is_syn).unwrap_or(0);
        self.live_isn.map_or(0, |live_isn| live_isn.wrapping_sub(script_isn))
    }

    /// The same for the peer's.
    fn peer_offset(&self, is_syn: bool) -> u32 {
        self.peer_isn.filter(|_| !is_syn).unwrap_or(0)
    }

    /// Our sequence number in an ICMP error's quotation.
    pub(crate) fn quoted_sequence(&self, sequence: u32) -> u32 {
        sequence.wrapping_add(self.offset(false))
    }

    /// A segment of the script on its way to the stack.
    pub(crate) fn inbound(&self, tcp: &mut LiveTcp, scaled: bool) -> Result<(), String> {
        let (has_ack, is_syn) = (tcp.has(Flags::ACK), tcp.has(Flags::SYN));
        let offset = self.offset(is_syn);
        tcp.sequence = tcp.sequence.wrapping_add(self.peer_offset(is_syn));
        if has_ack {
            tcp.acknowledgment = tcp.acknowledgment.wrapping_add(offset);
        }
        for option in &mut tcp.options {
            match option {
                TcpOption::Sack(blocks) => {
                    for (left, right) in blocks {
                        (*left, *right) = (left.wrapping_add(offset), right.wrapping_add(offset));
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
        let is_syn = tcp.has(Flags::SYN);
        self.has_answered |= !is_syn && !tcp.has(Flags::RST);
        let peer_offset = self.peer_offset(is_syn);
        tcp.sequence = tcp.sequence.wrapping_sub(self.offset(is_syn));
        if tcp.has(Flags::ACK) {
            tcp.acknowledgment = tcp.acknowledgment.wrapping_sub(peer_offset);
        }
        for option in &mut tcp.options {
            if let TcpOption::Sack(blocks) = option {
                for (left, right) in blocks {
                    *left = left.wrapping_sub(peer_offset);
                    *right = right.wrapping_sub(peer_offset);
                }
            }
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
