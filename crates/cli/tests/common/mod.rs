//! Running the program and looking at how it ends.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) use zfold_testing::output::assert_line;
pub(crate) use zfold_testing::{needs, skip};

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
    zfold_testing::output::results(zfold(arguments))
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
