//! `zfold ps`: this user's runs, disks and guest servers.

use std::time::Duration;

use serde::Serialize;

use crate::args::PsArgs;
use crate::shared::exit::{self, Failure};
use crate::shared::terminal::terminal_width;
use crate::watched::look::Look;
use crate::watched::rows::{rows, table};
use crate::watched::seen::Seen;

/// Name of the form of the JSON document.
const SCHEMA: &str = "zfold.ps/1";

/// Time over which faults are counted.
const INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    #[serde(flatten)]
    seen: Seen,
}

/// Writes the list to stdout.
pub(crate) fn run(args: &PsArgs) -> Result<(), Failure> {
    let before = Look::take()?;
    if !(before.runs.is_empty() && before.servers.is_empty() && before.guests.is_empty()) {
        std::thread::sleep(INTERVAL);
    }
    let seen = Seen::new(&Look::take()?, &before);
    match args.json {
        true => {
            let document = Document { schema: SCHEMA, seen };
            let json = serde_json::to_string(&document).expect("numbers and text are JSON") + "\n";
            exit::write_data(json.as_bytes())
        }
        false => exit::write_text(&table(&rows(&seen), terminal_width().unwrap_or(usize::MAX))),
    }
}
