//! A program that keeps many numbers in memory.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// Numbers in no order for a program that keeps all of them in memory, and in order.
pub(crate) struct Sort {
    mixed: String,
    pub(crate) sorted: String,
}

impl Sort {
    /// Returns so many numbers; 7919 must not divide that.
    pub(crate) fn new(count: u64) -> Self {
        let lines =
            |of: &dyn Fn(u64) -> u64| (0..count).map(|at| format!("{}\n", of(at))).collect();
        Self { mixed: lines(&|at| at * 7919 % count), sorted: lines(&|at| at) }
    }

    /// Runs the program as `run` says and returns what it says.
    pub(crate) fn output(&self, run: &mut Command) -> Output {
        let sort = ["--report=json", "--", "sort", "--numeric-sort", "--parallel=1", "-S", "400M"];
        let pipes = run.args(sort).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pipes.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        std::thread::scope(|scope| {
            let feeder = scope.spawn(move || stdin.write_all(self.mixed.as_bytes()));
            let output = child.wait_with_output().expect("it ends");
            // One that ended early has said why.
            let _ = feeder.join().expect("no panic");
            output
        })
    }
}
