//! `zfold stat`: the statistics of a server as tables or JSON.

use std::fmt::Write as _;
use std::time::Duration;

use crate::args::{StatArgs, StatFormat};
use crate::control::client::Client;
use crate::control::state::RunState;
use crate::disk::report::{DiskReport, Report, SCHEMA};
use crate::shared::exit::{self, Failure};
use crate::shared::table::{Row, count, size, table};

/// Moves to the upper left corner and clears what follows.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Writes the statistics to stdout, again and again if that was asked for.
pub(crate) fn run(args: &StatArgs) -> Result<(), Failure> {
    let mut client = match args.target.pid {
        Some(pid) => Client::of_run(pid)?,
        None => Client::connect(&args.target)?,
    };
    loop {
        let result = client.ask("stat", Vec::new())?;
        let text = match args.format {
            StatFormat::Json => format!("{result}\n"),
            StatFormat::Table if args.target.pid.is_some() => {
                let state = serde_json::from_value(result).map_err(|error| {
                    Failure::new(format!(
                        "the run's state is of another version ({error}): use the zfold that \
                         it was started with"
                    ))
                })?;
                of_run(&state)
            }
            StatFormat::Table => {
                let report: Report = serde_json::from_value(result).map_err(|error| {
                    Failure::new(format!(
                        "the server's statistics are not {SCHEMA} ({error}): use the zfold that \
                         it was started with"
                    ))
                })?;
                tables(&report)
            }
        };
        match args.watch {
            None => return exit::write_output(text.as_bytes()),
            Some(seconds) => {
                let clear = if args.format == StatFormat::Table { CLEAR } else { "" };
                exit::write_output(format!("{clear}{text}").as_bytes())?;
                std::thread::sleep(Duration::from_secs(seconds.into()));
            }
        }
    }
}

/// Returns the state of a run for people.
fn of_run(state: &RunState) -> String {
    let mut text = format!("{}: {}\n\n", state.pid, state.command);
    let rows = [
        ("limit", size(state.limit_bytes), ""),
        ("resident", size(state.resident_bytes), "what counts against it"),
        ("stored", size(state.stored_pages_bytes), "that lies compressed"),
        ("  memory", size(state.stored_bytes), "that this takes, with tables"),
    ];
    table(&mut text, "memory", &rows);
    let rows = [
        ("faults", count(state.faults_total), ""),
        ("  refaults", count(state.refaults_total), "taken back before they were compressed"),
        ("  loads", count(state.loads_total), "decompressed"),
        ("fault p50", count(state.fault_p50_ns / 1000), "us"),
        ("fault p99", count(state.fault_p99_ns / 1000), "us"),
        ("evictions", count(state.evictions_total), "pages that left a process"),
        ("over_limit", count(state.over_limit_total), "times that more than the limit was seen"),
        ("managed", count(state.managed), "address spaces that pages leave"),
        ("unmanaged", count(state.unmanaged_total), "processes whose memory stays as it is"),
    ];
    table(&mut text, "work", &rows);
    text
}

/// Returns the statistics for people.
fn tables(report: &Report) -> String {
    let mut text = String::new();
    for disk in &report.disks {
        heading(&mut text, disk);
        table(&mut text, "memory", &memory(disk));
        table(&mut text, "pages", &pages(disk));
        if disk.store.backing_bytes > 0 {
            table(&mut text, "backing file", &backing(disk));
        }
        table(&mut text, "served", &served(disk));
        table(&mut text, "refused or failed", &failed(disk));
    }
    let nbd = &report.nbd;
    let rows = [
        ("connections", count(nbd.connections), ""),
        ("connections_total", count(nbd.connections_total), ""),
        ("refused_total", count(nbd.refused_total), "connections beyond --max-connections"),
        ("failed_handshakes_total", count(nbd.failed_handshakes_total), ""),
        ("requests_total", count(nbd.requests_total), ""),
        ("errors_total", count(nbd.errors_total), "requests answered with an error"),
    ];
    table(&mut text, "nbd, all disks", &rows);
    let _ = writeln!(
        text,
        "zfold {}, process {}, up {} s",
        report.version, report.pid, report.uptime_seconds
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
        disk.name,
        size(disk.size_bytes),
        disk.codec,
        disk.allocator
    );
    for address in &disk.addresses {
        let _ = writeln!(text, "{address}");
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

fn backing(disk: &DiskReport) -> Vec<Row> {
    let (bd, store) = (&disk.bd_stat, &disk.store);
    vec![
        ("size", size(store.backing_bytes), ""),
        ("used", size(store.backing_used_bytes), ""),
        ("bd_count", count(bd.bd_count), "pages on it"),
        ("bd_reads", count(bd.bd_reads), "pages read so far"),
        ("bd_writes", count(bd.bd_writes), "pages written so far"),
    ]
}

fn served(disk: &DiskReport) -> Vec<Row> {
    let device = &disk.device;
    vec![
        ("reads", count(device.reads_total), ""),
        ("read", size(device.read_bytes_total), ""),
        ("writes", count(device.writes_total), ""),
        ("written", size(device.written_bytes_total), ""),
        ("discards", count(device.discards_total), ""),
        ("write_zeroes", count(device.write_zeroes_total), ""),
        ("flushes", count(device.flushes_total), ""),
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
