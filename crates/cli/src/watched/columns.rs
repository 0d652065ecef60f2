//! The columns of tables of runs and disks.

use super::subject::Subject;
use crate::shared::table::{short_rate, short_size, time};

/// A column; the command comes behind all of them.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) width: usize,
    /// Those of the least numbers stay where there is little room.
    rank: u8,
    /// A value of a row, by which rows are ordered; none if there is none of this row.
    value: fn(&Subject) -> Option<f64>,
    shown: fn(f64) -> String,
}

impl Column {
    /// Returns what a row shows.
    pub(crate) fn cell(&self, one: &Subject) -> String {
        (self.value)(one).map_or_else(|| "-".to_owned(), self.shown)
    }

    /// Returns what rows are ordered by.
    pub(crate) fn order(&self, one: &Subject) -> f64 {
        (self.value)(one).unwrap_or(0.0)
    }
}

/// All of them, from left to right.
pub(crate) static COLUMNS: [Column; 12] = [
    column("PID", 7, 0, |one| Some(f64::from(one.pid())), |pid| format!("{pid:.0}")),
    column("LIMIT", 6, 2, |one| Some(one.limit().map_or(f64::INFINITY, float)), limit),
    column("RES", 6, 1, |one| Some(float(one.resident())), bytes),
    column("STORED", 6, 4, |one| Some(float(one.stored())), bytes),
    column("RATIO", 5, 3, Subject::ratio, |ratio| format!("{ratio:.2}")),
    column("FAULT/S", 7, 5, Subject::faults, short_rate),
    column("P50", 7, 7, |one| one.recent(|run| run.recent_fault_p50_ns), short_time),
    column("P99", 7, 6, |one| one.recent(|run| run.recent_fault_p99_ns), short_time),
    column("REFLT/S", 7, 8, Subject::refaults, short_rate),
    column("EVICT/S", 7, 9, Subject::evictions, short_rate),
    column("BACKING", 7, 10, |one| one.backing().map(float), bytes),
    column("REQ/S", 7, 11, Subject::requests, short_rate),
];

const fn column(
    title: &'static str,
    width: usize,
    rank: u8,
    value: fn(&Subject) -> Option<f64>,
    shown: fn(f64) -> String,
) -> Column {
    Column { title, width, rank, value, shown }
}

/// Most room that is kept for the command.
const COMMAND: usize = 20;

/// Returns the columns that fit a line of this width, with room for the command.
pub(crate) fn fitting(width: usize) -> Vec<&'static Column> {
    let mut by_rank: Vec<_> = COLUMNS.iter().collect();
    by_rank.sort_by_key(|column| column.rank);
    let mut used = (width / 5).min(COMMAND);
    let fits = |column: &&Column| {
        used += column.width + 1;
        used <= width
    };
    let ranks: Vec<u8> = by_rank.into_iter().take_while(fits).map(|column| column.rank).collect();
    COLUMNS.iter().filter(|column| ranks.contains(&column.rank)).collect()
}

fn limit(bytes: f64) -> String {
    if bytes.is_infinite() { "none".to_owned() } else { short_size(bytes as u64) }
}

fn float(number: u64) -> f64 {
    number as f64
}

fn bytes(bytes: f64) -> String {
    short_size(bytes as u64)
}

fn short_time(nanoseconds: f64) -> String {
    time(nanoseconds as u64).replace(' ', "")
}
