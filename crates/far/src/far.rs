//! Units on other machines: how reads, writes and discards use the log and the engine.
//!
//! The log's lock is held for look-ups and changes of the log only, never while the engine works,
//! bytes are sealed or a thread waits. So two things happen between:
//!
//! - H1: a writer, and so the cleaner, adds an object to the log after the engine has acknowledged
//!   it. An object whose put failed is never added, its number never used again; the next attempt
//!   seals again under another number.
//! - H2: a reader asks the engine for a spot that it read from the log. Meanwhile the unit may be
//!   overwritten, discarded or moved by the cleaner, and the object deleted. So a reader that fails
//!   looks at the log again: if the unit lies elsewhere, it starts again there, which counts as no
//!   attempt. If it lies there still, the object was not handed out for deletion (log/L5): a
//!   failure.
//! - H3: the cleaner reads the way readers do, and its copies count only for units that have not
//!   changed since it looked (log/L6).
//!
//! Each H2 start anew needs a change by another thread, and none begins after the deadline.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use zfold_store::pool::{Lock, sound};

use crate::bell::Bell;
use crate::engine::{Engine, EngineError};
use crate::link::{Failure, Link};
use crate::log::{Log, Span, Spot};
use crate::map::UNIT;
use crate::options::FarOptions;
use crate::seal::{SEALED, Sealer};
use crate::stats::FarStats;
use crate::twin::{self, Twin, broken};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Far {
    pub(crate) options: FarOptions,
    pub(crate) link: Link,
    log: Lock<Log>,
    /// Bytes of the log, as of its last change.
    memory_bytes: AtomicU64,
    pub(crate) sealer: Sealer,
    pub(crate) bell: Bell,
    /// Whether all objects are being removed. A thread that puts shares it until it has published,
    /// so that nothing is put after the removal.
    closed: RwLock<bool>,
}

impl Far {
    pub(crate) fn new(engine: Arc<dyn Engine>, options: FarOptions) -> io::Result<Self> {
        let options = options.checked()?;
        let units = (options.len / UNIT as u64) as u32;
        let log = Log::new(units, engine.object_bytes());
        let sealer = Sealer::new()
            .ok_or_else(|| io::Error::other("the system has no random numbers for a key"))?;
        Ok(Self {
            options,
            link: Link::new(engine),
            memory_bytes: AtomicU64::new(log.bytes()),
            log: Lock::new(log),
            sealer,
            bell: Bell::default(),
            closed: RwLock::new(false),
        })
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock()
    }

    /// Changes the log, and counts the memory that it takes then.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        let mut log = self.log();
        let changed = change(&mut log);
        // Relaxed: a gauge, stored under the lock.
        self.memory_bytes.store(log.bytes(), Ordering::Relaxed);
        changed
    }

    /// Returns the bytes of memory that the log takes, without its lock.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn until(&self) -> Instant {
        self.within(self.options.deadline)
    }

    /// When a call that may take this long must have returned: by the deadline of calls, if that
    /// comes before.
    pub(crate) fn within(&self, time: Duration) -> Instant {
        Instant::now() + time.min(self.options.deadline)
    }

    /// Writes whole units to the engine, in objects as long as it likes them (H1).
    pub(crate) fn write(&self, unit: u32, data: &[u8]) -> io::Result<()> {
        let until = self.until();
        let object_units = self.log().object_units();
        let mut unit = unit;
        for part in data.chunks(object_units as usize * UNIT) {
            let closed = sound(self.closed.read());
            if *closed {
                let what = "nothing is written to a backing that is closed";
                return Err(io::Error::new(io::ErrorKind::NotConnected, what));
            }
            self.refuse_absent()?;
            if !self.log().has_room() {
                self.bell.ring();
                return Err(full());
            }
            let span = Span { unit, len: (part.len() / UNIT) as u32 };
            let number = self.put(part, until).map_err(|failure| {
                self.link.set_absent(true);
                self.bell.ring();
                self.link.error(&failure)
            })?;
            self.change(|log| log.publish(number, span)).map_err(|_| full())?;
            unit += span.len;
        }
        Ok(())
    }

    /// Has nothing be put from now on; returns when all objects that were being put are published.
    pub(crate) fn refuse_all(&self) {
        *sound(self.closed.write()) = true;
    }

    /// Fails while the engine is absent (link/G1).
    fn refuse_absent(&self) -> io::Result<()> {
        if !self.link.absent() {
            return Ok(());
        }
        let why = self.link.last_failure().unwrap_or_default();
        let what = format!("nothing is written while the engine is absent ({why})");
        Err(io::Error::new(io::ErrorKind::NotConnected, what))
    }

    /// Puts an object with these units; returns its number.
    pub(crate) fn put(&self, plain: &[u8], until: Instant) -> Result<u64, Failure> {
        self.attempts(until, |until| self.put_once(plain, until))
    }

    /// Tries to put an object with these units under a new number, and returns that (H1).
    pub(crate) fn put_once(&self, plain: &[u8], until: Instant) -> Result<u64, Failure> {
        let number = twin::number(self.log().begin());
        let mut sealed = Vec::with_capacity(plain.len() / UNIT * SEALED);
        self.sealer.seal(number, 0, plain, &mut sealed);
        let put = self.link.put(number, &sealed, until);
        put.map(|()| number).inspect_err(|_| {
            twin::put_failed(number);
            self.log().doubt(number);
        })
    }

    /// Reads whole units from the engine.
    pub(crate) fn read(&self, unit: u32, out: &mut [u8]) -> io::Result<()> {
        let until = self.until();
        let mut done = 0;
        while done < out.len() {
            let at = unit + (done / UNIT) as u32;
            let left = ((out.len() - done) / UNIT) as u32;
            let Some((spot, len)) = self.log().find(at, left) else {
                let what = format!("nothing was written at byte {}", u64::from(at) * UNIT as u64);
                return Err(io::Error::new(io::ErrorKind::NotFound, what));
            };
            let part = &mut out[done..done + len as usize * UNIT];
            match self.fetch(at, spot, part, until) {
                Ok(true) => done += part.len(),
                Ok(false) if Instant::now() < until => {}
                Ok(false) => return Err(self.link.error(&EngineError::Late.into())),
                Err(failure) => return Err(self.link.error(&failure)),
            }
        }
        Ok(())
    }

    /// Fetches and opens the units of an object from a spot on. Returns false if that failed and
    /// `unit`, the first of them, does not lie there any more (H2).
    fn fetch(
        &self,
        unit: u32,
        spot: Spot,
        plain: &mut [u8],
        until: Instant,
    ) -> Result<bool, Failure> {
        let Spot { number, index } = spot;
        let mut sealed = vec![0; plain.len() / UNIT * SEALED];
        self.attempts(until, |until| {
            let lies = || self.log().find(unit, 1).is_some_and(|(now, _)| now == spot);
            let open = |sealed: &mut [u8]| self.sealer.open(number, index, sealed, plain);
            let at = index as usize * SEALED;
            let got = self.link.get(number, at, &mut sealed, until, open, lies);
            if broken(Twin::NeverLooksAgain) {
                return got.map(|()| true);
            }
            match got {
                Ok(()) => Ok(true),
                Err(failure) if lies() => Err(failure),
                Err(_) => Ok(false),
            }
        })
        .inspect_err(|failure| self.note_absence(failure))
    }

    /// Declares these units unneeded.
    pub(crate) fn discard(&self, span: Span) {
        let calls = self.change(|log| {
            log.discard(span);
            log.calls()
        });
        if calls {
            self.bell.ring();
        }
    }

    /// Does something until it is done, has been tried as often as it may, or the time is over.
    /// Each attempt has its share of the remaining time.
    pub(crate) fn attempts<T>(
        &self,
        until: Instant,
        mut attempt: impl FnMut(Instant) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut pause = self.options.backoff;
        let mut left = self.options.attempts;
        loop {
            let now = Instant::now();
            let share = until.saturating_duration_since(now) / left;
            let failure = match attempt(now + share) {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            left -= 1;
            if left == 0 || Instant::now() + pause >= until {
                return Err(failure);
            }
            self.link.count_retry();
            if pause > Duration::ZERO {
                thread::sleep(pause);
            }
            pause *= 2;
        }
    }

    /// Records that the engine is absent if it did not answer for as long as was waited for it: so
    /// nothing else waits for it until it answers a probe, least of all the thread that closes.
    pub(crate) fn note_absence(&self, failure: &Failure) {
        if matches!(failure, Failure::Engine(EngineError::Late | EngineError::Unreachable(_))) {
            self.link.set_absent(true);
        }
    }

    /// Returns what is held and was done.
    pub(crate) fn stats(&self) -> FarStats {
        let log = self.log();
        let (object_bytes, live_bytes) = log.sealed_bytes();
        FarStats {
            objects: log.objects(),
            object_bytes,
            live_bytes,
            dead_objects: log.dead() as u64,
            metadata_bytes: self.memory_bytes(),
            ..self.link.stats()
        }
    }
}

fn full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "the engine has as many objects as can be listed")
}
