//! A file that appears whole or not at all.
//!
//! What is written goes to a temporary file beside the wanted one; [`WholeFile::finish`] makes it
//! durable and moves it into place in one step, and anything else - an error, a drop - removes
//! it. A name that stands for something other than a regular file (a device, a pipe) cannot be
//! replaced by a rename and is written to directly. So is a name of what the process has open already
//! (`-`, `/dev/stdout`, `/dev/fd/3`), even where that is a regular file: whoever redirected to it, or
//! appends to it, wants it to go on being the same one.

use crate::{Attempt, Failure};
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// A file under construction.
#[derive(Debug)]
pub struct WholeFile {
    wanted: PathBuf,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Beside(NamedTempFile),
    Direct(File),
}

impl WholeFile {
    /// Begins the file that shall be called `wanted`.
    ///
    /// # Errors
    /// A sentence, where no file of that name can be made.
    pub fn begin(wanted: &Path) -> Result<Self, Failure> {
        let refused = || format!("cannot write {}", wanted.display());
        if let Some(open) = Descriptor::named(wanted) {
            let file = open.writer().attempt(refused)?;
            return Ok(Self { wanted: wanted.to_owned(), content: Content::Direct(file) });
        }
        // A link keeps pointing where it points: what it names is replaced.
        let wanted = match wanted.canonicalize() {
            Ok(resolved) => resolved,
            Err(error) if error.kind() == io::ErrorKind::NotFound => wanted.to_owned(),
            Err(error) => return Err(error).attempt(refused),
        };
        let present = std::fs::metadata(&wanted).ok();
        let content = match present.as_ref().map(Metadata::file_type) {
            Some(kind) if kind.is_dir() => {
                return Err("it is a directory").attempt(refused);
            }
            Some(kind) if kind.is_char_device() || kind.is_block_device() || kind.is_fifo() => {
                Content::Direct(OpenOptions::new().write(true).open(&wanted).attempt(refused)?)
            }
            Some(kind) if !kind.is_file() => {
                return Err("it is neither a file nor a device").attempt(refused);
            }
            _ => Content::Beside(beside(&wanted, present).attempt(refused)?),
        };
        Ok(Self { wanted, content })
    }

    /// Whether this is the process's own standard output.
    #[must_use]
    pub fn is_standard_output(&self) -> bool {
        is_standard_output(&self.wanted)
    }

    /// The temporary file, which whoever ends the process by force must remove.
    #[must_use]
    pub fn temporary_path(&self) -> Option<&Path> {
        match &self.content {
            Content::Beside(file) => Some(file.path()),
            Content::Direct(_) => None,
        }
    }

    /// Makes the file durable and gives it its name, durably as well.
    ///
    /// # Errors
    /// A sentence; nothing of the file is left then, but for one whose name alone may not outlive a power cut.
    pub fn finish(self) -> Result<(), Failure> {
        let wanted = self.wanted;
        let refused = || format!("cannot write {}", wanted.display());
        match self.content {
            Content::Beside(mut file) => {
                file.flush().attempt(refused)?;
                file.as_file().sync_all().attempt(refused)?;
                file.persist(&wanted).map_err(|failed| failed.error).attempt(refused)?;
                match File::open(directory_of(&wanted)) {
                    // Who may write there and not read cannot ask for it.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                    opened => opened.and_then(|directory| sync(&directory)).attempt(refused),
                }
            }
            Content::Direct(mut file) => file.flush().and_then(|()| sync(&file)).attempt(refused),
        }
    }

    /// Writes all of it and finishes it.
    ///
    /// # Errors
    /// As [`WholeFile::finish`].
    pub fn complete(mut self, content: &[u8]) -> Result<(), Failure> {
        self.write_all(content).attempt(|| format!("cannot write {}", self.wanted.display()))?;
        self.finish()
    }
}

/// Makes durable what can be: pipes and most devices keep nothing (fsync(2): EINVAL), and some file systems cannot say it
/// of directories.
fn sync(file: &File) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, Unsupported};
    match file.sync_all() {
        Err(error) if matches!(error.kind(), InvalidInput | Unsupported) => Ok(()),
        outcome => outcome,
    }
}

/// Whether this name stands for the process's own standard output.
#[must_use]
pub fn is_standard_output(wanted: &Path) -> bool {
    Descriptor::named(wanted).is_some_and(|open| matches!(open, Descriptor::Output))
}

/// What a process has open, named as a file.
#[derive(Debug)]
enum Descriptor {
    /// Standard output of this process.
    Output,
    /// Standard error of this process.
    Errors,
    /// Any other, by its name below /proc.
    Other(PathBuf),
}

impl Descriptor {
    /// `-`, and every name that leads to /proc/PID/fd, as those below /dev do.
    fn named(name: &Path) -> Option<Self> {
        if name == Path::new("-") {
            return Some(Self::Output);
        }
        let mut name = name.to_owned();
        // As many links as the kernel follows.
        for _ in 0..40 {
            let parent = directory_of(&name).canonicalize().ok()?;
            let number = name.file_name()?;
            if parent.starts_with("/proc") && parent.ends_with("fd") {
                let is_own = parent.starts_with(format!("/proc/{}", std::process::id()));
                return Some(match number.to_str() {
                    Some("1") if is_own => Self::Output,
                    Some("2") if is_own => Self::Errors,
                    _ => Self::Other(parent.join(number)),
                });
            }
            name = parent.join(parent.join(number).read_link().ok()?);
        }
        None
    }

    /// Writes where the process's own writing would go on; what was opened anew at its end, never over what is
    /// there.
    fn writer(&self) -> io::Result<File> {
        match self {
            Self::Output => io::stdout().as_fd().try_clone_to_owned().map(File::from),
            Self::Errors => io::stderr().as_fd().try_clone_to_owned().map(File::from),
            Self::Other(path) => OpenOptions::new().append(true).open(path),
        }
    }
}

/// Writes `content` to the file called `wanted`, whole or not at all.
///
/// # Errors
/// A sentence; nothing of the file is left then.
pub fn write_whole(wanted: &Path, content: &[u8]) -> Result<(), Failure> {
    WholeFile::begin(wanted)?.complete(content)
}

fn directory_of(name: &Path) -> &Path {
    match name.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// An empty temporary file in the directory of `wanted`, with the owner and the permissions of the file that it will
/// replace, or else those that a plain new file would have.
fn beside(wanted: &Path, present: Option<Metadata>) -> io::Result<NamedTempFile> {
    let name = wanted.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let directory = directory_of(wanted);
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    let mut refused = None;
    let made = Builder::new().prefix(&prefix).suffix(".partial").make_in(directory, |path| {
        create(path, present.as_ref()).inspect_err(|error| refused = error.raw_os_error())
    });
    // The system's own error: the temporary file's name, which comes with the other one, is of no
    // interest to whoever asked for another file.
    let file = made.map_err(|error| refused.map_or(error, io::Error::from_raw_os_error))?;
    if let Some(present) = present {
        // Few may give files away, and some file systems have no owners.
        let owned_by = |uid| fchown(file.as_file(), uid, Some(present.gid())).is_ok();
        let keeps_group = owned_by(Some(present.uid())) || owned_by(None);
        // Without what would run as somebody else, as writing it in place would leave it.
        let mode = present.mode() & 0o777;
        // Behind it, which may clear some; the mask for new files may have narrowed them, too.
        let mode = if keeps_group { mode } else { without_group(mode) };
        file.as_file().set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(file)
}

/// Creates the file. Until it has the owner and the group of the one that it will replace nobody else may open it: who
/// does keeps it open, and reads all that is written to it.
fn create(path: &Path, present: Option<&Metadata>) -> io::Result<File> {
    let mode = present.map_or(0o666, |it| it.mode() & 0o700);
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// What a file's permissions are for another group than they were meant for: what all others may do.
fn without_group(mode: u32) -> u32 {
    mode & 0o707 | (mode & 0o007) << 3
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.content {
            // Past the wrapper, whose errors tell of the temporary file's name.
            Content::Beside(file) => file.as_file_mut().write(bytes),
            Content::Direct(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.content {
            Content::Beside(file) => file.flush(),
            Content::Direct(file) => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<std::ffi::OsString> {
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_finished_file_replaces_the_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let wanted = directory.path().join("results.json");
        write_whole(&wanted, b"old").unwrap();
        write_whole(&wanted, b"new").unwrap();
        assert_eq!(std::fs::read(&wanted).unwrap(), b"new");
        assert_eq!(names(directory.path()), ["results.json"]);
    }

    #[test]
    fn an_abandoned_file_leaves_the_old_one_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let wanted = directory.path().join("received");
        write_whole(&wanted, b"old").unwrap();
        let mut file = WholeFile::begin(&wanted).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&wanted).unwrap(), b"old");
        assert_eq!(names(directory.path()), ["received"]);
    }

    #[test]
    fn a_file_that_others_cannot_read_stays_one() {
        let directory = tempfile::tempdir().unwrap();
        let wanted = directory.path().join("secrets");
        std::fs::write(&wanted, b"old").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        for wanted_mode in [0o600, 0o640, 0o755] {
            std::fs::set_permissions(&wanted, Permissions::from_mode(wanted_mode)).unwrap();
            let mut file = WholeFile::begin(&wanted).unwrap();
            let temporary = file.temporary_path().expect("a file is replaced").to_owned();
            assert_eq!(mode(&temporary), wanted_mode, "before the first byte");
            file.write_all(b"new").unwrap();
            file.finish().unwrap();
            assert_eq!(mode(&wanted), wanted_mode);
        }
    }

    #[test]
    fn whose_file_it_was_can_read_it_as_before() {
        let directory = tempfile::tempdir().unwrap();
        let wanted = directory.path().join("data");
        std::fs::write(&wanted, b"old").unwrap();
        std::fs::set_permissions(&wanted, Permissions::from_mode(0o640)).unwrap();
        // Who may not give files away has none of others to replace here.
        let _ = std::os::unix::fs::chown(&wanted, Some(1), Some(2));
        let owner = || std::fs::metadata(&wanted).map(|it| (it.uid(), it.gid(), it.mode() & 0o777));
        let before = owner().unwrap();
        write_whole(&wanted, b"new").unwrap();
        assert_eq!(owner().unwrap(), before);
    }

    #[test]
    fn another_group_gets_no_more_than_everybody() {
        for (mode, wanted) in [(0o640, 0o600), (0o664, 0o644), (0o604, 0o644), (0o600, 0o600)] {
            assert_eq!(without_group(mode), wanted, "{mode:o}");
        }
    }

    #[test]
    fn a_group_can_open_nothing_before_it_is_known_to_be_the_right_one() {
        let directory = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| directory.path().join(name));
        std::fs::write(&old, b"old").unwrap();
        for (mode, wanted) in [(0o640, 0o600), (0o755, 0o700), (0o604, 0o600)] {
            std::fs::set_permissions(&old, Permissions::from_mode(mode)).unwrap();
            let file = create(&new, Some(&old.metadata().unwrap())).unwrap();
            assert_eq!(file.metadata().unwrap().mode() & 0o7777, wanted, "{mode:o}");
            std::fs::remove_file(&new).unwrap();
        }
    }

    #[test]
    fn what_keeps_nothing_need_not_be_durable() {
        write_whole(Path::new("/dev/null"), b"x").unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&writer);
        write_whole(Path::new(&format!("/dev/fd/{number}")), b"through").unwrap();
        drop(writer);
        let mut through = String::new();
        io::Read::read_to_string(&mut reader, &mut through).unwrap();
        assert_eq!(through, "through");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("no/such/place.json");
        let sentence = write_whole(&missing, b"x").unwrap_err().to_string();
        assert!(sentence.ends_with("place.json: No such file or directory"), "{sentence}");
        let sentence = write_whole(directory.path(), b"x").unwrap_err().to_string();
        assert!(sentence.ends_with("it is a directory"), "{sentence}");
    }

    #[test]
    fn a_full_device_is_reported_and_stays_a_device() {
        let sentence = write_whole(Path::new("/dev/full"), b"x").unwrap_err().to_string();
        assert_eq!(sentence, "cannot write /dev/full: No space left on device");
        let kind = std::fs::metadata("/dev/full").unwrap().file_type();
        assert!(kind.is_char_device());
    }

    #[test]
    fn what_is_open_already_is_written_behind_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        std::fs::write(&log, b"before ").unwrap();
        let open = OpenOptions::new().append(true).open(&log).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&open);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(format!("/dev/fd/{number}"), &link).unwrap();
        for name in [format!("/dev/fd/{number}"), format!("/proc/self/fd/{number}")] {
            write_whole(Path::new(&name), b"and ").unwrap();
        }
        write_whole(&link, b"after").unwrap();
        assert_eq!(std::fs::read(&log).unwrap(), b"before and and after");
        for name in ["-", "/dev/stdout", "/proc/self/fd/1"] {
            assert!(is_standard_output(Path::new(name)), "{name}");
        }
        for name in ["/dev/stderr", "/dev/null", "stdout", "/no/such/-"] {
            assert!(!is_standard_output(Path::new(name)), "{name}");
        }
    }
}
