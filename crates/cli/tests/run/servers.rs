//! A server under load whose limit changes: its clients see no error.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value;
use tempfile::tempdir;
use zfold_testing::skip::has_program;
use zfold_testing::wait::{Over, wait_until};

use crate::common::needs;
use crate::granted::Granted;
use crate::runs::can_manage;
use zfold_testing::process::Killed;

/// Keys of the server, of 2 KiB each: 130 MiB with what the server adds.
const KEYS: u64 = 60_000;

/// Who runs the server, with the runtime directory.
struct Place<'a> {
    /// None: the one who runs the tests.
    user: Option<Granted>,
    runtime: &'a Path,
}

impl Place<'_> {
    fn zfold(&self, arguments: &[&str]) -> Command {
        let zfold = env!("CARGO_BIN_EXE_zfold");
        let mut command =
            self.user.as_ref().map_or_else(|| Command::new(zfold), |user| user.command(zfold));
        command.args(arguments).env("XDG_RUNTIME_DIR", self.runtime);
        command
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.zfold(arguments).output().expect("it starts");
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

/// Checks that the resident memory of a server follows its limit while clients use it.
fn follows_its_limit(user: Option<Granted>) {
    needs!(has_program("redis-server"), "no redis-server");
    let folder = tempdir().expect("a folder");
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).expect("a folder of ours");
    let place = Place { user, runtime: folder.path() };
    let socket = folder.path().join("redis");
    let line = ["run", "--limit", "96MiB", "--", "redis-server", "--port", "0", "--save", ""];
    let mut server = place.zfold(&line);
    server.arg("--unixsocket").arg(&socket).current_dir(folder.path());
    server.args(["--unixsocketperm", "777"]).stdout(Stdio::null());
    let server = Killed(server.spawn().expect("it starts"));
    let mut client = None;
    wait_until("the server listens", || {
        client = Client::connect(&socket);
        client.is_some()
    });
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
        let end = Over(&ends);
        let resident = || {
            let state = place.json(&["ctl", "--json", "--pid", &pid, "stat"]);
            state["resident_bytes"].as_u64().expect("bytes")
        };
        let set = |limit: &str| {
            let word = format!("limit={limit}");
            place.json(&["ctl", "--json", "--pid", &pid, "set", &word])
        };
        assert_eq!(set("48MiB")["limit_bytes"], 48 << 20);
        wait_until("the new limit is kept", || resident() <= 48 << 20);
        // Whoever looks sees the same.
        let listed = place.json(&["ps", "--json"]);
        assert_eq!(
            (&listed["runs"][0]["pid"], &listed["runs"][0]["limit_bytes"]),
            (&pid.parse::<u64>().expect("a number").into(), &(48 << 20).into())
        );
        wait_until("faults are seen", || {
            let top = place.json(&["top", "--once", "--json"]);
            top["runs"][0]["faults_per_second"].as_f64() > Some(0.0)
        });
        let before = served.load(Ordering::Relaxed);
        set("96MiB");
        wait_until("the new limit is used", || resident() > 60 << 20);
        wait_until("clients are served", || served.load(Ordering::Relaxed) > before);
        drop(end);
    });
    let state = place.json(&["ctl", "--json", "--pid", &pid, "stat"]);
    assert!(state["loads_total"].as_u64() > Some(0), "{state}");
}

#[test]
fn redis_follows_its_limit_while_clients_use_it() {
    if can_manage() {
        follows_its_limit(None);
    }
}

#[test]
fn redis_of_a_plain_user_follows_its_limit() {
    needs!(
        rustix::process::geteuid().is_root(),
        "this user is a plain one: the other test is the same"
    );
    if let Some(user) = Granted::new() {
        follows_its_limit(Some(user));
    }
}
