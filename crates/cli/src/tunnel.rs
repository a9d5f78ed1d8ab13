//! The tunnel of `multidata send` and `multidata receive`: keys for one session, then the device.
//!
//! Both hosts have the same key file. From it they agree on keys that no other session has, by the
//! handshake NNpsk0 of the Noise Protocol Framework: whoever lacks the file gets no answer, and who steals
//! it later cannot read what was recorded before.
//!
//! ```text
//!   send                                              receive
//!     psk, e, no greeting   ->  again until answered    answers each, and keeps nothing
//!     <- e, ee, greeting
//!     psk, e, that greeting ->  again until answered    answers with keys of its own, a candidate
//!     <- e, ee, greeting
//!     a sealed datagram     ->  the keys are in use     opens under a candidate's keys: that one it is
//! ```
//!
//! The greeting ([`Greeter`]) says when the receiving host began to wait, in random bytes, and from where it was
//! asked. Only who has the key can read it, and send it back in a message that the key guards: so a first message
//! that somebody recorded and sends again, in another session or from another address, is answered as one of a
//! stranger to the session is and takes no room; and of its own repetitions it gets the same answer ([`Candidates`]).
//! A lost message is made good by the next. No answer is longer than what it answers, and who lacks the key gets
//! none. The first sealed datagram has no packet in it; where it is lost, the SYN behind it does its part and is
//! sent again by TCP. Counters begin at zero under keys that are new each time, so no nonce is used twice.
//!
//! Each message says besides whether its sender would leave the transport checksums of packets in the tunnel to
//! the cipher ([`Checksums`]). Where both would, they are neither made nor looked at. Nobody in between can change
//! what was said: the messages are authenticated, the second over the first.

use bench::{Attempt, Failure};
use device::Transform;
use linux::{ChaChaKeys, ChaChaPoly, SystemError, TunnelConfig, TunnelDevice};
use multidata::batch::{Attributes, Multidata};
use snow::{Builder, HandshakeState};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// What both ends must mean by the messages.
const PROLOGUE: &[u8] = b"multidata tunnel 3";

/// A key file holds so many bytes, as hexadecimal digits.
const KEY_LEN: usize = 32;

/// The longest key file that is read: the digits and the end of the line.
const KEY_FILE_LEN_MAX: u64 = 2 * KEY_LEN as u64 + 2;

/// What a message of the handshake says besides the key: an offer and a greeting.
const SAYING_LEN: usize = 1 + GREETING_LEN;

/// A greeting: random bytes, an address and a port.
const GREETING_LEN: usize = NONCE_LEN + 16 + 2;
const NONCE_LEN: usize = 16;

/// Both messages of the handshake are a key, a saying and a tag.
const MESSAGE_LEN: usize = 32 + SAYING_LEN + 16;

/// How long the receiving host may take to answer, and how long until it is asked again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const AGAIN: Duration = Duration::from_millis(500);

/// Answers that wait for the datagram that shows which of them was heard. More than so many hosts with the key that
/// ask within a round trip push each other out; recordings do not count.
const CANDIDATES_MAX: usize = 8;

/// What guards the packets in a tunnel from one stack to the other.
///
/// What is sealed here this host's stack has made itself, in the same process and a moment before: it forwards
/// nothing. So who says [`Checksums::LeftToCipher`] vouches for every packet from its first byte on, and the
/// tag guards it up to where the other end's stack takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksums {
    /// The cipher's tags and the packets' own checksums.
    Kept,
    /// The cipher's tags alone.
    LeftToCipher,
}

impl Checksums {
    /// What comes of it where the other end offers this.
    fn agreed(self, theirs: Self) -> Self {
        if theirs == Self::LeftToCipher { self } else { Self::Kept }
    }
}

/// What the receiving host says to who asks, and wants to hear again.
type Greeting = [u8; GREETING_LEN];

/// What a first message says whose sender has not been greeted: no host is at port zero.
const NOT_GREETED: Greeting = [0; GREETING_LEN];

/// What a message of the handshake says besides the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Saying {
    checksums: Checksums,
    greeting: Greeting,
}

impl Saying {
    /// The offer is one bit; the others are not looked at.
    fn bytes(&self) -> [u8; SAYING_LEN] {
        let mut bytes = [0; SAYING_LEN];
        bytes[0] = u8::from(self.checksums == Checksums::LeftToCipher);
        bytes[1..].copy_from_slice(&self.greeting);
        bytes
    }

    fn from_bytes(bytes: &[u8; SAYING_LEN]) -> Self {
        let checksums = if bytes[0] & 1 == 1 { Checksums::LeftToCipher } else { Checksums::Kept };
        let mut greeting = NOT_GREETED;
        greeting.copy_from_slice(&bytes[1..]);
        Self { checksums, greeting }
    }

    /// Reads a message of the handshake; nothing of what is not authentic is believed.
    fn read(state: &mut HandshakeState, message: &[u8]) -> Option<Self> {
        let mut bytes = [0; SAYING_LEN];
        let is_whole = message.len() == MESSAGE_LEN;
        let len = is_whole.then(|| state.read_message(message, &mut bytes))?.ok()?;
        (len == SAYING_LEN).then(|| Self::from_bytes(&bytes))
    }

    fn write(&self, state: &mut HandshakeState) -> Result<[u8; MESSAGE_LEN], snow::Error> {
        let mut message = [0; MESSAGE_LEN];
        state.write_message(&self.bytes(), &mut message)?;
        Ok(message)
    }
}

/// The secret that both hosts share.
pub(crate) struct Key([u8; KEY_LEN]);

impl Key {
    /// Reads a key file that nobody else can read.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let refused = || format!("cannot read the key file {name}");
        let file = File::open(path).attempt(refused)?;
        let about = file.metadata().attempt(refused)?;
        if about.is_dir() {
            return Err("it is a directory").attempt(refused);
        }
        if about.mode() & 0o077 != 0 {
            return Err(Failure::new(format!(
                "the key file {name} is open to others: keep it to yourself with: chmod 600 {name}"
            )));
        }
        let mut bytes = Vec::new();
        file.take(KEY_FILE_LEN_MAX + 1).read_to_end(&mut bytes).attempt(refused)?;
        // What is no text holds no digits either.
        Self::parse(String::from_utf8_lossy(&bytes).trim()).ok_or_else(|| {
            Failure::new(format!(
                "the key file {name} does not hold 64 hexadecimal digits; make one with: \
                 (umask 077; openssl rand -hex 32 > {name})"
            ))
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
        let pairs: &[[u8; 2]; KEY_LEN] = pairs.try_into().ok()?;
        let mut key = [0; KEY_LEN];
        for (byte, pair) in key.iter_mut().zip(pairs) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = (digit(0)? << 4 | digit(1)?) as u8;
        }
        Some(Self(key))
    }

    fn state(&self, begins: bool) -> Result<HandshakeState, snow::Error> {
        let builder = Builder::new(PATTERN.parse()?).prologue(PROLOGUE)?.psk(0, &self.0)?;
        if begins { builder.build_initiator() } else { builder.build_responder() }
    }
}

/// The keys of a handshake that is complete; of the two the first is for what its beginner sends.
fn keys(mut state: HandshakeState, began: bool) -> ChaChaKeys {
    let (seal, open) = state.dangerously_get_raw_split();
    let keys = ChaChaKeys { seal, open };
    if began { keys } else { keys.swapped() }
}

/// The sending host's end: agrees on keys with the receiving host at `peer`.
///
/// # Errors
/// A sentence, also where nobody with the key answered.
pub(crate) fn open_to(
    peer: SocketAddr,
    key: &Key,
    checksums: Checksums,
) -> Result<TunnelDevice, Failure> {
    let refused = || format!("cannot open a tunnel to {peer}");
    let any = match peer {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).attempt(refused)?;
    socket.connect(peer).attempt(refused)?;
    let end = Instant::now() + ANSWER_TIMEOUT;
    let mut greeting = NOT_GREETED;
    let (state, theirs) = loop {
        let mut state = key.state(true).attempt(refused)?;
        let first = Saying { checksums, greeting }.write(&mut state).attempt(refused)?;
        let Some(said) = ask_until(end, &socket, &first, &mut state).attempt(refused)? else {
            return Err(Failure::new(format!(
                "nobody with this key answered at {peer} for {} s: is `multidata receive --tunnel` \
                 running there?",
                ANSWER_TIMEOUT.as_secs()
            )));
        };
        // Another greeting than was given back: these keys nobody keeps.
        if said.greeting == greeting {
            break (state, said.checksums);
        }
        greeting = said.greeting;
    };
    let mut transform = ChaChaPoly::new(&keys(state, true));
    let confirmation = sealed_nothing(&mut transform);
    match socket.send(&confirmation) {
        Err(error) if error.kind() != ErrorKind::ConnectionRefused => {
            return Err(error).attempt(refused);
        }
        _ => {}
    }
    device(socket, peer, transform, checksums.agreed(theirs))
}

/// Asks again and again until there is an answer, or until `end`.
fn ask_until(
    end: Instant,
    socket: &UdpSocket,
    first: &[u8],
    state: &mut HandshakeState,
) -> io::Result<Option<Saying>> {
    while Instant::now() < end {
        if let Some(said) = ask(socket, first, state)? {
            return Ok(Some(said));
        }
    }
    Ok(None)
}

/// Sends a first message and waits for its answer for a while: what the other end says, if it came.
fn ask(socket: &UdpSocket, first: &[u8], state: &mut HandshakeState) -> io::Result<Option<Saying>> {
    // That nobody is there, or not yet, an ICMP error may tell at the next call.
    let is_passing = |kind| matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::Interrupted);
    let end = Instant::now() + AGAIN;
    if let Err(error) = socket.send(first)
        && !is_passing(error.kind())
    {
        return Err(error);
    }
    let mut datagram = [0; MESSAGE_LEN + 1];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut datagram) {
            Ok(len) => {
                if let Some(said) = Saying::read(state, &datagram[..len]) {
                    return Ok(Some(said));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if is_passing(error.kind()) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A datagram without a packet in it, which shows that its sender has the keys.
fn sealed_nothing(transform: &mut ChaChaPoly) -> Vec<u8> {
    let mut batch = Multidata::default();
    let mut datagram = vec![0; 1 + transform.overhead_bytes()];
    let place = batch.push_packet(1, Attributes::default());
    debug_assert!(place.is_some(), "an empty batch has room");
    let len = batch.packet(0).and_then(|packet| transform.seal(&packet, &mut datagram));
    datagram.truncate(len.unwrap_or(0));
    datagram
}

/// Keys that a host was offered in answer to a first message.
struct Candidate {
    from: SocketAddr,
    message: [u8; MESSAGE_LEN],
    answer: [u8; MESSAGE_LEN],
    keys: ChaChaKeys,
    checksums: Checksums,
}

/// Greets who asks, and knows its own greetings again; it remembers nobody.
struct Greeter {
    nonce: [u8; NONCE_LEN],
}

impl Greeter {
    /// One whose greetings nobody has heard before.
    fn new() -> Result<Self, SystemError> {
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&ChaChaKeys::generate()?.seal[..NONCE_LEN]);
        Ok(Self { nonce })
    }

    /// What who asks from there is greeted with. It is secret, as everything that the messages say.
    fn greeting(&self, from: SocketAddr) -> Greeting {
        let address = match from.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut greeting = NOT_GREETED;
        let (nonce, rest) = greeting.split_at_mut(NONCE_LEN);
        nonce.copy_from_slice(&self.nonce);
        rest[..16].copy_from_slice(&address.octets());
        rest[16..].copy_from_slice(&from.port().to_be_bytes());
        greeting
    }
}

/// At most [`CANDIDATES_MAX`] candidates, the oldest first, one for each message of this session. What makes room
/// is the oldest, and not one of the same address: its message may be an older one that came late.
struct Candidates {
    greeter: Greeter,
    waiting: VecDeque<Candidate>,
}

impl Candidates {
    fn new() -> Result<Self, SystemError> {
        Ok(Self { greeter: Greeter::new()?, waiting: VecDeque::new() })
    }

    /// The answer to a first message of `from`; `None` where the message is none, or from somebody without
    /// the key.
    fn answer(
        &mut self,
        key: &Key,
        checksums: Checksums,
        from: SocketAddr,
        datagram: &[u8],
    ) -> Result<Option<[u8; MESSAGE_LEN]>, snow::Error> {
        // Its sender may have read the first answer already, and would not read another.
        if let Some(it) = self.waiting.iter().find(|it| it.from == from && it.message == datagram) {
            return Ok(Some(it.answer));
        }
        let Ok(message) = datagram.try_into() else { return Ok(None) };
        let ours = Saying { checksums, greeting: self.greeter.greeting(from) };
        let Some((answer, keys, theirs)) = answer(key, &message, &ours)? else {
            return Ok(None);
        };
        if theirs.greeting == ours.greeting {
            let checksums = checksums.agreed(theirs.checksums);
            if self.waiting.len() == CANDIDATES_MAX {
                self.waiting.pop_front();
            }
            self.waiting.push_back(Candidate { from, message, answer, keys, checksums });
        }
        Ok(Some(answer))
    }

    /// The candidate under whose keys a datagram of `from` was sealed.
    fn confirmed(&self, from: SocketAddr, datagram: &[u8]) -> Option<&Candidate> {
        let opens = |it: &&Candidate| {
            it.from == from && ChaChaPoly::new(&it.keys).open(&mut datagram.to_vec()).is_ok()
        };
        self.waiting.iter().find(opens)
    }
}

/// The receiving host's end: waits at `local` until a host with the key has agreed on keys.
///
/// # Errors
/// A sentence.
pub(crate) fn open_at(
    local: SocketAddr,
    key: &Key,
    checksums: Checksums,
) -> Result<TunnelDevice, Failure> {
    let refused = || format!("cannot open a tunnel at {local}");
    let socket = UdpSocket::bind(local).attempt(refused)?;
    let mut candidates = Candidates::new().attempt(refused)?;
    let mut datagram = [0; 2_048];
    loop {
        let (len, from) = match socket.recv_from(&mut datagram) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).attempt(refused),
        };
        let datagram = &datagram[..len];
        let answer = candidates.answer(key, checksums, from, datagram).attempt(refused)?;
        if let Some(answer) = answer {
            // Where it cannot be sent now it will be asked for again.
            let _ = socket.send_to(&answer, from);
        } else if let Some(it) = candidates.confirmed(from, datagram) {
            return device(socket, from, ChaChaPoly::new(&it.keys), it.checksums);
        }
    }
}

/// The answer to a first message, the keys that are agreed on where it arrives, and what the message
/// said.
type Answer = ([u8; MESSAGE_LEN], ChaChaKeys, Saying);

/// The answer to a first message; `None` where it is from somebody without the key.
fn answer(
    key: &Key,
    message: &[u8; MESSAGE_LEN],
    ours: &Saying,
) -> Result<Option<Answer>, snow::Error> {
    let mut state = key.state(false)?;
    let Some(theirs) = Saying::read(&mut state, message) else { return Ok(None) };
    let answer = ours.write(&mut state)?;
    Ok(Some((answer, keys(state, false), theirs)))
}

fn device(
    socket: UdpSocket,
    peer: SocketAddr,
    transform: ChaChaPoly,
    checksums: Checksums,
) -> Result<TunnelDevice, Failure> {
    socket.set_read_timeout(None).attempt(|| "cannot set the tunnel's socket up")?;
    let trust_checksums = checksums == Checksums::LeftToCipher;
    let config = TunnelConfig { trust_checksums, ..TunnelConfig::default() };
    TunnelDevice::over(socket, peer, Box::new(transform), config)
        .attempt(|| "cannot open the tunnel")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key([byte; KEY_LEN])
    }

    fn saying(greeting: Greeting) -> Saying {
        Saying { checksums: Checksums::Kept, greeting }
    }

    fn first_message(greeting: Greeting) -> (HandshakeState, [u8; MESSAGE_LEN]) {
        let mut state = key(1).state(true).expect("a known pattern");
        let message = saying(greeting).write(&mut state).expect("room");
        (state, message)
    }

    fn at_port(port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    fn candidates() -> Candidates {
        Candidates::new().expect("random bytes")
    }

    fn answer_of(
        candidates: &mut Candidates,
        from: SocketAddr,
        message: &[u8],
    ) -> [u8; MESSAGE_LEN] {
        let answer = candidates.answer(&key(1), Checksums::Kept, from, message);
        answer.expect("room").expect("authentic")
    }

    /// Asks as a stranger to the session, and then as one that was greeted.
    fn greeted(
        candidates: &mut Candidates,
        from: SocketAddr,
    ) -> (HandshakeState, [u8; MESSAGE_LEN]) {
        let (mut state, message) = first_message(NOT_GREETED);
        let answer = answer_of(candidates, from, &message);
        first_message(Saying::read(&mut state, &answer).expect("authentic").greeting)
    }

    /// What the sender of a first message seals first, once it has read an answer to it.
    fn confirmation(
        mut state: HandshakeState,
        answer: &[u8; MESSAGE_LEN],
    ) -> (ChaChaKeys, Vec<u8>) {
        Saying::read(&mut state, answer).expect("authentic");
        let keys = keys(state, true);
        let datagram = sealed_nothing(&mut ChaChaPoly::new(&keys));
        (keys, datagram)
    }

    #[test]
    fn both_ends_get_the_same_keys_and_others_in_each_session() {
        let mut seen = Vec::new();
        for _ in 0..2 {
            let mut candidates = candidates();
            let (_, other) = greeted(&mut candidates, at_port(9));
            answer_of(&mut candidates, at_port(9), &other);
            let (state, message) = greeted(&mut candidates, at_port(9));
            let reply = answer_of(&mut candidates, at_port(9), &message);
            // What the one seals as its first datagram shows the other which keys were taken.
            let (ours, datagram) = confirmation(state, &reply);
            assert_ne!(ours.seal, ours.open);
            seen.extend([ours.seal, ours.open]);
            let found = candidates.confirmed(at_port(9), &datagram).expect("one of them");
            assert_eq!((ours.seal, ours.open), (found.keys.open, found.keys.seal));
            assert!(candidates.confirmed(at_port(10), &datagram).is_none());
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 4, "no key is used twice");
    }

    // Who asks takes the first answer and stops: its keys have to be known until it shows that it has them.
    #[test]
    fn messages_that_come_again_leave_the_right_candidate() {
        // Of other sessions, which were made from this address, too.
        let recorded: Vec<_> = (0..3 * CANDIDATES_MAX)
            .map(|_| greeted(&mut candidates(), at_port(9)).1)
            .chain((0..3 * CANDIDATES_MAX).map(|_| first_message(NOT_GREETED).1))
            .collect();
        let mut candidates = candidates();
        let (state, message) = greeted(&mut candidates, at_port(9));
        let reply = answer_of(&mut candidates, at_port(9), &message);
        for again in &recorded {
            // Its own repetitions, which a stalled receiver finds in its queue.
            assert_eq!(answer_of(&mut candidates, at_port(9), &message), reply);
            for port in [9, 10, 11] {
                assert_ne!(answer_of(&mut candidates, at_port(port), again), reply);
            }
        }
        // That of this session from ever new addresses, and so that its sender seems to be another one.
        for port in 10..100 {
            assert_ne!(answer_of(&mut candidates, at_port(port), &message), reply);
        }
        assert_eq!(candidates.waiting.len(), 1, "nothing that was recorded takes room");
        let (_, datagram) = confirmation(state, &reply);
        assert!(candidates.confirmed(at_port(9), &datagram).is_some());
    }

    #[test]
    fn however_many_have_the_key_the_candidates_are_bounded() {
        let mut candidates = candidates();
        let (mut first, mut last) = (None, None);
        for port in 10..100 {
            let (state, message) = greeted(&mut candidates, at_port(port));
            let reply = answer_of(&mut candidates, at_port(port), &message);
            let (_, datagram) = confirmation(state, &reply);
            first.get_or_insert((port, datagram.clone()));
            last = Some((port, datagram));
        }
        assert_eq!(candidates.waiting.len(), CANDIDATES_MAX);
        let is_known = |(port, datagram): (u16, Vec<u8>)| {
            candidates.confirmed(at_port(port), &datagram).is_some()
        };
        assert!(last.is_some_and(is_known) && !first.is_some_and(is_known));
    }

    #[test]
    fn an_answer_that_says_less_is_none() {
        let [ours, theirs] = [(); 2].map(|()| UdpSocket::bind(at_port(0)).expect("loopback"));
        ours.connect(theirs.local_addr().expect("bound")).expect("loopback");
        theirs.connect(ours.local_addr().expect("bound")).expect("loopback");
        let (mut state, message) = first_message(NOT_GREETED);
        let said = Saying { checksums: Checksums::LeftToCipher, greeting: [7; GREETING_LEN] };
        let bytes = said.bytes();
        for (bytes, expected) in
            [(&[][..], None), (&bytes[..SAYING_LEN - 1], None), (&bytes[..], Some(said))]
        {
            let mut other = key(1).state(false).expect("a known pattern");
            Saying::read(&mut other, &message).expect("authentic");
            let mut reply = [0; MESSAGE_LEN];
            let len = other.write_message(bytes, &mut reply).expect("room");
            theirs.send(&reply[..len]).expect("loopback");
            assert_eq!(ask(&ours, &message, &mut state).expect("loopback"), expected);
        }
    }

    #[test]
    fn another_key_and_changed_messages_are_refused() {
        let (mut state, message) = first_message(NOT_GREETED);
        let ours = saying([7; GREETING_LEN]);
        let answer = |digit, message: &[u8; MESSAGE_LEN]| {
            super::answer(&key(digit), message, &ours).expect("no failure")
        };
        assert!(answer(2, &message).is_none());
        let short = &message[..MESSAGE_LEN - 1];
        let short = candidates().answer(&key(1), Checksums::Kept, at_port(9), short);
        assert!(short.expect("no failure").is_none());
        for at in 0..MESSAGE_LEN {
            let mut changed = message;
            changed[at] ^= 1;
            assert!(answer(1, &changed).is_none(), "byte {at}");
        }
        let (reply, ..) = answer(1, &message).expect("authentic");
        for at in 0..MESSAGE_LEN {
            let mut changed = reply;
            changed[at] ^= 1;
            assert!(Saying::read(&mut state, &changed).is_none(), "byte {at}");
        }
        assert_eq!(Saying::read(&mut state, &reply), Some(ours), "forgeries did no harm");
    }

    // Packets without checksums are for an end that expects them, so both ends must come to the same.
    #[test]
    fn checksums_are_left_to_the_cipher_where_both_ends_say_so_and_only_there() {
        use Checksums::{Kept, LeftToCipher};
        for (ours, theirs) in
            [(Kept, Kept), (Kept, LeftToCipher), (LeftToCipher, Kept), (LeftToCipher, LeftToCipher)]
        {
            let reserved = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback interface");
            let at = reserved.local_addr().expect("bound");
            drop(reserved);
            let (near, far) = std::thread::scope(|scope| {
                let far = scope.spawn(move || open_at(at, &key(5), theirs).expect("a tunnel"));
                let near = open_to(at, &key(5), ours).expect("a tunnel");
                (near, far.join().expect("no panic"))
            });
            let is_left = (ours, theirs) == (LeftToCipher, LeftToCipher);
            for end in [near, far] {
                let capabilities = end.capabilities();
                assert_eq!(capabilities.checksum_transmit, is_left, "{ours:?} {theirs:?}");
                assert_eq!(capabilities.checksum_receive, is_left, "{ours:?} {theirs:?}");
            }
        }
    }

    #[test]
    fn a_key_is_sixty_four_digits() {
        let digits = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";
        assert_eq!(Key::parse(digits).expect("a key").0[15..18], [0xff, 0, 0x11]);
        for text in
            ["", &digits[1..], &digits[2..], &format!("{digits}00"), &digits.replace('a', "g")]
        {
            assert!(Key::parse(text).is_none(), "{text}");
        }
        let signed = digits.replacen("00", "+0", 1);
        assert!(Key::parse(&signed).is_none(), "a sign is no digit");
    }
}
