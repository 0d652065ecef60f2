//! `zfold stat`: the statistics of a server as tables or JSON.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use zfold_disk::nbd::TABLE as OF_NBD;
use zfold_disk::table::{FAILED, PAGES, SERVED};
use zfold_far::TABLE as OF_FAR;
use zfold_figures::{Doc, Figures, Kind};
use zfold_run::figures::table::{BACKING, MEMORY, STAYS, TOUCHED, WORK};

use crate::args::{StatArgs, StatFormat};
use crate::control::client::Client;
use crate::control::state::{self as run_state, RunState};
use crate::disk::figures::table as of_disk;
use crate::disk::report::{DiskReport, Report, SCHEMA};
use crate::shared::clean::clean;
use crate::shared::exit::{self, Failure, Form};
use crate::shared::far::FarReport;
use crate::shared::figures::{formatted, in_table, rows};
use crate::shared::table::{Row, size, table};
use crate::watched::rates::Since;

/// Writes the statistics to stdout, repeatedly on request.
pub(crate) fn run(args: &StatArgs) -> Result<(), Failure> {
    match args.target.pid {
        Some(pid) => {
            let format =
                |state: &RunState, since: Option<Since<'_, RunState>>| of_run(state, since);
            repeat(args, &mut Client::of_run(pid)?, run_state::SCHEMA, format)
        }
        None => {
            let format = |report: &Report, since: Option<Since<'_, Report>>| tables(report, since);
            repeat(args, &mut Client::connect(&args.target)?, SCHEMA, format)
        }
    }
}

/// Requests a state at each interval, and writes it as `format` makes it, with the previous one.
fn repeat<T: DeserializeOwned>(
    args: &StatArgs,
    client: &mut Client,
    schema: &str,
    format: impl Fn(&T, Option<Since<'_, T>>) -> String,
) -> Result<(), Failure> {
    let mut before: Option<(T, Instant)> = None;
    loop {
        let (result, at) = (client.ask("stat", Vec::new())?, Instant::now());
        let text = match args.format {
            StatFormat::Json => format!("{result}\n"),
            StatFormat::Table => {
                let now: T = serde_json::from_value(result).map_err(|error| {
                    Failure::new(format!(
                        "the statistics are not {schema} ({error}): use the zfold that serves them"
                    ))
                })?;
                let since = before.as_ref().and_then(|(old, then)| Since::new(old, *then, at));
                let text = format(&now, since);
                before = Some((now, at));
                text
            }
        };
        let form = match args.format {
            StatFormat::Json => Form::Data,
            StatFormat::Table if args.watch.is_some() => Form::Screen,
            StatFormat::Table => Form::Text,
        };
        let reads_on = exit::write_part(form, &text)?;
        let Some(seconds) = args.watch.filter(|_| reads_on) else { return Ok(()) };
        std::thread::sleep(Duration::from_secs(seconds.into()));
    }
}

/// Returns the figures of a table, with the rates of those that have one.
fn in_rows<F: Figures>(table: &str, now: &F, since: Option<Since<'_, F>>) -> Vec<Row> {
    rows::<F>(Doc::State, table, |figure| {
        let value = formatted(figure.unit, (figure.of)(now));
        let Some(since) = since else { return value };
        // Figures without a rate are in the column of totals.
        let rate = match figure.kind {
            Kind::Counter => {
                let rate = formatted(figure.unit, since.rate(now, figure.of).round() as u64);
                rate.trim_end().to_owned() + "/s"
            }
            Kind::Gauge => String::new(),
        };
        format!("{value} {rate:>14}")
    })
}

/// Returns the state of a run as text for people.
fn of_run(state: &RunState, since: Option<Since<'_, RunState>>) -> String {
    let mut text = format!("{}: {}\n\n", state.pid, clean(&state.command));
    let figures = |table: &str, rated: bool| {
        let before = since.filter(|_| rated).map(|since| since.map(|run| &run.figures));
        in_rows(table, &state.figures, before)
    };
    table(&mut text, MEMORY, &figures(MEMORY, false));
    if state.figures.backing_bytes > 0 {
        table(&mut text, BACKING, &figures(BACKING, false));
    }
    table(&mut text, STAYS, &figures(STAYS, false));
    if let Some(touched) = &state.touched {
        table(&mut text, TOUCHED, &in_rows(TOUCHED, &touched.0, None));
    }
    if let Some(now) = &state.far {
        let since = since.and_then(|since| since.of(|run| run.far.as_deref()));
        table(&mut text, OF_FAR, &far(now, since));
    }
    table(&mut text, WORK, &figures(WORK, true));
    text
}

/// Returns the statistics as text for people.
fn tables(report: &Report, since: Option<Since<'_, Report>>) -> String {
    let mut text = String::new();
    for disk in &report.disks {
        let since = since.and_then(|since| {
            since.of(|report| report.disks.iter().find(|before| before.name == disk.name))
        });
        heading(&mut text, disk);
        table(&mut text, of_disk::MEMORY, &memory(disk));
        table(&mut text, PAGES, &pages(disk));
        if disk.held.backing_bytes > 0 {
            let since = since.map(|since| since.map(|disk| &disk.held));
            table(&mut text, of_disk::BACKING, &in_rows(of_disk::BACKING, &disk.held, since));
        }
        if let Some(now) = &disk.far {
            let since = since.and_then(|since| since.of(|disk| disk.far.as_deref()));
            table(&mut text, OF_FAR, &far(now, since));
        }
        let since = since.map(|since| since.map(|disk| &disk.served));
        table(&mut text, SERVED, &in_rows(SERVED, &disk.served, since));
        table(&mut text, FAILED, &failed(disk));
    }
    let since = since.map(|since| since.map(|report| &report.nbd));
    table(&mut text, OF_NBD, &in_rows(OF_NBD, &report.nbd, since));
    let _ = writeln!(
        text,
        "zfold {}, process {}, up {} s",
        clean(&report.version),
        report.pid,
        report.uptime_seconds
    );
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
    let mut rows = in_rows(of_disk::MEMORY, &disk.held, None);
    if let Some(limit) = rows.iter_mut().find(|row| row.0 == "mem_limit")
        && disk.held.mem_limit == 0
    {
        limit.1 = "none".to_owned();
    }
    rows.push(("ratio", format!("{:.2}", disk.ratio), "orig_data_size / mem_used_total"));
    rows
}

fn pages(disk: &DiskReport) -> Vec<Row> {
    let mut rows = in_rows(PAGES, &disk.held, None);
    rows.extend(in_rows(PAGES, &disk.served, None));
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

fn far(now: &FarReport, since: Option<Since<'_, FarReport>>) -> Vec<Row> {
    now.rows(in_rows(OF_FAR, &now.stats, since.map(|since| since.map(|far| &far.stats))))
}
