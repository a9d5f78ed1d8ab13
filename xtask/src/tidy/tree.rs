//! The files of the repository as the rules see them: paths from the root, and text.
//!
//! In: what `git ls-files` lists, tracked or not yet added, less what is ignored. Out: a map from
//! path to text; a file that is not UTF-8 is kept by name without text. The rule here: every file
//! is of a known kind for its place, so that nothing stays in the repository that nobody uses.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::Finding;
use crate::Failure;

/// Files allowed at the root.
const ROOT_FILES: &[&str] = &[
    ".editorconfig",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "MEASUREMENTS.md",
    "README.md",
    "TESTING.md",
    "clippy.toml",
    "deny.toml",
    "rustfmt.toml",
];

/// Directories at the root, each with how its files may end.
const DIRECTORIES: &[(&str, &[&str])] = &[
    (".cargo/", &["config.toml"]),
    (".ci/", &["run"]),
    ("crates/", &[".rs", "Cargo.toml", ".md", ".txt", ".pkt"]),
    ("conformance/", &[".pkt", "README.md"]),
    ("fuzz/", &[".rs", "Cargo.toml", "Cargo.lock", ".bin"]),
    ("docs/", &[".md", ".svg", ".png"]),
    ("xtask/", &[".rs", "Cargo.toml", ".md"]),
];

/// Every file, by its path from the root.
pub(super) struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// # Errors
    /// When git cannot be run or refuses, or a listed file cannot be read.
    pub(super) fn read(root: &Path) -> Result<Self, Failure> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("git cannot be run: {error}"))?;
        if !output.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let mut files = BTreeMap::new();
        for path in String::from_utf8(output.stdout)?.split_terminator('\0') {
            // A file that is deleted but not yet committed is still listed.
            let Ok(metadata) = root.join(path).symlink_metadata() else { continue };
            if metadata.is_file() {
                let bytes = std::fs::read(root.join(path))?;
                files.insert(path.to_owned(), String::from_utf8(bytes).ok());
            } else {
                files.insert(path.to_owned(), None);
            }
        }
        Ok(Self { files })
    }

    #[cfg(test)]
    pub(super) fn planted(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).into(), Some((*text).into())));
        Self { files: files.collect() }
    }

    pub(super) fn count(&self) -> usize {
        self.files.len()
    }

    pub(super) fn contains(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// Files that are text, in order of path.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }
}

/// The room of the house that a path lies in: `crates/tcp/src/lib.rs` lies in `tcp`.
pub(super) fn room_of(path: &str) -> Option<&str> {
    Some(path.strip_prefix("crates/")?.split_once('/')?.0)
}

/// Every file is of a kind that its place allows.
pub(super) fn check_kinds(tree: &Tree) -> Vec<Finding> {
    let unknown = tree.paths().filter(|path| !is_known_kind(path));
    unknown
        .map(|path| {
            Finding::new(
                path,
                1,
                "a file of no known kind for its place",
                "remove it, or name its kind in xtask/src/tidy/tree.rs",
            )
        })
        .collect()
}

fn is_known_kind(path: &str) -> bool {
    ROOT_FILES.contains(&path)
        || DIRECTORIES.iter().any(|(directory, endings)| {
            path.strip_prefix(directory)
                .is_some_and(|rest| endings.iter().any(|ending| rest.ends_with(ending)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str) -> usize {
        check_kinds(&Tree::planted(&[(path, "")])).len()
    }

    #[test]
    fn known_kinds_pass() {
        for path in ["README.md", ".ci/run", "crates/ip/src/lib.rs", "xtask/Cargo.toml"] {
            assert_eq!(findings(path), 0, "{path}");
        }
    }

    #[test]
    fn unknown_kinds_are_found() {
        for path in ["notes.md", "old/lib.rs", "crates/ip/src/lib.rs.orig", "crates/ip/data.bin"] {
            assert_eq!(findings(path), 1, "{path}");
        }
    }

    #[test]
    fn the_room_is_the_directory_below_crates() {
        assert_eq!(room_of("crates/tcp/src/lib.rs"), Some("tcp"));
        assert_eq!(room_of("xtask/src/main.rs"), None);
    }

    #[test]
    fn this_repository_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root");
        let tree = Tree::read(root).expect("git lists the files");
        assert!(tree.contains("xtask/src/main.rs"));
        assert!(
            tree.text("xtask/src/tidy/tree.rs").is_some_and(|text| text.contains("ROOT_FILES"))
        );
    }
}
