//! `cargo xtask canaries`: mistakes planted on purpose, to see that they are found.
//!
//! In: the list in `planted.rs`. For each mistake a copy of the tree below `target/canaries/` gets
//! one text replaced and is built as the simulator is (profile `checked`); then whoever must find it
//! runs for a bounded time. Out: a table. A mistake that survives, that does not build, or whose
//! text no longer stands in its file exactly once, fails the verb: a list that has rotted says
//! nothing.

mod planted;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use cargo_metadata::MetadataCommand;

use crate::Failure;
use planted::{Finder, PLANTED, Planted};

/// How many of the list are the sample.
const SAMPLE: usize = 2;

/// What became of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Found,
    Survived,
    DoesNotBuild,
    TextIsGone,
}

/// Plants the mistakes whose name contains `only`, or a sample of them, and says whether all were
/// found.
///
/// # Errors
/// When the tree cannot be copied or cargo cannot be run.
pub(crate) fn run(root: &Path, only: Option<&str>, sample: bool) -> Result<bool, Failure> {
    let target = MetadataCommand::new().current_dir(root).no_deps().exec()?.target_directory;
    let place = PathBuf::from(target.join("canaries"));
    let chosen = PLANTED.iter().take(if sample { SAMPLE } else { PLANTED.len() });
    let chosen = chosen.filter(|planted| only.is_none_or(|only| planted.name.contains(only)));
    let mut outcomes = Vec::new();
    for planted in chosen {
        let started = Instant::now();
        let (outcome, finding) = try_out(root, &place, planted)?;
        println!(
            "{outcome:<14?} {:6.1} s  {:<36} {:?}",
            started.elapsed().as_secs_f64(),
            planted.name,
            planted.finder
        );
        // Whether it was found for what it is: something else may have stumbled over it.
        if let Some(finding) = finding {
            println!("    {finding}");
        }
        outcomes.push(outcome);
    }
    let found = outcomes.iter().filter(|outcome| **outcome == Outcome::Found).count();
    println!("{found} of {} planted mistakes found", outcomes.len());
    Ok(found == outcomes.len() && !outcomes.is_empty())
}

/// What became of it, and what the simulator said of it.
fn try_out(
    root: &Path,
    place: &Path,
    planted: &Planted,
) -> Result<(Outcome, Option<String>), Failure> {
    let tree = place.join("tree");
    copy_tree(root, &tree)?;
    let path = tree.join(planted.file);
    let text = std::fs::read_to_string(&path)?;
    if text.matches(planted.original).count() != 1 {
        return Ok((Outcome::TextIsGone, None));
    }
    std::fs::write(&path, text.replace(planted.original, planted.mistake))?;
    let mut build = cargo(&tree, place, planted, true);
    if !build.status()?.success() {
        return Ok((Outcome::DoesNotBuild, None));
    }
    let mut hunt = cargo(&tree, place, planted, false);
    let hunt = hunt.stderr(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&hunt.stdout);
    let finding = text.lines().find(|line| line.starts_with("seed ")).map(str::to_owned);
    Ok((if hunt.status.success() { Outcome::Survived } else { Outcome::Found }, finding))
}

/// The command that builds the finder, or runs it.
fn cargo(tree: &Path, place: &Path, planted: &Planted, build_only: bool) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(tree).env("CARGO_TARGET_DIR", place.join("target"));
    command.env("RUSTFLAGS", "--cap-lints allow");
    let verb = match (planted.finder, build_only) {
        (Finder::Simulator, true) => "build",
        (Finder::Simulator, false) => "run",
        _ => "test",
    };
    command.args([verb, "--quiet", "--profile", "checked"]);
    match planted.finder {
        Finder::Simulator => {
            command.args(["--package", "multidata-simulation", "--example", "simulate"]);
        }
        Finder::Fuzzer(target) => {
            command.args(["--package", "multidata-fuzzing", "--test", "corpora"]);
            command.env("MULTIDATA_FUZZ_TARGET", target).env("MULTIDATA_FUZZ_SECONDS", "30");
        }
        Finder::Unit(package, _) => {
            command.args(["--package", package]);
        }
    }
    match (planted.finder, build_only) {
        (Finder::Simulator, false) => {
            command.args(["--", "--count", "100000", "--seconds", "60", "--failures", "1"]);
        }
        (Finder::Unit(_, filter), false) => {
            command.args(["--", filter]);
        }
        (Finder::Fuzzer(_) | Finder::Unit(..), true) => {
            command.arg("--no-run");
        }
        _ => {}
    }
    command
}

/// Brings the copy up to the tree; files that did not change keep their time, so that little is
/// built again.
fn copy_tree(root: &Path, tree: &Path) -> Result<(), Failure> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()?;
    std::fs::create_dir_all(tree)?;
    let mut copied = BTreeSet::new();
    for name in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let (from, to) = (root.join(name), tree.join(name));
        let Ok(bytes) = std::fs::read(&from) else { continue };
        copied.insert(to.clone());
        if std::fs::read(&to).is_ok_and(|before| before == bytes) {
            continue;
        }
        std::fs::create_dir_all(to.parent().unwrap_or(tree))?;
        std::fs::write(&to, bytes)?;
    }
    remove_others(tree, &copied)
}

/// Removes the files that an earlier copy had: of two places of one file the old one may still be built.
fn remove_others(folder: &Path, copied: &BTreeSet<PathBuf>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, copied)?;
        } else if !copied.contains(&path) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list keeps up with the code: each text stands in its file once.
    #[test]
    fn every_mistake_can_still_be_planted() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root");
        for planted in PLANTED {
            let text = std::fs::read_to_string(root.join(planted.file)).expect(planted.file);
            assert_eq!(text.matches(planted.original).count(), 1, "{}", planted.name);
            assert_ne!(planted.original, planted.mistake, "{}", planted.name);
        }
    }

    #[test]
    fn a_copy_has_what_the_tree_has_and_no_more() {
        let place = std::env::temp_dir().join(format!("canaries-{}", std::process::id()));
        let (root, tree) = (place.join("root"), place.join("tree"));
        std::fs::create_dir_all(root.join("deep")).expect("a place");
        for name in ["moved", "deep/kept"] {
            std::fs::write(root.join(name), name).expect("room");
        }
        let init = Command::new("git").args(["init", "--quiet"]).current_dir(&root).status();
        assert!(init.expect("git runs").success());
        copy_tree(&root, &tree).expect("it can be read");
        std::fs::rename(root.join("moved"), root.join("deep/moved")).expect("it is there");
        copy_tree(&root, &tree).expect("it can be read");
        assert!(!tree.join("moved").exists());
        for name in ["deep/moved", "deep/kept"] {
            assert!(tree.join(name).exists(), "{name}");
        }
        std::fs::remove_dir_all(place).expect("it is ours");
    }

    #[test]
    fn names_differ_and_everybody_has_something_to_find() {
        let names: BTreeSet<_> = PLANTED.iter().map(|planted| planted.name).collect();
        assert_eq!(names.len(), PLANTED.len());
        assert!(PLANTED.iter().any(|planted| planted.finder == Finder::Simulator));
        assert!(PLANTED.iter().any(|planted| matches!(planted.finder, Finder::Fuzzer(_))));
        let sample = PLANTED.iter().take(SAMPLE);
        assert!(sample.map(|planted| planted.finder).any(|it| it != Finder::Simulator));
    }
}
