//! Counts instructions per segment, one packet at a time and in batches.
//!
//! Time on a shared machine does not repeat; instruction counts do. The `bulk` example of the stack
//! crate moves a fixed number of bytes between two shards over the in-process wire, in one thread
//! and in virtual time; callgrind counts what happens inside `Host::run`: both stacks and the wire,
//! without the application's own copy in and out.

use std::path::Path;
use std::process::Command;

use crate::Failure;

const PACKAGE: &str = "multidata-stack";
const EXAMPLE: &str = "bulk";
const MODES: &[&str] = &["single", "multidata", "lso"];
const BYTES: u64 = 32_000_000;

/// Runs every mode under callgrind and prints the counts side by side.
///
/// # Errors
/// When valgrind is missing, or the example does not build or run.
pub(crate) fn run(root: &Path) -> Result<bool, Failure> {
    let program = build(root)?;
    let mut counts = Vec::new();
    for mode in MODES {
        eprintln!("counting {mode} ...");
        counts.push((*mode, count(&program, mode)?));
    }
    println!(
        "{:<10} {:>10} {:>16} {:>24}",
        "mode", "segments", "instructions", "per segment, both ends"
    );
    for (mode, counted) in &counts {
        let Counted { segments, instructions } = counted;
        println!("{mode:<10} {segments:>10} {instructions:>16} {:>24.0}", counted.per_segment());
    }
    let (single, multidata) = (counts[0].1.per_segment(), counts[1].1.per_segment());
    println!("single takes {:.2} times the instructions of multidata", single / multidata);
    Ok(true)
}

struct Counted {
    segments: u64,
    instructions: u64,
}

impl Counted {
    fn per_segment(&self) -> f64 {
        self.instructions as f64 / self.segments as f64
    }
}

fn build(root: &Path) -> Result<std::path::PathBuf, Failure> {
    let arguments = ["build", "--release", "--package", PACKAGE, "--example", EXAMPLE];
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    if !Command::new(&cargo).args(arguments).current_dir(root).status()?.success() {
        return Err("the example does not build".into());
    }
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root).no_deps().exec()?;
    Ok(metadata.target_directory.join("release/examples").join(EXAMPLE).into())
}

fn count(program: &Path, mode: &str) -> Result<Counted, Failure> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={EXAMPLE}::Host::run"))
        .arg(program)
        .args([mode, &BYTES.to_string()])
        .output()
        .map_err(|error| format!("valgrind does not start ({error}): install it to count"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let instructions = collected.and_then(|(_, number)| number.trim().parse().ok());
    match (printed.trim().parse(), instructions) {
        (Ok(segments), Some(instructions)) => Ok(Counted { segments, instructions }),
        _ => Err(format!("valgrind counted nothing: {}", said.trim()).into()),
    }
}
