//! `zfold ps`: this user's runs, disks and guest servers.

use std::time::Duration;

use serde::Serialize;

use crate::args::PsArgs;
use crate::shared::exit::{self, Failure};
use crate::shared::table::{columns, size};
use crate::watched::guests::{self, Guests};
use crate::watched::look::Look;
use crate::watched::rates::{self, Disk, Run};
use crate::watched::subject::Subject;

/// Name of the form of the JSON document.
const SCHEMA: &str = "zfold.ps/1";

/// Time over which faults are counted.
const INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: &'static str,
    runs: &'a [Run],
    disks: &'a [Disk],
    guests: &'a [Guests],
}

/// Writes the list to stdout.
pub(crate) fn run(args: &PsArgs) -> Result<(), Failure> {
    let before = Look::take()?;
    if !(before.runs.is_empty() && before.servers.is_empty() && before.guests.is_empty()) {
        std::thread::sleep(INTERVAL);
    }
    let now = Look::take()?;
    match args.json {
        true => {
            let (runs, disks) = (rates::runs(&now, &before), rates::disks(&now, &before));
            let guests = guests::guests(&now, &before);
            let document = Document { schema: SCHEMA, runs: &runs, disks: &disks, guests: &guests };
            let json = serde_json::to_string(&document).expect("numbers and text are JSON") + "\n";
            exit::write_data(json.as_bytes())
        }
        false => exit::write_text(&text(&Subject::all(&now, &before))),
    }
}

fn text(subjects: &[Subject]) -> String {
    if subjects.is_empty() {
        return "no runs, disks or guests of this user\n".to_owned();
    }
    let titles = [
        "PID",
        "LIMIT",
        "RESIDENT",
        "STAYS",
        "TOUCHED",
        "STORED",
        "RATIO",
        "FAULTS/S",
        "UNMANAGED",
        "COMMAND",
    ];
    let none = || "-".to_owned();
    let bytes = |bytes: u64| size(bytes).trim_end().to_owned();
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(subjects.iter().map(|one| {
        let stays = one.of_run(|run| Some(run.state.stays()));
        let touched = one.of_run(|run| Some(run.state.touched?.0.touched_1min_bytes));
        let unmanaged = one.of_run(|run| Some(run.state.figures.unmanaged_total));
        [
            one.pid().to_string(),
            one.limit().map_or_else(|| "none".to_owned(), bytes),
            bytes(one.resident()),
            stays.map_or_else(none, bytes),
            touched.map_or_else(none, bytes),
            bytes(one.stored()),
            one.ratio().map_or_else(none, |ratio| format!("{ratio:.2}")),
            one.faults().map_or_else(none, |rate| format!("{rate:.0}")),
            unmanaged.map_or_else(none, |number| number.to_string()),
            one.command(),
        ]
    }));
    columns(&rows, |column| column < 9)
}

#[cfg(test)]
mod tests {
    use zfold_run::Figures;

    use super::*;
    use crate::control::state::RunState;
    use crate::watched::rates::Rates;

    #[test]
    fn runs_and_disks_stand_in_columns() {
        let state = RunState {
            pid: 7,
            command: "sort\n\x1b[2Jx".to_owned(),
            figures: Figures {
                limit_bytes: 64 << 20,
                stored_pages_bytes: 4 << 20,
                ..Figures::default()
            },
            ..RunState::default()
        };
        let grown = Figures { faults_total: 20, ..Figures::default() };
        let rates = Rates::new(grown, 2.0);
        let run = Run { state, ratio: Some(4.0), rates, ..Run::default() };
        let disk = Disk { pid: 12, name: "a".to_owned(), ..Disk::default() };
        let text = text(&[Subject::Run(Box::new(run)), Subject::Disk(Box::new(disk))]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("  7  64.00 MiB"), "{text}");
        assert!(lines[1].contains("  4.00        10          0  sort\\n\\u{1b}[2Jx"), "{text}");
        assert!(lines[2].ends_with("  -  disk a") && lines[2].contains("none"), "{text}");
        assert_eq!(super::text(&[]), "no runs, disks or guests of this user\n");
    }
}
