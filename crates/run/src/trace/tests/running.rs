//! Programs that run already when they come under the tracer.

use std::io::{BufRead as _, BufReader};

use super::attached::{BLOCKING, is_there};
use super::followed::PLAIN;
use super::witness::Note;
use super::*;
use crate::running::Running;
use crate::sys::proc;

/// What became of an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Met {
    /// It was caught, ended with this status, and printed this.
    Caught(i32, String),
    /// It was refused; the same, and why.
    Refused(i32, String, String),
    /// It had ended before.
    Late,
}

/// Starts a program as the child of a shell, and follows it from when it is `ready`, as the process
/// that `named` makes of its number.
fn met_when(
    arguments: &[&str],
    witness: &Arc<Witness>,
    access: Access,
    ready: impl Fn(i32) -> bool,
    named: impl Fn(Running) -> Running,
) -> Met {
    let path = programs().compiled.as_deref().expect("it was compiled");
    let (_, file) = redirected(path, arguments);
    let script = "output=$1; shift; \"$0\" \"$@\" >\"$output\" </dev/null & echo $!; wait $!";
    let mut shell = Command::new("sh")
        .args(["-c", script])
        .arg(path)
        .arg(&file)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut line = String::new();
    let mut lines = BufReader::new(shell.stdout.take().expect("a pipe"));
    lines.read_line(&mut line).expect("a line");
    let pid = line.trim().parse().expect("a number");
    while !ready(pid) && proc::lives(pid) {
        thread::sleep(Duration::from_micros(200));
    }
    let followed = Running::look(pid).ok().map(|running| {
        let handle = Arc::new(Handle::default());
        let _watchdog = Watchdog::new(&handle);
        witness.set_handle(&handle);
        let memory = Arc::clone(witness) as Arc<dyn Memory>;
        let asked = [named(running)];
        // A thread of its own, with which what it traces is let go.
        let follow = move || trace_running(&asked, memory, &handle, access, &mut |_| {});
        thread::spawn(follow).join().expect("no panic")
    });
    let code = shell.wait().expect("it ends").code().expect("a status");
    let printed = fs::read_to_string(file).expect("its output");
    match followed {
        None => Met::Late,
        Some(Ok(_)) => {
            witness.check();
            Met::Caught(code, printed)
        }
        Some(Err(RunError::Refused(why))) if why.0.contains("has ended") => Met::Late,
        Some(Err(RunError::Refused(why))) => Met::Refused(code, printed, why.0),
        Some(Err(error)) => panic!("{arguments:?}: {error}"),
    }
}

/// Returns what a shell tells of it.
fn status(exit: ExitStatus) -> i32 {
    exit.code().unwrap_or_else(|| 128 + exit.signal().expect("killed"))
}

/// The states that a program can be in, with what it prints and how it ends alone.
fn blocking(
    path: &Path,
) -> impl Iterator<Item = (&'static str, &'static [libc::c_long], (i32, String))> {
    // Stopped by a signal, it would have to be continued from outside.
    BLOCKING.into_iter().filter(|(how, _)| *how != "stopped").map(move |(how, calls)| {
        let (exit, printed) = alone(path, &["blocked", how, "200"]);
        (how, calls, (status(exit), printed))
    })
}

#[test]
fn a_call_that_blocks_already_ends_as_if_nothing_had_been() {
    let Some(path) = tracee() else { return };
    needs!(access().is_some());
    for (how, calls, (status, printed)) in blocking(path) {
        // On a busy machine the test may come too late, and gives itself more time.
        let attempt = [200, 400, 800, 1600, 3200, 6400].iter().find_map(|window_ms| {
            let witness = Arc::new(Witness::greedy());
            let ready = |pid| is_there(pid, how, calls);
            let arguments = ["blocked", how, &window_ms.to_string()];
            let met = met_when(&arguments, &witness, access()?, ready, |running| running);
            let refused = |note: &Note| matches!(note, Note::Refused(..));
            assert!(!witness.notes().iter().any(refused), "{how}: {:?}", witness.notes());
            // A helper may come too late, for one whose child it has to wait for.
            let attached = witness.attachments() > 0 || how == "vfork";
            (met != Met::Late && attached).then_some(met)
        });
        assert_eq!(attempt, Some(Met::Caught(status, printed)), "{how}");
    }
}

#[test]
fn programs_do_not_notice_when_they_are_caught() {
    let Some(path) = tracee() else { return };
    let (mut caught, mut attachments) = (0, 0);
    // A shell has what it starts beside itself ignore some signals, of which one tells.
    for program in PLAIN.into_iter().filter(|program| *program != "descriptors") {
        let (exit, printed) = alone(path, &[program]);
        for micros in [0, 1000, 10_000] {
            let Some(access) = access() else { return };
            let witness = Arc::new(Witness::greedy());
            let ready = |_| {
                thread::sleep(Duration::from_micros(micros));
                true
            };
            let met = met_when(&[program], &witness, access, ready, |running| running);
            let (code, said) = match met {
                Met::Late => continue,
                Met::Caught(code, said) => {
                    caught += 1;
                    attachments += witness.attachments();
                    (code, said)
                }
                // Its end would not be told; or that of a child of the second.
                Met::Refused(code, said, why) if ["leader-exits", "crowds"].contains(&program) => {
                    assert!(why.contains("has lost its first thread"), "{why}");
                    (code, said)
                }
                Met::Refused(_, _, why) => panic!("{program}, {micros}: {why}"),
            };
            assert_eq!((code, &said), (status(exit), &printed), "{program}, {micros}");
        }
    }
    assert!(caught > PLAIN.len() / 2 && attachments > 0, "{caught} caught, {attachments}");
}

/// Another process has the number by now.
#[test]
fn a_program_that_is_refused_is_as_before() {
    let Some(path) = tracee() else { return };
    for (how, calls, (status, printed)) in blocking(path) {
        let attempt = [200, 400, 800, 1600, 3200, 6400].iter().find_map(|window_ms| {
            let ready = |pid| is_there(pid, how, calls);
            let another = |running: Running| {
                let (pid, began) = running.words();
                Running::from_words((pid, began + 1))
            };
            let arguments = ["blocked", how, &window_ms.to_string()];
            let witness = Arc::new(Witness::greedy());
            let met = met_when(&arguments, &witness, Access::Call, ready, another);
            assert!(witness.notes().is_empty(), "{how}: {:?}", witness.notes());
            matches!(met, Met::Refused(..)).then_some(met)
        });
        let Some(Met::Refused(code, said, why)) = attempt else { panic!("{how}: {attempt:?}") };
        assert_eq!((code, said), (status, printed), "{how}");
        assert!(why.contains("belongs to another process by now"), "{why}");
    }
}

/// A filter of its own makes calls fail unless a tracer lets them pass. One that lets the program
/// go on as before does not: the program stops for nothing until its end.
#[test]
fn a_program_that_was_not_changed_is_let_through_no_filter_of_its_own() {
    let Some(path) = tracee() else { return };
    let found = [100, 800, 6400].iter().find_map(|window_ms| {
        let mut program = Command::new(path);
        program.args(["asks-in-vain", &window_ms.to_string()]).stdout(Stdio::piped());
        let program = program.spawn().expect("it starts");
        let pid = program.id().cast_signed();
        // A thread of its own, with which what it traces is let go. It may come too late.
        let tracer = move || {
            ptrace::seize(pid, ptrace::FOLLOW_LOOSELY).ok()?;
            loop {
                match ptrace::wait(pid).expect("an event").1 {
                    // The program is about to begin.
                    Event::Exec => ptrace::cont(pid, 0).expect("it is stopped"),
                    event => return Some(event),
                }
            }
        };
        let event = thread::spawn(tracer).join().expect("no panic");
        let output = program.wait_with_output().expect("it ends");
        Some((event?, String::from_utf8(output.stdout).expect("text")))
    });
    assert_eq!(found, Some((Event::Ending, "passed: 0 \n".to_owned())));
}
