//! A run that is listed, looked at and steered while it goes on.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::tempdir;
use zfold_testing::skip::has_program;
use zfold_testing::wait_for;

use crate::common::{command, needs};
use crate::runs::{can_manage, text};
use zfold_testing::process::Killed;

/// Writes to 96 MiB again and again and checks what it wrote before.
const WORKLOAD: &str = r#"
import sys, time
pages = [bytes([n % 251]) * 4096 for n in range(24576)]
memory = [bytearray(page) for page in pages]
print("ready", flush=True)
while True:
    for n in range(0, 24576, 7):
        assert memory[n] == pages[n], n
    time.sleep(0.01)
"#;

fn at(mut command: Command, runtime: &Path) -> Command {
    command.env("XDG_RUNTIME_DIR", runtime);
    command
}

fn json(runtime: &Path, arguments: &[&str]) -> Value {
    let output = at(command(arguments), runtime).output().expect("it starts");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns what is answered to a request by HTTP.
fn by_http(socket: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("connected");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: run\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Waits until as much is resident as should be after some words to the run.
fn wait_for_resident(runtime: &Path, pid: &str, word: &str, is_right: impl Fn(u64) -> bool) -> u64 {
    wait_for(|| {
        let state = json(runtime, &["ctl", "--json", "--pid", pid, word]);
        let resident = state["resident_bytes"].as_u64().expect("bytes");
        if is_right(resident) { Ok(resident) } else { Err(state.to_string()) }
    })
}

#[test]
fn a_run_follows_its_limit_while_it_goes_on() {
    needs!(can_manage());
    needs!(has_program("python3"), "no python3");
    let runtime = tempdir().expect("a directory");
    let line = ["run", "--limit", "80MiB", "--", "python3", "-c", WORKLOAD];
    let (mut run, said) = Killed::ready(&mut at(command(&line), runtime.path()));
    assert_eq!(said, "ready");

    let pid = run.0.id().to_string();
    let socket = runtime.path().join(format!("zfold/{pid}.run"));
    let found = socket.metadata().expect("a socket");
    let folder = runtime.path().join("zfold").metadata().expect("a folder");
    assert_eq!((found.permissions().mode() & 0o777, folder.mode() & 0o777), (0o600, 0o700));

    let list = json(runtime.path(), &["ps", "--json"]);
    assert_eq!(list["schema"], "zfold.ps/1");
    assert_eq!(list["runs"][0]["pid"].to_string(), pid);
    assert_eq!(list["runs"][0]["limit_bytes"], 80 << 20);
    let table = at(command(&["ps"]), runtime.path()).output().expect("it starts");
    assert!(text(&table.stdout).contains("python3 -c"));
    let table = at(command(&["stat", "--pid", &pid]), runtime.path()).output().expect("it starts");
    assert!(text(&table.stdout).contains("80.00 MiB"), "{}", text(&table.stdout));

    let metrics = by_http(&socket, "/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    let limit = format!("\nzfold_run_limit_bytes{{pid=\"{pid}\"}} {}\n", 80 << 20);
    assert!(metrics.contains(&limit), "no {limit} in {metrics}");
    assert!(by_http(&socket, "/").starts_with("HTTP/1.1 404"));

    let set = |limit: &str| {
        let word = format!("limit={limit}");
        json(runtime.path(), &["ctl", "--json", "--pid", &pid, "set", &word])
    };
    assert_eq!(set("40MiB")["limit_bytes"], 40 << 20);
    wait_for_resident(runtime.path(), &pid, "stat", |resident| resident <= 40 << 20);
    assert_eq!(set("auto")["limit_auto"], true);
    assert_eq!(set("160MiB")["limit_auto"], false);
    let raised = wait_for_resident(runtime.path(), &pid, "stat", |resident| resident > 48 << 20);
    // The program may bring back much before anybody looks.
    wait_for_resident(runtime.path(), &pid, "page-out", |resident| resident < raised);

    let packed = json(runtime.path(), &["ctl", "--json", "--pid", &pid, "set", "codec=lz4"]);
    assert_eq!(packed["codec"], "lz4");
    json(runtime.path(), &["ctl", "--json", "--pid", &pid, "page-out"]);

    let roomy = json(runtime.path(), &["ctl", "--json", "--pid", &pid, "set", "store-limit=1GiB"]);
    assert_eq!(roomy["store_limit_bytes"], 1 << 30);
    for (words, told) in [
        (["set", "limit=1MiB"], "4MiB or more"),
        (["set", "store-limit=1MiB"], "there is no backing file"),
        (["set", "codec=zstd:9"], "this run can use page, lz4, zstd"),
        (["set", "codec=rar"], "rar"),
        (["set", "allocator=fit"], "codec=NAME"),
        (["set", "limit=x"], "a size is"),
        (["idle", "all"], "a run supports"),
    ] {
        let line = [&["ctl", "--pid", &*pid], &words[..]].concat();
        let output = at(command(&line), runtime.path()).output().expect("it starts");
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(told), "{}", text(&output.stderr));
    }
    assert!(run.0.try_wait().expect("a status").is_none(), "the program found a wrong byte");
    drop(run);
}
