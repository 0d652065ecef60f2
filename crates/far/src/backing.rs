//! The backing that a store is given.
//!
//! A thin face: it turns bytes into units, and errors into those of a backing. Calls come from any
//! number of threads and take no lock here; what orders them is said in `far.rs`. The lock is that
//! of the cleaner's thread, which is taken out of it once: so the first `close` ends the cleaner,
//! and only then is everything removed that was put.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use zfold_store::backing::{Backing, MIN_ALIGN};
use zfold_store::pool::Lock;

use crate::cleaner::Round;
use crate::engine::Engine;
use crate::far::Far;
use crate::log::Span;
use crate::map::UNIT;
use crate::options::FarOptions;
use crate::stats::FarStats;

/// A [`Backing`] whose bytes lie on other machines.
///
/// A write returns after the engine has acknowledged all of it. While the engine is absent, writes
/// fail at once; a read is tried until its deadline and then fails. No call returns bytes that were
/// not written there: all is encrypted and authenticated under a key that only this process has.
///
/// When it is [closed](Self::close) or dropped, it removes all its objects from the engine.
#[derive(Debug)]
pub struct FarBacking {
    far: Arc<Far>,
    /// None once it is closed.
    tender: Lock<Option<JoinHandle<()>>>,
}

impl FarBacking {
    /// Returns a backing over `engine`, in which nothing is written yet, and starts its cleaner, a
    /// thread.
    ///
    /// # Errors
    /// `InvalidInput` for options that make no backing; the system's error.
    pub fn open(engine: Arc<dyn Engine>, options: FarOptions) -> io::Result<Self> {
        let far = Arc::new(Far::new(engine, options)?);
        let tended = Arc::clone(&far);
        let tender =
            thread::Builder::new().name("zfold-far".into()).spawn(move || tend(&tended))?;
        Ok(Self { far, tender: Lock::new(Some(tender)) })
    }

    /// Ends the cleaner, waits for writes that are under way, and removes from the engine what was
    /// put there, for a deadline at most. Data that was written can no longer be read, and later
    /// writes fail. Does nothing the second time.
    pub fn close(&self) {
        self.far.bell.stop();
        let tender = self.tender.lock().take();
        if let Some(tender) = tender {
            // One that panicked cleans no more; this is the best that can be done.
            let _ = tender.join();
            self.far.refuse_all();
            self.far.remove_all();
        }
    }

    /// Returns what is held and was done.
    pub fn stats(&self) -> FarStats {
        self.far.stats()
    }

    /// Returns what the engine is called in messages.
    pub fn engine_name(&self) -> &str {
        self.far.link.engine().name()
    }

    /// Returns whether the engine has answered nothing for some seconds though it was asked. Makes
    /// no request.
    pub fn is_away(&self) -> bool {
        self.far.link.is_away()
    }

    /// Returns the last failure of the engine, in words; `None` if there was none.
    pub fn last_failure(&self) -> Option<String> {
        self.far.link.last_failure()
    }

    fn span(&self, offset: u64, len: u64) -> io::Result<Span> {
        let whole = offset.is_multiple_of(UNIT as u64) && len.is_multiple_of(UNIT as u64);
        let within = offset.checked_add(len).is_some_and(|end| end <= self.len());
        if whole && within {
            let units = |bytes| (bytes / UNIT as u64) as u32;
            return Ok(Span { unit: units(offset), len: units(len) });
        }
        let what = format!("bytes {offset}+{len} are no whole units below {}", self.len());
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }
}

/// Works in rounds until the bell says stop.
fn tend(far: &Far) {
    let mut round = Round::default();
    let mut next = Duration::ZERO;
    while far.bell.wait(next) {
        next = far.tend(Instant::now(), &mut round);
    }
}

impl Drop for FarBacking {
    fn drop(&mut self) {
        self.close();
    }
}

impl Backing for FarBacking {
    fn len(&self) -> u64 {
        self.far.options.len
    }

    fn align(&self) -> usize {
        MIN_ALIGN
    }

    /// Gets the bytes from the engine, in one call for each object that has some of them.
    ///
    /// # Errors
    /// `InvalidInput`; `NotFound` where nothing was written or the engine lost it; `InvalidData` if
    /// what came is not what was sent; `TimedOut` and others as the engine says.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let span = self.span(offset, out.len() as u64)?;
        self.far.read(span.unit, out)
    }

    /// Puts the bytes into the engine, in as many objects as its length of objects says.
    ///
    /// # Errors
    /// `InvalidInput`; `NotConnected`, at once, while the engine is absent; `TimedOut` and others
    /// as the engine says, which is then absent for a while.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let span = self.span(offset, data.len() as u64)?;
        self.far.write(span.unit, data)
    }

    /// Forgets the bytes; the cleaner removes them from the engine. Waits for nothing.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let span = self.span(offset, len)?;
        self.far.discard(span);
        Ok(())
    }

    /// Returns true: the cleaner works with garbage.
    fn wants_discards(&self) -> bool {
        true
    }

    /// Returns the bytes that the map and the list of objects take.
    fn memory_bytes(&self) -> u64 {
        self.far.memory_bytes()
    }

    /// Returns how long the engine likes objects.
    fn write_bytes(&self) -> usize {
        self.far.log().object_units() as usize * UNIT
    }

    /// Returns at once: what is written is as durable as the engine keeps it.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
