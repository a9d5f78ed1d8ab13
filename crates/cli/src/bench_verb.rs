//! `multidata bench`: run a job, print what it found, write it as JSON.

use crate::arguments::Job;
use crate::output::{complain, print};
use bench::place::Place;
use bench::results::Results;
use bench::whole_file::{self, WholeFile};
use bench::{Failure, job, plan, table};
use std::collections::BTreeSet;
use std::path::Path;

/// Runs the job.
///
/// # Errors
/// A sentence: no device, a failed run, data that is not what was sent, no place for the results.
pub(crate) fn run(job: &Job) -> Result<(), Failure> {
    // Before anything starts a thread: namespaces belong to threads.
    let scenarios = match plan::needs_kernel(&job.scenarios).then(Place::enter) {
        None => job.scenarios.clone(),
        Some(Ok(place)) => {
            place.shortcomings().iter().for_each(|sentence| complain(sentence));
            job.scenarios.clone()
        }
        Some(Err(failure)) if job.may_use_wire => {
            complain(&format!("{failure}. Running over the in-process wire instead."));
            plan::over_the_wire(&job.scenarios)
        }
        Some(Err(failure)) => return Err(failure),
    };
    if let Some(file) = &job.output.json {
        try_place(file)?;
    }
    if cfg!(debug_assertions) {
        complain("this is a debug build: its figures say nothing; use cargo run --release");
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = usize::try_from(job.output.runs).unwrap_or(usize::MAX);
    let results = job::run_all(&scenarios, rounds, &arguments)?;
    if let Some(file) = &job.output.json {
        whole_file::write_whole(file, results.to_json()?.as_bytes())?;
    }
    print(&report(&results))
}

/// A place that cannot be written should be known before the measuring, not after it.
fn try_place(file: &Path) -> Result<(), Failure> {
    WholeFile::begin(file).map(drop)
}

fn report(results: &Results) -> String {
    let host = &results.host;
    let runs = results.by_scenario().first().map_or(0, |summary| summary.runs);
    let mut text = format!(
        "{} ({}), {}, {} CPUs, {}\n",
        host.program, host.date, host.kernel, host.cpus, host.cpu
    );
    let devices: BTreeSet<&String> = host.devices.values().collect();
    for about in devices {
        text += &format!("Device: {about}.\n");
    }
    text += &format!(
        "Every byte of a pass before the timed runs was verified at the end that received it.\n\
         Medians of {runs} alternating run{}:\n",
        if runs == 1 { "" } else { "s" }
    );
    text += &table::render(results);
    text += "Stack CPU is this process, the kernel's work inside its system calls included; system \
             CPU is the whole machine.\nA received super-frame counts as one packet.\n\n";
    for sentence in table::findings(results) {
        text += &sentence;
        text.push('\n');
    }
    text
}
