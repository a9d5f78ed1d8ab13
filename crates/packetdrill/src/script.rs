//! A script as it was read: options, commands and events in order.

use std::path::PathBuf;

/// A whole script.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// `--name=value` lines, without the dashes; a flag without value has an empty one.
    pub options: Vec<(String, String)>,
    /// The command in backticks before the first event.
    pub init: Option<String>,
    /// What happens, in order.
    pub events: Vec<Event>,
    /// The command in backticks after the last event.
    pub cleanup: Option<String>,
    /// The reason of a `// linux: no (reason)` line: the script says what only this stack does.
    pub not_on_linux: Option<String>,
    /// The reason of a `// batches: no (reason)` line: what arrives as one batch is answered otherwise.
    pub not_in_batches: Option<String>,
    /// Where the shell scripts lie that its commands run.
    pub directory: PathBuf,
}

/// One thing that happens or is expected.
#[derive(Clone, Debug)]
pub struct Event {
    /// Line in the script, from 1.
    pub line: usize,
    /// When.
    pub when: When,
    /// What.
    pub action: Action,
}

/// When an event happens, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Since the start of the script.
    Absolute(u64),
    /// Since the event before.
    Relative(u64),
    /// At any time: only for what is sent.
    Any,
    /// Between two times since the start.
    AbsoluteRange(u64, u64),
    /// Between two times since the event before.
    RelativeRange(u64, u64),
}

/// What an event is.
#[derive(Clone, Debug)]
pub enum Action {
    /// A packet injected, or one expected.
    Packet(Packet),
    /// A system call.
    Call(Call),
    /// A shell command.
    Command(String),
    /// Assertions over `tcp_info`.
    Code(String),
}

/// A system call with what it must return.
#[derive(Clone, Debug)]
pub struct Call {
    /// Name of the call.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<Expression>,
    /// What it returns.
    pub result: Expression,
    /// The name of the error number, where it fails.
    pub errno: Option<String>,
    /// When a call that blocks must return, on the scale of its event's time.
    pub ends_us: Option<u64>,
}

/// An argument or a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// `...`: whatever the runner provides.
    Ellipsis,
    /// A number.
    Integer(i64),
    /// The name of a constant.
    Word(String),
    /// A string.
    Text(Vec<u8>),
    /// `a | b`
    Or(Box<Expression>, Box<Expression>),
    /// `name = value`, also `name(index) = value`.
    Assign(String, Box<Expression>),
    /// `name(arguments)`, as `htons(80)` and `inet_addr("1.2.3.4")`.
    Function(String, Vec<Expression>),
    /// `[a, b]`
    List(Vec<Expression>),
    /// `{a, b}`
    Braces(Vec<Expression>),
}

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `<`: the runner injects it.
    Inbound,
    /// `>`: the stack must send it.
    Outbound,
}

/// A packet of a script.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Which way it goes.
    pub direction: Direction,
    /// What is said of the IP header.
    pub ip: IpInfo,
    /// What follows it.
    pub transport: Transport,
}

/// What must hold for the traffic class byte of an expected packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClassCheck {
    /// Anything.
    #[default]
    Any,
    /// The ECN bits are these.
    Ecn(u8),
    /// ECT(0) or ECT(1).
    Ect01,
    /// The whole byte is this.
    Byte(u8),
}

/// `[ect0]`, `[tos 0x10]`, `[ttl 64]`, `[flowlabel 0x1]`
#[derive(Clone, Copy, Debug, Default)]
pub struct IpInfo {
    /// The traffic class byte.
    pub class: ClassCheck,
    /// Time to live or hop limit.
    pub ttl: Option<u8>,
    /// IPv6 flow label.
    pub flow_label: Option<u32>,
    /// `frag 7:1480@0+`: no more than this part of it.
    pub fragment: Option<Fragment>,
    /// Routers may fragment it: DF is not set.
    pub may_fragment: bool,
}

/// A part of what follows the IP header, in tcpdump's notation: identification, length, offset, and a plus where
/// others follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Which datagram it is of. On the way out the stack has numbers of its own, one for each.
    pub id: u32,
    /// Its bytes.
    pub len: u16,
    /// Where they begin in the whole.
    pub offset: u16,
    /// Others follow.
    pub more: bool,
}

/// What follows the IP header.
#[derive(Clone, Debug)]
pub enum Transport {
    /// A TCP segment.
    Tcp(Tcp),
    /// A UDP datagram.
    Udp(Udp),
    /// An ICMP message.
    Icmp(Icmp),
}

/// A TCP segment of a script, in the script's sequence space.
#[derive(Clone, Debug)]
pub struct Tcp {
    /// Source and destination port, where the script gives them.
    pub ports: Option<(u16, u16)>,
    /// The flags.
    pub flags: Flags,
    /// First sequence number.
    pub sequence: u32,
    /// Payload bytes.
    pub len: u16,
    /// Acknowledgment number; zero where none is given.
    pub acknowledgment: u32,
    /// The window field; `None` is not checked.
    pub window: Option<u16>,
    /// The urgent pointer.
    pub urgent: u16,
    /// What it carries, where that is not what belongs to its place in the stream: only for packets that arrive.
    pub data: Option<Vec<u8>>,
    /// Options; `None` (`<...>`) is not checked.
    pub options: Option<Vec<TcpOption>>,
}

/// TCP flags: the low byte as on the wire, and AE above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The bits.
    pub bits: u16,
    /// AE, CWR and ECE were given as the number of the ACE field.
    pub is_ace: bool,
}

impl Flags {
    /// FIN.
    pub const FIN: u16 = 1;
    /// SYN.
    pub const SYN: u16 = 1 << 1;
    /// RST.
    pub const RST: u16 = 1 << 2;
    /// PSH.
    pub const PSH: u16 = 1 << 3;
    /// ACK.
    pub const ACK: u16 = 1 << 4;
    /// URG.
    pub const URG: u16 = 1 << 5;
    /// ECE.
    pub const ECE: u16 = 1 << 6;
    /// CWR.
    pub const CWR: u16 = 1 << 7;
    /// AE (RFC 9768).
    pub const AE: u16 = 1 << 8;
    /// The letters that scripts write, in the order they are printed.
    pub const LETTERS: [(char, u16); 9] = [
        ('F', Self::FIN),
        ('S', Self::SYN),
        ('R', Self::RST),
        ('P', Self::PSH),
        ('.', Self::ACK),
        ('U', Self::URG),
        ('E', Self::ECE),
        ('W', Self::CWR),
        ('A', Self::AE),
    ];

    /// Whether all of `bits` are set.
    #[must_use]
    pub const fn has(self, bits: u16) -> bool {
        self.bits & bits == bits
    }
}

/// A TCP option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpOption {
    /// End of options.
    Eol,
    /// No operation.
    Nop,
    /// Maximum segment size.
    Mss(u16),
    /// Window scale shift.
    WindowScale(u8),
    /// SACK permitted.
    SackPermitted,
    /// SACK blocks.
    Sack(Vec<(u32, u32)>),
    /// Timestamps.
    Timestamps {
        /// TSval
        value: u32,
        /// TSecr
        echo: u32,
    },
    /// MD5 digest (RFC 2385).
    Md5(Vec<u8>),
    /// Fast Open cookie (RFC 7413).
    FastOpen(Vec<u8>),
    /// The experimental form of it, kind 254 with magic 0xF989.
    FastOpenExperimental(Vec<u8>),
    /// AccECN counters, each of 24 bits, in the order of the kind (172 or 174).
    AccEcn {
        /// 172: e0b, ceb, e1b; 174: e1b, ceb, e0b.
        kind: u8,
        /// The counters.
        counters: Vec<u32>,
    },
    /// Any other.
    Other {
        /// The option's kind.
        kind: u8,
        /// What follows its length.
        data: Vec<u8>,
    },
}

/// A UDP datagram of a script.
#[derive(Clone, Debug)]
pub struct Udp {
    /// Source and destination port, where the script gives them.
    pub ports: Option<(u16, u16)>,
    /// Payload bytes.
    pub len: u16,
}

/// An ICMP message of a script.
#[derive(Clone, Debug)]
pub struct Icmp {
    /// Name of the type.
    pub kind: String,
    /// Name of the code.
    pub code: Option<String>,
    /// The MTU it tells.
    pub mtu: Option<u32>,
    /// The identifier of an echo.
    pub id: Option<u16>,
    /// The packet it quotes.
    pub quoted: Option<Quoted>,
}

/// What an ICMP error quotes.
#[derive(Clone, Copy, Debug)]
pub enum Quoted {
    /// `[1:1001(1000)]`: a segment that the stack sent.
    Tcp {
        /// First sequence number.
        sequence: u32,
        /// Payload bytes.
        len: u16,
    },
    /// `[udp (1000)]`
    Udp {
        /// Payload bytes.
        len: u16,
    },
    /// `[raw (1000)]`: no quotation, only length.
    Raw {
        /// Bytes of the ICMP message.
        len: u16,
    },
}
