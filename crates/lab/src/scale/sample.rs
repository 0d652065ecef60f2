//! The measurements of one contestant in one repeat.
//!
//! The extra cost when a lock and its data were last used by another core is measured without
//! contention, by two threads that call the pool in turns.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use zfold_compare::rng::SplitMix64;
use zfold_pool::LockStat;

use super::host::{Host, pass_line};
use super::objects::{Contestant, Objects};
use super::pace::{Pace, pace, readings};
use super::watch::{Watched, is_exclusive, watch};
use super::worker::{LIVE, OPERATIONS, Worker};
use crate::experiment::Error;

/// The measurements of one contestant in one repeat.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Two threads that pass a line to each other.
    pub(super) transfer: Pace,
    /// One thread, for the profile.
    pub(super) alone: Pace,
    /// One thread, measured once more, and two.
    pub(super) measured: [Pace; 2],
    /// Two threads with a pool of each one's own.
    pub(super) apart: Pace,
    /// The time of a round's calls, which two threads make in turns, each to a pool of its own or
    /// both to one.
    pub(super) turns: [Pace; 2],
    /// Locks that a round takes over from another core when calls go in turns.
    pub(super) bounces: f64,
    /// The counts of a single thread's locks in a round.
    pub(super) locks: Vec<LockUse>,
}

/// Returns the operations a second of `workers` threads, 1 or 2, in each sample.
pub(super) fn operations_per_second(samples: &[Sample], workers: u32) -> Vec<f64> {
    let runs = samples.iter().map(|sample| sample.measured[workers as usize - 1]);
    readings(runs, |run| OPERATIONS * run.per_second)
}

/// Returns how many of the runs with two threads were disturbed all the time, and of how many.
pub(super) fn disturbed<'a>(samples: impl Iterator<Item = &'a Sample>) -> (usize, usize) {
    let runs = samples.flat_map(|sample| [sample.measured[1], sample.apart, sample.turns[1]]);
    runs.fold((0, 0), |(disturbed, all), run| (disturbed + usize::from(run.disturbed), all + 1))
}

/// The use of one lock in one round.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockUse {
    pub(super) name: &'static str,
    pub(super) index: usize,
    /// Times that it was taken.
    pub(super) acquisitions: f64,
    /// Share of the round in which it was held.
    pub(super) held: f64,
}

impl Sample {
    /// Measures `contestant` with `windows` windows for each number.
    pub(super) fn measure(
        contestant: Contestant,
        objects: &Objects,
        host: &Host,
        windows: usize,
        seed: u64,
    ) -> Result<Self, Error> {
        let (pool, other) = (contestant.pool()?, contestant.pool()?);
        let mut seeds = SplitMix64::new(seed);
        let mut worker = |pool| Worker::new(pool, objects, seeds.next_u64());
        let mut workers = [worker(&*pool)?, worker(&*pool)?];
        let mut pools_apart = [worker(&*pool)?, worker(&*other)?];
        let round = |worker: &mut Worker<'_>, _: &AtomicBool| worker.round();
        // A pool whose objects all came in order is not what it will be.
        pace(&mut workers, 1, round)?;
        let two = pace(&mut workers, windows, round)?;
        let apart = pace(&mut pools_apart, windows, round)?;
        let alone = pace(&mut workers[..1], windows, round)?;
        let one = pace(&mut workers[..1], windows, round)?;
        let locks = watch(&*pool, windows, || workers[0].round().map(|_| ()))?.uses(host);

        let in_turns = |workers: &mut [Worker<'_>]| {
            let (turns, count) = (AtomicUsize::new(0), workers.len());
            let mut workers: Vec<_> = workers.iter_mut().enumerate().collect();
            pace(&mut workers, windows, |(me, worker), stop| {
                worker.round_in_turns(&turns, *me, count, stop)
            })
        };
        let turns = [in_turns(&mut pools_apart)?, in_turns(&mut workers)?];
        pool.watch_locks(true);
        let before: u64 = workers.iter().map(|worker| worker.rounds).sum();
        in_turns(&mut workers)?;
        let rounds = workers.iter().map(|worker| worker.rounds).sum::<u64>() - before;
        let stats = pool.lock_stats();
        let bounces: u64 = stats.iter().filter(is_exclusive).map(|stat| stat.acq_bounces).sum();
        let bounces = bounces as f64 / rounds.max(1) as f64;
        let transfer = pass_line(windows)?;
        Ok(Self { transfer, alone, measured: [one, two], apart, turns, bounces, locks })
    }
}

impl Watched {
    /// Returns what an operation did with each lock, without the costs of watching.
    pub(super) fn uses(&self, host: &Host) -> Vec<LockUse> {
        let all = self.stats.values().map(|stat| stat.acquisitions).sum::<u64>() as f64;
        let unwatched = self.operation_ns() - all / self.operations() * host.watch_ns;
        let used = self.stats.values().filter(|stat| stat.acquisitions > 0);
        let mean = |stat: &LockStat| {
            let acquisitions = stat.acquisitions as f64;
            let held = stat.hold_total.as_nanos() as f64 - acquisitions * host.empty_hold_ns;
            LockUse {
                name: stat.name,
                index: stat.index,
                acquisitions: acquisitions / self.operations(),
                held: held.max(0.0) / self.operations() / unwatched.max(1.0),
            }
        };
        used.map(mean).collect()
    }
}

/// Returns how long a step of compaction holds the lock of a pool, half of whose objects were
/// freed: the mean of its holds, in nanoseconds.
pub(super) fn compaction_hold_ns(
    contestant: Contestant,
    objects: &Objects,
    host: &Host,
    seed: u64,
) -> Result<f64, Error> {
    let pool = contestant.pool()?;
    let mut worker = Worker::new(&*pool, objects, seed)?;
    for _ in 0..LIVE / 2 {
        worker.free()?;
    }
    pool.watch_locks(true);
    pool.compact(u64::MAX);
    let stats = pool.lock_stats();
    let all = stats.iter().filter(is_exclusive).fold(LockStat::default(), |all, one| all.and(one));
    let held = all.hold_total.as_nanos() as f64 / all.acquisitions.max(1) as f64;
    Ok((held - host.empty_hold_ns).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn watching_is_subtracted() {
        // 200 operations of 1000 ns; 400 holds of 135 ns.
        let mut stat = LockStat::default();
        stat.name = "pool";
        stat.acquisitions = 400;
        stat.hold_total = Duration::from_nanos(400 * 135);
        let mut watched = Watched::default();
        watched.add(&[stat, LockStat::default()], Duration::from_micros(200));
        let host = Host {
            atomic_ns: 0.0,
            look_ns: 30.0,
            yield_ns: 0.0,
            empty_hold_ns: 25.0,
            watch_ns: 60.0,
            compress_ns: 0.0,
            decompress_ns: 0.0,
        };
        let uses = watched.uses(&host);
        assert_eq!(uses.len(), 1, "nobody took the other lock");
        // 2 holds of 110 ns in 880 ns.
        assert_eq!((uses[0].acquisitions, uses[0].held), (2.0, 0.25));
        assert_eq!(host.patience_ns(), 3000.0);
    }
}
