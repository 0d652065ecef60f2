//! What is refused, and that nothing has changed then.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use zfold_testing::compiled::compile_text;

use crate::common::{assert_line, assert_refused, command, needs, results, skip};
use crate::granted::Granted;
use crate::target::{Target, can_attach, said, status};

const ZFOLD: &str = env!("CARGO_BIN_EXE_zfold");

#[test]
fn wrong_arguments_are_one_line() {
    assert_refused(&["attach", "--limit", "64MiB"], 2, &["PID"]);
    assert_refused(&["attach", "1"], 2, &["--limit"]);
    assert_refused(&["attach", "--limit", "64MiB", "x"], 2, &["x"]);
    assert_refused(&["attach", "--limit", "64MiB", "0"], 2, &["0"]);
    assert_refused(&["manage-attached", "--limit", "64MiB", "1"], 2, &["use that"]);
    assert!(!results(&["--help"]).contains("manage-attached"));
    let help = results(&["attach", "--help"]);
    for part in ["kernel.yama.ptrace_scope", "CAP_SYS_PTRACE", "no_new_privs", "cannot be undone"] {
        assert!(help.contains(part), "{part}");
    }
}

#[test]
fn what_is_no_process_or_has_no_limit_is_refused() {
    // Above the most that a kernel gives.
    let line = ["attach", "--limit", "64MiB", "4194305"];
    assert_refused(&line, 1, &["there is no process 4194305"]);
    let own = std::process::id().to_string();
    let line = ["attach", "--limit", "64MiB", &own];
    assert_refused(&line, 1, &["is an ancestor of zfold", "another terminal"]);
    let itself = Command::new("sh")
        .args(["-c", "exec \"$0\" attach --limit 64MiB $$", ZFOLD])
        .output()
        .expect("it starts");
    assert_line(&itself, 1, &["is zfold itself"]);
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        let line = ["attach", "--limit", "64MiB", "2"];
        assert_refused(&line, 1, &["process 2 (kthreadd) is a thread of the kernel"]);
    }
    let mut ended = Command::new("true").spawn().expect("it starts");
    let pid = ended.id();
    zfold_testing::wait_until("it has ended", || status(pid, "State").starts_with('Z'));
    let line = ["attach", "--limit", "64MiB", &pid.to_string()];
    assert_refused(&line, 1, &["has ended"]);
    ended.wait().expect("it has ended");
}

#[test]
fn a_process_that_is_traced_already_is_refused() {
    needs!(can_attach());
    let mut target = Target::start(Command::new("cat"));
    assert!(target.attach("64MiB").status.success());
    let again = target.attach("64MiB");
    assert_line(&again, 1, &["is under zfold already", "zfold ctl"]);
    target.echoes();
    assert!(target.finish().success());

    let mut strace = Command::new("strace");
    strace.args(["-qq", "-o", "/dev/null", "cat"]);
    needs!(strace.arg("/dev/null").output().is_ok(), "no strace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "sh", "-c", "echo $$; exec cat"]);
    let mut target = Target::start(strace);
    let pid = target.line();
    let line = ["attach", "--limit", "64MiB", &pid];
    assert_refused(&line, 1, &["is traced by", "(strace); end that first"]);
    target.echoes();
}

/// A child that cannot be had keeps its parent as it was.
#[test]
fn a_child_that_is_traced_already_is_refused_and_nothing_changed() {
    needs!(can_attach());
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 1000 & echo $!; cat; kill $!; wait; exit 4"]);
    let mut target = Target::start(shell);
    let child = target.line();
    let mut attach = command(&["attach", "--yes", "--limit", "64MiB", &child]);
    attach.env("XDG_RUNTIME_DIR", target.runtime());
    let output = attach.output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    let refused = target.attach("64MiB");
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    let text = said(&refused);
    let line = text.lines().last().expect("a line");
    assert!(line.contains("is under zfold already") && line.ends_with("nothing was changed"));
    assert_eq!(status(target.pid(), "TracerPid"), "0");
    assert_eq!(status(target.pid(), "Seccomp"), status(std::process::id(), "Seccomp"));
    target.echoes();
    assert_eq!(target.finish().code(), Some(4));
}

#[test]
fn a_process_of_another_user_is_refused() {
    needs!(rustix::process::geteuid().is_root(), "needs root, and another user");
    let Some(user) = Granted::new() else { return };
    let target = Target::start(Command::new("cat"));
    let pid = target.pid().to_string();
    let mut attach = user.command(ZFOLD);
    let output = attach.args(["attach", "--limit", "64MiB", &pid]).output().expect("it starts");
    assert_line(&output, 1, &["belongs to another user", "run zfold as root"]);
    assert_eq!(status(target.pid(), "TracerPid"), "0");
}

/// Forbids what a helper does.
const SANDBOX: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    struct sock_filter code[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, 0},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_ioctl},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    struct sock_fprog filter = {4, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 9;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 8;
    write(1, "ready\n", 6);
    char bytes[64];
    for (ssize_t len; (len = read(0, bytes, sizeof bytes)) > 0;) write(1, bytes, len);
    return 6;
}
"#;

#[test]
fn a_process_in_a_sandbox_that_forbids_it_is_refused() {
    needs!(can_attach());
    let Ok(program) = compile_text("sandboxed", SANDBOX) else { return skip("no C compiler") };
    let mut target = Target::start(Command::new(&program.program));
    assert_eq!(target.line(), "ready");
    let output = target.attach("64MiB");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let text = said(&output);
    let line = text.lines().last().expect("a line");
    for part in ["(sandboxed) is in a sandbox", "without its sandbox", "nothing was changed"] {
        assert!(line.contains(part), "{text}");
    }
    assert_eq!(status(target.pid(), "TracerPid"), "0");
    target.echoes();
    assert_eq!(target.finish().code(), Some(6));
}

#[test]
fn a_terminal_is_asked_first() {
    needs!(can_attach());
    for (answer, status_of, part) in
        [("no\n", 1, "nothing was changed"), ("yes\n", 0, "under a limit")]
    {
        let mut target = Target::start(Command::new("cat"));
        let line = format!("'{ZFOLD}' attach --limit 64MiB {}", target.pid());
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env("XDG_RUNTIME_DIR", target.runtime());
        let spawned = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut script) = spawned else { return skip("no script (package bsdutils)") };
        script.stdin.as_mut().expect("a pipe").write_all(answer.as_bytes()).expect("it reads");
        let mut seen = String::new();
        script.stdout.take().expect("a pipe").read_to_string(&mut seen).expect("text");
        assert!(seen.contains("type yes to go on") && seen.contains(part), "{seen}");
        assert_eq!(script.wait().expect("it ends").code(), Some(status_of), "{seen}");
        target.echoes();
        assert!(target.finish().success());
    }
}
