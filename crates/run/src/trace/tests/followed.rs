//! Programs that are only followed.

use super::*;
use crate::link::Tracing as _;

fn shell(script: &str) -> Exit {
    run(&Program::new("sh", ["-c", script]), &Arc::default(), Access::Call)
}

#[test]
fn exits_are_those_of_the_program() {
    needs!(may_trace(), "processes may not be traced here");
    assert_eq!(shell("exit 0"), Exit::Code(0));
    assert_eq!(shell("exit 7"), Exit::Code(7));
    assert_eq!(shell("kill -9 $$"), Exit::Signal { number: 9, core: false });
    assert_eq!(shell("kill -15 $$").status(), 143);
    let status = |program: &str| {
        run(&Program::new(program, [""; 0]), &Arc::default(), Access::Call).status()
    };
    assert_eq!(status("/nowhere/at/all"), 127);
    assert_eq!(status("no-program-has-this-name"), 127);
    assert_eq!(status("/etc/passwd"), 126);
}

#[test]
fn a_program_starts_where_and_with_what_it_is_told() {
    needs!(may_trace(), "processes may not be traced here");
    let mut program = Program::new("sh", ["-c", "test \"$(pwd) $A $B\" = '/usr 1 '"]);
    program.directory = Some("/usr".into());
    program.environment.retain(|(name, _)| name == "PATH");
    program.environment.push(("A".into(), "1".into()));
    assert_eq!(run(&program, &Arc::default(), Access::Call), Exit::Code(0));
}

/// Those of which only what they print and how they end is of interest.
pub(super) const PLAIN: [&str; 12] = [
    "threads",
    "crowds",
    "forks",
    "spawns",
    "exec-thread",
    "exit-thread",
    "leader-exits",
    "jobs",
    "handlers",
    "waits",
    "descriptors",
    "own-filter",
];

#[test]
fn programs_behave_as_without() {
    let Some(path) = tracee() else { return };
    for program in PLAIN.into_iter().chain(["storm"]) {
        let expected = alone(path, &[program]);
        let witness = Arc::new(Witness::default());
        assert_eq!(traced(path, &[program], &witness, Access::Call), expected, "{program}");
    }
}

#[test]
fn a_compiler_works() {
    let Some(path) = tracee() else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tracee.c");
    let to = programs().folder.path().join("compiled-while-traced");
    let arguments = ["-O1".into(), "-w".into(), "-pthread".into(), "-o".into()];
    let arguments = arguments.into_iter().chain([to.clone().into(), source.into()]);
    let program = Program::new("cc", arguments.collect::<Vec<std::ffi::OsString>>());
    assert_eq!(run(&program, &Arc::default(), Access::Call), Exit::Code(0));
    assert_eq!(alone(&to, &["threads"]), alone(path, &["threads"]));
}

#[test]
fn the_end_of_the_tracer_is_that_of_the_tree() {
    const TEST: &str = "the_end_of_the_tracer_is_that_of_the_tree";
    const CHILD: &str = "ZFOLD_TEST_AS_TRACER";
    needs!(may_trace(), "processes may not be traced here");
    if std::env::var_os(CHILD).is_some() {
        let script = "sleep 1000 & (setsid sleep 1000 & echo pid $!); echo pid $!; echo pid $$; \
            echo end; wait";
        run(&Program::new("sh", ["-c", script]), &Arc::default(), Access::Call);
        return;
    }
    use std::io::{BufRead, BufReader};
    let mut tracer = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", &format!("trace::tests::followed::{TEST}"), "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("a tracer");
    let lines = BufReader::new(tracer.stdout.take().expect("its output")).lines();
    let pids: Vec<String> = lines
        .map_while(Result::ok)
        .take_while(|line| line != "end")
        .filter_map(|line| line.split_once("pid ").map(|(_, pid)| pid.to_owned()))
        .collect();
    assert_eq!(pids.len(), 3);
    tracer.kill().expect("killed");
    tracer.wait().expect("it ended");
    let lives = |pid: &String| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    let until = std::time::Instant::now() + PATIENCE;
    while pids.iter().any(lives) {
        assert!(std::time::Instant::now() < until, "{pids:?} live on");
        thread::yield_now();
    }
}

#[test]
fn ending_the_tree_says_why() {
    needs!(may_trace(), "processes may not be traced here");
    let handle = Arc::new(Handle::default());
    let _watchdog = Watchdog::new(&handle);
    let from_elsewhere = Arc::clone(&handle);
    let witness = Arc::new(Witness::default());
    witness.set_handle(&handle);
    let seen = Arc::clone(&witness);
    let ender = thread::spawn(move || {
        while seen.notes().is_empty() {
            thread::yield_now();
        }
        from_elsewhere.end("this is why".into());
    });
    let program = Program::new("sh", ["-c", "sleep 1000 & sleep 1000"]);
    let memory = Arc::clone(&witness) as Arc<dyn Memory>;
    let result = trace(&program, memory, &handle, Access::Call, &mut |_| {});
    ender.join().expect("the thread");
    assert_eq!(result.expect_err("it was ended").to_string(), "this is why");
    witness.check();
}
