//! Every target over its corpus and over random mutations of it, on a stable compiler.
//!
//! `MULTIDATA_FUZZ_SECONDS` says how long mutations of each target are tried (a second by default),
//! `MULTIDATA_FUZZ_SEED` where they begin. An input that fails is written to the temporary
//! directory and named, to become a file of the corpus.

use fuzzing::{TARGETS, Target};
use simulation::random::Random;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target.name);
    let files =
        std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{directory:?}: {error}"));
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("listed").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("readable")).collect()
}

fn number(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs `input`; one that fails is kept.
fn run(target: &Target, input: &[u8]) {
    let verdict = std::panic::catch_unwind(|| (target.run)(input));
    if let Err(panic) = verdict {
        let hash = input.iter().fold(7_u64, |hash, byte| hash.wrapping_mul(131) ^ u64::from(*byte));
        let path = std::env::temp_dir().join(format!("{}-{hash:016x}.bin", target.name));
        let written = std::fs::write(&path, input);
        eprintln!("{}: the input is in {} ({written:?})", target.name, path.display());
        std::panic::resume_unwind(panic);
    }
}

/// One to eight changes: bytes, words, parts of others, less, more.
fn mutated(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let any = |random: &mut Random| &corpus[random.within(0, corpus.len() as u64 - 1) as usize];
    let mut input = any(random).clone();
    for _ in 0..random.within(1, 8) {
        let at = random.within(0, input.len() as u64) as usize;
        match random.within(0, 6) {
            0 if at < input.len() => input[at] ^= 1 << random.within(0, 7),
            1 if at < input.len() => input[at] = random.word() as u8,
            2 if at < input.len() => input[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            3 => input.truncate(at),
            4 => {
                let other = any(random);
                let from = random.within(0, other.len() as u64) as usize;
                let len = random.within(0, 40).min((other.len() - from) as u64) as usize;
                input.splice(at..at, other[from..from + len].iter().copied());
            }
            5 => {
                let len = random.within(1, 16);
                input.splice(at..at, (0..len).map(|_| random.word() as u8));
            }
            _ => {
                let end = (at + random.within(1, 16) as usize).min(input.len());
                input.drain(at..end);
            }
        }
    }
    input.truncate(16_384);
    input
}

#[test]
fn corpora_and_their_mutations_find_nothing() {
    let seconds = number("MULTIDATA_FUZZ_SECONDS", 1.0);
    let only = std::env::var("MULTIDATA_FUZZ_TARGET").ok();
    let mut random = Random::new(number("MULTIDATA_FUZZ_SEED", 1.0) as u64);
    for target in TARGETS.iter().filter(|target| only.as_deref().is_none_or(|it| it == target.name))
    {
        let mut corpus = corpus(target);
        for input in &corpus {
            run(target, input);
        }
        corpus.push(Vec::new());
        let ends_at = Instant::now() + Duration::from_secs_f64(seconds);
        let mut count = 0_u64;
        while Instant::now() < ends_at {
            run(target, &mutated(&mut random, &corpus));
            count += 1;
        }
        println!("{}: {} inputs, {count} mutations", target.name, corpus.len() - 1);
    }
}

#[test]
fn every_target_has_a_corpus_and_a_fuzzer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("readable");
    for target in TARGETS {
        assert!(!corpus(target).is_empty(), "{}", target.name);
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
        assert!(root.join("fuzz_targets").join(format!("{}.rs", target.name)).exists());
    }
}
