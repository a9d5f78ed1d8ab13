//! `multidata bench`: run a job, print what it found, write it as JSON.

use crate::arguments::{CipherArguments, Job, OutputArguments, Reading};
use crate::ending;
use crate::output::{complain, deliver, leave_line, print, tell_missing};
use bench::growing::Growing;
use bench::peer::kernel;
use bench::place::Place;
use bench::report::Subject;
use bench::results::{Host, Results, to_json};
use bench::scenario::PeerKind;
use bench::whole_file::WholeFile;
use bench::{
    Attempt, Failure, Scenario, copy_in, counted, job, layouts, many, plan, receive, table,
};
use std::collections::BTreeSet;
use std::path::Path;

/// Runs the job, and tells what was measured: where it fails or is interrupted, what was until then.
///
/// # Errors
/// A sentence: no device, a failed run, data that is not what was sent, no place for the results.
pub(crate) fn run(job: &Job, directory: Option<&Path>) -> Result<(), Failure> {
    // Before anything starts a thread: namespaces belong to threads.
    job.left_out.iter().for_each(|why| complain(&format!("left out: {why}")));
    let scenarios = without_refused(&possible(job)?, why_not)?;
    // The results may go there as well.
    if let Some(directory) = directory {
        std::fs::create_dir_all(directory)
            .attempt(|| format!("cannot make the directory {}", directory.display()))?;
        // A place that cannot be written should be known before the measuring, not after it.
        for name in bench::report::FILES {
            WholeFile::begin(&directory.join(name))?;
        }
    }
    let Preparation { rounds, line, place } = prepare(&job.output)?;
    // Every run adds a section of its own.
    if let Some(file) = scenarios.iter().find_map(|scenario| scenario.capture.as_ref()) {
        let name = file.display();
        std::fs::File::create(file).attempt(|| format!("cannot capture into {name}"))?;
    }
    let (results, outcome) =
        measured(Results::begin(&line), move |results| job::run_all(&scenarios, rounds, results));
    tell_missing(results.capture_lost);
    tell(outcome, rounds, !results.runs.is_empty(), |medians_of| {
        let text = report(job.reading, &results, medians_of);
        let is_for_json = place.as_ref().is_some_and(WholeFile::is_standard_output);
        let delivered = deliver(&text, place, || to_json(&results));
        let drawn = directory.map_or(Ok(()), |it| draw(it, job.reading, &results, is_for_json));
        delivered.and(drawn)
    })
}

/// Writes the page with plots and says where it is.
fn draw(
    directory: &Path,
    reading: Reading,
    results: &Results,
    is_output_for_json: bool,
) -> Result<(), Failure> {
    let subject = match reading {
        Reading::Receive => Subject::Receive,
        Reading::Layouts => Subject::Layouts,
        Reading::Modes | Reading::Transmit | Reading::CopyIn | Reading::Many => Subject::Transmit,
    };
    let page = bench::report::write(directory, results, subject)?;
    let sentence = format!("Plots: {}\n", page.display());
    match is_output_for_json {
        true => complain(sentence.trim_end()),
        false => print(&sentence)?,
    }
    Ok(())
}

/// Measures what the transforms of a tunnel do alone.
///
/// # Errors
/// A sentence.
pub(crate) fn cipher(arguments: &CipherArguments) -> Result<(), Failure> {
    if arguments.pin {
        bench::place::pin_to_cpu(0)?;
    }
    let rounds = usize::try_from(arguments.runs).unwrap_or(usize::MAX);
    for alone in bench::cipher::measure(arguments.size, arguments.seconds, rounds)? {
        print(&format!(
            "{}: packets of {} bytes, one core: sealed at {:.2} Gbit/s, opened at {:.2} Gbit/s\n",
            alone.name, arguments.size, alone.seal_gbps, alone.open_gbps
        ))?;
    }
    Ok(())
}

/// The scenarios that can run here. Where the device was left to us, what cannot be had is said and
/// left out; where it was asked for, that is a failure.
fn possible(job: &Job) -> Result<Vec<Scenario>, Failure> {
    if !plan::needs_tap(&job.scenarios) {
        if plan::needs_network(&job.scenarios) {
            let place = Place::enter_without_devices()?;
            place.shortcomings().iter().for_each(|sentence| complain(sentence));
        }
        return Ok(job.scenarios.clone());
    }
    let place = match Place::enter() {
        Ok(place) => place,
        Err(failure) if job.may_use_wire => {
            complain(&format!("{failure}. Running over the in-process wire instead."));
            return Ok(plan::over_the_wire(&job.scenarios));
        }
        Err(failure) => return Err(failure),
    };
    place.shortcomings().iter().for_each(|sentence| complain(sentence));
    if !job.may_use_wire {
        return Ok(job.scenarios.clone());
    }
    without_refused(&job.scenarios, |scenario| place.why_not(scenario))
}

/// Why a scenario cannot run here, wherever its device may be had.
fn why_not(scenario: &Scenario) -> Option<Failure> {
    match scenario.peer() {
        PeerKind::Kernel => kernel::why_not(scenario.connections),
        PeerKind::Own => None,
    }
}

/// The scenarios for which there is no reason why not; the others are said.
fn without_refused(
    scenarios: &[Scenario],
    why_not: impl Fn(&Scenario) -> Option<Failure>,
) -> Result<Vec<Scenario>, Failure> {
    let mut possible = Vec::new();
    for scenario in scenarios {
        match why_not(scenario) {
            None => possible.push(scenario.clone()),
            Some(failure) => complain(&format!("left out: {}: {failure}", scenario.name())),
        }
    }
    match possible.is_empty() {
        true => Err(Failure::new("nothing of what was asked for can run here")),
        false => Ok(possible),
    }
}

/// What is measured with, of whatever kind it is.
pub(crate) struct Preparation {
    pub(crate) rounds: usize,
    /// The command line, for the results.
    pub(crate) line: Vec<String>,
    /// Where the results go as JSON.
    pub(crate) place: Option<WholeFile>,
}

/// Says what should be known before the measuring and not after it, and arranges for interruptions: of who measures in
/// namespaces of its own, behind their making.
///
/// # Errors
/// No place for the results.
pub(crate) fn prepare(output: &OutputArguments) -> Result<Preparation, Failure> {
    ending::arrange()?;
    let place = output.json.as_deref().map(begin_place).transpose()?;
    if cfg!(debug_assertions) {
        complain("this is a debug build: its figures say nothing; use cargo run --release");
    }
    Ok(Preparation {
        rounds: usize::try_from(output.runs).unwrap_or(usize::MAX),
        line: std::env::args_os().skip(1).map(|word| word.to_string_lossy().into()).collect(),
        place,
    })
}

/// Begins the file for the results. A place that cannot be written should be known before the measuring, not after it;
/// and who reads a pipe waits for what comes, which a second opening would not find any more.
pub(crate) fn begin_place(file: &Path) -> Result<WholeFile, Failure> {
    let place = WholeFile::begin(file)?;
    if let Some(temporary) = place.temporary_path() {
        ending::remove_at_end(temporary.to_owned());
    }
    Ok(place)
}

/// Measures, until that is done, fails or is interrupted: what there is then, and whether it is all.
pub(crate) fn measured<R: AsMut<Host> + Clone + Send + 'static>(
    results: R,
    measure: impl FnOnce(&Growing<R>) -> Result<(), Failure> + Send + 'static,
) -> (R, Result<(), Failure>) {
    let results = Growing::new(results);
    let growing = results.clone();
    let outcome = match ending::unless_it_ends(move || measure(&growing)) {
        Ok(Some(outcome)) => outcome,
        Ok(None) => {
            leave_line();
            ending::check()
        }
        Err(failure) => Err(failure),
    };
    let mut results = results.so_far();
    results.as_mut().complete = outcome.is_ok();
    (results, outcome)
}

/// Tells what was measured, if anything was; `tell` hears of how many runs its medians are.
///
/// # Errors
/// Why it is not all, or could not be told.
pub(crate) fn tell(
    outcome: Result<(), Failure>,
    rounds: usize,
    has_runs: bool,
    tell: impl FnOnce(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if outcome.is_err() && !has_runs {
        return outcome;
    }
    let mut medians_of = format!("{rounds} alternating run{}", if rounds == 1 { "" } else { "s" });
    if outcome.is_err() {
        medians_of.insert_str(0, "up to ");
        complain("not all was measured; this is what was until then");
    }
    let told = tell(&medians_of);
    if let (Err(_), Err(failure)) = (&outcome, &told) {
        complain(&failure.to_string());
    }
    outcome.and(told)
}

fn report(reading: Reading, results: &Results, medians_of: &str) -> String {
    let host = &results.host;
    let mut text = format!("{host}\n");
    let devices: BTreeSet<&String> = host.devices.values().collect();
    for about in devices {
        text += &format!("Device: {about}.\n");
    }
    text += &format!(
        "Every byte of a pass before the timed runs was verified at the end that received it.\n\
         Medians of {medians_of}:\n"
    );
    let counted = || counted::render(results) + counted::EXPLANATION;
    let (tables, findings) = match reading {
        Reading::Modes => (table::render(results) + CPU, table::findings(results)),
        Reading::Transmit => (transmitted(results) + CPU, table::findings(results)),
        Reading::CopyIn => (copy_in::render(results) + SENDER, copy_in::findings(results)),
        Reading::Many => (many::render(results) + SHARES, many::findings(results)),
        Reading::Layouts => {
            (layouts::render(results) + BOTH_ENDS + &counted(), layouts::findings(results))
        }
        Reading::Receive => {
            (receive::render(results) + AT_A_TIME + &counted(), receive::findings(results))
        }
    };
    text += &tables;
    text.push('\n');
    for sentence in findings {
        text += &sentence;
        text.push('\n');
    }
    text
}

// What is to be known about the figures of each reading.
const CPU: &str = "Stack CPU is this process, the kernel's work inside its system calls included; system \
                   CPU is the whole machine, by the kernel's ticks and without stolen time, so that it may \
                   fall below.\nA received super-frame counts as one packet.\n";
const SENDER: &str = "Sender CPU is that of the writing thread while it writes, the kernel's work inside its \
                      system calls included.\nA pool miss is a block from the allocator; oversize: one \
                      that is too long to be kept for reuse. KB and MB are 2^10 and 2^20 bytes.\n";
const SHARES: &str = "Stack CPU is this process, which over the wire holds both ends. A share is what came over \
                      one connection, against that of all divided evenly.\n";
const BOTH_ENDS: &str = "Stack CPU is this process, which over the wire holds both ends.\n";
const AT_A_TIME: &str = "Frames at a time are a bound; what came up is frames for each batch. Stack CPU is this \
                         process, which over the wire holds both ends; waits are those for the device.\n";

/// The tables of `bench transmit`, and what their columns are.
fn transmitted(results: &Results) -> String {
    let mut text = table::render_transmit(results);
    text += "A mapping is a piece of memory that the device was shown: a vector of a system call, a \
             descriptor of a ring, a block of the wire.\n";
    if let Some(times) = table::render_times(results) {
        text += &times;
        text += "Time is that of the run or, where that is longer, the CPU time of all threads that write \
                 together: of it what they take inside the device's calls with the kernel's work there, \
                 copying in, and for all the rest; and what is left, when none of them was at work. Of the \
                 calls one in 16 is measured, of the copies one in 4.\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_the_kernel_refuses_is_left_out_and_the_rest_runs() {
        let job = plan::default_job(Duration::from_secs(1));
        let refused = |scenario: &Scenario| scenario.napi.then(|| Failure::new("no thread"));
        let possible = without_refused(&job, refused).expect("most of it is left");
        let with_napi = job.iter().filter(|scenario| scenario.napi).count();
        assert_eq!(possible.len(), job.len() - with_napi);
        assert!(possible.iter().all(|scenario| !scenario.napi));
        assert!(without_refused(&job, |_| Some(Failure::new("nothing"))).is_err());
    }
}
