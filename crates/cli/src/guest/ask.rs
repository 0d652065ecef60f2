//! The commands that ask a guest server for something.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::report::{GuestsReport, SCHEMA};
use crate::args::{GuestCommand, GuestTarget};
use crate::control::client::Client;
use crate::control::runtime;
use crate::shared::exit::{self, Failure};
use crate::shared::progress::Progress;
use crate::shared::size::PAGE_LEN;
use crate::shared::table::size;

/// Said of a server that ended before it had answered.
const REMEDY: &str = "zfold guest list shows whether it was done; if not, give the command again";

/// Wait between two questions how far a machine is.
const LOOK: Duration = Duration::from_millis(100);

/// Asks, and writes what was found to stdout.
pub(super) fn run(command: &GuestCommand) -> Result<(), Failure> {
    match command {
        GuestCommand::Serve(_) => unreachable!("it asks nobody"),
        GuestCommand::Import { server, name, file, base } => {
            let words = [name.clone(), absolute(file)?].into_iter().chain(base.clone());
            imported(&ask(server, "import", words.collect())?)
        }
        GuestCommand::Hibernate { server, guest, name, file } => {
            let words = vec![guest.to_string(), name.clone(), absolute(file)?];
            imported(&ask(server, "hibernate", words)?)
        }
        GuestCommand::Receive { server, name, base } => {
            receive(&mut client(server)?, name, base.as_deref())
        }
        GuestCommand::Send { server, name, socket, resume, on_demand } => {
            let how = [(*resume, "resume"), (*on_demand, "on-demand")];
            let how = how.into_iter().filter(|(is_wanted, _)| *is_wanted);
            let words = [name.clone(), absolute(socket)?].into_iter();
            let words = words.chain(how.map(|(_, word)| word.to_owned())).collect();
            sent(&ask(server, "send", words)?, *on_demand)
        }
        GuestCommand::Export { server, name, file } => {
            ask(server, "export", vec![name.clone(), absolute(file)?]).map(drop)
        }
        GuestCommand::Rm { server, name } => ask(server, "rm", vec![name.clone()]).map(drop),
        GuestCommand::Record { server, name, what } => {
            ask(server, "record", vec![name.clone(), what.name().to_owned()]).map(drop)
        }
        GuestCommand::Set { server, words } => ask(server, "set", words.clone()).map(drop),
        GuestCommand::Save { server, file } => ask(server, "save", vec![absolute(file)?]).map(drop),
        GuestCommand::List { server, json } => told(server, *json, GuestsReport::image_text),
        GuestCommand::Stat { server, json } => told(server, *json, GuestsReport::text),
    }
}

/// Says what an import found.
fn imported(found: &Value) -> Result<(), Failure> {
    let socket = found["socket"].as_str().unwrap_or_default();
    exit::write_text(&format!("{socket}\n{}", stored(found)))
}

fn stored(found: &Value) -> String {
    let number = |field: &str| found[field].as_u64().unwrap_or(0);
    let (stored, all) = (number("stored_pages"), number("pages"));
    format!("{stored} of {all} pages stored ({})\n", size(stored * PAGE_LEN).trim_end())
}

fn told(
    server: &GuestTarget,
    json: bool,
    text: impl Fn(&GuestsReport) -> String,
) -> Result<(), Failure> {
    let found = ask(server, "stat", Vec::new())?;
    if json {
        return exit::write_data(format!("{found}\n").as_bytes());
    }
    let report: GuestsReport = serde_json::from_value(found).map_err(|error| {
        Failure::new(format!(
            "the statistics are not {SCHEMA} ({error}): use the zfold that serves them"
        ))
    })?;
    exit::write_text(&text(&report))
}

/// Has a machine awaited, prints where to send it, and waits until it is stored.
fn receive(client: &mut Client, name: &str, base: Option<&str>) -> Result<(), Failure> {
    let words = [name].into_iter().chain(base).map(str::to_owned);
    let found = client.ask("receive", words.collect())?;
    let socket = found["socket"].as_str().unwrap_or_default();
    exit::write_text(&format!(
        "{socket}\nch-remote --api-socket=API send-migration \
         destination_url=unix:{socket},local=on\n"
    ))?;
    let progress = Progress::begin();
    loop {
        let found = client.ask("received", vec![name.to_owned()])?;
        let saved = &found["saved"];
        if !saved.is_null() {
            drop(progress);
            return exit::write_text(&stored(saved));
        }
        let number = |field: &str| found[field].as_f64().unwrap_or(0.0);
        if number("pages") > 0.0 {
            progress.show("memory is stored", number("done_pages") / number("pages"));
        }
        std::thread::sleep(LOOK);
    }
}

/// Says how a machine was restored.
fn sent(found: &Value, on_demand: bool) -> Result<(), Failure> {
    let number = |field: &str| found[field].as_u64().unwrap_or(0);
    let (written, all) = (number("written_pages"), number("pages"));
    exit::write_text(&match on_demand {
        true => format!("{all} pages come on demand\n"),
        false => format!("{written} of {all} pages written\n"),
    })
}

fn ask(server: &GuestTarget, command: &str, words: Vec<String>) -> Result<Value, Failure> {
    client(server)?.ask(command, words)
}

fn client(server: &GuestTarget) -> Result<Client, Failure> {
    let path = server.control.clone().map_or_else(the_only_one, Ok)?;
    // Another one may have taken over, and have what this one was asked for, or not.
    Ok(Client::at(&path, None)?.with_remedy(REMEDY))
}

/// Returns the control socket of this user's only guest server.
fn the_only_one() -> Result<PathBuf, Failure> {
    let mut live = runtime::live_guests()?;
    match live.len() {
        1 => Ok(live.remove(0)),
        0 => Err(Failure::new(
            "found no guest server of this user: start zfold guest serve, or give --control",
        )),
        _ => {
            let paths: Vec<_> = live.iter().map(|path| path.display().to_string()).collect();
            Err(Failure::usage(format!(
                "several guest servers are running: name one with --control (choices: {})",
                paths.join(", ")
            )))
        }
    }
}

/// Returns a path that means the same file to the server.
fn absolute(path: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(path).ok().and_then(|path| path.to_str().map(str::to_owned));
    absolute.ok_or_else(|| {
        Failure::usage(format!("{} is not a file name: give another", path.display()))
    })
}
