//! Measurements, until figures are made of them.

use std::time::Duration;

use zfold_compare::latency::Latency;
use zfold_pool::LockStat;

use super::cost::Cost;
use crate::experiment::outcome::Figure;

/// A figure of a document: variant, workers, metric, value.
pub(crate) type Published = (&'static str, u32, &'static str, f64);

/// Measurements: the repeats of every metric of every variant, times of single calls, and
/// sentences that belong below the table, in the order in which they first came.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    series: Vec<Series>,
    pub(crate) histograms: Vec<(String, Latency)>,
    pub(crate) remarks: Vec<String>,
}

#[derive(Debug)]
struct Series {
    variant: String,
    workers: u32,
    metric: String,
    unit: &'static str,
    simulated: bool,
    repeats: Vec<f64>,
}

impl Samples {
    /// Adds one repeat.
    pub(crate) fn push(
        &mut self,
        variant: &str,
        workers: u32,
        metric: &str,
        unit: &'static str,
        value: f64,
    ) {
        self.add((variant, workers, metric, false), unit, value);
    }

    /// Adds what a simulator computed.
    pub(crate) fn simulated(
        &mut self,
        variant: &str,
        workers: u32,
        metric: &str,
        unit: &'static str,
        value: f64,
    ) {
        self.add((variant, workers, metric, true), unit, value);
    }

    fn add(&mut self, key: (&str, u32, &str, bool), unit: &'static str, value: f64) {
        if let Some(series) = self.series.iter_mut().find(|series| series.key() == key) {
            return series.repeats.push(value);
        }
        let (variant, workers, metric, simulated) = key;
        let (variant, metric) = (variant.to_owned(), metric.to_owned());
        let repeats = vec![value];
        self.series.push(Series { variant, workers, metric, unit, simulated, repeats });
    }

    /// Adds what a run cost.
    pub(crate) fn cost(&mut self, variant: &str, workers: u32, cost: Cost) {
        for (metric, value) in [("real", cost.real), ("user", cost.user), ("sys", cost.sys)] {
            self.push(variant, workers, metric, "s", value);
        }
    }

    /// Adds the numbers of locks, all as one, as named, counted and timed in `/proc/lock_stat`.
    pub(crate) fn locks(&mut self, variant: &str, workers: u32, locks: &[LockStat]) {
        let stat = locks.iter().copied().reduce(|sum, stat| sum.and(&stat)).unwrap_or_default();
        let mut count = |name, count: u64| self.push(variant, workers, name, "", count as f64);
        count("con-bounces", stat.con_bounces);
        count("contentions", stat.contentions);
        count("acq-bounces", stat.acq_bounces);
        count("acquisitions", stat.acquisitions);
        let mut time = |name, time: Duration| {
            self.push(variant, workers, name, "us", time.as_nanos() as f64 / 1e3);
        };
        time("waittime-min", stat.wait_min);
        time("waittime-max", stat.wait_max);
        time("waittime-total", stat.wait_total);
        time("waittime-avg", stat.wait_avg());
        time("holdtime-min", stat.hold_min);
        time("holdtime-max", stat.hold_max);
        time("holdtime-total", stat.hold_total);
        time("holdtime-avg", stat.hold_avg());
    }

    /// Adds times of single calls to those of this name.
    pub(crate) fn times(&mut self, name: String, times: &Latency) {
        match self.histograms.iter_mut().find(|(known, _)| *known == name) {
            Some((_, all)) => all.merge(times),
            None => self.histograms.push((name, times.clone())),
        }
    }

    /// Returns the repeats of a metric; none if nothing was added.
    pub(crate) fn repeats(&self, variant: &str, workers: u32, metric: &str) -> &[f64] {
        let key = (variant, workers, metric, false);
        let found = self.series.iter().find(|series| series.key() == key);
        found.map_or(&[], |series| &series.repeats)
    }

    /// Returns the figures, those of one metric together, with the document's.
    pub(crate) fn figures(&self, experiment: &'static str, published: &[Published]) -> Vec<Figure> {
        let mut series: Vec<&Series> = self.series.iter().collect();
        let first_of = |metric: &str| self.series.iter().position(|series| series.metric == metric);
        series.sort_by_key(|series| first_of(&series.metric));
        series.into_iter().map(|series| series.figure(experiment, published)).collect()
    }
}

impl Series {
    fn key(&self) -> (&str, u32, &str, bool) {
        (&self.variant, self.workers, &self.metric, self.simulated)
    }

    fn figure(&self, experiment: &'static str, published: &[Published]) -> Figure {
        let mut sorted = self.repeats.clone();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let beside = published.iter().find(|(variant, workers, metric, _)| {
            (*variant, *workers, *metric) == (&*self.variant, self.workers, &*self.metric)
        });
        Figure {
            experiment,
            variant: self.variant.clone(),
            workers: self.workers,
            metric: self.metric.clone(),
            unit: self.unit,
            value: f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]),
            min: sorted[0],
            max: sorted[count - 1],
            repeats: count as u32,
            published: beside.map(|&(.., value)| value),
            simulated: self.simulated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_medians_by_metric_with_what_was_published() {
        let mut samples = Samples::default();
        for (variant, metric, value) in [
            ("a", "x", 1.0),
            ("a", "y", 2.0),
            ("b", "x", 3.0),
            ("b", "y", 4.0),
            ("a", "x", 2.0),
            ("b", "x", 1.0),
            ("b", "x", 2.0),
        ] {
            samples.push(variant, 2, metric, "s", value);
        }
        let figures = samples.figures("test", &[("b", 2, "x", 7.0), ("b", 3, "y", 8.0)]);
        let row = |f: &Figure| (f.variant.clone() + &f.metric, f.value, f.min, f.max, f.published);
        let expected = [
            ("ax".to_owned(), 1.5, 1.0, 2.0, None),
            ("bx".to_owned(), 2.0, 1.0, 3.0, Some(7.0)),
            ("ay".to_owned(), 2.0, 2.0, 2.0, None),
            ("by".to_owned(), 4.0, 4.0, 4.0, None),
        ];
        assert_eq!(figures.iter().map(row).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn locks_are_summed_up_and_their_times_are_microseconds() {
        let mut stat = LockStat::default();
        stat.acquisitions = 4;
        stat.hold_total = Duration::from_nanos(6000);
        let mut samples = Samples::default();
        samples.locks("a", 2, &[stat, stat]);
        assert_eq!(samples.repeats("a", 2, "acquisitions"), [8.0]);
        assert_eq!(samples.repeats("a", 2, "holdtime-total"), [12.0]);
        assert_eq!(samples.repeats("a", 2, "holdtime-avg"), [1.5]);
    }
}
