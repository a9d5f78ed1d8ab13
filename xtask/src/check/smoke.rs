//! A short run of every bench, so that benches never rot.
//!
//! A smoke run proves that the bench starts, ends, and writes its results as JSON; 0.2 s say
//! nothing about speed, so it is built as the simulation is: optimised, with its checks, and in a third of the time
//! that a release takes to link. A new bench gets a line in the table below.

use std::path::Path;

use super::Course;
use crate::Failure;

const PACKAGE: &str = "multidata-cli";
const BINARY: &str = "multidata";
const PROFILE: &str = "checked";

/// One command to run.
pub(super) struct Bench {
    /// What stands behind the program's name, words and spaces.
    arguments: &'static str,
    /// Whether it needs a TUN device in a namespace.
    pub(super) needs_device: bool,
}

/// Every bench, on every kind of device it knows. `--json FILE` is added to each.
pub(super) const BENCHES: &[Bench] = &[
    Bench::anywhere("bench stream --seconds 0.2 --runs 1 --device wire"),
    Bench::anywhere("bench rr --seconds 0.2 --runs 1 --device wire"),
    Bench::anywhere("bench many --connections 8,1000 --seconds 0.2 --runs 1 --device wire"),
    Bench::anywhere(
        "bench copyin --seconds 0.05 --runs 1 --device wire --write-size 64K --datagram 1472",
    ),
    Bench::anywhere(
        "bench receive --layout R2S0F0,R1S2F1,R1S2F0,R1S1F0 --placement core,other,anywhere \
         --connections 4 --seconds 0.05 --runs 1",
    ),
    Bench::on_device(
        "bench receive --device tap --layout R2S0F0,R2S2F1,R1S2F1 --connections 4 \
         --seconds 0.05 --runs 1",
    ),
    Bench::on_device("bench stream --seconds 0.2 --runs 1"),
    Bench::on_device(
        "bench copyin --seconds 0.05 --runs 1 --device tap --write-size 64K --datagram 1472",
    ),
    Bench::on_device("bench rr --seconds 0.2 --runs 1"),
    Bench::on_device("bench many --connections 8,1000 --seconds 0.2 --runs 1"),
    Bench::on_device("bench latency --seconds 0.1 --runs 1"),
    Bench::on_device(
        "bench stream --device tunnel --transform null,chacha20poly1305 --udp-offload on,off \
         --seconds 0.2 --runs 1",
    ),
    Bench::on_device(
        "bench stream --device tunnel --transform chacha20poly1305 --trust-checksums off,on \
         --seconds 0.2 --runs 1",
    ),
    Bench::on_device(
        "bench stream --device packet --squeues 2 --queues 2 --blocks off,1ms \
         --direction both --connections 4 --seconds 0.2 --runs 1",
    ),
    Bench::on_device(
        "bench receive --device packet --layout R1S2F1,R2S0F0 --blocks off,1ms \
         --connections 4 --seconds 0.1 --runs 1",
    ),
    Bench::on_device("bench transmit --write-size 64K --connections 1 --seconds 0.1 --runs 1"),
    Bench::on_device("bench loss --loss 1 --rtt 2 --reorder 1 --corrupt 1 --seconds 0.5 --runs 1"),
];

impl Bench {
    const fn anywhere(arguments: &'static str) -> Self {
        Self { arguments, needs_device: false }
    }

    const fn on_device(arguments: &'static str) -> Self {
        Self { arguments, needs_device: true }
    }

    /// The command as a developer would type it.
    pub(super) fn name(&self) -> String {
        format!("{BINARY} {}", self.arguments)
    }

    /// The same as a file name.
    fn result_name(&self) -> String {
        let words = self.arguments.split(' ').map(|word| word.trim_start_matches('-'));
        format!("{}.json", words.collect::<Vec<_>>().join("-"))
    }
}

/// Builds the binary once, so that a smoke run's time is its own.
pub(super) fn build(course: &mut Course) -> Result<bool, Failure> {
    let arguments = ["build", "--profile", PROFILE, "--package", PACKAGE, "--bin", BINARY];
    Ok(course.cargo_command(&arguments).status()?.success())
}

/// Runs one bench and looks at what it wrote.
pub(super) fn run(course: &mut Course, bench: &Bench, results: &Path) -> Result<bool, Failure> {
    std::fs::create_dir_all(results)?;
    let result_path = results.join(bench.result_name());
    // A result of an earlier run must not pass for this one's.
    if result_path.exists() {
        std::fs::remove_file(&result_path)?;
    }
    let run = ["run", "--quiet", "--profile", PROFILE];
    let cargo = [&run[..], &["--package", PACKAGE, "--bin", BINARY, "--"]].concat();
    let mut command = course.cargo_command(&cargo);
    command.args(bench.arguments.split(' ')).arg("--json").arg(&result_path);
    if !command.status()?.success() {
        return Ok(false);
    }
    check_result(&result_path)
}

/// The result is JSON with something in it.
fn check_result(path: &Path) -> Result<bool, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("no result: {error}"))?;
    let result: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("the result is not JSON: {error}"))?;
    let is_empty = match &result {
        serde_json::Value::Array(values) => values.is_empty(),
        serde_json::Value::Object(values) => values.is_empty(),
        _ => true,
    };
    if is_empty {
        println!("the result holds nothing");
    }
    Ok(!is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(name: &str, text: Option<&str>) -> Result<bool, Failure> {
        let path = std::env::temp_dir().join(format!("xtask-{name}-{}.json", std::process::id()));
        if let Some(text) = text {
            std::fs::write(&path, text)?;
        }
        let verdict = check_result(&path);
        std::fs::remove_file(&path).ok();
        verdict
    }

    #[test]
    fn a_result_must_be_json_with_something_in_it() {
        assert!(verdict("good", Some("{\"goodput\": 1}")).expect("JSON"));
        assert!(!verdict("empty", Some("[]")).expect("JSON"));
        assert!(verdict("text", Some("9.4 Gbit/s")).is_err());
        assert!(verdict("absent", None).is_err());
    }

    #[test]
    fn each_bench_has_a_result_file_of_its_own_and_one_needs_no_device() {
        let names: std::collections::BTreeSet<_> = BENCHES.iter().map(Bench::result_name).collect();
        assert_eq!(names.len(), BENCHES.len());
        assert!(BENCHES.iter().any(|bench| !bench.needs_device));
    }
}
