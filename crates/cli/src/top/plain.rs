//! The view as text: one table, or a JSON document for each interval.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::figures::of_machine;
use crate::shared::exit::{self, Failure, Form};
use crate::watched::columns::COLUMNS;
use crate::watched::guests::{self, Guests};
use crate::watched::look::Look;
use crate::watched::machine::Machine;
use crate::watched::rates::{self, Disk, Run};
use crate::watched::subject::Subject;

/// Name of the form of the JSON document.
const SCHEMA: &str = "zfold.top/1";

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    /// Milliseconds since 1970.
    unix_time_ms: u64,
    machine: Machine,
    runs: Vec<Run>,
    disks: Vec<Disk>,
    guests: Vec<Guests>,
}

/// Writes a table or documents to stdout: one, or one at each interval until the reader has left.
pub(super) fn run(interval: Duration, once: bool, json: bool) -> Result<(), Failure> {
    let mut before = Look::take()?;
    loop {
        std::thread::sleep(interval);
        let now = Look::take()?;
        let (form, text) = match json {
            true => (Form::Data, document(&now, &before)),
            false => (Form::Text, table(&Subject::all(&now, &before), &Machine::now())),
        };
        match exit::write_part(form, &text)? {
            true if !once => before = now,
            _ => return Ok(()),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the time is shown, nothing depends on it")]
fn document(now: &Look, before: &Look) -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let document = Document {
        schema: SCHEMA,
        unix_time_ms: since_1970.as_millis() as u64,
        machine: Machine::now(),
        runs: rates::runs(now, before),
        disks: rates::disks(now, before),
        guests: guests::guests(now, before),
    };
    serde_json::to_string(&document).expect("numbers and text are JSON") + "\n"
}

fn table(subjects: &[Subject], machine: &Machine) -> String {
    let mut text = of_machine(machine).join(", ");
    // Writing to a string does not fail.
    let _ = writeln!(text, "\n");
    if subjects.is_empty() {
        let _ = writeln!(text, "no runs, disks or guests of this user");
        return text;
    }
    for column in &COLUMNS {
        let _ = write!(text, "{:>1$} ", column.title, column.width);
    }
    let _ = writeln!(text, "COMMAND");
    for one in subjects {
        for column in &COLUMNS {
            let _ = write!(text, "{:>1$} ", column.cell(one), column.width);
        }
        let _ = writeln!(text, "{}", one.command());
    }
    text
}
