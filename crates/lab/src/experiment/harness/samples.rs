//! Measurements, until figures are made of them.

use zfold_compare::latency::Latency;

use crate::experiment::outcome::{Figure, Outcome};

/// A figure of a document: variant, workers, metric, value.
pub(crate) type Published = (&'static str, u32, &'static str, f64);

/// Measurements: the repeats of every metric of every variant, and times of single calls, in the
/// order in which they first came.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    series: Vec<Series>,
    histograms: Vec<(String, Latency)>,
}

#[derive(Debug)]
struct Series {
    variant: String,
    workers: u32,
    metric: String,
    unit: &'static str,
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
        if let Some(series) =
            self.series.iter_mut().find(|series| series.is(variant, workers, metric))
        {
            series.repeats.push(value);
        } else {
            let (variant, metric) = (variant.to_owned(), metric.to_owned());
            self.series.push(Series { variant, workers, metric, unit, repeats: vec![value] });
        }
    }

    /// Adds times of single calls to those of this name.
    pub(crate) fn times(&mut self, name: String, times: &Latency) {
        match self.histograms.iter_mut().find(|(known, _)| *known == name) {
            Some((_, all)) => all.merge(times),
            None => self.histograms.push((name, times.clone())),
        }
    }

    /// Returns the outcome of an experiment, with the document's figures.
    pub(crate) fn outcome(
        self,
        experiment: &'static str,
        title: &str,
        published: &[Published],
        remarks: Vec<String>,
    ) -> Outcome {
        let (title, figures) = (title.to_owned(), self.figures(experiment, published));
        Outcome { experiment, title, figures, histograms: self.histograms, remarks }
    }

    /// Returns the repeats of a metric; none if nothing was added.
    pub(crate) fn repeats(&self, variant: &str, workers: u32, metric: &str) -> &[f64] {
        let found = self.series.iter().find(|series| series.is(variant, workers, metric));
        found.map_or(&[], |series| &series.repeats)
    }

    /// Returns the figures, those of one metric together, with the document's.
    pub(crate) fn figures(&self, experiment: &'static str, published: &[Published]) -> Vec<Figure> {
        let mut series: Vec<&Series> = self.series.iter().collect();
        let first_of = |metric: &str| self.series.iter().position(|series| series.metric == metric);
        series.sort_by_key(|series| first_of(&series.metric));
        let figure = |series: &Series| {
            let Series { variant, workers, metric, unit, repeats } = series;
            let figure = Figure::measured(experiment, variant, *workers, metric, unit, repeats);
            let value = published.iter().find(|(v, w, m, _)| series.is(v, *w, m));
            value.map_or(figure.clone(), |&(.., value)| figure.with_published(value))
        };
        series.into_iter().map(figure).collect()
    }
}

impl Series {
    fn is(&self, variant: &str, workers: u32, metric: &str) -> bool {
        (&*self.variant, self.workers, &*self.metric) == (variant, workers, metric)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_one_metric_stand_together_with_what_was_published() {
        let mut samples = Samples::default();
        for (variant, metric, value) in
            [("a", "x", 1.0), ("a", "y", 2.0), ("b", "x", 3.0), ("b", "y", 4.0), ("a", "x", 2.0)]
        {
            samples.push(variant, 2, metric, "s", value);
        }
        let figures = samples.figures("test", &[("b", 2, "x", 7.0), ("b", 3, "y", 8.0)]);
        let row = |f: &Figure| (f.variant.clone() + &f.metric, f.value, f.published);
        let expected = [
            ("ax".to_owned(), 1.5, None),
            ("bx".to_owned(), 3.0, Some(7.0)),
            ("ay".to_owned(), 2.0, None),
            ("by".to_owned(), 4.0, None),
        ];
        assert_eq!(figures.iter().map(row).collect::<Vec<_>>(), expected);
    }
}
