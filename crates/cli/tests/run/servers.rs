//! A server under load whose limit changes: its clients see no error.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::tempdir;

use crate::common::skip;
use crate::runs::{Ended, has};

/// Keys of the server, of 2 KiB each: 130 MiB with what the server adds.
const KEYS: u64 = 60_000;

/// Who runs the server.
#[derive(Clone, Copy, PartialEq)]
enum User {
    /// The one who runs the tests.
    This,
    /// Another without any rights; only root can choose that.
    Plain,
}

impl User {
    fn command(self) -> Command {
        match self {
            Self::This => Command::new(env!("CARGO_BIN_EXE_zfold")),
            Self::Plain => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
                command.arg(env!("CARGO_BIN_EXE_zfold"));
                command
            }
        }
    }

    /// Returns a command in this runtime directory.
    fn zfold(self, runtime: &Path, arguments: &[&str]) -> Command {
        let mut command = self.command();
        command.args(arguments).env("XDG_RUNTIME_DIR", runtime);
        command
    }

    fn json(self, runtime: &Path, arguments: &[&str]) -> Value {
        let output = self.zfold(runtime, arguments).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

/// A client of the server.
struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(socket: &Path) -> Option<Self> {
        UnixStream::connect(socket).ok().map(|stream| Self(BufReader::new(stream)))
    }

    fn value(key: u64) -> String {
        format!("{key:08}").repeat(256)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("an answer");
        line
    }

    /// Sets a batch of keys at once.
    fn set(&mut self, keys: std::ops::Range<u64>) {
        let lines = keys.clone().map(|key| format!("SET {key} {}\r\n", Self::value(key)));
        self.0.get_mut().write_all(lines.collect::<String>().as_bytes()).expect("sent");
        keys.for_each(|_| assert_eq!(self.line(), "+OK\r\n"));
    }

    fn get(&mut self, key: u64) {
        self.0.get_mut().write_all(format!("GET {key}\r\n").as_bytes()).expect("sent");
        assert_eq!(self.line(), "$2048\r\n", "key {key}");
        let mut value = vec![0; 2050];
        self.0.read_exact(&mut value).expect("a value");
        assert_eq!(&value[..2048], Self::value(key).as_bytes(), "key {key}");
    }
}

/// Waits for at most five seconds until `what` is so; returns whether it is.
fn within_five_seconds(mut what: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        let is_so = what();
        if is_so || began.elapsed() > Duration::from_secs(5) {
            return is_so;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Checks that the resident memory of a server follows its limit while clients use it.
fn follows_its_limit(test: &str, user: User) {
    if !has("redis-server") {
        return skip(test, "no redis-server");
    }
    let folder = tempdir().expect("a folder");
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).expect("a folder of ours");
    let runtime = folder.path();
    let works = user.zfold(runtime, &["run", "--limit", "64MiB", "--", "true"]).output();
    match works {
        Ok(output) if output.status.success() => {}
        Ok(output) => return skip(test, String::from_utf8_lossy(&output.stderr).trim()),
        Err(_) => return skip(test, "no setpriv"),
    }
    let socket = folder.path().join("redis");
    let line = ["run", "--limit", "96MiB", "--", "redis-server", "--port", "0", "--save", ""];
    let mut server = user.zfold(runtime, &line);
    server.arg("--unixsocket").arg(&socket).current_dir(folder.path());
    server.args(["--unixsocketperm", "777"]).stdout(Stdio::null());
    let server = Ended(server.spawn().expect("it starts"));
    let mut client = None;
    assert!(within_five_seconds(|| {
        client = Client::connect(&socket);
        client.is_some()
    }));
    let mut client = client.expect("connected");
    (0..KEYS).step_by(100).for_each(|key| client.set(key..key + 100));

    let pid = server.0.id().to_string();
    let (ends, served) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (socket, ends, served) = (&socket, &ends, &served);
            scope.spawn(move || {
                let mut client = Client::connect(socket).expect("connected");
                let mut key = number;
                while !ends.load(Ordering::Relaxed) {
                    // Visits all of them, in no order that a server could foresee.
                    key = (key + 37_199) % KEYS;
                    client.get(key);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let end = End(&ends);
        let resident = || {
            let state = user.json(runtime, &["ctl", "--json", "--pid", &pid, "stat"]);
            state["resident_bytes"].as_u64().expect("bytes")
        };
        let set = |limit: &str| {
            let word = format!("limit={limit}");
            user.json(runtime, &["ctl", "--json", "--pid", &pid, "set", &word])
        };
        assert_eq!(set("48MiB")["limit_bytes"], 48 << 20);
        assert!(within_five_seconds(|| resident() <= 48 << 20), "{} resident", resident());
        let before = served.load(Ordering::Relaxed);
        set("96MiB");
        assert!(within_five_seconds(|| resident() > 60 << 20), "{} resident", resident());
        assert!(served.load(Ordering::Relaxed) > before, "clients were served meanwhile");
        drop(end);
    });
    let state = user.json(runtime, &["ctl", "--json", "--pid", &pid, "stat"]);
    assert!(state["loads_total"].as_u64() > Some(0), "{state}");
}

/// Ends the clients, also where a test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn redis_follows_its_limit_while_clients_use_it() {
    follows_its_limit("redis_follows_its_limit_while_clients_use_it", User::This);
}

#[test]
fn redis_of_a_plain_user_follows_its_limit() {
    let test = "redis_of_a_plain_user_follows_its_limit";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "this user is a plain one: the other test is the same");
    }
    follows_its_limit(test, User::Plain);
}
