//! What a run keeps to itself: passwords, and what the program had in memory.

use crate::common::{command, needs};
use crate::granted::Granted;
use crate::runs::can_manage;

#[test]
fn no_variable_of_zfold_reaches_the_program() {
    needs!(can_manage());
    let mut run = command(&["run", "--limit", "64MiB", "--", "env"]);
    run.env("ZFOLD_REDIS_PASSWORD", "hunter2").env("AWS_SECRET_ACCESS_KEY", "its own");
    let output = run.output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("AWS_SECRET_ACCESS_KEY=its own"), "{told}");
    assert!(!told.contains("hunter2") && !told.contains("ZFOLD_"), "{told}");
}

/// Looks whether this user can read the memory of the manager, and of what was forked off it.
const LOOK: &str = r#"
for try in $(seq 600); do
    found= open=
    for process in $(pgrep -f "^zfold manage .* $0\$"); do
        name=$(cat /proc/$process/comm)
        found="$found $name"
        test -r /proc/$process/mem && open="$open $name"
    done
    # What was forked off closes itself in its own time, and says its name.
    case "$open:$found" in :*zfold-bell*) break ;; esac
    sleep 0.1
done
echo "found:$found open:$open"
"#;

#[test]
fn what_the_program_had_in_memory_is_not_open_to_its_user() {
    let Some(user) = Granted::new() else { return };
    let mut run = user.command(env!("CARGO_BIN_EXE_zfold"));
    let mark = format!("secrets-{}", std::process::id());
    let output = run.args(["run", "--limit", "64MiB", "--", "sh", "-c", LOOK, &mark]).output();
    let output = output.expect("it starts");
    let told = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let (found, open) = told.split_once(" open:").expect("an answer");
    assert_eq!(found.split_whitespace().count(), 3, "a manager and a bell: {told}{said}");
    assert!(found.contains("zfold-bell") && open.trim().is_empty(), "{told}{said}");
}
