//! The columns of tables of runs and disks.

use super::subject::Subject;
use crate::shared::table::{short_rate, short_size, time};

/// A column; the command comes behind all of them.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) width: usize,
    /// Those of the least numbers stay where there is little room.
    pub(crate) rank: u8,
    /// The figure, by which rows are ordered; none if there is none of this row.
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
    Column {
        title: "PID",
        width: 7,
        rank: 0,
        value: |one| Some(f64::from(one.pid())),
        shown: |pid| format!("{pid:.0}"),
    },
    Column {
        title: "LIMIT",
        width: 6,
        rank: 2,
        value: |one| Some(one.limit().map_or(f64::INFINITY, |bytes| bytes as f64)),
        shown: limit,
    },
    Column {
        title: "RES",
        width: 6,
        rank: 1,
        value: |one| Some(one.resident() as f64),
        shown: bytes,
    },
    Column {
        title: "STORED",
        width: 6,
        rank: 4,
        value: |one| Some(one.stored() as f64),
        shown: bytes,
    },
    Column {
        title: "RATIO",
        width: 5,
        rank: 3,
        value: Subject::ratio,
        shown: |ratio| format!("{ratio:.2}"),
    },
    Column {
        title: "FAULT/S",
        width: 7,
        rank: 5,
        value: |one| one.of_run(|run| run.faults_per_second),
        shown: short_rate,
    },
    Column {
        title: "P50",
        width: 7,
        rank: 7,
        value: |one| one.of_run(|run| run.recent_fault_p50_ns).map(|ns| ns as f64),
        shown: short_time,
    },
    Column {
        title: "P99",
        width: 7,
        rank: 6,
        value: |one| one.of_run(|run| run.recent_fault_p99_ns).map(|ns| ns as f64),
        shown: short_time,
    },
    Column {
        title: "REFLT/S",
        width: 7,
        rank: 8,
        value: |one| one.of_run(|run| run.refaults_per_second),
        shown: short_rate,
    },
    Column { title: "EVICT/S", width: 7, rank: 9, value: Subject::evictions, shown: short_rate },
    Column {
        title: "BACKING",
        width: 7,
        rank: 10,
        value: |one| one.backing().map(|bytes| bytes as f64),
        shown: bytes,
    },
    Column { title: "REQ/S", width: 7, rank: 11, value: Subject::requests, shown: short_rate },
];

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

fn bytes(bytes: f64) -> String {
    short_size(bytes as u64)
}

fn short_time(nanoseconds: f64) -> String {
    time(nanoseconds as u64).replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(width: usize) -> Vec<&'static str> {
        fitting(width).into_iter().map(|column| column.title).collect()
    }

    #[test]
    fn what_matters_most_stays_where_there_is_little_room() {
        assert_eq!(titles(20), ["PID", "RES"]);
        assert_eq!(titles(200).len(), COLUMNS.len());
        let at_80 = ["PID", "LIMIT", "RES", "STORED", "RATIO", "FAULT/S", "P50", "P99"];
        assert_eq!(titles(80), at_80);
        assert!(titles(3).is_empty());
    }
}
