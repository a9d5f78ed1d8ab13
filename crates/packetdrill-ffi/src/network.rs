//! What packetdrill was told of the network.
//!
//! packetdrill hands its interface no addresses and no MTU: it reads them from options, which stand at the top of a
//! script and on the command line (`--local_ip=..`), and of two the command line's holds. This library sees the same
//! words. Without any the host has packetdrill's own addresses, of either family.

use ip::Cidr;
use packetdrill::beside;
use posix::HostConfig;
use std::net::IpAddr;

/// What links take (RFC 791, 3.1: 68 bytes at least, and no packet is longer than its length can say).
const MTU_BYTES: core::ops::RangeInclusive<usize> = 68..=65_535;

/// Applies `--mtu`, `--local_ip` and `--remote_ip`, as the words say them last.
pub(crate) fn apply_options(words: &[String], config: &mut HostConfig) {
    let mtu_bytes = option(words, "mtu").and_then(|text| text.parse().ok());
    config.mtu_bytes = mtu_bytes.filter(|it| MTU_BYTES.contains(it)).unwrap_or(config.mtu_bytes);
    let address = |name| option(words, name)?.split('/').next()?.parse::<IpAddr>().ok();
    if let Some(local) = address("local_ip") {
        let is_other = |it: &IpAddr| it.is_ipv4() != local.is_ipv4();
        config.addresses.retain(|cidr| is_other(&cidr.address()));
        config.gateways.retain(is_other);
        let prefix_len = if local.is_ipv4() { 16 } else { 48 };
        config.addresses.extend(Cidr::new(local, prefix_len));
        config.gateways.push(beside(local));
    }
    // The other end may have an address that would be the host's by default.
    if let Some(remote) = address("remote_ip") {
        config.addresses.retain(|cidr| cidr.address() != remote);
    }
    // A gateway is on a network of the host's.
    let networks = &config.addresses;
    config.gateways.retain(|gateway| networks.iter().any(|cidr| cidr.contains(*gateway)));
}

/// The words of the lines of a script that are options.
pub(crate) fn options_of(script: &str) -> impl Iterator<Item = String> + '_ {
    let lines = script.lines().map(str::trim).filter(|line| line.starts_with("--"));
    lines.flat_map(str::split_whitespace).map(str::to_owned)
}

/// The last of `--name=value` and `--name value`.
fn option<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    let mut found = None;
    for (at, word) in words.iter().enumerate() {
        match word.strip_prefix("--").and_then(|word| word.strip_prefix(name)) {
            Some("") => found = words.get(at + 1).map(String::as_str).or(found),
            Some(rest) => found = rest.strip_prefix('=').or(found),
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(text: &str) -> HostConfig {
        let mut config = packetdrill::host_config();
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        apply_options(&words, &mut config);
        config
    }

    fn addresses(config: &HostConfig) -> Vec<String> {
        config.addresses.iter().map(|cidr| cidr.address().to_string()).collect()
    }

    #[test]
    fn the_last_word_holds() {
        let config =
            applied("x.pkt --mtu=1300 --mtus=7 --verbose --mtu 1520 --local_ip=10.1.0.1/24 --mtu");
        assert_eq!(config.mtu_bytes, 1_520);
        assert_eq!(addresses(&config), ["fd3d:fa7b:d17d::1", "10.1.0.1"]);
        assert_eq!(applied("--mtu=much --local_ip=here").mtu_bytes, 1_500);
        assert_eq!(applied("--mtu=0").mtu_bytes, 1_500);
    }

    // The words by which the kernel's self-tests run their scripts over IPv6.
    #[test]
    fn the_other_end_may_have_what_would_be_ours() {
        let script = "// --mtu=9\n--ip_version=ipv6 --mtu=1520\n --local_ip=fd3d:0a0b:17d6::1\n0 socket(...) = 3\n";
        let mut words: Vec<String> = options_of(script).collect();
        words.push("--remote_ip=fd3d:fa7b:d17d::1".to_owned());
        let mut config = packetdrill::host_config();
        apply_options(&words, &mut config);
        assert_eq!(config.mtu_bytes, 1_520);
        assert_eq!(addresses(&config), ["192.168.0.1", "fd3d:a0b:17d6::1"]);
        assert_eq!(config.gateways.len(), 2);
        let alone = applied("--remote_ip=fd3d:fa7b:d17d::1");
        assert_eq!(addresses(&alone), ["192.168.0.1"]);
        assert!(alone.gateways.iter().all(IpAddr::is_ipv4), "its gateway goes with a network");
    }
}
