//! Where the TUN driver is closed to us, whoever we are: its file on a mount without devices.

use crate::ground::{Running, link};
use crate::network::cannot_run;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

const TUN_FILE: &str = "/dev/net/tun";

/// Does something while nobody here may open the driver's file.
fn without_driver(test: &str, body: impl FnOnce()) {
    let none: Option<&str> = None;
    // What the old mount forbids must stay forbidden, or a user namespace may not mount again.
    let closed = MsFlags::MS_BIND
        | MsFlags::MS_REMOUNT
        | MsFlags::MS_NODEV
        | MsFlags::MS_NOSUID
        | MsFlags::MS_NOEXEC;
    if let Err(why) = mount(Some(TUN_FILE), TUN_FILE, none, MsFlags::MS_BIND, none) {
        cannot_run(test, &format!("{TUN_FILE} cannot be hidden: {why}"));
        return;
    }
    match mount(none, TUN_FILE, none, closed, none) {
        Ok(()) => body(),
        Err(why) => cannot_run(test, &format!("{TUN_FILE} cannot be closed: {why}")),
    }
    umount2(TUN_FILE, MntFlags::MNT_DETACH).expect("it was mounted");
}

pub(crate) fn device_is_closed() {
    without_driver("a_device_without_permission_is_told", || {
        let receive = format!("receive 10.9.0.2:7010 /dev/null {}", link(0));
        let (code, sentence) = Running::start(&receive).end();
        assert_eq!(code, Some(1), "{sentence}");
        assert!(sentence.contains("permission was denied"), "{sentence}");

        let bench = "bench stream --device tap --mode multidata --bytes 1 --runs 1";
        let (code, sentence) = Running::start(bench).end();
        assert_eq!(code, Some(1), "{sentence}");
        assert!(sentence.starts_with("multidata: no TAP device can be had:"), "{sentence}");
        assert!(sentence.contains("permission was denied"), "{sentence}");
        assert!(sentence.contains("To get one,"), "{sentence}");
    });
}

pub(crate) fn falls_back_to_the_wire() {
    without_driver("without_a_tap_the_main_job_runs_over_the_wire", || {
        let (code, output, errors) = Running::start("bench --seconds 0.05 --runs 1").output();
        assert_eq!(code, Some(0), "{errors}");
        assert!(errors.contains("no TAP device can be had:"), "{errors}");
        assert!(errors.contains("Running over the in-process wire instead."), "{errors}");
        for row in ["wire send multidata", "wire receive single", "wire offload send lso"] {
            assert!(output.contains(row), "{row} is missing: {output}");
        }
        assert!(!output.contains("tap send"), "{output}");
    });
}
