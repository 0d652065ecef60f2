//! Many processes at once, and few that are allowed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::{command, needs, skip};
use crate::needs::ready_for_long;
use crate::trial::program;

/// How often it is measured until it is right.
const TRIES: usize = 3;

/// Runs a shell script that gets the command of a run of a crowd as its arguments.
fn crowd(script: &str, program: &Path, arguments: [&str; 2], limit: &str) -> Output {
    let run = command(&["run", "--limit", limit, "--report", "--"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(run.get_program()).args(run.get_args());
    shell.arg(program).args(arguments).stdin(Stdio::null()).output().expect("a shell")
}

/// Returns the processor time that a crowd takes, with all that serves it.
fn cost(program: &Path, children: u32) -> Duration {
    let script = "\"$@\" >/dev/null 2>&1 || echo failed; times";
    let output = crowd(script, program, [&children.to_string(), "200"], "32MiB");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // Of the shell, and of its children: minutes, and seconds.
    let times = said.lines().nth(1).filter(|_| !said.starts_with("failed"));
    let times = times.unwrap_or_else(|| panic!("{children} children: {said}"));
    let time = |word: &str| {
        let (minutes, seconds) = word.trim_end_matches('s').split_once('m').expect("a time");
        minutes.parse::<f64>().expect("a number") * 60.0 + seconds.parse::<f64>().expect("a number")
    };
    Duration::from_secs_f64(times.split_whitespace().map(time).sum())
}

#[test]
fn a_child_among_many_costs_little_more_than_one_among_few() {
    needs!(ready_for_long(&["cc"]));
    let Some(compiled) = program("crowd") else { return };
    // Four times as many: about four times the work, where it was ten to thirty times. What others
    // do meanwhile changes a measurement by much, always for the worse.
    let told: Vec<_> = (0..TRIES)
        .map(|_| [300, 1200].map(|children| cost(&compiled.program, children)))
        .map_while(|[few, many]| (many >= few * 8).then_some([few, many]))
        .collect();
    assert!(told.len() < TRIES, "for 300 children and 1,200: {told:?}");
}

/// A control group in which few processes are allowed. What is left in it ends with this.
struct Few(PathBuf);

impl Few {
    fn new(most: u32) -> Option<Self> {
        let folders = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(Path::new);
        folders.into_iter().find_map(|folder| {
            let group = Self(folder.join(format!("zfold-test-few-{}", std::process::id())));
            fs::create_dir(&group.0).ok()?;
            fs::write(group.0.join("pids.max"), most.to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Few {
    fn drop(&mut self) {
        // A group with processes in it cannot be removed, and they are gone some moments later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_program_gets_the_processes_that_are_allowed() {
    let Some(compiled) = program("crowd") else { return };
    let Some(few) = Few::new(64) else { return skip("no control groups of processes") };
    let script = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", few.0.display());
    let output = crowd(&script, &compiled.program, ["40", "3072"], "16MiB");
    let [printed, said] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success() && printed == "right\n", "{printed}{said}");
    let line = "zfold: process ";
    let told: Vec<_> = said.lines().filter(|told| told.starts_with(line)).collect();
    assert!(told.len() == 1 && told[0].contains("pids.max"), "{said}");
}
