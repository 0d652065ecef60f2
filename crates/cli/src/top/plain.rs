//! The view as text: one table, or a JSON document for each interval.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::shared::exit::{self, Failure, Form};
use crate::shared::terminal::terminal_width;
use crate::watched::look::Look;
use crate::watched::machine::Machine;
use crate::watched::rows::{rows, table};
use crate::watched::seen::Seen;

/// Name of the form of the JSON document.
const SCHEMA: &str = "zfold.top/1";

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    /// Milliseconds since 1970.
    unix_time_ms: u64,
    machine: Machine,
    #[serde(flatten)]
    seen: Seen,
}

/// Writes a table or documents to stdout: one, or one at each interval until the reader has left.
pub(super) fn run(interval: Duration, once: bool, json: bool) -> Result<(), Failure> {
    let mut before = Look::take()?;
    loop {
        std::thread::sleep(interval);
        let now = Look::take()?;
        let (seen, machine) = (Seen::new(&now, &before), Machine::now());
        let (form, text) = match json {
            true => (Form::Data, document(seen, machine)),
            false => {
                let table = table(&rows(&seen), terminal_width().unwrap_or(usize::MAX));
                (Form::Text, format!("{}\n\n{table}", machine.parts().join(", ")))
            }
        };
        match exit::write_part(form, &text)? {
            true if !once => before = now,
            _ => return Ok(()),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the time is shown, nothing depends on it")]
fn document(seen: Seen, machine: Machine) -> String {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix_time_ms = since_1970.as_millis() as u64;
    let document = Document { schema: SCHEMA, unix_time_ms, machine, seen };
    serde_json::to_string(&document).expect("numbers and text are JSON") + "\n"
}
