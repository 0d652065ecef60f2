//! A near backing and its contents: the lock of the near state, a clock by which it grows old.
//!
//! The lock is held for a look or a change of the state, never while the backing reads or writes;
//! after it the log's may be taken, not the other way round. Which bytes may be read or written
//! where is decided under it and holds afterwards by the state's own rules (near/W1 to W5). The
//! clock only makes pages look younger if it is read late.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Instant;

use zfold_store::backing::Backing;
use zfold_store::pool::Lock;

use crate::log::Span;
use crate::map::UNIT;
use crate::near::{Near, Part};
use crate::options::NearOptions;

/// A near backing and its contents.
#[derive(Debug)]
pub(crate) struct Here {
    backing: Arc<dyn Backing>,
    near: Lock<Near>,
    memory_bytes: u64,
    /// Seconds after which units go.
    after: u32,
    /// The first round, and the seconds from there to the last one: the time by which ages count.
    began: OnceLock<Instant>,
    second: AtomicU32,
}

impl Here {
    /// Returns an empty near backing for an address space of this many units.
    pub(crate) fn new(options: &NearOptions, units: u32) -> Self {
        let room = options.backing.len() / UNIT as u64;
        let near = Near::new(units, room, options.bytes_per_day);
        Self {
            backing: Arc::clone(&options.backing),
            memory_bytes: near.bytes(),
            near: Lock::new(near),
            after: u32::try_from(options.after.as_secs()).unwrap_or(u32::MAX),
            began: OnceLock::new(),
            second: AtomicU32::new(0),
        }
    }

    pub(crate) fn near(&self) -> MutexGuard<'_, Near> {
        self.near.lock()
    }

    /// Returns how the near backing aligns.
    pub(crate) fn align(&self) -> usize {
        self.backing.align()
    }

    /// Returns the bytes of memory that the map takes, which are always the same.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Lets it be `now`.
    pub(crate) fn tick(&self, now: Instant) {
        let began = self.began.get_or_init(|| now);
        let second = u32::try_from((now - *began).as_secs()).unwrap_or(u32::MAX);
        // Relaxed, as when it is read: a time that is late by a moment only makes pages younger.
        self.second.store(second, Ordering::Relaxed);
    }

    /// Returns the second that it is.
    pub(crate) fn second(&self) -> u32 {
        self.second.load(Ordering::Relaxed)
    }

    /// Returns the seconds after which units go.
    pub(crate) fn after(&self) -> u32 {
        self.after
    }

    /// Reads the units from `at` of the near backing on.
    pub(crate) fn read(&self, at: u32, out: &mut [u8]) -> io::Result<()> {
        self.backing.read_at(offset(at), out)
    }

    /// Writes the parts of a span.
    pub(crate) fn write(&self, span: Span, parts: &[Part], data: &[u8]) -> io::Result<()> {
        parts.iter().try_for_each(|part| {
            let start = (part.span.unit - span.unit) as usize * UNIT;
            let bytes = &data[start..][..part.span.len as usize * UNIT];
            self.backing.write_at(offset(part.at), bytes)
        })
    }
}

fn offset(unit: u32) -> u64 {
    u64::from(unit) * UNIT as u64
}
