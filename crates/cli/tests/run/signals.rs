//! Signals: to the front, to the group, and what the program gets of them.

use std::os::unix::process::ExitStatusExt as _;

use rustix::process::Signal;

use crate::runs::{Run, can_manage};

/// Waits for signals and tells each, until USR2 comes.
const TELLS: &str = "\
for signal in HUP INT QUIT TERM USR1; do trap \"echo $signal\" $signal; done
trap 'echo end; exit 5' USR2
echo ready
while :; do read line; done";

#[test]
fn a_signal_to_the_front_reaches_the_program() {
    if !can_manage("a_signal_to_the_front_reaches_the_program") {
        return;
    }
    let mut run = Run::start(TELLS);
    assert_eq!(run.line(), "ready");
    let signals = [
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::TERM, "TERM"),
    ];
    for (signal, told) in signals {
        run.tell(signal);
        assert_eq!(run.line(), told);
    }
    run.tell(Signal::USR2);
    assert_eq!(run.line(), "end");
    let (status, said) = run.end();
    assert_eq!((status.code(), &*said), (Some(5), ""));
}

#[test]
fn a_signal_to_the_group_reaches_the_program_once() {
    if !can_manage("a_signal_to_the_group_reaches_the_program_once") {
        return;
    }
    let mut run = Run::start(TELLS);
    assert_eq!(run.line(), "ready");
    for (signal, told) in [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP")] {
        run.tell_group(signal);
        assert_eq!(run.line(), told);
    }
    // Signals are passed on in order, so a second of the above would come before this one.
    run.tell(Signal::USR2);
    assert_eq!(run.line(), "end");
    assert_eq!(run.end().0.code(), Some(5));
}

#[test]
fn a_signal_that_ends_the_program_ends_the_front_alike() {
    if !can_manage("a_signal_that_ends_the_program_ends_the_front_alike") {
        return;
    }
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
    if !can_manage("a_stopped_front_goes_on_where_it_was") {
        return;
    }
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
