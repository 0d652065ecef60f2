//! Plots as SVG: curves over workers, histograms of times, bars of lock statistics.
//!
//! A contestant has one colour in all plots of an outcome. A plot's legend is returned beside it
//! and set in the page's own text, which can neither be clipped nor cover a curve.

mod axis;

use plotters::prelude::*;
use zfold_compare::latency::{Latency, power_label};

use super::grid::{grouped, lock_caption, metric, microseconds, number, variant};
use crate::experiment::Figure;
use axis::Axis;

/// Colours that stand out from white and from black.
pub(super) const COLORS: [RGBColor; 8] = [
    RGBColor(0x3b, 0x7d, 0xd8),
    RGBColor(0xd9, 0x6a, 0x1c),
    RGBColor(0x2a, 0x99, 0x64),
    RGBColor(0xa4, 0x5f, 0xc9),
    RGBColor(0xd1, 0x45, 0x5c),
    RGBColor(0x8a, 0x7a, 0x1f),
    RGBColor(0x1f, 0x95, 0xa8),
    RGBColor(0x80, 0x86, 0x90),
];

/// Colour of axes and of the lines behind a plot.
const GRAY: RGBColor = RGBColor(0x80, 0x80, 0x80);

/// Colour of text and crosses, which the page replaces by that of its own text.
const INK: RGBColor = RGBColor(0x40, 0x40, 0x40);
const TEXT_SIZE: u32 = 15;

const WIDE: (u32, u32) = (720, 360);
const NARROW: (u32, u32) = (460, 280);

/// Share of a group's width that its bars take.
const BARS: f64 = 0.8;

/// Published figures above this many times the largest measured one are left to the table.
const PUBLISHED_BEYOND: f64 = 2.0;

/// Why drawing cannot fail.
const DRAWN: &str = "a String takes all";

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// A plot and the text above it.
#[derive(Debug)]
pub(super) struct Plot {
    /// The plotted data.
    pub(super) caption: String,
    /// The contestants and how each is drawn; nothing if there is but one.
    pub(super) legend: Vec<(Mark, String)>,
    /// The picture, an `svg` element.
    pub(super) svg: String,
}

/// How a contestant is drawn, with the index of its colour in [`COLORS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// Measured, over workers.
    Line(usize),
    /// Simulated, over workers.
    Dashes(usize),
    /// One of several bars.
    Bar(usize),
    /// Published.
    Cross,
}

/// The contestants of an outcome, in the order of their colours.
#[derive(Debug)]
pub(super) struct Palette<'a>(Vec<&'a str>);

impl<'a> Palette<'a> {
    /// Returns the colours for these figures.
    pub(super) fn of(figures: &'a [Figure]) -> Self {
        let mut variants = Vec::new();
        for figure in figures {
            if !variants.contains(&figure.variant.as_str()) {
                variants.push(figure.variant.as_str());
            }
        }
        Self(variants)
    }

    /// Returns the index of the colour in [`COLORS`]; after the eighth they repeat.
    fn color(&self, figure: &Figure) -> usize {
        let place = self.0.iter().position(|variant| *variant == figure.variant);
        place.unwrap_or(0) % COLORS.len()
    }
}

/// Returns the plot of one metric over workers; none if there is only one number of workers.
pub(super) fn curves(figures: &[&Figure], palette: &Palette<'_>) -> Option<Plot> {
    let workers: Vec<u32> = figures.iter().map(|figure| figure.workers).collect();
    if workers.iter().all(|&count| count == workers[0]) {
        return None;
    }
    let simulated = figures.iter().filter(|figure| figure.simulated).count();
    let x_title = match simulated {
        0 => "workers",
        all if all == figures.len() => "cores",
        _ => "workers, simulated cores",
    };
    let x = Axis::of_workers(x_title, &workers);
    let y = Axis::of_values(figures[0].unit, &near_values(figures));
    let is_beyond =
        figures.iter().any(|figure| figure.published.is_some() && !is_near(figure, figures));
    let lines = grouped(figures.iter().copied(), |figure| (&figure.variant, figure.simulated));
    let svg = draw(WIDE, &x, &y, |chart| {
        for line in &lines {
            curve(chart, line, figures, COLORS[palette.color(line[0])]);
        }
    });
    let mark = |figure: &Figure| match palette.color(figure) {
        color if figure.simulated => Mark::Dashes(color),
        color => Mark::Line(color),
    };
    let near: Vec<&Figure> = figures.iter().copied().filter(|one| is_near(one, figures)).collect();
    let legend = legend(lines.iter().map(|line| (mark(line[0]), variant(line[0]))), &near);
    let caption = metric(figures[0]);
    let caption = match is_beyond {
        true => format!("{caption} (what was published lies beyond: see the table)"),
        false => caption,
    };
    Some(Plot { caption, legend, svg })
}

/// Draws one contestant's medians, from the smallest to the largest repeat of each, and its
/// published figures.
fn curve(chart: &mut Chart<'_, '_>, line: &[&Figure], all: &[&Figure], color: RGBColor) {
    let place = |figure: &Figure, value| (f64::from(figure.workers), value);
    let mut line = line.to_vec();
    line.retain(|figure| figure.value.is_finite());
    line.sort_by_key(|figure| figure.workers);
    let medians: Vec<_> = line.iter().map(|figure| place(figure, figure.value)).collect();
    let stroke = color.stroke_width(2);
    if line.iter().any(|figure| figure.simulated) {
        let dashes = DashedLineSeries::new(medians.iter().copied(), 7, 5, stroke);
        chart.draw_series(dashes).expect(DRAWN);
    } else {
        chart.draw_series(LineSeries::new(medians.iter().copied(), stroke)).expect(DRAWN);
    }
    let point = |&median: &(f64, f64)| Circle::new(median, 3, color.filled());
    chart.draw_series(medians.iter().map(point)).expect(DRAWN);
    let spread = |figure: &&Figure| {
        let ends = [figure.min, figure.max].map(|value| place(figure, value));
        PathElement::new(ends, color.mix(0.6))
    };
    chart.draw_series(line.iter().map(spread)).expect(DRAWN);
    let published = line.iter().filter(|figure| is_near(figure, all));
    let published = published.filter_map(|figure| Some(place(figure, figure.published?)));
    let cross = |place| Cross::new(place, 5, color.stroke_width(2));
    chart.draw_series(published.map(cross)).expect(DRAWN);
}

/// Returns a plot of each collection of times, all over the same range.
pub(super) fn histograms(all: &[(String, Latency)]) -> Vec<Plot> {
    let buckets: Vec<_> = all.iter().map(|(_, times)| times.buckets()).collect();
    let exponents = buckets.iter().flatten().map(|(exponent, _)| *exponent);
    let (Some(first), Some(last)) = (exponents.clone().min(), exponents.max()) else {
        return Vec::new();
    };
    let x = Axis::of_steps("ns (1K = 1024)", first..last + 1, power_label);
    let plot = |((name, times), buckets): (&(String, Latency), &Vec<(u32, u64)>)| {
        let share = |count: u64| 100.0 * count as f64 / times.count() as f64;
        let shares: Vec<f64> = buckets.iter().map(|&(_, count)| share(count)).collect();
        let y = Axis::of_values("% of calls", &[&shares[..], &[0.0]].concat());
        let svg = draw(NARROW, &x, &y, |chart| {
            let bar = |(&(exponent, _), &share): (&(u32, u64), &f64)| {
                let left = f64::from(exponent);
                Rectangle::new([(left + 0.06, 0.0), (left + 0.94, share)], COLORS[0].filled())
            };
            chart.draw_series(buckets.iter().zip(&shares).map(bar)).expect(DRAWN);
        });
        Plot {
            caption: format!("{name}, {} calls", number(times.count() as f64, 0)),
            legend: Vec::new(),
            svg,
        }
    };
    all.iter().zip(&buckets).filter(|(_, buckets)| !buckets.is_empty()).map(plot).collect()
}

/// Returns plots of lock statistics: counts, waits and holds, each metric with a bar for each
/// contestant.
pub(super) fn lock_bars(figures: &[&Figure], palette: &Palette<'_>) -> Vec<Plot> {
    let kind = |figure: &Figure| match figure.metric.split_once("time-") {
        Some(("wait", _)) => ("waits", "us"),
        Some(_) => ("holds", "us"),
        None => ("counts", "count"),
    };
    let plot = |figures: &Vec<&Figure>| {
        let (name, unit) = kind(figures[0]);
        let metrics = grouped(figures.iter().copied(), |figure| figure.metric.as_str());
        let variants = grouped(figures.iter().copied(), |figure| figure.variant.as_str());
        let x = Axis::of_names(metrics.iter().map(|group| group[0].metric.as_str()));
        let y = Axis::logarithmic(unit, &values(figures, lock_value));
        let svg = draw(NARROW, &x, &y, |chart| {
            for (group, figures) in metrics.iter().enumerate() {
                bars(chart, (group as f64, y.start()), figures, &variants, palette);
            }
        });
        let marks = variants.iter().map(|of| (Mark::Bar(palette.color(of[0])), variant(of[0])));
        let legend = legend(marks, figures);
        Plot { caption: format!("{}: {name}", lock_caption(figures[0])), legend, svg }
    };
    grouped(figures.iter().copied(), kind).iter().map(plot).collect()
}

/// Draws the bars of one metric from the bottom of its group up, each contestant's at its place,
/// and the published figures.
fn bars(
    chart: &mut Chart<'_, '_>,
    (group, bottom): (f64, f64),
    figures: &[&Figure],
    variants: &[Vec<&Figure>],
    palette: &Palette<'_>,
) {
    let width = BARS / variants.len() as f64;
    for figure in figures {
        let rank = variants.iter().position(|of| of[0].variant == figure.variant).unwrap_or(0);
        let left = group + (1.0 - BARS) / 2.0 + width * rank as f64;
        let color = COLORS[palette.color(figure)];
        let height = |value| lock_value(figure, value);
        let corners = [(left, bottom), (left + width * 0.92, height(figure.value))];
        chart.draw_series([Rectangle::new(corners, color.filled())]).expect(DRAWN);
        let cross =
            |value| Cross::new((left + width * 0.46, height(value)), 4, INK.stroke_width(2));
        chart.draw_series(figure.published.map(cross)).expect(DRAWN);
    }
}

/// Returns a count, or a time in microseconds.
fn lock_value(figure: &Figure, value: f64) -> f64 {
    microseconds(figure, value).unwrap_or(value)
}

/// Returns all numbers that a plot shows, as `scale` makes them.
fn values(figures: &[&Figure], scale: fn(&Figure, f64) -> f64) -> Vec<f64> {
    let of = |figure: &&Figure| {
        let numbers = [Some(figure.value), Some(figure.min), Some(figure.max), figure.published];
        numbers.into_iter().flatten().map(|value| scale(figure, value)).collect::<Vec<_>>()
    };
    figures.iter().flat_map(of).filter(|value| value.is_finite()).collect()
}

/// Returns whether what was published of a figure can stand in a plot of `all` without flattening
/// the curves: a figure of another machine may be of another size.
fn is_near(figure: &Figure, all: &[&Figure]) -> bool {
    let most = all.iter().map(|figure| figure.max).filter(|max| max.is_finite());
    let most = most.fold(0.0, f64::max);
    figure.published.is_some_and(|value| value <= most * PUBLISHED_BEYOND)
}

/// Returns the numbers that a plot of curves shows.
fn near_values(figures: &[&Figure]) -> Vec<f64> {
    let of = |figure: &&Figure| {
        let published = figure.published.filter(|_| is_near(figure, figures));
        [Some(figure.value), Some(figure.min), Some(figure.max), published]
    };
    figures.iter().flat_map(of).flatten().filter(|value| value.is_finite()).collect()
}

/// Returns the marks with their meanings, that of published figures last, if there are any.
fn legend(marks: impl Iterator<Item = (Mark, String)>, figures: &[&Figure]) -> Vec<(Mark, String)> {
    let is_published = figures.iter().any(|figure| figure.published.is_some());
    marks.chain(is_published.then(|| (Mark::Cross, "published".to_owned()))).collect()
}

/// Returns the picture of `series` on these axes.
fn draw(size: (u32, u32), x: &Axis, y: &Axis, series: impl FnOnce(&mut Chart<'_, '_>)) -> String {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .margin_right(16)
        .x_label_area_size(if x.title.is_empty() { 26 } else { 44 })
        .y_label_area_size(64)
        .build_cartesian_2d(x.clone(), y.clone())
        .expect(DRAWN);
    let text = ("sans-serif", TEXT_SIZE).into_font().color(&INK);
    chart
        .configure_mesh()
        .bold_line_style(GRAY.mix(0.3))
        .light_line_style(TRANSPARENT)
        .axis_style(GRAY)
        .label_style(text.clone())
        .axis_desc_style(text)
        .x_desc(&x.title)
        .y_desc(&y.title)
        .draw()
        .expect(DRAWN);
    series(&mut chart);
    area.present().expect(DRAWN);
    drop(chart);
    drop(area);
    // Within a page, the name space goes without saying.
    svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", " role=\"img\"", 1)
}

#[cfg(test)]
mod tests {

    use super::super::grid::metrics;
    use super::*;
    use crate::experiment::report::testing::outcome;

    #[test]
    fn simulated_curves_are_dashed_and_published_points_crosses() {
        let figures = outcome().figures;
        let plot = curves(&metrics(&figures)[0], &Palette::of(&figures)).expect("a plot");
        let marks: Vec<Mark> = plot.legend.iter().map(|(mark, _)| *mark).collect();
        let lines = [Mark::Line(0), Mark::Line(1), Mark::Dashes(0), Mark::Dashes(1)];
        assert_eq!((&marks[..4], &marks[4..]), (&lines[..], &[Mark::Cross][..]));
        assert_eq!(plot.legend[2].1, "hierarchical, sim");
        assert_eq!(plot.svg.matches("<circle").count(), 4);
    }

    #[test]
    fn curve_goes_up_to_its_largest_value() {
        let figure = |workers, value: f64| {
            Figure::measured("scale", "a", workers, "throughput", "1/s", &[value])
        };
        let figures = [figure(1, 10.0), figure(2, 20.0), figure(64, 0.0)];
        let plot = curves(&figures.iter().collect::<Vec<_>>(), &Palette::of(&figures));
        let svg = plot.expect("a plot").svg;
        let coordinate = |name: &str| -> Vec<f64> {
            let circles = svg.lines().filter(|line| line.starts_with("<circle"));
            let value = |line: &str| {
                let (_, rest) = line.split_once(&format!(" {name}=\"")).expect(name);
                rest.split('"').next().expect("a value").parse().expect("a number")
            };
            circles.map(value).collect()
        };
        let (x, y) = (coordinate("cx"), coordinate("cy"));
        // Each doubling of the workers is as wide; zero is at the bottom, ten half way up.
        assert!(((x[2] - x[1]) / (x[1] - x[0]) - 5.0).abs() < 0.1, "{x:?}");
        assert!(((y[2] - y[0]) / (y[2] - y[1]) - 0.5).abs() < 0.02, "{y:?}");
    }

    #[test]
    fn published_figures_of_another_size_do_not_flatten_curves() {
        let figure = |workers, published| {
            let figure = Figure::measured("free", "a", workers, "time", "ms", &[10.0]);
            figure.with_published(published)
        };
        let plot = |published| {
            let figures = [figure(1, 12.0), figure(2, published)];
            let all = figures.iter().collect::<Vec<_>>();
            curves(&all, &Palette::of(&figures)).expect("a plot")
        };
        let (near, far) = (plot(15.0), plot(1000.0));
        assert!(!near.caption.contains("beyond") && far.caption.contains("beyond"));
        assert!(
            !far.svg.contains("1000") && far.legend.iter().any(|(mark, _)| *mark == Mark::Cross)
        );
    }
}
