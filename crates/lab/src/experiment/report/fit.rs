//! Tables and prose in the width of a terminal.

use super::grid::Grid;

/// Columns that go first where there is no room, in this order.
const SPARED: [&str; 5] = ["mean", "stddev", "max", "min", "published"];

/// The text between two columns.
const GAP: usize = 2;

/// A grid that fits.
#[derive(Debug)]
pub(super) struct Fitted {
    /// The grid, in several parts if it had too many columns of equal worth.
    pub(super) grids: Vec<Grid>,
    /// Titles of the columns that were left out.
    pub(super) left_out: Vec<&'static str>,
}

/// Returns `grid` in at most `width` characters, if it can be.
pub(super) fn fitted(mut grid: Grid, width: Option<usize>) -> Fitted {
    let mut left_out = Vec::new();
    let Some(width) = width else { return Fitted { grids: vec![grid], left_out } };
    // Several figures of each contestant: less of each is enough.
    if grid.titles.iter().any(|title| title == "median") {
        for spared in SPARED {
            let at = grid.titles.iter().position(|title| title == spared);
            if let Some(at) = at.filter(|_| width_of(&grid) > width) {
                grid = columns(&grid, &|column| column != at);
                left_out.push(spared);
            }
        }
        return Fitted { grids: vec![grid], left_out };
    }
    // A column for each contestant: as many side by side as there is room for.
    let widths = widths(&grid);
    let names: usize = widths[..grid.names].iter().map(|width| width + GAP).sum();
    let (mut grids, mut from, mut used) = (Vec::new(), grid.names, names);
    let part = |from: usize, to: usize| {
        columns(&grid, &|column| column < grid.names || (from..to).contains(&column))
    };
    for (at, &column) in widths.iter().enumerate().skip(grid.names) {
        if at > from && used + column > width {
            grids.push(part(from, at));
            (from, used) = (at, names);
        }
        used += column + GAP;
    }
    grids.push(part(from, widths.len()));
    Fitted { grids, left_out }
}

/// Returns the columns of `grid` that are to be kept.
fn columns(grid: &Grid, keep: &dyn Fn(usize) -> bool) -> Grid {
    let kept = |row: &Vec<String>| {
        let cells = row.iter().enumerate().filter(|(at, _)| keep(*at));
        cells.map(|(_, cell)| cell.clone()).collect::<Vec<_>>()
    };
    let groups = grid.groups.iter();
    let groups = groups.map(|(caption, rows)| (caption.clone(), rows.iter().map(kept).collect()));
    Grid { titles: kept(&grid.titles), names: grid.names, groups: groups.collect() }
}

fn widths(grid: &Grid) -> Vec<usize> {
    let rows = grid.groups.iter().flat_map(|(_, rows)| rows).chain([&grid.titles]);
    let mut widths = vec![0; grid.titles.len()];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

fn width_of(grid: &Grid) -> usize {
    let widths = widths(grid);
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}
