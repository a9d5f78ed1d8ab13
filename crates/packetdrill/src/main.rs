//! Runs segment scripts by hand: `multidata-packetdrill [--linux] FILE...`.
//!
//! With `--linux-habits` this stack makes the choices that RFCs leave open as Linux makes them, for
//! scripts that were written for it. With `--linux` each file runs in a process of its own, because a process enters one network
//! namespace only. The exit code is 0 where all passed, 1 where one failed, 2 for wrong use, and 77
//! where the machine does not grant what it takes.

use packetdrill::{Judge, Script, parse, run_on_linux, run_on_stack};
use std::path::Path;
use std::process::{Command, ExitCode};

const CANNOT_RUN: u8 = 77;

/// How a file fared.
enum Verdict {
    Passed,
    Failed(String),
    CannotRun(String),
}

fn main() -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.into_string());
    let words = match words.collect::<Result<Vec<String>, _>>() {
        Ok(words) => words,
        Err(word) => {
            eprintln!("{}: not UTF-8", word.display());
            return ExitCode::from(2);
        }
    };
    let (options, files): (Vec<String>, Vec<String>) =
        words.into_iter().partition(|argument| argument.starts_with("--"));
    let on_linux = options.iter().any(|option| option == "--linux");
    let define = |option: &String| option.strip_prefix("--define=").map(str::to_owned);
    let definitions: Vec<String> = options.iter().filter_map(define).collect();
    let habits = options.iter().any(|option| option == "--linux-habits");
    let known = usize::from(on_linux) + usize::from(habits) + definitions.len();
    if files.is_empty() || options.len() != known {
        eprintln!(
            "usage: multidata-packetdrill [--linux | --linux-habits] [--define=SYMBOL=VALUE]... FILE..."
        );
        return ExitCode::from(2);
    }
    if on_linux && files.len() > 1 {
        return in_processes(&options, &files);
    }
    let mut code = ExitCode::SUCCESS;
    for file in &files {
        match run(Path::new(file), (on_linux, habits), &definitions) {
            Verdict::Passed => println!("{file}: passed"),
            Verdict::Failed(why) => {
                println!("{why}");
                code = ExitCode::FAILURE;
            }
            Verdict::CannotRun(why) => {
                println!("CANNOT RUN: {file}: {why}");
                code = ExitCode::from(CANNOT_RUN);
            }
        }
    }
    code
}

fn run(file: &Path, (on_linux, habits_set): (bool, bool), definitions: &[String]) -> Verdict {
    let at = |line: usize, message: &str| format!("{}:{line}: {message}", file.display());
    let text = match std::fs::read_to_string(file) {
        // On one line, so that the script's own lines keep their numbers.
        Ok(text) => {
            let define = |definition: &String| format!("--define={definition} ");
            let habits = if habits_set { packetdrill::LINUX_HABITS } else { "" };
            let settings = format!("\n// stack: {habits}\n");
            definitions.iter().map(define).collect::<String>() + &text + &settings
        }
        Err(error) => return Verdict::Failed(at(0, &error.to_string())),
    };
    let directory = file.parent().unwrap_or(Path::new(".")).to_owned();
    let script = match parse(&text) {
        Ok(script) => Script { directory, ..script },
        Err(error) => return Verdict::Failed(at(error.line, &error.message)),
    };
    let result = match on_linux {
        true => run_on_linux(&script, &script.directory),
        false => {
            // A script for Linux is judged as its authors had it judged.
            let judge = if habits_set { Judge::AsPacketdrill } else { Judge::Exactly };
            run_on_stack(&script, &text, judge).map_err(Err)
        }
    };
    match result {
        Ok(()) => Verdict::Passed,
        Err(Ok(why)) => Verdict::CannotRun(why),
        Err(Err(failure)) => Verdict::Failed(at(failure.line, &failure.message)),
    }
}

fn in_processes(options: &[String], files: &[String]) -> ExitCode {
    let Ok(program) = std::env::current_exe() else {
        eprintln!("this program does not know where it lies");
        return ExitCode::from(2);
    };
    let mut code = ExitCode::SUCCESS;
    for file in files {
        let status = Command::new(&program).args(options).arg(file).status();
        if !status.is_ok_and(|status| status.success()) {
            code = ExitCode::FAILURE;
        }
    }
    code
}
