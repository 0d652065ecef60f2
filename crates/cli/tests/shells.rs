//! Completion in real shells: each is given the script and words, and offers what fits.

mod common;

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use common::skip;

/// Words so far, and what is offered for the last of them.
const CASES: [(&[&str], &[&str]); 8] = [
    (&["zfold", "run", "--", "zfol"], &["zfold"]),
    (&["zfold", "run", "--limit", "1GiB", "zfol"], &["zfold"]),
    (&["zfold", "com"], &["compare", "completions"]),
    (&["zfold", "de"], &["demo"]),
    (&["zfold", "disk", "--codec", "lz"], &["lz4", "lz4hc", "lzo"]),
    (&["zfold", "ctl", "set", "mem_"], &["mem_limit=", "mem_used_max="]),
    (&["zfold", "ctl", "writeback", "type=huge"], &["type=huge", "type=huge_idle"]),
    (&["zfold", "ctl", "recompress", "algo=page"], &["algo=page", "algo=page:deep"]),
];

/// Returns the shell, with zfold first in its path; `None` if it is not installed.
fn shell(name: &str) -> Option<Command> {
    // Where zfold is built may be zfold-lab, too.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("completed-by-{name}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    // One of an earlier run may lead to where zfold was built then.
    let _ = std::fs::remove_file(folder.join("zfold"));
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_zfold"), folder.join("zfold")).expect("a link");
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|folder| folder.join(name).is_file()) {
        return None;
    }
    let folders = [folder].into_iter().chain(std::env::split_paths(&path));
    let path: OsString = std::env::join_paths(folders).expect("a path");
    let mut command = Command::new(name);
    command.env("PATH", path).env_remove("ENV").env_remove("BASH_ENV");
    Some(command)
}

/// Checks all cases; `script` makes commands of the words that print an offer a line.
fn check(name: &str, arguments: &[&str], script: impl Fn(&[&str]) -> String) {
    for (words, expected) in CASES {
        let Some(mut shell) = shell(name) else {
            let reason = format!("{name} is not installed (package {name})");
            return skip(&reason);
        };
        let output = shell.args(arguments).arg("-c").arg(script(words)).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let mut offered: Vec<&str> =
            said.lines().map(|line| line.split('\t').next().unwrap_or_default()).collect();
        offered.sort_unstable();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(offered, expected, "{name}: {words:?}: {errors}");
    }
}

#[test]
fn fish_offers_what_fits() {
    check("fish", &["--no-config"], |words| {
        format!("zfold completions fish | source; complete -C '{}'", words.join(" "))
    });
}

#[test]
fn zsh_offers_what_fits() {
    // Zsh sets these variables, and is told the offers by _describe, whose last argument names an
    // array of them, each followed by its description.
    check("zsh", &["-f"], |words| {
        format!(
            "compdef() {{ :; }}; _describe() {{ print -rl -- \"${{(@P)@[-1]}}\" | \
             sed -E 's/([^\\\\]):.*/\\1/; s/\\\\:/:/g'; }}; words=({}); CURRENT={}; \
             eval \"$(zfold completions zsh)\"; _clap_dynamic_completer_zfold",
            words.join(" "),
            words.len()
        )
    });
}

#[test]
fn bash_offers_what_fits() {
    // Bash gives = and : as words of their own, and puts what is offered in the place of the last.
    check("bash", &["--norc"], |words| {
        let split = words.join(" ").replace('=', " = ");
        let last = words[words.len() - 1];
        let kept = last.find('=').map_or("", |at| &last[..=at]);
        format!(
            "source <(zfold completions bash); compopt() {{ :; }}; COMP_WORDS=({split}); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); _zfold; \
             for offer in \"${{COMPREPLY[@]}}\"; do printf '%s%s\\n' '{kept}' \"$offer\"; done"
        )
    });
}
