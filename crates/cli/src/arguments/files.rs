//! Files that a command line names: one for each purpose.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file, and what the command line names it for.
pub(super) type Named<'a> = (&'a str, Option<&'a Path>);

/// Refuses a file that is written for one purpose and named for another: what is written would be overwritten, or what
/// is to be read. A device or a pipe may serve several.
///
/// # Errors
/// A sentence that names both.
pub(super) fn check_distinct(written: &[Named<'_>], read: &[Named<'_>]) -> Result<(), String> {
    for (at, (purpose, path)) in written.iter().enumerate() {
        let others = written[..at].iter().chain(read);
        for (other_purpose, other) in others {
            if let (Some(path), Some(other)) = (path, other)
                && is_one_file(path, other)
            {
                return Err(format!(
                    "{other_purpose} {} and {purpose} {} are one file: name another",
                    other.display(),
                    path.display()
                ));
            }
        }
    }
    Ok(())
}

fn is_one_file(one: &Path, other: &Path) -> bool {
    let id = |about: Metadata| about.is_file().then(|| (about.dev(), about.ino()));
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => id(one).is_some_and(|it| Some(it) == id(other)),
        (Err(_), Err(_)) => place(one).is_some_and(|it| Some(it) == place(other)),
        _ => false,
    }
}

/// Where a file would be that is not there yet.
fn place(path: &Path) -> Option<PathBuf> {
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    Some(directory.unwrap_or(Path::new(".")).canonicalize().ok()?.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_serves_one_purpose_whatever_it_is_called() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [there, link, new] = ["there", "link", "new"].map(|name| directory.path().join(name));
        std::fs::write(&there, "").expect("room for it");
        std::os::unix::fs::symlink(&there, &link).expect("a link");
        let around = directory.path().join("../").join(directory.path().file_name().expect("ours"));
        let check = |one: &Path, other: &Path| {
            let read = [("FILE", None)];
            check_distinct(&[("--capture", Some(one)), ("--json", Some(other))], &read)
        };
        for (one, other) in [
            (&there, &there),
            (&there, &link),
            (&new, &new),
            (&new, &around.join("new")),
            (&there, &around.join("there")),
        ] {
            let sentence = check(one, other).expect_err("one file");
            assert!(sentence.contains("--capture") && sentence.contains("--json"), "{sentence}");
        }
        let capture = ("--capture", Some(there.as_path()));
        assert!(check_distinct(&[capture], &[("FILE", Some(&link))]).is_err());
        assert_eq!(check_distinct(&[], &[capture, capture]), Ok(()), "nobody writes it");
        let null = PathBuf::from("/dev/null");
        for (one, other) in [(&there, &new), (&new, &link), (&null, &null)] {
            assert_eq!(check(one, other), Ok(()));
        }
    }
}
