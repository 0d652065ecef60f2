//! By how much figures grow.

use serde::{Serialize, Serializer};
use zfold_figures::{Figure, Figures};

/// By how much figures grew each second. There is no rate of something seen only once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates<F>(Option<(F, f64)>);

impl<F> Default for Rates<F> {
    fn default() -> Self {
        Self(None)
    }
}

impl<F: Figures> Rates<F> {
    /// Returns the rates of figures that were `before` this many seconds ago, if that is known. One
    /// that has started again has not grown.
    pub(crate) fn new(now: &F, before: Option<&F>, seconds: f64) -> Self {
        let before = before.filter(|_| seconds > 0.0);
        Self(before.map(|before| (now.since(before), seconds)))
    }

    /// Returns the rate of a figure.
    pub(crate) fn of(&self, figure: impl Fn(&F) -> u64) -> Option<f64> {
        self.0.as_ref().map(|(grown, seconds)| figure(grown) as f64 / seconds)
    }
}

impl<F: Figures> Serialize for Rates<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let rated = F::ALL.iter().filter(|figure| figure.has_rate());
        let field = |figure: &Figure<F>| {
            (format!("{}_per_second", figure.short_name()), self.of(figure.of))
        };
        to.collect_map(rated.map(field))
    }
}
