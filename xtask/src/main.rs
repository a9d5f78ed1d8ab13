//! The one door for developers: `cargo xtask <verb>`.
//!
//! - `tidy` reads the sources and reports what breaks the rules of the house, one finding a line.
//! - `test` is the whole check, the one that CI runs; `test --quick` is the part to run while
//!   working.
//! - `simulate` runs seeds of the simulator, and replays one that failed.
//! - `canaries` plants mistakes and sees that they are found.
//! - `instructions` counts instructions per segment in every transmit mode, which repeats where time
//!   does not (needs valgrind).
//!
//! A verb prints what it does, exits 0 when all is well and 1 when something is wrong. All but
//! `instructions` need cargo, git and nothing else.

mod canaries;
mod check;
mod instructions;
mod simulate;
mod tidy;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What stopped a verb before it could give a verdict.
type Failure = Box<dyn std::error::Error>;

#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", about = "The one door for developers")]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Report what breaks the rules of the house: edges between crates, lengths, forbidden words,
    /// dead files, system calls in the core, stray `unsafe`
    Tidy,
    /// Run the whole check: fmt, clippy, tidy, tests, links of the documentation, a smoke run of every bench, cargo-deny
    Test {
        /// Only fmt, clippy, tidy and the tests of the dev profile
        #[arg(long)]
        quick: bool,
    },
    /// Run seeded simulations of stacks over bad links (`--seed N --count M`), or replay a failure
    #[command(disable_help_flag = true)]
    Simulate {
        /// Arguments of the simulator; `--help` shows them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Plant mistakes, one at a time, in a copy of the tree, and see that the simulator, a fuzz body
    /// or a unit test finds each
    Canaries {
        /// Only those whose name contains this
        #[arg(long)]
        only: Option<String>,
        /// Only the two that `test` takes
        #[arg(long)]
        sample: bool,
    },
    /// Count instructions per segment in every transmit mode (needs valgrind)
    Instructions,
    /// Try to enter a network namespace and say why not (run by `test`, in a process of its own)
    #[command(hide = true)]
    ProbeNamespace,
}

fn main() -> ExitCode {
    let verdict = match CommandLine::parse().verb {
        Verb::Tidy => tidy::run(&repository_root()),
        Verb::Test { quick } => check::run(&repository_root(), quick),
        Verb::Simulate { arguments } => simulate::run(&repository_root(), &arguments),
        Verb::Canaries { only, sample } => {
            canaries::run(&repository_root(), only.as_deref(), sample)
        }
        Verb::Instructions => instructions::run(&repository_root()),
        Verb::ProbeNamespace => check::probe_namespace(),
    };
    match verdict {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The directory above xtask's own. Cargo names that one at run time; the path known at compile
/// time serves when the binary is started by hand.
fn repository_root() -> PathBuf {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest_dir.parent().map_or_else(|| PathBuf::from("."), PathBuf::from)
}
