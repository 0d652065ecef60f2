//! Runs and disks, with their rates between two looks.

use std::path::PathBuf;
use std::time::Instant;

use serde::{Serialize, Serializer};
use zfold_disk::DiskStats;
use zfold_figures::Figure;
use zfold_run::Figures;

use super::look::{Answer, Look};
use crate::control::state::RunState;
use crate::disk::figures::DiskFigures;
use crate::disk::report::DiskReport;
use crate::shared::far::FarReport;

/// A run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Run {
    #[serde(flatten)]
    pub(crate) state: RunState,
    /// Stored pages over what they take; none without any.
    pub(crate) ratio: Option<f64>,
    #[serde(flatten)]
    pub(crate) rates: Rates<Figures>,
    /// Of the faults between the two looks; none without any.
    pub(crate) recent_fault_p50_ns: Option<u64>,
    pub(crate) recent_fault_p99_ns: Option<u64>,
    #[serde(skip)]
    pub(crate) socket: PathBuf,
}

/// By how much figures grew each second. There is no rate of something seen only once.
#[derive(Clone, Debug)]
pub(crate) struct Rates<F>(Option<(F, f64)>);

impl<F> Default for Rates<F> {
    fn default() -> Self {
        Self(None)
    }
}

impl<F: zfold_figures::Figures> Rates<F> {
    /// Returns the rates of figures that grew by this much in this many seconds.
    pub(crate) fn new(grown: F, seconds: f64) -> Self {
        Self(Some((grown, seconds)))
    }

    /// Returns the rate of a figure.
    pub(crate) fn of(&self, figure: impl Fn(&F) -> u64) -> Option<f64> {
        self.0.as_ref().map(|(grown, seconds)| figure(grown) as f64 / seconds)
    }
}

impl<F: zfold_figures::Figures> Serialize for Rates<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let rated = F::ALL.iter().filter(|figure| figure.has_rate());
        let field = |figure: &Figure<F>| {
            (format!("{}_per_second", figure.short_name()), self.of(figure.of))
        };
        to.collect_map(rated.map(field))
    }
}

/// A device of a server.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Disk {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// 0: none.
    pub(crate) limit_bytes: u64,
    /// All memory that it holds.
    pub(crate) resident_bytes: u64,
    /// Pages that are stored, wherever they are.
    pub(crate) stored_pages_bytes: u64,
    pub(crate) backing_bytes: u64,
    pub(crate) backing_used_bytes: u64,
    /// Stored pages over the memory held; none without any.
    pub(crate) ratio: Option<f64>,
    #[serde(flatten)]
    pub(crate) served: Rates<DiskStats>,
    #[serde(flatten)]
    pub(crate) kept: Rates<DiskFigures>,
    /// The other machines, if pages go there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) far: Option<Box<FarReport>>,
    #[serde(skip)]
    pub(crate) socket: PathBuf,
}

/// The changes between two looks.
#[derive(Debug)]
pub(crate) struct Since<'a, T> {
    before: &'a T,
    seconds: f64,
}

// Not derived: that would ask the same of what was before.
impl<T> Clone for Since<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Since<'_, T> {}

impl<'a, T> Since<'a, T> {
    /// Returns the time from `then`, at which `before` was so, to `now`; `None` if there was none.
    pub(crate) fn new(before: &'a T, then: Instant, now: Instant) -> Option<Self> {
        let seconds = now.saturating_duration_since(then).as_secs_f64();
        (seconds > 0.0).then_some(Self { before, seconds })
    }

    /// Returns the same for a part of it, if that was there before.
    pub(crate) fn of<P>(&self, part: impl FnOnce(&'a T) -> Option<&'a P>) -> Option<Since<'a, P>> {
        part(self.before).map(|before| Since { before, seconds: self.seconds })
    }

    /// Returns the same for a part of it.
    pub(crate) fn map<P>(&self, part: impl FnOnce(&'a T) -> &'a P) -> Since<'a, P> {
        Since { before: part(self.before), seconds: self.seconds }
    }

    /// Returns by how much a total grew each second. One that has started again has not grown.
    pub(crate) fn rate(&self, now: &T, total: impl Fn(&T) -> u64) -> f64 {
        total(now).saturating_sub(total(self.before)) as f64 / self.seconds
    }
}

/// Returns all runs, with their rates since an earlier look.
pub(crate) fn runs(now: &Look, before: &Look) -> Vec<Run> {
    let of = |said: &Answer<RunState>| {
        let earlier = before.runs.iter().find(|run| run.what.pid == said.what.pid);
        run(said, earlier)
    };
    now.runs.iter().map(of).collect()
}

fn run(said: &Answer<RunState>, before: Option<&Answer<RunState>>) -> Run {
    let now = &said.what;
    let since = before.and_then(|before| Since::new(&before.what, before.at, said.at));
    let recent = |share| {
        let before = &since?.before.fault_histogram_ns;
        quantile(&now.fault_histogram_ns, before, share)
    };
    Run {
        ratio: ratio(now.figures.stored_pages_bytes, now.figures.stored_bytes),
        rates: rates(since, &now.figures, |before| &before.figures),
        recent_fault_p50_ns: recent(0.5),
        recent_fault_p99_ns: recent(0.99),
        socket: said.socket.clone(),
        // Its purpose is served.
        state: RunState { fault_histogram_ns: Vec::new(), ..now.clone() },
    }
}

/// Returns the rates of figures, where there were some of them before.
pub(super) fn rates<T, F: zfold_figures::Figures>(
    since: Option<Since<'_, T>>,
    now: &F,
    of: impl Fn(&T) -> &F,
) -> Rates<F> {
    let rates = since.map(|since| Rates::new(now.since(of(since.before)), since.seconds));
    rates.unwrap_or_default()
}

/// Returns the bound below which this share of the faults lies that `now` has and `before` has not;
/// `None` if there are none.
fn quantile(now: &[(u64, u64)], before: &[(u64, u64)], share: f64) -> Option<u64> {
    let new = |(bound, faults): &(u64, u64)| {
        let old = before.iter().find(|old| old.0 == *bound).map_or(0, |old| old.1);
        (*bound, faults.saturating_sub(old))
    };
    let all: u64 = now.iter().map(|bucket| new(bucket).1).sum();
    let wanted = (all as f64 * share).ceil() as u64;
    let mut seen = 0;
    now.iter().map(new).find_map(|(bound, faults)| {
        seen += faults;
        (faults > 0 && seen >= wanted).then_some(bound)
    })
}

/// Returns the devices of all servers, with their rates since an earlier look.
pub(crate) fn disks(now: &Look, before: &Look) -> Vec<Disk> {
    let mut disks = Vec::new();
    for said in &now.servers {
        let server = before.servers.iter().find(|server| server.what.pid == said.what.pid);
        for report in &said.what.disks {
            let earlier = server.and_then(|server| {
                let disk = server.what.disks.iter().find(|disk| disk.name == report.name)?;
                Since::new(disk, server.at, said.at)
            });
            disks.push(Disk {
                pid: said.what.pid,
                socket: said.socket.clone(),
                ..disk(report, earlier)
            });
        }
    }
    disks
}

fn disk(report: &DiskReport, since: Option<Since<'_, DiskReport>>) -> Disk {
    let held = &report.held;
    Disk {
        name: report.name.clone(),
        limit_bytes: held.mem_limit,
        resident_bytes: held.mem_used_total,
        stored_pages_bytes: held.orig_data_size,
        backing_bytes: held.backing_bytes,
        backing_used_bytes: held.backing_used_bytes,
        ratio: ratio(held.orig_data_size, held.mem_used_total),
        served: rates(since, &report.served, |before| &before.served),
        kept: rates(since, held, |before| &before.held),
        far: report.far.clone(),
        ..Disk::default()
    }
}

pub(super) fn ratio(pages: u64, bytes: u64) -> Option<f64> {
    (pages > 0 && bytes > 0).then(|| pages as f64 / bytes as f64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn look(at: Instant, faults: u64, histogram: &[(u64, u64)]) -> Look {
        let what = RunState {
            pid: 7,
            figures: Figures {
                faults_total: faults,
                stored_pages_bytes: 4 << 20,
                stored_bytes: 1 << 20,
                ..Figures::default()
            },
            fault_histogram_ns: histogram.to_vec(),
            ..RunState::default()
        };
        Look { runs: vec![Answer { socket: PathBuf::new(), at, what }], ..Look::default() }
    }

    #[test]
    fn rates_are_those_between_two_looks() {
        let then = Instant::now();
        let before = look(then, 10, &[(1000, 9), (2000, 1)]);
        let now = look(then + Duration::from_secs(2), 30, &[(1000, 9), (2000, 2), (9000, 19)]);
        let run = &runs(&now, &before)[0];
        let rate = |run: &Run| run.rates.of(|run| run.faults_total);
        assert_eq!((rate(run), run.ratio), (Some(10.0), Some(4.0)));
        let json = serde_json::to_value(run).expect("JSON");
        assert_eq!((&json["faults_per_second"], &json["faults_total"]), (&json!(10.0), &json!(30)));
        assert_eq!((run.recent_fault_p50_ns, run.recent_fault_p99_ns), (Some(9000), Some(9000)));
        let first = &runs(&now, &Look::default())[0];
        assert_eq!((rate(first), first.recent_fault_p50_ns), (None, None));
        let calm = &runs(
            &look(then + Duration::from_secs(4), 30, &now.runs[0].what.fault_histogram_ns),
            &now,
        )[0];
        assert_eq!((rate(calm), calm.recent_fault_p99_ns), (Some(0.0), None));
    }

    #[test]
    fn another_process_of_the_same_number_has_no_rate_below_zero() {
        let then = Instant::now();
        let (before, now) = (look(then, 100, &[]), look(then + Duration::from_secs(1), 3, &[]));
        let run = &runs(&now, &before)[0];
        assert_eq!(run.rates.of(|run| run.faults_total), Some(0.0));
    }
}
