//! Programs that a test puts somewhere and then runs.
//!
//! Another process writes them: what a child of another test holds between its fork and its exec
//! are all files that this process has open, and the kernel executes no file that somebody may
//! write.

use std::path::Path;
use std::process::{Command, Stdio};

/// Copies a program; `mode` is what its file gets, in octal.
pub fn copy(program: impl AsRef<Path>, to: &Path, mode: &str) {
    run(Command::new("install").args(["-m", mode]).arg(program.as_ref()).arg(to));
}

/// Writes a script that all users may run.
pub fn script(to: &Path, text: &str) {
    let write = "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\"";
    run(Command::new("sh").args(["-c", write]).arg(to).arg(text));
}

fn run(command: &mut Command) {
    let status = command.stdin(Stdio::null()).status().expect("it starts");
    assert!(status.success(), "{command:?}: {status}");
}
