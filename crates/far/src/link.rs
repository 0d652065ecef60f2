//! The way to the engine: each call counted and timed, and whether the engine is there.
//!
//! - G1: while the engine is absent, nothing is put. It becomes absent by a write that failed after
//!   all its attempts, and present by a probe alone.
//! - G2: every call of the engine is counted, as done or as a failure, and the last failure is kept
//!   in words; but not a get of what was moved meanwhile, which is looked for anew.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::engine::{Engine, EngineError};
use crate::seal::Forged;
use crate::stats::FarStats;

/// The longest time that a latency is told as.
const LONGEST: Duration = Duration::from_secs(3600);

/// Why a call brought nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Engine(EngineError),
    /// What came is not what was sent.
    Forged,
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<Forged> for Failure {
    fn from(Forged: Forged) -> Self {
        Self::Forged
    }
}

/// See the module documentation. All counters are Relaxed: they guard nothing.
#[derive(Debug)]
pub(crate) struct Link {
    engine: Arc<dyn Engine>,
    absent: AtomicBool,
    /// Whether the last call failed.
    silent: AtomicBool,
    puts: AtomicU64,
    put_bytes: AtomicU64,
    gets: AtomicU64,
    got_bytes: AtomicU64,
    deletes: AtomicU64,
    aheads: AtomicU64,
    retries: AtomicU64,
    failures: AtomicU64,
    forged: AtomicU64,
    cleaned: AtomicU64,
    absences: AtomicU64,
    waited_us: AtomicU64,
    last: Mutex<Option<String>>,
    put_us: Mutex<Histogram<u64>>,
    get_us: Mutex<Histogram<u64>>,
}

impl Link {
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Self {
        let histogram = || {
            let most = LONGEST.as_micros() as u64;
            Mutex::new(Histogram::new_with_bounds(1, most, 2).expect("bounds that can be"))
        };
        Self {
            engine,
            absent: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            puts: AtomicU64::new(0),
            put_bytes: AtomicU64::new(0),
            gets: AtomicU64::new(0),
            got_bytes: AtomicU64::new(0),
            deletes: AtomicU64::new(0),
            aheads: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            forged: AtomicU64::new(0),
            cleaned: AtomicU64::new(0),
            absences: AtomicU64::new(0),
            waited_us: AtomicU64::new(0),
            last: Mutex::new(None),
            put_us: histogram(),
            get_us: histogram(),
        }
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Puts an object.
    pub(crate) fn put(&self, number: u64, sealed: &[u8], until: Instant) -> Result<(), Failure> {
        let begun = Instant::now();
        self.count(self.engine.put(number, sealed, until).map_err(Failure::from))?;
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.put_bytes.fetch_add(sealed.len() as u64, Ordering::Relaxed);
        record(&self.put_us, begun);
        Ok(())
    }

    /// Gets a range and hands it to `open`, which says whether it is what was sent. If that fails,
    /// `lies` says whether it should have been there.
    pub(crate) fn get(
        &self,
        number: u64,
        offset: usize,
        sealed: &mut [u8],
        until: Instant,
        open: impl FnOnce(&mut [u8]) -> Result<(), Forged>,
        lies: impl FnOnce() -> bool,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        if let Err(error) = self.engine.get(number, offset, sealed, until) {
            let got = Err(error.into());
            return if lies() { self.count(got) } else { got };
        }
        self.silent.store(false, Ordering::Relaxed);
        record(&self.get_us, begun);
        if open(sealed).is_err() {
            self.forged.fetch_add(1, Ordering::Relaxed);
            return self.count(Err(Failure::Forged));
        }
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.got_bytes.fetch_add(sealed.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Deletes objects.
    pub(crate) fn delete(&self, numbers: &[u64], until: Instant) -> Result<(), Failure> {
        self.count(self.engine.delete(numbers, until).map_err(Failure::from))?;
        self.deletes.fetch_add(numbers.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Tells the engine that the owner lives.
    pub(crate) fn renew(&self, until: Instant) -> Result<(), Failure> {
        self.count(self.engine.renew(until).map_err(Failure::from))
    }

    /// Tells the engine that the owner needs nothing any more.
    pub(crate) fn close(&self, until: Instant) -> Result<(), Failure> {
        self.count(self.engine.close(until).map_err(Failure::from))
    }

    /// Counts a failure (G2).
    fn count(&self, result: Result<(), Failure>) -> Result<(), Failure> {
        self.silent.store(result.is_err(), Ordering::Relaxed);
        if let Err(failure) = &result {
            self.failures.fetch_add(1, Ordering::Relaxed);
            *lock(&self.last) = Some(self.says(failure));
        }
        result
    }

    pub(crate) fn count_cleaned(&self, bytes: u64) {
        self.cleaned.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a read that needed no get.
    pub(crate) fn count_ahead(&self) {
        self.aheads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a wait for the turn to send.
    pub(crate) fn count_wait(&self, wait: Duration) {
        self.waited_us.fetch_add(wait.as_micros() as u64, Ordering::Relaxed);
    }

    fn says(&self, failure: &Failure) -> String {
        match failure {
            Failure::Engine(error) => format!("{}: {error}", self.engine.name()),
            Failure::Forged => format!("{}: what came is not what was sent", self.engine.name()),
        }
    }

    /// Returns a failure as an error of a backing.
    pub(crate) fn error(&self, failure: &Failure) -> io::Error {
        let kind = match failure {
            Failure::Engine(error) => error.kind(),
            Failure::Forged => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, self.says(failure))
    }

    /// Returns the last failure, in words.
    pub(crate) fn last_failure(&self) -> Option<String> {
        lock(&self.last).clone()
    }

    /// Returns whether the engine is absent (G1).
    pub(crate) fn absent(&self) -> bool {
        // Relaxed: whoever just misses it makes a call that fails.
        self.absent.load(Ordering::Relaxed)
    }

    /// Returns whether the last call failed.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Says whether the engine is absent.
    pub(crate) fn set_absent(&self, absent: bool) {
        if !self.absent.swap(absent, Ordering::Relaxed) && absent {
            self.absences.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counters; what no call tells is zero.
    pub(crate) fn stats(&self) -> FarStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (put, get) = (lock(&self.put_us), lock(&self.get_us));
        let copies = self.engine.copies();
        FarStats {
            put_bytes_total: of(&self.put_bytes),
            got_bytes_total: of(&self.got_bytes),
            puts_total: of(&self.puts),
            gets_total: of(&self.gets),
            read_ahead_total: of(&self.aheads),
            deletes_total: of(&self.deletes),
            retries_total: of(&self.retries),
            failures_total: of(&self.failures),
            forged_total: of(&self.forged),
            cleaned_bytes_total: of(&self.cleaned),
            copies_missing: copies.gone,
            copies_made_total: copies.made_total,
            absences_total: of(&self.absences),
            waited_us_total: of(&self.waited_us),
            get_us_p50: get.value_at_quantile(0.5),
            get_us_p99: get.value_at_quantile(0.99),
            put_us_p50: put.value_at_quantile(0.5),
            put_us_p99: put.value_at_quantile(0.99),
            absent: self.absent(),
            ..FarStats::default()
        }
    }
}

fn record(histogram: &Mutex<Histogram<u64>>, begun: Instant) {
    lock(histogram).saturating_record(begun.elapsed().as_micros() as u64);
}

/// What these locks guard is whole at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
