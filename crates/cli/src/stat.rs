//! `zfold stat`: the statistics of a server as tables or JSON.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use zfold_disk::nbd::TABLE as OF_NBD;
use zfold_disk::table::{FAILED, PAGES, SERVED};
use zfold_far::TABLE as OF_FAR;
use zfold_figures::{Doc, Figures, Kind};
use zfold_run::figures::table::{BACKING, MEMORY, STAYS, TOUCHED, WORK};

use crate::args::{Format, StatArgs};
use crate::control::client::Client;
use crate::control::state::{self as run_state, RunState};
use crate::disk::figures::table as of_disks;
use crate::disk::report::{DiskReport, Report, SCHEMA};
use crate::shared::clean::clean;
use crate::shared::exit::{self, Failure, Form};
use crate::shared::far::FarReport;
use crate::shared::figures::{formatted, in_table, rows};
use crate::shared::table::{Row, size, table};
use crate::watched::look::{Answer, Look};
use crate::watched::rates::Rates;

/// Writes the statistics to stdout, repeatedly on request.
pub(crate) fn run(args: &StatArgs) -> Result<(), Failure> {
    match args.target.pid {
        Some(pid) => repeat(args, &mut Client::of_run(pid)?, run_state::SCHEMA, of_run),
        None => repeat(args, &mut Client::connect(&args.target)?, SCHEMA, of_server),
    }
}

/// Requests a state at each interval, and writes it as `format` makes it, with the previous one.
fn repeat<T: DeserializeOwned>(
    args: &StatArgs,
    client: &mut Client,
    schema: &str,
    format: impl Fn(&Answer<T>, Option<&Answer<T>>) -> String,
) -> Result<(), Failure> {
    let mut before: Option<Answer<T>> = None;
    loop {
        let (result, at) = (client.ask("stat", Vec::new())?, Instant::now());
        let text = match args.format {
            Format::Json => format!("{result}\n"),
            Format::Table => {
                let what: T = serde_json::from_value(result).map_err(|error| {
                    Failure::new(format!(
                        "the statistics are not {schema} ({error}): use the zfold that serves them"
                    ))
                })?;
                let now = Answer { at, what };
                let text = format(&now, before.as_ref());
                before = Some(now);
                text
            }
        };
        let form = match args.format {
            Format::Json => Form::Data,
            Format::Table if args.watch.is_some() => Form::Screen,
            Format::Table => Form::Text,
        };
        let reads_on = exit::write_part(form, &text)?;
        let Some(seconds) = args.watch.filter(|_| reads_on) else { return Ok(()) };
        std::thread::sleep(Duration::from_secs(seconds.into()));
    }
}

/// Returns what `zfold stat` shows of one at a look, with its rates since an earlier one; `None` if
/// it has ended.
pub(crate) fn of_one(now: &Look, before: &Look, pid: u32) -> Option<String> {
    if let Some(server) = now.server(pid) {
        let earlier = before.server(pid);
        let then = earlier.map(|earlier| earlier.what.disk());
        return Some(of_disk(server.what.disk(), then, server.seconds_since(earlier)));
    }
    let run = now.run(pid).map(|run| of_run(run, before.run(pid)));
    run.or_else(|| now.guests(pid).map(|server| server.what.text()))
}

/// Returns the figures of a table, with the rates of counters where there are some.
fn in_rows<F: Figures>(table: &str, now: &F, rates: Rates<F>) -> Vec<Row> {
    rows::<F>(Doc::State, table, |figure| {
        let value = formatted(figure.unit, (figure.of)(now));
        let Some(rate) = rates.of(figure.of) else { return value };
        // Figures without a rate are in the column of totals.
        let rate = match figure.kind {
            Kind::Counter => {
                formatted(figure.unit, rate.round() as u64).trim_end().to_owned() + "/s"
            }
            Kind::Gauge => String::new(),
        };
        format!("{value} {rate:>14}")
    })
}

/// Returns the state of a run as text for people.
fn of_run(said: &Answer<RunState>, earlier: Option<&Answer<RunState>>) -> String {
    let (state, seconds) = (&said.what, said.seconds_since(earlier));
    let before = earlier.map(|earlier| &earlier.what);
    let mut text = format!("{}: {}\n\n", state.pid, clean(&state.command));
    let figures = |table: &str| in_rows(table, &state.figures, Rates::default());
    table(&mut text, MEMORY, &figures(MEMORY));
    if state.figures.backing_bytes > 0 {
        table(&mut text, BACKING, &figures(BACKING));
    }
    table(&mut text, STAYS, &figures(STAYS));
    if let Some(touched) = &state.touched {
        table(&mut text, TOUCHED, &in_rows(TOUCHED, &touched.0, Rates::default()));
    }
    if let Some(now) = &state.far {
        let before = before.and_then(|before| before.far.as_deref());
        table(&mut text, OF_FAR, &far(now, before, seconds));
    }
    let rates = Rates::new(&state.figures, before.map(|before| &before.figures), seconds);
    table(&mut text, WORK, &in_rows(WORK, &state.figures, rates));
    text
}

/// Returns the statistics of a server as text for people.
fn of_server(said: &Answer<Report>, earlier: Option<&Answer<Report>>) -> String {
    let (report, seconds) = (&said.what, said.seconds_since(earlier));
    let before = earlier.map(|earlier| &earlier.what);
    let mut text = of_disk(report.disk(), before.map(Report::disk), seconds);
    let rates = Rates::new(&report.nbd, before.map(|before| &before.nbd), seconds);
    table(&mut text, OF_NBD, &in_rows(OF_NBD, &report.nbd, rates));
    let (version, pid, up) = (clean(&report.version), report.pid, report.uptime_seconds);
    // Writing to a string does not fail.
    let _ = writeln!(text, "zfold {version}, process {pid}, up {up} s");
    text
}

fn of_disk(disk: &DiskReport, before: Option<&DiskReport>, seconds: f64) -> String {
    let mut text = String::new();
    heading(&mut text, disk);
    table(&mut text, of_disks::MEMORY, &memory(disk));
    table(&mut text, PAGES, &pages(disk));
    if disk.held.backing_bytes > 0 {
        let rates = Rates::new(&disk.held, before.map(|before| &before.held), seconds);
        table(&mut text, of_disks::BACKING, &in_rows(of_disks::BACKING, &disk.held, rates));
    }
    if let Some(now) = &disk.far {
        let before = before.and_then(|before| before.far.as_deref());
        table(&mut text, OF_FAR, &far(now, before, seconds));
    }
    let rates = Rates::new(&disk.served, before.map(|before| &before.served), seconds);
    table(&mut text, SERVED, &in_rows(SERVED, &disk.served, rates));
    table(&mut text, FAILED, &failed(disk));
    text
}

fn heading(text: &mut String, disk: &DiskReport) {
    let sector = disk.sector_bytes;
    let read_only = if disk.read_only { ", read-only" } else { "" };
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{}: {}, sectors of {sector} bytes, {}, {}{read_only}",
        clean(&disk.name),
        size(disk.held.size_bytes),
        clean(&disk.codec),
        clean(&disk.allocator)
    );
    for address in &disk.addresses {
        let _ = writeln!(text, "{}", clean(address));
    }
    let _ = writeln!(text);
}

fn memory(disk: &DiskReport) -> Vec<Row> {
    let mut rows = in_rows(of_disks::MEMORY, &disk.held, Rates::default());
    if let Some(limit) = rows.iter_mut().find(|row| row.0 == "mem_limit")
        && disk.held.mem_limit == 0
    {
        limit.1 = "none".to_owned();
    }
    rows.push(("ratio", format!("{:.2}", disk.ratio), "orig_data_size / mem_used_total"));
    rows
}

fn pages(disk: &DiskReport) -> Vec<Row> {
    let mut rows = in_rows(PAGES, &disk.held, Rates::default());
    rows.extend(in_rows(PAGES, &disk.served, Rates::default()));
    rows
}

/// Returns what went wrong; zeros are left out, since they are expected.
fn failed(disk: &DiskReport) -> Vec<Row> {
    failures(&disk.served).chain(failures(&disk.held)).collect()
}

fn failures<F: Figures>(of: &F) -> impl Iterator<Item = Row> {
    in_table::<F>(Doc::State, FAILED).filter_map(|(field, figure)| {
        let number = (figure.of)(of);
        (number > 0).then(|| (field.label, formatted(figure.unit, number), figure.meaning))
    })
}

fn far(now: &FarReport, before: Option<&FarReport>, seconds: f64) -> Vec<Row> {
    let rates = Rates::new(&now.stats, before.map(|before| &before.stats), seconds);
    now.rows(in_rows(OF_FAR, &now.stats, rates))
}
