//! Real servers of Redis on loopback.

use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::process::Killed;
use crate::skip::{free_port, has_loopback, installed};
use crate::wait::PATIENCE;

/// Returns whether there are the programs that the tests need, and loopback; says so if not.
pub fn ready() -> bool {
    installed(&["redis-server", "redis-cli"]) && has_loopback()
}

/// A server, which ends with this.
pub struct Server {
    child: Killed,
    pub port: u16,
    _folder: TempDir,
}

impl Server {
    /// Starts a server and waits until it answers.
    pub fn start(options: &[&str]) -> Self {
        let begun = Instant::now();
        loop {
            let (port, bus) = (free_port(), free_port());
            let folder = tempfile::tempdir().expect("a folder");
            let child = Command::new("redis-server")
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
                .args(["--cluster-port", &bus.to_string()])
                .arg("--dir")
                .arg(folder.path())
                .args(options)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("redis-server starts");
            let mut server = Self { child: Killed(child), port, _folder: folder };
            // It ends if another server has taken the port meanwhile, which answers then.
            let own = format!("process_id:{}", server.child.id());
            while server.child.try_wait().expect("a status").is_none() {
                if server.try_cli(&["INFO", "server"]).is_some_and(|said| said.contains(&own)) {
                    return server;
                }
                assert!(begun.elapsed() < PATIENCE, "redis-server does not answer");
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }

    /// Sends a command and returns what the server says, which must not be an error.
    pub fn cli(&self, command: &[&str]) -> String {
        self.try_cli(command).unwrap_or_else(|| panic!("{command:?}"))
    }

    pub fn try_cli(&self, command: &[&str]) -> Option<String> {
        let output = Command::new("redis-cli")
            .args(["-e", "-p", &self.port.to_string()])
            .args(command)
            .output()
            .expect("redis-cli starts");
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(said)
    }

    /// Returns how many values it has.
    pub fn values(&self) -> usize {
        self.cli(&["DBSIZE"]).parse().expect("a number")
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns it as a place of pages.
    pub fn place(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("a signal");
        self.child.wait().expect("an end");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("a signal");
    }
}
