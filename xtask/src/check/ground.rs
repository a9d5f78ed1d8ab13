//! The ground under the tests: what this machine grants.
//!
//! Integration tests build network namespaces and TAP devices in them. That needs root or user
//! namespaces, and the TUN driver. A namespace is tried rather than inferred from settings, by a
//! child process (`cargo xtask probe-namespace`), because whoever enters one cannot leave it.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::Uid;

use crate::Failure;

const TUN_DEVICE: &str = "/dev/net/tun";
/// The TUN driver's numbers (Linux, Documentation/admin-guide/devices.txt).
const TUN_MAJOR: u64 = 10;
const TUN_MINOR: u64 = 200;

/// What was found.
pub(super) struct Ground {
    is_root: bool,
    /// A namespace with a usable TUN device in it, or why not.
    pub(super) device: Result<(), String>,
    pub(super) cargo_deny: bool,
    /// What had to be made.
    made: Option<String>,
}

impl Default for Ground {
    fn default() -> Self {
        Self { is_root: false, device: Err("not tried".into()), cargo_deny: false, made: None }
    }
}

impl Ground {
    /// Makes the device node if it is missing and we may, then looks what there is.
    pub(super) fn prepare(root: &Path) -> Self {
        let is_root = Uid::effective().is_root();
        let made = (is_root && !Path::new(TUN_DEVICE).exists()).then(|| match make_tun_node() {
            Ok(()) => format!("made {TUN_DEVICE}"),
            Err(failure) => format!("could not make {TUN_DEVICE}: {failure}"),
        });
        Self { is_root, device: try_namespace(), cargo_deny: has_cargo_deny(root), made }
    }

    pub(super) fn print(&self, quick: bool) {
        println!("root:                       {}", if self.is_root { "yes" } else { "no" });
        if let Some(made) = &self.made {
            println!("device node:                {made}");
        }
        match &self.device {
            Ok(()) => println!("namespaces and TUN device:  yes"),
            Err(why) => println!("namespaces and TUN device:  NO, {why}"),
        }
        if !quick {
            println!("cargo-deny:                 {}", if self.cargo_deny { "yes" } else { "NO" });
        }
    }
}

fn make_tun_node() -> Result<(), Failure> {
    if let Some(directory) = Path::new(TUN_DEVICE).parent() {
        std::fs::create_dir_all(directory)?;
    }
    mknod(TUN_DEVICE, SFlag::S_IFCHR, Mode::empty(), makedev(TUN_MAJOR, TUN_MINOR))?;
    // Open to all, as udev makes it: the driver asks for CAP_NET_ADMIN itself. Set afterwards,
    // because mknod's mode goes through the umask.
    std::fs::set_permissions(TUN_DEVICE, Permissions::from_mode(0o666))?;
    Ok(())
}

/// Runs `probe-namespace` in a process of its own.
fn try_namespace() -> Result<(), String> {
    let own_binary = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(own_binary)
        .arg("probe-namespace")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// Enters a network namespace, with a user namespace around it unless we are root, and opens the
/// TUN device there. Prints why not. Only for a process that ends right after.
pub(crate) fn probe_namespace() -> Result<bool, Failure> {
    let (flags, name) = if Uid::effective().is_root() {
        (CloneFlags::CLONE_NEWNET, "network namespace")
    } else {
        (CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUSER, "user and network namespace")
    };
    if let Err(error) = unshare(flags) {
        println!("a {name} is refused: {error}");
        return Ok(false);
    }
    if let Err(error) = OpenOptions::new().read(true).write(true).open(TUN_DEVICE) {
        println!("{TUN_DEVICE} cannot be opened: {error}");
        return Ok(false);
    }
    Ok(true)
}

fn has_cargo_deny(root: &Path) -> bool {
    Command::new("cargo")
        .args(["deny", "--version"])
        .current_dir(root)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
