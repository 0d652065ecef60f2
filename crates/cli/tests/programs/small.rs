//! Small C programs, one for each way of changing memory that once went wrong.

use std::path::Path;

use zfold_testing::compiled::{self, Compiled};

use crate::common::{needs, read_report};
use crate::granted::Granted;
use crate::job::{Job, check};
use crate::needs::{ready, sized, text, workload};

/// Compiles a program that lies beside these tests.
pub(crate) fn compile(source: &str) -> Compiled {
    compiled::compile(Path::new(&workload(source)), &[]).unwrap_or_else(|said| panic!("{said}"))
}

fn check_compiled(source: &str, arguments: &[&str]) {
    check_made(source, arguments, false);
}

/// The same of a program whose limit is kept in any case.
pub(crate) fn check_kept(source: &str, arguments: &[&str]) {
    check_made(source, arguments, true);
}

fn check_made(source: &str, arguments: &[&str], kept: bool) {
    if ready(&["cc"]) {
        let compiled = compile(source);
        let line = [&[text(&compiled.program)], arguments].concat();
        check(|_| Job { kept, ..Job::new(&line) });
    }
}

/// A test for each line: its name, how it is checked, the program and its arguments.
macro_rules! programs {
    ($($name:ident: $check:ident, $source:literal, $arguments:expr;)*) => {
        $(#[test] fn $name() { $check($source, &$arguments); })*
    };
}

programs! {
    // Parts of the heap are closed and parts are not, while its end moves both ways: what lay
    // beyond it must be forgotten.
    heap_that_shrinks_and_grows: check_kept, "heap.c", [sized("100", "3000")];
    // Pages that come together must be of one mapping, and thousands of mappings are closed before
    // much of them has been touched.
    first_touches_across_protections: check_kept, "protections.c", [];
    // Memory that goes and comes again while it is being closed: it was taken for registered.
    open_memory_that_is_mapped_again: check_kept, "again.c", [sized("200", "2000")];
    // Closing a reservation costs what is there, not what could be.
    a_terabyte_of_which_little_is_used: check_kept, "reserved.c", [];
    // Also what is not its own: the helper's mappings are among those that it finds.
    all_that_there_is_is_paged_out: check_compiled, "everything.c", [sized("50", "500")];
    // The kernel waits for pages of what it has moved before it tells that it was moved.
    locked_memory_grows_and_moves: check_compiled, "locked.c", [];
    // The kernel waits for no page when a thread ends, and who waits for it waits for ever.
    what_threads_leave_is_told_wherever_it_is: check_compiled, "ends.c", [];
    // A helper that stepped aside while pages were picked left its space without another for good.
    a_program_that_asks_after_its_children_all_the_time:
        check_kept, "reaper.c", ["48", sized("200", "2000")];
}

/// One thread, and several with their children, map, move, protect, discard, page out and fork.
#[test]
fn address_spaces_that_change_at_random() {
    let seconds = sized("1", "30");
    for (seed, threads) in [("1", "1"), ("2", "4"), ("3", "4")] {
        check_compiled("space.c", &[seed, seconds, threads]);
    }
}

/// A helper needs descriptors, and no more of them may be had than the hard limit says.
#[test]
fn a_crowd_of_children_is_managed_as_far_as_descriptors_go() {
    let Some(user) = Granted::new() else { return };
    needs!(ready(&["cc", "prlimit"]));
    let compiled = compile("crowd.c");
    let folder = user.folder();
    for (limits, all) in [("140:140", false), ("140:1000", true)] {
        let report = folder.path().join(limits);
        let mut run = user.command("prlimit");
        run.args([&format!("--nofile={limits}"), env!("CARGO_BIN_EXE_zfold")]);
        run.args(["run", "--limit", "16MiB", "--report=json", "--report-file"]).arg(&report);
        let output = run.arg("--").arg(&compiled.program).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(printed, "0 wrong, right, 140 descriptors\n", "{limits}: {said}");
        let report = read_report(&report);
        assert!(report["loads"].as_u64() > Some(0), "{report}");
        let told = said.contains("no descriptor is left") && said.contains("ulimit -n");
        let counts =
            [&report["managed"], &report["unmanaged_total"]].map(|one| one.as_u64().unwrap());
        assert_eq!(counts.iter().sum::<u64>(), 61, "{report}");
        assert_eq!((counts[1] == 0, told), (all, !all), "{report}{said}");
        assert!(counts[0] > 20, "{report}");
    }
}

/// The kernel does not tell a plain user of forks: each waits for its child's helper.
#[test]
fn address_spaces_of_a_plain_user_change_at_random() {
    let Some(user) = Granted::new() else { return };
    needs!(ready(&["cc"]));
    let compiled = compile("space.c");
    for (seed, threads) in [("1", "1"), ("2", "4"), ("3", "4")] {
        let mut run = user.command(env!("CARGO_BIN_EXE_zfold"));
        run.args(["run", "--limit", "8MiB", "--"]).arg(&compiled.program);
        let output = run.args([seed, sized("1", "30"), threads]).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "seed {seed}: {said}{complained}");
        assert!(said.ends_with("every page was right\n"), "seed {seed}: {said}{complained}");
    }
}
