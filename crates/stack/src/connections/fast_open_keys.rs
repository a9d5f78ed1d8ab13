//! The keys that fast open cookies are made with (RFC 7413, 4.1.2), for servers that share an address.
//!
//! A cookie is SipHash-2-4 of the client's address and the server's, as Linux makes it from 5.3 on: whoever has
//! the same key, this stack or a Linux host, believes it, whichever of them gave it.

use crate::error::{BadArgument, SocketError};
use core::fmt;
use core::hash::Hasher;
use core::net::IpAddr;
use core::str::FromStr;
use siphasher::sip::SipHasher24;
use wire::TcpFastOpen;

/// The key that cookies are made with, and the one before it.
///
/// To change the key of several servers without a client that is turned away: give all the new one as the backup,
/// then all the new one as the primary key and the old one as the backup, then drop the old one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FastOpenKeys {
    /// Makes the cookies that are given.
    pub primary: [u8; 16],
    /// Cookies that were made with it are believed, too; who shows one is given another.
    pub backup: Option<[u8; 16]>,
}

/// The keys are secret.
impl fmt::Debug for FastOpenKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backup = if self.backup.is_some() { ", and a backup" } else { "" };
        write!(formatter, "FastOpenKeys(a key{backup})")
    }
}

/// As Linux writes them in `net.ipv4.tcp_fastopen_key`: four words of hexadecimal digits, the bytes of each backwards,
/// as in `a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4`, and behind a comma the backup.
impl FromStr for FastOpenKeys {
    type Err = SocketError;

    fn from_str(text: &str) -> Result<Self, SocketError> {
        let (primary, backup) = match text.split_once(',') {
            Some((primary, backup)) => (primary, Some(backup)),
            None => (text, None),
        };
        let key = |text: &str| key_of(text).ok_or(SocketError::from(BadArgument::FastOpenKey));
        Ok(Self { primary: key(primary)?, backup: backup.map(key).transpose()? })
    }
}

fn key_of(text: &str) -> Option<[u8; 16]> {
    let mut key = [0; 16];
    let mut words = text.trim().split('-');
    for place in key.chunks_exact_mut(4) {
        // `from_str_radix` takes a sign.
        let word = words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        place.copy_from_slice(&u32::from_str_radix(word, 16).ok()?.to_le_bytes());
    }
    words.next().is_none().then_some(key)
}

/// What the fast open option of a SYN comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    /// The connection exists at once, with the data of the SYN.
    pub(crate) is_fast: bool,
    /// What the SYN-ACK brings.
    pub(crate) cookie: Option<TcpFastOpen>,
}

impl FastOpenKeys {
    /// What comes of a SYN that asks for a cookie, or shows one.
    pub(crate) fn judge(&self, local: IpAddr, remote: IpAddr, shown: TcpFastOpen) -> Opening {
        let is_of = |key: &[u8; 16]| cookie(key, local, remote) == shown.cookie();
        if is_of(&self.primary) {
            return Opening { is_fast: true, cookie: None };
        }
        let fresh = TcpFastOpen::new(&cookie(&self.primary, local, remote));
        Opening {
            is_fast: self.backup.as_ref().is_some_and(is_of),
            cookie: fresh.map(|fresh| fresh.in_the_form_of(shown)),
        }
    }
}

fn cookie(key: &[u8; 16], local: IpAddr, remote: IpAddr) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_key(key);
    for address in [remote, local] {
        match address {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => hasher.write(&address.octets()),
        }
    }
    hasher.finish().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    // The cookies of packetdrill's scripts, which a Linux kernel made.
    #[test]
    fn cookies_are_those_of_linux() {
        const CASES: [(&str, &str, &str, u64); 5] = [
            (
                "a0bf63f7-ed803d81-cd641d30-cebc4a90",
                "10.248.0.2",
                "192.168.0.2",
                0x00ab_aaab_e8e9_54c2,
            ),
            (
                "a0bf63f7-ed803d81-cd641d30-cebc4a90",
                "10.248.0.3",
                "192.168.0.3",
                0x76d2_c1c5_30f5_1f79,
            ),
            (
                "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4",
                "192.0.2.1",
                "192.168.0.1",
                0x3021_b9d8_8901_7eeb,
            ),
            ("0-0-0-0", "10.248.0.2", "192.168.0.2", 0x93b7_aa4f_550f_8a1a),
            (
                "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4",
                "fd3d:fa7b:d17d::1",
                "fd3d:a0b:17d6::1",
                0xc1d1_e974_2a47_a9bc,
            ),
        ];
        for (key, remote, local, expected) in CASES {
            let keys: FastOpenKeys = key.parse().expect("a key");
            let given = keys.judge(ip(local), ip(remote), TcpFastOpen::REQUEST);
            let shown = given.cookie.expect("one is asked for");
            assert_eq!((given.is_fast, shown.cookie()), (false, &expected.to_be_bytes()[..]));
            let opening = keys.judge(ip(local), ip(remote), shown);
            assert_eq!(opening, Opening { is_fast: true, cookie: None });
        }
    }

    // RFC 7413, 4.1.2: keys are changed.
    #[test]
    fn a_cookie_of_the_backup_is_good_and_replaced() {
        let (old, new) = ([1; 16], [2; 16]);
        let (local, remote) = (ip("10.0.0.1"), ip("10.0.0.2"));
        let of = |key| {
            let keys = FastOpenKeys { primary: key, backup: None };
            keys.judge(local, remote, TcpFastOpen::REQUEST).cookie.expect("one is asked for")
        };
        let keys = FastOpenKeys { primary: new, backup: Some(old) };
        let opening = keys.judge(local, remote, of(old));
        assert_eq!(opening, Opening { is_fast: true, cookie: Some(of(new)) });
        let opening = keys.judge(local, remote, of([3; 16]));
        assert_eq!(opening, Opening { is_fast: false, cookie: Some(of(new)) });
        assert!(!format!("{keys:?}").contains('2'), "it tells no secrets");
    }

    #[test]
    fn keys_are_four_words_each() {
        let keys: FastOpenKeys = "1-2-3-4,00000005-6-7-8".parse().expect("two keys");
        assert_eq!(keys.primary, [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
        assert_eq!(keys.backup, Some([5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0]));
        for wrong in ["", "1-2-3", "1-2-3-4-5", "1-2-3-4,", "1-2-3-+4", "1-2-3-123456789", "1-2--4"]
        {
            assert_eq!(
                wrong.parse::<FastOpenKeys>(),
                Err(BadArgument::FastOpenKey.into()),
                "{wrong}"
            );
        }
    }
}
