//! `zfold-lab` from outside: help that teaches, and one clear line for each bad input.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use zfold_testing::{needs, skip};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zfold-lab");

/// The experiments, those that take long also when they are small last.
const EXPERIMENTS: [&str; 11] = [
    "pool-lock",
    "per-cpu-lists",
    "compaction",
    "free",
    "allocators",
    "writeback",
    "lockstat",
    "scale",
    "pageout",
    "build",
    "all",
];

fn lab(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("the program starts")
}

/// Returns stdout of a run that must succeed and say nothing else.
fn results(arguments: &[&str]) -> String {
    zfold_testing::output::results(lab(arguments))
}

/// Checks that a run ends with `status` and one line on stderr that holds each of `parts`.
fn assert_refused(arguments: &[&str], status: i32, parts: &[&str]) {
    zfold_testing::output::assert_line(&lab(arguments), status, parts);
}

/// Returns a directory of its own for one test, without anything in it.
fn directory(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // It is there if the tests ran before.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).expect("a directory");
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

// Results.

#[test]
fn help_says_what_each_experiment_settles() {
    let help = results(&["--help"]);
    for name in EXPERIMENTS {
        assert!(help.contains(&format!("\n          - {name}:")), "{name}: {help}");
    }
    for part in ["vs base", "published", "--scale", "--html"] {
        assert!(help.contains(part), "{part}");
    }
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
}

#[test]
fn examples_of_help_work() {
    let (help, folder) = (results(&["--help"]), directory("examples"));
    let lines = help.lines().filter_map(|line| line.strip_prefix("    zfold lab "));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 4, "{help}");
    for line in lines {
        let (typed, rest) = line.split_once(" | ").unwrap_or((line, "cat"));
        // What is wrong in it is refused before help is given. The whole lab is a step of .ci/run.
        let small = match typed.replace(" --scale 0.5 --repeats 15", "") {
            all if all.starts_with("all ") => format!("{all} --help"),
            one => format!("{one} --quick --repeats 1 --scale 0.001"),
        };
        if rest.contains("jq ") && Command::new("jq").arg("--version").output().is_err() {
            skip(format_args!("{line}: no jq"));
            continue;
        }
        let script = format!("set -e; {PROGRAM} {small} >results; {rest} <results | grep -q .");
        let output = Command::new("sh").args(["-c", &script]).current_dir(&folder).output();
        let output = output.expect("sh runs");
        assert!(output.status.success(), "'{line}': {output:?}");
    }
}

// Bad input.

#[test]
fn wrong_arguments_are_answered_with_those_that_work() {
    let needs = ["zfold lab needs one of pool-lock, ", ", build, all (see zfold lab --help)"];
    let scales = "a number from 0.001 to 1000, such as 0.5";
    let cases: [(&[&str], i32, &[&str]); 16] = [
        (&[], 2, &needs),
        (&["process", "pageout", "no job"], 1, &["for the program itself only"]),
        (&["free", "--scale", "0"], 2, &["--scale", "0", scales]),
        (&["free", "--scale", "-1"], 2, &["--scale", "-1", scales]),
        (&["free", "--scale", "NaN"], 2, &["--scale", "NaN", scales]),
        (&["free", "--scale", "inf"], 2, &["--scale", "inf", scales]),
        (&["free", "--scale", "half"], 2, &["--scale", "half", scales]),
        (&["free", "--repeats", "0"], 2, &["--repeats", "0", "1..=1000"]),
        (&["free", "--repeats", "1001"], 2, &["--repeats", "1001", "1..=1000"]),
        (&["fre"], 2, &["fre", "'free'"]),
        (&["free", "--format", "xml"], 2, &["xml", "table, json"]),
        (&["free", "--repeat", "3"], 2, &["--repeat", "'--repeats'"]),
        (&["free", "--seed", "x"], 2, &["--seed", "x"]),
        (&["all", "--html", "/"], 1, &["cannot write /: is a directory"]),
        (&["all", "--output", "/"], 1, &["cannot write /: is a directory"]),
        (&["all", "--html", "a", "--output", "a"], 2, &["--html and --output name the same file"]),
    ];
    for (arguments, status, parts) in cases {
        assert_refused(arguments, status, parts);
    }
    let said = String::from_utf8_lossy(&lab(&[]).stderr).into_owned();
    assert!(!said.contains("process"), "{said}");
}

#[test]
fn missing_directory_is_named_before_the_work() {
    let directory = directory("missing");
    let path = directory.join("no").join("page.html");
    for option in ["--html", "--output"] {
        let parts = ["cannot write", "page.html", "there is no directory", "create it"];
        assert_refused(&["all", option, text(&path)], 1, &parts);
    }
    assert_eq!(std::fs::read_dir(directory).expect("a directory").count(), 0);
}

/// Runs the quick form of an experiment that starts zfold, and returns what it says.
fn small(program: &Path, experiment: &str, path: &Path) -> String {
    let mut command = Command::new(program);
    command.args([experiment, "--quick", "--scale", "0.01", "--repeats", "1"]).env("PATH", path);
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn zfold_is_found_beside_and_then_in_the_path() {
    let built = Path::new(PROGRAM).parent().expect("a folder");
    needs!(built.join("zfold").is_file(), "zfold is not built (cargo test --workspace builds it)");
    let works = Command::new(built.join("zfold")).arg("check").output().expect("it starts");
    needs!(works.status.success(), "zfold run does not work here (zfold check)");
    let (folder, tools) = (directory("found"), Path::new("/usr/bin:/bin"));
    let elsewhere = folder.join("zfold-lab");
    std::fs::hard_link(PROGRAM, &elsewhere).expect("a link");
    let path = std::env::join_paths([built, Path::new("/usr/bin"), Path::new("/bin")]);
    let path = PathBuf::from(path.expect("a path"));
    for (program, path) in [(Path::new(PROGRAM), tools), (&elsewhere, &path)] {
        let said = small(program, "pageout", path);
        let is_measured = |line: &str| line.starts_with("zfold run lz4  ");
        assert!(said.lines().any(is_measured), "{said}");
    }
}

#[test]
fn where_there_is_no_zfold_what_needs_it_is_left_out_with_the_remedy() {
    let folder = directory("alone");
    let program = folder.join("zfold-lab");
    std::fs::hard_link(PROGRAM, &program).expect("a link");
    // No program, though its name is right.
    std::fs::write(folder.join("zfold"), "").expect("written");
    needs!(
        !Path::new("/usr/bin/zfold").exists() && !Path::new("/bin/zfold").exists(),
        "zfold is installed"
    );
    let said = small(&program, "pageout", Path::new("/usr/bin:/bin"));
    // What the system lacks, such as a swap, is left out as well.
    let left = "SKIPPED: zfold run lz4: there is no zfold beside zfold-lab or in PATH: cargo build";
    assert!(said.contains(left), "{said}");
    assert!(said.contains("not paged out"), "{said}");
}

/// Every experiment, small: records by the schema, finite figures, and a page that stands alone.
#[test]
fn every_experiment_gives_records_and_a_page() {
    let folder = directory("results");
    // `scale`, `build` and `pageout` take a while also when they are small: the lab's own tests and
    // .ci/run have them.
    let short = &EXPERIMENTS[..7];
    for name in short {
        let page = folder.join(name).with_extension("html");
        let small = ["--quick", "--scale", "0.01", "--repeats", "1", "--format", "json"];
        let json = results(&[&[*name], &small[..], &["--html", text(&page)]].concat());
        let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(report["schema"], "zfold.lab/1");
        assert!(report["machine"]["cpus"].as_u64() >= Some(1));
        let records = report["records"].as_array().expect("records");
        assert!(!records.is_empty());
        for record in records {
            assert_eq!(record["experiment"], *name);
            assert!(record["value"].as_f64().is_some_and(|value| value >= 0.0), "{record}");
            assert_eq!((&record["simulated"], &record["repeats"]), (&false.into(), &1.into()));
        }
        let html = std::fs::read_to_string(&page).expect("a page");
        assert!(
            html.contains("<table") && html.contains("<svg") && !html.contains("<script"),
            "{name}"
        );
    }
    let left: Vec<_> = std::fs::read_dir(&folder).expect("the folder").collect();
    assert_eq!(left.len(), short.len(), "nothing but the pages: {left:?}");
}
