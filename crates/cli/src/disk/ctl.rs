//! `zfold ctl`: asks a server something over its control socket.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::args::{CtlArgs, CtlCommand, Target};
use crate::disk::command::ControlCommand;
use crate::disk::control::{Reply, Request};
use crate::disk::runtime;
use crate::shared::exit::{self, Failure};

/// Longest reply that is read, in bytes: the statistics of the most devices, and more.
const REPLY_LEN_MAX: u64 = 16 << 20;

/// Carries out the command, and writes what it found to stdout.
pub(crate) fn run(args: &CtlArgs) -> Result<(), Failure> {
    let (command, arguments) = words(&args.command)?;
    ControlCommand::parse(command, &arguments).map_err(Failure::usage)?;
    let result = Client::connect(&args.target)?.ask(command, arguments)?;
    let text = match result {
        _ if args.json => format!("{result}\n"),
        Value::Object(fields) if command != "stat" => {
            fields.iter().map(|(name, value)| format!("{name} {}\n", plain(value))).collect()
        }
        result => format!("{result:#}\n"),
    };
    exit::write_output(text.as_bytes())
}

/// Returns text without its quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the command as the server reads it: a name, and words.
fn words(command: &CtlCommand) -> Result<(&'static str, Vec<String>), Failure> {
    Ok(match command {
        CtlCommand::Get => ("get", Vec::new()),
        CtlCommand::Set { words } => ("set", words.clone()),
        CtlCommand::Compact => ("compact", Vec::new()),
        CtlCommand::Idle { age } => ("idle", vec![age.clone()]),
        CtlCommand::Writeback { words } => ("writeback", words.clone()),
        CtlCommand::Recompress { words } => ("recompress", words.clone()),
        CtlCommand::Save { file } => ("save", vec![absolute(file)?]),
        CtlCommand::Train { file, max } => {
            ("train", std::iter::once(absolute(file)?).chain(max.clone()).collect())
        }
        CtlCommand::Grow { size } => ("grow", vec![size.clone()]),
        CtlCommand::Reset => ("reset", Vec::new()),
        CtlCommand::Stat => ("stat", Vec::new()),
        CtlCommand::Shutdown => ("shutdown", Vec::new()),
    })
}

/// Returns a path that means the same file to the server.
fn absolute(path: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(path).ok().and_then(|path| path.to_str().map(str::to_owned));
    absolute.ok_or_else(|| {
        Failure::usage(format!("{} is not a file name: give another", path.display()))
    })
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    disk: Option<String>,
}

impl Client {
    /// Connects to the server that is meant.
    ///
    /// # Errors
    /// If there is none, or there are several and none was named.
    pub(crate) fn connect(target: &Target) -> Result<Self, Failure> {
        let path = target.control.clone().map_or_else(the_only_server, Ok)?;
        let stream = UnixStream::connect(&path).map_err(|error| {
            Failure::new(format!(
                "no server answers at {}: {error}; start zfold disk, or give its --control",
                path.display()
            ))
        })?;
        Ok(Self { stream: BufReader::new(stream), disk: target.disk.clone() })
    }

    /// Sends a command and returns what it found.
    ///
    /// # Errors
    /// The server's, or that it has gone.
    pub(crate) fn ask(&mut self, command: &str, arguments: Vec<String>) -> Result<Value, Failure> {
        let request = Request { command: command.to_owned(), arguments, disk: self.disk.clone() };
        let mut line = serde_json::to_vec(&request).expect("text is JSON");
        line.push(b'\n');
        let gone = |why: String| Failure::new(format!("the server is gone: {why}; start it again"));
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
    let mut live = runtime::live_controls()?;
    match live.len() {
        1 => Ok(live.remove(0)),
        0 => Err(Failure::new("found no server of this user: start zfold disk, or give --control")),
        _ => {
            let paths: Vec<_> = live.iter().map(|path| path.display().to_string()).collect();
            Err(Failure::usage(format!(
                "several servers are running: name one with --control (choices: {})",
                paths.join(", ")
            )))
        }
    }
}
