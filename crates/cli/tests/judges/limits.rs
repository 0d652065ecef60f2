//! Programs whose addresses are limited (`ulimit -v`): a run takes little of what they may map.

use std::process::{Command, Stdio};

use crate::common::{command, needs};
use crate::trial::{alone, limited, program};

/// What a run may take, in KiB: the reservations of a helper, and the steps in which is counted.
const TAKEN: u64 = 640;

fn kib(line: &str) -> u64 {
    line.trim().parse().unwrap_or_else(|_| panic!("no number: {line:?}"))
}

#[test]
fn a_limit_of_addresses_is_the_programs() {
    let Some(compiled) = program("budget") else { return };
    let arguments = ["96", "24"];
    let Some(expected) = alone(&compiled.program, &arguments) else { return };
    let ended = limited(&compiled.program, &arguments, 8);
    let said = &ended.said;
    assert!(ended.status.success() && said.is_empty(), "{}: {said}", ended.status);
    let [alone, mapped] = [&expected.last, &ended.last].map(|line| kib(line));
    assert!(mapped + TAKEN >= alone, "{mapped} KiB of {alone} could be mapped");
    let report = ended.report.expect("a report");
    let peak = report["peak_resident_bytes"].as_u64().expect("a figure");
    assert!(peak < 12 << 20, "{report}");
}

#[test]
fn a_run_whose_addresses_are_limited_is_one() {
    let Some(compiled) = program("budget") else { return };
    // As an administrator sets it for all that somebody starts.
    let under_limit = |command: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -v 300000 && exec \"$@\"", "sh"]).args(command);
        shell.arg(&compiled.program).args(["0", "24"]).stdin(Stdio::null());
        shell.output().expect("a shell")
    };
    let expected = under_limit(&[]);
    needs!(expected.status.success(), "this shell cannot limit addresses");
    let zfold = command(&[]);
    let zfold = zfold.get_program().to_str().expect("text");
    let ended = under_limit(&[zfold, "run", "--limit", "8MiB", "--"]);
    let [said, mapped, alone] = [&ended.stderr, &ended.stdout, &expected.stdout]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(ended.status.success() && said.is_empty(), "{}: {said}", ended.status);
    assert!(kib(&mapped) + TAKEN >= kib(&alone), "{mapped} KiB of {alone}");
}
