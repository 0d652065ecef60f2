//! What the simulator is fed with, measured on the machine at hand.
//!
//! - [`Host`]: what lines, looks and the codec cost.
//! - [`Profile`]: where the time of one round on one pool goes, by lock and outside of locks.
//!
//! A round frees one of the worker's own objects, inserts another and reads a third, whose bytes
//! it compares: three operations. The objects are built-in pages compressed by LZ4.
//!
//! A watched lock is held for the time between two readings of the clock, one of which counts; an
//! empty hold, two readings in a row, is subtracted. What it costs that a lock and the data behind
//! it were used last by another core is measured without contention, by two threads that call the
//! pool in turns.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use zfold_pool::{Allocator, Contexts, Handle, LockStat, Locking, Pool, PoolOptions};
use zfold_store::{CodecKind, CodecSpec};

use super::super::Error;
use super::pace::{Pace, Schedule, median, pace, readings};
use crate::input::PageSet;
use crate::rng::SplitMix64;
use crate::simulate::{Family, Step};

/// Operations of a round.
pub(super) const OPERATIONS: f64 = 3.0;
/// Objects of each worker.
const LIVE: usize = 2000;
const PAGE_LEN: usize = 4096;
/// Looks of a waiting thread before it yields, as in the locks of the pools.
const SPINS: f64 = 100.0;
/// Operations under watch in a run.
const WATCHED_OPERATIONS: usize = 200;
/// Runs under watch for every undisturbed one that is wanted, at most.
const WATCH_PATIENCE: usize = 5;
/// With fewer locks a round that come from another core, what moves is not put to the locks.
const BOUNCES_MIN: f64 = 0.1;

/// Pages of the built-in captures that a pool would hold, raw and compressed by LZ4.
pub(super) struct Objects {
    pages: Vec<Vec<u8>>,
    blobs: Vec<Vec<u8>>,
}

impl Objects {
    /// Returns all pages that are worth compressing: neither one repeated word, nor longer than
    /// `huge_len` when compressed.
    pub(super) fn new(huge_len: usize) -> Result<Self, Error> {
        let mut codec = codec()?;
        let mut objects = Self { pages: Vec::new(), blobs: Vec::new() };
        let mut out = vec![0; huge_len];
        let sets = PageSet::builtin(PAGE_LEN);
        for page in sets.iter().flat_map(PageSet::pages) {
            if page[8..] == page[..PAGE_LEN - 8] {
                continue;
            }
            if let Some(len) = codec.compress(page, &mut out) {
                objects.pages.push(page.to_vec());
                objects.blobs.push(out[..len].to_vec());
            }
        }
        Ok(objects)
    }
}

fn codec() -> Result<Box<dyn zfold_store::Codec>, Error> {
    let context = CodecSpec::from(CodecKind::Lz4).context(PAGE_LEN);
    context.map_err(|error| Error::Other(error.to_string()))
}

/// One lock design of one allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contestant {
    pub(super) allocator: Allocator,
    pub(super) locking: Locking,
}

impl Contestant {
    /// Returns the name in figures.
    pub(super) fn name(self) -> String {
        format!("{} {}", self.allocator, self.locking)
    }

    /// Returns a new pool.
    pub(super) fn pool(self) -> Result<Box<dyn Pool>, Error> {
        let options = PoolOptions::new(self.allocator)
            .with_locking(Some(self.locking))
            .with_contexts(Contexts::Single);
        Ok(zfold_pool::create("scale", &options)?)
    }
}

/// What the machine at hand takes for what the simulator needs, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    /// An atomic operation on a line of its own.
    pub(super) atomic_ns: f64,
    /// From one look of a spinning thread to the next.
    pub(super) look_ns: f64,
    /// To yield the processor to nobody.
    pub(super) yield_ns: f64,
    /// A hold of a watched lock in which next to nothing is done.
    pub(super) empty_hold_ns: f64,
    /// What watching adds to the time of an operation with one such hold.
    pub(super) watch_ns: f64,
    /// To compress a page.
    pub(super) compress_ns: f64,
    /// To decompress a page.
    pub(super) decompress_ns: f64,
}

impl Host {
    /// Returns how long a waiting thread spins before it yields.
    pub(super) fn patience_ns(&self) -> f64 {
        SPINS * self.look_ns
    }

    /// Measures the machine, in windows of `windows` each.
    pub(super) fn measure(objects: &Objects, windows: usize) -> Result<Self, Error> {
        let line = AtomicUsize::new(0);
        let alone = |operation: &(dyn Fn() + Sync)| -> Result<f64, Error> {
            let pace = pace(&mut [()], windows, |(), _| {
                operation();
                Ok(0.0)
            })?;
            Ok(1e9 / pace.per_second)
        };
        let (compress_ns, decompress_ns) = codec_ns(objects, windows)?;
        let (empty_hold_ns, watch_ns) = watching_ns(objects, windows)?;
        Ok(Self {
            atomic_ns: alone(&|| _ = line.fetch_add(1, Ordering::AcqRel))?,
            look_ns: alone(&|| {
                line.load(Ordering::Relaxed);
                std::hint::spin_loop();
            })?,
            yield_ns: alone(&std::thread::yield_now)?,
            empty_hold_ns,
            watch_ns,
            compress_ns,
            decompress_ns,
        })
    }
}

/// Passes a line between two threads; an operation is the way from one to the other.
fn pass_line(windows: usize) -> Result<Pace, Error> {
    let line = AtomicUsize::new(0);
    pace(&mut [0, 1], windows, |&mut me, stop| {
        wait_for_turn(&line, me, stop);
        line.store(1 - me, Ordering::Release);
        Ok(0.0)
    })
}

/// Waits until `turn` is `me`, or it is time to stop.
fn wait_for_turn(turn: &AtomicUsize, me: usize, stop: &AtomicBool) {
    // Acquire pairs with the Release of the store that passes the turn on.
    while turn.load(Ordering::Acquire) != me && !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// Returns for how long a watched lock seems to be held when next to nothing is done (to refuse
/// the handle of an object that was freed), and how much longer that takes than without watching.
fn watching_ns(objects: &Objects, windows: usize) -> Result<(f64, f64), Error> {
    let allocator = Allocator::Zsmalloc;
    let pool = Contestant { allocator, locking: Locking::PoolLock }.pool()?;
    let stale = pool.insert(&objects.blobs[0])?;
    pool.free(stale)?;
    let refuse = || match pool.free(stale) {
        Ok(()) => Err(Error::Other("a freed object was freed again".to_owned())),
        Err(_) => Ok(()),
    };
    let plain = pace(&mut [()], windows, |(), _| refuse().map(|()| 0.0))?;
    let watched = watch(&*pool, windows, refuse)?;
    let all = watched.stats.values().fold(LockStat::default(), |all, one| all.and(one));
    let held = all.hold_total.as_nanos() as f64 / all.acquisitions.max(1) as f64;
    Ok((held, watched.operation_ns() - 1e9 / plain.per_second))
}

/// Returns the time to compress a page and to decompress it.
fn codec_ns(objects: &Objects, windows: usize) -> Result<(f64, f64), Error> {
    let (mut codec, mut out, mut next) = (codec()?, vec![0; PAGE_LEN], 0);
    let compressed = pace(&mut [(&mut codec, &mut out, &mut next)], windows, |worker, _| {
        *worker.2 = (*worker.2 + 1) % objects.pages.len();
        worker.0.compress(&objects.pages[*worker.2], worker.1);
        Ok(0.0)
    })?;
    let decompressed = pace(&mut [(&mut codec, &mut out, &mut next)], windows, |worker, _| {
        *worker.2 = (*worker.2 + 1) % objects.blobs.len();
        let done = worker.0.decompress(&objects.blobs[*worker.2], worker.1);
        done.map_err(|error| Error::Other(error.to_string()))?;
        Ok(0.0)
    })?;
    Ok((1e9 / compressed.per_second, 1e9 / decompressed.per_second))
}

/// A thread with objects of its own in a pool that it may share.
struct Worker<'a> {
    pool: &'a dyn Pool,
    blobs: &'a [Vec<u8>],
    /// Handle and index of the blob of each object.
    live: Vec<(Handle, usize)>,
    rng: SplitMix64,
    rounds: u64,
}

impl<'a> Worker<'a> {
    fn new(pool: &'a dyn Pool, objects: &'a Objects, seed: u64) -> Result<Self, Error> {
        let (live, rng) = (Vec::with_capacity(LIVE), SplitMix64::new(seed));
        let mut worker = Self { pool, blobs: &objects.blobs, live, rng, rounds: 0 };
        (0..LIVE).try_for_each(|_| worker.insert())?;
        Ok(worker)
    }

    fn any(&mut self) -> usize {
        self.rng.below(self.live.len() as u64) as usize
    }

    fn free(&mut self) -> Result<(), Error> {
        let object = self.any();
        let (handle, _) = self.live.swap_remove(object);
        Ok(self.pool.free(handle)?)
    }

    fn insert(&mut self) -> Result<(), Error> {
        let blob = self.rng.below(self.blobs.len() as u64) as usize;
        self.live.push((self.pool.insert(&self.blobs[blob])?, blob));
        Ok(())
    }

    fn read(&mut self) -> Result<(), Error> {
        let object = self.any();
        let (handle, blob) = self.live[object];
        if *self.pool.read(handle)? == *self.blobs[blob] {
            return Ok(());
        }
        let what = format!("an object of pool {}", self.pool.name());
        Err(Error::WrongBytes { experiment: super::NAME, what })
    }

    fn round(&mut self) -> Result<f64, Error> {
        self.rounds += 1;
        self.free()?;
        self.insert()?;
        self.read()?;
        Ok(0.0)
    }

    /// Does a round in which every call waits for its turn; returns the time of the calls alone.
    fn round_in_turns(
        &mut self,
        turns: &AtomicUsize,
        me: usize,
        workers: usize,
        stop: &AtomicBool,
    ) -> Result<f64, Error> {
        self.rounds += 1;
        let mut nanoseconds = 0.0;
        for call in [Self::free, Self::insert, Self::read] {
            wait_for_turn(turns, me, stop);
            let start = Instant::now();
            call(self)?;
            nanoseconds += start.elapsed().as_nanos() as f64;
            turns.store((me + 1) % workers, Ordering::Release);
        }
        Ok(nanoseconds)
    }
}

/// What was measured of one contestant in one repeat.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Two threads that pass a line to each other.
    transfer: Pace,
    /// One thread, for the profile.
    alone: Pace,
    /// One thread, measured once more, and two.
    measured: [Pace; 2],
    /// Two threads with a pool of each one's own.
    apart: Pace,
    /// The time of a round's calls, which two threads make in turns, each to a pool of its own or
    /// both to one.
    turns: [Pace; 2],
    /// Locks that a round takes over from another core when calls go in turns.
    bounces: f64,
    /// What a single thread's locks counted in a round.
    locks: Vec<LockUse>,
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

/// What one round did with one lock.
#[derive(Clone, Copy, Debug)]
struct LockUse {
    name: &'static str,
    index: usize,
    /// Times that it was taken.
    acquisitions: f64,
    /// Share of the round in which it was held.
    held: f64,
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

/// Whether a lock lets one holder in at a time, while nothing migrates.
fn is_exclusive(stat: &&LockStat) -> bool {
    stat.name != "migrate"
}

/// Returns what the locks of `pool` count while `operation` is done again and again: in short runs
/// in which the thread was never taken off its processor, `wanted` of them, or in all if there is
/// none.
fn watch(
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

/// What locks counted in some runs together.
#[derive(Default)]
struct Watched {
    stats: BTreeMap<(&'static str, usize), LockStat>,
    time: Duration,
    runs: usize,
}

impl Watched {
    fn add(&mut self, stats: &[LockStat], time: Duration) {
        self.runs += 1;
        self.time += time;
        for stat in stats {
            let sum = self.stats.entry((stat.name, stat.index));
            sum.and_modify(|sum| *sum = sum.and(stat)).or_insert(*stat);
        }
    }

    fn operations(&self) -> f64 {
        (self.runs * WATCHED_OPERATIONS) as f64
    }

    fn operation_ns(&self) -> f64 {
        self.time.as_nanos() as f64 / self.operations()
    }

    /// Returns what an operation did with each lock, without the costs of watching.
    fn uses(&self, host: &Host) -> Vec<LockUse> {
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

/// Where the time of a round goes: the median of the samples.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    /// Time of a round on one core.
    pub(super) round_ns: f64,
    /// Part of it outside of locks.
    pub(super) private_ns: f64,
    /// Locks by name.
    sections: Vec<Section>,
    /// Times that a round takes the migrate lock for reading.
    pub(super) migrate_reads: f64,
    /// By how much two threads are slower than one that share neither pool nor objects, for what
    /// caches and memory allow.
    pub(super) slowdown: f64,
    /// Time to fetch a line that another core has written.
    pub(super) transfer_ns: f64,
    /// What a lock that was held by another core lengthens the hold by.
    pub(super) moved_ns: f64,
    /// What lines cost outside of locks that another core wrote last.
    pub(super) fetch_ns: f64,
}

/// All locks of one name.
#[derive(Clone, Debug)]
struct Section {
    name: &'static str,
    family: Family,
    /// Times that one of them is taken in a round.
    acquisitions: f64,
    /// Mean time of a hold.
    hold_ns: f64,
}

impl Profile {
    /// Returns the profile of a contestant from its samples, at least one.
    pub(super) fn new(samples: &[Sample]) -> Self {
        let of = |value: &dyn Fn(&Sample) -> f64| median(samples.iter().map(value));
        let run = |run: &dyn Fn(&Sample) -> Pace, number: fn(Pace) -> f64| {
            median(readings(samples.iter().map(run), number).into_iter())
        };
        let rate = |of: &dyn Fn(&Sample) -> Pace| run(of, |run| run.per_second);
        let round_ns = 1e9 / rate(&|sample| sample.alone);
        let mut names: Vec<&'static str> = Vec::new();
        for lock in samples.iter().flat_map(|sample| &sample.locks) {
            if !names.contains(&lock.name) {
                names.push(lock.name);
            }
        }
        let sum = |name: &str, value: &dyn Fn(&LockUse) -> f64| {
            of(&|sample| {
                sample
                    .locks
                    .iter()
                    .filter(|lock| lock.name == name)
                    .map(value)
                    .fold(0.0, |all, one| all + one)
            })
        };
        let migrate_reads = sum("migrate", &|lock| lock.acquisitions);
        names.retain(|&name| name != "migrate");
        let held: f64 = names.iter().map(|name| sum(name, &|lock| lock.held)).sum();
        // Holds with the clock at both ends overlap with less than they do without.
        let part_ns = round_ns / held.max(1.0);
        let section = |&name: &&'static str| {
            let acquisitions = sum(name, &|lock| lock.acquisitions);
            let hold_ns = part_ns * sum(name, &|lock| lock.held) / acquisitions.max(f64::EPSILON);
            Section { name, family: family(name, samples), acquisitions, hold_ns }
        };
        // Threads that were on one processor for a while lose some.
        let bounces = samples.iter().map(|sample| sample.bounces).fold(0.0, f64::max);
        let turns = [0, 1].map(|which| run(&|sample| sample.turns[which], |run| run.mean));
        let transfer_ns = 1e9 / rate(&|sample| sample.transfer);
        let moved = turns[1] - turns[0] - migrate_reads * transfer_ns;
        let by_locks = bounces >= BOUNCES_MIN;
        let moved_ns = if by_locks { moved / bounces - transfer_ns } else { 0.0 };
        Self {
            round_ns,
            private_ns: round_ns - part_ns * held,
            sections: names.iter().map(section).collect(),
            migrate_reads,
            slowdown: 2.0 * rate(&|sample| sample.alone) / rate(&|sample| sample.apart),
            transfer_ns,
            moved_ns: moved_ns.max(0.0),
            fetch_ns: if by_locks { 0.0 } else { moved.max(0.0) },
        }
    }

    /// Returns the profile at the speed that the machine had when `sample` was measured.
    pub(super) fn at(&self, sample: &Sample) -> Self {
        let transfer_ns = 1e9 / sample.transfer.per_second;
        let farther = transfer_ns / self.transfer_ns;
        Self {
            slowdown: 2.0 * sample.alone.per_second / sample.apart.per_second,
            transfer_ns,
            moved_ns: self.moved_ns * farther,
            fetch_ns: self.fetch_ns * farther,
            ..self.times(1e9 / sample.alone.per_second / self.round_ns)
        }
    }

    /// Returns the profile with all times multiplied by `factor`, but for those of transfers and
    /// what they take with them.
    fn times(&self, factor: f64) -> Self {
        let section =
            |section: &Section| Section { hold_ns: section.hold_ns * factor, ..section.clone() };
        Self {
            round_ns: self.round_ns * factor,
            private_ns: self.private_ns * factor,
            sections: self.sections.iter().map(section).collect(),
            ..self.clone()
        }
    }

    /// Returns the profile of a machine that is slower by `factor` in everything.
    pub(super) fn slower(&self, factor: f64) -> Self {
        Self {
            transfer_ns: self.transfer_ns * factor,
            moved_ns: self.moved_ns * factor,
            fetch_ns: self.fetch_ns * factor,
            ..self.times(factor)
        }
    }

    /// Returns the profile with locks that are held for `hold_ns` each.
    pub(super) fn with_holds(&self, hold_ns: f64) -> Self {
        let section = |section: &Section| Section { hold_ns, ..section.clone() };
        Self { sections: self.sections.iter().map(section).collect(), ..self.clone() }
    }

    /// Returns the index of the locks of a name among the [`Self::families`].
    pub(super) fn family(&self, name: &str) -> Option<usize> {
        self.sections.iter().position(|section| section.name == name)
    }

    /// Returns the locks for the simulator.
    pub(super) fn families(&self) -> Vec<Family> {
        self.sections.iter().map(|section| section.family.clone()).collect()
    }

    /// Returns a round for the simulator: all sections with equal parts of the private work and
    /// of `more_ns` between them, slowed down if there are several `cores`.
    pub(super) fn program(&self, more_ns: f64, cores: u32) -> Vec<Step> {
        let slowdown = if cores == 1 { 1.0 } else { self.slowdown };
        let mut steps = Vec::new();
        for (family, section) in self.sections.iter().enumerate() {
            let (ns, moved_ns) = (slowdown * section.hold_ns, self.moved_ns);
            let hold = |share| vec![Step::Hold { share, family, ns, moved_ns }];
            steps.extend(shares(section.acquisitions).map(hold));
        }
        let count = |share| vec![Step::Count { share, counter: 0 }; 2];
        steps.extend(shares(self.migrate_reads).map(count));
        if self.fetch_ns > 0.0 {
            steps.push(vec![Step::Fetch { ns: self.fetch_ns }]);
        }
        let work = (self.private_ns + more_ns) * slowdown / steps.len().max(1) as f64;
        let step = |steps: Vec<Step>| std::iter::once(Step::Work { ns: work }).chain(steps);
        steps.into_iter().flat_map(step).collect()
    }

    /// Returns how many locks a round takes, and how long it holds them together.
    pub(super) fn locked(&self) -> (f64, f64) {
        let held = |section: &Section| section.acquisitions * section.hold_ns;
        let acquisitions = self.sections.iter().map(|section| section.acquisitions).sum();
        (acquisitions, self.sections.iter().map(held).sum())
    }
}

/// Returns a share for each time that something happens which happens `times` in a round: ones,
/// and what is left over.
fn shares(times: f64) -> impl Iterator<Item = f64> {
    (0..times.ceil() as usize).map(move |index| (times - index as f64).min(1.0))
}

/// Returns the locks called `name`: a CPU's own, or one of as many as were seen, by how often each
/// was taken.
fn family(name: &str, samples: &[Sample]) -> Family {
    if name == "cpu" {
        return Family::Own;
    }
    let mut weights = BTreeMap::new();
    for lock in samples.iter().flat_map(|sample| &sample.locks) {
        if lock.name == name {
            *weights.entry(lock.index).or_insert(0.0) += lock.acquisitions;
        }
    }
    Family::Weighted(weights.into_values().collect())
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

    fn run(per_second: f64, mean: f64) -> Pace {
        Pace { per_second, mean, disturbed: false }
    }

    /// A round of 1000 ns, 400 ns of it under one pool lock that is taken 2.5 times.
    fn sample() -> Sample {
        Sample {
            transfer: run(2e7, 0.0),
            alone: run(1e6, 0.0),
            measured: [run(1e6, 0.0), run(1.2e6, 0.0)],
            apart: run(1.6e6, 0.0),
            turns: [run(1e5, 1000.0), run(1e5, 1500.0)],
            bounces: 2.0,
            locks: vec![LockUse { name: "pool", index: 0, acquisitions: 2.5, held: 0.4 }],
        }
    }

    #[test]
    fn a_profile_says_where_the_time_goes() {
        let profile = Profile::new(&[sample()]);
        assert_eq!((profile.round_ns, profile.private_ns), (1000.0, 600.0));
        assert_eq!(profile.locked(), (2.5, 400.0));
        assert_eq!((profile.transfer_ns, profile.slowdown), (50.0, 1.25));
        // 500 ns more for two locks, each of which takes a transfer for its word.
        assert_eq!((profile.moved_ns, profile.fetch_ns), (200.0, 0.0));
        assert_eq!(profile.family("pool"), Some(0));
        assert_eq!(profile.family("class"), None);
    }

    #[test]
    fn without_locks_that_move_lines_are_fetched() {
        let alone = Sample { bounces: 0.0, ..sample() };
        let profile = Profile::new(&[alone]);
        assert_eq!((profile.moved_ns, profile.fetch_ns), (0.0, 500.0));
    }

    #[test]
    fn readers_take_a_counter_and_no_lock() {
        let migrate = LockUse { name: "migrate", index: 0, acquisitions: 2.0, held: 0.3 };
        let mut hierarchical = sample();
        hierarchical.locks.push(migrate);
        let profile = Profile::new(&[hierarchical]);
        assert_eq!(profile.migrate_reads, 2.0);
        assert_eq!(profile.families().len(), 1);
        // Two of the transfers are of the counter.
        assert_eq!(profile.moved_ns, 150.0);
        let counts = |step: &&Step| matches!(step, Step::Count { .. });
        assert_eq!(profile.program(0.0, 1).iter().filter(counts).count(), 4);
    }

    #[test]
    fn a_program_takes_the_time_of_its_round() {
        let time = |program: Vec<Step>| -> f64 {
            let of = |step: Step| match step {
                Step::Work { ns } => ns,
                Step::Hold { share, ns, .. } => share * ns,
                _ => 0.0,
            };
            program.into_iter().map(of).sum()
        };
        let profile = Profile::new(&[sample()]);
        assert!((time(profile.program(0.0, 1)) - 1000.0).abs() < 1e-9);
        assert!((time(profile.program(500.0, 1)) - 1500.0).abs() < 1e-9);
        assert!((time(profile.program(0.0, 2)) - 1250.0).abs() < 1e-9);
        assert!((time(profile.slower(3.0).program(0.0, 1)) - 3000.0).abs() < 1e-9);
        let held = time(profile.with_holds(1000.0).program(0.0, 1));
        assert!((held - 3100.0).abs() < 1e-9, "{held}");
    }

    #[test]
    fn a_profile_takes_the_speed_of_a_sample() {
        let slow = Sample { alone: run(5e5, 0.0), transfer: run(1e7, 0.0), ..sample() };
        let profile = Profile::new(&[sample()]).at(&slow);
        assert_eq!((profile.round_ns, profile.locked().1), (2000.0, 800.0));
        assert_eq!((profile.transfer_ns, profile.moved_ns), (100.0, 400.0));
    }

    #[test]
    fn locks_are_weighted_by_how_often_they_were_taken() {
        let class = |index, acquisitions| LockUse { name: "class", index, acquisitions, held: 0.1 };
        let mut classes = sample();
        classes.locks = vec![class(7, 1.5), class(3, 0.5)];
        assert_eq!(family("class", &[classes]), Family::Weighted(vec![0.5, 1.5]));
        assert_eq!(family("cpu", &[sample()]), Family::Own);
    }

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
