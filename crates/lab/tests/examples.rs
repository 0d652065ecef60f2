//! Every example of `--help` works as it stands there.

mod common;

use std::path::Path;
use std::process::Command;

use common::{EXPERIMENTS, PROGRAM, results};
use zfold_testing::skip;

/// Returns the command lines of a help text: those that follow "Example:", and those under
/// "Examples:", four spaces from the margin.
fn examples(help: &str) -> Vec<String> {
    let single = help.lines().filter_map(|line| line.strip_prefix("Example: "));
    let below = help.lines().skip_while(|line| *line != "Examples:");
    let below = below.take_while(|line| !line.starts_with("Exit status:"));
    single.chain(below.filter_map(|line| line.strip_prefix("    "))).map(str::to_owned).collect()
}

/// Runs a line in a folder by a shell, with this program for `zfold lab`.
fn run(folder: &Path, line: &str) {
    let script = format!("set -e; zfold() {{ shift; {PROGRAM} \"$@\"; }}; {line}");
    let output = Command::new("sh").args(["-c", &script]).current_dir(folder).output();
    let output = output.expect("sh runs");
    assert!(output.status.success(), "'{line}': {output:?}");
}

/// Returns a line without its amounts of work.
fn bare(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let amount = |word: &&str| ["--repeats", "--scale"].contains(word);
    let kept = words.iter().enumerate().filter(|(at, word)| {
        !amount(word) && **word != "--quick" && (*at == 0 || !amount(&words[at - 1]))
    });
    kept.map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
}

#[test]
fn examples_of_help_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let has_jq = Command::new("jq").arg("--version").output().is_ok();
    let helps = [&["--help"][..]].into_iter().map(results);
    let helps = helps.chain(EXPERIMENTS.iter().map(|name| results(&[name, "--help"])));
    let lines: Vec<String> = helps.flat_map(|help| examples(&help)).collect();
    assert!(lines.len() > 11, "only {lines:?}");
    for line in lines {
        assert!(line.starts_with("zfold lab "), "{line}");
        // As it stands, up to the work: what is wrong in it is refused before help is given.
        let (lab, rest) = line.split_once(" | ").unwrap_or((&line, "cat"));
        run(folder.path(), &format!("{lab} --help | grep -q Usage"));
        // The whole lab is a step of .ci/run, and so are experiments that start servers.
        let servers = ["all", "pageout", "build"];
        if servers.iter().any(|name| line.starts_with(&format!("zfold lab {name} "))) {
            continue;
        }
        if rest.contains("jq ") && !has_jq {
            skip(format_args!("{line}: no jq"));
            continue;
        }
        let script = format!("{} --quick --repeats 1 --scale 0.001 >results", bare(lab));
        run(folder.path(), &format!("{script}; {rest} <results >shown; test -s shown"));
    }
}
