//! A `zfold disk` of a test: started, asked, and ended in any case.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use zfold_testing::nbd::Plain as Client;
use zfold_testing::process::Killed;
use zfold_testing::wait::PATIENCE;
use zfold_testing::{Random, random};

use crate::common;

/// A running server.
pub(crate) struct Server {
    child: Killed,
    runtime: PathBuf,
    /// The lines that it told its addresses in.
    pub(crate) addresses: Vec<String>,
    said: Receiver<String>,
}

/// Returns `zfold` with `runtime` as its runtime directory, and no service manager.
pub(crate) fn zfold(runtime: &Path, arguments: &[&str]) -> Command {
    let mut command = common::command(arguments);
    command.env("XDG_RUNTIME_DIR", runtime).stdin(Stdio::null());
    for name in ["NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS"] {
        command.env_remove(name);
    }
    command
}

impl Server {
    /// Starts `zfold disk` with its sockets in `runtime`, and waits until it serves.
    pub(crate) fn start(runtime: &Path, arguments: &[&str]) -> Self {
        let arguments = [&["disk", "--no-mlock"], arguments].concat();
        Self::spawn(runtime, zfold(runtime, &arguments))
    }

    /// Runs `command`, a server, and waits until it serves.
    pub(crate) fn spawn(runtime: &Path, mut command: Command) -> Self {
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.expect("the program starts");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let (say, said) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                // A test that has ended does not listen any more.
                let _ = say.send(line);
            }
        });
        // All addresses come in one write.
        let mut text = vec![0; 4096];
        let len = child.stdout.as_mut().expect("a pipe").read(&mut text).expect("read");
        let text = String::from_utf8_lossy(&text[..len]).into_owned();
        let runtime = runtime.to_owned();
        let child = Killed(child);
        let server =
            Self { child, runtime, addresses: text.lines().map(str::to_owned).collect(), said };
        assert!(
            !server.addresses.is_empty(),
            "no address: {:?}",
            server.said.recv_timeout(PATIENCE)
        );
        server
    }

    /// Returns the path of its NBD socket.
    pub(crate) fn socket(&self) -> PathBuf {
        let uri = self.addresses[0].split_whitespace().next().expect("an address");
        uri.split_once("socket=").expect("a Unix socket").1.into()
    }

    /// Connects to the export of that name.
    pub(crate) fn connect(&self, name: &str) -> Client {
        Client::connect(&self.socket(), name)
    }

    /// Asks by `zfold ctl`.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> Output {
        let arguments = [&["ctl"], arguments].concat();
        zfold(&self.runtime, &arguments).output().expect("the program starts")
    }

    /// Asks by `zfold ctl` what must succeed; returns its result.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Value {
        let output = self.ctl(&[&["--json"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Returns the statistics.
    pub(crate) fn stat(&self) -> Value {
        let output = zfold(&self.runtime, &["stat", "--format", "json"]).output();
        serde_json::from_slice(&output.expect("the program starts").stdout).expect("JSON")
    }

    /// Returns the bytes of memory that it has in its own name, as the system counts them.
    pub(crate) fn resident(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("a size");
        number.parse::<u64>().expect("a number") << 10
    }

    /// Returns the number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for a line on stderr that holds `part`, and returns it.
    pub(crate) fn heard(&self, part: &str) -> String {
        loop {
            let line = self.said.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("it did not say {part:?}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Ends it in order, and returns its exit status and what it said last.
    pub(crate) fn stop(self) -> (Option<i32>, Vec<String>) {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Waits for its end, and returns its exit status and what it said last.
    pub(crate) fn ended(mut self) -> (Option<i32>, Vec<String>) {
        let status = self.child.wait().expect("it ends");
        (status.code(), self.said.iter().collect())
    }

    /// Ends it at once, with all its sockets left behind.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

/// Returns a page that compresses to about a quarter, different for each `number`.
pub(crate) fn page(number: u32) -> Vec<u8> {
    let (mut page, mut random) = (vec![0; 4096], Random::new(number.into()));
    page.chunks_mut(8).for_each(|part| random.fill(&mut part[..2]));
    page
}

/// Returns a page that does not compress.
pub(crate) fn noise(number: u32) -> Vec<u8> {
    random::noise(number.into(), 4096)
}

/// Returns a path as an argument.
pub(crate) fn text(path: &(impl AsRef<OsStr> + ?Sized)) -> &str {
    path.as_ref().to_str().expect("a plain path")
}
