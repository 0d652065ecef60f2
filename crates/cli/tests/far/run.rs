//! Runs whose pages go to other machines.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use zfold_testing::redis::{self, Server};
use zfold_testing::skip::has_program;

use crate::common::{command, needs};
use crate::runs::{can_manage, text};

/// How long a page is waited for (30 s), and then the last words to the server (12 s at most), and
/// much more on a busy machine.
const DEADLINE: Duration = Duration::from_secs(8 * 30);

/// Reads 48 MiB that hardly compress again and again.
const READER: &str = r#"
import random
memory = random.Random(1).randbytes(48 << 20)
print("ready", flush=True)
while True:
    sum(memory[::4096])
"#;

fn ready() -> bool {
    redis::ready() && can_manage()
}

/// Has 48 MiB that hardly compress, and says whether they are what was written.
pub(crate) const KEEPER: &str = "
import random
kept, again = (random.Random(1).randbytes(48 << 20) for _ in range(2))
print(kept == again)
";

/// Returns the words of a run of a program, most of whose pages are elsewhere, with so much room.
pub(crate) fn far<'a>(place: &'a str, backing_size: &'a str, program: &'a str) -> Vec<&'a str> {
    let line = ["run", "--limit", "16MiB", "--store-limit", "8MiB", "--backing", place];
    let more = ["--report=json", "--backing-size", backing_size, "--", "python3", "-c", program];
    [line, more].concat()
}

fn reader(place: &str, backing_size: &str) -> Command {
    let mut line = far(place, backing_size, READER);
    // What is said is looked at.
    line.retain(|word| *word != "--report=json");
    command(&line)
}

fn end(child: Child) -> Output {
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_program_whose_pages_go_to_redis_says_what_it_says_alone() {
    needs!(ready());
    needs!(has_program("python3"), "no python3");
    let redis = Server::start(&[]);
    let place = redis.place();
    let line = far(&place, "256MiB", KEEPER);
    let output = command(&line).output().expect("it starts");
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), "True\n"), "{said}");
    let report: Value = serde_json::from_str(&said).expect(&said);
    let far = &report["far"];
    assert!(far["puts_total"].as_u64() > Some(0), "{far}");
    assert!(far["gets_total"].as_u64() > Some(0), "{far}");
    assert_eq!(far["engine"], format!("redis at 127.0.0.1:{}", redis.port));
    assert_eq!(redis.values(), 0, "nothing is left behind");
}

#[test]
fn a_run_whose_redis_is_gone_ends_with_the_reason() {
    needs!(ready());
    needs!(has_program("python3"), "no python3");
    let mut redis = Server::start(&[]);
    let mut child = reader(&redis.place(), "256MiB");
    child.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("it starts");
    let mut ready = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut ready).expect("a line");
    assert_eq!(ready, "ready\n");
    assert!(redis.values() > 0, "no page went there");
    redis.kill();
    let begun = Instant::now();
    let output = end(child);
    assert!(begun.elapsed() < DEADLINE, "it took {:?}", begun.elapsed());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    let server = format!("zfold: redis at {}", redis.address());
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].starts_with(&format!("{server} does not answer; ")), "{said}");
    let reason = lines.last().expect("a line");
    assert!(reason.contains("cannot restore a page of the program: "), "{said}");
    assert!(reason.contains(&redis.address()) && lines.len() <= 3, "{said}");
}

#[test]
fn a_run_that_has_no_room_left_here_and_there_ends_with_the_remedy() {
    needs!(ready());
    needs!(has_program("python3"), "no python3");
    let redis = Server::start(&[]);
    let output = reader(&redis.place(), "16MiB").output().expect("it starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("raise --backing-size or --store-limit"), "{said}");
    assert_eq!(redis.values(), 0, "nothing is left behind");
}
