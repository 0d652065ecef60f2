//! A `zfold guest serve` of a test: started, asked, and ended in any case.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use zfold_testing::output::results;
use zfold_testing::process::Killed;
use zfold_testing::wait_until;

use crate::common;

/// A running server with a runtime directory of its own.
pub(crate) struct Server {
    child: Killed,
    pub(crate) folder: TempDir,
    /// The images that it began with, and their sockets.
    pub(crate) told: Vec<(String, PathBuf)>,
}

impl Server {
    /// Starts a server in a folder, and waits until it serves so many images.
    pub(crate) fn start(folder: TempDir, arguments: &[&str], images: usize) -> Self {
        let arguments = [&["guest", "serve", "--no-mlock"], arguments].concat();
        let mut command = zfold(folder.path(), &arguments);
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut child = spawned.expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let told: Vec<_> = (0..images)
            .map(|_| {
                let line = lines.next().expect("an image").expect("text");
                let (name, path) = line.split_once(' ').expect("a name and a path");
                (name.to_owned(), path.into())
            })
            .collect();
        let server = Self { child: Killed(child), folder, told };
        wait_until("it answers", || server.run(&["guest", "list"]).status.success());
        server
    }

    /// Runs a command of this server's user.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        zfold(self.folder.path(), arguments).output().expect("the program starts")
    }

    /// Starts a command, the output of which is read while it is at work.
    pub(crate) fn starts(&self, arguments: &[&str]) -> Child {
        let mut command = zfold(self.folder.path(), arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    }

    /// Runs a command that must succeed, and returns what it prints.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        results(self.run(arguments))
    }

    /// Checks that a command is refused, with these parts in its line.
    pub(crate) fn refused(&self, arguments: &[&str], parts: &[&str]) {
        common::assert_line(&self.run(arguments), 1, parts);
    }

    pub(crate) fn stat(&self) -> Value {
        serde_json::from_str(&self.done(&["guest", "stat", "--json"])).expect("JSON")
    }

    /// Has it end in order; returns its folder.
    pub(crate) fn end(mut self) -> TempDir {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("it runs");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
        self.folder
    }
}

/// Returns `zfold` with `runtime` as its runtime directory, and no service manager.
fn zfold(runtime: &Path, arguments: &[&str]) -> Command {
    let mut command = common::command(arguments);
    command.env("XDG_RUNTIME_DIR", runtime).env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
    command
}

/// Writes a memory file of so many pages: every fourth page has a text that depends on `seed`.
pub(crate) fn memory(path: &Path, pages: u64, seed: u64) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::create(path).expect("a file");
    file.set_len(pages * 4096).expect("a length");
    for page in (0..pages).step_by(4) {
        let words = (0..512_u64).map(|n| ((((seed << 20) | page) << 8) | (n / 9)).to_le_bytes());
        file.write_all_at(&words.flatten().collect::<Vec<_>>(), page * 4096).expect("written");
    }
}
