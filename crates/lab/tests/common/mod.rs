//! Running the program and looking at how it ends.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::Path;
use std::process::{Command, Output};

use zfold_testing::skip;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_zfold-lab");

pub(crate) const EXPERIMENTS: [&str; 11] = [
    "pool-lock",
    "per-cpu-lists",
    "compaction",
    "free",
    "allocators",
    "writeback",
    "lockstat",
    "scale",
    "pageout",
    "build",
    "all",
];

/// Returns whether zfold is where it is built, beside zfold-lab; says so if it is not.
pub(crate) fn has_zfold() -> bool {
    let there = Path::new(PROGRAM).with_file_name("zfold").is_file();
    if !there {
        skip("zfold is not built (cargo test --workspace builds it)");
    }
    there
}

pub(crate) fn lab(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

/// Returns stdout of a run that must succeed and say nothing else.
pub(crate) fn results(arguments: &[&str]) -> String {
    zfold_testing::output::results(lab(arguments))
}

/// Checks that a run ends with `status` and one line on stderr that holds each of `parts`.
pub(crate) fn assert_refused(arguments: &[&str], status: i32, parts: &[&str]) {
    zfold_testing::output::assert_line(&lab(arguments), status, parts);
}
