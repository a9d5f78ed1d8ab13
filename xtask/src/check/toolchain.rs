//! Which toolchain checks: the one that the packages name, or a newer one.

use std::process::Command;

use cargo_metadata::Metadata;

use crate::Failure;

/// What clippy is told by where its warnings are refused.
pub(super) const REFUSED: &[&str] = &["--", "-D", "warnings"];

/// What clippy is told: to refuse warnings where the compiler is of the minor version that the packages name.
///
/// # Errors
/// Where the compiler does not say its version.
pub(super) fn refusal(metadata: &Metadata) -> Result<&'static [&'static str], Failure> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = String::from_utf8(Command::new(rustc).arg("--version").output()?.stdout)?;
    let is = minor_of(&said).ok_or("rustc does not say its version")?;
    let mut named = metadata.packages.iter().filter_map(|package| package.rust_version.as_ref());
    let is_named = named.any(|named| (named.major, named.minor) == is);
    if !is_named {
        println!("not the toolchain that Cargo.toml names: warnings are shown and not refused");
    }
    Ok(if is_named { REFUSED } else { &[] })
}

/// Major and minor of `rustc 1.95.0 (...)`.
fn minor_of(said: &str) -> Option<(u64, u64)> {
    let mut numbers = said.split_whitespace().nth(1)?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_known_by_its_first_two_numbers() {
        assert_eq!(minor_of("rustc 1.95.0 (59807616e 2026-04-14)\n"), Some((1, 95)));
        assert_eq!(minor_of("rustc 1.97.0-nightly (59807616e 2026-05-01)"), Some((1, 97)));
        assert_eq!(minor_of(""), None);
        assert_eq!(minor_of("rustc unknown"), None);
    }
}
