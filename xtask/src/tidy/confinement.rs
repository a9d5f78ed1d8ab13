//! `unsafe` stays where it is expected.
//!
//! The workspace forbids it (`unsafe_code = "forbid"`). A crate that needs it sets lints of its own
//! in its `Cargo.toml`, and must be on the list here; it keeps the demand for a SAFETY reason. In
//! all other crates the word may not occur in code at all, not even inside a macro.

use proc_macro2::{Span, TokenStream, TokenTree};

use super::Finding;
use super::source::Sources;
use super::tree::{Tree, room_of};

/// The checksum kernels, the system calls and the C interface.
const ALLOWED: &[&str] = &["checksum", "linux", "packetdrill-ffi"];

pub(super) fn check(tree: &Tree, sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        let allowed = room_of(path).is_some_and(|room| ALLOWED.contains(&room));
        if path.ends_with("/Cargo.toml") {
            findings.extend(check_manifest(path, text, allowed));
        } else if !allowed && sources.contains_key(path) {
            findings.extend(check_source(path, text));
        }
    }
    findings
}

/// A package takes the workspace's lints, or it is allowed its own and still asks for reasons.
fn check_manifest(path: &str, manifest: &str, allowed: bool) -> Option<Finding> {
    if takes_workspace_lints(manifest) {
        return None;
    }
    if !allowed {
        return Some(Finding::new(
            path,
            1,
            "sets lints of its own",
            "write `workspace = true` under [lints], or put the crate on the list in \
             xtask/src/tidy/confinement.rs with a reason",
        ));
    }
    let asks_for_reasons = manifest
        .lines()
        .any(|line| line.starts_with("undocumented_unsafe_blocks") && line.contains("\"deny\""));
    (!asks_for_reasons).then(|| {
        Finding::new(
            path,
            1,
            "allows `unsafe` without asking for its reason",
            "set undocumented_unsafe_blocks = \"deny\" under [lints.clippy]",
        )
    })
}

fn takes_workspace_lints(manifest: &str) -> bool {
    let mut section = "";
    manifest.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            section = line;
        }
        let key: String = line.chars().filter(|character| !character.is_whitespace()).collect();
        section == "[lints]" && key == "workspace=true" || key == "lints.workspace=true"
    })
}

fn check_source(path: &str, text: &str) -> Option<Finding> {
    // The file has been parsed before, so it splits into tokens.
    let tokens: TokenStream = text.parse().ok()?;
    let place = first_unsafe(tokens)?;
    Some(Finding::new(
        path,
        place.start().line,
        "`unsafe` outside the crates allowed to use it",
        "do it safely, or move it behind a safe function of checksum or linux",
    ))
}

fn first_unsafe(tokens: TokenStream) -> Option<Span> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(word) if word == "unsafe" => Some(word.span()),
        TokenTree::Group(group) => first_unsafe(group.stream()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::source::planted;
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<Finding> {
        let files = [(path, text)];
        let sources = if path.ends_with(".rs") { planted(&files) } else { Sources::new() };
        check(&Tree::planted(&files), &sources)
    }

    #[test]
    fn unsafe_is_found_outside_the_list_with_its_line() {
        let text = "//! unsafe in prose\n\nfn a() {\n    unsafe { b() }\n}\n";
        assert_eq!(findings("crates/tcp/src/lib.rs", text)[0].line, 4);
        assert_eq!(findings("crates/checksum/src/lib.rs", text), []);
        let hidden = "macro_rules! a { () => { unsafe { b() } } }";
        assert_eq!(findings("crates/tcp/src/lib.rs", hidden).len(), 1);
    }

    #[test]
    fn the_word_in_strings_comments_and_longer_names_is_no_finding() {
        let text = "#![forbid(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";\n";
        assert_eq!(findings("crates/tcp/src/lib.rs", text), []);
    }

    #[test]
    fn own_lints_need_a_place_on_the_list() {
        let own = "[package]\n[lints.rust]\nunsafe_code = \"deny\"\n";
        let with_reasons = format!("{own}[lints.clippy]\nundocumented_unsafe_blocks = \"deny\"\n");
        assert_eq!(findings("crates/tcp/Cargo.toml", &with_reasons).len(), 1);
        assert_eq!(findings("crates/linux/Cargo.toml", own).len(), 1);
        assert_eq!(findings("crates/linux/Cargo.toml", &with_reasons), []);
    }

    #[test]
    fn the_workspaces_lints_are_recognised() {
        assert_eq!(findings("crates/tcp/Cargo.toml", "[lints]\nworkspace = true\n"), []);
        assert_eq!(findings("crates/tcp/Cargo.toml", "lints.workspace = true\n"), []);
        let elsewhere = "[lints]\n[dependencies]\nworkspace = true\n";
        assert_eq!(findings("crates/tcp/Cargo.toml", elsewhere).len(), 1);
    }
}
