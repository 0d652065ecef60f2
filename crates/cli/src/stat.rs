//! `zfold stat`: the statistics of a server as tables or JSON.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use zfold_figures::Doc;
use zfold_run::Figures;
use zfold_run::figures::table::{BACKING, MEMORY, STAYS, WORK};

use crate::args::{StatArgs, StatFormat};
use crate::control::client::Client;
use crate::control::state::{self as run_state, RunState};
use crate::disk::report::{DiskReport, Report, SCHEMA};
use crate::shared::clean::clean;
use crate::shared::exit::{self, Failure, Form};
use crate::shared::far::FarReport;
use crate::shared::figures::{rows, told};
use crate::shared::table::{Row, count, size, table};
use crate::watched::rates::Since;

/// Writes the statistics to stdout, again and again if that was asked for.
pub(crate) fn run(args: &StatArgs) -> Result<(), Failure> {
    match args.target.pid {
        Some(pid) => {
            let told = |state: &RunState, since: Option<Since<'_, RunState>>| of_run(state, since);
            repeat(args, &mut Client::of_run(pid)?, run_state::SCHEMA, told)
        }
        None => {
            let told = |report: &Report, since: Option<Since<'_, Report>>| tables(report, since);
            repeat(args, &mut Client::connect(&args.target)?, SCHEMA, told)
        }
    }
}

/// Asks for a state at each interval, and writes it as `told` tells it, with what was before.
fn repeat<T: DeserializeOwned>(
    args: &StatArgs,
    client: &mut Client,
    schema: &str,
    told: impl Fn(&T, Option<Since<'_, T>>) -> String,
) -> Result<(), Failure> {
    let mut before: Option<(T, Instant)> = None;
    loop {
        let (result, at) = (client.ask("stat", Vec::new())?, Instant::now());
        let text = match args.format {
            StatFormat::Json => format!("{result}\n"),
            StatFormat::Table => {
                let now: T = serde_json::from_value(result).map_err(|error| {
                    Failure::new(format!(
                        "the statistics are not {schema} ({error}): use the zfold that was started"
                    ))
                })?;
                let since = before.as_ref().and_then(|(old, then)| Since::new(old, *then, at));
                let text = told(&now, since);
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

/// Returns a total, with its rate if something was before.
fn total<T>(now: &T, since: Option<Since<'_, T>>, of: fn(&T) -> u64) -> String {
    with_rate(count(of(now)), since.map(|since| count(since.rate(now, of).round() as u64)))
}

/// Returns bytes, as [`total`].
fn bytes<T>(now: &T, since: Option<Since<'_, T>>, of: fn(&T) -> u64) -> String {
    let rate = since.map(|since| size(since.rate(now, of) as u64).trim_end().to_owned());
    with_rate(size(of(now)), rate)
}

fn with_rate(total: String, rate: Option<String>) -> String {
    match rate {
        Some(rate) => format!("{total} {:>14}", rate + "/s"),
        None => total,
    }
}

/// Returns a value that has no rate, in the column of totals.
fn unrated<T>(value: String, since: Option<Since<'_, T>>) -> String {
    match since {
        Some(_) => format!("{value} {:>14}", ""),
        None => value,
    }
}

/// Returns the state of a run for people.
fn of_run(state: &RunState, since: Option<Since<'_, RunState>>) -> String {
    let mut text = format!("{}: {}\n\n", state.pid, clean(&state.command));
    let figures = |table: &str, rated: bool| {
        rows::<Figures>(Doc::State, table, |figure| {
            let value = told(figure.unit, (figure.of)(&state.figures));
            let rate = |since: Since<'_, RunState>| {
                let rate = since.rate(state, |state| (figure.of)(&state.figures));
                count(rate.round() as u64)
            };
            match since.filter(|_| rated) {
                Some(since) if figure.has_rate() => with_rate(value, Some(rate(since))),
                since => unrated(value, since),
            }
        })
    };
    table(&mut text, MEMORY, &figures(MEMORY, false));
    if state.figures.backing_bytes > 0 {
        table(&mut text, BACKING, &figures(BACKING, false));
    }
    table(&mut text, STAYS, &figures(STAYS, false));
    if let Some(now) = &state.far {
        let since = since.and_then(|since| since.of(|run| run.far.as_deref()));
        table(&mut text, "pages on other machines", &far(now, since));
    }
    table(&mut text, WORK, &figures(WORK, true));
    text
}

/// Returns the statistics for people.
fn tables(report: &Report, since: Option<Since<'_, Report>>) -> String {
    let mut text = String::new();
    for disk in &report.disks {
        let since = since.and_then(|since| {
            since.of(|report| report.disks.iter().find(|before| before.name == disk.name))
        });
        heading(&mut text, disk);
        table(&mut text, "memory", &memory(disk));
        table(&mut text, "pages", &pages(disk));
        if disk.store.backing_bytes > 0 {
            table(&mut text, "backing file", &backing(disk, since));
        }
        if let Some(now) = &disk.far {
            let since = since.and_then(|since| since.of(|disk| disk.far.as_deref()));
            table(&mut text, "pages on other machines", &far(now, since));
        }
        table(&mut text, "served", &served(disk, since));
        table(&mut text, "refused or failed", &failed(disk));
    }
    let total = |of: fn(&Report) -> u64| total(report, since, of);
    let rows = [
        ("connections", unrated(count(report.nbd.connections), since), ""),
        ("connections_total", total(|report| report.nbd.connections_total), ""),
        (
            "refused_total",
            total(|report| report.nbd.refused_total),
            "connections beyond --max-connections",
        ),
        ("failed_handshakes_total", total(|report| report.nbd.failed_handshakes_total), ""),
        ("requests_total", total(|report| report.nbd.requests_total), ""),
        (
            "errors_total",
            total(|report| report.nbd.errors_total),
            "requests answered with an error",
        ),
    ];
    table(&mut text, "nbd, all disks", &rows);
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
        size(disk.size_bytes),
        clean(&disk.codec),
        clean(&disk.allocator)
    );
    for address in &disk.addresses {
        let _ = writeln!(text, "{}", clean(address));
    }
    let _ = writeln!(text);
}

fn memory(disk: &DiskReport) -> Vec<Row> {
    let (mm, store) = (&disk.mm_stat, &disk.store);
    let limit = if mm.mem_limit == 0 { "none".to_owned() } else { size(mm.mem_limit) };
    vec![
        ("orig_data_size", size(mm.orig_data_size), "stored, as clients see it"),
        ("compr_data_size", size(mm.compr_data_size), "of that in memory, compressed"),
        ("mem_used_total", size(mm.mem_used_total), "all memory held"),
        ("  pool_total_size", size(disk.zswap.pool_total_size), "pages of the pool"),
        ("  idle", size(store.pool_idle_bytes), "pages kept for the next use"),
        (
            "  tables",
            size(store.metadata_bytes + store.pool_metadata_bytes),
            "slots, handles, codecs",
        ),
        ("mem_used_max", size(mm.mem_used_max), "the most so far"),
        ("mem_limit", limit, ""),
        ("ratio", format!("{:.2}", disk.ratio), "orig_data_size / mem_used_total"),
    ]
}

fn pages(disk: &DiskReport) -> Vec<Row> {
    let (mm, store) = (&disk.mm_stat, &disk.store);
    vec![
        ("stored_pages", count(disk.zswap.stored_pages), ""),
        ("same_pages", count(mm.same_pages), "repeat one word, take no memory"),
        ("huge_pages", count(mm.huge_pages), "stored uncompressed"),
        ("huge_pages_since", count(mm.huge_pages_since), "stored uncompressed, so far"),
        ("duplicate_pages", count(store.duplicate_pages), "that share another one's bytes"),
        ("pages_compacted", count(mm.pages_compacted), "freed by compaction so far"),
        ("recompressed", count(store.recompressed_total), "ever"),
        ("notify_free", count(disk.io_stat.notify_free), "freed by discard so far"),
    ]
}

fn backing(disk: &DiskReport, since: Option<Since<'_, DiskReport>>) -> Vec<Row> {
    let total = |of: fn(&DiskReport) -> u64| total(disk, since, of);
    vec![
        ("size", unrated(size(disk.store.backing_bytes), since), ""),
        ("used", unrated(size(disk.store.backing_used_bytes), since), ""),
        ("bd_count", unrated(count(disk.bd_stat.bd_count), since), "pages on it"),
        ("bd_reads", total(|disk| disk.bd_stat.bd_reads), "pages read so far"),
        ("bd_writes", total(|disk| disk.bd_stat.bd_writes), "pages written so far"),
    ]
}

fn far(now: &FarReport, since: Option<Since<'_, FarReport>>) -> Vec<Row> {
    now.rows(|figure| match figure {
        (name, of, form, _) if name.ends_with("_total") => {
            let rate = since.map(|since| form(since.rate(now, of).round() as u64));
            with_rate(now.value(figure), rate.map(|rate| rate.trim_end().to_owned()))
        }
        _ => unrated(now.value(figure), since),
    })
}

fn served(disk: &DiskReport, since: Option<Since<'_, DiskReport>>) -> Vec<Row> {
    let total = |of: fn(&DiskReport) -> u64| total(disk, since, of);
    let bytes = |of: fn(&DiskReport) -> u64| bytes(disk, since, of);
    vec![
        ("reads", total(|disk| disk.device.reads_total), ""),
        ("read", bytes(|disk| disk.device.read_bytes_total), ""),
        ("writes", total(|disk| disk.device.writes_total), ""),
        ("written", bytes(|disk| disk.device.written_bytes_total), ""),
        ("discards", total(|disk| disk.device.discards_total), ""),
        ("write_zeroes", total(|disk| disk.device.write_zeroes_total), ""),
        ("flushes", total(|disk| disk.device.flushes_total), ""),
    ]
}

/// Returns what went wrong; zeros are left out, since they are what is expected.
fn failed(disk: &DiskReport) -> Vec<Row> {
    let (zswap, store) = (&disk.zswap, &disk.store);
    [
        ("failed_reads", disk.io_stat.failed_reads, "requests"),
        ("failed_writes", disk.io_stat.failed_writes, "requests"),
        ("pool_limit_hit", zswap.pool_limit_hit, "pages, at mem_limit"),
        ("reject_alloc_fail", zswap.reject_alloc_fail, "pages, for lack of memory"),
        ("reject_compress_poor", zswap.reject_compress_poor, "pages that do not compress"),
        ("reject_reclaim_fail", zswap.reject_reclaim_fail, "writebacks that made no room"),
        ("decompress_fail", zswap.decompress_fail, "pages that did not decode"),
        ("backing_failed_reads", store.backing_failed_reads_total, "pages"),
        ("backing_failed_writes", store.backing_failed_writes_total, "pages"),
        ("backing_damaged", store.backing_damaged_total, "pages"),
    ]
    .into_iter()
    .filter(|(_, value, _)| *value > 0)
    .map(|(name, value, meaning)| (name, count(value), meaning))
    .collect()
}
