//! `zfold ctl`: sends a request to a server over its control socket.

use serde_json::Value;

use crate::args::{CtlArgs, CtlCommand};
use crate::control::client::{Client, absolute};
use crate::disk::command::ControlCommand;
use crate::disk::snapshot::SnapshotPlace;
use crate::shared::clean::clean;
use crate::shared::exit::{self, Failure};

/// Carries out the command, and writes what it found to stdout.
pub(crate) fn run(args: &CtlArgs) -> Result<(), Failure> {
    let (command, arguments) = words(&args.command)?;
    let mut client = match args.target.pid {
        Some(pid) => Client::of_run(pid)?,
        None => {
            ControlCommand::parse(command, &arguments).map_err(Failure::usage)?;
            Client::connect(&args.target)?
        }
    };
    let result = client.ask(command, arguments)?;
    match result {
        Value::Object(fields) if command != "stat" && !args.json => {
            let lines = fields.iter();
            let lines = lines.map(|(name, value)| format!("{} {}\n", clean(name), plain(value)));
            exit::write_text(&lines.collect::<String>())
        }
        result => {
            let json = if args.json { result.to_string() } else { format!("{result:#}") };
            exit::write_data(format!("{json}\n").as_bytes())
        }
    }
}

/// Returns text without its quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), clean)
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
        CtlCommand::Save { place } => {
            let place = match SnapshotPlace::parse("save", place)? {
                SnapshotPlace::File(path) => absolute(&path)?,
                SnapshotPlace::Object(place) => place.to_string(),
            };
            ("save", vec![place])
        }
        CtlCommand::Train { file, max } => {
            ("train", std::iter::once(absolute(file)?).chain(max.clone()).collect())
        }
        CtlCommand::PageOut => ("page-out", Vec::new()),
        CtlCommand::Stat => ("stat", Vec::new()),
        CtlCommand::Shutdown => ("shutdown", Vec::new()),
    })
}
