//! The counts of locks while an operation is repeated.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use zfold_pool::{LockStat, Pool};

use super::pace::Schedule;
use crate::experiment::Error;

/// Operations under watch in a run.
const WATCHED_OPERATIONS: usize = 200;
/// Runs under watch for every undisturbed one that is wanted, at most.
const WATCH_PATIENCE: usize = 5;

/// Whether a lock lets one holder in at a time, while nothing migrates.
pub(super) fn is_exclusive(stat: &&LockStat) -> bool {
    stat.name != "migrate"
}

/// Returns what the locks of `pool` count while `operation` is done again and again: in short runs
/// in which the thread was never taken off its processor, `wanted` of them, or in all if there is
/// none.
pub(super) fn watch(
    pool: &dyn Pool,
    wanted: usize,
    mut operation: impl FnMut() -> Result<(), Error>,
) -> Result<Watched, Error> {
    let schedule = Schedule::of_this_thread();
    let (mut undisturbed, mut all) = (Watched::default(), Watched::default());
    for _ in 0..WATCH_PATIENCE * wanted {
        let switches = schedule.switches();
        pool.watch_locks(true);
        let start = Instant::now();
        (0..WATCHED_OPERATIONS).try_for_each(|_| operation())?;
        let time = start.elapsed();
        let stats = pool.lock_stats();
        all.add(&stats, time);
        if schedule.switches() == switches {
            undisturbed.add(&stats, time);
        }
        if undisturbed.runs == wanted {
            break;
        }
    }
    pool.watch_locks(false);
    Ok(if undisturbed.runs > 0 { undisturbed } else { all })
}

/// The counts of locks in several runs together.
#[derive(Default)]
pub(super) struct Watched {
    pub(super) stats: BTreeMap<(&'static str, usize), LockStat>,
    pub(super) time: Duration,
    pub(super) runs: usize,
}

impl Watched {
    pub(super) fn add(&mut self, stats: &[LockStat], time: Duration) {
        self.runs += 1;
        self.time += time;
        for stat in stats {
            let sum = self.stats.entry((stat.name, stat.index));
            sum.and_modify(|sum| *sum = sum.and(stat)).or_insert(*stat);
        }
    }

    pub(super) fn operations(&self) -> f64 {
        (self.runs * WATCHED_OPERATIONS) as f64
    }

    pub(super) fn operation_ns(&self) -> f64 {
        self.time.as_nanos() as f64 / self.operations()
    }
}
