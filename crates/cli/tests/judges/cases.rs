//! Programs that are right alone: each is a line of the table.

use std::io::Write as _;

use crate::common::skip;
use crate::trial::{alone, limited, program};
use zfold_testing::skip::this_test;

/// What must hold in the run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// The exit status and the last line are those of the program alone.
    Same,
    /// So they are, and no more was resident than the limit, but for what is on its way.
    Kept,
    /// So they are not always: a limit of runs, which docs/use/memory-limits.md names.
    Limited,
    /// So they are not, and zfold says what to do.
    Named,
    /// They are, and zfold says how much is left open: more than half of the limit.
    Counted,
}
use Holds::{Counted, Kept, Limited, Named, Same};

/// A test for each line: its name, the program and its arguments, the limit in MiB, what must hold.
macro_rules! cases {
    ($($name:ident: $program:literal, $arguments:literal, $mib:literal, $holds:ident;)*) => {
        $(#[test] fn $name() { check($program, $arguments, $mib, $holds); })*
    };
}

cases! {
    a_subreaper_is_given_no_strangers: "orphans", "subreaper 20", 8, Same;
    a_subreaper_of_large_children_is_given_no_strangers: "orphans", "subreaper 60", 32, Same;
    process_1_is_given_no_strangers: "orphans", "namespace 20", 8, Same;
    the_first_child_in_a_namespace_is_process_1: "namespace", "stay 64", 48, Same;
    a_program_with_a_new_namespace_executes_another: "namespace", "exec 32", 8, Same;
    it_does_if_its_helper_is_late: "namespace", "exec 64", 48, Same;
    process_1_ends_all_others: "killall", "20", 8, Limited;
    it_ends_them_and_keeps_its_memory: "killall", "64", 32, Limited;
    robust_mutexes_tell_that_their_owner_is_dead: "robust", "later 24", 8, Same;
    priority_is_inherited_in_memory_that_has_left: "robust", "pi 24", 8, Same;
    a_joined_thread_is_gone: "joined", "", 16, Same;
    who_looks_for_leaks_is_told_how_to_do_without: "leaks", "", 32, Named;
    threads_are_watched_under_a_small_limit: "ordered", "24", 16, Same;
    threads_are_watched_under_a_limit_that_comes_near: "ordered", "24", 48, Same;
    a_namespace_of_clocks_is_entered: "clocks", "", 8, Same;
    nobody_sees_a_filter_that_is_not_its_own: "strict", "asked", 8, Same;
    the_strict_mode_is_to_be_had: "strict", "entered", 8, Same;
    memory_of_a_killed_process_is_taken: "reaped", "48", 32, Limited;
    memory_that_was_out_of_use_leaves: "protect", "none 16", 32, Kept;
    memory_that_was_read_only_leaves: "protect", "read 16", 32, Kept;
    what_a_family_shares_counts_once: "shared", "6 12 4 24", 24, Same;
    memory_of_any_access_leaves: "access", "rwx 32", 12, Kept;
    memory_that_is_not_read_leaves: "access", "w 32", 12, Kept;
    memory_that_is_written_and_executed_leaves: "access", "wx 32", 12, Kept;
    code_that_has_left_is_executed: "code", "24", 16, Kept;
    code_that_cannot_be_written_to_leaves: "code", "4 32", 16, Kept;
    a_deep_stack_leaves: "stack", "48", 16, Kept;
    pages_that_the_kernel_may_drop_keep_nothing_else: "droppable", "40", 16, Kept;
    what_is_written_to_a_file_of_ones_own_is_counted: "written", "24", 32, Counted;
    a_signal_ends_who_waits_for_a_vfork: "vfork", "20", 8, Limited;
    a_program_handles_its_own_faults: "faults", "24", 8, Same;
    programs_of_32_bits_run: "foreign", "3", 16, Same;
    a_clone_without_its_arguments_holds_up_nobody_else: "unserved", "clone3", 16, Same;
    a_watch_without_its_range_holds_up_nobody_else: "unserved", "ioctl", 16, Same;
    advice_without_its_pieces_holds_up_nobody_else: "unserved", "process_madvise", 16, Same;
    four_hundred_children_share_their_memory: "family", "400 32", 64, Same;
    eight_hundred_children_share_their_memory: "family", "800 32", 64, Same;
}

/// What may be resident above a limit of so many bytes.
fn allowed(limit: u64) -> u64 {
    limit + limit / 20 + (2 << 20)
}

fn check(name: &str, arguments: &str, mib: u64, holds: Holds) {
    let Some(compiled) = program(name) else { return };
    let arguments: Vec<_> = arguments.split_whitespace().collect();
    let Some(expected) = alone(&compiled.program, &arguments) else { return };
    let ended = limited(&compiled.program, &arguments, mib);
    let said = &ended.said;
    let same = (ended.status, &ended.last) == (expected.status, &expected.last);
    println!("alone {:?}, in the run {:?}, {:?}", expected.wall, ended.wall, ended.last);
    let all = &ended.printed;
    if holds == Limited {
        // It must end all the same, and so it has.
        let found = if same { "not met here" } else { "met" };
        return skip(format!("a known limit of runs, {found} (docs/use/memory-limits.md)"));
    }
    if holds == Named {
        let is_named = said.contains("set ASAN_OPTIONS=detect_leaks=0");
        return assert!(same || is_named, "{}: {all}{said}", ended.status);
    }
    assert!(same, "{}: {all}{said}", ended.status);
    let peak = |figure: &str| {
        let report = ended.report.as_ref().expect("a report");
        (report[figure].as_u64().expect("a figure"), report)
    };
    if holds == Kept {
        let (peak, report) = peak("peak_resident_bytes");
        let mut allowed = allowed(mib << 20);
        if peak > allowed && report["over_limit"].as_u64() > Some(0) {
            // Where others have the processors, what is open or cannot be written to is seen late;
            // the report admits it. What stays for good is mostly more than twice the limit.
            let line = format!("ABOVE THE LIMIT: {}: {peak} bytes of {mib} MiB\n", this_test());
            let _ = std::io::stderr().write_all(line.as_bytes());
            allowed = mib << 21;
        }
        assert!(peak <= allowed, "{peak} > {allowed} bytes: {report}{said}");
    }
    if holds == Counted {
        let (open, report) = peak("peak_left_open_bytes");
        assert!(open > mib << 19, "{open} bytes: {report}{said}");
        assert!(said.contains(" of memory in private mappings of files"), "{said}");
    }
}
