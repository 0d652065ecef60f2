//! Running the program and looking at how it ends.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Says that a test, or a part of it, did not run.
pub(crate) fn skip(test: &str, reason: &str) {
    // Not by a macro, whose output the test harness would keep to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {reason}");
}

pub(crate) fn zfold(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program starts")
}

/// Returns the program, of this build or the one that `ZFOLD_PROGRAM` names, with arguments.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let built = || env!("CARGO_BIN_EXE_zfold").into();
    let mut command = Command::new(std::env::var_os("ZFOLD_PROGRAM").unwrap_or_else(built));
    command.args(arguments);
    command
}

/// Returns stdout of a run that must succeed and say nothing else.
pub(crate) fn results(arguments: &[&str]) -> String {
    let output = zfold(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the report that a run has written to a file as JSON.
pub(crate) fn read_report(file: &Path) -> Value {
    let text = std::fs::read_to_string(file).expect("a report");
    serde_json::from_str(&text).expect("JSON")
}

/// Checks that a run ends with `status` and one line on stderr that holds each of `parts`.
pub(crate) fn assert_refused(arguments: &[&str], status: i32, parts: &[&str]) {
    assert_line(&zfold(arguments), status, parts);
}

pub(crate) fn assert_line(output: &Output, status: i32, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert_eq!(said.matches('\n').count(), 1, "{said}");
    assert!(said.starts_with("zfold: ") && said.ends_with('\n'), "{said}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
}
