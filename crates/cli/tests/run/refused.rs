//! What is refused before a program starts, and what the help says.

use std::fs;

use tempfile::tempdir;

use crate::common::{assert_line, assert_refused, needs, results};
use crate::runs::{can_manage, managed};

#[test]
fn wrong_arguments_are_one_line() {
    let run = |arguments: &[&str], parts: &[&str]| {
        assert_refused(&[&["run"], arguments].concat(), 2, parts);
    };
    run(&[], &["PROGRAM"]);
    run(&["--limit", "64MiB"], &["PROGRAM"]);
    run(&["--limit", "64MiB", "--"], &["PROGRAM"]);
    run(&["--limit", "64GB", "--", "true"], &["a size is a whole number"]);
    run(&["--limit", "64", "--", "true"], &["--limit 64 bytes is too small", "4MiB or more"]);
    run(&["--limit", "1MiB", "--", "true"], &["--limit 1MiB is too small", "4MiB or more"]);
    run(&["--limit", "0GiB", "--", "true"], &["4MiB or more"]);
    run(&["--store-limit", "4KiB", "--", "true"], &["--store-limit 4KiB", "1MiB or more"]);
    run(&["--codec", "lz5", "--", "true"], &["unknown codec 'lz5'"]);
    run(&["--allocator", "slab", "--", "true"], &["zbud, z3fold, zsmalloc"]);
    run(&["--backing", "f", "--", "true"], &["--store-limit"]);
    run(&["--backing-size", "1GiB", "--", "true"], &["--backing"]);
    run(&["--report=xml", "--", "true"], &["text, json"]);
    run(&["--no-such-option", "--", "true"], &["--no-such-option"]);
}

#[test]
fn the_manager_is_not_started_by_hand() {
    assert_refused(&["manage", "--", "true"], 2, &["use that"]);
    assert!(!results(&["--help"]).contains("manage "));
}

#[test]
fn a_report_that_cannot_be_written_is_told_before() {
    let directory = tempdir().expect("a directory");
    let (file, mark) = (directory.path().join("no/such"), directory.path().join("mark"));
    let line = ["run", "--report-file", file.to_str().expect("text"), "--", "touch"];
    assert_refused(&[&line[..], &[mark.to_str().expect("text")]].concat(), 125, &["no/such"]);
    assert!(!mark.exists(), "the program was run");
}

#[test]
fn programs_that_cannot_be_started_have_the_status_of_a_shell() {
    needs!(can_manage());
    let refused = |program: &str, status: i32, part: &str| {
        let output = managed(&[program, "x"]).output().expect("it starts");
        assert_line(&output, status, &[program, part]);
    };
    let directory = tempdir().expect("a directory");
    let file = directory.path().join("text");
    fs::write(&file, "no program").expect("written");
    refused("no-such-program-anywhere", 127, "No such file");
    refused("/no/such/program", 127, "No such file");
    refused(file.to_str().expect("text"), 126, "Permission denied");
    refused(directory.path().to_str().expect("text"), 126, "Permission denied");
}

#[test]
fn a_backing_file_that_cannot_be_had_is_a_failure_of_zfold() {
    needs!(can_manage());
    let refused = |place: &str, status: i32, parts: &[&str]| {
        let line = ["run", "--store-limit", "8MiB", "--backing", place, "--", "true"];
        assert_refused(&line, status, parts);
    };
    refused("/no/such/file", 125, &["/no/such/file"]);
    refused("redis://127.0.0.1:1", 125, &["redis at 127.0.0.1:1"]);
    refused("redis://me:hunter2@127.0.0.1", 2, &["ZFOLD_REDIS_PASSWORD"]);
}
