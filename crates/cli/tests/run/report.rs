//! Reports.

use std::fs;

use serde_json::Value;
use tempfile::tempdir;
use zfold_testing::compiled::compile_text;
use zfold_testing::skip;

use crate::common::{command, needs};
use crate::runs::{can_manage, text};

fn run(options: &[&str], script: &str) -> std::process::Output {
    let mut command = command(&["run", "--limit", "64MiB"]);
    command.args(options).args(["--", "sh", "-c", script]);
    command.output().expect("it starts")
}

#[test]
fn a_report_comes_after_the_program_and_changes_nothing_else() {
    needs!(can_manage());
    let output = run(&["--report"], "echo out; echo err >&2; exit 3");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(3), "out\n".to_owned()));
    let said = text(&output.stderr);
    assert!(said.starts_with("err\nzfold: sh ended with status 3\n"), "{said}");
    for part in ["limit", "64.00 MiB", "peak_resident", "evictions", "wall"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
}

#[test]
fn a_report_in_a_file_has_its_schema() {
    needs!(can_manage());
    let directory = tempdir().expect("a directory");
    let file = directory.path().join("run.json");
    let options = ["--report=json", "--report-file", file.to_str().expect("text")];
    let output = run(&options, "kill -TERM $$");
    assert!(output.stderr.is_empty(), "{output:?}");
    let text = fs::read_to_string(&file).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["schema"], "zfold.run/1");
    assert_eq!(report["exit"]["signal"], 15);
    assert_eq!(report["limit_bytes"], 64 << 20);
    assert!(report["wall_ns"].as_u64().is_some_and(|wall| wall > 0), "{report}");
}

/// Fills 128 MiB, and touches random pages of it.
const RANDOM: &str = r"
#include <stdlib.h>
int main(void) {
    enum { PAGES = 32768 };
    volatile char *all = malloc(PAGES * 4096UL);
    unsigned long x = 88172645463325252;
    for (long i = 0; i < 4 * PAGES; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        all[(i < PAGES ? i : x % PAGES) * 4096] = 1;
    }
}";

#[test]
fn a_report_says_which_limit_would_have_been_enough() {
    needs!(can_manage());
    let compiled = match compile_text("random", RANDOM) {
        Ok(compiled) => compiled,
        Err(error) => return skip(error),
    };
    let reported = |limit| {
        let mut command = command(&["run", "--limit", limit, "--report=json", "--"]);
        let output = command.arg(&compiled.program).output().expect("it starts");
        serde_json::from_slice::<Value>(&output.stderr).expect("JSON")
    };
    let report = reported("64MiB");
    let estimate = &report["estimate"];
    let mib = estimate["enough_limit_bytes"].as_u64().map(|bytes| bytes >> 20);
    assert!(mib.is_some_and(|mib| (115..160).contains(&mib)), "{report}");
    let at = |percent: usize| &estimate["returned_pages_at_percent"][percent];
    assert!(at(0)[1].is_null() && at(1)[1].is_null(), "nothing is known of lower limits: {report}");
    let at: Vec<u64> = (2..6).map(|percent| at(percent)[1].as_u64().expect("known")).collect();
    // Of random touches, as many come back as are not resident.
    assert!(at[0] > 30_000 && at.is_sorted_by(|more, fewer| more > fewer), "{report}");
    assert!(at[2].abs_diff(at[0] / 2) < at[0] / 8 && at[3] < at[0] / 5, "{report}");
    assert!(reported("auto")["estimate"].is_null());
}
