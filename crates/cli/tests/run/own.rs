//! What the manager takes besides the pages of the program, judged from outside.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::tempdir;
use zfold_compare::proc;
use zfold_testing::groups::Group;
use zfold_testing::skip::{has_program, is_root};
use zfold_testing::wait_for;

use crate::common::{command, needs, skip};
use crate::runs::{can_manage, manager_of, text};
use zfold_testing::process::Killed;

/// The most that it may take: a relocated image, stacks, buffers, what is known of each page.
const MOST: u64 = 7 << 19;

/// Uses so many MiB at random for some seconds, in pages of which half compresses, checking each,
/// says so, and stops.
const WORKLOAD: &str = r#"
import os, random, signal, sys, time
half = os.urandom(1 << 20)
count = int(sys.argv[1]) << 8
def page(n): return half[n * 512 % 999424:][:2048] + bytes([n % 251]) * 2044 + n.to_bytes(4, "big")
memory = [bytearray(page(n)) for n in range(count)]
began = time.monotonic()
while time.monotonic() - began <= 3:
    for n in random.choices(range(count), k=500):
        assert memory[n] == page(n), n
print("used", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"#;

fn state(runtime: &Path, pid: &str) -> Value {
    let mut command = command(&["ctl", "--json", "--pid", pid, "stat"]);
    let output = command.env("XDG_RUNTIME_DIR", runtime).output().expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Runs the workload under a limit, and looks at the manager when it has done much work; what it
/// has then is what it keeps.
fn judge(limit: &str, mib: u64, wrap: impl Fn(&Command) -> Command) {
    let runtime = tempdir().expect("a directory");
    let mib = mib.to_string();
    let line = ["run", "--limit", limit, "--", "python3", "-c", WORKLOAD, &mib];
    let mut run = wrap(&command(&line));
    let (mut run, said) = Killed::ready(run.env("XDG_RUNTIME_DIR", runtime.path()));
    assert_eq!(said, "used", "{limit}");
    let pid = run.0.id().to_string();
    let manager = manager_of(run.0.id()).expect("a manager");
    // The manager goes on a little after the stop, and looks at what it has now and then.
    wait_for(|| {
        let state = state(runtime.path(), &pid);
        let bytes = |name| state[name].as_u64().unwrap_or_else(|| panic!("no {name}: {state}"));
        let rollup = fs::read_to_string(format!("/proc/{manager}/smaps_rollup")).expect("of root");
        let anonymous = proc::bytes(&rollup, "Anonymous:").expect("a size");
        let own = anonymous.saturating_sub(bytes("stored_bytes") + bytes("waiting_bytes"));
        let has_left = bytes("stored_bytes") > 4 << 20;
        let is_told = bytes("own_bytes").abs_diff(own) <= 256 << 10;
        let is_right = has_left && own <= MOST && is_told;
        is_right.then_some(()).ok_or(format!("{limit}: {own} of {anonymous} bytes, {state}"))
    });
    assert!(run.0.try_wait().expect("a status").is_none(), "{limit}: it found a wrong byte");
}

#[test]
fn a_small_limit_is_for_the_program_and_not_for_the_manager() {
    needs!(can_manage());
    needs!(is_root() && has_program("python3"), "not root, or no python3");
    let alone = |run: &Command| {
        let mut command = Command::new(run.get_program());
        command.args(run.get_args());
        command
    };
    for (limit, mib) in [("16MiB", 32), ("64MiB", 112), ("128MiB", 192)] {
        judge(limit, mib, alone);
    }
    let Some(group) = Group::new("own", 72 << 20) else {
        return skip("no control group with a limit of memory can be made here");
    };
    judge("auto", 80, |run| group.inside(run));
    assert_eq!(group.kills(), Some(0));
}

/// Prints which children the parent of the manager has.
const CHILDREN: &str = r#"
front=$(sed -n "s/^PPid:\t//p" /proc/$PPID/status)
cat /proc/$front/task/*/children
echo "$PPID"
"#;

#[test]
fn nothing_stays_of_what_was_tried_before_the_start() {
    needs!(can_manage());
    let mut run = command(&["run", "--limit", "64MiB", "--", "sh", "-c", CHILDREN]);
    let output = run.output().expect("it starts");
    let (children, said) = (text(&output.stdout), text(&output.stderr));
    let children: Vec<_> = children.split_whitespace().collect();
    assert!(matches!(children[..], [child, manager] if child == manager), "{children:?} {said}");
}
