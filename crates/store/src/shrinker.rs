//! The shrinker: a thread that keeps a store small before stores have to wait for it.
//!
//! Every interval it looks at the memory limit and at the machine. Near the limit, or when the
//! machine is short of memory, it writes the least recently used pages back; without a backing
//! file it compacts, and recompresses pages that were idle. It also ages pages: those that were not
//! used for the idle age are written back or recompressed whether memory is short or not.
//!
//! And it keeps the pool dense: pages that are overwritten leave holes, which it compacts away as
//! soon as they are worth a thirty-second of the pool.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use zfold_pool::Lock;
use zfold_pool::builders;

use crate::pressure::SystemPressure;
use crate::store::Store;
use crate::store::postprocess::{Recompress, Selection};

/// The options of a shrinker.
#[derive(Debug)]
#[non_exhaustive]
pub struct ShrinkerOptions {
    /// Time between two looks.
    pub interval: Duration,
    /// Age from which on a page is idle, if pages are to be aged.
    pub idle_after: Option<Duration>,
    /// The source of the machine's pressure, if the shrinker reacts to it.
    pub pressure: Option<SystemPressure>,
}

impl Default for ShrinkerOptions {
    /// A look each second, no ageing, and the machine's need is not answered.
    fn default() -> Self {
        Self { interval: Duration::from_secs(1), idle_after: None, pressure: None }
    }
}

impl ShrinkerOptions {
    builders! {
        with_interval => interval: Duration,
        with_idle_after => idle_after: impl Into<Option<Duration>>,
        with_pressure => pressure: impl Into<Option<SystemPressure>>,
    }
}

/// A shrinker at work; stops, and ends its thread, when dropped.
#[derive(Debug)]
pub struct Shrinker {
    shared: Arc<Switches>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Switches {
    stop: AtomicBool,
    /// Whether the shrinker reacts to the machine's pressure (zswap's `shrinker_enabled`).
    enabled: AtomicBool,
    /// Seconds; `NEVER` for no ageing.
    idle_after: AtomicU64,
    bell: (Lock<()>, Condvar),
}

const NEVER: u64 = u64::MAX;

/// Looks at the age of all pages in the time that makes a page idle.
const AGEINGS: u32 = 8;

/// Longest time between two looks at the pool's holes.
const TICK: Duration = Duration::from_millis(100);

/// Share of the memory held that leaves in one round at full pressure, in percent.
const ROUND_PERCENT: u64 = 10;

impl Shrinker {
    /// Starts a shrinker of `store`.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(store: Arc<Store>, options: ShrinkerOptions) -> std::io::Result<Self> {
        let shared = Arc::new(Switches {
            stop: AtomicBool::new(false),
            enabled: AtomicBool::new(true),
            idle_after: AtomicU64::new(seconds(options.idle_after)),
            bell: Default::default(),
        });
        let of_thread = Arc::clone(&shared);
        let ShrinkerOptions { interval, mut pressure, .. } = options;
        let thread = std::thread::Builder::new().name("shrinker".into()).spawn(move || {
            let mut last = Instant::now();
            let mut aged = last;
            while of_thread.wait(interval.min(TICK)) {
                if last.elapsed() >= interval {
                    aged = of_thread.age(&store, aged);
                    of_thread.round(&store, pressure.as_mut());
                    last = Instant::now();
                }
                store.compact_if_due_until(&of_thread.stop);
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Lets the machine's need be answered or not (zswap's `shrinker_enabled`).
    pub fn enable(&self, enabled: bool) {
        self.shared.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Returns whether the machine's need is answered.
    #[must_use]
    pub fn enabled(&self) -> bool {
        self.shared.enabled.load(Ordering::Relaxed)
    }

    /// Changes the age from which on a page is idle.
    pub fn set_idle_after(&self, age: Option<Duration>) {
        self.shared.idle_after.store(seconds(age), Ordering::Relaxed);
    }

    /// Returns the age from which on a page is idle.
    #[must_use]
    pub fn idle_after(&self) -> Option<Duration> {
        self.shared.idle_after()
    }
}

impl Drop for Shrinker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // The lock makes sure that the thread either has not looked yet or waits already.
        drop(self.shared.bell.0.lock());
        self.shared.bell.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn seconds(age: Option<Duration>) -> u64 {
    age.map_or(NEVER, |age| age.as_secs())
}

// Relaxed throughout: switches that are seen one round later.
impl Switches {
    fn idle_after(&self) -> Option<Duration> {
        let age = self.idle_after.load(Ordering::Relaxed);
        (age != NEVER).then(|| Duration::from_secs(age))
    }

    /// Waits for the interval; returns false if it is time to stop.
    fn wait(&self, interval: Duration) -> bool {
        let (lock, bell) = &self.bell;
        let waiting = |_: &mut ()| !self.stop.load(Ordering::Relaxed);
        drop(bell.wait_timeout_while(lock.lock(), interval, waiting));
        !self.stop.load(Ordering::Relaxed)
    }

    fn round(&self, store: &Store, pressure: Option<&mut SystemPressure>) {
        if let Some(limit) = store.tunables().limit_bytes {
            let accept = store.limit.accepted(&store.tuning, limit);
            if store.held_bytes() > accept {
                store.shrink_to(accept, &self.stop);
            }
        }
        let share = match pressure {
            Some(pressure) if self.enabled.load(Ordering::Relaxed) => pressure.measure(),
            _ => 0.0,
        };
        if share > 0.0 {
            let held = store.held_bytes();
            let less = (held as f64 * share * ROUND_PERCENT as f64 / 100.0) as u64;
            if store.shrink_to(held - less.min(held), &self.stop) == 0 {
                // Errors show in the counters.
                let most = less / store.page_len() as u64;
                let _ = store.recompress(&Recompress::new(Selection::Lru, 1).with_max_pages(most));
                store.compact();
            }
        }
    }

    /// Ages pages, if it is time to; returns when it was last done.
    fn age(&self, store: &Store, last: Instant) -> Instant {
        let Some(age) = self.idle_after() else { return last };
        if last.elapsed() < age / AGEINGS {
            return last;
        }
        if store.mark_idle(Some(age)) > 0 {
            self.use_idle(store);
        }
        Instant::now()
    }

    /// Sends idle pages away, or makes them smaller. Errors show in the counters.
    fn use_idle(&self, store: &Store) {
        if store.writeback(&Selection::Idle, None).is_err() {
            let _ = store.recompress(&Recompress::new(Selection::Idle, 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::MemoryBacking;
    use crate::codec::CodecKind;
    use crate::conformance::page;
    use crate::options::{BackingOptions, StoreOptions};
    use crate::pressure::machine::Machine;
    use zfold_pool::{PoolOptions, create};
    use zfold_testing::wait_for;

    const ROUND: Duration = Duration::from_millis(1);

    fn filled(change: impl Fn(&mut StoreOptions)) -> Arc<Store> {
        let mut options = StoreOptions::new(10_000, CodecKind::Lz4.into());
        let backing = Arc::new(MemoryBacking::new(8 << 20));
        options.backing = Some(BackingOptions::new(backing));
        change(&mut options);
        let pool = create("store", &PoolOptions::default()).unwrap();
        let store = Store::new(pool, &options).unwrap();
        for key in 0..1000 {
            store.store(key, &page((key as u32) << 3 | 2, 4096)).unwrap();
        }
        Arc::new(store)
    }

    fn options(pressure: Option<SystemPressure>) -> ShrinkerOptions {
        ShrinkerOptions { interval: ROUND, idle_after: None, pressure }
    }

    /// Returns a machine without memory, and its pressure.
    fn tight() -> (Machine, SystemPressure) {
        let machine = Machine::new();
        machine.available(0);
        let pressure = SystemPressure::below(machine.root());
        (machine, pressure)
    }

    /// Waits until `reached`, for at most a minute.
    fn wait(store: &Store, reached: impl Fn(&Store) -> bool) {
        wait_for(|| if reached(store) { Ok(()) } else { Err(Box::new(store.stats())) });
    }

    #[test]
    fn pressure_sends_pages_to_the_backing_file_until_it_ends() {
        let store = filled(|_| {});
        let (_machine, tight) = tight();
        let shrinker = Shrinker::start(Arc::clone(&store), options(Some(tight)));
        wait(&store, |store| store.stats().backed_pages > 500);
        drop(shrinker);
        store.check();
        let mut buffer = vec![0; 4096];
        for key in 0..1000 {
            assert!(store.load(key, &mut buffer).unwrap());
            assert!(buffer == page((key as u32) << 3 | 2, 4096));
        }
    }

    #[test]
    fn a_store_near_its_limit_is_shrunk_before_stores_must_wait() {
        let store = filled(|_| {});
        let mut tunables = store.tunables();
        let limit = store.held_bytes() + 1000;
        tunables.limit_bytes = Some(limit);
        store.tune(&tunables).unwrap();
        let _shrinker = Shrinker::start(Arc::clone(&store), options(None)).unwrap();
        wait(&store, |store| store.held_bytes() <= store.tuning.accept_bytes(limit));
        assert!(store.stats().backed_pages > 0);
    }

    #[test]
    fn idle_pages_are_written_back_or_recompressed() {
        for backed in [true, false] {
            let store = filled(|options| {
                if !backed {
                    options.backing = None;
                    let strong: crate::CodecSpec = "zstd:3".parse().unwrap();
                    options.recompression = vec![strong.into()];
                }
            });
            let shrinker = Shrinker::start(Arc::clone(&store), options(None)).unwrap();
            shrinker.set_idle_after(Some(Duration::ZERO));
            wait(&store, |store| {
                let stats = store.stats();
                stats.backed_pages.max(stats.recompressed_total) > 900
            });
            assert_eq!(shrinker.idle_after(), Some(Duration::ZERO));
            drop(shrinker);
            store.check();
        }
    }

    #[test]
    fn holes_of_overwritten_pages_are_closed() {
        let store = filled(|_| {});
        for key in (0..1000).filter(|key| key % 4 != 0) {
            store.invalidate(key);
        }
        assert!(store.has_holes());
        let _shrinker = Shrinker::start(Arc::clone(&store), options(None)).unwrap();
        wait(&store, |store| !store.has_holes());
    }

    #[test]
    fn a_shrinker_that_is_switched_off_leaves_pages_alone() {
        let store = filled(|_| {});
        let shrinker = Shrinker::start(Arc::clone(&store), options(None)).unwrap();
        shrinker.enable(false);
        assert!(!shrinker.enabled());
        let (_machine, mut tight) = tight();
        shrinker.shared.round(&store, Some(&mut tight));
        assert_eq!(store.stats().backed_pages, 0);
        shrinker.enable(true);
        shrinker.shared.round(&store, Some(&mut tight));
        assert!(store.stats().backed_pages > 0);
    }
}
