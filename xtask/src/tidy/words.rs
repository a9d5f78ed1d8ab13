//! Words that must not stand in a tracked file.
//!
//! Paths of one machine, promises to do the work later, file names that name no idea, names of
//! tools that are not part of the project, and links to the hosts of package registries (which a
//! reader may not reach, and which cargo knows anyway). The rule's own words are put together from
//! pieces, so that this file passes it.

use super::Finding;
use super::tree::Tree;

/// Directories that exist on one machine only.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Marks of unfinished work. Prose may speak of them; source may not carry them.
const PROMISES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Names of tools and directories around the project that are not part of it.
const OUTSIDE: &[&str] =
    &[concat!("farm-", "bench"), concat!("farm-", "studio"), concat!(".lib", "rary")];

/// Hosts of package registries, found only as the host of a link.
const REGISTRY_HOSTS: &[&str] = &[
    "crates.io",
    "deb.debian.org",
    "files.pythonhosted.org",
    "proxy.golang.org",
    "pypi.org",
    "registry.npmjs.org",
    "repo.maven.apache.org",
    "repo1.maven.org",
    "security.debian.org",
    "sum.golang.org",
];

/// Names that say nothing of what a module holds.
const EMPTY_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "misc", "common", "commons"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in tree.paths().filter(|path| has_empty_name(path)) {
        findings.push(Finding::new(
            path,
            1,
            "a module name that says nothing of what is in it",
            "name the file for its one idea",
        ));
    }
    for (path, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            for (wrong, to_do) in words_in(path, line) {
                findings.push(Finding::new(path, index + 1, wrong, to_do));
            }
        }
    }
    findings
}

fn has_empty_name(path: &str) -> bool {
    path.ends_with(".rs")
        && path
            .trim_end_matches(".rs")
            .split('/')
            .any(|part| EMPTY_NAMES.contains(&part.to_ascii_lowercase().as_str()))
}

/// What is wrong on one line, and what to do about it.
fn words_in(path: &str, line: &str) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    let words = |list: &[&'static str]| -> Vec<&'static str> {
        list.iter().copied().filter(|word| stands_alone(line, word)).collect()
    };
    for word in words(MACHINE_PATHS) {
        found.push((
            format!("a path of one machine ({word})"),
            "name it from the repository's root",
        ));
    }
    if !path.ends_with(".md") {
        for word in words(PROMISES) {
            found.push((format!("{word} in source"), "do it now or open an issue"));
        }
    }
    for word in words(OUTSIDE) {
        found.push((format!("{word} is not part of the project"), "say it without that name"));
    }
    for host in linked_hosts(line).filter(|host| is_registry(host)) {
        found.push((format!("a link to a package registry ({host})"), "name the package instead"));
    }
    found
}

/// Whether `word` occurs without a letter, digit, `_`, `-` or `.` running into it in front, nor,
/// where it ends in one of its own, a letter, digit or `_` behind.
fn stands_alone(line: &str, word: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        let open_before =
            !before.is_some_and(|before| is_word(before) || before == '-' || before == '.');
        let open_after = !word.ends_with(is_word) || !after.is_some_and(is_word);
        open_before && open_after
    })
}

/// The host of every link on a line, without user and port.
fn linked_hosts(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("://").map(|(start, separator)| {
        let rest = &line[start + separator.len()..];
        let is_end = |character: char| {
            !(character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '@' | '_'))
        };
        let authority = rest.split(is_end).next().unwrap_or(rest);
        authority.rsplit('@').next().unwrap_or(authority).trim_end_matches('.')
    })
}

/// A registry's host or one below it.
fn is_registry(host: &str) -> bool {
    REGISTRY_HOSTS.iter().any(|registry| {
        host.strip_suffix(registry).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, line: &str) -> usize {
        check(&Tree::planted(&[(path, line)])).len()
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        for word in MACHINE_PATHS {
            assert_eq!(findings("README.md", &format!("see `{word}main`")), 1, "{word}");
            assert_eq!(findings("crates/ip/src/lib.rs", &format!("//! in {word}x")), 1, "{word}");
        }
        assert_eq!(
            findings("README.md", concat!("https://host.example/wo", "rk/here and network/root/x")),
            0
        );
    }

    #[test]
    fn promises_are_found_in_source_and_allowed_in_prose() {
        for word in PROMISES {
            assert_eq!(findings("crates/ip/src/lib.rs", &format!("// {word}: later")), 1, "{word}");
            assert_eq!(findings(".ci/run", &format!("# {word}")), 1, "{word}");
            assert_eq!(findings("CONTRIBUTING.md", &format!("no {word}")), 0, "{word}");
        }
        assert_eq!(findings("crates/ip/src/lib.rs", concat!("const MASTO", "DON: u8 = 0;")), 0);
    }

    #[test]
    fn names_from_outside_are_found() {
        for word in OUTSIDE {
            assert_eq!(findings("README.md", &format!("made by ({word})")), 1, "{word}");
        }
        assert_eq!(
            findings("crates/ip/src/lib.rs", concat!("let shelf = self", ".lib", "rary.shelf();")),
            0
        );
    }

    #[test]
    fn links_to_registries_are_found_and_other_links_are_not() {
        for host in REGISTRY_HOSTS {
            assert_eq!(findings("deny.toml", &format!("url = \"https://{host}/x\"")), 1, "{host}");
            assert_eq!(findings("a.md", &format!("sparse+https://index.{host}:443")), 1, "{host}");
            assert_eq!(findings("README.md", &format!("published on {host}")), 0, "{host}");
        }
        let lock = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
        assert_eq!(findings("Cargo.lock", lock), 0);
        assert_eq!(findings("README.md", "https://notcrates.io"), 0);
    }

    #[test]
    fn empty_names_are_found() {
        for name in EMPTY_NAMES {
            assert_eq!(findings(&format!("crates/ip/src/{name}.rs"), ""), 1, "{name}");
            assert_eq!(findings(&format!("crates/ip/tests/{name}/mod.rs"), ""), 1, "{name}");
        }
        assert_eq!(findings("crates/ip/src/common_header.rs", ""), 0);
    }

    #[test]
    fn the_line_is_named() {
        let text = format!("one\ntwo\n{}\n", PROMISES[0]);
        let found = check(&Tree::planted(&[("crates/ip/src/lib.rs", &text)]));
        assert_eq!(found[0].line, 3);
    }
}
