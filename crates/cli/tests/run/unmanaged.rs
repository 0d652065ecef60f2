//! Processes whose memory cannot be managed: named and listed.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Output, Stdio};

use tempfile::tempdir;
use zfold_testing::compiled::{Compiled, compile_text};
use zfold_testing::skip::installed;

use crate::common::{command, needs, read_report, skip};
use crate::runs::{can_manage, text};

/// A program that has something where a helper's code belongs, and then much memory.
const IN_THE_WAY: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int main(int argc, char **argv) {
    unsigned long at = ADDRESS;
    void *page = mmap((void *)at, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (page != (void *)at) return 9;
    char *memory = mmap(0, 48 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 40; round++) {
        memset(memory, round, 48 << 20);
    }
    puts("done");
    return 3;
}
"#;

/// Makes a child that no tracer follows, which lives until its input ends.
const UNTRACED: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    long child = syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        char byte;
        _exit(read(0, &byte, 1) == 0 ? 4 : 8);
    }
    int status;
    if (waitpid(child, &status, 0) != child) return 9;
    return WEXITSTATUS(status);
}
"#;

/// Builds a program; says so if there is no compiler.
fn built(name: &str, text: &str) -> Option<Compiled> {
    let compiled = || compile_text(name, text).unwrap_or_else(|said| panic!("{said}"));
    installed(&["cc"]).then(compiled)
}

fn in_the_way() -> Option<Compiled> {
    let address = zfold_run::HELPER_AT;
    let text = IN_THE_WAY.replace("ADDRESS", &format!("{address}UL"));
    built("in-the-way", &text)
}

fn run(options: &[&str], program: &Compiled) -> Output {
    // With less it would get its helper before it can be in the way.
    let line = [&["run", "--limit", "20MiB"], options, &["--"]].concat();
    command(&line).arg(&program.program).output().expect("it starts")
}

#[test]
fn a_process_that_is_not_managed_is_named_once_and_listed() {
    let folder = tempdir().expect("a folder");
    needs!(can_manage());
    let Some(program) = in_the_way() else { return };
    let report = folder.path().join("report");
    let output = run(&["--report=json", "--report-file", report.to_str().expect("text")], &program);
    let said = text(&output.stderr);
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(3), "done\n"),
        "{said}"
    );
    assert_eq!(said.matches("is not managed").count(), 1, "{said}");
    assert!(said.contains("(in-the-way)") && said.contains("no room for the helper"), "{said}");
    assert!(said.contains("run it without zfold"), "the remedy: {said}");
    let report = read_report(&report);
    assert_eq!(report["unmanaged_total"], 1);
    assert_eq!(report["unmanaged"][0]["program"], "in-the-way");
}

#[test]
fn a_run_of_a_traced_zfold_is_refused_or_goes_without_a_limit() {
    needs!(can_manage());
    // strace -f traces what zfold starts, and a process has one tracer.
    let traced = |options: &[&str]| {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", "trace=none", "-e", "signal=none"]);
        strace.arg(env!("CARGO_BIN_EXE_zfold")).args(["run", "--limit", "64MiB"]).args(options);
        strace.args(["--", "sh", "-c", "exit 3"]).output().ok()
    };
    let (Some(refused), Some(without)) = (traced(&[]), traced(&["--best-effort"])) else {
        return skip("no strace");
    };
    assert_eq!(refused.status.code(), Some(125), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("traced already"), "{}", text(&refused.stderr));
    assert_eq!(without.status.code(), Some(3), "{}", text(&without.stderr));
    assert!(text(&without.stderr).contains("running without a limit: this process is traced"));
}

#[test]
fn a_process_that_no_tracer_follows_is_named() {
    needs!(can_manage());
    let Some(program) = built("untraced", UNTRACED) else { return };
    let own = std::process::id();
    if std::fs::metadata(format!("/proc/{own}/task/{own}/children")).is_err() {
        return skip("this kernel does not list the children of a process");
    }
    let mut run = command(&["run", "--limit", "64MiB", "--"]);
    run.arg(&program.program).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().expect("it starts");
    let input = run.stdin.take();
    let mut stderr = BufReader::new(run.stderr.take().expect("a pipe"));
    let mut said = String::new();
    stderr.read_line(&mut said).expect("a line");
    assert!(said.contains("(untraced) is not managed"), "{said}");
    assert!(said.contains("CLONE_UNTRACED"), "{said}");
    drop(input);
    assert_eq!(run.wait().expect("it ends").code(), Some(4), "{said}");
    stderr.read_to_string(&mut said).expect("text");
    assert_eq!(said.lines().count(), 1, "{said}");
}
