//! Runs whose pages go to other machines: a Redis on loopback.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{command, skip};
use crate::runs::{can_manage, has, text};

/// How long what comes at all may take on a busy machine.
const SOON: Duration = Duration::from_secs(120);

/// Reads 48 MiB that hardly compress again and again.
const READER: &str = r#"
import random
memory = random.Random(1).randbytes(48 << 20)
print("ready", flush=True)
while True:
    sum(memory[::4096])
"#;

/// A server, which ends with this.
struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    fn start() -> Self {
        let begun = Instant::now();
        loop {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
            let port = listener.local_addr().expect("an address").port();
            drop(listener);
            let child = Command::new("redis-server")
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("redis-server starts");
            let mut redis = Self { child, port };
            // It ends if somebody else has taken the port meanwhile.
            while redis.child.try_wait().expect("a status").is_none() {
                if redis.cli(&["PING"]) == "PONG" {
                    return redis;
                }
                assert!(begun.elapsed() < SOON, "redis-server does not answer");
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn cli(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.port.to_string()]).args(arguments);
        text(&command.output().expect("redis-cli starts").stdout).trim().to_owned()
    }

    fn values(&self) -> u64 {
        self.cli(&["DBSIZE"]).parse().expect("a number")
    }

    fn place(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

fn ready(test: &str) -> bool {
    if !has("redis-server") || !has("redis-cli") {
        skip(test, "no redis-server, or no redis-cli");
        return false;
    }
    can_manage(test)
}

/// Starts a program that keeps all of its input in memory until the input ends.
fn sort(place: &str) -> Child {
    let memory = ["run", "--limit", "16MiB", "--store-limit", "8MiB", "--backing", place];
    let sort = ["--report=json", "--", "sort", "--numeric-sort", "--parallel=1", "-S", "400M"];
    command(&[&memory[..], &sort[..]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts")
}

/// Numbers in no order, and in order.
fn lines() -> (String, String) {
    const COUNT: u64 = 1_000_003;
    let (mut mixed, mut sorted) = (String::new(), String::new());
    for number in 0..COUNT {
        writeln!(mixed, "{}", number * 7919 % COUNT).expect("a string");
        writeln!(sorted, "{number}").expect("a string");
    }
    (mixed, sorted)
}

fn end(child: Child) -> Output {
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_program_whose_pages_go_to_redis_says_what_it_says_alone() {
    if !ready("a_program_whose_pages_go_to_redis_says_what_it_says_alone") {
        return;
    }
    let redis = Redis::start();
    let mut child = sort(&redis.place());
    let (mixed, sorted) = lines();
    let mut stdin = child.stdin.take().expect("a pipe");
    let feeder = thread::spawn(move || stdin.write_all(mixed.as_bytes()).expect("it reads"));
    let output = end(child);
    feeder.join().expect("no panic");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(text(&output.stdout) == sorted, "it is not sorted");
    let report: Value = serde_json::from_str(&said).expect(&said);
    let far = &report["far"];
    assert!(far["puts_total"].as_u64() > Some(0), "{far}");
    assert!(far["gets_total"].as_u64() > Some(0), "{far}");
    assert_eq!(far["engine"], format!("redis at 127.0.0.1:{}", redis.port));
    assert_eq!(redis.values(), 0, "nothing is left behind");
}

#[test]
fn a_run_whose_redis_is_gone_ends_with_the_reason() {
    let test = "a_run_whose_redis_is_gone_ends_with_the_reason";
    if !ready(test) {
        return;
    }
    if !has("python3") {
        return skip(test, "no python3");
    }
    let mut redis = Redis::start();
    let memory = ["run", "--limit", "16MiB", "--store-limit", "8MiB", "--backing"];
    let place = redis.place();
    let program = ["--backing-size", "256MiB", "--", "python3", "-c", READER];
    let line = [&memory[..], &[&place], &program[..]].concat();
    let mut child =
        command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut ready = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut ready).expect("a line");
    assert_eq!(ready, "ready\n");
    assert!(redis.values() > 0, "no page went there");
    redis.kill();
    let output = end(child);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("redis at 127.0.0.1"), "{said}");
}

#[test]
fn a_redis_that_is_not_there_is_a_failure_of_zfold() {
    let place = "redis://127.0.0.1:1";
    let line = ["run", "--store-limit", "8MiB", "--backing", place, "--", "true"];
    let output = command(&line).output().expect("it starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("redis at 127.0.0.1:1"), "{said}");
}

#[test]
fn a_password_on_the_command_line_is_refused_and_not_repeated() {
    let place = "redis://me:hunter2@127.0.0.1";
    let line = ["run", "--store-limit", "8MiB", "--backing", place, "--", "true"];
    let output = command(&line).output().expect("it starts");
    let said = text(&output.stderr);
    assert!(said.contains("ZFOLD_REDIS_PASSWORD") && !said.contains("hunter2"), "{said}");
    assert_eq!(output.status.code(), Some(2), "{said}");
}
