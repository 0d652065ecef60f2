//! Runs, disks and guest servers as documents have them, with their rates between two looks.

use serde::Serialize;
use zfold_disk::DiskStats;
use zfold_guest::{Given, Served};
use zfold_run::Figures;

use super::look::{Answer, Look};
use super::rates::Rates;
use crate::control::state::RunState;
use crate::disk::figures::DiskFigures;
use crate::disk::report::Report;
use crate::guest::report::GuestsReport;
use crate::shared::far::FarReport;
use crate::shared::figures::in_state;

/// All of a look.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Seen {
    pub(crate) runs: Vec<Run>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) guests: Vec<Guests>,
}

impl Seen {
    /// Returns all of a look, with their rates since an earlier one.
    pub(crate) fn new(now: &Look, before: &Look) -> Self {
        let runs = now.runs.iter().map(|run| Run::new(run, before.run(run.what.pid)));
        let disks =
            now.servers.iter().map(|server| Disk::new(server, before.server(server.what.pid)));
        let guests =
            now.guests.iter().map(|server| Guests::new(server, before.guests(server.what.pid)));
        Self { runs: runs.collect(), disks: disks.collect(), guests: guests.collect() }
    }
}

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
}

impl Run {
    fn new(said: &Answer<RunState>, earlier: Option<&Answer<RunState>>) -> Self {
        let (now, before) = (&said.what, earlier.map(|earlier| &earlier.what));
        let recent = |share| quantile(&now.fault_histogram_ns, &before?.fault_histogram_ns, share);
        let figures = before.map(|before| &before.figures);
        Self {
            ratio: ratio(now.figures.stored_pages_bytes, now.figures.stored_bytes),
            rates: Rates::new(&now.figures, figures, said.seconds_since(earlier)),
            recent_fault_p50_ns: recent(0.5),
            recent_fault_p99_ns: recent(0.99),
            // Its purpose is served.
            state: RunState { fault_histogram_ns: Vec::new(), ..now.clone() },
        }
    }
}

/// A disk.
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
}

impl Disk {
    fn new(said: &Answer<Report>, earlier: Option<&Answer<Report>>) -> Self {
        let (now, before) = (said.what.disk(), earlier.map(|earlier| earlier.what.disk()));
        let (held, seconds) = (&now.held, said.seconds_since(earlier));
        Self {
            pid: said.what.pid,
            name: now.name.clone(),
            limit_bytes: held.mem_limit,
            resident_bytes: held.mem_used_total,
            stored_pages_bytes: held.orig_data_size,
            backing_bytes: held.backing_bytes,
            backing_used_bytes: held.backing_used_bytes,
            ratio: ratio(held.orig_data_size, held.mem_used_total),
            served: Rates::new(&now.served, before.map(|before| &before.served), seconds),
            kept: Rates::new(held, before.map(|before| &before.held), seconds),
            far: now.far.clone(),
        }
    }
}

/// A guest server.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Guests {
    pub(crate) pid: u32,
    pub(crate) images: u64,
    pub(crate) guests: u64,
    /// Guests that wait for a page that cannot be had.
    pub(crate) late: u64,
    /// 0: none.
    pub(crate) limit_bytes: u64,
    /// All memory that images take.
    pub(crate) resident_bytes: u64,
    /// Pages of images, as guests see them.
    pub(crate) stored_pages_bytes: u64,
    pub(crate) ratio: Option<f64>,
    #[serde(flatten, with = "in_state")]
    pub(crate) served: Served,
    #[serde(flatten, with = "in_state")]
    pub(crate) given: Given,
    #[serde(flatten)]
    pub(crate) rates: Rates<Given>,
}

impl Guests {
    fn new(said: &Answer<GuestsReport>, earlier: Option<&Answer<GuestsReport>>) -> Self {
        let now = &said.what;
        // A server that took over counts from 0.
        let earlier = earlier.filter(|earlier| earlier.what.server_pid == now.server_pid);
        let given = earlier.map(|earlier| &earlier.what.given);
        Self {
            pid: now.pid,
            images: now.images.len() as u64,
            guests: now.guests.len() as u64,
            late: now.guests.iter().filter(|guest| guest.stats.late).count() as u64,
            limit_bytes: now.limit_bytes,
            resident_bytes: now.held_bytes,
            stored_pages_bytes: now.stored_pages_bytes,
            ratio: ratio(now.stored_pages_bytes, now.held_bytes),
            served: now.served,
            given: now.given,
            rates: Rates::new(&now.given, given, said.seconds_since(earlier)),
        }
    }
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

fn ratio(pages: u64, bytes: u64) -> Option<f64> {
    (pages > 0 && bytes > 0).then(|| pages as f64 / bytes as f64)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

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
        Look { runs: vec![Answer { at, what }], ..Look::default() }
    }

    #[test]
    fn rates_are_those_between_two_looks() {
        let then = Instant::now();
        let before = look(then, 10, &[(1000, 9), (2000, 1)]);
        let now = look(then + Duration::from_secs(2), 30, &[(1000, 9), (2000, 2), (9000, 19)]);
        let run = &Seen::new(&now, &before).runs[0];
        let rate = |run: &Run| run.rates.of(|run| run.faults_total);
        assert_eq!((rate(run), run.ratio), (Some(10.0), Some(4.0)));
        let json = serde_json::to_value(run).expect("JSON");
        assert_eq!((&json["faults_per_second"], &json["faults_total"]), (&json!(10.0), &json!(30)));
        assert_eq!((run.recent_fault_p50_ns, run.recent_fault_p99_ns), (Some(9000), Some(9000)));
        let first = &Seen::new(&now, &Look::default()).runs[0];
        assert_eq!((rate(first), first.recent_fault_p50_ns), (None, None));
        let calm = look(then + Duration::from_secs(4), 30, &now.runs[0].what.fault_histogram_ns);
        let calm = &Seen::new(&calm, &now).runs[0];
        assert_eq!((rate(calm), calm.recent_fault_p99_ns), (Some(0.0), None));
        // Another process of the same number has no rate below zero.
        let other = look(then + Duration::from_secs(5), 3, &[]);
        assert_eq!(rate(&Seen::new(&other, &now).runs[0]), Some(0.0));
    }
}
