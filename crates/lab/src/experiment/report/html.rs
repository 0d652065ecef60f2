//! The page: one file with plots and tables, which needs no network and no script.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::answer::answers;
use super::grid::{Grid, grids, lock_stats, metrics};
use super::plot::{self, COLORS, Mark, Palette, Plot};
use super::remarks::remarks;
use crate::experiment::Outcome;
use crate::experiment::machine::Machine;

/// Returns the page: for every outcome its title, plots, tables and remarks.
///
/// Metrics over several numbers of workers are plotted as curves, times of single calls as
/// histograms, and statistics of locks as bars; the tables have all figures.
///
/// `question` returns the question of a named experiment; the answers stand below it.
pub fn html(
    machine: &Machine,
    outcomes: &[Outcome],
    question: &dyn Fn(&str) -> Option<&'static str>,
) -> String {
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
                p.machine { (machine) }
                @if outcomes.len() > 1 {
                    nav {
                        @for Outcome { experiment, .. } in outcomes {
                            a href={ "#" (experiment) } { (experiment) } " "
                        }
                    }
                }
                @for outcome in outcomes { (section(outcome, question(outcome.experiment))) }
            }
        }
    };
    page.into_string() + "\n"
}

/// Returns what the page says of one outcome.
fn section(outcome: &Outcome, question: Option<&str>) -> Markup {
    let Outcome { experiment, title, figures, .. } = outcome;
    html! {
        section id=(experiment) {
            h2 { (experiment) ": " (title) }
            @if let Some(question) = question { p.question { (question) } }
            ul.answers { @for answer in answers(figures) { li { (answer) } } }
            div.plots { @for plot in plots(outcome) { (figure(&plot)) } }
            @for grid in grids(figures) { (table(&grid)) }
            @let remarks = remarks(outcome);
            @if !remarks.is_empty() {
                ul.remarks { @for remark in remarks { li { (remark) } } }
            }
        }
    }
}

/// Returns all plots of an outcome.
fn plots(outcome: &Outcome) -> Vec<Plot> {
    let palette = Palette::of(&outcome.figures);
    let by_metric = metrics(&outcome.figures);
    let curves = by_metric.iter().filter_map(|group| plot::curves(group, &palette));
    let locks = lock_stats(&outcome.figures);
    let bars = locks.iter().flat_map(|group| plot::lock_bars(group, &palette));
    curves.chain(bars).chain(plot::histograms(&outcome.histograms)).collect()
}

fn figure(plot: &Plot) -> Markup {
    html! {
        figure {
            figcaption { (plot.caption) }
            @if !plot.legend.is_empty() {
                ul.legend { @for (sign, name) in &plot.legend { li { (mark(*sign)) (name) } } }
            }
            div.plot { (PreEscaped(&plot.svg)) }
        }
    }
}

/// Returns what stands before a name in a legend.
fn mark(mark: Mark) -> Markup {
    let (class, color) = match mark {
        Mark::Line(color) => ("line", color),
        Mark::Dashes(color) => ("dashes", color),
        Mark::Bar(color) => ("bar", color),
        Mark::Cross => return html! { span.mark.cross { "×" } },
    };
    let plotters::style::RGBColor(r, g, b) = COLORS[color];
    html! { span class={ "mark " (class) } style=(format!("color:#{r:02x}{g:02x}{b:02x}")) {} }
}

/// Returns a grid with its groups below their captions.
fn table(grid: &Grid) -> Markup {
    let class = |at: usize| (at < grid.names).then_some("name");
    html! {
        div.table {
            table {
                thead {
                    tr {
                        @for (at, title) in grid.titles.iter().enumerate() {
                            th class=[class(at)] { (title) }
                        }
                    }
                }
                @for (caption, rows) in &grid.groups {
                    tbody {
                        tr { th.name colspan=(grid.titles.len()) { (caption) } }
                        @for row in rows {
                            tr {
                                @for (at, cell) in row.iter().enumerate() {
                                    td class=[class(at)] { (cell) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::machine::tests::machine;
    use crate::experiment::report::testing::{lock_outcome, outcome};

    fn page() -> String {
        html(&machine(), &[outcome(), lock_outcome()], &|_| Some("What does it cost?"))
    }

    #[test]
    fn page_needs_no_network_and_no_script() {
        let page = page();
        for foreign in ["http", "//", "<script", "<link", "<img", "src=", "url(", "@import"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    }

    #[test]
    fn page_has_every_figure() {
        let page = page();
        for outcome in [outcome(), lock_outcome()] {
            let grids = grids(&outcome.figures);
            let rows = grids.iter().flat_map(|grid| &grid.groups).flat_map(|(_, rows)| rows);
            for cell in rows.flatten() {
                assert!(page.contains(&format!(">{cell}</td>")), "{cell}");
            }
        }
        for value in ["1,100", "900", "45,678", "2035730", "4004216.24", "2745.22", "133.8"] {
            assert!(page.contains(&format!(">{value}</td>")), "{value}");
        }
    }

    #[test]
    fn page_answers_its_question_and_fits_a_phone() {
        let page = page();
        assert!(page.contains("What does it cost?"));
        assert!(page.contains("<li>elapsed, s: patched takes 0.92 of base"), "{page}");
        assert!(page.contains("name=\"viewport\"") && page.contains("overflow-x: auto"));
    }

    #[test]
    fn plots_are_of_workers_locks_and_times() {
        let page = page();
        assert_eq!(page.matches("<svg ").count(), 1 + 2 + 1);
        assert_eq!(page.matches("</svg>").count(), 4);
    }

    #[test]
    fn text_is_escaped() {
        let mut outcome = outcome();
        outcome.figures[0].variant = "<b>".to_owned();
        let page = html(&machine(), &[outcome], &|_| None);
        for escaped in ["with &amp; without", "files &lt;per&gt;", "&lt;two&gt;", "&lt;4 GHz&gt;"] {
            assert!(page.contains(escaped), "{escaped}");
        }
        assert!(!page.contains("<b>") && !page.contains("<two>"));
    }
}
