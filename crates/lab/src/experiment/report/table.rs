//! Figures as rows of cells, by metric; histograms as bpftrace draws them; and remarks.

use zfold_compare::text::aligned;

use crate::experiment::machine::Machine;
use crate::experiment::{Figure, Outcome};

/// The columns, of which the first is a name.
pub(super) const TITLES: [&str; 7] =
    ["variant", "workers", "median", "vs base", "min", "max", "published"];

/// Returns the heading, the table, the histograms and the remarks of every outcome.
pub fn table(machine: &Machine, outcomes: &[Outcome]) -> String {
    outcomes.iter().map(|outcome| one(machine, outcome)).collect::<Vec<_>>().join("\n\n")
}

fn one(machine: &Machine, outcome: &Outcome) -> String {
    let groups: Vec<&[Figure]> = metrics(&outcome.figures).collect();
    let mut rows = vec![TITLES.map(str::to_owned)];
    rows.extend(groups.iter().copied().flat_map(cells));
    let column = |at: usize| rows.iter().map(|row| row[at].clone()).collect();
    let lines = aligned(&std::array::from_fn::<_, 7, _>(column), 1);
    let mut text = format!("{}: {}\n{machine}\n\n", outcome.experiment, outcome.question);
    let mut lines = lines.iter();
    text.extend(lines.next().map(|titles| format!("{titles}\n")));
    for group in groups {
        text += &format!("\n{}\n", caption(&group[0]));
        text.extend(lines.by_ref().take(group.len()).map(|line| format!("{line}\n")));
    }
    for (name, times) in &outcome.histograms {
        text += &format!("\n{name}, ns:\n{}", times.drawing());
    }
    let remarks = remarks(outcome);
    text + "\n" + &remarks.join("\n") + "\n"
}

/// Returns the figures of each metric.
pub(super) fn metrics(figures: &[Figure]) -> impl Iterator<Item = &[Figure]> {
    figures.chunk_by(|one, next| one.metric == next.metric)
}

/// Returns a metric with its unit.
pub(super) fn caption(figure: &Figure) -> String {
    match figure.unit {
        unit if unit.is_empty() || unit == figure.metric => figure.metric.clone(),
        unit => format!("{}, {unit}", figure.metric),
    }
}

/// Returns the name of a contestant; of a simulated one, with a mark.
pub(super) fn variant(figure: &Figure) -> String {
    let mark = if figure.simulated { ", sim" } else { "" };
    format!("{}{mark}", figure.variant)
}

/// Returns a row for each figure of one metric, below [`TITLES`].
pub(super) fn cells(group: &[Figure]) -> Vec<[String; 7]> {
    let decimals = decimals(group);
    let cell = |value| number(value, decimals);
    let row = |figure: &Figure| {
        [
            variant(figure),
            figure.workers.to_string(),
            cell(figure.value),
            to_base(figure, group),
            cell(figure.min),
            cell(figure.max),
            figure.published.map_or_else(String::new, cell),
        ]
    };
    group.iter().map(row).collect()
}

/// Returns the median over that of the first contestant with as many workers; nothing for a
/// contestant without another.
fn to_base(figure: &Figure, group: &[Figure]) -> String {
    let like =
        |other: &&Figure| (other.workers, other.simulated) == (figure.workers, figure.simulated);
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
fn decimals(group: &[Figure]) -> usize {
    let whole =
        |figure: &Figure| [figure.value, figure.min, figure.max].iter().all(|v| v.fract() == 0.0);
    let medians = group.iter().map(|figure| figure.value.abs()).filter(|&value| value > 0.0);
    match medians.min_by(f64::total_cmp) {
        _ if group.iter().all(whole) => 0,
        Some(least) => (3.0 - least.log10().floor()).clamp(0.0, 5.0) as usize,
        None => 0,
    }
}

/// Returns a number with commas between thousands; a dash for what is none.
pub(super) fn number(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let text = format!("{value:.decimals$}");
    let digits = text.find('.').unwrap_or(text.len());
    let mut number = String::new();
    for (at, character) in text.chars().enumerate() {
        let follows_digit = number.ends_with(|last: char| last.is_ascii_digit());
        if at < digits && (digits - at).is_multiple_of(3) && follows_digit {
            number.push(',');
        }
        number.push(character);
    }
    number
}

/// Returns the sentences below an outcome's table: its own, and what its words mean.
pub(super) fn remarks(outcome: &Outcome) -> Vec<String> {
    let any = |is: fn(&Figure) -> bool| outcome.figures.iter().any(is);
    let mut remarks = outcome.remarks.clone();
    if any(|figure| figure.published.is_some()) {
        remarks.push("published: the document's figure, of another machine.".to_owned());
    }
    if any(|figure| figure.simulated) {
        remarks.push("sim: computed by a simulator, not measured.".to_owned());
    }
    let name = outcome.experiment;
    remarks.push(format!("How it is measured, and how to read it: docs/records/lab/{name}.md."));
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::machine::tests::machine;
    use crate::experiment::report::testing::{figure, outcome};

    #[test]
    fn table_is_titled_aligned_and_explained() {
        let text = table(&machine(), &[outcome()]);
        let expected = "\
free: What do zs_free & <locks> cost?
Some CPU <4 GHz>, 2 CPUs, 8.0 GiB, Some Linux 1, kernel 6.18.0, zfold 0.1.0

variant            workers  median  vs base     min     max  published

files <per> second, 1/s
hierarchical             1   1,100     base   1,000   1,200        900
class-index              1   1,210     1.10   1,210   1,211
hierarchical, sim        2   1,000     base   1,000   1,000
class-index, sim         2   2,000     2.00   2,000   2,000

pages
hierarchical             1  45,678           45,678  45,678

class-index free, ns:
[512, 1K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |
[1K, 2K)                2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|
[2K, 4K)                0 |                                                    |
[4K, 8K)                0 |                                                    |
[8K, 16K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |

Only <two> repeats.
published: the document's figure, of another machine.
sim: computed by a simulator, not measured.
How it is measured, and how to read it: docs/records/lab/free.md.
";
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn groups_have_one_precision() {
        let medians = |values: [f64; 2]| {
            let figures = values.map(|value| figure("a", 1, &[value]));
            cells(&figures).into_iter().map(|row| row[2].clone()).collect::<Vec<_>>()
        };
        assert_eq!(medians([1.5, 1234.0]), ["1.500", "1,234.000"]);
        assert_eq!(medians([0.05, 0.0]), ["0.05000", "0.00000"]);
        assert_eq!(medians([12.0, 1234.0]), ["12", "1,234"]);
    }

    #[test]
    fn base_is_the_first_with_as_many_workers_measured_in_the_same_way() {
        let simulated = |variant, value| Figure { simulated: true, ..figure(variant, 2, &[value]) };
        let figures = [
            figure("a", 1, &[4.0]),
            figure("b", 1, &[6.0]),
            simulated("a", 8.0),
            simulated("b", 2.0),
            figure("b", 4, &[0.0]),
            figure("c", 4, &[1.0]),
            figure("c", 8, &[1.0]),
        ];
        let ratios: Vec<String> = cells(&figures).into_iter().map(|row| row[3].clone()).collect();
        assert_eq!(ratios, ["base", "1.50", "base", "0.25", "base", "-", ""]);
    }
}
