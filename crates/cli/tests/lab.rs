//! `zfold lab` starts another program, and says how to get it where it is not there.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{assert_line, results};
use zfold_testing::executable;

/// Returns a folder for one test, with zfold in a folder `bin` of it and an empty one `path`.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    // It is there if the tests ran before.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("path")).expect("a folder");
    fs::create_dir(folder.join("bin")).expect("a folder");
    fs::hard_link(env!("CARGO_BIN_EXE_zfold"), folder.join("bin/zfold")).expect("a link");
    folder
}

/// Makes a zfold-lab that tells who it is and what it was given.
fn program(folder: &Path, name: &str) {
    let text = format!("#!/bin/sh\necho {name} \"$#\" \"$@\"\nexit 7\n");
    executable::script(&folder.join("zfold-lab"), &text);
}

/// Runs the zfold in a folder, with the folder `path` beside as its PATH.
fn zfold(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(folder.join("bin/zfold"));
    command.args(arguments).env("PATH", folder.join("path"));
    command.output().expect("it starts")
}

fn assert_said(output: &Output, line: &str) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!((&*said, output.status.code()), (line, Some(7)), "{output:?}");
}

#[test]
fn the_program_beside_goes_before_that_in_the_path() {
    let folder = folder("lab-beside");
    program(&folder.join("path"), "path");
    assert_said(&zfold(&folder, &["lab", "free"]), "path 1 free\n");
    program(&folder.join("bin"), "beside");
    let output = zfold(&folder, &["lab", "free", "--quick", "--seed=7", "--format", "json"]);
    assert_said(&output, "beside 5 free --quick --seed=7 --format json\n");
}

#[test]
fn all_that_is_typed_is_for_the_laboratory() {
    let folder = folder("lab-arguments");
    program(&folder.join("bin"), "lab");
    for (typed, told) in [
        (&["lab"][..], "lab 0\n"),
        (&["lab", "--help"], "lab 1 --help\n"),
        (&["lab", "-h"], "lab 1 -h\n"),
        (&["lab", "--version"], "lab 1 --version\n"),
        (&["lab", "--quick", "all"], "lab 2 --quick all\n"),
        (&["lab", "scale", "--help"], "lab 2 scale --help\n"),
    ] {
        assert_said(&zfold(&folder, typed), told);
    }
}

#[test]
fn where_it_is_not_one_line_names_the_remedy() {
    let folder = folder("lab-absent");
    // No program, though its name is right.
    fs::write(folder.join("bin/zfold-lab"), "").expect("written");
    fs::create_dir(folder.join("path/zfold-lab")).expect("a folder");
    let parts = ["no zfold-lab beside zfold or in PATH", "cargo build --release -p zfold-lab"];
    for typed in [&["lab"][..], &["lab", "free"], &["lab", "--help"]] {
        assert_line(&zfold(&folder, typed), 1, &parts);
    }
}

#[test]
fn help_lists_it_among_the_commands() {
    for help in [results(&["--help"]), results(&["help"])] {
        assert!(help.contains("\n  lab "), "{help}");
    }
    let parts = ["[subcommands: run, attach, check, ", " lab,", "(see zfold --help)"];
    assert_line(&common::zfold(&[]), 2, &parts);
}
