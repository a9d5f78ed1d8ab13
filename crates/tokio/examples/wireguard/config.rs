//! What wg-quick(8) reads, as far as a client needs it.

use base64::{Engine, prelude::BASE64_STANDARD};
use boringtun::x25519::{PublicKey, StaticSecret};
use multidata::ip::Cidr;
use std::fmt::Display;
use std::str::FromStr;

/// Room for the headers around a packet, whatever the IP version outside (80 bytes), so that no datagram is fragmented.
const USUAL_MTU_BYTES: usize = 1_420;

/// The shortest is IPv6's (RFC 8200, 5). The longest leaves room for WireGuard's header and tag in a datagram.
const MTU_BYTES: std::ops::RangeInclusive<usize> = 1_280..=65_400;

/// One interface and its one peer.
pub(crate) struct Config {
    pub(crate) private_key: StaticSecret,
    pub(crate) addresses: Vec<Cidr>,
    pub(crate) listen_port: u16,
    pub(crate) mtu_bytes: usize,
    pub(crate) peer_key: PublicKey,
    pub(crate) preshared_key: Option<[u8; 32]>,
    /// Host and port.
    pub(crate) endpoint: String,
    pub(crate) allowed: Vec<Cidr>,
    pub(crate) keepalive_s: Option<u16>,
    /// What it says that wg-quick does and this program does not.
    pub(crate) ignored: Vec<String>,
}

impl FromStr for Config {
    type Err = String;

    // The errors do not repeat what cannot be read: it may be a secret, and what ends a key in base64 looks like the end of
    // a name.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut read = Read::default();
        let mut section = String::from("front of the sections");
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let at = |what: String| format!("line {}: {what}", number + 1);
            if line.is_empty() {
            } else if line.starts_with('[') {
                section = line.to_ascii_lowercase();
                read.begin(&section).map_err(at)?;
            } else if let Some((key, value)) = line.split_once('=') {
                let key = key.trim();
                let is_known = read
                    .take(&section, key, value.trim())
                    .map_err(|what| at(format!("{key}: {what}")))?;
                if !is_known {
                    return Err(at(format!("nothing in {section} is called so")));
                }
            } else {
                return Err(at(String::from("no section and no 'key = value'")));
            }
        }
        read.finish()
    }
}

/// What was read so far.
#[derive(Default)]
struct Read {
    peers: usize,
    private_key: Option<[u8; 32]>,
    addresses: Vec<Cidr>,
    listen_port: u16,
    mtu_bytes: Option<usize>,
    peer_key: Option<[u8; 32]>,
    preshared_key: Option<[u8; 32]>,
    endpoint: Option<String>,
    allowed: Vec<Cidr>,
    keepalive_s: Option<u16>,
    ignored: Vec<String>,
}

impl Read {
    fn begin(&mut self, section: &str) -> Result<(), String> {
        match section {
            "[interface]" => Ok(()),
            "[peer]" => {
                self.peers += 1;
                let wrong = || String::from("a second peer, where this program has one");
                (self.peers == 1).then_some(()).ok_or_else(wrong)
            }
            _ => Err(String::from("no section of the two, [Interface] and [Peer]")),
        }
    }

    /// Whether there is such a key.
    fn take(&mut self, section: &str, key: &str, value: &str) -> Result<bool, String> {
        match (section, &key.to_ascii_lowercase()[..]) {
            ("[interface]", "privatekey") => self.private_key = Some(secret(value)?),
            ("[interface]", "address") => self.addresses.append(&mut many(value)?),
            ("[interface]", "listenport") => self.listen_port = one(value)?,
            ("[interface]", "mtu") => self.mtu_bytes = Some(one(value)?),
            (
                "[interface]",
                "dns" | "table" | "fwmark" | "saveconfig" | "preup" | "postup" | "predown"
                | "postdown",
            ) => self.ignored.push(String::from(key)),
            ("[peer]", "publickey") => self.peer_key = Some(secret(value)?),
            ("[peer]", "presharedkey") => self.preshared_key = Some(secret(value)?),
            ("[peer]", "endpoint") => self.endpoint = Some(String::from(value)),
            ("[peer]", "allowedips") => self.allowed.append(&mut many(value)?),
            ("[peer]", "persistentkeepalive") if value == "off" => self.keepalive_s = None,
            ("[peer]", "persistentkeepalive") => self.keepalive_s = Some(one(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn finish(self) -> Result<Config, String> {
        let mtu_bytes = self.mtu_bytes.unwrap_or(USUAL_MTU_BYTES);
        if !MTU_BYTES.contains(&mtu_bytes) {
            let (least, most) = (MTU_BYTES.start(), MTU_BYTES.end());
            return Err(format!("an MTU of {mtu_bytes}, where it may be {least} to {most}"));
        }
        for (is_empty, what) in [
            (self.addresses.is_empty(), "Address in [Interface]"),
            (self.allowed.is_empty(), "AllowedIPs in [Peer], without which nothing may pass"),
        ] {
            if is_empty {
                return Err(format!("no {what}"));
            }
        }
        Ok(Config {
            private_key: self.private_key.ok_or("no PrivateKey in [Interface]")?.into(),
            addresses: self.addresses,
            listen_port: self.listen_port,
            mtu_bytes,
            peer_key: self.peer_key.ok_or("no PublicKey in [Peer]")?.into(),
            preshared_key: self.preshared_key,
            endpoint: self.endpoint.ok_or("no Endpoint in [Peer], and this program is a client")?,
            allowed: self.allowed.iter().map(Cidr::network).collect(),
            keepalive_s: self.keepalive_s,
            ignored: self.ignored,
        })
    }
}

fn secret(value: &str) -> Result<[u8; 32], String> {
    let bytes = BASE64_STANDARD.decode(value).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| String::from("no key, which is 32 bytes in base64"))
}

fn one<T: FromStr<Err: Display>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|error: T::Err| error.to_string())
}

fn many(value: &str) -> Result<Vec<Cidr>, String> {
    value.split(',').map(str::trim).filter(|it| !it.is_empty()).map(one).collect()
}
