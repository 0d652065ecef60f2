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
    pub(crate) cell: fn(&Subject) -> String,
    /// What the rows are ordered by.
    pub(crate) order: fn(&Subject) -> f64,
}

/// All of them, from left to right.
pub(crate) static COLUMNS: [Column; 12] = [
    Column {
        title: "PID",
        width: 7,
        rank: 0,
        cell: |one| one.pid().to_string(),
        order: |one| f64::from(one.pid()),
    },
    Column {
        title: "LIMIT",
        width: 6,
        rank: 2,
        cell: |one| one.limit().map_or_else(|| "none".to_owned(), short_size),
        order: |one| one.limit().map_or(f64::INFINITY, |bytes| bytes as f64),
    },
    Column {
        title: "RES",
        width: 6,
        rank: 1,
        cell: |one| short_size(one.resident()),
        order: |one| one.resident() as f64,
    },
    Column {
        title: "STORED",
        width: 6,
        rank: 4,
        cell: |one| short_size(one.stored()),
        order: |one| one.stored() as f64,
    },
    Column {
        title: "RATIO",
        width: 5,
        rank: 3,
        cell: |one| shown(one.ratio(), |ratio| format!("{ratio:.2}")),
        order: |one| one.ratio().unwrap_or(0.0),
    },
    Column {
        title: "FAULT/S",
        width: 7,
        rank: 5,
        cell: |one| shown(one.of_run(|run| run.faults_per_second), short_rate),
        order: |one| one.of_run(|run| run.faults_per_second).unwrap_or(0.0),
    },
    Column {
        title: "P50",
        width: 7,
        rank: 7,
        cell: |one| shown(one.of_run(|run| run.recent_fault_p50_ns), short_time),
        order: |one| one.of_run(|run| run.recent_fault_p50_ns).unwrap_or(0) as f64,
    },
    Column {
        title: "P99",
        width: 7,
        rank: 6,
        cell: |one| shown(one.of_run(|run| run.recent_fault_p99_ns), short_time),
        order: |one| one.of_run(|run| run.recent_fault_p99_ns).unwrap_or(0) as f64,
    },
    Column {
        title: "REFLT/S",
        width: 7,
        rank: 8,
        cell: |one| shown(one.of_run(|run| run.refaults_per_second), short_rate),
        order: |one| one.of_run(|run| run.refaults_per_second).unwrap_or(0.0),
    },
    Column {
        title: "EVICT/S",
        width: 7,
        rank: 9,
        cell: |one| shown(one.evictions(), short_rate),
        order: |one| one.evictions().unwrap_or(0.0),
    },
    Column {
        title: "BACKING",
        width: 7,
        rank: 10,
        cell: |one| shown(one.backing(), short_size),
        order: |one| one.backing().unwrap_or(0) as f64,
    },
    Column {
        title: "REQ/S",
        width: 7,
        rank: 11,
        cell: |one| shown(one.requests(), short_rate),
        order: |one| one.requests().unwrap_or(0.0),
    },
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

fn short_time(nanoseconds: u64) -> String {
    time(nanoseconds).replace(' ', "")
}

fn shown<T>(value: Option<T>, how: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), how)
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
