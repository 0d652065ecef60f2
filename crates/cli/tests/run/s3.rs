//! Runs whose pages go to S3: a real server on loopback.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use zfold_testing::s3::{S3, ready};
use zfold_testing::skip::has_program;

use crate::common::{command, skip};
use crate::runs::{Sort, can_manage, text};

// Little memory: the server takes many milliseconds for each page.

/// Reads 28 MiB that hardly compress again and again.
const READER: &str = r#"
import os
memory = os.urandom(28 << 20)
print("ready", flush=True)
while True:
    sum(memory[::4096])
"#;

fn can_run(test: &str) -> bool {
    if !has_program("python3") {
        skip(test, "no python3");
        return false;
    }
    ready(test) && can_manage(test)
}

/// Starts a Python program whose pages go to S3.
fn start(s3: &S3, program: &str) -> Child {
    let memory = ["run", "--limit", "16MiB", "--store-limit", "8MiB", "--backing"];
    let backing = ["s3://pages/runs", "--backing-size", "256MiB", "--report=json"];
    command(&[&memory[..], &backing, &["--", "python3", "-c", program]].concat())
        .envs(s3.variables())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts")
}

#[test]
fn a_run_whose_s3_is_gone_ends_with_the_reason() {
    if !can_run("a_run_whose_s3_is_gone_ends_with_the_reason") {
        return;
    }
    let mut s3 = S3::start();
    let mut child = start(&s3, READER);
    let mut ready = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut ready).expect("a line");
    assert_eq!(ready, "ready\n");
    assert!(s3.keys("runs/").len() > 1, "no page went there");
    s3.kill();
    let output = child.wait_with_output().expect("it ends");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("s3://pages/runs at http://127.0.0.1"), "{said}");
}

/// Within which a run with some thousand pages there ends, on a busy machine.
const SOON: Duration = Duration::from_secs(120);

#[test]
fn a_program_whose_pages_go_to_s3_says_what_it_says_alone() {
    let test = "a_program_whose_pages_go_to_s3_says_what_it_says_alone";
    if !ready(test) || !can_manage(test) {
        return;
    }
    let s3 = S3::start();
    let limits =
        ["run", "--limit", "16MiB", "--store-limit", "6MiB", "--backing", "s3://pages/runs"];
    let sort = Sort::new(1_000_003);
    let begun = Instant::now();
    let output = sort.output(command(&limits).envs(s3.variables()));
    let took = begun.elapsed();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(text(&output.stdout) == sort.sorted, "it is not sorted");
    let report: Value = serde_json::from_str(&said).expect(&said);
    let far = &report["far"];
    let figure = |name: &str| far[name].as_u64().expect(name);
    assert!(figure("puts_total") > 0 && figure("failures_total") == 0, "{far}");
    // A request brings more than the page that is waited for.
    assert!(figure("gets_total") > 0 && figure("read_ahead_total") > figure("gets_total"), "{far}");
    assert!(took < SOON, "it took {took:?}: {far}");
    assert_eq!(s3.keys("runs/"), [""; 0], "nothing is left behind");
}
