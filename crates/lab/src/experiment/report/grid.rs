//! Figures as rows of cells: what the tables as text and the tables of the page have in common.
//!
//! Figures of one metric make a group of rows with one precision. Statistics of locks make a grid
//! of their own for each number of workers, a row per metric and a column per contestant.

use zfold_pool::LockStat;

use crate::experiment::{Figure, locks};

/// A table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// A title per column.
    pub(super) titles: Vec<String>,
    /// How many columns are names, ahead of those of numbers.
    pub(super) names: usize,
    /// Rows below their captions, of a cell per column.
    pub(super) groups: Vec<(String, Vec<Vec<String>>)>,
}

/// Returns all figures in tables: statistics of locks last.
pub(super) fn grids(figures: &[Figure]) -> Vec<Grid> {
    let by_metric = metrics(figures);
    let plain = (!by_metric.is_empty()).then(|| figure_grid(&by_metric));
    plain.into_iter().chain(lock_stats(figures).iter().map(|group| lock_grid(group))).collect()
}

/// Returns the figures of each metric and unit, without statistics of locks.
pub(super) fn metrics(figures: &[Figure]) -> Vec<Vec<&Figure>> {
    let plain = figures.iter().filter(|figure| !is_lock_stat(figure));
    grouped(plain, |figure| (figure.metric.as_str(), figure.unit))
}

/// Returns the statistics of locks, those of each number of workers.
pub(super) fn lock_stats(figures: &[Figure]) -> Vec<Vec<&Figure>> {
    let locks = figures.iter().filter(|figure| is_lock_stat(figure));
    grouped(locks, |figure| (figure.workers, figure.simulated))
}

fn is_lock_stat(figure: &Figure) -> bool {
    lock_metrics().any(|metric| metric == figure.metric)
}

fn lock_metrics() -> impl Iterator<Item = &'static str> {
    locks::rows(&LockStat::default()).into_iter().map(|(name, ..)| name)
}

/// Returns the figures of equal keys together, in the order in which the keys come first.
pub(super) fn grouped<'a, K: PartialEq>(
    figures: impl Iterator<Item = &'a Figure>,
    key: impl Fn(&'a Figure) -> K,
) -> Vec<Vec<&'a Figure>> {
    let mut groups: Vec<Vec<&Figure>> = Vec::new();
    for figure in figures {
        match groups.iter_mut().find(|group| key(group[0]) == key(figure)) {
            Some(group) => group.push(figure),
            None => groups.push(vec![figure]),
        }
    }
    groups
}

/// Returns the name of a contestant; of a simulated one, with a mark.
pub(super) fn variant(figure: &Figure) -> String {
    let mark = if figure.simulated { ", sim" } else { "" };
    format!("{}{mark}", figure.variant)
}

/// Returns a metric with its unit.
pub(super) fn metric(figure: &Figure) -> String {
    match figure.unit {
        unit if unit.is_empty() || unit == figure.metric => figure.metric.clone(),
        unit => format!("{}, {unit}", figure.metric),
    }
}

/// Returns the table of figures by metric, without the columns that are empty in every row.
fn figure_grid(metrics: &[Vec<&Figure>]) -> Grid {
    let titles = ["variant", "workers", "median", "vs base", "mean", "stddev", "min", "max"];
    let titles = titles.iter().chain(&["published"]);
    let mut grid = Grid {
        titles: titles.map(|&title| title.to_owned()).collect(),
        names: 1,
        groups: metrics.iter().map(|group| (metric(group[0]), figure_rows(group))).collect(),
    };
    for at in (0..grid.titles.len()).rev() {
        let mut rows = grid.groups.iter().flat_map(|(_, rows)| rows);
        if rows.all(|row| row[at].is_empty()) {
            grid.titles.remove(at);
            grid.groups.iter_mut().flat_map(|(_, rows)| rows).for_each(|row| {
                row.remove(at);
            });
        }
    }
    grid
}

/// Returns the rows of the figures of one metric.
fn figure_rows(group: &[&Figure]) -> Vec<Vec<String>> {
    let decimals = decimals(group);
    let cell = |value| number(value, decimals);
    let row = |figure: &&Figure| {
        vec![
            variant(figure),
            figure.workers.to_string(),
            cell(figure.value),
            to_base(figure, group),
            cell(figure.mean),
            cell(figure.stddev),
            cell(figure.min),
            cell(figure.max),
            figure.published.map_or_else(String::new, cell),
        ]
    };
    group.iter().map(row).collect()
}

/// Returns the median over that of the first contestant with as many workers; nothing for a
/// contestant without another.
fn to_base(figure: &Figure, group: &[&Figure]) -> String {
    let like =
        |other: &&&Figure| (other.workers, other.simulated) == (figure.workers, figure.simulated);
    let mut rivals = group.iter().filter(like);
    let base = rivals.next().expect("the figure is one of its group");
    match (base.variant == figure.variant, base.value) {
        (true, _) if rivals.next().is_none() => String::new(),
        (true, _) => "base".to_owned(),
        (false, 0.0) => "-".to_owned(),
        (false, value) => number(figure.value / value, 2),
    }
}

/// Returns the decimals that give the smallest median of a group four digits: none for a group of
/// whole numbers.
fn decimals(group: &[&Figure]) -> usize {
    let whole = |figure: &&Figure| [figure.value, figure.min, figure.max].iter().all(is_whole);
    let medians = group.iter().map(|figure| figure.value.abs()).filter(|&value| value > 0.0);
    match medians.min_by(f64::total_cmp) {
        _ if group.iter().all(whole) => 0,
        Some(..0.1) => 5,
        Some(..1.0) => 4,
        Some(..10.0) => 3,
        Some(..100.0) => 2,
        Some(..1000.0) => 1,
        _ => 0,
    }
}

fn is_whole(value: &f64) -> bool {
    value.fract() == 0.0
}

/// Returns a number with commas between thousands; a dash for what is none.
pub(super) fn number(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let text = format!("{value:.decimals$}");
    let digits = text.trim_start_matches('-');
    let whole = digits.find('.').unwrap_or(digits.len());
    let mut grouped = text[..text.len() - digits.len()].to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at < whole && (whole - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns the statistics of locks with one number of workers as `/proc/lock_stat` has them.
fn lock_grid(group: &[&Figure]) -> Grid {
    let variants = grouped(group.iter().copied(), |figure| &figure.variant);
    let mut titles = vec![String::new()];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for metric in lock_metrics() {
        if group.iter().any(|figure| figure.metric == metric) {
            rows.push(vec![metric.to_owned()]);
        }
    }
    for figures in &variants {
        let mut column = |title: String, value: fn(&Figure) -> Option<f64>| {
            titles.push(title);
            for row in &mut rows {
                let figure = figures.iter().find(|figure| figure.metric == row[0]);
                let cell = figure.and_then(|figure| Some(lock_cell(figure, value(figure)?)));
                row.push(cell.unwrap_or_default());
            }
        };
        column(variant(figures[0]), |figure| Some(figure.value));
        if figures.iter().any(|figure| figure.published.is_some()) {
            column("published".to_owned(), |figure| figure.published);
        }
    }
    Grid { titles, names: 1, groups: vec![(lock_caption(group[0]), rows)] }
}

/// Returns the line above statistics of locks.
pub(super) fn lock_caption(figure: &Figure) -> String {
    let plural = if figure.workers == 1 { "" } else { "s" };
    format!("lock statistics, {} worker{plural}, times in us", figure.workers)
}

/// Returns a count, or a time in microseconds.
fn lock_cell(figure: &Figure, value: f64) -> String {
    match microseconds(figure, value) {
        Some(time) => format!("{time:.2}"),
        None => format!("{value:.0}"),
    }
}

/// Returns `value` of a figure in microseconds, if it is of time.
pub(super) fn microseconds(figure: &Figure, value: f64) -> Option<f64> {
    match figure.unit {
        "ns" => Some(value / 1e3),
        "us" | "µs" => Some(value),
        "ms" => Some(value * 1e3),
        "s" => Some(value * 1e6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(variant: &str, workers: u32, value: f64) -> Figure {
        Figure::measured("free", variant, workers, "time", "ms", &[value])
    }

    #[test]
    fn groups_have_one_precision() {
        let cells = |values: [f64; 2]| {
            let figures = values.map(|value| measured("a", 1, value));
            let rows = figure_rows(&figures.iter().collect::<Vec<_>>());
            rows.into_iter().map(|row| row[2].clone()).collect::<Vec<_>>()
        };
        assert_eq!(cells([1.5, 1234.0]), ["1.500", "1,234.000"]);
        assert_eq!(cells([0.05, 0.0]), ["0.05000", "0.00000"]);
        assert_eq!(cells([12.0, 1234.0]), ["12", "1,234"]);
    }

    #[test]
    fn base_is_the_first_with_as_many_workers_measured_in_the_same_way() {
        let figures = [
            measured("a", 1, 4.0),
            measured("b", 1, 6.0),
            measured("a", 2, 8.0).simulated(),
            measured("b", 2, 2.0).simulated(),
            measured("b", 4, 0.0),
            measured("c", 4, 1.0),
            measured("c", 8, 1.0),
        ];
        let rows = figure_rows(&figures.iter().collect::<Vec<_>>());
        let ratios: Vec<&str> = rows.iter().map(|row| &*row[3]).collect();
        assert_eq!(ratios, ["base", "1.50", "base", "0.25", "base", "-", ""]);
    }
}
