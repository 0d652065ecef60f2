//! What the program is started with is what zfold was started with.

use std::fs;
use std::process::Command;

use tempfile::tempdir;

use crate::common::needs;
use crate::runs::{can_manage, text};

/// Tells all of itself that a program inherits.
const PROBE: &str = "\
grep -E '^(Sig(Blk|Ign|Cgt|Q)|NoNewPrivs|Groups|Cpus_allowed_list|CapEff):' /proc/self/status |
    sed 's,^SigQ:.*/,SigQ: ,'
env | grep -Ev '^(_|ZFOLD_[A-Z_]*)='
for fd in 0 1 2 3 4 5 6 7 8 9; do
    readlink /proc/$$/fd/$fd || echo closed
done
cat /proc/$$/limits /proc/$$/oom_score_adj /proc/$$/timerslack_ns /proc/$$/personality
nice
umask
pwd
ps -o pgid=,sid=,tty= -p $$
";

/// Compares the probe with and without zfold, in a shell that has run `before`.
fn compare(before: &str) {
    needs!(can_manage());
    let directory = tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    fs::write(path("probe"), PROBE).expect("written");
    fs::write(path("input"), "input").expect("written");
    let zfold = env!("CARGO_BIN_EXE_zfold");
    let line = format!(
        "{before}\n\
         {{ sh ./probe; }} >out 2>err\n\
         mv out plain; mv err plain.err\n\
         '{zfold}' run --limit 64MiB -- sh ./probe >out 2>err\n\
         mv out managed; mv err managed.err"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(directory.path());
    assert!(command.status().expect("sh runs").success());
    let read = |name: &str| fs::read_to_string(path(name)).unwrap_or_default();
    let plain = read("plain");
    assert!(plain.contains("SigIgn"), "{plain}{}", read("plain.err"));
    // Only a program with CAP_SYS_ADMIN can be traced by a filter without this.
    let without = |text: String| text.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0");
    let (managed, plain) = (without(read("managed")), without(plain));
    for (managed, plain) in managed.lines().zip(plain.lines()) {
        assert_eq!(managed, plain, "{before}");
    }
    assert_eq!(managed.lines().count(), plain.lines().count(), "{before}: {managed}");
    assert_eq!(read("managed.err"), read("plain.err"));
}

#[test]
fn files_environment_limits_and_signals_are_the_same() {
    let before = "exec <input 7<input 8>>more; A='a b'; export A; umask 027; ulimit -n 100; \
                  ulimit -c 0";
    compare(before);
}

#[test]
fn signals_that_are_ignored_stay_so() {
    compare("trap '' PIPE INT HUP TSTP USR2 CHLD");
}

#[test]
fn closed_streams_stay_closed() {
    compare("exec <&-");
}

#[test]
fn blocked_signals_stay_blocked() {
    let blocks = Command::new("env").args(["--block-signal=USR1", "true"]).status();
    needs!(blocks.is_ok_and(|status| status.success()), "env has no --block-signal");
    needs!(can_manage());
    let blocked = |program: &[&str]| {
        let mut command = Command::new("env");
        command.arg("--block-signal=USR1,TERM").args(program);
        let output = command.args(["grep", "SigBlk", "/proc/self/status"]).output();
        text(&output.expect("env runs").stdout)
    };
    let managed = blocked(&[env!("CARGO_BIN_EXE_zfold"), "run", "--limit", "64MiB", "--"]);
    assert_eq!(managed, "SigBlk:\t0000000000004200\n");
    assert_eq!(managed, blocked(&[]));
}
