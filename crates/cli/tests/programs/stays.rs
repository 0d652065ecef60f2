//! Memory that cannot leave, for a time or at all: no more than that passes the limit.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::common::{command, needs, read_report};
use crate::needs::{alone, ready, text};
use crate::small::compile;

/// Runs a C program under `limit` MiB, whose input ends when zfold has said so many lines after the
/// first of the program; returns what that printed, the report, and what zfold said.
fn run(
    source: &str,
    limit: u64,
    arguments: &[&str],
    lines: impl Fn(&str) -> usize,
) -> (String, Value, String) {
    let _alone = alone();
    let compiled = compile(source);
    let folder = tempfile::tempdir().expect("a directory");
    let report = folder.path().join("report");
    let mut run = command(&["run", "--limit", &format!("{limit}MiB"), "--report=json"]);
    run.arg("--report-file").arg(&report).args(["--", text(&compiled.program)]).args(arguments);
    run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = run.spawn().expect("it starts");
    let input = child.stdin.take();
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let (mut printed, mut said) = (String::new(), String::new());
    stdout.read_line(&mut printed).expect("text");
    for _ in 0..lines(&printed) {
        stderr.read_line(&mut said).expect("text");
    }
    drop(input);
    stdout.read_to_string(&mut printed).expect("text");
    stderr.read_to_string(&mut said).expect("text");
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{source}: {printed}{said}");
    (printed, read_report(Path::new(&report)), said)
}

#[test]
fn memory_out_of_use_leaves_when_it_is_in_use_again() {
    needs!(ready(&["cc"]));
    // What is much leaves before it is taken out of use; what is little leaves later.
    for (step, leaves_before) in [("64", false), ("4096", true)] {
        let (printed, report, _) = run("unused.c", 16, &["17", step], |_| 0);
        let mib = |what: &str| {
            let line = printed.lines().find_map(|line| line.strip_prefix(what)).expect("a line");
            line.trim_end_matches(" MiB").parse::<u64>().expect("a number")
        };
        assert!(mib("out of use: ") <= 18 || !leaves_before, "{printed}");
        assert!(mib("in use: ") <= 17, "{printed}{report}");
        assert!(printed.ends_with("right\n"), "{printed}");
    }
}

#[test]
fn what_children_share_and_cannot_leave_counts_once() {
    needs!(ready(&["cc"]));
    // 16 MiB cannot leave, and of 36 MiB in the children there is room for 16.
    let (printed, ..) = run("inherited.c", 32, &["34"], |_| 0);
    assert!(printed.ends_with(" MiB, 0 wrong\n"), "{printed}");
}

#[test]
fn what_cannot_leave_is_counted_by_kind_and_told() {
    needs!(ready(&["cc"]));
    let locked = |printed: &str| usize::from(printed == "locked\n");
    let (printed, report, said) = run("shared.c", 32, &[], |printed| 1 + locked(printed));
    let told = |what: &str| said.lines().filter(|line| line.contains(what)).collect::<Vec<_>>();
    let lines = told(" of shared memory cannot leave, most in process ");
    assert!(lines.len() == 1 && lines[0].contains("24.00 MiB"), "once, of three: {said}");
    assert!(lines[0].contains("(shared)") && lines[0].contains("on top of the limit"), "{said}");
    let figure = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"));
    // A part of a page that is shared is rounded down.
    let mib = |name: &str| (figure(name) + (1 << 19)) >> 20;
    assert_eq!(mib("peak_shared_bytes"), 24, "{report}");
    assert!(figure("peak_file_bytes") > 0 && figure("peak_page_table_bytes") > 0, "{report}");
    assert_eq!(mib("peak_locked_bytes"), 12 * locked(&printed) as u64, "{report}");
    assert_eq!(told(" of locked memory cannot leave").len(), locked(&printed), "{said}");
    assert_eq!(said.lines().count(), 1 + locked(&printed), "{said}");
}
