//! Where it is not permitted to manage memory.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::geteuid;

use crate::common::{assert_line, needs, skip};
use crate::granted::Granted;
use crate::runs::text;

/// Runs zfold as a user without rights; says so if that is not possible here.
fn unprivileged(arguments: &[&str]) -> Option<Output> {
    let sysctl = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
    if sysctl.is_ok_and(|value| value.trim() != "0") {
        skip("vm.unprivileged_userfaultfd permits it to everybody");
        return None;
    }
    let zfold = env!("CARGO_BIN_EXE_zfold");
    let mut command = match geteuid().is_root() {
        true => Command::new("setpriv"),
        false => Command::new(zfold),
    };
    if geteuid().is_root() {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", zfold]);
    }
    // A device that this user may open would permit it.
    if !geteuid().is_root()
        && fs::File::options().read(true).write(true).open("/dev/userfaultfd").is_ok()
    {
        skip("this user may open /dev/userfaultfd");
        return None;
    }
    let output = command.args(arguments).output().ok();
    // setpriv speaks for itself where it cannot execute zfold.
    let output = output.filter(|output| !output.stderr.starts_with(b"setpriv: "));
    if output.is_none() {
        skip("no setpriv, or the program lies where user 65534 cannot execute it");
    }
    output
}

#[test]
fn it_is_refused_with_the_command_that_grants_it() {
    let line = ["run", "--limit", "64MiB", "--", "sh", "-c", "exit 3"];
    let Some(output) = unprivileged(&line) else { return };
    let grants: &[_] = if Path::new("/dev/userfaultfd").exists() {
        &["grant it with: sudo setfacl -m u:"]
    } else {
        // The second in a container.
        &["grant it with: sudo sysctl vm.unprivileged_userfaultfd=1", "grant it with: docker run"]
    };
    let said = text(&output.stderr);
    assert!(grants.iter().any(|grant| said.contains(grant)), "{said}");
    assert!(!said.contains('$'), "the user is named: {said}");
    assert_line(&output, 125, &["not permitted"]);
}

#[test]
fn best_effort_runs_it_with_a_warning() {
    let run = |program: &[&str]| {
        let line = [&["run", "--limit", "64MiB", "--best-effort", "--"], program].concat();
        unprivileged(&line)
    };
    let Some(output) = run(&["sh", "-c", "echo out; exit 3"]) else { return };
    assert_line(&output, 3, &["warning: running without a limit", "grant it with"]);
    assert_eq!(text(&output.stdout), "out\n");
    let Some(output) = run(&["./no-such-program"]) else { return };
    let said = text(&output.stderr);
    assert!(
        said.ends_with("cannot run './no-such-program': No such file or directory (os error 2)\n")
    );
}

#[test]
fn a_limit_of_processes_that_is_too_low_is_named() {
    let Some(user) = Granted::new() else { return };
    // Other processes of this user count, too, so that a run may fail at each of its steps.
    for most in [1, 2, 5, 8, 12, 16, 20, 24, 32] {
        let mut limited = user.command("prlimit");
        limited.arg(format!("--nproc={most}")).arg(env!("CARGO_BIN_EXE_zfold"));
        let output = limited.args(["run", "--limit", "64MiB", "--", "true"]).output();
        let output = output.expect("it starts");
        let said = text(&output.stderr);
        needs!(!said.contains("prlimit: not found"), "no prlimit");
        let named = said.lines().count() == 1 && said.contains("(ulimit -u)");
        // It runs with the manager's last thread, and may have no helper then.
        let ran = output.status.success() && (said.is_empty() || named);
        let refused = output.status.code() == Some(125) && named;
        assert!(ran || refused, "{most}: {}: {said}", output.status);
        assert!(most > 2 || refused, "{most}: {said}");
    }
}
