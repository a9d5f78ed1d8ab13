//! Echo requests of the command, which the kernel answers.

use crate::ends::interrupt;
use crate::ground::{KERNEL, Running, link};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use tempfile::tempdir;

pub(crate) fn echoes_are_timed() {
    let directory = tempdir().expect("a temporary directory");
    let file = directory.path().join("ping.json");
    for version in [0, 1] {
        let options = "--count 60 --batch 20 --interval 0.05 --size 3000 --timeout 5 --json";
        let (to, link) = (KERNEL[version], link(version));
        let running = Running::start(&format!("ping {to} {link} {options} {}", file.display()));
        let (code, output, errors) = running.output();
        assert_eq!((code, &*errors), (Some(0), ""));
        assert!(output.contains("20 in a batch") && output.contains("median"), "{output}");
        let json = std::fs::read(&file).expect("it was written");
        let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!((&json["sent"], &json["received"]), (&60.into(), &60.into()));
        assert!(json["packets_per_batch"].as_f64() > Some(4.0), "{json}");
        let times = json["round_trips_us"].as_array().expect("a list");
        assert!(times.len() == 60 && times.iter().all(|it| it.as_f64() > Some(0.0)));
    }
}

pub(crate) fn nobody_answers() {
    let running = Running::start(&format!("ping 10.9.0.77 {} --count 2 --timeout 0.2", link(0)));
    let (code, output, errors) = running.output();
    assert_eq!(code, Some(1));
    assert!(output.contains("100.0"), "{output}");
    assert!(errors.contains("10.9.0.77 did not answer"), "{errors}");
    let running = Running::start(&format!("ping fd09::1 {}", link(0)));
    assert_eq!(running.output().0, Some(2), "two IP versions");
}

/// How many echo requests the kernel of this namespace has answered.
fn echoes() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("Linux has it");
    let mut lines = text.lines().filter(|line| line.starts_with("Icmp: "));
    let names = lines.next().expect("a line of names").split(' ');
    let values = lines.next().expect("a line of values").split(' ');
    let of = names.zip(values).find(|(name, _)| *name == "InEchos");
    of.and_then(|(_, value)| value.parse().ok()).expect("a number")
}

pub(crate) fn interruption_shows_what_came_until_then() {
    let before = echoes();
    let options = "--count 60000 --interval 0.01";
    let running = Running::start(&format!("ping {} {} {options}", KERNEL[0], link(0)));
    let started = Instant::now();
    while echoes() < before + 10 {
        assert!(started.elapsed() < Duration::from_secs(30), "nothing was asked");
        std::thread::sleep(Duration::from_millis(10));
    }
    interrupt(&running, Signal::SIGINT);
    let (code, output, errors) = running.output();
    assert_eq!((code, &*errors), (Some(0), ""));
    assert!(output.contains("received"), "{output}");
}
