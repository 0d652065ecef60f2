//! `zfold lab`: starts the laboratory, which is a program of its own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::shared::exit::Failure;
use crate::shared::program::find;

const PROGRAM: &str = "zfold-lab";

/// Becomes `zfold-lab` with these arguments; returns only if it cannot.
pub(crate) fn run(args: &[OsString]) -> Failure {
    let Some(path) = find(PROGRAM) else {
        return Failure::new(
            "there is no zfold-lab beside zfold or in PATH: build it with cargo build --release -p \
             zfold-lab, or install it",
        );
    };
    let error = Command::new(&path).args(args).exec();
    Failure::new(format!("cannot start {}: {error}; build or install it again", path.display()))
}
