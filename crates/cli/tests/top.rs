//! `zfold top` beside a real run and a real disk: as a table, as JSON, and on a terminal.

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::{assert_line, command, needs, skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::{TempDir, tempdir};
use zfold_testing::process::Killed;
use zfold_testing::{wait_for, wait_until};

fn at(runtime: &Path, arguments: &[&str]) -> Command {
    let mut command = command(arguments);
    command.env("XDG_RUNTIME_DIR", runtime);
    command
}

/// A disk without contents; it needs no rights.
fn disk() -> (TempDir, Killed) {
    let runtime = tempdir().expect("a folder");
    let (disk, address) = Killed::ready(&mut at(runtime.path(), &["disk", "--size", "64MiB"]));
    assert!(address.starts_with("nbd"), "{address}");
    (runtime, disk)
}

fn document(line: &[u8]) -> Value {
    serde_json::from_slice(line).expect("a document")
}

#[test]
fn once_is_one_table_or_one_document() {
    let (runtime, disk) = disk();
    let output = at(runtime.path(), &["top", "--once"]).output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success() && output.stderr.is_empty(), "{text}");
    assert!(text.starts_with("memory ") && text.contains(", zram "), "{text}");
    let last = text.lines().last().expect("a line");
    assert!(last.trim_start().starts_with(&disk.0.id().to_string()), "{text}");
    assert!(last.contains(" disk ") && last.contains(" none "), "{text}");

    let output = at(runtime.path(), &["top", "--once", "--json"]).output().expect("it starts");
    let document = document(&output.stdout);
    assert_eq!(document["schema"], "zfold.top/1");
    assert_eq!(document["disks"][0]["pid"], disk.0.id());
    assert_eq!(document["disks"][0]["reads_per_second"], 0.0);
    assert_eq!(document["disks"][0]["ratio"], Value::Null);
    assert!(document["machine"]["available_bytes"].is_u64(), "{document}");
}

#[test]
fn documents_come_until_the_reader_leaves() {
    let (runtime, _disk) = disk();
    let mut top = at(runtime.path(), &["top", "--json"]);
    let mut top = top.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(top.stdout.take().expect("a pipe")).lines();
    let times = [(); 2].map(|()| {
        let line = lines.next().expect("a line").expect("text");
        document(line.as_bytes())["unix_time_ms"].as_u64().expect("a time")
    });
    assert!(times[0] < times[1]);
    drop(lines);
    assert!(top.wait().expect("it ends").success());
}

#[test]
fn without_a_terminal_it_says_what_to_give() {
    assert_line(&command(&["top"]).output().expect("it starts"), 2, &["--once or --json"]);
}

/// Reads 48 MiB again and again, of which not all is resident.
const WORKLOAD: &str = "
pages = [bytearray(4096) for _ in range(12288)]
for n, page in enumerate(pages): page[0] = n % 251
print('ready', flush=True)
while True:
    for n, page in enumerate(pages): assert page[0] == n % 251
";

#[test]
fn a_run_under_load_has_rates() {
    let runtime = tempdir().expect("a folder");
    let mut works = at(runtime.path(), &["run", "--limit", "64MiB", "--", "python3", "--version"]);
    needs!(
        works.output().is_ok_and(|output| output.status.success()),
        "zfold run does not work here, or no python3"
    );
    let line = ["run", "--limit", "24MiB", "--", "python3", "-c", WORKLOAD];
    let (run, said) = Killed::ready(&mut at(runtime.path(), &line));
    assert_eq!(said, "ready");
    // On a busy machine a look may fall into a time without work.
    let found = wait_for(|| {
        let output = at(runtime.path(), &["top", "--once", "--json"]).output().expect("it starts");
        let found = document(&output.stdout)["runs"][0].take();
        let names = ["faults_per_second", "evictions_per_second", "ratio", "recent_fault_p99_ns"];
        let has = |name| found[name].as_f64().is_some_and(|value| value > 0.0);
        if names.into_iter().all(has) { Ok(found) } else { Err(found) }
    });
    assert_eq!(found["pid"], run.0.id());
    assert!(found["recent_fault_p50_ns"].as_u64() <= found["recent_fault_p99_ns"].as_u64());
    assert!(found.get("fault_histogram_ns").is_none(), "{found}");
    let mut watch = at(runtime.path(), &["stat", "--pid", &run.0.id().to_string()]);
    let mut watch = watch.args(["--watch", "1"]).stdout(Stdio::piped()).spawn().expect("starts");
    let lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let rated =
        lines.map_while(Result::ok).find(|line| line.contains("faults") && line.contains("/s"));
    assert!(rated.is_some(), "no rate of faults");
    // Its reader has left.
    let _ = watch.wait();
}

/// A shell on a terminal of its own.
struct Terminal {
    shell: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    seen: String,
}

impl Terminal {
    /// Runs a script there; none without the program that makes the terminal.
    fn run(runtime: &Path, script: &str) -> Option<Self> {
        let mut command = Command::new("script");
        command.args(["-qec", script, "/dev/null"]).env("XDG_RUNTIME_DIR", runtime);
        command.env("TERM", "xterm").env("SHELL", "/bin/sh");
        command.env("zfold", env!("CARGO_BIN_EXE_zfold"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = command.spawn().ok()?;
        let keys = shell.stdin.take().expect("a pipe");
        let screen = shell.stdout.take().expect("a pipe");
        Some(Self { shell, keys, screen, seen: String::new() })
    }

    /// Reads until `part` is on the screen; returns what came before it.
    fn wait_for(&mut self, part: &str) -> String {
        let mut bytes = [0; 4096];
        while !self.seen.contains(part) {
            let len = self.screen.read(&mut bytes).expect("a terminal");
            assert!(len > 0, "no {part:?} at the end of {:?}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..len]));
        }
        let at = self.seen.find(part).expect("found");
        let before = self.seen[..at].to_owned();
        self.seen.drain(..at + part.len());
        before
    }
}

/// What a terminal is told when a program takes it over, and when it gives it back.
const TAKEN: &str = "\x1b[?1049h";
const GIVEN_BACK: &str = "\x1b[?1049l";

#[test]
fn the_terminal_is_given_back_whoever_ends_the_view() {
    let (runtime, disk) = disk();
    let state =
        "echo \"ended=$?\"; stty -a | tr ' ' '\\n' | grep -x -e icanon -e echo | tr '\\n' ,";
    let script = format!("stty rows 24 cols 80; \"$zfold\" top; {state}");
    let Some(mut terminal) = Terminal::run(runtime.path(), &script) else {
        return skip("no script (package bsdutils)");
    };
    terminal.wait_for(TAKEN);
    terminal.wait_for(&disk.0.id().to_string());
    terminal.keys.write_all(b"\r").expect("it reads");
    terminal.wait_for("mem_used_total");
    terminal.keys.write_all(b"q").expect("it reads");
    terminal.wait_for(GIVEN_BACK);
    terminal.wait_for("ended=0");
    terminal.wait_for("icanon,");
    terminal.wait_for("echo,");
    terminal.shell.wait().expect("it ends");

    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let script =
            format!("stty rows 24 cols 80; sh -c 'echo process=$$.; exec \"$zfold\" top'; {state}");
        let Some(mut terminal) = Terminal::run(runtime.path(), &script) else { return };
        terminal.wait_for("process=");
        let process = terminal.wait_for(".");
        terminal.wait_for(TAKEN);
        terminal.wait_for(&disk.0.id().to_string());
        let process = process.parse().ok().and_then(Pid::from_raw).expect("a number");
        kill_process(process, signal).expect("it runs");
        terminal.wait_for(GIVEN_BACK);
        terminal.wait_for(&format!("ended={status}"));
        terminal.wait_for("icanon,");
        terminal.shell.wait().expect("it ends");
    }
}

#[test]
fn a_terminal_that_goes_ends_the_view() {
    let (runtime, disk) = disk();
    let script = "stty rows 24 cols 80; sh -c 'echo process=$$.; exec \"$zfold\" top'";
    let Some(mut terminal) = Terminal::run(runtime.path(), script) else {
        return skip("no script (package bsdutils)");
    };
    terminal.wait_for("process=");
    let process = terminal.wait_for(".");
    terminal.wait_for(&disk.0.id().to_string());
    terminal.shell.kill().expect("it runs");
    terminal.shell.wait().expect("it ends");
    // Who takes the place of its parent may not wait for it.
    wait_until(format_args!("process {process} has ended"), || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    });
}

/// As many connections wait for one that was stopped, after some minutes of `zfold top`, as the
/// kernel keeps for it; and it would be asked for a second.
#[test]
fn what_was_stopped_holds_up_nobody() {
    const STOPPED: u64 = 60;
    let (runtime, disk) = disk();
    let folder = runtime.path().join("zfold");
    let stopped: Vec<_> = (1..=STOPPED)
        .map(|number| {
            let path = folder.join(format!("{number}.run"));
            let server = UnixListener::bind(&path).expect("a server that accepts nothing");
            rustix::net::listen(&server, 0).expect("with room for one connection");
            let full = |_: &u32| zfold_disk::nbd::connect_within(&path, Duration::from_millis(1));
            // One has no room, the others are asked in vain.
            assert!(number > 1 || (0..9).take_while(|at| full(at).is_ok()).count() < 9);
            server
        })
        .collect();
    for words in [&["ps"][..], &["top", "--once"], &["disk", "--size", "1MiB", "--run", "true"]] {
        let began = Instant::now();
        let mut child = Killed(at(runtime.path(), words).stdout(Stdio::piped()).spawn().unwrap());
        wait_until("it ends", || child.0.try_wait().expect("a child").is_some());
        let took = began.elapsed();
        // One after another, each would be waited for.
        assert!(took < Duration::from_secs(STOPPED), "{words:?}: {took:?}");
        let mut text = String::new();
        child.0.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
        let shown = text.contains(&disk.0.id().to_string());
        assert!(shown || words[0] == "disk", "{words:?}: {text}");
    }
    drop(stopped);
}
