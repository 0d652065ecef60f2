//! The way to the engine: each call counted and timed, and whether the engine is there.
//!
//! - G1: while the engine is absent, nothing is put. It becomes absent by a write that failed after
//!   all its attempts, or a read that was not answered in its time, and present by a probe alone.
//! - G2: every call of the engine is counted, as done or as a failure, and the last failure is kept
//!   in words; but not a get of what was moved meanwhile, which is looked for anew.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use zfold_figures::Histogram;
use zfold_store::pool::Lock;

use crate::engine::{Engine, EngineError};
use crate::seal::Forged;
use crate::stats::{Counters, FarStats};

/// Why a call brought nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Engine(EngineError),
    /// The bytes that came are not those that were sent.
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
    counters: Counters,
    last: Lock<Option<String>>,
    /// Microseconds of what succeeded.
    put_us: Histogram,
    get_us: Histogram,
}

impl Link {
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Self {
        Self {
            engine,
            absent: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            counters: Counters::default(),
            last: Lock::new(None),
            put_us: Histogram::default(),
            get_us: Histogram::default(),
        }
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Puts an object.
    pub(crate) fn put(&self, number: u64, sealed: &[u8], until: Instant) -> Result<(), Failure> {
        let begun = Instant::now();
        self.count(self.engine.put(number, sealed, until).map_err(Failure::from))?;
        self.counters.puts_total.add(1);
        self.counters.put_bytes_total.add(sealed.len() as u64);
        record(&self.put_us, begun);
        Ok(())
    }

    /// Gets a range and passes it to `open`, which says whether the bytes are those that were sent.
    /// If that fails, `lies` says whether it should have been there.
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
            self.counters.forged_total.add(1);
            return self.count(Err(Failure::Forged));
        }
        self.counters.gets_total.add(1);
        self.counters.got_bytes_total.add(sealed.len() as u64);
        Ok(())
    }

    /// Deletes objects.
    pub(crate) fn delete(&self, numbers: &[u64], until: Instant) -> Result<(), Failure> {
        self.count(self.engine.delete(numbers, until).map_err(Failure::from))?;
        self.counters.deletes_total.add(numbers.len() as u64);
        Ok(())
    }

    /// Renews the owner's lease at the engine.
    pub(crate) fn renew(&self, until: Instant) -> Result<(), Failure> {
        self.count(self.engine.renew(until).map_err(Failure::from))
    }

    /// Tells the engine that its owner needs nothing any longer.
    pub(crate) fn close(&self, until: Instant) -> Result<(), Failure> {
        self.count(self.engine.close(until).map_err(Failure::from))
    }

    /// Counts a failure (G2).
    fn count(&self, result: Result<(), Failure>) -> Result<(), Failure> {
        self.silent.store(result.is_err(), Ordering::Relaxed);
        if let Err(failure) = &result {
            self.counters.failures_total.add(1);
            *self.last.lock() = Some(self.says(failure));
        }
        result
    }

    pub(crate) fn count_cleaned(&self, bytes: u64) {
        self.counters.cleaned_bytes_total.add(bytes);
    }

    /// Counts a read that needed no get.
    pub(crate) fn count_ahead(&self) {
        self.counters.read_ahead_total.add(1);
    }

    pub(crate) fn count_retry(&self) {
        self.counters.retries_total.add(1);
    }

    /// Counts a wait for the turn to send.
    pub(crate) fn count_wait(&self, wait: Duration) {
        self.counters.waited_us_total.add(wait.as_micros() as u64);
    }

    fn says(&self, failure: &Failure) -> String {
        match failure {
            Failure::Engine(error) => format!("{}: {error}", self.engine.name()),
            Failure::Forged => {
                format!("{}: it returned other bytes than were sent", self.engine.name())
            }
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
        self.last.lock().clone()
    }

    /// Returns whether the engine is absent (G1).
    pub(crate) fn absent(&self) -> bool {
        // Relaxed: a thread that just misses it makes a call that fails.
        self.absent.load(Ordering::Relaxed)
    }

    /// Returns whether the last call failed.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Says whether the engine is absent.
    pub(crate) fn set_absent(&self, absent: bool) {
        if !self.absent.swap(absent, Ordering::Relaxed) && absent {
            self.counters.absences_total.add(1);
        }
    }

    /// Returns the counters; figures that no call reports are zero.
    pub(crate) fn stats(&self) -> FarStats {
        let (put, get) = (self.put_us.quantiles(), self.get_us.quantiles());
        let copies = self.engine.copies();
        FarStats {
            copies_missing: copies.gone,
            copies_made_total: copies.made_total,
            get_us_p50: get.p50,
            get_us_p99: get.p99,
            put_us_p50: put.p50,
            put_us_p99: put.p99,
            absent: self.absent(),
            ..self.counters.read()
        }
    }
}

fn record(histogram: &Histogram, begun: Instant) {
    histogram.record(begun.elapsed().as_micros() as u64);
}
