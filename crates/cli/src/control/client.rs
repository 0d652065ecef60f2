//! The client of a control socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use zfold_disk::nbd::connect_within;

use super::protocol::{Reply, Request};
use super::runtime;
use crate::args::Target;
use crate::shared::exit::Failure;

/// Longest reply that is read, in bytes: more than any has.
const REPLY_LEN_MAX: u64 = 16 << 20;

/// How long a server may have no room for a connection.
const ROOM: Duration = Duration::from_secs(1);

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    /// The remedy if the server ended before it had answered.
    remedy: &'static str,
}

impl Client {
    /// Connects to the server that is meant.
    ///
    /// # Errors
    /// If there is none, or there are several and none was named.
    pub(crate) fn connect(target: &Target) -> Result<Self, Failure> {
        let path = target.control.clone().map_or_else(the_only_server, Ok)?;
        Self::at(&path)
    }

    /// Connects to the run whose front has this number.
    ///
    /// # Errors
    /// If there is none of this user.
    pub(crate) fn of_run(pid: u32) -> Result<Self, Failure> {
        let runs = runtime::live_runs()?;
        let run = runs.into_iter().find(|(of, _)| *of == pid);
        let (_, path) = run.ok_or_else(|| {
            Failure::new(format!("no run of this user has the number {pid}: see zfold ps"))
        })?;
        Self::at(&path)
    }

    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// No server answers.
    pub(crate) fn at(path: &Path) -> Result<Self, Failure> {
        let stream = connect_within(path, ROOM).map_err(|error| {
            let at = path.display();
            Failure::new(match error.kind() {
                io::ErrorKind::WouldBlock => format!(
                    "the server at {at} takes no more connections: if it was stopped, continue it \
                     (kill -CONT)"
                ),
                _ => {
                    format!("no server answers at {at}: {error}; start one, or give its --control")
                }
            })
        })?;
        Ok(Self { stream: BufReader::new(stream), remedy: "start it again" })
    }

    /// Names another remedy where the server ends before it has answered.
    pub(crate) fn with_remedy(self, remedy: &'static str) -> Self {
        Self { remedy, ..self }
    }

    /// Limits the time for each answer.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn with_patience(self, patience: Duration) -> io::Result<Self> {
        self.stream.get_ref().set_read_timeout(Some(patience))?;
        self.stream.get_ref().set_write_timeout(Some(patience))?;
        Ok(self)
    }

    /// Sends a command and returns what it found.
    ///
    /// # Errors
    /// The server's, or that it has gone.
    pub(crate) fn ask(&mut self, command: &str, arguments: Vec<String>) -> Result<Value, Failure> {
        let request = Request { command: command.to_owned(), arguments };
        let mut line = serde_json::to_vec(&request).expect("text is JSON");
        line.push(b'\n');
        let remedy = self.remedy;
        let gone = |why: String| Failure::new(format!("the server is gone: {why}; {remedy}"));
        self.stream.get_mut().write_all(&line).map_err(|error| gone(error.to_string()))?;
        let mut reply = Vec::new();
        let mut limited = (&mut self.stream).take(REPLY_LEN_MAX);
        limited.read_until(b'\n', &mut reply).map_err(|error| gone(error.to_string()))?;
        if reply.is_empty() {
            return Err(gone("it closed the connection (at most 32 clients at a time)".to_owned()));
        }
        let reply: Reply = serde_json::from_slice(&reply).map_err(|error| {
            Failure::new(format!("not a zfold server: {error}; name one with --control"))
        })?;
        match reply.error {
            None if reply.ok => Ok(reply.result),
            error => Err(Failure::new(error.unwrap_or_else(|| "refused without a reason".into()))),
        }
    }
}

/// Returns the control socket of this user's only server.
fn the_only_server() -> Result<PathBuf, Failure> {
    the_only_one(runtime::live_controls()?, "server", "zfold disk")
}

/// Returns the socket of the only server of its kind.
///
/// # Errors
/// There is none, or several, and what to give.
pub(crate) fn the_only_one(
    mut live: Vec<PathBuf>,
    kind: &str,
    command: &str,
) -> Result<PathBuf, Failure> {
    match live.len() {
        1 => Ok(live.remove(0)),
        0 => Err(Failure::new(format!(
            "found no {kind} of this user: start {command}, or give --control"
        ))),
        _ => {
            let paths: Vec<_> = live.iter().map(|path| path.display().to_string()).collect();
            Err(Failure::usage(format!(
                "several {kind}s are running: name one with --control (choices: {})",
                paths.join(", ")
            )))
        }
    }
}

/// Returns a path as a server needs it, which may be in another folder.
///
/// # Errors
/// It is no name of a file.
pub(crate) fn absolute(path: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(path).ok().and_then(|path| path.to_str().map(str::to_owned));
    absolute.ok_or_else(|| {
        Failure::usage(format!("{} is not a file name: give another", path.display()))
    })
}
