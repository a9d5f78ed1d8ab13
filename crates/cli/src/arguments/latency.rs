//! The arguments of `bench latency`.

use super::OutputArguments;
use bench::latency::Load;
use bench::plan::each_once;
use bench::sizes::{parse_buffer_size, parse_seconds};
use clap::{Args, ValueEnum};
use std::time::Duration;

#[derive(Clone, Debug, Args)]
pub(crate) struct LatencyArguments {
    /// What goes on beside the transactions
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "LOAD,..",
        default_value = "idle,send,receive"
    )]
    load: Vec<LoadArgument>,
    /// Length of a request and of its response
    #[arg(long, value_name = "B", default_value = "1", value_parser = parse_buffer_size)]
    pub(crate) size: usize,
    /// How long each run asks
    #[arg(long, value_name = "S", value_parser = parse_seconds, default_value = "1")]
    pub(crate) seconds: Duration,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

/// A bulk transfer over another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LoadArgument {
    /// None
    Idle,
    /// To the far end
    Send,
    /// From the far end
    Receive,
}

impl LatencyArguments {
    /// What goes on beside the transactions.
    pub(crate) fn loads(&self) -> Vec<Load> {
        let load = |argument: &LoadArgument| match argument {
            LoadArgument::Idle => Load::Idle,
            LoadArgument::Send => Load::Send,
            LoadArgument::Receive => Load::Receive,
        };
        each_once(self.load.iter().map(load))
    }
}
