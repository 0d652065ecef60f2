//! Signals: to the front, to the group, and what the program gets of them.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use rustix::process::Signal;
use zfold_testing::skip::has_program;

use crate::common::needs;
use crate::runs::{Run, can_manage};

/// Has a handler for each signal that can be caught and tells which it got, until it gets TERM.
const ALL: &str = "
import signal
kept = {4, 5, 7, 8, 9, 11, 13, 17, 18, 19, 21, 22, 25, 31, 32, 33}
mine = set(range(1, 65)) - kept
signal.pthread_sigmask(signal.SIG_BLOCK, mine)
print('ready', flush=True)
while True:
    got = signal.sigwait(mine)
    print(got, flush=True)
    if got == 15:
        break
";

#[test]
fn all_signals_that_can_be_caught_reach_the_program_once() {
    needs!(can_manage());
    needs!(has_program("python3"), "no python3");
    let kept = [4, 5, 7, 8, 9, 11, 13, 17, 18, 19, 21, 22, 25, 31, 32, 33];
    // The stop by the terminal's key would not be waited for here.
    let sent = (1..=64).filter(|signal| !kept.contains(signal) && ![15, 20].contains(signal));
    let mut run = Run::start(&format!("exec python3 -c \"{ALL}\""));
    assert_eq!(run.line(), "ready");
    for signal in sent {
        for to in ["", "-"] {
            let to = format!("{to}{}", run.front().as_raw_pid());
            let sent = Command::new("kill").args(["-s", &signal.to_string(), "--", &to]).status();
            assert!(sent.expect("kill is installed").success());
            assert_eq!(run.line(), signal.to_string(), "to {to}");
        }
    }
    run.tell(Signal::TERM);
    assert_eq!(run.line(), "15", "none came twice");
    assert_eq!(run.end().0.code(), Some(0));
}

#[test]
fn a_signal_that_ends_the_program_ends_the_front_alike() {
    needs!(can_manage());
    for (to_group, signal) in [(false, Signal::TERM), (true, Signal::INT), (false, Signal::HUP)] {
        let mut run = Run::start("echo ready; read line");
        assert_eq!(run.line(), "ready");
        if to_group {
            run.tell_group(signal)
        } else {
            run.tell(signal)
        }
        let (status, said) = run.end();
        assert_eq!((status.signal(), &*said), (Some(signal.as_raw()), ""));
    }
}

#[test]
fn a_stopped_front_goes_on_where_it_was() {
    needs!(can_manage());
    let mut run = Run::start("echo ready; read line; echo \"$line\"; exit 9");
    assert_eq!(run.line(), "ready");
    for signal in [Signal::TSTP, Signal::CONT, Signal::TSTP, Signal::CONT] {
        run.tell_group(signal);
    }
    let mut input = run.input.take().expect("a pipe");
    std::io::Write::write_all(&mut input, b"went on\n").expect("written");
    assert_eq!(run.line(), "went on");
    assert_eq!(run.end().0.code(), Some(9));
}
