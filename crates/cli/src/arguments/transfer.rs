//! The arguments of `send` and `receive`, and of the device that these and `ping` use.

use super::files::{Named, check_distinct};
use super::{AddressArgument, Switch, congestion_of};
use bench::sizes::{parse_rate, parse_seconds};
use clap::Args;
use device::TransmitMode;
use multidata::tcp::congestion::Algorithm;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The device that packets travel over, and this stack's address there.
#[derive(Clone, Debug, Args)]
pub(crate) struct LinkArguments {
    /// The interface, which must be up: a TAP or TUN with the kernel's address on it, or any other Ethernet
    /// interface, on which a packet socket is opened
    #[arg(long, value_name = "INTERFACE", required_unless_present = "tunnel")]
    pub(crate) device: Option<String>,
    /// Instead of a device: an encrypted UDP tunnel to another host that runs this program. To receive, the
    /// address to wait at, such as 192.0.2.1:7100; to send, that address of the receiving host
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "device", requires = "key_file",
          value_parser = parse_end)]
    pub(crate) tunnel: Option<SocketAddr>,
    /// The secret that both ends of a tunnel share: 64 hexadecimal digits, as `openssl rand -hex 32` makes
    /// them, in a file that others cannot read
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Make and verify the transport checksums of packets in a tunnel as well. Without it they are left to
    /// the cipher, if the other end agrees
    #[arg(long, requires = "tunnel")]
    pub(crate) checksums: bool,
    /// This stack's address and prefix length, such as 10.0.0.2/24, in a tunnel of a network that both ends
    /// have to themselves; or dhcp or slaac, to get one
    #[arg(long, value_name = "ADDRESS/LEN")]
    pub(crate) address: AddressArgument,
    /// Where to send what is not on the device's own subnet
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) gateway: Option<IpAddr>,
    /// Write every packet to this pcapng file
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    /// How batches reach the device: single, chain, contiguous, replicated, multidata or lso [default: lso
    /// where the device splits super-frames, else multidata]
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<TransmitMode>,
    /// Checksum offload and super-frames [default: on where the device takes them]
    #[arg(long, value_enum)]
    pub(crate) offload: Option<Switch>,
    /// Send no packets longer than this, and ask others for none: at least 576, with IPv6 1280 [default: what the
    /// device takes]
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<usize>,
    /// At the end, print every counter that is not zero on standard error: packets, batches, drops by their
    /// reasons
    #[arg(long)]
    pub(crate) counters: bool,
}

impl LinkArguments {
    /// Looks for files with two purposes, among these that a verb writes or reads and those of the link.
    pub(super) fn check_files(
        &self,
        written: &[Named<'_>],
        read: &[Named<'_>],
    ) -> Result<(), String> {
        let capture = ("--capture", self.capture.as_deref());
        let key_file = ("--key-file", self.key_file.as_deref());
        check_distinct(&[written, &[capture]].concat(), &[read, &[key_file]].concat())
    }

    /// Looks for contradictions.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_lso = self.mode == Some(TransmitMode::Lso);
        if is_lso && self.offload == Some(Switch::Off) {
            return Err("--mode lso needs --offload on: without it the device takes no \
                        super-frame"
                .to_owned());
        }
        if is_lso && self.tunnel.is_some() {
            return Err(
                "--mode lso is for devices: nobody behind a tunnel splits super-frames".to_owned()
            );
        }
        self.check_tunnel()?;
        let Some(cidr) = self.address.fixed() else {
            return match self.gateway {
                Some(_) => Err(format!(
                    "--gateway goes with a fixed --address: {} brings its own",
                    self.address
                )),
                None => Ok(()),
            };
        };
        let address = cidr.address();
        if !is_host(address) || cidr.broadcast().is_some_and(|all| all == address) {
            return Err(format!("--address {cidr} is not the address of one host"));
        }
        // But for prefixes of 31 bits (RFC 3021) and of one host.
        if address.is_ipv4() && cidr.prefix_len() < 31 && cidr.network().address() == address {
            return Err(format!("--address {cidr} is the network itself, not a host on it"));
        }
        match self.gateway {
            Some(gateway) if !cidr.contains(gateway) => {
                Err(format!("--gateway {gateway} is not on the network of --address {cidr}"))
            }
            _ => Ok(()),
        }
    }

    fn check_tunnel(&self) -> Result<(), String> {
        let Some(at) = self.tunnel else {
            return match self.key_file {
                Some(_) => Err("--key-file goes with --tunnel".to_owned()),
                None => Ok(()),
            };
        };
        if at.port() == 0 {
            return Err(format!("--tunnel {at} is nowhere to meet: name a port above 0"));
        }
        if self.address.fixed().is_none() {
            return Err(format!(
                "nobody gives out addresses in a tunnel: --address {} needs a \
                                --device",
                self.address
            ));
        }
        if self.offload == Some(Switch::On) {
            return Err("--offload on is for devices: a tunnel has none to do the work".to_owned());
        }
        Ok(())
    }
}

/// An address and a port.
fn parse_end(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "give an address and a port, such as 10.0.0.1:7000 or [fd00::1]:7000; names of hosts are not looked up"
            .to_owned()
    })
}

/// Whether one host can have this address.
pub(super) fn is_host(address: IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && address != Ipv4Addr::BROADCAST
}

impl SendArguments {
    /// Looks for contradictions.
    ///
    /// # Errors
    /// A sentence that names what cannot stand together, or cannot be connected to.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { to, link, .. } = self;
        let broadcast = link.address.fixed().and_then(|cidr| cidr.broadcast());
        let is_broadcast = broadcast.is_some_and(|all| all == to.ip());
        if to.port() == 0 || !is_host(to.ip()) || is_broadcast {
            return Err(format!("{to} cannot be connected to: name a host and a port above 0"));
        }
        if let Some(tunnel) = link.tunnel
            && !is_host(tunnel.ip())
        {
            return Err(format!("--tunnel {tunnel} is not at a host that could receive"));
        }
        if to.is_ipv4() != link.address.is_ipv4() {
            return Err(format!("{to} and --address {} are of two IP versions", link.address));
        }
        link.check_files(&[], &[("FILE", Some(&self.file))])?;
        link.check()
    }
}

impl ReceiveArguments {
    /// Looks for contradictions.
    ///
    /// # Errors
    /// A sentence that names what cannot stand together, or cannot be listened on.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { at, link, .. } = self;
        if at.port() == 0 {
            return Err(format!("{at} is nowhere to connect to: name a port above 0"));
        }
        let own = link.address.fixed().map(|cidr| cidr.address());
        let is_any = at.ip().is_unspecified() && at.is_ipv4() == link.address.is_ipv4();
        if own != Some(at.ip()) && !is_any {
            return Err(format!("{at} is not at this stack's --address {}", link.address));
        }
        link.check_files(&[("FILE", Some(&self.file))], &[])?;
        link.check()
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SendArguments {
    /// What to send, - for standard input; of a file that grows meanwhile, what it holds at the beginning
    pub(crate) file: PathBuf,
    // What is in brackets here the documentation of this crate would take for a link.
    #[arg(value_name = "ADDR:PORT", value_parser = parse_end,
          help = "Where to connect to, such as 10.0.0.1:7000 or [fd00::1]:7000")]
    pub(crate) to: SocketAddr,
    /// Send so many bits of frames a second at most, headers included, such as 100M; K, M
    /// and G are powers of 1000 here
    #[arg(long, value_name = "BITS", value_parser = parse_rate)]
    pub(crate) rate: Option<u64>,
    /// Which algorithm decides how much is on its way at once
    #[arg(long, default_value = "cubic", value_parser = congestion_of(Algorithm::ALL))]
    pub(crate) congestion: Algorithm,
    /// How long the other end may take to answer
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "15")]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) link: LinkArguments,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReceiveArguments {
    #[arg(value_name = "ADDR:PORT", value_parser = parse_end,
          help = "Where to listen: this stack's address, such as 10.0.0.2:7000 or [fd00::2]:7000")]
    pub(crate) at: SocketAddr,
    /// The file to write, - for standard output; it appears when all of it has arrived
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) link: LinkArguments,
}
