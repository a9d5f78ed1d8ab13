//! Wrong arguments and places that cannot be had.

use crate::harness::{command, finish, run, run_after, run_interrupted};
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn wrong_arguments_exit_with_2_and_say_what_is_wrong() {
    for (arguments, part) in [
        ("", "Usage"),
        ("benchmark", "benchmark"),
        ("bench stream --bytes lots", "not a size"),
        ("bench stream --bytes 10MB", "not a unit"),
        ("bench stream --device carrier-pigeon", "carrier-pigeon"),
        ("bench stream --mode lso --offload off", "--offload on"),
        ("bench stream --device wire --peer kernel", "--peer kernel"),
        ("bench stream --mtu 12", "--mtu 12"),
        ("bench stream --connections 9999999", "--connections"),
        ("bench stream --seconds -1", "-1"),
        ("bench rr --size 0", "0 bytes"),
        ("send only-a-file", "required"),
        ("send file 10.0.0.1:7 --device t0 --address 10.0.0.2", "10.0.0.2/24"),
        ("send file 10.0.0.1:7 --device t0 --address 10.0.0.0/24", "the network itself"),
        ("send file example.org:7 --device t0 --address 10.0.0.2/24", "names of hosts"),
        ("send file 10.0.0.1 --device t0 --address 10.0.0.2/24", "such as 10.0.0.1:7000"),
        ("send file [::1]:7 --device t0 --address 10.0.0.2/24", "Usage: multidata send"),
        ("bench stream --mtu 12", "Usage: multidata bench stream"),
        ("bench many --connections 0", "from 1 to 19000"),
        ("bench transmit --device wire --connections 0,1", "from 1 to 1000"),
        ("bench receive --device wire --connections 1,1001", "from 1 to 1000"),
        ("bench many --connections 1000000", "from 1 to 19000"),
        ("bench many --queue 0", "from 1 to 1048576"),
        ("bench loss --loss 100", "less than 100"),
        ("bench loss --rtt 1,1000", "--rate 1000 and --rtt 1000 have 125 MB on the way"),
        ("send file 10.0.0.1 --device t0 --address 10.0.0.2/24", "10.0.0.1"),
        ("receive 10.0.0.2:7 file --device t0 --address 10.0.0.2/99", "10.0.0.2/99"),
        (
            "receive 10.0.0.2:7 file --device t0 --address 10.0.0.2/24 --mode lso --offload off",
            "--offload on",
        ),
        (
            "send file 10.0.0.1:7 --tunnel 192.0.2.1:7 --key-file k --address 10.0.0.2/24 --mode lso",
            "is for devices",
        ),
    ] {
        let ran = run(arguments);
        assert_eq!(ran.code, Some(2), "{arguments}: {ran:?}");
        assert!(ran.stderr.contains(part), "{arguments}: {ran:?}");
        assert!(ran.stdout.is_empty(), "{arguments}: {ran:?}");
    }
}

#[test]
fn help_names_the_verbs_and_not_the_hidden_one() {
    let ran = run("--help");
    assert_eq!(ran.code, Some(0));
    assert!(ran.stdout.starts_with("A userspace TCP/IP stack whose unit of work"), "{ran:?}");
    for verb in ["bench", "send", "receive"] {
        assert!(ran.stdout.contains(verb), "{ran:?}");
    }
    assert!(!ran.stdout.contains("kernel-end"), "{ran:?}");
}

#[test]
fn a_missing_device_is_named() {
    for arguments in [
        "send /dev/null 10.9.9.1:7000 --device no-such-tap0 --address 10.9.9.2/24",
        "receive 10.9.9.2:7000 /dev/null --device no-such-tap0 --address 10.9.9.2/24",
    ] {
        let ran = run(arguments);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.sentence().contains("no-such-tap0"), "{ran:?}");
        // What to do about it goes with the address that was given.
        assert!(ran.sentence().contains("ip addr add 10.9.9.1/24 dev"), "{ran:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_or_written_is_named() {
    let link = "--device no-such-tap0 --address 10.9.9.2/24";
    for (arguments, sentence) in [
        (
            "send /no/such/file 10.9.9.1:7000",
            "cannot read /no/such/file: No such file or directory",
        ),
        ("send / 10.9.9.1:7000", "cannot read /: it is a directory"),
        (
            "receive 10.9.9.2:7000 /no/such/file",
            "cannot write /no/such/file: No such file or directory",
        ),
    ] {
        let ran = run(&format!("{arguments} {link}"));
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert_eq!(ran.sentence(), sentence);
    }
}

// Names of files are bytes: whoever gives one that is no text gets results in it, or a sentence.
#[test]
fn a_name_that_is_no_text_is_as_good_as_another() {
    let name = OsStr::from_bytes(b"results-\xff.json");
    let place = std::env::temp_dir().join(format!("named-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a temporary directory");
    let file = place.join(name);
    let mut measured = command("bench stream --device wire --seconds 0.05 --runs 1 --json");
    measured.arg(&file);
    let ran = finish(measured);
    let written = std::fs::read_to_string(&file);
    std::fs::remove_dir_all(&place).expect("it is there");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(written.is_ok_and(|text| text.starts_with('{')), "{ran:?}");

    let mut contradicting = command("bench stream --device tap --peer self --json");
    contradicting.arg(name);
    let ran = finish(contradicting);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("--peer self needs"), "{ran:?}");
}

#[test]
fn a_standard_input_that_is_closed_is_no_empty_file() {
    let arguments = "send - 10.9.9.1:7000 --device no-such-tap0 --address 10.9.9.2/24";
    let ran = run_after("exec <&-", arguments);
    assert_eq!((ran.code, ran.sentence()), (Some(1), "cannot read -: standard input is closed"));
    // One that is empty is.
    let ran = run_after("exec </dev/null", arguments);
    assert!(ran.sentence().contains("no-such-tap0"), "{ran:?}");
}

#[test]
fn results_that_cannot_be_written_are_an_error_and_leave_nothing() {
    let short = "bench stream --device wire --mode multidata --bytes 4K --runs 1";
    let ran = run(&format!("{short} --json /no/such/place.json"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.sentence().starts_with("cannot write /no/such/place.json"), "{ran:?}");
    assert!(ran.stdout.is_empty(), "known before the measuring: {ran:?}");

    let ran = run(&format!("{short} --json /dev/full"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("No space left on device"), "{ran:?}");
    assert!(ran.stdout.contains("multidata"), "what was measured is not lost: {ran:?}");

    let ran = run(&format!("{short} --capture /dev/full"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.sentence().contains("the capture is not complete: No space left"), "{ran:?}");

    let directory = tempfile::tempdir().expect("a temporary directory");
    let occupied = directory.path().join("occupied");
    std::fs::create_dir(&occupied).expect("a directory of ours");
    let ran = run(&format!("{short} --json {}", occupied.display()));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.sentence().ends_with("it is a directory"), "{ran:?}");
    let left = std::fs::read_dir(directory.path()).expect("a directory of ours").count();
    assert_eq!(left, 1, "something was left behind");
}

#[test]
fn a_report_has_its_place_before_the_measuring() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let short = "bench transmit --device wire --mode single --write-size 64K --connections 1 --zero-copy off \
                 --seconds 0.01 --runs 1";
    let place = directory.path().join("new");
    let place = place.display();
    let ran = run(&format!("{short} --report {place} --json {place}/of-it.json"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let names = std::fs::read_dir(directory.path().join("new")).expect("it was made").count();
    assert_eq!(names, 3, "the page, its results, and those that were asked for");

    for name in ["index.html", "results.json"] {
        let occupied = directory.path().join(format!("occupied-{name}"));
        std::fs::create_dir_all(occupied.join(name)).expect("a directory of ours");
        let ran = run(&format!("{short} --report {}", occupied.display()));
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.sentence().ends_with("it is a directory"), "{ran:?}");
        assert!(ran.stdout.is_empty(), "known before the measuring: {ran:?}");
    }
}

#[test]
fn who_reads_a_pipe_gets_the_results() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pipe = directory.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("it is everywhere");
    assert!(made.success());
    let (read, results) = std::sync::mpsc::channel();
    let place = pipe.clone();
    std::thread::spawn(move || read.send(std::fs::read_to_string(place)));
    let short = "bench stream --device wire --mode multidata --bytes 4K --runs 1";
    let ran = run(&format!("{short} --json {}", pipe.display()));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let results = results.recv().expect("the reader lives").expect("a pipe of text");
    let results: serde_json::Value = serde_json::from_str(&results).expect("JSON");
    assert_eq!(results["runs"].as_array().map(Vec::len), Some(1));
}

#[test]
fn an_interruption_shows_what_was_measured_until_then() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("results.json");
    let names = || std::fs::read_dir(directory.path()).expect("a directory of ours").count();
    let arguments = "bench stream --device wire --mode multidata --seconds 0.05 --runs 1000";
    let arguments = format!("{arguments} --json {}", file.display());
    // How long the first run takes nobody knows.
    for seconds in [1, 2, 4, 8, 16, 32] {
        let ran = run_interrupted(&arguments, Duration::from_secs(seconds));
        if !ran.stdout.contains("wire send multidata") {
            assert_ne!(ran.code, Some(0), "{ran:?}");
            assert_eq!(names(), 0, "something was left behind");
            continue;
        }
        assert_eq!(ran.code, Some(130), "{ran:?}");
        assert!(ran.stdout.contains("Medians of up to 1000 alternating runs"), "{ran:?}");
        assert!(ran.stderr.contains("not all was measured"), "{ran:?}");
        let results = std::fs::read_to_string(&file).expect("it was written");
        let results: serde_json::Value = serde_json::from_str(&results).expect("JSON");
        let runs = results["runs"].as_array().expect("a list").len();
        assert!((1..1_000).contains(&runs), "{runs} runs");
        assert_eq!(results["host"]["complete"], false);
        assert_eq!(names(), 1, "something was left behind");
        return;
    }
    panic!("no run ended in half a minute");
}

#[test]
fn results_on_standard_output_are_json_alone() {
    let ran = run("bench stream --device wire --mode multidata --bytes 4K --runs 1 --json -");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str::<serde_json::Value>(&ran.stdout).expect("JSON and nothing else");
    assert!(ran.stderr.contains("Medians"), "{ran:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure_and_a_full_output_is_one() {
    let short = "bench stream --device wire --mode multidata --bytes 4K --runs 1";
    let mut child = command(short)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command was built");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("a child of ours");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert_eq!(output.status.code(), Some(0), "{stderr}");

    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
    let output = command(short).stdout(full).stderr(Stdio::piped()).output().expect("it was built");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot write to standard output"), "{stderr}");
}

#[test]
fn the_kernels_end_refuses_nonsense_and_ends_with_its_parent() {
    let mut child = command("kernel-end")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command was built");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"nonsense\n").expect("it reads");
    let output = child.wait_with_output().expect("a child of ours");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("Failed"));
}
