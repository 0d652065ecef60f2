//! The programs that do the work: whether they are there, how they are run, and for how long.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use zfold_testing::process::Group;
use zfold_testing::skip::{is_root, skip};
use zfold_testing::wait_until;

/// How long a program may take.
const PROGRAM_SECONDS_MAX: u64 = 600;

/// Returns for how many seconds a part runs that has no end of its own.
pub(crate) fn seconds() -> u64 {
    let told = std::env::var("ZFOLD_SYSTEM_SECONDS");
    told.map_or(1, |text| text.parse().expect("ZFOLD_SYSTEM_SECONDS is a number of seconds"))
}

/// Returns whether FUSE and loop devices can be used, and says what keeps them from it.
pub(crate) fn devices() -> bool {
    let reason = if !is_root() {
        "needs root for loop devices"
    } else if !Path::new("/dev/fuse").exists() {
        "no /dev/fuse"
    } else if !Path::new("/dev/loop-control").exists() {
        "no /dev/loop-control"
    } else {
        return true;
    };
    skip(reason);
    false
}

/// Returns a command that is killed when it takes too long.
pub(crate) fn tool<S: AsRef<str>>(program: &str, arguments: &[S]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &PROGRAM_SECONDS_MAX.to_string(), program]);
    command.args(arguments.iter().map(AsRef::as_ref)).stdin(Stdio::null());
    command
}

/// Runs a program, and returns what it printed or what it complained of.
pub(crate) fn attempt<S: AsRef<str>>(program: &str, arguments: &[S]) -> Result<String, String> {
    output(tool(program, arguments))
}

/// Runs a program that must succeed, and returns what it printed.
pub(crate) fn run<S: AsRef<str>>(program: &str, arguments: &[S]) -> String {
    attempt(program, arguments).unwrap_or_else(|complaint| panic!("{complaint}"))
}

/// Runs a command, and returns what it printed or what it complained of.
pub(crate) fn output(mut command: Command) -> Result<String, String> {
    let began = Instant::now();
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (printed, complaint) = (text(&output.stdout), text(&output.stderr));
    println!("{:.1} s {command:?}", began.elapsed().as_secs_f64());
    if output.status.success() {
        return Ok(printed);
    }
    Err(format!("{command:?}: {}: {printed} {complaint}", output.status))
}

/// Runs fio in `dir`, where it leaves its files; `line` are arguments between spaces.
pub(crate) fn fio(dir: &Path, target: &str, line: &str) {
    let mut command = tool("fio", &fio_arguments(target, line));
    command.current_dir(dir);
    output(command).unwrap_or_else(|complaint| panic!("{complaint}"));
}

/// Returns the arguments of fio for one job, whose data can be compressed by about a half.
pub(crate) fn fio_arguments(target: &str, line: &str) -> Vec<String> {
    let data = "--name=job --refill_buffers --buffer_compress_percentage=50 \
                --buffer_compress_chunk=4096 --verify_state_save=0 --group_reporting";
    let line = data.split_whitespace().chain(line.split_whitespace());
    // The target last: it may be known only to the engine that the line names.
    line.chain([target]).map(str::to_owned).collect()
}

/// A program at work, which ends with the test, and all that it has started with it.
#[derive(Debug)]
pub(crate) struct Background(Group);

impl Background {
    pub(crate) fn start<S: AsRef<str>>(dir: &Path, program: &str, arguments: &[S]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments.iter().map(AsRef::as_ref)).current_dir(dir).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn();
        Self(Group(child.unwrap_or_else(|error| panic!("{command:?}: {error}"))))
    }

    /// Returns whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.0.try_wait().expect("a child").is_some()
    }

    /// Waits for its end, and returns whether it succeeded and what it complained of.
    pub(crate) fn ended(mut self) -> (bool, String) {
        wait_until("the end of a program", || self.has_ended());
        let mut complaint = String::new();
        let mut stderr = self.0.0.stderr.take().expect("a pipe");
        stderr.read_to_string(&mut complaint).expect("text");
        (self.0.0.wait().expect("a child").success(), complaint)
    }
}
