//! Figures as comma-separated lines.

use serde_json::Value;
use zfold_compare::text;

use crate::experiment::{Figure, Outcome};

/// Returns the records of [`json`](super::json()) as lines under one line of names, each with mean
/// and standard deviation besides; null is empty.
pub fn csv(outcomes: &[Outcome]) -> String {
    text::csv(outcomes.iter().flat_map(|outcome| &outcome.figures).map(cells))
}

/// Returns the fields of a figure with their names.
fn cells(figure: &Figure) -> Vec<(String, Value)> {
    let Ok(Value::Object(fields)) = serde_json::to_value(figure) else {
        unreachable!("a figure is an object with plain fields");
    };
    let spread = [("mean", figure.mean), ("stddev", figure.stddev)];
    let spread = spread.map(|(name, value)| (name.to_owned(), value.into()));
    fields.into_iter().chain(spread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::report::testing::{lock_outcome, outcome};

    #[test]
    fn figures_are_read_back() {
        let outcomes = [outcome(), lock_outcome()];
        let text = csv(&outcomes);
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        let names: Vec<String> =
            reader.headers().expect("names").iter().map(str::to_owned).collect();
        assert_eq!(names[..3], ["experiment", "variant", "workers"]);
        assert_eq!(names[10..], ["simulated", "mean", "stddev"]);
        let rows: Vec<_> = reader.records().collect::<Result<_, _>>().expect("whole rows");
        let figures: Vec<&Figure> = outcomes.iter().flat_map(|outcome| &outcome.figures).collect();
        assert_eq!(rows.len(), figures.len());
        for (row, figure) in rows.iter().zip(figures) {
            let cell = |name| &row[names.iter().position(|other| other == name).expect(name)];
            let number = |name| cell(name).parse::<f64>().expect(name);
            assert_eq!((cell("variant"), cell("metric")), (&*figure.variant, &*figure.metric));
            assert_eq!((number("value"), number("stddev")), (figure.value, figure.stddev));
            assert_eq!((number("min"), number("max")), (figure.min, figure.max));
            assert_eq!(cell("published").parse().ok(), figure.published);
            assert_eq!(cell("simulated"), figure.simulated.to_string());
        }
    }
}
