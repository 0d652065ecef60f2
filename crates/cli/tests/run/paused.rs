//! A run that is paused and goes on.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tempfile::tempdir;
use zfold_testing::wait_until;

use crate::common::{command, needs};
use crate::runs::{can_manage, text};
use zfold_testing::process::Killed;

/// Counts in two processes, of which one is made anew all the time, and sleeps a little.
const WORKLOAD: &str = "
set -e
while :; do (echo child >>counts); sleep 0.01; done &
while :; do echo parent >>counts; done
";

fn ctl(runtime: &Path, pid: &str, word: &str) -> Value {
    let mut command = command(&["ctl", "--json", "--pid", pid, word]);
    let output = command.env("XDG_RUNTIME_DIR", runtime).output().expect("it starts");
    assert!(output.status.success(), "{word}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns how much was counted.
fn counted(folder: &Path) -> u64 {
    folder.join("counts").metadata().map_or(0, |file| file.len())
}

#[test]
fn all_processes_of_a_paused_run_stand_still_and_go_on() {
    needs!(can_manage());
    let folder = tempdir().expect("a folder");
    let line = ["run", "--limit", "16MiB", "--", "sh", "-c", WORKLOAD];
    let mut run = command(&line);
    run.env("XDG_RUNTIME_DIR", folder.path()).current_dir(folder.path());
    // The end of its processes comes a little later than that of its folder.
    let run = run.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    let run = Killed(run.expect("it starts"));
    let pid = run.0.id().to_string();
    for _ in 0..3 {
        let before = counted(folder.path());
        wait_until("it counts", || counted(folder.path()) > before + 500);
        assert_eq!(ctl(folder.path(), &pid, "pause")["paused"], true);
        // Those that were in the middle of a call stop behind it, and where others have work to do,
        // they may wait for a processor before. One that runs would count in each turn.
        let mut still = u64::MAX;
        wait_until("it stands still", || {
            assert!(ctl(folder.path(), &pid, "page-out")["resident_bytes"].is_u64());
            std::thread::sleep(Duration::from_millis(500));
            let now = counted(folder.path());
            std::mem::replace(&mut still, now) == now
        });
        assert_eq!(ctl(folder.path(), &pid, "stat")["paused"], true);
        assert_eq!(ctl(folder.path(), &pid, "resume")["paused"], false);
        wait_until("it goes on", || counted(folder.path()) > still);
    }
}
