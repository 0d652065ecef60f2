//! Completion in real shells: each is given the script, and offers what fits.

mod common;

use std::process::Command;

use common::{results, skip};

/// Words so far, and what is offered for the last of them.
const CASES: [(&[&str], &[&str]); 3] = [
    (&["zfold", "com"], &["compare", "completions"]),
    (&["zfold", "de"], &["demo"]),
    (&["zfold", "stat", "--format", "ta"], &["table"]),
];

/// Runs a script in a shell that has been given zfold's own; returns the sorted first words of what
/// it prints, or says that there is no such shell.
fn run(name: &str, arguments: &[&str], script: &str) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("_zfold"), results(&["completions", name])).expect("written");
    let mut shell = Command::new(name);
    shell.args(arguments).args(["-c", script]).current_dir(&folder);
    shell.env_remove("ENV").env_remove("BASH_ENV").env("HOME", folder.path());
    let Ok(output) = shell.output() else {
        skip(format!("{name} is not installed (package {name})"));
        return None;
    };
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}: {script}");
    let printed = String::from_utf8(output.stdout).expect("text");
    let first = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
    let mut offered: Vec<String> = printed.lines().map(first).collect();
    offered.sort_unstable();
    Some(offered)
}

#[test]
fn fish_offers_what_fits() {
    for (words, expected) in CASES {
        let script = format!("source _zfold; complete -C '{}'", words.join(" "));
        let Some(offered) = run("fish", &["--no-config"], &script) else { return };
        assert_eq!(offered, expected, "{words:?}");
    }
}

#[test]
fn bash_offers_what_fits() {
    for (words, expected) in CASES {
        let [.., before, last] = words else { panic!("two words") };
        let script = format!(
            "source ./_zfold; COMP_WORDS=({}); COMP_CWORD={}; _zfold zfold '{last}' '{before}'; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words.len() - 1
        );
        let Some(offered) = run("bash", &["--norc"], &script) else { return };
        assert_eq!(offered, expected, "{words:?}");
    }
}

#[test]
fn zsh_takes_the_script() {
    // What it offers is seen only where somebody types.
    let script = "fpath=($PWD $fpath); autoload -U compinit; compinit -u -D; print $_comps[zfold]; \
                  autoload +X _zfold; print $+functions[_zfold]";
    let Some(printed) = run("zsh", &["-f"], script) else { return };
    assert_eq!(printed, ["1", "_zfold"]);
}
