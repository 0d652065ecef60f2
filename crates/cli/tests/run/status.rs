//! How a run ends, and what goes in and out of it.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use crate::common::needs;
use crate::runs::{can_manage, managed, output, script, text};

#[test]
fn the_status_is_that_of_the_program() {
    needs!(can_manage());
    for status in [0, 1, 7, 125, 255] {
        let output = output(&format!("exit {status}"));
        assert_eq!(output.status.code(), Some(status));
        assert!(output.stdout.is_empty() && output.stderr.is_empty());
    }
}

#[test]
fn the_front_dies_of_the_signal_of_which_the_program_died() {
    needs!(can_manage());
    // HUP, INT, QUIT, ABRT, USR1, KILL, SEGV, PIPE, ALRM, TERM, IO, SYS and a real-time one.
    for signal in [1, 2, 3, 6, 10, 9, 11, 13, 14, 15, 29, 31, 37] {
        let output = output(&format!("kill -{signal} $$; sleep 100"));
        assert_eq!(output.status.signal(), Some(signal), "{output:?}");
        assert!(!output.status.core_dumped(), "the core is the program's to leave");
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn input_and_output_are_those_of_the_program() {
    needs!(can_manage());
    let mut command = script("read line; echo \"out $line\"; echo err >&2; cat");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"first\nrest\0\xff").expect("written");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.stdout, b"out first\nrest\0\xff");
    assert_eq!(text(&output.stderr), "err\n");
}

#[test]
fn arguments_arrive_as_they_are() {
    needs!(can_manage());
    let mut command = managed(&["printf", "%s|"]);
    command.args(["--report", "--", "", "a b"]).arg(OsStr::from_bytes(b"\xff\n$HOME"));
    let output = command.output().expect("it starts");
    assert_eq!(output.stdout, b"--report|--||a b|\xff\n$HOME|");
}

#[test]
fn a_writer_whose_reader_leaves_dies_of_it() {
    needs!(can_manage());
    // Rust's runtime ignores SIGPIPE, which the program must not notice. The test's own parent may
    // ignore it, too.
    let zfold = env!("CARGO_BIN_EXE_zfold");
    let line = format!("{{ '{zfold}' run -- yes; echo $? >&2; }} | head -n 1");
    let sh =
        std::process::Command::new("env").args(["--default-signal", "sh", "-c", &line]).output();
    let output = sh.expect("env is there");
    needs!(output.status.code() != Some(125), "env has no --default-signal");
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("y\n".into(), "141\n".into()));
}
