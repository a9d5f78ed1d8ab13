//! The tunnel of `multidata send` and `multidata receive`: keys for one session, then the device.
//!
//! Both hosts have the same key file. From it they agree on keys that no other session has, by the
//! handshake NNpsk0 of the Noise Protocol Framework: whoever lacks the file gets no answer, and who steals
//! it later cannot read what was recorded before.
//!
//! ```text
//!   send                                          receive
//!     psk, e            ->  again until answered    answers each with keys of its own, a candidate
//!     <- e, ee
//!     a sealed datagram ->  the keys are in use     opens under a candidate's keys: that one it is
//! ```
//!
//! So a recorded first message that somebody sends again only makes candidates that nobody can use, and a
//! lost message is made good by the next. A message that comes again from the same address gets the same
//! answer, and where candidates become too many, those of one message make room for each other
//! ([`Candidates`]): whoever sends one recording again and again does not push the right one out. The first
//! sealed datagram has no packet in it; where it is lost, the SYN behind it does its part and is sent again by
//! TCP. Counters begin at zero under keys that are new each time, so no nonce is used twice.
//!
//! Each of the two messages says besides whether its sender would leave the transport checksums of packets in
//! the tunnel to the cipher ([`Checksums`]). Where both would, they are neither made nor looked at. Nobody in
//! between can change what was said: the messages are authenticated, the second over the first.

use bench::{Attempt, Failure};
use device::Transform;
use linux::{ChaChaKeys, ChaChaPoly, TunnelConfig, TunnelDevice};
use multidata::batch::{Attributes, Multidata};
use snow::{Builder, HandshakeState};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// What both ends must mean by the messages.
const PROLOGUE: &[u8] = b"multidata tunnel 2";

/// A key file holds so many bytes, as hexadecimal digits.
const KEY_LEN: usize = 32;

/// The longest key file that is read: the digits and the end of the line.
const KEY_FILE_LEN_MAX: u64 = 2 * KEY_LEN as u64 + 2;

/// What a message of the handshake says besides the key.
const OFFER_LEN: usize = 1;

/// Both messages of the handshake are a key, an offer and a tag.
const MESSAGE_LEN: usize = 32 + OFFER_LEN + 16;

/// How long the receiving host may take to answer, and how long until it is asked again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const AGAIN: Duration = Duration::from_millis(500);

/// Answers that wait for the datagram that shows which of them was heard. So many recordings of different
/// sessions, sent again within a round trip, push the right one out.
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
    /// As it is said in the handshake: one bit; the others are not looked at.
    const fn offer(self) -> [u8; OFFER_LEN] {
        [match self {
            Self::Kept => 0,
            Self::LeftToCipher => 1,
        }]
    }

    /// What comes of it where the other end offers this.
    const fn agreed(self, [offer]: [u8; OFFER_LEN]) -> Self {
        if offer & 1 == 1 { self } else { Self::Kept }
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
        if file.metadata().attempt(refused)?.mode() & 0o077 != 0 {
            return Err(Failure::new(format!(
                "the key file {name} is open to others: keep it to yourself with: chmod 600 {name}"
            )));
        }
        let mut text = String::new();
        file.take(KEY_FILE_LEN_MAX + 1).read_to_string(&mut text).attempt(refused)?;
        Self::parse(text.trim()).ok_or_else(|| {
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
    let mut state = key.state(true).attempt(refused)?;
    let mut first = [0; MESSAGE_LEN];
    state.write_message(&checksums.offer(), &mut first).attempt(refused)?;
    let end = Instant::now() + ANSWER_TIMEOUT;
    let offer = loop {
        if let Some(offer) = ask(&socket, &first, &mut state).attempt(refused)? {
            break offer;
        }
        if Instant::now() >= end {
            return Err(Failure::new(format!(
                "nobody with this key answered at {peer} for {} s: is `multidata receive --tunnel` \
                 running there?",
                ANSWER_TIMEOUT.as_secs()
            )));
        }
    };
    let mut transform = ChaChaPoly::new(&keys(state, true));
    let confirmation = sealed_nothing(&mut transform);
    match socket.send(&confirmation) {
        Err(error) if error.kind() != ErrorKind::ConnectionRefused => {
            return Err(error).attempt(refused);
        }
        _ => {}
    }
    device(socket, peer, transform, checksums.agreed(offer))
}

/// Sends the first message and waits for its answer for a while: what the other end offers, if it came.
fn ask(
    socket: &UdpSocket,
    first: &[u8],
    state: &mut HandshakeState,
) -> io::Result<Option<[u8; OFFER_LEN]>> {
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
            // Nothing of what is not authentic is believed, and what has no offer offers nothing.
            Ok(len) => {
                let mut offer = [0; OFFER_LEN];
                if len == MESSAGE_LEN && state.read_message(&datagram[..len], &mut offer).is_ok() {
                    return Ok(Some(offer));
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

/// At most [`CANDIDATES_MAX`] candidates, the oldest first, one for each message from each address.
#[derive(Default)]
struct Candidates(VecDeque<Candidate>);

impl Candidates {
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
        if let Some(it) = self.0.iter().find(|it| it.from == from && it.message == datagram) {
            return Ok(Some(it.answer));
        }
        let Ok(message) = datagram.try_into() else { return Ok(None) };
        let Some((answer, keys, offer)) = answer(key, &message, checksums)? else {
            return Ok(None);
        };
        let checksums = checksums.agreed(offer);
        self.0.push_back(Candidate { from, message, answer, keys, checksums });
        if self.0.len() > CANDIDATES_MAX {
            self.make_room();
        }
        Ok(Some(answer))
    }

    /// Forgets the oldest candidate of the message that has the most: one message from many addresses takes
    /// nobody else's place.
    fn make_room(&mut self) {
        let share =
            |at: &usize| self.0.iter().filter(|it| it.message == self.0[*at].message).count();
        // Of equals the last is taken, which is the oldest.
        if let Some(at) = (0..self.0.len()).rev().max_by_key(share) {
            self.0.remove(at);
        }
    }

    /// The candidate under whose keys a datagram of `from` was sealed.
    fn confirmed(&self, from: SocketAddr, datagram: &[u8]) -> Option<&Candidate> {
        let opens = |it: &&Candidate| {
            it.from == from && ChaChaPoly::new(&it.keys).open(&mut datagram.to_vec()).is_ok()
        };
        self.0.iter().find(opens)
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
    let mut candidates = Candidates::default();
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
/// offered.
type Answer = ([u8; MESSAGE_LEN], ChaChaKeys, [u8; OFFER_LEN]);

/// The answer to a first message; `None` where it is from somebody without the key.
fn answer(
    key: &Key,
    message: &[u8; MESSAGE_LEN],
    checksums: Checksums,
) -> Result<Option<Answer>, snow::Error> {
    let mut state = key.state(false)?;
    let mut offer = [0; OFFER_LEN];
    if state.read_message(message, &mut offer).is_err() {
        return Ok(None);
    }
    let mut answer = [0; MESSAGE_LEN];
    state.write_message(&checksums.offer(), &mut answer)?;
    Ok(Some((answer, keys(state, false), offer)))
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
    use device::Device;

    fn key(byte: u8) -> Key {
        Key([byte; KEY_LEN])
    }

    fn first_message(key: &Key) -> (HandshakeState, [u8; MESSAGE_LEN]) {
        let mut state = key.state(true).expect("a known pattern");
        let mut message = [0; MESSAGE_LEN];
        let offer = Checksums::Kept.offer();
        assert_eq!(state.write_message(&offer, &mut message).expect("room"), MESSAGE_LEN);
        (state, message)
    }

    fn at_port(port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    /// What the sender of a first message seals first, once it has read an answer to it.
    fn confirmation(mut state: HandshakeState, answer: &[u8; MESSAGE_LEN]) -> Vec<u8> {
        state.read_message(answer, &mut [0; OFFER_LEN]).expect("authentic");
        sealed_nothing(&mut ChaChaPoly::new(&keys(state, true)))
    }

    #[test]
    fn both_ends_get_the_same_keys_and_others_in_each_session() {
        let mut seen = Vec::new();
        for _ in 0..2 {
            let (mut state, message) = first_message(&key(1));
            let mut candidates = Candidates::default();
            let mut answer = |message: &[u8]| {
                let answer = candidates.answer(&key(1), Checksums::Kept, at_port(9), message);
                answer.expect("room").expect("authentic")
            };
            answer(&first_message(&key(1)).1);
            let reply = answer(&message);
            state.read_message(&reply, &mut [0; OFFER_LEN]).expect("authentic");
            let ours = keys(state, true);
            assert_ne!(ours.seal, ours.open);
            seen.extend([ours.seal, ours.open]);
            // What the one seals as its first datagram shows the other which keys were taken.
            let datagram = sealed_nothing(&mut ChaChaPoly::new(&ours));
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
        let (state, message) = first_message(&key(1));
        let mut candidates = Candidates::default();
        let mut answer = |from, message: &[u8]| {
            let answer = candidates.answer(&key(1), Checksums::Kept, from, message);
            answer.expect("room").expect("authentic")
        };
        let reply = answer(at_port(9), &message);
        // Its own repetitions, which a stalled receiver finds in its queue.
        for _ in 0..3 * CANDIDATES_MAX {
            assert_eq!(answer(at_port(9), &message), reply);
        }
        // Recordings of other sessions, by turns from ever new addresses.
        let recorded: Vec<_> = (1..CANDIDATES_MAX).map(|_| first_message(&key(1)).1).collect();
        for port in 10..100 {
            for message in &recorded[..usize::from(port) % recorded.len() + 1] {
                assert_ne!(answer(at_port(port), message), reply);
            }
        }
        assert_eq!(candidates.0.len(), CANDIDATES_MAX);
        let datagram = confirmation(state, &reply);
        assert!(candidates.confirmed(at_port(9), &datagram).is_some());
    }

    #[test]
    fn an_answer_without_an_offer_is_none() {
        let [ours, theirs] = [(); 2].map(|()| UdpSocket::bind(at_port(0)).expect("loopback"));
        ours.connect(theirs.local_addr().expect("bound")).expect("loopback");
        theirs.connect(ours.local_addr().expect("bound")).expect("loopback");
        let (mut state, message) = first_message(&key(1));
        for (offer, expected) in [(&[][..], None), (&[1], Some([1]))] {
            let mut other = key(1).state(false).expect("a known pattern");
            other.read_message(&message, &mut [0; OFFER_LEN]).expect("authentic");
            let mut reply = [0; MESSAGE_LEN];
            let len = other.write_message(offer, &mut reply).expect("room");
            theirs.send(&reply[..len]).expect("loopback");
            assert_eq!(ask(&ours, &message, &mut state).expect("loopback"), expected);
        }
    }

    #[test]
    fn another_key_and_changed_messages_are_refused() {
        let (mut state, message) = first_message(&key(1));
        let answer = |digit, message: &[u8; MESSAGE_LEN]| {
            super::answer(&key(digit), message, Checksums::LeftToCipher).expect("no failure")
        };
        assert!(answer(2, &message).is_none());
        let short = &message[..MESSAGE_LEN - 1];
        let short = Candidates::default().answer(&key(1), Checksums::Kept, at_port(9), short);
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
            let read = state.read_message(&changed, &mut [0; OFFER_LEN]);
            assert!(read.is_err(), "byte {at}");
        }
        state.read_message(&reply, &mut [0; OFFER_LEN]).expect("forgeries did no harm");
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
