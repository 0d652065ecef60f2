//! The metrics of devices.

use zfold_disk::nbd::NbdStats;
use zfold_figures::{Figure, Figures, Kind};

use super::report::{DiskReport, Report};
use crate::control::metrics::Text;
use crate::shared::far::FarReport;

/// A metric of a device: its name, its kind, its meaning, and where it is found.
struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    of: Box<dyn Fn(&DiskReport) -> u64>,
}

/// Returns the metrics of the devices, as their figures are declared.
fn metrics() -> Vec<Metric> {
    let mut metrics = of_figures(|disk| Some(&disk.held));
    metrics.extend(of_figures(|disk| Some(&disk.served)));
    metrics.extend(of_far());
    metrics.extend(of_figures(|disk| disk.far.as_deref().map(|far| &far.stats)));
    metrics
}

/// Returns the metrics of declared figures, which are found there; 0 where there are none.
fn of_figures<F: Figures>(found: fn(&DiskReport) -> Option<&F>) -> Vec<Metric> {
    let metric = |figure: &'static Figure<F>| {
        let of = move |disk: &DiskReport| found(disk).map_or(0, figure.of);
        let (name, help) = (figure.metric()?, figure.meaning);
        Some(Metric { name, kind: figure.kind, help, of: Box::new(of) })
    };
    F::ALL.iter().filter_map(metric).collect()
}

/// Returns the metrics of other machines that are no figures; 0 for a device without any.
fn of_far() -> [Metric; 2] {
    let metric = |name, help: &'static str, of: fn(&FarReport) -> u64| Metric {
        name,
        kind: Kind::Gauge,
        help,
        of: Box::new(move |disk: &DiskReport| disk.far.as_deref().map_or(0, of)),
    };
    [
        metric("far_absent", "1 while the far tier counts as unreachable", |far| far.absent.into()),
        metric("far_away", "1 while the far tier does not answer", |far| far.away.into()),
    ]
}

/// Returns the metrics of all devices as text.
pub(super) fn text(report: &Report) -> String {
    let mut text = Text::new(&report.version);
    for Metric { name, kind, help, of } in metrics() {
        text.begin(name, kind, help);
        report.disks.iter().for_each(|disk| text.value_of(name, ("disk", &disk.name), of(disk)));
    }
    text.figures::<NbdStats>(&report.nbd);
    text.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::metrics::tests::names;

    #[test]
    fn names_are_distinct_and_counters_end_in_total() {
        let of_nbd = NbdStats::ALL.iter().filter(|figure| figure.metric().is_some()).count();
        assert_eq!(names(&text(&Report::default())).len(), 1 + metrics().len() + of_nbd);
    }
}
