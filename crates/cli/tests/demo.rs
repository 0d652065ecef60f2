//! `zfold demo`: under a run, in a region, and where it fails.

mod common;

use std::process::{Command, Output};

use common::{assert_refused, command, skip};
use serde_json::Value;

const SIZE: u64 = 32 << 20;

/// What the demo says of a size that takes a moment.
const SMALL: [&str; 5] = ["demo", "--size", "32MiB", "--format", "json"];

fn document(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn bytes(document: &Value, pointer: &str) -> u64 {
    document.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {pointer}"))
}

/// Checks what holds wherever the demo works.
fn check(document: &Value) {
    assert_eq!(document["schema"], "zfold.demo/1");
    assert_eq!((bytes(document, "/size_bytes"), bytes(document, "/limit_bytes")), (SIZE, SIZE / 4));
    assert_eq!(document["same"], true);
    assert_eq!(document["alone"]["checksum"], document["limited"]["checksum"]);
    assert!(document["alone"]["stored"].is_null());
    assert!(bytes(document, "/alone/peak_bytes") >= SIZE, "{document}");
    // Half of the data was compressed at least, and took less.
    let stored = bytes(document, "/limited/stored/pages_bytes");
    assert!(stored >= SIZE / 2, "{document}");
    assert!(bytes(document, "/limited/stored/bytes") < stored, "{document}");
    assert!(
        bytes(document, "/limited/uncompressed_bytes")
            < bytes(document, "/alone/uncompressed_bytes"),
        "{document}"
    );
}

/// Returns zfold as a user without any right, in a mode that gains none.
fn plain(arguments: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--"]);
    command.arg(env!("CARGO_BIN_EXE_zfold")).args(arguments);
    command
}

#[test]
fn the_result_is_the_same_in_a_quarter_of_the_memory() {
    let works = command(&["check"]).output().expect("it starts").status.success();
    let document = document(&command(&SMALL).output().expect("it starts"));
    check(&document);
    assert_eq!(document["way"], if works { "run" } else { "region" });
    assert_eq!(document["missing"].as_array().map(Vec::is_empty), Some(works), "{document}");
}

#[test]
fn without_rights_a_region_does_it_and_the_remedy_is_named() {
    match plain(&["check"]).output() {
        Ok(check) if check.stdout.is_empty() => {
            return skip("not root, or user 65534 cannot execute zfold");
        }
        Ok(check) if check.status.success() => return skip("user 65534 may run programs"),
        Ok(_) => {}
        Err(_) => return skip("no setpriv"),
    }
    let document = document(&plain(&SMALL).output().expect("it starts"));
    check(&document);
    assert_eq!(document["way"], "region");
    let remedies = document["missing"][0]["remedies"].as_array().expect("remedies");
    let table = plain(&SMALL[..3]).output().expect("it starts");
    let table = String::from_utf8(table.stdout).expect("text");
    for part in [remedies[0].as_str().expect("text"), "the same", "MISSING", "Region"] {
        assert!(table.contains(part), "no {part:?} in {table}");
    }
}

#[test]
fn a_table_of_80_columns_and_no_view_without_a_terminal() {
    let output = command(&SMALL[..3]).output().expect("it starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(!table.contains('\x1b'), "{table}");
    let own = table.split("What it lacks").next().expect("a table");
    assert!(own.lines().all(|line| line.chars().count() <= 80), "{table}");
    for part in ["8.00 MiB", "peak memory", "ratio", "the same"] {
        assert!(table.contains(part), "no {part:?} in {table}");
    }
}

#[test]
fn a_terminal_of_80_columns_shows_it_at_work() {
    let zfold = env!("CARGO_BIN_EXE_zfold");
    let line = format!("stty rows 24 cols 80; {zfold} demo --size 128MiB");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
    let Ok(output) = script.output() else { return skip("no script (package bsdutils)") };
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    for part in ["limit none", "in a quarter", "limit 32.0M", "stored", "the same"] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
}

#[test]
fn what_cannot_be_shown_is_refused_in_one_line() {
    assert_refused(&["demo", "--size", "1MiB"], 2, &["--size", "16MiB"]);
    assert_refused(&["demo", "--size", "8192TiB"], 1, &["alone", "smaller --size"]);
    assert_refused(&["demo-work", "much"], 2, &["zfold demo"]);
}
