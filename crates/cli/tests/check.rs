//! `zfold check` as root, as a plain user, and where calls are denied.

mod common;

use std::process::{Command, Output};

use common::{command, needs, skip};
use serde_json::Value;

fn document(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn need<'a>(document: &'a Value, name: &str) -> &'a Value {
    let needs = document["needs"].as_array().expect("a list");
    needs.iter().find(|need| need["name"] == name).expect(name)
}

/// Returns whether a program under a limit starts.
fn runs(zfold: &mut Command) -> bool {
    let output = zfold.args(["run", "--limit", "64MiB", "--", "true"]).output();
    output.expect("it starts").status.success()
}

#[test]
fn it_says_of_a_run_what_a_run_does() {
    let output = command(&["check", "--json"]).output().expect("it starts");
    let document = document(&output);
    assert_eq!(document["schema"], "zfold.check/1");
    let works = runs(&mut command(&[]));
    assert_eq!((document["run"].as_bool(), output.status.success()), (Some(works), works));
    for need in document["needs"].as_array().expect("a list") {
        let granted = need["found"] == true;
        assert_eq!(need["remedies"].as_array().map(Vec::is_empty), Some(granted), "{need}");
    }
    let text = command(&["check"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.ends_with(if works { "zfold run works here.\n" } else { "not work here.\n" }));
}

#[test]
fn a_plain_user_is_told_what_grants_it() {
    let plain = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command.arg(env!("CARGO_BIN_EXE_zfold")).args(arguments);
        command
    };
    let output = match plain(&["check", "--json"]).output() {
        Ok(output) if !output.stdout.is_empty() => output,
        _ => return skip("not root, no setpriv, or user 65534 cannot execute zfold"),
    };
    let document = document(&output);
    let works = runs(&mut plain(&[]));
    assert_eq!(
        (document["run"].as_bool(), output.status.code()),
        (Some(works), Some((!works).into()))
    );
    let faults = need(&document, "page faults of the kernel");
    needs!(faults["found"] != true, "the page faults of the kernel are everybody's here");
    let remedies = faults["remedies"].to_string();
    for part in ["--device /dev/userfaultfd --cap-add SYS_PTRACE", "udev", "Kubernetes"] {
        assert!(remedies.contains(part), "{remedies}");
    }
    assert!(remedies.contains("setfacl -m u:") || remedies.contains("sysctl"), "{remedies}");
    assert_eq!(need(&document, "programs with filters")["found"], false);
}
