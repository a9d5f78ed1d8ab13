//! `cargo xtask tidy`: the rules of the house that a tool can check.
//!
//! In: the files that git tracks, those it would track if they were added, and what cargo says
//! about the packages. Out: findings, `path:line: what is wrong: what to do`, sorted by place.
//!
//! Each rule is a function from data to findings and lives in a module of its own, so that its
//! tests can plant a violation without a repository. What always holds: a rule never writes, and a
//! file that a rule cannot read is a finding, never passed over.

mod confinement;
mod house;
mod lengths;
mod reach;
mod sans_io;
mod source;
mod tree;
mod words;

use std::fmt;
use std::path::Path;

use crate::Failure;
use tree::Tree;

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    /// Path from the repository's root.
    path: String,
    /// Counted from 1; 1 also where the whole file is meant.
    line: usize,
    wrong: String,
    to_do: String,
}

impl Finding {
    fn new(
        path: impl Into<String>,
        line: usize,
        wrong: impl Into<String>,
        to_do: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), line: line.max(1), wrong: wrong.into(), to_do: to_do.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}: {}", self.path, self.line, self.wrong, self.to_do)
    }
}

/// Checks every rule, prints the findings and says whether there were none.
///
/// # Errors
/// When git or cargo cannot be asked.
pub(crate) fn run(root: &Path) -> Result<bool, Failure> {
    let tree = Tree::read(root)?;
    let packages = house::packages(root)?;
    let (sources, mut findings) = source::parse_all(&tree);
    let reached = reach::follow(&tree, &sources, &house::target_roots(&packages));

    findings.extend(house::check(&packages, &tree));
    findings.extend(house::check_system_reach(&house::normal_dependencies(root)?));
    findings.extend(lengths::check(&sources, &reached));
    findings.extend(words::check(&tree));
    findings.extend(reach::check(&sources, &reached));
    findings.extend(tree::check_kinds(&tree));
    findings.extend(confinement::check(&tree, &sources));
    findings.extend(sans_io::check(&sources, &reached));
    findings.sort();
    findings.dedup();

    for finding in &findings {
        println!("{finding}");
    }
    let size = format!(
        "{} files, {} crates, {} functions",
        tree.count(),
        packages.len(),
        sources.values().map(lengths::function_count).sum::<usize>()
    );
    if findings.is_empty() {
        println!("tidy: clean ({size})");
    } else {
        println!("tidy: {} findings ({size})", findings.len());
    }
    Ok(findings.is_empty())
}
