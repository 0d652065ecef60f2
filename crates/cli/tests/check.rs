//! `zfold check` as root, as a plain user, and where calls are denied.

mod common;

use std::process::{Command, Output};

use common::{command, skip};
use serde_json::Value;
use zfold_testing::compiled::compile_text;
use zfold_testing::skip::installed;

fn document(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn need<'a>(document: &'a Value, name: &str) -> &'a Value {
    let needs = document["needs"].as_array().expect("a list");
    needs.iter().find(|need| need["name"] == name).expect(name)
}

/// Returns whether a program under a limit starts.
fn runs(zfold: &mut Command) -> bool {
    let output = zfold.args(["run", "--limit", "64MiB", "--", "true"]).output();
    output.expect("it starts").status.success()
}

#[test]
fn it_says_of_a_run_what_a_run_does() {
    let output = command(&["check", "--json"]).output().expect("it starts");
    let document = document(&output);
    assert_eq!(document["schema"], "zfold.check/1");
    let works = runs(&mut command(&[]));
    assert_eq!((document["run"].as_bool(), output.status.success()), (Some(works), works));
    for need in document["needs"].as_array().expect("a list") {
        let granted = need["found"] == true;
        assert_eq!(need["remedies"].as_array().map(Vec::is_empty), Some(granted), "{need}");
    }
    let text = command(&["check"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.ends_with(if works { "zfold run works here.\n" } else { "not work here.\n" }));
}

#[test]
fn a_plain_user_is_told_what_grants_it() {
    let test = "a_plain_user_is_told_what_grants_it";
    let plain = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command.arg(env!("CARGO_BIN_EXE_zfold")).args(arguments);
        command
    };
    let output = match plain(&["check", "--json"]).output() {
        Ok(output) if !output.stdout.is_empty() => output,
        _ => return skip(test, "not root, no setpriv, or user 65534 cannot execute zfold"),
    };
    let document = document(&output);
    let works = runs(&mut plain(&[]));
    assert_eq!(
        (document["run"].as_bool(), output.status.code()),
        (Some(works), Some((!works).into()))
    );
    let faults = need(&document, "page faults of the kernel");
    if faults["found"] == true {
        return skip(test, "the page faults of the kernel are everybody's here");
    }
    let remedies = faults["remedies"].to_string();
    for part in ["--device /dev/userfaultfd --cap-add SYS_PTRACE", "udev", "Kubernetes"] {
        assert!(remedies.contains(part), "{remedies}");
    }
    assert!(remedies.contains("setfacl -m u:") || remedies.contains("sysctl"), "{remedies}");
    assert_eq!(need(&document, "programs with filters")["found"], false);
}

/// Denies pidfd_getfd and userfaultfd by a filter, as containers do, and executes its arguments.
const CONTAINER: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 438, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 323, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { sizeof code / sizeof *code, code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 99;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 98;
    execv(argv[1], argv + 1);
    return 97;
}
"#;

#[test]
fn where_a_container_denies_calls_a_run_is_refused_and_not_silent() {
    let test = "where_a_container_denies_calls_a_run_is_refused_and_not_silent";
    if !runs(&mut command(&[])) {
        return skip(test, "zfold run does not work here at all");
    }
    if !installed(test, &["cc"]) {
        return;
    }
    let container = compile_text("container", CONTAINER).unwrap_or_else(|said| panic!("{said}"));
    let contained = |arguments: &[&str]| {
        let mut command = Command::new(&container.program);
        command.arg(env!("CARGO_BIN_EXE_zfold")).args(arguments).output().expect("it starts")
    };
    let check = contained(&["check", "--json"]);
    let document = document(&check);
    assert_eq!((check.status.code(), document["run"].as_bool()), (Some(1), Some(false)));
    let run = contained(&["run", "--limit", "64MiB", "--", "echo", "ran"]);
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(125), "{said}");
    assert!(run.stdout.is_empty() && said.lines().count() == 1, "{said}");
    assert!(said.contains("--cap-add SYS_PTRACE") || said.contains("setfacl"), "{said}");
    let demo = contained(&["demo", "--size", "16MiB"]);
    common::assert_line(&demo, 1, &["in a quarter", "zfold check"]);
    let run = contained(&["run", "--limit", "64MiB", "--best-effort", "--", "echo", "ran"]);
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!((run.status.code(), &*run.stdout), (Some(0), &b"ran\n"[..]), "{said}");
    assert!(said.contains("running without a limit"), "{said}");
}
