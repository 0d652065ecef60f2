//! Real servers of Redis on loopback, alone and as a cluster. Tests of the program use them, too.

use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

#[path = "../common/loopback.rs"]
mod loopback;

/// How long a server, or a cluster, may take to be ready on a busy machine.
const READY: Duration = Duration::from_secs(60);

/// Returns whether there are the programs that the tests need, and says so if not.
pub(crate) fn ready(test: &str) -> bool {
    let is_there = |program: &str| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).status().is_ok_and(|end| end.success())
    };
    let ready = is_there("redis-server") && is_there("redis-cli");
    if !ready {
        // Not by a macro, whose output the test harness would keep to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: no redis-server, or no redis-cli");
    }
    ready && has_loopback(test)
}

/// Returns whether there is loopback, and says so if not.
pub(crate) fn has_loopback(test: &str) -> bool {
    let there = loopback::is_there();
    if !there {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: no loopback network");
    }
    there
}

/// A server, which ends with this.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    _folder: TempDir,
}

impl Server {
    /// Starts a server and waits until it answers.
    pub(crate) fn start(options: &[&str]) -> Self {
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
            let mut server = Self { child, port, _folder: folder };
            // It ends if somebody else has taken the port meanwhile.
            while server.child.try_wait().expect("a status").is_none() {
                if server.try_cli(&["PING"]).is_some_and(|said| !said.is_empty()) {
                    return server;
                }
                assert!(begun.elapsed() < READY, "redis-server does not answer");
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Sends a command and returns what the server says, which must not be an error.
    pub(crate) fn cli(&self, command: &[&str]) -> String {
        self.try_cli(command).unwrap_or_else(|| panic!("{command:?}"))
    }

    pub(crate) fn try_cli(&self, command: &[&str]) -> Option<String> {
        let output = Command::new("redis-cli")
            .args(["-e", "-p", &self.port.to_string()])
            .args(command)
            .output()
            .expect("redis-cli starts");
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(said)
    }

    /// Returns how many values it has.
    pub(crate) fn values(&self) -> usize {
        self.cli(&["DBSIZE"]).parse().expect("a number")
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns it as a place of pages.
    pub(crate) fn place(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a signal");
        self.child.wait().expect("an end");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("a signal");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a port that nobody listens at now.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    listener.local_addr().expect("an address").port()
}

/// Three masters, each with a replica.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
}

impl Cluster {
    /// Starts a cluster and waits until each node says that it is whole.
    pub(crate) fn start() -> Self {
        let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
        let nodes: Vec<_> = (0..6).map(|_| Server::start(&options)).collect();
        let addresses: Vec<_> = nodes.iter().map(Server::address).collect();
        let output = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(&addresses)
            .args(["--cluster-replicas", "1", "--cluster-yes"])
            .output()
            .expect("redis-cli starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let cluster = Self { nodes };
        let synced = |node: &Server| {
            let info = node.cli(&["INFO", "replication"]);
            info.contains("role:master") || info.contains("master_link_status:up")
        };
        let is_whole = |node: &Server| {
            node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok") && synced(node)
        };
        let begun = Instant::now();
        while !cluster.nodes.iter().all(is_whole) || cluster.masters().len() != 3 {
            assert!(begun.elapsed() < READY, "no cluster");
            thread::sleep(Duration::from_millis(50));
        }
        cluster
    }

    /// Returns which nodes are masters by what they say themselves; those that are alive.
    pub(crate) fn masters(&self) -> Vec<usize> {
        let is_master =
            |node: &Server| node.try_cli(&["ROLE"]).is_some_and(|said| said.starts_with("master"));
        (0..self.nodes.len()).filter(|node| is_master(&self.nodes[*node])).collect()
    }

    pub(crate) fn place(&self, copies: usize) -> String {
        // One node is enough to find the others; two, if that one is gone.
        let nodes = [self.nodes[0].address(), self.nodes[1].address()];
        format!("redis://{}/?copies={copies}", nodes.join(","))
    }
}
