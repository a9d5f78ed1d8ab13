//! No dead files: every Rust file is reached by `mod` from a root that cargo builds.
//!
//! In: the sources and the root files of every target. Out: each file reached, and whether only
//! test builds reach it (`#[cfg(test)] mod ...;`, or a target under `tests/`). The walk follows
//! what the compiler follows: `mod name;` beside or below its file, inside inline modules,
//! `#[path]`, and `include!` of a literal.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Lit, LitStr, Meta};

use super::Finding;
use super::source::{Sources, is_test_only, is_test_path};
use super::tree::Tree;

/// A file that cargo hands to the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Root {
    pub(super) path: String,
    pub(super) test_only: bool,
}

/// What the walk from the roots found.
#[derive(Default)]
pub(super) struct Reached {
    /// Path to "only by test builds".
    files: BTreeMap<String, bool>,
    unresolved: Vec<Finding>,
}

impl Reached {
    /// Whether a file holds tests only, by its place or by how it is declared.
    pub(super) fn is_test_only(&self, path: &str) -> bool {
        is_test_path(path) || self.files.get(path).copied().unwrap_or(false)
    }
}

/// Walks from the roots through every declaration.
pub(super) fn follow(tree: &Tree, sources: &Sources, roots: &[Root]) -> Reached {
    let mut reached = Reached::default();
    let mut waiting: Vec<(String, bool, bool)> =
        roots.iter().map(|root| (root.path.clone(), root.test_only, true)).collect();
    while let Some((path, test_only, owns_directory)) = waiting.pop() {
        match reached.files.get(&path) {
            // Reached before by a product build, or this time too only by a test build.
            Some(before) if !*before || test_only => continue,
            _ => reached.files.insert(path.clone(), test_only),
        };
        let Some(source) = sources.get(&path) else { continue };
        for declaration in Declarations::of(&source.whole) {
            let candidates = declaration.candidates(&path, owns_directory);
            let test_only = test_only || declaration.test_only;
            if let Some(found) = candidates.iter().find(|candidate| tree.contains(candidate)) {
                let owns = declaration.given_path.is_some() || found.ends_with("/mod.rs");
                waiting.push((found.clone(), test_only, owns));
            } else {
                reached.unresolved.push(Finding::new(
                    &path,
                    declaration.line,
                    format!("declares {}, which has no file", declaration.name),
                    format!("add {} to the repository", candidates.join(" or ")),
                ));
            }
        }
    }
    reached
}

/// Every Rust file of a package is reached, every declaration has its file.
pub(super) fn check(sources: &Sources, reached: &Reached) -> Vec<Finding> {
    let dead = sources
        .keys()
        .filter(|path| path.starts_with("crates/") || path.starts_with("xtask/"))
        .filter(|path| !reached.files.contains_key(*path))
        .map(|path| {
            Finding::new(path, 1, "no crate root reaches this file", "declare it or remove it")
        });
    dead.chain(reached.unresolved.iter().cloned()).collect()
}

/// One `mod name;` or `include!("...")`.
struct Declaration {
    name: String,
    /// Inline modules around it, outermost first.
    within: Vec<String>,
    /// What `#[path]` or `include!` says.
    given_path: Option<String>,
    is_include: bool,
    test_only: bool,
    line: usize,
}

impl Declaration {
    /// Where its file may lie. `owns_directory`: the declaring file is a root or a `mod.rs`, whose
    /// modules lie beside it; those of `name.rs` lie below `name/`.
    fn candidates(&self, declared_in: &str, owns_directory: bool) -> Vec<String> {
        let (directory, file_name) = declared_in.rsplit_once('/').unwrap_or(("", declared_in));
        let below = file_name.strip_suffix(".rs").unwrap_or(file_name);
        let mut parts = vec![directory];
        // A given path counts from the file's own directory, unless inline modules stand around it.
        let beside = self.is_include || self.given_path.is_some() && self.within.is_empty();
        if !beside {
            if !owns_directory {
                parts.push(below);
            }
            parts.extend(self.within.iter().map(String::as_str));
        }
        let base = parts.join("/");
        match &self.given_path {
            Some(given) => vec![normalise(&format!("{base}/{given}"))],
            None => {
                let name = &self.name;
                vec![
                    normalise(&format!("{base}/{name}.rs")),
                    normalise(&format!("{base}/{name}/mod.rs")),
                ]
            }
        }
    }
}

/// Resolves `.` and `..` without asking the file system.
fn normalise(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Collects the declarations of one file.
#[derive(Default)]
struct Declarations {
    found: Vec<Declaration>,
    within: Vec<String>,
    test_depth: usize,
}

impl Declarations {
    fn of(file: &syn::File) -> Vec<Declaration> {
        let mut walk = Self::default();
        walk.visit_file(file);
        walk.found
    }

    fn push(&mut self, name: String, given: Option<String>, is_include: bool, line: usize) {
        self.found.push(Declaration {
            name,
            within: self.within.clone(),
            given_path: given,
            is_include,
            test_only: self.test_depth > 0,
            line,
        });
    }
}

impl<'ast> Visit<'ast> for Declarations {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let test_only = usize::from(is_test_only(&module.attrs));
        let name = module.ident.to_string();
        let name = name.strip_prefix("r#").unwrap_or(&name).to_owned();
        self.test_depth += test_only;
        if module.content.is_some() {
            self.within.push(path_attribute(&module.attrs).unwrap_or(name));
            visit::visit_item_mod(self, module);
            self.within.pop();
        } else {
            let line = module.ident.span().start().line;
            self.push(format!("mod {name}"), path_attribute(&module.attrs), false, line);
            if let Some(declaration) = self.found.last_mut() {
                declaration.name = name;
            }
        }
        self.test_depth -= test_only;
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if call.path.is_ident("include")
            && let Ok(literal) = call.parse_body::<LitStr>()
        {
            let line = literal.span().start().line;
            self.push(literal.value(), Some(literal.value()), true, line);
        }
    }
}

/// The value of `#[path = "..."]`, also behind `cfg_attr`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        if attribute.path().is_ident("cfg_attr") {
            let parts = attribute
                .parse_args_with(
                    syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated,
                )
                .ok()?;
            return parts.iter().skip(1).find_map(path_value);
        }
        path_value(&attribute.meta)
    })
}

fn path_value(meta: &Meta) -> Option<String> {
    let Meta::NameValue(pair) = meta else { return None };
    match &pair.value {
        Expr::Lit(ExprLit { lit: Lit::Str(value), .. }) if pair.path.is_ident("path") => {
            Some(value.value())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::planted;
    use super::*;

    fn walk(files: &[(&str, &str)]) -> (Vec<Finding>, Reached) {
        let sources = planted(files);
        let root = Root { path: "crates/ip/src/lib.rs".into(), test_only: false };
        let reached = follow(&Tree::planted(files), &sources, &[root]);
        (check(&sources, &reached), reached)
    }

    #[test]
    fn declared_files_are_reached() {
        let (findings, _) = walk(&[
            (
                "crates/ip/src/lib.rs",
                "mod a; mod b; mod inline { mod c; }\n#[path = \"o/d.rs\"] mod e;",
            ),
            ("crates/ip/src/a.rs", "mod below; include!(\"text.rs\");"),
            ("crates/ip/src/a/below.rs", ""),
            ("crates/ip/src/text.rs", ""),
            ("crates/ip/src/b/mod.rs", "mod beside;"),
            ("crates/ip/src/b/beside.rs", ""),
            ("crates/ip/src/inline/c.rs", ""),
            ("crates/ip/src/o/d.rs", "mod of_d;"),
            ("crates/ip/src/o/of_d.rs", ""),
        ]);
        assert_eq!(findings, []);
    }

    #[test]
    fn an_undeclared_file_is_found() {
        let (findings, _) = walk(&[
            ("crates/ip/src/lib.rs", "mod a;"),
            ("crates/ip/src/a.rs", ""),
            ("crates/ip/src/old.rs", "mod a;"),
        ]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "crates/ip/src/old.rs");
    }

    #[test]
    fn a_module_below_another_is_not_reached_beside_it() {
        let (findings, _) = walk(&[
            ("crates/ip/src/lib.rs", "mod a;"),
            ("crates/ip/src/a.rs", "mod b;"),
            ("crates/ip/src/b.rs", ""),
        ]);
        let paths: Vec<_> = findings.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(paths, ["crates/ip/src/b.rs", "crates/ip/src/a.rs"]);
    }

    #[test]
    fn files_that_only_tests_reach_are_known_and_a_product_build_wins() {
        let (_, reached) = walk(&[
            (
                "crates/ip/src/lib.rs",
                "#[cfg(test)] mod scripts; #[cfg(test)] mod t { #[path = \"../both.rs\"] mod both; }\nmod both;",
            ),
            ("crates/ip/src/scripts.rs", "mod deep;"),
            ("crates/ip/src/scripts/deep.rs", ""),
            ("crates/ip/src/both.rs", ""),
        ]);
        assert!(reached.is_test_only("crates/ip/src/scripts.rs"));
        assert!(reached.is_test_only("crates/ip/src/scripts/deep.rs"));
        assert!(!reached.is_test_only("crates/ip/src/both.rs"));
        assert!(!reached.is_test_only("crates/ip/src/lib.rs"));
    }
}
