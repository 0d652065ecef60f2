//! `zfold ps`: this user's runs and disks.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::args::PsArgs;
use crate::control::client::Client;
use crate::control::runtime;
use crate::control::state::RunState;
use crate::shared::exit::{self, Failure};
use crate::shared::table::size;

/// Name of the form of the JSON document.
const SCHEMA: &str = "zfold.ps/1";

/// Time over which faults are counted.
const INTERVAL: Duration = Duration::from_millis(250);

/// A run, with its rate.
#[derive(Debug, Serialize)]
struct Run {
    #[serde(flatten)]
    state: RunState,
    /// Stored pages over what they take; none without any.
    ratio: Option<f64>,
    faults_per_second: f64,
}

/// A device of a server.
#[derive(Debug, Serialize)]
struct Disk {
    pid: u64,
    name: String,
    /// 0: none.
    limit_bytes: u64,
    resident_bytes: u64,
    stored_pages_bytes: u64,
    ratio: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: &'static str,
    runs: &'a [Run],
    disks: &'a [Disk],
}

/// Writes the list to stdout.
pub(crate) fn run(args: &PsArgs) -> Result<(), Failure> {
    let began = Instant::now();
    let first = states()?;
    let disks = disks()?;
    if !first.is_empty() {
        std::thread::sleep(INTERVAL);
    }
    let now = states()?;
    let seconds = began.elapsed().as_secs_f64();
    let runs: Vec<Run> = now.into_iter().map(|state| with_rate(state, &first, seconds)).collect();
    let text = match args.json {
        true => {
            let document = Document { schema: SCHEMA, runs: &runs, disks: &disks };
            serde_json::to_string(&document).expect("numbers and text are JSON") + "\n"
        }
        false => text(&runs, &disks),
    };
    exit::write_output(text.as_bytes())
}

/// Returns the states of all runs that answer; one that ends meanwhile is left out.
fn states() -> Result<Vec<RunState>, Failure> {
    let state = |path| {
        let found = Client::at(path, None).ok()?.ask("stat", Vec::new()).ok()?;
        serde_json::from_value(found).ok()
    };
    Ok(runtime::live_runs()?.iter().filter_map(|(_, path)| state(path)).collect())
}

fn disks() -> Result<Vec<Disk>, Failure> {
    let ask = |path| Client::at(path, None).ok()?.ask("stat", Vec::new()).ok();
    let reports: Vec<Value> =
        runtime::live_controls()?.iter().filter_map(|path| ask(path)).collect();
    let of = |report: &Value| {
        let pid = report["pid"].as_u64().unwrap_or(0);
        let disks = report["disks"].as_array().cloned().unwrap_or_default();
        disks.into_iter().map(move |disk| {
            let number = |name: &str| disk["mm_stat"][name].as_u64().unwrap_or(0);
            let (stored, held) = (number("orig_data_size"), number("mem_used_total"));
            Disk {
                pid,
                name: disk["name"].as_str().unwrap_or_default().to_owned(),
                limit_bytes: number("mem_limit"),
                resident_bytes: held,
                stored_pages_bytes: stored,
                ratio: ratio(stored, held),
            }
        })
    };
    Ok(reports.iter().flat_map(of).collect())
}

fn ratio(pages: u64, bytes: u64) -> Option<f64> {
    (pages > 0 && bytes > 0).then(|| pages as f64 / bytes as f64)
}

fn with_rate(state: RunState, first: &[RunState], seconds: f64) -> Run {
    let before = first.iter().find(|before| before.pid == state.pid);
    let faults = before.map_or(0, |before| state.faults_total.saturating_sub(before.faults_total));
    let ratio = ratio(state.stored_pages_bytes, state.stored_bytes);
    Run { ratio, faults_per_second: faults as f64 / seconds, state }
}

fn text(runs: &[Run], disks: &[Disk]) -> String {
    if runs.is_empty() && disks.is_empty() {
        return "no runs and no disks of this user\n".to_owned();
    }
    let titles =
        ["PID", "LIMIT", "RESIDENT", "STORED", "RATIO", "FAULTS/S", "UNMANAGED", "COMMAND"];
    let shown = |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |r| format!("{r:.2}"));
    let bytes = |bytes: u64| size(bytes).trim_end().to_owned();
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(runs.iter().map(|run| {
        let state = &run.state;
        [
            state.pid.to_string(),
            bytes(state.limit_bytes),
            bytes(state.resident_bytes),
            bytes(state.stored_pages_bytes),
            shown(run.ratio),
            format!("{:.0}", run.faults_per_second),
            state.unmanaged_total.to_string(),
            state.command.clone(),
        ]
    }));
    rows.extend(disks.iter().map(|disk| {
        let limit = if disk.limit_bytes == 0 { "none".to_owned() } else { bytes(disk.limit_bytes) };
        let none = || "-".to_owned();
        [
            disk.pid.to_string(),
            limit,
            bytes(disk.resident_bytes),
            bytes(disk.stored_pages_bytes),
            shown(disk.ratio),
            none(),
            none(),
            format!("disk {}", disk.name),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..titles.len()).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; 8]| {
        let numbers = row[..7].iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        format!("{}  {}\n", numbers.collect::<Vec<_>>().join("  "), row[7])
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_disks_stand_in_columns() {
        let state = RunState {
            pid: 7,
            command: "sort x".to_owned(),
            limit_bytes: 64 << 20,
            stored_pages_bytes: 4 << 20,
            stored_bytes: 1 << 20,
            faults_total: 30,
            ..RunState::default()
        };
        let first = RunState { faults_total: 10, ..state.clone() };
        let runs = [with_rate(state, &[first], 2.0)];
        let disks = [Disk {
            pid: 12,
            name: "a".to_owned(),
            limit_bytes: 0,
            resident_bytes: 0,
            stored_pages_bytes: 0,
            ratio: None,
        }];
        let text = text(&runs, &disks);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("  7  64.00 MiB"), "{text}");
        assert!(lines[1].contains("  4.00        10          0  sort x"), "{text}");
        assert!(lines[2].ends_with("  -  disk a") && lines[2].contains("none"), "{text}");
    }
}
