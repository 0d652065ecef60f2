//! Running the program and looking at how it ends.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_zfold-lab");

pub(crate) const EXPERIMENTS: [&str; 15] = [
    "pool-lock",
    "per-cpu-lists",
    "compaction",
    "free",
    "allocators",
    "writeback",
    "lockstat",
    "scale",
    "density",
    "disk",
    "pageout",
    "calls",
    "build",
    "limits",
    "all",
];

/// Says that a test, or a part of it, did not run.
pub(crate) fn skip(test: &str, reason: &str) {
    // Not by a macro, whose output the test harness would keep to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {reason}");
}

/// Returns whether zfold is where it is built, beside zfold-lab; says so if it is not.
pub(crate) fn has_zfold(test: &str) -> bool {
    let there = Path::new(PROGRAM).with_file_name("zfold").is_file();
    if !there {
        skip(test, "zfold is not built (cargo test --workspace builds it)");
    }
    there
}

pub(crate) fn lab(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

/// Returns stdout of a run that must succeed and say nothing else.
pub(crate) fn results(arguments: &[&str]) -> String {
    let output = lab(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

/// Checks that a run ends with `status` and one line on stderr that holds each of `parts`.
pub(crate) fn assert_refused(arguments: &[&str], status: i32, parts: &[&str]) {
    let output = lab(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert_eq!(said.matches('\n').count(), 1, "{said}");
    assert!(said.starts_with("zfold: ") && said.ends_with('\n'), "{said}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in: {said}");
    }
}
