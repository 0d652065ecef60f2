//! Real programs under the tracer: they must not be able to tell.

mod attached;
mod children;
mod followed;
mod running;
mod witness;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::begin::{trace, trace_running};
use super::*;
use crate::link::Tracing as _;
use crate::sys::inherited::Inherited;
use crate::sys::process::Program;
use witness::Witness;
use zfold_testing::{needs, skip};

/// Longer than any of these programs takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// The programs of `tracee.c`, compiled once; `None` if there is no compiler. The second is static.
struct Programs {
    folder: tempfile::TempDir,
    compiled: Option<PathBuf>,
    fixed: Option<PathBuf>,
}

fn programs() -> &'static Programs {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let compile = |name: &str, options: &[&str]| {
            let to = folder.path().join(name);
            let done = Command::new("cc")
                .args(options)
                .args(["-O1", "-w", "-pthread", "-o"])
                .arg(&to)
                .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tracee.c"))
                .stderr(Stdio::null())
                .status();
            done.is_ok_and(|status| status.success()).then_some(to)
        };
        let (compiled, fixed) = (compile("tracee", &[]), compile("tracee-static", &["-static"]));
        Programs { folder, compiled, fixed }
    })
}

/// Returns the program of a command.
fn command<W: AsRef<std::ffi::OsStr>>(words: impl IntoIterator<Item = W>) -> Program {
    Program::new(words, Inherited::of_this_process()).expect("no zero byte")
}

/// Whether processes may be traced here.
fn may_trace() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let program = command(["true"]);
        trace(&program, Arc::new(Witness::default()), &Handle::default(), Access::Call, &mut |_| {})
            .is_ok()
    })
}

/// The path of the programs, unless the test has to be skipped.
fn tracee() -> Option<&'static Path> {
    if !may_trace() {
        skip("processes may not be traced here");
        return None;
    }
    let compiled = programs().compiled.as_deref();
    if compiled.is_none() {
        skip("there is no C compiler `cc`");
    }
    compiled
}

/// The way to userfaultfd, unless the test has to be skipped.
fn access() -> Option<Access> {
    crate::access().map_err(skip).ok()
}

/// Ends the tree if it hangs.
struct Watchdog {
    stop: mpsc::Sender<()>,
    /// Returns whether it had to.
    thread: Option<thread::JoinHandle<bool>>,
}

impl Watchdog {
    fn new(handle: &Arc<Handle>) -> Self {
        let (stop, stopped) = mpsc::channel();
        let handle = Arc::clone(handle);
        let thread = thread::spawn(move || {
            let hangs = stopped.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout);
            if hangs {
                handle.end("the program hangs".into());
            }
            hangs
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let hung = thread.join().expect("the watchdog");
            assert!(!hung || thread::panicking(), "the program hangs");
        }
    }
}

/// Runs a program to its end.
fn run(program: &Program, witness: &Arc<Witness>, access: Access) -> ExitStatus {
    let handle = Arc::new(Handle::default());
    let _watchdog = Watchdog::new(&handle);
    witness.set_handle(&handle);
    let mut told = None;
    let memory = Arc::clone(witness) as Arc<dyn Memory>;
    let exit = trace(program, memory, &handle, access, &mut |event| {
        if let Some(options::Event::Ended(exit)) = event {
            told = Some(exit);
        }
    });
    let exit = exit.expect("the program ran");
    assert_eq!(told, Some(exit), "the end was told");
    witness.check();
    exit
}

/// The words of a shell that becomes `path` with its output in a file.
fn redirected(path: &Path, arguments: &[&str]) -> (Vec<String>, PathBuf) {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let file = programs().folder.path().join(format!("output-{number}"));
    let script = format!("exec \"$0\" \"$@\" >{} </dev/null", file.display());
    let mut all = vec!["sh".into(), "-c".into(), script, path.display().to_string()];
    all.extend(arguments.iter().map(ToString::to_string));
    (all, file)
}

/// How a program ends and what it prints, without a tracer.
fn alone(path: &Path, arguments: &[&str]) -> (ExitStatus, String) {
    let (words, file) = redirected(path, arguments);
    let exit = Command::new("sh").args(&words[1..]).status().expect("the program ran");
    (exit, fs::read_to_string(file).expect("its output"))
}

/// The same with one.
fn traced(
    path: &Path,
    arguments: &[&str],
    witness: &Arc<Witness>,
    access: Access,
) -> (ExitStatus, String) {
    let (words, file) = redirected(path, arguments);
    let exit = run(&command(words), witness, access);
    (exit, fs::read_to_string(file).expect("its output"))
}

/// A helper may be killed by another process, and be asked to end when it is on its way already.
#[test]
fn a_process_that_stops_on_its_way_to_its_end_is_not_waited_for_in_vain() {
    needs!(may_trace(), "processes may not be traced here");
    let (tell, told) = mpsc::channel();
    // A thread of its own, with which what it traces ends.
    thread::spawn(move || {
        let bell = process::start_bell().expect("a child");
        ptrace::seize(bell.pid, ptrace::FOLLOW).expect("a child may be traced");
        process::kill(bell.pid);
        assert_eq!(ptrace::wait(bell.pid).expect("its event").1, Event::Ending);
        process::kill(bell.pid);
        helper::wait_for_end(bell.pid, &mut Queue::new());
        let _ = tell.send(());
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(()), "it has ended");
}
