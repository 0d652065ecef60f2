//! Every example of `--help` and every command of the README runs as it stands there.
//!
//! Programs that are not zfold's, such as `make` or `./train`, are stand-ins. Paths of the system,
//! process numbers and addresses are those of the test. What an example says is not looked at; it
//! must end with status 0, or serve, or show something until it is stopped.

#[path = "../common/mod.rs"]
mod common;
mod stage;
mod texts;

use stage::{Stage, has};
use texts::{commands, help_examples, readme_examples};

/// Commands of the README that build: steps of `.ci/run` themselves, and the demo, which has tests
/// of its own.
const STEPS: [&str; 4] = [
    "cargo run --release -- demo",
    "cargo build --release",
    "pip install ./python",
    "contrib/package",
];

#[test]
fn examples_of_help_work() {
    let stage = Stage::set("examples_of_help_work");
    let mut count = 0;
    for path in commands(&[]).iter().filter(|path| path.first() != Some(&"lab".to_owned())) {
        for line in help_examples(path) {
            stage.perform(&line);
            count += 1;
        }
    }
    assert!(count > 45, "only {count} examples were found");
}

#[test]
fn examples_of_the_lab_work() {
    let stage = Stage::set("examples_of_the_lab_work");
    let mut count = 0;
    for path in commands(&["lab"]) {
        for line in help_examples(&path) {
            // As it stands, up to the work: what is wrong in it is refused before help is given.
            let (lab, rest) = line.split_once(" | ").unwrap_or((&line, "cat"));
            let rest = if has("jq") { rest } else { "cat" };
            stage.end(&format!("{lab} --help | grep Usage"));
            // The whole lab is a step of .ci/run, and so are experiments that start servers.
            let servers = ["all", "disk", "pageout", "build", "calls", "limits", "density"];
            if !servers.iter().any(|name| line.starts_with(&format!("zfold lab {name} "))) {
                stage.end(&format!("{} --quick --repeats 1 --scale 0.001 | {rest}", bare(lab)));
            }
            count += 1;
        }
    }
    assert!(count > 15, "only {count} examples were found");
}

/// Returns a command of the lab without its amounts of work.
fn bare(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let amount = |word: &&str| ["--repeats", "--scale"].contains(word);
    let kept = words.iter().enumerate().filter(|(at, word)| {
        !amount(word) && **word != "--quick" && (*at == 0 || !amount(&words[at - 1]))
    });
    kept.map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
}

#[test]
fn commands_of_the_readme_work() {
    let stage = Stage::set("commands_of_the_readme_work");
    let examples = readme_examples();
    for step in STEPS {
        assert!(examples.iter().any(|line| line == step), "{step} is no command of the README");
    }
    assert!(examples.len() >= 15, "only {examples:?}");
    for line in examples.iter().filter(|line| !STEPS.contains(&line.as_str())) {
        stage.perform(line);
    }
}
