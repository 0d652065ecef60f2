//! Programs that use what a run has put into their memory, or have it wait for them: they gain
//! nothing by it, and nobody else loses anything.
//!
//! They need root: only then can a program have other rights than its helper was made with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use zfold_run::HELPER_AT;
use zfold_testing::process::Killed;

use crate::common::{needs, skip};
use crate::needs::sized;
use crate::trial::{Ended, MISSING, limited, program};

/// With this limit a program has its helper before its first instruction.
const LIMIT_MIB: u64 = 16;

/// Programs with machine code of x86-64.
const X86: [&str; 2] = ["gadget", "hijack"];

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("needs root");
    }
    root
}

/// Runs a program that gets the helper's address, and then `arguments`; returns how it ended.
fn attack(name: &str, arguments: &[&str]) -> Option<Ended> {
    if !is_root() {
        return None;
    }
    if X86.contains(&name) && !cfg!(target_arch = "x86_64") {
        skip(format_args!("{name} has machine code of x86-64"));
        return None;
    }
    let compiled = program(name)?;
    let page = format!("{HELPER_AT:x}");
    let arguments = [&[&*page], arguments].concat();
    let ended = limited(&compiled.program, &arguments, LIMIT_MIB);
    println!("{}: {}{}", ended.status, ended.printed, ended.said);
    let begun = ended.printed.starts_with("it begins\n");
    // Without a helper there is nothing to attack.
    let able = ended.status.code() != MISSING || ended.last.contains("no helper");
    assert!(begun && able, "{}: {}{}", ended.status, ended.printed, ended.said);
    Some(ended)
}

/// Runs a program that must come to its end and find everything right.
fn assert_right(name: &str, arguments: &[&str]) {
    let Some(ended) = attack(name, arguments) else { return };
    let right = (ended.status.code(), &*ended.last) == (Some(0), "right");
    assert!(right, "{}: {}{}", ended.status, ended.printed, ended.said);
}

/// Runs a program that says by an exit status of 1 that it has succeeded; it may be ended for it.
fn assert_failed(name: &str, arguments: &[&str]) {
    let Some(ended) = attack(name, arguments) else { return };
    assert_ne!(ended.status.code(), Some(1), "{}{}", ended.printed, ended.said);
}

/// Checks that a helper makes no file, whoever has changed its code.
fn assert_makes_no_file(how: &str) {
    // Its own, with nobody else's rights.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("made");
    let path = file.to_str().expect("text");
    let Some(ended) = attack("hijack", &[how, path]) else { return };
    assert!(!file.exists(), "a helper made a file: {}{}", ended.printed, ended.said);
}

#[test]
fn a_helper_makes_no_file_for_its_program() {
    assert_makes_no_file("file");
}

#[test]
fn a_helper_of_a_program_under_its_own_filter_makes_no_file_for_it() {
    assert_makes_no_file("filtered");
}

#[test]
fn a_helper_sends_no_signal_for_its_program() {
    let mut victim = Killed(Command::new("sleep").arg("1000").spawn().expect("sleep"));
    let process = victim.0.id().to_string();
    let Some(ended) = attack("hijack", &["signal", &process]) else { return };
    let status = victim.0.try_wait().expect("a child");
    assert_eq!(status, None, "the victim ended: {}{}", ended.printed, ended.said);
}

/// Who may trace a helper can take its descriptors, which concern its own program alone.
#[test]
fn who_takes_what_a_helper_holds_harms_nobody_else() {
    let Some(ended) = attack("descriptors", &[]) else { return };
    if ended.status.code() == Some(1) {
        skip("a known limit of runs, met (docs/use/memory-limits.md)");
    }
}

#[test]
fn calls_from_the_helpers_page_are_like_others() {
    assert_failed("gadget", &[]);
}

#[test]
fn a_helper_that_never_answers_holds_up_nobody_else() {
    // Who only burns processor time is waited for less long than who may have a reason.
    let seconds = sized("60", "8");
    assert_right("hang", &["spin", seconds]);
}

#[test]
fn a_helper_that_ends_harms_nobody_else() {
    assert_right("hang", &["exit", "60"]);
}

#[test]
fn a_helper_without_its_memory_harms_nobody_else() {
    assert_right("hang", &["unmap", "60"]);
}

/// A control group that can be frozen. What is left in it ends with this.
struct Freezer {
    folder: PathBuf,
    file: &'static str,
    words: [&'static str; 2],
}

impl Freezer {
    /// Makes one, of the second version or of the first.
    fn new() -> Option<Self> {
        let name = format!("zfold-judges.{}", std::process::id());
        let second = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let all = second.map(|parent| (parent, "cgroup.freeze", ["1", "0"]));
        let first = ("/sys/fs/cgroup/freezer", "freezer.state", ["FROZEN", "THAWED"]);
        all.into_iter().chain([first]).find_map(|(parent, file, words)| {
            let freezer = Self { folder: Path::new(parent).join(&name), file, words };
            // Nothing is made in a folder that is not one of control groups.
            let is_one = Path::new(parent).join("cgroup.procs").exists();
            let made = is_one && fs::create_dir(&freezer.folder).is_ok();
            (made && freezer.folder.join(file).exists()).then_some(freezer)
        })
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.join(self.file), self.words[1]);
        for _ in 0..100 {
            let left = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
            for process in left.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                let _ = kill_process(process, Signal::KILL);
            }
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_frozen_process_holds_up_nobody_else() {
    needs!(is_root());
    let Some(freezer) = Freezer::new() else {
        return skip("no control group can be made that can be frozen (/sys/fs/cgroup)");
    };
    let folder = freezer.folder.to_str().expect("text");
    let [frozen, thawed] = freezer.words;
    assert_right("hang", &["freeze", folder, freezer.file, frozen, thawed]);
}
