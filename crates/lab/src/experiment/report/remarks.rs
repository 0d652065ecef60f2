//! The sentences below an outcome's tables.

use crate::experiment::outcome::{Figure, Outcome};

/// Returns the sentences below an outcome's tables: its own, and what its tables' words mean.
pub(super) fn remarks(outcome: &Outcome) -> Vec<String> {
    let any = |is: fn(&Figure) -> bool| outcome.figures.iter().any(is);
    let mut remarks = outcome.remarks.clone();
    if any(|figure| figure.published.is_some()) {
        remarks.push("published: the document's figure, of another machine.".to_owned());
    }
    if any(|figure| figure.simulated) {
        remarks.push("sim: computed by a simulator, not measured.".to_owned());
    }
    remarks
}
