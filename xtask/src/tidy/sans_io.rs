//! The core asks nothing of the system: no clock, thread, file, socket, process or terminal.
//!
//! Edges between crates keep foreign packages out of the core (`house`); this rule keeps the
//! standard library's doors shut. It reads paths and imports of the product, not of tests: a test
//! may print. Names reached through a glob import are not seen.

use proc_macro2::Span;
use syn::UseTree;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::house;
use super::reach::Reached;
use super::source::Sources;
use super::tree::room_of;

/// A door is shut with everything below it: `std::fs` shuts `std::fs::File`.
const SHUT_PATHS: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// A file of somebody else's, lent: nothing can be asked of the system with it by the standard library.
const OPEN_PATH: &str = "std::os::fd::BorrowedFd";

const SHUT_MACROS: &[&str] = &["dbg", "eprint", "eprintln", "print", "println", "thread_local"];

pub(super) fn check(sources: &Sources, reached: &Reached) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in sources {
        let in_core = path.contains("/src/") && room_of(path).is_some_and(house::is_core);
        if !in_core || reached.is_test_only(path) {
            continue;
        }
        let mut doors = Doors(Vec::new());
        doors.visit_file(&source.product);
        findings.extend(doors.0.into_iter().map(|(span, name)| {
            Finding::new(
                path,
                span.start().line,
                format!("{name} in a crate of the core"),
                "take time, randomness and bytes as arguments, hand results back",
            )
        }));
    }
    findings
}

struct Doors(Vec<(Span, String)>);

impl Doors {
    fn path(&mut self, span: Span, path: &str) {
        let is_shut = |shut: &&&str| {
            path.strip_prefix(**shut).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        if path != OPEN_PATH && SHUT_PATHS.iter().any(|shut| is_shut(&shut)) {
            self.0.push((span, path.to_owned()));
        }
    }

    fn import(&mut self, prefix: &str, tree: &UseTree) {
        let joined = |name: &syn::Ident| match prefix {
            "" => name.to_string(),
            prefix if name == "self" => prefix.to_owned(),
            prefix => format!("{prefix}::{name}"),
        };
        match tree {
            UseTree::Path(path) => self.import(&joined(&path.ident), &path.tree),
            UseTree::Name(name) => self.path(name.span(), &joined(&name.ident)),
            UseTree::Rename(name) => self.path(name.span(), &joined(&name.ident)),
            UseTree::Glob(glob) => self.path(glob.span(), prefix),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(prefix, tree);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Doors {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.path(path.span(), &names.join("::"));
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        self.import("", &import.tree);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().map(|segment| segment.ident.to_string());
        if let Some(name) = name.filter(|name| SHUT_MACROS.contains(&name.as_str())) {
            self.0.push((call.path.span(), format!("{name}!")));
        }
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        if matches!(item.mutability, syn::StaticMutability::Mut(_)) {
            self.0.push((item.ident.span(), format!("static mut {}", item.ident)));
        }
        visit::visit_item_static(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::planted;
    use super::*;

    fn findings_at(path: &str, text: &str) -> usize {
        check(&planted(&[(path, text)]), &Reached::default()).len()
    }

    fn findings(text: &str) -> usize {
        findings_at("crates/tcp/src/lib.rs", text)
    }

    #[test]
    fn doors_to_the_system_are_found() {
        assert_eq!(findings("use std::thread;"), 1);
        assert_eq!(findings("use std::{fs::File, time::{Duration, Instant as Now}};"), 2);
        assert_eq!(findings("use std::fs::{self, *};"), 2);
        assert_eq!(findings("fn a() { let now = std::time::Instant::now(); }"), 1);
        assert_eq!(findings("fn a() -> std::net::TcpStream { b() }"), 1);
        assert_eq!(findings("fn a() { println!(\"x\"); }"), 1);
        assert_eq!(findings("static mut A: u8 = 0;"), 1);
        assert_eq!(findings("thread_local! { static A: u8 = 0; }"), 1);
    }

    #[test]
    fn what_needs_no_system_is_free() {
        assert_eq!(
            findings("use std::net::Ipv4Addr; use std::time::Duration; use time::Instant;"),
            0
        );
        assert_eq!(findings("static A: u8 = 0; use std::collections::*;"), 0);
    }

    #[test]
    fn tests_and_crates_outside_the_core_are_free() {
        assert_eq!(findings("#[cfg(test)] mod tests { fn a() { println!(\"x\"); } }"), 0);
        assert_eq!(findings_at("crates/tcp/tests/a.rs", "use std::thread;"), 0);
        assert_eq!(findings_at("crates/linux/src/lib.rs", "use std::thread;"), 0);
    }
}
