//! The page: one file with charts and tables, which needs no network and no script.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::table::{TITLES, caption, cells, metrics, number, remarks, variant};
use crate::experiment::machine::Machine;
use crate::experiment::{Figure, Outcome};

/// Colours that stand out from white and from black.
const COLORS: [&str; 8] =
    ["#3b7dd8", "#d96a1c", "#2a9964", "#a45fc9", "#d1455c", "#8a7a1f", "#1f95a8", "#808690"];

/// Where the lines of a chart lie in its picture: left, top, width, height.
const AREA: [f64; 4] = [80.0, 12.0, 620.0, 268.0];
/// Lines across a chart above that of zero.
const STEPS: u32 = 4;

/// Returns the page: for every outcome its question, tables with a bar beside each median, curves
/// of metrics over several numbers of workers, and remarks.
pub fn page(machine: &Machine, outcomes: &[Outcome]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "zfold lab" @for outcome in outcomes { ", " (outcome.experiment) } }
                style { (PreEscaped(include_str!("page.css"))) }
            }
            body {
                h1 { "zfold lab" }
                p { (machine) }
                nav {
                    @for Outcome { experiment, .. } in outcomes {
                        a href={ "#" (experiment) } { (experiment) } " "
                    }
                }
                @for outcome in outcomes { (section(outcome)) }
            }
        }
    };
    page.into_string() + "\n"
}

/// Returns what the page says of one outcome.
fn section(outcome: &Outcome) -> Markup {
    html! {
        section id=(outcome.experiment) {
            h2 { (outcome.experiment) ": " (outcome.question) }
            @for group in metrics(&outcome.figures) {
                h3 { (caption(&group[0])) }
                @let several = group.iter().any(|figure| figure.workers != group[0].workers);
                @if several && group.iter().all(|figure| figure.value >= 0.0) { (curves(group)) }
                (table(group))
            }
            @for (name, times) in &outcome.histograms {
                h3 { (name) ", ns" }
                pre { (times.drawing()) }
            }
            ul { @for remark in remarks(outcome) { li { (remark) } } }
        }
    }
}

/// Returns the figures of one metric as rows, each with a bar.
fn table(group: &[Figure]) -> Markup {
    let most = most(group);
    html! {
        table {
            tr { @for title in TITLES { th { (title) } } }
            @for (figure, row) in group.iter().zip(cells(group)) {
                tr {
                    @for cell in row { td { (cell) } }
                    td {
                        svg width="160" height="10" {
                            rect width=(length(160.0, figure.value, most)) height="10" {}
                        }
                    }
                }
            }
        }
    }
}

/// Returns the medians of each contestant over workers, simulated ones dashed; each number of
/// workers is as far from the next.
fn curves(group: &[Figure]) -> Markup {
    let [left, top, width, height] = AREA;
    let mut workers: Vec<u32> = group.iter().map(|figure| figure.workers).collect();
    workers.sort_unstable();
    workers.dedup();
    let mut lines: Vec<(String, Vec<&Figure>)> = Vec::new();
    for figure in group {
        match lines.iter_mut().find(|(name, _)| *name == variant(figure)) {
            Some((_, line)) => line.push(figure),
            None => lines.push((variant(figure), vec![figure])),
        }
    }
    let most = most(group);
    let x = |place: usize| left + width * place as f64 / (workers.len() - 1) as f64;
    let y = |value: f64| top + height - length(height, value, most);
    let point = |figure: &&Figure| {
        let place = workers.iter().position(|&count| count == figure.workers).unwrap_or(0);
        format!("{:.1},{:.1}", x(place), y(figure.value))
    };
    let color = |at: usize| COLORS[at % COLORS.len()];
    let step = |step: u32| most * f64::from(step) / f64::from(STEPS);
    let decimals = if most < 10.0 { 2 } else { 0 };
    html! {
        ul.legend {
            @for (at, (name, _)) in lines.iter().enumerate() {
                li style={ "color:" (color(at)) } { (name) }
            }
        }
        svg viewBox="0 0 720 310" role="img" {
            @for value in (0..=STEPS).map(step) {
                line.grid x1=(left) x2=(left + width) y1=(y(value)) y2=(y(value)) {}
                text x=(left - 8.0) y=(y(value) + 4.0) text-anchor="end" {
                    (number(value, decimals))
                }
            }
            @for (place, count) in workers.iter().enumerate() {
                text x=(x(place)) y=(top + height + 22.0) text-anchor="middle" { (count) }
            }
            @for (at, (_, line)) in lines.iter().enumerate() {
                @let points: Vec<String> = line.iter().map(point).collect();
                @let dashes = line[0].simulated.then_some("6 4");
                polyline points=(points.join(" ")) stroke=(color(at)) stroke-dasharray=[dashes] {}
            }
        }
    }
}

/// Returns the largest median, or one if there is none.
fn most(group: &[Figure]) -> f64 {
    let medians = group.iter().map(|figure| figure.value).filter(|value| value.is_finite());
    let most = medians.fold(0.0, f64::max);
    if most > 0.0 { most } else { 1.0 }
}

/// Returns how long `value` is drawn where `most` is as long as `whole`.
fn length(whole: f64, value: f64, most: f64) -> f64 {
    let share = if value.is_finite() { (value / most).clamp(0.0, 1.0) } else { 0.0 };
    (whole * share * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::machine::tests::machine;
    use crate::experiment::report::testing::{figure, outcome};

    #[test]
    fn page_has_every_figure_and_needs_no_network_and_no_script() {
        let page = page(&machine(), &[outcome()]);
        for foreign in ["http", "//", "<script", "<link", "<img", "src=", "url(", "@import"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        for cell in metrics(&outcome().figures).flat_map(cells).flatten() {
            assert!(page.contains(&format!(">{cell}</td>")), "{cell}");
        }
        // A bar for each figure, and curves of the one metric over workers, half of them dashed.
        assert_eq!((page.matches("<rect ").count(), page.matches("<polyline ").count()), (5, 4));
        assert_eq!(
            (page.matches("<svg ").count(), page.matches("stroke-dasharray").count()),
            (6, 2)
        );
        for escaped in ["zs_free &amp; &lt;locks&gt;", "files &lt;per&gt;", "&lt;4 GHz&gt;"] {
            assert!(page.contains(escaped), "{escaped}");
        }
        assert!(!page.contains("<per>") && !page.contains("<two>"));
    }

    #[test]
    fn curves_go_from_zero_up_to_the_largest_value() {
        let figures = [figure("a", 1, &[10.0]), figure("a", 2, &[20.0]), figure("a", 64, &[0.0])];
        let svg = curves(&figures).into_string();
        // Each number of workers is as far from the next; zero is at the bottom, ten half way up.
        assert!(svg.contains("points=\"80.0,146.0 390.0,12.0 700.0,280.0\""), "{svg}");
    }
}
