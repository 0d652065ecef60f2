//! The commands that ask a guest server for something.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::report::{GuestsReport, SCHEMA};
use crate::args::{GuestCommand, GuestTarget};
use crate::control::client::{Client, absolute, the_only_one};
use crate::control::runtime;
use crate::shared::exit::{self, Failure};
use crate::shared::size::PAGE_LEN;
use crate::shared::table::size;

/// Said of a server that ended before it had answered.
const REMEDY: &str = "zfold guest list shows whether it was done; if not, give the command again";

/// Wait between two questions whether a machine is stored.
const LOOK: Duration = Duration::from_millis(100);

/// A request: the server, the command and its words, and what people read of its answer.
type Asked<'a> = (&'a GuestTarget, &'a str, Vec<String>, fn(&Value) -> Result<String, Failure>);

/// Asks, and writes what was found to stdout.
pub(super) fn run(command: &GuestCommand) -> Result<(), Failure> {
    if let GuestCommand::Receive { server, name, base, timeout } = command {
        let within = format!("within={}", timeout.0.as_millis());
        let words = [name.clone()].into_iter().chain(base.clone()).chain([within]);
        return receive(server, name, words.collect());
    }
    let (server, command, words, text) = asked(command)?;
    let found = client(server)?.ask(command, words)?;
    show(server, &found, &text(&found)?)
}

/// Shows what a server has answered: as JSON, or as this text.
fn show(server: &GuestTarget, found: &Value, text: &str) -> Result<(), Failure> {
    if server.json {
        exit::write_data(format!("{found}\n").as_bytes())
    } else {
        exit::write_text(text)
    }
}

fn asked(command: &GuestCommand) -> Result<Asked<'_>, Failure> {
    let nothing = |_: &Value| Ok(String::new());
    Ok(match command {
        GuestCommand::Serve(_) | GuestCommand::Receive { .. } => unreachable!("it is no request"),
        GuestCommand::Import { server, name, file, base, state } => {
            let words = [name.clone(), absolute(file)?].into_iter().chain(base.clone());
            (server, "import", words.chain(state_word(state.as_deref())?).collect(), imported)
        }
        GuestCommand::Hibernate { server, guest, name, file, state } => {
            let words = [guest.to_string(), name.clone(), absolute(file)?].into_iter();
            (server, "hibernate", words.chain(state_word(state.as_deref())?).collect(), imported)
        }
        GuestCommand::Send { server, name, socket, resume, on_demand } => {
            let how = [(*resume, "resume"), (*on_demand, "on-demand")];
            let how = how.into_iter().filter(|(is_wanted, _)| *is_wanted);
            let words = [name.clone(), absolute(socket)?].into_iter();
            let words = words.chain(how.map(|(_, word)| word.to_owned())).collect();
            (server, "send", words, if *on_demand { sent_on_demand } else { sent })
        }
        GuestCommand::Export { server, name, file } => {
            (server, "export", vec![name.clone(), absolute(file)?], nothing)
        }
        GuestCommand::State { server, name, file } => {
            (server, "state", vec![name.clone(), absolute(file)?], nothing)
        }
        GuestCommand::Fill { server, name } => (server, "fill", vec![name.clone()], filled),
        GuestCommand::Rm { server, name } => (server, "rm", vec![name.clone()], nothing),
        GuestCommand::Record { server, name, what } => {
            (server, "record", vec![name.clone(), what.name().to_owned()], nothing)
        }
        GuestCommand::Set { server, word } => (server, "set", vec![word.clone()], nothing),
        GuestCommand::Save { server, file } => (server, "save", vec![absolute(file)?], nothing),
        GuestCommand::List { server } => {
            (server, "stat", Vec::new(), |found| Ok(report(found)?.image_text()))
        }
        GuestCommand::Stat { server } => {
            (server, "stat", Vec::new(), |found| Ok(report(found)?.text()))
        }
    })
}

/// Returns the word that names a state file.
fn state_word(state: Option<&Path>) -> Result<Option<String>, Failure> {
    state.map(|state| Ok(format!("state={}", absolute(state)?))).transpose()
}

fn report(found: &Value) -> Result<GuestsReport, Failure> {
    serde_json::from_value(found.clone()).map_err(|error| {
        Failure::new(format!(
            "the statistics are not {SCHEMA} ({error}): use the zfold that serves them"
        ))
    })
}

fn filled(found: &Value) -> Result<String, Failure> {
    Ok(format!("{} guests get all their pages\n", found["guests"].as_u64().unwrap_or(0)))
}

/// Says what an import found.
fn imported(found: &Value) -> Result<String, Failure> {
    let socket = found["socket"].as_str().unwrap_or_default();
    Ok(format!("{socket}\n{}", stored(found)))
}

fn stored(found: &Value) -> String {
    let number = |field: &str| found[field].as_u64().unwrap_or(0);
    let (stored, all) = (number("stored_pages"), number("pages"));
    format!("{stored} of {all} pages stored ({})\n", size(stored * PAGE_LEN).trim_end())
}

/// Has a machine awaited, prints where to send it, and waits until it is stored.
fn receive(server: &GuestTarget, name: &str, words: Vec<String>) -> Result<(), Failure> {
    let mut client = client(server)?;
    let found = client.ask("receive", words)?;
    let socket = found["socket"].as_str().unwrap_or_default();
    let usage = format!(
        "{socket}\nch-remote --api-socket=API send-migration \
         destination_url=unix:{socket},local=on\n"
    );
    show(server, &found, &usage)?;
    loop {
        let found = client.ask("received", vec![name.to_owned()])?;
        let saved = &found["saved"];
        if !saved.is_null() {
            return show(server, saved, &stored(saved));
        }
        std::thread::sleep(LOOK);
    }
}

/// Says how a machine was restored.
fn sent(found: &Value) -> Result<String, Failure> {
    let number = |field: &str| found[field].as_u64().unwrap_or(0);
    Ok(format!("{} of {} pages written\n", number("written_pages"), number("pages")))
}

fn sent_on_demand(found: &Value) -> Result<String, Failure> {
    Ok(format!("{} pages come on demand\n", found["pages"].as_u64().unwrap_or(0)))
}

fn client(server: &GuestTarget) -> Result<Client, Failure> {
    let path = match server.control.clone() {
        Some(path) => path,
        None => the_only_one(runtime::live_guests()?, "guest server", "zfold guest serve")?,
    };
    // Another one may have taken over, and have what this one was asked for, or not.
    Ok(Client::at(&path)?.with_remedy(REMEDY))
}
