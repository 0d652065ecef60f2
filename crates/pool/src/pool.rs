//! The contract of a pool: what every allocator does, whatever it is made of.
//!
//! - P1: an object keeps its bytes and its handle from `insert` until `free`, however often it
//!   is moved.
//! - P2: a handle that is not that of a live object of the pool is refused with
//!   [`HandleError::Stale`] by every call; nothing changes. A freed, forged or foreign one that has
//!   the number of a live object by chance names that object (see the module `handle`).
//! - P3: while a [`ReadGuard`] lives, its object is not moved or freed; `free` of it returns
//!   [`HandleError::Busy`]. Other objects are not affected.
//! - P4: a pool holds memory for whole pages only, and says exactly how many
//!   ([`PoolStats::pages`]); an emptied run of pages leaves at once.
//! - P5: a call that fails changes nothing.
//! - P6: no call waits for the reader of an object.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::AtomicBool;

use crate::handle::Handle;
use crate::memory::arena::Arena;
use crate::memory::source::SourceError;
use crate::sync::spin::Dead;
use crate::sync::stat::LockStat;
use crate::units::{PageCount, PageSize};

/// Densely packed memory for compressed pages and other small blobs. All methods take `&self`
/// and may be called from any number of threads.
///
/// # Examples
/// ```
/// use zfold_pool::{Allocator, PageCount, PoolOptions};
///
/// let pool = zfold_pool::create("example", &PoolOptions::new(Allocator::Zsmalloc))?;
/// let handle = pool.insert(b"forty-two bytes or any other length up to a page")?;
/// assert_eq!(&pool.read(handle)?[..9], b"forty-two");
/// pool.free(handle)?;
/// assert!(pool.read(handle).is_err(), "a freed handle is refused");
/// assert_eq!(pool.stats().pages, PageCount::ZERO);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Pool: PinOwner + Any + Send + Sync + fmt::Debug {
    /// Returns the name that the pool was created with.
    fn name(&self) -> &str;

    /// Returns the length in bytes of the longest object.
    fn len_max(&self) -> usize;

    /// Returns the least length in bytes of an object that costs as much as a whole page: storing
    /// a page raw costs no more than storing it compressed to this length.
    fn huge_len(&self) -> usize;

    /// Makes an object of `bytes`, which never change, and returns its handle.
    ///
    /// # Errors
    /// [`AllocError`]; nothing changes.
    fn insert(&self, bytes: &[u8]) -> Result<Handle, AllocError>;

    /// Returns a guard through which the object's bytes, exactly as many as were allocated, are
    /// read in place. It pins the object: hold it briefly.
    ///
    /// # Errors
    /// [`HandleError::Stale`].
    fn read(&self, handle: Handle) -> Result<ReadGuard<'_>, HandleError>;

    /// Frees an object.
    ///
    /// # Errors
    /// [`HandleError::Stale`] (freed already, or never allocated here) or
    /// [`HandleError::Busy`]; the object stays.
    fn free(&self, handle: Handle) -> Result<(), HandleError>;

    /// Moves objects together so that pages become free, until at least `pages` of them were
    /// freed or nothing more can be; returns how many were. Idle memory that the pool kept for
    /// its next allocation goes to the system, too (with 0 pages, only that). Objects
    /// that are being read stay in place.
    ///
    /// # Cost
    /// In proportion to the objects moved. Other callers are let in between small steps.
    fn compact(&self, pages: u64) -> u64 {
        self.compact_until(pages, &AtomicBool::new(false))
    }

    /// Compacts as [`Pool::compact`] does, and stops early, within the time that a few objects
    /// take to move, when `stop` becomes true. With [`crate::Contexts::Single`] and
    /// [`crate::Contexts::Parallel`] it returns zero at once while another call is at work.
    fn compact_until(&self, pages: u64, stop: &AtomicBool) -> u64;

    /// Switches the statistics of the pool's locks on, counting from zero, or off.
    ///
    /// # Cost
    /// On: two readings of the clock for every time a lock is taken. Off: next to nothing.
    fn watch_locks(&self, on: bool);

    /// Returns what every lock of the pool counted while it was watched, one entry a lock.
    fn lock_stats(&self) -> Vec<LockStat>;

    /// Empties the least recently used pages by asking the owner to evict their objects, until
    /// `pages` pages were freed; returns how many were.
    ///
    /// `evict` is called without any lock, once per object of a chosen page. It returns `Ok`
    /// after it wrote the object out and called [`Pool::free`] for it, or [`Refused`]. It may be
    /// given a handle that an `insert` on another thread returned just now and that its owner
    /// does not know yet; refuse it.
    ///
    /// # Errors
    /// [`ReclaimError`], always [`ReclaimError::Disabled`] from pools that have no age order; pages
    /// freed before the error stay freed.
    fn reclaim(
        &self,
        _pages: PageCount,
        _evict: &mut dyn FnMut(Handle) -> Result<(), Refused>,
    ) -> Result<PageCount, ReclaimError> {
        Err(ReclaimError::Disabled)
    }

    /// Returns the bytes that the pool holds: pages, idle pages and metadata. Cheap enough to
    /// call for every object: shards are added up without a lock, so the sum may be off by what
    /// moved between them meanwhile.
    fn held_bytes(&self) -> u64;

    /// Returns the pool's counters, consistent with each other.
    fn stats(&self) -> PoolStats;

    /// Walks everything the pool knows and asserts its invariants.
    ///
    /// # Panics
    /// If one is broken, naming it.
    ///
    /// # Cost
    /// In proportion to all objects and pages, with the pool locked: for tests.
    fn check(&self);
}

/// How a read guard releases its pin. Its module is private, which seals [`Pool`].
pub trait PinOwner {
    fn unpin(&self, handle: Handle);
}

/// A pinned object: dereferences to its bytes. See [`Pool::read`].
#[must_use = "the object is pinned only while the guard lives"]
pub struct ReadGuard<'a> {
    bytes: &'a [u8],
    pool: &'a dyn Pool,
    handle: Handle,
}

impl<'a> ReadGuard<'a> {
    /// Returns a guard for `bytes`, which `pool` has pinned under `handle`.
    pub(crate) fn new(bytes: &'a [u8], pool: &'a dyn Pool, handle: Handle) -> Self {
        Self { bytes, pool, handle }
    }
}

impl Deref for ReadGuard<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl fmt::Debug for ReadGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadGuard({:?}, {} bytes)", self.handle, self.bytes.len())
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.pool.unpin(self.handle);
    }
}

/// The statistics of a pool. Gauges are of now, `_total` counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Size of the pool's pages.
    pub page_size: PageSize,
    /// Live objects.
    pub objects: u64,
    /// Sum of the lengths of the live objects, in bytes.
    pub payload_bytes: u64,
    /// Pages that hold objects (the kernel's `pool_total_size`, in pages).
    pub pages: PageCount,
    /// Largest value `pages` ever had.
    pub pages_peak: PageCount,
    /// Empty pages kept for the next allocation: at most 1/64 of those in use, between 256 KiB
    /// and 4 MiB (16 MiB during a compaction; for each shard with `per-cpu` of z3fold and fit;
    /// four times as much until a worker of z3fold releases them).
    pub idle_pages: PageCount,
    /// Bytes of handle tables, page descriptors and free-run lists, all besides pages.
    pub metadata_bytes: u64,
    /// Pages that compaction could free now, by its own estimate.
    pub freeable_pages: PageCount,
    /// Pages that compaction has freed.
    pub pages_compacted_total: u64,
    /// Objects that were moved, by compaction or layout optimisation.
    pub objects_moved_total: u64,
}

impl PoolStats {
    /// Returns the sum of the counters of two parts of a pool; of the peaks, which may be of two
    /// moments, the sum is an upper bound.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            page_size: self.page_size,
            objects: self.objects + other.objects,
            payload_bytes: self.payload_bytes + other.payload_bytes,
            pages: self.pages + other.pages,
            pages_peak: self.pages_peak + other.pages_peak,
            idle_pages: self.idle_pages + other.idle_pages,
            metadata_bytes: self.metadata_bytes + other.metadata_bytes,
            freeable_pages: self.freeable_pages + other.freeable_pages,
            pages_compacted_total: self.pages_compacted_total + other.pages_compacted_total,
            objects_moved_total: self.objects_moved_total + other.objects_moved_total,
        }
    }

    /// Returns the counters of a pool of which only the pages are known.
    pub(crate) fn of_pages(arena: &Arena) -> Self {
        Self {
            page_size: arena.page_size(),
            pages: arena.used(),
            pages_peak: arena.used_peak(),
            idle_pages: arena.warm(),
            ..Self::default()
        }
    }

    /// Returns the bytes of the pages that hold objects.
    #[must_use]
    pub fn pool_bytes(&self) -> u64 {
        self.pages.bytes(self.page_size)
    }

    /// Returns all bytes that the pool holds: `pool_bytes`, idle pages and metadata.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.pool_bytes() + self.idle_pages.bytes(self.page_size) + self.metadata_bytes
    }
}

/// Why nothing was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocError {
    /// Objects have at least one byte.
    ZeroLength,
    /// The allocator takes objects of at most `max` bytes.
    TooLong {
        /// Requested length.
        len: usize,
        /// Longest object.
        max: usize,
    },
    /// The source has no memory or the arena is used up.
    NoMemory(SourceError),
    /// A thread panicked inside the pool (`per-cpu`: the CPU's part of it); it refuses all calls.
    Dead,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroLength => write!(f, "an object needs at least one byte"),
            Self::TooLong { len, max } => {
                write!(f, "{len} bytes are too long for this pool (at most {max})")
            }
            Self::NoMemory(source) => write!(f, "the pool cannot grow: {source}"),
            Self::Dead => write!(f, "the pool is dead: a thread panicked inside it"),
        }
    }
}

impl std::error::Error for AllocError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoMemory(source) => Some(source),
            _ => None,
        }
    }
}

impl From<SourceError> for AllocError {
    fn from(source: SourceError) -> Self {
        Self::NoMemory(source)
    }
}

/// Why a handle was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandleError {
    /// No live object of this pool: freed, from another pool, or made up.
    Stale,
    /// The object is being read and cannot be freed now.
    Busy,
    /// A thread panicked inside the pool (`per-cpu`: the object's part of it); it refuses all
    /// calls.
    Dead,
}

impl fmt::Display for HandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => write!(f, "the handle names no live object of this pool"),
            Self::Busy => write!(f, "the object is being read"),
            Self::Dead => write!(f, "the pool is dead: a thread panicked inside it"),
        }
    }
}

impl std::error::Error for HandleError {}

/// The error of an evict hook that keeps an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Why reclaim stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReclaimError {
    /// The pool keeps no age order; create it with [`crate::PoolOptions::reclaim`].
    Disabled,
    /// No page is left to choose from.
    Empty,
    /// The owner refused objects of eight pages in a row.
    Refused,
    /// A thread panicked inside the pool; it refuses all calls.
    Dead,
}

impl fmt::Display for ReclaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Disabled => "the pool was created without reclaim",
            Self::Empty => "the pool has no page left to reclaim",
            Self::Refused => "the owner refused to evict objects of eight pages in a row",
            Self::Dead => "the pool is dead: a thread panicked inside it",
        };
        f.write_str(text)
    }
}

impl std::error::Error for ReclaimError {}

impl From<Dead> for AllocError {
    fn from(_: Dead) -> Self {
        Self::Dead
    }
}

impl From<Dead> for HandleError {
    fn from(_: Dead) -> Self {
        Self::Dead
    }
}

impl From<Dead> for ReclaimError {
    fn from(_: Dead) -> Self {
        Self::Dead
    }
}

/// Refuses lengths that no object has.
#[inline]
pub(crate) fn check_len(len: usize, max: usize) -> Result<(), AllocError> {
    match len {
        0 => Err(AllocError::ZeroLength),
        len if len > max => Err(AllocError::TooLong { len, max }),
        _ => Ok(()),
    }
}
