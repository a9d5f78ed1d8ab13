//! Counts instructions: a segment, one packet at a time and in batches; a byte there and one back; a
//! connection that is opened, used for that and closed; a datagram that is echoed.
//!
//! Time on a shared machine does not repeat; instruction counts do. The `counted` example of the stack
//! crate works between two shards over the in-process wire, in one thread and in virtual time.

use std::path::Path;
use std::process::Command;

use crate::Failure;

const PACKAGE: &str = "multidata-stack";
const EXAMPLE: &str = "counted";

/// What is counted.
struct Work {
    name: &'static str,
    /// Bytes, transactions, connections or echoes.
    amount: u64,
    /// The function inside of which instructions count, with all that it calls.
    within: &'static str,
    /// What one of them is.
    unit: &'static str,
}

const fn bytes(name: &'static str) -> Work {
    // Both stacks and the wire, without the application's own copy in and out.
    Work { name, amount: 32_000_000, within: "host::Host::run", unit: "data segment" }
}

const ALL: &[Work] = &[
    bytes("single"),
    bytes("multidata"),
    bytes("lso"),
    Work { name: "transactions", amount: 2_000, within: "transactions", unit: "byte and answer" },
    Work {
        name: "connections",
        amount: 2_000,
        within: "connect_and_close",
        unit: "connection with a byte and an answer",
    },
    Work { name: "datagrams", amount: 2_000, within: "echoes", unit: "datagram and its echo" },
];

/// Counts all under callgrind and prints it side by side.
///
/// # Errors
/// When valgrind is missing, or the example does not build or run.
pub(crate) fn run(root: &Path) -> Result<bool, Failure> {
    let program = build(root)?;
    let mut counts = Vec::new();
    for work in ALL {
        eprintln!("counting {} ...", work.name);
        counts.push(count(&program, work)?);
    }
    println!("{:<14} {:>8} {:>16}   instructions of both ends", "work", "done", "instructions");
    for (work, counted) in ALL.iter().zip(&counts) {
        let Counted { done, instructions } = counted;
        let each = counted.each();
        println!("{:<14} {done:>8} {instructions:>16}   {each:.0} a {}", work.name, work.unit);
    }
    let (single, multidata) = (counts[0].each(), counts[1].each());
    println!("single takes {:.2} times the instructions of multidata", single / multidata);
    Ok(true)
}

struct Counted {
    done: u64,
    instructions: u64,
}

impl Counted {
    fn each(&self) -> f64 {
        self.instructions as f64 / self.done as f64
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

fn count(program: &Path, work: &Work) -> Result<Counted, Failure> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={EXAMPLE}::{}", work.within))
        .arg(program)
        .args([work.name, &work.amount.to_string()])
        .output()
        .map_err(|error| format!("valgrind does not start ({error}): install it to count"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let instructions = collected.and_then(|(_, number)| number.trim().parse().ok());
    match (printed.trim().parse(), instructions) {
        (Ok(done), Some(instructions)) if instructions > 0 => Ok(Counted { done, instructions }),
        _ => Err(format!("valgrind counted nothing: {}", said.trim()).into()),
    }
}
