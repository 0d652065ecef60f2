//! A front that does not listen, while there is much to tell it.

use std::io::Write as _;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::trial::{Running, program};

/// Each process that is not managed is told to the front, which prints its name.
#[test]
fn a_stopped_front_holds_up_nobody() {
    let Some(compiled) = program("foreign") else { return };
    let mut run = Running::limited(&compiled.program, &["1000"], 16, Stdio::piped());
    run.wait_for("ready");
    let front = Pid::from_child(&run.child.0);
    kill_process(front, Signal::STOP).expect("it runs");
    let mut input = run.child.0.stdin.take().expect("a pipe");
    input.write_all(b"go\n").expect("it reads");
    run.wait_for("done");
    kill_process(front, Signal::CONT).expect("it is there");
    run.end();
}
