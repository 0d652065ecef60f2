//! Tables as text, histograms as bpftrace draws them, and remarks.

use zfold_compare::latency::Latency;
use zfold_compare::text::{self, wrapped};

use crate::experiment::machine::Machine;
use crate::experiment::{Figure, Outcome};

use super::fit::fitted;
use super::grid::{Grid, grids};
use super::remarks::remarks;

/// Returns the heading, the tables, the histograms and the remarks of every outcome. On a terminal
/// of `width` characters no line breaks inside a number.
pub fn table(machine: &Machine, outcomes: &[Outcome], width: Option<usize>) -> String {
    let one = |outcome: &Outcome| {
        let heading = heading(machine, outcome.experiment, &outcome.title, width);
        let parts = [heading, figures(&outcome.figures, width), rest(outcome, width)];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
    };
    outcomes.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

/// Returns what stands above the tables of an outcome.
fn heading(machine: &Machine, experiment: &str, title: &str, width: Option<usize>) -> String {
    let lines = [format!("{experiment}: {title}"), machine.to_string()];
    lines.map(|line| wrapped(&line, width) + "\n").concat()
}

/// Returns the tables of some figures.
fn figures(figures: &[Figure], width: Option<usize>) -> String {
    let mut parts = Vec::new();
    for grid in grids(figures) {
        let fitted = fitted(grid, width);
        parts.extend(fitted.grids.iter().map(draw));
        if !fitted.left_out.is_empty() {
            let names = fitted.left_out.join(", ");
            let line = format!("Left out for want of width: {names} (--format csv has all).");
            parts.push(wrapped(&line, width) + "\n");
        }
    }
    parts.join("\n")
}

/// Returns what stands below the tables of an outcome: its histograms and its remarks.
fn rest(outcome: &Outcome, width: Option<usize>) -> String {
    let drawing = |(name, times): &(String, _)| histogram(name, times);
    let mut parts: Vec<String> = outcome.histograms.iter().map(drawing).collect();
    let remarks = remarks(outcome);
    if !remarks.is_empty() {
        let lines: Vec<String> = remarks.iter().map(|line| wrapped(line, width)).collect();
        parts.push(format!("{}\n", lines.join("\n")));
    }
    parts.join("\n")
}

/// Returns the drawing of the times of single calls.
fn histogram(name: &str, times: &Latency) -> String {
    format!("{name}, ns:\n{}", times.drawing())
}

/// Returns a grid as lines, each group of rows below its caption; the titles above all of them,
/// or below the only caption.
fn draw(grid: &Grid) -> String {
    let rows = grid.groups.iter().flat_map(|(_, rows)| rows);
    let rows: Vec<&Vec<String>> = std::iter::once(&grid.titles).chain(rows).collect();
    let column = |at: usize| rows.iter().map(|row| row[at].clone()).collect();
    let columns: Vec<Vec<String>> = (0..grid.titles.len()).map(column).collect();
    let lines = text::aligned(&columns, grid.names);
    if let [(caption, _)] = &grid.groups[..] {
        return format!("{caption}\n\n{}\n", lines.join("\n"));
    }
    let (titles, mut lines) = (&lines[0], lines[1..].iter());
    let mut text = format!("{titles}\n");
    for (caption, rows) in &grid.groups {
        text += &format!("\n{caption}\n");
        lines.by_ref().take(rows.len()).for_each(|line| text += &format!("{line}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::machine::tests::machine;
    use crate::experiment::report::testing::{lock_outcome, outcome};

    #[test]
    fn table_is_titled_aligned_and_explained() {
        let text = table(&machine(), &[outcome(), lock_outcome()], None);
        let expected = "\
free: zs_free with & without the pool's lock
Some CPU <4 GHz>, 2 CPUs, 8.0 GiB, Some Linux 1, kernel 6.18.0, zfold 0.1.0

variant            workers  median  vs base    mean  stddev     min     max  published

files <per> second, 1/s
hierarchical             1   1,100     base   1,100     100   1,000   1,200        900
class-index              1   1,210     1.10   1,210       0   1,210   1,211
hierarchical, sim        2   1,000     base   1,000       0   1,000   1,000
class-index, sim         2   2,000     2.00   2,000       0   2,000   2,000

pages
hierarchical             1  45,678           45,678       0  45,678  45,678

class-index free, ns:
[512, 1K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[1K, 2K)                2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[2K, 4K)                0 |                                                    |
[4K, 8K)                0 |                                                    |
[8K, 16K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |

Only <two> repeats.
published: the document's figure, of another machine.
sim: computed by a simulator, not measured.


compaction: one compaction at a time
Some CPU <4 GHz>, 2 CPUs, 8.0 GiB, Some Linux 1, kernel 6.18.0, zfold 0.1.0

elapsed, s

variant  workers  median  vs base   mean  stddev    min    max
base           4   133.8     base  133.8     0.0  133.8  133.8
patched        4   123.6     0.92  123.6     0.0  123.6  123.6

lock statistics, 4 workers, times in us

                    base  published  patched
con-bounces      2035730          7  1540066
waittime-max  4004216.24             2745.22

published: the document's figure, of another machine.
";
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn no_number_is_broken_by_a_narrow_terminal() {
        for width in [80, 60, 46] {
            let text = table(&machine(), &[outcome(), lock_outcome()], Some(width));
            for line in text.lines().filter(|line| !line.contains('|')) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
            assert!(text.contains("1,210") && text.contains("4004216.24"), "{text}");
        }
        let text = table(&machine(), &[outcome()], Some(60));
        assert!(text.contains("Left out for want of width: mean, stddev"), "{text}");
    }
}
