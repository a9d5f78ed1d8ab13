//! The arguments of `ping`.

use super::LinkArguments;
use super::transfer::is_host;
use bench::ping::Plan;
use bench::sizes::{parse_buffer_size, parse_seconds};
use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, Args)]
pub(crate) struct PingArguments {
    /// Whom to ask
    #[arg(value_name = "ADDRESS")]
    to: IpAddr,
    #[command(flatten)]
    pub(crate) link: LinkArguments,
    /// Requests in all
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..))]
    count: u16,
    /// Requests that leave together, in one batch
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..))]
    batch: u16,
    /// Time between two batches
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "0.2")]
    interval: Duration,
    /// Data of each request
    #[arg(long, value_name = "B", value_parser = parse_buffer_size, default_value = "56")]
    size: usize,
    /// How long replies to the last batch may take
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "1")]
    timeout: Duration,
    /// Also write the results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl PingArguments {
    /// Looks for contradictions.
    ///
    /// # Errors
    /// A sentence that names what cannot stand together, or cannot be asked.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { to, link, .. } = self;
        if !is_host(*to) {
            return Err(format!("{to} cannot be asked: name a host"));
        }
        if to.is_ipv4() != link.address.is_ipv4() {
            return Err(format!("{to} and --address {} are of two IP versions", link.address));
        }
        link.check_files(&[("--json", self.json.as_deref())], &[])?;
        link.check()
    }

    pub(crate) fn plan(&self) -> Plan {
        Plan {
            to: self.to,
            count: self.count,
            batch: self.batch,
            interval: self.interval,
            len_bytes: self.size,
            patience: self.timeout,
        }
    }
}
