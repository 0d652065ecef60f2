//! The columns of tables of runs and disks.
//!
//! They are made once, at their first use: some here, some as figures are declared to have one.

use std::sync::LazyLock;

use zfold_figures::{Figure, Figures as _, Kind, Unit};
use zfold_run::Figures;

use super::subject::Subject;
use crate::shared::table::{short_rate, short_size, time};

/// A column; the command comes behind all of them.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) width: usize,
    /// Those of the least numbers stay where there is little room.
    pub(crate) rank: u8,
    /// Its place from the left.
    place: u8,
    value: Value,
    shown: fn(f64) -> String,
}

/// What a column has in a row, by which rows are ordered; none if there is none of this row.
#[derive(Debug)]
enum Value {
    Is(fn(&Subject) -> Option<f64>),
    /// How fast a counter of a run grows, or a gauge.
    Of(&'static Figure<Figures>),
}

impl Value {
    fn of(&self, one: &Subject) -> Option<f64> {
        match self {
            Self::Is(value) => value(one),
            Self::Of(figure) if figure.name == "faults_total" => one.faults(),
            Self::Of(figure) => one.of_run(|run| match figure.kind {
                Kind::Counter => run.rates.of(figure.of),
                Kind::Gauge => Some(float((figure.of)(&run.state.figures))),
            }),
        }
    }
}

impl Column {
    /// Returns what a row shows.
    pub(crate) fn cell(&self, one: &Subject) -> String {
        self.value.of(one).map_or_else(|| "-".to_owned(), self.shown)
    }

    /// Returns what rows are ordered by.
    pub(crate) fn order(&self, one: &Subject) -> f64 {
        self.value.of(one).unwrap_or(0.0)
    }
}

/// All of them, from left to right: those below, and those of declared figures.
pub(crate) static COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let declared = Figures::ALL.iter().filter_map(|figure| {
        let declared = figure.column()?;
        let shown = match (figure.kind, figure.unit) {
            (Kind::Counter, _) => short_rate,
            (Kind::Gauge, Unit::Bytes) => bytes,
            (Kind::Gauge, Unit::Nanoseconds) => short_time,
            (Kind::Gauge, _) => short_rate,
        };
        let zfold_figures::Column { title, place, rank } = declared;
        Some(Column { title, width: 7, place, rank, value: Value::Of(figure), shown })
    });
    let mut columns: Vec<Column> = fixed().into_iter().chain(declared).collect();
    columns.sort_by_key(|column| column.place);
    columns
});

fn column(
    title: &'static str,
    width: usize,
    [place, rank]: [u8; 2],
    value: fn(&Subject) -> Option<f64>,
    shown: fn(f64) -> String,
) -> Column {
    Column { title, width, rank, place, value: Value::Is(value), shown }
}

/// Returns the columns of which the figure is no declared one, or of runs and disks alike.
fn fixed() -> [Column; 10] {
    [
        column("PID", 7, [0, 0], |one| Some(f64::from(one.pid())), |pid| format!("{pid:.0}")),
        column("LIMIT", 6, [1, 2], |one| Some(one.limit().map_or(f64::INFINITY, float)), limit),
        column("RES", 6, [2, 1], |one| Some(float(one.resident())), bytes),
        column("STORED", 6, [3, 4], |one| Some(float(one.stored())), bytes),
        column("RATIO", 5, [4, 3], Subject::ratio, |ratio| format!("{ratio:.2}")),
        column("P50", 7, [6, 7], |one| one.recent(|run| run.recent_fault_p50_ns), short_time),
        column("P99", 7, [7, 6], |one| one.recent(|run| run.recent_fault_p99_ns), short_time),
        column("EVICT/S", 7, [9, 9], Subject::evictions, short_rate),
        column("BACKING", 7, [10, 10], |one| one.backing().map(float), bytes),
        column("REQ/S", 7, [11, 11], Subject::requests, short_rate),
    ]
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
        let titles_of_all: Vec<_> = COLUMNS.iter().map(|column| column.title).collect();
        let all = "PID LIMIT RES STORED RATIO FAULT/S P50 P99 REFLT/S EVICT/S BACKING REQ/S";
        assert_eq!(titles_of_all.join(" "), all);
        let at_80 = ["PID", "LIMIT", "RES", "STORED", "RATIO", "FAULT/S", "P50", "P99"];
        assert_eq!(titles(80), at_80);
        assert!(titles(3).is_empty());
    }
}
