//! The metrics of devices.

use zfold_figures::Kind;

use super::report::Report;
use crate::control::metrics::Text;

/// Returns the metrics of a device as text; those of other machines are 0 without any.
pub(super) fn text(report: &Report) -> String {
    let mut text = Text::new(&report.version);
    let disk = report.disk();
    let far = disk.far.as_deref().cloned().unwrap_or_default();
    let label = ("disk", &*disk.name);
    text.figures_of(label, &disk.held);
    text.figures_of(label, &disk.served);
    for (name, help, value) in [
        ("far_absent", "1 while the far tier counts as unreachable", far.absent),
        ("far_away", "1 while the far tier does not answer", far.away),
    ] {
        text.begin(name, Kind::Gauge, help);
        text.value_of(name, label, value.into());
    }
    text.figures_of(label, &far.stats);
    text.figures(&report.nbd);
    text.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::metrics::tests::names;

    #[test]
    fn names_are_distinct_and_counters_end_in_total() {
        let report = Report::default();
        assert!(names(&text(&report)).contains(&"far_absent"));
    }
}
