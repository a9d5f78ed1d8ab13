//! `cargo xtask simulate`: the simulator, optimised and with its checks on.
//!
//! Builds the command of `crates/simulation` in the profile `checked` and hands it the arguments as
//! they are; `cargo xtask simulate --help` is therefore the command's own help.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::Failure;

/// The package and example of the simulator.
const PACKAGE: &str = "multidata-simulation";
const EXAMPLE: &str = "simulate";

/// Runs the simulator and says whether every seed held.
///
/// # Errors
/// When cargo cannot be run.
pub(crate) fn run(root: &Path, arguments: &[OsString]) -> Result<bool, Failure> {
    let mut command = cargo(root, "run");
    command.arg("--").args(arguments);
    Ok(command.status()?.success())
}

/// A cargo command for the simulator, its own arguments not given yet.
pub(crate) fn cargo(root: &Path, verb: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args([verb, "--quiet", "--profile", "checked"]);
    command.args(["--package", PACKAGE, "--example", EXAMPLE]);
    command
}
