//! Namespaces of our own: a network that nobody else sees, without being root.
//!
//! Tests and benches make TAP interfaces and configure the kernel's side of them. In a fresh
//! network namespace that disturbs nobody, and in a fresh user namespace the process may do it
//! without privilege. A mount namespace comes with it, because `/sys/class/net` shows the
//! interfaces of the network namespace in which it was mounted: threaded NAPI is switched there.
//!
//! Namespaces belong to threads, so [`Sandbox::enter`] must run before the first thread starts.

use crate::interface::Interface;
use crate::system_error::{SystemError, kind_of, said};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{geteuid, getgid, getuid};
use rustix::thread::UnshareFlags;
use std::fs;
use std::io::ErrorKind;

/// Stock values of Linux: a fresh namespace may derive others from the machine's memory, and the
/// peer's windows must not differ from run to run. Minimum, default and largest size in bytes.
const TCP_SYSCTLS: [(&str, &str); 2] = [
    ("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456"),
    ("/proc/sys/net/ipv4/tcp_wmem", "4096 16384 4194304"),
];

/// Proof that the process lives in a network of its own. There is no way back, so dropping it does
/// nothing.
#[derive(Debug)]
pub struct Sandbox {
    refused: Vec<String>,
}

impl Sandbox {
    /// Moves the process into new network and mount namespaces, as an unprivileged user also into
    /// a new user namespace, in which it is root. The loopback interface comes up; nothing else is
    /// there.
    ///
    /// # Errors
    /// Where a thread was started before, or where the system allows no new namespaces.
    pub fn enter() -> Result<Self, SystemError> {
        let threads = thread_count()?;
        if threads != 1 {
            let message = format!(
                "namespaces must be entered before any thread starts, and {threads} threads run: \
                 enter them first thing in main"
            );
            return Err(SystemError::new(ErrorKind::InvalidInput, message));
        }
        unshare_network()?;
        let mut sandbox = Self { refused: Vec::new() };
        if let Err(error) = mount_sysfs() {
            sandbox.refused.push(format!(
                "/sys still shows the old network ({error}), so threaded NAPI cannot be switched on"
            ));
        }
        Interface::named("lo")?.set_up()?;
        for (path, value) in TCP_SYSCTLS {
            if let Err(error) = fs::write(path, value) {
                sandbox.refused.push(format!("{path} could not be set to {value:?}: {error}"));
            }
        }
        Ok(sandbox)
    }

    /// Moves the calling thread alone into a further network namespace, for a second host beside the
    /// one in which the process lives. Its loopback interface comes up. What the thread opens there
    /// stays there, whichever thread uses it; the namespace ends with the last of it.
    ///
    /// # Errors
    /// Where the system allows no further namespace.
    pub fn enter_further(&self) -> Result<(), SystemError> {
        unshare(UnshareFlags::NEWNET).map_err(|errno| {
            SystemError::refused("a further network namespace was refused", errno)
        })?;
        Interface::named("lo")?.set_up()
    }

    /// Sets how far the kernel's TCP may grow its buffers, in bytes, in the network namespace of the
    /// calling thread: a path with a large product of rate and delay needs more than the stock
    /// values that [`Sandbox::enter`] sets.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn set_tcp_buffers_max(&self, len_bytes: usize) -> Result<(), SystemError> {
        write_proc("/proc/sys/net/ipv4/tcp_rmem", &format!("4096 131072 {len_bytes}"))?;
        write_proc("/proc/sys/net/ipv4/tcp_wmem", &format!("4096 16384 {len_bytes}"))
    }

    /// What is less than wished for, a sentence each; empty where all is as it should be.
    #[must_use]
    pub fn refused(&self) -> &[String] {
        &self.refused
    }
}

/// As [`Sandbox::enter_further`], for a test of this crate's own, whose process has threads and no
/// sandbox.
#[cfg(test)]
pub(crate) fn enter_by_thread() -> Result<(), SystemError> {
    Sandbox { refused: Vec::new() }.enter_further()
}

fn thread_count() -> Result<usize, SystemError> {
    let tasks = fs::read_dir("/proc/self/task").map_err(|error| {
        SystemError::failed("/proc/self/task cannot be read (is /proc mounted?)", &error)
    })?;
    Ok(tasks.count())
}

/// New network and mount namespaces, in a new user namespace where that is what it takes.
fn unshare_network() -> Result<(), SystemError> {
    let wanted = UnshareFlags::NEWNET | UnshareFlags::NEWNS;
    if geteuid().is_root() {
        match unshare(wanted) {
            // Root without the capability, as in most containers.
            Err(Errno::PERM) => {}
            result => {
                return result.map_err(|errno| {
                    SystemError::refused("new network and mount namespaces were refused", errno)
                });
            }
        }
    }
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    unshare(wanted | UnshareFlags::NEWUSER).map_err(|errno| {
        let message = format!(
            "new user and network namespaces were refused: {}; run as root, or allow them (see \
             the sysctls user.max_user_namespaces, kernel.unprivileged_userns_clone and \
             kernel.apparmor_restrict_unprivileged_userns)",
            said(errno)
        );
        SystemError::new(kind_of(errno), message)
    })?;
    // user_namespaces(7): setgroups must be denied before an unprivileged process may map groups.
    write_proc("/proc/self/setgroups", "deny")?;
    write_proc("/proc/self/uid_map", &format!("0 {uid} 1"))?;
    write_proc("/proc/self/gid_map", &format!("0 {gid} 1"))
}

fn write_proc(path: &str, value: &str) -> Result<(), SystemError> {
    fs::write(path, value).map_err(|error| {
        SystemError::failed(format_args!("{path} could not be set to {value:?}"), &error)
    })
}

#[allow(unsafe_code)]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: only unsharing the file table (`UnshareFlags::FILES`) can invalidate descriptors
    // that others hold, and no caller in this module asks for it.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Shows the new network's interfaces under /sys, for this process and its children only.
fn mount_sysfs() -> Result<(), std::io::Error> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("sysfs", "/sys", "sysfs", flags, None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_told_why_it_cannot_enter() {
        // The test harness itself runs this test in a second thread.
        let error = Sandbox::enter().expect_err("this process has threads");
        assert!(error.message.contains("before any thread starts"), "{error}");
    }
}
