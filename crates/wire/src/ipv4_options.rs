//! Options of an IPv4 header (RFC 791, 3.1).
//!
//! ```text
//!   kind 0: end of options | kind 1: no operation | kind, length, length - 2 bytes of data
//!   kind = | copied in every fragment: 1 bit | class: 2 bits | number: 5 bits |
//! ```
//!
//! [`ipv4_options`] walks what came in; [`Ipv4Options`] is what a host may send.

use crate::Malformed;
use core::fmt;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const RECORD_ROUTE: u8 = 7;
const ROUTER_ALERT: u8 = 148;

/// Set in the kind of an option that every fragment carries.
const COPIED: u8 = 0x80;

/// Walks options as they lie in a header: the kind of each and its bytes, kind and length included,
/// without padding. What is behind the end of options is not looked at; an error is the last item.
pub fn ipv4_options(bytes: &[u8]) -> impl Iterator<Item = Result<(u8, &[u8]), Malformed>> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        while let [NO_OPERATION, behind @ ..] = rest {
            rest = behind;
        }
        let [kind, behind @ ..] = rest else { return None };
        if *kind == END {
            rest = &[];
            return None;
        }
        let len = behind.first().map_or(0, |len| usize::from(*len));
        let split = rest.split_at_checked(len).filter(|_| len >= 2);
        let Some((option, behind)) = split else {
            rest = &[];
            return Some(Err(Malformed::BadOption));
        };
        rest = behind;
        Some(Ok((*kind, option)))
    })
}

/// Why options are not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedOptions {
    /// More than the 40 bytes that a header has room for.
    TooLong,
    /// A length that contradicts itself, or an option that breaks its own rules.
    Malformed,
    /// A kind that hosts have no business to send, or that this stack cannot fill in.
    NotAllowed(u8),
}

impl fmt::Display for RefusedOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => formatter.write_str("IPv4 options are 40 bytes at most"),
            Self::Malformed => formatter.write_str("an IPv4 option breaks its own rules"),
            Self::NotAllowed(kind) => write!(
                formatter,
                "IPv4 option {kind} is not sent: no operation (1), record route (7) and router \
                 alert (148) are"
            ),
        }
    }
}

impl core::error::Error for RefusedOptions {}

/// Options that go with every packet of a socket: 0 to 40 bytes, a multiple of four, well formed,
/// and of kinds that do no harm.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Options {
    bytes: [u8; Self::LEN_MAX],
    len: u8,
}

impl Ipv4Options {
    /// What a header has room for, in bytes.
    pub const LEN_MAX: usize = 40;

    /// No options.
    pub const NONE: Self = Self { bytes: [0; Self::LEN_MAX], len: 0 };

    /// Checks options and pads them to a multiple of four.
    ///
    /// Padding, record route (RFC 791) and router alert (RFC 2113) are taken. Source routes are not:
    /// they lead answers past filters (RFC 7126, 4.3 and 4.4). Nor are timestamps, which a host must
    /// fill in for each packet (RFC 1122, 3.2.1.8 d), nor security labels, which are not an
    /// application's to choose, nor kinds that are obsolete (RFC 6814) or unknown.
    ///
    /// # Errors
    /// What of it is not taken.
    pub fn parse(options: &[u8]) -> Result<Self, RefusedOptions> {
        if options.len() > Self::LEN_MAX {
            return Err(RefusedOptions::TooLong);
        }
        let mut seen = [false; 256];
        for option in ipv4_options(options) {
            let (kind, option) = option.map_err(|_| RefusedOptions::Malformed)?;
            let is_sound = match (kind, option) {
                // A pointer to the first of at least one free place of four bytes.
                (RECORD_ROUTE, [_, len, 4, places @ ..]) => {
                    *len >= 7 && places.len().is_multiple_of(4)
                }
                (ROUTER_ALERT, [_, 4, _, _]) => true,
                (RECORD_ROUTE | ROUTER_ALERT, _) => false,
                _ => return Err(RefusedOptions::NotAllowed(kind)),
            };
            // RFC 791: each of them appears at most once in a datagram.
            if !is_sound || core::mem::replace(&mut seen[usize::from(kind)], true) {
                return Err(RefusedOptions::Malformed);
            }
        }
        let mut bytes = [END; Self::LEN_MAX];
        bytes[..options.len()].copy_from_slice(options);
        Ok(Self { bytes, len: options.len().next_multiple_of(4) as u8 })
    }

    /// The options as they lie in the header of a whole datagram, or of its first fragment.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Those that the header of every fragment carries (RFC 791, 3.1: the copied flag).
    #[must_use]
    pub fn copied(&self) -> Self {
        let mut copied = Self::NONE;
        let mut at = 0;
        for (kind, option) in ipv4_options(self.bytes()).map_while(Result::ok) {
            if kind & COPIED != 0 {
                copied.bytes[at..at + option.len()].copy_from_slice(option);
                at += option.len();
            }
        }
        copied.len = at.next_multiple_of(4) as u8;
        copied
    }
}

impl fmt::Debug for Ipv4Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Ipv4Options").field(&self.bytes()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALERT: [u8; 4] = [148, 4, 0, 0];

    #[test]
    fn takes_what_does_no_harm_and_pads_it() {
        let options = |bytes: &[u8]| Ipv4Options::parse(bytes).map(|it| it.bytes().to_vec());
        assert_eq!(options(&[]), Ok(vec![]));
        assert_eq!(options(&[1]), Ok(vec![1, 0, 0, 0]));
        assert_eq!(options(&ALERT), Ok(ALERT.to_vec()));
        assert_eq!(options(&[7, 7, 4, 0, 0, 0, 0]), Ok(vec![7, 7, 4, 0, 0, 0, 0, 0]));
        assert_eq!(options(&[1; 40]), Ok(vec![1; 40]));
    }

    #[test]
    fn refuses_what_harms_and_what_is_broken() {
        use RefusedOptions::{Malformed, NotAllowed, TooLong};
        let cases: [(&[u8], RefusedOptions); 14] = [
            (&[1; 41], TooLong),
            (&[131, 7, 4, 10, 0, 0, 1], NotAllowed(131)),
            (&[137, 7, 4, 10, 0, 0, 1], NotAllowed(137)),
            (&[1, 131, 3, 4], NotAllowed(131)),
            (&[68, 8, 5, 0, 0, 0, 0, 0], NotAllowed(68)),
            (&[134, 6, 0, 0, 0, 1], NotAllowed(134)),
            (&[148], Malformed),
            (&[148, 1, 0, 0], Malformed),
            (&[148, 5, 0, 0], Malformed),
            (&[148, 3, 0, 0], Malformed),
            (&[148, 4, 0, 0, 148, 4, 0, 0], Malformed),
            (&[7, 3, 4, 0], Malformed),
            (&[7, 7, 8, 0, 0, 0, 0, 0], Malformed),
            (&[7, 8, 4, 0, 0, 0, 0, 0], Malformed),
        ];
        for (bytes, why) in cases {
            assert_eq!(Ipv4Options::parse(bytes), Err(why), "{bytes:?}");
        }
    }

    // RFC 791, 3.1: record route is not copied, router alert is.
    #[test]
    fn later_fragments_carry_what_is_marked_as_copied() {
        let options = [&[7, 7, 4, 0, 0, 0, 0, 1][..], &ALERT].concat();
        let options = Ipv4Options::parse(&options).expect("harmless");
        assert_eq!(options.copied().bytes(), ALERT);
        assert!(Ipv4Options::parse(&[1, 1]).expect("harmless").copied().is_empty());
    }

    proptest! {
        #[test]
        fn what_is_taken_is_walked_again_to_the_same_options(
            bytes in proptest::collection::vec(
                prop_oneof![Just(1), Just(148), Just(4), Just(7), Just(0), any::<u8>()], 0..44),
        ) {
            let Ok(options) = Ipv4Options::parse(&bytes) else { return Ok(()) };
            prop_assert!(options.bytes().len().is_multiple_of(4) && options.bytes().len() <= 40);
            let walk = |bytes| ipv4_options(bytes).collect::<Result<Vec<_>, _>>();
            prop_assert_eq!(walk(options.bytes()), walk(&bytes));
            prop_assert_eq!(Ipv4Options::parse(options.bytes()), Ok(options));
            let copied = options.copied();
            prop_assert!(ipv4_options(copied.bytes()).all(|it| it.is_ok_and(|(kind, _)| kind > 127)));
        }
    }
}
