//! Ends that nobody wishes for, and descendants that outlive the program.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::needs;
use crate::runs::{Run, can_manage, is_running, output, text, wait_for_end};

#[test]
fn a_killed_manager_is_told_and_the_program_ends() {
    needs!(can_manage());
    let mut run = Run::start("sleep 1000 & echo $! $$; read line");
    let processes = run.line();
    kill_process(run.manager(), Signal::KILL).expect("it runs");
    // The end of the program's output comes with its last process.
    assert_eq!(run.line(), "");
    let (status, said) = run.end();
    assert_eq!(status.code(), Some(125));
    let line = "zfold: the manager of this run was killed (signal 9); it held the program's \
                memory, so the program was ended with it\n";
    assert_eq!(said, line);
    processes.split(' ').for_each(wait_for_end);
}

#[test]
fn a_killed_front_ends_the_program() {
    needs!(can_manage());
    let mut run = Run::start("sleep 1000 & echo $! $$; read line");
    let processes = run.line();
    run.tell(Signal::KILL);
    assert_eq!(run.line(), "", "the end of the program's output comes with its last process");
    assert_eq!(run.end().0.signal(), Some(9));
    processes.split(' ').for_each(wait_for_end);
}

#[test]
fn nobody_waits_for_descendants_that_have_let_go() {
    needs!(can_manage());
    // Reads both outputs to their ends.
    let output = output("sleep 1000 <&- >&- 2>&- & echo $!; exit 4");
    assert_eq!(output.status.code(), Some(4));
    let daemon = text(&output.stdout);
    assert!(is_running(daemon.trim()), "it outlives the program");
    let daemon = Pid::from_raw(daemon.trim().parse().expect("a number")).expect("a process");
    kill_process(daemon, Signal::KILL).expect("it runs");
}

#[test]
fn descendants_end_with_a_run_that_is_told_to_end() {
    needs!(can_manage());
    for to_group in [false, true] {
        // They outlive what is sent to the group.
        let mut run = Run::start(
            "for i in 1 2 3; do setsid sh -c 'trap : TERM; echo $$; exec >&- 2>&-; \
             while :; do sleep 1000; done' & done; read line",
        );
        let processes = [run.line(), run.line(), run.line()];
        if to_group {
            run.tell_group(Signal::TERM);
        } else {
            run.tell(Signal::TERM);
        }
        assert_eq!(run.end().0.signal(), Some(15));
        processes.iter().for_each(|process| wait_for_end(process));
    }
}

#[test]
fn a_program_that_closes_its_output_closes_it_for_its_reader() {
    needs!(can_manage());
    let mut run = Run::start("echo ready; exec >&-; read line; exit 6");
    let mut told = String::new();
    run.lines.read_to_string(&mut told).expect("text");
    assert_eq!(told, "ready\n");
    drop(run.input.take());
    assert_eq!(run.end().0.code(), Some(6));
}

#[test]
fn a_lock_is_released_with_the_program_and_not_with_its_descendants() {
    needs!(can_manage());
    let directory = tempfile::tempdir().expect("a directory");
    let zfold = env!("CARGO_BIN_EXE_zfold");
    // Until it has called exec, the child may hold the file under another number: shells keep a
    // copy of what they redirect.
    let line = format!(
        "flock 9; '{zfold}' run --limit 64MiB -- sh -c 'sleep 1000 >&- 2>&- 9>&- & echo $!; \
         until grep -qx sleep /proc/$!/comm; do :; done'; \
         exec 9>&-; flock -n lock true || echo locked"
    );
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("exec 9>lock; {line}")]).current_dir(directory.path());
    let told = text(&shell.output().expect("sh runs").stdout);
    let daemon = told.trim().parse().expect("only a number");
    kill_process(Pid::from_raw(daemon).expect("a process"), Signal::KILL).expect("it runs");
}
