//! The Toeplitz hash of a flow, as receive-side scaling defines it, with a key that makes it symmetric.
//!
//! The hash of a message is the exclusive or, over all its bits that are set, of the 32 bits of the
//! key that begin at the bit's position. The message is source address, destination address, source
//! port, destination port, as they lie on the wire: 12 bytes for IPv4, 36 for IPv6.
//!
//! The key repeats every 16 bits, so both directions of a flow have one hash: two hosts with as many rings
//! give a connection the same one without a word between them, and who forwards sees a flow's two
//! directions in one place. An adapter that is told this key (`ethtool -X ... hkey`) computes the same. What it
//! costs is that the hash has 16 bits of its own, enough for [`Layout::RINGS_MAX`](crate::Layout::RINGS_MAX), and that
//! it depends on nothing but the exclusive or of the message's 16-bit words: hosts whose addresses count up as
//! their ports do have one hash together. It is no secret either: whoever chooses ports chooses a hash, so
//! nothing here relies on hashes being spread evenly for anything but speed.
//!
//! So it is made in two steps: the words fold into one, of which four bits at a time are looked up. Measured
//! (`examples/steering_cost.rs`): 3 ns for IPv4, 14 for IPv6.

use core::net::{IpAddr, SocketAddr};

/// What the key repeats. Its bits that are set are odd in number, so that different words have different
/// hashes.
const KEY: u16 = 0x6d5a;

/// What each value of each half byte of the folded message adds.
static TABLE: [[u32; 16]; 4] = table();

/// The hash of a flow's frames, whichever of the two sent them. Two addresses of different families have
/// a hash, too, but no packet.
#[must_use]
pub fn hash(one: SocketAddr, other: SocketAddr) -> u32 {
    of_word(folded(one.ip()) ^ folded(other.ip()) ^ one.port() ^ other.port())
}

/// The hash over two addresses without ports.
#[must_use]
pub(crate) fn hash_addresses(one: IpAddr, other: IpAddr) -> u32 {
    of_word(folded(one) ^ folded(other))
}

/// The hash over one address.
#[must_use]
pub(crate) fn hash_source(source: IpAddr) -> u32 {
    of_word(folded(source))
}

/// The hash over a port alone.
#[must_use]
pub(crate) fn hash_port(port: u16) -> u32 {
    of_word(port)
}

/// The exclusive or of an address's 16-bit words.
fn folded(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(address) => {
            let bits = address.to_bits();
            (bits >> 16) as u16 ^ bits as u16
        }
        IpAddr::V6(address) => address.segments().into_iter().fold(0, |sum, word| sum ^ word),
    }
}

/// The hash of a message of one word.
#[inline]
fn of_word(word: u16) -> u32 {
    let half_byte = |at: usize| usize::from(word >> (12 - 4 * at) & 15);
    (0..4).fold(0, |hash, at| hash ^ TABLE[at][half_byte(at)])
}

const fn table() -> [[u32; 16]; 4] {
    let mut table = [[0; 16]; 4];
    let mut position = 0;
    while position < table.len() {
        let mut value = 0;
        while value < 16 {
            let mut bit = 0;
            while bit < 4 {
                if value & (8 >> bit) != 0 {
                    table[position][value] ^= window(4 * position + bit);
                }
                bit += 1;
            }
            value += 1;
        }
        position += 1;
    }
    table
}

/// The 32 bits of the key from bit `at` on.
pub(crate) const fn window(at: usize) -> u32 {
    let turned = KEY.rotate_left(at as u32 % 16) as u32;
    turned << 16 | turned
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The key of the verification vectors.
    const PUBLISHED: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    /// "Verifying the RSS hash calculation": source, destination, hash over the addresses, hash over
    /// addresses and ports.
    const VECTORS: &[(&str, &str, u32, u32)] = &[
        ("66.9.149.187:2794", "161.142.100.80:1766", 0x323e_8fc2, 0x51cc_c178),
        ("199.92.111.2:14230", "65.69.140.83:4739", 0xd718_262a, 0xc626_b0ea),
        ("24.19.198.95:12898", "12.22.207.184:38024", 0xd2d0_a5de, 0x5c2b_394a),
        ("38.27.205.30:48228", "209.142.163.6:2217", 0x8298_9176, 0xafc7_327f),
        ("153.39.163.191:44251", "202.188.127.2:1303", 0x5d18_09c5, 0x10e8_28a2),
        ("[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", 0x2cc1_8cd5, 0x4020_7d3d),
        ("[3ffe:501:8::260:97ff:fe40:efab]:14230", "[ff02::1]:4739", 0x0f0c_461c, 0xdde5_1bbf),
        (
            "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
            "[fe80::200:f8ff:fe21:67cf]:38024",
            0x4b61_e985,
            0x02d1_feef,
        ),
    ];

    /// The definition, bit by bit.
    fn defined(key: &[u8; 40], message: &[u8]) -> u32 {
        let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
        let window =
            |at: usize| (at..at + 32).fold(0, |sum, at| sum << 1 | u32::from(bit(key, at)));
        let set = (0..8 * message.len()).filter(|at| bit(message, *at) == 1);
        set.fold(0, |hash, at| hash ^ window(at))
    }

    fn octets(address: IpAddr) -> Vec<u8> {
        match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        }
    }

    fn message(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
        let ports = [source.port(), destination.port()].map(u16::to_be_bytes);
        [octets(source.ip()), octets(destination.ip()), ports.concat()].concat()
    }

    fn repeated() -> [u8; 40] {
        core::array::from_fn(|at| KEY.to_be_bytes()[at % 2])
    }

    #[test]
    fn the_definition_gives_the_published_vectors_and_the_tables_give_the_definition() {
        for (source, destination, addresses, ports) in VECTORS {
            let source: SocketAddr = source.parse().expect("an address");
            let destination: SocketAddr = destination.parse().expect("an address");
            let message = message(source, destination);
            let (without_ports, _) = message.split_at(message.len() - 4);
            assert_eq!(defined(&PUBLISHED, without_ports), *addresses, "{source}");
            assert_eq!(defined(&PUBLISHED, &message), *ports, "{source}");
            let ours = hash_addresses(source.ip(), destination.ip());
            assert_eq!(ours, defined(&repeated(), without_ports), "{source}");
            assert_eq!(hash(source, destination), defined(&repeated(), &message), "{source}");
            assert_eq!(hash(destination, source), defined(&repeated(), &message), "{source}");
        }
    }

    #[test]
    fn different_words_have_different_hashes() {
        let mut hashes: Vec<u32> = (0..=u16::MAX).map(hash_port).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 1 << 16);
    }

    proptest! {
        #[test]
        fn tables_say_what_the_definition_says(ends: [([u8; 16], u16); 2], is_ipv4: bool) {
            let [source, destination] = ends.map(|(octets, port)| {
                let [a, b, c, d, ..] = octets;
                let ip = if is_ipv4 { IpAddr::from([a, b, c, d]) } else { IpAddr::from(octets) };
                SocketAddr::new(ip, port)
            });
            let expected = defined(&repeated(), &message(source, destination));
            prop_assert_eq!(hash(source, destination), expected);
            prop_assert_eq!(hash_source(source.ip()), defined(&repeated(), &octets(source.ip())));
        }
    }
}
