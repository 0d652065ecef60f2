//! Axes: where a value lies, and the labels of its ticks.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// Ratios of numbers from which on an axis is logarithmic.
const WIDE_WORKERS: f64 = 8.0;
const WIDE_VALUES: f64 = 50.0;

/// Most ticks of an axis of numbers.
const TICKS: usize = 8;

/// Share of an axis that is left free at an end.
const MARGIN: f64 = 0.04;

/// An axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) title: String,
    /// The lowest and the highest value.
    range: Range<f64>,
    /// Values and their labels.
    ticks: Vec<(f64, String)>,
    is_logarithmic: bool,
}

impl Axis {
    /// Returns the axis of numbers of workers, with a tick at each.
    pub(super) fn of_workers(title: &str, workers: &[u32]) -> Self {
        let mut counts: Vec<f64> = workers.iter().copied().map(f64::from).collect();
        counts.sort_by(f64::total_cmp);
        counts.dedup();
        let (least, most) = (counts[0], counts[counts.len() - 1]);
        let is_logarithmic = least > 0.0 && most / least > WIDE_WORKERS;
        let range = match is_logarithmic {
            true => least / (most / least).powf(MARGIN)..most * (most / least).powf(MARGIN),
            false => least - (most - least) * MARGIN..most + (most - least) * MARGIN,
        };
        let stride = counts.len().div_ceil(2 * TICKS);
        let ticks = counts.iter().rev().step_by(stride);
        Self {
            title: title.to_owned(),
            range,
            ticks: ticks.map(|&count| (count, count.to_string())).collect(),
            is_logarithmic,
        }
    }

    /// Returns the axis of `values`: from zero, or logarithmic if they differ much.
    pub(super) fn of_values(title: &str, values: &[f64]) -> Self {
        let most = values.iter().copied().fold(0.0, f64::max);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        match least > 0.0 && most / least > WIDE_VALUES {
            true => Self::logarithmic(title, values),
            false => Self::from_zero(title, most),
        }
    }

    /// Returns the axis by powers of ten of those of `values` that are above zero.
    pub(super) fn logarithmic(title: &str, values: &[f64]) -> Self {
        let positive = values.iter().copied().filter(|&value| value > 0.0);
        let (Some(least), Some(most)) =
            (positive.clone().min_by(f64::total_cmp), positive.max_by(f64::total_cmp))
        else {
            return Self::from_zero(title, 0.0);
        };
        // A little lower and higher, so that each bar has a height and no point is on the edge.
        let first = (least.log10() - MARGIN).floor() as i32;
        let last = (most.log10() + MARGIN).ceil() as i32;
        let stride = (last - first) as usize / TICKS + 1;
        let ticks = (first..=last).step_by(stride).map(|exponent| 10f64.powi(exponent));
        Self {
            title: title.to_owned(),
            range: 10f64.powi(first)..10f64.powi(last),
            ticks: ticks.map(|value| (value, short(value))).collect(),
            is_logarithmic: true,
        }
    }

    /// Returns the axis from zero to a little above `most`.
    fn from_zero(title: &str, most: f64) -> Self {
        let most = if most > 0.0 { most * (1.0 + MARGIN) } else { 1.0 };
        let power = 10f64.powf((most / TICKS as f64).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| most / step <= TICKS as f64).unwrap_or(most);
        let ticks = (0..=(most / step) as u32).map(|count| f64::from(count) * step);
        Self {
            title: title.to_owned(),
            range: 0.0..most,
            ticks: ticks.map(|value| (value, short(value))).collect(),
            is_logarithmic: false,
        }
    }

    /// Returns the axis from 0 on with each of `names` in the middle between two whole numbers.
    pub(super) fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let middle = |(at, name): (usize, &str)| (at as f64 + 0.5, name.to_owned());
        let ticks: Vec<_> = names.into_iter().enumerate().map(middle).collect();
        let range = 0.0..ticks.len() as f64;
        Self { title: String::new(), range, ticks, is_logarithmic: false }
    }

    /// Returns the axis of whole numbers, with what `name` says at each second one.
    pub(super) fn of_steps(title: &str, steps: Range<u32>, name: impl Fn(u32) -> String) -> Self {
        let range = f64::from(steps.start)..f64::from(steps.end);
        let ticks = steps.step_by(2).map(|step| (f64::from(step), name(step))).collect();
        Self { title: title.to_owned(), range, ticks, is_logarithmic: false }
    }

    /// Returns the lowest value.
    pub(super) fn start(&self) -> f64 {
        self.range.start
    }

    /// Returns where `value` lies between the lowest value, 0, and the highest, 1.
    fn share(&self, value: f64) -> f64 {
        let Range { start, end } = self.range;
        match self.is_logarithmic {
            true => (value.max(start) / start).ln() / (end / start).ln(),
            false => (value - start) / (end - start),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        first + (self.share(*value) * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.ticks.iter().map(|(value, _)| *value).collect(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        short(*value)
    }

    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(tick, _)| tick == value);
        tick.map_or_else(|| short(*value), |(_, label)| label.clone())
    }
}

/// Returns a round number with as few characters as possible: 20k, 0.05.
fn short(value: f64) -> String {
    const SUFFIXES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (unit, suffix) =
        SUFFIXES.into_iter().find(|(unit, _)| value >= *unit * 0.999).unwrap_or((1.0, ""));
    let text = format!("{:.6}", value / unit);
    format!("{}{suffix}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn few_workers_are_linear_and_many_logarithmic() {
        let few = Axis::of_workers("workers", &[4, 1, 2, 2, 8]);
        assert_eq!((labels(&few), few.is_logarithmic), (vec!["8", "4", "2", "1"], false));
        let many = Axis::of_workers("cores", &[1, 2, 64]);
        assert_eq!((labels(&many), many.is_logarithmic), (vec!["64", "2", "1"], true));
        let doubling = many.share(2.0) - many.share(1.0);
        assert!((many.share(64.0) - many.share(1.0) - 6.0 * doubling).abs() < 1e-9);
    }

    #[test]
    fn values_start_at_zero_unless_they_differ_much() {
        let near = Axis::of_values("ms", &[30.0, 90.0]);
        assert_eq!((near.start(), labels(&near)), (0.0, vec!["0", "20", "40", "60", "80"]));
        let far = Axis::of_values("ms", &[3.0, 900.0]);
        assert_eq!((far.start(), labels(&far)), (1.0, vec!["1", "10", "100", "1k"]));
        assert_eq!(Axis::of_values("ms", &[0.0, 900.0]).start(), 0.0);
    }
}
