//! A Linux guest in QEMU, without KVM, that uses the device through its own drivers.
//!
//! `tests/guest/prepare.sh` makes what is booted; where it has not run, or there is no QEMU, these
//! tests are skipped. `tests/guest/init` is what happens inside.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::Child;
use zfold_disk::vhost_user::VhostUserFrontend;
use zfold_testing::skip::{installed, skip};

const QEMU: &str = "qemu-system-x86_64";
/// Without KVM a run takes half a minute, on a busy machine minutes.
const SECONDS_MAX: &str = "900";

/// Returns where the guest lies, or says why the test does not run.
fn guest(initrd: &str) -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest");
    let dir = std::env::var_os("ZFOLD_GUEST_DIR").map_or_else(default, PathBuf::from);
    if !installed(&[QEMU]) {
        return None;
    }
    if !dir.join("vmlinuz").exists() || !dir.join(initrd).exists() {
        skip("there is no guest (run crates/disk/tests/guest/prepare.sh)");
        return None;
    }
    Some(dir)
}

/// Boots the guest and returns what it printed.
fn boot(dir: &Path, initrd: &str, mode: &str, arguments: &[String]) -> String {
    let append = format!("console=ttyS0 quiet panic=-1 zfold={mode}");
    let mut qemu = Command::new("timeout");
    qemu.args([SECONDS_MAX, QEMU, "-machine", "q35,accel=tcg,memory-backend=m0", "-cpu", "max"])
        .args(["-smp", "2", "-m", "1G", "-nographic", "-no-reboot", "-net", "none"])
        .args(["-object", "memory-backend-memfd,id=m0,size=1G,share=on"])
        .args(["-append", &append])
        .arg("-kernel")
        .arg(dir.join("vmlinuz"))
        .arg("-initrd")
        .arg(dir.join(initrd))
        .args(arguments);
    Child::start(&mut qemu).output()
}

#[test]
fn a_guest_keeps_a_file_system_on_vhost_user() {
    let Some(dir) = guest("initrd") else { return };
    let disk = common::disk(256 << 20, false);
    let sockets = tempfile::tempdir().unwrap();
    let socket = sockets.path().join("disk.sock");
    let frontend = VhostUserFrontend::listen(disk.clone(), &socket, Some(2)).unwrap();
    let chardev = format!("socket,id=c0,path={}", socket.display());
    let device = "vhost-user-blk-pci,chardev=c0,num-queues=2";
    let arguments = ["-chardev", &chardev, "-device", device].map(String::from);
    let printed = boot(&dir, "initrd", "vhost", &arguments);
    assert!(printed.contains("GUEST-OK"), "{printed}");
    drop(frontend);
    assert!(!socket.exists());
    let stats = disk.stats();
    println!("{stats:?}");
    assert!(stats.flushes_total > 0 && stats.discards_total > 0 && stats.reads_total > 0);
    assert_eq!(disk.store().len(), 0, "the guest discarded everything");
    disk.store().check();
}
