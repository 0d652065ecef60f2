//! What operations and locks cost on this machine: medians over short batches, so that what other
//! processes take from some of them does not count.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use zfold_compare::rng::SplitMix64;
use zfold_pool::{Allocator, Contexts, KernelRules, LockStat, Locking, Pool, PoolOptions};
use zfold_store::{CodecKind, CodecSpec};

use crate::experiment::Error;
use crate::experiment::content::{Content, Keeper, PAGE_BYTES};
use crate::experiment::harness::together;

/// Name of the experiment.
pub(crate) const NAME: &str = "scale";

/// Operations of a round.
pub(super) const OPERATIONS: f64 = 3.0;
/// Objects of each worker.
const LIVE: usize = 2000;
/// Operations of a batch.
const BATCH: u32 = 100;
/// Threads that wait for turns give up after so long: other processes have their processors.
const PATIENCE: Duration = Duration::from_millis(500);
/// Which quantile of turns counts: both threads must be on a processor, which on a machine with
/// other work most of them are not.
const TURNS: f64 = 0.1;

/// One lock design of one allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contestant {
    pub(super) allocator: Allocator,
    pub(super) locking: Locking,
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.allocator, self.locking)
    }
}

impl Contestant {
    /// Returns a new pool.
    pub(super) fn pool(self) -> Result<Box<dyn Pool>, Error> {
        let options = PoolOptions::new(self.allocator)
            .with_locking(self.locking)
            .with_rules(KernelRules { contexts: Contexts::Single, ..KernelRules::default() });
        Ok(zfold_pool::create(NAME, &options)?)
    }
}

/// The costs on this machine that no design changes, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    /// A line from another core.
    pub(super) transfer_ns: f64,
    /// From one look of a spinning thread to the next.
    pub(super) look_ns: f64,
    /// A yield of the processor without another thread.
    pub(super) yield_ns: f64,
    /// A hold of a watched lock in which next to nothing is done.
    pub(super) empty_hold_ns: f64,
    /// To compress a page and to decompress one.
    pub(super) codec_ns: f64,
}

impl Host {
    /// Measures the machine, in so many batches for each cost.
    pub(super) fn measure(content: &Content, batches: usize) -> Result<Self, Error> {
        let line = AtomicUsize::new(0);
        let look = |(): &mut ()| {
            line.load(Ordering::Relaxed);
            std::hint::spin_loop();
            Ok(())
        };
        let yields = |(): &mut ()| {
            std::thread::yield_now();
            Ok(())
        };
        let nothing = |_, (): &mut ()| Ok(());
        // The fastest of several runs: other processes may keep the threads apart.
        let mut transfer_ns = f64::INFINITY;
        for _ in 0..4 {
            transfer_ns = transfer_ns.min(in_turns(batches, &mut [(), ()], nothing)?.turn_ns);
        }
        Ok(Self {
            transfer_ns,
            look_ns: pace(1, batches, |_| Ok(()), look)?,
            yield_ns: pace(1, batches, |_| Ok(()), yields)?,
            empty_hold_ns: empty_hold_ns(content, batches)?,
            codec_ns: codec_ns(content, batches)?,
        })
    }
}

/// Returns for how long a watched lock seems to be held when next to nothing is done: to refuse the
/// handle of an object that was freed.
fn empty_hold_ns(content: &Content, batches: usize) -> Result<f64, Error> {
    let pool = Contestant { allocator: Allocator::Zsmalloc, locking: Locking::PoolLock }.pool()?;
    let stale = pool.insert(content.object(0))?;
    pool.free(stale)?;
    let watched = watch(&*pool, batches, || match pool.free(stale) {
        Ok(()) => Err(Error::Other("a freed object was freed again".to_owned())),
        Err(_) => Ok(()),
    })?;
    Ok(watched.hold_ns.values().copied().fold(0.0, f64::max))
}

/// Returns the time to compress a page and to decompress it.
fn codec_ns(content: &Content, batches: usize) -> Result<f64, Error> {
    let prepare = |_| {
        let codec = CodecSpec::from(CodecKind::Lz4).context(PAGE_BYTES);
        let codec = codec.map_err(|error| Error::Other(error.to_string()))?;
        Ok((codec, vec![0; PAGE_BYTES], 0))
    };
    pace(1, batches, prepare, |(codec, out, next)| {
        *next += 1;
        codec.compress(content.page(*next), out);
        let done = codec.decompress(content.object(*next), out);
        done.map(drop).map_err(|error| Error::Other(error.to_string()))
    })
}

/// A thread with objects of its own in a pool that it may share. A round frees one of them, inserts
/// another and reads a third, whose bytes it compares: three operations.
pub(super) struct Worker<'a> {
    keeper: Keeper<'a>,
    content: &'a Content,
    rng: SplitMix64,
    freed: usize,
}

impl<'a> Worker<'a> {
    /// Returns one whose objects have been replaced as often as there are: a pool whose objects all
    /// came in order is not what it will be.
    pub(super) fn new(pool: &'a dyn Pool, content: &'a Content, seed: u64) -> Result<Self, Error> {
        let (keeper, rng) = (Keeper::new(NAME, pool, LIVE), SplitMix64::new(seed));
        let mut worker = Self { keeper, content, rng, freed: 0 };
        (0..LIVE).try_for_each(|slot| worker.insert(slot))?;
        (0..LIVE).try_for_each(|_| worker.round())?;
        Ok(worker)
    }

    fn insert(&mut self, slot: usize) -> Result<(), Error> {
        let object = self.rng.below(self.content.len() as u64) as usize;
        self.keeper.put(slot, self.content.object(object))
    }

    /// Does an operation of a round.
    pub(super) fn call(&mut self, operation: u32) -> Result<(), Error> {
        match operation {
            0 => {
                self.freed = self.rng.below(LIVE as u64) as usize;
                self.keeper.take(self.freed)
            }
            1 => self.insert(self.freed),
            _ => self.keeper.check(self.rng.below(LIVE as u64) as usize),
        }
    }

    pub(super) fn round(&mut self) -> Result<(), Error> {
        (0..OPERATIONS as u32).try_for_each(|operation| self.call(operation))
    }
}

/// Lets each of so many threads do `operation` again and again; returns the time of one, on average
/// of the threads.
pub(super) fn pace<W: Send>(
    threads: u32,
    batches: usize,
    prepare: impl Fn(u32) -> Result<W, Error> + Sync,
    operation: impl Fn(&mut W) -> Result<(), Error> + Sync,
) -> Result<f64, Error> {
    let work = |_, mut worker: W| {
        let mut times = Vec::with_capacity(batches);
        for _ in 0..batches {
            let start = Instant::now();
            (0..BATCH).try_for_each(|_| operation(&mut worker))?;
            times.push(start.elapsed().as_nanos() as f64 / f64::from(BATCH));
        }
        Ok(median(times))
    };
    let (times, _) = together(threads, prepare, work)?;
    Ok(times.iter().sum::<f64>() / f64::from(threads))
}

/// What two threads took that call in turns.
pub(super) struct Turns {
    /// Of the calls of a round, which are as many as its operations.
    pub(super) round_ns: f64,
    /// From one call to the next of the other thread.
    pub(super) turn_ns: f64,
    pub(super) rounds: usize,
}

/// Lets two threads call in turns, each with a worker of its own.
pub(super) fn in_turns<W: Send>(
    batches: usize,
    workers: &mut [W; 2],
    call: impl Fn(u32, &mut W) -> Result<(), Error> + Sync,
) -> Result<Turns, Error> {
    /// Lets the other thread go when one ends, also by an error or a panic.
    struct StopAtEnd<'a>(&'a AtomicBool);
    impl Drop for StopAtEnd<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (turn, stop) = (&AtomicUsize::new(0), &AtomicBool::new(false));
    let run = |me: usize, worker: &mut W| {
        let (_stop, began) = (StopAtEnd(stop), Instant::now());
        let (mut rounds, mut turns) = (Vec::new(), Vec::new());
        // Relaxed, here and below: a request; nothing else is passed on by it.
        while rounds.len() < batches * BATCH as usize
            && began.elapsed() < PATIENCE
            && !stop.load(Ordering::Relaxed)
        {
            let (mut round, begin) = (Duration::ZERO, Instant::now());
            for operation in 0..OPERATIONS as u32 {
                // Acquire pairs with the Release of the store that passes the turn on.
                while turn.load(Ordering::Acquire) != me && !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                let start = Instant::now();
                call(operation, worker)?;
                round += start.elapsed();
                turn.store(1 - me, Ordering::Release);
            }
            rounds.push(round.as_nanos() as f64);
            turns.push(begin.elapsed().as_nanos() as f64 / OPERATIONS / 2.0);
        }
        let count = rounds.len();
        let (round_ns, turn_ns) = (quantile(rounds, TURNS), quantile(turns, TURNS));
        Ok::<_, Error>(Turns { round_ns, turn_ns, rounds: count })
    };
    let [first, second] = workers;
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| run(1, second));
        let first = run(0, first);
        (first, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (first, second) = (first?, second?);
    Ok(Turns {
        round_ns: f64::midpoint(first.round_ns, second.round_ns),
        turn_ns: f64::midpoint(first.turn_ns, second.turn_ns),
        rounds: first.rounds + second.rounds,
    })
}

/// What the locks of a pool counted.
#[derive(Default)]
pub(super) struct Watched {
    /// Times that each lock, by name and index, was taken in an operation.
    pub(super) acquisitions: BTreeMap<(&'static str, usize), f64>,
    /// The time of a hold of the locks of a name.
    pub(super) hold_ns: BTreeMap<&'static str, f64>,
}

/// Returns what the locks of `pool` count while `operation` is done again and again.
pub(super) fn watch(
    pool: &dyn Pool,
    batches: usize,
    mut operation: impl FnMut() -> Result<(), Error>,
) -> Result<Watched, Error> {
    let (mut watched, mut holds) = (Watched::default(), BTreeMap::<_, Vec<f64>>::new());
    for _ in 0..batches {
        pool.watch_locks(true);
        (0..BATCH).try_for_each(|_| operation())?;
        let mut by_name = BTreeMap::<_, LockStat>::new();
        for stat in pool.lock_stats() {
            let taken = stat.acquisitions as f64 / (batches as f64 * f64::from(BATCH));
            *watched.acquisitions.entry((stat.name, stat.index)).or_default() += taken;
            let sum = by_name.entry(stat.name);
            sum.and_modify(|sum| *sum = sum.and(&stat)).or_insert(stat);
        }
        for (name, stat) in by_name.into_iter().filter(|(_, stat)| stat.acquisitions > 0) {
            let mean = stat.hold_total.as_nanos() as f64 / stat.acquisitions as f64;
            holds.entry(name).or_default().push(mean);
        }
    }
    pool.watch_locks(false);
    watched.acquisitions.retain(|_, taken| *taken > 0.0);
    watched.hold_ns = holds.into_iter().map(|(name, times)| (name, median(times))).collect();
    Ok(watched)
}

/// The name of the lock that lets readers in together while nothing migrates.
pub(super) const MIGRATE: &str = "migrate";

/// Whether a lock lets one holder in at a time.
pub(super) fn is_exclusive(stat: &&LockStat) -> bool {
    stat.name != MIGRATE
}

/// Returns how long a step of compaction holds the lock of a pool, half of whose objects were
/// freed: the mean of its holds, in nanoseconds.
pub(super) fn compaction_hold_ns(
    contestant: Contestant,
    content: &Content,
    host: &Host,
) -> Result<f64, Error> {
    let pool = contestant.pool()?;
    let mut worker = Worker::new(&*pool, content, 1)?;
    (0..LIVE).step_by(2).try_for_each(|slot| worker.keeper.take(slot))?;
    pool.watch_locks(true);
    pool.compact(u64::MAX);
    let stats = pool.lock_stats();
    let all = stats.iter().filter(is_exclusive).fold(LockStat::default(), |all, one| all.and(one));
    let held = all.hold_total.as_nanos() as f64 / all.acquisitions.max(1) as f64;
    Ok((held - host.empty_hold_ns).max(0.0))
}

fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}

/// Returns the value below which this share of `values` is; zero if there is none.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get((values.len() as f64 * share) as usize).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns_and_an_error_ends_both() {
        let order = std::sync::Mutex::new(Vec::new());
        let note = |_, me: &mut usize| {
            order.lock().unwrap().push(*me);
            Ok(())
        };
        let turns = in_turns(1, &mut [0, 1], note).unwrap();
        assert!(turns.rounds > 0 && turns.turn_ns > 0.0);
        let order = order.into_inner().unwrap();
        // The last of a thread that has given up may be out of turn.
        assert!(order.chunks(2).take(6).all(|pair| pair == [0, 1]), "{order:?}");
        let fails = |_, me: &mut usize| match *me {
            0 => Err(Error::Other("over".to_owned())),
            _ => Ok(()),
        };
        let error = in_turns(1, &mut [0, 1], fails).err().expect("the worker's error");
        assert_eq!(error.to_string(), "over");
    }
}
