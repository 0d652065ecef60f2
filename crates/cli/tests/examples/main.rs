//! Every example of `--help` and every command of the README runs as it stands there.
//!
//! Programs that are not zfold's, such as `make` or `./train`, are stand-ins. Paths of the system,
//! process numbers and addresses are those of the test. What an example says is not looked at; it
//! must end with status 0, or serve, or show something until it is stopped.

#[path = "../common/mod.rs"]
mod common;
mod stage;
mod texts;

use stage::Stage;
use texts::{commands, help_examples, readme_examples};

/// Commands of the README that build: steps of `.ci/run` and `.ci/nightly`, and the demo, which has
/// tests of its own.
const STEPS: [&str; 5] = [
    "cargo run --release -- demo",
    "cargo build --release",
    "cargo build --profile dist --features full",
    "pip install ./python",
    "contrib/package",
];

#[test]
fn examples_of_help_work() {
    let stage = Stage::set();
    let mut count = 0;
    for path in commands() {
        for line in help_examples(&path) {
            stage.perform(&line);
            count += 1;
        }
    }
    assert!(count > 45, "only {count} examples were found");
}

#[test]
fn commands_of_the_readme_work() {
    let stage = Stage::set();
    let examples = readme_examples();
    for step in STEPS {
        assert!(examples.iter().any(|line| line == step), "{step} is no command of the README");
    }
    assert!(examples.len() >= 15, "only {examples:?}");
    for line in examples.iter().filter(|line| !STEPS.contains(&line.as_str())) {
        stage.perform(line);
    }
}
