//! What a server keeps to itself: passwords, and what its devices hold.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use tempfile::tempdir;

use crate::common::needs;
use crate::server::zfold;

#[test]
fn no_variable_of_zfold_reaches_the_command_of_run() {
    let runtime = tempdir().expect("a directory");
    let line = ["disk", "--no-mlock", "--size", "1MiB", "--run", "env"];
    let mut disk = zfold(runtime.path(), &line);
    disk.env("ZFOLD_REDIS_PASSWORD", "hunter2").env("AWS_SECRET_ACCESS_KEY", "its own");
    let output = disk.output().expect("the program starts");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("AWS_SECRET_ACCESS_KEY=its own"), "{told}");
    assert!(!told.contains("hunter2") && !told.contains("ZFOLD_"), "{told}");
}

#[test]
fn a_server_that_crashes_leaves_no_core_file() {
    let folder = tempdir().expect("a directory");
    let crash = |line: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -c unlimited && exec \"$@\"", "sh"]).args(line);
        shell.current_dir(folder.path()).env("XDG_RUNTIME_DIR", folder.path());
        shell.status().expect("sh runs")
    };
    needs!(crash(&["sh", "-c", "kill -ABRT $$"]).core_dumped(), "no program leaves one here");
    let zfold = env!("CARGO_BIN_EXE_zfold");
    let status =
        crash(&[zfold, "disk", "--no-mlock", "--size", "1MiB", "--run", "kill -ABRT $PPID"]);
    assert_eq!((status.signal(), status.core_dumped()), (Some(6), false));
}
