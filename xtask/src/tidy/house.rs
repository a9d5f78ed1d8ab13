//! The house: dependencies point one way.
//!
//! In: what `cargo metadata` says. Out: a finding for every edge that points up the list, or
//! between rooms that must not know each other, and for every package through which a crate of the
//! core could reach the operating system. Edges of tests count as all others do: a test that needs
//! a later room belongs into that room.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, TargetKind};

use super::Finding;
use super::reach::Root;
use super::tree::Tree;
use crate::Failure;

/// The rooms in order. One may depend only on those before it.
const HOUSE: &[&str] = &[
    "time",
    "counters",
    "checksum",
    "wire",
    "batch",
    "device",
    "link",
    "ip",
    "udp",
    "tcp",
    "dhcp",
    "stack",
    "steering",
    "simulation",
    "event-file",
    "linux",
    "fuzzing",
    "multidata",
    "tokio",
    "posix",
    "packetdrill",
    "packetdrill-ffi",
    "bench",
    "cli",
];

/// The last room of the core. Up to here there is no clock, thread, system call or global state.
const CORE_LAST: &str = "simulation";

/// Rooms that must not know each other, whatever the order above says.
const APART: &[(&str, &[&str])] = &[
    ("link", &["ip"]),
    ("udp", &["ip", "link", "device", "tcp"]),
    ("tcp", &["ip", "link", "device", "udp"]),
    ("dhcp", &["ip", "link", "device", "udp", "tcp"]),
    ("stack", &["linux"]),
    ("steering", &["tcp", "udp", "dhcp", "stack"]),
];

/// Foreign packages that make system calls, start threads or read clocks.
const SYSTEM: &[&str] = &[
    "async-io",
    "async-std",
    "getrandom",
    "io-uring",
    "libc",
    "linux-raw-sys",
    "mio",
    "nix",
    "polling",
    "rustix",
    "smol",
    "socket2",
    "syscalls",
    "tokio",
    "windows-sys",
];

/// A package of the workspace, reduced to what the rules ask.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkspacePackage {
    /// Cargo's name of the package.
    name: String,
    manifest_path: String,
    /// Cargo's names of what it depends on, with the name used in the manifest.
    dependencies: Vec<(String, String)>,
    roots: Vec<Root>,
}

/// Which package needs which to be built, tests apart.
pub(super) type Dependencies = BTreeMap<String, BTreeSet<String>>;

/// Whether a room belongs to the sans-IO core.
pub(super) fn is_core(room: &str) -> bool {
    let place = |name: &str| HOUSE.iter().position(|room| *room == name);
    place(room).is_some_and(|index| place(CORE_LAST).is_some_and(|last| index <= last))
}

/// The packages of the workspace, without resolving what they depend on.
///
/// # Errors
/// When cargo refuses the manifests.
pub(super) fn packages(root: &Path) -> Result<Vec<WorkspacePackage>, Failure> {
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec()?;
    Ok(metadata.packages.iter().map(|package| reduce(&metadata, package)).collect())
}

fn reduce(metadata: &Metadata, package: &Package) -> WorkspacePackage {
    let from_root = |path: &cargo_metadata::camino::Utf8Path| {
        path.strip_prefix(&metadata.workspace_root).unwrap_or(path).to_string()
    };
    let dependencies = package.dependencies.iter().map(|dependency| {
        let name = dependency.name.to_string();
        (name.clone(), dependency.rename.clone().unwrap_or(name))
    });
    let roots = package.targets.iter().map(|target| Root {
        path: from_root(&target.src_path),
        test_only: target.kind.contains(&TargetKind::Test),
    });
    WorkspacePackage {
        name: package.name.to_string(),
        manifest_path: from_root(&package.manifest_path),
        dependencies: dependencies.collect(),
        roots: roots.collect(),
    }
}

/// The files that cargo hands to the compiler, of every package.
pub(super) fn target_roots(packages: &[WorkspacePackage]) -> Vec<Root> {
    packages.iter().flat_map(|package| package.roots.iter().cloned()).collect()
}

/// What every package needs to be built on this machine, foreign ones included.
///
/// # Errors
/// When cargo cannot resolve the workspace.
pub(super) fn normal_dependencies(root: &Path) -> Result<Dependencies, Failure> {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = MetadataCommand::new()
        .current_dir(root)
        .other_options(vec!["--filter-platform".to_owned(), host])
        .exec()?;
    let names: BTreeMap<_, _> =
        metadata.packages.iter().map(|package| (&package.id, package.name.to_string())).collect();
    let mut dependencies = Dependencies::new();
    for node in metadata.resolve.iter().flat_map(|resolve| &resolve.nodes) {
        let built = node.deps.iter().filter(|dependency| {
            dependency.dep_kinds.iter().any(|kind| kind.kind != DependencyKind::Development)
        });
        let built = built.filter_map(|dependency| names.get(&dependency.pkg).cloned()).collect();
        if let Some(name) = names.get(&node.id) {
            dependencies.entry(name.clone()).or_default().extend::<BTreeSet<_>>(built);
        }
    }
    Ok(dependencies)
}

/// The room of a package: `multidata-tcp` is `tcp`.
fn room(package: &str) -> &str {
    package.strip_prefix("multidata-").unwrap_or(package)
}

/// Every edge between packages of the workspace points up the list, and every package has a place.
pub(super) fn check(packages: &[WorkspacePackage], tree: &Tree) -> Vec<Finding> {
    let members: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut findings = Vec::new();
    for package in packages {
        let path = &package.manifest_path;
        let from = room(&package.name);
        if path.starts_with("crates/") && !HOUSE.contains(&from) {
            findings.push(Finding::new(
                path,
                1,
                format!("{from} has no place in the house"),
                "give it one in HOUSE, xtask/src/tidy/house.rs",
            ));
            continue;
        }
        for (name, written) in &package.dependencies {
            if members.contains(name.as_str())
                && let Some((wrong, to_do)) = refusal(from, room(name))
            {
                let line = line_of(tree.text(path).unwrap_or_default(), written);
                findings.push(Finding::new(path, line, wrong, to_do));
            }
        }
    }
    findings
}

/// Why one room may not depend on another, and what to do instead.
fn refusal(from: &str, to: &str) -> Option<(String, &'static str)> {
    let place = |name: &str| HOUSE.iter().position(|room| *room == name);
    if APART.iter().any(|(room, others)| *room == from && others.contains(&to)) {
        return Some((
            format!("{from} must not know {to}"),
            "let a later room bring the two together",
        ));
    }
    let (Some(from_place), Some(to_place)) = (place(from), place(to)) else {
        return Some((
            format!("{from} depends on {to}, and one of them stands outside the house"),
            "keep tools and the house apart",
        ));
    };
    (to_place >= from_place).then(|| {
        (
            format!("{from} depends on {to}, which does not stand before it in the house"),
            "move the code to the room that needs both",
        )
    })
}

fn line_of(manifest: &str, dependency: &str) -> usize {
    let is_named = |line: &str| {
        line.trim_start()
            .strip_prefix(dependency)
            .is_some_and(|rest| rest.starts_with([' ', '.', '=']))
    };
    manifest.lines().position(is_named).map_or(1, |index| index + 1)
}

/// No crate of the core reaches the operating system, however many packages lie between.
pub(super) fn check_system_reach(dependencies: &Dependencies) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in dependencies.keys().filter(|package| is_core(room(package))) {
        for chain in chains_to_system(dependencies, package) {
            findings.push(Finding::new(
                format!("crates/{}/Cargo.toml", room(package)),
                1,
                format!("the core reaches the system: {}", chain.join(" -> ")),
                "do without it, or turn off the feature that brings it in",
            ));
        }
    }
    findings
}

/// The shortest way to each system package, from a package of the core.
fn chains_to_system<'a>(dependencies: &'a Dependencies, from: &'a str) -> Vec<Vec<&'a str>> {
    let mut chains = Vec::new();
    let mut seen = BTreeSet::from([from]);
    let mut waiting = std::collections::VecDeque::from([vec![from]]);
    while let Some(chain) = waiting.pop_front() {
        let next = chain.last().and_then(|last| dependencies.get(*last));
        for name in next.into_iter().flatten().filter(|name| seen.insert(name)) {
            let mut longer = chain.clone();
            longer.push(name);
            if SYSTEM.contains(&name.as_str()) {
                chains.push(longer);
            } else {
                waiting.push_back(longer);
            }
        }
    }
    chains
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(room: &str, dependencies: &[&str]) -> WorkspacePackage {
        let dependencies =
            dependencies.iter().map(|name| (format!("multidata-{name}"), (*name).into()));
        WorkspacePackage {
            name: format!("multidata-{room}"),
            manifest_path: format!("crates/{room}/Cargo.toml"),
            dependencies: dependencies.collect(),
            roots: Vec::new(),
        }
    }

    fn findings(from: &str, to: &str) -> Vec<Finding> {
        let manifest = format!("[dependencies]\n{to}.workspace = true\n");
        let tree = Tree::planted(&[(&format!("crates/{from}/Cargo.toml"), &manifest)]);
        check(&[package(from, &[to]), package(to, &[])], &tree)
    }

    #[test]
    fn edges_up_the_list_pass() {
        for (from, to) in [("tcp", "wire"), ("stack", "tcp"), ("cli", "bench"), ("ip", "link")] {
            assert_eq!(findings(from, to), [], "{from} -> {to}");
        }
    }

    #[test]
    fn edges_down_the_list_are_found_with_their_line() {
        for (from, to) in [("wire", "tcp"), ("time", "counters"), ("device", "linux")] {
            let found = findings(from, to);
            assert_eq!(found.len(), 1, "{from} -> {to}");
            assert_eq!(found[0].line, 2);
        }
    }

    #[test]
    fn rooms_that_must_not_know_each_other_are_found() {
        for (from, others) in APART {
            for to in *others {
                let found = findings(from, to);
                assert!(found[0].wrong.contains("must not know"), "{from} -> {to}: {found:?}");
            }
        }
    }

    #[test]
    fn a_room_without_a_place_is_found() {
        assert_eq!(findings("attic", "wire").len(), 1);
        assert_eq!(findings("wire", "attic").len(), 2);
    }

    #[test]
    fn the_core_ends_with_the_stack() {
        assert!(is_core("time") && is_core("stack"));
        assert!(!is_core("linux") && !is_core("attic"));
    }

    #[test]
    fn a_way_to_the_system_is_found_through_other_packages() {
        let graph = |edges: &[(&str, &str)]| {
            let mut dependencies = Dependencies::new();
            for (from, to) in edges {
                dependencies.entry((*from).into()).or_default().insert((*to).into());
            }
            check_system_reach(&dependencies)
        };
        let found =
            graph(&[("multidata-ip", "rand"), ("rand", "getrandom"), ("getrandom", "libc")]);
        assert_eq!(found.len(), 1);
        assert!(found[0].wrong.ends_with("multidata-ip -> rand -> getrandom"), "{found:?}");
        assert_eq!(graph(&[("multidata-linux", "libc"), ("multidata-ip", "bytes")]), []);
    }

    #[test]
    fn this_workspace_is_seen_as_cargo_sees_it() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root");
        let packages = packages(root).expect("cargo reads the manifests");
        let tcp = packages.iter().find(|package| package.name == "multidata-tcp");
        let tcp = tcp.expect("the house has a room for TCP");
        assert_eq!(tcp.manifest_path, "crates/tcp/Cargo.toml");
        assert!(tcp.dependencies.contains(&("multidata-wire".into(), "wire".into())));
        assert!(tcp.roots.iter().any(|root| root.path == "crates/tcp/src/lib.rs"));
    }
}
