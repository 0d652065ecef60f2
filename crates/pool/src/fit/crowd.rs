//! What threads know about a pool's shards without a lock: how many are in use, which each thread
//! allocates from, and which are loose.
//!
//! All of it are hints: they choose where an object goes, and every choice is right.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Most shards of a pool: a bit each in a word.
pub(crate) const SHARDS_MAX: usize = u64::BITS as usize;

const _: () = assert!(SHARDS_MAX <= super::place::SHARDS_MAX, "an address names the shard");

/// Allocations that find a lock taken before there is another shard in use.
const WAITS: u32 = 64;

/// How often a thread contends for locks before it goes to the next shard.
const PATIENCE: u32 = 16;

thread_local! {
    /// The thread's position: how often it contended for locks, in all pools.
    static STAND: Cell<u32> = const { Cell::new(0) };
}

/// See the module documentation. On cache lines that others hardly write to.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Crowd {
    /// The first of the shards that threads allocate from; at least one.
    in_use: AtomicUsize,
    /// A bit for each shard with many holes.
    loose: AtomicU64,
    waits: AtomicU32,
}

// Relaxed throughout: hints.
impl Crowd {
    pub(super) fn new() -> Self {
        Self { in_use: AtomicUsize::new(1), loose: AtomicU64::new(0), waits: AtomicU32::new(0) }
    }

    /// Returns how many shards are in use.
    #[inline]
    pub(super) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Returns the shard that the calling thread allocates from: the same until it has met others
    /// at a lock a few times.
    #[inline]
    pub(super) fn home(&self) -> usize {
        match self.in_use() {
            1 => 0,
            // A thread whose locals are gone uses the first.
            in_use => STAND.try_with(Cell::get).unwrap_or(0) as usize / PATIENCE as usize % in_use,
        }
    }

    /// Sets how many shards are in use.
    pub(super) fn set_in_use(&self, shards: usize) {
        self.in_use.store(shards, Ordering::Relaxed);
    }

    /// Counts an allocation that found its lock taken, also for [`Crowd::home`]; returns whether
    /// more shards should be used, because there were enough.
    pub(super) fn count_wait(&self) -> bool {
        if self.in_use() > 1 {
            let _ = STAND.try_with(|stand| stand.set(stand.get().wrapping_add(1)));
        }
        self.waits.fetch_add(1, Ordering::Relaxed) % WAITS == WAITS - 1
    }

    /// Notes whether a shard is loose.
    #[cold]
    pub(super) fn note_loose(&self, shard: usize, loose: bool) {
        if loose {
            self.loose.fetch_or(1 << shard, Ordering::Relaxed);
        } else {
            self.loose.fetch_and(!(1 << shard), Ordering::Relaxed);
        }
    }

    /// Returns whether a shard is loose.
    pub(super) fn is_loose(&self, shard: usize) -> bool {
        self.loose.load(Ordering::Relaxed) >> shard & 1 == 1
    }

    /// Returns the bits of the loose shards other than `shard`.
    #[inline]
    pub(super) fn loose_beside(&self, shard: usize) -> u64 {
        self.loose.load(Ordering::Relaxed) & !(1 << shard)
    }
}
