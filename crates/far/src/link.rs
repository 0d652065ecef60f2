//! The way to the engine: each call counted and timed, and whether the engine is there.
//!
//! - G1: while the engine is absent, nothing is put. It becomes absent by a write that failed after
//!   all its attempts, or a read that was not answered in its time, and present by a probe alone.
//! - G3: the engine is away when it has answered no call for [`AWAY_AFTER`], though it was asked.
//!   What is shorter is a pause. A refusal is an answer.
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

/// How long an engine may be silent.
const AWAY_AFTER: Duration = Duration::from_secs(3);

/// What is known of an engine that has not answered (G3).
#[derive(Debug, Default)]
struct Silence {
    under_way: usize,
    /// When the first call began that has no answer yet, or failed, with no answer since.
    since: Option<Instant>,
    /// Whether the last call failed.
    failed: bool,
}

/// See the module documentation. All counters are Relaxed: they guard nothing.
#[derive(Debug)]
pub(crate) struct Link {
    engine: Arc<dyn Engine>,
    absent: AtomicBool,
    silence: Lock<Silence>,
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
            silence: Lock::default(),
            counters: Counters::default(),
            last: Lock::new(None),
            put_us: Histogram::default(),
            get_us: Histogram::default(),
        }
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Makes a call, and remembers whether it was answered (G3).
    fn call(
        &self,
        call: impl FnOnce(&dyn Engine) -> Result<(), EngineError>,
    ) -> Result<(), Failure> {
        {
            let mut silence = self.silence.lock();
            silence.under_way += 1;
            silence.since.get_or_insert_with(Instant::now);
        }
        let done = call(&*self.engine);
        let silent = matches!(done, Err(EngineError::Late | EngineError::Unreachable(_)));
        let mut silence = self.silence.lock();
        silence.under_way -= 1;
        silence.failed = done.is_err();
        if !silent {
            silence.since = (silence.under_way > 0).then(Instant::now);
        }
        done.map_err(Failure::from)
    }

    /// Puts an object.
    pub(crate) fn put(&self, number: u64, sealed: &[u8], until: Instant) -> Result<(), Failure> {
        let begun = Instant::now();
        self.count(self.call(|engine| engine.put(number, sealed, until)))?;
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
        let got = self.call(|engine| engine.get(number, offset, sealed, until));
        if got.is_err() {
            return if lies() { self.count(got) } else { got };
        }
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
        self.count(self.call(|engine| engine.delete(numbers, until)))?;
        self.counters.deletes_total.add(numbers.len() as u64);
        Ok(())
    }

    /// Moves on the expiry of objects.
    pub(crate) fn renew(&self, numbers: &[u64], until: Instant) -> Result<(), Failure> {
        self.count(self.call(|engine| engine.renew(numbers, until)))
    }

    /// Tells the engine that its owner needs nothing any longer.
    pub(crate) fn close(&self, until: Instant) -> Result<(), Failure> {
        self.count(self.call(|engine| engine.close(until)))
    }

    /// Counts a failure (G2).
    fn count(&self, result: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(failure) = &result {
            self.counters.failures_total.add(1);
            *self.last.lock() = Some(self.says(failure));
        }
        result
    }

    pub(crate) fn count_cleaned(&self, bytes: u64) {
        self.counters.cleaned_bytes_total.add(bytes);
    }

    pub(crate) fn count_retry(&self) {
        self.counters.retries_total.add(1);
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
        self.silence.lock().failed
    }

    /// Returns whether the engine is away (G3).
    pub(crate) fn is_away(&self) -> bool {
        self.silence.lock().since.is_some_and(|since| since.elapsed() >= AWAY_AFTER)
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
        FarStats {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{SimEngine, SimFaults};

    #[test]
    fn an_engine_is_away_when_it_answers_nothing_for_long() {
        let engine = Arc::new(SimEngine::new(1, SimFaults::default()));
        let link = Link::new(Arc::clone(&engine) as _);
        let until = || Instant::now() + AWAY_AFTER;
        let passes = |time| link.silence.lock().since.iter_mut().for_each(|since| *since -= time);
        link.put(1, b"sealed", until()).expect("a put");
        passes(AWAY_AFTER);
        assert!(!link.is_away(), "nothing was asked");
        engine.set_absent(true);
        link.put(2, b"sealed", until()).expect_err("it is absent");
        assert!(link.is_silent() && !link.is_away(), "a pause");
        passes(AWAY_AFTER);
        assert!(link.is_away());
        engine.set_absent(false);
        link.put(3, b"sealed", until()).expect("a put");
        assert!(!link.is_silent() && !link.is_away());
    }
}
