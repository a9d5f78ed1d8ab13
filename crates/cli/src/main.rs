//! The `multidata` command: parse, call, print.
//!
//! Exit codes: 0 for success, 1 where something failed (one sentence on standard error says what),
//! 2 for a wrong command line, 128 and the signal's number (130 for Ctrl-C) where one ended the program. A reader of
//! the output that went away is no failure.

mod arguments;
mod bench_verb;
mod ending;
mod latency_verb;
mod loss_verb;
mod output;
mod ping_verb;
mod transfer;
mod tunnel;
mod watch;

use arguments::{BenchArguments, BenchVerb, CommandLine, Verb};
use clap::{CommandFactory, Parser, error::ErrorKind};
use std::process::ExitCode;

fn main() -> ExitCode {
    let outcome = match CommandLine::parse().verb {
        Verb::KernelEnd => return bench::peer::kernel::serve(),
        Verb::Bench(BenchArguments { workload: Some(BenchVerb::Loss(arguments)), .. }) => {
            loss_verb::run(&sound(arguments.checked()))
        }
        Verb::Bench(BenchArguments { workload: Some(BenchVerb::Latency(arguments)), .. }) => {
            latency_verb::run(&arguments)
        }
        Verb::Bench(BenchArguments { workload: Some(BenchVerb::Cipher(arguments)), .. }) => {
            bench_verb::cipher(&arguments)
        }
        Verb::Bench(arguments) => {
            let report = arguments.report();
            bench_verb::run(&sound(arguments.job()), report.as_deref())
        }
        Verb::Send(arguments) => {
            sound(arguments.check());
            transfer::send(&arguments)
        }
        Verb::Receive(arguments) => {
            sound(arguments.check());
            transfer::receive(&arguments)
        }
        Verb::Ping(arguments) => {
            sound(arguments.check());
            ping_verb::run(&arguments)
        }
    };
    ExitCode::from(ending::exit_code(outcome))
}

/// What the command line asks for, where it does not contradict itself; else the program ends here.
fn sound<T>(asked: Result<T, String>) -> T {
    asked.unwrap_or_else(|sentence| {
        let mut command = CommandLine::command();
        command.build();
        // The usage that helps is that of the subcommand.
        for word in std::env::args_os().skip(1) {
            let Some(inner) = command.find_subcommand(word) else { break };
            command = inner.clone();
        }
        command.error(ErrorKind::ArgumentConflict, sentence).exit()
    })
}
